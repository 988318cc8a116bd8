//! Tokens sorted by expert.
//!
//! A pair is a token and one of its experts; they are numbered as the router chose them. Sorting counts the pairs of each
//! expert in each chunk of pairs, adds the counts up, and puts each pair behind those of its expert before it: the order of an
//! expert's pairs is that of their numbers, whatever order programs run in.

use crate::arguments::packed;
use crate::general::fill;
use crate::workspace::{Memory, part, product, room};
use crate::{Context, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Buffer, Result, View, ViewMut};

/// Rows of tokens in the order of their experts. An expert's rows begin at a multiple of a block, so that no block has rows of
/// two; what is between is padding.
#[derive(Debug)]
pub struct Groups {
    pairs: Buffer<i32>,
    rows: Buffer<i32>,
    owners: Buffer<i32>,
    ends: Buffer<i32>,
    used: Buffer<i32>,
    sizes: Sizes,
}

/// What groups are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub tokens: usize,
    /// Experts of each token.
    pub chosen: usize,
    pub experts: usize,
    /// Rows of a block.
    pub block: usize,
}

/// Lists of sorted pairs, to read.
#[derive(Clone, Copy)]
pub(super) struct Lists<'a> {
    /// The pair of each row, -1 for padding.
    pub pairs: View<'a, i32>,
    /// The row of each pair.
    pub rows: View<'a, i32>,
    /// The expert of each block of rows.
    pub owners: View<'a, i32>,
    /// Where the blocks of each expert end.
    pub ends: View<'a, i32>,
    /// How many blocks there are: one number.
    pub used: View<'a, i32>,
    pub sizes: Sizes,
}

/// The same to write, and room for counts.
pub(super) struct ListsMut<'a> {
    pairs: ViewMut<'a, i32>,
    rows: ViewMut<'a, i32>,
    owners: ViewMut<'a, i32>,
    ends: ViewMut<'a, i32>,
    used: ViewMut<'a, i32>,
    counts: ViewMut<'a, i32>,
    sizes: Sizes,
}

/// Pairs that a program counts and places.
pub(super) const CHUNK: usize = 64;

/// Elements of a tile of the one program that places experts: more would not stay in registers.
pub(super) const PART: usize = 2048;

/// How many pairs of a chunk each expert has.
#[kernel]
pub(super) fn count_pairs<const CHUNK: usize, const E: usize>(
    chosen: Ptr<i32>,
    counts: PtrMut<i32>,
    pairs: i32,
    experts: i32,
) {
    let pair = program_id(0) * CHUNK + arange(0, CHUNK);
    let expert = load(chosen + pair, mask = pair < pairs);
    store(counts + program_id(0) * E + arange(0, E), histogram(expert, E, mask = (pair < pairs) & (expert < experts)));
}

/// Where each expert's rows of each chunk begin, instead of their counts; whose each block is, and how many there are.
#[kernel]
pub(super) fn place_experts<const E: usize, const CHUNKS: usize, const BLOCKS: usize>(
    counts: PtrMut<i32>,
    owners: PtrMut<i32>,
    ends_of: PtrMut<i32>,
    used: PtrMut<i32>,
    chunks: i32,
    block: i32,
    most: i32,
    experts: i32,
) {
    let expert = arange(0, E);
    let mut total = zeros::<i32>([E]);
    for first in (0..chunks).step_by(CHUNKS) {
        let chunk = first + arange(0, CHUNKS)[(.., None)];
        total += sum(load(counts + chunk * E + expert, mask = chunk < chunks), axis = 0);
    }
    let blocks = cdiv(total, block);
    let ends = cumsum(blocks, axis = 0);
    let mut next = (ends - blocks) * block;
    for first in (0..chunks).step_by(CHUNKS) {
        let chunk = first + arange(0, CHUNKS)[(.., None)];
        let count = load(counts + chunk * E + expert, mask = chunk < chunks);
        store(counts + chunk * E + expert, next + cumsum(count, axis = 0) - count, mask = chunk < chunks);
        next += sum(count, axis = 0);
    }
    for first in (0..most).step_by(BLOCKS) {
        let which = first + arange(0, BLOCKS);
        let owner = sum((ends[(None, ..)] <= which[(.., None)]) as i32, axis = 1);
        store(owners + which, minimum(owner, E as i32 - 1), mask = which < most);
    }
    store(ends_of + expert, minimum(ends, most), mask = expert < experts);
    store(used, minimum(max(ends), most));
}

