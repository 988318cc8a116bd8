//! What is left to try, by what is known without compiling.

use super::*;
use tilewright::tune::{Failure, FailureKind, Plan, Pruned, Tuner};

/// Multiprocessors of the GPU that is planned for.
const PROCESSORS: usize = 132;

/// A plan of products of these sizes for Hopper, made on a CPU. Memory is that of a smaller product: the plan does not look at
/// it.
fn products(
    space: impl Into<tilewright::tune::Space<PersistentConsts>>,
    size: usize,
) -> Result<Plan<PersistentConsts>, Error> {
    let device = Device::cpu();
    let (a, b, mut c) =
        (device.zeros::<f16>(size * size)?, device.zeros::<f16>(size * size)?, device.zeros::<f16>(size * size)?);
    let (a, b) = (TensorDesc::new(&a, [size, size])?, TensorDesc::new(&b, [size, size])?);
    Tuner::new(space).target(Target::sm_90a()).multiprocessors(PROCESSORS).plan(&device, |config, trial| {
        let mut c = TensorDescMut::new(&mut c, [size, size])?;
        let call = config.call(&a, &b, &mut c, size as i32, size as i32, size as i32);
        trial.launch(call.grid_with(|consts| (size.div_ceil(consts.BM) * size.div_ceil(consts.BN)).min(PROCESSORS)))
    })
}

fn few() -> PersistentSpace {
    PersistentConsts::space().BM([64, 128]).BN([64, 256]).BK([64]).GROUP([8]).num_warps([4, 8]).num_stages([3, 4])
}

#[test]
fn everything_is_either_left_or_out_with_a_reason() -> Result<(), Error> {
    let plan = products(few(), 1024)?;
    assert_eq!(plan.kept.len() + plan.pruned.len(), 16, "{plan:?}");
    assert!(plan.kept.iter().all(|planned| planned.placement().is_some()));
    let cycles = |at: usize| plan.kept[at].placement().map_or(0.0, |placement| placement.cycles);
    assert!((1..plan.kept.len()).all(|at| cycles(at - 1) <= cycles(at)), "the most promising come first");
    println!("{} left, {} out in {:?}", plan.kept.len(), plan.pruned.len(), plan.time);
    Ok(())
}

/// Sums of 64 x 64 tiles read each factor twice as often as those of 128 x 256 ones.
#[test]
fn the_cost_model_prefers_what_is_known_to_be_fast() -> Result<(), Error> {
    let plan = products(few(), 4096)?;
    let rank = |bm, bn| {
        let is = |consts: &PersistentConsts| consts.BM == bm && consts.BN == bn;
        plan.kept.iter().position(|planned| is(&planned.config)).unwrap_or(usize::MAX)
    };
    assert!(
        rank(128, 256) < rank(64, 64),
        "{:?}",
        plan.kept.iter().map(|one| one.config.to_string()).collect::<Vec<_>>()
    );
    let flops = plan.kept[0].placement().map(|placement| placement.work.flops);
    // The first of 132 programs has 4 of 512 tiles of 128 x 256, and each element takes 2 * 4096 operations.
    let tiles = |bm: usize, bn: usize| (4096 / bm * (4096 / bn)).div_ceil(PROCESSORS) as f64;
    let (bm, bn) = (plan.kept[0].config.BM, plan.kept[0].config.BN);
    assert_eq!(flops, Some(tiles(bm, bn) * (bm * bn * 2 * 4096) as f64));
    Ok(())
}

#[test]
fn what_cannot_run_is_out_before_anything_is_compiled() -> Result<(), Error> {
    let large = PersistentConsts::space().BM([256]).BN([512]).BK([64]).GROUP([8]).num_warps([4, 8]);
    let plan = products(large, 1024)?;
    assert!(plan.kept.is_empty(), "{:?}", plan.kept);
    for (config, why) in &plan.pruned {
        let is_expected = match why {
            Pruned::Refused(Failure { kind, .. }) => *kind == FailureKind::Resources || *kind == FailureKind::Compile,
            Pruned::Registers { alive, limit } => alive > limit,
            Pruned::Occupancy => true,
            _ => false,
        };
        assert!(is_expected, "{config}: {why}");
    }
    Ok(())
}

fn rows(space: SoftmaxSpace, target: Option<Target>) -> Result<Plan<SoftmaxConsts>, Error> {
    let device = Device::cpu();
    let (x, mut out) = (device.zeros::<f32>(4000)?, device.zeros::<f32>(4000)?);
    let tuner = Tuner::new(space);
    let tuner = if let Some(target) = target { tuner.target(target) } else { tuner };
    tuner.plan(&device, |config, trial| trial.launch(config.call(&x, &mut out, 1000).grid(4)))
}

#[test]
fn assertions_and_same_code_are_out_on_every_device() -> Result<(), Error> {
    for target in [None, Some(Target::sm_90a()), Some(Target::sm_80())] {
        let plan = rows(SoftmaxConsts::space().BLOCK([32, 1024, 2048]).num_stages([2, 3]), target)?;
        // No loop, no stages.
        assert_eq!(plan.kept.len(), 2, "{target:?}: {plan:?}");
        let refused =
            plan.pruned.iter().filter(|(config, why)| matches!(why, Pruned::Refused(_)) && config.BLOCK == 32);
        assert_eq!(refused.count(), 2);
        let same: Vec<String> =
            plan.pruned.iter().map(|(_, why)| why.to_string()).filter(|why| why.contains("same")).collect();
        assert_eq!(same.len(), 2);
        assert!(same.contains(&"becomes the same code as BLOCK = 1024, num_stages = 2".to_string()), "{same:?}");
    }
    Ok(())
}

/// The space that the project's targets speak of. Release builds take a few milliseconds for each.
#[test]
fn a_large_space_is_planned_in_seconds() -> Result<(), Error> {
    // Builds that check everything take ten times as long, and get the part of the space of which most is left.
    let space = match cfg!(debug_assertions) {
        true => PersistentConsts::space().BM([64, 128]).BN([64, 128, 256]),
        false => PersistentConsts::space().BM([64, 128, 192, 256]).BN([64, 96, 128, 160, 192, 256]),
    };
    let space = space.BK([32, 64, 128]);
    let space = space.GROUP([1, 4, 8, 16]).num_warps([4, 8]).num_stages([2, 3, 4, 6]);
    let (candidates, _) = tilewright::tune::Space::from(space.clone()).candidates()?;
    let plan = products(space, 4096)?;
    let each = plan.time.as_secs_f64() * 1e3 / candidates.len() as f64;
    println!("{} of {} left in {:?}, {each:.2} ms each", plan.kept.len(), candidates.len(), plan.time);
    assert!(plan.kept.len() >= 400, "{}", plan.kept.len());
    Ok(())
}
