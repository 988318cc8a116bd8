//! Dropout whose mask is a function of seed and index: Philox 4x32-10, bit for bit Triton's `tl.rand`.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::element::Element;
use tilewright_bench::{Failure, Stage, Submit};

use super::elementwise::Elementwise;

const SEED: i32 = 1234;
const P: f32 = 0.3;

/// `out = x / (1 - p)` where a uniform number in 0..1 is above `p`, else 0.
///
/// The number is the first word of Philox with the counter `(index, 0, 0, 0)` and the key `(seed, 0)`.
#[kernel]
pub fn dropout<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32, seed: i32, p: f32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let mut c0 = offsets as u32;
    let mut c1 = zeros::<u32>([BLOCK]);
    let mut c2 = zeros::<u32>([BLOCK]);
    let mut c3 = zeros::<u32>([BLOCK]);
    let mut k0 = seed as u32;
    let mut k1 = 0u32;
    #[unroll]
    for _round in 0..10 {
        let (a, b) = (c0, c2);
        c0 = umulhi(b, 0xCD9E8D57) ^ c1 ^ k0;
        c2 = umulhi(a, 0xD2511F53) ^ c3 ^ k1;
        c1 = b * 0xCD9E8D57;
        c3 = a * 0xD2511F53;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    let bits = bitcast::<i32>(c0);
    // The largest i32 times the scale is just below 1.
    let uniform = select(bits < 0, -bits - 1, bits) as f32 * 4.6566127342e-10;
    let value = load(x + offsets, mask = mask) as f32;
    store(out + offsets, select(uniform > p, value / (1.0 - p), 0.0) as T, mask = mask);
}

/// The uniform number of an index.
fn uniform(index: u32) -> f32 {
    let (mut c, mut k) = ([index, 0, 0, 0], [SEED as u32, 0u32]);
    for _ in 0..10 {
        let wide = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let (a, b) = (wide(c[0], 0xD2511F53), wide(c[2], 0xCD9E8D57));
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E3779B9), k[1].wrapping_add(0xBB67AE85)];
    }
    let bits = c[0] as i32;
    (if bits < 0 { -(bits + 1) } else { bits }) as f32 * 4.656_612_7e-10
}

fn work<T: Element>() -> Elementwise<T> {
    Elementwise {
        work: "dropout",
        inputs: 1,
        methods: vec![("", |c, how| {
            let grid = c.programs();
            let consts = DropoutConsts { BLOCK: c.block };
            consts.call(c.x[0], c.out, c.n, SEED, P).grid(grid).num_warps(c.warps).submit(how)
        })],
        extra: vec![Argument::I32(SEED), Argument::F32(P)],
        reference: |i, x| if uniform(i as u32) > P { x[0] / f64::from(1.0 - P) } else { 0.0 },
        arithmetic: 5e-7,
    }
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    for vector in stage.vectors(vec![1 << 26]) {
        work::<f32>().contest(stage, vector)?;
        work::<bf16>().contest(stage, vector)?;
    }
    Ok(())
}
