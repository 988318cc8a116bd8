//! A profile as a table, for people, and as CSV, for programs.

use super::{CodeRun, KernelRun, Place, Profile, Source, counters};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// All runs of a kernel with the same code.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The kernel's name.
    pub name: String,
    /// Where it stands in the source, if that is known.
    pub place: Option<Place>,
    /// What the hardware was given, if that is known.
    pub code: Option<CodeRun>,
    /// Programs along each axis, if they were the same each time.
    pub grid: Option<[u32; 3]>,
    /// The times of the runs in nanoseconds, in order of size.
    pub times_ns: Vec<u64>,
    /// Of each of [`Profile::counters`], the median of the runs; of an even number of runs, the larger of the two in the
    /// middle. Empty if nothing was counted.
    pub counters: Vec<f64>,
}

impl Row {
    /// The nanoseconds of all runs together.
    pub fn total_ns(&self) -> u64 {
        self.times_ns.iter().sum()
    }

    /// The median in nanoseconds; of an even number of runs, the longer of the two in the middle.
    pub fn median_ns(&self) -> u64 {
        self.times_ns.get(self.times_ns.len() / 2).copied().unwrap_or(0)
    }
}

impl Profile {
    /// The kernels with their runs, the one that took most time first.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: BTreeMap<_, Row> = BTreeMap::new();
        for run in &self.kernels {
            let row = rows.entry((&run.name, run.place, run.code)).or_insert_with(|| Row {
                name: run.name.clone(),
                place: run.place,
                code: run.code,
                grid: Some(run.grid),
                times_ns: Vec::new(),
                counters: Vec::new(),
            });
            row.grid = row.grid.filter(|grid| *grid == run.grid);
            row.times_ns.push(run.ns());
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.iter_mut().for_each(|row| row.times_ns.sort_unstable());
        rows.iter_mut().for_each(|row| row.counters = self.medians(row));
        // Equal ones stay in the order of their names.
        rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns()));
        rows
    }

    /// The medians of the counters of the runs of a row.
    fn medians(&self, row: &Row) -> Vec<f64> {
        let runs: Vec<&KernelRun> = self.kernels.iter().filter(|run| run.is_in(row)).collect();
        if runs.iter().all(|run| run.counters.is_empty()) {
            return Vec::new();
        }
        let median = |index: usize| {
            let mut all: Vec<f64> = runs.iter().filter_map(|run| run.counters.get(index).copied()).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
        };
        (0..self.counters.len()).map(median).collect()
    }

    /// A line for each run, with a header.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "kernel,file,line,start_us,duration_us,stream,grid_x,grid_y,grid_z,threads,registers,shared_bytes,local_bytes",
        );
        self.counters.iter().for_each(|name| text.extend([",", &field(name)]));
        text.push('\n');
        for run in &self.kernels {
            let KernelRun { name, place, stream, grid: [x, y, z], code, .. } = run;
            let (file, line) = place.map_or((String::new(), String::new()), |at| (field(at.file), at.line.to_string()));
            let (start, time) = (run.start_ns as f64 / 1e3, run.ns() as f64 / 1e3);
            let code = code.map_or_else(
                || ",,,".to_string(),
                |code| format!("{},{},{},{}", code.threads, code.registers, code.shared_bytes, code.local_bytes),
            );
            // Writing to a string does not fail.
            let _ = write!(text, "{},{file},{line},{start:.3},{time:.3},{stream},{x},{y},{z},{code}", field(name));
            for index in 0..self.counters.len() {
                let _ = match run.counters.get(index) {
                    Some(value) => write!(text, ",{value}"),
                    None => write!(text, ","),
                };
            }
            text.push('\n');
        }
        text
    }
}

/// A field of CSV: between quotes where it needs them.
pub(super) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

