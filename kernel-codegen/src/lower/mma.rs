//! Matrix products by `mma.sync`.
//!
//! Placement gave operands and accumulator the layouts of the instruction, so each of its words is a register, or two
//! or four that are neighbours along K. Which ones is found by coordinates: word by word of the first thread's
//! fragment, of which the other threads' are translations.
//!
//! ```text
//! a0: row g,     k 4t        (g = lane / 4, t = lane % 4, for 8-bit factors)     c0, c1: row g,     columns 2t, 2t + 1
//! a1: row g + 8, k 4t        b0: k 4t,      column g                             c2, c3: row g + 8, columns 2t, 2t + 1
//! a2: row g,     k 4t + 16   b1: k 4t + 16, column g
//! a3: row g + 8, k 4t + 16
//! ```
//!
//! Coordinates are taken modulo the tile: a tile of fewer rows or columns than the instruction's is repeated in it.

use std::collections::BTreeMap;

use kernel_core::ir::{DType, Operation, ValueId};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::types::BasicTypeEnum;

use super::ir::Value;
use super::packing::Words;
use super::shape::register_coordinates;
use super::{Lower, Result};
use crate::dot::{Kind, Problem};

/// The rows between the two halves of a fragment of A or the accumulator.
const HALF_ROWS: u32 = 8;

