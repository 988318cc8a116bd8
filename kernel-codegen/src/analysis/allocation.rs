//! Where the kernel's allocations lie in shared memory.
//!
//! Allocations that are not live at the same time share memory. One is live from where it stands to its last use; to
//! the end of a loop that uses it from outside, and to the wait behind an asynchronous use; throughout the innermost
//! loop that it stands in. What lies above the live allocations at an operation is free for exchanges there, which the
//! pass `exchanges` places.
//!
//! ```text
//! %a = shared_alloc (96 KiB)    0 .. 96 KiB, live in the loop
//! for { .. %a .. }              exchanges begin at 96 KiB
//! convert_layout ..             exchanges begin at 0: the loop's buffers are dead
//! ```
//!
//! Where one warp group computes and others only fetch, that holds within its region too. What all groups share, such as
//! the rings between them, is live throughout and lies below what is the group's own, which is free for exchanges once it
//! is dead.
//!
//! Barriers with phases are live throughout, at the bottom. Each program has them once, whatever loop they stand in.
//!
//! The plan is a function of the kernel alone, and inserting barriers of threads does not change it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use kernel_core::edit::{Structure, Uses};
use kernel_core::ir::{Def, Elem, Func, GpuOp, Op, OpId, RegionId, ValueId};
use kernel_core::layout::LinearLayout;
use kernel_core::target::{BARRIER_BYTES, SWIZZLE_ALIGNMENT};

use super::warp_groups::groups_of;

/// The alignment of all others: that of a tensor copy.
const PLAIN_ALIGNMENT: u32 = 128;

/// Where everything is.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Allocation {
    places: BTreeMap<OpId, Range<u32>>,
    /// When each allocation is live, by position of operations.
    live: BTreeMap<OpId, Range<u32>>,
    /// Per operation, the positions at which something of it may happen: the whole of the outermost loop around it.
    windows: Vec<Range<u32>>,
    /// The warp groups, if one of them computes and others only fetch.
    groups: Option<Groups>,
    /// The regions of groups of which several compute.
    beside: Vec<Range<u32>>,
    bytes: u32,
}

impl Allocation {
    /// Places the allocations of a kernel.
    pub(crate) fn new(func: &Func) -> Allocation {
        let lifetimes = Lifetimes::new(func);
        let order = lifetimes.structure.order();
        let (mut barriers, mut live) = (Vec::new(), BTreeMap::new());
        for &id in order {
            if let Op::Gpu(GpuOp::MbarrierAlloc { slots, .. }) = func.op(id).op {
                barriers.push((id, slots * BARRIER_BYTES));
            } else if matches!(func.op(id).op, Op::Gpu(GpuOp::SharedAlloc { .. })) {
                live.insert(id, lifetimes.live(id));
            }
        }
        let groups = lifetimes.groups.clone();
        let beside = if groups.is_none() { regions_of_groups(func, &lifetimes.structure) } else { Vec::new() };
        let windows = lifetimes.windows();
        let mut plan = Allocation { windows, groups: groups.clone(), beside, ..Allocation::default() };
        for (id, bytes) in barriers {
            plan.places.insert(id, plan.bytes..plan.bytes + bytes);
            plan.live.insert(id, 0..order.len() as u32);
            plan.bytes += bytes;
        }
        // What groups share below what one of them frees on its way. The largest first, so that small ones fill the gaps.
        let mut views: Vec<(OpId, u32)> =
            live.keys().map(|&id| (id, view_bytes(func, func.op(id).results[0]))).collect();
        let own = |id: &OpId| groups.as_ref().is_some_and(|groups| groups.computing.contains(&live[id].start));
        views.sort_by_key(|&(id, bytes)| (own(&id), Reverse(bytes), id));
        for (id, bytes) in views {
            let own = live[&id].clone();
            let start = plan.gap(&own, bytes, alignment(func, func.op(id).results[0]));
            plan.places.insert(id, start..start + bytes);
            plan.live.insert(id, own);
            plan.bytes = plan.bytes.max(start + bytes);
        }
        plan
    }

