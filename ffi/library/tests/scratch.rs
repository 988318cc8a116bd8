//! How much scratch memory the library's operators say that they take, on the CPU and on a GPU: that of the model of the CUDA
//! driver, so that none is needed.

#![cfg(target_os = "linux")]

use std::ffi::CString;
use tilewright_driver_model::{Settings, in_model};
use tilewright_ffi::Exported;
use tilewright_ffi::xla::scratch;
use tilewright_kernels::rows::EmbeddingWorkspace;

/// A piece of memory of so many bytes.
fn piece(bytes: usize) -> i64 {
    bytes.next_multiple_of(256) as i64
}

/// What a call takes on this device. Tensors are written as JSON, `["float32", [3, 4]]`, with a comma behind each.
fn bytes<O: Exported>(gpu: &str, operands: &str, results: &str, attributes: &str) -> i64 {
    let list = |tensors: &str| tensors.trim_end_matches([',', ' ']).to_string();
    let (operands, results) = (list(operands), list(results));
    let request = format!(
        r#"{{"op": "{}", "gpu": {gpu}, "operands": [{operands}], "results": [{results}], "attributes": {{{attributes}}}}}"#,
        O::OP.name
    );
    let request = CString::new(request).expect("no zero byte");
    // SAFETY: a string that ends with a zero byte.
    unsafe { scratch(&[O::MEASURED], request.as_ptr()) }
}

fn tensor(dtype: &str, shape: &[usize]) -> String {
    format!(r#"["{dtype}", {shape:?}], "#)
}

/// What all operators with scratch memory say, for a device.
fn check(gpu: &str) {
    const EPS: &str = r#""eps": {"float": 1e-05}"#;
    let given = |bits: u32| format!(r#""tilewright_given": {{"int": {bits}}}"#);
    for dtype in ["float32", "float16", "bfloat16", "float64"] {
        let sum = if dtype == "float64" { 8 } else { 4 };
        let (x, columns) = (tensor(dtype, &[500, 192]), tensor(dtype, &[192]));
        // Rows of sums for each program, as many as the device runs.
        let rows_of_sums = |found: i64, sums: i64| {
            assert!(found > 0 && found % (sums * 192 * sum) == 0, "{found} bytes of sums of {dtype}");
        };
        let attributes = format!("{EPS}, {}", given(1));
        rows_of_sums(
            bytes::<tilewright_ops::rms_norm_backward>(
                gpu,
                &(x.repeat(2) + &columns),
                &(x.clone() + &columns),
                &attributes,
            ),
            1,
        );
        let add = bytes::<tilewright_ops::add_rms_norm_backward>(
            gpu,
            &(x.repeat(3) + &columns),
            &(x.clone() + &columns),
            &format!("{EPS}, {}", given(3)),
        );
        rows_of_sums(add, 1);
        let attributes = format!("{EPS}, {}", given(3));
        let both = columns.repeat(2);
        rows_of_sums(
            bytes::<tilewright_ops::layer_norm_backward>(
                gpu,
                &(x.repeat(2) + &both),
                &(x.clone() + &both),
                &attributes,
            ),
            2,
        );

        let (ids, table) = (tensor("int32", &[500]), tensor(dtype, &[37, 192]));
        let found = bytes::<tilewright_ops::embedding_backward>(gpu, &(x.clone() + &table + &ids), &table, "");
        type Workspace<'a> = EmbeddingWorkspace<'a, f32>;
        let (order, sums) = (4 * Workspace::order(500, 37), sum as usize * 192 * Workspace::sums(500));
        assert_eq!(found, piece(order) + piece(sums), "embedding of {dtype}");

        let (number, attributes) = (
            tensor("float32", &[]),
            r#""ignore_index": {"int": -100}, "label_smoothing": {"float": 0.0}, "z_loss": {"float": 0.0}"#,
        );
        let found = bytes::<tilewright_ops::cross_entropy>(gpu, &(x.clone() + &ids), &number, attributes);
        assert_eq!(found, piece(500 * 4) + piece(4), "cross entropy of {dtype}");
        let found = bytes::<tilewright_ops::cross_entropy_backward>(gpu, &(number + &x + &ids), &x, attributes);
        assert_eq!(found, piece(4), "its gradient");

        let (q, sums) = (tensor(dtype, &[2, 300, 4, 64]), tensor("float32", &[2, 4, 300]));
        let attributes = r#""causal": {"bool": true}"#;
        let operands = q.repeat(5) + &sums;
        let without = format!("{attributes}, {}", given(0));
        let found = bytes::<tilewright_ops::flash_attention_backward>(gpu, &operands, &q.repeat(3), &without);
        // Two numbers for each query, and in one kernel its gradient in f32.
        let [two, fused] = [2, 2 + 64].map(|numbers| piece(numbers * 2 * 4 * 300 * 4));
        assert!(found == two || found == fused, "{found} bytes, not {two} or {fused}");

        let (qkv, dy) = (tensor(dtype, &[2, 300, 3, 4, 64]), &q);
        let tables = tensor("float32", &[300, 32]).repeat(2);
        let operands = [dy.as_str(), &qkv, dy, &sums, &tables].concat();
        let found = bytes::<tilewright_ops::rotary_attention_backward>(gpu, &operands, &qkv, attributes);
        assert!(found == two || found == fused, "{found} bytes, not {two} or {fused}");

        // Few results of long sums: programs share them, where the device has more than there are.
        let (x, weight, y) = (tensor(dtype, &[16, 16384]), tensor(dtype, &[64, 16384]), tensor(dtype, &[16, 64]));
        let found = bytes::<tilewright_ops::linear>(gpu, &(x.clone() + &weight), &y, &given(0));
        assert!(found >= 0 && found % (16 * 64 * 4) == 0, "{found} bytes of shares of {dtype}");
        let shared = gpu != "null" && dtype != "float64";
        assert_eq!(found > 0, shared, "{found} bytes of {dtype}");
        let gradients = bytes::<tilewright_ops::linear_backward>(gpu, &(y + &x + &weight), &(x + &weight), &given(0));
        assert!(gradients >= 0);
    }
}

#[test]
fn operators_say_what_they_take_on_the_cpu() {
    check("null");
}

#[test]
fn operators_say_what_they_take_on_a_gpu() {
    if in_model("operators_say_what_they_take_on_a_gpu", &Settings::default()) {
        check("0");
    }
}
