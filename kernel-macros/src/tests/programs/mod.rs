//! Random programs of scalar integers: the lowered kernel, run by the interpreter, does what the source says.
//!
//! `generate` makes programs with every kind of statement that has to become structure (assignments in branches and
//! loops, shadowing, jumps of all kinds, conditions that short-circuit), `evaluate` runs the source itself.

mod evaluate;
mod generate;

use kernel_core::interp::{HostBuffer, HostScalar, run_kernel};
use kernel_core::ir::{BinaryOp, Bound, CmpOp, Generic};
use kernel_core::passes::{Bindings, bind};
use kernel_core::text;

use super::support::{expand, literal_after};

/// Elements of the buffer that programs read and write.
const MEMORY: usize = 8;
/// How many programs are made.
const PROGRAMS: u64 = 300;

/// An expression of dtype `i32`.
enum Expr {
    Const(i32),
    Name(String),
    Load(usize),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    If(Box<Condition>, Box<Expr>, Box<Expr>),
    Block(Vec<Stmt>, Box<Expr>),
}

/// An expression of dtype `bool`.
enum Condition {
    Compare(CmpOp, Expr, Expr),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
}

/// The order of a loop.
#[derive(Clone, Copy)]
enum Order {
    Forward,
    Reverse,
    Step(i32),
    StepReverse(i32),
    ReverseStep(i32),
}

/// Where a jump leads: a label, and whether the jump names it.
#[derive(Clone)]
struct Target {
    label: String,
    named: bool,
}

/// A range of numbers.
struct Numbers {
    lo: Expr,
    hi: Expr,
    inclusive: bool,
    order: Order,
}

/// A block of an `if` that gives a value, unless it jumps.
type ValueBlock = (Vec<Stmt>, Option<Expr>);

enum Stmt {
    Let {
        name: String,
        mutable: bool,
        value: Expr,
    },
    LetIf {
        name: String,
        condition: Condition,
        then: ValueBlock,
        otherwise: ValueBlock,
    },
    Assign(String, Expr),
    Compound(String, BinaryOp, Expr),
    Swap(String, String),
    Store(usize, Expr),
    If(Condition, Vec<Stmt>, Vec<Stmt>),
    For {
        label: String,
        unroll: bool,
        name: String,
        numbers: Numbers,
        body: Vec<Stmt>,
    },
    While {
        label: String,
        counter: String,
        turns: Expr,
        condition: Condition,
        body: Vec<Stmt>,
    },
    /// Ends by itself after some turns; then a value is that of `last`.
    Loop {
        label: String,
        counter: String,
        turns: Expr,
        body: Vec<Stmt>,
        name: Option<String>,
        last: Option<Expr>,
    },
    Return,
    Break(Target, Option<Expr>),
    Continue(Target),
}

fn symbol(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Xor => "^",
        other => panic!("`{}` has no symbol", other.name()),
    }
}

fn block(stmts: &[Stmt]) -> String {
    let lines: Vec<String> = stmts.iter().map(|s| s.source()).collect();
    format!("{{ {} }}", lines.join("\n"))
}

fn value_block((stmts, value): &ValueBlock) -> String {
    let lines: Vec<String> = stmts.iter().map(|s| s.source()).collect();
    format!("{{ {} {} }}", lines.join("\n"), value.as_ref().map(Expr::source).unwrap_or_default())
}

impl Expr {
    fn source(&self) -> String {
        match self {
            Expr::Const(value) => format!("({value})"),
            Expr::Name(name) => name.clone(),
            Expr::Load(index) => format!("load(out + {index})"),
            Expr::Binary(op, a, b) => format!("({} {} {})", a.source(), symbol(*op), b.source()),
            Expr::If(c, a, b) => format!("(if {} {{ {} }} else {{ {} }})", c.source(), a.source(), b.source()),
            Expr::Block(stmts, value) => {
                let lines: Vec<String> = stmts.iter().map(|s| s.source()).collect();
                format!("({{ {} {} }})", lines.join(" "), value.source())
            }
        }
    }
}

