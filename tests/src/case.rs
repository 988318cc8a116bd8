//! A kernel, its arguments, and what must come out.

use std::fmt::Write as _;

use half::{bf16, f16};
use kernel_core::interp::HostBuffer;
use kernel_core::ir::{DType, Func};
use kernel_core::num::{F8E4M3, F8E5M2};
use kernel_core::{text, verify};
use tilewright::launch::{Call, Kernel, KernelSource, SourceFile};
use tilewright::{Buffer, Device, Error, Target};

use crate::assembler::assemble;
use crate::data::{Data, show};
use crate::devices::on_every_device;
use crate::expect::{Answer, compare};

/// An argument, in the order of the kernel's parameters.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A buffer that is read.
    In(Data),
    /// A buffer that is written.
    Out {
        /// What it is called in messages.
        label: String,
        /// What it holds before.
        before: Data,
        /// What it must hold afterwards.
        after: Vec<Answer>,
    },
    /// A scalar, by its bits.
    Scalar(DType, u64),
}

/// A kernel with arguments and expectations.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kernel, at the generic level.
    pub func: Func,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// Programs along each axis.
    pub grid: [usize; 3],
    kernel: &'static Kernel,
}

impl Case {
    /// A case from a kernel as the front end would embed it.
    ///
    /// The kernel must verify, and its text must read back as itself.
    pub fn new(func: Func, args: Vec<Arg>, grid: [usize; 3]) -> Case {
        let printed = text::print(&func);
        let again = text::parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(text::print(&again), printed, "the text form does not read back");
        if let Err(diagnostics) = verify::verify(&again) {
            let list: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
            panic!("{}\n{printed}", list.join("\n"));
        }
        Case { func, args, grid, kernel: leak(&again.name, &printed) }
    }

    /// Runs the kernel and compares, on every device. Where there is no GPU, code for one is generated all the same.
    pub fn check_on_every_device(&self) {
        on_every_device(|device| self.check(device));
        if Device::cuda_count() == 0 {
            self.compile(Target::sm_90a());
        }
    }

    /// Generates code for a GPU, and assembles it where there is an assembler.
    pub fn compile(&self, target: Target) {
        let mut buffers = self.upload(&Device::cpu()).unwrap_or_else(|error| panic!("{error}"));
        let compiled = self.call(&mut buffers).compile(target);
        let compiled = compiled.unwrap_or_else(|error| {
            panic!("{} for {}: {error}\n{}", self.func.name, target.name(), text::print(&self.func))
        });
        assemble(compiled.ptx(), target.name());
    }

    /// Runs the kernel on one device and compares.
    pub fn check(&self, device: &Device) {
        let results = match self.run(device) {
            Ok(results) => results,
            Err(error) => panic!("{} on {device}: {error}\n{}", self.func.name, text::print(&self.func)),
        };
        let mut wrong = String::new();
        for (arg, got) in self.outputs().zip(&results) {
            let (label, after) = arg;
            if let Err(text) = compare(got.dtype, &got.bits, after, &|i| self.describe_inputs(i)) {
                let _ = write!(wrong, "\n  {label}: {text}");
            }
        }
        assert!(wrong.is_empty(), "{} on {device}:{wrong}", self.func.name);
    }

    /// Runs the kernel and gives its outputs, in order.
    ///
    /// # Errors
    /// Those of the launch and of the kernel.
    pub fn run(&self, device: &Device) -> Result<Vec<Data>, Error> {
        let mut buffers = self.upload(device)?;
        self.call(&mut buffers).grid(self.grid).launch(device)?;
        let is_output = |arg: &Arg| matches!(arg, Arg::Out { .. });
        let outputs = self.args.iter().zip(buffers).filter(|(arg, _)| is_output(arg));
        outputs.filter_map(|(_, buffer)| buffer).map(|buffer| buffer.read()).collect()
    }

    /// The buffers of the arguments; none for scalars.
    fn upload(&self, device: &Device) -> Result<Vec<Option<AnyBuffer>>, Error> {
        let buffer = |arg: &Arg| match arg {
            Arg::In(data) | Arg::Out { before: data, .. } => AnyBuffer::upload(device, data).map(Some),
            Arg::Scalar(..) => Ok(None),
        };
        self.args.iter().map(buffer).collect()
    }

    fn call<'a>(&self, buffers: &'a mut [Option<AnyBuffer>]) -> Call<'a, ()> {
        let mut call = Call::new(self.kernel, ());
        for (arg, buffer) in self.args.iter().zip(buffers) {
            call = match (arg, buffer) {
                (Arg::In(_), Some(buffer)) => buffer.pass(call),
                (Arg::Out { .. }, Some(buffer)) => buffer.pass_mut(call),
                (Arg::Scalar(dtype, bits), _) => pass_scalar(call, *dtype, *bits),
                (Arg::In(_) | Arg::Out { .. }, None) => unreachable!("buffers have been uploaded"),
            };
        }
        call
    }

    fn outputs(&self) -> impl Iterator<Item = (&str, &[Answer])> {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Out { label, after, .. } => Some((label.as_str(), after.as_slice())),
            Arg::In(_) | Arg::Scalar(..) => None,
        })
    }

    /// The inputs at one index, where kernels are elementwise.
    fn describe_inputs(&self, index: usize) -> String {
        let inputs = self.args.iter().filter_map(|arg| match arg {
            Arg::In(data) => data.bits.get(index).map(|&bits| show(data.dtype, bits)),
            Arg::Out { .. } | Arg::Scalar(..) => None,
        });
        inputs.fold(String::new(), |all, one| format!("{all} {one}"))
    }
}

