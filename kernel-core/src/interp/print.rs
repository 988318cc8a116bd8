//! What kernels print: one line per element, or per program.

use std::fmt::Write;

use crate::ir::DType;
use crate::ir::format::{Digits, Piece, general};

use super::cast::cast;
use super::executor::{Executor, Form};
use super::lanes::Bits;
use super::registers::RegId;

/// A text and the values in it.
#[derive(Clone, Debug)]
pub(super) struct Print {
    pub pieces: Vec<Piece>,
    /// The values in order, of one shape.
    pub values: Vec<(RegId, DType)>,
}

impl Executor<'_> {
    pub(super) fn print(&mut self, print: &Print) {
        let first = print.values.first().map(|&(reg, _)| self.info(reg).dims.clone());
        let (dims, tile) = first.map_or_else(Default::default, |dims| (dims.clone(), !dims.is_empty()));
        for element in 0..dims.iter().product::<usize>() {
            let [x, y, z] = self.program_id;
            let mut line = format!("program ({x}, {y}, {z})");
            if tile {
                let _ = write!(line, " {:?}", index_of(element, &dims));
            }
            line.push_str(": ");
            let mut values = print.values.iter();
            for piece in &print.pieces {
                match piece {
                    Piece::Text(text) => line.push_str(text),
                    Piece::Value(digits) => {
                        let Some(&(reg, dtype)) = values.next() else { break };
                        line.push_str(&shown(self.element(reg, element, dtype), dtype, *digits));
                    }
                }
            }
            (self.launch.prints)(&line);
        }
    }

    fn element(&mut self, reg: RegId, element: usize, dtype: DType) -> Bits {
        if let Form::Splat(bits) = self.regs[reg.index()].form {
            return bits;
        }
        let (data, bytes) = (self.dense(reg), dtype.bytes() as usize);
        // SAFETY: `dense` returns all elements of the register, which has one of that number.
        Bits::from_bytes(unsafe { std::slice::from_raw_parts(data.add(element * bytes), bytes) })
    }
}

/// The coordinates of an element, in row-major order.
fn index_of(mut element: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (at, &size) in index.iter_mut().zip(dims).rev() {
        (*at, element) = (element % size, element / size);
    }
    index
}

fn shown(value: Bits, dtype: DType, digits: Digits) -> String {
    if dtype == DType::Bool {
        return value.to_bool().to_string();
    }
    if digits == Digits::Hex {
        return format!("{:x}", value.to_raw(dtype.bytes() as usize));
    }
    if !dtype.is_float() {
        return value.to_int(dtype).to_string();
    }
    let mut wide = Bits::ZERO;
    // SAFETY: the conversion was chosen for the dtype, and each side holds one element.
    unsafe { cast(dtype, DType::F64)(value.as_ptr(), wide.as_mut_ptr(), 1) };
    general(f64::from_bits(wide.to_raw(8)), digits.count(dtype.bits()))
}
