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

    /// Two ways lead to one constant.
    #[device]
    pub(super) fn both_ways(x: i32) -> i32 {
        chosen::<true>(x) + const_of(x)
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
    store(out + 6, local::both_ways(7) as f32);
}

#[test]
fn functions_see_the_constants_of_their_modules() {
    check(|device| {
        let mut out = device.zeros::<f32>(7)?;
        constants(&mut out).grid(1).launch(device)?;
        let limited = |x: i32| x.min(20) as f32 * 0.125 + 3.0;
        let mut wanted = vec![limited(16)];
        wanted.extend((0..4).map(|i| (i * 10) as f32 + limited(3)));
        wanted.extend([80.0 * 1000.0 + 7.0, 80.0 + 17.0]);
        assert_eq!(out.to_vec()?, wanted);
        Ok(())
    });
}

mod shapes {
    use tilewright::prelude::*;
    use tilewright_tests::functions::lanes::{self, Groups, LANES, eighths, group};
    use tilewright_tests::functions::widths::{self, numbers};

    /// The lanes of a local function, which are those of the other crate's.
    #[device]
    fn doubled(group: Tile<f32, { [LANES] }>) -> Tile<f32, { [LANES] }> {
        group + lanes::same(group)
    }

    #[kernel]
    pub fn grouped(x: Ptr<f32>, out: PtrMut<f32>, few: PtrMut<f32>, count: PtrMut<i32>) {
        let first = group(x);
        let mut groups = Groups::<2>::new();
        for i in 0..3 {
            groups.add(join(first, group(x + i * LANES)).trans());
        }
        let offsets = arange(0, 2)[(.., None)] * LANES + arange(0, lanes::LANES);
        store(out + offsets, groups.sums + doubled(first));
        store(few + arange(0, 4), eighths(first));
        store(count + arange(0, widths::WIDTH), numbers());
        store(out + 2 * LANES + arange(0, LANES), reshape(trans(lanes::halves(first)), [LANES]));
    }
}

#[test]
fn constants_of_modules_may_be_in_shapes() {
    check(|device| {
        let x: Vec<f32> = (0..96).map(|i| (i * 7 % 32) as f32).collect();
        let (mut out, mut few) = (device.zeros::<f32>(96)?, device.zeros::<f32>(4)?);
        let mut count = device.zeros::<i32>(4)?;
        shapes::grouped(&device.upload(&x)?, &mut out, &mut few, &mut count).grid(1).launch(device)?;
        let lane = |row: usize, i: usize| 3.0 * if row == 0 { x[i] } else { (x[i] + x[32 + i] + x[64 + i]) / 3.0 };
        let mut wanted: Vec<f32> = (0..64).map(|at| lane(at / 32, at % 32) + 2.0 * x[at % 32]).collect();
        wanted.extend(&x[..32]);
        assert_eq!(out.to_vec()?, wanted);
        assert_eq!(few.to_vec()?, x[..32].chunks(8).map(|few| few.iter().sum()).collect::<Vec<f32>>());
        assert_eq!(count.to_vec()?, [0, 1, 2, 3]);
        Ok(())
    });
}
