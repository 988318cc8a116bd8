//! The macro behind the op table: from one declaration follow the enum, the row with its facts, the views with operands by
//! name, the printer and parser of the attributes, their binding, and the documentation.

use super::dim::Dim;
use super::ids::ConstId;
use super::level::Levels;
use super::names::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, CounterKind, DotInstruction, DotPrecision, EvictionPolicy, FactorFormat,
    FenceKind, GroupPart, GroupRole, HintKind, LimitKind, Literal, MemOrder, MemScope, ScaledFactors, StoreMode,
    UnaryOp, Unroll,
};
use super::ptx::InlinePtx;
use super::types::Dt;
use crate::math::FloatIntFn;

/// How often an operand, a result or the like is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// Never.
    No,
    /// Once.
    One,
    /// Once, or not at all; then those behind it are missing too.
    Optional,
    /// Any number of times. Only the last operand is.
    Many,
}

/// An operand of a row, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperandRow {
    /// Its name in the views.
    pub name: &'static str,
    /// How often it is given.
    pub given: Given,
}

/// Where the elements of an operation's results come from. Operands are named by position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elements {
    /// From attributes and from the launch.
    Made,
    /// Each from those of the operands in its own place, and so is each access.
    Each,
    /// All of them are one scalar operand.
    Repeated(u8),
    /// From one operand: moved, repeated, or with others left out.
    Moved(u8),
    /// Each is an element of one of several operands.
    Joined,
    /// From what the operation's regions yield.
    Yielded,
    /// From anywhere else; results that are no tiles or scalars have none.
    Other,
}

/// What an operation costs where it runs, without what is in its regions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cost {
    /// Nothing: the results are other names of registers.
    Free,
    /// Some instructions on registers.
    Arithmetic,
    /// An access to memory.
    Memory,
    /// Elements go from thread to thread.
    Exchange,
    /// A matrix product.
    Product,
    /// Waits for other threads, or for what is in flight.
    Wait,
    /// Control goes elsewhere.
    Control,
}

/// Who must run an operation on tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// Each thread for its own elements.
    Alone,
    /// All threads of the program (or warp group) at a time.
    Together,
}

/// What an operation does with its regions, and how many it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regions {
    /// It has none.
    Straight,
    /// Runs them again and again.
    Loop(usize),
    /// Runs one of them.
    Branch(usize),
    /// Combines elements with them.
    Combine(usize),
    /// Computes each element of its results with them, from those of its operands in the same place.
    Apply(usize),
    /// Any number, run at the same time by different threads.
    Concurrent,
}

/// What an operation touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// The buffer that the operand at this position points into or describes.
    Buffer(u8),
    /// Shared memory.
    Shared,
    /// Barriers, asynchronous copies in flight and their order.
    Barriers,
}

/// What an operation does besides computing its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Makes a promise; if it is broken, the program may end. Made twice it is the same promise.
    Promises,
    /// Reports a fault, or prints, from the place where it stands.
    Reports,
    /// Looks at what is another thing at another time or place. Neither moved nor merged nor dropped.
    Observes,
    /// May end the program, or keep it from ending.
    Ends,
    /// Does what the compiler does not see. Neither moved nor merged nor dropped, and no access moves across it.
    Orders,
    /// Reads.
    Reads(Touched),
    /// Writes.
    Writes(Touched),
    /// Reads and writes at once, in the order that the attributes say.
    Updates(Touched),
}

/// One row of the op table: everything about an operation that does not depend on its attributes.
#[derive(Clone, Copy, Debug)]
pub struct OpRow {
    /// The group that it belongs to.
    pub group: &'static str,
    /// Its name in the text form.
    pub mnemonic: &'static str,
    /// Where it may occur.
    pub levels: Levels,
    /// Its operands in order.
    pub operands: &'static [OperandRow],
    /// Its results.
    pub results: Given,
    /// Where their elements come from.
    pub elements: Elements,
    /// What it costs.
    pub cost: Cost,
    /// Who must run it.
    pub threads: Threads,
    /// What it does with its regions.
    pub regions: Regions,
    /// What it does besides.
    pub does: &'static [Does],
    /// Names of its attributes.
    pub attributes: &'static [&'static str],
    /// What it does.
    pub doc: &'static str,
}

impl OpRow {
    /// The position of the operand of that name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.operands.iter().position(|operand| operand.name == name)
    }

    /// Whether there may be so many operands.
    pub fn admits(&self, operands: usize) -> bool {
        let least = self.operands.iter().filter(|operand| operand.given == Given::One).count();
        let many = self.operands.iter().any(|operand| operand.given == Given::Many);
        operands >= least && (many || operands <= self.operands.len())
    }

    /// The operands as documentation writes them: `(pointer [, mask [, other]])`.
    pub fn signature(&self) -> String {
        let (mut text, mut open) = (String::from("("), 0);
        for (index, operand) in self.operands.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match operand.given {
                Given::No => {}
                Given::One => text.push_str(&format!("{comma}{}", operand.name)),
                Given::Many => text.push_str(&format!("{comma}{}...", operand.name)),
                Given::Optional => {
                    text.push_str(&format!(" [{comma}{}", operand.name));
                    open += 1;
                }
            }
        }
        text.push_str(&"]".repeat(open));
        text.push(')');
        text
    }
}

