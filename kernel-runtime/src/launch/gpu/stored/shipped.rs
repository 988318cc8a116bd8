//! Archives that a program embeds or loads.

use super::{RUNTIME, Wanted};
use crate::error::{Error, Result};
use kernel_archive::{Entry, Head, Identity, Reader, entry};
use std::sync::{PoisonError, RwLock};

/// An archive, with what its entries are.
struct Shipped {
    archive: Reader<'static>,
    heads: Vec<Head>,
}

/// In the order in which they were added. They stay for the life of the process, as the code does that is loaded of them.
static ARCHIVES: RwLock<Vec<&'static Shipped>> = RwLock::new(Vec::new());

/// Adds an archive, and gives how many variants it has. `name` is what errors call it.
pub(crate) fn add(name: &str, bytes: &'static [u8]) -> Result<usize> {
    let refuse = |reason: String| Error::Archive { archive: name.into(), reason: reason.into() };
    let archive = Reader::new(bytes).map_err(|error| refuse(error.to_string()))?;
    let head = |index| entry::decode_head(archive.entry(index)?);
    let heads: Vec<Head> = (0..archive.len()).map(head).collect::<Result<_, _>>().map_err(|e| refuse(e.to_string()))?;
    if let Some(other) = heads.iter().find(|head| head.maker.runtime != RUNTIME) {
        return Err(refuse(format!(
            "it was made by Tilewright {}, and this program has {RUNTIME}; make it anew with the version that the program has",
            other.maker.runtime
        )));
    }
    let count = heads.len();
    let shipped: &'static Shipped = Box::leak(Box::new(Shipped { archive, heads }));
    ARCHIVES.write().unwrap_or_else(PoisonError::into_inner).push(shipped);
    Ok(count)
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
            (entry.head.identity == *identity).then_some(entry)
        })
    })
}

/// The variant that takes most for granted of those that may run where that one is asked for.
pub(super) fn serving(wanted: &Wanted<'_>) -> Option<Entry> {
    let identity = wanted.identity();
    let mut best: Option<(u32, &'static Shipped, usize)> = None;
    for shipped in archives() {
        for (index, head) in shipped.heads.iter().enumerate().filter(|(_, head)| head.identity.serves(&identity)) {
            let facts = head.identity.facts();
            if best.is_none_or(|(most, ..)| facts > most) {
                best = Some((facts, shipped, index));
            }
        }
    }
    let (_, shipped, index) = best?;
    entry::decode(shipped.archive.entry(index).ok()?).ok()
}

/// The variants of a kernel, whatever they are of.
pub(super) fn of_kernel(name: &str) -> Vec<Identity> {
    let all = archives().into_iter().flat_map(|shipped| &shipped.heads);
    all.filter(|head| head.identity.kernel == name).map(|head| head.identity.clone()).collect()
}
