//! The times, to look at.

use crate::measure::Row;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

const COLOUR: RGBColor = RGBColor(0xC2, 0x41, 0x0C);

/// Draws both times of each row as an SVG.
pub fn draw(rows: &[Row], file: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(file, (960, 320)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(480);
    bars(&left, "the prompt, ms", rows, |row| row.prompt)?;
    bars(&right, "a token, ms", rows, |row| row.token)?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A bar for each row, the first on top.
fn bars(area: &Area<'_>, title: &str, rows: &[Row], time: fn(&Row) -> Duration) -> Result<(), Box<dyn Error>> {
    let ms: Vec<f64> = rows.iter().map(|row| 1e3 * time(row).as_secs_f64()).collect();
    let longest = ms.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(24)
        .y_label_area_size(140)
        .build_cartesian_2d(0.0..longest * 1.1, (0..rows.len().saturating_sub(1)).into_segmented())?;
    let label = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(at) | SegmentValue::Exact(at) => {
            rows.iter().rev().nth(*at).map_or(String::new(), |row| row.label.to_string())
        }
        SegmentValue::Last => String::new(),
    };
    chart.configure_mesh().disable_y_mesh().x_labels(6).light_line_style(WHITE).y_label_formatter(&label).draw()?;
    chart.draw_series(ms.iter().rev().enumerate().map(|(at, ms)| {
        let corners = [(0.0, SegmentValue::Exact(at)), (*ms, SegmentValue::Exact(at + 1))];
        let mut bar = Rectangle::new(corners, COLOUR.filled());
        bar.set_margin(6, 6, 0, 0);
        bar
    }))?;
    Ok(())
}
