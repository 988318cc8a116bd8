//! Launches by tables.

use super::*;
use tilewright::launch::Config;
use tilewright::tune::{Table, Tuned, Tuner};
use tilewright_tests::devices::check;

const ROWS: usize = 3;
const COLUMNS: usize = 200;

fn inputs() -> Vec<f32> {
    (0..ROWS * COLUMNS).map(|at| (at % 17) as f32 / 4.0).collect()
}

fn tuned() -> Result<Tuned<SoftmaxConsts>, Error> {
    let mut table = Table::new();
    let mut config = Config::from(SoftmaxConsts { BLOCK: 256 });
    config.options.num_warps = Some(2);
    table.insert("softmax", "here", "f32", &[ROWS, COLUMNS], &config);
    Table::parse(&table.to_toml())?.of("softmax", "here", "f32")
}

#[test]
fn a_launch_by_a_table_is_the_launch_with_these_numbers_written_out() -> Result<(), Error> {
    let tuned = tuned()?;
    let device = Device::cpu();
    let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
    let columns = COLUMNS as i32;
    let code = |call: tilewright::launch::Call<'_, SoftmaxConsts>| {
        call.grid(ROWS).compile(Target::sm_90a()).map(|compiled| compiled.ptx().to_string())
    };
    let by_table = code(softmax::<_, 1024>(&x, &mut out, columns).tuned(&tuned, &[ROWS, COLUMNS]));
    let written = code(softmax::<_, 256>(&x, &mut out, columns).num_warps(2));
    match (by_table, written) {
        (Ok(by_table), Ok(written)) => assert_eq!(by_table, written),
        // Without LLVM both are refused.
        (by_table, written) => assert_eq!(by_table, written),
    }
    Ok(())
}

#[test]
fn launches_by_a_table_run_and_can_be_captured() {
    check(|device| {
        let tuned = tuned()?;
        let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
        let graph = device.capture(|| {
            let call = softmax::<_, 1024>(&x, &mut out, COLUMNS as i32).tuned(&tuned, &[ROWS, COLUMNS]);
            assert_eq!(call.consts().BLOCK, 256);
            call.grid(ROWS).launch(device)
        })?;
        graph.replay()?;
        drop(graph);
        let sums: Vec<f32> = out.to_vec()?.chunks(COLUMNS).map(|row| row.iter().sum()).collect();
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{sums:?}");
        Ok(())
    });
}

#[test]
fn tuning_inside_a_capture_is_refused() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
    let mut refused = None;
    let _ = device.capture(|| {
        let tuner = Tuner::new(SoftmaxConsts::space().BLOCK([256]));
        let tuned =
            tuner.run(&device, |config, trial| trial.launch(config.call(&x, &mut out, COLUMNS as i32).grid(ROWS)));
        refused = tuned.err();
        Ok(())
    });
    let text = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains("tuning a kernel"), "{text}");
    Ok(())
}

/// What a user's repository tests of its tables.
#[test]
fn rows_that_no_longer_compile_are_found_without_a_gpu() -> Result<(), Error> {
    let works = |config: &Config<SoftmaxConsts>, _: &[usize]| {
        config.request::<f32>().options(config.options).place(Target::sm_90a()).map(drop)
    };
    let mut tuned = tuned()?;
    assert_eq!(tuned.verify(works), Ok(()));
    tuned.insert(&[1, 100], SoftmaxConsts { BLOCK: 96 }.into());
    let error = tuned.verify(works).map_err(|error| error.to_string());
    assert!(
        error.clone().is_err_and(|text| text.contains("1 of 2 rows no longer compile") && text.contains("BLOCK = 96")),
        "{error:?}"
    );
    Ok(())
}

/// Errors that were there before belong to whoever launched what failed.
#[test]
fn errors_of_before_are_given_before_tuning_begins() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
    softmax::<_, 256>(&x, &mut out, COLUMNS as i32).grid(ROWS + 1).launch(&device)?;
    let mut launches = 0;
    let mut run = || {
        Tuner::new(SoftmaxConsts::space().BLOCK([256])).run(&device, |config, trial| {
            launches += 1;
            trial.launch(config.call(&x, &mut out, COLUMNS as i32).grid(ROWS))
        })
    };
    assert!(matches!(run(), Err(Error::OutOfBounds { .. })));
    run()?;
    assert!(launches > 0);
    Ok(())
}

/// A function of several launches is tuned as a whole.
#[test]
fn work_of_several_launches_is_tuned() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
    let tuner = Tuner::new(SoftmaxConsts::space().BLOCK([256, 512])).name("twice").dtype("f32");
    let outcome = tuner.run(&device, |config, trial| {
        trial.run(device.default_stream(), || {
            config.call(&x, &mut out, COLUMNS as i32).grid(ROWS).launch(&device)?;
            config.call(&x, &mut out, COLUMNS as i32).grid(ROWS).launch(&device)
        })
    })?;
    assert_eq!(outcome.tried.len(), 2);
    let nothing = Tuner::new(SoftmaxConsts::space().BLOCK([256])).run(&device, |_, _| Ok(()));
    assert!(nothing.is_err_and(|error| error.to_string().contains("launches nothing")));
    Ok(())
}

