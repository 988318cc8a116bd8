//! Modules, functions and launches.

use super::{driver, get, list, put, put_text, text};
use crate::model::{Grid, Model, Refusal, ptx_of};
use cudarc::driver::sys::{
    CUfunction_attribute_enum as Attribute, CUjit_option_enum as Option_, CUlaunchAttributeID, CUlaunchConfig,
    CUresult as Code,
};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

/// Shared memory that a function may have if it asks, of an A100.
const SHARED_OPT_IN: i32 = 163 << 10;

/// Where the driver's compiler writes.
#[derive(Default)]
pub(super) struct Logs {
    info: Option<(usize, usize)>,
    errors: Option<(usize, usize)>,
}

impl Logs {
    /// Of options with their values: numbers stand in the place of pointers.
    pub(super) fn of(count: c_uint, options: *const Option_, values: *const *mut c_void) -> Result<Logs, Code> {
        let options = list(options, count as usize)?;
        let values = list(values, count as usize)?;
        let value = |wanted: Option_| {
            let at = options.iter().position(|option| *option == wanted)?;
            Some(values[at].expose_provenance())
        };
        let log = |place, size| Some((value(place)?, value(size)? & 0xffff_ffff));
        Ok(Logs {
            info: log(Option_::CU_JIT_INFO_LOG_BUFFER, Option_::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES),
            errors: log(Option_::CU_JIT_ERROR_LOG_BUFFER, Option_::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES),
        })
    }

    pub(super) fn inform(&self, said: &str) {
        write(self.info, said);
    }

    pub(super) fn complain(&self, said: &str) {
        write(self.errors, said);
    }
}

fn write(log: Option<(usize, usize)>, said: &str) {
    if let Some((place, size)) = log {
        let _ = put_text(std::ptr::with_exposed_provenance_mut(place), size, said);
    }
}

impl Model {
    /// Loads an image, and says what the driver would.
    fn load(&mut self, image: *const c_void, logs: &Logs) -> Result<usize, Code> {
        self.refuse_prohibited()?;
        if image.is_null() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: callers give an image, which is text, or says how long it is.
        let ptx = unsafe { ptx_of(image.cast(), self.settings.capability_number()) };
        match ptx.and_then(|ptx| self.load_module(&ptx)) {
            Ok(module) => {
                logs.inform("info    : compiled by the model of the driver");
                Ok(module)
            }
            Err(Refusal::Image) => Err(Code::CUDA_ERROR_INVALID_IMAGE),
            Err(Refusal::Gpu) => Err(Code::CUDA_ERROR_NO_BINARY_FOR_GPU),
            Err(Refusal::Ptx(why)) => {
                logs.complain(&format!("ptxas fatal   : {why}"));
                Err(Code::CUDA_ERROR_INVALID_PTX)
            }
        }
    }
}

driver! {
    Context fn cuModuleLoad(model, note, module: *mut usize, path: *const c_char) {
        // Text ends in zero in memory, but not in files.
        let mut image = std::fs::read(text(path)?).map_err(|_| Code::CUDA_ERROR_FILE_NOT_FOUND)?;
        image.push(0);
        let loaded = model.load(image.as_ptr().cast(), &Logs::default())?;
        put(module, loaded)
    }

    Context fn cuModuleLoadData(model, note, module: *mut usize, image: *const c_void) {
        let loaded = model.load(image, &Logs::default())?;
        put(module, loaded)
    }

    Context fn cuModuleLoadDataEx(
        model,
        note,
        module: *mut usize,
        image: *const c_void,
        count: c_uint,
        options: *const Option_,
        values: *const *mut c_void,
    ) {
        let loaded = model.load(image, &Logs::of(count, options, values)?)?;
        put(module, loaded)
    }

    Context fn cuModuleUnload(model, note, module: usize) {
        model.refuse_prohibited()?;
        model.unload_module(module)
    }

    Context fn cuModuleGetFunction(model, note, function: *mut usize, module: usize, name: *const c_char) {
        let name = text(name)?;
        note.name("name", &name);
        let found = model.function_of(module, &name)?;
        put(function, found)
    }

    Context fn cuFuncGetAttribute(model, note, value: *mut c_int, attribute: Attribute, function: usize) {
        let function = model.function(function)?;
        let (major, minor) = model.settings.capability;
        let known = match attribute {
            Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => function.max_threads as c_int,
            Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => function.registers as c_int,
            Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.max_shared.load(Ordering::Relaxed),
            Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION | Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION => {
                (10 * major + minor) as c_int
            }
            // All shared memory of generated code is dynamic, and nothing is spilled.
            Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
            | Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
            | Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => 0,
            _ => return Err(Code::CUDA_ERROR_NOT_SUPPORTED),
        };
        put(value, known)
    }

    Context fn cuFuncSetAttribute(model, note, function: usize, attribute: Attribute, value: c_int) {
        let function = model.function(function)?;
        match attribute {
            Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES if (0..=SHARED_OPT_IN).contains(&value) => {
                function.max_shared.store(value, Ordering::Relaxed);
                Ok(())
            }
            Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => Err(Code::CUDA_ERROR_INVALID_VALUE),
            // A hint.
            Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => Ok(()),
            _ => Err(Code::CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    Context fn cuLaunchKernelEx(
        model,
        note,
        config: *const CUlaunchConfig,
        function: usize,
        params: *const *mut c_void,
        extra: *const *mut c_void,
    ) {
        let config = get(config)?;
        let stream = config.hStream.expose_provenance();
        note.stream(stream);
        for attribute in list(config.attrs.cast_const(), config.numAttrs as usize)? {
            match attribute.id {
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                    if model.settings.capability >= (9, 0) => {}
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE => {}
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION => {
                    return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
                }
                other => {
                    model.violate(&format!("the model does not know {other:?}"));
                    return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
                }
            }
        }
        if !extra.is_null() {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let grid = Grid {
            programs: [config.gridDimX, config.gridDimY, config.gridDimZ],
            threads: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared_bytes: config.sharedMemBytes,
        };
        // SAFETY: callers give a pointer for each parameter.
        let kernel = unsafe { model.kernel(function, grid, params)? };
        note.name("name", &kernel.function.entry);
        model.launch(note.number, stream, kernel)
    }

    Context fn cuLaunchKernel(
        model,
        note,
        function: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: usize,
        params: *const *mut c_void,
        extra: *const *mut c_void,
    ) {
        note.stream(stream);
        if !extra.is_null() {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let grid = Grid { programs: [grid_x, grid_y, grid_z], threads: [block_x, block_y, block_z], shared_bytes };
        // SAFETY: as above.
        let kernel = unsafe { model.kernel(function, grid, params)? };
        note.name("name", &kernel.function.entry);
        model.launch(note.number, stream, kernel)
    }

    Context fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        model,
        note,
        blocks: *mut c_int,
        function: usize,
        threads: c_int,
        shared_bytes: usize,
    ) {
        /// What a multiprocessor of an A100 has.
        const PROCESSOR: [usize; 4] = [32, 2048, 65536, 164 << 10];
        let function = model.function(function)?;
        let threads = usize::try_from(threads).ok().filter(|threads| *threads > 0);
        let threads = threads.ok_or(Code::CUDA_ERROR_INVALID_VALUE)?.next_multiple_of(32);
        // The system takes a kilobyte of each program's shared memory.
        let needed = [1, threads, threads * function.registers as usize, shared_bytes + 1024];
        let most = PROCESSOR.iter().zip(needed).map(|(has, needed)| has / needed).min().unwrap_or(0);
        put(blocks, most as c_int)
    }
}
