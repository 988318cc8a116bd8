//! Results as pictures: GB/s against size, one line per contender, with the rate of the device's copy as the limit.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::{Failure, Outcome};

/// Who is drawn, how they are called, and in which colour.
const LINES: [(&str, &str, RGBColor); 4] = [
    ("tilewright", "Tilewright", RGBColor(0xC2, 0x41, 0x0C)),
    ("triton", "Triton", RGBColor(0x1D, 0x4E, 0xD8)),
    ("pytorch", "PyTorch", RGBColor(0x15, 0x80, 0x3D)),
    ("copy", "device copy", RGBColor(0x6B, 0x72, 0x80)),
];

/// Points of a line: size and GB/s.
type Points = Vec<(f64, f64)>;

/// What a picture shows.
struct Chart {
    title: String,
    /// What the horizontal axis counts.
    axis: String,
    /// One per line of [`LINES`].
    lines: Vec<Points>,
    limit: f64,
}

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

fn chart(work: &str, dtype: &str, outcomes: &[Outcome], limit: f64) -> Option<Chart> {
    let own: Vec<&Outcome> = outcomes.iter().filter(|o| o.work == work && o.dtype == dtype).collect();
    let rows = common_rows(&own);
    let line = |name: &str| {
        let matches = |o: &&Outcome| o.contender == name && (o.work == work || o.work == "copy") && o.dtype == dtype;
        let point = |o: &Outcome| size(&o.shape).filter(|(r, _)| *r == rows).map(|(_, n)| (n, o.gbps));
        let mut points: Points = outcomes.iter().filter(matches).filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let lines: Vec<Points> = LINES.iter().map(|(name, ..)| line(name)).collect();
    let axis = rows.map_or_else(|| "elements".to_string(), |r| format!("elements per row, {r} rows"));
    let title = format!("{}, {dtype}: GB/s against size", work.replace('_', " "));
    (lines[0].len() >= 3).then_some(Chart { title, axis, lines, limit })
}

impl Chart {
    fn draw(&self, path: &Path) -> Result<(), Failure> {
        let sizes = self.lines.iter().flatten().map(|p| p.0);
        let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |(a, b), x| (a.min(x), b.max(x)));
        let highest = self.lines.iter().flatten().map(|p| p.1).fold(self.limit, f64::max);
        let root = SVGBackend::new(path, (760, 440)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut axes = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d((least..most * 1.05).log_scale(), 0.0..highest * 1.08)?;
        axes.configure_mesh()
            .x_desc(&self.axis)
            .y_desc("GB/s")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .light_line_style(WHITE)
            .draw()?;
        let limit = [(least, self.limit), (most * 1.05, self.limit)];
        axes.draw_series(LineSeries::new(limit, BLACK.stroke_width(1)))?
            .label(format!("limit: device copy, {:.0} GB/s", self.limit))
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK));
        for ((_, name, colour), points) in LINES.iter().zip(&self.lines).filter(|(_, points)| !points.is_empty()) {
            let colour = *colour;
            axes.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        let legend = SeriesLabelPosition::LowerRight;
        axes.configure_series_labels().position(legend).background_style(WHITE.mix(0.9)).border_style(BLACK).draw()?;
        root.present()?;
        Ok(())
    }
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
            chart.draw(&path)?;
            files.push(path);
        }
    }
    Ok(files)
}
