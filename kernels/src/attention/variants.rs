//! Launches run the fast variants of kernels: the host proves that no access leaves its buffer.

use super::backward::fused::kernels::{AttentionFusedBackwardConsts, AttentionQueriesScaleConsts};
use super::backward::kernels::{AttentionKeysBackwardConsts, AttentionQueriesBackwardConsts};
use super::forward::AttentionConsts;
use super::mla::AttentionMlaConsts;
use super::serving::kernels::AttentionCachedConsts;
use tilewright::launch::{CompiledKernel, LaunchVariant, Target};
use tilewright::prelude::*;
use tilewright::{Result, TensorDesc, TensorDescMut};

const HEADS: usize = 2;
const ROWS: usize = 200;
const D: usize = 64;

#[track_caller]
fn assert_fast(compiled: Result<CompiledKernel>) {
    let compiled = compiled.unwrap();
    assert_eq!(*compiled.variant(), LaunchVariant::Fast, "{}", compiled.report());
    let checked: Vec<&str> = compiled.report().lines().filter(|line| line.contains("checked per lane")).collect();
    assert_eq!(checked, Vec::<&str>::new());
}

fn heads(device: &Device) -> Buffer<f16> {
    device.zeros(HEADS * ROWS * D).unwrap()
}

fn described(x: &Buffer<f16>) -> TensorDesc<'_, f16, 4> {
    TensorDesc::new(x, [1, HEADS, ROWS, D]).unwrap()
}

#[test]
fn forward() {
    let device = Device::cpu();
    let (x, mut out) = (heads(&device), heads(&device));
    let mut lse = device.zeros::<f32>(HEADS * ROWS).unwrap();
    let x = described(&x);
    let (rows, stride) = (ROWS as i32, (ROWS * D) as i64);
    let none = || None::<&Buffer<i32>>;
    for (dv, bn, several) in [(64, 128, false), (64, 128, true), (256, 64, false)] {
        let call = AttentionConsts { BM: 128, BN: bn, D: 64, DV: dv, LOOP: several }.call(
            &x,
            &x,
            &x,
            None,
            none(),
            none(),
            &mut out,
            Some(&mut lse),
            1,
            HEADS as i32,
            rows,
            rows,
            D as i32,
            1,
            1,
            0.125,
            None,
            None,
            0,
            0,
            0,
            0,
            HEADS as i64 * stride,
            stride,
            D as i64,
            (HEADS * ROWS) as i64,
            ROWS as i64,
        );
        assert_fast(call.grid(2 * HEADS).num_warps(8).num_stages(2).compile(Target::sm_90a()));
    }
}

#[test]
fn backward() {
    let device = Device::cpu();
    let (x, mut dk, mut dv) = (heads(&device), heads(&device), heads(&device));
    let logs = device.zeros::<f32>(HEADS * ROWS).unwrap();
    let logs = TensorDesc::new(&logs, [1, HEADS, ROWS]).unwrap();
    let (rows, d, stride) = (ROWS as i32, D as i32, (ROWS * D) as i64);
    let strides = [HEADS as i64 * stride, stride, D as i64];
    let none = || None::<&Buffer<i32>>;
    let x = described(&x);
    let call = AttentionKeysBackwardConsts { BM: 64, BN: 128, D: 64, DV: 64 }.call(
        &x,
        &x,
        &x,
        &x,
        &logs,
        &logs,
        None,
        none(),
        none(),
        &mut dk,
        Some(&mut dv),
        None,
        rows,
        rows,
        d,
        d,
        1,
        0.125,
        None,
        None,
        0,
        0,
        0,
        0,
        strides[0],
        strides[1],
        strides[2],
        strides[0],
        strides[1],
        strides[2],
    );
    assert_fast(call.grid((2, HEADS, 1)).num_warps(8).num_stages(2).compile(Target::sm_90a()));
    let call = AttentionQueriesBackwardConsts { BM: 128, BN: 64, D: 64, DV: 64 }.call(
        &x,
        &x,
        &x,
        &x,
        &logs,
        &logs,
        None,
        none(),
        none(),
        &mut dk,
        rows,
        rows,
        d,
        1,
        0.125,
        None,
        None,
        0,
        0,
        0,
        0,
        strides[0],
        strides[1],
        strides[2],
    );
    assert_fast(call.grid((2, HEADS, 1)).num_warps(8).num_stages(2).compile(Target::sm_90a()));
}

