//! A builder of LLVM IR whose methods cannot fail.
//!
//! LLVM's builder refuses an instruction only if the code generator is wrong (no position, operands that do not
//! fit). Such a refusal is kept, a zero stands in for the value, and [`Ir::finish`] returns the first one. So the
//! lowering reads like arithmetic, and the elementary functions, whose machines compute infallibly, can be built.
//!
//! Nothing here makes `nsw`, `nuw`, `exact` or `inbounds`: kernels have no undefined behaviour.

use std::cell::RefCell;
use std::collections::BTreeMap;

use kernel_core::ir::Subnormals;
use kernel_llvm::inkwell::basic_block::BasicBlock;
use kernel_llvm::inkwell::builder::{Builder, BuilderError};
use kernel_llvm::inkwell::context::Context;
use kernel_llvm::inkwell::module::Module;
use kernel_llvm::inkwell::types::{BasicType, BasicTypeEnum, FloatType, IntType, PointerType};
use kernel_llvm::inkwell::values::{
    BasicMetadataValueEnum, BasicValue, BasicValueEnum, FastMathFlags, FloatValue, FunctionValue, IntValue, PhiValue,
    PointerValue, VectorValue,
};
use kernel_llvm::inkwell::{AddressSpace, FloatPredicate, IntPredicate};
use kernel_llvm::{AsmEffects, Error, inline_asm, intrinsic, set_alignment, set_fast_math, space};

use super::intrinsics::Intrinsic;

/// A value of one thread.
pub(super) type Value<'ctx> = BasicValueEnum<'ctx>;

/// The builder.
pub(super) struct Ir<'ctx> {
    pub(super) context: &'ctx Context,
    pub(super) module: Module<'ctx>,
    pub(super) builder: Builder<'ctx>,
    /// Whether the target converts 8-bit floats.
    pub(super) has_f8_conversions: bool,
    /// What f32 does with subnormal numbers.
    pub(super) subnormals: Subnormals,
    error: RefCell<Option<Error>>,
    intrinsics: RefCell<BTreeMap<(Intrinsic, u32), FunctionValue<'ctx>>>,
}

