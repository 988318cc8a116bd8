//! Methods of structs of this crate and of another that are declared and called wrongly.

use tilewright::prelude::*;
use tilewright_tests::functions::online::Softmax;

#[device]
struct Plain {
    a: f32,
}

#[device]
impl Plain {
    fn twice(self) -> f32 {
        self.a * 2.0
    }
}

#[device(methods)]
struct Alone {
    a: f32,
}

#[device(methods)]
struct Counter {
    value: i32,
}

#[device]
impl Counter {
    fn next(&mut self) -> i32 {
        self.value += 1.0;
        self.value
    }
}

#[kernel]
fn calls<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let row = load(x + arange(0, N));
    let mut state = Softmax::<f32, N>::new();
    let fixed = state;
    state.updated(row);
    state.update(row, row);
    fixed.update(row);
    Softmax::<f32, N>::new().update(row);
    Softmax::update(state, row);
    store(out, state.weight(zeros::<f32>([2 * N])));
}

#[kernel]
fn uses_no_variable(out: PtrMut<f32>) {
    let mut state = Softmax::<f32, 16>::new();
    let mut other = Softmax::<f32, 16>::new();
    other.update(state.max);
    store(out + arange(0, 16), other.max);
}

fn main() {}
