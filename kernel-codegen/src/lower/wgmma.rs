//! Matrix products by `wgmma`: four warps multiply tiles in shared memory, asynchronously.
//!
//! ```text
//! wgmma.fence                            registers that the instructions read or write are settled
//! for each 64 rows, N columns, 32 bytes of K:
//!   wgmma.mma_async  {accumulator}, descriptor of A or {registers of A}, descriptor of B
//! wgmma.commit_group
//! ```
//!
//! The accumulator stays in its bank, registers with names that stand in the text of each instruction
//! ([`super::accumulators`]). One of zeros is not put there: the first instruction of a tile overwrites its registers.
//!
//! A descriptor is a constant, plus the start of the operand's tile. The number of the warp group is read from the
//! first lane of the warp, which tells ptxas that it is the same in all of them: descriptors are then in uniform
//! registers.

use std::collections::BTreeMap;

use kernel_core::edit::walk_region;
use kernel_core::ir::{
    BankId, CmpOp, CreateOp, Elem, Func, GpuOp, GroupPart, Literal, Op, Operation, RegionId, ValueId,
};
use kernel_core::layout::{GroupParts, LayoutDim, LinearForm, WgmmaOperand, group_parts, wgmma_columns, wgmma_operand};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::IntValue;

use super::accumulators::bank_register;
use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::shape::register_coordinates;
use super::{Lower, Result};
use crate::analysis::beside::computed_beside;
use crate::dot::{GROUP_ROWS, Kind, product_kind};
use crate::error::CodegenError;
use kernel_core::ir::known::constant;

/// The rows between the two halves of a fragment.
pub(super) const HALF_ROWS: u32 = 8;
/// The bytes of a word of a fragment.
pub(super) const WORD_BYTES: u32 = 4;
/// Registers that an instruction takes beside its sums, as ptxas counts them.
const BESIDE_SUMS: u32 = 30;
/// The shift of addresses in descriptors.
const ADDRESS_SHIFT: i32 = 4;

/// An operand in shared memory.
struct Described<'ctx> {
    operand: WgmmaOperand,
    /// The descriptor of the warp group's first tile.
    first: IntValue<'ctx>,
}

/// Where the instructions find A.
enum Left<'ctx> {
    Shared(Described<'ctx>),
    Registers(LeftWords<'ctx>),
}

/// The words of an A in registers, by the coordinates of their first element in the first thread.
pub(super) type LeftWords<'ctx> = BTreeMap<Vec<u32>, Value<'ctx>>;

/// What one instruction multiplies.
struct Factors<'ctx> {
    /// The descriptor of A's part, or the words of its fragment.
    left: Vec<Value<'ctx>>,
    /// The descriptor of B's part.
    right: IntValue<'ctx>,
    /// Whether they are added to the accumulator.
    adds: Adds<'ctx>,
}

/// Whether an instruction adds to its accumulator.
#[derive(Clone, Copy)]
enum Adds<'ctx> {
    Always,
    /// The accumulator is zero, so the instruction overwrites it.
    Never,
    If(IntValue<'ctx>),
}

impl<'ctx> Adds<'ctx> {
    /// As an operand of the instruction, of which `place` is the number if it is a value.
    fn operand(self, place: usize) -> String {
        match self {
            Adds::Always => "1".to_string(),
            Adds::Never => "0".to_string(),
            Adds::If(_) => format!("${place}"),
        }
    }

    fn value(self) -> Option<IntValue<'ctx>> {
        match self {
            Adds::Always | Adds::Never => None,
            Adds::If(value) => Some(value),
        }
    }
}

/// Which elements along K the instructions of a product multiply.
struct Steps {
    /// How many in a row.
    depth: u32,
    /// For each bit of the warp's number, the element with which its warp group begins.
    starts: Vec<u32>,
    /// The bits in which the first element of each row differs from that.
    others: Vec<u32>,
}

impl Steps {
    fn of(parts: &GroupParts, part: GroupPart) -> Steps {
        let others = match part {
            GroupPart::Whole | GroupPart::Own => vec![0],
            GroupPart::Others => (1..parts.count()).map(|other| other * parts.extent).collect(),
        };
        Steps { depth: parts.extent, starts: parts.starts.clone(), others }
    }
}

