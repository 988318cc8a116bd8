//! Which loads need no value in the lanes that their mask leaves out.
//!
//! A lane that a mask leaves out reads zero, or `other`, which costs an instruction per register to provide. Mostly
//! nobody can tell: what is computed lane by lane from such a load, and stored under the same mask, is never written.
//!
//! ```text
//! %14: f32[1024] = load %13, %11          ; whatever the registers hold, where %11 is false
//! %18: f32[1024] = add %14, %17
//! store %20, %18, %11                     ; the only thing made of it
//! ```
//!
//! No operation on single lanes traps or touches memory, so that any bits will do.
//!
//! Only kernels of elementwise operations without loops and branches gain. To ptxas, a register that is written under a
//! predicate alone has been alive since the kernel began: behind a reduction or in a loop that costs more registers
//! than the instruction is worth (a layer norm of 4096 columns spilled). The same goes for kernels that compute much,
//! such as dropout, which needed ten registers more: only a few plain instructions may stand beside
//! the accesses. And it goes for many loads at once: a sum of two vectors with 32 loaded registers per thread took 43
//! instead of 40 registers, which is a program less per multiprocessor, and 1 to 3 % of the time.

use kernel_core::ir::{BinaryOp, ControlOp, Cost, ElementwiseOp, Func, Op, OpId, Operation, UnaryOp, ValueId, view};

use crate::occupancy::loaded;

/// Where the lanes of a value can be seen from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nothing uses the value.
    Nowhere,
    /// Only through stores under this mask.
    Under(ValueId),
    /// Perhaps in all lanes.
    Everywhere,
}

impl Seen {
    fn or(self, other: Seen) -> Seen {
        match (self, other) {
            (Seen::Nowhere, seen) | (seen, Seen::Nowhere) => seen,
            (Seen::Under(a), Seen::Under(b)) if a == b => self,
            (Seen::Under(_) | Seen::Everywhere, Seen::Under(_) | Seen::Everywhere) => Seen::Everywhere,
        }
    }
}

/// Per value, whether it is loaded under a mask and nobody sees what it has where the mask is false.
pub(crate) fn undef_lanes(func: &Func) -> Vec<bool> {
    let nothing = vec![false; func.values.len()];
    if !is_simple(func) {
        return nothing;
    }
    let mut walk = Walk { seen: vec![Seen::Nowhere; func.values.len()], unseen: nothing };
    // Backwards: users come before what they use.
    for &id in func.region(func.body).ops.iter().rev() {
        walk.operation(func.op(id));
    }
    walk.unseen
}

/// Elementwise operations, those of addresses included, in a kernel that computes little.
const FEW: usize = 24;

/// Registers that a thread loads: with so many, ptxas takes none more than if all of them were set before.
const FEW_LOADED: u32 = 16;

/// Whether a kernel is a few operations through which each thread runs once, for itself.
fn is_simple(func: &Func) -> bool {
    let ops = &func.region(func.body).ops;
    let computed = ops.iter().filter(|&&id| matches!(func.op(id).op, Op::Elementwise(_))).count();
    let plain = |id: OpId| {
        let op = &func.op(id).op;
        if let Op::Elementwise(op) = op {
            return is_plain(op);
        }
        *op == Op::Control(ControlOp::Return) || (op.cost() <= Cost::Memory && !op.is_together() && !op.applies())
    };
    computed <= FEW && loaded(func, func.body) <= FEW_LOADED && ops.iter().all(|&id| plain(id))
}

/// Whether an operation is an instruction or two on each element.
fn is_plain(op: &ElementwiseOp) -> bool {
    match op {
        ElementwiseOp::Unary { op } => matches!(op, UnaryOp::Neg | UnaryOp::Not | UnaryOp::Abs),
        ElementwiseOp::Binary { op } => {
            !matches!(op, BinaryOp::Div | BinaryOp::Rem | BinaryOp::DivRn | BinaryOp::Math(_))
        }
        ElementwiseOp::FloatInt { .. } => false,
        ElementwiseOp::Compare { .. }
        | ElementwiseOp::Select
        | ElementwiseOp::Fma
        | ElementwiseOp::Cast { .. }
        | ElementwiseOp::Bitcast { .. } => true,
    }
}

struct Walk {
    /// Per value, by the operations behind.
    seen: Vec<Seen>,
    unseen: Vec<bool>,
}

impl Walk {
    fn operation(&mut self, operation: &Operation) {
        if let Op::Elementwise(_) = operation.op {
            let seen = self.seen[operation.results[0].index()];
            return self.use_all(&operation.operands, seen);
        }
        if let Some(view::Store { pointer, value, mask, .. }) = view::Store::of(operation) {
            self.use_all(&[value], mask.map_or(Seen::Everywhere, Seen::Under));
            self.use_all(&[pointer], Seen::Everywhere);
            return self.use_all(mask.as_slice(), Seen::Everywhere);
        }
        if let Some(view::Load { mask, .. }) = view::Load::of(operation) {
            let result = operation.results[0].index();
            self.unseen[result] = mask.is_some_and(|mask| match self.seen[result] {
                Seen::Nowhere => true,
                Seen::Under(seen) => seen == mask,
                Seen::Everywhere => false,
            });
        }
        // Whatever else uses a value may show all of it.
        self.use_all(&operation.operands, Seen::Everywhere);
    }

