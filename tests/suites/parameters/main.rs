//! What a kernel is given, and what it knows of it when it is compiled, on every device.

mod constexprs;
mod defaults;
mod dtypes;
mod in_place;
mod machine;
mod named;
mod optional;

/// What needs a GPU needs none here.
#[test]
fn parameters_arrive_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Settings, run_again};
    run_again(&Settings::default()).called("cuLaunchKernelEx", 50);
}
