//! Matrix products: every dtype, shape, transposition and instruction, in the emulator against sums in f64.

mod support;

use kernel_codegen::report::ConversionKind;
use kernel_codegen::{CodegenError, Compiled, Options, Target, compile, compile_placed};
use kernel_core::interp::HostBuffer;
use kernel_core::ir::{DType, DotInstruction, DotOp, Literal, Op, Placed};
use kernel_core::num;
use kernel_core::verify::verify;
use support::differential::{Agreement, agrees, emulate, from_bytes};
use support::{assemble, count, kernel};

const MATMUL: &str = include_str!("kernels/matmul.tile");

/// One product.
#[derive(Clone, Copy, Debug)]
struct Case {
    a: &'static str,
    b: &'static str,
    acc: &'static str,
    precision: &'static str,
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    /// Whether a factor lies in memory as its transpose.
    transposed: [bool; 2],
    /// Whether the accumulator is the constant zero, rather than loaded.
    from_zero: bool,
}

const F16: Case = Case {
    a: "f16",
    b: "f16",
    acc: "f32",
    precision: "tf32",
    batch: 0,
    m: 64,
    n: 32,
    k: 32,
    transposed: [false, false],
    from_zero: false,
};

impl Case {
    fn of(a: &'static str, acc: &'static str) -> Case {
        Case { a, b: a, acc, ..F16 }
    }

    fn sized(self, m: usize, n: usize, k: usize) -> Case {
        Case { m, n, k, ..self }
    }

    /// A kernel that loads the factors and the accumulator, multiplies, and stores.
    fn text(&self) -> String {
        let mut text = format!(
            "kernel product \"product.rs\" unsafe bound {{
  param %a a: ptr {} {{div = 16}}
  param %b b: ptr {} {{div = 16}}
  param %c c: ptr_mut {} {{div = 16}}\n",
            self.a, self.b, self.acc
        );
        let mut load = |name: &str, buffer: &str, dtype: &str, rows: usize, columns: usize, transposed: bool| {
            let (height, width) = if transposed { (columns, rows) } else { (rows, columns) };
            let batch = self.batch.max(1);
            let total = batch * rows * columns;
            let shape =
                if self.batch > 0 { format!("{batch}, {height}, {width}") } else { format!("{height}, {width}") };
            let result =
                if self.batch > 0 { format!("{batch}, {rows}, {columns}") } else { format!("{rows}, {columns}") };
            text.push_str(&format!(
                "  %{name}r: i32[{total}] = arange {{lo = 0, hi = {total}}}
  %{name}i: i32[{shape}] = reshape %{name}r {{shape = [{shape}]}}
  %{name}s: *{buffer}[{shape}] = splat %{buffer}
  %{name}p: *{buffer}[{shape}] = add_ptr %{name}s, %{name}i
  %{name}v: {dtype}[{shape}] = load %{name}p\n"
            ));
            if transposed {
                let perm = if self.batch > 0 { "0, 2, 1" } else { "1, 0" };
                text.push_str(&format!("  %{name}: {dtype}[{result}] = permute %{name}v {{perm = [{perm}]}}\n"));
                format!("%{name}")
            } else {
                format!("%{name}v")
            }
        };
        let left = load("x", "a", self.a, self.m, self.k, self.transposed[0]);
        let right = load("y", "b", self.b, self.k, self.n, self.transposed[1]);
        let mut acc = load("z", "c", self.acc, self.m, self.n, false);
        let batch = if self.batch > 0 { format!("{}, ", self.batch) } else { String::new() };
        if self.from_zero {
            let (ty, zero) = (self.acc, if self.acc == "i32" { "0" } else { "0.0" });
            let shape = format!("{batch}{}, {}", self.m, self.n);
            text.push_str(&format!("  %zero: {ty} = const {zero}\n  %zeros: {ty}[{shape}] = splat %zero\n"));
            acc = "%zeros".to_string();
        }
        text.push_str(&format!(
            "  %d: {}[{batch}{}, {}] = dot {left}, {right}, {acc} {{precision = {}}}
  store %zp, %d
  return
}}\n",
            self.acc, self.m, self.n, self.precision
        ));
        text
    }
}

