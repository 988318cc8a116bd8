//! What is known when a kernel is compiled, and how it is asked to be compiled.

use tilewright::prelude::*;

use crate::elements::{Element, Random, close, equal};
use crate::flow::stored;
use crate::for_integers;
use crate::memory::{ensure, instructions};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![constants(), values(), facts(), grids(), warps(), fusion()]
}

#[kernel]
fn float_constants<const OP: i32, const LEFT: i32, const RIGHT: i32>(
    a: Const<f32>,
    b: Const<f32>,
    x: Ptr<f32>,
    y: Ptr<f32>,
    out: PtrMut<f32>,
) {
    let p = if LEFT == 0 {
        load(x)
    } else if LEFT == 1 {
        3.25
    } else {
        a
    };
    let q = if RIGHT == 0 {
        load(y)
    } else if RIGHT == 1 {
        4.125
    } else {
        b
    };
    if OP == 0 {
        store(out, p + q);
    } else if OP == 1 {
        store(out, p - q);
    } else if OP == 2 {
        store(out, p * q);
    } else if OP == 3 {
        store(out, p / q);
    } else if OP == 4 {
        store(out, p % q);
    } else if OP == 5 {
        store(out, (p < q) as f32);
    } else {
        store(out, (p > q) as f32);
    }
}

#[kernel]
fn int_constants<const OP: i32, const LEFT: i32, const RIGHT: i32, const A: i32, const B: i32>(
    x: Ptr<i32>,
    y: Ptr<i32>,
    out: PtrMut<i32>,
) {
    let p = if LEFT == 0 {
        load(x)
    } else if LEFT == 1 {
        3
    } else {
        A
    };
    let q = if RIGHT == 0 {
        load(y)
    } else if RIGHT == 1 {
        4
    } else {
        B
    };
    if OP == 0 {
        store(out, p << q);
    } else if OP == 1 {
        store(out, p >> q);
    } else if OP == 2 {
        store(out, p & q);
    } else if OP == 3 {
        store(out, p ^ q);
    } else {
        store(out, p | q);
    }
}

#[kernel]
fn sum_as_a_shape(out: PtrMut<i32>) {
    let i = arange(0, 128 + 128);
    store(out + i, i);
}

#[kernel]
fn remainders(out: PtrMut<i32>, s: i32) {
    let i = arange(0, 256);
    store(out + i, i % (256 / s));
}

#[kernel]
fn copied(x: Ptr<f32>, out: PtrMut<f32>) {
    store(out, load(x));
}

