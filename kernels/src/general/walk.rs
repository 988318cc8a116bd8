//! Walks over several tensors of one shape at once, whatever their strides: blocks of two dimensions, two dimensions of the
//! grid, and a launch for each index of what is beyond.

use crate::check::{self, LONGEST, MOST_PROGRAMS};
use crate::tensor::layout::Layout;
use crate::{TensorView, TensorViewMut};
use tilewright::{DType, Result, View, ViewMut};

/// A dimension with a stride in each tensor.
#[derive(Debug, Clone)]
struct Dimension {
    size: usize,
    strides: Vec<usize>,
}

/// One tensor in one launch.
#[derive(Debug, Clone, Copy)]
pub struct Operand<V> {
    /// Its elements.
    pub elements: V,
    /// The stride of rows of blocks.
    pub m: i64,
    /// The stride of columns of blocks.
    pub n: i64,
    /// The stride of axis 1 of the grid.
    pub a: i64,
    /// The stride of axis 2 of the grid.
    pub b: i64,
}

/// How several tensors are walked over.
#[derive(Debug)]
pub struct Walk {
    /// The elements, where all tensors are contiguous and of one shape.
    flat: Option<usize>,
    /// Rows and columns of blocks, axes 1 and 2 of the grid.
    dimensions: [Dimension; 4],
    /// Where each launch begins in each tensor, and its size along axes 1 and 2.
    starts: Vec<(Vec<usize>, (usize, usize))>,
}

/// The shape that inputs broadcast to: dimensions of size 1 repeat.
pub fn broadcast_shape<const R: usize>(names: &[&str], shapes: &[[usize; R]]) -> Result<[usize; R]> {
    let mut common = [1; R];
    for (name, shape) in names.iter().zip(shapes) {
        for axis in 0..R {
            match (common[axis], shape[axis]) {
                (old, new) if old == new || new == 1 => {}
                (1, new) => common[axis] = new,
                (old, _) => {
                    return Err(check::invalid(
                        name,
                        format!("has the shape {shape:?}"),
                        format!("dimension {axis} has {old} elements in other arguments: it has as many, or 1"),
                    ));
                }
            }
        }
    }
    Ok(common)
}

impl Walk {
    /// A walk over inputs, which broadcast to the shape of the output.
    pub fn new<T: DType, O: DType, const R: usize>(
        names: &[&str],
        inputs: &[TensorView<'_, T, R>],
        out: &TensorViewMut<'_, O, R>,
    ) -> Result<Walk> {
        let shapes: Vec<[usize; R]> = inputs.iter().map(|x| x.shape()).collect();
        check::shape("out", out.shape(), broadcast_shape(names, &shapes)?)?;
        let packed = out.layout().is_packed() && inputs.iter().all(|x| x.shape() == out.shape() && x.is_contiguous());
        let layouts: Vec<Layout<R>> = inputs.iter().map(|x| x.layout()).collect();
        let mut rest = merged(&out.layout(), &layouts);
        let n = take(&mut rest, |dimension| dimension.strides[0]);
        // Rows are what an input has contiguous, if it is not what the output has.
        let least = |dimension: &Dimension| {
            let inputs = &dimension.strides[1..];
            if inputs.contains(&1) { 0 } else { dimension.strides[0] }
        };
        let m = take(&mut rest, least);
        let b = take(&mut rest, |dimension| dimension.strides[0]);
        let a = take(&mut rest, |dimension| dimension.strides[0]);
        if !packed {
            check::size("out", n.as_ref().map_or(1, |n| n.size))?;
            check::size("out", m.as_ref().map_or(1, |m| m.size))?;
        }
        let one = || Dimension { size: 1, strides: vec![0; inputs.len() + 1] };
        let dimensions = [m, n, a, b].map(|dimension| dimension.unwrap_or_else(one));
        let starts = starts(&rest, &dimensions[2], &dimensions[3]);
        Ok(Walk { flat: packed.then(|| out.len()), dimensions, starts })
    }

    /// The number of elements, if all tensors are contiguous and of one shape.
    pub fn flat(&self) -> Option<usize> {
        self.flat
    }

    /// Rows and columns.
    pub fn sizes(&self) -> (i32, i32) {
        (self.dimensions[0].size as i32, self.dimensions[1].size as i32)
    }

    /// Rows and columns of blocks: square where a tensor is contiguous along rows, so that both sides are accessed in
    /// pieces of a cache line or more, else as wide as there are columns.
    pub fn block(&self) -> (usize, usize) {
        let [m, n, ..] = &self.dimensions;
        if m.strides.contains(&1) && m.size > 1 {
            return (64.min(m.size.next_power_of_two()), 64.min(n.size.next_power_of_two()));
        }
        let columns = n.size.next_power_of_two().min(1024);
        ((2048 / columns).min(m.size.next_power_of_two()), columns)
    }

    /// The launches: how many programs, and where each begins in each tensor.
    pub fn launches(&self) -> impl Iterator<Item = ((usize, usize, usize), &[usize])> {
        let (bm, bn) = self.block();
        let blocks = self.dimensions[0].size.div_ceil(bm) * self.dimensions[1].size.div_ceil(bn);
        self.starts.iter().map(move |(starts, (a, b))| ((blocks, *a, *b), starts.as_slice()))
    }

    fn operand<V>(&self, elements: V, at: usize) -> Operand<V> {
        let [m, n, a, b] = [0, 1, 2, 3].map(|which| self.dimensions[which].strides[at] as i64);
        Operand { elements, m, n, a, b }
    }

    /// Input number `at` in a launch.
    pub fn input<'a, T: DType>(&self, view: View<'a, T>, starts: &[usize], at: usize) -> Result<Operand<View<'a, T>>> {
        Ok(self.operand(view.slice(starts[at + 1]..)?, at + 1))
    }

    /// The output in a launch.
    pub fn output<'a, T: DType>(&self, view: ViewMut<'a, T>, starts: &[usize]) -> Result<Operand<ViewMut<'a, T>>> {
        Ok(self.operand(view.slice_mut(starts[0]..)?, 0))
    }
}

