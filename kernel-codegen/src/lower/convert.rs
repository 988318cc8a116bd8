//! Conversions between layouts, as [`kernel_core::layout::convert`] plans them: renaming registers, shuffles, or
//! a trip through swizzled shared memory.

use kernel_core::ir::{Operation, ValueId};
use kernel_core::layout::{
    Conversion, ConversionOptions, Dim, LayoutError, LinearForm, LinearLayout, MatrixAccess, SharedAccess, SharedPlan,
    ShuffleKind, ShufflePlan, SwizzleOptions, SwizzleWidth, SyncScope, convert_with, matrix_access, nvmma_shared,
    shared_access,
};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::shared::Place;
use super::{Lower, Result};
use crate::error::CodegenError;
use crate::report::{ConversionKind, ConversionReport};

/// A larger tile goes through shared memory in several passes, so that programs do not crowd each other out.
const MAX_BYTES: u32 = 48 * 1024;

/// Conversions that take at most so much shared memory.
fn within(bytes: u32) -> ConversionOptions {
    ConversionOptions { swizzle: SwizzleOptions { max_bytes: Some(bytes) }, ..ConversionOptions::default() }
}

/// A conversion whose stores are matrices.
struct MatrixPlan {
    store: MatrixAccess,
    load: SharedAccess,
    bytes: u32,
}

impl MatrixPlan {
    /// Whether it takes fewer instructions than vectors and passes do.
    fn is_shorter_than(&self, plan: &SharedPlan) -> bool {
        let own = self.store.instructions.len() + self.load.accesses.len();
        own < plan.store.accesses.len() + plan.load.accesses.len()
    }
}

/// Bytes of shared memory that a conversion takes.
pub(crate) fn conversion_bytes(from: &LinearLayout, to: &LinearLayout, elem_bits: u32) -> u32 {
    let plan = match convert_with(from, to, elem_bits, &within(MAX_BYTES)) {
        Err(LayoutError::ScratchTooSmall { .. }) => convert_with(from, to, elem_bits, &ConversionOptions::default()),
        plan => plan,
    };
    if let Ok(Conversion::SharedMemory(plan)) = plan { plan.bytes } else { 0 }
}

