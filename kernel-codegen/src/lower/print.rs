//! `print`: a call of `vprintf` per element, by the thread that owns it.
//!
//! `vprintf` takes C's format and a record of arguments, each aligned to its size; the driver formats and writes them
//! to the standard output of the process when the host waits for the launch. What C prints otherwise than the
//! interpreter is made alike before: truth values are words, and a NaN has no sign.

use kernel_core::ir::format::{self, Digits, Piece};
use kernel_core::ir::{DType, Operation, ValueId};
use kernel_core::layout::LayoutDim;
use kernel_llvm::inkwell::module::Linkage;
use kernel_llvm::inkwell::values::{GlobalValue, IntValue, PointerValue};
use kernel_llvm::inkwell::{AddressSpace, FloatPredicate};
use kernel_llvm::space;

use super::intrinsics::Intrinsic;
use super::ir::{Ir, Value};
use super::{Lower, Result};

/// The elements of a tile that a thread holds.
struct Elements<'ctx> {
    /// The thread's part of the coordinates, per axis.
    thread: Vec<IntValue<'ctx>>,
    /// One register of each element, and its part of the coordinates.
    registers: Vec<(usize, Vec<u32>)>,
}

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn print(&mut self, operation: &Operation, text: &str) -> Result<()> {
        let Ok(pieces) = format::pieces(text) else { return Err(self.malformed(operation)) };
        let (values, digits) = (&operation.operands, format::values(&pieces));
        let layout = values.first().and_then(|&first| self.layout(first));
        let owner = self.owner(layout);
        let elements = self.elements_of(values.first().copied());
        let dtypes: Vec<DType> = values.iter().map(|&value| self.dtype(value)).collect();
        let text = c_format(&pieces, elements.thread.len(), &dtypes);
        let format = self.ir.generic(self.ir.text("print_text", &text));
        // The program, the index and the values; none takes more than a word.
        let words = (3 + elements.thread.len() + values.len()) as u32;
        let record = self.at_entry(|this| this.ir.words(words));
        let next = owner.map(|owner| {
            let (line, next) = (self.block("print.own"), self.block("print.end"));
            self.ir.branch_if(owner, line, next);
            self.ir.builder.position_at_end(line);
            next
        });
        let program: Vec<Value> = (0..3).map(|axis| self.launch_number(Intrinsic::BlockId(axis))).collect();
        for (register, own) in &elements.registers {
            let mut arguments = program.clone();
            for (thread, &own) in elements.thread.iter().zip(own) {
                arguments.push(self.ir.xor(*thread, self.ir.i32(own as i32)).into());
            }
            for ((&value, &dtype), &digits) in values.iter().zip(&dtypes).zip(&digits) {
                arguments.push(self.ir.argument(self.registers(value)[*register], dtype, digits));
            }
            self.ir.print(format, record, &arguments);
        }
        if let Some(next) = next {
            self.ir.branch(next);
            self.ir.builder.position_at_end(next);
        }
        Ok(())
    }

    /// The elements of a tile that this thread holds, each once; of a scalar or of nothing, one without coordinates.
    fn elements_of(&mut self, value: Option<ValueId>) -> Elements<'ctx> {
        let Some((layout, value)) = value.and_then(|value| Some((self.layout(value)?.clone(), value))) else {
            return Elements { thread: Vec::new(), registers: vec![(0, Vec::new())] };
        };
        let axes = 0..self.func.ty(value).rank() as u8;
        let forms: Vec<_> = axes.map(|axis| layout.coordinate_form(LayoutDim::Axis(axis))).collect();
        let thread = forms.iter().map(|form| self.form(&form.thread)).collect();
        let mut registers: Vec<(usize, Vec<u32>)> = Vec::new();
        for register in 0..self.register_count(value) {
            let own: Vec<u32> = forms.iter().map(|form| form.registers[register]).collect();
            if registers.iter().all(|(_, known)| *known != own) {
                registers.push((register, own));
            }
        }
        Elements { thread, registers }
    }
}

