//! Runs a case in every way there is; all must leave what the interpreter leaves of the kernel as it stands.
//!
//! | way | what it would find |
//! |---|---|
//! | after each pass of `kernel-core` alone, and after all | a pass that changes what a kernel computes |
//! | after each pass of `kernel-codegen`, with the verifier | the same, and shapes or layouts that break a rule |
//! | placed, asynchronous work as late as it may be | a missing wait, barrier or fence |
//! | PTX, thread by thread in a random order | lowering, LLVM, layouts |
//! | a launch of the runtime, on a GPU or on the CPU | all of that, the driver's compiler, races of threads |

mod compare;
mod runtime;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kernel_codegen::checks::CheckPlan;
use kernel_codegen::{AbiParam, Checks, CodegenError, Options, TensorCopies, compile, place_watched};
use kernel_core::interp::{
    Access, Fault, FaultKind, HostBuffer, HostScalar, HostTensor, run_ordered, run_placed_with_tensors,
    run_with_tensors,
};
use kernel_core::ir::{Bound, Func, Level, Placed};
use kernel_core::passes::{PASSES, PassOptions, optimise};
use kernel_core::text::{parse, print};
use kernel_core::verify::verify;
use tilewright_emulator::{Given, emulate_with_tensors};

pub use compare::{Exactness, difference};
use runtime::check_on;

use crate::case::Case;

/// Two ways to run a kernel that do not agree, or one that does not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// After which pass, or in which way.
    pub stage: String,
    /// What is different.
    pub what: String,
}

/// What came of a case in which nothing differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// All ways agree.
    Full,
    /// The code generator refused the kernel, saying why; what comes before agrees.
    Refused(String),
}

/// Which ways to run a case, beside the interpreter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    /// Through LLVM, and the PTX in the emulator. Dear.
    pub emulate: bool,
    /// Whether floats agree that differ by a little: see [`Exactness::Roughly`].
    pub roughly: bool,
}

/// What a run leaves.
pub struct Left {
    /// The buffers.
    pub buffers: Vec<HostBuffer>,
    /// What went wrong.
    pub fault: Option<Fault>,
}

type Checked<T> = Result<T, Difference>;

/// A case with what must come of it.
pub struct Oracle<'c> {
    case: &'c Case,
    before: Vec<HostBuffer>,
    tensors: Vec<HostTensor>,
    scalars: Vec<HostScalar>,
    expected: Left,
    roughly: bool,
}

thread_local! {
    /// What the last panic of this thread said.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Makes panics silent: [`check`] reports them as differences.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| PANIC.with(|last| *last.borrow_mut() = info.to_string().replace('\n', " "))));
}

/// Runs a case through the runtime on a device, and compares.
///
/// # Errors
/// The first difference.
pub fn check_launch(case: &Case, device: &tilewright::Device) -> Checked<Agreement> {
    catch_unwind(AssertUnwindSafe(|| check_on(case, device))).unwrap_or_else(|_| {
        let what = PANIC.with(|last| last.borrow().clone());
        Err(differs("runtime", format!("panic: {what}")))
    })
}

/// Runs a case in every way, and compares.
///
/// # Errors
/// The first difference.
pub fn check(case: &Case, ways: Ways) -> Checked<Agreement> {
    let stage = RefCell::new("interpreter".to_string());
    let run = || Oracle::new(case)?.roughly(ways.roughly).check(ways, &stage);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let what = PANIC.with(|last| last.borrow().clone());
        Err(Difference { stage: stage.borrow().clone(), what: format!("panic: {what}") })
    })
}

fn differs(stage: &str, what: impl Into<String>) -> Difference {
    Difference { stage: stage.to_string(), what: what.into() }
}

impl<'c> Oracle<'c> {
    /// Runs the kernel as it stands.
    ///
    /// # Errors
    /// If the kernel breaks a rule, or cannot be run.
    pub fn new(case: &'c Case) -> Checked<Oracle<'c>> {
        let func = case.kernel.func();
        if let Err(errors) = verify(func) {
            return Err(differs("generated", errors.first().map_or(String::new(), |error| error.message.to_string())));
        }
        let (before, tensors, scalars) = (case.buffers(), case.tensors(), case.host_scalars());
        let mut buffers = before.clone();
        let fault = run_with_tensors(&case.kernel, &mut buffers, &tensors, &scalars, [case.grid, 1, 1]).err();
        match fault.as_ref().map(|fault| &fault.kind) {
            None | Some(FaultKind::OutOfBounds { .. }) => {}
            Some(_) => return Err(differs("interpreter", fault.map_or(String::new(), |fault| fault.to_string()))),
        }
        Ok(Oracle { case, before, tensors, scalars, expected: Left { buffers, fault }, roughly: false })
    }

    fn roughly(self, roughly: bool) -> Oracle<'c> {
        Oracle { roughly, ..self }
    }

