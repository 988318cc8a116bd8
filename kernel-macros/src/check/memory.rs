//! `load` and `store`.

use kernel_core::ir::{CacheModifier, Dim, Dt, EvictionPolicy, MemoryOp, Op, ParamId, ParamKind};
use syn::Expr;

use super::args::Args;
use super::{Checker, Context, Operand};
use crate::error::Checked;
use crate::names::closest;
use crate::place::{Place, bare};
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
        let pointer = self.pointer(args, "store");
        let value = self.arg(args, 1);
        let mask = self.named_value(args, "mask");
        let cache = self.cache(args, true);
        let eviction = self.eviction(args);
        let (pointer, param, dt, mutable) = pointer?;
        if !mutable {
            let name = self.func.param(param).name.clone();
            let written = self.show_pointer(param);
            let message = format!("`{name}` is a {written}, which is read only");
            let ty = self.show_fixed(dt).replace('`', "");
            let help = format!("declare the parameter as `{name}: PtrMut<{ty}>`");
            return Err(self.report_help(pointer.place, message, help));
        }
        let value = value?;
        self.expect(value, DtRef::Fixed(dt), "the stored value")?;
        let shape = self.ty(pointer).shape.clone();
        let mut operands = vec![pointer.node, self.fit(value, &shape, "the stored value", "store")?];
        if let Some(mask) = mask? {
            operands.push(self.mask(mask, &shape, "store")?);
        }
        let op = Op::from(MemoryOp::Store { cache: cache?, eviction: eviction? });
        self.stmts.push(Stmt::Effect(op, operands, args.place));
        Ok(())
    }

    /// The pointer of an access, its parameter, the dtype there, and whether it may be written.
    fn pointer(&mut self, args: &Args<'_>, what: &str) -> Checked<(Operand, ParamId, Dt, bool)> {
        if self.contexts.contains(&Context::Closure) {
            let help = "load before the reduction, store after it";
            return Err(self.report_help(args.place, format!("`{what}` in a closure is not supported"), help));
        }
        let pointer = self.arg(args, 0)?;
        let VElem::Ptr(param) = self.ty(pointer).elem else {
            let message = format!("`{what}` needs a pointer, found {}", self.show(pointer));
            let help = format!(
                "add offsets to a `Ptr` parameter: `{what}(x + offsets{})`",
                if what == "store" { ", value" } else { "" }
            );
            return Err(self.report_help(pointer.place, message, help));
        };
        match self.func.param(param).kind {
            ParamKind::Ptr { dt, mutable } => Ok((pointer, param, dt, mutable)),
            ParamKind::Scalar(_)
            | ParamKind::ConstScalar(_)
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::Scratch => Err(self.report(pointer.place, "this does not point into a buffer")),
        }
    }

    fn mask(&mut self, mask: Operand, shape: &[Dim], what: &str) -> Checked<NodeId> {
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
                Some((a, b)) if own.len() <= shape.len() => self.shape_help(&a, &b),
                Some(_) | None => format!("it must broadcast to {}", self.show_shape(shape)),
            };
            (message, help)
        };
        Err(self.report_help(operand.place, message, help))
    }

    fn cache(&mut self, args: &Args<'_>, store: bool) -> Checked<CacheModifier> {
        use CacheModifier::{Ca, Cg, Cs, Cv, Wb, Wt};
        let Some(expr) = args.named("cache") else { return Ok(CacheModifier::Default) };
        let allowed: &[CacheModifier] = if store { &[Wb, Cg, Cs, Wt] } else { &[Ca, Cg, Cs, Cv] };
        let name = ident(expr).unwrap_or_default();
        match allowed.iter().find(|c| c.name() == name) {
            Some(found) => Ok(*found),
            None => {
                let names: Vec<&str> = allowed.iter().map(|c| c.name()).collect();
                Err(self.no_such_name(expr, "cache", &name, &names))
            }
        }
    }

    fn eviction(&mut self, args: &Args<'_>) -> Checked<EvictionPolicy> {
        let Some(expr) = args.named("eviction") else { return Ok(EvictionPolicy::Normal) };
        let name = ident(expr).unwrap_or_default();
        match name.as_str() {
            "evict_first" => Ok(EvictionPolicy::First),
            "evict_last" => Ok(EvictionPolicy::Last),
            "evict_normal" => Ok(EvictionPolicy::Normal),
            _ => Err(self.no_such_name(expr, "eviction", &name, &["evict_first", "evict_last", "evict_normal"])),
        }
    }

    fn no_such_name(&mut self, expr: &Expr, what: &str, name: &str, names: &[&str]) -> crate::error::Reported {
        let listed: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let message = format!("`{what}` is one of {}", listed.join(", "));
        match closest(name, names.iter().copied()) {
            Some(close) => self.report_help(Place::of(expr), message, format!("did you mean `{close}`?")),
            None => self.report(Place::of(expr), message),
        }
    }
}

fn ident(expr: &Expr) -> Option<String> {
    match bare(expr) {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}
