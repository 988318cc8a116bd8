//! Triton, cuBLAS and cuBLASLt as contenders.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use tilewright::prelude::*;

use super::{Contender, Factor, Group, Operands, Product};
use crate::Failure;
use crate::cubin::{self, Argument, Cubin, Entry};
use crate::cublas::{Addresses, Cublas};
use crate::report;
use crate::tensor_map::Matrix;

/// The forms of Triton's kernels, as contenders.
const FORMS: [(&str, &str); 4] = [
    ("pointer", "triton pointer"),
    ("descriptor", "triton descriptor"),
    ("persistent", "triton persistent"),
    ("specialized", "triton specialized"),
];

/// Global memory that each program of Triton's kernels may want for its descriptors, in bytes.
const SCRATCH: usize = 1 << 10;

/// Everything of others that runs on the device.
pub struct Peers {
    entries: Vec<Entry>,
    loaded: HashMap<PathBuf, Rc<Cubin>>,
    cublas: Option<Rc<Cublas>>,
    stream: Arc<CudaStream>,
    processors: usize,
    scratch: Rc<Buffer<u8>>,
}

fn addresses<T: Factor>(operands: &Operands<'_, T>) -> Addresses {
    let [a, b] = [&operands.a, &operands.b].map(|view| view.raw().address.get());
    Addresses { a, b, c: operands.c.raw().address.get() }
}

/// Which of the index's classes of shapes a product is in.
fn class(group: Group) -> &'static str {
    match group {
        Group::Skinny => "skinny",
        Group::Batched => "batched",
        Group::Large | Group::Small | Group::Bytes | Group::Singles | Group::Uneven => "large",
    }
}

impl Peers {
    /// Looks for everybody; who is missing is reported and left out. `None` without a GPU.
    ///
    /// # Errors
    /// If the device fails.
    pub fn open(device: &Device) -> Result<Option<Peers>, Failure> {
        let stream = device.default_stream();
        stream.bind()?;
        let Some(stream) = stream.cudarc().cloned() else { return Ok(None) };
        let folder = report::cubins().join("matmul");
        let entries = cubin::index(&folder);
        println!("Triton: {} kernels in {}", entries.len(), folder.display());
        let cublas = match Cublas::open(device) {
            Ok(cublas) => {
                println!("{}", cublas.origin);
                Some(Rc::new(cublas))
            }
            Err(why) => {
                println!("without cuBLAS: {why}");
                None
            }
        };
        let processors = device.multiprocessor_count();
        let scratch = Rc::new(device.zeros(processors * SCRATCH)?);
        Ok(Some(Peers { entries, loaded: HashMap::new(), cublas, stream, processors, scratch }))
    }

    /// Where cuBLAS lies and its version, if it is there.
    pub fn origin(&self) -> Option<&str> {
        self.cublas.as_ref().map(|cublas| cublas.origin.as_str())
    }

