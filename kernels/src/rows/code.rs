//! What the hardware would run: the code of the family's kernels for an H100, as launches of usual sizes run it.

use super::cross_entropy::{CrossEntropyGradientConsts, CrossEntropyLossesConsts};
use super::divergence::{JsdRowsConsts, KlGradientConsts, KlLossesConsts};
use super::dropout::DropElementsConsts;
use super::embedding::{GatherRowsConsts, ScatterRowsConsts, SumRunsConsts};
use super::gated::{GatedConsts, GatedGradientConsts};
use super::group_norm::{ChannelSumsConsts, GroupGradientConsts, GroupScaleConsts, GroupStatisticsConsts};
use super::linear_cross_entropy::ProductConsts;
use super::log_softmax::{LogSoftmaxGradientConsts, LogSoftmaxRowsConsts};
use super::norm::{NormPiecesConsts, NormWholeConsts};
use super::norm_backward::{ColumnSumsConsts, NormGradientConsts, NormGradientPiecesConsts};
use super::reduction::TotalConsts;
use super::rotary::RotateConsts;
use tilewright::launch::LaunchVariant;
use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

const H100: Target = Target::sm_90a();

macro_rules! look {
    ($name:expr, $kernel:expr) => {{
        let kernel = $kernel.compile(H100).unwrap();
        let assembled = assemble(kernel.ptx(), "sm_90a").unwrap();
        println!(
            "== {}: {} registers, {} spilled, {} instructions, {:?}",
            $name,
            assembled.registers,
            assembled.spills,
            assembled.instructions,
            matches!(kernel.variant(), LaunchVariant::Fast)
        );
        if !matches!(kernel.variant(), LaunchVariant::Fast) {
            println!("{}", kernel.variant());
        }
        for line in kernel.report().lines().skip(1) {
            if !line.contains("layout #")
                || line.contains("load ")
                || line.contains("store ")
                || line.contains("conversion")
                || line.contains("atomic")
            {
                println!("   {}", line);
            }
        }
    }};
}

