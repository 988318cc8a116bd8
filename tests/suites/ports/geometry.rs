//! Images and boxes.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use crate::{close, numbers};

/// A pixel of an image, zero outside.
#[device]
fn pixel<T: Float, const N: usize>(
    image: Ptr<T>,
    row: Tile<i32, { [N] }>,
    column: Tile<i32, { [N] }>,
    height: i32,
    width: i32,
) -> Tile<f32, { [N] }> {
    let inside = (row >= 0) & (row < height) & (column >= 0) & (column < width);
    load(image + row * width + column, mask = inside) as f32
}

/// Images `[N, C, H, W]` at the places of a grid `[N, OUT, 2]`, whose corners are -1 and 1.
///
/// The grid is `[blocks of places, C, N]`.
#[kernel]
fn sampled<T: Float, const BLOCK: usize = 128>(
    image: Ptr<T>,
    places: Ptr<f32>,
    out: PtrMut<T>,
    height: i32,
    width: i32,
    n: i32,
) {
    let (channel, item) = (program_id(1), program_id(2));
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    let plane = item * num_programs(1) + channel;
    let image = image + plane * height * width;
    let pair = (item * n + i) * 2;
    let x = (load(places + pair, mask = mask) + 1.0) * 0.5 * (width - 1) as f32;
    let y = (load(places + pair + 1, mask = mask) + 1.0) * 0.5 * (height - 1) as f32;
    let (left, top) = (floor(x), floor(y));
    let (wx, wy) = (x - left, y - top);
    let (column, row) = (left as i32, top as i32);
    let upper =
        pixel(image, row, column, height, width) * (1.0 - wx) + pixel(image, row, column + 1, height, width) * wx;
    let lower = pixel(image, row + 1, column, height, width) * (1.0 - wx)
        + pixel(image, row + 1, column + 1, height, width) * wx;
    store(out + plane * n + i, (upper * (1.0 - wy) + lower * wy) as T, mask = mask);
}

#[test]
fn images_between_pixels() {
    check(|device| {
        let (h, w, n, planes) = (5usize, 7usize, 200usize, 4usize);
        let image = numbers(planes * h * w, 4);
        // Some lie outside.
        let places: Vec<f32> = numbers(2 * n * 2, 5).iter().map(|x| x * 1.3).collect();
        let (x, grid, mut out) = (device.upload(&image)?, device.upload(&places)?, device.zeros::<f32>(planes * n)?);
        sampled(&x, &grid, &mut out, h as i32, w as i32, n as i32).grid((n.div_ceil(128), 2, 2)).launch(device)?;
        let out = out.to_vec()?;
        for (plane, i) in (0..planes).flat_map(|plane| (0..n).map(move |i| (plane, i))) {
            let pair = (plane / 2 * n + i) * 2;
            // As the kernel computes it: the floor of another place is another pixel.
            let x = (places[pair] + 1.0) * 0.5 * (w - 1) as f32;
            let y = (places[pair + 1] + 1.0) * 0.5 * (h - 1) as f32;
            let at = |row: i64, column: i64| {
                let inside = (0..h as i64).contains(&row) && (0..w as i64).contains(&column);
                if inside { f64::from(image[plane * h * w + row as usize * w + column as usize]) } else { 0.0 }
            };
            let (row, column) = (y.floor() as i64, x.floor() as i64);
            let (wx, wy) = (f64::from(x - x.floor()), f64::from(y - y.floor()));
            let upper = at(row, column) * (1.0 - wx) + at(row, column + 1) * wx;
            let lower = at(row + 1, column) * (1.0 - wx) + at(row + 1, column + 1) * wx;
            // Places may differ by a fused rounding; a pixel is at most 1 and so is the slope between two, twice.
            close(out[plane * n + i], upper * (1.0 - wy) + lower * wy, 64.0 * f64::from(f32::EPSILON));
        }
        Ok(())
    });
}

