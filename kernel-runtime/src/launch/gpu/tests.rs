//! Tests of the GPU backend that need no GPU.

use super::super::cache::Cache;
use super::super::call::Call;
use super::super::definition::{KernelSource, SourceFile};
use super::super::spec::{ParamSpec, ParamSpecs, Tuning};
use super::*;
use crate::dtype::ElementType;
use crate::error::Access;
use crate::report_slot::LaunchRecord;
use crate::tensor::{TensorDesc, TensorDescMut};
use kernel_core::backend::nvidia::AbiParam;
use kernel_core::ir::{ParamId, Safety};
use std::mem::MaybeUninit;

/// `out[i] = x[i]` for `i < n`, and an assertion that `n` is positive. The store is inlined from another file.
pub(super) const COPY: KernelSource = KernelSource {
    name: "copy",
    module: "tests",
    files: &[SourceFile { name: "src/copy.rs", lines: &[] }],
    ir: r#"kernel copy "src/copy.rs" safe generic {
        file f1 = "dep/src/lib.rs"
        param %x x: ptr f32 @2:5+1
        param %out out: ptr_mut f32 @2:5+3
        param %n n: i32 @2:5+1
        %zero: i32 = const 0
        %positive: bool = cmp.gt %n, %zero
        assert %positive {message = "n is positive"} @3:5+10
        %lanes: i32[128] = arange {lo = 0, hi = 128} @4:5+10
        %ns: i32[128] = splat %n
        %mask: bool[128] = cmp.lt %lanes, %ns
        %xs: *x[128] = splat %x
        %xp: *x[128] = add_ptr %xs, %lanes
        %a: f32[128] = load %xp, %mask @5:13+10
        %outs: *out[128] = splat %out
        %outp: *out[128] = add_ptr %outs, %lanes
        store %outp, %a, %mask @f1:6:5+10
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

fn leak() -> &'static Kernel {
    Box::leak(Box::new(Kernel::new(COPY)))
}

fn params(len_divisible: bool) -> ParamSpecs {
    let len_divisor = if len_divisible { 16 } else { 1 };
    let buffer = |mutable| ParamSpec::Buffer { element: ElementType::F32, mutable, alignment: 16, len_divisor };
    let n = ParamSpec::Scalar { element: ElementType::I32, divisor: 1, one: false };
    ParamSpecs::from_iter([buffer(false), buffer(true), n])
}

