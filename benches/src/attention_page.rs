//! The page of attention: what everybody reached in the same rounds.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::{geometric_mean, parse};
use crate::{Failure, Outcome};

/// Results of the bench `attention`.
pub const RESULTS: &str = "attention.csv";

/// Who is compared with us.
const PEERS: [(&str, &str); 3] = [("triton", "Triton"), ("cudnn", "cuDNN"), ("flash", "FlashAttention 2")];

/// A work and size, ours, and each of [`PEERS`].
struct Row<'a> {
    ours: &'a Outcome,
    peers: [Option<&'a Outcome>; PEERS.len()],
}

impl Row<'_> {
    /// Our rate divided by a peer's: the quotient of the medians of what each has to the first of the rounds.
    fn ratio(&self, peer: usize) -> Option<f64> {
        Some(self.ours.ratio / self.peers[peer]?.ratio).filter(|ratio| ratio.is_finite())
    }
}

fn rows(outcomes: &[Outcome]) -> Vec<Row<'_>> {
    let same = |a: &Outcome, b: &Outcome| (&a.work, &a.shape, &a.dtype) == (&b.work, &b.shape, &b.dtype);
    let ours = outcomes.iter().filter(|o| o.contender == "tilewright");
    let row = |ours| Row {
        ours,
        peers: PEERS.map(|(name, _)| outcomes.iter().find(|o| o.contender == name && same(o, ours))),
    };
    ours.map(row).collect()
}

/// The page, from the results in a folder.
///
/// # Errors
/// If they cannot be read.
pub fn page(folder: &Path) -> Result<String, Failure> {
    let (notes, outcomes) = parse(&std::fs::read_to_string(folder.join(RESULTS))?);
    let mut page = String::from(
        "# Attention\n\nTFLOP/s of `4 * heads * length^2 * d` operations forward and 2.5 times as many backward, half of them \
         under a causal mask, on random data with the L2 cache flushed. Ours and Triton's run in one process on the same \
         buffers, cuDNN and FlashAttention 2 through PyTorch in a process beside it; all take turns in the same rounds, each in \
         its best configuration (`attention_attempts.csv` has the others of ours and of Triton's). A ratio is that of the \
         medians over the rounds.\n\n",
    );
    for note in notes {
        writeln!(page, "- {note}")?;
    }
    let rows = rows(&outcomes);
    page += &format!("\n{}", table(&rows));
    for (name, backward) in [("forward", false), ("backward", true)] {
        let means: Vec<String> = (0..PEERS.len())
            .filter_map(|peer| {
                let of = rows.iter().filter(|row| row.ours.work.contains("backward") == backward);
                let ratios: Vec<f64> = of.filter_map(|row| row.ratio(peer)).collect();
                let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                let mean = geometric_mean(ratios.iter().copied())?;
                Some(format!("{mean:.3} of {} ({} rows, {least:.2} at least)", PEERS[peer].1, ratios.len()))
            })
            .collect();
        if !means.is_empty() {
            writeln!(page, "\nGeometric means, {name}: {}.", means.join(", "))?;
        }
    }
    Ok(page)
}

fn table(rows: &[Row<'_>]) -> String {
    let present: Vec<usize> = (0..PEERS.len()).filter(|&p| rows.iter().any(|row| row.peers[p].is_some())).collect();
    let each = |text: &dyn Fn(usize) -> String| present.iter().map(|&peer| text(peer)).collect::<String>();
    let mut out = format!(
        "| work | heads x length x d | dtype | configuration | ours |{}{}\n|---|---|---|---|--:|{}\n",
        each(&|peer| format!(" {} |", PEERS[peer].1)),
        each(&|peer| format!(" to {} |", PEERS[peer].1)),
        "--:|".repeat(2 * present.len()),
    );
    let or_dash = |text: Option<String>| format!(" {} |", text.unwrap_or_else(|| "–".into()));
    for row in rows {
        let Outcome { work, shape, dtype, config, gbps, .. } = row.ours;
        out +=
            &format!("| {} | {} | {dtype} | {config} | {gbps:.0} |", work.replace('_', " "), shape.replace('x', " x "));
        out += &each(&|peer| or_dash(row.peers[peer].map(|o| format!("{:.0}", o.gbps))));
        out += &each(&|peer| or_dash(row.ratio(peer).map(|ratio| format!("{ratio:.2}"))));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(contender: &str, rate: f64, ratio: f64) -> Outcome {
        let [work, shape, dtype, config] = ["attention", "2x64x64", "f16", "BM=64"].map(str::to_string);
        Outcome { work, shape, dtype, contender: contender.into(), config, ms: 1.0, gbps: rate, ratio }
    }

    #[test]
    fn a_row_has_those_peers_that_ran() {
        let outcomes =
            [outcome("triton", 100.0, 1.0), outcome("tilewright", 150.0, 1.5), outcome("cudnn", 120.0, 1.25)];
        let table = table(&rows(&outcomes));
        assert!(table.contains("| ours | Triton | cuDNN | to Triton | to cuDNN |\n"), "{table}");
        assert!(table.contains("| BM=64 | 150 | 100 | 120 | 1.50 | 1.20 |\n"), "{table}");
    }
}
