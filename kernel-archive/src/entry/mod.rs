//! A compiled variant as it is written down: what a launch needs of it, and texts to look at.
//!
//! ```text
//! length of the head u32, head (postcard)
//! length of the texts u32, length of what follows u32, texts (postcard, then LZ4)
//! number of machine codes u32, for each: its length u32, its bytes
//! ```
//!
//! The encoding is that of the types below, in the order of their fields; whoever changes them changes
//! [`FORMAT`](crate::container::FORMAT).

use kernel_core::backend::conditions::{Condition, Node};
use kernel_core::backend::nvidia::{self, AbiParam};
use kernel_core::backend::{LaunchConditions, SiteKind};
use kernel_core::ir::{DType, MAX_TENSOR_RANK, ParamId, Recipe};
use serde::{Deserialize, Serialize};

use crate::error::ArchiveError;
use crate::identity::Identity;
use crate::machine::Machine;

/// The most bytes of texts or of machine code that are read: what says more is damaged.
const MOST_BYTES: usize = 256 << 20;

/// A variant of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is, who has made it, and what a launch needs.
    pub head: Head,
    /// Its texts.
    pub texts: Texts,
    /// Machine code of its PTX, for the GPUs that it was made for.
    pub machine: Vec<Machine>,
}

/// What is read of an entry first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Which variant it is.
    pub identity: Identity,
    /// Who has made it.
    pub maker: Maker,
    /// How the back end was asked to compile it, to make its stages again.
    pub options: nvidia::Options,
    /// What a launch needs besides the PTX.
    pub code: Code,
}

/// Who has made a variant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Maker {
    /// Of which runtimes a launch can use it: those that say the same.
    pub runtime: String,
    /// The compiler and its LLVM.
    pub compiler: String,
}

/// Texts of a variant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Texts {
    /// The PTX.
    pub ptx: String,
    /// The bound tile IR, of which every later stage can be made again.
    pub bound_ir: String,
    /// What the compiler decided.
    pub report: String,
}

/// What a launch needs besides the PTX. Places in the source are numbers of [`Places`](crate::Places).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Code {
    /// The name of the kernel's entry.
    pub entry: String,
    /// Dynamic shared memory of each program, in bytes.
    pub shared_bytes: u32,
    /// Warps per program.
    pub num_warps: u32,
    /// For how many programs per multiprocessor ptxas is asked to make room.
    pub min_programs: Option<u32>,
    /// Whether the PTX itself says how many registers threads have.
    pub sets_registers: bool,
    /// Whether a launch may begin before those before it have ended.
    pub dependent_launch: bool,
    /// The parameters, in order.
    pub abi: Vec<AbiParam>,
    /// The intervals that the launch conditions speak of.
    pub nodes: Vec<Node>,
    /// The launch conditions.
    pub conditions: Vec<Condition>,
    /// What the site numbers of reports mean.
    pub sites: Vec<Site>,
    /// The names of the parameters.
    pub names: Vec<String>,
    /// The parameters that the kernel loads from, a bit each.
    pub loads: u64,
    /// The tensors that launches make.
    pub made: Vec<Made>,
}

/// What a site number of a report means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Site {
    /// The number of its place.
    pub place: u32,
    /// Whether an atomic is there.
    pub atomic: bool,
    /// What is checked.
    pub kind: SiteKind,
}

/// A tensor that launches make.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Made {
    /// The parameter that it is the argument of.
    pub param: ParamId,
    /// Its name.
    pub name: String,
    /// The number of its place.
    pub place: u32,
    /// The dtype of its elements.
    pub element: DType,
    /// How it is made.
    pub recipe: Recipe,
    /// Whether it is written.
    pub writes: bool,
    /// Whether elements outside it are NaN, not zero.
    pub nan: bool,
}

impl Code {
    /// The launch conditions; `None` if they are none.
    pub fn launch_conditions(&self) -> Option<LaunchConditions> {
        LaunchConditions::from_lists(self.nodes.clone(), self.conditions.clone())
    }

    /// Whether it depends on what is known of buffers' lengths. What does not serves all of them.
    pub fn uses_lengths(&self) -> bool {
        self.abi.iter().any(|param| matches!(param, AbiParam::Length(_)))
    }

