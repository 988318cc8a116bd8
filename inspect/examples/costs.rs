//! What it costs to find a compiled kernel, against compiling it: everything that a first launch does on the CPU, without the
//! driver.
//!
//! ```text
//! cargo run --release -p tilewright-inspect --example costs
//! ```
//!
//! Times are medians in microseconds: `compile` is from the generic tile IR to PTX, `key` what it takes to know under which
//! name to look (a hash of the kernel's text, once per kernel, and of what the launch says), `find` to open, check and read
//! the file, `keep` to write it.

use std::time::Instant;

use kernel_archive::{Cache, Places, entry};
use tilewright::archive::ArchiveBuilder;
use tilewright::launch::{Assumes, CompileRequest};
use tilewright::prelude::*;

/// out[i] = x[i] + y[i]
#[kernel]
fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

/// Each row scaled so that its exponentials sum to 1.
#[kernel]
fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, row_stride: i64, columns: i32) {
    let start = program_id(0) as i64 * row_stride;
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let row = load(x + start + column, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    store(out + start + column, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
}

/// `a @ b`
#[kernel]
fn matmul<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<T>,
    m: i32,
    n: i32,
    k: i32,
) {
    let i = program_id(0) * BM + arange(0, BM);
    let j = program_id(1) * BN + arange(0, BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let along = t + arange(0, BK);
        let x = load(a + i[(.., None)] * k + along, mask = (i < m)[(.., None)] & (along < k));
        let y = load(b + along[(.., None)] * n + j, mask = (along < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + i[(.., None)] * n + j, acc as T, mask = (i < m)[(.., None)] & (j < n));
}

/// How often each is measured.
const TIMES: usize = 21;

/// The median of several runs, in microseconds.
fn time<R>(mut run: impl FnMut() -> R) -> f64 {
    let mut times: Vec<f64> = (0..TIMES)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(run());
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[TIMES / 2]
}

fn row<A: Assumes>(name: &str, cache: &Cache, request: impl Fn() -> CompileRequest<A>) -> Result<(), Error> {
    let add = || -> Result<Vec<u8>, Error> {
        let mut archive = ArchiveBuilder::new();
        archive.add(request().checked(), &[Target::sm_90a()])?;
        Ok(archive.to_bytes())
    };
    add()?; // LLVM is loaded.
    let bytes = add()?;
    let compile = time(add);
    let one = kernel_archive::read(&bytes).ok().and_then(|mut entries| entries.pop()).expect("one variant");
    let identity = &one.head.identity;
    // The generic text is shorter than the bound one.
    let key = time(|| (Places::of(&one.texts.bound_ir).digest(), identity.key(&one.head.maker.compiler)));
    let at = identity.key("");
    let keep = time(|| cache.put(at, &entry::encode(&one)));
    let find = time(|| cache.get(at).map(|bytes| entry::decode(&bytes)));
    let (ptx, size) = (one.texts.ptx.len(), bytes.len());
    println!("{name:<8} {compile:>9.0} {key:>7.1} {find:>7.1} {keep:>7.1} {ptx:>9} {size:>9}");
    Ok(())
}

fn main() -> Result<(), Error> {
    let folder = std::env::temp_dir().join(format!("tilewright-costs-{}", std::process::id()));
    let cache = Cache::open(&folder, 1 << 30).expect("a folder for temporary files");
    println!("kernel     compile     key    find    keep PTX bytes  archive");
    row("add", &cache, || AddConsts { BLOCK: 1024 }.request::<f32>())?;
    row("softmax", &cache, || SoftmaxConsts { BLOCK: 4096 }.request::<f32>())?;
    row("matmul", &cache, || MatmulConsts { BM: 128, BN: 128, BK: 64 }.request::<f16>())?;
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}
