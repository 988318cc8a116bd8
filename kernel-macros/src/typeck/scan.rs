//! Running combinations along an axis: `cumsum`, `cumprod`, and the axis of `associative_scan`.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, DTypeBound, Op};

use super::args::Args;
use super::{Checker, Operand};
use crate::error::Checked;
use crate::tree::Fold;

impl Checker<'_> {
    /// `cumsum(x, axis = 0)`
    pub(super) fn running(&mut self, args: &Args<'_>, op: BinaryOp) -> Checked<Operand> {
        let what = format!("`{}`", args.row.name);
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(DTypeBound::Num), &what)?;
        let (fold, axis) = self.scan_axis(args, x)?;
        let place = args.place;
        let results = self.combination(&[x], fold, axis, place, |c, a, b| {
            let ty = c.node(a[0]).ty.clone();
            vec![c.op(Op::binary(op), vec![a[0], b[0]], ty, place)]
        });
        Ok(Operand { node: results[0], place })
    }

    /// The axis and the direction of a scan. A tile of one axis needs no `axis`.
    pub(super) fn scan_axis(&mut self, args: &Args<'_>, tile: Operand) -> Checked<(Fold, u8)> {
        let what = format!("`{}`", args.row.name);
        let reverse = self.flag(args, "reverse");
        let rank = self.ty(tile).shape.len();
        let axis = match (args.named("axis"), rank) {
            (_, 0) => Err(self.needs_tile(tile, &what)),
            (Some(expr), _) => self.axis(expr, rank, "the tile"),
            (None, 1) => Ok(0),
            (None, _) => {
                let message = format!("{what} runs along one axis, but the tile has {rank}");
                Err(self.report_help(args.place, message, "say which: `axis = 0`"))
            }
        };
        Ok((Fold::Scan { reverse: reverse? }, axis?))
    }
}
