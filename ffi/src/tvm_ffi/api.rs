//! The structures of TVM-FFI and DLPack, and the functions of the `libtvm_ffi.so` that the process has loaded.

use crate::error::{Error, Result};
use crate::library::loaded;
use crate::scratch::Block;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `kDLCPU`
pub(super) const CPU: i32 = 1;
/// `kDLCUDA`
pub(super) const CUDA: i32 = 2;
/// `kDLCUDAHost`: memory of the host.
pub(super) const CUDA_HOST: i32 = 3;
/// `kDLCUDAManaged`
pub(super) const CUDA_MANAGED: i32 = 13;

// `TVMFFITypeIndex`
const NONE: i32 = 0;
const INT: i32 = 1;
const BOOL: i32 = 2;
const FLOAT: i32 = 3;
const TENSOR_POINTER: i32 = 7;
const RAW_STRING: i32 = 8;
const SMALL_STRING: i32 = 11;
const STRING: i32 = 65;
const TENSOR: i32 = 70;

/// What objects begin with: counts of references, their type, their destructor.
const OBJECT_HEADER: usize = 24;

/// `TVMFFIAny`: a value of any type.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Any {
    type_index: i32,
    /// The length of a small string.
    small_len: u32,
    value: u64,
}

/// `DLDataType`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Element {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// `DLTensor`
#[repr(C)]
pub(super) struct DlTensor {
    pub data: *mut c_void,
    pub device_type: i32,
    pub device_id: i32,
    pub rank: i32,
    pub dtype: Element,
    sizes: *const i64,
    strides: *const i64,
    pub byte_offset: u64,
}

/// `TVMFFIByteArray`
#[repr(C)]
struct Bytes {
    data: *const u8,
    len: usize,
}

impl Any {
    /// No value.
    pub const NONE: Any = Any { type_index: NONE, small_len: 0, value: 0 };

    /// Whether there is no value.
    pub fn is_none(&self) -> bool {
        self.type_index == NONE
    }

    pub(super) fn tensor(&self) -> Option<&DlTensor> {
        let at = match self.type_index {
            TENSOR_POINTER => self.value as *const DlTensor,
            TENSOR => self.behind_header(),
            _ => return None,
        };
        // SAFETY: the type says that there is a tensor, which lives as long as the value.
        Some(unsafe { &*at })
    }

    pub(super) fn int(&self) -> Option<i64> {
        match self.type_index {
            INT => Some(self.value as i64),
            BOOL => Some(i64::from(self.value != 0)),
            _ => None,
        }
    }

    pub(super) fn float(&self) -> Option<f64> {
        match self.type_index {
            FLOAT => Some(f64::from_bits(self.value)),
            _ => self.int().map(|value| value as f64),
        }
    }

    pub(super) fn bool(&self) -> Option<bool> {
        self.int().map(|value| value != 0)
    }

    pub(super) fn str(&self) -> Option<&str> {
        let bytes = match self.type_index {
            // SAFETY: the bytes are in the value itself, at most 7.
            SMALL_STRING => unsafe {
                std::slice::from_raw_parts((&raw const self.value).cast::<u8>(), (self.small_len as usize).min(7))
            },
            // SAFETY: a string that ends with a zero byte.
            RAW_STRING => unsafe { CStr::from_ptr(self.value as *const c_char) }.to_bytes(),
            STRING => {
                // SAFETY: the type says that a string is behind the header, which lives as long as the value.
                let bytes = unsafe { &*self.behind_header::<Bytes>() };
                // SAFETY: it has as many bytes.
                unsafe { std::slice::from_raw_parts(bytes.data, bytes.len) }
            }
            _ => return None,
        };
        std::str::from_utf8(bytes).ok()
    }

    fn behind_header<T>(&self) -> *const T {
        (self.value as *const u8).wrapping_add(OBJECT_HEADER).cast()
    }

    /// What it is, for messages.
    pub(super) fn kind_name(&self) -> &'static str {
        match self.type_index {
            NONE => "None",
            INT => "an integer",
            BOOL => "a bool",
            FLOAT => "a float",
            TENSOR_POINTER | TENSOR => "a tensor",
            RAW_STRING | SMALL_STRING | STRING => "a string",
            _ => "something else",
        }
    }
}

