//! Memory that the driver knows: the GPU's, and page-locked memory of the host.
//!
//! Addresses of the GPU are no addresses of the process, so that code that follows one on the host crashes. Memory has a
//! life, which begins and ends with operations; each access must lie between them *in the order that was asked for*,
//! however things happen to run. Memory that is new, or that has been given back, is full of [`POISON`].

use super::shadow::{Shadow, Touched};
use super::work::Point;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What memory holds that nobody has written: a large negative number in every dtype.
const POISON: u8 = 0xe9;
/// Where the GPU's memory begins. Programs have nothing there.
const FIRST: u64 = 0x2_0000_0000;
/// Allocations start at multiples of this, as those of the driver do.
const ALIGNMENT: u64 = 512;

/// What kind of memory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Of `cuMemAlloc`.
    Device,
    /// Of `cuMemAllocAsync`.
    Pool,
    /// Of `cuMemHostAlloc`.
    Host,
}

/// From an allocation to its end.
struct Life {
    bytes: u64,
    kind: Kind,
    context: usize,
    born: Arc<Point>,
    dies: Option<Arc<Point>>,
    /// The last use on each line.
    uses: Vec<(usize, u64)>,
}

/// A range of addresses, which several allocations may have one after another.
struct Region {
    capacity: u64,
    data: Vec<u8>,
    /// Instead of `data`, for memory of the host.
    host: *mut u8,
    lives: Vec<Life>,
    shadow: Shadow,
    /// Of memory that a graph allocates at each launch: how many bytes, and in which context. Nobody else is given it.
    of_graph: Option<(u64, usize)>,
}

// SAFETY: the pointer is to memory that the region owns; regions are used under the model's lock.
unsafe impl Send for Region {}

impl Region {
    fn start(&mut self) -> *mut u8 {
        if self.host.is_null() { self.data.as_mut_ptr() } else { self.host }
    }
}

/// What is known of an address.
pub(crate) struct Found {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) context: usize,
}

/// All memory.
pub(crate) struct Space {
    regions: BTreeMap<u64, Region>,
    next: u64,
    used: u64,
    total: u64,
    races: Vec<String>,
}

fn rounded(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(ALIGNMENT)
}

impl Space {
    pub(crate) fn new(total: u64) -> Self {
        Space { regions: BTreeMap::new(), next: FIRST, used: 0, total, races: Vec::new() }
    }

