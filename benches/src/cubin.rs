//! Kernels that another compiler made beforehand: Triton's, as `peers/compile.py` writes them.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUfunction_attribute, cuFuncSetAttribute, cuLaunchKernel, cuModuleGetFunction, cuModuleLoadData,
};
use cudarc::driver::{CudaStream, result::DriverError};

pub use crate::argument::Argument;
use crate::shape::Variant;
use crate::tensor_map::Encoding;

/// One compiled configuration, a line of `index.tsv`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The kernel, such as `softmax`.
    pub work: String,
    /// The dtype of the data.
    pub dtype: String,
    /// The facts that it was compiled for, a [`Variant`]'s name.
    pub variant: String,
    /// The constexprs and options, such as `BLOCK=4096 warps=8`.
    pub config: String,
    /// Threads per program.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// How the host encodes its tensor descriptors, in the order of the parameters.
    pub descriptors: Vec<Encoding>,
    /// Bytes of global memory that each program wants for itself.
    pub scratch: usize,
    symbol: String,
    file: PathBuf,
}

impl Entry {
    /// The name of its file, which no other configuration has.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The value of a constexpr, if the configuration has it.
    pub fn get(&self, name: &str) -> Option<usize> {
        let of = |part: &str| part.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        self.config.split(' ').find_map(of)
    }

    /// Whether it is this kernel for these facts.
    pub fn is(&self, work: &str, dtype: &str, variant: Variant) -> bool {
        self.work == work && self.dtype == dtype && self.variant == variant.name()
    }
}

/// The configurations that lie in a folder. Empty if there is none.
pub fn index(folder: &Path) -> Vec<Entry> {
    let Ok(text) = std::fs::read_to_string(folder.join("index.tsv")) else { return Vec::new() };
    let entry = |line: &str| {
        let mut fields = line.split('\t').map(str::to_string);
        Some(Entry {
            work: fields.next()?,
            dtype: fields.next()?,
            variant: fields.next()?,
            config: fields.next()?,
            threads: fields.next()?.parse().ok()?,
            shared: fields.next()?.parse().ok()?,
            symbol: fields.next()?,
            file: folder.join(fields.next()?),
            descriptors: match fields.next() {
                Some(text) => text.split(';').filter(|d| !d.is_empty()).map(Encoding::parse).collect::<Option<_>>()?,
                None => Vec::new(),
            },
            scratch: fields.next().map_or(Some(0), |bytes| bytes.parse().ok())?,
        })
    };
    text.lines().filter_map(entry).collect()
}

/// A loaded kernel of another compiler.
pub struct Cubin {
    function: cudarc::driver::sys::CUfunction,
    threads: u32,
    shared: u32,
}

impl Cubin {
    /// Loads a configuration into the current context.
    ///
    /// # Errors
    /// If the file cannot be read or the driver refuses it.
    pub fn load(entry: &Entry) -> Result<Cubin, String> {
        let image = std::fs::read(&entry.file).map_err(|e| format!("{}: {e}", entry.file.display()))?;
        let symbol = std::ffi::CString::new(entry.symbol.as_str()).map_err(|e| e.to_string())?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        let check = |r: Result<(), DriverError>| r.map_err(|e| format!("{}: {e}", entry.file.display()));
        // SAFETY: the image is a whole cubin, the symbol ends in zero; a context is current (the caller's stream).
        check(unsafe { cuModuleLoadData(&mut module, image.as_ptr().cast()) }.result())?;
        // SAFETY: as above, of the module just loaded. It is never unloaded, so the function stays valid.
        check(unsafe { cuModuleGetFunction(&mut function, module, symbol.as_ptr()) }.result())?;
        if entry.shared > 48 << 10 {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is valid.
            check(unsafe { cuFuncSetAttribute(function, attribute, entry.shared as i32) }.result())?;
        }
        Ok(Cubin { function, threads: entry.threads, shared: entry.shared })
    }

    /// Launches it. Triton's kernels take two hidden pointers after their own arguments: global memory for the
    /// programs' own use, `scratch`, and a profiler's, which these do not use.
    ///
    /// # Errors
    /// If the driver refuses the launch.
    ///
    /// # Safety
    /// The arguments must be those of the kernel, its accesses inside the buffers, and `scratch` large enough for all
    /// programs.
    pub unsafe fn launch(
        &self,
        stream: &Arc<CudaStream>,
        grid: [u32; 3],
        arguments: &[Argument],
        scratch: u64,
    ) -> Result<(), String> {
        let mut values: Vec<u64> = arguments
            .iter()
            .map(|a| match a {
                Argument::Address(p) => *p,
                Argument::I32(i) => u64::from(*i as u32),
                Argument::I64(i) => *i as u64,
                Argument::F32(f) => u64::from(f.to_bits()),
                Argument::Map(_) => 0,
            })
            .collect();
        values.extend([scratch, 0]);
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            if let Argument::Map(map) = argument {
                *pointer = std::ptr::from_ref(map).cast_mut().cast();
            }
        }
        let [x, y, z] = grid;
        let (function, stream) = (self.function, stream.cu_stream());
        let (arguments, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the caller's promise; every parameter has its value at its pointer, which the driver only reads.
        unsafe { cuLaunchKernel(function, x, y, z, self.threads, 1, 1, self.shared, stream, arguments, none) }
            .result()
            .map_err(|e| e.to_string())
    }
}
