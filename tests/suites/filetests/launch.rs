//! `; run:` lines as launches of the runtime.

use kernel_core::interp::HostTensor;
use kernel_core::ir::{Func, Generic, Level, Literal, Param, ParamKind, Safety};
use kernel_core::num::{normalise, to_bits};
use kernel_core::passes::Bindings;
use kernel_core::text::print;
use kernel_core::verify::verify;
use tilewright::launch::{Call, Kernel};
use tilewright::{Device, Error, Target, TensorDesc, TensorDescMut};
use tilewright_tests::assembler::assemble;
use tilewright_tests::case::{AnyBuffer, leak, pass_const, pass_dtype, pass_scalar};
use tilewright_tests::data::{Data, show};

use crate::text;
use tilewright_filetests::{Argument, Case, RunLine, bindings, comparable};

/// A case as the runtime takes it.
pub struct Launch {
    kernel: &'static Kernel,
    /// The generic kernel.
    func: Func,
    bindings: Bindings,
    /// What the stages made of it, which names the arguments.
    bound: Func,
}

impl Launch {
    /// The generic kernel of the case with what its stage `bind` gives; a kernel that is bound as it stands in the
    /// file is a generic one without parameters to bind.
    ///
    /// Unsafe kernels are launched as safe ones: what a `; run:` line says holds for them too, faults included.
    pub fn new(case: &Case<'_>) -> Result<Launch, String> {
        let mut func = case.source().map_err(text)?;
        func.safety = Safety::Safe;
        let bindings = match func.level {
            Level::Generic => {
                let arguments = case.stages().find(|words| words.first() == Some(&"bind"));
                let arguments = arguments.ok_or("a generic kernel with a `; run:` line needs a stage `bind`")?;
                bindings(&func, &arguments[1..])?
            }
            Level::Bound | Level::Placed => {
                func.level = Level::Generic;
                Bindings::default()
            }
        };
        verify(&func).map_err(|errors| format!("only kernels that are generic can be launched: {}", errors[0]))?;
        let generic = Generic::new(func).map_err(|_| "the kernel is not generic")?.into_func();
        let bound = case.run_stages().map_err(text)?;
        Ok(Launch { kernel: leak(&generic.name, &print(&generic)), func: generic, bindings, bound })
    }

    /// Generates code for a GPU, and assembles it where there is an assembler.
    pub fn compile(&self, line: &str, target: Target) -> Result<(), String> {
        let arguments = RunLine::parse(line)?.arguments(&self.bound)?;
        let mut buffers = upload(&Device::cpu(), &arguments).map_err(|error| error.to_string())?;
        let mut given = self.given(&arguments, &mut buffers)?;
        let compiled = self.call(&arguments, &mut given)?.compile(target);
        let compiled = compiled.map_err(|error| format!("for {}: {error}", target.name()))?;
        assemble(compiled.ptx(), target.name());
        Ok(())
    }

    /// Launches and compares.
    pub fn check(&self, line: &str, device: &Device, warps: Option<u32>) -> Result<(), String> {
        let run = RunLine::parse(line)?;
        let arguments = run.arguments(&self.bound)?;
        let mut buffers = upload(device, &arguments).map_err(|error| error.to_string())?;
        let mut given = self.given(&arguments, &mut buffers)?;
        let call = self.call(&arguments, &mut given)?;
        let call = match warps {
            Some(warps) => call.num_warps(warps),
            None => call,
        };
        let launched = call.grid(run.grid()?.map(i64::from)).launch(device);
        match (launched.and_then(|()| device.synchronize()), run.fault) {
            (Ok(()), None) => {}
            (Ok(()), Some(text)) => return Err(format!("no fault, but `{text}` was expected")),
            (Err(error), Some(text)) if fault(&error).contains(text) => {}
            (Err(error), _) => return Err(fault(&error)),
        }
        for (argument, buffer) in arguments.iter().zip(&buffers) {
            let (Argument::Buffer { name, dtype, after: Some(after), .. }, Some(buffer)) = (argument, buffer) else {
                continue;
            };
            let found = buffer.read().map_err(|error| error.to_string())?;
            if comparable(*dtype, &found.bits) != comparable(*dtype, after) {
                let numbers = |bits: &[u64]| bits.iter().map(|&b| show(*dtype, b)).collect::<Vec<_>>().join(", ");
                return Err(format!("`{name}` is [{}], expected [{}]", numbers(&found.bits), numbers(after)));
            }
        }
        Ok(())
    }