/// The dimensions of the output with a stride in each tensor, those that follow each other everywhere as one, unless that would
/// be too long.
fn merged<const R: usize>(out: &Layout<R>, inputs: &[Layout<R>]) -> Vec<Dimension> {
    let mut merged: Vec<Dimension> = Vec::new();
    for axis in (0..R).filter(|&axis| out.shape[axis] != 1) {
        let repeats = |input: &Layout<R>| if input.shape[axis] == 1 { 0 } else { input.strides[axis] };
        let strides = std::iter::once(out.strides[axis]).chain(inputs.iter().map(repeats)).collect();
        let this = Dimension { size: out.shape[axis], strides };
        match merged.last_mut() {
            Some(last)
                if last.strides.iter().zip(&this.strides).all(|(old, new)| *old == new * this.size)
                    && last.size * this.size <= LONGEST =>
            {
                *last = Dimension { size: last.size * this.size, ..this };
            }
            _ => merged.push(this),
        }
    }
    merged
}

fn take(dimensions: &mut Vec<Dimension>, key: impl Fn(&Dimension) -> usize) -> Option<Dimension> {
    let at = (0..dimensions.len()).min_by_key(|&at| key(&dimensions[at]))?;
    Some(dimensions.remove(at))
}

/// Where each launch begins: at the indices of what is beyond four dimensions, and at every 65,535th of axes 1 and 2.
fn starts(rest: &[Dimension], a: &Dimension, b: &Dimension) -> Vec<(Vec<usize>, (usize, usize))> {
    let moved = |start: &[usize], dimension: &Dimension, index: usize| -> Vec<usize> {
        start.iter().zip(&dimension.strides).map(|(start, stride)| start + index * stride).collect()
    };
    let mut starts = vec![vec![0; a.strides.len()]];
    for dimension in rest {
        starts = starts.iter().flat_map(|start| (0..dimension.size).map(|i| moved(start, dimension, i))).collect();
    }
    let mut all = Vec::new();
    for start in &starts {
        for i in (0..a.size).step_by(MOST_PROGRAMS) {
            for j in (0..b.size).step_by(MOST_PROGRAMS) {
                let sizes = ((a.size - i).min(MOST_PROGRAMS), (b.size - j).min(MOST_PROGRAMS));
                all.push((moved(&moved(start, a, i), b, j), sizes));
            }
        }
    }
    all
}
