//! What kernels print: C89. The driver writes to the standard output of its process, so a case runs this program once
//! more, which prints on one device, and compares the lines.

use std::process::Command;

use half::f16;
use tilewright::prelude::*;

use crate::elements::Element;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![printed()]
}

/// What turns the suite into [`print()`].
pub const PRINTING: &str = "--printing";

/// The elements of a tile.
const FEW: usize = 128;
/// Those of the large one.
const MANY: usize = 1024;

#[kernel]
fn elements<T: Num, const N: usize>(x: Ptr<T>) {
    println!("x: {}", load(x + arange(0, N)));
}

#[kernel]
fn scalar<T: Num>(x: Ptr<T>) {
    println!("x: {}", load(x));
}

#[kernel]
fn texts<const N: usize, const FORM: i32>() {
    if FORM == 0 {
        println!("");
    } else if FORM == 1 {
        println!("no arg");
    } else {
        println!("N = {}", N as i32);
    }
}

#[kernel]
fn several<const N: usize>(x: Ptr<i32>) {
    println!("{}, {}", load(x + arange(0, N)), full::<i32>([N], 1));
}

#[kernel]
fn debug<const N: usize>(x: Ptr<i32>) {
    println!("x = {:?}, y = {}", load(x + arange(0, N)), 1);
}

#[kernel]
fn hexadecimal<T: Int, const N: usize>(x: Ptr<T>) {
    println!("x: 0x{:x}", load(x + arange(0, N)) - 1 as T);
}

#[kernel]
fn negative<const N: usize>(x: Ptr<i32>) {
    println!("x: {}", -load(x + arange(0, N)));
}

#[kernel]
fn cast<const N: usize>(x: Ptr<u8>) {
    println!("x: {}", load(x + arange(0, N)) as i32 + i32::MIN);
}

#[kernel]
fn plane<const M: usize, const N: usize>(x: Ptr<i32>) {
    println!("x: {}", load(x + arange(0, M)[(.., None)] * N + arange(0, N)));
}

/// Numbers from 0 on, as far as the dtype counts.
fn numbers<T: Element>(count: usize) -> Vec<T> {
    (0..count).map(|i| T::from_f64((i % 100) as f64)).collect()
}

/// Calls a macro with the dtypes that Triton's test prints.
macro_rules! with_dtypes {
    ($each:ident) => {
        $each!(i8 u8 i16 i32 i64 f16 f32 f64)
    };
}

/// Runs the kernel of a case; its process then ends, and has printed.
pub fn print(name: &str, on: &str) -> Outcome {
    let device = if on == "gpu" { Device::cuda(0)? } else { Device::cpu() };
    let x = device.upload(&numbers::<i32>(MANY))?;
    macro_rules! of_dtypes {
        ($($t:ident)*) => {$(
            if name == concat!("elements ", stringify!($t)) {
                elements::<$t, FEW>(&device.upload(&numbers::<$t>(FEW))?).grid(1).launch(&device)?;
            }
            if name == concat!("scalar ", stringify!($t)) {
                scalar(&device.upload(&[<$t as Element>::from_f64(42.0)])?).grid(1).launch(&device)?;
            }
        )*};
    }
    with_dtypes!(of_dtypes);
    match name {
        "print" => elements::<i32, FEW>(&x).grid(1).launch(&device)?,
        "a constexpr" => texts::<FEW, 2>().grid(1).launch(&device)?,
        "no text" => texts::<FEW, 0>().grid(1).launch(&device)?,
        "no argument" => texts::<FEW, 1>().grid(1).launch(&device)?,
        "a large tile" => elements::<i32, MANY>(&x).grid(1).launch(&device)?,
        "several" => several::<FEW>(&x).grid(1).launch(&device)?,
        "several, {:?}" => debug::<FEW>(&x).grid(1).launch(&device)?,
        "hexadecimal i16" => hexadecimal::<i16, FEW>(&device.upload(&numbers(FEW))?).grid(1).launch(&device)?,
        "hexadecimal i32" => hexadecimal::<i32, FEW>(&x).grid(1).launch(&device)?,
        "hexadecimal i64" => hexadecimal::<i64, FEW>(&device.upload(&numbers(FEW))?).grid(1).launch(&device)?,
        "negative" => negative::<FEW>(&x).grid(1).launch(&device)?,
        "u32" => elements::<u32, FEW>(&device.upload(&large())?).grid(1).launch(&device)?,
        "a cast" => cast::<FEW>(&device.upload(&numbers(FEW))?).grid(1).launch(&device)?,
        "two axes" => plane::<8, 16>(&x).grid(1).launch(&device)?,
        _ => {}
    }
    Ok(device.synchronize()?)
}

