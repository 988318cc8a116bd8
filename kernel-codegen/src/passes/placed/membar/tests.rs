//! As many barriers as are needed, and no more.

use kernel_core::text::{parse, print};
use kernel_core::verify::verify;

/// Layouts of a tile: two in which different threads hold an element, one in which several hold it, and one that matrix
/// instructions store and load.
const HEAD: &str = "kernel test \"test.rs\" unsafe placed {
    param %p p: ptr_mut f32
    param %n n: i32
    param %t t: desc f32[32, 32]
    param %u u: desc_mut f32[32, 32]
    layout #0 = register [0, 1] [0, 2] [0, 4], lane [0, 8] [0, 16] [1, 0] [2, 0] [4, 0], warp [8, 0] [16, 0] -> dim0 32, dim1 32
    layout #1 = register [1, 0] [2, 0] [4, 0], lane [8, 0] [16, 0] [0, 1] [0, 2] [0, 4], warp [0, 8] [0, 16] -> dim0 32, dim1 32
    layout #2 = offset [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [1, 0] [2, 0] [4, 0] [8, 0] [16, 0] -> dim0 32, dim1 32
    layout #3 = register [0, 1] [0, 2] [0, 4] [0, 8], lane [0, 16] [1, 0] [2, 0] [4, 0] [8, 0], warp [0, 0] [16, 0] -> dim0 32, dim1 32
    layout #4 = register [0, 4] [0, 8] [0, 16], lane [0, 1] [0, 2] [1, 0] [2, 0] [4, 0], warp [8, 0] [16, 0] -> dim0 32, dim1 32
    %zero: i32 = const 0
    %one: i32 = const 1
    %two: i32 = const 2
    %three: i32 = const 3
    %x: f32 = const 1.0
    %yes: bool = cmp.lt %zero, %n
    %a: f32[32, 32] #0 = splat %x
    %b: f32[32, 32] #1 = splat %x
    %c: f32[32, 32] #3 = splat %x
    %e: f32[32, 32] #4 = splat %x
    %q: *p[32, 32] #0 = splat %p
    %v: shared f32[32, 32] #2 = shared_alloc
    %w: shared f32[32, 32] #2 = shared_alloc
    %s: shared f32[3, 32, 32] #2 = shared_alloc
    %s0: shared f32[32, 32] #2 = shared_index %s, %zero
    %s1: shared f32[32, 32] #2 = shared_index %s, %one
";

/// Keeps the allocations live to the end, so that none share memory.
const TAIL: &str = "
    if %yes {
      %end0: f32[32, 32] #0 = shared_load %v
      %end1: f32[32, 32] #0 = shared_load %w
      %end2: f32[32, 32] #0 = shared_load %s0
      yield
    } else { yield }
    return
}";

/// The places of the barriers: between which operations of the body.
fn barriers(body: &str) -> String {
    let all = marks(&format!("{HEAD}{body}\n barrier {TAIL}"));
    // The end is always the same: what is put before it settles everything, if anything is left.
    all.strip_suffix("LLL)/)").unwrap_or(&all).trim_end_matches(['f', '|']).to_string()
}

/// As [`barriers`], where memory is free again after the last use of an allocation.
fn barriers_where_memory_is_shared(body: &str) -> String {
    // What the head allocates besides is live there, and would take the places.
    let is_other = |line: &&str| ["%w:", "%s:", "%s0:", "%s1:"].iter().any(|name| line.trim().starts_with(name));
    let head: Vec<&str> = HEAD.lines().filter(|line| !is_other(line)).collect();
    marks(&format!("{}\n{body}\n return\n}}", head.join("\n")))
}

/// The operations of a kernel that count, one letter each; those of its head do not.
fn marks(text: &str) -> String {
    let mut func = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    super::run(&mut func).expect("no mistake");
    verify(&func).unwrap_or_else(|problems| panic!("{problems:?}\n{}", print(&func)));
    let printed = print(&func);
    let names = printed.lines().filter_map(|line| {
        let words = [
            "barrier_",
            "shared_store",
            "shared_load",
            "barrier",
            "async_copy",
            "async_wait",
            "tma_load",
            "tma_store",
            "tma_store_wait",
            "for",
            "else",
            "yield",
            "fence",
        ];
        let letters = ["", "S", "L", "|", "c", "w", "t", "T", "W", "(", "/", ")", "f"];
        let found = words.iter().position(|word| line.split_whitespace().any(|part| part == *word))?;
        Some(letters[found])
    });
    names.collect()
}

