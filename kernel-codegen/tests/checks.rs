//! Bounds checks: which accesses are decided at launch, by which condition, and which are checked per lane.

mod support;

use kernel_codegen::checks::{CheckPlan, Checks, Class, Lacks, LaunchEnv, Open, Origin, Unbounded};
use kernel_core::ir::{Func, MemoryOp, Op, ParamId, Span};
use kernel_core::text;
use support::checked::{Launch, MASKED, classes, holds, prepare};

fn checks_in(func: &Func) -> usize {
    func.ops.iter().filter(|op| matches!(op.op, Op::Memory(MemoryOp::CheckBounds { .. }))).count()
}

#[test]
fn a_masked_copy_is_decided_by_the_mask() {
    let launch =
        |n, x, out, grid| holds(&MASKED, &Launch { scalars: &[None, None, Some(n)], lengths: &[x, out, 0], grid });
    assert!(launch(100, 100, 100, 2));
    assert!(launch(100, 100, 100, 1000), "programs beyond the end are masked");
    assert!(!launch(100, 99, 100, 2));
    assert!(!launch(100, 100, 99, 2));
    assert!(launch(0, 0, 0, 5) && launch(-7, 0, 0, 5));
    assert!(launch(i128::from(i32::MAX), 1 << 31, 1 << 31, 1 << 25), "the last offset is i32::MAX");
    assert!(!launch(i128::from(i32::MAX), 1 << 31, 1 << 31, (1 << 25) + 1), "an offset may wrap");
}

#[test]
fn the_fast_variant_has_no_checks_and_the_other_has_all() {
    let (fast, _) = prepare(&MASKED, Checks::AtLaunch);
    assert_eq!(checks_in(&fast), 0);
    let (checked, plan) = prepare(&MASKED, Checks::EveryAccess);
    assert_eq!(checks_in(&checked), 2);
    assert!(plan.conditions.is_empty());
    let (unchecked, plan) = prepare(&MASKED.replace(" safe ", " unsafe "), Checks::EveryAccess);
    assert_eq!(checks_in(&unchecked), 0);
    assert!(plan.accesses.is_empty());
}

/// Offsets that come from `index`, whose elements lack these bounds.
fn loaded(lacks: Lacks) -> Class {
    let origin = Origin::Loaded(ParamId::new(0));
    Class::Residual(Open::Unbounded(Unbounded { lacks, origin, span: Span::UNKNOWN }))
}

/// `y = table[index[i]]`, with the mask `i < n`, and with `clamped` in front of the gather.
fn gather(dtype: &str, clamp: &str) -> String {
    format!(
        r#"kernel gather "k.rs" safe bound {{
  param %0 index: ptr {dtype}
  param %1 table: ptr f32
  param %2 n: {dtype}
  %7: i32[64] = arange {{lo = 0, hi = 64}}
  %11: *index[64] = splat %0
  %12: *index[64] = add_ptr %11, %7
  %13: {dtype}[64] = load %12
  %14: {dtype}[64] = splat %2
  {clamp}
  %21: *table[64] = splat %1
  %22: *table[64] = add_ptr %21, %13
  %23: f32[64] = load %22, %m
  return
}}
"#
    )
}

#[test]
fn a_gather_by_data_is_checked_per_lane() {
    let free = gather("i32", "%t: bool = const true\n  %m: bool[64] = splat %t");
    assert_eq!(classes(&free), [Class::LaunchCondition, loaded(Lacks::Both)]);
    let (func, plan) = prepare(&free, Checks::AtLaunch);
    assert_eq!(checks_in(&func), 1);
    // No launch evaluates what the gather's offsets would be: the positions in `index` are one interval.
    assert_eq!(plan.conditions.nodes().len(), 1, "{:?}", plan.conditions);
    // An upper bound alone does not keep a negative index out.
    assert_eq!(classes(&gather("i32", "%m: bool[64] = cmp.lt %13, %14"))[1], loaded(Lacks::Below));
}