    fn use_all(&mut self, values: &[ValueId], seen: Seen) {
        for value in values {
            let known = &mut self.seen[value.index()];
            *known = known.or(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_core::text::parse;

    /// The loads of a kernel, by whether their lanes are unseen.
    fn loads(body: &str) -> Vec<bool> {
        let text = format!(
            "kernel k \"k.rs\" safe bound {{\n\
             param %0 x: ptr f32 @1:1+1\nparam %1 out: ptr_mut f32 @1:1+1\nparam %2 n: i32 @1:1+1\n\
             %3: i32[8] = arange {{lo = 0, hi = 8}} @1:1+1\n%4: i32[8] = splat %2 @1:1+1\n\
             %5: bool[8] = cmp.lt %3, %4 @1:1+1\n%6: bool[8] = cmp.le %3, %4 @1:1+1\n\
             %7: *x[8] = splat %0 @1:1+1\n%8: *x[8] = add_ptr %7, %3 @1:1+1\n\
             %9: *out[8] = splat %1 @1:1+1\n%10: *out[8] = add_ptr %9, %3 @1:1+1\n{body}\nreturn @1:1+1\n}}\n"
        );
        let func = parse(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
        let unseen = undef_lanes(&func);
        let is_load = |op: &&Operation| matches!(op.op, Op::Memory(kernel_core::ir::MemoryOp::Load { .. }));
        func.ops.iter().filter(is_load).map(|op| unseen[op.results[0].index()]).collect()
    }

    #[test]
    fn lanes_are_unseen_that_only_stores_under_the_same_mask_could_show() {
        let load = "%11: f32[8] = load %8, %5 @1:1+1\n%12: f32[8] = mul %11, %11 @1:1+1\n";
        let body = |rest: &str| format!("{load}{rest}");
        assert_eq!(loads(&body("store %10, %12, %5 @1:1+1")), [true]);
        assert_eq!(loads(&body("store %10, %12, %5 @1:1+1\nstore %10, %11, %5 @1:1+1")), [true]);
        assert_eq!(loads(load), [true], "nothing is stored");
        assert_eq!(loads(&body("store %10, %12, %6 @1:1+1")), [false], "another mask");
        assert_eq!(loads(&body("store %10, %12, %5 @1:1+1\nstore %10, %11, %6 @1:1+1")), [false], "two masks");
        assert_eq!(loads(&body("store %10, %12 @1:1+1")), [false], "no mask");
    }

    #[test]
    fn kernels_that_branch_or_compute_much_keep_all_lanes() {
        let body = "%11: f32[8] = load %8, %5 @1:1+1\nstore %10, %11, %5 @1:1+1\n";
        assert_eq!(loads(body), [true]);
        let branch = "%12: bool = const true\nif %12 { yield } else { yield }";
        assert_eq!(loads(&format!("{body}{branch}")), [false]);
        let sine = "%11: f32[8] = load %8, %5\n%12: f32[8] = sin %11\nstore %10, %12, %5";
        assert_eq!((loads(sine), loads(&sine.replace("sin", "neg"))), (vec![false], vec![true]));
        let map = "%12: f32[8] = load %8, %6\n%13: f32[8] = map %12 (%14: f32) { yield %14 }\nstore %10, %13, %6";
        assert_eq!(loads(&format!("{body}{map}")), [false, false], "a region may be long");
        let sums = |n: usize| (0..n).map(|i| format!("%{}: f32[8] = add %11, %11\n", 12 + i)).collect::<String>();
        assert_eq!(
            (loads(&format!("{body}{}", sums(FEW - 2))), loads(&format!("{body}{}", sums(FEW - 1)))),
            (vec![true], vec![false])
        );
    }

    #[test]
    fn lanes_are_seen_by_what_is_not_elementwise() {
        let load = "%11: i32[8] = bitcast %12 {to = i32} @1:1+1";
        let seen = format!(
            "%12: f32[8] = load %8, %5 @1:1+1\n{load}\n%13: *x[8] = add_ptr %7, %11 @1:1+1\n\
             %14: f32[8] = load %13, %5 @1:1+1\nstore %10, %14, %5 @1:1+1"
        );
        assert_eq!(loads(&seen), [false, true], "addresses are used in all lanes");
        assert_eq!(loads("%11: f32[8] = load %8 @1:1+1\nstore %10, %11, %5 @1:1+1"), [false], "no mask");
    }
}
