//! Tests of shipped archives in builds with and without a compiler: the code that they hold was written by hand.

use super::super::super::definition::{KernelSource, SourceFile};
use super::super::super::kernel::Kernel;
use super::super::super::loads::Loads;
use super::super::super::made::Recipes;
use super::super::super::spec::{ParamSpec, ParamSpecs, Tuning};
use super::super::variant::{SiteFacts, Variant};
use super::*;
use crate::dtype::ElementType;
use crate::error::Error;
use crate::report_slot::LaunchRecord;
use kernel_core::backend::nvidia::{AbiParam, Explain, Options, Ptx, Usage};
use kernel_core::backend::{Artifact, LaunchConditions, Site, SiteKind};
use kernel_core::ir::{Generic, ParamId, Safety, Span};
use kernel_core::text;

/// Stores a constant, if `n` is positive.
const FILL: KernelSource = KernelSource {
    name: "shipped_fill",
    module: "tests",
    files: &[SourceFile { name: "src/fill.rs", lines: &[] }],
    ir: r#"kernel shipped_fill "" safe generic {
        const N: usize
        param %out out: ptr_mut i32 @2:5+3
        param %n n: i32 @2:5+1
        %zero: i32 = const 0
        %positive: bool = cmp.gt %n, %zero
        assert %positive {message = "n is positive"} @3:5+10
        store %out, %n @4:5+10
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

#[derive(Debug)]
struct Nothing;

impl Explain for Nothing {
    fn report(&self, _: Option<&Usage>) -> String {
        String::new()
    }
}

fn params(divisor: u32) -> ParamSpecs {
    let buffer = ParamSpec::Buffer { element: ElementType::I32, mutable: true, alignment: 16, len_divisor: 1 };
    ParamSpecs::from_iter([buffer, ParamSpec::Scalar { element: ElementType::I32, divisor, one: false }])
}

/// What a program with a compiler would have put into an archive.
fn entry(wanted: &Wanted<'_>, ptx: &str) -> Entry {
    let out = ParamId::new(0);
    let site = Site { span: Span::new(3, 5, 10), kind: SiteKind::Assert("n is positive".into()) };
    let code = Ptx {
        entry: "shipped_fill".into(),
        text: ptx.into(),
        shared_bytes: 0,
        num_warps: 4,
        min_programs: None,
        sets_registers: false,
        dependent_launch: false,
        abi: vec![AbiParam::Buffer(out), AbiParam::ReportSlot],
        report: Box::new(Nothing),
    };
    let conditions = LaunchConditions::default();
    let artifact = Artifact { code, conditions, sites: vec![site], stages: Vec::new(), timings: Timings::default() };
    let names = ["out", "n"].map(Box::from).into();
    let facts = SiteFacts { atomics: [false].into(), names };
    let generic = wanted.kernel.generic().expect("it parses");
    let made = Recipes::of(generic.func());
    let variant = Variant::new(wanted.kernel, artifact, Options::default(), facts, Loads::of(generic.func()), made);
    // Nothing but a text is made of the bound kernel.
    let bound = r#"kernel shipped_fill "" safe bound {
        return
    }"#;
    let bound = text::parse(bound).ok().and_then(|func| Bound::new(func).ok()).expect("it is bound");
    let maker = Maker { runtime: RUNTIME.to_string(), compiler: "a compiler elsewhere".to_string() };
    super::entry::write(wanted, &variant, &bound, maker).expect("its places are in the text")
}

#[test]
fn launches_run_what_was_compiled_elsewhere() {
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel::new(FILL)));
    assert!(kernel.generic().is_ok_and(|generic: &Generic| generic.func().params.len() == 2));
    let with = |divisor, constants: &[i64], then: &mut dyn FnMut(&Wanted<'_>)| {
        let params = params(divisor);
        let spec = Spec { dtypes: &[], constants, params: &params, tuning: Tuning::default(), safety: Safety::Safe };
        let checks = Checks::AtLaunch;
        then(&Wanted { kernel: kernel.definition(), spec: &spec, target: Target::sm_80(), checks });
    };
    let mut entries = Vec::new();
    with(1, &[64], &mut |wanted| entries.push(entry(wanted, "// knows nothing")));
    with(8, &[64], &mut |wanted| entries.push(entry(wanted, "// knows of 8")));
    let archive: &'static [u8] = Box::leak(kernel_archive::write(&entries).into_boxed_slice());
    assert_eq!(crate::archive::add(archive), Ok(2));

    let launch = |divisor, constants: &[i64]| {
        let mut found = Err(Error::Internal { message: "".into() });
        with(divisor, constants, &mut |wanted| {
            found = find_or_compile(wanted.kernel, wanted.spec, wanted.target, wanted.checks);
        });
        found
    };
    let text = |divisor| launch(divisor, &[64]).map(|variant| variant.artifact.code.text.clone());
    assert_eq!((text(1).as_deref(), text(8).as_deref()), (Ok("// knows nothing"), Ok("// knows of 8")));
    let reports = launch(8, &[64]).expect("it is there").reports.clone().expect("it can fail");
    let error = reports.error(&LaunchRecord { state: 1, ..LaunchRecord::default() }).to_string();
    assert!(error.starts_with("src/fill.rs:3:5: kernel `shipped_fill`: assertion failed"), "{error}");

    // Where there is a compiler, it makes what is missing.
    if compiler::is_available() {
        return;
    }
    assert_eq!(text(16).as_deref(), Ok("// knows of 8"), "of those that serve, the one that knows most");
    let error = launch(1, &[128]).err().expect("of this there is nothing").to_string();
    for expected in [
        "kernel `shipped_fill` has no compiled code for this launch",
        "it needs shipped_fill(128) for sm_80: [mut i32 @16, i32], and its archives have 2 other variants of this \
         kernel; this program cannot compile it; record a run of a program that compiles it",
        "archive.add(ShippedFillConsts { N: 128 }.request().assume(ShippedFillAssumed { out: \
         tilewright::launch::AssumedBuffer { alignment: tilewright::launch::Alignment::Bytes16, len: \
         tilewright::launch::AssumedLength::Unknown }, n: tilewright::launch::AssumedScalar::Unknown }), \
         &[Target::sm_80()])?;",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}