    /// The lowest place for so many bytes that nothing else has at the same time.
    fn gap(&self, live: &Range<u32>, bytes: u32, alignment: u32) -> u32 {
        let others =
            self.live.iter().filter(|(_, other)| overlap(live, other) || self.run_beside(live.start, other.start));
        let taken: Vec<&Range<u32>> = others.filter_map(|(id, _)| self.places.get(id)).collect();
        let starts = taken.iter().map(|place| place.end.next_multiple_of(alignment)).chain([0]);
        let fits = |start: &u32| taken.iter().all(|place| !overlap(&(*start..*start + bytes), place));
        starts.filter(fits).min().unwrap_or(self.bytes.next_multiple_of(alignment))
    }

    /// The bytes of an allocation; `None` for an operation that is none of this plan's.
    pub(crate) fn place(&self, alloc: OpId) -> Option<Range<u32>> {
        self.places.get(&alloc).cloned()
    }

    /// The first byte above all that is live at an operation, or anywhere in the loops around it.
    pub(crate) fn free_above(&self, op: OpId) -> u32 {
        let window = self.windows.get(op.index()).cloned().unwrap_or(0..u32::MAX);
        let beside = |other: &Range<u32>| self.run_beside(window.start, other.start);
        let live = self.live.iter().filter(|(_, live)| overlap(&window, live) || beside(live));
        live.filter_map(|(id, _)| self.places.get(id)).map(|place| place.end).max().unwrap_or(0)
    }

    /// Whether what stands at two positions runs at the same time, in different warp groups.
    fn run_beside(&self, one: u32, other: u32) -> bool {
        let region = |at: u32| self.beside.iter().position(|region| region.contains(&at));
        if let (Some(one), Some(other)) = (region(one), region(other)) {
            return one != other;
        }
        self.groups.as_ref().is_some_and(|groups| {
            let inside = |at: u32| groups.computing.contains(&at);
            groups.all.contains(&one) && groups.all.contains(&other) && inside(one) != inside(other)
        })
    }

    /// Bytes of all allocations together.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

/// What decides when memory is used. Times are positions in program order.
struct Lifetimes<'f> {
    func: &'f Func,
    structure: Structure,
    uses: Uses,
    /// The extent of each loop, and of the warp groups, which run at the same time; inner ones come before outer ones.
    loops: Vec<Range<u32>>,
    groups: Option<Groups>,
}

/// Where warp groups stand of which one computes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Groups {
    /// The region of that one.
    computing: Range<u32>,
    /// All of them.
    all: Range<u32>,
}

impl Groups {
    /// `None` if there are none, or several compute.
    fn of(func: &Func, structure: &Structure) -> Option<Groups> {
        let ops = &func.region(func.body).ops;
        let id = *ops.iter().find(|&&id| matches!(func.op(id).op, Op::Gpu(GpuOp::WarpGroups { .. })))?;
        let groups = groups_of(func.op(id));
        let mut several = groups.iter().filter(|(group, _)| !group.single);
        let (Some((_, region)), None) = (several.next(), several.next()) else { return None };
        let ops = &func.region(*region).ops;
        let computing = structure.extent(*ops.first()?).start..structure.extent(*ops.last()?).end;
        Some(Groups { computing, all: structure.extent(id) })
    }
}

/// Where the code of each warp group stands.
fn regions_of_groups(func: &Func, structure: &Structure) -> Vec<Range<u32>> {
    let ops = func.region_ops(func.body).flat_map(|(_, operation)| groups_of(operation));
    let extent = |region: RegionId| {
        let ops = &func.region(region).ops;
        Some(structure.extent(*ops.first()?).start..structure.extent(*ops.last()?).end)
    };
    ops.filter_map(|(_, region)| extent(region)).collect()
}

