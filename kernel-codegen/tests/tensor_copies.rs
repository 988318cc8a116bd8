//! Tensor copies on Hopper: which descriptors get them, that placed kernels compute what was written, and the PTX.

mod support;

use kernel_codegen::checks::Class;
use kernel_codegen::{AbiParam, Compiled, MapSwizzle, Options, Target, TensorCopies, compile};
use kernel_core::interp::{HostBuffer, HostScalar, HostTensor, run_ordered, run_with_tensors};
use support::differential::{Agreement, compare, floats, ints};
use support::registers::Registers;
use support::{assemble, count, kernel};

/// Copies blocks of a matrix, moved.
const SHIFTED: &str = r#"kernel shifted "k.rs" safe bound {
  param %0 x: desc f32[16, 64] {div = 16, len_div = 4, stride_div = 4}
  param %1 out: desc_mut f32[16, 64] {div = 16, len_div = 4, stride_div = 4}
  param %2 down: i32
  param %3 right: i32 {div = 4}
  %4: i32 = program_id {axis = 0}
  %5: i32 = const 16
  %6: i32 = mul %4, %5
  %7: i32 = add %6, %2
  %8: f32[16, 64] = desc_load %0, %7, %3
  %9: i32 = const 0
  desc_store %1, %8, %6, %9
  return
}
"#;

/// Adds up blocks in a loop, every other one in a condition, and stores in a second loop.
const LOOPS: &str = r#"kernel loops "k.rs" safe bound {
  param %0 x: desc i32[8, 32] {div = 16, len_div = 4, stride_div = 4}
  param %1 out: desc_mut i32[8, 32] {div = 16, len_div = 4, stride_div = 4}
  param %2 n: i32
  param %3 m: i32
  %zero: i32 = const 0
  %one: i32 = const 1
  %eight: i32 = const 8
  %zeros: i32[8, 32] = splat %zero
  %sum: i32[8, 32] = for %zero, %2, %eight, %zeros (%i: i32, %acc: i32[8, 32]) {
    %a: i32[8, 32] = desc_load %0, %i, %zero
    %b: i32[8, 32] = add %acc, %a
    %c: i32[8, 32] = for %zero, %3, %one, %b (%j: i32, %inner: i32[8, 32]) {
      %odd: i32 = and %j, %one
      %is: bool = cmp.eq %odd, %one
      %d: i32[8, 32] = if %is {
        %e: i32[8, 32] = desc_load %0, %j, %i
        %f: i32[8, 32] = add %e, %inner
        yield %f
      } else {
        yield %inner
      }
      yield %d
    }
    yield %c
  }
  for %zero, %2, %eight {warp_specialize = true} (%at: i32) {
    desc_store %1, %sum, %at, %zero
    yield
  }
  return
}
"#;

const RANK_FIVE: &str = r#"kernel five "k.rs" safe bound {
  param %0 x: desc i32[2, 1, 2, 4, 8] {div = 16, len_div = 4, stride_div = 4}
  param %1 out: desc_mut i32[2, 1, 2, 4, 8] {div = 16, len_div = 4, stride_div = 4}
  param %2 i: i32
  param %3 j: i32
  %4: i32 = const 1
  %four: i32 = const 4
  %6: i32 = mul %3, %four
  %7: i32 = mul %2, %four
  %5: i32[2, 1, 2, 4, 8] = desc_load %0, %2, %4, %3, %2, %6
  desc_reduce %1, %5, %2, %2, %2, %2, %7 {op = add}
  return
}
"#;

/// A copy by one program of blocks of any dtype and shape.
fn copy(dtype: &str, block: &str) -> String {
    let rank = block.split(',').count();
    let coordinates = vec!["%0c"; rank].join(", ").replace("%0c", "%c");
    format!(
        "kernel copy \"k.rs\" safe bound {{
  param %x x: desc {dtype}[{block}] {{div = 16, len_div = 16, stride_div = 16}}
  param %out out: desc_mut {dtype}[{block}] {{div = 16, len_div = 16, stride_div = 16}}
  param %c c: i32 {{div = 16}}
  %v: {dtype}[{block}] = desc_load %x, {coordinates}
  desc_store %out, %v, {coordinates}
  return
}}
"
    )
}

