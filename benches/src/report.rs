//! Results as CSV and as tables to read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// The value after a name on the command line.
pub fn argument(name: &str) -> Option<String> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|a| a == name)?;
    args.get(at + 1).cloned()
}

/// Whether a word is on the command line.
pub fn flag(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

/// The folder for results: `--out DIR` on the command line, else `results` beside the benchmarks.
pub fn folder() -> PathBuf {
    argument("--out").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("results"), PathBuf::from)
}

/// The folder with the peers' cubins: `--cubins DIR` on the command line, else `peers/cubins` beside the benchmarks.
pub fn cubins() -> PathBuf {
    argument("--cubins").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/cubins"), PathBuf::from)
}

/// The GPU, its driver, clocks and reasons for throttling, as `nvidia-smi` tells them.
pub fn machine() -> String {
    let query = "name,driver_version,clocks.sm,clocks.mem,clocks_event_reasons.active,temperature.gpu,power.draw";
    let output = Command::new("nvidia-smi").args([&format!("--query-gpu={query}"), "--format=csv,noheader"]).output();
    match output {
        Ok(o) if o.status.success() => String::from_utf8_lossy(&o.stdout).trim().to_string(),
        Ok(_) | Err(_) => "unknown GPU".to_string(),
    }
}

/// The arguments of this process, as results name them: see [`without_folders`].
pub fn arguments() -> String {
    without_folders(&std::env::args().skip(1).collect::<Vec<_>>().join(" "))
}

/// A text whose paths are names of files alone: where they lay tells a reader nothing.
pub fn without_folders(text: &str) -> String {
    let names = text.split(' ').map(|word| word.rsplit('/').find(|name| !name.is_empty()).unwrap_or(word));
    names.collect::<Vec<_>>().join(" ")
}

/// The outcomes as CSV, under a comment line with the machine; rates are in this unit.
pub fn csv(machine: &str, unit: &str, outcomes: &[Outcome]) -> String {
    let columns = format!("work,shape,dtype,contender,config,ms,{unit},rate relative to the row's first");
    let mut out = format!("# {machine}\n{columns}\n");
    for o in outcomes {
        let (work, shape, dtype, contender, config) = (&o.work, &o.shape, &o.dtype, &o.contender, &o.config);
        let _ = writeln!(out, "{work},{shape},{dtype},{contender},{config},{:.5},{:.1},{:.4}", o.ms, o.gbps, o.ratio);
    }
    out
}

/// The outcomes of a CSV file, and its comment lines.
pub fn parse(text: &str) -> (Vec<String>, Vec<Outcome>) {
    let (comments, rows): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    let outcome = |line: &&str| {
        let mut fields = line.split(',');
        let mut text = || fields.next().map(str::to_string);
        let (work, shape, dtype, contender, config) = (text()?, text()?, text()?, text()?, text()?);
        let mut number = || fields.next()?.parse().ok();
        let (ms, gbps) = (number()?, number()?);
        // Who was measured by another program has no rounds in common with the first.
        Some(Outcome { work, shape, dtype, contender, config, ms, gbps, ratio: number().unwrap_or(f64::NAN) })
    };
    let comments = comments.into_iter().map(|c| c.trim_start_matches(['#', ' ']).to_string()).collect();
    (comments, rows.iter().filter_map(outcome).collect())
}

/// The outcomes as lines to read while a benchmark runs.
pub fn lines(unit: &str, outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let mut last = String::new();
    for o in outcomes {
        let row = format!("{} {} {}", o.work, o.shape, o.dtype);
        let title = if row == last { "" } else { &row };
        let (ms, gbps, ratio) = (o.ms, o.gbps, o.ratio);
        let _ = writeln!(
            out,
            "{title:<34} {:<21} {ms:>9.4} ms {gbps:>8.1} {unit}  x{ratio:<7.3} {}",
            o.contender, o.config
        );
        last = row;
    }
    out
}

/// Who is compared in tables, in the order of their columns.
pub const COLUMNS: [&str; 3] = ["tilewright", "triton", "pytorch"];

/// A row of a table: what was done, and what each of [`COLUMNS`] reached.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Any outcome of the row.
    pub any: &'a Outcome,
    /// One per column.
    pub reached: [Option<&'a Outcome>; COLUMNS.len()],
}

