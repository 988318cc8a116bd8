//! Divided kernels compute what they computed before, whatever the numbers of tiles, iterations and slots, and what
//! can be wrong with barriers is found.

use kernel_core::edit::ops_in_order;
use kernel_core::interp::{HostBuffer, HostTensor, run_ordered};
use kernel_core::ir::{Def, Dim, Func, GpuOp, Op, OpId, ParamKind, Placed, RegionId};
use kernel_core::layout::{LayoutDim, LinearLayout, SwizzleWidth, nvmma_shared, wgmma_accumulator};
use kernel_core::text::parse;
use kernel_core::verify::verify;

mod assertions;
mod faults;
mod held;
mod variants;

use super::{Specialize, run};
use crate::report::LoopReport;
use crate::{Options, Target};

/// The depth of the blocks.
const K: i64 = 16;

/// A persistent product `c = a * b` of f16 through descriptors; `b` lies in memory as its transpose.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    /// Rows and columns of a tile.
    m: u32,
    n: u32,
    stages: u32,
    /// Whether the sum is scaled in each iteration, so that products cannot stay in flight.
    scales: bool,
    /// Which loop has the mark.
    mark: Mark,
    /// Whether tiles with odd numbers are left out.
    skips: bool,
    /// Whether the first factor goes through registers, so that threads store it.
    mixed: bool,
}

/// The loop that is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    None,
    /// The loop over factors: one group of four warps takes all tiles.
    Inner,
    /// The loop over tiles: two groups of four warps take turns, if they can.
    Outer,
}

const PLAIN: Kernel = Kernel { m: 64, n: 16, stages: 3, scales: false, mark: Mark::Inner, skips: false, mixed: false };

/// Two groups of four warps, and tiles that leave in four pieces.
const WIDE: Kernel = Kernel { m: 128, n: 128, ..PLAIN };
/// As many stages as there can be, so that two pieces have room.
const CRAMPED: Kernel = Kernel { stages: 1000, ..WIDE };

