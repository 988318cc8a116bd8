//! The report says why something is not as fast as it could be, at its line.

mod support;

use kernel_codegen::report::{Narrow, Report};
use kernel_codegen::{Checks, Options, Target, compile};
use kernel_core::ir::Bound;
use support::written::{compiled, placed};

/// What a report says of a kernel's accesses: the line and the reason.
fn narrow(report: &Report) -> Vec<(u32, Option<Narrow>)> {
    report.accesses.iter().map(|access| (access.span.line, access.narrow)).collect()
}

fn report_of(text: &str, target: Target, options: &Options) -> Report {
    let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let kernel = Bound::new(func).unwrap_or_else(|_| panic!("the kernel is not bound"));
    compile(&kernel, &target, options).unwrap_or_else(|error| panic!("{error}\n{text}")).report()
}

fn on_hopper(text: &str) -> Report {
    report_of(text, Target::sm_90a(), &Options::default())
}

/// Loads `size` elements of `x` at `offsets`, and stores them somewhere in a row.
fn copy(size: u32, facts: &str, offsets: &str, mask: &str) -> String {
    let masked = if mask.is_empty() { "" } else { ", %m" };
    format!(
        r#"kernel copy "copy.rs" unsafe bound {{
  param %x x: ptr f32 {facts}
  param %out out: ptr_mut f32 {{div = 16}}
  param %s s: i32
  param %e e: i32 {{div = 8}}
  %i: i32[{size}] = arange {{lo = 0, hi = {size}}}
  {offsets}
  {mask}
  %xs: *x[{size}] = splat %x
  %p: *x[{size}] = add_ptr %xs, %o
  %v: f32[{size}] = load %p{masked} @4:7+4
  %os: *out[{size}] = splat %out
  %q: *out[{size}] = add_ptr %os, %i
  store %q, %v @5:3+5
  return
}}
"#
    )
}

/// Each reason for accesses of less than 16 bytes is that which keeps them narrow: without it they are wide.
#[test]
fn narrow_accesses_say_what_keeps_them_narrow() {
    let aligned = "{div = 16}";
    let plain =
        |size: u32| format!("%z: i32 = const 0\n  %zs: i32[{size}] = splat %z\n  %o: i32[{size}] = add %i, %zs");
    let shifted = |by: &str| format!("%b: i32[1024] = splat {by}\n  %o: i32[1024] = add %i, %b");
    let strided = "%b: i32[1024] = splat %s\n  %o: i32[1024] = mul %i, %b";
    let pairs = "%two: i32 = const 2\n  %b: i32[1024] = splat %two\n  %h: i32[1024] = rem %i, %b\n  %j: i32[1024] = div %i, %b\n  %t: i32[1024] = splat %e\n  %g: i32[1024] = mul %j, %t\n  %o: i32[1024] = add %g, %h";
    let mask = |below: &str| format!("%n: i32[1024] = splat {below}\n  %m: bool[1024] = cmp.lt %i, %n");
    let cases = [
        (copy(1024, aligned, &plain(1024), ""), None),
        (copy(1024, "{div = 8}", &plain(1024), ""), Some(Narrow::Buffer(2))),
        (copy(1024, "{div = 4}", &plain(1024), ""), Some(Narrow::Buffer(1))),
        (copy(1024, aligned, &shifted("%s"), ""), Some(Narrow::Offsets(1))),
        (copy(1024, aligned, &shifted("%e"), ""), None),
        (copy(1024, aligned, strided, ""), Some(Narrow::Contiguity(1))),
        (copy(1024, aligned, &plain(1024), &mask("%s")), Some(Narrow::Mask(1))),
        (copy(1024, aligned, &plain(1024), &mask("%e")), None),
        (copy(256, aligned, &plain(256), ""), Some(Narrow::Share(2))),
        (copy(64, aligned, &plain(64), ""), Some(Narrow::Share(1))),
    ];
    for (text, expected) in cases {
        let report = on_hopper(&text);
        assert_eq!(narrow(&report)[0], (4, expected), "{report}");
        let line = report
            .to_string()
            .lines()
            .find(|line| line.contains("copy.rs:4:7: `x` is accessed by"))
            .map(str::to_string);
        match expected {
            None => assert_eq!(line, None),
            Some(why) => {
                let bytes = report.accesses[0].bytes;
                let expected = format!("  copy.rs:4:7: `x` is accessed by {bytes} bytes at once, not 16: {why}");
                assert_eq!(line, Some(expected), "{report}");
            }
        }
    }
    let report = on_hopper(&copy(1024, aligned, pairs, ""));
    assert!(matches!(narrow(&report)[0].1, Some(Narrow::Contiguity(2))), "{report}");
    // In the variant that checks everything, it is the length.
    let text = copy(1024, aligned, &plain(1024), "").replace(" unsafe ", " safe ");
    let options = Options { checks: Checks::EveryAccess, ..Options::default() };
    let report = report_of(&text, Target::sm_90a(), &options);
    assert_eq!(narrow(&report), [(4, Some(Narrow::Mask(1))), (5, Some(Narrow::Mask(1)))], "{report}");
    let known = text.replacen("{div = 16}", "{div = 16, len_div = 16}", 2);
    let report = report_of(&known, Target::sm_90a(), &options);
    assert_eq!(narrow(&report), [(4, None), (5, None)], "{report}");
}

