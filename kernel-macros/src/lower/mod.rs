//! From the checked [tree](crate::tree) to tile IR: dtypes are settled, mutable variables become carried values.
//!
//! An assignment inside a region makes the variable a result of the operation that owns the region:
//!
//! ```text
//! let mut acc = 0.0;                      %0 = const 0.0
//! for i in 0..n { acc += f(i); }    =>    %1 = for 0, n, 1, %0 { (i, acc): .. yield %new }
//! store(out, acc);                        store %out, %1
//! ```

mod places;

use kernel_core::ir::{AttrMap, BinaryOp, ConstParam, ConstTy, DTypeBound, IntTy, UnaryOp};
use kernel_core::ir::{
    Builder, CallId, ControlOp, CreateOp, DType, Dim, Dt, Elem, ElementwiseOp, FloatFlags, Func, Literal, Op,
    ParamKind, RegionId, ShapeOp, Ty, TypeError, ValueId,
};

use kernel_core::text::MAX_REGIONS;

use crate::decimal::Decimal;
use crate::error::{Checked, Errors};
use crate::source_range::SourceRange;
use crate::tree::{Fold, ForStmt, IfStmt, Kind, MapStmt, NodeId, ReduceStmt, Stmt, VOp, VarId, WhileStmt, assigned};
use crate::typeck::{Tree, is_dtype};
use crate::types::{VElem, VTy, may_be};

/// A kernel as IR.
pub struct Lowered {
    /// The kernel.
    pub func: Func,
    /// Constants of the user's crate that are constexprs, in the order of the constexprs that they have become.
    pub consts: Vec<usize>,
    /// Constants of the user's crate that are floats, in the order of the folded parameters that they have become.
    pub scalars: Vec<usize>,
}

struct Lower<'t> {
    tree: &'t Tree,
    func: Func,
    contract: bool,
    /// The region that grows.
    region: RegionId,
    /// How many regions surround it.
    depth: u32,
    /// Values of evaluated nodes.
    values: Vec<Option<ValueId>>,
    /// Current values of mutable variables.
    variables: Vec<Option<ValueId>>,
    /// What each constant of the user's crate has become.
    constants: Vec<Const>,
    /// The kernel's file, if functions were inlined, which may come from others.
    own_file: Option<String>,
    /// What each inlined call is in the IR, once something is named by it.
    calls: Vec<Option<CallId>>,
}

#[derive(Clone, Copy)]
enum Const {
    Expr(kernel_core::ir::ConstId),
    Scalar(ValueId),
}

/// An operation that the type rules refuse although the checker accepted it: reported, not panicked on.
struct Refused {
    error: TypeError,
    place: SourceRange,
}

type Lowering<T> = Result<T, Refused>;

/// Lowers a checked kernel. `own_file` is where it stands, if functions were inlined.
pub fn lower(tree: &Tree, contract: bool, own_file: Option<String>, errors: &mut Errors) -> Checked<Lowered> {
    let mut func = tree.func.clone();
    let (mut consts, mut scalars, mut constants) = (Vec::new(), Vec::new(), Vec::new());
    // Those that a shape needs are constexprs already, in this order.
    consts.extend((0..tree.constants.len()).filter(|&i| tree.constants[i].shape.is_some()));
    for (index, constant) in tree.constants.iter().enumerate() {
        if let Some(id) = constant.shape {
            constants.push(Const::Expr(id));
            continue;
        }
        let dt = tree.types.settled(constant.dt);
        if dt.known().is_some_and(DType::is_float) {
            let id = func.add_param(
                &crate::names::free_name(&func, &constant.name),
                ParamKind::ConstScalar(dt),
                constant.place.ir_span(),
            );
            constants.push(Const::Scalar(func.param(id).value));
            scalars.push(index);
        } else {
            let ty = match dt {
                Dt::Known(DType::Bool) => ConstTy::Bool,
                Dt::Known(d) => ConstTy::Int(IntTy::Fixed(d)),
                Dt::Param(_) => ConstTy::Int(IntTy::Fixed(DType::I64)),
            };
            let name = crate::names::free_name(&func, &constant.name);
            func.const_params.push(ConstParam::given(name, ty));
            constants.push(Const::Expr(kernel_core::ir::ConstId::new(func.const_params.len() as u32 - 1)));
            consts.push(index);
        }
    }
    let region = func.body;
    let mut lower = Lower {
        tree,
        func,
        contract,
        region,
        depth: 1,
        values: vec![None; tree.nodes.len()],
        variables: vec![None; tree.variables],
        constants,
        own_file,
        calls: vec![None; tree.calls.len()],
    };
    lower.blocks();
    let place = SourceRange::at(proc_macro2::Span::call_site());
    let result = lower.block(&tree.body).and_then(|()| lower.effect(ControlOp::Return, &[], &[], place));
    match result {
        Ok(()) => Ok(Lowered { func: lower.func, consts, scalars }),
        Err(Refused { error, place }) => {
            Err(errors.report(place, format!("this cannot be compiled: {}", error.message)))
        }
    }
}

