//! Statements: `let`, assignment, expressions as statements.

use kernel_core::ir::{MemoryOp, Op};
use syn::{Expr, ExprAssign, ExprBinary, ExprField, Local};

use super::binary::operator;
use super::block::Flow;
use super::{Binding, Checker, Context, Operand, Val};
use crate::error::{Checked, Reported};
use crate::source_range::SourceRange;
use crate::tree::{Kind, Stmt, VOp, VarId};
use crate::types::VElem;

impl Checker<'_> {
    /// An expression as a statement. Returns whether control never reaches what follows.
    pub(super) fn expr_stmt(&mut self, expr: &Expr) -> bool {
        match expr {
            Expr::Assign(assign) => self.assign(assign),
            Expr::Binary(binary) if operator(&binary.op).is_some_and(|(_, assigns)| assigns) => {
                self.compound(binary);
                false
            }
            Expr::If(stmt) => matches!(self.if_expr(stmt, false), Flow::Diverges),
            Expr::ForLoop(stmt) => {
                self.for_loop(stmt);
                false
            }
            Expr::While(stmt) => {
                self.while_loop(stmt);
                false
            }
            Expr::Block(block) if block.label.is_none() => {
                let end = block.block.brace_token.span.close();
                matches!(self.scoped(|c| c.block(&block.block.stmts, false, end)), Flow::Diverges)
            }
            Expr::Unsafe(block) => matches!(self.unsafe_block(block, false), Flow::Diverges),
            Expr::Loop(stmt) => match self.endless_loop(stmt) {
                Flow::Diverges => true,
                Flow::Value(val) => {
                    self.unused(val);
                    false
                }
            },
            Expr::Return(stmt) => self.return_stmt(stmt),
            Expr::Break(stmt) => self.break_stmt(stmt),
            Expr::Continue(stmt) => self.continue_stmt(stmt),
            Expr::Macro(mac) => {
                self.macro_stmt(&mac.mac);
                false
            }
            Expr::Group(group) => self.expr_stmt(&group.expr),
            // A semicolon alone.
            Expr::Verbatim(tokens) if tokens.is_empty() => false,
            other => {
                let val = self.expr(other);
                self.unused(val);
                false
            }
        }
    }

    /// Refuses a value that nobody uses.
    fn unused(&mut self, val: Checked<Val>) {
        if let Ok(val @ (Val::One(_) | Val::Tuple(..))) = val
            && !self.is_atomic(&val)
        {
            let help = "name it, `let name = ..;`, store it, or remove it";
            self.report_help(val.place(), "this value is not used", help);
        }
    }

    /// Whether a value is what an atomic operation found in memory, which need not be used.
    fn is_atomic(&self, val: &Val) -> bool {
        match val {
            Val::One(operand) => {
                let atomic = matches!(
                    &self.node(operand.node).kind,
                    Kind::Op(VOp::Ready(Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. })), _)
                );
                atomic || self.polled.contains(&operand.node)
            }
            Val::Tuple(..) | Val::Unit(_) => false,
        }
    }

    /// `let pattern: type = value;` Whether control never comes to it.
    pub(super) fn local(&mut self, local: &Local) -> bool {
        let (pat, ty) = match &local.pat {
            syn::Pat::Type(typed) => (&*typed.pat, Some(&*typed.ty)),
            pat => (pat, None),
        };
        if self.named_closure(local) || self.named_descriptor(local) {
            return false;
        }
        let annotation = ty.map(|ty| self.annotation(ty));
        let val = match &local.init {
            Some(init) => {
                if let Some((token, _)) = &init.diverge {
                    let place = SourceRange::at(token.span);
                    let help = self.given_else(pat, &init.expr).unwrap_or_else(|| "write `let` and `if`".to_string());
                    self.report_help(place, "`let .. else` is not supported in kernels", help);
                    self.bind_silent(pat);
                    return false;
                }
                match self.value_if_reached(&init.expr) {
                    Some(val) => val,
                    None => return true,
                }
            }
            None => {
                let help = "give it a value here: `let x = if .. { .. } else { .. };`";
                Err(self.report_help(SourceRange::of_pat(pat), "a variable needs a value where it is declared", help))
            }
        };
        let val = match (val, annotation) {
            (Ok(val), Some(Ok(annotation))) => self.annotate(val, &annotation),
            (Ok(_), Some(Err(reported))) | (Err(reported), _) => Err(reported),
            (Ok(val), None) => Ok(val),
        };
        self.unique(&[pat]);
        let first = self.variables.len();
        self.bind_pattern(pat, val);
        self.variables[first..].iter_mut().for_each(|variable| variable.annotated = ty.is_some());
        false
    }

    /// Whether control never comes to the assignment.
    fn assign(&mut self, assign: &ExprAssign) -> bool {
        let variables = self.assigned_variables(&assign.left);
        let outer = std::mem::replace(&mut self.assigned, variables);
        let val = self.value_if_reached(&assign.right);
        self.assigned = outer;
        let Some(val) = val else { return true };
        self.assign_to(&assign.left, val);
        false
    }

    /// Assigns to a name, to a tuple of names, or to `_`.
    fn assign_to(&mut self, target: &Expr, val: Checked<Val>) {
        match (target, val) {
            (Expr::Paren(paren), val) => self.assign_to(&paren.expr, val),
            (Expr::Group(group), val) => self.assign_to(&group.expr, val),
            (Expr::Infer(_), _) => {}
            (Expr::Tuple(targets), Ok(Val::Tuple(vals, _)))
                if targets.elems.len() == vals.len() && vals.record.is_none() =>
            {
                for (target, val) in targets.elems.iter().zip(vals) {
                    self.assign_to(target, Ok(val));
                }
            }
            (Expr::Tuple(targets), Ok(_)) => {
                let message = format!("the right side is no tuple of {} values", targets.elems.len());
                self.report(SourceRange::of(target), message);
            }
            (Expr::Tuple(targets), Err(reported)) => {
                for target in &targets.elems {
                    self.assign_to(target, Err(reported));
                }
            }
            (target, val) => {
                let Ok(variable) = self.assignable(target) else { return };
                let Ok(val) = val else { return };
                // A wrong type has been reported; the variable keeps its own.
                let _ = self.set_all(&variable, val);
            }
        }
    }

    /// Assigns to a variable, or to those of a tuple or struct.
    fn set_all(&mut self, variable: &Binding, val: Val) -> Checked<()> {
        match (variable, val) {
            (Binding::Var(var), val) => {
                let operand = self.one(val)?;
                self.set(*var, operand)
            }
            (Binding::Tuple(variables, record), Val::Tuple(parts, _))
                if parts.record == *record && parts.len() == variables.len() =>
            {
                let outcomes: Vec<_> = variables.iter().zip(parts).map(|(var, part)| self.set_all(var, part)).collect();
                outcomes.into_iter().collect()
            }
            (Binding::Tuple(variables, record), val) => {
                let message = match record {
                    Some(record) => format!("this must be the struct `{record:?}`, found {}", self.show_val(&val)),
                    None => format!("this must be a tuple of {}, found {}", variables.len(), self.show_val(&val)),
                };
                Err(self.report_help(val.place(), message, "a variable keeps its type: use a second one"))
            }
            (_, _) => Err(Reported::earlier()),
        }
    }

    /// The variable that `target.field` is.
    fn assignable_field(&mut self, field: &ExprField) -> Checked<Binding> {
        match self.assignable(&field.base)? {
            Binding::Tuple(mut parts, record) => {
                let index = self.part(record.as_ref(), parts.len(), &field.member)?;
                Ok(parts.swap_remove(index))
            }
            _ => {
                let place = SourceRange::of_tokens(&field.member);
                Err(self.report(place, "only structs have fields that are assigned to"))
            }
        }
    }

    /// The variable that an expression names, or those of a tuple or struct, if it may be assigned to.
    pub(super) fn assignable(&mut self, target: &Expr) -> Checked<Binding> {
        let place = SourceRange::of(target);
        let name = match target {
            Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
            Expr::Paren(paren) => return self.assignable(&paren.expr),
            Expr::Group(group) => return self.assignable(&group.expr),
            Expr::Field(field) => return self.assignable_field(field),
            Expr::Index(_) => {
                let help = "write `store(pointer + i, value)`; tiles are changed as a whole: `select(mask, a, b)`";
                return Err(self.report_help(place, "elements are not assigned to", help));
            }
            // `*self = ..` in a method.
            Expr::Unary(unary) if is_self(unary) => return self.assignable(&unary.expr),
            Expr::Unary(_) => {
                let help = "write `store(pointer, value)`";
                return Err(self.report_help(place, "pointers are not dereferenced with `*`", help));
            }
            _ => None,
        };
        let Some(name) = name else {
            return Err(self.report_help(place, "this cannot be assigned to", "assign to a `let mut` variable"));
        };
        match self.lookup(&name) {
            Some((binding, false)) if self.outside(&binding, Context::Element) => {
                let help = "a closure gives its results as values: take them from the call";
                Err(self.report_help(place, format!("the closure assigns to `{name}` outside"), help))
            }
            Some((binding, false)) if binding.varies() => {
                self.active_head |= self.outside(&binding, Context::Head);
                Ok(binding)
            }
            Some((Binding::Poison, _)) => Err(Reported::earlier()),
            Some((Binding::Desc(_), _)) => {
                let message = format!("`{name}` is a tensor descriptor, which cannot be assigned to");
                let help = format!("write a block of the tensor: `{name}.store([i, j], value)`");
                Err(self.report_help(place, message, help))
            }
            Some((_, true)) => {
                let help = "a closure gives its result as a value";
                Err(self.report_help(place, format!("the closure assigns to `{name}` outside"), help))
            }
            Some((binding, false)) => {
                let parameter = self.signature.params.iter().any(|p| p.ident == name);
                let constexpr = self.func.const_params.iter().any(|p| p.name == name);
                let message = format!("`{name}` is not mutable");
                let help = match binding {
                    Binding::Option(..) => {
                        format!("copy what it holds, if that is there: `if let Some(mut {name}) = {name} {{ .. }}`")
                    }
                    _ if name == "self" => "take it as `&mut self`, or a copy as `mut self`".to_string(),
                    _ if parameter => format!("declare the parameter as `mut {name}: ..`"),
                    _ if constexpr => format!("copy it: `let mut value = {name};`"),
                    Binding::Value(_)
                    | Binding::Tuple(..)
                    | Binding::Var(_)
                    | Binding::Dim(_)
                    | Binding::ConstBool(_)
                    | Binding::Desc(_)
                    | Binding::Closure(_)
                    | Binding::Poison => {
                        format!("declare it with `let mut {name}`")
                    }
                };
                Err(self.report_help(place, message, help))
            }
            None => Err(self.unknown_name(&name, place)),
        }
    }

    /// Whether such a context, the condition of a `while` or a closure, lies between here and the variable's declaration.
    fn outside(&self, variable: &Binding, of: Context) -> bool {
        let declared = match variable {
            Binding::Var(var) => self.variables[var.0].depth,
            Binding::Tuple(parts, _) => return parts.iter().any(|part| self.outside(part, of)),
            _ => return false,
        };
        self.contexts.iter().skip(declared).any(|context| *context == of)
    }

    /// Gives a variable a value of its own type.
    fn set(&mut self, var: VarId, operand: Operand) -> Checked<()> {
        let ty = self.variables[var.0].ty.clone();
        let own = self.ty(operand).clone();
        let name = self.variables[var.0].name.clone();
        let same_kind = match (ty.elem, own.elem) {
            (VElem::Data(_), VElem::Data(_)) => true,
            (VElem::Ptr(a), VElem::Ptr(b)) => a == b,
            (VElem::Data(_), VElem::Ptr(_)) | (VElem::Ptr(_), VElem::Data(_)) => false,
        };
        if let (VElem::Ptr(a), VElem::Ptr(b)) = (ty.elem, own.elem)
            && a != b
        {
            let (a, b) = (self.func.param(a).name.clone(), self.func.param(b).name.clone());
            let message = format!("`{name}` points into the buffer of `{a}` and cannot point into that of `{b}`");
            return Err(self.report_help(operand.place, message, "use a variable for each buffer"));
        }
        if !same_kind || !self.same_shape(&ty.shape, &own.shape) {
            let (before, after) = (self.show_ty(&ty), self.show_ty(&own));
            let message = format!("`{name}` is {before} and cannot become {after}");
            let shape = self.shape_source(&own.shape);
            let help = match (ty.is_scalar(), own.is_scalar()) {
                _ if !same_kind => "a variable keeps its type: use a second one".to_string(),
                (true, false) => format!("start with a tile: `let mut {name} = full({shape}, ..);`"),
                (false, true) => format!("make it a tile: `full({}, ..)`", self.shape_source(&ty.shape)),
                _ => "a variable keeps its shape: use a second one".to_string(),
            };
            return Err(self.report_help(operand.place, message, help));
        }
        if let VElem::Data(dt) = ty.elem {
            let before = self.errors.list().len();
            let result = self.expect(operand, dt, &format!("what is assigned to `{name}`"));
            if result.is_err() && self.errors.list().len() == before + 1 {
                match self.begin_with_number(var, operand) {
                    Some(help) => self.errors.rehelp(help),
                    None if self.types.known(dt).is_some() => self.shadow_help(&name, operand),
                    None => {}
                }
            }
            result?;
        }
        self.stmts.push(Stmt::Assign(var, operand.node));
        Ok(())
    }

    /// `v = v as f32`: a variable keeps its dtype, but a new one may have its name.
    fn shadow_help(&mut self, name: &str, value: Operand) {
        let Some(text) = self.source.text(value.place) else { return };
        let converts = text.rsplit_once(" as ").is_some_and(|(_, dtype)| self.dtype_by_name(dtype.trim()).is_some());
        // In an inner block a new variable would end with it.
        let here = self.scopes.last().is_some_and(|scope| scope.names.iter().any(|(own, _)| own == name));
        if converts && here {
            self.errors.rehelp(format!("a variable keeps its dtype: write `let {name} = {text};`"));
        }
    }

    /// `x += value`
    fn compound(&mut self, binary: &ExprBinary) {
        let right = self.operand(&binary.right);
        let var = self.assignable(&binary.left);
        if let Ok(Binding::Tuple(..)) = &var {
            let left = self.expr(&binary.left);
            let _ = left.and_then(|left| self.one(left));
            return;
        }
        let (Ok(right), Ok(Binding::Var(var)), Some((op, _))) = (right, var, operator(&binary.op)) else { return };
        let place = SourceRange::between(SourceRange::of(&binary.left).start, SourceRange::of(&binary.right).end);
        let left_place = SourceRange::of(&binary.left);
        let ty = self.variables[var.0].ty.clone();
        let node = self.slot(ty, left_place);
        self.stmts.push(Stmt::Read(node, var));
        self.reads.insert(node.0, var);
        let left = Operand { node, place: left_place };
        let outer = std::mem::replace(&mut self.assigned, vec![var]);
        let result = self.binary(op, left, right, place, SourceRange::of_tokens(&binary.op));
        self.assigned = outer;
        let Ok(result) = result else { return };
        let _ = self.set(var, result);
    }
}

/// `*self`
pub(super) fn is_self(unary: &syn::ExprUnary) -> bool {
    let is_self = matches!(&*unary.expr, Expr::Path(path) if path.path.is_ident("self"));
    is_self && matches!(unary.op, syn::UnOp::Deref(_))
}
