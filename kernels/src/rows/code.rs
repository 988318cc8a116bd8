//! What the hardware would run: the code of the family's kernels for an H100, as launches of bf16 and usual sizes run it with
//! the configurations that the library chooses.

use super::cross_entropy::{CrossEntropyConfig, CrossEntropyGradientConsts, CrossEntropyLossesConsts};
use super::cross_entropy_held::CrossEntropyGradientHeldConsts;
use super::divergence::{DivergenceConfig, JsdRowsConsts, KlGradientConsts, KlLossesConsts};
use super::dropout::DropElementsConsts;
use super::embedding::{EmbeddingConfig, GatherRowsConsts, ScatterRowsConsts, SumRunsConsts};
use super::embedding_gradient::{FindRunsConsts, PrepareRunsConsts, SumChunksConsts, SumRowsConsts};
use super::gated::{GATED, GatedConsts, GatedGradientConsts};
use super::group_norm::{GroupNormConfig, GroupScaleConsts, GroupStatisticsConsts, GroupWholeConsts};
use super::group_norm_backward::{
    GroupGradientConsts, GroupGradientWholeConsts, GroupMomentsConsts, GroupWeightsConsts, PieceMomentsConsts,
};
use super::linear_cross_entropy::exponentials::{ExponentialsConsts, Tile};
use super::linear_cross_entropy::{BLOCKS, ProductBlocksConsts, ProductConsts};
use super::log_softmax::{LogSoftmaxConfig, LogSoftmaxGradientConsts, LogSoftmaxRowsConsts};
use super::norm::{NormConfig, NormPiecesConsts, NormWholeConsts};
use super::norm_backward::{ColumnSumsConsts, NormBackwardConfig, NormGradientConsts, NormGradientPiecesConsts};
use super::rotary::{RotaryConfig, RotateConsts};
use super::softmax::{SoftmaxGradientConsts, SoftmaxPiecesConsts};
use crate::code::{Code, H100, check_launch};
use tilewright::prelude::*;

/// Buffers on the CPU that calls are compiled with.
struct Data {
    x: Buffer<bf16>,
    y: Buffer<bf16>,
    out: Buffer<bf16>,
    out2: Buffer<bf16>,
    sums: Buffer<f32>,
    sums2: Buffer<f32>,
    few: Buffer<f32>,
    few_out: Buffer<f32>,
    ids: Buffer<i64>,
}

const LEN: usize = 1 << 16;

fn data() -> Data {
    let cpu = Device::cpu();
    let elements = || cpu.zeros::<bf16>(LEN).unwrap();
    let numbers = |len| cpu.zeros::<f32>(len).unwrap();
    let (x, y, out, out2) = (elements(), elements(), elements(), elements());
    let (sums, sums2, few, few_out) = (numbers(LEN), numbers(LEN), numbers(64), numbers(64));
    Data { x, y, out, out2, sums, sums2, few, few_out, ids: cpu.zeros(64).unwrap() }
}

#[test]
fn norms_are_compiled_well() {
    let Data { x, y, mut out, mut out2, .. } = data();
    for columns in [128, 2048, 4096, 16_384] {
        let NormConfig { rows, block, num_warps } = NormConfig::choose(columns, 2);
        let (all, s, n, warps) = (LEN / columns, columns as i64, columns as i32, num_warps as u32);
        for centre in [false, true] {
            let consts = || NormWholeConsts { ROWS: rows, BLOCK: block, CENTRE: centre };
            let plain = consts().call(&x, None, None, Some(&y), Some(&y), &mut out, s, 0, 0, s, all as i32, n, 1e-5);
            let grid = all.div_ceil(rows);
            let resident = if columns > 8192 { 16 } else { 32 };
            check_launch("norm", plain.grid(grid).num_warps(warps).compile(H100), resident, &[]);
            let sum =
                consts().call(&x, None, Some(&mut out2), Some(&y), None, &mut out, s, 0, s, s, all as i32, n, 1e-5);
            check_launch("norm of a sum", sum.grid(grid).num_warps(warps).compile(H100), resident, &[]);
        }
    }
    let NormConfig { block, num_warps, .. } = NormConfig::choose(1 << 15, 2);
    let call = NormPiecesConsts { BLOCK: block, CENTRE: true }
        .call(&x, None, None, Some(&y), None, &mut out, 1 << 15, 0, 0, 1 << 15, 1 << 15, 1e-5)
        .grid(2);
    check_launch("norm of long rows", call.num_warps(num_warps as u32).compile(H100), 16, &[]);
}

