//! Atomic operations.

use tilewright::prelude::*;

#[kernel]
fn atomics<T: DType, F: Float>(x: Ptr<i32>, out: PtrMut<i32>, f: PtrMut<f32>, bytes: PtrMut<u8>, t: PtrMut<T>, g: PtrMut<F>) {
    let i = arange(0, 16);
    atomic_add(x + i, 1);
    atomic_add(out + i, 1.5);
    atomic_add(out + i, load(x + arange(0, 8)));
    atomic_add(out + i, 1, mask = i);
    atomic_add(out + i, 1, order = seq_cst);
    atomic_add(out + i, 1, order = relax, scope = gpu);
    atomic_and(f, 1);
    atomic_add(bytes, 1);
    atomic_add(t, load(t));
    atomic_xor(g, load(g));
    atomic_cas(out, 1);
    atomic_cas(out, 1, 2.0);
    atomic_cas(out, load(f), 2);
    atomic_xchg(out, 1);
    atomic_add(i, 1);
    atomic_sub(out, 1);
    let a = atomic_add(out + i, 1) + load(f + i);
    let b = reduce(i, axis = 0, |a, b| atomic_add(out, a));
}

fn main() {}