/// Numbers that are none of `i32`.
fn large() -> Vec<u32> {
    (0..FEW as u32).map(|i| i + (1 << 31)).collect()
}

/// A case prints these lines, in any order.
fn prints(row: &mut Row, name: impl Into<String>, lines: Vec<String>) {
    let name = name.into();
    let mut wanted: Vec<String> = lines.into_iter().map(|line| format!("program (0, 0, 0){line}")).collect();
    wanted.sort_unstable();
    row.case(name.clone(), move |device| {
        let on = if device.target().is_some() { "gpu" } else { "cpu" };
        let child = Command::new(std::env::current_exe()?).args([PRINTING, &name, on]).output()?;
        let text = String::from_utf8_lossy(&child.stdout);
        let mut lines: Vec<&str> = text.lines().filter(|line| line.starts_with("program (")).collect();
        lines.sort_unstable();
        let same = child.status.success() && lines == wanted;
        if same { Ok(()) } else { Err(Failure(format!("{text}\n{}", String::from_utf8_lossy(&child.stderr)))) }
    });
}

fn printed() -> Row {
    let mut row = Row::new("C89", "test_print")
        .remarks(
            "lines begin with the program and the index in our own form; a constexpr is printed when the kernel runs; \
             pointers have no address",
        )
        .elsewhere(1, "`kernel-macros/tests/messages/statements.txt` (a pointer)");
    let of = |count: usize, value: &dyn Fn(usize) -> String| -> Vec<String> {
        (0..count).map(|i| format!(" [{i}]: {}", value(i))).collect()
    };
    let number = |i: usize| format!("x: {}", i % 100);
    macro_rules! of_dtypes {
        ($($t:ident)*) => {$(
            prints(&mut row, concat!("elements ", stringify!($t)), of(FEW, &number));
            prints(&mut row, concat!("scalar ", stringify!($t)), vec![": x: 42".to_string()]);
        )*};
    }
    with_dtypes!(of_dtypes);
    prints(&mut row, "print", of(FEW, &number));
    prints(&mut row, "a constexpr", vec![format!(": N = {FEW}")]);
    prints(&mut row, "no text", vec![": ".to_string()]);
    prints(&mut row, "no argument", vec![": no arg".to_string()]);
    prints(&mut row, "a large tile", of(MANY, &number));
    prints(&mut row, "several", of(FEW, &|i| format!("{}, 1", i % 100)));
    prints(&mut row, "several, {:?}", of(FEW, &|i| format!("x = {}, y = 1", i % 100)));
    prints(&mut row, "hexadecimal i16", of(FEW, &|i| format!("x: 0x{:x}", (i % 100) as i16 - 1)));
    prints(&mut row, "hexadecimal i32", of(FEW, &|i| format!("x: 0x{:x}", (i % 100) as i32 - 1)));
    prints(&mut row, "hexadecimal i64", of(FEW, &|i| format!("x: 0x{:x}", (i % 100) as i64 - 1)));
    prints(&mut row, "negative", of(FEW, &|i| format!("x: {}", -((i % 100) as i32))));
    prints(&mut row, "u32", of(FEW, &|i| format!("x: {}", i as u32 + (1 << 31))));
    prints(&mut row, "a cast", of(FEW, &|i| format!("x: {}", (i % 100) as i32 + i32::MIN)));
    let plane = (0..8).flat_map(|i| (0..16).map(move |j| format!(" [{i}, {j}]: x: {}", (i * 16 + j) % 100)));
    prints(&mut row, "two axes", plane.collect());
    row
}
