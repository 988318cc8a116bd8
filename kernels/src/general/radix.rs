//! Sorting long rows by their digits, the last one first: as many passes as an element has bytes, each stable.
//!
//! A pass counts the digits of each tile of a row ([`count_digits`]), adds up how many are in the tiles before
//! ([`digit_offsets`]), and has each tile ordered by the digit and moved to where its parts belong ([`move_digits`]). Every
//! pass reads elements twice, and writes them once.

use super::number::Number;
use super::pairs::{PairRoom, PairWorkspace, memory};
use super::sort::{Order, Sorted, To, stride};
use crate::Context;
use crate::config::config;
use crate::workspace::{part, room};
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

config! {
    /// How rows are sorted that are too long for one program; sizes are rows and columns.
    "sort_digits": pub struct SortDigitsConfig {
        /// Elements of a program: a power of two from 128 to 32,768.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl SortDigitsConfig {
    pub(super) fn choose() -> Self {
        // Runs of one digit are 8 elements of a tile on average, a sector of 32 bytes or two. Larger tiles have longer runs, but
        // need more registers than leave room for several programs.
        SortDigitsConfig { block: 2048, num_warps: 8 }
    }
}

/// The values of a digit.
const DIGITS: usize = 256;
/// Elements of a tile that are counted in 8 bits, so that there are no more than 255, by one warp, 4 a thread.
const ROW: usize = 128;
/// Tiles whose counts are added up at a time, and digits of a program that does it.
const SUMMED: (usize, usize) = (32, 32);

/// The eight bits from `shift` on of unsigned integers that are ordered as the elements are: `-0.0` is below `0.0`, and NaN
/// above all else.
#[device]
fn digits<
    T: Num,
    K: Int,
    const SIGNED: bool,
    const FLOAT: bool,
    const DESCENDING: bool,
    const M: usize,
    const N: usize,
>(
    v: Tile<T, { [M, N] }>,
    shift: i32,
) -> Tile<i32, { [M, N] }> {
    let bits = bitcast::<K>(v);
    let sign = (1 as K) << (K::BITS as K - 1 as K);
    let ordered = if FLOAT {
        // Of negative floats the one with the greater magnitude is less.
        let ordered = select((bits & sign) != 0 as K, !bits, bits | sign);
        select(v != v, !(0 as K), ordered)
    } else if SIGNED {
        bits ^ sign
    } else {
        bits
    };
    let ordered = if DESCENDING { !ordered } else { ordered };
    ((ordered >> shift as K) & 255 as K) as i32
}

/// How often each digit occurs in each tile of `BLOCK` elements of a row, `counts[row][tile][digit]`.
#[kernel]
fn count_digits<T: Num, K: Int, const SIGNED: bool, const FLOAT: bool, const DESCENDING: bool, const BLOCK: usize>(
    x: Ptr<T>,
    counts: PtrMut<i32>,
    columns: i32,
    shift: i32,
    x_stride: i64,
) {
    let (row, tile) = (program_id(0) as i64, program_id(1));
    let column = tile * BLOCK + arange(0, BLOCK)[(None, ..)];
    let mask = column < columns;
    let v = load(x + row * x_stride + column, mask = mask);
    let digit = digits::<T, K, SIGNED, FLOAT, DESCENDING, 1, BLOCK>(v, shift);
    let counted = histogram(digit, DIGITS, mask = mask);
    store(counts + (row * num_programs(1) as i64 + tile as i64) * DIGITS as i64 + arange(0, DIGITS), counted);
}

/// Replaces the counts of each tile by their sum over the tiles before it, and writes the sums over all, `totals[row][digit]`.
#[kernel]
fn digit_offsets<const TILES: usize, const PART: usize>(counts: PtrMut<i32>, totals: PtrMut<i32>, tiles: i32) {
    let row = program_id(0) as i64;
    let digit = program_id(1) * PART + arange(0, PART);
    let counts = counts + row * (tiles as i64 * DIGITS as i64);
    let mut before = zeros::<i32>([PART]);
    for first in (0..tiles).step_by(TILES) {
        let tile = first + arange(0, TILES);
        let mask = (tile < tiles)[(.., None)];
        let place = counts + (tile[(.., None)] * DIGITS as i32 + digit);
        let count = load(place, mask = mask);
        store(place, before + cumsum(count, axis = 0) - count, mask = mask);
        before += sum(count, axis = 0);
    }
    store(totals + row * DIGITS as i64 + digit, before);
}

/// The lanes of a tile in the order of their digits, those of one digit as they stand: `digit << 16 | lane`. Two bits at a
/// time: each lane counts those before it that have the same bits, in its row by 8 bits for each of the four, in the rows
/// before by 16.
#[device]
fn ordered_by_digit<const ROWS: usize>(digit: Tile<i32, { [ROWS, ROW] }>) -> Tile<i32, { [ROWS * ROW] }> {
    let mut lanes = digit << 16 | arange(0, ROWS)[(.., None)] * ROW as i32 + arange(0, ROW);
    #[unroll]
    for round in 0..4 {
        let bits = lanes >> (16 + 2 * round) & 3;
        let one = (1 as u32) << (bits * 8) as u32;
        let here = (cumsum(one, axis = 1) >> (bits * 8) as u32 & 255) as i32;
        let row = sum(one, axis = 1) as u64;
        let row = row & 255 | (row & 255 << 8) << 8 | (row & 255 << 16) << 16 | (row & 255 << 24) << 24;
        let all = sum(row);
        let before = cumsum(row) - row + ((all << 16) + (all << 32) + (all << 48));
        let before = (before[(.., None)] >> (bits * 16) as u64) as i32;
        let place = (before + here - 1) & (ROWS * ROW - 1) as i32;
        let old = reshape(lanes, [ROWS * ROW]);
        lanes = reshape(scatter(old, reshape(place, [ROWS * ROW]), old), [ROWS, ROW]);
    }
    reshape(lanes, [ROWS * ROW])
}

/// Moves each element to its place among those of the row, ordered by the digit. Without `x_places`, elements are where they
/// were at first.
#[kernel]
fn move_digits<T: Num, K: Int, const SIGNED: bool, const FLOAT: bool, const DESCENDING: bool, const ROWS: usize>(
    x: Ptr<T>,
    x_places: Option<Ptr<i32>>,
    counts: Ptr<i32>,
    totals: Ptr<i32>,
    values: Option<PtrMut<T>>,
    places: Option<PtrMut<i32>>,
    columns: i32,
    shift: i32,
    x_stride: i64,
    x_places_stride: i64,
    values_stride: i64,
    places_stride: i64,
) {
    static_assert!(ROWS * ROW <= 32_768, "lanes are counted in 16 bits");
    let (row, tile) = (program_id(0) as i64, program_id(1));
    let first = tile * (ROWS * ROW) as i32;
    let column = first + arange(0, ROWS)[(.., None)] * ROW as i32 + arange(0, ROW);
    let mask = column < columns;
    let v = load(x + row * x_stride + column, mask = mask);
    // What is behind the row's end comes last.
    let digit = select(mask, digits::<T, K, SIGNED, FLOAT, DESCENDING, _, _>(v, shift), DIGITS as i32 - 1);
    let lanes = ordered_by_digit(digit);
    // Where each digit begins in the row, less where it begins in the tile.
    let each = arange(0, DIGITS);
    let total = load(totals + row * DIGITS as i64 + each);
    let here = counts + (row * num_programs(1) as i64 + tile as i64) * DIGITS as i64 + each;
    let before = load(here);
    let is_last = tile + 1 == num_programs(1);
    let behind = if is_last { total } else { load(here + DIGITS as i64) };
    let others = total - (behind - before);
    let moved = before + cumsum(others) - others;
    // Neighbouring threads write neighbours, which are often side by side in the row too: so what is read, 16 bytes a thread,
    // has another shape. Elements are read again, so that no registers keep them meanwhile.
    let lane = arange(0, ROWS * ROW);
    let wide = lane[(None, ..)];
    let left = columns - first;
    let to = lane + gather(moved, lanes >> 16 & DIGITS as i32 - 1, axis = 0);
    let inside = (lane < left) & (to >= 0) & (to < columns);
    let from = lanes & (ROWS * ROW - 1) as i32;
    if let Some(values) = values {
        let v = reshape(load(x + row * x_stride + first + wide, mask = wide < left), [ROWS * ROW]);
        store(values + row * values_stride + to, gather(v, from, axis = 0), mask = inside);
    }
    if let Some(places) = places {
        let place = if let Some(x_places) = x_places {
            let place = load(x_places + row * x_places_stride + first + wide, mask = wide < left);
            gather(reshape(place, [ROWS * ROW]), from, axis = 0)
        } else {
            first + from
        };
        store(places + row * places_stride + to, place, mask = inside);
    }
}

/// What a pass leaves for the next one: rows without gaps.
struct Pair<'a, T: DType> {
    values: ViewMut<'a, T>,
    places: ViewMut<'a, i32>,
}