#[test]
fn a_read_after_a_write_by_others_waits() {
    assert_eq!(barriers("shared_store %v, %a\n%r: f32[32, 32] #1 = shared_load %v"), "S|L");
}

#[test]
fn a_read_of_what_the_thread_itself_wrote_does_not() {
    assert_eq!(barriers("shared_store %v, %a\n%r: f32[32, 32] #0 = shared_load %v"), "SL");
    // Where several threads hold an element, another one may have written it.
    assert_eq!(barriers("shared_store %v, %c\n%r: f32[32, 32] #3 = shared_load %v"), "S|L");
    // Matrix instructions pass elements between lanes.
    assert_eq!(barriers("shared_store %v, %e\n%r: f32[32, 32] #4 = shared_load %v"), "S|L");
}

#[test]
fn writes_after_reads_and_writes_wait() {
    assert_eq!(barriers("%r: f32[32, 32] #1 = shared_load %v\nshared_store %v, %a"), "L|S");
    assert_eq!(barriers("shared_store %v, %a\nshared_store %v, %b"), "S|S");
    assert_eq!(barriers("%r: f32[32, 32] #1 = shared_load %v\n%k: f32[32, 32] #0 = shared_load %v"), "LL");
}

#[test]
fn one_barrier_serves_all_that_came_before() {
    let body = "shared_store %v, %a\nshared_store %w, %a\n%r: f32[32, 32] #1 = shared_load %v\n%k: f32[32, 32] #1 = shared_load %w";
    assert_eq!(barriers(body), "SS|LL");
    let body = "shared_store %v, %a\n%r: f32[32, 32] #1 = shared_load %v\nshared_store %w, %a\n%k: f32[32, 32] #1 = shared_load %w";
    assert_eq!(barriers(body), "S|LS|L");
}

#[test]
fn slots_that_are_known_to_differ_do_not_meet() {
    assert_eq!(barriers("shared_store %s0, %a\n%r: f32[32, 32] #1 = shared_load %s1"), "SL");
    assert_eq!(barriers("shared_store %s0, %a\n%r: f32[32, 32] #1 = shared_load %s0"), "S|L");
    let body =
        "%si: shared f32[32, 32] #2 = shared_index %s, %n\nshared_store %s0, %a\n%r: f32[32, 32] #1 = shared_load %si";
    assert_eq!(barriers(body), "S|L");
}

#[test]
fn barriers_that_are_not_needed_go() {
    assert_eq!(
        barriers("barrier\nshared_store %v, %a\nbarrier\nbarrier\n%r: f32[32, 32] #1 = shared_load %v\nbarrier"),
        "S|L"
    );
}

#[test]
fn an_iteration_meets_the_one_before_it() {
    let body = |inside: &str| format!("for %zero, %n, %one (%i: i32) {{\n{inside}\nyield\n}}");
    let inside = "shared_store %v, %a\n%r: f32[32, 32] #1 = shared_load %v";
    assert_eq!(barriers(&body(inside)), "(|S|L)");
    // Two buffers: the barrier of one serves the other.
    let inside = format!("{inside}\nshared_store %w, %a\n%k: f32[32, 32] #1 = shared_load %w");
    assert_eq!(barriers(&body(&inside)), "(S|LS|L)");
}

#[test]
fn branches_leave_what_either_leaves() {
    let body = "if %yes {\nshared_store %v, %a\nyield\n} else {\nyield\n}\n%r: f32[32, 32] #1 = shared_load %v";
    assert_eq!(barriers(body), "S)/)|L");
    let body = "shared_store %v, %a\nif %yes {\n%r: f32[32, 32] #1 = shared_load %v\nyield\n} else {\nyield\n}";
    assert_eq!(barriers(body), "S|L)/)");
    let body = "if %yes {\nshared_store %v, %a\nyield\n} else {\nyield\n}\n%r: f32[32, 32] #0 = shared_load %v";
    assert_eq!(barriers(body), "S)/)L");
}