#[test]
fn look() {
    let cpu = Device::cpu();
    let (rows, columns) = (16usize, 4096usize);
    let (m, n) = (rows as i32, columns as i32);
    let x = cpu.zeros::<bf16>(rows * columns).unwrap();
    let y = cpu.zeros::<bf16>(rows * columns).unwrap();
    let mut out = cpu.zeros::<bf16>(rows * columns).unwrap();
    let mut out2 = cpu.zeros::<bf16>(rows * columns).unwrap();
    let w = cpu.zeros::<bf16>(columns).unwrap();
    let mut sums = cpu.zeros::<f32>(rows * columns).unwrap();
    let mut sums2 = cpu.zeros::<f32>(rows * columns).unwrap();
    let s = columns as i64;
    look!(
        "norm_whole",
        NormWholeConsts { ROWS: 1, BLOCK: 4096, CENTRE: true }
            .call(&x, None, Some(&w), Some(&w), &mut out, s, 0, s, m, n, 1e-5)
            .grid(rows)
            .num_warps(8)
    );
    look!(
        "rms_whole",
        NormWholeConsts { ROWS: 1, BLOCK: 4096, CENTRE: false }
            .call(&x, Some(&mut out2), Some(&w), None, &mut out, s, s, s, m, n, 1e-5)
            .grid(rows)
            .num_warps(8)
    );
    look!(
        "norm_whole 128",
        NormWholeConsts { ROWS: 8, BLOCK: 128, CENTRE: false }
            .call(&x, None, Some(&w), None, &mut out, 128, 0, 128, 512, 128, 1e-5)
            .grid(64)
            .num_warps(2)
    );
    look!(
        "norm_pieces",
        NormPiecesConsts { BLOCK: 1024, CENTRE: true }
            .call(&x, None, Some(&w), Some(&w), &mut out, s, 0, s, n, 1e-5)
            .grid(rows)
            .num_warps(2)
    );
    look!(
        "norm_gradient",
        NormGradientConsts { ROWS: 1, BLOCK: 4096, CENTRE: true }
            .call(&x, &y, Some(&w), None, &mut out, Some(&mut sums), Some(&mut sums2), s, s, 0, s, m, n, 1e-5)
            .grid(rows)
            .num_warps(8)
    );
    look!(
        "rms_gradient",
        NormGradientConsts { ROWS: 1, BLOCK: 4096, CENTRE: false }
            .call(&x, &y, Some(&w), Some(&y), &mut out, Some(&mut sums), None, s, s, s, s, m, n, 1e-5)
            .grid(rows)
            .num_warps(8)
    );
    look!(
        "rms_gradient 8192",
        NormGradientConsts { ROWS: 1, BLOCK: 8192, CENTRE: true }
            .call(
                &x,
                &y,
                Some(&x),
                None,
                &mut out,
                Some(&mut sums),
                Some(&mut sums2),
                8192,
                8192,
                0,
                8192,
                8,
                8192,
                1e-5
            )
            .grid(8)
            .num_warps(16)
    );
    look!(
        "rms_gradient 128",
        NormGradientConsts { ROWS: 8, BLOCK: 128, CENTRE: false }
            .call(&x, &y, Some(&w), None, &mut out, Some(&mut sums), None, 128, 128, 0, 128, 512, 128, 1e-5)
            .grid(64)
            .num_warps(2)
    );
    look!(
        "norm_gradient_pieces",
        NormGradientPiecesConsts { BLOCK: 1024, CENTRE: false }
            .call(&x, &y, Some(&w), None, &mut out, Some(&mut sums), None, s, s, 0, s, m, n, 1e-5)
            .grid(rows)
            .num_warps(4)
    );
    look!("column_sums", ColumnSumsConsts { M: 32, N: 32 }.call(&sums, &mut out, m, n).grid(128).num_warps(4));
    look!(
        "gated",
        GatedConsts { BLOCK: 1024, KIND: 0 }.call(&x, &y, &mut out, 0, 0, 0, 64, 65536).grid(64).num_warps(4)
    );
    look!(
        "gated grad",
        GatedGradientConsts { BLOCK: 1024, KIND: 0 }
            .call(&x, &y, &x, &mut out, &mut out2, 0, 0, 0, 0, 0, 64, 65536)
            .grid(64)
            .num_warps(4)
    );
    look!(
        "gated grad in place tanh",
        GatedGradientConsts { BLOCK: 1024, KIND: 1 }
            .call(InPlace, InPlace, &x, &mut out, &mut out2, 0, 0, 0, 0, 0, 64, 65536)
            .grid(64)
            .num_warps(4)
    );
    let table = cpu.zeros::<f32>(64 * 64).unwrap();
    look!(
        "rotate",
        RotateConsts { TOKENS: 1, HEADS: 16, HALF: 64, INTERLEAVED: false, BACKWARD: false }
            .call(
                InPlace,
                &table,
                &table,
                None::<&Buffer<i32>>,
                &mut out,
                65536,
                2048,
                128,
                65536,
                2048,
                128,
                64,
                32,
                32,
                16,
                64
            )
            .grid((32, 1))
            .num_warps(4)
    );
    look!(
        "rotate interleaved",
        RotateConsts { TOKENS: 1, HEADS: 16, HALF: 64, INTERLEAVED: true, BACKWARD: false }
            .call(
                InPlace,
                &table,
                &table,
                None::<&Buffer<i32>>,
                &mut out,
                65536,
                2048,
                128,
                65536,
                2048,
                128,
                64,
                32,
                32,
                16,
                64
            )
            .grid((32, 1))
            .num_warps(4)
    );
    let targets = cpu.zeros::<i64>(rows).unwrap();
    let mut losses = cpu.zeros::<f32>(rows).unwrap();
    let scale = cpu.zeros::<f32>(1).unwrap();
    look!(
        "ce whole 16384",
        CrossEntropyGradientConsts { BLOCK: 16384, WHOLE: true }
            .call(
                InPlace,
                &targets,
                Some(&scale),
                None::<&Buffer<f32>>,
                Some(&mut losses),
                &mut out,
                16384,
                16384,
                0,
                16384,
                -100,
                0.0,
                0.0
            )
            .grid(4)
            .num_warps(16)
    );
    look!(
        "ce pieces",
        CrossEntropyGradientConsts { BLOCK: 8192, WHOLE: false }
            .call(
                InPlace,
                &targets,
                Some(&scale),
                None::<&Buffer<f32>>,
                Some(&mut losses),
                &mut out,
                32768,
                32768,
                0,
                32768,
                -100,
                0.0,
                0.0
            )
            .grid(2)
            .num_warps(16)
    );
    look!(
        "ce losses",
        CrossEntropyLossesConsts { BLOCK: 8192 }
            .call(&x, &targets, &mut losses, 32768, 32768, -100, 0.1, 0.0)
            .grid(2)
            .num_warps(16)
    );
    look!(
        "product",
        ProductConsts { M: 128, N: 128, K: 64, ADD: false }
            .call(&x, &y, &mut sums, 256, 256, 256, 256, 1, 1, 256, 256)
            .grid((2, 2))
    );
    look!(
        "product tn",
        ProductConsts { M: 128, N: 128, K: 64, ADD: true }
            .call(&x, &y, &mut sums, 256, 256, 256, 1, 256, 256, 1, 256)
            .grid((2, 2))
    );
    look!(
        "dropout",
        DropElementsConsts { BLOCK: 1024 }.call(&x, &mut out, 65536, 1, 1000u64, 2.0).grid(64).num_warps(4)
    );
    look!(
        "gather",
        GatherRowsConsts { ROWS: 1, BLOCK: 1024 }
            .call(&x, &targets, &mut out, s, s, 16, 16, n)
            .grid((16, 4))
            .num_warps(4)
    );
    look!(
        "scatter",
        ScatterRowsConsts { ROWS: 1, BLOCK: 1024 }
            .call(&x, &targets, &mut sums, s, s, 16, 16, n)
            .grid((16, 4))
            .num_warps(4)
    );
    let order = cpu.zeros::<i32>(rows).unwrap();
    look!(
        "runs",
        SumRunsConsts { BLOCK: 1024 }.call(&x, &targets, &order, &mut sums, s, s, 16, 16, n).grid((16, 4)).num_warps(4)
    );
    look!(
        "kl",
        KlLossesConsts { BLOCK: 4096, LOGARITHMS: true }.call(&x, &y, &mut losses, s, s, n).grid(rows).num_warps(16)
    );
    look!(
        "kl grad",
        KlGradientConsts { BLOCK: 4096, LOGARITHMS: true }
            .call(&x, &scale, &mut out, s, 0, s, 1, n, 1.0)
            .grid(rows)
            .num_warps(16)
    );
    look!(
        "jsd",
        JsdRowsConsts { BLOCK: 4096 }
            .call(&x, &y, Some(&mut losses), None::<&Buffer<f32>>, Some(&mut out), s, s, 0, s, n, 0.5, 1.0)
            .grid(rows)
            .num_warps(16)
    );
    look!(
        "log_softmax",
        LogSoftmaxRowsConsts { BLOCK: 4096, WHOLE: true }.call(&x, &mut out, s, s, n).grid(rows).num_warps(8)
    );
    look!(
        "log_softmax grad",
        LogSoftmaxGradientConsts { BLOCK: 4096, WHOLE: true }
            .call(&x, &y, &mut out, s, s, s, n)
            .grid(rows)
            .num_warps(8)
    );
    look!(
        "softmax grad",
        super::softmax::SoftmaxGradientConsts { BLOCK: 4096, WHOLE: true }
            .call(&x, &y, &mut out, s, s, s, n)
            .grid(rows)
            .num_warps(8)
    );
    look!(
        "group stat",
        GroupStatisticsConsts { CHANNELS: 4, BLOCK: 1024 }.call(&x, &mut sums, 4, 1024, 1e-5).grid(16).num_warps(16)
    );
    look!(
        "group scale",
        GroupScaleConsts { BLOCK: 1024 }
            .call(&x, &sums, Some(&w), Some(&w), &mut out, 1, 16, 4, 1024)
            .grid(64)
            .num_warps(4)
    );
    look!(
        "channel sums",
        ChannelSumsConsts { BLOCK: 1024 }.call(&x, &y, &sums, &mut sums2, 4, 1024).grid(64).num_warps(4)
    );
    look!(
        "group grad",
        GroupGradientConsts { CHANNELS: 4, BLOCK: 1024 }
            .call(&x, &y, &sums, &sums2, Some(&w), &mut out, 1, 16, 4, 1024)
            .grid(64)
            .num_warps(4)
    );
    look!(
        "total",
        TotalConsts { BLOCK: 4096 }.call(&sums, None::<&Buffer<f32>>, 1.0, &mut sums2, 65536).grid(1).num_warps(16)
    );
}
