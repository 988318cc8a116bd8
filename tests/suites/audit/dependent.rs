//! Launches that may begin before those before them have ended: chains of them compute what they would one after the other.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// What each element is, after so many steps, whichever program has it.
#[kernel]
fn step<const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>, shift: i32, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    // Elements of another program of the launch before.
    let from = (i + shift) % n;
    store(out + i, 3 * load(x + from, mask = i < n) + 1, mask = i < n);
}

fn stepped(x: &[i32], shift: usize) -> Vec<i32> {
    (0..x.len()).map(|i| x[(i + shift) % x.len()].wrapping_mul(3).wrapping_add(1)).collect()
}

#[test]
fn a_long_chain_computes_what_launches_one_after_the_other_do() {
    check(|device| {
        for n in [1000, 20_000, 300_001] {
            let start: Vec<i32> = (0..n as i32).collect();
            let (mut x, mut y) = (device.upload(&start)?, device.zeros::<i32>(n)?);
            let mut want = start;
            for round in 0..60 {
                // Sizes of programs differ, so that some launches are small and begin at once.
                let shift = 7919 * (round + 1) % n;
                let consts = StepConsts { BLOCK: [128, 1024, 256][round % 3] };
                let grid = n.div_ceil(consts.BLOCK);
                consts.call(&x, &mut y, shift as i32, n as i32).grid(grid).dependent_launch().launch(device)?;
                std::mem::swap(&mut x, &mut y);
                want = stepped(&want, shift);
            }
            assert_eq!(x.to_vec()?, want, "{n} elements");
        }
        Ok(())
    });
}

/// Takes its time before it writes.
#[kernel]
fn slow(out: PtrMut<i32>, value: i32, rounds: i32) {
    let mut x = value;
    for i in 0..rounds {
        x = (x * 1103515245 + 12345) ^ i;
    }
    // The value, but only the loop knows.
    store(out + program_id(0), select(x == 123456789, value + 1, value));
}

/// Touches nothing, and so would be done before anything else.
#[kernel]
fn nothing(out: PtrMut<i32>, n: i32) {
    if n > 0 {
        store(out, n);
    }
}

#[kernel]
fn copy(x: Ptr<i32>, out: PtrMut<i32>) {
    store(out + program_id(0), load(x + program_id(0)));
}

/// A slow launch, one that does nothing, and one that reads what the first writes.
#[test]
fn launches_do_not_overtake_through_one_that_does_nothing() {
    check(|device| {
        let rounds = if device.is_cuda() { 200_000 } else { 200 };
        let mut other = device.zeros::<i32>(1)?;
        for value in 1..20 {
            let (mut x, mut out) = (device.zeros::<i32>(64)?, device.zeros::<i32>(64)?);
            slow(&mut x, value, rounds).grid(64).dependent_launch().launch(device)?;
            for _ in 0..value % 4 {
                nothing(&mut other, 0).grid(32).dependent_launch().launch(device)?;
            }
            copy(&x, &mut out).grid(64).dependent_launch().launch(device)?;
            assert_eq!(out.to_vec()?, vec![value; 64]);
        }
        Ok(())
    });
}

/// Ordinary launches, host copies and other streams see what dependent launches wrote, and the other way round.
#[test]
fn everything_else_waits_as_for_other_launches() {
    check(|device| {
        let stream = device.new_stream()?;
        let n = 50_000;
        let (mut x, mut y) = (device.zeros::<i32>(n)?, device.zeros::<i32>(n)?);
        let mut want = vec![0; n];
        for round in 0..24 {
            let shift = 4001 * (round + 1) % n;
            let call = step::<512>(&x, &mut y, shift as i32, n as i32).grid(n.div_ceil(512));
            let call = if round % 3 == 1 { call.stream(&stream) } else { call };
            if round % 4 == 0 {
                call.launch(device)?
            } else {
                call.dependent_launch().launch(device)?
            };
            std::mem::swap(&mut x, &mut y);
            want = stepped(&want, shift);
            if round % 8 == 7 {
                assert_eq!(x.to_vec()?, want, "round {round}");
                y.fill(-1)?;
            }
        }
        assert_eq!(x.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn gathered(x: Ptr<i32>, indices: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = program_id(0) * 128 + arange(0, 128);
    let mask = i < n;
    store(out + i, load(x + load(indices + i, mask = mask), mask = mask), mask = mask);
}

#[test]
fn errors_belong_to_the_launch_that_made_them() {
    check(|device| {
        let x = device.upload(&(0..100).collect::<Vec<i32>>())?;
        let good = device.upload(&(0..100).rev().collect::<Vec<i32>>())?;
        let bad = device.upload(&[vec![5; 99], vec![100]].concat())?;
        for round in 0..20 {
            let (mut first, mut second) = (device.zeros::<i32>(100)?, device.zeros::<i32>(100)?);
            let (a, b) = if round % 2 == 0 { (&good, &bad) } else { (&bad, &good) };
            gathered(&x, a, &mut first, 100).grid(1).dependent_launch().launch(device)?;
            gathered(&x, b, &mut second, 100).grid(1).dependent_launch().launch(device)?;
            let (right, wrong) = if round % 2 == 0 { (first, second) } else { (second, first) };
            assert_eq!(right.to_vec()?, (0..100).rev().collect::<Vec<i32>>());
            assert!(matches!(wrong.to_vec(), Err(Error::OutOfBounds { offset: 100, .. })), "round {round}");
        }
        Ok(())
    });
}

#[test]
fn the_code_of_ordinary_launches_stays_as_it_is() {
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<i32>(1).unwrap(), device.zeros::<i32>(1).unwrap());
    let mut ptx = |dependent: bool, target| {
        let call = copy(&x, &mut out).grid(1);
        let call = if dependent { call.dependent_launch() } else { call };
        call.compile(target).unwrap_or_else(|error| panic!("{error}")).ptx().to_string()
    };
    assert!(!ptx(false, Target::sm_90a()).contains("griddepcontrol"));
    assert!(ptx(true, Target::sm_90a()).contains("griddepcontrol.wait;"));
    assert_eq!(ptx(true, Target::sm_80()), ptx(false, Target::sm_80()));
}