#[test]
fn a_gather_whose_mask_bounds_it_is_decided_at_launch() {
    let both = "%z: i32 = const 0\n  %zs: i32[64] = splat %z\n  %a: bool[64] = cmp.lt %13, %14\n  \
                %b: bool[64] = cmp.ge %13, %zs\n  %m: bool[64] = and %a, %b";
    let source = gather("i32", both);
    assert_eq!(classes(&source)[1], Class::LaunchCondition);
    assert!(holds(&source, &Launch { scalars: &[None, None, Some(10)], lengths: &[64, 10, 0], grid: 1 }));
    assert!(!holds(&source, &Launch { scalars: &[None, None, Some(11)], lengths: &[64, 10, 0], grid: 1 }));
    // Unsigned indices need the upper bound only, and bytes none at all.
    let unsigned = gather("u32", "%m: bool[64] = cmp.lt %13, %14");
    assert!(holds(&unsigned, &Launch { scalars: &[None, None, Some(10)], lengths: &[64, 10, 0], grid: 1 }));
    let bytes = gather("u8", "%t: bool = const true\n  %m: bool[64] = splat %t");
    assert!(holds(&bytes, &Launch { scalars: &[None, None, Some(0)], lengths: &[64, 256, 0], grid: 1 }));
    assert!(!holds(&bytes, &Launch { scalars: &[None, None, Some(0)], lengths: &[64, 255, 0], grid: 1 }));
}

#[test]
fn bits_that_a_shift_leaves_bound_an_index() {
    let shifted = |count: u32| {
        let shift = format!(
            "%t: bool = const true\n  %m: bool[64] = splat %t\n  %s: u32 = const {count}\n  %ss: u32[64] = splat %s\n  \
             %w: u32[64] = shr %13, %ss"
        );
        gather("u32", &shift).replace("add_ptr %21, %13", "add_ptr %21, %w")
    };
    assert!(holds(&shifted(26), &Launch { scalars: &[None, None, Some(0)], lengths: &[64, 64, 0], grid: 1 }));
    assert!(!holds(&shifted(26), &Launch { scalars: &[None, None, Some(0)], lengths: &[64, 63, 0], grid: 1 }));
    assert_eq!(classes(&shifted(2))[1], loaded(Lacks::Above));
}

/// `cache[(id * n + lengths[id] % n) * 16 + lane] = lane`: the row after a ring's last, or what else the offsets are.
fn ring(mended: &str) -> String {
    format!(
        r#"kernel ring "k.rs" safe bound {{
  param %0 lengths: ptr i32
  param %1 cache: ptr_mut i32
  param %2 n: i32
  %3: i32 = program_id {{axis = 0}}
  %4: *lengths = add_ptr %0, %3
  %5: i32 = load %4
  %6: i32 = rem %5, %2
  {mended}
  %7: i32 = mul %3, %2
  %8: i32 = add %7, %m
  %9: i32 = const 16
  %10: i32 = mul %8, %9
  %11: i32[16] = arange {{lo = 0, hi = 16}}
  %12: i32[16] = splat %10
  %13: i32[16] = add %12, %11
  %14: *cache[16] = splat %1
  %15: *cache[16] = add_ptr %14, %13
  store %15, %11
  return
}}
"#
    )
}

#[test]
fn remainders_whose_sign_is_data_are_checked_per_lane() {
    // No launch could show that the first program's row is not negative. What begins at zero does not mend it.
    let bare = ring("%z: i32 = const 0\n  %m: i32 = add %z, %6");
    assert_eq!(classes(&bare), [Class::LaunchCondition, Class::Residual(Open::Sign)]);
    let launch = Launch { scalars: &[None, None, Some(8)], lengths: &[3, 3 * 8 * 16, 0], grid: 3 };
    let env = LaunchEnv { scalars: launch.scalars, lengths: launch.lengths, grid: [3, 1, 1] };
    assert!(prepare(&bare, Checks::AtLaunch).1.conditions.hold(&env));
    // Here all launches show it.
    let mended = ring("%s: i32 = add %6, %2\n  %m: i32 = rem %s, %2");
    assert_eq!(classes(&mended), [Class::LaunchCondition; 2]);
    assert!(holds(&mended, &launch));
    assert!(!holds(&mended, &Launch { lengths: &[3, 3 * 8 * 16 - 1, 0], ..launch }));
}