/// Small numbers of a dtype, and their values: products and sums of them are exact.
fn numbers(dtype: &str, len: usize, salt: u32, fraction: bool) -> (HostBuffer, Vec<f64>) {
    let whole = |i: usize| {
        let hash = (i as u32).wrapping_add(salt.wrapping_mul(977)).wrapping_mul(2_654_435_769) >> 16;
        let value = f64::from(hash % 9) - if dtype == "u8" { 0.0 } else { 4.0 };
        if fraction { value + f64::from(hash % 1021) / 1021.0 } else { value }
    };
    let values: Vec<f64> = (0..len).map(whole).collect();
    let name = DType::ALL.into_iter().find(|known| known.name() == dtype).expect("a dtype");
    let bytes: Vec<u8> = values.iter().flat_map(|&value| encode(name, value)).collect();
    let values = values.iter().map(|&value| decode(name, &encode(name, value))).collect();
    (from_bytes(name, &bytes), values)
}

fn encode(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F16 | DType::BF16 => {
            let bits = num::to_bits(Literal::float(value), dtype).expect("a float");
            (bits as u16).to_le_bytes().to_vec()
        }
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::I8 => (value as i8).to_le_bytes().to_vec(),
        DType::U8 => vec![value as u8],
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::F8E4M3 => vec![kernel_core::num::F8E4M3::from_f64(value).to_bits()],
        DType::F8E5M2 => vec![kernel_core::num::F8E5M2::from_f64(value).to_bits()],
        other => panic!("no products of {other}"),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        DType::BF16 => half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        DType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes"))),
        DType::F64 => f64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        DType::I8 => f64::from(bytes[0] as i8),
        DType::U8 => f64::from(bytes[0]),
        DType::I32 => f64::from(i32::from_le_bytes(bytes.try_into().expect("four bytes"))),
        DType::F8E4M3 => kernel_core::num::F8E4M3::from_bits(bytes[0]).to_f64(),
        DType::F8E5M2 => kernel_core::num::F8E5M2::from_bits(bytes[0]).to_f64(),
        other => panic!("no products of {other}"),
    }
}

fn values(buffer: &HostBuffer) -> Vec<f64> {
    match buffer.dtype() {
        DType::F16 => buffer.as_slice::<half::f16>().expect("f16").iter().map(|x| x.to_f64()).collect(),
        DType::F32 => buffer.as_slice::<f32>().expect("f32").iter().map(|&x| f64::from(x)).collect(),
        DType::F64 => buffer.as_slice::<f64>().expect("f64").to_vec(),
        DType::I32 => buffer.as_slice::<i32>().expect("i32").iter().map(|&x| f64::from(x)).collect(),
        other => panic!("no accumulators of {other}"),
    }
}

/// Runs a case on a target and compares with sums in f64, within `tolerance` of each.
fn check(case: Case, target: Target, num_warps: u32, tolerance: f64) -> Compiled {
    let (batch, fraction) = (case.batch.max(1), tolerance > 0.0);
    let func = kernel(&case.text());
    let options = Options { num_warps, ..Options::default() };
    let compiled = compile(&func, &target, &options).unwrap_or_else(|error| panic!("{error}\n{case:?}"));
    let (a, left) = numbers(case.a, batch * case.m * case.k, 1, fraction);
    let (b, right) = numbers(case.b, batch * case.k * case.n, 2, fraction);
    let (c, sums) = numbers(case.acc, batch * case.m * case.n, 3, fraction);
    let (found, _) = emulate(&func, &compiled, &[a, b, c], &[], 1, 7);
    let found = values(&found[2]);
    for (index, &found) in found.iter().enumerate() {
        let (batch, row, column) = (index / (case.m * case.n), index / case.n % case.m, index % case.n);
        let left = |k: usize| {
            let place = if case.transposed[0] { k * case.m + row } else { row * case.k + k };
            left[batch * case.m * case.k + place]
        };
        let right = |k: usize| {
            let place = if case.transposed[1] { column * case.k + k } else { k * case.n + column };
            right[batch * case.k * case.n + place]
        };
        let products = (0..case.k).map(|k| left(k) * right(k));
        let sizes: f64 = products.clone().map(f64::abs).sum();
        let before = if case.from_zero { 0.0 } else { sums[index] };
        let expected = before + products.sum::<f64>();
        let allowed = tolerance * (sizes + before.abs());
        assert!(
            (found - expected).abs() <= allowed,
            "element {row}, {column} of {batch} is {found}, not {expected}: {case:?} on {} with {num_warps} warps\n{}",
            target.name(),
            compiled.placed_ir(),
        );
    }
    compiled
}

