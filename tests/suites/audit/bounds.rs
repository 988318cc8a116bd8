//! Accesses out of bounds and failed assertions: reported with their place, suppressed, survived.

use tilewright::launch::Call;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// The line of this file that contains `text`, and the column where it starts, from 1.
fn place(text: &str) -> (u32, u32) {
    let source = include_str!("bounds.rs");
    // Not where a test names it.
    let is_kernel = |line: &str| !line.contains("text: ") && !line.contains("place(");
    let found = source.lines().enumerate().find(|(_, line)| line.contains(text) && is_kernel(line));
    let (line, content) = found.unwrap_or_else(|| panic!("no line has `{text}`"));
    let column = content.find(text).unwrap_or_default();
    (line as u32 + 1, content[..column].chars().count() as u32 + 1)
}

/// What a test expects of a report.
struct Report {
    text: &'static str,
    argument: &'static str,
    offset: i64,
    len: u64,
    program: [u32; 3],
}

/// Checks that an error is an access out of bounds with these particulars.
fn expect_out_of_bounds<T: std::fmt::Debug>(result: Result<T, Error>, want: &Report) {
    match result {
        Err(Error::OutOfBounds { file, line, column, program_id, offset, len, argument, .. }) => {
            assert!(file.ends_with("bounds.rs"), "file {file}");
            assert_eq!((line, column), place(want.text), "the place of `{}`", want.text);
            assert_eq!((offset, len, &*argument), (want.offset, want.len, want.argument));
            assert_eq!(program_id, want.program);
        }
        other => panic!("expected an access out of bounds, got {other:?}"),
    }
}

/// Nothing is in the stream any more, and the device works: another kernel runs.
fn still_works(device: &Device) -> Result<(), Error> {
    device.synchronize()?;
    let x = device.upload(&[1i32, 2, 3])?;
    let mut out = device.zeros::<i32>(3)?;
    copy::<4>(&x, &mut out, 3).grid(1).launch(device)?;
    assert_eq!(out.to_vec()?, [1, 2, 3]);
    Ok(())
}

#[kernel]
fn copy<const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let v = load(x + i, mask = i < n);
    store(out + i, v, mask = i < n);
}

#[test]
fn a_length_that_is_too_large() {
    check(|device| {
        let x = device.upload(&(0..200).collect::<Vec<i32>>())?;
        let mut whole = device.full(200, -7i32)?;
        let (mut out, _) = whole.split_at_mut(100)?;
        // 128 of the input are there, 100 of the output: one program, the store alone is wrong.
        copy::<32>(&x, &mut out, 101).grid(4).launch(device)?;
        let want = Report {
            text: "store(out + i, v, mask = i < n)",
            argument: "out",
            offset: 100,
            len: 100,
            program: [3, 0, 0],
        };
        expect_out_of_bounds(out.to_vec(), &want);
        let got = whole.to_vec()?;
        assert_eq!(got[..100], (0..100).collect::<Vec<i32>>(), "what lies inside is written");
        assert_eq!(got[100..], [-7; 100], "what lies outside is not");
        still_works(device)
    });
}

#[test]
fn lengths_near_the_largest() {
    check(|device| {
        for n in [i32::MAX, i32::MAX - 1, i32::MAX - 31, 1 << 30] {
            let x = device.full(64, 3i32)?;
            let mut out = device.zeros::<i32>(64)?;
            copy::<32>(&x, &mut out, n).grid(3).launch(device)?;
            let want =
                Report { text: "load(x + i, mask = i < n)", argument: "x", offset: 64, len: 64, program: [2, 0, 0] };
            expect_out_of_bounds(out.to_vec(), &want);
            assert_eq!(out.to_vec()?, [3; 64]);
        }
        still_works(device)
    });
}

#[kernel]
fn wraps(x: Ptr<i32>, out: PtrMut<i32>, start: i32, n: i32) {
    // Near the largest i32 the sum wraps to negative numbers, which are below any n.
    let i = start + arange(0, 32);
    let v = load(x + i, mask = i < n);
    store(out + arange(0, 32), v);
}

