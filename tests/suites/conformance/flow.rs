//! Loops and conditions.

use tilewright::prelude::*;

use crate::elements::{Element, equal};
use crate::for_integers;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![nested_loops(), counters(), conditions(), unrolled()]
}

/// Launches with a buffer of one number, and gives what is there then.
pub fn stored<T: Element>(
    device: &Device,
    before: T,
    launch: impl FnOnce(&mut Buffer<T>) -> Result<(), Error>,
) -> Result<T, Error> {
    let mut out = device.full(1, before)?;
    launch(&mut out)?;
    Ok(out.to_vec()?[0])
}

#[kernel]
fn nested(out: PtrMut<i32>, n: i32) {
    let mut sum = 0;
    for i in 0..n {
        sum = sum * 3 + i;
        for j in 0..n {
            sum = sum * 5 + i * j;
        }
    }
    store(out, sum);
}

fn nested_loops() -> Row {
    let mut row =
        Row::new("C71", "test_tl_range_fuse").remarks("`flatten` has no counterpart: results alone are tested");
    for n in [0i32, 1, 2, 10] {
        row.case(format!("{n} times {n} iterations"), move |device| {
            let mut want = 0i32;
            for i in 0..n {
                want = want.wrapping_mul(3).wrapping_add(i);
                want = (0..n).fold(want, |sum, j| sum.wrapping_mul(5).wrapping_add(i * j));
            }
            let got = stored(device, -1, |out| nested(out, n).grid(1).launch(device))?;
            equal(&[got], &[want])
        });
    }
    row
}

#[kernel]
fn counted<I: Int, const FORM: i32>(lo: I, hi: I, step: I, out: PtrMut<i64>) {
    let mut sum = 7;
    if FORM == 0 {
        for i in lo..hi {
            sum = sum * 31 + i as i64;
        }
    } else if FORM == 1 {
        for i in (lo..hi).step_by(step) {
            sum = sum * 31 + i as i64;
        }
    } else if FORM == 2 {
        for i in (lo..hi).rev() {
            sum = sum * 31 + i as i64;
        }
    } else if FORM == 3 {
        for i in (lo..hi).rev().step_by(step) {
            sum = sum * 31 + i as i64;
        }
    } else if FORM == 4 {
        for i in (lo..hi).step_by(step).rev() {
            sum = sum * 31 + i as i64;
        }
    } else if FORM == 5 {
        for i in lo..=hi {
            sum = sum * 31 + i as i64;
        }
    } else if FORM == 6 {
        for i in (lo..=hi).rev() {
            sum = sum * 31 + i as i64;
        }
    } else {
        for i in (lo..=hi).step_by(step) {
            sum = sum * 31 + i as i64;
        }
    }
    store(out, sum);
}

#[kernel]
fn down_by_constants<const STEP: i64>(lo: i64, hi: i64, out: PtrMut<i64>) {
    let mut sum = 7;
    for i in (lo..hi).rev().step_by(STEP) {
        sum = sum * 31 + i;
    }
    store(out, sum);
}

/// The forms of ranges, and which of them have a step.
const RANGES: [(&str, bool); 8] = [
    ("lo..hi", false),
    ("(lo..hi).step_by(s)", true),
    ("(lo..hi).rev()", false),
    ("(lo..hi).rev().step_by(s)", true),
    ("(lo..hi).step_by(s).rev()", true),
    ("lo..=hi", false),
    ("(lo..=hi).rev()", false),
    ("(lo..=hi).step_by(s)", true),
];

/// What `counted` gives.
fn count(form: usize, lo: i128, hi: i128, step: i128) -> i64 {
    let end = if form >= 5 { hi + 1 } else { hi };
    let all = lo..end.max(lo);
    let by = step.max(1) as usize;
    let values: Vec<i128> = match form {
        0 | 5 => all.collect(),
        2 | 6 => all.rev().collect(),
        _ if step <= 0 => Vec::new(),
        1 | 7 => all.step_by(by).collect(),
        3 => all.rev().step_by(by).collect(),
        _ => all.step_by(by).collect::<Vec<i128>>().into_iter().rev().collect(),
    };
    values.into_iter().fold(7, |sum: i64, i| sum.wrapping_mul(31).wrapping_add(i as i64))
}

