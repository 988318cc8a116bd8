//! Launches: which argument goes where.

use std::time::Duration;

use crate::backend::{Artifact, Backend, CompileError, LaunchConditions, Timings};
use crate::ir::{Bound, DType, Files, Func, Placed};

use super::buffers::{Buffer, Tensor, TensorMemory};
use super::code::{Code, ParamPlan};
use super::compile::compile;
use super::executor::Launch;
use super::fault::{Fault, FaultKind};
use super::lanes::Bits;
use super::schedule::run_grid;
use super::turn::Deadline;

/// The largest grid, which is a GPU's.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// A kernel prepared for running. Cheap to run many times, on any thread.
#[derive(Debug)]
pub struct Program {
    code: Result<Code, Fault>,
    /// Names of the parameters that take an argument, for messages.
    names: Vec<String>,
    files: Files,
    /// Whether unordered accesses to shared memory are faults.
    ordered: bool,
    /// Who gets the lines that it prints.
    prints: fn(&str),
}

/// The backend that interprets kernels: nothing is chosen, and nothing is left for the launch to check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpreter;

impl Backend for Interpreter {
    type Target = ();
    type Options = ();
    type Code = Program;

    fn compile(&self, kernel: &Bound, (): (), (): &()) -> Result<Artifact<Program>, CompileError> {
        let mut timings = Timings::default();
        let code = timings.stage("interpreter", || Program::new(kernel));
        let (conditions, sites, stages) = (LaunchConditions::default(), Vec::new(), Vec::new());
        Ok(Artifact { code, conditions, sites, stages, timings })
    }
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// The memory of a `Ptr` or `PtrMut` parameter.
    Buffer {
        /// Its start, aligned to the size of an element.
        ptr: *mut u8,
        /// Its length in elements.
        len: usize,
    },
    /// The memory of a `TensorDesc` parameter.
    Tensor(Tensor),
    /// The bits of a scalar: the low ones, as many as its dtype has. Of an `i32`, `x as u32 as u64` or `x as u64`
    /// alike; of an `f32`, `u64::from(x.to_bits())`.
    Scalar(u64),
}

// SAFETY: an argument only names memory; who accesses it promises in `Program::run` that it may.
unsafe impl Send for Arg {}
// SAFETY: as above.
unsafe impl Sync for Arg {}
// SAFETY: a buffer's memory is written with atomics only, or not at all, while threads share it.
unsafe impl Sync for Buffer {}
// SAFETY: as above.
unsafe impl Send for Buffer {}

fn invalid(message: String) -> Fault {
    Fault::of_launch(FaultKind::InvalidLaunch { message })
}

impl Program {
    /// Prepares a bound kernel.
    ///
    /// A kernel that does not verify, or whose tiles exceed the address space, gives a program whose runs fail with
    /// [`FaultKind::Unsupported`].
    pub fn new(func: &Bound) -> Program {
        Program::from_func(func.func())
    }

    /// Prepares a placed kernel: layouts are ignored.
    pub fn from_placed(func: &Placed) -> Program {
        Program::from_func(func.func())
    }

    fn from_func(func: &Func) -> Program {
        let code = compile(func);
        let visible = func.params.iter().filter(|param| !param.kind.is_hidden());
        let names = visible.map(|param| param.name.clone()).collect();
        Program { code, names, files: func.files.clone(), ordered: false, prints: |_| {} }
    }

    /// The same kernel, whose runs report accesses to shared memory that no barrier, wait or fence orders: for placed
    /// kernels that have their barriers.
    pub fn checks_order(self) -> Program {
        Program { ordered: true, ..self }
    }

    /// The same kernel, which hands over each line that it prints. Programs run at the same time, and so do the calls.
    pub fn prints_to(self, prints: fn(&str)) -> Program {
        Program { prints, ..self }
    }

    /// Runs the kernel once for every point of the grid, `x` fastest, on the threads of the current rayon pool.
    /// `args` has one entry per parameter, in order; those of hidden parameters (at the end) may be left out and
    /// are ignored.
    ///
    /// Every program makes progress: one that waits, in a `while`, for what another one writes does not keep that
    /// one from running, whatever their numbers and that of the threads. Each program that waits keeps its tiles.
    ///
    /// # Errors
    /// The launch's first [`Fault`]. Except for `InvalidLaunch` and `Unsupported`, all programs have run.
    ///
    /// # Safety
    /// During the call:
    /// - the memory of every buffer argument is valid for `len` elements of its parameter's dtype, and aligned for
    ///   them; that of a `bool` buffer may hold any bytes, but those written are 0 or 1;
    /// - a tensor argument has a rank of at most 5, and every element of it is valid and aligned like one of a buffer;
    /// - nobody writes the memory of a `Ptr` parameter or of a descriptor that the kernel only reads, be it through another argument;
    /// - the memory of a `PtrMut` parameter, or of a descriptor that the kernel writes, is accessed by nobody else, or with atomics of the element's size.
    pub unsafe fn run(&self, args: &[Arg], grid: [u32; 3]) -> Result<(), Fault> {
        // SAFETY: promised by the caller.
        unsafe { self.run_within(args, grid, None) }
    }

