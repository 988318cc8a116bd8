//! Matrix products. Factors are small integers, whose products and sums are exact whatever the precision.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, close, equal};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![epilogues(), sizes(), eight_bits(), small()]
}

#[kernel]
fn product<
    T: Float,
    A: Float,
    const M: usize,
    const N: usize,
    const K: usize,
    const EPILOGUE: i32,
    const PRECISION: i32,
    const COLUMN_A: bool,
    const COLUMN_B: bool,
>(
    x: Ptr<T>,
    y: Ptr<T>,
    w: Ptr<T>,
    bias: Ptr<A>,
    out: PtrMut<A>,
) {
    let (i, j, k) = (arange(0, M), arange(0, N), arange(0, K));
    let place_a = if COLUMN_A { i[(.., None)] + k * M } else { i[(.., None)] * K + k };
    let place_b = if COLUMN_B { k[(.., None)] + j * K } else { k[(.., None)] * N + j };
    let (a, b) = (load(x + place_a), load(y + place_b));
    let mut z = if PRECISION == 0 {
        dot(a, b, out = A)
    } else if PRECISION == 1 {
        dot(a, b, precision = tf32x3, out = A)
    } else if PRECISION == 3 {
        dot(a, b, precision = bf16x3, out = A)
    } else if PRECISION == 4 {
        dot(a, b, precision = bf16x6, out = A)
    } else {
        dot(a, b, precision = ieee, out = A)
    };
    let at = i[(.., None)] * N + j;
    if EPILOGUE == 2 {
        z += load(bias + at);
    } else if EPILOGUE == 3 {
        z += load(bias + i)[(.., None)];
    } else if EPILOGUE == 4 {
        z += load(bias + j);
    } else if EPILOGUE == 5 {
        let e = exp(z - max(z, axis = 1, keep_dims = true));
        z = e / sum(e, axis = 1, keep_dims = true);
    } else if EPILOGUE == 6 {
        z = dot(z as T, load(w + (j[(.., None)] * N + j)), precision = ieee, out = A);
    }
    if EPILOGUE == 1 {
        store(out + (j[(.., None)] * M + i), z.trans());
    } else {
        store(out + at, z);
    }
}

#[kernel]
fn product_of_integers<
    T: Int,
    const M: usize,
    const N: usize,
    const K: usize,
    const COLUMN_A: bool,
    const COLUMN_B: bool,
>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<i32>,
) {
    let (i, j, k) = (arange(0, M), arange(0, N), arange(0, K));
    let place_a = if COLUMN_A { i[(.., None)] + k * M } else { i[(.., None)] * K + k };
    let place_b = if COLUMN_B { k[(.., None)] + j * K } else { k[(.., None)] * N + j };
    store(out + (i[(.., None)] * N + j), dot(load(x + place_a), load(y + place_b), out = i32));
}

/// The product of an `m` x `k` and a `k` x `n` matrix, both in rows.
pub fn multiplied(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for p in 0..k {
            let factor = a[i * k + p];
            c[i * n..][..n].iter_mut().zip(&b[p * n..][..n]).for_each(|(sum, b)| *sum += factor * b);
        }
    }
    c
}

/// The transpose of an `m` x `n` matrix.
fn transposed<T: Copy>(x: &[T], m: usize, n: usize) -> Vec<T> {
    (0..m * n).map(|i| x[i % m * n + i / m]).collect()
}

/// A matrix of small integers, and those as plain numbers.
pub fn integers<T: Element>(random: &mut Random, len: usize) -> (Vec<T>, Vec<f64>) {
    let least = if T::from_int(-1).to_f64() < 0.0 { -1 } else { 0 };
    let x: Vec<T> = random.small(len, least, 2);
    let plain = x.iter().map(|x| x.to_f64()).collect();
    (x, plain)
}

/// What is multiplied, and how.
#[derive(Clone, Copy)]
struct Form {
    size: [usize; 3],
    warps: u32,
    columns: [bool; 2],
    epilogue: i32,
    precision: i32,
}

impl Form {
    /// A product of matrices that lie in rows.
    fn of(size: [usize; 3], warps: u32) -> Form {
        Form { size, warps, columns: [false; 2], epilogue: 0, precision: 0 }
    }

    fn consts(self) -> ProductConsts {
        let ([m, n, k], [column_a, column_b]) = (self.size, self.columns);
        ProductConsts {
            M: m,
            N: n,
            K: k,
            EPILOGUE: self.epilogue,
            PRECISION: self.precision,
            COLUMN_A: column_a,
            COLUMN_B: column_b,
        }
    }

