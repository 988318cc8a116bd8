//! A kernel with its arguments, about to be launched.
//!
//! Launchers that `#[kernel]` makes return a [`Call`] ([`UnsafeCall`] for an `unsafe fn`):
//!
//! ```text
//! add::<_, 1024>(&x, &y, &mut out, n).grid(n.div_ceil(1024)).num_warps(8).launch(&device)?;
//! ```
//!
//! The type says whether the grid is there, so a launch without one does not compile.

use super::args::{Arg, PtrArg, PtrMutArg};
use super::compiled::CompiledKernel;
use super::gpu::Shipped;
use super::grid::IntoGrid;
use super::invocation::Invocation;
use super::kernel::Kernel;
use super::optional::{InPlaceArg, OptionalDescArg, OptionalDescMutArg, OptionalPtrArg, OptionalPtrMutArg};
use super::scalar::Scalar;
use super::target::Target;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::{DescArg, DescMutArg};
use crate::testing::Delays;
use kernel_core::ir::Safety;
use std::fmt;
use std::time::Duration;

/// The grid of a call that has none yet.
#[derive(Debug, Clone, Copy)]
pub struct NoGrid(());

/// The grid of a call.
#[derive(Debug, Clone, Copy)]
pub struct Grid([i64; 3]);

/// Whether a call has a grid.
#[diagnostic::on_unimplemented(
    message = "this launch has no grid",
    label = "how many programs shall run?",
    note = "say it with `.grid(n.div_ceil(BLOCK))`, `.grid((x, y))` or `.grid_with(|c| ..)` before `.launch(&device)`"
)]
pub trait HasGrid: MaybeGrid {
    /// The programs along each axis.
    fn programs(self) -> [i64; 3];
}

impl HasGrid for Grid {
    fn programs(self) -> [i64; 3] {
        self.0
    }
}

/// What is known of a call's grid, for looking at its code.
pub trait MaybeGrid {
    /// The programs along each axis, if the call says.
    fn known(&self) -> Option<[i64; 3]>;
}

impl MaybeGrid for Grid {
    fn known(&self) -> Option<[i64; 3]> {
        Some(self.0)
    }
}

impl MaybeGrid for NoGrid {
    fn known(&self) -> Option<[i64; 3]> {
        None
    }
}

/// What takes the constants of the user's crate that the body of a kernel uses: a call, or a request to compile.
pub trait TakesConstants: Sized {
    /// The next constexpr; `false` is 0 and `true` is 1.
    fn constant(self, value: i64) -> Self;

    /// The next folded parameter.
    fn const_scalar(self, value: impl Scalar) -> Self;
}

/// Stands in for the body of a kernel that calls a function which does not exist: its launcher type-checks, so that
/// rustc reports the function alone. What `#[kernel]` makes of a body takes precedence.
pub trait WithoutBody: Sized {
    /// The kernel.
    fn kernel() -> &'static Kernel {
        unreachable!("a kernel without a body does not compile")
    }

    /// Hands over constexprs.
    fn constants<T: TakesConstants>(taker: T) -> T {
        taker
    }

    /// Hands over folded parameters.
    fn scalars<T: TakesConstants>(taker: T) -> T {
        taker
    }
}

impl<C> WithoutBody for C {}

macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $call:ident, $safety:ident;
    )*) => {$(
        $(#[$doc])*
        #[must_use = "a call does nothing until it is launched"]
        pub struct $call<'a, C, G = NoGrid> {
            /// Behind a pointer, because a call is moved from method to method.
            pub(super) invocation: Box<Invocation<'a>>,
            consts: C,
            grid: G,
        }

        /// What the code that `#[kernel]` makes calls. Dtypes, constexprs and arguments are added
        /// in the order in which the kernel declares them; what does not fit is an error of the
        /// launch.
        impl<'a, C> $call<'a, C> {
            /// A call of `kernel` without arguments. `consts` is what `grid_with` is given.
            #[inline]
            pub fn new(kernel: &'static Kernel, consts: C) -> Self {
                $call { invocation: Invocation::new(kernel, Safety::$safety), consts, grid: NoGrid(()) }
            }

            /// The next dtype parameter.
            #[inline]
            pub fn dtype<T: DType>(mut self) -> Self {
                self.invocation.add_dtype(T::ELEMENT);
                self
            }

            /// The next constexpr; `false` is 0 and `true` is 1.
            #[inline]
            pub fn constant(mut self, value: i64) -> Self {
                self.invocation.add_constant(value);
                self
            }

            /// The next argument, for a `Ptr<T>`.
            #[inline]
            pub fn ptr<T: DType>(mut self, buffer: impl PtrArg<'a, T>) -> Self {
                self.invocation.add_arg(Arg::ptr(buffer.into_arg()));
                self
            }

            /// The next argument, for a `PtrMut<T>`.
            #[inline]
            pub fn ptr_mut<T: DType>(mut self, buffer: impl PtrMutArg<'a, T>) -> Self {
                self.invocation.add_arg(Arg::ptr_mut(buffer.into_arg_mut()));
                self
            }

            /// The next argument, for an `Option<Ptr<T>>`.
            #[inline]
            pub fn optional_ptr<T: DType>(mut self, buffer: impl OptionalPtrArg<'a, T>) -> Self {
                self.invocation.add_optional::<T, _>(buffer.into_optional(), Arg::ptr);
                self
            }

            /// The next argument, for a `Ptr<T>` that may be read from the buffer of another parameter.
            #[inline]
            pub fn ptr_or_in_place<T: DType>(mut self, buffer: impl InPlaceArg<'a, T>) -> Self {
                self.invocation.add_optional::<T, _>(buffer.into_arg_or_none(), Arg::ptr);
                self
            }

            /// The next argument, for an `Option<PtrMut<T>>`.
            #[inline]
            pub fn optional_ptr_mut<T: DType>(mut self, buffer: impl OptionalPtrMutArg<'a, T>) -> Self {
                self.invocation.add_optional::<T, _>(buffer.into_optional_mut(), Arg::ptr_mut);
                self
            }

            /// The next argument, for an `Option<TensorDesc<T, { [..] }>>` with blocks of `RANK` dimensions.
            #[inline]
            pub fn optional_desc<T: DType, const RANK: usize>(
                mut self,
                tensor: impl OptionalDescArg<'a, T, RANK>,
            ) -> Self {
                self.invocation.add_optional::<T, _>(tensor.into_optional_desc(), Arg::desc);
                self
            }

            /// The next argument, for an `Option<TensorDescMut<T, { [..] }>>` with blocks of `RANK` dimensions.
            #[inline]
            pub fn optional_desc_mut<T: DType, const RANK: usize>(
                mut self,
                tensor: impl OptionalDescMutArg<'a, T, RANK>,
            ) -> Self {
                self.invocation.add_optional::<T, _>(tensor.into_optional_desc_mut(), Arg::desc_mut);
                self
            }

            /// The next argument, for an `Option` of a scalar.
            #[inline]
            pub fn optional_scalar<T: Scalar + DType>(mut self, value: Option<T>) -> Self {
                self.invocation.add_optional::<T, _>(value.map(Scalar::value), Arg::scalar);
                self
            }

            /// The next argument, for a `TensorDesc<T, { [..] }>` with blocks of `RANK` dimensions.
            #[inline]
            pub fn desc<T: DType, const RANK: usize>(mut self, tensor: impl DescArg<'a, T, RANK>) -> Self {
                self.invocation.add_arg(Arg::desc(tensor.into_desc()));
                self
            }

            /// The next argument, for a `TensorDescMut<T, { [..] }>` with blocks of `RANK` dimensions.
            #[inline]
            pub fn desc_mut<T: DType, const RANK: usize>(mut self, tensor: impl DescMutArg<'a, T, RANK>) -> Self {
                self.invocation.add_arg(Arg::desc_mut(tensor.into_desc_mut()));
                self
            }

            /// The next argument, for a scalar.
            #[inline]
            pub fn scalar(mut self, value: impl Scalar) -> Self {
                self.invocation.add_arg(Arg::scalar(value.value()));
                self
            }

            /// The next argument, for a `Const<T>`: folded into the code.
            #[inline]
            pub fn const_scalar(mut self, value: impl Scalar) -> Self {
                self.invocation.add_arg(Arg::constant(value.value()));
                self
            }
        }

        impl<C> TakesConstants for $call<'_, C> {
            #[inline]
            fn constant(self, value: i64) -> Self {
                self.constant(value)
            }

            #[inline]
            fn const_scalar(self, value: impl Scalar) -> Self {
                self.const_scalar(value)
            }
        }

        impl<'a, C, G> $call<'a, C, G> {
            /// Warps of 32 threads per program: a power of two up to 32. Without it the kernel's
            /// attribute says, or the size of the largest tile: 4 warps up to 1024 elements, 8 below 8192, 16 up to 2^19,
            /// else 32; a kernel that asks for `num_warps()` has 4. A thread holds up to 1024 elements of a tile; a launch with too few warps is refused.
            #[inline]
            pub fn num_warps(mut self, warps: u32) -> Self {
                self.invocation.tuning.num_warps = Some(warps);
                self
            }

            /// How many iterations of loops are in flight at once, where loops are pipelined: from 1
            /// to 16, without it 3. More than 3 that do not fit into shared memory are an
            /// [`Error::Resources`](crate::Error::Resources), of up to 3 as many are taken as fit.
            /// Where warps of their own fetch, it is always as many as fit, up to this number.
            #[inline]
            pub fn num_stages(mut self, stages: u32) -> Self {
                self.invocation.tuning.num_stages = Some(stages);
                self
            }

            /// The most registers of a thread on a GPU, from 16 to 255: fewer let more programs run at once, and spill
            /// what has no room to memory. Without it the code generator and the driver's compiler decide. A kernel
            /// with a limit is not divided among warp groups.
            #[inline]
            pub fn max_registers(mut self, registers: u32) -> Self {
                self.invocation.tuning.max_registers = Some(registers);
                self
            }

            /// Lets the launch begin before the launches before it in its stream have ended (programmatic dependent
            /// launch): what its programs do before they touch memory, and the launch itself, then cost no time. The kernel
            /// waits before its first access until those have ended, so results, errors and the order of everything in the
            /// stream are those of an ordinary launch. Chains of short kernels gain most, of which each launch has this.
            ///
            /// It needs a GPU of compute capability 9.0 or later; elsewhere, on the CPU, and in a captured
            /// graph, whose launches follow each other, it is an ordinary launch. The kernel is compiled for it once more.
            #[inline]
            pub fn dependent_launch(mut self) -> Self {
                self.invocation.tuning.dependent_launch = true;
                self
            }

            /// Whether the code for a GPU says which lines of the source it is from, so that `compute-sanitizer`, `cuda-gdb`
            /// and Nsight show them. Without it the variable `TILEWRIGHT_LINE_INFO` says, and without that the code
            /// does not: the instructions are the same either way, but code that names lines is compiled anew when
            /// they move. Nothing changes on the CPU.
            #[inline]
            pub fn line_info(mut self, wanted: bool) -> Self {
                self.invocation.tuning.line_info = Some(wanted);
                self
            }

            /// How long the launch may take on the CPU, where nothing limits it otherwise: the way out of
            /// loops that never end. Its programs are stopped at the ends of the loops that they are in,
            /// a little later, and who reads what they write gets an
            /// [`Error::TimeLimit`](crate::Error::TimeLimit) that names one of them and its loop.
            ///
            /// The variable `TILEWRIGHT_TIME_LIMIT`, in seconds, does this for all launches on the CPU
            /// that do not say otherwise. Nothing can stop a kernel that runs on a GPU, so there a call
            /// with a limit is refused with [`Error::Unsupported`](crate::Error::Unsupported), and the
            /// variable does nothing.
            #[inline]
            pub fn time_limit(mut self, limit: Duration) -> Self {
                self.invocation.time_limit = Some(limit);
                self
            }

            /// The stream that the kernel runs on, instead of the device's default stream.
            #[inline]
            pub fn stream(mut self, stream: &'a Stream) -> Self {
                self.invocation.stream = Some(stream);
                self
            }

            /// The constexprs.
            pub fn consts(&self) -> &C {
                &self.consts
            }

            /// The call without its types, and the programs along each axis.
            pub(super) fn into_parts(self) -> (Box<Invocation<'a>>, [i64; 3])
            where
                G: HasGrid,
            {
                (self.invocation, self.grid.programs())
            }

            /// Others, which the invocation has been given.
            #[inline]
            pub(super) fn set_consts(&mut self, consts: C) {
                self.consts = consts;
            }
        }

        impl<'a, C, G: MaybeGrid> $call<'a, C, G> {
            /// The code that a launch with these arguments runs on a GPU of that kind. Needs no
            /// GPU.
            ///
            /// With a grid, [`CompiledKernel::variant`] says which variant that is: the fast one, or the one that checks
            /// every access, and then which launch conditions do not hold, and why. Without a grid it is the fast one.
            ///
            /// # Errors
            ///
            /// Those of a first launch: [`Error::Compile`](crate::Error::Compile),
            /// [`Error::Resources`](crate::Error::Resources),
            /// [`Error::Llvm`](crate::Error::Llvm),
            /// [`Error::InvalidGrid`](crate::Error::InvalidGrid).
            pub fn compile(&self, target: Target) -> Result<CompiledKernel> {
                self.invocation.compile(target, self.grid.known())
            }

            /// What the program's archives have for this launch on a GPU of that kind, so that a test can tell, without a GPU
            /// and whether or not there is a compiler, that a program ships what it launches.
            ///
            /// # Errors
            ///
            /// [`Error::MissingCode`](crate::Error::MissingCode) where nothing serves, with the line that adds it to an
            /// archive; [`Error::Compile`](crate::Error::Compile) if constexprs or dtypes do not fit the kernel.
            pub fn shipped(&self, target: Target) -> Result<Shipped> {
                self.invocation.shipped(target)
            }

            /// As `compile`, for the GPU `device` and loaded there, so that the report says how
            /// many registers the driver's compiler gave it, and the timings what a first launch
            /// costs.
            ///
            /// # Errors
            ///
            /// As for `compile`; [`Error::Unsupported`](crate::Error::Unsupported) on the CPU,
            /// which compiles nothing.
            pub fn compile_on(&self, device: &Device) -> Result<CompiledKernel> {
                self.invocation.compile_on(device, self.grid.known())
            }
        }

        impl<C, G> Delays for $call<'_, C, G> {
            fn delays(mut self, seed: u64) -> Self {
                self.invocation.tuning.delays = Some(seed);
                self
            }
        }

        impl<C: fmt::Debug, G: fmt::Debug> fmt::Debug for $call<'_, C, G> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($call))
                    .field("kernel", &self.invocation.kernel)
                    .field("consts", &self.consts)
                    .field("grid", &self.grid)
                    .finish_non_exhaustive()
            }
        }
    )*};
}

