//! Kernels of warp groups in generated code: what is refused, who arrives, who copies, and where warps meet.

mod support;

use kernel_codegen::{Compiled, Options, Target, compile, compile_placed};
use kernel_core::ir::Placed;
use support::differential::emulate_placed;
use support::registers::Registers;
use support::{assemble, count, kernel};

/// 128 x 256 x 64, f16, persistent, all row-major.
const PERSISTENT: &str = include_str!("kernels/persistent_matmul.tile");

/// A kernel of warp groups, as the code generator takes it.
fn groups(warps: &str, before: &str, first: &str, second: &str) -> Result<Compiled, String> {
    let text = format!(
        "kernel groups \"k.rs\" unsafe placed {{
  layout #0 = register, lane [1] [2] [4] [8] [16], warp [32] [64] -> dim0 128
  param %x x: ptr_mut f32
  %zero: i32 = const 0
  {before}
  warp_groups {{{warps}}} {{
    {first}
    yield
  }} with {{
    {second}
    yield
  }}
  return
}}
"
    );
    let func = kernel_core::text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    kernel_core::verify::verify(&func).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
    let placed = Placed::new(func).unwrap_or_else(|_| panic!("a placed kernel"));
    compile_placed(&placed, &Target::sm_90a(), &Options::default()).map_err(|error| error.to_string())
}

#[test]
fn what_groups_cannot_run_is_refused() {
    let fits = "warps = [4, 4], roles = [consumer, producer], registers = [0, 0]";
    let tile = "%t: i32[128] #0 = arange {lo = 0, hi = 128}
      %ps: *x[128] #0 = splat %x
      %p: *x[128] #0 = add_ptr %ps, %t
      %v: f32[128] #0 = load %p
      store %p, %v";
    let arrive = "mbarrier_arrive %b, %zero";
    let barrier = "%b: barrier[1] = mbarrier_alloc {slots = 1, count = 1}";
    for (warps, before, first, second, why) in [
        (fits, "", "", "", None),
        (fits, "", tile, "", None),
        (fits, barrier, arrive, "mbarrier_wait %b, %zero, %zero", None),
        (fits, "%is: bool = cmp.eq %zero, %zero\nassert %is {message = \"m\"}", "", "", None),
        (fits, "", "", tile, Some("a warp group that one thread runs")),
        (fits, "", "", "barrier", Some("a warp group that one thread runs")),
        (fits, tile, "", "", Some("beside warp groups")),
        (fits, "barrier", "", "", None),
        (fits, "warpgroup_barrier", "", "", Some("beside warp groups")),
        (fits, "", "%is: bool = cmp.eq %zero, %zero\nassert %is {message = \"m\"}", "", Some("an assertion")),
        (
            "warps = [8, 4], roles = [consumer, producer], registers = [0, 0]",
            "",
            "",
            "",
            Some("other warps than the layouts"),
        ),
        (
            "warps = [4, 4], roles = [consumer, producer], registers = [240, 20]",
            "",
            "",
            "",
            Some("number of registers"),
        ),
        (
            "warps = [4, 2], roles = [consumer, producer], registers = [240, 24]",
            "",
            "",
            "",
            Some("number of registers"),
        ),
        (
            "warps = [4, 8], roles = [consumer, producer], registers = [240, 240]",
            "",
            "",
            "",
            Some("too many registers in warp groups"),
        ),
    ] {
        match (groups(warps, before, first, second), why) {
            (Ok(compiled), None) => drop(assemble(&compiled)),
            (Err(error), Some(why)) => assert!(error.contains(why), "{error}"),
            (Ok(compiled), Some(why)) => panic!("compiles: {why}\n{}", compiled.ptx),
            (Err(error), None) => panic!("{error}"),
        }
    }
}

