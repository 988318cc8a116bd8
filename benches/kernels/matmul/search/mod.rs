//! How good the tuner's search is: the persistent product at eight sizes, against trying everything.
//!
//! ```text
//! cargo bench -p tilewright-bench --bench matmul -- --search record --file all.csv --seconds 600   # every configuration
//! cargo bench -p tilewright-bench --bench matmul -- --search replay --file all.csv --seeds 32      # no GPU: from the file; --patience 48
//! cargo bench -p tilewright-bench --bench matmul -- --search run --file all.csv --budget 60        # the tuner itself
//! ```
//! `record` measures every configuration that pruning leaves, in an order that chance gives, so that a file that time cut short
//! is a sample of all; a second run goes on where the file ends. `replay` lets the search run on these times, of which it
//! gets one of several at a time, with other seeds: how far from the best is what it finds, after how many trials, and how
//! long would it have taken. `run` tunes on the device and compares what wins with the
//! three fastest of the file, in turns. `--sizes 4096x4096x4096,..` takes some.

mod file;
mod record;
mod replay;
mod run;

use super::descriptor::{PersistentConsts, PersistentSpace};
use tilewright::launch::Config;
use tilewright::prelude::*;
use tilewright::tune::{Plan, Tuner};
use tilewright_bench::{Failure, report};

/// Multiprocessors of the H100, for plans without one.
const PROCESSORS: usize = 132;

/// Rows, columns, and the length of sums.
pub type Sizes = [usize; 3];

/// Squares, flat ones, few rows, short and long sums, sizes that no tile divides.
const ALL: [Sizes; 8] = [
    [4096, 4096, 4096],
    [2048, 2048, 2048],
    [1024, 1024, 1024],
    [8192, 8192, 1024],
    [512, 8192, 8192],
    [2048, 14_336, 4096],
    [4096, 512, 16_384],
    [3000, 5000, 2048],
];

/// What there is to choose from: of 960 configurations, those that fit a Hopper GPU.
fn space() -> PersistentSpace {
    PersistentConsts::space()
        .BM([64, 128, 256])
        .BN([64, 128, 256])
        .BK([32, 64, 128])
        .GROUP([1, 4, 8, 16])
        .num_warps([4, 8])
        .num_stages([2, 3, 4, 5, 6])
        .where_(|config| config.BM * config.BN <= 128 * 256)
}

/// As few programs as need no more tiles each than one per multiprocessor would.
fn programs([m, n, _]: Sizes, consts: &PersistentConsts, processors: usize) -> usize {
    let tiles = m.div_ceil(consts.BM) * n.div_ceil(consts.BN);
    tiles.div_ceil(tiles.div_ceil(processors).max(1))
}

/// Memory for products of all sizes.
struct Operands {
    a: Buffer<f16>,
    b: Buffer<f16>,
    c: Buffer<f16>,
}

impl Operands {
    /// For the largest of these sizes, of numbers that do not matter: zeros take less power, and so run at other clocks.
    fn new(device: &Device, all: &[Sizes]) -> Result<Operands, Error> {
        let most = |len: fn(&Sizes) -> usize| all.iter().map(len).max().unwrap_or(1);
        let numbers = |len: usize| -> Vec<f16> {
            (0..len).map(|index| f16::from_f32((index * 7919 % 2003) as f32 / 1001.0 - 1.0)).collect()
        };
        let (a, b, c) = (most(|[m, _, k]| m * k), most(|[_, n, k]| k * n), most(|[m, n, _]| m * n));
        if !device.is_cuda() {
            return Ok(Operands { a: device.zeros(a)?, b: device.zeros(b)?, c: device.zeros(c)? });
        }
        Ok(Operands { a: device.upload(&numbers(a))?, b: device.upload(&numbers(b))?, c: device.zeros(c)? })
    }

    /// Makes the call of a configuration, and gives it away.
    fn call(
        &mut self,
        sizes @ [m, n, k]: Sizes,
        config: &Config<PersistentConsts>,
        processors: usize,
        give: impl FnOnce(tilewright::launch::Call<'_, PersistentConsts, tilewright::launch::Grid>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (a, b) = (self.a.slice(..m * k)?, self.b.slice(..k * n)?);
        let (a, b) = (TensorDesc::new(a, [m, k])?, TensorDesc::new(b, [k, n])?);
        let mut c = TensorDescMut::new(self.c.slice_mut(..m * n)?, [m, n])?;
        let call = config.call(&a, &b, &mut c, m as i32, n as i32, k as i32).options(config.options);
        give(call.grid(programs(sizes, &config.consts, processors)))
    }
}

/// What is left of the space for these sizes on an H100, in the order of the cost model.
fn plan(device: &Device, operands: &mut Operands, sizes: Sizes) -> Result<Plan<PersistentConsts>, Error> {
    let (target, processors) = match device.target() {
        Some(target) => (target, device.multiprocessor_count()),
        None => (Target::sm_90a(), PROCESSORS),
    };
    let tuner = Tuner::new(space()).target(target).multiprocessors(processors);
    tuner.plan(device, |config, trial| operands.call(sizes, config, processors, |call| trial.launch(call)))
}

/// The sizes that the command line names, or all.
fn sizes() -> Result<Vec<Sizes>, Failure> {
    let Some(text) = report::argument("--sizes") else { return Ok(ALL.to_vec()) };
    text.split(',').map(file::sizes).collect()
}

/// Does what `--search` says.
///
/// # Errors
/// For what cannot be read or written, and those of the device.
pub fn begin(what: &str, device: &Device) -> Result<(), Failure> {
    let path = report::argument("--file").ok_or("--file names the file of all times")?;
    let number = |name: &str, usual: f64| report::argument(name).and_then(|text| text.parse().ok()).unwrap_or(usual);
    match what {
        "record" => record::all(device, &sizes()?, path.as_ref(), number("--seconds", 3600.0)),
        "replay" => replay::all(&sizes()?, path.as_ref(), number("--seeds", 16.0) as u64),
        "run" => run::all(device, &sizes()?, path.as_ref(), number("--budget", 60.0)),
        other => Err(format!("--search {other}: there are record, replay and run").into()),
    }
}