impl Kernel {
    /// After `dots`: factors go through registers into shared memory.
    fn text(&self) -> String {
        let (m, n) = (self.m, self.n);
        let tile = format!("f32[{m}, {n}] #0");
        let scale = if self.scales {
            format!("%two: f32 = const 2.0\n%twos: {tile} = splat %two\n%t: {tile} = mul %w, %twos")
        } else {
            String::new()
        };
        let factor = match self.mixed {
            true => format!("%vf: f16[{m}, 16] #5 = add %va, %va"),
            false => format!("%vf: f16[{m}, 16] #5 = convert_layout %va"),
        };
        let sum = if self.scales { "%t" } else { "%w" };
        let (before, after) = if self.skips {
            (
                "%bits: i32 = and %tile, %one\n%even: bool = cmp.eq %bits, %zero\nif %even {\n",
                "yield\n} else {\nyield\n}\n",
            )
        } else {
            ("", "")
        };
        format!(
            "kernel persistent \"matmul.rs\" safe placed {{
             layout #0 = {acc}
             layout #1 = {a}
             layout #2 = {b}
             layout #3 = {held_b}
             layout #4 = {held_t}
             layout #5 = {held_a}
             param %a a: desc f16[{m}, 16]
             param %b b: desc f16[{n}, 16]
             param %c c: desc_mut f32[{m}, {n}]
             param %tiles tiles: i32
             param %columns columns: i32
             param %iterations iterations: i32
             %zero: i32 = const 0
             %one: i32 = const 1
             %m: i32 = const {m}
             %n: i32 = const {n}
             %k: i32 = const {K}
             %end: i32 = mul %iterations, %k
             %first: i32 = program_id {{axis = 0}}
             %count: i32 = num_programs {{axis = 0}}
             for %first, %tiles, %count {{warp_specialize = {outer}}} (%tile: i32) {{
               {before}%row: i32 = div %tile, %columns
               %column: i32 = rem %tile, %columns
               %i: i32 = mul %row, %m
               %j: i32 = mul %column, %n
               %nothing: f32 = const 0.0
               %zeros: f32[{m}, {n}] #0 = splat %nothing
               %sum: f32[{m}, {n}] #0 = for %zero, %end, %k, %zeros {{warp_specialize = {inner}}} (%at: i32, %acc: f32[{m}, {n}] #0) {{
                 %va: f16[{m}, 16] #5 = desc_load %a, %i, %at
                 %vt: f16[{n}, 16] #4 = desc_load %b, %j, %at
                 %vb: f16[16, {n}] #3 = permute %vt {{perm = [1, 0]}}
                 %sa: shared f16[{m}, 16] #1 = shared_alloc
                 %sb: shared f16[16, {n}] #2 = shared_alloc
                 barrier
                 {factor}
                 shared_store %sa, %vf
                 shared_store %sb, %vb
                 fence {{kind = proxy_async}}
                 barrier
                 %d: f32[{m}, {n}] #0 = wgmma %sa, %sb, %acc {{precision = tf32}}
                 %w: f32[{m}, {n}] #0 = wgmma_wait %d {{pending = 0}}
                 {scale}
                 yield {sum}
               }}
               desc_store %c, %sum, %i, %j
               {after}yield
             }}
             return
             }}",
            acc = text_of(&wgmma_accumulator(&[m, n], n.min(256), [self.warps(), 1]).expect("an accumulator")),
            a = text_of(&nvmma_shared(&[m, 16], SwizzleWidth::B32, 16, false).expect("a layout")),
            b = text_of(&nvmma_shared(&[16, n], SwizzleWidth::B32, 16, true).expect("a layout")),
            held_b = text_of(&registers(&[16, n])),
            held_t = text_of(&registers(&[n, 16])),
            held_a = text_of(&wgmma_accumulator(&[m, 16], 16, [self.warps(), 1]).expect("an accumulator")),
            outer = self.mark == Mark::Outer,
            inner = self.mark == Mark::Inner,
        )
    }

    /// Warps that multiply.
    fn warps(&self) -> u32 {
        self.m / 16
    }

    fn func(&self) -> Func {
        let text = self.text();
        let func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        verified(&func);
        func
    }

    fn divided(&self) -> (Func, Vec<LoopReport>) {
        let mut func = self.func();
        let options = Options { num_stages: self.stages, num_warps: self.warps(), ..Options::default() };
        let (divided, loops) = run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable)
            .unwrap_or_else(|error| panic!("{error}"));
        verified(&func);
        assert!(divided, "{loops:?}");
        (func, loops)
    }
}

fn verified(func: &Func) {
    if let Err(problems) = verify(func) {
        panic!("{problems:?}\n{}", kernel_core::text::print(func));
    }
}

/// Every thread holds everything.
fn registers(shape: &[u32]) -> LinearLayout {
    let axes = shape.iter().enumerate().rev();
    let line = |(axis, &size): (usize, &u32)| {
        LinearLayout::identity1d(size, LayoutDim::Register, LayoutDim::Axis(axis as u8)).expect("a line")
    };
    let all = axes.map(line).reduce(|all, one| all.product(&one).expect("disjoint axes")).expect("some axes");
    let names: Vec<LayoutDim> = (0..shape.len() as u8).map(LayoutDim::Axis).collect();
    all.transpose_outs(&names).expect("all axes")
}

/// A layout in the text form.
fn text_of(layout: &LinearLayout) -> String {
    let mut func = Func::new("layouts", "layouts.rs", kernel_core::ir::Safety::Safe);
    func.level = kernel_core::ir::Level::Placed;
    func.layouts.push(layout.clone());
    let text = kernel_core::text::print(&func);
    let line = text.lines().find(|line| line.trim_start().starts_with("layout #0")).expect("a layout").to_string();
    line.split_once('=').expect("a definition").1.trim().to_string()
}

/// Sizes of one launch.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: i64,
    columns: i64,
    iterations: i64,
    programs: u32,
}

