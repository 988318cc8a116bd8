//! What stands before the operations of a kernel.

use super::{Parser, Result};
use crate::ir::{
    ByPointers, ConstOrigin, ConstParam, ConstTy, DType, DTypeBound, Dt, DtypeId, DtypeParam, Facts, IntTy, ParamId,
    ParamKind, Passing,
};
use crate::text::lexer::Token;
use crate::text::{dims, recipes, types};

impl Parser<'_> {
    pub(super) fn header(&mut self) -> Result<()> {
        loop {
            match self.lexer.peek() {
                Token::Ident("file") => self.file()?,
                Token::Ident("call") => self.call()?,
                Token::Ident("dtype") => self.dtype_param()?,
                Token::Ident("const") => self.const_param()?,
                Token::Ident("param") => self.param()?,
                Token::Ident("layout") => self.layout()?,
                Token::Ident("by_pointers") => self.by_pointers()?,
                Token::Ident("programs") => {
                    self.lexer.next();
                    self.func.programs = Some(self.number()?);
                }
                _ => return Ok(()),
            }
        }
    }

    fn file(&mut self) -> Result<()> {
        self.lexer.next();
        let at = self.lexer.position();
        let expected = self.func.files.others().len() + 1;
        let number = self.file_number()?;
        if number != expected as u64 {
            return Err(self.lexer.error_at(at, format!("files are numbered in order; the next is f{expected}")));
        }
        self.lexer.expect(b'=')?;
        let at = self.lexer.position();
        let Token::Str(raw) = self.lexer.peek() else { return Err(self.lexer.expected("a source file in quotes")) };
        let name = self.lexer.unescape(raw)?;
        self.lexer.next();
        match self.func.files.add(&name) {
            Some(id) if id.index() == expected => Ok(()),
            Some(id) => Err(self.lexer.error_at(at, format!("that is f{}", id.index()))),
            None => Err(self.lexer.error_at(at, "a kernel has up to 65535 other files".to_string())),
        }
    }

    fn call(&mut self) -> Result<()> {
        self.lexer.next();
        let at = self.lexer.position();
        let expected = self.func.files.calls().len() + 1;
        let number = self.call_number()?;
        if number != expected as u64 {
            return Err(self.lexer.error_at(at, format!("calls are numbered in order; the next is c{expected}")));
        }
        let place = self.span(at)?;
        match self.func.files.add_call(place) {
            Some(id) if id.number() as usize == expected => Ok(()),
            Some(id) => Err(self.lexer.error_at(at, format!("that is c{}", id.number()))),
            None => Err(self.lexer.error_at(at, "a kernel has up to 4294967295 calls".to_string())),
        }
    }

    /// `f1`
    pub(super) fn file_number(&mut self) -> Result<u64> {
        self.numbered('f', "a file (`f1`)")
    }

    /// `c1`
    pub(super) fn call_number(&mut self) -> Result<u64> {
        self.numbered('c', "a call (`c1`)")
    }

    fn numbered(&mut self, letter: char, what: &str) -> Result<u64> {
        let number = match self.lexer.peek() {
            Token::Ident(word) => word.strip_prefix(letter).filter(|digits| !digits.starts_with('0')),
            _ => None,
        };
        let number = number.and_then(|digits| digits.parse().ok());
        let number = number.ok_or_else(|| self.lexer.expected(what))?;
        self.lexer.next();
        Ok(number)
    }

    fn dtype_param(&mut self) -> Result<()> {
        self.lexer.next();
        let at = self.lexer.position();
        let name = self.lexer.name("a dtype parameter's name")?;
        if self.func.dtype_params.iter().any(|p| p.name == name) {
            return Err(self.lexer.error_at(at, format!("two dtype parameters are named `{name}`")));
        }
        self.lexer.expect(b':')?;
        let bound = match self.lexer.peek() {
            Token::Ident(word) => DTypeBound::from_name(word),
            _ => None,
        };
        let bound = bound.ok_or_else(|| self.lexer.expected("`DType`, `Num`, `Int`, `Float` or `Signed`"))?;
        self.lexer.next();
        let accumulator_of = match self.lexer.eat(b'=') {
            true if self.lexer.eat_word("accumulator") => Some(self.dtype_id()?),
            true => return Err(self.lexer.expected("`accumulator`")),
            false => None,
        };
        self.func.dtype_params.push(DtypeParam { name, bound, accumulator_of });
        Ok(())
    }

    /// The name of a dtype parameter.
    fn dtype_id(&mut self) -> Result<DtypeId> {
        let at = self.lexer.position();
        match types::parse_dt(&mut self.lexer, &self.func)? {
            Dt::Param(id) => Ok(id),
            Dt::Known(_) => Err(self.lexer.error_at(at, "this is no dtype parameter".to_string())),
        }
    }

    fn const_param(&mut self) -> Result<()> {
        self.lexer.next();
        let at = self.lexer.position();
        let name = self.lexer.name("a constexpr's name")?;
        if self.func.const_params.iter().any(|p| p.name == name) {
            return Err(self.lexer.error_at(at, format!("two constexprs are named `{name}`")));
        }
        self.lexer.expect(b':')?;
        let ty = match self.lexer.peek() {
            Token::Ident("usize") => Some(ConstTy::Int(IntTy::Usize)),
            Token::Ident("isize") => Some(ConstTy::Int(IntTy::Isize)),
            Token::Ident("bool") => Some(ConstTy::Bool),
            Token::Ident(word) => DType::from_name(word).filter(|d| d.is_int()).map(|d| ConstTy::Int(IntTy::Fixed(d))),
            _ => None,
        };
        let ty = ty.ok_or_else(|| self.lexer.expected("an integer type or `bool`"))?;
        self.lexer.next();
        let origin = if self.lexer.eat(b'=') { self.origin()? } else { ConstOrigin::Launch };
        self.func.const_params.push(ConstParam { name, ty, origin });
        Ok(())
    }

    /// Where the value of a constexpr comes from.
    fn origin(&mut self) -> Result<ConstOrigin> {
        if self.lexer.eat_word("bits") {
            return Ok(ConstOrigin::Bits(self.dtype_id()?));
        }
        if self.lexer.eat_word("is") {
            let of = self.dtype_id()?;
            return Ok(ConstOrigin::IsDtype(of, types::parse_dt(&mut self.lexer, &self.func)?));
        }
        if self.lexer.eat_word("num_warps") {
            return Ok(ConstOrigin::NumWarps);
        }
        if self.lexer.eat_word("capability") {
            return Ok(ConstOrigin::Capability);
        }
        if self.lexer.eat_word("counter") {
            return Ok(ConstOrigin::Counter);
        }
        if self.lexer.eat_word("given") {
            return Ok(ConstOrigin::Given(self.param_number()?));
        }
        Err(self.lexer.expected("`bits`, `is`, `num_warps`, `capability`, `counter` or `given`"))
    }

    /// The number of a parameter that may come later; the verifier says whether it does.
    fn param_number(&mut self) -> Result<ParamId> {
        Ok(ParamId::new(self.lexer.unsigned(u64::from(u32::MAX))? as u32))
    }

    fn passing(&mut self) -> Result<Passing> {
        if self.lexer.eat_word("optional") {
            return Ok(Passing::Optional);
        }
        match self.lexer.eat_word("in_place") {
            true => self.param_number().map(Passing::InPlace),
            false => Ok(Passing::Always),
        }
    }

    fn param(&mut self) -> Result<()> {
        self.lexer.next();
        let (at, value) = (self.lexer.position(), self.value_name()?);
        let name = self.lexer.name("a parameter's name")?;
        self.lexer.expect(b':')?;
        let kind = match self.lexer.peek() {
            Token::Ident("ptr") => {
                self.lexer.next();
                ParamKind::Ptr { dt: types::parse_dt(&mut self.lexer, &self.func)?, mutable: false }
            }
            Token::Ident("ptr_mut") => {
                self.lexer.next();
                ParamKind::Ptr { dt: types::parse_dt(&mut self.lexer, &self.func)?, mutable: true }
            }
            Token::Ident("desc") => {
                self.lexer.next();
                self.tensor(false)?
            }
            Token::Ident("desc_mut") => {
                self.lexer.next();
                self.tensor(true)?
            }
            Token::Ident("desc_shape") => {
                self.lexer.next();
                let (of, axis) = self.tensor_axis()?;
                ParamKind::DescShape { of, axis }
            }
            Token::Ident("desc_stride") => {
                self.lexer.next();
                let (of, axis) = self.tensor_axis()?;
                ParamKind::DescStride { of, axis }
            }
            Token::Ident("const") => {
                self.lexer.next();
                ParamKind::ConstScalar(types::parse_dt(&mut self.lexer, &self.func)?)
            }
            Token::Ident("report_slot") => {
                self.lexer.next();
                ParamKind::ReportSlot
            }
            Token::Ident("length") => {
                self.lexer.next();
                ParamKind::Length(types::parse_param(&mut self.lexer, &self.func)?)
            }
            _ => ParamKind::Scalar(types::parse_dt(&mut self.lexer, &self.func)?),
        };
        let passing = self.passing()?;
        let recipe = match self.lexer.eat_word("made") {
            true => Some(Box::new(recipes::parse(&mut self.lexer, &self.func)?)),
            false => None,
        };
        let facts = self.facts()?;
        let span = self.span(at)?;
        let id = self.func.add_param(&name, kind, span);
        let param = &mut self.func.params[id.index()];
        (param.passing, param.facts, param.recipe) = (passing, facts, recipe);
        let id = param.value;
        self.define(at, value, id)
    }

    /// A tensor that the kernel makes and accesses through pointers.
    fn by_pointers(&mut self) -> Result<()> {
        let at = self.lexer.position();
        self.lexer.next();
        let name = self.lexer.name("a tensor's name")?;
        let Token::Str(raw) = self.lexer.peek() else { return Err(self.lexer.expected("a reason in quotes")) };
        let why = self.lexer.unescape(raw)?;
        self.lexer.next();
        let span = self.span(at)?;
        self.func.by_pointers.push(ByPointers { name, why, span });
        Ok(())
    }

    /// `f16[BM, BK]`: the dtype of a tensor and the shape of its blocks.
    fn tensor(&mut self, mutable: bool) -> Result<ParamKind> {
        let dt = types::parse_dt(&mut self.lexer, &self.func)?;
        let block = dims::parse_shape(&mut self.lexer, &self.func)?;
        Ok(ParamKind::Desc { dt, block, mutable })
    }

    /// `a 1`: a dimension of the tensor that is given for a parameter.
    fn tensor_axis(&mut self) -> Result<(crate::ir::ParamId, u8)> {
        let of = types::parse_param(&mut self.lexer, &self.func)?;
        Ok((of, self.lexer.unsigned(u64::from(u8::MAX))? as u8))
    }

    fn facts(&mut self) -> Result<Facts> {
        let mut facts = Facts::default();
        if !self.lexer.eat(b'{') {
            return Ok(facts);
        }
        let max = u64::from(u32::MAX);
        loop {
            if self.lexer.eat_word("div") {
                self.lexer.expect(b'=')?;
                facts.divisible_by = self.lexer.unsigned(max)? as u32;
            } else if self.lexer.eat_word("len_div") {
                self.lexer.expect(b'=')?;
                facts.len_divisible_by = self.lexer.unsigned(max)? as u32;
            } else if self.lexer.eat_word("stride_div") {
                self.lexer.expect(b'=')?;
                facts.stride_divisible_by = self.lexer.unsigned(max)? as u32;
            } else if self.lexer.eat_word("pad_nan") {
                facts.pads_with_nan = true;
            } else if self.lexer.eat_word("omitted") {
                facts.omitted = true;
            } else if self.lexer.eat_word("one") {
                facts.equals_one = true;
            } else {
                return Err(self.lexer.expected("`div`, `len_div`, `stride_div`, `pad_nan`, `omitted` or `one`"));
            }
            if !self.lexer.eat(b',') {
                break;
            }
        }
        self.lexer.expect(b'}')?;
        Ok(facts)
    }
}
