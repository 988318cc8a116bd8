use super::kernels::*;
use crate::products::code::Code;
use tilewright::launch::AssumedScalar;
use tilewright::prelude::*;

fn show(what: &str, c: tilewright::Result<tilewright::launch::CompiledKernel>) {
    let c = match c {
        Ok(c) => c,
        Err(e) => {
            println!("{what}: {e}");
            return;
        }
    };
    if let Some(code) = Code::of(&c) {
        println!("{what}: {}", code.summary());
        if std::env::var("REPORT").is_ok() {
            println!("{}", c.report());
        }
        if let Ok(dir) = std::env::var("SASS") {
            std::fs::write(format!("{dir}/{}.sass", what.replace(' ', "_")), &code.sass).unwrap();
        }
    }
}

#[test]
fn look() {
    for (b, s, w) in [
        ([64, 128, 64], 4, 4),
        ([128, 128, 64], 4, 8),
        ([16, 64, 64], 4, 4),
        ([16, 128, 64], 4, 4),
        ([16, 128, 128], 3, 4),
        ([64, 64, 64], 4, 4),
    ] {
        for awq in [false, true] {
            show(
                &format!("int4 awq {awq} {b:?} s{s} w{w}"),
                Int4ProductConsts { BM: b[0], BN: b[1], BK: b[2], TALL: 8, AWQ: awq }
                    .request::<f16, f16>(true)
                    .assume(Int4ProductAssumed { splits: AssumedScalar::One, ..Default::default() })
                    .num_warps(w)
                    .num_stages(s)
                    .compile(Target::sm_90a()),
            );
        }
        show(
            &format!("int8 {b:?} s{s} w{w}"),
            Int8ProductConsts { BM: b[0], BN: b[1], BK: b[2], TALL: 8 }
                .request::<bf16, bf16>()
                .assume(Int8ProductAssumed {
                    splits: AssumedScalar::One,
                    weights_column: AssumedScalar::One,
                    ..Default::default()
                })
                .num_warps(w)
                .num_stages(s)
                .compile(Target::sm_90a()),
        );
        show(
            &format!("int8 down {b:?} s{s} w{w}"),
            Int8ProductConsts { BM: b[0], BN: b[1], BK: b[2], TALL: 8 }
                .request::<bf16, bf16>()
                .assume(Int8ProductAssumed {
                    splits: AssumedScalar::One,
                    weights_row: AssumedScalar::One,
                    ..Default::default()
                })
                .num_warps(w)
                .num_stages(s)
                .compile(Target::sm_90a()),
        );
        show(
            &format!("nf4 {b:?} s{s} w{w}"),
            Nf4ProductConsts { BM: b[0], BN: b[1], BK: b[2], TALL: 8 }
                .request::<bf16, bf16>()
                .assume(Nf4ProductAssumed { splits: AssumedScalar::One, ..Default::default() })
                .num_warps(w)
                .num_stages(s)
                .compile(Target::sm_90a()),
        );
    }
}
