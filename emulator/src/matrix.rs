//! What warps do with matrices: `ldmatrix`, `stmatrix`, `mma.sync` and `wgmma`, by the definitions of the PTX ISA.
//!
//! Products are computed in f64 and rounded once. A warp's part of a `wgmma` is done when the warp gets there.

use half::{bf16, f16};
use kernel_core::num::{F8E4M3, F8E5M2};

use super::arithmetic::from_float;
use super::parse::{Instruction, Operand};
use super::run::{Block, WARP};

/// A factor or an accumulator: rows by columns.
type Matrix = Vec<Vec<f64>>;

/// The number in `ty` that lies at `index` in a word.
fn number(word: u64, index: usize, ty: &str) -> f64 {
    let byte = || (word >> (8 * index)) as u8;
    match ty {
        "f16" => f16::from_bits((word >> (16 * index)) as u16).to_f64(),
        "bf16" => bf16::from_bits((word >> (16 * index)) as u16).to_f64(),
        // The hardware reads 10 bits of fraction.
        "tf32" => f64::from(f32::from_bits(word as u32 & 0xffff_e000)),
        "f32" => f64::from(f32::from_bits(word as u32)),
        "f64" => f64::from_bits(word),
        "s8" => f64::from(byte() as i8),
        "u8" => f64::from(byte()),
        "s32" => f64::from(word as u32 as i32),
        "e4m3" => f64::from(F8E4M3::from_bits(byte()).to_f32()),
        "e5m2" => f64::from(F8E5M2::from_bits(byte()).to_f32()),
        _ => panic!("`{ty}` is no type of a matrix"),
    }
}

/// Bytes of an element.
fn bytes(ty: &str) -> usize {
    match ty {
        "f64" => 8,
        "tf32" | "f32" | "s32" => 4,
        "f16" | "bf16" => 2,
        _ => 1,
    }
}

fn word_of(value: f64, ty: &str) -> u64 {
    match ty {
        "f32" => u64::from((value as f32).to_bits()),
        "f64" => value.to_bits(),
        "s32" => u64::from(value as i64 as u32),
        _ => panic!("`{ty}` is no accumulator of one word"),
    }
}

/// The sizes in `m16n8k16`.
fn sizes(shape: &str) -> [usize; 3] {
    let mut parts = shape.split(['m', 'n', 'k']).skip(1).map(|part| part.parse().expect("a size"));
    [(); 3].map(|()| parts.next().expect("three sizes"))
}

