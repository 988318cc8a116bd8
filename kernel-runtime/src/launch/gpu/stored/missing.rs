//! What to say where archives have no code for a launch: which variant is missing, and the line that adds it.

use super::super::super::definition::user_params;
use super::super::super::scalar::ScalarValue;
use super::super::super::spec::{ParamSpec, Spec, Tuning};
use super::{Wanted, compiler, shipped};
use crate::error::Error;
use kernel_core::backend::Checks;
use kernel_core::ir::{ConstTy, DType, Func, Literal, ParamKind, Passing};
use kernel_core::num;

/// The error about a launch whose code is missing.
pub(super) fn error(wanted: &Wanted<'_>) -> Error {
    let identity = wanted.identity();
    let others = shipped::of_kernel(&identity.kernel);
    let compiling =
        if compiler::is_available() { "a launch would compile it" } else { "this program cannot compile it" };
    let known = match others.iter().filter(|other| other.ir == identity.ir).count() {
        0 if others.is_empty() => "its archives have nothing of this kernel".to_string(),
        0 => "its archives have this kernel as it was before its source changed".to_string(),
        count => format!("its archives have {count} other variants of this kernel"),
    };
    Error::MissingCode {
        kernel: identity.kernel.as_str().into(),
        variant: format!("it needs {identity}, and {known}; {compiling}").into(),
        line: line(wanted).into(),
    }
}

/// `archive.add(AddConsts { BLOCK: 1024 }.request::<f32>().assume(..), &[Target::named("sm_90a")])?;`
fn line(wanted: &Wanted<'_>) -> String {
    let Ok(generic) = wanted.kernel.generic() else { return String::new() };
    let (func, spec) = (generic.func(), wanted.spec);
    let name = struct_name(&func.name);
    let consts: Vec<String> = func
        .const_params
        .iter()
        .filter(|param| param.is_given())
        .zip(spec.constants)
        .map(|(param, value)| match param.ty {
            ConstTy::Bool => format!("{}: {}", param.name, *value != 0),
            ConstTy::Int(_) => format!("{}: {value}", param.name),
        })
        .collect();
    let consts = if consts.is_empty() { String::new() } else { format!(" {{ {} }}", consts.join(", ")) };
    let dtypes: Vec<&str> = spec.dtypes.iter().map(|dtype| rust_name(*dtype)).collect();
    let dtypes = if dtypes.is_empty() { String::new() } else { format!("::<{}>", dtypes.join(", ")) };
    let chosen = chosen(func, spec).join(", ");
    let (options, assumed) = (options(wanted), assumed(func, spec, &name));
    let target = wanted.target.name();
    format!("archive.add({name}Consts{consts}.request{dtypes}({chosen}){options}{assumed}, &[Target::{target}()])?;")
}

/// The name of a kernel's structs: `add_rows` has `AddRowsConsts`.
fn struct_name(kernel: &str) -> String {
    let words = kernel.split('_').filter(|word| !word.is_empty());
    let word = |word: &str| {
        let mut chars = word.chars();
        chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
    };
    words.map(word).collect()
}

/// The arguments of `request`: values of `Const` parameters, and whether optional ones are there.
fn chosen(func: &Func, spec: &Spec<'_>) -> Vec<String> {
    let one = |(param, given): (&kernel_core::ir::Param, &ParamSpec)| match (given, param.passing) {
        (given, Passing::Optional | Passing::InPlace(_)) => Some((!matches!(given, ParamSpec::Omitted(_))).to_string()),
        (ParamSpec::Const(value), Passing::Always) => Some(constant(*value)),
        (_, Passing::Always) => None,
    };
    user_params(func).zip(spec.params).filter_map(one).collect()
}

/// A dtype as Rust writes it.
fn rust_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F8E4M3 => "F8E4M3",
        DType::F8E5M2 => "F8E5M2",
        other => other.name(),
    }
}

/// A constant as Rust writes it.
fn constant(value: ScalarValue) -> String {
    let (literal, dtype) = (value.literal(), value.element);
    let shown = num::show(literal, dtype);
    let Literal::Float(bits) = literal else { return shown };
    let (float, name) = (f64::from_bits(bits), rust_name(dtype));
    if float.is_nan() {
        return format!("{name}::NAN");
    }
    if float.is_infinite() {
        return format!("{name}::{}", if float > 0.0 { "INFINITY" } else { "NEG_INFINITY" });
    }
    // There are no literals of the others.
    if dtype.bits() < 32 { format!("{name}::from_f32({shown})") } else { shown }
}

