//! Placed kernels without mistakes.

pub const PARAMS: &str = "param %a a: desc f32[4, 4]
    param %b b: desc f32[4, 4]
    param %p p: ptr f32
    param %out out: desc_mut f32[4, 4]";

/// Constants that all bodies use.
pub const NUMBERS: &str = "%zero: i32 = const 0
    %one: i32 = const 1
    %two: i32 = const 2
    %four: i32 = const 4
    %eight: i32 = const 8
    %bytes: i32 = const 64
    %f: f32 = const 0.0
    %c: f32[4, 4] = splat %f
    %n: i32[16] = arange {lo = 0, hi = 16}
    %i: i32[4, 4] = reshape %n
    %ps: *p[4, 4] = splat %p
    %pp: *p[4, 4] = add_ptr %ps, %i
";

/// Tiles that are transposed through one place in shared memory, in a loop.
pub const EXCHANGE: &str = "%s: shared f32[4, 4] = shared_alloc
    %t: shared f32[4, 4] = shared_permute %s {perm = [1, 0]}
    %r: f32[4, 4] = for %zero, %four, %one, %c (%k: i32, %acc: f32[4, 4]) {
      %x: f32[4, 4] = desc_load %a, %k, %zero
      barrier
      shared_store %s, %x
      barrier
      %y: f32[4, 4] = shared_load %t
      %z: f32[4, 4] = add %acc, %y
      yield %z
    }
    desc_store %out, %r, %zero, %zero";

/// A pipeline of ordinary asynchronous copies through two slots.
pub const COPIES: &str = "%s: shared f32[2, 4, 4] = shared_alloc
    %s0: shared f32[4, 4] = shared_index %s, %zero
    %t0: token = async_copy %s0, %pp
    %g0: token = async_commit %t0
    %r: f32[4, 4] = for %zero, %four, %one, %c (%k: i32, %acc: f32[4, 4]) {
      %slot: i32 = rem %k, %two
      %next: i32 = add %k, %one
      %other: i32 = rem %next, %two
      %w: token = async_wait {pending = 0}
      barrier
      %so: shared f32[4, 4] = shared_index %s, %other
      %off: i32[4, 4] = splat %next
      %from: *p[4, 4] = add_ptr %pp, %off
      %t: token = async_copy %so, %from
      %g: token = async_commit %t
      %sk: shared f32[4, 4] = shared_index %s, %slot
      %x: f32[4, 4] = shared_load %sk
      %z: f32[4, 4] = add %acc, %x
      yield %z
    }
    desc_store %out, %r, %zero, %zero";

/// Products of tiles that are brought to shared memory by ordinary stores.
pub const PRODUCTS: &str = "%s: shared f32[2, 4, 4] = shared_alloc
    %sa: shared f32[4, 4] = shared_index %s, %zero
    %sb: shared f32[4, 4] = shared_index %s, %one
    %y: f32[4, 4] = desc_load %b, %zero, %zero
    shared_store %sb, %y
    %r: f32[4, 4] = for %zero, %four, %one, %c (%k: i32, %acc: f32[4, 4]) {
      %x: f32[4, 4] = desc_load %a, %k, %zero
      barrier
      shared_store %sa, %x
      fence {kind = proxy_async}
      barrier
      %d: f32[4, 4] = wgmma %sa, %sb, %acc
      %w: f32[4, 4] = wgmma_wait %d {pending = 0}
      yield %w
    }
    desc_store %out, %r, %zero, %zero";

/// Two products an iteration, of which one is looked at and the other stays in flight until the next has its sum.
pub const CHAINED: &str = "%s: shared f32[3, 4, 4] = shared_alloc
    %sa: shared f32[4, 4] = shared_index %s, %zero
    %sb: shared f32[4, 4] = shared_index %s, %one
    %x: f32[4, 4] = desc_load %a, %zero, %zero
    %y: f32[4, 4] = desc_load %b, %zero, %zero
    shared_store %sa, %x
    shared_store %sb, %y
    fence {kind = proxy_async}
    barrier
    %r: f32[4, 4] = for %zero, %four, %one, %c (%k: i32, %acc: f32[4, 4]) {
      %d: f32[4, 4] = wgmma %sa, %sb, %c
      %e: f32[4, 4] = wgmma %sb, %sa, %c
      %d1: f32[4, 4], %acc1: f32[4, 4] = wgmma_wait %d, %acc {pending = 1}
      %less: f32[4, 4] = sub %acc1, %d1
      %e1: f32[4, 4] = wgmma_wait %e {pending = 0}
      %sum: f32[4, 4] = add %less, %e1
      %third: f32[4, 4] = wgmma %sa, %sb, %sum
      yield %third
    }
    %last: f32[4, 4] = wgmma_wait %r {pending = 0}
    desc_store %out, %last, %zero, %zero";

