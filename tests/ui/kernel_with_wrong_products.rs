use tilewright::prelude::*;

#[kernel]
fn products<T: Num, F: Float, const M: usize, const N: usize, const K: usize>(
    a: Ptr<f16>,
    b: Ptr<f32>,
    t: Ptr<T>,
    f: Ptr<F>,
    out: PtrMut<f32>,
) {
    let rows = arange(0, M)[(.., None)];
    let columns = arange(0, K);
    let x = load(a + rows * K + columns);
    let y = load(b + rows * K + columns);
    let inner = dot(x, load(a + arange(0, N)[(.., None)] * K + columns));
    let facts = dot(x, load(a + arange(0, N)[(.., None)] + arange(0, M)));
    let dtypes = dot(x, y.trans());
    let sums = dot(x, x.trans(), acc = zeros::<i32>([M, M]));
    let shape = dot(x, x.trans(), acc = zeros([M, K]));
    let named = dot(y, y.trans(), precision = tf33, out = 32);
    let vector = dot(columns, x);
    let open = dot(load(t + rows), load(t + rows).trans());
    let integers = dot(rows, rows.trans());
    let fourth = dot(x, x.trans(), zeros([M, M]), ieee);
    let halves = load(f + rows * K + columns);
    store(out + rows + arange(0, M), dot(halves, halves.trans(), out = f16));
    store(out, matmul(x, x));
}

fn main() {}
