//! How many registers of a thread are alive at once in a placed kernel, where all of its elements meet.
//!
//! ```text
//! %x: f32[4096] = load %p                 ; 16 registers in 8 warps
//! %y: f32[4096] = load %q
//! %sum: f32 = reduce %x {axis = 0} ..     ; 16 alive: %x is used again, %y can be loaded later
//! %z: f32[4096] = sub %x, %y
//! ```
//!
//! A tile has a register for each element of a thread, and lives from where it is computed to its last use; through a
//! loop, if it is used in it and made before, or used behind it. ptxas computes elements one after the other, so that
//! a chain of elementwise operations needs few registers, whatever its tiles. What counts is what is alive where all
//! elements of a thread are needed before it goes on: at reductions, scans, conversions, products, waits, and where
//! loops and conditions begin. There a kernel needs these registers at the least; and some more, for addresses and
//! for what is being computed.
//!
//! Not everything has registers:
//! - numbers, masks and addresses that follow from program ids, ranges and parameters alone are computed where they are
//!   used, from a few registers: those of a thread differ by constants, which instructions contain;
//! - what is loaded, or computed from a load alone, is loaded where it is used first;
//! - operations that only rearrange the elements of a thread rename its registers;
//! - 16-bit floats lie in pairs; masks of data in predicates, which are packed while others are needed.
//!
//! Two operations need more than their values: scans, and divisions of integers. The analysis goes over the kernel
//! backwards, once, and into loops once more for what they use; it takes less than 0.2 ms in debug builds.

use kernel_core::ir::{
    BinaryOp, ControlOp, Cost, CreateOp, DType, Def, Elem, ElementwiseOp, Func, GpuOp, MemoryOp, Op, OpId, Operation,
    ParamId, ParamKind, RegionId, Regions, Span, TileOp, ValueId,
};
use kernel_core::layout::LayoutDim;

/// Bits of the widest access of a thread.
const VECTOR_BITS: u32 = 128;

/// Registers per element while integers are divided by a number known only at launch: reciprocals, estimates and
/// remainders of all elements of a thread at once. Measured: 8 elements divided by four numbers take 89 registers, 16
/// take 167.
const DIVISION: u32 = 6;

/// Registers of a scan beside its values: what lanes and warps have to combine.
const SCAN: u32 = 8;

/// The most registers that are alive at once, and where that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pressure {
    /// Registers of 32 bits per thread.
    pub(crate) registers: u32,
    /// The operation after which they are.
    pub(crate) span: Span,
}

/// The pressure of a placed kernel whose warps all run one program.
pub(crate) fn pressure(func: &Func) -> Pressure {
    let computed = computed_where_used(func);
    let mut walk = Walk {
        func,
        late: late(func, &computed),
        computed,
        live: vec![false; func.values.len()],
        made_live: Vec::new(),
        registers: 0,
        most: Pressure::default(),
    };
    walk.region(func.body);
    walk.most
}

/// Per value, whether it follows from program ids, ranges, constants and parameters alone.
fn computed_where_used(func: &Func) -> Vec<bool> {
    let mut simple = vec![false; func.values.len()];
    for param in &func.params {
        simple[param.value.index()] = true;
    }
    mark_simple(func, func.body, &mut simple);
    simple
}

fn mark_simple(func: &Func, region: RegionId, simple: &mut [bool]) {
    for &id in &func.region(region).ops {
        let operation = func.op(id);
        let from_simple = operation.operands.iter().all(|value| simple[value.index()]);
        let op = &operation.op;
        let is_check = matches!(op, Op::Memory(MemoryOp::CheckBounds { .. }));
        let is_simple = from_simple && (op.is_arithmetic() || is_check);
        for value in &operation.results {
            simple[value.index()] = is_simple;
        }
        if matches!(operation.op, Op::Control(ControlOp::For { .. })) {
            // The counter.
            if let Some(counter) = func.region(operation.regions[0]).args.first() {
                simple[counter.index()] = true;
            }
        }
        for &inner in &operation.regions {
            mark_simple(func, inner, simple);
        }
    }
}

/// Whether an operation needs all elements of a thread before any of its results is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meets {
    No,
    /// What is not its result is alive meanwhile.
    WithoutResults,
    /// So are its results.
    WithResults,
    /// So are its results, and as many values of other threads that they are combined with.
    WithPartners,
}

fn meets(op: &Op) -> Meets {
    match op.cost() {
        Cost::Free | Cost::Arithmetic | Cost::Memory => Meets::No,
        Cost::Exchange if matches!(op, Op::Control(ControlOp::Scan { .. }) | Op::Tile(TileOp::Sort { .. })) => {
            Meets::WithPartners
        }
        Cost::Wait if matches!(op, Op::Gpu(GpuOp::WgmmaWait { .. })) => Meets::WithResults,
        Cost::Product => Meets::WithResults,
        Cost::Exchange | Cost::Wait => Meets::WithoutResults,
        Cost::Control => match op.regions() {
            Regions::Straight => Meets::No,
            Regions::Loop(_) | Regions::Branch(_) | Regions::Combine(_) | Regions::Apply(_) | Regions::Concurrent => {
                Meets::WithoutResults
            }
        },
    }
}