/// What all instructions of a product have in common.
struct Instruction<'a, 'ctx> {
    kind: Kind,
    columns: u32,
    left: &'a Left<'ctx>,
    right: &'a Described<'ctx>,
}

impl Instruction<'_, '_> {
    fn name(&self) -> String {
        let sum = if self.kind.is_int() { "s32" } else { "f32" };
        let (left, right) = self.kind.types();
        format!("wgmma.mma_async.sync.aligned.m64n{}k{}.{sum}.{left}.{right}", self.columns, self.kind.k_tile())
    }

    /// What stands behind the operands: whether to add to the accumulator; the signs of the factors; which of them are
    /// transposed.
    fn modifiers(&self, adds: &str) -> String {
        let mut modifiers = adds.to_string();
        if !self.kind.is_int() {
            modifiers.push_str(", 1, 1");
        }
        if matches!(self.kind, Kind::F16 | Kind::Bf16) {
            let flag = |described: &Described<'_>| if described.operand.contiguous_k { ", 0" } else { ", 1" };
            if let Left::Shared(described) = self.left {
                modifiers.push_str(flag(described));
            }
            modifiers.push_str(flag(self.right));
        }
        modifiers
    }
}

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn wgmma(&mut self, operation: &Operation, part: GroupPart) -> Result<()> {
        let &[a, b, acc, ref adds @ ..] = operation.operands.as_slice() else {
            return Err(self.malformed(operation));
        };
        let first_adds = match adds.first() {
            Some(&adds) => Adds::If(self.ir.int(self.scalar(adds))),
            None if is_zeros(self.func, acc) => Adds::Never,
            None => Adds::Always,
        };
        let refuse = |this: &Self, what: &str| Err(CodegenError::refuse(this.func, operation.span, what));
        if !self.target.has_wgmma() {
            return refuse(self, "a product by warp groups on a target without them");
        }
        let factor = |value: ValueId| self.func.ty(value).dt().and_then(|dt| dt.known());
        let kinds = factor(a).zip(factor(b)).and_then(|(a, b)| product_kind(a, b));
        let layouts = self.layout(acc).and_then(|layout| Some((layout, wgmma_columns(layout)?)));
        let (Some(kind), Some((layout, columns))) = (kinds, layouts) else {
            return refuse(self, "a product by warp groups of these dtypes and layouts");
        };
        let columns = columns.min(self.most_columns());
        let depth = self.view_layout(operation, b)?.out_size(LayoutDim::Axis(0));
        let steps = match part {
            GroupPart::Whole => Some(Steps { depth, starts: Vec::new(), others: vec![0] }),
            GroupPart::Own | GroupPart::Others => group_parts(layout, depth).map(|parts| Steps::of(&parts, part)),
        };
        let Some(steps) = steps else {
            return refuse(self, "a product of parts that warp groups do not have");
        };
        let mut parts = Vec::new();
        for &other in &steps.others {
            let group = self.group_form(layout, LayoutDim::Axis(1));
            let right = self.described(operation, b, (1, columns), kind, group, (&steps.starts, other))?;
            let left = if matches!(self.func.ty(a).elem, Elem::Shared(_)) {
                let group = self.group_form(layout, LayoutDim::Axis(0));
                Left::Shared(self.described(operation, a, (0, GROUP_ROWS), kind, group, (&steps.starts, other))?)
            } else {
                Left::Registers(self.products.held.get(&a).cloned().unwrap_or_else(|| self.left_words(a)))
            };
            parts.push((left, right));
        }
        let places = register_coordinates(Some(layout));
        let place_of: BTreeMap<&Vec<u32>, usize> = places.iter().zip(0..).collect();
        let is_origin = |at: &&Vec<u32>| at[0] & HALF_ROWS == 0 && at[1] & (columns - 1) == 0;
        let result = operation.results[0];
        let Some(bank) = self.products.banks.bank(result) else {
            return refuse(self, "a product by warp groups without registers for its sums");
        };
        if !matches!(first_adds, Adds::Never) {
            self.fill(acc, result);
        }
        self.ir.asm(&[], "wgmma.fence.sync.aligned;", "", &[], AsmEffects::ConvergentMemory);
        for origin in places.iter().filter(is_origin) {
            let sums = self.tile_registers(bank, &place_of, origin, columns);
            for (index, (left, right)) in parts.iter().enumerate() {
                let factors = |k| Factors {
                    left: match left {
                        Left::Shared(described) => vec![self.tile_of(described, origin[0], k).into()],
                        Left::Registers(words) => self.left_fragment(words, origin[0], k, kind.k_tile()),
                    },
                    right: self.tile_of(right, origin[1], k),
                    // What follows the first product of a tile adds to it.
                    adds: if k == 0 && index == 0 { first_adds } else { Adds::Always },
                };
                let along_k: Vec<Factors> = (0..steps.depth).step_by(kind.k_tile() as usize).map(factors).collect();
                self.wgmma_tile(Instruction { kind, columns, left, right }, along_k, &sums);
            }
        }
        // A product of own parts is in the group of the one that goes on with it.
        if part != GroupPart::Own {
            self.ir.asm(&[], "wgmma.commit_group.sync.aligned;", "", &[], AsmEffects::ConvergentMemory);
        }
        for (left, _) in &parts {
            if let Left::Registers(words) = left
                && self.products.held_factors.is_held_in_iteration(result)
            {
                self.read_factor(a, words);
            }
        }
        self.set_in_bank(result);
        Ok(())
    }

    /// The most columns of an instruction: ptxas refuses one that names more registers than a thread has when the program
    /// starts, whatever the warp group takes by then.
    fn most_columns(&self) -> u32 {
        let sums = self.registers_at_start().saturating_sub(BESIDE_SUMS);
        // Four registers of a thread for eight columns.
        let columns = (2 * sums).max(8);
        1 << columns.ilog2()
    }

    /// The coordinate along `dim` at which a warp group's part of the accumulator begins, as a form over the warp.
    fn group_form(&self, layout: &kernel_core::layout::LinearLayout, dim: LayoutDim) -> Vec<u32> {
        let bases = layout.bases_along(LayoutDim::Warp, dim);
        bases.iter().enumerate().map(|(bit, &base)| if bit < 2 { 0 } else { base }).collect()
    }

    /// What the instructions read in a view, of which the tile along M or N (axis `mn_axis`) has `extent` elements. For each
    /// bit of the warp's number, `group` has the element along M or N and `starts` the one along K at which the warp group
    /// begins, of which then the bits of `other` are different.
    fn described(
        &mut self,
        operation: &Operation,
        view: ValueId,
        (mn_axis, extent): (u8, u32),
        kind: Kind,
        group: Vec<u32>,
        (starts, other): (&[u32], u32),
    ) -> Result<Described<'ctx>> {
        let layout = self.view_layout(operation, view)?;
        let bits = self.func.ty(view).dt().and_then(|dt| dt.known()).map_or(16, memory_bits);
        let Some(operand) = wgmma_operand(layout, bits, mn_axis, extent, kind.k_tile()) else {
            let what = "an operand whose layout in shared memory the matrix instruction cannot read";
            return Err(CodegenError::refuse(self.func, operation.span, what));
        };
        let along_k = |bit: usize| starts.get(bit).copied().unwrap_or(0);
        let bases = group.iter().enumerate().map(|(bit, &start)| operand.offset(start, along_k(bit))).collect();
        let own = self.uniform_form(&LinearForm { bases: vec![(LayoutDim::Warp, bases)] });
        let ir = &self.ir;
        let own = if other == 0 { own } else { ir.xor(own, ir.i32(operand.offset(0, other) as i32)) };
        let start = self.shared_address(ir.add(self.view(view), own));
        let start = ir.pointer_to_int(start, ir.int_type(32));
        let mut start = ir.lshr(ir.and(start, ir.i32(0x3_ffff)), ir.i32(ADDRESS_SHIFT));
        let made = operation.results.first().and_then(|&result| self.func.defining_op(result));
        if made.is_some_and(|id| self.products.addressed_here.contains(&id)) {
            // What LLVM knows nothing about stays in the loop, and so does what is added to it.
            start = ir.int(
                ir.asm(&[ir.int_type(32).into()], "mov.b32 $0, $1;", "=r,r", &[start.into()], AsmEffects::Ordered)[0],
            );
        }
        let start = ir.resize(start, ir.int_type(64), false);
        let first = ir.or(start, ir.i64(operand.descriptor() as i64));
        Ok(Described { operand, first })
    }

    /// The descriptor of the tile at `mn` and `k`.
    fn tile_of(&self, described: &Described<'ctx>, mn: u32, k: u32) -> IntValue<'ctx> {
        let bytes = described.operand.offset(mn, k);
        self.ir.add(described.first, self.ir.i64(i64::from(bytes >> ADDRESS_SHIFT)))
    }

    /// A form over the warp that ptxas sees to be the same in all lanes.
    pub(super) fn uniform_form(&mut self, form: &LinearForm) -> IntValue<'ctx> {
        if form.is_zero() {
            return self.ir.i32(0);
        }
        if let Some((_, value)) = self.ids.uniform_forms.iter().find(|(known, _)| known == form) {
            return *value;
        }
        let value = self.form(form);
        let value = self.at_entry(|this| {
            let first = this.ir.i32(0);
            this.ir.int(this.shuffle(Intrinsic::ShuffleIndex, value.into(), first))
        });
        self.ids.uniform_forms.push((form.clone(), value));
        value
    }

    /// The words of an A in registers.
    pub(super) fn left_words(&self, a: ValueId) -> LeftWords<'ctx> {
        let registers = self.registers(a);
        let coordinates = register_coordinates(self.layout(a));
        let width = WORD_BYTES / self.dtype(a).bytes().clamp(1, WORD_BYTES);
        let place_of: BTreeMap<&Vec<u32>, usize> = coordinates.iter().zip(0..).collect();
        let first = coordinates.iter().filter(|at| at[1].is_multiple_of(width));
        let word = |at: &Vec<u32>| {
            let elements: Vec<Value> = (0..width)
                .map(|element| registers[self.register_at(&place_of, &vec![at[0], at[1] + element])])
                .collect();
            self.ir.pack(&elements, Words { bits: 32, count: 1 })[0].into()
        };
        first.map(|at| (at.clone(), word(at))).collect()
    }

    /// The words that one instruction reads of an A in registers.
    pub(super) fn left_fragment(&self, words: &LeftWords<'ctx>, row: u32, k: u32, k_tile: u32) -> Vec<Value<'ctx>> {
        let half = k_tile / 2;
        [(0, 0), (HALF_ROWS, 0), (0, half), (HALF_ROWS, half)]
            .into_iter()
            .map(|(down, along)| {
                words.get(&vec![row + down, k + along]).copied().unwrap_or_else(|| {
                    self.ir.bug(format!("no fragment of A at row {row}, k {k}"));
                    self.ir.i32(0).into()
                })
            })
            .collect()
    }

    /// All instructions along K for one tile of the accumulator, whose registers have these names.
    fn wgmma_tile(&self, instruction: Instruction<'_, 'ctx>, along_k: Vec<Factors<'ctx>>, sums: &str) {
        let name = instruction.name();
        let (mut lines, mut constraints, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
        for Factors { left, right, adds } in along_k {
            let first = arguments.len();
            let names: Vec<String> = (first..).take(left.len()).map(|i| format!("${i}")).collect();
            let (left_operand, left_constraint) = match instruction.left {
                Left::Shared(_) => (names.concat(), "l"),
                Left::Registers(_) => (format!("{{{}}}", names.join(", ")), "r"),
            };
            let right_operand = first + left.len();
            let modifiers = instruction.modifiers(&adds.operand(right_operand + 1));
            lines.push(format!("{name} {{{sums}}}, {left_operand}, ${right_operand}, {modifiers};"));
            constraints.extend(left.iter().map(|_| left_constraint));
            constraints.push("l");
            constraints.extend(adds.value().map(|_| "b"));
            arguments.extend(left);
            arguments.push(right.into());
            arguments.extend(adds.value().map(Value::from));
        }
        let (assembly, constraints) = (lines.join("\n\t"), constraints.join(","));
        self.ir.asm(&[], &assembly, &constraints, &arguments, AsmEffects::ConvergentMemory);
    }

    /// Waits: what was in flight may be read from here on.
    pub(super) fn wgmma_wait(&mut self, operation: &Operation, pending: u8) {
        self.finish_beside(operation);
        let assembly = format!("wgmma.wait_group.sync.aligned {pending};");
        self.ir.asm(&[], &assembly, "", &[], AsmEffects::ConvergentMemory);
        if pending == 0 {
            self.fill_unfilled(&operation.operands);
        }
        for (&operand, &result) in operation.operands.iter().zip(&operation.results) {
            match self.products.banks.bank(result) {
                Some(_) => self.set_in_bank(result),
                // What no product has written.
                None => self.values[result.index()] = Some(self.registers(operand)),
            }
        }
    }

    /// Has ptxas compute what the kernel computes before a wait for products that were begun earlier before it.
    fn finish_beside(&mut self, operation: &Operation) {
        let Some(wait) = operation.results.first().and_then(|&result| self.func.defining_op(result)) else { return };
        let Some(region) = self.func.regions.iter().position(|region| region.ops.contains(&wait)) else { return };
        let values = computed_beside(self.func, RegionId::new(region as u32), wait);
        let registers: Vec<Value> = values.iter().flat_map(|&value| self.registers(value).to_vec()).collect();
        let groups: Vec<Vec<Value>> = registers.chunks(4).map(<[Value]>::to_vec).collect();
        if !groups.is_empty() {
            self.store_never("st.volatile.shared", &groups, AsmEffects::ConvergentMemory);
        }
    }

    /// The names of a bank's registers for the tile of one instruction, in the order of its operand.
    fn tile_registers(
        &self,
        bank: BankId,
        place_of: &BTreeMap<&Vec<u32>, usize>,
        origin: &[u32],
        columns: u32,
    ) -> String {
        let name = |i: u32| {
            let (core, row, element) = (i / 4, i / 2 % 2, i % 2);
            let at = vec![origin[0] + row * HALF_ROWS, origin[1] + core * 8 + element];
            bank_register(bank, self.register_at(place_of, &at))
        };
        (0..columns / 8 * 4).map(name).collect::<Vec<_>>().join(", ")
    }
}

/// Whether what a loop gives its first iteration as an accumulator does not count: the one product that takes it is
/// told not to add in that iteration. No instruction has to make it then.
pub(super) fn is_overwritten(func: &Func, operation: &Operation, arg: ValueId) -> bool {
    let body = operation.regions[0];
    let mut users = Vec::new();
    walk_region(func, body, &mut |id| {
        let uses = func.op(id).operands.iter().filter(|operand| **operand == arg).count();
        users.extend(std::iter::repeat_n(id, uses));
    });
    let &[user] = users.as_slice() else { return false };
    let product = func.op(user);
    let &[_, _, acc, adds] = product.operands.as_slice() else { return false };
    let is_product = matches!(product.op, Op::Gpu(GpuOp::Wgmma { .. })) && func.region(body).ops.contains(&user);
    is_product && acc == arg && is_false_at_first(func, operation, adds)
}

/// Whether a value is false in a loop's first iteration: it says whether a carried value differs from the constant
/// that it begins with.
fn is_false_at_first(func: &Func, operation: &Operation, value: ValueId) -> bool {
    let Some(test) = func.def_op(value).filter(|test| test.op == Op::compare(CmpOp::Ne)) else { return false };
    let args = &func.region(operation.regions[0]).args;
    let Some(carried) = args.iter().position(|arg| *arg == test.operands[0]) else { return false };
    let init = carried.checked_sub(1).and_then(|index| operation.operands.get(3 + index));
    let first = init.and_then(|&init| constant(func, init));
    first.is_some() && first == constant(func, test.operands[1])
}

/// Whether a value is a tile of the constant zero.
fn is_zeros(func: &Func, value: ValueId) -> bool {
    let Some(operation) = func.def_op(value) else { return false };
    let is_splat = matches!(operation.op, Op::Create(CreateOp::Splat { .. }));
    let number = if is_splat { operation.operands[0] } else { value };
    match constant(func, number) {
        Some(Literal::Float(bits)) => f64::from_bits(bits) == 0.0,
        Some(Literal::Int(value)) => value == 0,
        Some(Literal::Bool(_)) | None => false,
    }
}
