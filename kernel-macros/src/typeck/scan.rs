//! Running combinations along an axis: `cumsum`, `cumprod`, and the axis of `associative_scan`.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, DTypeBound, Op};

use super::args::Args;
use super::choice::{Axis, Flag};
use super::{Checker, Operand, Val};
use crate::error::Checked;
use crate::tree::Fold;

impl Checker<'_> {
    /// `cumsum(x, axis = 0)`
    pub(super) fn running(&mut self, args: &Args<'_>, op: BinaryOp) -> Checked<Operand> {
        let what = format!("`{}`", args.row.name);
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(DTypeBound::Num), &what)?;
        let place = args.place;
        let val = self.scanned(args, x, &mut |c, fold, axis| {
            let results = c.combination(&[x], fold, axis, place, |c, a, b| {
                let ty = c.node(a[0]).ty.clone();
                vec![c.op(Op::binary(op), vec![a[0], b[0]], ty, place)]
            });
            Ok(Val::One(Operand { node: results[0], place }))
        })?;
        self.one(val)
    }

    /// A scan along its axis in its direction.
    pub(super) fn scanned(
        &mut self,
        args: &Args<'_>,
        tile: Operand,
        scan: &mut dyn FnMut(&mut Self, Fold, u8) -> Checked<Val>,
    ) -> Checked<Val> {
        let (reverse, axis) = self.scan_axis(args, tile)?;
        let rank = self.ty(tile).shape.len();
        self.for_axis(axis, rank, args.place, &mut |c, axis| {
            c.either(reverse, args.place, &mut |c, reverse| scan(c, Fold::Scan { reverse }, axis))
        })
    }

    /// The axis and the direction of a scan. A tile of one axis needs no `axis`.
    fn scan_axis(&mut self, args: &Args<'_>, tile: Operand) -> Checked<(Flag, Axis)> {
        let what = format!("`{}`", args.row.name);
        let reverse = self.choice(args, "reverse");
        let rank = self.ty(tile).shape.len();
        let axis = match (args.named("axis"), rank) {
            (_, 0) => Err(self.needs_tile(tile, &what)),
            (Some(expr), _) => self.axis_choice(expr, rank),
            (None, 1) => Ok(Axis::Known(0)),
            (None, _) => {
                let message = format!("{what} runs along one axis, but the tile has {rank}");
                Err(self.report_help(args.place, message, "say which: `axis = 0`"))
            }
        };
        Ok((reverse?, axis?))
    }
}
