//! What fills caches: new keys and values, written where their positions say.

use crate::prelude::*;
use crate::{Element, call_in_place};
use tilewright::launch::MaybeView;
use tilewright_kernels::rows::Pairs;
use tilewright_kernels::{TensorView, TensorViewMut};

/// Heads that a program of [`rotate_and_append`] takes: few, so that one token is the work of several programs.
const HEADS: usize = 8;

/// Copies a token's heads to its place in a cache.
#[kernel]
fn append_token<T: Float, const HEADS: usize, const D: usize>(
    new: Ptr<T>,
    positions: Ptr<i32>,
    cache: PtrMut<T>,
    heads: i32,
    d: i32,
    room: i32,
    new_batch: i64,
    new_head: i64,
    new_token: i64,
    cache_batch: i64,
    cache_head: i64,
    cache_token: i64,
    position_batch: i64,
    position_token: i64,
) {
    let (token, batch) = (program_id(0), program_id(1));
    let position = load(positions + (batch as i64 * position_batch + token as i64 * position_token));
    assert!(position >= 0 && position < room, "the position is outside of the cache");
    let (head, column) = (arange(0, HEADS)[(.., None)], arange(0, D)[(None, ..)]);
    let mask = (head < heads) & (column < d);
    let from = batch as i64 * new_batch + token as i64 * new_token + head as i64 * new_head + column as i64;
    let to = batch as i64 * cache_batch + position as i64 * cache_token + head as i64 * cache_head + column as i64;
    store(cache + to, load(new + from, mask = mask), mask = mask);
}

/// The same with the cache in pages, whose dtype may be another: what is stored is divided by `scale`.
#[kernel]
fn append_to_page<T: Float, K: Float, const HEADS: usize, const D: usize>(
    new: Ptr<T>,
    positions: Ptr<i32>,
    table: Ptr<i32>,
    scale: Option<Ptr<f32>>,
    pages: PtrMut<K>,
    heads: i32,
    d: i32,
    all_pages: i32,
    page_size: i32,
    most_pages: i32,
    new_batch: i64,
    new_head: i64,
    new_token: i64,
    page_stride: i64,
    row_stride: i64,
    head_stride: i64,
    table_stride: i64,
    scale_stride: i32,
    position_batch: i64,
    position_token: i64,
) {
    let (token, batch) = (program_id(0), program_id(1));
    let position = load(positions + (batch as i64 * position_batch + token as i64 * position_token));
    assert!(position >= 0 && position / page_size < most_pages, "the position is outside of the sequence's pages");
    let page = load(table + (batch as i64 * table_stride + (position / page_size) as i64));
    assert!(page >= 0 && page < all_pages, "the table names a page that is none");
    let (head, column) = (arange(0, HEADS)[(.., None)], arange(0, D)[(None, ..)]);
    let mask = (head < heads) & (column < d);
    let from = batch as i64 * new_batch + token as i64 * new_token + head as i64 * new_head + column as i64;
    let values = load(new + from, mask = mask);
    let to = page as i64 * page_stride + (position % page_size) as i64 * row_stride;
    let to = to + head as i64 * head_stride + column as i64;
    if let Some(scale) = scale {
        let scale = load(scale + head * scale_stride, mask = head < heads, other = 1.0);
        store(pages + to, (values as f32 / scale) as K, mask = mask);
    } else {
        store(pages + to, values as K, mask = mask);
    }
}

