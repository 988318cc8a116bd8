//! rustc warns of what a kernel does not use as it does in a function, at the level that the crate asks for.
#![deny(unused_variables, unused_mut, unused_assignments, unreachable_code)]

use tilewright::prelude::*;

#[kernel]
fn variables<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32, mut m: i32) {
    let i = arange(0, N);
    let unused = load(x + i);
    let (first, _second) = (n, m);
    let mut never_changed = n;
    let mut never_read = 0;
    never_read = never_changed;
    for k in 0..n {
        store(out + i, 1.0);
    }
    store(out + reduce(i, axis = 0, |a, b| a), 1.0);
    if n > 0 {
        let inner = 1;
    }
}

#[kernel]
fn code_behind_a_return(out: PtrMut<f32>, n: i32) {
    if n > 0 {
        return;
        store(out, 1.0);
    }
    store(out, 2.0);
    return;
    let _a = n;
}

#[kernel]
fn code_behind_jumps(out: PtrMut<f32>, n: i32) {
    for i in 0..=n {
        if i > 3 {
            continue;
            store(out, 1.0);
        }
        break;
        store(out, 2.0);
    }
    'unused: loop {
        store(out, 3.0);
        if n > 3 {
            return;
        }
    }
    store(out, 4.0);
}

macro_rules! from_a_macro {
    ($name:ident, $value:ident) => {
        #[kernel]
        fn $name(out: PtrMut<f32>) {
            let value = 1.0;
            let $value = 2.0;
            let unused_in_a_macro = value;
            store(out, value);
        }
    };
}
from_a_macro!(generated, value_of_the_caller_is_the_same);

fn main() {}
