//! Looking at kernels: what they are compiled for, and which variant a launch runs.

use tilewright::launch::{
    Alignment, AssumedBuffer, AssumedLength, AssumedScalar, AssumedTensor, ConditionFailure, LaunchVariant,
};
use tilewright::prelude::*;

#[kernel]
fn shifted<T: Num, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32, row: i32) {
    let i = program_id(0) * N + arange(0, N);
    store(out + i, load(x + program_id(1) * row + i, mask = i < n), mask = i < n);
}

/// How often an instruction stands in the code.
fn count(ptx: &str, instruction: &str) -> usize {
    ptx.matches(instruction).count()
}

/// What is known of the arguments decides how wide accesses are, as it does in launches.
#[test]
fn code_is_made_for_what_is_assumed() -> Result<(), Error> {
    let target = Target::sm_90a();
    let consts = ShiftedConsts { N: 1024 };
    let wide = |assumed: ShiftedAssumed| {
        let kernel = consts.request::<f32>().num_warps(4).assume(assumed).compile(target)?;
        Ok::<_, Error>((count(kernel.ptx(), "ld.global.nc.v4"), count(kernel.ptx(), "st.global.v4")))
    };
    let all = ShiftedAssumed::default();
    assert_eq!(wide(all)?, (2, 2));
    assert_eq!(wide(ShiftedAssumed { row: AssumedScalar::Unknown, ..all })?, (0, 2), "rows begin anywhere");
    assert_eq!(wide(ShiftedAssumed { row: AssumedScalar::MultipleOf8, ..all })?, (2, 2));
    assert_eq!(wide(ShiftedAssumed { row: AssumedScalar::One, ..all })?, (0, 2));
    assert_eq!(wide(ShiftedAssumed { n: AssumedScalar::Unknown, ..all })?, (0, 0), "so do masks end");
    let view = AssumedBuffer { alignment: Alignment::Bytes8, ..AssumedBuffer::default() };
    assert_eq!(wide(ShiftedAssumed { x: view, ..all })?, (0, 2));
    assert_eq!(wide(ShiftedAssumed { out: AssumedBuffer::UNKNOWN, ..all })?, (2, 0));
    // Without a word it is `compile`.
    let usual = consts.compile::<f32>(target)?;
    assert_eq!(consts.request::<f32>().compile(target)?.ptx(), usual.ptx());
    assert_eq!(usual.variant(), &LaunchVariant::Undecided);
    Ok(())
}

/// A launch and a request that assumes what the launch has give one code.
#[test]
fn assumptions_stand_for_arguments() -> Result<(), Error> {
    let device = Device::cpu();
    let target = Target::sm_80();
    let (x, mut out) = (device.zeros::<f32>(4096)?, device.zeros::<f32>(4096)?);
    for (n, row, of_n, of_row) in [
        (4096, 0, AssumedScalar::MultipleOf16, AssumedScalar::MultipleOf16),
        (4088, 1, AssumedScalar::MultipleOf8, AssumedScalar::One),
        (4001, 7, AssumedScalar::Unknown, AssumedScalar::Unknown),
    ] {
        let real = shifted::<f32, 1024>(&x, &mut out, n, row).num_warps(8).num_stages(2).compile(target)?;
        let assumed = ShiftedAssumed { n: of_n, row: of_row, ..Default::default() };
        let request = ShiftedConsts { N: 1024 }.request::<f32>().num_warps(8).num_stages(2).assume(assumed);
        assert_eq!(request.compile(target)?.ptx(), real.ptx(), "{n} {row}");
    }
    Ok(())
}

/// A request may ask for the variant that checks every access, where lengths decide how wide checks are.
#[test]
fn the_checked_variant_can_be_looked_at() -> Result<(), Error> {
    let target = Target::sm_90a();
    let request = || ShiftedConsts { N: 1024 }.request::<f32>().num_warps(4);
    let (fast, checked) = (request().compile(target)?, request().checked().compile(target)?);
    assert_eq!(fast.variant(), &LaunchVariant::Undecided);
    assert_eq!(checked.variant(), &LaunchVariant::Checked(Vec::new()));
    let says = |kernel: &tilewright::launch::CompiledKernel| {
        kernel.report().contains("\n  checks every access, as asked for\n")
    };
    assert!(says(&checked) && !says(&fast), "{}", checked.report());
    assert!(!fast.placed_ir().contains("check_bounds") && checked.placed_ir().contains("check_bounds"));
    assert!(count(checked.ptx(), "ld.global.nc.v4") > 0, "the length is a multiple of 16");
    let any = AssumedBuffer { len: AssumedLength::Unknown, ..AssumedBuffer::default() };
    let checked = request().checked().assume(ShiftedAssumed { x: any, ..Default::default() }).compile(target)?;
    assert_eq!(count(checked.ptx(), "ld.global.nc.v4"), 0);
    Ok(())
}

#[kernel]
fn halves(
    t: TensorDesc<f32, { [32, 32] }>,
    out: TensorDescMut<f32, { [32, 32] }>,
    by: Const<f32>,
    bias: Option<Ptr<f32>>,
) {
    let mut v = t.load([0, 0]) * by;
    if let Some(bias) = bias {
        v += load(bias + arange(0, 32));
    }
    out.store([0, 0], v);
}

