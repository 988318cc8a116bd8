//! What kernels print comes out, on the standard output of the process. The driver writes there by itself, so one
//! test runs the other in a process of its own and reads what that has printed.

use std::process::Command;

use tilewright::prelude::*;
use tilewright_tests::devices::{check, gpu};

#[kernel]
fn scalars(x: Ptr<f32>, n: i32) {
    let p = program_id(0);
    println!("here");
    for i in 0..2 {
        if p == 1 {
            println!("{{{}}} of {}: {} {:?}, 100% {}", i, n, load(x + i), load(x + i), p == 1);
        }
    }
}

#[kernel]
fn tiles(x: Ptr<f32>, out: PtrMut<f32>) {
    let (r, c) = (arange(0, 2), arange(0, 4));
    let t = load(x + r[(.., None)] * 4 + c[(None, ..)]);
    println!("t = {}, row {}", t, r[(.., None)]);
    store(out, sum(sum(t, axis = 1), axis = 0));
}

#[kernel]
fn dtypes(x: Ptr<f32>, wide: Ptr<f64>) {
    let v = load(x + arange(0, 2));
    println!("{} {} {:?} {}", v as f16, v as bf16, v as f8e4m3, v as f8e5m2);
    println!("{} {} {} {}", v as i8, v as u8, v as i16, v as u16);
    println!("{} {} {}", v as u32, (v as i64) << 40, (v as u64) << 63);
    println!("{} {:?}", load(wide), load(wide));
}

#[test]
fn kernels_that_print() {
    check(|device| {
        let x = device.upload(&[0.1f32, -3.5, f32::NAN, f32::INFINITY, 1e10, 2.0, -0.0, 1e-7])?;
        let mut out = device.zeros::<f32>(1)?;
        scalars(&x, 7).grid(2).launch(device)?;
        tiles(&x, &mut out).grid(1).launch(device)?;
        dtypes(&x, &device.upload(&[0.1f64])?).grid(1).launch(device)?;
        device.synchronize()
    });
}

const EXPECTED: &[&str] = &[
    "program (0, 0, 0): here",
    "program (1, 0, 0): here",
    "program (1, 0, 0): {0} of 7: 0.1 0.100000001, 100% true",
    "program (1, 0, 0): {1} of 7: -3.5 -3.5, 100% true",
    "program (0, 0, 0) [0, 0]: t = 0.1, row 0",
    "program (0, 0, 0) [0, 1]: t = -3.5, row 0",
    "program (0, 0, 0) [0, 2]: t = nan, row 0",
    "program (0, 0, 0) [0, 3]: t = inf, row 0",
    "program (0, 0, 0) [1, 0]: t = 1e+10, row 1",
    "program (0, 0, 0) [1, 1]: t = 2, row 1",
    "program (0, 0, 0) [1, 2]: t = -0, row 1",
    "program (0, 0, 0) [1, 3]: t = 1e-07, row 1",
    "program (0, 0, 0) [0]: 0.0999756 0.100098 0.1015625 0.09375",
    "program (0, 0, 0) [1]: -3.5 -3.5 -3.5 -3.5",
    "program (0, 0, 0) [0]: 0 0 0 0",
    "program (0, 0, 0) [1]: -3 0 -3 0",
    "program (0, 0, 0) [0]: 0 0 0",
    "program (0, 0, 0) [1]: 0 -3298534883328 0",
    "program (0, 0, 0): 0.1 0.10000000000000001",
];

#[test]
fn what_kernels_print_comes_out() {
    let own = std::env::current_exe().expect("the path of this program");
    let child = Command::new(own).args(["printing::kernels_that_print", "--exact", "--nocapture"]).output();
    let child = child.expect("this program runs again");
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    let mut printed: Vec<&str> = text.lines().filter(|line| line.starts_with("program (")).collect();
    let devices = 1 + usize::from(gpu().is_some());
    let mut expected = EXPECTED.repeat(devices);
    printed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(printed, expected);
}