/// Tensor copies into two slots, and a product that stays in flight over the end of an iteration.
pub const TENSORS: &str = "%s: shared f32[3, 4, 4] = shared_alloc
    %sb: shared f32[4, 4] = shared_alloc
    %full: barrier[3] = mbarrier_alloc {slots = 3, count = 1}
    fence {kind = barrier_init}
    %y: f32[4, 4] = desc_load %b, %zero, %zero
    shared_store %sb, %y
    fence {kind = proxy_async}
    %three: i32 = const 3
    %s0: shared f32[4, 4] = shared_index %s, %zero
    mbarrier_arrive %full, %zero, %bytes
    tma_load %a, %s0, %full, %zero, %zero, %zero
    %r: f32[4, 4] = for %zero, %eight, %one, %c (%k: i32, %acc: f32[4, 4]) {
      %slot: i32 = rem %k, %three
      %turn: i32 = div %k, %three
      %phase: i32 = rem %turn, %two
      %next: i32 = add %k, %one
      %other: i32 = rem %next, %three
      mbarrier_wait %full, %slot, %phase
      barrier
      %so: shared f32[4, 4] = shared_index %s, %other
      mbarrier_arrive %full, %other, %bytes
      tma_load %a, %so, %full, %other, %next, %zero
      %sk: shared f32[4, 4] = shared_index %s, %slot
      %d: f32[4, 4] = wgmma %sk, %sb, %acc
      %w: f32[4, 4] = wgmma_wait %d {pending = 1}
      yield %w
    }
    %last: f32[4, 4] = wgmma_wait %r {pending = 0}
    desc_store %out, %last, %zero, %zero";

/// A producer that copies through two slots, and a consumer that multiplies.
pub const GROUPS: &str = "%s: shared f32[2, 4, 4] = shared_alloc
    %sb: shared f32[4, 4] = shared_alloc
    %full: barrier[2] = mbarrier_alloc {slots = 2, count = 1}
    %empty: barrier[2] = mbarrier_alloc {slots = 2, count = 1}
    fence {kind = barrier_init}
    %y: f32[4, 4] = desc_load %b, %zero, %zero
    shared_store %sb, %y
    fence {kind = proxy_async}
    warp_groups {warps = [4, 4], roles = [consumer, producer], registers = [40, 232]} {
      for %zero, %eight, %one (%k: i32) {
        %slot: i32 = rem %k, %two
        %turn: i32 = div %k, %two
        %phase: i32 = rem %turn, %two
        %free: i32 = xor %phase, %one
        mbarrier_wait %empty, %slot, %free
        %v: shared f32[4, 4] = shared_index %s, %slot
        mbarrier_arrive %full, %slot, %bytes
        tma_load %a, %v, %full, %slot, %k, %zero
        yield
      }
      yield
    } with {
      %r: f32[4, 4] = for %zero, %eight, %one, %c (%m: i32, %acc: f32[4, 4]) {
        %mslot: i32 = rem %m, %two
        %mturn: i32 = div %m, %two
        %mphase: i32 = rem %mturn, %two
        mbarrier_wait %full, %mslot, %mphase
        %u: shared f32[4, 4] = shared_index %s, %mslot
        %d: f32[4, 4] = wgmma %u, %sb, %acc
        %w: f32[4, 4] = wgmma_wait %d {pending = 0}
        mbarrier_arrive %empty, %mslot
        yield %w
      }
      desc_store %out, %r, %zero, %zero
      yield
    }";

