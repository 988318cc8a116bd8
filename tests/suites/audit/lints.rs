//! What `#[kernel]` writes passes the strictest lints, and means the same among names that shadow Rust's own.

#![deny(
    warnings,
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    missing_debug_implementations,
    missing_copy_implementations,
    elided_lifetimes_in_paths,
    single_use_lifetimes,
    unused_lifetimes,
    unused_results,
    trivial_casts,
    trivial_numeric_casts
)]
#![deny(clippy::all, clippy::pedantic)]
#![forbid(unsafe_code)]

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Adds what is there.
#[kernel]
fn documented<T: Num, const BLOCK: usize, const FLAG: bool>(x: Ptr<T>, out: PtrMut<T>, n: i32, eps: Const<f32>) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    if FLAG {
        store(out + i, load(x + i, mask = i < n) + eps as T, mask = i < n);
    }
}

#[kernel]
unsafe fn without_documentation(out: PtrMut<f32>) {
    store(out, 1.0);
}

mod shadowing {
    #![allow(dead_code, non_camel_case_types, missing_debug_implementations, missing_copy_implementations)]

    use ::tilewright::prelude::kernel;

    struct Option;
    struct Some;
    struct None;
    struct Result;
    struct Call;
    struct Target;
    struct Buffer;
    struct usize;
    struct i32;
    struct bool;
    trait Clone {}
    trait Copy {}
    trait Sized {}
    mod core {}
    mod std {}
    mod tilewright {}

    #[kernel]
    pub(super) fn kernel_among_them<T: Num, const N: usize, const F: bool>(
        x: Ptr<T>,
        out: PtrMut<T>,
        n: i32,
        target: Const<i32>,
        h: f16,
    ) {
        let i = arange(0, N);
        if F {
            store(out + i, load(x + i, mask = i < n + target) + h as T);
        }
    }
}

macro_rules! emitted {
    ($name:ident, $dtype:ty, $value:expr, $body:block) => {
        #[kernel(crate = ::tilewright)]
        fn $name(out: PtrMut<$dtype>) $body

        fn run(device: &Device) -> Result<Vec<$dtype>, Error> {
            #[kernel]
            fn inner(out: PtrMut<$dtype>) {
                store(out + 1, $value * 2);
            }
            let mut out = device.zeros::<$dtype>(2)?;
            $name(&mut out).grid(1).launch(device)?;
            // Only its constexprs are named: the launcher is no dead code.
            InnerConsts {}.call(&mut out).grid(1).launch(device)?;
            out.to_vec()
        }
    };
}

emitted!(from_a_macro, i32, 1 + 2, {
    store(out, 7);
});

#[test]
fn kernels_come_from_macros_and_live_in_functions() {
    check(|device| {
        assert_eq!(run(device)?, [7, 6]);
        Ok(())
    });
}

#[test]
fn kernels_mean_the_same_among_shadowing_names() {
    check(|device| {
        let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
        let mut out = device.zeros::<f32>(4)?;
        let half = f16::from_f32(0.5);
        shadowing::kernel_among_them::<_, 4, true>(&x, &mut out, 2, 1, half).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [1.5, 2.5, 3.5, 0.5]);
        documented::<_, 4, true>(&x, &mut out, 3, 0.25).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [1.25, 2.25, 3.25, 0.5]);
        drop(without_documentation(&mut out));
        Ok(())
    });
}
