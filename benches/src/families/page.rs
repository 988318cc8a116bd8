//! The page: tables of all rows, what was asked for, where another configuration is better, and what failed.

use super::{Row, limits, rows};
use crate::record::{DEFAULT, Limits, Record};
use crate::report;
use std::fmt::Write as _;

/// What a work is measured against.
#[derive(Clone, Copy)]
enum Need {
    /// A share of the least time that the device needs.
    Least(f64),
    /// A multiple of the peer's rate.
    Peer(f64),
    /// A share of the rate of a kernel that only reads as many bytes as the weights have.
    Reading(f64),
}

/// The work that only reads.
const READING: &str = "read_int4";

/// What each family is to reach, by the beginning of its works' names.
const NEEDS: [(&str, Need); 8] = [
    ("paged_decode", Need::Least(0.90)),
    ("mla_decode", Need::Least(0.75)),
    ("moe", Need::Peer(1.10)),
    ("fp8_blocks_pointers", Need::Peer(1.0)),
    ("fp8_blocks", Need::Peer(1.0)),
    ("awq", Need::Reading(0.85)),
    ("gptq", Need::Reading(0.85)),
    ("conv2d", Need::Peer(0.9)),
];

/// Another configuration is better if it is faster by more than runs differ.
const BETTER: f64 = 1.02;

fn number(value: Option<f64>, digits: usize) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| "–".to_string(), |v| format!("{v:.digits$}"))
}

fn name(row: &Row<'_>) -> String {
    format!("{} | {} | {}", row.any.work.replace('_', " "), row.any.shape.replace('x', " × "), row.any.dtype)
}

/// GB/s where bytes limit a work, TFLOP/s where operations do.
fn rate(record: &Record, by_bytes: bool) -> String {
    if by_bytes { format!("{:.0} GB/s", record.gbps()) } else { format!("{:.0} TFLOP/s", record.tflops()) }
}