/// Turns a token's queries and keys, gives the queries, and writes keys and values to their place in the cache.
#[kernel]
fn rotate_and_append<T: Float, C: Float, const HEADS: usize, const HALF: usize, const INTERLEAVED: bool>(
    qkv: Ptr<T>,
    cos: Ptr<C>,
    sin: Ptr<C>,
    positions: Ptr<i32>,
    cache: PtrMut<T>,
    out: PtrMut<T>,
    heads: i32,
    kv_heads: i32,
    half: i32,
    room: i32,
    rows: i32,
    batch_stride: i64,
    token_stride: i64,
    table_stride: i64,
    cache_values: i64,
    cache_batch: i64,
    cache_head: i64,
    cache_token: i64,
    position_batch: i64,
    position_token: i64,
) {
    let (token, batch) = (program_id(0), program_id(1));
    let position = load(positions + (batch as i64 * position_batch + token as i64 * position_token));
    assert!(position >= 0 && position < room && position < rows, "the position is outside of the cache or the tables");
    let head = (program_id(2) * HEADS + arange(0, HEADS))[(.., None)];
    let pair = arange(0, HALF)[(None, ..)];
    // Queries come first, then keys, then values, which are not turned.
    let is_query = (head < heads) & (pair < half);
    let is_cached = (head >= heads) & (head < heads + 2 * kv_heads) & (pair < half);
    let is_turned = (head < heads + kv_heads) & (pair < half);
    let (first, second) = if INTERLEAVED { (pair * 2, pair * 2 + 1) } else { (pair, pair + half) };

    let from = batch as i64 * batch_stride + token as i64 * token_stride + (head * (2 * half)) as i64;
    let a = load(qkv + (from + first as i64), mask = is_query | is_cached) as T::Acc;
    let b = load(qkv + (from + second as i64), mask = is_query | is_cached) as T::Acc;
    let angle = position as i64 * table_stride + pair as i64;
    let c = load(cos + angle, mask = pair < half) as T::Acc;
    let s = load(sin + angle, mask = pair < half) as T::Acc;
    let x = select(is_turned, a * c - b * s, a) as T;
    let y = select(is_turned, b * c + a * s, b) as T;

    let at = batch as i64 * num_programs(0) as i64 + token as i64;
    let to = at * (heads * (2 * half)) as i64 + (head * (2 * half)) as i64;
    store(out + (to + first as i64), x, mask = is_query);
    store(out + (to + second as i64), y, mask = is_query);
    let other = maximum(head - heads, 0);
    let to = (other / kv_heads) as i64 * cache_values + (other % kv_heads) as i64 * cache_head;
    let to = to + batch as i64 * cache_batch + position as i64 * cache_token;
    store(cache + (to + first as i64), x, mask = is_cached);
    store(cache + (to + second as i64), y, mask = is_cached);
}

candle_op! {
    /// Writes new keys, or values, to their places in a cache.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let cache = Tensor::zeros((1, 2, 8, 4), DType::F32, &Device::Cpu)?; // room for 8 tokens
    /// let new = Tensor::ones((1, 2, 3, 4), DType::F32, &Device::Cpu)?;
    /// let positions = Tensor::new(&[[5u32, 6, 7]], &Device::Cpu)?;
    /// tilewright_candle::attention::append(&cache, &new, &positions)?;
    /// assert_eq!(cache.sum_all()?.to_scalar::<f32>()?, 24.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// `cache` is `[batch, kv_heads, room, d]` and `new` `[batch, kv_heads, tokens, d]`, of f16, bf16, f32 or f64, the last
    /// dimension contiguous; `positions` is `[batch, tokens]` of u32 or i32, of any strides.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, and of tensors that require a gradient. A position outside of the cache is an error of the
    /// launch.
    pub fn append(mut cache, new, positions) {
        dispatch!(new => T in [f16, bf16, f32, f64] {
            let (cx, cache, new) = (new.context(), cache.view_mut::<T, 4>()?, new.view::<T, 4>()?);
            let ([batch, heads, tokens, d], [_, _, room, _]) = (new.shape(), cache.shape());
            same("cache", cache.shape(), [batch, heads, room, d])?;
            let positions = placed(positions, [batch, tokens])?;
            let (from, to) = (rows("new", &new)?, rows_mut("cache", &cache)?);
            if new.is_empty() {
                return Ok(());
            }
            AppendTokenConsts { HEADS: heads.next_power_of_two(), D: d.next_power_of_two() }
                .call(
                    new.elements(), positions.elements(), cache.elements(),
                    int("new", heads)?, int("new", d)?, int("cache", room)?, from[0], from[1], from[2], to[0], to[1], to[2],
                    positions.strides()[0] as i64, positions.strides()[1] as i64,
                )
                .grid((tokens, batch))
                .launch(cx.device())
        })
    }
}