fn options(wanted: &Wanted<'_>) -> String {
    let own = wanted.kernel.source().tuning();
    let Tuning { num_warps, num_stages, max_registers, dependent_launch, line_info, .. } = wanted.spec.tuning;
    let mut text = String::new();
    for (name, value, own) in [
        ("num_warps", num_warps, own.num_warps),
        ("num_stages", num_stages, own.num_stages),
        ("max_registers", max_registers, own.max_registers),
    ] {
        if let Some(value) = value.filter(|_| value != own) {
            text.push_str(&format!(".{name}({value})"));
        }
    }
    if line_info == Some(true) {
        text.push_str(".line_info(true)");
    }
    if dependent_launch {
        text.push_str(".dependent_launch()");
    }
    if wanted.checks == Checks::EveryAccess {
        text.push_str(".checked()");
    }
    text
}

/// What a request must assume, where that is not what it does without being told.
fn assumed(func: &Func, spec: &Spec<'_>, name: &str) -> String {
    let all = || user_params(func).zip(spec.params).filter(|(p, _)| !matches!(p.kind, ParamKind::ConstScalar(_)));
    let fields: Vec<String> =
        all().filter_map(|(param, given)| Some(format!("{}: {}", param.name, one_assumed(*given)?))).collect();
    if fields.is_empty() {
        return String::new();
    }
    // Where all are said, nothing is left for the others, and clippy would say so.
    let rest = if fields.len() < all().count() { ", ..Default::default()" } else { "" };
    format!(".assume({name}Assumed {{ {}{rest} }})", fields.join(", "))
}

/// Where the types are that say what is assumed: the line needs no imports of them.
const LAUNCH: &str = "tilewright::launch";

/// What is assumed of one argument; `None` if it is the usual.
fn one_assumed(given: ParamSpec) -> Option<String> {
    let length = |divisor| match divisor {
        16 => "MultipleOf16",
        8 => "MultipleOf8",
        _ => "Unknown",
    };
    match given {
        ParamSpec::Buffer { alignment: 16, len_divisor: 16, .. } | ParamSpec::Const(_) | ParamSpec::Omitted(_) => None,
        ParamSpec::Buffer { alignment, len_divisor, .. } => {
            let alignment = match alignment {
                16 => "Bytes16",
                8 => "Bytes8",
                4 => "Bytes4",
                2 => "Bytes2",
                _ => "Element",
            };
            let len = length(len_divisor);
            let (alignment, len) =
                (format!("{LAUNCH}::Alignment::{alignment}"), format!("{LAUNCH}::AssumedLength::{len}"));
            Some(format!("{LAUNCH}::AssumedBuffer {{ alignment: {alignment}, len: {len} }}"))
        }
        ParamSpec::Scalar { one: true, .. } => Some(format!("{LAUNCH}::AssumedScalar::One")),
        ParamSpec::Scalar { element, .. } if !element.is_int() => None,
        ParamSpec::Scalar { divisor: 16, .. } => None,
        ParamSpec::Scalar { divisor, .. } => Some(format!("{LAUNCH}::AssumedScalar::{}", length(divisor))),
        ParamSpec::Tensor { aligned, facts, .. } => {
            let usual = aligned && facts.strides && facts.rows && facts.copies;
            // What is known in part has no name: code that knows nothing serves it.
            (!usual).then(|| format!("{LAUNCH}::AssumedTensor::Unknown"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn constants_are_those_of_their_dtype() {
        let of = |bits: u64, element| constant(ScalarValue { bits, element });
        let single = |value: f32| of(value.to_bits().into(), DType::F32);
        assert_eq!([single(0.1), single(-1e-5), single(3.0)], ["0.1", "-1e-5", "3.0"]);
        assert_eq!([single(f32::INFINITY), single(f32::NEG_INFINITY)], ["f32::INFINITY", "f32::NEG_INFINITY"]);
        assert_eq!(of(0.1f64.to_bits(), DType::F64), "0.1");
        assert_eq!(of(f64::NAN.to_bits(), DType::F64), "f64::NAN");
        assert_eq!(of(f16::from_f32(0.1).to_bits().into(), DType::F16), "f16::from_f32(0.1)");
        assert_eq!(of(bf16::from_f32(-0.3).to_bits().into(), DType::BF16), "bf16::from_f32(-0.3)");
        assert_eq!(of(0x38, DType::F8E4M3), "F8E4M3::from_f32(1.0)");
        assert_eq!((of(1, DType::Bool), of(u64::from(u32::MAX), DType::I32)), ("true".into(), "-1".into()));
    }
}