#[test]
fn atomics_say_that_they_go_one_by_one() {
    let text =
        copy(1024, "{div = 16}", "%z: i32 = const 0\n  %zs: i32[1024] = splat %z\n  %o: i32[1024] = add %i, %zs", "");
    let atomic = |op: &str| {
        let atomic =
            format!("%was: f32[1024] = atomic_rmw %q, %v {{op = {op}, order = relaxed, scope = device}} @5:3+5");
        text.replace("store %q, %v @5:3+5", &atomic)
    };
    let report = on_hopper(&atomic("max"));
    assert_eq!(narrow(&report)[1], (5, Some(Narrow::Atomic)), "{report}");
    // Floats are added in vectors, but not by older GPUs.
    let report = on_hopper(&atomic("add"));
    assert_eq!(narrow(&report)[1], (5, None), "{report}");
    let report = report_of(&atomic("add"), Target::sm_80(), &Options::default());
    assert_eq!(narrow(&report)[1], (5, Some(Narrow::Atomic)), "{report}");
}

/// A sum over `x` in a loop, `head` of which may say something, with these operations before and behind the load.
fn summed(head: &str, before: &str, load: &str, after: &str) -> String {
    format!(
        r#"kernel summed "summed.rs" unsafe bound {{
  param %x x: ptr_mut f32 {{div = 16}}
  param %out out: ptr_mut f32 {{div = 16}}
  param %index index: ptr i32 {{div = 16}}
  param %n n: i32 {{div = 16}}
  %zero: i32 = const 0
  %step: i32 = const 1024
  %i: i32[1024] = arange {{lo = 0, hi = 1024}}
  %xs: *x[1024] = splat %x
  %is: *index[1024] = splat %index
  %os: *out[1024] = splat %out
  %nought: f32 = const 0.0
  %none: f32[1024] = splat %nought
  %sum: f32[1024] = for {head}, %none (%k: i32, %acc: f32[1024]) {{
    %ks: i32[1024] = splat %k
    %o: i32[1024] = add %ks, %i
    {before}
    %p: *x[1024] = add_ptr %xs, %o
    {load}
    {after}
    %next: f32[1024] = add %acc, %v
    yield %next
  }}
  %q: *out[1024] = add_ptr %os, %i
  store %q, %sum
  return
}}
"#
    )
}

/// Why each load in a loop is not fetched ahead; loads that are have none.
fn stays(report: &Report) -> Vec<(u32, &'static str)> {
    report.stays.iter().map(|stay| (stay.span.line, stay.why)).collect()
}

