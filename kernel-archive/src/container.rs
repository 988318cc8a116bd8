//! The bytes of an archive: what lies where, and whether it is what was written.
//!
//! ```text
//! 0   magic                    "TWARCH\r\n"
//! 8   version of the format    u32
//! 12  number of entries        u32
//! 16  checksum                 of the two numbers and the index: the first 16 bytes of its BLAKE3
//! 32  index                    80 bytes an entry, by ascending key:
//!                              key [32], offset u64, length u64, checksum of the entry [32]
//! ..  entries                  one behind the other, the last ends the file
//! ```
//!
//! Numbers are little-endian. The index is held against its checksum when an archive is opened, an entry when it is read:
//! opening an archive of thousands of kernels costs microseconds, and a program that uses three of them reads three.

use crate::error::ArchiveError;

/// Changes with everything that makes an older reader misunderstand a file.
pub const FORMAT: u32 = 2;

const MAGIC: [u8; 8] = *b"TWARCH\r\n";
const HEADER_BYTES: usize = 32;
const ROW_BYTES: usize = 80;
const CHECKSUM_BYTES: usize = 16;

/// What an entry is found by: the hash of everything that its code depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl std::fmt::Display for Key {
    /// In hexadecimal digits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({self})")
    }
}

/// The bytes of an archive of these entries. Of several with one key, the last is kept.
pub fn write(entries: &[(Key, &[u8])]) -> Vec<u8> {
    let mut sorted: Vec<&(Key, &[u8])> = entries.iter().rev().collect();
    sorted.sort_by_key(|(key, _)| *key);
    sorted.dedup_by_key(|(key, _)| *key);
    let mut rows = Vec::with_capacity(sorted.len() * ROW_BYTES);
    let mut offset = (HEADER_BYTES + sorted.len() * ROW_BYTES) as u64;
    for (key, bytes) in &sorted {
        rows.extend(key.0);
        rows.extend(offset.to_le_bytes());
        rows.extend((bytes.len() as u64).to_le_bytes());
        rows.extend(blake3::hash(bytes).as_bytes());
        offset += bytes.len() as u64;
    }
    let mut file = Vec::with_capacity(offset as usize);
    file.extend(MAGIC);
    file.extend(FORMAT.to_le_bytes());
    file.extend((sorted.len() as u32).to_le_bytes());
    let checksum = header_checksum(&file[MAGIC.len()..], &rows);
    file.extend(checksum);
    file.extend(rows);
    sorted.iter().for_each(|(_, bytes)| file.extend(*bytes));
    file
}

fn header_checksum(numbers: &[u8], rows: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = blake3::Hasher::new().update(numbers).update(rows).finalize();
    std::array::from_fn(|index| hash.as_bytes()[index])
}

/// An archive whose index has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    file: &'a [u8],
    rows: &'a [u8],
}

