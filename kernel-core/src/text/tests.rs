use std::collections::HashSet;

use super::{parse, print, print_without_spans};
use crate::ir::{
    BinaryOp, Builder, CmpOp, CreateOp, DType, Func, Level, Literal, Op, ParamKind, Safety, Span, UnaryOp,
};
use crate::math::FloatIntFn;

const GENERIC: &str = r#"kernel add "src/main.rs" safe generic {
  dtype T: Num
  dtype "f32": Float
  const BLOCK: usize
  const "limits::WIDTH": i32
  const FLAG: bool
  param %0 x: ptr T @3:5+1
  param %1 out: ptr_mut T @3:15+3
  param %2 n: i32
  param %3 eps: const "f32"
  %4: i32 = program_id {axis = 0} @7:10+13
  %5: i32 = const_expr 2 * BLOCK * "limits::WIDTH" - (BLOCK / (-BLOCK + 3)) + min(-"limits::WIDTH" + 4, (BLOCK % 5)) - 1
  %6: i32[BLOCK] = arange {lo = 0, hi = BLOCK}
  %7: i32[BLOCK] = splat %5
  %8: i32[BLOCK] = add contract %6, %7 @7:10+13
  %9: *x[BLOCK] = splat %0
  %10: *x[BLOCK] = add_ptr %9, %8
  %11: T[BLOCK] = load %10 {eviction = evict_first}
  %12: "f32" = limit {kind = neg_infinity}
  %13: "f32" = const -0.0
  %14: "f32" = const 1e-40
  %15: "f32" = const inf
  %16: "f32" = const -inf
  %17: "f32" = const nan
  %18: "f32" = const nan(0xfff0000000000001)
  %19: u64 = const 18446744073709551615
  %20: i64 = const -9223372036854775808
  %21: bool = const true
  static_assert %21 {message = "quote \" back \\ line \n bell \u{7} é"}
  %22: f16[BLOCK] = cast %11
  %23: "f32", %24: i32 = for %2, %2, %2, %12, %2 {unroll = full, stages = 3} @9:1+3 (%25: i32, %26: "f32", %27: i32) {
    %28: i32 = if %21 {
      yield %25
    } else {
      yield %27
    }
    yield %26, %28
  }
  %29: i32 = while %2 (%30: i32) {
    %31: bool = cmp.lt %30, %2
    yield %31
  } do (%32: i32) {
    %33: i32 = neg %32
    yield %33
  }
  %34: i32 = reduce %8 {axis = 0} (%35: i32, %36: i32) {
    %37: i32 = maximum %35, %36
    yield %37
  }
  return
}
"#;

const PLACED: &str = r#"kernel "r#type" "" unsafe placed {
  param %0 x: ptr f16 {div = 16, len_div = 8}
  param %1 n: i32 {one}
  param %2 report: report_slot
  param %3 x_len: length x
  layout #0 = register [1] [2], lane [4] [8] [16] [32] [64], warp, block -> dim0 128
  layout #1 = register, lane [0, 1] [2, 0] -> dim1 4, dim0 2
  layout #2 = ->
  %4: i32[128] #0 = arange {lo = 0, hi = 128}
  %5: i32[128] #0 = convert_layout %4
  %6: shared f16[2, 128] = shared_alloc
  %7: barrier[4] = mbarrier_alloc {slots = 4, count = 1}
  %8: token = async_commit
  %9: token = async_wait %8 {pending = 0}
  warp_groups {warps = [4, 4], roles = [consumer, producer], registers = [40, 232]} {
    fence {kind = proxy_async}
    barrier
    yield
  } with {
    yield
  }
  return
}
"#;

#[test]
fn text_at_every_level_reads_back_as_itself() {
    for text in [GENERIC, PLACED] {
        let func = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(print(&func), text);
        assert_eq!(parse(&print(&func)), Ok(func));
    }
}

