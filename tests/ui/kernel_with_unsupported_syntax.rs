//! Rust's syntax that kernels do not have.

use tilewright::prelude::*;

#[kernel]
fn expressions(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let a = match n {
        0 => 1,
        _ => 2,
    };
    let b = [1, 2, 3];
    let c = [0.0; 4];
    let d = &n;
    let e = &mut n;
    let ea = &raw const n;
    let h = n?;
    let i = |a| a + 1;
    let j = 0..n;
    let k = loop {};
    let l = while n > 0 {};
    let m = for i in 0..n {};
    let o = const { 4 };
    let p = async { 4 };
    let q = vec![1, 2, 3];
    let r = _;
    let s = { let t = 4; };
    let t = 'label: { 4 };
    let u = <f32>::MAX;
    let v = n.0;
    let w = (1, 2).2;
    let y = (1, 2).first;
    let z = x.shape;
}

#[kernel]
fn statements(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    fn helper() {}
    const LOCAL: i32 = 4;
    use std::fmt;
    struct Inner;
    let Some(a) = n else { return };
    print!("{}", n);
    panic!("stop");
    assert_eq!(n, 4);
    assert_ne!(n, 4);
    debug_assert!(n > 0);
    dbg!(n);
    let b;
    'label: {
        store(out, 1.0);
    }
}

fn main() {}
