//! The loss, to look at.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::train::Progress;

/// The losses in a line of text: the highest is the fullest block.
pub fn sparkline(losses: &[f32], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let lowest = losses.iter().copied().fold(f32::INFINITY, f32::min);
    let highest = losses.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let width = width.min(losses.len());
    let block = |column: usize| {
        let part = &losses[column * losses.len() / width..(column + 1) * losses.len() / width];
        let mean = part.iter().sum::<f32>() / part.len() as f32;
        let height = (mean - lowest) / (highest - lowest).max(f32::MIN_POSITIVE);
        BLOCKS[(height * 7.0).round().clamp(0.0, 7.0) as usize]
    };
    (0..width).map(block).collect()
}

/// Draws the losses as an SVG.
pub fn draw(curve: &[Progress], file: &Path) -> Result<(), Box<dyn Error>> {
    let steps = curve.last().map_or(1, |last| last.step);
    let highest = curve.iter().map(|at| at.loss).fold(0.0, f32::max);
    let root = SVGBackend::new(file, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut axes = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(0..steps, 0.0..highest * 1.05)?;
    axes.configure_mesh().x_desc("step").y_desc("loss, nats per character").light_line_style(WHITE).draw()?;
    let colour = RGBColor(0xC2, 0x41, 0x0C);
    axes.draw_series(LineSeries::new(curve.iter().map(|at| (at.step, at.loss)), colour.stroke_width(2)))?;
    root.present()?;
    Ok(())
}