fn constants() -> Row {
    let upstream = "test_bin_op_constexpr, test_constexpr_shape, test_constexpr_scalar_shape, test_const";
    let mut row = Row::new("C76", upstream)
        .elsewhere(2, "`kernel-macros/tests/messages` (`memory.txt`, `atomics_and_scans.txt`: `x` is read only)");
    let kinds = ["a value", "a literal", "a constexpr"];
    let sides = || (0..9).map(|both| (both / 3, both % 3));
    for (op, sign) in (0..).zip(["+", "-", "*", "/", "%", "<", ">"]) {
        for (left, right) in sides() {
            let name = format!("{} {sign} {} of f32", kinds[left], kinds[right]);
            row.case(name, move |device| {
                let mut random = Random::new(76);
                let (x, y): (f32, f32) = (random.element(), random.element());
                let (p, q) = (if left == 0 { x } else { 3.25 }, if right == 0 { y } else { 4.125 });
                let consts = FloatConstantsConsts { OP: op, LEFT: left as i32, RIGHT: right as i32 };
                let (xs, ys) = (device.full(1, x)?, device.full(1, y)?);
                let launch = |out: &mut Buffer<f32>| consts.call(3.25, 4.125, &xs, &ys, out).grid(1).launch(device);
                let got = stored(device, 0.0, launch)?;
                let (less, more) = (f32::from(u8::from(p < q)), f32::from(u8::from(p > q)));
                // As for C01: quotients and remainders are close, all else is exact.
                let want = [p + q, p - q, p * q, p / q, p % q, less, more][op as usize];
                close(&[got], &[want], if op == 3 || op == 4 { 1e-6 } else { 0.0 }, 0.0)
            });
        }
    }
    for (op, sign) in (0..).zip(["<<", ">>", "&", "^", "|"]) {
        for (left, right) in sides() {
            let name = format!("{} {sign} {} of i32", kinds[left], kinds[right]);
            row.case(name, move |device| {
                let mut random = Random::new(77);
                let (x, y): (i32, i32) = (random.element(), random.small(1, 0, 31)[0]);
                let (p, q) = (if left == 0 { x } else { 3 }, if right == 0 { y } else { 4 });
                let consts = IntConstantsConsts { OP: op, LEFT: left as i32, RIGHT: right as i32, A: 3, B: 4 };
                let (xs, ys) = (device.full(1, x)?, device.full(1, y)?);
                let got = stored(device, 0, |out| consts.call(&xs, &ys, out).grid(1).launch(device))?;
                equal(&[got], &[[p << q, p >> q, p & q, p ^ q, p | q][op as usize]])
            });
        }
    }
    row.case("a sum as a shape", |device| {
        let mut out = device.zeros::<i32>(256)?;
        sum_as_a_shape(&mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &(0..256).collect::<Vec<i32>>())
    });
    for s in [1, 32, 100, 256] {
        row.case(format!("256 / {s}"), move |device| {
            let mut out = device.zeros::<i32>(256)?;
            remainders(&mut out, s).grid(1).launch(device)?;
            equal(&out.to_vec()?, &(0..256).map(|i| i % (256 / s)).collect::<Vec<i32>>())
        });
    }
    row.case("a pointer to read", |device| {
        let x = device.full(1, 2.5f32)?;
        equal(&[stored(device, 0.0, |out| copied(&x, out).grid(1).launch(device))?], &[2.5])
    });
    row
}

#[kernel]
fn kept<T: Int>(value: T, one: T, out: PtrMut<T>) {
    store(out, value * one);
}

fn values() -> Row {
    fn case<T: Element + Int>(device: &Device, value: i128) -> Outcome {
        let (value, one) = (T::from_int(value), T::from_int(1));
        equal(&[stored(device, T::from_int(5), |out| kept(value, one, out).grid(1).launch(device))?], &[value])
    }
    let mut row = Row::new("C77", "test_value_specialization, test_value_specialization_overflow")
        .remarks("the dtype is the parameter's")
        .elsewhere(1, "`tests/ui/launch_with_a_scalar_of_another_type.rs`");
    let all: [i128; 14] = [
        -1,
        0,
        1,
        16,
        -(1 << 31),
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        (1 << 63) - 1,
        -(1 << 63),
        1 << 63,
        (1 << 64) - 1,
        127,
    ];
    macro_rules! each {
        ($t:ident) => {
            for value in all.into_iter().filter(|&value| $t::try_from(value).is_ok()) {
                row.case(format!("{value} as {}", $t::NAME), move |device| case::<$t>(device, value));
            }
        };
    }
    for_integers!(each);
    row
}

#[kernel]
fn strided<const ROWS: bool>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, 512);
    if ROWS {
        store(out + i, load(x + program_id(0) * n + i));
    } else {
        store(out + i, load(x + i * n));
    }
}

