//! Arithmetic on literals that have a dtype: `200_u8 * 2`, which does not wrap.
//!
//! Literals without a suffix are constexprs, whose arithmetic is exact. Those with one become operations of their dtype. What
//! these compute is noted here, exactly, and compared with the dtype once that is settled.
//!
//! ```text
//! 200_u8 * 2          `u8` does not hold 400
//! (255 as u8) + 1     `u8` does not hold 256
//! x + 255_u8          wraps, as `x` is known at run time only
//! ```

use std::collections::BTreeSet;

use kernel_core::ir::{BinaryOp, DType, Dim, DimError, Dt};

use super::{Checker, Operand};
use crate::error::Checked;
use crate::source_range::SourceRange;
use crate::tree::{Kind, NodeId};

/// An operation on literals.
pub(super) struct Computed {
    operands: [NodeId; 2],
    /// Its exact result; none if it has more than 128 bits.
    result: Option<i128>,
}

impl Checker<'_> {
    /// Notes what an operator computes of two literals.
    pub(super) fn note_computed(
        &mut self,
        op: BinaryOp,
        operands: [Operand; 2],
        result: Operand,
        place: SourceRange,
    ) -> Checked<()> {
        let dtype = self.node_dt(result.node).and_then(|dt| self.types.known(dt));
        // An integer of constexprs, which is exact anyway. What is inlined was checked where it stands.
        let inlined = self.frame.is_written || self.frame.name.is_some() && self.call.0 != 0;
        if inlined || self.node(result.node).dim.is_some() {
            return Ok(());
        }
        let operands = operands.map(|operand| operand.node);
        let [Some(a), Some(b)] = operands.map(|node| self.literal_value(node)) else { return Ok(()) };
        let result_of = match op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            BinaryOp::Div | BinaryOp::Rem if b == 0 => {
                return self.dim_result(Err(DimError::DivisionByZero), place).map(drop);
            }
            BinaryOp::Div => a.checked_div(b),
            BinaryOp::Rem => a.checked_rem(b),
            BinaryOp::And => Some(a & b),
            BinaryOp::Or => Some(a | b),
            BinaryOp::Xor => Some(a ^ b),
            // Bits may be lost, and counts are taken modulo the width.
            BinaryOp::Shl | BinaryOp::Shr => {
                let Some(Dt::Known(dtype)) = dtype else { return Ok(()) };
                let count = u32::try_from(b).ok().filter(|count| *count < dtype.bits());
                let Some(count) = count else { return Ok(()) };
                Some(if op == BinaryOp::Shl { wrapped(a << count, dtype) } else { a >> count })
            }
            BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::DivRn
            | BinaryOp::MinNan
            | BinaryOp::MaxNan
            | BinaryOp::Umulhi
            | BinaryOp::Mulhi
            | BinaryOp::RotateLeft
            | BinaryOp::RotateRight
            | BinaryOp::SaturatingAdd
            | BinaryOp::SaturatingSub
            | BinaryOp::SaturatingMul
            | BinaryOp::CopySign
            | BinaryOp::NextAfter
            | BinaryOp::Math(_) => return Ok(()),
        };
        self.computed.insert(result.node.0, Computed { operands, result: result_of });
        Ok(())
    }

    /// The number that a literal of this body is, or an operation on such literals.
    fn literal_value(&self, id: NodeId) -> Option<i128> {
        let node = self.node(id);
        if node.place.call != self.call {
            return None;
        }
        match node.kind {
            Kind::Int(Dim::Const(value)) => Some(i128::from(value)),
            Kind::BigInt(value) => Some(value),
            _ => self.computed.get(&id.0)?.result,
        }
    }

    /// Refuses what the dtypes of such operations do not hold.
    pub(super) fn computed_fit(&mut self) {
        let mut beyond: BTreeSet<usize> = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for (id, Computed { operands, result }) in std::mem::take(&mut self.computed) {
            let Some(Dt::Known(dtype)) = self.node_dt(NodeId(id)).map(|dt| self.types.settled(dt)) else { continue };
            let holds = |value: i128| (dtype.int_min()..=dtype.int_max()).contains(&value);
            if !dtype.is_int() || result.is_some_and(holds) {
                continue;
            }
            beyond.insert(id);
            let place = self.node(NodeId(id)).place;
            let (start, end) = (place.start.start(), place.end.end());
            let known = seen.insert((start.line, start.column, end.line, end.column));
            // An operand that its dtype does not hold has a message of its own.
            let literal = |id: &NodeId| match self.node(*id).kind {
                Kind::Int(Dim::Const(value)) => !holds(value.into()),
                Kind::BigInt(value) => !holds(value),
                _ => beyond.contains(&id.0),
            };
            if operands.iter().any(literal) || !known {
                continue;
            }
            let number = result.map_or("this number".to_string(), |result| result.to_string());
            let help = format!("it holds {} to {}", dtype.int_min(), dtype.int_max());
            self.report_help(place, format!("`{dtype}` does not hold {number}"), help);
        }
    }
}

/// The lower bits of a number, as a dtype has them.
fn wrapped(value: i128, dtype: DType) -> i128 {
    let unused = i128::BITS - dtype.bits();
    let bits = value << unused;
    if dtype.int_min() < 0 { bits >> unused } else { (bits.cast_unsigned() >> unused).cast_signed() }
}