/// A line of the index.
struct Row<'a> {
    key: Key,
    entry: &'a [u8],
    checksum: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Opens an archive.
    ///
    /// # Errors
    /// If these bytes are no archive, one of another version of the format, or damaged.
    pub fn new(file: &'a [u8]) -> Result<Reader<'a>, ArchiveError> {
        let (header, rest) = file.split_at_checked(HEADER_BYTES).ok_or(ArchiveError::NoArchive)?;
        if header[..MAGIC.len()] != MAGIC {
            return Err(ArchiveError::NoArchive);
        }
        let found = u32_at(header, MAGIC.len());
        if found != FORMAT {
            return Err(ArchiveError::Version { found });
        }
        let count = u32_at(header, MAGIC.len() + 4) as usize;
        let length = count.checked_mul(ROW_BYTES).ok_or(ArchiveError::Damaged)?;
        let rows = rest.get(..length).ok_or(ArchiveError::Damaged)?;
        let numbers = &header[MAGIC.len()..HEADER_BYTES - CHECKSUM_BYTES];
        if header[HEADER_BYTES - CHECKSUM_BYTES..] != header_checksum(numbers, rows) {
            return Err(ArchiveError::Damaged);
        }
        let reader = Reader { file, rows };
        // What was cut off, or has grown, is no longer what the index speaks of.
        let mut end = HEADER_BYTES + length;
        for row in rows.chunks_exact(ROW_BYTES) {
            let (from, to) = bounds(row).ok_or(ArchiveError::Damaged)?;
            if from != end || to > file.len() {
                return Err(ArchiveError::Damaged);
            }
            end = to;
        }
        if end == file.len() { Ok(reader) } else { Err(ArchiveError::Damaged) }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.rows.len() / ROW_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = Key> + 'a {
        self.rows.chunks_exact(ROW_BYTES).map(key)
    }

    /// The entry with that key; `None` if there is none.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] if it is not what was written.
    pub fn get(&self, wanted: Key) -> Result<Option<&'a [u8]>, ArchiveError> {
        let rows: &[[u8; ROW_BYTES]] = self.rows.as_chunks().0;
        match rows.binary_search_by_key(&wanted, |row| key(row)) {
            Ok(index) => self.entry(index).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The entry with that number, in the order of the keys.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] if it is not what was written, or there is none.
    pub fn entry(&self, index: usize) -> Result<&'a [u8], ArchiveError> {
        let row = self.row(index).ok_or(ArchiveError::Damaged)?;
        if row.checksum != blake3::hash(row.entry).as_bytes() {
            return Err(ArchiveError::Damaged);
        }
        Ok(row.entry)
    }

    /// The key of the entry with that number.
    pub fn key(&self, index: usize) -> Option<Key> {
        self.row(index).map(|row| row.key)
    }

    fn row(&self, index: usize) -> Option<Row<'a>> {
        let row = self.rows.chunks_exact(ROW_BYTES).nth(index)?;
        let (from, to) = bounds(row)?;
        Some(Row { key: key(row), entry: self.file.get(from..to)?, checksum: &row[48..] })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn key(row: &[u8]) -> Key {
    Key(std::array::from_fn(|index| row[index]))
}

/// Where an entry begins and ends, if that can be said.
fn bounds(row: &[u8]) -> Option<(usize, usize)> {
    let from = usize::try_from(u64_at(row, 32)).ok()?;
    let length = usize::try_from(u64_at(row, 40)).ok()?;
    Some((from, from.checked_add(length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key([byte; 32])
    }

    fn sample() -> Vec<u8> {
        write(&[(key(7), b"seven"), (key(3), b""), (key(9), &[1; 1000]), (key(7), b"the last one of seven")])
    }

    #[test]
    fn what_is_written_is_read() {
        let file = sample();
        let archive = Reader::new(&file).expect("an archive");
        assert_eq!((archive.len(), archive.keys().collect::<Vec<_>>()), (3, vec![key(3), key(7), key(9)]));
        assert_eq!(archive.get(key(7)), Ok(Some(&b"the last one of seven"[..])));
        assert_eq!((archive.get(key(3)), archive.get(key(4))), (Ok(Some(&b""[..])), Ok(None)));
        assert_eq!((archive.entry(2).map(<[u8]>::len), archive.entry(3)), (Ok(1000), Err(ArchiveError::Damaged)));
        assert!(Reader::new(&write(&[])).is_ok_and(|archive| archive.is_empty()));
    }

    /// Every change of a byte, every cut and every growth is noticed before anything is believed.
    #[test]
    fn no_damage_goes_unnoticed() {
        let file = sample();
        let keys = [key(3), key(7), key(9)];
        let whole = |file: &[u8]| {
            Reader::new(file).is_ok_and(|archive| keys.iter().all(|key| archive.get(*key).is_ok_and(|it| it.is_some())))
        };
        assert!(whole(&file));
        for at in 0..file.len() {
            for flip in [1u8, 0x80, 0xff] {
                let mut changed = file.clone();
                changed[at] ^= flip;
                assert!(!whole(&changed), "byte {at} ^ {flip:#x}");
            }
            assert!(Reader::new(&file[..at]).is_err(), "cut at {at}");
        }
        let grown = [file.as_slice(), &[0]].concat();
        assert_eq!(Reader::new(&grown).err(), Some(ArchiveError::Damaged));
        assert_eq!(Reader::new(b"#!/bin/sh\nwhatever else this is, it is long").err(), Some(ArchiveError::NoArchive));
        let mut newer = file;
        newer[8] = 3;
        assert_eq!(Reader::new(&newer).err(), Some(ArchiveError::Version { found: 3 }));
    }
}
