//! What to try next.
//!
//! The logarithm of the time is taken to be that of the cost model, plus a constant, plus a function that varies smoothly
//! along each axis: a Gaussian process. What has been measured says what that function is there, and how sure it is
//! elsewhere. Tried next is the configuration whose time would be lowest if it were one standard deviation better than
//! expected, now and then one near the best, or one that chance picks, which finds what the model does not expect.
//!
//! Configurations are proposed before the last ones have been measured, because they are compiled meanwhile. Until then
//! those count as what was expected of them.

use super::random::Random;

/// The deviation of times from the cost model, as a logarithm: a factor of 1.5.
const DEVIATION: f64 = 0.4;

/// The noise of a time, as a logarithm.
const NOISE: f64 = 0.02;

/// How far apart, in values of an axis, configurations still say something about each other.
const REACH: f64 = 1.5;

/// Every so many proposals one is next to the best, and one is picked by chance.
const CYCLE: usize = 8;

/// The places of the cycle where that is.
const NEAR_BEST: [usize; 3] = [2, 4, 6];
const BY_CHANCE: usize = 7;

/// What is known of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Open,
    Proposed,
    /// The logarithm of its time.
    Timed(f64),
    Failed,
}

/// A search over candidates, which are known by their numbers.
pub(crate) struct Search {
    places: Vec<Vec<u16>>,
    /// The logarithms of what the cost model says; zeros without one.
    prior: Vec<f64>,
    states: Vec<State>,
    /// To be tried first, the last one first.
    seeds: Vec<usize>,
    random: Random,
    proposed: usize,
    /// Nothing where all are tried in order.
    model: Option<Model>,
}

impl Search {
    /// Over candidates at these places. `predicted` are times in any unit, or nothing.
    pub(crate) fn new(places: Vec<Vec<u16>>, predicted: &[Option<f64>], mut seeds: Vec<usize>, seed: u64) -> Search {
        let usable = predicted.iter().all(|time| time.is_some_and(|time| time > 0.0));
        let prior = predicted.iter().map(|time| if usable { time.unwrap_or(1.0).ln() } else { 0.0 }).collect();
        seeds.reverse();
        let states = vec![State::Open; places.len()];
        let model = Some(Model::new(places.len()));
        Search { places, prior, states, seeds, random: Random::new(seed), proposed: 0, model }
    }

    /// The same, of all candidates in order, after the seeds.
    pub(crate) fn exhaustive(self) -> Search {
        Search { model: None, ..self }
    }

    /// The next candidate to try, if any is left.
    pub(crate) fn propose(&mut self) -> Option<usize> {
        let next = self.seed().or_else(|| self.choose())?;
        self.states[next] = State::Proposed;
        if let Some(model) = &mut self.model {
            model.add(next, &self.places);
        }
        self.proposed += 1;
        Some(next)
    }

    /// What a candidate has taken; `None` if it failed.
    pub(crate) fn observe(&mut self, candidate: usize, ms: Option<f64>) {
        self.states[candidate] = match ms {
            Some(ms) if ms > 0.0 => State::Timed(ms.ln()),
            Some(_) | None => State::Failed,
        };
    }

    fn seed(&mut self) -> Option<usize> {
        while let Some(seed) = self.seeds.pop() {
            if self.states.get(seed) == Some(&State::Open) {
                return Some(seed);
            }
        }
        None
    }

    fn choose(&mut self) -> Option<usize> {
        let open: Vec<usize> = (0..self.states.len()).filter(|&at| self.states[at] == State::Open).collect();
        let (Some(&first), Some(model)) = (open.first(), &self.model) else { return open.first().copied() };
        let turn = self.proposed % CYCLE;
        if turn == BY_CHANCE {
            return Some(open[self.random.below(open.len())]);
        }
        let scores = self.scores(model);
        let by_score = |a: &usize, b: &usize| scores[*a].total_cmp(&scores[*b]).then(a.cmp(b));
        if NEAR_BEST.contains(&turn)
            && let Some(best) = self.best()
        {
            let near = open.iter().copied().filter(|&at| is_near(&self.places[at], &self.places[best]));
            if let Some(near) = near.min_by(by_score) {
                return Some(near);
            }
        }
        Some(open.into_iter().min_by(by_score).unwrap_or(first))
    }