struct Walk<'a> {
    func: &'a Func,
    /// Per value, whether it has no registers of its own.
    computed: Vec<bool>,
    /// Per value, before which operation it need not have been made; `None` if it has to be made where it is.
    late: Vec<Option<OpId>>,
    /// Per value, whether it is alive where the walk is.
    live: Vec<bool>,
    /// What became alive, in this order.
    made_live: Vec<ValueId>,
    /// Registers of what is alive.
    registers: u32,
    most: Pressure,
}

impl Walk<'_> {
    fn region(&mut self, region: RegionId) {
        self.operations(region);
        self.arguments(region);
    }

    fn operations(&mut self, region: RegionId) {
        let func = self.func;
        for &id in func.region(region).ops.iter().rev() {
            self.operation(id);
        }
    }

    fn arguments(&mut self, region: RegionId) {
        let func = self.func;
        for &arg in &func.region(region).args {
            self.end(arg);
        }
    }

    fn operation(&mut self, id: OpId) {
        let operation = self.func.op(id);
        let meets = meets(&operation.op);
        // What is left of the results here is held while the elements meet.
        match meets {
            Meets::WithResults => self.note(operation.span),
            Meets::WithPartners => {
                let results: u32 = operation.results.iter().map(|&value| registers(self.func, value)).sum();
                self.note_beside(results + SCAN, operation.span);
            }
            Meets::No | Meets::WithoutResults => {}
        }
        for &value in &operation.results {
            self.end(value);
        }
        if meets != Meets::No {
            self.note(operation.span);
        }
        if divides(self.func, operation) {
            self.note_beside(
                DIVISION * operation.results.iter().map(|&value| elements(self.func, value)).sum::<u32>(),
                operation.span,
            );
        }
        match operation.op.regions() {
            Regions::Loop(_) => self.repeated(id),
            Regions::Branch(_) | Regions::Concurrent => self.either(&operation.regions),
            // What combines or computes elements is about single ones.
            Regions::Combine(_) | Regions::Apply(_) | Regions::Straight => {}
        }
        for &value in &operation.operands {
            self.begin(value);
        }
        for &value in &operation.operands {
            let value = root(self.func, value);
            if self.late[value.index()] == Some(id) {
                self.end(value);
            }
        }
    }

    /// A loop: what it uses of what was made before is alive in all of it.
    fn repeated(&mut self, id: OpId) {
        let operation = self.func.op(id);
        for &region in &operation.regions {
            self.begin_outer(region);
        }
        for &region in operation.regions.iter().rev() {
            self.operations(region);
            self.note(operation.span);
            self.arguments(region);
        }
    }

    /// Regions of which one runs, or which run in warps of their own.
    fn either(&mut self, regions: &[RegionId]) {
        let mut used = Vec::new();
        for &region in regions {
            let before = self.made_live.len();
            self.region(region);
            for value in self.made_live.split_off(before) {
                if self.end(value) {
                    used.push(value);
                }
            }
        }
        for value in used {
            self.begin(value);
        }
    }

    /// Begins what a region uses, and the regions in it, of what is made outside; and what is made in it, which ends
    /// there.
    fn begin_outer(&mut self, region: RegionId) {
        let func = self.func;
        let mut inside = Vec::new();
        let mut used = Vec::new();
        collect(func, region, &mut inside, &mut used);
        inside.sort_unstable();
        for value in used {
            let root = root(self.func, value);
            if inside.binary_search(&root).is_err() {
                self.begin(root);
            }
        }
    }

    fn begin(&mut self, value: ValueId) {
        let value = root(self.func, value);
        if !self.computed[value.index()] && !std::mem::replace(&mut self.live[value.index()], true) {
            self.registers += registers(self.func, value);
            self.made_live.push(value);
        }
    }

    /// Whether it was alive.
    fn end(&mut self, value: ValueId) -> bool {
        let was = std::mem::replace(&mut self.live[value.index()], false);
        if was {
            self.registers -= registers(self.func, value);
        }
        was
    }

    fn note(&mut self, span: Span) {
        self.note_beside(0, span);
    }

    /// Notes that so many registers are in use beside those of values.
    fn note_beside(&mut self, more: u32, span: Span) {
        if self.registers + more > self.most.registers {
            self.most = Pressure { registers: self.registers + more, span };
        }
    }
}

/// The value whose registers a value has.
fn root(func: &Func, mut value: ValueId) -> ValueId {
    while let Def::Result(op, _) = func.value(value).def {
        match renamed(func.op(op)) {
            Some(source) => value = source,
            None => break,
        }
    }
    value
}