/// Corners of boxes.
#[device]
struct Boxes<const N: usize> {
    left: Tile<f32, { [N] }>,
    top: Tile<f32, { [N] }>,
    right: Tile<f32, { [N] }>,
    bottom: Tile<f32, { [N] }>,
}

#[device]
fn boxes<const N: usize>(from: Ptr<f32>, i: Tile<i32, { [N] }>, n: i32) -> Boxes<N> {
    let side = |at| load(from + i * 4 + at, mask = i < n);
    Boxes { left: side(0), top: side(1), right: side(2), bottom: side(3) }
}

/// Which later boxes each box covers by more than `limit` of both together, as bits: 32 in each word.
///
/// The grid is `[blocks of boxes, words]`.
#[kernel]
fn overlaps<const BLOCK: usize>(from: Ptr<f32>, bits: PtrMut<u32>, n: i32, limit: f32) {
    let (i, j) = (program_id(0) * BLOCK + arange(0, BLOCK), program_id(1) * 32 + arange(0, 32));
    let (a, b) = (boxes(from, i, n), boxes(from, j, n));
    let area = |left, top, right, bottom| (right - left) * (bottom - top);
    let width = minimum(a.right[(.., None)], b.right) - maximum(a.left[(.., None)], b.left);
    let height = minimum(a.bottom[(.., None)], b.bottom) - maximum(a.top[(.., None)], b.top);
    let both = maximum(width, 0.0) * maximum(height, 0.0);
    let (first, second) = (area(a.left, a.top, a.right, a.bottom), area(b.left, b.top, b.right, b.bottom));
    let covers = both > limit * (first[(.., None)] + second - both);
    let later = (j > i[(.., None)]) & (j < n);
    let word = reduce(((covers & later) as u32) << (j as u32 % 32), axis = 1, |a, b| a | b);
    store(bits + i * num_programs(1) + program_id(1), word, mask = i < n);
}

/// Which boxes stay, the best first: each that stays removes those that it covers.
#[kernel]
fn suppressed<const WORDS: usize>(bits: Ptr<u32>, stays: PtrMut<bool>, n: i32) {
    let word = arange(0, WORDS);
    let words = cdiv(n, 32);
    let mut removed = zeros::<u32>([WORDS]);
    for i in 0..n {
        let own = sum(select(word == i / 32, removed, 0));
        let is_left = (own >> (i % 32) as u32) & 1 == 0;
        store(stays + i, is_left);
        if is_left {
            removed |= load(bits + i * words + word, mask = word < words);
        }
    }
}

#[test]
fn boxes_suppress_those_that_they_cover() {
    check(|device| {
        for n in [1usize, 31, 70] {
            let raw = numbers(4 * n, 6);
            let corners: Vec<f32> =
                raw.chunks(4).flat_map(|c| [c[0], c[1], c[0] + 0.3 + c[2].abs(), c[1] + 0.3 + c[3].abs()]).collect();
            let words = n.div_ceil(32);
            let (from, mut bits) = (device.upload(&corners)?, device.zeros::<u32>(n * words)?);
            let mut stays = device.zeros::<bool>(n)?;
            let limit = 0.3;
            overlaps::<16>(&from, &mut bits, n as i32, limit).grid((n.div_ceil(16), words)).launch(device)?;
            suppressed::<4>(&bits, &mut stays, n as i32).grid(1).launch(device)?;
            let of = |i: usize| <[f32; 4]>::try_from(&corners[4 * i..][..4]).unwrap();
            let mut want = vec![true; n];
            for (i, j) in (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))) {
                let (a, b) = (of(i), of(j));
                let side = |at: usize| (a[at + 2].min(b[at + 2]) - a[at].max(b[at])).max(0.0);
                let area = |c: [f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
                let both = side(0) * side(1);
                // Far enough from the limit that no rounding decides.
                let of_both = both / (area(a) + area(b) - both);
                assert!((of_both - limit).abs() > 1e-5, "{of_both}");
                want[j] &= !(want[i] && of_both > limit);
            }
            assert_eq!(stays.to_vec()?, want, "{n} boxes");
        }
        Ok(())
    });
}
