//! Samples by lines of the source.

use super::cupti::sampling::Sampled;
use super::{Place, Profile, observed};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Where programs were when somebody looked: by lines of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// The lines, by kernel, those with most samples first.
    pub lines: Vec<LineSamples>,
    /// Samples that were lost, because the hardware had no room for them.
    pub dropped: u64,
    /// Samples in code that CUPTI does not look into, such as the driver's own.
    pub others: u64,
    /// Whether the hardware had no room for more samples at some time: those of then, and how many they were, nobody knows.
    pub is_full: bool,
}

/// The samples of a line of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSamples {
    /// The kernel's name; of kernels of others, that of their entry.
    pub kernel: String,
    /// Where the kernel stands in the source, if that is known.
    pub place: Option<Place>,
    /// The file of the line, as rustc names it, or as the code does; empty if the code does not say.
    pub file: String,
    /// The line; 0 if the code does not say.
    pub line: u32,
    /// What stands there, if that is known.
    pub text: String,
    /// Whether the machine code is known, which says the line: that of other libraries is if it is loaded in the work.
    pub is_code_known: bool,
    /// How many samples.
    pub samples: u64,
    /// What warps waited for, with how many samples, the most first. CUPTI's names, of which `selected` is that of a
    /// warp that went on.
    pub stalls: Vec<(String, u64)>,
}

/// Why warps wait, by CUPTI's name.
const REASONS: &[(&str, &str)] = &[
    ("barrier", "other warps at a barrier"),
    ("branch_resolving", "the target of a branch"),
    ("dispatch_stall", "the dispatcher"),
    ("drain", "its stores, to end"),
    ("gmma", "products of its warp group"),
    ("imc_miss", "constants"),
    ("lg_throttle", "the queue to global memory"),
    ("long_scoreboard", "global or local memory"),
    ("math_pipe_throttle", "a busy unit"),
    ("membar", "a memory fence"),
    ("mio_throttle", "the queue to shared memory and special units"),
    ("no_instructions", "instructions, to be fetched"),
    ("not_selected", "its turn"),
    ("short_scoreboard", "shared memory or special units"),
    ("sleeping", "itself, asleep"),
    ("tex_throttle", "the queue to texture memory"),
    ("wait", "a fixed latency"),
    ("warpgroup_arrive", "its warp group"),
];

/// The name of a warp that went on.
const SELECTED: &str = "selected";
/// What is said where samples were lost without number.
const FULL: &str = "the hardware had no room for all samples: profile less at a time";
/// Lines of a kernel that a table shows.
const SHOWN: usize = 12;

impl LineSamples {
    /// What warps waited for most, and with how many samples; nothing if they always went on.
    pub fn main_stall(&self) -> Option<(&str, u64)> {
        self.stalls.iter().find(|(name, _)| name != SELECTED).map(|(name, samples)| (name.as_str(), *samples))
    }
}

/// A line of a kernel, as samples are summed by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct At {
    kernel: String,
    place: Option<Place>,
    file: String,
    line: u32,
    text: String,
    is_code_known: bool,
}

/// What is known of an instruction.
pub(super) enum Origin {
    /// It is from this line of this file.
    Line(String, u32),
    /// The code does not say.
    NoLine,
    /// Nobody has the code.
    NoCode,
}

impl Samples {
    /// By lines, which `origin` knows by checksum of the code, entry, and place in the code.
    pub(super) fn of(sampled: Sampled, mut origin: impl FnMut(u64, &str, u64) -> Origin) -> Samples {
        let mut lines: BTreeMap<At, BTreeMap<String, u64>> = BTreeMap::new();
        for (instruction, stalls) in sampled.instructions {
            let (kernel, place) = match observed::kernel_of(&instruction.entry) {
                Some((kernel, place)) => (kernel.to_string(), place),
                None => (instruction.entry.clone(), None),
            };
            let (file, line, is_code_known) = match origin(instruction.crc, &instruction.entry, instruction.pc) {
                Origin::Line(file, line) => (file, line, true),
                Origin::NoLine => (String::new(), 0, true),
                Origin::NoCode => (String::new(), 0, false),
            };
            let (file, text) = match observed::source_line(&instruction.entry, &file, line) {
                Some((file, text)) => (file.to_string(), text.trim().to_string()),
                None => (file, String::new()),
            };
            let all = lines.entry(At { kernel, place, file, line, text, is_code_known }).or_default();
            stalls.into_iter().for_each(|(name, samples)| *all.entry(name).or_default() += samples);
        }
        let mut lines: Vec<LineSamples> = lines.into_iter().map(|(at, stalls)| LineSamples::new(at, stalls)).collect();
        let mut totals: BTreeMap<(String, Option<Place>), u64> = BTreeMap::new();
        for line in &lines {
            *totals.entry((line.kernel.clone(), line.place)).or_default() += line.samples;
        }
        // The kernel with most samples first; equal ones stay in the order of their names.
        let total = |line: &LineSamples| totals.get(&(line.kernel.clone(), line.place)).copied().unwrap_or(0);
        lines.sort_by(|a, b| {
            let kernels = total(b).cmp(&total(a)).then_with(|| (&a.kernel, a.place).cmp(&(&b.kernel, b.place)));
            kernels.then_with(|| b.samples.cmp(&a.samples))
        });
        Samples { lines, dropped: sampled.dropped, others: sampled.others, is_full: sampled.is_full }
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.lines.iter().map(|line| line.samples).sum()
    }

