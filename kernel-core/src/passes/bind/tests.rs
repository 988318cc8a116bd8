use super::{Bindings, bind};
use crate::ir::{DType, Facts, Generic, Literal};
use crate::text::{parse, print_without_spans};

const KERNEL: &str = r#"kernel k "k.rs" safe generic {
  dtype T: Num
  const M: usize
  const N: i64
  const K: isize
  const FLAG: bool
  param %x x: ptr T
  param %out out: ptr_mut T
  param %n n: i32
  param %eps eps: const f16
  %m: i32 = const_expr M * N - (K / N) + min(M, (N % K))
  %flag: bool = const_expr FLAG
  %t: bool = cmp.lt %m, %n
  %r: i32[M * 2] = arange {lo = -K, hi = 2 * M - K}
  %z: T = limit {kind = max}
  %zs: T[M, N] = splat %z
  %v: T[N * M] = reshape %zs
  %w: T = if %flag {
    %a: T[N, M] = permute %zs {perm = [1, 0]}
    %one: T = const 1
    yield %one
  } else {
    %b: T[N / K] = splat %z
    %c: T = const_expr K
    yield %c
  }
  %k: i32 = const_expr K
  %s: i32, %u: T = for %m, %n, %k, %k, %w {unroll = full} (%i: i32, %j: i32, %y: T) {
    %l: i32 = shl %j, %i
    yield %l, %y
  }
  %d: i32 = div %m, %k
  %zero: i32 = const 0
  %e: bool = cmp.ge %m, %zero
  static_assert %e {message = "m >= 0"}
  store %out, %u
  return
}
"#;

fn generic(text: &str) -> Generic {
    Generic::new(parse(text).expect("the kernel is in the text form")).expect("a generic kernel")
}

#[test]
fn no_values_make_binding_panic() {
    let kernel = generic(KERNEL);
    let values = [0, 1, -1, 2, 3, 64, 1000, 1 << 20, 1 << 31, 1 << 62, i64::MAX, i64::MIN];
    let (mut bound, mut refused) = (0, 0);
    for m in values {
        for n in values {
            for k in values {
                for (flag, dtype) in [(0, DType::I8), (1, DType::F16), (1, DType::U64), (7, DType::Bool)] {
                    let facts =
                        vec![
                            Facts { divisible_by: 3, equals_one: true, len_divisible_by: u32::MAX, ..Facts::default() };
                            9
                        ];
                    let bindings = Bindings {
                        dtypes: vec![dtype],
                        consts: vec![m, n, k, flag],
                        const_scalars: vec![Literal::float(f64::from_bits(m as u64))],
                        facts,
                        ..Bindings::default()
                    };
                    match bind(&kernel, &bindings) {
                        Ok(_) => bound += 1,
                        Err(errors) => {
                            refused += 1;
                            assert!(!errors.is_empty());
                            assert!(errors.iter().all(|e| !e.message.is_empty() && &*e.file == "k.rs"));
                        }
                    }
                }
            }
        }
    }
    assert!(bound > 0 && refused > bound, "{bound} bound, {refused} refused");
}

#[test]
fn missing_and_surplus_bindings_are_errors() {
    let kernel = generic(KERNEL);
    let errors = bind(&kernel, &Bindings::default()).expect_err("nothing is bound");
    let messages: Vec<&str> = errors.iter().map(|e| &*e.message).collect();
    let want = [
        "the kernel takes 1 dtypes, but 0 are given",
        "the kernel takes 4 constexpr values, but 0 are given",
        "the kernel takes 1 values of `Const` parameters, but 0 are given",
    ];
    assert_eq!(messages, want);
}

#[test]
fn constants_of_the_wrong_kind_are_errors() {
    let kernel = generic("kernel k \"\" safe generic { param %e e: const f32 return }");
    for literal in [Literal::Bool(true), Literal::float(1e39)] {
        let bindings = Bindings { const_scalars: vec![literal], ..Bindings::default() };
        assert_eq!(bind(&kernel, &bindings).map_err(|e| e.len()), Err(1), "{literal:?}");
    }
}

