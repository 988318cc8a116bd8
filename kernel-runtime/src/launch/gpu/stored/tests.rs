//! From launches to files and back, without a GPU.

use super::super::super::call::Call;
use super::super::super::invocation::Invocation;
use super::super::super::kernel::Kernel;
use super::super::super::spec::{ParamSpec, ParamSpecs, Tuning};
use super::super::tests::COPY;
use super::*;
use crate::device::Device;
use crate::dtype::ElementType;
use crate::error::Error;
use crate::report_slot::LaunchRecord;
use kernel_archive::Cache;
use kernel_core::ir::Safety;
use std::path::{Path, PathBuf};

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("tilewright-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn leak(source: crate::launch::KernelSource) -> &'static Kernel {
    Box::leak(Box::new(Kernel::new(source)))
}

fn params(len_divisor: u32, divisor: u32) -> ParamSpecs {
    let buffer = |mutable| ParamSpec::Buffer { element: ElementType::F32, mutable, alignment: 16, len_divisor };
    let n = ParamSpec::Scalar { element: ElementType::I32, divisor, one: false };
    ParamSpecs::from_iter([buffer(false), buffer(true), n])
}

/// Gives what a launch with such parameters asks for.
fn with_wanted<R>(
    kernel: &'static Kernel,
    params: &ParamSpecs,
    checks: Checks,
    then: impl FnOnce(&Wanted<'_>) -> R,
) -> R {
    let spec = Spec { dtypes: &[], constants: &[], params, tuning: Tuning::default(), safety: Safety::Safe };
    then(&Wanted { kernel: kernel.definition(), spec: &spec, target: Target::sm_80(), checks })
}

fn compiled(wanted: &Wanted<'_>) -> Result<(Variant, Entry)> {
    let (variant, bound) = Variant::compile(wanted, Texts::Dropped)?;
    let maker = maker().expect("the tests have an LLVM");
    let entry = super::entry::write(wanted, &variant, &bound, maker).expect("all its places are in the text");
    Ok((variant, entry))
}

/// The errors that a variant can report, and one of a number that it cannot.
fn errors(variant: &Variant) -> Vec<String> {
    let error = |site| {
        let record = LaunchRecord { state: 1, site, ..LaunchRecord::default() };
        Some(variant.reports.as_ref()?.error(&record).to_string())
    };
    (0..variant.artifact.sites.len() as u32 + 1).filter_map(error).collect()
}

/// What a launch sees of a variant.
fn seen(variant: &Variant) -> String {
    let code = &variant.artifact.code;
    format!(
        "{:?}",
        (
            (&code.entry, &code.text, code.shared_bytes, code.num_warps, code.min_programs, code.sets_registers),
            (code.dependent_launch, &code.abi, code.report.report(None)),
            (variant.artifact.conditions.nodes(), variant.artifact.conditions.conditions()),
            (&variant.artifact.sites, variant.loads, variant.made.is_empty(), errors(variant)),
        )
    )
}

#[test]
fn what_comes_back_is_what_was_compiled() -> Result<()> {
    for checks in [Checks::AtLaunch, Checks::EveryAccess] {
        with_wanted(leak(COPY), &params(16, 16), checks, |wanted| -> Result<()> {
            let (variant, entry) = compiled(wanted)?;
            let read = kernel_archive::entry::decode(&kernel_archive::entry::encode(&entry)).expect("an entry");
            assert_eq!(read, entry);
            let back = super::entry::read(wanted.kernel, read).expect("a variant");
            assert_eq!(seen(&back), seen(&variant));
            Ok(())
        })?;
    }
    Ok(())
}

/// What a thread keeps while the driver works is there when the launch has waited for it, and is what is written otherwise;
/// machine code that a tuner gives the variant meanwhile is not part of it.
#[test]
fn what_is_kept_beside_the_driver_is_found() -> Result<()> {
    let folder = Folder::new("beside");
    let cache: &'static Cache = Box::leak(Box::new(Cache::open(&folder.0, 1 << 20).expect("a folder")));
    with_wanted(leak(COPY), &params(1, 1), Checks::EveryAccess, |wanted| -> Result<()> {
        let (variant, bound) = Variant::compile(wanted, Texts::Dropped)?;
        let expected = super::entry::write(wanted, &variant, &bound, maker().expect("an LLVM")).expect("an entry");
        let variant: &'static Variant = Box::leak(Box::new(variant));
        let (kernel, identity, maker) = (wanted.kernel, wanted.identity(), maker().expect("an LLVM"));
        variant.keeping.begin(move || {
            let entry = super::entry::without_machine_code(kernel, identity, variant, &bound, maker);
            shelf::keep_in(cache, &entry.expect("an entry"));
        });
        let head = kernel_archive::MachineHead {
            capability: 80,
            maker: "somebody".into(),
            min_programs: None,
            local_bytes: 0,
            log: String::new(),
        };
        drop(variant.machine.set(kernel_archive::Machine { head, image: Vec::new() }));
        variant.wait_until_kept();
        assert_eq!(shelf::find_in(cache, wanted), Some(expected));
        Ok(())
    })
}

/// A kernel whose lines have moved is found, and its errors name the lines where they are now.
#[test]
fn lines_may_move() -> Result<()> {
    let folder = Folder::new("lines");
    let cache = Cache::open(&folder.0, 1 << 20).expect("a folder");
    let params = params(1, 1);
    let before = with_wanted(leak(COPY), &params, Checks::EveryAccess, |wanted| -> Result<Variant> {
        let (variant, entry) = compiled(wanted)?;
        shelf::keep_in(&cache, &entry);
        Ok(variant)
    })?;
    let moved = COPY.ir.replace("@3:5+10", "@103:7+2").replace("@5:13", "@105:14").replace("dep/src", "other/src");
    let moved = crate::launch::KernelSource { ir: Box::leak(moved.into_boxed_str()), ..COPY };
    with_wanted(leak(moved), &params, Checks::EveryAccess, |wanted| {
        let found = shelf::find_in(&cache, wanted).expect("nothing but places has changed");
        let found = super::entry::read(wanted.kernel, found).expect("a variant");
        assert_eq!(found.artifact.code.text, before.artifact.code.text);
        let errors = errors(&found).join("\n");
        assert!(errors.contains("src/copy.rs:103:7") && errors.contains("src/copy.rs:105:14"), "{errors}");
        assert!(errors.contains("other/src/lib.rs:6:5") && !errors.contains(":3:5"), "{errors}");
    });
    let other = crate::launch::KernelSource { ir: Box::leak(COPY.ir.replace("hi = 128", "hi = 64").into()), ..COPY };
    let found = with_wanted(leak(other), &params, Checks::EveryAccess, |wanted| shelf::find_in(&cache, wanted));
    assert_eq!(found, None, "another kernel");
    Ok(())
}

/// Code that does not look at lengths is found for all of them, and code that does only for its own.
#[test]
fn lengths_matter_where_code_looks_at_them() -> Result<()> {
    let folder = Folder::new("lengths");
    let cache = Cache::open(&folder.0, 1 << 20).expect("a folder");
    let kernel = leak(COPY);
    let found = |len, checks| with_wanted(kernel, &params(len, 1), checks, |wanted| shelf::find_in(&cache, wanted));
    let keep = |len, checks| {
        with_wanted(kernel, &params(len, 1), checks, |wanted| -> Result<()> {
            shelf::keep_in(&cache, &compiled(wanted)?.1);
            Ok(())
        })
    };
    keep(16, Checks::AtLaunch)?;
    assert!(found(16, Checks::AtLaunch).is_some() && found(1, Checks::AtLaunch).is_some());
    assert!(found(1, Checks::EveryAccess).is_none());
    keep(1, Checks::EveryAccess)?;
    assert!(found(1, Checks::EveryAccess).is_some() && found(16, Checks::EveryAccess).is_none());
    keep(16, Checks::EveryAccess)?;
    let bytes = |len| found(len, Checks::EveryAccess).map(|entry| entry.head.identity);
    assert_ne!(bytes(1), bytes(16));
    Ok(())
}

/// Whatever happens to files of the cache, a launch finds the right variant or none.
#[test]
fn damaged_files_are_misses() -> Result<()> {
    let folder = Folder::new("damage");
    let cache = Cache::open(&folder.0, 1 << 20).expect("a folder");
    with_wanted(leak(COPY), &params(16, 16), Checks::AtLaunch, |wanted| -> Result<()> {
        let (_, entry) = compiled(wanted)?;
        shelf::keep_in(&cache, &entry);
        let path = only_file(&folder.0);
        let whole = std::fs::read(&path).expect("a file");
        let put = |bytes: &[u8]| std::fs::write(&path, bytes).expect("written");
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..2000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let at = (random >> 33) as usize % whole.len();
            let mut bytes = whole.clone();
            match round % 4 {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << (random >> 20 & 7),
                2 => bytes[at..].fill(0),
                _ => bytes.extend_from_within(at..),
            }
            put(&bytes);
            let found = shelf::find_in(&cache, wanted);
            // Zeros over zeros change nothing.
            assert_eq!(found.is_some(), bytes == whole, "round {round} at {at}");
        }
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder in its place");
        assert_eq!(shelf::find_in(&cache, wanted), None);
        shelf::keep_in(&cache, &entry);
        assert_eq!(shelf::find_in(&cache, wanted), None, "it cannot be replaced, which is no error");
        Ok(())
    })
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(folder).expect("a folder");
    let path = files.next().expect("a file").expect("a file").path();
    assert!(files.next().is_none(), "only one");
    path
}

