//! Best paths: time warping along diagonals, and Viterbi's algorithm.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use crate::numbers;

/// The element before, and `first` for the first one.
#[device]
fn shifted<const N: usize>(x: Tile<f32, { [N] }>, first: f32) -> Tile<f32, { [N] }> {
    let i = arange(0, N);
    select(i == 0, first, gather(x, maximum(i - 1, 0)))
}

/// The cost of the cheapest alignment of two series, one pair per program: a diagonal of the table after the other.
#[kernel]
fn warped<const N: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32, m: i32) {
    let pair = program_id(0);
    let i = arange(0, N);
    let own = load(x + pair * n + i, mask = i < n);
    let mut last = full([N], f32::INFINITY);
    let mut before = last;
    for diagonal in 0..n + m - 1 {
        let j = diagonal - i;
        let inside = (i < n) & (j >= 0) & (j < m);
        let cost = abs(own - load(y + pair * m + j, mask = inside));
        // Nothing is before the first cell.
        let corner = if diagonal == 0 { 0.0 } else { f32::INFINITY };
        let cheapest = minimum(minimum(last, shifted(last, f32::INFINITY)), shifted(before, corner));
        before = last;
        last = select(inside, cost + cheapest, f32::INFINITY);
    }
    store(out + pair, min(select(i == n - 1, last, f32::INFINITY)));
}

#[test]
fn series_are_warped() {
    check(|device| {
        for (n, m) in [(1usize, 1usize), (5, 9), (32, 20), (17, 1)] {
            // Sixteenths, whose sums are exact.
            let coarse = |len, seed| numbers(len, seed).iter().map(|x| (x * 16.0).round() / 16.0).collect::<Vec<f32>>();
            let (x, y) = (coarse(3 * n, 7), coarse(3 * m, 8));
            let (a, b, mut out) = (device.upload(&x)?, device.upload(&y)?, device.zeros::<f32>(3)?);
            warped::<32>(&a, &b, &mut out, n as i32, m as i32).grid(3).launch(device)?;
            let want = |pair: usize| {
                let mut table = vec![vec![f32::INFINITY; m + 1]; n + 1];
                table[0][0] = 0.0;
                for (i, j) in (1..=n).flat_map(|i| (1..=m).map(move |j| (i, j))) {
                    let cost = (x[pair * n + i - 1] - y[pair * m + j - 1]).abs();
                    table[i][j] = cost + table[i - 1][j].min(table[i][j - 1]).min(table[i - 1][j - 1]);
                }
                table[n][m]
            };
            assert_eq!(out.to_vec()?, [0, 1, 2].map(want), "{n} and {m}");
        }
        Ok(())
    });
}

/// The likeliest states of hidden Markov chains, one chain per program. `emitted` is `[chains, steps, states]`.
#[kernel]
fn decoded<const S: usize>(
    change: Ptr<f32>,
    emitted: Ptr<f32>,
    from: PtrMut<i32>,
    path: PtrMut<i32>,
    steps: i32,
    states: i32,
) {
    let chain = program_id(0);
    let s = arange(0, S);
    let known = s < states;
    let likely = load(change + s[(.., None)] * states + s, mask = known[(.., None)] & known, other = f32::NEG_INFINITY);
    let rows = chain as i64 * steps as i64;
    let emit = |step| load(emitted + (rows + step as i64) * states as i64 + s, mask = known, other = f32::NEG_INFINITY);
    let mut score = emit(0);
    for step in 1..steps {
        let (best, came) = max(score[(.., None)] + likely, axis = 0, return_indices = true);
        store(from + (rows + step as i64) * states as i64 + s, came, mask = known);
        score = best + emit(step);
    }
    let mut state = argmax(score);
    for step in (0..steps).rev() {
        store(path + rows + step as i64, state);
        if step > 0 {
            state = load(from + (rows + step as i64) * states as i64 + state);
        }
    }
}

#[test]
fn the_likeliest_states_are_found() {
    check(|device| {
        let (chains, steps, states) = (3usize, 12usize, 6usize);
        // Sums of sixteenths are exact, and unlike enough that the best path is one alone or the first of equals.
        let coarse = |len, seed| numbers(len, seed).iter().map(|x| (x * 16.0).round() / 16.0).collect::<Vec<f32>>();
        let (change, emitted) = (coarse(states * states, 9), coarse(chains * steps * states, 10));
        let (a, b) = (device.upload(&change)?, device.upload(&emitted)?);
        let mut from = device.zeros::<i32>(chains * steps * states)?;
        let mut path = device.zeros::<i32>(chains * steps)?;
        decoded::<8>(&a, &b, &mut from, &mut path, steps as i32, states as i32).grid(chains).launch(device)?;
        let first_best =
            |scores: &[f32]| (0..scores.len()).fold(0, |best, i| if scores[i] > scores[best] { i } else { best });
        let mut want = Vec::new();
        for chain in 0..chains {
            let at = |step: usize, s: usize| emitted[(chain * steps + step) * states + s];
            let mut score: Vec<f32> = (0..states).map(|s| at(0, s)).collect();
            let mut came = vec![vec![0; states]];
            for step in 1..steps {
                let through =
                    |s: usize| -> Vec<f32> { (0..states).map(|r| score[r] + change[r * states + s]).collect() };
                let best: Vec<usize> = (0..states).map(|s| first_best(&through(s))).collect();
                score = (0..states).map(|s| through(s)[best[s]] + at(step, s)).collect();
                came.push(best);
            }
            let mut states = vec![first_best(&score)];
            for step in (1..steps).rev() {
                states.push(came[step][states[states.len() - 1]]);
            }
            want.extend(states.iter().rev().map(|&s| s as i32));
        }
        assert_eq!(path.to_vec()?, want);
        Ok(())
    });
}
