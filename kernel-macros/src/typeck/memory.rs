//! `load` and `store`, and what all accesses have in common.

use kernel_core::ir::{CacheModifier, Dim, Dt, EvictionPolicy, MemoryOp, Op, ParamId, ParamKind};
use syn::Expr;

use super::args::Args;
use super::{Binding, Checker, Operand};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::source_range::{SourceRange, bare};
use crate::tree::{NodeId, Stmt};
use crate::types::{BOOL, DtRef, VElem};

impl Checker<'_> {
    pub(super) fn load(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let pointer = self.pointer(args, "load");
        let mask = self.named_value(args, "mask");
        let other = self.named_value(args, "other");
        let cache = self.cache(args, false);
        let eviction = self.eviction(args);
        let (pointer, param, dt, _) = pointer?;
        let shape = self.ty(pointer).shape.clone();
        let mut operands = vec![pointer.node];
        if let Some(mask) = mask? {
            operands.push(self.mask(mask, &shape, "load")?);
        }
        if let Some(other) = other? {
            if operands.len() == 1 {
                let help = "give the lanes that take it: `mask = ..`";
                return Err(self.report_help(other.place, "`other` has no effect without `mask`", help));
            }
            self.expect(other, DtRef::Fixed(dt), "`other`")?;
            operands.push(self.fit(other, &shape, "`other`", "load")?);
        }
        let op = MemoryOp::Load { cache: cache?, eviction: eviction? };
        let ty = self.ty(pointer).with_dt(DtRef::Fixed(self.func.pointee_dt(param).unwrap_or(dt)));
        Ok(Operand { node: self.op(op, operands, ty, args.place), place: args.place })
    }

    pub(super) fn store(&mut self, args: &Args<'_>) -> Checked<()> {
        let pointer = self.mutable_pointer(args, "store");
        let value = self.arg(args, 1);
        let mask = self.named_value(args, "mask");
        let cache = self.cache(args, true);
        let eviction = self.eviction(args);
        let (pointer, dt) = pointer?;
        let operands = self.access(pointer, dt, &[("the stored value", value?)], mask?, "store")?;
        let op = Op::from(MemoryOp::Store { cache: cache?, eviction: eviction? });
        self.stmts.push(Stmt::Effect(op, operands, args.place));
        Ok(())
    }

    /// The operands of an access: the pointers, values of their dtype and shape, and the mask.
    pub(super) fn access(
        &mut self,
        pointer: Operand,
        dt: Dt,
        values: &[(&str, Operand)],
        mask: Option<Operand>,
        call: &str,
    ) -> Checked<Vec<NodeId>> {
        let shape = self.ty(pointer).shape.clone();
        let mut operands = vec![Ok(pointer.node)];
        for &(what, value) in values {
            let typed = self.expect(value, DtRef::Fixed(dt), what);
            operands.push(typed.and_then(|()| self.fit(value, &shape, what, call)));
        }
        operands.extend(mask.map(|mask| self.mask(mask, &shape, call)));
        operands.into_iter().collect()
    }

    /// The pointer of an access that writes, and the dtype there.
    pub(super) fn mutable_pointer(&mut self, args: &Args<'_>, what: &str) -> Checked<(Operand, Dt)> {
        let (pointer, param, dt, mutable) = self.pointer(args, what)?;
        if mutable {
            return Ok((pointer, dt));
        }
        Err(self.read_only(param, dt, pointer.place))
    }

    /// Refuses to write the buffer of a `Ptr`.
    pub(super) fn read_only(&mut self, param: ParamId, dt: Dt, place: SourceRange) -> Reported {
        let name = self.func.param(param).name.clone();
        let written = self.show_pointer(param);
        let message = format!("`{name}` is a {written}, which is read only");
        let ty = self.show_fixed(dt).replace('`', "");
        let ty = self.optional(param, format!("PtrMut<{ty}>"));
        let help = format!("declare the parameter as `{name}: {ty}`");
        self.report_help(place, message, help)
    }

    /// The pointer of an access, its parameter, the dtype there, and whether it may be written.
    fn pointer(&mut self, args: &Args<'_>, what: &str) -> Checked<(Operand, ParamId, Dt, bool)> {
        if self.in_closure() {
            let help = "access memory before or after the call that takes the closure";
            return Err(self.report_help(args.place, format!("`{what}` in a closure is not supported"), help));
        }
        let pointer = self.arg(args, 0)?;
        let VElem::Ptr(param) = self.ty(pointer).elem else {
            let message = format!("`{what}` needs a pointer, found {}", self.show(pointer));
            let (kind, rest) = if what == "load" { ("Ptr", "") } else { ("PtrMut", ", value") };
            let help = format!("add offsets to a `{kind}` parameter: `{what}(x + offsets{rest})`");
            return Err(self.report_help(pointer.place, message, help));
        };
        match self.func.param(param).kind {
            ParamKind::Ptr { dt, mutable } => Ok((pointer, param, dt, mutable)),
            ParamKind::Desc { .. }
            | ParamKind::Scalar(_)
            | ParamKind::ConstScalar(_)
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => Err(self.report(pointer.place, "this does not point into a buffer")),
        }
    }

    pub(super) fn mask(&mut self, mask: Operand, shape: &[Dim], what: &str) -> Checked<NodeId> {
        self.expect(mask, BOOL, "`mask`")?;
        self.fit(mask, shape, "`mask`", what)
    }

    /// Broadcasts an operand to the shape of the pointers.
    fn fit(&mut self, operand: Operand, shape: &[Dim], what: &str, call: &str) -> Checked<NodeId> {
        let own = self.ty(operand).shape.clone();
        let one = Dim::Const(1);
        let misfit = own.iter().rev().zip(shape.iter().rev().chain(std::iter::repeat(&one)));
        let misfit = misfit.filter(|(a, b)| !a.is_one() && !self.same_dim(a, b)).map(|(a, b)| (a.clone(), b.clone()));
        let misfit = misfit.last();
        if misfit.is_none() && own.len() <= shape.len() {
            return Ok(self.expand(operand.node, shape, operand.place));
        }
        let found = if own.is_empty() { "a scalar".to_string() } else { self.show_shape(&own) };
        let (message, help) = if shape.is_empty() {
            let message = format!("{what} has the shape {found}, but the pointer of this `{call}` is a scalar");
            (message, "make a tile of pointers: `pointer + offsets`".to_string())
        } else {
            let message = format!(
                "{what} has the shape {found}, but the pointers of this `{call}` have {}",
                self.show_shape(shape)
            );
            let help = match misfit {
                Some((a, b)) if own.len() <= shape.len() => {
                    self.axis_help(operand, shape).unwrap_or_else(|| self.shape_help(&a, &b))
                }
                Some(_) | None => format!("it must broadcast to {}", self.show_shape(shape)),
            };
            (message, help)
        };
        Err(self.report_help(operand.place, message, help))
    }

    fn cache(&mut self, args: &Args<'_>, store: bool) -> Checked<CacheModifier> {
        use CacheModifier::{Ca, Cg, Cs, Cv, Wb, Wt};
        let Some(expr) = args.named("cache") else { return Ok(CacheModifier::Default) };
        let allowed = if store { [Wb, Cg, Cs, Wt] } else { [Ca, Cg, Cs, Cv] };
        self.keyword(expr, "cache", &allowed.map(|cache| (cache.name(), cache)))
    }

    fn eviction(&mut self, args: &Args<'_>) -> Checked<EvictionPolicy> {
        let Some(expr) = args.named("eviction") else { return Ok(EvictionPolicy::Normal) };
        let allowed = [
            ("evict_first", EvictionPolicy::First),
            ("evict_last", EvictionPolicy::Last),
            ("evict_normal", EvictionPolicy::Normal),
        ];
        self.keyword(expr, "eviction", &allowed)
    }

    /// An argument that is one of a few words.
    pub(super) fn keyword<T: Copy>(&mut self, expr: &Expr, what: &str, words: &[(&str, T)]) -> Checked<T> {
        let name = ident(expr).unwrap_or_default();
        let quoted = match bare(expr) {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
                text.value().trim_start_matches('.').to_string()
            }
            _ => name.clone(),
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == name) {
            return Ok(*value);
        }
        if let Some((Binding::Dim(_) | Binding::ConstBool(_), _)) = self.lookup(&name) {
            let message = format!("`{what}` is a word of the operation, which no constexpr can be");
            let word = words.first().map_or("..", |(word, _)| word);
            let help = format!("let the constexpr decide: `if {name} == 0 {{ .. {what} = {word} .. }} else {{ .. }}`");
            return Err(self.report_help(SourceRange::of(expr), message, help));
        }
        let listed: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        let message = format!("`{what}` is one of {}", listed.join(", "));
        let place = SourceRange::of(expr);
        if quoted != name && words.iter().any(|(word, _)| *word == quoted) {
            return Err(self.report_help(place, message, Help::write(place, quoted).and(", without quotes")));
        }
        let ours = match quoted.as_str() {
            "gpu" => "device",
            "cta" => "block",
            "sys" => "system",
            "seq_cst" | "SeqCst" => "acq_rel",
            "cache_all" => "ca",
            other => other,
        };
        Err(match closest(ours, words.iter().map(|(word, _)| *word)) {
            Some(_) if quoted.eq_ignore_ascii_case("seq_cst") || quoted == "SeqCst" => {
                self.report_help(place, message, Help::write(place, ours).and(", the strongest of them"))
            }
            Some(close) => self.report_help(place, message, Help::meant(place, close)),
            None => self.report(place, message),
        })
    }
}

fn ident(expr: &Expr) -> Option<String> {
    match bare(expr) {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}