    /// The factors, as they lie in memory and in rows.
    fn factors<T: Element>(self, random: &mut Random) -> [(Vec<T>, Vec<f64>); 2] {
        let [m, n, k] = self.size;
        let ((a, plain_a), (b, plain_b)) = (integers(random, m * k), integers(random, k * n));
        let a = if self.columns[0] { transposed(&a, m, k) } else { a };
        let b = if self.columns[1] { transposed(&b, k, n) } else { b };
        [(a, plain_a), (b, plain_b)]
    }

    /// What the epilogue makes of the product.
    fn finished(self, z: Vec<f64>, w: &[f64], bias: &[f64]) -> Vec<f64> {
        let [m, n, _] = self.size;
        let added =
            |place: fn(usize, usize) -> usize| z.iter().enumerate().map(|(i, z)| z + bias[place(i, n)]).collect();
        match self.epilogue {
            1 => transposed(&z, m, n),
            2 => added(|i, _| i),
            3 => added(|i, n| i / n),
            4 => added(|i, n| i % n),
            5 => z.chunks(n).flat_map(softmax).collect(),
            6 => multiplied(&z, w, [m, n, n]),
            _ => z,
        }
    }
}

fn softmax(line: &[f64]) -> Vec<f64> {
    let most = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = line.iter().map(|x| (x - most).exp()).sum();
    line.iter().map(|x| (x - most).exp() / total).collect()
}

fn product_case<T: Element + Float, A: Element + Float>(device: &Device, form: Form) -> Outcome {
    let mut random = Random::new(55);
    let [m, n, _] = form.size;
    let [(a, plain_a), (b, plain_b)] = form.factors::<T>(&mut random);
    let (w, plain_w) = integers::<T>(&mut random, if form.epilogue == 6 { n * n } else { 1 });
    let (bias, plain_bias) = integers::<A>(&mut random, m * n);
    let mut out = device.zeros::<A>(m * n)?;
    let (x, y, w) = (device.upload(&a)?, device.upload(&b)?, device.upload(&w)?);
    let bias = device.upload(&bias)?;
    let call = form.consts();
    call.call(&x, &y, &w, &bias, &mut out).grid(1).num_warps(form.warps).launch(device)?;
    let want = form.finished(multiplied(&plain_a, &plain_b, form.size), &plain_w, &plain_bias);
    let want: Vec<A> = want.into_iter().map(A::from_f64).collect();
    match form.epilogue {
        5 if A::BITS == 16 => close(&out.to_vec()?, &want, 1e-2, 1e-3),
        5 => close(&out.to_vec()?, &want, 1e-5, 1e-7),
        _ => equal(&out.to_vec()?, &want),
    }
}

fn integer_case<T: Element + Int>(device: &Device, form: Form) -> Outcome {
    let ([m, n, k], [column_a, column_b]) = (form.size, form.columns);
    let [(a, plain_a), (b, plain_b)] = form.factors::<T>(&mut Random::new(56));
    let mut out = device.zeros::<i32>(m * n)?;
    let (x, y) = (device.upload(&a)?, device.upload(&b)?);
    let consts = ProductOfIntegersConsts { M: m, N: n, K: k, COLUMN_A: column_a, COLUMN_B: column_b };
    consts.call(&x, &y, &mut out).grid(1).num_warps(form.warps).launch(device)?;
    let want = multiplied(&plain_a, &plain_b, form.size);
    equal(&out.to_vec()?, &want.into_iter().map(|x| x as i32).collect::<Vec<i32>>())
}

/// The code for Hopper, of a launch whose buffers are aligned.
fn code<T: Float, A: Float>(form: Form) -> Result<String, Failure> {
    let device = Device::cpu();
    let [m, n, k] = form.size;
    let (x, y, w) = (device.zeros::<T>(m * k)?, device.zeros::<T>(k * n)?, device.zeros::<T>(n * n)?);
    let (bias, mut out) = (device.zeros::<A>(m * n)?, device.zeros::<A>(m * n)?);
    let consts = form.consts();
    let call = consts.call(&x, &y, &w, &bias, &mut out).num_warps(form.warps);
    Ok(call.compile(Target::sm_90a())?.ptx().to_string())
}

/// Each of these must stand in the code.
pub fn contains(code: &str, wanted: &[&str]) -> Outcome {
    match wanted.iter().find(|text| !code.contains(**text)) {
        Some(missing) => Err(Failure(format!("no `{missing}` in {code}"))),
        None => Ok(()),
    }
}

