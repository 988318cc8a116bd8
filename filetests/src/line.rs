//! Arguments of launches, and what must come of them.

use kernel_core::interp::HostTensor;
use kernel_core::ir::{DType, Dt, Func, Literal, Param, ParamKind};
use kernel_core::num::{from_bits, normalise, to_bits};

/// A line `; run: x=[1, 2, 3] out=[0; 3] n=3 grid=2,1,1 => out=[2, 4, 6]`, parsed: arguments of a launch, and what must
/// come of it.
///
/// Buffers are lists, `[VALUE; LENGTH]` or ranges `[0..8]`; scalars are numbers; the grid is one program unless given.
/// A descriptor's parameter `a` is a list too, with `a.shape=3,5`, `a.strides=8,1` (row-major unless given) and
/// `a.pad=nan` (zero unless given). Behind the arrow, `NAME=LIST` is what a buffer holds afterwards (floats bit for bit,
/// a NaN is any NaN), and `fault TEXT` that the launch reports a fault that says so.
pub struct RunLine<'l> {
    arguments: Vec<(&'l str, &'l str)>,
    expected: Vec<(&'l str, &'l str)>,
    /// What the fault says, if there must be one.
    pub fault: Option<&'l str>,
}

/// An argument, by its bits.
#[derive(Clone, Debug)]
pub enum Argument {
    /// The elements of a buffer.
    Buffer {
        /// The parameter.
        name: String,
        /// The dtype of the elements.
        dtype: DType,
        /// The elements before the launch.
        bits: Vec<u64>,
        /// What they must be afterwards, if the line says so.
        after: Option<Vec<u64>>,
        /// How a descriptor sees it.
        tensor: Option<HostTensor>,
    },
    /// A number.
    Scalar(DType, u64),
}

impl<'l> RunLine<'l> {
    /// Reads what stands behind `; run:`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &'l str) -> Result<RunLine<'l>, String> {
        let (arguments, rest) = line.split_once("=>").ok_or("a `; run:` line needs `=>`")?;
        let (expected, fault) = match rest.split_once("fault ") {
            Some((expected, fault)) => (expected, Some(fault.trim())),
            None => (rest, None),
        };
        Ok(RunLine { arguments: pairs(arguments)?, expected: pairs(expected)?, fault })
    }

    fn argument(&self, name: &str) -> Result<&'l str, String> {
        let found = self.arguments.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| *value).ok_or_else(|| format!("`{name}` is not given"))
    }

    /// The arguments of a bound kernel, in the order of its parameters.
    ///
    /// # Errors
    /// If one is missing or has no such value, or the kernel has no buffer of which the line expects something.
    pub fn arguments(&self, func: &Func) -> Result<Vec<Argument>, String> {
        if let Some((name, _)) = self.expected.iter().find(|(name, _)| !func.params.iter().any(|p| p.name == *name)) {
            return Err(format!("no buffer `{name}`"));
        }
        let mut arguments = Vec::new();
        // What is made of other arguments is none.
        for param in func.params.iter().filter(|param| param.recipe.is_none()) {
            match &param.kind {
                ParamKind::Ptr { .. } | ParamKind::Desc { .. } => {
                    let (name, dtype) = (param.name.clone(), dtype(param)?);
                    let bits = list(dtype, self.argument(&name)?)?;
                    let after = self.expected.iter().find(|(n, _)| *n == name);
                    let after = after.map(|(_, text)| list(dtype, text)).transpose()?;
                    let tensor = self.tensor(&name)?;
                    arguments.push(Argument::Buffer { name, dtype, bits, after, tensor });
                }
                ParamKind::Scalar(_) => {
                    let dtype = dtype(param)?;
                    arguments.push(Argument::Scalar(dtype, value(dtype, self.argument(&param.name)?)?));
                }
                ParamKind::ConstScalar(_)
                | ParamKind::ReportSlot
                | ParamKind::Length(_)
                | ParamKind::DescShape { .. }
                | ParamKind::DescStride { .. } => {}
            }
        }
        Ok(arguments)
    }

    /// How a descriptor sees a buffer, if its shape is given.
    fn tensor(&self, name: &str) -> Result<Option<HostTensor>, String> {
        let numbers = |what: &str| -> Result<Option<Vec<u64>>, String> {
            let Ok(text) = self.argument(&format!("{name}.{what}")) else { return Ok(None) };
            let number = |n: &str| n.trim().parse().map_err(|_| format!("`{n}` is no size"));
            text.split(',').map(number).collect::<Result<_, _>>().map(Some)
        };
        let Some(shape) = numbers("shape")? else { return Ok(None) };
        let mut tensor = HostTensor::contiguous(&shape);
        if let Some(strides) = numbers("strides")? {
            tensor.strides = strides;
        }
        tensor.pads_with_nan = self.argument(&format!("{name}.pad")) == Ok("nan");
        Ok(Some(tensor))
    }

    /// Programs along each axis.
    ///
    /// # Errors
    /// If there is no such grid.
    pub fn grid(&self) -> Result<[u32; 3], String> {
        let mut grid = [1; 3];
        if let Ok(text) = self.argument("grid") {
            for (axis, size) in text.split(',').enumerate().take(3) {
                grid[axis] = size.trim().parse().map_err(|_| format!("`{size}` is no size of a grid"))?;
            }
        }
        Ok(grid)
    }
}

