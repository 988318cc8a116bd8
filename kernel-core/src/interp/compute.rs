//! Elementwise and shape instructions.

use std::ptr;

use crate::ir::CmpOp;

use super::affine::Affine;
use super::executor::{Executor, Form};
use super::instructions::{Dot, DotScaled, Symbolic};
use super::lanes::{Bits, Fn1, Fn2, Fn3};
use super::registers::{Part, RegId};

impl Executor<'_> {
    pub(super) fn dot(&mut self, dot: &Dot) {
        let (a, b, acc) = (self.dense(dot.a), self.dense(dot.b), self.dense(dot.acc));
        let (out, room) = (self.reg(dot.out).home, self.arena(dot.room));
        // SAFETY: the product was made for these registers, the room for it, and homes of live registers are disjoint.
        unsafe { dot.product.compute(a, b, acc, out, room) };
        self.set_dense(dot.out);
    }

    pub(super) fn dot_scaled(&mut self, dot: &DotScaled) {
        let factors = dot.factors.map(|factor| self.dense(factor));
        let scales = dot.scales.map(|scale| scale.map(|scale| self.dense(scale)));
        let acc = self.dense(dot.acc);
        let (out, room) = (self.reg(dot.out).home, self.arena(dot.room));
        // SAFETY: the product was made for these registers, the room for it, and homes of live registers are disjoint.
        unsafe { dot.product.compute(factors, scales, acc, out, room) };
        self.set_dense(dot.out);
    }

    pub(super) fn arange(&mut self, out: RegId, lo: i64) {
        let mut affine = Affine::uniform(lo);
        affine.steps[0] = i64::from(self.reg(out).n > 1);
        self.set_affine(out, affine);
    }

    pub(super) fn unary(&mut self, f: Fn1, a: RegId, out: RegId) {
        if let Form::Splat(x) = self.reg(a).form {
            let mut bits = Bits::ZERO;
            // SAFETY: `f` was chosen for the dtypes of `a` and `out`, and each holds one element.
            unsafe { f(x.as_ptr(), bits.as_mut_ptr(), 1) };
            return self.set_splat(out, bits);
        }
        let x = self.dense(a);
        let out_reg = *self.reg(out);
        // SAFETY: `f` was chosen for these dtypes; both have `n` elements, and homes of live registers are disjoint.
        unsafe { f(x, out_reg.home, out_reg.n) };
        self.set_dense(out);
    }

    pub(super) fn cast(&mut self, f: Fn1, a: RegId, out: RegId) {
        if let (Form::Affine(x), Some(range)) = (self.reg(a).form, self.info(out).lane.int_range())
            && let Some(x) = x.within(&self.info(out).dims, range)
        {
            return self.set_affine(out, x);
        }
        self.unary(f, a, out);
    }

    pub(super) fn binary(&mut self, f: Fn2, symbolic: Symbolic, a: RegId, b: RegId, out: RegId) {
        if let (Form::Splat(x), Form::Splat(y)) = (self.reg(a).form, self.reg(b).form) {
            let mut bits = Bits::ZERO;
            // SAFETY: `f` was chosen for these dtypes, and each holds one element.
            unsafe { f(x.as_ptr(), y.as_ptr(), bits.as_mut_ptr(), 1) };
            return self.set_splat(out, bits);
        }
        if let Some(formula) = self.symbolic(symbolic, a, b, out) {
            return self.set_affine(out, formula);
        }
        let (x, y) = (self.dense(a), self.dense(b));
        let out_reg = *self.reg(out);
        // SAFETY: `f` was chosen for these dtypes; all have `n` elements, and homes of live registers are disjoint.
        unsafe { f(x, y, out_reg.home, out_reg.n) };
        self.set_dense(out);
    }

    /// The result as a formula, if the operands have one and no element wraps.
    fn symbolic(&self, symbolic: Symbolic, a: RegId, b: RegId, out: RegId) -> Option<Affine> {
        if symbolic == Symbolic::Opaque {
            return None;
        }
        let info = self.info(out);
        let range = info.lane.int_range()?;
        let (x, y) = (self.affine(a)?, self.affine(b)?);
        let formula = match symbolic {
            Symbolic::Add => x.add(&y),
            Symbolic::Sub => x.sub(&y),
            Symbolic::Mul => x.mul(&y),
            Symbolic::Opaque => None,
        };
        formula?.within(&info.dims, range)
    }

    pub(super) fn compare(&mut self, f: Fn2, op: CmpOp, a: RegId, b: RegId, out: RegId) {
        let formulas = (self.reg(a).form, self.reg(b).form);
        if !matches!(formulas, (Form::Splat(_), Form::Splat(_)))
            && let (Some(x), Some(y)) = (self.affine(a), self.affine(b))
            && let Some(outcome) = x.compare(op, &y, &self.info(a).dims)
        {
            return self.set_splat(out, Bits::from_raw(u64::from(outcome), 1));
        }
        self.binary(f, Symbolic::Opaque, a, b, out);
    }

    pub(super) fn select(&mut self, f: Fn3, condition: RegId, a: RegId, b: RegId, out: RegId) {
        match self.reg(condition).form {
            Form::Splat(bits) => self.copy_value(if bits.to_bool() { a } else { b }, out),
            Form::Affine(_) | Form::Dense => self.ternary(f, condition, a, b, out),
        }
    }

    pub(super) fn ternary(&mut self, f: Fn3, a: RegId, b: RegId, c: RegId, out: RegId) {
        let forms = (self.reg(a).form, self.reg(b).form, self.reg(c).form);
        if let (Form::Splat(x), Form::Splat(y), Form::Splat(z)) = forms {
            let mut bits = Bits::ZERO;
            // SAFETY: `f` was chosen for these dtypes, and each holds one element.
            unsafe { f(x.as_ptr(), y.as_ptr(), z.as_ptr(), bits.as_mut_ptr(), 1) };
            return self.set_splat(out, bits);
        }
        let (x, y, z) = (self.dense(a), self.dense(b), self.dense(c));
        let out_reg = *self.reg(out);
        // SAFETY: `f` was chosen for these dtypes; all have `n` elements, and homes of live registers are disjoint.
        unsafe { f(x, y, z, out_reg.home, out_reg.n) };
        self.set_dense(out);
    }

    /// The same value; formulas and views stay what they are.
    pub(super) fn copy_value(&mut self, a: RegId, out: RegId) {
        let reg = *self.reg(a);
        match reg.form {
            Form::Splat(bits) => self.set_splat(out, bits),
            Form::Affine(affine) => self.set_affine(out, affine),
            Form::Dense if reg.view => self.set_data(out, reg.data, true),
            Form::Dense => self.copy_lanes(a, out),
        }
        self.regs[out.index()].flight = reg.flight;
    }

    /// The same bits in the home of `out`.
    pub(super) fn copy_lanes(&mut self, a: RegId, out: RegId) {
        if let Form::Splat(bits) = self.reg(a).form {
            return self.set_splat(out, bits);
        }
        let x = self.dense(a);
        let (out_reg, bytes) = (*self.reg(out), self.info(out).lane.bytes());
        // SAFETY: both have `n` elements of that size, and homes of live registers are disjoint.
        unsafe { ptr::copy_nonoverlapping(x, out_reg.home, out_reg.n * bytes) };
        self.set_dense(out);
    }

    pub(super) fn expand_dims(&mut self, a: RegId, out: RegId, axis: usize) {
        match self.reg(a).form {
            Form::Affine(affine) => match affine.expand_dims(axis, self.info(a).dims.len()) {
                Some(affine) => self.set_affine(out, affine),
                None => self.copy_lanes(a, out),
            },
            Form::Splat(_) | Form::Dense => self.copy_value(a, out),
        }
    }

    pub(super) fn broadcast(&mut self, a: RegId, out: RegId, strides: &[(usize, usize)]) {
        match self.reg(a).form {
            // The step along a dimension of size 1 is 0.
            Form::Splat(_) | Form::Affine(_) => self.copy_value(a, out),
            Form::Dense => self.restride(a, out, 0, strides),
        }
    }

    pub(super) fn reshape(&mut self, a: RegId, out: RegId) {
        match self.reg(a).form {
            Form::Affine(affine) => match affine.reshape(&self.info(a).dims, &self.info(out).dims) {
                Some(affine) if !self.info(out).dims.is_empty() => self.set_affine(out, affine),
                Some(_) | None => self.copy_lanes(a, out),
            },
            Form::Dense if self.reg(a).view && !self.info(out).dims.is_empty() => self.copy_value(a, out),
            Form::Splat(_) | Form::Dense => self.copy_lanes(a, out),
        }
    }

    pub(super) fn permute(&mut self, a: RegId, out: RegId, perm: &[u8], strides: &[(usize, usize)]) {
        match self.reg(a).form {
            Form::Splat(_) => self.copy_value(a, out),
            Form::Affine(affine) => self.set_affine(out, affine.permute(perm)),
            Form::Dense => self.restride(a, out, 0, strides),
        }
    }

    /// Elements of each of these tiles in turn.
    pub(super) fn take(&mut self, out: RegId, from: &[Part], strides: &[(usize, usize)]) {
        if let &[Part { tile, first }] = from {
            match self.reg(tile).form {
                Form::Splat(_) => return self.copy_value(tile, out),
                Form::Affine(_) | Form::Dense => return self.restride(tile, out, first, strides),
            }
        }
        let bytes = self.info(out).lane.bytes();
        for (at, part) in from.iter().enumerate() {
            // SAFETY: `first` is an element of the tile, whose lanes are as wide.
            let x = unsafe { self.dense(part.tile).add(part.first * bytes) };
            // SAFETY: the result has an element for each part.
            let home = unsafe { self.reg(out).home.add(at * bytes) };
            let step = from.len();
            // SAFETY: the strides were made from the shapes of the tiles, all of which have as many elements; the result
            // has that many for each of them. Homes of live registers are disjoint.
            unsafe {
                match bytes {
                    1 => scattered::<u8>(x, home, step, strides),
                    2 => scattered::<u16>(x.cast(), home.cast(), step, strides).cast(),
                    4 => scattered::<u32>(x.cast(), home.cast(), step, strides).cast(),
                    _ => scattered::<u64>(x.cast(), home.cast(), step, strides).cast(),
                };
            }
        }
        self.set_dense(out);
    }

    /// Copies the elements from `first` on in another order.
    fn restride(&mut self, a: RegId, out: RegId, first: usize, strides: &[(usize, usize)]) {
        // SAFETY: `first` is an element of `a`, whose lanes are as wide.
        let x = unsafe { self.dense(a).add(first * self.info(out).lane.bytes()) };
        let home = self.reg(out).home;
        // SAFETY: the strides were made from the shapes of `a` and `out`, and homes of live registers are disjoint.
        let end = unsafe {
            match self.info(out).lane.bytes() {
                1 => strided::<u8>(x, home, strides),
                2 => strided::<u16>(x.cast(), home.cast(), strides).cast(),
                4 => strided::<u32>(x.cast(), home.cast(), strides).cast(),
                _ => strided::<u64>(x.cast(), home.cast(), strides).cast(),
            }
        };
        debug_assert_eq!(end as usize - home as usize, self.reg(out).n * self.info(out).lane.bytes());
        self.set_dense(out);
    }
}