/// The row of each pair, and the pair of each row.
#[kernel(max_registers = 96)]
pub(super) fn place_pairs<const CHUNK: usize, const E: usize>(
    chosen: Ptr<i32>,
    starts: Ptr<i32>,
    rows: PtrMut<i32>,
    pairs: PtrMut<i32>,
    count: i32,
    experts: i32,
) {
    let pair = program_id(0) * CHUNK + arange(0, CHUNK);
    let own = load(chosen + pair, mask = pair < count, other = -1);
    let is_expert = (own >= 0) & (own < experts);
    let start = load(starts + program_id(0) * E + own, mask = is_expert);
    let is_before = (own[(None, ..)] == own[(.., None)]) & (pair < pair[(.., None)]);
    let row = select(is_expert, start + sum(is_before as i32, axis = 1), -1);
    store(rows + pair, row, mask = pair < count);
    store(pairs + row, pair, mask = is_expert);
}

impl Sizes {
    /// Blocks that suit a device and the pairs that each expert has on average.
    pub(super) fn of(cx: &Context, [tokens, chosen]: [usize; 2], experts: usize) -> Result<Sizes> {
        let each = product(&[tokens, chosen]).div_ceil(experts.max(1));
        let block = match each {
            _ if !cx.device().is_cuda() => 16,
            0..=16 => 16,
            17..=128 => 64,
            _ => 128,
        };
        Self::with_block([tokens, chosen], experts, block)
    }

    fn with_block([tokens, chosen]: [usize; 2], experts: usize, block: usize) -> Result<Sizes> {
        if experts == 0 || experts > 1024 || !block.is_power_of_two() {
            let shape = [tokens, chosen];
            let problem =
                format!("of the shape {shape:?} is to be sorted among {experts} experts in blocks of {block}");
            return Err(check::invalid("chosen", problem, "give 1 to 1024 experts and a power of two"));
        }
        let sizes = Sizes { tokens, chosen, experts, block };
        check::size("chosen", sizes.height())?;
        check::size("chosen", sizes.counts())?;
        Ok(sizes)
    }

    fn pairs(&self) -> usize {
        product(&[self.tokens, self.chosen])
    }

    /// The most blocks: each expert that has rows may have one that is not full.
    fn blocks(&self) -> usize {
        let pairs = self.pairs();
        pairs.saturating_add(product(&[self.experts.min(pairs), self.block - 1])) / self.block
    }

    /// Rows with padding.
    pub(super) fn height(&self) -> usize {
        product(&[self.blocks(), self.block])
    }

    /// Counts of each chunk of pairs.
    fn counts(&self) -> usize {
        product(&[self.pairs().div_ceil(CHUNK), self.wide()])
    }

    /// Experts of a tile.
    fn wide(&self) -> usize {
        self.experts.next_power_of_two()
    }

    /// Elements of lists and counts, in the order of [`ListsMut`].
    fn lens(&self) -> [usize; 6] {
        [self.height(), self.pairs(), self.blocks(), self.experts, 1, self.counts()]
    }

    /// How many elements all of [`ListsMut`] takes.
    pub(super) fn room(&self) -> usize {
        room(&self.lens())
    }
}