fn everywhere(case: Case, tolerance: f64) {
    for target in [Target::sm_80(), Target::sm_90a()] {
        for num_warps in [1, 8] {
            let compiled = check(case, target, num_warps, tolerance);
            if num_warps == 8 {
                assemble(&compiled);
            }
        }
    }
}

#[test]
fn halves_are_multiplied_exactly() {
    everywhere(F16, 0.0);
    everywhere(Case::of("bf16", "f32"), 0.0);
    everywhere(Case::of("f16", "f16"), 0.0);
}

#[test]
fn every_transposition() {
    for transposed in [[true, false], [false, true], [true, true]] {
        for case in [F16, Case::of("bf16", "f32").sized(64, 64, 64), Case::of("f32", "f32"), Case::of("i8", "i32")] {
            everywhere(Case { transposed, ..case }, 0.0);
        }
    }
}

#[test]
fn singles_in_each_precision() {
    for (precision, tolerance) in
        [("tf32", 1.0 / 512.0), ("tf32x3", 4e-6), ("ieee", 4e-6), ("bf16x3", 4e-6 + 1.0 / 32768.0), ("bf16x6", 4e-6)]
    {
        let case = Case { precision, ..Case::of("f32", "f32") };
        everywhere(case, 0.0);
        everywhere(case, tolerance);
    }
}

#[test]
fn doubles_and_bytes() {
    everywhere(Case::of("f64", "f64"), 0.0);
    everywhere(Case::of("f64", "f64"), 1e-15);
    everywhere(Case::of("i8", "i32"), 0.0);
    everywhere(Case::of("u8", "i32"), 0.0);
}

#[test]
fn eight_bit_floats() {
    for (a, b) in [("f8e4m3", "f8e4m3"), ("f8e5m2", "f8e5m2"), ("f8e4m3", "f8e5m2")] {
        let case = Case { a, b, ..Case::of(a, "f32") };
        for (target, instruction) in [
            (Target::sm_80(), "m16n8k16.row.col.f32.f16.f16.f32"),
            (Target::sm_89(), "mma.sync.aligned.m16n8k32.row.col.f32.e"),
            (Target::sm_90a(), "wgmma.mma_async.sync.aligned.m64n32k32.f32.e"),
        ] {
            let compiled = check(case, target, 4, 0.0);
            assert!(count(&compiled.ptx, instruction) > 0, "{}", compiled.ptx);
            assemble(&compiled);
        }
    }
}

#[test]
fn batches() {
    for batch in [1, 2, 4] {
        everywhere(Case { batch, ..F16.sized(16, 16, 16) }, 0.0);
        everywhere(Case { batch, ..Case::of("f32", "f32").sized(8, 8, 4) }, 0.0);
        everywhere(Case { batch, precision: "ieee", ..Case::of("f32", "f32").sized(32, 8, 16) }, 0.0);
    }
}

#[test]
fn small_shapes() {
    for (m, n, k) in [(1, 64, 64), (64, 1, 16), (1, 1, 1), (2, 4, 8), (16, 8, 16), (8, 8, 32), (1, 1, 128), (4, 16, 16)]
    {
        for case in [F16, Case::of("f64", "f64"), Case::of("i8", "i32"), Case::of("f32", "f32")] {
            everywhere(case.sized(m, n, k), 0.0);
        }
    }
}

#[test]
fn hopper_multiplies_by_warp_groups() {
    for (m, n, k, warps) in [(128, 128, 64, 8), (64, 256, 32, 4), (64, 64, 64, 8), (256, 32, 64, 8), (128, 8, 64, 4)] {
        for transposed in [[false, false], [true, true]] {
            let compiled = check(Case { transposed, ..F16.sized(m, n, k) }, Target::sm_90a(), warps, 0.0);
            assert!(count(&compiled.ptx, "wgmma.mma_async") > 0, "{}", compiled.ptx);
            assemble(&compiled);
            let names = [("wgmma.fence", 'F'), ("wgmma.mma_async", 'M'), ("wgmma.commit", 'C'), ("wgmma.wait", 'W')];
            let letter = |line: &str| names.iter().find(|(name, _)| line.contains(name)).map(|(_, letter)| *letter);
            let mut order: Vec<char> = compiled.ptx.lines().filter_map(letter).collect();
            order.dedup();
            assert_eq!(order.iter().collect::<String>(), "FMCW", "{}", compiled.ptx);
        }
    }
}