/// A row that wraps around: `x[(program_id(0) * 64 + arange(0, 64)) % n]`, or what else the offsets are.
fn wrapped(offsets: &str) -> String {
    MASKED
        .replace("  %12: *x[64] = add_ptr %11, %8", &format!("  {offsets}\n  %12: *x[64] = add_ptr %11, %w"))
        .replace("load %12, %10", "load %12")
}

fn divisions_without_sign(func: &Func) -> usize {
    let has_no_sign = |value| func.ty(value).dtype().is_some_and(|dtype| !dtype.is_signed_int());
    let divides = |op: &Op| {
        *op == Op::binary(kernel_core::ir::BinaryOp::Rem) || *op == Op::binary(kernel_core::ir::BinaryOp::Div)
    };
    func.ops.iter().filter(|op| divides(&op.op) && has_no_sign(op.results[0])).count()
}

#[test]
fn what_a_launch_shows_not_to_be_negative_is_divided_without_signs() {
    let source = wrapped("%w: i32[64] = rem %8, %9");
    let (fast, plan) = prepare(&source, Checks::AtLaunch);
    assert_eq!((divisions_without_sign(&fast), checks_in(&fast)), (1, 0));
    let holds = |plan: &CheckPlan, n, len, grid| {
        plan.conditions.hold(&LaunchEnv {
            scalars: &[None, None, Some(n)],
            lengths: &[len, len, 0],
            grid: [grid, 1, 1],
        })
    };
    assert!(holds(&plan, 100, 100, 1000));
    assert!(holds(&plan, i128::from(i32::MAX), 1 << 31, 1 << 25), "the last dividend is i32::MAX");
    assert!(!holds(&plan, i128::from(i32::MAX), 1 << 31, (1 << 25) + 1), "a dividend may wrap");
    assert!(!holds(&plan, -1, 1 << 31, 1), "a divisor with a sign");
    // The other variant, and a kernel that promises everything itself, divide as they are written.
    assert_eq!(divisions_without_sign(&prepare(&source, Checks::EveryAccess).0), 0);
    let promised = source.replace(" safe ", " unsafe ");
    assert_eq!(divisions_without_sign(&prepare(&promised, Checks::AtLaunch).0), 0);
}

/// A loop whose offsets are products of 32 bits, converted, and moved up by `ahead`, if that is not zero.
fn scaled(ahead: i64) -> String {
    format!(
        r#"kernel scaled "k.rs" safe bound {{
  param %0 x: ptr f32
  param %1 n: i32
  param %2 k: i32
  %3: i32 = const 0
  %4: i32 = const 16
  %5: i32[16] = arange {{lo = 0, hi = 16}}
  %6: i64 = const {ahead}
  %7: i64[16] = splat %6
  %8: i32[16] = splat %1
  for %3, %2, %4 (%9: i32) {{
    %10: i32[16] = splat %9
    %11: i32[16] = add %10, %5
    %12: i32[16] = mul %11, %8
    %13: i64[16] = cast %12
    %14: i64[16] = add %13, %7
    %15: *x[16] = splat %0
    %16: *x[16] = add_ptr %15, %14
    %17: f32[16] = load %16
    yield
  }}
  return
}}
"#
    )
}

