//! Results of products as pictures and as a page.

use std::path::{Path, PathBuf};

use tilewright::bench::{Chart, Colour, Line};

use super::outcome::{self, Outcome, Row};
use crate::Failure;

/// Who is drawn by the beginning of the name, how they are called, and in which colour.
const LINES: [(&str, &str, Colour); 4] = [
    ("tilewright", "Tilewright", Colour(0xC2, 0x41, 0x0C)),
    ("triton", "Triton", Colour(0x1D, 0x4E, 0xD8)),
    ("cublas", "cuBLAS, tuned", Colour(0x15, 0x80, 0x3D)),
    ("library", "cuBLAS", Colour(0x6B, 0x72, 0x80)),
];

/// `m`, `n` and `k` of a shape without a batch.
fn sizes(shape: &str) -> Option<[f64; 3]> {
    let sizes: Vec<f64> = shape.split('x').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    sizes.try_into().ok()
}

/// A line for each of [`LINES`], of those products for which `at` gives a place.
fn chart(rows: &[Row<'_>], dtype: &str, (title, axis): (&str, &str), at: impl Fn([f64; 3]) -> Option<f64>) -> Chart {
    let chart = Chart::new(&format!("{dtype}, {title}"), axis, "TFLOP/s");
    LINES.iter().fold(chart, |chart, (prefix, name, colour)| {
        let point = |row: &Row<'_>| {
            let o = if *prefix == "library" { row.named("cublas")? } else { row.best(prefix)? };
            let place = at(sizes(&o.shape)?)?;
            (o.dtype == dtype && o.group != "skinny").then_some((place, o.tflops))
        };
        chart.line(Line::new(name, rows.iter().filter_map(point).collect()).colour(*colour))
    })
}

/// Draws a dtype, if two panels of it have three sizes or more.
fn draw(rows: &[Row<'_>], dtype: &str, path: &Path) -> Result<bool, Failure> {
    let squares = chart(rows, dtype, ("M = N = K", "N"), |[m, n, k]| (m == n && n == k).then_some(m));
    let deep = |[m, n, k]: [f64; 3]| (m == 8192.0 && n == 8192.0).then_some(k);
    let charts = [squares, chart(rows, dtype, ("M = N = 8192", "K"), deep)];
    if charts.iter().any(|chart| chart.lines().iter().map(|line| line.points.len()).max() < Some(3)) {
        return Ok(false);
    }
    tilewright::bench::draw(&charts, path)?;
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
