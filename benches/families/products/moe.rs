//! Mixtures of experts: 8 of 64 for each token.

use crate::families::frame::{Library, Row, address, size, tensor};
use std::rc::Rc;
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Variant;
use tilewright_bench::{Contender, Failure, Stage};
use tilewright_kernels::products::grouped::{self, GroupedConfig, Routing, Scaled};
use tilewright_kernels::products::{Activation, fp8 as quantise};
use tilewright_kernels::{Context, Table, Tensor};

const CHOSEN: usize = 8;

/// Tokens, their elements, those between the two products of an expert, and experts.
#[derive(Clone, Copy)]
struct Size {
    tokens: usize,
    hidden: usize,
    inner: usize,
    experts: usize,
}

impl Size {
    /// The experts of OLMoE (Muennighoff and others, 2024).
    fn of(stage: &Stage) -> Size {
        let full = Size { tokens: 4096, hidden: 2048, inner: 1024, experts: 64 };
        stage.either(full, Size { tokens: 5, hidden: 128, inner: 128, experts: 10 })
    }

    fn pairs(self) -> usize {
        self.tokens * CHOSEN
    }

    fn row(self, work: &'static str, dtype: &'static str, bytes: usize) -> Row {
        let Size { tokens, hidden, inner, experts } = self;
        let weights = experts * 3 * hidden * inner * bytes;
        let shape = format!("{tokens}x{hidden}x{inner} {CHOSEN} of {experts}");
        let flops = 6.0 * (self.pairs() * hidden) as f64 * inner as f64;
        Row::moving(work, shape, dtype, weights + 4 * tokens * hidden).computing(flops)
    }
}

/// Tokens and where they go, weights of experts as `[experts, outputs, inputs]`, and the result.
struct Task {
    sizes: Size,
    x: Input<f16>,
    routing: Routing,
    gate_up: Input<f16>,
    down: Input<f16>,
    out: Output<f16>,
}

impl Task {
    /// `error` is what weights and rows are off by, relative to their size.
    fn new(device: &Device, sizes: Size, error: f64) -> Result<Task, Failure> {
        let Size { tokens, hidden, inner, experts } = sizes;
        let cx = Context::new(device);
        let x = Input::<f16>::normal(device, 1, tokens * hidden, 0)?;
        let of = |seed, outputs: usize, inputs: usize| {
            Input::<f16>::scaled(device, seed, experts * outputs * inputs, (inputs as f32).sqrt().recip())
        };
        let (gate_up, down) = (of(2, 2 * inner, hidden)?, of(3, hidden, inner)?);
        let logits = Input::<f32>::normal(device, 4, tokens * experts, 0)?;
        let routing = grouped::route(&cx, tensor(&logits, [tokens, experts])?, CHOSEN, true)?;
        let none = Tolerance { relative: 0.0, absolute: 0.0 };
        let mut task = Task { sizes, x, routing, gate_up, down, out: Output::new(device, 0, 0, none, Vec::new())? };
        let mut expected = Vec::new();
        for token in [0, tokens - 2] {
            expected.push(Segment { at: token * hidden, values: task.result(token)? });
        }
        // Results are sums of products of about a third; each factor of the two products in a row has its error.
        let tolerance = Tolerance { relative: f16::HALF_ULP, absolute: 6.0 * error };
        task.out = Output::new(device, tokens * hidden, 0, tolerance, expected)?;
        Ok(task)
    }

    /// What a token's experts say.
    fn result(&self, token: usize) -> Result<Vec<f64>, Failure> {
        let Size { hidden, inner, .. } = self.sizes;
        let x = self.x.read(token * hidden, hidden)?;
        let pairs = token * CHOSEN..(token + 1) * CHOSEN;
        let experts = self.routing.experts.buffer().slice(pairs.clone())?.to_vec()?;
        let weights = self.routing.weights.buffer().slice(pairs)?.to_vec()?;
        let product = |matrix: &[f64], x: &[f64]| -> Vec<f64> {
            matrix.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
        };
        let mut out = vec![0.0; hidden];
        for (expert, weight) in experts.into_iter().zip(weights) {
            let at = expert as usize * hidden * inner;
            let both = product(&self.gate_up.read(2 * at, 2 * hidden * inner)?, &x);
            let (gate, up) = both.split_at(inner);
            let gated: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            let y = product(&self.down.read(at, hidden * inner)?, &gated);
            out.iter_mut().zip(y).for_each(|(out, y)| *out += f64::from(weight) * y);
        }
        Ok(out)
    }

