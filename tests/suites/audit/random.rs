//! Random numbers: the bits of Philox 4x32, and what is made of them.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Philox 4x32 in plain Rust.
fn philox(key: u64, counter: [u32; 4], rounds: u32) -> [u32; 4] {
    let (mut k, mut c) = ([key as u32, (key >> 32) as u32], counter);
    let product = |a: u32, b: u32| (u64::from(a) * u64::from(b)) as u32;
    let high = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    for _ in 0..rounds {
        let (a, b) = (0xD251_1F53, 0xCD9E_8D57);
        c = [high(b, c[2]) ^ c[1] ^ k[0], product(b, c[2]), high(a, c[0]) ^ c[3] ^ k[1], product(a, c[0])];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

fn uniform(word: u32) -> f32 {
    let bits = word as i32;
    (if bits < 0 { -bits - 1 } else { bits }) as f32 * 4.656_612_7e-10
}

/// The generator's authors give this answer for a key and a counter of zeros.
#[test]
fn the_reference_knows_the_published_answer() {
    assert_eq!(philox(0, [0; 4], 10), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let ones = philox(u64::MAX, [u32::MAX; 4], 10);
    assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
}

#[kernel]
fn words<S: Int>(seed: S, first: i64, wide: PtrMut<u32>, narrow: PtrMut<u32>, few: PtrMut<u32>) {
    let i = arange(0, 256);
    let (a, b, c, d) = randint4x(seed, i as i64 + first);
    store(wide + i, a);
    store(wide + 256 + i, b);
    store(wide + 512 + i, c);
    store(wide + 768 + i, d);
    store(narrow + i, randint(seed, i));
    store(few + i, randint(seed, i as u32, n_rounds = 7));
}

#[test]
fn words_are_those_of_the_reference() {
    check(|device| {
        for (seed, first) in [(0u64, 0i64), (1, 1 << 33), (u64::MAX, -5), (0x1234_5678_9abc_def0, i64::MAX - 99)] {
            let mut wide = device.zeros::<u32>(1024)?;
            let (mut narrow, mut few) = (device.zeros::<u32>(256)?, device.zeros::<u32>(256)?);
            words(seed, first, &mut wide, &mut narrow, &mut few).grid(1).launch(device)?;
            let (wide, narrow, few) = (wide.to_vec()?, narrow.to_vec()?, few.to_vec()?);
            for i in 0..256 {
                let offset = (i as i64).wrapping_add(first);
                let want = philox(seed, [offset as u32, (offset >> 32) as u32, 0, 0], 10);
                let got = [0, 1, 2, 3].map(|word| wide[word * 256 + i]);
                assert_eq!(got, want, "seed {seed}, offset {offset}");
                assert_eq!(narrow[i], philox(seed, [i as u32, 0, 0, 0], 10)[0]);
                assert_eq!(few[i], philox(seed, [i as u32, 0, 0, 0], 7)[0]);
            }
            // A narrower seed is extended as Rust extends it.
            let mut again = device.zeros::<u32>(1024)?;
            let (mut n, mut f) = (device.zeros::<u32>(256)?, device.zeros::<u32>(256)?);
            words(-3i32, 0, &mut again, &mut n, &mut f).grid(1).launch(device)?;
            assert_eq!(again.to_vec()?[0], philox(-3i64 as u64, [0; 4], 10)[0]);
        }
        Ok(())
    });
}

#[kernel]
fn floats<const N: usize>(seed: u32, uniforms: PtrMut<f32>, normals: PtrMut<f32>) {
    let i = program_id(0) * N + arange(0, N);
    let (a, b, c, d) = rand4x(seed, i);
    store(uniforms + i * 4, a);
    store(uniforms + (i * 4 + 1), b);
    store(uniforms + (i * 4 + 2), c);
    store(uniforms + (i * 4 + 3), d);
    let (e, f, g, h) = randn4x(seed, i);
    store(normals + i * 4, select(e == randn(seed, i), e, f32::NAN));
    store(normals + (i * 4 + 1), f);
    store(normals + (i * 4 + 2), g);
    store(normals + (i * 4 + 3), select(a == rand(seed, i), h, f32::NAN));
}

#[test]
fn floats_are_uniform_and_normal() {
    check(|device| {
        let n = 4096;
        let (mut uniforms, mut normals) = (device.zeros::<f32>(4 * n)?, device.zeros::<f32>(4 * n)?);
        floats::<512>(42, &mut uniforms, &mut normals).grid(n as u32 / 512).launch(device)?;
        let (uniforms, normals) = (uniforms.to_vec()?, normals.to_vec()?);
        for i in 0..n {
            let want = philox(42, [i as u32, 0, 0, 0], 10).map(uniform);
            assert_eq!(uniforms[4 * i..][..4], want);
            for pair in 0..2 {
                let (radius, angle) = (want[2 * pair].max(1.0e-7), want[2 * pair + 1]);
                let radius = (-2.0 * f64::from(radius).ln()).sqrt();
                let angle = f64::from(angle) * std::f64::consts::TAU;
                for (word, want) in [radius * angle.cos(), radius * angle.sin()].into_iter().enumerate() {
                    let got = f64::from(normals[4 * i + 2 * pair + word]);
                    // The angle is rounded to f32: half a unit in the last place of a number up to 2 pi.
                    assert!((got - want).abs() <= radius * 1.0e-6, "{got} instead of {want}");
                }
            }
        }
        let mean = |xs: &[f32]| xs.iter().map(|&x| f64::from(x)).sum::<f64>() / xs.len() as f64;
        let square = |xs: &[f32]| xs.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / xs.len() as f64;
        // Of 16384 numbers, means stay within five standard errors.
        assert!((mean(&uniforms) - 0.5).abs() < 5.0 * (1.0f64 / 12.0 / 16384.0).sqrt());
        assert!(mean(&normals).abs() < 5.0 / 128.0 && (square(&normals) - 1.0).abs() < 5.0 * (2.0f64 / 16384.0).sqrt());
        Ok(())
    });
}
