//! Tensor descriptors.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::made;
use crate::products::{contains, integers, multiplied};
use crate::runner::{Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![blocks(), padding(), matmuls(), atomics(), rows_by_number()]
}

/// Calls a macro for each dtype of Triton's tests of descriptors.
macro_rules! for_copied {
    ($call:ident) => {
        $call!(i8);
        $call!(i16);
        $call!(i32);
        $call!(u8);
        $call!(u16);
        $call!(u32);
        $call!(f16);
        $call!(bf16);
        $call!(f32);
    };
}

#[kernel]
fn copied<T: DType, const M: usize, const N: usize, const FORM: i32>(
    x: TensorDesc<T, { [M, N] }>,
    y: Ptr<T>,
    z: TensorDescMut<T, { [M, N] }>,
    out: PtrMut<T>,
    columns: i32,
) {
    let (row, column) = (program_id(0) * M, program_id(1) * N);
    let at = (row + arange(0, M))[(.., None)] * columns + (column + arange(0, N));
    if FORM == 0 {
        store(out + at, x.load([row, column]));
    } else if FORM == 1 {
        z.store([row, column], load(y + at));
    } else {
        store(z, [row, column], load(x, [row, column]));
    }
}

#[kernel]
fn copied_cube<T: DType, const K: usize, const STORE: bool>(
    x: TensorDesc<T, { [8, 8, K] }>,
    y: Ptr<T>,
    z: TensorDescMut<T, { [8, 8, K] }>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
) {
    let (i, j, k) = (program_id(0) * 8, program_id(1) * 8, program_id(2) * K);
    let (p, q, r) = ((i + arange(0, 8))[(.., None, None)], (j + arange(0, 8))[(.., None)], k + arange(0, K));
    let (at, inside) = ((p * rows + q) * columns + r, (p < 10) & (q < rows) & (r < columns));
    if STORE {
        z.store([i, j, k], load(y + at, mask = inside));
    } else {
        store(out + at, x.load([i, j, k]), mask = inside);
    }
}

/// Copies a matrix of several blocks, by loads, by stores, or by both.
fn copy<T: Element>(device: &Device, [m, n]: [usize; 2], form: i32) -> Outcome {
    let (rows, columns) = (2 * m, 2 * n);
    let x: Vec<T> = Random::new(92).elements(rows * columns);
    let buffer = device.upload(&x)?;
    let (mut stored, mut out) = (device.zeros::<T>(rows * columns)?, device.zeros::<T>(rows * columns)?);
    let from = TensorDesc::new(&buffer, [rows, columns])?;
    let mut to = TensorDescMut::new(&mut stored, [rows, columns])?;
    let consts = CopiedConsts { M: m, N: n, FORM: form };
    consts.call(&from, &buffer, &mut to, &mut out, columns as i32).grid((2, 2)).launch(device)?;
    equal(&if form == 0 { out } else { stored }.to_vec()?, &x)
}

/// Copies a tensor of three dimensions whose rows have gaps between them.
fn copy_cube<T: Element>(device: &Device, depth: usize, store: bool) -> Outcome {
    let ([p, q, r], strides) = ([10, 50, 119], [64 * 128, 128, 1]);
    let len = p * q * r;
    let apart: Vec<T> = Random::new(93).elements(p * strides[0]);
    let place = |i: usize| i / (q * r) * strides[0] + i / r % q * strides[1] + i % r;
    let close: Vec<T> = (0..len).map(|i| apart[place(i)]).collect();
    let (source, packed) = (device.upload(&apart)?, device.upload(&close)?);
    let (mut stored, mut out) = (device.zeros::<T>(apart.len())?, device.zeros::<T>(len)?);
    let from = TensorDesc::with_strides(&source, [p, q, r], strides)?;
    let mut to = TensorDescMut::with_strides(&mut stored, [p, q, r], strides)?;
    let call = CopiedCubeConsts { K: depth, STORE: store }.call(&from, &packed, &mut to, &mut out, q as i32, r as i32);
    call.grid((2, 7, r.div_ceil(depth))).launch(device)?;
    if !store {
        return equal(&out.to_vec()?, &close);
    }
    let mut want = vec![T::from_int(0); apart.len()];
    (0..len).for_each(|i| want[place(i)] = close[i]);
    equal(&stored.to_vec()?, &want)
}