#[test]
fn products_from_zero_overwrite_their_registers() {
    // The last two have several tiles per warp group, with other instructions in between.
    for (m, n, k, warps) in [(64, 64, 32, 4), (128, 128, 32, 4), (256, 64, 64, 4)] {
        for case in [F16, Case::of("i8", "i32")] {
            let case = Case { from_zero: true, ..case.sized(m, n, k) };
            let compiled = check(case, Target::sm_90a(), warps, 0.0);
            // Behind the accumulator and two descriptors stands whether to add to it.
            let products = compiled.ptx.lines().filter(|line| line.contains("wgmma.mma_async"));
            let flags = products.filter_map(|line| line.split_once('}')?.1.trim_end_matches(';').split(", ").nth(3));
            assert_eq!(flags.filter(|&flag| flag == "0").count(), m / 64, "{}", compiled.ptx);
            // Assembling also asserts that ptxas puts no fences and waits between the instructions.
            assemble(&compiled);
        }
    }
}

#[test]
fn a_loop_carries_the_accumulator_in_its_layout() {
    for (target, instruction) in [(Target::sm_80(), "mma.sync"), (Target::sm_90a(), "wgmma.mma_async")] {
        let compiled = compile(&kernel(MATMUL), &target, &Options { num_warps: 8, ..Options::default() })
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(count(&compiled.ptx, instruction) > 0, "{}", compiled.ptx);
        assert!(compiled.report().conversions.len() <= 1, "{}", compiled.report());
        let (a, left) = numbers("f16", 128 * 128, 1, false);
        let (b, right) = numbers("f16", 128 * 128, 2, false);
        let c = vec![0f32; 128 * 128].into();
        let (found, _) = emulate(&kernel(MATMUL), &compiled, &[a, b, c], &[128, 128], 1, 3);
        for (index, found) in values(&found[2]).into_iter().enumerate() {
            let (row, column) = (index / 128, index % 128);
            let expected: f64 = (0..128).map(|k| left[row * 128 + k] * right[k * 128 + column]).sum();
            assert!(found == expected, "row {row}, column {column} on {}: {found} {expected}", target.name());
        }
        if let Some(assembled) = assemble(&compiled) {
            assert_eq!(assembled.spill_bytes, 0);
        }
    }
}

#[test]
fn a_tile_of_128_by_256_fits_the_registers_of_8_warps() {
    // The same kernel for tiles of 128 x 256, with results in f16.
    let text = MATMUL
        .replace("%rn: i32[128] = arange {lo = 0, hi = 128}", "%rn: i32[256] = arange {lo = 0, hi = 256}")
        .replace("%n1: i32[1, 128]", "%n1: i32[1, 256]")
        .replace("[64, 128]", "[64, 256]")
        .replace("[128, 128]", "[128, 256]")
        .replace("ptr_mut f32", "ptr_mut f16")
        .replace("store %cp, %sum", "%half: f16[128, 256] = cast %sum {to = f16}\n  store %cp, %half");
    let options = Options { num_warps: 8, ..Options::default() };
    let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(count(&compiled.ptx, "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"), 4, "{}", compiled.ptx);
    assert_eq!(count(&compiled.ptx, "stmatrix.sync.aligned.m8n8.x4"), 16);
    assert_eq!(count(&compiled.ptx, "ld.shared.v4.b32"), 16);
    assert_eq!(count(&compiled.ptx, "fence.proxy.async"), 1, "copies are shown to products once per iteration");
    // Assembling also asserts that ptxas does not serialise the products.
    if let Some(assembled) = assemble(&compiled) {
        assert_eq!(assembled.spill_bytes, 0);
        assert!(assembled.registers <= 232, "{} registers", assembled.registers);
    }
}

