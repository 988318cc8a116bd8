//! The functions of libtorch's stable C interface, looked up in the libtorch that the process has loaded.
//!
//! They are declared in `torch/csrc/inductor/aoti_torch/c/shim.h` and, those for strings, in `torch/csrc/stable/c/shim.h`. All
//! but the strings are there from PyTorch 2.9 on; strings from 2.10.

use crate::error::{Error, Result};
use crate::library::{Loaded, loaded};
use crate::op::DTYPES;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use tilewright::ElementType;

/// 0 where it went well.
pub(super) type Code = i32;
/// An owned tensor, library, string, stream or guard of libtorch.
pub(super) type Handle = *mut c_void;
/// A kernel: arguments on a stack of values, each owned, then the results.
pub(super) type Boxed = unsafe extern "C-unwind" fn(*mut u64, u64, u64);

macro_rules! functions {
    ($table:ident: $($name:ident: $symbol:literal $type:ty;)*) => {
        /// A table of functions.
        pub(super) struct $table {
            $(pub $name: $type,)*
        }

        impl $table {
            fn find(library: &Loaded) -> Result<Self> {
                // SAFETY: the header of libtorch declares these types.
                Ok(unsafe { $table { $($name: library.function($symbol)?,)* } })
            }
        }
    };
}

functions! {
    Functions:
    init_fragment: "aoti_torch_library_init_fragment"
        unsafe extern "C" fn(*const c_char, *const c_char, u32, *mut Handle) -> Code;
    init_impl: "aoti_torch_library_init_impl"
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut Handle) -> Code;
    define: "aoti_torch_library_def" unsafe extern "C" fn(Handle, *const c_char) -> Code;
    implement: "aoti_torch_library_impl" unsafe extern "C" fn(Handle, *const c_char, Boxed) -> Code;
    check: "aoti_torch_check" unsafe extern "C-unwind" fn(bool, *const c_char, *const c_char, u32, *const c_char);
    data_ptr: "aoti_torch_get_data_ptr" unsafe extern "C" fn(Handle, *mut *mut c_void) -> Code;
    dim: "aoti_torch_get_dim" unsafe extern "C" fn(Handle, *mut i64) -> Code;
    sizes: "aoti_torch_get_sizes" unsafe extern "C" fn(Handle, *mut *mut i64) -> Code;
    strides: "aoti_torch_get_strides" unsafe extern "C" fn(Handle, *mut *mut i64) -> Code;
    dtype: "aoti_torch_get_dtype" unsafe extern "C" fn(Handle, *mut i32) -> Code;
    device_type: "aoti_torch_get_device_type" unsafe extern "C" fn(Handle, *mut i32) -> Code;
    device_index: "aoti_torch_get_device_index" unsafe extern "C" fn(Handle, *mut i32) -> Code;
    empty_strided: "aoti_torch_empty_strided"
        unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> Code;
    delete_tensor: "aoti_torch_delete_tensor_object" unsafe extern "C" fn(Handle) -> Code;
    current_stream: "aoti_torch_get_current_stream" unsafe extern "C" fn(i32, *mut Handle) -> Code;
    stream_number: "aoti_torch_stream_id" unsafe extern "C" fn(Handle, *mut i64) -> Code;
    delete_stream: "aoti_torch_delete_stream" unsafe extern "C" fn(Handle) -> Code;
    cpu: "aoti_torch_device_type_cpu" unsafe extern "C" fn() -> i32;
    cuda: "aoti_torch_device_type_cuda" unsafe extern "C" fn() -> i32;
    // C++'s `operator delete`, of the libstdc++ that libtorch uses: optional arguments come in memory of C++'s `new`.
    delete: "_ZdlPv" unsafe extern "C" fn(*mut c_void);
}

functions! {
    Strings:
    length: "torch_string_length" unsafe extern "C" fn(Handle, *mut usize) -> Code;
    bytes: "torch_string_c_str" unsafe extern "C" fn(Handle, *mut *const c_char) -> Code;
    delete: "torch_delete_string" unsafe extern "C" fn(Handle) -> Code;
}

functions! {
    Cuda:
    current_stream: "aoti_torch_get_current_cuda_stream" unsafe extern "C" fn(i32, *mut *mut c_void) -> Code;
    create_guard: "aoti_torch_create_cuda_guard" unsafe extern "C" fn(i32, *mut Handle) -> Code;
    delete_guard: "aoti_torch_delete_cuda_guard" unsafe extern "C" fn(Handle) -> Code;
}

/// What is known of the libtorch of this process.
pub(super) struct Api {
    pub functions: Functions,
    /// From PyTorch 2.10 on.
    pub strings: Option<Strings>,
    pub cpu: i32,
    pub cuda: i32,
    /// libtorch's number of each of [`DTYPES`].
    numbers: [i32; DTYPES.len()],
    /// The dtype of each number.
    dtypes: [Option<ElementType>; 64],
}

