//! Every test kernel compiles and assembles for every target.

mod support;

use kernel_codegen::{Options, Target, compile};
use kernel_core::ir::{CacheModifier, EvictionPolicy};
use support::compiles_everywhere;

macro_rules! kernels {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            compiles_everywhere(include_str!(concat!("kernels/", stringify!($name), ".tile")));
        }
    )*};
}

kernels!(
    add, softmax, rows, transpose, argmax, gather, rowsum, scan, bias, inplace, steer, atomics, layernorm, loops,
    chunks, walk, verdict, pieces, shift, persistent
);

#[test]
fn every_cache_modifier_and_eviction_policy_assembles() {
    let add = include_str!("kernels/add.tile");
    for cache in CacheModifier::ALL {
        for eviction in EvictionPolicy::ALL {
            let attributes = format!("{{cache = {}, eviction = {}}}", cache.name(), eviction.name());
            let text = add
                .replace("load %xp, %mask", &format!("load %xp, %mask {attributes}"))
                .replace("store %op, %sum, %mask", &format!("store %op, %sum, %mask {attributes}"));
            // Once through constant memory, once through memory that the kernel may write.
            for text in [text.replace("x: ptr f32", "x: ptr_mut f32"), text] {
                for target in [Target::sm_80(), Target::sm_90a()] {
                    let compiled = compile(&support::kernel(&text), &target, &Options::default());
                    support::assemble(&compiled.unwrap_or_else(|error| panic!("{error}")));
                }
            }
        }
    }
}

/// Registers are set before masked loads only where somebody may see the lanes that the mask leaves out.
#[test]
fn masked_loads_set_registers_first_only_where_that_shows() {
    let add = include_str!("kernels/add.tile");
    let set = |text: &str| {
        let compiled = support::compile_for_hopper(&support::kernel(text));
        support::assemble(&compiled);
        compiled.ptx.lines().filter(|line| line.trim().starts_with("mov.b32") && line.ends_with(", 0;")).count()
    };
    assert_eq!(set(add), 0);
    // Without a mask, the store shows what each of the registers holds.
    let all = add.replace("store %op, %sum, %mask", "store %op, %sum");
    assert_ne!(all, add);
    assert!(set(&all) >= 16, "{}", set(&all));
}

/// Where an atomic stands between barriers and other accesses, by the letters of the PTX: a store, a load, a barrier,
/// an atomic.
fn around_an_atomic(order: &str) -> String {
    let text = format!(
        "kernel flag \"flag.rs\" unsafe bound {{
           param %x x: ptr_mut i32 {{div = 16}}
           param %flag flag: ptr_mut i32 {{div = 16}}
           param %y y: ptr_mut i32 {{div = 16}}
           %i: i32[256] = arange {{lo = 0, hi = 256}}
           %xs: *x[256] = splat %x
           %xp: *x[256] = add_ptr %xs, %i
           store %xp, %i
           %one: i32 = const 1
           %before: i32 = atomic_rmw %flag, %one {{op = add, order = {order}, scope = device}}
           %ys: *y[256] = splat %y
           %yp: *y[256] = add_ptr %ys, %i
           %v: i32[256] = load %yp
           store %xp, %v
           return
         }}"
    );
    let compiled = support::compile_for_hopper(&support::kernel(&text));
    support::assemble(&compiled);
    let letter = |line: &str| {
        let found = [("st.global", 'S'), ("ld.global", 'L'), ("bar.sync", '|'), ("atom.", 'A'), ("red.", 'A')];
        found.into_iter().find(|(name, _)| line.contains(name)).map(|(_, letter)| letter)
    };
    let mut letters: Vec<char> = compiled.ptx.lines().filter_map(letter).collect();
    letters.dedup();
    letters.into_iter().collect()
}

