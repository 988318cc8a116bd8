//! The harness of the GPU benchmarks: contenders in one process, interleaved on the same buffers.
//!
//! A [`Contest`] has one row of work and several [`Contender`]s, each with one or more configurations. Every
//! configuration is tried, the best of each contender is kept, and then the kept ones run in turn, round by round,
//! with the L2 cache flushed before each run. A contender is judged by the median over the rounds of its time
//! divided by the reference's time in the same round.

pub mod cubin;
pub mod report;

use tilewright::prelude::*;

/// One way to do the work: launches once on the device's default stream.
pub type Launch<'a> = Box<dyn FnMut() -> Result<(), Error> + 'a>;

/// Somebody who can do the work, in one or more configurations.
pub struct Contender<'a> {
    /// `tilewright`, `triton`, `driver`, ...
    pub name: &'static str,
    /// Configurations with a description each.
    pub configs: Vec<(String, Launch<'a>)>,
}

/// One row of a benchmark.
pub struct Contest<'a> {
    /// What is done, such as `softmax`.
    pub work: &'static str,
    /// Its size, such as `8192x4096`.
    pub shape: String,
    /// The dtype of the data.
    pub dtype: &'static str,
    /// Bytes read and written by each contender in turn (the work's own; a copy may move fewer than an addition).
    pub contenders: Vec<(f64, Contender<'a>)>,
}

/// What a contender reached in a contest.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was done.
    pub work: &'static str,
    /// Its size.
    pub shape: String,
    /// Its dtype.
    pub dtype: &'static str,
    /// Who did it.
    pub contender: &'static str,
    /// The best configuration.
    pub config: String,
    /// Median kernel time in milliseconds.
    pub ms: f64,
    /// Bytes moved per second, in GB/s, at that time.
    pub gbps: f64,
    /// Median over the rounds of this contender's rate divided by the first contender's rate in the same round.
    pub ratio_to_first: f64,
}

/// Rounds of the final comparison.
const ROUNDS: usize = 21;
/// Runs that choose a configuration.
const TRIES: usize = 7;
/// Bytes written between runs: more than five times the H100's L2 cache.
const FLUSH_BYTES: usize = 256 << 20;

/// The stage on which contests are held.
pub struct Arena {
    device: Device,
    flush: Buffer<u8>,
}

impl Arena {
    /// Prepares a device.
    ///
    /// # Errors
    /// If there is no memory for flushing the cache.
    pub fn new(device: &Device) -> Result<Arena, Error> {
        Ok(Arena { device: device.clone(), flush: device.zeros(FLUSH_BYTES)? })
    }

    fn run_once(&mut self, launch: &mut Launch<'_>) -> Result<f64, Error> {
        self.flush.fill(0)?;
        let stream = self.device.default_stream();
        let start = stream.record()?;
        launch()?;
        let end = stream.record()?;
        end.synchronize()?;
        start.elapsed_ms(&end)
    }

    /// Holds a contest: chooses each contender's configuration, then compares them round by round.
    ///
    /// # Errors
    /// If a launch fails.
    pub fn hold(&mut self, contest: Contest<'_>) -> Result<Vec<Outcome>, Error> {
        let mut finalists = Vec::new();
        for (bytes, contender) in contest.contenders {
            let mut best: Option<(f64, String, Launch<'_>)> = None;
            for (config, mut launch) in contender.configs {
                for _ in 0..2 {
                    self.run_once(&mut launch)?;
                }
                let mut times = Vec::new();
                for _ in 0..TRIES {
                    times.push(self.run_once(&mut launch)?);
                }
                let ms = median(&mut times);
                if best.as_ref().is_none_or(|(t, ..)| ms < *t) {
                    best = Some((ms, config, launch));
                }
            }
            if let Some((_, config, launch)) = best {
                finalists.push((bytes, contender.name, config, launch, Vec::new()));
            }
        }
        for _ in 0..ROUNDS {
            for (_, _, _, launch, times) in &mut finalists {
                times.push(self.run_once(launch)?);
            }
        }
        let first: Vec<f64> = match finalists.first() {
            Some((bytes, .., times)) => times.iter().map(|t| bytes / t).collect(),
            None => return Ok(Vec::new()),
        };
        let mut outcomes = Vec::new();
        for (bytes, name, config, _, mut times) in finalists {
            let mut ratios: Vec<f64> = times.iter().zip(&first).map(|(t, f)| bytes / t / f).collect();
            let ms = median(&mut times);
            outcomes.push(Outcome {
                work: contest.work,
                shape: contest.shape.clone(),
                dtype: contest.dtype,
                contender: name,
                config,
                ms,
                gbps: bytes / ms / 1e6,
                ratio_to_first: median(&mut ratios),
            });
        }
        self.device.synchronize()?;
        Ok(outcomes)
    }
}

/// The median; sorts its argument.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Normally distributed numbers, the same in every run for one seed.
pub fn normal(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    let mut out = Vec::with_capacity(len + 1);
    while out.len() < len {
        let (u, v) = (uniform().max(1e-7), uniform());
        let (radius, angle) = ((-2.0 * u.ln()).sqrt(), std::f32::consts::TAU * v);
        out.push(radius * angle.cos());
        out.push(radius * angle.sin());
    }
    out.truncate(len);
    out
}
