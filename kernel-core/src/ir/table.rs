//! The macro behind the op table: from one declaration follow the enum, the mnemonics, the levels,
//! the printer and parser of the attributes, and the documentation.

/// Levels at which an operation may occur, as a bit set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels(pub u8);

impl Levels {
    /// Generic, bound and placed.
    pub const ALL: Levels = Levels(7);
    /// Only before `bind`.
    pub const GENERIC: Levels = Levels(1);
    /// After `bind`: bound and placed.
    pub const LOWERED: Levels = Levels(6);
    /// Only after layouts are assigned.
    pub const PLACED: Levels = Levels(4);

    /// Whether `level` is in the set.
    pub fn contains(self, level: super::func::Level) -> bool {
        self.0 & (1 << level as u8) != 0
    }
}

/// One row of the op table, for documentation and tests.
#[derive(Clone, Copy, Debug)]
pub struct OpRow {
    /// The group that it belongs to.
    pub group: &'static str,
    /// Its name in the text form.
    pub mnemonic: &'static str,
    /// Where it may occur.
    pub levels: Levels,
    /// Names of its attributes.
    pub attributes: &'static [&'static str],
    /// What it does.
    pub doc: &'static str,
}

/// Declares a group of operations: an enum with one variant per operation.
macro_rules! op_group {
    (
        $(#[doc = $gdoc:literal])*
        $Group:ident: $gname:literal;
        $( $(#[doc = $doc:literal])* $Var:ident = $mn:literal @ $lvl:ident $( { $( $field:ident : $fty:ty ),* $(,)? } )? ; )*
    ) => {
        $(#[doc = $gdoc])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $Group {
            $( $(#[doc = $doc])* $Var $( { $(
                #[doc = concat!("The attribute `", stringify!($field), "`.")]
                $field: $fty
            ),* } )? ),*
        }

        impl $Group {
            /// The rows of the op table of this group.
            pub const ROWS: &'static [crate::ir::table::OpRow] = &[ $( crate::ir::table::OpRow {
                group: $gname,
                mnemonic: $mn,
                levels: crate::ir::table::Levels::$lvl,
                attributes: &[ $( $( stringify!($field) ),* )? ],
                doc: concat!($($doc),*),
            } ),* ];

            /// The name in the text form.
            pub fn mnemonic(&self) -> &'static str {
                match self { $( $Group::$Var $( { $( $field: _ ),* } )? => $mn ),* }
            }

            /// Where the operation may occur.
            pub fn levels(&self) -> crate::ir::table::Levels {
                match self { $( $Group::$Var $( { $( $field: _ ),* } )? => crate::ir::table::Levels::$lvl ),* }
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
    };
}
pub(crate) use op_group;

/// Declares an enum of names that serves as an attribute or as a group of operations without attributes. After `..` one
/// more variant may hold the names of another such enum.
macro_rules! name_enum {
    (@all $Enum:ident [$( $Var:ident )*]) => { [ $( $Enum::$Var ),* ] };
    (@all $Enum:ident [$( $Var:ident )*] $Rest:ident $Inner:ident) => {{
        const OWN: &[$Enum] = &[ $( $Enum::$Var ),* ];
        let mut all = [OWN[0]; OWN.len() + $Inner::ALL.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = if at < OWN.len() { OWN[at] } else { $Enum::$Rest($Inner::ALL[at - OWN.len()]) };
            at += 1;
        }
        all
    }};
    (
        $(#[doc = $gdoc:literal])*
        $Enum:ident;
        $( $(#[doc = $doc:literal])* $Var:ident = $mn:literal ; )*
        $( .. $(#[doc = $rdoc:literal])* $Rest:ident($Inner:ident) ; )?
    ) => {
        $(#[doc = $gdoc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum $Enum { $( $(#[doc = $doc])* $Var, )* $( $(#[doc = $rdoc])* $Rest($Inner), )? }

        impl $Enum {
            /// Every one, in the order of the table.
            pub const ALL: &'static [$Enum] = &name_enum!(@all $Enum [$( $Var )*] $( $Rest $Inner )?);

            /// The name in the text form.
            pub fn name(self) -> &'static str {
                match self { $( $Enum::$Var => $mn, )* $( $Enum::$Rest(inner) => $Inner::name(inner), )? }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<$Enum> {
                match name {
                    $( $mn => Some($Enum::$Var), )*
                    _ => None $( .or_else(|| $Inner::from_name(name).map($Enum::$Rest)) )?,
                }
            }

            /// What it does.
            pub fn doc(self) -> &'static str {
                match self { $( $Enum::$Var => concat!($($doc),*), )* $( $Enum::$Rest(inner) => $Inner::doc(inner), )? }
            }
        }
    };
}
pub(crate) use name_enum;