/// One thread does the atomic for all: what the others stored must come before it, what they load behind it.
#[test]
fn atomics_that_release_or_acquire_have_barriers() {
    for (order, expected) in [("relaxed", "SALS"), ("release", "S|ALS"), ("acquire", "SA|LS"), ("acq_rel", "S|A|LS")] {
        assert_eq!(around_an_atomic(order), expected, "{order}");
    }
}

/// What an atomic with `release` changed is read by other threads behind a further barrier: that before the atomic says
/// nothing of it.
#[test]
fn what_a_releasing_atomic_changes_is_read_behind_a_barrier() {
    let text = "kernel low \"low.rs\" unsafe bound {
           param %x x: ptr_mut i32 {div = 16}
           param %y y: ptr i32 {div = 16}
           param %out out: ptr_mut i32 {div = 16}
           %i: i32[128] = arange {lo = 0, hi = 128}
           %ys: *y[128] = splat %y
           %yp: *y[128] = add_ptr %ys, %i
           %j: i32[128] = load %yp
           %xs: *x[128] = splat %x
           %xp: *x[128] = add_ptr %xs, %j
           %a: i32[128] = atomic_rmw %xp, %i {op = min, order = release, scope = device}
           %xq: *x[128] = add_ptr %xs, %i
           %v: i32[128] = load %xq
           %os: *out[128] = splat %out
           %op: *out[128] = add_ptr %os, %i
           store %op, %v
           return
         }";
    let compiled = support::compile_for_hopper(&support::kernel(text));
    support::assemble(&compiled);
    let (before, behind) = compiled.ptx.split_once("atom.release").expect("an atomic");
    assert_eq!((support::count(before, "bar.sync"), support::count(behind, "bar.sync")), (1, 1), "{}", compiled.ptx);
}

/// Threads read their own clock, but not where it decides what all of them do.
#[test]
fn a_time_that_decides_is_that_of_one_thread() {
    for (uses, barriers) in [("store %out, %time", 0), ("if %late () { store %out, %time\n yield } else { yield }", 1)]
    {
        let text = format!(
            "kernel time \"time.rs\" unsafe bound {{
               param %out out: ptr_mut i64 {{div = 16}}
               %limit: i64 = const 7
               %time: i64 = counter {{which = clock}}
               %late: bool = cmp.lt %limit, %time
               {uses}
               return
             }}"
        );
        let compiled = support::compile_for_hopper(&support::kernel(&text));
        support::assemble(&compiled);
        assert_eq!(support::count(&compiled.ptx, "%clock64"), 1, "{}", compiled.ptx);
        assert_eq!(support::count(&compiled.ptx, "bar.sync"), barriers, "{}", compiled.ptx);
    }
}

/// A compare-and-swap of a value for itself, which is how the front end writes an atomic load.
#[test]
fn a_swap_of_a_value_for_itself_is_a_load() {
    for (order, expected) in
        [("relaxed", "ld.relaxed.gpu"), ("acquire", "ld.acquire.gpu"), ("acq_rel", "atom.acq_rel.gpu")]
    {
        let text = format!(
            "kernel swap \"swap.rs\" unsafe bound {{
               param %x x: ptr_mut i32 {{div = 16}}
               param %out out: ptr_mut i32 {{div = 16}}
               %zero: i32 = const 0
               %old: i32 = atomic_cas %x, %zero, %zero {{order = {order}, scope = device}}
               store %out, %old
               return
             }}"
        );
        let compiled = support::compile_for_hopper(&support::kernel(&text));
        support::assemble(&compiled);
        assert!(compiled.ptx.contains(expected), "{expected}: {}", compiled.ptx);
        let swaps = support::count(&compiled.ptx, ".cas.");
        assert_eq!(swaps, usize::from(order == "acq_rel"), "{}", compiled.ptx);
    }
}