impl Condition {
    fn source(&self) -> String {
        match self {
            Condition::Compare(op, a, b) => {
                let symbol = match op {
                    CmpOp::Eq => "==",
                    CmpOp::Ne => "!=",
                    CmpOp::Lt => "<",
                    CmpOp::Le => "<=",
                    CmpOp::Gt => ">",
                    CmpOp::Ge => ">=",
                };
                format!("({} {symbol} {})", a.source(), b.source())
            }
            Condition::And(a, b) => format!("({} && {})", a.source(), b.source()),
            Condition::Or(a, b) => format!("({} || {})", a.source(), b.source()),
            Condition::Not(a) => format!("!{}", a.source()),
        }
    }
}

impl Target {
    fn source(&self) -> String {
        if self.named { format!(" '{}", self.label) } else { String::new() }
    }
}

/// What a `break` gives.
fn given(value: Option<&Expr>) -> String {
    value.map(|value| format!(" {}", value.source())).unwrap_or_default()
}

impl Stmt {
    fn source(&self) -> String {
        match self {
            Stmt::Let { name, mutable, value } => {
                format!("let {}{name} = {};", if *mutable { "mut " } else { "" }, value.source())
            }
            Stmt::LetIf { name, condition, then, otherwise } => {
                format!("let {name} = if {} {} else {};", condition.source(), value_block(then), value_block(otherwise))
            }
            Stmt::Assign(name, value) => format!("{name} = {};", value.source()),
            Stmt::Compound(name, op, value) => format!("{name} {}= {};", symbol(*op), value.source()),
            Stmt::Swap(a, b) => format!("({a}, {b}) = ({b}, {a});"),
            Stmt::Store(index, value) => format!("store(out + {index}, {});", value.source()),
            Stmt::If(condition, then, otherwise) if otherwise.is_empty() => {
                format!("if {} {}", condition.source(), block(then))
            }
            Stmt::If(condition, then, otherwise) => {
                format!("if {} {} else {}", condition.source(), block(then), block(otherwise))
            }
            Stmt::For { label, unroll, name, numbers: Numbers { lo, hi, inclusive, order }, body } => {
                let dots = if *inclusive { "..=" } else { ".." };
                let range = format!("({}{dots}{})", lo.source(), hi.source());
                let unroll = if *unroll { "#[unroll]\n" } else { "" };
                let range = match order {
                    Order::Forward => range,
                    Order::Reverse => format!("{range}.rev()"),
                    Order::Step(step) => format!("{range}.step_by({step})"),
                    Order::StepReverse(step) => format!("{range}.step_by({step}).rev()"),
                    Order::ReverseStep(step) => format!("{range}.rev().step_by({step})"),
                };
                format!("{unroll}'{label}: for {name} in {range} {}", block(body))
            }
            Stmt::While { label, counter, turns, condition, body } => format!(
                "let mut {counter} = {};\n'{label}: while {counter} > 0 && {} {{ {counter} -= 1; {} }}",
                turns.source(),
                condition.source(),
                block(body)
            ),
            Stmt::Loop { label, counter, turns, body, name, last } => format!(
                "let mut {counter} = {};\n{}'{label}: loop {{ if {counter} <= 0 {{ break{}; }} {counter} -= 1; {} }}{}",
                turns.source(),
                name.as_ref().map(|name| format!("let {name} = ")).unwrap_or_default(),
                given(last.as_ref()),
                block(body),
                if name.is_some() { ";" } else { "" },
            ),
            Stmt::Return => "return;".to_string(),
            Stmt::Break(target, value) => format!("break{}{};", target.source(), given(value.as_ref())),
            Stmt::Continue(target) => format!("continue{};", target.source()),
        }
    }
}

