//! What [`axis`](super::axis) knows about a value.

/// The largest power of two that is worth knowing; what zero is divisible by.
pub const MAX_DIVISOR: u64 = 1 << 30;

/// What is known along one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DimInfo {
    /// Elements per group of consecutive values.
    pub contiguity: u64,
    /// A power of two that divides the first element of each such group.
    pub divisibility: u64,
    /// Elements per group of equal values.
    pub constancy: u64,
}

impl DimInfo {
    /// Nothing.
    pub const UNKNOWN: DimInfo = DimInfo { contiguity: 1, divisibility: 1, constancy: 1 };

    /// A power of two that divides the first element of every group of `contiguity` elements.
    pub fn divisibility_at(&self, contiguity: u64) -> u64 {
        if self.contiguity == 1 || contiguity.is_multiple_of(self.contiguity) {
            self.divisibility
        } else {
            pow2_divisor(self.divisibility).min(pow2_divisor(contiguity)).max(1)
        }
    }

    /// Consecutive values that start at a multiple of their number: what one vector access can cover.
    pub fn aligned_run(&self) -> u64 {
        self.aligned_contiguity().min(self.divisibility)
    }

    /// Consecutive values, of which groups of that size may follow each other.
    pub fn aligned_contiguity(&self) -> u64 {
        pow2_divisor(self.contiguity)
    }
}

/// What is known about a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisInfo {
    /// Per dimension; a scalar has one, of size 1.
    pub dims: Vec<DimInfo>,
    /// The value of every element, if it is one known number.
    pub constant: Option<i64>,
    /// Bounds of all elements (inclusive), if known.
    pub range: Option<(i64, i64)>,
}

impl AxisInfo {
    /// Nothing, for a value of that rank.
    pub fn unknown(rank: usize) -> AxisInfo {
        AxisInfo { dims: vec![DimInfo::UNKNOWN; rank.max(1)], constant: None, range: None }
    }

    /// A scalar of which only its divisibility is known.
    pub fn scalar(divisibility: u64) -> AxisInfo {
        let dim = DimInfo { divisibility: pow2_divisor(divisibility), ..DimInfo::UNKNOWN };
        AxisInfo { dims: vec![dim], constant: None, range: None }
    }

    /// A known number.
    pub fn number(value: i64) -> AxisInfo {
        let dim = DimInfo { divisibility: pow2_divisor(value.unsigned_abs()), ..DimInfo::UNKNOWN };
        AxisInfo { dims: vec![dim], constant: Some(value), range: Some((value, value)) }
    }

    /// A power of two that divides every element.
    pub fn divisor_of_all(&self) -> u64 {
        self.dims.iter().map(|dim| dim.divisibility_at(1)).max().unwrap_or(1)
    }

    /// What holds of both.
    pub fn meet(&self, other: &AxisInfo) -> AxisInfo {
        let dims = self.dims.iter().zip(&other.dims).map(|(a, b)| {
            let contiguity = gcd(a.contiguity, b.contiguity);
            DimInfo {
                contiguity,
                divisibility: gcd(a.divisibility_at(contiguity), b.divisibility_at(contiguity)),
                constancy: gcd(a.constancy, b.constancy),
            }
        });
        let range = match (self.range, other.range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            _ => None,
        };
        let constant = self.constant.filter(|_| self.constant == other.constant);
        AxisInfo { dims: dims.collect(), constant, range }
    }
}

/// The greatest common divisor.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest power of two that divides `value`, at most [`MAX_DIVISOR`].
pub(super) fn pow2_divisor(value: u64) -> u64 {
    if value == 0 { MAX_DIVISOR } else { (1 << value.trailing_zeros()).min(MAX_DIVISOR) }
}
