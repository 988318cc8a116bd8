//! Statements and patterns.

use tilewright::prelude::*;

#[kernel]
fn statements(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let a = 1;
    a = 2;
    n += 1;
    let late;
    let Some(b) = n else { return };
    let (c, d) = n;
    let mut tuple = (1, 2);
    n + 1;
    let closure = |a| a + 1;
    let array = [1, 2];
    let reference = &n;
    fn inner() {}
    print!("{}", n);
    panic!("no");
    #[cfg(debug_assertions)]
    let debug = 1;
    let text = "text";
    load(x)
}

fn main() {}
