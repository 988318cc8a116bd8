//! Choosing configurations by measuring: C97.

use std::time::Duration;

use tilewright::launch::Config;
use tilewright::prelude::*;
use tilewright::tune::{FailureKind, Outcome as Tuned, Pruned, Table, Tuned as Lookup, Tuner};

use crate::elements::equal;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![tuning()]
}

/// `out[i] += x[i]`
#[kernel]
fn accumulate<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    static_assert!(BLOCK <= 256);
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let sum = load(out + i, mask = i < n) + load(x + i, mask = i < n);
    store(out + i, sum, mask = i < n);
}

/// `out[0] = x[0] + .. + x[n - 1]`, of zeros in `out`; wrong with `SKIP`, out of bounds with `BEYOND`.
#[kernel]
fn total<const BLOCK: usize, const SKIP: bool, const BEYOND: usize>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let values = load(x + i, mask = i < n + BEYOND as i32);
    if !SKIP || program_id(0) > 0 {
        atomic_add(out, sum(values));
    }
}

const N: usize = 600;

fn blocks() -> AccumulateSpace {
    AccumulateConsts::space().BLOCK([64, 128, 256])
}

/// Tunes `accumulate` on values of one and two; what is in the output afterwards comes with the outcome.
fn tune(device: &Device, tuner: Tuner<AccumulateConsts>) -> Result<(Tuned<AccumulateConsts>, Vec<f32>), Failure> {
    let (x, mut out) = (device.full(N, 1.0f32)?, device.full(N, 2.0f32)?);
    let outcome = tuner.run(device, |config, trial| {
        trial.launch(config.call(&x, &mut out, N as i32).grid_with(|consts| N.div_ceil(consts.BLOCK)))
    })?;
    Ok((outcome, out.to_vec()?))
}

