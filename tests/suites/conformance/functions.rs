//! Functions that kernels call.

use tilewright::prelude::*;

use crate::elements::{Random, equal};
use crate::flow::stored;
use crate::runner::Row;

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![functions()]
}

#[device]
fn simple(x: f32, y: f32, out: PtrMut<f32>) {
    store(out, x + y);
}

#[device]
fn one_more(x: f32) -> f32 {
    x + 1.0
}

#[device]
fn two_more(x: f32) -> f32 {
    x + 2.0
}

#[device]
fn call_graph(x: f32, y: f32, out: PtrMut<f32>) {
    store(out, one_more(x) + two_more(y));
}

#[device]
fn shared(x: f32, y: f32, out: PtrMut<f32>) {
    let at = out + arange(0, 16)[(.., None)] * 16 + arange(0, 16)[(None, ..)];
    let t = load(at);
    store(at, dot(t, t) + x + y);
}

#[device]
fn dynamic(x: f32, y: f32, out: PtrMut<f32>) {
    let x = if x >= 1.0 { one_more(x) } else { two_more(x) };
    let y = if y >= 2.0 { two_more(y) } else { one_more(y) };
    store(out, x + y);
}

#[device]
fn several(x: f32, y: f32) -> (f32, f32) {
    (x + 1.0, y + 2.0)
}

#[device]
fn multi_values(x: f32, y: f32, out: PtrMut<f32>) {
    let (x, y) = several(x, y);
    store(out, x + y);
}

#[kernel]
fn calls<const MODE: i32>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>) {
    let (x, y) = (load(x), load(y));
    if MODE == 0 {
        simple(x, y, out);
    } else if MODE == 1 {
        call_graph(x, y, out);
    } else if MODE == 2 {
        shared(x, y, out);
    } else if MODE == 3 {
        dynamic(x, y, out);
    } else {
        multi_values(x, y, out);
    }
}

#[device]
fn multiplied<const N: usize>(x: Tile<f32, { [N] }>, i: i32) -> Tile<f32, { [N] }> {
    x * i as f32
}

#[device]
fn vector_product(x: PtrMut<f32>, n: i32, times: i32) {
    let i = program_id(0) * 128 + arange(0, 128);
    let mask = i < n;
    let mut v = load(x + i, mask = mask);
    for k in 1..times {
        v = multiplied(v, k);
    }
    store(x + i, v, mask = mask);
}

#[kernel]
fn calls_in_loops(x: PtrMut<f32>, n: i32, first: i32, second: i32) {
    vector_product(x, n, first);
    vector_product(x, n, second);
}

#[device]
fn add_one(x: i32) -> i32 {
    x + 1
}

#[device]
fn add_by_program(x: i32, pid: i32) -> i32 {
    if pid == 0 { x + 1 } else { x + 2 }
}

#[device]
fn put(out: PtrMut<i32>, x: i32) {
    store(out, x);
}

#[device]
fn add_if<const ADD: bool>(x: i32) -> i32 {
    if ADD { x + 1 } else { x }
}

#[kernel]
fn calls_in_conditions<const MODE: i32>(out: PtrMut<i32>) {
    let pid = program_id(0);
    let mut o = load(out);
    if pid == 0 {
        let a = o;
        if MODE == 0 {
            o = a as i64 as i32 + 1;
        } else if MODE == 1 {
            o = load(out + add_one(a) - 1) + 1;
        } else if MODE == 2 {
            o = add_one(a);
        } else if MODE == 3 {
            o = add_by_program(a, pid);
        } else if MODE == 4 {
            o = if pid == 0 { add_one(a) } else { add_by_program(a, pid) };
        } else if MODE == 5 {
            o = a + 1;
            put(out, o);
        } else if MODE == 6 {
            o = add_if::<true>(a) + add_if::<false>(a);
        } else {
            let b = a + 1;
            o = cdiv(b, b);
        }
    }
    store(out, o);
}

