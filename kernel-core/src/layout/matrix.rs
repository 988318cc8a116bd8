//! Matrices of 8 rows of 16 bytes, which `ldmatrix` and `stmatrix` move between shared memory and the lanes of a warp.
//!
//! ```text
//! lane            0       1       2       3       4     ..
//! word of a row   row 0   row 0   row 0   row 0   row 1 ..       as the instruction stands
//! 16-bit column   0       0       0       0       1     ..       with `.trans`: two rows of one column
//! ```
//!
//! Where lanes hold what the instruction gives them is a question of division: the map from (register, lane, warp)
//! to offsets must have the instruction's tile as its lowest factor. What is left of the map says where rows begin:
//! lane `l` names row `l % 8` of matrix `l / 8`.

use super::gf2::{Subspace, rank};
use super::linear::log2;
use super::{LayoutDim, LayoutError, LinearForm, LinearLayout};

/// Bits of one word, the unit that a lane gets of a matrix.
const WORD_BITS: u32 = 32;
/// Bits of a row.
const ROW_BITS: u32 = 128;
/// Bytes of all banks of shared memory.
const BANK_BYTES: u64 = 128;

/// The words of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixWords {
    /// Per matrix, the registers that make up the word of a lane, lowest bits first.
    pub words: Vec<Vec<u32>>,
    /// The part of the constant that must be XORed to the lane's address, in bytes.
    pub xor_bytes: u32,
    /// The part of the constant that may be an immediate, in bytes.
    pub add_bytes: u32,
}

/// How `ldmatrix` or `stmatrix` move a tile. The address that a lane gives for an instruction is
/// `base + ((row(lane, warp) ^ xor_bytes) + add_bytes)`, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixAccess {
    /// Matrices per instruction: 1, 2 or 4.
    pub matrices: u32,
    /// Whether the matrices are transposed on the way.
    pub transposed: bool,
    /// The instructions of a thread.
    pub instructions: Vec<MatrixWords>,
    /// The lane's part of the address over (lane, warp), in bytes.
    pub row: LinearForm,
    /// Extra wavefronts per wavefront: 0 is free of bank conflicts.
    pub conflicts: u32,
    /// Per register of the layout, the register in `instructions` that holds the same element.
    pub canonical: Vec<u32>,
    /// Warp bits that are redundant: warps with one of them set move what others do.
    pub redundant_warps: u32,
}