    /// A line for each line and reason to wait, with a header.
    pub fn csv(&self) -> String {
        let mut text = String::from("kernel,file,line,reason,samples\n");
        for LineSamples { kernel, file, line, stalls, .. } in &self.lines {
            for (reason, samples) in stalls {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{},{},{line},{reason},{samples}", field(kernel), field(file));
            }
        }
        text
    }
}

use super::table::field;

impl LineSamples {
    fn new(at: At, stalls: BTreeMap<String, u64>) -> LineSamples {
        let mut stalls: Vec<(String, u64)> = stalls.into_iter().collect();
        stalls.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let samples = stalls.iter().map(|(_, samples)| samples).sum();
        let At { kernel, place, file, line, text, is_code_known } = at;
        LineSamples { kernel, place, file, line, text, is_code_known, samples, stalls }
    }

    /// Its row in a table of lines of a kernel that has so many samples.
    fn cells(&self, total: u64) -> [String; 5] {
        let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        let stall = self.main_stall().map_or_else(String::new, |(name, samples)| {
            let meant = REASONS.iter().find(|(known, _)| *known == name).map_or(name, |(_, meant)| meant);
            format!("{:.0} % {meant}", percent(samples, self.samples))
        });
        let is_here = self.place.is_some_and(|place| place.file == self.file);
        let place = match (self.line, is_here) {
            (0, _) => "?".to_string(),
            (line, true) => line.to_string(),
            (line, false) => format!("{}:{line}", self.file),
        };
        let text = match self.text.as_str() {
            _ if !self.is_code_known => "(the code was loaded before, and is not known)",
            _ if self.line == 0 => "(the code does not say which lines it is from)",
            // What comes before the first statement has the line of the attribute.
            "" if self.place.is_some_and(|place| is_here && self.line <= place.line) => "(the kernel's arguments)",
            text => text,
        };
        [format!("{:.1}", percent(self.samples, total)), self.samples.to_string(), place, text.to_string(), stall]
    }
}

/// A table for each kernel.
impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.total(), self.others) {
            (0, 0) if self.is_full => return writeln!(f, "no samples: {FULL}"),
            (0, 0) => return writeln!(f, "no samples were taken: no kernel ran long enough to be met"),
            (0, others) => return writeln!(f, "no samples: all {others} were in code that CUPTI does not look into"),
            _ => {}
        }
        write!(f, "where programs were, by {} samples", self.total())?;
        if self.others > 0 {
            write!(f, ", and {} in code that CUPTI does not look into", self.others)?;
        }
        match self.dropped {
            0 => writeln!(f)?,
            dropped => writeln!(f, " ({dropped} more were lost)")?,
        }
        if self.is_full {
            writeln!(f, "{FULL}")?;
        }
        for kernel in self.lines.chunk_by(|a, b| (&a.kernel, a.place) == (&b.kernel, b.place)) {
            let Some(first) = kernel.first() else { continue };
            let total: u64 = kernel.iter().map(|line| line.samples).sum();
            let place = first.place.map_or_else(String::new, |place| format!("  {place}"));
            writeln!(f, "{}{place}: {total} samples", first.kernel)?;
            let header = ["%", "samples", "line", "", "waits for"].map(String::from);
            let rows: Vec<[String; 5]> =
                std::iter::once(header).chain(kernel.iter().take(SHOWN).map(|line| line.cells(total))).collect();
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let widths: [usize; 4] = std::array::from_fn(width);
            for [percent, samples, line, text, stall] in &rows {
                let [a, b, c, d] = widths;
                let row = format!("{percent:>a$}  {samples:>b$}  {line:>c$}  {text:<d$}  {stall}");
                writeln!(f, "{}", row.trim_end())?;
            }
            if let more @ 1.. = kernel.len().saturating_sub(SHOWN) {
                writeln!(f, "and {more} more lines")?;
            }
        }
        Ok(())
    }
}