/// A loop that stores to the slot of its iteration, and reads the slot `back` iterations behind.
fn rotating(first_read: &str) -> String {
    format!(
        "%w1: i32, %r1: i32 = for %zero, %n, %one, %zero, {first_read} (%i: i32, %wi: i32, %ri: i32) {{
           %sw: shared f32[32, 32] #2 = shared_index %s, %wi
           shared_store %sw, %a
           %sr: shared f32[32, 32] #2 = shared_index %s, %ri
           %l: f32[32, 32] #1 = shared_load %sr
           %wn: i32 = add %wi, %one
           %we: bool = cmp.eq %wn, %three
           %wx: i32 = select %we, %zero, %wn
           %rn: i32 = add %ri, %one
           %re: bool = cmp.eq %rn, %three
           %rx: i32 = select %re, %zero, %rn
           yield %wx, %rx
         }}"
    )
}

#[test]
fn rotating_slots_need_one_barrier_per_iteration() {
    assert_eq!(barriers(&rotating("%zero")), "(S|L)", "three slots: what is overwritten was read two barriers ago");
    assert_eq!(barriers(&rotating("%two")), "(S|L)", "what was stored in the iteration before");
    assert_eq!(barriers(&rotating("%one")), "(|SL)", "what is overwritten in the next iteration");
}

#[test]
fn slots_are_known_only_while_their_own_loop_turns() {
    // A counter that goes back to zero when another number says so may be at any slot.
    let other = rotating("%zero").replace("cmp.eq %rn, %three", "cmp.eq %i, %three");
    assert_eq!(barriers(&other), "(|S|L)");
    // What a visit of the loop has left is at slots that the next visit does not know.
    let again = format!("for %zero, %n, %one (%o: i32) {{\n{}\nyield\n}}", rotating("%two"));
    assert_eq!(barriers(&again), "((|SL))");
    // Counters of two loops say nothing about each other.
    let nested = "%w1: i32 = for %zero, %n, %one, %zero (%i: i32, %wi: i32) {
           %sw: shared f32[32, 32] #2 = shared_index %s, %wi
           shared_store %sw, %a
           %r1: i32 = for %zero, %n, %one, %one (%j: i32, %ri: i32) {
             %sr: shared f32[32, 32] #2 = shared_index %s, %ri
             %l: f32[32, 32] #1 = shared_load %sr
             %rn: i32 = add %ri, %one
             %re: bool = cmp.eq %rn, %three
             %rx: i32 = select %re, %zero, %rn
             yield %rx
           }
           %wn: i32 = add %wi, %one
           %we: bool = cmp.eq %wn, %three
           %wx: i32 = select %we, %zero, %wn
           yield %wx
         }";
    assert_eq!(barriers(nested), "(|S(|L))");
}

#[test]
fn copies_are_there_after_their_wait_and_for_others_after_a_barrier() {
    let copy =
        "%t0: token = async_copy %v, %q\n%g: token = async_commit %t0\n%h: token = async_wait %g {pending = 0}\n";
    assert_eq!(barriers(&format!("{copy}%r: f32[32, 32] #1 = shared_load %v")), "cw|L");
    assert_eq!(barriers(&format!("{copy}%r: f32[32, 32] #0 = shared_load %v")), "cwL");
    let early = copy.replace("pending = 0", "pending = 1");
    assert_eq!(
        barriers(&format!("{early}%r: f32[32, 32] #1 = shared_load %v")),
        "cww|L",
        "the wait that lacks is put in"
    );
    assert_eq!(barriers(&format!("{early}%r: f32[32, 32] #0 = shared_load %v")), "cwwL", "for its own thread, too");
}

#[test]
fn barriers_with_phases_order_tensor_copies() {
    let body = |before: &str| {
        format!(
            "%bar: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
             %bytes: i32 = const 4096
             {before}
             mbarrier_arrive %bar, %zero, %bytes
             tma_load %t, %v, %bar, %zero, %zero, %zero
             mbarrier_wait %bar, %zero, %zero
             %r: f32[32, 32] #1 = shared_load %v"
        )
    };
    assert_eq!(barriers(&body("")), "tL", "nobody waits but for the phase");
    assert_eq!(barriers(&body("%k: f32[32, 32] #1 = shared_load %v")), "Lf|tL");
}

