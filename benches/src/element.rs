//! The dtypes that the benchmarks run in.

use tilewright::prelude::*;

/// A dtype of the data of a benchmark.
pub trait Element: Float {
    /// Its name in tables, and in the index of the peers.
    const NAME: &'static str;
    /// Half the distance between neighbouring numbers, relative to their size: what rounding a result costs.
    const HALF_ULP: f64;
    /// The nearest number.
    fn from_f32(value: f32) -> Self;
    /// The same number.
    fn to_f64(self) -> f64;
}

impl Element for f32 {
    const NAME: &'static str = "f32";
    const HALF_ULP: f64 = 1.0 / (1u64 << 24) as f64;

    fn from_f32(value: f32) -> f32 {
        value
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Element for f16 {
    const NAME: &'static str = "f16";
    const HALF_ULP: f64 = 1.0 / (1u64 << 11) as f64;

    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        self.to_f64()
    }
}

impl Element for bf16 {
    const NAME: &'static str = "bf16";
    const HALF_ULP: f64 = 1.0 / (1u64 << 8) as f64;

    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        self.to_f64()
    }
}

impl Element for F8E4M3 {
    const NAME: &'static str = "f8e4m3";
    const HALF_ULP: f64 = 1.0 / (1u64 << 4) as f64;

    fn from_f32(value: f32) -> F8E4M3 {
        F8E4M3::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        F8E4M3::to_f64(self)
    }
}
