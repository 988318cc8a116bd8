//! A case as a launch of the runtime: the way of users, down to the GPU.

use kernel_core::interp::{HostBuffer, HostElement, HostTensor};
use kernel_core::ir::{Facts, Generic, Level, Param, ParamKind};
use kernel_core::text::print;
use tilewright::launch::{Call, Kernel, KernelSource, SourceFile};
use tilewright::{Buffer, DType, Device, Error, TensorDesc, TensorDescMut};

use super::{Agreement, Checked, Exactness, Oracle, differs, is_load};
use crate::case::Case;

/// Memory on a device, of any dtype.
trait Memory {
    /// What a parameter takes of it.
    fn argument<'b>(&'b mut self, mutable: bool, tensor: Option<&HostTensor>) -> Result<Box<dyn Argument + 'b>, Error>;
    /// Its elements.
    fn read(&self) -> Result<HostBuffer, Error>;
}

/// Something that is passed to a launch.
trait Argument {
    fn pass<'c>(&'c mut self, call: Call<'c, ()>) -> Call<'c, ()>;
}

struct Reads<'b, T: DType>(&'b Buffer<T>);
struct Writes<'b, T: DType>(&'b mut Buffer<T>);
struct Number(i32);

impl<T: DType> Argument for Reads<'_, T> {
    fn pass<'c>(&'c mut self, call: Call<'c, ()>) -> Call<'c, ()> {
        call.ptr(self.0)
    }
}

impl<T: DType> Argument for Writes<'_, T> {
    fn pass<'c>(&'c mut self, call: Call<'c, ()>) -> Call<'c, ()> {
        call.ptr_mut(&mut *self.0)
    }
}

impl Argument for Number {
    fn pass<'c>(&'c mut self, call: Call<'c, ()>) -> Call<'c, ()> {
        call.scalar(self.0)
    }
}

impl<T: DType, const RANK: usize> Argument for TensorDesc<'_, T, RANK> {
    fn pass<'c>(&'c mut self, call: Call<'c, ()>) -> Call<'c, ()> {
        call.desc(&*self)
    }
}

impl<T: DType, const RANK: usize> Argument for TensorDescMut<'_, T, RANK> {
    fn pass<'c>(&'c mut self, call: Call<'c, ()>) -> Call<'c, ()> {
        call.desc_mut(self)
    }
}

/// A buffer seen as a tensor of that rank.
fn described<'b, T: DType, const RANK: usize>(
    buffer: &'b mut Buffer<T>,
    mutable: bool,
    tensor: &HostTensor,
) -> Result<Box<dyn Argument + 'b>, Error> {
    let sizes = |sizes: &[u64]| {
        let mut all = [0; RANK];
        all.iter_mut().zip(sizes).for_each(|(to, &size)| *to = size as usize);
        all
    };
    let (shape, strides) = (sizes(&tensor.shape), sizes(&tensor.strides));
    Ok(match mutable {
        true => Box::new(TensorDescMut::<T, RANK>::with_strides(buffer, shape, strides)?),
        false => Box::new(TensorDesc::<T, RANK>::with_strides(&*buffer, shape, strides)?),
    })
}

impl<T: DType + HostElement> Memory for Buffer<T> {
    fn argument<'b>(&'b mut self, mutable: bool, tensor: Option<&HostTensor>) -> Result<Box<dyn Argument + 'b>, Error> {
        match tensor {
            Some(tensor) => match tensor.shape.len() {
                1 => described::<T, 1>(self, mutable, tensor),
                2 => described::<T, 2>(self, mutable, tensor),
                3 => described::<T, 3>(self, mutable, tensor),
                4 => described::<T, 4>(self, mutable, tensor),
                _ => described::<T, 5>(self, mutable, tensor),
            },
            None if mutable => Ok(Box::new(Writes(self))),
            None => Ok(Box::new(Reads(&*self))),
        }
    }

    fn read(&self) -> Result<HostBuffer, Error> {
        Ok(HostBuffer::from(self.to_vec()?))
    }
}

