//! Writes a kernel as text.

use super::attr::AttrPrinter;
use super::lexer::{write_name, write_string};
use super::{dims, layouts, recipes, types};
use crate::ir::{
    CallId, ConstOrigin, ConstTy, Dt, ElementwiseOp, Facts, Func, IntTy, Level, Op, OpId, Operation, Param, ParamKind,
    Passing, RegionId, Regions, Safety, Span, Subnormals, ValueId,
};
use crate::layout::SyncScope;

/// The text form of a kernel. Values are numbered in the order of their definitions, so two kernels that differ
/// only in the order of their arenas print alike; what no region lists is not printed.
pub fn print(func: &Func) -> String {
    Printer::new(func, true).kernel()
}

/// The text form without source locations and file: of two kernels that do the same at different places in their sources
/// it is equal. What a cache key should cover.
pub fn print_without_spans(func: &Func) -> String {
    Printer::new(func, false).kernel()
}

/// The name of a level in the text form.
pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Generic => "generic",
        Level::Bound => "bound",
        Level::Placed => "placed",
    }
}

/// The name of a constexpr's type in the text form.
pub(super) fn const_ty_name(ty: ConstTy) -> &'static str {
    match ty {
        ConstTy::Bool => "bool",
        ConstTy::Int(IntTy::Usize) => "usize",
        ConstTy::Int(IntTy::Isize) => "isize",
        ConstTy::Int(IntTy::Fixed(dtype)) => dtype.name(),
    }
}

/// The word between two regions of an operation.
pub(super) fn separator(op: &Op) -> &'static str {
    match op.regions() {
        Regions::Branch(_) => "else",
        Regions::Loop(_) => "do",
        Regions::Straight | Regions::Combine(_) | Regions::Apply(_) | Regions::Concurrent => "with",
    }
}

struct Printer<'f> {
    func: &'f Func,
    spans: bool,
    out: String,
    /// Per value, its number in the text plus one; 0 where nothing defines it.
    numbers: Vec<u32>,
    next: u32,
    indent: usize,
}

