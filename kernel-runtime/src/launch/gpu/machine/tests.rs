//! Where code comes from, with drivers that exist here only, and with NVIDIA's assembler where there is one.

use super::super::super::kernel::Kernel;
use super::super::stored::machines::Machines;
use super::super::tests::COPY;
use super::super::variant::Variant;
use super::assembler::{Assembler, choose};
use super::ptxas::Ptxas;
use super::*;
use crate::device::Device;
use crate::error::Error;
use kernel_archive::Cache;
use kernel_core::backend::nvidia::{Explain, Usage};
use std::cell::RefCell;
use std::path::PathBuf;

/// PTX that the linker makes as the compiler does.
const PLAIN: &str =
    ".version 8.0\n.target sm_90a\n.address_size 64\n\n\t// add\n.visible .entry add(\n)\n{\n\tret;\n}\n";

/// A driver that notes what it is asked for. Code spills as many bytes as a comment of its PTX says.
#[derive(Default)]
struct Fake {
    /// What it does not load: machine code of these makers.
    refuses: Vec<&'static str>,
    /// Whether its linker works.
    links: bool,
    calls: RefCell<Vec<String>>,
}

fn refused(call: &'static str) -> Error {
    Error::Driver { call, code: 209, name: "CUDA_ERROR_NO_BINARY_FOR_GPU".into(), message: "no".into() }
}

