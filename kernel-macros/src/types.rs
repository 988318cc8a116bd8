//! Types during inference: a dtype may still be a variable.
//!
//! A literal starts as a variable that takes any integer (or any float) dtype. Wherever two values must agree, their
//! dtypes are unified. What is still free at the end of the kernel is i32 or f32, or what a constexpr among the values was
//! declared as.
//! Shapes are known from the start: they are symbolic but never variables.

use kernel_core::ir::{DType, DTypeBound, Dim, Dt, DtypeId, Func, IntTy, ParamId};

/// A dtype, known or to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DtRef {
    /// A dtype or a dtype parameter.
    Fixed(Dt),
    /// A variable, by index.
    Var(usize),
}

impl From<DType> for DtRef {
    fn from(dtype: DType) -> DtRef {
        DtRef::Fixed(Dt::Known(dtype))
    }
}

impl From<Dt> for DtRef {
    fn from(dt: Dt) -> DtRef {
        DtRef::Fixed(dt)
    }
}

/// `bool`, which conditions and masks are.
pub const BOOL: DtRef = DtRef::Fixed(Dt::Known(DType::Bool));

/// What one element of a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VElem {
    /// A number or truth value.
    Data(DtRef),
    /// A pointer into the buffer of a parameter.
    Ptr(ParamId),
}

/// The type of a value during inference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VTy {
    /// The kind of one element.
    pub elem: VElem,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<Dim>,
}

impl VTy {
    /// A scalar.
    pub fn scalar(dt: impl Into<DtRef>) -> VTy {
        VTy { elem: VElem::Data(dt.into()), shape: Vec::new() }
    }

    /// The same elements in another shape.
    pub fn with_shape(&self, shape: Vec<Dim>) -> VTy {
        VTy { elem: self.elem, shape }
    }

    /// The same shape with elements of `dt`.
    pub fn with_dt(&self, dt: impl Into<DtRef>) -> VTy {
        VTy { elem: VElem::Data(dt.into()), shape: self.shape.clone() }
    }

    /// Whether this is a scalar.
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }
}

/// What a variable may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// An integer literal or constexpr: any integer dtype.
    Int,
    /// A float literal: any float dtype.
    Float,
    /// Anything: `zeros([N])`, or a constant of the user's crate.
    Any,
}

/// The type that the constexprs among some values were declared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Declared {
    /// None: there are literals only.
    Open,
    /// A dtype.
    As(Dt),
    /// `usize`, whose width depends on the host, or types that differ.
    Several,
}

impl Declared {
    /// That of values which must agree.
    pub fn and(self, other: Declared) -> Declared {
        match (self, other) {
            (Declared::Open, one) | (one, Declared::Open) => one,
            (one, other) if one == other => one,
            _ => Declared::Several,
        }
    }
}

