//! What a kernel is compiled for, as constexprs.

use tilewright::Target;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// The warps and the capability, by as many lanes as there are threads.
#[kernel]
fn threads<const ROWS: usize>(out: PtrMut<i32>) {
    static_assert!(num_warps() <= 16, "rows of up to 512");
    let lanes = arange(0, 32 * num_warps());
    for row in 0..ROWS {
        store(out + row * 512 + lanes, full([32 * num_warps()], capability()));
    }
    if capability() >= 90 && num_warps() > 1 {
        store(out + ROWS * 512, 1);
    }
}

#[kernel(num_warps = 2)]
fn two_warps(out: PtrMut<i32>) {
    let tile = arange(0, 8192);
    store(out, num_warps() + sum(tile) * 0);
}

fn capability(device: &Device) -> i32 {
    device.target().map_or(0, |target| target.capability() as i32)
}

#[test]
fn a_kernel_knows_its_warps_and_its_target() {
    check(|device| {
        for warps in [None, Some(1), Some(8), None, Some(16), Some(4)] {
            let mut out = device.full(2 * 512 + 1, -1)?;
            let call = threads::<2>(&mut out).grid(1);
            match warps {
                Some(warps) => call.num_warps(warps).launch(device)?,
                None => call.launch(device)?,
            }
            let (out, threads) = (out.to_vec()?, 32 * warps.unwrap_or(4) as usize);
            for row in out.chunks_exact(512) {
                assert!(row[..threads].iter().all(|&value| value == capability(device)), "{row:?}");
                assert!(row[threads..].iter().all(|&value| value == -1), "{row:?}");
            }
            let modern = capability(device) >= 90 && threads > 32;
            assert_eq!(out[1024], if modern { 1 } else { -1 });
        }
        Ok(())
    });
}

#[test]
fn the_attribute_and_the_launch_say_how_many_warps_there_are() {
    check(|device| {
        let mut out = device.zeros(1)?;
        two_warps(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [2]);
        // Without asking, a tile of 8192 elements would have 16 warps.
        two_warps(&mut out).grid(1).num_warps(8).launch(device)?;
        assert_eq!(out.to_vec()?, [8]);
        Ok(())
    });
}

#[test]
fn assertions_on_warps_are_errors_of_the_launch() {
    check(|device| {
        let mut out = device.zeros(2 * 512 + 1)?;
        let launched = threads::<2>(&mut out).grid(1).num_warps(32).launch(device);
        let text = launched.map_or_else(|error| error.to_string(), |()| String::new());
        assert!(text.contains("rows of up to 512") && text.contains("num_warps() = 32"), "{text}");
        Ok(())
    });
}

#[test]
fn code_is_made_for_the_target_and_the_warps() {
    for (target, capability) in [(Target::sm_80(), 80), (Target::sm_89(), 89), (Target::sm_90a(), 90)] {
        let kernel = ThreadsConsts { ROWS: 1 }.compile(target).unwrap_or_else(|error| panic!("{error}"));
        let bound = kernel.bound_ir();
        assert!(bound.contains(&format!("i32 = const {capability}")) && bound.contains("i32[128]"), "{bound}");
        assert_eq!(bound.contains("const 512"), capability >= 90, "what is behind the condition: {bound}");
    }
}
