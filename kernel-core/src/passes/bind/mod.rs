//! Binding: from a generic kernel and its constexpr values, dtypes and argument facts to a bound kernel.
//!
//! Before, with `BLOCK = 1024` and `T = f32`:
//! ```text
//! %4: i32 = const_expr BLOCK
//! %7: i32[BLOCK] = arange {lo = 0, hi = BLOCK}
//! %8: T[BLOCK] = load %12, %10
//! ```
//! After:
//! ```text
//! %4: i32 = const 1024
//! %7: i32[1024] = arange {lo = 0, hi = 1024}
//! %8: f32[1024] = load %12, %10
//! ```
//!
//! Scalars that follow from constexprs, literals and `Const` parameters are folded on the way, so an `if` on such a
//! condition is pruned *before* the shapes in the branch that is not taken are looked at, and `static_assert!` is
//! decided. What only the values decide is checked here: that dimensions are positive powers of two, that a tile has
//! at most 2^20 elements, that values fit their dtypes. All mistakes are reported at once; a value that comes out of
//! a mistake silences what follows from it. No values make this panic.
//!
//! Regions of reductions and scans become straight-line code: an `if` on what only the elements tell becomes `select`.
//!
//! Loops that ask for it are unrolled: inside them, a shape may depend on their counter.

mod header;
pub mod made;
mod operation;
mod recipes;
mod shapes;
#[cfg(test)]
mod tests;
mod unroll;

use crate::diag::Diagnostic;
use crate::ir::{
    Bound, ConstId, DType, Dim, DimError, Dt, Elem, Facts, Func, Generic, Level, Literal, RegionId, Span, Ty, ValueId,
};
use crate::passes::widen_reduce;
use crate::verify::verify;

/// The values that a generic kernel is bound to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bindings {
    /// One dtype per dtype parameter that is [given](crate::ir::DtypeParam::is_given).
    pub dtypes: Vec<DType>,
    /// One value per constexpr that is [given](crate::ir::ConstParam::is_given); `bool`s are 0 or 1.
    pub consts: Vec<i64>,
    /// One constant per `Const` parameter, in order.
    pub const_scalars: Vec<Literal>,
    /// The warps of a program. Kernels that ask for them cannot do without.
    pub num_warps: Option<u32>,
    /// What the kernel is compiled for, as [`Target::capability`](crate::target::Target::capability) says it; 0 on the CPU.
    pub capability: u32,
    /// What is known of each parameter's argument; may be shorter than the parameters.
    pub facts: Vec<Facts>,
    /// Of the tensors that the kernel makes itself, those of which nothing may be assumed: one [bit](made::bit()) each. Of
    /// the others it is assumed that the hardware's tensor copies can use them, which whoever launches must see to.
    pub rough_tensors: u32,
}

/// Binds a generic kernel.
///
/// # Errors
/// Everything that the values make wrong, in program order, each with the values that make it so.
pub fn bind(generic: &Generic, bindings: &Bindings) -> Result<Bound, Vec<Diagnostic>> {
    let source = generic.func();
    verify(source)?;
    let mut binder = Binder::new(source, bindings);
    binder.header();
    if !binder.errors.is_empty() {
        return Err(binder.errors);
    }
    let body = binder.func.body;
    binder.region(source.body, body);
    if !binder.errors.is_empty() {
        return Err(binder.errors);
    }
    let mut func = binder.func;
    made::run(&mut func, bindings.rough_tensors).map_err(|error| vec![error.into()])?;
    widen_reduce::run(&mut func).map_err(|error| vec![error.into()])?;
    verify(&func).map_err(|errors| errors.into_iter().map(as_mistake_of_ours).collect::<Vec<_>>())?;
    Bound::new(func).map_err(|func| vec![Diagnostic::at(&func.files, Span::UNKNOWN, "the kernel is not bound")])
}

/// What binding should have refused, or has made.
fn as_mistake_of_ours(error: Diagnostic) -> Diagnostic {
    error.note("the mistake is Tilewright's: binding should have refused this; please report it with the kernel")
}

