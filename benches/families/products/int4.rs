//! Few rows by 4-bit weights: the time that it takes to read the weights.

use crate::families::frame::{Library, Row, address, size, tensor};
use std::cell::RefCell;
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Variant;
use tilewright_bench::{Contender, Failure, Stage, Submit};
use tilewright_kernels::products::quantised::{self, Int4, Packing, QuantisedConfig};
use tilewright_kernels::{Context, Tensor, TensorViewMut};

const ROWS: usize = 16;
const GROUP: usize = 128;
/// The most programs that share a tile.
const SPLITS: usize = 16;
/// Words that a program sums which only reads.
const READ: usize = 16_384;

/// Sums the lowest bytes of words.
#[kernel]
fn read_words<const BLOCK: usize, const STEPS: usize>(words: Ptr<i32>, sums: PtrMut<f32>, n: i32) {
    let mut total = zeros::<i32>([BLOCK]);
    for step in 0..STEPS {
        let offsets = (program_id(0) * STEPS + step) * BLOCK + arange(0, BLOCK);
        total += load(words + offsets, mask = offsets < n) & 255;
    }
    store(sums + program_id(0), sum(total, axis = 0) as f32);
}

/// What the products below cannot be faster than: as many bytes are read, and summed.
pub fn reading(stage: &mut Stage) -> Result<(), Failure> {
    for shape in stage.either(SHAPES.to_vec(), vec![[64, 1024]]) {
        let (device, bits) = (stage.device(), bits());
        let n = Weights::size(shape) / 4;
        let words = Input::repeated(&device, n, &bits)?;
        let at = |program: usize| (program * READ..n.min((program + 1) * READ)).map(|at| bits[at % bits.len()] & 255);
        let values = (0..n.div_ceil(READ).min(64)).map(|program| at(program).map(f64::from).sum()).collect();
        let exact = Tolerance::of::<f32>(0.0, 0.0);
        let sums = Output::<f32>::new(&device, n.div_ceil(READ), 0, exact, vec![Segment { at: 0, values }])?;
        let mut all = Contender::ours();
        for (block, warps) in [(2048, 4), (4096, 4), (8192, 4), (4096, 8), (8192, 8), (16_384, 8)] {
            let (words, sums) = (&words, &sums);
            all.config(format!("BLOCK={block} warps={warps}"), move |how| {
                let mut sums = sums.lock();
                let call = ReadWordsConsts { BLOCK: block, STEPS: READ / block };
                call.call(words.view()?, sums.view()?, n as i32).grid(n.div_ceil(READ)).num_warps(warps).submit(how)
            });
        }
        let [columns, k] = shape;
        let row = Row::moving("read_int4", format!("{ROWS}x{columns}x{k}"), "i32", 4 * n);
        row.hold(stage, vec![&sums], vec![all], Library::none(stage))?;
    }
    Ok(())
}

/// Columns and the length of sums: square, and the projections of a gated layer of Llama 2 70B.
const SHAPES: [[usize; 2]; 2] = [[8192, 8192], [57_344, 8192]];

fn bits() -> Vec<i32> {
    (1..=1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) ^ i << 13) as i32).collect()
}

pub fn awq(stage: &mut Stage) -> Result<(), Failure> {
    both(stage, "awq", Packing::Awq)
}

pub fn gptq(stage: &mut Stage) -> Result<(), Failure> {
    both(stage, "gptq", Packing::Gptq)
}

fn both(stage: &mut Stage, work: &'static str, packing: Packing) -> Result<(), Failure> {
    for [n, k] in stage.either(SHAPES.to_vec(), vec![[64, 256]]) {
        one(stage, work, packing, [n, k])?;
    }
    Ok(())
}

/// Packed weights: words of any bits, small scales, zeros of any bits.
struct Weights {
    words: Input<i32>,
    scales: Input<f16>,
    zeros: Input<i32>,
    shape: [usize; 2],
    packing: Packing,
}

impl Weights {
    fn new(device: &Device, [n, k]: [usize; 2], packing: Packing) -> Result<Weights, Failure> {
        let bits = bits();
        let groups = k / GROUP;
        Ok(Weights {
            words: Input::repeated(device, n * k / 8, &bits)?,
            scales: Input::scaled(device, 4, groups * n, 0.02)?,
            zeros: Input::repeated(device, groups * n / 8, &bits[77..])?,
            shape: [n, k],
            packing,
        })
    }

    fn view(&self) -> Result<Int4<'_, f16>, Failure> {
        let [n, k] = self.shape;
        let rows = match self.packing {
            Packing::Awq => [k, n / 8],
            Packing::Gptq => [k / 8, n],
        };
        let zeros = tilewright_kernels::TensorView::new(self.zeros.view()?, [k / GROUP, n / 8])?;
        let words = tilewright_kernels::TensorView::new(self.words.view()?, rows)?;
        Ok(Int4::new(words, tensor(&self.scales, [k / GROUP, n])?, Some(zeros), GROUP, self.packing)?)
    }

    /// Bytes of words, scales and zeros.
    fn size([n, k]: [usize; 2]) -> usize {
        n * k / 2 + k / GROUP * n * 2 + k / GROUP * n / 2
    }
}

