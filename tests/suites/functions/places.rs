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
        faults(&error, "src/functions.rs", line_with(other, "static_assert!"));
        let text = error.to_string();
        assert!(text.contains("static_assert!(N % 2 == 0);"), "no snippet in {text}");
    });
}
