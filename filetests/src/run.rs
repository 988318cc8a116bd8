//! Runs a kernel in the interpreter as a `; run:` line says, and then again after each pass alone and after all
//! passes. What follows the arrow must hold each time.

use half::{bf16, f16};
use kernel_core::interp::{HostBuffer, HostElement, HostScalar, run_with_tensors};
use kernel_core::ir::{Bound, DType, Func};
use kernel_core::num::{F8E4M3, F8E5M2};
use kernel_core::passes::{PASSES, PassOptions, optimise};

use crate::line::{Argument, RunLine, comparable};

/// Runs a kernel as a line says, in all variants.
///
/// # Errors
/// What differs from what the line expects, or is wrong with the line.
pub fn interpret(func: &Func, line: &str) -> Result<(), String> {
    let run = RunLine::parse(line)?;
    check_one(&run, func).map_err(|e| format!("run: {line}\n{e}"))?;
    for pass in PASSES {
        let mut changed = func.clone();
        (pass.run)(&mut changed).map_err(|e| format!("pass `{}`: {}", pass.name, e[0]))?;
        check_one(&run, &changed).map_err(|e| format!("run: {line}\nafter pass `{}`: {e}", pass.name))?;
    }
    let mut bound = Bound::new(func.clone()).map_err(|_| "`; run:` needs a bound kernel".to_string())?;
    optimise(&mut bound, &PassOptions { disabled: Vec::new(), verify: true }).map_err(|e| e[0].to_string())?;
    check_one(&run, bound.func()).map_err(|e| format!("run: {line}\nafter all passes: {e}"))
}

fn check_one(run: &RunLine<'_>, func: &Func) -> Result<(), String> {
    let bound = Bound::new(func.clone()).map_err(|_| "`; run:` needs a bound kernel".to_string())?;
    let arguments = run.arguments(func)?;
    let (mut buffers, mut scalars, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    let mut tensors = Vec::new();
    for argument in &arguments {
        match argument {
            Argument::Buffer { name, dtype, bits, after, tensor } => {
                buffers.push(buffer(*dtype, bits));
                tensors.extend(tensor.clone());
                expected.push((name, *dtype, after));
            }
            Argument::Scalar(dtype, bits) => scalars.push(HostScalar::from_bits(*dtype, *bits)),
        }
    }
    match (run_with_tensors(&bound, &mut buffers, &tensors, &scalars, run.grid()?), run.fault) {
        (Ok(()), None) => {}
        (Ok(()), Some(text)) => return Err(format!("no fault, but `{text}` was expected")),
        (Err(fault), Some(text)) if fault.to_string().contains(text) => {}
        (Err(fault), _) => return Err(format!("fault: {fault}")),
    }
    for (found, (name, dtype, after)) in buffers.iter().zip(expected) {
        if let Some(after) = after
            && comparable(dtype, &bits(found)) != comparable(dtype, after)
        {
            return Err(format!("`{name}` is {found:?}, expected {:?}", buffer(dtype, after)));
        }
    }
    Ok(())
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
        DType::F8E4M3 => of(bits, |b| F8E4M3::from_bits(b as u8)),
        DType::F8E5M2 => of(bits, |b| F8E5M2::from_bits(b as u8)),
        DType::F16 => of(bits, |b| f16::from_bits(b as u16)),
        DType::BF16 => of(bits, |b| bf16::from_bits(b as u16)),
        DType::F32 => of(bits, |b| f32::from_bits(b as u32)),
        DType::F64 => of(bits, f64::from_bits),
    }
}

/// The bits of a buffer's elements.
fn bits(buffer: &HostBuffer) -> Vec<u64> {
    fn of<T: HostElement>(elements: &[T]) -> Vec<u64> {
        elements.iter().map(|&e| e.bits()).collect()
    }
    match buffer {
        HostBuffer::Bool(v) => of(v),
        HostBuffer::I8(v) => of(v),
        HostBuffer::I16(v) => of(v),
        HostBuffer::I32(v) => of(v),
        HostBuffer::I64(v) => of(v),
        HostBuffer::U8(v) => of(v),
        HostBuffer::U16(v) => of(v),
        HostBuffer::U32(v) => of(v),
        HostBuffer::U64(v) => of(v),
        HostBuffer::F8E4M3(v) => of(v),
        HostBuffer::F8E5M2(v) => of(v),
        HostBuffer::F16(v) => of(v),
        HostBuffer::BF16(v) => of(v),
        HostBuffer::F32(v) => of(v),
        HostBuffer::F64(v) => of(v),
    }
}
