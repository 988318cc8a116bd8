//! Every test kernel compiles and assembles for every target.

mod support;

use support::compiles_everywhere;

macro_rules! kernels {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            compiles_everywhere(include_str!(concat!("kernels/", stringify!($name), ".tile")));
        }
    )*};
}

kernels!(
    add, softmax, rows, transpose, argmax, gather, rowsum, scan, bias, inplace, steer, atomics, layernorm, loops,
    chunks
);
