//! What passes ask of operations that they need not know by name, answered by the op table.
//!
//! A question belongs here if several passes ask it, or if the answer for an operation that is added later must not be
//! forgotten. The facts themselves stand in the rows of [`super::ops`].

use super::ids::{RegionId, ValueId};
use super::ops::{ControlOp, CreateOp, DotOp, GpuOp, MemoryOp, Op, Operation};
use super::ptx::InlinePtx;
use super::table::{Cost, Does, Elements, Regions, Threads, Touched};

impl Op {
    /// Where the elements of the results come from.
    pub fn elements(&self) -> Elements {
        self.row().elements
    }

    /// What it costs, without its regions.
    pub fn cost(&self) -> Cost {
        self.row().cost
    }

    /// Whether all threads have to run it at a time.
    pub fn is_together(&self) -> bool {
        self.row().threads == Threads::Together
    }

    /// What it does with its regions.
    pub fn regions(&self) -> Regions {
        self.row().regions
    }

    /// What it does besides computing its results.
    pub fn does(&self) -> &'static [Does] {
        // What a text in PTX does, an attribute says.
        match self.ptx() {
            Some(ptx) if !ptx.pure => &[Does::Orders],
            Some(_) | None => self.row().does,
        }
    }

    /// The PTX that computes it, if the kernel has written some.
    pub fn ptx(&self) -> Option<&InlinePtx> {
        if let Op::Control(ControlOp::Map { ptx }) = self { ptx.as_ref() } else { None }
    }

    /// Whether it runs a region for each element.
    pub fn applies(&self) -> bool {
        matches!(self.regions(), Regions::Apply(_))
    }

    /// Whether this ends a region.
    pub fn is_terminator(&self) -> bool {
        matches!(self, Op::Control(ControlOp::Yield | ControlOp::Return))
    }

    /// Whether it stands for bytes of shared memory that others use by its result.
    pub fn allocates_shared(&self) -> bool {
        matches!(self, Op::Gpu(GpuOp::SharedAlloc { .. } | GpuOp::MbarrierAlloc { .. }))
    }

    /// Whether its threads may pass each other values through shared memory of its own.
    pub fn may_exchange(&self) -> bool {
        let changes = matches!(self, Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }));
        let reads = matches!(self, Op::Memory(MemoryOp::Load { .. }));
        let looks = matches!(self, Op::Create(CreateOp::Counter { .. }));
        looks || self.cost() == Cost::Exchange || changes || reads || matches!(self, Op::Dot(DotOp::Dot { .. }))
    }

    /// Whether its regions run again and again.
    pub fn is_loop(&self) -> bool {
        matches!(self.regions(), Regions::Loop(_))
    }

    /// Whether one of its regions runs, or each of them again and again, in the place of the operation.
    pub fn is_loop_or_branch(&self) -> bool {
        matches!(self.regions(), Regions::Loop(_) | Regions::Branch(_))
    }

    /// Whether a matrix product may still be writing the operand at that position: it is added to, waited for, or only
    /// handed on. No other operand may be in flight.
    pub fn takes_in_flight(&self, operand: usize) -> bool {
        if let Op::Gpu(GpuOp::Wgmma { .. }) = self {
            return self.accumulator() == Some(operand);
        }
        let waits = matches!(self, Op::Gpu(GpuOp::WgmmaWait { .. }));
        let yields = matches!(self, Op::Control(ControlOp::Yield));
        waits || yields || self.carried().is_some_and(|first| operand >= first)
    }

    /// Whether it combines elements with a region: a reduction or a scan.
    pub fn combines(&self) -> bool {
        matches!(self.regions(), Regions::Combine(_))
    }

    /// Whether it is a matrix product, asynchronous or not.
    pub fn multiplies(&self) -> bool {
        self.cost() == Cost::Product
    }

    /// Whether it touches a buffer, shared memory, or what is in flight.
    pub fn touches_memory(&self) -> bool {
        self.does().iter().any(|does| match does {
            Does::Promises | Does::Reports | Does::Observes | Does::Ends => false,
            Does::Orders | Does::Reads(_) | Does::Writes(_) | Does::Updates(_) => true,
        })
    }

    /// Whether it touches a buffer, and whether it writes there.
    pub fn buffer_access(&self) -> Option<bool> {
        self.does().iter().find_map(|does| match does {
            Does::Reads(Touched::Buffer(_)) => Some(false),
            Does::Writes(Touched::Buffer(_)) | Does::Updates(Touched::Buffer(_)) => Some(true),
            Does::Promises
            | Does::Reports
            | Does::Observes
            | Does::Ends
            | Does::Orders
            | Does::Reads(Touched::Shared | Touched::Barriers)
            | Does::Writes(Touched::Shared | Touched::Barriers)
            | Does::Updates(Touched::Shared | Touched::Barriers) => None,
        })
    }

    /// Whether it does nothing but compute its results.
    pub fn is_pure(&self) -> bool {
        self.regions() == Regions::Straight && self.does().is_empty()
    }

    /// Whether its results follow from its operands and attributes, whenever and however often it runs: it has no
    /// regions and touches no memory. It may make a promise, which is the same each time.
    pub fn is_function(&self) -> bool {
        self.regions() == Regions::Straight && self.does().iter().all(|does| *does == Does::Promises)
    }

    /// Whether it computes each element of its result from those of its operands in the same place, and does nothing
    /// else.
    pub fn is_elementwise(&self) -> bool {
        self.elements() == Elements::Each && self.is_pure()
    }

    /// Whether it computes elements without moving any, each for itself, and does nothing else: constants, ranges and
    /// repeated scalars, and what is done element by element.
    pub fn is_local(&self) -> bool {
        match self.elements() {
            Elements::Made | Elements::Each | Elements::Repeated(_) => self.is_pure(),
            Elements::Moved(_) | Elements::Joined | Elements::Yielded | Elements::Other => false,
        }
    }

    /// Whether it computes values of the launch, of constants and of its operands by itself: a function of elements,
    /// moved or not, but not of whole tiles as a product is, and no view of memory.
    pub fn is_arithmetic(&self) -> bool {
        match self.elements() {
            Elements::Made | Elements::Each | Elements::Repeated(_) | Elements::Moved(_) | Elements::Joined => {
                self.is_function()
            }
            Elements::Yielded | Elements::Other => false,
        }
    }

    /// The position of the operand that masks its accesses, if it can have one.
    pub fn mask(&self) -> Option<usize> {
        self.row().position("mask")
    }

    /// The position of the operand that a product is added to.
    pub fn accumulator(&self) -> Option<usize> {
        self.row().position("acc")
    }

    /// The position of the first value that a loop carries; `None` of everything else.
    pub fn carried(&self) -> Option<usize> {
        self.row().position("carried")
    }
}

