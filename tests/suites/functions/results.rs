//! What kernels with functions compute.

use tilewright::prelude::*;
use tilewright_tests::devices::check;
use tilewright_tests::functions::{activations, doubled};

mod local {
    use tilewright::prelude::*;

    /// The sum of a row and its largest element: two scalars of a tile.
    #[device]
    pub(super) fn sum_and_max<T: Num, const N: usize>(x: Tile<T, { [N] }>) -> (T, T) {
        (sum(x), max(x))
    }

    /// Rows against columns.
    #[device]
    pub(super) fn outer<const M: usize, const N: usize>(
        (a, b): (Tile<f32, { [M] }>, Tile<f32, { [N] }>),
    ) -> Tile<f32, { [M, N] }> {
        a[(.., None)] * b[(None, ..)]
    }

    /// Loads, combines with a closure, and stores: what has effects need not give a value.
    #[device]
    pub(super) fn update<T: Num, const N: usize>(
        out: PtrMut<T>,
        offsets: Tile<i32, { [N] }>,
        value: Tile<T, { [N] }>,
        combine: impl Fn(Tile<T, { [N] }>, Tile<T, { [N] }>) -> Tile<T, { [N] }>,
    ) {
        store(out + offsets, combine(load(out + offsets), value));
    }

    /// A loop, a mutable parameter and a constexpr that no argument tells.
    #[device]
    pub(super) fn power<T: Num, const N: usize, const P: usize>(mut x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
        let base = x;
        for _ in 1..P {
            x = x * base;
        }
        x
    }
}

// A function may stand behind the kernels that call it, and have the name of a parameter of another.
use local::{outer, power, sum_and_max, update};

#[kernel]
fn uses_all<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, pair: PtrMut<i32>, halved: i32) {
    let offsets = arange(0, N);
    let tile = load(x + offsets);
    let (total, largest) = sum_and_max(tile);
    store(pair, total);
    store(pair + 1, self::half(largest));
    let halved = halved;
    update(out, offsets, power::<_, _, 3>(doubled(tile)), |old, new| new - old * halved);
}

/// Half of a scalar. The name is that of a dtype elsewhere, so that it is called by a path.
#[device]
fn half(x: i32) -> i32 {
    x / 2
}

#[test]
fn functions_compute_what_plain_rust_does() {
    check(|device| {
        let values: Vec<i32> = (0..64).map(|i| i * 7 % 23 - 5).collect();
        let before: Vec<i32> = (0..64).collect();
        let (x, mut out, mut pair) = (device.upload(&values)?, device.upload(&before)?, device.zeros::<i32>(2)?);
        uses_all::<64>(&x, &mut out, &mut pair, 3).grid(1).launch(device)?;
        let wanted: Vec<i32> = values.iter().zip(&before).map(|(v, b)| (2 * v).pow(3) - b * 3).collect();
        assert_eq!(out.to_vec()?, wanted);
        let largest = values.iter().copied().max().unwrap_or_default();
        assert_eq!(pair.to_vec()?, [values.iter().sum::<i32>(), largest / 2]);
        Ok(())
    });
}

#[kernel]
fn products<const M: usize, const N: usize>(a: Ptr<f32>, b: Ptr<f32>, out: PtrMut<f32>) {
    let (rows, columns) = (arange(0, M), arange(0, N));
    let tile = outer((load(a + rows), load(b + columns)));
    store(out + (rows[(.., None)] * N + columns[(None, ..)]), tile);
}

#[test]
fn shapes_are_those_of_the_arguments() {
    check(|device| {
        let (a, b): (Vec<f32>, Vec<f32>) =
            ((0..8).map(|i| i as f32).collect(), (0..32).map(|i| i as f32 - 9.0).collect());
        let (x, y, mut out) = (device.upload(&a)?, device.upload(&b)?, device.zeros::<f32>(256)?);
        products::<8, 32>(&x, &y, &mut out).grid(1).launch(device)?;
        let wanted: Vec<f32> = a.iter().flat_map(|a| b.iter().map(move |b| a * b)).collect();
        assert_eq!(out.to_vec()?, wanted);
        Ok(())
    });
}

