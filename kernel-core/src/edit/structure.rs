//! What is around what, and what comes before what.

use std::ops::Range;

use crate::ir::{Func, OpId, RegionId};

/// The nesting and the order of a kernel's operations, as they were when this was made.
#[derive(Clone, Debug)]
pub struct Structure {
    order: Vec<OpId>,
    /// By operation; `None` for those that no region lists.
    ops: Vec<Option<Spot>>,
    /// By region.
    regions: Vec<Around>,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug)]
struct Spot {
    region: RegionId,
    /// Its position in program order.
    start: u32,
    /// The position behind the last operation in its regions.
    end: u32,
}

/// What is around a region.
#[derive(Clone, Copy, Default, Debug)]
struct Around {
    owner: Option<OpId>,
    depth: u32,
}

impl Structure {
    /// The structure of a kernel.
    pub fn new(func: &Func) -> Structure {
        let (ops, regions) = (vec![None; func.ops.len()], vec![Around::default(); func.regions.len()]);
        let mut structure = Structure { order: Vec::new(), ops, regions };
        structure.visit(func, func.body, 0);
        structure
    }

    fn visit(&mut self, func: &Func, region: RegionId, depth: u32) {
        self.regions[region.index()].depth = depth;
        for (id, operation) in func.region_ops(region) {
            let start = self.order.len() as u32;
            self.order.push(id);
            for &inner in &operation.regions {
                self.regions[inner.index()].owner = Some(id);
                self.visit(func, inner, depth + 1);
            }
            self.ops[id.index()] = Some(Spot { region, start, end: self.order.len() as u32 });
        }
    }

    fn spot(&self, op: OpId) -> Option<Spot> {
        self.ops.get(op.index()).copied().flatten()
    }

    /// All operations in program order, an operation before those in its regions.
    pub fn order(&self) -> &[OpId] {
        &self.order
    }

    /// The positions in program order of an operation and of all in its regions; empty for one that no region lists.
    pub fn extent(&self, op: OpId) -> Range<u32> {
        self.spot(op).map_or(0..0, |spot| spot.start..spot.end)
    }

    /// The region that lists an operation; `None` if none does.
    pub fn region_of(&self, op: OpId) -> Option<RegionId> {
        self.spot(op).map(|spot| spot.region)
    }

    /// The operation that owns a region; `None` for the kernel's body.
    pub fn owner(&self, region: RegionId) -> Option<OpId> {
        self.regions.get(region.index())?.owner
    }

    /// How many regions are around a region.
    pub fn depth(&self, region: RegionId) -> usize {
        self.regions.get(region.index()).map_or(0, |around| around.depth as usize)
    }

    /// The operations around an operation, the innermost first.
    pub fn around(&self, op: OpId) -> impl Iterator<Item = OpId> {
        let parent = |op: OpId| self.owner(self.region_of(op)?);
        std::iter::successors(parent(op), move |&op| parent(op))
    }

    /// Whether a region is `inner`, or is around it.
    pub fn encloses(&self, region: RegionId, inner: RegionId) -> bool {
        let outwards = |&inner: &RegionId| self.region_of(self.owner(inner)?);
        std::iter::successors(Some(inner), outwards).any(|around| around == region)
    }
}
