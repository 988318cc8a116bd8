//! Where registers get what an instruction reads in them, for PTX and the code of the hardware alike.
//!
//! A search goes from the instruction backwards, on all ways by which control may have come, to the instructions that
//! have written the register, and through those that only copy.

use std::collections::{BTreeMap, BTreeSet};

/// A register, by number; the languages number theirs as they like.
pub type Register = u32;

/// When an instruction is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Guard {
    /// Always.
    Always,
    /// If this predicate is as said.
    If(Register, bool),
}

/// A register that an instruction writes.
#[derive(Clone, Debug)]
pub struct Write {
    /// Which.
    pub register: Register,
    /// Those that it may only be a copy of; none if it is computed.
    pub copied_from: Vec<Register>,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Step {
    /// As it is written, for messages.
    pub text: String,
    /// When it is done.
    pub guard: Guard,
    /// The registers that it writes.
    pub writes: Vec<Write>,
    /// The predicates that it names, besides its guard.
    pub predicates: Vec<Register>,
    /// The registers in which it finds factors, if it is a matrix product.
    pub factors: Vec<Register>,
    /// The instructions that may come next.
    pub next: Vec<usize>,
}

/// A product that finds, in one register, what was computed outside of a loop in one iteration and inside in another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mix {
    /// The product.
    pub product: usize,
    /// The register of its factor.
    pub register: Register,
    /// What has written it outside of the loop.
    pub outside: Vec<usize>,
    /// What has written it inside.
    pub inside: Vec<usize>,
}

/// A kernel.
#[derive(Clone, Default, Debug)]
pub struct Code {
    /// Its instructions, in the order in which they stand.
    pub steps: Vec<Step>,
}

/// A step of a search: what was written up to and with `at` to `register`. If the search has passed a write under a guard,
/// it ends at one under the opposite guard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Search {
    at: usize,
    register: Register,
    passed: Option<(Register, bool)>,
}

/// Where registers are written and predicates are named, so that a search passes the instructions between at once.
struct Places<'a> {
    steps: &'a [Step],
    /// What may have come before each instruction.
    before: &'a [Vec<usize>],
    /// For each instruction the first one of those that follow each other up to it, with no other way to one of them.
    first: Vec<usize>,
    /// The instructions that write a register, in order.
    writers: BTreeMap<Register, Vec<usize>>,
    /// Those that name a predicate.
    named: BTreeMap<Register, Vec<usize>>,
}

impl<'a> Places<'a> {
    fn of(steps: &'a [Step], before: &'a [Vec<usize>]) -> Self {
        let mut places = Places { steps, before, first: Vec::new(), writers: BTreeMap::new(), named: BTreeMap::new() };
        for (at, step) in steps.iter().enumerate() {
            let follows = at > 0 && before[at] == [at - 1];
            places.first.push(if follows { places.first[at - 1] } else { at });
            for write in &step.writes {
                places.writers.entry(write.register).or_default().push(at);
            }
            for &predicate in &step.predicates {
                places.named.entry(predicate).or_default().push(at);
            }
        }
        places
    }

    /// The last instruction, of those that follow each other up to the search's, that the search cannot just pass.
    fn last(&self, search: Search) -> Option<usize> {
        let among = |places: &BTreeMap<Register, Vec<usize>>, key: Register| {
            let list = places.get(&key)?;
            let last = list[..list.partition_point(|&place| place <= search.at)].last().copied();
            last.filter(|&place| place >= self.first[search.at])
        };
        let named = search.passed.and_then(|(predicate, _)| among(&self.named, predicate));
        among(&self.writers, search.register).max(named)
    }

    /// The instructions that compute what is in a register when an instruction comes.
    fn origins(&self, at: usize, register: Register) -> BTreeSet<usize> {
        let mut origins = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut work = Vec::new();
        let from = |at: usize, register, passed| self.before[at].iter().map(move |&at| Search { at, register, passed });
        work.extend(from(at, register, None));
        while let Some(search) = work.pop() {
            if !seen.insert(search) {
                continue;
            }
            let Some(at) = self.last(search) else {
                work.extend(from(self.first[search.at], search.register, search.passed));
                continue;
            };
            let (step, mut passed) = (&self.steps[at], search.passed);
            if let Some(write) = step.writes.iter().find(|write| write.register == search.register) {
                match write.copied_from.as_slice() {
                    [] => drop(origins.insert(at)),
                    copied => work.extend(copied.iter().flat_map(|&register| from(at, register, None))),
                }
                match (step.guard, passed) {
                    (Guard::Always, _) => continue,
                    (Guard::If(predicate, value), Some(passed)) if passed == (predicate, !value) => continue,
                    (Guard::If(predicate, value), None) => passed = Some((predicate, value)),
                    (Guard::If(..), Some(_)) => {}
                }
            }
            passed = passed.filter(|(predicate, _)| !step.predicates.contains(predicate));
            work.extend(from(at, search.register, passed));
        }
        origins
    }
}

