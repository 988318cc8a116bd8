//! `return`, `break` and `continue`.
//!
//! An inlined function or closure is a loop that runs once, to whose end `return` leads.

use syn::{ExprBreak, ExprContinue, ExprReturn, Lifetime};

use super::annotation::Annotation;
use super::block::Flow;
use super::control::Givers;
use super::{Checker, Context, Operand, Val};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::source_range::SourceRange;
use crate::tree::{BodyStmt, Jump, LoopId, NodeId, Stmt, VarId, inlined_by};

/// A loop around the place, or an inlined body.
#[derive(Default)]
pub(super) struct LoopScope {
    /// The loop.
    pub id: LoopId,
    /// Its label.
    pub label: Option<String>,
    /// Whether this is a `loop`, whose `break` may have a value.
    pub takes_value: bool,
    /// What is known of the value of an inlined body.
    pub inlined: Option<Gives>,
    /// Whether a `break`, or the `return` of an inlined body, leads behind it.
    pub breaks: bool,
    /// Whether any jump leads out of it.
    pub left: bool,
    /// Its value, once a `break` or `return` has given one; in slots.
    pub value: Option<Checked<Val>>,
    /// Those slots, and the variables that `break` or `return` assigns to.
    pub results: Vec<(NodeId, VarId)>,
}

/// What an inlined body gives.
#[derive(Clone)]
pub(super) enum Gives {
    /// Nothing.
    Nothing,
    /// A value of this type.
    Type(Checked<Annotation>),
    /// A closure that says nothing of its value.
    Anything,
}

const BREAKS: Givers = Givers {
    value: "the value of a `loop`",
    all: "the `break`s of this loop",
    both: "each `break` of a loop",
    inside: "in front of each `break`",
};
const RETURNS: Givers = Givers {
    value: "what is returned",
    all: "the ways out of this body",
    both: "each way out of a body",
    inside: "in front of each `return`",
};