/// What a look into a table adds to making a call: the best of many, as other processes take time too.
#[test]
fn a_look_into_a_table_takes_less_than_a_tenth_of_a_microsecond() -> Result<(), Error> {
    const CALLS: u32 = 10_000;
    let tuned = tuned()?;
    let device = Device::cpu();
    let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
    let mut best = [f64::INFINITY; 2];
    for _ in 0..20 {
        for (by_table, best) in best.iter_mut().enumerate() {
            let start = std::time::Instant::now();
            for _ in 0..CALLS {
                let call = softmax::<_, 1024>(&x, &mut out, std::hint::black_box(COLUMNS as i32));
                // Without programs nothing runs.
                match by_table {
                    0 => call.grid(0).launch(&device)?,
                    _ => call.tuned(&tuned, std::hint::black_box(&[ROWS, COLUMNS])).grid(0).launch(&device)?,
                }
            }
            *best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
    }
    let [plain, by_table] = best;
    println!("a call takes {plain:.1} ns, by a table {by_table:.1} ns");
    // What is promised of release builds. Without optimisation, beside other tests, a look takes two microseconds; searching
    // a file or a plan would take a hundred.
    let most = if cfg!(debug_assertions) { 20_000.0 } else { 100.0 };
    assert!(by_table - plain <= most, "{plain} ns, {by_table} ns");
    Ok(())
}

/// Tuning again with few trials does not lose what was found with many.
#[test]
fn a_row_of_the_table_is_tried_before_it_is_replaced() -> Result<(), Error> {
    let folder = std::env::temp_dir().join(format!("tilewright-rows-{}", std::process::id()));
    let path = folder.join("softmax.toml");
    let device = Device::cpu();
    let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
    let mut table = Table::new();
    let row = Config::from(SoftmaxConsts { BLOCK: 2048 });
    table.insert("softmax", device.name(), "f32", &[ROWS, COLUMNS], &row);
    table.merge_into(&path)?;
    let mut tune = |space: SoftmaxSpace| {
        let tuner = Tuner::new(space).sizes(&[ROWS, COLUMNS]).table(&path).trials(1);
        tuner.run(&device, |config, trial| trial.launch(config.call(&x, &mut out, COLUMNS as i32).grid(ROWS)))
    };
    // Among the values or not: it is the only one that is tried, so it stays.
    for blocks in [&[256, 512, 1024, 2048][..], &[256, 512]] {
        let outcome = tune(SoftmaxConsts::space().BLOCK(blocks.iter().copied()))?;
        assert_eq!((outcome.best, outcome.tried.len(), outcome.warnings.len()), (row, 1, 0), "{:?}", outcome.warnings);
        assert_eq!(Table::read(&path)?.rows("softmax")[0].to_config("softmax"), Ok(row));
    }
    // A condition that it does not meet is the user's word against it, and is said.
    let outcome = tune(SoftmaxConsts::space().BLOCK([256, 2048]).where_(|consts| consts.BLOCK < 1024))?;
    assert_eq!(outcome.best.BLOCK, 256);
    let [warning] = &outcome.warnings[..] else { panic!("{:?}", outcome.warnings) };
    assert!(warning.contains("BLOCK = 2048, is not tried: it does not meet the conditions of the space"), "{warning}");
    assert_eq!(Table::read(&path)?.rows("softmax").len(), 1);
    // A table that cannot be read is an error before anything is tuned.
    std::fs::write(&path, "[[softmax]").map_err(|why| Error::Internal { message: why.to_string().into() })?;
    let error = tune(SoftmaxConsts::space().BLOCK([256])).map(drop).map_err(|error| error.to_string());
    assert!(error.clone().is_err_and(|text| text.contains("softmax.toml cannot be read")), "{error:?}");
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// A mistake in the closure is one of that configuration.
#[test]
fn a_closure_that_panics_is_a_failure_of_its_configuration() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.upload(&inputs())?, device.zeros::<f32>(ROWS * COLUMNS)?);
    let outcome = Tuner::new(SoftmaxConsts::space().BLOCK([256, 512])).run(&device, |config, trial| {
        assert!(config.BLOCK == 256, "not this one");
        trial.launch(config.call(&x, &mut out, COLUMNS as i32).grid(ROWS))
    })?;
    assert_eq!(outcome.best.BLOCK, 256);
    let why = outcome.explain(&Config::from(SoftmaxConsts { BLOCK: 512 }));
    assert!(why.contains("the closure of a tuner panicked; not this one"), "{why}");
    Ok(())
}
