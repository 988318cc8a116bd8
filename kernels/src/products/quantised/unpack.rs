//! What packed numbers stand for.

use tilewright::prelude::*;

/// `(number - zero) * scale`, where the lower 4 bits of `number` count. The difference is exact, the product rounds once.
///
/// The bits are put into the fraction of a float whose unit in the last place is 1, 1024 in f16 and 128 in bf16, and those of
/// `zero`, which is at most 16, into that of its negative: no conversion from integers, and one addition.
#[device]
pub(super) fn int4_number<F: Float, const K: usize, const N: usize>(
    number: Tile<i32, { [K, N] }>,
    zero: Tile<i32, { [N] }>,
    scale: Tile<F, { [N] }>,
) -> Tile<F, { [K, N] }> {
    if F == f16 {
        let number = bitcast::<f16>((number as i16 & 15) | 0x6400);
        (number + bitcast::<f16>((zero | 0xe400) as i16)) as F * scale
    } else if F == bf16 {
        let number = bitcast::<bf16>((number as i16 & 15) | 0x4300);
        (number + bitcast::<bf16>((zero | 0xc300) as i16)) as F * scale
    } else {
        ((number & 15) - zero) as F * scale
    }
}

/// [`int4_number`] of neighbouring columns in pairs: of `pair` the lowest 4 bits of either half count, for a column of an even
/// number and the next one.
///
/// Both get the bits of their floats by the instructions that one would take.
#[device]
pub(super) fn int4_pairs<F: Float, const K: usize, const P: usize, const N: usize>(
    pair: Tile<i32, { [K, P] }>,
    zero: Tile<i32, { [N] }>,
    scale: Tile<F, { [N] }>,
) -> Tile<F, { [K, N] }> {
    static_assert!(P == N / 2);
    static_assert!(N % 2 == 0);
    let bits = pair & 0x000f_000f;
    if F == f16 {
        let bits = bits | 0x6400_6400;
        let number = reshape(join(bits as i16, (bits >> 16) as i16), [K, N]);
        (bitcast::<f16>(number) + bitcast::<f16>((zero | 0xe400) as i16)) as F * scale
    } else if F == bf16 {
        let bits = bits | 0x4300_4300;
        let number = reshape(join(bits as i16, (bits >> 16) as i16), [K, N]);
        (bitcast::<bf16>(number) + bitcast::<bf16>((zero | 0xc300) as i16)) as F * scale
    } else {
        (reshape(join(bits & 15, bits >> 16), [K, N]) - zero) as F * scale
    }
}

/// `number - zero` of all 4-bit numbers of words, in pairs of one from each half: element `[.., m, h, e]` is at bit
/// `8 m + 4 h + 16 e`, and has the zero `[.., m, h]`.
///
/// In f16 numbers of odd places stay where they are, 4 bits higher in the fraction: as `64 + number` their float is a
/// sixteenth, which is multiplied by as the zero is subtracted, exactly.
#[device]
pub(super) fn int4_halves<F: Float, const A: usize, const N: usize>(
    word: Tile<i32, { [A, N] }>,
    zero: Tile<i32, { [N, 2, 2] }>,
) -> Tile<F, { [A, N, 2, 2, 2] }> {
    let byte = word[(.., .., None)] >> (arange(0, 2) * 8);
    let (low, high) = (byte & 0x000f_000f, byte & 0x00f0_00f0);
    let (zero_low, zero_high) = split(zero);
    let (low, high) = if F == f16 {
        let (low, high) = (low | 0x6400_6400, high | 0x6400_6400);
        let low = bitcast::<f16>(join(low as i16, (low >> 16) as i16));
        let high = bitcast::<f16>(join(high as i16, (high >> 16) as i16));
        let low = low + bitcast::<f16>((zero_low | 0xe400) as i16)[(.., .., None)];
        let high = high * 0.0625 + bitcast::<f16>((zero_high * 16 | 0xd400) as i16)[(.., .., None)];
        (low as F, high as F)
    } else if F == bf16 {
        let (low, high) = (low | 0x4300_4300, (high >> 4) | 0x4300_4300);
        let low = bitcast::<bf16>(join(low as i16, (low >> 16) as i16));
        let high = bitcast::<bf16>(join(high as i16, (high >> 16) as i16));
        let low = low + bitcast::<bf16>((zero_low | 0xc300) as i16)[(.., .., None)];
        let high = high + bitcast::<bf16>((zero_high | 0xc300) as i16)[(.., .., None)];
        (low as F, high as F)
    } else {
        let low = join(low & 15, low >> 16) - zero_low[(.., .., None)];
        let high = join(high >> 4 & 15, high >> 20) - zero_high[(.., .., None)];
        (low as F, high as F)
    };
    permute(join(low, high), [0, 1, 2, 4, 3])
}

/// The 16 numbers of NF4 by a tree of comparisons with bits: of 4 bits the third to first choose among halves.
#[device]
pub(super) fn nf4_number<const N: usize, const K: usize>(code: Tile<u8, { [N, K] }>) -> Tile<f32, { [N, K] }> {
    let (one, two, four) = (code & 1 != 0, code & 2 != 0, code & 4 != 0);
    let negative = select(
        four,
        select(two, select(one, 0.0, -0.091_050_036), select(one, -0.184_773_43, -0.284_441_38)),
        select(two, select(one, -0.394_917_5, -0.525_073_05), select(one, -0.696_192_8, -1.0)),
    );
    let positive = select(
        four,
        select(two, select(one, 1.0, 0.722_956_84), select(one, 0.562_617, 0.440_709_83)),
        select(two, select(one, 0.337_915_24, 0.246_112_3), select(one, 0.160_930_2, 0.079_580_3)),
    );
    select(code & 8 != 0, positive, negative)
}

/// The numbers of NF4 (Dettmers, Pagnoni, Holtzman and Zettlemoyer, "QLoRA", 2023, appendix E).
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