fn gradients_of_norms<T: Float>(columns: usize) {
    let Data { mut sums, mut sums2, .. } = data();
    let elements = || Device::cpu().zeros::<T>(LEN).unwrap();
    let (x, mut out) = (elements(), elements());
    let config = NormBackwardConfig::choose(columns, T::ELEMENT);
    let NormBackwardConfig { rows, block, num_warps, programs } = config;
    let (all, s, n) = (LEN / columns, columns as i64, columns as i32);
    for centre in [false, true] {
        let (weights, biases) = (Some(&mut sums), Some(&mut sums2));
        let call = NormGradientConsts { ROWS: rows, BLOCK: block, CENTRE: centre }
            .call(&x, &x, Some(&x), None, &mut out, weights, biases, s, s, 0, s, all as i32, n, 1e-5)
            .grid(all.div_ceil(rows))
            .num_warps(num_warps as u32)
            .max_registers(config.registers());
        let name = format!("gradient of {} of {columns}, centred: {centre}", T::ELEMENT);
        check_launch(&name, call.compile(H100), programs * num_warps, &[]);
    }
}

#[test]
fn gradients_of_norms_are_compiled_well() {
    for columns in [128, 1024, 2048, 4096] {
        gradients_of_norms::<bf16>(columns);
        gradients_of_norms::<f32>(columns);
    }
    gradients_of_norms::<bf16>(8192);
    let Data { x, y, mut out, mut sums, .. } = data();
    let config = NormBackwardConfig::choose(1 << 14, bf16::ELEMENT);
    let NormBackwardConfig { block, num_warps, .. } = config;
    let s = 1 << 14;
    let call = NormGradientPiecesConsts { BLOCK: block, CENTRE: false }
        .call(&x, &y, Some(&x), None, &mut out, Some(&mut sums), None, s, s, 0, s, 4, 1 << 14, 1e-5)
        .grid(4)
        .num_warps(num_warps as u32)
        .max_registers(config.registers());
    // The f32 sums decide the layout: 4 elements a thread.
    check_launch(
        "gradient of long rows",
        call.compile(H100),
        num_warps,
        &[("x", 8), ("dy", 8), ("weight", 8), ("dx", 8)],
    );
    let call = ColumnSumsConsts { M: 32, N: 32 }.call(&sums, &mut out, 16, 4096).grid(128).num_warps(4);
    check_launch("sums of columns", call.compile(H100), 32, &[("out", 8)]);
}

#[test]
fn activations_are_compiled_well() {
    let Data { x, y, mut out, mut out2, .. } = data();
    let warps = GATED.num_warps as u32;
    let (blocks, n) = ((LEN / GATED.block) as i32, LEN as i32);
    for kind in 0..3 {
        let consts = || GatedGradientConsts { BLOCK: GATED.block, KIND: kind };
        let call = GatedConsts { BLOCK: GATED.block, KIND: kind }.call(&x, &y, &mut out, 0, 0, 0, blocks, n);
        check_launch("gated", call.grid(blocks as usize).num_warps(warps).compile(H100), 32, &[]);
        let call = consts().call(&x, &y, &x, &mut out, &mut out2, 0, 0, 0, 0, 0, blocks, n);
        check_launch("gradient", call.grid(blocks as usize).num_warps(warps).compile(H100), 32, &[]);
        let call = consts().call(InPlace, InPlace, &x, &mut out, &mut out2, 0, 0, 0, 0, 0, blocks, n);
        check_launch("in place", call.grid(blocks as usize).num_warps(warps).compile(H100), 32, &[]);
    }
    for interleaved in [false, true] {
        let RotaryConfig { tokens, heads, num_warps } = RotaryConfig::choose(16, 64);
        let consts = RotateConsts { TOKENS: tokens, HEADS: heads, HALF: 64, INTERLEAVED: interleaved, BACKWARD: false };
        let table = Device::cpu().zeros::<f32>(32 * 64).unwrap();
        let none = None::<&Buffer<i32>>;
        let call = consts
            .call(InPlace, &table, &table, none, &mut out, 65536, 2048, 128, 65536, 2048, 128, 64, 32, 32, 16, 64);
        let call = call.grid((32 / tokens, 16 / heads)).num_warps(num_warps as u32);
        check_launch("rotary", call.compile(H100), 32, &[]);
    }
    let call = DropElementsConsts { BLOCK: 1024 }.call(&x, &mut out, LEN as i64, 1, 1000u64, 2.0);
    check_launch("dropout", call.grid(LEN / 1024).num_warps(4).compile(H100), 32, &[]);
}

