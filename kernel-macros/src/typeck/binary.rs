//! Binary operators: arithmetic, comparison, pointer arithmetic.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, CmpOp, DType, DTypeBound, Dim, DimError, Dt, ElementwiseOp, MemoryOp, Op, UnaryOp};
use syn::{BinOp, Expr, ExprBinary};

use super::{Checker, Operand, Shift, Val};
use crate::error::Checked;
use crate::help::Help;
use crate::source_range::{SourceRange, bare};
use crate::tree::{Kind, Node, NodeId, VOp};
use crate::types::{BOOL, Class, Declared, DtRef, VElem, VTy};

/// What a binary operator does.
#[derive(Clone, Copy)]
pub(super) enum Operator {
    Arith(BinaryOp, &'static str),
    Compare(CmpOp, &'static str),
    And,
    Or,
}

/// Whether an operator assigns: `+=` and its kind.
pub fn assigns(op: &BinOp) -> bool {
    operator(op).is_some_and(|(_, assigns)| assigns)
}

/// The operator, or the arithmetic inside a compound assignment (with `true`).
pub(super) fn operator(op: &BinOp) -> Option<(Operator, bool)> {
    use Operator::{And, Arith, Compare, Or};
    Some(match op {
        BinOp::Add(_) => (Arith(BinaryOp::Add, "`+`"), false),
        BinOp::Sub(_) => (Arith(BinaryOp::Sub, "`-`"), false),
        BinOp::Mul(_) => (Arith(BinaryOp::Mul, "`*`"), false),
        BinOp::Div(_) => (Arith(BinaryOp::Div, "`/`"), false),
        BinOp::Rem(_) => (Arith(BinaryOp::Rem, "`%`"), false),
        BinOp::BitAnd(_) => (Arith(BinaryOp::And, "`&`"), false),
        BinOp::BitOr(_) => (Arith(BinaryOp::Or, "`|`"), false),
        BinOp::BitXor(_) => (Arith(BinaryOp::Xor, "`^`"), false),
        BinOp::Shl(_) => (Arith(BinaryOp::Shl, "`<<`"), false),
        BinOp::Shr(_) => (Arith(BinaryOp::Shr, "`>>`"), false),
        BinOp::AddAssign(_) => (Arith(BinaryOp::Add, "`+=`"), true),
        BinOp::SubAssign(_) => (Arith(BinaryOp::Sub, "`-=`"), true),
        BinOp::MulAssign(_) => (Arith(BinaryOp::Mul, "`*=`"), true),
        BinOp::DivAssign(_) => (Arith(BinaryOp::Div, "`/=`"), true),
        BinOp::RemAssign(_) => (Arith(BinaryOp::Rem, "`%=`"), true),
        BinOp::BitAndAssign(_) => (Arith(BinaryOp::And, "`&=`"), true),
        BinOp::BitOrAssign(_) => (Arith(BinaryOp::Or, "`|=`"), true),
        BinOp::BitXorAssign(_) => (Arith(BinaryOp::Xor, "`^=`"), true),
        BinOp::ShlAssign(_) => (Arith(BinaryOp::Shl, "`<<=`"), true),
        BinOp::ShrAssign(_) => (Arith(BinaryOp::Shr, "`>>=`"), true),
        BinOp::Eq(_) => (Compare(CmpOp::Eq, "`==`"), false),
        BinOp::Ne(_) => (Compare(CmpOp::Ne, "`!=`"), false),
        BinOp::Lt(_) => (Compare(CmpOp::Lt, "`<`"), false),
        BinOp::Le(_) => (Compare(CmpOp::Le, "`<=`"), false),
        BinOp::Gt(_) => (Compare(CmpOp::Gt, "`>`"), false),
        BinOp::Ge(_) => (Compare(CmpOp::Ge, "`>=`"), false),
        BinOp::And(_) => (And, false),
        BinOp::Or(_) => (Or, false),
        _ => return None,
    })
}

impl Checker<'_> {
    /// `a + b * c - ..`: walks the left edge without recursion, so that long sums do not overflow the stack.
    pub(super) fn chain(&mut self, expr: &Expr) -> Checked<Val> {
        let mut spine = Vec::new();
        let mut leftmost = expr;
        while let Expr::Binary(binary) = leftmost {
            spine.push(binary);
            leftmost = &binary.left;
        }
        let (start, before) = (SourceRange::of(leftmost).start, self.stmts.len());
        // What this chain as a whole is compared with.
        let compared = self.compared.take();
        let dtypes =
            spine.last().and_then(|binary| self.option_comparison(binary).or_else(|| self.dtype_comparison(binary)));
        let mut left = match dtypes {
            Some(is) => {
                spine.pop();
                is
            }
            None => self.operand(leftmost),
        };
        for (outer, binary) in spine.iter().enumerate().rev() {
            let place = SourceRange::between(start, SourceRange::of(&binary.right).end);
            let sign = SourceRange::of_tokens(&binary.op);
            let above = outer.checked_sub(1).map(|outer| spine[outer]);
            let compared = match above.filter(|_| is_bitwise(&binary.op)) {
                Some(above) if is_comparison(&above.op) => {
                    let (right, first) = (SourceRange::of(&binary.right), SourceRange::of(first_of(&above.right)));
                    let meant = SourceRange::between(right.start, first.end);
                    Some(Comparison { meant, side: Side::Behind })
                }
                Some(_) => None,
                None => compared.filter(|_| is_bitwise(&binary.op)).map(|left| {
                    let meant = SourceRange::between(left.start, SourceRange::of(leftmost).end);
                    Comparison { meant, side: Side::InFront }
                }),
            };
            left = match operator(&binary.op) {
                Some((op @ (Operator::And | Operator::Or), false)) => {
                    let and = matches!(op, Operator::And);
                    self.short_circuit(and, left, before, &binary.right, place, sign)
                }
                Some((op, false)) => match (left, self.right_operand(binary, left)) {
                    (Ok(left), Ok(right)) => match compared {
                        Some(comparison) => self.compared_bits(op, (left, right), comparison, place, sign),
                        None => self.binary(op, left, right, place, sign),
                    },
                    (Err(e), _) | (_, Err(e)) => Err(e),
                },
                Some((_, true)) | None => {
                    let message = "an assignment as a value is not supported in kernels";
                    Err(self.report_help(sign, message, "write it as a statement of its own"))
                }
            };
        }
        left.map(Val::One)
    }

    /// The right side of an operator, which may be what a pointer is moved by, or an operand of a comparison.
    fn right_operand(&mut self, binary: &ExprBinary, left: Checked<Operand>) -> Checked<Operand> {
        let moves = matches!(binary.op, BinOp::Add(_) | BinOp::Sub(_))
            && left.is_ok_and(|left| matches!(self.ty(left).elem, VElem::Ptr(_)));
        let outside = self.in_offset;
        self.in_offset |= moves;
        let compares = is_comparison(&binary.op) && matches!(bare(&binary.right), Expr::Binary(_));
        let left = match bare(&binary.left) {
            Expr::Binary(left) if is_bitwise(&left.op) => &left.right,
            _ => &binary.left,
        };
        self.compared = compares.then(|| SourceRange::of(left));
        let right = self.operand(&binary.right);
        (self.in_offset, self.compared) = (outside, None);
        right
    }

    /// `x != y | c`, which is `x != (y | c)`. Where `y | c` is no sum of bits, the comparison was meant to come first.
    fn compared_bits(
        &mut self,
        op: Operator,
        (l, r): (Operand, Operand),
        comparison: Comparison,
        place: SourceRange,
        sign: SourceRange,
    ) -> Checked<Operand> {
        let [left, right] = [l, r].map(|operand| match self.ty(operand).elem {
            VElem::Data(dt) => self.types.known(dt),
            VElem::Ptr(_) => None,
        });
        let integer = |dt: Option<Dt>| dt.is_none_or(|dt| crate::types::admits(&self.func, dt, DTypeBound::Int));
        let (bits, truths) = (integer(left) && integer(right), left == right);
        let before = self.errors.list().len();
        let result = self.binary(op, l, r, place, sign);
        if result.is_err() && self.errors.list().len() == before + 1 && !bits && !truths {
            let help = self.parentheses((l, r), comparison, sign);
            self.errors.rehelp(help);
        }
        result
    }

    /// A binary operator on two values; `sign` is the operator's own place.
    pub(super) fn binary(
        &mut self,
        op: Operator,
        l: Operand,
        r: Operand,
        place: SourceRange,
        sign: SourceRange,
    ) -> Checked<Operand> {
        match op {
            Operator::Arith(op, what) => {
                let result = self.arith(op, what, l, r, place, sign)?;
                self.note_computed(op, [l, r], result, place).map(|()| result)
            }
            Operator::Compare(op, what) => self.compare(op, what, l, r, place, sign),
            Operator::And => self.arith(BinaryOp::And, "`&&`", l, r, place, sign),
            Operator::Or => self.arith(BinaryOp::Or, "`||`", l, r, place, sign),
        }
    }

    pub(super) fn arith(
        &mut self,
        op: BinaryOp,
        what: &str,
        l: Operand,
        r: Operand,
        place: SourceRange,
        sign: SourceRange,
    ) -> Checked<Operand> {
        let pointers = [l, r].map(|o| matches!(self.ty(o).elem, VElem::Ptr(_)));
        if pointers[0] || pointers[1] {
            return self.pointer_arith(op, what, l, r, place, sign);
        }
        if let Some(dim) = self.constexpr_arith(op, l, r, place)? {
            let [left, right] = [l, r].map(|operand| self.declared(operand));
            let declared = if counts(op) { left } else { left.and(right) };
            return Ok(Operand { node: self.constexpr(dim, declared, place), place });
        }
        let r = if counts(op) { self.count_of(r) } else { r };
        self.need_both(l, r, op.needs(), what)?;
        let dt = self.unify(l, r, what, sign)?;
        let shape = self.common_shape(&[l, r], what, sign)?;
        let args = [l, r].map(|o| self.expand(o.node, &shape, place)).to_vec();
        let ty = VTy { elem: VElem::Data(dt), shape };
        let node = self.op(Op::binary(op), args, ty, place);
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) && !matches!(self.types.declared(dt), Declared::As(_)) {
            self.note_shift(op, [l, r], node);
        }
        Ok(Operand { node, place })
    }

