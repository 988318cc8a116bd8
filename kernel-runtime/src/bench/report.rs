//! What was measured at several sizes: as a table to read, as CSV, and as a picture.

use super::Measured;
use std::fmt::{self, Write};

/// What times are turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rate {
    /// Milliseconds, as they were measured.
    Time,
    /// Gigabytes per second: the amounts of rows are bytes.
    Bytes,
    /// Teraflops: the amounts of rows are operations.
    Flops,
}

impl Rate {
    /// The unit.
    pub fn unit(self) -> &'static str {
        match self {
            Rate::Time => "ms",
            Rate::Bytes => "GB/s",
            Rate::Flops => "TFLOP/s",
        }
    }

    fn of(self, measured: &Measured, amount: f64) -> f64 {
        match self {
            Rate::Time => measured.ms(),
            Rate::Bytes => measured.gbps(amount),
            Rate::Flops => measured.tflops(amount),
        }
    }
}

/// A size, with all that ran there in turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The size, as the report's axis counts it.
    pub size: f64,
    /// Bytes or operations of each contender.
    pub amount: f64,
    /// The contenders; others are compared with the first.
    pub measured: Vec<Measured>,
}

/// What was measured at several sizes.
///
/// ```
/// use kernel_runtime::{Device, bench::{Bench, Rate, Report}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("tilewright-report-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let device = Device::best()?;
/// let mut bench = Bench::new(&device)?.rounds(5);
/// let mut report = Report::new("Copies", "elements", Rate::Bytes);
/// for len in [1 << 10, 1 << 12, 1 << 14] {
///     let (x, mut y, mut z) = (device.zeros::<f32>(len)?, device.zeros::<f32>(len)?, device.zeros::<f32>(len)?);
///     let mut once = || y.copy_from(&x);
///     let mut twice = || z.copy_from(&x).and_then(|()| z.copy_from(&x));
///     let measured = bench.compare(&mut [("once", &mut once), ("twice", &mut twice)])?;
///     report.row(len as f64, (2 * len * 4) as f64, measured);
/// }
/// print!("{report}");
/// std::fs::write(folder.join("copies.csv"), report.csv())?;
/// # #[cfg(feature = "tune")]
/// report.draw(folder.join("copies.svg"))?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    title: String,
    axis: String,
    rate: Rate,
    rows: Vec<Row>,
}

impl Report {
    /// A report without rows. `axis` says what sizes count, such as `elements`.
    pub fn new(title: &str, axis: &str, rate: Rate) -> Report {
        Report { title: title.to_string(), axis: axis.to_string(), rate, rows: Vec::new() }
    }

    /// Adds what [`Bench::compare`](super::Bench::compare) has measured at a size, of work with so many bytes or operations;
    /// [`Rate::Time`] has no use for that number.
    pub fn row(&mut self, size: f64, amount: f64, measured: Vec<Measured>) {
        self.rows.push(Row { size, amount, measured });
    }

    /// The rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The contenders of all rows, in the order in which they come.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for measured in self.rows.iter().flat_map(|row| &row.measured) {
            if !names.contains(&measured.name.as_str()) {
                names.push(&measured.name);
            }
        }
        names
    }

    /// A line for each contender of each row: the median, what three fifths of the runs lie between, the rate, and how many
    /// times faster than the row's first it is. Without [`Rate::Time`], whose rate is the median.
    pub fn csv(&self) -> String {
        let rate = if self.rate == Rate::Time { String::new() } else { format!(",{}", self.rate.unit()) };
        let mut text = format!("{},contender,ms,ms at 0.2,ms at 0.8{rate},relative to the first\n", field(&self.axis));
        for Row { size, amount, measured } in &self.rows {
            for one in measured {
                let (name, ms, low, high) = (field(&one.name), one.ms(), one.quantile(0.2), one.quantile(0.8));
                let rate = match self.rate {
                    Rate::Time => String::new(),
                    rate => format!(",{:.3}", rate.of(one, *amount)),
                };
                let relative = one.speedup_over(&measured[0]);
                let _ = writeln!(text, "{size},{name},{ms:.6},{low:.6},{high:.6}{rate},{relative:.4}");
            }
        }
        text
    }

    /// The report as a picture with a line for each contender.
    #[cfg(feature = "tune")]
    pub fn chart(&self) -> super::Chart {
        let line = |name: &str| {
            let of = |row: &Row| row.measured.iter().find(|one| one.name == name).cloned();
            let point = |row: &Row| Some((row.size, self.rate.of(&of(row)?, row.amount)));
            super::Line::new(name, self.rows.iter().filter_map(point).collect())
        };
        let chart = super::Chart::new(&self.title, &self.axis, self.rate.unit());
        self.names().into_iter().fold(chart, |chart, name| chart.line(line(name)))
    }

    /// Draws [`Report::chart`] as SVG.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    #[cfg(feature = "tune")]
    pub fn draw(&self, path: impl AsRef<std::path::Path>) -> std::io::Result<()> {
        super::draw(&[self.chart()], path)
    }
}

