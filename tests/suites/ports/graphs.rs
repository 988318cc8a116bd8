//! Graphs and sparse matrices.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use crate::{close, numbers};

/// Rows of a sparse matrix times columns of a dense one: a row per program, which reads as many elements as the row has.
#[kernel]
fn sparse<T: Float, const N: usize, const BLOCK: usize = 16>(
    starts: Ptr<i32>,
    columns: Ptr<i32>,
    values: Option<Ptr<T>>,
    dense: Ptr<T>,
    out: PtrMut<T>,
    n: i32,
) {
    let row = program_id(0);
    let (start, end) = (load(starts + row), load(starts + row + 1));
    let at = arange(0, N);
    let mut acc = zeros::<T::Acc>([BLOCK, N]);
    for first in (start..end).step_by(BLOCK) {
        let i = first + arange(0, BLOCK);
        let column = load(columns + i, mask = i < end);
        let factor = if let Some(values) = values { load(values + i, mask = i < end) } else { full([BLOCK], 1 as T) };
        let mask = (i < end)[(.., None)] & (at < n);
        let x = load(dense + column[(.., None)] as i64 * n as i64 + at as i64, mask = mask);
        acc += (factor as T::Acc)[(.., None)] * x as T::Acc;
    }
    store(out + row * n + at, sum(acc, axis = 0) as T, mask = at < n);
}

#[test]
fn sparse_rows_are_multiplied() {
    check(|device| {
        let (rows, width, n) = (7usize, 40usize, 11usize);
        // Row by row 0, 9, 18, .. elements: none, less than a block, several blocks.
        let lengths: Vec<usize> = (0..rows).map(|row| row * 9 % 37).collect();
        let starts: Vec<i32> =
            lengths.iter().scan(0, |sum, &len| Some(std::mem::replace(sum, *sum + len as i32))).collect();
        let total: usize = lengths.iter().sum();
        let starts: Vec<i32> = starts.into_iter().chain([total as i32]).collect();
        let columns: Vec<i32> = (0..total).map(|i| (i * 13 % width) as i32).collect();
        let (values, dense) = (numbers(total, 11), numbers(width * n, 12));
        let (a, b, c) = (device.upload(&starts)?, device.upload(&columns)?, device.upload(&values)?);
        let (x, mut out) = (device.upload(&dense)?, device.zeros::<f32>(rows * n)?);
        for weighted in [true, false] {
            let given = weighted.then_some(&c);
            sparse::<_, 16>(&a, &b, given, &x, &mut out, n as i32).grid(rows).launch(device)?;
            let out = out.to_vec()?;
            for (row, column) in (0..rows).flat_map(|row| (0..n).map(move |column| (row, column))) {
                let (mut sum, mut magnitude) = (0.0f64, 0.0f64);
                for i in starts[row] as usize..starts[row + 1] as usize {
                    let value = if weighted { f64::from(values[i]) } else { 1.0 };
                    let product = value * f64::from(dense[columns[i] as usize * n + column]);
                    sum += product;
                    magnitude += product.abs();
                }
                close(out[row * n + column], sum, 40.0 * magnitude * f64::from(f32::EPSILON));
            }
        }
        Ok(())
    });
}

/// Each end of an edge takes the smaller label of both, by way of the labels' own labels.
#[kernel]
fn joined<const BLOCK: usize>(
    a: Ptr<i32>,
    b: Ptr<i32>,
    label: PtrMut<i32>,
    changes: PtrMut<i32>,
    edges: i32,
    nodes: i32,
) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < edges;
    let (a, b) = (load(a + i, mask = mask), load(b + i, mask = mask));
    assert!((a >= 0) & (a < nodes) & (b >= 0) & (b < nodes), "an edge of nodes that do not exist");
    let (la, lb) = (load(label + a, mask = mask), load(label + b, mask = mask));
    let least = minimum(la, lb);
    let unlike = mask & (la != lb);
    atomic_min(label + a, least, mask = unlike, order = relaxed);
    atomic_min(label + b, least, mask = unlike, order = relaxed);
    // Whoever has the greater label is called after the smaller one.
    atomic_min(label + clamp(maximum(la, lb), 0, nodes - 1), least, mask = unlike, order = relaxed);
    if any(unlike) {
        atomic_add(changes, 1, order = relaxed);
    }
}

#[test]
fn components_are_called_after_their_first_node() {
    check(|device| {
        let nodes = 60usize;
        // Multiples of seven in a ring, a path, some alone.
        let ring = (0..nodes / 7).map(|i| (i * 7, (i * 7 + 7) % (nodes / 7 * 7)));
        let path = (20..27).rev().filter(|i| i % 7 != 0 && (i + 1) % 7 != 0).map(|i| (i + 1, i));
        let edges: Vec<(usize, usize)> = ring.chain(path).collect();
        let ends = |end: fn(&(usize, usize)) -> usize| edges.iter().map(|e| end(e) as i32).collect::<Vec<i32>>();
        let (a, b) = (device.upload(&ends(|e| e.0))?, device.upload(&ends(|e| e.1))?);
        let mut label = device.upload(&(0..nodes as i32).collect::<Vec<_>>())?;
        let mut rounds = 0;
        loop {
            let mut changes = device.zeros::<i32>(1)?;
            let n = edges.len();
            joined::<8>(&a, &b, &mut label, &mut changes, n as i32, nodes as i32).grid(n.div_ceil(8)).launch(device)?;
            if changes.to_vec()? == [0] {
                break;
            }
            rounds += 1;
            assert!(rounds < nodes, "no end");
        }
        let mut want: Vec<usize> = (0..nodes).collect();
        for _ in 0..nodes {
            for &(a, b) in &edges {
                let least = want[a].min(want[b]);
                (want[a], want[b]) = (least, least);
            }
        }
        assert_eq!(label.to_vec()?, want.iter().map(|&x| x as i32).collect::<Vec<_>>());
        let bad = device.upload(&[nodes as i32])?;
        let mut changes = device.zeros::<i32>(1)?;
        joined::<8>(&bad, &bad, &mut label, &mut changes, 1, nodes as i32).grid(1).launch(device)?;
        let error = label.to_vec().expect_err("an edge of nodes that do not exist").to_string();
        assert!(error.contains("an edge of nodes that do not exist"), "{error}");
        Ok(())
    });
}
