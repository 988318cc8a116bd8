//! cuBLAS and cuBLASLt, opened at run time: the few functions that a matrix product needs.
//!
//! Both count columns first. A row-major `c = a @ b` is their `cᵀ = bᵀ @ aᵀ`, so `b` is their first operand.

use std::ffi::{c_int, c_longlong, c_void};
use std::sync::Arc;

use cudarc::driver::CudaStream;
use libloading::os::unix::Library;
use tilewright::prelude::*;

use crate::library::{self, function};

type Handle = *mut c_void;
type Status = c_int;

/// `cudaDataType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Type {
    F32 = 0,
    F16 = 2,
    Bf16 = 14,
    F8E4M3 = 28,
}

/// `cublasComputeType_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Compute {
    /// Sums in f32.
    F32 = 68,
    /// Operands rounded to tf32, sums in f32.
    Tf32 = 77,
}

/// Operations on operands.
const AS_IT_IS: c_int = 0;
const TRANSPOSED: c_int = 1;
/// `CUBLAS_GEMM_DEFAULT`: the library chooses.
const DEFAULT: c_int = -1;
/// Attributes of cuBLASLt's descriptions.
const DESC_TRANSPOSE_A: c_int = 3;
const DESC_TRANSPOSE_B: c_int = 4;
const DESC_FAST_ACCUMULATION: c_int = 25;
const LAYOUT_BATCH: c_int = 5;
const LAYOUT_BATCH_STRIDE: c_int = 6;
const PREFERENCE_WORKSPACE: c_int = 1;
/// Bytes that the libraries may use: what PyTorch gives them on Hopper.
const WORKSPACE: usize = 32 << 20;
/// How many of cuBLASLt's proposals are tried.
const PROPOSALS: usize = 8;

/// What is multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Rows of `c`.
    pub m: usize,
    /// Columns of `c`.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// How many products, one after the other in memory.
    pub batch: usize,
    /// Whether `b` is stored as its transpose.
    pub b_k_major: bool,
    /// The type of `a` and `b`.
    pub operand: Type,
    /// The type of `c`.
    pub result: Type,
    /// How it is computed.
    pub compute: Compute,
}

/// The addresses of the first elements.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Addresses {
    pub a: u64,
    pub b: u64,
    pub c: u64,
}

type Create = unsafe extern "C" fn(*mut Handle) -> Status;
type SetAttribute = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status;
#[rustfmt::skip]
type GemmStridedBatched = unsafe extern "C" fn(
    Handle, c_int, c_int, c_int, c_int, c_int, *const f32,
    u64, Type, c_int, c_longlong, u64, Type, c_int, c_longlong, *const f32,
    u64, Type, c_int, c_longlong, c_int, Compute, c_int,
) -> Status;
#[rustfmt::skip]
type Gemm = unsafe extern "C" fn(
    Handle, c_int, c_int, c_int, c_int, c_int, *const f32,
    u64, Type, c_int, u64, Type, c_int, *const f32, u64, Type, c_int, Compute, c_int,
) -> Status;
#[rustfmt::skip]
type LtHeuristic = unsafe extern "C" fn(
    Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Proposal, *mut c_int,
) -> Status;
#[rustfmt::skip]
type LtMatmul = unsafe extern "C" fn(
    Handle, Handle, *const f32, u64, Handle, u64, Handle, *const f32, u64, Handle, u64, Handle,
    *const [u64; 8], u64, usize, *mut c_void,
) -> Status;

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Proposal {
    algorithm: [u64; 8],
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

/// The functions that are used.
struct Functions {
    gemm: Gemm,
    gemm_batched: GemmStridedBatched,
    lt_create: Create,
    desc_create: unsafe extern "C" fn(*mut Handle, Compute, Type) -> Status,
    desc_set: SetAttribute,
    layout_create: unsafe extern "C" fn(*mut Handle, Type, u64, u64, i64) -> Status,
    layout_set: SetAttribute,
    preference_create: Create,
    preference_set: SetAttribute,
    heuristic: LtHeuristic,
    matmul: LtMatmul,
}

/// The libraries, on one stream.
pub struct Cublas {
    functions: Functions,
    handle: Handle,
    lt: Handle,
    stream: Arc<CudaStream>,
    workspace: Buffer<u8>,
    /// Where it lies and its version.
    pub origin: String,
}

fn check(what: &str, status: Status) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{what} failed with status {status}")) }
}

