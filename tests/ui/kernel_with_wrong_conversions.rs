//! Conversions and annotations.

use tilewright::prelude::*;

#[kernel]
fn conversions(x: Ptr<f32>, n: Ptr<i64>, b: Ptr<bool>, out: PtrMut<f32>, m: i32) {
    let a = load(x) as bool;
    let c = load(x) as usize;
    let d = m as isize;
    let e = x as Ptr<i32>;
    let f = load(x) as Tile<f32, { [4] }>;
    let g = bitcast::<i64>(load(x));
    let h = bitcast::<bool>(load(b));
    let i = load(b).to::<bool>();
    let j = 1.5 as bool;
    let k = (1, 2) as i32;
    let l = arange(0, 4) as Vec<i32>;
    let o = bitcast::<f16>(m);
    let p = store(out, 1.0) as i32;
}

#[kernel]
fn annotations<const M: usize, const N: usize>(x: Ptr<f32>, y: PtrMut<f32>, n: i32) {
    let a: f64 = load(x);
    let b: i32 = 1.5;
    let c: f32 = 1;
    let d: usize = n;
    let e: usize = N * 2;
    let f: i32 = arange(0, 4);
    let g: Tile<f32, { [M] }> = zeros([N]);
    let h: Tile<f32, [M]> = zeros([M]);
    let i: Tile<f32> = zeros([M]);
    let j: Ptr<i32> = x;
    let k: PtrMut<f32> = x;
    let l: (f32, i32) = (1, 2);
    let m: (f32, i32) = 1.0;
    let o: Vec<f32> = zeros([M]);
    let p: &f32 = load(x);
    let q: u8 = 256;
    let r: Tile<f32, { M }> = zeros([M]);
    let s: Ptr = x;
}

fn main() {}