/// Writes new keys, or values, to the pages of their sequences: `pages` is what [`PagedCache`](super::PagedCache) has as `k` or `v`.
///
/// # Shapes and dtypes
///
/// `pages` is `[pages, page size, kv_heads, d]` of the dtype of `new` or of f8e4m3, the last dimension contiguous; `new` is
/// `[sequences, kv_heads, tokens, d]` of f16, bf16, f32 or f64, the last dimension contiguous; `table` is
/// `[sequences, most pages]` and `positions` `[sequences, tokens]`, of u32 or i32. What is stored is `new` over `scale`, `[1]` or
/// `[kv_heads]` of f32; a number that f8e4m3 does not have becomes the nearest.
///
/// # Errors
///
/// Of other dtypes and shapes, and of tensors that require a gradient. A position outside of its sequence's pages is an error
/// of the launch.
pub fn paged_append(
    pages: &Tensor,
    new: &Tensor,
    table: &Tensor,
    positions: &Tensor,
    scale: Option<&Tensor>,
) -> candle_core::Result<()> {
    let (op, pages, inputs) =
        ("paged_append", ("pages", pages), [("new", new), ("table", table), ("positions", positions)]);
    let [] = match scale {
        None => call_in_place(op, pages, inputs, |_| Ok([]), |pages, inputs, []| to_pages(pages, inputs, None)),
        Some(scale) => {
            let [new, table, positions] = inputs;
            let inputs = [new, table, positions, ("scale", scale)];
            let run =
                |pages: TensorMut<'_>, [new, table, positions, scale]: [TensorRef<'_>; 4], []: [TensorMut<'_>; 0]| {
                    to_pages(pages, [new, table, positions], Some(scale))
                };
            call_in_place(op, pages, inputs, |_| Ok([]), run)
        }
    }?;
    Ok(())
}