#[test]
fn offsets_that_wrap_in_a_loop_are_not_trusted_even_where_they_stay_inside() {
    let half = 1i128 << 31;
    let claims = |func: &Func| text::print(func).contains("no_wrap = true");
    let launch = |ahead: i64, n: i128, k: i128, len: u64| {
        let (func, plan) = prepare(&scaled(ahead), Checks::AtLaunch);
        assert!(claims(&func));
        plan.conditions.hold(&LaunchEnv { scalars: &[None, Some(n), Some(k)], lengths: &[len, 0, 0], grid: [1, 1, 1] })
    };
    // The last step of the counter is 48, and its lanes go up to 15 more.
    assert!(launch(0, 1000, 64, 63_001));
    assert!(!launch(0, 1000, 64, 63_000));
    assert!(!launch(0, 1 << 26, 64, 1 << 40), "it may wrap to a negative number");
    // Moved up by enough, what has wrapped lies in the buffer too.
    assert!(launch(half as i64, 1000, 64, 1 << 40));
    assert!(!launch(half as i64, 1 << 26, 64, 1 << 40));
    assert!(!claims(&prepare(&scaled(0), Checks::EveryAccess).0));
    assert!(!claims(&prepare(&scaled(0).replace(" safe ", " unsafe "), Checks::AtLaunch).0));
}

#[test]
fn nothing_is_demanded_of_divisions_that_may_well_have_signs() {
    // `(i - n) % n + n` has a negative dividend, and the launch keeps its fast variant.
    let shifted = wrapped(
        "%d: i32[64] = sub %8, %9\n  %r: i32[64] = rem %d, %9\n  %s: i32[64] = add %r, %9\n  \
         %w: i32[64] = div %s, %9",
    );
    let (fast, plan) = prepare(&shifted, Checks::AtLaunch);
    assert_eq!(divisions_without_sign(&fast), 0);
    let env = LaunchEnv { scalars: &[None, None, Some(100)], lengths: &[100, 100, 0], grid: [2, 1, 1] };
    assert!(plan.conditions.hold(&env));
    // What no address depends on is nobody's condition.
    let beside = wrapped("%d: i32[64] = rem %8, %9\n  %w: i32[64] = add %7, %7");
    assert_eq!(divisions_without_sign(&prepare(&beside, Checks::AtLaunch).0), 0);
}

/// Rows of a matrix: the mask bounds rows and columns apart, the offset is `row * stride + column`.
fn matrix(mask: &str) -> String {
    format!(
        r#"kernel matrix "k.rs" safe bound {{
  param %0 x: ptr f32
  param %1 m: i32
  param %2 n: i32
  %3: i32[16] = arange {{lo = 0, hi = 16}}
  %4: i32[16, 1] = expand_dims %3 {{axis = 1}}
  %5: i32[1, 16] = expand_dims %3 {{axis = 0}}
  %6: i32[16, 1] = splat %2
  %7: i32[16, 1] = mul %4, %6
  %8: i32[16, 16] = broadcast %7
  %9: i32[16, 16] = broadcast %5
  %10: i32[16, 16] = add %8, %9
  %11: i32[16, 1] = splat %1
  %12: bool[16, 1] = cmp.lt %4, %11
  %13: i32[1, 16] = splat %2
  %14: bool[1, 16] = cmp.lt %5, %13
  %15: bool[16, 16] = broadcast %12
  %16: bool[16, 16] = broadcast %14
  {mask}
  %20: *x[16, 16] = splat %0
  %21: *x[16, 16] = add_ptr %20, %10
  %22: f32[16, 16] = load %21, %17
  return
}}
"#
    )
}

#[test]
fn masks_of_rows_and_columns_hold_for_their_own_axis_only() {
    let both = matrix("%17: bool[16, 16] = and %15, %16");
    let launch = |source: &str, m, n, len| {
        holds(source, &Launch { scalars: &[None, Some(m), Some(n)], lengths: &[len, 0, 0], grid: 1 })
    };
    assert!(launch(&both, 3, 5, 15));
    assert!(!launch(&both, 3, 5, 14));
    // Rows and columns are one value, `arange`: the rows' mask must not bound the columns.
    let rows_only = matrix("%17: bool[16, 16] = and %15, %15");
    assert!(!launch(&rows_only, 3, 5, 15), "columns reach 15 in row 2: offset 25");
    assert!(launch(&rows_only, 3, 5, 26));
}

