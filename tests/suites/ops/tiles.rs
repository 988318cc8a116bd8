//! Operations on whole tiles, on every dtype, along every axis of several shapes.

use std::cmp::Ordering;

use kernel_core::ir::{DType, Dim, ShapeOp, TileOp};
use tilewright_tests::author::Author;
use tilewright_tests::data::{self, Data};
use tilewright_tests::expect::{Answer, exactly};
use tilewright_tests::samples::{self, Rng};

const SHAPES: [&[usize]; 6] = [&[128], &[8, 64], &[64, 2], &[4, 8, 16], &[1, 32], &[1]];

fn sizes(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|&size| size as i64).collect()
}

/// Elements with edges and repetitions among them.
fn elements(dtype: DType, len: usize, seed: u64) -> Data {
    let (mut rng, edges) = (Rng::new(seed), samples::edges(dtype));
    let pick = |_| if rng.below(3) == 0 { edges[rng.below(edges.len())] } else { samples::random(dtype, &mut rng) };
    Data::new(dtype, (0..len).map(pick).collect::<Vec<_>>())
}

/// The lines of a row-major tile along `axis`: the offsets of the elements of each.
fn lines(shape: &[usize], axis: usize) -> Vec<Vec<usize>> {
    let (len, inner): (usize, usize) = (shape[axis], shape[axis + 1..].iter().product());
    let outer: usize = shape[..axis].iter().product();
    let line = |o: usize, i: usize| (0..len).map(|k| (o * len + k) * inner + i).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| line(o, i)).collect()
}

fn with_size(shape: &[usize], axis: usize, size: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape[axis] = size;
    shape
}

/// -0 below +0, NaN above all else.
fn order(dtype: DType, a: u64, b: u64) -> Ordering {
    if !dtype.is_float() {
        return data::to_int(dtype, a).cmp(&data::to_int(dtype, b));
    }
    let nan = data::is_nan(dtype, a).cmp(&data::is_nan(dtype, b));
    let both = data::is_nan(dtype, a) && data::is_nan(dtype, b);
    let numbers = data::to_f64(dtype, a).total_cmp(&data::to_f64(dtype, b));
    nan.then(if both || nan != Ordering::Equal { Ordering::Equal } else { numbers })
}

/// Everything that sorting one tile can give, in one kernel per shape.
fn sorted(dtype: DType) {
    for shape in SHAPES {
        let len = shape.iter().product();
        let input = elements(dtype, len, 31);
        let mut author = Author::new(&format!("sort_{dtype}_{len}"));
        let tile = author.load_tile(&input, &sizes(shape));
        for axis in 0..shape.len() {
            for (descending, keep) in [(false, shape[axis]), (true, shape[axis]), (true, shape[axis].div_ceil(4))] {
                let to = with_size(shape, axis, keep);
                let (mut values, mut places) = (vec![Answer::Exactly(0); to.iter().product()], Vec::new());
                places.clone_from(&values);
                for (line, out) in lines(shape, axis).iter().zip(lines(&to, axis)) {
                    let mut found: Vec<(u64, usize)> = line.iter().map(|&at| input.bits[at]).zip(0..).collect();
                    found.sort_by(|a, b| {
                        let order = order(dtype, a.0, b.0);
                        if descending { order.reverse() } else { order }
                    });
                    for (&(bits, place), &at) in found.iter().zip(&out) {
                        (values[at], places[at]) = (Answer::Exactly(bits), Answer::Exactly(place as u64));
                    }
                }
                let label = format!("sort {keep} of {shape:?} along {axis}");
                let sort = |indices| {
                    let (axis, keep) = (axis as u8, Dim::Const(keep as i64));
                    TileOp::Sort { axis, descending, keep, indices }
                };
                let result = author.one(sort(false), &[tile]);
                author.store_tile(&label, result, values);
                let result = author.one(sort(true), &[tile]);
                author.store_tile(&format!("{label}, indices"), result, places);
            }
        }
        author.finish().check_on_every_device();
    }
}

