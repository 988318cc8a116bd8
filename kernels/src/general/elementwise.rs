//! Elementwise functions from expressions.

/// What [`elementwise!`](crate::elementwise) names from other crates.
#[doc(hidden)]
pub mod parts {
    pub use crate::general::walk::{Operand, Walk, broadcast_shape};
    pub use crate::{Context, Tensor, TensorView, TensorViewMut};
    pub use tilewright;
}

/// Makes two functions, and their kernels, from an expression: one returns a new tensor, the other writes into one.
///
/// ```
/// use tilewright::prelude::*;
/// use tilewright_kernels::{Context, Tensor, elementwise};
///
/// elementwise! {
///     /// `x / (1 + |x|)`
///     pub fn softsign, softsign_into<T: Float>(x) => x / (1.0 + abs(x));
///     /// `a x + y`
///     pub fn axpy, axpy_into<T: Num>(x, y; a: f32) => a * x + y;
/// }
///
/// # fn main() -> Result<(), Error> {
/// let cx = Context::new(&Device::best()?);
/// let x = Tensor::upload(cx.device(), &[1.0f32, -3.0], [1, 2])?;
/// let y = Tensor::upload(cx.device(), &[10.0f32, 20.0], [2, 1])?;
/// assert_eq!(softsign(&cx, &x)?.to_vec()?, [0.5, -0.75]);
/// assert_eq!(axpy(&cx, &x, &y, 2.0)?.to_vec()?, [12.0, 4.0, 22.0, 14.0]);
/// # Ok(())
/// # }
/// ```
///
/// - Inputs come first: up to eight tensors of one dtype and number of dimensions, of any strides. Dimensions of size 1
///   repeat. Behind a semicolon stand scalars, of a dtype each.
/// - In the expression, names are elements and scalars in `T::Acc`: f32 for floats of up to 32 bits, so that the result is
///   rounded once. It may be whatever a kernel's expression may be (see [`tilewright::kernel`]).
/// - Where all tensors are contiguous and of one shape, elements are taken in order, 16 bytes at a time; otherwise in blocks
///   of two dimensions.
/// - The functions are `name(&cx, inputs.., scalars..) -> Result<Tensor>` and `name_into(&cx, inputs.., scalars.., out)`.
///   They refuse shapes that do not fit with [`tilewright::Error::InvalidTensor`].
#[macro_export]
macro_rules! elementwise {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident, $into:ident<T: $bound:ident>($($x:ident),+ $(; $($s:ident: $dtype:ty),+)?) => $value:expr;
    )+) => {$(
        $crate::__elementwise! {
            [$(#[$meta])*] [$vis] $name $into $bound [$($($s: $dtype,)+)?] [$value]
            [] [$($x)+]
            [(p0 m0 n0 a0 b0) (p1 m1 n1 a1 b1) (p2 m2 n2 a2 b2) (p3 m3 n3 a3 b3)
             (p4 m4 n4 a4 b4) (p5 m5 n5 a5 b5) (p6 m6 n6 a6 b6) (p7 m7 n7 a7 b7)]
        }
    )+};
}

/// Gives each input names for its pointer and strides, then makes the functions.
#[doc(hidden)]
#[macro_export]
macro_rules! __elementwise {
    (
        [$($meta:tt)*] [$($vis:tt)*] $name:ident $into:ident $bound:ident [$($s:ident: $dtype:ty,)*] [$value:expr]
        [$($named:tt)*] [$x:ident $($rest:ident)*] [($($names:ident)+) $($pool:tt)*]
    ) => {
        $crate::__elementwise! {
            [$($meta)*] [$($vis)*] $name $into $bound [$($s: $dtype,)*] [$value]
            [$($named)* ($x $($names)+)] [$($rest)*] [$($pool)*]
        }
    };
    (
        [$($meta:tt)*] [$($vis:tt)*] $name:ident $into:ident $bound:ident [$($s:ident: $dtype:ty,)*] [$value:expr]
        [$(($x:ident $p:ident $m:ident $n:ident $a:ident $b:ident))+] [] [$($pool:tt)*]
    ) => {
        $($meta)*
        $($vis)* fn $name<'a, T: $bound, const R: usize>(
            cx: &$crate::general::parts::Context,
            $($x: impl ::core::convert::Into<$crate::general::parts::TensorView<'a, T, R>>,)+
            $($s: $dtype,)*
        ) -> $crate::general::parts::tilewright::Result<$crate::general::parts::Tensor<T, R>> {
            $(let $x: $crate::general::parts::TensorView<'a, T, R> = $x.into();)+
            let shape = $crate::general::parts::broadcast_shape(&[$(stringify!($x)),+], &[$($x.shape()),+])?;
            let mut out = $crate::general::parts::Tensor::empty(cx.device(), shape)?;
            $into(cx, $($x,)+ $($s,)* &mut out)?;
            Ok(out)
        }

        #[doc = concat!("[`", stringify!($name), "`], into a tensor.")]
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($name), "`], and if the shape of `out` is not the one that inputs broadcast to.")]
        $($vis)* fn $into<'a, 'b, T: $bound, const R: usize>(
            cx: &$crate::general::parts::Context,
            $($x: impl ::core::convert::Into<$crate::general::parts::TensorView<'a, T, R>>,)+
            $($s: $dtype,)*
            out: impl ::core::convert::Into<$crate::general::parts::TensorViewMut<'b, T, R>>,
        ) -> $crate::general::parts::tilewright::Result<()> {
            const BLOCK: usize = 1024;

            #[$crate::general::parts::tilewright::kernel(crate = $crate::general::parts::tilewright)]
            fn flat<T: $bound, const BLOCK: usize>($($p: Ptr<T>,)+ result: PtrMut<T>, len: i64, $($s: $dtype,)*) {
                let tw_at = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
                let tw_mask = tw_at < len;
                $(let $s = $s as T::Acc;)*
                $(let $x = load($p + tw_at, mask = tw_mask) as T::Acc;)+
                store(result + tw_at, ($value) as T, mask = tw_mask);
            }

            #[$crate::general::parts::tilewright::kernel(crate = $crate::general::parts::tilewright)]
            fn strided<T: $bound, const BM: usize, const BN: usize>(
                $($p: Ptr<T>, $m: i64, $n: i64, $a: i64, $b: i64,)+
                result: PtrMut<T>, result_m: i64, result_n: i64, result_a: i64, result_b: i64,
                rows: i32, columns: i32, $($s: $dtype,)*
            ) {
                let tw_blocks = cdiv(columns, BN);
                let tw_i = (program_id(0) / tw_blocks * BM + arange(0, BM))[(.., None)];
                let tw_j = program_id(0) % tw_blocks * BN + arange(0, BN);
                let (tw_a, tw_b) = (program_id(1) as i64, program_id(2) as i64);
                let tw_mask = (tw_i < rows) & (tw_j < columns);
                let tw_out = result + (tw_a * result_a + tw_b * result_b)
                    + (tw_i as i64 * result_m + tw_j as i64 * result_n);
                $(let $s = $s as T::Acc;)*
                $(let $x = load(
                    $p + (tw_a * $a + tw_b * $b) + (tw_i as i64 * $m + tw_j as i64 * $n),
                    mask = tw_mask
                ) as T::Acc;)+
                store(tw_out, ($value) as T, mask = tw_mask);
            }

            $(let $x: $crate::general::parts::TensorView<'a, T, R> = $x.into();)+
            let mut out: $crate::general::parts::TensorViewMut<'b, T, R> = out.into();
            let walk = $crate::general::parts::Walk::new(&[$(stringify!($x)),+], &[$($x),+], &out)?;
            if out.is_empty() {
                return Ok(());
            }
            if let Some(len) = walk.flat() {
                return FlatConsts { BLOCK }
                    .call($($x.elements(),)+ out.elements_mut(), len as i64, $($s,)*)
                    .grid(len.div_ceil(BLOCK))
                    .num_warps(4)
                    .stream(cx.stream())
                    .launch(cx.device());
            }
            let ((rows, columns), (bm, bn)) = (walk.sizes(), walk.block());
            for (grid, starts) in walk.launches() {
                let mut number = 0..;
                $(let $p = walk.input($x.elements(), starts, number.next().unwrap_or(0))?;)+
                let to = walk.output(out.elements_mut(), starts)?;
                StridedConsts { BM: bm, BN: bn }
                    .call(
                        $($p.elements, $p.m, $p.n, $p.a, $p.b,)+
                        to.elements, to.m, to.n, to.a, to.b,
                        rows, columns, $($s,)*
                    )
                    .grid(grid)
                    .stream(cx.stream())
                    .launch(cx.device())?;
            }
            Ok(())
        }
    };
}
