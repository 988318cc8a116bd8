//! Operations on whole tiles, as users write them.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Numbers that look random, with repetitions.
fn numbers(len: usize) -> Vec<i32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as i32 % 97 - 40).collect()
}

#[kernel]
fn ordered<T: Num, const N: usize>(x: Ptr<T>, out: PtrMut<T>, places: PtrMut<i32>) {
    let at = arange(0, N);
    let v = load(x + at);
    store(out + at, sort(v));
    store(out + N + at, v.sort(descending = true));
    store(places + at, argsort(v));
    store(places + N + at, v.argsort(axis = -1, descending = true));
    let few = arange(0, N / 4);
    let (largest, found) = topk(v, N / 4, return_indices = true);
    store(out + 2 * N + few, largest);
    store(places + 2 * N + few, found);
    store(out + 2 * N + N / 4 + few, v.topk(N / 4, smallest = true));
}

#[test]
fn tiles_are_sorted_by_function_and_by_method() {
    check(|device| {
        let xs = numbers(256);
        let (mut out, mut places) = (device.zeros::<i32>(640)?, device.zeros::<i32>(576)?);
        ordered::<_, 256>(&device.upload(&xs)?, &mut out, &mut places).grid(1).launch(device)?;
        let mut up: Vec<(i32, i32)> = xs.iter().copied().zip(0..).collect();
        up.sort();
        let mut down = up.clone();
        down.sort_by_key(|&(x, at)| (-x, at));
        let values = |pairs: &[(i32, i32)]| pairs.iter().map(|pair| pair.0).collect::<Vec<_>>();
        let indices = |pairs: &[(i32, i32)]| pairs.iter().map(|pair| pair.1).collect::<Vec<_>>();
        assert_eq!(out.to_vec()?, [values(&up), values(&down), values(&down[..64]), values(&up[..64])].concat());
        assert_eq!(places.to_vec()?, [indices(&up), indices(&down), indices(&down[..64])].concat());
        Ok(())
    });
}

#[kernel]
fn columns<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    static_assert!(N % 2 == 0);
    let at = arange(0, M)[(.., None)] * N + arange(0, N)[(None, ..)];
    let v = load(x + at);
    store(out + at, sort(v, axis = 0));
    store(out + M * N + at, flip(v));
    store(out + 2 * M * N + at, v.flip(axis = 0));
    let (even, odd) = split(reshape(v, [M, N / 2, 2]));
    store(out + 3 * M * N + at, interleave(even, odd));
    store(out + 4 * M * N + at, cat(even, odd));
    store(out + 5 * M * N + at, even.cat(odd, axis = 0).reshape([M, N]));
}

#[test]
fn tiles_are_turned_and_put_together() {
    check(|device| {
        let (rows, wide) = (8usize, 32usize);
        let xs: Vec<f32> = numbers(rows * wide).iter().map(|&x| x as f32).collect();
        let mut out = device.zeros::<f32>(6 * rows * wide)?;
        columns::<8, 32>(&device.upload(&xs)?, &mut out).grid(1).launch(device)?;
        let got = out.to_vec()?;
        let part = |part: usize| &got[part * rows * wide..][..rows * wide];
        for column in 0..wide {
            let mut line: Vec<f32> = xs.iter().skip(column).step_by(wide).copied().collect();
            line.sort_by(f32::total_cmp);
            assert!(part(0).iter().skip(column).step_by(wide).eq(&line));
        }
        let (evens, odds): (Vec<f32>, Vec<f32>) =
            (xs.iter().step_by(2).copied().collect(), xs.iter().skip(1).step_by(2).copied().collect());
        for (row, line) in xs.chunks(wide).enumerate() {
            assert!(part(1)[row * wide..][..wide].iter().eq(line.iter().rev()));
            assert_eq!(&part(2)[(rows - 1 - row) * wide..][..wide], line);
            let halves = [&evens[row * wide / 2..][..wide / 2], &odds[row * wide / 2..][..wide / 2]].concat();
            assert_eq!(part(4)[row * wide..][..wide], halves);
        }
        assert_eq!(part(3), xs);
        assert_eq!(part(5), [evens, odds].concat());
        Ok(())
    });
}