#[test]
fn a_kernel_that_breaks_the_rules_is_refused() {
    let kernel = generic("kernel k \"\" safe generic { %a: i32 = const 1 %b: f32 = add %a, %a return }");
    assert!(bind(&kernel, &Bindings::default()).is_err());
}

/// Constexprs and dtypes that follow from others.
const DERIVED: &str = r#"kernel k "k.rs" safe generic {
  dtype T: Float
  dtype U: DType
  dtype "T::Acc": Float = accumulator T
  dtype "U::Acc": Num = accumulator U
  const "T::BITS": usize = bits T
  const "T == f32": bool = is T f32
  const N: usize
  const "U::Acc == i32": bool = is "U::Acc" i32
  const "num_warps()": usize = num_warps
  const "capability()": usize = capability
  param %x x: ptr_mut i32
  %t: i32["T::BITS"] = arange {lo = 0, hi = "T::BITS"}
  %f: "T::Acc"["T::BITS"] = cast %t
  %lanes: i32[N * "num_warps()"] = arange {lo = 0, hi = N * "num_warps()"}
  %small: bool = const_expr "U::Acc == i32"
  static_assert %small {message = "U is small"}
  %wide: bool = const_expr "T == f32"
  %r: i32 = if %wide {
    %c: i32 = const_expr "capability()"
    yield %c
  } else {
    %z: T = limit {kind = max}
    %b: i32 = bitcast %z
    yield %b
  }
  store %x, %r
  return
}"#;

fn bindings(dtypes: [DType; 2], num_warps: Option<u32>) -> Bindings {
    Bindings { dtypes: dtypes.to_vec(), consts: vec![32], num_warps, capability: 90, ..Bindings::default() }
}

#[test]
fn what_follows_from_the_bindings_is_computed() {
    let bound = bind(&generic(DERIVED), &bindings([DType::F32, DType::U8], Some(8))).expect("it is bound");
    let text = crate::text::print(bound.func());
    for part in ["%1: i32[32] =", "f32[32] = cast", "i32[256] = arange", "const 90"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("if ") && !text.contains("bitcast"), "{text}");
}

#[test]
fn only_what_is_reached_must_fit_the_bindings() {
    let errors = |dtypes, warps| -> Vec<String> {
        let errors = bind(&generic(DERIVED), &bindings(dtypes, warps)).expect_err("it does not fit");
        errors.iter().map(|error| error.message.to_string()).collect()
    };
    let bitcast = "a bitcast keeps the width, but f16 has 16 bits and i32 has 32";
    assert_eq!(errors([DType::F16, DType::Bool], Some(4)), [bitcast]);
    let values = "T::BITS = 32, N = 32, num_warps() = 4, capability() = 90";
    let failed = format!("static assertion failed: U is small (with {values})");
    assert_eq!(errors([DType::F32, DType::U64], Some(4)), [failed]);
    let missing = "the kernel asks for the number of its warps, which is not given";
    assert_eq!(errors([DType::F32, DType::U8], None)[0], missing);
}

/// Elements are combined in branches, of which a constexpr decides one.
const COMBINED: &str = r#"kernel k "k.rs" safe generic {
  const N: usize
  param %out out: ptr_mut i32
  %r: i32[16] = arange {lo = 0, hi = 16}
  %s: i32 = reduce %r {axis = 0} (%a: i32, %b: i32) {
    %n: i64 = const_expr N
    %z: i64 = const 0
    %some: bool = cmp.gt %n, %z
    %v: i32 = if %some {
      %k: i32 = const_expr (64 / N)
      %m: i32 = mul %b, %k
      yield %m
    } else {
      %less: bool = cmp.lt %a, %b
      %w: i32 = if %less {
        %t: i32 = add %a, %b
        yield %t
      } else {
        yield %b
      }
      yield %w
    }
    yield %v
  }
  store %out, %s
  return
}"#;

#[test]
fn elements_are_combined_by_straight_line_code() {
    let body = |n| {
        let bound =
            bind(&generic(COMBINED), &Bindings { consts: vec![n], ..Bindings::default() }).expect("it is bound");
        crate::text::print_without_spans(bound.func())
    };
    let (none, some) = (body(0), body(64));
    assert!(!none.contains("if ") && none.contains("select") && !none.contains("mul"), "{none}");
    assert!(!some.contains("if ") && !some.contains("select") && some.contains("mul"), "{some}");
}

