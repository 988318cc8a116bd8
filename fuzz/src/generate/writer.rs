//! Appends operations to a kernel, and keeps what is known of each value.

use kernel_core::ir::{
    BinaryOp, Builder, CacheModifier, CmpOp, ControlOp, CreateOp, DType, Dim, DotOp, Elements, ElementwiseOp,
    EvictionPolicy, FactorFormat, FloatFlags, Func, Level, Literal, MemoryOp, Op, ParamId, ParamKind, RegionId, Safety,
    ScaledFactors, ShapeOp, Span, TileOp, UnaryOp, ValueId,
};

use super::features::{Feature, Features};
use crate::case::{Input, Pattern};
use crate::facts::{self, Fact};
use crate::random::Random;

/// A buffer of which each program has a part of its own, to write and read as it likes.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The parameter.
    pub param: ParamId,
    /// Elements of one program's part: a power of two.
    pub part: i64,
    /// What its elements are at any time.
    pub fact: Fact,
    /// Their dtype.
    pub dtype: DType,
}

/// A kernel that grows.
pub struct Writer {
    /// Where choices come from.
    pub random: Random,
    /// The kernel.
    pub func: Func,
    /// Where operations go.
    pub region: RegionId,
    /// Values that later operations may take, latest last.
    pub pool: Vec<ValueId>,
    /// Recipes of the arguments so far.
    pub inputs: Vec<Input>,
    /// Scalar arguments so far.
    pub scalars: Vec<i32>,
    /// Programs of the launch.
    pub grid: u32,
    /// Counters of the loops around, outermost first.
    pub counters: Vec<ValueId>,
    /// How often at most what is appended now runs in a program.
    pub trips: f64,
    /// Buffers with a part per program.
    pub owned: Vec<Own>,
    /// The most elements of a tile.
    pub room: i64,
    /// Shapes that tiles have by preference.
    pub shapes: Vec<Vec<i64>>,
    /// What the kernel has.
    pub features: Features,
    facts: Vec<Option<Fact>>,
}

const AT: Span = Span::UNKNOWN;

/// Dimensions as the op table takes them.
pub fn dims(shape: &[i64]) -> Vec<Dim> {
    shape.iter().copied().map(Dim::from).collect()
}

impl Writer {
    /// An empty kernel.
    pub fn new(random: Random, grid: u32) -> Writer {
        let mut func = Func::new("fuzz", "fuzz.rs", Safety::Safe);
        func.level = Level::Bound;
        let region = func.body;
        Writer {
            random,
            func,
            region,
            pool: Vec::new(),
            inputs: Vec::new(),
            scalars: Vec::new(),
            grid,
            counters: Vec::new(),
            trips: 1.0,
            owned: Vec::new(),
            room: 512,
            shapes: Vec::new(),
            features: Features::default(),
            facts: Vec::new(),
        }
    }

    /// Notes that the kernel has something.
    pub fn has(&mut self, feature: Feature) {
        self.features.add(feature);
    }

    /// The dimensions of a value.
    pub fn shape(&self, value: ValueId) -> Vec<i64> {
        self.func.ty(value).dims().unwrap_or_default()
    }

    /// The dtype of a value that is no pointer.
    pub fn dtype(&self, value: ValueId) -> DType {
        self.func.ty(value).dtype().unwrap_or(DType::Bool)
    }

    /// What is known of a value.
    pub fn fact(&self, value: ValueId) -> Fact {
        let known = self.facts.get(value.index()).copied().flatten();
        known.unwrap_or_else(|| Fact::any(self.dtype(value)))
    }

    /// States what is known of a value.
    pub fn know(&mut self, value: ValueId, fact: Fact) {
        if self.facts.len() <= value.index() {
            self.facts.resize(value.index() + 1, None);
        }
        self.facts[value.index()] = Some(fact);
    }

    /// Makes a value available to later operations.
    pub fn keep(&mut self, value: ValueId) -> ValueId {
        self.pool.push(value);
        value
    }

    /// Appends an operation whatever is known of its operands; its results, if it fits them.
    pub fn raw(&mut self, op: impl Into<Op>, operands: &[ValueId], regions: &[RegionId]) -> Option<Vec<ValueId>> {
        let mut builder = Builder::new(&mut self.func, self.region);
        let id = builder.op(op, operands, regions, AT).ok()?;
        Some(self.func.op(id).results.clone())
    }

