//! Shapes are made of constexprs, and are powers of two.

use tilewright::prelude::*;

#[kernel]
fn shapes<const N: usize>(out: PtrMut<f32>, n: i32) {
    let a = zeros::<f32>([n]);
    let b = zeros::<f32>(N);
    let c = zeros::<f32>((N, N));
    let d = full(16, 1.0);
    let e = full([3], 1.0);
    let f = full([0], 1.0);
    let g = full([-4], 1.0);
    let h = arange(0, n);
    let i = arange(0, 48);
    let j = arange(4, 4);
    let k = full([1024, 1024, 2], 1.0);
    let l = full(&[N], 1.0);
    let m = arange(0, 10_000_000_000);
    let ma = arange(2147483648, 2147483664);
    let mb = full::<i32>([4], load(out));
    let mc = full([minimum(N, 8)], 1) + full([maximum(N, 8)], 1);
    let md: Tile<f32, { [8] }> = zeros([4]);
    let o = zeros::<f32>([N; 2]);
    let p = zeros::<f32>([N / 0]);
    let q = zeros::<f32>([N * 9223372036854775807 * 2]);
    let r = full([4], full([4], 1.0));
    let s = zeros([4]);
}

fn main() {}
