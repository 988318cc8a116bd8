//! Functions that are given by their names where a closure is wanted.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

mod combine {
    use tilewright::prelude::*;

    /// The one of larger magnitude, with its place.
    #[device]
    pub fn larger(a: (f32, i32), b: (f32, i32)) -> (f32, i32) {
        let ((x, i), (y, j)) = (a, b);
        if abs(x) > abs(y) || abs(x) == abs(y) && i < j { (x, i) } else { (y, j) }
    }

    #[device]
    pub fn added<T: Num>(a: T, b: T) -> T {
        a + b
    }
}

use combine::added;

#[device]
fn steps(n: i32, limit: i32) -> i32 {
    let mut left = n;
    let mut count = 0;
    while left > 1 && count < limit {
        left = if left % 2 == 0 { left / 2 } else { 3 * left + 1 };
        count += 1;
    }
    count
}

/// Names of macros that are in scope everywhere.
mod everywhere {
    use tilewright::prelude::*;

    #[device]
    pub fn write(out: PtrMut<i32>, x: i32) {
        store(out, line(x));
    }

    #[device]
    pub fn line(x: i32) -> i32 {
        3 * x + 1
    }

    #[kernel]
    pub fn own(out: PtrMut<i32>) {
        write(out, 7);
    }
}

#[kernel]
fn imported(out: PtrMut<i32>) {
    use_of_write(out, 5);
    everywhere::write(out + 1, 6);
}

use everywhere::write as use_of_write;

#[test]
fn functions_may_have_names_of_macros() {
    check(|device| {
        let mut out = device.zeros::<i32>(2)?;
        everywhere::own(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [22, 0]);
        imported(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [16, 19]);
        Ok(())
    });
}

#[device]
fn doubled<T: Num, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
    x + x
}

/// Applies a function twice, and hands it on by the name that it has here.
#[device]
fn twice<const N: usize>(
    x: Tile<f32, { [N] }>,
    f: impl Fn(Tile<f32, { [N] }>) -> Tile<f32, { [N] }>,
) -> Tile<f32, { [N] }> {
    once(f(x), f)
}

#[device]
fn once<const N: usize>(
    x: Tile<f32, { [N] }>,
    f: impl Fn(Tile<f32, { [N] }>) -> Tile<f32, { [N] }>,
) -> Tile<f32, { [N] }> {
    f(x)
}

/// A combination that the caller chooses.
#[device]
fn folded<const N: usize>(x: Tile<f32, { [N] }>, f: impl Fn(f32, f32) -> f32) -> f32 {
    reduce(x, f)
}

#[device(methods)]
struct Row<const N: usize> {
    x: Tile<f32, { [N] }>,
}

#[device]
impl<const N: usize> Row<N> {
    fn of(x: Tile<f32, { [N] }>, f: impl Fn(Tile<f32, { [N] }>) -> Tile<f32, { [N] }>) -> Self {
        Self { x: f(x) }
    }

    fn folded(&self, f: impl Fn(f32, f32) -> f32) -> f32 {
        reduce(self.x, f)
    }
}

#[kernel]
fn by_name<const N: usize>(x: Ptr<f32>, n: Ptr<i32>, out: PtrMut<f32>, counts: PtrMut<i32>, limit: i32) {
    let at = arange(0, N);
    let (tile, numbers) = (load(x + at), load(n + at));
    let (value, place) = reduce((tile, at), axis = 0, combine::larger);
    store(out, value);
    store(out + 1, place as f32);
    store(out + 2, folded(tile, added));
    store(out + 3, tile.reduce(added));
    let row = Row::<N>::of(tile, doubled);
    store(out + 4, row.folded(combine::added));
    store(out + 8 + at, associative_scan(tile, axis = 0, added));
    store(out + 8 + N + at, twice(tile, doubled));
    let least = |a, b| minimum(a, b);
    store(out + 5, reduce(tile, least));
    store(counts + at, map_elementwise(numbers, full([N], limit), steps));
}

#[kernel]
fn by_closure<const N: usize>(x: Ptr<f32>, n: Ptr<i32>, out: PtrMut<f32>, counts: PtrMut<i32>, limit: i32) {
    let at = arange(0, N);
    let (tile, numbers) = (load(x + at), load(n + at));
    let (value, place) = reduce((tile, at), axis = 0, |a, b| combine::larger(a, b));
    store(out, value);
    store(out + 1, place as f32);
    store(out + 2, folded(tile, |a, b| added(a, b)));
    store(out + 3, tile.reduce(|a, b| added(a, b)));
    let row = Row::<N>::of(tile, |x| doubled(x));
    store(out + 4, row.folded(|a, b| combine::added(a, b)));
    store(out + 8 + at, associative_scan(tile, axis = 0, |a, b| added(a, b)));
    store(out + 8 + N + at, twice(tile, |x| doubled(x)));
    store(out + 5, reduce(tile, |a, b| minimum(a, b)));
    store(counts + at, map_elementwise(numbers, full([N], limit), |a, b| steps(a, b)));
}

#[test]
fn names_stand_for_closures() {
    check(|device| {
        let x: Vec<f32> = (0..16).map(|i| ((i * 7) % 16) as f32 - 9.0).collect();
        let n: Vec<i32> = (0..16).collect();
        let mut out = device.zeros::<f32>(40)?;
        let mut counts = device.zeros::<i32>(16)?;
        by_name::<16>(&device.upload(&x)?, &device.upload(&n)?, &mut out, &mut counts, 12).grid(1).launch(device)?;
        let out = out.to_vec()?;
        let sum: f32 = x.iter().sum();
        let scan: Vec<f32> = x
            .iter()
            .scan(0.0, |sum, x| {
                *sum += x;
                Some(*sum)
            })
            .collect();
        assert_eq!(out[..6], [-9.0, 0.0, sum, sum, 2.0 * sum, -9.0]);
        assert_eq!(out[8..24], scan);
        assert_eq!(out[24..40], x.iter().map(|x| 4.0 * x).collect::<Vec<_>>());
        let counted = |mut left: i32| {
            let mut count = 0;
            while left > 1 && count < 12 {
                left = if left % 2 == 0 { left / 2 } else { 3 * left + 1 };
                count += 1;
            }
            count
        };
        assert_eq!(counts.to_vec()?, n.iter().map(|n| counted(*n)).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn names_are_the_code_of_closures() -> Result<(), tilewright::Error> {
    let name = ByNameConsts { N: 128 }.compile(Target::sm_90a())?.ptx().replace("by_name", "k");
    let closure = ByClosureConsts { N: 128 }.compile(Target::sm_90a())?.ptx().replace("by_closure", "k");
    assert_eq!(name, closure);
    Ok(())
}