#[test]
fn tensors_and_absent_arguments_are_assumed_too() -> Result<(), Error> {
    let target = Target::sm_90a();
    let of = |given: bool, assumed: HalvesAssumed| {
        let kernel = HalvesConsts {}.request(0.5, given).num_warps(4).assume(assumed).compile(target)?;
        Ok::<_, Error>((count(kernel.ptx(), "ld.global.nc.v4"), kernel.bound_ir().contains("param %bias bias: ptr")))
    };
    let usual = HalvesAssumed::default();
    let (with, without) = (of(true, usual)?, of(false, usual)?);
    assert!(with.0 > without.0 && without.0 > 0, "{with:?} {without:?}");
    assert_eq!(of(false, HalvesAssumed { t: AssumedTensor::Unknown, ..usual })?.0, 0);
    let anywhere = HalvesAssumed { bias: AssumedBuffer::UNKNOWN, ..usual };
    assert_eq!(of(true, anywhere)?.0, without.0, "a bias that begins anywhere is loaded in elements");
    assert_eq!(of(false, anywhere)?, without);
    Ok(())
}

/// Where the line of the source is on which `text` stands first.
fn line_of(text: &str) -> u32 {
    let source = include_str!("looking.rs");
    source.lines().zip(1..).find(|(line, _)| line.contains(text)).map_or(0, |(_, number)| number)
}

#[kernel]
fn divided<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32, columns: i32) {
    assert!(columns <= n, "as many columns");
    let i = program_id(0) * N + arange(0, N);
    let at = i / columns * columns + i % columns;
    store(out + i, load(x + at, mask = i < n));
}

/// A call with a grid says which variant a launch runs, and which condition fails where and why.
#[test]
fn calls_say_which_variant_a_launch_runs() -> Result<(), Error> {
    let device = Device::cpu();
    let target = Target::sm_90a();
    let (x, mut out) = (device.zeros::<f32>(1000)?, device.zeros::<f32>(2048)?);
    let mut variant = |n: i32, programs: u32| {
        let kernel = shifted::<f32, 1024>(&x, &mut out, n, 0).grid(programs).compile(target)?;
        let checks = kernel.placed_ir().contains("check_bounds");
        assert_eq!(checks, matches!(kernel.variant(), LaunchVariant::Checked(_)), "{:?}", kernel.variant());
        Ok::<_, Error>(kernel.variant().clone())
    };
    assert_eq!(variant(1000, 2)?, LaunchVariant::Fast);
    assert_eq!(variant(1000, 100)?, LaunchVariant::Fast, "programs beyond the end are masked");
    let LaunchVariant::Checked(failed) = variant(1001, 1)? else { panic!("`x` has 1000 elements") };
    let [failed] = failed.as_slice() else { panic!("{failed:?}") };
    let why = ConditionFailure::OutOfBounds { buffer: "x".into(), offsets: Some(0..=1000), len: 1000 };
    assert_eq!((failed.line, &failed.why), (line_of("store(out + i, load(x + program_id(1)"), &why));
    assert!(failed.file.ends_with("looking.rs"), "{failed}");
    let text = variant(1001, 1)?.to_string();
    assert!(text.starts_with("the variant that checks every access\n  "), "{text}");
    assert!(text.ends_with(": `x` has 1000 elements, and offsets are between 0 and 1000"), "{text}");
    let report = shifted::<f32, 1024>(&x, &mut out, 1001, 0).grid(1).compile(target)?.report().to_string();
    let said = report.lines().nth(1).unwrap_or_default();
    assert_eq!(said, format!("  checks every access: {failed}"), "{report}");
    // Without a grid nobody knows.
    let open = shifted::<f32, 1024>(&x, &mut out, 1001, 0).compile(target)?;
    assert_eq!(open.variant(), &LaunchVariant::Undecided);
    assert!(shifted::<f32, 1024>(&x, &mut out, 1, 0).grid((1, 1, 70_000)).compile(target).is_err(), "no such grid");
    Ok(())
}

#[test]
fn conditions_that_fail_say_why() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(1000)?, device.zeros::<f32>(1024)?);
    let mut failed = |n: i32, columns: i32| {
        let kernel = divided::<64>(&x, &mut out, n, columns).grid(16).compile(Target::sm_90a())?;
        Ok::<_, Error>(match kernel.variant() {
            LaunchVariant::Checked(failed) => failed.iter().map(|failed| (failed.line, failed.why.clone())).collect(),
            _ => Vec::new(),
        })
    };
    assert_eq!(failed(1000, 10)?, []);
    let too_large = ConditionFailure::TooLarge { values: Some(11..=11), limit: Some(10) };
    assert_eq!(failed(10, 11)?[0], (line_of("assert!(columns <= n"), too_large));
    let negative = ConditionFailure::Negative { values: Some(-3..=-3) };
    let all = failed(1000, -3)?;
    assert!(all.contains(&(line_of("let at = i / columns"), negative)), "{all:?}");
    Ok(())
}

/// Who has not said how many warps a program has is told what decides.
#[test]
fn the_report_says_what_decides_the_number_of_warps() -> Result<(), Error> {
    let target = Target::sm_90a();
    for (n, warps) in [(64, 4), (1024, 4), (2048, 8), (8192, 16)] {
        let report = ShiftedConsts { N: n }.compile::<f32>(target)?.report().to_string();
        let mut lines = report.lines();
        assert!(lines.next().is_some_and(|line| line.contains(&format!(": {warps} warps, "))), "{report}");
        let why = format!("  warps: the largest tile, of {n} elements, decides, as nobody has said how many");
        assert_eq!(lines.next(), Some(why.as_str()), "{report}");
        let report = ShiftedConsts { N: n }.request::<f32>().num_warps(2).compile(target)?.report().to_string();
        assert!(report.lines().next().is_some_and(|line| line.contains(": 2 warps, ")), "{report}");
        assert!(!report.contains("largest tile"), "{report}");
    }
    Ok(())
}
