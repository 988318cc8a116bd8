//! Archives that a program embeds or loads.

use super::{RUNTIME, Wanted};
use crate::error::{Error, Result};
use kernel_archive::{Entry, Head, Identity, Maker, Reader, entry};
use std::sync::{OnceLock, PoisonError, RwLock};

/// An archive, with what its entries are.
struct Shipped {
    archive: Reader<'static>,
    /// The numbers and heads of the entries that can be used, once somebody asks for more than one variant.
    heads: OnceLock<Vec<(usize, Head)>>,
}

impl Shipped {
    fn heads(&self) -> &[(usize, Head)] {
        self.heads.get_or_init(|| {
            let head = |index| entry::decode_head(self.archive.entry(index).ok()?).ok();
            let usable = |head: &Head| check_runtime(&head.maker).is_ok();
            (0..self.archive.len()).filter_map(|index| Some((index, head(index).filter(usable)?))).collect()
        })
    }
}

/// In the order in which they were added. They stay for the life of the process, as the code does that is loaded of them.
static ARCHIVES: RwLock<Vec<&'static Shipped>> = RwLock::new(Vec::new());

/// Adds an archive, and gives how many variants it has. `name` is what errors call it. All its variants were made by one
/// version, so the first is looked at; each is held against its checksum when it is launched, so that a program that embeds
/// hundreds begins as fast as one that embeds three.
pub(crate) fn add(name: &str, bytes: &'static [u8]) -> Result<usize> {
    let refuse = |reason: String| Error::Archive { archive: name.into(), reason: reason.into() };
    let archive = Reader::new(bytes).map_err(|error| refuse(error.to_string()))?;
    if !archive.is_empty() {
        let head = archive.entry(0).and_then(entry::decode_head).map_err(|error| refuse(error.to_string()))?;
        check_runtime(&head.maker).map_err(refuse)?;
    }
    let shipped: &'static Shipped = Box::leak(Box::new(Shipped { archive, heads: OnceLock::new() }));
    ARCHIVES.write().unwrap_or_else(PoisonError::into_inner).push(shipped);
    Ok(archive.len())
}

/// Refuses what another version has made, with the reason.
pub(super) fn check_runtime(maker: &Maker) -> Result<(), String> {
    match maker.runtime == RUNTIME {
        true => Ok(()),
        false => Err(format!(
            "it was made by Tilewright {}, and this program has {RUNTIME}; make it anew with the version that the program has",
            maker.runtime
        )),
    }
}

fn archives() -> Vec<&'static Shipped> {
    ARCHIVES.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether there are any.
pub(crate) fn any() -> bool {
    !ARCHIVES.read().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// The variant that a launch asks for, if an archive has it.
pub(super) fn exact(wanted: &Wanted<'_>) -> Option<Entry> {
    let archives = archives();
    if archives.is_empty() {
        return None;
    }
    wanted.find(|identity| {
        archives.iter().find_map(|shipped| {
            let entry = entry::decode(shipped.archive.get(identity.key("")).ok()??).ok()?;
            let is_it = entry.head.identity == *identity && check_runtime(&entry.head.maker).is_ok();
            is_it.then_some(entry)
        })
    })
}

/// The variant that takes most for granted of those that may run where that one is asked for.
pub(super) fn serving(wanted: &Wanted<'_>) -> Option<Entry> {
    let identity = wanted.identity();
    let mut best: Option<(u32, &'static Shipped, usize)> = None;
    for shipped in archives() {
        for (index, head) in shipped.heads().iter().filter(|(_, head)| head.identity.serves(&identity)) {
            let facts = head.identity.facts();
            if best.is_none_or(|(most, ..)| facts > most) {
                best = Some((facts, shipped, *index));
            }
        }
    }
    let (_, shipped, index) = best?;
    entry::decode(shipped.archive.entry(index).ok()?).ok()
}

/// The variants of a kernel, whatever they are of.
pub(super) fn of_kernel(name: &str) -> Vec<Identity> {
    let all = archives().into_iter().flat_map(Shipped::heads);
    all.filter(|(_, head)| head.identity.kernel == name).map(|(_, head)| head.identity.clone()).collect()
}