/// Small whole numbers: sums of their products are exact.
fn factor(len: usize, salt: u32) -> HostBuffer {
    let number = |i: usize| ((i as u32 + salt).wrapping_mul(2_654_435_769) >> 20) % 7;
    let numbers: Vec<half::f16> = (0..len).map(|i| half::f16::from_f32(number(i) as f32 - 3.0)).collect();
    numbers.into()
}

fn launch(func: &Func, sizes: Sizes) -> (Vec<f32>, Result<(), kernel_core::interp::Fault>) {
    let Sizes { rows, columns, iterations, programs } = sizes;
    let ParamKind::Desc { block, .. } = &func.params[2].kind else { panic!("a descriptor of the sums") };
    let sides: Vec<i64> = block.iter().filter_map(Dim::as_const).collect();
    let (m, n) = ((rows * sides[0]).max(1) as u64, (columns * sides[1]).max(1) as u64);
    let k = (iterations * K).max(1) as u64;
    let tensors = [[m, k], [n, k], [m, n]].map(|shape| HostTensor::contiguous(&shape));
    let poison = vec![-7.0f32; (m * n) as usize];
    let mut buffers = vec![factor((m * k) as usize, 1), factor((n * k) as usize, 2), poison.into()];
    // Memory of a kernel that has a pointer, too.
    let has_pointer = matches!(func.params[3].kind, ParamKind::Ptr { .. });
    buffers.extend(has_pointer.then(|| vec![1i32, 0, 0, 0].into()));
    let scalars = [rows * columns, columns.max(1), iterations].map(|number| (number as i32).into());
    let placed = Placed::new(func.clone()).unwrap_or_else(|_| panic!("a placed kernel"));
    let result = run_ordered(&placed, &mut buffers, &tensors, &scalars, [programs, 1, 1]);
    let mut left = buffers[2].as_slice::<f32>().expect("f32").to_vec();
    left.extend(buffers[3..].iter().flat_map(|one| one.as_slice::<i32>().expect("i32")).map(|number| *number as f32));
    (left, result)
}

#[test]
fn divided_kernels_compute_the_same() {
    let mut seed = 1u32;
    let mut random = move |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i64::from((seed >> 16) % below)
    };
    for case in 0..120 {
        let kernel = Kernel {
            stages: 1 + random(5) as u32,
            scales: case % 3 == 1,
            skips: case % 4 == 3,
            mixed: case % 7 == 2,
            mark: if case % 3 == 0 { Mark::Outer } else { Mark::Inner },
            ..match case % 10 {
                4 => WIDE,
                _ => PLAIN,
            }
        };
        let sizes = Sizes {
            rows: random(4),
            columns: random(4),
            iterations: if case % 2 == 0 { random(3) } else { random(9) },
            programs: 1 + random(4) as u32,
        };
        let (divided, _) = kernel.divided();
        let (want, before) = launch(&kernel.func(), sizes);
        let (got, after) = launch(&divided, sizes);
        assert_eq!((before, after), (Ok(()), Ok(())), "{kernel:?} {sizes:?}");
        assert_eq!(want, got, "{kernel:?} {sizes:?}\n{}", kernel_core::text::print(&divided));
    }
}

/// Where an operation stands.
#[derive(Clone, Copy)]
struct LoopSite {
    region: RegionId,
    id: OpId,
}

/// The operations of one side, 0 the consumers and 1 the producer, that are wanted.
fn sites(func: &Func, side: usize, wanted: &dyn Fn(&Op) -> bool) -> Vec<LoopSite> {
    fn visit(func: &Func, region: RegionId, wanted: &dyn Fn(&Op) -> bool, found: &mut Vec<LoopSite>) {
        for (id, operation) in func.region_ops(region) {
            if wanted(&operation.op) {
                found.push(LoopSite { region, id });
            }
            operation.regions.iter().for_each(|&inner| visit(func, inner, wanted, found));
        }
    }
    let ops = ops_in_order(func);
    let groups = ops.iter().find(|&&id| matches!(func.op(id).op, Op::Gpu(GpuOp::WarpGroups { .. }))).expect("groups");
    let mut found = Vec::new();
    let regions = &func.op(*groups).regions;
    visit(func, regions[if side == 0 { 0 } else { regions.len() - 1 }], wanted, &mut found);
    found
}

