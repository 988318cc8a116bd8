//! PTX that the driver has compiled and loaded into a context.

use super::super::definition::Definition;
use crate::device::Device;
use crate::driver::wrap;
use crate::error::{Error, Result};
use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, result as cu, sys};
use kernel_core::backend::nvidia::{Ptx, Usage, refused_text};
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

/// Bytes of each of the driver's logs that are kept.
const LOG_BYTES: usize = 16 << 10;

/// Dynamic shared memory that a launch may have without asking, less what is static. From
/// "Shared Memory" in the CUDA programming guide.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

/// A function of a loaded module.
pub(super) struct Loaded {
    module: sys::CUmodule,
    function: sys::CUfunction,
    ctx: Arc<CudaContext>,
    usage: Usage,
    /// Threads that a program can have with so many registers.
    max_threads: u32,
}

// SAFETY: modules and functions are handles that the driver lets any thread use.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Loaded {
    pub(super) fn function(&self) -> sys::CUfunction {
        self.function
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Threads that a program can have with so many registers.
    pub(super) fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// Whether it was loaded into that context.
    pub(super) fn is_in(&self, ctx: &CudaContext) -> bool {
        self.ctx.cu_ctx() == ctx.cu_ctx()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // What kernels run with is in a cache that is never dropped; this is for code that was
        // loaded to be looked at. A failure means that the context is gone.
        // SAFETY: the context is alive, and nobody uses the module after this.
        unsafe {
            if cu::ctx::set_current(self.ctx.cu_ctx()).is_ok() {
                let _ = sys::cuModuleUnload(self.module);
            }
        }
    }
}

/// Compiles PTX in the driver and prepares it for launches.
///
/// As long as the code spills more than a few registers, the alternatives are tried; what spills least is kept.
pub(super) fn load(kernel: &Definition, code: &Ptx, device: &Device, ctx: &Arc<CudaContext>) -> Result<Loaded> {
    device.default_stream().bind()?;
    let mut best = load_ptx(kernel, code, &code.text, code.min_programs, device, ctx)?;
    for (programs, ptx) in code.alternatives() {
        if best.usage.local_bytes <= tolerated(best.usage.min_programs) {
            break;
        }
        // That it cannot be loaded another way does not take away the code that there is.
        if let Ok(loaded) = load_ptx(kernel, code, &ptx, programs, device, ctx)
            && loaded.usage.local_bytes < best.usage.local_bytes
        {
            best = loaded;
        }
    }
    Ok(best)
}

/// Bytes of spilled registers with which code is kept that was asked to make room for so many programs. A multiprocessor
/// that loses one program of two loses more than a few accesses to the first-level cache cost: layer norm of rows of
/// 12289 f32 takes 0.22 ms with 8 bytes spilled, and 0.30 ms with none.
fn tolerated(min_programs: Option<u32>) -> u32 {
    const FEW: u32 = 16;
    if min_programs.is_some_and(|programs| programs > 1) { FEW } else { 0 }
}

/// Compiles one version of the PTX, with what it asks for.
fn load_ptx(
    kernel: &Definition,
    code: &Ptx,
    ptx: &str,
    min_programs: Option<u32>,
    device: &Device,
    ctx: &Arc<CudaContext>,
) -> Result<Loaded> {
    let (module, log) = load_module(kernel, ptx)?;
    // From here on a failure unloads the module.
    let mut loaded = Loaded {
        module,
        function: std::ptr::null_mut(),
        ctx: ctx.clone(),
        usage: Usage { min_programs, log, ..Usage::default() },
        max_threads: 0,
    };
    let entry = CString::new(code.entry.as_str()).map_err(|_| Error::Llvm {
        message: format!("the entry of kernel `{}` has a name with a zero in it", kernel.name()).into(),
    })?;
    // SAFETY: the module was just loaded, the name ends in zero.
    unsafe { sys::cuModuleGetFunction(&mut loaded.function, loaded.module, entry.as_ptr()) }
        .result()
        .map_err(wrap("cuModuleGetFunction"))?;
    loaded.measure()?;
    check_limits(kernel, code, &loaded, device)?;
    if code.shared_bytes + loaded.usage.static_shared_bytes > SHARED_WITHOUT_ASKING {
        loaded.allow_shared(code.shared_bytes)?;
    }
    Ok(loaded)
}