fn compiled(kernel: &'static Kernel, len_divisible: bool, checks: Checks) -> Result<&'static Variant> {
    let params = params(len_divisible);
    let tuning = Tuning::default();
    let spec = Spec { dtypes: &[], constants: &[], params: &params, tuning, safety: Safety::Safe };
    variant(kernel, &spec, Target::sm_80(), checks)
}

#[test]
fn targets_have_numbers_of_their_own() {
    let numbers = Target::all().map(target_number);
    for (index, number) in numbers.iter().enumerate() {
        assert_eq!(numbers.iter().position(|other| other == number), Some(index));
        assert_eq!(number & ANY_LENGTHS, 0);
    }
}

#[test]
fn code_without_checks_per_lane_serves_all_lengths() -> Result<()> {
    let kernel = leak();
    let fast = compiled(kernel, true, Checks::AtLaunch)?;
    assert!(!fast.uses_lengths());
    assert!(std::ptr::eq(fast, compiled(kernel, false, Checks::AtLaunch)?));
    assert_eq!(kernel.compilations(), 1);
    let checked = compiled(kernel, true, Checks::EveryAccess)?;
    assert!(checked.uses_lengths());
    assert!(!std::ptr::eq(checked, compiled(kernel, false, Checks::EveryAccess)?));
    assert_eq!(kernel.compilations(), 3);
    Ok(())
}

#[test]
fn the_host_decides_which_variant_runs() -> Result<()> {
    let variant = compiled(leak(), false, Checks::AtLaunch)?;
    let device = Device::cpu();
    let x = device.zeros::<f32>(100)?;
    let holds = |n: i32, len: usize| -> Result<bool> {
        let mut out = device.zeros::<f32>(len)?;
        let call = Call::new(leak(), ()).ptr(&x).ptr_mut(&mut out).scalar(n);
        Ok(submit::conditions_hold(&variant.artifact.conditions, &call.invocation.args, [1, 1, 1]))
    };
    assert!(holds(100, 100)?);
    assert!(holds(50, 50)?);
    assert!(!holds(100, 99)?, "`out` is too short");
    assert!(!holds(101, 200)?, "`x` is too short");
    assert!(!holds(-5, 0)?, "no lane is active, but the assertion fails, which the other variant reports");
    Ok(())
}

#[test]
fn arguments_are_passed_in_the_order_of_the_code() -> Result<()> {
    let kernel = leak();
    let checked = compiled(kernel, false, Checks::EveryAccess)?;
    let device = Device::cpu();
    let x = device.zeros::<f32>(100)?;
    let mut out = device.zeros::<f32>(70)?;
    let (at_x, at_out) = (x.raw().address.get(), out.raw().address.get());
    let call = Call::new(kernel, ()).ptr(&x).ptr_mut(&mut out).scalar(-3i32);
    let args = call.invocation.args.as_slice();
    let values = {
        let value = |param| *submit::value_of(param, args, &0xabc0).expect("the launch has all parameters");
        let values: Vec<u64> = checked.artifact.code.abi.iter().map(value).collect();
        // What the driver reads is the same.
        let mut params = submit::Params::new();
        let packed = params.pack(kernel, &checked.artifact.code.abi, args, &0xabc0)?;
        let mut pointers = [const { MaybeUninit::uninit() }; plan::INLINE_PARAMS];
        let planned = plan::sources(&checked.artifact.code.abi);
        let planned = planned.pack(args, &0xabc0, &mut pointers).expect("nothing but words of arguments");
        assert_eq!((packed.len(), planned.len()), (values.len(), values.len()));
        for ((pointer, planned), value) in packed.iter().zip(planned).zip(&values) {
            // SAFETY: both point to a word of an argument.
            assert_eq!(unsafe { (pointer.cast::<u64>().read(), planned.cast::<u64>().read()) }, (*value, *value));
        }
        values
    };
    let expected: Vec<u64> = (checked.artifact.code.abi.iter())
        .map(|param| match param {
            AbiParam::Buffer(id) if id.index() == 0 => at_x,
            AbiParam::Buffer(_) => at_out,
            AbiParam::Scalar(..) => u64::from((-3i32) as u32),
            AbiParam::Length(id) if id.index() == 0 => 100,
            AbiParam::Length(_) => 70,
            AbiParam::ReportSlot => 0xabc0,
            AbiParam::TensorMap(_) | AbiParam::Shape(..) | AbiParam::Stride(..) => 0,
        })
        .collect();
    assert_eq!(values, expected);
    assert!(checked.artifact.code.abi.contains(&AbiParam::ReportSlot));
    assert!(checked.artifact.code.abi.contains(&AbiParam::Length(ParamId::new(1))));
    Ok(())
}

/// Copies a block of a matrix.
const SHIFT: KernelSource = KernelSource {
    name: "shift",
    module: "tests",
    files: &[SourceFile { name: "src/shift.rs", lines: &[] }],
    ir: r#"kernel shift "src/shift.rs" safe generic {
        param %x x: desc f32[4, 8] @2:5+1
        param %out out: desc_mut f32[4, 8] @2:5+3
        param %n n: i32 @2:5+1
        %zero: i32 = const 0
        %a: f32[4, 8] = desc_load %x, %n, %zero @3:5+10
        desc_store %out, %a, %zero, %zero @4:5+10
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

#[test]
fn tensors_are_passed_as_the_code_takes_them() -> Result<()> {
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel::new(SHIFT)));
    let device = Device::cpu();
    let x = device.zeros::<f32>(100)?;
    let mut out = device.zeros::<f32>(100)?;
    let (at_x, at_out) = (x.raw().address.get(), out.raw().address.get());
    let from = TensorDesc::with_strides(&x, [9, 7], [11, 1])?;
    let mut to = TensorDescMut::new(&mut out, [4, 8])?;
    let invocation = Call::new(kernel, ()).desc(&from).desc_mut(&mut to).scalar(2i32).invocation;
    let made =
        invocation.with_spec(Tuning::default(), |spec| variant(kernel, spec, Target::sm_80(), Checks::AtLaunch))?;
    assert!(made.artifact.conditions.is_empty() && made.reports.is_none(), "a descriptor is proof enough");
    let mut params = submit::Params::new();
    let packed = params.pack(kernel, &made.artifact.code.abi, &invocation.args, &0)?;
    assert_eq!(plan::sources(&made.artifact.code.abi), plan::Sources::default(), "shapes are no words of arguments");
    for (pointer, param) in packed.iter().zip(&made.artifact.code.abi) {
        let expected = match param {
            AbiParam::Buffer(id) if id.index() == 0 => at_x,
            AbiParam::Buffer(_) => at_out,
            AbiParam::Scalar(..) => 2,
            AbiParam::Shape(id, axis) => [[9, 7], [4, 8]][id.index()][usize::from(*axis)],
            AbiParam::Stride(id, axis) => [[11, 1], [8, 1]][id.index()][usize::from(*axis)],
            other => panic!("{other:?}"),
        };
        // SAFETY: it points to a word of an argument or of a tensor's layout.
        assert_eq!(unsafe { pointer.cast::<u64>().read() }, expected, "{param:?}");
    }
    let shapes = made.artifact.code.abi.iter().filter(|param| matches!(param, AbiParam::Shape(..))).count();
    assert_eq!(shapes, 4);
    Ok(())
}

