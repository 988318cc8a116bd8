//! What can be checked only when all dtypes are known: literals fit, operations are defined, nothing is left open.

use kernel_core::ir::{BinaryOp, DType, DTypeBound, Dim, Dt};

use super::{Checker, Deferred};
use crate::decimal::Decimal;
use crate::source_range::SourceRange;
use crate::tree::{Kind, NodeId, Stmt, VOp};
use crate::types::{DtRef, admits};

impl Checker<'_> {
    /// The checks at the end of the kernel.
    pub(super) fn finish(&mut self) {
        let deferred = std::mem::take(&mut self.deferred);
        let mut refused: Vec<DtRef> = Vec::new();
        for Deferred { dt, needs, place, what } in deferred {
            let settled = DtRef::Fixed(self.types.settled(dt));
            let DtRef::Fixed(fixed) = settled else { continue };
            if !needs.admits(&self.func, fixed) && !refused.contains(&self.types.resolve(dt)) {
                refused.push(self.types.resolve(dt));
                self.lacks(settled, needs, &what, place, None);
            }
        }
        let mut operands = std::mem::take(&mut self.annotated);
        let stmts = std::mem::take(&mut self.stmts);
        for stmt in &stmts {
            self.operands_of(stmt, &mut operands);
        }
        self.stmts = stmts;
        operands.sort_unstable_by_key(|id: &NodeId| id.0);
        operands.dedup();
        for id in operands {
            self.literal_fits(id);
            self.shift_fits(id);
        }
        self.computed_fit();
    }

    /// Refuses to shift a literal by more than its dtype has bits.
    fn shift_fits(&mut self, id: NodeId) {
        let (Some((number, count)), Some(dt)) = (self.literal_shifts.get(&id.0).copied(), self.node_dt(id)) else {
            return;
        };
        let Dt::Known(dtype) = self.types.settled(dt) else { return };
        if (0..i64::from(dtype.bits())).contains(&count) {
            return;
        }
        let place = self.node(id).place;
        let message = format!("a shift by {count} leaves nothing of `{dtype}`, which has {} bits", dtype.bits());
        let left = self.shift(id).is_some_and(|shift| shift.op == BinaryOp::Shl);
        let exact =
            u32::try_from(count).ok().filter(|count| left && *count < 64).map(|count| i128::from(number) << count);
        let help = match exact.and_then(wider) {
            // Nothing else says what it should be: then the literal may.
            Some(wide) if self.types.class(dt).is_some() && wide.bits() > dtype.bits() => {
                format!("write `{number}_{wide} << {count}`")
            }
            Some(_) | None => format!("shift by 0 to {}", dtype.bits() - 1),
        };
        self.report_help(place, message, help);
    }

    /// All nodes that a statement uses.
    fn operands_of(&mut self, stmt: &Stmt, out: &mut Vec<NodeId>) {
        match stmt {
            Stmt::Eval(node) => {
                let node = self.node(*node).clone();
                if let (Kind::Op(VOp::Zero, _), Some(dt)) = (&node.kind, node_dt(&node))
                    && self.types.is_open(dt)
                    && self.errors.is_empty()
                {
                    let help = "write `zeros::<f32>([N])`";
                    self.report_help(node.place, "nothing says what dtype this has", help);
                }
                if let Kind::Op(_, args) = node.kind {
                    out.extend(args);
                }
            }
            Stmt::Effect(_, args, _) => out.extend(args),
            Stmt::Read(..) | Stmt::Jump(..) => {}
            Stmt::Assign(_, node) | Stmt::Alias(_, node) => out.push(*node),
            Stmt::If(stmt) => {
                out.push(stmt.condition);
                out.extend(stmt.results.iter().flat_map(|(_, a, b)| [*a, *b]).flatten());
                for stmt in stmt.then.iter().chain(&stmt.otherwise) {
                    self.operands_of(stmt, out);
                }
            }
            Stmt::For(stmt) => {
                out.extend([stmt.lo, stmt.hi, stmt.step]);
                for stmt in &stmt.body {
                    self.operands_of(stmt, out);
                }
            }
            Stmt::While(stmt) => {
                out.push(stmt.condition);
                for stmt in stmt.head.iter().chain(&stmt.body) {
                    self.operands_of(stmt, out);
                }
            }
            Stmt::Map(stmt) => {
                self.ptx_fits(stmt);
                out.extend(stmt.inputs.iter().chain(&stmt.yields));
                for stmt in &stmt.body {
                    self.operands_of(stmt, out);
                }
            }
            Stmt::Body(stmt) => {
                for stmt in &stmt.body {
                    self.operands_of(stmt, out);
                }
            }
            Stmt::Reduce(stmt) => {
                out.extend(stmt.inputs.iter().chain(&stmt.yields));
                for stmt in &stmt.body {
                    self.operands_of(stmt, out);
                }
            }
        }
    }

    /// Refuses a literal that its dtype does not hold.
    fn literal_fits(&mut self, id: NodeId) {
        let node = self.node(id);
        let value = match node.kind {
            Kind::Int(Dim::Const(value)) => i128::from(value),
            Kind::BigInt(value) => value,
            Kind::Float(number) => return self.float_fits(id, number),
            Kind::Int(_)
            | Kind::Bool(_)
            | Kind::ConstBool(_)
            | Kind::Constant(_)
            | Kind::Param(_)
            | Kind::Slot
            | Kind::Op(..) => return,
        };
        let Some(dt) = self.node_dt(id) else { return };
        let place: SourceRange = node.place;
        match self.types.settled(dt) {
            Dt::Known(d) if d.is_int() && !(d.int_min()..=d.int_max()).contains(&value) => {
                let message = format!("`{d}` does not hold {value}");
                let help = match (self.types.class(dt), wider(value)) {
                    // Nothing else says what it should be: then the literal may.
                    (Some(_), Some(wide)) => format!("write `{value}_{wide}`"),
                    (Some(_), None) | (None, _) => format!("it holds {} to {}", d.int_min(), d.int_max()),
                };
                self.report_help(place, message, help);
            }
            Dt::Param(p) if admits(&self.func, Dt::Param(p), DTypeBound::Int) && !(0..=127).contains(&value) => {
                let name = self.func.dtype_params[p.index()].name.clone();
                let message = format!("not every dtype that `{name}` may be holds {value}");
                self.report_help(place, message, format!("say that it may wrap: `{value} as {name}`"));
            }
            Dt::Known(_) | Dt::Param(_) => {}
        }
    }
}

