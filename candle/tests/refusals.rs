//! Input that does not fit: an error that names the op, the argument, and what is accepted.

use crate::common::message;
use candle_core::{DType, Device, Module, Result, Tensor};
use tilewright_candle::attention::{self, Attention};
use tilewright_candle::call;
use tilewright_candle::prelude::{kernel, like};
use tilewright_candle::products::{Fused, Packing, QuantisedLinear, fp8, fused_linear, linear, matmul};
use tilewright_candle::rows::{self, CrossEntropy, Gelu, Pairs};

/// Asserts what an error begins with, and what else it says.
#[track_caller]
fn refused<T>(result: Result<T>, begins: &str, says: &str) {
    let text = message(result);
    assert!(text.starts_with(begins), "this does not begin with `{begins}`: {text}");
    assert!(text.contains(says), "this does not say `{says}`: {text}");
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap()
}

fn of(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, dtype, &Device::Cpu).unwrap()
}

#[test]
fn dtypes() {
    let floats = "the dtypes that are accepted are f16, bf16, f32, f64";
    let (x, half) = (zeros(&[2, 4]), of(DType::F16, &[4]));
    refused(rows::softmax(&of(DType::U8, &[2, 4])), "softmax: `x` is of u8", floats);
    refused(rows::rms_norm(&x, &half, 1e-5), "rms_norm: `weight` is of f16", "the dtype that is accepted is f32");
    refused(rows::swiglu(&x, &of(DType::F16, &[2, 4])), "swiglu: `b` is of f16", "accepted is f32");
    refused(
        rows::cross_entropy(&x, &zeros(&[2]), CrossEntropy::default()),
        "cross_entropy: `targets` is of f32",
        "u32",
    );
    refused(linear(&x, &of(DType::BF16, &[3, 4])), "linear: `weight` is of bf16", "accepted is f32");
    let q = zeros(&[1, 1, 2, 8]);
    let lengths = zeros(&[1]);
    let decoded = attention::decode(&q, &q, &q, Some(&lengths), Attention::default());
    refused(decoded, "decode: `lengths` is of f32", "the dtypes that are accepted are u32, i32");
    refused(
        attention::attention(&q, &q.to_dtype(DType::F64).unwrap(), &q, Attention::default()),
        "attention: `k` is of f64",
        "",
    );
    let layer = QuantisedLinear::nf4(&zeros(&[8, 64])).unwrap();
    refused(layer.forward(&zeros(&[1, 64])), "QuantisedLinear: `x` is of f32", "f16, bf16");
    refused(
        QuantisedLinear::int4(&zeros(&[8, 64]), 32, Packing::Awq),
        "quantise_int4: `weight` is of f32",
        "f16, bf16",
    );
}

#[test]
fn ranks_and_shapes() {
    let x = zeros(&[2, 4]);
    refused(rows::softmax(&zeros(&[])), "softmax: `x` has no dimensions", "one or more are accepted");
    refused(
        rows::rms_norm(&x, &zeros(&[1, 4]), 1e-5),
        "rms_norm: `weight` has the shape [1, 4], 2 dimensions",
        "the rank that is accepted is 1",
    );
    refused(rows::rms_norm(&x, &zeros(&[5]), 1e-5), "rms_norm: `weight` has the shape [5]", "[4]");
    refused(rows::geglu(&x, &zeros(&[3, 4]), Gelu::Erf), "geglu: `b` has the shape [3, 4]", "[2, 4]");
    // Of as many rows and columns in all, but others.
    let (tall, wide) = (zeros(&[3, 2, 4]), zeros(&[2, 3, 4]));
    refused(rows::swiglu(&tall, &wide), "swiglu: `b` has the shape [2, 3, 4]", "that of `a`, [3, 2, 4]");
    refused(
        rows::geglu(&tall, &zeros(&[6, 4]), Gelu::Erf),
        "geglu: `b` has the shape [6, 4]",
        "that of `a`, [3, 2, 4]",
    );
    refused(
        rows::add_rms_norm_in_place(&tall, &wide, &zeros(&[4]), 1e-5),
        "add_rms_norm_in_place: `residual` has the shape [3, 2, 4]",
        "that of `x`, [2, 3, 4]",
    );
    refused(rows::rotary(&x, &x, &x, Pairs::Halves), "rotary: `x` has the shape [2, 4], 2 dimensions", "is 4");
    refused(linear(&x, &zeros(&[3, 5])), "linear: `x` has the shape [2, 4]", "`weight` multiplies 5 numbers");
    refused(matmul(&x, &x), "matmul: `b` has the shape [2, 4] where `a` has [2, 4]", "[m, k] and [k, n]");
    let residual = zeros(&[2, 5]);
    let around = Fused { residual: Some(&residual), ..Fused::default() };
    refused(fused_linear(&x, &zeros(&[3, 4]), around), "fused_linear: `residual` has the shape [2, 5]", "[2, 3]");
    let q = zeros(&[1, 3, 2, 8]);
    let k = zeros(&[1, 2, 2, 8]);
    refused(attention::attention(&q, &k, &k, Attention::default()), "attention: `k` has 2 heads", "must be a multiple");
    let positions = Tensor::zeros((1, 1), DType::U32, &Device::Cpu).unwrap();
    refused(
        attention::append(&zeros(&[1, 2, 9, 8]), &zeros(&[1, 2, 2, 8]), &positions),
        "append: `positions` has the shape [1, 1]",
        "[1, 2]",
    );
    refused(
        attention::append(&zeros(&[1, 3, 9, 8]), &zeros(&[1, 2, 1, 8]), &positions),
        "append: `cache` has the shape [1, 3, 9, 8]",
        "[1, 2, 9, 8]",
    );
    let (cache, qkv, tables) = (zeros(&[2, 1, 1, 4, 8]), zeros(&[1, 1, 24]), zeros(&[4, 4]));
    refused(
        attention::rotary_append(&cache, &qkv, &tables, &tables, &positions, usize::MAX, Pairs::Halves),
        "rotary_append: `qkv` has the shape [1, 1, 24]",
        "heads of 8 elements of the queries",
    );
    refused(fp8::quantise_blocks(&zeros(&[4])), "quantise_blocks: `x` has the shape [4]", "is 2");
    let odd = of(DType::F16, &[6, 64]);
    refused(
        QuantisedLinear::int4(&odd, 32, Packing::Awq),
        "quantise_int4: `w` has the shape [64, 6]",
        "8 numbers make a word",
    );
}

