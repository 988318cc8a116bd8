//! Matrix products in loops, and loops whose loads run ahead.

use half::{bf16, f16};
use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::products::{contains, integers, multiplied};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![matmuls(), persistent(), pipelined(), sums(), few_rows(), indirect(), stages()]
}

#[kernel]
fn matmul<T: Float, const M: usize, const N: usize, const K: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    let (i, j) = (program_id(0) * M + arange(0, M), program_id(1) * N + arange(0, N));
    let mut acc = zeros::<f32>([M, N]);
    for first in (0..k).step_by(K) {
        let inner = first + arange(0, K);
        let x = load(a + (i[(.., None)] * k + inner), mask = (i < m)[(.., None)] & (inner < k));
        let y = load(b + (inner[(.., None)] * n + j), mask = (inner < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + (i[(.., None)] * n + j), acc, mask = (i < m)[(.., None)] & (j < n));
}

#[kernel]
fn matmul_of_blocks<T: Float, const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<T, { [M, K] }>,
    b: TensorDesc<T, { [K, N] }>,
    c: TensorDescMut<f32, { [M, N] }>,
    k: i32,
) {
    let (i, j) = (program_id(0) * M, program_id(1) * N);
    let mut acc = zeros::<f32>([M, N]);
    for first in (0..k).step_by(K) {
        acc = dot(a.load([i, first]), b.load([first, j]), acc = acc);
    }
    c.store([i, j], acc);
}

#[kernel]
fn matmul_that_stays<T: Float, const M: usize, const N: usize, const K: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
        let i = tile / cdiv(n, N) * M + arange(0, M);
        let j = tile % cdiv(n, N) * N + arange(0, N);
        let mut acc = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            let inner = first + arange(0, K);
            let x = load(a + (i[(.., None)] * k + inner), mask = (i < m)[(.., None)] & (inner < k));
            let y = load(b + (inner[(.., None)] * n + j), mask = (inner < k)[(.., None)] & (j < n));
            acc = dot(x, y, acc = acc);
        }
        store(c + (i[(.., None)] * n + j), acc, mask = (i < m)[(.., None)] & (j < n));
    }
}

#[kernel]
fn matmul_of_groups<T: Float, const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<T, { [M, K] }>,
    b: TensorDesc<T, { [K, N] }>,
    c: TensorDescMut<f32, { [M, N] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
        let (i, j) = (tile / cdiv(n, N) * M, tile % cdiv(n, N) * N);
        let mut acc = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            acc = dot(a.load([i, first]), b.load([first, j]), acc = acc);
        }
        c.store([i, j], acc);
    }
}

/// How a product of two matrices is computed.
#[derive(Clone, Copy)]
enum How {
    Pointers,
    Blocks,
    Persistent(usize),
    Groups(usize),
}

/// Sizes of the matrices and of a tile, and what the launch says.
#[derive(Clone, Copy)]
struct Form {
    size: [usize; 3],
    tile: [usize; 3],
    warps: u32,
    stages: u32,
}