/// A loop that carries a pointer: `x += 16` on each iteration, from an `i` of `%1` to below `%2`.
const CARRIED: &str = r#"kernel walk "k.rs" safe bound {
  param %0 x: ptr f32
  param %1 lo: i32
  param %2 hi: i32
  %3: i32 = const 4
  %4: i32 = const 16
  %5: i32[16] = arange {lo = 0, hi = 16}
  %6: *x = for %1, %2, %3, %0 (%i: i32, %p: *x) {
    %7: *x[16] = splat %p
    %8: *x[16] = add_ptr %7, %5
    %9: f32[16] = load %8
    %10: *x = add_ptr %p, %4
    yield %10
  }
  %11: f32 = load %6
  return
}
"#;

#[test]
fn a_carried_pointer_is_an_induction() {
    let launch =
        |lo, hi, len| holds(CARRIED, &Launch { scalars: &[None, Some(lo), Some(hi)], lengths: &[len, 0, 0], grid: 1 });
    // Ten in steps of four are three iterations: 48 elements in the loop, and number 48 after it.
    assert!(launch(0, 10, 49));
    assert!(!launch(0, 10, 48));
    assert!(launch(5, 5, 16) && launch(7, 5, 16), "without an iteration only the first element is read");
    let (func, _) = prepare(CARRIED, Checks::AtLaunch);
    let printed = text::print(&func);
    assert!(printed.contains("for %1, %2"), "{printed}");
    assert!(
        !printed.contains("%p: *x") && !printed.contains(": *x = for"),
        "offsets are carried, not pointers:\n{printed}"
    );
}

const BRANCH: &str = r#"kernel branch "k.rs" safe bound {
  param %0 x: ptr_mut f32
  param %1 n: i32
  %2: i32 = program_id {axis = 0}
  %3: bool = cmp.lt %2, %1
  %4: *x = add_ptr %0, %2
  %5: f32 = const 1.0
  if %3 {
    store %4, %5
    yield
  } else {
    yield
  }
  return
}
"#;

#[test]
fn the_condition_of_a_branch_holds_inside_it() {
    let launch = |n, len, grid| holds(BRANCH, &Launch { scalars: &[None, Some(n)], lengths: &[len, 0], grid });
    assert!(launch(5, 5, 100));
    assert!(!launch(6, 5, 100));
    assert!(launch(6, 5, 5));
}

#[test]
fn a_loop_over_rows_is_decided_at_launch() {
    let text = include_str!("kernels/persistent.tile");
    let launch = |rows, columns, length, grid| {
        let scalars = [None, None, Some(rows), Some(columns)];
        holds(text, &Launch { scalars: &scalars, lengths: &[length, length, 0, 0], grid })
    };
    assert!(launch(1000, 240, 240_000, 132));
    assert!(launch(1000, 240, 240_000, 5000), "programs beyond the last row do nothing");
    assert!(!launch(1000, 240, 239_999, 132), "the last element of the last row");
    assert!(launch(0, 240, 0, 132) && launch(1000, 0, 0, 132));
    // An offset of the last row wraps.
    assert!(!launch(1 << 24, 256, 1 << 33, 132));
}

