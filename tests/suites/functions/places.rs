//! Errors of launches name the file and the line of the function.

use tilewright::Error;
use tilewright::prelude::*;
use tilewright_tests::devices::on_every_device;
use tilewright_tests::functions::{element, even};

/// Of a function in the kernel's own file: it is read out of bounds here.
#[device]
fn near<T: Num>(x: Ptr<T>, index: i32) -> T {
    load(x + index)
}

#[kernel]
fn far_away(x: Ptr<f32>, out: PtrMut<f32>, i: i32) {
    store(out, element(x, i));
}

#[kernel]
fn near_by(x: Ptr<f32>, out: PtrMut<f32>, i: i32) {
    store(out, near(x, i));
}

/// The line of a source that holds `text`.
fn line_with(source: &str, text: &str) -> u32 {
    source.lines().position(|line| line.contains(text)).map_or(0, |index| index as u32 + 1)
}

fn faults(error: &Error, file: &str, line: u32) {
    let text = error.to_string();
    assert!(text.contains(&format!("{file}:{line}:")), "{file}:{line} is not in {text}");
}

#[test]
fn faults_name_the_file_of_the_function() {
    let (own, other) = (include_str!("places.rs"), include_str!("../../src/functions.rs"));
    on_every_device(|device| {
        let run = |far: bool| -> Result<(), Error> {
            let (x, mut out) = (device.upload(&[1.0f32; 8])?, device.zeros::<f32>(1)?);
            if far {
                far_away(&x, &mut out, 1000).grid(1).launch(device)?;
            } else {
                near_by(&x, &mut out, 1000).grid(1).launch(device)?;
            }
            out.to_vec().map(drop)
        };
        let error = run(true).expect_err("an access out of bounds");
        faults(&error, "src/functions.rs", line_with(other, "load(x + index)"));
        let error = run(false).expect_err("an access out of bounds");
        faults(&error, "places.rs", line_with(own, "load(x + index)"));
    });
}

#[kernel]
fn odd<const N: usize>(out: PtrMut<i32>) {
    store(out, even(arange(0, N)));
}

#[test]
fn what_is_wrong_with_constexprs_shows_the_line_of_the_function() {
    let other = include_str!("../../src/functions.rs");
    on_every_device(|device| {
        let run = || -> Result<(), Error> {
            let mut out = device.zeros::<i32>(1)?;
            odd::<17>(&mut out).grid(1).launch(device)?;
            out.to_vec().map(drop)
        };
        let error = run().expect_err("17 is odd");
        faults(&error, "src/functions.rs", line_with(other, "static_assert!(N % 2 == 0)"));
        let text = error.to_string();
        assert!(text.contains("static_assert!(N % 2 == 0);"), "no snippet in {text}");
    });
}

/// Fails for what is not positive.
#[device]
fn checked(x: i32) -> i32 {
    assert!(x > 0, "not positive"); // may fail
    x
}

/// Calls functions of two files, in a loop and in a branch behind a return.
#[device]
fn nested(x: Ptr<f32>, i: i32, n: i32) -> f32 {
    if n > 1000 {
        return 0.0;
    }
    let mut total = 0.0;
    let turns = checked(n); // called in front of the loop
    for _ in 0..turns {
        total += element(x, i); // called in a loop
    }
    total
}

#[kernel]
fn several(x: Ptr<f32>, out: PtrMut<f32>, i: i32, n: i32) {
    let first = near(x, 0); // never fails
    let scaled = |factor| factor * nested(x, i, n); // called in a closure
    let second = scaled(2.0); // called by the kernel
    store(out, first + second + near(x, 1));
}

/// What an error says of the calls that led to it: files and lines.
fn chain(error: &Error) -> Vec<(String, u32)> {
    error.calls().iter().map(|call| (call.file.to_string(), call.line)).collect()
}

#[test]
fn errors_name_the_calls_that_led_to_them() {
    let own = include_str!("places.rs");
    let other = include_str!("../../src/functions.rs");
    let file = file!().to_string();
    let at = |text: &str| (file.clone(), line_with(own, text));
    on_every_device(|device| {
        let run = |i: i32, n: i32| -> Result<(), Error> {
            let (x, mut out) = (device.upload(&[1.0f32; 8])?, device.zeros::<f32>(1)?);
            several(&x, &mut out, i, n).grid(1).launch(device)?;
            out.to_vec().map(drop)
        };
        assert!(run(7, 2).is_ok());
        let error = run(2000, 2).expect_err("an access out of bounds");
        faults(&error, "src/functions.rs", line_with(other, "load(x + index)"));
        let outer = [at("// called in a closure"), at("// called by the kernel")];
        assert_eq!(chain(&error), [&[at("// called in a loop")], outer.as_slice()].concat());
        let lines = error.to_string().matches("\n  called at ").count();
        assert_eq!(lines, 3, "{error}");
        let error = run(0, -1).expect_err("a failed assertion");
        faults(&error, "places.rs", line_with(own, "// may fail"));
        assert_eq!(chain(&error), [&[at("// called in front of the loop")], outer.as_slice()].concat());
    });
}

#[test]
fn what_is_wrong_with_constexprs_names_the_calls_that_led_there() {
    on_every_device(|device| {
        let mut out = device.zeros::<i32>(1).expect("room for a number");
        let error = odd::<17>(&mut out).grid(1).launch(device).expect_err("17 is odd").to_string();
        let line = line_with(include_str!("places.rs"), "store(out, even(");
        assert!(error.contains(&format!("= note: called at {}:{line}:", file!())), "{error}");
    });
}