#[test]
fn what_lies_between_two_products_stays_in_its_threads() {
    let text = include_str!("kernels/chain.tile");
    for (target, instruction) in [(Target::sm_80(), "mma.sync"), (Target::sm_90a(), "wgmma.mma_async")] {
        let compiled = compile(&kernel(text), &target, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        assert!(count(&compiled.ptx, instruction) > 0, "{}", compiled.ptx);
        // Only the result goes through shared memory, for its store; rows are reduced within a warp.
        let report = compiled.report();
        let moved = report
            .conversions
            .iter()
            .filter(|one| matches!(one.kind, ConversionKind::Shared { .. } | ConversionKind::Shuffles(_)));
        assert!(moved.count() <= 1, "{}", compiled.report());
        let (q, left) = numbers("f16", 4096, 1, false);
        let (k, right) = numbers("f16", 4096, 2, false);
        let (v, values_of_v) = numbers("f16", 4096, 3, false);
        let (found, _) = emulate(&kernel(text), &compiled, &[q, k, v, vec![0f32; 4096].into()], &[], 1, 5);
        let products: Vec<Vec<f64>> = (0..64)
            .map(|row| (0..64).map(|c| (0..64).map(|i| left[row * 64 + i] * right[c * 64 + i]).sum()).collect())
            .collect();
        for (index, found) in values(&found[3]).into_iter().enumerate() {
            let (row, column) = (index / 64, index % 64);
            let largest = products[row].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // Eighths below 512 are f16 numbers.
            let expected: f64 =
                (0..64).map(|i| (products[row][i] - largest) / 8.0 * values_of_v[i * 64 + column]).sum();
            assert!((found - expected).abs() <= 1e-3 * expected.abs().max(64.0), "{row}, {column}: {found} {expected}");
        }
        assemble(&compiled);
    }
}

/// The factors of a product by scalar arithmetic take the place of those of the one before, when all have read them.
#[test]
fn scalar_products_wait_for_each_other() {
    let case = Case { precision: "ieee", ..Case::of("f32", "f32") }.sized(16, 16, 16);
    let text = case
        .text()
        .replace("  store %zp, %d", "  %e: f32[16, 16] = dot %d, %yv, %zv {precision = ieee}\n  store %zp, %e");
    let buffers = [1, 2, 3].map(|salt| numbers("f32", 256, salt, false).0);
    agrees(&kernel(&text), &buffers, &[], 1, Agreement::Exact);
    let options = Options { num_warps: 4, ..Options::default() };
    let compiled = compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    // Behind the factors of each, and before those of the second.
    assert_eq!(count(&compiled.ptx, "bar.sync"), 3, "{}", compiled.ptx);
}

/// Lowering takes the instruction from the product, and the verifier says what it cannot be.
#[test]
fn a_product_is_computed_by_the_instruction_that_stands_on_it() {
    let case = F16.sized(16, 16, 16);
    let options = Options::default();
    let compiled =
        compile(&kernel(&case.text()), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(compiled.ptx.contains("mma.sync"), "{}", compiled.ptx);
    let by = |instruction: Option<DotInstruction>| {
        let mut func = compiled.placed.func().clone();
        for operation in func.ops.iter_mut() {
            if let Op::Dot(DotOp::Dot { by, .. }) = &mut operation.op {
                *by = instruction;
            }
        }
        Placed::new(func).unwrap_or_else(|_| panic!("a placed kernel"))
    };
    let scalar = by(Some(DotInstruction::Fma));
    assert_eq!(verify(scalar.func()), Ok(()));
    let scalar = compile_placed(&scalar, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(!scalar.ptx.contains("mma.sync"), "{}", scalar.ptx);
    assert!(scalar.ptx.contains("fma.rn.f32"), "{}", scalar.ptx);
    for wrong in [None, Some(DotInstruction::Wgmma { columns: 16 })] {
        let wrong = by(wrong);
        assert!(verify(wrong.func()).is_err());
        match compile_placed(&wrong, &Target::sm_90a(), &options) {
            // The verifier behind the passes says so first, where it runs.
            Err(CodegenError::Internal(error)) => {
                assert!(["exchanges", "lowering"].contains(&error.step.as_str()), "{error}");
            }
            other => panic!("{:?}", other.map(|compiled| compiled.ptx)),
        }
    }
}

/// A placed kernel is for the target whose instructions it names.
#[test]
fn bytes_of_floats_are_refused_where_no_instruction_multiplies_them() {
    let case = Case::of("f8e4m3", "f32").sized(16, 16, 32);
    let options = Options::default();
    let compiled = compile(&kernel(&case.text()), &Target::sm_89(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(compiled.ptx.contains("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"), "{}", compiled.ptx);
    match compile_placed(&compiled.placed, &Target::sm_80(), &options) {
        Err(CodegenError::Refused(refusal)) => assert!(refusal.what.contains("8-bit floats"), "{refusal}"),
        other => panic!("{:?}", other.map(|compiled| compiled.ptx)),
    }
}