/// One of LLVM's methods with two operands and a name.
macro_rules! binary {
    ($($(#[doc = $doc:literal])* $name:ident = $build:ident ( $ty:ident );)*) => {$(
        $(#[doc = $doc])*
        pub(super) fn $name(&self, a: $ty<'ctx>, b: $ty<'ctx>) -> $ty<'ctx> {
            self.ok(self.builder.$build(a, b, ""), || a.get_type().const_zero())
        }
    )*};
}

/// One of LLVM's methods with two floats. Constants are folded as they are made, before LLVM asks what their function does
/// with subnormal numbers, so those of f32 are flushed here if they are to be.
macro_rules! flushing {
    ($($name:ident = $build:ident;)*) => {$(
        pub(super) fn $name(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
            let (a, b) = (self.flushed(a), self.flushed(b));
            self.flushed(self.ok(self.builder.$build(a, b, ""), || a.get_type().const_zero()))
        }
    )*};
}

impl<'ctx> Ir<'ctx> {
    /// A builder without position.
    pub(super) fn new(
        context: &'ctx Context,
        module: Module<'ctx>,
        has_f8_conversions: bool,
        subnormals: Subnormals,
    ) -> Ir<'ctx> {
        let builder = context.create_builder();
        let (error, intrinsics) = (RefCell::new(None), RefCell::new(BTreeMap::new()));
        Ir { context, module, builder, has_f8_conversions, subnormals, error, intrinsics }
    }

    /// The first refusal, if there was one.
    pub(super) fn finish(&self) -> Result<(), Error> {
        self.error.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// Notes a mistake of the code generator.
    pub(super) fn bug(&self, message: impl Into<String>) {
        self.error.borrow_mut().get_or_insert(Error::Builder(message.into()));
    }

    pub(super) fn ok<T>(&self, result: Result<T, BuilderError>, fallback: impl FnOnce() -> T) -> T {
        result.unwrap_or_else(|error| {
            self.error.borrow_mut().get_or_insert(error.into());
            fallback()
        })
    }

    fn checked<T>(&self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.error.borrow_mut().get_or_insert(error).clone()).ok()
    }

    binary! {
        add = build_int_add(IntValue);
        sub = build_int_sub(IntValue);
        mul = build_int_mul(IntValue);
        and = build_and(IntValue);
        or = build_or(IntValue);
        xor = build_xor(IntValue);
        /// The count must be below the width.
        shl = build_left_shift(IntValue);
        /// The divisor must not be zero.
        udiv = build_int_unsigned_div(IntValue);
        /// The divisor must not be zero, nor -1 with the smallest dividend.
        sdiv = build_int_signed_div(IntValue);
        /// As [`Ir::udiv`].
        urem = build_int_unsigned_rem(IntValue);
        /// As [`Ir::sdiv`].
        srem = build_int_signed_rem(IntValue);
    }

    flushing! {
        fadd = build_float_add;
        fsub = build_float_sub;
        fmul = build_float_mul;
        fdiv = build_float_div;
    }

    /// The count must be below the width.
    pub(super) fn lshr(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        self.ok(self.builder.build_right_shift(a, b, false, ""), || a.get_type().const_zero())
    }

    /// The count must be below the width.
    pub(super) fn ashr(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        self.ok(self.builder.build_right_shift(a, b, true, ""), || a.get_type().const_zero())
    }

    pub(super) fn not(&self, a: IntValue<'ctx>) -> IntValue<'ctx> {
        self.ok(self.builder.build_not(a, ""), || a)
    }

    pub(super) fn fneg(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
        self.ok(self.builder.build_float_neg(a, ""), || a)
    }

    /// Zero of the same sign instead of a constant of f32 that is subnormal, in a kernel that flushes.
    fn flushed(&self, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let single = self.context.f32_type();
        if self.subnormals == Subnormals::Kept || value.get_type() != single || !value.is_const() {
            return value;
        }
        let bits = self.int(self.bitcast(value, self.context.i32_type()));
        match bits.get_zero_extended_constant() {
            Some(bits) if f32::from_bits(bits as u32).is_subnormal() => {
                single.const_float(f64::from(0.0_f32.copysign(f32::from_bits(bits as u32))))
            }
            Some(_) | None => value,
        }
    }

    /// Allows fusing the operation that made `value` with its neighbours.
    pub(super) fn contract(&self, value: FloatValue<'ctx>, allowed: bool) -> FloatValue<'ctx> {
        if allowed {
            set_fast_math(value, FastMathFlags::AllowContract);
        }
        value
    }

    pub(super) fn icmp(&self, predicate: IntPredicate, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        self.ok(self.builder.build_int_compare(predicate, a, b, ""), || self.bool(false))
    }

    pub(super) fn fcmp(&self, predicate: FloatPredicate, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> IntValue<'ctx> {
        let (a, b) = (self.flushed(a), self.flushed(b));
        self.ok(self.builder.build_float_compare(predicate, a, b, ""), || self.bool(false))
    }

    pub(super) fn select(&self, condition: IntValue<'ctx>, yes: Value<'ctx>, no: Value<'ctx>) -> Value<'ctx> {
        self.ok(self.builder.build_select(condition, yes, no, ""), || yes)
    }

    pub(super) fn iselect(&self, condition: IntValue<'ctx>, yes: IntValue<'ctx>, no: IntValue<'ctx>) -> IntValue<'ctx> {
        self.int(self.select(condition, yes.into(), no.into()))
    }

    /// The low bits of an integer, or the integer extended.
    pub(super) fn resize(&self, a: IntValue<'ctx>, to: IntType<'ctx>, signed: bool) -> IntValue<'ctx> {
        let (from, wanted) = (a.get_type().get_bit_width(), to.get_bit_width());
        let result = match from.cmp(&wanted) {
            std::cmp::Ordering::Equal => Ok(a),
            std::cmp::Ordering::Greater => self.builder.build_int_truncate(a, to, ""),
            std::cmp::Ordering::Less if signed => self.builder.build_int_s_extend(a, to, ""),
            std::cmp::Ordering::Less => self.builder.build_int_z_extend(a, to, ""),
        };
        self.ok(result, || to.const_zero())
    }

    pub(super) fn fpext(&self, a: FloatValue<'ctx>, to: FloatType<'ctx>) -> FloatValue<'ctx> {
        let a = if to.get_bit_width() == 64 { self.flushed(a) } else { a };
        self.ok(self.builder.build_float_ext(a, to, ""), || to.const_zero())
    }

    pub(super) fn fptrunc(&self, a: FloatValue<'ctx>, to: FloatType<'ctx>) -> FloatValue<'ctx> {
        self.flushed(self.ok(self.builder.build_float_trunc(a, to, ""), || to.const_zero()))
    }

    pub(super) fn fptrunc_vector(&self, a: VectorValue<'ctx>, to: FloatType<'ctx>) -> VectorValue<'ctx> {
        let to = to.vec_type(a.get_type().get_size());
        self.ok(self.builder.build_float_trunc(a, to, ""), || to.const_zero())
    }

    pub(super) fn int_to_float(&self, a: IntValue<'ctx>, to: FloatType<'ctx>, signed: bool) -> FloatValue<'ctx> {
        let result = match signed {
            true => self.builder.build_signed_int_to_float(a, to, ""),
            false => self.builder.build_unsigned_int_to_float(a, to, ""),
        };
        self.ok(result, || to.const_zero())
    }

    pub(super) fn bitcast<T: BasicType<'ctx>>(&self, a: impl BasicValue<'ctx>, to: T) -> Value<'ctx> {
        let value = a.as_basic_value_enum();
        self.ok(self.builder.build_bit_cast(value, to, ""), || value)
    }

    pub(super) fn pointer_to_int(&self, a: PointerValue<'ctx>, to: IntType<'ctx>) -> IntValue<'ctx> {
        self.ok(self.builder.build_ptr_to_int(a, to, ""), || to.const_zero())
    }

    pub(super) fn int_to_pointer(&self, a: IntValue<'ctx>, to: PointerType<'ctx>) -> PointerValue<'ctx> {
        self.ok(self.builder.build_int_to_ptr(a, to, ""), || to.const_null())
    }

    /// `pointer + index * size of element`, wrapping; the index is sign-extended.
    pub(super) fn offset<T: BasicType<'ctx>>(
        &self,
        element: T,
        pointer: PointerValue<'ctx>,
        index: IntValue<'ctx>,
    ) -> PointerValue<'ctx> {
        // SAFETY: one index into a type of known size; without `inbounds` no promise is attached to the address.
        let result = unsafe { self.builder.build_gep(element, pointer, &[index], "") };
        self.ok(result, || pointer)
    }

    /// The same in integers, which LLVM computes no other address from (`analysis/apart.rs`).
    pub(super) fn offset_apart(
        &self,
        element: IntType<'ctx>,
        pointer: PointerValue<'ctx>,
        index: IntValue<'ctx>,
    ) -> PointerValue<'ctx> {
        let wide = index.get_type();
        let size = wide.const_int(u64::from(element.get_bit_width() / 8), false);
        let address = self.add(self.pointer_to_int(pointer, wide), self.mul(index, size));
        self.int_to_pointer(address, pointer.get_type())
    }

    pub(super) fn load<T: BasicType<'ctx>>(&self, ty: T, pointer: PointerValue<'ctx>, alignment: u32) -> Value<'ctx> {
        let ty = ty.as_basic_type_enum();
        let value = self.ok(self.builder.build_load(ty, pointer, ""), || ty.const_zero());
        set_alignment(value, alignment);
        value
    }

    pub(super) fn store(&self, pointer: PointerValue<'ctx>, value: Value<'ctx>, alignment: u32) {
        match self.builder.build_store(pointer, value) {
            Ok(store) => set_alignment(store, alignment),
            Err(error) => self.bug(error.to_string()),
        }
    }

    /// A variable of this thread, which LLVM turns into registers. To be called in the entry block.
    pub(super) fn variable(&self, ty: IntType<'ctx>) -> PointerValue<'ctx> {
        self.ok(self.builder.build_alloca(ty, ""), || {
            self.context.ptr_type(AddressSpace::from(space::GENERIC)).const_null()
        })
    }

    pub(super) fn phi(&self, ty: BasicTypeEnum<'ctx>) -> Option<PhiValue<'ctx>> {
        self.builder.build_phi(ty, "").map_err(|error| self.bug(error.to_string())).ok()
    }

    pub(super) fn branch(&self, to: BasicBlock<'ctx>) {
        if let Err(error) = self.builder.build_unconditional_branch(to) {
            self.bug(error.to_string());
        }
    }

    pub(super) fn branch_if(&self, condition: IntValue<'ctx>, yes: BasicBlock<'ctx>, no: BasicBlock<'ctx>) {
        if let Err(error) = self.builder.build_conditional_branch(condition, yes, no) {
            self.bug(error.to_string());
        }
    }

    /// Elements as a vector of them; a single one stays what it is.
    pub(super) fn vector(&self, elements: &[Value<'ctx>]) -> Value<'ctx> {
        let (Some(&first), count) = (elements.first(), elements.len() as u32) else {
            self.bug("a vector of nothing");
            return self.i32(0).into();
        };
        if count == 1 {
            return first;
        }
        let mut vector = match first.get_type() {
            BasicTypeEnum::IntType(ty) => ty.vec_type(count).get_poison(),
            BasicTypeEnum::FloatType(ty) => ty.vec_type(count).get_poison(),
            BasicTypeEnum::PointerType(ty) => ty.vec_type(count).get_poison(),
            other => {
                self.bug(format!("a vector of {other:?}"));
                return first;
            }
        };
        for (lane, &element) in elements.iter().enumerate() {
            let lane = self.i32(lane as i32);
            vector = self.ok(self.builder.build_insert_element(vector, element, lane, ""), || vector);
        }
        vector.into()
    }

    /// The elements of a vector of `count`.
    pub(super) fn elements(&self, vector: Value<'ctx>, count: u32) -> Vec<Value<'ctx>> {
        if count == 1 {
            return vec![vector];
        }
        let BasicValueEnum::VectorValue(vector) = vector else {
            self.bug("expected a vector");
            return vec![vector; count as usize];
        };
        let element = |lane: u32| {
            let lane = self.i32(lane as i32);
            self.ok(self.builder.build_extract_element(vector, lane, ""), || vector.into())
        };
        (0..count).map(element).collect()
    }

    /// Calls an intrinsic; `overload` is the type it is overloaded on, if it is.
    pub(super) fn call(
        &self,
        which: Intrinsic,
        overload: &[BasicTypeEnum<'ctx>],
        arguments: &[BasicMetadataValueEnum<'ctx>],
    ) -> Option<Value<'ctx>> {
        let key = (which, overload.iter().fold(0, |key, ty| key * 512 + type_key(*ty)));
        let known = self.intrinsics.borrow().get(&key).copied();
        let function = match known {
            Some(function) => function,
            None => {
                let function = self.checked(intrinsic(&self.module, which.name(), overload))?;
                self.intrinsics.borrow_mut().insert(key, function);
                function
            }
        };
        match self.builder.build_call(function, arguments, "") {
            Ok(call) => call.try_as_basic_value().basic(),
            Err(error) => {
                self.bug(error.to_string());
                None
            }
        }
    }

    /// Calls an intrinsic on floats of one type that returns such a float.
    pub(super) fn float_call(&self, which: Intrinsic, arguments: &[FloatValue<'ctx>]) -> FloatValue<'ctx> {
        let Some(first) = arguments.first() else {
            self.bug("an intrinsic without arguments");
            return self.context.f32_type().const_zero();
        };
        let values: Vec<BasicMetadataValueEnum> = arguments.iter().map(|&a| a.into()).collect();
        let result = self.call(which, &[first.get_type().into()], &values);
        result.map_or(*first, |value| self.float(value))
    }

    /// Calls an intrinsic on integers of one type that returns such an integer.
    pub(super) fn int_call(&self, which: Intrinsic, arguments: &[IntValue<'ctx>]) -> IntValue<'ctx> {
        let Some(first) = arguments.first() else {
            self.bug("an intrinsic without arguments");
            return self.i32(0);
        };
        let values: Vec<BasicMetadataValueEnum> = arguments.iter().map(|&a| a.into()).collect();
        self.call(which, &[first.get_type().into()], &values).map_or(*first, |value| self.int(value))
    }

    /// Inline PTX. Several results come as a list, none as an empty one.
    pub(super) fn asm(
        &self,
        results: &[BasicTypeEnum<'ctx>],
        assembly: &str,
        constraints: &str,
        arguments: &[Value<'ctx>],
        effects: AsmEffects,
    ) -> Vec<Value<'ctx>> {
        let types: Vec<_> = arguments.iter().map(|value| value.get_type().into()).collect();
        let function = match results {
            [] => self.context.void_type().fn_type(&types, false),
            [one] => one.fn_type(&types, false),
            many => self.context.struct_type(many, false).fn_type(&types, false),
        };
        let values: Vec<BasicMetadataValueEnum> = arguments.iter().map(|&a| a.into()).collect();
        let call = inline_asm(&self.builder, function, assembly, constraints, &values, effects);
        let zeros = || results.iter().map(|ty| ty.const_zero()).collect();
        let Some(value) = self.checked(call).and_then(|call| call.try_as_basic_value().basic()) else {
            return zeros();
        };
        match value {
            BasicValueEnum::StructValue(all) if results.len() > 1 => (0..results.len() as u32)
                .map(|i| self.ok(self.builder.build_extract_value(all, i, ""), || results[i as usize].const_zero()))
                .collect(),
            one => vec![one],
        }
    }

    pub(super) fn int(&self, value: Value<'ctx>) -> IntValue<'ctx> {
        if let BasicValueEnum::IntValue(value) = value {
            return value;
        }
        self.bug(format!("expected an integer, found {value:?}"));
        self.i32(0)
    }

    pub(super) fn float(&self, value: Value<'ctx>) -> FloatValue<'ctx> {
        if let BasicValueEnum::FloatValue(value) = value {
            return value;
        }
        self.bug(format!("expected a float, found {value:?}"));
        self.context.f32_type().const_zero()
    }

    pub(super) fn pointer(&self, value: Value<'ctx>) -> PointerValue<'ctx> {
        if let BasicValueEnum::PointerValue(value) = value {
            return value;
        }
        self.bug(format!("expected a pointer, found {value:?}"));
        self.global_pointer().const_null()
    }

    pub(super) fn bool(&self, value: bool) -> IntValue<'ctx> {
        self.context.bool_type().const_int(u64::from(value), false)
    }

    pub(super) fn i32(&self, value: i32) -> IntValue<'ctx> {
        self.context.i32_type().const_int(i64::from(value) as u64, true)
    }

    pub(super) fn i64(&self, value: i64) -> IntValue<'ctx> {
        self.context.i64_type().const_int(value as u64, true)
    }

    /// An integer type of 1, 8, 16, 32 or 64 bits.
    pub(super) fn int_type(&self, bits: u32) -> IntType<'ctx> {
        match bits {
            1 => self.context.bool_type(),
            8 => self.context.i8_type(),
            16 => self.context.i16_type(),
            32 => self.context.i32_type(),
            _ => self.context.i64_type(),
        }
    }

    pub(super) fn global_pointer(&self) -> PointerType<'ctx> {
        self.context.ptr_type(AddressSpace::from(space::GLOBAL))
    }
}

/// A number per type, for the table of intrinsics.
fn type_key(ty: BasicTypeEnum<'_>) -> u32 {
    match ty {
        BasicTypeEnum::IntType(ty) => ty.get_bit_width(),
        BasicTypeEnum::FloatType(ty) => 256 + ty.get_bit_width(),
        _ => 511,
    }
}
