//! Early return, short circuits, branches, loops and swaps.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn returns_early(out: PtrMut<i32>, n: i32) {
    let p = program_id(0);
    if p >= n {
        return;
    }
    store(out + p, p + 1);
}

#[test]
fn an_early_return_ends_the_program() {
    check(|device| {
        let mut out = device.zeros::<i32>(5)?;
        // Programs 5 to 63 would store out of bounds, and report it.
        returns_early(&mut out, 5).grid(64).launch(device)?;
        assert_eq!(out.to_vec()?, [1, 2, 3, 4, 5]);
        Ok(())
    });
}

#[kernel]
fn returns_from_branches(out: PtrMut<i32>, x: Ptr<i32>) {
    let p = program_id(0);
    let v = load(x + p);
    if v > 10 {
        store(out + p, 1);
        if v > 20 {
            return;
        }
        store(out + p, 2);
    } else {
        if v < 0 {
            return;
        }
        store(out + p, 3);
    }
    if v == 5 {
        return;
    }
    store(out + p, load(out + p) + 10);
}

#[test]
fn returns_inside_of_nested_branches() {
    check(|device| {
        let x = device.upload(&[25, 15, -1, 5, 7])?;
        let mut out = device.full(5, 100)?;
        returns_from_branches(&mut out, &x).grid(5).launch(device)?;
        assert_eq!(out.to_vec()?, [1, 12, 100, 3, 13]);
        Ok(())
    });
}

#[kernel]
fn short_circuit(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = program_id(0);
    // The loads are out of bounds where the left sides decide.
    let positive = i < n && load(x + i) > 0;
    let missing_or_zero = i >= n || load(x + i) == 0;
    let both = i < n && (load(x + i) < 0 || load(x + i + 1) < 0);
    let mut code = 0;
    if positive {
        code += 1;
    }
    if missing_or_zero {
        code += 10;
    }
    if both && !positive {
        code += 100;
    }
    store(out + i, code);
}

#[test]
fn and_and_or_evaluate_their_right_side_only_if_they_must() {
    check(|device| {
        // The last element is negative, so that `x[i + 1]` is never read for it.
        let x = device.upload(&[3, 0, 7, -2])?;
        let mut out = device.zeros::<i32>(8)?;
        short_circuit(&x, &mut out, 4).grid(8).launch(device)?;
        assert_eq!(out.to_vec()?, [1, 10, 1, 100, 10, 10, 10, 10]);
        Ok(())
    });
}

#[kernel]
fn divides_if_it_can(out: PtrMut<i32>, n: i32) {
    let i = program_id(0);
    let divides = n != 0 && i % n == 0;
    store(out + i, divides as i32);
}

#[test]
fn a_guard_before_a_division() {
    check(|device| {
        for n in [0, 1, 3, -2] {
            let mut out = device.zeros::<i32>(9)?;
            divides_if_it_can(&mut out, n).grid(9).launch(device)?;
            let want: Vec<i32> = (0..9).map(|i| i32::from(n != 0 && i % n == 0)).collect();
            assert_eq!(out.to_vec()?, want, "n = {n}");
        }
        Ok(())
    });
}

#[kernel]
fn divides_constexprs<const N: usize, const M: usize>(out: PtrMut<i32>, n: i32) {
    static_assert!(N == 0 || M % N == 0);
    let i = program_id(0);
    let both = N != 0 && M / N > 4;
    let all = N != 0 && i < n && M / N > 2;
    let behind = i < n && N != 0 && M / N > 2;
    store(out + i, both as i32 + 10 * (all as i32) + 100 * (behind as i32));
}

#[test]
fn a_guard_before_a_division_of_constexprs() {
    check(|device| {
        for (divisor, want) in [(0, [0, 0, 0]), (2, [111, 111, 1]), (4, [110, 110, 0])] {
            let mut out = device.zeros::<i32>(3)?;
            DividesConstexprsConsts { N: divisor, M: 8 * divisor.clamp(1, 2) }
                .call(&mut out, 2)
                .grid(3)
                .launch(device)?;
            assert_eq!(out.to_vec()?, want, "N = {divisor}");
        }
        Ok(())
    });
}

