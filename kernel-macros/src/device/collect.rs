//! Which `#[device]` functions and structs a body names.
//!
//! A macro sees no items but its own, so names that no operation has are taken for functions, and rustc looks them up.
//! An operation's name with a slip of the pen, or one that another language has for it, is a mistake far more often than
//! a function: such a function is called by a path, `self::laod(..)`.

use std::collections::BTreeSet;

use kernel_core::ir::{DType, DTypeBound};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Block, Expr, ExprCall, ExprCast, ExprClosure, ExprMethodCall, ExprStruct, GenericArgument, Generics, ItemStruct,
    Local, Macro, PatIdent, PatStruct, Path, Signature, Stmt, Token, Type, TypeParamBound,
};

use super::{Owner, methods};
use crate::names::{closest, dtype_of_other_languages};
use crate::signature::{option_of, strip};
use crate::source_range::bare;
use crate::{ops, spellings};

/// Names that are spelled out for methods, but that functions of one's own usually have.
const FREE: [&str; 13] = [
    "relu",
    "silu",
    "swish",
    "gelu",
    "square",
    "half",
    "mean",
    "add",
    "sub",
    "mul",
    "remainder",
    "condition",
    "swizzle2d",
];

/// Where paths lead that people write from habit.
const FOREIGN: [&str; 12] =
    ["tl", "triton", "libdevice", "target_info", "torch", "np", "numpy", "math", "cuda", "std", "core", "tilewright"];

/// Whether a path that begins with this name leads to another library.
pub fn is_foreign(name: &str) -> bool {
    FOREIGN.contains(&name)
}

/// A path as text, by which the calls of a body are told apart.
pub fn path_text(path: &Path) -> String {
    let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
    format!("{}{}", if path.leading_colon.is_some() { "::" } else { "" }, names.join("::"))
}

/// Types that are no structs.
const TYPES: [&str; 8] = ["Tile", "Ptr", "PtrMut", "Const", "TensorDesc", "TensorDescMut", "Option", "Self"];
/// Types of the standard library that people write from habit.
const STANDARD: [&str; 6] = ["Vec", "Box", "String", "Result", "Rc", "Arc"];

/// The functions that a body calls and the structs that it names, each once, in the order of their first places.
pub fn calls(owner: Owner, sig: &Signature, stmts: &[Stmt]) -> Vec<Path> {
    let mut calls = Calls::within(&sig.generics);
    for input in &sig.inputs {
        match (owner, input) {
            // A kernel takes no structs, whatever its parameters are.
            (Owner::Kernel, syn::FnArg::Typed(typed)) => calls.visit_pat(&typed.pat),
            (Owner::Kernel | Owner::Device, input) => calls.visit_fn_arg(input),
        }
    }
    if let (Owner::Device, syn::ReturnType::Type(_, ty)) = (owner, &sig.output) {
        calls.visit_type(ty);
    }
    stmts.iter().for_each(|stmt| calls.visit_stmt(stmt));
    calls.found
}

/// The structs that the fields of another are.
pub fn fields(item: &ItemStruct) -> Vec<Path> {
    let mut calls = Calls::within(&item.generics);
    item.fields.iter().for_each(|field| calls.visit_type(&field.ty));
    calls.found
}

#[derive(Default)]
struct Calls {
    /// Visible variables: calls of these are no functions'.
    variables: BTreeSet<String>,
    /// Generic parameters: these are no structs.
    generics: BTreeSet<String>,
    seen: BTreeSet<String>,
    found: Vec<Path>,
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_block(&mut self, block: &'ast Block) {
        let variables = self.variables.clone();
        visit::visit_block(self, block);
        self.variables = variables;
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        let variables = self.variables.clone();
        visit::visit_expr_closure(self, closure);
        self.variables = variables;
    }