    /// Tables with other tiles for both products.
    fn tables(&self, stage: &Stage, dtype: tilewright::ElementType, kinds: [usize; 2]) -> Vec<(String, Table)> {
        let Size { hidden, inner, .. } = self.sizes;
        let block = if stage.is_timed() { 128 } else { 16 };
        let first = if kinds[0] == 1 { inner } else { 2 * inner };
        let bk = 128 / dtype.size();
        let tried = [(64, 4, 5), (128, 8, 3), (128, 8, 5), (64, 8, 6)];
        let tables = tried.map(|(bn, num_warps, num_stages)| {
            let config = GroupedConfig { bn, bk, group: 8, num_warps, num_stages };
            let (mut table, device) = (Table::new(), stage.device());
            table.insert(device.name(), dtype, &[block, first, hidden, kinds[0]], config);
            table.insert(device.name(), dtype, &[block, hidden, inner, kinds[1]], config);
            (format!("bn={bn} bk={bk} num_warps={num_warps} num_stages={num_stages}"), table)
        });
        if stage.is_timed() { tables.into() } else { Vec::new() }
    }
}

/// The peer's pairs sorted by expert, each expert's in whole blocks, and the expert of each block; made on the host
/// beforehand, which the library does in each call.
struct Sorted {
    ids: Input<i32>,
    owners: Input<i32>,
    used: Input<i32>,
    padded: usize,
}

impl Sorted {
    fn new(device: &Device, task: &Task, block: usize) -> Result<Sorted, Failure> {
        let experts = task.routing.experts.to_vec()?;
        let (mut ids, mut owners) = (Vec::new(), Vec::new());
        for expert in 0..task.sizes.experts {
            let own = experts.iter().enumerate().filter(|(_, e)| **e as usize == expert).map(|(pair, _)| pair as i32);
            ids.extend(own);
            ids.resize(ids.len().next_multiple_of(block), task.sizes.pairs() as i32);
            owners.resize(ids.len() / block, expert as i32);
        }
        // A peer's kernel is compiled for a size that is divisible by 16.
        let padded = ids.len();
        Ok(Sorted {
            used: Input::of(device, &[padded as i32])?,
            ids: Input::of(device, &ids)?,
            owners: Input::of(device, &owners)?,
            padded,
        })
    }
}

/// A launch of a peer.
type Launch<'a> = Rc<dyn Fn() -> Result<(), Failure> + 'a>;

/// What the peer's kernels leave for each other.
struct Between {
    both: Input<f16>,
    gated: Input<f16>,
    each: Input<f16>,
    sorted: Vec<(usize, Sorted)>,
}

impl Between {
    fn new(device: &Device, task: &Task) -> Result<Between, Failure> {
        let (pairs, Size { hidden, inner, .. }) = (task.sizes.pairs(), task.sizes);
        let of = |len: usize| -> Result<Input<f16>, Failure> { Ok(Input::from_buffer(device.zeros(len)?)) };
        let sorted: Result<Vec<_>, Failure> =
            [64, 128].into_iter().map(|block| Ok((block, Sorted::new(device, task, block)?))).collect();
        Ok(Between {
            both: of(pairs * 2 * inner)?,
            gated: of(pairs * inner)?,
            each: of(pairs * hidden)?,
            sorted: sorted?,
        })
    }
}

