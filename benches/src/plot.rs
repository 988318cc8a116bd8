//! Results as pictures: GB/s against size, one line per contender, with the rate of the device's copy as the limit.

use std::path::{Path, PathBuf};

use tilewright::bench::{Chart, Colour, Line, draw};

use crate::{Failure, Outcome};

/// Who is drawn, how they are called, and in which colour.
const LINES: [(&str, &str, Colour); 4] = [
    ("tilewright", "Tilewright", Colour(0xC2, 0x41, 0x0C)),
    ("triton", "Triton", Colour(0x1D, 0x4E, 0xD8)),
    ("pytorch", "PyTorch", Colour(0x15, 0x80, 0x3D)),
    ("copy", "device copy", Colour(0x6B, 0x72, 0x80)),
];

/// Rows and columns of a shape such as `4096x1024`; a vector has no rows. Shapes at an odd address are `None`.
fn size(shape: &str) -> Option<(Option<f64>, f64)> {
    match shape.split_once('x') {
        Some((rows, columns)) => Some((Some(rows.parse().ok()?), columns.parse().ok()?)),
        None => Some((None, shape.parse().ok()?)),
    }
}

/// The number of rows that most shapes of a work have.
fn common_rows(outcomes: &[&Outcome]) -> Option<f64> {
    let rows: Vec<f64> = outcomes.iter().filter_map(|o| size(&o.shape)?.0).collect();
    let count = |r: &f64| rows.iter().filter(|other| *other == r).count();
    rows.iter().copied().max_by_key(|r| count(r))
}

/// The picture of a work, if there are three sizes of ours.
fn chart(work: &str, dtype: &str, outcomes: &[Outcome], limit: f64) -> Option<Chart> {
    let own: Vec<&Outcome> = outcomes.iter().filter(|o| o.work == work && o.dtype == dtype).collect();
    let rows = common_rows(&own);
    let axis = rows.map_or_else(|| "elements".to_string(), |r| format!("elements per row, {r} rows"));
    let title = format!("{}, {dtype}: GB/s against size", work.replace('_', " "));
    let chart = Chart::new(&title, &axis, "GB/s").limit(&format!("limit: device copy, {limit:.0} GB/s"), limit);
    let chart = LINES.iter().fold(chart, |chart, (contender, name, colour)| {
        let matches =
            |o: &&Outcome| o.contender == *contender && (o.work == work || o.work == "copy") && o.dtype == dtype;
        let point = |o: &Outcome| size(&o.shape).filter(|(r, _)| *r == rows).map(|(_, n)| (n, o.gbps));
        chart.line(Line::new(name, outcomes.iter().filter(matches).filter_map(point).collect()).colour(*colour))
    });
    (chart.lines()[0].points.len() >= 3).then_some(chart)
}

/// Draws every work and dtype with three sizes or more into a folder, and returns the files.
///
/// # Errors
/// If there is no copy among the outcomes, or a file cannot be written.
pub fn draw_all(outcomes: &[Outcome], folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let copies = outcomes.iter().filter(|o| o.contender == "copy").map(|o| o.gbps);
    let limit =
        copies.reduce(f64::max).ok_or("the results have no rate of the device's copy: run the work `copy` too")?;
    let mut works: Vec<(&str, &str)> = Vec::new();
    for o in outcomes.iter().filter(|o| o.work != "copy") {
        if !works.contains(&(&o.work, &o.dtype)) {
            works.push((&o.work, &o.dtype));
        }
    }
    let mut files = Vec::new();
    for (work, dtype) in works {
        if let Some(chart) = chart(work, dtype, outcomes, limit) {
            let path = folder.join(format!("{work}_{dtype}.svg"));
            draw(&[chart], &path)?;
            files.push(path);
        }
    }
    Ok(files)
}
