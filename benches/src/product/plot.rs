//! Results of products as pictures and as a page.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

use super::outcome::{self, Outcome, Row};
use crate::Failure;

/// Who is drawn by the beginning of the name, how they are called, and in which colour.
const LINES: [(&str, &str, RGBColor); 4] = [
    ("tilewright", "Tilewright", RGBColor(0xC2, 0x41, 0x0C)),
    ("triton", "Triton", RGBColor(0x1D, 0x4E, 0xD8)),
    ("cublas", "cuBLAS, tuned", RGBColor(0x15, 0x80, 0x3D)),
    ("library", "cuBLAS", RGBColor(0x6B, 0x72, 0x80)),
];

/// Sizes and TFLOP/s, one list per line of [`LINES`].
type Lines = [Vec<(f64, f64)>; LINES.len()];

/// `m`, `n` and `k` of a shape without a batch.
fn sizes(shape: &str) -> Option<[f64; 3]> {
    let sizes: Vec<f64> = shape.split('x').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    sizes.try_into().ok()
}

/// The points of those products for which `at` gives a place.
fn lines(rows: &[Row<'_>], dtype: &str, at: impl Fn([f64; 3]) -> Option<f64>) -> Lines {
    LINES.map(|(prefix, ..)| {
        let point = |row: &Row<'_>| {
            let o = if prefix == "library" { row.named("cublas")? } else { row.best(prefix)? };
            let place = at(sizes(&o.shape)?)?;
            (o.dtype == dtype && o.group != "skinny").then_some((place, o.tflops))
        };
        let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    })
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, axis: &str, lines: &Lines) -> Result<(), Failure> {
    let all = || lines.iter().flatten();
    let (least, most) = all().fold((f64::INFINITY, 0.0f64), |(a, b), p| (a.min(p.0), b.max(p.0)));
    let highest = all().map(|p| p.1).fold(0.0, f64::max);
    let mut axes = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d((least..most * 1.05).log_scale().base(2.0), 0.0..highest * 1.08)?;
    axes.configure_mesh()
        .x_desc(axis)
        .y_desc("TFLOP/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for ((_, name, colour), points) in LINES.iter().zip(lines).filter(|(_, points)| !points.is_empty()) {
        let colour = *colour;
        axes.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    let legend = SeriesLabelPosition::LowerRight;
    axes.configure_series_labels().position(legend).background_style(WHITE.mix(0.9)).border_style(BLACK).draw()?;
    Ok(())
}

/// Draws a dtype, if two panels of it have three sizes or more.
fn draw(rows: &[Row<'_>], dtype: &str, path: &Path) -> Result<bool, Failure> {
    let squares = lines(rows, dtype, |[m, n, k]| (m == n && n == k).then_some(m));
    let deep = lines(rows, dtype, |[m, n, k]| (m == 8192.0 && n == 8192.0).then_some(k));
    if [&squares, &deep].iter().any(|lines| lines.iter().map(Vec::len).max() < Some(3)) {
        return Ok(false);
    }
    let root = SVGBackend::new(path, (1080, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let halves = root.split_evenly((1, 2));
    panel(&halves[0], &format!("{dtype}, M = N = K"), "N", &squares)?;
    panel(&halves[1], &format!("{dtype}, M = N = 8192"), "K", &deep)?;
    root.present()?;
    Ok(true)
}

/// Makes `matmul.md` and the pictures from `matmul.csv`, and returns which targets are met.
///
/// # Errors
/// If there is no `matmul.csv`, or a file cannot be written.
pub fn page(folder: &Path) -> Result<String, Failure> {
    let source = folder.join("matmul.csv");
    let text = std::fs::read_to_string(&source).map_err(|e| format!("{}: {e}", source.display()))?;
    let (notes, outcomes): (Vec<String>, Vec<Outcome>) = outcome::parse(&text);
    let rows = outcome::rows(&outcomes);
    let verdicts = outcome::verdicts(&rows);
    let mut page = String::from("# Matrix products\n\n");
    page += "TFLOP/s, medians of interleaved rounds on normally distributed numbers with the L2 cache flushed; each side \
             with its best configuration and form. Ratios are medians of the ratios within a round. `cuBLAS` chooses by \
             itself; `cuBLASLt, tuned` is the best of its eight proposals. f16 and bf16 are row-major, f32 (multiplied as \
             tf32) and f8e4m3 have both operands contiguous along K. `to reading` is the rate of the bytes that the \
             product needs, divided by that of a kernel that only reads.\n\n";
    for note in &notes {
        page += &format!("- {note}\n");
    }
    page += &format!("\n{verdicts}\n{}\n", outcome::markdown(&rows));
    for dtype in ["f16", "bf16"] {
        let file: PathBuf = folder.join(format!("matmul_{dtype}.svg"));
        if draw(&rows, dtype, &file)? {
            page += &format!("![matmul_{dtype}.svg](matmul_{dtype}.svg)\n");
        }
    }
    std::fs::write(folder.join("matmul.md"), page)?;
    Ok(verdicts)
}