static API: OnceLock<Api> = OnceLock::new();

impl Api {
    /// Looks for libtorch once.
    ///
    /// # Errors
    ///
    /// If the process has not loaded it, or one older than 2.9.
    pub fn load() -> Result<&'static Api> {
        if let Some(api) = API.get() {
            return Ok(api);
        }
        let library = loaded("libtorch_cpu.so").ok_or("import torch first: libtorch_cpu.so is not loaded")?;
        let functions = Functions::find(&library)
            .map_err(|error| Error::from(format!("PyTorch 2.9 or later is needed: {error}")))?;
        let strings = Strings::find(&library).ok();
        let mut numbers = [-1; DTYPES.len()];
        let mut dtypes = [None; 64];
        for (dtype, number) in DTYPES.into_iter().zip(&mut numbers) {
            // SAFETY: the header declares a function without arguments for each dtype.
            let of = unsafe {
                library.function::<unsafe extern "C" fn() -> i32>(&format!("aoti_torch_dtype_{}", name(dtype)))
            }?;
            // SAFETY: as above.
            *number = unsafe { of() };
            if let Some(entry) = usize::try_from(*number).ok().and_then(|at| dtypes.get_mut(at)) {
                *entry = Some(dtype);
            }
        }
        // SAFETY: they take nothing and give a number.
        let (cpu, cuda) = unsafe { ((functions.cpu)(), (functions.cuda)()) };
        Ok(API.get_or_init(|| Api { functions, strings, cpu, cuda, numbers, dtypes }))
    }

    /// What [`Api::load`] has found. Kernels are called after they were registered, and so after it.
    pub fn get() -> &'static Api {
        API.get().expect("libtorch was found when operators were registered")
    }

    /// The dtype of libtorch's number.
    pub fn dtype(&self, number: i32) -> Option<ElementType> {
        usize::try_from(number).ok().and_then(|at| *self.dtypes.get(at)?)
    }

    /// Whether PyTorch has made the current stream of a GPU, which the driver calls `stream` and which is no default stream. Such
    /// streams stay. Others are their owners', who may destroy them: libtorch's numbers of these are the driver's names.
    pub fn has_made(&self, index: i32, stream: u64) -> bool {
        let (mut current, mut number) = (std::ptr::null_mut(), 0);
        // SAFETY: each is given where to write; the stream is deleted once.
        unsafe {
            if (self.functions.current_stream)(index, &mut current) != 0 {
                return false;
            }
            let has_number = (self.functions.stream_number)(current, &mut number) == 0;
            (self.functions.delete_stream)(current);
            has_number && number as u64 != stream
        }
    }

    /// libtorch's number of a dtype.
    pub fn number(&self, dtype: ElementType) -> i32 {
        DTYPES.iter().position(|other| *other == dtype).map_or(-1, |at| self.numbers[at])
    }
}

impl Cuda {
    /// PyTorch's current stream of a GPU, as the driver names it.
    pub fn stream(&self, index: i32) -> Result<u64> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: it is given where to write.
        match unsafe { (self.current_stream)(index, &mut stream) } {
            0 => Ok(stream as u64),
            _ => Err(format!("PyTorch has no stream for cuda:{index}").into()),
        }
    }

    /// The functions of PyTorch's part for CUDA.
    ///
    /// # Errors
    ///
    /// If it is not loaded, which cannot be where a tensor is on a GPU.
    pub fn get() -> Result<&'static Cuda> {
        static CUDA: OnceLock<Result<Cuda>> = OnceLock::new();
        let found = CUDA.get_or_init(|| {
            let library = loaded("libtorch_cuda.so").ok_or("libtorch_cuda.so is not loaded")?;
            Cuda::find(&library)
        });
        found.as_ref().map_err(Clone::clone)
    }
}

/// What PyTorch calls a dtype.
pub(crate) fn name(dtype: ElementType) -> &'static str {
    match dtype {
        ElementType::Bool => "bool",
        ElementType::I8 => "int8",
        ElementType::I16 => "int16",
        ElementType::I32 => "int32",
        ElementType::I64 => "int64",
        ElementType::U8 => "uint8",
        ElementType::U16 => "uint16",
        ElementType::U32 => "uint32",
        ElementType::U64 => "uint64",
        ElementType::F8E4M3 => "float8_e4m3fn",
        ElementType::F8E5M2 => "float8_e5m2",
        ElementType::F16 => "float16",
        ElementType::BF16 => "bfloat16",
        ElementType::F32 => "float32",
        ElementType::F64 => "float64",
    }
}
