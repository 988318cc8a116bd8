//! Products as users write them: the same kernels for every dtype, with parts that constexprs switch on.

use kernel_core::interp::{HostBuffer, HostTensor};
use kernel_runtime::testing::Delays;
use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;

use super::recipe::{Form, POISON, Parts, Recipe};

/// What is done with a kernel.
#[derive(Clone, Copy)]
pub enum Task<'a> {
    Compile(Target),
    /// With delays around asynchronous operations, if there is a seed.
    Launch(&'a Device, Option<u64>),
}

/// What a kernel has given: its code, or what its outputs hold.
pub enum Outcome {
    Code(Box<CompiledKernel>),
    Results([Vec<f64>; 2]),
}

/// A dtype of the host, which holds small whole numbers exactly.
trait Number: Copy {
    fn of(number: f64) -> Self;
    fn number(self) -> f64;
}

macro_rules! numbers {
    ($($ty:ty: |$number:ident| $of:expr, |$x:ident| $to:expr;)*) => {$(
        impl Number for $ty {
            fn of($number: f64) -> Self {
                $of
            }

            fn number(self) -> f64 {
                let $x = self;
                $to
            }
        }
    )*};
}

numbers! {
    i8: |n| n as i8, |x| f64::from(x);
    u8: |n| n as u8, |x| f64::from(x);
    i32: |n| n as i32, |x| f64::from(x);
    f16: |n| f16::from_f64(n), |x| x.to_f64();
    bf16: |n| bf16::from_f64(n), |x| x.to_f64();
    f32: |n| n as f32, |x| f64::from(x);
    f64: |n| n, |x| x;
    F8E4M3: |n| F8E4M3::from_f64(n), |x| x.to_f64();
    F8E5M2: |n| F8E5M2::from_f64(n), |x| x.to_f64();
}

fn all<T: Number>(numbers: &[f64]) -> Vec<T> {
    numbers.iter().map(|&number| T::of(number)).collect()
}

/// Arguments of the interpreter.
pub struct Given {
    pub buffers: Vec<HostBuffer>,
    pub tensors: Vec<HostTensor>,
    pub scalars: Vec<i32>,
}

/// A kernel that multiplies tiles of `BM` x `BN`: `tiles` says which, `iteration` what is multiplied in an iteration.
macro_rules! product {
    (
        $name:ident: $f:ident in $acc:ident to $out:ident, $precision:ident;
        ($($params:tt)*)
        tiles { $($tiles:tt)* }
        begin { $($begin:tt)* }
        iteration { $($factors:tt)* }
        next { $($next:tt)* }
        store { $($store:tt)* }
    ) => {
        #[kernel]
        fn $name<
            const BM: usize,
            const BN: usize,
            const BK: usize,
            const TURN_A: bool,
            const TURN_B: bool,
            const DOUBLE: bool,
            const TWICE: bool,
            const CLAMP: bool,
            const BIAS: bool,
            const SUM: bool,
        >(
            $($params)*,
            bias: Ptr<$acc>,
            sums: PtrMut<$acc>,
            m: i32,
            n: i32,
            k: i32,
        ) {
            $($tiles)* {
                let row = tile / cdiv(n, BN) * BM;
                let column = tile % cdiv(n, BN) * BN;
                let i = row + arange(0, BM);
                let j = column + arange(0, BN);
                $($begin)*
                let (mut acc, mut other) = (zeros::<$acc>([BM, BN]), zeros::<$acc>([BM, BN]));
                for t in (0..k).step_by(BK) {
                    $($factors)*
                    if TWICE {
                        other = dot(x, y, acc = other, precision = $precision);
                    }
                    let x = if DOUBLE { x + x } else { x };
                    acc = dot(x, y, acc = acc, precision = $precision);
                    if CLAMP {
                        acc = maximum(acc, 1 as $acc);
                    }
                    $($next)*
                }
                acc += other;
                if BIAS {
                    acc = maximum(acc + load(bias + j, mask = j < n), 0 as $acc);
                }
                if SUM {
                    let line = sum(select(j < n, acc, 0 as $acc), axis = 1);
                    store(sums + tile % cdiv(n, BN) * m + i, line, mask = i < m);
                }
                $($store)*
            }
        }
    };
}

