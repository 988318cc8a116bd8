//! 4-bit integers with a scale and a zero per group.

use super::kernels::{Int4ProductConsts, awq_shift};
use super::launch::{Launch, Packed, QuantisedConfig, TALL, contiguous};
use super::unpack::int4_number;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// How 4-bit weights are packed into `i32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// A word holds 8 columns of a row, those of even numbers first: column `j` is at bit `4 * (j % 2 * 4 + j % 8 / 2)`. Zeros
    /// are packed alike (Lin and others, "AWQ", 2023).
    Awq,
    /// A word holds 8 rows of a column, row `i` at bit `4 * (i % 8)`. A word of zeros holds those of 8 columns, less one
    /// each, column `j` at bit `4 * (j % 8)` (Frantar and others, "GPTQ", 2022). Rows are in the order of their groups.
    Gptq,
}

/// Weights `[k, n]` in 4 bits: `(number - zero) * scale`, with a zero and a scale for each `group` rows of a column.
#[derive(Debug, Clone, Copy)]
pub struct Int4<'a, F: Float> {
    words: TensorView<'a, i32, 2>,
    scales: TensorView<'a, F, 2>,
    zeros: Option<TensorView<'a, i32, 2>>,
    packing: Packing,
    /// The length of sums and the columns.
    shape: [usize; 2],
    group: usize,
}

impl<'a, F: Float> Int4<'a, F> {
    /// Packed weights.
    ///
    /// # Shapes
    ///
    /// | tensor | AWQ | GPTQ |
    /// |---|---|---|
    /// | `words` | `[k, n / 8]` | `[k / 8, n]` |
    /// | `scales` | `[ceil(k / group), n]` | the same |
    /// | `zeros` | `[ceil(k / group), n / 8]` | the same |
    ///
    /// Without zeros each is 8. `group` is a multiple of 16, or at least `k`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if shapes do not fit or tensors have gaps.
    pub fn new(
        words: impl Into<TensorView<'a, i32, 2>>,
        scales: impl Into<TensorView<'a, F, 2>>,
        zeros: Option<TensorView<'a, i32, 2>>,
        group: usize,
        packing: Packing,
    ) -> Result<Self> {
        let (words, scales) = (words.into(), scales.into());
        let [rows, columns] = words.shape();
        let shape = match packing {
            Packing::Awq => [rows, columns.saturating_mul(8)],
            Packing::Gptq => [rows.saturating_mul(8), columns],
        };
        let [k, n] = shape;
        if !n.is_multiple_of(8) {
            return Err(check::invalid("words", format!("has {n} columns"), "columns are a multiple of 8"));
        }
        if group == 0 || !group.is_multiple_of(16) && group < k {
            let problem = format!("has groups of {group} rows");
            return Err(check::invalid("scales", problem, "groups are multiples of 16, or all rows"));
        }
        let groups = k.div_ceil(group);
        check::shape("scales", scales.shape(), [groups, n])?;
        contiguous("words", &words)?;
        contiguous("scales", &scales)?;
        if let Some(zeros) = &zeros {
            check::shape("zeros", zeros.shape(), [groups, n / 8])?;
            contiguous("zeros", zeros)?;
        }
        for (name, len) in [("words", words.len()), ("scales", scales.len()), ("scales", group)] {
            check::size(name, len)?;
        }
        Ok(Int4 { words, scales, zeros, packing, shape, group })
    }
}

/// Whether weights are unpacked in the threads that multiply them: warp groups, which multiply 64 rows and more, take their
/// factors from shared memory.
fn unpacks_in_threads(config: &QuantisedConfig) -> bool {
    config.bm < 64 && config.bk.is_multiple_of(32)
}

