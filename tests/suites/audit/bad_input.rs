//! Arguments that nobody should pass, and some do: views that are not aligned, strides of zero, indices that overflow
//! inside a tile, graphs whose buffers are gone, kernels that are too large. Each has a meaning or is an `Err`.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn doubled<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, sums: PtrMut<T>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let v = load(x + i, mask = i < n);
    store(out + i, v + v, mask = i < n);
    store(sums + program_id(0), sum(v, axis = 0));
}

fn check_misaligned<T>(device: &Device, make: fn(usize) -> T) -> Result<(), Error>
where
    T: Num + std::ops::Add<Output = T>,
{
    const BLOCK: usize = 128;
    const N: usize = 300;
    let xs: Vec<T> = (0..N + 16).map(|i| make(i % 3)).collect();
    let x = device.upload(&xs)?;
    // The aligned launch first and last: code for aligned views must not be reused for others.
    for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (2, 2), (7, 15), (16, 16), (0, 0)] {
        let mut whole = device.full(N + 32, make(9))?;
        let mut sums = device.full(3, make(0))?;
        let mut out = whole.slice_mut(to..to + N)?;
        DoubledConsts { BLOCK }
            .call(x.slice(from..from + N)?, &mut out, &mut sums, N as i32)
            .grid(N.div_ceil(BLOCK))
            .launch(device)?;
        let part = &xs[from..from + N];
        let mut want = vec![make(9); N + 32];
        want[to..to + N].iter_mut().zip(part).for_each(|(want, &x)| *want = x + x);
        assert_eq!(whole.to_vec()?, want, "{} elements from {from} to {to}", T::ELEMENT);
        let want: Vec<T> = part.chunks(BLOCK).map(|c| c.iter().fold(make(0), |a, &b| a + b)).collect();
        assert_eq!(sums.to_vec()?, want, "sums of {} from {from}", T::ELEMENT);
    }
    Ok(())
}

#[test]
fn views_of_every_width_that_start_anywhere() {
    check(|device| {
        check_misaligned::<u8>(device, |i| i as u8 / 3)?;
        check_misaligned::<f16>(device, |i| f16::from_f32(i as f32))?;
        check_misaligned::<i32>(device, |i| i as i32)?;
        check_misaligned::<f32>(device, |i| i as f32)?;
        check_misaligned::<f64>(device, |i| i as f64)
    });
}

#[test]
fn a_misaligned_view_in_a_graph() {
    check(|device| {
        let xs: Vec<i32> = (0..200).collect();
        let x = device.upload(&xs)?;
        let (mut out, mut sums) = (device.full(200, -1i32)?, device.zeros::<i32>(1)?);
        let graph = {
            let mut part = out.slice_mut(5..133)?;
            let from = x.slice(3..131)?;
            device.capture(|| doubled::<_, 128>(from, &mut part, &mut sums, 128).grid(1).launch(device))?
        };
        graph.replay()?;
        let inside = |i: usize| (5..133).contains(&i);
        let want: Vec<i32> = (0..200).map(|i| if inside(i) { 2 * xs[i - 2] } else { -1 }).collect();
        assert_eq!(out.to_vec()?, want);
        assert_eq!(sums.to_vec()?, [xs[3..131].iter().sum::<i32>()]);
        Ok(())
    });
}

#[kernel]
fn strided<const R: usize, const C: usize>(
    x: Ptr<i32>,
    out: PtrMut<i32>,
    start: i32,
    row_stride: i32,
    column_stride: i32,
) {
    let r = arange(0, R)[(.., None)];
    let c = arange(0, C)[(None, ..)];
    let v = load(x + (start + r * row_stride + c * column_stride));
    store(out + (r * C + c), v);
}

#[test]
fn strides_of_zero_one_and_less() {
    check(|device| {
        let xs: Vec<i32> = (0..400).map(|i| i * i).collect();
        let x = device.upload(&xs)?;
        let strides = [0i32, 1, 16, 3, -1, -2, 0];
        for row_stride in strides {
            for column_stride in strides {
                let start = if row_stride < 0 || column_stride < 0 { 100 } else { 2 };
                let at = |i: i32| start + i / 16 * row_stride + i % 16 * column_stride;
                let inside = |at: i32| (0..400).contains(&at);
                if !(0..128).all(|i| inside(at(i))) {
                    continue;
                }
                let mut out = device.full(128, -1i32)?;
                strided::<8, 16>(&x, &mut out, start, row_stride, column_stride).grid(1).launch(device)?;
                let want: Vec<i32> = (0..128).map(|i| xs[at(i) as usize]).collect();
                assert_eq!(out.to_vec()?, want, "strides {row_stride} and {column_stride}");
            }
        }
        Ok(())
    });
}