    /// [`Program::run`] of a launch that may take so long, if that is given.
    ///
    /// Once that time is over, each program stops at the end of the loop that it is in, and those that have not begun
    /// do not run. It is looked at between programs and at the ends of loops, so a launch takes longer by what there
    /// is in between.
    ///
    /// # Errors
    /// As [`Program::run`]. [`FaultKind::TimeLimit`], if no program had another fault, of the program with the smallest
    /// linear index that had not ended.
    ///
    /// # Safety
    /// As of [`Program::run`].
    pub unsafe fn run_within(&self, args: &[Arg], grid: [u32; 3], limit: Option<Duration>) -> Result<(), Fault> {
        let code = self.code.as_ref().map_err(Fault::clone)?;
        for (axis, (&size, max)) in grid.iter().zip(MAX_GRID).enumerate() {
            if size > max {
                return Err(invalid(format!(
                    "the grid has {size} programs along axis {axis}; at most {max} are allowed"
                )));
            }
        }
        let deadline = limit.and_then(Deadline::after);
        let launch = Launch { deadline, ..self.launch(code, args, grid)? };
        let total: u64 = grid.iter().map(|&size| u64::from(size)).product();
        run_grid(&launch, total).map_err(|fault| fault.named(&self.files))
    }

    /// Matches arguments to parameters.
    fn launch<'a>(&self, code: &'a Code, args: &[Arg], grid: [u32; 3]) -> Result<Launch<'a>, Fault> {
        if args.len() < self.names.len() || args.len() > code.params.len() {
            let (expected, found) = (self.names.len(), args.len());
            return Err(invalid(format!("the kernel takes {expected} arguments, found {found}")));
        }
        let mut launch = Launch {
            code,
            buffers: Vec::new(),
            tensors: Vec::new(),
            scalars: Vec::new(),
            grid,
            ordered: self.ordered,
            deadline: None,
            prints: self.prints,
        };
        for (index, plan) in code.params.iter().enumerate() {
            let name = || self.names.get(index).map_or("", String::as_str);
            let (buffer, bits) = match (*plan, args.get(index)) {
                (ParamPlan::Buffer { mutable, .. }, Some(&Arg::Buffer { ptr, len })) => {
                    (Some(Buffer { ptr, len, mutable }), Bits::ZERO)
                }
                // The compiler may have made a pointer of a descriptor.
                (ParamPlan::Buffer { mutable, .. }, Some(Arg::Tensor(tensor))) => {
                    (Some(Buffer { ptr: tensor.ptr, len: tensor.span(), mutable }), Bits::ZERO)
                }
                (ParamPlan::Tensor { rank, .. }, Some(Arg::Tensor(tensor))) if tensor.rank == rank => {
                    (None, Bits::ZERO)
                }
                (ParamPlan::Tensor { rank, .. }, _) => {
                    return Err(invalid(format!("parameter `{}` takes a tensor of {rank} dimensions", name())));
                }
                (ParamPlan::Extent { of, axis, stride, .. }, _) => {
                    let extent = match args.get(of.index()) {
                        Some(Arg::Tensor(tensor)) if stride => tensor.strides.get(usize::from(axis)),
                        Some(Arg::Tensor(tensor)) => tensor.shape.get(usize::from(axis)),
                        Some(Arg::Buffer { .. } | Arg::Scalar(_)) | None => None,
                    };
                    (None, Bits::from_raw(extent.copied().unwrap_or(0), 8))
                }
                (ParamPlan::Scalar { dtype, .. }, Some(&Arg::Scalar(raw))) => (None, scalar(raw, dtype)),
                (ParamPlan::Length { of, .. }, _) => {
                    let len = match args.get(of.index()) {
                        Some(Arg::Buffer { len, .. }) => *len,
                        Some(Arg::Tensor(tensor)) => tensor.span(),
                        Some(Arg::Scalar(_)) | None => 0,
                    };
                    (None, Bits::from_raw(len as u64, 8))
                }
                (ParamPlan::Null { .. }, _) => (None, Bits::ZERO),
                (ParamPlan::Buffer { .. }, _) => {
                    return Err(invalid(format!("parameter `{}` takes a buffer", name())));
                }
                (ParamPlan::Scalar { dtype, .. }, _) => {
                    return Err(invalid(format!("parameter `{}` takes a scalar of {dtype}", name())));
                }
            };
            let tensor = match (*plan, args.get(index)) {
                (ParamPlan::Tensor { mutable, .. }, Some(Arg::Tensor(tensor))) => {
                    Some(TensorMemory { tensor: *tensor, mutable })
                }
                _ => None,
            };
            launch.buffers.push(buffer);
            launch.tensors.push(tensor);
            launch.scalars.push(bits);
        }
        Ok(launch)
    }
}

fn scalar(raw: u64, dtype: DType) -> Bits {
    match dtype {
        DType::Bool => Bits::from_raw(u64::from(raw & 0xff != 0), 1),
        DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::F8E4M3
        | DType::F8E5M2
        | DType::F16
        | DType::BF16
        | DType::F32
        | DType::F64 => Bits::from_raw(raw, dtype.bytes() as usize),
    }
}