#[test]
fn values_are_numbered_in_the_order_of_their_definitions() {
    let mut func = Func::new("demo", "demo.rs", Safety::Safe);
    func.add_param("n", ParamKind::Scalar(DType::I32.into()), Span::UNKNOWN);
    let body = func.body;
    let mut b = Builder::new(&mut func, body);
    b.one(Op::i32(7), &[], Span::UNKNOWN).unwrap();
    let two = b.one(Op::i32(2), &[], Span::new(1, 2, 3)).unwrap();
    b.one(Op::binary(BinaryOp::Add), &[two, two], Span::UNKNOWN).unwrap();
    // The first constant dies; the numbers close up.
    func.regions[body.index()].ops.remove(0);
    let want = r#"kernel demo "demo.rs" safe generic {
  param %0 n: i32
  %1: i32 = const 2 @1:2+3
  %2: i32 = add %1, %1
}
"#;
    assert_eq!(print(&func), want);
    assert!(print_without_spans(&func).starts_with("kernel demo \"\" safe"));
    assert!(!print_without_spans(&func).contains('@'));
}

#[test]
fn places_in_other_files_name_them() {
    let text = r#"kernel demo "demo.rs" safe generic {
  file f1 = "dep/src/lib.rs"
  file f2 = "a \"b\".rs"
  param %0 n: i32 @1:2+3
  %1: i32 = neg %0 @f1:4:5+6
  %2: i32 = neg %1 @f2:7:8+9
}
"#;
    let func = parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(print(&func), text);
    assert_eq!(parse(&print(&func)), Ok(func.clone()));
    let places: Vec<String> = func.ops.iter().map(|operation| func.files.place(operation.span)).collect();
    assert_eq!(places, ["dep/src/lib.rs:4:5", "a \"b\".rs:7:8"]);
    assert!(!print_without_spans(&func).contains("file"));
}

#[test]
fn places_name_the_calls_that_led_to_them() {
    let text = r#"kernel demo "demo.rs" safe generic {
  file f1 = "dep/src/lib.rs"
  call c1 @9:1+4
  call c2 @c1:f1:5:2+4
  param %0 n: i32 @1:2+3
  %1: i32 = neg %0 @c1:4:5+6
  %2: i32 = neg %1 @c2:f1:7:8+9
}
"#;
    let func = parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(print(&func), text);
    assert_eq!(parse(&print(&func)), Ok(func.clone()));
    let calls =
        |op: usize| func.files.calls_to(func.ops[op].span).map(|call| func.files.place(call)).collect::<Vec<_>>();
    assert_eq!(
        (calls(0), calls(1)),
        (vec!["demo.rs:9:1".into()], vec!["dep/src/lib.rs:5:2".into(), "demo.rs:9:1".into()])
    );
    assert!(!print_without_spans(&func).contains("call"));
    for (from, to, error) in [
        ("call c2 @c1", "call c2 @c2", "there is no call c2"),
        ("call c2", "call c3", "calls are numbered in order; the next is c2"),
        ("call c2 @c1:f1:5:2+4", "call c2 @9:1+4", "that is c1"),
        ("@c1:4:5", "@c:4:5", "a call (`c1`)"),
    ] {
        let found = parse(&text.replace(from, to)).expect_err(to).to_string();
        assert!(found.contains(error), "{to}: {found}");
    }
}

#[test]
fn no_two_operations_share_a_name() {
    let ops = Op::rows().map(|row| row.mnemonic).filter(|m| !["unary", "binary", "float_int", "compare"].contains(m));
    let own = UnaryOp::ALL.iter().map(|op| op.name()).chain(BinaryOp::ALL.iter().map(|op| op.name()));
    let own = own.chain(FloatIntFn::ALL.iter().map(|op| op.name()));
    let mut seen = HashSet::new();
    for name in ops.chain(own) {
        assert!(seen.insert(name), "{name}");
        assert!(!["else", "do", "with", "contract", "dtype", "param", "layout"].contains(&name), "{name}");
        assert!(!name.starts_with("cmp."));
    }
    assert_eq!(CmpOp::ALL.len(), 6);
}