    /// Appends an operation with one result; `None` if it does not fit the operands, or its bits would not be fixed.
    pub fn emit(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Option<ValueId> {
        let op = op.into();
        let fact = self.result_fact(&op, operands)?;
        let exact = |fact: &Fact| fact.step.is_some() && !fact.special;
        let all_exact = exact(&fact) && operands.iter().all(|&o| exact(&self.fact(o)));
        let arithmetic = op.is_elementwise() && self.dtype(operands[0]).is_float();
        let contract = arithmetic && all_exact && self.random.chance(50);
        let mut builder = Builder::new(&mut self.func, self.region);
        builder.flags = FloatFlags { contract };
        let value = builder.one(op, operands, AT).ok()?;
        self.know(value, fact);
        Some(value)
    }

    /// What is known of the result of an operation without regions.
    fn result_fact(&self, op: &Op, operands: &[ValueId]) -> Option<Fact> {
        let of = |index: usize| self.fact(operands[index]);
        let dtype = operands.first().map_or(DType::I32, |&first| self.dtype(first));
        match op.elements() {
            Elements::Moved(from) | Elements::Repeated(from) => return Some(of(usize::from(from))),
            Elements::Joined => return Some((1..operands.len()).fold(of(0), |fact, i| fact.hull(of(i)))),
            Elements::Made | Elements::Each | Elements::Yielded | Elements::Other => {}
        }
        Some(match op {
            Op::Create(CreateOp::Const { value, dtype }) => constant(*value, dtype.known()?),
            Op::Create(CreateOp::Arange { lo, hi }) => {
                Fact::exact(lo.as_const()? as f64, hi.as_const()? as f64 - 1.0, 0)
            }
            Op::Create(CreateOp::ProgramId { .. }) => Fact::exact(0.0, f64::from(self.grid) - 1.0, 0),
            Op::Create(CreateOp::NumPrograms { .. }) => Fact::exact(1.0, f64::from(self.grid), 0),
            Op::Create(
                CreateOp::Splat { .. } | CreateOp::ConstExpr { .. } | CreateOp::Limit { .. } | CreateOp::Counter { .. },
            ) => return None,
            Op::Elementwise(ElementwiseOp::Unary { op }) => facts::unary(*op, of(0), dtype)?,
            Op::Elementwise(ElementwiseOp::Binary { op }) => facts::binary(*op, of(0), of(1), dtype)?,
            Op::Elementwise(ElementwiseOp::FloatInt { .. }) => return None,
            Op::Elementwise(ElementwiseOp::Compare { .. }) => Fact::exact(0.0, 1.0, 0),
            Op::Elementwise(ElementwiseOp::Select) => of(1).hull(of(2)),
            Op::Elementwise(ElementwiseOp::Fma) => {
                let product = facts::binary(BinaryOp::Mul, of(0), of(1), DType::F64)?;
                facts::binary(BinaryOp::Add, product, of(2), dtype)?
            }
            Op::Elementwise(ElementwiseOp::Cast { to }) => facts::cast(of(0), dtype, to.known()?),
            Op::Elementwise(ElementwiseOp::Bitcast { to }) => {
                // The bits of a NaN are open, and so is the sign of some zeros.
                if (of(0).special || of(0).has_open_zero()) && dtype.is_float() {
                    return None;
                }
                Fact::any(to.known()?)
            }
            Op::Memory(MemoryOp::AddPtr) => of(0),
            Op::Dot(DotOp::Dot { .. }) => self.product_fact(operands)?,
            Op::Dot(DotOp::DotScaled { a_format, b_format, scaled }) => {
                self.scaled_fact([*a_format, *b_format], *scaled, operands)?
            }
            Op::Tile(TileOp::Gather { .. } | TileOp::Sort { indices: false, .. }) => of(0),
            Op::Tile(TileOp::Scatter { .. }) => of(0).hull(of(2)),
            Op::Tile(TileOp::Histogram { .. }) => {
                Fact::exact(0.0, self.shape(operands[0]).iter().product::<i64>() as f64, 0)
            }
            // The order of zeros depends on their signs.
            Op::Tile(TileOp::Sort { .. }) if of(0).has_open_zero() => return None,
            Op::Tile(TileOp::Sort { axis, .. }) => {
                Fact::exact(0.0, self.shape(operands[0])[usize::from(*axis)] as f64 - 1.0, 0)
            }
            Op::Shape(_) | Op::Memory(_) | Op::Desc(_) | Op::Control(_) | Op::Gpu(_) => return None,
        })
    }

    /// What is known of a matrix product: nothing may round.
    fn product_fact(&self, operands: &[ValueId]) -> Option<Fact> {
        let [a, b, acc] = [0, 1, 2].map(|i| self.fact(operands[i]));
        let depth = *self.shape(operands[0]).last()?;
        sum_of_products(a, b, acc, depth as f64, self.dtype(operands[2]))
    }

    /// The same of factors with scales, which must not round where they are multiplied by them.
    fn scaled_fact(&self, formats: [FactorFormat; 2], scaled: ScaledFactors, operands: &[ValueId]) -> Option<Fact> {
        let scales = scaled.pair(&operands[3..]);
        let factor = |i: usize| {
            let own = match formats[i] {
                FactorFormat::Own => self.fact(operands[i]),
                FactorFormat::E2m1 => Fact::exact(-6.0, 6.0, -1).with_open_zero(),
            };
            let Some(scale) = scales[i].map(|scale| self.fact(scale)) else { return Some(own) };
            let near = |bound: f64| (bound - 127.0).abs() < 8.0;
            let [low, high] = [scale.low, scale.high].map(|bound| near(bound).then_some(bound as i32 - 127));
            let most = own.magnitude() * 2f64.powi(high?);
            let fact = Fact { low: -most, high: most, step: Some(own.step? + low?), ..own };
            // The bits of bf16.
            Fact { special: false, ..fact }.needs_at_most(8).then_some(fact)
        };
        let depth = *self.shape(operands[0]).last()? * formats[0].pack();
        sum_of_products(factor(0)?, factor(1)?, self.fact(operands[2]), depth as f64, DType::F32)
    }

    /// A scalar constant.
    pub fn constant(&mut self, value: f64, dtype: DType) -> ValueId {
        let literal = match dtype {
            DType::Bool => Literal::Bool(value != 0.0),
            _ if dtype.is_float() => Literal::float(value),
            _ => Literal::Int(value as i128),
        };
        self.emit(Op::constant(literal, dtype), &[]).expect("a constant takes nothing")
    }

    /// An i32 constant.
    pub fn int(&mut self, value: i64) -> ValueId {
        self.constant(value as f64, DType::I32)
    }

    /// A scalar repeated to a shape; the scalar if that is empty.
    pub fn splat(&mut self, value: ValueId, shape: &[i64]) -> ValueId {
        if shape.is_empty() {
            return value;
        }
        self.emit(CreateOp::Splat { shape: dims(shape) }, &[value]).expect("a splat of a scalar")
    }

    /// A constant repeated to a shape.
    pub fn filled(&mut self, value: f64, dtype: DType, shape: &[i64]) -> ValueId {
        let value = self.constant(value, dtype);
        self.splat(value, shape)
    }

    /// A binary operation.
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Option<ValueId> {
        self.emit(Op::binary(op), &[a, b])
    }

    /// A unary operation.
    pub fn unary(&mut self, op: UnaryOp, a: ValueId) -> Option<ValueId> {
        self.emit(Op::unary(op), &[a])
    }

    /// A comparison.
    pub fn compare(&mut self, op: CmpOp, a: ValueId, b: ValueId) -> Option<ValueId> {
        self.emit(Op::compare(op), &[a, b])
    }

    /// A conversion; the value itself if it has the dtype.
    pub fn cast(&mut self, value: ValueId, to: DType) -> ValueId {
        if self.dtype(value) == to {
            return value;
        }
        self.emit(Op::cast(to), &[value]).expect("a conversion of numbers")
    }

    /// A selection.
    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Option<ValueId> {
        self.emit(ElementwiseOp::Select, &[condition, a, b])
    }

    /// The number of this program.
    pub fn program(&mut self) -> ValueId {
        self.emit(CreateOp::ProgramId { axis: 0 }, &[]).expect("a program has a number")
    }

    /// A scalar argument with that value.
    pub fn scalar(&mut self, value: i32) -> ValueId {
        let kind = ParamKind::Scalar(DType::I32.into());
        let id = self.func.add_param(&format!("n{}", self.scalars.len()), kind, AT);
        self.scalars.push(value);
        let argument = self.func.param(id).value;
        self.know(argument, Fact::exact(f64::from(value), f64::from(value), 0));
        argument
    }

    /// A buffer argument.
    pub fn buffer(&mut self, dtype: DType, mutable: bool, input: Input) -> ParamId {
        let kind = ParamKind::Ptr { dt: dtype.into(), mutable };
        let id = self.func.add_param(&format!("b{}", self.inputs.len()), kind, AT);
        self.inputs.push(input);
        // Buffers of the runtime and the emulator begin at multiples of 256 bytes.
        if self.random.chance(70) {
            self.func.params[id.index()].facts.divisible_by = 16;
        }
        id
    }

    /// A descriptor argument with these blocks.
    pub fn descriptor(&mut self, dtype: DType, block: &[i64], mutable: bool, input: Input) -> ValueId {
        let kind = ParamKind::Desc { dt: dtype.into(), block: dims(block), mutable };
        let id = self.func.add_param(&format!("b{}", self.inputs.len()), kind, AT);
        let param = &mut self.func.params[id.index()];
        param.facts.divisible_by = 16;
        if let Some(tensor) = &input.tensor {
            let (_, outer) = tensor.strides.split_last().unwrap_or((&1, &[]));
            let shared = outer.iter().map(|stride| stride.trailing_zeros()).min().unwrap_or(4).min(4);
            param.facts.stride_divisible_by = 1 << shared;
            param.facts.pads_with_nan = tensor.pads_with_nan;
        }
        self.inputs.push(input);
        self.func.param(id).value
    }

    /// Pointers into a buffer; `offsets` are a tile or a scalar.
    pub fn pointers(&mut self, param: ParamId, offsets: ValueId) -> ValueId {
        let (start, shape) = (self.func.param(param).value, self.shape(offsets));
        let start = self.repeated(start, &shape);
        self.moved(start, offsets)
    }

    /// A pointer repeated to a shape; the pointer if that is empty.
    pub fn repeated(&mut self, pointer: ValueId, shape: &[i64]) -> ValueId {
        match shape.is_empty() {
            true => pointer,
            false => {
                self.raw(CreateOp::Splat { shape: dims(shape) }, &[pointer], &[]).expect("a splat of a pointer")[0]
            }
        }
    }

    /// Pointers moved on.
    pub fn moved(&mut self, pointers: ValueId, offsets: ValueId) -> ValueId {
        self.raw(MemoryOp::AddPtr, &[pointers, offsets], &[]).expect("offsets of the pointers' shape")[0]
    }

    /// Loads with what is known of the buffer.
    pub fn load(&mut self, pointers: ValueId, mask: Option<ValueId>, other: Option<ValueId>, fact: Fact) -> ValueId {
        let mut operands = vec![pointers];
        operands.extend(mask);
        operands.extend(other);
        let cache = self.random.pick(&[CacheModifier::Default, CacheModifier::Default, CacheModifier::Cg]);
        let eviction = self.random.pick(&[EvictionPolicy::Normal, EvictionPolicy::Normal, EvictionPolicy::First]);
        let value = self.raw(MemoryOp::Load { cache, eviction }, &operands, &[]).expect("operands of a load")[0];
        let zero = Fact::exact(0.0, 0.0, 0);
        let left_out = other.map_or(zero, |other| self.fact(other));
        // Lanes out of bounds read zero.
        let all = if mask.is_some() { fact.hull(left_out).hull(zero) } else { fact.hull(zero) };
        self.know(value, all);
        value
    }

    /// Stores a tile or a scalar.
    pub fn store(&mut self, pointers: ValueId, value: ValueId, mask: Option<ValueId>) {
        let mut operands = vec![pointers, value];
        operands.extend(mask);
        let (cache, eviction) = (CacheModifier::Default, EvictionPolicy::Normal);
        self.raw(MemoryOp::Store { cache, eviction }, &operands, &[]).expect("operands of a store");
    }

    /// Builds in a region; what it makes available is gone afterwards.
    pub fn inside<R>(&mut self, region: RegionId, build: impl FnOnce(&mut Writer) -> R) -> R {
        let (outer, known) = (std::mem::replace(&mut self.region, region), self.pool.len());
        let result = build(self);
        self.pool.truncate(known);
        self.region = outer;
        result
    }

    /// Ends a region.
    pub fn yields(&mut self, values: &[ValueId]) {
        self.raw(ControlOp::Yield, values, &[]).expect("values to yield");
    }

    /// One of the available values that fits, late ones more often.
    pub fn find(&mut self, fits: impl Fn(&Writer, ValueId) -> bool) -> Option<ValueId> {
        let all: Vec<ValueId> = self.pool.iter().copied().filter(|&value| fits(self, value)).collect();
        if all.is_empty() {
            return None;
        }
        let (a, b) = (self.random.below(all.len()), self.random.below(all.len()));
        Some(all[a.max(b)])
    }

    /// The value as an exact float of at most `bits` bits in `low..=high`, by a few operations where it is not one.
    pub fn small(&mut self, value: ValueId, dtype: DType) -> ValueId {
        let goal = if dtype.is_float() { Fact::exact(-4.0, 4.0, 0).with_open_zero() } else { Fact::any(dtype) };
        if self.dtype(value) == dtype && self.fact(value).within(goal) {
            return value;
        }
        let shape = self.shape(value);
        if !dtype.is_float() {
            return self.cast(value, dtype);
        }
        let fact = self.fact(value);
        if fact.step.is_some_and(|step| step >= 0) && !fact.special && self.dtype(value).is_float() {
            // Without leaving the registers' dtype, as a softmax would.
            let (low, high) = self.random.pick(&[(-2.0, 2.0), (0.0, 3.0), (-1.0, 1.0)]);
            let own = self.dtype(value);
            let (low, high) = (self.filled(low, own, &shape), self.filled(high, own, &shape));
            let clamped = self.binary(BinaryOp::Max, value, low).expect("floats");
            let clamped = self.binary(BinaryOp::Min, clamped, high).expect("floats");
            return self.cast(clamped, dtype);
        }
        let whole = self.cast(value, DType::I32);
        let (three, two) = (self.filled(3.0, DType::I32, &shape), self.filled(2.0, DType::I32, &shape));
        let bits = self.binary(BinaryOp::And, whole, three).expect("integers");
        // A mask of three leaves 0 to 3, whatever the sign was.
        self.know(bits, Fact::exact(0.0, 3.0, 0));
        let centred = self.binary(BinaryOp::Sub, bits, two).expect("integers");
        self.cast(centred, dtype)
    }

    /// A new input buffer with one of a few patterns in a range that its dtype holds exactly.
    pub fn recipe(&mut self, dtype: DType, len: i64) -> (Input, Fact) {
        let pattern = self.random.pick(&[Pattern::Noise, Pattern::Noise, Pattern::Noise, Pattern::Ramp, Pattern::Peak]);
        let (range, step) = match dtype {
            DType::Bool => ((0, 1), 0),
            _ if dtype.is_float() => {
                (self.random.pick(&[(-3, 3), (-2, 2), (0, 3), (-1, 4)]), self.random.pick(&[0, 0, 0, -1]))
            }
            _ => {
                let low = dtype.int_min().max(-1000) as i64;
                let wide = (low, dtype.int_max().min(1000) as i64);
                (self.random.pick(&[wide, (low.max(-2), 3), (0, 7)]), 0)
            }
        };
        let scale = 2f64.powi(step);
        let fact = Fact::exact(range.0 as f64 * scale, range.1 as f64 * scale, step);
        let salt = self.random.bits() >> 40;
        (Input { pattern, range, step, salt, len: len as usize, tensor: None, ulps: None }, fact)
    }

    /// A value in another shape with the same number of elements.
    pub fn reshaped(&mut self, value: ValueId, shape: &[i64]) -> Option<ValueId> {
        self.emit(ShapeOp::Reshape { shape: dims(shape) }, &[value])
    }
}

/// What is known of a literal.
fn constant(value: Literal, dtype: DType) -> Fact {
    match value {
        Literal::Bool(value) => Fact::exact(f64::from(u8::from(value)), f64::from(u8::from(value)), 0),
        Literal::Int(value) => Fact::exact(value as f64, value as f64, 0),
        Literal::Float(bits) => {
            let value = f64::from_bits(bits);
            if !value.is_finite() {
                return Fact::any(dtype);
            }
            let step = (-16..16).rev().find(|&step| (value * 2f64.powi(-step)).fract() == 0.0);
            Fact { low: value, high: value, step, special: false, open_zero: false }
        }
    }
}

/// What is known of sums of so many products, onto an accumulator: nothing may round.
fn sum_of_products(a: Fact, b: Fact, acc: Fact, depth: f64, dtype: DType) -> Option<Fact> {
    let product = Fact::exact(0.0, 0.0, 0).hull(Fact {
        low: -a.magnitude() * b.magnitude() * depth,
        high: a.magnitude() * b.magnitude() * depth,
        step: Some(a.step? + b.step?),
        special: a.special || b.special || acc.special,
        open_zero: true,
    });
    let sum = Fact {
        low: product.low + acc.low,
        high: product.high + acc.high,
        step: product.step.zip(acc.step).map(|(a, b)| a.min(b)),
        special: product.special,
        open_zero: true,
    };
    sum.summed(dtype)
}