macro_rules! ranks {
    ($($rank:literal $name:ident [$($dim:expr)*] [$($size:expr)*] [$($zero:literal)*];)*) => {$(
        /// One block, which ends outside the tensor.
        mod $name {
            use super::*;

            #[kernel]
            fn block<T: DType, const N: usize>(
                x: TensorDesc<T, { [$($dim,)* N] }>,
                y: Ptr<T>,
                z: TensorDescMut<T, { [$($dim,)* N] }>,
                out: PtrMut<T>,
            ) {
                let all = arange(0, N $(* $dim)*);
                store(out + all, reshape(x.load([$($zero,)* 0]), [N $(* $dim)*]));
                z.store([$($zero,)* 0], reshape(load(y + all), [$($dim,)* N]));
            }

            pub fn case<T: Element>(device: &Device, n: usize) -> Outcome {
                let (dims, shape): ([usize; $rank], [usize; $rank]) = ([$($dim,)* n], [$($size,)* n - 3]);
                let mut strides = [1; $rank];
                // Rows are as far apart as in the whole tensor, of which the last columns are left out.
                for axis in (0..$rank - 1).rev() {
                    strides[axis] = strides[axis + 1] * if axis + 2 == $rank { n } else { shape[axis + 1] };
                }
                let mut random = Random::new(94);
                let (x, y): (Vec<T>, Vec<T>) =
                    (random.elements(strides[0] * shape[0]), random.elements(dims.iter().product()));
                let (mut written, mut loaded) = (vec![T::from_int(1); x.len()], vec![T::from_int(0); y.len()]);
                for (i, &value) in y.iter().enumerate() {
                    let (mut rest, mut place, mut inside) = (i, 0, true);
                    for axis in (0..$rank).rev() {
                        place += rest % dims[axis] * strides[axis];
                        inside &= rest % dims[axis] < shape[axis];
                        rest /= dims[axis];
                    }
                    if inside {
                        (loaded[i], written[place]) = (x[place], value);
                    }
                }
                let (from, values) = (device.upload(&x)?, device.upload(&y)?);
                let (mut stored, mut out) = (device.full(x.len(), T::from_int(1))?, device.zeros::<T>(y.len())?);
                let left = TensorDesc::with_strides(&from, shape, strides)?;
                let mut right = TensorDescMut::with_strides(&mut stored, shape, strides)?;
                BlockConsts { N: n }.call(&left, &values, &mut right, &mut out).grid(1).launch(device)?;
                equal(&out.to_vec()?, &loaded)?;
                equal(&stored.to_vec()?, &written)
            }
        }
    )*};
}
ranks! {
    1 one [] [] [];
    2 two [8] [7] [0];
    3 three [4 8] [3 7] [0 0];
    4 four [2 4 8] [1 3 7] [0 0 0];
    5 five [2 2 4 8] [1 1 3 7] [0 0 0 0];
}

fn blocks() -> Row {
    let mut row = Row::new(
        "C92",
        "test_tensor_descriptor_load, _store, _load3d, _store3d, _load_nd, _store_nd, _functional_interface",
    )
    .remarks("descriptors are made by the host, and by kernels");
    macro_rules! each {
        ($t:ident) => {
            for size in [[2, 16], [8, 16], [8, 32], [8, 128], [512, 32], [1, 1024]] {
                for (form, name) in (0..).zip(["load", "store", "functions"]) {
                    row.case(format!("{name} {} {size:?}", $t::NAME), move |device| copy::<$t>(device, size, form));
                }
            }
            for n in [16, 32, 64, 128] {
                row.case(format!("load {} 8 x 8 x {n}", $t::NAME), move |device| copy_cube::<$t>(device, n, false));
                row.case(format!("store {} 8 x 8 x {n}", $t::NAME), move |device| copy_cube::<$t>(device, n, true));
                row.case(format!("{} of rank 1, {n}", $t::NAME), move |device| one::case::<$t>(device, n));
                row.case(format!("{} of rank 2, {n}", $t::NAME), move |device| two::case::<$t>(device, n));
                row.case(format!("{} of rank 3, {n}", $t::NAME), move |device| three::case::<$t>(device, n));
                row.case(format!("{} of rank 4, {n}", $t::NAME), move |device| four::case::<$t>(device, n));
                row.case(format!("{} of rank 5, {n}", $t::NAME), move |device| five::case::<$t>(device, n));
            }
        };
    }
    for_copied!(each);
    made::add_blocks(&mut row);
    row
}

