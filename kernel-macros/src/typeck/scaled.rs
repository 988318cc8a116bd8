//! Products of factors with scales: `dot_scaled(a, b, a_scale = s, b_scale = t, b_format = e2m1, acc = c)`.

use kernel_core::ir::scaled::{SCALE_BLOCK, is_blocks, same_extent, scaled_candidates, scaled_dtype};
use kernel_core::ir::{DType, Dim, DotOp, Dt, FactorFormat, Op, ScaledFactors};
use syn::Expr;

use super::args::Args;
use super::{Checker, Operand};
use crate::error::Checked;
use crate::source_range::{SourceRange, bare};
use crate::tree::{NodeId, VOp};
use crate::types::{Class, DtRef, VTy};

/// A factor: K is the last axis of the first one, and the one before it of the second.
struct Factor {
    operand: Operand,
    format: FactorFormat,
    batch: Vec<Dim>,
    /// M or N.
    lines: Dim,
    k: Dim,
}

impl Checker<'_> {
    /// `dot_scaled(a, b, a_scale = .., b_scale = .., a_format = .., b_format = .., acc = ..)`
    pub(super) fn dot_scaled(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let (a, b) = (self.arg(args, 0), self.arg(args, 1));
        let scales = ["a_scale", "b_scale"].map(|name| self.named_value(args, name));
        let formats = ["a_format", "b_format"].map(|name| self.factor_format(args, name));
        let acc = self.named_value(args, "acc");
        let ([a_scale, b_scale], [a_format, b_format]) = (scales, formats);
        let (a, b, acc, a_scale, b_scale) = (a?, b?, acc?, a_scale?, b_scale?);
        let [a, b] = self.scaled_factors([(a, a_format?), (b, b_format?)])?;
        self.scaled_dtypes([&a, &b], args.place)?;
        self.scaled_shapes([&a, &b], args.place)?;
        for (name, scale, factor) in [("a_scale", a_scale, &a), ("b_scale", b_scale, &b)] {
            if let Some(scale) = scale {
                self.scale_fits(name, scale, factor, [&a, &b])?;
            }
        }
        let product: Vec<Dim> = a.batch.iter().chain([&a.lines, &b.lines]).cloned().collect();
        self.check_shape(&product, args.place)?;
        let acc = self.scaled_accumulator(acc, &product, args.place)?;
        let ty = self.node(acc).ty.clone();
        let scaled = ScaledFactors::of(a_scale.is_some(), b_scale.is_some());
        let op = Op::from(DotOp::DotScaled { a_format: a.format, b_format: b.format, scaled });
        let scales = [a_scale, b_scale].into_iter().flatten().map(|scale| scale.node);
        let operands = [a.operand.node, b.operand.node, acc].into_iter().chain(scales).collect();
        Ok(Operand { node: self.op(op, operands, ty, args.place), place: args.place })
    }

    /// `a_format = e2m1`; the other formats are dtypes.
    fn factor_format(&mut self, args: &Args<'_>, name: &str) -> Checked<FactorFormat> {
        let Some(expr) = args.named(name) else { return Ok(FactorFormat::Own) };
        let dtype = match word(expr).as_str() {
            "e4m3" | "f8e4m3" => "f8e4m3",
            "e5m2" | "f8e5m2" => "f8e5m2",
            "bf16" => "bf16",
            "fp16" | "f16" => "f16",
            _ => return self.keyword(bare(expr), name, &[("e2m1", FactorFormat::E2m1)]),
        };
        let factor = name.trim_end_matches("_format");
        let message = format!("`{name}` is `e2m1`; other formats are dtypes of the factor");
        let help = format!("leave `{name}` out, and give `{factor}` the dtype `{dtype}`");
        Err(self.report_help(SourceRange::of(expr), message, help))
    }

    fn scaled_factors(&mut self, factors: [(Operand, FactorFormat); 2]) -> Checked<[Factor; 2]> {
        for (operand, _) in factors {
            self.data(operand, "`dot_scaled`")?;
        }
        let shapes = factors.map(|(operand, _)| self.ty(operand).shape.clone());
        let shown = self.show_factors([&shapes[0], &shapes[1]]);
        let ([a_batch @ .., m, a_k], [b_batch @ .., b_k, n]) = (shapes[0].as_slice(), shapes[1].as_slice()) else {
            let message = format!("`dot_scaled` multiplies tiles of shape `[.., M, K]` and `[.., K, N]`, {shown}");
            let (wrong, shape) = if shapes[0].len() < 2 { (factors[0].0, "[M, K]") } else { (factors[1].0, "[K, N]") };
            let help = format!("make it a matrix: `reshape({}, {shape})`", self.source(wrong));
            return Err(self.report_help(wrong.place, message, help));
        };
        let [(a, a_format), (b, b_format)] = factors;
        let left = Factor { operand: a, format: a_format, batch: a_batch.to_vec(), lines: m.clone(), k: a_k.clone() };
        let right = Factor { operand: b, format: b_format, batch: b_batch.to_vec(), lines: n.clone(), k: b_k.clone() };
        Ok([left, right])
    }

    fn show_factors(&self, shapes: [&[Dim]; 2]) -> String {
        let show = |shape: &[Dim]| if shape.is_empty() { "a scalar".to_string() } else { self.show_shape(shape) };
        format!("found {} and {}", show(shapes[0]), show(shapes[1]))
    }

    /// Inner axes and batches agree.
    fn scaled_shapes(&mut self, [a, b]: [&Factor; 2], place: SourceRange) -> Checked<()> {
        let shapes = [a, b].map(|factor| self.ty(factor.operand).shape.clone());
        let shown = self.show_factors([&shapes[0], &shapes[1]]);
        let (a_k, b_k) = (self.norm(&a.k), self.norm(&b.k));
        if !same_extent((&a_k, a.format.pack()), (&b_k, b.format.pack())) {
            let message = format!("the inner axes of `dot_scaled` differ, {shown}");
            let help = match [a.format, b.format].map(FactorFormat::pack) {
                _ if same_extent((&a_k, a.format.pack()), (&self.norm(&b.lines), b.format.pack())) => {
                    format!("transpose the second factor: `{}.trans()`", self.source(b.operand))
                }
                [1, 1] => self.shape_help(&a.k, &b.k),
                _ => "a byte of `e2m1` holds two neighbours along K: of K numbers there are `K / 2` bytes".to_string(),
            };
            return Err(self.report_help(place, message, help));
        }
        if !self.same_shape(&a.batch, &b.batch) {
            let message = format!("the batches of `dot_scaled` differ, {shown}");
            let help = "give both the same batch axes with `broadcast_to`";
            return Err(self.report_help(place, message, help));
        }
        Ok(())
    }

    /// Each factor is of a dtype that its format has, and both are multiplied in one.
    fn scaled_dtypes(&mut self, factors: [&Factor; 2], place: SourceRange) -> Checked<()> {
        let mut candidates = Vec::new();
        for (factor, name) in factors.into_iter().zip(["a", "b"]) {
            candidates.push(self.scaled_dtype_of(factor, name)?);
        }
        let [(a, a_may), (b, b_may)] = candidates.as_slice() else { return Ok(()) };
        let same = |x: &DType, y: &DType| a != b || x == y;
        if a_may.iter().any(|x| b_may.iter().any(|y| same(x, y) && scaled_dtype(*x, *y).is_some())) {
            return Ok(());
        }
        let message = format!(
            "`dot_scaled` multiplies in `bf16` or `f16`, found {} and {}",
            self.show_fixed(*a),
            self.show_fixed(*b)
        );
        let half = if *a == Dt::from(DType::F16) { factors[0] } else { factors[1] };
        let help = self.conversion(half.operand, Dt::from(DType::BF16));
        Err(self.report_help(place, message, help))
    }

    /// The dtype of a factor, and which it can stand for.
    fn scaled_dtype_of(&mut self, factor: &Factor, name: &str) -> Checked<(Dt, Vec<DType>)> {
        let operand = factor.operand;
        let dt = self.data(operand, "`dot_scaled`")?;
        match (self.types.class(dt), factor.format) {
            // A tile of float literals is f32, as it would be anywhere else.
            (Some(Class::Float), FactorFormat::Own) => self.expect(operand, DtRef::from(DType::F32), "`dot_scaled`")?,
            (Some(Class::Int), FactorFormat::E2m1) => self.expect(operand, DtRef::from(DType::U8), "`dot_scaled`")?,
            _ => {}
        }
        let Some(dt) = self.types.known(dt) else {
            let message = "the dtype of this factor of `dot_scaled` is not known here";
            let help = format!("say it: `{} as bf16`", self.source(operand));
            return Err(self.report_help(operand.place, message, help));
        };
        let may = scaled_candidates(&self.func, dt, factor.format);
        if !may.is_empty() {
            return Ok((dt, may));
        }
        let found = self.show_fixed(dt);
        let (message, help) = match factor.format {
            FactorFormat::E2m1 => {
                let message = format!("numbers of `e2m1` lie in pairs in `u8`, found {found}");
                (message, format!("with a dtype of its own, `{name}` has no `{name}_format`"))
            }
            FactorFormat::Own if dt == Dt::from(DType::U8) => {
                let message = format!("`{name}` is made of bytes, which do not say what they hold");
                let source = self.source(operand);
                (message, format!("say it: `{name}_format = e2m1`, or `bitcast::<f8e4m3>({source})`"))
            }
            FactorFormat::Own => {
                let message = format!(
                    "`dot_scaled` multiplies `f8e4m3`, `f8e5m2`, `bf16`, `f16`, and `e2m1` in bytes, found {found}"
                );
                (message, format!("convert it: `{} as bf16`", self.source(operand)))
            }
        };
        Err(self.report_help(operand.place, message, help))
    }

    /// One scale for 32 numbers along K of a factor.
    fn scale_fits(&mut self, name: &str, scale: Operand, factor: &Factor, both: [&Factor; 2]) -> Checked<()> {
        self.expect(scale, DtRef::from(DType::U8), &format!("`{name}`"))?;
        let own = self.ty(scale).shape.clone();
        let [a, b] = both.map(|factor| (self.norm(&factor.k), factor.format.pack()));
        let fits = |batch: &[Dim], lines: &Dim, blocks: &Dim| {
            self.same_shape(batch, &factor.batch)
                && self.same_dim(lines, &factor.lines)
                && is_blocks(&self.norm(blocks), [(&a.0, a.1), (&b.0, b.1)])
        };
        let turned = match own.as_slice() {
            [batch @ .., lines, blocks] if fits(batch, lines, blocks) => return Ok(()),
            [batch @ .., blocks, lines] => fits(batch, lines, blocks),
            _ => false,
        };
        let wide = SCALE_BLOCK / factor.format.pack();
        let blocks = factor.k.div(&Dim::Const(wide)).unwrap_or_else(|_| factor.k.clone());
        let wanted: Vec<Dim> = factor.batch.iter().chain([&factor.lines, &blocks]).cloned().collect();
        let found = if own.is_empty() { "a scalar".to_string() } else { self.show_shape(&own) };
        let message = format!(
            "`{name}` has one scale for {SCALE_BLOCK} numbers along K, {}, found {found}",
            self.show_shape(&wanted)
        );
        let help = match turned {
            true => format!("transpose it: `{name} = {}.trans()`", self.source(scale)),
            false => "scales lie along K in lines of their own, as K does in a first factor".to_string(),
        };
        Err(self.report_help(scale.place, message, help))
    }

    /// What the product is added to: the one given, or zeros of f32.
    fn scaled_accumulator(&mut self, acc: Option<Operand>, product: &[Dim], place: SourceRange) -> Checked<NodeId> {
        let Some(acc) = acc else {
            let zero = self.eval(VOp::Zero, Vec::new(), VTy::scalar(DtRef::from(DType::F32)), place);
            return Ok(self.expand(zero, product, place));
        };
        self.accumulator_shape(acc, product)?;
        self.expect(acc, DtRef::from(DType::F32), "`acc`")?;
        Ok(acc.node)
    }
}

/// The one word that an expression is, in quotes or without.
fn word(expr: &Expr) -> String {
    match bare(expr) {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string).unwrap_or_default(),
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => text.value(),
        _ => String::new(),
    }
}