    /// Gives a shift of a constexpr its exact value, which shapes and constexpr arithmetic take. By itself it is shifted in
    /// its dtype.
    fn note_shift(&mut self, op: BinaryOp, [l, r]: [Operand; 2], node: NodeId) {
        let (Some(a), Some(b)) = (self.node(l.node).dim.clone(), self.node(r.node).dim.clone()) else { return };
        let literals = a.as_const().zip(b.as_const());
        if let Some((number, count)) = literals {
            self.literal_shifts.insert(node.0, (number, count));
        }
        self.nodes[node.0].dim = match op {
            BinaryOp::Shl => a.shl(&b).ok(),
            _ => literals.and_then(|(number, count)| fold_bits(op, number, count)).map(Dim::Const),
        };
    }

    /// The type that the constexprs of a value were declared with.
    pub(super) fn declared(&self, operand: Operand) -> Declared {
        match self.ty(operand).elem {
            VElem::Data(dt) => self.types.declared(dt),
            VElem::Ptr(_) => Declared::Several,
        }
    }

    /// A count, whose type says nothing of what is shifted.
    fn count_of(&mut self, count: Operand) -> Operand {
        match self.node(count.node).dim.clone() {
            Some(dim) => Operand { node: self.int(dim, count.place), ..count },
            None => count,
        }
    }

