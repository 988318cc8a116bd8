//! What the kernels become for a GPU, without one.

use super::backward::BackwardConfig;
use super::backward::fused::kernels::{AttentionFusedBackwardConsts, AttentionQueriesScaleConsts};
use super::backward::kernels::{AttentionDeltasConsts, AttentionKeysBackwardConsts, AttentionQueriesBackwardConsts};
use super::forward::{AttentionConsts, ForwardConfig};
use super::fp8::{AttentionFp8Consts, parts};
use super::mla::{AttentionMlaAssumed, AttentionMlaConsts};
use super::serving::kernels::AttentionCachedConsts;
use super::serving::{DecodeConfig, LANES, order_of_lanes};
use crate::code::{Code, H100, check_launch};
use tilewright::launch::AssumedScalar::One;
use tilewright::launch::{CompiledKernel, Target};
use tilewright::prelude::*;
use tilewright_tests::factors::check_listing;

/// `None` where ptxas or nvdisasm is missing.
pub(super) fn code(name: &str, compiled: Result<CompiledKernel, Error>, architecture: &str) -> Option<Code> {
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    let code = Code::of(&compiled, architecture)?;
    // Products multiply what the PTX says.
    check_listing(compiled.ptx(), &code.sass).unwrap_or_else(|error| panic!("{name}: {error}"));
    let notes: Vec<&str> = code.log.lines().filter(|line| line.contains("C75")).collect();
    let Code { registers, spills, loops, .. } = &code;
    println!("{name} {architecture}: {registers} registers, {spills} bytes spilled, {loops:?} {notes:?}");
    for line in code.report.lines().filter(|line| line.contains("shared memory,") || line.contains(": loop ")) {
        println!("  {}", line.trim());
    }
    Some(code)
}

const HOPPER: Option<(u32, u32)> = Some((9, 0));

/// A bias, packed sequences, a soft cap, a window that begins.
const OPTIONS: [[bool; 4]; 3] = [[true, false, false, false], [false, false, true, false], [false, true, false, true]];

/// The forward kernel of f16 as Hopper runs it, with or without logarithms of sums.
fn forward(d: usize, dv: usize, [bias, packed, cap, window]: [bool; 4], lse: bool) -> Option<Code> {
    let config = ForwardConfig::rule(HOPPER, 16, d.max(dv), !bias && !cap, !packed && !window);
    let compiled = AttentionConsts { BM: config.block_q, BN: config.block_k, D: d, DV: dv, LOOP: config.programs > 0 }
        .request::<f16>(bias, packed, packed, lse, cap, window)
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .compile(Target::sm_90a());
    let name = format!("forward {d} {dv}, bias {bias}, packed {packed}, lse {lse}, cap {cap}, window {window}");
    code(&name, compiled, "sm_90a")
}

#[test]
fn forward_is_fed_and_spills_nothing() {
    for (d, dv, lse) in [(64, 64, true), (128, 128, true), (128, 128, false), (256, 256, true)] {
        let Some(code) = forward(d, dv, [false; 4], lse) else { return };
        code.assert_clean("plain");
        code.assert_fed("plain");
        assert!(code.loops.iter().all(|trip| trip.stores == 0), "{:?}", code.loops);
    }
    for options in OPTIONS {
        let Some(code) = forward(128, 128, options, true) else { return };
        code.assert_clean("with options");
        code.assert_fed("with options");
    }
}

/// Both kernels of the backward pass of f16 as Hopper runs them.
fn backward(d: usize, [bias, packed, cap, window]: [bool; 4]) -> Option<[Code; 2]> {
    let config = BackwardConfig::rule(HOPPER, 16, d, [!(bias || cap || packed && window), false]);
    let keys = AttentionKeysBackwardConsts { BM: config.keys_block_q, BN: config.keys_block_k, D: d, DV: d };
    let keys = keys
        .request::<f16>(bias, packed, packed, true, false, cap, window)
        .num_warps(8)
        .num_stages(2)
        .compile(Target::sm_90a());
    let queries =
        AttentionQueriesBackwardConsts { BM: config.queries_block_q, BN: config.queries_block_k, D: d, DV: d };
    let queries = queries.request::<f16>(bias, packed, packed, cap, window).num_warps(8).num_stages(2);
    let name = format!("{d}, bias {bias}, packed {packed}, cap {cap}, window {window}");
    Some([
        code(&format!("keys {name}"), keys, "sm_90a")?,
        code(&format!("queries {name}"), queries.compile(Target::sm_90a()), "sm_90a")?,
    ])
}

