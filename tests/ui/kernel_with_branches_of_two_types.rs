//! Both branches give one type.

use tilewright::prelude::*;

#[kernel]
fn branches<const N: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, N);
    let a = if n > 0 { 1.0 } else { load(x + i) };
    let b = if n > 0 { 1 } else { 2.0 };
    let c = if n > 0 { load(x) } else { n };
    let d = if n > 0 { (1, 2) } else { 3 };
    let e = if n > 0 { (1, 2) } else { (1, 2, 3) };
    let f = if n > 0 { x } else { y };
    let g = if n > 0 { load(x) };
    let h = if n > 0 { load(x); } else { load(x) };
    let j = if n > 0 { store(out, 1.0) } else { 2.0 };
    let k = if n > 0 {} else { 2.0 };
    let l = if n > 0 { zeros::<f32>([4]) } else { zeros::<f32>([8]) };
    let m = if n > 0 { return } else { return };
}

fn main() {}