#[test]
fn offsets_that_wrap() {
    check(|device| {
        let x = device.full(64, 3i32)?;
        let mut out = device.full(32, 9i32)?;
        let start = i32::MAX - 15;
        wraps(&x, &mut out, start, 64).grid(1).launch(device)?;
        let want = Report {
            text: "load(x + i, mask = i < n);",
            argument: "x",
            offset: i64::from(i32::MIN),
            len: 64,
            program: [0, 0, 0],
        };
        match out.to_vec() {
            Err(Error::OutOfBounds { offset, argument, .. }) => {
                assert!((i64::from(i32::MIN)..i64::from(i32::MIN) + 16).contains(&offset), "offset {offset}");
                assert_eq!(&*argument, want.argument);
            }
            other => panic!("expected an access out of bounds, got {other:?}"),
        }
        // Half of the lanes are masked, the others refused: all read zero.
        assert_eq!(out.to_vec()?, [0; 32]);
        still_works(device)
    });
}

#[kernel]
fn strided(out: PtrMut<i32>, stride: i32) {
    let p = program_id(0);
    store(out + p * stride, p);
}

#[test]
fn products_that_wrap() {
    check(|device| {
        // 2 * 2^31 wraps to 0, 1 * 2^31 to the smallest i32.
        let mut out = device.full(4, 9i32)?;
        strided(&mut out, i32::MIN).grid(3).launch(device)?;
        let want = Report {
            text: "store(out + p * stride, p)",
            argument: "out",
            offset: i64::from(i32::MIN),
            len: 4,
            program: [1, 0, 0],
        };
        expect_out_of_bounds(out.to_vec(), &want);
        let got = out.to_vec()?;
        assert!(got[0] == 0 || got[0] == 2, "{got:?}");
        assert_eq!(got[1..], [9; 3]);
        // Negative and just beyond.
        strided(&mut out, -1).grid(2).launch(device)?;
        let want = Report { offset: -1, ..want };
        expect_out_of_bounds(out.to_vec(), &want);
        strided(&mut out, 4).grid(2).launch(device)?;
        expect_out_of_bounds(out.to_vec(), &Report { offset: 4, ..want });
        // In bounds again: no error is left over.
        strided(&mut out, 3).grid(2).launch(device)?;
        assert_eq!(out.to_vec()?[3], 1);
        still_works(device)
    });
}

#[kernel]
fn gather(x: Ptr<f32>, indices: Ptr<i64>, out: PtrMut<f32>) {
    let i = arange(0, 64);
    let at = load(indices + i);
    store(out + i, load(x + at));
}

#[kernel]
fn scatter(indices: Ptr<i64>, out: PtrMut<f32>) {
    let i = arange(0, 64);
    let to = load(indices + i);
    store(out + to, 1.5);
}

#[test]
fn indices_from_data() {
    check(|device| {
        for bad in [100i64, -1, i64::MAX, i64::MIN, 1 << 32, (1 << 62) + 3] {
            let x = device.upload(&(0..100).map(|i| i as f32).collect::<Vec<_>>())?;
            let mut table: Vec<i64> = (0..64).map(|i| (i * 7) % 100).collect();
            table[37] = bad;
            let indices = device.upload(&table)?;
            let mut out = device.full(64, -1.0f32)?;
            gather(&x, &indices, &mut out).grid(1).launch(device)?;
            let want = Report { text: "load(x + at)", argument: "x", offset: bad, len: 100, program: [0, 0, 0] };
            expect_out_of_bounds(out.to_vec(), &want);
            let want: Vec<f32> = table.iter().map(|&i| if i == bad { 0.0 } else { i as f32 }).collect();
            assert_eq!(out.to_vec()?, want, "suppressed lanes read zero");

            let mut whole = device.full(200, -1.0f32)?;
            let (_, mut right) = whole.split_at_mut(100)?;
            scatter(&indices, &mut right).grid(1).launch(device)?;
            let want =
                Report { text: "store(out + to, 1.5)", argument: "out", offset: bad, len: 100, program: [0, 0, 0] };
            expect_out_of_bounds(right.to_vec(), &want);
            let got = whole.to_vec()?;
            let hit = |i: usize| i >= 100 && table.contains(&(i as i64 - 100));
            assert!((0..200).all(|i| got[i] == if hit(i) { 1.5 } else { -1.0 }), "only what is inside is written");
        }
        still_works(device)
    });
}