/// The position of a name in a row, while the table is compiled: a name that is none of the operands' does not compile.
pub(crate) const fn position(operands: &[&str], name: &str) -> u8 {
    let mut at = 0;
    while at < operands.len() {
        let (own, other) = (operands[at].as_bytes(), name.as_bytes());
        let mut same = own.len() == other.len();
        let mut byte = 0;
        while same && byte < own.len() {
            same = own[byte] == other[byte];
            byte += 1;
        }
        if same {
            return at as u8;
        }
        at += 1;
    }
    panic!("no operand has that name");
}

/// A function on the parts of attributes that mention dtypes and dimensions. `None` fails.
pub trait AttrMap {
    /// A dtype.
    fn dt(&mut self, dt: Dt) -> Option<Dt>;
    /// A number.
    fn dim(&mut self, dim: &Dim) -> Option<Dim>;
    /// The shape of a tile, or a place in one.
    fn shape(&mut self, shape: &[Dim]) -> Option<Vec<Dim>>;
}

/// A type of attributes, by what of it binds.
pub trait Binds: Sized {
    /// The attribute with its dtypes and dimensions mapped.
    fn map(&self, map: &mut impl AttrMap) -> Option<Self>;
}

impl Binds for Dt {
    fn map(&self, map: &mut impl AttrMap) -> Option<Dt> {
        map.dt(*self)
    }
}

impl Binds for Dim {
    fn map(&self, map: &mut impl AttrMap) -> Option<Dim> {
        map.dim(self)
    }
}

impl Binds for Option<Dim> {
    fn map(&self, map: &mut impl AttrMap) -> Option<Option<Dim>> {
        match self {
            Some(dim) => map.dim(dim).map(Some),
            None => Some(None),
        }
    }
}

impl Binds for Vec<Dim> {
    fn map(&self, map: &mut impl AttrMap) -> Option<Vec<Dim>> {
        map.shape(self)
    }
}

/// Attributes in which nothing binds.
macro_rules! fixed {
    ($($ty:ty),* $(,)?) => {$(
        impl Binds for $ty {
            fn map(&self, _map: &mut impl AttrMap) -> Option<$ty> {
                Some(self.clone())
            }
        }
    )*};
}

fixed! {
    bool, u8, u32, String, Vec<u8>, Vec<GroupRole>, Literal, Option<DotInstruction>, AtomicOp, BinaryOp, CacheModifier, CmpOp,
    FloatIntFn, DotPrecision, EvictionPolicy, FenceKind, GroupPart, GroupRole, HintKind, CounterKind, LimitKind, MemOrder, MemScope, StoreMode, UnaryOp, Unroll, Option<ConstId>, Option<InlinePtx>, FactorFormat, ScaledFactors,
}

