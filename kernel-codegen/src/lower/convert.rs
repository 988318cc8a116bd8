//! Conversions between layouts, as [`Route`] plans them: renaming registers, shuffles, or the way through swizzled
//! shared memory.

use kernel_core::ir::{Operation, ValueId};
use kernel_core::layout::{
    Conversion, LayoutDim, LayoutError, LinearForm, SelectLevel, SharedPlan, ShuffleKind, ShufflePlan, SyncScope,
};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::shared::SharedOffset;
use super::{Lower, Result};
use crate::analysis::exchange::{MatrixPlan, Route};
use crate::error::CodegenError;

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
        let route =
            Route::of(self.func, operation, self.target, from, to).map_err(|error| self.layout_error(&error))?;
        let registers = self.registers(source);
        let converted = match &route {
            Route::Plain(Conversion::NoOp) => registers.to_vec(),
            Route::Plain(Conversion::RegisterPermute(action)) => action.apply(&registers),
            Route::Plain(Conversion::Shuffle(plan)) => self.run_shuffles(plan, &registers, result),
            Route::Plain(Conversion::SharedMemory(plan)) => self.through_shared(plan, &registers, result),
            Route::Matrices(plan) => self.through_matrices(plan, &registers, result),
        };
        self.set(result, converted);
        Ok(())
    }

    fn run_shuffles(&mut self, plan: &ShufflePlan, registers: &[Value<'ctx>], result: ValueId) -> Vec<Value<'ctx>> {
        let ty = self.element_type(result);
        // Everything that depends on the thread alone comes first, so that the plan's run needs `self` only to emit.
        let conditions: Vec<((u32, u32), IntValue<'ctx>)> = plan
            .pre
            .iter()
            .chain(&plan.post)
            .map(|level| ((level.lanes, level.warps), self.parity(level.lanes, level.warps)))
            .collect();
        let source_lane = if plan.lanes_stay { self.ids.lane } else { self.form(&plan.source_lane) };
        let this = &*self;
        let select = |level: &SelectLevel, yes: &Value<'ctx>, no: &Value<'ctx>| {
            let found = conditions.iter().find(|(masks, _)| *masks == (level.lanes, level.warps));
            let condition = found.map_or(this.ir.bool(false), |(_, condition)| *condition);
            Ok(this.ir.select(condition, *yes, *no))
        };
        let shuffle = |kind: ShuffleKind, value: &Value<'ctx>| {
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
        };
        let bits = memory_bits(self.dtype(result));
        let words = Words::new(bits, plan.per_word);
        let pack = |elements: &[Value<'ctx>]| {
            let word = this.ir.pack(elements, words).first().map(|&word| word.into());
            Ok(word.unwrap_or_else(|| this.ir.i32(0).into()))
        };
        let run = plan
            .words(registers, pack)
            .and_then(|sent| plan.run(&sent, select, shuffle))
            .and_then(|received| plan.registers(received, |word| Ok(this.ir.unpack(&[word], words, ty, bits))));
        match run {
            Ok::<_, std::convert::Infallible>(values) => values,
            Err(never) => match never {},
        }
    }

    /// Whether an odd number of the chosen bits of lane and warp are set.
    fn parity(&mut self, lanes: u32, warps: u32) -> IntValue<'ctx> {
        let bases = |mask: u32| (0..32 - mask.leading_zeros()).map(|bit| mask >> bit & 1).collect();
        let form = LinearForm { bases: vec![(LayoutDim::Lane, bases(lanes)), (LayoutDim::Warp, bases(warps))] };
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
        plan.load.canonical.apply(&loaded)
    }

    fn through_matrices(&mut self, plan: &MatrixPlan, registers: &[Value<'ctx>], result: ValueId) -> Vec<Value<'ctx>> {
        let start = self.take_scratch(plan.bytes);
        let ty = self.element_type(result);
        let mut loaded = vec![ty.const_zero(); self.register_count(result)];
        self.store_matrices(SharedOffset::at(start), &plan.store, plan.load.elem_bits, registers);
        self.meet(SyncScope::Block);
        self.read_shared(start, &plan.load, ty, &mut loaded, 0);
        plan.load.canonical.apply(&loaded)
    }

    fn meet(&mut self, scope: SyncScope) {
        match scope {
            SyncScope::Warp => self.warp_barrier(),
            SyncScope::Block => self.barrier(),
        }
    }
}
