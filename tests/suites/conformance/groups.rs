//! Products by groups of warps, some of which only fetch: warp specialisation on Hopper.

use half::{bf16, f16};
use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::products::{contains, integers, multiplied};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![groups()]
}

/// By pointers and masks. A factor that is transposed lies in memory column after column.
#[kernel]
fn by_pointers<T: Float, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
        let i = tile / cdiv(n, N) * M + arange(0, M);
        let j = tile % cdiv(n, N) * N + arange(0, N);
        let mut acc = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            let inner = first + arange(0, K);
            let (down, across) = (if LEFT { 1 } else { k }, if LEFT { m } else { 1 });
            let x = load(a + (i[(.., None)] * down + inner * across), mask = (i < m)[(.., None)] & (inner < k));
            let (down, across) = (if RIGHT { 1 } else { n }, if RIGHT { k } else { 1 });
            let y = load(b + (inner[(.., None)] * down + j * across), mask = (inner < k)[(.., None)] & (j < n));
            acc = dot(x, y, acc = acc);
        }
        store(c + (i[(.., None)] * n + j), acc, mask = (i < m)[(.., None)] & (j < n));
    }
}

/// By descriptors that are passed.
#[kernel]
fn by_passed<T: Float, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool>(
    a: TensorDesc<T, { [M, K] }>,
    a_turned: TensorDesc<T, { [K, M] }>,
    b: TensorDesc<T, { [K, N] }>,
    b_turned: TensorDesc<T, { [N, K] }>,
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
            let x = if LEFT { a_turned.load([first, i]).trans() } else { a.load([i, first]) };
            let y = if RIGHT { b_turned.load([j, first]).trans() } else { b.load([first, j]) };
            acc = dot(x, y, acc = acc);
        }
        c.store([i, j], acc);
    }
}

/// By descriptors that the kernel makes.
#[kernel]
fn by_made<T: Float, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    let a = tensor_desc(x, [m, k], [k, 1], [M, K]);
    let a_turned = tensor_desc(x, [k, m], [m, 1], [K, M]);
    let b = tensor_desc(y, [k, n], [n, 1], [K, N]);
    let b_turned = tensor_desc(y, [n, k], [k, 1], [N, K]);
    let c = tensor_desc(out, [m, n], [n, 1], [M, N]);
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
        let (i, j) = (tile / cdiv(n, N) * M, tile % cdiv(n, N) * N);
        let mut acc = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            let x = if LEFT { a_turned.load([first, i]).trans() } else { a.load([i, first]) };
            let y = if RIGHT { b_turned.load([j, first]).trans() } else { b.load([first, j]) };
            acc = dot(x, y, acc = acc);
        }
        c.store([i, j], acc);
    }
}

/// Where the factors come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Pointers,
    Passed,
    Made,
}

/// A launch.
#[derive(Clone, Copy)]
struct Form {
    from: From,
    size: [usize; 3],
    tile: [usize; 3],
    warps: u32,
    stages: u32,
    /// Whether the left and the right factor are transposed.
    turned: [bool; 2],
}

/// Memory and arguments of a launch, which is made or compiled.
fn with<T: Float>(
    form: Form,
    data: [&Buffer<T>; 2],
    out: &mut Buffer<f32>,
    task: Task<'_>,
) -> Result<Option<CompiledKernel>, Failure> {
    let Form { size: [m, n, k], tile: [bm, bn, bk], turned: [left, right], .. } = form;
    let ([x, y], [rows, columns, depth]) = (data, [m as i32, n as i32, k as i32]);
    macro_rules! finish {
        ($call:expr) => {{
            let call = $call.num_warps(form.warps).num_stages(form.stages);
            match task {
                Task::Launch(device) => call.grid(2).launch(device).map(|()| None)?,
                Task::Compile => Some(call.compile(Target::sm_90a())?),
            }
        }};
    }
    Ok(match form.from {
        From::Pointers => {
            let consts = ByPointersConsts { M: bm, N: bn, K: bk, LEFT: left, RIGHT: right };
            finish!(consts.call(x, y, out, rows, columns, depth))
        }
        From::Made => {
            let consts = ByMadeConsts { M: bm, N: bn, K: bk, LEFT: left, RIGHT: right };
            finish!(consts.call(x, y, out, rows, columns, depth))
        }
        From::Passed => {
            let (a, a_turned) = (TensorDesc::new(x, [m, k])?, TensorDesc::new(x, [k, m])?);
            let (b, b_turned) = (TensorDesc::new(y, [k, n])?, TensorDesc::new(y, [n, k])?);
            let mut c = TensorDescMut::new(out, [m, n])?;
            let consts = ByPassedConsts { M: bm, N: bn, K: bk, LEFT: left, RIGHT: right };
            finish!(consts.call(&a, &a_turned, &b, &b_turned, &mut c, rows, columns, depth))
        }
    })
}

