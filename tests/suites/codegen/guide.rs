//! What ptxas makes of the last rungs of the guide to attention, which fill registers and shared memory.

use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

#[path = "../../../src/guide/attention/causal.rs"]
mod causal;
#[path = "../../../src/guide/attention/divided.rs"]
mod divided;
#[path = "../../../src/guide/attention/edges.rs"]
mod edges;
#[path = "../../../src/guide/attention/skewed.rs"]
mod skewed;

use causal::CausalConsts;
use divided::DividedConsts;
use edges::EdgesConsts;
use skewed::SkewedConsts;

macro_rules! rung {
    ($consts:ident, $keys:literal, $stages:literal, $causal:literal) => {{
        let (device, len) = (Device::cpu(), 512usize);
        let (x, mut out) = (device.zeros::<f16>(len * 128)?, device.zeros::<f16>(len * 128)?);
        let x = TensorDesc::new(&x, [1, len, 128])?;
        let mut out = TensorDescMut::new(&mut out, [1, len, 128])?;
        let consts = $consts { BM: 128, BN: $keys, D: 128, CAUSAL: $causal };
        let call = consts.call(&x, &x, &x, &mut out, len as i32, 0.125).grid((len / 128, 1));
        call.num_warps(8).num_stages($stages).compile(Target::sm_90a())?
    }};
}

fn rungs() -> Result<[CompiledKernel; 4], Error> {
    Ok([
        rung!(EdgesConsts, 64, 3, true),
        rung!(DividedConsts, 128, 2, true),
        rung!(SkewedConsts, 128, 2, true),
        rung!(CausalConsts, 128, 2, true),
    ])
}

#[test]
fn the_last_rungs_of_attention_keep_products_asynchronous_and_spill_nothing() {
    for compiled in rungs().unwrap_or_else(|error| panic!("{error}")) {
        let Some(assembled) = assemble(compiled.ptx(), "sm_90a") else { return };
        assert_eq!(assembled.spills, 0, "{}: {}", compiled.report(), assembled.log);
        assert!(!assembled.log.contains("C75"), "{}: {}", compiled.report(), assembled.log);
    }
}