/// Puts the dimensions of attributes into normal form. No map fails.
struct Settled<'l, 't>(&'l Lower<'t>);

impl AttrMap for Settled<'_, '_> {
    fn dt(&mut self, dt: Dt) -> Option<Dt> {
        Some(dt)
    }

    fn dim(&mut self, dim: &Dim) -> Option<Dim> {
        Some(self.0.dim(dim))
    }

    fn shape(&mut self, shape: &[Dim]) -> Option<Vec<Dim>> {
        Some(self.0.shape(shape))
    }
}
impl Lower<'_> {
    // Operations

    fn build(
        &mut self,
        op: Op,
        operands: &[ValueId],
        regions: &[RegionId],
        place: SourceRange,
    ) -> Lowering<Vec<ValueId>> {
        let flags = FloatFlags { contract: self.contract && self.contracts(&op, operands) };
        let span = self.span(place);
        let mut builder = Builder::new(&mut self.func, self.region);
        builder.flags = flags;
        let id = builder.op(op, operands, regions, span).map_err(|error| Refused { error, place })?;
        Ok(self.func.op(id).results.clone())
    }

    fn one(&mut self, op: impl Into<Op>, operands: &[ValueId], place: SourceRange) -> Lowering<ValueId> {
        let results = self.build(op.into(), operands, &[], place)?;
        let error = || TypeError { message: "an operation without a result".to_string() };
        results.first().copied().ok_or_else(|| Refused { error: error(), place })
    }

    fn effect(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        regions: &[RegionId],
        place: SourceRange,
    ) -> Lowering<()> {
        self.build(op.into(), operands, regions, place).map(|_| ())
    }

    /// Whether the operation may be fused with its neighbours: float sums, differences, products and negation.
    fn contracts(&self, op: &Op, operands: &[ValueId]) -> bool {
        let fusable = matches!(
            op,
            Op::Elementwise(
                ElementwiseOp::Binary { op: BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul }
                    | ElementwiseOp::Unary { op: UnaryOp::Neg }
            )
        );
        let dt = operands.first().and_then(|&v| self.func.ty(v).dt());
        fusable && dt.is_some_and(|dt| may_be(&self.func, dt, DTypeBound::Float))
    }

    // Types

    /// A dimension in the normal form that `static_assert!` gives it.
    fn dim(&self, dim: &Dim) -> Dim {
        let value = |id| self.tree.facts.get(&id).cloned().unwrap_or_else(|| Dim::param(id));
        dim.substitute(&value).unwrap_or_else(|_| dim.clone())
    }

    /// Puts the blocks of descriptors into that form, in which other tiles of their shapes are.
    fn blocks(&mut self) {
        for index in 0..self.func.params.len() {
            if let ParamKind::Desc { block, .. } = &self.func.params[index].kind {
                let settled = self.shape(block);
                if let ParamKind::Desc { block, .. } = &mut self.func.params[index].kind {
                    *block = settled;
                }
            }
        }
    }

    fn shape(&self, shape: &[Dim]) -> Vec<Dim> {
        shape.iter().map(|d| self.dim(d)).collect()
    }

    fn ty(&self, ty: &VTy) -> Ty {
        let elem = match ty.elem {
            VElem::Data(dt) => Elem::Data(self.tree.types.settled(dt)),
            VElem::Ptr(param) => Elem::Ptr(param),
        };
        Ty { elem, shape: self.shape(&ty.shape) }
    }

    fn dt(&self, ty: &VTy) -> Dt {
        match ty.elem {
            VElem::Data(dt) => self.tree.types.settled(dt),
            VElem::Ptr(_) => Dt::Known(DType::I64),
        }
    }

    // Values

    /// The value of a node; constants are made where they are used.
    fn value(&mut self, id: NodeId) -> Lowering<ValueId> {
        if let Some(value) = self.values[id.0] {
            return Ok(value);
        }
        let tree = self.tree;
        let node = &tree.nodes[id.0];
        let (place, dtype) = (node.place, self.dt(&node.ty));
        match &node.kind {
            Kind::Int(Dim::Const(value)) => self.one(Op::constant(Literal::Int(i128::from(*value)), dtype), &[], place),
            Kind::Int(dim) => self.one(CreateOp::ConstExpr { value: dim.clone(), dtype }, &[], place),
            Kind::BigInt(value) => self.one(Op::constant(Literal::Int(*value), dtype), &[], place),
            Kind::Float(number) => self.float(*number, dtype, place),
            Kind::Bool(value) => self.one(Op::constant(Literal::Bool(*value), DType::Bool), &[], place),
            Kind::ConstBool(id) => {
                self.one(CreateOp::ConstExpr { value: Dim::param(*id), dtype: DType::Bool.into() }, &[], place)
            }
            Kind::Constant(index) => match self.constants[*index] {
                Const::Expr(id) => self.one(CreateOp::ConstExpr { value: Dim::param(id), dtype }, &[], place),
                Const::Scalar(value) => Ok(value),
            },
            Kind::Param(id) => Ok(self.func.param(*id).value),
            Kind::Slot | Kind::Op(..) => {
                let message = "a value is used before it is computed".to_string();
                Err(Refused { error: TypeError { message }, place })
            }
        }
    }

    /// A float literal, which rounds once to whatever a dtype parameter stands for.
    fn float(&mut self, number: Decimal, dtype: Dt, place: SourceRange) -> Lowering<ValueId> {
        let constant = |value: f64| Op::constant(Literal::float(value), dtype);
        let id = match dtype {
            Dt::Param(id) if number.may_round_twice() => id,
            Dt::Param(_) => return self.one(constant(number.nearest), &[], place),
            Dt::Known(known) => return self.one(constant(number.of(known)), &[], place),
        };
        let wide = Dim::param(is_dtype(&mut self.func, id, Dt::Known(DType::F64)));
        let wide = self.one(CreateOp::ConstExpr { value: wide, dtype: DType::Bool.into() }, &[], place)?;
        let mut branch = |value: f64| {
            self.region(Vec::new(), place, |l, _| {
                let value = l.one(constant(value), &[], place)?;
                l.effect(ControlOp::Yield, &[value], &[], place)
            })
        };
        let regions = [branch(number.nearest)?, branch(number.odd)?];
        let results = self.build(ControlOp::If.into(), &[wide], &regions, place)?;
        Ok(results[0])
    }

    fn values(&mut self, ids: &[NodeId]) -> Lowering<Vec<ValueId>> {
        ids.iter().map(|&id| self.value(id)).collect()
    }

    fn eval(&mut self, id: NodeId) -> Lowering<()> {
        let tree = self.tree;
        let node = &tree.nodes[id.0];
        let Kind::Op(op, args) = &node.kind else { return Ok(()) };
        let operands = self.values(args)?;
        let (place, to) = (node.place, self.dt(&node.ty));
        let value = match op {
            VOp::Ready(op) => {
                let op = op.map_attrs(&mut Settled(self)).unwrap_or_else(|| op.clone());
                if let (Op::Shape(ShapeOp::Broadcast { shape }), [from]) = (&op, operands.as_slice())
                    && self.func.ty(*from).shape == *shape
                {
                    *from
                } else {
                    self.one(op, &operands, place)?
                }
            }
            VOp::Cast => self.one(Op::cast(to), &operands, place)?,
            VOp::Bitcast => self.one(ElementwiseOp::Bitcast { to }, &operands, place)?,
            VOp::Limit(kind) => self.one(CreateOp::Limit { kind: *kind, dtype: to }, &operands, place)?,
            VOp::Zero => self.zero(to, place)?,
        };
        self.values[id.0] = Some(value);
        Ok(())
    }

    fn zero(&mut self, dt: Dt, place: SourceRange) -> Lowering<ValueId> {
        let literal = match dt {
            Dt::Known(DType::Bool) => Literal::Bool(false),
            Dt::Known(d) if d.is_float() => Literal::float(0.0),
            Dt::Known(_) => Literal::Int(0),
            Dt::Param(_) => {
                let zero = self.one(Op::i32(0), &[], place)?;
                return self.one(Op::cast(dt), &[zero], place);
            }
        };
        self.one(Op::constant(literal, dt), &[], place)
    }

    // Statements

    fn block(&mut self, stmts: &[Stmt]) -> Lowering<()> {
        for stmt in stmts {
            match stmt {
                Stmt::Eval(id) => self.eval(*id)?,
                Stmt::Effect(op, args, place) => {
                    let operands = self.values(args)?;
                    self.effect(op.clone(), &operands, &[], *place)?;
                }
                Stmt::Read(slot, var) => self.values[slot.0] = self.variables[var.0],
                Stmt::Assign(var, node) => self.variables[var.0] = Some(self.value(*node)?),
                Stmt::Alias(slot, node) => self.values[slot.0] = Some(self.value(*node)?),
                Stmt::If(stmt) => self.if_stmt(stmt)?,
                Stmt::For(stmt) => self.for_stmt(stmt)?,
                Stmt::While(stmt) => self.while_stmt(stmt)?,
                Stmt::Reduce(stmt) => self.reduce(stmt)?,
                Stmt::Map(stmt) => self.map(stmt)?,
                // Removed by `jumps`.
                Stmt::Body(_) | Stmt::Jump(..) => {}
            }
        }
        Ok(())
    }

    /// Runs `f` at the end of a new region and returns the region.
    fn region(
        &mut self,
        args: Vec<Ty>,
        place: SourceRange,
        f: impl FnOnce(&mut Self, &[ValueId]) -> Lowering<()>,
    ) -> Lowering<RegionId> {
        // The launch could not read a deeper one.
        if self.depth == MAX_REGIONS {
            let what = "with what follows each early `return`, `break` and `continue`";
            let message = format!("blocks, {what}, nest more than {MAX_REGIONS} deep");
            return Err(Refused { error: TypeError { message }, place });
        }
        self.depth += 1;
        let region = self.func.new_region(args);
        let outer = std::mem::replace(&mut self.region, region);
        let values = self.func.region(region).args.clone();
        let result = f(self, &values);
        self.region = outer;
        self.depth -= 1;
        result.map(|()| region)
    }

    /// Variables that the statements assign and that exist already.
    fn carried<'s>(&self, stmts: impl Iterator<Item = &'s Stmt>) -> Vec<VarId> {
        let mut vars = Vec::new();
        assigned(stmts, &mut vars);
        vars.retain(|v| self.variables[v.0].is_some());
        vars.sort_unstable();
        vars.dedup();
        vars
    }

    fn current(&self, vars: &[VarId]) -> Vec<ValueId> {
        vars.iter().filter_map(|v| self.variables[v.0]).collect()
    }

    fn set(&mut self, vars: &[VarId], values: &[ValueId]) {
        for (var, value) in vars.iter().zip(values) {
            self.variables[var.0] = Some(*value);
        }
    }

    fn if_stmt(&mut self, stmt: &IfStmt) -> Lowering<()> {
        let condition = self.value(stmt.condition)?;
        let vars = self.carried(stmt.then.iter().chain(&stmt.otherwise));
        let before = self.variables.clone();
        let mut regions = Vec::new();
        for (stmts, first) in [(&stmt.then, true), (&stmt.otherwise, false)] {
            self.variables.clone_from(&before);
            let region = self.region(Vec::new(), stmt.place, |l, _| {
                l.block(stmts)?;
                let mut yields = Vec::new();
                for (_, then, otherwise) in &stmt.results {
                    let node = if first { then } else { otherwise };
                    yields.extend(node.map(|n| l.value(n)).transpose()?);
                }
                yields.extend(l.current(&vars));
                l.effect(ControlOp::Yield, &yields, &[], stmt.place)
            })?;
            regions.push(region);
        }
        self.variables = before;
        let results = self.build(ControlOp::If.into(), &[condition], &regions, stmt.place)?;
        let (own, carried) = results.split_at(stmt.results.len().min(results.len()));
        for ((slot, ..), value) in stmt.results.iter().zip(own) {
            self.values[slot.0] = Some(*value);
        }
        self.set(&vars, carried);
        Ok(())
    }

    fn for_stmt(&mut self, stmt: &ForStmt) -> Lowering<()> {
        let mut operands = self.values(&[stmt.lo, stmt.hi, stmt.step])?;
        let vars = self.carried(stmt.body.iter());
        operands.extend(self.current(&vars));
        let mut args: Vec<Ty> = vec![self.ty(&self.tree.nodes[stmt.index.0].ty)];
        args.extend(operands[3..].iter().map(|&v| self.func.ty(v).clone()));
        let before = self.variables.clone();
        let region = self.region(args, stmt.place, |l, args| {
            l.values[stmt.index.0] = args.first().copied();
            l.set(&vars, args.get(1..).unwrap_or_default());
            l.block(&stmt.body)?;
            let yields = l.current(&vars);
            l.effect(ControlOp::Yield, &yields, &[], stmt.place)
        })?;
        self.variables = before;
        let hints = stmt.hints.clone();
        let op = ControlOp::For {
            reverse: stmt.reverse,
            unroll: hints.unroll,
            counter: stmt.counter,
            stages: hints.stages,
            warp_specialize: hints.warp_specialize,
            runs: false,
            no_wrap: false,
            unroll_by: hints.unroll_by,
            stages_by: hints.stages_by,
        };
        let results = self.build(op.into(), &operands, &[region], stmt.place)?;
        self.set(&vars, &results);
        Ok(())
    }

    fn while_stmt(&mut self, stmt: &WhileStmt) -> Lowering<()> {
        let vars = self.carried(stmt.head.iter().chain(&stmt.body));
        let operands = self.current(&vars);
        let tys: Vec<Ty> = operands.iter().map(|&v| self.func.ty(v).clone()).collect();
        let before = self.variables.clone();
        let head = self.region(tys.clone(), stmt.place, |l, args| {
            l.set(&vars, args);
            l.block(&stmt.head)?;
            let condition = l.value(stmt.condition)?;
            l.effect(ControlOp::Yield, &[condition], &[], stmt.place)
        })?;
        self.variables.clone_from(&before);
        let body = self.region(tys, stmt.place, |l, args| {
            l.set(&vars, args);
            l.block(&stmt.body)?;
            let yields = l.current(&vars);
            l.effect(ControlOp::Yield, &yields, &[], stmt.place)
        })?;
        self.variables = before;
        let results = self.build(ControlOp::While.into(), &operands, &[head, body], stmt.place)?;
        self.set(&vars, &results);
        Ok(())
    }

    fn reduce(&mut self, stmt: &ReduceStmt) -> Lowering<()> {
        let operands = self.values(&stmt.inputs)?;
        let args: Vec<Ty> = stmt.args.iter().map(|a| self.ty(&self.tree.nodes[a.0].ty)).collect();
        let region = self.region(args, stmt.place, |l, args| {
            for (slot, value) in stmt.args.iter().zip(args) {
                l.values[slot.0] = Some(*value);
            }
            l.block(&stmt.body)?;
            let yields = l.values(&stmt.yields)?;
            l.effect(ControlOp::Yield, &yields, &[], stmt.place)
        })?;
        let op = match stmt.fold {
            Fold::Reduce => ControlOp::Reduce { axis: stmt.axis },
            Fold::Scan { reverse } => ControlOp::Scan { axis: stmt.axis, reverse },
        };
        let results = self.build(op.into(), &operands, &[region], stmt.place)?;
        for (slot, value) in stmt.results.iter().zip(results) {
            self.values[slot.0] = Some(value);
        }
        Ok(())
    }

    /// Variables of the closure are gone behind it.
    fn map(&mut self, stmt: &MapStmt) -> Lowering<()> {
        let operands = self.values(&stmt.inputs)?;
        let args: Vec<Ty> = stmt.args.iter().map(|a| self.ty(&self.tree.nodes[a.0].ty)).collect();
        let before = self.variables.clone();
        let region = self.region(args, stmt.place, |l, args| {
            for (slot, value) in stmt.args.iter().zip(args) {
                l.values[slot.0] = Some(*value);
            }
            l.block(&stmt.body)?;
            let yields = l.values(&stmt.yields)?;
            l.effect(ControlOp::Yield, &yields, &[], stmt.place)
        })?;
        self.variables = before;
        let ptx = stmt.ptx.as_ref().map(|(ptx, _)| ptx.clone());
        let results = self.build(ControlOp::Map { ptx }.into(), &operands, &[region], stmt.place)?;
        for (slot, value) in stmt.results.iter().zip(results) {
            self.values[slot.0] = Some(value);
        }
        Ok(())
    }
}