impl Checker<'_> {
    /// `return;` Whether control ends here: always.
    pub(super) fn return_stmt(&mut self, expr: &ExprReturn) -> bool {
        let place = SourceRange::at(expr.return_token.span);
        if let Some(body) = self.body_around() {
            self.return_from(body, expr, place);
            return true;
        }
        if self.in_closure() {
            self.combination_returns(place);
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

    fn combination_returns(&mut self, place: SourceRange) {
        let message = "`return` in a closure that combines elements is not supported";
        self.report_help(place, message, "end it with an expression");
    }

    /// `return value;` in an inlined function or closure.
    fn return_from(&mut self, body: usize, expr: &ExprReturn, place: SourceRange) {
        let (contexts, _) = self.calls.last().copied().unwrap_or_default();
        let gives = self.loops[body].inlined.clone().unwrap_or(Gives::Nothing);
        let value = match (&expr.expr, &gives) {
            (Some(value), Gives::Nothing) => {
                let help = "say what it gives: `fn name(..) -> f32`";
                Err(self.report_help(SourceRange::of(value), "this function gives nothing", help))
            }
            (None, Gives::Type(_)) => {
                let help = "write `return value;`";
                Err(self.report_help(place, "this function gives a value", help))
            }
            (Some(value), Gives::Type(_) | Gives::Anything) => self.expr(value),
            (None, Gives::Nothing | Gives::Anything) => Ok(Val::Unit(place)),
        };
        if self.contexts[contexts..].contains(&Context::Closure) {
            self.combination_returns(place);
            return;
        }
        let value = value.and_then(|value| self.returned(value, &gives));
        self.give(body, value);
        self.loops[body].breaks = true;
        self.leave(Jump::End(self.loops[body].id), body + 1, place);
    }

    /// A value of the type that a body says it gives.
    fn returned(&mut self, value: Val, gives: &Gives) -> Checked<Val> {
        match gives {
            Gives::Nothing | Gives::Anything => Ok(value),
            Gives::Type(annotation) => {
                let annotation = annotation.as_ref().map_err(|reported| *reported)?;
                self.have_type(value, annotation, "the function gives")
            }
        }
    }

    /// The innermost inlined body, unless this is the kernel's own.
    fn body_around(&self) -> Option<usize> {
        let (_, loops) = self.calls.last()?;
        self.loops.get(*loops).filter(|scope| scope.inlined.is_some()).map(|_| *loops)
    }

    /// Whether this is behind a `return` of an inlined body.
    pub(super) fn may_have_ended(&self) -> bool {
        self.loops.iter().any(|scope| scope.inlined.is_some() && scope.breaks)
    }

    /// The value of the body of a function or closure, which `check` checks. Where it returns early, variables carry it.
    pub(super) fn inlined_body(
        &mut self,
        gives: Gives,
        place: SourceRange,
        check: impl FnOnce(&mut Self) -> Flow,
    ) -> Checked<Val> {
        let id = LoopId(self.loop_count);
        self.loop_count += 1;
        let body = self.loops.len();
        self.loops.push(LoopScope { id, inlined: Some(gives.clone()), ..LoopScope::default() });
        let outer = std::mem::take(&mut self.stmts);
        let value = match check(self) {
            Flow::Value(value) => {
                let value = value.and_then(|value| self.returned(value, &gives));
                match self.loops[body].breaks {
                    true => {
                        self.give(body, value);
                        self.loops[body].value.clone()
                    }
                    false => Some(value),
                }
            }
            Flow::Diverges => self.loops[body].value.clone(),
        };
        let mut stmts = std::mem::replace(&mut self.stmts, outer);
        inlined_by(&mut stmts, self.call);
        let LoopScope { breaks, results, .. } = self.loops.pop().unwrap_or_default();
        if breaks {
            self.stmts.push(Stmt::Body(Box::new(BodyStmt { id, body: stmts, results })));
        } else {
            self.stmts.extend(stmts);
        }
        match (value, gives) {
            (Some(value), _) => value,
            (None, Gives::Nothing) => Ok(Val::Unit(place)),
            (None, Gives::Type(_) | Gives::Anything) => Err(self.report(place, "this never gives a value")),
        }
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

    /// Jumps out of the loops from `outermost` on.
    fn leave(&mut self, jump: Jump, outermost: usize, place: SourceRange) {
        for scope in self.loops.iter_mut().skip(outermost) {
            scope.left = true;
        }
        // What returns in the head of a loop around the call stays in it.
        let contexts = match jump {
            Jump::End(_) => self.calls.last().map_or(0, |(contexts, _)| *contexts),
            Jump::Return | Jump::Break(_) | Jump::Continue(_) => 0,
        };
        self.active_head |= self.contexts[contexts..].contains(&Context::Head);
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
                    let help = match self.body_around() {
                        Some(_) => "`return` ends the function or closure",
                        None => "`return;` ends the program",
                    };
                    Err(self.report_help(place, message, help))
                }
            };
        };
        let at = SourceRange::between(label.apostrophe, label.ident.span());
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

    /// A `break` gives the loop its value, or a `return` a function.
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
                let var = self.new_variable("", ty, operand.node);
                self.loops[target].results.push((slot, var));
                Val::One(Operand { node: slot, place: operand.place })
            }
            Val::Tuple(parts, place) => {
                Val::Tuple(parts.with(parts.iter().map(|part| self.first_value(target, part)).collect()), *place)
            }
            Val::Unit(place) => Val::Unit(*place),
        }
    }

    /// Assigns to the variables that an earlier `break` or `return` has made.
    fn give_again(&mut self, target: usize, earlier: Val, value: &Val) -> Checked<Val> {
        let (givers, help) = match self.loops[target].inlined {
            Some(_) => (&RETURNS, "each way out must give the same"),
            None => (&BREAKS, "each `break` must give the same"),
        };
        let (mut slots, mut operands) = (Vec::new(), Vec::new());
        if !pairs(&earlier, value, &mut slots, &mut operands) {
            let message = earlier.forms_differ(value, givers.all);
            return Err(self.report_help(value.place(), message, help));
        }
        for (slot, operand) in slots.into_iter().zip(operands) {
            self.same_type(slot, operand, givers)?;
            let results = &self.loops[target].results;
            let var = results.iter().find(|(result, _)| *result == slot.node).map(|(_, var)| *var);
            self.stmts.extend(var.map(|var| Stmt::Assign(var, operand.node)));
        }
        Ok(earlier)
    }

    /// Says that an expression has no value because it jumps, unless that jump has been refused itself.
    pub(super) fn no_value(&mut self, place: SourceRange, message: &str) -> Reported {
        // So it was in a closure that combines elements.
        let refused = self.contexts.contains(&Context::Closure);
        if refused { Reported::earlier() } else { self.report(place, message) }
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