    /// The buffers, or what descriptors make of them.
    fn given<'a>(
        &self,
        arguments: &[Argument],
        buffers: &'a mut [Option<AnyBuffer>],
    ) -> Result<Vec<Given<'a>>, String> {
        let mutable = |name: &str| {
            let kind = self.func.params.iter().find(|p| p.name == name).map(|p| &p.kind);
            matches!(kind, Some(ParamKind::Desc { mutable: true, .. }))
        };
        let one = |(argument, buffer): (&Argument, &'a mut Option<AnyBuffer>)| match (argument, buffer) {
            (Argument::Buffer { name, tensor: Some(tensor), .. }, Some(buffer)) => {
                Given::tensor(buffer, tensor, mutable(name))
            }
            (Argument::Buffer { .. }, Some(buffer)) => Ok(Given::Buffer(buffer)),
            (Argument::Buffer { .. } | Argument::Scalar(..), _) => Ok(Given::Nothing),
        };
        arguments.iter().zip(buffers).map(one).collect()
    }

    fn call<'a>(&self, arguments: &[Argument], given: &'a mut [Given<'_>]) -> Result<Call<'a, ()>, String> {
        let mut call = Call::new(self.kernel, ());
        for &dtype in &self.bindings.dtypes {
            call = pass_dtype(call, dtype);
        }
        for &value in &self.bindings.consts {
            call = call.constant(value);
        }
        let mut constants = self.bindings.const_scalars.iter();
        let mut given = arguments.iter().zip(given);
        for param in &self.func.params {
            call = match param.kind {
                ParamKind::ConstScalar(_) => {
                    let literal = constants.next().ok_or_else(|| format!("`{}` is not bound", param.name))?;
                    self.pass_constant(call, param, *literal)?
                }
                _ => match (&param.kind, given.next()) {
                    (ParamKind::Ptr { mutable: true, .. }, Some((_, Given::Buffer(buffer)))) => buffer.pass_mut(call),
                    (ParamKind::Ptr { mutable: false, .. }, Some((_, Given::Buffer(buffer)))) => buffer.pass(call),
                    (ParamKind::Desc { .. }, Some((_, Given::I32(tensor)))) => call.desc(&*tensor),
                    (ParamKind::Desc { .. }, Some((_, Given::F32(tensor)))) => call.desc(&*tensor),
                    (ParamKind::Desc { .. }, Some((_, Given::I32Mut(tensor)))) => call.desc_mut(tensor),
                    (ParamKind::Desc { .. }, Some((_, Given::F32Mut(tensor)))) => call.desc_mut(tensor),
                    (ParamKind::Scalar(_), Some((Argument::Scalar(dtype, bits), _))) => {
                        pass_scalar(call, *dtype, *bits)
                    }
                    _ => return Err(format!("`{}` cannot be passed", param.name)),
                },
            };
        }
        Ok(call)
    }

    fn pass_constant<'a>(&self, call: Call<'a, ()>, param: &Param, value: Literal) -> Result<Call<'a, ()>, String> {
        let dtype = self.bound.params.iter().find(|p| p.name == param.name).and_then(|p| match p.kind {
            ParamKind::ConstScalar(dt) => dt.known(),
            _ => None,
        });
        let dtype = dtype.ok_or_else(|| format!("`{}` has no dtype", param.name))?;
        let bits = normalise(value, dtype).and_then(|value| to_bits(value, dtype));
        Ok(pass_const(call, dtype, bits.ok_or_else(|| format!("`{}` is no {dtype}", param.name))?))
    }
}

/// An argument's memory. Descriptors of the files are of matrices of `i32` or `f32`.
enum Given<'a> {
    Nothing,
    Buffer(&'a mut AnyBuffer),
    I32(TensorDesc<'a, i32, 2>),
    I32Mut(TensorDescMut<'a, i32, 2>),
    F32(TensorDesc<'a, f32, 2>),
    F32Mut(TensorDescMut<'a, f32, 2>),
}

impl<'a> Given<'a> {
    fn tensor(buffer: &'a mut AnyBuffer, tensor: &HostTensor, mutable: bool) -> Result<Given<'a>, String> {
        let two = |sizes: &[u64]| <[u64; 2]>::try_from(sizes).map(|sizes| sizes.map(|size| size as usize));
        let (Ok(shape), Ok(strides)) = (two(&tensor.shape), two(&tensor.strides)) else {
            return Err("the descriptors of `; run:` lines are of matrices".to_string());
        };
        let text = |error: Error| error.to_string();
        match (buffer, mutable) {
            (AnyBuffer::I32(buffer), true) => {
                TensorDescMut::with_strides(buffer, shape, strides).map(Given::I32Mut).map_err(text)
            }
            (AnyBuffer::I32(buffer), false) => {
                TensorDesc::with_strides(&*buffer, shape, strides).map(Given::I32).map_err(text)
            }
            (AnyBuffer::F32(buffer), true) => {
                TensorDescMut::with_strides(buffer, shape, strides).map(Given::F32Mut).map_err(text)
            }
            (AnyBuffer::F32(buffer), false) => {
                let desc = TensorDesc::with_strides(&*buffer, shape, strides).map_err(text)?;
                Ok(Given::F32(if tensor.pads_with_nan { desc.with_nan_padding() } else { desc }))
            }
            _ => Err("the descriptors of `; run:` lines are of `i32` or `f32`".to_string()),
        }
    }
}

/// The buffers of the arguments; none for scalars.
fn upload(device: &Device, arguments: &[Argument]) -> Result<Vec<Option<AnyBuffer>>, Error> {
    let buffer = |argument: &Argument| match argument {
        Argument::Buffer { dtype, bits, .. } => {
            AnyBuffer::upload(device, &Data::new(*dtype, bits.iter().copied())).map(Some)
        }
        Argument::Scalar(..) => Ok(None),
    };
    arguments.iter().map(buffer).collect()
}

/// An error in the words of the interpreter, which the files use.
fn fault(error: &Error) -> String {
    match error {
        Error::OutOfBounds { .. } => format!("out of bounds: {error}"),
        error => error.to_string(),
    }
}
