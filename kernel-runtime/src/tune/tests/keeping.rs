//! Tables and logs.

use super::*;
use crate::tune::rows::Rows;
use crate::tune::tuner::Run;
use crate::tune::{Row, Silent, Table, Tuned, read_log};
use std::path::PathBuf;

/// A folder of the test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tilewright-tune-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const LARGE: Tiles = Tiles { bm: 128, bn: 256, bk: 64, swap: false };
const SMALL: Tiles = Tiles { bm: 64, bn: 64, bk: 32, swap: true };

fn table(rows: &[(&[usize], Tiles)]) -> Table {
    let mut table = Table::new();
    for (sizes, tiles) in rows {
        table.insert("tiles", "here", "f16", sizes, &Config::from(*tiles));
    }
    table
}

#[test]
fn a_table_is_what_it_was_written_from() {
    let written = table(&[(&[4000, 64], LARGE), (&[64, 64], SMALL), (&[4096, 64], SMALL)]);
    assert_eq!(written.len(), 2, "4000 and 4096 share a bucket");
    let read = Table::parse(&written.to_toml()).unwrap();
    assert_eq!(read, written);
    let tuned: Tuned<Tiles> = read.of("tiles", "here", "f16").unwrap();
    assert_eq!(tuned.get(&[2049, 33]).unwrap().consts, SMALL);
    assert_eq!(read.of::<Tiles>("tiles", "elsewhere", "f16").unwrap().get(&[64, 64]), None);
    assert_eq!(read.of::<Tiles>("tiles", "here", "f32").unwrap().get(&[64, 64]), None);
}

#[test]
fn sizes_that_no_row_has_get_the_nearest_then_the_rule_then_nothing() {
    let tuned: Tuned<Tiles> = table(&[(&[4096, 4096], LARGE), (&[64, 64], SMALL)]).of("tiles", "here", "f16").unwrap();
    assert_eq!(tuned.get(&[2048, 8192]).unwrap().consts, LARGE);
    assert_eq!(tuned.get(&[100, 100]).unwrap().consts, SMALL);
    assert_eq!(tuned.get(&[512, 512]), None);
    assert_eq!(tuned.get(&[64]), None, "other sizes altogether");
    let ruled = tuned.or(|sizes| (sizes[0] > 256).then_some(LARGE.into()));
    assert_eq!(ruled.get(&[512, 512]).unwrap().consts, LARGE);
    assert_eq!(ruled.get(&[256, 1024]), None);
    let rule = Tuned::<Tiles>::heuristic(|_| Some(SMALL.into()));
    assert_eq!(rule.get(&[]).unwrap().consts, SMALL);
    // Edges: sizes of nothing, and of everything.
    assert_eq!(rule.get(&[0, usize::MAX]).unwrap().consts, SMALL);
    assert_eq!(rule.get(&[1; 40]).unwrap().consts, SMALL);
}

