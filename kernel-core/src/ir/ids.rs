//! Identifiers of the parts of a kernel.

macro_rules! ids {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(u32);

        impl $name {
            /// The identifier with that index.
            pub fn new(index: u32) -> $name {
                $name(index)
            }

            /// The index into the arena or list that this identifies an entry of.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A value: a block argument or a result of an operation.
    ValueId;
    /// An operation.
    OpId;
    /// A region.
    RegionId;
    /// A parameter of the kernel, by position.
    ParamId;
    /// A constexpr (const generic) of the kernel, by position.
    ConstId;
    /// A dtype parameter of the kernel, by position.
    DtypeId;
    /// A distributed layout in the kernel's layout table (placed level).
    LayoutId;
    /// A bank: registers with names of their own that hold one accumulator at a time (placed level).
    BankId;
}