/// The bits of elements for comparison: what is beyond the dtype is cut off, and all NaNs are alike.
pub fn comparable(dtype: DType, bits: &[u64]) -> Vec<u64> {
    let known = u64::MAX >> (64 - dtype.bits());
    let one = |bits: u64| match from_bits(bits, dtype) {
        Literal::Float(float) if f64::from_bits(float).is_nan() => u64::MAX,
        Literal::Float(_) | Literal::Int(_) | Literal::Bool(_) => bits,
    };
    bits.iter().map(|&bits| one(bits & known)).collect()
}

fn dtype(param: &Param) -> Result<DType, String> {
    param.kind.dt().and_then(Dt::known).ok_or_else(|| format!("`{}` has no dtype", param.name))
}

/// `a=1 b=[1, 2]`
fn pairs(mut text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut list = Vec::new();
    loop {
        text = text.trim_start();
        let Some((name, rest)) = text.split_once('=') else {
            return if text.is_empty() { Ok(list) } else { Err(format!("`{text}` is no `name=value`")) };
        };
        let end = if rest.starts_with('[') {
            rest.find(']').ok_or("a list without `]`")? + 1
        } else {
            rest.find(' ').unwrap_or(rest.len())
        };
        list.push((name, &rest[..end]));
        text = &rest[end..];
    }
}

/// The bits of the elements of a list.
fn list(dtype: DType, text: &str) -> Result<Vec<u64>, String> {
    let inner =
        text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(|| format!("`{text}` is no list"))?;
    if let Some((element, count)) = inner.split_once(';') {
        let count = count.trim().parse().map_err(|_| format!("`{count}` is no length"))?;
        return Ok(vec![value(dtype, element.trim())?; count]);
    }
    if let Some((lo, hi)) = inner.split_once("..") {
        let bound = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("`{text}` is no bound"));
        return (bound(lo)?..bound(hi)?).map(|i| value(dtype, &i.to_string())).collect();
    }
    inner.split(',').map(str::trim).filter(|e| !e.is_empty()).map(|e| value(dtype, e)).collect()
}

/// The bits of a number in a dtype.
fn value(dtype: DType, text: &str) -> Result<u64, String> {
    let literal = if let Ok(value) = text.parse::<bool>() {
        Some(Literal::Bool(value))
    } else if let Ok(value) = text.parse::<i128>() {
        Some(Literal::Int(value))
    } else {
        text.parse::<f64>().ok().map(Literal::float)
    };
    let literal = literal.and_then(|l| normalise(l, dtype)).ok_or_else(|| format!("`{text}` is no {dtype}"))?;
    to_bits(literal, dtype).ok_or_else(|| format!("`{text}` is no {dtype}"))
}