/// The kernel of a program, bound; nothing if the source has a mistake that random programs have.
fn compile(source: &str) -> Option<Bound> {
    let (tokens, messages) = expand("", source);
    // Constant arithmetic that overflows or divides by zero is refused, as rustc does it.
    let refused = ["does not hold", "divides by zero"];
    if messages.iter().any(|m| refused.iter().any(|r| m.contains(r))) {
        return None;
    }
    assert!(messages.is_empty(), "{source}\n{}", messages.join("\n"));
    let ir = literal_after(tokens, "ir").unwrap_or_else(|| panic!("no IR for {source}"));
    let func = text::parse(&ir).unwrap_or_else(|e| panic!("{e}\n{ir}"));
    let generic = Generic::new(func).unwrap_or_else(|_| panic!("not generic\n{ir}"));
    match bind(&generic, &Bindings::default()) {
        Ok(bound) => Some(bound),
        // So is that of the counters of unrolled loops, once their values are there.
        Err(errors) => {
            let refused = |text: &str| text.contains("divides by zero") || text.contains("does not fit");
            assert!(errors.iter().all(|e| refused(&e.message)), "{errors:?}\n{source}\n{ir}");
            None
        }
    }
}

/// What the kernel leaves in memory.
fn run(kernel: &Bound, n: i32) -> Vec<i32> {
    let mut buffers = [HostBuffer::from((0..MEMORY as i32).collect::<Vec<i32>>())];
    run_kernel(kernel, &mut buffers, &[HostScalar::from(n)], [1, 1, 1])
        .unwrap_or_else(|e| panic!("{e}\n{}", text::print(kernel.func())));
    buffers[0].as_slice::<i32>().map(<[i32]>::to_vec).unwrap_or_default()
}

#[test]
fn lowered_programs_do_what_their_source_says() {
    let mut ran = 0;
    for seed in 1..=PROGRAMS {
        let program = generate::program(seed);
        let lines: Vec<String> = program.iter().map(Stmt::source).collect();
        let source = format!("fn k(out: PtrMut<i32>, n: i32) {{\n{}\n}}", lines.join("\n"));
        let Some(kernel) = compile(&source) else { continue };
        for n in [0, 3, -7] {
            assert_eq!(run(&kernel, n), evaluate::run(&program, n).0, "seed {seed}, n = {n}\n{source}");
        }
        ran += 1;
    }
    assert!(ran > PROGRAMS / 2, "{ran} programs ran");
}

/// Programs as functions that are called in a branch of a loop: what `return` ends is the function.
#[test]
fn programs_that_are_functions_do_what_their_source_says() {
    let mut ran = 0;
    for seed in 1..=PROGRAMS {
        let program = generate::program(seed);
        let lines: Vec<String> = program.iter().map(Stmt::source).collect();
        let body = lines.join("\n").replace("return;", "return (n + 1, -1);");
        let source = format!(
            "#[device] fn f(out: PtrMut<i32>, n: i32) -> (i32, i32) {{\n{body}\n(n, 1)\n}}
            fn k(out: PtrMut<i32>, n: i32) {{
                for i in 0..1 {{
                    if n != i + 100 {{ let (a, b) = f(out, n); store(out, load(out) * 7 + a * b); }}
                    store(out + 1, load(out + 1) + 5);
                }}
            }}"
        );
        let Some(kernel) = compile(&source) else { continue };
        for n in [0, 3, -7] {
            let (mut wanted, returned) = evaluate::run(&program, n);
            let value = if returned { -n.wrapping_add(1) } else { n };
            wanted[0] = wanted[0].wrapping_mul(7).wrapping_add(value);
            wanted[1] = wanted[1].wrapping_add(5);
            assert_eq!(run(&kernel, n), wanted, "seed {seed}, n = {n}\n{source}");
        }
        ran += 1;
    }
    assert!(ran > PROGRAMS / 2, "{ran} programs ran");
}
