//! The rungs of the ladder in the documentation (`tilewright::guide::matmul`), whose kernels these are: every rung is
//! a kernel or a launch option, and each changes one thing.

use std::cell::RefCell;

use tilewright::prelude::*;
use tilewright_bench::product::bench::Bench;
use tilewright_bench::product::ladder::{self, Code};
use tilewright_bench::product::{Contender, Group, Operands, Product};
use tilewright_bench::stage::Mode;
use tilewright_bench::{Failure, How, Submit, report};

use super::tile::{Tile, tile};

#[path = "../../../src/guide/matmul/blocks.rs"]
mod blocks;
#[path = "../../../src/guide/matmul/grouped.rs"]
mod grouped;
#[path = "../../../src/guide/matmul/persistent.rs"]
mod persistent;
#[path = "../../../src/guide/matmul/plain.rs"]
mod plain;
#[path = "../../../src/guide/matmul/scalar.rs"]
mod scalar;
#[path = "../../../src/guide/matmul/sums.rs"]
mod sums;

use blocks::BlocksConsts;
use grouped::GroupedConsts;
use persistent::PersistentConsts;
use plain::PlainConsts;
use scalar::ScalarConsts;
use sums::SumsConsts;

/// Which kernel a rung launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    Sums,
    Scalar,
    Plain,
    Grouped,
    Blocks,
    Persistent,
}

/// A step of the ladder.
#[derive(Clone, Copy, Debug)]
struct Rung {
    /// Its number and its idea.
    name: &'static str,
    kernel: Kernel,
    tile: Tile,
    /// The same at sizes that an interpreter can do.
    small: Tile,
}

const fn rung(name: &'static str, kernel: Kernel, tile: Tile, small: Tile) -> Rung {
    Rung { name, kernel, tile, small }
}

const RUNGS: [Rung; 10] = [
    rung("1 multiply and sum", Kernel::Sums, tile(16, 32, 16, 1, 4), tile(16, 16, 8, 1, 4)),
    rung("2 `dot` in f32", Kernel::Scalar, tile(128, 128, 16, 1, 8), tile(16, 16, 8, 1, 4)),
    rung("3 tensor cores", Kernel::Plain, tile(64, 64, 64, 1, 2), tile(32, 32, 16, 1, 2)),
    rung("4 loads ahead", Kernel::Plain, tile(64, 64, 64, 4, 2), tile(32, 32, 16, 3, 2)),
    rung("5 grouped order", Kernel::Grouped, tile(64, 64, 64, 4, 2), tile(32, 32, 16, 3, 2)),
    rung("6 a warp group", Kernel::Grouped, tile(64, 64, 64, 4, 4), tile(64, 32, 16, 3, 4)),
    rung("7 a large tile", Kernel::Grouped, tile(128, 256, 64, 4, 8), tile(64, 64, 16, 3, 8)),
    rung("8 tensor descriptors", Kernel::Blocks, tile(128, 256, 64, 4, 8), tile(64, 64, 16, 3, 8)),
    rung("9 programs that stay", Kernel::Persistent, tile(128, 256, 64, 4, 8), tile(64, 64, 16, 3, 8)),
    rung("10 two teams in turns", Kernel::Persistent, tile(128, 128, 64, 6, 4), tile(64, 32, 16, 3, 4)),
];

/// The products of the ladder: one that the L2 cache holds, one that it does not, and one with little to multiply
/// between two stores.
const FULL: [Product; 3] = [
    Product::new(Group::Large, 4096, 4096, 4096),
    Product::new(Group::Large, 8192, 8192, 8192),
    Product::new(Group::Large, 8192, 8192, 512),
];
const CHECKED: [Product; 1] = [Product::new(Group::Large, 65, 47, 100)];

/// Launches a kernel of pointers, with axes of the grid for rows and columns.
macro_rules! plain {
    ($consts:ident, $tile:expr, $operands:expr, $product:expr, $how:expr) => {{
        let (Product { m, n, k, .. }, Tile { bm, bn, bk, stages, warps, .. }) = ($product, $tile);
        let Operands { a, b, c } = $operands;
        let call = $consts { BM: bm, BN: bn, BK: bk }.call(*a, *b, c.reborrow(), m as i32, n as i32, k as i32);
        call.grid((m.div_ceil(bm), n.div_ceil(bn))).num_warps(warps).num_stages(stages).submit($how)
    }};
}

