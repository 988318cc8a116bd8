use super::{Bindings, bind};
use crate::ir::{DType, Facts, Generic, Literal};
use crate::text::parse;

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
