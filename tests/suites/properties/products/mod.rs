//! Random products, of every dtype and form, against sums of whole numbers that are exact in any order.
//!
//! The kernels are written as users write them: factors by pointers with masks, by pointers that move, by descriptors,
//! in one tile per program and in persistent programs whose warps are divided, with epilogues, products of products,
//! factors that are used twice. Which of these, the dtypes, the tiles, the sizes, warps and stages are random. All give
//! the same numbers: the kernel in the interpreter, placed for two generations of GPUs with copies as late as their
//! waits allow and faults where nothing orders accesses, and on the GPU, with random delays too.

mod kernels;
mod recipe;

use kernel_codegen::Options;
use kernel_core::interp::{Fault, HostBuffer, HostScalar, run_ordered, run_with_tensors};
use kernel_core::ir::{Bound, Placed};
use kernel_core::text;
use proptest::prelude::*;
use tilewright::{Error, Target};
use tilewright_tests::case::from_host;
use tilewright_tests::data::to_f64;
use tilewright_tests::devices::gpu;

use super::few;
use kernels::{Given, Outcome, Task};
use recipe::{Form, Recipe, recipe};

/// The first element that is not as it must be.
fn compare(recipe: &Recipe, found: &[Vec<f64>; 2], want: &[Vec<f64>; 2], what: &str) -> Result<(), TestCaseError> {
    for (name, (found, want)) in ["product", "sums"].into_iter().zip(found.iter().zip(want)) {
        let wrong = found.iter().zip(want).position(|(found, want)| found != want);
        let shown = wrong.map(|at| format!("element {at} is {}, not {}", found[at], want[at]));
        prop_assert!(shown.is_none(), "{what}: {name}: {shown:?}\n{} {recipe:?}", recipe.dtypes().name);
    }
    Ok(())
}

/// Runs the kernel of a recipe in the interpreter.
fn interpret(
    recipe: &Recipe,
    mut given: Given,
    run: impl FnOnce(&mut Given, &[HostScalar], [u32; 3]) -> Result<(), Fault>,
) -> Result<[Vec<f64>; 2], Fault> {
    let scalars: Vec<HostScalar> = given.scalars.iter().map(|&number| number.into()).collect();
    run(&mut given, &scalars, [recipe.grid() as u32, 1, 1])?;
    let numbers = |buffer: &HostBuffer| {
        let data = from_host(buffer);
        let of = |bits: u64| match data.dtype.is_float() {
            true => to_f64(data.dtype, bits),
            false => tilewright_tests::data::to_int(data.dtype, bits) as f64,
        };
        data.bits.iter().map(|&bits| of(bits)).collect()
    };
    let sums = if recipe.form == Form::Chained { 3 } else { 4 };
    Ok([numbers(&given.buffers[2]), numbers(&given.buffers[sums])])
}

/// Whether the kernel asks for more slots than it has by default: then they may not fit into shared memory.
fn may_be_refused(recipe: &Recipe, error: &Error) -> bool {
    recipe.stages > Options::default().num_stages && matches!(error, Error::Resources { .. })
}

/// Compiles the kernel of a recipe, and runs it as it was bound and as it was placed.
fn check_without_gpu(recipe: &Recipe, target: Target) -> Result<(), TestCaseError> {
    let dtypes = recipe.dtypes();
    let numbers = recipe.numbers();
    let numbers = [&numbers[0][..], &numbers[1][..], &numbers[2][..]];
    let want = recipe.results(numbers);
    let fail = |what: &str| TestCaseError::fail(format!("{what}\n{} {recipe:?}", dtypes.name));
    let compiled = match (dtypes.call)(recipe, numbers, Task::Compile(target)) {
        Ok(Outcome::Code(compiled)) => compiled,
        Ok(Outcome::Results(_)) => return Ok(()),
        Err(error) if may_be_refused(recipe, &error) => return Ok(()),
        Err(error) => return Err(fail(&error.to_string())),
    };
    let parsed = |ir: &str| text::parse(ir).map_err(|error| fail(&format!("{error}\n{ir}")));
    let bound = Bound::new(parsed(compiled.bound_ir())?).map_err(|_| fail("not bound"))?;
    let found = interpret(recipe, (dtypes.given)(recipe, numbers), |given, scalars, grid| {
        run_with_tensors(&bound, &mut given.buffers, &given.tensors, scalars, grid)
    });
    compare(recipe, &found.map_err(|fault| fail(&fault.to_string()))?, &want, "bound")?;
    let placed = Placed::new(parsed(compiled.placed_ir())?).map_err(|_| fail("not placed"))?;
    let found = interpret(recipe, (dtypes.given)(recipe, numbers), |given, scalars, grid| {
        run_ordered(&placed, &mut given.buffers, &given.tensors, scalars, grid)
    });
    compare(recipe, &found.map_err(|fault| fail(&format!("{fault}\n{}", compiled.placed_ir())))?, &want, "placed")
}

#[test]
fn placed_products_are_exact() {
    let mut runner = proptest::test_runner::TestRunner::new(few(40));
    let outcome = runner.run(&recipe(), |recipe| {
        check_without_gpu(&recipe, Target::sm_90a())?;
        check_without_gpu(&recipe, Target::sm_80())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn products_on_the_gpu_are_exact() {
    let Some(device) = gpu() else { return };
    let mut runner = proptest::test_runner::TestRunner::new(few(100));
    let outcome = runner.run(&(recipe(), any::<u64>()), |(recipe, seed)| {
        let numbers = recipe.numbers();
        let numbers = [&numbers[0][..], &numbers[1][..], &numbers[2][..]];
        let want = recipe.results(numbers);
        for delays in [None, Some(seed)] {
            let outcome = (recipe.dtypes().call)(&recipe, numbers, Task::Launch(device, delays));
            let what = if delays.is_some() { "with delays" } else { "on the GPU" };
            match outcome {
                Ok(Outcome::Results(found)) => compare(&recipe, &found, &want, what)?,
                Ok(Outcome::Code(_)) => {}
                Err(error) if may_be_refused(&recipe, &error) => {}
                Err(error) => {
                    let shown = format!("{what}: {error}\n{} {recipe:?}", recipe.dtypes().name);
                    return Err(TestCaseError::fail(shown));
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