impl Row<'_> {
    /// Our rate divided by Triton's: the median of paired ratios.
    pub fn ratio(&self) -> Option<f64> {
        let [ours, triton, _] = self.reached;
        Some(ours?.ratio / triton?.ratio)
    }
}

/// The rows of a table, in the order in which they were measured.
pub fn rows(outcomes: &[Outcome]) -> Vec<Row<'_>> {
    let mut all: Vec<Row<'_>> = Vec::new();
    for o in outcomes {
        let Some(column) = COLUMNS.iter().position(|c| *c == o.contender) else { continue };
        let same = |r: &&mut Row<'_>| (&r.any.work, &r.any.shape, &r.any.dtype) == (&o.work, &o.shape, &o.dtype);
        match all.iter_mut().find(same) {
            Some(row) => row.reached[column] = Some(o),
            None => {
                let mut row = Row { any: o, reached: [None; COLUMNS.len()] };
                row.reached[column] = Some(o);
                all.push(row);
            }
        }
    }
    all.retain(|row| row.reached[0].is_some());
    all
}

/// Rows as a Markdown table: GB/s of everybody, our rate relative to Triton's, our configuration.
pub fn markdown(rows: &[Row<'_>]) -> String {
    let mut out = String::from("| work | size | dtype | Tilewright | Triton | PyTorch | ratio to Triton |\n");
    out.push_str("|---|---|---|--:|--:|--:|--:|\n");
    let number = |o: Option<&Outcome>| o.map_or_else(|| "–".to_string(), |o| format!("{:.0}", o.gbps));
    for row in rows {
        let [ours, triton, pytorch] = row.reached.map(number);
        let ratio = row.ratio().map_or_else(|| "–".to_string(), |r| format!("{r:.2}"));
        let size = row.any.shape.replace('x', " × ");
        let _ = writeln!(
            out,
            "| {} | {size} | {} | {ours} | {triton} | {pytorch} | {ratio} |",
            row.any.work, row.any.dtype
        );
    }
    out
}

/// The geometric mean.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Writes a file of results, making its folder.
///
/// # Errors
/// If the file system refuses.
pub fn write(name: &str, text: &str) -> std::io::Result<()> {
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(contender: &str, shape: &str, gbps: f64, ratio: f64) -> Outcome {
        let [work, dtype] = ["softmax", "f32"].map(str::to_string);
        let (shape, contender, config) = (shape.to_string(), contender.to_string(), "BLOCK=1024 warps=4".to_string());
        Outcome { work, shape, dtype, contender, config, ms: 0.5, gbps, ratio }
    }

    #[test]
    fn results_name_no_folders() {
        let text = "--bench --out /home/me/out/ --only add,softmax; library of /usr/lib/libcublas.so.13";
        assert_eq!(without_folders(text), "--bench --out out --only add,softmax; library of libcublas.so.13");
    }

    #[test]
    fn outcomes_survive_a_file() {
        let all = [outcome("triton", "8x16", 100.0, 1.0), outcome("tilewright", "8x16", 150.5, 1.5)];
        let (comments, read) = parse(&csv("a GPU", "GB/s", &all));
        assert_eq!(comments, ["a GPU"]);
        assert_eq!(read, all);
    }

    #[test]
    fn a_row_has_everybody_and_the_ratio_of_the_rounds() {
        // PyTorch is measured by another program, which has no ratio.
        let text = "softmax,8x16,f32,pytorch,eager,1.0,50.0,";
        let (_, pytorch) = parse(text);
        let mut all = vec![outcome("triton", "8x16", 100.0, 1.0), outcome("tilewright", "8x16", 150.0, 1.25)];
        all.push(outcome("triton", "8x32", 100.0, 1.0));
        all.extend(pytorch);
        let rows = rows(&all);
        // A row without us is none.
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].ratio(), Some(1.25));
        assert_eq!(rows[0].reached.map(|o| o.map(|o| o.gbps)), [Some(150.0), Some(100.0), Some(50.0)]);
        assert!(markdown(&rows).contains("| softmax | 8 × 16 | f32 | 150 | 100 | 50 | 1.25 |"));
    }

    #[test]
    fn the_geometric_mean_of_a_number_and_its_inverse_is_one() {
        let mean = geometric_mean([0.5, 2.0].into_iter());
        assert!(mean.is_some_and(|m| (m - 1.0).abs() < 1e-12));
        assert_eq!(geometric_mean(std::iter::empty()), None);
    }
}
