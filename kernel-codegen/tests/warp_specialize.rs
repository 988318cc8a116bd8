//! Kernels that fetch with warps of their own: what they compute, and the PTX.

mod support;

use kernel_codegen::checks::AccessKind;
use kernel_codegen::{Compiled, Options, Target, compile};
use kernel_core::interp::{HostBuffer, HostScalar, HostTensor, run_placed_with_tensors, run_with_tensors};
use support::differential::{Agreement, compare, from_bytes};
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
    /// What is done before the products of a tile.
    prologue: &'static str,
    /// What is done with a tile: the lines that store `%sum` to row `%i` and column `%j`.
    epilogue: &'static str,
    /// The factor that is multiplied, from the block `%x`.
    factor: &'static str,
    /// Whether sums are halved before the next product where any of them is larger than 20.
    rescaled: bool,
}

const BLOCKS: &str = "desc_store %c, %sum, %i, %j";
const RESIDUAL: &str = "%old: f32[128, 64] = desc_load %c0, %i, %j
    %new: f32[128, 64] = add %old, %sum
    desc_store %c, %new, %i, %j";
const OLD: &str = "%old: f32[128, 64] = desc_load %c0, %i, %j";
const ON_OLD: &str = "%new: f32[128, 64] = add %old, %sum
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

const PLAIN: Matmul = Matmul {
    m: 128,
    n: 64,
    k: 32,
    transposed: false,
    persistent: true,
    prologue: "",
    epilogue: BLOCKS,
    factor: "%x",
    rescaled: false,
};

