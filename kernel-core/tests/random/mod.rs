//! Random bound kernels, valid by construction.
//!
//! A kernel follows from a list of choices, so that proptest can shrink a failing one by shrinking the list.
//! Parameters: `x` (64 i32, read), `ints` (i64) and `floats` (f32) to store to, a scalar `n`. At the end the latest
//! values are stored, each in a slot of its own; no access leaves its buffer.

use kernel_core::ir::{
    BinaryOp, Bound, Builder, CacheModifier, CmpOp, ControlOp, CreateOp, DType, Dim, ElementwiseOp, EvictionPolicy,
    FloatFlags, Func, Level, Literal, MemoryOp, Op, ParamKind, RegionId, Safety, ShapeOp, Span, Ty, UnaryOp, Unroll,
    ValueId,
};

/// Elements that one slot of the output holds; no tile is larger.
pub const SLOT: usize = 512;
/// Slots of each output: those of the end, then one that stores in the middle share.
pub const SLOTS: usize = 13;
/// Elements of `x`.
pub const INPUT: usize = 64;

const DTYPES: [DType; 5] = [DType::I32, DType::U8, DType::I64, DType::F32, DType::Bool];
const MAX_DEPTH: u32 = 3;

/// The kernel that follows from the choices.
pub fn kernel(choices: &[u32]) -> Bound {
    let mut func = Func::new("random", "random.rs", Safety::Safe);
    func.level = Level::Bound;
    let buffer = |dt: DType, mutable| ParamKind::Ptr { dt: dt.into(), mutable };
    let unknown = Span::UNKNOWN;
    let x = func.add_param("x", buffer(DType::I32, false), unknown);
    let ints = func.add_param("ints", buffer(DType::I64, true), unknown);
    let floats = func.add_param("floats", buffer(DType::F32, true), unknown);
    let n = func.add_param("n", ParamKind::Scalar(DType::I32.into()), unknown);
    let [x, ints, floats, n] = [x, ints, floats, n].map(|p| func.param(p).value);
    let region = func.body;
    let mut generator = Generator { choices, at: 0, func, region, pool: vec![n], x, ints, floats };
    generator.literal(DType::Bool);
    while generator.at < choices.len() {
        generator.step(0);
    }
    generator.store_all();
    generator.op(ControlOp::Return, &[], &[]);
    Bound::new(generator.func).expect("the kernel is bound")
}

struct Generator<'c> {
    choices: &'c [u32],
    at: usize,
    func: Func,
    region: RegionId,
    /// Values that are visible here.
    pool: Vec<ValueId>,
    x: ValueId,
    ints: ValueId,
    floats: ValueId,
}