#[test]
fn loads_in_loops_say_why_they_are_not_fetched_ahead() {
    let (plain, staged) = ("%zero, %n, %step", "%zero, %n, %step");
    let load = "%v: f32[1024] = load %p @4:9+4";
    let mask = "%ms: i32[1024] = splat %n\n  %m: bool[1024] = cmp.lt %o, %ms\n  %one: f32 = const 1.0\n  %ones: f32[1024] = splat %one";
    let indirect = "%ip: *index[1024] = add_ptr %is, %o\n  %j: i32[1024] = load %ip @6:9+4";
    let ahead = |text: String| text.replace("%none (%k", "%none {stages = 3} (%k");
    let told = |text: &str| {
        let report = on_hopper(text);
        let stays = stays(&report);
        for (line, why) in &stays {
            let shown = format!(" is not fetched ahead: {why}");
            assert!(
                report.to_string().lines().any(|text| text.contains(&format!("rs:{line}:")) && text.ends_with(&shown))
            );
        }
        stays
    };
    let asks_for_none = "its loop multiplies no matrices and asks for no stages; `#[stages(3)]` would";
    assert_eq!(told(&summed(plain, "", load, "")), [(4, asks_for_none)]);
    let with_stages = |before: &str, load: &str, after: &str| ahead(summed(staged, before, load, after));
    assert_eq!(told(&with_stages("", load, "")), []);
    let one = ahead(summed(staged, "", load, "")).replace("stages = 3", "stages = 1");
    assert_eq!(told(&one), [(4, "its loop has one stage, as it was asked for")]);
    let other = load.replace("load %p", "load %p, %m, %ones");
    assert_eq!(told(&with_stages(mask, &other, "")), [(4, "what its mask leaves out is not zero")]);
    let again = load.replace("load %p", "load %p {cache = cv}");
    assert_eq!(told(&with_stages("", &again, "")), [(4, "it must be fetched again")]);
    assert_eq!(told(&with_stages("", load, "store %p, %v")), [(4, "the loop writes that memory")]);
    let by_index = "%p2: *x[1024] = add_ptr %xs, %j\n  %v: f32[1024] = load %p2 @4:9+4";
    assert_eq!(told(&with_stages(indirect, by_index, "")), []);
    let twice = format!("{indirect}\n  %ip2: *index[1024] = add_ptr %is, %j\n  %j2: i32[1024] = load %ip2 @6:9+4");
    let by_second = by_index.replace("%xs, %j", "%xs, %j2");
    assert_eq!(told(&with_stages(&twice, &by_second, "")), [(4, "its addresses are not known ahead")]);
    let backwards = ahead(summed(staged, "", load, "")).replace("stages = 3", "reverse = true, stages = 3");
    assert_eq!(told(&backwards), [(4, "its loop runs backwards")]);
    let inner = "for %zero, %n, %step (%u: i32) {\n store %p, %v\n yield\n }";
    assert_eq!(told(&with_stages("", load, inner)), [(4, "there is another loop in its loop")]);
    let chosen = "%c: bool = cmp.lt %k, %step
        %v: f32[1024] = if %c {
          %w: f32[1024] = load %p @4:9+4
          yield %w
        } else {
          yield %none
        }";
    assert_eq!(told(&with_stages("", chosen, "")), [(4, "it stands under a condition")]);
    let acquires = "%was: i32 = atomic_cas %count, %zero, %zero {order = acquire, scope = device}";
    let counted = with_stages("", load, acquires)
        .replace("  param %n n:", "  param %count count: ptr_mut i32 {div = 16}\n  param %n n:");
    assert_eq!(told(&counted), [(4, "the loop waits for other programs to write it")]);
    // Shared memory for two tiles of a megabyte there is none.
    let narrow = with_stages(
        "%z: i32[1024] = mul %o, %o",
        "%p3: *x[1024] = add_ptr %xs, %z\n  %v: f32[1024] = load %p3 @4:9+4",
        "",
    )
    .replace("f32", "f16");
    assert_eq!(told(&narrow), [(4, "a thread copies less than 4 bytes at once")]);
}

