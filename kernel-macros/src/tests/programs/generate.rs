//! Makes random programs, each from its seed.

use kernel_core::ir::{BinaryOp, CmpOp};

use super::super::hostile::Random;
use super::{Condition, Expr, MEMORY, Order, Stmt, ValueBlock};

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
    /// Whether a loop surrounds the place, inside which nothing returns.
    looping: bool,
    /// Whether this is the condition of a `while`, which assigns nothing outside.
    head: bool,
    /// Loops so far, for names of counters.
    loops: usize,
}

/// The program of a seed.
pub fn program(seed: u64) -> Vec<Stmt> {
    let random = Random::new(seed);
    let names = vec![("n".to_string(), false)];
    let mut generator = Generator { random, names, looping: false, head: false, loops: 0 };
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
        if self.head {
            return None;
        }
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
            let ends = matches!(stmt, Some(Stmt::Return));
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
            if matches!(stmts.last(), Some(Stmt::Return)) {
                return (stmts, None);
            }
            if !g.looping && g.chance(5) {
                stmts.push(Stmt::Return);
                return (stmts, None);
            }
            (stmts, Some(add(Expr::Name("n".to_string()), g.expr(1))))
        })
    }

    fn in_loop<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.looping, true);
        let result = self.scope(f);
        self.looping = outer;
        result
    }

    fn stmt(&mut self, depth: usize) -> Option<Stmt> {
        let kinds = if depth < 3 { 14 } else { 8 };
        match self.random.next(kinds) {
            0 | 1 => Some(self.binding(0)),
            2..=4 => self.assignment(0),
            5 | 6 => Some(Stmt::Store(self.random.next(MEMORY), self.expr(0))),
            7 if !self.looping && depth > 0 && self.chance(2) => Some(Stmt::Return),
            7 => None,
            8 | 9 => {
                let condition = self.condition(1);
                let otherwise = if self.chance(2) { Vec::new() } else { self.block(depth) };
                Some(Stmt::If(condition, self.block(depth), otherwise))
            }
            10 | 11 => self.let_if(depth),
            12 => Some(self.for_loop(depth)),
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
        let (lo, hi) = (and(self.expr(1), 3), and(self.expr(1), 7));
        let step = 1 + self.random.next(3) as i32;
        let orders =
            [Order::Forward, Order::Reverse, Order::Step(step), Order::StepReverse(step), Order::ReverseStep(step)];
        let order = *self.random.pick(&orders);
        self.in_loop(|g| {
            let name = g.declare(false);
            Stmt::For { name, lo, hi, order, body: g.block(depth) }
        })
    }

    fn while_loop(&mut self, depth: usize) -> Stmt {
        self.loops += 1;
        let counter = format!("turn{}", self.loops);
        let turns = and(self.expr(1), 3);
        let outer = std::mem::replace(&mut self.head, true);
        let condition = self.condition(1);
        self.head = outer;
        let body = self.in_loop(|g| g.block(depth));
        Stmt::While { counter, turns, condition, body }
    }
}
