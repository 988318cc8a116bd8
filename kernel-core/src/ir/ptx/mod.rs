//! PTX that a kernel writes itself: `inline_ptx("shf.l.wrap.b32 $0, $1, $2, $3;", ..)`.
//!
//! The text works on the registers of one element, or of `pack` elements at a time. Its operands are `$0`, `$1` and so
//! on: first the registers of each result, then those of each argument. How many registers a value has, and which,
//! follows from its dtype:
//!
//! | bits of an element | `pack = 1` | `pack = 2` | `pack = 4` |
//! |---|---|---|---|
//! | 8 | one of 16 bits | one of 16 bits, two elements | one of 32 bits, four elements |
//! | 16 | one of 16 bits | one of 32 bits, two elements | two of 32 bits |
//! | 32, 64 | one | two | four |
//!
//! Lower elements lie in lower bits. An element of 8 bits alone in its register is extended by its sign, or by zeros if
//! its dtype has none; of a result the lower bits count.

mod scan;

use super::dtype::DType;
use super::needs::{Result, ensure};
use super::types::Dt;
use scan::Scan;

/// The numbers of elements that a text may work on at a time.
pub const PACKS: [u8; 4] = [1, 2, 4, 8];

/// The most registers that a text takes and gives.
pub const MAX_REGISTERS: usize = 64;

/// PTX for the registers of elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InlinePtx {
    /// Instructions, whose operands are `$0`, `$1`...
    pub text: String,
    /// How many elements they work on.
    pub pack: u8,
    /// Whether they do nothing but compute results from arguments: then they may be moved, merged and dropped.
    pub pure: bool,
}

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PtxError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl PtxError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> PtxError {
        PtxError { message: message.into(), help: help.into() }
    }
}

/// A register of PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtxRegister {
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Wide,
    /// A float of 32 bits.
    Single,
    /// A float of 64 bits.
    Double,
}

impl PtxRegister {
    /// The letter that stands for it in LLVM's constraints.
    pub fn letter(self) -> char {
        match self {
            PtxRegister::Half => 'h',
            PtxRegister::Word => 'r',
            PtxRegister::Wide => 'l',
            PtxRegister::Single => 'f',
            PtxRegister::Double => 'd',
        }
    }
}

/// The registers of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PtxRegisters {
    /// Of which kind.
    pub register: PtxRegister,
    /// How many.
    pub count: usize,
    /// How many elements are in each.
    pub elements: usize,
}

impl InlinePtx {
    /// The registers of `pack` elements; `None` of truth values, which have none of their own.
    pub fn registers(&self, dtype: DType) -> Option<PtxRegisters> {
        let pack = usize::from(self.pack);
        let whole = |register| Some(PtxRegisters { register, count: pack, elements: 1 });
        let bits = dtype.bits() as usize;
        match dtype {
            DType::Bool => None,
            DType::F64 => whole(PtxRegister::Double),
            DType::I64 | DType::U64 => whole(PtxRegister::Wide),
            DType::F32 => whole(PtxRegister::Single),
            DType::I32 | DType::U32 => whole(PtxRegister::Word),
            DType::I8
            | DType::U8
            | DType::I16
            | DType::U16
            | DType::F8E4M3
            | DType::F8E5M2
            | DType::F16
            | DType::BF16 => Some(match pack * bits {
                8 | 16 => PtxRegisters { register: PtxRegister::Half, count: 1, elements: pack },
                all => PtxRegisters { register: PtxRegister::Word, count: all / 32, elements: 32 / bits },
            }),
        }
    }

    /// What is wrong with the text, whatever its operands are.
    ///
    /// # Errors
    /// If ptxas would not accept it, or if it would change what is around it.
    pub fn check_text(&self) -> std::result::Result<(), PtxError> {
        Scan::of(&self.text).map(|_| ())
    }

    /// What the text does besides computing in registers: an instruction, a special register or a name.
    pub fn beyond_registers(&self) -> Option<String> {
        Scan::of(&self.text).ok()?.beyond
    }

    /// Whether the text fits values of these dtypes. What is not known yet fits.
    ///
    /// # Errors
    /// If the text names registers that are not there, does not write a result or writes an argument.
    pub fn check_operands(&self, arguments: &[Dt], results: &[Dt]) -> std::result::Result<(), PtxError> {
        let scan = Scan::of(&self.text)?;
        let mut counts = [0, 0];
        for (count, dts) in counts.iter_mut().zip([results, arguments]) {
            for dt in dts {
                let Some(dtype) = dt.known() else { return Ok(()) };
                let Some(registers) = self.registers(dtype) else {
                    let help = "convert it: `x as u8`, and a result by `y != 0`";
                    return Err(PtxError::new("PTX has no truth values among its operands", help));
                };
                *count += registers.count;
            }
        }
        let [results, arguments] = counts;
        if results + arguments > MAX_REGISTERS {
            let message =
                format!("the text has {} registers as operands, of at most {MAX_REGISTERS}", results + arguments);
            return Err(PtxError::new(message, "pack fewer elements, or take fewer arguments"));
        }
        scan.check_operands(results, arguments)
    }
}

/// The type rule of the attribute.
pub(super) fn fits(ptx: &InlinePtx, arguments: &[Dt], results: &[Dt]) -> Result<()> {
    ensure(PACKS.contains(&ptx.pack), "PTX works on 1, 2, 4 or 8 elements")?;
    ptx.check_operands(arguments, results).map_err(|error| super::TypeError { message: error.message })
}

#[cfg(test)]
mod tests;
