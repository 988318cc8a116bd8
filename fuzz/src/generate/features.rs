//! What generated kernels have, counted so that a campaign can show what it ran.

macro_rules! features {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal;)*) => {
        /// Something that a kernel may have.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Feature {
            $($(#[doc = $doc])* $name,)*
        }

        impl Feature {
            /// Every feature.
            pub const ALL: &[(Feature, &str)] = &[$((Feature::$name, $text),)*];

            /// What summaries call it.
            pub fn name(self) -> &'static str {
                Feature::ALL[self as usize].1
            }

            /// The feature that summaries call so.
            pub fn named(text: &str) -> Option<Feature> {
                Feature::ALL.iter().find(|(_, name)| *name == text).map(|(feature, _)| *feature)
            }
        }
    };
}

features! {
    /// A matrix product.
    Product = "product";
    /// A matrix product inside a loop.
    ProductInLoop = "product in a loop";
    /// A matrix product inside an `if`.
    ProductInIf = "product in an `if`";
    /// A product of a product.
    Chained = "chained products";
    /// A factor that a product before the loop has computed.
    FactorBeforeLoop = "factor computed before the loop";
    /// Programs that take tile after tile.
    Persistent = "persistent";
    /// An accumulator that is scaled in each trip.
    Rescaled = "rescaled accumulator";
    /// A factor that the loop around its product does not change.
    Kept = "factor from before its loop";
    /// A factor or a score under a mask.
    MaskedProduct = "masked product";
    /// A factor in a loop whose place in memory is loaded there.
    Indirect = "factor by a loaded number";
    /// A product whose shape and target give `wgmma`.
    Wgmma = "wgmma";
    /// A product of other shapes or targets.
    OtherProduct = "mma.sync or scalar product";
    /// A product of factors with scales.
    ScaledProduct = "scaled product";
    /// A `for`.
    For = "for";
    /// A loop in a loop.
    Nested = "nested loops";
    /// A loop that does not run.
    NoTrips = "no trips";
    /// A loop that runs backwards.
    Reverse = "reverse loop";
    /// A loop with tiles that trips hand on.
    Carried = "carried tiles";
    /// A loop that asks for a pipeline.
    Stages = "stages";
    /// A loop that asks to be divided between warps.
    Specialized = "warp_specialize";
    /// A loop that is unrolled.
    Unrolled = "unrolled";
    /// A `while`.
    While = "while";
    /// An `if`.
    If = "if";
    /// An `if` that not all programs or trips take.
    MixedIf = "mixed `if`";
    /// A reduction.
    Reduce = "reduce";
    /// A reduction or scan of several tiles.
    Tuple = "tuple reduce or scan";
    /// A maximum with its place.
    Argmax = "argmax";
    /// A scan.
    Scan = "scan";
    /// A scan from the end.
    ReverseScan = "reverse scan";
    /// A scan whose combination does not commute.
    Ordered = "scan that does not commute";
    /// A shape operation.
    Shape = "shape operation";
    /// A tile sorted, counted, or with elements by index.
    Tile = "operation on a whole tile";
    /// A region for each element.
    Map = "region for single elements";
    /// A load whose addresses are data.
    Gather = "gather";
    /// Loads at offsets of few bits, which wrap.
    NarrowOffsets = "narrow offsets";
    /// A load with a mask.
    MaskedLoad = "masked load";
    /// A load of one run of offsets or another.
    TwoRuns = "select of two runs";
    /// Stores and loads through one pointer.
    InPlace = "in place";
    /// An atomic whose result nobody takes.
    Atomic = "atomic";
    /// An atomic whose result is used.
    AtomicUsed = "atomic with a result";
    /// A descriptor.
    Descriptor = "descriptor";
    /// A block that reaches beyond its tensor.
    Clipped = "clipped block";
    /// A block that begins at any column.
    Column = "block at any column";
    /// A block that meets the sums of a product.
    Met = "block beside sums";
    /// Several blocks stored to one tensor.
    Stores = "several stores to a tensor";
    /// An elementary function.
    Rough = "elementary function";
    /// An access out of bounds.
    OutOfBounds = "out of bounds";
    /// 8 warps or more.
    ManyWarps = "8 warps or more";
}

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(u64);

impl Features {
    /// The set of these bits, one per feature in the order of [`Feature::ALL`].
    pub fn from_bits(bits: u64) -> Features {
        Features(bits)
    }

    /// One bit per feature, in the order of [`Feature::ALL`].
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Adds one.
    pub fn add(&mut self, feature: Feature) {
        self.0 |= 1 << feature as u64;
    }

    /// Whether it is there.
    pub fn contains(self, feature: Feature) -> bool {
        self.0 >> feature as u64 & 1 == 1
    }
}
