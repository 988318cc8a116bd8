//! What each launch of a graph does to the graph's buffers, for whoever has to be told its errors.

use super::uses::{Touch, Use};
use crate::report_slot::LaunchId;
use smallvec::SmallVec;
use std::ops::Range;

/// The launches of a graph, in their order.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

#[derive(Debug, Default)]
struct Step {
    can_fail: bool,
    uses: Vec<StepUse>,
}

/// A part of one of the graph's buffers, in bytes.
#[derive(Debug)]
struct StepUse {
    /// The buffer's place among those of the graph.
    buffer: usize,
    range: Range<usize>,
    touch: Touch,
}

impl Steps {
    /// The number of launches.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a launch can fail.
    pub(crate) fn can_fail(&self) -> bool {
        self.0.iter().any(|step| step.can_fail)
    }

    /// Adds a use to the launch with this number, which begins with its first use. One that was not recorded after all leaves its
    /// uses to the next, which has its number, so that it is taken to use more than it does.
    pub(crate) fn add(&mut self, launch: u64, buffer: usize, range: Range<usize>, touch: Touch) {
        self.step(launch).uses.push(StepUse { buffer, range, touch });
    }

    /// The launch with this number is recorded.
    pub(crate) fn end(&mut self, launch: u64, can_fail: bool) {
        self.step(launch).can_fail = can_fail;
    }

    fn step(&mut self, launch: u64) -> &mut Step {
        let index = launch as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Step::default);
        }
        &mut self.0[index]
    }

    /// The launches of a replay, whose first has the number `first`: the number of each that can fail, and its uses.
    /// `buffers` are uses of the graph's buffers, in their order.
    pub(crate) fn launches<'s>(
        &'s self,
        first: LaunchId,
        buffers: &'s [Use],
    ) -> impl Iterator<Item = (Option<LaunchId>, SmallVec<[Use; 8]>)> + 's {
        self.0.iter().zip(0..).map(move |(step, index)| {
            let of_buffer = |used: &StepUse| {
                let buffer = buffers.get(used.buffer)?.buffer;
                Some(Use::new(buffer, used.range.clone(), used.touch))
            };
            (step.can_fail.then(|| first.plus(index)), step.uses.iter().filter_map(of_buffer).collect())
        })
    }
}
