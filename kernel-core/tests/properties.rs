//! Properties of random kernels and dimensions: the text form is exact, and no pass changes what a kernel computes.

mod random;

use kernel_core::edit::compact;
use kernel_core::interp::{HostBuffer, HostScalar, run_kernel};
use kernel_core::ir::{Bound, ConstId, DType, Dim, Func};
use kernel_core::passes::{PASSES, PassOptions, optimise};
use kernel_core::text::{parse, print};
use kernel_core::verify::verify;
use proptest::prelude::*;
use random::{INPUT, SLOT, SLOTS, kernel};

/// What the kernel leaves in its buffers; a NaN is one value, whatever its payload.
fn outcome(func: &Func) -> (Vec<i64>, Vec<u32>) {
    let bound = Bound::new(func.clone()).expect("a bound kernel");
    let x: Vec<i32> = (0..INPUT as i32).map(|i| i.wrapping_mul(0x3779_97f1) >> (i % 30)).collect();
    let mut buffers =
        [HostBuffer::from(x), HostBuffer::from(vec![0i64; SLOT * SLOTS]), HostBuffer::from(vec![0f32; SLOT * SLOTS])];
    let n = HostScalar::from_bits(DType::I32, 3);
    run_kernel(&bound, &mut buffers, &[n], [1, 1, 1]).unwrap_or_else(|fault| panic!("{fault}\n{}", print(func)));
    let floats = buffers[2].as_slice::<f32>().expect("f32");
    let bits = floats.iter().map(|f| if f.is_nan() { f32::NAN.to_bits() } else { f.to_bits() }).collect();
    (buffers[1].as_slice::<i64>().expect("i64").to_vec(), bits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_text_form_of_a_random_kernel_is_exact(choices in prop::collection::vec(any::<u32>(), 0..250)) {
        let mut func = kernel(&choices).into_func();
        prop_assert_eq!(verify(&func), Ok(()));
        let text = print(&func);
        let parsed = parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(print(&parsed), text);
        // Parsing numbers everything in program order, as compacting does.
        compact(&mut func);
        prop_assert_eq!(parsed, func);
    }

    #[test]
    fn no_pass_changes_what_a_random_kernel_computes(choices in prop::collection::vec(any::<u32>(), 0..250)) {
        let original = kernel(&choices).into_func();
        let expected = outcome(&original);
        for pass in PASSES {
            let mut func = original.clone();
            let changed = (pass.run)(&mut func);
            prop_assert!(changed.is_ok(), "{}: {:?}\n{}", pass.name, changed, print(&original));
            prop_assert_eq!(verify(&func), Ok(()), "{}\n{}\n{}", pass.name, print(&original), print(&func));
            prop_assert!(
                outcome(&func) == expected,
                "`{}` changes the outcome of\n{}\nto that of\n{}", pass.name, print(&original), print(&func)
            );
        }
        let mut bound = Bound::new(original.clone()).expect("a bound kernel");
        let options = PassOptions { disabled: Vec::new(), verify: true };
        prop_assert_eq!(optimise(&mut bound, &options), Ok(()), "{}", print(&original));
        prop_assert!(
            outcome(bound.func()) == expected,
            "the passes together change the outcome of\n{}\nto that of\n{}", print(&original), print(bound.func())
        );
        // What is optimised is as good as it gets.
        let once = print(bound.func());
        prop_assert_eq!(optimise(&mut bound, &options), Ok(()));
        prop_assert_eq!(print(bound.func()), once);
    }
}

/// An expression over two constexprs with its value, if it has one.
#[derive(Clone, Debug)]
enum Expr {
    Const(i64),
    Param(u32),
    Node(Kind, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Min,
    Max,
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![(-9i64..10).prop_map(Expr::Const), (0u32..2).prop_map(Expr::Param)];
    leaf.prop_recursive(4, 24, 2, |inner| {
        let kind = prop_oneof![
            Just(Kind::Add),
            Just(Kind::Sub),
            Just(Kind::Mul),
            Just(Kind::Div),
            Just(Kind::Rem),
            Just(Kind::Min),
            Just(Kind::Max)
        ];
        (kind, inner.clone(), inner).prop_map(|(kind, a, b)| Expr::Node(kind, Box::new(a), Box::new(b)))
    })
}

impl Expr {
    fn dim(&self) -> Option<Dim> {
        Some(match self {
            Expr::Const(c) => Dim::Const(*c),
            Expr::Param(p) => Dim::param(ConstId::new(*p)),
            Expr::Node(kind, a, b) => {
                let (a, b) = (a.dim()?, b.dim()?);
                match kind {
                    Kind::Add => a.add(&b).ok()?,
                    Kind::Sub => a.sub(&b).ok()?,
                    Kind::Mul => a.mul(&b).ok()?,
                    Kind::Div => a.div(&b).ok()?,
                    Kind::Rem => a.rem(&b).ok()?,
                    Kind::Min => a.min_with(&b).ok()?,
                    Kind::Max => a.max_with(&b).ok()?,
                }
            }
        })
    }

    fn value(&self, params: [i64; 2]) -> Option<i128> {
        Some(match self {
            Expr::Const(c) => i128::from(*c),
            Expr::Param(p) => i128::from(params[*p as usize]),
            Expr::Node(kind, a, b) => {
                let (a, b) = (a.value(params)?, b.value(params)?);
                match kind {
                    Kind::Add => a.checked_add(b)?,
                    Kind::Sub => a.checked_sub(b)?,
                    Kind::Mul => a.checked_mul(b)?,
                    Kind::Div => a.checked_div(b)?,
                    Kind::Rem => a.checked_rem(b)?,
                    Kind::Min => a.min(b),
                    Kind::Max => a.max(b),
                }
            }
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_dimension_evaluates_as_the_expression_it_came_from(e in expr(), m in -40i64..40, n in -40i64..40) {
        let (Some(dim), Some(value)) = (e.dim(), e.value([m, n])) else { return Ok(()) };
        let bound = dim.substitute(&|id| Dim::Const([m, n][id.index()]));
        if let Ok(bound) = bound {
            prop_assert_eq!(bound.as_const().map(i128::from), Some(value));
        }
    }

    #[test]
    fn the_normal_form_keeps_the_laws_of_rings(a in expr(), b in expr(), c in expr()) {
        let (Some(a), Some(b), Some(c)) = (a.dim(), b.dim(), c.dim()) else { return Ok(()) };
        prop_assert_eq!(a.add(&b), b.add(&a));
        prop_assert_eq!(a.mul(&b), b.mul(&a));
        prop_assert_eq!(a.min_with(&b), b.min_with(&a));
        if let (Ok(ab), Ok(bc)) = (a.mul(&b), b.mul(&c)) {
            prop_assert_eq!(ab.mul(&c), a.mul(&bc));
        }
        if let (Ok(sum), Ok(ac), Ok(bc)) = (a.add(&b), a.mul(&c), b.mul(&c)) {
            prop_assert_eq!(sum.mul(&c), ac.add(&bc));
        }
        prop_assert_eq!(a.sub(&a), Ok(Dim::Const(0)));
    }

    #[test]
    fn a_dimension_reads_back_as_itself(e in expr()) {
        let Some(dim) = e.dim() else { return Ok(()) };
        let shown = dim.display(&|id| ["M", "N"][id.index()].to_string()).to_string();
        let text = format!(
            "kernel k \"\" safe generic {{ const M: isize const N: isize %0: i64 = const_expr {shown} return }}"
        );
        let func = parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let again = print(&func);
        prop_assert!(again.contains(&format!("const_expr {shown}\n")), "{}\n{}", shown, again);
    }
}