/// The type of an operand in a view.
macro_rules! given_ty {
    (One) => { crate::ir::ValueId };
    (Optional) => { Option<crate::ir::ValueId> };
    (Many) => { &'f [crate::ir::ValueId] };
}
pub(crate) use given_ty;

/// Takes an operand of a view from those that are left; `?` where a needed one is missing.
macro_rules! given_from {
    (One, $left:ident) => {{
        let (&first, rest) = $left.split_first()?;
        $left = rest;
        first
    }};
    (Optional, $left:ident) => {
        match $left.split_first() {
            Some((&first, rest)) => {
                $left = rest;
                Some(first)
            }
            None => None,
        }
    };
    (Many, $left:ident) => {
        std::mem::take(&mut $left)
    };
}
pub(crate) use given_from;

/// What the words of a row mean.
macro_rules! touched {
    (shared, $operands:expr) => {
        crate::ir::table::Touched::Shared
    };
    (barriers, $operands:expr) => {
        crate::ir::table::Touched::Barriers
    };
    ($operand:ident, $operands:expr) => {
        crate::ir::table::Touched::Buffer(crate::ir::table::position($operands, stringify!($operand)))
    };
}
pub(crate) use touched;

/// Declares a group of operations: an enum with one variant per operation, the rows, and a module of views, one struct per
/// operation with its operands by name.
///
/// A row is `Name = "mnemonic" @ LEVELS (operand: Given, ..) -> Given, Elements, Cost, Threads, Regions, [Does, ..]
/// { attribute: Type, .. };`. Nothing of it has a default but the attributes.
macro_rules! op_group {
    (
        $(#[doc = $gdoc:literal])*
        $Group:ident: $gname:literal, $Kind:ident, $views:ident;
        $( $(#[doc = $doc:literal])* $Var:ident = $mn:literal @ $lvl:ident
            ( $( $operand:ident : $given:ident ),* ) -> $results:ident,
            $elements:ident $(( $source:ident ))?, $cost:ident, $threads:ident, $regions:ident $(( $count:literal ))?,
            [ $( $does:ident $(( $touched:ident ))? ),* ]
            $( { $( $field:ident : $fty:ty ),* $(,)? } )? ; )*
    ) => {
        $(#[doc = $gdoc])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $Group {
            $( $(#[doc = $doc])* $Var $( { $(
                #[doc = concat!("The attribute `", stringify!($field), "`.")]
                $field: $fty
            ),* } )? ),*
        }

        impl From<$Group> for Op {
            fn from(op: $Group) -> Op {
                Op::$Kind(op)
            }
        }

        impl $Group {
            /// The rows of the op table of this group.
            pub const ROWS: &'static [crate::ir::table::OpRow] = &[ $( $views::$Var::ROW ),* ];

            /// The row of the op table.
            pub fn row(&self) -> &'static crate::ir::table::OpRow {
                match self { $( $Group::$Var { .. } => &$views::$Var::ROW ),* }
            }

            /// The name in the text form.
            pub fn mnemonic(&self) -> &'static str {
                self.row().mnemonic
            }

            /// The operation with the dtypes and dimensions of its attributes mapped; `None` if the map fails on one.
            pub fn map_attrs(&self, map: &mut impl crate::ir::table::AttrMap) -> Option<$Group> {
                let _ = &map;
                Some(match self { $( $Group::$Var $( { $( $field ),* } )? => {
                    $( $( let $field = crate::ir::table::Binds::map($field, map)?; )* )?
                    $Group::$Var $( { $( $field ),* } )?
                } ),* })
            }

            /// Writes the attributes as `name = value` pairs, in the table's order.
            pub fn print_attrs(&self, printer: &mut crate::text::AttrPrinter<'_>) {
                match self { $( $Group::$Var $( { $( $field ),* } )? => {
                    $( $( printer.attr(stringify!($field), $field); )* )?
                    let _ = &printer;
                } ),* }
            }

            /// The operation of that mnemonic with the attributes that the parser reads; `None` if it is of another group.
            pub fn parse(
                mnemonic: &str,
                parser: &mut crate::text::AttrParser<'_, '_>,
            ) -> Option<Result<$Group, crate::text::ParseError>> {
                match mnemonic {
                    $( $mn => {
                        fn read(
                            parser: &mut crate::text::AttrParser<'_, '_>,
                        ) -> Result<$Group, crate::text::ParseError> {
                            $( $( let $field: $fty = parser.attr(stringify!($field))?; )* )?
                            let _ = &parser;
                            Ok($Group::$Var $( { $( $field ),* } )?)
                        }
                        Some(read(parser))
                    } )*
                    _ => None,
                }
            }
        }

        #[doc = concat!("Views of [`", stringify!($Group), "`]: operands by name.")]
        pub mod $views {
            use super::*;

            $(
                #[doc = concat!("The operands of `", $mn, "`.")]
                #[derive(Clone, Copy, Debug)]
                pub struct $Var<'f> {
                    /// The operation.
                    pub operation: &'f Operation,
                    $(
                        #[doc = concat!("The operand `", stringify!($operand), "`.")]
                        pub $operand: crate::ir::table::given_ty!($given),
                    )*
                }

                impl<'f> $Var<'f> {
                    #[allow(unused)]
                    const OPERANDS: &'static [&'static str] = &[ $( stringify!($operand) ),* ];

                    /// The row of the op table.
                    pub const ROW: crate::ir::table::OpRow = crate::ir::table::OpRow {
                        group: $gname,
                        mnemonic: $mn,
                        levels: crate::ir::Levels::$lvl,
                        operands: &[ $( crate::ir::table::OperandRow {
                            name: stringify!($operand),
                            given: crate::ir::table::Given::$given,
                        } ),* ],
                        results: crate::ir::table::Given::$results,
                        elements: crate::ir::table::Elements::$elements
                            $( (crate::ir::table::position(Self::OPERANDS, stringify!($source))) )?,
                        cost: crate::ir::table::Cost::$cost,
                        threads: crate::ir::table::Threads::$threads,
                        regions: crate::ir::table::Regions::$regions $( ($count) )?,
                        does: &[ $( crate::ir::table::Does::$does
                            $( (crate::ir::table::touched!($touched, Self::OPERANDS)) )? ),* ],
                        attributes: &[ $( $( stringify!($field) ),* )? ],
                        doc: concat!($($doc),*),
                    };

                    #[doc = concat!("The view of an operation, if it is `", $mn, "` and has operands as the table says.")]
                    pub fn of(operation: &'f Operation) -> Option<$Var<'f>> {
                        if !matches!(&operation.op, Op::$Kind($Group::$Var { .. })) {
                            return None;
                        }
                        #[allow(unused_mut)]
                        let mut left = operation.operands.as_slice();
                        $( let $operand = crate::ir::table::given_from!($given, left); )*
                        left.is_empty().then_some($Var { operation, $( $operand ),* })
                    }
                }
            )*
        }
    };
}
pub(crate) use op_group;