#[test]
fn softmax_and_losses_are_compiled_well() {
    let Data { x, y, mut out, few, mut few_out, ids, .. } = data();
    let (s, n) = (4096i64, 4096i32);
    let LogSoftmaxConfig { block, num_warps } = LogSoftmaxConfig::choose(4096, 2);
    let warps = num_warps as u32;
    let call = LogSoftmaxRowsConsts { BLOCK: block, GROUP: 8, WHOLE: true }.call(&x, &mut out, s, s, n);
    check_launch("log softmax", call.grid(16).num_warps(warps).compile(H100), 32, &[]);
    let LogSoftmaxConfig { block, num_warps } = LogSoftmaxConfig::choose(4096, 4);
    let warps = num_warps as u32;
    let call = LogSoftmaxGradientConsts { BLOCK: block, WHOLE: true }.call(&x, &y, &mut out, s, s, s, n);
    check_launch("its gradient", call.grid(16).num_warps(warps).compile(H100), 32, &[]);
    let call = SoftmaxGradientConsts { BLOCK: block, WHOLE: true }.call(&x, &y, &mut out, s, s, s, n);
    check_launch("that of softmax", call.grid(16).num_warps(warps).compile(H100), 32, &[]);
    let call = SoftmaxPiecesConsts { BLOCK: 1 << 14, GROUP: 8 }.call(&x, &mut out, 1 << 15, 1 << 15, 1 << 15);
    check_launch("softmax of long rows", call.grid(2).num_warps(16).compile(H100), 16, &[]);
    for classes in [1 << 14, 1 << 15] {
        let CrossEntropyConfig { block, num_warps } = CrossEntropyConfig::choose_gradient(classes, false);
        let (s, n, warps) = (classes as i64, classes as i32, num_warps as u32);
        let none = None::<&Buffer<f32>>;
        let call = CrossEntropyGradientConsts { BLOCK: block, GROUP: 8, WHOLE: classes <= block }.call(
            InPlace,
            &ids,
            Some(&few),
            none,
            Some(&mut few_out),
            &mut out,
            s,
            s,
            0,
            n,
            -100,
            0.0,
            0.0,
        );
        check_launch("cross entropy", call.grid(LEN / classes).num_warps(warps).compile(H100), 32, &[]);
        let CrossEntropyConfig { block, num_warps } = CrossEntropyConfig::choose(classes, 2);
        let warps = num_warps as u32;
        let call =
            CrossEntropyLossesConsts { BLOCK: block, GROUP: 8 }.call(&x, &ids, &mut few_out, s, n, -100, 0.1, 0.0);
        check_launch("its loss", call.grid(LEN / classes).num_warps(warps).compile(H100), 32, &[]);
    }
}

/// A row that two programs of a multiprocessor hold in 64 registers a thread, and that is read once, 16 bytes at a time.
#[test]
fn gradients_of_long_rows_are_read_once() {
    let Data { x, mut out, few, mut few_out, ids, .. } = data();
    let config = CrossEntropyConfig::choose_gradient(32_000, true);
    let CrossEntropyConfig { block, num_warps } = config;
    assert_eq!((block, num_warps), (32_768, 16));
    let mut check = |in_place: bool| {
        let consts = CrossEntropyGradientHeldConsts { PIECE: block / 4 };
        let (s, n, ignore) = (32_000, 32_000, -100);
        let (scale, none) = (Some(&few), None::<&Buffer<f32>>);
        let losses = Some(&mut few_out);
        let kernel = if in_place {
            let call = consts.call(InPlace, &ids, scale, none, losses, &mut out, s, s, 0, n, ignore, 0.0, 1e-4);
            call.grid(2).num_warps(num_warps as u32).max_registers(config.registers()).compile(H100)
        } else {
            let call = consts.call(&x, &ids, scale, scale, losses, &mut out, s, s, 0, n, ignore, 0.0, 1e-4);
            call.grid(2).num_warps(num_warps as u32).max_registers(config.registers()).compile(H100)
        };
        if let Some(code) = Code::of(kernel.as_ref().unwrap(), "sm_90a") {
            assert_eq!(code.count(&["LDG.E", ".128"]), 8, "{}", code.summary());
        }
        check_launch("cross entropy of a row that is held", kernel, 32, &[]);
    };
    // With label smoothing a thread spills 4 bytes, for the room of two programs.
    check(true);
    check(false);
}