/// An entry of another compiler under the key of this one, as after a mistake with keys, is not used.
#[test]
fn other_compilers_have_their_own() -> Result<()> {
    let folder = Folder::new("compilers");
    let cache = Cache::open(&folder.0, 1 << 20).expect("a folder");
    with_wanted(leak(COPY), &params(16, 16), Checks::AtLaunch, |wanted| -> Result<()> {
        let (_, mut entry) = compiled(wanted)?;
        let ours = entry.head.identity.key(&entry.head.maker.compiler);
        entry.head.maker.compiler = "another".into();
        shelf::keep_in(&cache, &entry);
        assert_eq!(shelf::find_in(&cache, wanted), None);
        cache.put(ours, &kernel_archive::entry::encode(&entry)).expect("written");
        assert_eq!(shelf::find_in(&cache, wanted), None);
        Ok(())
    })
}

#[test]
fn records_grow_and_replace_what_is_stale() -> Result<()> {
    let folder = Folder::new("record");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let path = folder.0.join("kernels.twa");
    let kernel = leak(COPY);
    let entry = |divisor| {
        with_wanted(kernel, &params(16, divisor), Checks::AtLaunch, |wanted| compiled(wanted).map(|(_, entry)| entry))
    };
    let (one, two): (Entry, Entry) = (entry(1)?, entry(16)?);
    for entry in [&one, &two, &one] {
        shelf::record_to(&path, entry).expect("written");
    }
    let read = || kernel_archive::read(&std::fs::read(&path).expect("a file")).expect("an archive");
    assert_eq!(read().len(), 2);
    let mut newer = one.clone();
    newer.head.maker.compiler = "the next one".into();
    shelf::record_to(&path, &newer).expect("written");
    assert!(read().len() == 2 && read().contains(&newer) && read().contains(&two));
    newer.head.maker.runtime = "the next one".into();
    shelf::record_to(&path, &newer).expect("written");
    assert_eq!(read(), [newer]);
    std::fs::write(&path, "precious").expect("written");
    assert!(shelf::record_to(&path, &one).is_err());
    assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), Some("precious"));
    Ok(())
}

