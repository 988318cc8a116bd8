//! The search on times that an H100 took: a persistent product at eight sizes, in 242 configurations that chance drew of 640.
//!
//! `recorded.csv` is what `--search replay` of the bench `matmul` writes: `BM BN BK GROUP num_warps num_stages`, then for each
//! size the cycles of the cost model and the median time in milliseconds. Unlike made-up landscapes these have noise, cliffs,
//! and a cost model that is wrong in its own way.

use super::super::search::Search;

const RECORDED: &str = include_str!("recorded.csv");

/// A configuration's numbers, and for each size cycles and milliseconds.
pub(super) type Row = (Vec<i64>, Vec<(f64, f64)>);

pub(super) fn rows() -> (Vec<&'static str>, Vec<Row>) {
    let mut lines = RECORDED.lines();
    let sizes: Vec<&str> = lines.next().unwrap().split(',').skip(1).collect();
    let row = |line: &str| -> Row {
        let mut columns = line.split(',');
        let numbers = columns.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let pair = |column: &str| {
            let (cycles, ms) = column.split_once(' ').unwrap();
            (cycles.parse().unwrap(), ms.parse().unwrap())
        };
        (numbers, columns.map(pair).collect())
    };
    // In no order of speed.
    let mut rows: Vec<Row> = lines.map(row).collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    (sizes, rows)
}

/// The place of each number among those of its axis.
fn places(rows: &[Row]) -> Vec<Vec<u16>> {
    let axes = rows[0].0.len();
    let values = |axis: usize| {
        let mut values: Vec<i64> = rows.iter().map(|(numbers, _)| numbers[axis]).collect();
        values.sort();
        values.dedup();
        values
    };
    let values: Vec<Vec<i64>> = (0..axes).map(values).collect();
    let place = |(numbers, _): &Row| {
        let at = |(number, values): (&i64, &Vec<i64>)| values.iter().position(|value| value == number).unwrap() as u16;
        numbers.iter().zip(&values).map(at).collect()
    };
    rows.iter().map(place).collect()
}

/// After how many trials something within 2 % of the best is found, with and without the cost model.
fn trials(rows: &[Row], size: usize, seed: u64, guided: bool) -> usize {
    let best = rows.iter().map(|(_, times)| times[size].1).fold(f64::INFINITY, f64::min);
    let predicted: Vec<Option<f64>> = rows.iter().map(|(_, times)| guided.then_some(times[size].0)).collect();
    let mut first: Vec<usize> = (0..rows.len()).collect();
    first.sort_by(|a, b| predicted[*a].unwrap_or(0.0).total_cmp(&predicted[*b].unwrap_or(0.0)));
    first.truncate(8);
    let mut search = Search::new(places(rows), &predicted, first, seed);
    let mut trials = 0;
    while let Some(next) = search.propose() {
        trials += 1;
        let ms = rows[next].1[size].1;
        if ms <= best * 1.02 {
            break;
        }
        search.observe(next, Some(ms));
    }
    trials
}

#[test]
fn two_percent_of_what_was_measured_are_found_in_a_fifth_of_the_trials() {
    let (sizes, rows) = rows();
    assert_eq!((sizes.len(), rows.len()), (8, 242));
    let mut all = Vec::new();
    for (size, name) in sizes.iter().enumerate() {
        let trials: Vec<usize> = (0..8).map(|seed| trials(&rows, size, seed, true)).collect();
        println!("{name}: {trials:?}");
        assert!(trials.iter().all(|trials| *trials < rows.len() / 5), "{name}: {trials:?} of {}", rows.len());
        all.extend(trials);
    }
    all.sort();
    assert!(all[all.len() / 2] < rows.len() / 20, "{all:?}");
}

/// The model is worth having: without it the same takes longer.
#[test]
fn the_cost_model_shortens_the_search() {
    let (sizes, rows) = rows();
    let total = |guided: bool| -> usize {
        (0..sizes.len())
            .flat_map(|size| (0..4).map(move |seed| (size, seed)))
            .map(|(size, seed)| trials(&rows, size, seed, guided))
            .sum()
    };
    let (guided, blind) = (total(true), total(false));
    println!("{guided} trials with the cost model, {blind} without");
    assert!(2 * guided < blind, "{guided}, {blind}");
}