struct Binder<'b> {
    source: &'b Func,
    bindings: &'b Bindings,
    /// One dtype per dtype parameter, and one value per constexpr, those that follow from others included. Counters of
    /// loops have none outside these.
    dtypes: Vec<DType>,
    consts: Vec<Option<i64>>,
    /// The bound kernel as far as it is.
    func: Func,
    /// Per value of the generic kernel, its value in the bound one; `None` if a mistake made it, or it is not reached.
    map: Vec<Option<ValueId>>,
    /// Per value of the generic kernel, whether anything uses it.
    used: Vec<bool>,
    /// Whether this is the region of a reduction or scan, which stays straight-line code.
    combines: bool,
    errors: Vec<Diagnostic>,
    /// Dimensions that an error was reported for.
    reported: Vec<Dim>,
    /// How many operations unrolling may still add.
    budget: u128,
}

impl<'b> Binder<'b> {
    fn new(source: &'b Func, bindings: &'b Bindings) -> Binder<'b> {
        let mut func = Func::new(&source.name, "", source.safety);
        func.subnormals = source.subnormals;
        func.files = source.files.clone();
        func.level = Level::Bound;
        let map = vec![None; source.values.len()];
        let mut used = vec![false; source.values.len()];
        source.ops.iter().flat_map(|operation| &operation.operands).for_each(|value| used[value.index()] = true);
        let (dtypes, consts) = (Vec::new(), Vec::new());
        let (errors, reported, budget) = (Vec::new(), Vec::new(), unroll::MAX_ADDED);
        Binder { source, bindings, dtypes, consts, func, map, used, combines: false, errors, reported, budget }
    }

    fn error(&mut self, span: Span, message: String, help: Option<String>) {
        let diagnostic = Diagnostic::at(&self.source.files, span, message);
        let diagnostic = help.into_iter().fold(diagnostic, Diagnostic::help);
        // An expression such as `p + i * N + j` is several operations, each with the same mistake.
        if !self.errors.contains(&diagnostic) {
            self.errors.push(diagnostic);
        }
    }

    /// Whether a mistake was reported in the text of an operation, if that is known.
    fn is_reported(&self, span: Span) -> bool {
        let inside = |own: Span| {
            (own.file, own.line) == (span.file, span.line)
                && own.column >= span.column
                && own.column + u32::from(own.len) <= span.column + u32::from(span.len)
        };
        span.line != 0 && self.errors.iter().any(|error| inside(error.span(&self.source.files)))
    }

    /// Binds the operations of a region of the source to the end of a region of the bound kernel.
    fn region(&mut self, from: RegionId, to: RegionId) {
        let source = self.source;
        for &op in &source.region(from).ops {
            self.operation(op, to);
        }
    }

    fn mapped(&self, value: ValueId) -> Option<ValueId> {
        self.map[value.index()]
    }

    fn dtype(&self, dt: Dt) -> DType {
        match dt {
            Dt::Known(dtype) => dtype,
            // The header has checked that there is a dtype for each parameter.
            Dt::Param(id) => self.dtypes[id.index()],
        }
    }

    fn dim(&self, dim: &Dim) -> Result<i64, DimError> {
        let bound = dim.substitute(&|id| self.consts[id.index()].map_or_else(|| Dim::param(id), Dim::Const))?;
        bound.as_const().ok_or(DimError::Overflow)
    }

    /// The type with everything bound; `None` if a dimension has no value.
    fn ty(&self, ty: &Ty) -> Option<Ty> {
        let elem = match ty.elem {
            Elem::Data(dt) => Elem::Data(self.dtype(dt).into()),
            Elem::Shared(dt) => Elem::Shared(self.dtype(dt).into()),
            Elem::Ptr(param) => Elem::Ptr(self.stands_for(param)),
            Elem::Desc(param) => Elem::Desc(self.stands_for(param)),
            Elem::Token | Elem::Barrier => ty.elem,
        };
        let shape = ty.shape.iter().map(|d| self.dim(d).map(Dim::Const)).collect::<Result<_, _>>().ok()?;
        Some(Ty { elem, shape })
    }

    fn const_name(&self, id: ConstId) -> String {
        self.source.const_params[id.index()].name.clone()
    }

    /// A dimension as the user wrote it, in normal form.
    fn show(&self, dim: &Dim) -> String {
        dim.display(&|id| self.const_name(id)).to_string()
    }
}