/// A loop that waits for what another program stores reads past the first cache, which would never see it.
#[test]
fn waiting_loops_read_what_other_programs_write() {
    let text = "kernel wait \"wait.rs\" unsafe bound {
           param %x x: ptr_mut i32 {div = 16}
           %zero: i32 = const 0
           while () {
             %v: i32 = load %x
             %go: bool = cmp.eq %v, %zero
             yield %go
           } do () {
             yield
           }
           return
         }";
    let compiled = support::compile_for_hopper(&support::kernel(text));
    support::assemble(&compiled);
    assert_eq!(support::count(&compiled.ptx, "ld.relaxed.gpu.global"), 1, "{}", compiled.ptx);
}

/// The barriers between two atomics at addresses that memory holds. `uses` says whether the results are stored.
fn barriers_between_atomics(first: &str, second: &str, uses: bool) -> usize {
    let store = if uses { "%sum: i32[256] = add %a, %b\n store %op, %sum" } else { "" };
    let text = format!(
        "kernel count \"count.rs\" unsafe bound {{
           param %x x: ptr_mut i32 {{div = 16}}
           param %y y: ptr i32 {{div = 16}}
           param %out out: ptr_mut i32 {{div = 16}}
           %i: i32[256] = arange {{lo = 0, hi = 256}}
           %ys: *y[256] = splat %y
           %yp: *y[256] = add_ptr %ys, %i
           %j: i32[256] = load %yp
           %xs: *x[256] = splat %x
           %xp: *x[256] = add_ptr %xs, %j
           %a: i32[256] = atomic_rmw %xp, %i {{op = {first}, order = relaxed, scope = device}}
           %b: i32[256] = atomic_rmw %xp, %i {{op = {second}, order = relaxed, scope = device}}
           %os: *out[256] = splat %out
           %op: *out[256] = add_ptr %os, %i
           {store}
           return
         }}"
    );
    let compiled = support::compile_for_hopper(&support::kernel(&text));
    support::assemble(&compiled);
    support::count(&compiled.ptx, "bar.sync")
}

/// Atomics of one kind whose results nobody sees may happen in any order; others happen one after the other.
#[test]
fn atomics_that_commute_need_no_barrier() {
    for (first, second, uses, barriers) in [
        ("add", "add", false, 0),
        ("max", "max", false, 0),
        ("add", "max", false, 1),
        ("exchange", "exchange", false, 1),
        ("add", "add", true, 1),
    ] {
        assert_eq!(barriers_between_atomics(first, second, uses), barriers, "{first} {second} {uses}");
    }
}

/// The barriers of a kernel that accesses `x`, a buffer that it may write, by 128 threads.
fn barriers_in(body: &str) -> usize {
    support::count(&memory_kernel(body).ptx, "bar.sync")
}

fn memory_kernel(body: &str) -> kernel_codegen::Compiled {
    let compiled = support::compile_for_hopper(&support::kernel(&memory_text(body)));
    support::assemble(&compiled);
    compiled
}

fn memory_text(body: &str) -> String {
    format!(
        "kernel memory \"memory.rs\" unsafe bound {{
           param %x x: ptr_mut i32 {{div = 16}}
           param %out out: ptr_mut i32 {{div = 16}}
           param %n n: i32
           %zero: i32 = const 0
           %one: i32 = const 1
           %i: i32[512] = arange {{lo = 0, hi = 512}}
           %xs: *x[512] = splat %x
           %xp: *x[512] = add_ptr %xs, %i
           %os: *out[512] = splat %out
           %op: *out[512] = add_ptr %os, %i
           %last: i32 = const 511
           %lasts: i32[512] = splat %last
           %back: i32[512] = sub %lasts, %i
           %xr: *x[512] = add_ptr %xs, %back
           %c: bool = cmp.lt %zero, %n
           {body}
           return
         }}"
    )
}

