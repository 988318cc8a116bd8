//! Elements that are kept, and sets of keys.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Elements that a condition keeps, side by side, in one pass: each program waits for what the one before it has counted.
///
/// `counted` has an element for each program and one in front, which is zero; the others are -1.
#[kernel]
fn compacted<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, counted: PtrMut<i32>, least: T, n: i32) {
    let p = program_id(0);
    let i = p * BLOCK + arange(0, BLOCK);
    let v = load(x + i, mask = i < n);
    let keep = (i < n) & (v >= least);
    let place = cumsum(keep as i32) - 1;
    let before = atomic_poll(counted + p, |count| count >= 0);
    atomic_store(counted + p + 1, before + sum(keep as i32));
    store(out + before + place, v, mask = keep);
}

#[test]
fn elements_are_compacted_in_one_pass() {
    check(|device| {
        for (n, least) in [(1000usize, 50), (1000, 0), (1000, 1000), (64, 99), (1, 0)] {
            let x: Vec<i32> = (0..n as i32).map(|i| i * 37 % 101).collect();
            let programs = n.div_ceil(64);
            let (input, mut out) = (device.upload(&x)?, device.full(n, -1i32)?);
            let mut counts = vec![-1; programs + 1];
            counts[0] = 0;
            let mut counted = device.upload(&counts)?;
            compacted::<_, 64>(&input, &mut out, &mut counted, least, n as i32).grid(programs).launch(device)?;
            let kept: Vec<i32> = x.iter().copied().filter(|&x| x >= least).collect();
            let out = out.to_vec()?;
            assert_eq!(out[..kept.len()], kept, "{n}, at least {least}");
            assert!(out[kept.len()..].iter().all(|&x| x == -1));
            assert_eq!(counted.to_vec()?[programs], kept.len() as i32);
        }
        Ok(())
    });
}

/// A free place of the table.
const FREE: u32 = u32::MAX;

#[device]
fn mixed<const N: usize>(x: Tile<u32, { [N] }>) -> Tile<u32, { [N] }> {
    let x = (x ^ x >> 16) * 0x7FEB_352D;
    let x = (x ^ x >> 15) * 0x846C_A68B;
    x ^ x >> 16
}

/// Puts keys into a hash table, and says where each is. Keys that find their place taken try the next.
#[kernel]
fn inserted<const CAPACITY: usize, const BLOCK: usize = 64>(
    keys: Ptr<u32>,
    table: PtrMut<u32>,
    places: PtrMut<i32>,
    n: i32,
) {
    static_assert!((CAPACITY & (CAPACITY - 1)) == 0, "the capacity is a power of two");
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let key = load(keys + i, mask = i < n);
    let mut place = (mixed(key) % CAPACITY) as i32;
    let mut searching = i < n;
    while any(searching) {
        let was = atomic_cas(table + place, FREE, key, mask = searching, order = relaxed);
        searching &= (was != FREE) & (was != key);
        place = select(searching, (place + 1) % CAPACITY, place);
    }
    store(places + i, place, mask = i < n);
}

#[test]
fn equal_keys_share_a_place() {
    check(|device| {
        const CAPACITY: usize = 256;
        // 200 different keys, each several times.
        let keys: Vec<u32> = (0..900u32).map(|i| (i * 7919 % 200) * 0x0101_0101).collect();
        let (input, mut table) = (device.upload(&keys)?, device.full(CAPACITY, FREE)?);
        let mut places = device.zeros::<i32>(keys.len())?;
        let call = inserted::<CAPACITY>(&input, &mut table, &mut places, keys.len() as i32);
        call.grid(keys.len().div_ceil(64)).launch(device)?;
        let (table, places) = (table.to_vec()?, places.to_vec()?);
        for (&key, &place) in keys.iter().zip(&places) {
            assert_eq!(table[place as usize], key);
        }
        assert_eq!(table.iter().filter(|&&key| key != FREE).count(), 200);
        Ok(())
    });
}