impl Operation {
    /// The one operand whose elements the result has: moved, or with others left out. `None` of every other operation,
    /// of one whose result has elements of several operands, and of a scalar repeated.
    pub fn moved_operand(&self) -> Option<ValueId> {
        match self.op.elements() {
            Elements::Moved(from) => self.operands.get(usize::from(from)).copied(),
            Elements::Made
            | Elements::Each
            | Elements::Repeated(_)
            | Elements::Joined
            | Elements::Yielded
            | Elements::Other => None,
        }
    }

    /// The operands that decide which of its regions run, and how often: bounds and conditions.
    pub fn deciding(&self) -> &[ValueId] {
        match self.op.regions() {
            Regions::Loop(_) => &self.operands[..self.op.carried().unwrap_or(self.operands.len())],
            Regions::Branch(_) => &self.operands,
            Regions::Straight | Regions::Combine(_) | Regions::Apply(_) | Regions::Concurrent => &[],
        }
    }

    /// The region that yields whether a loop goes on, if it has one.
    pub fn condition_region(&self) -> Option<RegionId> {
        match self.op.regions() {
            Regions::Loop(2) => self.regions.first().copied(),
            Regions::Straight
            | Regions::Loop(_)
            | Regions::Branch(_)
            | Regions::Combine(_)
            | Regions::Apply(_)
            | Regions::Concurrent => None,
        }
    }

    /// The operands that alone decide the elements of the result, where these are operands' elements: one that is
    /// moved, a scalar that is repeated, or several that are joined. Empty of every other operation.
    pub fn element_sources(&self) -> &[ValueId] {
        match self.op.elements() {
            Elements::Moved(from) | Elements::Repeated(from) => {
                self.operands.get(usize::from(from)..).map_or(&[], |rest| &rest[..rest.len().min(1)])
            }
            Elements::Joined => &self.operands,
            Elements::Made | Elements::Each | Elements::Yielded | Elements::Other => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Given, OpRow, view};
    use crate::text::parse;

    fn row(mnemonic: &str) -> &'static OpRow {
        Op::rows().find(|row| row.mnemonic == mnemonic).unwrap()
    }

