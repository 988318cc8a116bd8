//! The rungs of the ladder in the documentation (`tilewright::guide::attention`), whose kernels these are: every rung is a
//! kernel or a launch option, and each changes one thing.

use std::cell::RefCell;

use tilewright::prelude::*;
use tilewright::{View, ViewMut};
use tilewright_bench::data::Input;
use tilewright_bench::product::ladder::{self, Code};
use tilewright_bench::shape::Variant;
use tilewright_bench::stage::Mode;
use tilewright_bench::{Contender, Contest, Failure, How, Stage, Submit, attention_ladder, report};

use super::reference::{self, Size};
use super::{described, fits, output};

#[path = "../../../src/guide/attention/blocks.rs"]
mod blocks;
#[path = "../../../src/guide/attention/causal.rs"]
mod causal;
#[path = "../../../src/guide/attention/divided.rs"]
mod divided;
#[path = "../../../src/guide/attention/edges.rs"]
mod edges;
#[path = "../../../src/guide/attention/online.rs"]
mod online;
#[path = "../../../src/guide/attention/passes.rs"]
mod passes;
#[path = "../../../src/guide/attention/powers.rs"]
mod powers;
#[path = "../../../src/guide/attention/skewed.rs"]
mod skewed;

use blocks::BlocksConsts;
use causal::CausalConsts;
use divided::DividedConsts;
use edges::EdgesConsts;
use online::OnlineConsts;
use passes::PassesConsts;
use powers::PowersConsts;
use skewed::SkewedConsts;

/// Which kernel a rung launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    Passes,
    Online,
    Powers,
    Blocks,
    Edges,
    Divided,
    Skewed,
    Causal,
}

/// Queries, keys, warps, stages.
type Tile = [usize; 4];

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

const RUNGS: [Rung; 11] = [
    rung("1 three passes", Kernel::Passes, [64, 64, 4, 1], [16, 16, 4, 1]),
    rung("2 one pass", Kernel::Online, [64, 64, 4, 1], [16, 16, 4, 1]),
    rung("3 powers of two", Kernel::Powers, [64, 64, 4, 1], [16, 16, 4, 1]),
    rung("4 loads ahead", Kernel::Powers, [64, 64, 4, 3], [16, 16, 4, 3]),
    rung("5 tensor descriptors", Kernel::Blocks, [64, 64, 4, 3], [16, 16, 4, 3]),
    rung("6 masks at edges", Kernel::Edges, [64, 64, 4, 3], [16, 16, 4, 3]),
    rung("7 more queries", Kernel::Edges, [128, 64, 8, 3], [32, 16, 8, 3]),
    rung("8 two groups in turns", Kernel::Divided, [128, 64, 8, 3], [32, 16, 8, 3]),
    rung("9 more keys", Kernel::Divided, [128, 128, 8, 2], [32, 32, 8, 2]),
    rung("10 skewed by hand", Kernel::Skewed, [128, 128, 8, 2], [32, 32, 8, 2]),
    rung("11 no wasted blocks", Kernel::Causal, [128, 128, 8, 2], [32, 16, 8, 2]),
];

/// What everybody is given.
struct Operands<'a> {
    q: View<'a, f16>,
    k: View<'a, f16>,
    v: View<'a, f16>,
    out: ViewMut<'a, f16>,
}

/// Launches a kernel for heads of 64 or 128 elements, with or without the causal mask.
macro_rules! launch {
    ($consts:ident, $tile:expr, $size:expr, $how:expr, ($q:expr, $k:expr, $v:expr, $out:expr)) => {{
        let ([bm, bn, warps, stages], Size { heads, length, d, causal }) = ($tile, $size);
        let consts = $consts { BM: bm, BN: bn, D: d, CAUSAL: causal };
        let call = consts.call($q, $k, $v, $out, length as i32, $size.scale() as f32);
        call.grid((length.div_ceil(bm), heads)).num_warps(warps as u32).num_stages(stages as u32).submit($how)
    }};
}

/// The same through descriptors.
macro_rules! described {
    ($consts:ident, $tile:expr, $size:expr, $how:expr, $operands:expr) => {{
        let Operands { q, k, v, out } = $operands;
        let shape = [$size.heads, $size.length, $size.d];
        let (q, k, v) = (TensorDesc::new(q, shape)?, TensorDesc::new(k, shape)?, TensorDesc::new(v, shape)?);
        let mut out = TensorDescMut::new(out, shape)?;
        launch!($consts, $tile, $size, $how, (&q, &k, &v, &mut out))
    }};
}

