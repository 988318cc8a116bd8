//! Tuning without a device: landscapes whose best place is known.

mod keeping;
mod landscapes;
#[cfg(feature = "tune")]
mod pictures;
mod recorded;
mod replayed;
mod spaces;

use super::measure::{Failure, FailureKind, Measure};
use super::{Outcome, Plan, Settings, Space, Subject, search};
use crate::error::Result;
use crate::launch::{Config, Constexprs};
use std::time::Duration;

/// What tiles of a product are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tiles {
    pub(super) bm: usize,
    pub(super) bn: usize,
    pub(super) bk: u32,
    pub(super) swap: bool,
}

impl Constexprs for Tiles {
    type Values = [i64; 4];

    const NAMES: &'static [&'static str] = &["BM", "BN", "BK", "SWAP"];

    fn values(self) -> [i64; 4] {
        [self.bm as i64, self.bn as i64, self.bk.into(), self.swap.into()]
    }

    fn from_values(values: &[i64]) -> Option<Self> {
        let &[bm, bn, bk, swap] = values else { return None };
        let swap = match swap {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Tiles { bm: bm.try_into().ok()?, bn: bn.try_into().ok()?, bk: bk.try_into().ok()?, swap })
    }
}

/// 1280 configurations.
pub(super) fn tiles() -> Space<Tiles> {
    let axes = Space::new().constexpr(0, [32, 64, 128, 192, 256]).constexpr(1, [32, 64, 96, 128, 192, 256, 320, 384]);
    axes.constexpr(2, [16, 32, 64, 128]).constexpr(3, [0, 1]).num_warps([4, 8]).num_stages([2, 3])
}

/// Measures by a function, in seconds of its own.
pub(super) struct Synthetic<F> {
    pub(super) cost: F,
    pub(super) now: Duration,
    pub(super) checks: usize,
    pub(super) begun: Vec<String>,
}

impl<F: FnMut(&Config<Tiles>) -> Result<f64, Failure>> Synthetic<F> {
    pub(super) fn new(cost: F) -> Self {
        Synthetic { cost, now: Duration::ZERO, checks: 0, begun: Vec::new() }
    }
}

impl<F: FnMut(&Config<Tiles>) -> Result<f64, Failure>> Measure<Tiles> for Synthetic<F> {
    fn begin(&mut self, config: &Config<Tiles>) {
        self.begun.push(config.to_string());
    }

    fn check(&mut self, config: &Config<Tiles>) -> Result<(), Failure> {
        self.checks += 1;
        // What compiling takes.
        self.now += Duration::from_millis(100);
        (self.cost)(config).map(drop)
    }

    fn time(&mut self, config: &Config<Tiles>) -> Result<f64, Failure> {
        let ms = (self.cost)(config)?;
        self.now += Duration::from_secs_f64(ms / 1e3);
        Ok(ms)
    }

    fn elapsed(&mut self) -> Duration {
        self.now
    }
}

pub(super) fn subject(sizes: &[usize]) -> Subject {
    let [kernel, code, version, device, dtype] = ["tiles", "0", "1", "here", "f16"].map(str::to_string);
    Subject { kernel, code, version, device, dtype, sizes: sizes.to_vec() }
}

pub(super) fn run(
    space: &Space<Tiles>,
    settings: &Settings,
    cost: impl FnMut(&Config<Tiles>) -> Result<f64, Failure>,
) -> Result<Outcome<Tiles>> {
    let plan = Plan::of(space)?;
    search(plan, settings, subject(&[64, 64]), space.start().copied(), &mut Synthetic::new(cost))
}

pub(super) fn wrong(why: &str) -> Failure {
    Failure::new(FailureKind::Wrong, why)
}
