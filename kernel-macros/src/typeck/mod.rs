//! Type checking: from syntax to the [tree](crate::tree).
//!
//! One walk over the body in evaluation order. Each expression becomes nodes and statements, each mistake a message on
//! the user's tokens; a value whose expression was wrong stays silent wherever it is used.

mod accumulator;
mod annotation;
mod args;
mod atomic;
mod binary;
mod block;
mod call;
mod choice;
mod closure;
mod composed;
mod constant;
mod control;
mod convert;
mod converted;
mod create;
mod derived;
mod descriptor;
mod elementwise;
mod expr;
mod finish;
mod foreign_calls;
mod function;
mod generics;
mod hints;
mod holds;
mod jump;
mod lacks;
mod literals;
mod loop_hints;
mod loops;
mod macros;
mod map;
mod memory;
mod method;
mod moments;
mod named;
mod namesakes;
mod parameters;
mod passed;
mod pattern;
mod postfix;
mod product;
mod random;
mod record;
mod reduce;
mod scaled;
mod scan;
mod shape;
mod short_circuit;
mod show;
mod stmt;
mod tensor_desc;
mod tile;
mod ty;
mod unsafety;

pub use binary::assigns;
pub use block::is_statement_body;
pub use constant::collect_shape_constants;
pub use derived::is_dtype;
pub use function::{Checks, check_function};
pub use unsafety::UnsafeBlock;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, ConstId, ConstParam, CreateOp, Dim, DtypeParam, Func, Op, Safety};

use proc_macro2::TokenStream;
use syn::ext::IdentExt;

use self::function::Frame;
use self::named::Callable;
use self::parameters::Given;
use self::record::{Parts, Record};
use self::tensor_desc::Descriptor;
use crate::device::bundle::Functions;
use crate::error::{Checked, Errors, Reported};
use crate::help::Help;
use crate::signature::Signature;
use crate::source::Source;
use crate::source_range::{CallRef, SourceRange};
use crate::tree::{Constant, Kind, Node, NodeId, Stmt, VOp, VarId};
use crate::types::{Declared, DtRef, Types, VElem, VTy};
use jump::LoopScope;
use literals::Computed;
use namesakes::Equation;

/// A checked kernel.
pub struct Tree {
    /// The signature as IR, without a body.
    pub func: Func,
    /// Nodes by [`NodeId`].
    pub nodes: Vec<Node>,
    /// The number of mutable variables.
    pub variables: usize,
    /// The body.
    pub body: Vec<Stmt>,
    /// dtype variables.
    pub types: Types,
    /// Constants of the user's crate.
    pub constants: Vec<Constant>,
    /// The places of the calls that have been inlined.
    pub calls: Vec<SourceRange>,
    /// What `static_assert!` has made equal: the constexpr is the dimension.
    pub facts: BTreeMap<ConstId, Dim>,
    /// What rustc is asked about constants, as items.
    pub asked: TokenStream,
    /// The `unsafe` blocks, for rustc to see.
    pub unsafe_blocks: Vec<UnsafeBlock>,
}

/// A value of an expression, where it stands.
#[derive(Clone, Debug)]
enum Val {
    /// A scalar, a tile or a pointer.
    One(Operand),
    /// A tuple or a struct.
    Tuple(Parts, SourceRange),
    /// Nothing: what `store` gives.
    Unit(SourceRange),
}

/// One value where it is used.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// The value.
    pub node: NodeId,
    /// The expression.
    pub place: SourceRange,
}

/// What is said of a tuple where one value is due.
const TUPLE: &str = "a tuple cannot stand here";

/// What a name stands for.
#[derive(Clone, Debug)]
enum Binding {
    /// A value that never changes.
    Value(NodeId),
    /// A mutable variable.
    Var(VarId),
    /// An integer constexpr, or an immutable variable that holds one: adapts at each use.
    Dim(Constexpr),
    /// A `bool` constexpr.
    ConstBool(ConstId),
    /// A tensor descriptor, which only its operations take.
    Desc(Descriptor),
    /// A parameter that may be without an argument, and what it holds.
    Option(Given, Box<Binding>),
    /// A tuple or a struct; of a mutable one all parts are variables.
    Tuple(Vec<Binding>, Option<Record>),
    /// A closure.
    Closure(Callable),
    /// Its declaration was wrong.
    Poison,
}