/// The one value whose registers an operation only gives other names.
fn renamed(operation: &Operation) -> Option<ValueId> {
    let &[source] = operation.element_sources() else { return None };
    (operation.op.cost() == Cost::Free).then_some(source)
}

/// Per value that could be made later than it is, its first user: what is loaded, or computed from nothing else that
/// is loaded, and used only from there on. Only in one region: what is loaded before a loop is not loaded in it.
fn late(func: &Func, computed: &[bool]) -> Vec<Option<OpId>> {
    let none = vec![None; func.values.len()];
    let mut search =
        Late { func, computed, first: vec![None; func.values.len()], uses: vec![0; func.values.len()], late: none };
    search.count(func.body);
    search.region(func.body);
    search.late
}

struct Late<'a> {
    func: &'a Func,
    computed: &'a [bool],
    /// Per value, its first user, and how often it is used.
    first: Vec<Option<(RegionId, OpId)>>,
    uses: Vec<u32>,
    late: Vec<Option<OpId>>,
}

impl Late<'_> {
    fn count(&mut self, region: RegionId) {
        for &id in &self.func.region(region).ops {
            let operation = self.func.op(id);
            if renamed(operation).is_none() {
                for &value in &operation.operands {
                    let value = root(self.func, value).index();
                    self.first[value].get_or_insert((region, id));
                    self.uses[value] += 1;
                }
            }
            for &inner in &operation.regions {
                self.count(inner);
            }
        }
    }

    fn region(&mut self, region: RegionId) {
        for &id in &self.func.region(region).ops {
            let operation = self.func.op(id);
            let from =
                |later: bool| {
                    operation.operands.iter().map(|&value| root(self.func, value).index()).all(|value| {
                        self.computed[value] || (later && self.late[value].is_some() && self.uses[value] == 1)
                    })
                };
            let op = &operation.op;
            // What shared memory holds are factors of products, a few at a time.
            let is_late = matches!(op, Op::Gpu(GpuOp::SharedLoad))
                || (matches!(op, Op::Memory(MemoryOp::Load { .. })) && from(false))
                || (matches!(op, Op::Elementwise(_)) && from(true));
            for &value in operation.results.iter().filter(|_| is_late) {
                let user = self.first[value.index()].filter(|&(user_region, _)| user_region == region);
                self.late[value.index()] = user.map(|(_, user)| user);
            }
            for &inner in &operation.regions {
                self.region(inner);
            }
        }
    }
}

/// What is made in a region and used in it, with the regions in it.
fn collect(func: &Func, region: RegionId, inside: &mut Vec<ValueId>, used: &mut Vec<ValueId>) {
    inside.extend(&func.region(region).args);
    for &id in &func.region(region).ops {
        let operation = func.op(id);
        inside.extend(&operation.results);
        used.extend(&operation.operands);
        for &inner in &operation.regions {
            collect(func, inner, inside, used);
        }
    }
}

/// Bits of an element of a buffer.
fn element_bits(func: &Func, param: ParamId) -> Option<u32> {
    match func.param(param).kind {
        ParamKind::Ptr { dt, .. } => dt.known().map(|dtype| dtype.bits().clamp(8, VECTOR_BITS)),
        _ => None,
    }
}

/// Whether this divides integers of tiles by a value that is not a constant.
fn divides(func: &Func, operation: &Operation) -> bool {
    let Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Div | BinaryOp::Rem }) = operation.op else {
        return false;
    };
    let &[value, by] = operation.operands.as_slice() else { return false };
    let by = func.def_op(root(func, by)).map(|operation| &operation.op);
    func.ty(value).dtype().is_some_and(DType::is_int) && !matches!(by, Some(Op::Create(CreateOp::Const { .. })))
}

/// Registers of 32 bits per thread that hold a value.
fn registers(func: &Func, value: ValueId) -> u32 {
    let count = elements(func, value);
    match func.ty(value).elem {
        // Of elements side by side, as many as an access of 16 bytes takes have one address.
        Elem::Ptr(param) => 2 * count.div_ceil(element_bits(func, param).map_or(1, |bits| VECTOR_BITS / bits)),
        Elem::Desc(_) | Elem::Token | Elem::Shared(_) | Elem::Barrier => 0,
        Elem::Data(_) => match func.ty(value).dtype() {
            Some(DType::Bool) => count.div_ceil(8),
            Some(DType::F16 | DType::BF16) => count.div_ceil(2),
            Some(dtype) => count * dtype.bits().div_ceil(32),
            None => 0,
        },
    }
}

/// Elements of a value that a thread holds, each once.
fn elements(func: &Func, value: ValueId) -> u32 {
    // Bases that move nothing repeat registers.
    func.value(value).layout.map_or(1, |layout| {
        let columns = func.layouts[layout.index()].columns(LayoutDim::Register);
        1 << columns.iter().filter(|&&column| column != 0).count()
    })
}
