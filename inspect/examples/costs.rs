//! What it costs to find a compiled kernel, against compiling it: everything that a first launch does on the CPU, without the
//! driver.
//!
//! ```text
//! cargo run --release -p tilewright-inspect --example costs
//! ```
//!
//! Times are medians in microseconds: `compile` is from the generic tile IR to PTX, `key` what it takes to know under which
//! name to look (a hash of the kernel's text, once per kernel, and of what the launch says), `find` to open, check and read
//! the file. What a cold cache costs beside that is what it takes to keep what was compiled: `texts` to make its texts (the
//! bound tile IR and the report), `pack` to make a file of it, `write` to write that. A launch leaves these three to a thread that works while the driver
//! compiles, and itself takes `miss`, to see that there is no such file, twice, and `hand`, to begin the thread.

use std::time::{Duration, Instant};

use kernel_archive::{Cache, Places, entry};
use kernel_core::backend::Artifact;
use kernel_core::backend::nvidia::Ptx;
use kernel_core::text;
use tilewright::archive::ArchiveBuilder;
use tilewright::launch::{Assumes, CompileRequest};
use tilewright::prelude::*;
use tilewright_inspect::stages::{self, Stages};

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
    time_of(|| {
        let start = Instant::now();
        std::hint::black_box(run());
        start.elapsed()
    })
}

/// The median of what several runs say that they have taken, in microseconds.
fn time_of(mut run: impl FnMut() -> Duration) -> f64 {
    let mut times: Vec<f64> = (0..TIMES).map(|_| run().as_secs_f64() * 1e6).collect();
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
    let bound = stages::bound(&one).expect("its own text");
    let compiled: Artifact<Ptx> = Stages::of(&one).compiled.expect("its own kernel").into();
    let texts = time(|| (text::print(bound.func()), compiled.code.report.report(None)));
    let pack = time(|| entry::encode(&one));
    let packed = entry::encode(&one);
    // A file that is there already would be replaced, for which file systems write more than for a new one.
    let (mut other, mut number) = (at, 0u32);
    let write = time(|| {
        number += 1;
        other.0[..4].copy_from_slice(&number.to_le_bytes());
        cache.put(other, &packed)
    });
    drop(cache.put(at, &packed));
    let find = time(|| cache.get(at).map(|bytes| entry::decode(&bytes)));
    let absent = identity.key("another compiler");
    let miss = time(|| (cache.get(absent), cache.get(absent)));
    let hand = time_of(|| {
        let start = Instant::now();
        let thread = std::thread::spawn(|| ());
        let taken = start.elapsed();
        drop(thread.join());
        taken
    });
    let (ptx, size) = (one.texts.ptx.len(), bytes.len());
    println!(
        "{name:<8} {compile:>9.0} {key:>7.1} {miss:>7.1} {hand:>7.1} {find:>7.1} {texts:>7.1} {pack:>7.1} {write:>7.1} {ptx:>9} {size:>9}"
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let folder = std::env::temp_dir().join(format!("tilewright-costs-{}", std::process::id()));
    let cache = Cache::open(&folder, 1 << 30).expect("a folder for temporary files");
    println!("kernel     compile     key    miss    hand    find   texts    pack   write PTX bytes  archive");
    row("add", &cache, || AddConsts { BLOCK: 1024 }.request::<f32>())?;
    row("softmax", &cache, || SoftmaxConsts { BLOCK: 4096 }.request::<f32>())?;
    row("matmul", &cache, || MatmulConsts { BM: 128, BN: 128, BK: 64 }.request::<f16>())?;
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}