/// An integer constexpr that has a name.
#[derive(Clone, Debug)]
struct Constexpr {
    dim: Dim,
    /// The type that it was declared with.
    declared: Declared,
    /// How it is shifted, where it is `1 << N`. As a value it is shifted in its dtype.
    shift: Option<Shift>,
}

/// A shift of a constexpr.
#[derive(Clone, Debug)]
struct Shift {
    op: BinaryOp,
    number: Dim,
    /// How far.
    count: Dim,
}

/// A mutable variable.
struct Variable {
    name: String,
    ty: VTy,
    /// How many contexts surround its declaration.
    depth: usize,
    /// Its first value.
    begin: NodeId,
    /// Whether its type is written where it is declared.
    annotated: bool,
}

/// What surrounds the code that is being checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Context {
    /// A branch of an `if`, or the right side of `&&`.
    Branch,
    /// A branch of an `if` that gives a value.
    ValueBranch,
    /// The body of a loop.
    Loop,
    /// The condition of a `while`.
    Head,
    /// A closure that combines elements.
    Closure,
    /// A closure for single elements, which may branch, loop and read the scalars around it.
    Element,
}

/// Names of ended blocks that are remembered at most.
const MAX_ENDED: usize = 10_000;

#[derive(Clone, Default)]
struct Scope {
    names: Vec<(String, Binding)>,
    /// Those that a `let` declares, with their lines.
    declared: Vec<(String, usize)>,
    /// Whether this is the outermost scope of a closure, which sees no values from outside.
    closure: bool,
    /// What surrounds a closure that has a name: the scopes where it stands.
    around: Option<Rc<Vec<Scope>>>,
}

struct Deferred {
    dt: DtRef,
    needs: Needs,
    place: SourceRange,
    what: String,
}

/// The state of the walk.
pub struct Checker<'a> {
    signature: &'a Signature,
    functions: &'a Functions,
    /// The function whose body is checked.
    frame: Rc<Frame>,
    /// How many functions and closures are being inlined, one in another.
    open_calls: usize,
    /// How many contexts and loops are around each of them.
    calls: Vec<(usize, usize)>,
    /// The places of those that have been inlined so far.
    inlined: Vec<SourceRange>,
    /// The innermost of those that are being inlined.
    call: CallRef,
    source: Rc<Source>,
    errors: &'a mut Errors,
    func: Func,
    types: Types,
    nodes: Vec<Node>,
    variables: Vec<Variable>,
    /// The variables from which nodes are read.
    reads: BTreeMap<usize, VarId>,
    /// The variables to which what is checked is assigned.
    assigned: Vec<VarId>,
    constants: Vec<Constant>,
    /// Paths of constants that a shape needs.
    shape_constants: BTreeSet<String>,
    scopes: Vec<Scope>,
    contexts: Vec<Context>,
    /// Statements of the block that is being checked.
    stmts: Vec<Stmt>,
    facts: RefCell<BTreeMap<ConstId, Dim>>,
    /// What holds here, in a branch or a loop, besides: it says to `reshape` what is compared again when the kernel is bound.
    facts_here: BTreeMap<ConstId, Dim>,
    /// Constants that shapes need to be one number.
    equations: RefCell<Vec<Equation>>,
    /// What else rustc is asked about constants, as items.
    asked: TokenStream,
    /// Whether a `return` of the kernel, or a loop that may never end, stands before this place.
    may_return: bool,
    /// The loops and inlined bodies around the place, the outermost first.
    loops: Vec<LoopScope>,
    /// Loops and inlined bodies so far.
    loop_count: usize,
    /// Values to which control never comes: behind jumps, or in the place of a branch that jumps and is known to be taken.
    unreached: usize,
    /// Whether the condition of the `while` that is being checked changes variables outside, or jumps.
    active_head: bool,
    deferred: Vec<Deferred>,
    /// Literals whose dtype an annotation gives, used or not.
    annotated: Vec<NodeId>,
    /// Scalars that constexprs may decide, although values of the launch are in them, by node.
    decided: BTreeSet<usize>,
    /// Scalars that they decide if they decide what variables hold there, by node.
    varying: BTreeSet<usize>,
    /// What `atomic_poll` has waited for.
    polled: Vec<NodeId>,
    /// Literals that are shifted by literals: these two, by node.
    literal_shifts: BTreeMap<usize, (i64, i64)>,
    /// Operations on literals, by node.
    computed: BTreeMap<usize, Computed>,
    unsafe_blocks: Vec<UnsafeBlock>,
    /// Those of them that surround this place, the outermost first.
    open_unsafe: Vec<usize>,
    /// How many names were not known so far.
    unknown_names: usize,
    /// Names that stand for closures, and these.
    names_for_closures: Vec<(SourceRange, String)>,
    /// Calls of closures that give nothing.
    given_nothing: Vec<SourceRange>,
    /// Whether this is what a pointer is moved by.
    in_offset: bool,
    /// The left side of a comparison whose right side, without parentheses, comes next.
    compared: Option<SourceRange>,
    /// Names of blocks that have ended, and the lines where they were declared.
    ended: Vec<(String, usize)>,
}