fn to_pages(
    pages: TensorMut<'_>,
    [new, table, positions]: [TensorRef<'_>; 3],
    scale: Option<TensorRef<'_>>,
) -> Result<()> {
    dispatch!(new => T in [f16, bf16, f32, f64] {
        if pages.dtype() == F8E4M3::DTYPE {
            append_to::<T, F8E4M3>(pages, [new, table, positions], scale)
        } else {
            append_to::<T, T>(pages, [new, table, positions], scale)
        }
    })
}

fn append_to<T: Element + Float, K: Element + Float>(
    pages: TensorMut<'_>,
    [new, table, positions]: [TensorRef<'_>; 3],
    scale: Option<TensorRef<'_>>,
) -> Result<()> {
    let (cx, pages, new) = (new.context(), pages.view_mut::<K, 4>()?, new.view::<T, 4>()?);
    let ([batch, heads, tokens, d], [all, size, _, _]) = (new.shape(), pages.shape());
    same("pages", pages.shape(), [all, size, heads, d])?;
    let (table, positions) = (table.indices::<2>()?, placed(positions, [batch, tokens])?);
    let [_, most] = table.shape();
    same("table", table.shape(), [batch, most])?;
    if most > 1 && table.strides()[1] != 1 {
        return Err(crate::tensor::invalid("table", "has rows with gaps", "call `contiguous` first"));
    }
    let scale = scale.map(|scale| scale.view::<f32, 1>()).transpose()?;
    if let Some(scale) = scale.filter(|scale| scale.len() != 1) {
        same("scale", scale.shape(), [heads])?;
    }
    let (from, to) = (rows("new", &new)?, rows_mut("pages", &pages)?);
    if new.is_empty() {
        return Ok(());
    }
    // A head's scale is where its number times the stride says, in 32 bits.
    let several = scale.filter(|scale| scale.len() > 1);
    int("scale", several.map_or(0, |scale| scale.strides()[0].saturating_mul(heads)))?;
    let scale_stride = several.map_or(0, |scale| scale.strides()[0] as i32);
    AppendToPageConsts { HEADS: heads.next_power_of_two(), D: d.next_power_of_two() }
        .call(
            new.elements(),
            positions.elements(),
            table.elements(),
            MaybeView::from(scale.map(|scale| scale.elements())),
            pages.elements(),
            int("new", heads)?,
            int("new", d)?,
            int("pages", all)?,
            int("pages", size)?,
            int("table", most)?,
            from[0],
            from[1],
            from[2],
            to[0],
            to[1],
            to[2],
            table.strides()[0] as i64,
            scale_stride,
            positions.strides()[0] as i64,
            positions.strides()[1] as i64,
        )
        .grid((tokens, batch))
        .launch(cx.device())
}

/// What stands between a transformer's product for queries, keys and values and its attention, in one launch: turns queries and
/// keys as [`rotary_at`](crate::rows::rotary_at) does, gives the queries, and writes keys and values to their places in a cache.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tilewright_candle::attention::{Attention, decode, rotary_append};
/// use tilewright_candle::rows::{Pairs, rotary_tables};
///
/// # fn main() -> candle_core::Result<()> {
/// let (device, heads, kv_heads, d) = (Device::Cpu, 4, 2, 8);
/// let cache = Tensor::zeros((2, 1, kv_heads, 16, d), DType::F32, &device)?; // keys and values of 16 tokens
/// let (cos, sin) = rotary_tables(16, d, 10_000.0, &device)?;
/// let qkv = Tensor::ones((1, 3, (heads + 2 * kv_heads) * d), DType::F32, &device)?;
/// let positions = Tensor::new(&[[0u32, 1, 2]], &device)?;
/// let q = rotary_append(&cache, &qkv, &cos, &sin, &positions, heads, Pairs::Halves)?;
/// let lengths = Tensor::new(&[3u32], &device)?;
/// let y = decode(&q, &cache.get(0)?, &cache.get(1)?, Some(&lengths), Attention::default().causal())?;
/// assert_eq!(y.dims(), [1, 4, 3, 8]);
/// # Ok(())
/// # }
/// ```
///
/// # Shapes and dtypes
///
/// `cache` is `[2, batch, kv_heads, room, d]`, keys first, and `qkv` `[batch, tokens, (heads + 2 * kv_heads) * d]`, of f16, bf16, f32
/// or f64, the last dimension contiguous; `cos` and `sin` are `[positions, d / 2]` of any of these dtypes, contiguous; `positions` is
/// `[batch, tokens]` of u32 or i32, of any strides. The result is `[batch, heads, tokens, d]`.
///
/// # Errors
///
/// Of other dtypes and shapes, and of tensors that require a gradient. A position outside of the cache or the tables is an error
/// of the launch.
pub fn rotary_append(
    cache: &Tensor,
    qkv: &Tensor,
    cos: &Tensor,
    sin: &Tensor,
    positions: &Tensor,
    heads: usize,
    pairs: Pairs,
) -> candle_core::Result<Tensor> {
    let inputs = [("qkv", qkv), ("cos", cos), ("sin", sin), ("positions", positions)];
    let outputs = |[qkv, cos, ..]: [TensorRef<'_>; 4]| Ok([queries(qkv, cos, heads)?]);
    let [q] = call_in_place("rotary_append", ("cache", cache), inputs, outputs, |cache, inputs, [q]| {
        let [qkv, cos, ..] = inputs;
        dispatch!(qkv => T in [f16, bf16, f32, f64] {
            dispatch!(cos => C in [f16, bf16, f32, f64] { rotate_into::<T, C>(cache, inputs, pairs, q) })
        })
    })?;
    q.transpose(1, 2)
}

fn queries(qkv: TensorRef<'_>, cos: TensorRef<'_>, heads: usize) -> Result<Spec> {
    let ([batch, tokens, columns], [_, half]) = (qkv.shape()?, cos.shape()?);
    if heads.saturating_mul(2 * half) > columns {
        let hint = format!("its last dimension has at least the {heads} heads of {} elements of the queries", 2 * half);
        return Err(qkv.invalid(format!("has the shape {:?}", qkv.dims()), hint));
    }
    Ok(Spec::new(qkv.dtype(), (batch, tokens, heads, 2 * half)))
}

fn rotate_into<T: Element + Float, C: Element + Float>(
    cache: TensorMut<'_>,
    [qkv, cos, sin, positions]: [TensorRef<'_>; 4],
    pairs: Pairs,
    q: TensorMut<'_>,
) -> Result<()> {
    let (cx, cache, [_, _, heads, d]) = (qkv.context(), cache.view_mut::<T, 5>()?, q.shape()?);
    let ([batch, tokens, columns], [_, _, kv_heads, room, _]) = (qkv.shape()?, cache.shape());
    same("cache", cache.shape(), [2, batch, kv_heads, room, d])?;
    same("qkv", [batch, tokens, columns], [batch, tokens, (heads + 2 * kv_heads) * d])?;
    let (qkv, strides, positions) = (qkv.view::<T, 3>()?, cache.strides(), placed(positions, [batch, tokens])?);
    let ([rows, half], q) = (cos.shape()?, q.flat_mut::<T>()?);
    same("sin", sin.shape()?, [rows, half])?;
    if d > 1 && (qkv.strides()[2] != 1 || strides[4] != 1) {
        let name = if strides[4] == 1 { "qkv" } else { "cache" };
        return Err(crate::tensor::invalid(name, "has heads with gaps", "call `contiguous` first"));
    }
    // Without heads of queries there are keys and values all the same.
    if qkv.is_empty() {
        return Ok(());
    }
    // Elements of a token are counted in 32 bits.
    int("qkv", columns)?;
    let to = strides.map(|stride| stride as i64);
    RotateAndAppendConsts { HEADS, HALF: half.next_power_of_two(), INTERLEAVED: pairs == Pairs::Interleaved }
        .call(
            qkv.elements(),
            cos.flat::<C>()?,
            sin.flat::<C>()?,
            positions.elements(),
            cache.elements(),
            q,
            int("qkv", heads)?,
            int("cache", kv_heads)?,
            int("cos", half)?,
            int("cache", room)?,
            int("cos", rows)?,
            qkv.strides()[0] as i64,
            qkv.strides()[1] as i64,
            half as i64,
            to[0],
            to[1],
            to[2],
            to[3],
            positions.strides()[0] as i64,
            positions.strides()[1] as i64,
        )
        .grid((tokens, batch, (heads + 2 * kv_heads).div_ceil(HEADS)))
        .launch(cx.device())
}

/// A size as kernels take it.
fn int(name: &str, size: usize) -> Result<i32> {
    let too_large =
        |_| crate::tensor::invalid(name, format!("has a dimension of {size}"), "2^31 - 1 is accepted at most");
    i32::try_from(size).map_err(too_large)
}

/// Checks a shape against what the other tensors ask for.
fn same<const R: usize>(name: &str, shape: [usize; R], wanted: [usize; R]) -> Result<()> {
    if shape == wanted {
        return Ok(());
    }
    let hint = format!("the other tensors ask for {wanted:?}");
    Err(crate::tensor::invalid(name, format!("has the shape {shape:?}"), hint))
}

/// Positions of tokens.
fn placed<'a>(positions: TensorRef<'a>, shape: [usize; 2]) -> Result<TensorView<'a, i32, 2>> {
    let placed = positions.indices::<2>()?;
    same("positions", placed.shape(), shape)?;
    Ok(placed)
}

/// The strides of a tensor whose last dimension is contiguous.
fn rows<T: DType>(name: &str, x: &TensorView<'_, T, 4>) -> Result<[i64; 4]> {
    let (shape, strides) = (x.shape(), x.strides());
    if shape[3] > 1 && strides[3] != 1 {
        let problem = format!("has the shape {shape:?} and strides {strides:?}: its last dimension is not contiguous");
        return Err(crate::tensor::invalid(name, problem, "call `contiguous` first"));
    }
    Ok(strides.map(|stride| stride as i64))
}

fn rows_mut<T: DType>(name: &str, x: &TensorViewMut<'_, T, 4>) -> Result<[i64; 4]> {
    rows(name, &x.as_view())
}
