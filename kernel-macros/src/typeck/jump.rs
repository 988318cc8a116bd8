//! `return`, `break` and `continue`.

use syn::{Expr, ExprBreak, ExprContinue, ExprReturn, Lifetime};

use super::control::Givers;
use super::{Checker, Context, Operand, Val, Variable};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::source_range::SourceRange;
use crate::tree::{Jump, LoopId, NodeId, Stmt, VarId};

/// A loop around the place.
#[derive(Default)]
pub(super) struct LoopScope {
    /// The loop.
    pub id: LoopId,
    /// Its label.
    pub label: Option<String>,
    /// Whether this is a `loop`, whose `break` may have a value.
    pub takes_value: bool,
    /// Whether a `break` leads behind it.
    pub breaks: bool,
    /// Whether any jump leads out of it.
    pub left: bool,
    /// Its value, once a `break` has given one; in slots.
    pub value: Option<Checked<Val>>,
    /// Those slots, and the variables that `break` assigns to.
    pub results: Vec<(NodeId, VarId)>,
}

const BREAKS: Givers = Givers {
    value: "the value of a `loop`",
    all: "the `break`s of this loop",
    both: "each `break` of a loop",
    inside: "in front of each `break`",
};

const RETURNS: Givers = Givers {
    value: "the value of a closure",
    all: "the `return`s and the end of this closure",
    both: "each `return` of a closure",
    inside: "in front of each `return`",
};