impl Rung {
    fn submit(self, tile: Tile, size: Size, how: &How<'_>, operands: Operands<'_>) -> Result<(), Failure> {
        let Operands { q, k, v, out } = operands;
        match self.kernel {
            Kernel::Passes => launch!(PassesConsts, tile, size, how, (q, k, v, out)),
            Kernel::Online => launch!(OnlineConsts, tile, size, how, (q, k, v, out)),
            Kernel::Powers => launch!(PowersConsts, tile, size, how, (q, k, v, out)),
            Kernel::Blocks => described!(BlocksConsts, tile, size, how, Operands { q, k, v, out }),
            Kernel::Edges => described!(EdgesConsts, tile, size, how, Operands { q, k, v, out }),
            Kernel::Divided => described!(DividedConsts, tile, size, how, Operands { q, k, v, out }),
            Kernel::Skewed => described!(SkewedConsts, tile, size, how, Operands { q, k, v, out }),
            Kernel::Causal => described!(CausalConsts, tile, size, how, Operands { q, k, v, out }),
        }
    }
}

/// What the compiler makes of the rungs for this device.
fn codes(device: &Device) -> Result<Vec<Code>, Failure> {
    let size = Size { heads: 1, length: 512, d: 128, causal: false };
    let (x, mut out) = (device.zeros::<f16>(size.len())?, device.zeros::<f16>(size.len())?);
    let mut all = Vec::new();
    for rung in RUNGS {
        let kernels = RefCell::new(Vec::new());
        let (q, k, v) = (x.as_view(), x.as_view(), x.as_view());
        rung.submit(rung.tile, size, &How::Inspect(device, &kernels), Operands { q, k, v, out: out.as_view_mut() })?;
        for kernel in kernels.into_inner() {
            println!("{}: {}", rung.name, kernel.report());
            all.push(Code::of(rung.name, &kernel)?);
        }
    }
    Ok(all)
}

/// Triton's kernel, which writes logarithms of sums as well.
fn triton<'a>(
    stage: &Stage,
    size: Size,
    [q, k, v]: [&Input<f16>; 3],
    out: &tilewright_bench::data::Output<f16>,
    logs: &tilewright_bench::data::Output<f32>,
) -> Result<Contender<'a>, Failure> {
    let mut triton = Contender { name: "triton", configs: Vec::new() };
    let peers = stage.peers_of(("attention", "f16", Variant::Aligned), |entry| {
        let Some(block) = entry.get("BM").filter(|_| fits(entry, size)) else { return Ok(None) };
        let mut arguments = Vec::new();
        for (at, argument) in [q.argument(), k.argument(), v.argument(), out.argument()].into_iter().enumerate() {
            arguments.extend(described(entry, at, argument, size)?);
        }
        use tilewright_bench::cubin::Argument;
        arguments.extend([logs.argument(), Argument::I32(size.length as i32), Argument::F32(size.scale() as f32)]);
        Ok(Some((arguments, [size.length / block, size.heads, 1])))
    })?;
    for (entry, launch) in peers {
        triton.config(entry.config, move |_| launch());
    }
    Ok(triton)
}

fn contest(stage: &mut Stage, size: Size, small: bool) -> Result<(), Failure> {
    let device = stage.device();
    let [q, k, v] = [1, 2, 3].map(|seed| Input::<f16>::normal(&device, seed, size.len(), 0));
    let (q, k, v) = (&q?, &k?, &v?);
    let (rows, logs) = reference::forward(size, [q, k, v])?;
    let out = output::<f16>(&device, size.len(), rows)?;
    let logs = output::<f32>(&device, size.heads * size.length, logs)?;
    let o = &out;
    let mut contenders = vec![triton(stage, size, [q, k, v], &out, &logs)?];
    for rung in RUNGS {
        let tile = if small { rung.small } else { rung.tile };
        let [bm, bn, warps, stages] = tile;
        let mut contender = Contender { name: rung.name, configs: Vec::new() };
        contender.config(format!("BM={bm} BN={bn} warps={warps} stages={stages}"), move |how| {
            let mut o = o.lock();
            rung.submit(tile, size, how, Operands { q: q.view()?, k: k.view()?, v: v.view()?, out: o.view()? })
        });
        contenders.push(contender);
    }
    stage.hold(Contest {
        work: if size.causal { "attention_causal" } else { "attention" },
        shape: format!("{}x{}x{}", size.heads, size.length, size.d),
        dtype: "f16",
        // TFLOP/s in the place of GB/s.
        bytes: size.flops() / 1e3,
        flops: 0.0,
        outputs: vec![&out],
        contenders,
    })
}

/// Holds the contests of the rungs.
pub fn hold(stage: &mut Stage, mode: &Mode) -> Result<(), Failure> {
    let small = |causal| Size { heads: 2, length: 40, d: 64, causal };
    let size = |heads, length, causal| Size { heads, length, d: 128, causal };
    match mode {
        Mode::Check => {
            contest(stage, small(false), true)?;
            contest(stage, small(true), true)
        }
        // Code is the same for every length that 16 divides.
        Mode::Look(_) => {
            contest(stage, size(1, 256, false), false)?;
            contest(stage, size(1, 256, true), false)
        }
        Mode::Time => {
            report::write(attention_ladder::CODE, &ladder::csv(&codes(&stage.device())?))?;
            contest(stage, size(64, 4096, false), false)?;
            contest(stage, size(64, 4096, true), false)?;
            contest(stage, size(16, 16384, false), false)
        }
    }
}
