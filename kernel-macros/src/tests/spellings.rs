//! What is written instead of a name of another language compiles, and computes what that name stands for.

use kernel_core::interp::{HostBuffer, run_kernel};
use kernel_core::ir::Generic;
use kernel_core::passes::{Bindings, bind};

use super::support::{expand, func};
use crate::spellings::{Spelling, all};

/// Values of every argument that a row names, and of what its code takes from around it.
const ARGUMENTS: &str = "
    let x = load(input + arange(0, 16));
    let (y, a, b, c, n) = (x + 1.0, x, x * 2.0, x, 16);
    let (lo, hi, axis, pointer, value, expected) = (0, 16, 0, out + arange(0, 16), x, x);
    let condition = x > 0.0;";

/// The code of a row with its arguments, as an expression of a kernel.
fn statements(row: &Spelling) -> String {
    let matrix = "broadcast_to(x, [16, 16])";
    let code = row.plain();
    let code = match row.names.split(' ').next().unwrap_or_default() {
        "matmul" | "mma" => code
            .replace("dot(a, b", &format!("dot({matrix}, {matrix}"))
            .replace("= c", "= dot(broadcast_to(x, [16, 16]), broadcast_to(x, [16, 16]))"),
        "transpose" => code.replace("(x)", &format!("({matrix})")),
        "from_bits" | "popc" | "clz" | "ctz" | "brev" | "rotl" | "rotr" => code.replace("(x", "(x as i32"),
        "ravel" => code.replace("(x,", "(broadcast_to(x, [M, 16]),").replace("N]", "16]"),
        "logical_and" => "condition & condition".to_string(),
        "logical_or" => "condition | condition".to_string(),
        "logical_not" => "!condition".to_string(),
        "int_as_float" => code.replace("(n", "(x as i32"),
        "wrapping_add" => "n + n".to_string(),
        "div_ceil" => "cdiv(n, 4)".to_string(),
        "make_range" => "arange(0, 16)".to_string(),
        "unsqueeze" => "expand_dims(x, 0)".to_string(),
        "ones" => "full([16], 1.0)".to_string(),
        "view" | "broadcast" => code.replace("[M, N]", "[16]"),
        "compare_exchange" => "atomic_cas(counters, 1, 2)".to_string(),
        "device_assert" => return format!("{};", code.replace("message", "\"x is positive\"")),
        "squeeze" | "zeros_like" | "ones_like" => code.replace("N]", "16]"),
        _ => code,
    };
    format!("let result = {code};")
}

#[test]
fn the_code_of_every_row_compiles() {
    let (mut compiled, mut wrong) = (0, Vec::new());
    for row in all().filter(|row| !row.code.is_empty()) {
        let source = format!(
            "fn k<const M: usize>(input: Ptr<f32>, out: PtrMut<f32>, counters: PtrMut<i32>) {{{ARGUMENTS}\n{}\n}}",
            statements(row)
        );
        let (_, messages) = expand("", &source);
        if !messages.is_empty() {
            wrong.push(format!("{}: {}\n{}", row.names, statements(row), messages.join("\n")));
        }
        compiled += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compiled > 100, "{compiled} rows have code");
}

/// Numbers where such functions go wrong: zeros of both signs, halves, the neighbours of one half, small and large ones.
const NUMBERS: [f32; 32] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.5,
    -2.5,
    0.499_999_97,
    -0.499_999_97,
    0.500_000_06,
    1e-8,
    -1e-8,
    1e-20,
    3e-5,
    -3e-5,
    0.1,
    -0.1,
    0.9,
    -0.9,
    1.0,
    -1.0,
    3.7,
    -3.7,
    20.0,
    -20.0,
    8_388_609.0,
    -8_388_609.0,
    3e9,
    1e30,
    80.0,
    -80.0,
];

/// What the code of a row computes for [`NUMBERS`].
fn computed(name: &str) -> Vec<f32> {
    let row = crate::spellings::find(name).unwrap_or_else(|| panic!("no row for {name}"));
    let code = row.plain();
    let source = format!(
        "fn k(input: Ptr<f32>, out: PtrMut<f32>) {{ let x = load(input + arange(0, 32)); store(out + arange(0, 32), {code}); }}"
    );
    let generic = Generic::new(func(&source)).unwrap_or_else(|_| panic!("not generic: {source}"));
    let kernel = bind(&generic, &Bindings::default()).unwrap_or_else(|e| panic!("{e:?}\n{source}"));
    let mut buffers = [HostBuffer::from(NUMBERS.to_vec()), HostBuffer::from(vec![0.0f32; NUMBERS.len()])];
    run_kernel(&kernel, &mut buffers, &[], [1, 1, 1]).unwrap_or_else(|e| panic!("{e}\n{source}"));
    buffers[1].as_slice::<f32>().map(<[f32]>::to_vec).unwrap_or_default()
}

/// Compares a row with its function in f64, to that many units in the last place, where `range` holds.
///
/// The units are those of the row: each operation in it rounds once, half a unit, and a quotient or product of rounded
/// factors adds theirs.
fn check(name: &str, ulps: f64, function: fn(f64) -> f64, range: fn(f32) -> bool) {
    for (x, found) in NUMBERS.into_iter().zip(computed(name)).filter(|(x, _)| range(*x)) {
        let wanted = function(f64::from(x));
        if (wanted as f32).is_infinite() || wanted.is_nan() {
            assert_eq!(found.to_bits(), (wanted as f32).to_bits(), "{name}({x:e}) is {found:e}, not {wanted:e}");
            continue;
        }
        let unit = f64::from((wanted as f32).abs().max(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        let error = (f64::from(found) - wanted).abs() / unit;
        assert!(error <= ulps, "{name}({x:e}) is {found:e}, not {wanted:e}: {error:.1} ulp");
    }
}

#[test]
fn mathematics_under_other_names_is_right_for_all_inputs() {
    let all = |_: f32| true;
    // Exact: no operation rounds.
    check("rint", 0.0, f64::round_ties_even, all);
    check("frac", 0.0, f64::fract, all);
    check("sign", 0.0, |x| if x == 0.0 { 0.0 } else { x.signum() }, all);
    check("square", 0.5, |x| x * x, all);
    check("ln_1p", 2.0, f64::ln_1p, all);
    check("exp_m1", 2.0, f64::exp_m1, all);
    check("arctan", 2.0, f64::atan, all);
}