#[kernel]
fn fibonacci(out: PtrMut<i64>) {
    let n = program_id(0);
    let mut a = 0i64;
    let mut b = 1i64;
    for _ in 0..n {
        (a, b) = (b, a + b);
    }
    store(out + n, a);
}

#[test]
fn tuples_swap_in_loops() {
    check(|device| {
        let mut out = device.zeros::<i64>(40)?;
        fibonacci(&mut out).grid(40).launch(device)?;
        let mut want = vec![0i64, 1];
        (2..40).for_each(|i| want.push(want[i - 1] + want[i - 2]));
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn ranges(out: PtrMut<i64>, lo: i32, hi: i32, step: i32) {
    let mut forwards = 0i64;
    let mut count = 0i64;
    for i in (lo..hi).step_by(step) {
        forwards = forwards * 31 + i as i64;
        count += 1;
    }
    let mut backwards = 0i64;
    for i in (lo..hi).rev() {
        backwards = backwards * 31 + i as i64;
    }
    let mut both = 0i64;
    for i in (lo..hi).step_by(step).rev() {
        both = both * 31 + i as i64;
    }
    let mut from_the_end = 0i64;
    for i in (lo..hi).rev().step_by(step) {
        from_the_end = from_the_end * 31 + i as i64;
    }
    store(out, forwards);
    store(out + 1, count);
    store(out + 2, backwards);
    store(out + 3, both);
    store(out + 4, from_the_end);
}

#[test]
fn ranges_of_every_kind() {
    let max = i32::MAX;
    let cases = [
        (0, 10, 1),
        (0, 10, 3),
        (0, 9, 3),
        (5, 5, 1),
        (7, 2, 1),
        (0, 3, 100),
        (-7, 8, 5),
        // The value after the last one does not fit.
        (max - 4, max, 3),
        (max - 1, max, max),
        (max - 9, max, 1),
        (i32::MIN, i32::MIN + 5, 2),
    ];
    check(|device| {
        for (lo, hi, step) in cases {
            let mut out = device.zeros::<i64>(5)?;
            ranges(&mut out, lo, hi, step).grid(1).launch(device)?;
            let hash = |values: &mut dyn Iterator<Item = i32>| {
                values.fold(0i64, |hash, i| hash.wrapping_mul(31).wrapping_add(i64::from(i)))
            };
            let stepped: Vec<i32> = (lo..hi).step_by(step as usize).collect();
            let want = [
                hash(&mut stepped.iter().copied()),
                stepped.len() as i64,
                hash(&mut (lo..hi).rev()),
                hash(&mut stepped.iter().rev().copied()),
                hash(&mut (lo..hi).rev().step_by(step as usize)),
            ];
            assert_eq!(out.to_vec()?, want, "({lo}..{hi}).step_by({step})");
        }
        Ok(())
    });
}

#[kernel]
fn triangle<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, rows: i32) {
    let column = arange(0, BLOCK);
    let mut total = zeros::<f32>([BLOCK]);
    let mut largest = full([BLOCK], f32::NEG_INFINITY);
    for i in 0..rows {
        let mut row = zeros::<f32>([BLOCK]);
        for j in 0..i + 1 {
            let value = load(x + j * BLOCK + column);
            row += value;
            if j % 2 == 1 {
                row -= 0.5;
            }
            largest = maximum(largest, value);
        }
        total += row * (i as f32);
    }
    store(out + column, total);
    store(out + BLOCK + column, largest);
}

#[test]
fn nested_loops_carry_tiles() {
    check(|device| {
        for rows in [0i32, 1, 2, 7] {
            let xs: Vec<f32> = (0..8 * 64).map(|i| ((i * 31) % 17) as f32).collect();
            let x = device.upload(&xs)?;
            let mut out = device.zeros::<f32>(128)?;
            triangle::<64>(&x, &mut out, rows).grid(1).launch(device)?;
            let mut want = vec![0.0f32; 64];
            want.extend([f32::NEG_INFINITY; 64]);
            for i in 0..rows as usize {
                for c in 0..64 {
                    let row: f32 = (0..=i).map(|j| xs[j * 64 + c] - if j % 2 == 1 { 0.5 } else { 0.0 }).sum();
                    want[c] += row * i as f32;
                    (0..=i).for_each(|j| want[64 + c] = want[64 + c].max(xs[j * 64 + c]));
                }
            }
            // Small halves of integers: exact in f32 in any order.
            assert_eq!(out.to_vec()?, want, "{rows} rows");
        }
        Ok(())
    });
}

#[kernel]
fn collatz(out: PtrMut<i32>) {
    let p = program_id(0);
    let mut n = p as i64 + 1;
    let mut steps = 0;
    while n != 1 {
        n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    store(out + p, steps);
}

#[test]
fn while_loops() {
    check(|device| {
        let mut out = device.zeros::<i32>(100)?;
        collatz(&mut out).grid(100).launch(device)?;
        let steps = |mut n: i64| {
            let mut steps = 0;
            while n != 1 {
                n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
                steps += 1;
            }
            steps
        };
        assert_eq!(out.to_vec()?, (1..=100).map(steps).collect::<Vec<i32>>());
        Ok(())
    });
}

#[kernel]
fn branches<const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>, mode: i32) {
    let i = arange(0, BLOCK);
    let v = load(x + i);
    let (a, b) = if mode == 0 {
        (v, v + 1)
    } else if mode == 1 {
        let doubled = v * 2;
        (doubled, v)
    } else {
        (v - v, full([BLOCK], mode))
    };
    let mut c = a;
    if mode > 0 {
        c += b;
        // Shadows without touching the outer one.
        let a = 100;
        c += a;
    } else if mode < 0 {
        c -= 7;
    }
    store(out + i, a);
    store(out + BLOCK + i, b);
    store(out + 2 * BLOCK + i, c);
}

#[test]
fn branches_as_statements_and_expressions() {
    check(|device| {
        let xs: Vec<i32> = (0..32).collect();
        let x = device.upload(&xs)?;
        for mode in [0, 1, 2, -3] {
            let mut out = device.zeros::<i32>(96)?;
            branches::<32>(&x, &mut out, mode).grid(1).launch(device)?;
            let per_element = |v: i32| {
                let (a, b) = match mode {
                    0 => (v, v + 1),
                    1 => (v * 2, v),
                    _ => (0, mode),
                };
                let c = if mode > 0 { a + b + 100 } else { a - if mode < 0 { 7 } else { 0 } };
                [a, b, c]
            };
            let got = out.to_vec()?;
            for (i, &v) in xs.iter().enumerate() {
                assert_eq!([got[i], got[32 + i], got[64 + i]], per_element(v), "mode {mode}, element {i}");
            }
        }
        Ok(())
    });
}

#[kernel]
fn pipelined_sum<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let lane = arange(0, BLOCK);
    let mut total = zeros::<f32>([BLOCK]);
    #[stages(3)]
    for start in (0..n).step_by(BLOCK) {
        let i = start + lane;
        total += load(x + i, mask = i < n);
    }
    store(out, sum(total, axis = 0));
}

#[test]
fn loops_shorter_than_their_pipeline() {
    check(|device| {
        for n in [0usize, 1, 64, 65, 128, 129, 192, 200, 640] {
            let x = device.full(n.max(1), 1.0f32)?;
            for stages in [1, 2, 3, 4, 5] {
                let mut out = device.full(1, -1.0f32)?;
                pipelined_sum::<64>(&x, &mut out, n as i32).num_stages(stages).grid(1).launch(device)?;
                assert_eq!(out.to_vec()?, [n as f32], "{n} elements, {stages} stages");
            }
        }
        Ok(())
    });
}