fn compiled(text: &str, num_warps: u32) -> Compiled {
    let options = Options { num_warps, tensor_copies: TensorCopies::Always, ..Options::default() };
    compile(&kernel(text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"))
}

fn tensor(shape: &[u64], strides: &[u64]) -> HostTensor {
    HostTensor { shape: shape.to_vec(), strides: strides.to_vec(), pads_with_nan: false }
}

/// Compares the kernel as written with the placed one, whose copies land as late as they may.
fn agrees(text: &str, buffers: &[HostBuffer], tensors: &[HostTensor], scalars: &[i32], grid: u32) {
    let scalars: Vec<HostScalar> = scalars.iter().map(|&scalar| scalar.into()).collect();
    let mut expected = buffers.to_vec();
    run_with_tensors(&kernel(text), &mut expected, tensors, &scalars, [grid, 1, 1]).unwrap_or_else(|e| panic!("{e}"));
    for num_warps in [1, 4, 8] {
        let compiled = compiled(text, num_warps);
        assert!(compiled.ptx.contains("cp.async.bulk.tensor"), "{}", compiled.ptx);
        let mut found = buffers.to_vec();
        run_ordered(&compiled.placed, &mut found, tensors, &scalars, [grid, 1, 1])
            .unwrap_or_else(|error| panic!("{error}\n{}", compiled.placed_ir()));
        for (want, got) in expected.iter().zip(&found) {
            compare(want, got, Agreement::Exact, &compiled.placed_ir());
        }
    }
}

#[test]
fn blocks_inside_and_outside() {
    let buffers = [floats(4000, 1), floats(4000, 2)];
    let tensors = [tensor(&[40, 60], &[64, 1]), tensor(&[33, 64], &[68, 1])];
    for by in [[0, 0], [-7, 8], [100, 0], [0, -72]] {
        agrees(SHIFTED, &buffers, &tensors, &by, 3);
    }
}

/// Copies to memory end in any order: those of one tensor that store at several places must be known to be apart.
#[test]
fn blocks_are_stored_at_several_places_that_are_apart() {
    let stores = |first: &str, second: &str| {
        format!(
            "kernel planes \"k.rs\" safe bound {{
  param %x x: desc f32[1, 16, 32] {{div = 16, len_div = 4, stride_div = 4}}
  param %out out: desc_mut f32[1, 16, 32] {{div = 16, len_div = 4, stride_div = 4}}
  %zero: i32 = const 0
  %one: i32 = const 1
  %seven: i32 = const 7
  %sixteen: i32 = const 16
  %many: i32 = const 48
  %tiles: i32 = const 3
  for %zero, %many, %sixteen {{warp_specialize = true}} (%at: i32) {{
    %a: f32[1, 16, 32] = desc_load %x, %zero, %at, %zero
    %b: f32[1, 16, 32] = add %a, %a
    desc_store %out, %a, {first}
    desc_store %out, %b, {second}
    yield
  }}
  return
}}
"
        )
    };
    let buffers = [floats(48 * 32, 1), floats(2 * 48 * 64, 2)];
    let tensors = [tensor(&[1, 48, 32], &[48 * 32, 32, 1]), tensor(&[2, 40, 60], &[48 * 64, 64, 1])];
    for (first, second, apart) in [
        ("%zero, %at, %zero", "%one, %at, %zero", true),
        ("%one, %at, %zero", "%zero, %at, %zero", true),
        ("%zero, %at, %zero", "%zero, %at, %sixteen", false),
        ("%zero, %at, %zero", "%zero, %at, %many", true),
        ("%zero, %at, %zero", "%zero, %at, %zero", false),
        ("%zero, %at, %zero", "%zero, %sixteen, %zero", false),
        ("%zero, %zero, %zero", "%one, %at, %zero", false),
    ] {
        let text = stores(first, second);
        let is_stored = compiled(&text, 4).ptx.contains("bulk_group");
        assert_eq!(is_stored, apart, "{first} and {second}");
        agrees(&text, &buffers, &tensors, &[], 1);
    }
}