    /// The best so far.
    fn best(&self) -> Option<usize> {
        let timed = |at: usize| if let State::Timed(time) = self.states[at] { Some((at, time)) } else { None };
        let best = (0..self.states.len()).filter_map(timed).min_by(|a, b| a.1.total_cmp(&b.1));
        best.map(|(at, _)| at)
    }

    /// For each candidate the logarithm of the time that it might have, if it is better than expected.
    fn scores(&self, model: &Model) -> Vec<f64> {
        let timed = |&at: &usize| match self.states[at] {
            State::Timed(time) => Some(time - self.prior[at]),
            State::Open | State::Proposed | State::Failed => None,
        };
        let known: Vec<f64> = model.added.iter().filter_map(timed).collect();
        let mean = if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let worst = known.iter().copied().fold(mean, f64::max);
        let residual = |at: usize| match self.states[at] {
            State::Timed(time) => Some(time - self.prior[at] - mean),
            State::Failed => Some(worst - mean + DEVIATION),
            State::Open | State::Proposed => None,
        };
        let expected = model.expectations(residual);
        let score = |at: usize| self.prior[at] + mean + expected[at] - model.deviation(at);
        (0..self.states.len()).map(score).collect()
    }
}

/// Whether two places differ by one step on one axis, or on two.
fn is_near(a: &[u16], b: &[u16]) -> bool {
    let steps: Vec<u16> = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).filter(|&steps| steps > 0).collect();
    matches!(steps[..], [1] | [2] | [1, 1])
}

/// How much times at two places vary together.
fn covariance(a: &[u16], b: &[u16]) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    DEVIATION * DEVIATION * (-squares / (2.0 * REACH * REACH)).exp()
}

/// A Gaussian process over all candidates, extended by one observation at a time: rows of the Cholesky factor of the
/// covariances of what was added, and of each candidate with it.
struct Model {
    added: Vec<usize>,
    /// Row `i` has `i + 1` numbers.
    factor: Vec<Vec<f64>>,
    /// For each candidate as many numbers as were added.
    whitened: Vec<Vec<f64>>,
}

impl Model {
    fn new(candidates: usize) -> Model {
        Model { added: Vec::new(), factor: Vec::new(), whitened: vec![Vec::new(); candidates] }
    }

    fn add(&mut self, candidate: usize, places: &[Vec<u16>]) {
        let mut row = self.whitened[candidate].clone();
        let own = DEVIATION * DEVIATION + NOISE * NOISE - row.iter().map(|x| x * x).sum::<f64>();
        let diagonal = own.max(NOISE * NOISE).sqrt();
        for (place, whitened) in places.iter().zip(&mut self.whitened) {
            let known: f64 = whitened.iter().zip(&row).map(|(a, b)| a * b).sum();
            whitened.push((covariance(place, &places[candidate]) - known) / diagonal);
        }
        row.push(diagonal);
        self.factor.push(row);
        self.added.push(candidate);
    }

    /// What is expected of each candidate, where `residual` says what was found. What was not yet found is as expected.
    fn expectations(&self, residual: impl Fn(usize) -> Option<f64>) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(self.added.len());
        for (row, &candidate) in self.factor.iter().zip(&self.added) {
            let expected: f64 = row.iter().zip(&solved).map(|(a, b)| a * b).sum();
            let diagonal = row.last().copied().unwrap_or(1.0);
            solved.push(residual(candidate).map_or(0.0, |found| (found - expected) / diagonal));
        }
        let of = |whitened: &Vec<f64>| whitened.iter().zip(&solved).map(|(a, b)| a * b).sum();
        self.whitened.iter().map(of).collect()
    }

    fn deviation(&self, candidate: usize) -> f64 {
        let known: f64 = self.whitened[candidate].iter().map(|x| x * x).sum();
        (DEVIATION * DEVIATION - known).max(0.0).sqrt()
    }
}