/// How many elements the pairs between passes have, each: there is one for two passes, two for more.
fn between<T: DType>([rows, columns]: [usize; 2]) -> [usize; 2] {
    // More than can be counted is more than any memory has.
    let len = rows.saturating_mul(columns);
    [1, 2].map(|pair| if pair < size_of::<T>() { len } else { 0 })
}

/// What sorting such rows takes: values, and counts with the indices that go along.
pub(super) fn digits_room<T: Number>(cx: &Context, sizes: [usize; 2], with_places: bool) -> Result<PairRoom> {
    let config = cx.config(T::ELEMENT, &sizes, SortDigitsConfig::choose)?;
    let counts = counts_len(sizes[0], sizes[1], config.block);
    let [first, second] = between::<T>(sizes);
    let places = if with_places { room(&[counts, first, second]) } else { counts };
    Ok(PairRoom { values: room(&[first, second]), places })
}

impl<T: Number> Sorted<'_, T> {
    /// Sorts them into what is wanted.
    pub(super) fn by_digits(
        &self,
        cx: &Context,
        mut values: Option<To<'_, T>>,
        mut places: Option<To<'_, i32>>,
        workspace: Option<PairWorkspace<'_, T>>,
    ) -> Result<()> {
        let Sorted { rows, columns, order, .. } = *self;
        let (passes, with_places) = (size_of::<T>(), places.is_some());
        let needed = digits_room::<T>(cx, [rows, columns], with_places)?;
        let (mut memory, mut memory_of_places) = memory(cx, workspace, needed)?;
        let config = cx.config(T::ELEMENT, &[rows, columns], SortDigitsConfig::choose)?;
        let (counts, rest) = part(memory_of_places.view_mut(), counts_len(rows, columns, config.block))?;
        let [first, second] = between::<T>([rows, columns]);
        let each = |len: usize| if with_places { len } else { 0 };
        let (to_places, rest) = part(rest, each(first))?;
        let (from_places, _) = part(rest, each(second))?;
        let (to_values, rest) = part(memory.view_mut(), first)?;
        let (from_values, _) = part(rest, second)?;
        let mut to = Pair { values: to_values, places: to_places };
        let mut from = Pair { values: from_values, places: from_places };
        let mut digits = Digits::new(config, [rows, columns], counts)?;
        for pass in 0..passes {
            let source = match pass {
                0 => (self.x, self.stride, None),
                _ => (from.values.as_view(), columns, with_places.then(|| from.places.as_view())),
            };
            if pass + 1 == passes {
                return digits.pass(cx, order, pass, source, values.take(), places.take());
            }
            let to_places = with_places.then(|| To::new(to.places.reborrow(), columns));
            digits.pass(cx, order, pass, source, Some(To::new(to.values.reborrow(), columns)), to_places)?;
            std::mem::swap(&mut from, &mut to);
        }
        Ok(())
    }
}

