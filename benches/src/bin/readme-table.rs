//! Makes tables and plots of the results, and puts the main rows into the README.
//!
//! ```text
//! cargo run -p tilewright-bench --bin readme-table
//! ```
//! Reads `results/bandwidth.csv` and, if they are there, `results/pytorch.csv`, `results/matmul.csv`,
//! `results/attention.csv`, `results/ladder.csv` and `results/attention_ladder.csv`; writes `results/bandwidth.md`,
//! `results/matmul.md`, `results/attention.md`, `results/ladder.md` and `results/attention_ladder.md`, plots beside them, the README between its markers, and the tables of `tilewright::guide`.

use std::path::Path;

use tilewright_bench::report::{self, Row};
use tilewright_bench::{Failure, Outcome, attention_ladder, attention_page, plot, product};

const BEGIN: &str = "<!-- figures -->";
const END: &str = "<!-- /figures -->";

/// The shapes of the rows for the README; of other works the first shape.
const SHAPES: [(&str, &[&str]); 5] = [
    ("add", &["268435456"]),
    ("softmax", &["4096x1024", "8192x4096", "8192x8192", "4096x16384"]),
    ("layer_norm", &["4096x1024", "8192x4096", "8192x8192", "4096x16384"]),
    ("layer_norm_backward", &["8192x8192"]),
    ("rms_norm", &["8192x8192"]),
];

/// The rows for the README: a work and shape, in f32 and, if it ran in one, a dtype of 16 bits.
fn main_rows<'r, 'o>(rows: &'r [Row<'o>]) -> Vec<(&'r Row<'o>, Option<&'r Row<'o>>)> {
    let mut chosen: Vec<(&Row<'_>, Option<&Row<'_>>)> = Vec::new();
    for row in rows.iter().filter(|row| row.any.dtype == "f32") {
        let (work, shape) = (&row.any.work, &row.any.shape);
        let wanted = match SHAPES.iter().find(|(name, _)| name == work) {
            Some((_, shapes)) => shapes.contains(&shape.as_str()),
            None => !chosen.iter().any(|(c, _)| &c.any.work == work),
        };
        let same = |r: &&Row<'_>| &r.any.work == work && &r.any.shape == shape && r.any.dtype != "f32";
        if wanted {
            chosen.push((row, rows.iter().find(same)));
        }
    }
    chosen
}

/// What everybody reached, and our rate relative to Triton's.
fn cells(row: Option<&Row<'_>>) -> String {
    let number = |o: Option<&Outcome>| o.map_or_else(|| "–".to_string(), |o| format!("{:.0}", o.gbps));
    let [ours, triton, pytorch] = row.map_or([None; 3], |row| row.reached).map(number);
    let ratio = row.and_then(Row::ratio).map_or_else(|| "–".to_string(), |r| format!("{r:.2}"));
    format!("{ours} | {triton} | {pytorch} | {ratio}")
}

fn table(rows: &[Row<'_>]) -> String {
    let mut out =
        String::from("| GB/s | f32 | Triton | PyTorch | ratio to Triton | 16 bits | Triton | PyTorch | ratio |\n");
    out += "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for (single, half) in main_rows(rows) {
        let work = single.any.work.replace('_', " ");
        let size = single.any.shape.replace('x', " × ");
        let size =
            size.parse::<u64>().ok().filter(|n| n.is_power_of_two()).map_or(size, |n| format!("2^{}", n.ilog2()));
        out += &format!("| {work}, {size} | {} | {} |\n", cells(Some(single)), cells(half));
    }
    out
}

/// The rate of the device's copy at its best.
fn limit(outcomes: &[Outcome]) -> String {
    let copies = outcomes.iter().filter(|o| o.contender == "copy").map(|o| o.gbps);
    let best = copies.reduce(f64::max);
    best.map_or_else(String::new, |best| format!("The device's own copy reaches {best:.0} GB/s. "))
}

fn summary(rows: &[Row<'_>]) -> String {
    let ratios: Vec<f64> = rows.iter().filter_map(Row::ratio).collect();
    let Some(mean) = report::geometric_mean(ratios.iter().copied()) else { return String::new() };
    let slower = ratios.iter().filter(|r| **r < 0.98).count();
    format!(
        "Over all {} rows with a peer, the geometric mean of our rate divided by Triton's is {mean:.3}; \
         rows below 0.98: {slower}.\n",
        ratios.len()
    )
}

fn read(path: &Path) -> Result<(Vec<String>, Vec<Outcome>), Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(report::parse(&text))
}

/// The README with `body` between its markers.
fn replace(readme: &str, body: &str) -> Result<String, Failure> {
    let missing = |marker: &str| format!("the README has no line `{marker}`");
    let begin = readme.find(BEGIN).ok_or_else(|| missing(BEGIN))? + BEGIN.len();
    let end = begin + readme[begin..].find(END).ok_or_else(|| missing(END))?;
    Ok(format!("{}\n{body}{}", &readme[..begin], &readme[end..]))
}

fn main() -> Result<(), Failure> {
    let folder = report::folder();
    let (mut notes, mut outcomes) = read(&folder.join("bandwidth.csv"))?;
    if let Ok((more, pytorch)) = read(&folder.join("pytorch.csv")) {
        notes.extend(more);
        outcomes.extend(pytorch);
    }
    let rows = report::rows(&outcomes);
    let files = plot::draw_all(&outcomes, &folder)?;

    let mut page = String::from("# Kernels that are limited by memory\n\n");
    page += "GB/s that the work itself needs, median of 21 interleaved rounds (63 where runs take less than 60 microseconds) with the L2 cache flushed; each side with \
             its best configuration. The ratio is the median of the ratios within a round. `+1`: every buffer starts one \
             element after an aligned address.\n\n";
    for note in &notes {
        page += &format!("- {note}\n");
    }
    page += &format!("\n{}\n{}\n", summary(&rows), report::markdown(&rows));
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        page += &format!("![{name}]({name})\n");
    }
    std::fs::write(folder.join("bandwidth.md"), page)?;

    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let mut body = format!("{}\n{}{}", table(&rows), limit(&outcomes), summary(&rows));
    if let Ok(text) = std::fs::read_to_string(folder.join("matmul.csv")) {
        print!("{}", product::plot::page(&folder)?);
        let (_, products) = product::outcome::parse(&text);
        body += &format!("\n{}", product::outcome::summary(&product::outcome::rows(&products)));
    }
    if folder.join("ladder.csv").exists() {
        let rates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/matmul/rates.md");
        std::fs::write(rates, product::ladder::page(&folder)?)?;
    }
    if folder.join(attention_page::RESULTS).exists() {
        std::fs::write(folder.join("attention.md"), attention_page::page(&folder)?)?;
    }
    if folder.join(attention_ladder::RESULTS).exists() {
        let rates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/attention/rates.md");
        std::fs::write(rates, attention_ladder::page(&folder)?)?;
    }
    std::fs::write(&readme, replace(&std::fs::read_to_string(&readme)?, &body)?)?;
    println!("{} rows, {} plots, {}", rows.len(), files.len(), readme.display());
    Ok(())
}
