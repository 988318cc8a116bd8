//! Parameters that may be without an argument.

use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// `out = x * scale + bias`, and what was there before goes to `before`.
#[kernel]
fn affine<T: Num, const BLOCK: usize>(
    x: Ptr<T>,
    bias: Option<Ptr<T>>,
    scale: Option<T>,
    before: Option<PtrMut<T>>,
    out: PtrMut<T>,
    n: i32,
) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    if let Some(before) = before {
        store(before + offsets, load(out + offsets, mask = mask), mask = mask);
    }
    let mut value = load(x + offsets, mask = mask);
    if let Some(scale) = scale {
        value = value * scale;
    }
    let value = if let Some(bias) = bias { value + load(bias + offsets, mask = mask) } else { value };
    store(out + offsets, value, mask = mask);
}

/// The same without options.
#[kernel]
fn plain<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let value = load(x + offsets, mask = mask);
    store(out + offsets, value, mask = mask);
}

#[test]
fn every_combination_of_arguments_computes_what_it_says() {
    check(|device| {
        let (x, b) = (device.full(100, 3i32)?, device.full(100, 7i32)?);
        for case in 0..8 {
            let (has_bias, has_scale, has_before) = (case & 1 != 0, case & 2 != 0, case & 4 != 0);
            let (mut before, mut out) = (device.zeros::<i32>(100)?, device.full(100, -1)?);
            let bias = has_bias.then_some(&b);
            let kept = has_before.then_some(&mut before);
            affine::<_, 64>(&x, bias, has_scale.then_some(5), kept, &mut out, 100).grid(2).launch(device)?;
            let scaled = if has_scale { 15 } else { 3 };
            assert_eq!(out.to_vec()?, vec![if has_bias { scaled + 7 } else { scaled }; 100], "{case}");
            assert_eq!(before.to_vec()?, vec![if has_before { -1 } else { 0 }; 100], "{case}");
        }
        Ok(())
    });
}

#[test]
fn views_are_passed_as_they_are() {
    check(|device| {
        let values: Vec<f32> = (0..128u8).map(f32::from).collect();
        let (x, b) = (device.zeros::<f32>(64)?, device.upload(&values)?);
        let (mut before, mut out) = (device.zeros::<f32>(128)?, device.full(64, 1.0f32)?);
        let call = AffineArgs {
            x: &x,
            bias: b.slice(64..)?,
            scale: None,
            before: before.slice_mut(64..)?,
            out: &mut out,
            n: 64,
        };
        call.call(AffineConsts { BLOCK: 64 }).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, values[64..]);
        assert_eq!(before.to_vec()?, [[0.0; 64], [1.0; 64]].concat());
        Ok(())
    });
}

fn ptx(kernel: Result<CompiledKernel, Error>) -> String {
    kernel.unwrap_or_else(|error| panic!("{error}")).ptx().to_string()
}

#[test]
fn an_absent_argument_costs_nothing() {
    for target in [Target::sm_80(), Target::sm_90a()] {
        let plain = ptx(PlainConsts { BLOCK: 1024 }.compile::<f32>(target)).replace("plain", "affine");
        let absent = AffineConsts { BLOCK: 1024 }.compile::<f32>(target, false, false, false);
        assert_eq!(ptx(absent), plain);
        let given = ptx(AffineConsts { BLOCK: 1024 }.compile::<f32>(target, true, true, true));
        let params = |text: &str| text.lines().filter(|line| line.trim_start().starts_with(".param")).count();
        assert_eq!((params(&plain), params(&given)), (3, 6), "{given}");
    }
}

/// Descriptors, and conditions of their own.
#[kernel]
fn tiles<const M: usize>(
    a: Option<TensorDesc<f32, { [M, M] }>>,
    b: Option<TensorDesc<f32, { [M, M] }>>,
    out: TensorDescMut<f32, { [M, M] }>,
    extra: Option<TensorDescMut<f32, { [M, M] }>>,
) {
    static_assert!(a.is_some() || b.is_some(), "nothing to add");
    let mut total = zeros::<f32>([M, M]);
    if let Some(a) = a {
        total += a.load([0, 0]);
    }
    if let Some(b) = b {
        total += b.load([0, 0]) * if a.is_none() { 1.0 } else { 10.0 };
    }
    out.store([0, 0], total);
    if let Some(extra) = extra {
        extra.store([0, 0], total + 1.0);
    }
}

#[test]
fn descriptors_may_be_absent() {
    check(|device| {
        let (ones, twos) = (device.full(256, 1.0f32)?, device.full(256, 2.0f32)?);
        let (ones, twos) = (TensorDesc::new(&ones, [16, 16])?, TensorDesc::new(&twos, [16, 16])?);
        let (mut out, mut extra) = (device.zeros::<f32>(256)?, device.zeros::<f32>(256)?);
        let mut run = |a: Option<&TensorDesc<'_, f32, 2>>, b: Option<&TensorDesc<'_, f32, 2>>, expected: f32| {
            let mut desc = TensorDescMut::new(&mut out, [16, 16])?;
            let mut extra = TensorDescMut::new(&mut extra, [16, 16])?;
            let extra = a.is_some().then_some(&mut extra);
            tiles::<16>(a, b, &mut desc, extra).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, [expected; 256]);
            Ok::<_, Error>(())
        };
        run(Some(&ones), None, 1.0)?;
        run(None, Some(&twos), 2.0)?;
        run(Some(&ones), Some(&twos), 21.0)?;
        assert_eq!(extra.to_vec()?, [22.0; 256]);
        let mut desc = TensorDescMut::new(&mut out, [16, 16])?;
        let refused = tiles::<16>(None, None, &mut desc, None).grid(1).launch(device);
        let text = refused.map_or_else(|error| error.to_string(), |()| String::new());
        assert!(text.contains("nothing to add"), "{text}");
        Ok(())
    });
}

/// A dtype parameter that only an absent argument has.
#[kernel]
fn masked<T: Num, M: Int, const N: usize>(x: Ptr<T>, mask: Option<Ptr<M>>, out: PtrMut<T>) {
    let i = arange(0, N);
    let keep = if let Some(mask) = mask { load(mask + i) != (0 as M) } else { full([N], true) };
    store(out + i, select(keep, load(x + i), zeros([N])));
}

#[test]
fn the_caller_says_the_dtype_that_nothing_else_says() {
    check(|device| {
        let (x, mut out) = (device.full(32, 2.5f32)?, device.zeros(32)?);
        masked::<_, _, 32>(&x, None::<&Buffer<u8>>, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [2.5; 32]);
        let mask: Vec<i64> = (0..32).map(|i| i % 2).collect();
        masked::<_, _, 32>(&x, Some(&device.upload(&mask)?), &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [0.0, 2.5].repeat(16));
        masked::<_, i16, 32>(&x, None, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [2.5; 32]);
        Ok(())
    });
}

#[test]
fn launches_with_absent_arguments_are_recorded_in_graphs() {
    check(|device| {
        let (x, bias) = (device.full(64, 3i32)?, device.full(64, 4i32)?);
        let mut out = device.zeros::<i32>(64)?;
        let graph = device.capture(|| {
            affine::<_, 64>(&x, Some(&bias), None, None, &mut out, 64).grid(1).launch(device)?;
            affine::<_, 64>(&x, None, Some(2), None, &mut out, 64).grid(1).launch(device)
        })?;
        graph.replay()?;
        assert_eq!(out.to_vec()?, [6; 64]);
        Ok(())
    });
}