/// Elements that provably stay in their thread need no barrier; where that is not so, there is one.
#[test]
fn accesses_through_one_pointer_are_ordered() {
    let reads = |pointer: &str| format!("%v: i32[512] = load {pointer}\nstore %op, %v");
    assert_eq!(barriers_in(&format!("store %xp, %i\n{}", reads("%xp"))), 0, "each thread its own");
    assert_eq!(barriers_in(&format!("store %xp, %i\n{}", reads("%xr"))), 1, "from the other end");
    // Fewer elements than threads: several threads hold, and read, what one of them stores.
    let few = "%j: i32[64] = arange {lo = 0, hi = 64}
        %js: *x[64] = splat %x
        %jp: *x[64] = add_ptr %js, %j
        store %jp, %j
        %w: i32[64] = load %jp
        %ks: *out[64] = splat %out
        %kp: *out[64] = add_ptr %ks, %j
        store %kp, %w";
    assert_eq!(barriers_in(few), 1);
    // Each address twice.
    let twice = "%half: i32 = const 256
        %halves: i32[512] = splat %half
        %r: i32[512] = rem %i, %halves
        %rp: *x[512] = add_ptr %xs, %r
        store %rp, %i";
    assert_eq!(barriers_in(&format!("{twice}\n{}", reads("%rp"))), 1);
}

#[test]
fn accesses_of_two_iterations_and_of_two_branches_are_ordered() {
    // Each iteration goes one element further, so that an element is another thread's then.
    let walks = "for %zero, %n, %one (%k: i32) {
          %ks: i32[512] = splat %k
          %at: i32[512] = add %i, %ks
          %p: *x[512] = add_ptr %xs, %at
          %v: i32[512] = load %p
          %w: i32[512] = add %v, %v
          store %p, %w
          yield
        }";
    assert_eq!(barriers_in(walks), 1);
    let stays = walks.replace("add_ptr %xs, %at", "add_ptr %xs, %i");
    assert_eq!(barriers_in(&stays), 0);
    let read = "%v: i32[512] = load %xr\nstore %op, %v";
    assert_eq!(barriers_in(&format!("if %c {{\nstore %xp, %i\nyield\n}} else {{\nyield\n}}\n{read}")), 1);
    assert_eq!(barriers_in(&format!("if %c {{\nyield\n}} else {{\nstore %xp, %i\nyield\n}}\n{read}")), 1);
}

/// What the first thread reads or does for all goes through shared memory: a store, a barrier, a load.
#[test]
fn what_one_thread_knows_is_passed_on_behind_a_barrier() {
    let steers = "%t: i32 = load %x
        %more: bool = cmp.gt %t, %zero
        if %more {
          store %op, %i
          yield
        } else {
          yield
        }";
    // Of 64 atomics each is done by one of the threads that hold it.
    let few = "%j: i32[64] = arange {lo = 0, hi = 64}
        %js: *x[64] = splat %x
        %jp: *x[64] = add_ptr %js, %j
        %old: i32[64] = atomic_rmw %jp, %j {op = add, order = relaxed, scope = device}
        %ks: *out[64] = splat %out
        %kp: *out[64] = add_ptr %ks, %j
        store %kp, %old";
    for body in [steers, few] {
        assert_eq!(passed_on(body).0, "S|L");
    }
}

/// The stores, barriers and loads of shared memory, a letter each, and the PTX.
fn passed_on(body: &str) -> (String, String) {
    let text = memory_text(body).replace("%zero: i32", "param %fixed fixed: ptr i32 {div = 16}\n%zero: i32");
    let compiled = support::compile_for_hopper(&support::kernel(&text));
    support::assemble(&compiled);
    let ptx = compiled.ptx;
    let names = [("st.shared", 'S'), ("bar.sync", '|'), ("ld.shared", 'L')];
    let letter = |line: &str| names.iter().find(|(name, _)| line.contains(name)).map(|(_, letter)| *letter);
    (ptx.lines().filter_map(letter).collect(), ptx)
}