/// Gathering in any order with repetitions, and scattering to places that are all different; an index wraps.
fn indexed(dtype: DType) {
    let mut author = Author::new(&format!("indexed_{dtype}"));
    for (case, shape) in SHAPES.into_iter().enumerate() {
        let index_dtype = [DType::I32, DType::I64, DType::I16, DType::U8, DType::U32, DType::I8][case];
        let len = shape.iter().product();
        let (input, values) = (elements(dtype, len, 41), elements(dtype, len, 42));
        let (tile, value) = (author.load_tile(&input, &sizes(shape)), author.load_tile(&values, &sizes(shape)));
        for axis in 0..shape.len() {
            let (size, mut rng) = (shape[axis], Rng::new(43));
            let taken = with_size(shape, axis, 2 * size);
            let count = taken.iter().product::<usize>();
            let numbers: Vec<i64> =
                (0..count).map(|_| rng.below(size) as i64 - if case == 4 { 0 } else { size as i64 }).collect();
            let index = author.load_tile(&Data::numbers(index_dtype, numbers.clone()), &sizes(&taken));
            let mut expected = vec![0; count];
            for (line, out) in lines(shape, axis).iter().zip(lines(&taken, axis)) {
                out.iter()
                    .for_each(|&at| expected[at] = input.bits[line[numbers[at].rem_euclid(size as i64) as usize]]);
            }
            let gathered = author.one(TileOp::Gather { axis: axis as u8 }, &[tile, index]);
            author.store_tile(
                &format!("gather along {axis} of {shape:?}"),
                gathered,
                exactly(&Data::new(dtype, expected)),
            );
            // A rotation of each line by another number of places.
            let (mut places, mut expected) = (vec![0; len], vec![0; len]);
            for (turn, line) in lines(shape, axis).iter().enumerate() {
                for (at, &from) in line.iter().enumerate() {
                    let place = (at + 3 * turn + 1) % size;
                    (places[from], expected[line[place]]) = (place as i64, values.bits[from]);
                }
            }
            let index = author.load_tile(&Data::numbers(index_dtype, places), &sizes(shape));
            let scattered = author.one(TileOp::Scatter { axis: axis as u8 }, &[tile, index, value]);
            author.store_tile(
                &format!("scatter along {axis} of {shape:?}"),
                scattered,
                exactly(&Data::new(dtype, expected)),
            );
        }
    }
    author.finish().check_on_every_device();
}

fn counted(dtype: DType) {
    let mut author = Author::new(&format!("histogram_{dtype}"));
    for (shape, bins) in SHAPES.into_iter().zip([64, 256, 4, 16, 1, 2]) {
        let (len, mut rng) = (shape.iter().product::<usize>(), Rng::new(51));
        // Some lie outside.
        let numbers: Vec<i64> =
            (0..len).map(|_| rng.below(100) as i64 - if dtype.is_signed_int() { 20 } else { 0 }).collect();
        let masks: Vec<i64> = (0..len).map(|_| rng.below(2) as i64).collect();
        let tile = author.load_tile(&Data::numbers(dtype, numbers.clone()), &sizes(shape));
        let mask = author.load_tile(&Data::numbers(DType::Bool, masks.clone()), &sizes(shape));
        for masked in [false, true] {
            let mut counts = vec![0i64; bins];
            for (&number, &admitted) in numbers.iter().zip(&masks) {
                if let Some(count) = usize::try_from(number).ok().and_then(|bin| counts.get_mut(bin)) {
                    *count += if masked { admitted } else { 1 };
                }
            }
            let operands = if masked { vec![tile, mask] } else { vec![tile] };
            let counted = author.one(TileOp::Histogram { bins: Dim::Const(bins as i64) }, &operands);
            author.store_tile(&format!("histogram of {shape:?}"), counted, exactly(&Data::numbers(DType::I32, counts)));
        }
    }
    author.finish().check_on_every_device();
}

/// The halves of tiles that come from memory and from `join`.
fn halves(dtype: DType) {
    let mut author = Author::new(&format!("half_{dtype}"));
    for shape in [&[64usize, 2][..], &[4, 8, 2], &[1, 2], &[256, 2]] {
        let (len, rest) = (shape.iter().product(), shape.len() - 1);
        let input = elements(dtype, len, 61);
        let tile = author.load_tile(&input, &sizes(shape));
        let mut parts = Vec::new();
        for upper in [false, true] {
            let half = author.one(ShapeOp::Half { upper }, &[tile]);
            let bits = input.bits.iter().skip(usize::from(upper)).step_by(2).copied();
            let want = Data::new(dtype, bits.collect::<Vec<_>>());
            author.store_tile(&format!("half of {:?}", &shape[..rest]), half, exactly(&want));
            parts.push(half);
        }
        let joined = author.one(ShapeOp::Join, &parts);
        author.store_tile(&format!("joined again: {shape:?}"), joined, exactly(&input));
        let first = author.one(ShapeOp::Half { upper: false }, &[joined]);
        let bits = input.bits.iter().step_by(2).copied().collect::<Vec<_>>();
        author.store_tile(&format!("half of what was joined: {shape:?}"), first, exactly(&Data::new(dtype, bits)));
    }
    author.finish().check_on_every_device();
}

macro_rules! for_each_dtype {
    ($($test:ident: $($name:ident = $dtype:ident)*;)*) => {$(
        mod $test {
            use kernel_core::ir::DType;
            $(#[test] fn $name() { super::$test(DType::$dtype); })*
        }
    )*};
}

for_each_dtype! {
    sorted: i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64
        f8e4m3 = F8E4M3 f8e5m2 = F8E5M2 f16 = F16 bf16 = BF16 f32 = F32 f64 = F64;
    indexed: bool = Bool i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64
        f8e4m3 = F8E4M3 f8e5m2 = F8E5M2 f16 = F16 bf16 = BF16 f32 = F32 f64 = F64;
    halves: bool = Bool i8 = I8 i16 = I16 i32 = I32 u64 = U64 f16 = F16 f32 = F32;
    counted: i8 = I8 i16 = I16 i32 = I32 i64 = I64 u8 = U8 u16 = U16 u32 = U32 u64 = U64;
}