#[kernel]
fn named_closures<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>) {
    let offsets = arange(0, N);
    let two = 2 as T;
    let scaled = |x, by| x * by + two;
    let larger = |a, b| if a > b { a } else { b };
    let tile = scaled(load(x + offsets), two);
    store(out + offsets, scaled(tile, tile));
    store(out + N, reduce(tile, axis = 0, |a, b| larger(a, b)));
}

#[test]
fn closures_with_names_are_inlined() {
    check(|device| {
        let values: Vec<f32> = (0..32).map(|i| (i * 5 % 17) as f32 - 8.0).collect();
        let (x, mut out) = (device.upload(&values)?, device.zeros::<f32>(33)?);
        named_closures::<_, 32>(&x, &mut out).grid(1).launch(device)?;
        let tile: Vec<f32> = values.iter().map(|x| x * 2.0 + 2.0).collect();
        let mut wanted: Vec<f32> = tile.iter().map(|x| x * x + 2.0).collect();
        wanted.push(tile.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        assert_eq!(out.to_vec()?, wanted);
        Ok(())
    });
}

#[kernel]
fn paths<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let tile = load(x + arange(0, N));
    store(out + arange(0, N), activations::silu(tile));
    store(out + (arange(0, N) + N), tilewright_tests::functions::activate(tile));
}

#[test]
fn functions_are_called_by_paths_and_other_names() {
    check(|device| {
        let (x, mut out) = (device.upload(&[1.5f32; 16])?, device.upload(&[9.0f32; 32])?);
        paths::<16>(&x, &mut out).grid(1).launch(device)?;
        let out = out.to_vec()?;
        assert_eq!(out[..16], out[16..]);
        let wanted = 1.5 / (1.0 + (-1.5f32).exp());
        assert!((out[0] - wanted).abs() <= 4.0 * f32::EPSILON * wanted, "{} instead of {wanted}", out[0]);
        Ok(())
    });
}

#[test]
fn kernels_and_functions_may_stand_in_functions() {
    #[device]
    fn negated(x: i32) -> i32 {
        -x
    }
    #[kernel]
    fn inner(out: PtrMut<i32>) {
        store(out, negated(7));
    }
    check(|device| {
        let mut out = device.zeros::<i32>(1)?;
        inner(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [-7]);
        Ok(())
    });
}

/// The first multiple of `d` above `n`, found one by one.
#[device]
fn next_multiple(n: i32, d: i32) -> i32 {
    let mut at = n;
    loop {
        at += 1;
        if at % d == 0 {
            break;
        }
    }
    at
}

#[kernel]
fn multiples(out: PtrMut<i32>, n: i32) {
    let mut sum = 0;
    for i in 1..=n {
        if i % 5 == 0 {
            continue;
        }
        if i > 90 {
            break;
        }
        sum += next_multiple(i, 7);
    }
    store(out, sum);
}

#[test]
fn a_loop_in_a_function_is_left_without_leaving_that_around_the_call() {
    check(|device| {
        for n in [0, 1, 40, 200] {
            let mut out = device.zeros::<i32>(1)?;
            multiples(&mut out, n).grid(1).launch(device)?;
            let want: i32 = (1..=n).filter(|i| i % 5 != 0).take_while(|i| *i <= 90).map(|i| i / 7 * 7 + 7).sum();
            assert_eq!(out.to_vec()?, [want], "n = {n}");
        }
        Ok(())
    });
}

mod passed {
    use tilewright::prelude::*;