    /// `let scale = scale(x);` calls a function.
    fn visit_local(&mut self, local: &'ast Local) {
        local.init.iter().for_each(|init| self.visit_local_init(init));
        self.visit_pat(&local.pat);
    }

    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        self.variables.insert(pat.ident.to_string());
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(path) = bare(&call.func)
            && path.qself.is_none()
        {
            match methods::associated(&path.path) {
                // `Stats::new(..)`
                Some((of, _)) if self.is_struct(&of) => self.find(&of),
                _ if self.is_function(&path.path) => self.find(&path.path),
                _ => {}
            }
            let last = path.path.segments.last().map(|segment| segment.ident.to_string());
            self.arguments(&last.unwrap_or_default(), &call.args);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.arguments(&call.method.to_string(), &call.args);
        visit::visit_expr_method_call(self, call);
    }

    /// The type of a value; those inside of `Tile<..>` and its kind are dtypes.
    fn visit_type(&mut self, ty: &'ast Type) {
        match strip(ty) {
            Type::Tuple(tuple) => tuple.elems.iter().for_each(|ty| self.visit_type(ty)),
            Type::ImplTrait(closure) => {
                for bound in &closure.bounds {
                    let TypeParamBound::Trait(bound) = bound else { continue };
                    let types = bound.path.segments.iter().map(|segment| &segment.arguments);
                    types.for_each(|types| self.visit_closure_types(types));
                }
            }
            Type::Path(_) if option_of(ty).is_some() => {
                option_of(ty).into_iter().for_each(|held| self.visit_type(held))
            }
            Type::Path(path) if path.qself.is_none() && self.is_struct(&path.path) => self.find(&path.path),
            _ => {}
        }
    }

    fn visit_generic_argument(&mut self, argument: &'ast GenericArgument) {
        if let GenericArgument::Const(expr) = argument {
            self.visit_expr(expr);
        }
    }

    /// Numbers are converted to dtypes.
    fn visit_expr_cast(&mut self, cast: &'ast ExprCast) {
        self.visit_expr(&cast.expr);
    }

    fn visit_expr_struct(&mut self, literal: &'ast ExprStruct) {
        self.find(&literal.path);
        visit::visit_expr_struct(self, literal);
    }

    fn visit_pat_struct(&mut self, pat: &'ast PatStruct) {
        self.find(&pat.path);
        visit::visit_pat_struct(self, pat);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        for expr in parser.parse2(mac.tokens.clone()).iter().flatten() {
            <Calls as Visit<'_>>::visit_expr(self, expr);
        }
    }
}

impl Calls {
    fn within(generics: &Generics) -> Calls {
        let name = |param: &syn::GenericParam| match param {
            syn::GenericParam::Type(param) => param.ident.to_string(),
            syn::GenericParam::Const(param) => param.ident.to_string(),
            syn::GenericParam::Lifetime(param) => param.lifetime.to_string(),
        };
        Calls { generics: generics.params.iter().map(name).collect(), ..Calls::default() }
    }