/// Whole numbers, none negative, and where each stood at first.
pub(crate) struct Keys<'a> {
    pub(crate) values: ViewMut<'a, i32>,
    pub(crate) places: ViewMut<'a, i32>,
}

impl<'a> Keys<'a> {
    /// Smaller tiles for the number of keys that a batch has, so that more multiprocessors have some.
    const SMALL: SortDigitsConfig = SortDigitsConfig { block: 512, num_warps: 4 };

    fn config(len: usize) -> SortDigitsConfig {
        if len <= 1 << 18 { Self::SMALL } else { SortDigitsConfig::choose() }
    }

    /// How many counts [`Keys::sort`] needs for so many keys.
    pub(crate) fn counts(len: usize) -> usize {
        counts_len(1, len, Self::config(len).block)
    }

    /// The keys in their order, equal ones as they stood: a pass for each byte that the largest one, below `limit`, has. Places
    /// need no values before. `spare` has the same length, and is the memory of one of two passes.
    pub(crate) fn sort(
        self,
        cx: &Context,
        limit: usize,
        spare: Keys<'a>,
        counts: ViewMut<'_, i32>,
    ) -> Result<Keys<'a>> {
        let (len, mut from, mut to) = (self.values.len(), self, spare);
        let mut digits = Digits::new(Self::config(len), [1, len], counts)?;
        let bits = usize::BITS - limit.saturating_sub(1).leading_zeros();
        for pass in 0..bits.div_ceil(8).max(1) as usize {
            let places = (pass > 0).then(|| from.places.as_view());
            let written = (To::new(to.values.reborrow(), len), To::new(to.places.reborrow(), len));
            let source = (from.values.as_view(), len, places);
            digits.pass(cx, Order::Ascending, pass, source, Some(written.0), Some(written.1))?;
            std::mem::swap(&mut from, &mut to);
        }
        Ok(from)
    }
}

