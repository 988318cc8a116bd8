//! How threads put the elements along an axis in order: a bitonic network, laid over registers, lanes and warps.
//!
//! A stage of the network makes sorted runs twice as long. It compares elements whose places differ in one bit, from the
//! highest bit inside the run to the lowest. Both are always registers of one thread: a bit of the place that is held by
//! lanes or warps changes places with one that is held by registers and not compared for the longest time, for which each
//! thread passes on half of its registers. Every comparison puts the lower element first; runs that have to come out in
//! descending order are inverted meanwhile ([`SortStep::Turn`]).
//!
//! In which order the elements come in does not matter: the bits of places are dealt out to registers first.
//!
//! If only the lowest are kept, runs of so many are sorted, in pairs one up and one down. Of two such runs the lower of
//! each two elements in the same place are the lowest of both, and one more merge sorts them: half the elements each time.

use super::{LayoutDim, LayoutError, LinearLayout};

/// A step of the network. Registers, lanes and warps are given by masks of the bits of their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortStep {
    /// Inverts the order of the elements for which an odd number of these bits is set.
    Turn {
        /// Bits of the register.
        registers: u32,
        /// Bits of the lane.
        lanes: u32,
        /// Bits of the warp.
        warps: u32,
    },
    /// Each register becomes two: a new bit, above all others, that makes no difference.
    Double,
    /// Exchanges a bit of the register with a bit of the lane or of the warp.
    Swap {
        /// The bit of the register.
        register: u32,
        /// The bit of the lane, or 0.
        lane: u32,
        /// The bit of the warp, or 0.
        warp: u32,
    },
    /// Of two registers that differ in this bit, the one without it gets the lower element and the other one the higher.
    Compare {
        /// The bit.
        register: u32,
    },
    /// Of two registers that differ in this bit only the lower element is kept, and the bit is gone.
    Halve {
        /// The bit.
        register: u32,
    },
}

/// The steps that sort along an axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SortPlan {
    /// In order.
    pub steps: Vec<SortStep>,
    /// Where the elements are afterwards.
    pub result: LinearLayout,
}

/// What a bit of the hardware tells apart.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Bit {
    /// Places in the order that differ in this bit.
    Place(u32),
    /// Coordinates along other axes.
    Other(Vec<u32>),
    /// Nothing.
    Free,
}

const DIMS: [LayoutDim; 3] = [LayoutDim::Register, LayoutDim::Lane, LayoutDim::Warp];

struct Network {
    /// Per dimension, its bits from the lowest.
    bits: [Vec<Bit>; 3],
    steps: Vec<SortStep>,
    /// Bits of places in the order in which they are compared, the next one last.
    order: Vec<u32>,
    /// The bit of the places whose elements are inverted.
    turned: Option<u32>,
}

/// Plans to put the first `keep` elements along `axis` of a tile in this layout in ascending order.
///
/// # Errors
/// A basis moves along the axis and another, or several bits of the hardware hold one bit of the axis.
pub fn sort(layout: &LinearLayout, axis: u8, keep: u32) -> Result<SortPlan, LayoutError> {
    let (mut bits, places) = deal(layout, axis)?;
    if keep == 0 || !keep.is_power_of_two() || keep.ilog2() > places {
        return refuse(format!("{keep} of {} elements", 1u64 << places));
    }
    let kept = keep.ilog2();
    for register in &mut bits[0] {
        // Copies in registers would be sorted twice.
        if *register == Bit::Free {
            return refuse("registers that hold copies".to_string());
        }
    }
    let mut order = Vec::new();
    for run in 1..=kept {
        order.extend((0..run).rev());
    }
    for half in kept..places {
        order.push(half);
        order.extend((0..kept).rev());
    }
    order.reverse();
    let mut network = Network { bits, steps: Vec::new(), order, turned: None };
    for run in 1..=kept {
        network.merge(run, (run < places).then_some(run));
    }
    for half in kept..places {
        network.turn(None);
        let register = network.fetch();
        network.steps.push(SortStep::Halve { register });
        network.bits[0].remove(register.trailing_zeros() as usize);
        network.merge(kept, (half + 1 < places).then_some(half + 1));
    }
    let result = network.layout(layout, axis, keep)?;
    Ok(SortPlan { steps: network.steps, result })
}

fn refuse<T>(message: String) -> Result<T, LayoutError> {
    Err(LayoutError::BadParameters { constructor: "sort", message })
}

