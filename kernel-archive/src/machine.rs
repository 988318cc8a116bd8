//! Machine code of a variant: what a GPU of one compute capability runs, made from the variant's PTX.
//!
//! ```text
//! length of the head u32, head (postcard), length of the code u32, code (LZ4)
//! ```
//!
//! PTX runs on GPUs that come later, and with every driver that knows its version; a driver compiles it when it is loaded.
//! Machine code is loaded as it is, by drivers that are not older than what made it, on its own GPUs. So it stands beside
//! PTX and never instead of it.

use serde::{Deserialize, Serialize};

use crate::container::Key;
use crate::entry::{split_length, split_part, unpack};
use crate::error::ArchiveError;

/// Changes with what is hashed for [`Machine::key`] or how machine code is written.
const VERSION: &str = "machine code 1";

/// Code for one kind of GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// What is known of it.
    pub head: MachineHead,
    /// The code, as a driver loads it: a cubin.
    pub image: Vec<u8>,
}

/// What is known of machine code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MachineHead {
    /// The compute capability that runs it: 90 for 9.0.
    pub capability: u32,
    /// Who has made it: a driver, or ptxas, with the version.
    pub maker: String,
    /// For how many programs per multiprocessor it was asked to make room.
    pub min_programs: Option<u32>,
    /// Bytes of spilled registers of a thread.
    pub local_bytes: u32,
    /// What the assembler said.
    pub log: String,
}

impl Machine {
    /// What machine code is found by in a cache: the PTX that it was made from, the GPU that runs it, and the driver that
    /// it is for, so that another driver makes its own.
    pub fn key(ptx: &str, capability: u32, driver: &str) -> Key {
        let mut hasher = blake3::Hasher::new();
        for part in [VERSION, driver, ptx] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        Key(*hasher.update(&capability.to_le_bytes()).finalize().as_bytes())
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Lists and strings in memory can always be written.
        let head = postcard::to_allocvec(&self.head).unwrap_or_default();
        let packed = lz4_flex::block::compress(&self.image);
        let mut bytes = Vec::with_capacity(8 + head.len() + packed.len());
        bytes.extend((head.len() as u32).to_le_bytes());
        bytes.extend(head);
        bytes.extend((self.image.len() as u32).to_le_bytes());
        bytes.extend(packed);
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] if this is none.
    pub fn decode(bytes: &[u8]) -> Result<Machine, ArchiveError> {
        let (head, rest) = split_part(bytes)?;
        let (head, left) = postcard::take_from_bytes(head).map_err(|_| ArchiveError::Damaged)?;
        let (length, packed) = split_length(rest)?;
        let image = unpack(packed, length)?;
        if left.is_empty() { Ok(Machine { head, image }) } else { Err(ArchiveError::Damaged) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Something of everything.
    pub(crate) fn sample() -> Machine {
        let maker = "ptxas 13.0.88".to_string();
        let head =
            MachineHead { capability: 90, maker, min_programs: Some(2), local_bytes: 8, log: "168 registers".into() };
        Machine { head, image: b"\x7fELF, and what follows, and what follows".repeat(9) }
    }

    #[test]
    fn machine_code_is_read_as_it_was_written() {
        let machine = sample();
        let bytes = machine.encode();
        assert_eq!(Machine::decode(&bytes), Ok(machine.clone()));
        assert!(bytes.len() < machine.image.len(), "it is packed: {} bytes", bytes.len());
        for cut in 0..bytes.len() {
            assert!(Machine::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn everything_that_code_depends_on_is_in_its_key() {
        let key = Machine::key("ptx", 90, "13.0");
        assert_eq!(key, Machine::key("ptx", 90, "13.0"));
        for other in
            [("ptx ", 90, "13.0"), ("ptx", 89, "13.0"), ("ptx", 90, "13.1"), ("0ptx", 90, "13."), ("", 90, "13.0ptx")]
        {
            assert_ne!(key, Machine::key(other.0, other.1, other.2), "{other:?}");
        }
    }
}