    /// What a constexpr shifts, and how far, where it is `1 << N`.
    pub(super) fn shift(&self, node: NodeId) -> Option<Shift> {
        let Kind::Op(VOp::Ready(Op::Elementwise(ElementwiseOp::Binary { op })), args) = &self.node(node).kind else {
            return None;
        };
        let [number, count] = args.as_slice() else { return None };
        Some(Shift { op: *op, number: self.node(*number).dim.clone()?, count: self.node(*count).dim.clone()? })
    }

    /// Arithmetic on constexprs that still adapt stays a constexpr.
    pub(super) fn constexpr_arith(
        &mut self,
        op: BinaryOp,
        l: Operand,
        r: Operand,
        place: SourceRange,
    ) -> Checked<Option<Dim>> {
        let (Some(a), Some(b)) = (self.node(l.node).dim.clone(), self.node(r.node).dim.clone()) else {
            return Ok(None);
        };
        let result = match op {
            BinaryOp::Add => a.add(&b),
            BinaryOp::Sub => a.sub(&b),
            BinaryOp::Mul => a.mul(&b),
            BinaryOp::Div => a.div(&b),
            BinaryOp::Rem => a.rem(&b),
            BinaryOp::Min => a.min_with(&b),
            BinaryOp::Max => a.max_with(&b),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr => {
                let (Some(a), Some(b)) = (a.as_const(), b.as_const()) else { return Ok(None) };
                // What is more is shifted in its dtype, which may lose bits.
                let exact = |number: &i64| match op {
                    BinaryOp::Shl => i8::try_from(*number).is_ok(),
                    BinaryOp::Shr => b < i64::from(i8::BITS) && !matches!(self.node(l.node).kind, Kind::Op(..)),
                    _ => true,
                };
                return Ok(fold_bits(op, a, b).filter(exact).map(Dim::Const));
            }
            BinaryOp::DivRn
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
            | BinaryOp::Math(_) => return Ok(None),
        };
        self.dim_result(result, place).map(Some)
    }