fn gpu(wanted: impl Fn(&GpuOp) -> bool) -> impl Fn(&Op) -> bool {
    move |op| matches!(op, Op::Gpu(op) if wanted(op))
}

fn is_store(op: &GpuOp) -> bool {
    matches!(op, GpuOp::TmaStore { .. })
}

fn is_fence(op: &GpuOp) -> bool {
    matches!(op, GpuOp::Fence { .. })
}

fn is_meeting(op: &GpuOp) -> bool {
    matches!(op, GpuOp::Barrier | GpuOp::WarpgroupBarrier)
}

fn is_store_wait(op: &GpuOp) -> bool {
    matches!(op, GpuOp::TmaStoreWait { .. })
}

#[test]
fn loops_that_cannot_be_divided_say_why() {
    let cases = [
        (
            "%row: i32 = div %tile, %columns",
            "%row: i32 = div %tile, %columns\n%is: bool = cmp.ge %row, %zero\nassert %is {message = \"x\"}",
            "`assert!` behind",
        ),
        (
            "return\n",
            "%is: bool = cmp.ge %iterations, %zero\nassert %is {message = \"x\"}\nreturn\n",
            "`assert!` behind",
        ),
        (
            "%first: i32 = program_id {axis = 0}",
            "%first: i32 = program_id {axis = 0}\n%x: f16[64, 16] #5 = desc_load %a, %zero, %zero\n\
             %is: bool[64, 16] #5 = cmp.eq %x, %x\nassert %is {message = \"x\"}",
            "`assert!` about more than scalars",
        ),
        (
            "desc_store %c, %sum, %i, %j",
            "desc_store %c, %sum, %i, %j\n%ah: f16[64, 16] #0 = cast %sum\ndesc_store %a, %ah, %i, %zero",
            "also writes `a`",
        ),
        (
            "%sa: shared f16[64, 16] #1 = shared_alloc",
            "%sa: shared f16[64, 16] #1 = shared_alloc\n%vc: f16[64, 16] #5 = add %va, %va",
            "",
        ),
        ("= convert_layout %va", "= add %va, %va", ""),
    ];
    for (from, to, why) in cases {
        let text = PLAIN.text().replace(from, to).replace("%a a: desc f16", "%a a: desc_mut f16");
        let mut func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        verified(&func);
        let (divided, loops) = run(&mut func, Target::sm_90a(), &Options::default(), Specialize::IfProfitable)
            .unwrap_or_else(|e| panic!("{e}"));
        let said = loops.iter().any(|report| report.what.starts_with("not specialised: ") && report.what.contains(why));
        assert_eq!((divided, said), (why.is_empty(), !why.is_empty()), "{to}: {loops:?}");
    }
    let mut func = PLAIN.func();
    let warps = Options { num_warps: 2, ..Options::default() };
    let (divided, loops) =
        run(&mut func, Target::sm_90a(), &warps, Specialize::IfProfitable).unwrap_or_else(|e| panic!("{e}"));
    assert!(!divided && loops[0].what.contains("2 warps multiply"), "{loops:?}");
    let (divided, loops) = run(&mut func, Target::sm_80(), &Options::default(), Specialize::IfProfitable)
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(!divided && loops[0].what.contains("sm_80"), "{loops:?}");
}

/// Three slots of 3 KiB leave room for many programs of four warps, fifty for one.
#[test]
fn what_nobody_asked_for_needs_two_groups_of_warps_or_the_multiprocessor() {
    let kernel = Kernel { mark: Mark::None, ..PLAIN };
    for (num_warps, num_stages, wanted) in [(4, 3, false), (4, 50, true), (8, 3, true)] {
        let mut func = kernel.func();
        let options = Options { num_warps, num_stages, ..Options::default() };
        let (divided, loops) =
            run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(divided, wanted, "{num_warps} warps, {num_stages} stages");
        let in_turns = loops.iter().any(|one| one.what.contains("in ping-pong"));
        assert_eq!(in_turns, wanted && num_warps == 4, "{loops:?}");
    }
}