#[device]
fn product<const N: usize>(x: Tile<f32, { [N] }>, y: Tile<f32, { [N] }>) -> Tile<f32, { [N] }> {
    x * y
}

#[device]
fn with_itself<const N: usize>(
    x: Tile<f32, { [N] }>,
    combine: impl Fn(Tile<f32, { [N] }>, Tile<f32, { [N] }>) -> Tile<f32, { [N] }>,
) -> Tile<f32, { [N] }> {
    combine(x, x)
}

#[kernel]
fn squared(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 16);
    store(out + i, with_itself(load(x + i), |a, b| product(a, b)));
}

#[device]
fn three(a: f32, b: f32) -> (f32, f32, f32) {
    (a + b, a - b, a * b)
}

#[kernel]
fn three_results<const CALL: bool>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>) {
    let (x, y) = (load(x), load(y));
    let (a, b, c) = if CALL { three(x, y) } else { (x + y, x - y, x * y) };
    store(out, a);
    store(out + 1, b);
    store(out + 2, c);
}

fn functions() -> Row {
    let upstream = "test_noinline, test_call, test_if_call, test_jit_function_arg, test_tuples";
    let mut row = Row::new("C75", upstream).remarks("functions are always inlined");
    for (mode, name) in (0..).zip(["simple", "call_graph", "shared", "dynamic", "multi_values"]) {
        for (x, y) in [(1.0f32, 2.0f32), (0.5, 1.5)] {
            row.case(format!("{name} of {x} and {y}"), move |device| {
                let len = if mode == 2 { 256 } else { 1 };
                let mut out = device.full(len, 1.0f32)?;
                let (xs, ys) = (device.full(1, x)?, device.full(1, y)?);
                CallsConsts { MODE: mode }.call(&xs, &ys, &mut out).grid(1).launch(device)?;
                let (low, high) = (if x >= 1.0 { 1.0 } else { 2.0 }, if y >= 2.0 { 2.0 } else { 1.0 });
                let want = [x + y, x + 1.0 + y + 2.0, 16.0 + x + y, x + low + y + high, x + 1.0 + y + 2.0];
                equal(&out.to_vec()?, &vec![want[mode as usize]; len])
            });
        }
    }
    row.case("calls in loops", |device| {
        let x: Vec<f32> = Random::new(75).elements(1024);
        let mut out = device.upload(&x)?;
        calls_in_loops(&mut out, 1024, 3, 5).grid(8).launch(device)?;
        let product = |x: &f32| [1.0, 2.0, 1.0, 2.0, 3.0, 4.0].iter().fold(*x, |x, i| x * i);
        equal(&out.to_vec()?, &x.iter().map(product).collect::<Vec<f32>>())
    });
    let modes =
        ["attribute", "attribute_jit", "jit", "jit_if", "jit_ifexp", "jit_expr", "jit_static_cond", "jit_extern"];
    for (mode, name) in (0..).zip(modes) {
        row.case(format!("if_call, {name}"), move |device| {
            let consts = CallsInConditionsConsts { MODE: mode };
            equal(&[stored(device, 0, |out| consts.call(out).grid(1).launch(device))?], &[1])
        });
    }
    row.case("function as an argument", |device| {
        let (x, mut out) = (device.full(16, 3.0f32)?, device.zeros::<f32>(16)?);
        squared(&x, &mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &[9.0; 16])
    });
    for call in [true, false] {
        row.case(format!("tuples, {}", if call { "of a function" } else { "written out" }), move |device| {
            let (x, y, mut out) = (device.full(1, 1.25f32)?, device.full(1, 2.0f32)?, device.zeros::<f32>(3)?);
            ThreeResultsConsts { CALL: call }.call(&x, &y, &mut out).grid(1).launch(device)?;
            equal(&out.to_vec()?, &[3.25, -0.75, 2.5])
        });
    }
    row
}
