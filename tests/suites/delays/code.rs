//! The code of builds with delays.

use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

use super::kernels::{CONFIGS, Config, Form, MOST_TRIPS, Matrices, Task, call};

/// What has a delay right before and right after it.
const ALONE: [&str; 6] = [
    "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.bulk.wait_group",
    "mbarrier.arrive",
    "mbarrier.try_wait",
    "wgmma.wait_group",
];
/// What has a delay before the first and after the last of several: boxes of a tensor copy, barriers of an exchange.
const ROWS: [&[&str]; 2] = [&["cp.async.bulk.tensor", "cp.async.bulk.commit_group"], &["bar.sync", "barrier.sync"]];
/// What begins something that stays together, and what ends it.
const FIRST: &str = "wgmma.fence";
const LAST: &str = "wgmma.commit_group";

/// What a line of PTX is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Landmark {
    Delay,
    Alone,
    /// The kind of the row.
    Row(usize),
    First,
    Last,
    Within,
}

fn landmark(line: &str) -> Option<Landmark> {
    if line.contains("nanosleep.u32") {
        Some(Landmark::Delay)
    } else if ALONE.iter().any(|instruction| line.contains(instruction)) {
        Some(Landmark::Alone)
    } else if let Some(row) = ROWS.iter().position(|row| row.iter().any(|instruction| line.contains(instruction))) {
        Some(Landmark::Row(row))
    } else if line.contains(FIRST) {
        Some(Landmark::First)
    } else if line.contains(LAST) {
        Some(Landmark::Last)
    } else if line.contains("wgmma.mma_async") || line.contains("cp.async.") {
        Some(Landmark::Within)
    } else {
        None
    }
}

/// The PTX for Hopper.
fn ptx(form: Form, config: Config, delays: Option<u64>) -> Result<String, Error> {
    let device = Device::cpu();
    let (m, n, depth) = (256, 256, MOST_TRIPS * config.bk);
    let (a, b, c) = (device.zeros(m * depth)?, device.zeros(depth * n)?, device.zeros(m * n)?);
    let mut matrices = Matrices { a, b, c, m, n, depth };
    let compiled = call(form, config, delays, &mut matrices, depth, Task::Compile(Target::sm_90a()))?;
    Ok(compiled.map(|compiled| compiled.ptx().to_string()).unwrap_or_default())
}

/// Checks that delays stand around everything that is asynchronous; returns how many there are.
fn check_delays(ptx: &str, what: &str) -> usize {
    let found: Vec<(Landmark, &str)> = ptx.lines().filter_map(|line| Some((landmark(line)?, line))).collect();
    for (index, &(mark, line)) in found.iter().enumerate() {
        let neighbour = |place: Option<usize>| place.and_then(|place| found.get(place)).map(|&(mark, _)| mark);
        let [before, after] = [index.checked_sub(1), index.checked_add(1)].map(neighbour);
        let (goes_on_before, goes_on_after) = (before == Some(mark), after == Some(mark));
        let (before, after) = (before == Some(Landmark::Delay), after == Some(Landmark::Delay));
        let (wants_before, wants_after) = match mark {
            Landmark::Alone => (true, true),
            Landmark::Row(_) => (!goes_on_before, !goes_on_after),
            Landmark::First => (true, false),
            Landmark::Last => (false, true),
            Landmark::Delay | Landmark::Within => (false, false),
        };
        assert!(before >= wants_before, "{what}: no delay before `{}` in\n{ptx}", line.trim());
        assert!(after >= wants_after, "{what}: no delay after `{}` in\n{ptx}", line.trim());
        // Matrix instructions of one group stay together.
        let splits = mark == Landmark::First && after || mark == Landmark::Last && before;
        assert!(!splits, "{what}: a delay inside of a group of products in\n{ptx}");
    }
    found.iter().filter(|(mark, _)| *mark == Landmark::Delay).count()
}

fn check(form: Form, wanted: &[&str]) -> Result<(), Error> {
    for config in CONFIGS {
        let what = format!("{form:?} with {config:?}");
        let plain = ptx(form, config, None)?;
        assert!(!plain.contains("nanosleep"), "{what}: delays that nobody asked for");
        let (first, second) = (ptx(form, config, Some(1))?, ptx(form, config, Some(2))?);
        assert_ne!(first, second, "{what}: the seed changes nothing");
        for instruction in wanted {
            assert!(first.contains(instruction), "{what} does without `{instruction}`");
        }
        let delays = check_delays(&first, &what);
        assert!(delays >= 2 * wanted.len(), "{what}: only {delays} delays");
        let count = |text: &str, instruction: &str| text.matches(instruction).count();
        for instruction in ALONE.iter().chain(ROWS.concat().iter()).chain(&["wgmma.mma_async"]) {
            assert_eq!(count(&plain, instruction), count(&first, instruction), "{what}: `{instruction}`");
        }
        if let Some(assembled) = assemble(&first, "sm_90a") {
            assert_eq!(assembled.spills, 0, "{what}: {}", assembled.log);
            // What ptxas says of products that it runs one after the other.
            assert!(!assembled.log.contains("C75"), "{what}: {}", assembled.log);
        }
    }
    Ok(())
}

#[test]
fn delays_stand_around_copies_by_threads() -> Result<(), Error> {
    check(Form::Pointers, &["cp.async.commit_group", "cp.async.wait_group", "wgmma.wait_group", "bar.sync"])
}

#[test]
fn delays_stand_around_copies_by_the_hardware() -> Result<(), Error> {
    check(Form::Descriptors, &["cp.async.bulk.tensor", "mbarrier.arrive", "mbarrier.try_wait", "wgmma.wait_group"])
}

#[test]
fn delays_stand_around_what_divided_warps_say_to_each_other() -> Result<(), Error> {
    // The threads of each four warps meet at a barrier of their own.
    let wanted = [", 128;\n", "cp.async.bulk.tensor", "mbarrier.arrive", "mbarrier.try_wait", "wgmma.wait_group"];
    check(Form::Persistent, &wanted)
}