fn matmul_case<T: Float>(device: &Device, how: How, form: Form, from_f64: fn(f64) -> T) -> Outcome {
    let ([m, n, k], [bm, bn, bk], mut random) = (form.size, form.tile, Random::new(64));
    let ((_, a), (_, b)) = (integers::<i8>(&mut random, m * k), integers::<i8>(&mut random, k * n));
    let upload = |x: &[f64]| device.upload(&x.iter().map(|&x| from_f64(x)).collect::<Vec<T>>());
    let (x, y, mut out) = (upload(&a)?, upload(&b)?, device.zeros::<f32>(m * n)?);
    let (across, down, along) = (m as i32, n as i32, k as i32);
    let grid = (m.div_ceil(bm), n.div_ceil(bn));
    let (left, right) = (TensorDesc::new(&x, [m, k])?, TensorDesc::new(&y, [k, n])?);
    match how {
        How::Pointers => {
            let call = MatmulConsts { M: bm, N: bn, K: bk }.call(&x, &y, &mut out, across, down, along);
            call.grid(grid).num_warps(form.warps).num_stages(form.stages).launch(device)?;
        }
        How::Persistent(programs) => {
            let call = MatmulThatStaysConsts { M: bm, N: bn, K: bk }.call(&x, &y, &mut out, across, down, along);
            call.grid(programs).num_warps(form.warps).num_stages(form.stages).launch(device)?;
        }
        How::Blocks => {
            let mut to = TensorDescMut::new(&mut out, [m, n])?;
            let call = MatmulOfBlocksConsts { M: bm, N: bn, K: bk }.call(&left, &right, &mut to, along);
            call.grid(grid).num_warps(form.warps).num_stages(form.stages).launch(device)?;
        }
        How::Groups(programs) => {
            let mut to = TensorDescMut::new(&mut out, [m, n])?;
            let consts = MatmulOfGroupsConsts { M: bm, N: bn, K: bk };
            let call = consts.call(&left, &right, &mut to, across, down, along);
            call.grid(programs).num_warps(form.warps).num_stages(form.stages).launch(device)?;
        }
    }
    equal(&out.to_vec()?, &multiplied(&a, &b, form.size).into_iter().map(|x| x as f32).collect::<Vec<f32>>())
}

/// The code for Hopper of a product whose matrices are aligned.
fn code(how: How, form: Form, target: Target) -> Result<CompiledKernel, Failure> {
    let ([m, n, k], [bm, bn, bk], device) = (form.size, form.tile, Device::cpu());
    let (x, y, mut out) = (device.zeros::<f16>(m * k)?, device.zeros::<f16>(k * n)?, device.zeros::<f32>(m * n)?);
    let (across, down, along) = (m as i32, n as i32, k as i32);
    let (left, right) = (TensorDesc::new(&x, [m, k])?, TensorDesc::new(&y, [k, n])?);
    Ok(match how {
        How::Pointers | How::Persistent(_) => {
            let call = MatmulConsts { M: bm, N: bn, K: bk }.call(&x, &y, &mut out, across, down, along);
            call.num_warps(form.warps).num_stages(form.stages).compile(target)?
        }
        How::Blocks | How::Groups(_) => {
            let mut to = TensorDescMut::new(&mut out, [m, n])?;
            let call = MatmulOfBlocksConsts { M: bm, N: bn, K: bk }.call(&left, &right, &mut to, along);
            call.num_warps(form.warps).num_stages(form.stages).compile(target)?
        }
    })
}

const TILES: [[usize; 3]; 8] =
    [[16, 16, 16], [32, 32, 32], [64, 32, 16], [16, 64, 32], [64, 64, 64], [128, 16, 32], [128, 64, 16], [64, 128, 32]];

fn matmuls() -> Row {
    let mut row = Row::new("C64", "test_simple_matmul").remarks("exact, on small integers");
    macro_rules! each {
        ($($t:ident $from:expr;)*) => {$(
            for tile in TILES {
                for (warps, stages) in [(4, 1), (4, 4), (8, 2)] {
                    for size in [[48, 72, 40], [64, 32, 96]] {
                        let form = Form { size, tile, warps, stages };
                        let name = format!("{} {size:?} by {tile:?}, {warps} warps, {stages} stages", stringify!($t));
                        row.case(name, move |device| matmul_case::<$t>(device, How::Pointers, form, $from));
                    }
                }
            }
        )*};
    }
    each!(f16 f16::from_f64; bf16 bf16::from_f64; f32 |x| x as f32; F8E5M2 F8E5M2::from_f64;);
    row
}

fn persistent() -> Row {
    let mut row = Row::new("C65", "test_simple_persistent_matmul");
    for (tile, warps) in [([64, 64, 32], 4), ([64, 32, 16], 4), ([32, 32, 32], 8), ([128, 64, 32], 8)] {
        for size in [[128, 64, 64], [100, 72, 48]] {
            for programs in [1, 3] {
                for stages in [1, 3] {
                    let form = Form { size, tile, warps, stages };
                    let name = |how: &str| {
                        format!("{how}, {size:?} by {tile:?}, {programs} programs, {warps} warps, {stages} stages")
                    };
                    let (stays, groups) = (How::Persistent(programs), How::Groups(programs));
                    row.case(name("f16"), move |device| matmul_case(device, stays, form, f16::from_f64));
                    row.case(name("f32"), move |device| matmul_case(device, stays, form, |x| x as f32));
                    row.case(name("f16, specialised"), move |device| matmul_case(device, groups, form, f16::from_f64));
                }
            }
        }
    }
    row
}