/// A text as a field of CSV.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// A line for each row, a column for each contender: its rate, and behind the first how many times faster than that it is.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        let (unit, first) = (self.rate.unit(), names.first());
        let mut table =
            vec![[self.axis.clone()].into_iter().chain(names.iter().map(|name| name.to_string())).collect()];
        for row in &self.rows {
            let mut cells = vec![row.size.to_string()];
            for name in &names {
                let one = row.measured.iter().find(|one| one.name == *name);
                cells.push(one.map_or_else(String::new, |one| {
                    let rate = format!("{:.*}", digits(self.rate), self.rate.of(one, row.amount));
                    let relative = one.speedup_over(&row.measured[0]);
                    if first == Some(name) { rate } else { format!("{rate} (x{relative:.2})") }
                }));
            }
            table.push(cells);
        }
        let width = |column: usize| table.iter().map(|cells: &Vec<String>| cells[column].chars().count()).max();
        let widths: Vec<usize> = (0..names.len() + 1).map(|column| width(column).unwrap_or(0)).collect();
        writeln!(f, "{}: {unit}", self.title)?;
        for cells in &table {
            let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  "))?;
        }
        Ok(())
    }
}

/// Digits behind the point that tell results apart.
fn digits(rate: Rate) -> usize {
    match rate {
        Rate::Time => 4,
        Rate::Bytes | Rate::Flops => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: Rate) -> Report {
        let measured = |name: &str, ms: f64| Measured { name: name.to_string(), times: vec![ms, ms * 0.5, ms * 2.0] };
        let mut report = Report::new("Sums", "rows", rate);
        report.row(16.0, 4e6, vec![measured("plain", 2.0), measured("a, b", 1.0)]);
        report.row(1024.0, 8e6, vec![measured("plain", 4.0)]);
        report
    }

    #[test]
    fn a_report_is_csv() {
        assert_eq!(
            report(Rate::Bytes).csv(),
            "rows,contender,ms,ms at 0.2,ms at 0.8,GB/s,relative to the first\n\
             16,plain,2.000000,1.400000,3.200000,2.000,1.0000\n\
             16,\"a, b\",1.000000,0.700000,1.600000,4.000,2.0000\n\
             1024,plain,4.000000,2.800000,6.400000,2.000,1.0000\n"
        );
        let times = report(Rate::Time).csv();
        assert!(times.starts_with("rows,contender,ms,ms at 0.2,ms at 0.8,relative to the first\n"), "{times}");
        assert!(times.lines().all(|line| line.replace("\"a, b\"", "").matches(',').count() == 5), "{times}");
    }

    #[test]
    fn a_report_is_a_table() {
        let expected =
            "Sums: ms\nrows   plain            a, b\n  16  2.0000  1.0000 (x2.00)\n1024  4.0000                \n";
        assert_eq!(report(Rate::Time).to_string(), expected);
        assert_eq!(Report::new("None", "rows", Rate::Flops).to_string(), "None: TFLOP/s\nrows\n");
    }

    #[cfg(feature = "tune")]
    #[test]
    fn a_report_is_a_picture() {
        let path = std::env::temp_dir().join(format!("tilewright-report-{}.svg", std::process::id()));
        report(Rate::Bytes).draw(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let _ = std::fs::remove_file(&path);
        for part in ["<svg", "Sums", "rows", "GB/s", "plain", "a, b", "<polyline"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // One size, or none at all, is a picture too; a folder that is not there is an error that says so.
        let none = Report::new("None", "rows", Rate::Time);
        none.draw(&path).unwrap();
        let _ = std::fs::remove_file(&path);
        let error = none.draw("/nowhere/none.svg").unwrap_err().to_string();
        assert!(error.contains("/nowhere/none.svg cannot be drawn"), "{error}");
    }
}