impl<'a> ListsMut<'a> {
    /// In memory of [`Sizes::room`].
    pub(super) fn of(memory: ViewMut<'a, i32>, sizes: Sizes) -> Result<Self> {
        let [height, pairs, blocks, experts, one, counts] = sizes.lens();
        let (of_rows, rest) = part(memory, height)?;
        let (rows, rest) = part(rest, pairs)?;
        let (owners, rest) = part(rest, blocks)?;
        let (ends, rest) = part(rest, experts)?;
        let (used, rest) = part(rest, one)?;
        let (counts, _) = part(rest, counts)?;
        Ok(ListsMut { pairs: of_rows, rows, owners, ends, used, counts, sizes })
    }

    pub(super) fn lists(&self) -> Lists<'_> {
        Lists {
            pairs: self.pairs.as_view(),
            rows: self.rows.as_view(),
            owners: self.owners.as_view(),
            ends: self.ends.as_view(),
            used: self.used.as_view(),
            sizes: self.sizes,
        }
    }

    /// Sorts choices that have no gaps. All lists are written.
    pub(super) fn sort(&mut self, cx: &Context, chosen: View<'_, i32>) -> Result<()> {
        let (device, sizes @ Sizes { experts, block, .. }) = (cx.device(), self.sizes);
        let (pairs, wide, blocks) = (sizes.pairs(), sizes.wide(), sizes.blocks());
        fill(cx, self.pairs.reborrow(), -1)?;
        if pairs == 0 {
            for list in [&mut self.owners, &mut self.ends, &mut self.used] {
                fill(cx, list.reborrow(), 0)?;
            }
            return Ok(());
        }
        let chunks = pairs.div_ceil(CHUNK);
        CountPairsConsts { CHUNK, E: wide }
            .call(chosen, self.counts.reborrow(), pairs as i32, experts as i32)
            .grid(chunks)
            .num_warps(4)
            .stream(cx.stream())
            .launch(device)?;
        PlaceExpertsConsts { E: wide, CHUNKS: (PART / wide).min(64), BLOCKS: (PART / wide).min(64) }
            .call(
                self.counts.reborrow(),
                self.owners.reborrow(),
                self.ends.reborrow(),
                self.used.reborrow(),
                chunks as i32,
                block as i32,
                blocks as i32,
                experts as i32,
            )
            .grid(1)
            .num_warps(8)
            .stream(cx.stream())
            .launch(device)?;
        let (rows, of_rows) = (self.rows.reborrow(), self.pairs.reborrow());
        PlacePairsConsts { CHUNK, E: wide }
            .call(chosen, self.counts.as_view(), rows, of_rows, pairs as i32, experts as i32)
            .grid(chunks)
            .num_warps(4)
            .stream(cx.stream())
            .launch(device)
    }
}