fn tuning() -> Row {
    let mut row = Row::new("C97", "test_autotuner: restore, reset_to_zero, prune, exceed_threads, heuristics")
        .remarks("outputs are put back by themselves; there are no hooks, as a closure makes each launch")
        .elsewhere(24, "`kernel-runtime/src/tune/tests`");
    row.case("restore_value", |device| {
        let (outcome, out) = tune(device, Tuner::new(blocks()))?;
        check(outcome.tried.len() == 3 && outcome.tried.iter().all(|tried| tried.result.is_ok()), &outcome)?;
        equal(&out, &[2.0; N])
    });
    row.case("reset_to_zero", |device| {
        let (outcome, total) = sums(device, TotalConsts::space().BLOCK([64, 128]).SKIP([false]).BEYOND([0]))?;
        check(outcome.tried.iter().all(|tried| tried.result.is_ok()), &outcome)?;
        equal(&[total], &[0])
    });
    row.case("a launch with the winner", |device| {
        let (outcome, _) = tune(device, Tuner::new(blocks()))?;
        let (x, mut out) = (device.full(N, 1.0f32)?, device.full(N, 2.0f32)?);
        let call = outcome.best.call(&x, &mut out, N as i32).options(outcome.best.options);
        call.grid_with(|consts| N.div_ceil(consts.BLOCK)).launch(device)?;
        equal(&out.to_vec()?, &[3.0; N])
    });
    row.case("early_config_prune", |device| {
        let (outcome, _) = tune(device, Tuner::new(blocks().where_(|config| config.BLOCK >= 128)))?;
        check(outcome.tried.len() == 2 && outcome.plan.unmet == 1, &outcome)
    });
    row.case("assertions at compile time", |device| {
        let (outcome, _) = tune(device, Tuner::new(blocks().BLOCK([128, 512])))?;
        let [(config, Pruned::Refused(failure))] = &outcome.plan.pruned[..] else { return check(false, &outcome) };
        check(config.BLOCK == 512 && failure.kind == FailureKind::Compile, &outcome)
    });
    row.case("exceed_threads", |device| {
        let (outcome, _) = tune(device, Tuner::new(blocks().BLOCK([128]).num_warps([4, 64])))?;
        check(outcome.plan.pruned.len() == 1 && outcome.best.options.num_warps == Some(4), &outcome)
    });
    row.case("perf_model, top_k", |device| {
        let (outcome, _) = tune(device, Tuner::new(blocks()).exhaustive_up_to(0).trials(2))?;
        check(outcome.tried.len() == 2, &outcome)
    });
    row.case("wrong results do not win", |device| {
        let start = Config::from(TotalConsts { BLOCK: 64, SKIP: false, BEYOND: 0 });
        let space = TotalConsts::space().BLOCK([64]).SKIP([false, true]).BEYOND([0]).starting_at(start);
        let (outcome, _) = sums(device, space)?;
        let failed = outcome.tried.iter().find_map(|tried| tried.result.as_ref().err());
        check(!outcome.best.SKIP && failed.is_some_and(|failed| failed.kind == FailureKind::Wrong), &outcome)
    });
    row.case("errors of a candidate are nobody else's", |device| {
        let space = TotalConsts::space().BLOCK([64]).SKIP([false]).BEYOND([0, 30]);
        let (outcome, _) = sums(device, space)?;
        let failed = outcome.tried.iter().find_map(|tried| tried.result.as_ref().err());
        check(outcome.best.BEYOND == 0 && failed.is_some_and(|failed| failed.kind == FailureKind::Run), &outcome)?;
        Ok(device.synchronize()?)
    });
    row.case("no valid configuration", |device| {
        let error = tune(device, Tuner::new(blocks().BLOCK([512, 1024]))).map(drop);
        match error {
            Err(Failure(text)) if text.contains("none of 2 configurations of `accumulate` works") => Ok(()),
            other => Err(Failure(format!("{other:?}"))),
        }
    });
    row.case("heuristics", |device| {
        let rule = Lookup::heuristic(|sizes: &[usize]| {
            let consts = AccumulateConsts { BLOCK: sizes[0].next_power_of_two().min(256) };
            Some(Config::from(consts))
        });
        launch_tuned(device, &rule, 256)
    });
    row.case("a table", |device| {
        let mut table = Table::new();
        let config = Config::from(AccumulateConsts { BLOCK: 128 });
        table.insert("accumulate", device.name(), "", &[N], &config);
        let table = Table::parse(&table.to_toml())?;
        launch_tuned(device, &table.of("accumulate", device.name(), "")?, 128)?;
        // Of another device nothing is known, and the launch is as it was written.
        launch_tuned(device, &table.of("accumulate", "elsewhere", "")?, 64)
    });
    row.case("the time is over", |device| {
        let (outcome, _) = tune(device, Tuner::new(blocks()).budget(Duration::ZERO))?;
        check(outcome.tried.len() == 1, &outcome)
    });
    row
}

/// Launches with blocks of 64, or what the lookup says instead, and looks whether that is `block`.
fn launch_tuned(device: &Device, tuned: &Lookup<AccumulateConsts>, block: usize) -> Outcome {
    let (x, mut out) = (device.full(N, 1.0f32)?, device.full(N, 2.0f32)?);
    let mut seen = 0;
    let call = accumulate::<64>(&x, &mut out, N as i32).tuned(tuned, &[N]).grid_with(|consts| {
        seen = consts.BLOCK;
        N.div_ceil(consts.BLOCK)
    });
    call.launch(device)?;
    equal(&[seen as i32], &[block as i32])?;
    equal(&out.to_vec()?, &[3.0; N])
}

fn sums(device: &Device, space: TotalSpace) -> Result<(Tuned<TotalConsts>, i32), Failure> {
    let x = device.upload(&(0..N as i32).collect::<Vec<_>>())?;
    let mut out = device.zeros::<i32>(1)?;
    let outcome = Tuner::new(space).run(device, |config, trial| {
        trial.launch(config.call(&x, &mut out, N as i32).grid_with(|consts| N.div_ceil(consts.BLOCK)))
    })?;
    Ok((outcome, out.to_vec()?[0]))
}

fn check<C: std::fmt::Debug>(holds: bool, outcome: &Tuned<C>) -> Outcome {
    if holds { Ok(()) } else { Err(Failure(format!("{:?}, {:?}", outcome.tried, outcome.plan.pruned))) }
}