impl From<IntTy> for Declared {
    fn from(ty: IntTy) -> Declared {
        match ty {
            IntTy::Fixed(dtype) => Declared::As(Dt::Known(dtype)),
            IntTy::Usize | IntTy::Isize => Declared::Several,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Variable {
    class: Class,
    /// What it becomes if nothing else says so.
    declared: Declared,
    /// Whether a constant of the user's crate is among the values, so that no dtype parameter can stand here.
    concrete: bool,
    /// What it has become.
    to: Option<DtRef>,
}

/// Why two dtypes do not agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// Two different dtypes.
    Dtypes(Dt, Dt),
    /// A literal of that class beside a dtype that is not of it.
    Literal(Class, Dt),
    /// An integer literal beside a float literal.
    Classes,
    /// A constant of the user's crate beside a dtype parameter.
    Constant(Dt),
}

/// The dtype variables of a kernel.
#[derive(Debug, Default)]
pub struct Types {
    variables: Vec<Variable>,
}

impl Types {
    /// A new variable.
    pub fn fresh(&mut self, class: Class) -> DtRef {
        self.variable(class, Declared::Open, false)
    }

    /// A new variable for a constexpr.
    pub fn fresh_constexpr(&mut self, declared: Declared) -> DtRef {
        self.variable(Class::Int, declared, false)
    }

    /// A new variable for a constant of the user's crate.
    pub fn fresh_constant(&mut self) -> DtRef {
        self.variable(Class::Any, Declared::Open, true)
    }

    fn variable(&mut self, class: Class, declared: Declared, concrete: bool) -> DtRef {
        self.variables.push(Variable { class, declared, concrete, to: None });
        DtRef::Var(self.variables.len() - 1)
    }

    /// The type that the constexprs among values of that dtype were declared with.
    pub fn declared(&self, dt: DtRef) -> Declared {
        match self.resolve(dt) {
            DtRef::Fixed(dt) => Declared::As(dt),
            DtRef::Var(v) => self.variables[v].declared,
        }
    }

    /// What a dtype stands for by now.
    pub fn resolve(&self, mut dt: DtRef) -> DtRef {
        while let DtRef::Var(v) = dt {
            match self.variables[v].to {
                Some(next) => dt = next,
                None => break,
            }
        }
        dt
    }

    /// The dtype, if it is known by now.
    pub fn known(&self, dt: DtRef) -> Option<Dt> {
        match self.resolve(dt) {
            DtRef::Fixed(dt) => Some(dt),
            DtRef::Var(_) => None,
        }
    }

    /// What a variable may still become; `None` once it is known.
    pub fn class(&self, dt: DtRef) -> Option<Class> {
        match self.resolve(dt) {
            DtRef::Fixed(_) => None,
            DtRef::Var(v) => Some(self.variables[v].class),
        }
    }

    /// Makes two dtypes equal.
    ///
    /// # Errors
    /// Why they cannot be.
    pub fn unify(&mut self, a: DtRef, b: DtRef, func: &Func) -> Result<(), Mismatch> {
        match (self.resolve(a), self.resolve(b)) {
            (DtRef::Fixed(a), DtRef::Fixed(b)) if a == b => Ok(()),
            (DtRef::Fixed(a), DtRef::Fixed(b)) => Err(Mismatch::Dtypes(a, b)),
            (DtRef::Var(v), DtRef::Fixed(dt)) | (DtRef::Fixed(dt), DtRef::Var(v)) => self.fix(v, dt, func),
            (DtRef::Var(a), DtRef::Var(b)) if a == b => Ok(()),
            (DtRef::Var(a), DtRef::Var(b)) => {
                let (x, y) = (self.variables[a], self.variables[b]);
                let class = match (x.class, y.class) {
                    (Class::Any, other) | (other, Class::Any) => other,
                    (Class::Int, Class::Int) => Class::Int,
                    (Class::Float, Class::Float) => Class::Float,
                    (Class::Int, Class::Float) | (Class::Float, Class::Int) => return Err(Mismatch::Classes),
                };
                self.variables[b] = Variable {
                    class,
                    declared: x.declared.and(y.declared),
                    concrete: x.concrete || y.concrete,
                    to: None,
                };
                self.variables[a].to = Some(DtRef::Var(b));
                Ok(())
            }
        }
    }

    fn fix(&mut self, v: usize, dt: Dt, func: &Func) -> Result<(), Mismatch> {
        let Variable { class, concrete, .. } = self.variables[v];
        if concrete && matches!(dt, Dt::Param(_)) {
            return Err(Mismatch::Constant(dt));
        }
        let fits = match class {
            Class::Int => admits(func, dt, DTypeBound::Int),
            Class::Float => admits(func, dt, DTypeBound::Float),
            Class::Any => true,
        };
        if !fits {
            return Err(Mismatch::Literal(class, dt));
        }
        self.variables[v].to = Some(DtRef::Fixed(dt));
        Ok(())
    }

    /// The dtype at the end of inference: what is still free is as its constexprs were declared, or i32 or f32.
    pub fn settled(&self, dt: DtRef) -> Dt {
        match self.resolve(dt) {
            DtRef::Fixed(dt) => dt,
            DtRef::Var(v) => match (self.variables[v].class, self.variables[v].declared) {
                (Class::Float, _) => Dt::Known(DType::F32),
                (Class::Int | Class::Any, Declared::As(dt)) => dt,
                (Class::Int | Class::Any, Declared::Open | Declared::Several) => Dt::Known(DType::I32),
            },
        }
    }

    /// Whether nothing in the kernel says what this dtype is: not even a literal.
    pub fn is_open(&self, dt: DtRef) -> bool {
        match self.resolve(dt) {
            DtRef::Fixed(_) => false,
            DtRef::Var(v) => self.variables[v].class == Class::Any && !self.variables[v].concrete,
        }
    }
}

/// Whether every dtype that `dt` can stand for satisfies `bound`.
pub fn admits(func: &Func, dt: Dt, bound: DTypeBound) -> bool {
    kernel_core::ir::infer::dt_admits(func, dt, bound)
}

/// Whether some dtype that `dt` can stand for satisfies `bound`.
pub fn may_be(func: &Func, dt: Dt, bound: DTypeBound) -> bool {
    match dt {
        Dt::Known(d) => bound.admits(d),
        Dt::Param(p) => {
            let own = func.dtype_params[p.index()].bound;
            DType::ALL.into_iter().any(|d| own.admits(d) && bound.admits(d))
        }
    }
}

/// The name of a dtype as the user writes it.
pub fn dt_name(func: &Func, dt: Dt) -> String {
    match dt {
        Dt::Known(d) => d.name().to_string(),
        Dt::Param(p) => func.dtype_params[p.index()].name.clone(),
    }
}

/// The dtype parameter of that name.
pub fn dtype_param(func: &Func, name: &str) -> Option<DtypeId> {
    let index = func.dtype_params.iter().position(|p| p.name == name)?;
    Some(DtypeId::new(index as u32))
}

/// The dtype in which two numbers of a dtype are subtracted, and wrap, where their distance is asked for: their own one. Of
/// a dtype parameter no width is known, and `u64` has room for all.
pub fn distance_of(dt: Dt) -> Dt {
    match dt {
        Dt::Known(_) => dt,
        Dt::Param(_) => Dt::Known(DType::U64),
    }
}

/// The unsigned dtype of the same width, which holds the distances of two numbers.
pub fn unsigned_of(dt: Dt) -> Dt {
    match dt {
        Dt::Known(DType::I8) => Dt::Known(DType::U8),
        Dt::Known(DType::I16) => Dt::Known(DType::U16),
        Dt::Known(DType::I32) => Dt::Known(DType::U32),
        Dt::Known(DType::I64) => Dt::Known(DType::U64),
        other => other,
    }
}