fn counters() -> Row {
    fn case<I: Element + Int>(device: &Device, form: usize, lo: i128, hi: i128, step: i128) -> Outcome {
        let consts = CountedConsts { FORM: form as i32 };
        let (from, to, by) = (I::from_int(lo), I::from_int(hi), I::from_int(step));
        let got = stored(device, 0i64, |out| consts.call(from, to, by, out).grid(1).launch(device))?;
        equal(&[got], &[count(form, lo, hi, step)])
    }
    fn each<I: Element + Int>(row: &mut Row, signed: bool) {
        let (least, most) = match signed {
            true => (-(1i128 << (I::BITS - 1)), (1i128 << (I::BITS - 1)) - 1),
            false => (0, (1i128 << I::BITS) - 1),
        };
        let below = if signed { (-16, 15) } else { (3, 30) };
        let wide = if I::BITS == 64 { (1 << 35, (1 << 35) + 20) } else { (100, 120) };
        for (lo, hi) in [(0, 0), (0, 10), (5, 3), below, wide, (most - 5, most), (least, least + 7)] {
            for (form, (name, stepped)) in RANGES.into_iter().enumerate() {
                let steps: &[i128] = if stepped { &[1, 2, 3, 16, 100, 0] } else { &[1] };
                for &step in steps {
                    let name = format!("{name} of {}, lo {lo}, hi {hi}, s {step}", I::NAME);
                    row.case(name, move |device| case::<I>(device, form, lo, hi, step));
                }
            }
        }
    }
    let mut row = Row::new("C72", "test_for_iv, test_reverse_range")
        .remarks("steps are positive: `.rev()` counts down, and a step of 0 ends the loop");
    macro_rules! integers {
        ($t:ident) => {
            each::<$t>(&mut row, stringify!($t).starts_with('i'));
        };
    }
    for_integers!(integers);
    for step in [1i64, 2, 3] {
        for (lo, hi) in [(-15i64, 16), (-21, -17), (19, 23), (1 << 35, (1 << 35) + 20)] {
            row.case(format!("down from {hi} to {lo} by the constexpr {step}"), move |device| {
                let consts = DownByConstantsConsts { STEP: step };
                let got = stored(device, 0i64, |out| consts.call(lo, hi, out).grid(1).launch(device))?;
                equal(&[got], &[count(3, lo.into(), hi.into(), step.into())])
            });
        }
    }
    row
}

#[kernel]
fn chosen<const FORM: i32, const FLAG: bool, const NUMBER: i32>(yes: Ptr<f32>, no: Ptr<f32>, out: PtrMut<f32>) {
    let pid = program_id(0);
    if FORM == 0 {
        if pid % 2 == 0 {
            store(out, load(yes));
        } else if 1 == pid % 2 {
            store(out, load(no));
        }
    } else if FORM == 1 {
        let value = if pid % 2 == 0 { load(yes) } else { load(no) };
        store(out, value);
    } else if FORM == 2 {
        let value = if pid % 2 == 0 { 3.25 } else { load(no) };
        store(out, value);
    } else if FORM == 3 {
        store(out, if FLAG { load(yes) } else { load(no) });
    } else if FORM == 4 {
        if FLAG && (1 != pid % 2 && pid % 2 != 1) {
            store(out, load(yes));
        } else {
            store(out, load(no));
        }
    } else if NUMBER != 0 && NUMBER != 0 {
        store(out, load(yes));
    } else {
        store(out, load(no));
    }
}

#[kernel]
fn either(condition: Ptr<i32>, yes: Ptr<i32>, no: Ptr<i32>, out: PtrMut<i32>) {
    let value = if load(condition) != 0 { load(yes) } else { load(no) };
    store(out, value);
}

#[kernel]
fn left_early<const DYNAMIC: bool, const LEAVE: bool>(leave: Ptr<i32>, out: PtrMut<i32>) {
    if DYNAMIC {
        if load(leave) != 0 {
            store(out, 0);
            return;
        }
    } else if LEAVE {
        store(out, 0);
        return;
    }
    store(out, 1);
}