impl<F: Float> Packed<F> for Int4<'_, F> {
    fn name(&self) -> &'static str {
        match self.packing {
            Packing::Awq => "awq",
            Packing::Gptq => "gptq",
        }
    }

    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// A step lies in one group.
    fn step(&self) -> usize {
        if self.group >= self.shape[0] { usize::MAX } else { 1 << self.group.trailing_zeros() }
    }

    /// Few rows are multiplied where words are unpacked. In AWQ's words a thread has all columns of a word, and a warp 8 times as many:
    /// 256 for 4 warps. Words of rows are taken for as many columns if there are 16 rows at most and each multiprocessor has so
    /// many: what is computed for a step beside the weights is then shared by twice as many.
    fn adjusted(&self, config: QuantisedConfig, device: &Device) -> QuantisedConfig {
        if !unpacks_in_threads(&config) {
            return config;
        }
        let fills = self.shape[1].div_ceil(256) >= device.multiprocessor_count();
        let few = config.bm <= 16;
        // Where each multiprocessor has one program, that has its shared memory.
        match self.packing {
            Packing::Awq => {
                QuantisedConfig { bn: 256, bk: 128, num_stages: if fills || !few { 3 } else { 4 }, ..config }
            }
            Packing::Gptq if few && fills => QuantisedConfig { bn: 256, bk: 128, num_stages: 3, ..config },
            Packing::Gptq => QuantisedConfig { bk: 128, num_stages: 4, ..config },
        }
    }

    fn programs(&self, config: &QuantisedConfig) -> usize {
        // One of 256 columns, or two of 128.
        if unpacks_in_threads(config) && config.bn == 256 { 1 } else { 2 }
    }

    fn launch<R: Float>(&self, launch: Launch<'_>, x: View<'_, F>, out: ViewMut<'_, R>) -> Result<()> {
        let ([m, n, k, splits], config) = (launch.sizes(), launch.config);
        let group = if self.group >= self.shape[0] { i32::MAX as usize } else { self.group };
        let few = unpacks_in_threads(&config);
        let awq = self.packing == Packing::Awq;
        // Where scales multiply sums, only a wish has them fetched ahead with the factors.
        let (bm, bn, bk, ahead) = (config.bm, config.bn, config.bk, config.num_stages);
        let call = Int4ProductConsts { BM: bm, BN: bn, BK: bk, TALL, AWQ: awq, GROUP: group, FEW: few, AHEAD: ahead }
            .call(
                x,
                self.words.elements(),
                self.scales.elements(),
                MaybeView::from(self.zeros.map(|zeros| zeros.elements())),
                out,
                m,
                n,
                k,
                splits,
                n / 8,
                launch.x_row,
                launch.out_row,
                launch.out_part,
            )
            .grid(launch.programs())
            .num_warps(config.num_warps as u32)
            .num_stages(config.num_stages as u32)
            .stream(launch.cx.stream());
        // What adds up the sums of several programs begins while these end.
        if config.splits > 1 {
            call.dependent_launch().launch(launch.cx.device())
        } else {
            call.launch(launch.cx.device())
        }
    }
}

/// Weights that [`quantise_int4`] has packed.
#[derive(Debug)]
pub struct PackedInt4<F: Float> {
    /// Numbers, 8 to a word.
    pub words: Tensor<i32, 2>,
    /// A scale for each group and column.
    pub scales: Tensor<F, 2>,
    /// Zeros, 8 to a word.
    pub zeros: Tensor<i32, 2>,
    /// Rows that share a scale.
    pub group: usize,
    /// How words are packed.
    pub packing: Packing,
}

impl<F: Float> PackedInt4<F> {
    /// The weights, as a product takes them.
    ///
    /// # Errors
    ///
    /// As [`Int4::new`], of tensors that were exchanged for others.
    pub fn view(&self) -> Result<Int4<'_, F>> {
        Int4::new(&self.words, &self.scales, Some(self.zeros.view()), self.group, self.packing)
    }
}

