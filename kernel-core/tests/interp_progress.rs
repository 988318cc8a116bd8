//! Programs that wait for each other, with any number of threads, and limits of time.

#![cfg(feature = "interp")]

mod interp_support;

use std::time::Duration;

use interp_support::{bound, placed};
use kernel_core::interp::{Access, Arg, Fault, FaultKind, Program};

/// Far more than any launch here takes that makes progress, so that a test which would hang fails.
const HANG: Duration = Duration::from_secs(60);
/// Limits for launches that never end.
const SHORT: [Duration; 3] = [Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(20)];

/// Checks what a launch that never ends has done when its limit passes. A busy machine may not come far in a short time,
/// so longer limits are tried before that is a failure.
fn check_stopped<T: PartialEq + std::fmt::Debug>(want: T, run: impl Fn(Duration) -> T) {
    let [short, long, longest] = SHORT;
    if [short, long].into_iter().all(|limit| run(limit) != want) {
        assert_eq!(run(longest), want);
    }
}

/// Program and line of a fault that has to be that of the limit.
fn stopped(result: Result<(), Fault>, limit: Duration) -> (u32, u32) {
    let fault = result.expect_err("the launch never ends");
    assert_eq!(fault.kind, FaultKind::TimeLimit { limit });
    (fault.program_id[0], fault.span.line)
}

/// Runs a kernel of i32 buffers on a pool of that many threads.
fn launch(
    threads: usize,
    program: &Program,
    buffers: &mut [&mut Vec<i32>],
    programs: u32,
    limit: Duration,
) -> Result<(), Fault> {
    let arg = |buffer: &mut &mut Vec<i32>| Arg::Buffer { ptr: buffer.as_mut_ptr().cast(), len: buffer.len() };
    let args: Vec<Arg> = buffers.iter_mut().map(arg).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
    // SAFETY: the buffers are borrowed exclusively, and the kernels here take them as i32.
    pool.install(|| unsafe { program.run_within(&args, [programs, 1, 1], Some(limit)) })
}

/// A kernel of these buffers, all `ptr_mut i32`, with `%pid`, `%n`, `%zero`, `%one` and `%last` (`n - 1`) defined.
fn program(buffers: &[&str], body: &str) -> Program {
    let params: String = buffers.iter().map(|name| format!("param %{name} {name}: ptr_mut i32\n")).collect();
    Program::new(&bound(&params, &(PRELUDE.to_string() + body)))
}

const PRELUDE: &str = "%pid: i32 = program_id {axis = 0}
    %n: i32 = num_programs {axis = 0}
    %zero: i32 = const 0
    %one: i32 = const 1
    %last: i32 = sub %n, %one\n";

/// Waits until the element of `flags` at `%place` is 1, without changing it.
fn wait(name: &str, place: &str) -> String {
    format!(
        "%{name}: *flags = add_ptr %flags, {place}
         while @5:5+20 {{
           %{name}_seen: i32 = atomic_cas %{name}, %one, %one {{order = acq_rel, scope = device}} @5:11+5
           %{name}_go: bool = cmp.ne %{name}_seen, %one
           yield %{name}_go
         }} do {{
           yield
         }}\n"
    )
}

/// Sets the element of `flags` at `%place` to 1.
fn raise(name: &str, place: &str) -> String {
    format!(
        "%{name}: *flags = add_ptr %flags, {place}
         %{name}_old: i32 = atomic_rmw %{name}, %one {{op = exchange, order = acq_rel, scope = device}}\n"
    )
}

/// Each program waits for its neighbour, but for one: the last program upwards, the first downwards.
fn chain(upwards: bool) -> Program {
    let (end, step) = if upwards { ("%last", "add") } else { ("%zero", "sub") };
    let body = format!(
        "%inner: bool = cmp.ne %pid, {end}
         %neighbour: i32 = {step} %pid, %one
         if %inner {{ {} yield }} else {{ yield }}
         {}",
        wait("theirs", "%neighbour"),
        raise("own", "%pid")
    );
    program(&["flags"], &body)
}

#[test]
fn programs_wait_for_later_and_earlier_ones() {
    for upwards in [false, true] {
        let program = chain(upwards);
        for (threads, programs) in [(1, 2), (1, 3), (2, 4), (2, 1000), (1, 1000), (3, 999), (4, 37)] {
            let mut flags = vec![0; programs as usize];
            let result = launch(threads, &program, &mut [&mut flags], programs, HANG);
            assert_eq!(result, Ok(()), "{programs} programs on {threads} threads, upwards: {upwards}");
            assert_eq!(flags, vec![1; programs as usize]);
        }
    }
}