#[test]
fn strides() {
    let x = zeros(&[4, 6]).t().unwrap();
    refused(rows::softmax(&x), "softmax: `x` has the shape [6, 4] and strides [1, 6]", "call `contiguous` first");
    let gaps = zeros(&[2, 3, 8]).narrow(1, 0, 2).unwrap();
    refused(rows::softmax(&gaps), "softmax: `x` has the shape [2, 2, 8] and strides [24, 8, 1]", "at one distance");
    let q = zeros(&[1, 2, 8, 4]).transpose(2, 3).unwrap();
    refused(
        attention::attention(&q, &q, &q, Attention::default()),
        "attention: `q` has",
        "its last dimension is not contiguous",
    );
    let repeated = zeros(&[1, 4]).broadcast_as((2, 4)).unwrap();
    let weight = zeros(&[4]);
    let y = rows::add_rms_norm_in_place(&repeated, &zeros(&[2, 4]), &weight, 1e-5);
    refused(y, "add_rms_norm_in_place: `residual` has the shape [2, 4] and strides [0, 1]", "share memory");
}

#[test]
fn memory_that_is_read_and_written() {
    let (x, weight) = (zeros(&[2, 4]), zeros(&[4]));
    let y = rows::add_rms_norm_in_place(&x, &x, &weight, 1e-5);
    refused(y, "add_rms_norm_in_place: `x` shares its memory with `residual`", "a copy is accepted");
    let halves = zeros(&[2, 2, 4]);
    let (first, second) = (halves.get(0).unwrap(), halves.get(1).unwrap());
    let y = rows::add_rms_norm_in_place(&first, &second, &weight, 1e-5);
    refused(y, "add_rms_norm_in_place: `x` shares its memory with `residual`", "a copy is accepted");
}

#[test]
fn values() {
    let q = zeros(&[1, 1, 2, 8]);
    let options = Attention::default().scale(-1.0);
    refused(attention::attention(&q, &q, &q, options), "attention: ", "positive");
}

#[cfg(feature = "cuda")]
#[test]
fn devices() {
    if !candle_core::utils::cuda_is_available() {
        return;
    }
    let gpu = Device::new_cuda(0).unwrap();
    let (x, weight) = (zeros(&[2, 4]), zeros(&[4]).to_device(&gpu).unwrap());
    refused(rows::rms_norm(&x, &weight, 1e-5), "rms_norm: `weight` is on cuda:0, `x` on the CPU", "`to_device`");
    let y = rows::add_rms_norm_in_place(&x, &zeros(&[2, 4]), &weight, 1e-5);
    refused(y, "add_rms_norm_in_place: `weight` is on cuda:0, `residual` on the CPU", "`to_device`");
}

/// Reads behind the last element.
#[kernel]
fn reads_behind(x: Ptr<f32>, y: PtrMut<f32>, n: i64) {
    store(y, load(x + n));
}

/// An op whose launches fail, and which may have an error of its own to tell.
fn failing(x: &Tensor, own: bool) -> Result<[Tensor; 1]> {
    call(
        "failing",
        [("x", x)],
        |[x]| Ok([like(x)]),
        |[x], [y]| {
            let mut y = y.flat_mut::<f32>()?;
            for n in [x.len() as i64, -1] {
                reads_behind(x.flat::<f32>()?, &mut y, n).grid(1).launch(x.device())?;
            }
            let refusal = tilewright::Error::NoDriver { reason: "of its own".into() };
            if own { Err(refusal) } else { Ok(()) }
        },
    )
}

#[test]
fn errors_of_an_op_on_the_cpu_are_not_those_of_the_next() {
    let x = zeros(&[4]);
    refused(failing(&x, false), "failing: ", "loads element 4 of `x`");
    rows::softmax(&x).unwrap();
    refused(failing(&x, true), "failing: ", "of its own");
    rows::softmax(&x).unwrap();
}
