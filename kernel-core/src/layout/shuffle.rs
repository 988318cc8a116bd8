//! Conversions inside a warp, as select, shuffle, select.
//!
//! A conversion maps a destination place `(register, lane)` to the source place that holds its element:
//! `M(r', l')`, linear over GF(2). One `shfl` lets every lane read *one* value of *one* other lane,
//! so a naive "one shuffle per destination register" fails as soon as two lanes want different
//! registers of the same lane.
//!
//! The way out is to let each lane receive its registers in its own order. In round `k`, lane `l'`
//! receives its register `k ^ S(l')`, where the linear map `S` (lanes to registers) is chosen such that
//! the lane read, `T(l') = lane part of M(S(l'), l')`, is a permutation of the lanes. Then
//!
//! 1. *pre*: each lane brings the value that it must send in round `k` to place `k` of its list,
//!    by conditional exchanges that depend on its lane number alone;
//! 2. *exchange*: one shuffle per round, from lane `T(l') ^ constant`;
//! 3. *post*: each lane puts register `k ^ S(l')` back to its place, again by conditional exchanges.
//!
//! Where lanes hold copies, `T` need not be a permutation: it is enough that lanes which read the
//! same lane want the same value. Registers that hold copies are received once.
//!
//! Narrow elements that move together are one value: a word.
//!
//! A transposition of one register bit and one lane bit gives one exchange before, one after,
//! and a butterfly shuffle for half of the registers, which is the sequence of Triton's
//! `convert_layout` (Zhou et al., "Linear Layouts", arXiv 2505.23819).

use super::gf2::{Subspace, combine, nullspace};
use super::warp_map::WarpMap;
use super::{ColumnAction, LayoutDim, LinearForm};

/// A conditional exchange over a list of values: `new[i] = if condition { old[i ^ xor] } else { old[i] }`.
///
/// The condition is the parity of the chosen bits of the lane and of the warp,
/// almost always a single bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectLevel {
    /// What to XOR to the index of a value.
    pub xor: u32,
    /// The bits of the lane number in the condition.
    pub lanes: u32,
    /// The bits of the warp number in the condition.
    pub warps: u32,
}

impl SelectLevel {
    /// The condition in one thread.
    pub fn holds(&self, lane: u32, warp: u32) -> bool {
        ((lane & self.lanes).count_ones() + (warp & self.warps).count_ones()) % 2 == 1
    }
}

/// One round of a [`ShufflePlan`]: all lanes send a value and receive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The value sent, an index into the list after the `pre` levels.
    pub send: u32,
    /// The constant part of the lane to read from.
    pub lane_xor: u32,
}

/// The instruction that an [`Exchange`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShuffleKind {
    /// Each lane keeps its value.
    None,
    /// `shfl.bfly`: from `lane ^ mask`.
    Butterfly(u32),
    /// `shfl.idx`: from the plan's `source_lane`, XORed with the constant.
    Indexed(u32),
}

/// A conversion inside a warp, as pure data: see the module's documentation.
///
/// To execute it in a thread, with `registers` those of the source:
/// ```text
/// values = words of per_word elements of gather(registers)
/// for level in pre:      values[i] = level.holds ? values[i ^ level.xor] : values[i]      (all i at once)
/// for (k, e) in exchanges: slots[k] = shfl(values[e.send], from = source_lane(lane, warp) ^ e.lane_xor)
/// for level in post:     slots[i] = level.holds ? slots[i ^ level.xor] : slots[i]
/// result[r] = elements[result.source_of(r)]                          elements of the slots, one after the other
/// ```
/// [`ShufflePlan::run`] is that, for a generator of code or a simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShufflePlan {
    /// Takes the source's registers to the elements of the words that are sent, one word after the other.
    pub gather: ColumnAction,
    /// Elements of a word: with more than one, a word has 32 bits at most.
    pub per_word: u32,
    /// Exchanges among the words, before.
    pub pre: Vec<SelectLevel>,
    /// The rounds.
    pub exchanges: Vec<Exchange>,
    /// The lane to read from, as a form over [`LayoutDim::Lane`] and [`LayoutDim::Warp`].
    pub source_lane: LinearForm,
    /// Whether `source_lane` is the lane itself in every warp.
    pub lanes_stay: bool,
    /// Exchanges among the values received, after.
    pub post: Vec<SelectLevel>,
    /// Takes the elements of the words received to the destination's registers.
    pub result: ColumnAction,
}

impl ShufflePlan {
    /// The instruction of round `k`.
    pub fn kind(&self, exchange: &Exchange) -> ShuffleKind {
        match (self.lanes_stay, exchange.lane_xor) {
            (true, 0) => ShuffleKind::None,
            (true, mask) => ShuffleKind::Butterfly(mask),
            (false, constant) => ShuffleKind::Indexed(constant),
        }
    }

