//! Contests of attention.

pub mod ladder;
mod reference;

use reference::{Rows, Size, Upstream};
use tilewright::prelude::*;
use tilewright_bench::cubin::{Argument, Entry};
use tilewright_bench::data::{Input, Output, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Variant;
use tilewright_bench::tensor_map::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage};
use tilewright_kernels::attention::{self, Attention, BackwardConfig, ForwardConfig, Saved};
use tilewright_kernels::{Context, Table, TensorView, TensorViewMut};

/// Queries, keys, warps, stages, programs per multiprocessor or 0 for one per block of queries.
type Forward = [usize; 5];
/// How gradients are computed.
#[derive(Clone, Copy)]
enum Backward {
    /// Queries and keys of programs for keys, queries and keys of those for queries, stages.
    Two([usize; 5]),
    /// Queries, keys, warps, stages of one kernel.
    Fused([usize; 4]),
}

impl Backward {
    fn config(self) -> BackwardConfig {
        let ([keys_block_q, keys_block_k, queries_block_q, queries_block_k], num_warps, num_stages, fused) = match self
        {
            Backward::Two([a, b, c, d, stages]) => ([a, b, c, d], 8, stages, 0),
            Backward::Fused([q, k, warps, stages]) => ([q, k, q, k], warps, stages, 1),
        };
        BackwardConfig { keys_block_q, keys_block_k, queries_block_q, queries_block_k, num_warps, num_stages, fused }
    }

    fn name(self) -> String {
        match self {
            Backward::Two([a, b, c, d, stages]) => format!("{a}x{b} {c}x{d} stages={stages}"),
            Backward::Fused([q, k, warps, stages]) => format!("fused {q}x{k} warps={warps} stages={stages}"),
        }
    }
}

fn forward_configs(d: usize) -> &'static [Forward] {
    match d {
        64 => &[[128, 128, 8, 3, 0], [128, 128, 8, 3, 1], [64, 128, 4, 2, 0], [64, 128, 4, 2, 2], [64, 128, 4, 3, 2]],
        _ => &[[128, 128, 8, 2, 0], [128, 128, 8, 2, 1], [128, 64, 8, 3, 1]],
    }
}

fn backward_configs(d: usize) -> &'static [Backward] {
    use Backward::{Fused, Two};
    match d {
        64 => &[
            Fused([64, 128, 8, 2]),
            Fused([64, 128, 8, 3]),
            Fused([64, 64, 4, 2]),
            Fused([128, 64, 4, 2]),
            Two([64, 128, 128, 128, 2]),
            Two([64, 128, 128, 64, 2]),
            Two([64, 128, 128, 64, 3]),
        ],
        _ => &[
            Fused([64, 128, 8, 2]),
            Fused([64, 64, 4, 2]),
            Two([64, 128, 128, 64, 2]),
            Two([32, 128, 128, 64, 2]),
            Two([32, 128, 128, 32, 2]),
        ],
    }
}

/// A buffer as `[1, heads, length, d]`.
fn shape(size: Size) -> [usize; 4] {
    [1, size.heads, size.length, size.d]
}

fn options(size: Size) -> Attention {
    if size.causal { Attention::default().causal() } else { Attention::default() }
}

/// The table that says this configuration for the contest's size.
fn context<T: Element, C: tilewright_kernels::config::Config>(device: &Device, size: Size, config: C) -> Context {
    let mut table = Table::new();
    table.insert(device.name(), T::ELEMENT, &[size.d, size.length, size.length], config);
    Context::new(device).with_table(table)
}

/// How an output may differ from the rows of a reference.
fn output<T: Element>(device: &Device, len: usize, rows: Rows) -> Result<Output<T>, Error> {
    let tolerance = Tolerance { relative: T::HALF_ULP, absolute: rows.error };
    Output::new(device, len, 0, tolerance, rows.segments)
}

/// The arguments of a descriptor of all rows.
fn described(entry: &Entry, at: usize, argument: Argument, size: Size) -> Result<[Argument; 5], Failure> {
    let (Argument::Address(address), Some(encoding)) = (argument, entry.descriptors.get(at)) else {
        return Err(format!("{} has no descriptor {at}", entry.config).into());
    };
    let (rows, columns) = (size.heads * size.length, size.d);
    Ok(encoding.arguments(Matrix { address, rows, columns, size: 2 })?)
}

/// Whether a kernel of Triton's was compiled for this contest.
fn fits(entry: &Entry, size: Size) -> bool {
    entry.get("D") == Some(size.d) && entry.get("CAUSAL") == Some(usize::from(size.causal))
}

