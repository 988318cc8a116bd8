//! Where lints are allowed, or a name begins with `_`, rustc says nothing: only the last kernel is refused.
#![deny(warnings)]

use tilewright::prelude::*;

#[kernel]
#[allow(unused_variables, unused_mut)]
fn allowed(x: Ptr<f32>, mut n: i32) {
    let a = load(x);
}

#[kernel]
#[expect(unused_variables, reason = "to be used")]
fn expected(x: Ptr<f32>) {}

#[allow(unused)]
mod in_a_module {
    use tilewright::prelude::*;

    #[kernel]
    fn allowed(out: PtrMut<f32>, n: i32) {
        let mut a = 1;
        return;
        store(out, 1.0);
    }
}

#[kernel]
fn by_statement(out: PtrMut<f32>, #[allow(unused_variables)] n: i32) {
    #[allow(unused_variables)]
    let a = 1.0;
    #[allow(unused_variables)]
    for i in 0..3 {
        store(out, 1.0);
    }
    #[allow(unused_mut)]
    let (mut b, _) = (2.0, 3.0);
    store(out, b);
}

#[kernel]
fn inner() {
    #![allow(unused_variables)]
    let a = 1;
}

/// Everything is used, in one way or another.
#[kernel]
#[allow(unused_unsafe)]
fn used<T: Num, const M: usize, const N: usize>(
    x: Ptr<T>,
    y: TensorDesc<f32, { [M, N] }>,
    z: TensorDescMut<f32, { [M, N] }>,
    bias: Ptr<f32>,
    out: PtrMut<f32>,
    mut n: i32,
    eps: Const<f32>,
    _unused: i32,
) {
    let half = N / 2;
    let double = 2 * half;
    static_assert!(half * 2 == N);
    let rows: Tile<i32, { [M] }> = arange(0, M);
    let columns = arange(0, double);
    assert!(n > 0, "positive");
    let (start, (end, step)) = (0, (n, 2));
    let mut acc = zeros([M, N]);
    let mut last = 0;
    for k in (start..end).step_by(step) {
        acc = acc + load(x + rows[(.., None)] * n + columns + k) as f32;
        last = k;
    }
    while n > 0 && last >= 0 {
        n -= 1;
    }
    let (value, place) = reduce((sum(acc, axis = 0), columns), axis = 0, |(a, i), (b, j)| {
        if a > b || a == b && i < j { (a, i) } else { (b, j) }
    });
    let scale = if n == 0 { eps } else { let s = value; s * 2.0 };
    z.store([0, place], y.load([0, 0]) * scale + unsafe { load(bias + multiple_of(n, 4)) });
    let old = atomic_add(out, 1.0);
    store(out, old, mask = n < 3);
}

#[kernel]
fn refused() {
    let unused = 1;
}

fn main() {}