#[test]
fn programs_wait_in_any_order() {
    // Program p is at position 7 p mod n of a chain, and waits for the one at the position before.
    let n = 300;
    let body = format!(
        "%seven: i32 = const 7
         %product: i32 = mul %pid, %seven
         %place: i32 = rem %product, %n
         %inner: bool = cmp.ne %place, %zero
         %before: i32 = sub %place, %one
         if %inner {{ {} yield }} else {{ yield }}
         {}",
        wait("theirs", "%before"),
        raise("own", "%place")
    );
    let program = program(&["flags"], &body);
    for threads in [1, 2, 3] {
        let mut flags = vec![0; n];
        assert_eq!(launch(threads, &program, &mut [&mut flags], n as u32, HANG), Ok(()));
        assert_eq!(flags, vec![1; n]);
    }
}

#[test]
fn looking_back_gives_running_sums() {
    // State 0: nothing yet, 1: the program's own sum is there, 2: the sum up to it is. Sums are found by going back
    // from program to program, waiting for each, until one has state 2.
    let body = "%two: i32 = const 2
        %at: *sums = add_ptr %sums, %pid
        %total: *totals = add_ptr %totals, %pid
        %state: *states = add_ptr %states, %pid
        %own: i32 = add %pid, %one
        store %at, %own
        %s1: i32 = atomic_rmw %state, %one {op = exchange, order = acq_rel, scope = device}
        %before: i32 = sub %pid, %one
        %j0: i32, %sum: i32 = while %before, %own (%j: i32, %s: i32) {
          %more: bool = cmp.ge %j, %zero
          yield %more
        } do (%k: i32, %t: i32) {
          %theirs: *states = add_ptr %states, %k
          %seen: i32 = while %zero (%a: i32) {
            %unknown: bool = cmp.eq %a, %zero
            yield %unknown
          } do (%b: i32) {
            %c: i32 = atomic_rmw %theirs, %zero {op = add, order = acq_rel, scope = device}
            yield %c
          }
          %done: bool = cmp.eq %seen, %two
          %r: i32, %next: i32 = if %done {
            %p: *totals = add_ptr %totals, %k
            %x: i32 = load %p
            %minus: i32 = sub %zero, %one
            yield %x, %minus
          } else {
            %q: *sums = add_ptr %sums, %k
            %y: i32 = load %q
            %l: i32 = sub %k, %one
            yield %y, %l
          }
          %u: i32 = add %t, %r
          yield %next, %u
        }
        store %total, %sum
        %s2: i32 = atomic_rmw %state, %two {op = exchange, order = acq_rel, scope = device}";
    let program = program(&["sums", "totals", "states"], body);
    for threads in [1, 2, 3] {
        let [mut sums, mut totals, mut states] = [(); 3].map(|()| vec![0; 1000]);
        let result = launch(threads, &program, &mut [&mut sums, &mut totals, &mut states], 1000, HANG);
        assert_eq!(result, Ok(()));
        let want: Vec<i32> = (1..=1000).map(|i| i * (i + 1) / 2).collect();
        assert_eq!(totals, want, "{threads} threads");
    }
}

