//! Results with what limits them: the bytes that a work must move and the operations that it must do, so that the least
//! time that a device allows stands beside the time that was measured.

use crate::Failure;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// A line of a file of records: what one contender reached in one work.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What was done, such as `paged_decode`.
    pub work: String,
    /// Its size.
    pub shape: String,
    /// The dtype of its data.
    pub dtype: String,
    /// Who did it: [`DEFAULT`], [`TUNED`], or a peer.
    pub contender: String,
    /// In which configuration.
    pub config: String,
    /// Median time in milliseconds; NaN where something went wrong, which the note says.
    pub ms: f64,
    /// Bytes that the work reads and writes at least.
    pub bytes: f64,
    /// Operations of tensor cores, 0 where they do not count.
    pub flops: f64,
    /// Median over the rounds of this contender's rate divided by the first one's; NaN for other programs' contenders.
    pub ratio: f64,
    /// The device that it was measured on.
    pub device: String,
    /// What went wrong.
    pub note: String,
}

/// The library as it is called, with the configuration that it chooses.
pub const DEFAULT: &str = "tilewright";
/// The library with the best of the configurations that were tried.
pub const TUNED: &str = "tilewright tuned";

/// The names of the columns.
pub const COLUMNS: &str = "work,shape,dtype,contender,config,ms,bytes,flops,GB/s,TFLOP/s,rate relative to the row's \
                           first,device,note";

impl Record {
    /// GB/s at that time.
    pub fn gbps(&self) -> f64 {
        self.bytes / self.ms / 1e6
    }

    /// TFLOP/s at that time.
    pub fn tflops(&self) -> f64 {
        self.flops / self.ms / 1e9
    }

    /// Whether two records are of one work.
    pub fn is_of_row(&self, other: &Record) -> bool {
        (&self.work, &self.shape, &self.dtype) == (&other.work, &other.shape, &other.dtype)
    }

    fn line(&self) -> String {
        let plain = |text: &str| text.replace([',', '\n', '\r', '"'], ";");
        let texts = [&self.work, &self.shape, &self.dtype, &self.contender, &self.config].map(|text| plain(text));
        let mut out = texts.join(",");
        let _ = write!(out, ",{:.5},{:.0},{:.0}", self.ms, self.bytes, self.flops);
        let _ = write!(out, ",{:.1},{:.2},{:.4}", self.gbps(), self.tflops(), self.ratio);
        let _ = write!(out, ",{},{}", plain(&self.device), plain(&self.note));
        out
    }

    fn parse(line: &str) -> Option<Record> {
        let fields: Vec<&str> = line.split(',').collect();
        let [work, shape, dtype, contender, config, ms, bytes, flops, _, _, ratio, device, note] = fields[..] else {
            return None;
        };
        let text = str::to_string;
        Some(Record {
            work: text(work),
            shape: text(shape),
            dtype: text(dtype),
            contender: text(contender),
            config: text(config),
            ms: ms.parse().ok()?,
            bytes: bytes.parse().ok()?,
            flops: flops.parse().ok()?,
            ratio: ratio.parse().unwrap_or(f64::NAN),
            device: text(device),
            note: text(note),
        })
    }
}

/// Adds records to a file, which gets its header if it is new.
///
/// # Errors
/// If the file system refuses.
pub fn append(path: &Path, records: &[Record]) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    if file.metadata()?.len() == 0 {
        writeln!(file, "{COLUMNS}")?;
    }
    for record in records {
        writeln!(file, "{}", record.line())?;
    }
    Ok(())
}

/// The records of a file, and its comment lines.
pub fn parse(text: &str) -> (Vec<String>, Vec<Record>) {
    let comments = text.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_string).collect();
    (comments, text.lines().filter(|line| !line.starts_with('#')).filter_map(Record::parse).collect())
}

/// What a device can do at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The rate of a large copy on the device, read and written, in GB/s.
    pub copy: f64,
}

/// TFLOP/s of the tensor cores of an H100 SXM at its full clock, by the bits of the factors (NVIDIA, "H100 Tensor Core GPU
/// Architecture", 2022, without sparsity).
const PEAK: [(&str, f64); 3] = [("f16", 989.4), ("bf16", 989.4), ("f8e4m3", 1978.9)];

impl Limits {
    /// The least time of a work in milliseconds: to move its bytes at the rate of a copy, or to do its operations at the rate
    /// that the tensor cores have on paper, whichever takes longer; and whether it is the bytes.
    pub fn least(self, record: &Record) -> (f64, bool) {
        let moved = record.bytes / self.copy / 1e6;
        let peak = PEAK.iter().find(|(dtype, _)| *dtype == record.dtype).map_or(f64::INFINITY, |(_, peak)| *peak);
        let computed = record.flops / peak / 1e9;
        if moved >= computed { (moved, true) } else { (computed, false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let [work, shape, dtype] = ["paged_decode", "64x8192", "f16"].map(str::to_string);
        Record {
            work,
            shape,
            dtype,
            contender: DEFAULT.into(),
            config: "library".into(),
            ms: 0.5,
            bytes: 1.5e9,
            flops: 2e9,
            ratio: 1.25,
            device: "a GPU".into(),
            note: String::new(),
        }
    }

    #[test]
    fn records_survive_a_file() {
        let folder = std::env::temp_dir().join(format!("tilewright-records-{}", std::process::id()));
        let path = folder.join("records.csv");
        let broken = Record { note: "element 3; expected 4".into(), ..record() };
        append(&path, &[record()]).unwrap();
        append(&path, std::slice::from_ref(&broken)).unwrap();
        let (_, read) = parse(&std::fs::read_to_string(&path).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, [record(), broken]);
    }

    #[test]
    fn the_least_time_is_that_of_what_takes_longer() {
        let limits = Limits { copy: 3000.0 };
        assert_eq!(limits.least(&record()), (0.5, true));
        let (ms, by_bytes) = limits.least(&Record { flops: 989.4e9, ..record() });
        assert!((ms - 1.0).abs() < 1e-9 && !by_bytes);
    }
}
