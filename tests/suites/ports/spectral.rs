//! Transforms over the bits of an index: Fourier, and Walsh and Hadamard.

use std::f64::consts::TAU;

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use crate::{close, numbers};

const PI: f32 = std::f32::consts::PI;

/// Complex numbers.
#[device]
struct Complex<const N: usize> {
    re: Tile<f32, { [N] }>,
    im: Tile<f32, { [N] }>,
}

/// Elements that are `S` apart.
#[device]
fn pairs<const N: usize, const S: usize>(
    x: Tile<f32, { [N] }>,
) -> (Tile<f32, { [N / (2 * S), S] }>, Tile<f32, { [N / (2 * S), S] }>) {
    split(permute(reshape(x, [N / (2 * S), 2, S]), [0, 2, 1]))
}

/// The inverse of `pairs`.
#[device]
fn whole<const N: usize, const S: usize>(
    a: Tile<f32, { [N / (2 * S), S] }>,
    b: Tile<f32, { [N / (2 * S), S] }>,
) -> Tile<f32, { [N] }> {
    reshape(permute(join(a, b), [0, 2, 1]), [N])
}

/// One step of a transform that halves the distance between the elements that it combines.
#[device]
fn step<const N: usize, const S: usize>(x: Complex<N>) -> Complex<N> {
    let ((ar, br), (ai, bi)) = (pairs::<N, S>(x.re), pairs::<N, S>(x.im));
    let angle = arange(0, S) as f32 * (-PI / S as f32);
    let (c, s, re, im) = (cos(angle), sin(angle), ar - br, ai - bi);
    Complex { re: whole::<N, S>(ar + br, re * c - im * s), im: whole::<N, S>(ai + bi, re * s + im * c) }
}

/// Discrete Fourier transforms of rows.
#[kernel]
fn fourier<const LOG: usize, const N: usize = { 1 << LOG }>(
    re: Ptr<f32>,
    im: Option<Ptr<f32>>,
    out_re: PtrMut<f32>,
    out_im: PtrMut<f32>,
) {
    let i = arange(0, N);
    let at = program_id(0) * N + i;
    let im = if let Some(im) = im { load(im + at) } else { zeros([N]) };
    let mut x = Complex { re: load(re + at), im };
    #[unroll]
    for bit in (0..LOG).rev() {
        x = step::<N, { 1 << bit }>(x);
    }
    // The steps leave the results where the bits of their numbers are in reverse order.
    let from = reverse_bits(i as u32) >> (32 - LOG);
    store(out_re + at, gather(x.re, from));
    store(out_im + at, gather(x.im, from));
}

/// Walsh and Hadamard's transform of rows, in place or not, scaled so that it is its own inverse.
#[kernel]
fn hadamard<T: Float, const LOG: usize, const N: usize = { 1 << LOG }>(#[in_place(out)] x: Ptr<T>, out: PtrMut<T>) {
    let at = program_id(0) * N + arange(0, N);
    let mut v = load(x + at) as f32;
    #[unroll]
    for bit in 0..LOG {
        let (a, b) = pairs::<N, { 1 << bit }>(v);
        v = whole::<N, { 1 << bit }>(a + b, a - b);
    }
    store(out + at, (v * rsqrt(N as f32)) as T);
}

#[test]
fn fourier_transforms_are_those_of_the_definition() {
    check(|device| {
        const N: usize = 64;
        let (re, im) = (numbers(2 * N, 1), numbers(2 * N, 2));
        for complex in [false, true] {
            let (x, y) = (device.upload(&re)?, device.upload(&im)?);
            let (mut out_re, mut out_im) = (device.zeros::<f32>(2 * N)?, device.zeros::<f32>(2 * N)?);
            let args = FourierArgs { re: &x, im: complex.then_some(&y), out_re: &mut out_re, out_im: &mut out_im };
            args.call(FourierConsts::new(6)).grid(2).launch(device)?;
            let (out_re, out_im) = (out_re.to_vec()?, out_im.to_vec()?);
            for row in 0..2 {
                for k in 0..N {
                    let (mut a, mut b) = (0.0, 0.0);
                    for j in 0..N {
                        let (x, y) = (f64::from(re[row * N + j]), f64::from(im[row * N + j]));
                        let y = if complex { y } else { 0.0 };
                        let (s, c) = (-TAU * (j * k % N) as f64 / N as f64).sin_cos();
                        a += x * c - y * s;
                        b += x * s + y * c;
                    }
                    // 64 numbers below 1, six steps of three roundings, and sines within 2 ulp.
                    let bound = 64.0 * 6.0 * 5.0 * f64::from(f32::EPSILON);
                    close(out_re[row * N + k], a, bound);
                    close(out_im[row * N + k], b, bound);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn hadamard_is_its_own_inverse() {
    check(|device| {
        let x = numbers(256, 3);
        let (input, mut out) = (device.upload(&x)?, device.zeros::<f32>(256)?);
        hadamard::<_, 7>(&input, &mut out).grid(2).launch(device)?;
        let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        let first = out.to_vec()?;
        for (row, i) in (0..2).flat_map(|row| (0..128).map(move |i| (row, i))) {
            let sum: f64 = (0..128).map(|j| f64::from(x[row * 128 + j]) * sign(i, j)).sum();
            close(first[row * 128 + i], sum / 128f64.sqrt(), 128f64.sqrt() * 8.0 * f64::from(f32::EPSILON));
        }
        hadamard::<_, 7>(InPlace, &mut out).grid(2).launch(device)?;
        for (&back, &x) in out.to_vec()?.iter().zip(&x) {
            close(back, x.into(), 128.0 * 16.0 * f64::from(f32::EPSILON));
        }
        Ok(())
    });
}
