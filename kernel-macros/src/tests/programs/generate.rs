//! Makes random programs, each from its seed.

use kernel_core::ir::{BinaryOp, CmpOp};

use super::super::hostile::Random;
use super::{Condition, Expr, MEMORY, Numbers, Order, Stmt, Target, ValueBlock};

const OPERATORS: [BinaryOp; 8] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
];

const COMPARISONS: [CmpOp; 6] = [CmpOp::Eq, CmpOp::Ne, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge];

/// Names are few, so that they shadow each other.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct Generator {
    random: Random,
    /// Names in scope and whether they are mutable, innermost last.
    names: Vec<(String, bool)>,
    /// Labels of the loops around the place, innermost last, and whether their `break` takes a value.
    around: Vec<(String, bool)>,
    /// Loops so far, for their names.
    loops: usize,
}

/// The program of a seed.
pub fn program(seed: u64) -> Vec<Stmt> {
    let random = Random::new(seed);
    let names = vec![("n".to_string(), false)];
    let mut generator = Generator { random, names, around: Vec::new(), loops: 0 };
    let mut stmts = generator.stmts(8, 0);
    // What is in the variables at the end is seen.
    for index in 0..3 {
        let value = generator.leaf();
        stmts.push(Stmt::Store(index, value));
    }
    stmts
}

fn add(a: Expr, b: Expr) -> Expr {
    Expr::Binary(BinaryOp::Add, Box::new(a), Box::new(b))
}

fn and(a: Expr, b: i32) -> Expr {
    Expr::Binary(BinaryOp::And, Box::new(a), Box::new(Expr::Const(b)))
}

impl Generator {
    fn chance(&mut self, of: usize) -> bool {
        self.random.next(of) == 0
    }

    fn leaf(&mut self) -> Expr {
        match self.random.next(6) {
            0 => Expr::Const(self.random.next(19) as i32 - 9),
            1 => Expr::Load(self.random.next(MEMORY)),
            _ => Expr::Name(self.visible()),
        }
    }

    fn visible(&mut self) -> String {
        let index = self.random.next(self.names.len());
        self.names[index].0.clone()
    }

    /// A variable that can be assigned to: the innermost of its name is mutable.
    fn variable(&mut self) -> Option<String> {
        let name = self.visible();
        let (_, mutable) = self.names.iter().rev().find(|(other, _)| *other == name)?;
        mutable.then_some(name)
    }

    fn expr(&mut self, depth: usize) -> Expr {
        if depth >= 3 {
            return self.leaf();
        }
        match self.random.next(8) {
            0 | 1 => self.leaf(),
            2 => {
                let condition = Box::new(self.condition(depth + 1));
                Expr::If(condition, Box::new(self.expr(depth + 1)), Box::new(self.expr(depth + 1)))
            }
            3 => self.scope(|g| {
                let mut stmts = vec![g.binding(depth + 1)];
                stmts.extend(g.assignment(depth + 1));
                Expr::Block(stmts, Box::new(g.expr(depth + 1)))
            }),
            _ => {
                let op = *self.random.pick(&OPERATORS);
                Expr::Binary(op, Box::new(self.expr(depth + 1)), Box::new(self.expr(depth + 1)))
            }
        }
    }

    fn condition(&mut self, depth: usize) -> Condition {
        let op = *self.random.pick(&COMPARISONS);
        match self.random.next(6) {
            0 if depth < 3 => Condition::And(Box::new(self.condition(depth + 1)), Box::new(self.condition(depth + 1))),
            1 if depth < 3 => Condition::Or(Box::new(self.condition(depth + 1)), Box::new(self.condition(depth + 1))),
            2 if depth < 3 => Condition::Not(Box::new(self.condition(depth + 1))),
            _ => Condition::Compare(op, self.expr(depth + 1), self.expr(depth + 1)),
        }
    }