    /// The number of shuffle instructions, where a word has 32 bits at most.
    pub fn shuffles(&self) -> usize {
        self.exchanges.iter().filter(|exchange| self.kind(exchange) != ShuffleKind::None).count()
    }

    /// The number of exchange levels on the longer side: Triton's "mixed transpositions".
    pub fn levels(&self) -> usize {
        self.pre.len().max(self.post.len())
    }

    /// The words of all `registers` of the source, of which `pack` makes one of several elements, from the lowest.
    ///
    /// # Errors
    /// Those of `pack`.
    pub fn words<V: Clone, E>(&self, registers: &[V], mut pack: impl FnMut(&[V]) -> Result<V, E>) -> Result<Vec<V>, E> {
        let elements = self.gather.apply(registers);
        match self.per_word {
            1 => Ok(elements),
            several => elements.chunks(several as usize).map(&mut pack).collect(),
        }
    }

    /// The registers of the destination, from the words received, which `unpack` divides into their elements.
    ///
    /// # Errors
    /// Those of `unpack`.
    pub fn registers<V: Clone, E>(
        &self,
        words: Vec<V>,
        unpack: impl FnMut(V) -> Result<Vec<V>, E>,
    ) -> Result<Vec<V>, E> {
        let elements = match self.per_word {
            1 => words,
            _ => words.into_iter().map(unpack).collect::<Result<Vec<Vec<V>>, E>>()?.concat(),
        };
        Ok(self.result.apply(&elements))
    }

    /// Takes [words](Self::words) to those received. Values are whatever the caller deals in (IR values, or all threads'
    /// data): `select(level, if_true, if_false)` and `shuffle(kind, value)` emit the two instructions. Values that are not
    /// needed are not asked for.
    ///
    /// # Errors
    /// Those of `select` and `shuffle`.
    pub fn run<V: Clone, E>(
        &self,
        words: &[V],
        mut select: impl FnMut(&SelectLevel, &V, &V) -> Result<V, E>,
        mut shuffle: impl FnMut(ShuffleKind, &V) -> Result<V, E>,
    ) -> Result<Vec<V>, E> {
        let sent: Vec<u32> = self.exchanges.iter().map(|exchange| exchange.send).collect();
        let sent = run_levels(&self.pre, words, &sent, &mut select)?;
        let mut slots = Vec::with_capacity(sent.len());
        for (exchange, value) in self.exchanges.iter().zip(&sent) {
            slots.push(match self.kind(exchange) {
                ShuffleKind::None => value.clone(),
                kind => shuffle(kind, value)?,
            });
        }
        let wanted: Vec<u32> = (0..slots.len() as u32).collect();
        run_levels(&self.post, &slots, &wanted, &mut select)
    }
}

/// The values at the places `wanted`, after all `levels`; computes only those that are needed.
fn run_levels<V: Clone, E>(
    levels: &[SelectLevel],
    values: &[V],
    wanted: &[u32],
    select: &mut impl FnMut(&SelectLevel, &V, &V) -> Result<V, E>,
) -> Result<Vec<V>, E> {
    let mut needed = vec![vec![false; values.len()]; levels.len() + 1];
    for &place in wanted {
        needed[levels.len()][place as usize] = true;
    }
    for (index, level) in levels.iter().enumerate().rev() {
        for place in 0..values.len() {
            if needed[index + 1][place] {
                needed[index][place] = true;
                needed[index][place ^ level.xor as usize] = true;
            }
        }
    }
    let mut current: Vec<Option<V>> = values.iter().cloned().map(Some).collect();
    for (index, level) in levels.iter().enumerate() {
        let mut next = vec![None; values.len()];
        for place in (0..values.len()).filter(|&place| needed[index + 1][place]) {
            if let (Some(stay), Some(move_in)) = (&current[place], &current[place ^ level.xor as usize]) {
                next[place] = Some(select(level, move_in, stay)?);
            }
        }
        current = next;
    }
    Ok(wanted.iter().filter_map(|&place| current[place as usize].clone()).collect())
}

