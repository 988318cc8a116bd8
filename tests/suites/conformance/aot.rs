//! Kernels that are compiled ahead and come from archives: C100.
//!
//! Archives stay for the life of a process, so each case has a number of its own, a constexpr of the kernels. What happens
//! where nothing can be compiled is asked of a process that finds no LLVM: [`without_compiler`].

use std::path::{Path, PathBuf};
use std::process::Command;

use half::{bf16, f16};
use tilewright::archive::{self, ArchiveBuilder};
use tilewright::launch::{Alignment, AssumedBuffer, AssumedLength, AssumedScalar, Call, MaybeGrid, Target};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::products::{integers, multiplied};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![ahead()]
}

/// What turns the suite into [`without_compiler`].
pub const WITHOUT_COMPILER: &str = "--without-compiler";

/// `out[i] = x[i] + y[i]`
#[kernel]
fn added<T: Num, const BLOCK: usize, const CASE: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    static_assert!(CASE < 100);
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + i, load(x + i, mask = i < n) + load(y + i, mask = i < n), mask = i < n);
}

/// `c = a b`, of matrices in rows of these lengths.
#[kernel]
fn product<T: Float, const M: usize, const N: usize, const K: usize, const CASE: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    static_assert!(CASE < 100);
    let (i, j) = (program_id(0) * M + arange(0, M), program_id(1) * N + arange(0, N));
    let mut acc = zeros::<f32>([M, N]);
    for first in (0..k).step_by(K) {
        let inner = first + arange(0, K);
        let x = load(a + (i[(.., None)] * k + inner), mask = (i < m)[(.., None)] & (inner < k));
        let y = load(b + (inner[(.., None)] * n + j), mask = (inner < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + (i[(.., None)] * n + j), acc, mask = (i < m)[(.., None)] & (j < n));
}

/// The targets that archives are made for, and that of a device which none of them is.
fn targets(device: &Device) -> Vec<Target> {
    let mut targets = vec![Target::sm_80(), Target::sm_90a()];
    targets.extend(device.target().filter(|target| !targets.contains(target)));
    targets
}

const NOTHING: AssumedBuffer = AssumedBuffer::UNKNOWN;

/// Of the arguments of a product nothing is known.
const ANY_PRODUCT: ProductAssumed = ProductAssumed {
    a: NOTHING,
    b: NOTHING,
    c: NOTHING,
    m: AssumedScalar::Unknown,
    n: AssumedScalar::Unknown,
    k: AssumedScalar::Unknown,
};

/// A file that is gone when the case is over.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        File(std::env::temp_dir().join(format!("tilewright-conformance-{name}-{}.twa", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes an archive and loads it as a program does that ships one.
fn ship(archive: &ArchiveBuilder, name: &str) -> Result<usize, Failure> {
    let file = File::new(name);
    archive.write(&file.0)?;
    Ok(archive::load(&file.0)?)
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure(what())) }
}

/// What archives have for a launch: whether it is compiled for just that launch, and how many variants.
fn shipped<C, G: MaybeGrid>(call: &Call<'_, C, G>, target: Target) -> Result<(bool, usize), Failure> {
    let shipped = call.shipped(target)?;
    Ok((shipped.is_exact, shipped.variants.len()))
}

fn ahead() -> Row {
    let mut row = Row::new("C100", "test_aot: no specialisation, matmul linked, autotuned, no kernel available")
        .remarks("an archive stands for the files of C and their linker; it is made by a program or a `build.rs`")
        .elsewhere(13, "`kernel-runtime/src/launch/gpu/stored` and `inspect/tests/archives.rs`");
    no_specialisation::<f16>(&mut row, 0);
    no_specialisation::<bf16>(&mut row, 1);
    no_specialisation::<f32>(&mut row, 2);
    linked(&mut row);
    tuned(&mut row);
    elements::<f32>(&mut row, 20);
    elements::<f16>(&mut row, 21);
    elements::<i32>(&mut row, 22);
    elements::<u8>(&mut row, 23);
    elements::<i64>(&mut row, 24);
    missing(&mut row);
    files(&mut row);
    row
}

