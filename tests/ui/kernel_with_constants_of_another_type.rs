//! Constants of the crate are checked by rustc, on the tokens in the kernel.

use tilewright::prelude::*;

const WIDTH: usize = 16;
const LIMIT: i64 = 10;
const SCALE: f64 = 0.5;
const NAME: &str = "name";

#[kernel]
fn constants(out: PtrMut<i32>, floats: PtrMut<f32>, n: i32) {
    store(out + arange(0, WIDTH), n + LIMIT);
    store(floats, SCALE);
    store(floats, load(floats) + MISSING);
    store(out, n + NAME);
}

fn main() {}