calls! {
    /// A safe kernel with its constexprs `C`, its arguments, and its grid `G` if that is known.
    Call, Safe;
    /// An `unsafe fn` kernel with its constexprs `C`, its arguments, and its grid `G` if that is
    /// known. Nothing is checked when it runs.
    UnsafeCall, Unsafe;
}

// Written out rather than by the macro above, which compilers would mention in errors about grids.

impl<'a, C> Call<'a, C> {
    /// How many programs run: a number, or a tuple or array of up to three. A zero among them
    /// means that nothing runs, which is no error.
    #[inline]
    pub fn grid(self, grid: impl IntoGrid) -> Call<'a, C, Grid> {
        Call { invocation: self.invocation, consts: self.consts, grid: Grid(grid.into_grid()) }
    }

    /// How many programs run, computed from the constexprs: `.grid_with(|c| n.div_ceil(c.BLOCK))`.
    #[inline]
    pub fn grid_with<I: IntoGrid>(self, grid: impl FnOnce(&C) -> I) -> Call<'a, C, Grid> {
        let grid = grid(&self.consts);
        self.grid(grid)
    }
}

impl<'a, C> UnsafeCall<'a, C> {
    /// As [`Call::grid`].
    #[inline]
    pub fn grid(self, grid: impl IntoGrid) -> UnsafeCall<'a, C, Grid> {
        UnsafeCall { invocation: self.invocation, consts: self.consts, grid: Grid(grid.into_grid()) }
    }

    /// As [`Call::grid_with`].
    #[inline]
    pub fn grid_with<I: IntoGrid>(self, grid: impl FnOnce(&C) -> I) -> UnsafeCall<'a, C, Grid> {
        let grid = grid(&self.consts);
        self.grid(grid)
    }
}