#[kernel]
fn gather_some(x: Ptr<f32>, indices: Ptr<i32>, out: PtrMut<f32>, last: PtrMut<f32>, n: i32) {
    let i = arange(0, 64);
    let at = load(indices + i);
    store(out + i, load(x + at, mask = i < n, other = -2.5));
    // The address of a scalar, and bounds that a launch condition decides.
    store(last, load(x + load(indices), mask = n > 0, other = 0.5) + load(x + n, mask = n < 3, other = 0.25));
}

#[test]
fn refused_lanes_read_zero_and_masked_lanes_other() {
    check(|device| {
        let x = device.upload(&(1..=100).map(|i| i as f32).collect::<Vec<_>>())?;
        for (bad, n) in [(100i32, 40usize), (-1, 64), (i32::MIN, 5), (i32::MAX, 0), (7, 33), (1000, 1)] {
            // Every third index is wrong, under the mask and outside it.
            let table: Vec<i32> = (0..64).map(|i| if i % 3 == 0 { bad } else { i }).collect();
            let indices = device.upload(&table)?;
            let (mut out, mut last) = (device.full(64, -1.0f32)?, device.full(1, -1.0f32)?);
            gather_some(&x, &indices, &mut out, &mut last, n as i32).grid(1).launch(device)?;
            let value = |i: usize| if (0..100).contains(&table[i]) { table[i] as f32 + 1.0 } else { 0.0 };
            let want: Vec<f32> = (0..64).map(|i| if i < n { value(i) } else { -2.5 }).collect();
            let wrong = n > 0 && bad != 7;
            match out.to_vec() {
                Err(Error::OutOfBounds { offset, .. }) if wrong => assert_eq!(offset, i64::from(bad)),
                Ok(_) if !wrong => {}
                other => panic!("index {bad}, {n} lanes: {other:?}"),
            }
            assert_eq!(out.to_vec()?, want, "index {bad}, {n} lanes");
            let first = if n > 0 { value(0) } else { 0.5 };
            let second = if n < 3 { n as f32 + 1.0 } else { 0.25 };
            assert_eq!(last.to_vec()?, [first + second], "index {bad}, {n} lanes");
        }
        still_works(device)
    });
}

#[kernel]
fn shifted<const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + i, load(x + i, mask = i < n, other = -9));
}

#[test]
fn refused_lanes_read_zero_where_a_launch_condition_fails() {
    check(|device| {
        let x = device.upload(&(1..=70).collect::<Vec<i32>>())?;
        let mut out = device.full(128, -1i32)?;
        // 70 elements are there, 100 are asked for: the variant that checks every access runs.
        shifted::<64>(&x, &mut out, 100).grid(2).launch(device)?;
        assert!(matches!(out.to_vec(), Err(Error::OutOfBounds { offset: 70..=99, len: 70, .. })));
        let want: Vec<i32> = (1..=70).chain([0; 30]).chain([-9; 28]).collect();
        assert_eq!(out.to_vec()?, want);
        still_works(device)
    });
}

#[kernel]
fn out_of_bounds_under_a_mask(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = arange(0, 128);
    store(out + i, load(x + i, mask = i < n, other = -1), mask = i < n);
}

#[test]
fn masked_lanes_may_point_anywhere() {
    check(|device| {
        let x = device.full(5, 4i32)?;
        let mut out = device.zeros::<i32>(5)?;
        out_of_bounds_under_a_mask(&x, &mut out, 5).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [4; 5]);
        still_works(device)
    });
}

#[kernel]
fn walks(x: Ptr<i32>, out: PtrMut<i32>, steps: i32) {
    let mut total = 0;
    for k in 0..steps {
        total += load(x + k * k);
    }
    store(out, total);
}

#[test]
fn a_loop_that_walks_out() {
    check(|device| {
        let x = device.full(50, 1i32)?;
        let mut out = device.zeros::<i32>(1)?;
        walks(&x, &mut out, 8).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [8]);
        walks(&x, &mut out, 12).grid(1).launch(device)?;
        let want = Report { text: "load(x + k * k)", argument: "x", offset: 64, len: 50, program: [0, 0, 0] };
        expect_out_of_bounds(out.to_vec(), &want);
        assert_eq!(out.to_vec()?, [8], "what is outside counts as zero");
        still_works(device)
    });
}

