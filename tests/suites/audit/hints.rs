//! Hints: believed where they hold, reported where they do not, in safe kernels on every device.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn blocks<const N: usize>(x: Ptr<f32>, starts: Ptr<i32>, out: PtrMut<f32>, stride: i32) {
    let pid = program_id(0);
    let start = multiple_of(load(starts + pid), 4);
    let i = arange(0, N);
    store(out + pid * multiple_of(stride, 4) + i, load(x + start + i));
}

fn message(result: Result<Vec<f32>, Error>) -> String {
    match result {
        Err(Error::AssertFailed { file, message, .. }) => {
            assert!(file.ends_with("hints.rs"), "{file}");
            message.to_string()
        }
        other => panic!("expected a broken hint, got {other:?}"),
    }
}

#[test]
fn promised_starts() {
    check(|device| {
        let x: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let x = device.upload(&x)?;
        let mut out = device.zeros::<f32>(128)?;
        let starts = device.upload(&[192, 4])?;
        blocks::<64>(&x, &starts, &mut out, 64).grid(2).launch(device)?;
        let want = (192..256).chain(4..68).map(|i| i as f32).collect::<Vec<_>>();
        assert_eq!(out.to_vec()?, want);

        let wrong = device.upload(&[6])?;
        blocks::<64>(&x, &wrong, &mut out, 64).grid(1).launch(device)?;
        assert!(message(out.to_vec()).contains("`multiple_of(.., 4)`"));
        assert_eq!(out.to_vec()?, want, "the program ended before it stored");
        blocks::<64>(&x, &starts, &mut out, 66).grid(2).launch(device)?;
        assert!(message(out.to_vec()).contains("`multiple_of(.., 4)`"));
        Ok(())
    });
}

#[kernel]
fn runs<const N: usize>(x: Ptr<f32>, places: Ptr<i32>, out: PtrMut<f32>) {
    let i = arange(0, N);
    let at = max_contiguous(load(places + i), 8, multiple_of = 8);
    store(out + i, load(x + at));
}

#[test]
fn promised_runs_of_places_from_memory() {
    check(|device| {
        let x: Vec<f32> = (0..512).map(|i| (i * i) as f32).collect();
        let x = device.upload(&x)?;
        let places: Vec<i32> = (0..128).map(|i| (i / 8 * 24 % 512) + i % 8).collect();
        let mut out = device.zeros::<f32>(128)?;
        runs::<128>(&x, &device.upload(&places)?, &mut out).grid(1).launch(device)?;
        let want: Vec<f32> = places.iter().map(|&i| (i * i) as f32).collect();
        assert_eq!(out.to_vec()?, want);
        for wrong in [3, 8, 127] {
            let mut places = places.clone();
            places[wrong] += 1;
            let mut out = device.zeros::<f32>(128)?;
            runs::<128>(&x, &device.upload(&places)?, &mut out).grid(1).launch(device)?;
            assert!(message(out.to_vec()).contains("`max_contiguous(.., 8, multiple_of = 8)`"), "place {wrong}");
            assert_eq!(out.to_vec()?, [0.0; 128]);
        }
        Ok(())
    });
}

/// Blocks begin `step * step * gap` elements in, which is promised to be a multiple of eight.
#[kernel]
fn steps<const B: usize>(a: Ptr<f16>, b: Ptr<f16>, c: PtrMut<f32>, steps: i32, gap: i32) {
    let (i, j) = (arange(0, B)[(.., None)], arange(0, B));
    let mut acc = zeros::<f32>([B, B]);
    for step in 0..steps {
        let at = multiple_of(step * step * gap, 8);
        acc = dot(load(a + i * 1024 + at + j), load(b + i * 1024 + at + j), acc = acc);
    }
    store(c + i * B + j, acc);
}

/// The same where an assert is all that says so, and all that keeps blocks inside.
#[kernel]
fn asserted<const B: usize>(a: Ptr<f16>, b: Ptr<f16>, c: PtrMut<f32>, steps: i32, gap: i32) {
    let (i, j) = (arange(0, B)[(.., None)], arange(0, B));
    let mut acc = zeros::<f32>([B, B]);
    for step in 0..steps {
        let at = step * step * gap;
        assert!(at % 8 == 0 && at >= 0 && at <= 960, "`multiple_of(.., 8)`, and inside");
        acc = dot(load(a + i * 1024 + at + j), load(b + i * 1024 + at + j), acc = acc);
    }
    store(c + i * B + j, acc);
}

