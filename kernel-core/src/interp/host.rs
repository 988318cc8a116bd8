//! Running kernels on vectors: for tests, and for whoever wants no device.

use half::{bf16, f16};

use crate::ir::{Bound, DType, Dt, Func, MAX_TENSOR_RANK, Param, ParamId, ParamKind, Placed, Recipe};
use crate::num::{F8E4M3, F8E5M2};

use super::buffers::Tensor;
use super::fault::{Fault, FaultKind};
use super::launch::{Arg, Program};

/// A Rust type that is the element of a buffer.
pub trait HostElement: Copy + Sized + 'static {
    /// Its dtype.
    const DTYPE: DType;
    /// The elements of a buffer, if it has this type.
    fn slice(buffer: &HostBuffer) -> Option<&[Self]>;
    /// A buffer of these elements.
    fn buffer(elements: Vec<Self>) -> HostBuffer;
    /// The bits of a scalar.
    fn bits(self) -> u64;
}

macro_rules! host_buffers {
    ($($(#[doc = $doc:literal])* $variant:ident($ty:ty): |$x:ident| $bits:expr;)*) => {
        /// A vector of elements of some dtype.
        #[derive(Clone, PartialEq, Debug)]
        pub enum HostBuffer {
            $($(#[doc = $doc])* $variant(Vec<$ty>),)*
        }

        impl HostBuffer {
            /// The dtype of the elements.
            pub fn dtype(&self) -> DType {
                match self { $(HostBuffer::$variant(_) => DType::$variant,)* }
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                match self { $(HostBuffer::$variant(v) => v.len(),)* }
            }

            /// `len` elements of `dtype` whose bits are zero.
            pub fn zeros(dtype: DType, len: usize) -> HostBuffer {
                match dtype { $(DType::$variant => HostBuffer::$variant(vec![<$ty>::default(); len]),)* }
            }

            fn arg(&mut self) -> Arg {
                match self {
                    $(HostBuffer::$variant(v) => Arg::Buffer { ptr: v.as_mut_ptr().cast(), len: v.len() },)*
                }
            }
        }

        $(
            impl HostElement for $ty {
                const DTYPE: DType = DType::$variant;
                fn slice(buffer: &HostBuffer) -> Option<&[$ty]> {
                    if let HostBuffer::$variant(v) = buffer { Some(v) } else { None }
                }
                fn buffer(elements: Vec<$ty>) -> HostBuffer {
                    HostBuffer::$variant(elements)
                }
                fn bits(self) -> u64 {
                    let $x = self;
                    $bits
                }
            }
        )*
    };
}

host_buffers! {
    /// Truth values.
    Bool(bool): |x| u64::from(x);
    /// 8-bit signed integers.
    I8(i8): |x| x as u64;
    /// 16-bit signed integers.
    I16(i16): |x| x as u64;
    /// 32-bit signed integers.
    I32(i32): |x| x as u64;
    /// 64-bit signed integers.
    I64(i64): |x| x as u64;
    /// 8-bit unsigned integers.
    U8(u8): |x| u64::from(x);
    /// 16-bit unsigned integers.
    U16(u16): |x| u64::from(x);
    /// 32-bit unsigned integers.
    U32(u32): |x| u64::from(x);
    /// 64-bit unsigned integers.
    U64(u64): |x| x;
    /// 8-bit floats with 4 bits of exponent.
    F8E4M3(F8E4M3): |x| u64::from(x.to_bits());
    /// 8-bit floats with 5 bits of exponent.
    F8E5M2(F8E5M2): |x| u64::from(x.to_bits());
    /// IEEE 754 binary16.
    F16(f16): |x| u64::from(x.to_bits());
    /// bfloat16.
    BF16(bf16): |x| u64::from(x.to_bits());
    /// IEEE 754 binary32.
    F32(f32): |x| u64::from(x.to_bits());
    /// IEEE 754 binary64.
    F64(f64): |x| x.to_bits();
}

impl HostBuffer {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are of that type.
    pub fn as_slice<T: HostElement>(&self) -> Option<&[T]> {
        T::slice(self)
    }
}

impl<T: HostElement> From<Vec<T>> for HostBuffer {
    fn from(elements: Vec<T>) -> HostBuffer {
        T::buffer(elements)
    }
}

/// A scalar argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostScalar {
    dtype: DType,
    bits: u64,
}

impl HostScalar {
    /// The scalar of that dtype with these low bits.
    pub fn from_bits(dtype: DType, bits: u64) -> HostScalar {
        HostScalar { dtype, bits }
    }
}

impl<T: HostElement> From<T> for HostScalar {
    fn from(value: T) -> HostScalar {
        HostScalar { dtype: T::DTYPE, bits: value.bits() }
    }
}

/// Runs a bound kernel: buffers and scalars go to the parameters of their kind in order. `Const` parameters, whose
/// values are folded, take nothing.
///
/// # Errors
/// The launch's first [`Fault`]; [`FaultKind::InvalidLaunch`] if the number or a dtype of the arguments is wrong.
pub fn run_kernel(
    func: &Bound,
    buffers: &mut [HostBuffer],
    scalars: &[HostScalar],
    grid: [u32; 3],
) -> Result<(), Fault> {
    run(&Program::new(func), func.func(), Given { buffers, tensors: &[], scalars }, grid)
}

/// [`run_kernel`] of a placed kernel.
///
/// # Errors
/// As [`run_kernel`].
pub fn run_placed(
    func: &Placed,
    buffers: &mut [HostBuffer],
    scalars: &[HostScalar],
    grid: [u32; 3],
) -> Result<(), Fault> {
    run(&Program::from_placed(func), func.func(), Given { buffers, tensors: &[], scalars }, grid)
}

/// How a buffer is seen through a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostTensor {
    /// Sizes, outermost first.
    pub shape: Vec<u64>,
    /// Distances of neighbours, in elements.
    pub strides: Vec<u64>,
    /// Whether elements outside read as NaN instead of as zero.
    pub pads_with_nan: bool,
}

impl HostTensor {
    /// A tensor whose elements lie next to each other, in row-major order.
    pub fn contiguous(shape: &[u64]) -> HostTensor {
        let mut stride = 1;
        let mut strides: Vec<u64> = shape
            .iter()
            .rev()
            .map(|&size| {
                let own = stride;
                stride *= size;
                own
            })
            .collect();
        strides.reverse();
        HostTensor { shape: shape.to_vec(), strides, pads_with_nan: false }
    }

    /// The tensor that a kernel makes itself of the arguments before it.
    fn made(param: &Param, recipe: &Recipe, args: &[Arg]) -> Result<Arg, String> {
        let extents = recipe.evaluate(|id| match args.get(id.index()) {
            Some(&Arg::Scalar(bits)) => bits,
            Some(Arg::Buffer { .. } | Arg::Tensor(_)) | None => 0,
        });
        let (sizes, strides) = extents.lists().map_err(|problem| format!("it {problem}"))?;
        let wide = |list: &[usize]| list[..extents.rank].iter().map(|&n| n as u64).collect();
        let tensor =
            HostTensor { shape: wide(&sizes), strides: wide(&strides), pads_with_nan: param.facts.pads_with_nan };
        let (Some(&Arg::Buffer { ptr, len }), Some(dtype)) =
            (args.get(recipe.base.index()), param.kind.dt().and_then(Dt::known))
        else {
            return Err("it lies in no buffer".to_string());
        };
        let offset = usize::try_from(extents.offset).ok().filter(|offset| *offset <= len);
        let offset = offset.ok_or_else(|| format!("it begins at element {} of {len}", extents.offset))?;
        let first = ptr.wrapping_add(offset * dtype.bytes() as usize);
        tensor.of(first, len - offset).map(Arg::Tensor)
    }

    /// The tensor in a buffer, if it fits.
    fn of(&self, ptr: *mut u8, len: usize) -> Result<Tensor, String> {
        let rank = self.shape.len();
        if rank == 0 || rank > MAX_TENSOR_RANK || self.strides.len() != rank {
            return Err(format!(
                "a tensor has 1 to 5 sizes and as many strides, not {rank} and {}",
                self.strides.len()
            ));
        }
        let mut tensor = Tensor {
            ptr,
            rank,
            shape: [1; MAX_TENSOR_RANK],
            strides: [0; MAX_TENSOR_RANK],
            pads_with_nan: self.pads_with_nan,
        };
        tensor.shape[..rank].copy_from_slice(&self.shape);
        tensor.strides[..rank].copy_from_slice(&self.strides);
        if tensor.span() > len {
            return Err(format!("the tensor reaches over {} elements, its buffer has {len}", tensor.span()));
        }
        Ok(tensor)
    }
}

/// [`run_kernel`] of a kernel with tensor descriptors: each takes the next buffer, and the next of `tensors` says how
/// the buffer is seen.
///
/// # Errors
/// As [`run_kernel`].
pub fn run_with_tensors(
    func: &Bound,
    buffers: &mut [HostBuffer],
    tensors: &[HostTensor],
    scalars: &[HostScalar],
    grid: [u32; 3],
) -> Result<(), Fault> {
    run(&Program::new(func), func.func(), Given { buffers, tensors, scalars }, grid)
}

/// [`run_with_tensors`] of a placed kernel.
///
/// # Errors
/// As [`run_kernel`].
pub fn run_placed_with_tensors(
    func: &Placed,
    buffers: &mut [HostBuffer],
    tensors: &[HostTensor],
    scalars: &[HostScalar],
    grid: [u32; 3],
) -> Result<(), Fault> {
    run(&Program::from_placed(func), func.func(), Given { buffers, tensors, scalars }, grid)
}

/// [`run_placed_with_tensors`], in which accesses to shared memory that no barrier, wait or fence orders are faults.
///
/// # Errors
/// As [`run_kernel`], and [`FaultKind::Race`].
pub fn run_ordered(
    func: &Placed,
    buffers: &mut [HostBuffer],
    tensors: &[HostTensor],
    scalars: &[HostScalar],
    grid: [u32; 3],
) -> Result<(), Fault> {
    let program = Program::from_placed(func).checks_order();
    run(&program, func.func(), Given { buffers, tensors, scalars }, grid)
}

/// The arguments of a launch.
struct Given<'a> {
    buffers: &'a mut [HostBuffer],
    tensors: &'a [HostTensor],
    scalars: &'a [HostScalar],
}

/// Whether the argument of a parameter is a tensor: the compiler may have made a pointer of the descriptor.
fn takes_tensor(func: &Func, id: ParamId) -> bool {
    let measured = |param: &Param| matches!(param.kind, ParamKind::DescShape { of, .. } if of == id);
    matches!(func.param(id).kind, ParamKind::Desc { .. }) || func.params.iter().any(measured)
}

fn run(program: &Program, func: &Func, given: Given<'_>, grid: [u32; 3]) -> Result<(), Fault> {
    let invalid = |message: String| Fault::of_launch(FaultKind::InvalidLaunch { message });
    let (mut buffers, mut scalars) = (given.buffers.iter_mut(), given.scalars.iter());
    let mut tensors = given.tensors.iter();
    let mut args = Vec::new();
    for (id, param) in (0u32..).map(ParamId::new).zip(&func.params) {
        if param.facts.omitted {
            args.push(Arg::Scalar(0));
            continue;
        }
        if let Some(recipe) = &param.recipe {
            let made = HostTensor::made(param, recipe, &args)
                .map_err(|problem| invalid(format!("the tensor `{}`: {problem}", param.name)))?;
            args.push(made);
            continue;
        }
        let (expected, found) = match &param.kind {
            ParamKind::Ptr { dt, .. } | ParamKind::Desc { dt, .. } => {
                let buffer = buffers.next();
                let dtype = buffer.as_ref().map(|b| b.dtype());
                let mut arg = buffer.map(HostBuffer::arg);
                if takes_tensor(func, id)
                    && let Some(Arg::Buffer { ptr, len }) = arg
                {
                    let Some(tensor) = tensors.next() else {
                        return Err(invalid(format!("parameter `{}` takes a tensor", param.name)));
                    };
                    arg = Some(Arg::Tensor(tensor.of(ptr, len).map_err(&invalid)?));
                }
                args.extend(arg);
                (*dt, dtype)
            }
            ParamKind::Scalar(dt) => {
                let scalar = scalars.next();
                args.extend(scalar.map(|s| Arg::Scalar(s.bits)));
                (*dt, scalar.map(|s| s.dtype))
            }
            ParamKind::ConstScalar(_) => {
                args.push(Arg::Scalar(0));
                continue;
            }
            ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => continue,
        };
        if found != expected.known() || found.is_none() {
            let expected = expected.known().map_or("an unknown dtype", DType::name);
            let found = found.map_or("nothing", DType::name);
            return Err(invalid(format!("parameter `{}` is of {expected}, the argument of {found}", param.name)));
        }
    }
    if buffers.next().is_some() || scalars.next().is_some() || tensors.next().is_some() {
        return Err(invalid("there are more arguments than parameters".to_string()));
    }
    // SAFETY: every buffer argument is a vector of its parameter's dtype that is borrowed mutably, each by one
    // argument, so that nothing else accesses it, and tensors lie within their buffers.
    unsafe { program.run(&args, grid) }
}
