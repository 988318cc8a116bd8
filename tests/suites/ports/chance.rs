//! What chance decides.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use crate::{close, numbers};

/// A token per row: one of the likeliest that together have the probability `share`, drawn by their probabilities.
#[kernel]
fn drawn<T: Float, const N: usize>(
    logits: Ptr<T>,
    tokens: PtrMut<i32>,
    kept: PtrMut<i32>,
    tokens_of_row: i32,
    share: f32,
    temperature: f32,
    seed: u64,
) {
    let row = program_id(0);
    let i = arange(0, N);
    let x = load(logits + row * tokens_of_row + i, mask = i < tokens_of_row, other = T::NEG_INFINITY) as f32;
    let order = argsort(x, descending = true);
    let p = softmax(gather(x, order) / temperature);
    let until = cumsum(p);
    // The one that goes beyond the share is among them.
    let among = until - p < share;
    let total = sum(select(among, p, 0.0));
    let chance = rand(seed, row) * total;
    let choice = argmax((until > chance) as i32);
    let last = sum(among as i32) - 1;
    store(tokens + row, sum(select(i == minimum(choice, last), order, 0)));
    store(kept + row, last + 1);
}

#[test]
fn tokens_are_drawn_from_the_likeliest() {
    check(|device| {
        let (rows, width) = (200usize, 50usize);
        // The same row again and again, so that frequencies show.
        let row: Vec<f32> = numbers(width, 13).iter().map(|x| x * 4.0).collect();
        let logits = row.repeat(rows);
        let (x, mut tokens) = (device.upload(&logits)?, device.zeros::<i32>(rows)?);
        let mut kept = device.zeros::<i32>(rows)?;
        let (share, temperature) = (0.8, 0.7);
        drawn::<_, 64>(&x, &mut tokens, &mut kept, width as i32, share, temperature, 1234).grid(rows).launch(device)?;
        let mut order: Vec<usize> = (0..width).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let weight = |i: usize| (f64::from(row[i]) / f64::from(temperature)).exp();
        let all: f64 = (0..width).map(weight).sum();
        let mut sum = 0.0;
        let count = order.iter().take_while(|&&i| {
            let is_among = sum < f64::from(share);
            sum += weight(i) / all;
            is_among
        });
        let count = count.count();
        assert_eq!(kept.to_vec()?, vec![count as i32; rows]);
        let tokens = tokens.to_vec()?;
        assert!(tokens.iter().all(|&token| order[..count].contains(&(token as usize))));
        // The likeliest comes about as often as it should: within five standard deviations.
        let p = weight(order[0]) / order[..count].iter().map(|&i| weight(i)).sum::<f64>();
        let often = tokens.iter().filter(|&&token| token as usize == order[0]).count() as f64;
        let (mean, deviation) = (rows as f64 * p, (rows as f64 * p * (1.0 - p)).sqrt());
        assert!((often - mean).abs() < 5.0 * deviation, "{often}, not about {mean}");
        Ok(())
    });
}

/// The price of an option whose worth depends on the mean of a price over time: four paths in each element.
#[kernel]
fn priced<const BLOCK: usize, const STEPS: usize = 8>(
    total: PtrMut<f64>,
    start: f32,
    strike: f32,
    rate: f32,
    volatility: f32,
    years: f32,
    seed: u64,
) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let step = years / STEPS as f32;
    let (drift, spread) = ((rate - 0.5 * volatility * volatility) * step, volatility * sqrt(step));
    let grown = |price, chance| price * exp(drift + spread * chance);
    let worth = |mean| maximum(mean / STEPS as f32 - strike, 0.0);
    let mut price = (full([BLOCK], start), full([BLOCK], start), full([BLOCK], start), full([BLOCK], start));
    let mut mean = (zeros([BLOCK]), zeros([BLOCK]), zeros([BLOCK]), zeros([BLOCK]));
    for t in 0..STEPS {
        let (a, b, c, d) = randn4x(seed, i * STEPS + t);
        let (pa, pb, pc, pd) = price;
        price = (grown(pa, a), grown(pb, b), grown(pc, c), grown(pd, d));
        let ((pa, pb, pc, pd), (ma, mb, mc, md)) = (price, mean);
        mean = (ma + pa, mb + pb, mc + pc, md + pd);
    }
    let (a, b, c, d) = mean;
    let all = worth(a) + worth(b) + worth(c) + worth(d);
    atomic_add(total, sum(all as f64) * exp(-rate * years) as f64, order = relaxed);
}

#[test]
fn options_have_their_price() {
    check(|device| {
        let paths = 4 * 4096;
        let mut total = device.zeros::<f64>(1)?;
        priced::<256>(&mut total, 100.0, 100.0, 0.05, 0.0, 1.0, 5).grid(4096 / 256).launch(device)?;
        // Without chance the price is that of a deposit.
        let mean: f64 = (1..=8).map(|t| 100.0 * (0.05 * f64::from(t) / 8.0).exp()).sum::<f64>() / 8.0;
        let want = (mean - 100.0) * (-0.05f64).exp();
        close((total.to_vec()?[0] / f64::from(paths)) as f32, want, 1e-3);
        total.fill(0.0)?;
        priced::<256>(&mut total, 100.0, 100.0, 0.05, 0.2, 1.0, 5).grid(4096 / 256).launch(device)?;
        let price = total.to_vec()?[0] / f64::from(paths);
        // The geometric mean has a formula, which is a little below: 6.0 and 6.3 with eight steps. A path's worth has a
        // standard deviation below 10, the mean of 16384 paths one below 0.08.
        assert!((5.8..6.8).contains(&price), "{price}");
        Ok(())
    });
}