/// Launches a kernel of descriptors.
macro_rules! blocks {
    ($consts:ident, $tile:expr, $operands:expr, $product:expr, $programs:expr, $how:expr) => {{
        let (Product { m, n, k, .. }, Tile { bm, bn, bk, stages, warps, group, .. }) = ($product, $tile);
        let (a, b) = (TensorDesc::new($operands.a, [m, k])?, TensorDesc::new($operands.b, [k, n])?);
        let mut c = TensorDescMut::new($operands.c.reborrow(), [m, n])?;
        let consts = $consts { BM: bm, BN: bn, BK: bk, GROUP: group };
        let call = consts.call(&a, &b, &mut c, m as i32, n as i32, k as i32).grid($programs);
        call.num_warps(warps).num_stages(stages).submit($how)
    }};
}

impl Rung {
    fn submit(
        self,
        tile: Tile,
        product: Product,
        processors: usize,
        how: &How<'_>,
        operands: &mut Operands<'_, f16>,
    ) -> Result<(), Failure> {
        let programs = tile.programs(&product);
        match self.kernel {
            Kernel::Sums => plain!(SumsConsts, tile, operands, product, how),
            Kernel::Scalar => plain!(ScalarConsts, tile, operands, product, how),
            Kernel::Plain => plain!(PlainConsts, tile, operands, product, how),
            Kernel::Grouped => {
                let (Product { m, n, k, .. }, Tile { bm, bn, bk, stages, warps, group, .. }) = (product, tile);
                let Operands { a, b, c } = operands;
                let consts = GroupedConsts { BM: bm, BN: bn, BK: bk, GROUP: group };
                let call = consts.call(*a, *b, c.reborrow(), m as i32, n as i32, k as i32).grid(programs);
                call.num_warps(warps).num_stages(stages).submit(how)
            }
            Kernel::Blocks => blocks!(BlocksConsts, tile, operands, product, programs, how),
            Kernel::Persistent => {
                blocks!(PersistentConsts, tile, operands, product, programs.min(processors), how)
            }
        }
    }
}

/// What the compiler makes of the rungs for this device.
fn codes(bench: &Bench) -> Result<Vec<Code>, Failure> {
    let (device, product) = (bench.device(), FULL[0]);
    let [a, b, c] = product.lens();
    let (a, b, mut c) = (device.zeros::<f16>(a)?, device.zeros::<f16>(b)?, device.zeros::<f16>(c)?);
    let mut all = Vec::new();
    for rung in RUNGS {
        let mut operands = Operands { a: a.as_view(), b: b.as_view(), c: c.as_view_mut() };
        let kernels = RefCell::new(Vec::new());
        rung.submit(rung.tile, product, bench.processors(), &How::Inspect(device, &kernels), &mut operands)?;
        for kernel in kernels.into_inner() {
            println!("{}: {}", rung.name, kernel.report());
            all.push(Code::of(rung.name, &kernel)?);
        }
    }
    Ok(all)
}

/// Holds the contests of the rungs.
pub fn hold(bench: &mut Bench) -> Result<(), Failure> {
    let (mode, processors) = (bench.mode().clone(), bench.processors());
    if mode == Mode::Time {
        report::write(ladder::CODE, &ladder::csv(&codes(bench)?))?;
    }
    let products = if mode == Mode::Check { CHECKED.to_vec() } else { FULL.to_vec() };
    bench.hold_all::<f16>(&products, |product| {
        let (product, check) = (*product, mode == Mode::Check);
        let contender = |rung: Rung| {
            let tile = if check { rung.small } else { rung.tile };
            let mut contender = Contender::new(rung.name);
            contender
                .config(tile.to_string(), move |how, operands| rung.submit(tile, product, processors, how, operands));
            contender
        };
        Ok(RUNGS.map(contender).into())
    })
}
