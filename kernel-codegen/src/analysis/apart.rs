//! Offsets that LLVM must not compute addresses of from each other.
//!
//! ```text
//! &x[k], &x[k + 1]        one address, and 4 bytes more
//! ```
//!
//! The code generator of LLVM 22 always does so (straight-line strength reduction): it subtracts offsets in the dtype that they had
//! before they were extended to the width of an address, and extends what is between them. Where one of the two wraps, which it
//! may, that is wrong by the whole range of the dtype: `k + 1` of an i8 is -128 where `k` is 127. It is then the other one, whose own
//! offset is right and has been checked, that leaves the buffer.
//!
//! Of 8 and 16 bits any two offsets may be such that are computed. Of 32 bits they have to be [`FAR`] apart, or in a buffer that ends
//! less than that below the 2^31 elements that such an offset reaches.

use kernel_core::ir::known::uniform_constant;
use kernel_core::ir::{
    BinaryOp, CreateOp, DType, Dim, ElementwiseOp, Func, Literal, MemoryOp, Op, OpId, RegionId, Regions, UnaryOp,
    ValueId,
};

/// How far apart offsets of 32 bits may be by the constants in them.
const FAR: u64 = 1 << 28;
/// How often a constant that is added in a loop counts: loops are unrolled by less.
const ITERATIONS: u64 = 64;

/// Per value, whether it is an offset whose addresses are to be computed by themselves.
pub(crate) fn apart(func: &Func) -> Vec<bool> {
    let mut moves = Moves { func, by_value: vec![Moved::default(); func.values.len()] };
    moves.region(func.body);
    let mut apart = vec![false; func.values.len()];
    for operation in &func.ops {
        if let (Op::Memory(MemoryOp::AddPtr), &[_, offset]) = (&operation.op, operation.operands.as_slice()) {
            apart[offset.index()] = moves.extended(offset).wraps;
        }
    }
    apart
}

/// What the constants in a value do.
#[derive(Clone, Copy, Default)]
struct Moved {
    /// How far they move it, at most. What is read or counted moves nothing.
    by: u64,
    /// Whether it is made of what may have wrapped, in a narrower dtype.
    wraps: bool,
}

impl Moved {
    fn by(by: u64) -> Moved {
        Moved { by, wraps: false }
    }

    /// Either of two values.
    fn or(self, other: Moved) -> Moved {
        Moved { by: self.by.max(other.by), wraps: self.wraps || other.wraps }
    }

    /// What is made of two values.
    fn and(self, other: Moved, by: impl Fn(u64, u64) -> u64) -> Moved {
        Moved { by: by(self.by, other.by), wraps: self.wraps || other.wraps }
    }
}

struct Moves<'f> {
    func: &'f Func,
    by_value: Vec<Moved>,
}

