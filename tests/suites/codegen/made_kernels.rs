//! A matrix product of tensors that are passed, and of such that the kernel makes.

use tilewright::prelude::*;

/// c = a * b, by programs that go from tile to tile, of tensors that are passed.
#[kernel]
fn passed<const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    c: TensorDescMut<f16, { [M, N] }>,
    rows: i32,
    columns: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(rows, M) * cdiv(columns, N)).step_by(num_programs(0)) {
        let (i, j) = (tile / cdiv(columns, N) * M, tile % cdiv(columns, N) * N);
        let mut acc = zeros::<f32>([M, N]);
        for t in (0..k).step_by(K) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        c.store([i, j], acc as f16);
    }
}

/// The same, of tensors that the kernel makes: before the loop (`FORM` 0), in it, or in each program another way.
#[kernel]
fn made<const M: usize, const N: usize, const K: usize, const FORM: i32>(
    x: Ptr<f16>,
    y: Ptr<f16>,
    z: PtrMut<f16>,
    rows: i32,
    columns: i32,
    k: i32,
) {
    let c = tensor_desc(z, [rows, columns], [columns, 1], [M, N]);
    if FORM == 0 {
        let a = tensor_desc(x, [rows, k], [k, 1], [M, K]);
        let b = tensor_desc(y, [k, columns], [columns, 1], [K, N]);
        #[warp_specialize]
        for tile in (program_id(0)..cdiv(rows, M) * cdiv(columns, N)).step_by(num_programs(0)) {
            let (i, j) = (tile / cdiv(columns, N) * M, tile % cdiv(columns, N) * N);
            let mut acc = zeros::<f32>([M, N]);
            for t in (0..k).step_by(K) {
                acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
            }
            c.store([i, j], acc as f16);
        }
    } else {
        #[warp_specialize]
        for tile in (program_id(0)..cdiv(rows, M) * cdiv(columns, N)).step_by(num_programs(0)) {
            let (i, j) = (tile / cdiv(columns, N) * M, tile % cdiv(columns, N) * N);
            let a = tensor_desc(x, [rows, k], [k, 1], [M, K]);
            let mut acc = zeros::<f32>([M, N]);
            for t in (0..k).step_by(K) {
                let height = if FORM == 1 { k } else { k - minimum(program_id(1), 0) };
                let b = tensor_desc(y, [height, columns], [columns, 1], [K, N]);
                acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
            }
            c.store([i, j], acc as f16);
        }
    }
}

/// Rows and columns of the matrices.
pub const SIZE: usize = 256;

/// PTX, of tensors that are passed.
pub fn of_passed() -> Result<String, Error> {
    let device = Device::cpu();
    let (x, mut z) = (device.zeros::<f16>(SIZE * SIZE)?, device.zeros::<f16>(SIZE * SIZE)?);
    let (a, n) = (TensorDesc::new(&x, [SIZE, SIZE])?, SIZE as i32);
    let mut c = TensorDescMut::new(&mut z, [SIZE, SIZE])?;
    let call = PassedConsts { M: 128, N: 128, K: 64 }.call(&a, &a, &mut c, n, n, n).num_warps(8);
    Ok(call.compile(Target::sm_90a())?.ptx().to_string())
}

/// PTX and report, of tensors that the kernel makes, whose rows are that long and that begin there.
pub fn of_made(form: i32, target: Target, columns: usize, first: usize) -> Result<(String, String), Error> {
    let device = Device::cpu();
    let (x, mut z) = (device.zeros::<f16>(SIZE * SIZE + 8)?, device.zeros::<f16>(SIZE * SIZE)?);
    let n = columns as i32;
    let consts = MadeConsts { M: 128, N: 128, K: 64, FORM: form };
    let x = x.slice(first..)?;
    let compiled = consts.call(x, x, &mut z, n, n, n).num_warps(8).compile(target)?;
    Ok((compiled.ptx().to_string(), compiled.report().to_string()))
}