/// What the bits of the hardware tell apart, and how many of them places: registers have the lowest, then lanes.
fn deal(layout: &LinearLayout, axis: u8) -> Result<([Vec<Bit>; 3], u32), LayoutError> {
    let own = layout.outs().position(|(dim, _)| dim == LayoutDim::Axis(axis));
    let Some(own) = own else { return Err(LayoutError::UnknownDim(LayoutDim::Axis(axis))) };
    let (mut held, mut places) = (0u32, 0);
    let mut bits = [const { Vec::new() }; 3];
    for (dim, bits) in DIMS.into_iter().zip(&mut bits) {
        for basis in layout.bases(dim) {
            let along = basis[own];
            let elsewhere = basis.iter().enumerate().any(|(at, &step)| at != own && step != 0);
            bits.push(match (along, elsewhere) {
                (0, false) => Bit::Free,
                (0, true) => Bit::Other(basis),
                (_, false) if along.is_power_of_two() && held & along == 0 => {
                    (held, places) = (held | along, places + 1);
                    Bit::Place(places - 1)
                }
                (_, false | true) => return refuse(format!("the layout {layout} mixes the bits of axis {axis}")),
            });
        }
    }
    if places != layout.out_bits(LayoutDim::Axis(axis)) {
        return refuse(format!("the layout {layout} does not hold all of axis {axis}"));
    }
    Ok((bits, places))
}

impl Network {
    /// Merges pairs of runs: compares the lowest `bits` bits of places, from the highest. Those with the bit `turned`
    /// set come out in descending order.
    fn merge(&mut self, bits: u32, turned: Option<u32>) {
        if bits == 0 {
            return;
        }
        self.turn(turned);
        for _ in 0..bits {
            let register = self.fetch();
            self.steps.push(SortStep::Compare { register });
        }
    }

    /// Inverts elements, so that those are that have this bit of the place.
    fn turn(&mut self, turned: Option<u32>) {
        let changed: Vec<Bit> = [self.turned, turned].into_iter().flatten().map(Bit::Place).collect();
        let masks = self.bits.each_ref().map(|bits| {
            let holds = |bit: &Bit| u32::from(changed.contains(bit));
            bits.iter().enumerate().fold(0, |mask, (at, bit)| mask | holds(bit) << at)
        });
        let [registers, lanes, warps] = masks;
        if self.turned != turned && masks != [0; 3] {
            self.steps.push(SortStep::Turn { registers, lanes, warps });
        }
        self.turned = turned;
    }

    /// The register bit that tells apart what is compared next, once it does.
    fn fetch(&mut self) -> u32 {
        let next = Bit::Place(self.order.pop().unwrap_or_default());
        let at = |bits: &[Bit]| bits.iter().position(|bit| *bit == next);
        if let Some(register) = at(&self.bits[0]) {
            return 1 << register;
        }
        let register = self.least_needed();
        let (lane, warp) = (at(&self.bits[1]), at(&self.bits[2]));
        let mask = |bit: Option<usize>| bit.map_or(0, |bit| 1 << bit);
        let away = std::mem::replace(&mut self.bits[0][register], next);
        if let Some(lane) = lane {
            self.bits[1][lane] = away;
        } else if let Some(warp) = warp {
            self.bits[2][warp] = away;
        }
        let register = 1 << register;
        self.steps.push(SortStep::Swap { register, lane: mask(lane), warp: mask(warp) });
        register
    }

    /// The register bit whose place is not compared for the longest time.
    fn least_needed(&mut self) -> usize {
        let needed = |bit: &Bit| match bit {
            // Positions count from the last comparison.
            Bit::Place(place) => Some(self.order.iter().rposition(|next| next == place).map_or(0, |at| at + 1)),
            Bit::Free => Some(0),
            Bit::Other(_) => None,
        };
        let candidates = self.bits[0].iter().enumerate().filter_map(|(at, bit)| Some((needed(bit)?, at)));
        candidates.min().map_or_else(
            || {
                self.steps.push(SortStep::Double);
                self.bits[0].push(Bit::Free);
                self.bits[0].len() - 1
            },
            |(_, at)| at,
        )
    }