impl Generator<'_> {
    fn below(&mut self, n: usize) -> usize {
        let choice = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        choice as usize % n
    }

    /// Appends an operation; its results join the pool. `None` if the operands do not fit it.
    fn op(&mut self, op: impl Into<Op>, operands: &[ValueId], regions: &[RegionId]) -> Option<ValueId> {
        let mut builder = Builder::new(&mut self.func, self.region);
        builder.flags = FloatFlags { contract: self.at.is_multiple_of(3) };
        let id = builder.op(op, operands, regions, Span::UNKNOWN).ok()?;
        let results = self.func.op(id).results.clone();
        let large = results.iter().any(|&v| self.func.ty(v).numel().is_none_or(|n| n > SLOT as i64));
        assert!(!large, "a tile is too large");
        self.pool.extend(&results);
        results.first().copied()
    }

    fn any(&mut self) -> ValueId {
        // Late values more often than early ones.
        let (a, b) = (self.below(self.pool.len()), self.below(self.pool.len()));
        self.pool[a.max(b)]
    }

    /// A value with that property; the latest, the one before it, ..
    fn find(&mut self, fits: impl Fn(&Ty) -> bool) -> Option<ValueId> {
        let candidates: Vec<ValueId> = self.pool.iter().copied().filter(|&v| fits(self.func.ty(v))).collect();
        if candidates.is_empty() { None } else { Some(candidates[self.below(candidates.len())]) }
    }

    fn like(&mut self, value: ValueId) -> ValueId {
        let ty = self.func.ty(value).clone();
        self.find(|other| *other == ty).unwrap_or(value)
    }

    /// An integer or float, on which most operations are defined.
    fn number(&mut self) -> ValueId {
        self.find(|ty| ty.dtype().is_some_and(|d| d != DType::Bool)).unwrap_or(self.pool[0])
    }

    fn literal(&mut self, dtype: DType) -> ValueId {
        let float = [0.0, -0.0, 1.0, -2.5, f64::INFINITY, f64::NAN, 3e38f32.into(), 0.5][self.below(8)];
        let int = [0, 1, -1, 2, 5, 31, 127, i128::from(i64::MIN)][self.below(8)];
        let value = match dtype {
            DType::Bool => Literal::Bool(int > 0),
            _ if dtype.is_float() => Literal::float(float),
            _ => Literal::Int(kernel_core::num::wrap(int, dtype)),
        };
        self.op(Op::constant(value, dtype), &[], &[]).expect("a constant has no operands")
    }

    fn step(&mut self, depth: u32) {
        match self.below(if depth < MAX_DEPTH { 24 } else { 20 }) {
            0 => {
                let dtype = DTYPES[self.below(5)];
                self.literal(dtype);
            }
            1 => drop(self.splat()),
            2 => {
                let (op, a) = (UnaryOp::ALL[self.below(5)], self.any());
                self.op(Op::unary(op), &[a], &[]);
            }
            3 | 4 | 14..=16 => {
                let (op, a) = (BinaryOp::ALL[self.below(BinaryOp::ALL.len())], self.number());
                let b = self.like(a);
                self.op(Op::binary(op), &[a, b], &[]);
            }
            5 | 17 => {
                let (op, a) = (CmpOp::ALL[self.below(6)], self.number());
                let b = self.like(a);
                self.op(Op::compare(op), &[a, b], &[]);
            }
            6 => self.select(),
            7 => {
                let (to, a) = (DTYPES[self.below(5)], self.any());
                self.op(Op::cast(to), &[a], &[]);
            }
            8 => {
                let lo = self.below(5) as i64 - 2;
                self.op(CreateOp::Arange { lo: lo.into(), hi: (lo + 16).into() }, &[], &[]);
            }
            9 | 10 => self.shape(),
            11 | 18 => self.load(),
            12 | 19 => self.reduce(),
            13 => self.store(),
            20 => self.branch(depth),
            21 => self.count(depth),
            _ => self.repeat(depth),
        }
    }

    fn splat(&mut self) -> Option<ValueId> {
        let scalar = self.find(Ty::is_scalar)?;
        let shape = [vec![16], vec![4, 8], vec![4, 1], vec![1, 8]][self.below(4)].clone();
        self.op(CreateOp::Splat { shape: dims(&shape) }, &[scalar], &[])
    }

    fn select(&mut self) {
        let bool_ty = |ty: &Ty| ty.dtype() == Some(DType::Bool);
        let Some(condition) = self.find(bool_ty) else { return };
        let shape = self.func.ty(condition).shape.clone();
        let Some(a) = self.find(|ty| ty.shape == shape) else { return };
        let b = self.like(a);
        self.op(ElementwiseOp::Select, &[condition, a, b], &[]);
    }

    fn shape(&mut self) {
        let Some(tile) = self.find(|ty| !ty.is_scalar()) else { return };
        let shape = self.func.ty(tile).dims().expect("a bound tile");
        let numel: i64 = shape.iter().product();
        let op = match self.below(4) {
            0 if shape.len() < 3 => ShapeOp::ExpandDims { axis: self.below(shape.len() + 1) as u8 },
            1 => {
                let mut room = SLOT as i64 / numel;
                let grow = |d: i64| {
                    let factor = if d == 1 { room.min(8) } else { 1 };
                    room /= factor;
                    d * factor
                };
                ShapeOp::Broadcast { shape: shape.into_iter().map(grow).map(Dim::from).collect() }
            }
            2 => {
                let all = [vec![numel], vec![1, numel], vec![numel / 2, 2]];
                ShapeOp::Reshape { shape: dims(&all[self.below(if numel > 1 { 3 } else { 2 })]) }
            }
            _ => {
                let mut perm: Vec<u8> = (0..shape.len() as u8).collect();
                let by = self.below(shape.len());
                perm.rotate_left(by);
                ShapeOp::Permute { perm }
            }
        };
        self.op(op, &[tile], &[]);
    }

    /// The value modulo a power of two, which is an offset in a buffer of that length.
    fn wrapped(&mut self, value: ValueId, len: usize) -> Option<ValueId> {
        let shape = self.func.ty(value).shape.clone();
        let mut mask = self.op(Op::i32(len as i32 - 1), &[], &[])?;
        if !shape.is_empty() {
            mask = self.op(CreateOp::Splat { shape }, &[mask], &[])?;
        }
        self.op(Op::binary(BinaryOp::And), &[value, mask], &[])
    }

    fn pointers(&mut self, buffer: ValueId, offsets: ValueId) -> Option<ValueId> {
        let shape = self.func.ty(offsets).shape.clone();
        let mut start = buffer;
        if !shape.is_empty() {
            start = self.op(CreateOp::Splat { shape }, &[start], &[])?;
            self.pool.pop();
        }
        let pointers = self.op(MemoryOp::AddPtr, &[start, offsets], &[]);
        self.pool.pop();
        pointers
    }

    fn load(&mut self) {
        let Some(value) = self.find(|ty| ty.dtype() == Some(DType::I32)) else { return };
        let Some(offsets) = self.wrapped(value, INPUT) else { return };
        let Some(pointers) = self.pointers(self.x, offsets) else { return };
        let shape = self.func.ty(offsets).shape.clone();
        let mut operands = vec![pointers];
        if self.below(2) == 1
            && let Some(mask) = self.find(|ty| ty.dtype() == Some(DType::Bool) && ty.shape == shape)
        {
            operands.push(mask);
            if self.below(2) == 1 {
                operands.push(self.like(offsets));
            }
        }
        self.op(MemoryOp::Load { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal }, &operands, &[]);
    }

    /// Stores a tile of i64 to the last slot.
    fn store(&mut self) {
        let Some(value) = self.find(|ty| ty.dtype().is_some_and(|d| !d.is_float())) else { return };
        self.store_at(value, SLOTS - 1);
    }

    fn store_at(&mut self, value: ValueId, slot: usize) {
        let ty = self.func.ty(value).clone();
        let (Some(numel), Some(dtype)) = (ty.numel(), ty.dtype()) else { return };
        let (to, buffer) = if dtype.is_float() { (DType::F32, self.floats) } else { (DType::I64, self.ints) };
        let known = self.pool.len();
        let start = (slot * SLOT) as i64;
        let flat = self.op(ShapeOp::Reshape { shape: dims(&[numel]) }, &[value], &[]);
        let flat = flat.and_then(|v| self.op(Op::cast(to), &[v], &[]));
        let offsets = self.op(CreateOp::Arange { lo: start.into(), hi: (start + numel).into() }, &[], &[]);
        self.pool.truncate(known);
        let (Some(flat), Some(offsets)) = (flat, offsets) else { return };
        let Some(pointers) = self.pointers(buffer, offsets) else { return };
        let op = MemoryOp::Store { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal };
        self.op(op, &[pointers, flat], &[]);
    }

    fn store_all(&mut self) {
        let latest: Vec<ValueId> = self.pool.iter().rev().take(SLOTS - 1).copied().collect();
        for (slot, value) in latest.into_iter().enumerate() {
            self.store_at(value, slot);
        }
    }

    fn reduce(&mut self) {
        let Some(tile) = self.find(|ty| !ty.is_scalar() && ty.dtype().is_some_and(DType::is_int)) else { return };
        let ty = self.func.ty(tile).clone();
        let axis = self.below(ty.rank()) as u8;
        let op = match self.below(3) {
            0 => ControlOp::Scan { axis, reverse: self.below(2) == 1 },
            _ => ControlOp::Reduce { axis },
        };
        let scalar = ty.with_shape(Vec::new());
        let region = self.func.new_region([scalar.clone(), scalar]);
        let args = self.func.region(region).args.clone();
        let combine = [BinaryOp::Add, BinaryOp::Max, BinaryOp::Xor][self.below(3)];
        self.inside(region, |generator| {
            let value = generator.op(Op::binary(combine), &args, &[]);
            generator.op(ControlOp::Yield, value.as_slice(), &[]);
        });
        self.op(op, &[tile], &[region]);
    }

    /// Builds in a region; its values are gone afterwards.
    fn inside(&mut self, region: RegionId, build: impl FnOnce(&mut Self)) {
        let (outer, known) = (std::mem::replace(&mut self.region, region), self.pool.len());
        self.pool.extend(&self.func.region(region).args);
        build(self);
        self.pool.truncate(known);
        self.region = outer;
    }

    fn steps(&mut self, depth: u32) {
        for _ in 0..1 + self.below(5) {
            self.step(depth + 1);
        }
    }

    fn branch(&mut self, depth: u32) {
        let condition = |ty: &Ty| *ty == Ty::scalar(DType::Bool);
        let Some(condition) = self.find(condition) else { return };
        let models = [self.any(), self.any()];
        let regions = [self.func.new_region([]), self.func.new_region([])];
        for region in regions {
            self.inside(region, |generator| {
                generator.steps(depth);
                let yields = models.map(|model| generator.like(model));
                generator.op(ControlOp::Yield, &yields, &[]);
            });
        }
        self.op(ControlOp::If, &[condition], &regions);
    }

    fn repeat(&mut self, depth: u32) {
        let bound = |generator: &mut Self, choices: &[i32]| {
            let value = choices[generator.below(choices.len())];
            generator.op(Op::i32(value), &[], &[])
        };
        let (lo, step) = (bound(self, &[0, 1, -2]), bound(self, &[1, 2, 0]));
        let known = self.below(2) == 1;
        let hi = if known { bound(self, &[0, 1, 2, 3]) } else { Some(self.pool[0]) };
        let (Some(lo), Some(step), Some(hi)) = (lo, step, hi) else { return };
        let mut operands = vec![lo, hi, step];
        for _ in 0..self.below(4) {
            operands.push(self.any());
        }
        let tys: Vec<Ty> = operands[2..].iter().map(|&v| self.func.ty(v).clone()).collect();
        let region = self.func.new_region(tys);
        let args = self.func.region(region).args.clone();
        self.inside(region, |generator| {
            generator.steps(depth);
            let yields: Vec<ValueId> = args[1..].iter().map(|&arg| generator.like(arg)).collect();
            generator.op(ControlOp::Yield, &yields, &[]);
        });
        let unroll = if known && self.below(2) == 1 { Unroll::Full } else { Unroll::Auto };
        let reverse = self.below(2) == 1;
        let op = ControlOp::For {
            reverse,
            unroll,
            counter: None,
            stages: 0,
            warp_specialize: false,
            runs: false,
            no_wrap: false,
            unroll_by: None,
            stages_by: None,
        };
        self.op(op, &operands, &[region]);
    }

    /// A `while` that counts to a small number.
    fn count(&mut self, depth: u32) {
        let (Some(zero), carried) = (self.op(Op::i32(0), &[], &[]), self.any()) else { return };
        let tys = [zero, carried].map(|v| self.func.ty(v).clone());
        let regions = [self.func.new_region(tys.clone()), self.func.new_region(tys)];
        let end = self.below(3) as i32;
        self.inside(regions[0], |generator| {
            let counter = generator.func.region(regions[0]).args[0];
            let end = generator.op(Op::i32(end), &[], &[]).expect("a constant");
            let more = generator.op(Op::compare(CmpOp::Lt), &[counter, end], &[]);
            generator.op(ControlOp::Yield, more.as_slice(), &[]);
        });
        self.inside(regions[1], |generator| {
            let [counter, value] = generator.func.region(regions[1]).args[..] else { return };
            generator.steps(depth);
            let one = generator.op(Op::i32(1), &[], &[]).expect("a constant");
            let next = generator.op(Op::binary(BinaryOp::Add), &[counter, one], &[]).expect("a sum");
            let value = generator.like(value);
            generator.op(ControlOp::Yield, &[next, value], &[]);
        });
        self.op(ControlOp::While, &[zero, carried], &regions);
    }
}

fn dims(shape: &[i64]) -> Vec<Dim> {
    shape.iter().copied().map(Dim::from).collect()
}
