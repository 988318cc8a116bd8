//! The structures of XLA's foreign function interface: `xla/ffi/api/c_api.h`, version 0.1 and later ones, which only add.

use std::ffi::{c_char, c_void};

/// The first version with what is here. Newer XLAs take handlers of older versions.
pub(super) const VERSION: (i32, i32) = (0, 1);
/// The handler is asked for its version and traits, and not to run.
pub(super) const METADATA: i32 = 1;
/// `XLA_FFI_ExecutionStage_EXECUTE`
pub(super) const EXECUTE: i32 = 3;
/// The handler gives the same work to the stream at each call, so that it may be recorded.
pub(super) const COMMAND_BUFFER_COMPATIBLE: u32 = 1;
/// `XLA_FFI_AttrType_SCALAR`
pub(super) const SCALAR: i32 = 3;
/// `XLA_FFI_AttrType_STRING`
pub(super) const STRING: i32 = 4;
/// `XLA_FFI_Error_Code_INVALID_ARGUMENT`
pub(super) const INVALID_ARGUMENT: i32 = 3;
/// `XLA_FFI_Error_Code_INTERNAL`
pub(super) const INTERNAL: i32 = 13;

/// An error of XLA, which it owns.
#[repr(C)]
pub struct XlaError {
    _opaque: [u8; 0],
}

/// What may follow a structure.
#[repr(C)]
pub(super) struct Extension {
    size: usize,
    pub kind: i32,
    next: *mut Extension,
}

#[repr(C)]
pub(super) struct Version {
    size: usize,
    extension: *mut Extension,
    pub major: i32,
    pub minor: i32,
}

#[repr(C)]
pub(super) struct Metadata {
    size: usize,
    pub version: Version,
    pub traits: u32,
}

#[repr(C)]
pub(super) struct MetadataExtension {
    base: Extension,
    pub metadata: *mut Metadata,
}

/// `XLA_FFI_Args`, `XLA_FFI_Rets`
#[repr(C)]
pub(super) struct Buffers {
    size: usize,
    extension: *mut Extension,
    len: i64,
    types: *const i32,
    items: *const *const Buffer,
}

#[repr(C)]
pub(super) struct Attributes {
    size: usize,
    extension: *mut Extension,
    pub len: i64,
    pub types: *const i32,
    pub names: *const *const Bytes,
    pub items: *const *const c_void,
}

#[repr(C)]
pub(super) struct Bytes {
    data: *const u8,
    len: usize,
}

#[repr(C)]
pub(super) struct Scalar {
    pub dtype: i32,
    pub value: *const c_void,
}

#[repr(C)]
pub(super) struct Buffer {
    size: usize,
    extension: *mut Extension,
    pub dtype: i32,
    pub data: *mut c_void,
    pub rank: i64,
    pub sizes: *const i64,
}

/// `XLA_FFI_CallFrame`: one call of a handler.
#[repr(C)]
pub struct CallFrame {
    size: usize,
    pub(super) extension: *mut Extension,
    pub(super) api: *const Api,
    pub(super) context: *mut c_void,
    pub(super) stage: i32,
    pub(super) args: Buffers,
    pub(super) results: Buffers,
    pub(super) attributes: Attributes,
}

/// `XLA_FFI_Api`: the functions of XLA.
#[repr(C)]
pub(super) struct Api {
    pub size: usize,
    extension: *mut Extension,
    version: Version,
    internal: *const c_void,
    pub create_error: unsafe extern "C" fn(*mut CreateError) -> *mut XlaError,
    error_message: *const c_void,
    pub destroy_error: unsafe extern "C" fn(*mut DestroyError),
    register_handler: *const c_void,
    pub stream: unsafe extern "C" fn(*mut GetStream) -> *mut XlaError,
    others: [*const c_void; 4],
    pub allocate: unsafe extern "C" fn(*mut Allocate) -> *mut XlaError,
    pub free: unsafe extern "C" fn(*mut Free) -> *mut XlaError,
    more: [*const c_void; 6],
    /// From the version on whose table is as large.
    pub device_ordinal: unsafe extern "C" fn(*mut GetDevice) -> *mut XlaError,
}

/// The arguments of a function: the size of the structure without padding behind its last field, an extension, the fields.
macro_rules! arguments {
    ($name:ident { $($field:ident: $type:ty),* } last $last:ident) => {
        #[repr(C)]
        pub(super) struct $name {
            size: usize,
            extension: *mut Extension,
            $(pub $field: $type,)*
        }

        impl $name {
            pub fn new($($field: $type),*) -> Self {
                let size = std::mem::offset_of!($name, $last) + last_size(|of: &$name| &of.$last);
                $name { size, extension: std::ptr::null_mut(), $($field),* }
            }
        }
    };
}

/// The size of a field.
fn last_size<T, F>(_of: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

arguments!(CreateError { message: *const c_char, code: i32 } last code);
arguments!(DestroyError { error: *mut XlaError } last error);
arguments!(GetStream { context: *mut c_void, stream: *mut c_void } last stream);
arguments!(Allocate { context: *mut c_void, bytes: usize, alignment: usize, data: *mut c_void } last data);
arguments!(Free { context: *mut c_void, bytes: usize, data: *mut c_void } last data);
arguments!(GetDevice { context: *mut c_void, ordinal: i32 } last ordinal);

impl Buffers {
    /// The buffers.
    ///
    /// # Safety
    ///
    /// The list is one of a call that lasts for `'a`.
    pub unsafe fn get<'a>(&self) -> &'a [&'a Buffer] {
        if self.len <= 0 {
            return &[];
        }
        // SAFETY: there are as many pointers, to buffers.
        unsafe { std::slice::from_raw_parts(self.items.cast::<&'a Buffer>(), self.len as usize) }
    }
}

impl Bytes {
    /// The bytes.
    ///
    /// # Safety
    ///
    /// They live for `'a`.
    pub unsafe fn get<'a>(&self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: there are as many.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}