#[kernel]
fn looked_up<const N: usize, const BINS: usize>(x: Ptr<f32>, ids: Ptr<i32>, out: PtrMut<f32>, counts: PtrMut<i32>) {
    let at = arange(0, N);
    let (v, index) = (load(x + at), load(ids + at));
    store(out + at, gather(v, index));
    store(out + N + at, v.scatter(index, 0.5));
    store(counts + arange(0, BINS), histogram(index, BINS));
    store(counts + BINS + arange(0, BINS), index.histogram(BINS, mask = v > 0.0));
}

#[test]
fn elements_are_looked_up_and_counted() {
    check(|device| {
        let xs: Vec<f32> = numbers(128).iter().map(|&x| x as f32).collect();
        let ids: Vec<i32> = (0..128).map(|i| i * i % 100).collect();
        let (mut out, mut counts) = (device.zeros::<f32>(256)?, device.zeros::<i32>(64)?);
        let (x, index) = (device.upload(&xs)?, device.upload(&ids)?);
        looked_up::<128, 32>(&x, &index, &mut out, &mut counts).grid(1).launch(device)?;
        let gathered: Vec<f32> = ids.iter().map(|&id| xs[id as usize]).collect();
        let mut scattered = xs.clone();
        ids.iter().for_each(|&id| scattered[id as usize] = 0.5);
        assert_eq!(out.to_vec()?, [gathered, scattered].concat());
        let mut want = vec![0; 64];
        for (&id, &x) in ids.iter().zip(&xs).filter(|(id, _)| **id < 32) {
            want[id as usize] += 1;
            want[32 + id as usize] += i32::from(x > 0.0);
        }
        assert_eq!(counts.to_vec()?, want);
        // An index outside the tile is an error, on either side of it.
        for wrong in [128, -1, i32::MIN] {
            let mut ids = ids.clone();
            ids[77] = wrong;
            let index = device.upload(&ids)?;
            looked_up::<128, 32>(&x, &index, &mut out, &mut counts).grid(1).launch(device)?;
            match out.to_vec() {
                Err(Error::AssertFailed { message, .. }) => {
                    assert_eq!(&*message, "an index of `gather` lies outside the tile")
                }
                other => panic!("expected a failed assertion, got {other:?}"),
            }
            out = device.zeros::<f32>(256)?;
            counts = device.zeros::<i32>(64)?;
        }
        Ok(())
    });
}

#[kernel]
fn rows_sorted<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, rows: i32) {
    for first in (0..rows).step_by(M) {
        let at = (first + arange(0, M))[(.., None)] * N + arange(0, N)[(None, ..)];
        let v = load(x + at);
        let (top, where_) = topk(v, N / 2, return_indices = true);
        let part = (first + arange(0, M))[(.., None)] * (N / 2) + arange(0, N / 2)[(None, ..)];
        store(out + part, top + where_ as f32 * 0.0);
    }
}

#[test]
fn rows_are_sorted_in_loops_by_any_number_of_warps() {
    check(|device| {
        let xs: Vec<f32> = numbers(32 * 64).iter().map(|&x| x as f32).collect();
        let x = device.upload(&xs)?;
        for warps in [1, 2, 4, 8] {
            let mut out = device.zeros::<f32>(32 * 32)?;
            rows_sorted::<4, 64>(&x, &mut out, 32).grid(1).num_warps(warps).launch(device)?;
            let mut want = Vec::new();
            for line in xs.chunks(64) {
                let mut line = line.to_vec();
                line.sort_by(|a, b| b.total_cmp(a));
                want.extend_from_slice(&line[..32]);
            }
            assert_eq!(out.to_vec()?, want, "{warps} warps");
        }
        Ok(())
    });
}
