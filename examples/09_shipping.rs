//! Kernels that are compiled beforehand: an archive of add, softmax and the persistent matrix product, and a program that
//! launches them with the driver alone.
//!
//! ```text
//! cargo run --release --example 09_shipping -- write kernels.twa                       # on any machine; no GPU is needed
//! cargo run --release -p tilewright --no-default-features --example 09_shipping -- run kernels.twa   # no compiler is built
//! ```
//!
//! `run` prints what the first launch of each kernel takes, from the call to its end on the device. Without an archive it
//! compiles, or finds in the cache on disk what another run has compiled. A program of one's own would embed the archive
//! instead: `tilewright::embed_archive!("kernels.twa")?`.

use std::time::Instant;

use tilewright::archive::{self, ArchiveBuilder, Ptxas};
use tilewright::launch::Target;
use tilewright::prelude::*;

/// `out = x + y`
#[kernel]
pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

/// Softmax of each row.
#[kernel]
pub fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
}

/// `c = a @ b` by programs that stay, each of which takes tile after tile.
#[kernel]
pub fn matmul<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<T, { [BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let (i, j) = (tile / cdiv(n, BN) * BM, tile % cdiv(n, BN) * BN);
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (0..k).step_by(BK) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        c.store([i, j], acc as T);
    }
}

/// The rows and columns of everything here.
const SIZE: usize = 256;

/// Fills an archive: of each kernel the variants for aligned arguments whose sizes are multiples of 16, as they are here.
/// Where there is an assembler, they get machine code too.
fn write(path: &str) -> Result<(), Error> {
    let targets = [Target::sm_80(), Target::sm_90a()];
    let mut archive = ArchiveBuilder::new();
    match Ptxas::find() {
        Ok(ptxas) => drop(archive.machine_code(ptxas)),
        Err(error) => println!("without machine code: {error}"),
    }
    archive.add(AddConsts { BLOCK: 1024 }.request::<f32>(), &targets)?;
    archive.add(SoftmaxConsts { BLOCK: SIZE }.request::<f32>(), &targets)?;
    archive.add(MatmulConsts { BM: 128, BN: 128, BK: 64 }.request::<f16>().num_warps(4), &targets)?;
    archive.write(path)?;
    println!("{} variants, {} bytes", archive.variants().count(), archive.to_bytes().len());
    Ok(())
}

/// Runs a launch to its end, and says how long that took.
fn timed(name: &str, device: &Device, launch: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let start = Instant::now();
    launch()?;
    device.synchronize()?;
    println!("{name}: {:.3} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// The first launch of each kernel, and whether its results are right.
fn run() -> Result<(), Error> {
    let device = Device::best()?;
    if !device.is_cuda() {
        println!("this is the CPU, which interprets kernels and needs no archive");
    }
    let (count, size) = (SIZE * SIZE, SIZE as i32);
    let x = device.upload(&(0..count).map(|i| (i % 7) as f32).collect::<Vec<_>>())?;
    let mut out = device.zeros::<f32>(count)?;
    let a = device.upload(&(0..count).map(|i| f16::from_f32((i % 3) as f32)).collect::<Vec<_>>())?;
    let mut c = device.zeros::<f16>(count)?;
    device.synchronize()?;

    timed("add", &device, || add::<_, 1024>(&x, &x, &mut out, count as i32).grid(count / 1024).launch(&device))?;
    assert!(out.to_vec()?.iter().enumerate().all(|(i, sum)| *sum == 2.0 * (i % 7) as f32), "add is wrong");

    timed("softmax", &device, || softmax::<_, SIZE>(&x, &mut out, size).grid(SIZE).launch(&device))?;
    // Sums of f32 that are rounded once for each of their terms.
    let bound = SIZE as f32 * f32::EPSILON;
    let sums = |row: &[f32]| (row.iter().sum::<f32>() - 1.0).abs() <= bound;
    assert!(out.to_vec()?.chunks(SIZE).all(sums), "softmax is wrong");

    let shape = [SIZE, SIZE];
    let (left, right) = (TensorDesc::new(&a, shape)?, TensorDesc::new(&a, shape)?);
    let mut product = TensorDescMut::new(&mut c, shape)?;
    timed("matmul", &device, || {
        let call = matmul::<_, 128, 128, 64>(&left, &right, &mut product, size, size, size);
        call.grid(4).num_warps(4).launch(&device)
    })?;
    // Sums of small integers are exact in f32, and those of up to 2048 in f16.
    let element = |i: usize, j: usize| (0..SIZE).map(|t| ((i * SIZE + t) % 3) * ((t * SIZE + j) % 3)).sum::<usize>();
    let is_exact = |(at, value): (usize, f16)| value.to_f32() == element(at / SIZE, at % SIZE) as f32;
    assert!(c.to_vec()?.into_iter().enumerate().all(is_exact), "the product is wrong");
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", path] => write(path),
        ["run", path] => {
            let start = Instant::now();
            let count = archive::load(path)?;
            println!("archive: {:.3} ms", start.elapsed().as_secs_f64() * 1e3);
            println!("{count} variants");
            run()
        }
        [] => run(),
        _ => {
            eprintln!("09_shipping [write ARCHIVE | run ARCHIVE]");
            Ok(())
        }
    }
}