/// The words of the factors, by the coordinates of their first element in the first thread.
type Fragments<'ctx> = BTreeMap<Vec<u32>, Value<'ctx>>;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn mma(&mut self, operation: &Operation, problem: &Problem, kind: Kind) -> Result<()> {
        let &[a, b, acc] = operation.operands.as_slice() else { return Err(self.malformed(operation)) };
        let rank = problem.batch.len() + 2;
        let places = register_coordinates(self.layout(acc));
        let place_of: BTreeMap<&Vec<u32>, usize> = places.iter().zip(0..).collect();
        let mut sums = self.registers(acc).to_vec();
        let [m, n] = [problem.m, problem.n];
        let at = |origin: &[u32], row: u32, column: u32| {
            let mut at = origin.to_vec();
            (at[rank - 2], at[rank - 1]) = ((at[rank - 2] + row) % m, (at[rank - 1] + column) % n);
            at
        };
        let is_origin = |at: &&Vec<u32>| at[rank - 2] & HALF_ROWS == 0 && at[rank - 1] & 1 == 0;
        let origins: Vec<&Vec<u32>> = places.iter().filter(is_origin).collect();
        for parts in self.parts(kind, problem, a, b) {
            for k in (0..problem.k).step_by(kind.k_tile() as usize) {
                for origin in &origins {
                    let homes = [(0, 0), (0, 1), (HALF_ROWS, 0), (HALF_ROWS, 1)]
                        .map(|(row, column)| self.register_at(&place_of, &at(origin, row, column)));
                    let old = homes.map(|home| sums[home]);
                    let new = self.mma_tile(kind, problem, &parts, origin, k, old);
                    for (home, value) in homes.into_iter().zip(new) {
                        sums[home] = value;
                    }
                }
            }
        }
        self.set(operation.results[0], sums);
        Ok(())
    }

    /// The factors as words, one pair per product that is summed.
    fn parts(
        &mut self,
        kind: Kind,
        problem: &Problem,
        a: ValueId,
        b: ValueId,
    ) -> Vec<(Fragments<'ctx>, Fragments<'ctx>)> {
        let rank = problem.batch.len() + 2;
        let (along_a, along_b) = (rank - 1, rank - 2);
        if kind != Kind::Tf32x3 {
            let rounded = |this: &Self, value: ValueId| {
                let registers = this.registers(value).to_vec();
                if kind == Kind::Tf32 { this.tf32_all(&registers) } else { registers }
            };
            let (left, right) = (rounded(self, a), rounded(self, b));
            return vec![(self.words_of(a, &left, along_a, kind), self.words_of(b, &right, along_b, kind))];
        }
        let split = |value: ValueId, along: usize| {
            let registers = self.registers(value).to_vec();
            let big = self.tf32_all(&registers);
            let rest: Vec<Value> = registers
                .iter()
                .zip(&big)
                .map(|(&whole, &big)| self.ir.fsub(self.ir.float(whole), self.ir.float(big)).into())
                .collect();
            let small = self.tf32_all(&rest);
            (self.words_of(value, &big, along, kind), self.words_of(value, &small, along, kind))
        };
        let (a_big, a_small) = split(a, along_a);
        let (b_big, b_small) = split(b, along_b);
        // The small products first, so that they are not lost against a large sum.
        vec![(a_small, b_big.clone()), (a_big.clone(), b_small), (a_big, b_big)]
    }

    /// f32 values rounded to tf32, ties away from zero.
    fn tf32_all(&self, values: &[Value<'ctx>]) -> Vec<Value<'ctx>> {
        let ir = &self.ir;
        let single: BasicTypeEnum = ir.context.f32_type().into();
        let round = |&value: &Value<'ctx>| {
            let rounded = ir.asm(&[single], "cvt.rna.tf32.f32 $0, $1;", "=f,f", &[value], AsmEffects::Pure);
            rounded.first().copied().unwrap_or(value)
        };
        values.iter().map(round).collect()
    }

    /// The words of a factor: neighbours along K together.
    fn words_of(&self, value: ValueId, registers: &[Value<'ctx>], along: usize, kind: Kind) -> Fragments<'ctx> {
        let coordinates = register_coordinates(self.layout(value));
        let place_of: BTreeMap<&Vec<u32>, usize> = coordinates.iter().zip(0..).collect();
        let first = coordinates.iter().filter(|at| at[along].is_multiple_of(kind.k_width()));
        let word = |at: &Vec<u32>| {
            let elements: Vec<Value> = (0..kind.k_width())
                .map(|element| {
                    let mut at = at.clone();
                    at[along] += element;
                    registers[self.register_at(&place_of, &at)]
                })
                .collect();
            match kind {
                Kind::F64 | Kind::Tf32 | Kind::Tf32x3 => elements[0],
                Kind::F16 | Kind::Bf16 | Kind::Int8 { .. } | Kind::F8 { .. } => {
                    self.ir.pack(&elements, Words { bits: 32, count: 1 })[0].into()
                }
            }
        };
        first.map(|at| (at.clone(), word(at))).collect()
    }

    /// One instruction (f64: four) on the tile at `origin` and `k`; returns the new accumulator.
    fn mma_tile(
        &self,
        kind: Kind,
        problem: &Problem,
        (left, right): &(Fragments<'ctx>, Fragments<'ctx>),
        origin: &[u32],
        k: u32,
        acc: [Value<'ctx>; 4],
    ) -> [Value<'ctx>; 4] {
        let rank = origin.len();
        let (row, column) = (origin[rank - 2], origin[rank - 1]);
        let half = kind.k_tile() / 2;
        let find = |from: &Fragments<'ctx>, row: u32, column: u32| {
            let mut at = origin.to_vec();
            (at[rank - 2], at[rank - 1]) = (row, column);
            from.get(&at).copied().unwrap_or_else(|| {
                self.ir.bug(format!("no fragment at {at:?}"));
                self.ir.i32(0).into()
            })
        };
        let a = [(0, 0), (HALF_ROWS, 0), (0, half), (HALF_ROWS, half)]
            .map(|(down, along)| find(left, (row + down) % problem.m, k + along));
        let b = [0, half].map(|along| find(right, k + along, column));
        match kind {
            Kind::F64 => self.mma_double(a, b, acc),
            Kind::F16 | Kind::Bf16 | Kind::Tf32 | Kind::Tf32x3 | Kind::Int8 { .. } | Kind::F8 { .. } => {
                self.mma_words(kind, problem.acc, a, b, acc)
            }
        }
    }

    fn mma_words(
        &self,
        kind: Kind,
        dtype: DType,
        a: [Value<'ctx>; 4],
        b: [Value<'ctx>; 2],
        acc: [Value<'ctx>; 4],
    ) -> [Value<'ctx>; 4] {
        let ir = &self.ir;
        let (shape, (left, right)) = (format!("m16n8k{}", kind.k_tile()), kind.types());
        let (sum, letter) = match dtype {
            DType::F16 => ("f16", 'r'),
            DType::I32 => ("s32", 'r'),
            _ => ("f32", 'f'),
        };
        // Halves are two to a word.
        let packed = Words { bits: 32, count: 2 };
        let sums: Vec<Value> = match dtype {
            DType::F16 => ir.pack(&acc, packed).into_iter().map(Into::into).collect(),
            _ => acc.to_vec(),
        };
        let count = sums.len();
        let list = |first: usize, len: usize| {
            let names: Vec<String> = (first..first + len).map(|i| format!("${i}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let assembly = format!(
            "mma.sync.aligned.{shape}.row.col.{sum}.{left}.{right}.{sum} {}, {}, {}, {};",
            list(0, count),
            list(count, 4),
            list(count + 4, 2),
            list(0, count),
        );
        let mut constraints = vec![format!("={letter}"); count];
        constraints.extend(std::iter::repeat_n("r".to_string(), 6));
        constraints.extend((0..count).map(|i| i.to_string()));
        let bits = |value: &Value<'ctx>| -> Value<'ctx> { ir.to_bits(*value).into() };
        let arguments: Vec<Value> = a.iter().chain(&b).map(bits).chain(sums.iter().copied()).collect();
        let types: Vec<BasicTypeEnum> = sums.iter().map(|sum| sum.get_type()).collect();
        let results = ir.asm(&types, &assembly, &constraints.join(","), &arguments, AsmEffects::Convergent);
        let results = match dtype {
            DType::F16 => ir.unpack(&results, packed, ir.dtype(DType::F16), 16),
            _ => results,
        };
        let mut new = acc;
        for (place, value) in new.iter_mut().zip(results) {
            *place = value;
        }
        new
    }

    /// `mma.m8n8k4` on each half of the rows and of K.
    fn mma_double(&self, a: [Value<'ctx>; 4], b: [Value<'ctx>; 2], mut acc: [Value<'ctx>; 4]) -> [Value<'ctx>; 4] {
        let double: BasicTypeEnum = self.ir.context.f64_type().into();
        let assembly = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$0, $1}, {$2}, {$3}, {$0, $1};";
        for (along, &factor) in b.iter().enumerate() {
            for rows in 0..2 {
                let arguments = [a[2 * along + rows], factor, acc[2 * rows], acc[2 * rows + 1]];
                let results =
                    self.ir.asm(&[double, double], assembly, "=d,=d,d,d,0,1", &arguments, AsmEffects::Convergent);
                for (place, value) in acc[2 * rows..].iter_mut().zip(results) {
                    *place = value;
                }
            }
        }
        acc
    }
}