/// One kernel for all gradients and the one behind it: as they are into three tensors, or rotated back into one.
#[test]
fn gradients_in_one_kernel() {
    let device = Device::cpu();
    let (x, mut dv) = (heads(&device), heads(&device));
    let mut dk = device.zeros::<f16>(2 * HEADS * ROWS * D).unwrap();
    let numbers = device.zeros::<f32>(HEADS * ROWS).unwrap();
    let logs = TensorDesc::new(&numbers, [1, HEADS, ROWS]).unwrap();
    let mut sums = device.zeros::<f32>(HEADS * ROWS * D).unwrap();
    let tables = [(); 2].map(|()| device.zeros::<f32>(ROWS * D / 2).unwrap());
    let (rows, d, stride) = (ROWS as i32, D as i32, (ROWS * D) as i64);
    let strides = [HEADS as i64 * stride, stride, D as i64];
    let none = || None::<&Buffer<i32>>;
    let x = described(&x);
    for rotated in [false, true] {
        let mut sums_blocks = TensorDescMut::new(&mut sums, [1, HEADS, ROWS, D]).unwrap();
        let [cos, sin] = tables.each_ref().map(|table| rotated.then_some(table));
        let call = AttentionFusedBackwardConsts { BM: 64, BN: 64, D: 64, DV: 64 }.call(
            &x,
            &x,
            &x,
            &x,
            &logs,
            &logs,
            None,
            none(),
            none(),
            cos,
            sin,
            &mut sums_blocks,
            &mut dk,
            (!rotated).then_some(&mut dv),
            rotated.then_some(strides[0]),
            rows,
            rows,
            d,
            d,
            1,
            0.125,
            None,
            None,
            0,
            0,
            0,
            0,
            strides[0],
            strides[1],
            strides[2],
            strides[0],
            strides[1],
            strides[2],
        );
        assert_fast(call.grid((4, HEADS, 1)).num_warps(4).num_stages(2).compile(Target::sm_90a()));
        let call = AttentionQueriesScaleConsts { BM: 64, D: 64 }
            .call(&sums, cos, sin, &mut dk, rows, rows, d, d, 0.125, strides[0], strides[1], strides[2]);
        assert_fast(call.grid((4, HEADS, 1)).num_warps(4).compile(Target::sm_90a()));
    }
}

/// Pages whose numbers are loaded: they are limited to those that there are.
#[test]
fn caches() {
    let device = Device::cpu();
    let (pages, page, sequences, most) = (20usize, 16usize, 3usize, 5usize);
    let cache = device.zeros::<f16>(pages * page * HEADS * D).unwrap();
    let q = device.zeros::<f16>(sequences * 8 * D).unwrap();
    let (table, lengths) = (device.zeros(sequences * most).unwrap(), device.zeros(sequences).unwrap());
    let mut out = device.zeros::<f16>(sequences * 8 * D).unwrap();
    let mut lse = device.zeros::<f32>(sequences * 8).unwrap();
    let (page_stride, d) = ((page * HEADS * D) as i64, D as i64);
    let (table, lengths): (&Buffer<i32>, &Buffer<i32>) = (&table, &lengths);
    let scales = || None::<&Buffer<f32>>;
    let call = AttentionCachedConsts { BM: 16, BN: 64, D: 64, DV: 64, PAGE: page, RUN: 64 }.call(
        &q,
        &cache,
        &cache,
        None,
        None,
        Some(table),
        Some(lengths),
        None::<&Buffer<i32>>,
        scales(),
        scales(),
        &mut out,
        Some(&mut lse),
        1,
        1,
        (most * page) as i32,
        pages as i32,
        D as i32,
        D as i32,
        4,
        0.125,
        None,
        1 << 30,
        1 << 30,
        0,
        0,
        8 * d,
        d,
        d,
        page_stride,
        d,
        HEADS as i64 * d,
        page_stride,
        d,
        HEADS as i64 * d,
        most as i64,
        0,
        8 * d,
        d,
        d,
        0,
        8,
        1,
    );
    assert_fast(call.grid((1, HEADS, sequences)).num_warps(4).compile(Target::sm_90a()));
}

/// Latent attention into the result, and into those of two parts.
#[test]
fn latent() {
    let device = Device::cpu();
    let (sequences, heads, pages, page, width) = (2, 128, 4, 64, 576);
    let (q, tokens) = (device.zeros::<f16>(sequences * heads * width), device.zeros::<f16>(pages * page * width));
    let (q, tokens) = (q.unwrap(), tokens.unwrap());
    let table = device.zeros::<i32>(pages).unwrap();
    let lengths = device.zeros::<i32>(sequences).unwrap();
    let queries = |range: std::ops::Range<usize>| {
        let size = range.len();
        let strides = [heads * width, width, width, 1];
        TensorDesc::with_strides(q.slice(range.start..q.len()).unwrap(), [sequences, 1, heads, size], strides).unwrap()
    };
    let keys = |range: std::ops::Range<usize>| {
        let (size, strides) = (range.len(), [page * width, width, 1]);
        TensorDesc::with_strides(tokens.slice(range.start..tokens.len()).unwrap(), [pages, page, size], strides)
            .unwrap()
    };
    let (content, turned) = (queries(0..512), queries(512..576));
    let (latent, position) = (keys(0..512), keys(512..576));
    let rows = (sequences * heads) as i64;
    macro_rules! check {
        ($dtype:ty, $parts:expr) => {
            let mut out = device.zeros::<$dtype>($parts * sequences * heads * 512).unwrap();
            let mut lse = device.zeros::<f32>($parts * sequences * heads).unwrap();
            let call = AttentionMlaConsts { BM: 64, BN: 64, H: 256, P: 64 }.call(
                &content,
                &turned,
                &latent,
                &position,
                &table,
                &lengths,
                &mut out,
                Some(&mut lse),
                $parts as i32,
                heads as i32,
                1,
                (pages / sequences * page) as i32,
                page as i32,
                0.1,
                None,
                1 << 29,
                1 << 29,
                (pages / sequences) as i64,
                512 * rows,
                (512 * heads) as i64,
                512,
                512,
                rows,
                heads as i64,
                1,
            );
            let grid = (heads.div_ceil(64) * $parts, 1, sequences);
            assert_fast(call.grid(grid).num_warps(4).num_stages(2).compile(Target::sm_90a()));
        };
    }
    check!(f16, 1);
    check!(f32, 2);
}