/// Copies, under another name: archives are of the whole process.
fn shipped_kernel(name: &'static str) -> &'static Kernel {
    let ir = COPY.ir.replace("kernel copy", &format!("kernel {name}"));
    leak(crate::launch::KernelSource { name, ir: Box::leak(ir.into_boxed_str()), ..COPY })
}

#[test]
fn archives_serve_launches_of_which_more_is_known() -> Result<()> {
    let kernel = shipped_kernel("shipped_copy");
    let ship = |len, divisor, checks| {
        with_wanted(kernel, &params(len, divisor), checks, |wanted| -> Result<()> {
            let bytes = kernel_archive::write(&[compiled(wanted)?.1]);
            assert_eq!(crate::archive::add(Box::leak(bytes.into_boxed_slice()))?, 1);
            Ok(())
        })
    };
    ship(1, 1, Checks::EveryAccess)?;
    ship(16, 8, Checks::AtLaunch)?;
    let served = |len, divisor, checks| {
        with_wanted(kernel, &params(len, divisor), checks, |wanted| {
            less_special(wanted)?;
            let served = shipped::serving(wanted).expect("as it has just been").head.identity;
            Ok((served, shipped::exact(wanted).is_some()))
        })
    };
    assert!(served(1, 8, Checks::AtLaunch)?.1, "code that does not look at lengths serves all");
    assert!(!served(16, 16, Checks::AtLaunch)?.1 && !served(16, 16, Checks::EveryAccess)?.1, "not exactly");
    assert_eq!(served(16, 16, Checks::AtLaunch)?.0, served(1, 8, Checks::AtLaunch)?.0);
    let Err(Error::MissingCode { kernel: name, variant, line }) = served(16, 1, Checks::AtLaunch) else {
        panic!("nothing serves a launch of which less is known");
    };
    assert_eq!(&*name, "shipped_copy");
    // This program has a compiler, and is not told that it has none.
    assert_eq!(
        &*variant,
        "it needs shipped_copy() for sm_80: [f32 @16 %16, mut f32 @16 %16, i32], and its archives have 2 other variants of \
         this kernel; a launch would compile it"
    );
    assert_eq!(
        &*line,
        "archive.add(ShippedCopyConsts.request().assume(ShippedCopyAssumed { n: tilewright::launch::AssumedScalar::Unknown, \
         ..Default::default() }), &[Target::sm_80()])?;"
    );
    ship(1, 1, Checks::AtLaunch)?;
    let general = served(16, 1, Checks::AtLaunch)?.0;
    assert_ne!(served(16, 8, Checks::AtLaunch)?.0, general, "of those that serve, the one that knows most");
    Ok(())
}

#[test]
fn foreign_archives_are_refused() {
    for (bytes, expected) in [
        (&b"something else, that is long enough to have a header"[..], "no archive of compiled kernels"),
        (b"", "no archive"),
    ] {
        let error = crate::archive::add(bytes).expect_err("refused").to_string();
        assert!(error.starts_with("the embedded archive: ") && error.contains(expected), "{error}");
    }
    let error = crate::archive::load("/nowhere/kernels.twa").expect_err("refused").to_string();
    assert!(error.starts_with("the archive /nowhere/kernels.twa: "), "{error}");
    let other = with_wanted(leak(COPY), &params(16, 16), Checks::AtLaunch, |wanted| -> Result<Vec<u8>> {
        let mut entry = compiled(wanted)?.1;
        entry.head.maker.runtime = "0.0.9".into();
        Ok(kernel_archive::write(&[entry]))
    });
    let other: &'static [u8] = Box::leak(other.expect("compiled").into_boxed_slice());
    let error = crate::archive::add(other).expect_err("refused").to_string();
    assert!(error.contains("made by Tilewright 0.0.9, and this program has 0.1.0"), "{error}");
    let cut = &other[..other.len() - 1];
    assert!(crate::archive::add(cut).is_err_and(|error| error.to_string().contains("damaged")));
}

/// A variant of an embedded archive that is damaged counts as missing; of a file, the whole is refused.
#[test]
fn damaged_variants_of_shipped_archives_are_missing() -> Result<()> {
    let kernel = shipped_kernel("damaged_copy");
    let entry = |divisor| {
        with_wanted(kernel, &params(16, divisor), Checks::AtLaunch, |wanted| compiled(wanted).map(|(_, entry)| entry))
    };
    let entries = [entry(1)?, entry(16)?];
    let mut bytes = kernel_archive::write(&entries);
    // The last byte is one of the second entry's.
    *bytes.last_mut().expect("there are entries") ^= 1;
    let reader = kernel_archive::Reader::new(&bytes).expect("its index is whole");
    let keys = entries.each_ref().map(|entry| entry.head.identity.key(""));
    let whole = keys.map(|key| reader.get(key).is_ok());
    assert_eq!(whole.iter().filter(|whole| **whole).count(), 1);
    let folder = Folder::new("damaged");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let path = folder.0.join("kernels.twa");
    std::fs::write(&path, &bytes).expect("written");
    assert!(crate::archive::load(&path).is_err_and(|error| error.to_string().contains("damaged")));
    assert_eq!(crate::archive::add(Box::leak(bytes.into_boxed_slice()))?, 2);
    for (divisor, whole) in [1, 16].into_iter().zip(whole) {
        let found = with_wanted(kernel, &params(16, divisor), Checks::AtLaunch, shipped::exact);
        assert_eq!(found.is_some(), whole, "{divisor}");
    }
    assert_eq!(shipped::of_kernel("damaged_copy").len(), 1);
    Ok(())
}

/// What a request assumes is what a launch asks for.
#[test]
fn builders_make_what_launches_ask_for() -> Result<()> {
    let kernel = shipped_kernel("built_copy");
    let mut archive = crate::archive::ArchiveBuilder::new();
    archive.add(crate::launch::CompileRequest::<()>::new(kernel), &[Target::sm_80()])?;
    assert_eq!(archive.variants().count(), 2, "the fast one and the one that checks everything");
    crate::archive::add(Box::leak(archive.to_bytes().into_boxed_slice()))?;
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(64)?, device.zeros::<f32>(64)?);
    let invocation: Box<Invocation<'_>> = Call::new(kernel, ()).ptr(&x).ptr_mut(&mut out).scalar(64i32).invocation;
    let compiled = kernel.compilations();
    for checks in [Checks::AtLaunch, Checks::EveryAccess] {
        let made = invocation.with_spec(invocation.tuning()?, |spec| {
            let wanted = Wanted { kernel: kernel.definition(), spec, target: Target::sm_80(), checks };
            shipped::exact(&wanted).is_some()
        });
        assert!(made, "{checks:?}");
    }
    assert_eq!((compiled, kernel.compilations()), (2, 2));
    Ok(())
}