    /// A block, scaled and moved by what there is, and the sum of its elements where that is wanted.
    #[device]
    pub(super) fn changed<T: Num, const M: usize, const N: usize>(
        x: TensorDesc<T, { [M, N] }>,
        at: (i32, i32),
        scale: Option<T>,
        bias: Option<Ptr<T>>,
        more: Option<TensorDesc<T, { [M, N] }>>,
        total: Option<PtrMut<T>>,
    ) -> Tile<T, { [M, N] }> {
        let (row, column) = at;
        let mut x = x.load([row, column]);
        if let Some(scale) = scale {
            x *= scale;
        }
        if let Some(bias) = bias {
            x += load(bias + arange(0, N));
        }
        if let Some(more) = more {
            x += more.load([row, column]);
        }
        if let Some(total) = total {
            atomic_add(total, sum(x));
        }
        x
    }

    /// The last element of a buffer that may be written, but is not here.
    #[device]
    pub(super) fn last<T: Num>(x: Ptr<T>, len: i32) -> T {
        load(x + (len - 1))
    }
}

use passed::{changed, last};

#[kernel]
fn takes_what_is_there<const M: usize, const N: usize>(
    x: TensorDesc<i32, { [M, N] }>,
    y: TensorDescMut<i32, { [M, N] }>,
    z: PtrMut<i32>,
    bias: Option<Ptr<i32>>,
    more: Option<TensorDesc<i32, { [M, N] }>>,
    factor: Option<i32>,
    total: PtrMut<i32>,
) {
    let at = (program_id(0) * M, 0);
    let rows = num_programs(0) * M;
    let made = tensor_desc(z, [rows, N as i32], [N as i64, 1], [M, N]);
    let first = changed(x, at, factor, bias, more, Some(total));
    let second = changed(y, at, Some(3), None, Some(x), None);
    let third = changed(x, at, None, Some(total + 2), None, None);
    y.store([at.0, 0], first - second);
    made.store([at.0, 0], third + last(total, 3));
}

#[test]
fn functions_take_descriptors_and_what_may_be_missing() {
    check(|device| {
        let (m, n, programs) = (4, 8, 3);
        let len = m * n * programs;
        let (x, y): (Vec<i32>, Vec<i32>) = ((0..len).map(|i| i as i32 * 7 % 31).collect(), (0..len as i32).collect());
        let (bias, more): (Vec<i32>, Vec<i32>) = ((1..=n as i32).collect(), y.iter().map(|y| y * 2 - 5).collect());
        for case in 0..8 {
            let given = |bit: i32| case >> bit & 1 == 1;
            let (a, b) = (device.upload(&x)?, device.upload(&bias)?);
            let (mut c, d) = (device.upload(&y)?, device.upload(&more)?);
            let (mut z, mut total) =
                (device.zeros::<i32>(len)?, device.upload(&(0..n as i32 + 2).collect::<Vec<i32>>())?);
            let shape = [m * programs, n];
            let more_desc = TensorDesc::new(&d, shape)?;
            takes_what_is_there::<4, 8>(
                &TensorDesc::new(&a, shape)?,
                &mut TensorDescMut::new(&mut c, shape)?,
                &mut z,
                given(0).then_some(&b),
                given(1).then_some(&more_desc),
                given(2).then_some(5),
                &mut total,
            )
            .grid(programs)
            .launch(device)?;
            let first = |i: usize| {
                let scaled = if given(2) { x[i] * 5 } else { x[i] };
                let moved = if given(0) { scaled + bias[i % n] } else { scaled };
                if given(1) { moved + more[i] } else { moved }
            };
            let wanted: Vec<i32> = (0..len).map(|i| first(i) - (y[i] * 3 + x[i])).collect();
            assert_eq!(c.to_vec()?, wanted, "case {case}");
            let third: Vec<i32> = (0..len).map(|i| x[i] + (i % n) as i32 + 2 + 2).collect();
            assert_eq!(z.to_vec()?, third, "case {case}");
            assert_eq!(total.to_vec()?[0], (0..len).map(first).sum::<i32>(), "case {case}");
        }
        Ok(())
    });
}