/// A kernel that lives as long as the process, as one that `#[kernel]` emits does.
pub fn leak(name: &str, ir: &str) -> &'static Kernel {
    Box::leak(Box::new(Kernel::new(KernelSource {
        name: String::leak(name.to_string()),
        module: "tests",
        files: &[SourceFile { name: "tests", lines: &[] }],
        ir: String::leak(ir.to_string()),
        num_warps: None,
        num_stages: None,
        max_registers: None,
    })))
}

macro_rules! any_buffer {
    ($($name:ident $ty:ty: |$bits:ident| $from:expr, |$value:ident| $to:expr;)*) => {
        /// A buffer of any dtype.
        pub enum AnyBuffer {
            $(#[allow(missing_docs)] $name(Buffer<$ty>),)*
        }

        impl AnyBuffer {
            /// A buffer with these elements.
            ///
            /// # Errors
            /// Those of [`Device::upload`].
            pub fn upload(device: &Device, data: &Data) -> Result<AnyBuffer, Error> {
                match data.dtype {
                    $(DType::$name => {
                        let elements: Vec<$ty> = data.bits.iter().map(|&$bits| $from).collect();
                        device.upload(&elements).map(AnyBuffer::$name)
                    })*
                }
            }

            /// Its elements.
            ///
            /// # Errors
            /// Those of the launch that wrote it.
            pub fn read(&self) -> Result<Data, Error> {
                match self {
                    $(AnyBuffer::$name(buffer) => {
                        let elements = buffer.to_vec()?;
                        Ok(Data::new(DType::$name, elements.into_iter().map(|$value| $to)))
                    })*
                }
            }

            /// Passes it to be read.
            pub fn pass<'a>(&'a self, call: Call<'a, ()>) -> Call<'a, ()> {
                match self {
                    $(AnyBuffer::$name(buffer) => call.ptr(buffer),)*
                }
            }

            /// Passes it to be written.
            pub fn pass_mut<'a>(&'a mut self, call: Call<'a, ()>) -> Call<'a, ()> {
                match self {
                    $(AnyBuffer::$name(buffer) => call.ptr_mut(buffer),)*
                }
            }
        }

        /// The elements as a buffer of the interpreter.
        pub fn to_host(data: &Data) -> HostBuffer {
            match data.dtype {
                $(DType::$name => HostBuffer::$name(data.bits.iter().map(|&$bits| $from).collect()),)*
            }
        }

        /// The elements of a buffer of the interpreter.
        pub fn from_host(buffer: &HostBuffer) -> Data {
            match buffer {
                $(HostBuffer::$name(elements) => Data::new(DType::$name, elements.iter().map(|&$value| $to)),)*
            }
        }

        /// Passes a scalar, by its bits.
        pub fn pass_scalar<'a>(call: Call<'a, ()>, dtype: DType, bits: u64) -> Call<'a, ()> {
            match dtype {
                $(DType::$name => {
                    let $bits = bits;
                    let value: $ty = $from;
                    call.scalar(value)
                })*
            }
        }

        /// Passes a scalar for a `Const` parameter, by its bits.
        pub fn pass_const<'a>(call: Call<'a, ()>, dtype: DType, bits: u64) -> Call<'a, ()> {
            match dtype {
                $(DType::$name => {
                    let $bits = bits;
                    let value: $ty = $from;
                    call.const_scalar(value)
                })*
            }
        }

        /// Gives a dtype parameter.
        pub fn pass_dtype(call: Call<'_, ()>, dtype: DType) -> Call<'_, ()> {
            match dtype {
                $(DType::$name => call.dtype::<$ty>(),)*
            }
        }
    };
}

any_buffer! {
    Bool bool: |b| b != 0, |v| u64::from(v);
    I8 i8: |b| b as i8, |v| v as u64;
    I16 i16: |b| b as i16, |v| v as u64;
    I32 i32: |b| b as i32, |v| v as u64;
    I64 i64: |b| b as i64, |v| v as u64;
    U8 u8: |b| b as u8, |v| u64::from(v);
    U16 u16: |b| b as u16, |v| u64::from(v);
    U32 u32: |b| b as u32, |v| u64::from(v);
    U64 u64: |b| b, |v| v;
    F8E4M3 F8E4M3: |b| F8E4M3::from_bits(b as u8), |v| u64::from(v.to_bits());
    F8E5M2 F8E5M2: |b| F8E5M2::from_bits(b as u8), |v| u64::from(v.to_bits());
    F16 f16: |b| f16::from_bits(b as u16), |v| u64::from(v.to_bits());
    BF16 bf16: |b| bf16::from_bits(b as u16), |v| u64::from(v.to_bits());
    F32 f32: |b| f32::from_bits(b as u32), |v| u64::from(v.to_bits());
    F64 f64: |b| f64::from_bits(b), |v| v.to_bits();
}