/// A loop over whole blocks without a mask needs a buffer of whole blocks, and not more.
#[test]
fn a_loop_over_whole_blocks_fits_their_buffer() {
    let text = |from: &str, step: &str| {
        format!(
            r#"kernel blocks "k.rs" safe bound {{
  param %x x: ptr f32
  param %out out: ptr_mut f32
  param %n n: i32
  %zero: i32 = const 0
  %size: i32 = const 64
  %pid: i32 = program_id {{axis = 0}}
  %programs: i32 = num_programs {{axis = 0}}
  %mine: i32 = mul %pid, %size
  %stride: i32 = mul %programs, %size
  %lanes: i32[64] = arange {{lo = 0, hi = 64}}
  %xs: *x[64] = splat %x
  %os: *out[64] = splat %out
  for {from}, %n, {step} (%k: i32) {{
    %ks: i32[64] = splat %k
    %at: i32[64] = add %ks, %lanes
    %xp: *x[64] = add_ptr %xs, %at
    %v: f32[64] = load %xp
    %op: *out[64] = add_ptr %os, %at
    store %op, %v
    yield
  }}
  return
}}
"#
        )
    };
    for (from, step, grid) in [("%zero", "%size", 1), ("%mine", "%stride", 5), ("%mine", "%size", 5)] {
        let text = text(from, step);
        let launch =
            |n, length| holds(&text, &Launch { scalars: &[None, None, Some(n)], lengths: &[length, length, 0], grid });
        assert!(launch(640, 640) && launch(64, 64) && launch(0, 0), "{from} {step}");
        assert!(!launch(640, 639), "{from} {step}");
        assert!(!launch(641, 641) && !launch(641, 703) && launch(641, 704), "{from} {step}: a block more");
    }
    // Blocks that begin elsewhere end elsewhere.
    let shifted = text("%programs", "%size");
    let launch = |n, length| {
        holds(&shifted, &Launch { scalars: &[None, None, Some(n)], lengths: &[length, length, 0], grid: 3 })
    };
    assert!(launch(67, 67) && !launch(67, 66) && launch(64, 67) && !launch(68, 130) && launch(68, 131));
}

/// A sum of products, in a loop from `from` to `to`.
fn summed(from: &str, to: &str) -> String {
    format!(
        r#"kernel summed "k.rs" safe bound {{
  param %a a: desc f16[64, 64]
  param %c c: desc_mut f32[64, 64]
  param %n n: i32
  param %k k: i32
  %zero: i32 = const 0
  %size: i32 = const 64
  %tile: i32 = program_id {{axis = 0}}
  %nothing: f32 = const 0.0
  %zeros: f32[64, 64] = splat %nothing
  %sum: f32[64, 64] = for {from}, {to}, %size, %zeros (%t: i32, %acc: f32[64, 64]) {{
    %x: f16[64, 64] = desc_load %a, %zero, %t
    %d: f32[64, 64] = dot %x, %x, %acc {{precision = tf32}}
    yield %d
  }}
  desc_store %c, %sum, %zero, %zero
  return
}}
"#
    )
}

#[test]
fn loops_of_products_are_shown_to_run() {
    let marked = |source: &str, checks| text::print(&prepare(source, checks).0).contains("runs = true");
    let holds = |source: &str, n: i128, k: i128| {
        let (_, plan) = prepare(source, Checks::AtLaunch);
        plan.conditions.hold(&LaunchEnv { scalars: &[None, None, Some(n), Some(k)], lengths: &[0; 4], grid: [1, 1, 1] })
    };
    let source = summed("%zero", "%k");
    assert!(marked(&source, Checks::AtLaunch));
    assert!(!marked(&source, Checks::EveryAccess), "the other variant is for launches whose loops may not run");
    assert!(holds(&source, 0, 1) && holds(&source, 0, 64) && !holds(&source, 0, 0) && !holds(&source, 0, -1));
    let promised = source.replace(" safe ", " unsafe ");
    assert!(!marked(&promised, Checks::AtLaunch) && holds(&promised, 0, 0), "nothing is asked of its launches");
    let between = summed("%n", "%k");
    assert!(marked(&between, Checks::AtLaunch) && holds(&between, 3, 4) && !holds(&between, 4, 4));
    // No launch is asked about what is known, or differs from program to program.
    assert!(marked(&summed("%zero", "%size"), Checks::AtLaunch) && holds(&summed("%zero", "%size"), 0, 0));
    for source in [summed("%zero", "%tile"), summed("%tile", "%k"), summed("%size", "%size")] {
        assert!(!marked(&source, Checks::AtLaunch) && holds(&source, 0, 0), "{source}");
    }
}