/// What the hardware's copies need of a tensor is part of the key, so that each kind has its own code.
#[test]
fn variants_know_what_a_tensor_allows() -> Result<()> {
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel::new(SHIFT)));
    let device = Device::cpu();
    let x = device.zeros::<f32>(200)?;
    let mut out = device.zeros::<f32>(100)?;
    let mut key = |from: &TensorDesc<'_, f32, 2>| -> Result<Vec<u64>> {
        let mut to = TensorDescMut::new(&mut out, [4, 8])?;
        let invocation = Call::new(kernel, ()).desc(from).desc_mut(&mut to).scalar(3i32).invocation;
        let mut words = Words::default();
        invocation.key(&mut words, 7, Checks::AtLaunch);
        Ok(words.as_slice().to_vec())
    };
    let usual = key(&TensorDesc::new(&x, [8, 8])?)?;
    assert_eq!(usual, key(&TensorDesc::with_strides(&x, [4, 12], [16, 1])?)?, "sizes are no part of it");
    let others = [
        key(&TensorDesc::with_strides(&x, [4, 8], [9, 1])?)?,
        key(&TensorDesc::with_strides(&x, [4, 7], [8, 1])?)?,
        key(&TensorDesc::new(x.slice(1..)?, [4, 8])?)?,
        key(&TensorDesc::new(&x, [0, 8])?)?,
        key(&TensorDesc::new(&x, [8, 8])?.with_nan_padding())?,
    ];
    for (index, other) in others.iter().enumerate() {
        assert!(*other != usual && others[..index].iter().all(|before| before != other), "{index}");
    }
    Ok(())
}

/// Everything that a warm launch does before it comes to the driver.
#[test]
fn the_host_half_of_a_warm_launch_allocates_nothing() -> Result<()> {
    let kernel = leak();
    let device = Device::cpu();
    let x = device.zeros::<f32>(100)?;
    let mut out = device.zeros::<f32>(100)?;
    let fast = compiled(kernel, false, Checks::AtLaunch)?;
    let found: Cache<&'static Variant> = Cache::new();
    let (memo, sources, mut misses) = (Memo::default(), plan::sources(&fast.artifact.code.abi), 0);
    let mut launch = |n: i32| -> Result<bool> {
        let invocation = Call::new(kernel, ()).ptr(&x).ptr_mut(&mut out).scalar(n).invocation;
        let checks = Checks::AtLaunch;
        let digest = invocation.key_digest(7, checks);
        let variant = match found.get_hot(digest, |words| invocation.has_key(words, &invocation.args, 7, checks)) {
            Some(variant) => *variant,
            None => {
                misses += 1;
                let mut words = Words::default();
                invocation.key(&mut words, 7, checks);
                found.get_or_make(&Key::of(&words), || Ok(fast))?;
                *found.get_slow(digest, words.as_slice()).expect("it has been made")
            }
        };
        let artifact = &variant.artifact;
        let args = &invocation.args;
        let holds = memo.holds(args, [1, 1, 1]) || evaluate_conditions(&artifact.conditions, &memo, args, [1, 1, 1]);
        let mut pointers = [const { MaybeUninit::uninit() }; plan::INLINE_PARAMS];
        let packed = sources.pack(args, &0, &mut pointers).expect("nothing but words of arguments");
        assert_eq!(packed.len(), artifact.code.abi.len());
        let key = device.default_stream().key();
        let ledger = device.default_stream().ledger();
        assert!(!variant.loads.reads_suspect(args, ledger), "nothing has failed");
        assert!(args.iter().all(|arg| arg.is_at_once(key, device.context_number())), "all uses are on one stream");
        invocation.recycle();
        Ok(holds)
    };
    // The second has the facts of the first but for `n`, so its conditions are evaluated again.
    assert_eq!((launch(33)?, launch(35)?), (true, true));
    for (n, holds) in [(35, true), (37, true), (37, true), (101, false)] {
        let (allocations, launched) = crate::counting::allocations(|| launch(n));
        assert_eq!((allocations, launched?), (0, holds), "n = {n}");
    }
    assert_eq!(misses, 1, "only the first launch writes down its key");
    Ok(())
}

#[test]
fn records_become_errors_that_name_the_place() -> Result<()> {
    let checked = compiled(leak(), false, Checks::EveryAccess)?;
    let reports = checked.reports.clone().expect("the variant can fail");
    let errors: Vec<Error> = (0..checked.artifact.sites.len() as u32)
        .map(|site| {
            let (program_id, offset, len) = ([1, 2, 3], 77, 70);
            reports.error(&LaunchRecord { state: 1, site, program_id, offset, len, ..LaunchRecord::default() })
        })
        .collect();
    let bounds = |file: &str, line, column, access, argument: &str| Error::OutOfBounds {
        kernel: "copy".into(),
        file: file.into(),
        line,
        column,
        calls: Box::new([]),
        program_id: [1, 2, 3],
        offset: 77,
        len: 70,
        access,
        argument: argument.into(),
    };
    assert!(errors.contains(&bounds("src/copy.rs", 5, 13, Access::Load, "x")), "{errors:?}");
    assert!(errors.contains(&bounds("dep/src/lib.rs", 6, 5, Access::Store, "out")), "{errors:?}");
    assert!(errors.iter().any(|error| matches!(error, Error::AssertFailed { line: 3, message, .. }
        if &**message == "n is positive")));
    let garbage = LaunchRecord { state: 1, site: u32::MAX, ..LaunchRecord::default() };
    assert!(reports.error(&garbage).is_from_kernel(), "whatever a record holds, it is an error");
    Ok(())
}