    /// Whether a launch can rely on it: numbers name what is there.
    fn is_sound(&self) -> bool {
        let params = self.names.len();
        let has = |param: &ParamId| param.index() < params;
        let abi = self.abi.iter().all(|param| match param {
            AbiParam::Buffer(id) | AbiParam::Scalar(id, _) | AbiParam::Length(id) => has(id),
            AbiParam::Shape(id, axis) | AbiParam::Stride(id, axis) => has(id) && usize::from(*axis) < MAX_TENSOR_RANK,
            AbiParam::TensorMap(map) => has(&map.param),
            AbiParam::ReportSlot => true,
        });
        let made = self.made.iter().all(|made| {
            let Recipe { base, sizes, strides, steps, slot, .. } = &made.recipe;
            let ranks = sizes.len() == strides.len() && (1..=MAX_TENSOR_RANK).contains(&sizes.len());
            has(&made.param) && has(base) && ranks && steps.len() <= kernel_core::ir::recipe::MAX_STEPS && *slot < 32
        });
        abi && made && self.launch_conditions().is_some() && (1..=64).contains(&self.num_warps)
    }
}

/// The bytes of an entry.
pub fn encode(entry: &Entry) -> Vec<u8> {
    // Lists and strings in memory can always be written.
    let head = postcard::to_allocvec(&entry.head).unwrap_or_default();
    let texts = postcard::to_allocvec(&entry.texts).unwrap_or_default();
    let packed = lz4_flex::block::compress(&texts);
    let machine: Vec<Vec<u8>> = entry.machine.iter().map(Machine::encode).collect();
    let lengths: usize = machine.iter().map(|bytes| 4 + bytes.len()).sum();
    let mut bytes = Vec::with_capacity(16 + head.len() + packed.len() + lengths);
    bytes.extend((head.len() as u32).to_le_bytes());
    bytes.extend(head);
    bytes.extend((texts.len() as u32).to_le_bytes());
    bytes.extend((packed.len() as u32).to_le_bytes());
    bytes.extend(packed);
    bytes.extend((machine.len() as u32).to_le_bytes());
    for one in machine {
        bytes.extend((one.len() as u32).to_le_bytes());
        bytes.extend(one);
    }
    bytes
}

/// Reads an entry.
///
/// # Errors
/// [`ArchiveError::Damaged`] if this is none.
pub fn decode(bytes: &[u8]) -> Result<Entry, ArchiveError> {
    let (head, rest) = split_head(bytes)?;
    let (length, rest) = split_length(rest)?;
    let (packed, rest) = split_part(rest)?;
    let texts = unpack(packed, length)?;
    let (texts, left) = postcard::take_from_bytes(&texts).map_err(|_| ArchiveError::Damaged)?;
    let (count, mut rest) = split_length(rest)?;
    let mut machine = Vec::new();
    for _ in 0..count {
        let (one, others) = split_part(rest)?;
        machine.push(Machine::decode(one)?);
        rest = others;
    }
    if left.is_empty() && rest.is_empty() { Ok(Entry { head, texts, machine }) } else { Err(ArchiveError::Damaged) }
}

/// What LZ4 has packed, of which the length is known.
pub(crate) fn unpack(packed: &[u8], length: usize) -> Result<Vec<u8>, ArchiveError> {
    if length > MOST_BYTES {
        return Err(ArchiveError::Damaged);
    }
    let bytes = lz4_flex::block::decompress(packed, length).map_err(|_| ArchiveError::Damaged)?;
    if bytes.len() == length { Ok(bytes) } else { Err(ArchiveError::Damaged) }
}

/// Reads what comes before the texts of an entry.
///
/// # Errors
/// As [`decode`].
pub fn decode_head(bytes: &[u8]) -> Result<Head, ArchiveError> {
    split_head(bytes).map(|(head, _)| head)
}

fn split_head(bytes: &[u8]) -> Result<(Head, &[u8]), ArchiveError> {
    let (head, rest) = split_part(bytes)?;
    let (head, left): (Head, _) = postcard::take_from_bytes(head).map_err(|_| ArchiveError::Damaged)?;
    if left.is_empty() && head.code.is_sound() { Ok((head, rest)) } else { Err(ArchiveError::Damaged) }
}

/// What comes behind a length, and what comes behind that.
pub(crate) fn split_part(bytes: &[u8]) -> Result<(&[u8], &[u8]), ArchiveError> {
    let (length, rest) = split_length(bytes)?;
    rest.split_at_checked(length).ok_or(ArchiveError::Damaged)
}

pub(crate) fn split_length(bytes: &[u8]) -> Result<(usize, &[u8]), ArchiveError> {
    let (length, rest) = bytes.split_first_chunk().ok_or(ArchiveError::Damaged)?;
    Ok((u32::from_le_bytes(*length) as usize, rest))
}

#[cfg(test)]
pub(crate) mod tests;