#[test]
fn divergences_are_compiled_well() {
    let Data { x, y, mut out, few, mut few_out, .. } = data();
    let DivergenceConfig { block, num_warps } = DivergenceConfig::choose(1 << 15);
    let (s, n, warps) = (1 << 15, 1 << 15, num_warps as u32);
    let call = KlLossesConsts { BLOCK: block, LOGARITHMS: true }.call(&x, &y, &mut few_out, s, s, n);
    check_launch("kl", call.grid(2).num_warps(warps).compile(H100), 32, &[]);
    let DivergenceConfig { block, num_warps } = DivergenceConfig::choose_backward(1 << 15);
    let (per_row, warps) = (n / block as i32, num_warps as u32);
    let call = KlGradientConsts { BLOCK: block, LOGARITHMS: true }.call(&x, &few, &mut out, s, 0, s, per_row, n, 1.0);
    check_launch("its gradient", call.grid(2 * per_row as usize).num_warps(warps).compile(H100), 32, &[]);
    let (none, nothing) = (None::<&Buffer<f32>>, None::<&mut Buffer<f32>>);
    let DivergenceConfig { block, num_warps } = DivergenceConfig::choose_jsd(1 << 15);
    let warps = num_warps as u32;
    let call = JsdRowsConsts { BLOCK: block }.call(
        &x,
        &y,
        Some(&mut few_out),
        none,
        None::<&mut Buffer<bf16>>,
        s,
        s,
        0,
        0,
        n,
        0.5,
        1.0,
    );
    check_launch("jsd", call.grid(2).num_warps(warps).compile(H100), 24, &[]);
    let DivergenceConfig { block, num_warps } = DivergenceConfig::choose_jsd_backward(1 << 15);
    let call = JsdRowsConsts { BLOCK: block }.call(&x, &y, nothing, none, Some(&mut out), s, s, 0, s, n, 0.5, 1.0);
    check_launch("its gradient", call.grid(2).num_warps(num_warps as u32).compile(H100), 16, &[]);
}

#[test]
fn products_of_linear_cross_entropy_use_the_tensor_cores() {
    let (m, n, k, warps, stages) = BLOCKS;
    let request = ProductBlocksConsts { M: m, N: n, K: k }.request::<bf16, f32>();
    let compiled = request.num_warps(warps).num_stages(stages).compile(H100).unwrap();
    if let Some(code) = Code::of(&compiled, "sm_90a") {
        code.assert_clean("product of blocks");
        code.assert_fed("product of blocks");
        assert!(code.count(&["UTMASTG"]) == 0 && code.count(&["UTMAREDG"]) > 0, "{}", code.summary());
    }
    let Data { x, y, mut sums, .. } = data();
    for (a, b) in [((256, 1), (1, 256)), ((256, 1), (256, 1)), ((1, 256), (256, 1))] {
        let call = ProductConsts { M: 128, N: 128, K: 64 }
            .call(&x, &y, &mut sums, 256, 256, 256, a.0, a.1, b.0, b.1, 256)
            .grid((2, 2));
        let kernel = call.compile(H100).unwrap();
        assert!(kernel.ptx().contains("wgmma.mma_async"), "{}", kernel.report());
        check_launch("product", Ok(kernel), 8, &[]);
    }
}

#[test]
fn exponentials_of_linear_cross_entropy_are_compiled_well() {
    for (classes, again) in [(32_000, false), (32_001, false), (32_000, true)] {
        let Tile { sides: [m, n, k], warps, stages } = Tile::choose(true, classes);
        let is_whole = classes.is_multiple_of(n);
        let request = ExponentialsConsts { M: m, N: n, K: k, WHOLE: is_whole }.request::<bf16>(again, again);
        let compiled = request.num_warps(warps).num_stages(stages).compile(H100).unwrap();
        assert_eq!(compiled.report().contains("in ping-pong"), is_whole && !again, "{}", compiled.report());
        let Some(code) = Code::of(&compiled, "sm_90a") else { return };
        let what = format!("{classes} classes, {again}: {}", code.summary());
        // Registers of sums that wait for their turn to be stored.
        assert!(code.spills <= if is_whole && !again { 160 } else { 0 } && code.count(&["UTMASTG"]) > 0, "{what}");
        assert!(!code.log.contains("C75"), "{what}: {}", code.log);
    }
}

