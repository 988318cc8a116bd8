//! Kernels that fetch with warps of their own: what they compute, and the PTX.

mod support;

use kernel_codegen::check::AccessKind;
use kernel_codegen::{Compiled, Options, Target, compile, compile_placed};
use kernel_core::interp::{HostBuffer, HostScalar, HostTensor, run_placed_with_tensors, run_with_tensors};
use kernel_core::ir::Placed;
use support::differential::{Agreement, compare, emulate_placed, from_bytes};
use support::registers::Registers;
use support::{Assembled, assemble, count, kernel};

/// 128 x 256 x 64, f16, persistent, all row-major.
const PERSISTENT: &str = include_str!("kernels/persistent_matmul.tile");

/// A product of f16 with its variants.
#[derive(Clone, Copy, Debug)]
struct Matmul {
    m: i64,
    n: i64,
    k: i64,
    /// Whether the second factor lies in memory as its transpose.
    transposed: bool,
    persistent: bool,
    /// What is done with a tile: the lines that store `%sum` to row `%i` and column `%j`.
    epilogue: &'static str,
    /// The factor that is multiplied, from the block `%x`.
    factor: &'static str,
}

const BLOCKS: &str = "desc_store %c, %sum, %i, %j";
const RESIDUAL: &str = "%old: f32[128, 64] = desc_load %c0, %i, %j
    %new: f32[128, 64] = add %old, %sum
    desc_store %c, %new, %i, %j";
const REDUCED: &str = "desc_reduce %c, %sum, %i, %j {op = add}";
const POINTERS: &str = "%ri: i32[128] = arange {lo = 0, hi = 128}
    %rs: i32[128] = splat %i
    %ra: i32[128] = add %ri, %rs
    %rc: i32[128, 1] = expand_dims %ra {axis = 1}
    %ci: i32[64] = arange {lo = 0, hi = 64}
    %cs: i32[64] = splat %j
    %cq: i32[64] = add %ci, %cs
    %cr: i32[1, 64] = expand_dims %cq {axis = 0}
    %ms: i32[128, 1] = splat %m
    %ns: i32[1, 64] = splat %n
    %mm: bool[128, 1] = cmp.lt %rc, %ms
    %nm: bool[1, 64] = cmp.lt %cr, %ns
    %mb: bool[128, 64] = broadcast %mm
    %nb: bool[128, 64] = broadcast %nm
    %mask: bool[128, 64] = and %mb, %nb
    %ps: *p[128, 1] = splat %p
    %row_offset: i32[128, 1] = mul %rc, %strides
    %pr: *p[128, 1] = add_ptr %ps, %row_offset
    %pb: *p[128, 64] = broadcast %pr
    %cb: i32[128, 64] = broadcast %cr
    %pp: *p[128, 64] = add_ptr %pb, %cb
    store %pp, %sum, %mask";

const PLAIN: Matmul =
    Matmul { m: 128, n: 64, k: 32, transposed: false, persistent: true, epilogue: BLOCKS, factor: "%x" };