    #[test]
    fn rows_agree_with_themselves() {
        for row in Op::rows() {
            let name = row.mnemonic;
            let order = |given: Given| match given {
                Given::One => 0,
                Given::Optional => 1,
                Given::Many => 2,
                Given::No => panic!("`{name}`: an operand that is never given"),
            };
            let given: Vec<usize> = row.operands.iter().map(|operand| order(operand.given)).collect();
            assert!(given.is_sorted(), "`{name}`: operands may be left out from behind");
            let many = given.iter().filter(|&&given| given == 2).count();
            assert!(many == 0 || (many == 1 && !given.contains(&1)), "`{name}`: which operands are there is open");
            let computes = !matches!(row.elements, Elements::Each | Elements::Other);
            assert!(row.results != Given::No || !computes, "`{name}`: elements of no result");
            let combines = matches!(row.regions, Regions::Combine(_));
            let yields = matches!(row.regions, Regions::Loop(_) | Regions::Branch(_)) || combines;
            assert_eq!(row.elements == Elements::Yielded, yields, "`{name}`: results of regions");
            assert!(
                !combines || row.threads == Threads::Together,
                "`{name}`: threads meet where elements are combined"
            );
            assert!(row.cost != Cost::Free || row.does.iter().all(|does| *does == Does::Promises), "`{name}`: free");
        }
    }

    /// The documentation of a row begins with its operands, where it names them.
    #[test]
    fn rows_are_documented_as_they_are() {
        for row in Op::rows() {
            let Some(written) = row.doc.trim().strip_prefix('`').and_then(|doc| doc.split('`').next()) else {
                continue;
            };
            // Some say what shape the operands have.
            if written.starts_with('(') && !written.contains("[..") {
                let names = |text: &str| text.matches([',', '[']).count();
                assert_eq!(names(written), names(&row.signature()), "`{}`: {written}", row.mnemonic);
            }
        }
    }

    #[test]
    fn operands_are_counted_and_named() {
        let load = row("load");
        assert_eq!(load.signature(), "(pointer [, mask [, other]])");
        assert!(!load.admits(0) && load.admits(1) && load.admits(3) && !load.admits(4));
        let carried = row("for");
        assert_eq!(carried.signature(), "(lo, hi, step, carried...)");
        assert!(!carried.admits(2) && carried.admits(3) && carried.admits(9));
        let func = parse(
            "kernel k \"k.rs\" unsafe bound {
             param %x x: ptr f32
             %m: bool = const true
             %v: f32 = load %x, %m
             return
             }",
        );
        let func = func.unwrap();
        let operation = func.op(func.region(func.body).ops[1]);
        let load = view::Load::of(operation).unwrap();
        assert_eq!(
            (load.pointer, load.mask, load.other),
            (func.params[0].value, operation.operands.get(1).copied(), None)
        );
        assert_eq!(operation.op.mask(), Some(1));
        assert!(view::Store::of(operation).is_none());
    }

    #[test]
    fn elements_are_followed_to_one_operand_only_where_all_are_its() {
        assert_eq!(row("permute").elements, Elements::Moved(0));
        assert_eq!(row("splat").elements, Elements::Repeated(0));
        assert_eq!(row("join").elements, Elements::Joined);
        let func = parse(
            "kernel k \"k.rs\" unsafe bound {
             %0: i32 = const 0
             %1: i32[4] = splat %0
             %2: i32[4] = arange {lo = 0, hi = 4}
             %3: i32[4, 2] = join %1, %2
             %4: i32[2, 4] = permute %3 {perm = [1, 0]}
             return
             }",
        );
        let func = func.unwrap();
        let at = |index: usize| func.op(func.region(func.body).ops[index]);
        assert_eq!((at(1).moved_operand(), at(1).element_sources()), (None, at(1).operands.as_slice()));
        assert_eq!((at(3).moved_operand(), at(3).element_sources()), (None, at(3).operands.as_slice()));
        assert_eq!(at(4).moved_operand(), at(4).operands.first().copied());
    }
}