/// Loads PTX and gives the driver's log with it.
fn load_module(kernel: &Definition, ptx: &str) -> Result<(sys::CUmodule, String)> {
    use sys::CUjit_option_enum as Jit;
    let image = CString::new(ptx).map_err(|_| Error::Llvm {
        message: format!("the PTX of kernel `{}` has a zero in it", kernel.name()).into(),
    })?;
    let mut info = vec![0u8; LOG_BYTES];
    let mut errors = vec![0u8; LOG_BYTES];
    let mut options = [
        Jit::CU_JIT_INFO_LOG_BUFFER,
        Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        Jit::CU_JIT_ERROR_LOG_BUFFER,
        Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        Jit::CU_JIT_LOG_VERBOSE,
    ];
    // Numbers are passed in the place of pointers.
    let number = |value: usize| std::ptr::without_provenance_mut::<c_void>(value);
    let mut values =
        [info.as_mut_ptr().cast(), number(LOG_BYTES), errors.as_mut_ptr().cast(), number(LOG_BYTES), number(1)];
    let mut module = std::ptr::null_mut();
    // SAFETY: the image ends in zero; there are as many values as options, each as its option
    // wants it; the buffers have the sizes that are given and outlive the call.
    let status = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            image.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    let text = |log: &[u8]| {
        let log = CStr::from_bytes_until_nul(log).map_or_else(|_| String::from_utf8_lossy(log), CStr::to_string_lossy);
        log.trim().to_string()
    };
    match status.result() {
        Ok(()) => Ok((module, text(&info))),
        Err(error) => Err(refused(kernel, error, ptx, &text(&errors))),
    }
}

/// What the driver's compiler did not accept, with its log, and with the place in the source if that is PTX too.
fn refused(kernel: &Definition, error: DriverError, ptx: &str, log: &str) -> Error {
    match wrap("cuModuleLoadDataEx")(error) {
        Error::Driver { call, code, name, message } => {
            let from = refused_text(ptx, log)
                .map_or_else(String::new, |found| format!(", which has the PTX `{}` at {}", found.text, found.place));
            let text = format!("{message}, for kernel `{}`{from}: {log}", kernel.name());
            let text = text.trim_end_matches([':', ' ']);
            Error::Driver { call, code, name, message: text.into() }
        }
        other => other,
    }
}

impl Loaded {
    fn attribute(&self, attribute: sys::CUfunction_attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the function is of a loaded module.
        unsafe { sys::cuFuncGetAttribute(&mut value, attribute, self.function) }
            .result()
            .map_err(wrap("cuFuncGetAttribute"))?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn measure(&mut self) -> Result<()> {
        use sys::CUfunction_attribute_enum as Attribute;
        self.usage.registers = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        self.usage.local_bytes = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        self.usage.static_shared_bytes = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        self.max_threads = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        Ok(())
    }

    fn allow_shared(&self, bytes: u32) -> Result<()> {
        use sys::CUfunction_attribute_enum as Attribute;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: the function is of a loaded module.
        unsafe { sys::cuFuncSetAttribute(self.function, attribute, bytes) }.result().map_err(wrap("cuFuncSetAttribute"))
    }
}

/// Refuses code that no launch on this device can run.
fn check_limits(kernel: &Definition, code: &Ptx, loaded: &Loaded, device: &Device) -> Result<()> {
    let usage = &loaded.usage;
    let resources = |what: String, needed: u32, limit: u32, hint: &str| Error::Resources {
        kernel: kernel.name().into(),
        what: what.into(),
        needed: needed.into(),
        limit: limit.into(),
        hint: hint.into(),
    };
    if code.threads() > loaded.max_threads {
        return Err(resources(
            format!("threads per program with {} registers each", usage.registers),
            code.threads(),
            loaded.max_threads,
            "use fewer warps (`num_warps`) or smaller tiles",
        ));
    }
    let shared = code.shared_bytes + usage.static_shared_bytes;
    let limit = shared_limit(device)?;
    if shared > limit {
        return Err(resources(
            "bytes of shared memory per program".into(),
            shared,
            limit,
            "use smaller tiles or fewer stages (`num_stages`)",
        ));
    }
    Ok(())
}

/// Bytes of shared memory that a program may have on the device.
fn shared_limit(device: &Device) -> Result<u32> {
    use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as LIMIT;
    let Some(ctx) = device.cuda_context() else { return Ok(0) };
    // SAFETY: the device belongs to a live context.
    let value = unsafe { cu::device::get_attribute(ctx.cu_device(), LIMIT) };
    value.map(|value| u32::try_from(value).unwrap_or(0)).map_err(wrap("cuDeviceGetAttribute"))
}