/// How the threads of a register layout access a shared-memory layout by matrices; `None` where the lanes hold
/// other words than the instruction gives them.
///
/// # Errors
/// The tiles differ, or `shared` lacks an element.
pub fn matrix_access(
    registers: &LinearLayout,
    shared: &LinearLayout,
    elem_bits: u32,
    transposed: bool,
) -> Result<Option<MatrixAccess>, LayoutError> {
    let fits = if transposed { elem_bits == 16 } else { matches!(elem_bits, 8 | 16 | 32) };
    if !fits {
        return Ok(None);
    }
    let offsets = registers.invert_and_compose(shared)?;
    if offsets.outs.iter().any(|&(dim, bits)| dim != LayoutDim::Offset && bits > 0) {
        return Ok(None);
    }
    let lanes = offsets.columns(LayoutDim::Lane);
    let &[l0, l1, l2, l3, l4] = lanes else { return Ok(None) };
    let own = offsets.columns(LayoutDim::Register);
    // Registers that hold copies are left out; the others are independent.
    let mut span = Subspace::new();
    let kept: Vec<usize> = (0..own.len()).filter(|&bit| span.insert(own[bit], 0).is_ok()).collect();
    let word_bits = (WORD_BITS / elem_bits).ilog2() as usize;
    if kept.len() < word_bits {
        return Ok(None);
    }
    let (packed, matrices) = kept.split_at(word_bits);
    let packed_columns = packed.iter().map(|&bit| own[bit]);
    // The directions along a row, from the lowest offset bit, and the three that choose the row.
    let (along, rows): (Vec<u64>, Vec<u64>) = if transposed {
        (vec![l2, l3, l4], packed_columns.chain([l0, l1]).collect())
    } else {
        (packed_columns.chain([l0, l1]).collect(), vec![l2, l3, l4])
    };
    let row_offsets = u64::from(ROW_BITS / elem_bits);
    let within = row_offsets - 1;
    let is_row = along.iter().enumerate().all(|(bit, &column)| column == 1 << bit) && 1 << along.len() == row_offsets;
    let warps = offsets.columns(LayoutDim::Warp);
    let beyond = rows.iter().chain(warps).chain(matrices.iter().map(|&bit| &own[bit]));
    if !is_row || beyond.clone().any(|column| column & within != 0) {
        return Ok(None);
    }
    let shift = log2("the bits of an element", elem_bits)?;
    let bytes = |column: u64| ((column << shift) >> 3) as u32;
    let together = matrices.len().min(2);
    let (inner, outer) = matrices.split_at(together);
    let chosen = rows.iter().copied().chain(inner.iter().map(|&bit| own[bit]));
    let mut lane_bases: Vec<u32> = chosen.map(bytes).collect();
    lane_bases.resize(lanes.len(), 0);
    let warp_bases = warps.iter().map(|&column| bytes(column)).collect();
    let row = LinearForm { bases: vec![(LayoutDim::Lane, lane_bases), (LayoutDim::Warp, warp_bases)] };
    let variable = row.mask();
    let pick = |bits: &[usize], index: usize| {
        let chosen = bits.iter().enumerate().filter(|(place, _)| index >> place & 1 == 1);
        chosen.fold(0u32, |register, (_, &bit)| register | 1 << bit)
    };
    let instructions = (0..1usize << outer.len()).map(|index| {
        let first = pick(outer, index);
        let word = |matrix: usize| {
            let base = first | pick(inner, matrix);
            (0..1usize << word_bits).map(|element| base | pick(packed, element)).collect()
        };
        let constant = outer.iter().enumerate().filter(|(place, _)| index >> place & 1 == 1);
        let constant = bytes(constant.fold(0, |sum, (_, &bit)| sum ^ own[bit]));
        MatrixWords {
            words: (0..1usize << together).map(word).collect(),
            xor_bytes: constant & variable,
            add_bytes: constant & !variable,
        }
    });
    Ok(Some(MatrixAccess {
        matrices: 1 << together,
        transposed,
        instructions: instructions.collect(),
        conflicts: conflicts(&rows, elem_bits),
        canonical: canonical(own, &kept),
        redundant_warps: registers.free_variable_mask(LayoutDim::Warp),
        row,
    }))
}

/// The extra wavefronts of reading 8 rows: those that lie in the same banks and are not the same row.
fn conflicts(rows: &[u64], elem_bits: u32) -> u32 {
    let bytes = |column: &u64| column * u64::from(elem_bits) / 8;
    let distinct = rank(rows.iter().map(bytes));
    let in_banks = rank(rows.iter().map(|column| bytes(column) & (BANK_BYTES - 1)));
    (1 << (distinct - in_banks)) - 1
}

/// Per register, the one among the combinations of `kept` bits that holds the same element.
fn canonical(own: &[u64], kept: &[usize]) -> Vec<u32> {
    let mut span = Subspace::new();
    for &bit in kept {
        // The kept columns are independent, so each insertion enlarges the span.
        span.insert(own[bit], 1 << bit).ok();
    }
    let sources: Vec<u32> = own.iter().map(|&column| span.express(column).unwrap_or(0) as u32).collect();
    (0..1usize << own.len())
        .map(|register| {
            let bits = sources.iter().enumerate().filter(|(bit, _)| register >> bit & 1 == 1);
            bits.fold(0, |sum, (_, source)| sum ^ source)
        })
        .collect()
}
