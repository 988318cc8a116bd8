//! Turns of two groups of four warps: they cost no registers, and products stay asynchronous.

use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

/// Attention with a running maximum, fed by warps that do nothing else.
#[kernel(num_warps = 8, flush = true)]
pub fn attention<const D: usize, const N: usize, const CAUSAL: bool>(
    q: TensorDesc<f16, { [128, D] }>,
    k: TensorDesc<f16, { [N, D] }>,
    v: TensorDesc<f16, { [N, D] }>,
    out: TensorDescMut<f16, { [128, D] }>,
    len: i32,
    scale: f32,
) {
    let first = program_id(0) * 128;
    let row = first + arange(0, 128);
    let x = q.load([first, 0]);
    let mut most = full([128], -1e30f32);
    let mut sums = zeros::<f32>([128]);
    let mut acc = zeros::<f32>([128, D]);
    let end = if CAUSAL { minimum(first + 128, len) } else { len };
    #[warp_specialize]
    for start in (0..end).step_by(N) {
        let mut s = dot(x, k.load([start, 0]).trans()) * scale;
        if CAUSAL {
            if start + N > first {
                s = select(row[(.., None)] >= start + arange(0, N), s, -1e30f32);
            }
        }
        let now = maximum(most, max(s, axis = 1));
        let p = exp2(s - now[(.., None)]);
        let shrink = exp2(most - now);
        sums = sums * shrink + sum(p, axis = 1);
        acc = dot(p as f16, v.load([start, 0]), acc = acc * shrink[(.., None)]);
        most = now;
    }
    out.store([first, 0], (acc / sums[(.., None)]) as f16);
}

/// The same code without turns: what waits for them and what gives them are left out.
fn without_turns(ptx: &str) -> String {
    let is_turn = |line: &&str| {
        let line = line.trim();
        line.starts_with("bar.arrive")
            || (line.starts_with("bar.sync") && line.contains('%') && line.ends_with(", 256;"))
    };
    ptx.lines().filter(|line| !is_turn(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn turns_cost_no_registers() -> Result<(), Error> {
    macro_rules! look {
        ($([$D:literal, $N:literal, $CAUSAL:literal])*) => {$({
            let name = format!("{}x{}, causal {}", $N, $D, $CAUSAL);
            let consts = AttentionConsts { D: $D, N: $N, CAUSAL: $CAUSAL };
            let compiled = consts.compile(Target::sm_90a())?;
            let ptx = compiled.ptx();
            let report = compiled.report().to_string();
            assert!(ptx.contains("bar.arrive") && report.contains("two warp groups take turns"), "{name}: {report}");
            if let Some((with, without)) = assemble(ptx, "sm_90a").zip(assemble(&without_turns(ptx), "sm_90a")) {
                assert_eq!((with.spills, with.registers), (without.spills, without.registers), "{name}");
                assert!(!with.log.contains("C75"), "{name}: {}", with.log);
            }
        })*};
    }
    look!([128, 128, false] [128, 128, true] [128, 64, false] [128, 64, true] [64, 128, false] [64, 128, true] [64, 64, false]);
    Ok(())
}

/// One group of four warps that multiplies, and one that fetches: the registers that the latter gives away make room for a
/// second program, without spilling.
#[test]
fn a_second_program_has_room_beside_one_group() -> Result<(), Error> {
    let device = Device::cpu();
    let (factor, mut out) = (device.zeros::<f16>(128 * 64)?, device.zeros::<f16>(128 * 64)?);
    let factor = TensorDesc::new(&factor, [128, 64])?;
    let mut out = TensorDescMut::new(&mut out, [128, 64])?;
    let call = attention::<64, 64, true>(&factor, &factor, &factor, &mut out, 128, 1.0);
    let compiled = call.grid(1).num_warps(4).num_stages(2).compile(Target::sm_90a())?;
    let ptx = compiled.ptx();
    for wanted in ["setmaxnreg.inc.sync.aligned.u32 216;", "setmaxnreg.dec.sync.aligned.u32 40;", ".minnctapersm 2"] {
        assert!(ptx.contains(wanted), "{wanted}: {}\n{ptx}", compiled.report());
    }
    if let Some(assembled) = assemble(ptx, "sm_90a") {
        assert_eq!((assembled.registers, assembled.spills), (128, 0), "{}", assembled.log);
        assert!(!assembled.log.contains("C75"), "{}", assembled.log);
    }
    Ok(())
}
