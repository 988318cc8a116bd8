//! Makes tables and plots of the results, and puts the main rows into the README.
//!
//! ```text
//! cargo run -p tilewright-bench --bin readme-table
//! ```
//! Reads `results/bandwidth.csv` and, if it is there, `results/pytorch.csv`; writes `results/bandwidth.md`, plots beside
//! it, and the README between its markers.

use std::path::Path;

use tilewright_bench::report::{self, Row};
use tilewright_bench::{Failure, Outcome, plot};

const BEGIN: &str = "<!-- figures -->";
const END: &str = "<!-- /figures -->";

/// The shapes of the rows for the README; of other works the first shape of each dtype.
const SHAPES: [(&str, &[&str]); 3] = [
    ("add", &["268435456"]),
    ("softmax", &["4096x1024", "8192x4096", "8192x8192", "4096x16384"]),
    ("layer_norm", &["4096x1024", "8192x4096", "8192x8192", "4096x16384"]),
];

fn main_rows<'a>(rows: &[Row<'a>]) -> Vec<Row<'a>> {
    let mut chosen: Vec<Row<'a>> = Vec::new();
    for row in rows {
        let (work, shape, dtype) = (&row.any.work, &row.any.shape, &row.any.dtype);
        let wanted = match SHAPES.iter().find(|(name, _)| name == work) {
            Some((_, shapes)) => shapes.contains(&shape.as_str()),
            None => !chosen.iter().any(|c| &c.any.work == work && &c.any.dtype == dtype),
        };
        if wanted {
            chosen.push(row.clone());
        }
    }
    chosen
}

fn summary(rows: &[Row<'_>]) -> String {
    let ratios: Vec<f64> = rows.iter().filter_map(Row::ratio).collect();
    let Some(mean) = report::geometric_mean(ratios.iter().copied()) else { return String::new() };
    let slower = ratios.iter().filter(|r| **r < 0.98).count();
    format!(
        "Over all {} rows with a peer, the geometric mean of our rate divided by Triton's is {mean:.3}; \
         {slower} of them are below 0.98.\n",
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
    page += "GB/s that the work itself needs, median of 21 interleaved rounds with the L2 cache flushed; each side with \
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
    let body = format!("{}\n{}", report::markdown(&main_rows(&rows)), summary(&rows));
    std::fs::write(&readme, replace(&std::fs::read_to_string(&readme)?, &body)?)?;
    println!("{} rows, {} plots, {}", rows.len(), files.len(), readme.display());
    Ok(())
}