#[test]
fn backward_is_fed_and_spills_nothing() {
    let plain = [64, 128].map(|d| (d, [false; 4]));
    for (d, options) in plain.into_iter().chain([(128, OPTIONS[2])]) {
        let Some(codes) = backward(d, options) else { return };
        for code in codes {
            assert_eq!(code.spills, 0, "backward spills {} bytes", code.spills);
            assert!(!code.log.contains("C75"), "backward: {}", code.log);
            assert!(code.loops.iter().all(|trip| trip.local == 0), "backward spills in loops: {:?}", code.loops);
            code.assert_fed("backward");
        }
    }
}

/// What is read before the kernels of gradients run: in accesses of 16 bytes, also where zeros of f32 are written beside it.
#[test]
fn deltas_are_computed_in_wide_accesses() {
    let (cpu, [queries, heads, d]) = (Device::cpu(), [64, 16, 128]);
    let (out, lse) = (cpu.zeros::<bf16>(queries * heads * d).unwrap(), cpu.zeros::<f32>(queries * heads).unwrap());
    let numbers = |len| cpu.zeros::<f32>(len).unwrap();
    let (mut deltas, mut logs, mut sums) = (numbers(queries * heads), numbers(queries * heads), numbers(out.len()));
    let (n, columns) = (queries as i32, d as i32);
    let [head, row, all, numbers_of_head] = [d, heads * d, queries * heads * d, queries].map(|stride| stride as i64);
    for sums in [None, Some(&mut sums)] {
        let none = None::<&Buffer<f32>>;
        let call = AttentionDeltasConsts { BM: 32, D: d, DV: d }
            .call(
                &out,
                &out,
                &lse,
                none,
                None::<&Buffer<i32>>,
                &mut deltas,
                &mut logs,
                sums,
                n,
                0,
                0,
                n,
                columns,
                columns,
                all,
                head,
                row,
                all,
                head,
                row,
                0,
                numbers_of_head,
                0,
                0,
            )
            .grid((queries / 32, heads, 1))
            .num_warps(4);
        let narrow = [("lse", 4), ("deltas", 4), ("logs", 4)];
        check_launch("deltas", call.compile(H100), 32, &narrow);
    }
}

/// The kernel over caches of f16 with heads of 128, as Hopper runs it: by tensor copies or not, in pages of a size.
fn cached(rows: usize, fed: bool, page: Option<usize>) -> Option<Code> {
    let warps = if rows > 32 { 8 } else { 4 };
    let compiled = AttentionCachedConsts { BM: rows, BN: 64, D: 128, DV: 128, PAGE: page.unwrap_or(1), RUN: 64 }
        .request::<f16, f16, f32>(fed, fed, page.is_some(), true, rows > 32, false, false, true, false)
        .num_warps(warps)
        .num_stages(if rows > 32 { 2 } else { 3 })
        .compile(Target::sm_90a());
    code(&format!("{rows} rows over pages of {page:?}, fed {fed}"), compiled, "sm_90a")
}

#[test]
fn caches_are_read_in_wide_accesses_and_spill_nothing() {
    for (rows, page) in [(16, None), (16, Some(16)), (16, Some(64)), (128, Some(16))] {
        let Some(code) = cached(rows, false, page) else { return };
        code.assert_clean("cached");
        let narrow = |line: &&str| line.contains("`k` is accessed by") || line.contains("`v` is accessed by");
        assert_eq!(code.report.lines().find(narrow), None, "{rows} rows, pages of {page:?}");
        // Where a block lies is known an iteration ahead, wherever that comes from.
        assert!(
            code.report.contains("`k` by cp.async, `v` by cp.async"),
            "{rows} rows, pages of {page:?}: {}",
            code.report
        );
    }
    let Some(code) = cached(128, true, Some(64)) else { return };
    code.assert_clean("pages by tensor copies");
    assert!(code.report.contains("loop fed by warps of their own"), "{}", code.report);
}

/// The kernel of f16 over pages of 8-bit floats as Hopper runs it, with keys in this order, and the configuration it has.
fn cached_8_bits(rows: usize, d: usize, page: usize, run: usize) -> Option<(Code, [usize; 3])> {
    let config = DecodeConfig::blocks(HOPPER, order_of_lanes(d) == LANES, d, rows);
    let [block_k, warps, stages] = config;
    let compiled = AttentionCachedConsts { BM: rows, BN: block_k, D: d, DV: d, PAGE: page, RUN: run }
        .request::<f16, F8E4M3, f32>(false, false, true, true, false, true, true, true, false)
        .num_warps(warps as u32)
        .num_stages(stages as u32)
        .compile(Target::sm_90a());
    Some((code(&format!("{rows} rows of {d} over 8-bit pages of {page}, order {run}"), compiled, "sm_90a")?, config))
}

