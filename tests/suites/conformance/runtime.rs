//! Launches, and what is below the language.

use std::time::Duration;

use half::f16;
use tilewright::prelude::*;

use crate::elements::equal;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![variants(), launches(), layouts(), axes(), shared_memory()]
}

#[kernel]
fn scaled<T: Num, const N: usize, const TWICE: bool>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let i = program_id(0) * N + arange(0, N);
    let v = load(x + i, mask = i < n);
    store(out + i, if TWICE { v + v } else { v }, mask = i < n);
}

/// The code of a launch over `n` elements, of which the buffers' first are left out.
fn code(n: i32, first: usize, consts: ScaledConsts, warps: u32) -> Result<String, Failure> {
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f16>(1024)?, device.zeros::<f16>(1024)?);
    let (from, to) = (x.slice(first..)?, out.slice_mut(first..)?);
    Ok(consts.call(from, to, n).num_warps(warps).compile(Target::sm_90a())?.ptx().to_string())
}

fn differs(one: String, other: String, wanted: bool) -> Outcome {
    if (one != other) == wanted { Ok(()) } else { Err(Failure(format!("{one}\n{other}"))) }
}

fn variants() -> Row {
    const ONCE: ScaledConsts = ScaledConsts { N: 256, TWICE: false };
    let mut row = Row::new("C98", "test_cache: specialisation, options")
        .remarks("a kernel's code is part of the program: none becomes stale when a source changes")
        .elsewhere(5, "`kernel-runtime/tests/launch/main.rs`, `kernel-runtime/tests/allocations.rs`");
    row.host("the same arguments", || differs(code(512, 0, ONCE, 4)?, code(512, 0, ONCE, 4)?, false));
    row.host("other numbers of one kind", || differs(code(512, 0, ONCE, 4)?, code(1024, 0, ONCE, 4)?, false));
    row.host("numbers that 16 does not divide", || differs(code(512, 0, ONCE, 4)?, code(500, 0, ONCE, 4)?, true));
    row.host("buffers that are not aligned", || differs(code(512, 0, ONCE, 4)?, code(512, 1, ONCE, 4)?, true));
    row.host("constexprs", || {
        differs(code(512, 0, ONCE, 4)?, code(512, 0, ScaledConsts { TWICE: true, ..ONCE }, 4)?, true)
    });
    row.host("warps", || differs(code(512, 0, ONCE, 4)?, code(512, 0, ONCE, 8)?, true));
    row
}

fn launches() -> Row {
    let mut row = Row::new("C99", "test_launch: options, errors, arguments")
        .elsewhere(36, "`kernel-runtime/tests/launch/main.rs` and `kernel-runtime/tests/errors`");
    for (name, warps, programs) in
        [("one warp", 1, 4), ("many warps", 16, 4), ("no programs", 4, 0), ("too many programs", 4, 9)]
    {
        row.case(name, move |device| {
            let x: Vec<i32> = (0..1000).collect();
            let (buffer, mut out) = (device.upload(&x)?, device.zeros::<i32>(1000)?);
            let call = ScaledConsts { N: 256, TWICE: true }.call(&buffer, &mut out, 1000);
            let call = call.grid(programs).num_warps(warps);
            // Nothing stops a kernel on a GPU.
            let call = if device.is_cuda() { call } else { call.time_limit(Duration::from_secs(60)) };
            call.launch(device)?;
            equal(&out.to_vec()?, &x.iter().map(|x| if programs == 0 { 0 } else { 2 * x }).collect::<Vec<i32>>())
        });
    }
    for warps in [0, 3, 64] {
        row.case(format!("{warps} warps are refused"), move |device| {
            let (buffer, mut out) = (device.zeros::<i32>(64)?, device.zeros::<i32>(64)?);
            let call = ScaledConsts { N: 64, TWICE: true }.call(&buffer, &mut out, 64);
            match call.grid(1).num_warps(warps).launch(device) {
                Err(error) if error.to_string().contains("warps") => Ok(()),
                other => Err(Failure(format!("{other:?}"))),
            }
        });
    }
    row
}

fn layouts() -> Row {
    Row::new("C101", "LinearLayoutTest, LinearLayoutConversionsTest, SwizzleTest")
        .elsewhere(54, "`kernel-core/src/layout/tests`, bases as Triton prints them among them")
}

fn axes() -> Row {
    Row::new("C102", "test-alignment.mlir").elsewhere(107, "`kernel-codegen/src/analysis/tests.rs`")
}

fn shared_memory() -> Row {
    Row::new("C103", "test-membar.mlir, test-allocation.mlir")
        .elsewhere(52, "`passes/placed/membar`, `analysis/allocation.rs` and `tests` of `kernel-codegen`")
}