impl Lifetimes<'_> {
    fn new(func: &Func) -> Lifetimes<'_> {
        let structure = Structure::new(func);
        let repeats = |op: &Op| op.is_loop() || matches!(op, Op::Gpu(GpuOp::WarpGroups { .. }));
        let loops = structure.order().iter().filter(|&&id| repeats(&func.op(id).op));
        let mut loops: Vec<Range<u32>> = loops.map(|&id| structure.extent(id)).collect();
        loops.sort_by_key(|around| (around.end, Reverse(around.start)));
        let groups = Groups::of(func, &structure);
        Lifetimes { func, structure, uses: Uses::new(func), loops, groups }
    }

    /// When an allocation is live.
    fn live(&self, alloc: OpId) -> Range<u32> {
        let func = self.func;
        let start = self.structure.extent(alloc).start;
        let mut live = start..start + 1;
        let mut work = func.op(alloc).results.clone();
        while let Some(view) = work.pop() {
            for &user in self.uses.of(view) {
                work.extend(func.op(user).results.iter().filter(|&&v| matches!(func.ty(v).elem, Elem::Shared(_))));
                live.end = live.end.max(self.end_of_use(user));
            }
        }
        // Sharing memory within an iteration would cost barriers in each.
        let is_innermost = |around: &Range<u32>| {
            self.loops.iter().all(|other| !around.contains(&other.start) || other.start == around.start)
        };
        if let Some(around) = self.loops.iter().find(|around| around.contains(&start) && is_innermost(around)) {
            live = around.start..live.end.max(around.end);
        }
        // A loop that uses what is outside uses it in every iteration; what outlives a loop was there all the time.
        for around in self.loops.iter().rev() {
            if live.start < around.start && live.end > around.start {
                live.end = live.end.max(around.end);
            }
            if around.contains(&live.start) && live.end > around.end {
                live.start = around.start;
            }
        }
        live
    }

    /// Behind the operation, or behind the wait for what it starts.
    fn end_of_use(&self, user: OpId) -> u32 {
        let (func, order) = (self.func, self.structure.order());
        let at = self.structure.extent(user).start;
        let kernel = order.len() as u32;
        let wait = |is_wait: &dyn Fn(&GpuOp) -> bool| {
            let mut later = order[at as usize..].iter();
            let found = later.position(|&id| matches!(&func.op(id).op, Op::Gpu(op) if is_wait(op)));
            found.map_or(kernel, |distance| at + distance as u32 + 1)
        };
        match &func.op(user).op {
            Op::Gpu(op) => match op {
                GpuOp::Wgmma { .. } => wait(&|op| matches!(op, GpuOp::WgmmaWait { pending: 0 })),
                GpuOp::AsyncCopy => wait(&|op| matches!(op, GpuOp::AsyncWait { pending: 0 })),
                GpuOp::TmaStore { .. } => wait(&|op| matches!(op, GpuOp::TmaStoreWait { pending: 0 })),
                // Who reads what a tensor copy brings has waited for it.
                GpuOp::TmaLoad
                | GpuOp::SharedAlloc { .. }
                | GpuOp::SharedIndex
                | GpuOp::SharedPermute { .. }
                | GpuOp::SharedLoad
                | GpuOp::SharedStore
                | GpuOp::AsyncCommit
                | GpuOp::AsyncWait { .. }
                | GpuOp::Barrier
                | GpuOp::WarpgroupBarrier
                | GpuOp::TurnBegin
                | GpuOp::TurnEnd
                | GpuOp::Fence { .. }
                | GpuOp::MbarrierAlloc { .. }
                | GpuOp::MbarrierArrive
                | GpuOp::MbarrierWait
                | GpuOp::WgmmaWait { .. }
                | GpuOp::TmaStoreWait { .. }
                | GpuOp::Delay { .. }
                | GpuOp::LaunchDependents
                | GpuOp::GridWait => at + 1,
                GpuOp::WarpGroups { .. } => kernel,
            },
            // A view that control flow hands on may be used anywhere.
            Op::Control(_) => kernel,
            Op::Create(_)
            | Op::Elementwise(_)
            | Op::Shape(_)
            | Op::Tile(_)
            | Op::Memory(_)
            | Op::Dot(_)
            | Op::Desc(_) => at + 1,
        }
    }

    fn windows(&self) -> Vec<Range<u32>> {
        let mut windows = vec![0..u32::MAX; self.func.ops.len()];
        for (&id, at) in self.structure.order().iter().zip(0..) {
            let own = self.groups.as_ref().filter(|groups| groups.computing.contains(&at));
            let is_within = |around: &&Range<u32>| own.is_none_or(|groups| groups.computing.contains(&around.start));
            let around = self.loops.iter().filter(|around| around.contains(&at));
            let outermost = around.filter(is_within).max_by_key(|around| around.len());
            windows[id.index()] = outermost.cloned().unwrap_or(at..at + 1);
        }
        windows
    }
}

