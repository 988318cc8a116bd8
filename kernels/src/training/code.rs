//! What the hardware would run: the code of the family's kernels for an H100.

use super::adamw::AdamwStepConsts;
use super::clip::{ScaleElementsConsts, SquareSumsConsts};
use super::sgd::SgdStepConsts;
use crate::code::{H100, check_launch};
use tilewright::prelude::*;

const LEN: usize = 1 << 16;

#[test]
fn optimisers_are_compiled_well() {
    let cpu = Device::cpu();
    let (mut x, g) = (cpu.zeros::<bf16>(LEN).unwrap(), cpu.zeros::<bf16>(LEN).unwrap());
    let numbers = || cpu.zeros::<f32>(LEN).unwrap();
    let (mut means, mut squares, mut master, scale) = (numbers(), numbers(), numbers(), cpu.zeros::<f32>(64).unwrap());
    let n = LEN as i64;
    let call = AdamwStepConsts { BLOCK: 1024 }
        .call(
            &mut x,
            &g,
            &mut means,
            &mut squares,
            Some(&mut master),
            Some(&scale),
            Some(&scale),
            n,
            1e-3,
            0.9,
            0.999,
            0.1,
            0.001,
            1e-8,
            0.01,
            10.0,
            30.0,
        )
        .grid(LEN / 1024)
        .num_warps(4);
    // f32 by 16 bytes are bf16 by 8.
    check_launch("adamw", call.compile(H100), 32, &[("parameters", 8), ("gradients", 8)]);
    let (mut means, mut squares) = (cpu.zeros::<bf16>(LEN).unwrap(), cpu.zeros::<bf16>(LEN).unwrap());
    let none = || None::<&Buffer<f32>>;
    let call = AdamwStepConsts { BLOCK: 1024 }
        .call(
            &mut x,
            &g,
            &mut means,
            &mut squares,
            None::<&mut Buffer<f32>>,
            none(),
            none(),
            n,
            1e-3,
            0.9,
            0.999,
            0.1,
            0.001,
            1e-8,
            0.01,
            10.0,
            30.0,
        )
        .grid(LEN / 1024)
        .num_warps(4);
    check_launch("adamw of 16 bits", call.compile(H100), 48, &[]);
    let mut means = numbers();
    let call = SgdStepConsts { BLOCK: 1024 }.call(&mut x, &g, Some(&mut means), Some(&scale), n, 0.1, 0.9, 0.0);
    check_launch("sgd", call.grid(LEN / 1024).num_warps(4).compile(H100), 32, &[("parameters", 8), ("gradients", 8)]);
}

#[test]
fn norms_of_gradients_are_compiled_well() {
    let cpu = Device::cpu();
    let (mut x, mut sums) = (cpu.zeros::<bf16>(LEN).unwrap(), cpu.zeros::<f32>(64).unwrap());
    let n = LEN as i64;
    let call = SquareSumsConsts { BLOCK: 4096 }.call(&x, &mut sums, n).grid(16).num_warps(8);
    check_launch("sums of squares", call.compile(H100), 32, &[]);
    let call = ScaleElementsConsts { BLOCK: 1024 }.call(&mut x, &sums, n).grid(64).num_warps(4);
    check_launch("scale", call.compile(H100), 32, &[]);
}