fn one(stage: &mut Stage, work: &'static str, packing: Packing, [n, k]: [usize; 2]) -> Result<(), Failure> {
    let device = stage.device();
    let x = Input::<f16>::normal(&device, 1, ROWS * k, 0)?;
    let weights = Weights::new(&device, [n, k], packing)?;
    // What the library unpacks, which its own tests compare with the definition, before it is rounded.
    let plain = quantised::dequantise_int4(&Context::new(&device), &weights.view()?)?;
    let some = n.min(16);
    let mut values = vec![vec![0.0; some]; 2];
    let rows = [x.read(0, k)?, x.read((ROWS - 1) * k, k)?];
    for at in 0..k {
        let row = plain.buffer().slice(at * n..at * n + some)?.to_vec()?;
        let scales = weights.scales.read(at / GROUP * n, some)?;
        let exact = |(w, scale): (&f16, &f64)| if *scale == 0.0 { 0.0 } else { (w.to_f64() / scale).round() * scale };
        let row: Vec<f64> = row.iter().zip(&scales).map(exact).collect();
        for (values, x) in values.iter_mut().zip(&rows) {
            values.iter_mut().zip(&row).for_each(|(sum, w)| *sum += x[at] * w);
        }
    }
    drop(plain);
    let expected = values.into_iter().zip([0, ROWS - 1]).map(|(values, i)| Segment { at: i * n, values }).collect();
    // Triton's kernel of AWQ's words rounds weights to 11 bits, in sums of 8192.
    let arithmetic = if packing == Packing::Awq { 5e-4 } else { 1e-4 };
    let out = Output::<f16>::new(&device, ROWS * n, 0, Tolerance::of::<f16>(arithmetic, 10.0), expected)?;
    let room = SPLITS * ROWS * n;
    let workspace = RefCell::new(Tensor::<f32, 1>::zeros(&device, [room])?);
    let library = Library::new(stage, |cx| {
        let (mut y, mut sums) = (out.lock(), workspace.borrow_mut());
        let y = TensorViewMut::new(y.view()?, [ROWS, n])?;
        Ok(quantised::matmul_into(cx, tensor(&x, [ROWS, k])?, &weights.view()?, y, &mut *sums)?)
    })
    .tried(f16::ELEMENT, &[ROWS, n, k], &{
        let tried = [
            (128, 64, 1, 4, 4),
            (128, 64, 4, 4, 6),
            (128, 128, 4, 4, 4),
            (64, 128, 2, 4, 4),
            (256, 64, 4, 4, 6),
            (256, 128, 1, 4, 3),
            (256, 128, 4, 4, 3),
            (256, 128, 4, 4, 4),
            (128, 64, 8, 4, 4),
        ];
        tried.map(|(bn, bk, splits, num_warps, num_stages)| QuantisedConfig {
            bm: 16,
            bn,
            bk,
            splits,
            num_warps,
            num_stages,
        })
    });
    let peers = if packing == Packing::Awq { triton(stage, &x, &weights, &out, &workspace)? } else { Vec::new() };
    let bytes = Weights::size([n, k]) + 2 * ROWS * (n + k);
    let flops = 2.0 * (ROWS * n) as f64 * k as f64;
    let row = Row::moving(work, format!("{ROWS}x{n}x{k}"), f16::NAME, bytes).computing(flops);
    row.hold(stage, vec![&out], peers, library)
}

/// Triton's kernel in several divisions of the sums, with the one that adds them up.
fn triton<'a>(
    stage: &Stage,
    x: &Input<f16>,
    weights: &Weights,
    out: &Output<f16>,
    workspace: &RefCell<Tensor<f32, 1>>,
) -> Result<Vec<Contender<'a>>, Failure> {
    let [n, k] = weights.shape;
    let mut peer = Contender { name: "triton", configs: Vec::new() };
    if !stage.device().is_cuda() {
        return Ok(Vec::new());
    }
    let sums = address(&workspace.borrow());
    for splits in [1, 4, 8] {
        let pointers =
            [x.argument(), weights.words.argument(), weights.scales.argument(), weights.zeros.argument(), sums];
        let numbers = [ROWS, n, k, GROUP, splits].map(size);
        let arguments: Vec<Argument> = pointers.into_iter().chain(numbers).collect();
        let first = stage.peers(("awq", f16::NAME, Variant::Aligned), arguments, |e| {
            let (bn, bk) = (e.get("BN")?, e.get("BK")?);
            // Whole tiles alone, as the kernel has no other masks.
            (n % bn == 0 && k % (bk * splits) == 0).then_some([n / bn, splits, 1])
        })?;
        let arguments = vec![sums, out.argument(), size(ROWS * n), size(splits)];
        let then = stage.peers(("split_sum", f16::NAME, Variant::Aligned), arguments, |e| {
            Some([(ROWS * n).div_ceil(e.get("BLOCK")?), 1, 1])
        })?;
        let Some((_, then)) = then.into_iter().next() else { continue };
        for (entry, first) in first {
            let then = then.clone();
            peer.config(format!("{} splits={splits}", entry.config), move |_| {
                first()?;
                then()
            });
        }
    }
    Ok(if peer.configs.is_empty() { Vec::new() } else { vec![peer] })
}