/// What goes out of the kernel: the shape of each piece, its slots, the parts that warps divide it in, and how many
/// pieces may be on their way before each.
fn way_out(func: &Func) -> (Vec<i64>, Vec<Vec<u8>>, Vec<u8>) {
    let store = sites(func, 0, &gpu(is_store))[0].id;
    let Def::Result(index, _) = func.value(func.op(store).operands[1]).def else { panic!("a view of a slot") };
    let staging = func.op(index).operands[0];
    let parts = |site: &LoopSite| match &func.op(site.id).op {
        Op::Gpu(GpuOp::TmaStore { parts, .. }) => parts.clone(),
        _ => Vec::new(),
    };
    let pending = |site: &LoopSite| match func.op(site.id).op {
        Op::Gpu(GpuOp::TmaStoreWait { pending }) => pending,
        _ => 0,
    };
    (
        func.ty(staging).dims().expect("known sizes"),
        sites(func, 0, &gpu(is_store)).iter().map(parts).collect(),
        sites(func, 0, &gpu(is_store_wait)).iter().map(pending).collect(),
    )
}

#[test]
fn tiles_leave_in_pieces_that_each_four_warps_store() {
    let check = |kernel: Kernel, staging: [i64; 3], parts: [u8; 2], pieces: usize, pending: &[u8]| {
        let (func, _) = kernel.divided();
        let barriers = sites(&func, 0, &gpu(|op| *op == GpuOp::Barrier));
        assert!(barriers.is_empty(), "{kernel:?}: groups of four warps do not wait for each other");
        let expected = (staging.to_vec(), vec![parts.to_vec(); pieces], pending.to_vec());
        assert_eq!(way_out(&func), expected, "{kernel:?}");
    };
    check(PLAIN, [1, 64, 16], [1, 1], 1, &[0, 0]);
    check(WIDE, [4, 128, 32], [2, 1], 4, &[0, 0]);
    check(CRAMPED, [2, 128, 32], [2, 1], 4, &[0, 1, 1, 0]);
    check(Kernel { m: 256, n: 64, ..PLAIN }, [2, 256, 32], [4, 1], 2, &[0, 0]);
}

/// Two groups take tiles in turns where tiles do not depend on each other and each is one four warps' own.
#[test]
fn groups_take_tiles_in_turns() {
    let kernel = Kernel { mark: Mark::Outer, ..PLAIN };
    for stages in 1..5 {
        let (func, loops) = Kernel { stages, ..kernel }.divided();
        assert!(loops[0].what.ends_with("two warp groups in ping-pong"), "{loops:?}");
        let groups = |op: &Op| matches!(op, Op::Gpu(GpuOp::WarpGroups { warps, .. }) if *warps == [4, 4, 4]);
        let ops = ops_in_order(&func);
        assert!(ops.iter().any(|&id| groups(&func.op(id).op)));
        // Behind the wait for its turn the four warps of each group meet.
        let is = |id: OpId, wanted: &GpuOp| func.op(id).op == Op::Gpu(wanted.clone());
        let meets = ops.windows(2).filter(|at| is(at[0], &GpuOp::MbarrierWait) && is(at[1], &GpuOp::WarpgroupBarrier));
        assert_eq!(meets.count(), 2);
        for (rows, columns, iterations, programs) in [
            (0, 1, 1, 1),
            (1, 1, 3, 1),
            (3, 1, 0, 1),
            (3, 3, 1, 1),
            (2, 3, 2, 1),
            (3, 3, 4, 1),
            (3, 3, 9, 2),
            (2, 2, 23, 1),
        ] {
            let sizes = Sizes { rows, columns, iterations, programs };
            assert_eq!(launch(&kernel.func(), sizes), launch(&func, sizes), "{stages} {sizes:?}");
        }
    }
    // Tiles that are skipped depend on the tile; more warps hold larger tiles.
    for other in [Kernel { skips: true, ..kernel }, Kernel { mixed: true, ..kernel }, Kernel { m: 128, ..kernel }] {
        let (_, loops) = other.divided();
        assert!(!loops[0].what.contains("in ping-pong"), "{other:?}: {loops:?}");
    }
}