#[kernel]
fn scattered<const N: usize>(out: PtrMut<i32>, stride: i32) {
    let i = program_id(0) * N + arange(0, N);
    store(out + i * stride, i + 1);
}

#[test]
fn stores_with_a_stride_of_zero_leave_one_of_the_values() {
    check(|device| {
        let mut out = device.zeros::<i32>(64)?;
        scattered::<32>(&mut out, 0).grid(2).launch(device)?;
        let got = out.to_vec()?;
        assert!((1..=64).contains(&got[0]), "{got:?}");
        assert_eq!(got[1..], [0; 63]);
        // The same code with another stride.
        scattered::<32>(&mut out, 1).grid(2).launch(device)?;
        assert_eq!(out.to_vec()?, (1..=64).collect::<Vec<_>>());
        Ok(())
    });
}

#[kernel]
fn stepped(out: PtrMut<i32>, n: i32, step: i32) {
    let mut count = 0;
    for _k in (0..n).step_by(step) {
        count += 1;
    }
    store(out, count);
}

#[test]
fn loops_with_a_step_of_zero_do_not_run() {
    check(|device| {
        for (step, want) in [(0, 0), (-1, 0), (i32::MIN, 0), (1, 10), (3, 4), (10, 1), (i32::MAX, 1)] {
            let mut out = device.full(1, -1i32)?;
            stepped(&mut out, 10, step).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, [want], "a step of {step}");
        }
        Ok(())
    });
}

/// Whether an error is an access out of bounds of this argument, at one of these offsets.
fn is_out_of_bounds(result: Result<Vec<i32>, Error>, of: &str, offsets: impl Fn(i64) -> bool) {
    match result {
        Err(Error::OutOfBounds { argument, offset, .. }) => {
            assert_eq!(&*argument, of);
            assert!(offsets(offset), "offset {offset}");
        }
        other => panic!("expected an access out of bounds, got {other:?}"),
    }
}

#[test]
fn products_that_overflow_inside_a_tile() {
    check(|device| {
        // Lane 32 is at 2^31, which wraps to the smallest i32; lane 64 would be at 0 again.
        let stride = 1i64 << 26;
        let mut out = device.zeros::<i32>(4)?;
        scattered::<128>(&mut out, stride as i32).grid(1).launch(device)?;
        let lanes = |offset: i64| (1..128).any(|lane: i64| i64::from((lane * stride) as i32) == offset && offset != 0);
        is_out_of_bounds(out.to_vec(), "out", lanes);
        let got = out.to_vec()?;
        assert!(got[0] == 1 || got[0] == 65, "{got:?}");
        assert_eq!(got[1..], [0; 3]);

        let x = device.full(200, 5i32)?;
        let mut out = device.full(128, -1i32)?;
        strided::<8, 16>(&x, &mut out, 7, 1 << 30, 1).grid(1).launch(device)?;
        is_out_of_bounds(out.to_vec(), "x", |offset| !(0..200).contains(&offset));
        // Row 4 is at 2^32, which wraps to the place of row 0; the others are far outside.
        let want: Vec<i32> = (0..128).map(|i| if i / 16 % 4 == 0 { 5 } else { 0 }).collect();
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn masked_copy<const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>, start: i32, n: i32) {
    let i = start + program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + i, load(x + i, mask = i < n), mask = i < n);
}

#[test]
fn sums_that_overflow_below_their_mask() {
    check(|device| {
        let x = device.full(64, 5i32)?;
        for start in [i32::MAX - 40, i32::MAX - 127, i32::MAX - 31] {
            // What wraps is negative, so the mask admits it; what does not is masked.
            let mut out = device.zeros::<i32>(64)?;
            masked_copy::<64>(&x, &mut out, start, 64).grid(4).launch(device)?;
            is_out_of_bounds(out.to_vec(), "x", |offset| offset < 0);
            assert_eq!(out.to_vec()?, [0; 64]);
        }
        let mut out = device.zeros::<i32>(64)?;
        masked_copy::<64>(&x, &mut out, i32::MAX - 63, 64).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [0; 64], "everything is masked, nothing overflows");
        device.synchronize()
    });
}

#[test]
fn graphs_outlive_their_buffers() {
    check(|device| {
        let mut out = device.zeros::<i32>(100)?;
        let mut sums = device.zeros::<i32>(1)?;
        let graph = {
            let x = device.full(100, 4i32)?;
            let mut middle = device.zeros::<i32>(100)?;
            device.capture(|| {
                doubled::<_, 128>(&x, &mut middle, &mut sums, 100).grid(1).launch(device)?;
                doubled::<_, 128>(&middle, &mut out, &mut sums, 100).grid(1).launch(device)
            })?
        };
        // The memory of the two would be given out again here.
        let others: Vec<Buffer<i32>> = (0..8).map(|_| device.full(100, -1)).collect::<Result<_, Error>>()?;
        for _ in 0..3 {
            graph.replay()?;
        }
        assert_eq!((out.to_vec()?, sums.to_vec()?), (vec![16; 100], vec![800]));
        for other in &others {
            assert_eq!(other.to_vec()?, [-1; 100]);
        }
        // What a replay writes may be gone as well, and the graph before its replays have ended.
        drop((out, sums));
        graph.replay()?;
        drop(graph);
        device.synchronize()
    });
}