/// Writes the elements that `strides` reads from `from`, one after the other; returns where the next would go.
///
/// # Safety
/// Every element read must be valid, and `to` valid for writes of as many; they must not overlap.
pub(super) unsafe fn strided<T: Copy>(from: *const T, to: *mut T, strides: &[(usize, usize)]) -> *mut T {
    // SAFETY: promised by the caller; each arm advances by what it wrote.
    unsafe {
        match strides {
            [] => {
                *to = *from;
                to.add(1)
            }
            [(0, _), ..] => to,
            [(len, 1)] => {
                ptr::copy_nonoverlapping(from, to, *len);
                to.add(*len)
            }
            [(len, 0)] => {
                std::slice::from_raw_parts_mut(to, *len).fill(*from);
                to.add(*len)
            }
            [(len, stride)] => {
                for i in 0..*len {
                    *to.add(i) = *from.add(i * stride);
                }
                to.add(*len)
            }
            [(len, stride), inner @ ..] => (0..*len).fold(to, |to, i| strided(from.add(i * stride), to, inner)),
        }
    }
}

/// Copies strided elements to every `step`-th place from `to` on, in row-major order; returns the place behind them.
///
/// # Safety
/// Every element read must be valid, and `to` valid for writes of as many in these places; they must not overlap.
unsafe fn scattered<T: Copy>(from: *const T, to: *mut T, step: usize, strides: &[(usize, usize)]) -> *mut T {
    // SAFETY: promised by the caller; the place behind the last element is only computed.
    unsafe {
        match strides {
            [] => {
                *to = *from;
                to.wrapping_add(step)
            }
            [(len, stride), inner @ ..] => (0..*len).fold(to, |to, i| scattered(from.add(i * stride), to, step, inner)),
        }
    }
}
