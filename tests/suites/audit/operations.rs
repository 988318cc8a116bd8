//! Every operation of the language that `arithmetic` does not call: reductions, shapes, selections.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

const ROWS: usize = 8;
const COLUMNS: usize = 16;

/// Row-major data with ties, negative numbers, and its extremes in the middle.
fn table() -> Vec<i32> {
    (0..(ROWS * COLUMNS) as i32).map(|i| (i * 37 + 11) % 29 - 14).collect()
}

fn rows(data: &[i32]) -> Vec<Vec<i32>> {
    data.chunks(COLUMNS).map(<[i32]>::to_vec).collect()
}

fn columns(data: &[i32]) -> Vec<Vec<i32>> {
    (0..COLUMNS).map(|c| data.iter().skip(c).step_by(COLUMNS).copied().collect()).collect()
}

/// What a line becomes.
type Fold<'f> = dyn Fn(&Vec<i32>) -> i32 + 'f;

#[kernel]
fn reductions(x: Ptr<i32>, by_row: PtrMut<i32>, by_column: PtrMut<i32>, all: PtrMut<i32>) {
    let r = arange(0, 8);
    let c = arange(0, 16);
    let t = load(x + r[(.., None)] * 16 + c[(None, ..)]);
    store(by_row + r, sum(t, axis = 1));
    store(by_row + 8 + r, max(t, axis = 1));
    store(by_row + 16 + r, t.min(axis = 1));
    store(by_row + 24 + r, argmax(t, axis = 1));
    store(by_row + 32 + r, t.argmin(axis = 1));
    store(by_row + 40 + r, reduce(t, axis = 1, |a, b| a ^ b));
    store(by_column + c, t.sum(axis = 0));
    store(by_column + 16 + c, max(t, axis = 0));
    store(by_column + 32 + c, min(t, axis = 0));
    store(by_column + 48 + c, argmax(t, axis = 0));
    store(by_column + 64 + c, argmin(t, axis = 0));
    let kept = sum(t, axis = 0, keep_dims = true);
    store(by_column + 80 + c[(None, ..)], kept);
    store(all, sum(t));
    store(all + 1, max(t));
    store(all + 2, min(t));
    // A row minus its mean, by broadcasting what was kept.
    let centred = t - sum(t, axis = 1, keep_dims = true) / 16;
    store(all + 3, sum(centred * centred));
}