/// The dimensions of a view that its layout covers, and the slots before them.
pub(crate) fn slots(func: &Func, view: ValueId) -> (Vec<u32>, Vec<u32>) {
    let shape = func.tile_shape(view);
    let covered = layout(func, view).map_or(shape.len(), |layout| layout.tile_shape().len()).min(shape.len());
    let (outer, inner) = shape.split_at(shape.len() - covered);
    (outer.to_vec(), inner.to_vec())
}

/// Bytes of a view, with its slots aligned.
pub(crate) fn view_bytes(func: &Func, view: ValueId) -> u32 {
    let (outer, inner) = slots(func, view);
    let element = func.ty(view).dtype().map_or(4, |dtype| dtype.bytes());
    let own = inner.iter().product::<u32>() * element;
    match outer.as_slice() {
        [] => own,
        outer => outer.iter().product::<u32>() * own.next_multiple_of(SWIZZLE_ALIGNMENT),
    }
}

fn alignment(func: &Func, view: ValueId) -> u32 {
    let is_plain = |layout: &LinearLayout| layout.all_columns().iter().all(|column| column.count_ones() == 1);
    let plain = slots(func, view).0.is_empty() && layout(func, view).is_none_or(is_plain);
    if plain { PLAIN_ALIGNMENT } else { SWIZZLE_ALIGNMENT }
}

fn layout(func: &Func, view: ValueId) -> Option<&LinearLayout> {
    func.value(view).layout.map(|id| &func.layouts[id.index()])
}