    fn scope<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let depth = self.names.len();
        let result = f(self);
        self.names.truncate(depth);
        result
    }

    fn declare(&mut self, mutable: bool) -> String {
        let name = (*self.random.pick(&NAMES)).to_string();
        self.names.push((name.clone(), mutable));
        name
    }

    /// A `let`, whose value is never a constant: those would adapt and not wrap.
    fn binding(&mut self, depth: usize) -> Stmt {
        let value = add(Expr::Name("n".to_string()), self.expr(depth));
        let mutable = !self.chance(3);
        Stmt::Let { name: self.declare(mutable), mutable, value }
    }

    fn assignment(&mut self, depth: usize) -> Option<Stmt> {
        let name = self.variable()?;
        Some(match self.random.next(3) {
            0 => Stmt::Assign(name, self.expr(depth)),
            1 => {
                let other = self.variable()?;
                Stmt::Swap(name, other)
            }
            _ => {
                let op = *self.random.pick(&OPERATORS);
                Stmt::Compound(name, op, self.expr(depth))
            }
        })
    }

    fn stmts(&mut self, count: usize, depth: usize) -> Vec<Stmt> {
        let mut stmts = Vec::new();
        for _ in 0..=self.random.next(count) {
            let stmt = self.stmt(depth);
            let ends = stmt.as_ref().is_some_and(is_jump);
            stmts.extend(stmt);
            if ends {
                break;
            }
        }
        stmts
    }

    fn block(&mut self, depth: usize) -> Vec<Stmt> {
        self.scope(|g| g.stmts(4, depth + 1))
    }

    fn value_block(&mut self, depth: usize) -> ValueBlock {
        self.scope(|g| {
            let mut stmts = g.stmts(3, depth + 1);
            if stmts.last().is_some_and(is_jump) {
                return (stmts, None);
            }
            if g.chance(5) {
                stmts.push(g.jump());
                return (stmts, None);
            }
            (stmts, Some(add(Expr::Name("n".to_string()), g.expr(1))))
        })
    }

    fn in_loop<T>(&mut self, label: &str, valued: bool, f: impl FnOnce(&mut Self) -> T) -> T {
        self.around.push((label.to_string(), valued));
        let result = self.scope(f);
        self.around.pop();
        result
    }

    /// A jump out of the block; seldom out of the program, as little would be left of it.
    fn jump(&mut self) -> Stmt {
        if self.around.is_empty() || self.chance(6) {
            return Stmt::Return;
        }
        let innermost = self.around.len() - 1;
        let index = if self.chance(2) { innermost } else { self.random.next(self.around.len()) };
        let (label, valued) = self.around[index].clone();
        let target = Target { label, named: index < innermost || self.chance(3) };
        if self.chance(2) {
            return Stmt::Continue(target);
        }
        let value = valued.then(|| add(Expr::Name("n".to_string()), self.leaf()));
        Stmt::Break(target, value)
    }

    /// Names of a new loop and its counter.
    fn new_loop(&mut self) -> (String, String) {
        self.loops += 1;
        (format!("loop{}", self.loops), format!("turn{}", self.loops))
    }

    fn stmt(&mut self, depth: usize) -> Option<Stmt> {
        let kinds = if depth < 3 { 16 } else { 8 };
        match self.random.next(kinds) {
            0 | 1 => Some(self.binding(0)),
            2..=4 => self.assignment(0),
            5 | 6 => Some(Stmt::Store(self.random.next(MEMORY), self.expr(0))),
            7 if depth > 0 && self.chance(2) => Some(self.jump()),
            7 => None,
            8 | 9 => {
                let condition = self.condition(1);
                let otherwise = if self.chance(2) { Vec::new() } else { self.block(depth) };
                Some(Stmt::If(condition, self.block(depth), otherwise))
            }
            10 | 11 => self.let_if(depth),
            12 | 13 => Some(self.for_loop(depth)),
            14 => Some(self.endless_loop(depth)),
            _ => Some(self.while_loop(depth)),
        }
    }

    fn let_if(&mut self, depth: usize) -> Option<Stmt> {
        let condition = self.condition(1);
        let (then, otherwise) = (self.value_block(depth), self.value_block(depth));
        // An `if` none of whose branches gives a value has no type.
        if then.1.is_none() && otherwise.1.is_none() {
            return Some(Stmt::If(condition, then.0, otherwise.0));
        }
        Some(Stmt::LetIf { name: self.declare(false), condition, then, otherwise })
    }

    fn for_loop(&mut self, depth: usize) -> Stmt {
        let unroll = self.chance(4);
        let (lo, hi) = if unroll {
            (Expr::Const(self.random.next(4) as i32), Expr::Const(self.random.next(8) as i32))
        } else {
            (and(self.expr(1), 3), and(self.expr(1), 7))
        };
        let step = 1 + self.random.next(3) as i32;
        let orders =
            [Order::Forward, Order::Reverse, Order::Step(step), Order::StepReverse(step), Order::ReverseStep(step)];
        let (order, inclusive) = (*self.random.pick(&orders), self.chance(2));
        // The greatest numbers, behind which there is none.
        let below = |number| Expr::Binary(BinaryOp::Sub, Box::new(Expr::Const(i32::MAX)), Box::new(number));
        let (lo, hi) = if !unroll && self.chance(4) { (below(hi), below(lo)) } else { (lo, hi) };
        let (label, _) = self.new_loop();
        self.in_loop(&label, false, |g| {
            let (name, numbers) = (g.declare(false), Numbers { lo, hi, inclusive, order });
            Stmt::For { label: label.clone(), unroll, name, numbers, body: g.block(depth) }
        })
    }

    fn while_loop(&mut self, depth: usize) -> Stmt {
        let (label, counter) = self.new_loop();
        let turns = and(self.expr(1), 3);
        // It may assign to variables outside.
        let condition = self.condition(1);
        let body = self.in_loop(&label, false, |g| g.block(depth));
        Stmt::While { label, counter, turns, condition, body }
    }

    fn endless_loop(&mut self, depth: usize) -> Stmt {
        let (label, counter) = self.new_loop();
        let (turns, valued) = (and(self.expr(1), 3), self.chance(2));
        let last = valued.then(|| add(Expr::Name("n".to_string()), self.expr(1)));
        let body = self.in_loop(&label, valued, |g| g.block(depth));
        let name = valued.then(|| self.declare(false));
        Stmt::Loop { label, counter, turns, body, name, last }
    }
}

fn is_jump(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Return | Stmt::Break(..) | Stmt::Continue(_))
}
