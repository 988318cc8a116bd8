//! The function that rustc's lints look at: which variables it declares, assigns and reads.

use super::support::expand;

/// The body of the function that is written for a kernel with those statements.
fn written(statements: &str) -> String {
    let source = format!("fn k<const N: usize>(x: Ptr<f32>, mut n: i32, out: PtrMut<f32>) {{ {statements} }}");
    let (tokens, messages) = expand("", &source);
    assert!(messages.is_empty(), "{messages:?}");
    syn::parse2::<syn::File>(tokens.clone()).unwrap_or_else(|e| panic!("{e}\n{tokens}"));
    let text = tokens.to_string();
    let (_, function) = text.split_once("loop { }").unwrap_or_else(|| panic!("{text}"));
    let body = function.trim_start_matches([' ', '}']);
    body.replace("__any :: < () >", "any").replace("__any", "any").replace("__Value", "V")
}

#[track_caller]
fn check(statements: &str, expected: &str) {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let (written, expected) = (squeezed(&written(statements)), squeezed(expected));
    assert!(written.starts_with(&expected), "{statements}\n{written}\n{expected}");
}

#[test]
fn variables_are_read_in_operations_shapes_and_assertions() {
    check(
        "let half = N / 2; let i = arange(0, half); assert!(n > 0); static_assert!(half > 1); store(out + i, load(x + i, mask = i < n));",
        "let half: V = any(&[]); let i: V = any(&[half]); any(&[n]); any(&[half]); any(&[out, i, x, i, i, n]);",
    );
    check("let t: Tile<f32, { [N] }> = zeros([N]);", "let t: V = any(&[]);");
    check("let h = N / 2; let t: Tile<f32, { [h] }> = zeros([h]);", "let h: V = any(&[]); let t: V = any(&[h, h]);");
}

#[test]
fn patterns_and_assignments_keep_their_form() {
    check(
        "let (mut a, (b, _)) = (n, (1, 2)); a += b; (a, n) = (n, a); _ = b; store(out, a as f32);",
        "let (mut a, (b, _,),): (V, (V, V,),) = any(&[n]); a += any::<V>(&[b]); any(&[n, a]); a = any(&[]); \
         n = any(&[]); any(&[b]); any(&[out, a]);",
    );
}

#[test]
fn control_flow_is_rusts_own() {
    check(
        "if n > 1 { return; } else if n > 0 { n = 3; } for i in 0..n { store(out + i, 1.0); } while n > 0 { n -= 1; } store(out, n as f32);",
        "if __any::<::core::primitive::bool>(&[n]) { return; } else if __any::<::core::primitive::bool>(&[n]) { n = any(&[]); }"
            .replace("__any", "any").as_str(),
    );
    check(
        "let v = if n > 1 { let w = n; w } else { return }; store(out, v as f32);",
        "let v: V = any(&[if any::<::core::primitive::bool>(&[n]) { let w: V = any(&[n]); any(&[w]) } else { return ; }]);",
    );
    check(
        "let v = n > 1 && { n = 2; true } && n < 5; if v { store(out, 1.0); }",
        "let v: V = any(&[if any(&[n]) { any(&[{ n = any(&[]); any(&[]) }]) } else { any(&[]) }, n]);",
    );
}

#[test]
fn closures_have_parameters_of_their_own() {
    check(
        "let n = 1; store(out, reduce(load(x + arange(0, N)), axis = 0, |a, n| a + n));",
        "let n: V = any(&[]); any(&[out, x, { let _ = |a: V, n: V| -> V { any(&[a, n]) }; any(&[]) }]);",
    );
}

#[test]
fn closures_that_give_nothing_are_statements() {
    check(
        "let f = |i: i32| { if i > 3 { return; } store(out + i, 1.0); }; f(1);",
        "let f: V = any(&[{ let _ = |i: V| -> V { { if any::<::core::primitive::bool>(&[i]) { return any(&[]); } \
         any(&[out, i]); } any(&[]) }; any(&[]) }]); any(&[f]);",
    );
    check(
        "let f = |i: i32| assert!(i < 3); f(2);",
        "let f: V = any(&[{ let _ = |i: V| -> V { any(&[i]); any(&[]) }; any(&[]) }]); any(&[f]);",
    );
}

#[test]
fn names_that_may_be_constants_are_renamed() {
    check("let Q = n; store(out, Q as f32);", "let _v1: V = any(&[n]); any(&[out, _v1]);");
}

#[test]
fn levels_are_those_of_the_kernel_and_of_statements() {
    let source = "#[expect(unused_variables, missing_docs, reason = \"r\")] #[inline] \
                  fn k(#[allow(unused)] n: i32) { #![deny(unused_mut)] #[warn(clippy::all, unused)] let a = 1; }";
    let text = expand("", source).0.to_string();
    let squeezed: String = text.split_whitespace().collect();
    for part in [
        "#[expect(missing_docs,reason=\"r\")]#[inline]",
        "#[expect(unused_variables,reason=\"r\")]#[deny(unused_mut)]fnwritten(#[allow(unused)]n:",
        "#[warn(unused)]leta:",
    ] {
        assert!(squeezed.contains(part), "{part}\n{text}");
    }
}
