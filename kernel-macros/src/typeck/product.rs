//! Matrix products: `dot(a, b, acc = c, precision = tf32x3)`.

use kernel_core::ir::{DType, DTypeBound, Dim, DotOp, DotPrecision, Dt, Op, accumulators, product_dtypes};
use syn::Expr;

use super::args::Args;
use super::{Checker, Operand};
use crate::error::Checked;
use crate::help::Help;
use crate::source_range::{SourceRange, bare};
use crate::tree::{NodeId, VOp};
use crate::types::{Class, DtRef, VElem, VTy, admits, may_be};

impl Checker<'_> {
    /// `dot(a, b, acc = .., precision = .., out = ..)`
    pub(super) fn dot(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let (a, b) = (self.arg(args, 0), self.arg(args, 1));
        let acc = self.named_value(args, "acc");
        let precision = self.precision(args);
        let out = args.named("out").map(|expr| (self.product_dtype(expr), SourceRange::of(expr)));
        let (a, b, acc) = (a?, b?, acc?);
        let product = self.product_shapes(a, b, args.place)?;
        let dt = self.factor_dtype(a, b, args.place)?;
        let out = match out {
            Some((dt, place)) => Some((dt?, place)),
            None => None,
        };
        let acc = self.accumulator(acc, (dt, b), out, &product, args.place)?;
        let ty = self.node(acc).ty.clone();
        let op = Op::from(DotOp::Dot { precision: precision?, by: None });
        Ok(Operand { node: self.op(op, vec![a.node, b.node, acc], ty, args.place), place: args.place })
    }

    fn precision(&mut self, args: &Args<'_>) -> Checked<DotPrecision> {
        let Some(expr) = args.named("precision") else { return Ok(DotPrecision::Tf32) };
        let all: Vec<(&str, DotPrecision)> = DotPrecision::ALL.iter().map(|p| (p.name(), *p)).collect();
        self.keyword(bare(expr), "precision", &all)
    }

    /// The dtype that `out` names.
    fn product_dtype(&mut self, expr: &Expr) -> Checked<Dt> {
        let dt = match bare(expr) {
            Expr::Path(path) => self.dtype_of_path(&path.path),
            _ => None,
        };
        dt.ok_or_else(|| {
            let help = "write the dtype of the sums: `out = f16`";
            self.report_help(SourceRange::of(expr), "`out` is a dtype", help)
        })
    }

    /// The shape of a product of two factors.
    fn product_shapes(&mut self, a: Operand, b: Operand, place: SourceRange) -> Checked<Vec<Dim>> {
        self.data(a, "`dot`")?;
        self.data(b, "`dot`")?;
        let (left, right) = (self.ty(a).shape.clone(), self.ty(b).shape.clone());
        let shown = format!("found {} and {}", self.show_factor(&left), self.show_factor(&right));
        for (factor, shape) in [(a, &left), (b, &right)] {
            if shape.len() < 2 {
                let message = format!("`dot` multiplies tiles of shape `[.., M, K]` and `[.., K, N]`, {shown}");
                let source = self.source(factor);
                let help = match shape.len() {
                    1 => format!("make it a matrix: `{source}[(None, ..)]` or `{source}[(.., None)]`"),
                    _ => "of two scalars write `a * b`".to_string(),
                };
                return Err(self.report_help(factor.place, message, help));
            }
        }
        if left.len() != right.len() {
            let message = format!("the factors of `dot` have one number of axes, {shown}");
            let help = "give both the same batch axes with `broadcast_to`";
            return Err(self.report_help(place, message, help));
        }
        let rank = left.len();
        let (m, k, n) = (&left[rank - 2], &left[rank - 1], &right[rank - 1]);
        if !self.same_dim(k, &right[rank - 2]) {
            let message = format!("the inner axes of `dot` differ, {shown}");
            let help = self.inner_help(b, &left, &right);
            return Err(self.report_help(place, message, help));
        }
        if !self.same_shape(&left[..rank - 2], &right[..rank - 2]) {
            let message = format!("the batches of `dot` differ, {shown}");
            let help = "give both the same batch axes with `broadcast_to`";
            return Err(self.report_help(place, message, help));
        }
        let mut product = left[..rank - 2].to_vec();
        product.extend([m.clone(), n.clone()]);
        self.check_shape(&product, place)?;
        Ok(product)
    }

    fn show_factor(&self, shape: &[Dim]) -> String {
        if shape.is_empty() { "a scalar".to_string() } else { self.show_shape(shape) }
    }

    /// Inner axes that differ: a transposition may be missing, or a fact.
    fn inner_help(&self, b: Operand, left: &[Dim], right: &[Dim]) -> String {
        let rank = left.len();
        let k = &left[rank - 1];
        if self.same_dim(k, &right[rank - 1]) {
            return format!("transpose the second factor: `{}.trans()`", self.source(b));
        }
        self.shape_help(k, &right[rank - 2])
    }

    /// The dtype of the factors, which they share; the 8-bit floats may mix.
    fn factor_dtype(&mut self, a: Operand, b: Operand, place: SourceRange) -> Checked<Dt> {
        let (left, right) = (self.data(a, "`dot`")?, self.data(b, "`dot`")?);
        let known = [left, right].map(|dt| self.types.known(dt));
        if let [Some(Dt::Known(x)), Some(Dt::Known(y))] = known
            && x.is_fp8()
            && y.is_fp8()
        {
            return Ok(Dt::Known(x));
        }
        if let [Some(x), Some(y)] = known
            && x != y
        {
            let message =
                format!("`dot` multiplies tiles of one dtype, found {} and {}", self.show_fixed(x), self.show_fixed(y));
            let help = self.factor_help(a, b, x, y);
            return Err(self.report_help(place, message, help));
        }
        self.unify(a, b, "`dot`", place)?;
        // A tile of float literals is f32, as it would be anywhere else.
        if self.types.class(left) == Some(Class::Float) {
            self.expect(a, DtRef::from(DType::F32), "`dot`")?;
        }
        match self.types.known(left) {
            Some(dt) => {
                self.multiplies(dt, a.place)?;
                Ok(dt)
            }
            None => {
                let message = "the dtype of this factor of `dot` is not known here".to_string();
                let help = format!("say it: `{} as f16`", self.source(a));
                Err(self.report_help(a.place, message, help))
            }
        }
    }

    /// How to make the factors agree: products of the narrow dtype are the fast ones, those of the wide one are exact.
    fn factor_help(&self, a: Operand, b: Operand, x: Dt, y: Dt) -> Help {
        let float = |dt: Dt| admits(&self.func, dt, DTypeBound::Float);
        let both = |to: DType| {
            let [left, right] = [(a, x), (b, y)].map(|(factor, dt)| match dt == Dt::Known(to) {
                true => Vec::new(),
                false => self.conversion(factor, Dt::Known(to)).rewrites,
            });
            let rewrites: Vec<_> = left.into_iter().chain(right).collect();
            let text: Vec<String> = rewrites.iter().map(|(_, code)| format!("`{code}`")).collect();
            Help { text: format!("write {}", text.join(" and ")), rewrites }
        };
        let is_byte = |dtype: DType| dtype.bits() == 8 && (dtype.is_int() || dtype.is_fp8());
        match (x, y) {
            // `i8` and `u8`, or one of them and an 8-bit float: f16 holds both.
            (Dt::Known(x), Dt::Known(y)) if is_byte(x) && is_byte(y) => both(DType::F16),
            (Dt::Known(d), Dt::Known(e)) if d.is_float() && e.is_float() && d.bits() != e.bits() => {
                let (narrow, wide) = if d.bits() < e.bits() { ((a, x), (b, y)) } else { ((b, y), (a, x)) };
                let exact = self.conversion(narrow.0, wide.1);
                let rounded = self.conversion(wide.0, narrow.1).text;
                exact.and(&format!("; {rounded} is faster, and rounds").replace("write ", ""))
            }
            _ if float(y) && !float(x) => self.conversion(a, y),
            _ if float(x) && !float(y) => self.conversion(b, x),
            _ => both(DType::F32),
        }
    }

    fn multiplies(&mut self, dt: Dt, place: SourceRange) -> Checked<()> {
        let fits = match dt {
            Dt::Known(dtype) => !accumulators(dtype).is_empty(),
            Dt::Param(id) => {
                let bound = self.func.dtype_params[id.index()].bound;
                DType::ALL.into_iter().any(|d| bound.admits(d) && !accumulators(d).is_empty())
            }
        };
        if fits {
            return Ok(());
        }
        let message = format!("`dot` multiplies floats, `i8` and `u8`, found {}", self.show_fixed(dt));
        let help = "convert the factors: `x as f32`, with `precision = ieee` for integers from 2^10 on";
        Err(self.report_help(place, message, help))
    }

    /// What the product is added to: the one given, or zeros.
    fn accumulator(
        &mut self,
        acc: Option<Operand>,
        (dt, b): (Dt, Operand),
        out: Option<(Dt, SourceRange)>,
        product: &[Dim],
        place: SourceRange,
    ) -> Checked<NodeId> {
        let Some(acc) = acc else {
            let (sums, at) = match out {
                Some((sums, at)) => (sums, at),
                None => (self.usual_sums(dt, place)?, place),
            };
            self.sums_fit(dt, b, sums, at)?;
            let zero = self.eval(VOp::Zero, Vec::new(), VTy::scalar(DtRef::Fixed(sums)), place);
            return Ok(self.expand(zero, product, place));
        };
        self.accumulator_shape(acc, product)?;
        let sums = self.data(acc, "`acc`")?;
        if let Some((wanted, at)) = out {
            self.expect(acc, DtRef::Fixed(wanted), "`acc`, as `out` says,")?;
            self.sums_fit(dt, b, wanted, at)?;
            return Ok(acc.node);
        }
        let sums = match self.types.known(sums) {
            Some(sums) => sums,
            None => {
                let usual = self.usual_sums(dt, acc.place)?;
                self.expect(acc, DtRef::Fixed(usual), "`acc`")?;
                usual
            }
        };
        self.sums_fit(dt, b, sums, acc.place)?;
        Ok(acc.node)
    }

    /// Refuses an accumulator of another shape than the product has.
    pub(super) fn accumulator_shape(&mut self, acc: Operand, product: &[Dim]) -> Checked<()> {
        let own = self.ty(acc).shape.clone();
        if !self.same_shape(&own, product) {
            let found = if own.is_empty() { "a scalar".to_string() } else { self.show_shape(&own) };
            let message = format!("the product has the shape {}, `acc` is {found}", self.show_shape(product));
            let help = if own.len() <= product.len() && self.broadcasts(&own, product) {
                format!("repeat it: `acc = broadcast_to({}, {})`", self.source(acc), self.shape_source(product))
            } else {
                format!("begin with `zeros({})`", self.shape_source(product))
            };
            return Err(self.report_help(acc.place, message, help));
        }
        Ok(())
    }

    fn broadcasts(&self, own: &[Dim], to: &[Dim]) -> bool {
        own.iter().rev().zip(to.iter().rev()).all(|(a, b)| a.is_one() || self.same_dim(a, b))
    }

    /// What products of a dtype are summed in unless the user says something else.
    fn usual_sums(&mut self, dt: Dt, place: SourceRange) -> Checked<Dt> {
        let id = match dt {
            Dt::Known(dtype) => return Ok(Dt::Known(accumulators(dtype).first().copied().unwrap_or(DType::F32))),
            Dt::Param(id) => id,
        };
        if admits(&self.func, dt, DTypeBound::Float) {
            return Ok(Dt::Known(DType::F32));
        }
        if !may_be(&self.func, dt, DTypeBound::Float) {
            return Ok(Dt::Known(DType::I32));
        }
        let name = self.func.dtype_params[id.index()].name.clone();
        let message = format!("`{name}` may be an integer or a float, which `dot` sums in different dtypes");
        let help = format!("bound it: `{name}: Float`, or say what the sums are in: `out = f32`");
        Err(self.report_help(place, message, help))
    }

    /// Refuses an accumulator that products of the factors are not summed in.
    fn sums_fit(&mut self, dt: Dt, b: Operand, sums: Dt, place: SourceRange) -> Checked<()> {
        let VElem::Data(right) = self.ty(b).elem else { return Ok(()) };
        let right = self.types.known(right).unwrap_or(dt);
        if product_dtypes(&self.func, dt, right, sums).is_ok() {
            return Ok(());
        }
        let allowed: Vec<DType> = match dt {
            Dt::Known(dtype) => accumulators(dtype).to_vec(),
            Dt::Param(id) => {
                let bound = self.func.dtype_params[id.index()].bound;
                let all = DType::ALL.into_iter().filter(|d| bound.admits(*d));
                all.flat_map(accumulators).copied().fold(Vec::new(), |mut list, d| {
                    if !list.contains(&d) {
                        list.push(d);
                    }
                    list
                })
            }
        };
        let names: Vec<String> = allowed.iter().map(|d| format!("`{d}`")).collect();
        let message = format!(
            "products of {} are summed in {}, not in {}",
            self.show_fixed(dt),
            names.join(" or "),
            self.show_fixed(sums)
        );
        let help = match allowed.first() {
            Some(first) => {
                let to = self.show_fixed(sums).replace('`', "");
                format!("sum in `{first}` and convert the result: `dot(..) as {to}`")
            }
            None => "convert the factors: `x as f32`".to_string(),
        };
        Err(self.report_help(place, message, help))
    }
}