impl Groups {
    /// Sorts `[tokens, k]` choices among so many experts. Numbers that are no expert's are left out. Beside the groups, counts are
    /// allocated, as [`sort_workspace`] says.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if there are more than 1024 experts or choices have gaps, [`Error::OutOfMemory`], those of a
    /// launch.
    pub fn new<'a>(cx: &Context, chosen: impl Into<TensorView<'a, i32, 2>>, experts: usize) -> Result<Groups> {
        let chosen = chosen.into();
        let mut groups = Self::unwritten(cx, Sizes::of(cx, chosen.shape(), experts)?)?;
        sort_into(cx, chosen, &mut groups)?;
        Ok(groups)
    }

    /// [`Groups::new`] with blocks of so many rows, a power of two.
    ///
    /// # Errors
    ///
    /// As [`Groups::new`].
    pub fn with_block<'a>(
        cx: &Context,
        chosen: impl Into<TensorView<'a, i32, 2>>,
        experts: usize,
        block: usize,
    ) -> Result<Groups> {
        let chosen = chosen.into();
        let mut groups = Self::unwritten(cx, Sizes::with_block(chosen.shape(), experts, block)?)?;
        sort_into(cx, chosen, &mut groups)?;
        Ok(groups)
    }

    /// Groups for choices of this shape, `[tokens, k]`, among so many experts, as [`Groups::new`] makes them: [`sort_into`] sorts
    /// choices into them. Until then there are no pairs.
    ///
    /// # Errors
    ///
    /// As [`Groups::new`].
    pub fn unsorted(cx: &Context, chosen: [usize; 2], experts: usize) -> Result<Groups> {
        let mut groups = Self::unwritten(cx, Sizes::of(cx, chosen, experts)?)?;
        for (list, value) in [
            (&mut groups.pairs, -1),
            (&mut groups.rows, -1),
            (&mut groups.owners, 0),
            (&mut groups.ends, 0),
            (&mut groups.used, 0),
        ] {
            fill(cx, list.as_view_mut(), value)?;
        }
        Ok(groups)
    }

    /// Sorting writes all of it.
    fn unwritten(cx: &Context, sizes: Sizes) -> Result<Groups> {
        let device = cx.device();
        Ok(Groups {
            pairs: device.empty(sizes.height())?,
            rows: device.empty(sizes.pairs())?,
            owners: device.empty(sizes.blocks())?,
            ends: device.empty(sizes.experts)?,
            used: device.empty(1)?,
            sizes,
        })
    }

    pub(super) fn lists(&self) -> Lists<'_> {
        Lists {
            pairs: self.pairs.as_view(),
            rows: self.rows.as_view(),
            owners: self.owners.as_view(),
            ends: self.ends.as_view(),
            used: self.used.as_view(),
            sizes: self.sizes,
        }
    }

    /// Rows with padding: those of [`gather`](super::gather) and of products.
    pub fn height(&self) -> usize {
        self.pairs.len()
    }

    /// Rows of a block.
    pub fn block(&self) -> usize {
        self.sizes.block
    }

    /// The pair `token * k + choice` of each row, -1 for padding.
    pub fn pairs(&self) -> &Buffer<i32> {
        &self.pairs
    }

    /// The row of each pair.
    pub fn rows(&self) -> &Buffer<i32> {
        &self.rows
    }
}

/// Sorts choices of the shape that groups are for, as [`Groups::new`] does. Counts are allocated for the call.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if choices have another shape or gaps, [`Error::OutOfMemory`], those of a launch.
pub fn sort_into<'a>(cx: &Context, chosen: impl Into<TensorView<'a, i32, 2>>, groups: &mut Groups) -> Result<()> {
    sort(cx, chosen.into(), groups, None)
}

/// [`sort_into`], with a workspace for counts, of as many elements as [`sort_workspace`] says, or more, without gaps; what it holds
/// does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`sort_into`], and [`Error::InvalidTensor`] if the workspace has gaps or is too small.
pub fn sort_into_with<'a, 'b>(
    cx: &Context,
    chosen: impl Into<TensorView<'a, i32, 2>>,
    groups: &mut Groups,
    workspace: impl Into<TensorViewMut<'b, i32, 1>>,
) -> Result<()> {
    sort(cx, chosen.into(), groups, Some(workspace.into()))
}

/// How many elements [`sort_into_with`] needs as its workspace for these groups: for each 64 pairs one for each expert, whose number is
/// rounded up to a power of two.
pub fn sort_workspace(groups: &Groups) -> usize {
    groups.sizes.counts()
}

fn sort(
    cx: &Context,
    chosen: TensorView<'_, i32, 2>,
    groups: &mut Groups,
    workspace: Option<TensorViewMut<'_, i32, 1>>,
) -> Result<()> {
    let Groups { pairs, rows, owners, ends, used, sizes } = groups;
    check::shape("chosen", chosen.shape(), [sizes.tokens, sizes.chosen])?;
    packed("chosen", chosen.is_contiguous())?;
    let mut counts = Memory::of(cx, "workspace", workspace, sizes.counts())?;
    let mut lists = ListsMut {
        pairs: pairs.as_view_mut(),
        rows: rows.as_view_mut(),
        owners: owners.as_view_mut(),
        ends: ends.as_view_mut(),
        used: used.as_view_mut(),
        counts: counts.view_mut(),
        sizes: *sizes,
    };
    lists.sort(cx, chosen.elements())
}