#[test]
fn caches_of_eight_bits_are_multiplied_by_the_threads_that_read_them() {
    let shapes = [(16, 128, 16), (16, 128, 64), (16, 64, 16), (16, 256, 16), (32, 128, 16), (32, 64, 64)];
    for (rows, d, page) in shapes {
        let Some((code, [block_k, warps, stages])) = cached_8_bits(rows, d, page, LANES) else { return };
        code.assert_clean("8 bits");
        let copied = format!("{stages} stages of {} bytes: `k` by cp.async, `v` by cp.async", 2 * block_k * d);
        assert!(code.report.contains(&copied), "{}", code.report);
        // In the order of memory keys are stored to shared memory again, as f16, 16 bytes at once.
        let Some((plain, _)) = cached_8_bits(rows, d, page, 16) else { return };
        let keys = 2 * block_k * d / (warps * 32 * 16);
        let stores = |code: &Code| code.loops.iter().map(|trip| trip.stores).sum::<usize>();
        assert!(stores(&code) + keys <= stores(&plain), "{:?} and {:?}", code.loops, plain.loops);
    }
    // Heads that lanes do not divide.
    let Some((code, _)) = cached_8_bits(16, 32, 16, order_of_lanes(32)) else { return };
    code.assert_clean("8 bits, small heads");
}

#[test]
fn latent_attention_is_fed_and_spills_nothing() {
    // Results of parts are f32. Those of one part come from launches of which it is known, and mostly one query.
    let one = AttentionMlaAssumed { parts: One, queries: One, lse_head: One, ..Default::default() };
    let cases = [(false, 64, true), (false, 64, false), (true, 64, false), (false, 32, true), (false, 16, true)];
    for (cap, block_k, parts) in cases {
        let consts = AttentionMlaConsts { BM: 64, BN: block_k, H: 256, P: 64 };
        let request = match parts {
            true => consts.request::<f16, f32>(true, cap),
            false => consts.request::<f16, f16>(true, cap).assume(one),
        };
        // Of 64 keys four warps compute scores, and twice four sum up values.
        let shares = block_k == 64;
        let request = request.num_warps(if shares { 4 } else { 8 }).num_stages(2);
        let compiled = request.compile(Target::sm_90a());
        let name = format!("latent, {block_k} keys, cap {cap}, parts {parts}");
        let Some(code) = code(&name, compiled, "sm_90a") else { return };
        code.assert_clean("latent");
        code.assert_fed("latent");
        assert_eq!(code.report.contains("scores by four warps and sums by 2 times four"), shares, "{}", code.report);
        // Queries are copied to where the products read them, and results leave by vectors: those of the threads that have them
        // where no memory is left to pass them on.
        assert_eq!(code.count(&["LDS", "U16"]), 0, "{}", code.summary());
        let stored = code.report.lines().find(|line| line.contains("store `out`")).unwrap_or_default();
        let vectors = if shares { "(2 elements each)" } else { " x 16 bytes per thread" };
        assert!(stored.contains(vectors), "{stored}");
        // Blocks without a far larger score take one vote, in which nothing passes between threads, and no sums are multiplied.
        assert!(code.count(&["BAR.RED"]) > 0, "{}", code.summary());
        // One block is fetched while another is multiplied.
        assert!(code.report.contains(&format!("through 2 slots of {} bytes", 2 * 576 * block_k)), "{}", code.report);
    }
    // The smallest latent vectors.
    let least = AttentionMlaConsts { BM: 64, BN: 64, H: 8, P: 16 }.request::<f16, f16>(true, false);
    let Some(code) = code("latent, 16 elements", least.num_warps(8).num_stages(2).compile(Target::sm_90a()), "sm_90a")
    else {
        return;
    };
    code.assert_clean("latent, 16 elements");
}

/// The kernel of all gradients of f16 in these blocks, as Hopper runs it, of rotated queries and keys or not: those
/// into one tensor.
fn fused(d: usize, [block_q, block_k, warps, stages]: [usize; 4], options: [bool; 4], rotated: bool) -> Option<Code> {
    let [bias, packed, cap, window] = options;
    let compiled = AttentionFusedBackwardConsts { BM: block_q, BN: block_k, D: d, DV: d }
        .request::<f16, f32>(bias, packed, packed, rotated, rotated, !rotated, rotated, cap, window)
        .num_warps(warps as u32)
        .num_stages(stages as u32)
        .compile(Target::sm_90a());
    let name = format!("fused {d} in {block_q} x {block_k}, {warps} warps, options {options:?}, rotated {rotated}");
    code(&name, compiled, "sm_90a")
}

