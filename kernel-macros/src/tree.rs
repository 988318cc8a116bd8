//! The checked kernel, before dtype variables are resolved and before mutable variables become carried values.
//!
//! Expressions have been flattened into a list of [`Stmt`]s in evaluation order, whose operands are [`Node`]s.
//! Constants are no statements: the lowering makes one wherever a constant is used.

use kernel_core::ir::{ConstId, Dim, Dt, InlinePtx, LimitKind, Op, ParamId, Unroll};

use crate::decimal::Decimal;
use crate::source_range::{CallRef, SourceRange};
use crate::types::{DtRef, VTy};

/// A node, by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId(pub usize);

/// A mutable variable, by index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VarId(pub usize);

/// A loop or an inlined body, by index: those inside have greater ones.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LoopId(pub usize);

/// Where control goes instead of to the next statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Jump {
    /// To the end of the kernel.
    Return,
    /// To the end of an inlined function or closure.
    End(LoopId),
    /// Behind a loop around the place.
    Break(LoopId),
    /// To the next iteration of a loop around the place.
    Continue(LoopId),
}

/// A value.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it comes from.
    pub kind: Kind,
    /// Its type.
    pub ty: VTy,
    /// Its value, if it is an integer constexpr that still adapts to any dtype.
    pub dim: Option<Dim>,
    /// Whether it is known once the constexprs are.
    pub constexpr: bool,
    /// The expression that made it.
    pub place: SourceRange,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// An integer made of constexprs and literals.
    Int(Dim),
    /// An integer literal too large for a dimension.
    BigInt(i128),
    /// A float literal.
    Float(Decimal),
    /// `true` or `false`.
    Bool(bool),
    /// A `bool` constexpr.
    ConstBool(ConstId),
    /// A constant of the user's crate, by index into [`Tree::constants`].
    Constant(usize),
    /// A parameter.
    Param(ParamId),
    /// Set by the statement that lists it: a variable's value, an argument or result of a region.
    Slot,
    /// The result of an operation, which a [`Stmt::Eval`] evaluates.
    Op(VOp, Vec<NodeId>),
}

/// An operation whose dtype attributes may still be variables.
#[derive(Clone, PartialEq, Debug)]
pub enum VOp {
    /// An operation without dtype attributes.
    Ready(Op),
    /// A conversion to the node's dtype.
    Cast,
    /// The same bits as the node's dtype.
    Bitcast,
    /// A special value of the node's dtype.
    Limit(LimitKind),
    /// Zero of the node's dtype.
    Zero,
}

impl VOp {
    /// What gives the lower bits of an integer in another dtype; nothing, if it is the same one. The two have one width, or
    /// one is a dtype parameter.
    pub fn bits_between(from: Dt, to: Dt) -> Option<VOp> {
        match (from, to) {
            (from, to) if from == to => None,
            (Dt::Known(_), Dt::Known(_)) => Some(VOp::Bitcast),
            (Dt::Param(_), _) | (_, Dt::Param(_)) => Some(VOp::Cast),
        }
    }
}

/// A constant of the user's crate.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Its name, for the IR.
    pub name: String,
    /// The expression that gives it: the path, with the user's spans, or `PATH as dtype`; of a constant that an inlined
    /// function names, the field of what that exports.
    pub tokens: proc_macro2::TokenStream,
    /// The field that exports it, if this is a function.
    pub field: proc_macro2::Ident,
    /// The call of the kernel that has led to it, if an inlined function names it: `tokens` are the field of what that exports.
    pub through: Option<SourceRange>,
    /// Its dtype; of a constant used in a shape, that of the constexpr it has become.
    pub dt: DtRef,
    /// The constexpr that it has become, if a shape needs it: then it is a `usize`.
    pub shape: Option<ConstId>,
    /// Where it is used first.
    pub place: SourceRange,
}