/// A table.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wall, busy) = (self.wall_ns as f64 / 1e6, self.busy_ns() as f64 / 1e6);
        writeln!(f, "{}: {wall:.3} ms, of which kernels ran {busy:.3} ms", self.device)?;
        match &self.source {
            Source::Cupti { version } => writeln!(f, "times of kernels by CUPTI (API {version})")?,
            Source::Events { why } => {
                writeln!(
                    f,
                    "times between events around launches, about three microseconds more than kernels take, as CUPTI cannot be used: {why}"
                )?;
            }
            Source::Counters { version, passes } => writeln!(
                f,
                "counters by CUPTI (API {version}): kernels ran alone, {passes} times each; times are those of a run alone"
            )?,
            Source::Clock => writeln!(f, "times of launches by the host's clock")?,
        }
        let rows = self.rows();
        let total: u64 = rows.iter().map(Row::total_ns).sum();
        let mut cells = vec![HEADER.map(String::from).to_vec()];
        cells.extend(rows.iter().map(|row| cells_of(row, total)));
        write_cells(f, &cells)?;
        if !self.counters.is_empty() {
            writeln!(f)?;
            write_cells(f, &self.counter_cells(&rows))?;
        }
        if let Some(samples) = &self.samples {
            write!(f, "\n{samples}")?;
        }
        Ok(())
    }
}

impl Profile {
    /// What was counted, a row for each row: medians.
    fn counter_cells(&self, rows: &[Row]) -> Vec<Vec<String>> {
        let titles = self.counters.iter().map(|name| counters::title(name));
        let mut cells = vec![std::iter::once("kernel".to_string()).chain(titles).collect::<Vec<_>>()];
        cells.extend(rows.iter().map(|row| {
            let number = |(index, name): (usize, &String)| {
                row.counters.get(index).map_or_else(String::new, |value| counters::shown(name, *value))
            };
            std::iter::once(row.title()).chain(self.counters.iter().enumerate().map(number)).collect()
        }));
        cells
    }
}

impl KernelRun {
    fn is_in(&self, row: &Row) -> bool {
        (&self.name, self.place, self.code) == (&row.name, row.place, row.code)
    }
}

impl Row {
    /// The name with the place.
    fn title(&self) -> String {
        format!("{}{}", self.name, self.place.map_or_else(String::new, |place| format!("  {place}")))
    }
}

const HEADER: [&str; 12] =
    ["kernel", "runs", "total us", "%", "median us", "least", "most", "grid", "threads", "regs", "shared", "spilled"];

fn cells_of(row: &Row, total: u64) -> Vec<String> {
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
    let of_code = |number: fn(CodeRun) -> u32| row.code.map_or_else(String::new, |code| number(code).to_string());
    let grid = row.grid.map_or("various".to_string(), |[x, y, z]| match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    });
    vec![
        row.title(),
        row.times_ns.len().to_string(),
        us(row.total_ns()),
        format!("{:.1}", 100.0 * row.total_ns() as f64 / total.max(1) as f64),
        us(row.median_ns()),
        us(row.times_ns.first().copied().unwrap_or(0)),
        us(row.times_ns.last().copied().unwrap_or(0)),
        grid,
        of_code(|code| code.threads),
        of_code(|code| code.registers),
        of_code(|code| code.shared_bytes),
        // Most kernels have none: the column is there where it says something.
        row.code.filter(|code| code.local_bytes > 0).map_or_else(String::new, |code| code.local_bytes.to_string()),
    ]
}

/// Columns as wide as they must be, the first to the left and the others to the right; those without anything are left
/// out.
fn write_cells(f: &mut fmt::Formatter<'_>, cells: &[Vec<String>]) -> fmt::Result {
    let count = cells.first().map_or(0, Vec::len);
    let is_empty = |column: usize| cells.len() > 1 && cells[1..].iter().all(|row| row[column].is_empty());
    let columns: Vec<usize> = (0..count).filter(|&column| !is_empty(column)).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    for row in cells {
        let mut line = String::new();
        for &column in &columns {
            let (cell, width) = (&row[column], widths[column]);
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
