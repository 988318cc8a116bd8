//! Writes test kernels in the tile IR, together with their arguments and what must come out.
//!
//! ```
//! use kernel_core::ir::{BinaryOp, DType, Op};
//! use tilewright_tests::author::Author;
//! use tilewright_tests::data::Data;
//! use tilewright_tests::expect::exactly;
//!
//! let (x, want) = (Data::numbers(DType::I32, 0..100), Data::numbers(DType::I32, (0..100).map(|i| 2 * i)));
//! let mut author = Author::elementwise("double", 100);
//! let x = author.load(&x);
//! let doubled = author.one(Op::binary(BinaryOp::Add), &[x, x]);
//! author.store("doubled", doubled, exactly(&want));
//! author.finish().check_on_every_device();
//! ```

use kernel_core::ir::{
    Builder, CacheModifier, CmpOp, ControlOp, CreateOp, DType, Dim, EvictionPolicy, Func, Literal, MemoryOp, Op, OpId,
    ParamKind, RegionId, Safety, ShapeOp, Span, Ty, ValueId,
};

use crate::case::{Arg, Case};
use crate::data::Data;
use crate::expect::Answer;

/// Elements per program of elementwise kernels.
pub const BLOCK: i64 = 256;

/// A kernel that is being written.
pub struct Author {
    /// The kernel so far.
    pub func: Func,
    region: RegionId,
    args: Vec<Arg>,
    grid: [usize; 3],
    /// Offsets and mask of this program's elements, in elementwise kernels.
    tile: Option<(ValueId, ValueId)>,
}

impl Author {
    /// An empty kernel that runs on one program.
    pub fn new(name: &str) -> Author {
        let func = Func::new(name, "tests", Safety::Safe);
        let region = func.body;
        Author { func, region, args: Vec::new(), grid: [1; 3], tile: None }
    }

    /// A kernel over `n` elements, [`BLOCK`] per program, with a mask for the last program.
    pub fn elementwise(name: &str, n: usize) -> Author {
        let mut author = Author::new(name);
        author.grid = [n.div_ceil(BLOCK as usize), 1, 1];
        let n = author.scalar(DType::I32, n as u64);
        let program = author.one(CreateOp::ProgramId { axis: 0 }, &[]);
        let block = author.one(Op::i32(BLOCK as i32), &[]);
        let start = author.one(Op::binary(kernel_core::ir::BinaryOp::Mul), &[program, block]);
        let start = author.splat(start, &[BLOCK]);
        let lanes = author.arange(0, BLOCK);
        let offsets = author.one(Op::binary(kernel_core::ir::BinaryOp::Add), &[start, lanes]);
        let bound = author.splat(n, &[BLOCK]);
        let mask = author.one(Op::compare(CmpOp::Lt), &[offsets, bound]);
        author.tile = Some((offsets, mask));
        author
    }

    /// Runs the kernel on that many programs.
    pub fn grid(&mut self, grid: [usize; 3]) {
        self.grid = grid;
    }

    /// Appends an operation without regions; it must fit its operands.
    pub fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> OpId {
        self.op_with(op, operands, &[])
    }

    /// Appends an operation with regions.
    pub fn op_with(&mut self, op: impl Into<Op>, operands: &[ValueId], regions: &[RegionId]) -> OpId {
        let op = op.into();
        let mnemonic = op.mnemonic();
        let result = Builder::new(&mut self.func, self.region).op(op, operands, regions, Span::UNKNOWN);
        result.unwrap_or_else(|error| panic!("{mnemonic}: {error}"))
    }