const EPILOGUES: [&str; 7] = ["none", "trans", "add-matrix", "add-rows", "add-cols", "softmax", "chain-dot"];
const PRECISIONS: [&str; 5] = ["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"];

fn epilogues() -> Row {
    let mut row = Row::new("C55", "test_dot: epilogues and precisions")
        .remarks("the accuracy of precisions is in the suite `ops`; sums in `f16` take `mma.sync` on Hopper too");
    macro_rules! each {
        ($($t:ident $a:ident $($precision:literal)*;)*) => {$($(
            for size in [[64, 64, 64], [32, 32, 32], [16, 16, 16]] {
                for (epilogue, name) in (0..).zip(EPILOGUES) {
                    let form = Form { epilogue, precision: $precision, ..Form::of(size, 4) };
                    let precision = PRECISIONS[$precision];
                    let name = format!("{} to {}, {size:?}, {name}, {precision}", $t::NAME, $a::NAME);
                    row.case(name, move |device| product_case::<$t, $a>(device, form));
                }
            }
        )*)*};
    }
    each!(f16 f16 0; f16 f32 0; bf16 f32 0; f32 f32 0 1 2 3 4; f64 f64 2;);
    row.host("instructions of 64 x 64 x 64", || {
        let form = Form::of([64, 64, 64], 4);
        contains(&code::<f16, f32>(form)?, &["wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"])?;
        contains(&code::<bf16, f32>(form)?, &["wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"])?;
        contains(&code::<f32, f32>(form)?, &["m64n64k8.f32.tf32.tf32"])
    });
    row.host("instructions of 32 x 32 x 32", || {
        let form = Form::of([32, 32, 32], 4);
        contains(&code::<f16, f32>(form)?, &["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"])?;
        contains(&code::<f16, f16>(form)?, &["mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"])?;
        contains(&code::<f32, f32>(form)?, &["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"])?;
        contains(&code::<f64, f64>(form)?, &["mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"])
    });
    row.host("products of bf16 terms", || {
        for (precision, terms) in [(3, 3), (4, 6)] {
            let code = code::<f32, f32>(Form { precision, ..Form::of([64, 64, 64], 4) })?;
            let found = code.matches("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16").count();
            if found != 4 * terms {
                return Err(Failure(format!("{found} instructions, not four for each of {terms} products: {code}")));
            }
        }
        Ok(())
    });
    row.host("products in ieee are no matrix instructions", || {
        let code = code::<f32, f32>(Form { precision: 2, ..Form::of([64, 64, 64], 4) })?;
        if code.contains("mma") { Err(Failure(code)) } else { contains(&code, &["fma.rn.f32"]) }
    });
    row.host("accesses of 16 bytes", || {
        let wide =
            |op: &str, code: &str| code.lines().filter(|line| line.contains(op)).all(|line| line.contains(".v4"));
        for code in [code::<f16, f16>(Form::of([64, 64, 64], 4))?, code::<f32, f32>(Form::of([64, 64, 64], 4))?] {
            contains(&code, &["ld.global.nc.v4"])?;
            if !wide("ld.global", &code) || !wide("st.global", &code) {
                return Err(Failure(code));
            }
        }
        Ok(())
    });
    row
}

fn sizes() -> Row {
    let mut row = Row::new("C56", "test_dot: sizes, warps, factors in columns").remarks("sums of `i8` are `i32`");
    const SIZES: [([usize; 3], u32); 10] = [
        ([128, 256, 32], 8),
        ([128, 16, 32], 4),
        ([32, 128, 64], 4),
        ([128, 128, 64], 4),
        ([64, 128, 128], 4),
        ([32, 128, 64], 2),
        ([64, 64, 32], 4),
        ([32, 32, 128], 16),
        ([128, 128, 64], 2),
        ([64, 128, 128], 2),
    ];
    for (size, warps) in SIZES {
        for columns in [[false, false], [false, true], [true, false], [true, true]] {
            let form = Form { columns, ..Form::of(size, warps) };
            let name = |what: &str| format!("{what} {size:?}, {warps} warps, in columns {columns:?}");
            row.case(name("i8"), move |device| integer_case::<i8>(device, form));
            row.case(name("u8"), move |device| integer_case::<u8>(device, form));
            row.case(name("f16 to f16"), move |device| product_case::<f16, f16>(device, form));
            row.case(name("f16 to f32"), move |device| product_case::<f16, f32>(device, form));
            row.case(name("f32"), move |device| product_case::<f32, f32>(device, form));
        }
    }
    row.host("instructions of integers", || {
        let device = Device::cpu();
        let (x, mut out) = (device.zeros::<i8>(4096)?, device.zeros::<i32>(4096)?);
        for (size, wanted) in
            [(64, "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"), (32, "m16n8k32.row.col.s32.s8.s8.s32")]
        {
            let consts = ProductOfIntegersConsts { M: size, N: size, K: size, COLUMN_A: false, COLUMN_B: true };
            contains(consts.call(&x, &x, &mut out).num_warps(4).compile(Target::sm_90a())?.ptx(), &[wanted])?;
        }
        Ok(())
    });
    row
}

