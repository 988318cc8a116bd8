//! Chains of short kernels, with launches that may begin before those before them have ended and without.
//!
//! ```text
//! cargo bench -p tilewright-bench --bench dependent                  # writes results/dependent.csv
//! ```
//!
//! Each kernel reads what the one before wrote. A chain is timed from its first launch until the GPU has run it, and there
//! are enough launches that the GPU and not the host takes the time, but for the smallest; all contenders in turn.

use std::fmt::Write as _;
use std::time::Instant;

use tilewright::prelude::*;
use tilewright_bench::{Failure, median, report};

/// Launches of a chain.
const CHAIN: usize = 400;
/// Chains per contender.
const ROUNDS: usize = 51;
/// Elements of the vectors: of one program, of one per multiprocessor, and more than caches hold.
const SIZES: [usize; 4] = [1 << 10, 1 << 17, 1 << 20, 1 << 24];

/// A row of a network: scaled, moved, and cut below.
#[kernel]
pub fn layer<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, scale: f32, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let x = load(x + offsets, mask = mask);
    store(out + offsets, maximum(x * scale + 0.5, 0.0), mask = mask);
}

/// How a chain is launched.
#[derive(Clone, Copy, PartialEq)]
enum Launches {
    Ordinary,
    Dependent,
}

/// One chain, back and forth between two vectors.
fn chain(device: &Device, vectors: &mut [Buffer<f32>; 2], launches: Launches) -> Result<(), Failure> {
    let n = vectors[0].len();
    for step in 0..CHAIN {
        let [first, second] = vectors;
        let (x, out) = if step % 2 == 0 { (&*first, second) } else { (&*second, first) };
        let call = layer::<1024>(x, out, 0.5, n as i32).grid(n.div_ceil(1024));
        match launches {
            Launches::Ordinary => call.launch(device)?,
            Launches::Dependent => call.dependent_launch().launch(device)?,
        }
    }
    Ok(())
}

/// Nanoseconds per launch, and what they were of ordinary launches in the same round.
fn race(device: &Device, n: usize, rounds: usize) -> Result<String, Failure> {
    let contenders = [("ordinary", Launches::Ordinary), ("dependent", Launches::Dependent)];
    let mut vectors = [device.full(n, 1.0f32)?, device.zeros(n)?];
    let mut times = [const { Vec::new() }; 2];
    for round in 0..=rounds {
        for turn in 0..2 {
            let index = (round + turn) % 2;
            device.synchronize()?;
            let start = Instant::now();
            chain(device, &mut vectors, contenders[index].1)?;
            device.synchronize()?;
            // The first round compiles.
            if round > 0 {
                times[index].push(start.elapsed().as_secs_f64() * 1e9 / CHAIN as f64);
            }
        }
    }
    // Half of itself and a half: 1, whatever came before.
    if !vectors[0].to_vec()?.iter().all(|&x| x == 1.0) {
        return Err("wrong results".into());
    }
    let mut out = String::new();
    let mut ratios: Vec<f64> =
        times[1].iter().zip(&times[0]).map(|(dependent, ordinary)| dependent / ordinary).collect();
    let ratio = median(&mut ratios);
    for ((name, _), (times, ratio)) in contenders.iter().zip(times.iter_mut().zip([1.0, ratio])) {
        writeln!(out, "{n},{name},{:.1},{ratio:.4}", median(times))?;
    }
    Ok(out)
}

fn main() -> Result<(), Failure> {
    let device = Device::best()?;
    if !device.is_cuda() {
        // That the chains are right, at the smallest size.
        race(&device, SIZES[0], 1)?;
        println!("skipped: chains are timed on a CUDA device");
        return Ok(());
    }
    let mut results =
        format!("# {}\nelements,launches,nanoseconds of each,time relative to ordinary ones\n", report::machine());
    print!("{results}");
    for n in SIZES {
        let rows = race(&device, n, ROUNDS)?;
        print!("{rows}");
        results += &rows;
    }
    report::write("dependent.csv", &results)?;
    Ok(())
}
