//! Runs a program as its source says, statement by statement.

use kernel_core::ir::{BinaryOp, CmpOp};

use super::{Condition, Expr, MEMORY, Numbers, Order, Stmt, ValueBlock};

/// Where control goes instead of to the next statement.
enum Jump {
    Return,
    /// Out of the loop of that label, with its value.
    Break(String, Option<i32>),
    Continue(String),
}

type Flow<T> = Result<T, Jump>;

/// How an iteration has ended.
enum Turn {
    Next,
    Last(Option<i32>),
}

struct Machine {
    memory: Vec<i32>,
    /// Names and values, innermost last.
    names: Vec<(String, i32)>,
}

/// What the program leaves in memory, and whether it returned before its end.
pub fn run(program: &[Stmt], n: i32) -> (Vec<i32>, bool) {
    let memory = (0..MEMORY as i32).collect();
    let mut machine = Machine { memory, names: vec![("n".to_string(), n)] };
    let returned = machine.stmts(program).is_err();
    (machine.memory, returned)
}

fn binary(op: BinaryOp, a: i32, b: i32) -> i32 {
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div if b == 0 => 0,
        BinaryOp::Div => a.wrapping_div(b),
        BinaryOp::Rem if b == 0 => a,
        BinaryOp::Rem => a.wrapping_rem(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        other => panic!("`{}` is not generated", other.name()),
    }
}

impl Machine {
    fn slot(&mut self, name: &str) -> &mut i32 {
        let found = self.names.iter_mut().rev().find(|(other, _)| other == name);
        found.map(|(_, value)| value).unwrap_or_else(|| panic!("no `{name}`"))
    }

    /// Runs something whose names end with it.
    fn scope<T>(&mut self, f: impl FnOnce(&mut Self) -> Flow<T>) -> Flow<T> {
        let depth = self.names.len();
        let result = f(self);
        self.names.truncate(depth);
        result
    }

    fn expr(&mut self, expr: &Expr) -> Flow<i32> {
        Ok(match expr {
            Expr::Const(value) => *value,
            Expr::Name(name) => *self.slot(name),
            Expr::Load(index) => self.memory[*index],
            Expr::Binary(op, a, b) => {
                let a = self.expr(a)?;
                binary(*op, a, self.expr(b)?)
            }
            Expr::If(c, a, b) => {
                let chosen = if self.condition(c)? { a } else { b };
                self.expr(chosen)?
            }
            Expr::Block(stmts, value) => self.scope(|m| {
                m.stmts(stmts)?;
                m.expr(value)
            })?,
        })
    }

    fn condition(&mut self, condition: &Condition) -> Flow<bool> {
        Ok(match condition {
            Condition::Compare(op, a, b) => {
                let a = self.expr(a)?;
                let b = self.expr(b)?;
                match op {
                    CmpOp::Eq => a == b,
                    CmpOp::Ne => a != b,
                    CmpOp::Lt => a < b,
                    CmpOp::Le => a <= b,
                    CmpOp::Gt => a > b,
                    CmpOp::Ge => a >= b,
                }
            }
            Condition::And(a, b) => self.condition(a)? && self.condition(b)?,
            Condition::Or(a, b) => self.condition(a)? || self.condition(b)?,
            Condition::Not(a) => !self.condition(a)?,
        })
    }

    fn value_block(&mut self, (stmts, value): &ValueBlock) -> Flow<i32> {
        self.scope(|m| {
            m.stmts(stmts)?;
            value.as_ref().map_or(Err(Jump::Return), |value| m.expr(value))
        })
    }

    fn stmts(&mut self, stmts: &[Stmt]) -> Flow<()> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    /// An iteration of a loop.
    fn turn(&mut self, label: &str, f: impl FnOnce(&mut Self) -> Flow<()>) -> Flow<Turn> {
        match self.scope(f) {
            Ok(()) => Ok(Turn::Next),
            Err(Jump::Break(target, value)) if target == label => Ok(Turn::Last(value)),
            Err(Jump::Continue(target)) if target == label => Ok(Turn::Next),
            Err(other) => Err(other),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Flow<()> {
        match stmt {
            Stmt::Let { name, value, .. } => {
                let value = self.expr(value)?;
                self.names.push((name.clone(), value));
            }
            Stmt::LetIf { name, condition, then, otherwise } => {
                let chosen = if self.condition(condition)? { then } else { otherwise };
                let value = self.value_block(chosen)?;
                self.names.push((name.clone(), value));
            }
            Stmt::Assign(name, value) => *self.slot(name) = self.expr(value)?,
            Stmt::Compound(name, op, value) => {
                // The right side of a compound assignment on integers is evaluated first.
                let right = self.expr(value)?;
                let slot = self.slot(name);
                *slot = binary(*op, *slot, right);
            }
            Stmt::Swap(a, b) => {
                let (x, y) = (*self.slot(a), *self.slot(b));
                *self.slot(a) = y;
                *self.slot(b) = x;
            }
            Stmt::Store(index, value) => self.memory[*index] = self.expr(value)?,
            Stmt::If(condition, then, otherwise) => {
                let chosen = if self.condition(condition)? { then } else { otherwise };
                self.scope(|m| m.stmts(chosen))?;
            }
            Stmt::For { label, name, numbers: Numbers { lo, hi, inclusive, order }, body, .. } => {
                let (lo, hi) = (self.expr(lo)?, self.expr(hi)?);
                let all = if *inclusive { numbers(lo..=hi, *order) } else { numbers(lo..hi, *order) };
                for i in all {
                    let turn = self.turn(label, |m| {
                        m.names.push((name.clone(), i));
                        m.stmts(body)
                    })?;
                    if matches!(turn, Turn::Last(_)) {
                        break;
                    }
                }
            }
            Stmt::While { label, counter, turns, condition, body } => {
                let turns = self.expr(turns)?;
                self.names.push((counter.clone(), turns));
                while *self.slot(counter) > 0 && self.condition(condition)? {
                    *self.slot(counter) -= 1;
                    if matches!(self.turn(label, |m| m.stmts(body))?, Turn::Last(_)) {
                        break;
                    }
                }
            }
            Stmt::Loop { label, counter, turns, body, name, last } => {
                let turns = self.expr(turns)?;
                self.names.push((counter.clone(), turns));
                let value = loop {
                    if *self.slot(counter) <= 0 {
                        break last.as_ref().map(|last| self.expr(last)).transpose()?;
                    }
                    *self.slot(counter) -= 1;
                    if let Turn::Last(value) = self.turn(label, |m| m.stmts(body))? {
                        break value;
                    }
                };
                self.names.extend(name.clone().zip(value));
            }
            Stmt::Return => return Err(Jump::Return),
            Stmt::Break(target, value) => {
                let value = value.as_ref().map(|value| self.expr(value)).transpose()?;
                return Err(Jump::Break(target.label.clone(), value));
            }
            Stmt::Continue(target) => return Err(Jump::Continue(target.label.clone())),
        }
        Ok(())
    }
}

/// The numbers of a loop, by Rust's own iterators.
fn numbers(range: impl DoubleEndedIterator<Item = i32>, order: Order) -> Vec<i32> {
    match order {
        Order::Forward => range.collect(),
        Order::Reverse => range.rev().collect(),
        Order::Step(step) => range.step_by(step as usize).collect(),
        Order::StepReverse(step) => {
            // `StepBy` goes backwards over ranges of known length only.
            let mut all: Vec<i32> = range.step_by(step as usize).collect();
            all.reverse();
            all
        }
        Order::ReverseStep(step) => range.rev().step_by(step as usize).collect(),
    }
}
