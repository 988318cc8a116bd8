//! Keys and values of caches: where they are, checked.

use super::Blocks;
use crate::attention::options::MOST;
use crate::attention::shape::{MAX_HEAD, contiguous_last};
use crate::config::Key;
use crate::{TensorView, check};
use tilewright::prelude::*;
use tilewright::{ElementType, Result, TensorDesc, View};

/// Keys and values in pages, of sequences that grow.
///
/// Sequence `i` has `lengths[i]` keys, the first of them in page `table[i][0]`, the next page of them in `table[i][1]`, and so
/// on. What lies behind a sequence's last key is not read, but for numbers of pages, which need not be valid.
///
/// Nothing outside the cache is read, whatever the numbers, and nothing is reported: a length above what the table has pages
/// for counts as that, one below 0 as 0, and keys of a page that there is not are those of the nearest number that is one, or
/// zeros.
#[derive(Debug, Clone, Copy)]
pub struct PagedCache<'a, K: DType> {
    /// `[pages, page size, kv_heads, d]`, of the queries' dtype or an 8-bit float. The last dimension is contiguous.
    pub k: TensorView<'a, K, 4>,
    /// `[pages, page size, kv_heads, dv]`.
    pub v: TensorView<'a, K, 4>,
    /// `[sequences, most pages of one]`, the last dimension contiguous.
    pub table: TensorView<'a, i32, 2>,
    /// `[sequences]`.
    pub lengths: TensorView<'a, i32, 1>,
    /// What keys are multiplied by: one number, or one for each head. Not negative; of 0 all keys count alike.
    pub k_scale: Option<TensorView<'a, f32, 1>>,
    /// What values are multiplied by.
    pub v_scale: Option<TensorView<'a, f32, 1>>,
}

/// Keys and values wherever they are.
pub(super) struct Keys<'a, K: DType> {
    pub(super) k: View<'a, K>,
    pub(super) v: View<'a, K>,
    /// Strides of pages (or sequences), heads and rows.
    pub(super) k_strides: [i64; 3],
    pub(super) v_strides: [i64; 3],
    pub(super) table: Option<TensorView<'a, i32, 2>>,
    pub(super) lengths: Option<TensorView<'a, i32, 1>>,
    pub(super) k_scale: Option<TensorView<'a, f32, 1>>,
    pub(super) v_scale: Option<TensorView<'a, f32, 1>>,
    pub(super) sequences: usize,
    pub(super) heads: usize,
    /// The most keys of a sequence.
    pub(super) most: usize,
    pub(super) pages: usize,
    pub(super) page_size: usize,
    pub(super) d: usize,
    pub(super) dv: usize,
}

impl<'a, K: DType> Keys<'a, K> {
    /// What decides about configurations besides sizes: what keys are made of, how many sequences with their heads there are,
    /// and the size of pages.
    pub(super) fn key(&self, dtype: ElementType, programs: usize) -> Key {
        let of = if K::ELEMENT.size() == 1 { "keys of 8 bits" } else { "" };
        Key::of(dtype, of).and([Some(programs), self.table.is_some().then_some(self.page_size)])
    }

