//! Everything that can go wrong outside the macro, as one enum.
//!
//! An error says what happened, where, and what to do about it. Nothing in this crate panics on
//! its input: every call that a user can get wrong returns [`Result`].

use kernel_core::diag::Diagnostic;
use std::fmt;
use std::time::Duration;

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
///
/// ```
/// use kernel_runtime::{Device, Error};
///
/// let out_of_memory = Device::cpu().zeros::<f64>(usize::MAX);
/// assert!(matches!(out_of_memory, Err(Error::OutOfMemory { .. })));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no usable CUDA driver.
    #[error("no CUDA driver: {reason}; install an NVIDIA driver for CUDA 12.0 or later, or use `Device::cpu()`")]
    NoDriver {
        /// Why the driver cannot be used.
        reason: Box<str>,
    },

    /// The CUDA device that was asked for does not exist.
    #[error("there is no CUDA device {requested}: {}", device_range(*count))]
    NoSuchDevice {
        /// The index that was asked for, from 0.
        requested: usize,
        /// How many devices there are.
        count: usize,
    },

    /// An allocation failed.
    #[error("out of memory on {device}: {} were requested, {}", bytes(*requested), memory(*free, *total))]
    OutOfMemory {
        /// The name of the device.
        device: Box<str>,
        /// The size of the allocation in bytes. `u64::MAX` when it overflows.
        requested: u64,
        /// Free bytes when the allocation failed, where that is known.
        free: Option<u64>,
        /// All bytes of the device, where that is known.
        total: Option<u64>,
    },

    /// A call to the CUDA driver failed.
    #[error("{call} failed: {message} ({name}, code {code})")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The driver's error code.
        code: u32,
        /// The driver's name for the code, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: Box<str>,
        /// The driver's text for the code.
        message: Box<str>,
    },

    /// LLVM could not be loaded, or refused a module.
    #[error("LLVM: {message}")]
    Llvm {
        /// What LLVM or its loader said.
        message: Box<str>,
    },

    /// The compiler made a mistake of its own, and noticed. The kernel is not to blame: please report it.
    #[error("{message}")]
    Internal {
        /// The step that failed, the kernel, the place in its source, and what does not hold.
        message: Box<str>,
    },

    /// The kernel does not compile with these constexprs and arguments.
    #[error("{0}")]
    Compile(Box<Diagnostic>),

    /// The grid is empty of meaning: an axis is negative, or exceeds what the device can launch.
    #[error("the grid has {value} programs along axis {axis}, {}", grid_help(*value, *limit))]
    InvalidGrid {
        /// The axis, 0 to 2.
        axis: usize,
        /// The number of programs that was asked for. `i64::MAX` stands for all numbers above.
        value: i64,
        /// The largest number of programs along this axis.
        limit: u64,
    },

    /// A buffer or stream lives on another device than the launch.
    #[error(
        "{} lives on {actual}, but the operation runs on {expected}; copy it there with `to_device`",
        argument_name(argument)
    )]
    WrongDevice {
        /// The name of the kernel's parameter, or empty outside launches.
        argument: Box<str>,
        /// Where the buffer lives.
        actual: Box<str>,
        /// Where the launch runs.
        expected: Box<str>,
    },

    /// Two lengths that must agree do not.
    #[error("{what}: expected {expected} elements, got {actual}")]
    LengthMismatch {
        /// What was being done.
        what: Box<str>,
        /// The length that fits, in elements.
        expected: usize,
        /// The length that was given, in elements.
        actual: usize,
    },

    /// Tuning a kernel, or a table of what was tuned, did not work out.
    #[error("tuning: {what}; {reason}")]
    Tuning {
        /// What did not.
        what: Box<str>,
        /// Why, and what to do.
        reason: Box<str>,
    },

    /// A range does not lie inside a buffer.
    #[error("range {start}..{end} is not inside a buffer of {len} elements")]
    InvalidRange {
        /// The first element, from 0.
        start: usize,
        /// One past the last element.
        end: usize,
        /// The length of the buffer or view.
        len: usize,
    },

    /// A tensor does not fit into the buffer that it is made of, or no descriptor can describe it.
    #[error("{tensor} {problem}; {hint}")]
    InvalidTensor {
        /// The tensor: its shape, and its strides if they were given.
        tensor: Box<str>,
        /// What is wrong: the value and the limit.
        problem: Box<str>,
        /// The nearest thing that works.
        hint: Box<str>,
    },

    /// A lane of a safe kernel accessed memory outside its buffer. The access was suppressed: a
    /// load gave zero, a store did nothing.
    ///
    /// A launch gives one error, however many accesses fail. On the CPU it is the first failure of the program with
    /// the smallest index (the first axis of the grid runs fastest). On a GPU it is that of the thread that reports
    /// first, which is the first failure of that thread: if several programs fail, or several lanes or accesses of
    /// one program, any of them may be named, and another one the next time.
    #[error(
        "{file}:{line}:{column}: kernel `{kernel}` {access} element {offset} of `{argument}`, which has {len} elements, \
         in program ({}, {}, {}); the access was suppressed; mask it, or fix the grid or the length passed to the kernel{}",
        program_id[0], program_id[1], program_id[2], called(calls)
    )]
    OutOfBounds {
        /// The kernel.
        kernel: Box<str>,
        /// The source file of the access.
        file: Box<str>,
        /// Its line, from 1.
        line: u32,
        /// Its column, from 1.
        column: u32,
        /// The calls of functions and closures that led there, the innermost first.
        calls: Box<[CallSite]>,
        /// The program that made the access: one of them, if several programs failed.
        program_id: [u32; 3],
        /// The offset in elements from the start of the argument.
        offset: i64,
        /// The length of the argument in elements.
        len: u64,
        /// Whether it was a load, a store or an atomic.
        access: Access,
        /// The kernel's parameter.
        argument: Box<str>,
    },

    /// An `assert!` inside a kernel failed. Its program stopped there.
    ///
    /// If several programs fail, one of them is named: see [`Error::OutOfBounds`].
    #[error(
        "{file}:{line}:{column}: kernel `{kernel}`: assertion failed in program ({}, {}, {}): {message}{}",
        program_id[0], program_id[1], program_id[2], called(calls)
    )]
    AssertFailed {
        /// The kernel.
        kernel: Box<str>,
        /// The source file of the assertion.
        file: Box<str>,
        /// Its line, from 1.
        line: u32,
        /// Its column, from 1.
        column: u32,
        /// The calls of functions and closures that led there, the innermost first.
        calls: Box<[CallSite]>,
        /// The program in which it failed.
        program_id: [u32; 3],
        /// The assertion's message.
        message: Box<str>,
    },

    /// A launch on the CPU took longer than its limit of time. Its programs were stopped, and what they were to write is
    /// incomplete.
    ///
    /// If a program failed besides, that is the launch's error instead, as others may have waited for it. Launches have
    /// a limit where `.time_limit(..)` or the variable `TILEWRIGHT_TIME_LIMIT` gives them one.
    #[error(
        "{file}:{line}:{column}: kernel `{kernel}` was stopped after its limit of {limit:?}; program ({}, {}, {}) was here; \
         look for a loop that never ends or waits for what no program does, or raise the limit{}",
        program_id[0], program_id[1], program_id[2], called(calls)
    )]
    TimeLimit {
        /// The kernel.
        kernel: Box<str>,
        /// The source file of the place.
        file: Box<str>,
        /// Its line, from 1: that of the loop in which the program was stopped, the innermost one if there are several.
        line: u32,
        /// Its column, from 1.
        column: u32,
        /// The calls of functions and closures that led there, the innermost first.
        calls: Box<[CallSite]>,
        /// The program with the smallest index (the first axis of the grid runs fastest) of those that had begun and
        /// not ended; if there is none, one that had not begun.
        program_id: [u32; 3],
        /// How long the launch was allowed to take.
        limit: Duration,
    },

    /// The kernel needs more of something than the device has, or than the compiler can handle.
    #[error("kernel `{kernel}` needs {needed} {what}, the limit is {limit}; {hint}")]
    Resources {
        /// The kernel.
        kernel: Box<str>,
        /// The resource with its unit and, where there is one, the place in the source that needs it, such as
        /// `bytes of shared memory in a loop with 6 stages (src/matmul.rs:20:5)`.
        what: Box<str>,
        /// How much is needed.
        needed: u64,
        /// How much there is.
        limit: u64,
        /// What to change.
        hint: Box<str>,
    },

    /// The archives of this program lack the code for a launch, and it cannot compile kernels or was not asked to.
    #[error(
        "kernel `{kernel}` has no compiled code for this launch: {variant}; record a run of a program that compiles it \
         (TILEWRIGHT_RECORD=FILE), or add to what builds the archive: {line}"
    )]
    MissingCode {
        /// The kernel.
        kernel: Box<str>,
        /// Which variant of it is missing, how many of this kernel there are, and whether a launch would compile it.
        variant: Box<str>,
        /// The line of Rust that adds it to an `ArchiveBuilder`.
        line: Box<str>,
    },

    /// An archive of compiled kernels cannot be used.
    #[error("{archive}: {reason}")]
    Archive {
        /// Which archive: a file, or that it is embedded.
        archive: Box<str>,
        /// What is wrong with it, and what to do.
        reason: Box<str>,
    },

    /// An environment variable or option has a value that means nothing.
    #[error("{name} is set to `{value}`; expected {expected}")]
    InvalidSetting {
        /// The name of the setting.
        name: Box<str>,
        /// Its value.
        value: Box<str>,
        /// The values that are allowed.
        expected: Box<str>,
    },

    /// The device or the driver cannot do this.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// What was asked for.
        what: Box<str>,
        /// Why it cannot be had, and what can.
        reason: Box<str>,
    },
}