/// Who is looked for among all that is computed from a block is looked at once.
#[test]
fn long_computations_from_a_block_take_no_time() {
    let steps: String = (0..60)
        .map(|at| {
            let (from, to) = (format!("%r{at}"), format!("%r{}", at + 1));
            format!("  %s{at}: f32[64, 64] = mul {from}, {from}\n  {to}: f32[64, 64] = add %s{at}, {from}\n")
        })
        .collect();
    let text = format!(
        "kernel long \"k.rs\" unsafe bound {{
  param %x x: desc f16[64, 64] {{div = 16, len_div = 8, stride_div = 8}}
  param %y y: desc f32[64, 64] {{div = 16, len_div = 4, stride_div = 4}}
  param %out out: desc_mut f32[64, 64] {{div = 16, len_div = 4, stride_div = 4}}
  param %other other: desc_mut f32[64, 64] {{div = 16, len_div = 4, stride_div = 4}}
  param %n n: i32
  %zero: i32 = const 0
  %nothing: f32 = const 0.0
  %zeros: f32[64, 64] = splat %nothing
  %one: i32 = const 1
  %d: f32[64, 64] = for %zero, %n, %one, %zeros (%i: i32, %acc: f32[64, 64]) {{
    %a: f16[64, 64] = desc_load %x, %i, %zero
    %p: f32[64, 64] = dot %a, %a, %acc
    yield %p
  }}
  desc_store %out, %d, %zero, %zero
  %r0: f32[64, 64] = desc_load %y, %zero, %zero
{steps}  desc_store %other, %r60, %zero, %zero
  return
}}
"
    );
    let options = Options::default();
    compile(&kernel(&text), &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn phases_change_with_every_visit() {
    let buffers = [ints(2000, 1), ints(2000, 2)];
    let tensors = [tensor(&[40, 32], &[32, 1]), tensor(&[33, 32], &[36, 1])];
    for (n, m) in [(0, 3), (8, 0), (40, 1), (40, 5), (24, 2)] {
        agrees(LOOPS, &buffers, &tensors, &[n, m], 1);
    }
}

#[test]
fn tensors_of_five_dimensions_and_reductions() {
    let buffers = [ints(2000, 1), ints(2000, 2)];
    let strides = [480, 240, 64, 12, 1];
    let tensors = [tensor(&[3, 2, 3, 5, 10], &strides), tensor(&[3, 2, 2, 5, 9], &strides)];
    for by in [[0, 0], [1, 1], [-1, 2]] {
        agrees(RANK_FIVE, &buffers, &tensors, &by, 1);
    }
}

/// The map of the first parameter.
fn map(compiled: &Compiled) -> (Vec<u16>, MapSwizzle) {
    match compiled.abi.first() {
        Some(AbiParam::TensorMap(map)) => (map.shape().to_vec(), map.swizzle),
        other => panic!("{other:?}"),
    }
}

#[test]
fn blocks_are_copied_in_boxes() {
    for (dtype, block, side, swizzle, boxes) in [
        ("f16", "128, 64", vec![128, 64], MapSwizzle::Bytes128, 1),
        ("f16", "128, 128", vec![128, 64], MapSwizzle::Bytes128, 2),
        ("bf16", "64, 32", vec![64, 32], MapSwizzle::Bytes64, 1),
        ("f32", "512", vec![256], MapSwizzle::None, 2),
        ("f32", "4, 512", vec![1, 256], MapSwizzle::None, 8),
        ("f64", "16, 16", vec![16, 16], MapSwizzle::None, 1),
        ("u8", "2, 4, 8, 64", vec![2, 4, 8, 64], MapSwizzle::Bytes64, 1),
    ] {
        let compiled = compiled(&copy(dtype, block), 4);
        assert_eq!(map(&compiled), (side, swizzle), "{dtype}[{block}]");
        let rank = block.split(',').count();
        let load = format!("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes");
        let store = format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group");
        assert_eq!((count(&compiled.ptx, &load), count(&compiled.ptx, &store)), (boxes, boxes), "{}", compiled.ptx);
        // One arrival says how much will come, one group is stored and waited for.
        let once = ["mbarrier.arrive.expect_tx", "mbarrier.try_wait", "cp.async.bulk.commit_group"];
        assert_eq!(once.map(|what| count(&compiled.ptx, what)), [1; 3], "{}", compiled.ptx);
        assert_eq!(count(&compiled.ptx, "cp.async.bulk.wait_group.read 0;"), 1, "{}", compiled.ptx);
        // Copies need neither addresses nor shapes, and no access goes around them.
        assert!(compiled.abi.iter().all(|param| matches!(param, AbiParam::TensorMap(_) | AbiParam::Scalar(..))));
        assert_eq!(count(&compiled.ptx, "ld.global") + count(&compiled.ptx, "st.global"), 0, "{}", compiled.ptx);
        assert!(compiled.report().accesses.iter().all(|access| access.class == Some(Class::Described)));
        assemble(&compiled);
    }
}

/// The boxes of a block lie one behind the other in shared memory.
#[test]
fn boxes_have_places_of_their_own() {
    for (dtype, block, bytes, count) in [("f16", "128, 128", 128 * 128, 2), ("f32", "4, 512", 4 * 256, 8)] {
        let ptx = compiled(&copy(dtype, block), 4).ptx;
        let values = Registers::of(&ptx);
        for (copies, list) in [("shared::cluster.global", 0), ("global.shared::cta", 1)] {
            let place = |line: &str| Some(values.at(line.split('[').nth(1 + list)?.split(']').next()?, 0));
            let places: Vec<Option<u32>> = ptx.lines().filter(|line| line.contains(copies)).map(place).collect();
            let first = places[0].expect("an address");
            let expected: Vec<Option<u32>> = (0..count).map(|number| Some(first + number * bytes)).collect();
            assert_eq!(places, expected, "{ptx}");
        }
    }
}

/// Coordinates stand innermost first: the second of two boxes beside each other is further along the first of them.
#[test]
fn boxes_lie_along_the_innermost_dimension() {
    let ptx = compiled(&copy("f16", "128, 128"), 4).ptx;
    for copies in ["shared::cluster.global", "global.shared::cta"] {
        let coordinates = |line: &str| -> Vec<String> {
            let list = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
            list.map_or("", |(list, _)| list).split(", ").map(str::to_string).collect()
        };
        let boxes: Vec<Vec<String>> = ptx.lines().filter(|line| line.contains(copies)).map(coordinates).collect();
        let [first, second] = boxes.as_slice() else { panic!("{boxes:?}\n{ptx}") };
        assert!(first[0] == first[1] && second[1] == first[1] && second[0] != first[0], "{boxes:?}\n{ptx}");
    }
}

#[test]
fn every_kernel_assembles() {
    for text in [SHIFTED, LOOPS, RANK_FIVE] {
        for num_warps in [1, 4, 8] {
            let compiled = compiled(text, num_warps);
            let again = self::compiled(text, num_warps);
            assert_eq!(compiled.ptx, again.ptx, "compiling is deterministic");
            assert_eq!(assemble(&compiled).map_or(0, |assembled| assembled.spill_bytes), 0);
        }
    }
}

/// A barrier is made once, where the kernel begins, whatever is in loops.
#[test]
fn barriers_are_made_once() {
    let ptx = compiled(LOOPS, 4).ptx;
    assert_eq!((count(&ptx, "mbarrier.init"), count(&ptx, "fence.mbarrier_init")), (2, 1), "{ptx}");
    assert_eq!(count(&ptx, "mbarrier.try_wait"), 2, "{ptx}");
}

fn is_copied(text: &str, target: Target, tensor_copies: TensorCopies) -> bool {
    let options = Options { tensor_copies, ..Options::default() };
    let compiled = compile(&kernel(text), &target, &options).unwrap_or_else(|error| panic!("{error}"));
    compiled.ptx.contains("cp.async.bulk.tensor")
}

#[test]
fn tensors_that_the_hardware_cannot_copy_are_accessed_under_masks() {
    let always = |text: &str| is_copied(text, Target::sm_90a(), TensorCopies::Always);
    let f32s = copy("f32", "16, 64");
    assert!(always(&f32s));
    for (wrong, why) in [
        (f32s.replace("div = 16, len", "div = 8, len"), "the address"),
        (f32s.replace("stride_div = 16", "stride_div = 2"), "the strides"),
        (f32s.replace("c: i32 {div = 16}", "c: i32 {div = 2}"), "where blocks begin in their rows"),
        (copy("f32", "16, 2"), "rows of less than 16 bytes"),
        (copy("f8e4m3", "16, 64").replace("stride_div = 16}", "stride_div = 16, pad_nan}"), "bytes of NaN"),
        (
            f32s.replace("x: desc f32", "x: desc_mut f32").replace("desc_store %out", "desc_store %x"),
            "read and written",
        ),
        (
            f32s.replace("  return", "  desc_store %out, %v, %c, %c\n  return")
                .replace("x: desc f32[16, 64] {div = 16, ", "x: desc f32[16, 64] {"),
            "stored to at two places",
        ),
    ] {
        assert!(!always(&wrong), "{why}");
    }
    for target in Target::all() {
        assert!(!is_copied(&f32s, target, TensorCopies::Never));
        assert!(!is_copied(&f32s, target, TensorCopies::NearProducts), "there is no product");
        assert_eq!(is_copied(&f32s, target, TensorCopies::Always), target.name().starts_with("sm_90"));
    }
}

/// What only stores are told by: the hardware writes whole units of 16 bytes, and has the minimum of whole numbers.
#[test]
fn what_is_stored_asks_more_of_the_hardware_than_what_is_loaded() {
    let stores = |text: &str| {
        let ptx = compiled(text, 4).ptx;
        assert!(ptx.contains("complete_tx"), "the block is loaded by the hardware: {ptx}");
        ptx.contains("bulk_group")
    };
    for (dtype, lens) in [("f32", [2, 4]), ("f16", [4, 8]), ("i64", [1, 2])] {
        for len in lens {
            let facts = |len: i32| format!("out: desc_mut {dtype}[16, 64] {{div = 16, len_div = {len},");
            let text = copy(dtype, "16, 64").replace(&facts(16), &facts(len));
            assert_eq!(stores(&text), len == lens[1], "rows of a multiple of {len} {dtype}");
        }
    }
    for (op, dtype, can) in [
        ("add", "f16", true),
        ("add", "i64", false),
        ("min", "i32", true),
        ("max", "u64", true),
        ("min", "f16", false),
        ("max", "bf16", false),
        ("min", "f32", false),
        ("xor", "i32", true),
    ] {
        let reduce = format!("desc_reduce %out, %v, %c, %c {{op = {op}}}");
        let text = copy(dtype, "16, 64").replace("desc_store %out, %v, %c, %c", &reduce);
        assert_eq!(stores(&text), can, "{op} of {dtype}");
    }
}

/// A store in a loop is not copied where iterations may store to the same elements: copies could land in any order.
#[test]
fn stores_to_one_place_keep_their_order() {
    let stays = LOOPS.replace("desc_store %1, %sum, %at, %zero", "desc_store %1, %sum, %zero, %zero");
    let unmarked = LOOPS.replace(" {warp_specialize = true}", "");
    let overlaps = unmarked.replace("for %zero, %2, %eight (%at", "for %zero, %2, %one (%at");
    for text in [stays, unmarked, overlaps] {
        let ptx = compiled(&text, 4).ptx;
        assert!(ptx.contains("complete_tx") && !ptx.contains("bulk_group"), "{ptx}");
    }
    assert!(compiled(LOOPS, 4).ptx.contains("bulk_group"));
}
