//! Types in the text form: `f32`, `T[M, N]`, `*x[BLOCK]`, `token`, `shared f16[64, 64]`, `barrier[4]`.

use super::ParseError;
use super::dims;
use super::lexer::{Lexer, Token, write_name};
use crate::ir::{DType, Dt, DtypeId, Elem, Func, ParamId, Ty};

/// Words that a dtype parameter's name would be mistaken for, were it not quoted.
const RESERVED: &[&str] = &[
    "bool",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "f8e4m3",
    "f8e5m2",
    "token",
    "desc",
    "desc_mut",
    "desc_shape",
    "desc_stride",
    "shared",
    "barrier",
    "ptr",
    "ptr_mut",
    "const",
    "report_slot",
    "length",
];

/// Appends a dtype or the name of a dtype parameter.
pub(super) fn print_dt(out: &mut String, func: &Func, dt: Dt) {
    match dt {
        Dt::Known(dtype) => out.push_str(dtype.name()),
        Dt::Param(id) => match func.dtype_params.get(id.index()) {
            Some(param) => write_name(out, &param.name, RESERVED),
            None => out.push_str(&format!("?{}", id.index())),
        },
    }
}

/// Reads a dtype or the name of a dtype parameter.
pub(super) fn parse_dt(lexer: &mut Lexer<'_>, func: &Func) -> Result<Dt, ParseError> {
    if let Token::Ident(word) = lexer.peek()
        && let Some(dtype) = DType::from_name(word)
    {
        lexer.next();
        return Ok(Dt::Known(dtype));
    }
    let at = lexer.position();
    let name = lexer.name("a dtype")?;
    match func.dtype_params.iter().position(|p| p.name == name) {
        Some(index) => Ok(Dt::Param(DtypeId::new(index as u32))),
        None => Err(lexer.error_at(at, format!("`{name}` is neither a dtype nor a dtype parameter"))),
    }
}

/// Appends a reference to a parameter: its name, or `#position` where the name is not unique.
pub(super) fn print_param(out: &mut String, func: &Func, id: ParamId) {
    let unique = func.params.get(id.index()).filter(|p| func.params.iter().filter(|q| q.name == p.name).count() == 1);
    match unique {
        Some(param) => write_name(out, &param.name, &[]),
        None => out.push_str(&format!("#{}", id.index())),
    }
}

/// Reads a reference to a parameter.
pub(super) fn parse_param(lexer: &mut Lexer<'_>, func: &Func) -> Result<ParamId, ParseError> {
    let at = lexer.position();
    let index = if lexer.eat(b'#') {
        Some(lexer.unsigned(u64::from(u32::MAX))? as usize).filter(|&i| i < func.params.len())
    } else {
        let name = lexer.name("a parameter")?;
        func.params.iter().position(|p| p.name == name)
    };
    index.map(|i| ParamId::new(i as u32)).ok_or_else(|| lexer.error_at(at, "there is no such parameter"))
}

/// Appends a type.
pub(super) fn print(out: &mut String, func: &Func, ty: &Ty) {
    match ty.elem {
        Elem::Data(dt) => print_dt(out, func, dt),
        Elem::Ptr(param) => {
            out.push('*');
            print_param(out, func, param);
        }
        Elem::Desc(param) => {
            out.push_str("desc ");
            print_param(out, func, param);
        }
        Elem::Token => out.push_str("token"),
        Elem::Shared(dt) => {
            out.push_str("shared ");
            print_dt(out, func, dt);
        }
        Elem::Barrier => out.push_str("barrier"),
    }
    if !ty.shape.is_empty() {
        dims::print_shape(out, func, &ty.shape);
    }
}

/// Reads a type.
pub(super) fn parse(lexer: &mut Lexer<'_>, func: &Func) -> Result<Ty, ParseError> {
    let elem = if lexer.eat(b'*') {
        Elem::Ptr(parse_param(lexer, func)?)
    } else if lexer.eat_word("desc") {
        Elem::Desc(parse_param(lexer, func)?)
    } else if lexer.eat_word("token") {
        Elem::Token
    } else if lexer.eat_word("shared") {
        Elem::Shared(parse_dt(lexer, func)?)
    } else if lexer.eat_word("barrier") {
        Elem::Barrier
    } else {
        Elem::Data(parse_dt(lexer, func)?)
    };
    let shape = match lexer.peek() {
        Token::Punct(b'[') => dims::parse_shape(lexer, func)?,
        _ => Vec::new(),
    };
    Ok(Ty { elem, shape })
}

/// Appends the name of a dtype parameter.
pub(super) fn print_name(out: &mut String, name: &str) {
    write_name(out, name, RESERVED);
}