/// A product in a loop over K, of which `after` says what else becomes of the sum.
fn products(dtype: &str, [m, n, k]: [u32; 3], after: &str, yields: &str) -> String {
    format!(
        r#"kernel products "products.rs" unsafe bound {{
  param %a a: ptr {dtype} {{div = 16}}
  param %b b: ptr {dtype} {{div = 16}}
  param %out out: ptr_mut f32 {{div = 16}}
  param %depth depth: i32 {{div = 16}}
  %zero: i32 = const 0
  %step: i32 = const {k}
  %r: i32[{m}] = arange {{lo = 0, hi = {m}}}
  %c: i32[{n}] = arange {{lo = 0, hi = {n}}}
  %i: i32[{k}] = arange {{lo = 0, hi = {k}}}
  %r1: i32[{m}, 1] = expand_dims %r {{axis = 1}}
  %c0: i32[1, {n}] = expand_dims %c {{axis = 0}}
  %i0: i32[1, {k}] = expand_dims %i {{axis = 0}}
  %i1: i32[{k}, 1] = expand_dims %i {{axis = 1}}
  %nought: f32 = const 0.0
  %none: f32[{m}, {n}] = splat %nought
  %as: *a[{m}, {k}] = splat %a
  %bs: *b[{k}, {n}] = splat %b
  %wide: i32 = const {n}
  %sum: f32[{m}, {n}] = for %zero, %depth, %step, %none (%t: i32, %acc: f32[{m}, {n}]) {{
    %d1: i32[{m}, 1] = splat %depth
    %row: i32[{m}, 1] = mul %r1, %d1
    %rows: i32[{m}, {k}] = broadcast %row {{shape = [{m}, {k}]}}
    %t0: i32[1, {k}] = splat %t
    %col: i32[1, {k}] = add %i0, %t0
    %cols: i32[{m}, {k}] = broadcast %col {{shape = [{m}, {k}]}}
    %ao: i32[{m}, {k}] = add %rows, %cols
    %ap: *a[{m}, {k}] = add_ptr %as, %ao
    %av: {dtype}[{m}, {k}] = load %ap
    %t1: i32[{k}, 1] = splat %t
    %brow: i32[{k}, 1] = add %i1, %t1
    %w1: i32[{k}, 1] = splat %wide
    %bro: i32[{k}, 1] = mul %brow, %w1
    %brows: i32[{k}, {n}] = broadcast %bro {{shape = [{k}, {n}]}}
    %bcols: i32[{k}, {n}] = broadcast %c0 {{shape = [{k}, {n}]}}
    %bo: i32[{k}, {n}] = add %brows, %bcols
    %bp: *b[{k}, {n}] = add_ptr %bs, %bo
    %bv: {dtype}[{k}, {n}] = load %bp
    %new: f32[{m}, {n}] = dot %av, %bv, %acc {{precision = tf32}} @7:11+3
    {after}
    yield {yields}
  }}
  %w: i32[{m}, 1] = splat %wide
  %ro: i32[{m}, 1] = mul %r1, %w
  %ros: i32[{m}, {n}] = broadcast %ro {{shape = [{m}, {n}]}}
  %cos: i32[{m}, {n}] = broadcast %c0 {{shape = [{m}, {n}]}}
  %oo: i32[{m}, {n}] = add %ros, %cos
  %os: *out[{m}, {n}] = splat %out
  %op: *out[{m}, {n}] = add_ptr %os, %oo
  store %op, %sum
  return
}}
"#
    )
}