/// Copies `[m, n]` of rows that are `s` apart, by tensors that the kernel makes.
const TENSORS: &str = r#"kernel made_copy "src/copy.rs" safe generic {
    param %x x: ptr f32
    param %out out: ptr_mut f32
    param %m m: i32
    param %n n: i32
    param %s s: i32
    %one: i64 = const 1
    %from: desc x[4, 8] = make_desc %x, %m, %n, %s, %one {block = [4, 8], pads_with_nan = false, name = "from"} @7:9+4
    %to: desc out[4, 8] = make_desc %out, %m, %n, %s, %one {block = [4, 8], pads_with_nan = false, name = "to"} @8:9+2
    %zero: i32 = const 0
    %v: f32[4, 8] = desc_load %from, %zero, %zero
    desc_store %to, %v, %zero, %zero
    return
}"#;

/// Which tensors come of arguments, no request can say: one line adds what serves them all.
#[test]
fn what_a_request_adds_serves_tensors_of_all_kinds() -> Result<()> {
    let files = &[crate::launch::SourceFile { name: "src/copy.rs", lines: &[] }];
    let kernel = leak(crate::launch::KernelSource { name: "made_copy", ir: TENSORS, files, ..COPY });
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(1024)?, device.zeros::<f32>(1024)?);
    let mut shipped = |n: i32, s: i32| {
        let call = Call::new(kernel, ()).ptr(&x).ptr_mut(&mut out).scalar(31i32).scalar(n).scalar(s);
        call.invocation.shipped(Target::sm_90a())
    };
    let missing = shipped(31, 31).expect_err("nothing is shipped").to_string();
    assert!(missing.contains("rough tensors") && missing.contains("archive.add(MadeCopyConsts.request()"), "{missing}");
    let mut archive = crate::archive::ArchiveBuilder::new();
    let unknown = |kernel| {
        use crate::launch::{Assumed, AssumedBuffer, AssumedScalar, Assumes};
        #[derive(Clone, Copy, Debug, Default)]
        struct Unknown;
        impl Assumes for Unknown {
            fn of_params(&self) -> Vec<Assumed> {
                let (buffer, scalar) = (AssumedBuffer::UNKNOWN, AssumedScalar::Unknown);
                vec![buffer.into(), buffer.into(), scalar.into(), scalar.into(), scalar.into()]
            }
        }
        crate::launch::CompileRequest::<Unknown>::new(kernel).assume(Unknown)
    };
    archive.add(unknown(kernel), &[Target::sm_90a()])?;
    let rough = archive.variants().filter(|variant| variant.contains("rough tensors")).count();
    assert!(rough > 0 && 2 * rough == archive.variants().count(), "{:?}", archive.variants().collect::<Vec<_>>());
    crate::archive::add(Box::leak(archive.to_bytes().into_boxed_slice()))?;
    // Both tensors are smooth, none is, and none is as `n` is not the distance of rows.
    for (n, s, is_rough) in [(32, 32, false), (31, 31, true), (31, 33, true)] {
        let variants = shipped(n, s)?.variants;
        assert_eq!(variants[0].contains("rough tensors"), is_rough, "{n} of {s}: {variants:?}");
    }
    Ok(())
}