#[kernel]
fn nested_choices(conditions: Ptr<i32>, values: Ptr<i32>, out: PtrMut<i32>) {
    let mut value = 0;
    if load(conditions) != 0 {
        if load(conditions + 1) != 0 {
            value += load(values);
        } else {
            return;
        }
    } else if load(conditions + 2) != 0 {
        value += load(values + 1);
    } else {
        value += load(values + 2);
    }
    store(out, value);
}

#[kernel]
fn while_below(start: Ptr<i32>, bound: Ptr<i32>, cut: Ptr<i32>, out: PtrMut<i32>) {
    let first = load(start);
    let (mut now, mut j) = (first, 0);
    while j < load(bound) {
        now += (j == load(cut)) as i32;
        j += 1;
        // The loop does not change `first`.
        store(out + 1, first);
    }
    store(out, now);
    store(out + 2, j);
}

#[kernel]
fn while_in_for(data: PtrMut<f32>, counter: Ptr<i32>) {
    for _i in 0..10 {
        let mut count = load(counter);
        while count > 0 {
            store(data, load(data) + 1.0);
            count -= 2;
        }
    }
}

#[kernel]
fn last_of<const TOTAL: i32>(semaphore: PtrMut<i32>, out: PtrMut<i32>) {
    if TOTAL == 1 {
        store(out, program_id(0));
        return;
    }
    let before = atomic_add(semaphore, 1);
    if before + 1 != TOTAL {
        return;
    }
    store(out, program_id(0) + before);
}

#[kernel]
fn temporary<const N: i32>(out: PtrMut<i32>) {
    let mut sum = zeros([32]);
    for i in 0..N {
        if i == 0 {
            let part = full([32], 2);
            sum = part;
        } else {
            sum += full([32], 1);
        }
        let part = full([32], 1);
        sum += part;
    }
    store(out + arange(0, 32), sum);
}

fn conditions() -> Row {
    let upstream = "test_if, test_if_else, test_if_return, test_nested_if_else_return, test_while, test_nested_while, \
                    test_constexpr_if_return, test_temp_var_in_loop";
    let mut row = Row::new("C73", upstream);
    let names =
        ["if", "if_exp_dynamic", "if_exp_dynamic_constexpr", "if_exp_static", "if_and_dynamic", "if_and_static"];
    for (form, name) in (0..).zip(names) {
        for flag in [true, false] {
            row.case(format!("{name}, {flag}"), move |device| {
                let consts = ChosenConsts { FORM: form, FLAG: flag, NUMBER: i32::from(flag) };
                let (yes, no) = (device.full(1, 3.25f32)?, device.full(1, 1.5f32)?);
                let got = stored(device, 0.0f32, |out| consts.call(&yes, &no, out).grid(1).launch(device))?;
                equal(&[got], &[if form < 3 || flag { 3.25 } else { 1.5 }])
            });
        }
    }
    for condition in [0, 1] {
        row.case(format!("if_else, {condition}"), move |device| {
            let (c, yes, no) = (device.full(1, condition)?, device.full(1, 1)?, device.full(1, 2)?);
            let got = stored(device, 0, |out| either(&c, &yes, &no, out).grid(1).launch(device))?;
            equal(&[got], &[2 - condition])
        });
        for dynamic in [true, false] {
            let name = if dynamic { "dynamic" } else { "static" };
            row.case(format!("if_return, {name}, {condition}"), move |device| {
                let consts = LeftEarlyConsts { DYNAMIC: dynamic, LEAVE: condition == 1 };
                let leave = device.full(1, condition)?;
                let got = stored(device, 5, |out| consts.call(&leave, out).grid(1).launch(device))?;
                equal(&[got], &[1 - condition])
            });
        }
    }
    for bits in 0..8 {
        let held = [bits & 1, bits >> 1 & 1, bits >> 2];
        row.case(format!("nested_if_else_return {held:?}"), move |device| {
            let (conditions, values) = (device.upload(&held)?, device.upload(&[1, 2, 3])?);
            let got = stored(device, -1, |out| nested_choices(&conditions, &values, out).grid(1).launch(device))?;
            let want = match held {
                [1, 1, _] => 1,
                [1, _, _] => -1,
                [_, _, 1] => 2,
                _ => 3,
            };
            equal(&[got], &[want])
        });
    }
    whiles(&mut row);
    row
}

