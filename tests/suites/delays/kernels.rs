//! The kernels, and how they are called.

use kernel_runtime::testing::Delays;
use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;

/// `c = a @ b`, all row-major, by tiles of pointers. Rows of `a` are `stride` apart.
#[kernel]
fn pointers<const BM: usize, const BN: usize, const BK: usize>(
    a: Ptr<f16>,
    b: Ptr<f16>,
    c: PtrMut<f16>,
    m: i32,
    n: i32,
    k: i32,
    stride: i32,
) {
    let i = program_id(0) * BM + arange(0, BM);
    let j = program_id(1) * BN + arange(0, BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let along = t + arange(0, BK);
        let x = load(a + i[(.., None)] * stride + along, mask = (i < m)[(.., None)] & (along < k));
        let y = load(b + along[(.., None)] * n + j, mask = (along < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + i[(.., None)] * n + j, acc as f16, mask = (i < m)[(.., None)] & (j < n));
}

/// The same through descriptors, whose blocks the hardware copies.
#[kernel]
fn descriptors<const BM: usize, const BN: usize, const BK: usize>(
    a: TensorDesc<f16, { [BM, BK] }>,
    b: TensorDesc<f16, { [BK, BN] }>,
    c: TensorDescMut<f16, { [BM, BN] }>,
    k: i32,
) {
    let i = program_id(0) * BM;
    let j = program_id(1) * BN;
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
    }
    c.store([i, j], acc as f16);
}

/// The same by programs that take tile after tile, with warps that fetch and warps that multiply.
#[kernel]
fn persistent<const BM: usize, const BN: usize, const BK: usize>(
    a: TensorDesc<f16, { [BM, BK] }>,
    b: TensorDesc<f16, { [BK, BN] }>,
    c: TensorDescMut<f16, { [BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let i = tile / cdiv(n, BN) * BM;
        let j = tile % cdiv(n, BN) * BN;
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (0..k).step_by(BK) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        c.store([i, j], acc as f16);
    }
}

/// How a kernel gets at its matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Pointers,
    Descriptors,
    Persistent,
}

/// Tiles, warps and the depth of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub bm: usize,
    pub bn: usize,
    pub bk: usize,
    pub warps: u32,
    pub stages: u32,
}

/// One and two groups of four warps that multiply, pipelines of two to four stages.
pub const CONFIGS: [Config; 4] = [
    Config { bm: 64, bn: 64, bk: 32, warps: 4, stages: 2 },
    Config { bm: 128, bn: 64, bk: 64, warps: 4, stages: 4 },
    Config { bm: 128, bn: 128, bk: 64, warps: 8, stages: 3 },
    Config { bm: 128, bn: 256, bk: 64, warps: 8, stages: 2 },
];

/// The most tiles of `BK` that a kernel goes along.
pub const MOST_TRIPS: usize = 5;

/// Programs of the persistent form: fewer than there are tiles in most shapes, and they divide nothing.
const PROGRAMS: usize = 3;

/// Two factors and their product, on a device.
pub struct Matrices {
    pub a: Buffer<f16>,
    pub b: Buffer<f16>,
    pub c: Buffer<f16>,
    pub m: usize,
    pub n: usize,
    /// Columns of `a` and rows of `b`.
    pub depth: usize,
}

/// What is done with a call.
#[derive(Clone, Copy)]
pub enum Task<'a> {
    Compile(Target),
    Launch(&'a Device),
}

/// Calls a kernel on the first `k` columns and rows, with delays if there is a seed. Gives the code if that is wanted.
pub fn call(
    form: Form,
    config: Config,
    delays: Option<u64>,
    matrices: &mut Matrices,
    k: usize,
    task: Task<'_>,
) -> Result<Option<CompiledKernel>, Error> {
    let Config { bm, bn, bk, warps, stages } = config;
    let Matrices { ref a, ref b, ref mut c, m, n, depth } = *matrices;
    let [mi, ni, ki, stride] = [m, n, k, depth].map(|size| size as i32);
    let tiles = (m.div_ceil(bm), n.div_ceil(bn));
    macro_rules! finish {
        ($call:expr, $grid:expr) => {{
            let call = $call.grid($grid).num_warps(warps).num_stages(stages);
            let call = match delays {
                Some(seed) => call.delays(seed),
                None => call,
            };
            match task {
                Task::Compile(target) => call.compile(target).map(Some),
                Task::Launch(device) => call.launch(device).map(|()| None),
            }
        }};
    }
    if form == Form::Pointers {
        return finish!(PointersConsts { BM: bm, BN: bn, BK: bk }.call(a, b, c, mi, ni, ki, stride), tiles);
    }
    let (a, b) = (TensorDesc::new(a, [m, depth])?, TensorDesc::new(b, [depth, n])?);
    let mut c = TensorDescMut::new(c, [m, n])?;
    match form {
        Form::Persistent => {
            finish!(PersistentConsts { BM: bm, BN: bn, BK: bk }.call(&a, &b, &mut c, mi, ni, ki), PROGRAMS)
        }
        Form::Descriptors | Form::Pointers => {
            finish!(DescriptorsConsts { BM: bm, BN: bn, BK: bk }.call(&a, &b, &mut c, ki), tiles)
        }
    }
}