#[test]
fn partial_tiles_of_later_programs_are_collected() {
    // Stream-K: programs 4 t to 4 t + 3 compute parts of tile t; the first waits for the others and adds what they left.
    let body = format!(
        "%four: i32 = const 4
         %sixteen: i32 = const 16
         %ix: i32[16] = arange {{lo = 0, hi = 16}}
         %own: i32 = mul %pid, %sixteen
         %owns: i32[16] = splat %own
         %places: i32[16] = add %owns, %ix
         %start: *parts[16] = splat %parts
         %p: *parts[16] = add_ptr %start, %places
         %turn: i32 = rem %pid, %four
         %first: bool = cmp.eq %turn, %zero
         if %first {{
           %sum: i32[16] = for %one, %four, %one, %places (%k: i32, %s: i32[16]) {{
             %other: i32 = add %pid, %k
             {}
             %theirs: i32 = mul %other, %sixteen
             %theirss: i32[16] = splat %theirs
             %there: i32[16] = add %theirss, %ix
             %q: *parts[16] = add_ptr %start, %there
             %part: i32[16] = load %q
             %t: i32[16] = add %s, %part
             yield %t
           }}
           store %p, %sum
           yield
         }} else {{
           store %p, %places
           {}
           yield
         }}",
        wait("flag", "%other"),
        raise("done", "%pid")
    );
    let program = program(&["parts", "flags"], &body);
    for threads in [1, 2, 3] {
        let (programs, tiles) = (400usize, 100);
        let (mut parts, mut flags) = (vec![0; programs * 16], vec![0; programs]);
        let result = launch(threads, &program, &mut [&mut parts, &mut flags], programs as u32, HANG);
        assert_eq!(result, Ok(()));
        for tile in 0..tiles {
            for i in 0..16 {
                let place = |k: usize| ((4 * tile + k) * 16 + i) as i32;
                assert_eq!(parts[4 * tile * 16 + i], (0..4).map(place).sum::<i32>(), "tile {tile}, element {i}");
            }
        }
    }
}

#[test]
fn all_programs_meet_several_times() {
    // A barrier of the grid: every program has to be under way at the same time, in loops within a loop.
    let body = "%three: i32 = const 3
        for %zero, %three, %one (%k: i32) {
          %old: i32 = atomic_rmw %count, %one {op = add, order = acq_rel, scope = device}
          %k1: i32 = add %k, %one
          %all: i32 = mul %k1, %n
          while {
            %seen: i32 = load %count
            %go: bool = cmp.lt %seen, %all
            yield %go
          } do {
            yield
          }
          yield
        }";
    let program = program(&["count"], body);
    for (threads, programs) in [(1, 200), (2, 200), (3, 7)] {
        let mut count = vec![0];
        assert_eq!(launch(threads, &program, &mut [&mut count], programs, HANG), Ok(()));
        assert_eq!(count, [3 * programs as i32]);
    }
}

#[test]
fn a_lock_is_handed_on() {
    // Spinning writes the lock. Who holds it waits too, for a program that needs no lock, so others spin meanwhile.
    let body = format!(
        "%is_last: bool = cmp.eq %pid, %last
         if %is_last {{
           {}
           yield
         }} else {{
           while {{
             %taken: i32 = atomic_rmw %lock, %one {{op = exchange, order = acq_rel, scope = device}}
             %go: bool = cmp.eq %taken, %one
             yield %go
           }} do {{
             yield
           }}
           {}
           %c: i32 = load %count
           %d: i32 = add %c, %one
           store %count, %d
           %free: i32 = atomic_rmw %lock, %zero {{op = exchange, order = acq_rel, scope = device}}
           yield
         }}",
        raise("own", "%zero"),
        wait("flag", "%zero")
    );
    let program = program(&["count", "lock", "flags"], &body);
    for threads in [1, 2, 3] {
        let [mut count, mut lock, mut flags] = [(); 3].map(|()| vec![0]);
        let result = launch(threads, &program, &mut [&mut count, &mut lock, &mut flags], 500, HANG);
        assert_eq!((result, count), (Ok(()), vec![499]), "{threads} threads");
    }
}

#[test]
fn programs_that_work_are_not_all_put_aside() {
    // 1000 iterations, which change memory and could wait: as few programs as possible are under way.
    let body = "%trips: i32 = const 1000
        %at: *out = add_ptr %out, %pid
        %before: i32 = atomic_rmw %active, %one {op = add, order = acq_rel, scope = device}
        %now: i32 = add %before, %one
        %most_before: i32 = atomic_rmw %most, %now {op = max, order = acq_rel, scope = device}
        while {
          %x: i32 = load %at
          %go: bool = cmp.lt %x, %trips
          yield %go
        } do {
          %y: i32 = load %at
          %z: i32 = add %y, %one
          store %at, %z
          yield
        }
        %minus: i32 = sub %zero, %one
        %after: i32 = atomic_rmw %active, %minus {op = add, order = acq_rel, scope = device}";
    let program = program(&["out", "active", "most"], body);
    for threads in [1, 2] {
        let (mut out, mut active, mut most) = (vec![0; 200], vec![0], vec![0]);
        let result = launch(threads, &program, &mut [&mut out, &mut active, &mut most], 200, HANG);
        assert_eq!((result, &out, &active), (Ok(()), &vec![1000; 200], &vec![0]));
        // Turns of 256, 512 and 1024 iterations: a program ends in its third, while a second and third one have begun.
        assert!(most[0] <= 4 * threads as i32, "{} programs were under way on {threads} threads", most[0]);
    }
}