#[kernel]
fn padded<T: DType>(x: TensorDesc<T, { [32, 32] }>, out: PtrMut<T>) {
    let (i, j) = (program_id(0) * 32, program_id(1) * 32);
    store(out + ((i + arange(0, 32))[(.., None)] * 64 + (j + arange(0, 32))), x.load([i, j]));
}

fn padding() -> Row {
    fn case<T: Element + Float>(device: &Device, nan: bool) -> Outcome {
        let x: Vec<T> = Random::new(95).elements(48 * 48);
        let (buffer, mut out) = (device.upload(&x)?, device.zeros::<T>(64 * 64)?);
        let tensor = TensorDesc::new(&buffer, [48, 48])?;
        let tensor = if nan { tensor.with_nan_padding() } else { tensor };
        padded(&tensor, &mut out).grid((2, 2)).launch(device)?;
        let outside = T::from_f64(if nan { f64::NAN } else { 0.0 });
        let one = |i: usize| if i / 64 < 48 && i % 64 < 48 { x[i / 64 * 48 + i % 64] } else { outside };
        equal(&out.to_vec()?, &(0..64 * 64).map(one).collect::<Vec<T>>())
    }
    let mut row = Row::new("C93", "test_tensor_descriptor_padding");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for (nan, name) in [(false, "zeros"), (true, "NaN")] {
                row.case(format!("{} {name}", $t::NAME), move |device| case::<$t>(device, nan));
            }
        )*};
    }
    each!(f16 bf16 f32 f64);
    made::add_padding(&mut row);
    row
}

#[kernel]
fn matmul<T: Float, const M: usize, const N: usize, const K: usize, const TRANSPOSED: bool>(
    a: TensorDesc<T, { [M, K] }>,
    b: TensorDesc<T, { [K, N] }>,
    turned: TensorDesc<T, { [N, K] }>,
    c: TensorDescMut<T, { [M, N] }>,
    k: i32,
) {
    let (i, j) = (program_id(0) * M, program_id(1) * N);
    let mut acc = zeros::<f32>([M, N]);
    for first in (0..k).step_by(K) {
        let y = if TRANSPOSED { turned.load([j, first]).trans() } else { b.load([first, j]) };
        acc = dot(a.load([i, first]), y, acc = acc);
    }
    c.store([i, j], acc as T);
}

fn matmuls() -> Row {
    fn case<T: Element + Float>(device: &Device, tile: [usize; 3], stages: u32, turned: bool) -> Outcome {
        let ([m, n, k], mut random) = ([100, 72, 80], Random::new(96));
        let ((a, plain_a), (b, plain_b)) = (integers::<T>(&mut random, m * k), integers::<T>(&mut random, k * n));
        let across: Vec<T> = (0..k * n).map(|i| b[i % k * n + i / k]).collect();
        let (x, y, y_turned) = (device.upload(&a)?, device.upload(&b)?, device.upload(&across)?);
        let mut out = device.zeros::<T>(m * n)?;
        let (left, right) = (TensorDesc::new(&x, [m, k])?, TensorDesc::new(&y, [k, n])?);
        let right_turned = TensorDesc::new(&y_turned, [n, k])?;
        let mut to = TensorDescMut::new(&mut out, [m, n])?;
        let consts = MatmulConsts { M: tile[0], N: tile[1], K: tile[2], TRANSPOSED: turned };
        let call = consts.call(&left, &right, &right_turned, &mut to, k as i32);
        call.grid((m.div_ceil(tile[0]), n.div_ceil(tile[1]))).num_stages(stages).launch(device)?;
        let want = multiplied(&plain_a, &plain_b, [m, n, k]);
        equal(&out.to_vec()?, &want.into_iter().map(T::from_f64).collect::<Vec<T>>())
    }
    let mut row = Row::new("C94", "test_make_tensor_descriptor_matmul, test_host_tensor_descriptor_matmul");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for tile in [[128, 128, 16], [128, 64, 32], [64, 64, 64], [64, 32, 32], [32, 32, 16]] {
                for stages in [1, 4] {
                    for turned in [false, true] {
                        let order = if turned { ", transposed" } else { "" };
                        let name = format!("{} by {tile:?}, {stages} stages{order}", $t::NAME);
                        row.case(name, move |device| case::<$t>(device, tile, stages, turned));
                    }
                }
            }
        )*};
    }
    each!(f16 bf16 f32);
    row.host("the hardware copies blocks", || {
        let (device, n) = (Device::cpu(), 256);
        let (x, mut out) = (device.zeros::<f16>(n * n)?, device.zeros::<f16>(n * n)?);
        let from = TensorDesc::new(&x, [n, n])?;
        let mut to = TensorDescMut::new(&mut out, [n, n])?;
        let consts = MatmulConsts { M: 128, N: 128, K: 64, TRANSPOSED: false };
        let compiled = consts.call(&from, &from, &from, &mut to, n as i32).num_warps(8).compile(Target::sm_90a())?;
        let load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
        contains(compiled.ptx(), &[load, "cp.async.bulk.tensor.2d.global.shared::cta", "wgmma.mma_async"])
    });
    made::add_matmuls(&mut row);
    row
}