impl Checker<'_> {
    /// Refuses a finite float literal that its dtype rounds to infinity.
    fn float_fits(&mut self, id: NodeId, number: Decimal) {
        let (Some(dt), place) = (self.node_dt(id), self.node(id).place) else { return };
        // Half a unit beyond the largest number, where rounding to nearest goes up.
        let (f16, bf16) = (65_520.0, f64::from_bits(0x47EF_F000_0000_0000));
        let settled = self.types.settled(dt);
        let beyond = match settled {
            Dt::Known(DType::F16) => number.odd.abs() >= f16,
            Dt::Known(DType::BF16) => number.odd.abs() >= bf16,
            Dt::Known(DType::F8E4M3) => number.odd.abs() > 464.0,
            Dt::Known(DType::F8E5M2) => number.odd.abs() >= 61_440.0,
            Dt::Known(DType::F32) => (number.odd as f32).is_infinite(),
            Dt::Known(_) | Dt::Param(_) => number.nearest.is_infinite(),
        };
        if beyond {
            let dtype = self.show_fixed(settled).replace('`', "");
            let message = format!("`{dtype}` does not hold this number");
            let beyond = match settled {
                Dt::Known(DType::F8E4M3) => String::new(),
                Dt::Known(_) | Dt::Param(_) => format!("; beyond is `{dtype}::INFINITY`"),
            };
            self.report_help(place, message, format!("the largest is `{dtype}::MAX`{beyond}"));
        }
    }
}

fn node_dt(node: &crate::tree::Node) -> Option<DtRef> {
    match node.ty.elem {
        crate::types::VElem::Data(dt) => Some(dt),
        crate::types::VElem::Ptr(_) => None,
    }
}

fn wider(value: i128) -> Option<DType> {
    [DType::I32, DType::U32, DType::I64, DType::U64].into_iter().find(|d| (d.int_min()..=d.int_max()).contains(&value))
}