#[kernel]
fn transposed<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let r = arange(0, N)[(.., None)];
    let c = arange(0, N)[(None, ..)];
    store(out + (r * N + c), trans(load(x + (r * N + c))));
}

#[test]
fn kernels_that_are_too_large_for_a_target() {
    let device = Device::cpu();
    let make = || -> Result<_, Error> { Ok((device.full(1, 1.0f32)?, device.zeros::<f32>(1)?)) };
    let (x, mut out) = make().unwrap_or_else(|error| panic!("{error}"));
    let mut compile = |warps: u32, target: Target| transposed::<512>(&x, &mut out).num_warps(warps).compile(target);
    match compile(32, Target::sm_80()) {
        Err(error @ Error::Resources { .. }) => {
            let text = error.to_string();
            assert!(text.contains(" bytes of shared memory on sm_80 ("), "{text}");
            assert!(text.contains("the limit is 166912"), "{text}");
        }
        other => panic!("{:?}", other.map(|compiled| compiled.report().to_string())),
    }
    assert!(matches!(compile(64, Target::sm_90a()), Err(Error::InvalidSetting { .. })));
}

#[kernel]
fn large_fill<const N: usize>(out: PtrMut<i32>) {
    store(out + arange(0, N), full([N], 7));
}

/// A thread holds 1024 elements of a tile: the number of warps that is asked for must fit, on the CPU as on a GPU.
#[test]
fn tiles_that_do_not_fit_their_warps() {
    check(|device| {
        let mut out = device.zeros::<i32>(1 << 20)?;
        let mut launch = |warps| large_fill::<{ 1 << 20 }>(&mut out).grid(1).num_warps(warps).launch(device);
        for (warps, plural) in [(16, "s"), (1, ""), (16, "s")] {
            let text = match launch(warps) {
                Err(error @ Error::Compile(_)) => error.to_string(),
                other => panic!("{other:?}"),
            };
            let what = format!("a tile of 1048576 elements does not fit a program of {warps} warp{plural}");
            assert!(text.contains(&what) && text.contains("a thread holds up to 1024 elements"), "{text}");
            assert!(text.contains("bad_input.rs:") && text.contains("N = 1048576"), "{text}");
            assert!(text.contains("use `num_warps = 32`, or loop over smaller tiles"), "{text}");
        }
        launch(32)?;
        // By itself a launch takes as many warps as its largest tile needs.
        large_fill::<{ 1 << 20 }>(&mut out).grid(1).launch(device)?;
        assert!(out.to_vec()?.iter().all(|&value| value == 7));
        Ok(())
    });
}

#[kernel]
fn counted<const N: u64, const FLAG: bool, const BLOCK: usize>(out: PtrMut<i32>) {
    store(out + arange(0, BLOCK), if FLAG && N > 0 { 1 } else { 0 });
}

#[test]
fn constexprs_beyond_63_bits_are_named_as_they_were_given() {
    check(|device| {
        let mut out = device.zeros::<i32>(4)?;
        let mut refusal = |consts: CountedConsts| match consts.call(&mut out).grid(1).launch(device) {
            Err(error @ Error::Compile(_)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let text = refusal(CountedConsts { N: u64::MAX, FLAG: true, BLOCK: 4 });
        assert!(text.contains("`N = 18446744073709551615` is more than a constexpr can be"), "{text}");
        assert!(text.contains("the limit is 9223372036854775807") && text.contains("FLAG = true"), "{text}");
        let text = refusal(CountedConsts { N: 1, FLAG: false, BLOCK: 1 << 63 });
        assert!(text.contains("`BLOCK = 9223372036854775808` is more than a constexpr can be"), "{text}");
        Ok(())
    });
}

#[kernel]
fn filled<const N: usize, const M: usize>(out: PtrMut<f32>) {
    store(out + arange(0, N)[(.., None)] * M + arange(0, M), full([N, M], 1.0));
}

#[test]
fn a_mistake_of_several_operations_of_an_expression_is_told_once() {
    check(|device| {
        let mut out = device.zeros::<f32>(4)?;
        match filled::<2048, 1024>(&mut out).grid(1).launch(device) {
            // The pointers and the value, each a tile that is too large.
            Err(error @ Error::Compile(_)) => {
                assert_eq!(error.to_string().matches("has more than 1048576 elements").count(), 2, "{error}");
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    });
}
