//! Running combinations and atomics.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn scans(x: Ptr<i32>, out: PtrMut<i32>) {
    let r = arange(0, 4);
    let c = arange(0, 16);
    let place = r[(.., None)] * 16 + c[(None, ..)];
    let t = load(x + place);
    store(out + place, cumsum(t, axis = 1));
    store(out + 64 + place, t.cumsum(axis = 0));
    store(out + 128 + place, cumsum(t, axis = 1, reverse = true));
    store(out + 192 + place, cumprod(t, axis = 0));
    store(out + 256 + place, associative_scan(t, axis = 1, |a, b| maximum(a, b)));
}

fn scanned(line: &[i32], f: impl Fn(i32, i32) -> i32) -> Vec<i32> {
    let mut out = vec![line[0]];
    line[1..].iter().for_each(|&v| out.push(f(out[out.len() - 1], v)));
    out
}

#[test]
fn scans_run_along_their_axis() {
    check(|device| {
        let xs: Vec<i32> = (0..64).map(|i| (i * 29 + 3) % 13 - 6).collect();
        let mut out = device.zeros::<i32>(320)?;
        scans(&device.upload(&xs)?, &mut out).grid(1).launch(device)?;
        let by_row = |f: &dyn Fn(&[i32]) -> Vec<i32>| xs.chunks(16).flat_map(f).collect::<Vec<i32>>();
        let by_column = |f: &dyn Fn(&[i32]) -> Vec<i32>| {
            let column = |c: usize| xs.iter().skip(c).step_by(16).copied().collect::<Vec<i32>>();
            let columns: Vec<Vec<i32>> = (0..16).map(|c| f(&column(c))).collect();
            (0..64).map(|i| columns[i % 16][i / 16]).collect::<Vec<i32>>()
        };
        let add = |line: &[i32]| scanned(line, i32::wrapping_add);
        let backwards = |line: &[i32]| {
            let mut reversed = line.to_vec();
            reversed.reverse();
            let mut sums = scanned(&reversed, i32::wrapping_add);
            sums.reverse();
            sums
        };
        let mut want = by_row(&add);
        want.extend(by_column(&add));
        want.extend(by_row(&backwards));
        want.extend(by_column(&|line| scanned(line, i32::wrapping_mul)));
        want.extend(by_row(&|line| scanned(line, i32::max)));
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn histogram<const BLOCK: usize>(x: Ptr<u8>, counts: PtrMut<i32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    let bucket = load(x + i, mask = mask) as i32 / 32;
    atomic_add(counts + bucket, 1, mask = mask);
}

#[test]
fn a_histogram_counts_everything_once() {
    check(|device| {
        let xs: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut counts = device.zeros::<i32>(8)?;
        histogram::<256>(&device.upload(&xs)?, &mut counts, 5000).grid(20).launch(device)?;
        let mut want = vec![0; 8];
        xs.iter().for_each(|&x| want[usize::from(x / 32)] += 1);
        assert_eq!(counts.to_vec()?, want);
        // Too few buckets: the lanes beyond are reported, and nothing else is written.
        let mut whole = device.zeros::<i32>(8)?;
        let (mut few, _) = whole.split_at_mut(4)?;
        histogram::<256>(&device.upload(&xs)?, &mut few, 5000).grid(20).launch(device)?;
        match few.to_vec() {
            Err(Error::OutOfBounds { access, len, .. }) => assert_eq!((access, len), (tilewright::Access::Atomic, 4)),
            other => panic!("expected an access out of bounds, got {other:?}"),
        }
        let got = whole.to_vec()?;
        assert_eq!((&got[..4], &got[4..]), (&want[..4], &[0; 4][..]));
        device.synchronize()
    });
}

#[kernel]
fn sums_of<T: Num>(x: Ptr<T>, out: PtrMut<T>) {
    let i = program_id(0) * 64 + arange(0, 64);
    let v = load(x + i);
    atomic_add(out + i % 2, v);
}

#[kernel]
fn integers(x: Ptr<i32>, out: PtrMut<i32>, old: PtrMut<i32>) {
    let i = program_id(0) * 64 + arange(0, 64);
    let v = load(x + i);
    atomic_min(out + i % 2, v);
    atomic_max(out + 2 + i % 2, v);
    atomic_or(out + 4 + i % 2, v);
    atomic_and(out + 6 + i % 2, v);
    atomic_xor(out + 8 + i % 2, v);
    let before = atomic_cas(out + 10 + program_id(0), 0, 7);
    let swapped = atomic_exchange(out + 10 + program_id(0), before + 1);
    store(old + program_id(0), swapped);
}

#[test]
fn atomics_combine_what_all_programs_give() {
    check(|device| {
        let xs: Vec<i32> = (0..256).map(|i| i * 7919 % 1000 - 500).collect();
        let x = device.upload(&xs)?;
        let before = [i32::MAX, i32::MAX, i32::MIN, i32::MIN, 0, 0, -1, -1, 0, 0, 0, 5, 0, 0];
        let mut out = device.upload(&before)?;
        let mut old = device.zeros::<i32>(4)?;
        integers(&x, &mut out, &mut old).grid(4).launch(device)?;
        let half = |k: usize| xs.iter().skip(k).step_by(2).copied();
        let mut want: Vec<i32> = Vec::new();
        want.extend((0..2).map(|k| half(k).fold(i32::MAX, i32::min)));
        want.extend((0..2).map(|k| half(k).fold(i32::MIN, i32::max)));
        want.extend((0..2).map(|k| half(k).fold(0, |a, b| a | b)));
        want.extend((0..2).map(|k| half(k).fold(-1, |a, b| a & b)));
        want.extend((0..2).map(|k| half(k).fold(0, |a, b| a ^ b)));
        // The second cell held no zero: it is left, then exchanged for what was there and 1.
        want.extend([1, 6, 1, 1]);
        assert_eq!(out.to_vec()?, want);
        assert_eq!(old.to_vec()?, [7, 5, 7, 7]);

        // Sums of floats that are exact in any order.
        let floats: Vec<f32> = xs.iter().map(|&v| v as f32).collect();
        let mut sums = device.zeros::<f32>(2)?;
        sums_of(&device.upload(&floats)?, &mut sums).grid(4).launch(device)?;
        assert_eq!(sums.to_vec()?, [half(0).sum::<i32>() as f32, half(1).sum::<i32>() as f32]);
        Ok(())
    });
}

/// Each program waits for the one before it, and reads what that one wrote.
#[kernel]
fn relay<const BLOCK: usize>(flags: PtrMut<i32>, data: PtrMut<f32>) {
    let p = program_id(0);
    let i = arange(0, BLOCK);
    let step = 2;
    let seen = atomic_poll(flags + p, |v| v >= step / 2, order = acquire);
    let before = load(data + p * BLOCK + i);
    store(data + (p + 1) * BLOCK + i, before + seen as f32);
    atomic_store(flags + p + 1, seen + 1, order = release);
}

#[test]
fn a_program_that_polls_sees_what_was_written_before_the_flag() {
    check(|device| {
        let programs = 40;
        let mut flags = vec![0; programs + 1];
        flags[0] = 1;
        let (mut flags, mut data) = (device.upload(&flags)?, device.zeros::<f32>(64 * (programs + 1))?);
        relay::<64>(&mut flags, &mut data).grid(programs).launch(device)?;
        assert_eq!(flags.to_vec()?, (1..=programs as i32 + 1).collect::<Vec<_>>());
        let data = data.to_vec()?;
        for p in 0..=programs {
            // 1 + 2 + .. + p
            assert!(data[p * 64..][..64].iter().all(|&v| v == (p * (p + 1) / 2) as f32), "program {p}");
        }
        Ok(())
    });
}

#[kernel]
fn loads_and_stores<T: Float>(x: PtrMut<T>, y: PtrMut<T>, n: i32) {
    let i = arange(0, 128);
    let v = atomic_load(x + i, mask = i < n, order = relaxed, scope = system);
    (y + i).atomic_store(v + v, mask = i < n, scope = block);
    let done = |v| v == v;
    store(y + 127, (x + 2).atomic_poll(done));
}

#[test]
fn atomic_loads_and_stores_keep_to_their_mask() {
    check(|device| {
        let xs: Vec<f32> = (0..128).map(|i| if i == 1 { -0.0 } else { i as f32 }).collect();
        let (mut x, mut y) = (device.upload(&xs)?, device.full(128, 9.0f32)?);
        loads_and_stores(&mut x, &mut y, 100).grid(1).launch(device)?;
        let want: Vec<f32> = (0..128)
            .map(|i| {
                if i == 127 {
                    2.0
                } else if i < 100 {
                    2.0 * xs[i]
                } else {
                    9.0
                }
            })
            .collect();
        assert_eq!(y.to_vec()?, want);
        let same = x.to_vec()?.iter().zip(&xs).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "a load has changed what it reads");
        let halves: Vec<f16> = xs.iter().map(|&v| f16::from_f32(v)).collect();
        let (mut x, mut y) = (device.upload(&halves)?, device.full(128, f16::ONE)?);
        loads_and_stores(&mut x, &mut y, 3).grid(1).launch(device)?;
        assert_eq!(y.to_vec()?[2..4], [f16::from_f32(4.0), f16::ONE]);
        Ok(())
    });
}