/// A product that takes nothing for granted serves every launch.
fn no_specialisation<T: Element + Float>(row: &mut Row, case: usize) {
    row.case(format!("no specialisation, {}", T::NAME), move |device| {
        let mut archive = ArchiveBuilder::new();
        let consts = ProductConsts { M: 32, N: 32, K: 32, CASE: case };
        archive.add(consts.request::<T>().assume(ANY_PRODUCT), &targets(device))?;
        ship(&archive, &format!("general-{case}"))?;
        for (m, n, k) in [(32, 32, 32), (64, 48, 80), (31, 33, 7), (1, 1, 1)] {
            launched::<T>(device, consts, (m, n, k), false)?;
        }
        Ok(())
    });
}

/// Multiplies matrices of this size: what archives have for it is compiled for just that, or not, and the result is right.
fn launched<T: Element + Float>(
    device: &Device,
    consts: ProductConsts,
    (m, n, k): (usize, usize, usize),
    exact: bool,
) -> Outcome {
    let mut random = Random::new(100);
    let ((a, factors), (b, others)) = (integers::<T>(&mut random, m * k), integers::<T>(&mut random, k * n));
    let (x, y, mut out) = (device.upload(&a)?, device.upload(&b)?, device.zeros::<f32>(m * n)?);
    let call = consts.call(&x, &y, &mut out, m as i32, n as i32, k as i32);
    for target in targets(device) {
        let (is_exact, variants) = shipped(&call, target)?;
        let what = || format!("{m} x {n} x {k} for {}: exact {is_exact}, {variants} variants", target.name());
        ensure(is_exact == exact && variants == 2, what)?;
    }
    call.grid((m.div_ceil(consts.M), n.div_ceil(consts.N))).launch(device)?;
    let product = multiplied(&factors, &others, [m, n, k]);
    equal(&out.to_vec()?, &product.into_iter().map(|sum| sum as f32).collect::<Vec<_>>())
}

