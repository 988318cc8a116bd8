//! What tuning found, as pictures: on the terminal, and as SVG.

use super::outcome::Outcome;
use crate::launch::Constexprs;
use std::fmt::Write;

/// Characters of the longest bar.
const WIDTH: usize = 40;

impl<C: Constexprs> Outcome<C> {
    /// For a terminal: how the best time fell over trials, and the best time for each value of each axis.
    pub fn chart(&self) -> String {
        let mut text = format!("best {:.4} ms after {} trials: {}\n", self.ms, self.tried.len(), self.best);
        if let Some(bound) = self.bound {
            let _ = writeln!(text, "{:.0} % of the bound, {bound:.4} ms", bound / self.ms * 100.0);
        }
        for (number, at, best) in self.improvements() {
            let _ = writeln!(text, "  trial {number:>4}, {:>6.1} s: {best:.4} ms", at.as_secs_f64());
        }
        for axis in self.plan.axes.iter().filter(|axis| axis.values.len() > 1) {
            let _ = writeln!(text, "{}", axis.name);
            for (value, ms) in self.by_axis(axis) {
                let value = value.map_or_else(|| "open".to_string(), |value| value.to_string());
                let bar = "#".repeat((self.ms / ms * WIDTH as f64).round() as usize);
                let _ = writeln!(text, "  {value:>8} {bar:<WIDTH$} {ms:.4} ms");
            }
        }
        text
    }

    /// The trials that were better than all before: their numbers from 1, when, and the time in milliseconds.
    pub fn improvements(&self) -> Vec<(usize, std::time::Duration, f64)> {
        let (mut found, mut best) = (Vec::new(), f64::INFINITY);
        for (index, tried) in self.tried.iter().enumerate() {
            if let Ok(ms) = tried.result
                && ms < best
            {
                best = ms;
                found.push((index + 1, tried.at, ms));
            }
        }
        found
    }
}

#[cfg(feature = "tune")]
mod svg {
    use super::super::file::tuning_error;
    use super::super::outcome::Tried;
    use super::Outcome;
    use crate::bench::Roofline;
    use crate::error::Result;
    use crate::launch::Constexprs;
    use plotters::coord::Shift;
    use plotters::prelude::*;
    use std::error::Error;
    use std::path::Path;

    type Drawn = Result<(), Box<dyn Error>>;
    type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

    const POINT: RGBColor = RGBColor(0x6B, 0x72, 0x80);
    const BEST: RGBColor = RGBColor(0xC2, 0x41, 0x0C);
    const SIZE: (u32, u32) = (760, 440);

    impl<C: Constexprs> Outcome<C> {
        /// Draws the search: the time of each trial against when it ended, and the best so far.
        ///
        /// # Errors
        ///
        /// [`Error::Tuning`](crate::Error::Tuning) if the file cannot be written.
        pub fn draw_search(&self, path: impl AsRef<Path>) -> Result<()> {
            let point = |tried: &Tried<C>| Some((tried.at.as_secs_f64(), *tried.result.as_ref().ok()?));
            let times: Vec<(f64, f64)> = self.tried.iter().filter_map(point).collect();
            let mut best: Vec<(f64, f64)> =
                self.improvements().into_iter().map(|(_, at, ms)| (at.as_secs_f64(), ms)).collect();
            let last = self.tried.last().map_or(0.0, |tried| tried.at.as_secs_f64());
            best.extend(best.last().map(|&(_, ms)| (last, ms)));
            draw(path.as_ref(), |area| scatter(area, "search", ("seconds", "ms"), &times, &best, None))
        }