fn pipelined() -> Row {
    let mut row = Row::new("C66", "test_pipeline_matmul");
    for stages in [1, 2, 3, 4, 5] {
        // Also fewer iterations than stages, and none.
        for k in [0, 16, 32, 64, 128] {
            let form = Form { size: [64, 128, k], tile: [64, 64, 32], warps: 4, stages };
            let name = |how: &str| format!("{how}, {stages} stages, {k} deep");
            row.case(name("pointers"), move |device| matmul_case(device, How::Pointers, form, f16::from_f64));
            row.case(name("blocks"), move |device| matmul_case(device, How::Blocks, form, f16::from_f64));
        }
    }
    let form = Form { size: [512, 512, 128], tile: [64, 64, 32], warps: 4, stages: 4 };
    row.host("copies of pointers run ahead", move || {
        for target in [Target::sm_80(), Target::sm_90a()] {
            let compiled = code(How::Pointers, form, target)?;
            contains(compiled.ptx(), &["cp.async.cg.shared.global", "cp.async.commit_group", "cp.async.wait_group"])?;
        }
        contains(code(How::Pointers, form, Target::sm_90a())?.ptx(), &["wgmma.mma_async"])
    });
    row.host("copies of blocks run ahead", move || {
        let compiled = code(How::Blocks, form, Target::sm_90a())?;
        contains(compiled.ptx(), &["cp.async.bulk.tensor.2d", "mbarrier.try_wait", "wgmma.mma_async"])
    });
    row
}

#[kernel]
fn added<T: Num, const BLOCK: usize, const STAGES: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32, blocks: i32) {
    #[stages(STAGES)]
    for block in 0..blocks {
        let i = (program_id(0) * blocks + block) * BLOCK + arange(0, BLOCK);
        store(out + i, load(x + i, mask = i < n) + load(y + i, mask = i < n), mask = i < n);
    }
}

fn sums() -> Row {
    fn case<T: Element>(device: &Device, n: usize, blocks: usize) -> Outcome {
        let mut random = Random::new(67);
        let (x, y): (Vec<T>, Vec<T>) = (random.small(n, -100, 100), random.small(n, -100, 100));
        let mut out = device.zeros::<T>(n)?;
        let (left, right) = (device.upload(&x)?, device.upload(&y)?);
        let call = AddedConsts { BLOCK: 256, STAGES: 3 }.call(&left, &right, &mut out, n as i32, blocks as i32);
        call.grid(n.div_ceil(256 * blocks)).launch(device)?;
        let want = x.iter().zip(&y).map(|(x, y)| T::from_f64(x.to_f64() + y.to_f64()));
        equal(&out.to_vec()?, &want.collect::<Vec<T>>())
    }
    let mut row = Row::new("C67", "test_pipeline_vecadd");
    for n in [4096, 5000, 100] {
        for blocks in [1, 2, 4, 7] {
            row.case(format!("f16 {n} by {blocks}"), move |device| case::<f16>(device, n, blocks));
            row.case(format!("f32 {n} by {blocks}"), move |device| case::<f32>(device, n, blocks));
            row.case(format!("i64 {n} by {blocks}"), move |device| case::<i64>(device, n, blocks));
        }
    }
    for stages in 2..=5 {
        row.host(format!("{stages} stages"), move || {
            let device = Device::cpu();
            let (x, mut out) = (device.zeros::<f16>(1 << 14)?, device.zeros::<f16>(1 << 14)?);
            let consts = AddedConsts { BLOCK: 1024, STAGES: stages };
            let call = consts.call(&x, &x, &mut out, 1 << 14, 16).num_warps(4);
            let compiled = call.compile(Target::sm_90a())?;
            // A slot of each of two buffers for each iteration that is under way, and a copy into it: those of the loop, and
            // those in front of it.
            let placed = compiled.placed_ir();
            let buffers: Vec<&str> = placed.lines().filter(|line| line.contains("= shared_alloc")).collect();
            let copies = placed.lines().filter(|line| line.contains("= async_copy ")).count();
            let slots = buffers.iter().filter(|line| line.contains(&format!("[{stages}, 1024]"))).count();
            if (buffers.len(), slots, copies) == (2, 2, 2 * stages) {
                return contains(compiled.ptx(), &["cp.async.cg.shared.global", "cp.async.wait_group"]);
            }
            Err(Failure(format!("{copies} copies into {buffers:?}\n{placed}")))
        });
    }
    row
}

