//! Every elementwise operation on every dtype, and every conversion, compiles and assembles for every target.

mod support;

use kernel_codegen::{Options, Target, compile};
use kernel_core::interp::{HostBuffer, run_kernel};
use kernel_core::ir::{
    BinaryOp, Bound, Builder, CacheModifier, CmpOp, ControlOp, CreateOp, DType, Dim, ElementwiseOp, EvictionPolicy,
    Func, Level, Literal, MemoryOp, Op, ParamKind, Safety, Span, UnaryOp, ValueId,
};
use kernel_core::math::MathFn;
use kernel_core::num;

const AT: Span = Span::UNKNOWN;
const SIZE: i64 = 256;

/// A kernel that loads three tiles of `dtype`, and stores what `ops` make of them, each in a buffer of its own.
fn kernel(name: &str, dtype: DType, ops: &[(ElementwiseOp, usize)]) -> Bound {
    let mut func = Func::new(name, "elementwise.rs", Safety::Unsafe);
    func.level = Level::Bound;
    let input = func.add_param("x", ParamKind::Ptr { dt: dtype.into(), mutable: false }, AT);
    let results: Vec<DType> = ops.iter().map(|(op, _)| result(op, dtype)).collect();
    let outputs: Vec<_> = results
        .iter()
        .enumerate()
        .map(|(i, &dt)| func.add_param(&format!("out{i}"), ParamKind::Ptr { dt: dt.into(), mutable: true }, AT))
        .collect();
    for param in &mut func.params {
        param.facts.divisible_by = 16;
    }
    let (x, body) = (func.param(input).value, func.body);
    let outputs: Vec<ValueId> = outputs.iter().map(|&id| func.param(id).value).collect();
    let mut b = Builder::new(&mut func, body);
    let shape = vec![Dim::Const(SIZE)];
    let mut tiles = Vec::new();
    for part in 0..3 {
        let (lo, hi) = (Dim::Const(part * SIZE), Dim::Const((part + 1) * SIZE));
        let offsets = b.one(CreateOp::Arange { lo, hi }, &[], AT).unwrap();
        let pointer = b.one(CreateOp::Splat { shape: shape.clone() }, &[x], AT).unwrap();
        let pointer = b.one(MemoryOp::AddPtr, &[pointer, offsets], AT).unwrap();
        let load = MemoryOp::Load { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal };
        tiles.push(b.one(load, &[pointer], AT).unwrap());
    }
    let offsets = b.one(CreateOp::Arange { lo: Dim::Const(0), hi: Dim::Const(SIZE) }, &[], AT).unwrap();
    for ((op, arity), &out) in ops.iter().zip(&outputs) {
        let operands = if matches!(op, ElementwiseOp::Select) {
            let condition = b.one(Op::compare(CmpOp::Ne), &[tiles[0], tiles[1]], AT).unwrap();
            vec![condition, tiles[1], tiles[2]]
        } else {
            tiles[..*arity].to_vec()
        };
        let value = b.one(op.clone(), &operands, AT).unwrap();
        let pointer = b.one(CreateOp::Splat { shape: shape.clone() }, &[out], AT).unwrap();
        let pointer = b.one(MemoryOp::AddPtr, &[pointer, offsets], AT).unwrap();
        let store = MemoryOp::Store { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal };
        b.op(store, &[pointer, value], &[], AT).unwrap();
    }
    b.op(ControlOp::Return, &[], &[], AT).unwrap();
    Bound::new(func).unwrap()
}

fn result(op: &ElementwiseOp, dtype: DType) -> DType {
    match op {
        ElementwiseOp::Compare { .. } => DType::Bool,
        ElementwiseOp::Cast { to } | ElementwiseOp::Bitcast { to } => to.known().unwrap(),
        ElementwiseOp::Unary { .. }
        | ElementwiseOp::Binary { .. }
        | ElementwiseOp::FloatInt { .. }
        | ElementwiseOp::Select
        | ElementwiseOp::Fma => dtype,
    }
}

