//! What the GPU operations of a program have done so far: phases of barriers, and copies, products and stores in flight.

use std::collections::HashMap;

use crate::ir::{DType, LayoutId, ParamId};

use super::instructions::Wgmma;
use super::lanes::Fn2;
use super::order::{Order, Owner};
use super::registers::Pc;
use super::warp_turns::Late;

/// What poisoned shared memory is filled with: NaN in every float dtype.
pub(super) const POISON: u8 = 0xff;

/// A barrier with phases.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    /// Arrivals that complete a phase.
    pub(super) count: u32,
    /// Arrivals in the current phase.
    pub(super) arrived: u32,
    /// Phases completed so far.
    pub(super) completed: u64,
    /// Bytes that the current phase expects beyond arrivals.
    pub(super) expected: usize,
    /// Copies that count on the current phase.
    pub(super) copies: Vec<Landing>,
}

impl Barrier {
    pub(super) fn new(count: u32) -> Barrier {
        Barrier { count, arrived: 0, completed: 0, expected: 0, copies: Vec::new() }
    }

    /// Whether the phase is complete but for the copies, whose bytes are those expected.
    pub(super) fn ready(&self) -> bool {
        self.arrived >= self.count && self.expected == self.copies.iter().map(|c| c.data.len()).sum::<usize>()
    }
}

/// A copy that a barrier counts.
#[derive(Clone, Debug)]
pub(super) struct Landing {
    pub(super) view: u64,
    pub(super) dims: Box<[usize]>,
    pub(super) element: usize,
    pub(super) data: Vec<u8>,
    /// Its number in the order of accesses.
    pub(super) flight: u64,
}

/// An asynchronous copy in flight.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) landing: Landing,
    pub(super) layout: Option<LayoutId>,
    /// The group that it belongs to, once that is committed.
    pub(super) group: Option<u64>,
}

/// The asynchronous copies of one warp group.
#[derive(Default, Debug)]
pub(super) struct Queue {
    pub(super) copies: Vec<Copy>,
    pub(super) committed: u64,
    pub(super) flights: Flights,
    /// While half of the group has its turn, how the other half is late.
    pub(super) turn: Option<Vec<Late>>,
}

/// What a program's GPU operations have done so far.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) barriers: Vec<Barrier>,
    pub(super) queues: Vec<Queue>,
    /// The queue of the warp group that runs.
    pub(super) current: usize,
    /// Warp groups of a program that lets others run, those of the innermost first.
    pub(super) parked: Vec<Parked>,
    /// Strides of views that are not row-major, in elements; handles name them.
    pub(super) strides: Vec<Box<[usize]>>,
    pub(super) landed: Landed,
    /// Stores of warp groups that ended without waiting for them.
    pub(super) orphans: Vec<StoreInFlight>,
    /// The order of accesses to shared memory, if it is checked.
    pub(super) order: Option<Box<Order>>,
}

impl Gpu {
    /// What the warp group that runs has in flight.
    pub(super) fn flights(&mut self) -> &mut Flights {
        &mut self.queues[self.current].flights
    }

    /// Stores that were never waited for.
    pub(super) fn unfinished_stores(&mut self) -> Vec<StoreInFlight> {
        let mut stores = std::mem::take(&mut self.orphans);
        for queue in &mut self.queues {
            stores.append(&mut queue.flights.stores);
        }
        stores
    }
}

impl Gpu {
    /// The state at the start of a program.
    pub(super) fn new(ordered: bool) -> Gpu {
        Gpu {
            order: ordered.then(Box::default),
            barriers: Vec::new(),
            queues: vec![Queue::default()],
            current: 0,
            parked: Vec::new(),
            strides: Vec::new(),
            landed: Landed::default(),
            orphans: Vec::new(),
        }
    }
}

/// A tile that exists, or will when a product is done.
#[derive(Clone, Debug)]
pub(super) enum Tile {
    Known(Vec<u8>),
    Flight(u64),
}

/// A factor: a tile in registers, or what a view holds when it is read.
#[derive(Clone, Debug)]
pub(super) enum Factor {
    Tile(Vec<u8>),
    View(u64),
}

/// A product in flight.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) group: u64,
    pub(super) wgmma: Wgmma,
    pub(super) a: Factor,
    pub(super) b: u64,
    pub(super) acc: Tile,
    /// The numbers of its reads in the order of accesses.
    pub(super) reads: Vec<u64>,
}

/// A store of a view in flight.
#[derive(Clone, Debug)]
pub(super) struct StoreInFlight {
    pub(super) group: u64,
    pub(super) param: ParamId,
    pub(super) dtype: DType,
    pub(super) dims: Box<[usize]>,
    pub(super) at: Vec<i64>,
    pub(super) view: u64,
    pub(super) reduce: Option<Fn2>,
    /// The number of its read in the order of accesses.
    pub(super) read: u64,
    pub(super) owner: Owner,
}

/// Products and stores of one warp group.
#[derive(Default, Debug)]
pub(super) struct Flights {
    pub(super) products: Vec<Pending>,
    pub(super) product_groups: u64,
    pub(super) stores: Vec<StoreInFlight>,
    pub(super) store_groups: u64,
}

/// Results of products that are done and have not been asked for.
#[derive(Default, Debug)]
pub(super) struct Landed {
    pub(super) next: u64,
    pub(super) results: HashMap<u64, Vec<u8>>,
}

/// The groups of an instruction whose program lets others run.
#[derive(Debug)]
pub(super) struct Parked {
    /// The instruction.
    pub(super) at: Pc,
    pub(super) running: Running,
}

/// Groups that run.
#[derive(Debug)]
pub(super) struct Running {
    /// Where each goes on, if it has not ended.
    pub(super) groups: Vec<Option<Pc>>,
    /// The queue of the first group; the others follow.
    pub(super) first_queue: usize,
    /// The queue of the program around them.
    pub(super) around: usize,
}
