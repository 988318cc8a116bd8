//! Kernels whose launches fail when their arguments say so.

use kernel_runtime::launch::{Call, Kernel, KernelSource, PtrArg, PtrMutArg, SourceFile};
use kernel_runtime::{Device, Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

const fn source(name: &'static str, ir: &'static str) -> KernelSource {
    KernelSource {
        name,
        module: "tests",
        files: &[SourceFile { name: "src/errors.rs", lines: &[] }],
        ir,
        num_warps: Some(1),
        num_stages: None,
        max_registers: None,
    }
}

/// `out[0] = x[at]`. The host sees whether that can fail.
static PICK: Kernel = Kernel::new(source(
    "pick",
    r#"kernel pick "src/errors.rs" safe generic {
        param %x x: ptr f32
        param %out out: ptr_mut f32
        param %at at: i64
        %p: *x = add_ptr %x, %at
        %a: f32 = load %p
        store %out, %a
        return
    }"#,
));

/// `out[0] = x[index[0]]`: it can fail whatever the host knows.
static CHOOSE: Kernel = Kernel::new(source(
    "choose",
    r#"kernel choose "src/errors.rs" safe generic {
        param %x x: ptr f32
        param %index index: ptr i64
        param %out out: ptr_mut f32
        %at: i64 = load %index
        %p: *x = add_ptr %x, %at
        %a: f32 = load %p
        store %out, %a
        return
    }"#,
));

/// `more[0] += x[0]; out[0] = x[0]`. It cannot fail.
static SPREAD: Kernel = Kernel::new(source(
    "spread",
    r#"kernel spread "src/errors.rs" safe generic {
        param %x x: ptr f32
        param %more more: ptr_mut f32
        param %out out: ptr_mut f32
        %a: f32 = load %x
        %b: f32 = load %more
        %sum: f32 = add %a, %b
        store %more, %sum
        store %out, %a
        return
    }"#,
));

/// Where the elements that do not exist begin.
pub const BEYOND: i64 = 1000;

/// Fails with the number `fails`, if there is one.
pub fn pick<'a>(x: impl PtrArg<'a, f32>, out: impl PtrMutArg<'a, f32>, fails: Option<i64>) -> Call<'a, ()> {
    Call::new(&PICK, ()).ptr(x).ptr_mut(out).scalar(fails.map_or(0, |number| BEYOND + number))
}

/// Fails with a number if `index` holds [`BEYOND`] and the number.
pub fn choose<'a>(x: impl PtrArg<'a, f32>, index: impl PtrArg<'a, i64>, out: impl PtrMutArg<'a, f32>) -> Call<'a, ()> {
    Call::new(&CHOOSE, ()).ptr(x).ptr(index).ptr_mut(out)
}

/// Loads from `x` and `more`, stores to `more` and `out`.
pub fn spread<'a>(
    x: impl PtrArg<'a, f32>,
    more: impl PtrMutArg<'a, f32>,
    out: impl PtrMutArg<'a, f32>,
) -> Call<'a, ()> {
    Call::new(&SPREAD, ()).ptr(x).ptr_mut(more).ptr_mut(out)
}

/// The number with which a launch has failed; `None` if none has.
pub fn number<T>(result: Result<T>) -> Option<i64> {
    match result {
        Ok(_) => None,
        Err(Error::OutOfBounds { offset, .. }) if offset >= BEYOND => Some(offset - BEYOND),
        Err(error) => panic!("an error that no launch of these tests has: {error}"),
    }
}

/// Runs a check on the CPU, and on the first GPU or says that it is skipped there.
pub fn on_devices(check: impl Fn(&Device) -> Result<()>) -> Result<()> {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    check(&Device::cpu())?;
    if Device::cuda_count() > 0 && cfg!(jit) {
        return check(&Device::cuda(0)?);
    }
    let skipped = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    println!("skipped: no CUDA device ({skipped} GPU checks of this run)");
    Ok(())
}
