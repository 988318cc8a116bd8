//! What tells compiled variants of kernels apart.

use std::fmt;

use kernel_core::backend::Checks;
use kernel_core::ir::DType;
use serde::{Deserialize, Serialize};

use crate::container::Key;

/// Everything that the code of a variant depends on, but for the compiler: the generic kernel, and what binding and the
/// back end are told. What is derived of that, such as the bound kernel, need not be here, as it is always the same; so a
/// key is made without compiling anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The kernel's name.
    pub kernel: String,
    /// The hash of its generic tile IR without places ([`Places`](crate::Places)).
    pub ir: [u8; 32],
    /// Its dtype parameters.
    pub dtypes: Vec<DType>,
    /// Its constexprs.
    pub constants: Vec<i64>,
    /// What is known of each argument.
    pub params: Vec<Param>,
    /// How it is compiled.
    pub options: Options,
    /// Whether the caller takes it for a safe kernel.
    pub safe: bool,
    /// Which checks it has.
    pub checks: Checks,
    /// The name of the target.
    pub target: String,
}

/// What a launch may choose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// Warps per program; `None` if the compiler decides.
    pub num_warps: Option<u32>,
    /// The depth of software pipelines; `None` if the compiler decides.
    pub num_stages: Option<u32>,
    /// The most registers of a thread.
    pub max_registers: Option<u32>,
    /// Whether a launch may begin before those before it have ended.
    pub dependent_launch: bool,
    /// The seed of random delays.
    pub delays: Option<u64>,
    /// Whether the code says which lines it is from. The hash of the tile IR is then one with places.
    pub line_info: bool,
    /// The tensors that the kernel makes of which nothing is taken for granted, a bit each: they are rough.
    pub rough_tensors: u32,
}

impl Options {
    /// What is known of a tensor that is not rough, as [`Param::facts`] counts it.
    const FACTS_OF_TENSOR: u32 = 8;

    /// Whether code with these options may run where `wanted` are asked for: the same, and no tensor is taken to be smooth
    /// that is not.
    fn serve(&self, wanted: &Options) -> bool {
        let rough_tensors = wanted.rough_tensors;
        self.rough_tensors & rough_tensors == rough_tensors && Options { rough_tensors, ..*self } == *wanted
    }
}

/// What is known of one argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Param {
    /// A buffer, by its address and its length.
    Buffer {
        /// The dtype of its elements.
        element: DType,
        /// Whether the caller lets it be written.
        mutable: bool,
        /// A power of two that divides the address, in bytes.
        alignment: u32,
        /// What divides the length: 1, 8 or 16.
        len_divisor: u32,
    },
    /// A scalar.
    Scalar {
        /// Its dtype.
        element: DType,
        /// What divides it: 1, 8 or 16.
        divisor: u32,
        /// Whether it is 1.
        one: bool,
    },
    /// A scalar whose value is part of the code.
    Const {
        /// Its dtype.
        element: DType,
        /// Its bits.
        bits: u64,
    },
    /// No argument.
    Omitted {
        /// The dtype that it would have.
        element: DType,
    },
    /// A tensor behind a descriptor.
    Tensor {
        /// The dtype of its elements.
        element: DType,
        /// Whether the caller lets it be written.
        mutable: bool,
        /// Its dimensions.
        rank: u8,
        /// Whether elements outside it are NaN, not zero.
        nan: bool,
        /// Whether its first element is aligned to 16 bytes.
        aligned: bool,
        /// Whether its strides, but for the innermost, are multiples of 16 bytes.
        strides: bool,
        /// Whether its innermost dimension is one.
        rows: bool,
        /// Whether no other rule keeps the hardware's copies from it.
        copies: bool,
    },
}

impl Param {
    /// How much is known of it, to compare variants that serve one launch.
    fn facts(&self) -> u32 {
        match *self {
            Param::Buffer { alignment, len_divisor, .. } => alignment.max(1).ilog2() + len_divisor.max(1).ilog2(),
            Param::Scalar { divisor, one, .. } => divisor.max(1).ilog2() + 8 * u32::from(one),
            Param::Tensor { aligned, strides, rows, copies, .. } => {
                [aligned, strides, rows, copies].map(|known| 2 * u32::from(known)).iter().sum()
            }
            Param::Const { .. } | Param::Omitted { .. } => 0,
        }
    }

