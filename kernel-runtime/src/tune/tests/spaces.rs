//! What is in a space.

use super::*;
use crate::error::Error;

#[test]
fn a_space_has_every_combination_that_meets_its_conditions() {
    let (all, unmet) = tiles().candidates().unwrap();
    assert_eq!((all.len(), unmet), (5 * 8 * 4 * 2 * 2 * 2, 0));
    let (some, unmet) =
        tiles().where_(|config| config.bm * config.bn <= 128 * 128).where_(|c| !c.swap).candidates().unwrap();
    assert!(some.iter().all(|one| one.config.bm * one.config.bn <= 128 * 128 && !one.config.swap));
    assert_eq!(some.len() + unmet, all.len());
    let first = &all[0];
    assert_eq!(first.config.to_string(), "BM = 32, BN = 32, BK = 16, SWAP = 0, num_warps = 4, num_stages = 2");
    assert_eq!(first.place, [0; 7]);
}

#[test]
fn values_are_sorted_and_said_once() {
    let space = tiles().constexpr(0, [64, 32, 64]);
    assert_eq!(space.axes().unwrap()[0].values, [Some(32), Some(64)]);
}

#[test]
fn what_has_no_values_is_named() {
    let space: Space<Tiles> = Space::new().constexpr(0, [64]).constexpr(1, [64]);
    let error = space.axes().unwrap_err().to_string();
    assert_eq!(
        error,
        "tuning: the space has no values for `BK`; give them with `.BK([..])`, or one with `.starting_at(..)`"
    );
    let start = Tiles { bm: 32, bn: 32, bk: 16, swap: true };
    let (candidates, _) = space.starting_at(start).candidates().unwrap();
    assert_eq!(candidates.len(), 2, "the one to start at need not be in the space");
    assert_eq!(candidates[0].config, start.into());
    assert!(tiles().num_warps([]).axes().is_err());
}

#[test]
fn values_that_a_constexpr_cannot_have_are_errors() {
    for (axis, value) in [(2, -1), (2, 1 << 40), (3, 2)] {
        let error = tiles().constexpr(axis, [value]).candidates().unwrap_err();
        assert!(matches!(error, Error::Tuning { .. }) && error.to_string().contains("does not fit"), "{error}");
    }
    let many = tiles().constexpr(0, 0..100_000);
    assert!(many.axes().unwrap_err().to_string().contains("more than"));
}

#[test]
fn the_one_to_start_at_comes_first() {
    let start = Config { consts: Tiles { bm: 256, bn: 64, bk: 64, swap: true }, ..candidates()[0] };
    let (candidates, _) = tiles().starting_at(start).candidates().unwrap();
    assert_eq!((candidates[0].config, candidates.len()), (start, 1280));
}

fn candidates() -> Vec<Config<Tiles>> {
    tiles().candidates().unwrap().0.into_iter().map(|one| one.config).collect()
}

#[test]
fn configurations_are_their_values() {
    for config in candidates() {
        let values: Vec<Option<i64>> = config.values().collect();
        assert_eq!(Config::from_values(&values), Some(config));
    }
    assert_eq!(Config::<Tiles>::from_values(&[Some(1); 6]), None, "too few");
    assert_eq!(Config::<Tiles>::from_values(&[None, Some(1), Some(1), Some(1), None, None, None]), None);
}