impl Moves<'_> {
    fn of(&self, value: ValueId) -> Moved {
        self.by_value[value.index()]
    }

    fn any(&self, values: &[ValueId]) -> Moved {
        values.iter().map(|&value| self.of(value)).fold(Moved::default(), Moved::or)
    }

    /// A value where it is extended to more bits. By zeros nothing is wrong.
    fn extended(&self, value: ValueId) -> Moved {
        let Moved { by, wraps } = self.of(value);
        let far = match self.func.ty(value).dtype() {
            Some(DType::I8 | DType::I16) => by > 0,
            Some(DType::I32) => by >= FAR,
            _ => false,
        };
        Moved { by, wraps: wraps || far }
    }

    fn region(&mut self, region: RegionId) {
        let func = self.func;
        for &id in &func.region(region).ops {
            self.operation(id);
        }
    }

    fn operation(&mut self, id: OpId) {
        let func = self.func;
        let operation = func.op(id);
        let moved = match operation.op.regions() {
            Regions::Straight => self.straight(id),
            Regions::Loop(_) => return self.iterated(id),
            Regions::Branch(_) | Regions::Apply(_) | Regions::Combine(_) | Regions::Concurrent => {
                let operands = self.any(&operation.operands);
                for &region in &operation.regions {
                    self.set(&func.region(region).args, operands);
                    self.region(region);
                }
                operation.regions.iter().map(|&region| self.any(func.yielded(region))).fold(operands, Moved::or)
            }
        };
        self.set(&operation.results, moved);
    }

    fn set(&mut self, values: &[ValueId], moved: Moved) {
        for &value in values {
            self.by_value[value.index()] = moved;
        }
    }

    /// A loop: what an iteration adds to its carried values, some iterations add several times.
    fn iterated(&mut self, id: OpId) {
        let func = self.func;
        let operation = func.op(id);
        let carried = operation.op.carried().unwrap_or(0).min(operation.operands.len());
        let (deciding, initial) = operation.operands.split_at(carried);
        let counter = match deciding {
            &[lo, _, step] => {
                self.of(lo).and(self.of(step), |lo, step| lo.saturating_add(step.saturating_mul(ITERATIONS)))
            }
            _ => Moved::default(),
        };
        let mut begins: Vec<Moved> = initial.iter().map(|&value| self.of(value)).collect();
        for _ in 0..2 {
            let mut ends = begins.clone();
            for &region in &operation.regions {
                let args = &func.region(region).args;
                let (own, args) = args.split_at(args.len().saturating_sub(begins.len()));
                self.set(own, counter);
                for (&arg, &begin) in args.iter().zip(&begins) {
                    self.set(&[arg], begin);
                }
                self.region(region);
                let yielded = func.yielded(region);
                let yielded = &yielded[yielded.len().saturating_sub(begins.len())..];
                for (end, &value) in ends.iter_mut().zip(yielded) {
                    *end = end.or(self.of(value));
                }
            }
            for (begin, end) in begins.iter_mut().zip(ends) {
                let added = end.by.saturating_sub(begin.by).saturating_mul(ITERATIONS);
                *begin = Moved { by: begin.by.saturating_add(added), wraps: end.wraps };
            }
        }
        for (&result, moved) in operation.results.iter().zip(begins) {
            self.set(&[result], moved);
        }
    }

    fn straight(&self, id: OpId) -> Moved {
        let operation = self.func.op(id);
        let all = self.any(&operation.operands);
        if let Op::Create(op) = &operation.op {
            created(op, all)
        } else if let Op::Elementwise(op) = &operation.op {
            let moved = self.elementwise(op, &operation.operands);
            let dtype = operation.results.first().and_then(|&result| self.func.ty(result).dtype());
            // What the launch or memory adds in so few bits wraps as well as a constant.
            let computes = matches!(op, ElementwiseOp::Binary { .. }) && matches!(dtype, Some(DType::I8 | DType::I16));
            if computes { moved.and(Moved::by(1), u64::max) } else { moved }
        } else if operation.op.touches_memory() {
            Moved::default()
        } else {
            all
        }
    }

    fn elementwise(&self, op: &ElementwiseOp, operands: &[ValueId]) -> Moved {
        let at = |index: usize| operands.get(index).map_or(Moved::default(), |&value| self.of(value));
        match op {
            ElementwiseOp::Binary { op } => self.binary(*op, operands),
            ElementwiseOp::Unary { op: UnaryOp::Not | UnaryOp::Neg } => at(0).and(Moved::by(1), u64::saturating_add),
            ElementwiseOp::Unary { .. } | ElementwiseOp::Bitcast { .. } => at(0),
            ElementwiseOp::Cast { .. } => operands.first().map_or(Moved::default(), |&value| self.extended(value)),
            ElementwiseOp::Select => at(1).or(at(2)),
            ElementwiseOp::Compare { .. } => Moved::default(),
            ElementwiseOp::Fma | ElementwiseOp::FloatInt { .. } => self.any(operands),
        }
    }

    fn binary(&self, op: BinaryOp, operands: &[ValueId]) -> Moved {
        let &[a, b] = operands else { return Moved { by: u64::MAX, wraps: true } };
        let (x, y) = (self.of(a), self.of(b));
        match op {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Xor
            | BinaryOp::Or
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::MinNan
            | BinaryOp::MaxNan
            | BinaryOp::SaturatingAdd
            | BinaryOp::SaturatingSub => x.and(y, u64::saturating_add),
            BinaryOp::Mul | BinaryOp::SaturatingMul => x.and(y, u64::saturating_mul),
            BinaryOp::Shl => match uniform_constant(self.func, b) {
                Some(Literal::Int(by)) => x.and(y, |x, _| x.saturating_mul(1 << (by & 63))),
                Some(Literal::Bool(_) | Literal::Float(_)) | None => x.and(y, |x, _| x),
            },
            // What these do to a constant in an operand, no difference shows.
            BinaryOp::And
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::Shr
            | BinaryOp::RotateLeft
            | BinaryOp::RotateRight
            | BinaryOp::Umulhi
            | BinaryOp::Mulhi
            | BinaryOp::DivRn
            | BinaryOp::CopySign
            | BinaryOp::NextAfter
            | BinaryOp::Math(_) => x.and(y, |x, _| x),
        }
    }
}

