//! Type parameters are dtypes, const parameters are integers and `bool`s.
#![allow(non_camel_case_types)]

use tilewright::prelude::*;

#[kernel]
fn unbounded<T>(x: Ptr<T>) {}

#[kernel]
fn two_bounds<T: Num + Copy>(x: Ptr<T>) {}

#[kernel]
fn unknown_bounds<T: Nums, U: Copy, V: 'static>(x: Ptr<T>, y: Ptr<U>, z: Ptr<V>) {}

#[kernel]
fn constexprs<const EPS: f32, const C: char, const N: usize = true>(out: PtrMut<f32>) {
    store(out + arange(0, N), EPS);
}

#[kernel]
fn names<f32: Float, Num: Num>(x: Ptr<f32>) {}

#[kernel]
fn float_constexpr_used<const EPS: f32>(out: PtrMut<f32>) {
    let a = EPS * 2.0;
    store(out, a);
}

#[kernel]
fn dtype_with_a_default<T: Num = f32>(out: PtrMut<T>) {
    store(out, 1 as T);
}

#[kernel]
fn default_of_another_type<const N: usize = -4>(out: PtrMut<f32>) {
    store(out + arange(0, N), 1.0);
}

fn main() {}
