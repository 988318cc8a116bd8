//! `; run: x=[1, 2, 3] out=[0; 3] n=3 grid=2,1,1 => out=[2, 4, 6]`: runs the kernel that the stages made in the
//! interpreter, and then again after each pass alone and after all passes. What follows the arrow must hold each time.
//!
//! Buffers are lists, `[VALUE; LENGTH]` or ranges `[0..8]`; scalars are numbers; the grid is one program unless given.
//! Behind the arrow, `NAME=LIST` is what a buffer holds afterwards (floats bit for bit, a NaN is any NaN), and
//! `fault TEXT` that the launch reports a fault that says so.

use half::{bf16, f16};
use kernel_core::interp::{HostBuffer, HostElement, HostScalar, run_kernel};
use kernel_core::ir::{BoundFunc, DType, Func, Literal, Param, ParamKind};
use kernel_core::num::{normalise, to_bits};
use kernel_core::passes::{PASSES, PassOptions, optimise};

/// Runs one line, in all variants.
pub fn check(func: &Func, line: &str) -> Result<(), String> {
    let run = Run::parse(line)?;
    run.check(func).map_err(|e| format!("run: {line}\n{e}"))?;
    for pass in PASSES {
        let mut changed = func.clone();
        (pass.run)(&mut changed).map_err(|e| format!("pass `{}`: {}", pass.name, e[0]))?;
        run.check(&changed).map_err(|e| format!("run: {line}\nafter pass `{}`: {e}", pass.name))?;
    }
    let mut bound = BoundFunc::new(func.clone()).map_err(|_| "`; run:` needs a bound kernel".to_string())?;
    optimise(&mut bound, &PassOptions { disabled: Vec::new(), verify: true }).map_err(|e| e[0].to_string())?;
    run.check(bound.func()).map_err(|e| format!("run: {line}\nafter all passes: {e}"))
}

struct Run<'l> {
    arguments: Vec<(&'l str, &'l str)>,
    expected: Vec<(&'l str, &'l str)>,
    fault: Option<&'l str>,
}

impl<'l> Run<'l> {
    fn parse(line: &'l str) -> Result<Run<'l>, String> {
        let (arguments, rest) = line.split_once("=>").ok_or("a `; run:` line needs `=>`")?;
        let (expected, fault) = match rest.split_once("fault ") {
            Some((expected, fault)) => (expected, Some(fault.trim())),
            None => (rest, None),
        };
        Ok(Run { arguments: pairs(arguments)?, expected: pairs(expected)?, fault })
    }

    fn argument(&self, name: &str) -> Result<&'l str, String> {
        let found = self.arguments.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| *value).ok_or_else(|| format!("`{name}` is not given"))
    }

    fn check(&self, func: &Func) -> Result<(), String> {
        let bound = BoundFunc::new(func.clone()).map_err(|_| "`; run:` needs a bound kernel".to_string())?;
        let (mut buffers, mut scalars, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for param in &func.params {
            match param.kind {
                ParamKind::Ptr { .. } => {
                    names.push(param);
                    buffers.push(buffer(dtype(param)?, &list(dtype(param)?, self.argument(&param.name)?)?));
                }
                ParamKind::Scalar(_) => {
                    let bits = value(dtype(param)?, self.argument(&param.name)?)?;
                    scalars.push(HostScalar::from_bits(dtype(param)?, bits));
                }
                ParamKind::ConstScalar(_) | ParamKind::ReportSlot | ParamKind::Length(_) | ParamKind::Scratch => {}
            }
        }
        let mut grid = [1; 3];
        if let Ok(text) = self.argument("grid") {
            for (axis, size) in text.split(',').enumerate().take(3) {
                grid[axis] = size.trim().parse().map_err(|_| format!("`{size}` is no size of a grid"))?;
            }
        }
        let result = run_kernel(&bound, &mut buffers, &scalars, grid);
        match (result, self.fault) {
            (Ok(()), None) => {}
            (Ok(()), Some(text)) => return Err(format!("no fault, but `{text}` was expected")),
            (Err(fault), Some(text)) if fault.to_string().contains(text) => {}
            (Err(fault), _) => return Err(format!("fault: {fault}")),
        }
        for &(name, text) in &self.expected {
            let index = names.iter().position(|p| p.name == name).ok_or_else(|| format!("no buffer `{name}`"))?;
            let (dtype, found) = (dtype(names[index])?, bits(&buffers[index]));
            let wanted = bits(&buffer(dtype, &list(dtype, text)?));
            if found != wanted {
                return Err(format!("`{name}` is {:?}, expected {text}", buffers[index]));
            }
        }
        Ok(())
    }
}

fn dtype(param: &Param) -> Result<DType, String> {
    match param.kind {
        ParamKind::Ptr { dt, .. } | ParamKind::Scalar(dt) | ParamKind::ConstScalar(dt) => dt.known(),
        ParamKind::ReportSlot | ParamKind::Length(_) | ParamKind::Scratch => None,
    }
    .ok_or_else(|| format!("`{}` has no dtype", param.name))
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

fn buffer(dtype: DType, bits: &[u64]) -> HostBuffer {
    fn of<T: HostElement>(bits: &[u64], convert: impl Fn(u64) -> T) -> HostBuffer {
        HostBuffer::from(bits.iter().map(|&b| convert(b)).collect::<Vec<T>>())
    }
    match dtype {
        DType::Bool => of(bits, |b| b != 0),
        DType::I8 => of(bits, |b| b as i8),
        DType::I16 => of(bits, |b| b as i16),
        DType::I32 => of(bits, |b| b as i32),
        DType::I64 => of(bits, |b| b as i64),
        DType::U8 => of(bits, |b| b as u8),
        DType::U16 => of(bits, |b| b as u16),
        DType::U32 => of(bits, |b| b as u32),
        DType::U64 => of(bits, |b| b),
        DType::F16 => of(bits, |b| f16::from_bits(b as u16)),
        DType::BF16 => of(bits, |b| bf16::from_bits(b as u16)),
        DType::F32 => of(bits, |b| f32::from_bits(b as u32)),
        DType::F64 => of(bits, f64::from_bits),
    }
}

/// The bits of a buffer's elements, all NaNs alike.
fn bits(buffer: &HostBuffer) -> Vec<u64> {
    fn of<T: HostElement>(elements: &[T], is_nan: impl Fn(T) -> bool) -> Vec<u64> {
        elements.iter().map(|&e| if is_nan(e) { u64::MAX } else { e.bits() }).collect()
    }
    match buffer {
        HostBuffer::Bool(v) => of(v, |_| false),
        HostBuffer::I8(v) => of(v, |_| false),
        HostBuffer::I16(v) => of(v, |_| false),
        HostBuffer::I32(v) => of(v, |_| false),
        HostBuffer::I64(v) => of(v, |_| false),
        HostBuffer::U8(v) => of(v, |_| false),
        HostBuffer::U16(v) => of(v, |_| false),
        HostBuffer::U32(v) => of(v, |_| false),
        HostBuffer::U64(v) => of(v, |_| false),
        HostBuffer::F16(v) => of(v, f16::is_nan),
        HostBuffer::BF16(v) => of(v, bf16::is_nan),
        HostBuffer::F32(v) => of(v, f32::is_nan),
        HostBuffer::F64(v) => of(v, f64::is_nan),
    }
}
