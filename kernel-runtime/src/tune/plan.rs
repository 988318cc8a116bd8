//! What is left to try after everything that can be known without compiling, in the order of the cost model.

use super::measure::{Failure, FailureKind, said};
use super::space::{Axis, Candidate, Space, nearest};
use crate::error::{Error, Result};
use crate::launch::{CallShape, Config, Constexprs, Placement, Preview, Target};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// More registers than a thread can have by this share are spilled whatever the compiler does: what is counted is what is
/// alive at once, which compilers lower a little by computing values again.
const SPILLS_BEYOND: f64 = 1.25;

/// Why a configuration is not tried.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Pruned {
    /// It cannot be launched: an assertion at compile time, shared memory, an option.
    Refused(Failure),
    /// More registers are alive at once than threads can have.
    Registers {
        /// Registers of a thread.
        alive: u32,
        /// What it can have.
        limit: u32,
    },
    /// No program fits a multiprocessor.
    Occupancy,
    /// Another configuration becomes the same code; the text says which.
    SameCode(String),
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pruned::Refused(failure) => failure.fmt(f),
            Pruned::Registers { alive, limit } => {
                write!(f, "spills: {alive} registers of a thread are alive at once, and it can have {limit}")
            }
            Pruned::Occupancy => f.write_str("no program fits a multiprocessor"),
            Pruned::SameCode(other) => write!(f, "becomes the same code as {other}"),
        }
    }
}

/// A configuration that is worth trying.
#[derive(Clone, Debug)]
pub struct Planned<C> {
    /// The configuration.
    pub config: Config<C>,
    /// Its place in the space.
    pub place: Vec<u16>,
    /// What is known of its launches, taken together; `None` where they are not known.
    pub preview: Option<Preview>,
    /// Its launches, where they are known.
    pub(crate) shapes: Vec<CallShape>,
}

impl<C> Planned<C> {
    /// A hash of the kernels that it launches, where they are known. Work of several launches may launch others in other
    /// configurations.
    pub(crate) fn code(&self) -> Option<String> {
        (!self.shapes.is_empty()).then(|| code(self.shapes.iter().map(CallShape::ir)))
    }

    /// What it takes of a GPU.
    pub fn placement(&self) -> Option<&Placement> {
        self.preview.as_ref()?.placement.as_ref()
    }
}