/// Eight warps arrive twice where the kernel says once, and the barrier counts on that.
#[test]
fn each_four_warps_arrive() {
    let text = |registers: &str| {
        format!(
            "kernel groups \"k.rs\" unsafe placed {{
  %zero: i32 = const 0
  %b: barrier[2] = mbarrier_alloc {{slots = 2, count = 3}}
  %c: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
  warp_groups {{warps = [8, 4], roles = [consumer, producer], registers = {registers}}} {{
    mbarrier_arrive %b, %zero
    mbarrier_wait %c, %zero, %zero
    yield
  }} with {{
    mbarrier_arrive %c, %zero
    yield
  }}
  return
}}
"
        )
    };
    let func = kernel_core::text::parse(&text("[232, 40]")).unwrap_or_else(|error| panic!("{error}"));
    let placed = Placed::new(func).unwrap_or_else(|_| panic!("a placed kernel"));
    let options = Options { num_warps: 8, ..Options::default() };
    let compiled = compile_placed(&placed, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    // Slots 0 and 1 of the first barrier count 3 * 2, the second 1.
    assert_eq!(count(&compiled.ptx, "mbarrier.init"), 3, "{}", compiled.ptx);
    assert!(compiled.ptx.contains(", 6;") && compiled.ptx.contains(", 1;"), "{}", compiled.ptx);
    // The first thread of each 128 arrives.
    assert_eq!(count(&compiled.ptx, "mbarrier.arrive"), 2, "{}", compiled.ptx);
    assert!(compiled.ptx.contains(", 127;"), "{}", compiled.ptx);
    let _ = assemble(&compiled);
    // Nobody waits for ever: each warp runs what its own group does.
    let func = kernel_core::text::parse(&text("[0, 0]")).unwrap_or_else(|error| panic!("{error}"));
    let placed = Placed::new(func).unwrap_or_else(|_| panic!("a placed kernel"));
    let compiled = compile_placed(&placed, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    for seed in 1..4 {
        emulate_placed(placed.func(), &compiled, &[], seed);
    }
}

/// The votes of a group are counted at its own barrier, whatever the others do.
#[test]
fn the_threads_of_a_group_vote() {
    for place in [0, 5, 31, 40, 127] {
        let text = format!(
            "kernel votes \"k.rs\" unsafe placed {{
  layout #0 = register, lane [1] [2] [4] [8] [16], warp [32] [64] -> dim0 128
  param %x x: ptr_mut i32
  %place: i32 = const {place}
  %one: i32 = const 1
  %two: i32 = const 2
  warp_groups {{warps = [4, 4], roles = [consumer, producer], registers = [0, 0]}} {{
    %i: i32[128] #0 = arange {{lo = 0, hi = 128}}
    %ones: i32[128] #0 = splat %one
    %places: i32[128] #0 = splat %place
    %is: bool[128] #0 = cmp.eq %i, %places
    %any: bool = reduce %is {{axis = 0}} (%p: bool, %q: bool) {{
      %m: bool = or %p, %q
      yield %m
    }}
    %isnt: bool[128] #0 = cmp.ne %i, %places
    %all: bool = reduce %isnt {{axis = 0}} (%r: bool, %s: bool) {{
      %n: bool = and %s, %r
      yield %n
    }}
    %a: i32 = select %any, %one, %place
    %b: i32 = select %all, %place, %two
    %both: i32 = add %a, %b
    %found: i32[128] #0 = splat %both
    %xs: *x[128] #0 = splat %x
    %at: *x[128] #0 = add_ptr %xs, %i
    store %at, %found
    yield
  }} with {{
    yield
  }}
  return
}}
"
        );
        let func = kernel_core::text::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let placed = Placed::new(func).unwrap_or_else(|_| panic!("a placed kernel"));
        let compiled =
            compile_placed(&placed, &Target::sm_90a(), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let votes: Vec<&str> = compiled.ptx.lines().filter(|line| line.contains("red.or.pred")).collect();
        assert!(votes.len() == 2 && votes.iter().all(|vote| vote.contains(" 1, 128, ")), "{}", compiled.ptx);
        let _ = assemble(&compiled);
        for seed in 1..4 {
            let found = emulate_placed(placed.func(), &compiled, &[vec![0i32; 128].into()], seed).remove(0);
            assert_eq!(found, vec![3i32; 128].into(), "place {place}, seed {seed}");
        }
    }
}

/// The first thread of each four warps copies out the rows that these have written.
#[test]
fn each_four_warps_copy_their_own_rows() {
    let compiled = {
        let options = Options { num_warps: 8, ..Options::default() };
        compile(&kernel(PERSISTENT), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"))
    };
    let values = Registers::of(&compiled.ptx);
    let lines = compiled.ptx.lines().map(str::trim);
    let copies: Vec<&str> = lines.filter(|line| line.contains("global.shared::cta.bulk_group")).collect();
    assert_eq!(copies.len(), 4, "{}", compiled.ptx);
    for line in copies {
        let list = |begin: char, end: char, number: usize| {
            let rest = line.split(begin).nth(number)?;
            rest.split(end).next()
        };
        let guard = line.strip_prefix('@').and_then(|rest| rest.split(' ').next()).expect("a predicate");
        let coordinates: Vec<&str> = list('{', '}', 1).expect("coordinates").split(", ").collect();
        let place = list('[', ']', 2).expect("an address");
        let copying: Vec<u32> = (0..256).filter(|&thread| values.at(guard, thread) != 0).collect();
        assert_eq!(copying, [0, 128], "{line}\n{}", compiled.ptx);
        // Columns stand first. 64 rows of 64 halves are 8 KiB.
        let further = |operand: &str| values.at(operand, 128).wrapping_sub(values.at(operand, 0));
        assert_eq!(further(coordinates[0]), 0, "{line}\n{}", compiled.ptx);
        assert_eq!(further(coordinates[1]), 64, "{line}\n{}", compiled.ptx);
        assert_eq!(further(place), 8 * 1024, "{line}\n{}", compiled.ptx);
    }
}

/// All threads of a group meet at a barrier of its own, and each four of its warps at one behind those of the groups.
#[test]
fn groups_meet_at_barriers_of_their_own() {
    let text = "kernel groups \"k.rs\" unsafe placed {
  warp_groups {warps = [8, 4], roles = [consumer, producer], registers = [232, 40]} {
    barrier
    warpgroup_barrier
    yield
  } with {
    yield
  }
  return
}
";
    let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let placed = Placed::new(func).unwrap_or_else(|_| panic!("a placed kernel"));
    let options = Options { num_warps: 8, ..Options::default() };
    let ptx = compile_placed(&placed, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}")).ptx;
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let barriers: Vec<&&str> = lines.iter().filter(|line| line.starts_with("bar")).collect();
    let [all, four] = barriers.as_slice() else { panic!("{barriers:?}\n{ptx}") };
    assert!(all.ends_with("1, 256;"), "{all}\n{ptx}");
    assert!(four.ends_with(", 128;"), "{four}\n{ptx}");
    // Barriers 1 and 2 are those of the groups.
    assert!(
        lines.iter().any(|line| (line.starts_with("add") || line.starts_with("or")) && line.ends_with(", 3;")),
        "{ptx}"
    );
}
