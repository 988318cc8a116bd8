//! Divided kernels compute what they computed before, whatever the numbers of tiles, trips and slots, and what can be
//! wrong with barriers is found.

use kernel_core::interp::{Fault, HostBuffer, HostTensor, run_placed_with_tensors};
use kernel_core::ir::{Func, GpuOp, Op, OpId, Placed};
use kernel_core::layout::{Dim as Axis, LinearLayout, SwizzleWidth, nvmma_shared, wgmma_accumulator};
use kernel_core::passes::util::ops_in_order;
use kernel_core::text::parse;
use kernel_core::verify::verify;

use super::run;
use crate::report::LoopReport;
use crate::{Options, Target};

/// The sides of the blocks.
const M: i64 = 64;
const N: i64 = 16;
const K: i64 = 16;

/// A persistent product `c = a * b` of f16 through descriptors; `b` lies in memory as its transpose.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    stages: u32,
    /// Whether the sum is scaled in each trip, so that products cannot stay in flight.
    scales: bool,
    /// Whether the tile loop has the mark.
    marked: bool,
    /// Whether tiles with odd numbers are left out.
    skips: bool,
}

const PLAIN: Kernel = Kernel { stages: 3, scales: false, marked: true, skips: false };

impl Kernel {
    /// After `dots`: factors go through registers into shared memory.
    fn text(&self) -> String {
        let scale = if self.scales {
            "%two: f32 = const 2.0\n%twos: f32[64, 16] #0 = splat %two\n%t: f32[64, 16] #0 = mul %w, %twos"
        } else {
            ""
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
             param %a a: desc f16[64, 16]
             param %b b: desc f16[16, 16]
             param %c c: desc_mut f32[64, 16]
             param %tiles tiles: i32
             param %columns columns: i32
             param %trips trips: i32
             %zero: i32 = const 0
             %one: i32 = const 1
             %m: i32 = const {M}
             %n: i32 = const {N}
             %k: i32 = const {K}
             %first: i32 = program_id {{axis = 0}}
             %count: i32 = num_programs {{axis = 0}}
             for %first, %tiles, %count {{warp_specialize = {marked}}} (%tile: i32) {{
               {before}%row: i32 = div %tile, %columns
               %column: i32 = rem %tile, %columns
               %i: i32 = mul %row, %m
               %j: i32 = mul %column, %n
               %nothing: f32 = const 0.0
               %zeros: f32[64, 16] #0 = splat %nothing
               %end: i32 = mul %trips, %k
               %sum: f32[64, 16] #0 = for %zero, %end, %k, %zeros (%at: i32, %acc: f32[64, 16] #0) {{
                 %va: f16[64, 16] #0 = desc_load %a, %i, %at
                 %vt: f16[16, 16] #3 = desc_load %b, %j, %at
                 %vb: f16[16, 16] #3 = permute %vt {{perm = [1, 0]}}
                 %sa: shared f16[64, 16] #1 = shared_alloc
                 %sb: shared f16[16, 16] #2 = shared_alloc
                 barrier
                 shared_store %sa, %va
                 shared_store %sb, %vb
                 fence {{kind = proxy_async}}
                 barrier
                 %d: f32[64, 16] #0 = wgmma %sa, %sb, %acc {{precision = tf32}}
                 %w: f32[64, 16] #0 = wgmma_wait %d {{pending = 0}}
                 {scale}
                 yield {sum}
               }}
               desc_store %c, %sum, %i, %j
               {after}yield
             }}
             return
             }}",
            acc = text_of(&wgmma_accumulator(&[64, 16], 16, [4, 1]).expect("an accumulator")),
            a = text_of(&nvmma_shared(&[64, 16], SwizzleWidth::B32, 16, false).expect("a layout")),
            b = text_of(&nvmma_shared(&[16, 16], SwizzleWidth::B32, 16, true).expect("a layout")),
            held_b = text_of(&registers(&[16, 16])),
            marked = self.marked,
        )
    }

    fn func(&self) -> Func {
        let text = self.text();
        let func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        verified(&func);
        func
    }

    fn divided(&self) -> (Func, Vec<LoopReport>) {
        let mut func = self.func();
        let options = Options { num_stages: self.stages, ..Options::default() };
        let (divided, loops) = run(&mut func, Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
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
        LinearLayout::identity1d(size, Axis::Register, Axis::Axis(axis as u8)).expect("a line")
    };
    let all = axes.map(line).reduce(|all, one| all.product(&one).expect("disjoint axes")).expect("some axes");
    let names: Vec<Axis> = (0..shape.len() as u8).map(Axis::Axis).collect();
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
    trips: i64,
    programs: u32,
}

/// Small whole numbers: sums of their products are exact.
fn factor(len: usize, salt: u32) -> HostBuffer {
    let number = |i: usize| ((i as u32 + salt).wrapping_mul(2_654_435_769) >> 20) % 7;
    let numbers: Vec<half::f16> = (0..len).map(|i| half::f16::from_f32(number(i) as f32 - 3.0)).collect();
    numbers.into()
}

fn launch(func: &Func, sizes: Sizes) -> (Vec<f32>, Result<(), Fault>) {
    let Sizes { rows, columns, trips, programs } = sizes;
    let (m, n, k) = ((rows * M).max(1) as u64, (columns * N).max(1) as u64, (trips * K).max(1) as u64);
    let tensors = [[m, k], [n, k], [m, n]].map(|shape| HostTensor::contiguous(&shape));
    let poison = vec![-7.0f32; (m * n) as usize];
    let mut buffers = vec![factor((m * k) as usize, 1), factor((n * k) as usize, 2), poison.into()];
    let scalars = [rows * columns, columns.max(1), trips].map(|number| (number as i32).into());
    let placed = Placed::new(func.clone()).unwrap_or_else(|_| panic!("a placed kernel"));
    let result = run_placed_with_tensors(&placed, &mut buffers, &tensors, &scalars, [programs, 1, 1]);
    (buffers[2].as_slice::<f32>().expect("f32").to_vec(), result)
}

/// The text form, without the wishes that the pass takes away.
fn has(func: &Func, wanted: impl Fn(&GpuOp) -> bool) -> usize {
    let count = |id: &OpId| matches!(&func.op(*id).op, Op::Gpu(op) if wanted(op));
    ops_in_order(func).iter().filter(|id| count(id)).count()
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
            marked: case % 5 != 0,
        };
        let sizes = Sizes {
            rows: random(4),
            columns: random(4),
            trips: if case % 2 == 0 { random(3) } else { random(9) },
            programs: 1 + random(4) as u32,
        };
        let (divided, _) = kernel.divided();
        let (want, before) = launch(&kernel.func(), sizes);
        let (got, after) = launch(&divided, sizes);
        assert_eq!((before, after), (Ok(()), Ok(())), "{kernel:?} {sizes:?}");
        assert_eq!(want, got, "{kernel:?} {sizes:?}\n{}", kernel_core::text::print(&divided));
    }
}