fn spilled(text: &str) -> u32 {
    text.split("spills ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

impl Driver for Fake {
    /// What was loaded, and what it spills.
    type Loaded = (String, u32);

    fn load_machine(&self, machine: &Machine) -> Result<(String, u32)> {
        let maker = &machine.head.maker;
        self.calls.borrow_mut().push(format!("load code of {maker}"));
        match self.refuses.iter().any(|refused| maker.contains(refused)) {
            true => Err(refused("cuModuleLoadData")),
            false => Ok((format!("code of {maker}"), spilled(&String::from_utf8_lossy(&machine.image)))),
        }
    }

    fn compile(&self, ptx: &str, min_programs: Option<u32>) -> Result<(String, u32)> {
        self.calls.borrow_mut().push(format!("compile for {min_programs:?}"));
        Ok((format!("compiled for {min_programs:?}"), spilled(ptx)))
    }

    fn link(&self, ptx: &str) -> Result<(Vec<u8>, String)> {
        self.calls.borrow_mut().push("link".to_string());
        if self.links { Ok((ptx.into(), "linked".into())) } else { Err(refused("cuLinkComplete")) }
    }

    fn local_bytes(&self, loaded: &(String, u32)) -> u32 {
        loaded.1
    }
}

#[derive(Debug)]
struct Nothing;

impl Explain for Nothing {
    fn report(&self, _: Option<&Usage>) -> String {
        String::new()
    }
}

fn ptx(text: &str) -> Ptx {
    Ptx {
        entry: "add".into(),
        text: text.into(),
        shared_bytes: 0,
        num_warps: 4,
        min_programs: None,
        sets_registers: false,
        dependent_launch: false,
        abi: Vec::new(),
        report: Box::new(Nothing),
    }
}

fn machine(maker: &str) -> Machine {
    let head =
        MachineHead { capability: 90, maker: maker.into(), min_programs: None, local_bytes: 0, log: String::new() };
    Machine { head, image: b"\x7fELF".to_vec() }
}

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("tilewright-machine-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Folder(folder)
    }

    fn cache(&self) -> Cache {
        Cache::open(&self.0, 1 << 20).expect("a folder")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads, and gives what the driver was asked for.
fn calls(driver: &Fake, code: &Ptx, own: Option<&Machine>, shelf: &dyn Shelf) -> Vec<String> {
    load(driver, code, own, shelf).expect("loaded");
    driver.calls.take()
}

#[test]
fn what_is_linked_once_is_loaded_later() {
    let folder = Folder::new("later");
    let cache = folder.cache();
    let driver = Fake { links: true, ..Fake::default() };
    let ours = Machines::new(Some(&cache), "driver 1", 90, || true);
    assert_eq!(calls(&driver, &ptx(PLAIN), None, &ours), ["link", "load code of the linker of driver 1"]);
    assert_eq!(calls(&driver, &ptx(PLAIN), None, &ours), ["load code of the linker of driver 1"]);
    // Another driver, another GPU and other PTX have their own.
    let other = ptx(&PLAIN.replace("ret", "exit"));
    for (code, driver_name, capability) in
        [(&ptx(PLAIN), "driver 2", 90), (&ptx(PLAIN), "driver 1", 100), (&other, "driver 1", 90)]
    {
        let shelf = Machines::new(Some(&cache), driver_name, capability, || true);
        assert_eq!(calls(&driver, code, None, &shelf)[0], "link", "{driver_name}, {capability}");
    }
    assert_eq!(calls(&driver, &ptx(PLAIN), None, &Machines::new(None, "driver 1", 90, || true)), ["compile for None"]);
    assert_eq!(calls(&driver, &ptx(PLAIN), None, &Machines::new(Some(&cache), "", 90, || true)), ["compile for None"]);
}

/// Who compiles for the first time, or has a driver that keeps its code, does not wait for the linker; what is there is used.
#[test]
fn the_linker_is_asked_where_nothing_else_remembers() {
    let folder = Folder::new("remembers");
    let cache = folder.cache();
    let driver = Fake { links: true, ..Fake::default() };
    let shelf = |links| Machines::new(Some(&cache), "driver 1", 90, move || links);
    assert_eq!(calls(&driver, &ptx(PLAIN), None, &shelf(false)), ["compile for None"]);
    assert_eq!(calls(&driver, &ptx(PLAIN), None, &shelf(true))[0], "link");
    assert_eq!(calls(&driver, &ptx(PLAIN), None, &shelf(false)), ["load code of the linker of driver 1"]);
}

/// An entry of another GPU under the key of this one, as after a mistake with keys, is not used; nor is a damaged one.
#[test]
fn wrong_machine_code_is_a_miss() {
    let folder = Folder::new("wrong");
    let cache = folder.cache();
    let shelf = Machines::new(Some(&cache), "driver 1", 90, || true);
    let key = Machine::key(PLAIN, 90, "driver 1");
    let mut foreign = machine("somebody");
    foreign.head.capability = 80;
    for bytes in [foreign.encode(), b"something else".to_vec(), Vec::new()] {
        cache.put(key, &bytes).expect("written");
        assert!(shelf.find(PLAIN).is_none());
    }
    shelf.keep(PLAIN, &machine("somebody"));
    assert_eq!(shelf.find(PLAIN), Some(machine("somebody")));
}

#[test]
fn code_of_the_variant_comes_first_and_what_a_driver_refuses_is_compiled() {
    let folder = Folder::new("first");
    let cache = folder.cache();
    let shelf = Machines::new(Some(&cache), "driver 1", 90, || true);
    shelf.keep(PLAIN, &machine("a neighbour"));
    let own = machine("an archive");
    let driver = |refuses: &[&'static str]| Fake { refuses: refuses.to_vec(), links: true, ..Fake::default() };
    assert_eq!(calls(&driver(&[]), &ptx(PLAIN), Some(&own), &shelf), ["load code of an archive"]);
    let both = ["load code of an archive", "load code of a neighbour"];
    assert_eq!(calls(&driver(&["archive"]), &ptx(PLAIN), Some(&own), &shelf), both);
    let all = calls(&driver(&["archive", "neighbour"]), &ptx(PLAIN), Some(&own), &shelf);
    assert_eq!(all[2..], ["link", "load code of the linker of driver 1"]);
    assert_eq!(shelf.find(PLAIN).map(|found| found.head.maker), Some("the linker of driver 1".to_string()), "replaced");
    // Where nothing of its kind works, there is the compiler.
    let all = calls(&driver(&["archive", "linker"]), &ptx(PLAIN), Some(&own), &shelf);
    assert_eq!(all.last().map(String::as_str), Some("compile for None"));
    assert_eq!(
        calls(&Fake::default(), &ptx(&PLAIN.replace("ret", "trap")), None, &shelf),
        ["link", "compile for None"]
    );
}

/// The linker does not make the code of the compiler for kernels that have shared memory, set registers, or are several.
#[test]
fn the_linker_gets_what_it_makes_alike() {
    assert!(links_alike(&ptx(PLAIN)));
    for (from, to) in [
        ("\t// add", ".extern .shared .align 16 .b8 shared_memory[];"),
        ("ret;", "st.shared.b32 [%r1], %r2;\n\tret;"),
        ("ret;", "setmaxnreg.dec.sync.aligned.u32 40;\n\tret;"),
        ("\t// add", ".global .align 4 .b8 table[4];"),
        ("ret;", "call.uni other, ();\n\tret;"),
        ("ret;\n}", "ret;\n}\n.visible .entry other()\n{\n\tret;\n}"),
        (".visible .entry", ".func"),
    ] {
        let changed = PLAIN.replace(from, to);
        assert_ne!(changed, PLAIN);
        assert!(!links_alike(&ptx(&changed)), "{changed}");
    }
    assert!(!links_alike(&ptx("")));
}

/// As long as code spills, what it asks for is changed; the code that is kept says what it asks for.
#[test]
fn what_spills_least_is_kept() {
    let folder = Folder::new("spills");
    let cache = folder.cache();
    let shelf = Machines::new(Some(&cache), "driver 1", 90, || true);
    let text = PLAIN.replace("// add", "// spills 40 ").replace("\n)\n{", "\n)\n.reqntid 128\n.minnctapersm 2\n{");
    let code = Ptx { min_programs: Some(2), ..ptx(&text) };
    let driver = Fake { links: true, ..Fake::default() };
    assert_eq!(calls(&driver, &code, None, &shelf).len(), 6, "three are made and loaded");
    assert_eq!(shelf.find(&code.text).map(|found| found.head.local_bytes), Some(40));
    let few = Ptx { text: text.replace("spills 40", "spills 16"), ..code };
    assert_eq!(calls(&driver, &few, None, &shelf).len(), 2, "a few bytes are tolerated where there are two programs");
}

/// With NVIDIA's assembler, in the folder of the repository's tests or on the path.
fn assembler() -> Option<Ptxas> {
    let site = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".ptxas/site/nvidia");
    let installed = std::fs::read_dir(site).into_iter().flatten().flatten();
    let found = installed.map(|folder| folder.path().join("bin/ptxas")).find_map(|path| Ptxas::at(path).ok());
    let found = found.or_else(|| Ptxas::find().ok());
    if found.is_none() {
        eprintln!("skipped: no ptxas (`scripts/install-ptxas` fetches it; TILEWRIGHT_PTXAS names another)");
    }
    found
}

/// A variant of a kernel that copies.
fn copy_variant(target: Target) -> Variant {
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel::new(COPY)));
    let mut archive = crate::archive::ArchiveBuilder::new();
    archive.add(crate::launch::CompileRequest::<()>::new(kernel), &[target]).expect("compiled");
    let entry =
        kernel_archive::read(&archive.to_bytes()).ok().and_then(|mut entries| entries.pop()).expect("a variant");
    super::super::stored::read(kernel.definition(), entry).expect("it is sound")
}

#[test]
fn the_assembler_makes_code_for_a_gpu() {
    let Some(ptxas) = assembler() else { return };
    let made = ptxas.assemble(&ptx(PLAIN), Target::sm_90a(), 90).expect("assembled");
    assert!(made.image.starts_with(b"\x7fELF") && made.head.log.contains("sm_90a"), "{:?}", made.head);
    assert_eq!((made.head.capability, made.head.local_bytes, made.head.min_programs), (90, 0, None));
    let older = PLAIN.replace("sm_90a", "sm_80").replace(".version 8.0", ".version 7.5");
    let made = ptxas.assemble(&ptx(&older), Target::sm_80(), 86).expect("assembled");
    assert!(made.head.log.contains("sm_86"), "as the driver compiles for the GPU that there is: {:?}", made.head);
    let error = ptxas.assemble(&ptx(&PLAIN.replace("ret", "rest")), Target::sm_90a(), 90).expect_err("refused");
    assert!(error.to_string().contains("rest"), "{error}");
}

/// An archive that is built with an assembler has machine code, and a launch of such a variant is told so.
#[test]
fn archives_have_machine_code_where_there_is_an_assembler() -> Result<()> {
    let Some(ptxas) = assembler() else { return Ok(()) };
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel::new(COPY)));
    let mut archive = crate::archive::ArchiveBuilder::new();
    let request = || crate::launch::CompileRequest::<()>::new(kernel);
    archive.add(request(), &[Target::sm_80()])?;
    archive.machine_code(ptxas.clone()).add(request(), &[Target::sm_90a()])?;
    let entries = kernel_archive::read(&archive.to_bytes()).expect("an archive");
    let made = |target: &str| -> Vec<u32> {
        let of_target = entries.iter().filter(|entry| entry.head.identity.target == target);
        of_target.flat_map(|entry| &entry.machine).map(|machine| machine.head.capability).collect()
    };
    assert_eq!(
        (made("sm_80"), made("sm_90a")),
        (vec![], vec![90, 90]),
        "the fast one and the one that checks everything"
    );

    // Those of a file, such as one that was recorded, get what they lack.
    let path = std::env::temp_dir().join(format!("tilewright-machine-{}.twa", std::process::id()));
    archive.write(&path)?;
    let added = || -> Result<Vec<u8>> {
        let mut all = crate::archive::ArchiveBuilder::new();
        all.machine_code(ptxas.clone()).add_archive(&path).map(|all| all.to_bytes())
    };
    let bytes = added()?;
    std::fs::write(&path, "something else, that is long enough to have a header").expect("written");
    let refused = added().expect_err("refused").to_string();
    let _ = std::fs::remove_file(&path);
    let entries = kernel_archive::read(&bytes).expect("an archive");
    assert_eq!(entries.iter().map(|entry| entry.machine.len()).collect::<Vec<_>>(), [1; 4]);
    assert!(refused.contains("no archive of compiled kernels"), "{refused}");
    Ok(())
}

