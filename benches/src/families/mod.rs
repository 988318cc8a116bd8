//! Results of the library's families: the page, and the picture of all that was measured.

pub mod page;
pub mod ratios;

use crate::record::{DEFAULT, Limits, Record, TUNED};

/// A row: one work with one size and dtype, and what each contender reached.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The library as it chooses.
    pub ours: Option<&'a Record>,
    /// The library with the best of other configurations.
    pub tuned: Option<&'a Record>,
    /// The fastest of the others.
    pub peer: Option<&'a Record>,
    /// What went wrong.
    pub failures: Vec<&'a Record>,
    /// Any of its records.
    pub any: &'a Record,
}

impl Row<'_> {
    /// Our rate over the peer's.
    pub fn to_peer(&self) -> Option<f64> {
        Some(self.peer?.ms / self.ours?.ms)
    }

    /// The rate of the best of our configurations over that of the one that the library chooses.
    pub fn to_chosen(&self) -> Option<f64> {
        Some(self.ours?.ms / self.tuned?.ms)
    }

    /// The least time that the device needs, over ours, and whether it is for moving bytes.
    pub fn of_least(&self, limits: Limits) -> Option<(f64, bool)> {
        let ours = self.ours?;
        let (least, by_bytes) = limits.least(ours);
        Some((least / ours.ms, by_bytes))
    }
}

/// The rows of records, in their order.
pub fn rows(records: &[Record]) -> Vec<Row<'_>> {
    let mut all: Vec<Row<'_>> = Vec::new();
    for record in records {
        let at = all.iter().position(|row| row.any.is_of_row(record)).unwrap_or_else(|| {
            all.push(Row { ours: None, tuned: None, peer: None, failures: Vec::new(), any: record });
            all.len() - 1
        });
        let row = &mut all[at];
        if !record.note.is_empty() || !record.ms.is_finite() {
            row.failures.push(record);
            continue;
        }
        match record.contender.as_str() {
            DEFAULT => row.ours = Some(record),
            TUNED => row.tuned = Some(record),
            _ if row.peer.is_none_or(|peer| record.ms < peer.ms) => row.peer = Some(record),
            _ => {}
        }
    }
    all
}

/// What the device can do: the rate of its copy, measured in the same run.
pub fn limits(records: &[Record]) -> Limits {
    let copies = records.iter().filter(|r| r.work == "copy" && r.ms.is_finite()).map(Record::gbps);
    Limits { copy: copies.fold(f64::NAN, f64::max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record(work: &str, contender: &str, ms: f64) -> Record {
        Record {
            work: work.into(),
            shape: "8x16".into(),
            dtype: "f16".into(),
            contender: contender.into(),
            config: "BLOCK=8".into(),
            ms,
            bytes: 3e9,
            flops: 0.0,
            ratio: 1.0,
            device: "a GPU".into(),
            note: String::new(),
        }
    }

    #[test]
    fn a_row_has_the_library_twice_and_its_fastest_peer() {
        let broken = Record { note: "wrong".into(), ..record("softmax", TUNED, f64::NAN) };
        let all = [
            record("softmax", "triton", 2.0),
            record("softmax", "pytorch", 3.0),
            record("softmax", DEFAULT, 1.0),
            record("softmax", TUNED, 0.8),
            broken,
            record("copy", "copy", 1.0),
        ];
        let rows = rows(&all);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].to_peer(), Some(2.0));
        assert_eq!(rows[0].to_chosen(), Some(1.25));
        assert_eq!(rows[0].failures.len(), 1);
        assert_eq!(limits(&all), Limits { copy: 3000.0 });
        assert_eq!(rows[0].of_least(limits(&all)), Some((1.0, true)));
    }
}