impl Checker<'_> {
    /// `return;` Whether control ends here: always.
    pub(super) fn return_stmt(&mut self, expr: &ExprReturn) -> bool {
        let place = SourceRange::at(expr.return_token.span);
        if let Some((target, calls)) = self.element_end
            && calls == self.open_calls
        {
            let value = expr.expr.as_ref().map_or(Ok(Val::Unit(place)), |value| self.expr(value));
            self.end_element(target, value, place);
            return true;
        }
        if self.open_calls > 0 {
            let message = "`return` in a closure or `#[device]` function is not supported";
            self.report_help(place, message, "end it with an expression");
            return true;
        }
        if self.in_closure() {
            self.report_help(place, "`return` in a closure is not supported", "end it with an expression");
            return true;
        }
        if let Some(value) = expr.expr.as_ref().filter(|_| !self.signature.returns) {
            let help = "store results through a `PtrMut<T>` parameter";
            self.report_help(SourceRange::of(value), "a kernel returns nothing", help);
            return true;
        }
        self.may_return = true;
        self.leave(Jump::Return, 0, place);
        true
    }

    /// `break;`, `break value;`, `break 'label;`
    pub(super) fn break_stmt(&mut self, expr: &ExprBreak) -> bool {
        let place = SourceRange::at(expr.break_token.span);
        let value = expr.expr.as_ref().map(|value| (SourceRange::of(value), self.expr(value)));
        let Ok(target) = self.target("break", expr.label.as_ref(), place) else { return true };
        match value {
            Some((at, _)) if !self.loops[target].takes_value => {
                let help = "only a `loop` has a value: assign to a `let mut` variable before `break`";
                self.report_help(at, "`break` with a value in a `for` or `while`", help);
                return true;
            }
            Some((_, value)) => self.give(target, value),
            None if self.loops[target].takes_value => self.give(target, Ok(Val::Unit(place))),
            None => {}
        }
        self.loops[target].breaks = true;
        self.leave(Jump::Break(self.loops[target].id), target, place);
        true
    }

    /// `continue;`, `continue 'label;`
    pub(super) fn continue_stmt(&mut self, expr: &ExprContinue) -> bool {
        let place = SourceRange::at(expr.continue_token.span);
        let Ok(target) = self.target("continue", expr.label.as_ref(), place) else { return true };
        self.leave(Jump::Continue(self.loops[target].id), target + 1, place);
        true
    }

    /// Ends the code of an element with its results.
    pub(super) fn end_element(&mut self, target: usize, value: Checked<Val>, place: SourceRange) {
        self.give(target, value);
        self.loops[target].breaks = true;
        self.leave(Jump::Break(self.loops[target].id), target, place);
    }

    /// What gives the value of a loop, or of the code of an element.
    fn givers(&self, target: usize) -> &'static Givers {
        if self.element_end.is_some_and(|(end, _)| end == target) { &RETURNS } else { &BREAKS }
    }

    /// Jumps out of the loops from `outermost` on.
    fn leave(&mut self, jump: Jump, outermost: usize, place: SourceRange) {
        for scope in self.loops.iter_mut().skip(outermost) {
            scope.left = true;
        }
        self.active_head |= self.contexts.contains(&Context::Head);
        self.stmts.push(Stmt::Jump(jump, place));
    }

    /// The loop that a jump names: the innermost, or that of the label.
    fn target(&mut self, what: &str, label: Option<&Lifetime>, place: SourceRange) -> Checked<usize> {
        let repeats = |c: &&Context| matches!(c, Context::Loop | Context::Head | Context::Closure);
        // The loops around a call are not those of the function.
        let (contexts, loops) = self.calls.last().copied().unwrap_or_default();
        let innermost = self.contexts[contexts..].iter().rev().find(repeats).copied();
        let Some(label) = label else {
            return match innermost {
                Some(Context::Loop) => Ok(self.loops.len() - 1),
                Some(Context::Head) => {
                    let message = format!("`{what}` in the condition of a `while`");
                    Err(self.report_help(place, message, "write `loop { .. }`, and `break` in it"))
                }
                Some(Context::Closure) => {
                    let message = format!("`{what}` in a closure is not supported");
                    Err(self.report_help(place, message, "end it with an expression"))
                }
                Some(Context::Branch | Context::ValueBranch | Context::Element) | None => {
                    let message = format!("`{what}` outside of a loop");
                    let help = if self.open_calls > 0 || self.on_an_element() {
                        "end the closure or function with an expression"
                    } else {
                        "`return;` ends the program"
                    };
                    Err(self.report_help(place, message, help))
                }
            };
        };
        let at = SourceRange { start: label.apostrophe, end: label.ident.span() };
        if self.contexts.contains(&Context::Closure) {
            let message = format!("`{what}` in a closure is not supported");
            return Err(self.report_help(place, message, "end it with an expression"));
        }
        let name = label.ident.to_string();
        let own = &self.loops[loops..];
        if let Some(found) = own.iter().rposition(|scope| scope.label.as_ref() == Some(&name)) {
            return Ok(loops + found);
        }
        let labels: Vec<String> = own.iter().filter_map(|scope| scope.label.clone()).collect();
        let help = match closest(&name, labels.iter().map(String::as_str)) {
            Some(close) => Help::meant(at, &format!("'{close}")),
            None => Help::from(format!("a label stands before a loop around this: `'{name}: for ..`")),
        };
        Err(self.report_help(at, format!("no loop around this has the label `'{name}`"), help))
    }

    /// A `break` gives the loop its value.
    fn give(&mut self, target: usize, value: Checked<Val>) {
        let earlier = self.loops[target].value.clone();
        let value = match (earlier, value) {
            (Some(Ok(earlier)), Ok(value)) => self.give_again(target, earlier, &value),
            (Some(Err(reported)), _) | (_, Err(reported)) => Err(reported),
            (None, Ok(value)) => Ok(self.first_value(target, &value)),
        };
        self.loops[target].value = Some(value);
    }

    /// Makes variables for the value of a loop, and slots for what is read of them behind it.
    fn first_value(&mut self, target: usize, value: &Val) -> Val {
        match value {
            Val::One(operand) => {
                let ty = self.ty(*operand).clone();
                let slot = self.slot(ty.clone(), operand.place);
                self.variables.push(Variable { name: String::new(), ty, depth: self.contexts.len() });
                let var = VarId(self.variables.len() - 1);
                self.stmts.push(Stmt::Assign(var, operand.node));
                self.loops[target].results.push((slot, var));
                Val::One(Operand { node: slot, place: operand.place })
            }
            Val::Tuple(parts, place) => {
                Val::Tuple(parts.with(parts.iter().map(|part| self.first_value(target, part)).collect()), *place)
            }
            Val::Unit(place) => Val::Unit(*place),
        }
    }

    /// Assigns to the variables that an earlier `break` has made.
    fn give_again(&mut self, target: usize, earlier: Val, value: &Val) -> Checked<Val> {
        let (mut slots, mut operands) = (Vec::new(), Vec::new());
        if !pairs(&earlier, value, &mut slots, &mut operands) {
            let givers = self.givers(target);
            let message = earlier.forms_differ(value, givers.all);
            let help =
                if givers.all == BREAKS.all { "each `break` must give the same" } else { "each must give the same" };
            return Err(self.report_help(value.place(), message, help));
        }
        for (slot, operand) in slots.into_iter().zip(operands) {
            self.same_type(slot, operand, self.givers(target))?;
            let results = &self.loops[target].results;
            let var = results.iter().find(|(result, _)| *result == slot.node).map(|(_, var)| *var);
            self.stmts.extend(var.map(|var| Stmt::Assign(var, operand.node)));
        }
        Ok(earlier)
    }

    /// Says that an expression has no value because it jumps, unless that jump has been refused itself.
    pub(super) fn no_value(&mut self, place: SourceRange, message: &str) -> Reported {
        let refused = (self.open_calls > 0 || self.in_closure()) && !self.errors.is_empty();
        if refused { Reported::earlier() } else { self.report(place, message) }
    }

    /// The value of a `loop` as a part of an expression.
    pub(super) fn loop_value(&mut self, flow: super::block::Flow, expr: &Expr) -> Checked<Val> {
        match flow {
            super::block::Flow::Value(val) => val,
            super::block::Flow::Diverges => {
                Err(self.no_value(SourceRange::of(expr), "no `break` gives this loop a value"))
            }
        }
    }
}

/// The parts of two values, where they have the same form.
fn pairs(a: &Val, b: &Val, left: &mut Vec<Operand>, right: &mut Vec<Operand>) -> bool {
    match (a, b) {
        (Val::One(a), Val::One(b)) => {
            left.push(*a);
            right.push(*b);
            true
        }
        (Val::Tuple(a, _), Val::Tuple(b, _)) => {
            a.has_form_of(b) && a.iter().zip(b.iter()).all(|(a, b)| pairs(a, b, left, right))
        }
        (Val::Unit(_), Val::Unit(_)) => true,
        (Val::One(_) | Val::Tuple(..) | Val::Unit(_), _) => false,
    }
}
