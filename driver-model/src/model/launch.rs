//! Modules and launches.

use super::code::{Function, Refusal, compile};
use super::{Action, Code, KernelWork, Model, Outcome, current};
use std::ffi::c_void;
use std::sync::Arc;

/// The most programs along each axis. From "Technical specifications" in the CUDA programming guide.
const MOST_PROGRAMS: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// The most threads of a program along each axis, from there too, and altogether.
const MOST_THREADS: [u32; 3] = [1024, 1024, 64];
const MOST_THREADS_TOGETHER: u64 = 1024;

/// The size of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) programs: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl Model {
    /// Loads PTX into the current context.
    pub(crate) fn load_module(&mut self, ptx: &str) -> Result<usize, Refusal> {
        let module = self.new_handle();
        let functions = compile(ptx, self.settings.capability_number(), module, current())?;
        let mut handles = Vec::new();
        for function in functions {
            let handle = self.new_handle();
            self.functions.insert(handle, Arc::new(function));
            handles.push(handle);
        }
        self.modules.insert(module, handles);
        Ok(module)
    }

    pub(crate) fn unload_module(&mut self, module: usize) -> Outcome {
        let Some(functions) = self.modules.remove(&module) else { return Err(self.no_handle("module", module)) };
        self.gone.insert(module);
        if self.work.has(|action| matches!(action, Action::Kernel(kernel) if kernel.function.module == module)) {
            self.violate("a module is unloaded while a kernel of it may still run");
        }
        for function in functions {
            self.functions.remove(&function);
            self.gone.insert(function);
        }
        Ok(())
    }

    /// The function of a module with that name.
    pub(crate) fn function_of(&mut self, module: usize, name: &str) -> Result<usize, Code> {
        let Some(functions) = self.modules.get(&module) else { return Err(self.no_handle("module", module)) };
        let mut found = functions.iter().filter(|function| self.functions[function].entry == name);
        found.next().copied().ok_or(Code::CUDA_ERROR_NOT_FOUND)
    }

    pub(crate) fn function(&mut self, handle: usize) -> Result<Arc<Function>, Code> {
        match self.functions.get(&handle) {
            Some(function) => Ok(function.clone()),
            None => Err(self.no_handle("function", handle)),
        }
    }

    /// A launch of a function, checked.
    ///
    /// # Safety
    ///
    /// There is a pointer for each parameter of the function, to as many bytes as that has.
    pub(crate) unsafe fn kernel(
        &mut self,
        function: usize,
        grid: Grid,
        params: *const *mut c_void,
    ) -> Result<KernelWork, Code> {
        let function = self.function(function)?;
        let Grid { programs, threads, shared_bytes } = grid;
        let within =
            |sizes: [u32; 3], limits: [u32; 3]| sizes.iter().zip(limits).all(|(n, limit)| (1..=limit).contains(n));
        let together: u64 = threads.iter().map(|n| u64::from(*n)).product();
        let is_exact = function.exact_threads.is_none_or(|exact| u64::from(exact) == together);
        if !within(programs, MOST_PROGRAMS)
            || !within(threads, MOST_THREADS)
            || together > MOST_THREADS_TOGETHER.min(function.max_threads.into())
            || !is_exact
            || !function.may_have_shared(shared_bytes)
        {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        if threads[1..] != [1, 1] {
            self.violate("the model runs programs whose threads lie along one axis");
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let sizes = function.code.params();
        if params.is_null() && !sizes.is_empty() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let mut values = Vec::with_capacity(sizes.len());
        for (index, size) in sizes.iter().enumerate() {
            if *size > size_of::<u64>() {
                self.violate("the model has no parameters of more than eight bytes, such as tensor maps");
                return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
            }
            let mut bytes = [0; 8];
            // SAFETY: promised by the caller.
            unsafe { params.add(index).read().cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), *size) };
            values.push(u64::from_le_bytes(bytes));
        }
        Ok(KernelWork { function, grid: programs, block: threads, shared_bytes, params: values })
    }

    /// Gives a kernel to a stream.
    pub(crate) fn launch(&mut self, call: u64, stream: usize, kernel: KernelWork) -> Outcome {
        if self.context_of_stream(stream)? != kernel.function.context {
            return Err(Code::CUDA_ERROR_INVALID_HANDLE);
        }
        self.enqueue(call, stream, Action::Kernel(Arc::new(kernel))).map(drop)
    }
}