impl Constant {
    /// Whether it is what an expression gives. What two functions export in fields of one name is one constant,
    /// whichever of them leads there.
    pub fn is(&self, tokens: &proc_macro2::TokenStream, field: &proc_macro2::Ident) -> bool {
        self.field == *field || self.tokens.to_string() == tokens.to_string()
    }
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// Evaluates a [`Kind::Op`].
    Eval(NodeId),
    /// Runs an operation without results.
    Effect(Op, Vec<NodeId>, SourceRange),
    /// The slot takes the variable's value.
    Read(NodeId, VarId),
    /// The variable takes the node's value.
    Assign(VarId, NodeId),
    /// The slot takes the node's value.
    Alias(NodeId, NodeId),
    /// Runs one of two blocks.
    If(Box<IfStmt>),
    /// Runs a block for each number of a range.
    For(Box<ForStmt>),
    /// Runs a block while a condition holds.
    While(Box<WhileStmt>),
    /// An inlined function that returns early.
    Body(Box<BodyStmt>),
    /// Combines tiles along an axis.
    Reduce(Box<ReduceStmt>),
    /// Computes each element.
    Map(Box<MapStmt>),
    /// Leaves the block.
    Jump(Jump, SourceRange),
}

/// `if condition { then } else { otherwise }`.
#[derive(Clone, Debug)]
pub struct IfStmt {
    /// A scalar `bool`.
    pub condition: NodeId,
    /// Runs if it holds.
    pub then: Vec<Stmt>,
    /// Runs if it does not.
    pub otherwise: Vec<Stmt>,
    /// Slots and their values in each block; a block that is left gives none.
    pub results: Vec<(NodeId, Option<NodeId>, Option<NodeId>)>,
    /// The statement.
    pub place: SourceRange,
}

/// `for i in lo..hi step`.
#[derive(Clone, Debug)]
pub struct ForStmt {
    /// What jumps name it by.
    pub id: LoopId,
    /// The slot of the loop variable.
    pub index: NodeId,
    /// The constexpr that the loop variable is, in an unrolled loop.
    pub counter: Option<ConstId>,
    /// First value.
    pub lo: NodeId,
    /// First value beyond; the last one if `inclusive`.
    pub hi: NodeId,
    /// Whether the range holds `hi`: `lo..=hi`. `jumps` writes such ranges in others.
    pub inclusive: bool,
    /// Distance.
    pub step: NodeId,
    /// The body.
    pub body: Vec<Stmt>,
    /// Runs backwards.
    pub reverse: bool,
    /// Attributes of the loop.
    pub hints: LoopHints,
    /// The statement.
    pub place: SourceRange,
}

/// Attributes of a loop.
#[derive(Clone, Debug)]
pub struct LoopHints {
    /// `#[unroll]`, `#[unroll(4)]`
    pub unroll: Unroll,
    /// `#[unroll(U)]`
    pub unroll_by: Option<Dim>,
    /// `#[stages(3)]`; 0 if not given.
    pub stages: u8,
    /// `#[stages(S)]`
    pub stages_by: Option<Dim>,
    /// `#[warp_specialize]`
    pub warp_specialize: bool,
}

impl Default for LoopHints {
    fn default() -> LoopHints {
        LoopHints { unroll: Unroll::Auto, unroll_by: None, stages: 0, stages_by: None, warp_specialize: false }
    }
}

/// `while condition { body }`, or `loop { body }`.
#[derive(Clone, Debug)]
pub struct WhileStmt {
    /// What jumps name it by.
    pub id: LoopId,
    /// Evaluates the condition.
    pub head: Vec<Stmt>,
    /// A scalar `bool` of the head; of a `loop`, `true`.
    pub condition: NodeId,
    /// Whether this is a `loop`, which only jumps end.
    pub endless: bool,
    /// Whether the head changes variables outside or jumps, which heads of the IR cannot. `jumps` moves it into the body.
    pub active_head: bool,
    /// The body.
    pub body: Vec<Stmt>,
    /// Slots of the value of a `loop`, and the variables to which each `break` assigns it.
    pub results: Vec<(NodeId, VarId)>,
    /// The statement.
    pub place: SourceRange,
}

/// The body of an inlined function or closure that ends early on some path.
#[derive(Clone, Debug)]
pub struct BodyStmt {
    /// What its jumps name it by.
    pub id: LoopId,
    /// The body.
    pub body: Vec<Stmt>,
    /// Slots of its value, and the variables to which each way out assigns it.
    pub results: Vec<(NodeId, VarId)>,
}

/// What a combination along an axis leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// One element: the axis is gone.
    Reduce,
    /// The running combination, backwards if `reverse`.
    Scan {
        /// From the last element to the first.
        reverse: bool,
    },
}

