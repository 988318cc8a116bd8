//! A launch of a kernel that has been launched before allocates nothing.

#[allow(dead_code, reason = "shared with the tests of launches")]
#[path = "launch/kernels.rs"]
mod kernels;

use kernel_runtime::launch::{Call, Constexprs, KernelSource, UnsafeCall};
use kernel_runtime::tune::Tuned;
use kernel_runtime::{Device, Result};
use kernels::{ADD, AddConsts, COUNT, add, count, leak};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
struct Counting;

// SAFETY: everything is the system's allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<R>(run: impl FnOnce() -> R) -> (usize, R) {
    let before = ALLOCATIONS.get();
    let result = run();
    (ALLOCATIONS.get() - before, result)
}

#[test]
fn the_allocator_counts() {
    assert_eq!(allocations(|| drop(Box::new(1))).0, 1);
    assert_eq!(allocations(|| 1).0, 0);
}

/// Making a call and dropping its arguments again costs no memory, on any device.
#[test]
fn a_call_allocates_nothing() -> Result<()> {
    let device = Device::cpu();
    let x = device.zeros::<f32>(64)?;
    let mut out = device.zeros::<f32>(64)?;
    let mut launch = || add::<_, 64>(&x, &x, &mut out, 64).grid(0).launch(&device);
    launch()?;
    let (count, launched) = allocations(launch);
    launched?;
    assert_eq!(count, 0);
    Ok(())
}

impl Constexprs for AddConsts {
    type Values = [i64; 1];

    const NAMES: &'static [&'static str] = &["BLOCK"];

    fn values(self) -> [i64; 1] {
        [self.BLOCK as i64]
    }

    fn from_values(values: &[i64]) -> Option<Self> {
        Some(AddConsts { BLOCK: usize::try_from(*values.first()?).ok()? })
    }
}

/// What a look into a table adds to a launch is a few instructions, in whatever build.
#[test]
fn a_look_into_a_table_allocates_nothing() -> Result<()> {
    let device = Device::cpu();
    let x = device.zeros::<f32>(64)?;
    let mut out = device.zeros::<f32>(64)?;
    let mut tuned = Tuned::new();
    tuned.insert(&[64], AddConsts { BLOCK: 128 }.into());
    let mut launch = || {
        let call = add::<_, 64>(&x, &x, &mut out, 64).tuned(&tuned, &[50]);
        assert_eq!(call.consts().BLOCK, 128);
        call.grid(0).launch(&device)
    };
    launch()?;
    let (count, launched) = allocations(launch);
    launched?;
    assert_eq!(count, 0);
    Ok(())
}

/// Makes two tensors, and doubles one.
const DOUBLE: KernelSource = KernelSource {
    name: "double",
    module: "tests",
    files: &[],
    ir: r#"kernel double "src/double.rs" safe generic {
        param %x x: ptr f32
        param %out out: ptr_mut f32
        param %n n: i32
        %one: i32 = const 1
        %from: desc x[64] = make_desc %x, %n, %one {block = [64], pads_with_nan = false, name = "from"}
        %to: desc out[64] = make_desc %out, %n, %one {block = [64], pads_with_nan = false, name = "to"}
        %zero: i32 = const 0
        %v: f32[64] = desc_load %from, %zero
        %w: f32[64] = add %v, %v
        desc_store %to, %w, %zero
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

#[test]
fn a_warm_launch_on_a_gpu_allocates_nothing() -> Result<()> {
    if Device::cuda_count() == 0 || !cfg!(jit) {
        println!("skipped: no CUDA device (allocations of a warm launch)");
        return Ok(());
    }
    let device = Device::cuda(0)?;
    let x = device.zeros::<f32>(64)?;
    let mut out = device.zeros::<f32>(64)?;
    let mut counter = device.zeros::<i32>(1)?;
    let counting = leak(COUNT);
    let mut source = ADD;
    source.ir = Box::leak(source.ir.replace("safe generic", "unsafe generic").into_boxed_str());
    let unchecked = leak(source);
    let mut safe = || add::<_, 64>(&x, &x, &mut out, 64).grid(1).launch(&device);
    let mut reporting = || count(counting, &mut counter, 1).grid(1).launch(&device);
    let mut out = device.zeros::<f32>(64)?;
    let mut without_checks = || {
        let call = UnsafeCall::new(unchecked, ()).dtype::<f32>().constant(64).ptr::<f32>(&x).ptr::<f32>(&x);
        // SAFETY: the mask keeps every access inside the buffers of 64 elements.
        unsafe { call.ptr_mut::<f32>(&mut out).scalar(64i32).grid(1).launch(&device) }
    };
    let making = leak(DOUBLE);
    let mut twice = device.zeros::<f32>(64)?;
    let mut making = || {
        let call = Call::new(making, ()).ptr::<f32>(&x).ptr_mut::<f32>(&mut twice);
        call.scalar(64i32).grid(1).launch(&device)
    };
    // SAFETY: the legacy default stream is always there.
    let theirs = || unsafe { Device::of_stream(0, 0) };
    let out = device.zeros::<f32>(64)?;
    let [from, to] = [x.as_view(), out.as_view()].map(|view| view.raw().address.get());
    let mut borrowed = || {
        let device = theirs()?;
        // SAFETY: the buffers outlive the launches, and nothing else uses them meanwhile.
        let (x, mut out) = unsafe { (device.borrow::<f32>(from, 64)?, device.borrow_mut(to, 64)?) };
        add::<_, 64>(&x, &x, &mut out, 64).grid(1).launch(&device)
    };
    let launches: [(&str, &mut dyn FnMut() -> Result<()>); 5] = [
        ("safe", &mut safe),
        ("with a record", &mut reporting),
        ("unsafe", &mut without_checks),
        ("with tensors", &mut making),
        ("borrowed", &mut borrowed),
    ];
    for (what, launch) in launches {
        launch()?;
        device.synchronize()?;
        let (count, launched) = allocations(|| (0..100).try_for_each(|_| launch()));
        launched?;
        assert_eq!(count, 0, "{what}");
        device.synchronize()?;
        theirs()?.synchronize()?;
    }
    Ok(())
}

/// What needs a GPU needs none here.
#[test]
#[cfg(all(jit, target_os = "linux"))]
fn launches_allocate_nothing_on_the_model_of_the_driver() {
    use tilewright_driver_model::{Settings, run_again};
    run_again(&Settings::default()).called("cuLaunchKernelEx", 500);
}
