//! `bind NAME=VALUE ..`: binds a generic kernel. Names are those of dtype parameters (`T=f32`), constexprs
//! (`BLOCK=64`, `FLAG=true`), `Const` parameters (`eps=1e-5`), and parameters whose argument is known to be 1
//! (`stride=one`) or divisible by a number (`x=div16`).

use kernel_core::ir::{DType, Facts, Func, Generic, Literal, Param, ParamKind};
use kernel_core::passes::{Bindings, bind};

use crate::failure::Failure;

/// The stage.
pub(crate) fn run(func: Func, arguments: &[&str]) -> Result<Func, Failure> {
    let generic = Generic::new(func).map_err(|_| Failure::Test("`bind` takes a generic kernel".to_string()))?;
    let bindings = bindings(generic.func(), arguments).map_err(Failure::Test)?;
    bind(&generic, &bindings).map(|bound| bound.into_func()).map_err(Failure::Kernel)
}

/// What the arguments of `bind` say about the parameters of a generic kernel.
///
/// # Errors
/// If one is missing or has no such value.
pub fn bindings(func: &Func, arguments: &[&str]) -> Result<Bindings, String> {
    let value = |name: &str| {
        let found = arguments.iter().filter_map(|a| a.split_once('=')).find(|(n, _)| *n == name);
        found.map(|(_, value)| value).ok_or_else(|| format!("`{name}` is not bound"))
    };
    let number = |name: &str| value(name).ok().and_then(|text| text.parse().ok());
    let mut bindings = Bindings {
        num_warps: number("num_warps"),
        capability: number("capability").unwrap_or(0),
        ..Bindings::default()
    };
    for param in func.dtype_params.iter().filter(|param| param.is_given()) {
        let name = value(&param.name)?;
        bindings.dtypes.push(DType::from_name(name).ok_or_else(|| format!("`{name}` is no dtype"))?);
    }
    for (_, param) in func.given_consts() {
        let text = value(&param.name)?;
        let number = match text {
            "true" => 1,
            "false" => 0,
            _ => text.parse().map_err(|_| format!("`{text}` is no integer"))?,
        };
        bindings.consts.push(number);
    }
    for param in &func.params {
        if matches!(param.kind, ParamKind::ConstScalar(_)) {
            bindings.const_scalars.push(literal(value(&param.name)?)?);
        }
        bindings.facts.push(facts(param, value(&param.name).ok()));
    }
    Ok(bindings)
}

fn literal(text: &str) -> Result<Literal, String> {
    if let Ok(int) = text.parse() {
        return Ok(Literal::Int(int));
    }
    match text.parse::<f64>() {
        Ok(float) => Ok(Literal::float(float)),
        Err(_) => text.parse().map(Literal::Bool).map_err(|_| format!("`{text}` is no constant")),
    }
}

fn facts(param: &Param, text: Option<&str>) -> Facts {
    let text = text.filter(|_| !matches!(param.kind, ParamKind::ConstScalar(_))).unwrap_or("");
    let divisor = text.strip_prefix("div").and_then(|n| n.parse().ok()).unwrap_or(0);
    Facts { divisible_by: divisor, equals_one: text == "one", ..Facts::default() }
}