#[test]
fn the_first_program_with_a_fault_is_named_whenever_it_ends() {
    // Upwards, program 0 ends last. Programs from 2 on have stored out of bounds before they wait, and 1 fails after.
    let body = format!(
        "%two: i32 = const 2
         %inner: bool = cmp.ne %pid, %last
         %neighbour: i32 = add %pid, %one
         %far: *flags = add_ptr %flags, %n
         %early: bool = cmp.ge %pid, %two
         store %far, %one, %early
         if %inner {{ {} yield }} else {{ yield }}
         {}
         %good: bool = cmp.ne %pid, %one
         assert %good {{message = \"not program 1\"}} @9:9+7",
        wait("theirs", "%neighbour"),
        raise("own", "%pid")
    );
    let program = program(&["flags"], &body);
    for threads in [1, 2, 3] {
        let mut flags = vec![0; 100];
        let fault = launch(threads, &program, &mut [&mut flags], 100, HANG).expect_err("programs from 1 on fail");
        assert_eq!(fault.to_string(), "assertion failed: not program 1, in program (1, 0, 0), at 9:9");
        assert_eq!(flags, vec![1; 100], "all programs ran to their ends");
    }
}

#[test]
fn a_fault_is_kept_while_its_program_waits() {
    let body = format!(
        "%far: *flags = add_ptr %flags, %n
         %first: bool = cmp.eq %pid, %zero
         store %far, %one, %first
         {}",
        wait("never", "%zero")
    );
    let program = program(&["flags"], &body);
    check_stopped(Some((2, 2, Access::Store, [0, 0, 0])), |limit| {
        let mut flags = vec![0; 2];
        let fault = launch(1, &program, &mut [&mut flags], 2, limit).expect_err("program 0 waits for ever");
        match fault.kind {
            FaultKind::OutOfBounds { offset, len, access, .. } => Some((offset, len, access, fault.program_id)),
            _ => None,
        }
    });
}

#[test]
fn what_others_wait_for_in_vain_is_told_rather_than_the_limit() {
    // Program 5 fails, so 0 to 4 wait for ever.
    let body = format!(
        "%five: i32 = const 5
         %inner: bool = cmp.ne %pid, %last
         %neighbour: i32 = add %pid, %one
         if %inner {{ {} yield }} else {{ yield }}
         %good: bool = cmp.ne %pid, %five
         assert %good {{message = \"not program 5\"}}
         {}",
        wait("theirs", "%neighbour"),
        raise("own", "%pid")
    );
    let program = program(&["flags"], &body);
    for threads in [1, 2] {
        let failed = FaultKind::Assert { message: "not program 5".to_string() };
        check_stopped((failed, vec![0, 0, 0, 0, 0, 0, 1, 1]), |limit| {
            let mut flags = vec![0; 8];
            let result = launch(threads, &program, &mut [&mut flags], 8, limit);
            (result.expect_err("program 5 fails").kind, flags)
        });
    }
}

#[test]
fn a_limit_names_the_program_and_the_loop() {
    // Program 3 waits for ever, the others end.
    let body = format!(
        "%three: i32 = const 3
         %waits: bool = cmp.eq %pid, %three
         if %waits {{ {} yield }} else {{ yield }}
         {}",
        wait("never", "%zero"),
        raise("own", "%pid").replace("%flags", "%done").replace("*flags", "*done"),
    );
    let program = program(&["flags", "done"], &body);
    let others: Vec<i32> = (0..40).map(|i| i32::from(i != 3)).collect();
    for threads in [1, 2, 3] {
        check_stopped(((3, 5), others.clone()), |limit| {
            let (mut flags, mut done) = (vec![0], vec![0; 40]);
            let result = launch(threads, &program, &mut [&mut flags, &mut done], 40, limit);
            (stopped(result, limit), done)
        });
    }
}

#[test]
fn a_limit_is_told_with_its_program_and_place() {
    let span = kernel_core::ir::Span::new(5, 6, 7);
    let kind = FaultKind::TimeLimit { limit: Duration::from_millis(1500) };
    let text = "the launch took longer than its limit of 1.5s, in program (3, 0, 0), at 5:6";
    assert_eq!(Fault::new(kind, span, [3, 0, 0]).to_string(), text);
}

/// Checks in which program and lines a body that never ends may be stopped.
fn check_endless(threads: usize, body: &str, lines: &[u32]) {
    let program = program(&["out"], body);
    check_stopped((0, true), |limit| {
        let mut out = vec![0; 4];
        let (program, line) = stopped(launch(threads, &program, &mut [&mut out], 4, limit), limit);
        (program, lines.contains(&line))
    });
}

#[test]
fn loops_that_wait_for_nothing_are_stopped_too() {
    let forever = "while @7:5+5 { %go: bool = const true yield %go } do { yield }\n";
    check_endless(1, forever, &[7]);
    let long = "%lo: i64 = const 0 %hi: i64 = const 9223372036854775807 %step: i64 = const 1
        for %lo, %hi, %step @8:5+5 (%i: i64) { yield }\n";
    check_endless(1, long, &[8]);
    // The innermost loop is named; those around it go on for ever as well.
    let nested = format!("while @6:5+5 {{ %a: bool = const true yield %a }} do {{ {forever} yield }}\n");
    check_endless(2, &nested, &[7]);
    let outer = "while @6:5+5 { %a: bool = const true yield %a } do {
          for %zero, %one, %one @9:5+5 (%i: i32) { yield }
          yield
        }\n";
    check_endless(2, outer, &[6, 9]);
}

#[test]
fn programs_that_never_began_are_named_if_there_is_no_other() {
    let program = program(&["out"], "store %out, %pid @3:5+5");
    check_stopped(true, |limit| {
        let mut out = vec![0];
        // So many would take minutes.
        stopped(launch(2, &program, &mut [&mut out], i32::MAX as u32, limit), limit).0 > 0
    });
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() {
    let body = "%trips: i32 = const 1000
        %sum: i32 = for %zero, %trips, %one, %pid (%i: i32, %s: i32) {
          %t: i32 = add %s, %i
          yield %t
        }
        %at: *out = add_ptr %out, %pid
        store %at, %sum";
    let program = program(&["out"], body);
    for limit in [HANG, Duration::MAX] {
        let mut out = vec![0; 50];
        assert_eq!(launch(2, &program, &mut [&mut out], 50, limit), Ok(()));
        assert_eq!(out, (0..50).map(|p| 499_500 + p).collect::<Vec<i32>>());
    }
}

/// A placed kernel of two warp groups, with `%flags` and the prelude.
fn groups(first: &str, second: &str) -> Program {
    let body = format!(
        "{PRELUDE} warp_groups {{warps = [4, 4], roles = [consumer, producer], registers = [40, 232]}} {{ {first} yield }} with {{ {second} yield }}\n"
    );
    Program::from_placed(&placed("param %flags flags: ptr_mut i32", &body))
}

#[test]
fn warp_groups_wait_for_other_programs_and_for_each_other() {
    // Of program p, the first group waits for flag 2 p + 1, which the second raises once flag 2 p + 2 is raised: by the
    // first group of the next program.
    let places = "%two: i32 = const 2
        %a: i32 = mul %pid, %two
        %b: i32 = add %a, %one
        %c: i32 = add %b, %one\n";
    let second_places = places.replace("%a", "%d").replace("%b", "%e").replace("%c", "%f").replace("%two", "%deux");
    let first = format!("{places} {} {}", wait("w", "%b"), raise("r", "%a"));
    let second = format!("{second_places} {} {}", wait("v", "%f"), raise("s", "%e"));
    let program = groups(&first, &second);
    for threads in [1, 2] {
        let mut flags = vec![0; 101];
        flags[100] = 1;
        assert_eq!(launch(threads, &program, &mut [&mut flags], 50, HANG), Ok(()), "{threads} threads");
        assert_eq!(flags, vec![1; 101]);
    }
}

#[test]
fn warp_groups_that_never_end_are_stopped() {
    let program = groups(&wait("w", "%zero"), &raise("s", "%one"));
    check_stopped(((0, 5), vec![0, 1]), |limit| {
        let mut flags = vec![0; 2];
        (stopped(launch(1, &program, &mut [&mut flags], 3, limit), limit), flags)
    });
}