#[kernel]
fn staged<const STAGES: usize>(x: Ptr<f32>, out: PtrMut<f32>, rows: i32, columns: i32) {
    let j = arange(0, 128);
    #[stages(STAGES)]
    for row in (program_id(0)..rows).step_by(num_programs(0)) {
        let v = load(x + (row * columns + j), mask = j < columns, other = f32::NEG_INFINITY) + 1.0;
        store(out + (row * columns + j), v, mask = j < columns);
    }
}

#[kernel]
fn staged_product<const N: usize, const STAGES: usize>(x: Ptr<f16>, y: Ptr<f16>, out: PtrMut<f32>, k: i32) {
    let (i, j) = (arange(0, N)[(.., None)], arange(0, N));
    let mut acc = zeros::<f32>([N, N]);
    #[stages(STAGES)]
    for first in (0..k).step_by(32) {
        let inner = first + arange(0, 32);
        acc = dot(load(x + (i * k + inner)), load(y + (inner[(.., None)] * N + j)), acc = acc);
    }
    store(out + (i * N + j), acc);
}

fn few_rows() -> Row {
    fn case(device: &Device, stages: usize, rows: usize, programs: usize) -> Outcome {
        let columns = 78;
        let x: Vec<f32> = Random::new(68).small(rows * columns, -100, 100);
        let want: Vec<f32> = x.iter().map(|x| x + 1.0).chain([7.0]).collect();
        let mut out = device.full(x.len() + 1, 7.0)?;
        let buffer = device.upload(&x)?;
        let call = StagedConsts { STAGES: stages }.call(&buffer, &mut out, rows as i32, columns as i32);
        call.grid(programs).launch(device)?;
        equal(&out.to_vec()?, &want)
    }
    let mut row = Row::new("C68", "test_pipeline_epilogue");
    for stages in 1..=5 {
        for rows in [0, 1, 2, 3, 7] {
            for programs in [1, 2] {
                let name = format!("{rows} rows, {stages} stages, {programs} programs");
                row.case(name, move |device| case(device, stages, rows, programs));
            }
        }
    }
    row
}

#[kernel]
fn by_indices<const M: usize, const N: usize, const K: usize, const MAJOR: bool>(
    a: Ptr<f16>,
    b: Ptr<f16>,
    index: Ptr<i32>,
    c: PtrMut<f32>,
    k: i32,
) {
    let (i, j) = (arange(0, M), arange(0, N));
    let mut acc = zeros::<f32>([M, N]);
    for first in (0..k).step_by(K) {
        let at = load(index + (first + arange(0, K)));
        let x = if MAJOR { load(a + (i[(.., None)] * k + at)) } else { load(a + (i[(.., None)] + at * M)) };
        acc = dot(x, load(b + (at[(.., None)] * N + j)), acc = acc);
    }
    store(c + (i[(.., None)] * N + j), acc);
}

#[kernel]
fn sometimes_stored(x: Ptr<f32>, out: PtrMut<f32>, rows: i32) {
    let j = arange(0, 128);
    #[stages(3)]
    for row in 0..rows {
        let v = load(x + (row * 128 + j));
        if row % 2 == 0 {
            store(out + (row * 128 + j), v);
        }
    }
}