fn table(rows: &[Row<'_>], limits: Limits) -> String {
    let mut out = String::from("| work | size | dtype | ms | rate | of the least time | peer | peer's ms | ratio |\n");
    out += "|---|---|---|--:|--:|--:|---|--:|--:|\n";
    for row in rows.iter().filter(|row| row.any.work != "copy") {
        let Some(ours) = row.ours else { continue };
        let (share, by_bytes) = row.of_least(limits).unwrap_or((f64::NAN, true));
        let peer = row.peer.map_or("–", |peer| peer.contender.as_str());
        let _ = writeln!(
            out,
            "| {} | {:.4} | {} | {} | {peer} | {} | {} |",
            name(row),
            ours.ms,
            rate(ours, by_bytes),
            number(Some(share), 2),
            number(row.peer.map(|peer| peer.ms), 4),
            number(row.to_peer(), 2)
        );
    }
    out
}

fn needs(rows: &[Row<'_>], limits: Limits) -> String {
    let mut out = String::from("| work | size | dtype | wanted | as the library chooses | at best |\n");
    out += "|---|---|---|---|--:|--:|\n";
    for row in rows {
        let Some((_, need)) = NEEDS.iter().find(|(work, _)| row.any.work.starts_with(work)) else { continue };
        let (wanted, reached) = match need {
            Need::Least(share) => (format!("{share} of the least time"), row.of_least(limits).map(|(share, _)| share)),
            Need::Peer(factor) => (format!("{factor} of the peer"), row.to_peer()),
            Need::Reading(share) => {
                let read = rows.iter().find(|other| other.any.work == READING && other.any.shape == row.any.shape);
                let times = read.and_then(|read| read.ours).zip(row.ours);
                (format!("{share} of reading the weights"), times.map(|(read, ours)| read.ms / ours.ms))
            }
        };
        let best = reached.map(|reached| reached * row.to_chosen().unwrap_or(1.0).max(1.0));
        let _ = writeln!(out, "| {} | {wanted} | {} | {} |", name(row), number(reached, 2), number(best, 2));
    }
    out
}

fn better(rows: &[Row<'_>]) -> String {
    let mut out = String::new();
    for row in rows {
        let Some((factor, tuned)) = row.to_chosen().filter(|f| *f > BETTER).zip(row.tuned) else { continue };
        let _ = writeln!(out, "| {} | {factor:.2} | {} |", name(row), tuned.config);
    }
    if out.is_empty() {
        return "Nowhere is another configuration better by more than 2 %.\n".into();
    }
    format!("| work | size | dtype | faster by | configuration |\n|---|---|---|--:|---|\n{out}")
}

fn failures(rows: &[Row<'_>]) -> String {
    let each = |record: &&Record| {
        let Record { contender, config, note, .. } = record;
        format!("| {} | {} | {} | {contender} | {config} | {note} |\n", record.work, record.shape, record.dtype)
    };
    let ours = |record: &&&Record| record.contender.starts_with(DEFAULT);
    let all: String = rows.iter().flat_map(|row| &row.failures).filter(ours).map(each).collect();
    let peers = rows.iter().flat_map(|row| &row.failures).filter(|record| !ours(record)).count();
    let others = format!("{peers} configurations of peers failed; they are in the results with the reason.\n");
    if all.is_empty() {
        return format!("None of the library's. {others}");
    }
    format!("| work | size | dtype | who | configuration | what |\n|---|---|---|---|---|---|\n{all}\n{others}")
}

/// The page of these records, under what the runs said of their machine.
pub fn page(notes: &[String], records: &[Record]) -> String {
    let (rows, limits) = (rows(records), limits(records));
    let mut out = String::from("# Families of the library\n\n");
    out += "Medians of interleaved rounds, each run after a flush of the L2 cache, on random data; every contender is \
            checked before it is timed. The library runs as it chooses; the least time is that of moving the bytes of the \
            work at the rate of the device's copy, or of its operations at the rate that its tensor cores have on paper, \
            whichever is longer. The ratio is our rate over the fastest peer's, in its best configuration: kernels in \
            Triton after published algorithms, in the same process, or PyTorch's functions (cuDNN's for convolutions), by \
            `peers/family_peers.py` right after it. The peer of experts is given its tokens sorted; the library sorts.\n\n";
    for note in notes {
        let _ = writeln!(out, "- {note}");
    }
    let copy = number(Some(limits.copy), 0);
    let peers: Vec<f64> = rows.iter().filter_map(Row::to_peer).collect();
    let mean = number(report::geometric_mean(peers.iter().copied()), 3);
    let _ = write!(
        out,
        "\nThe device's copy reaches {copy} GB/s, read and written. Over {} rows with a peer the geometric mean of the ratios \
         is {mean}.\n\n![Ratios of all rows that were measured](ratios.svg)\n\n## All rows\n\n{}",
        peers.len(),
        table(&rows, limits)
    );
    let _ = write!(out, "\n## What was asked for\n\n{}", needs(&rows, limits));
    let _ = write!(out, "\n## Where another configuration is better\n\n{}", better(&rows));
    let _ = write!(out, "\n## What failed\n\n{}", failures(&rows));
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;
    use crate::record::TUNED;

    #[test]
    fn the_page_says_what_was_reached_and_what_would_be_better() {
        let all = [
            record("copy", "copy", 1.0),
            record("paged_decode", "triton", 2.0),
            record("paged_decode", DEFAULT, 1.25),
            record("paged_decode", TUNED, 1.0),
            Record { note: "element 3 is 4".into(), ..record("awq", DEFAULT, f64::NAN) },
        ];
        let page = page(&["a GPU".into()], &all);
        assert!(page.contains("| paged decode | 8 × 16 | f16 | 1.2500 | 2400 GB/s | 0.80 | triton | 2.0000 | 1.60 |"));
        assert!(page.contains("| paged decode | 8 × 16 | f16 | 0.9 of the least time | 0.80 | 1.00 |"), "{page}");
        assert!(page.contains("| paged decode | 8 × 16 | f16 | 1.25 | BLOCK=8 |"));
        assert!(page.contains("| awq | 8x16 | f16 | tilewright | BLOCK=8 | element 3 is 4 |"));
    }
}