/// More slots than fit are an error where a person asked for them, and fewer where nobody did.
#[test]
fn slots_fit_into_shared_memory() {
    let asked =
        PLAIN.text().replace("%zeros {warp_specialize = true} (", "%zeros {stages = 100, warp_specialize = true} (");
    let mut func = parse(&asked).unwrap_or_else(|error| panic!("{error}"));
    let error = run(&mut func, Target::sm_90a(), &Options::default(), Specialize::IfProfitable)
        .expect_err("too many")
        .to_string();
    assert!(error.contains("100 stages") && error.contains("#[stages("), "{error}");
    let mut func = PLAIN.func();
    let options = Options { num_stages: 1000, ..Options::default() };
    let (divided, loops) =
        run(&mut func, Target::sm_90a(), &options, Specialize::IfProfitable).unwrap_or_else(|e| panic!("{e}"));
    assert!(divided && loops[0].what.contains("through 73 slots"), "{loops:?}");
}

/// Two products in each iteration, of which both stay in flight; and a tile loop that is a `while`.
#[test]
fn other_forms_of_loops() {
    let text = PLAIN.text();
    let twice = text
        .replace(
            "%zeros {warp_specialize = true} (%at: i32, %acc: f32[64, 16] #0)",
            "%zeros, %zeros {warp_specialize = true} (%at: i32, %acc: f32[64, 16] #0, %acc2: f32[64, 16] #0)",
        )
        .replace("%sum: f32[64, 16] #0 = for", "%sum1: f32[64, 16] #0, %sum2: f32[64, 16] #0 = for")
        .replace(
            "yield %w\n",
            "%sc: shared f16[16, 16] #2 = shared_alloc\nshared_store %sc, %vb\nfence {kind = proxy_async}\nbarrier\n\
                  %d2: f32[64, 16] #0 = wgmma %sa, %sc, %acc2 {precision = tf32}\n\
                  %w2: f32[64, 16] #0 = wgmma_wait %d2 {pending = 0}\nyield %w, %w2\n",
        )
        .replace("desc_store", "%sum: f32[64, 16] #0 = add %sum1, %sum2\ndesc_store");
    let turns = text
        .replace(
            "for %first, %tiles, %count {warp_specialize = false} (%tile: i32) {",
            "%last: i32 = while %first (%test: i32) {\n%more: bool = cmp.lt %test, %tiles\nyield %more\n} do (%tile: i32) {",
        )
        .replace("desc_store %c, %sum, %i, %j\n               yield", "desc_store %c, %sum, %i, %j\n%next: i32 = add %tile, %count\nyield %next");
    for (text, in_flight) in [(twice, 2), (turns, 1)] {
        let func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        verified(&func);
        let mut divided = func.clone();
        let options = Options { num_stages: 3, ..Options::default() };
        let (is_divided, loops) =
            run(&mut divided, Target::sm_90a(), &options, Specialize::IfProfitable).unwrap_or_else(|e| panic!("{e}"));
        verified(&divided);
        assert!(is_divided, "{loops:?}");
        let pending = |op: &Op| *op == Op::Gpu(GpuOp::WgmmaWait { pending: in_flight });
        assert_eq!(sites(&divided, 0, &pending).len(), 1, "{}", kernel_core::text::print(&divided));
        for (rows, columns, iterations) in [(0, 1, 1), (1, 1, 0), (3, 2, 1), (2, 3, 5)] {
            let sizes = Sizes { rows, columns, iterations, programs: 2 };
            let (want, before) = launch(&func, sizes);
            let (got, after) = launch(&divided, sizes);
            assert_eq!((want, before), (got, after), "{sizes:?}");
        }
    }
}