    /// Appends an operation with one result.
    pub fn one(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> ValueId {
        let id = self.op(op, operands);
        self.func.op(id).results[0]
    }

    /// Appends an operation with regions and gives its results.
    pub fn results(&mut self, op: impl Into<Op>, operands: &[ValueId], regions: &[RegionId]) -> Vec<ValueId> {
        let id = self.op_with(op, operands, regions);
        self.func.op(id).results.clone()
    }

    /// A region with arguments of these types, filled by `body`, which gives what it yields.
    pub fn region(&mut self, args: &[Ty], body: impl FnOnce(&mut Author, &[ValueId]) -> Vec<ValueId>) -> RegionId {
        let region = self.func.new_region(args.iter().cloned());
        let outer = std::mem::replace(&mut self.region, region);
        let args = self.func.region(region).args.clone();
        let yielded = body(self, &args);
        self.op(ControlOp::Yield, &yielded);
        self.region = outer;
        region
    }

    /// The integers `lo..hi`.
    pub fn arange(&mut self, lo: i64, hi: i64) -> ValueId {
        self.one(CreateOp::Arange { lo: Dim::Const(lo), hi: Dim::Const(hi) }, &[])
    }

    /// A tile of one value.
    pub fn splat(&mut self, value: ValueId, shape: &[i64]) -> ValueId {
        if shape.is_empty() { value } else { self.one(CreateOp::Splat { shape: dims(shape) }, &[value]) }
    }

    /// A constant scalar, given by its bits.
    pub fn constant(&mut self, dtype: DType, bits: u64) -> ValueId {
        self.one(Op::constant(literal(dtype, bits), dtype), &[])
    }

    /// A parameter that holds a scalar.
    pub fn scalar(&mut self, dtype: DType, bits: u64) -> ValueId {
        let name = format!("s{}", self.args.len());
        self.args.push(Arg::Scalar(dtype, bits));
        let id = self.func.add_param(&name, ParamKind::Scalar(dtype.into()), Span::UNKNOWN);
        self.func.param(id).value
    }

    /// A parameter that points to `data`.
    pub fn input(&mut self, data: &Data) -> ValueId {
        let name = format!("in{}", self.args.len());
        self.args.push(Arg::In(data.clone()));
        let kind = ParamKind::Ptr { dt: data.dtype.into(), mutable: false };
        let id = self.func.add_param(&name, kind, Span::UNKNOWN);
        self.func.param(id).value
    }

    /// A parameter that points to `before`, of which `after` must become.
    pub fn output(&mut self, label: &str, before: &Data, after: Vec<Answer>) -> ValueId {
        let name = format!("out{}", self.args.len());
        let kind = ParamKind::Ptr { dt: before.dtype.into(), mutable: true };
        self.args.push(Arg::Out { label: label.to_string(), before: before.clone(), after });
        let id = self.func.add_param(&name, kind, Span::UNKNOWN);
        self.func.param(id).value
    }

    /// The pointers `base + offsets`.
    pub fn address(&mut self, base: ValueId, offsets: ValueId) -> ValueId {
        let shape = self.func.ty(offsets).shape.clone();
        let base = if shape.is_empty() { base } else { self.one(CreateOp::Splat { shape }, &[base]) };
        self.one(MemoryOp::AddPtr, &[base, offsets])
    }

    /// Loads this program's elements of an input (elementwise kernels).
    pub fn load(&mut self, data: &Data) -> ValueId {
        let base = self.input(data);
        let (offsets, mask) = self.tile.expect("an elementwise kernel");
        let address = self.address(base, offsets);
        self.one(load(), &[address, mask])
    }

    /// Stores this program's elements of an output (elementwise kernels).
    pub fn store(&mut self, label: &str, value: ValueId, after: Vec<Answer>) {
        let dtype = self.func.ty(value).dtype().expect("a tile of numbers");
        let base = self.output(label, &Data::zeros(dtype, after.len()), after);
        let (offsets, mask) = self.tile.expect("an elementwise kernel");
        let address = self.address(base, offsets);
        self.op(store(), &[address, value, mask]);
    }

    /// The row-major offsets of a tile of that shape: `0..numel` reshaped.
    pub fn offsets(&mut self, shape: &[i64]) -> ValueId {
        if shape.is_empty() {
            return self.one(Op::i32(0), &[]);
        }
        let flat = self.arange(0, shape.iter().product());
        if shape.len() == 1 { flat } else { self.one(ShapeOp::Reshape { shape: dims(shape) }, &[flat]) }
    }

    /// Loads a whole input as a tile of that shape.
    pub fn load_tile(&mut self, data: &Data, shape: &[i64]) -> ValueId {
        let base = self.input(data);
        let offsets = self.offsets(shape);
        let address = self.address(base, offsets);
        self.one(load(), &[address])
    }

    /// Stores a tile as a whole output in row-major order.
    pub fn store_tile(&mut self, label: &str, value: ValueId, after: Vec<Answer>) {
        let ty = self.func.ty(value);
        let (dtype, shape) = (ty.dtype().expect("a tile of numbers"), ty.dims().expect("a known shape"));
        let base = self.output(label, &Data::zeros(dtype, after.len()), after);
        let offsets = self.offsets(&shape);
        let address = self.address(base, offsets);
        self.op(store(), &[address, value]);
    }

    /// The kernel with its arguments.
    pub fn finish(mut self) -> Case {
        self.op(ControlOp::Return, &[]);
        Case::new(self.func, self.args, self.grid)
    }
}

/// A load with the hardware's defaults.
pub fn load() -> MemoryOp {
    MemoryOp::Load { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal }
}

/// A store with the hardware's defaults.
pub fn store() -> MemoryOp {
    MemoryOp::Store { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal }
}

/// A shape of known dimensions.
pub fn dims(shape: &[i64]) -> Vec<Dim> {
    shape.iter().map(|&d| Dim::Const(d)).collect()
}

/// A constant with these bits.
pub fn literal(dtype: DType, bits: u64) -> Literal {
    match dtype {
        DType::Bool => Literal::Bool(bits != 0),
        _ if dtype.is_float() => Literal::float(crate::data::to_f64(dtype, bits)),
        _ => Literal::Int(crate::data::to_int(dtype, bits)),
    }
}