    /// Keys and values `[batch, kv_heads, keys, d]`.
    pub(super) fn dense(
        k: TensorView<'a, K, 4>,
        v: TensorView<'a, K, 4>,
        lengths: Option<TensorView<'a, i32, 1>>,
    ) -> Result<Self> {
        let ([batch, heads, most, d], dv) = (k.shape(), v.shape()[3]);
        check::shape("v", v.shape(), [batch, heads, most, dv])?;
        let strides = |view: &TensorView<'_, K, 4>| {
            let [batch, head, row, _] = view.strides().map(|stride| stride as i64);
            [batch, head, row]
        };
        Keys {
            k: k.elements(),
            v: v.elements(),
            k_strides: strides(&k),
            v_strides: strides(&v),
            table: None,
            lengths,
            k_scale: None,
            v_scale: None,
            sequences: batch,
            heads,
            most,
            pages: 1,
            page_size: 1,
            d,
            dv,
        }
        .checked(&k, &v)
    }

    pub(super) fn paged(cache: &PagedCache<'a, K>) -> Result<Self> {
        let ([pages, page_size, heads, d], dv) = (cache.k.shape(), cache.v.shape()[3]);
        check::shape("v", cache.v.shape(), [pages, page_size, heads, dv])?;
        let [sequences, most_pages] = cache.table.shape();
        contiguous_last("table", &cache.table)?;
        if page_size == 0 || (pages == 0 && most_pages > 0) {
            return Err(check::invalid("k", "has no page", "make at least one page of at least one key"));
        }
        let strides = |view: &TensorView<'_, K, 4>| {
            let [page, row, head, _] = view.strides().map(|stride| stride as i64);
            [page, head, row]
        };
        Keys {
            k: cache.k.elements(),
            v: cache.v.elements(),
            k_strides: strides(&cache.k),
            v_strides: strides(&cache.v),
            table: Some(cache.table),
            lengths: Some(cache.lengths),
            k_scale: cache.k_scale,
            v_scale: cache.v_scale,
            sequences,
            heads,
            most: most_pages.saturating_mul(page_size),
            pages,
            page_size,
            d,
            dv,
        }
        .checked(&cache.k, &cache.v)
    }

    fn checked(self, k: &TensorView<'_, K, 4>, v: &TensorView<'_, K, 4>) -> Result<Self> {
        contiguous_last("k", k)?;
        contiguous_last("v", v)?;
        for (name, size) in [("k", self.d), ("v", self.dv)] {
            if size == 0 || size > MAX_HEAD {
                let problem = format!("has heads of {size} elements");
                return Err(check::invalid(name, problem, format!("heads have 1 to {MAX_HEAD}")));
            }
        }
        if self.most > MOST as usize {
            let problem = format!("has room for {} keys in a sequence", self.most);
            return Err(check::invalid("k", problem, format!("there are at most {MOST}")));
        }
        if let Some(lengths) = &self.lengths {
            check::shape("lengths", lengths.shape(), [self.sequences])?;
            contiguous_last("lengths", lengths)?;
        }
        for (name, scale) in [("k_scale", &self.k_scale), ("v_scale", &self.v_scale)] {
            if let Some(scale) = scale
                && scale.shape() != [1]
            {
                check::shape(name, scale.shape(), [self.heads])?;
            }
        }
        Ok(self)
    }

    /// Pages as tensors, where blocks of them can be copied as they are and feed products of warp groups.
    pub(super) fn blocks<T: Float>(
        &self,
        blocks: &Blocks,
    ) -> Result<Option<(TensorDesc<'a, K, 4>, TensorDesc<'a, K, 4>)>> {
        if self.table.is_none()
            || K::ELEMENT != T::ELEMENT
            || blocks.rows < blocks.fed_from
            || !self.page_size.is_multiple_of(blocks.keys)
        {
            return Ok(None);
        }
        let described = |view: View<'a, K>, [page, head, row]: [i64; 3], columns: usize| {
            let shape = [self.pages, self.heads, self.page_size, columns];
            TensorDesc::with_strides(view, shape, [page as usize, head as usize, row as usize, 1])
        };
        Ok(Some((described(self.k, self.k_strides, self.d)?, described(self.v, self.v_strides, self.dv)?)))
    }

    /// The heads of queries `[sequences, heads, queries, d]` that share one of keys.
    pub(super) fn group_of<T: DType>(&self, q: &TensorView<'_, T, 4>) -> Result<usize> {
        let [_, heads, queries, _] = q.shape();
        check::shape("q", q.shape(), [self.sequences, heads, queries, self.d])?;
        self.group(heads)
    }

    /// The heads of queries that share one of keys.
    pub(super) fn group(&self, heads: usize) -> Result<usize> {
        if heads == 0 {
            return Ok(1);
        }
        if self.heads == 0 || !heads.is_multiple_of(self.heads) {
            let hint = format!("the {heads} heads of `q` must be a multiple of them");
            return Err(check::invalid("k", format!("has {} heads", self.heads), hint));
        }
        Ok(heads / self.heads)
    }
}