/// A load that is on its way when its thread passes the barrier is overtaken by a tensor copy, unless there is a fence.
#[test]
fn tensor_copies_do_not_overtake_what_threads_do() {
    let kernel = |before: &str| {
        format!(
            "%bar: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
             %bytes: i32 = const 4096
             {before}
             mbarrier_arrive %bar, %zero, %bytes
             tma_load %t, %v, %bar, %zero, %zero, %zero
             mbarrier_wait %bar, %zero, %zero"
        )
    };
    let of = |before: &str| barriers(&kernel(before));
    let load = |to: &str, from: &str| format!("%{to}: f32[32, 32] #1 = shared_load {from}\n");
    assert_eq!(of(&format!("{}fence {{kind = proxy_async}}", load("k", "%v"))), "Lf|t", "one fence is enough");
    assert_eq!(of(&load("k", "%w")), "Lt", "other memory");
    // The barrier that something else needs serves the tensor copy too.
    assert_eq!(of(&format!("shared_store %w, %a\n{}{}", load("k", "%v"), load("m", "%w"))), "SLf|Lt");
    // A fence behind the barrier is too late: by then its threads may still have loads on their way.
    assert_eq!(of("shared_store %v, %a\ntma_store_wait {pending = 0}"), "SWf|t");
    let loops = format!("for %zero, %n, %one (%i: i32) {{\n{}\n{}yield\n}}", kernel(""), load("k", "%v"));
    let bars = "%bar: barrier[1] = mbarrier_alloc {slots = 1, count = 1}\n%bytes: i32 = const 4096\n";
    let inside = loops.replace(bars.lines().next().unwrap_or(""), "").replace("%bytes: i32 = const 4096", "");
    assert_eq!(barriers(&format!("{bars}{inside}")), "(f|tL)");
}

/// What a fence tells of is over, and it does not matter which slot the next tensor copy fills: a later one fills any.
#[test]
fn fences_come_behind_what_they_tell_of() {
    let fill = "%bar: barrier[1] = mbarrier_alloc {slots = 1, count = 1}
        %bytes: i32 = const 4096
        mbarrier_arrive %bar, %zero, %bytes
        tma_load %t, %v, %bar, %zero, %zero, %zero";
    let copy = |fence: &str| {
        format!(
            "%t0: token = async_copy %v, %q\n%g: token = async_commit %t0\n{fence}\n\
             %h: token = async_wait %g {{pending = 0}}\n{fill}"
        )
    };
    assert_eq!(barriers(&copy("")), "cwf|t");
    assert_eq!(barriers(&copy("fence {kind = proxy_async}")), "cfwf|t", "the copy was in flight at the first fence");
    let turn = |name: &str| {
        format!(
            "%{name}n: i32 = add %{name}, %one
             %{name}e: bool = cmp.eq %{name}n, %three
             %{name}x: i32 = select %{name}e, %zero, %{name}n"
        )
    };
    let slots = format!(
        "%bar: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
         %bytes: i32 = const 4096
         %r1: i32, %f1: i32 = for %zero, %n, %one, %zero, %one (%i: i32, %r: i32, %f: i32) {{
           %sr: shared f32[32, 32] #2 = shared_index %s, %r
           %sf: shared f32[32, 32] #2 = shared_index %s, %f
           shared_store %w, %a
           %l: f32[32, 32] #1 = shared_load %sr
           %k: f32[32, 32] #1 = shared_load %w
           mbarrier_arrive %bar, %zero, %bytes
           tma_load %t, %sf, %bar, %zero, %zero, %zero
           mbarrier_wait %bar, %zero, %zero
           {}
           {}
           yield %rx, %fx
         }}",
        turn("r"),
        turn("f")
    );
    // The barrier before the second load is the last one before a tensor copy fills the slot of the first load.
    assert_eq!(barriers(&slots), "(|SLf|Lt)");
}