/// The kernels of one dtype of factors `$f`, with sums in `$acc` and results in `$out`; then the same dtypes as the
/// host has them.
macro_rules! products {
    ($($module:ident: $f:ident in $acc:ident to $out:ident, $precision:ident, $hf:ty, $hacc:ty, $hout:ty;)*) => {
    $(
        pub mod $module {
            use super::*;

            // Either factor may lie transposed.
            product! {
                pointers: $f in $acc to $out, $precision;
                (a: Ptr<$f>, b: Ptr<$f>, c: PtrMut<$out>)
                tiles { let tile = program_id(0); if BM > 0 }
                begin {}
                iteration {
                    let along = t + arange(0, BK);
                    let x = if TURN_A {
                        load(a + along[(.., None)] * m + i, mask = (along < k)[(.., None)] & (i < m)).trans()
                    } else {
                        load(a + i[(.., None)] * k + along, mask = (i < m)[(.., None)] & (along < k))
                    };
                    let y = if TURN_B {
                        load(b + j[(.., None)] * k + along, mask = (j < n)[(.., None)] & (along < k)).trans()
                    } else {
                        load(b + along[(.., None)] * n + j, mask = (along < k)[(.., None)] & (j < n))
                    };
                }
                next {}
                store { store(c + i[(.., None)] * n + j, acc as $out, mask = (i < m)[(.., None)] & (j < n)); }
            }

            // The loop moves the pointers on; for rows and columns outside others are read.
            product! {
                moving: $f in $acc to $out, $precision;
                (a: Ptr<$f>, b: Ptr<$f>, c: PtrMut<$out>)
                tiles { let tile = program_id(0); if BM > 0 }
                begin {
                    let along = arange(0, BK);
                    let (i_inside, j_inside) = ((i % m)[(.., None)], j % n);
                    let mut from = if TURN_A { a + along * m + i_inside } else { a + along + i_inside * k };
                    let along_rows = along[(.., None)];
                    let mut by = if TURN_B { b + along_rows + j_inside * k } else { b + along_rows * n + j_inside };
                }
                iteration {
                    let x = load(from, mask = along < k - t);
                    let y = load(by, mask = (along < k - t)[(.., None)]);
                }
                next {
                    from += if TURN_A { m * BK } else { BK as i32 };
                    by += if TURN_B { BK as i32 } else { n * BK };
                }
                store { store(c + i[(.., None)] * n + j, acc as $out, mask = (i < m)[(.., None)] & (j < n)); }
            }

            product! {
                blocks: $f in $acc to $out, $precision;
                (a: TensorDesc<$f, { [BM, BK] }>, b: TensorDesc<$f, { [BK, BN] }>, c: TensorDescMut<$out, { [BM, BN] }>)
                tiles { let tile = program_id(0); if BM > 0 }
                begin {}
                iteration {
                    let x = a.load([row, t]);
                    let y = b.load([t, column]);
                }
                next {}
                store { c.store([row, column], acc as $out); }
            }

            product! {
                turned_blocks: $f in $acc to $out, $precision;
                (a: TensorDesc<$f, { [BK, BM] }>, b: TensorDesc<$f, { [BN, BK] }>, c: TensorDescMut<$out, { [BM, BN] }>)
                tiles { let tile = program_id(0); if BM > 0 }
                begin {}
                iteration {
                    let x = a.load([t, row]).trans();
                    let y = b.load([column, t]).trans();
                }
                next {}
                store { c.store([row, column], acc as $out); }
            }

            product! {
                persistent: $f in $acc to $out, $precision;
                (a: TensorDesc<$f, { [BM, BK] }>, b: TensorDesc<$f, { [BN, BK] }>, c: TensorDescMut<$out, { [BM, BN] }>)
                tiles {
                    #[warp_specialize]
                    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0))
                }
                begin {}
                iteration {
                    let x = a.load([row, t]);
                    let y = b.load([column, t]).trans();
                }
                next {}
                store { c.store([row, column], acc as $out); }
            }

            // Matrices of a batch of one, whose blocks have an axis more.
            product! {
                batched: $f in $acc to $out, $precision;
                (
                    a: TensorDesc<$f, { [1, BM, BK] }>,
                    b: TensorDesc<$f, { [1, BK, BN] }>,
                    c: TensorDescMut<$out, { [1, BM, BN] }>
                )
                tiles {
                    #[warp_specialize]
                    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0))
                }
                begin {}
                iteration {
                    let x = reshape(a.load([0, row, t]), [BM, BK]);
                    let y = reshape(b.load([0, t, column]), [BK, BN]);
                }
                next {}
                store { c.store([0, row, column], reshape(acc as $out, [1, BM, BN])); }
            }

            /// A product of a product, as in attention: `n` rows of `b` are both what rows of `a` are compared with and
            /// what is summed by the outcome.
            #[kernel]
            fn chained<const BM: usize, const BN: usize, const BK: usize>(
                a: Ptr<$f>,
                b: TensorDesc<$f, { [BN, BK] }>,
                c: PtrMut<$out>,
                sums: PtrMut<$acc>,
                m: i32,
                n: i32,
            ) {
                let i = program_id(0) * BM + arange(0, BM);
                let places = i[(.., None)] * BK + arange(0, BK);
                let x = load(a + places, mask = (i < m)[(.., None)]);
                let (mut acc, mut total) = (zeros::<$acc>([BM, BK]), zeros::<$acc>([BM]));
                for t in (0..n).step_by(BN) {
                    let score = dot(x, trans(b.load([t, 0])), acc = zeros::<$acc>([BM, BN]), precision = $precision);
                    let weight = clamp(score, 0 as $acc, 2 as $acc);
                    total += sum(weight, axis = 1);
                    acc = dot(weight as $f, b.load([t, 0]), acc = acc, precision = $precision);
                }
                store(sums + i, total, mask = i < m);
                store(c + places, acc as $out, mask = (i < m)[(.., None)]);
            }

            /// Compiles or launches the kernel of a recipe with these factors and bias.
            fn call(recipe: &Recipe, [a, b, bias]: Numbers<'_>, task: Task<'_>) -> Result<Outcome, Error> {
                let device = match task {
                    Task::Compile(_) => &Device::cpu(),
                    Task::Launch(device, _) => device,
                };
                let a = device.upload(&all::<$hf>(a))?;
                let b = device.upload(&all::<$hf>(b))?;
                let bias = device.upload(&all::<$hacc>(bias))?;
                let [results, lines] = recipe.outputs();
                let mut c = device.full(results, <$hout>::of(POISON))?;
                let mut sums = device.full(lines, <$hacc>::of(POISON))?;
                let Recipe { tile: [bm, bn, bk], sizes: [m, n, k], warps, stages, .. } = *recipe;
                let Parts { turn_a, turn_b, double, twice, clamp, bias: shifts, sum } = recipe.parts;
                macro_rules! submit {
                    ($call:expr) => {{
                        let call = $call.grid(recipe.grid()).num_warps(warps).num_stages(stages);
                        match task {
                            Task::Compile(target) => return call.compile(target).map(Box::new).map(Outcome::Code),
                            Task::Launch(device, None) => call.launch(device)?,
                            Task::Launch(device, Some(seed)) => call.delays(seed).launch(device)?,
                        }
                    }};
                }
                macro_rules! finish {
                    ($consts:ident, $a:expr, $b:expr, $c:expr) => {{
                        let consts = $consts {
                            BM: bm,
                            BN: bn,
                            BK: bk,
                            TURN_A: turn_a,
                            TURN_B: turn_b,
                            DOUBLE: double,
                            TWICE: twice,
                            CLAMP: clamp,
                            BIAS: shifts,
                            SUM: sum,
                        };
                        submit!(consts.call($a, $b, $c, &bias, &mut sums, m as i32, n as i32, k as i32))
                    }};
                }
                macro_rules! tensors {
                    ($consts:ident, $a:expr, $b:expr, $c:expr) => {{
                        let (a, b) = (TensorDesc::new(&a, $a)?, TensorDesc::new(&b, $b)?);
                        let mut c = TensorDescMut::new(&mut c, $c)?;
                        finish!($consts, &a, &b, &mut c)
                    }};
                }
                match recipe.form {
                    Form::Pointers => finish!(PointersConsts, &a, &b, &mut c),
                    Form::Moving => finish!(MovingConsts, &a, &b, &mut c),
                    Form::Blocks => tensors!(BlocksConsts, [m, k], [k, n], [m, n]),
                    Form::TurnedBlocks => tensors!(TurnedBlocksConsts, [k, m], [n, k], [m, n]),
                    Form::Persistent => tensors!(PersistentConsts, [m, k], [n, k], [m, n]),
                    Form::Batched => tensors!(BatchedConsts, [1, m, k], [1, k, n], [1, m, n]),
                    Form::Chained => {
                        let consts = ChainedConsts { BM: bm, BN: bn, BK: bk };
                        let rows = TensorDesc::new(&b, [n, k])?;
                        submit!(consts.call(&a, &rows, &mut c, &mut sums, m as i32, n as i32))
                    }
                }
                let results = c.to_vec()?.into_iter().map(Number::number).collect();
                Ok(Outcome::Results([results, sums.to_vec()?.into_iter().map(Number::number).collect()]))
            }

            /// The same arguments for the interpreter.
            fn given(recipe: &Recipe, [a, b, bias]: Numbers<'_>) -> Given {
                let [results, lines] = recipe.outputs();
                let sizes = recipe.sizes.map(|size| size as u64);
                let ([m, n, k], numbers) = (sizes, recipe.sizes.map(|size| size as i32));
                let tensors = match recipe.form {
                    Form::Pointers | Form::Moving => vec![],
                    Form::Blocks => vec![vec![m, k], vec![k, n], vec![m, n]],
                    Form::TurnedBlocks => vec![vec![k, m], vec![n, k], vec![m, n]],
                    Form::Persistent => vec![vec![m, k], vec![n, k], vec![m, n]],
                    Form::Batched => vec![vec![1, m, k], vec![1, k, n], vec![1, m, n]],
                    Form::Chained => vec![vec![n, k]],
                };
                let mut buffers = vec![
                    all::<$hf>(a).into(),
                    all::<$hf>(b).into(),
                    vec![<$hout>::of(POISON); results].into(),
                    all::<$hacc>(bias).into(),
                    vec![<$hacc>::of(POISON); lines].into(),
                ];
                let mut scalars = numbers.to_vec();
                if recipe.form == Form::Chained {
                    buffers.remove(3);
                    scalars.pop();
                }
                Given { buffers, tensors: tensors.iter().map(|shape| HostTensor::contiguous(shape)).collect(), scalars }
            }

            pub const DTYPES: super::DTypes = super::DTypes {
                name: stringify!($module),
                call,
                given,
                rounded: |result| <$hout>::of(result).number(),
                rounded_sum: |sum| <$hacc>::of(sum).number(),
            };
        }
    )*

    /// All of them.
    pub const ALL: &[DTypes] = &[$($module::DTYPES),*];
    };
}