#[kernel]
fn combined<T: Num, const M: usize, const N: usize, const KIND: i32>(x: Ptr<T>, out: TensorDescMut<T, { [M, N] }>) {
    let v = load(x + (arange(0, M)[(.., None)] * N + arange(0, N)));
    if KIND == 0 {
        out.atomic_add([program_id(0), 3], v);
    } else if KIND == 1 {
        out.atomic_min([program_id(0), 3], v);
    } else {
        out.atomic_max([program_id(0), 3], v);
    }
}

#[kernel]
fn combined_bits<T: Int, const M: usize, const N: usize, const KIND: i32>(
    x: Ptr<T>,
    out: TensorDescMut<T, { [M, N] }>,
) {
    let v = load(x + (arange(0, M)[(.., None)] * N + arange(0, N)));
    if KIND == 3 {
        out.atomic_and([program_id(0), 3], v);
    } else if KIND == 4 {
        out.atomic_or([program_id(0), 3], v);
    } else {
        out.atomic_xor([program_id(0), 3], v);
    }
}

const KINDS: [&str; 6] = ["add", "min", "max", "and", "or", "xor"];

/// The tensor, what two programs add to it, a row apart, and what it is then. Its last rows and columns end inside a block.
struct Combination<T> {
    values: Vec<T>,
    before: Vec<T>,
    after: Vec<T>,
    shape: [usize; 2],
}

impl<T: Element> Combination<T> {
    fn new([m, n]: [usize; 2], kind: usize) -> Combination<T> {
        let (mut random, shape) = (Random::new(97), [m, n - 2]);
        let (values, before): (Vec<T>, Vec<T>) = if T::IS_FLOAT {
            (random.small(m * n, -50, 50), random.small(m * (n - 2), -50, 50))
        } else {
            (random.elements(m * n), random.elements(m * (n - 2)))
        };
        let mut after = before.clone();
        for first in 0..2 {
            for (i, &value) in values.iter().enumerate() {
                let (row, column) = (first + i / n, 3 + i % n);
                if row < shape[0] && column < shape[1] {
                    let element = &mut after[row * shape[1] + column];
                    *element = Combination::one(kind, *element, value);
                }
            }
        }
        Combination { values, before, after, shape }
    }

    fn one(kind: usize, old: T, value: T) -> T {
        let less = if T::IS_FLOAT { value.to_f64() < old.to_f64() } else { value.to_int() < old.to_int() };
        let (a, b) = (old.to_int(), value.to_int());
        match kind {
            0 => T::from_int(a + b),
            1 => {
                if less {
                    value
                } else {
                    old
                }
            }
            2 => {
                if less {
                    old
                } else {
                    value
                }
            }
            3 => T::from_int(a & b),
            4 => T::from_int(a | b),
            _ => T::from_int(a ^ b),
        }
    }
}

