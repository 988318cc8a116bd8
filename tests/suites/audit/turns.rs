//! Loops in which two groups of four warps take turns at their products: of no, one and any number of iterations, of as many
//! as the number of the tile says, one after another, in a loop around them, and with conditions around them.
//!
//! Whoever waited for a turn that nobody gives would wait for ever, so each of these also has to end.

use kernel_runtime::testing::Delays;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

use super::held_factors::{KEYS, Numbers};

/// Rows of a tile.
const M: usize = 128;
/// Tiles of the factor that stays.
const TILES: usize = 5;

/// For each tile `out = p(q * k) * v` with `p(s) = s * s + s`, over some of the keys.
macro_rules! turns {
    ($name:ident, |$tile:ident, $x:ident, $k:ident, $v:ident, $acc:ident, $len:ident, $flag:ident| { $($body:tt)* }) => {
        #[kernel(num_warps = 8)]
        #[allow(unused_variables, reason = "not every loop needs all of them")]
        fn $name<const D: usize, const N: usize>(
            q: TensorDesc<f16, { [128, D] }>,
            $k: TensorDesc<f16, { [N, D] }>,
            $v: TensorDesc<f16, { [N, D] }>,
            out: PtrMut<f32>,
            $len: i32,
            $flag: i32,
        ) {
            let $tile = program_id(0);
            let $x = q.load([$tile * 128, 0]);
            let mut $acc = zeros::<f32>([128, D]);
            $($body)*
            store(out + ($tile * 128 + arange(0, 128))[(.., None)] * D + arange(0, D), $acc);
        }
    };
}
turns!(once, |tile, x, k, v, acc, len, flag| {
    #[warp_specialize]
    for start in (0..len).step_by(N) {
        let s = dot(x, k.load([start, 0]).trans());
        acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
    }
});
// Each tile ends where its number says, the first at once.
turns!(causal, |tile, x, k, v, acc, len, flag| {
    #[warp_specialize]
    for start in (0..minimum(tile * N, len)).step_by(N) {
        let s = dot(x, k.load([start, 0]).trans());
        acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
    }
});
// The second loop goes on in the ring where the first has ended; either may have no iterations.
turns!(one_after_another, |tile, x, k, v, acc, len, flag| {
    #[warp_specialize]
    for start in (0..flag).step_by(N) {
        let s = dot(x, k.load([start, 0]).trans());
        acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
    }
    #[warp_specialize]
    for start in (flag..len).step_by(N) {
        let s = dot(x, k.load([start, 0]).trans());
        acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
    }
});
// A condition goes around one loop and around none of the other's iterations.
turns!(around, |tile, x, k, v, acc, len, flag| {
    if tile * N >= flag {
        #[warp_specialize]
        for start in (0..flag).step_by(N) {
            let s = dot(x, k.load([start, 0]).trans());
            acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
        }
    }
    #[warp_specialize]
    for start in (flag..len).step_by(N) {
        let s = dot(x, k.load([start, 0]).trans());
        acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
    }
});
// The loop around is left early, at another time in each program.
turns!(early, |tile, x, k, v, acc, len, flag| {
    for half in 0..2 {
        if half >= tile {
            break;
        }
        #[warp_specialize]
        for start in (half * N..len).step_by(2 * N) {
            let s = dot(x, k.load([start, 0]).trans());
            acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
        }
    }
});

/// Programs that take tile after tile, each of which ends where its number says; with `flag`, they end at a tile.
#[kernel(num_warps = 8)]
fn persistent<const D: usize, const N: usize>(
    q: TensorDesc<f16, { [128, D] }>,
    k: TensorDesc<f16, { [N, D] }>,
    v: TensorDesc<f16, { [N, D] }>,
    out: PtrMut<f32>,
    len: i32,
    flag: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..flag).step_by(num_programs(0)) {
        let x = q.load([tile * 128, 0]);
        let mut acc = zeros::<f32>([128, D]);
        for start in (0..minimum(tile * N, len)).step_by(N) {
            let s = dot(x, k.load([start, 0]).trans());
            acc = dot((s * s + s) as f16, v.load([start, 0]), acc = acc);
        }
        store(out + (tile * 128 + arange(0, 128))[(.., None)] * D + arange(0, D), acc);
    }
}

/// The factors, and how keys weigh in rows.
struct Case {
    numbers: Numbers,
    depth: usize,
    weights: Vec<i32>,
}