fn indirect() -> Row {
    fn product(device: &Device, [m, n, block]: [usize; 3], stages: u32, major: bool) -> Outcome {
        let (k, mut random) = (128, Random::new(69));
        let ((a, plain_a), (b, plain_b)) = (integers::<f16>(&mut random, m * k), integers::<f16>(&mut random, k * n));
        let index: Vec<i32> = random.small(k, 0, k as i128 - 1);
        let (x, y, places) = (device.upload(&a)?, device.upload(&b)?, device.upload(&index)?);
        let mut out = device.zeros::<f32>(m * n)?;
        let consts = ByIndicesConsts { M: m, N: n, K: block, MAJOR: major };
        let call = consts.call(&x, &y, &places, &mut out, k as i32);
        call.grid(1).num_warps(4).num_stages(stages).launch(device)?;
        let sum = |i: usize| {
            let of = |&p: &i32| {
                let p = p as usize;
                plain_a[if major { i / n * k + p } else { i / n + p * m }] * plain_b[p * n + i % n]
            };
            index.iter().map(of).sum::<f64>() as f32
        };
        equal(&out.to_vec()?, &(0..m * n).map(sum).collect::<Vec<f32>>())
    }
    fn stores(device: &Device, rows: usize) -> Outcome {
        let x: Vec<f32> = Random::new(70).elements(rows * 128);
        let mut out = device.zeros::<f32>(rows * 128)?;
        sometimes_stored(&device.upload(&x)?, &mut out, rows as i32).grid(1).launch(device)?;
        let want = x.iter().enumerate().map(|(i, &x)| if i / 128 % 2 == 0 { x } else { 0.0 });
        equal(&out.to_vec()?, &want.collect::<Vec<f32>>())
    }
    let mut row = Row::new("C69", "test_indirect_matmul, test_conditional_store_pipeline");
    for tile in [[32, 32, 32], [64, 64, 32], [128, 64, 32]] {
        for stages in [1, 3, 5] {
            for major in [true, false] {
                let name = format!("{tile:?}, {stages} stages, {}", if major { "in rows" } else { "in columns" });
                row.case(name, move |device| product(device, tile, stages, major));
            }
        }
    }
    for rows in [1, 2, 5, 16] {
        row.case(format!("stores of {rows} rows"), move |device| stores(device, rows));
    }
    row
}

fn stages() -> Row {
    fn case(device: &Device, stages: usize, k: usize) -> Outcome {
        let mut random = Random::new(71);
        let ((x, plain_x), (y, plain_y)) = (integers::<f16>(&mut random, 64 * k), integers::<f16>(&mut random, k * 64));
        let want = multiplied(&plain_x, &plain_y, [64, 64, k]);
        let want: Vec<f32> = want.into_iter().map(|x| x as f32).collect();
        let (left, right, mut out) = (device.upload(&x)?, device.upload(&y)?, device.zeros::<f32>(64 * 64)?);
        let call = StagedProductConsts { N: 64, STAGES: stages }.call(&left, &right, &mut out, k as i32);
        call.grid(1).num_warps(4).launch(device)?;
        equal(&out.to_vec()?, &want)
    }
    /// The code of the product, as many iterations of which are known to run.
    fn code(stages: usize, target: Target) -> Result<String, Failure> {
        let device = Device::cpu();
        let (x, mut out) = (device.zeros::<f16>(64 * 512)?, device.zeros::<f32>(64 * 64)?);
        let call = StagedProductConsts { N: 64, STAGES: stages }.call(&x, &x, &mut out, 512);
        Ok(call.num_warps(4).compile(target)?.ptx().to_string())
    }
    let mut row = Row::new("C70", "test_tl_range_num_stages").remarks("`#[stages(STAGES)]`, of a constexpr");
    for stages in 1..=5 {
        for k in [32, 64, 96, 512] {
            row.case(format!("{stages} stages, {k} deep"), move |device| case(device, stages, k));
        }
    }
    for stages in 2..=5 {
        row.host(format!("{stages} stages of copies are under way"), move || {
            contains(&code(stages, Target::sm_80())?, &[&format!("cp.async.wait_group {};", stages - 2)])
        });
    }
    row
}