/// Variants of one product that take more or less for granted: each launch gets its own, others the one that serves all.
fn linked(row: &mut Row) {
    let sixteen = AssumedBuffer::default();
    let [any, by16, one] = [AssumedScalar::Unknown, AssumedScalar::MultipleOf16, AssumedScalar::One];
    let facts: [(&'static str, ProductAssumed, (usize, usize, usize)); 4] = [
        (
            "16 divides all",
            ProductAssumed { a: sixteen, b: sixteen, c: sixteen, m: by16, n: by16, k: by16 },
            (64, 32, 48),
        ),
        (
            "16 divides columns and depth",
            ProductAssumed { a: sixteen, b: sixteen, c: sixteen, m: any, n: by16, k: by16 },
            (35, 32, 48),
        ),
        ("one row", ProductAssumed { a: sixteen, b: sixteen, c: sixteen, m: one, n: by16, k: by16 }, (1, 32, 48)),
        ("depth one", ProductAssumed { a: sixteen, b: sixteen, c: sixteen, m: by16, n: by16, k: one }, (64, 32, 1)),
    ];
    for (at, (name, assumed, size)) in facts.into_iter().enumerate() {
        row.case(format!("matmul linked, {name}"), move |device| {
            let mut archive = ArchiveBuilder::new();
            let consts = ProductConsts { M: 32, N: 32, K: 16, CASE: 10 + at };
            archive.add(consts.request::<f16>().assume(assumed), &targets(device))?;
            archive.add(consts.request::<f16>().assume(ANY_PRODUCT), &targets(device))?;
            ship(&archive, &format!("linked-{at}"))?;
            launched::<f16>(device, consts, size, true)?;
            launched::<f16>(device, consts, (33, 31, 5), false)
        });
    }
}

/// An archive of the configurations that a table may name.
fn tuned(row: &mut Row) {
    row.case("autotuned matmul", |device| {
        let configurations = [(16, 32, 16), (32, 32, 16), (32, 64, 32)];
        let consts = |(m, n, k)| ProductConsts { M: m, N: n, K: k, CASE: 15 };
        let mut archive = ArchiveBuilder::new();
        for configuration in configurations {
            archive.add(consts(configuration).request::<f16>().assume(ANY_PRODUCT), &targets(device))?;
        }
        ship(&archive, "tuned")?;
        for configuration in configurations {
            launched::<f16>(device, consts(configuration), (40, 72, 24), false)?;
        }
        let (x, mut out) = (device.zeros::<f16>(64)?, device.zeros::<f32>(64)?);
        let other = consts((64, 64, 32)).call(&x, &x, &mut out, 8, 8, 8).shipped(Target::sm_90a());
        match other.map_err(|error| error.to_string()) {
            Err(text) => ensure(text.contains("other variants of this kernel"), || text),
            Ok(other) => Err(Failure(format!("{other:?}"))),
        }
    });
}

/// What is known of arguments chooses the code, in the archive as at a launch.
fn elements<T: Element + Num>(row: &mut Row, case: usize) {
    for (at, (name, len, from)) in
        [("whole", 1024, 0), ("odd", 1000, 0), ("not aligned", 1024, 1)].into_iter().enumerate()
    {
        row.case(format!("the code of a launch, {}, {name}", T::NAME), move |device| {
            let consts = AddedConsts { BLOCK: 256, CASE: case + 10 * at };
            let by16 = len % 16 == 0;
            let buffer = AssumedBuffer {
                alignment: if from == 0 { Alignment::Bytes16 } else { Alignment::Element },
                len: if by16 { AssumedLength::MultipleOf16 } else { AssumedLength::MultipleOf8 },
            };
            let n = if by16 { AssumedScalar::MultipleOf16 } else { AssumedScalar::MultipleOf8 };
            let request = || consts.request::<T>().assume(AddedAssumed { x: buffer, y: buffer, out: buffer, n });
            let values: Vec<T> = (0..len + from).map(|i| T::from_int(i as i128 % 50)).collect();
            let (x, mut out) = (device.upload(&values)?, device.zeros::<T>(len + from)?);
            let call = consts.call(x.slice(from..)?, x.slice(from..)?, out.slice_mut(from..)?, len as i32);
            for target in targets(device) {
                let (own, launched) = (request().compile(target)?, call.compile(target)?);
                ensure(own.ptx() == launched.ptx(), || format!("{}\n{}", own.ptx(), launched.ptx()))?;
            }
            let mut archive = ArchiveBuilder::new();
            archive.add(request(), &targets(device))?;
            ship(&archive, &format!("elements-{}-{at}", T::NAME))?;
            for target in targets(device) {
                ensure(shipped(&call, target)?.0, || target.name().to_string())?;
            }
            call.grid(len.div_ceil(256)).launch(device)?;
            let sums: Vec<T> = values[from..].iter().map(|x| T::from_int(2 * x.to_int())).collect();
            equal(&out.to_vec()?[from..], &sums)
        });
    }
}

/// Launches that archives have nothing for: the error names the variant and the line that adds it.
fn missing(row: &mut Row) {
    row.host("no kernel available", || {
        let device = Device::cpu();
        let (x, mut out) = (device.zeros::<f32>(64)?, device.zeros::<f32>(64)?);
        let text = refused(AddedConsts { BLOCK: 64, CASE: 90 }.call(&x, &x, &mut out, 64), Target::sm_80())?;
        ensure(
            text.contains(
                "it needs added<f32>(64, 90) for sm_80: [f32 @16 %16, f32 @16 %16, mut f32 @16 %16, i32 %16]",
            ),
            || text.clone(),
        )?;
        let line = "archive.add(AddedConsts { BLOCK: 64, CASE: 90 }.request::<f32>(), &[Target::sm_80()])?;";
        ensure(text.contains(line), || text.clone())?;
        ensure(text.contains("; a launch would compile it;"), || text)
    });
    row.host("the line that adds what is missing", || {
        let device = Device::cpu();
        let (x, mut out) = (device.zeros::<f32>(75)?, device.zeros::<f32>(75)?);
        let consts = AddedConsts { BLOCK: 64, CASE: 91 };
        let text = refused(consts.call(&x, x.slice(1..)?, &mut out, 74), Target::sm_90a())?;
        let line = "archive.add(AddedConsts { BLOCK: 64, CASE: 91 }.request::<f32>().assume(AddedAssumed { \
                    x: AssumedBuffer { alignment: Alignment::Bytes16, len: AssumedLength::Unknown }, \
                    y: AssumedBuffer { alignment: Alignment::Bytes4, len: AssumedLength::Unknown }, \
                    out: AssumedBuffer { alignment: Alignment::Bytes16, len: AssumedLength::Unknown }, \
                    n: AssumedScalar::Unknown }), &[Target::sm_90a()])?;";
        let told = text.replace("tilewright::launch::", "");
        ensure(told.contains(line), || text.clone())?;
        // Just that line, as it would stand in the program that makes the archive, with shorter names.
        let mut archive = ArchiveBuilder::new();
        let assumed = AddedAssumed {
            x: AssumedBuffer { alignment: Alignment::Bytes16, len: AssumedLength::Unknown },
            y: AssumedBuffer { alignment: Alignment::Bytes4, len: AssumedLength::Unknown },
            out: AssumedBuffer { alignment: Alignment::Bytes16, len: AssumedLength::Unknown },
            n: AssumedScalar::Unknown,
        };
        archive.add(AddedConsts { BLOCK: 64, CASE: 91 }.request::<f32>().assume(assumed), &[Target::sm_90a()])?;
        ship(&archive, "missing")?;
        let call = consts.call(&x, x.slice(1..)?, &mut out, 74);
        ensure(shipped(&call, Target::sm_90a())?.0, || "not what the launch asks for".to_string())
    });
    for (name, consts, target) in [
        ("another target", AddedConsts { BLOCK: 64, CASE: 92 }, Target::sm_90a()),
        ("other constexprs", AddedConsts { BLOCK: 128, CASE: 92 }, Target::sm_80()),
    ] {
        row.host(format!("an archive for {name}"), move || {
            let mut archive = ArchiveBuilder::new();
            archive.add(AddedConsts { BLOCK: 64, CASE: 92 }.request::<f32>(), &[Target::sm_80()])?;
            ship(&archive, &format!("other-{}", consts.BLOCK))?;
            let device = Device::cpu();
            let (x, mut out) = (device.zeros::<f32>(64)?, device.zeros::<f32>(64)?);
            let text = refused(consts.call(&x, &x, &mut out, 64), target)?;
            ensure(text.contains(&format!("&[Target::{}()]", target.name())), || text.clone())?;
            ensure(text.contains("other variants of this kernel"), || text)
        });
    }
    row.case("a process without a compiler", |device| {
        let file = File::new(if device.is_cuda() { "process-gpu" } else { "process-cpu" });
        let mut archive = ArchiveBuilder::new();
        let consts = ProductConsts { M: 32, N: 32, K: 32, CASE: 93 };
        archive.add(consts.request::<f16>().assume(ANY_PRODUCT), &targets(device))?;
        archive.write(&file.0)?;
        let process = Command::new(std::env::current_exe()?)
            .args([WITHOUT_COMPILER.as_ref(), file.0.as_os_str()])
            .env("TILEWRIGHT_LLVM", "/nowhere/without/llvm")
            .env("TILEWRIGHT_CACHE", "off")
            .output()?;
        ensure(process.status.success(), || String::from_utf8_lossy(&process.stderr).into_owned())
    });
}

/// The error about a launch for which nothing is shipped.
fn refused<C, G: MaybeGrid>(call: Call<'_, C, G>, target: Target) -> Result<String, Failure> {
    match call.shipped(target) {
        Err(error @ Error::MissingCode { .. }) => Ok(error.to_string()),
        other => Err(Failure(format!("{other:?}"))),
    }
}

/// What a program does that has an archive and no compiler: launches that the archive serves, on the GPU if there is one, and
/// one that it does not.
pub fn without_compiler(path: &Path) -> Outcome {
    archive::load(path)?;
    let device = Device::best()?;
    let consts = ProductConsts { M: 32, N: 32, K: 32, CASE: 93 };
    for size in [(64, 48, 80), (31, 33, 7)] {
        launched::<f16>(&device, consts, size, false)?;
    }
    let (x, mut out) = (device.zeros::<f16>(64)?, device.zeros::<f32>(64)?);
    let compiled = consts.call(&x, &x, &mut out, 8, 8, 8).compile(Target::sm_90a());
    ensure(compiled.is_err(), || "this process can compile".to_string())?;
    let other = ProductConsts { M: 16, ..consts };
    let text = refused(other.call(&x, &x, &mut out, 8, 8, 8), Target::sm_90a())?;
    ensure(text.contains("request::<f16>()") && text.contains("M: 16"), || text.clone())?;
    ensure(text.contains("; this program cannot compile it;"), || text)?;
    match other.call(&x, &x, &mut out, 8, 8, 8).grid((1, 1)).launch(&device) {
        Err(Error::MissingCode { .. }) if device.is_cuda() => Ok(()),
        // The interpreter needs no code.
        Ok(()) if !device.is_cuda() => Ok(()),
        other => Err(Failure(format!("{other:?}"))),
    }
}

/// What archives say of themselves, and which are refused.
fn files(row: &mut Row) {
    row.host("variants by name", || {
        let mut archive = ArchiveBuilder::new();
        archive.add(AddedConsts { BLOCK: 64, CASE: 94 }.request::<f16>(), &[Target::sm_80(), Target::sm_90a()])?;
        let names: Vec<String> = archive.variants().collect();
        let of = |target| format!("added<f16>(64, 94) for {target}: [f16 @16");
        let counts =
            ["sm_80", "sm_90a"].map(|target| names.iter().filter(|name| name.starts_with(&of(target))).count());
        ensure(counts == [2, 2] && names.len() == 4, || names.join("\n"))
    });
    row.host("the same kernels, the same bytes", || {
        let bytes = || -> Result<Vec<u8>, Failure> {
            let mut archive = ArchiveBuilder::new();
            archive.add(AddedConsts { BLOCK: 64, CASE: 95 }.request::<i32>(), &[Target::sm_90a()])?;
            Ok(archive.to_bytes())
        };
        ensure(bytes()? == bytes()?, || "other bytes".to_string())
    });
    row.host("what is no archive", || {
        let file = File::new("foreign");
        std::fs::write(&file.0, "a text that is long enough to have the header of an archive")?;
        match archive::load(&file.0) {
            Err(error @ Error::Archive { .. }) => {
                ensure(error.to_string().contains("no archive of compiled kernels"), || error.to_string())
            }
            other => Err(Failure(format!("{other:?}"))),
        }
    });
    row.host("an assertion at compile time", || {
        let mut archive = ArchiveBuilder::new();
        match archive.add(AddedConsts { BLOCK: 64, CASE: 100 }.request::<f32>(), &[Target::sm_90a()]) {
            Err(Error::Compile { .. }) => Ok(()),
            other => Err(Failure(format!("{:?}", other.map(drop)))),
        }
    });
}