/// What is done with a call.
enum Task<'d> {
    Launch(&'d Device),
    Compile,
}

fn case<T: Element + Float>(device: &Device, form: Form) -> Outcome {
    let ([m, n, k], mut random) = (form.size, Random::new(104));
    let ((a, plain_a), (b, plain_b)) = (integers::<T>(&mut random, m * k), integers::<T>(&mut random, k * n));
    let turned = |x: &[T], rows: usize, columns: usize, turn: bool| -> Vec<T> {
        if !turn {
            return x.to_vec();
        }
        (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect()
    };
    let (x, y) = (turned(&a, m, k, form.turned[0]), turned(&b, k, n, form.turned[1]));
    let (x, y, mut out) = (device.upload(&x)?, device.upload(&y)?, device.zeros::<f32>(m * n)?);
    with(form, [&x, &y], &mut out, Task::Launch(device))?;
    let want: Vec<f32> = multiplied(&plain_a, &plain_b, [m, n, k]).into_iter().map(|x| x as f32).collect();
    equal(&out.to_vec()?, &want)
}

fn groups() -> Row {
    let mut row = Row::new(
        "C104",
        "test_warp_specialize_tma_matmul, test_warp_specialize_tma_matmul_persistent and others of its suite",
    )
    .remarks("products on Hopper; factors by pointers, too, which no group of warps fetches");
    let tiles = [([128, 128, 64], 4), ([128, 128, 64], 8), ([128, 256, 64], 8), ([64, 64, 32], 4), ([128, 64, 16], 4)];
    macro_rules! each {
        ($($t:ident)*) => {$(
            for from in [From::Pointers, From::Passed, From::Made] {
                for (tile, warps) in tiles {
                    for stages in [2, 3, 4] {
                        for turned in [[false, false], [true, false], [false, true], [true, true]] {
                            // Sizes that tiles divide, and sizes whose rows no copy may write.
                            let size = if stages == 3 { [136, 150, 72] } else { [256, 136, 64] };
                            let form = Form { from, size, tile, warps, stages, turned };
                            let name = format!("{} {from:?} {tile:?} warps={warps} stages={stages} turned={turned:?}", $t::NAME);
                            row.case(name, move |device| case::<$t>(device, form));
                        }
                    }
                }
            }
        )*};
    }
    each!(f16 bf16);
    for from in [From::Passed, From::Made] {
        for (tile, warps) in tiles {
            row.host(format!("a group of warps fetches: {from:?} {tile:?} warps={warps}"), move || {
                let form = Form { from, size: [256, 256, 128], tile, warps, stages: 3, turned: [false; 2] };
                let device = Device::cpu();
                let (x, y) = (device.zeros::<f16>(256 * 128)?, device.zeros::<f16>(256 * 128)?);
                let compiled = with(form, [&x, &y], &mut device.zeros::<f32>(256 * 256)?, Task::Compile)?;
                let compiled = compiled.ok_or_else(|| Failure("nothing was compiled".to_string()))?;
                contains(compiled.ptx(), &["setmaxnreg.dec", "setmaxnreg.inc", "wgmma.mma_async", "mbarrier.try_wait"])
            });
        }
    }
    row
}