#[test]
fn products_that_are_waited_for_say_why() {
    let waits = |text: &str, target: Target, options: &Options| {
        let report = report_of(text, target, options);
        let found: Vec<(u32, &'static str)> = report.waits.iter().map(|wait| (wait.span.line, wait.why)).collect();
        for (line, why) in &found {
            let shown = format!("  products.rs:{line}:11: the product is waited for at once: {why}");
            assert!(report.to_string().lines().any(|line| line == shown), "{report}");
        }
        found
    };
    let (hopper, options) = (Target::sm_90a(), Options::default());
    let large = [128, 128, 64];
    let plain = products("f16", large, "", "%new");
    assert_eq!(waits(&plain, hopper, &options), [], "it stays in flight");
    let cases = [
        (
            Target::sm_80(),
            options.clone(),
            plain.clone(),
            "the target has no `wgmma`, the product that runs on its own",
        ),
        (
            hopper,
            Options { num_warps: 2, ..options.clone() },
            plain.clone(),
            "`wgmma` is done by four warps, or a multiple",
        ),
        (
            hopper,
            options.clone(),
            products("f16", [32, 64, 64], "", "%new"),
            "`wgmma` multiplies at least 64 rows, 8 columns and 32 bytes of a row",
        ),
        (
            hopper,
            options.clone(),
            products("f32", [64, 64, 32], "", "%new").replace("= tf32}", "= tf32x3}"),
            "`wgmma` has no form for its dtypes and precision",
        ),
        (
            hopper,
            Options { num_stages: 2, ..options.clone() },
            plain.clone(),
            "with two stages, what it reads is overwritten next; a third would let it run on",
        ),
        (hopper, Options { num_stages: 1, ..options.clone() }, plain.clone(), "the loop around it is not pipelined"),
        (
            hopper,
            options.clone(),
            products(
                "f16",
                large,
                "%more: f32[128, 128] = add %new, %none\n %twice: f32[128, 128] = add %more, %new",
                "%twice",
            ),
            "its sum, or that of another product in the loop, is used in the same iteration",
        ),
    ];
    for (target, options, text, why) in cases {
        assert_eq!(waits(&text, target, &options), [(7, why)]);
    }
    let of = |text: &str| waits(text, hopper, &options);
    let dot = "%new: f32[128, 128] = dot %av, %bv, %acc {precision = tf32} @7:11+3";
    let apart = products("f16", large, "%all: f32[128, 128] = add %acc, %new", "%all");
    let not_carried = "its sum, or that of another product in the loop, is not what the next iteration adds to";
    assert_eq!(of(&apart.replace("%bv, %acc", "%bv, %none")), [(7, not_carried)]);
    let chosen = "%c1: bool = cmp.lt %t, %step
    %new: f32[128, 128] = if %c1 {
      %d: f32[128, 128] = dot %av, %bv, %acc {precision = tf32} @7:11+3
      yield %d
    } else {
      yield %acc
    }";
    let conditional = "it, or another product in the loop, stands under a condition";
    assert_eq!(of(&plain.replace(dot, chosen).replace("%none (%t", "%none {stages = 3} (%t")), [(7, conditional)]);
    let written = products("f16", large, "store %bp, %bv", "%new").replace("b: ptr f16", "b: ptr_mut f16");
    assert_eq!(of(&written), [(7, "a factor of it, or of another product in the loop, is not fetched ahead")]);
    let once = plain.replace("for %zero, %depth, %step", "for %zero, %step, %step");
    assert_eq!(of(&once), [(7, "there is no loop around it, in which something else could be done meanwhile")]);
}

#[test]
fn loads_beside_products_say_why_they_stay() {
    let options = Options { num_warps: 8, ..Options::default() };
    let told = |text: &str| stays(&report_of(text, Target::sm_90a(), &options));
    let beside = "%xp: *x[128] = add_ptr %xs, %r\n    %xv: f32[128] = load %xp {cache = cg} @9:1+1\n    store %xq, %xv";
    let plain = products("f16", [128, 128, 64], "", "%new")
        .replace("load %ap", "load %ap @4:1+1")
        .replace("load %bp", "load %bp @5:1+1");
    assert_eq!(told(&plain), []);
    let with = products("f16", [128, 128, 64], beside, "%new")
        .replace("  param %depth", "  param %x x: ptr f32 {div = 16}\n  param %y y: ptr_mut f32 {div = 16}\n  param %depth")
        .replace("%wide: i32 = const", "%xs: *x[128] = splat %x\n  %ys: *y[128] = splat %y\n  %xq: *y[128] = add_ptr %ys, %r\n  %wide: i32 = const")
        .replace("add_ptr %xs, %r", "add_ptr %xs, %xo")
        .replace("    %xp:", "    %ts: i32[128] = splat %t\n    %xo: i32[128] = add %r, %ts\n    %xp:");
    assert_eq!(told(&with), [], "an iteration loads the little that the next one needs");
    let load = "    %xv: f32[128] = load %xp {cache = cg} @9:1+1\n    store %xq, %xv";
    let one = |i: usize| {
        let load = load.replace("%xv", &format!("%xv{i}")).replace("%xp", &format!("%xp{i}"));
        let from = if i == 0 { "%xo".to_string() } else { format!("%xo{}", i - 1) };
        format!("    %xo{i}: i32[128] = add {from}, %ts\n    %xp{i}: *x[128] = add_ptr %xs, %xo{i}\n{load}\n")
    };
    let more: String = (0..9).map(one).collect();
    let unused = "no product takes it in every iteration; `#[stages(..)]` on the loop fetches all that it loads";
    assert_eq!(told(&with.replace(load, &more)), [(9, unused)]);
    let large = products("f32", [128, 256, 128], "", "%new")
        .replace("load %ap", "load %ap @4:1+1")
        .replace("load %bp", "load %bp @5:1+1");
    let room = "shared memory has no room for a second tile of it";
    assert_eq!(told(&large), [(4, room), (5, room)]);
}

#[test]
fn loads_in_while_loops_say_so() {
    let text = r#"kernel waits "waits.rs" unsafe bound {
  param %x x: ptr f32 {div = 16}
  param %out out: ptr_mut f32 {div = 16}
  param %n n: i32 {div = 16}
  %zero: i32 = const 0
  %step: i32 = const 1024
  %i: i32[1024] = arange {lo = 0, hi = 1024}
  %xs: *x[1024] = splat %x
  %os: *out[1024] = splat %out
  %last: i32 = while %zero (%c: i32) {
    %go: bool = cmp.lt %c, %n
    yield %go
  } do (%d: i32) {
    %ds: i32[1024] = splat %d
    %o: i32[1024] = add %ds, %i
    %p: *x[1024] = add_ptr %xs, %o
    %v: f32[1024] = load %p @4:9+4
    %q: *out[1024] = add_ptr %os, %o
    store %q, %v
    %next: i32 = add %d, %step
    yield %next
  }
  return
}
"#;
    assert_eq!(stays(&on_hopper(text)), [(4, "a `while` loop is not pipelined")]);
}