/// A number taken from a tile that each thread reads for itself is that of the first thread, where it decides.
#[test]
fn what_a_tile_decides_is_passed_on_behind_a_barrier() {
    let body = |size: u32, buffer: &str, one: &str, then: &str| {
        format!(
            "%j: i32[{size}] = arange {{lo = 0, hi = {size}}}
            %js: *{buffer}[{size}] = splat %{buffer}
            %jp: *{buffer}[{size}] = add_ptr %js, %j
            %tile: i32[{size}] = load %jp
            {one}
            {then}"
        )
    };
    let of_one = "%t: i32 = reshape %tile {shape = []}";
    let of_some = "%square: i32[2, 2] = reshape %tile {shape = [2, 2]}
            %half: i32[2] = half %square {upper = true}
            %row: i32[1, 2] = reshape %half {shape = [1, 2]}
            %part: i32[1] = half %row {upper = false}
            %t: i32 = reshape %part {shape = []}";
    let decides = "%more: bool = cmp.gt %t, %zero
        if %more {
          store %op, %i
          yield
        } else {
          yield
        }";
    let is_stored = "%all: i32[512] = splat %t
        store %op, %all";
    let (passed, ptx) = passed_on(&body(1, "x", of_one, decides));
    assert_eq!(passed, "S|L", "{ptx}");
    assert!(ptx.contains("ld.relaxed.gpu.global"), "what others write has to arrive: {ptx}");
    let (passed, ptx) = passed_on(&body(4, "x", of_some, decides));
    assert_eq!(passed, "S|L", "{ptx}");
    for (body, why) in [
        (body(1, "x", of_one, is_stored), "it decides nothing"),
        (body(4, "x", of_some, is_stored), "it decides nothing"),
        (body(1, "fixed", of_one, decides), "nobody changes it"),
    ] {
        let (passed, ptx) = passed_on(&body);
        assert_eq!(passed, "", "{why}: {ptx}");
        assert!(!ptx.contains("ld.relaxed"), "{why}: {ptx}");
    }
    // What one thread has seen or done for all is the same in all tiles that are made of it.
    let atomic = "atomic_rmw %jp, %j {op = add, order = relaxed, scope = device}";
    let (passed, ptx) = passed_on(&body(1, "x", of_one, decides).replace("load %jp", atomic));
    assert_eq!(passed, "S|L", "{ptx}");
}

/// A tile that a loop reads again and again until it is as it should be comes from where others write: the nearest cache keeps what
/// was there before.
#[test]
fn tiles_that_are_waited_for_arrive() {
    let load = "%v: i32[512] = load %xp
        %s: i32 = reduce %v {axis = 0} (%a: i32, %b: i32) {
          %ab: i32 = add %a, %b
          yield %ab
        }
        %more: bool = cmp.lt %s, %zero";
    let waits = format!("while () {{\n{load}\nyield %more\n}} do () {{\nyield\n}}");
    let asks = format!("{load}\nif %more {{\nstore %op, %i\nyield\n}} else {{\nyield\n}}");
    assert!(passed_on(&waits).1.contains("ld.relaxed.gpu.global.v4.b32"), "{}", passed_on(&waits).1);
    assert!(!passed_on(&asks).1.contains("ld.relaxed"), "it is read once");
    let of_fixed = waits.replace("load %xp", "load %fp");
    let fixed = format!("%fs: *fixed[512] = splat %fixed\n%fp: *fixed[512] = add_ptr %fs, %i\n{of_fixed}");
    assert!(!passed_on(&fixed).1.contains("ld.relaxed"), "nobody writes it");
}

/// Where a program runs, and when, is what the first thread sees, where it decides.
#[test]
fn what_the_hardware_counts_is_passed_on_where_it_decides() {
    for (which, ty) in [("clock", "i64"), ("globaltimer", "i64"), ("smid", "i32")] {
        let body = |then: &str| {
            format!(
                "%t: {ty} = counter {{which = {which}}}
                %none: {ty} = const 0
                %more: bool = cmp.gt %t, %none
                {then}"
            )
        };
        let decides = body("if %more {\nstore %op, %i\nyield\n} else {\nyield\n}");
        assert_eq!(passed_on(&decides).0, "S|L", "{which}");
        let masks = body("%m: bool[512] = splat %more\nstore %op, %i, %m");
        assert_eq!(passed_on(&masks).0, "", "{which}");
    }
}