impl Code {
    /// All products that mix what is computed outside of a loop around them with what is computed inside.
    ///
    /// A factor that a loop carries is such a mixture, and rightly so.
    ///
    /// # Errors
    /// If a factor is written nowhere: then something was misread.
    pub fn mixes(&self) -> Result<Vec<Mix>, String> {
        let before = self.before();
        let (loops, places) = (self.loops(&before), Places::of(&self.steps, &before));
        let mut found = Vec::new();
        for (product, step) in self.steps.iter().enumerate() {
            let around: Vec<&BTreeSet<usize>> = loops.iter().filter(|inside| inside.contains(&product)).collect();
            for &register in &step.factors {
                let origins = places.origins(product, register);
                if origins.is_empty() {
                    return Err(format!("nothing writes register {register} of `{}`", step.text));
                }
                for inside in &around {
                    let (inside, outside): (Vec<usize>, Vec<usize>) =
                        origins.iter().partition(|&origin| inside.contains(origin));
                    if !inside.is_empty() && !outside.is_empty() {
                        found.push(Mix { product, register, outside, inside });
                    }
                }
            }
        }
        Ok(found)
    }

    /// Whether a product finds factors in registers within a loop.
    pub fn has_factors_in_loops(&self) -> bool {
        let loops = self.loops(&self.before());
        let in_loop = |at: usize| loops.iter().any(|inside| inside.contains(&at));
        self.steps.iter().enumerate().any(|(at, step)| !step.factors.is_empty() && in_loop(at))
    }

    /// What may have come before each instruction.
    fn before(&self) -> Vec<Vec<usize>> {
        let mut before = vec![Vec::new(); self.steps.len()];
        for (at, step) in self.steps.iter().enumerate() {
            step.next.iter().for_each(|&next| before[next].push(at));
        }
        before
    }

    /// All loops, as sets of instructions: what can reach itself, and within that, with its entries taken away, again.
    fn loops(&self, before: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
        let mut loops = Vec::new();
        let mut work: Vec<BTreeSet<usize>> = vec![(0..self.steps.len()).collect()];
        while let Some(region) = work.pop() {
            for part in self.components(&region) {
                let is_entry = |at: &usize| *at == 0 || before[*at].iter().any(|from| !part.contains(from));
                let inner: BTreeSet<usize> = part.iter().copied().filter(|at| !is_entry(at)).collect();
                // A loop that nothing enters is never run.
                if inner.len() < part.len() {
                    work.push(inner);
                    loops.push(part);
                }
            }
        }
        loops
    }

    /// The strongly connected components of a part of the code that contain a cycle (Tarjan's algorithm, without
    /// recursion).
    fn components(&self, region: &BTreeSet<usize>) -> Vec<BTreeSet<usize>> {
        let mut search = Components::default();
        for &root in region {
            if !search.order.contains_key(&root) {
                search.from(self, region, root);
            }
        }
        search.found
    }
}

#[derive(Default)]
struct Components {
    order: BTreeMap<usize, usize>,
    lowest: BTreeMap<usize, usize>,
    stack: Vec<usize>,
    on_stack: BTreeSet<usize>,
    found: Vec<BTreeSet<usize>>,
}

impl Components {
    fn enter(&mut self, at: usize) {
        let number = self.order.len();
        self.order.insert(at, number);
        self.lowest.insert(at, number);
        self.stack.push(at);
        self.on_stack.insert(at);
    }

    fn lower(&mut self, at: usize, to: usize) {
        let lowest = self.lowest.entry(at).or_insert(to);
        *lowest = to.min(*lowest);
    }

    fn from(&mut self, code: &Code, region: &BTreeSet<usize>, root: usize) {
        self.enter(root);
        let mut path = vec![(root, 0)];
        while let Some((at, edge)) = path.pop() {
            let Some(&next) = code.steps[at].next.get(edge) else {
                self.leave(code, at);
                if let Some(&(parent, _)) = path.last() {
                    let lowest = self.lowest[&at];
                    self.lower(parent, lowest);
                }
                continue;
            };
            path.push((at, edge + 1));
            if !region.contains(&next) {
                continue;
            }
            match self.order.get(&next).copied() {
                None => {
                    self.enter(next);
                    path.push((next, 0));
                }
                Some(number) if self.on_stack.contains(&next) => self.lower(at, number),
                Some(_) => {}
            }
        }
    }

    fn leave(&mut self, code: &Code, at: usize) {
        if self.lowest[&at] != self.order[&at] {
            return;
        }
        let mut component = BTreeSet::new();
        while let Some(member) = self.stack.pop() {
            self.on_stack.remove(&member);
            component.insert(member);
            if member == at {
                break;
            }
        }
        if component.len() > 1 || code.steps[at].next.contains(&at) {
            self.found.push(component);
        }
    }
}