    /// Free and total bytes.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        (self.total - self.used, self.total)
    }

    /// Takes an address for an allocation; `None` if memory is out. Memory that has been given back before the point
    /// `again` is given out again, as pools do.
    pub(crate) fn reserve(&mut self, bytes: u64, again: Option<&Point>) -> Option<u64> {
        let capacity = rounded(bytes)?;
        if capacity > self.total - self.used {
            return None;
        }
        let is_free = |region: &Region, point: &Point| {
            let ended = region.lives.last().and_then(|life| life.dies.as_ref());
            let is_like = region.capacity == capacity && region.host.is_null() && region.of_graph.is_none();
            is_like && ended.is_some_and(|end| end.is_before(point))
        };
        let old = again.and_then(|point| self.regions.iter().find(|(_, region)| is_free(region, point)));
        let base = match old {
            Some((base, _)) => *base,
            None => {
                let mut data = Vec::new();
                data.try_reserve_exact(usize::try_from(capacity).ok()?).ok()?;
                data.resize(capacity as usize, POISON);
                let base = self.next;
                // A page between allocations, so that what runs over an end hits nothing.
                self.next += capacity.next_multiple_of(4096) + 4096;
                let (host, lives, shadow) = (std::ptr::null_mut(), Vec::new(), Shadow::default());
                self.regions.insert(base, Region { capacity, data, host, lives, shadow, of_graph: None });
                base
            }
        };
        self.used += capacity;
        Some(base)
    }

    /// The life of what was reserved begins at a point.
    pub(crate) fn begin(&mut self, base: u64, bytes: u64, kind: Kind, context: usize, born: &Arc<Point>) {
        if let Some(region) = self.regions.get_mut(&base) {
            region.lives.push(Life { bytes, kind, context, born: born.clone(), dies: None, uses: Vec::new() });
        }
    }

    /// What was reserved is of a graph: each launch gives it a life.
    pub(crate) fn give_to_graph(&mut self, base: u64, bytes: u64, context: usize) {
        if let Some(region) = self.regions.get_mut(&base) {
            region.of_graph = Some((bytes, context));
        }
    }

    /// Whether memory is of a graph.
    pub(crate) fn is_of_graph(&self, base: u64) -> bool {
        self.regions.get(&base).is_some_and(|region| region.of_graph.is_some())
    }

    /// Whether memory has been given a life whose end nobody has asked for.
    pub(crate) fn is_alive(&self, base: u64) -> bool {
        self.regions.get(&base).and_then(|region| region.lives.last()).is_some_and(|life| life.dies.is_none())
    }

    /// A launch gives memory of a graph a life. Whether the one before has ended.
    pub(crate) fn begin_again(&mut self, base: u64, born: &Arc<Point>) -> bool {
        let Some(region) = self.regions.get_mut(&base) else { return false };
        let Some((bytes, context)) = region.of_graph else { return false };
        let has_ended = region.lives.last().is_none_or(|life| life.dies.is_some());
        let (born, kind) = (born.clone(), Kind::Pool);
        region.lives.push(Life { bytes, kind, context, born, dies: None, uses: Vec::new() });
        has_ended
    }

    /// Adds memory of the host, which begins to live.
    pub(crate) fn add_host(&mut self, memory: *mut u8, bytes: u64, context: usize, born: &Arc<Point>) {
        let life = Life { bytes, kind: Kind::Host, context, born: born.clone(), dies: None, uses: Vec::new() };
        let (data, lives, shadow) = (Vec::new(), vec![life], Shadow::default());
        let region = Region { capacity: bytes, data, host: memory, lives, shadow, of_graph: None };
        self.regions.insert(memory.expose_provenance() as u64, region);
    }

    /// What lives at an address, as far as the host has asked for.
    pub(crate) fn find(&self, address: u64) -> Option<Found> {
        let (base, region) = self.regions.range(..=address).next_back()?;
        let life = region.lives.last().filter(|life| life.dies.is_none());
        let life = life.map(|life| (life.bytes, life.kind, life.context));
        // Memory of a graph lives, for what is captured, whether a launch has given it a life or not.
        let (bytes, kind, context) =
            life.or_else(|| region.of_graph.map(|(bytes, context)| (bytes, Kind::Pool, context)))?;
        (address - base < bytes.max(1)).then_some(Found { base: *base, bytes, kind, context })
    }

    /// Ends the life of an allocation, which begins at the address, at a point.
    pub(crate) fn end(&mut self, address: u64, dies: &Arc<Point>) -> Result<Kind, String> {
        let Some(region) = self.regions.get_mut(&address) else {
            return Err(format!("{address:#x} is freed, which is the start of no allocation"));
        };
        match region.lives.last_mut() {
            Some(life) if life.dies.is_none() => {
                life.dies = Some(dies.clone());
                if region.of_graph.is_some() {
                    return Ok(life.kind);
                }
                self.used -= rounded(life.bytes).unwrap_or(0).min(self.used);
                Ok(life.kind)
            }
            Some(Life { dies: Some(end), .. }) => {
                Err(format!("{address:#x} is freed a second time; call {} has freed it", end.call))
            }
            Some(_) | None => Err(format!("{address:#x} is freed, and was never allocated")),
        }
    }

    /// The beginning of a life, on the GPU.
    pub(crate) fn born(&mut self, point: &Arc<Point>, base: u64) -> Result<(), String> {
        let region = self.regions.get_mut(&base).ok_or("memory that is nowhere")?;
        let last = region.lives.last().is_some_and(|life| Arc::ptr_eq(&life.born, point));
        if last {
            region.data.fill(POISON);
            region.shadow = Shadow::default();
        }
        Ok(())
    }

    /// The end of a life, on the GPU or by the host.
    pub(crate) fn died(&mut self, point: &Arc<Point>, base: u64) -> Result<(), String> {
        let region = self.regions.get_mut(&base).ok_or("memory that is nowhere")?;
        let is_last = |index: usize| index + 1 == region.lives.len();
        let ended = |life: &Life| life.dies.as_ref().is_some_and(|end| Arc::ptr_eq(end, point));
        let Some(index) = region.lives.iter().position(ended) else { return Ok(()) };
        if is_last(index) {
            region.data.fill(POISON);
            if !region.host.is_null() {
                // SAFETY: the memory is the region's, and as long.
                unsafe { region.host.write_bytes(POISON, region.capacity as usize) };
            }
        }
        let life = &region.lives[index];
        let early = life.uses.iter().find(|(line, count)| !point.has_passed(*line, *count));
        match early {
            Some(_) => Err(format!(
                "{base:#x} is freed by call {} while a use of it may still run: nothing orders the free behind it",
                point.call
            )),
            None => Ok(()),
        }
    }

    /// The memory at an address, for an operation; an error if it must not touch it.
    pub(crate) fn locate(&mut self, point: &Point, address: u64, len: usize) -> Result<Place, String> {
        let what = || format!("{len} bytes at {address:#x}, which call {} asks for", point.call);
        let found = self.regions.range_mut(..=address).next_back();
        let Some((&base, region)) = found.filter(|(base, region)| address - **base < region.capacity.max(1)) else {
            return Err(format!("{}, are no memory", what()));
        };
        let start = region.start();
        let Some(life) = region.lives.iter_mut().rev().find(|life| life.born.is_before(point)) else {
            let born = region.lives.last().map_or(0, |life| life.born.call);
            return Err(format!("{}, are not ordered behind their allocation by call {born}", what()));
        };
        if address + len as u64 > base + life.bytes {
            return Err(format!("{}, are not inside the {} bytes at {base:#x}", what(), life.bytes));
        }
        if let Some(end) = &life.dies {
            if end.is_before(point) {
                return Err(format!("{}, are used after call {} has freed them", what(), end.call));
            }
            if !point.is_before(end) {
                return Err(format!("{}, are not ordered before call {} frees them", what(), end.call));
            }
        }
        let (line, count) = point.place();
        match life.uses.iter_mut().find(|(known, _)| *known == line) {
            Some((_, last)) => *last = (*last).max(count),
            None => life.uses.push((line, count)),
        }
        Ok(Place { base, end: base + life.bytes, start })
    }

    /// The bytes at an address, for an operation that reads them.
    pub(crate) fn read(&mut self, point: &Point, address: u64, len: usize) -> Result<&[u8], String> {
        self.bytes(point, address, len, false).map(|place| &*place)
    }

    /// The bytes at an address, for an operation that writes them.
    pub(crate) fn write(&mut self, point: &Point, address: u64, len: usize) -> Result<&mut [u8], String> {
        self.bytes(point, address, len, true)
    }

    fn bytes(&mut self, point: &Point, address: u64, len: usize, writes: bool) -> Result<&mut [u8], String> {
        if len == 0 {
            return Ok(&mut []);
        }
        let place = self.locate(point, address, len)?;
        self.touch(point, address..address + len as u64, writes);
        // SAFETY: the range is inside memory that the space owns and that is borrowed with it.
        Ok(unsafe { std::slice::from_raw_parts_mut(place.start.add((address - place.base) as usize), len) })
    }
}

impl Space {
    /// Notes what a kernel has touched, when it is done.
    pub(crate) fn touch_all(&mut self, point: &Point, touched: &Touched) {
        for writes in [false, true] {
            touched.ranges(writes).into_iter().for_each(|range| self.touch(point, range, writes));
        }
    }

    fn touch(&mut self, point: &Point, range: Range<u64>, writes: bool) {
        let Some((_, region)) = self.regions.range_mut(..=range.start).next_back() else { return };
        if let Some(other) = region.shadow.touch(range.clone(), point, writes) {
            let what = if writes { "writes" } else { "reads" };
            self.races.push(format!(
                "call {} {what} {} bytes at {:#x}, which call {other} may use at the same time: nothing orders the two",
                point.call,
                range.end - range.start,
                range.start
            ));
        }
    }

    /// What was touched at the same time, since the last look.
    pub(crate) fn take_races(&mut self) -> Vec<String> {
        std::mem::take(&mut self.races)
    }
}

/// An allocation's memory.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) start: *mut u8,
}