/// One of the peer's two products, in each of its configurations.
fn product<'a>(
    stage: &Stage,
    (work, dtype): (&str, &str),
    task: &Task,
    between: &Between,
    [a, b, out, a_scales, b_scales]: [Argument; 5],
    [n, k]: [usize; 2],
) -> Result<Vec<(String, Launch<'a>)>, Failure> {
    let peers = stage.peers_of((work, dtype, Variant::Aligned), |entry| {
        let (Some(bm), Some(bn)) = (entry.get("BM"), entry.get("BN")) else { return Ok(None) };
        let Some((_, sorted)) = between.sorted.iter().find(|(block, _)| *block == bm) else { return Ok(None) };
        let lists = [sorted.ids.argument(), sorted.owners.argument(), sorted.used.argument()];
        let numbers = [n, k, task.sizes.pairs(), sorted.padded].map(size);
        let first = [a, b, out, address(&task.routing.weights)];
        let arguments: Vec<Argument> =
            first.into_iter().chain(lists).chain([a_scales, b_scales]).chain(numbers).collect();
        Ok(Some((arguments, [sorted.padded / bm * n.div_ceil(bn), 1, 1])))
    })?;
    Ok(peers.into_iter().map(|(entry, launch)| (entry.config, launch)).collect())
}

/// A kernel of the peer with one configuration.
fn single<'a>(
    stage: &Stage,
    work: &str,
    arguments: Vec<Argument>,
    grid: impl Fn(&tilewright_bench::cubin::Entry) -> Option<[usize; 3]>,
) -> Result<Option<Launch<'a>>, Failure> {
    let peers = stage.peers((work, f16::NAME, Variant::Aligned), arguments, grid)?;
    Ok(peers.into_iter().next().map(|(_, launch)| launch))
}

/// The peer with each configuration of its products; `before` and `middle` run before the first product and between
/// activation and the second.
fn combined<'a>(
    stage: &Stage,
    task: &Task,
    between: &Between,
    [first, second]: [Vec<(String, Launch<'a>)>; 2],
    [before, middle]: [Option<Launch<'a>>; 2],
) -> Result<Vec<Contender<'a>>, Failure> {
    let Size { tokens, hidden, inner, .. } = task.sizes;
    let arguments = vec![between.both.argument(), between.gated.argument(), size(inner)];
    let silu =
        single(stage, "moe_silu", arguments, |e| Some([task.sizes.pairs(), inner.div_ceil(e.get("BLOCK")?), 1]))?;
    let arguments = vec![between.each.argument(), task.out.argument(), size(hidden)];
    let sum = single(stage, "moe_sum", arguments, |e| Some([tokens, hidden.div_ceil(e.get("BLOCK")?), 1]))?;
    let (Some(silu), Some(sum)) = (silu, sum) else { return Ok(Vec::new()) };
    let mut peer = Contender { name: "triton", configs: Vec::new() };
    let name = |config: &str| {
        config.split(' ').filter(|part| !part.starts_with(['C', 'W', 'S'])).collect::<Vec<_>>().join(" ")
    };
    for (config, up) in first {
        // The same tile for both products.
        let Some((_, down)) = second.iter().find(|(other, _)| name(other) == name(&config)) else { continue };
        let steps: Vec<Launch<'a>> = [before.clone(), Some(up), Some(silu.clone()), middle.clone()]
            .into_iter()
            .chain([Some(down.clone()), Some(sum.clone())])
            .flatten()
            .collect();
        peer.config(name(&config), move |_| steps.iter().try_for_each(|step| step()));
    }
    Ok(if peer.configs.is_empty() { Vec::new() } else { vec![peer] })
}

/// An argument that a kernel does not read.
const NOTHING: Argument = Argument::Address(0);

pub fn f16(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage));
    let Size { tokens, hidden, inner, experts } = sizes;
    let task = Task::new(&device, sizes, 1e-3)?;
    let library = Library::new(stage, |cx| {
        let gate_up = tensor(&task.gate_up, [experts, 2 * inner, hidden])?.transpose(1, 2)?;
        let down = tensor(&task.down, [experts, hidden, inner])?.transpose(1, 2)?;
        let x = tensor(&task.x, [tokens, hidden])?;
        let y = grouped::moe(cx, x, &task.routing, gate_up, down, Activation::Silu)?;
        task.out.give(y.into_buffer());
        Ok(())
    })
    .with_tables(task.tables(stage, f16::ELEMENT, [1, 0]));
    let between = Between::new(&device, &task)?;
    let up = [task.x.argument(), task.gate_up.argument(), between.both.argument(), NOTHING, NOTHING];
    let down = [between.gated.argument(), task.down.argument(), between.each.argument(), NOTHING, NOTHING];
    let products = [
        product(stage, ("moe_up", f16::NAME), &task, &between, up, [2 * inner, hidden])?,
        product(stage, ("moe_down", f16::NAME), &task, &between, down, [hidden, inner])?,
    ];
    let peers = combined(stage, &task, &between, products, [None, None])?;
    sizes.row("moe", f16::NAME, 2).hold(stage, vec![&task.out], peers, library)
}