impl Error {
    /// The calls of `#[device]` functions and closures that led to the place in a kernel where it happened, the innermost
    /// first; none where the kernel itself did it, or the host.
    pub fn calls(&self) -> &[CallSite] {
        match self {
            Error::OutOfBounds { calls, .. } | Error::AssertFailed { calls, .. } | Error::TimeLimit { calls, .. } => {
                calls
            }
            _ => &[],
        }
    }

    /// Whether the error was reported by a running kernel, rather than by a call of the host.
    pub fn is_from_kernel(&self) -> bool {
        matches!(self, Error::OutOfBounds { .. } | Error::AssertFailed { .. } | Error::TimeLimit { .. })
    }
}

/// The text of `Display`: this is what a `main` that returns an error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Error::Compile(Box::new(diagnostic))
    }
}

/// Where a kernel, or a function of it, calls a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// The source file.
    pub file: Box<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// What an access does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// `load`.
    Load,
    /// `store`.
    Store,
    /// `atomic_add` and its kind.
    Atomic,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Load => "loads",
            Access::Store => "stores to",
            Access::Atomic => "atomically updates",
        })
    }
}

/// A line for each call.
fn called(calls: &[CallSite]) -> String {
    calls.iter().map(|CallSite { file, line, column }| format!("\n  called at {file}:{line}:{column}")).collect()
}