/// Numbers of a group of `G` rows or fewer, packed; columns beyond `n` and rows beyond `k` are zeros' numbers.
#[kernel]
fn int4_pack<F: Float, const G: usize, const BN: usize, const AWQ: bool>(
    w: Ptr<F>,
    words: PtrMut<i32>,
    scales: PtrMut<F>,
    zeros: PtrMut<i32>,
    n: i32,
    k: i32,
    w_row: i64,
    w_column: i64,
) {
    static_assert!(G % 8 == 0);
    static_assert!(BN % 8 == 0);
    let (group, columns) = (program_id(0) / cdiv(n, BN), program_id(0) % cdiv(n, BN));
    let (i, j) = (group * G + arange(0, G), columns * BN + arange(0, BN));
    let mask = (i < k)[(.., None)] & (j < n);
    let values = load(w + (i[(.., None)] as i64 * w_row + j as i64 * w_column), mask = mask) as f32;
    let high = maximum(max(values, axis = 0), 0.0);
    // Zeros of GPTQ are at least 1, as they are stored less one: then the lowest number is at least a step below 0.
    let least = minimum(min(values, axis = 0), 0.0);
    let low = if AWQ { least } else { minimum(least, high * (-1.0 / 14.0)) };
    // As it is stored; a group of zeros has the smallest scale.
    let scale = maximum(((high - low) / 15.0) as F, if F == f16 { 6.103_515_6e-5 as F } else { 1.175_494_4e-38 as F });
    let step = scale as f32;
    let zero = clamp(round_ties_even(-low / step), if AWQ { 0.0 } else { 1.0 }, 15.0);
    let number = clamp(round_ties_even(values / step) + zero, 0.0, 15.0) as i32;
    store(scales + group * n + j, scale, mask = j < n);
    let (eights, in_word) = (n / 8, columns * (BN / 8) + arange(0, BN / 8));
    let shift = if AWQ { awq_shift() } else { arange(0, 8) * 4 };
    let kept = (zero as i32) - (if AWQ { 0 } else { 1 });
    let word = sum(reshape(kept, [BN / 8, 8]) << shift, axis = 1);
    store(zeros + group * eights + in_word, word, mask = in_word < eights);
    if AWQ {
        let word = sum(reshape(number, [G, BN / 8, 8]) << shift, axis = 2);
        store(words + i[(.., None)] * eights + in_word, word, mask = (i < k)[(.., None)] & (in_word < eights));
    } else {
        let word = sum(reshape(number, [G / 8, 8, BN]) << shift[(.., None)], axis = 1);
        let down = group * (G / 8) + arange(0, G / 8);
        store(words + down[(.., None)] * n + j, word, mask = (down < k / 8)[(.., None)] & (j < n));
    }
}

/// Weights `[k, n]` in 4 bits, with a zero and a scale for each `group` rows of a column.
///
/// # Numerics
///
/// `scale = (high - low) / 15`, rounded to `F`, where `low..high` are the group's numbers and 0; `zero = round(-low / scale)`;
/// `number = round(w / scale) + zero`, limited to `0..=15`. What comes back is within a scale of `w`. Weights are finite: NaN
/// becomes some number.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `group` is not a power of two from 16 to 256, `n` is no multiple of 8, or, for GPTQ, `k` is
/// none; [`Error::OutOfMemory`], those of a launch.
pub fn quantise_int4<'a, F: Float>(
    cx: &Context,
    w: impl Into<TensorView<'a, F, 2>>,
    group: usize,
    packing: Packing,
) -> Result<PackedInt4<F>> {
    let w = w.into();
    let [words, scales, zeros] = packed_shapes(w.shape(), group, packing)?;
    let mut packed = PackedInt4 {
        words: Tensor::empty(cx.device(), words)?,
        scales: Tensor::empty(cx.device(), scales)?,
        zeros: Tensor::empty(cx.device(), zeros)?,
        group,
        packing,
    };
    let PackedInt4 { words, scales, zeros, .. } = &mut packed;
    quantise_int4_into(cx, w, group, packing, words, scales, zeros)?;
    Ok(packed)
}

/// The shapes of words, scales and zeros of weights `[k, n]`.
fn packed_shapes([k, n]: [usize; 2], group: usize, packing: Packing) -> Result<[[usize; 2]; 3]> {
    if !group.is_power_of_two() || !(16..=256).contains(&group) {
        return Err(check::invalid("w", format!("has groups of {group} rows"), "give a power of two from 16 to 256"));
    }
    let awq = packing == Packing::Awq;
    if !n.is_multiple_of(8) || !awq && !k.is_multiple_of(8) {
        return Err(check::invalid("w", format!("has the shape [{k}, {n}]"), "8 numbers make a word: pad it"));
    }
    let groups = k.div_ceil(group);
    Ok([if awq { [k, n / 8] } else { [k / 8, n] }, [groups, n], [groups, n / 8]])
}