impl Case {
    fn new(depth: usize) -> Case {
        let mut numbers = Numbers::new(depth);
        // No score exceeds 7, as few numbers of a key count: all sums are exact.
        let hash = |i: usize| (i.wrapping_mul(2_654_435_769) >> 13) % 1021;
        numbers.q = (0..TILES * M * depth).map(|i| hash(i) as i32 % 3 - 1).collect();
        let of_row = |row: &[i32], key: &[i32]| row.iter().zip(key).map(|(x, y)| x * y).sum::<i32>();
        let rows = numbers.q.chunks(depth);
        let scores = rows.flat_map(|row| numbers.k.chunks(depth).map(|key| of_row(row, key)).collect::<Vec<_>>());
        let weights = scores.map(|score| score * score + score).collect();
        Case { numbers, depth, weights }
    }

    /// What a tile is if it visits these keys.
    fn tile(&self, tile: usize, keys: impl Iterator<Item = usize>) -> Vec<f32> {
        let mut sums = vec![0; M * self.depth];
        for key in keys {
            let values = &self.numbers.v[key * self.depth..][..self.depth];
            for (row, sums) in sums.chunks_mut(self.depth).enumerate() {
                let weight = self.weights[(tile * M + row) * KEYS + key];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
            }
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    }
}

/// Runs a kernel over `$programs` programs; `$keys` says which keys a tile visits, if it is written at all.
macro_rules! run {
    ($device:expr, $case:expr, $kernel:ident::<$D:literal, $N:literal>, $stages:literal, $turns:expr, $programs:expr,
     [$len:expr, $flag:expr], $keys:expr) => {{
        let case = $case;
        let upload =
            |values: &[i32]| $device.upload(&values.iter().map(|&x| f16::from_f32(x as f32)).collect::<Vec<f16>>());
        let (q, k, v) = (upload(&case.numbers.q)?, upload(&case.numbers.k)?, upload(&case.numbers.v)?);
        let q = TensorDesc::new(&q, [TILES * M, $D])?;
        let (k, v) = (TensorDesc::new(&k, [KEYS, $D])?, TensorDesc::new(&v, [KEYS, $D])?);
        let mut out = $device.zeros::<f32>(TILES * M * $D)?;
        let call = $kernel::<$D, $N>(&q, &k, &v, &mut out, $len as i32, $flag as i32);
        let call = call.grid($programs).num_stages($stages);
        let what = format!("{} {}x{}, {} stages, {} to {}", stringify!($kernel), $N, $D, $stages, $flag, $len);
        if !$device.is_cuda() {
            let taken = call.compile(Target::sm_90a())?.placed_ir().matches("turn_begin").count();
            assert_eq!(taken, $turns, "{what}: two for each loop");
        }
        let keys = $keys;
        let wanted: Vec<f32> = (0..TILES).flat_map(|tile| case.tile(tile, keys(tile).into_iter())).collect();
        call.launch($device)?;
        assert!(out.to_vec()? == wanted, "{what} on {}", $device);
        // However long anything takes.
        for seed in 1..=if $device.is_cuda() { 4 } else { 0 } {
            let mut out = $device.zeros::<f32>(TILES * M * $D)?;
            let call = $kernel::<$D, $N>(&q, &k, &v, &mut out, $len as i32, $flag as i32);
            call.grid($programs).num_stages($stages).delays(seed).launch($device)?;
            assert!(out.to_vec()? == wanted, "{what} with delays from seed {seed} on {}", $device);
        }
    }};
}

macro_rules! run_all {
    ($device:expr, $([$D:literal, $N:literal, $stages:literal, $trips:expr])*) => {$({
        let case = Case::new($D);
        for trips in $trips {
            let len = trips * $N;
            run!($device, &case, once::<$D, $N>, $stages, 2, TILES, [len, 0], |_| (0..len).collect::<Vec<_>>());
            run!($device, &case, causal::<$D, $N>, $stages, 2, TILES, [len, 0], |tile: usize| 0..len.min(tile * $N));
            run!($device, &case, one_after_another::<$D, $N>, $stages, 4, TILES, [KEYS, len], |_| 0..KEYS);
            let skips = |tile: usize| if tile * $N >= len { 0..KEYS } else { len..KEYS };
            run!($device, &case, around::<$D, $N>, $stages, 4, TILES, [KEYS, len], skips);
        }
        let halves = |tile: usize| (0..KEYS).filter(move |key| key / $N % 2 < tile).collect::<Vec<_>>();
        run!($device, &case, early::<$D, $N>, $stages, 2, TILES, [KEYS, 0], halves);
        for (programs, tiles) in [(1, TILES), (2, TILES), (2, 3), (TILES, 2)] {
            let keys = |tile: usize| if tile < tiles { 0..KEYS.min(tile * $N) } else { 0..0 };
            run!($device, &case, persistent::<$D, $N>, $stages, 2, programs, [KEYS, tiles], keys);
        }
    })*};
}

#[test]
fn turns_end() {
    check(|device| {
        run_all!(device, [64, 64, 2, [0, 1, 2, 3, 4]] [64, 32, 3, [5]] [128, 64, 2, [0, 3]] [64, 128, 2, [1]]);
        Ok(())
    });
}