        /// Draws the times by the values of an axis, in their order: each trial, and the best with each value.
        ///
        /// # Errors
        ///
        /// As for [`Outcome::draw_search`]; if there is no such axis.
        pub fn draw_axis(&self, name: &str, path: impl AsRef<Path>) -> Result<()> {
            let index = self.plan.axes.iter().position(|axis| axis.name == name);
            let index = index.ok_or_else(|| tuning_error(format!("there is no axis `{name}`"), "see `plan.axes`"))?;
            let axis = &self.plan.axes[index];
            let place = |value: Option<i64>| value.map_or(0.0, |value| value as f64);
            let times: Vec<(f64, f64)> = self
                .tried
                .iter()
                .filter_map(|tried| Some((place(tried.config.values().nth(index)?), *tried.result.as_ref().ok()?)))
                .collect();
            let best: Vec<(f64, f64)> = self.by_axis(axis).into_iter().map(|(value, ms)| (place(value), ms)).collect();
            draw(path.as_ref(), |area| scatter(area, name, (name, "ms"), &times, &best, None))
        }

        /// Draws the rates of trials of work with so many operations that moves so many bytes, under a roofline.
        ///
        /// # Errors
        ///
        /// As for [`Outcome::draw_search`].
        pub fn draw_roofline(&self, roof: Roofline, flops: f64, bytes: f64, path: impl AsRef<Path>) -> Result<()> {
            let tera = |ms: f64| flops / ms / 1e9;
            let intensity = flops / bytes;
            let times = self.tried.iter().filter_map(|tried| tried.result.as_ref().ok());
            let points: Vec<(f64, f64)> = times.map(|&ms| (intensity, tera(ms))).collect();
            let ridge = roof.flops / roof.bytes;
            let (least, most) = (intensity.min(ridge) / 8.0, intensity.max(ridge) * 8.0);
            let under = |at: f64| (at, (at * roof.bytes).min(roof.flops) / 1e12);
            let lines = [least, ridge, most].map(under);
            draw(path.as_ref(), |area| {
                scatter(area, "roofline", ("operations per byte", "TFLOP/s"), &points, &lines, Some((least, most)))
            })
        }
    }

    fn draw(path: &Path, with: impl FnOnce(&Area<'_>) -> Drawn) -> Result<()> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| with(&area)).and_then(|()| Ok(area.present()?));
        drawn.map_err(|error| tuning_error(format!("{} cannot be drawn", path.display()), error))
    }

    /// Points with a line. With a range, the horizontal axis is logarithmic.
    fn scatter(
        area: &Area<'_>,
        title: &str,
        (across, up): (&str, &str),
        points: &[(f64, f64)],
        line: &[(f64, f64)],
        range: Option<(f64, f64)>,
    ) -> Drawn {
        let highest = points.iter().chain(line).map(|point| point.1).fold(0.0, f64::max) * 1.08 + f64::MIN_POSITIVE;
        let mut builder = ChartBuilder::on(area);
        builder.caption(title, ("sans-serif", 20)).margin(12).x_label_area_size(44).y_label_area_size(60);
        let marks = || points.iter().map(|&point| Circle::new(point, 2, POINT.filled()));
        let best = || LineSeries::new(line.iter().copied(), BEST.stroke_width(2)).point_size(3);
        match range {
            Some((least, most)) => {
                let mut chart = builder.build_cartesian_2d((least..most).log_scale(), 0.0..highest)?;
                chart.configure_mesh().x_desc(across).y_desc(up).light_line_style(WHITE).draw()?;
                chart.draw_series(marks())?;
                chart.draw_series(best())?;
            }
            None => {
                let places = || points.iter().chain(line).map(|point| point.0);
                let (least, most) = (places().fold(f64::INFINITY, f64::min), places().fold(0.0, f64::max));
                let (least, most) = if least < most { (least, most) } else { (least - 1.0, least + 1.0) };
                let mut chart = builder.build_cartesian_2d(least..most, 0.0..highest)?;
                chart.configure_mesh().x_desc(across).y_desc(up).light_line_style(WHITE).draw()?;
                chart.draw_series(marks())?;
                chart.draw_series(best())?;
            }
        }
        Ok(())
    }
}