impl Profile {
    /// Writes [`Samples::csv`] to a file, if there are samples.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) with what the file system says.
    pub fn save_samples(&self, path: impl AsRef<std::path::Path>) -> crate::Result<()> {
        self.samples.as_ref().map_or(Ok(()), |samples| super::save(path.as_ref(), &samples.csv()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cupti::sampling::Instruction;
    use super::*;

    fn sampled() -> Sampled {
        let mut sampled = Sampled::default();
        let mut add = |entry: &str, pc: u64, stalls: &[(&str, u64)]| {
            let at = Instruction { crc: 1, entry: entry.into(), pc };
            sampled.instructions.insert(at, stalls.iter().map(|(name, count)| (name.to_string(), *count)).collect());
        };
        add("lines_unknown", 16, &[("wait", 5)]);
        add("lines_two", 0, &[("selected", 8), ("long_scoreboard", 2)]);
        add("lines_two", 16, &[("long_scoreboard", 30), ("wait", 10)]);
        add("lines_two", 32, &[("wait", 60)]);
        sampled
    }

    fn line(_: u64, entry: &str, pc: u64) -> Origin {
        match entry {
            "lines_two" => Origin::Line("src/two.rs".to_string(), if pc < 32 { 7 } else { 9 }),
            "lines_lost" => Origin::NoCode,
            _ => Origin::NoLine,
        }
    }

    #[test]
    fn instructions_are_summed_by_their_lines() {
        let samples = Samples::of(sampled(), line);
        let found: Vec<_> = samples.lines.iter().map(|at| (at.kernel.as_str(), at.line, at.samples)).collect();
        assert_eq!(found, [("lines_two", 9, 60), ("lines_two", 7, 50), ("lines_unknown", 0, 5)]);
        let stalls = [("long_scoreboard".to_string(), 32), ("wait".to_string(), 10), ("selected".to_string(), 8)];
        assert_eq!(samples.lines[1].stalls, stalls);
        assert_eq!((samples.total(), samples.lines[1].main_stall()), (115, Some(("long_scoreboard", 32))));
        assert!(samples.csv().contains("\nlines_two,src/two.rs,7,long_scoreboard,32\n"), "{}", samples.csv());
    }

    #[test]
    fn tables_show_the_share_of_a_line_and_what_it_waits_for() {
        let mut samples = Samples::of(sampled(), line);
        let place = Place { file: "src/two.rs", line: 3 };
        for line in samples.lines.iter_mut().filter(|line| line.kernel == "lines_two") {
            line.place = Some(place);
            line.text = if line.line == 9 { "store(out + i, x);" } else { "let x = load(x + i);" }.to_string();
        }
        samples.dropped = 2;
        let expected = "\
where programs were, by 115 samples (2 more were lost)
lines_two  src/two.rs:3: 110 samples
   %  samples  line                        waits for
54.5       60     9  store(out + i, x);    100 % a fixed latency
45.5       50     7  let x = load(x + i);  64 % global or local memory
lines_unknown: 5 samples
    %  samples  line                                                  waits for
100.0        5     ?  (the code does not say which lines it is from)  100 % a fixed latency
";
        assert_eq!(samples.to_string(), expected);
    }

    #[test]
    fn code_without_lines_is_not_code_that_nobody_has() {
        let mut sampled = Sampled::default();
        for entry in ["lines_lost", "lines_unknown"] {
            let at = Instruction { crc: 1, entry: entry.into(), pc: 0 };
            sampled.instructions.insert(at, BTreeMap::from([("wait".to_string(), 4)]));
        }
        let samples = Samples::of(sampled, line);
        let known: Vec<_> = samples.lines.iter().map(|at| (at.kernel.as_str(), at.line, at.is_code_known)).collect();
        assert_eq!(known, [("lines_lost", 0, false), ("lines_unknown", 0, true)]);
        let text = samples.to_string();
        let [lost, unknown] = ["was loaded before, and is not known", "does not say which"].map(|part| text.find(part));
        assert!(lost.is_some() && lost < unknown, "{text}");
    }

    #[test]
    fn that_there_are_no_samples_is_said() {
        assert!(Samples::default().to_string().starts_with("no samples were taken: "));
        let others = Samples { others: 7, ..Samples::default() };
        assert!(others.to_string().starts_with("no samples: all 7 were in code"), "{others}");
        let full = Samples { is_full: true, ..Samples::default() };
        assert_eq!(full.to_string(), format!("no samples: {FULL}\n"));
    }

    #[test]
    fn a_warp_that_goes_on_waits_for_nothing() {
        let mut sampled = Sampled::default();
        let at = Instruction { crc: 1, entry: "lines_free".into(), pc: 0 };
        sampled.instructions.insert(at, BTreeMap::from([("selected".to_string(), 4)]));
        assert_eq!(Samples::of(sampled, line).lines[0].main_stall(), None);
    }
}
