//! Indices that memory holds, bounded as people bound them: the host then decides about the access.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Every way of bounding a loaded index, by number.
#[kernel]
fn rows<const HOW: i32, const N: usize>(x: Ptr<f32>, ids: Ptr<i32>, out: PtrMut<f32>, n: i32) {
    let lane = arange(0, N);
    let id = load(ids + lane);
    let at = if HOW == 0 {
        clamp(id, 0, n - 1)
    } else if HOW == 1 {
        select((id >= 0) & (id < n), id, 0)
    } else if HOW == 2 {
        (id % n + n) % n
    } else if HOW == 3 {
        (id as u32 % n as u32) as i32
    } else if HOW == 4 {
        assert!((id >= 0) & (id < n), "an index of a row");
        id
    } else if HOW == 5 {
        let one = load(ids);
        let limited = if one < n && one >= 0 { one } else { n - 1 };
        limited + lane * 0
    } else if HOW == 6 {
        minimum(maximum(id, 0) / 2, (n - 1) / 2)
    } else {
        id % n
    };
    store(out + lane, load(x + at));
}

/// What the index becomes.
fn bounded(how: i32, ids: &[i32], lane: usize, n: i32) -> i32 {
    let id = ids[lane];
    match how {
        0 => id.clamp(0, n - 1),
        1 if (0..n).contains(&id) => id,
        1 => 0,
        2 => id.rem_euclid(n),
        3 => (id as u32 % n as u32) as i32,
        4 => id,
        5 if (0..n).contains(&ids[0]) => ids[0],
        5 => n - 1,
        6 => (id.max(0) / 2).min((n - 1) / 2),
        _ => id % n,
    }
}

const N: usize = 128;

#[test]
fn the_host_decides_about_bounded_indices() {
    for (how, check) in [(0, false), (1, false), (2, false), (3, false), (4, false), (5, false), (6, false), (7, true)]
    {
        let compiled = RowsConsts { HOW: how, N }.compile(Target::sm_90a()).expect("it compiles");
        let report = compiled.report().to_string();
        assert_eq!(report.contains("checked per lane"), check, "{how}\n{report}");
        assert!(!check || report.contains("a remainder of what is loaded may be negative"), "{report}");
    }
}

/// Every way in which an index has no bound, by number.
#[kernel]
fn unbounded<const HOW: i32, const N: usize>(x: Ptr<f32>, ids: Ptr<i32>, next: PtrMut<i32>, out: PtrMut<f32>) {
    let lane = arange(0, N);
    let id = load(ids + lane);
    let at = if HOW == 0 {
        lane + 2 * id
    } else if HOW == 1 {
        maximum(id, 0) + lane
    } else if HOW == 2 {
        minimum(id, 7) - 1
    } else if HOW == 3 {
        atomic_add(next, 1) + lane
    } else if HOW == 4 {
        let mut at = load(ids);
        for _ in 0..3 {
            at = at * 2;
        }
        at + lane
    } else if HOW == 5 {
        (load(x + lane) * 2.0) as i32
    } else if HOW == 6 {
        let other = load(next + lane);
        select((id >= 0) & (id < 7), id, other)
    } else if HOW == 7 {
        let size = load(next + lane);
        id % size
    } else if HOW == 8 {
        let (mut first, mut second, mut at) = (load(ids), load(ids + 1), 0);
        while at < first {
            first -= second;
            second += 1;
            at = at * 2 + 1;
        }
        at + second * 0 + lane
    } else {
        let limit = load(next + lane);
        minimum(maximum(id, 0), minimum(limit, 7))
    };
    store(out + lane, load(x + at));
}

#[test]
fn the_report_names_what_has_no_bound() {
    let line = |text: &str| {
        let found = include_str!("indices.rs")
            .lines()
            .skip_while(|line| !line.contains("fn unbounded"))
            .position(|line| line.contains(text));
        let before = include_str!("indices.rs").lines().position(|line| line.contains("fn unbounded"));
        1 + found.expect("the line is there") + before.expect("the kernel is there")
    };
    for (how, what, text, lacks) in [
        (0, "what is loaded from `ids`", "let id = load", "at all"),
        (1, "what is loaded from `ids`", "let id = load", "above"),
        (2, "what is loaded from `ids`", "let id = load", "below"),
        (3, "what an atomic returns of `next`", "atomic_add", "at all"),
        (4, "what the loop carries", "for _ in 0..3", "at all"),
        (5, "what is computed", "* 2.0", "at all"),
        (6, "what is loaded from `next`", "let other = load", "at all"),
        (7, "what is loaded from `next`", "let size = load", "at all"),
        (8, "what the loop carries", "while at < first", "at all"),
        (9, "what is loaded from `next`", "let limit = load", "below"),
    ] {
        let compiled = UnboundedConsts { HOW: how, N }.compile(Target::sm_90a()).expect("it compiles");
        let report = compiled.report().to_string();
        let checked = report.lines().find(|line| line.contains("checked per lane")).expect("an access is checked");
        let want = format!("checked per lane: {what} at tests/suites/audit/indices.rs:{}:", line(text));
        assert!(checked.contains(&want), "{how}: {want}\n{checked}");
        assert!(checked.contains(&format!("is not bounded {lacks},")), "{how}\n{checked}");
    }
}

#[test]
fn bounded_indices_read_what_they_should() {
    check(|device| {
        let n = 100;
        let x: Vec<f32> = (0..n).map(|i| i as f32 + 0.5).collect();
        let wild: Vec<i32> = (0..N as i32).map(|i| (i * 7_654_321).wrapping_mul(977) % 300 - 120).collect();
        let tame: Vec<i32> = (0..N as i32).map(|i| i * 37 % n).collect();
        let source = device.upload(&x)?;
        for how in 0..8 {
            let ids = if how == 4 || how == 7 { &tame } else { &wild };
            let mut out = device.zeros::<f32>(N)?;
            let buffer = device.upload(ids)?;
            RowsConsts { HOW: how, N }.call(&source, &buffer, &mut out, n).grid(1).launch(device)?;
            let want: Vec<f32> = (0..N).map(|lane| x[bounded(how, ids, lane, n) as usize]).collect();
            assert_eq!(out.to_vec()?, want, "{how}");
        }
        Ok(())
    });
}

#[test]
fn an_index_that_breaks_its_assertion_reads_nothing() {
    check(|device| {
        for wrong in [-1, 100, i32::MIN, i32::MAX] {
            let mut ids = [3; N];
            ids[77] = wrong;
            let (x, ids) = (device.upload(&[1.0f32; 100])?, device.upload(&ids)?);
            let mut out = device.upload(&[7.0f32; N])?;
            let launched = RowsConsts { HOW: 4, N }.call(&x, &ids, &mut out, 100).grid(1).launch(device);
            let error = launched.and_then(|()| out.to_vec()).expect_err("an assertion fails").to_string();
            assert!(error.contains("an index of a row"), "{error}");
        }
        Ok(())
    });
}