/// In layouts that placement would not choose, it is the layout.
#[test]
fn accesses_in_other_layouts_say_that_it_is_the_layout() {
    let quads = "register [1] [2], lane [4] [8] [16] [32] [64], warp [128] [256] -> dim0 512";
    let apart = "register [128] [256], lane [1] [2] [4] [8] [16], warp [32] [64] -> dim0 512";
    let pairs = "register [1] [256], lane [2] [4] [8] [16] [32], warp [64] [128] -> dim0 512";
    let body = "  %i: i32[512] #0 = arange {lo = 0, hi = 512}
  %xs: *x[512] #0 = splat %x
  %xp: *x[512] #0 = add_ptr %xs, %i
  %v: i32[512] #0 = load %xp
  %os: *out[512] #0 = splat %out
  %op: *out[512] #0 = add_ptr %os, %i
  store %op, %v";
    for (layout, expected) in [(quads, None), (apart, Some(Narrow::Layout(1))), (pairs, Some(Narrow::Layout(2)))] {
        let kernel = placed(&["%x x: ptr i32 {div = 16}", "%out out: ptr_mut i32 {div = 16}"], &[layout], body);
        let report = compiled(&kernel, 4).report();
        assert_eq!(narrow(&report).iter().map(|(_, why)| *why).collect::<Vec<_>>(), [expected; 2], "{report}");
    }
}
