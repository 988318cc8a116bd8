//! A kernel with its launch: all that is needed to run it again.
//!
//! Inputs are recipes and not data, so that a case is a file of a few lines:
//!
//! ```text
//! ; fuzz: target = sm_90a, warps = 4, stages = 3, checks = at_launch, copies = near_products, grid = 2
//! ; scalar: 5
//! ; buffer: noise -2 3 step -1 salt 7 len 128
//! ; buffer: zero 0 0 step 0 salt 0 len 64 tensor 7x9 strides 9x1
//! kernel fuzz "fuzz.rs" safe bound {
//! ..
//! ```

use kernel_codegen::checks::LaunchEnv;
use kernel_codegen::{Checks, Options, Target, TensorCopies};
use kernel_core::interp::{HostBuffer, HostScalar, HostTensor};
use kernel_core::ir::{Bound, DType, Literal, ParamKind};
use kernel_core::num::{normalise, to_bits};
use kernel_core::text::{parse, print};
use kernel_core::verify::verify;
use tilewright_emulator::from_bytes;

use crate::random::Random;

/// How the elements of a buffer follow from their index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Random numbers of the range.
    Noise,
    /// From the smallest to the largest, as even as can be.
    Ramp,
    /// Random numbers, the largest at the end alone.
    Peak,
    /// All the smallest.
    Zero,
}

const PATTERNS: [(Pattern, &str); 4] =
    [(Pattern::Noise, "noise"), (Pattern::Ramp, "ramp"), (Pattern::Peak, "peak"), (Pattern::Zero, "zero")];

/// The argument of a parameter that is a buffer or a tensor, before the launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    /// How its elements follow from their index.
    pub pattern: Pattern,
    /// The smallest and the largest element, in units of 2 to the power of `step`.
    pub range: (i64, i64),
    /// See `range`.
    pub step: i32,
    /// What the random numbers follow from.
    pub salt: u64,
    /// How many elements.
    pub len: usize,
    /// How a descriptor sees them.
    pub tensor: Option<HostTensor>,
    /// By how many units in the last place two ways to run the kernel may differ here; `None`: by nothing.
    pub ulps: Option<f64>,
}

impl Input {
    /// The elements.
    pub fn buffer(&self, dtype: DType) -> HostBuffer {
        let mut random = Random::new(self.salt);
        let (low, high) = self.range;
        let size = dtype.bytes() as usize;
        let mut bytes = Vec::with_capacity(self.len * size);
        for index in 0..self.len {
            let number = match self.pattern {
                Pattern::Noise => random.range(low, high),
                Pattern::Ramp => low + (i128::from(high - low) * index as i128 / self.len.max(2) as i128) as i64,
                Pattern::Peak if index + 1 == self.len => high,
                Pattern::Peak => random.range(low, (high - 1).max(low)),
                Pattern::Zero => low,
            };
            let literal = match dtype {
                DType::Bool => Literal::Bool(number & 1 != 0),
                _ if dtype.is_float() => Literal::float(number as f64 * 2f64.powi(self.step)),
                _ => Literal::Int(i128::from(number)),
            };
            let bits = normalise(literal, dtype).and_then(|literal| to_bits(literal, dtype)).unwrap_or(0);
            bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
        }
        from_bytes(dtype, &bytes)
    }

    fn line(&self) -> String {
        let name = PATTERNS.iter().find(|(pattern, _)| *pattern == self.pattern).map_or("noise", |(_, name)| name);
        let (low, high) = self.range;
        let mut line = format!("; buffer: {name} {low} {high} step {} salt {} len {}", self.step, self.salt, self.len);
        if let Some(tensor) = &self.tensor {
            line += &format!(" tensor {} strides {}", times(&tensor.shape), times(&tensor.strides));
            line += if tensor.pads_with_nan { " nan" } else { "" };
        }
        if let Some(ulps) = self.ulps {
            line += &format!(" ulps {ulps}");
        }
        line
    }

    fn parse(words: &[&str]) -> Option<Input> {
        let number = |index: usize| words.get(index)?.parse::<i64>().ok();
        let after = |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1));
        let pattern = PATTERNS.iter().find(|(_, name)| Some(name) == words.first())?.0;
        let sizes = |text: &str| text.split('x').map(|size| size.parse().ok()).collect::<Option<Vec<u64>>>();
        let tensor = match (after("tensor"), after("strides")) {
            (Some(shape), Some(strides)) => Some(HostTensor {
                shape: sizes(shape)?,
                strides: sizes(strides)?,
                pads_with_nan: words.contains(&"nan"),
            }),
            _ => None,
        };
        Some(Input {
            pattern,
            range: (number(1)?, number(2)?),
            step: after("step")?.parse().ok()?,
            salt: after("salt")?.parse().ok()?,
            len: after("len")?.parse().ok()?,
            tensor,
            ulps: after("ulps").and_then(|ulps| ulps.parse().ok()),
        })
    }
}

fn times(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

/// A kernel, how it is compiled and how it is launched.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kernel.
    pub kernel: Bound,
    /// One per buffer or descriptor, in the order of the parameters.
    pub inputs: Vec<Input>,
    /// One per scalar parameter; all are i32.
    pub scalars: Vec<i32>,
    /// Programs along x.
    pub grid: u32,
    /// What code is generated for.
    pub target: Target,
    /// How.
    pub options: Options,
}

