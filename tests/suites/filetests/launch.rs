//! `; run:` lines as launches of the runtime.

use kernel_core::ir::{Func, Generic, Level, Literal, Param, ParamKind, Safety};
use kernel_core::num::{normalise, to_bits};
use kernel_core::passes::Bindings;
use kernel_core::text::print;
use kernel_core::verify::verify;
use tilewright::launch::{Call, Kernel};
use tilewright::{Device, Error, Target};
use tilewright_tests::assembler::assemble;
use tilewright_tests::case::{AnyBuffer, leak, pass_const, pass_dtype, pass_scalar};
use tilewright_tests::data::{Data, show};

use crate::cases::{Argument, Case, RunLine, bind, comparable};
use crate::text;

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
                bind::bindings(&func, &arguments[1..])?
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
        let compiled = self.call(&arguments, &mut buffers)?.compile(target);
        let compiled = compiled.map_err(|error| format!("for {}: {error}", target.name()))?;
        assemble(compiled.ptx(), target.name());
        Ok(())
    }

    /// Launches and compares.
    pub fn check(&self, line: &str, device: &Device, warps: Option<u32>) -> Result<(), String> {
        let run = RunLine::parse(line)?;
        let arguments = run.arguments(&self.bound)?;
        let mut buffers = upload(device, &arguments).map_err(|error| error.to_string())?;
        let call = self.call(&arguments, &mut buffers)?;
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

    fn call<'a>(&self, arguments: &[Argument], buffers: &'a mut [Option<AnyBuffer>]) -> Result<Call<'a, ()>, String> {
        let mut call = Call::new(self.kernel, ());
        for &dtype in &self.bindings.dtypes {
            call = pass_dtype(call, dtype);
        }
        for &value in &self.bindings.consts {
            call = call.constant(value);
        }
        let mut constants = self.bindings.const_scalars.iter();
        let mut given = arguments.iter().zip(buffers);
        for param in &self.func.params {
            call = match param.kind {
                ParamKind::ConstScalar(_) => {
                    let literal = constants.next().ok_or_else(|| format!("`{}` is not bound", param.name))?;
                    self.pass_constant(call, param, *literal)?
                }
                _ => match (&param.kind, given.next()) {
                    (ParamKind::Ptr { mutable: true, .. }, Some((_, Some(buffer)))) => buffer.pass_mut(call),
                    (ParamKind::Ptr { mutable: false, .. }, Some((_, Some(buffer)))) => buffer.pass(call),
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