fn name(work: &'static str, causal: bool) -> &'static str {
    match (work, causal) {
        ("attention", true) => "attention_causal",
        ("attention_backward", true) => "attention_backward_causal",
        _ => work,
    }
}

fn forward<T: Element>(stage: &mut Stage, size: Size) -> Result<(), Failure> {
    let work = name("attention", size.causal);
    if !stage.wants(work) {
        return Ok(());
    }
    let device = stage.device();
    let [q, k, v] = [1, 2, 3].map(|seed| Input::<T>::normal(&device, seed, size.len(), 0));
    let (q, k, v) = (&q?, &k?, &v?);
    let (rows, logs) = reference::forward(size, [q, k, v])?;
    let out = output::<T>(&device, size.len(), rows)?;
    let lse = output::<f32>(&device, size.heads * size.length, logs)?;
    let (o, l) = (&out, &lse);

    let mut ours = Contender::ours();
    for &[block_q, block_k, num_warps, num_stages, programs] in forward_configs(size.d) {
        let config = ForwardConfig { block_q, block_k, num_warps, num_stages, programs };
        let cx = context::<T, _>(&device, size, config);
        ours.config(
            format!("BM={block_q} BN={block_k} warps={num_warps} stages={num_stages} programs={programs}"),
            move |_| {
                let (mut o, mut l) = (o.lock(), l.lock());
                let [q, k, v] = [q, k, v].map(|x| TensorView::new(x.view()?, shape(size)));
                let to = TensorViewMut::new(o.view()?, shape(size))?;
                let lse = TensorViewMut::new(l.view()?, [1, size.heads, size.length])?;
                Ok(attention::forward_into(&cx, q?, k?, v?, None, &options(size), to, Some(lse))?)
            },
        );
    }
    let mut triton = Contender { name: "triton", configs: Vec::new() };
    let peers = stage.peers_of(("attention", T::NAME, Variant::Aligned), |entry| {
        let Some(block) = entry.get("BM").filter(|_| fits(entry, size)) else { return Ok(None) };
        let mut arguments = Vec::new();
        for (at, argument) in [q.argument(), k.argument(), v.argument(), out.argument()].into_iter().enumerate() {
            arguments.extend(described(entry, at, argument, size)?);
        }
        arguments.extend([lse.argument(), Argument::I32(size.length as i32), Argument::F32(size.scale() as f32)]);
        Ok(Some((arguments, [size.length / block, size.heads, 1])))
    })?;
    for (entry, launch) in peers {
        triton.config(entry.config, move |_| launch());
    }
    stage.hold(Contest {
        work,
        shape: format!("{}x{}x{}", size.heads, size.length, size.d),
        dtype: T::NAME,
        // TFLOP/s in the place of GB/s.
        bytes: size.flops() / 1e3,
        flops: 0.0,
        outputs: vec![&out, &lse],
        contenders: vec![triton, ours],
    })
}

/// What a forward pass gave.
struct Passed<T: Element> {
    out: Input<T>,
    lse: Input<f32>,
}

impl<T: Element> Passed<T> {
    fn new(device: &Device, size: Size, x: [&Input<T>; 3]) -> Result<Self, Failure> {
        let [q, k, v] = x.map(|x| TensorView::new(x.view()?, shape(size)));
        let (out, lse) = attention::forward(&Context::new(device), q?, k?, v?, &options(size))?;
        Ok(Passed { out: Input::from_buffer(out.into_buffer()), lse: Input::from_buffer(lse.into_buffer()) })
    }
}

fn backward<T: Element>(stage: &mut Stage, size: Size) -> Result<(), Failure> {
    let work = name("attention_backward", size.causal);
    if !stage.wants(work) {
        return Ok(());
    }
    let device = stage.device();
    let [q, k, v, dout] = [1, 2, 3, 4].map(|seed| Input::<T>::normal(&device, seed, size.len(), 0));
    let (q, k, v, dout) = (&q?, &k?, &v?, &dout?);
    let passed = Passed::new(&device, size, [q, k, v])?;
    let gradients = reference::backward(size, [q, k, v], |head| {
        let (len, rows) = (size.length * size.d, size.length);
        let (out, dout) = (passed.out.read(head * len, len)?, dout.read(head * len, len)?);
        Ok(Upstream { out, lse: passed.lse.read(head * rows, rows)?, dout })
    })?;
    let [dq, dk, dv] = gradients.map(|rows| output::<T>(&device, size.len(), rows));
    let (dq, dk, dv) = (&dq?, &dk?, &dv?);
    // Sums of gradients of queries too, for one kernel.
    let rows = 2 + size.d.next_multiple_of(4);
    let workspace = std::cell::RefCell::new(device.zeros::<f32>(rows * size.heads * size.length)?);
    let (workspace, passed) = (&workspace, &passed);

    let mut ours = Contender::ours();
    for &backward in backward_configs(size.d) {
        let cx = context::<T, _>(&device, size, backward.config());
        ours.config(backward.name(), move |_| {
            let rows = [1, size.heads, size.length];
            let saved = Saved {
                q: TensorView::new(q.view()?, shape(size))?,
                k: TensorView::new(k.view()?, shape(size))?,
                v: TensorView::new(v.view()?, shape(size))?,
                bias: None,
                out: TensorView::new(passed.out.view()?, shape(size))?,
                lse: TensorView::new(passed.lse.view()?, rows)?,
                dout: TensorView::new(dout.view()?, shape(size))?,
                dlse: None,
            };
            let (mut dq, mut dk, mut dv) = (dq.lock(), dk.lock(), dv.lock());
            let mut workspace = workspace.borrow_mut();
            let workspace =
                TensorViewMut::new(&mut *workspace, [2 + size.d.next_multiple_of(4), 1, size.heads, size.length])?;
            let to = |x| TensorViewMut::new(x, shape(size));
            let (dq, dk, dv) = (to(dq.view()?)?, to(dk.view()?)?, to(dv.view()?)?);
            Ok(attention::backward_into(&cx, saved, &options(size), workspace, dq, dk, dv)?)
        });
    }
    let triton = triton_backward(stage, size, [q, k, v, dout], passed, [dq, dk, dv], workspace)?;
    stage.hold(Contest {
        work,
        shape: format!("{}x{}x{}", size.heads, size.length, size.d),
        dtype: T::NAME,
        bytes: 2.5 * size.flops() / 1e3,
        flops: 0.0,
        outputs: vec![dq, dk, dv],
        contenders: vec![triton, ours],
    })
}

/// Triton's two kernels, one after the other.
fn triton_backward<'a, T: Element>(
    stage: &Stage,
    size: Size,
    [q, k, v, dout]: [&Input<T>; 4],
    passed: &Passed<T>,
    [dq, dk, dv]: [&Output<T>; 3],
    workspace: &std::cell::RefCell<Buffer<f32>>,
) -> Result<Contender<'a>, Failure> {
    let mut triton = Contender { name: "triton", configs: Vec::new() };
    if !stage.device().is_cuda() {
        return Ok(triton);
    }
    let logs = workspace.borrow().raw().address.get();
    let deltas = logs + (size.heads * size.length * size_of::<f32>()) as u64;
    let (logs, deltas) = (Argument::Address(logs), Argument::Address(deltas));
    let (length, scale) = (Argument::I32(size.length as i32), Argument::F32(size.scale() as f32));
    let arguments = vec![passed.out.argument(), dout.argument(), passed.lse.argument(), logs, deltas, length];
    let prepare = stage.peers(("attention_prepare", T::NAME, Variant::Aligned), arguments, |entry| {
        let block = entry.get("BM").filter(|_| entry.get("D") == Some(size.d))?;
        Some([size.length / block, size.heads, 1])
    })?;
    let Some((_, prepare)) = prepare.into_iter().next() else { return Ok(triton) };
    let inputs = [q.argument(), k.argument(), v.argument(), dout.argument()];
    let outputs = [dq.argument(), dk.argument(), dv.argument(), logs, deltas, length, scale];
    let arguments = inputs.into_iter().chain(outputs).collect();
    let peers = stage.peers(("attention_backward", T::NAME, Variant::Aligned), arguments, |entry| {
        let block = entry.get("BN1").filter(|_| fits(entry, size))?;
        Some([size.length / block, size.heads, 1])
    })?;
    for (entry, launch) in peers {
        let prepare = prepare.clone();
        triton.config(entry.config, move |_| {
            prepare()?;
            launch()
        });
    }
    Ok(triton)
}

fn both<T: Element>(stage: &mut Stage, size: Size) -> Result<(), Failure> {
    forward::<T>(stage, size)?;
    backward::<T>(stage, size)
}

/// All contests; at full size if they are timed.
pub fn all(stage: &mut Stage, full: bool) -> Result<(), Failure> {
    if !full && !stage.device().is_cuda() {
        let small = Size { heads: 2, length: 40, d: 64, causal: false };
        both::<f16>(stage, Size { causal: true, ..small })?;
        return both::<bf16>(stage, Size { heads: 1, d: 128, ..small });
    }
    // Triton's kernels take whole blocks.
    let sizes = if full { vec![(128, 4096), (32, 16384)] } else { vec![(2, 512)] };
    for (heads, length) in sizes {
        for (d, causal) in [(64, false), (64, true), (128, false), (128, true)] {
            let size = Size { heads, length, d, causal };
            both::<f16>(stage, size)?;
            both::<bf16>(stage, size)?;
        }
    }
    Ok(())
}