/// The operations that are defined for a dtype, with the number of their operands.
fn operations(dtype: DType) -> Vec<(ElementwiseOp, usize)> {
    let func = Func::new("", "", Safety::Safe);
    let mut ops: Vec<(ElementwiseOp, usize)> = Vec::new();
    let fits = |needs: kernel_core::ir::infer::Needs| needs.admits(&func, dtype.into());
    ops.extend(UnaryOp::ALL.iter().filter(|op| fits(op.needs())).map(|&op| (ElementwiseOp::Unary { op }, 1)));
    ops.extend(BinaryOp::ALL.iter().filter(|op| fits(op.needs())).map(|&op| (ElementwiseOp::Binary { op }, 2)));
    ops.extend(CmpOp::ALL.iter().filter(|op| fits(op.needs())).map(|&op| (ElementwiseOp::Compare { op }, 2)));
    ops.push((ElementwiseOp::Select, 3));
    if dtype.is_float() {
        ops.push((ElementwiseOp::Fma, 3));
    }
    ops.extend(DType::ALL.iter().map(|&to| (ElementwiseOp::Cast { to: to.into() }, 1)));
    let same_width = DType::ALL.iter().filter(|to| to.bits() == dtype.bits());
    ops.extend(same_width.map(|&to| (ElementwiseOp::Bitcast { to: to.into() }, 1)));
    ops
}

#[test]
fn every_operation_on_every_dtype_is_selected_and_assembles() {
    for dtype in DType::ALL {
        let kernel = kernel("every", dtype, &operations(dtype));
        for target in Target::all() {
            let options = Options { num_warps: 4, ..Options::default() };
            let compiled = compile(&kernel, &target, &options).unwrap_or_else(|error| panic!("{dtype}: {error}"));
            support::assemble(&compiled);
        }
    }
}

/// Values at and around everything special, and many others.
fn samples(dtype: DType) -> HostBuffer {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let bits = u64::from(dtype.bits());
    let special: Vec<u64> = match dtype {
        DType::Bool => vec![0, 1],
        DType::F16 => vec![0, 1, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0x7c00, 0x7e00, 0x8000, 0xbc00, 0xfc00, 0x4248],
        DType::BF16 => vec![0, 1, 0x0080, 0x3f80, 0x7f7f, 0x7f80, 0x7fc0, 0x8000, 0xbf80, 0xff80, 0x4049],
        DType::F32 => {
            [0.0f32, 1.0, -1.0, 0.5, 1e-40, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0, 3e9, -3e9, 88.8]
                .map(|x| u64::from(x.to_bits()))
                .to_vec()
        }
        DType::F64 => [
            0.0f64,
            1.0,
            -1.0,
            0.5,
            1e-310,
            f64::MAX,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -0.0,
            1e19,
            -1e19,
            709.9,
        ]
        .map(f64::to_bits)
        .to_vec(),
        _ => vec![0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 31, 32, 63, 64],
    };
    let mut values = Vec::new();
    for _ in 0..3 * SIZE {
        let at = next();
        values.push(match at % 3 {
            0 => special[(at >> 8) as usize % special.len()],
            // Floats of ordinary size.
            1 if dtype.is_float() => {
                let x = (next() >> 40) as f64 / f64::from(1 << 20) - 8.0;
                match dtype {
                    DType::F32 => u64::from((x as f32).to_bits()),
                    DType::F64 => x.to_bits(),
                    _ => num::to_bits(Literal::float(x), dtype).expect("a float"),
                }
            }
            _ => next(),
        });
    }
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| {
            let value = if dtype == DType::Bool { value & 1 } else { *value };
            value.to_le_bytes()[..dtype.bytes() as usize].to_vec()
        })
        .collect();
    support::differential::from_bytes(dtype, &bytes)
}

