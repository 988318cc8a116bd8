//! Code that the driver has loaded into a context: machine code, or PTX that it has compiled.

use super::super::definition::Definition;
use super::machine::{self, Driver, Shelf};
use crate::device::Device;
use crate::driver::wrap;
use crate::error::{Error, Result};
use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, result as cu, sys};
use kernel_archive::Machine;
use kernel_core::backend::nvidia::{Ptx, Usage, refused_text};
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

/// Bytes of each of the driver's logs that are kept.
const LOG_BYTES: usize = 16 << 10;

/// Dynamic shared memory that a launch may have without asking, less what is static. From
/// "Shared Memory" in the CUDA programming guide.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

/// Whether PTX says which lines of the source it is from.
pub(super) fn has_lines(ptx: &str) -> bool {
    ptx.contains("\n\t.file\t")
}

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

/// Loads code and prepares it for launches: machine code that a variant has or that `shelf` keeps, else what the driver makes
/// of the PTX.
pub(super) fn load(
    kernel: &Definition,
    code: &Ptx,
    own: Option<&Machine>,
    shelf: &dyn Shelf,
    (device, ctx): (&Device, &Arc<CudaContext>),
) -> Result<Loaded> {
    device.default_stream().bind()?;
    machine::load(&OnDevice { kernel, code, device, ctx }, code, own, shelf)
}

/// A kernel's code on its way to a device, whose context is current.
struct OnDevice<'l> {
    kernel: &'l Definition,
    code: &'l Ptx,
    device: &'l Device,
    ctx: &'l Arc<CudaContext>,
}

impl Driver for OnDevice<'_> {
    type Loaded = Loaded;

    fn load_machine(&self, machine: &Machine) -> Result<Loaded> {
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is whole, as its checksum says, or the driver has just made it; it is not kept.
        unsafe { sys::cuModuleLoadData(&mut module, machine.image.as_ptr().cast()) }
            .result()
            .map_err(wrap("cuModuleLoadData"))?;
        self.prepare(module, machine.head.min_programs, machine.head.log.clone())
    }

    fn compile(&self, ptx: &str, min_programs: Option<u32>) -> Result<Loaded> {
        let (module, log) = load_module(self.kernel, ptx)?;
        self.prepare(module, min_programs, log)
    }

    fn link(&self, ptx: &str) -> Result<(Vec<u8>, String)> {
        machine::link::link(ptx)
    }

    fn local_bytes(&self, loaded: &Loaded) -> u32 {
        loaded.usage.local_bytes
    }
}

impl OnDevice<'_> {
    /// Finds the kernel in a module that was just loaded, and lets it have the shared memory that it needs.
    fn prepare(&self, module: sys::CUmodule, min_programs: Option<u32>, log: String) -> Result<Loaded> {
        let OnDevice { kernel, code, device, ctx } = *self;
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
}

/// What the driver's compiler and its linker write while they work.
pub(super) struct Logs {
    info: Vec<u8>,
    errors: Vec<u8>,
    options: [sys::CUjit_option; 6],
    values: [*mut c_void; 6],
    lines: bool,
}

impl Logs {
    /// For code of this PTX; if it has lines of the source, so has the code.
    pub(super) fn of(ptx: &str) -> Logs {
        use sys::CUjit_option_enum as Jit;
        let options = [
            Jit::CU_JIT_INFO_LOG_BUFFER,
            Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_LOG_VERBOSE,
            Jit::CU_JIT_GENERATE_LINE_INFO,
        ];
        let values = [std::ptr::null_mut(); 6];
        Logs { info: vec![0; LOG_BYTES], errors: vec![0; LOG_BYTES], options, values, lines: has_lines(ptx) }
    }

    /// The options that have the driver write here: how many, their names and their values, which are as this is where it
    /// is now.
    pub(super) fn options(&mut self) -> (u32, *mut sys::CUjit_option, *mut *mut c_void) {
        // Numbers are passed in the place of pointers.
        let number = |value: usize| std::ptr::without_provenance_mut::<c_void>(value);
        let [info, errors] = [&mut self.info, &mut self.errors].map(|log| log.as_mut_ptr().cast());
        self.values = [info, number(LOG_BYTES), errors, number(LOG_BYTES), number(1), number(self.lines.into())];
        (self.options.len() as u32, self.options.as_mut_ptr(), self.values.as_mut_ptr())
    }

    /// What was said.
    pub(super) fn info(&self) -> String {
        logged(&self.info)
    }
}

fn logged(log: &[u8]) -> String {
    let log = CStr::from_bytes_until_nul(log).map_or_else(|_| String::from_utf8_lossy(log), CStr::to_string_lossy);
    log.trim().to_string()
}

/// Loads PTX and gives the driver's log with it.
fn load_module(kernel: &Definition, ptx: &str) -> Result<(sys::CUmodule, String)> {
    let image = CString::new(ptx).map_err(|_| Error::Llvm {
        message: format!("the PTX of kernel `{}` has a zero in it", kernel.name()).into(),
    })?;
    let mut logs = Logs::of(ptx);
    let (count, options, values) = logs.options();
    let mut module = std::ptr::null_mut();
    // SAFETY: the image ends in zero; there are as many values as options, each as its option
    // wants it; the logs have the sizes that are given and outlive the call.
    let status = unsafe { sys::cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), count, options, values) };
    match status.result() {
        Ok(()) => Ok((module, logs.info())),
        Err(error) => Err(refused(kernel, error, ptx, &logged(&logs.errors))),
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