#[test]
fn reductions_along_each_axis_and_all() {
    check(|device| {
        let data = table();
        let x = device.upload(&data)?;
        let (mut by_row, mut by_column) = (device.zeros(48)?, device.zeros(96)?);
        let mut all = device.zeros(4)?;
        reductions(&x, &mut by_row, &mut by_column, &mut all).grid(1).launch(device)?;
        let first = |line: &[i32], best: i32| line.iter().position(|&v| v == best).map_or(-1, |i| i as i32);
        let max = |line: &Vec<i32>| line.iter().copied().fold(i32::MIN, i32::max);
        let min = |line: &Vec<i32>| line.iter().copied().fold(i32::MAX, i32::min);
        let functions: [&Fold; 6] = [
            &|line| line.iter().sum(),
            &max,
            &min,
            &|line| first(line, max(line)),
            &|line| first(line, min(line)),
            &|line| line.iter().fold(0, |a, b| a ^ b),
        ];
        let lines = |lines: Vec<Vec<i32>>, functions: &[&Fold]| -> Vec<i32> {
            functions.iter().flat_map(|f| lines.iter().map(f).collect::<Vec<_>>()).collect()
        };
        assert_eq!(by_row.to_vec()?, lines(rows(&data), &functions));
        let mut want = lines(columns(&data), &functions[..5]);
        want.extend(lines(columns(&data), &functions[..1]));
        assert_eq!(by_column.to_vec()?, want);
        let squares = |line: &Vec<i32>| {
            let mean = line.iter().sum::<i32>() / 16;
            line.iter().map(|v| (v - mean) * (v - mean)).sum::<i32>()
        };
        let want = [data.iter().sum(), max(&data), min(&data), rows(&data).iter().map(squares).sum()];
        assert_eq!(all.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn nan_extremes(x: Ptr<f32>, out: PtrMut<f32>, indices: PtrMut<i32>) {
    let v = load(x + arange(0, 16));
    store(out, max(v));
    store(out + 1, min(v));
    store(out + 2, sum(maximum(v, 3.0, propagate_nan = true)));
    store(out + 3, sum(maximum(v, 3.0)));
    store(out + 4, sum(minimum(v, 3.0)));
    store(indices, argmax(v, axis = 0));
    store(indices + 1, argmin(v, axis = 0));
}

#[test]
fn extremes_ignore_nan_unless_told() {
    check(|device| {
        let mut xs: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let mut out = device.zeros::<f32>(5)?;
        let mut indices = device.zeros::<i32>(2)?;
        nan_extremes(&device.upload(&xs)?, &mut out, &mut indices).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [15.0, 0.0, 126.0, 126.0, 42.0]);
        assert_eq!(indices.to_vec()?, [15, 0]);
        xs[4] = f32::NAN;
        nan_extremes(&device.upload(&xs)?, &mut out, &mut indices).grid(1).launch(device)?;
        let got = out.to_vec()?;
        assert_eq!(got[..2], [15.0, 0.0], "a NaN is ignored");
        assert!(got[2].is_nan(), "a NaN is propagated");
        assert_eq!(got[3..], [125.0, 42.0], "3 stands for the NaN");
        assert_eq!(indices.to_vec()?, [15, 0], "nor has a NaN an index");
        // Nothing but NaN.
        nan_extremes(&device.full(16, f32::NAN)?, &mut out, &mut indices).grid(1).launch(device)?;
        assert!(out.to_vec()?[0].is_nan());
        assert!(indices.to_vec()?.iter().all(|i| (0..16).contains(i)), "an index is one of the tile's");
        Ok(())
    });
}

#[kernel]
fn narrow_sums(bytes: Ptr<u8>, out8: PtrMut<u8>, shorts: Ptr<i16>, out16: PtrMut<i16>) {
    let i = arange(0, 256);
    store(out8, sum(load(bytes + i)));
    store(out8 + 1, max(load(bytes + i)));
    store(out16, sum(load(shorts + i)));
    store(out16 + 1, min(load(shorts + i)));
}

#[test]
fn sums_of_narrow_integers_wrap() {
    check(|device| {
        let bytes: Vec<u8> = (0..=255).collect();
        let shorts: Vec<i16> = (0..256).map(|i| (i * 200 - 30_000) as i16).collect();
        let (mut out8, mut out16) = (device.zeros(2)?, device.zeros(2)?);
        narrow_sums(&device.upload(&bytes)?, &mut out8, &device.upload(&shorts)?, &mut out16).grid(1).launch(device)?;
        assert_eq!(out8.to_vec()?, [bytes.iter().fold(0u8, |a, &b| a.wrapping_add(b)), 255]);
        assert_eq!(out16.to_vec()?, [shorts.iter().fold(0i16, |a, &b| a.wrapping_add(b)), -30_000]);
        Ok(())
    });
}

#[kernel]
fn shapes(x: Ptr<i32>, out: PtrMut<i32>) {
    let flat = arange(0, 64);
    let t: Tile<i32, { [4, 16] }> = reshape(load(x + flat), [4, 16]);
    let place = reshape(flat, [16, 4]);
    store(out + place, trans(t));
    store(out + 64 + reshape(flat, [2, 4, 8]), permute(reshape(t, [4, 2, 8]), [1, 0, 2]));
    let row = load(x + arange(0, 16));
    store(out + 128 + reshape(flat, [4, 16]), broadcast_to(row.expand_dims(0), [4, 16]));
    store(out + 192 + reshape(flat, [4, 16]), row[(None, ..)] + arange(0, 4)[(.., None)] * 100);
    store(out + 256 + reshape(flat, [16, 4]), broadcast_to(row.expand_dims(1), [16, 4]));
}

#[test]
fn shapes_move_elements_where_they_say() {
    check(|device| {
        let xs: Vec<i32> = (0..64).map(|i| i * 3 + 1).collect();
        let mut out = device.zeros::<i32>(320)?;
        shapes(&device.upload(&xs)?, &mut out).grid(1).launch(device)?;
        let mut want = Vec::new();
        want.extend((0..64).map(|i| xs[i % 4 * 16 + i / 4]));
        want.extend((0..64).map(|i| xs[(i / 8 % 4) * 16 + (i / 32) * 8 + i % 8]));
        want.extend((0..64).map(|i| xs[i % 16]));
        want.extend((0..64).map(|i| xs[i % 16] + (i / 16) as i32 * 100));
        want.extend((0..64).map(|i| xs[i / 4]));
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn conversions(
    x: Ptr<f32>,
    bytes: PtrMut<u8>,
    signed: PtrMut<i8>,
    wide: PtrMut<i64>,
    half: PtrMut<f16>,
    flag: PtrMut<bool>,
) {
    let i = arange(0, 16);
    let v = load(x + i);
    store(bytes + i, v as u8);
    store(bytes + 16 + i, v.to::<i32>() as u8);
    store(signed + i, v as i8);
    store(wide + i, v as i64);
    store(wide + 16 + i, (v as i32 as u32) as i64);
    store(wide + 32 + i, cdiv(v as i64, 7));
    store(half + i, v as f16);
    store(flag + i, v as i32 != 0);
}

#[test]
fn conversions_are_those_of_rust() {
    check(|device| {
        let xs = [
            0.0f32, -0.0, 1.9, -1.9, 255.0, 256.0, -128.5, 127.9, 1e10, -1e10, 3e38, -3e38, 65504.0, 65520.0, 2049.0,
            0.5,
        ];
        let (mut bytes, mut signed) = (device.zeros(32)?, device.zeros(16)?);
        let (mut wide, mut half, mut flag) = (device.zeros(48)?, device.zeros(16)?, device.zeros(16)?);
        let x = device.upload(&xs)?;
        conversions(&x, &mut bytes, &mut signed, &mut wide, &mut half, &mut flag).grid(1).launch(device)?;
        let each = |f: &dyn Fn(f32) -> i64| xs.map(f);
        let bytes = bytes.to_vec()?;
        assert_eq!(bytes[..16], xs.map(|v| v as u8));
        assert_eq!(bytes[16..], xs.map(|v| v as i32 as u8));
        assert_eq!(signed.to_vec()?, xs.map(|v| v as i8));
        let wide = wide.to_vec()?;
        assert_eq!(wide[..16], each(&|v| v as i64));
        assert_eq!(wide[16..32], each(&|v| i64::from(v as i32 as u32)));
        // Rounds up, as the name says: where the dividend is not negative.
        let rounded = each(&|v| if v as i64 >= 0 { (v as i64 as u64).div_ceil(7) as i64 } else { i64::MIN });
        for (&got, want) in wide[32..].iter().zip(rounded) {
            assert!(want == i64::MIN || got == want, "{got}, not {want}");
        }
        assert_eq!(half.to_vec()?, xs.map(f16::from_f32));
        assert_eq!(flag.to_vec()?, xs.map(|v| v as i32 != 0));
        Ok(())
    });
}

#[kernel]
fn quotients<T: Int, const N: usize>(a: Ptr<T>, b: Ptr<T>, out: PtrMut<T>, n: T, by: T) {
    let at = arange(0, N);
    let (x, y) = (load(a + at), load(b + at));
    store(out + at, cdiv(x, y));
    store(out + N + at, cdiv(x, 2 as T));
    store(out + 2 * N, cdiv(n, by));
}

#[kernel]
fn quotients_of_numbers<const A: i32, const B: u8>(words: PtrMut<i32>, bytes: PtrMut<u8>, n: i32, byte: u8) {
    store(words, cdiv(A, 2));
    store(words + 1, cdiv(2147483647_i32, 2));
    store(words + 2, cdiv(n, 2));
    store(words + 3, cdiv(n, A));
    store(bytes, cdiv(B, 100));
    store(bytes + 1, cdiv(200_u8, 100));
    store(bytes + 2, cdiv(byte, 100));
    store(bytes + 3, cdiv(byte, B));
}

/// No sum of dividend and divisor wraps on the way.
#[test]
fn quotients_are_rounded_up_for_all_positive_numbers() {
    macro_rules! of {
        ($device:ident, $($dtype:ident)*) => {$({
            const MAX: $dtype = $dtype::MAX;
            let a: [$dtype; 16] = [0, 1, 2, 99, 100, 101, MAX, MAX - 1, MAX, MAX, MAX - 1, MAX, 0, 1, 64, MAX / 2 + 1];
            let b: [$dtype; 16] = [7, 1, 3, 100, 100, 100, 1, 2, 2, MAX, MAX, MAX - 1, MAX, MAX, 64, MAX];
            let mut out = $device.zeros::<$dtype>(33)?;
            quotients::<_, 16>(&$device.upload(&a)?, &$device.upload(&b)?, &mut out, MAX, 3).grid(1).launch($device)?;
            let ceil = |(a, b): (&$dtype, &$dtype)| (*a as u64).div_ceil(*b as u64) as $dtype;
            let mut wanted: Vec<$dtype> = a.iter().zip(&b).map(ceil).collect();
            wanted.extend(a.iter().map(|a| ceil((a, &2))));
            wanted.push(ceil((&MAX, &3)));
            assert_eq!(out.to_vec()?, wanted, stringify!($dtype));
        })*};
    }
    check(|device| {
        of!(device, i8 i16 i32 i64 u8 u16 u32 u64);
        let (mut words, mut bytes) = (device.zeros(4)?, device.zeros(4)?);
        quotients_of_numbers::<{ i32::MAX }, 200>(&mut words, &mut bytes, i32::MAX, 200).grid(1).launch(device)?;
        assert_eq!(words.to_vec()?, [1 << 30, 1 << 30, 1 << 30, 1]);
        assert_eq!(bytes.to_vec()?, [2, 2, 2, 1]);
        Ok(())
    });
}

#[kernel]
fn hints(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = program_id(0) * 64 + arange(0, 64);
    let mask = i < n;
    let a = load(x + i, mask = mask, other = 2.0, cache = ca, eviction = evict_last);
    let b = load(x + i, mask = mask, cache = cg, eviction = evict_first);
    store(out + i, a + b, mask = mask, cache = cs);
}

#[test]
fn cache_hints_change_nothing() {
    check(|device| {
        let xs: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let mut out = device.zeros::<f32>(100)?;
        hints(&device.upload(&xs)?, &mut out, 100).grid(2).launch(device)?;
        assert_eq!(out.to_vec()?, xs.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        Ok(())
    });
}

/// What messages and the reference say to write for operations of Triton.
#[kernel]
fn recipes<const N: usize, const BINS: usize>(
    x: Ptr<f32>,
    y: Ptr<f32>,
    pairs: PtrMut<f32>,
    ends: PtrMut<f32>,
    sorted: PtrMut<f32>,
    counts: PtrMut<i32>,
) {
    let i = arange(0, N);
    let (a, b) = (load(x + i), load(y + i));
    let joined = select(arange(0, 2) == 0, a[(.., None)], b[(.., None)]);
    store(pairs + arange(0, 2 * N), reshape(joined, [2 * N]));
    store(pairs + 2 * N + i, sum(select(arange(0, 2) == 0, joined, 0.0), axis = -1));
    store(pairs + 3 * N + i, sum(select(arange(0, 2) == 1, joined, 0.0), axis = -1));
    let both = reshape(select((arange(0, 2) == 0)[(.., None)], a[(None, ..)], b[(None, ..)]), [2 * N]);
    store(ends + arange(0, 2 * N), both);
    store(ends + 2 * N + i, load(x + (N - 1 - i)));
    store(sorted + sum((a[(None, ..)] < a[(.., None)]) as i32, axis = 1), a);
    let bins = sum((a[(None, ..)] as i32 == arange(0, BINS)[(.., None)]) as i32, axis = 1);
    store(counts + arange(0, BINS), bins);
}

#[test]
fn operations_of_triton_in_a_line() {
    check(|device| {
        let a: Vec<f32> = (0..16).map(|i| ((i * 7) % 16) as f32 / 4.0).collect();
        let b: Vec<f32> = (0..16).map(|i| -(i as f32)).collect();
        let (x, y) = (device.upload(&a)?, device.upload(&b)?);
        let (mut pairs, mut ends) = (device.zeros::<f32>(64)?, device.zeros::<f32>(48)?);
        let (mut sorted, mut counts) = (device.zeros::<f32>(16)?, device.zeros::<i32>(4)?);
        recipes::<16, 4>(&x, &y, &mut pairs, &mut ends, &mut sorted, &mut counts).grid(1).launch(device)?;
        let interleaved = a.iter().zip(&b).flat_map(|(&a, &b)| [a, b]);
        assert_eq!(pairs.to_vec()?, interleaved.chain(a.clone()).chain(b.clone()).collect::<Vec<f32>>());
        let reversed = a.iter().rev().copied();
        assert_eq!(ends.to_vec()?, a.iter().chain(&b).copied().chain(reversed).collect::<Vec<f32>>());
        assert_eq!(sorted.to_vec()?, (0..16).map(|i| i as f32 / 4.0).collect::<Vec<f32>>());
        assert_eq!(counts.to_vec()?, [4; 4]);
        Ok(())
    });
}

/// Time passes, and is the same for all threads where they decide by it.
#[kernel]
fn times(out: PtrMut<i64>, place: PtrMut<i32>, data: PtrMut<f32>) {
    let p = program_id(0);
    let (begin, early) = (clock(), globaltimer());
    let i = arange(0, 256);
    let mut v = load(data + p * 256 + i);
    while clock() - begin < 3 {
        v += 1.0;
    }
    store(data + p * 256 + i, v);
    store(out + 3 * p, begin);
    store(out + 3 * p + 1, clock());
    store(out + 3 * p + 2, globaltimer() - early);
    store(place + p, smid());
}

#[test]
fn clocks_run_and_programs_have_a_place() {
    check(|device| {
        let programs = 8;
        let (mut out, mut place) = (device.zeros::<i64>(3 * programs)?, device.full(programs, -1)?);
        let mut data = device.zeros::<f32>(256 * programs)?;
        times(&mut out, &mut place, &mut data).grid(programs).launch(device)?;
        for times in out.to_vec()?.chunks(3) {
            assert!(times[1] - times[0] >= 3, "{times:?}");
            assert!(times[2] >= 0, "{times:?}");
        }
        assert!(place.to_vec()?.iter().all(|&place| place >= 0));
        let data = data.to_vec()?;
        for own in data.chunks(256) {
            assert!(own.iter().all(|&v| v == own[0]), "threads have left the loop at different times");
        }
        Ok(())
    });
}