/// # Safety
/// The libraries are cuBLAS and cuBLASLt, and stay loaded.
unsafe fn functions(blas: &Library, lt: &Library) -> Result<Functions, String> {
    // SAFETY: the types are those of `cublas_v2.h` and `cublasLt.h`; pointers to device memory are passed as numbers.
    unsafe {
        Ok(Functions {
            gemm: function(blas, "cublasGemmEx")?,
            gemm_batched: function(blas, "cublasGemmStridedBatchedEx")?,
            lt_create: function(lt, "cublasLtCreate")?,
            desc_create: function(lt, "cublasLtMatmulDescCreate")?,
            desc_set: function(lt, "cublasLtMatmulDescSetAttribute")?,
            layout_create: function(lt, "cublasLtMatrixLayoutCreate")?,
            layout_set: function(lt, "cublasLtMatrixLayoutSetAttribute")?,
            preference_create: function(lt, "cublasLtMatmulPreferenceCreate")?,
            preference_set: function(lt, "cublasLtMatmulPreferenceSetAttribute")?,
            heuristic: function(lt, "cublasLtMatmulAlgoGetHeuristic")?,
            matmul: function(lt, "cublasLtMatmul")?,
        })
    }
}

impl Cublas {
    /// Opens the libraries for a device's default stream.
    ///
    /// # Errors
    /// If they are not there, or refuse the device.
    pub fn open(device: &Device) -> Result<Cublas, String> {
        let stream = device.default_stream();
        stream.bind().map_err(|e| e.to_string())?;
        let stream = stream.cudarc().cloned().ok_or("cuBLAS needs a GPU")?;
        // cuBLAS is linked against cuBLASLt, which it finds more surely if that is there already.
        let (lt_library, _) = library::open("libcublasLt")?;
        let (blas, path) = library::open("libcublas")?;
        let workspace = device.zeros::<u8>(WORKSPACE).map_err(|e| e.to_string())?;
        let (mut handle, mut lt, mut version) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        // SAFETY: the types are the headers'; a context is current, and every pointer is to a live variable. The
        // libraries are never unloaded.
        let functions = unsafe {
            let functions = functions(&blas, &lt_library)?;
            let create: Create = function(&blas, "cublasCreate_v2")?;
            let set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> Status =
                function(&blas, "cublasSetStream_v2")?;
            let set_workspace: unsafe extern "C" fn(Handle, u64, usize) -> Status =
                function(&blas, "cublasSetWorkspace_v2")?;
            let get_version: unsafe extern "C" fn(Handle, *mut c_int) -> Status =
                function(&blas, "cublasGetVersion_v2")?;
            check("cublasCreate", create(&mut handle))?;
            check("cublasSetStream", set_stream(handle, stream.cu_stream().cast()))?;
            check("cublasSetWorkspace", set_workspace(handle, workspace.raw().address.get(), WORKSPACE))?;
            check("cublasGetVersion", get_version(handle, &mut version))?;
            check("cublasLtCreate", (functions.lt_create)(&mut lt))?;
            functions
        };
        std::mem::forget((blas, lt_library));
        Ok(Cublas { functions, handle, lt, stream, workspace, origin: format!("cuBLAS {version} of {path}") })
    }

    /// A product by cuBLAS, which chooses how.
    ///
    /// # Errors
    /// If cuBLAS refuses it.
    ///
    /// # Safety
    /// The matrices must be as the problem says, and in use by nobody else.
    pub unsafe fn gemm(&self, problem: &Problem, at: Addresses) -> Result<(), String> {
        let Problem { m, n, k, batch, b_k_major, operand, result, compute } = *problem;
        let (first, ld) = if b_k_major { (TRANSPOSED, k) } else { (AS_IT_IS, n) };
        let (one, zero) = (1.0f32, 0.0f32);
        let [mi, ni, ki, ld, batches] = [m, n, k, ld, batch].map(|x| x as c_int);
        // SAFETY: the caller's promise; the factors live until the call returns.
        #[rustfmt::skip]
        let status = unsafe {
            if batch == 1 {
                (self.functions.gemm)(
                    self.handle, first, AS_IT_IS, ni, mi, ki, &one, at.b, operand, ld, at.a, operand, ki, &zero, at.c,
                    result, ni, compute, DEFAULT,
                )
            } else {
                let [sa, sb, sc] = [m * k, n * k, m * n].map(|x| x as c_longlong);
                (self.functions.gemm_batched)(
                    self.handle, first, AS_IT_IS, ni, mi, ki, &one, at.b, operand, ld, sb, at.a, operand, ki, sa,
                    &zero, at.c, result, ni, sc, batches, compute, DEFAULT,
                )
            }
        };
        check("cublasGemmEx", status)
    }

