//! Tuning: which tiles of a matrix product are fastest on this device, kept in a table that launches ask.
//!
//! ```text
//! cargo run --release --example 08_tuning
//! cargo run --release --example 08_tuning -- 4096 4096 4096 60            rows, columns, length of sums, seconds
//! cargo run --release --example 08_tuning -- 4096 4096 4096 600 all DIR   everything, and where to keep it
//! ```
//!
//! On a GPU it tunes a product of f16 matrices by programs that stay, on the CPU a small one. `target/tuned` then has the
//! table, every trial, and pictures.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The kernel of the guide to matrix products: `c = a @ b`, all row-major, by programs that stay.
#[path = "../src/guide/matmul/persistent.rs"]
mod kernel;

use kernel::{PersistentConsts, PersistentSpace, persistent};
use tilewright::bench::Bench;
use tilewright::launch::Config;
use tilewright::prelude::*;
use tilewright::tune::{Bar, Plan, Table, Tuned, Tuner};

/// What the command line says.
struct Job {
    /// Rows, columns, and the length of sums.
    sizes: [usize; 3],
    seconds: u64,
    /// Whether everything is tried.
    all: bool,
    folder: PathBuf,
}

impl Job {
    fn read(device: &Device) -> Job {
        let (mut numbers, mut all, mut folder) = (Vec::new(), false, PathBuf::from("target/tuned"));
        for word in std::env::args().skip(1) {
            match (word.parse::<usize>(), word.as_str()) {
                (Ok(number), _) => numbers.push(number),
                (Err(_), "all") => all = true,
                (Err(_), path) => folder = path.into(),
            }
        }
        let usual = if device.is_cuda() { [4096, 4096, 4096, 60] } else { [64, 96, 64, 10] };
        let [m, n, k, seconds] = [0, 1, 2, 3].map(|index| numbers.get(index).copied().unwrap_or(usual[index]));
        Job { sizes: [m, n, k], seconds: seconds as u64, all, folder }
    }

    /// Programs that stay: as few as need no more tiles each than one per multiprocessor would.
    fn programs(&self, device: &Device, consts: &PersistentConsts) -> usize {
        let [m, n, _] = self.sizes;
        let tiles = m.div_ceil(consts.BM) * n.div_ceil(consts.BN);
        tiles.div_ceil(tiles.div_ceil(device.multiprocessor_count()))
    }
}

/// What there is to choose from: each axis is a method that the kernel has, of its type.
fn space(device: &Device) -> PersistentSpace {
    if !device.is_cuda() {
        return PersistentConsts::space().BM([16, 32, 64]).BN([16, 32, 64]).BK([16, 32]).GROUP([1]);
    }
    PersistentConsts::space()
        .BM([64, 128, 192, 256])
        .BN([64, 128, 192, 256])
        .BK([32, 64, 128])
        .GROUP([1, 4, 8, 16])
        .num_warps([4, 8])
        .num_stages([3, 4, 6])
        .where_(|config| config.BM * config.BN >= 64 * 128 && config.BM * config.BN <= 256 * 256)
        .starting_at(Config::from(PersistentConsts { BM: 128, BN: 128, BK: 64, GROUP: 8 }))
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    let job = Job::read(&device);
    let [m, n, k] = job.sizes;
    println!("a product of {m} x {n} x {k} on {}", device.name());
    let element = |index: usize| f16::from_f32((index * 7919 % 2003) as f32 / 1001.0 - 1.0);
    let matrix = |rows: usize, columns: usize| device.upload(&(0..rows * columns).map(element).collect::<Vec<_>>());
    let (a, b, mut c) = (matrix(m, k)?, matrix(k, n)?, device.zeros::<f16>(m * n)?);
    let (a, b) = (TensorDesc::new(&a, [m, k])?, TensorDesc::new(&b, [k, n])?);

    // Tuning: the closure says how a configuration is launched, and nothing of how it is measured.
    let folder = &job.folder;
    let tuner = Tuner::new(space(&device))
        .sizes(&job.sizes)
        .budget(Duration::from_secs(job.seconds))
        .table(folder.join("persistent.toml"))
        .stop_on_ctrl_c()
        .observe(Bar::default())
        .exhaustive_up_to(if job.all { usize::MAX } else { 64 });
    let outcome = tuner.run(&device, |config, trial| {
        let mut c = TensorDescMut::new(&mut c, [m, n])?;
        let call = config.call(&a, &b, &mut c, m as i32, n as i32, k as i32);
        trial.launch(call.grid_with(|consts| job.programs(&device, consts)))
    })?;

    print!("{}", outcome.chart());
    let Plan { kept, pruned, time, .. } = &outcome.plan;
    println!("planned {} in {time:.2?}: {} left", kept.len() + pruned.len(), kept.len());
    println!("{} tried in {:.1?}, then {:?}", outcome.tried.len(), outcome.time, outcome.ended);
    for (reason, count) in outcome.pruned() {
        println!("{count} were not tried: {reason}");
    }
    for (config, _) in outcome.plan.pruned.iter().take(3) {
        println!("{}", outcome.explain(config));
    }
    for warning in &outcome.warnings {
        println!("{warning}");
    }
    outcome.draw_search(folder.join("search.svg"))?;
    outcome.draw_axis("BM", folder.join("bm.svg"))?;

    // Using it: a table is read once, and asked at launches. Here with the launch's own constexprs as they are otherwise.
    let table = Table::read(folder.join("persistent.toml"))?;
    let tuned: Tuned<PersistentConsts> = table.of("persistent", device.name(), "f16")?;
    let mut c = TensorDescMut::new(&mut c, [m, n])?;
    let sizes = [m, n, k].map(|size| size as i32);
    let plain = |c: &mut TensorDescMut<'_, f16, 2>| {
        let call = persistent::<_, 32, 32, 32, 1>(&a, &b, c, sizes[0], sizes[1], sizes[2]);
        call.grid_with(|consts| job.programs(&device, consts)).launch(&device)
    };
    let mut bench = Bench::new(&device)?.rounds(5);
    let before = bench.run("tiles of 32 x 32", || plain(&mut c))?;
    let after = bench.run("as the table says", || {
        let call = persistent::<_, 32, 32, 32, 1>(&a, &b, &mut c, sizes[0], sizes[1], sizes[2]);
        call.tuned(&tuned, &job.sizes).grid_with(|consts| job.programs(&device, consts)).launch(&device)
    })?;
    println!("{before}\n{after}: {:.1} times as fast", before.ms() / after.ms());
    let start = Instant::now();
    const LOOKUPS: u32 = 1_000_000;
    for _ in 0..LOOKUPS {
        std::hint::black_box(tuned.get(std::hint::black_box(&job.sizes)));
    }
    println!("a look into the table takes {:.1} ns", start.elapsed().as_nanos() as f64 / f64::from(LOOKUPS));
    Ok(())
}
