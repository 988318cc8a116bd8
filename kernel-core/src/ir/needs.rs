//! What operations ask of their operands, and the rules that several of them share.

use std::fmt;

use super::dim::Dim;
use super::dtype::{DType, DTypeBound};
use super::func::Func;
use super::names::{AtomicOp, BinaryOp, CmpOp, UnaryOp};
use super::types::{Dt, Elem, Ty};

/// An operation whose operands do not fit it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeError {
    /// What is wrong, in terms of the operation.
    pub message: String,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TypeError {}

pub(super) type Result<T> = std::result::Result<T, TypeError>;

pub(super) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(TypeError { message: message.into() })
}

pub(super) fn ensure(condition: bool, message: &str) -> Result<()> {
    if condition { Ok(()) } else { fail(message) }
}

/// Whether every dtype that `dt` can stand for satisfies `bound`.
pub fn dt_admits(func: &Func, dt: Dt, bound: DTypeBound) -> bool {
    match dt {
        Dt::Known(d) => bound.admits(d),
        Dt::Param(p) => {
            let own = func.dtype_params[p.index()].bound;
            DType::ALL.into_iter().filter(|d| own.admits(*d)).all(|d| bound.admits(d))
        }
    }
}

/// What an elementwise operation asks of the dtype of its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Every dtype of the bound.
    Bound(DTypeBound),
    /// Integers and `bool`.
    Bits,
    /// Integers, floats and `bool`.
    Any,
}

impl Needs {
    /// Whether `dt` fits.
    pub fn admits(self, func: &Func, dt: Dt) -> bool {
        match self {
            Needs::Bound(b) => dt_admits(func, dt, b),
            Needs::Bits => dt == Dt::Known(DType::Bool) || dt_admits(func, dt, DTypeBound::Int),
            Needs::Any => true,
        }
    }
}

impl UnaryOp {
    /// What the operand's dtype must be.
    pub fn needs(self) -> Needs {
        match self {
            UnaryOp::Neg => Needs::Bound(DTypeBound::Signed),
            UnaryOp::Abs => Needs::Bound(DTypeBound::Num),
            UnaryOp::Not => Needs::Bits,
            UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Trunc
            | UnaryOp::Round
            | UnaryOp::RoundTiesEven
            | UnaryOp::SqrtRn
            | UnaryOp::Math(_) => Needs::Bound(DTypeBound::Float),
            UnaryOp::CountOnes | UnaryOp::LeadingZeros | UnaryOp::TrailingZeros | UnaryOp::ReverseBits => {
                Needs::Bound(DTypeBound::Int)
            }
        }
    }
}

impl BinaryOp {
    /// What the operands' dtype must be.
    pub fn needs(self) -> Needs {
        match self {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::MinNan
            | BinaryOp::MaxNan => Needs::Bound(DTypeBound::Num),
            BinaryOp::DivRn | BinaryOp::CopySign | BinaryOp::NextAfter | BinaryOp::Math(_) => {
                Needs::Bound(DTypeBound::Float)
            }
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => Needs::Bits,
            BinaryOp::Shl
            | BinaryOp::Shr
            | BinaryOp::Umulhi
            | BinaryOp::Mulhi
            | BinaryOp::RotateLeft
            | BinaryOp::RotateRight
            | BinaryOp::SaturatingAdd
            | BinaryOp::SaturatingSub
            | BinaryOp::SaturatingMul => Needs::Bound(DTypeBound::Int),
        }
    }
}

impl AtomicOp {
    /// What the buffer's dtype must be.
    pub fn needs(self) -> Needs {
        match self {
            AtomicOp::Add | AtomicOp::Min | AtomicOp::Max => Needs::Bound(DTypeBound::Num),
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => Needs::Bits,
            AtomicOp::Exchange => Needs::Any,
        }
    }
}

impl CmpOp {
    /// What the operands' dtype must be.
    pub fn needs(self) -> Needs {
        match self {
            CmpOp::Eq | CmpOp::Ne => Needs::Any,
            CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge => Needs::Bound(DTypeBound::Num),
        }
    }
}

pub(super) fn data(ty: &Ty) -> Result<Dt> {
    match ty.elem {
        Elem::Data(dt) => Ok(dt),
        Elem::Ptr(_) | Elem::Desc(_) | Elem::Token | Elem::Shared(_) | Elem::Barrier => {
            fail("expects numbers or truth values")
        }
    }
}

pub(super) fn is_bool(ty: &Ty) -> bool {
    ty.elem == Elem::Data(Dt::Known(DType::Bool))
}

pub(super) fn permuted(shape: &[Dim], perm: &[u8]) -> Result<Vec<Dim>> {
    let mut sorted: Vec<usize> = perm.iter().map(|&p| usize::from(p)).collect();
    sorted.sort_unstable();
    ensure(sorted.iter().copied().eq(0..shape.len()), "permute names every dimension once")?;
    Ok(perm.iter().map(|&p| shape[usize::from(p)].clone()).collect())
}

pub(super) fn mask_fits(pointer: &Ty, mask: Option<&&Ty>) -> Result<()> {
    let Some(mask) = mask else { return Ok(()) };
    ensure(is_bool(mask), "the mask must be `bool`")?;
    ensure(mask.shape == pointer.shape, "the mask must have the pointers' shape")
}