    /// What must come of the case.
    pub fn expected(&self) -> &Left {
        &self.expected
    }

    fn check(&self, ways: Ways, stage: &RefCell<String>) -> Checked<Agreement> {
        self.text(stage)?;
        self.core_passes(stage)?;
        let agreement = self.placed(stage)?;
        if ways.emulate && agreement == Agreement::Full {
            return self.emulated(stage);
        }
        Ok(agreement)
    }

    /// The text form is exact.
    fn text(&self, stage: &RefCell<String>) -> Checked<()> {
        *stage.borrow_mut() = "text".to_string();
        let text = print(self.case.kernel.func());
        let parsed = parse(&text).map_err(|error| differs("text", error.to_string()))?;
        match print(&parsed) == text {
            true => Ok(()),
            false => Err(differs("text", "what is printed reads back as another kernel")),
        }
    }

    /// Each pass of `kernel-core` alone, then all of them.
    fn core_passes(&self, stage: &RefCell<String>) -> Checked<()> {
        for pass in PASSES {
            *stage.borrow_mut() = format!("core {}", pass.name);
            let mut func = self.case.kernel.func().clone();
            let changed = (pass.run)(&mut func).map_err(|errors| differs(pass.name, format!("{errors:?}")))?;
            if changed {
                self.compare_exactly(&stage.borrow(), &func, Exactness::Bits)?;
            }
        }
        *stage.borrow_mut() = "core all".to_string();
        let mut bound = self.case.kernel.clone();
        let options = PassOptions { disabled: Vec::new(), verify: true };
        optimise(&mut bound, &options).map_err(|errors| differs("core all", format!("{errors:?}")))?;
        self.compare_exactly("core all", bound.func(), Exactness::Bits)
    }

    /// After each pass of the code generator.
    fn placed(&self, stage: &RefCell<String>) -> Checked<Agreement> {
        let may_run = std::cell::Cell::new(true);
        let result = self.placed_with(&self.case.options, stage, &may_run)?;
        if may_run.get() || self.case.options.checks == Checks::EveryAccess {
            return Ok(result);
        }
        // The launch does not meet the variant's conditions, so the other runs.
        self.placed_with(&self.every_access(), stage, &may_run)
    }

    fn every_access(&self) -> Options {
        Options { checks: Checks::EveryAccess, ..self.case.options.clone() }
    }