/// Checks the body of a kernel. The tree may be lowered only if nothing was reported.
pub fn check(
    signature: &Signature,
    body: &[syn::Stmt],
    functions: &Functions,
    source: Source,
    errors: &mut Errors,
) -> Tree {
    let mut checker = Checker::new(signature, functions, source, errors);
    let blocks: Vec<syn::Expr> = signature.params.iter().filter_map(|p| syn::parse2(p.block.clone()?).ok()).collect();
    checker.shape_constants = collect_shape_constants(body, &blocks, std::iter::empty());
    checker.bind_signature();
    checker.kernel_body(body);
    checker.finish();
    let (facts, asked) = (checker.facts.take(), checker.asked());
    let Checker { func, mut nodes, variables, stmts, types, constants, unsafe_blocks, errors, inlined, .. } = checker;
    let mut variables = variables.len();
    let body = crate::jumps::eliminate(stmts, &mut nodes, &mut variables, &types, errors);
    Tree { func, nodes, variables, body, types, constants, calls: inlined, facts, asked, unsafe_blocks }
}

impl<'a> Checker<'a> {
    fn new(signature: &'a Signature, functions: &'a Functions, source: Source, errors: &'a mut Errors) -> Checker<'a> {
        let safety = if signature.is_unsafe { Safety::Unsafe } else { Safety::Safe };
        let mut func = Func::new(&signature.ident.unraw().to_string(), "", safety);
        let dtypes = signature.dtypes().map(|(ident, bound)| DtypeParam::given(ident.to_string(), bound));
        func.dtype_params = dtypes.collect();
        let consts = signature.consts().map(|(ident, ty, _)| ConstParam::given(ident.to_string(), ty));
        func.const_params = consts.collect();
        Checker {
            signature,
            functions,
            frame: Rc::new(Frame::outermost(functions)),
            open_calls: 0,
            calls: Vec::new(),
            inlined: Vec::new(),
            call: CallRef::default(),
            source: Rc::new(source),
            errors,
            func,
            types: Types::default(),
            nodes: Vec::new(),
            variables: Vec::new(),
            reads: BTreeMap::new(),
            assigned: Vec::new(),
            constants: Vec::new(),
            shape_constants: BTreeSet::new(),
            scopes: vec![Scope::default()],
            contexts: Vec::new(),
            stmts: Vec::new(),
            facts: RefCell::default(),
            facts_here: BTreeMap::new(),
            equations: RefCell::default(),
            asked: TokenStream::new(),
            may_return: false,
            loops: Vec::new(),
            loop_count: 0,
            unreached: 0,
            active_head: false,
            deferred: Vec::new(),
            annotated: Vec::new(),
            decided: BTreeSet::new(),
            varying: BTreeSet::new(),
            polled: Vec::new(),
            literal_shifts: BTreeMap::new(),
            computed: BTreeMap::new(),
            unsafe_blocks: Vec::new(),
            open_unsafe: Vec::new(),
            unknown_names: 0,
            names_for_closures: Vec::new(),
            given_nothing: Vec::new(),
            in_offset: false,
            compared: None,
            ended: Vec::new(),
        }
    }

    // Nodes and statements

    fn new_node(&mut self, node: Node) -> NodeId {
        let place = node.place.in_call(self.call);
        self.nodes.push(Node { place, ..node });
        NodeId(self.nodes.len() - 1)
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    fn ty(&self, operand: Operand) -> &VTy {
        &self.nodes[operand.node.0].ty
    }

    /// A value that a statement sets.
    fn slot(&mut self, ty: VTy, place: SourceRange) -> NodeId {
        self.new_node(Node { kind: Kind::Slot, ty, dim: None, constexpr: false, place })
    }

    /// Appends an operation with a result of type `ty`.
    fn eval(&mut self, op: VOp, args: Vec<NodeId>, ty: VTy, place: SourceRange) -> NodeId {
        let pure = !matches!(op, VOp::Ready(Op::Memory(_) | Op::Desc(_))) && !matches!(ty.elem, VElem::Ptr(_));
        let launch = matches!(
            &op,
            VOp::Ready(Op::Create(
                CreateOp::ProgramId { .. } | CreateOp::NumPrograms { .. } | CreateOp::Counter { .. }
            ))
        );
        let known = pure && !launch && ty.is_scalar();
        let constexpr = known && args.iter().all(|&a| self.node(a).constexpr);
        let node = self.new_node(Node { kind: Kind::Op(op, args), ty, dim: None, constexpr, place });
        if known && !constexpr {
            self.note_operation(node);
        }
        self.stmts.push(Stmt::Eval(node));
        node
    }

    /// An operation without dtype attributes.
    fn op(&mut self, op: impl Into<Op>, args: Vec<NodeId>, ty: VTy, place: SourceRange) -> NodeId {
        self.eval(VOp::Ready(op.into()), args, ty, place)
    }

    /// An integer made of literals, which adapts.
    fn int(&mut self, dim: Dim, place: SourceRange) -> NodeId {
        self.constexpr(dim, Declared::Open, place)
    }

    /// An integer made of constexprs and literals, which adapts.
    fn constexpr(&mut self, dim: Dim, declared: Declared, place: SourceRange) -> NodeId {
        let dt = self.types.fresh_constexpr(declared);
        let kind = Kind::Int(dim.clone());
        self.new_node(Node { kind, ty: VTy::scalar(dt), dim: Some(dim), constexpr: true, place })
    }

    fn new_variable(&mut self, name: &str, ty: VTy, value: NodeId) -> VarId {
        self.variables.push(Variable {
            name: name.to_string(),
            ty,
            depth: self.contexts.len(),
            begin: value,
            annotated: false,
        });
        let var = VarId(self.variables.len() - 1);
        self.stmts.push(Stmt::Assign(var, value));
        var
    }

    // Scopes

    fn bind(&mut self, name: &str, binding: Binding) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.push((name.to_string(), binding));
        }
    }