impl Matmul {
    fn text(&self) -> String {
        let Matmul { m, n, k, prologue, epilogue, factor, .. } = *self;
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
        let (rescaled, sums) = match self.rescaled {
            false => (String::new(), "%acc"),
            true => (
                format!(
                    "%far: bool[{m}, {n}] = cmp.gt %acc, %most
      %flat: bool[{flat}] = reshape %far {{shape = [{flat}]}}
      %any: bool = reduce %flat {{axis = 0}} (%one_is: bool, %other_is: bool) {{
        %either: bool = or %one_is, %other_is
        yield %either
      }}
      %less: f32[{m}, {n}] = if %any {{
        %halved: f32[{m}, {n}] = mul %acc, %half
        yield %halved
      }} else {{
        yield %acc
      }}",
                    flat = m * n
                ),
                "%less",
            ),
        };
        let body = format!(
            "%row: i32 = div %tile, %columns
    %column: i32 = rem %tile, %columns
    %i: i32 = mul %row, %bm
    %j: i32 = mul %column, %bn
    %nothing: f32 = const 0.0
    %zeros: f32[{m}, {n}] = splat %nothing
    %twenty: f32 = const 20.0
    %most: f32[{m}, {n}] = splat %twenty
    %a_half: f32 = const 0.5
    %half: f32[{m}, {n}] = splat %a_half
    {prologue}
    %sum: f32[{m}, {n}] = for %zero, %k, %bk, %zeros {{warp_specialize = true}} (%t: i32, %acc: f32[{m}, {n}]) {{
      %x: f16[{m}, {k}] = desc_load %a, %i, %t
      %y: f16[{b_block}] = desc_load %b, {b_at}
      {turned}
      {doubled}
      {rescaled}
      %d: f32[{m}, {n}] = dot {factor}, %w, {sums} {{precision = tf32}}
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
        Matmul { prologue: OLD, epilogue: ON_OLD, ..PLAIN },
        Matmul { epilogue: REDUCED, ..PLAIN },
        Matmul { epilogue: POINTERS, ..PLAIN },
        Matmul { factor: "%x2", ..PLAIN },
        Matmul { rescaled: true, ..PLAIN },
        Matmul { persistent: false, ..PLAIN },
        Matmul { persistent: false, epilogue: POINTERS, transposed: true, ..PLAIN },
    ];
    for (number, variant) in variants.into_iter().enumerate() {
        for num_warps in [4, 8] {
            let compiled = variant.compiled(num_warps, 2 + number as u32 % 3);
            assert!(is_divided(&compiled), "{variant:?}\n{}", compiled.report());
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

/// What sums are added to is copied beside the products, if it is loaded in front of them and nothing there writes to memory;
/// with no room for that in shared memory, threads load it where it is used.
#[test]
fn what_sums_meet_is_copied_beside_the_products() {
    let early = Matmul { prologue: OLD, epilogue: ON_OLD, ..PLAIN };
    let places = |matmul: &Matmul, num_stages: u32| {
        let ir = matmul.compiled(8, num_stages).placed_ir();
        // That of the warps which multiply.
        let of = |what: &str| ir.lines().position(|line| line.contains(what));
        let (product, load) = (of("wgmma").expect("a product"), of("tma_load %2,"));
        let read = of("shared_load").or(of(" = load "));
        (load.map(|load| load < product), read.map(|read| read < product))
    };
    assert_eq!(places(&early, 2), (Some(true), Some(false)));
    assert_eq!(places(&Matmul { epilogue: RESIDUAL, ..PLAIN }, 2), (Some(false), Some(false)));
    let counted = Matmul {
        prologue: "%old: f32[128, 64] = desc_load %c0, %i, %j
    store %p, %nothing",
        ..early
    };
    assert_eq!(places(&counted, 2), (Some(true), Some(true)), "a store might change what is loaded");
    // Steps of 24 KiB and a block of 32.
    let full = Matmul { k: 64, ..early };
    assert_eq!(places(&full, 6).0, Some(true));
    assert_eq!(places(&full, 8), (None, Some(false)), "{}", full.compiled(8, 8).report());
    full.agrees(&full.compiled(8, 8), [300, 130, 200], 1);
    // What is computed from it in front of the loop is, behind it.
    let moved = Matmul {
        prologue: "%raw: f32[128, 64] = desc_load %c0, %i, %j
    %older: f32[64, 128] = permute %raw {perm = [1, 0]}
    %doubled: f32[64, 128] = add %older, %older
    %old: f32[128, 64] = permute %doubled {perm = [1, 0]}",
        ..early
    };
    assert_eq!(places(&moved, 2), (Some(true), Some(false)));
    moved.agrees(&moved.compiled(8, 2), [300, 130, 100], 1);
    // Sums of nothing.
    moved.agrees(&moved.compiled(8, 2), [300, 130, 0], 1);
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
        let what = format!("{n} columns, {num_warps} warps, {persistent} {asked}\n{}", compiled.report());
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
        let stores = compiled.report().accesses.into_iter().filter(|access| access.kind == AccessKind::Store);
        stores.map(|access| (access.bytes, access.instructions)).collect::<Vec<_>>()
    };
    // 128 x 64 sums in f32, by 256 threads.
    assert_eq!((accesses(&[]), accesses(&["warp_specialize"])), (vec![(16, 8)], vec![(16, 8)]));
}

#[test]
fn the_passes_can_be_switched_off() {
    for pass in ["warp_specialize", "software_pipeline"] {
        let options = Options { num_warps: 8, disabled_passes: vec![pass.to_string()], ..Options::default() };
        let compiled = compile(&kernel(&PLAIN.text()), &Target::sm_90a(), &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(is_divided(&compiled), pass == "software_pipeline");
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
            // One in each of the loops over iterations.
            ("mbarrier.try_wait", 2),
            ("mbarrier.arrive.expect_tx", 1),
            // In an iteration, and behind the last.
            ("mbarrier.arrive.shared", 2),
            // Where the barriers are made. Then four warps at a time, which send their own rows in four pieces: before
            // the first, and behind each that they have written.
            ("bar.sync \t0;", 1),
            ("bar.sync", 6),
            ("stmatrix", 16),
            // Sums are rounded in pairs, also those that no iteration has added to.
            ("cvt.rn.f16x2.f32", 64),
            ("fence.proxy.async.shared::cta", 4),
            ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", 4),
            ("shfl.sync.idx", 4),
        ] {
            assert_eq!(count(ptx, what), times, "{what}\n{ptx}");
        }
        let among_four = ptx.lines().filter(|line| line.contains("bar.sync") && line.ends_with(", 128;"));
        assert_eq!(among_four.count(), 5, "{ptx}");
        let report = compiled.report().to_string();
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
        Matmul { prologue: OLD, epilogue: ON_OLD, ..PLAIN },
        Matmul { epilogue: RESIDUAL, ..PLAIN },
        Matmul { epilogue: POINTERS, ..PLAIN },
        Matmul { factor: "%x2", ..PLAIN },
        Matmul { persistent: false, ..PLAIN },
    ] {
        for num_warps in [4, 8, 16] {
            let compiled = variant.compiled(num_warps, 3);
            assert_eq!(is_divided(&compiled), num_warps <= 8 || compiled.num_warps == 20, "{}", compiled.report());
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
    assert!(is_divided(&compiled), "{}", compiled.report());
    assert_eq!(compiled.sites.len(), 1, "what differs between programs is not decided by the host");
    let (before, _) = compiled.ptx.split_once("setmaxnreg").expect("groups");
    assert!(before.contains("%ctaid.x") && before.contains(" bra"), "{}", compiled.ptx);
    assert!(!before.contains("cp.async") && !before.contains("mbarrier.try_wait"), "nothing is in flight");
    if let Some(Assembled { registers, spill_bytes, .. }) = assemble(&compiled) {
        assert_eq!((registers, spill_bytes), (168, 0));
    }
}

/// Stores by pointers convert the layout of the sum through shared memory, which takes slots from the ring.
#[test]
fn epilogues_have_room_in_shared_memory() {
    let large = Matmul { m: 128, n: 256, k: 64, ..PLAIN };
    let pointers = POINTERS.replace("64]", "256]").replace("hi = 64", "hi = 256");
    let text = large.text().replace(BLOCKS, &pointers);
    let options = Options { num_warps: 8, num_stages: 6, ..Options::default() };
    let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        is_divided(&compiled) && compiled.report().to_string().contains("through 2 slots"),
        "{}",
        compiled.report()
    );
    if let Some(assembled) = assemble(&compiled) {
        assert_eq!(assembled.spill_bytes, 0);
    }
}

/// A number of slots that is asked for is refused only if it does not fit beside what reductions take at least: here the 7
/// slots of 32 KiB leave less than the 8 KiB that they get where there is room.
#[test]
fn slots_that_are_asked_for_fit_beside_the_least_scratch_memory() {
    let stored = "%r: f16[128, 128] = cast %sum {to = f16}
    desc_store %c, %r, %i, %j";
    let summed = "%rows_sum: f32[128] = reduce %sum {axis = 1} (%l: f32, %q: f32) {
      %e: f32 = add %l, %q
      yield %e
    }
    %ri: i32[128] = arange {lo = 0, hi = 128}
    %rs: i32[128] = splat %i
    %ra: i32[128] = add %ri, %rs
    %ps: *p[128] = splat %p
    %pp: *p[128] = add_ptr %ps, %ra
    store %pp, %rows_sum";
    let text = PERSISTENT.replace("256", "128").replace(stored, summed).replace(" safe ", " unsafe ").replace(
        "param %c c: desc_mut f16[128, 128] {div = 16, len_div = 8, stride_div = 8}",
        "param %p p: ptr_mut f32 {div = 16}",
    );
    let with = |stages: u32| {
        let text = text.replace("%zeros (%t", &format!("%zeros {{stages = {stages}}} (%t"));
        compile(&kernel(&text), &Target::sm_90a(), &Options { num_warps: 8, ..Options::default() })
    };
    let compiled = with(7).unwrap_or_else(|error| panic!("{error}"));
    let report = compiled.report().to_string();
    assert!(is_divided(&compiled) && report.contains("through 7 slots"), "{report}");
    let refused = with(8).map(|_| ()).expect_err("8 slots have more than there is").to_string();
    assert!(refused.contains("`#[stages(7)]`"), "{refused}");
}