/// [`quantise_int4`], into tensors of the shapes of its results, without gaps.
///
/// # Errors
///
/// As [`quantise_int4`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn quantise_int4_into<'a, 'b, F: Float>(
    cx: &Context,
    w: impl Into<TensorView<'a, F, 2>>,
    group: usize,
    packing: Packing,
    words: impl Into<TensorViewMut<'b, i32, 2>>,
    scales: impl Into<TensorViewMut<'b, F, 2>>,
    zeros: impl Into<TensorViewMut<'b, i32, 2>>,
) -> Result<()> {
    let (w, words, scales, zeros) = (w.into(), words.into(), scales.into(), zeros.into());
    let ([k, n], shapes) = (w.shape(), packed_shapes(w.shape(), group, packing)?);
    check::shape("words", words.shape(), shapes[0])?;
    check::shape("scales", scales.shape(), shapes[1])?;
    check::shape("zeros", zeros.shape(), shapes[2])?;
    contiguous("words", &words.as_view())?;
    contiguous("scales", &scales.as_view())?;
    contiguous("zeros", &zeros.as_view())?;
    if w.is_empty() {
        return Ok(());
    }
    check::size("w", k.saturating_mul(n))?;
    let ([row, column], bn) = (w.strides(), 64);
    Int4PackConsts { G: group, BN: bn, AWQ: packing == Packing::Awq }
        .call(
            w.elements(),
            words.elements(),
            scales.elements(),
            zeros.elements(),
            n as i32,
            k as i32,
            row as i64,
            column as i64,
        )
        .grid(k.div_ceil(group) * n.div_ceil(bn))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// What packed weights stand for.
#[kernel]
fn int4_unpack<F: Float, const BK: usize, const BN: usize, const AWQ: bool>(
    words: Ptr<i32>,
    scales: Ptr<F>,
    zeros: Option<Ptr<i32>>,
    out: PtrMut<F>,
    n: i32,
    k: i32,
    group: i32,
    eights: i32,
) {
    static_assert!(BK % 8 == 0);
    static_assert!(BN % 8 == 0);
    let (t, column) = (program_id(0) / cdiv(n, BN) * BK, program_id(0) % cdiv(n, BN) * BN);
    let (along, j) = (t + arange(0, BK), column + arange(0, BN));
    let (in_word, of) = (column / 8 + arange(0, BN / 8), t / group);
    let scale = load(scales + of * n + j, mask = j < n);
    let shift = if AWQ { awq_shift() } else { arange(0, 8) * 4 };
    let zero = if let Some(zeros) = zeros {
        let word = load(zeros + of * eights + in_word, mask = in_word < eights);
        (reshape(word[(.., None)] >> shift, [BN]) & 15) + (if AWQ { 0 } else { 1 })
    } else {
        full([BN], 8)
    };
    let number = if AWQ {
        let mask = (along < k)[(.., None)] & (in_word < eights);
        let word = load(words + along[(.., None)] * eights + in_word, mask = mask);
        reshape(word[(.., .., None)] >> shift, [BK, BN])
    } else {
        let down = t / 8 + arange(0, BK / 8);
        let word = load(words + down[(.., None)] * n + j, mask = (down < k / 8)[(.., None)] & (j < n));
        reshape(word[(.., None, ..)] >> shift[(.., None)], [BK, BN])
    };
    let values = int4_number::<F, BK, BN>(number, zero, scale);
    store(out + along[(.., None)] * n + j, values, mask = (along < k)[(.., None)] & (j < n));
}

/// The matrix `[k, n]` that packed weights stand for: `(number - zero) * scale`, rounded once.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if it has more elements than 2<sup>31</sup> - 1, [`Error::OutOfMemory`], those of a launch.
pub fn dequantise_int4<F: Float>(cx: &Context, weights: &Int4<'_, F>) -> Result<Tensor<F, 2>> {
    let mut out = Tensor::empty(cx.device(), weights.shape)?;
    dequantise_int4_into(cx, weights, &mut out)?;
    Ok(out)
}

/// [`dequantise_int4`], into a tensor of the result's shape, without gaps.
///
/// # Errors
///
/// As [`dequantise_int4`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn dequantise_int4_into<'a, F: Float>(
    cx: &Context,
    weights: &Int4<'_, F>,
    out: impl Into<TensorViewMut<'a, F, 2>>,
) -> Result<()> {
    let (out, [k, n]) = (out.into(), weights.shape);
    check::size("weights", k.saturating_mul(n))?;
    check::shape("out", out.shape(), weights.shape)?;
    contiguous("out", &out.as_view())?;
    if out.is_empty() {
        return Ok(());
    }
    let (bk, bn) = (weights.step().min(32), 128);
    Int4UnpackConsts { BK: bk, BN: bn, AWQ: weights.packing == Packing::Awq }
        .call(
            weights.words.elements(),
            weights.scales.elements(),
            MaybeView::from(weights.zeros.map(|zeros| zeros.elements())),
            out.elements(),
            n as i32,
            k as i32,
            weights.group as i32,
            (n / 8) as i32,
        )
        .grid(k.div_ceil(bk) * n.div_ceil(bn))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
