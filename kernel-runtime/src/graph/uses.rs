//! Which buffers a graph uses, and which of its launches wrote them last.

use crate::error::Result;
use crate::gate::Gate;
use crate::record::LaunchId;
use crate::storage::Storage;
use crate::stream::Stream;
use crate::tracking::PARTS_LIMIT;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// The buffers, each once.
#[derive(Default)]
pub(super) struct Uses {
    uses: Vec<Use>,
    /// Places in `uses` by the address of the storage, while launches are recorded.
    index: FxHashMap<usize, usize>,
}

struct Use {
    storage: Arc<Storage>,
    /// Bytes that are written, with the launch that does it, in the order of launches. What a
    /// later launch overwrites is left out.
    writes: Vec<(Range<usize>, u64)>,
}

impl Uses {
    /// Adds the use of a buffer by a launch, which writes these bytes of it.
    pub(super) fn add(&mut self, storage: &Arc<Storage>, written: Option<Range<usize>>, launch: u64) {
        let place = *self.index.entry(Arc::as_ptr(storage).addr()).or_insert_with(|| {
            storage.gate().shut();
            self.uses.push(Use { storage: storage.clone(), writes: Vec::new() });
            self.uses.len() - 1
        });
        if let Some(range) = written {
            let writes = &mut self.uses[place].writes;
            writes.retain(|(earlier, _)| !(range.start <= earlier.start && earlier.end <= range.end));
            if writes.len() >= PARTS_LIMIT {
                // As for launches: its errors are still delivered by synchronising.
                writes.remove(0);
            }
            writes.push((range, launch));
        }
    }

    /// All uses are there.
    pub(super) fn finish(self) -> Self {
        Uses { uses: self.uses, index: FxHashMap::default() }
    }

    /// What a replay enters.
    pub(super) fn gates(&self) -> impl Iterator<Item = &Gate> {
        self.uses.iter().map(|used| used.storage.gate())
    }

    /// Orders a replay, whose first launch is `first`, after the other uses of the buffers.
    pub(super) fn begin(&self, stream: &Stream, first: LaunchId) -> Result<()> {
        for used in &self.uses {
            if used.writes.is_empty() {
                used.storage.begin_read(stream)?;
            }
            for (range, launch) in &used.writes {
                used.storage.begin_write(stream, range.clone(), first.plus(*launch))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::storage::Fill;

    #[test]
    fn later_writes_replace_what_they_cover() -> Result<()> {
        let device = Device::cpu();
        let storage = |len| Storage::new(&device, device.default_stream(), len, 1, Fill::Zero).map(Arc::new);
        let (a, b) = (storage(100)?, storage(100)?);
        let mut uses = Uses::default();
        uses.add(&a, None, 0);
        uses.add(&b, Some(0..50), 0);
        uses.add(&b, Some(50..100), 1);
        uses.add(&b, Some(40..100), 2);
        uses.add(&a, None, 2);
        let uses = uses.finish();
        let writes: Vec<_> = uses.uses.iter().map(|used| used.writes.clone()).collect();
        assert_eq!(writes, [vec![], vec![(0..50, 0), (40..100, 2)]]);
        assert_eq!(uses.gates().count(), 2);
        assert!(a.gate().is_shut() && b.gate().is_shut());
        Ok(())
    }
}