/// Both factors and the bias.
pub type Numbers<'a> = [&'a [f64]; 3];

type Call = fn(&Recipe, Numbers<'_>, Task<'_>) -> Result<Outcome, Error>;

/// The kernels of some dtypes.
pub struct DTypes {
    pub name: &'static str,
    /// Compiles or launches the kernel of a recipe with these factors and bias.
    pub call: Call,
    /// The same arguments for the interpreter.
    pub given: fn(&Recipe, Numbers<'_>) -> Given,
    /// A result, and a sum of a line, as they are stored.
    pub rounded: fn(f64) -> f64,
    pub rounded_sum: fn(f64) -> f64,
}

products! {
    halves: f16 in f32 to f16, tf32, f16, f32, f16;
    halves_in_halves: f16 in f16 to f16, tf32, f16, f16, f16;
    brain_floats: bf16 in f32 to bf16, tf32, bf16, f32, bf16;
    singles: f32 in f32 to f32, tf32, f32, f32, f32;
    precise_singles: f32 in f32 to f32, ieee, f32, f32, f32;
    tripled_singles: f32 in f32 to f32, tf32x3, f32, f32, f32;
    singles_of_six: f32 in f32 to f32, bf16x6, f32, f32, f32;
    e4m3: f8e4m3 in f32 to f16, tf32, F8E4M3, f32, f16;
    e5m2: f8e5m2 in f32 to f32, tf32, F8E5M2, f32, f32;
    signed_bytes: i8 in i32 to i32, tf32, i8, i32, i32;
    bytes: u8 in i32 to i32, tf32, u8, i32, i32;
    doubles: f64 in f64 to f64, tf32, f64, f64, f64;
}