fn eight_bits_case<T: Element + Float>(device: &Device, form: Form) -> Outcome {
    let [m, n, k] = form.size;
    let mut random = Random::new(57);
    // Few are not zero, so that the first product is exact in 8 bits.
    let mut sparse =
        |len: usize| -> Vec<f64> { (0..len).map(|_| [-1.0, 1.0, 0.5][random.below(3) as usize]).collect() };
    let (mut a, b, w) = (sparse(m * k), sparse(k * n), sparse(n * n));
    a.iter_mut().enumerate().filter(|(i, _)| i / k % 32 != i % k % 32).for_each(|(_, a)| *a = 0.0);
    let upload = |values: &[f64]| device.upload(&values.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>());
    let bias = device.zeros::<f32>(1)?;
    let mut out = device.zeros::<f32>(m * n)?;
    let (x, y, w_there) = (upload(&a)?, upload(&b)?, upload(&w)?);
    form.consts().call(&x, &y, &w_there, &bias, &mut out).grid(1).num_warps(form.warps).launch(device)?;
    let mut z = multiplied(&a, &b, form.size);
    if form.epilogue == 6 {
        z.iter_mut().for_each(|z| *z = T::from_f64(*z).to_f64());
    }
    let want: Vec<f32> = form.finished(z, &w, &[]).into_iter().map(|x| x as f32).collect();
    equal(&out.to_vec()?, &want)
}

fn eight_bits() -> Row {
    let mut row = Row::new("C57", "test_dot: 8-bit floats, chained").remarks("`f8e4b15` is not offered");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for size in [[128, 128, 64], [64, 64, 32], [16, 16, 32], [128, 64, 128]] {
                for epilogue in [0, 1, 6] {
                    for warps in [4, 8] {
                        let form = Form { epilogue, ..Form::of(size, warps) };
                        let name = format!("{} {size:?}, {}, {warps} warps", $t::NAME, EPILOGUES[epilogue as usize]);
                        row.case(name, move |device| eight_bits_case::<$t>(device, form));
                    }
                }
            }
        )*};
    }
    each!(F8E4M3 F8E5M2);
    row.host("instructions", || {
        let chain = Form { epilogue: 6, ..Form::of([128, 128, 64], 4) };
        // The first product's result gets to where the second one reads it by exchanges inside of warps.
        let bytes = code::<F8E4M3, f32>(chain)?;
        contains(&bytes, &["wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3", "shfl.sync", "x2.f32"])?;
        contains(&code::<F8E5M2, f32>(chain)?, &["wgmma.mma_async.sync.aligned.m64n128k32.f32.e5m2.e5m2"])
    });
    row
}

fn small() -> Row {
    let mut row = Row::new("C58", "test_dot: small factors, f64");
    const SIZES: [[usize; 3]; 12] = [
        [1, 1, 32],
        [1, 2, 32],
        [2, 4, 32],
        [4, 1, 16],
        [1, 64, 64],
        [64, 1, 64],
        [2, 2, 16],
        [8, 8, 4],
        [8, 16, 8],
        [16, 8, 1],
        [1, 1, 1],
        [32, 4, 2],
    ];
    for size in SIZES {
        for warps in [1, 4] {
            let form = Form::of(size, warps);
            let name = |what: &str| format!("{what} {size:?}, {warps} warps");
            row.case(name("f16 to f16"), move |device| product_case::<f16, f16>(device, form));
            row.case(name("f16 to f32"), move |device| product_case::<f16, f32>(device, form));
            row.case(name("bf16"), move |device| product_case::<bf16, f32>(device, form));
            row.case(name("f32"), move |device| product_case::<f32, f32>(device, form));
            row.case(name("f64"), move |device| product_case::<f64, f64>(device, form));
            row.case(name("i8"), move |device| integer_case::<i8>(device, form));
        }
    }
    row
}
