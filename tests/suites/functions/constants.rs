//! Functions that name constants of their own module and crate.

use tilewright::prelude::*;
use tilewright_tests::devices::check;
use tilewright_tests::functions::limits::limited;

const LIMIT: i32 = 1000;

mod local {
    use tilewright::prelude::*;
    use tilewright_tests::functions::limits;

    const LIMIT: i32 = 10;

    /// Of a function of another crate, and of a constant of the same name as others.
    #[device]
    pub(super) fn steps<const N: usize>(x: i32) -> Tile<f32, { [N] }> {
        (arange(0, N) * LIMIT) as f32 + limits::limited(x)
    }

    /// A function that is only called by others keeps its constants, and a branch that is not taken keeps its own.
    #[device]
    pub(super) fn chosen<const FIRST: bool>(x: i32) -> i32 {
        const_of(if FIRST { x * LIMIT } else { x - LIMIT })
    }

    #[device]
    fn const_of(x: i32) -> i32 {
        x + LIMIT
    }
}

#[kernel]
fn constants(out: PtrMut<f32>) {
    store(out, limited(16 + LIMIT - 1000));
    store(out + 1 + arange(0, 4), local::steps::<4>(3));
    store(out + 5, (local::chosen::<true>(7) * LIMIT + local::chosen::<false>(7)) as f32);
}

#[test]
fn functions_see_the_constants_of_their_modules() {
    check(|device| {
        let mut out = device.zeros::<f32>(6)?;
        constants(&mut out).grid(1).launch(device)?;
        let limited = |x: i32| x.min(20) as f32 * 0.125 + 3.0;
        let mut wanted = vec![limited(16)];
        wanted.extend((0..4).map(|i| (i * 10) as f32 + limited(3)));
        wanted.push(80.0 * 1000.0 + 7.0);
        assert_eq!(out.to_vec()?, wanted);
        Ok(())
    });
}