/// The text as C has it, with what a line begins with.
fn c_format(pieces: &[Piece], rank: usize, dtypes: &[DType]) -> String {
    let index = match rank {
        0 => String::new(),
        _ => format!(" [{}]", vec!["%d"; rank].join(", ")),
    };
    let mut text = format!("program (%u, %u, %u){index}: ");
    let mut dtypes = dtypes.iter();
    for piece in pieces {
        match piece {
            Piece::Text(plain) => text.push_str(&plain.replace('%', "%%")),
            Piece::Value(digits) => text.push_str(&dtypes.next().map_or_else(String::new, |&d| conversion(d, *digits))),
        }
    }
    text.push('\n');
    text
}

fn conversion(dtype: DType, digits: Digits) -> String {
    match (dtype.is_float(), dtype.bits(), dtype.is_signed_int()) {
        (false, 64, _) if digits == Digits::Hex => "%llx".to_string(),
        (false, ..) if digits == Digits::Hex => "%x".to_string(),
        (true, bits, _) => format!("%.{}g", digits.count(bits)),
        (false, 1..=8, _) if dtype == DType::Bool => "%s".to_string(),
        (false, 64, true) => "%lld".to_string(),
        (false, 64, false) => "%llu".to_string(),
        (false, _, true) => "%d".to_string(),
        (false, _, false) => "%u".to_string(),
    }
}

impl<'ctx> Ir<'ctx> {
    /// A word that elements share.
    fn word(&self, word: &str) -> PointerValue<'ctx> {
        let name = format!("print_{word}");
        self.generic(self.module.get_global(&name).unwrap_or_else(|| self.text(&name, word)))
    }

    /// A text in global memory.
    fn text(&self, name: &str, text: &str) -> GlobalValue<'ctx> {
        let bytes = self.context.const_string(text.as_bytes(), true);
        let global = self.module.add_global(bytes.get_type(), Some(AddressSpace::from(space::GLOBAL)), name);
        global.set_linkage(Linkage::Private);
        global.set_constant(true);
        global.set_initializer(&bytes);
        global
    }

    fn generic(&self, global: GlobalValue<'ctx>) -> PointerValue<'ctx> {
        let generic = self.context.ptr_type(AddressSpace::from(space::GENERIC));
        let pointer = global.as_pointer_value();
        self.ok(self.builder.build_address_space_cast(pointer, generic, ""), || generic.const_null())
    }

    /// So many words of a thread's own memory. To be called in the entry block.
    fn words(&self, count: u32) -> PointerValue<'ctx> {
        let ty = self.int_type(64).array_type(count);
        self.ok(self.builder.build_alloca(ty, ""), || {
            self.context.ptr_type(AddressSpace::from(space::GENERIC)).const_null()
        })
    }

    /// A value as C passes it: floats as `double`, integers as `int` at least.
    fn argument(&self, value: Value<'ctx>, dtype: DType, digits: Digits) -> Value<'ctx> {
        if dtype == DType::Bool {
            return self.select(self.int(value), self.word("true").into(), self.word("false").into());
        }
        if dtype.is_float() {
            let wide = self.float(self.cast(dtype, DType::F64, value));
            let nan = wide.get_type().const_float(f64::NAN);
            return self.select(self.fcmp(FloatPredicate::UNO, wide, wide), nan.into(), wide.into());
        }
        let bits = dtype.bits().max(32);
        // Hexadecimal digits of narrow integers are those of their own bits.
        let signed = dtype.is_signed_int() && digits != Digits::Hex;
        self.resize(self.int(value), self.int_type(bits), signed).into()
    }

    /// Fills the record and calls `vprintf`.
    fn print(&self, format: PointerValue<'ctx>, record: PointerValue<'ctx>, arguments: &[Value<'ctx>]) {
        let mut at = 0u32;
        for &argument in arguments {
            let narrow = argument.is_int_value() && self.int(argument).get_type().get_bit_width() == 32;
            let bytes = if narrow { 4 } else { 8 };
            at = at.next_multiple_of(bytes);
            let place = self.offset(self.int_type(8), record, self.i32(at as i32));
            self.store(place, argument, bytes);
            at += bytes;
        }
        let function = self.module.get_function("vprintf").unwrap_or_else(|| {
            let pointer = format.get_type().into();
            self.module.add_function("vprintf", self.context.i32_type().fn_type(&[pointer, pointer], false), None)
        });
        if let Err(error) = self.builder.build_call(function, &[format.into(), record.into()], "") {
            self.bug(error.to_string());
        }
    }
}