    /// Whether code that takes this for granted may run with an argument of which `given` is known.
    fn serves(&self, given: &Param) -> bool {
        let divides = |a: u32, b: u32| a != 0 && b.is_multiple_of(a);
        let implied = |taken: bool, given: bool| !taken || given;
        match (*self, *given) {
            (
                Param::Buffer { element, mutable, alignment, len_divisor },
                Param::Buffer { element: e, mutable: m, alignment: a, len_divisor: l },
            ) => element == e && mutable == m && divides(alignment, a) && divides(len_divisor, l),
            (Param::Scalar { element, divisor, one }, Param::Scalar { element: e, divisor: d, one: o }) => {
                element == e && divides(divisor, d) && implied(one, o)
            }
            (
                Param::Tensor { element, mutable, rank, nan, aligned, strides, rows, copies },
                Param::Tensor { element: e, mutable: m, rank: r, nan: n, aligned: a, strides: s, rows: w, copies: c },
            ) => {
                (element, mutable, rank, nan) == (e, m, r, n)
                    && implied(aligned, a)
                    && implied(strides, s)
                    && implied(rows, w)
                    && implied(copies, c)
            }
            (same, given) => same == given,
        }
    }
}

impl Identity {
    /// What the variant is found by. On disk, where several compilers share a folder, `compiler` is part of it.
    pub fn key(&self, compiler: &str) -> Key {
        let mut hasher = blake3::Hasher::new();
        match postcard::to_allocvec(self) {
            Ok(bytes) => hasher.update(&bytes),
            // Nothing that is here can fail to be written; a text of it is as exact.
            Err(_) => hasher.update(format!("{self:?}").as_bytes()),
        };
        Key(*hasher.update(compiler.as_bytes()).finalize().as_bytes())
    }

    /// The same variant with nothing known of lengths: what code serves that does not look at them.
    pub fn for_all_lengths(&self) -> Identity {
        let mut all = self.clone();
        for param in &mut all.params {
            if let Param::Buffer { len_divisor, .. } = param {
                *len_divisor = 1;
            }
        }
        all
    }

    /// Whether this variant may run where a launch asks for `wanted`: they are equal, but for facts about arguments and
    /// about tensors that the kernel makes, of which this one takes none for granted that the launch does not have.
    pub fn serves(&self, wanted: &Identity) -> bool {
        let Identity { kernel, ir, dtypes, constants, params, options, safe, checks, target } = self;
        (kernel, ir, dtypes, constants) == (&wanted.kernel, &wanted.ir, &wanted.dtypes, &wanted.constants)
            && (options.serve(&wanted.options), safe, checks, target)
                == (true, &wanted.safe, &wanted.checks, &wanted.target)
            && params.len() == wanted.params.len()
            && params.iter().zip(&wanted.params).all(|(param, given)| param.serves(given))
    }

    /// How much the variant takes for granted: of several that serve a launch, the one with most is fastest.
    pub fn facts(&self) -> u32 {
        let made = Options::FACTS_OF_TENSOR * self.options.rough_tensors.count_zeros();
        self.params.iter().map(Param::facts).sum::<u32>() + made
    }
}

/// `add<f32>(1024) for sm_90a: [f32 @16 %16, mut f32 @16 %16, i32 %16], checked`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(", ");
        write!(f, "{}", self.kernel)?;
        if !self.dtypes.is_empty() {
            write!(f, "<{}>", list(self.dtypes.iter().map(DType::to_string).collect()))?;
        }
        write!(f, "({})", list(self.constants.iter().map(i64::to_string).collect()))?;
        write!(f, " for {}: [{}]", self.target, list(self.params.iter().map(Param::to_string).collect()))?;
        let Options { num_warps, num_stages, max_registers, dependent_launch, delays, line_info, rough_tensors } =
            self.options;
        for (name, value) in [("warps", num_warps), ("stages", num_stages), ("registers", max_registers)] {
            value.map_or(Ok(()), |value| write!(f, ", {value} {name}"))?;
        }
        for (is_so, word) in [
            (dependent_launch, "dependent"),
            (delays.is_some(), "with delays"),
            (line_info, "with lines"),
            (rough_tensors != 0, "rough tensors"),
            (!self.safe, "unsafe"),
            (self.checks == Checks::EveryAccess, "checked"),
        ] {
            if is_so {
                write!(f, ", {word}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mutable = |mutable: bool| if mutable { "mut " } else { "" };
        match *self {
            Param::Buffer { element, mutable: m, alignment, len_divisor } => {
                write!(f, "{}{element} @{alignment}", mutable(m))?;
                if len_divisor > 1 { write!(f, " %{len_divisor}") } else { Ok(()) }
            }
            Param::Scalar { element, one: true, .. } => write!(f, "{element} =1"),
            Param::Scalar { element, divisor, .. } if divisor > 1 => write!(f, "{element} %{divisor}"),
            Param::Scalar { element, .. } => write!(f, "{element}"),
            Param::Const { element, bits } => write!(f, "{element} ={bits:#x}"),
            Param::Omitted { element } => write!(f, "{element} none"),
            Param::Tensor { element, mutable: m, rank, nan, aligned, strides, rows, copies } => {
                write!(f, "{}tensor {element} x{rank}", mutable(m))?;
                let flags = [(nan, "nan"), (aligned, "@16"), (strides, "strides"), (rows, "rows"), (copies, "copies")];
                flags.iter().filter(|(is_so, _)| *is_so).try_for_each(|(_, word)| write!(f, " {word}"))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