/// Weights of experts as 8-bit floats with a scale for each 128 by 128, `[experts, outputs, inputs]`.
fn quantised(
    cx: &Context,
    weights: &Input<f16>,
    [experts, outputs, inputs]: [usize; 3],
) -> Result<(Tensor<F8E4M3, 3>, Tensor<f32, 3>), Failure> {
    let (numbers, scales) = quantise::quantise_squares(cx, tensor(weights, [experts * outputs, inputs])?)?;
    let groups = [experts, outputs / 128, inputs / 128];
    Ok((
        Tensor::from_buffer(numbers.into_buffer(), [experts, outputs, inputs])?,
        Tensor::from_buffer(scales.into_buffer(), groups)?,
    ))
}

pub fn fp8(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage));
    let Size { tokens, hidden, inner, experts } = sizes;
    let cx = Context::new(&device);
    // Factors are rounded to 3 bits of fraction, sums of a thousand of them are off by a few percent of their size.
    let task = Task::new(&device, sizes, 0.04)?;
    let (gate_up, gate_up_scales) = quantised(&cx, &task.gate_up, [experts, 2 * inner, hidden])?;
    let (down, down_scales) = quantised(&cx, &task.down, [experts, hidden, inner])?;
    let library = Library::new(stage, |cx| {
        let turned = |weights, scales| -> Result<Scaled<'_>, Error> {
            let (weights, scales): (&Tensor<F8E4M3, 3>, &Tensor<f32, 3>) = (weights, scales);
            Ok(Scaled { weights: weights.view().transpose(1, 2)?, scales: scales.view().transpose(1, 2)? })
        };
        let (gate_up, down) = (turned(&gate_up, &gate_up_scales)?, turned(&down, &down_scales)?);
        let x = tensor(&task.x, [tokens, hidden])?;
        let y = grouped::moe_fp8(cx, x, &task.routing, gate_up, down, Activation::Silu)?;
        task.out.give(y.into_buffer());
        Ok(())
    })
    .with_tables(task.tables(stage, F8E4M3::ELEMENT, [2, 2]));
    let between = Between::new(&device, &task)?;
    let rows = |count: usize, columns: usize| -> Result<_, Failure> {
        let numbers = Input::from_buffer(device.zeros::<F8E4M3>(count * columns)?);
        Ok((numbers, Input::from_buffer(device.zeros::<f32>(count * columns / 128)?)))
    };
    let ((x, x_scales), (gated, gated_scales)) = (rows(tokens, hidden)?, rows(sizes.pairs(), inner)?);
    let smaller = |from: &Input<f16>, to: &Input<F8E4M3>, scales: &Input<f32>| {
        let groups = from.len() / 128;
        let arguments = vec![from.argument(), to.argument(), scales.argument(), size(groups)];
        single(stage, "fp8_quantise", arguments, |e| Some([groups.div_ceil(e.get("ROWS")?), 1, 1]))
    };
    let around = [smaller(&task.x, &x, &x_scales)?, smaller(&between.gated, &gated, &gated_scales)?];
    let of = address(&gate_up);
    let up = [x.argument(), of, between.both.argument(), x_scales.argument(), address(&gate_up_scales)];
    let of = address(&down);
    let then = [gated.argument(), of, between.each.argument(), gated_scales.argument(), address(&down_scales)];
    let products = [
        product(stage, ("moe_up", F8E4M3::NAME), &task, &between, up, [2 * inner, hidden])?,
        product(stage, ("moe_down", F8E4M3::NAME), &task, &between, then, [hidden, inner])?,
    ];
    let peers = combined(stage, &task, &between, products, around)?;
    sizes.row("moe_fp8", F8E4M3::NAME, 1).hold(stage, vec![&task.out], peers, library)
}
