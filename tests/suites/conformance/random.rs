//! Random numbers.

use tilewright::prelude::*;

use crate::elements::equal;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![distributions(), limits()]
}

/// Philox 4x32 of ten rounds, after Salmon and others (2011).
fn philox(seed: u64, offset: u64) -> [u32; 4] {
    let (mut key, mut c) = ([seed as u32, (seed >> 32) as u32], [offset as u32, (offset >> 32) as u32, 0, 0]);
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// What Triton makes of a word: 31 bits of it, from 0 to below 1.
fn uniform(word: u32) -> f32 {
    let bits = word as i32;
    (if bits < 0 { -bits - 1 } else { bits }) as f32 * 4.656_612_7e-10
}

const OPS: [&str; 3] = ["randint", "rand", "randn"];

/// A module whose offsets are of that dtype.
macro_rules! draws {
    ($name:ident, $offset:ident) => {
        mod $name {
            use tilewright::prelude::*;

            #[kernel]
            pub fn drawn<const OP: i32, const SEED: i64>(seed: i64, words: PtrMut<u32>, floats: PtrMut<f32>, n: i32) {
                let i = program_id(0) * 1024 + arange(0, 1024);
                let offset = program_id(0) as $offset * 1024 + arange(0, 1024) as $offset;
                let mask = i < n;
                if OP == 0 {
                    store(words + i, if SEED < 0 { randint(seed, offset) } else { randint(SEED, offset) }, mask = mask);
                } else if OP == 1 {
                    store(floats + i, if SEED < 0 { rand(seed, offset) } else { rand(SEED, offset) }, mask = mask);
                } else {
                    store(floats + i, if SEED < 0 { randn(seed, offset) } else { randn(SEED, offset) }, mask = mask);
                }
            }

            #[kernel]
            pub fn four(offset: $offset, out: PtrMut<f32>, words: PtrMut<u32>) {
                let (a, b, c, d) = rand4x(0, offset);
                let (e, f, g, h) = randint4x(0, offset);
                store(out, a);
                store(out + 1, b);
                store(out + 2, c);
                store(out + 3, d);
                store(words, e);
                store(words + 1, f);
                store(words + 2, g);
                store(words + 3, h);
            }
        }
    };
}
draws!(narrow, i32);
draws!(wide, i64);

/// How many numbers the distributions are judged by.
const MANY: usize = 100_000;

/// What is drawn.
#[derive(Clone, Copy)]
struct Draw {
    op: usize,
    n: usize,
    seed: i64,
    /// Whether the seed is a constexpr.
    folded: bool,
    /// Whether offsets have 64 bits.
    long: bool,
}

impl Draw {
    fn name(self) -> String {
        let (place, offsets) =
            (if self.folded { "constexpr" } else { "argument" }, if self.long { "i64" } else { "i32" });
        format!("{} of {} {offsets}, seed {} as {place}", OPS[self.op], self.n, self.seed)
    }

    fn run(self, device: &Device) -> Outcome {
        let (n, count, grid) = (self.n, self.n as i32, self.n.div_ceil(1024));
        let (mut words, mut floats) = (device.zeros::<u32>(n)?, device.zeros::<f32>(n)?);
        let (op, seed) = (self.op as i32, if self.folded { self.seed } else { -1 });
        if self.long {
            let consts = wide::DrawnConsts { OP: op, SEED: seed };
            consts.call(self.seed, &mut words, &mut floats, count).grid(grid).launch(device)?;
        } else {
            let consts = narrow::DrawnConsts { OP: op, SEED: seed };
            consts.call(self.seed, &mut words, &mut floats, count).grid(grid).launch(device)?;
        }
        let want = (0..n as u64).map(|offset| philox(self.seed as u64, offset)[0]);
        match self.op {
            0 => equal(&words.to_vec()?, &want.collect::<Vec<u32>>()),
            1 => {
                let got = floats.to_vec()?;
                equal(&got, &want.map(uniform).collect::<Vec<f32>>())?;
                let inside = got.iter().all(|x| (0.0..1.0).contains(x));
                let distance = if n == MANY { distance(got) } else { 0.0 };
                if inside && distance < 0.01 { Ok(()) } else { Err(Failure(format!("distance {distance}"))) }
            }
            _ => normal(&floats.to_vec()?, self.seed as u64),
        }
    }
}

/// The largest difference between the distribution of some numbers and the uniform one (Kolmogorov and Smirnov).
fn distance(mut numbers: Vec<f32>) -> f64 {
    numbers.sort_by(f32::total_cmp);
    let n = numbers.len() as f64;
    let at = |(i, x): (usize, f32)| {
        let x = f64::from(x);
        (x - i as f64 / n).abs().max(((i + 1) as f64 / n - x).abs())
    };
    numbers.into_iter().enumerate().map(at).fold(0.0, f64::max)
}

/// Fails unless these are the numbers of Box and Muller, and of many the mean and the deviation are right.
fn normal(numbers: &[f32], seed: u64) -> Outcome {
    for (offset, &got) in numbers.iter().enumerate() {
        let words = philox(seed, offset as u64);
        let radius = (-2.0 * f64::from(uniform(words[0]).max(1.0e-7)).ln()).sqrt();
        let want = radius * (f64::from(uniform(words[1])) * std::f64::consts::TAU).cos();
        // The angle is rounded to f32: half a unit in the last place of a number up to 2 pi.
        if (f64::from(got) - want).abs() > radius * 1.0e-6 {
            return Err(Failure(format!("number {offset} is {got}, not {want}")));
        }
    }
    let average = |of: &dyn Fn(f64) -> f64| numbers.iter().map(|&x| of(f64::from(x))).sum::<f64>() / MANY as f64;
    let mean = average(&|x| x);
    let deviation = average(&|x| (x - mean).powi(2)).sqrt();
    let right = numbers.len() < MANY || mean.abs() < 1e-2 && (deviation - 1.0).abs() < 1e-2;
    if right { Ok(()) } else { Err(Failure(format!("mean {mean}, deviation {deviation}"))) }
}

fn distributions() -> Row {
    let mut row = Row::new("C84", "test_randint, test_rand, test_randn")
        .remarks("`rand` is compared bit by bit, `randn` number by number");
    let mut add = |draw: Draw| row.case(draw.name(), move |device| draw.run(device));
    for (folded, long) in [(true, true), (true, false), (false, true), (false, false)] {
        for seed in [0, 42, 124, 54, 0xFFFF_FFFF, 0xF_CAFE_B0BA] {
            for n in [10, 4 * 53, 400] {
                add(Draw { op: 0, n, seed, folded, long });
            }
        }
        for seed in [0, 42, 124, 54] {
            // The others give the same numbers, of which fewer are enough.
            let n = if folded || long { 5000 } else { MANY };
            add(Draw { op: 1, n, seed, folded, long });
            add(Draw { op: 2, n, seed, folded, long });
        }
    }
    row
}

fn limits() -> Row {
    /// Where the generator gives the words that uniform numbers are largest and smallest for.
    const EXTREMES: [(i64, usize, u32); 4] = [
        (648_093_868, 3, 0x8000_0000),
        (1_233_743_196, 2, 0x7FFF_FFFF),
        (1_498_094_372, 3, 0),
        (1_538_303_059, 1, u32::MAX),
    ];
    fn case(device: &Device, offset: i64, place: usize, word: u32, long: bool) -> Outcome {
        let (mut out, mut words) = (device.zeros::<f32>(4)?, device.zeros::<u32>(4)?);
        if long {
            wide::four(offset, &mut out, &mut words).grid(1).launch(device)?;
        } else {
            narrow::four(offset as i32, &mut out, &mut words).grid(1).launch(device)?;
        }
        equal(&words.to_vec()?, &philox(0, offset as u64))?;
        equal(&[words.to_vec()?[place]], &[word])?;
        let got = out.to_vec()?[place];
        let largest = word.wrapping_add(1) >> 1 == 1 << 30;
        let right = if largest { (1.0 - f32::EPSILON..1.0).contains(&got) } else { got == 0.0 };
        if right { Ok(()) } else { Err(Failure(format!("{got} of {word:#x}"))) }
    }
    let mut row = Row::new("C85", "test_rand_limits, test_seed_is_int")
        .remarks("at offsets whose words are the extreme ones")
        .elsewhere(2, "`kernel-macros/tests/messages/calls.txt` (seeds that are floats or tiles)");
    for (offset, place, word) in EXTREMES {
        row.case(format!("{word:#x}, i32"), move |device| case(device, offset, place, word, false));
        row.case(format!("{word:#x}, i64"), move |device| case(device, offset, place, word, true));
    }
    row
}