impl<C, G> Call<'_, C, G> {
    /// Starts the kernel. On a GPU it runs after `launch` returns, in the order of its stream;
    /// buffers may be used, moved and dropped at once, as everything that needs to waits. On the
    /// CPU it has run when `launch` returns.
    ///
    /// The first launch with these constexprs, dtypes and kinds of arguments compiles the kernel.
    ///
    /// # Errors
    ///
    /// What keeps the kernel from starting. [`Error::InvalidGrid`], [`Error::WrongDevice`],
    /// [`Error::InvalidSetting`] for options, [`Error::Compile`], [`Error::Resources`],
    /// [`Error::Llvm`], [`Error::OutOfMemory`], [`Error::Driver`].
    ///
    /// An error while it runs ([`Error::OutOfBounds`], [`Error::AssertFailed`], [`Error::TimeLimit`]) is
    /// returned by the next operation that reads data which depends on the launch, or synchronises its
    /// stream; never by a later launch. A buffer that the launch writes depends on it until the host sets
    /// all of it, and so does what later launches and copies derive from it, whatever else is written
    /// there meanwhile. Each error is delivered once, the oldest first.
    ///
    /// [`Error::InvalidGrid`]: crate::Error::InvalidGrid
    /// [`Error::WrongDevice`]: crate::Error::WrongDevice
    /// [`Error::InvalidSetting`]: crate::Error::InvalidSetting
    /// [`Error::Compile`]: crate::Error::Compile
    /// [`Error::Resources`]: crate::Error::Resources
    /// [`Error::Llvm`]: crate::Error::Llvm
    /// [`Error::OutOfMemory`]: crate::Error::OutOfMemory
    /// [`Error::Driver`]: crate::Error::Driver
    /// [`Error::OutOfBounds`]: crate::Error::OutOfBounds
    /// [`Error::AssertFailed`]: crate::Error::AssertFailed
    /// [`Error::TimeLimit`]: crate::Error::TimeLimit
    #[inline]
    pub fn launch(self, device: &Device) -> Result<()>
    where
        G: HasGrid,
    {
        Invocation::launch(self.invocation, self.grid.programs(), device)
    }
}

impl<C, G> UnsafeCall<'_, C, G> {
    /// Starts the kernel, as [`Call::launch`] does.
    ///
    /// # Safety
    ///
    /// Every access of every program stays inside the buffer that its pointer came from, and what
    /// the kernel assumes of its arguments holds.
    ///
    /// # Errors
    ///
    /// As for [`Call::launch`].
    #[inline]
    pub unsafe fn launch(self, device: &Device) -> Result<()>
    where
        G: HasGrid,
    {
        Invocation::launch(self.invocation, self.grid.programs(), device)
    }
}
