//! Which buffers a graph uses, and what its launches do to them.

use crate::error::Result;
use crate::gate::Gate;
use crate::ledger::Steps;
use crate::ledger::{Ledger, LogPosition, Touch};
use crate::report_slot::LaunchId;
use crate::storage::Storage;
use crate::stream::Stream;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// The buffers, each once.
#[derive(Default)]
pub(super) struct Uses {
    uses: Vec<Use>,
    steps: Arc<Steps>,
}

struct Use {
    storage: Arc<Storage>,
    is_read: bool,
    is_written: bool,
}

/// The buffers while launches are recorded.
#[derive(Default)]
pub(super) struct NewUses {
    uses: Vec<Use>,
    steps: Steps,
    /// Places in `uses` by the address of the storage.
    index: FxHashMap<usize, usize>,
}

impl NewUses {
    /// Adds the use of a part of a buffer by a launch.
    pub(super) fn add(&mut self, storage: &Arc<Storage>, range: Range<usize>, touch: Touch, launch: u64) {
        let place = *self.index.entry(Arc::as_ptr(storage).addr()).or_insert_with(|| {
            storage.gate().shut();
            self.uses.push(Use { storage: storage.clone(), is_read: false, is_written: false });
            self.uses.len() - 1
        });
        self.uses[place].is_read |= touch.reads();
        self.uses[place].is_written |= touch.writes();
        self.steps.add(launch, place, range, touch);
    }

    /// The launch with this number is recorded.
    pub(super) fn end(&mut self, launch: u64, can_fail: bool) {
        self.steps.end(launch, can_fail);
    }

    /// All uses are there.
    pub(super) fn finish(self) -> Uses {
        Uses { uses: self.uses, steps: Arc::new(self.steps) }
    }
}

impl Uses {
    /// What a replay enters.
    pub(super) fn gates(&self) -> impl Iterator<Item = &Gate> {
        self.uses.iter().map(|used| used.storage.gate())
    }

    /// Orders a replay after the other uses of the buffers.
    pub(super) fn begin(&self, stream: &Stream) -> Result<()> {
        for used in &self.uses {
            match used.is_written {
                true => used.storage.begin_write(stream)?,
                false => used.storage.begin_read(stream)?,
            }
        }
        Ok(())
    }

    /// Notes a replay, whose first launch is `first`, behind the gates and before it can end. `is_open` says that it is
    /// not yet known how it ends.
    pub(super) fn note(&self, stream: &Stream, first: LaunchId, is_open: bool) {
        let ledger = stream.ledger();
        if self.steps.can_fail() || self.reads_suspect(ledger) {
            let buffers = self.uses.iter().map(|used| used.storage.contents());
            let place = ledger.lock().append_replay(stream.id(), first, &self.steps, is_open, buffers);
            self.set_suspect(place);
        }
    }

    fn reads_suspect(&self, ledger: &Ledger) -> bool {
        self.uses.iter().any(|used| used.is_read && used.storage.is_suspect(ledger))
    }

    fn set_suspect(&self, place: LogPosition) {
        // Of how many bytes each launch writes there is no need to speak.
        self.uses.iter().filter(|used| used.is_written).for_each(|used| used.storage.set_suspect(place, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::storage::Fill;

    #[test]
    fn a_buffer_is_kept_once_and_each_launch_has_its_uses() -> Result<()> {
        let device = Device::cpu();
        let storage = |len| Storage::new(&device, device.default_stream(), len, 1, Fill::Zero).map(Arc::new);
        let (a, b) = (storage(100)?, storage(100)?);
        let mut uses = NewUses::default();
        uses.add(&a, 0..100, Touch::Read, 0);
        uses.add(&b, 0..50, Touch::Write, 0);
        uses.end(0, true);
        uses.add(&b, 50..100, Touch::Write, 1);
        uses.end(1, false);
        let uses = uses.finish();
        assert_eq!(uses.gates().count(), 2);
        assert!(a.gate().is_shut() && b.gate().is_shut());
        let buffers: Vec<_> = [&a, &b].iter().map(|storage| storage.used(0..0, Touch::Update)).collect();
        let first = LaunchId::next();
        let launches: Vec<_> = uses.steps.launches(first, &buffers).collect();
        assert_eq!((launches[0].0, launches[1].0), (Some(first), None));
        let parts: Vec<_> =
            launches.iter().flat_map(|(_, uses)| uses).map(|used| (used.buffer, used.range())).collect();
        assert_eq!(parts, [(a.contents(), 0..100), (b.contents(), 0..50), (b.contents(), 50..100)]);
        Ok(())
    }
}