impl<'ctx> Lower<'_, 'ctx> {
    /// An error of the layout algebra, which placement should have made impossible.
    pub(super) fn layout_error(&self, error: &LayoutError) -> CodegenError {
        let what = format!("a layout that cannot be lowered: {error}");
        CodegenError::internal(self.func, kernel_core::ir::Span::UNKNOWN, "lowering", what)
    }

    pub(super) fn convert(&mut self, operation: &Operation) -> Result<()> {
        let (source, result) = (operation.operands[0], operation.results[0]);
        let (Some(from), Some(to)) = (self.layout(source), self.layout(result)) else {
            self.set(result, self.registers(source).to_vec());
            return Ok(());
        };
        let bits = self.shared_bits(source);
        // What the program has anyway costs nothing.
        let allowed = self.scratch.spare().max(MAX_BYTES);
        let plan = match convert_with(from, to, bits, &within(allowed)) {
            // Some tiles cannot be cut into passes; whether the target has that much shared memory shows at the end.
            Err(LayoutError::ScratchTooSmall { .. }) => convert_with(from, to, bits, &ConversionOptions::default()),
            plan => plan,
        };
        let plan = plan.map_err(|error| {
            let what = format!("a conversion of layouts that cannot be done: {error}");
            CodegenError::refuse(self.func, operation.span, what)
        })?;
        let registers = self.registers(source);
        let (kind, converted) = match &plan {
            Conversion::NoOp => (ConversionKind::Registers, registers.to_vec()),
            Conversion::RegisterPermute(action) => (ConversionKind::Registers, action.apply(&registers)),
            Conversion::Shuffle(plan) => {
                (ConversionKind::Shuffles(plan.shuffles() as u32), self.run_shuffles(plan, &registers))
            }
            Conversion::SharedMemory(plan) => match self.matrix_plan(from, to, bits, allowed) {
                Some(by_matrices) if by_matrices.is_shorter_than(plan) => {
                    let kind =
                        ConversionKind::Shared { bytes: by_matrices.bytes, store_conflicts: 0, load_conflicts: 0 };
                    (kind, self.through_matrices(&by_matrices, &registers, result))
                }
                _ => {
                    let kind = ConversionKind::Shared {
                        bytes: plan.bytes,
                        store_conflicts: plan.store.conflicts,
                        load_conflicts: plan.load.conflicts,
                    };
                    (kind, self.through_shared(plan, &registers, result))
                }
            },
        };
        if let (Some(from), Some(to)) = (self.layout_id(source), self.layout_id(result)) {
            self.report.conversions.push(ConversionReport { span: operation.span, from, to, kind });
        }
        self.set(result, converted);
        Ok(())
    }

    fn run_shuffles(&mut self, plan: &ShufflePlan, registers: &[Value<'ctx>]) -> Vec<Value<'ctx>> {
        // Everything that depends on the thread alone comes first, so that the plan's run needs `self` only to emit.
        let conditions: Vec<((u32, u32), IntValue<'ctx>)> = plan
            .pre
            .iter()
            .chain(&plan.post)
            .map(|level| ((level.lanes, level.warps), self.parity(level.lanes, level.warps)))
            .collect();
        let source_lane = if plan.lanes_stay { self.lane } else { self.form(&plan.source_lane) };
        let this = &*self;
        let run = plan.run(
            registers,
            |level, yes, no| {
                let found = conditions.iter().find(|(masks, _)| *masks == (level.lanes, level.warps));
                let condition = found.map_or(this.ir.bool(false), |(_, condition)| *condition);
                Ok::<_, std::convert::Infallible>(this.ir.select(condition, *yes, *no))
            },
            |kind, value| {
                Ok(match kind {
                    ShuffleKind::None => *value,
                    ShuffleKind::Butterfly(mask) => {
                        this.shuffle(Intrinsic::ShuffleButterfly, *value, this.ir.i32(mask as i32))
                    }
                    ShuffleKind::Indexed(constant) => {
                        let lane = this.ir.xor(source_lane, this.ir.i32(constant as i32));
                        this.shuffle(Intrinsic::ShuffleIndex, *value, lane)
                    }
                })
            },
        );
        match run {
            Ok(values) => values,
            Err(never) => match never {},
        }
    }

    /// Whether an odd number of the chosen bits of lane and warp are set.
    fn parity(&mut self, lanes: u32, warps: u32) -> IntValue<'ctx> {
        let bases = |mask: u32| (0..32 - mask.leading_zeros()).map(|bit| mask >> bit & 1).collect();
        let form = LinearForm { bases: vec![(Dim::Lane, bases(lanes)), (Dim::Warp, bases(warps))] };
        let bit = self.form(&form);
        self.at_entry(|this| this.ir.icmp(IntPredicate::NE, bit, this.ir.i32(0)))
    }

    /// A value of another lane: of `own ^ which` or of lane `which`.
    pub(super) fn shuffle(&self, kind: Intrinsic, value: Value<'ctx>, which: IntValue<'ctx>) -> Value<'ctx> {
        let ir = &self.ir;
        let (ty, bits) = (value.get_type(), ir.to_bits(value));
        let word = ir.int_type(32);
        let move_word = |bits: IntValue<'ctx>| {
            let arguments = [ir.i32(-1).into(), bits.into(), which.into(), ir.i32(31).into()];
            ir.call(kind, &[], &arguments).map_or(bits, |moved| ir.int(moved))
        };
        let width = bits.get_type().get_bit_width();
        let moved = if width == 64 {
            let low = move_word(ir.resize(bits, word, false));
            let high = move_word(ir.resize(ir.lshr(bits, ir.i64(32)), word, false));
            let (low, high) = (ir.resize(low, bits.get_type(), false), ir.resize(high, bits.get_type(), false));
            ir.or(low, ir.shl(high, ir.i64(32)))
        } else {
            ir.resize(move_word(ir.resize(bits, word, false)), bits.get_type(), false)
        };
        ir.value_of_bits(moved, ty)
    }

    fn through_shared(&mut self, plan: &SharedPlan, registers: &[Value<'ctx>], result: ValueId) -> Vec<Value<'ctx>> {
        let start = self.take_scratch(plan.bytes);
        let ty = self.element_type(result);
        let mut loaded = vec![ty.const_zero(); self.register_count(result)];
        for rep in 0..plan.reps {
            if rep > 0 {
                self.meet(plan.scope);
            }
            self.write_shared(start, &plan.store, registers, rep);
            self.meet(plan.scope);
            self.read_shared(start, &plan.load, ty, &mut loaded, rep);
        }
        self.reading(start, plan.bytes);
        plan.load.canonical.apply(&loaded)
    }

    /// How a tile gets to another layout by `stmatrix` and wide loads, both without bank conflicts.
    fn matrix_plan(&self, from: &LinearLayout, to: &LinearLayout, bits: u32, allowed: u32) -> Option<MatrixPlan> {
        let bytes = (1u32 << from.total_out_bits()) * bits / 8;
        if !self.target.has_stmatrix() || bits != 16 || bytes > allowed {
            return None;
        }
        let shape = from.tile_shape();
        let sizes = [shape.last().copied()?, shape.iter().rev().nth(1).copied()?];
        [false, true].into_iter().zip(sizes).find_map(|(transposed, row)| {
            let shared = nvmma_shared(&shape, SwizzleWidth::widest_for(row * bits / 8), bits, transposed).ok()?;
            let by_matrices = |transposed| matrix_access(from, &shared, bits, transposed).ok().flatten();
            let store = by_matrices(false).or_else(|| by_matrices(true))?;
            let load = shared_access(to, &shared, bits).ok()?;
            let fits = store.conflicts == 0 && load.conflicts == 0;
            fits.then_some(MatrixPlan { store, load, bytes })
        })
    }

    fn through_matrices(&mut self, plan: &MatrixPlan, registers: &[Value<'ctx>], result: ValueId) -> Vec<Value<'ctx>> {
        let start = self.take_scratch(plan.bytes);
        let ty = self.element_type(result);
        let mut loaded = vec![ty.const_zero(); self.register_count(result)];
        self.store_matrices(Place::at(start), &plan.store, plan.load.elem_bits, registers);
        self.meet(SyncScope::Block);
        self.read_shared(start, &plan.load, ty, &mut loaded, 0);
        self.reading(start, plan.bytes);
        plan.load.canonical.apply(&loaded)
    }

    fn meet(&mut self, scope: SyncScope) {
        match scope {
            SyncScope::Warp => self.warp_barrier(),
            SyncScope::Block => self.barrier(),
        }
    }
}