    /// Functions that are given by their names where a closure is wanted: the last argument of operations that take one, and
    /// those of functions. There, what is almost the name of a variable is taken for that.
    fn arguments(&mut self, called: &str, args: &Punctuated<Expr, Token![,]>) {
        let path = |arg: &'_ Expr| match bare(arg) {
            Expr::Path(path) if path.qself.is_none() => Some(path.path.clone()),
            _ => None,
        };
        if let Some(row) = ops::find(called) {
            let last = args.iter().rfind(|arg| !matches!(arg, Expr::Assign(_))).filter(|_| row.takes_closure());
            let function = last.and_then(path).filter(|path| self.is_function(path));
            function.iter().for_each(|path| self.find(path));
        } else if !is_operation(called) {
            for path in args.iter().filter_map(path) {
                let variable = path.get_ident().and_then(|name| {
                    closest(&name.to_string(), self.variables.iter().map(String::as_str)).map(str::to_string)
                });
                if variable.is_none() && self.is_function(&path) {
                    self.find(&path);
                }
            }
        }
    }

    fn find(&mut self, path: &Path) {
        if self.seen.insert(path_text(path)) {
            self.found.push(path.clone());
        }
    }

    /// The types of `(A, B) -> C`.
    fn visit_closure_types(&mut self, types: &syn::PathArguments) {
        let syn::PathArguments::Parenthesized(types) = types else { return };
        types.inputs.iter().for_each(|ty| self.visit_type(ty));
        if let syn::ReturnType::Type(_, ty) = &types.output {
            self.visit_type(ty);
        }
    }

    /// Whether a type that values have is a struct.
    fn is_struct(&self, path: &Path) -> bool {
        let (Some(first), Some(last)) = (path.segments.first(), path.segments.last()) else { return false };
        let (first, name) = (first.ident.to_string(), last.ident.to_string());
        let known = TYPES.iter().chain(&STANDARD).any(|ty| *ty == name) || DTypeBound::from_name(&name).is_some();
        let dtype = DType::from_name(&name.to_lowercase()).is_some() || dtype_of_other_languages(&name).is_some();
        let foreign = dtype || FOREIGN.contains(&first.as_str());
        let slip = TYPES.iter().any(|ty| is_slip(&name, ty));
        name.starts_with(char::is_uppercase) && !known && !foreign && !slip && !self.generics.contains(&first)
    }

    fn is_function(&self, path: &Path) -> bool {
        let (Some(first), Some(last)) = (path.segments.first(), path.segments.last()) else { return false };
        let (first, last) = (first.ident.to_string(), last.ident.to_string());
        let capital = |name: &str| name.starts_with(char::is_uppercase);
        let dtype = path.segments.iter().any(|segment| DType::from_name(&segment.ident.to_string()).is_some())
            || (dtype_of_other_languages(&first).is_some() && !FREE.contains(&first.as_str()));
        let typed = path.segments.iter().any(|segment| capital(&segment.ident.to_string()));
        if dtype || typed {
            return false;
        }
        // No function has such a name.
        if is_operation(&last) {
            return false;
        }
        if path.segments.len() > 1 || path.leading_colon.is_some() {
            return !FOREIGN.contains(&first.as_str());
        }
        let free = FREE.contains(&last.as_str());
        !self.variables.contains(&last) && (free || !is_reserved(&last))
    }
}

/// Whether an operation has that name.
pub fn is_operation(name: &str) -> bool {
    ops::find(name).is_some() || ops::find_desc(name).is_some()
}

/// Whether a name without a path is an operation's with a slip of the pen, or one of another language.
fn is_reserved(name: &str) -> bool {
    spellings::find(name).is_some() || ops::rows().any(|row| is_slip(name, row.name))
}

/// Whether a name has the letters of an operation in another order, or one too few, or one twice.
fn is_slip(name: &str, operation: &str) -> bool {
    let sorted = |name: &str| {
        let mut letters: Vec<char> = name.chars().collect();
        letters.sort_unstable();
        letters
    };
    let without = |name: &str, at: usize| -> String {
        name.chars().enumerate().filter(|(i, _)| *i != at).map(|(_, letter)| letter).collect()
    };
    let (own, other) = (name.chars().count(), operation.chars().count());
    let letters: Vec<char> = name.chars().collect();
    match own.cmp(&other) {
        std::cmp::Ordering::Equal => own > 2 && sorted(name) == sorted(operation),
        std::cmp::Ordering::Less => own > 2 && own + 1 == other && (0..other).any(|at| without(operation, at) == name),
        std::cmp::Ordering::Greater => {
            let doubled = |at: usize| letters[at] == letters[at - 1] && without(name, at) == operation;
            own == other + 1 && (1..own).any(doubled)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_slip;

    #[test]
    fn slips_are_told_from_names() {
        for (name, operation) in [("laod", "load"), ("stroe", "store"), ("lod", "load"), ("maxx", "max")] {
            assert!(is_slip(name, operation), "{name}");
        }
        for (name, operation) in
            [("fill", "full"), ("max3", "max"), ("mix", "max"), ("load", "load_row"), ("dot", "dots_")]
        {
            assert!(!is_slip(name, operation), "{name}");
        }
    }
}
