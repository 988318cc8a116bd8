use tilewright::prelude::*;

#[kernel]
fn copies<const M: usize, const N: usize>(
    a: TensorDesc<f32, { [M, N] }>,
    c: TensorDescMut<f32, { [M, N] }>,
    rows: Ptr<i32>,
) {
    let one = a.load([0]);
    a.store([0, 0], c.load([0, 0]));
    c.store([0, 0], zeros::<f32>([N, M]));
    c.store([0, 0], zeros::<f16>([M, N]));
    let many = a.gather(load(rows + arange(0, 4)), 0);
    let row = program_id(0) as i64;
    let wide = a.load([row, 0]);
    let twice = a + a;
    let masked = a.load([0, 0], mask = true);
}

#[kernel]
fn shapes(
    a: TensorDesc<f32>,
    b: TensorDesc<f32, 16>,
    c: TensorDesc<f32, { [24] }>,
    d: TensorDesc<f32, { [1, 1, 1, 1, 1, 16] }>,
    mut e: TensorDesc<f32, { [16] }>,
) {
}

fn main() {}