    /// cuBLASLt's proposals for a problem, best first as it believes.
    ///
    /// # Errors
    /// If it has none.
    pub fn plan(&self, problem: &Problem) -> Result<Plan, String> {
        let Problem { m, n, k, batch, b_k_major, operand, result, compute } = *problem;
        let f = &self.functions;
        let transpose = if b_k_major { TRANSPOSED } else { AS_IT_IS };
        let mut desc = std::ptr::null_mut();
        // SAFETY: here and below, handles are those that the library made, and attributes have the sizes of its header.
        check("cublasLtMatmulDescCreate", unsafe { (f.desc_create)(&mut desc, compute, Type::F32) })?;
        set(f.desc_set, desc, DESC_TRANSPOSE_A, &transpose)?;
        set(f.desc_set, desc, DESC_TRANSPOSE_B, &AS_IT_IS)?;
        if operand == Type::F8E4M3 {
            set(f.desc_set, desc, DESC_FAST_ACCUMULATION, &1i8)?;
        }
        let layout = |kind: Type, rows: usize, columns: usize| -> Result<Handle, String> {
            let mut layout = std::ptr::null_mut();
            // SAFETY: as above.
            let status = unsafe { (f.layout_create)(&mut layout, kind, rows as u64, columns as u64, rows as i64) };
            check("cublasLtMatrixLayoutCreate", status)?;
            if batch > 1 {
                set(f.layout_set, layout, LAYOUT_BATCH, &(batch as i32))?;
                set(f.layout_set, layout, LAYOUT_BATCH_STRIDE, &((rows * columns) as i64))?;
            }
            Ok(layout)
        };
        let b = if b_k_major { layout(operand, k, n)? } else { layout(operand, n, k)? };
        let (a, c) = (layout(operand, k, m)?, layout(result, n, m)?);
        let mut preference = std::ptr::null_mut();
        // SAFETY: as above.
        check("cublasLtMatmulPreferenceCreate", unsafe { (f.preference_create)(&mut preference) })?;
        set(f.preference_set, preference, PREFERENCE_WORKSPACE, &(WORKSPACE as u64))?;
        let (mut proposals, mut count) = ([Proposal::default(); PROPOSALS], 0);
        // SAFETY: as above; there is room for as many proposals as are asked for.
        let status = unsafe {
            let most = PROPOSALS as c_int;
            (f.heuristic)(self.lt, desc, b, a, c, c, preference, most, proposals.as_mut_ptr(), &mut count)
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let good = |p: &&Proposal| p.state == 0 && p.workspace <= WORKSPACE;
        let algorithms = proposals.iter().take(count as usize).filter(good).map(|p| p.algorithm).collect();
        Ok(Plan { desc, a, b, c, algorithms })
    }

    /// A product by one of a plan's algorithms.
    ///
    /// # Errors
    /// If cuBLASLt refuses it.
    ///
    /// # Safety
    /// The matrices must be as the plan's problem says, and in use by nobody else.
    pub unsafe fn run(&self, plan: &Plan, algorithm: usize, at: Addresses) -> Result<(), String> {
        let algorithm = plan.algorithms.get(algorithm).ok_or("the plan has no such algorithm")?;
        let (one, zero) = (1.0f32, 0.0f32);
        let workspace = self.workspace.raw().address.get();
        // SAFETY: the caller's promise; the workspace is used on this stream only.
        #[rustfmt::skip]
        let status = unsafe {
            (self.functions.matmul)(
                self.lt, plan.desc, &one, at.b, plan.b, at.a, plan.a, &zero, at.c, plan.c, at.c, plan.c, algorithm,
                workspace, WORKSPACE, self.stream.cu_stream().cast(),
            )
        };
        check("cublasLtMatmul", status)
    }
}

/// Sets an attribute of one of cuBLASLt's objects.
fn set<T>(setter: SetAttribute, object: Handle, attribute: c_int, value: &T) -> Result<(), String> {
    // SAFETY: the object is of the setter's kind, and the attribute's type is `T`, as all callers here see to.
    let status = unsafe { setter(object, attribute, std::ptr::from_ref(value).cast(), size_of::<T>()) };
    check(&format!("setting cuBLASLt's attribute {attribute}"), status)
}

/// A problem as cuBLASLt describes it, and its proposals. They are few and live as long as the program.
pub struct Plan {
    desc: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    algorithms: Vec<[u64; 8]>,
}

impl Plan {
    /// How many algorithms there are.
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
    }
}