impl Matmul {
    fn text(&self) -> String {
        let Matmul { m, n, k, epilogue, factor, .. } = *self;
        let (b_block, b_at) =
            if self.transposed { (format!("{n}, {k}"), "%j, %t") } else { (format!("{k}, {n}"), "%t, %j") };
        let turned = match self.transposed {
            true => format!("%w: f16[{k}, {n}] = permute %y {{perm = [1, 0]}}"),
            false => format!("%w: f16[{k}, {n}] = reshape %y {{shape = [{k}, {n}]}}"),
        };
        let doubled = match factor {
            "%x" => String::new(),
            _ => format!("%x2: f16[{m}, {k}] = add %x, %x"),
        };
        let body = format!(
            "%row: i32 = div %tile, %columns
    %column: i32 = rem %tile, %columns
    %i: i32 = mul %row, %bm
    %j: i32 = mul %column, %bn
    %nothing: f32 = const 0.0
    %zeros: f32[{m}, {n}] = splat %nothing
    %sum: f32[{m}, {n}] = for %zero, %k, %bk, %zeros {{warp_specialize = true}} (%t: i32, %acc: f32[{m}, {n}]) {{
      %x: f16[{m}, {k}] = desc_load %a, %i, %t
      %y: f16[{b_block}] = desc_load %b, {b_at}
      {turned}
      {doubled}
      %d: f32[{m}, {n}] = dot {factor}, %w, %acc {{precision = tf32}}
      yield %d
    }}
    {epilogue}"
        );
        let tiles = match self.persistent {
            true => format!("for %start, %tiles, %programs (%tile: i32) {{\n{body}\nyield\n}}"),
            false => format!("%tile: i32 = add %start, %zero\n{body}"),
        };
        let facts = "{div = 16, len_div = 8, stride_div = 8}";
        format!(
            "kernel product \"product.rs\" unsafe bound {{
  param %a a: desc f16[{m}, {k}] {facts}
  param %b b: desc f16[{b_block}] {facts}
  param %c0 c0: desc f32[{m}, {n}] {facts}
  param %c c: desc_mut f32[{m}, {n}] {facts}
  param %p p: ptr_mut f32 {{div = 16}}
  param %m m: i32
  param %n n: i32
  param %k k: i32
  param %stride stride: i32
  %zero: i32 = const 0
  %one: i32 = const 1
  %bm: i32 = const {m}
  %bn: i32 = const {n}
  %bk: i32 = const {k}
  %m1: i32 = sub %bm, %one
  %n1: i32 = sub %bn, %one
  %mu: i32 = add %m, %m1
  %nu: i32 = add %n, %n1
  %rows: i32 = div %mu, %bm
  %columns: i32 = div %nu, %bn
  %tiles: i32 = mul %rows, %columns
  %start: i32 = program_id {{axis = 0}}
  %programs: i32 = num_programs {{axis = 0}}
  %strides: i32[{m}, 1] = splat %stride
  {tiles}
  return
}}
"
        )
    }

    fn compiled(&self, num_warps: u32, num_stages: u32) -> Compiled {
        let options = Options { num_warps, num_stages, ..Options::default() };
        compile(&kernel(&self.text()), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Compares the kernel as written with the placed one, in which groups of warps take turns.
    fn agrees(&self, compiled: &Compiled, sizes: [u64; 3], programs: u32) {
        let [m, n, k] = sizes;
        let stride = |columns: u64| columns.next_multiple_of(8);
        let tensor = |rows: u64, columns: u64| {
            let strides = vec![stride(columns), 1];
            HostTensor { shape: vec![rows, columns], strides, pads_with_nan: false }
        };
        let b = if self.transposed { tensor(n, k) } else { tensor(k, n) };
        let tensors = [tensor(m, k), b, tensor(m, n), tensor(m, n)];
        let len = |tensor: &HostTensor| (tensor.shape[0] * tensor.strides[0]) as usize;
        let floats =
            |tensor: &HostTensor| HostBuffer::from((0..len(tensor)).map(|i| (i % 11) as f32).collect::<Vec<_>>());
        let out = floats(&tensors[3]);
        let buffers = [halves(len(&tensors[0]), 1), halves(len(&tensors[1]), 2), floats(&tensors[2]), out.clone(), out];
        let scalars: Vec<HostScalar> = [m, n, k, stride(n)].iter().map(|&number| (number as i32).into()).collect();
        let grid = if self.persistent { programs } else { (m.div_ceil(128) * n.div_ceil(self.n as u64)) as u32 };
        let mut expected = buffers.to_vec();
        run_with_tensors(&kernel(&self.text()), &mut expected, &tensors, &scalars, [grid, 1, 1])
            .unwrap_or_else(|error| panic!("{error}"));
        let mut found = buffers.to_vec();
        run_placed_with_tensors(&compiled.placed, &mut found, &tensors, &scalars, [grid, 1, 1])
            .unwrap_or_else(|error| panic!("{error}\n{}", compiled.placed_ir()));
        for (want, got) in expected.iter().zip(&found) {
            compare(want, got, Agreement::Exact, &compiled.placed_ir());
        }
    }
}

/// Small whole numbers: sums of their products are exact.
fn halves(len: usize, salt: u32) -> HostBuffer {
    let number = |i: usize| ((i as u32 + salt).wrapping_mul(2_654_435_769) >> 20) % 7;
    let bytes: Vec<u8> = (0..len).flat_map(|i| half::f16::from_f32(number(i) as f32 - 3.0).to_le_bytes()).collect();
    from_bytes(kernel_core::ir::DType::F16, &bytes)
}

fn is_divided(compiled: &Compiled) -> bool {
    compiled.placed_ir().contains("warp_groups")
}

#[test]
fn divided_kernels_compute_the_same() {
    let variants = [
        PLAIN,
        Matmul { transposed: true, ..PLAIN },
        Matmul { epilogue: RESIDUAL, ..PLAIN },
        Matmul { epilogue: REDUCED, ..PLAIN },
        Matmul { epilogue: POINTERS, ..PLAIN },
        Matmul { factor: "%x2", ..PLAIN },
        Matmul { persistent: false, ..PLAIN },
        Matmul { persistent: false, epilogue: POINTERS, transposed: true, ..PLAIN },
    ];
    for (number, variant) in variants.into_iter().enumerate() {
        for num_warps in [4, 8] {
            let compiled = variant.compiled(num_warps, 2 + number as u32 % 3);
            assert!(is_divided(&compiled), "{variant:?}\n{}", compiled.report);
            for (sizes, programs) in
                [([128, 64, 32], 1), ([300, 130, 100], 2), ([200, 200, 8], 1), ([130, 70, 250], 5), ([300, 100, 0], 2)]
            {
                if sizes[2] > 0 {
                    variant.agrees(&compiled, sizes, programs);
                }
            }
        }
    }
}

/// Measured: a program of one tile gains nothing from warps that fetch ahead of its end.
#[test]
fn programs_of_one_tile_stay_whole_unless_asked() {
    // Four slots of 24 KiB, for 64 columns, leave room for a second program of four warps; 32 KiB do not.
    for (n, num_warps, persistent, asked, divided) in [
        (128, 8, false, false, false),
        (256, 8, false, false, false),
        (128, 8, false, true, true),
        (128, 4, false, true, true),
        (64, 8, true, false, true),
        (256, 8, true, false, true),
        (128, 4, false, false, false),
        (128, 4, true, false, true),
        (64, 4, true, false, false),
        (64, 4, true, true, true),
    ] {
        let text = Matmul { n, k: 64, persistent, ..PLAIN }.text();
        let text = if asked { text } else { text.replace("{warp_specialize = true}", "") };
        let options = Options { num_warps, num_stages: 4, ..Options::default() };
        let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|e| panic!("{e}"));
        let what = format!("{n} columns, {num_warps} warps, {persistent} {asked}\n{}", compiled.report);
        assert_eq!(is_divided(&compiled), divided, "{what}");
    }
}