/// Nothing is copied ahead of the check that it relies on: 16 bytes at an address that is no multiple would end the context.
#[test]
fn promises_in_loops_of_products() {
    check(|device| {
        let values: Vec<f16> = (0..65_536).map(|i| f16::from_f32((i % 5) as f32 - 2.0)).collect();
        let (a, b) = (device.upload(&values)?, device.upload(&values)?);
        for stages in [1, 2, 4] {
            let mut c = device.zeros::<f32>(64 * 64)?;
            steps::<64>(&a, &b, &mut c, 3, 64).grid(1).num_stages(stages).launch(device)?;
            let at = |row: usize, column: usize| values[row * 1024 + column].to_f32();
            let want: Vec<f32> = (0..64 * 64)
                .map(|at_c| {
                    let terms = [0, 64, 256].iter().flat_map(|from| (0..64).map(move |k| (*from, k)));
                    terms.map(|(from, k)| at(at_c / 64, from + k) * at(k, from + at_c % 64)).sum()
                })
                .collect();
            assert_eq!(c.to_vec()?, want, "{stages} stages");
            for gap in [65, 4] {
                let mut c = device.zeros::<f32>(64 * 64)?;
                steps::<64>(&a, &b, &mut c, 3, gap).grid(1).num_stages(stages).launch(device)?;
                assert!(message(c.to_vec()).contains("`multiple_of(.., 8)`"), "{stages} stages, {gap}");
                assert_eq!(c.to_vec()?, [0.0; 64 * 64]);
            }
            asserted::<64>(&a, &b, &mut c, 3, 64).grid(1).num_stages(stages).launch(device)?;
            assert_eq!(c.to_vec()?, want, "{stages} stages");
            for gap in [65, 1 << 20, 1 << 28, -8] {
                let mut c = device.zeros::<f32>(64 * 64)?;
                asserted::<64>(&a, &b, &mut c, 3, gap).grid(1).num_stages(stages).launch(device)?;
                assert!(message(c.to_vec()).contains("`multiple_of(.., 8)`, and inside"), "{stages} stages, {gap}");
            }
        }
        Ok(())
    });
}

#[kernel]
fn rows<const M: usize, const N: usize>(x: Ptr<f32>, lengths: Ptr<i32>, out: PtrMut<f32>, n: i32) {
    assume(n % 4 == 0 && n > 0);
    let (i, j) = (arange(0, M), arange(0, N));
    // Four rows have one length.
    let length = max_constancy(load(lengths + i), 4);
    let mask = j < length[(.., None)];
    let at = i[(.., None)] * n + j;
    store(out + at, load(x + at, mask = mask, other = -1.0));
}

#[test]
fn assumptions_and_equal_elements() {
    check(|device| {
        let x = device.full(8 * 16, 2.0f32)?;
        let mut out = device.zeros::<f32>(8 * 16)?;
        let lengths = [3, 3, 3, 3, 16, 16, 16, 16];
        rows::<8, 16>(&x, &device.upload(&lengths)?, &mut out, 16).grid(1).launch(device)?;
        let want: Vec<f32> =
            (0..8 * 16).map(|i| if (i % 16) < lengths[i as usize / 16] { 2.0 } else { -1.0 }).collect();
        assert_eq!(out.to_vec()?, want);

        rows::<8, 16>(&x, &device.upload(&[3, 3, 3, 3, 16, 16, 16, 15])?, &mut out, 16).grid(1).launch(device)?;
        assert!(message(out.to_vec()).contains("`max_constancy(.., 4)`"));
        for n in [15, 0, -16] {
            rows::<8, 16>(&x, &device.upload(&lengths)?, &mut out, n).grid(1).launch(device)?;
            let message = message(out.to_vec());
            assert_eq!(message, "what was assumed does not hold: n % 4 == 0 && n > 0", "{n}");
        }
        Ok(())
    });
}

#[kernel]
unsafe fn believed<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, start: i32) {
    assume(start >= 0);
    let i = multiple_of(start, 8) + arange(0, N);
    store(out + arange(0, N), load(x + i));
}

