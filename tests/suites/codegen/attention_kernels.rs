//! Attention in several sizes, as its code is looked at.

use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;
use tilewright_tests::attention::*;

/// Compiles kernels of a family: the kernel, `D`, `M`, `N` and, where it has one, whether it is causal; warps and stages.
macro_rules! samples {
    ($to:ident, $family:ident, $($kernel:ident($d:literal, $m:literal, $n:literal $(, $causal:literal)?) $warps:literal $stages:literal;)*) => {$({
        let (device, len) = (Device::cpu(), 512usize);
        let x = device.zeros::<f16>(len * $d)?;
        let (of_rows, of_keys) = (TensorDesc::new(&x, [len, $d])?, TensorDesc::new(&x, [len, $d])?);
        #[allow(unused_variables, reason = "nor inputs beside the factors")]
        let numbers = device.zeros::<f32>(len)?;
        #[allow(unused_mut, unused_variables, reason = "not every family has two outputs")]
        let (mut out, mut other) = (device.zeros::<f32>(len * $d)?, device.zeros::<f32>(len * $d)?);
        let call = $kernel::<f16, $d, $m, $n $(, $causal)?>;
        let call = $family!(call, of_rows, of_keys, numbers, out, other, len as i32);
        let compiled = call.grid(len / $m).num_warps($warps).num_stages($stages).compile(Target::sm_90a())?;
        let name = concat!(stringify!($kernel), " ", $d, "/", $m, "/", $n, $(" causal ", $causal,)? " warps=", $warps, " stages=", $stages);
        $to.push((name, compiled));
    })*};
}
macro_rules! forward {
    ($kernel:ident, $q:ident, $k:ident, $numbers:ident, $out:ident, $other:ident, $len:expr) => {
        $kernel(&$q, &$k, &$k, &mut $out, &mut $other, $len, 0.125)
    };
}
macro_rules! keys {
    ($kernel:ident, $q:ident, $k:ident, $numbers:ident, $out:ident, $other:ident, $len:expr) => {
        $kernel(&$q, &$k, &$k, &$q, &$numbers, &$numbers, &mut $out, &mut $other, $len, 0.125)
    };
}
macro_rules! rows {
    ($kernel:ident, $q:ident, $k:ident, $numbers:ident, $out:ident, $other:ident, $len:expr) => {
        $kernel(&$q, &$k, &$k, &$q, &$numbers, &$numbers, &mut $out, $len, 0.125)
    };
}

/// All kernels whose code is looked at, for Hopper.
pub fn all() -> Result<Vec<(&'static str, CompiledKernel)>, Error> {
    let mut all = Vec::new();
    samples!(all, forward,
        forward(128, 128, 128, false) 8 2;
        forward(128, 128, 64, false) 8 3;
        forward(64, 128, 128, false) 8 2;
        forward_divided(128, 128, 128, false) 8 2;
        forward_divided(128, 128, 64, false) 8 3;
        forward_divided(64, 128, 128, false) 8 2;
        forward_divided(128, 128, 128, true) 8 2;
        forward_divided(128, 128, 64, true) 8 3;
        skewed(128, 128, 64) 8 3;
        skewed_divided(128, 128, 128) 8 2;
        skewed_divided(128, 128, 64) 8 2;
        skewed_divided(64, 128, 128) 8 2;
    );
    samples!(all, keys,
        keys_backward(128, 64, 128, false) 8 2;
        keys_backward_divided(128, 64, 128, false) 8 2;
        keys_backward_divided(64, 128, 128, false) 8 2;
    );
    samples!(all, rows,
        rows_backward(128, 128, 64, false) 8 2;
        rows_backward_divided(128, 128, 64, false) 8 2;
        rows_backward_divided(64, 128, 128, false) 8 2;
    );
    Ok(all)
}
