//! The ladder of attention: what each step from a naive kernel to the fastest changes in the code, and what it gains.

use std::fmt::Write as _;
use std::path::Path;

use crate::product::ladder::{self, Code, draw, hundredths};
use crate::{Failure, Outcome, report};

/// The file of the rungs' results.
pub const RESULTS: &str = "attention_ladder.csv";
/// The file with the code of the rungs.
pub const CODE: &str = "attention_ladder_code.csv";

/// Whether somebody is a rung: its name begins with a number.
fn is_rung(o: &Outcome) -> bool {
    o.contender.starts_with(|c: char| c.is_ascii_digit())
}

/// Outcomes of one work and shape.
struct Column<'a>(Vec<&'a Outcome>);

impl<'a> Column<'a> {
    fn named(&self, name: &str) -> Option<&'a Outcome> {
        self.0.iter().copied().find(|o| o.contender == name)
    }

    /// `64 × 4096`, or `64 × 4096 causal`: heads and rows.
    fn title(&self) -> String {
        let Some(first) = self.0.first() else { return String::new() };
        let (heads, rest) = first.shape.split_once('x').unwrap_or((&first.shape, ""));
        let rows = rest.split('x').next().unwrap_or_default();
        format!("{heads} × {rows}{}", if first.work.ends_with("causal") { " causal" } else { "" })
    }
}

/// The columns, in the order in which they were measured.
fn columns(outcomes: &[Outcome]) -> Vec<Column<'_>> {
    let mut all: Vec<Column<'_>> = Vec::new();
    for o in outcomes {
        let same = |column: &&mut Column<'_>| {
            column.0.first().is_some_and(|first| (&first.work, &first.shape) == (&o.work, &o.shape))
        };
        match all.iter_mut().find(same) {
            Some(column) => column.0.push(o),
            None => all.push(Column(vec![o])),
        }
    }
    all
}

/// A rate with two digits at least.
fn rate(o: Option<&Outcome>) -> String {
    o.map_or("–".to_string(), |o| if o.gbps < 10.0 { format!("{:.1}", o.gbps) } else { format!("{:.0}", o.gbps) })
}

/// Everybody's rate at every size with each rung's gain over the one before it, its part of Triton's rate at the first
/// size, and its code.
fn table(columns: &[Column<'_>], code: &[Code]) -> Option<String> {
    let main = columns.first()?;
    let mut out = String::from("| rung |");
    for column in columns {
        let _ = write!(out, " {} | gain |", column.title());
    }
    out += " of Triton | copies | products | warps | shared memory | registers |\n|---|";
    out += &"--:|--:|".repeat(columns.len());
    out += "--:|---|---|--:|--:|--:|\n";
    let triton = main.named("triton");
    let mut last: Option<&str> = None;
    for rung in main.0.iter().filter(|o| is_rung(o)) {
        let name = rung.contender.as_str();
        let _ = write!(out, "| {name} |");
        for column in columns {
            let (here, before) = (column.named(name), last.and_then(|last| column.named(last)));
            let gain = here.zip(before).map(|(here, before)| before.ms / here.ms);
            let _ = write!(out, " {} | {} |", rate(here), hundredths(gain));
        }
        // The first contender of a row is Triton, if it is there.
        let _ = write!(out, " {} |", hundredths(triton.map(|_| rung.ratio)));
        match code.iter().find(|c| c.rung == name) {
            Some(Code { copies, products, warps, shared, registers, .. }) => {
                let shared = f64::from(*shared) / 1024.0;
                let _ = writeln!(out, " {copies} | {products} | {warps} | {shared:.0} KiB | {registers} |");
            }
            None => out += " – | – | – | – | – |\n",
        }
        last = Some(name);
    }
    if triton.is_some() {
        let rates: String = columns.iter().map(|column| format!(" {} | |", rate(column.named("triton")))).collect();
        let _ = writeln!(out, "| Triton 3.6, its best configuration |{rates} | | | | | |");
    }
    Some(out)
}

/// Makes `attention_ladder.md` and its picture from [`RESULTS`] and [`CODE`], and returns the table.
///
/// # Errors
/// If there are no results, or a file cannot be written.
pub fn page(folder: &Path) -> Result<String, Failure> {
    let (notes, outcomes) = report::parse(&ladder::read(&folder.join(RESULTS))?);
    let code = Code::all(&folder.join(CODE))?;
    let columns = columns(&outcomes);
    let (Some(table), Some(main)) = (table(&columns, &code), columns.first()) else {
        return Err(format!("{RESULTS} has no results").into());
    };
    let rungs: Vec<f64> = main.0.iter().filter(|o| is_rung(o)).map(|o| o.gbps).collect();
    let triton = main.named("triton").map(|o| ("Triton", o.gbps));
    let caption = format!("f16, heads of 128, {}", main.title());
    let highest = main.0.iter().map(|o| o.gbps).fold(0.0, f64::max);
    draw(&caption, &rungs, triton, highest, &folder.join("attention_ladder.svg"))?;
    let head = "# The ladder of attention\n\n\
         TFLOP/s of f16, heads of 128 numbers, columns are heads × rows; medians of interleaved rounds. The gain is over \
         the rung before; the part of Triton is that of the first column. What each rung is says the documentation, in \
         `tilewright::guide::attention`.";
    ladder::save(&folder.join("attention_ladder.md"), head, &notes, &table)?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rung_is_compared_with_the_one_before_and_with_triton() {
        let text = "# note\nheader\n\
            attention,64x4096x128,f16,triton,BM=1,1.0,500,1.0\n\
            attention,64x4096x128,f16,1 plain,BM=1,4.0,125,0.25\n\
            attention,64x4096x128,f16,2 better,BM=1,2.0,250,0.5\n\
            attention_causal,64x4096x128,f16,1 plain,BM=1,4.0,8.25,0.25\n\
            attention_causal,64x4096x128,f16,2 better,BM=1,5.0,80,0.5\n";
        let (_, outcomes) = report::parse(text);
        let products = "2 better,tensor copies,`wgmma m64n128k16`,12,1024,168,0";
        let code = [Code::parse(products).expect("a line")];
        let table = table(&columns(&outcomes), &code).expect("there are results");
        assert!(table.starts_with("| rung | 64 × 4096 | gain | 64 × 4096 causal | gain | of Triton |"), "{table}");
        assert!(table.contains("| 1 plain | 125 | – | 8.2 | – | 0.25 | – |"), "{table}");
        let better =
            "| 2 better | 250 | 2.00 | 80 | 0.80 | 0.50 | tensor copies | `wgmma m64n128k16` | 12 | 1 KiB | 168 |";
        assert!(table.contains(better), "{table}");
        assert!(table.contains("| Triton 3.6, its best configuration | 500 | | – | |"), "{table}");
    }

    #[test]
    fn results_become_a_page_and_a_picture() {
        let folder = std::env::temp_dir().join(format!("attention-ladder-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let rows = "# a GPU\nheader\nattention,64x4096x128,f16,1 plain,BM=1,4.0,125,1.0\n";
        std::fs::write(folder.join(RESULTS), rows).expect("a file");
        std::fs::write(folder.join(CODE), "header\n1 plain,loads,`fma`,4,1024,90,0\n").expect("a file");
        let made = page(&folder).map_err(|e| e.to_string());
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let (text, picture) = (read("attention_ladder.md"), read("attention_ladder.svg"));
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
        assert!(made.is_ok_and(|table| table.contains("| 1 plain | 125 | – | – | loads | `fma` | 4 | 1 KiB | 90 |")));
        assert!(text.contains("- a GPU") && picture.contains("64 × 4096"), "{text}");
    }
}