    /// The result of constexpr arithmetic.
    pub(super) fn dim_result(&mut self, result: Result<Dim, DimError>, place: SourceRange) -> Checked<Dim> {
        result.map_err(|error| {
            let message = match error {
                DimError::Overflow => "this constant does not fit 64 bits",
                DimError::DivisionByZero => "this divides by zero",
                DimError::TooLong => "this constant expression is too long",
            };
            self.report(place, message)
        })
    }

    fn compare(
        &mut self,
        op: CmpOp,
        what: &str,
        l: Operand,
        r: Operand,
        place: SourceRange,
        sign: SourceRange,
    ) -> Checked<Operand> {
        let (mut l, mut r) = (l, r);
        if let (Some(a), Some(b)) = (self.node(l.node).dim.clone(), self.node(r.node).dim.clone()) {
            if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
                let kind = Kind::Bool(holds(op, a, b));
                let node = Node { kind, ty: VTy::scalar(BOOL), dim: None, constexpr: true, place };
                return Ok(Operand { node: self.new_node(node), place });
            }
            [l, r] = [(l, a), (r, b)].map(|(o, dim)| {
                let ty = VTy::scalar(DType::I64);
                let node = Node { kind: Kind::Int(dim), ty, dim: None, constexpr: true, place: o.place };
                Operand { node: self.new_node(node), ..o }
            });
        }
        match (self.ty(l).elem, self.ty(r).elem) {
            (VElem::Ptr(a), VElem::Ptr(b)) if a == b => {}
            (VElem::Ptr(_), VElem::Ptr(_)) => {
                let message = format!("{what} compares pointers into one buffer only");
                return Err(self.report(sign, message));
            }
            (VElem::Data(_) | VElem::Ptr(_), VElem::Data(_) | VElem::Ptr(_)) => {
                self.need_both(l, r, op.needs(), what)?;
                self.unify(l, r, what, sign)?;
            }
        }
        let shape = self.common_shape(&[l, r], what, sign)?;
        let args = [l, r].map(|o| self.expand(o.node, &shape, place)).to_vec();
        let ty = VTy { elem: VElem::Data(BOOL), shape };
        Ok(Operand { node: self.op(Op::compare(op), args, ty, place), place })
    }

    fn pointer_arith(
        &mut self,
        op: BinaryOp,
        what: &str,
        l: Operand,
        r: Operand,
        place: SourceRange,
        sign: SourceRange,
    ) -> Checked<Operand> {
        let (pointer, offset) = match (self.ty(l).elem, self.ty(r).elem, op) {
            (VElem::Ptr(_), VElem::Data(_), BinaryOp::Add | BinaryOp::Sub) => (l, r),
            (VElem::Data(_), VElem::Ptr(_), BinaryOp::Add) => (r, l),
            _ => {
                let message = format!("{what} is not defined for {} and {}", self.show(l), self.show(r));
                let help = "pointers are moved by integers: `pointer + offsets`, `pointer - 1`; read them with `load`";
                return Err(self.report_help(sign, message, help));
            }
        };
        self.need(offset, Needs::Bound(DTypeBound::Int), "an offset of a pointer")?;
        let offset = if op == BinaryOp::Sub { self.negative_offset(offset)? } else { offset };
        let shape = self.common_shape(&[pointer, offset], what, sign)?;
        let args = [pointer, offset].map(|o| self.expand(o.node, &shape, place)).to_vec();
        let ty = self.ty(pointer).with_shape(shape);
        Ok(Operand { node: self.op(MemoryOp::AddPtr, args, ty, place), place })
    }

    /// Minus an offset, exactly: what is not a constexpr is widened to i64 first.
    fn negative_offset(&mut self, offset: Operand) -> Checked<Operand> {
        if self.node(offset.node).dim.is_some() {
            return self.negate(offset, offset.place);
        }
        let wide = self.cast(offset, Dt::Known(DType::I64), offset.place)?;
        let ty = self.ty(wide).clone();
        let node = self.op(Op::unary(UnaryOp::Neg), vec![wide.node], ty, offset.place);
        Ok(Operand { node, place: offset.place })
    }

    /// The operand as an integer scalar of a known dtype, for code that the checker writes itself.
    pub(super) fn typed_int(&mut self, value: i64, dt: DtRef, place: SourceRange) -> NodeId {
        let kind = Kind::Int(Dim::Const(value));
        self.new_node(Node { kind, ty: VTy::scalar(dt), dim: None, constexpr: true, place })
    }

    /// Whether a value is certainly no integer.
    pub(super) fn may_be_float(&self, dt: DtRef) -> bool {
        match self.types.resolve(dt) {
            DtRef::Fixed(dt) => crate::types::may_be(&self.func, dt, DTypeBound::Float),
            DtRef::Var(_) => self.types.class(dt) != Some(Class::Int),
        }
    }
}