#[test]
fn every_float_keeps_its_bits() {
    let patterns = [0, 1, 0x8000_0000_0000_0000, 0x3fb9_9999_9999_999a, 0x7ff0_0000_0000_0001, 0xffff_ffff_ffff_ffff];
    let spread = (0..2000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for bits in patterns.into_iter().chain(spread) {
        let mut func = Func::new("f", "", Safety::Safe);
        let body = func.body;
        let value = Literal::Float(bits);
        let op = Op::Create(CreateOp::Const { value, dtype: DType::F64.into() });
        Builder::new(&mut func, body).one(op.clone(), &[], Span::UNKNOWN).unwrap();
        let again = parse(&print(&func)).unwrap();
        assert_eq!(again.ops[0].op, op, "{bits:#x}");
    }
}

#[test]
fn errors_name_line_and_column() {
    let cases = [
        ("", "1:1: expected `kernel`, found the end of the text"),
        ("kernel k \"\" safe generic {\n  %0: i32 = neg %1\n}", "2:17: `%1` is not defined"),
        ("kernel k \"\" safe generic {\n  %0: i3 = const 1\n}", "2:7: `i3` is neither a dtype nor a dtype parameter"),
        ("kernel k \"\" safe generic {\n  frobnicate\n}", "2:3: there is no operation `frobnicate`"),
        ("kernel k \"\" safe generic {\n  %0: i32[N] = arange\n}", "2:11: no constexpr is named `N`"),
        (
            "kernel k \"\" safe generic {\n  %0: i32 = program_id {axi = 0}\n}",
            "2:25: expected attribute `axis`, found `axi`",
        ),
        (
            "kernel k \"\" safe generic {\n  return {x = 1}\n}",
            "2:11: expected `}` after the operation's attributes, found `x`",
        ),
        ("kernel k \"", "1:10: expected the source file in quotes, found text that is no token"),
        (
            "kernel k \"\" safe generic { %0: i64 = const 9999999999999999999999999999999999999999 }",
            "1:44: expected a number in range, found `9999999999999999999999999999999999999999`",
        ),
        ("kernel k \"\" safe generic { } ü", "1:30: expected the end of the text, found text that is no token"),
    ];
    for (text, want) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), want);
    }
}

#[test]
fn deep_nesting_is_refused_before_the_stack_ends() {
    let regions = format!("kernel k \"\" safe generic {{ %0: bool = const true {}", "if %0 { ".repeat(100_000));
    assert!(parse(&regions).unwrap_err().message.contains("nest"));
    let dims = format!("kernel k \"\" safe generic {{ %0: i32 = const_expr {}", "(".repeat(100_000));
    assert!(parse(&dims).unwrap_err().message.contains("nest"));
}

/// A small generator of numbers, so that the mutations are the same in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn no_text_makes_the_parser_panic() {
    let mut rng = Lcg(1);
    for text in [GENERIC, PLACED] {
        let chars: Vec<char> = text.chars().collect();
        let pieces: Vec<&str> = text.split_inclusive([' ', '\n', '[', '(', '{']).collect();
        for round in 0..3000 {
            let mutated: String = if round % 2 == 0 {
                let mut chars = chars.clone();
                for _ in 0..1 + rng.below(4) {
                    let at = rng.below(chars.len());
                    match rng.below(3) {
                        0 => chars[at] = chars[rng.below(chars.len())],
                        1 => drop(chars.remove(at)),
                        _ => chars.insert(at, ['"', '\\', '%', '-', '9', 'é', '{', ';'][rng.below(8)]),
                    }
                }
                chars.into_iter().collect()
            } else {
                let mut pieces = pieces.clone();
                let (a, b) = (rng.below(pieces.len()), rng.below(pieces.len()));
                pieces.swap(a, b);
                pieces.remove(rng.below(pieces.len()));
                pieces.concat()
            };
            if let Ok(func) = parse(&mutated) {
                let printed = print(&func);
                let again = parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}\nfrom\n{mutated}"));
                assert_eq!(print(&again), printed, "from\n{mutated}");
            }
        }
    }
}

#[test]
fn levels_have_names() {
    for level in [Level::Generic, Level::Bound, Level::Placed] {
        let mut func = Func::new("k", "", Safety::Safe);
        func.level = level;
        assert_eq!(parse(&print(&func)).map(|f| f.level), Ok(level));
    }
}