/// The allocation that a view shows, through indices and permutations.
pub(crate) fn root(func: &Func, view: ValueId) -> Option<OpId> {
    let Def::Result(id, _) = func.value(view).def else { return None };
    let Op::Gpu(op) = &func.op(id).op else { return None };
    if matches!(op, GpuOp::SharedPermute { .. } | GpuOp::SharedIndex) {
        return root(func, *func.op(id).operands.first()?);
    }
    matches!(op, GpuOp::SharedAlloc { .. }).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_core::edit::ops_in_order;
    use kernel_core::ir::CreateOp;
    use kernel_core::text::parse;

    /// The places of the allocations of a kernel in program order, and what is free above the last operation.
    fn places(body: &str) -> (Vec<Range<u32>>, u32) {
        let func = kernel(body);
        let order = ops_in_order(&func);
        let plan = Allocation::new(&func);
        let allocs = order
            .iter()
            .filter(|&&id| matches!(func.op(id).op, Op::Gpu(GpuOp::SharedAlloc { .. } | GpuOp::MbarrierAlloc { .. })));
        let last = order.last().copied().expect("a kernel returns");
        (allocs.map(|&id| plan.place(id).unwrap()).collect(), plan.free_above(last))
    }

    /// What is free above the operation that makes a range of numbers.
    fn free_above_range(body: &str) -> u32 {
        let func = kernel(body);
        let is_range = |id: &OpId| matches!(func.op(*id).op, Op::Create(CreateOp::Arange { .. }));
        let range = ops_in_order(&func).into_iter().find(is_range).expect("a range of numbers");
        Allocation::new(&func).free_above(range)
    }

    fn kernel(body: &str) -> Func {
        let text = format!(
            "kernel test \"test.rs\" unsafe placed {{
             param %n n: i32
             param %q q: ptr f32
             param %u u: desc_mut f32[128]
             layout #0 = register [1] [2], lane [4] [8] [16] [32] [64], warp -> dim0 128
             layout #1 = offset [1] [2] [4] [8] [16] [32] [64] -> dim0 128
             layout #2 = offset [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [1, 4] [2, 8] [4, 16] -> dim0 8, dim1 32
             %zero: i32 = const 0
             %one: i32 = const 1
             %x: f32 = const 1.0
             %t: f32[128] #0 = splat %x
             {body}
             return
             }}"
        );
        parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    const ALLOC: &str = "shared f32[128] #1 = shared_alloc";

    #[test]
    fn what_is_not_live_together_shares_memory() {
        let body = format!("%a: {ALLOC}\nshared_store %a, %t\n%b: {ALLOC}\nshared_store %b, %t\n");
        assert_eq!(places(&body), (vec![0..512, 0..512], 0));
        let together = format!("{body}\n%r: f32[128] #0 = shared_load %a");
        assert_eq!(places(&together), (vec![0..512, 512..1024], 0));
    }

    #[test]
    fn what_a_loop_uses_is_live_throughout() {
        let body = format!(
            "%a: {ALLOC}
             for %zero, %n, %one (%i: i32) {{
               shared_store %a, %t
               %b: {ALLOC}
               shared_store %b, %t
               %c: {ALLOC}
               shared_store %c, %t
               yield
             }}
             %d: {ALLOC}
             shared_store %d, %t"
        );
        let (places, free) = places(&body);
        assert_eq!((places, free), (vec![0..512, 512..1024, 1024..1536, 0..512], 0));
    }

    /// A loop around another comes back to what it has used before that one.
    #[test]
    fn what_a_loop_uses_once_is_there_in_its_next_iteration() {
        let body = format!(
            "%a: {ALLOC}
             for %zero, %n, %one (%i: i32) {{
               %r: f32[128] #0 = shared_load %a
               %b: {ALLOC}
               shared_store %b, %t
               for %zero, %n, %one (%j: i32) {{
                 yield
               }}
               yield
             }}"
        );
        assert_eq!(places(&body).0, [0..512, 512..1024]);
    }

    /// What the group that computes has used is free behind its loop, above what the groups share.
    #[test]
    fn what_one_group_frees_lies_above_what_all_share() {
        let body = |warps: &str, roles: &str, other: &str| {
            format!(
                "%s: shared f32[3, 128] #1 = shared_alloc
                 warp_groups {{warps = [{warps}], roles = [{roles}], registers = [0, 0]}} {{
                   %a: shared f32[8, 1024] = shared_alloc
                   for %zero, %n, %one (%i: i32) {{
                     %v: shared f32[128] #1 = shared_index %s, %n
                     shared_store %v, %t
                     %w: shared f32[1024] = shared_index %a, %n
                     yield
                   }}
                   %k: i32[128] #0 = arange {{lo = 0, hi = 128}}
                   yield
                 }} with {{
                   %y: shared f32[128] #1 = shared_index %s, %n
                   shared_store %y, %t
                   {other}
                   yield
                 }}"
            )
        };
        let divided = body("4, 4", "consumer, producer", "");
        // The ring lies at the bottom, although it is smaller.
        assert_eq!(places(&divided).0, [0..3072, 3072..35_840]);
        assert_eq!(free_above_range(&divided), 3072);
        // What another group has for itself is there at the same time.
        let other = body("4, 4", "consumer, producer", "%b: shared f32[128] #1 = shared_alloc\nshared_store %b, %t");
        assert_eq!(places(&other).0, [0..3072, 3584..36_352, 3072..3584]);
        assert_eq!(free_above_range(&other), 3584);
        // Another group that computes may use its memory at any time.
        let both = body("4, 4", "consumer, consumer", "");
        assert_eq!(free_above_range(&both), 35_840);
        // So what each of two has lies beside that of the other.
        let each = body("4, 4", "consumer, consumer", "%b: shared f32[128] #1 = shared_alloc\nshared_store %b, %t");
        let mut ranges = places(&each).0;
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
    }

    #[test]
    fn slots_begin_where_swizzles_may() {
        let body = format!(
            "%a: {ALLOC}\n%s: shared f32[3, 128] #1 = shared_alloc\nshared_store %a, %t\n%v: shared f32[128] #1 = shared_index %s, %n"
        );
        assert_eq!(places(&body).0, [3072..3584, 0..3072]);
    }

    #[test]
    fn what_is_free_lies_above_all_that_is_live() {
        let body = format!(
            "%b: barrier[3] = mbarrier_alloc {{slots = 3, count = 1}}
             %a: {ALLOC}
             %p: *q[128] #0 = splat %q
             %c: token = async_copy %a, %p"
        );
        assert_eq!(places(&body), (vec![0..24, 128..640], 640));
        // Within a loop, also what is live only in another part of the loops around.
        let body = format!(
            "for %zero, %n, %one (%i: i32) {{
               for %zero, %n, %one (%j: i32) {{
                 %k: i32[128] #0 = arange {{lo = 0, hi = 128}}
                 yield
               }}
               %a: {ALLOC}
               shared_store %a, %t
               yield
             }}"
        );
        assert_eq!(free_above_range(&body), 512);
    }

    #[test]
    fn barriers_are_at_the_bottom_and_swizzles_aligned() {
        let body = format!(
            "%a: {ALLOC}
             %s: shared f32[3, 8, 32] #2 = shared_alloc
             %b: barrier[3] = mbarrier_alloc {{slots = 3, count = 1}}
             shared_store %a, %t
             %v: shared f32[8, 32] #2 = shared_index %s, %n"
        );
        assert_eq!(places(&body), (vec![128..640, 1024..4096, 0..24], 24));
    }

    #[test]
    fn copies_in_flight_keep_their_memory() {
        let body = |wait: &str| {
            format!(
                "%a: {ALLOC}
                 %p: *q[128] #0 = splat %q
                 %c: token = async_copy %a, %p
                 {wait}
                 %b: {ALLOC}
                 shared_store %b, %t
                 %w: token = async_wait {{pending = 0}}"
            )
        };
        assert_eq!(places(&body("")).0, [0..512, 512..1024]);
        assert_eq!(places(&body("%e: token = async_wait {pending = 0}")).0, [0..512, 0..512]);
        // A wait that leaves a group may have left that one.
        assert_eq!(places(&body("%e: token = async_wait {pending = 1}")).0, [0..512, 512..1024]);
    }

    #[test]
    fn what_stores_and_products_read_keeps_its_memory() {
        let store = |wait: &str| {
            format!(
                "%a: {ALLOC}
                 shared_store %a, %t
                 tma_store %u, %a, %zero
                 {wait}
                 %b: {ALLOC}
                 shared_store %b, %t
                 tma_store_wait {{pending = 0}}"
            )
        };
        assert_eq!(places(&store("")).0, [0..512, 512..1024]);
        assert_eq!(places(&store("tma_store_wait {pending = 1}")).0, [0..512, 512..1024]);
        assert_eq!(places(&store("tma_store_wait {pending = 0}")).0, [0..512, 0..512]);
        let product = |pending: u32| {
            format!(
                "%a: shared f32[4, 4] = shared_alloc
                 %b: shared f32[4, 4] = shared_alloc
                 %c: f32[4, 4] = splat %x
                 %d: f32[4, 4] = wgmma %a, %b, %c
                 %w: f32[4, 4] = wgmma_wait %d {{pending = {pending}}}
                 %k: shared f32[4, 4] = shared_alloc
                 shared_store %k, %c
                 %z: f32[4, 4] = wgmma_wait %w {{pending = 0}}"
            )
        };
        let apart = |pending| {
            let found = places(&product(pending)).0;
            !overlap(&found[0], &found[2]) && !overlap(&found[1], &found[2])
        };
        assert!(apart(1) && !apart(0));
    }
}