/// A producer that copies through two slots, and a consumer whose halves take turns at two products.
pub const TURNS: &str = "%s: shared f32[2, 4, 4] = shared_alloc
    %sb: shared f32[4, 4] = shared_alloc
    %full: barrier[2] = mbarrier_alloc {slots = 2, count = 1}
    %empty: barrier[2] = mbarrier_alloc {slots = 2, count = 1}
    fence {kind = barrier_init}
    %y: f32[4, 4] = desc_load %b, %zero, %zero
    shared_store %sb, %y
    fence {kind = proxy_async}
    warp_groups {warps = [8, 4], roles = [consumer, producer], registers = [232, 40]} {
      turn_begin
      %r: f32[4, 4] = for %zero, %eight, %one, %c (%m: i32, %acc: f32[4, 4]) {
        %mslot: i32 = rem %m, %two
        %mturn: i32 = div %m, %two
        %mphase: i32 = rem %mturn, %two
        mbarrier_wait %full, %mslot, %mphase
        %u: shared f32[4, 4] = shared_index %s, %mslot
        %d: f32[4, 4] = wgmma %u, %sb, %c
        turn_end
        %w: f32[4, 4] = wgmma_wait %d {pending = 0}
        %x: f32[4, 4] = add %w, %w
        turn_begin
        %e: f32[4, 4] = wgmma %x, %sb, %acc
        %z: f32[4, 4] = wgmma_wait %e {pending = 0}
        mbarrier_arrive %empty, %mslot
        yield %z
      }
      turn_end
      desc_store %out, %r, %zero, %zero
      yield
    } with {
      for %zero, %eight, %one (%k: i32) {
        %slot: i32 = rem %k, %two
        %turn: i32 = div %k, %two
        %phase: i32 = rem %turn, %two
        %free: i32 = xor %phase, %one
        mbarrier_wait %empty, %slot, %free
        %v: shared f32[4, 4] = shared_index %s, %slot
        mbarrier_arrive %full, %slot, %bytes
        tma_load %a, %v, %full, %slot, %k, %zero
        yield
      }
      yield
    }";

/// Tensor copies into one place, which threads read: a copy may overtake a load, unless there is a fence before the
/// barrier.
pub const REFILLS: &str = "%s: shared f32[4, 4] = shared_alloc
    %full: barrier[1] = mbarrier_alloc {slots = 1, count = 1}
    fence {kind = barrier_init}
    %r: f32[4, 4] = for %zero, %eight, %one, %c (%k: i32, %acc: f32[4, 4]) {
      %phase: i32 = rem %k, %two
      fence {kind = proxy_async}
      barrier
      mbarrier_arrive %full, %zero, %bytes
      tma_load %a, %s, %full, %zero, %k, %zero
      mbarrier_wait %full, %zero, %phase
      %x: f32[4, 4] = shared_load %s
      %z: f32[4, 4] = add %acc, %x
      yield %z
    }
    desc_store %out, %r, %zero, %zero";

/// Tensor stores of tiles that pass through one place in shared memory.
pub const STORES: &str = "%s: shared f32[4, 4] = shared_alloc
    for %zero, %four, %one (%k: i32) {
      %x: f32[4, 4] = desc_load %a, %k, %zero
      tma_store_wait {pending = 0}
      barrier
      shared_store %s, %x
      fence {kind = proxy_async}
      barrier
      tma_store %out, %s, %k, %zero
      yield
    }
    tma_store_wait {pending = 0}";

/// Values that threads pass each other through the same bytes, again and again.
pub const PASSED: &str = "%r: f32[4, 4] = for %zero, %four, %one, %c (%k: i32, %acc: f32[4, 4]) {
      %x: f32[4, 4] = desc_load %a, %k, %zero
      %y: f32[4, 4] = convert_layout %x in shared barrier [0..64]
      %z: f32[4, 4] = add %acc, %y
      yield %z
    }
    desc_store %out, %r, %zero, %zero";

/// The same through other bytes in turn, so that the barriers inside the exchanges do, beside an allocation.
pub const IN_TURN: &str = "%s: shared f32[4, 4] = shared_alloc in shared [0..64]
    %t: shared f32[4, 4] = shared_permute %s {perm = [1, 0]}
    %first: f32[4, 4] = desc_load %a, %four, %zero
    shared_store %s, %first
    barrier
    %turned: f32[4, 4] = shared_load %t
    %begin: f32[4, 4] = convert_layout %turned in shared [64..128]
    %r: f32[4, 4] = for %zero, %four, %one, %begin (%k: i32, %acc: f32[4, 4]) {
      %x: f32[4, 4] = desc_load %a, %k, %zero
      %y: f32[4, 4] = convert_layout %x in shared [128..192]
      %w: f32[4, 4] = convert_layout %y in shared [64..128]
      %z: f32[4, 4] = add %acc, %w
      yield %z
    }
    desc_store %out, %r, %zero, %zero";

pub const KERNELS: &[(&str, &str)] = &[
    ("passed", PASSED),
    ("in turn", IN_TURN),
    ("exchange", EXCHANGE),
    ("copies", COPIES),
    ("products", PRODUCTS),
    ("chained", CHAINED),
    ("tensors", TENSORS),
    ("groups", GROUPS),
    ("turns", TURNS),
    ("refills", REFILLS),
    ("stores", STORES),
];