/// A hash of the tile IR of kernels, each once.
pub(super) fn code<'k>(kernels: impl IntoIterator<Item = &'k str>) -> String {
    let mut hasher = DefaultHasher::new();
    kernels.into_iter().collect::<BTreeSet<_>>().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The configurations of a space, sorted out.
#[derive(Clone, Debug)]
pub struct Plan<C> {
    /// What they differ in.
    pub axes: Vec<Axis>,
    /// To be tried, the most promising first.
    pub kept: Vec<Planned<C>>,
    /// Not to be tried, and why.
    pub pruned: Vec<(Config<C>, Pruned)>,
    /// How many do not meet the conditions of the space.
    pub unmet: usize,
    /// How long sorting them out took.
    pub time: Duration,
}

impl<C: Constexprs> Plan<C> {
    /// Everything that meets the space's conditions, in its order: nothing is known of launches.
    ///
    /// # Errors
    ///
    /// Those of [`Space::candidates`].
    pub fn of(space: &Space<C>) -> Result<Self> {
        let start = Instant::now();
        let (candidates, unmet) = space.candidates()?;
        let planned = |Candidate { config, place }| Planned { config, place, preview: None, shapes: Vec::new() };
        let kept = candidates.into_iter().map(planned).collect();
        Ok(Plan { axes: space.axes()?, kept, pruned: Vec::new(), unmet, time: start.elapsed() })
    }

    /// Binds and places every configuration for a target, or binds it for the CPU, on all cores. `shapes` gives the launches
    /// of a configuration, or none where they are not known.
    ///
    /// # Errors
    ///
    /// Those of [`Space::candidates`]. What is wrong with single configurations is in the plan.
    pub fn looked_at(
        space: &Space<C>,
        target: Option<Target>,
        mut shapes: impl FnMut(&Config<C>) -> Result<Vec<CallShape>>,
    ) -> Result<Self> {
        let start = Instant::now();
        let mut plan = Plan::of(space)?;
        let all = std::mem::take(&mut plan.kept);
        plan.look_at(all, target, &mut shapes);
        plan.time = start.elapsed();
        Ok(plan)
    }

    /// The configuration of the plan that stands for this one: itself, which is looked at if it is not in the space but
    /// meets its conditions, or one with the same code.
    ///
    /// # Errors
    /// Why nothing does.
    pub(super) fn include(
        &mut self,
        space: &Space<C>,
        config: Config<C>,
        target: Option<Target>,
        mut shapes: impl FnMut(&Config<C>) -> Result<Vec<CallShape>>,
    ) -> std::result::Result<Config<C>, String> {
        let is_in = |plan: &Self| {
            plan.kept.iter().any(|planned| planned.config == config)
                || plan.pruned.iter().any(|(pruned, _)| *pruned == config)
        };
        if !is_in(self) {
            if !space.meets_conditions(&config) {
                return Err("it does not meet the conditions of the space".to_string());
            }
            let place = nearest(&self.axes, &config);
            self.look_at(vec![Planned { config, place, preview: None, shapes: Vec::new() }], target, &mut shapes);
        }
        match self.pruned.iter().find(|(pruned, _)| *pruned == config) {
            None => Ok(config),
            Some((_, why @ Pruned::SameCode(other))) => {
                let same = self.kept.iter().find(|planned| planned.config.to_string() == *other);
                same.map(|planned| planned.config).ok_or_else(|| why.to_string())
            }
            Some((_, why)) => Err(why.to_string()),
        }
    }

    /// Sorts configurations in.
    fn look_at(
        &mut self,
        all: Vec<Planned<C>>,
        target: Option<Target>,
        shapes: &mut impl FnMut(&Config<C>) -> Result<Vec<CallShape>>,
    ) {
        let refused = |error: Error| Pruned::Refused((&error).into());
        let mut shaped = Vec::with_capacity(all.len());
        for planned in all {
            match shapes(&planned.config) {
                Ok(shapes) => shaped.push(Planned { shapes, ..planned }),
                Err(error) => self.pruned.push((planned.config, refused(error))),
            }
        }
        let preview = |planned: &Planned<C>| -> Result<Option<Preview>> {
            let all = planned.shapes.iter().map(|shape| shape.preview(target));
            Ok(Preview::together(all.collect::<Result<_>>()?))
        };
        let previews = in_parallel(&shaped, preview);
        for (planned, preview) in shaped.into_iter().zip(previews) {
            match preview {
                Ok(Ok(preview)) => self.kept.push(Planned { preview, ..planned }),
                Ok(Err(error)) => self.pruned.push((planned.config, refused(error))),
                // A mistake of the compiler is one of this configuration, and no end of the plan.
                Err(panic) => {
                    let failure = Failure::new(FailureKind::Other, format!("the compiler panicked: {panic}"));
                    self.pruned.push((planned.config, Pruned::Refused(failure)));
                }
            }
        }
        self.drop_what_spills();
        self.drop_same_code();
        self.kept.sort_by(|a, b| cycles(a).total_cmp(&cycles(b)));
    }

    fn drop_what_spills(&mut self) {
        for planned in std::mem::take(&mut self.kept) {
            let why = planned.placement().and_then(|placement| match placement {
                Placement { programs: 0, .. } => Some(Pruned::Occupancy),
                &Placement { registers, register_limit, .. }
                    if f64::from(registers) > f64::from(register_limit) * SPILLS_BEYOND =>
                {
                    Some(Pruned::Registers { alive: registers, limit: register_limit })
                }
                Placement { .. } => None,
            });
            match why {
                Some(why) => self.pruned.push((planned.config, why)),
                None => self.kept.push(planned),
            }
        }
    }

    /// Of those that become the same code, the first stays.
    fn drop_same_code(&mut self) {
        let mut seen: HashMap<u64, String> = HashMap::new();
        for planned in std::mem::take(&mut self.kept) {
            let key = planned.preview.as_ref().map(|preview| preview.digest);
            match key.and_then(|key| seen.get(&key)) {
                Some(other) => {
                    let other = other.clone();
                    self.pruned.push((planned.config, Pruned::SameCode(other)));
                }
                None => {
                    if let Some(key) = key {
                        seen.insert(key, planned.config.to_string());
                    }
                    self.kept.push(planned);
                }
            }
        }
    }
}

/// What a launch costs by the model; unknown costs come last.
fn cycles<C>(planned: &Planned<C>) -> f64 {
    planned.placement().map_or(f64::INFINITY, |placement| placement.cycles)
}

/// Maps on all cores, in order; of what panics, what it says.
fn in_parallel<T: Sync, R: Send>(items: &[T], map: impl Fn(&T) -> R + Sync) -> Vec<Result<R, String>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<R, String>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            // Nothing is left half done that anybody looks at.
            let result = catch_unwind(AssertUnwindSafe(|| map(item))).map_err(|panic| said(&*panic).to_string());
            *results[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let result = |slot: Mutex<Option<_>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_result_and_no_end() {
        let halves = in_parallel(&[8, 7, 6], |number| match number % 2 {
            0 => number / 2,
            _ => panic!("{number} is odd"),
        });
        assert_eq!(halves, [Ok(4), Err("7 is odd".to_string()), Ok(3)]);
    }
}
