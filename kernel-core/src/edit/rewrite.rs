//! Rewrites values and operations in one walk in program order.
//!
//! The walk forwards operands as it goes: replacing a thousand values costs one walk, where a thousand calls of
//! [`replace_all_uses`](super::replace_all_uses) would cost a thousand.

use std::collections::HashMap;

use super::cursor::{Cursor, Result};
use crate::ir::{Func, OpId, RegionId, Span, ValueId};

/// What a [`Rewriter`] does with an operation after the visit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// It stays, and its regions are walked.
    Keep,
    /// It goes. Its results have been replaced, or have no uses.
    Remove,
    /// The operations of one of its regions take its place, and what the region yields replaces its results.
    /// Arguments of the region have been replaced.
    Inline(RegionId),
    /// These operations, which are in no region, take its place and are visited. Its results have been replaced.
    Splice(Vec<OpId>),
}

/// Walks a kernel in program order and rewrites it on the way.
///
/// At the visit of an operation its operands are already replaced. The visitor may insert operations before it,
/// replace its results, change it in place, and says what becomes of it.
pub struct Rewriter<'f> {
    /// The kernel.
    pub func: &'f mut Func,
    pass: &'static str,
    forward: HashMap<ValueId, ValueId>,
    out: Vec<OpId>,
    changed: bool,
}

type Visitor<'v> = dyn FnMut(&mut Rewriter<'_>, OpId) -> Result<Action> + 'v;

impl Rewriter<'_> {
    /// Rewrites the whole kernel for a pass of this name; returns whether anything changed.
    ///
    /// # Errors
    /// The first of the visitor, after which the kernel is of no use.
    pub fn run(func: &mut Func, pass: &'static str, visit: &mut Visitor<'_>) -> Result<bool> {
        let body = func.body;
        let mut rewriter = Rewriter { func, pass, forward: HashMap::new(), out: Vec::new(), changed: false };
        rewriter.region(body, visit)?;
        Ok(rewriter.changed)
    }

    /// Notes that the visitor changed something in place.
    pub fn set_changed(&mut self) {
        self.changed = true;
    }

    /// The value that stands for `value` now.
    pub fn resolve(&self, mut value: ValueId) -> ValueId {
        while let Some(&next) = self.forward.get(&value) {
            value = next;
        }
        value
    }

    /// Makes `new` stand for `old` in everything that is yet to be visited.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        let new = self.resolve(new);
        if old != new {
            self.forward.insert(old, new);
            self.changed = true;
        }
    }

    /// Puts operations before the one that is visited, for that line of the source.
    pub fn before(&mut self, span: Span) -> Cursor<'_> {
        self.changed = true;
        Cursor::new(&mut *self.func, &mut self.out, self.pass).at(span)
    }

    fn region(&mut self, region: RegionId, visit: &mut Visitor<'_>) -> Result<()> {
        let outer = std::mem::take(&mut self.out);
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        for op in ops {
            self.operation(op, visit)?;
        }
        self.func.regions[region.index()].ops = std::mem::replace(&mut self.out, outer);
        Ok(())
    }

    fn operation(&mut self, id: OpId, visit: &mut Visitor<'_>) -> Result<()> {
        let mut operands = std::mem::take(&mut self.func.ops[id.index()].operands);
        operands.iter_mut().for_each(|operand| *operand = self.resolve(*operand));
        self.func.ops[id.index()].operands = operands;
        match visit(self, id)? {
            Action::Keep => {
                self.out.push(id);
                for region in self.func.op(id).regions.clone() {
                    self.region(region, visit)?;
                }
            }
            Action::Remove => self.changed = true,
            Action::Splice(ops) => {
                self.changed = true;
                for op in ops {
                    self.operation(op, visit)?;
                }
            }
            Action::Inline(region) => {
                self.changed = true;
                let mut ops = std::mem::take(&mut self.func.regions[region.index()].ops);
                let Some(last) = ops.pop() else { return Ok(()) };
                for op in ops {
                    self.operation(op, visit)?;
                }
                let yielded = self.func.op(last).operands.clone();
                for (result, value) in self.func.op(id).results.clone().into_iter().zip(yielded) {
                    self.replace(result, value);
                }
            }
        }
        Ok(())
    }
}