/// Counts of each tile of rows, and of rows.
fn counts_len(rows: usize, columns: usize, block: usize) -> usize {
    // The launch refuses tiles of nothing. More than can be counted is more than any memory has.
    (columns.div_ceil(block.max(1)) + 1).saturating_mul(DIGITS).saturating_mul(rows)
}

/// The counts of digits, and how rows are divided.
struct Digits<'a> {
    config: SortDigitsConfig,
    rows: usize,
    columns: usize,
    counts: ViewMut<'a, i32>,
    totals: ViewMut<'a, i32>,
}

impl<'a> Digits<'a> {
    /// `counts` has [`counts_len`] elements.
    fn new(config: SortDigitsConfig, [rows, columns]: [usize; 2], counts: ViewMut<'a, i32>) -> Result<Self> {
        let (totals, counts) = counts.split_at_mut(rows * DIGITS)?;
        Ok(Digits { config, rows, columns, counts, totals })
    }

    /// Orders rows by one digit. `x` comes with the distance of rows, and with places where it is not as it was at first.
    fn pass<T: Number>(
        &mut self,
        cx: &Context,
        order: Order,
        pass: usize,
        (x, x_stride, x_places): (View<'_, T>, usize, Option<View<'_, i32>>),
        values: Option<To<'_, T>>,
        places: Option<To<'_, i32>>,
    ) -> Result<()> {
        let Digits { config: SortDigitsConfig { block, num_warps }, rows, columns, .. } = *self;
        let (tiles, shift) = (columns.div_ceil(block.max(1)), 8 * pass as i32);
        CountDigitsConsts { SIGNED: T::SIGNED, FLOAT: T::FLOAT, DESCENDING: order == Order::Descending, BLOCK: block }
            .call::<T, T::Bits>(x, self.counts.reborrow(), columns as i32, shift, x_stride as i64)
            .grid((rows, tiles))
            .num_warps(num_warps as u32)
            .stream(cx.stream())
            .launch(cx.device())?;
        DigitOffsetsConsts { TILES: SUMMED.0, PART: SUMMED.1 }
            .call(self.counts.reborrow(), self.totals.reborrow(), tiles as i32)
            .grid((rows, DIGITS / SUMMED.1))
            .num_warps(4)
            .stream(cx.stream())
            .launch(cx.device())?;
        let (values_stride, places_stride) = (stride(&values), stride(&places));
        MoveDigitsConsts {
            SIGNED: T::SIGNED,
            FLOAT: T::FLOAT,
            DESCENDING: order == Order::Descending,
            ROWS: block / ROW,
        }
        .call::<T, T::Bits>(
            x,
            MaybeView::from(x_places),
            self.counts.as_view(),
            self.totals.as_view(),
            MaybeViewMut::from(values.map(|to| to.elements)),
            MaybeViewMut::from(places.map(|to| to.elements)),
            columns as i32,
            shift,
            x_stride as i64,
            columns as i64,
            values_stride,
            places_stride,
        )
        .grid((rows, tiles))
        .num_warps(num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn digits_are_moved_in_registers() {
        let target = Target::sm_90a();
        let consts = MoveDigitsConsts { SIGNED: true, FLOAT: false, DESCENDING: false, ROWS: Keys::SMALL.block / ROW };
        let compiled =
            consts.request::<i32, u32>(true, true, true).num_warps(Keys::SMALL.num_warps as u32).compile(target);
        check_instructions("keys are moved", compiled, &[]);
        let SortDigitsConfig { block, num_warps } = SortDigitsConfig::choose();
        let consts = CountDigitsConsts { SIGNED: true, FLOAT: true, DESCENDING: false, BLOCK: block };
        let compiled = consts.request::<f32, u32>().num_warps(num_warps as u32).compile(target);
        check_instructions("digits are counted", compiled, &["ld.global.nc.v4.b32"]);
        let consts = MoveDigitsConsts { SIGNED: true, FLOAT: true, DESCENDING: false, ROWS: block / ROW };
        let compiled = consts.request::<f32, u32>(true, true, true).num_warps(num_warps as u32).compile(target);
        check_instructions("digits are moved", compiled, &["ld.global.nc.v4.b32"]);
        let consts = DigitOffsetsConsts { TILES: SUMMED.0, PART: SUMMED.1 };
        check_instructions("offsets of digits", consts.request().num_warps(4).compile(target), &[]);
    }
}