impl Block<'_> {
    /// Does an instruction for a warp.
    pub(super) fn matrix(&mut self, threads: &[usize], instruction: &Instruction) {
        match instruction.name.as_str() {
            "ldmatrix" => self.load_matrix(threads, instruction),
            "stmatrix" => self.store_matrix(threads, instruction),
            "mma" => self.mma(threads, instruction),
            _ => self.wgmma(threads, instruction),
        }
    }

    fn words(&self, thread: usize, operand: &Operand) -> Vec<u64> {
        match operand {
            Operand::Vector(parts) => parts.iter().map(|part| self.value(thread, part)).collect(),
            one => vec![self.value(thread, one)],
        }
    }

    fn set_words(&mut self, thread: usize, operand: &Operand, words: &[u64]) {
        let Operand::Vector(parts) = operand else { panic!("{operand:?} as results") };
        assert_eq!(parts.len(), words.len());
        for (part, &word) in parts.iter().zip(words) {
            self.set(thread, part, word);
        }
    }

    /// The address of each row of each matrix.
    fn rows(&self, threads: &[usize], address: &Operand, count: usize) -> Vec<usize> {
        let row = |lane: usize| {
            let address = (self.value(threads[lane], address) & 0xffff_ffff) as usize;
            assert!(address.is_multiple_of(16), "row address {address} is not aligned");
            address
        };
        (0..8 * count).map(row).collect()
    }

    fn load_matrix(&mut self, threads: &[usize], instruction: &Instruction) {
        let Operand::Vector(parts) = &instruction.operands[0] else { panic!("{}", instruction.text) };
        let (count, transposed) = (parts.len(), instruction.modifiers.iter().any(|m| m == "trans"));
        let rows = self.rows(threads, &instruction.operands[1], count);
        for (lane, &thread) in threads.iter().enumerate() {
            let half = |row: usize, column: usize| {
                let at = row + 2 * column;
                u64::from(u16::from_le_bytes([self.shared[at], self.shared[at + 1]]))
            };
            let words: Vec<u64> = (0..count)
                .map(|matrix| {
                    let element = |e: usize| match transposed {
                        false => half(rows[8 * matrix + lane / 4], lane % 4 * 2 + e),
                        true => half(rows[8 * matrix + lane % 4 * 2 + e], lane / 4),
                    };
                    element(0) | element(1) << 16
                })
                .collect();
            self.set_words(thread, &instruction.operands[0], &words);
        }
    }

    fn store_matrix(&mut self, threads: &[usize], instruction: &Instruction) {
        let Operand::Vector(parts) = &instruction.operands[1] else { panic!("{}", instruction.text) };
        let (count, transposed) = (parts.len(), instruction.modifiers.iter().any(|m| m == "trans"));
        let rows = self.rows(threads, &instruction.operands[0], count);
        for (lane, &thread) in threads.iter().enumerate() {
            for (matrix, word) in self.words(thread, &instruction.operands[1]).into_iter().enumerate() {
                for e in 0..2 {
                    let (row, column) =
                        if transposed { (lane % 4 * 2 + e, lane / 4) } else { (lane / 4, lane % 4 * 2 + e) };
                    let at = rows[8 * matrix + row] + 2 * column;
                    self.shared[at..at + 2].copy_from_slice(&((word >> (16 * e)) as u16).to_le_bytes());
                }
            }
        }
    }

    /// The left factor from registers: `rows` by `depth`.
    fn left(&self, threads: &[usize], operand: &Operand, (rows, depth): (usize, usize), ty: &str) -> Matrix {
        let width = 4 / bytes(ty).min(4);
        let mut matrix = vec![vec![f64::NAN; depth]; rows];
        for (lane, &thread) in threads.iter().enumerate() {
            for (place, word) in self.words(thread, operand).into_iter().enumerate() {
                let (row, k) = match rows {
                    8 => (lane / 4, lane % 4),
                    _ => (lane / 4 + place % 2 * 8, lane % 4 * width + place / 2 * 4 * width),
                };
                for e in 0..width {
                    matrix[row][k + e] = number(word, e, ty);
                }
            }
        }
        matrix
    }

    fn mma(&mut self, threads: &[usize], instruction: &Instruction) {
        let modifiers = &instruction.modifiers;
        let [m, n, depth] = sizes(&modifiers[2]);
        let [sum, left, right] = [5, 6, 7].map(|i| modifiers[i].as_str());
        let operands = &instruction.operands;
        let a = self.left(threads, &operands[1], (m, depth), left);
        let width = 4 / bytes(right).min(4);
        let mut b = vec![vec![f64::NAN; n]; depth];
        for (lane, &thread) in threads.iter().enumerate() {
            for (place, word) in self.words(thread, &operands[2]).into_iter().enumerate() {
                for e in 0..width {
                    b[lane % 4 * width + place * 4 * width + e][lane / 4] = number(word, e, right);
                }
            }
        }
        self.accumulate(threads, &operands[0], &operands[3], n, sum, &a, &b);
    }

    /// Adds a product to the accumulator in the registers of `from`.
    #[allow(clippy::too_many_arguments, reason = "the parts of one instruction")]
    fn accumulate(
        &mut self,
        threads: &[usize],
        to: &Operand,
        from: &Operand,
        columns: usize,
        ty: &str,
        a: &Matrix,
        b: &Matrix,
    ) {
        let packed = if ty == "f16" { 2 } else { 1 };
        for (lane, &thread) in threads.iter().enumerate() {
            let old = self.words(thread, from);
            let value = |index: usize| {
                let (core, row, e) = match a.len() {
                    8 => (0, 0, index),
                    _ => (index / 4, index / 2 % 2, index % 2),
                };
                let (row, column) = (lane / 4 + row * 8, core * 8 + lane % 4 * 2 + e);
                assert!(column < columns);
                let sum: f64 = (0..b.len()).map(|k| a[row][k] * b[k][column]).sum();
                number(old[index / packed], index % packed, ty) + sum
            };
            let new: Vec<u64> = (0..old.len())
                .map(|place| match ty {
                    "f16" => (0..2).fold(0, |word, e| word | from_float(value(2 * place + e), ty) << (16 * e)),
                    _ => word_of(value(place), ty),
                })
                .collect();
            self.set_words(thread, to, &new);
        }
    }

    /// The number at `mn` and `k` of an operand in shared memory.
    fn described(&self, descriptor: u64, transposed: bool, mn: usize, k: usize, ty: &str) -> f64 {
        let field = |shift: u32| ((descriptor >> shift & 0x3fff) << 4) as usize;
        let (start, leading, stride) = (field(0), field(16), field(32));
        let width = [16, 128, 64, 32][(descriptor >> 62) as usize];
        let size = bytes(ty);
        let (row, along) = if transposed { (k, mn * size) } else { (mn, k * size) };
        let plain = start + row % 8 * width + row / 8 * stride + along % width + along / width * leading;
        let at = plain ^ (plain >> 7 & (width / 16 - 1)) << 4;
        let word = self.shared[at..at + size].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        number(word, 0, ty)
    }

    fn wgmma(&mut self, threads: &[usize], instruction: &Instruction) {
        let modifiers = &instruction.modifiers;
        let [_, n, depth] = sizes(&modifiers[3]);
        let [sum, left, right] = [4, 5, 6].map(|i| modifiers[i].as_str());
        let operands = &instruction.operands;
        if self.value(threads[0], &operands[3]) == 0 {
            let Operand::Vector(sums) = &operands[0] else { panic!("one register of sums") };
            let zeros = vec![0; sums.len()];
            threads.iter().for_each(|&thread| self.set_words(thread, &operands[0], &zeros));
        }
        let flag = |index: usize| operands.get(index).is_some_and(|operand| self.value(threads[0], operand) == 1);
        let first_row = threads[0] / WARP % 4 * 16;
        let in_registers = matches!(operands[1], Operand::Vector(_));
        let a = if in_registers {
            self.left(threads, &operands[1], (16, depth), left)
        } else {
            let descriptor = self.value(threads[0], &operands[1]);
            assert!(threads.iter().all(|&thread| self.value(thread, &operands[1]) == descriptor));
            let row = |row| (0..depth).map(|k| self.described(descriptor, flag(6), first_row + row, k, left)).collect();
            (0..16).map(row).collect()
        };
        let descriptor = self.value(threads[0], &operands[2]);
        assert!(threads.iter().all(|&thread| self.value(thread, &operands[2]) == descriptor));
        let transposed = flag(if in_registers { 6 } else { 7 });
        let row = |k| (0..n).map(|column| self.described(descriptor, transposed, column, k, right)).collect();
        let b: Matrix = (0..depth).map(row).collect();
        self.accumulate(threads, &operands[0], &operands[0], n, sum, &a, &b);
    }
}