    /// Everybody for a product.
    ///
    /// # Errors
    /// If the driver refuses a kernel.
    pub fn contenders<T: Factor>(&mut self, product: &Product) -> Result<Vec<Contender<'static, T>>, Failure> {
        let mut all = Vec::new();
        for (form, name) in FORMS {
            all.push(self.triton(form, name, product)?);
        }
        all.extend(self.vendor(product));
        all.retain(|contender| !contender.configs.is_empty());
        Ok(all)
    }

    fn load(&mut self, entry: &Entry) -> Result<Rc<Cubin>, Failure> {
        if let Some(cubin) = self.loaded.get(entry.file()) {
            return Ok(cubin.clone());
        }
        let cubin = Rc::new(Cubin::load(entry)?);
        self.loaded.insert(entry.file().to_path_buf(), cubin.clone());
        Ok(cubin)
    }

    fn triton<T: Factor>(
        &mut self,
        form: &'static str,
        name: &'static str,
        product: &Product,
    ) -> Result<Contender<'static, T>, Failure> {
        let mut contender = Contender::new(name);
        let fits = |e: &&Entry| (&*e.work, &*e.dtype, &*e.variant) == (form, T::NAME, class(product.group));
        let entries: Vec<Entry> = self.entries.iter().filter(fits).cloned().collect();
        for entry in entries {
            let (Some(bm), Some(bn)) = (entry.get("BM"), entry.get("BN")) else { continue };
            // Of few rows, no tile has more, except that wgmma has 64 of them.
            if product.group == Group::Skinny && bm > product.m.max(64) {
                continue;
            }
            let tiles = product.m.div_ceil(bm) * product.n.div_ceil(bn);
            let persistent = matches!(form, "persistent" | "specialized");
            if entry.scratch > SCRATCH || (entry.scratch > 0 && !persistent) {
                return Err(format!("{} wants {} bytes for each program", entry.config, entry.scratch).into());
            }
            let programs = if persistent { tiles.min(self.processors) } else { tiles };
            let grid = [programs as u32, product.batch as u32, 1];
            let (kernel, stream, product) = (self.load(&entry)?, self.stream.clone(), *product);
            let scratch = self.scratch.clone();
            contender.config(entry.config.clone(), move |_, operands| {
                let arguments = arguments(&entry, &product, addresses(operands), T::B_K_MAJOR, size_of::<T>())?;
                // SAFETY: the arguments are those of the kernel, whose masks and descriptors keep it inside the
                // buffers, which are borrowed; the scratch is enough for a program per multiprocessor.
                Ok(unsafe { kernel.launch(&stream, grid, &arguments, scratch.raw().address.get()) }?)
            });
        }
        Ok(contender)
    }

    fn vendor<T: Factor>(&self, product: &Product) -> Vec<Contender<'static, T>> {
        let Some(cublas) = &self.cublas else { return Vec::new() };
        let problem = product.problem::<T>();
        let plan = match cublas.plan(&problem) {
            Ok(plan) => Rc::new(plan),
            Err(why) => {
                println!("cuBLASLt has no plan for {product}: {why}");
                return Vec::new();
            }
        };
        let algorithm = |which: usize| {
            let (cublas, plan) = (cublas.clone(), plan.clone());
            // SAFETY: the operands are the problem's, and borrowed.
            move |_: &crate::How<'_>, operands: &mut Operands<'_, T>| unsafe {
                cublas.run(&plan, which, addresses(operands)).map_err(Into::into)
            }
        };
        let mut own = Contender::new("cublas");
        if product.group == Group::Bytes {
            // cuBLAS itself has no bytes: its choice is cuBLASLt's first.
            own.config("first proposal".to_string(), algorithm(0));
        } else {
            let cublas = cublas.clone();
            // SAFETY: the operands are the problem's, and borrowed.
            own.config("its own choice".to_string(), move |_, operands| unsafe {
                cublas.gemm(&problem, addresses(operands)).map_err(Into::into)
            });
        }
        let mut tuned = Contender::new("cublaslt");
        for which in 0..plan.algorithms() {
            tuned.config(format!("proposal {which}"), algorithm(which));
        }
        (own.exact, tuned.exact) = (false, false);
        vec![own, tuned]
    }
}

/// The arguments of one of Triton's kernels.
fn arguments(
    entry: &Entry,
    product: &Product,
    at: Addresses,
    b_k_major: bool,
    size: usize,
) -> Result<Vec<Argument>, String> {
    let Product { batch, m, n, k, .. } = *product;
    let sizes = [m, n, k].map(|x| Argument::I32(x as i32));
    let (b_rows, b_columns) = if b_k_major { (n, k) } else { (k, n) };
    if entry.descriptors.is_empty() {
        let strides = [k, b_columns, n].map(|x| Argument::I32(x as i32));
        let addresses = [at.a, at.b, at.c].map(Argument::Address);
        return Ok([addresses, sizes, strides].concat());
    }
    // Only the result's size may differ: f16 of operands of one byte.
    let c_size = if size == 1 { 2 } else { size };
    let matrices = [
        Matrix { address: at.a, rows: batch * m, columns: k, size },
        Matrix { address: at.b, rows: batch * b_rows, columns: b_columns, size },
        Matrix { address: at.c, rows: batch * m, columns: n, size: c_size },
    ];
    let mut all = Vec::new();
    for (encoding, matrix) in entry.descriptors.iter().zip(matrices) {
        all.extend(encoding.arguments(matrix)?);
    }
    all.extend(sizes);
    Ok(all)
}