    /// What a name stands for, and whether a closure lies between here and its declaration that cannot use it there.
    fn lookup(&self, name: &str) -> Option<(Binding, bool)> {
        let mut outside = false;
        let mut scopes: &[Scope] = &self.scopes;
        // Variables may change between the closure and its calls.
        let mut named = false;
        loop {
            for scope in scopes.iter().rev() {
                if let Some((_, binding)) = scope.names.iter().rev().find(|(n, _)| n == name) {
                    let outside = outside || named && binding.varies();
                    return Some((binding.clone(), outside));
                }
                outside |= scope.closure;
            }
            named = true;
            scopes = scopes.first()?.around.as_deref()?;
        }
    }

    /// Checks something in a scope and a statement list of its own.
    fn nested<T>(&mut self, context: Context, f: impl FnOnce(&mut Self) -> T) -> (T, Vec<Stmt>) {
        let (outer, facts) = (std::mem::take(&mut self.stmts), self.facts_here.clone());
        self.scopes.push(Scope { closure: context == Context::Closure, ..Scope::default() });
        self.contexts.push(context);
        let result = f(self);
        self.contexts.pop();
        self.facts_here = facts;
        self.end_scope();
        (result, std::mem::replace(&mut self.stmts, outer))
    }

    /// Ends the innermost scope. Its names are remembered, for whoever uses one behind it.
    fn end_scope(&mut self) {
        let Some(scope) = self.scopes.pop() else { return };
        // Parameters of closures are not what somebody means there.
        if !scope.closure && self.ended.len() < MAX_ENDED {
            self.ended.extend(scope.declared);
        }
    }