impl DlTensor {
    /// # Safety
    ///
    /// The tensor has as many sizes as dimensions.
    pub unsafe fn sizes(&self) -> &[i64] {
        if self.rank <= 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.sizes, self.rank as usize) }
    }

    /// # Safety
    ///
    /// The tensor has as many strides as dimensions, or none.
    pub unsafe fn strides(&self) -> Option<&[i64]> {
        if self.strides.is_null() || self.rank <= 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { std::slice::from_raw_parts(self.strides, self.rank as usize) })
    }
}

type SetError = unsafe extern "C" fn(*const c_char, *const c_char);
type GetStream = unsafe extern "C" fn(i32, i32) -> *mut c_void;
type GetAllocator = unsafe extern "C" fn() -> *mut c_void;
type Allocate = unsafe extern "C" fn(*mut DlTensor, *mut *mut c_void) -> c_int;
type Release = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Functions of TVM-FFI.
pub(super) struct Api {
    set_error: SetError,
    get_stream: GetStream,
    get_allocator: GetAllocator,
    allocate: Allocate,
    release: Release,
}

impl Api {
    /// Looks for them once.
    ///
    /// # Errors
    ///
    /// If TVM-FFI is not loaded under its name, or too old.
    pub fn get() -> Result<&'static Api> {
        static API: OnceLock<Result<Api>> = OnceLock::new();
        let found = API.get_or_init(|| {
            let library = loaded("libtvm_ffi.so").ok_or("libtvm_ffi.so is not loaded")?;
            // SAFETY: `tvm/ffi/c_api.h` and `tvm/ffi/extra/c_env_api.h` declare these types.
            unsafe {
                Ok(Api {
                    set_error: library.function("TVMFFIErrorSetRaisedFromCStr")?,
                    get_stream: library.function("TVMFFIEnvGetStream")?,
                    get_allocator: library.function("TVMFFIEnvGetDLPackManagedTensorAllocator")?,
                    allocate: library.function("TVMFFIEnvTensorAlloc")?,
                    release: library.function("TVMFFIObjectDecRef")?,
                })
            }
        });
        found.as_ref().map_err(Error::clone)
    }

    /// Raises an exception in the caller, after the call returns -1.
    pub fn raise(kind: &CStr, message: &CStr) {
        if let Ok(api) = Self::get() {
            // SAFETY: both end with a zero byte, and are copied.
            unsafe { (api.set_error)(kind.as_ptr(), message.as_ptr()) };
        }
    }

    /// The caller's current stream of a GPU.
    pub fn stream(&self, index: u32) -> u64 {
        // SAFETY: it takes any numbers.
        unsafe { (self.get_stream)(CUDA, index as i32) as u64 }
    }

    /// Whether the caller's framework has set an allocator.
    pub fn has_allocator(&self) -> bool {
        // SAFETY: it takes nothing.
        !unsafe { (self.get_allocator)() }.is_null()
    }

    /// Memory of the allocator.
    ///
    /// # Errors
    ///
    /// If there is not enough.
    pub fn allocate(&self, index: u32, bytes: usize) -> Result<Block> {
        let sizes = [bytes as i64];
        let mut wanted = DlTensor {
            data: std::ptr::null_mut(),
            device_type: CUDA,
            device_id: index as i32,
            rank: 1,
            dtype: Element { code: 1, bits: 8, lanes: 1 },
            sizes: sizes.as_ptr(),
            strides: std::ptr::null(),
            byte_offset: 0,
        };
        let mut object = std::ptr::null_mut();
        // SAFETY: the prototype and its sizes live during the call.
        if unsafe { (self.allocate)(&mut wanted, &mut object) } != 0 {
            return Err(format!("the framework's allocator has no {bytes} bytes on cuda:{index}").into());
        }
        // SAFETY: a tensor is behind the header of the object.
        let made = unsafe { &*object.cast::<u8>().add(OBJECT_HEADER).cast::<DlTensor>() };
        Ok(Block { address: (made.data as u64).wrapping_add(made.byte_offset), handle: object as u64 })
    }

    /// Gives memory back to the allocator.
    pub fn release(&self, block: Block) {
        // SAFETY: the object is owned, and released once.
        unsafe { (self.release)(block.handle as *mut c_void) };
    }
}