fn upload(device: &Device, buffer: &HostBuffer) -> Result<Box<dyn Memory>, Error> {
    macro_rules! by_dtype {
        ($($variant:ident)*) => {
            match buffer {
                $(HostBuffer::$variant(elements) => Ok(Box::new(device.upload(elements)?)),)*
            }
        };
    }
    by_dtype!(Bool I8 I16 I32 I64 U8 U16 U32 U64 F8E4M3 F8E5M2 F16 BF16 F32 F64)
}

/// The kernel as the front end would embed it: what is known of arguments is the runtime's to find.
fn embedded(case: &Case) -> Checked<&'static Kernel> {
    let mut func = case.kernel.func().clone();
    func.level = Level::Generic;
    func.params.iter_mut().for_each(|param| param.facts = Facts::default());
    let generic = Generic::new(func).map_err(|_| differs("runtime", "the kernel cannot be generic"))?;
    let text = print(generic.func());
    // Launches are cached for the life of the process, and so are their kernels.
    Ok(Box::leak(Box::new(Kernel::new(KernelSource {
        name: "fuzz",
        module: "fuzz",
        files: &[SourceFile { name: "fuzz", lines: &[] }],
        ir: String::leak(text),
        num_warps: None,
        num_stages: None,
        max_registers: None,
    }))))
}

/// Whether a parameter may be written through.
fn mutable(param: &Param) -> bool {
    matches!(param.kind, ParamKind::Ptr { mutable: true, .. } | ParamKind::Desc { mutable: true, .. })
}

/// Launches a case on a device, and compares with the interpreter.
///
/// # Errors
/// The first difference, which may be an error of the launch.
pub fn check_on(case: &Case, device: &Device) -> Checked<Agreement> {
    let oracle = Oracle::new(case)?;
    let kernel = embedded(case)?;
    let text = |error: Error| differs("runtime", error.to_string());
    let mut memory: Vec<Box<dyn Memory>> = Vec::new();
    for buffer in &oracle.before {
        memory.push(upload(device, buffer).map_err(text)?);
    }
    if let Some(refused) = launched(case, device, kernel, &mut memory, &oracle)? {
        return Ok(Agreement::Refused(refused));
    }
    let mut buffers = Vec::new();
    for buffer in &memory {
        match buffer.read() {
            Ok(buffer) => buffers.push(buffer),
            // The launch's own error, which was expected, may be told once more.
            Err(_) if oracle.expected.fault.is_some() => return Ok(Agreement::Full),
            Err(error) => return Err(text(error)),
        }
    }
    oracle.compare_buffers("runtime", &buffers, Exactness::Numbers)?;
    Ok(Agreement::Full)
}

/// Launches and waits; why the kernel was refused, if it was.
fn launched(
    case: &Case,
    device: &Device,
    kernel: &'static Kernel,
    memory: &mut [Box<dyn Memory>],
    oracle: &Oracle<'_>,
) -> Checked<Option<String>> {
    let text = |error: Error| differs("runtime", error.to_string());
    let mut arguments: Vec<Box<dyn Argument + '_>> = Vec::new();
    let (mut buffers, mut scalars) = (memory.iter_mut().zip(&case.inputs), case.scalars.iter());
    for param in &case.kernel.func().params {
        if matches!(param.kind, ParamKind::Scalar(_)) {
            arguments.push(Box::new(Number(scalars.next().copied().unwrap_or(0))));
        } else if let Some((buffer, input)) = buffers.next() {
            arguments.push(buffer.argument(mutable(param), input.tensor.as_ref()).map_err(text)?);
        }
    }
    let mut call = Call::new(kernel, ()).num_warps(case.options.num_warps).num_stages(case.options.num_stages);
    for argument in &mut arguments {
        call = argument.pass(call);
    }
    let launched = call.grid(case.grid as usize).launch(device).and_then(|()| device.synchronize());
    match (launched, &oracle.expected.fault) {
        (Ok(()), None) | (Err(Error::OutOfBounds { .. }), Some(_)) => Ok(None),
        // Nobody may miss what a load would have read.
        (Ok(()), Some(fault)) if is_load(fault) => Ok(None),
        (Ok(()), Some(fault)) => Err(differs("runtime", format!("no fault where there should be: {fault}"))),
        (Err(Error::Resources { what, .. }), _) => Ok(Some(what.to_string())),
        (Err(error), _) => Err(text(error)),
    }
}