    fn placed_with(
        &self,
        options: &Options,
        stage: &RefCell<String>,
        may_run: &std::cell::Cell<bool>,
    ) -> Checked<Agreement> {
        *stage.borrow_mut() = "promises".to_string();
        let mut found: Option<Difference> = None;
        let mut last: Option<Func> = None;
        let mut watcher = |pass: &'static str, func: &Func, plan: &CheckPlan| {
            if found.is_some() || !may_run.get() {
                return;
            }
            may_run.set(self.case.may_run(&plan.conditions));
            let name = format!("codegen {pass}");
            if may_run.get() && last.as_ref() != Some(func) {
                found = self.compare_func(&name, func).err();
                last = Some(func.clone());
            }
            if pass == "membar" && found.is_none() && may_run.get() {
                found = self.compare_ordered(&name, func).err();
            }
            *stage.borrow_mut() = format!("after codegen {pass}");
        };
        let placed = place_watched(&self.case.kernel, &self.case.target, options, &mut watcher);
        match (found, placed) {
            (Some(found), _) => Err(found),
            (None, Ok(_)) => Ok(Agreement::Full),
            (None, Err(error)) => refusal(&stage.borrow(), error),
        }
    }

    /// Runs a kernel of either level that passes have made of the case's, and compares what it leaves, number by number.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare_func(&self, stage: &str, func: &Func) -> Checked<()> {
        self.compare_exactly(stage, func, Exactness::Numbers)
    }

    fn compare_exactly(&self, stage: &str, func: &Func, exactness: Exactness) -> Checked<()> {
        if let Err(errors) = verify(func) {
            let message = errors.first().map_or(String::new(), |error| error.message.to_string());
            return Err(differs(stage, format!("verifier: {message}")));
        }
        let mut buffers = self.before.clone();
        let grid = [self.case.grid, 1, 1];
        let ran = match func.level {
            Level::Placed => {
                let placed = Placed::new(func.clone()).map_err(|_| differs(stage, "not placed"))?;
                run_placed_with_tensors(&placed, &mut buffers, &self.tensors, &self.scalars, grid)
            }
            Level::Bound | Level::Generic => {
                let bound = Bound::new(func.clone()).map_err(|_| differs(stage, "not bound"))?;
                run_with_tensors(&bound, &mut buffers, &self.tensors, &self.scalars, grid)
            }
        };
        self.compare(stage, &Left { buffers, fault: ran.err() }, exactness)
    }

    /// Runs a placed kernel that has its barriers; accesses to shared memory that nothing orders are faults.
    fn compare_ordered(&self, stage: &str, func: &Func) -> Checked<()> {
        let placed = Placed::new(func.clone()).map_err(|_| differs(stage, "not placed"))?;
        let mut buffers = self.before.clone();
        let ran = run_ordered(&placed, &mut buffers, &self.tensors, &self.scalars, [self.case.grid, 1, 1]);
        self.compare(&format!("{stage}, ordered"), &Left { buffers, fault: ran.err() }, Exactness::Numbers)
    }

    /// Compares what a run has left with what it must leave.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, stage: &str, left: &Left, exactness: Exactness) -> Checked<()> {
        match (&self.expected.fault, &left.fault) {
            (None, None) => {}
            (Some(_), Some(Fault { kind: FaultKind::OutOfBounds { .. }, .. })) => {}
            // Nobody may miss what a load would have read.
            (Some(fault), None) if is_load(fault) => {}
            (_, Some(fault)) => return Err(differs(stage, format!("fault: {fault}"))),
            (Some(fault), None) => return Err(differs(stage, format!("no fault where there should be: {fault}"))),
        }
        self.compare_buffers(stage, &left.buffers, exactness)
    }

    fn compare_buffers(&self, stage: &str, buffers: &[HostBuffer], exactness: Exactness) -> Checked<()> {
        let exactness = if self.roughly { Exactness::Roughly } else { exactness };
        for (index, (want, got)) in self.expected.buffers.iter().zip(buffers).enumerate() {
            let ulps = self.case.inputs.get(index).and_then(|input| input.ulps);
            if let Some(what) = difference(want, got, ulps, exactness) {
                return Err(differs(stage, format!("buffer {index}: {what}")));
            }
        }
        Ok(())
    }

    /// The PTX, thread by thread.
    fn emulated(&self, stage: &RefCell<String>) -> Checked<Agreement> {
        *stage.borrow_mut() = "compile".to_string();
        // The emulator has no tensor copies.
        let options = Options { tensor_copies: TensorCopies::Never, ..self.case.options.clone() };
        let mut compiled = match compile(&self.case.kernel, &self.case.target, &options) {
            Ok(compiled) => compiled,
            Err(error) => return refusal("compile", error),
        };
        if !self.case.may_run(&compiled.conditions) {
            let options = Options { checks: Checks::EveryAccess, ..options };
            compiled = match compile(&self.case.kernel, &self.case.target, &options) {
                Ok(compiled) => compiled,
                Err(error) => return refusal("compile", error),
            };
        }
        if compiled.abi.iter().any(|param| matches!(param, AbiParam::TensorMap(_))) {
            return Ok(Agreement::Refused("tensor copies in the emulator".to_string()));
        }
        *stage.borrow_mut() = "emulator".to_string();
        let given = Given { buffers: &self.before, tensors: &self.tensors, scalars: &self.case.scalars };
        let (buffers, record) = emulate_with_tensors(&self.case.kernel, &compiled, &given, self.case.grid, 1);
        let reported = record[0] != 0;
        let may_miss = !reported && self.expected.fault.as_ref().is_some_and(is_load);
        if reported != self.expected.fault.is_some() && !may_miss {
            return Err(differs("emulator", format!("a report: {}, expected {:?}", record[0], self.expected.fault)));
        }
        self.compare_buffers("emulator", &buffers, Exactness::Numbers)?;
        Ok(Agreement::Full)
    }
}

/// Whether a load went out of bounds.
fn is_load(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::OutOfBounds { access: Access::Load, .. })
}

/// A kernel that the code generator refuses is no difference, a mistake of its own is.
fn refusal(stage: &str, error: CodegenError) -> Checked<Agreement> {
    match error {
        CodegenError::Refused(refusal) => Ok(Agreement::Refused(refusal.what)),
        error => Err(differs(stage, error.to_string())),
    }
}