#[test]
fn allocations_that_share_memory_meet() {
    let alloc = "%late: shared f32[32, 32] #2 = shared_alloc\n";
    // What is read last must have been read before another allocation overwrites it, even by the same thread: it holds
    // another element there.
    let body = format!("shared_store %v, %a\n%r: f32[32, 32] #0 = shared_load %v\n{alloc}shared_store %late, %a");
    assert_eq!(barriers_where_memory_is_shared(&body), "SL|S");
    // An allocation that is live beside the other one has memory of its own.
    let beside = format!("{body}\n%k: f32[32, 32] #0 = shared_load %v");
    assert_eq!(barriers_where_memory_is_shared(&beside), "SLSL");
    // A write that nobody has read, and one that follows it in the same memory.
    let body = format!("shared_store %v, %a\n{alloc}shared_store %late, %b\n%r: f32[32, 32] #1 = shared_load %late");
    assert_eq!(barriers_where_memory_is_shared(&body), "S|SL");
    // What a copy has brought, nobody needs to have read.
    let copy =
        "%t0: token = async_copy %v, %q\n%g: token = async_commit %t0\n%h: token = async_wait %g {pending = 0}\n";
    let body = format!("{copy}{alloc}shared_store %late, %a\n%r: f32[32, 32] #0 = shared_load %late");
    assert_eq!(barriers_where_memory_is_shared(&body), "cw|SL");
}

#[test]
fn what_goes_on_is_waited_for_before_it_is_overwritten() {
    // A tensor store reads until its wait, which lacks here.
    let body = "shared_store %v, %a\ntma_store %u, %v, %zero, %zero\nshared_store %v, %b";
    assert_eq!(barriers(body), "Sf|TW|S");
    // Of three groups, a wait that leaves two has ended the first only.
    let copy =
        |view: &str, n: u32| format!("%t{n}: token = async_copy {view}, %q\n%g{n}: token = async_commit %t{n}\n");
    let copies = [copy("%v", 0), copy("%w", 1), copy("%s0", 2)].concat();
    let body =
        |view: &str| format!("{copies}%h: token = async_wait {{pending = 2}}\n%r: f32[32, 32] #0 = shared_load {view}");
    let of = |view: &str| barriers(&body(view));
    assert!(of("%v").starts_with("cccwL"), "{}", of("%v"));
    assert!(of("%w").starts_with("cccwwL"), "{}", of("%w"));
}

#[test]
fn the_outermost_index_says_the_slot() {
    let body = "%o: shared f32[2, 1, 32, 32] #2 = shared_alloc
        %o0: shared f32[1, 32, 32] #2 = shared_index %o, %zero
        %o1: shared f32[1, 32, 32] #2 = shared_index %o, %one
        %o00: shared f32[32, 32] #2 = shared_index %o0, %zero
        %o10: shared f32[32, 32] #2 = shared_index %o1, %zero
        shared_store %o00, %a
        %r: f32[32, 32] #1 = shared_load %o10
        %k: f32[32, 32] #1 = shared_load %o00";
    assert_eq!(barriers(body), "SL|L");
}

#[test]
fn loops_that_may_not_run_settle_nothing() {
    let inside = "shared_store %w, %a\n%k: f32[32, 32] #1 = shared_load %w";
    let body = format!(
        "shared_store %v, %a\nfor %zero, %n, %one (%i: i32) {{\n{inside}\nyield\n}}\n%r: f32[32, 32] #1 = shared_load %v"
    );
    assert_eq!(barriers(&body), "S(|S|L)|L");
    // The last condition of a loop is behind its last iteration.
    let body = format!(
        "while {{\nshared_store %v, %a\nyield %yes\n}} do {{\n{inside}\nyield\n}}\n%r: f32[32, 32] #1 = shared_load %v"
    );
    let found = barriers(&body);
    assert!(found.ends_with("|L)|L"), "{found}");
}

#[test]
fn kernels_of_several_groups_keep_their_barriers() {
    let body = "warp_groups {warps = [4, 4], roles = [consumer, producer], registers = [40, 40]} {
           shared_store %v, %a
           barrier
           %r: f32[32, 32] #1 = shared_load %v
           yield
         } with {
           yield
         }";
    assert!(marks(&format!("{HEAD}{body}\n return\n}}")).starts_with("S|L)"));
}