#[test]
fn hints_in_unsafe_kernels() {
    check(|device| {
        let x: Vec<f32> = (0..96).map(|i| i as f32).collect();
        let x = device.upload(&x)?;
        let mut out = device.zeros::<f32>(64)?;
        // SAFETY: elements 24 to 87 exist, 24 is a multiple of 8, and the output has 64.
        unsafe { believed::<64>(&x, &mut out, 24).grid(1).launch(device)? };
        assert_eq!(out.to_vec()?, (24..88).map(|i| i as f32).collect::<Vec<_>>());
        Ok(())
    });
}

#[kernel]
fn trusting<const N: usize>(x: Ptr<f32>, starts: Ptr<i32>, out: PtrMut<f32>, count: i32) {
    let pid = program_id(0);
    let i = arange(0, N);
    // SAFETY: the tests that launch this give multiples of 4 from 0 to `count`.
    let start = unsafe {
        let start = multiple_of(load(starts + pid), 4);
        assume(start >= 0 && start <= count);
        start
    };
    store(out + pid * N + i, load(x + start + i));
}

#[test]
fn hints_in_unsafe_blocks_of_safe_kernels() {
    check(|device| {
        let x: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let x = device.upload(&x)?;
        let mut out = device.zeros::<f32>(128)?;
        let starts = device.upload(&[192, 4])?;
        trusting::<64>(&x, &starts, &mut out, 192).grid(2).launch(device)?;
        assert_eq!(out.to_vec()?, (192..256).chain(4..68).map(|i| i as f32).collect::<Vec<_>>());
        // What is believed is the start alone: an access beyond the buffer is still refused.
        let short = x.slice(..255)?;
        trusting::<64>(short, &starts, &mut out, 192).grid(2).launch(device)?;
        assert!(matches!(out.to_vec(), Err(Error::OutOfBounds { offset: 255, len: 255, .. })));
        Ok(())
    });
}

/// `out[i] = x[i]` in rows, with promises about arguments that are as good as the arguments.
#[kernel]
fn arguments<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, stride: i32, first: i32) {
    assert!(first >= 0, "rows begin in the buffer");
    let start = program_id(0) * multiple_of(stride, 4) + multiple_of(first, 4);
    let i = start + arange(0, N);
    store(out + i, load(x + i));
}

#[test]
fn promises_about_arguments_are_decided_by_the_host() {
    check(|device| {
        let x: Vec<f32> = (0..300).map(|i| i as f32).collect();
        let x = device.upload(&x)?;
        for (stride, first, broken) in [
            (68, 4, None),
            (64, 0, None),
            (66, 4, Some("`multiple_of(.., 4)`")),
            (64, 2, Some("`multiple_of(.., 4)`")),
            (64, -4, Some("rows begin in the buffer")),
            (68, 12, None),
        ] {
            let mut out = device.zeros::<f32>(300)?;
            arguments::<64>(&x, &mut out, stride, first).grid(3).launch(device)?;
            match (out.to_vec(), broken) {
                (Ok(out), None) => {
                    let written = |i: i32| (0..3).any(|row| (0..64).contains(&(i - first - row * stride)));
                    let want: Vec<f32> = (0..300).map(|i| if written(i) { i as f32 } else { 0.0 }).collect();
                    assert_eq!(out, want, "{stride} {first}");
                }
                (result, Some(broken)) => assert!(message(result).contains(broken), "{stride} {first}"),
                (Err(error), None) => panic!("{stride} {first}: {error}"),
            }
        }
        Ok(())
    });
}

#[kernel]
unsafe fn arguments_believed<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, stride: i32, first: i32) {
    let start = program_id(0) * multiple_of(stride, 4) + multiple_of(first, 4);
    let i = start + arange(0, N);
    store(out + i, load(x + i));
}

/// What is promised of arguments costs the code nothing: not an instruction more than in an `unsafe fn`.
#[test]
fn promises_about_arguments_cost_no_instruction() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(300)?, device.zeros::<f32>(300)?);
    let safe = arguments::<64>(&x, &mut out, 68, 4).compile(Target::sm_90a())?;
    let report = safe.report();
    for line in ["assertion \"rows begin in the buffer\", decided at launch", "`multiple_of(.., 4)`, decided at launch"]
    {
        assert!(report.contains(line), "{report}");
    }
    let believed = arguments_believed::<64>(&x, &mut out, 68, 4).compile(Target::sm_90a())?;
    let instructions = |ptx: &str| ptx.lines().filter(|line| line.trim_end().ends_with(';')).count();
    assert_eq!(instructions(safe.ptx()), instructions(believed.ptx()), "{}", safe.ptx());
    Ok(())
}