#[test]
fn embeddings_are_compiled_well() {
    let Data { x, mut out, mut sums, ids, .. } = data();
    let (s, n) = (4096i64, 4096i32);
    let ids = ids.slice(..16).unwrap();
    let EmbeddingConfig { rows, block, num_warps } = EmbeddingConfig::choose(4096);
    let call = GatherRowsConsts { ROWS: rows, BLOCK: block }.call(&x, ids, &mut out, s, s, 16, 16, n);
    let grid = (16, 4096usize.div_ceil(block));
    check_launch("gather", call.grid(grid).num_warps(num_warps as u32).compile(H100), 32, &[("ids", 8)]);
    let EmbeddingConfig { rows, block, num_warps } = EmbeddingConfig::choose_backward(4096);
    let call = ScatterRowsConsts { ROWS: rows, BLOCK: block }.call(&x, ids, &mut sums, s, s, 16, 16, n);
    let grid = (16, 4096usize.div_ceil(block));
    // The f32 that are added decide the layout: 4 elements a thread, which are 8 bytes of `dy`.
    check_launch("scatter", call.grid(grid).num_warps(num_warps as u32).compile(H100), 32, &[("ids", 8), ("dy", 8)]);
    let order = Device::cpu().zeros::<i32>(16).unwrap();
    let call = SumRunsConsts { BLOCK: 1024 }.call(&x, ids, &order, &mut sums, s, s, 16, 16, n);
    // The f32 sums decide the layout: 4 elements a thread.
    check_launch("runs", call.grid((16, 4)).num_warps(4).compile(H100), 32, &[("dy", 8)]);
}

#[test]
fn gradients_of_tables_are_compiled_well() {
    let Data { x, mut out, mut sums, ids, .. } = data();
    let (s, n, entries) = (2048i64, 2048i32, 32);
    let mut integers = Device::cpu().zeros::<i32>(1024).unwrap();
    let (mut keys, rest) = integers.split_at_mut(64).unwrap();
    let (mut bounds, places) = rest.split_at_mut(64).unwrap();
    let call = PrepareRunsConsts { BLOCK: 512 }.call(&ids, &mut keys, &mut bounds, 64, entries);
    check_launch("indices as keys", call.grid(1).num_warps(4).compile(H100), 32, &[]);
    let (mut starts, mut ends) = bounds.split_at_mut(32).unwrap();
    let call = FindRunsConsts { BLOCK: 512 }.call(&keys, &mut starts, &mut ends, 64, entries);
    // Neighbours of an element, and the places of rows.
    let narrow = [("keys", 4), ("starts", 4), ("ends", 4)];
    check_launch("runs", call.grid(1).num_warps(4).compile(H100), 32, &narrow);
    let EmbeddingConfig { rows, block, num_warps } = EmbeddingConfig::choose_sums(2048);
    let call = SumChunksConsts { ROWS: rows, BLOCK: block }
        .call(&x, &keys, &places, &mut sums, s, 32, n, 32)
        .grid((2, 2048usize.div_ceil(block)));
    check_launch("sums of chunks", call.num_warps(num_warps as u32).compile(H100), 32, &[]);
    let call = SumRowsConsts { OWN: 4, ROWS: rows, BLOCK: block }
        .call(&x, &places, &starts, &ends, &sums, &mut out, s, s, 32, 32, n, 32, 2)
        .grid((8, 2048usize.div_ceil(block)));
    // Positions of a run, but for what its chunks have.
    let narrow = [("places", 4), ("starts", 4), ("ends", 4)];
    check_launch("rows of a table", call.num_warps(num_warps as u32).compile(H100), 28, &narrow);
}