#[test]
fn every_operation_on_every_dtype_does_what_the_interpreter_does() {
    let mut wrong = Vec::new();
    for dtype in DType::ALL {
        for (op, arity) in operations(dtype) {
            let kernel = kernel("one", dtype, &[(op.clone(), arity)]);
            let buffers = [samples(dtype), HostBuffer::zeros(result(&op, dtype), SIZE as usize)];
            let mut expected = buffers.to_vec();
            run_kernel(&kernel, &mut expected, &[], [1, 1, 1]).unwrap();
            let options = Options { num_warps: 1, ..Options::default() };
            let compiled = compile(&kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
            let what = format!("{op:?} on {dtype}");
            let outcome = std::panic::catch_unwind(|| {
                let (found, _) = support::differential::emulate(&kernel, &compiled, &buffers, &[], 1, 1);
                support::differential::compare(&expected[1], &found[1], support::differential::Agreement::Exact, &what);
            });
            if outcome.is_err() {
                wrong.push(what);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn bits_and_roundings_are_single_instructions() {
    let (one, two) = (|op| (ElementwiseOp::Unary { op }, 1), |op| (ElementwiseOp::Binary { op }, 2));
    for (dtype, op, instruction) in [
        (DType::I32, one(UnaryOp::CountOnes), "popc.b32"),
        (DType::U64, one(UnaryOp::CountOnes), "popc.b64"),
        (DType::U32, one(UnaryOp::LeadingZeros), "clz.b32"),
        (DType::I64, one(UnaryOp::ReverseBits), "brev.b64"),
        (DType::I32, two(BinaryOp::Mulhi), "mul.hi.s32"),
        (DType::I64, two(BinaryOp::Mulhi), "mul.hi.s64"),
        (DType::U32, two(BinaryOp::RotateLeft), "shf.l.wrap.b32"),
        (DType::I32, two(BinaryOp::RotateRight), "shf.r.wrap.b32"),
        (DType::F32, one(UnaryOp::Trunc), "cvt.rzi.f32.f32"),
        (DType::F32, one(UnaryOp::Round), "cvt.rzi.f32.f32"),
        (DType::F64, one(UnaryOp::RoundTiesEven), "cvt.rni.f64.f64"),
    ] {
        let compiled = support::compile_for_hopper(&kernel("bits", dtype, &[op]));
        assert_eq!(support::count(&compiled.ptx, instruction), 2, "{instruction}: {}", compiled.ptx);
    }
}

#[test]
fn an_exponential_is_a_product_and_what_ptxas_makes_of_its_instruction() {
    let compiled = support::compile_for_hopper(&kernel(
        "exp",
        DType::F32,
        &[(ElementwiseOp::Unary { op: UnaryOp::Math(MathFn::Exp) }, 1)],
    ));
    let exponential = ["ex2.approx.ftz.f32", "setp.lt.f32", "@%small mul.rn.f32"];
    assert_eq!(exponential.map(|op| support::count(&compiled.ptx, op)), [2, 2, 4], "{}", compiled.ptx);
    let arithmetic = ["mul.rn.f32", "fma.rn.f32", "add.rn.f32"].map(|op| support::count(&compiled.ptx, op));
    assert_eq!(arithmetic, [2 + 4, 0, 0], "{}", compiled.ptx);
    assert_eq!(support::count(&compiled.ptx, "bra"), 0, "{}", compiled.ptx);
}

/// One branch per tile: all loads are issued before it, and what it leads to branches again for each register.
#[test]
fn the_long_way_of_angles_is_behind_one_branch_per_tile() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let sin = (ElementwiseOp::Unary { op: UnaryOp::Math(MathFn::Sin) }, 1);
        let options = Options { num_warps: 1, ..Options::default() };
        let compiled = compile(&kernel("sin", dtype, &[sin]), &Target::sm_90a(), &options).unwrap();
        let before: String = compiled.ptx.lines().take_while(|line| !line.contains("bra")).collect();
        assert_eq!(
            support::count(&before, "ld.global"),
            support::count(&compiled.ptx, "ld.global"),
            "{}",
            compiled.ptx
        );
        // A conditional branch over each of the eight registers' long way, and one over all of them.
        let conditional = compiled.ptx.lines().filter(|line| line.contains('@') && line.contains("bra")).count();
        assert_eq!(conditional, 8 + 1, "{}", compiled.ptx);
    }
}

#[test]
fn integer_division_is_guarded_and_shifts_are_masked() {
    let ops = [(ElementwiseOp::Binary { op: BinaryOp::Div }, 2), (ElementwiseOp::Binary { op: BinaryOp::Shl }, 2)];
    let options = Options { keep_llvm_ir: true, ..Options::default() };
    let compiled = compile(&kernel("total", DType::I32, &ops), &Target::sm_90a(), &options).unwrap();
    let ir = compiled.llvm_ir.unwrap();
    for undefined in ["nsw", "nuw", "exact", "inbounds", "poison"] {
        let lines: Vec<&str> = ir.lowered.lines().filter(|line| line.contains(undefined)).collect();
        // A vector is built up from `poison`, all lanes of which are then replaced.
        let lines: Vec<&&str> = lines.iter().filter(|line| !line.contains("insertelement")).collect();
        assert!(lines.is_empty(), "{undefined}: {lines:?}");
    }
    assert!(ir.lowered.contains("sdiv i32") && ir.lowered.contains(", 31"), "{}", ir.lowered);
}