/// A reduction or scan along an axis.
#[derive(Clone, Debug)]
pub struct ReduceStmt {
    /// What is left.
    pub fold: Fold,
    /// The axis.
    pub axis: u8,
    /// Tiles of one shape.
    pub inputs: Vec<NodeId>,
    /// Slots: the scalars of the left side, then those of the right side.
    pub args: Vec<NodeId>,
    /// Combines them.
    pub body: Vec<Stmt>,
    /// The combination.
    pub yields: Vec<NodeId>,
    /// Slots of the results.
    pub results: Vec<NodeId>,
    /// The call.
    pub place: SourceRange,
}

/// An operation on each element.
#[derive(Clone, Debug)]
pub struct MapStmt {
    /// The PTX that computes it, and where that stands.
    pub ptx: Option<(InlinePtx, SourceRange)>,
    /// Tiles of one shape, or scalars.
    pub inputs: Vec<NodeId>,
    /// Slots: an element of each.
    pub args: Vec<NodeId>,
    /// Computes an element of each result.
    pub body: Vec<Stmt>,
    /// Those elements.
    pub yields: Vec<NodeId>,
    /// Slots of the results.
    pub results: Vec<NodeId>,
    /// The call.
    pub place: SourceRange,
}

/// Says of statements that a call has inlined them, where none in it has.
pub fn inlined_by(stmts: &mut [Stmt], call: CallRef) {
    for stmt in stmts {
        match stmt {
            Stmt::Effect(_, _, place) | Stmt::Jump(_, place) => *place = place.in_call(call),
            Stmt::If(stmt) => {
                stmt.place = stmt.place.in_call(call);
                inlined_by(&mut stmt.then, call);
                inlined_by(&mut stmt.otherwise, call);
            }
            Stmt::For(stmt) => {
                stmt.place = stmt.place.in_call(call);
                inlined_by(&mut stmt.body, call);
            }
            Stmt::While(stmt) => {
                stmt.place = stmt.place.in_call(call);
                inlined_by(&mut stmt.head, call);
                inlined_by(&mut stmt.body, call);
            }
            Stmt::Body(stmt) => inlined_by(&mut stmt.body, call),
            Stmt::Reduce(stmt) => {
                stmt.place = stmt.place.in_call(call);
                inlined_by(&mut stmt.body, call);
            }
            Stmt::Map(stmt) => {
                stmt.place = stmt.place.in_call(call);
                inlined_by(&mut stmt.body, call);
            }
            Stmt::Eval(_) | Stmt::Read(..) | Stmt::Assign(..) | Stmt::Alias(..) => {}
        }
    }
}

/// The variables that statements assign, those in nested blocks included.
pub fn assigned<'s>(stmts: impl Iterator<Item = &'s Stmt>, out: &mut Vec<VarId>) {
    for stmt in stmts {
        match stmt {
            Stmt::Assign(var, _) => out.push(*var),
            Stmt::If(stmt) => assigned(stmt.then.iter().chain(&stmt.otherwise), out),
            Stmt::For(stmt) => assigned(stmt.body.iter(), out),
            Stmt::While(stmt) => assigned(stmt.head.iter().chain(&stmt.body), out),
            Stmt::Body(stmt) => assigned(stmt.body.iter(), out),
            Stmt::Reduce(stmt) => assigned(stmt.body.iter(), out),
            // What it assigns is its own.
            Stmt::Map(_) => {}
            Stmt::Eval(_) | Stmt::Effect(..) | Stmt::Read(..) | Stmt::Alias(..) | Stmt::Jump(..) => {}
        }
    }
}

/// The jumps among statements, those in nested blocks and loops included, in order.
pub fn jumps(stmts: &[Stmt], out: &mut Vec<(Jump, SourceRange)>) {
    for stmt in stmts {
        match stmt {
            Stmt::Jump(jump, place) => out.push((*jump, *place)),
            Stmt::If(stmt) => {
                jumps(&stmt.then, out);
                jumps(&stmt.otherwise, out);
            }
            Stmt::For(stmt) => jumps(&stmt.body, out),
            Stmt::While(stmt) => {
                jumps(&stmt.head, out);
                jumps(&stmt.body, out);
            }
            Stmt::Body(stmt) => jumps(&stmt.body, out),
            // Nothing jumps out of a closure.
            Stmt::Reduce(_) | Stmt::Map(_) => {}
            Stmt::Eval(_) | Stmt::Effect(..) | Stmt::Read(..) | Stmt::Assign(..) | Stmt::Alias(..) => {}
        }
    }
}