#[test]
fn gradients_in_one_kernel_are_fed_and_spill_nothing() {
    let blocks = [(64, [64, 128, 8, 2]), (64, [64, 64, 4, 2]), (128, [64, 128, 8, 2])];
    for (d, blocks, rotated) in blocks.into_iter().flat_map(|(d, blocks)| [(d, blocks, false), (d, blocks, true)]) {
        let Some(code) = fused(d, blocks, [false; 4], rotated) else { return };
        code.assert_clean("fused");
        code.assert_fed("fused");
        // Sums leave as blocks, and vectors come with the factors.
        let by_threads = |line: &str| line.contains("atomic `sums`") && line.contains("per thread");
        assert!(!code.report.lines().any(by_threads), "{}", code.report);
        let bytes = 2 * block_bytes(d, blocks) + 2 * 4 * blocks[0];
        assert!(code.report.contains(&format!("through 2 slots of {bytes} bytes")), "{}", code.report);
    }
    // Those of packed sequences too: their places are multiples of four.
    for (d, options) in [(64, [false, true, false, false]), (128, [false, true, false, false]), (128, OPTIONS[2])] {
        let config = BackwardConfig::rule(HOPPER, 16, d, [true; 2]);
        let BackwardConfig { keys_block_q, keys_block_k, num_warps, num_stages, .. } = config;
        let blocks = [keys_block_q, keys_block_k, num_warps, num_stages];
        let Some(code) = fused(d, blocks, options, false) else { return };
        code.assert_fed("packed");
        let bytes = 2 * block_bytes(d, blocks) + 2 * 4 * keys_block_q;
        assert!(code.report.contains(&format!("through 2 slots of {bytes} bytes")), "{}", code.report);
        // What is spilled, such as where sequences begin, is so outside of the loop.
        assert!(code.loops.iter().all(|trip| trip.local == 0), "{:?}", code.loops);
        assert!(!code.log.contains("C75"), "{}", code.log);
    }
}

/// Bytes of a block of queries of f16.
fn block_bytes(d: usize, [block_q, ..]: [usize; 4]) -> usize {
    2 * block_q * d
}

/// The forward kernel of f8e4m3 in these blocks, as Hopper runs it.
fn forward_fp8(d: usize, [block_q, block_k, warps, stages]: [usize; 4], several: bool) -> Option<Code> {
    let (part, two) = parts(d);
    let compiled = AttentionFp8Consts { BM: block_q, BN: block_k, D: d, DV: part, TWO: two, LOOP: several }
        .request::<F8E4M3, f16>(true, true, true, true, false, false)
        .num_warps(warps as u32)
        .num_stages(stages as u32)
        .compile(Target::sm_90a());
    code(&format!("forward fp8 {d} {block_q}x{block_k}, {warps} warps, {stages} stages"), compiled, "sm_90a")
}

#[test]
fn forward_of_bytes_is_fed_and_spills_nothing() {
    for d in [64, 128, 256] {
        let config = ForwardConfig::rule_fp8(HOPPER, d, true);
        let blocks = [config.block_q, config.block_k, config.num_warps, config.num_stages];
        let Some(code) = forward_fp8(d, blocks, config.programs > 0) else { return };
        code.assert_clean("bytes");
        code.assert_fed("bytes");
        // Weights stay in their threads, and are rounded two at a time.
        assert!(!code.report.contains("shuffles"), "{}", code.report);
        let weights = config.block_q * config.block_k / (config.num_warps * 32);
        let rounded = code.count(&["F2FP", "E4M3"]);
        assert_eq!(rounded, weights / 2, "{}", code.summary());
    }
}

/// The kernel behind that of all gradients: it rotates those of queries in wide accesses, and nothing is spilled.
#[test]
fn gradients_of_queries_are_rotated_in_wide_accesses() {
    for d in [64, 128] {
        let consts = AttentionQueriesScaleConsts { BM: 2048 / d, D: d };
        let compiled = consts.request::<f16, f32>(true, true).num_warps(4).compile(Target::sm_90a());
        let Some(code) = code(&format!("scale {d}, rotated"), compiled, "sm_90a") else { return };
        code.assert_clean("scale");
        // Two halves of sums and two tables of 8 elements each, and the halves of what is stored.
        assert_eq!((code.count(&["LDG", "128"]), code.count(&["STG", "128"])), (8, 2), "{}", code.summary());
    }
}