/// The loops of C73.
fn whiles(row: &mut Row) {
    for (bound, cut) in [(10, 5), (10, 10), (0, 0), (1, 0)] {
        row.case(format!("while below {bound}, cut at {cut}"), move |device| {
            let mut out = device.zeros::<i32>(3)?;
            let [start, bound_at, cut_at] = [1, bound, cut].map(|value| device.full(1, value));
            while_below(&start?, &bound_at?, &cut_at?, &mut out).grid(1).launch(device)?;
            equal(&out.to_vec()?, &[1 + i32::from(cut < bound), i32::from(bound > 0), bound])
        });
    }
    for (counter, want) in [(8, 40.0f32), (7, 40.0), (0, 0.0), (-3, 0.0)] {
        row.case(format!("nested_while of {counter}"), move |device| {
            let counter = device.full(1, counter)?;
            let got = stored(device, 0.0f32, |data| while_in_for(data, &counter).grid(1).launch(device))?;
            equal(&[got], &[want])
        });
    }
    for total in [1, 2, 4] {
        row.case(format!("constexpr_if_return, {total} programs"), move |device| {
            let mut semaphore = device.zeros::<i32>(1)?;
            let consts = LastOfConsts { TOTAL: total };
            let got = stored(device, -1, |out| consts.call(&mut semaphore, out).grid(total).launch(device))?;
            let last = got - (total - 1);
            if (0..total).contains(&last) { Ok(()) } else { Err(Failure(format!("{got}"))) }
        });
    }
    for n in [0, 1, 10] {
        row.case(format!("temp_var_in_loop, {n} iterations"), move |device| {
            let mut out = device.full(32, -1)?;
            TemporaryConsts { N: n }.call(&mut out).grid(1).launch(device)?;
            equal(&out.to_vec()?, &[if n == 0 { 0 } else { 2 * n + 1 }; 32])
        });
    }
}

#[kernel]
fn static_steps<const N: i32, const STEP: i32>(out: PtrMut<i32>) {
    let mut sum = 0;
    #[unroll]
    for i in (0..N).step_by(STEP) {
        sum = sum * 3 + i;
    }
    store(out, sum);
}

#[kernel]
fn added_often<const N: i32>(out: PtrMut<i32>) {
    let pid = program_id(0);
    #[unroll]
    for i in 0..N {
        atomic_add(out + pid, i + pid);
    }
}

fn unrolled() -> Row {
    let mut row = Row::new("C74", "test_static_range, test_unroll_attr")
        .remarks("`#[unroll]` unrolls completely, `#[unroll(4)]` by a factor");
    for (n, step) in [(100, 7), (100, 1), (7, 100), (0, 1), (64, 16)] {
        row.case(format!("static_range({n}, step {step})"), move |device| {
            let consts = StaticStepsConsts { N: n, STEP: step };
            let got = stored(device, -1, |out| consts.call(out).grid(1).launch(device))?;
            let want = (0..n).step_by(step as usize).fold(0i32, |sum, i| sum.wrapping_mul(3).wrapping_add(i));
            equal(&[got], &[want])
        });
    }
    for n in [1, 2, 4, 5, 8] {
        row.case(format!("{n} atomics"), move |device| {
            let mut out = device.zeros::<i32>(3)?;
            AddedOftenConsts { N: n }.call(&mut out).grid(3).launch(device)?;
            equal(&out.to_vec()?, &[0, 1, 2].map(|pid| (0..n).map(|i| i + pid).sum()))
        });
        row.host(format!("code of {n} atomics"), move || {
            let compiled = AddedOftenConsts { N: n }.compile(Target::sm_90a())?;
            let found = ["atom.", "red."].map(|name| compiled.ptx().matches(name).count());
            let right = found.iter().sum::<usize>() == n as usize;
            if right { Ok(()) } else { Err(Failure(format!("{found:?}:\n{}", compiled.ptx()))) }
        });
    }
    row
}