fn created(op: &CreateOp, scalar: Moved) -> Moved {
    let far = |dim: &Dim| dim.as_const().map_or(u64::MAX, i64::unsigned_abs);
    match op {
        CreateOp::Const { value: Literal::Int(value), .. } => {
            Moved::by(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX))
        }
        CreateOp::Const { value: Literal::Bool(_) | Literal::Float(_), .. } => Moved::default(),
        CreateOp::ConstExpr { .. } | CreateOp::Limit { .. } => Moved::by(u64::MAX),
        CreateOp::Arange { lo, hi } => Moved::by(far(lo).max(far(hi))),
        CreateOp::Splat { .. } => scalar,
        CreateOp::ProgramId { .. } | CreateOp::NumPrograms { .. } | CreateOp::Counter { .. } => Moved::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::apart;
    use kernel_core::text::parse;

    /// Whether addresses of `%o` are computed by themselves.
    fn by_itself(dtype: &str, body: &str) -> bool {
        let text = format!(
            "kernel k \"k.rs\" safe bound {{
               param %x x: ptr f32
               param %ks ks: ptr {dtype}
               param %n n: {dtype}
               %zero: {dtype} = const 0
               %i: i32[64] = arange {{lo = 0, hi = 64}}
               %lanes: {dtype}[64] = cast %i
               %kp: *ks[64] = splat %ks
               %ka: *ks[64] = add_ptr %kp, %i
               %k: {dtype}[64] = load %ka
               %ns: {dtype}[64] = splat %n
               {body}
               %xs: *x[64] = splat %x
               %p: *x[64] = add_ptr %xs, %o
               %v: f32[64] = load %p
               return
             }}"
        );
        let func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let offset = func.ops.iter().rev().find(|op| op.op.name() == "add_ptr").map(|op| op.operands[1]);
        apart(&func)[offset.expect("the last address").index()]
    }

    #[test]
    fn narrow_offsets_with_a_sign_are() {
        for (dtype, wanted) in
            [("i8", true), ("i16", true), ("i32", false), ("i64", false), ("u8", false), ("u16", false), ("u32", false)]
        {
            assert_eq!(by_itself(dtype, &format!("%o: {dtype}[64] = add %k, %lanes")), wanted, "{dtype}");
        }
    }

    /// An extension that is written is the same as that of the address.
    #[test]
    fn what_was_narrow_when_it_was_computed_is() {
        let widened = |dtype: &str, narrow: &str, wide: &str| {
            by_itself(dtype, &format!("{narrow}\n %w: i64[64] = cast %q\n %is: i64[64] = cast %i\n {wide}"))
        };
        let (one, sum) = ("%q: i8[64] = add %k, %lanes", "%o: i64[64] = add %w, %is");
        assert!(widened("i8", one, sum));
        assert!(widened("i8", one, "%o: i64[64] = mul %is, %w"));
        assert!(!widened("u8", "%q: u8[64] = add %k, %lanes", sum));
        assert!(!widened("i32", "%q: i32[64] = add %k, %lanes", sum));
        // What is only read and then widened is not computed in few bits.
        assert!(!by_itself("i8", "%w: i32[64] = cast %k\n %o: i32[64] = add %w, %i"));
        assert!(by_itself("i16", "%o: i16[64] = add %k, %ns"));
        assert!(!by_itself("i16", "%o: i16[64] = hint %k {kind = constant, n = 4, axis = 0}"));
    }

    #[test]
    fn offsets_of_32_bits_are_where_constants_move_them_far() {
        let constant = |c: i64| format!("%c: i32 = const {c}\n %cs: i32[64] = splat %c\n");
        let far = |body: &str| by_itself("i32", body);
        for (c, wanted) in [(i64::from(i32::MIN), true), (1 << 28, true), (-(1 << 28), true), ((1 << 28) - 65, false)] {
            for op in ["add", "sub", "xor"] {
                assert_eq!(far(&format!("{} %o: i32[64] = {op} %k, %cs", constant(c))), wanted, "{op} {c}");
            }
        }
        // Products of constants and of lanes, and shifts.
        let times = |c: i64| format!("{} %q: i32[64] = add %k, %lanes\n %o: i32[64] = mul %q, %cs", constant(c));
        assert!(!far(&times(4096)));
        assert!(far(&times(1 << 23)));
        assert!(far(&format!("{} %q: i32[64] = add %k, %lanes\n %o: i32[64] = shl %q, %cs", constant(23))));
        // What is read, masked, divided or multiplied by the launch's numbers is not moved by that.
        assert!(!far(&format!("{} %o: i32[64] = and %k, %cs", constant(i64::from(i32::MAX)))));
        assert!(!far("%q: i32[64] = mul %k, %ns\n %o: i32[64] = add %q, %lanes"));
    }

    #[test]
    fn loops_add_constants_several_times() {
        let by = |step: i64| {
            let body = format!(
                "%c: i32 = const {step}\n %cs: i32[64] = splat %c\n %one: i32 = const 1
                 %o: i32[64] = for %zero, %n, %one, %lanes (%j: i32, %a: i32[64]) {{
                   %b: i32[64] = add %a, %cs
                   yield %b
                 }}"
            );
            by_itself("i32", &body)
        };
        assert!(!by(65_536));
        assert!(by(1 << 22));
        // Where the counter ends says nothing.
        let counter = "%hi: i32 = const 2000000000\n %one: i32 = const 1
             %o: i32[64] = for %zero, %hi, %one, %lanes (%j: i32, %a: i32[64]) {
               %js: i32[64] = splat %j
               %b: i32[64] = add %js, %lanes
               yield %b
             }";
        assert!(!by_itself("i32", counter));
    }
}
