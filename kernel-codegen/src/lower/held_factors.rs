//! Left factors in registers that outlive an iteration of a loop, kept from an error of ptxas.
//!
//! ```text
//! cvt.rn.f16x2.f32 %x0, ..                                               packed before the loop
//! LOOP: wgmma.mma_async.. {%s0, ..}, {%x0, %x1, %x2, %x3}, %b, ..        the only instruction that reads %x0
//!       @%p bra OTHER;                                                   the iteration goes on in another block
//!       ..
//! OTHER: cvt.rn.f16x2.f32 %p0, ..
//!       wgmma.mma_async.. {%o0, ..}, {%p0, %p1, %p2, %p3}, %v, ..        an instruction of the same shape and dtypes
//!       @%q bra LOOP;
//! ```
//!
//! For this, ptxas 12.3 to 13.0.88 (and the compilers of drivers of those versions, 580 among them), at -O1 and
//! above, give `%x0` and `%p0` one register: the second iteration multiplies by `%p`. They take a register of a left
//! factor to be free behind its product where the products of one block are all that reads it, and give it to the
//! left factor of the next product of the same shape, though the loop comes back to the first. Every part of the
//! picture is needed: without the second block, with accumulators of different widths, or where anything else reads
//! the register, wherever it stands, the registers differ; as they do for factors that the loop carries. ptxas 13.1
//! and later are right.
//!
//! So such a register is also read by an ordinary instruction behind the loop, a store to shared memory under a
//! condition that never holds, of which ptxas does not know that:
//!
//! ```text
//! @%never st.shared.v4.b32 [shared_memory], {%x0, %x1, %x2, %x3};        one per fragment, once per loop
//! ```
//!
//! On the way to it the registers live through the whole loop by anybody's reckoning, and they are not read by
//! products alone. In the iteration it costs nothing. A factor that is computed in the iteration, but might be moved
//! out of it, is read behind its product instead. `analysis/held_factors.rs` finds which factors need it; the tests
//! look for the error itself in what ptxas makes of kernels.

use std::collections::BTreeMap;

use kernel_core::ir::{RegionId, ValueId};
use kernel_llvm::AsmEffects;

use super::Lower;
use super::ir::Value;
use super::wgmma::{HALF_ROWS, LeftWords, WORD_BYTES};

impl<'ctx> Lower<'_, 'ctx> {
    /// Packs the left factors that a loop does not change, before it. To be called where the loop is entered from.
    pub(super) fn hold_factors(&mut self, first_region: RegionId) {
        let factors: Vec<ValueId> = self.products.held_factors.behind(first_region).collect();
        for factor in factors {
            let words = self.left_words(factor);
            self.products.held.insert(factor, words);
        }
    }

    /// Reads them behind the loop. To be called where it ends.
    pub(super) fn release_factors(&mut self, first_region: RegionId) {
        let factors: Vec<ValueId> = self.products.held_factors.behind(first_region).collect();
        for factor in factors {
            if let Some(words) = self.products.held.remove(&factor) {
                self.read_factor(factor, &words);
            }
        }
    }

    /// Reads all words of a left factor, to no effect.
    pub(super) fn read_factor(&self, factor: ValueId, words: &LeftWords<'ctx>) {
        // A fragment has two words along K, of four threads each.
        let k_tile = 8 * (WORD_BYTES / self.dtype(factor).bytes().clamp(1, WORD_BYTES));
        let origins = words.keys().filter(|at| at[0] & HALF_ROWS == 0 && at[1] & (k_tile - 1) == 0);
        let fragments: Vec<Vec<Value>> =
            origins.map(|origin| self.left_fragment(words, origin[0], origin[1], k_tile)).collect();
        self.store_never("st.shared", &fragments, AsmEffects::Memory);
    }

    /// Stores groups of one, two or four registers to shared memory under a condition that never holds, of which ptxas
    /// does not know that: it has them there.
    pub(super) fn store_never(&self, instruction: &str, groups: &[Vec<Value<'ctx>>], effects: AsmEffects) {
        let mut arguments: Vec<Value> = vec![self.shared_address(self.ir.i32(0)).into()];
        let mut constraints = vec!["r"];
        let mut lines = Vec::new();
        // Vectors have two or four elements.
        for group in groups.iter().flat_map(|group| group.chunks(if group.len() == 3 { 1 } else { 4 })) {
            let first = arguments.len();
            let names: Vec<String> = (first..first + group.len()).map(|place| format!("${place}")).collect();
            lines.push(match names.as_slice() {
                [name] => format!("@%never {instruction}.b32 [$0], {name};"),
                names => format!("@%never {instruction}.v{}.b32 [$0], {{{}}};", names.len(), names.join(", ")),
            });
            constraints.extend(group.iter().map(|register| if register.is_float_value() { "f" } else { "r" }));
            arguments.extend(group);
        }
        // Every GPU has multiprocessors.
        let assembly = format!(
            "{{\n\t.reg .pred %never;\n\t.reg .b32 %processors;\n\tmov.u32 %processors, %nsmid;\n\t\
             setp.eq.u32 %never, %processors, 0;\n\t{}\n\t}}",
            lines.join("\n\t")
        );
        self.ir.asm(&[], &assembly, &constraints.join(","), &arguments, effects);
    }
}

/// The words of held factors, by factor.
pub(super) type Held<'ctx> = BTreeMap<ValueId, LeftWords<'ctx>>;
