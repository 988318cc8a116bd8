//! What attention may be asked for.

use tilewright::{Error, Result};

/// What the functions of attention may be asked for; by default all keys are seen, and the scale is `1 / sqrt(d)`.
///
/// ```
/// use tilewright_kernels::attention::Attention;
///
/// let options = Attention::default().causal().window(1024, 0).soft_cap(30.0);
/// assert_eq!(options, Attention::default().soft_cap(30.0).window(1024, 0));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Attention {
    pub(super) scale: Option<f64>,
    pub(super) soft_cap: Option<f64>,
    pub(super) left: Option<usize>,
    pub(super) right: Option<usize>,
    pub(super) deterministic: bool,
}

/// The most queries or keys of a sequence, so that sums of places and windows are numbers.
pub(super) const MOST: i32 = 1 << 29;
/// A window that no sequence fills.
pub(super) const FAR: i32 = 2 * MOST;

impl Attention {
    /// Query `i` sees keys up to `i + keys - queries`: queries and keys end together.
    pub fn causal(self) -> Self {
        Attention { right: Some(0), ..self }
    }

    /// A query sees `left` keys before its own, its own, and `right` after it; with [`Attention::causal`] none after it.
    pub fn window(self, left: usize, right: usize) -> Self {
        let right = self.right.map_or(right, |known| known.min(right));
        Attention { left: Some(left), right: Some(right), ..self }
    }

    /// What scores are multiplied by: `1 / sqrt(d)` if nothing is said.
    pub fn scale(self, scale: f64) -> Self {
        Attention { scale: Some(scale), ..self }
    }

    /// Two runs give the same bits. Only [`backward`](super::backward) has a faster way that does not promise that.
    pub fn deterministic(self) -> Self {
        Attention { deterministic: true, ..self }
    }

    /// The same, if a scale was given.
    pub(super) fn with_scale(self, of: &str) -> Result<Self> {
        if self.scale.is_some() {
            return Ok(self);
        }
        Err(Error::InvalidSetting {
            name: "the scale of attention".into(),
            value: "nothing".into(),
            expected: format!("`Attention::scale`, 1 / sqrt(d) of {of}").into(),
        })
    }

    /// Scaled scores `s` become `cap * tanh(s / cap)`.
    pub fn soft_cap(self, cap: f64) -> Self {
        Attention { soft_cap: Some(cap), ..self }
    }
}

/// The numbers that kernels are given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) scale: f64,
    /// How many keys a query sees before its own, if that is limited, and after it.
    pub(super) left: Option<i32>,
    pub(super) right: i32,
}

impl Places {
    pub(super) fn of(options: &Attention, d: usize) -> Result<Self> {
        let scale = options.scale.unwrap_or(1.0 / (d as f64).sqrt());
        positive("the scale of attention", scale)?;
        if let Some(cap) = options.soft_cap {
            positive("the soft cap of attention", cap)?;
        }
        let keys = |count: usize| count.min(FAR as usize) as i32;
        Ok(Places { scale, left: options.left.map(keys), right: options.right.map_or(FAR, keys) })
    }
}

fn positive(name: &str, value: f64) -> Result<()> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::InvalidSetting {
        name: name.into(),
        value: value.to_string().into(),
        expected: "a positive, finite number".into(),
    })
}