/// Parameters that may be without an argument.
const PASSED: &str = r#"kernel k "k.rs" safe generic {
  const "b.is_some()": bool = given 1
  param %x x: ptr i32 in_place 2
  param %b b: ptr i32 optional
  param %out out: ptr_mut i32
  %zero: i32 = const 0
  %one: i32 = const 1
  %p: *x = for %zero, %one, %one, %x (%i: i32, %q: *x) {
    %r: *x = add_ptr %q, %one
    yield %r
  }
  %v: i32 = load %p
  %has: bool = const_expr "b.is_some()"
  %w: i32 = if %has {
    %u: i32 = load %b
    yield %u
  } else {
    yield %v
  }
  store %out, %w
  return
}"#;

fn passed(omitted: [bool; 3]) -> Bindings {
    let facts = omitted.map(|omitted| Facts { omitted, ..Facts::default() });
    Bindings { facts: facts.to_vec(), ..Bindings::default() }
}

#[test]
fn arguments_that_are_not_passed_leave_no_trace() {
    let text = |omitted| {
        let bound = bind(&generic(PASSED), &passed(omitted)).expect("it is bound");
        crate::text::print(bound.func())
    };
    let both = text([false; 3]);
    assert!(both.contains("%0 x: ptr i32\n") && both.contains("*x = add_ptr") && both.contains("load %1"), "{both}");
    let none = text([true, true, false]);
    assert!(none.contains("%0 x: ptr i32 {omitted}") && none.contains("%1 b: ptr i32 {omitted}"), "{none}");
    // The pointer is that of the output, through the loop too.
    assert!(none.contains("%2 (") && none.contains("*out = add_ptr") && !none.contains("*x"), "{none}");
    assert!(!none.contains("load %1"), "{none}");
}

#[test]
fn arguments_that_are_needed_must_be_passed() {
    let errors = bind(&generic(PASSED), &passed([false, false, true])).expect_err("`out` is needed");
    assert_eq!(&*errors[0].message, "no argument is passed for parameter `out`");
}

/// The kernel where `N` is 0: a branch with a tile of `N` elements would be an error.
fn bound_without_elements(body: &str) -> String {
    let text = format!(
        r#"kernel k "k.rs" safe generic {{
  const N: usize
  param %x x: ptr_mut i32
  param %m m: i32
  %zero: i32 = const 0
  %n: i32 = const_expr N
  %some: bool = cmp.ne %n, %zero
  %none: bool = cmp.eq %n, %zero
  %late: bool = cmp.gt %m, %zero
  {body}
  return
}}
"#
    );
    let bound = bind(&generic(&text), &Bindings { consts: vec![0], ..Bindings::default() });
    let bound = bound.unwrap_or_else(|errors| panic!("{body}: {errors:?}"));
    print_without_spans(bound.func())
}

#[test]
fn one_side_decides_and_and_or() {
    for decided in ["%c: bool = and %late, %some", "%c: bool = and %some, %late"] {
        let tile = "%t: i32[N] = arange {lo = 0, hi = N}";
        let text = bound_without_elements(&format!("{decided}\n if %c {{ {tile}\n yield }} else {{ yield }}"));
        assert!(!text.contains("if"), "{text}");
    }
    for decided in ["%c: bool = or %late, %none", "%c: bool = or %none, %late"] {
        let tile = "%t: i32[N] = arange {lo = 0, hi = N}";
        let text = bound_without_elements(&format!("{decided}\n if %c {{ yield }} else {{ {tile}\n yield }}"));
        assert!(!text.contains("if"), "{text}");
    }
}

#[test]
fn what_both_branches_give_is_known() {
    let body = "%r: bool = if %late {
        store %x, %m
        yield %some
      } else {
        %no: bool = const false
        yield %no
      }
      if %r {
        %t: i32[N] = arange {lo = 0, hi = N}
        yield
      } else {
        yield
      }";
    let text = bound_without_elements(body);
    assert!(text.contains("store") && !text.contains("arange"), "{text}");
}
