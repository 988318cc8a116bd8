//! Elements beside each other whose offsets are of few bits, and wrap: each has an address of its own.
//!
//! LLVM computes one address from the other, by the distance that offsets have which do not wrap (`analysis/apart.rs` of the
//! code generator).

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// `k`, `k + 1` and `k` with its sign changed, around the middle of a table: as they are, widened before they are added to, and in
/// a loop that goes on.
#[kernel]
fn of_bytes(k: Ptr<i8>, table: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let lane = arange(0, 256);
    let k = load(k + lane);
    let middle = table + 128;
    let rows = out + lane;
    store(rows, load(middle + k));
    store(rows + 256, load(middle + (k + 1)));
    store(rows + 512, load(middle + (k ^ i8::MIN)));
    store(rows + 768, load(middle + (k + 1) as i64));
    store(rows + 1024, load(middle + (k as i32 + 1) / 2));
    let mut at = k;
    for row in 0..n {
        at += 1;
        store(rows + (1280 + 256 * row), load(middle + at));
    }
}

#[kernel]
fn of_words(k: Ptr<i16>, table: Ptr<u8>, out: PtrMut<u8>) {
    let lane = arange(0, 256);
    let k = load(k + lane);
    let middle = table + 32768;
    store(out + lane, load(middle + k));
    store(out + (lane + 256), load(middle + (k - 1)));
    store(out + (lane + 512), load(middle + (k ^ i16::MIN) as i32));
}

/// The sign of an offset is the other's opposite: buffers have room for one of them.
#[kernel]
fn of_opposite_signs(k: Ptr<i32>, table: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let lane = arange(0, 256);
    let k = load(k + lane);
    let other = k ^ i32::MIN;
    let inside = |at: Tile<i32, { [256] }>| (at >= 0) & (at < n);
    store(out + lane, load(table + k, mask = inside(k), other = -1.0));
    store(out + (lane + 256), load(table + other, mask = inside(other), other = -1.0));
}

#[test]
fn elements_at_bytes_that_wrap() {
    check(|device| {
        let k: Vec<i8> = (0..=255u8).map(|i| i.wrapping_mul(37) as i8).collect();
        let table: Vec<i32> = (0..256).map(|i| i * i - 7).collect();
        let (ks, tables, mut out) = (device.upload(&k)?, device.upload(&table)?, device.zeros::<i32>(8 * 256)?);
        of_bytes(&ks, &tables, &mut out, 3).grid(1).launch(device)?;
        let at = |index: i32| table[(128 + index) as usize];
        let rows: [&dyn Fn(i8) -> i32; 8] = [
            &|k| at(k.into()),
            &|k| at(k.wrapping_add(1).into()),
            &|k| at((k ^ i8::MIN).into()),
            &|k| at(k.wrapping_add(1).into()),
            &|k| at((i32::from(k) + 1) / 2),
            &|k| at(k.wrapping_add(1).into()),
            &|k| at(k.wrapping_add(2).into()),
            &|k| at(k.wrapping_add(3).into()),
        ];
        let want: Vec<i32> = rows.iter().flat_map(|row| k.iter().map(|&k| row(k))).collect();
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[test]
fn elements_at_words_that_wrap() {
    check(|device| {
        let mut k: Vec<i16> = (0..256).map(|i| (i * 257) as u16 as i16).collect();
        (k[3], k[77], k[130]) = (i16::MIN, i16::MAX, -1);
        let table: Vec<u8> = (0..65536u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let (ks, tables, mut out) = (device.upload(&k)?, device.upload(&table)?, device.zeros::<u8>(3 * 256)?);
        of_words(&ks, &tables, &mut out).grid(1).launch(device)?;
        let at = |index: i16| table[(32768 + i32::from(index)) as usize];
        let rows = [|k: i16| k, |k: i16| k.wrapping_sub(1), |k: i16| k ^ i16::MIN];
        let want: Vec<u8> = rows.iter().flat_map(|row| k.iter().map(|&k| at(row(k)))).collect();
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[test]
fn elements_at_offsets_of_opposite_signs() {
    check(|device| {
        let n = 500;
        let k: Vec<i32> = (0..256).map(|i| if i % 3 == 0 { i * 2 } else { (i * 2 - 7) ^ i32::MIN }).collect();
        let table: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
        let (ks, tables, mut out) = (device.upload(&k)?, device.upload(&table)?, device.zeros::<f32>(512)?);
        of_opposite_signs(&ks, &tables, &mut out, n).grid(1).launch(device)?;
        let at = |index: i32| if (0..n).contains(&index) { table[index as usize] } else { -1.0 };
        let want: Vec<f32> = k.iter().map(|&k| at(k)).chain(k.iter().map(|&k| at(k ^ i32::MIN))).collect();
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}