/// What a device asks for is what is there: code for another GPU of the same generation stays where it is.
#[test]
fn code_is_for_one_kind_of_gpu() {
    let shelf = |capability| Machines::new(None, "driver 1", capability, || true);
    assert!(shelf(90).is_for(&machine("an archive")) && !shelf(89).is_for(&machine("an archive")));
    assert_eq!(
        (gpu_name(Target::sm_90a(), 90), gpu_name(Target::sm_80(), 86)),
        ("sm_90a".to_string(), "sm_86".to_string())
    );
}

#[test]
fn assemblers_of_the_drivers_release_are_chosen() {
    let all = || [(12, 8), (13, 0), (13, 1)].map(Ptxas::of_release).into_iter();
    let chosen = |is_named, release| choose(all(), is_named, release).map(|ptxas| ptxas.release());
    assert_eq!((chosen(false, (13, 0)), chosen(false, (12, 9))), (Some((13, 0)), None));
    assert_eq!((chosen(true, (13, 0)), choose([].into_iter(), true, (13, 0))), (Some((12, 8)), None));
}

#[test]
fn variants_are_assembled_on_any_thread() {
    let Some(ptxas) = assembler() else { return };
    let (target, device) = (Target::sm_90a(), Device::cpu());
    let all = Assembler { ptxas, device, target, capability: 90, is_drivers: true };
    let variants = [(); 4].map(|()| copy_variant(target));
    std::thread::scope(|scope| {
        variants.iter().for_each(|variant| drop(scope.spawn(|| all.assemble(variant))));
    });
    let images: Vec<_> = variants.iter().map(|variant| variant.machine.get().map(|it| &it.image)).collect();
    assert!(images.iter().all(|image| image.is_some() && *image == images[0]), "the same PTX gives the same code");
    // What it does not make is left to the driver, whatever that says.
    let broken = copy_variant(target);
    let nowhere = Assembler { ptxas: Ptxas::of_release((13, 0)), ..all };
    nowhere.assemble(&broken);
    assert!(broken.machine.get().is_none());
}
