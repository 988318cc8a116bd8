//! Operations on each element: `map_elementwise(x, y, |a, b| ..)` and `inline_ptx("..", x, y, |a, b| ..)`.
//!
//! The closure takes an element of each tile, as a scalar, and gives one of each result. It may branch and loop, and may
//! read the scalars around it. It touches no memory, and makes threads meet nowhere.

use kernel_core::ir::ptx::{PACKS, PtxError};
use kernel_core::ir::{Dt, InlinePtx, Safety};
use std::borrow::Cow;

use syn::{Expr, ExprClosure, ExprLit, Lit, Pat, ReturnType, Type};

use super::args::{Args, Elements};
use super::jump::Gives;
use super::{Checker, Context, Operand, Val};
use crate::error::{Checked, Reported};
use crate::ops::Call;
use crate::source_range::{SourceRange, bare};
use crate::tree::{MapStmt, NodeId, Stmt};
use crate::types::{VElem, VTy};

impl Checker<'_> {
    /// `map_elementwise(x, y, |a, b| ..)`
    pub(super) fn map_elementwise(&mut self, args: &Elements<'_>) -> Checked<Val> {
        self.on_elements(args, None)
    }

    /// `inline_ptx("add.s32 $0, $1, $2;", x, y, |a, b| a + b)`
    pub(super) fn inline_ptx(&mut self, args: &Elements<'_>) -> Checked<Val> {
        let text = match args.text.map(bare) {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => text,
            other => {
                let at = other.map_or(args.place, SourceRange::of);
                let help = "write `inline_ptx(\"neg.f32 $0, $1;\", x, |a| -a)`";
                return Err(self.report_help(at, "`inline_ptx` begins with a literal text", help));
            }
        };
        let at = SourceRange::at(text.span());
        let pack = self.pack(args)?;
        let pure = match args.named("pure") {
            None => None,
            Some(expr) => Some(self.truth_literal(expr, "pure")?),
        };
        let ptx = InlinePtx { text: text.value(), pack, pure: pure.unwrap_or(true) };
        if let Err(PtxError { message, help }) = ptx.check_text() {
            return Err(self.report_help(at, message, help));
        }
        if let Some(what) = ptx.beyond_registers() {
            if self.func.safety == Safety::Safe {
                let message = format!("{what} reaches beyond registers, which the text in a safe kernel may not");
                return Err(self.report_help(
                    at,
                    message,
                    "declare the kernel as `unsafe fn`, and promise what it does",
                ));
            }
            if pure.is_none() {
                let message = format!("{what} reaches beyond registers: the call says whether it is `pure`");
                let help = "write `pure = false`, or `pure = true` if it may be moved, merged and dropped";
                return Err(self.report_help(at, message, help));
            }
        }
        self.on_elements(args, Some((ptx, at)))
    }

    /// How many elements the text takes: 1 without the argument.
    fn pack(&mut self, args: &Elements<'_>) -> Checked<u8> {
        let Some(expr) = args.named("pack") else { return Ok(1) };
        let number = match bare(expr) {
            Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) => int.base10_parse::<u8>().ok(),
            _ => None,
        };
        let message = "`pack` is how many elements the text takes: 1, 2, 4 or 8";
        number.filter(|n| PACKS.contains(n)).ok_or_else(|| self.report(SourceRange::of(expr), message))
    }

    fn on_elements(&mut self, args: &Elements<'_>, ptx: Option<(InlinePtx, SourceRange)>) -> Checked<Val> {
        let (place, what) = (args.place, format!("`{}`", args.row.name));
        let inputs: Vec<Checked<Operand>> = args.inputs.iter().map(|expr| self.operand(expr)).collect();
        let inputs = inputs.into_iter().collect::<Checked<Vec<_>>>()?;
        let closure = self.closure_of_elements(args, &what)?;
        let closure = closure.as_ref();
        for &input in &inputs {
            self.data(input, &what)?;
        }
        let shape = self.common_shape(&inputs, &what, place)?;
        let (mut tiles, mut slots) = (Vec::new(), Vec::new());
        for &input in &inputs {
            tiles.push(self.expand(input.node, &shape, input.place));
            let scalar = self.ty(input).with_shape(Vec::new());
            slots.push(self.slot(scalar, input.place));
        }
        // Jumps in the closure stay in it.
        self.calls.push((self.contexts.len() + 1, self.loops.len()));
        let (given, body) = self.nested(Context::Element, |c| c.element(closure, &slots, &what));
        self.calls.pop();
        let (yields, tuple) = given?;
        let mut results = Vec::new();
        for &node in &yields {
            let Some(dt) = self.node_dt(node) else { return Err(Reported::earlier()) };
            results.push(self.slot(VTy { elem: VElem::Data(dt), shape: shape.clone() }, place));
        }
        let (inputs, args) = (tiles, slots);
        let stmt = MapStmt { ptx, inputs, args, body, yields, results: results.clone(), place };
        self.stmts.push(Stmt::Map(Box::new(stmt)));
        let mut results = results.into_iter().map(|node| Val::One(Operand { node, place }));
        match (tuple, results.len()) {
            (false, 1) => results.next().ok_or_else(Reported::earlier),
            _ => Ok(Val::Tuple(results.collect(), place)),
        }
    }

    /// The closure behind the tiles, of which it takes an element each.
    fn closure_of_elements<'e>(&mut self, args: &Elements<'e>, what: &str) -> Checked<Cow<'e, ExprClosure>> {
        let count = args.inputs.len();
        let names: Vec<String> = (0..count).map(|i| char::from(b'a' + (i % 26) as u8).to_string()).collect();
        let names = names.join(", ");
        let written = args.closure.map(bare);
        if let Some(closure) = written.and_then(|expr| self.closure_of_name(expr, count)) {
            return Ok(Cow::Owned(closure));
        }
        let closure = match written {
            Some(Expr::Closure(closure)) => closure,
            other => {
                let at = other.map_or(args.place, SourceRange::of);
                let help = if args.row.call == Call::InlinePtx {
                    "say what the text computes, which is what the CPU does: `|a, b| a + b`"
                } else {
                    "write what happens to each element: `|a, b| if a > b { a } else { b }`"
                };
                return Err(self.report_help(at, format!("{what} needs a closure behind its tiles"), help));
            }
        };
        if closure.inputs.len() != count {
            let place = SourceRange::between(closure.or1_token.span, closure.or2_token.span);
            let (found, s) = (closure.inputs.len(), |n: usize| if n == 1 { "" } else { "s" });
            let (tiles, elements) = (s(count), s(found));
            let message = format!("{what} has {count} tile{tiles}, and its closure takes {found} element{elements}");
            return Err(self.report_help(place, message, format!("write `|{names}| ..`")));
        }
        self.plain_closure(closure);
        self.unique(&closure.inputs.iter().collect::<Vec<&Pat>>());
        Ok(Cow::Borrowed(closure))
    }

    /// Checks the closure for one element: what it gives, and whether that is a tuple.
    fn element(&mut self, closure: &ExprClosure, slots: &[NodeId], what: &str) -> Checked<(Vec<NodeId>, bool)> {
        for (pat, &node) in closure.inputs.iter().zip(slots) {
            let place = SourceRange::of_pat(pat);
            let val = self.typed_element(pat, node, what).map(|()| Val::One(Operand { node, place }));
            match pat {
                Pat::Type(typed) if val.is_err() => self.bind_pattern(&typed.pat, val),
                pat => self.bind_pattern(pat, val),
            }
        }
        let body = SourceRange::of(&closure.body);
        let mut val = self.inlined_body(Gives::Anything, body, |c| c.tail(&closure.body))?;
        if let ReturnType::Type(_, ty) = &closure.output {
            let annotation = self.annotation(ty)?;
            val = self.annotate(val, &annotation)?;
        }
        let (parts, tuple) = match val {
            Val::Tuple(parts, _) if parts.record.is_none() => (parts.into_iter().collect(), true),
            one => (vec![one], false),
        };
        let mut yields = Vec::new();
        for part in parts {
            let operand = self.one(part)?;
            self.data(operand, &format!("the closure of {what}"))?;
            if !self.ty(operand).is_scalar() {
                let message = format!("the closure of {what} gives {} where an element is due", self.show(operand));
                return Err(self.report(operand.place, message));
            }
            yields.push(operand.node);
        }
        Ok((yields, tuple))
    }

    /// Refuses `|a: f32|` over another dtype.
    fn typed_element(&mut self, pat: &Pat, node: NodeId, what: &str) -> Checked<()> {
        let Pat::Type(typed) = pat else { return Ok(()) };
        if matches!(*typed.ty, Type::Infer(_)) {
            return Ok(());
        }
        let (own, says) = (self.node_dt(node).and_then(|dt| self.types.known(dt)), self.dtype(&typed.ty)?);
        match own {
            Some(own) if own != says => {
                let (own, says) = (self.show_fixed(own), self.show_fixed(says));
                let message = format!("the closure of {what} is given {own}, and says {says}");
                Err(self.report_help(SourceRange::of_pat(pat), message, "leave the type out, or convert the tile"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether this is code for single elements.
    pub(super) fn on_an_element(&self) -> bool {
        self.contexts.contains(&Context::Element)
    }

    /// Whether this is in a closure that operations call.
    pub(super) fn in_closure(&self) -> bool {
        self.contexts.contains(&Context::Closure) || self.on_an_element()
    }

    /// Refuses an operation that is more than arithmetic in the closure of an operation on each element.
    pub(super) fn fits_element(&mut self, args: &Args<'_>) -> Checked<()> {
        if !self.on_an_element() || computes(args.row.call) {
            return Ok(());
        }
        Err(self.more_than_arithmetic(args.row.name, args.place))
    }

    pub(super) fn more_than_arithmetic(&mut self, name: &str, place: SourceRange) -> Reported {
        let message = format!("`{name}` in a closure for single elements is not supported");
        self.report_help(place, message, "call it before or after: the closure computes with scalars alone")
    }

    /// Refuses what is no scalar where it is read in the closure of an operation on each element.
    pub(super) fn seen_by_element(&mut self, operand: Operand, name: &str) -> Checked<()> {
        let ty = self.ty(operand);
        if !self.on_an_element() || (ty.is_scalar() && matches!(ty.elem, VElem::Data(_))) {
            return Ok(());
        }
        let message = format!("the closure computes with single elements, and `{name}` is {}", self.show(operand));
        let help = match self.ty(operand).elem {
            VElem::Ptr(_) => "read what it points to before, and pass the tile".to_string(),
            VElem::Data(_) => format!("pass it: the closure then takes an element of `{name}` too"),
        };
        Err(self.report_help(operand.place, message, help))
    }

    /// The registers that a text names are those of the values, now that all dtypes are known.
    pub(super) fn ptx_fits(&mut self, stmt: &MapStmt) {
        let Some((ptx, at)) = &stmt.ptx else { return };
        let dts = |nodes: &[NodeId]| -> Vec<Dt> {
            nodes.iter().filter_map(|&node| self.node_dt(node)).map(|dt| self.types.settled(dt)).collect()
        };
        if let Err(PtxError { message, help }) = ptx.check_operands(&dts(&stmt.args), &dts(&stmt.yields)) {
            self.report_help(*at, message, help);
        }
    }
}

/// Whether an operation computes scalars of scalars.
fn computes(call: Call) -> bool {
    match call {
        Call::ProgramId
        | Call::NumPrograms
        | Call::NumWarps
        | Call::Capability
        | Call::Unary(_)
        | Call::Count(_)
        | Call::Binary(_)
        | Call::FloatInt(_)
        | Call::Extreme(..)
        | Call::Select
        | Call::Fma
        | Call::Overflowing(_)
        | Call::Composed(_)
        | Call::To
        | Call::Bitcast
        | Call::Random(_) => true,
        Call::Counter(_)
        | Call::Arange
        | Call::Full
        | Call::Zeros
        | Call::Load
        | Call::Store
        | Call::Shape(_)
        | Call::Tile(_)
        | Call::Fold(_)
        | Call::Softmax
        | Call::Mean
        | Call::Var
        | Call::ArgExtreme(_)
        | Call::Reduce
        | Call::Running(_)
        | Call::Scan
        | Call::Atomic(_)
        | Call::AtomicCas
        | Call::AtomicLoad
        | Call::AtomicStore
        | Call::AtomicPoll
        | Call::MultipleOf
        | Call::DotScaled
        | Call::TensorDesc
        | Call::Runs(_)
        | Call::Assume
        | Call::Dot
        | Call::Map
        | Call::InlinePtx
        | Call::Desc(_) => false,
    }
}