    /// Where the elements are.
    fn layout(&self, before: &LinearLayout, axis: u8, keep: u32) -> Result<LinearLayout, LayoutError> {
        let axis = LayoutDim::Axis(axis);
        let outs: Vec<(LayoutDim, u32)> =
            before.outs().map(|(dim, size)| (dim, if dim == axis { keep } else { size as u32 })).collect();
        let basis = |bit: &Bit| match bit {
            Bit::Place(place) => outs.iter().map(|&(dim, _)| if dim == axis { 1 << place } else { 0 }).collect(),
            Bit::Other(basis) => basis.clone(),
            Bit::Free => vec![0; outs.len()],
        };
        let ins: Vec<(LayoutDim, Vec<Vec<u32>>)> =
            DIMS.into_iter().zip(&self.bits).map(|(dim, bits)| (dim, bits.iter().map(basis).collect())).collect();
        LinearLayout::from_bases(&ins, &outs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Blocked;

    /// Runs a plan on one key per register, lane and warp; returns the elements along each row of the result.
    fn run(layout: &LinearLayout, plan: &SortPlan, key: impl Fn(&[u32]) -> u32) -> Vec<(Vec<u32>, u32)> {
        let odd = |number: usize, mask: u32| (number as u32 & mask).count_ones();
        let point = |layout: &LinearLayout, r: u32, lane: u32, warp: u32| -> Vec<u32> {
            let at = [(LayoutDim::Register, r), (LayoutDim::Lane, lane), (LayoutDim::Warp, warp)];
            layout.apply(&at).into_iter().map(|(_, x)| x).collect()
        };
        let (lanes, warps) = (layout.in_size(LayoutDim::Lane), layout.in_size(LayoutDim::Warp));
        let threads: Vec<(u32, u32)> = (0..warps).flat_map(|w| (0..lanes).map(move |l| (l, w))).collect();
        let registers = layout.in_size(LayoutDim::Register);
        let mut keys: Vec<Vec<u32>> =
            threads.iter().map(|&(l, w)| (0..registers).map(|r| key(&point(layout, r, l, w))).collect()).collect();
        for step in &plan.steps {
            let before = keys.clone();
            for (thread, (own, &(lane, warp))) in keys.iter_mut().zip(&threads).enumerate() {
                match *step {
                    SortStep::Turn { registers, lanes, warps } => {
                        for (r, key) in own.iter_mut().enumerate() {
                            let bits = odd(r, registers) + odd(lane as usize, lanes) + odd(warp as usize, warps);
                            *key = if bits % 2 == 1 { !*key } else { *key };
                        }
                    }
                    SortStep::Double => own.extend(before[thread].iter().copied()),
                    SortStep::Swap { register, lane: by_lane, warp: by_warp } => {
                        let upper = lane & by_lane != 0 || warp & by_warp != 0;
                        let other = ((warp ^ by_warp) * lanes + (lane ^ by_lane)) as usize;
                        for (r, key) in own.iter_mut().enumerate() {
                            if (r as u32 & register != 0) != upper {
                                *key = before[other][r ^ register as usize];
                            }
                        }
                    }
                    SortStep::Compare { register } | SortStep::Halve { register } => {
                        for r in (0..own.len()).filter(|r| *r as u32 & register == 0) {
                            let (a, b) = (own[r], own[r | register as usize]);
                            (own[r], own[r | register as usize]) = (a.min(b), a.max(b));
                        }
                        if matches!(step, SortStep::Halve { .. }) {
                            let mut r = 0;
                            own.retain(|_| {
                                r += 1;
                                (r - 1) & register == 0
                            });
                        }
                    }
                }
            }
        }
        let mut found = Vec::new();
        for (own, &(lane, warp)) in keys.iter().zip(&threads) {
            assert_eq!(own.len() as u32, plan.result.in_size(LayoutDim::Register));
            found.extend(own.iter().enumerate().map(|(r, &key)| (point(&plan.result, r as u32, lane, warp), key)));
        }
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn every_plan_sorts() {
        let mix = |x: u32| x.wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b) >> 8;
        for (shape, warps) in [(vec![512u32], 2), (vec![32], 1), (vec![16], 2), (vec![8, 64], 2), (vec![4, 2, 32], 4)] {
            let order: Vec<u8> = (0..shape.len() as u8).rev().collect();
            for per_thread in [1, 4] {
                let layout = Blocked::coalesced(&shape, &order, per_thread, warps).layout(&shape).unwrap();
                let layout = layout.remove_broadcast_registers().layout;
                for axis in 0..shape.len() {
                    let mut keep = shape[axis];
                    while keep > 0 {
                        let plan = sort(&layout, axis as u8, keep).unwrap();
                        let key =
                            |at: &[u32]| mix(at.iter().fold(7, |sum: u32, &x| sum.wrapping_mul(1031).wrapping_add(x)));
                        let mut expected = Vec::new();
                        for flat in 0..shape.iter().product::<u32>() {
                            let mut rest = flat;
                            let mut at: Vec<u32> =
                                shape.iter().rev().map(|&size| (rest % size, rest /= size).0).collect();
                            at.reverse();
                            let row =
                                |x: u32| (0..at.len()).map(|i| if i == axis { x } else { at[i] }).collect::<Vec<_>>();
                            let mut keys: Vec<u32> = (0..shape[axis]).map(|x| key(&row(x))).collect();
                            keys.sort_unstable();
                            if at[axis] < keep {
                                expected.push((at.clone(), keys[at[axis] as usize]));
                            }
                        }
                        expected.sort();
                        assert_eq!(
                            run(&layout, &plan, key),
                            expected,
                            "{keep} of {shape:?} along {axis}, {warps} warps"
                        );
                        keep /= 2;
                    }
                }
            }
        }
    }

    #[test]
    fn half_of_the_registers_go_to_other_threads() {
        let layout = Blocked::coalesced(&[4096], &[0], 4, 4).layout(&[4096]).unwrap();
        let count = |keep| {
            let plan = sort(&layout, 0, keep).unwrap();
            let swaps = |lanes: bool| {
                let swap = |step: &&SortStep| matches!(step, SortStep::Swap { warp, .. } if (*warp == 0) == lanes);
                plan.steps.iter().filter(swap).count()
            };
            (swaps(true), swaps(false))
        };
        assert!(count(4096).0 <= 32 && count(4096).1 <= 8);
    }
}