#[test]
fn rows_that_do_not_fit_the_kernel_are_errors() {
    let row = |config: &str| {
        let text = format!("[[tiles]]\ndevice = \"here\"\ndtype = \"f16\"\nsizes = [64]\nconfig = {{ {config} }}");
        Table::parse(&text).unwrap().of::<Tiles>("tiles", "here", "f16").map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(row("BM = 1, BN = 1, BK = 1, SWAP = 0, num_warps = 4"), Ok(()));
    let names = "its kernel has BM, BN, BK, SWAP, num_warps, num_stages, max_registers";
    let unknown = row("BM = 1, BN = 1, BK = 1, SWAP = 0, BX = 4");
    assert_eq!(unknown, Err(format!("tuning: a row of `tiles` for [64] names `BX`; {names}")));
    let missing = row("BM = 1, BN = 1, SWAP = 0");
    assert_eq!(missing, Err(format!("tuning: a row of `tiles` for [64] has no `BK`; {names}")));
    assert!(row("BM = 1, BN = 1, BK = 1, SWAP = 7").unwrap_err().contains("a value that does not fit"));
    assert!(Table::parse("[[tiles]]\nfoo = 1").is_err());
}

#[test]
fn rows_that_no_longer_work_are_named_together() {
    let tuned: Tuned<Tiles> = table(&[(&[4096, 4096], LARGE), (&[64, 64], SMALL)]).of("tiles", "here", "f16").unwrap();
    assert_eq!(tuned.verify(|_, _| Ok(())), Ok(()));
    let error = tuned.verify(|config, _| match config.bm {
        128 => Err(crate::Error::Tuning { what: "no".into(), reason: "never".into() }),
        _ => Ok(()),
    });
    let expected = "tuning: 1 of 2 rows no longer compile; [4096, 4096] (BM = 128, BN = 256, BK = 64, SWAP = 0): tuning: no; never";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

/// Threads stand for processes: locks are of open files.
#[test]
fn nobody_loses_rows_that_others_write_at_the_same_time() {
    let folder = Folder::new("merge");
    let path = folder.0.join("deep/tiles.toml");
    std::thread::scope(|scope| {
        for writer in 0..8usize {
            let path = &path;
            scope.spawn(move || {
                for size in 0..4 {
                    table(&[(&[1 << writer, 1 << size], SMALL)]).merge_into(path).unwrap();
                }
            });
        }
    });
    assert_eq!(Table::read(&path).unwrap().len(), 32);
    assert_eq!(Table::read(folder.0.join("none.toml")).unwrap(), Table::new());
    let read = Table::read(&path).unwrap();
    assert!(read.rows("tiles").iter().all(|Row { device, .. }| device == "here"));
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_that_says_where() {
    let folder = Folder::new("refused");
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    // A file where a folder should be is refused to everybody, root too.
    let error = table(&[(&[64, 64], SMALL)]).merge_into(file.join("tiles.toml")).unwrap_err().to_string();
    assert!(error.starts_with("tuning: ") && error.contains("file/tiles.toml cannot be written"), "{error}");
    std::fs::write(folder.0.join("broken.toml"), "[[tiles]").unwrap();
    let error = table(&[(&[64, 64], SMALL)]).merge_into(folder.0.join("broken.toml")).unwrap_err().to_string();
    assert!(error.contains("broken.toml cannot be read"), "{error}");
    // A log that cannot be written does not end a search.
    let settings = Settings { log: Some(file.join("log.jsonl")), trials: 10, ..Settings::default() };
    let outcome = run(&tiles(), &settings, |_| Ok(1.0)).unwrap();
    assert_eq!((outcome.warnings.len(), outcome.tried.len()), (2, 10), "{:?}", outcome.warnings);
}

fn cost(config: &Config<Tiles>) -> f64 {
    let Tiles { bm, bn, .. } = config.consts;
    1.0 + (bm as f64 / 128.0).ln().powi(2) + (bn as f64 / 96.0).ln().powi(2)
}

#[test]
fn what_was_measured_once_is_not_measured_again() {
    let folder = Folder::new("log");
    let settings = Settings { log: Some(folder.0.join("tiles.trials.jsonl")), ahead: 3, ..Settings::default() };
    let space = tiles().constexpr(0, [64, 128]).constexpr(2, [32]).constexpr(3, [0]);
    let checks = |space: &Space<Tiles>, subject: Subject| {
        let mut measure = Synthetic::new(|config: &Config<Tiles>| match config.bn {
            384 => Err(wrong("always")),
            _ => Ok(cost(config)),
        });
        let outcome = search(Plan::of(space).unwrap(), &settings, subject, None, &mut measure).unwrap();
        (outcome, measure.checks)
    };
    let (outcome, first) = checks(&space, subject(&[64, 64]));
    assert_eq!((first, outcome.tried.len()), (64, 64));
    let records = read_log(folder.0.join("tiles.trials.jsonl")).unwrap();
    assert_eq!(records.len(), 64);
    assert_eq!(records.iter().filter(|record| record.failure.is_some()).count(), 8);
    // Once more: only what failed is tried, after one that worked, and finalists are checked before they run.
    let (again, second) = checks(&space, subject(&[64, 64]));
    assert_eq!(again.best, outcome.best);
    assert_eq!(second, 1 + 8 + again.finalists.len());
    // Another value of one axis costs the trials with it, two of which fail in each quarter.
    let wider = space.clone().constexpr(0, [64, 128, 192]);
    let (more, third) = checks(&wider, subject(&[64, 64]));
    assert!(more.tried.len() <= 96 && third <= 1 + 48 + more.finalists.len(), "{third}");
    // Other code, or another size, has been measured by nobody.
    let other = Subject { code: "1".into(), ..subject(&[64, 64]) };
    assert_eq!(checks(&space, other).1, 64);
}

/// Results are compared with those of what was there, not with those of whatever is new.
#[test]
fn new_configurations_are_compared_with_those_that_the_log_knows() {
    let folder = Folder::new("reference");
    let settings = Settings { log: Some(folder.0.join("log.jsonl")), ..Settings::default() };
    let space = tiles().constexpr(0, [64]).constexpr(1, [64, 96]).constexpr(2, [32]).constexpr(3, [1]);
    let space = space.num_warps([4]).num_stages([2]);
    let fresh = Tiles { bm: 128, ..SMALL };
    // The first configuration that runs is right, and the new one computes something else.
    let tuned = |space: &Space<Tiles>, start: Option<Tiles>, broken: Option<Tiles>| {
        let mut reference = None;
        let mut measure = Synthetic::new(|config: &Config<Tiles>| {
            if Some(config.consts) == broken {
                return Err(wrong("it works no more"));
            }
            let is_new = |config: Tiles| config == fresh;
            let right = *reference.get_or_insert(is_new(config.consts));
            if right == is_new(config.consts) { Ok(cost(config)) } else { Err(wrong("other results")) }
        });
        let plan = Plan::of(space).unwrap();
        let start =
            start.and_then(|start| plan.kept.iter().map(|one| one.config).find(|config| config.consts == start));
        search(plan, &settings, subject(&[64, 64]), start, &mut measure).unwrap()
    };
    assert_eq!(tuned(&space, None, None).tried.len(), 2);
    let wider = space.constexpr(0, [128, 64]).where_(move |config| config.bm == 64 || config.consts == fresh);
    let other = Tiles { bn: 96, ..SMALL };
    for (start, broken, best) in
        [(None, None, other), (Some(SMALL), None, other), (Some(SMALL), Some(SMALL), other), (None, Some(other), SMALL)]
    {
        let outcome = tuned(&wider, start, broken);
        let new = outcome.tried.iter().find(|tried| tried.config.consts == fresh).unwrap();
        assert!(new.result.is_err(), "{start:?}, {broken:?}: {new:?}");
        assert_eq!(outcome.best.consts, best, "{start:?}, {broken:?}");
    }
}

/// The best of a near size is tried first.
#[test]
fn logs_of_other_sizes_say_where_to_begin() {
    let folder = Folder::new("seeds");
    let settings =
        Settings { log: Some(folder.0.join("log.jsonl")), trials: 2, ahead: 1, exhaustive: 0, ..Settings::default() };
    let best = Tiles { bm: 256, bn: 320, bk: 128, swap: true };
    let find = |config: &Config<Tiles>| Ok(if config.consts == best { 0.5 } else { 1.0 });
    let all = Settings { exhaustive: usize::MAX, trials: usize::MAX, budget: None, ..settings.clone() };
    let (mut thorough, mut quick) = (Synthetic::new(find), Synthetic::new(find));
    search(Plan::of(&tiles()).unwrap(), &all, subject(&[64, 64]), None, &mut thorough).unwrap();
    let outcome = search(Plan::of(&tiles()).unwrap(), &settings, subject(&[128, 64]), None, &mut quick).unwrap();
    assert_eq!((outcome.best.consts, outcome.tried[0].config.consts), (best, best));
}

#[test]
fn half_a_line_is_passed_over() {
    let folder = Folder::new("half");
    let path = folder.0.join("log.jsonl");
    let settings = Settings { log: Some(path.clone()), trials: 3, ..Settings::default() };
    run(&tiles(), &settings, |config| Ok(cost(config))).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 20]).unwrap();
    assert_eq!(read_log(&path).unwrap().len(), 2);
    // What comes next is a line of its own.
    run(&tiles(), &Settings { seed: 1, trials: 4, ..settings }, |config| Ok(cost(config))).unwrap();
    let lines = std::fs::read_to_string(&path).unwrap().lines().count();
    assert_eq!((lines, read_log(&path).unwrap().len()), (5, 4));
}

const OTHER: Tiles = Tiles { bm: 256, bn: 64, bk: 16, swap: false };

/// Rows of a table, by device and sizes.
fn rows_of(rows: &[(&str, &[usize], Tiles)]) -> Rows<Tiles> {
    let mut table = Table::new();
    for (device, sizes, tiles) in rows {
        table.insert("tiles", device, "f16", sizes, &Config::from(*tiles));
    }
    table.insert("others", "here", "f16", &[64, 64], &Config::from(OTHER));
    table.insert("tiles", "here", "f32", &[64, 64], &Config::from(OTHER));
    Rows::of(&table, &subject(&[60, 64]))
}

#[test]
fn a_table_says_what_to_keep_and_where_to_begin() {
    let tiles = |bm| Tiles { bm, ..SMALL };
    let consts = |rows: &Rows<Tiles>| rows.near.iter().map(|config| config.bm).collect::<Vec<_>>();
    let rows = rows_of(&[
        ("elsewhere", &[64, 64], tiles(1)),
        ("here", &[128, 64], tiles(2)),
        ("here", &[64, 64], tiles(3)),
        ("here", &[64, 1024], tiles(4)),
        ("here", &[4096, 4096], tiles(5)),
        ("elsewhere", &[4096, 4096], tiles(6)),
        ("here", &[64, 32], tiles(2)),
        ("here", &[64], tiles(7)),
    ]);
    assert_eq!(rows.own.unwrap().bm, 3);
    // Another device is as far as a factor of 16; the same configuration counts once, and four are enough.
    assert_eq!(consts(&rows), [2, 1, 4, 5]);
    let none = rows_of(&[("here", &[128, 64], tiles(2))]);
    assert!(none.own.is_none() && none.warning.is_none());
}

#[test]
fn a_row_that_no_longer_fits_is_a_warning() {
    let text = "[[tiles]]\ndevice = \"here\"\ndtype = \"f16\"\nsizes = [64, 64]\nconfig = { BX = 4 }";
    let rows = Rows::<Tiles>::of(&Table::parse(text).unwrap(), &subject(&[64, 64]));
    assert!(rows.own.is_none() && rows.warning.unwrap().contains("names `BX`"));
}

/// Of many configurations a few are tried; the row that is there is among them, and so are those of near sizes.
#[test]
fn rows_are_tried_first_and_stay_unless_they_are_beaten() {
    let rows = rows_of(&[("here", &[64, 64], LARGE), ("here", &[128, 64], SMALL), ("elsewhere", &[64, 64], OTHER)]);
    let settings = Settings { trials: 5, ahead: 1, exhaustive: 0, ..Settings::default() };
    let tuned = |cost: fn(&Config<Tiles>) -> f64| {
        let plan = {
            let mut plan = Plan::of(&tiles().num_warps([4]).num_stages([2])).unwrap();
            let space = tiles();
            let mut include = |config| plan.include(&space, config, None, |_| Ok(Vec::new())).unwrap();
            rows.own.into_iter().chain(rows.near.iter().copied()).for_each(|row| assert_eq!(include(row), row));
            plan
        };
        let (mut measure, mut observe) = (Synthetic::new(|config| Ok(cost(config))), Silent);
        let run = Run {
            plan,
            settings: &settings,
            measure: &mut measure,
            observe: &mut observe,
            subject: subject(&[64, 64]),
            start: rows.own,
            seeds: rows.own.into_iter().chain(rows.near.iter().copied()).collect(),
            tried: Vec::new(),
            has_reference: false,
            warnings: Vec::new(),
        };
        let outcome = run.run().unwrap();
        let first: Vec<Tiles> = outcome.tried.iter().take(3).map(|tried| tried.config.consts).collect();
        assert_eq!(first, [LARGE, SMALL, OTHER]);
        outcome.best.consts
    };
    assert_eq!(tuned(|_| 1.0), LARGE, "nothing is better");
    assert_eq!(tuned(|config| if config.consts == LARGE { 1.002 } else { 1.0 }), LARGE, "nothing is better by much");
    assert_eq!(tuned(|config| if config.consts == OTHER { 0.5 } else { 1.0 }), OTHER);
}

#[test]
fn a_row_outside_the_conditions_is_not_tried() {
    let space = tiles().where_(|config| config.bm < 128);
    let mut plan = Plan::of(&space).unwrap();
    let kept = plan.kept.len();
    let why = plan.include(&space, LARGE.into(), None, |_| Ok(Vec::new())).unwrap_err();
    assert!(why.contains("conditions") && plan.kept.len() == kept, "{why}");
    let failing = |_: &Config<Tiles>| Err(crate::Error::Tuning { what: "no".into(), reason: "never".into() });
    let why = plan.include(&space, SMALL.into(), None, failing).unwrap_err();
    assert!(why.contains("never") && plan.kept.len() == kept, "{why}");
}
