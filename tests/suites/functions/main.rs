//! `#[device]` functions and closures with names, on every device: results against plain Rust, and code that is the same
//! as that of a kernel in one piece.

mod code;
mod constants;
mod methods;
mod names;
mod places;
mod results;
mod returns;
mod structs;

/// What needs a GPU needs none here.
#[test]
fn functions_work_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Settings, run_again};
    run_again(&Settings::default()).called("cuLaunchKernelEx", 30);
}