fn facts() -> Row {
    let mut row = Row::new("C78", "test_specialize_impl")
        .remarks("what a launch compiles for, as the widths of loads show it")
        .elsewhere(5, "`kernel-runtime/src/launch` (`key.rs`, `spec.rs`: keys of variants)");
    // An element apart, rows that begin at multiples of 16 elements, and a buffer that begins at 16 bytes.
    let wide = |rows: bool, n: i32, start: usize| (if rows { n % 16 == 0 } else { n == 1 }) && start.is_multiple_of(4);
    for (rows, name) in [(false, "i * n"), (true, "row * n + i")] {
        for n in [1, 2, 3, 15, 16, 17, 32, 48] {
            for start in [0usize, 1, 2, 4, 16] {
                let name = format!("{name}, n {n}, buffer from element {start}");
                row.case(name.clone(), move |device| {
                    let x: Vec<f32> = (0..512 * 48 + 16).map(|i| i as f32).collect();
                    let (whole, mut out) = (device.upload(&x)?, device.zeros::<f32>(512)?);
                    let part = whole.slice(start..x.len())?;
                    StridedConsts { ROWS: rows }.call(part, &mut out, n).grid(1).launch(device)?;
                    let at = |i: usize| start + if rows { i } else { i * n as usize };
                    equal(&out.to_vec()?, &(0..512).map(|i| x[at(i)]).collect::<Vec<f32>>())
                });
                row.host(format!("code of {name}"), move || {
                    let device = Device::cpu();
                    let (whole, mut out) = (device.zeros::<f32>(512 * 48 + 16)?, device.zeros::<f32>(512)?);
                    let call = StridedConsts { ROWS: rows };
                    let part = whole.slice(start..512 * 48 + 16)?;
                    let compiled = call.call(part, &mut out, n).grid(1).compile(Target::sm_90a())?;
                    let loads = instructions(compiled.ptx(), "ld.global");
                    let four = loads.iter().all(|name| name.ends_with(".v4.b32")) && !loads.is_empty();
                    ensure(four == wide(rows, n, start), "the width of loads", compiled.ptx())
                });
            }
        }
    }
    row
}

#[kernel]
fn sizes(out: PtrMut<i32>) {
    store(out, num_programs(0));
    store(out + 1, num_programs(1));
    store(out + 2, num_programs(2));
}

#[kernel]
fn places(out: PtrMut<i32>) {
    let (i, j, k) = (program_id(0), program_id(1), program_id(2));
    let at = (k * num_programs(1) + j) * num_programs(0) + i;
    store(out + at, i + 100 * j + 10_000 * k);
}

fn grids() -> Row {
    let mut row = Row::new("C79", "test_num_programs, test_invalid_pid_axis")
        .elsewhere(1, "`kernel-macros/tests/messages/calls.txt` (`program_id(3)`)");
    for grid in [(11u32, 21u32, 31u32), (1, 1, 1), (7, 1, 3), (1, 64, 2)] {
        row.case(format!("sizes of {grid:?}"), move |device| {
            let mut out = device.zeros::<i32>(3)?;
            sizes(&mut out).grid(grid).launch(device)?;
            equal(&out.to_vec()?, &[grid.0, grid.1, grid.2].map(|size| size as i32))
        });
        row.case(format!("places in {grid:?}"), move |device| {
            let (x, y, z) = grid;
            let mut out = device.full((x * y * z) as usize, -1)?;
            places(&mut out).grid(grid).launch(device)?;
            let want = (0..x * y * z).map(|at| at % x + 100 * (at / x % y) + 10_000 * (at / x / y));
            equal(&out.to_vec()?, &want.map(|place| place as i32).collect::<Vec<i32>>())
        });
    }
    row
}

fn warps() -> Row {
    let mut row = Row::new("C80", "test_num_warps_pow2, test_maxnreg")
        .remarks("`maxnreg` is `max_registers`; there are no clusters (`num_ctas`)");
    for warps in [0, 1, 2, 3, 4, 5, 8, 12, 16, 32, 33, 64] {
        let taken = [1, 2, 4, 8, 16, 32].contains(&warps);
        row.case(format!("{warps} warps"), move |device| {
            let mut out = device.zeros::<i32>(3)?;
            match sizes(&mut out).num_warps(warps).grid(2).launch(device) {
                Ok(()) if taken => equal(&out.to_vec()?, &[2, 1, 1]),
                Err(error) if !taken => {
                    ensure(error.to_string().contains("power of two"), "message", &error.to_string())
                }
                other => Err(Failure(format!("{other:?}"))),
            }
        });
        row.host(format!("code with {warps} warps"), move || {
            let device = Device::cpu();
            let mut out = device.zeros::<i32>(3)?;
            match sizes(&mut out).num_warps(warps).grid(2).compile(Target::sm_90a()) {
                Ok(compiled) => {
                    let threads = format!(".reqntid {}", 32 * warps);
                    ensure(taken && compiled.ptx().contains(&threads), &threads, compiled.ptx())
                }
                Err(error) => ensure(!taken, "refused", &error.to_string()),
            }
        });
    }
    row
}

