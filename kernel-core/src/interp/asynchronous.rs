//! Asynchronous products and copies of blocks, with adversarial timing.
//!
//! A `wgmma` reads its views when the wait that covers it runs, and no earlier; until then its result is poison that
//! knows which product it will be. A `tma_load` lands when its barrier is waited for; a `tma_store` reads its view at
//! the wait that covers it, or finds poison if there is none.

use crate::ir::{DType, GroupPart};

use super::desc::Direction;
use super::executor::{Executor, Flow};
use super::gpu_state::{Factor, POISON, Pending, StoreInFlight, Tile};
use super::instructions::{Block, Wgmma};
use super::lanes::Fn2;
use super::order::{Owner, Touch};
use super::registers::{Holders, Parts, Pc, RegId};

/// Memory aligned for every element.
fn words(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

/// Makes all elements of so many bytes zero but those that `stays` names.
fn leave(tile: &mut [u64], bytes: usize, stays: impl Fn(usize) -> bool) {
    // SAFETY: words are bytes.
    let all = unsafe { std::slice::from_raw_parts_mut(tile.as_mut_ptr().cast::<u8>(), 8 * tile.len()) };
    let others = all.chunks_exact_mut(bytes).enumerate().filter(|(at, _)| !stays(*at));
    others.for_each(|(_, element)| element.fill(0));
}

impl Executor<'_> {
    fn tile_bytes(&mut self, reg: RegId) -> Vec<u8> {
        let bytes = self.reg(reg).n * self.info(reg).lane.bytes();
        let from = self.dense(reg);
        // SAFETY: `dense` returns that many bytes.
        unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec()
    }

    fn set_tile(&mut self, reg: RegId, data: &[u8]) {
        let home = self.reg(reg).home;
        // SAFETY: the tile has the register's type, and nothing else names its home.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), home, data.len()) };
        self.set_dense(reg);
    }

    fn poison_tile(&mut self, reg: RegId) {
        let bytes = self.reg(reg).n * self.info(reg).lane.bytes();
        let home = self.reg(reg).home;
        // SAFETY: the home holds that many bytes.
        unsafe { std::ptr::write_bytes(home, POISON, bytes) };
        self.set_dense(reg);
    }

    pub(super) fn wgmma(&mut self, pc: Pc, wgmma: &Wgmma) {
        let a =
            if wgmma.a_shared { Factor::View(self.handle(wgmma.a)) } else { Factor::Tile(self.tile_bytes(wgmma.a)) };
        let b = self.handle(wgmma.b);
        let overwrites = wgmma.adds.is_some_and(|adds| !self.scalar(adds).to_bool());
        let acc = match self.reg(wgmma.acc).flight {
            _ if overwrites => Tile::Known(vec![0; wgmma.product.sizes()[2]]),
            0 => Tile::Known(self.tile_bytes(wgmma.acc)),
            id => Tile::Flight(id),
        };
        let product = &wgmma.product;
        let read = Touch { write: false, asynchronous_proxy: true, owner: Owner::UNKNOWN };
        let mut reads = vec![self.begin_access(pc, b, &[product.k, product.n], product.b_bytes, read)];
        if let Factor::View(a) = a {
            reads.push(self.begin_access(pc, a, &[product.m, product.k], product.a_bytes, read));
        }
        self.gpu.landed.next += 1;
        let id = self.gpu.landed.next;
        let flights = self.gpu.flights();
        let group = flights.product_groups;
        // A product of own parts is in the group of the one that goes on with it.
        flights.product_groups += u64::from(wgmma.part != GroupPart::Own);
        flights.products.push(Pending { id, group, wgmma: wgmma.clone(), a, b, acc, reads });
        self.poison_tile(wgmma.out);
        self.regs[wgmma.out.index()].flight = id;
    }

    pub(super) fn wgmma_wait(&mut self, tiles: &[(RegId, RegId)], pending: u8) {
        let flights = self.gpu.flights();
        let complete = flights.product_groups.saturating_sub(u64::from(pending));
        let products = std::mem::take(&mut flights.products);
        let (done, flying): (Vec<_>, Vec<_>) = products.into_iter().partition(|p| p.group < complete);
        self.gpu.flights().products = flying;
        for product in done {
            self.land(product);
        }
        for &(from, to) in tiles {
            let id = self.reg(from).flight;
            match self.gpu.landed.results.remove(&id) {
                Some(data) => self.set_tile(to, &data),
                None if id == 0 => self.copy_value(from, to),
                None => {
                    self.poison_tile(to);
                    self.regs[to.index()].flight = id;
                }
            }
        }
    }

    /// Computes a product with what its views hold now.
    fn land(&mut self, pending: Pending) {
        for &read in &pending.reads {
            self.end_access(read, Owner::UNKNOWN);
        }
        let product = &pending.wgmma.product;
        let [a_bytes, b_bytes, acc_bytes] = product.sizes();
        let (mut a, mut b, mut acc) = (words(a_bytes), words(b_bytes), words(acc_bytes));
        let mut out = vec![0u8; acc_bytes];
        let mut result = words(acc_bytes);
        let mut room = words(product.room().unwrap_or(0));
        match &pending.a {
            // SAFETY: a tile in registers has the factor's type.
            Factor::Tile(data) => unsafe {
                std::ptr::copy_nonoverlapping(data.as_ptr(), a.as_mut_ptr().cast(), a_bytes)
            },
            // SAFETY: the view has the factor's shape.
            Factor::View(view) => unsafe {
                self.read_view(*view, &[product.m, product.k], product.a_bytes, a.as_mut_ptr().cast());
            },
        }
        // SAFETY: the view has the factor's shape.
        unsafe { self.read_view(pending.b, &[product.k, product.n], product.b_bytes, b.as_mut_ptr().cast()) };
        let acc_data = match pending.acc {
            Tile::Known(data) => data,
            // What is not there, because something else took it, is poison.
            Tile::Flight(id) => self.gpu.landed.results.remove(&id).unwrap_or_else(|| vec![POISON; acc_bytes]),
        };
        // SAFETY: the accumulator has this size.
        unsafe { std::ptr::copy_nonoverlapping(acc_data.as_ptr(), acc.as_mut_ptr().cast(), acc_bytes) };
        let mut compute = |a: &[u64], b: &[u64], out: &mut [u8]| {
            // SAFETY: all have the sizes that the product asks for, aligned to 8 bytes.
            unsafe {
                product.compute(
                    a.as_ptr().cast(),
                    b.as_ptr().cast(),
                    acc.as_ptr().cast(),
                    result.as_mut_ptr().cast(),
                    room.as_mut_ptr().cast(),
                );
                std::ptr::copy_nonoverlapping(result.as_ptr().cast(), out.as_mut_ptr(), acc_bytes);
            }
        };
        match &pending.wgmma.parts {
            None => compute(&a, &b, &mut out),
            Some(parts) => {
                let mut of_group = vec![0; acc_bytes];
                for group in 0..parts.count() {
                    let counts = |k: usize| {
                        (k / parts.extent as usize == group as usize) == (pending.wgmma.part == GroupPart::Own)
                    };
                    let (mut a, mut b) = (a.clone(), b.clone());
                    leave(&mut a, product.a_bytes, |at| counts(at % product.k));
                    leave(&mut b, product.b_bytes, |at| counts(at / product.n));
                    compute(&a, &b, &mut of_group);
                    let size = product.acc_bytes;
                    let elements = out.chunks_exact_mut(size).zip(of_group.chunks_exact(size)).enumerate();
                    let own = elements.filter(|(at, _)| parts.of_column((at % product.n) as u32) == group);
                    own.for_each(|(_, (to, from))| to.copy_from_slice(from));
                }
            }
        }
        self.gpu.landed.results.insert(pending.id, out);
    }

    pub(super) fn tma_load(&mut self, pc: Pc, block: &Block, view: RegId, barrier: RegId, slot: RegId) -> Flow {
        let at = self.coordinates(&block.coordinates);
        let n: usize = block.dims.iter().product();
        let bytes = n * block.dtype.bytes() as usize;
        let mut data = words(bytes);
        // The source is read now: either value of memory that is being written is right.
        // SAFETY: there is room for the block.
        unsafe {
            let to = data.as_mut_ptr().cast();
            self.move_block(block.param, block.dtype, &block.dims, &at, to, Direction::Load, n);
        }
        let view = self.handle(view);
        let data: Vec<u8> = data.into_iter().flat_map(u64::to_ne_bytes).take(bytes).collect();
        self.poison_view(view, &block.dims, block.dtype.bytes() as usize);
        self.expect_copy(pc, barrier, slot, view, (&block.dims, block.dtype), data)
    }

    pub(super) fn tma_store(&mut self, pc: Pc, block: &Block, view: RegId, reduce: Option<Fn2>, parts: Option<Parts>) {
        let (at, view) = (self.coordinates(&block.coordinates), self.handle(view));
        let owner = Owner::of(Holders { layout: None, parts }, view);
        let touch = Touch { write: false, asynchronous_proxy: true, owner };
        let read = self.begin_access(pc, view, &block.dims, block.dtype.bytes() as usize, touch);
        let flights = self.gpu.flights();
        let group = flights.store_groups;
        flights.store_groups += 1;
        let (param, dtype, dims) = (block.param, block.dtype, block.dims.clone());
        flights.stores.push(StoreInFlight { group, param, dtype, dims, at, view, reduce, read, owner });
    }

    pub(super) fn tma_store_wait(&mut self, pending: u8) {
        let flights = self.gpu.flights();
        let complete = flights.store_groups.saturating_sub(u64::from(pending));
        let stores = std::mem::take(&mut flights.stores);
        let (done, flying): (Vec<_>, Vec<_>) = stores.into_iter().partition(|store| store.group < complete);
        self.gpu.flights().stores = flying;
        for store in done {
            self.end_access(store.read, store.owner);
            self.finish_store(&store, true);
        }
    }

    /// Writes what a store's view holds now, or poison if its program no longer has shared memory.
    pub(super) fn finish_store(&mut self, store: &StoreInFlight, alive: bool) {
        let n: usize = store.dims.iter().product();
        let element = store.dtype.bytes() as usize;
        let mut data = words(n * element);
        if alive {
            // SAFETY: the view has the block's shape.
            unsafe { self.read_view(store.view, &store.dims, element, data.as_mut_ptr().cast()) };
        } else {
            data.fill(u64::from_ne_bytes([POISON; 8]));
        }
        if store.dtype == DType::Bool {
            data.iter_mut().for_each(|word| *word &= 0x0101_0101_0101_0101);
        }
        let direction = store.reduce.map_or(Direction::Store, Direction::Reduce);
        // SAFETY: the data are the block's elements.
        unsafe {
            let from = data.as_mut_ptr().cast();
            self.move_block(store.param, store.dtype, &store.dims, &store.at, from, direction, n);
        }
    }
}