#[test]
fn group_norm_is_compiled_well() {
    let Data { x, mut out, sums, mut sums2, .. } = data();
    for (groups, channels, inner) in [(4, 16, 512), (4, 1, 4096), (16, 4, 256)] {
        let config = GroupNormConfig::choose(channels as usize, inner as usize, 2);
        let weight = x.slice(..groups as usize * channels as usize).unwrap();
        let call = GroupWholeConsts { CHANNELS: config.channels, BLOCK: config.block }
            .call(&x, weight, weight, &mut out, groups, channels, inner, 1e-5)
            .grid(LEN / (channels * inner) as usize)
            .num_warps(config.num_warps as u32);
        // A number for each channel.
        check_launch("a group in registers", call.compile(H100), 32, &[("weight", 2), ("bias", 2)]);
    }
    let GroupNormConfig { channels, block, num_warps } = GroupNormConfig::pieces(4, 1024);
    let call = GroupStatisticsConsts { CHANNELS: channels, BLOCK: block }.call(&x, &mut sums2, 4, 1024, 1e-5);
    check_launch("statistics", call.grid(16).num_warps(num_warps as u32).compile(H100), 32, &[]);
    let weight = x.slice(..16).unwrap();
    let call = GroupScaleConsts { BLOCK: 1024 }.call(&x, &sums, weight, weight, &mut out, 1, 16, 4, 1024);
    check_launch("scale", call.grid(64).num_warps(4).compile(H100), 32, &[]);
}

#[test]
fn gradients_of_group_norm_are_compiled_well() {
    let Data { x, y, mut out, mut out2, mut sums, mut sums2, .. } = data();
    // Long groups have 32 elements of each tensor in a thread, and as many programs fit at once as hold 512.
    for (groups, channels, inner, warps) in [(4, 16, 512, 16), (4, 1, 4096, 16), (16, 4, 256, 32), (4, 10, 1024, 16)] {
        let config = GroupNormConfig::choose_gradient(channels as usize, inner as usize, 2);
        let weight = x.slice(..groups as usize * channels as usize).unwrap();
        let call = GroupGradientWholeConsts { CHANNELS: config.channels, BLOCK: config.block }
            .call(&x, &y, weight, &mut out, Some(&mut sums), Some(&mut sums2), groups, channels, inner, 1e-5)
            .grid(LEN / (channels * inner) as usize)
            .num_warps(config.num_warps as u32);
        // Numbers for each channel.
        let narrow = [("weight", 2), ("weight_parts", 4), ("bias_parts", 4)];
        check_launch("gradient of a group in registers", call.compile(H100), warps, &narrow);
    }
    let (few, mut few_out) = (sums.slice(..64).unwrap().to_vec().unwrap(), Device::cpu().zeros::<f32>(64).unwrap());
    let few = Device::cpu().upload(&few).unwrap();
    let weight = x.slice(..8).unwrap();
    let GroupNormConfig { channels, block, num_warps } = GroupNormConfig::choose_gradient(4, 8192, 2);
    let (pieces, tiles) = (8192 / block as i32, 4 / channels as i32);
    let call = PieceMomentsConsts { CHANNELS: channels, BLOCK: block }
        .call(&x, &y, &mut sums, pieces, tiles, 4, 8192)
        .grid(LEN / (channels * block))
        .num_warps(num_warps as u32);
    check_launch("moments of pieces", call.compile(H100), 32, &[("moments", 4)]);
    let call = GroupMomentsConsts { CHANNELS: 4, PIECES: 2 }
        .call(&sums, weight, &mut few_out, Some(&mut sums2), None, 2, pieces, block as i32, 4, 8192, 1e-5)
        .grid(2)
        .num_warps(4);
    let narrow = [("moments", 4), ("weight", 2), ("weight_parts", 4)];
    check_launch("moments of groups", call.compile(H100), 32, &narrow);
    let call = GroupGradientConsts { CHANNELS: channels, BLOCK: block }
        .call(&x, &y, &few, weight, &mut out, pieces, tiles, 2, 4, 8192)
        .grid(LEN / (channels * block))
        .num_warps(num_warps as u32);
    check_launch("gradient of pieces", call.compile(H100), 32, &[("weight", 2)]);
    let (dweight, dbias) = (Some(&mut out), Some(&mut out2));
    let call = GroupWeightsConsts { M: 32, N: 32 }.call(Some(&sums), Some(&sums2), dweight, dbias, 128, 512);
    check_launch("sums of samples", call.grid(16).num_warps(4).compile(H100), 32, &[("dweight", 8), ("dbias", 8)]);
}
