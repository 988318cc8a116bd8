//! The macro that writes ops.

/// Writes an op over candle's tensors: a function that is called like candle's own. One that PyTorch and JAX call too comes by
/// [`from_op!`](crate::from_op).
///
/// ```
/// use tilewright_candle::prelude::*;
///
/// /// y = x * sigmoid(x)
/// #[kernel]
/// fn silu_forward<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
///     let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
///     let mask = offsets < n;
///     let x = load(x + offsets, mask = mask) as f32;
///     store(y + offsets, (x * sigmoid(x)) as T, mask = mask);
/// }
///
/// /// dx = dy * sigmoid(x) * (1 + x * (1 - sigmoid(x)))
/// #[kernel]
/// fn silu_backward<T: Float, const BLOCK: usize>(x: Ptr<T>, dy: Ptr<T>, dx: PtrMut<T>, n: i64) {
///     let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
///     let mask = offsets < n;
///     let (x, dy) = (load(x + offsets, mask = mask) as f32, load(dy + offsets, mask = mask) as f32);
///     let s = sigmoid(x);
///     store(dx + offsets, (dy * s * (1.0 + x * (1.0 - s))) as T, mask = mask);
/// }
///
/// candle_op! {
///     /// `x * sigmoid(x)` of each element. `x` is contiguous, of f16, bf16 or f32.
///     pub fn silu(x) -> (y: like(x)) {
///         dispatch!(x => T in [f16, bf16, f32] {
///             let n = x.len();
///             silu_forward::<T, 1024>(x.flat()?, y.flat_mut()?, n as i64).grid(n.div_ceil(1024)).launch(x.device())
///         })
///     }
///     backward(dy) -> (x: dx) {
///         dispatch!(x => T in [f16, bf16, f32] {
///             let n = x.len();
///             silu_backward::<T, 1024>(x.flat()?, dy.flat()?, dx.flat_mut()?, n as i64)
///                 .grid(n.div_ceil(1024))
///                 .launch(x.device())
///         })
///     }
/// }
///
/// # fn main() -> candle_core::Result<()> {
/// let x = candle_core::Var::new(&[-1f32, 0.0, 2.0], &candle_core::Device::Cpu)?;
/// let gradients = silu(&x)?.sum_all()?.backward()?;
/// let dx = gradients.get(&x).expect("x is a variable").to_vec1::<f32>()?;
/// assert!((dx[1] - 0.5).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
///
/// # The parts of an op
///
/// - **`pub fn name(x, weight; eps: f64, causal: bool)`**: tensors, and behind a semicolon attributes of any type that is
///   `Clone + Send + Sync`. The function takes `&Tensor` for each tensor, then the attributes.
/// - **`-> (y: like(x), z: Spec::new(x.dtype(), [n]))`**: what it makes. An expression says the dtype and the shape; it sees
///   tensors and attributes, and may use `?`.
/// - **the body** launches what makes it, and gives [`tilewright::Result<()>`](tilewright::Result). Tensors are
///   [`TensorRef`](crate::TensorRef), what is made is [`TensorMut`](crate::TensorMut).
/// - **`backward(dy) -> (x: dx, weight: dweight)`**: a second body, which is given `dy`, the gradient of the first of what the
///   op makes, contiguous, beside all that the first body has, as `TensorRef`. It writes `dx`, the gradient of `x`, and so on; each has
///   the dtype and the shape of its tensor. Tensors without one get no gradient. Gradients are not differentiated again.
///
/// An op with `backward` has one to three tensors and gives the first of what it makes; the others are kept for the
/// gradient. One without gives all that it makes, an array if that is more than one, and refuses tensors that require a gradient.
///
/// # In place
///
/// `mut` before the first tensor makes an op that changes it; it gives what it makes besides, if anything, whose expressions see the
/// other tensors. candle differentiates no such op: with `backward` it does not compile.
///
/// ```
/// use tilewright_candle::prelude::*;
///
/// #[kernel]
/// fn scale_kernel<T: Float, const BLOCK: usize>(x: PtrMut<T>, factor: f32, n: i64) {
///     let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
///     let mask = offsets < n;
///     store(x + offsets, (load(x + offsets, mask = mask) as f32 * factor) as T, mask = mask);
/// }
///
/// candle_op! {
///     /// Multiplies all elements of `x`, which is contiguous, by a factor.
///     pub fn scale_in_place(mut x; factor: f32) {
///         dispatch!(x => T in [f16, bf16, f32] {
///             let (n, device) = (x.len(), x.device());
///             scale_kernel::<T, 1024>(x.flat_mut()?, factor, n as i64).grid(n.div_ceil(1024)).launch(device)
///         })
///     }
/// }
///
/// # fn main() -> candle_core::Result<()> {
/// let x = Tensor::new(&[1f32, 2.0], &candle_core::Device::Cpu)?;
/// scale_in_place(&x, 3.0)?;
/// assert_eq!(x.to_vec1::<f32>()?, [3.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! candle_op {
    // In place.
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident(mut $target:ident $(, $input:ident)* $(,)? $(; $($attribute:ident: $kind:ty),+ $(,)?)?)
        $(-> ($($output:ident: $spec:expr),+ $(,)?))?
        $body:block
    ) => {
        $(#[$meta])*
        #[allow(unused_variables)]
        $vis fn $name(
            $target: &$crate::candle_core::Tensor
            $(, $input: &$crate::candle_core::Tensor)*
            $($(, $attribute: $kind)+)?
        ) -> $crate::candle_core::Result<$crate::candle_op!(@result $($($output)+)?)> {
            let made = $crate::call_in_place(
                stringify!($name),
                (stringify!($target), $target),
                [$((stringify!($input), $input)),*],
                |[$($input),*]| Ok([$($($spec),+)?]),
                |$target, [$($input),*], [$($($output),+)?]| $body,
            )?;
            $crate::candle_op!(@give made $($($output)+)?)
        }
    };
    // In place with a gradient: refused. The function is there all the same, so that its callers are no errors too.
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident(mut $target:ident $(, $input:ident)* $(,)? $(; $($attribute:ident: $kind:ty),+ $(,)?)?)
        $(-> ($($output:ident: $spec:expr),+ $(,)?))?
        $body:block
        backward $($backward:tt)*
    ) => {
        $(#[$meta])*
        $vis fn $name(
            $target: &$crate::candle_core::Tensor
            $(, $input: &$crate::candle_core::Tensor)*
            $($(, $attribute: $kind)+)?
        ) -> $crate::candle_core::Result<$crate::candle_op!(@result $($($output)+)?)> {
            compile_error!(concat!(
                "`", stringify!($name), "` changes `", stringify!($target), "` in place and has `backward`, but candle \
                 differentiates no op in place; leave `mut` out and make a tensor, as in `", stringify!($name), "(",
                stringify!($target), ") -> (y: like(", stringify!($target), "))`, or leave `backward` out"
            ))
        }
    };
    // With a gradient.
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($input:ident),+ $(,)? $(; $($attribute:ident: $kind:ty),+ $(,)?)?)
        -> ($($output:ident: $spec:expr),+ $(,)?)
        $body:block
        backward($gradient:ident) -> ($($of:ident: $d:ident),+ $(,)?)
        $backward:block
    ) => {
        $(#[$meta])*
        $vis fn $name(
            $($input: &$crate::candle_core::Tensor),+
            $($(, $attribute: $kind)+)?
        ) -> $crate::candle_core::Result<$crate::candle_core::Tensor> {
            struct Op {
                $($($attribute: $kind,)+)?
            }

            #[allow(unused_variables, clippy::clone_on_copy)]
            impl $crate::Op<{ [$(stringify!($input)),+].len() }, { [$(stringify!($output)),+].len() }> for Op {
                const NAME: &'static str = stringify!($name);
                const INPUTS: [&'static str; [$(stringify!($input)),+].len()] = [$(stringify!($input)),+];

                fn outputs(
                    &self,
                    [$($input),+]: [$crate::TensorRef<'_>; [$(stringify!($input)),+].len()],
                ) -> $crate::tilewright::Result<[$crate::Spec; [$(stringify!($output)),+].len()]> {
                    $($(let $attribute = self.$attribute.clone();)+)?
                    Ok([$($spec),+])
                }

                fn forward(
                    &self,
                    [$($input),+]: [$crate::TensorRef<'_>; [$(stringify!($input)),+].len()],
                    [$($output),+]: [$crate::TensorMut<'_>; [$(stringify!($output)),+].len()],
                ) -> $crate::tilewright::Result<()> {
                    $($(let $attribute = self.$attribute.clone();)+)?
                    $body
                }

                fn backward(
                    &self,
                    [$($input),+]: [&$crate::candle_core::Tensor; [$(stringify!($input)),+].len()],
                    [$($output),+]: [&$crate::candle_core::Tensor; [$(stringify!($output)),+].len()],
                    $gradient: &$crate::candle_core::Tensor,
                ) -> $crate::candle_core::Result<
                    [::core::option::Option<$crate::candle_core::Tensor>; [$(stringify!($input)),+].len()],
                > {
                    $($(let $attribute = self.$attribute.clone();)+)?
                    let made = $crate::gradients(
                        concat!("the gradient of ", stringify!($name)),
                        [
                            $((stringify!($input), $input),)+
                            $((stringify!($output), $output),)+
                            (stringify!($gradient), $gradient),
                        ],
                        |[$($input,)+ $($output,)+ $gradient]| Ok([$($crate::like($of)),+]),
                        |[$($input,)+ $($output,)+ $gradient], [$($d),+]| $backward,
                    )?;
                    let [$($input),+] = ::core::array::from_fn(|place| place);
                    let mut gradients = [const { None }; [$(stringify!($input)),+].len()];
                    for (place, gradient) in [$($of),+].into_iter().zip(made) {
                        gradients[place] = Some(gradient);
                    }
                    Ok(gradients)
                }
            }

            $crate::apply(Op { $($($attribute),+)? }, [$($input),+])
        }
    };
    // Without a gradient.
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($input:ident),+ $(,)? $(; $($attribute:ident: $kind:ty),+ $(,)?)?)
        -> ($($output:ident: $spec:expr),+ $(,)?)
        $body:block
    ) => {
        $(#[$meta])*
        #[allow(unused_variables)]
        $vis fn $name(
            $($input: &$crate::candle_core::Tensor),+
            $($(, $attribute: $kind)+)?
        ) -> $crate::candle_core::Result<$crate::candle_op!(@result $($output)+)> {
            let made = $crate::call(
                stringify!($name),
                [$((stringify!($input), $input)),+],
                |[$($input),+]| Ok([$($spec),+]),
                |[$($input),+], [$($output),+]| $body,
            )?;
            $crate::candle_op!(@give made $($output)+)
        }
    };
    (@result) => { () };
    (@result $one:ident) => { $crate::candle_core::Tensor };
    (@result $($several:ident)+) => { [$crate::candle_core::Tensor; [$(stringify!($several)),+].len()] };
    (@give $made:ident) => {{
        let [] = $made;
        Ok(())
    }};
    (@give $made:ident $one:ident) => {{
        let [one] = $made;
        Ok(one)
    }};
    (@give $made:ident $($several:ident)+) => { Ok($made) };
}