/// Plans the conversion `map`; `None` where lanes that hold copies defeat the scheme.
pub(super) fn plan(map: &WarpMap) -> Option<ShufflePlan> {
    let register_mask = (1u64 << map.register_bits) - 1;
    let registers = |place: u64| place & register_mask;
    let lanes = |place: u64| place >> map.register_bits;
    let (reads, skew) = choose_skew(map)?;

    // What a lane must have for sale depends on who reads it: `ask` takes the lane read to the registers asked for.
    let mut ask = Subspace::new();
    for &read in &reads {
        ask.insert(lanes(read), registers(read)).ok();
    }
    for bit in 0..map.lanes.len() {
        ask.insert(1 << bit, 0).ok();
    }
    let ask = |lane: u64| ask.express(lane).unwrap_or(0);

    let exchange = |slot: u64| {
        let place = combine(&map.slots, slot);
        Exchange { send: (registers(place) ^ ask(lanes(place))) as u32, lane_xor: lanes(place) as u32 }
    };
    let by_lane: Vec<u64> = (0..map.lanes.len()).map(|bit| ask(1 << bit)).collect();
    let by_warp: Vec<u64> = map.warps.iter().map(|&place| registers(place) ^ ask(lanes(place))).collect();
    let lane_bases: Vec<u32> = reads.iter().map(|&read| lanes(read) as u32).collect();
    let warp_bases: Vec<u32> = map.warps.iter().map(|&place| lanes(place) as u32).collect();
    let lanes_stay =
        lane_bases.iter().enumerate().all(|(bit, &base)| base == 1 << bit) && warp_bases.iter().all(|&base| base == 0);
    Some(ShufflePlan {
        gather: map.gather.clone(),
        per_word: map.per_word,
        pre: select_levels(&by_lane, &by_warp),
        exchanges: (0..1 << map.slots.len()).map(exchange).collect(),
        source_lane: LinearForm { bases: vec![(LayoutDim::Lane, lane_bases), (LayoutDim::Warp, warp_bases)] },
        lanes_stay,
        post: select_levels(&skew, &[]),
        result: map.result.clone(),
    })
}

/// Chooses `S`: returns per lane bit the place read in round 0, and `S` itself (slot bits).
///
/// Lanes in the kernel of the lane part all read the same lane; that is right only where they also want the same
/// register. Otherwise one of them is skewed by a slot (or a redundancy of the source) that reads another lane.
fn choose_skew(map: &WarpMap) -> Option<(Vec<u64>, Vec<u64>)> {
    let lanes = |place: u64| place >> map.register_bits;
    let mut reads = map.lanes.clone();
    let mut skew = vec![0u64; reads.len()];
    let slots = map.slots.iter().enumerate().map(|(bit, &place)| (place, 1u64 << bit));
    let freedom: Vec<(u64, u64)> = slots.chain(map.redundant.iter().map(|&place| (place, 0))).collect();
    loop {
        let lane_parts: Vec<u64> = reads.iter().map(|&read| lanes(read)).collect();
        let mut clashes = nullspace(&lane_parts).into_iter();
        let Some(clash) = clashes.find(|&clash| combine(&reads, clash) != 0) else {
            return Some((reads, skew));
        };
        let image = Subspace::of(lane_parts.iter().copied());
        let mut useful = freedom.iter().filter(|(place, _)| !image.contains(lanes(*place)));
        let clashing: Vec<usize> = (0..reads.len()).filter(|lane| clash >> lane & 1 == 1).collect();
        // A lane that then reads itself makes the shuffle a butterfly.
        let homing = useful.clone().find_map(|&step| {
            let home = clashing.iter().find(|&&lane| lane_parts[lane] ^ lanes(step.0) == 1 << lane);
            home.map(|&lane| (lane, step))
        });
        let any = clashing.first().copied().zip(useful.next().copied());
        let (lane, (place, slots)) = match homing.or(any) {
            Some(found) => found,
            // All lanes that can be read are: the clash must vanish, because a slot holds the same value.
            None => (*clashing.last()?, cancel(combine(&reads, clash), &freedom)?),
        };
        reads[lane] ^= place;
        skew[lane] ^= slots;
    }
}

/// The combination of `freedom` that equals `place`.
fn cancel(place: u64, freedom: &[(u64, u64)]) -> Option<(u64, u64)> {
    let mut span = Subspace::new();
    for &(vector, slots) in freedom {
        span.insert(vector, slots).ok();
    }
    span.express(place).map(|slots| (place, slots))
}

/// Writes "XOR `by_lane[b]` per lane bit and `by_warp[b]` per warp bit to the index" as few exchanges.
fn select_levels(by_lane: &[u64], by_warp: &[u64]) -> Vec<SelectLevel> {
    let mut span = Subspace::new();
    let mut basis = Vec::new();
    for &vector in by_lane.iter().chain(by_warp) {
        if span.insert(vector, 1 << basis.len()).is_ok() {
            basis.push(vector);
        }
    }
    let condition = |vectors: &[u64], level: usize| {
        let bits = vectors.iter().enumerate();
        let used = bits.filter(|(_, vector)| span.express(**vector).unwrap_or(0) >> level & 1 == 1);
        used.fold(0, |mask, (bit, _)| mask | 1u32 << bit)
    };
    let levels = basis.iter().enumerate().map(|(level, &vector)| SelectLevel {
        xor: vector as u32,
        lanes: condition(by_lane, level),
        warps: condition(by_warp, level),
    });
    levels.collect()
}
