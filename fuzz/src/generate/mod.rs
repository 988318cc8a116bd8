//! Random kernels of the whole language, valid by construction.
//!
//! [`generate`] makes a [`Case`] of a seed: a bound kernel, how it is compiled, and its launch. Each group of features is
//! a file: [`elementwise`], [`shape`], [`tiles`], [`memory`], [`control`], [`folds`], [`maps`], [`products`], [`descriptors`], [`atomics`].
//! They build through a [`writer::Writer`], which knows of every value whether its bits are fixed by the language (see
//! [`crate::facts`]) and appends nothing else. So every way to run the kernel must leave the same bits.
//!
//! ```
//! use tilewright_fuzz::generate::generate;
//! let (case, _) = generate(7);
//! assert_eq!(case.text(), generate(7).0.text());
//! ```

pub mod atomics;
pub mod control;
pub mod descriptors;
pub mod elementwise;
pub mod features;
pub mod folds;
pub mod maps;
pub mod memory;
pub mod products;
pub mod scaled;
pub mod shape;
pub mod tiles;
pub mod writer;

use kernel_codegen::{Checks, Options, Target, TensorCopies};
use kernel_core::edit::compact;
use kernel_core::ir::{Bound, ControlOp, DType, ValueId};

use crate::case::Case;
use crate::random::Random;
use features::{Feature, Features};
use writer::Writer;

/// Dtypes of tiles, by how often they are wanted.
pub fn some_dtype(random: &mut Random) -> DType {
    let common = [DType::I32, DType::I32, DType::F32, DType::F32, DType::F16, DType::BF16, DType::Bool];
    if random.chance(75) { random.pick(&common) } else { random.pick(&DType::ALL) }
}

/// Appends some random steps.
pub fn steps(w: &mut Writer, depth: u32, least: usize, most: usize) {
    for _ in 0..w.random.range(least as i64, most as i64) {
        // What does not fit is left out. A loop that cannot be finished leaves operations that no region lists.
        let _fits = step(w, depth);
    }
}

/// One random step; `None` if what was chosen does not fit.
fn step(w: &mut Writer, depth: u32) -> Option<()> {
    let nests = depth < control::MAX_DEPTH;
    match w.random.below(if nests { 40 } else { 31 }) {
        0..10 => elementwise::step(w).map(drop_id),
        10..15 => shape::step(w).map(drop_id),
        15..19 => memory::load_step(w).map(drop_id),
        19..22 => folds::step(w),
        22 => tiles::step(w).map(drop_id),
        23..26 => memory::in_place(w),
        26 | 27 => atomics::step(w),
        28 => descriptors::step(w),
        29 if w.random.chance(30) => {
            let plan = products::plan(w, false);
            products::single(w, &plan).map(drop_id)
        }
        29 => elementwise::step(w).map(drop_id),
        30 => maps::step(w),
        31..35 => control::repeat(w, depth),
        35..39 => control::branch(w, depth),
        _ => control::count(w, depth),
    }
}

fn drop_id(_: ValueId) {}

/// Shapes that the kernel's tiles have by preference.
fn shapes(random: &mut Random, room: i64) -> Vec<Vec<i64>> {
    let mut shapes = Vec::new();
    for _ in 0..2 {
        let mut left = room >> random.below(5);
        let rank = random.pick(&[1, 1, 2, 2, 2, 3]);
        let mut shape = Vec::new();
        for axis in 0..rank {
            let size = if axis + 1 == rank { left } else { 1 << random.below(left.ilog2() as usize + 1) };
            shape.push(size);
            left /= size;
        }
        shapes.push(shape);
    }
    shapes
}

/// The target and the options that the kernel is compiled with.
fn setting(random: &mut Random) -> (Target, Options) {
    let targets = [Target::sm_90a(), Target::sm_90a(), Target::sm_80(), Target::sm_89(), Target::sm_90()];
    let target = random.pick(&targets);
    let copies = [TensorCopies::NearProducts, TensorCopies::NearProducts, TensorCopies::Always, TensorCopies::Never];
    let options = Options {
        num_warps: random.pick(&[1, 1, 1, 2, 2, 2, 4, 4, 4, 4, 4, 8, 8, 8, 16, 16, 32]),
        num_stages: random.pick(&[1, 2, 3, 3, 4]),
        checks: if random.chance(75) { Checks::AtLaunch } else { Checks::EveryAccess },
        tensor_copies: random.pick(&copies),
        ..Options::default()
    };
    (target, options)
}

/// The product that stands in the middle of a kernel of products.
fn central_product(w: &mut Writer, large: bool) {
    let plan = products::plan(w, large);
    let [m, n, _] = plan.sizes;
    // Other steps work on tiles of the product's shape.
    w.shapes[0] = vec![m, n];
    w.room = w.room.max(m * n);
    let done = match w.random.below(10) {
        0 if w.random.chance(60) => scaled::single(w).map(drop_id),
        0 | 1 => products::single(w, &plan).map(drop_id),
        2 => products::persistent(w, &plan),
        3 | 4 if large => products::persistent(w, &plan),
        3..6 => products::accumulate(w, &plan),
        _ => products::attention(w, &plan),
    };
    if done.is_none() && !w.features.contains(Feature::Product) {
        let _fits = products::single(w, &plan);
    }
}

/// Stores what the kernel has computed last.
fn outputs(w: &mut Writer) {
    let count = w.random.range(1, 4) as usize;
    let mut latest: Vec<ValueId> = Vec::new();
    for _ in 0..count {
        if let Some(value) = w.find(|_, _| true)
            && !latest.contains(&value)
        {
            latest.push(value);
        }
    }
    if let Some(&last) = w.pool.last()
        && !latest.contains(&last)
    {
        latest.push(last);
    }
    for value in latest {
        match w.shape(value).is_empty() || w.random.chance(88) {
            true => memory::store_output(w, value, None),
            false => descriptors::store_value(w, value).unwrap_or(()),
        }
    }
    if w.random.chance(12) {
        elementwise::rough(w).unwrap_or(());
    }
}

/// The case of a seed, with what its kernel has.
pub fn generate(seed: u64) -> (Case, Features) {
    let mut random = Random::new(seed);
    let (target, mut options) = setting(&mut random);
    let grid = random.pick(&[1, 1, 2, 2, 3]);
    let mut w = Writer::new(random, grid);
    w.room = w.random.pick(&[32, 64, 64, 128, 128, 256, 512]);
    w.shapes = shapes(&mut w.random, w.room);
    let multiplies = w.random.chance(40);
    // Products of four warps are dear to run: one in fourteen kernels.
    let large = multiplies && w.random.chance(18);
    let target = if large && w.random.chance(90) { Target::sm_90a() } else { target };
    if large {
        options.num_warps = w.random.pick(&[4, 4, 8]);
    }
    if options.num_warps >= 8 {
        w.has(Feature::ManyWarps);
    }
    let start = w.some_tile();
    w.keep(start);
    match multiplies {
        true => {
            steps(&mut w, control::MAX_DEPTH - 1, 0, 2);
            central_product(&mut w, large);
            steps(&mut w, control::MAX_DEPTH - 1, 0, 3);
        }
        false => steps(&mut w, 0, 3, 9),
    }
    outputs(&mut w);
    w.raw(ControlOp::Return, &[], &[]).expect("the end of the kernel");
    let features = w.features;
    let Writer { mut func, inputs, scalars, .. } = w;
    compact(&mut func);
    let kernel = Bound::new(func).expect("the kernel is bound");
    (Case { kernel, inputs, scalars, grid, target, options }, features)
}