fn device_range(count: usize) -> String {
    match count {
        0 => "this machine has none; use `Device::cpu()`, or check CUDA_VISIBLE_DEVICES".into(),
        1 => "this machine has one, with index 0".into(),
        _ => format!("this machine has {count}, with indices 0 to {}", count - 1),
    }
}

fn grid_help(value: i64, limit: u64) -> String {
    if value < 0 {
        return "which is less than none; look for an overflow where it is computed".into();
    }
    format!("the limit is {limit}; use a larger tile, or loop inside the kernel")
}

fn argument_name(argument: &str) -> String {
    if argument.is_empty() { "the buffer or stream".into() } else { format!("argument `{argument}`") }
}

fn memory(free: Option<u64>, total: Option<u64>) -> String {
    match (free, total) {
        (Some(free), Some(total)) => format!("{} of {} are free", bytes(free), bytes(total)),
        _ => "the free memory is unknown".into(),
    }
}

/// A size as people read it: exact in bytes below 1 KiB, else with a binary unit as well.
fn bytes(size: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if size == u64::MAX {
        return "more bytes than an address can count".into();
    }
    if size < 1024 {
        return format!("{size} bytes");
    }
    let mut value = size as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {} ({size} bytes)", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: Error, expected: &str) {
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn texts_say_what_where_and_what_to_do() {
        check(
            Error::NoSuchDevice { requested: 3, count: 2 },
            "there is no CUDA device 3: this machine has 2, with indices 0 to 1",
        );
        check(
            Error::OutOfMemory { device: "cpu".into(), requested: 3 << 29, free: Some(1 << 20), total: Some(1 << 30) },
            "out of memory on cpu: 1.5 GiB (1610612736 bytes) were requested, \
             1.0 MiB (1048576 bytes) of 1.0 GiB (1073741824 bytes) are free",
        );
        check(
            Error::OutOfBounds {
                kernel: "add".into(),
                file: "src/add.rs".into(),
                line: 4,
                column: 9,
                calls: Box::new([]),
                program_id: [7, 0, 0],
                offset: -1,
                len: 100,
                access: Access::Store,
                argument: "out".into(),
            },
            "src/add.rs:4:9: kernel `add` stores to element -1 of `out`, which has 100 elements, in program (7, 0, 0); \
             the access was suppressed; mask it, or fix the grid or the length passed to the kernel",
        );
        let calls = [("src/rows.rs", 20, 5), ("src/main.rs", 12, 9)];
        let calls = calls.map(|(file, line, column)| CallSite { file: file.into(), line, column }).into();
        check(
            Error::AssertFailed {
                kernel: "add".into(),
                file: "src/add.rs".into(),
                line: 4,
                column: 9,
                calls,
                program_id: [7, 0, 0],
                message: "n > 0".into(),
            },
            "src/add.rs:4:9: kernel `add`: assertion failed in program (7, 0, 0): n > 0\n  called at src/rows.rs:20:5\n  \
             called at src/main.rs:12:9",
        );
        check(
            Error::WrongDevice { argument: "x".into(), actual: "cpu".into(), expected: "cuda:0".into() },
            "argument `x` lives on cpu, but the operation runs on cuda:0; copy it there with `to_device`",
        );
    }

    #[test]
    fn a_main_that_returns_an_error_prints_its_text() {
        let error = Error::NoSuchDevice { requested: 3, count: 2 };
        assert_eq!(format!("{error:?}"), error.to_string());
        let compile = Error::from(Diagnostic::new("tiles of 3 elements", "src/k.rs", 4, 5).help("use 4"));
        assert_eq!(format!("{compile:?}"), compile.to_string());
        assert!(compile.to_string().contains("src/k.rs:4:5"), "{compile}");
    }

    #[test]
    fn errors_are_small_enough_to_return_by_value() {
        // 128 bytes is where clippy's `result_large_err` starts to object in users' crates.
        assert!(size_of::<Error>() < 128, "{}", size_of::<Error>());
    }
}