/// What is known of addresses and masks holds in each group of warps.
#[test]
fn accesses_of_divided_kernels_are_as_wide_as_ever() {
    let text = Matmul { epilogue: POINTERS, ..PLAIN }.text();
    let text = ["n", "stride"].iter().fold(text, |text, name| {
        let param = format!("param %{name} {name}: i32");
        text.replace(&format!("{param}\n"), &format!("{param} {{div = 16}}\n"))
    });
    let accesses = |disabled: &[&str]| {
        let disabled_passes = disabled.iter().map(|pass| pass.to_string()).collect();
        let options = Options { num_warps: 8, disabled_passes, ..Options::default() };
        let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(is_divided(&compiled), disabled.is_empty());
        let stores = compiled.report.accesses.iter().filter(|access| access.kind == AccessKind::Store);
        stores.map(|access| (access.bytes, access.instructions)).collect::<Vec<_>>()
    };
    // 128 x 64 sums in f32, by 256 threads.
    assert_eq!((accesses(&[]), accesses(&["warp_specialize"])), (vec![(16, 8)], vec![(16, 8)]));
}

#[test]
fn the_passes_can_be_switched_off() {
    for pass in ["warp_specialize", "pipeline"] {
        let options = Options { num_warps: 8, disabled_passes: vec![pass.to_string()], ..Options::default() };
        let compiled = compile(&kernel(&PLAIN.text()), &Target::sm_90a(), &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(is_divided(&compiled), pass == "pipeline");
        PLAIN.agrees(&compiled, [300, 130, 100], 2);
    }
}

/// The kernel that is to reach what the hardware can do.
#[test]
fn large_tiles_stay_in_registers() {
    let turned = PERSISTENT.replace("b: desc f16[64, 256]", "b: desc f16[256, 64]").replace(
        "%y: f16[64, 256] = desc_load %b, %t, %j",
        "%z: f16[256, 64] = desc_load %b, %j, %t\n%y: f16[64, 256] = permute %z {perm = [1, 0]}",
    );
    for text in [PERSISTENT.to_string(), turned] {
        let options = Options { num_warps: 8, ..Options::default() };
        let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
        let ptx = &compiled.ptx;
        assert_eq!((compiled.num_warps, compiled.threads(), compiled.min_programs), (12, 384, Some(1)));
        for (what, times) in [
            ("wgmma.mma_async.sync.aligned.m64n256k16", 4),
            ("setmaxnreg.inc.sync.aligned.u32 232", 1),
            ("setmaxnreg.dec.sync.aligned.u32 40", 1),
            (".reqntid 384", 1),
            (".minnctapersm 1", 1),
            // One in each of the loops over trips.
            ("mbarrier.try_wait", 2),
            ("mbarrier.arrive.expect_tx", 1),
            // In a trip, and behind the last.
            ("mbarrier.arrive.shared", 2),
            // Where the barriers are made. Then four warps at a time, which send their own rows in four pieces: before
            // the first, and behind each that they have written.
            ("bar.sync \t0;", 1),
            ("bar.sync", 6),
            ("stmatrix", 16),
            // Sums are rounded in pairs, also those that no trip has added to.
            ("cvt.rn.f16x2.f32", 64),
            ("fence.proxy.async.shared::cta", 4),
            ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", 4),
            ("shfl.sync.idx", 4),
        ] {
            assert_eq!(count(ptx, what), times, "{what}\n{ptx}");
        }
        let among_four = ptx.lines().filter(|line| line.contains("bar.sync") && line.ends_with(", 128;"));
        assert_eq!(among_four.count(), 5, "{ptx}");
        let report = compiled.report.to_string();
        assert!(
            report.contains("fed by warps of their own through 3 slots of 49152 bytes, one product in flight"),
            "{report}"
        );
        assert!(compiled.alternatives().next().is_none());
        if let Some(Assembled { registers, spill_bytes, .. }) = assemble(&compiled) {
            // All that 384 threads can have: ptxas honours `setmaxnreg`.
            assert_eq!((registers, spill_bytes), (168, 0));
        }
    }
}

#[test]
fn all_forms_assemble_without_spills() {
    for variant in [
        PLAIN,
        Matmul { transposed: true, ..PLAIN },
        Matmul { epilogue: RESIDUAL, ..PLAIN },
        Matmul { epilogue: POINTERS, ..PLAIN },
        Matmul { factor: "%x2", ..PLAIN },
        Matmul { persistent: false, ..PLAIN },
    ] {
        for num_warps in [4, 8, 16] {
            let compiled = variant.compiled(num_warps, 3);
            assert_eq!(is_divided(&compiled), num_warps <= 8 || compiled.num_warps == 20, "{}", compiled.report);
            if let Some(assembled) = assemble(&compiled) {
                assert_eq!(assembled.spill_bytes, 0, "{variant:?} with {num_warps} warps");
            }
        }
    }
}

/// An assertion that is left to the kernel ends all threads before the groups of warps part, when nobody waits.
#[test]
fn assertions_come_before_the_groups() {
    let assertion = "%three: i32 = const 3\n%third: i32 = rem %start, %three\n%is: bool = cmp.lt %third, %k\n\
                     assert %is {message = \"x\"}\n";
    let text = PERSISTENT.replacen("for %start", &format!("{assertion}for %start"), 1);
    assert_ne!(text, PERSISTENT);
    let options = Options { num_warps: 8, ..Options::default() };
    let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(is_divided(&compiled), "{}", compiled.report);
    assert_eq!(compiled.sites.len(), 1, "what differs between programs is not decided by the host");
    let (before, _) = compiled.ptx.split_once("setmaxnreg").expect("groups");
    assert!(before.contains("%ctaid.x") && before.contains(" bra"), "{}", compiled.ptx);
    assert!(!before.contains("cp.async") && !before.contains("mbarrier.try_wait"), "nothing is in flight");
    if let Some(Assembled { registers, spill_bytes, .. }) = assemble(&compiled) {
        assert_eq!((registers, spill_bytes), (168, 0));
    }
}

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
    let fits = "warps = [4, 4], registers = [0, 0]";
    let tile = "%t: i32[128] #0 = arange {lo = 0, hi = 128}
      %ps: *x[128] #0 = splat %x
      %p: *x[128] #0 = add_ptr %ps, %t
      %v: f32[128] #0 = load %p
      store %p, %v";
    let arrive = "barrier_arrive %b, %zero";
    let barrier = "%b: barrier[1] = barrier_alloc {slots = 1, count = 1}";
    for (warps, before, first, second, why) in [
        (fits, "", "", "", None),
        (fits, "", tile, "", None),
        (fits, barrier, arrive, "barrier_wait %b, %zero, %zero", None),
        (fits, "%is: bool = cmp.eq %zero, %zero\nassert %is {message = \"m\"}", "", "", None),
        (fits, "", "", tile, Some("a warp group that is not the first")),
        (fits, "", "", "barrier", Some("a warp group that is not the first")),
        (fits, tile, "", "", Some("beside warp groups")),
        (fits, "barrier", "", "", Some("beside warp groups")),
        (fits, "", "%is: bool = cmp.eq %zero, %zero\nassert %is {message = \"m\"}", "", Some("an assertion")),
        ("warps = [8, 4], registers = [0, 0]", "", "", "", Some("other warps than the layouts")),
        ("warps = [4, 4], registers = [240, 20]", "", "", "", Some("number of registers")),
        ("warps = [4, 2], registers = [240, 24]", "", "", "", Some("number of registers")),
        ("warps = [4, 8], registers = [240, 240]", "", "", "", Some("too many registers in warp groups")),
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
  %b: barrier[2] = barrier_alloc {{slots = 2, count = 3}}
  %c: barrier[1] = barrier_alloc {{slots = 1, count = 1}}
  warp_groups {{warps = [8, 4], registers = {registers}}} {{
    barrier_arrive %b, %zero
    barrier_wait %c, %zero, %zero
    yield
  }} with {{
    barrier_arrive %c, %zero
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
  warp_groups {warps = [8, 4], registers = [232, 40]} {
    barrier
    group_barrier
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

/// Stores by pointers convert the layout of the sum through shared memory, which takes slots from the ring.
#[test]
fn epilogues_have_room_in_shared_memory() {
    let large = Matmul { m: 128, n: 256, k: 64, ..PLAIN };
    let pointers = POINTERS.replace("64]", "256]").replace("hi = 64", "hi = 256");
    let text = large.text().replace(BLOCKS, &pointers);
    let options = Options { num_warps: 8, num_stages: 6, ..Options::default() };
    let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(is_divided(&compiled) && compiled.report.to_string().contains("through 2 slots"), "{}", compiled.report);
    if let Some(assembled) = assemble(&compiled) {
        assert_eq!(assembled.spill_bytes, 0);
    }
}
