//! Rates against sizes, as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::path::Path;

/// Pixels of one picture.
const SIZE: (u32, u32) = (760, 440);

/// Pixels of each of several pictures side by side.
const BESIDE: (u32, u32) = (540, 420);

/// How many distances of marks fit on the axis of sizes.
const MARKS: f64 = 12.0;

/// The colours of lines without one of their own: told apart by people who see few colours, too.
const COLOURS: [Colour; 6] = [
    Colour(0xC2, 0x41, 0x0C),
    Colour(0x1D, 0x4E, 0xD8),
    Colour(0x15, 0x80, 0x3D),
    Colour(0x6B, 0x72, 0x80),
    Colour(0x7E, 0x22, 0xCE),
    Colour(0x0E, 0x74, 0x90),
];

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

/// A line of a [`Chart`].
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is called.
    pub name: String,
    /// Sizes and rates.
    pub points: Vec<(f64, f64)>,
    /// Its colour; without one it gets one.
    pub colour: Option<Colour>,
}

impl Line {
    /// A line through these points, by size.
    pub fn new(name: &str, mut points: Vec<(f64, f64)>) -> Line {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name: name.to_string(), points, colour: None }
    }

    /// The same in another colour.
    pub fn colour(self, colour: Colour) -> Line {
        Line { colour: Some(colour), ..self }
    }
}

/// Rates against sizes: a line for each contender, and one for what limits all. Sizes are on a logarithmic axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    title: String,
    across: String,
    up: String,
    lines: Vec<Line>,
    limit: Option<(String, f64)>,
}

impl Chart {
    /// A chart without lines, with what its axes count.
    pub fn new(title: &str, across: &str, up: &str) -> Chart {
        let [title, across, up] = [title, across, up].map(str::to_string);
        Chart { title, across, up, lines: Vec::new(), limit: None }
    }

    /// Adds a line. One without points is not drawn, but takes its colour.
    pub fn line(mut self, line: Line) -> Chart {
        self.lines.push(line);
        self
    }

    /// A rate that limits all.
    pub fn limit(mut self, name: &str, rate: f64) -> Chart {
        self.limit = Some((name.to_string(), rate));
        self
    }

    /// The lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (least, most) = points().fold((f64::INFINITY, 0.0f64), |(a, b), point| (a.min(point.0), b.max(point.0)));
        // Something to draw axes of, where there is nothing else.
        let (least, most) = if least > 0.0 && least <= most { (least, most) } else { (1.0, 1.0) };
        let limit = self.limit.as_ref().map(|(_, rate)| *rate);
        let highest = points().map(|point| point.1).chain(limit).fold(f64::MIN_POSITIVE, f64::max);
        let (right, top) = (most * 1.05, highest * 1.08);
        let across = (least..right).log_scale().with_key_points(marks(points().map(|point| point.0)));
        let mut axes = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(across, 0.0..top)?;
        let digits = if highest < 10.0 { 3 } else { 0 };
        axes.configure_mesh()
            .x_desc(&self.across)
            .y_desc(&self.up)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.digits$}"))
            .light_line_style(WHITE)
            .draw()?;
        if let Some((name, rate)) = &self.limit {
            axes.draw_series(LineSeries::new([(least, *rate), (right, *rate)], BLACK.stroke_width(1)))?
                .label(name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK));
        }
        let lines = self.lines.iter().zip(COLOURS.iter().cycle());
        for (line, colour) in lines.filter(|(line, _)| !line.points.is_empty()) {
            let Colour(red, green, blue) = line.colour.unwrap_or(*colour);
            let style = RGBColor(red, green, blue).stroke_width(2);
            axes.draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        let legend = SeriesLabelPosition::LowerRight;
        axes.configure_series_labels().position(legend).background_style(WHITE.mix(0.9)).border_style(BLACK).draw()?;
        Ok(())
    }
}

/// Where a logarithmic axis has marks: at sizes, but at none so near the mark before it that their numbers would meet.
fn marks(sizes: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sizes: Vec<f64> = sizes.filter(|size| *size > 0.0).collect();
    sizes.sort_by(f64::total_cmp);
    let (Some(&least), Some(&most)) = (sizes.first(), sizes.last()) else { return Vec::new() };
    let apart = (most / least).powf(1.0 / MARKS);
    sizes.into_iter().fold(Vec::new(), |mut marks, size| {
        if marks.last().is_none_or(|before| size > *before && size >= before * apart) {
            marks.push(size);
        }
        marks
    })
}

/// Draws charts side by side into an SVG file.
///
/// # Errors
///
/// If the file cannot be written.
pub fn draw(charts: &[Chart], path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let drawn = || -> Result<(), Box<dyn Error>> {
        let size = if charts.len() > 1 { (BESIDE.0 * charts.len() as u32, BESIDE.1) } else { SIZE };
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, chart) in root.split_evenly((1, charts.len().max(1))).iter().zip(charts) {
            chart.draw(area)?;
        }
        Ok(root.present()?)
    };
    drawn().map_err(|error| io::Error::other(format!("{} cannot be drawn: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_mark_where_there_is_room() {
        assert_eq!(marks([2048.0, 1024.0, 3072.0, 2048.0, 8192.0].into_iter()), [1024.0, 2048.0, 3072.0, 8192.0]);
        assert_eq!(marks([1000.0, 1001.0, 5000.0].into_iter()), [1000.0, 5000.0]);
        assert_eq!(marks([7.0, 7.0].into_iter()), [7.0]);
        assert!(marks(std::iter::empty()).is_empty());
        assert!(marks((0..400).map(f64::from)).len() <= MARKS as usize + 1);
    }
}
