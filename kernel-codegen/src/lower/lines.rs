//! Which lines of the source instructions are from.
//!
//! An instruction is from the place of the innermost operation that it is emitted for. LLVM keeps that place through all
//! its passes. What it is told as a file is an origin, a file with the call that inlined what is instantiated: LLVM's PTX
//! has no word for calls, and [`crate::lines`] puts them in behind it.

use std::collections::BTreeMap;

use kernel_core::ir::{Func, Span};
use kernel_llvm::inkwell::values::FunctionValue;
use kernel_llvm::{LineFile, LineLocation, LineTable, set_location};

use super::ir::Ir;
use crate::lines::Origin;

/// The lines of a kernel.
pub(super) struct Lines<'ctx> {
    table: LineTable<'ctx>,
    /// In the order of their names.
    origins: Vec<Origin>,
    files: BTreeMap<Origin, LineFile<'ctx>>,
    here: Option<LineLocation<'ctx>>,
}

/// Where instructions were from before.
pub(super) struct Before<'ctx>(Option<LineLocation<'ctx>>);

impl<'ctx> Lines<'ctx> {
    /// Of a kernel, whose instructions are of no place yet.
    pub(super) fn new(ir: &Ir<'ctx>, function: FunctionValue<'ctx>, func: &Func) -> Lines<'ctx> {
        // The text of a kernel does not say where it begins: with its first operation, as far as anybody can see.
        let own = |span: &Span| span.line > 0 && Origin::of(*span) == Origin::OWN;
        let first = func.ops.iter().map(|operation| operation.span).filter(own).map(|span| span.line).min();
        let table = LineTable::new(ir.context, &ir.module, function, &Origin::name(0), first.unwrap_or(1));
        let own = table.file(&Origin::name(0));
        Lines { table, origins: vec![Origin::OWN], files: BTreeMap::from([(Origin::OWN, own)]), here: None }
    }

    /// From here on instructions are from this place, or from that around it if it is unknown.
    pub(super) fn enter(&mut self, ir: &Ir<'ctx>, span: Span) -> Before<'ctx> {
        let before = Before(self.here);
        if span.line > 0 {
            let file = self.file(Origin::of(span));
            self.here = Some(self.table.location(file, span.line, span.column));
            set_location(&ir.builder, self.here);
        }
        before
    }

    /// From here on instructions are again from where they were before.
    pub(super) fn leave(&mut self, ir: &Ir<'ctx>, before: Before<'ctx>) {
        self.here = before.0;
        set_location(&ir.builder, self.here);
    }

    /// What the names of files stand for.
    pub(super) fn origins(self) -> Vec<Origin> {
        self.origins
    }

    fn file(&mut self, origin: Origin) -> LineFile<'ctx> {
        *self.files.entry(origin).or_insert_with(|| {
            self.origins.push(origin);
            self.table.file(&Origin::name(self.origins.len() - 1))
        })
    }
}
