//! Mean and variance, expanded into sums.
//!
//! ```text
//! mean(x)                     sum(x) / n
//! var(x, correction = c)      sum((x - mean(x))²) / (n - c)
//! ```
//!
//! Both of 16- and 8-bit floats are computed in f32 and rounded once: sums of squares soon leave their range.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, DType, DTypeBound, Dim, Dt, Op, ShapeOp};

use super::args::Args;
use super::reduce::Along;
use super::{Checker, Operand};
use crate::error::Checked;
use crate::source_range::{SourceRange, bare};
use crate::tree::NodeId;
use crate::types::DtRef;

/// A tile, and the axes along which its moments are taken.
struct Sample {
    tile: Operand,
    /// In order.
    axes: Vec<u8>,
    /// What happens to each of them, in order.
    along: Vec<Along>,
    /// The dtype of the tile: f32 or f64.
    dtype: Dt,
    /// The dtype of the result, if it is another.
    rounded: Option<Dt>,
}

impl Checker<'_> {
    /// `mean(x, axis = 1, keep_dims = true)`
    pub(super) fn mean(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let sample = self.sample(args)?;
        let mean = self.mean_of(&sample, sample.tile.node, 0, args.place)?;
        self.moment(&sample, mean, args.place)
    }

    /// `var(x, axis = 1, keep_dims = true, correction = 1)`
    pub(super) fn var(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let correction = match args.named("correction") {
            Some(expr) => {
                let correction = self.literal_int(bare(expr), "a correction")?;
                if correction < 0 {
                    return Err(self.report(SourceRange::of(expr), "a correction is 0 or more"));
                }
                correction
            }
            None => 0,
        };
        let (sample, place) = (self.sample(args)?, args.place);
        let ty = self.ty(sample.tile).clone();
        let mut mean = self.mean_of(&sample, sample.tile.node, 0, place)?;
        for &axis in &sample.axes {
            let mut kept = self.node(mean).ty.clone();
            if kept.shape.is_empty() {
                break;
            }
            kept.shape.insert(usize::from(axis), Dim::Const(1));
            mean = self.op(ShapeOp::ExpandDims { axis }, vec![mean], kept, place);
        }
        let mean = self.expand(mean, &ty.shape, place);
        let distance = self.op(Op::binary(BinaryOp::Sub), vec![sample.tile.node, mean], ty.clone(), place);
        let square = self.op(Op::binary(BinaryOp::Mul), vec![distance, distance], ty, place);
        let variance = self.mean_of(&sample, square, correction, place)?;
        self.moment(&sample, variance, place)
    }

    /// What a call works on.
    fn sample(&mut self, args: &Args<'_>) -> Checked<Sample> {
        let what = format!("`{}`", args.row.name);
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(DTypeBound::Float), &what)?;
        let dt = self.data(x, &what)?;
        let single = Dt::Known(DType::F32);
        let (tile, dtype, rounded) = match self.types.resolve(dt) {
            DtRef::Fixed(Dt::Param(_)) => {
                let message = format!("{what} of a dtype that the kernel leaves open");
                let help = format!("convert it: `{}({} as f32)`", args.row.name, self.source(x));
                return Err(self.report_help(x.place, message, help));
            }
            DtRef::Fixed(narrow @ Dt::Known(known)) if known.bits() < DType::F32.bits() => {
                let wide = self.cast(x, single, x.place)?;
                (Operand { place: x.place, ..wide }, single, Some(narrow))
            }
            DtRef::Fixed(known) => (x, known, None),
            DtRef::Var(_) => {
                self.expect(x, DType::F32.into(), &format!("the operand of {what}"))?;
                (x, single, None)
            }
        };
        if let Some(axes) = self.several_axes(args, tile)? {
            let keep = self.flag(args, "keep_dims")?;
            let along = axes.iter().map(|&axis| Along { axis, keep, all: None }).collect();
            return Ok(Sample { tile, axes, along, dtype, rounded });
        }
        let (tiles, along) = self.along(args, &[tile], &what)?;
        Ok(Sample { tile: tiles[0], axes: vec![along.axis], along: vec![along], dtype, rounded })
    }

    /// The sum of a tile of the sample's shape over its axes, which are gone, over their length less the correction.
    fn mean_of(&mut self, sample: &Sample, tile: NodeId, correction: i64, place: SourceRange) -> Checked<NodeId> {
        let shape = self.node(tile).ty.shape.clone();
        let lengths: Vec<Dim> = sample.axes.iter().map(|&axis| shape[usize::from(axis)].clone()).collect();
        let length = self.dim_result(Dim::product(&lengths), place)?;
        let length = length.sub(&Dim::Const(correction)).and_then(|length| length.max_with(&Dim::Const(0)));
        let length = self.dim_result(length, place)?;
        let mut sum = tile;
        for &axis in sample.axes.iter().rev() {
            sum = self.fold_along(Operand { node: sum, place }, BinaryOp::Add, axis, place);
        }
        let ty = self.node(sum).ty.clone();
        let count = Operand { node: self.int(length, place), place };
        let count = self.cast(count, sample.dtype, place)?;
        let count = self.expand(count.node, &ty.shape, place);
        Ok(self.op(Op::binary(BinaryOp::DivRn), vec![sum, count], ty, place))
    }

    /// Rounds a result, and puts the axes back that are kept.
    fn moment(&mut self, sample: &Sample, value: NodeId, place: SourceRange) -> Checked<Operand> {
        let mut value = Operand { node: value, place };
        if let Some(narrow) = sample.rounded {
            value = self.cast(value, narrow, place)?;
        }
        for along in &sample.along {
            value = self.finish_axis(value.node, along, place)?;
        }
        Ok(value)
    }
}