#[kernel]
fn asserts(x: Ptr<i32>, out: PtrMut<i32>) {
    let p = program_id(0);
    let v = load(x + p);
    store(out + p, 1);
    assert!(v >= 0, "elements are not negative");
    store(out + p, 2);
}

#[test]
fn a_failed_assertion_ends_its_program() {
    check(|device| {
        let x = device.upload(&[4, -1, 0, -5, 9])?;
        let mut out = device.zeros::<i32>(5)?;
        asserts(&x, &mut out).grid(5).launch(device)?;
        match out.to_vec() {
            Err(Error::AssertFailed { file, line, program_id, message, .. }) => {
                assert!(file.ends_with("bounds.rs"), "file {file}");
                assert_eq!(line, place("assert!(v >= 0").0);
                assert!(program_id == [1, 0, 0] || program_id == [3, 0, 0], "program {program_id:?}");
                assert!(message.contains("elements are not negative"), "message {message}");
            }
            other => panic!("expected a failed assertion, got {other:?}"),
        }
        assert_eq!(out.to_vec()?, [2, 1, 2, 1, 2]);
        still_works(device)
    });
}

#[kernel]
unsafe fn unchecked<const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let v = load(x + i, mask = i < n);
    store(out + i, v * 3, mask = i < n);
}

#[test]
fn unsafe_kernels_compute_the_same() {
    check(|device| {
        let x = device.upload(&(0..100).collect::<Vec<i32>>())?;
        let mut out = device.zeros::<i32>(100)?;
        let call = unchecked::<32>(&x, &mut out, 100).grid(4);
        // SAFETY: both buffers have 100 elements, and the mask keeps to them.
        unsafe { call.launch(device)? };
        assert_eq!(out.to_vec()?, (0..100).map(|i| 3 * i).collect::<Vec<_>>());
        still_works(device)
    });
}

#[test]
fn a_launch_without_arguments_is_an_error() {
    check(|device| {
        let x = device.full(3, 1i32)?;
        let kernel = tilewright_tests::case::leak("empty", "kernel empty \"e.rs\" safe generic {\n  return\n}\n");
        let call = Call::new(kernel, ());
        call.grid(1).launch(device)?;
        let call = Call::new(kernel, ()).ptr(&x);
        assert!(call.grid(1).launch(device).is_err(), "too many arguments");
        still_works(device)
    });
}

/// Every thread of a large launch fails. Each that claimed the report in the host's memory would keep the bus busy: for
/// more than half a minute here.
#[test]
fn a_large_launch_of_which_everything_fails_ends_soon() {
    check(|device| {
        let x = device.upload(&[5i32; 100])?;
        let mut out = device.zeros::<i32>(100)?;
        let programs = if device.is_cuda() { 1 << 20 } else { 64 };
        let start = std::time::Instant::now();
        copy::<128>(&x, &mut out, i32::MAX).grid(programs).launch(device)?;
        assert!(matches!(out.to_vec(), Err(Error::OutOfBounds { len: 100, .. })));
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
        still_works(device)
    });
}

#[kernel]
fn picked<const BLOCK: usize>(x: Ptr<i32>, places: Ptr<i32>, out: PtrMut<i32>) {
    let i = arange(0, BLOCK);
    store(out + i, load(x + load(places + i)));
}

#[test]
fn a_thread_looks_whether_the_report_is_taken_before_it_claims_it() -> Result<(), Error> {
    let compiled = match (PickedConsts { BLOCK: 128 }).compile(Target::sm_90a()) {
        Err(Error::Llvm { .. } | Error::Unsupported { .. }) => return Ok(()),
        compiled => compiled?,
    };
    let place = |text: &str| compiled.ptx().find(text).unwrap_or_else(|| panic!("{}", compiled.ptx()));
    assert!(place("ld.relaxed.gpu.global.b32") < place("atom.relaxed.gpu.global.cas"), "{}", compiled.ptx());
    Ok(())
}
