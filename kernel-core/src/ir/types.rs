//! Types of values: a shape and what its elements are.

use super::dim::Dim;
use super::dtype::DType;
use super::ids::{DtypeId, ParamId};

/// A dtype, or a dtype parameter that `bind` replaces by one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Dt {
    /// A known dtype.
    Known(DType),
    /// A dtype parameter of the kernel (`T`), generic level only.
    Param(DtypeId),
}

impl Dt {
    /// The dtype, if it is known.
    pub fn known(self) -> Option<DType> {
        match self {
            Dt::Known(d) => Some(d),
            Dt::Param(_) => None,
        }
    }
}

impl From<DtypeId> for Dt {
    fn from(id: DtypeId) -> Dt {
        Dt::Param(id)
    }
}

impl From<DType> for Dt {
    fn from(d: DType) -> Dt {
        Dt::Known(d)
    }
}

/// What one element of a value is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Elem {
    /// A number or a truth value.
    Data(Dt),
    /// A pointer into the buffer of one parameter: in memory an offset in elements from that buffer's start.
    /// The parameter is part of the type, so pointers into different buffers never mix.
    Ptr(ParamId),
    /// A tensor descriptor: always the value of that parameter, or a carried copy of it.
    Desc(ParamId),
    /// An ordering token: what an asynchronous operation returns and a wait consumes. Placed level only.
    Token,
    /// A view of shared memory with elements of that dtype: a mutable resource, not a value. Placed level only.
    Shared(Dt),
    /// Memory barriers with phases (`mbarrier`) in shared memory, one per element of the shape. Placed level only.
    Barrier,
}

/// The type of a value: a scalar where `shape` is empty, else a tile.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ty {
    /// The kind of one element.
    pub elem: Elem,
    /// Dimensions, outermost first. Empty for a scalar.
    pub shape: Vec<Dim>,
}

impl Ty {
    /// A scalar of `dt`.
    pub fn scalar(dt: impl Into<Dt>) -> Ty {
        Ty { elem: Elem::Data(dt.into()), shape: Vec::new() }
    }

    /// A tile of `dt`; a scalar if `shape` is empty.
    pub fn tile(dt: impl Into<Dt>, shape: Vec<Dim>) -> Ty {
        Ty { elem: Elem::Data(dt.into()), shape }
    }

    /// A scalar pointer into the buffer of `param`.
    pub fn ptr(param: ParamId) -> Ty {
        Ty { elem: Elem::Ptr(param), shape: Vec::new() }
    }

    /// The descriptor that is the value of `param`.
    pub fn desc(param: ParamId) -> Ty {
        Ty { elem: Elem::Desc(param), shape: Vec::new() }
    }

    /// The ordering token.
    pub fn token() -> Ty {
        Ty { elem: Elem::Token, shape: Vec::new() }
    }

    /// The same elements in another shape.
    pub fn with_shape(&self, shape: Vec<Dim>) -> Ty {
        Ty { elem: self.elem, shape }
    }

    /// The same shape with elements of `dt`.
    pub fn with_dt(&self, dt: impl Into<Dt>) -> Ty {
        Ty { elem: Elem::Data(dt.into()), shape: self.shape.clone() }
    }

    /// Number of dimensions: 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Whether this is a scalar (rank 0).
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }

    /// The dtype or dtype parameter of a data value.
    pub fn dt(&self) -> Option<Dt> {
        match self.elem {
            Elem::Data(dt) | Elem::Shared(dt) => Some(dt),
            Elem::Ptr(_) | Elem::Desc(_) | Elem::Token | Elem::Barrier => None,
        }
    }

    /// The dtype of a data value, if it is known (always at the bound level).
    pub fn dtype(&self) -> Option<DType> {
        self.dt().and_then(Dt::known)
    }

    /// The parameter that a pointer value points into.
    pub fn pointee(&self) -> Option<ParamId> {
        match self.elem {
            Elem::Ptr(param) => Some(param),
            Elem::Data(_) | Elem::Desc(_) | Elem::Token | Elem::Shared(_) | Elem::Barrier => None,
        }
    }

    /// The parameter that a descriptor is the value of.
    pub fn descriptor(&self) -> Option<ParamId> {
        match self.elem {
            Elem::Desc(param) => Some(param),
            Elem::Data(_) | Elem::Ptr(_) | Elem::Token | Elem::Shared(_) | Elem::Barrier => None,
        }
    }

    /// The dimensions as numbers, if all are known (always at the bound level).
    pub fn dims(&self) -> Option<Vec<i64>> {
        self.shape.iter().map(Dim::as_const).collect()
    }

    /// The number of elements, if known: 1 for a scalar.
    pub fn numel(&self) -> Option<i64> {
        self.shape.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?))
    }
}