/// What the kernel itself may store is read where stores go, as often as the kernel says; what does not change is read
/// through the other path, once.
#[test]
fn memory_that_may_change_is_read_each_time() {
    let twice = "%v: i32[512] = load %xp
        %w: i32[512] = add %v, %i
        store %xp, %w
        %u: i32[512] = load %xp
        store %op, %u";
    let ptx = memory_kernel(twice).ptx;
    let counts = |ptx: &str| ["ld.global.v4", "ld.global.nc.v4"].map(|what| support::count(ptx, what));
    assert_eq!(counts(&ptx), [2, 0], "{ptx}");
    let buffers = [(0..512).collect::<Vec<i32>>().into(), vec![0i32; 512].into()];
    let kernel = support::kernel(&memory_text(twice));
    support::differential::agrees(&kernel, &buffers, &[1], 1, support::differential::Agreement::Exact);
    // Between two loads that nothing stands between, other programs may have stored.
    let again = "%v: i32[512] = load %xp
        %u: i32[512] = load %xp
        %w: i32[512] = add %v, %u
        store %op, %w";
    assert_eq!(counts(&memory_kernel(again).ptx), [2, 0]);
    let constant = memory_text(again).replace("%x x: ptr_mut", "%x x: ptr");
    assert_eq!(counts(&support::compile_for_hopper(&support::kernel(&constant)).ptx), [0, 1]);
}

/// One call per element and thread that owns it, inside loops and branches too.
#[test]
fn prints_are_calls() {
    let text = "kernel prints \"prints.rs\" unsafe bound {
           param %n n: i32
           param %x x: ptr f32 {div = 16}
           %lo: i32 = const 0
           %step: i32 = const 1
           %i: i32[1024] = arange {lo = 0, hi = 1024}
           %xs: *x[1024] = splat %x
           %xp: *x[1024] = add_ptr %xs, %i
           %v: f32[1024] = load %xp
           %positive: bool[1024] = cmp.lt %i, %i
           for %lo, %n, %step (%k: i32) {
             %odd: bool = cmp.lt %lo, %k
             if %odd () {
               print %v, %positive {text = \"50% of {} {}\"}
               yield
             } else {
               print %k {text = \"k = {:?}\"}
               yield
             }
             yield
           }
           return
         }";
    for target in [Target::sm_80(), Target::sm_90a()] {
        let compiled = compile(&support::kernel(text), &target, &Options { num_warps: 4, ..Options::default() });
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
        support::assemble(&compiled);
        // A thread has eight of the elements, and one thread has the scalar.
        assert_eq!(support::count(&compiled.ptx, "vprintf, "), 9, "{}", compiled.ptx);
    }
    // What all threads have, one of them prints.
    let one = "kernel one \"one.rs\" unsafe bound {
           param %n n: i32
           print %n {text = \"{}\"}
           return
         }";
    let compiled = support::compile_for_hopper(&support::kernel(one));
    assert!(compiled.ptx.contains("%tid.x"), "{}", compiled.ptx);
}

/// ptxas takes a limit of registers without a number of programs beside it, and keeps to it.
#[test]
fn registers_are_limited_on_request() {
    let text = include_str!("kernels/layernorm.tile");
    for target in [Target::sm_80(), Target::sm_90a()] {
        let options = Options { max_registers: Some(40), ..Options::default() };
        let compiled = compile(&support::kernel(text), &target, &options).unwrap_or_else(|error| panic!("{error}"));
        support::assemble(&compiled);
        assert!(compiled.ptx.contains(".maxnreg 40"), "{}", compiled.ptx);
        assert!(!compiled.ptx.contains(".minnctapersm"), "{}", compiled.ptx);
        assert_eq!((compiled.min_programs, compiled.alternatives().count()), (None, 0));
        assert!(compiled.report().to_string().contains("at most 40 registers per thread"), "{}", compiled.report());
    }
}