    // Messages

    #[cfg_attr(test, track_caller)]
    fn report(&mut self, place: SourceRange, message: impl Into<String>) -> Reported {
        self.errors.report(place, message)
    }

    #[cfg_attr(test, track_caller)]
    fn report_help(&mut self, place: SourceRange, message: impl Into<String>, help: impl Into<Help>) -> Reported {
        let mut help = help.into();
        if !help.rewrites.is_empty()
            && let Some((_, closure)) = self.names_for_closures.iter().find(|(name, _)| name.covers(place))
        {
            // Arguments that a name stands for are nowhere in the source.
            help = Help::from(format!("it stands for `{closure}`: write what you mean"));
        }
        self.errors.report_help(place, message, help)
    }

    /// The single value of an expression.
    fn one(&mut self, val: Val) -> Checked<Operand> {
        match val {
            Val::One(operand) => Ok(operand),
            Val::Tuple(parts, place) => {
                if parts.record.is_some() {
                    let message = format!("{} cannot stand here", parts.show());
                    return Err(self.report_help(place, message, "name one of its fields"));
                }
                Err(self.report_help(place, TUPLE, "take it apart: `let (a, b) = ..`"))
            }
            Val::Unit(place) => Err(self.nothing(place)),
        }
    }

    /// Says that nothing stands where a value is due.
    fn nothing(&mut self, place: SourceRange) -> Reported {
        if self.given_nothing.iter().any(|call| call.covers(place)) {
            let help = "the closure ends with a statement: end it with an expression, without `;`";
            return self.report_help(place, "this closure gives nothing", help);
        }
        self.report(place, "this has no value")
    }
}

impl Constexpr {
    fn new(dim: Dim, declared: impl Into<Declared>) -> Constexpr {
        Constexpr { dim, declared: declared.into(), shift: None }
    }
}

impl Binding {
    /// Whether it is a mutable variable, or holds one.
    fn varies(&self) -> bool {
        match self {
            Binding::Var(_) => true,
            Binding::Tuple(parts, _) => parts.iter().any(Binding::varies),
            Binding::Option(_, inner) => inner.varies(),
            Binding::Value(_)
            | Binding::Dim(_)
            | Binding::ConstBool(_)
            | Binding::Desc(_)
            | Binding::Closure(_)
            | Binding::Poison => false,
        }
    }
}

impl Val {
    /// How many parts it has, through all levels, itself included; and how many levels.
    fn size(&self) -> (usize, usize) {
        match self {
            Val::One(_) | Val::Unit(_) => (1, 0),
            Val::Tuple(parts, _) => {
                let sizes = parts.iter().map(Val::size);
                sizes.fold((1, 1), |(all, levels), (size, depth)| (all + size, levels.max(depth + 1)))
            }
        }
    }

    fn place(&self) -> SourceRange {
        match self {
            Val::One(operand) => operand.place,
            Val::Tuple(_, place) | Val::Unit(place) => *place,
        }
    }
}