#[kernel]
fn fused(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 128);
    store(out + i, load(x + i) * 1.7 + 1.1);
}

#[kernel(contract = false)]
fn apart(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 128);
    store(out + i, load(x + i) * 1.7 + 1.1);
}

#[kernel(flush = true)]
fn flushed(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 128);
    store(out + i, exp(load(x + i)));
}

#[kernel]
fn doubled(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 128);
    store(out + i, load(x + i) * 2.0);
}

#[kernel(flush = true)]
fn doubled_flushed(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 128);
    store(out + i, load(x + i) * 2.0);
}

fn fusion() -> Row {
    let mut row = Row::new("C81", "test_enable_fp_fusion, test_enable_reflect_ftz")
        .remarks("`contract = false` and `flush = true` of the attribute");
    row.case("fused or not", |device| {
        let x: Vec<f32> = Random::new(81).elements(128);
        let mut out = device.zeros::<f32>(128)?;
        fused(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        let one = |(x, got): (&f32, f32)| got == x * 1.7 + 1.1 || got == x.mul_add(1.7, 1.1);
        let right = x.iter().zip(out.to_vec()?).all(one);
        if right { Ok(()) } else { Err("neither rounded once nor twice".into()) }
    });
    row.case("not fused", |device| {
        let x: Vec<f32> = Random::new(81).elements(128);
        let mut out = device.zeros::<f32>(128)?;
        apart(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &x.iter().map(|x| x * 1.7 + 1.1).collect::<Vec<f32>>())
    });
    row.host("code", || {
        let device = Device::cpu();
        let (x, mut out) = (device.zeros::<f32>(128)?, device.zeros::<f32>(128)?);
        let fused = fused(&x, &mut out).grid(1).compile(Target::sm_90a())?;
        let apart = apart(&x, &mut out).grid(1).compile(Target::sm_90a())?;
        ensure(fused.ptx().contains("fma.rn.f32"), "an fma", fused.ptx())?;
        ensure(!apart.ptx().contains("fma.rn.f32"), "no fma", apart.ptx())?;
        ensure(apart.ptx().contains("mul.rn.f32") && apart.ptx().contains("add.rn.f32"), "two", apart.ptx())?;
        ensure(!fused.ptx().contains(".ftz"), "no flush", fused.ptx())?;
        let flushed = flushed(&x, &mut out).grid(1).compile(Target::sm_90a())?;
        ensure(flushed.ptx().contains("ex2.approx.ftz.f32"), "the short exponential", flushed.ptx())?;
        ensure(flushed.ptx().contains("mul.rn.ftz.f32"), "flush", flushed.ptx())
    });
    row.case("flushed or not", |device| {
        // Twice a subnormal number would be a normal one.
        let x = vec![f32::MIN_POSITIVE / 2.0; 128];
        let (mut kept, mut zeros) = (device.zeros::<f32>(128)?, device.zeros::<f32>(128)?);
        doubled(&device.upload(&x)?, &mut kept).grid(1).launch(device)?;
        doubled_flushed(&device.upload(&x)?, &mut zeros).grid(1).launch(device)?;
        equal(&kept.to_vec()?, &vec![f32::MIN_POSITIVE; 128])?;
        equal(&zeros.to_vec()?, &vec![0.0; 128])
    });
    row
}