/// A comparison that was meant to come before an operator on bits.
#[derive(Clone, Copy)]
struct Comparison {
    /// The tokens that were meant to be compared.
    meant: SourceRange,
    /// Where it stands.
    side: Side,
}

#[derive(Clone, Copy)]
enum Side {
    /// `x != y | c`
    InFront,
    /// `c & i >= 0`
    Behind,
}

impl Checker<'_> {
    /// ``put the comparison in parentheses: `(x != y) | c` ``
    fn parentheses(&self, (l, r): (Operand, Operand), comparison: Comparison, sign: SourceRange) -> Help {
        let texts = [comparison.meant, l.place, r.place, sign].map(|place| self.source.text(place));
        let [Some(meant), Some(left), Some(right), Some(sign)] = texts else {
            return "put the comparison in parentheses: `&`, `|` and `^` come before it".into();
        };
        let whole = match comparison.side {
            Side::InFront => format!("({meant}) {sign} {right}"),
            Side::Behind => format!("{left} {sign} ({meant})"),
        };
        let text = format!("`{sign}` comes before comparisons: put the comparison in parentheses: `{whole}`");
        Help { text, rewrites: vec![(comparison.meant, format!("({meant})"))] }
    }
}

/// The first operand of a chain of operators.
fn first_of(mut expr: &Expr) -> &Expr {
    while let Expr::Binary(binary) = bare(expr)
        && is_bitwise(&binary.op)
    {
        expr = &binary.left;
    }
    expr
}

fn is_comparison(op: &BinOp) -> bool {
    matches!(op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}

fn is_bitwise(op: &BinOp) -> bool {
    matches!(op, BinOp::BitAnd(_) | BinOp::BitOr(_) | BinOp::BitXor(_))
}

/// Whether the second operand counts by how much the first is shifted.
fn counts(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Shl | BinaryOp::Shr | BinaryOp::RotateLeft | BinaryOp::RotateRight)
}

fn fold_bits(op: BinaryOp, a: i64, b: i64) -> Option<i64> {
    let count = u32::try_from(b).ok().filter(|c| *c < 63);
    match op {
        BinaryOp::And => Some(a & b),
        BinaryOp::Or => Some(a | b),
        BinaryOp::Xor => Some(a ^ b),
        BinaryOp::Shl => count.and_then(|c| a.checked_mul(1i64 << c)),
        BinaryOp::Shr => count.map(|c| a >> c),
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Min
        | BinaryOp::Max
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
        | BinaryOp::Math(_) => None,
    }
}

fn holds(op: CmpOp, a: i64, b: i64) -> bool {
    match op {
        CmpOp::Eq => a == b,
        CmpOp::Ne => a != b,
        CmpOp::Lt => a < b,
        CmpOp::Le => a <= b,
        CmpOp::Gt => a > b,
        CmpOp::Ge => a >= b,
    }
}