impl<'f> Printer<'f> {
    fn new(func: &'f Func, spans: bool) -> Printer<'f> {
        let numbers = vec![0; func.values.len()];
        let mut printer = Printer { func, spans, out: String::new(), numbers, next: 0, indent: 1 };
        for param in &func.params {
            printer.number(param.value);
        }
        printer.number_region(func.body);
        printer
    }

    fn number(&mut self, value: ValueId) {
        self.next += 1;
        self.numbers[value.index()] = self.next;
    }

    fn number_region(&mut self, region: RegionId) {
        let func = self.func;
        func.region(region).args.iter().for_each(|&arg| self.number(arg));
        for (_, operation) in func.region_ops(region) {
            operation.results.iter().for_each(|&result| self.number(result));
            operation.regions.iter().for_each(|&inner| self.number_region(inner));
        }
    }

    fn kernel(mut self) -> String {
        let func = self.func;
        self.out.push_str("kernel ");
        write_name(&mut self.out, &func.name, &[]);
        self.out.push(' ');
        write_string(&mut self.out, if self.spans { func.files.own() } else { "" });
        self.out.push_str(match func.safety {
            Safety::Safe => " safe ",
            Safety::Unsafe => " unsafe ",
        });
        self.out.push_str(match func.subnormals {
            Subnormals::Kept => "",
            Subnormals::Flushed => "flush ",
        });
        self.out.push_str(level_name(func.level));
        self.out.push_str(" {\n");
        if self.spans {
            for (index, name) in func.files.others().iter().enumerate() {
                self.out.push_str(&format!("  file f{} = ", index + 1));
                write_string(&mut self.out, name);
                self.out.push('\n');
            }
            for (index, call) in func.files.calls().iter().enumerate() {
                self.out.push_str(&format!("  call c{}", index + 1));
                self.span(*call);
                self.out.push('\n');
            }
        }
        for param in &func.dtype_params {
            self.out.push_str("  dtype ");
            types::print_name(&mut self.out, &param.name);
            self.out.push_str(&format!(": {}", param.bound.name()));
            if let Some(of) = param.accumulator_of {
                self.out.push_str(" = accumulator ");
                types::print_dt(&mut self.out, func, Dt::Param(of));
            }
            self.out.push('\n');
        }
        for param in &func.const_params {
            self.out.push_str("  const ");
            write_name(&mut self.out, &param.name, &[]);
            self.out.push_str(&format!(": {}", const_ty_name(param.ty)));
            self.origin(param.origin);
            self.out.push('\n');
        }
        for param in &func.params {
            self.param(param);
        }
        for made in &func.by_pointers {
            self.out.push_str("  by_pointers ");
            write_name(&mut self.out, &made.name, &[]);
            self.out.push(' ');
            write_string(&mut self.out, &made.why);
            self.span(made.span);
            self.out.push('\n');
        }
        for (index, layout) in func.layouts.iter().enumerate() {
            self.out.push_str(&format!("  layout #{index} = "));
            layouts::print(&mut self.out, layout);
            self.out.push('\n');
        }
        if let Some(programs) = func.programs {
            self.out.push_str(&format!("  programs {programs}\n"));
        }
        self.region_ops(func.body);
        self.out.push_str("}\n");
        self.out
    }

    /// ` = bits T`: where the value of a constexpr comes from.
    fn origin(&mut self, origin: ConstOrigin) {
        let func = self.func;
        match origin {
            ConstOrigin::Launch => {}
            ConstOrigin::Counter => self.out.push_str(" = counter"),
            ConstOrigin::NumWarps => self.out.push_str(" = num_warps"),
            ConstOrigin::Capability => self.out.push_str(" = capability"),
            ConstOrigin::Given(of) => self.out.push_str(&format!(" = given {}", of.index())),
            ConstOrigin::Bits(of) => {
                self.out.push_str(" = bits ");
                types::print_dt(&mut self.out, func, Dt::Param(of));
            }
            ConstOrigin::IsDtype(of, dt) => {
                self.out.push_str(" = is ");
                types::print_dt(&mut self.out, func, Dt::Param(of));
                self.out.push(' ');
                types::print_dt(&mut self.out, func, dt);
            }
        }
    }

    fn param(&mut self, param: &Param) {
        self.out.push_str("  param ");
        self.value(param.value);
        self.out.push(' ');
        write_name(&mut self.out, &param.name, &[]);
        self.out.push_str(": ");
        match &param.kind {
            ParamKind::Ptr { dt, mutable } => {
                self.out.push_str(if *mutable { "ptr_mut " } else { "ptr " });
                types::print_dt(&mut self.out, self.func, *dt);
            }
            ParamKind::Desc { dt, block, mutable } => {
                self.out.push_str(if *mutable { "desc_mut " } else { "desc " });
                types::print_dt(&mut self.out, self.func, *dt);
                dims::print_shape(&mut self.out, self.func, block);
            }
            ParamKind::DescShape { of, axis } => {
                self.out.push_str("desc_shape ");
                types::print_param(&mut self.out, self.func, *of);
                self.out.push_str(&format!(" {axis}"));
            }
            ParamKind::DescStride { of, axis } => {
                self.out.push_str("desc_stride ");
                types::print_param(&mut self.out, self.func, *of);
                self.out.push_str(&format!(" {axis}"));
            }
            ParamKind::Scalar(dt) => types::print_dt(&mut self.out, self.func, *dt),
            ParamKind::ConstScalar(dt) => {
                self.out.push_str("const ");
                types::print_dt(&mut self.out, self.func, *dt);
            }
            ParamKind::ReportSlot => self.out.push_str("report_slot"),
            ParamKind::Length(of) => {
                self.out.push_str("length ");
                types::print_param(&mut self.out, self.func, *of);
            }
        }
        match param.passing {
            Passing::Always => {}
            Passing::Optional => self.out.push_str(" optional"),
            Passing::InPlace(of) => self.out.push_str(&format!(" in_place {}", of.index())),
        }
        if let Some(recipe) = &param.recipe {
            recipes::print(&mut self.out, self.func, recipe);
        }
        self.facts(&param.facts);
        self.span(param.span);
        self.out.push('\n');
    }

    fn facts(&mut self, facts: &Facts) {
        let mut known = Vec::new();
        if facts.divisible_by != 0 {
            known.push(format!("div = {}", facts.divisible_by));
        }
        if facts.len_divisible_by != 0 {
            known.push(format!("len_div = {}", facts.len_divisible_by));
        }
        if facts.stride_divisible_by != 0 {
            known.push(format!("stride_div = {}", facts.stride_divisible_by));
        }
        if facts.pads_with_nan {
            known.push("pad_nan".to_string());
        }
        if facts.equals_one {
            known.push("one".to_string());
        }
        if facts.omitted {
            known.push("omitted".to_string());
        }
        if !known.is_empty() {
            self.out.push_str(&format!(" {{{}}}", known.join(", ")));
        }
    }

    fn span(&mut self, span: Span) {
        if self.spans && span != Span::UNKNOWN {
            self.out.push_str(" @");
            if span.call != CallId::NONE {
                self.out.push_str(&format!("c{}:", span.call.number()));
            }
            self.out.push_str(&format!("{span}+{}", span.len));
        }
    }

    fn value(&mut self, value: ValueId) {
        match self.numbers.get(value.index()) {
            Some(&number) if number > 0 => self.out.push_str(&format!("%{}", number - 1)),
            _ => self.out.push_str(&format!("%undefined{}", value.index())),
        }
    }

    /// `%0: f32, %1: i32[N]`, with the layout of a value behind its type.
    fn typed(&mut self, values: &[ValueId]) {
        for (i, &value) in values.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.value(value);
            self.out.push_str(": ");
            let data = self.func.value(value);
            types::print(&mut self.out, self.func, &data.ty);
            if let Some(layout) = data.layout {
                self.out.push_str(&format!(" #{}", layout.index()));
            }
            if let Some(bank) = data.bank {
                self.out.push_str(&format!(" bank {}", bank.index()));
            }
        }
    }

