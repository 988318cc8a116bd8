//! Work of several launches: looked at without being done, and tuned as a whole.

use super::*;
use tilewright::launch::shapes_of;
use tilewright::tune::{Pruned, Tuner};

const COLUMNS: usize = 1000;

fn twice(
    device: &Device,
    consts: SoftmaxConsts,
    x: &Buffer<f32>,
    out: &mut Buffer<f32>,
    rows: [usize; 2],
) -> Result<(), Error> {
    for rows in rows {
        consts.call(x, &mut *out, COLUMNS as i32).grid(rows).launch(device)?;
    }
    Ok(())
}

#[test]
fn launches_are_noted_and_not_made() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.full(2 * COLUMNS, 1.0f32)?, device.full(2 * COLUMNS, 7.0f32)?);
    let consts = SoftmaxConsts { BLOCK: 1024 };
    let shapes = shapes_of(|| twice(&device, consts, &x, &mut out, [2, 1]))?;
    let seen: Vec<_> = shapes.iter().map(|shape| (shape.kernel(), shape.grid())).collect();
    assert_eq!(seen, [("softmax", [2, 1, 1]), ("softmax", [1, 1, 1])]);
    assert_eq!(out.to_vec()?, vec![7.0; 2 * COLUMNS]);
    // What a launch refuses is refused, and afterwards launches are made again.
    let refused = shapes_of(|| consts.call(&x, &mut out, 1).num_warps(3).grid(1).launch(&device));
    assert!(matches!(refused, Err(Error::InvalidSetting { .. })), "{refused:?}");
    let nested = shapes_of(|| shapes_of(|| Ok(())).map(drop));
    assert!(matches!(nested, Err(Error::Unsupported { .. })), "{nested:?}");
    twice(&device, consts, &x, &mut out, [1, 2])?;
    assert!(out.to_vec()?.iter().all(|p| (p * COLUMNS as f32 - 1.0).abs() < 1e-3));
    Ok(())
}

#[test]
fn launches_of_other_threads_are_made() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.full(COLUMNS, 1.0f32)?, device.zeros::<f32>(COLUMNS)?);
    let shapes = shapes_of(|| {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| twice(&device, SoftmaxConsts { BLOCK: 1024 }, &x, &mut out, [1, 1]));
            other.join().unwrap_or(Ok(()))
        })
    })?;
    assert!(shapes.is_empty());
    assert!(out.to_vec()?[0] > 0.0);
    Ok(())
}

#[test]
fn works_are_pruned_and_ranked_by_all_their_launches() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(4 * COLUMNS)?, device.zeros::<f32>(4 * COLUMNS)?);
    let mut plan = |rows: [usize; 2]| {
        let space = SoftmaxConsts::space().BLOCK([32, 1024, 2048]);
        let tuner = Tuner::new(space).target(Target::sm_90a()).multiprocessors(132);
        tuner.plan(&device, |config, trial| {
            trial.run(device.default_stream(), || twice(&device, config.consts, &x, &mut out, rows))
        })
    };
    let (once, both) = (plan([4, 0])?, plan([4, 4])?);
    for plan in [&once, &both] {
        assert_eq!(plan.kept.iter().map(|one| one.config.BLOCK).collect::<Vec<_>>(), [1024, 2048]);
        assert!(matches!(plan.pruned[..], [(ref config, Pruned::Refused(_))] if config.BLOCK == 32), "{plan:?}");
    }
    for (one, two) in once.kept.iter().zip(&both.kept) {
        let cycles = |planned: &tilewright::tune::Planned<SoftmaxConsts>| planned.placement().map(|p| p.cycles);
        assert_eq!(cycles(two), cycles(one).map(|cycles| 2.0 * cycles));
    }
    Ok(())
}

/// What is wrong with results is said after each first run in a configuration, and what another has left is gone before.
#[test]
fn results_of_works_are_looked_at() -> Result<(), Error> {
    let device = Device::cpu();
    let x = device.full(COLUMNS, 1.0f32)?;
    let out = std::cell::RefCell::new(device.zeros::<f32>(COLUMNS)?);
    let tuner = Tuner::new(SoftmaxConsts::space().BLOCK([64, 1024, 2048])).name("rows").dtype("f32");
    let outcome = tuner.run(&device, |config, trial| {
        trial.run_checked(
            device.default_stream(),
            || out.borrow_mut().fill(-1.0),
            || twice(&device, config.consts, &x, &mut out.borrow_mut(), [1, 1]),
            || match out.borrow().to_vec() {
                Ok(values) if values.iter().all(|value| *value > 0.0) => Ok(()),
                Ok(values) => Err(format!("{} are missing", values.iter().filter(|value| **value < 0.0).count())),
                Err(error) => Err(error.to_string()),
            },
        )
    })?;
    assert_ne!(outcome.best.BLOCK, 64);
    let wrong = outcome.explain(&SoftmaxConsts { BLOCK: 64 }.into());
    assert!(wrong.ends_with("computes something else: 936 are missing"), "{wrong}");
    Ok(())
}