fn atomics() -> Row {
    fn numbers<T: Element>(device: &Device, size: [usize; 2], kind: usize) -> Outcome {
        let case = Combination::<T>::new(size, kind);
        let (x, mut out) = (device.upload(&case.values)?, device.upload(&case.before)?);
        let mut to = TensorDescMut::new(&mut out, case.shape)?;
        let consts = CombinedConsts { M: size[0], N: size[1], KIND: kind as i32 };
        consts.call(&x, &mut to).grid(2).launch(device)?;
        equal(&out.to_vec()?, &case.after)
    }
    fn bits<T: Element + Int>(device: &Device, size: [usize; 2], kind: usize) -> Outcome {
        let case = Combination::<T>::new(size, kind);
        let (x, mut out) = (device.upload(&case.values)?, device.upload(&case.before)?);
        let mut to = TensorDescMut::new(&mut out, case.shape)?;
        let consts = CombinedBitsConsts { M: size[0], N: size[1], KIND: kind as i32 };
        consts.call(&x, &mut to).grid(2).launch(device)?;
        equal(&out.to_vec()?, &case.after)
    }
    let mut row = Row::new("C95", "test_tensor_descriptor_reduce").remarks("dtypes of at least 16 bits, 64 among them");
    const SIZES: [[usize; 2]; 6] = [[2, 16], [8, 16], [8, 32], [8, 128], [64, 32], [1, 1024]];
    macro_rules! of_numbers {
        ($($t:ident)*) => {$(
            for size in SIZES {
                for kind in 0..3 {
                    let name = format!("{} {} {size:?}", KINDS[kind], $t::NAME);
                    row.case(name, move |device| numbers::<$t>(device, size, kind));
                }
            }
        )*};
    }
    macro_rules! of_bits {
        ($($t:ident)*) => {$(
            for size in SIZES {
                for kind in 3..6 {
                    let name = format!("{} {} {size:?}", KINDS[kind], $t::NAME);
                    row.case(name, move |device| bits::<$t>(device, size, kind));
                }
            }
        )*};
    }
    of_numbers!(i16 i32 i64 u16 u32 u64 f16 bf16 f32 f64);
    of_bits!(i16 i32 i64 u16 u32 u64);
    made::add_atomics(&mut row);
    row
}

#[kernel]
fn picked<T: DType, const R: usize, const N: usize, const FORM: i32>(
    index: Ptr<i32>,
    x: TensorDesc<T, { [1, N] }>,
    y: Ptr<T>,
    z: TensorDescMut<T, { [1, N] }>,
    out: PtrMut<T>,
    column: i32,
) {
    let (rows, at) = (load(index + arange(0, R)), arange(0, R)[(.., None)] * N + arange(0, N));
    if FORM == 0 {
        store(out + at, x.gather(rows, column));
    } else {
        z.scatter(rows, column, load(y + at));
    }
}

fn rows_by_number() -> Row {
    fn case<T: Element>(device: &Device, [rows, columns, count, width]: [usize; 4], column: i32, form: i32) -> Outcome {
        let mut random = Random::new(98);
        let (x, y): (Vec<T>, Vec<T>) = (random.elements(rows * columns), random.elements(count * width));
        // A row for each number, in no order; those that the tensor lacks are padding.
        let index: Vec<i32> = (0..count as i32).map(|i| (i * 37 + 5) % 64).collect();
        let (mut written, mut loaded) = (vec![T::from_int(0); x.len()], vec![T::from_int(0); y.len()]);
        for (i, &value) in y.iter().enumerate() {
            let (r, c) = (index[i / width] as usize, i64::from(column) + (i % width) as i64);
            if r < rows && (0..columns as i64).contains(&c) {
                let place = r * columns + c as usize;
                (loaded[i], written[place]) = (x[place], value);
            }
        }
        let (from, values, places) = (device.upload(&x)?, device.upload(&y)?, device.upload(&index)?);
        let (mut stored, mut out) = (device.zeros::<T>(x.len())?, device.zeros::<T>(y.len())?);
        let left = TensorDesc::new(&from, [rows, columns])?;
        let mut right = TensorDescMut::new(&mut stored, [rows, columns])?;
        let consts = PickedConsts { R: count, N: width, FORM: form };
        consts.call(&places, &left, &values, &mut right, &mut out, column).grid(1).launch(device)?;
        if form == 0 { equal(&out.to_vec()?, &loaded) } else { equal(&stored.to_vec()?, &written) }
    }
    let mut row = Row::new("C96", "test_tma_gather, test_tma_scatter, test_gather_scatter")
        .remarks("any width, any number of rows");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for size in [[64, 128, 8, 32], [64, 64, 32, 64], [48, 100, 16, 128], [64, 8, 4, 8], [16, 40, 64, 16]] {
                for column in [0, 16, -5] {
                    for (form, name) in (0..).zip(["gather", "scatter"]) {
                        let name = format!("{name} {} {size:?} from {column}", $t::NAME);
                        row.case(name, move |device| case::<$t>(device, size, column, form));
                    }
                }
            }
        )*};
    }
    each!(i8 f16 bf16 f32 i32 f64);
    made::add_rows_by_number(&mut row);
    row
}