const CHECKS: [(Checks, &str); 2] = [(Checks::AtLaunch, "at_launch"), (Checks::EveryAccess, "every_access")];
const COPIES: [(TensorCopies, &str); 3] =
    [(TensorCopies::NearProducts, "near_products"), (TensorCopies::Always, "always"), (TensorCopies::Never, "never")];

impl Case {
    /// The buffers before the launch.
    pub fn buffers(&self) -> Vec<HostBuffer> {
        let dtypes = self.kernel.func().params.iter().filter_map(|param| match param.kind {
            ParamKind::Ptr { dt, .. } | ParamKind::Desc { dt, .. } => dt.known(),
            _ => None,
        });
        self.inputs.iter().zip(dtypes).map(|(input, dtype)| input.buffer(dtype)).collect()
    }

    /// How descriptors see their buffers.
    pub fn tensors(&self) -> Vec<HostTensor> {
        self.inputs.iter().filter_map(|input| input.tensor.clone()).collect()
    }

    /// The scalars as the interpreter takes them.
    pub fn host_scalars(&self) -> Vec<HostScalar> {
        self.scalars.iter().map(|&scalar| scalar.into()).collect()
    }

    /// Whether a variant with such launch conditions may run.
    pub fn may_run(&self, conditions: &kernel_codegen::checks::LaunchConditions) -> bool {
        let (mut inputs, mut scalars) = (self.inputs.iter(), self.scalars.iter());
        let (mut lengths, mut numbers) = (Vec::new(), Vec::new());
        for param in &self.kernel.func().params {
            let is_buffer = matches!(param.kind, ParamKind::Ptr { .. } | ParamKind::Desc { .. });
            let is_scalar = matches!(param.kind, ParamKind::Scalar(_));
            lengths.push(if is_buffer { inputs.next().map_or(0, |input| input.len as u64) } else { 0 });
            numbers.push(if is_scalar { scalars.next().map(|&number| i128::from(number)) } else { None });
        }
        conditions.hold(&LaunchEnv { scalars: &numbers, lengths: &lengths, grid: [self.grid, 1, 1] })
    }

    /// The case as a file.
    pub fn text(&self) -> String {
        let name =
            |names: &[(Checks, &'static str)]| names.iter().find(|(c, _)| *c == self.options.checks).map(|c| c.1);
        let copies = COPIES.iter().find(|(c, _)| *c == self.options.tensor_copies).map_or("never", |c| c.1);
        let mut text = format!(
            "; fuzz: target = {}, warps = {}, stages = {}, checks = {}, copies = {copies}, grid = {}\n",
            self.target.name(),
            self.options.num_warps,
            self.options.num_stages,
            name(&CHECKS).unwrap_or("at_launch"),
            self.grid,
        );
        self.scalars.iter().for_each(|scalar| text += &format!("; scalar: {scalar}\n"));
        self.inputs.iter().for_each(|input| text += &format!("{}\n", input.line()));
        text + &print(self.kernel.func())
    }

    /// The case of a file.
    ///
    /// # Errors
    /// What of the file cannot be read.
    pub fn parse(text: &str) -> Result<Case, String> {
        let func = parse(text).map_err(|error| error.to_string())?;
        verify(&func).map_err(|errors| errors.first().map_or_else(String::new, |error| error.message.to_string()))?;
        let kernel = Bound::new(func).map_err(|_| "the kernel is not bound")?;
        let (mut inputs, mut scalars, mut header) = (Vec::new(), Vec::new(), None);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("; fuzz:") {
                header = Some(rest);
            } else if let Some(rest) = line.strip_prefix("; scalar:") {
                scalars.push(rest.trim().parse().map_err(|_| format!("not an i32: `{rest}`"))?);
            } else if let Some(rest) = line.strip_prefix("; buffer:") {
                let words: Vec<&str> = rest.split_whitespace().collect();
                inputs.push(Input::parse(&words).ok_or_else(|| format!("not a recipe: `{rest}`"))?);
            }
        }
        let header = header.ok_or("there is no line `; fuzz:`")?;
        let get = |key: &str| -> Result<&str, String> {
            let pairs = header.split(',').filter_map(|pair| pair.split_once('='));
            let found = pairs.map(|(k, v)| (k.trim(), v.trim())).find(|(k, _)| *k == key);
            found.map(|(_, value)| value).ok_or_else(|| format!("`{key}` is missing"))
        };
        let number = |key: &str| get(key)?.parse::<u32>().map_err(|_| format!("`{key}` is no number"));
        let (target, checks, copies) = (get("target")?, get("checks")?, get("copies")?);
        let unknown = |what: &str| format!("`{what}` is unknown");
        let target = Target::named(target).ok_or_else(|| unknown(target))?;
        let options = Options {
            num_warps: number("warps")?,
            num_stages: number("stages")?,
            checks: CHECKS.iter().find(|c| c.1 == checks).ok_or_else(|| unknown(checks))?.0,
            tensor_copies: COPIES.iter().find(|c| c.1 == copies).ok_or_else(|| unknown(copies))?.0,
            ..Options::default()
        };
        Ok(Case { kernel, inputs, scalars, grid: number("grid")?, target, options })
    }
}
