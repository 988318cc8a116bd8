//! From a module to PTX: the machine, the verifier, the printer.

use std::cell::RefCell;
use std::rc::Rc;

use inkwell::OptimizationLevel;
use inkwell::context::{AsContextRef, Context};
use inkwell::module::Module;
use inkwell::targets::{CodeModel, FileType, RelocMode, Target, TargetMachine, TargetTriple};

use crate::diagnostics::Diagnostics;
use crate::error::{Error, LoadError};
use crate::fatal::Doing;
use crate::handle::Llvm;
use crate::stay::stay;

/// The target triple of every module.
pub const TRIPLE: &str = "nvptx64-nvidia-cuda";
/// How a data layout says that pointers to shared memory have 32 bits.
const SHORT_SHARED_POINTERS: &str = "p3:32:32";
/// Any processor does for reading the data layout; this one is in LLVM 22 and 23.
const PROBE: (&str, &str) = ("sm_80", "+ptx70");

/// A machine for `cpu` (such as `sm_90a`) with `features` (such as `+ptx80`: the version of the PTX
/// that is printed), at LLVM's highest optimisation level.
///
/// # Errors
///
/// [`Error::Machine`] if LLVM makes none. LLVM itself ignores names that it does not know, so a
/// machine is no proof that the name is right.
pub fn target_machine(_llvm: &Llvm, cpu: &str, features: &str) -> Result<TargetMachine, Error> {
    machine(cpu, features).map_err(|message| Error::Machine {
        cpu: cpu.to_string(),
        features: features.to_string(),
        message,
    })
}

/// [`target_machine`] of this thread: made once for each `cpu` with its `features` and kept, because making one takes a
/// twentieth of the time of compiling a small kernel.
///
/// # Errors
///
/// As [`target_machine`].
pub fn kept_machine(llvm: &Llvm, cpu: &str, features: &str) -> Result<Rc<TargetMachine>, Error> {
    /// A machine with the names that it was made for.
    type Kept = (String, String, Rc<TargetMachine>);
    /// Those of a thread.
    struct All(Vec<Kept>);
    impl Drop for All {
        fn drop(&mut self) {
            let _stay = stay();
            self.0.clear();
        }
    }
    thread_local! {
        static KEPT: RefCell<All> = const { RefCell::new(All(Vec::new())) };
    }
    let known = |kept: &All| kept.0.iter().find(|k| k.0 == cpu && k.1 == features).map(|k| k.2.clone());
    if let Some(machine) = KEPT.with_borrow(known) {
        return Ok(machine);
    }
    let machine = Rc::new(target_machine(llvm, cpu, features)?);
    KEPT.with_borrow_mut(|kept| kept.0.push((cpu.to_string(), features.to_string(), machine.clone())));
    Ok(machine)
}

/// [`target_machine`] with LLVM's bare message.
fn machine(cpu: &str, features: &str) -> Result<TargetMachine, String> {
    let triple = TargetTriple::create(TRIPLE);
    let target = Target::from_triple(&triple).map_err(|message| message.to_string())?;
    let (reloc, model) = (RelocMode::Default, CodeModel::Default);
    target
        .create_target_machine(&triple, cpu, features, OptimizationLevel::Default, reloc, model)
        .ok_or_else(|| "LLVM gave no reason".to_string())
}

/// Checks that machines have short shared-memory pointers, which proves that the options were set.
pub(crate) fn require_short_pointers(llvm: &Llvm) -> Result<(), LoadError> {
    let (path, version) = (llvm.path().to_path_buf(), llvm.version());
    let machine =
        machine(PROBE.0, PROBE.1).map_err(|message| LoadError::NoMachine { path: path.clone(), version, message })?;
    let layout = data_layout(&machine);
    if layout.split('-').any(|part| part == SHORT_SHARED_POINTERS) {
        Ok(())
    } else {
        Err(LoadError::LongPointers { path, version, layout })
    }
}

/// The data layout of a machine, as text.
pub fn data_layout(machine: &TargetMachine) -> String {
    machine.get_target_data().get_data_layout().as_str().to_string_lossy().into_owned()
}

/// An empty context, for the modules of one thread. Needing the [`Llvm`] keeps it from being made
/// before LLVM is loaded.
pub fn new_context(_llvm: &Llvm) -> Context {
    Context::create()
}

/// An empty module for a machine: its triple and data layout are set, which the builder needs to
/// fold addresses right.
pub fn new_module<'ctx>(context: &'ctx Context, name: &str, machine: &TargetMachine) -> Module<'ctx> {
    let module = context.create_module(name);
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    module
}

/// Prints a module as PTX, after LLVM's verifier has accepted it. Code generation changes the
/// module: print its LLVM IR before.
///
/// # Errors
///
/// [`Error::Invalid`] if the verifier refuses the module, [`Error::Failed`] if code generation
/// reports an error.
pub fn emit_ptx(module: &Module<'_>, machine: &TargetMachine) -> Result<String, Error> {
    verify(module, "before code generation")?;
    run(module, "generating code for", || {
        let buffer =
            machine.write_to_memory_buffer(module, FileType::Assembly).map_err(|message| message.to_string())?;
        let text = buffer.as_slice();
        // Some versions count the terminating zero in the buffer's length.
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        String::from_utf8(text.to_vec()).map_err(|_| "the PTX is not UTF-8".to_string())
    })
}

/// Runs LLVM's verifier.
pub(crate) fn verify(module: &Module<'_>, stage: &'static str) -> Result<(), Error> {
    module.verify().map_err(|message| Error::Invalid { module: name_of(module), stage, message: message.to_string() })
}

/// Runs one step of LLVM over a module; errors that it returns and errors that it reports to the
/// context both become an `Err`.
pub(crate) fn run<T>(
    module: &Module<'_>,
    stage: &'static str,
    step: impl FnOnce() -> Result<T, String>,
) -> Result<T, Error> {
    let name = name_of(module);
    let doing = Doing::new(format!("{stage} module `{name}`"));
    // SAFETY: a module's context outlives it, and inkwell's contexts are not shared by threads.
    let diagnostics = unsafe { Diagnostics::collect(module.get_context().as_ctx_ref()) };
    let result = step();
    let mut messages = diagnostics.finish();
    drop(doing);
    match result {
        Ok(value) if messages.is_empty() => return Ok(value),
        Ok(_) => {}
        Err(message) => messages.push(message),
    }
    Err(Error::Failed { module: name, stage, message: messages.join("\n") })
}

/// A module's name, for messages.
fn name_of(module: &Module<'_>) -> String {
    module.get_name().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;

    #[test]
    fn a_machine_is_kept_for_each_processor_and_its_features() {
        let llvm = load().expect("LLVM loads");
        let machine = |cpu, features| kept_machine(llvm, cpu, features).expect("there is a machine");
        let first = machine("sm_90a", "+ptx80");
        assert!(Rc::ptr_eq(&first, &machine("sm_90a", "+ptx80")));
        let (older, newer) = (machine("sm_80", "+ptx80"), machine("sm_90a", "+ptx81"));
        assert!(!Rc::ptr_eq(&first, &older) && !Rc::ptr_eq(&first, &newer));
        assert_eq!(older.get_cpu().to_str(), Ok("sm_80"));
    }
}