    fn region_ops(&mut self, region: RegionId) {
        let func = self.func;
        for &id in &func.region(region).ops {
            self.operation(id);
        }
    }

    fn pad(&mut self) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
    }

    fn operation(&mut self, id: OpId) {
        let func = self.func;
        let operation = func.op(id);
        self.pad();
        if !operation.results.is_empty() {
            self.typed(&operation.results);
            self.out.push_str(" = ");
        }
        self.out.push_str(operation.op.name());
        if operation.flags.contract {
            self.out.push_str(" contract");
        }
        for (i, &operand) in operation.operands.iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { " " });
            self.value(operand);
        }
        self.attributes(operation);
        self.shared(operation);
        self.span(operation.span);
        for (i, &region) in operation.regions.iter().enumerate() {
            if i > 0 {
                self.out.push(' ');
                self.out.push_str(separator(&operation.op));
            }
            self.region(region);
        }
        self.out.push('\n');
    }

    fn region(&mut self, region: RegionId) {
        let func = self.func;
        let args = &func.region(region).args;
        if !args.is_empty() {
            self.out.push_str(" (");
            self.typed(args);
            self.out.push(')');
        }
        self.out.push_str(" {\n");
        self.indent += 1;
        self.region_ops(region);
        self.indent -= 1;
        self.pad();
        self.out.push('}');
    }

    /// ` in shared [0..512], barrier [0..64]`
    fn shared(&mut self, operation: &Operation) {
        for (i, range) in operation.shared.iter().enumerate() {
            self.out.push_str(if i == 0 { " in shared " } else { ", " });
            let barrier = if range.meets { "barrier " } else { "" };
            let warp = if range.scope == SyncScope::Warp { "warp " } else { "" };
            self.out.push_str(&format!("{barrier}{warp}[{}..{}]", range.start, range.end));
            if range.passes != 1 {
                self.out.push_str(&format!(" x {}", range.passes));
            }
        }
    }

    fn attributes(&mut self, operation: &Operation) {
        let result = operation.results.first().map(|&v| self.func.ty(v));
        let mut printer = AttrPrinter::new(&mut self.out, self.func, result);
        match &operation.op {
            Op::Create(op) => op.print_attrs(&mut printer),
            // Their one attribute is the mnemonic.
            Op::Elementwise(
                ElementwiseOp::Unary { .. }
                | ElementwiseOp::Binary { .. }
                | ElementwiseOp::FloatInt { .. }
                | ElementwiseOp::Compare { .. },
            ) => {}
            Op::Elementwise(op) => op.print_attrs(&mut printer),
            Op::Shape(op) => op.print_attrs(&mut printer),
            Op::Tile(op) => op.print_attrs(&mut printer),
            Op::Memory(op) => op.print_attrs(&mut printer),
            Op::Dot(op) => op.print_attrs(&mut printer),
            Op::Desc(op) => op.print_attrs(&mut printer),
            Op::Control(op) => op.print_attrs(&mut printer),
            Op::Gpu(op) => op.print_attrs(&mut printer),
        }
        printer.finish();
    }
}
