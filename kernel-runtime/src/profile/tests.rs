use super::lines::Origin;
use super::*;
use serde_json::Value;
use std::sync::Arc;

const PLACE: Place = Place { file: "src/add.rs", line: 7 };
const CODE: CodeRun = CodeRun { threads: 128, registers: 40, shared_bytes: 1024, local_bytes: 0 };

fn run(name: &str, stream: u32, start_ns: u64, end_ns: u64) -> KernelRun {
    let place = (name == "add").then_some(PLACE);
    KernelRun {
        name: name.into(),
        place,
        start_ns,
        end_ns,
        stream,
        grid: [8, 2, 1],
        code: place.map(|_| CODE),
        counters: vec![],
    }
}

/// Two streams; in the first a kernel begins before the one before it has ended.
fn sample() -> Profile {
    let kernels = vec![
        run("add", 7, 1000, 3000),
        run("other, \"kernel\"", 9, 1500, 5500),
        run("add", 7, 2500, 4000),
        run("add", 7, 9000, 9250),
    ];
    let ranges = vec![RangeRun { name: "step".into(), thread: 1, start_ns: 500, end_ns: 9500 }];
    let source = Source::Cupti { version: 26 };
    Profile { device: "cuda:0, GPU".into(), source, wall_ns: 10_000, kernels, ranges, counters: vec![], samples: None }
}

#[test]
fn kernels_are_summed_by_their_code() {
    let rows = sample().rows();
    let names: Vec<(&str, u64, u64)> =
        rows.iter().map(|row| (row.name.as_str(), row.total_ns(), row.median_ns())).collect();
    assert_eq!(names, [("other, \"kernel\"", 4000, 4000), ("add", 3750, 1500)]);
    assert_eq!((&rows[1].times_ns[..], rows[1].grid), (&[250, 1500, 2000][..], Some([8, 2, 1])));
    assert_eq!(sample().busy_ns(), 4500 + 250, "from 1000 to 5500 without a gap, then the last");
}

#[test]
fn tables_are_for_people() {
    let expected = "\
cuda:0, GPU: 0.010 ms, of which kernels ran 0.005 ms
times of kernels by CUPTI (API 26)
kernel             runs  total us     %  median us  least  most  grid  threads  regs  shared
other, \"kernel\"       1      4.00  51.6       4.00   4.00  4.00   8x2
add  src/add.rs:7     3      3.75  48.4       1.50   0.25  2.00   8x2      128    40    1024
";
    assert_eq!(sample().to_string(), expected);
    let mut spilled = sample();
    spilled.kernels.iter_mut().filter_map(|run| run.code.as_mut()).for_each(|code| code.local_bytes = 48);
    let text = spilled.to_string();
    assert!(text.contains("shared  spilled\n") && text.contains("   1024       48\n"), "{text}");
    let mut other = sample();
    other.kernels.retain(|run| run.code.is_none());
    other.kernels[0].grid = [1, 1, 3];
    other.source = Source::Events { why: "no CUPTI".into() };
    let text = other.to_string();
    assert!(text.contains("between events around launches") && text.contains("no CUPTI"), "{text}");
    assert!(text.contains("1x1x3") && !text.contains("threads"), "what is not known has no column: {text}");
}

#[test]
fn csv_has_a_line_for_each_run() {
    let csv = sample().csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[1], "add,src/add.rs,7,1.000,2.000,7,8,2,1,128,40,1024,0");
    assert_eq!(lines[2], "\"other, \"\"kernel\"\"\",,,1.500,4.000,9,8,2,1,,,,");
    assert!(lines.iter().all(|line| line.replace("other, ", "").matches(',').count() == 12), "{csv}");
}

#[test]
fn traces_are_what_viewers_read() {
    let trace: Value = serde_json::from_str(&sample().trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let complete: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(complete.len(), 5);
    let add = complete[0];
    assert_eq!((&add["name"], &add["args"]["file"]), (&"add".into(), &"src/add.rs".into()));
    assert_eq!(
        (add["args"]["line"].as_u64(), add["ts"].as_f64(), add["dur"].as_f64()),
        (Some(7), Some(1.0), Some(2.0))
    );
    // Kernels that overlap are in rows of their own: viewers nest what overlaps in a row.
    let row = |index: usize| complete[index]["tid"].as_u64().unwrap();
    assert!(row(0) != row(2) && row(0) == row(3) && row(1) != row(0) && row(1) != row(2));
    for event in events {
        let named = event["ph"] == "X" || event["args"]["name"].is_string();
        assert!(named && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
    }
    let names: Vec<&str> = events.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(names, ["cuda:0, GPU", "stream 7", "stream 7 (at the same time)", "stream 9", "host"]);
}

#[test]
fn the_cpu_is_called_what_it_is() {
    let ((), profile) = profile(&Device::cpu(), || Ok(())).unwrap();
    assert_eq!((profile.device.as_str(), profile.kernels.len()), ("cpu", 0));
    assert!(profile.to_string().starts_with("cpu: "), "{profile}");
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let error = sample().save_trace("/no/such/folder/trace.json").unwrap_err().to_string();
    assert!(error.contains("/no/such/folder/trace.json"), "{error}");
}

/// Code that was never loaded, of a variant.
struct Never(usize, CodeRun);

impl observed::Code for Never {
    fn run(&self) -> CodeRun {
        self.1
    }

    fn variant(&self) -> usize {
        self.0
    }

    fn load_again(&self, _: &Device) -> Result<()> {
        Ok(())
    }

    fn source_line(&self, file: &str, line: u32) -> Option<(&'static str, &'static str)> {
        (file == "/work/src/add.rs").then_some((PLACE.file, if line == 9 { "let sum = a + b;" } else { "" }))
    }
}

fn note(entry: &str, kernel: &'static str, place: Place, code: CodeRun) {
    note_variant(entry, kernel, place, (0, code));
}

fn note_variant(entry: &str, kernel: &'static str, place: Place, (variant, code): (usize, CodeRun)) {
    observed::note_loaded(entry, kernel, place, Arc::new(Never(variant, code)));
}

/// The name of an entry says which kernel it is, unless several kernels have it.
#[test]
fn entries_are_known_by_what_was_loaded() {
    let other = Place { line: 9, ..PLACE };
    note("tests_once", "once", PLACE, CODE);
    note("tests_once", "once", PLACE, CODE);
    note("tests_twice", "twice", PLACE, CODE);
    note("tests_twice", "twice", other, CODE);
    assert_eq!(observed::kernel_of("tests_once"), Some(("once", Some(PLACE))));
    assert_eq!(observed::kernel_of("tests_twice"), Some(("twice", None)));
    assert_eq!(observed::kernel_of("tests_never"), None);
}

/// What is launched is one of the variants that were loaded: nobody knows which.
#[test]
fn what_hardware_is_given_is_known_if_it_is_the_same_for_all_variants() {
    for variant in [1, 1, 2] {
        note_variant("tests_single", "single", PLACE, (variant, CODE));
    }
    assert_eq!(observed::code_of("tests_single").len(), 2, "a variant is known once");
    note("tests_double", "double", PLACE, CODE);
    note("tests_double", "double", PLACE, CodeRun { registers: 80, ..CODE });
    assert_eq!(observed::run_of("single", PLACE), Some(CODE));
    assert_eq!(observed::run_of("double", PLACE), None);
    assert_eq!(observed::run_of("none", PLACE), None);
}

/// Code gives files names that tools find; a profile has rustc's, and what stands in the line.
#[test]
fn lines_are_shown_as_the_source_has_them() {
    note("tests_sampled", "sampled", PLACE, CODE);
    let at = |pc| cupti::sampling::Instruction { crc: 1, entry: "tests_sampled".into(), pc };
    let stalls = || [("wait".to_string(), 3)].into_iter().collect();
    let sampled = cupti::sampling::Sampled {
        instructions: [(at(0), stalls()), (at(16), stalls())].into_iter().collect(),
        ..cupti::sampling::Sampled::default()
    };
    let line = |_, _: &str, pc| {
        if pc == 0 { Origin::Line("/work/src/add.rs".into(), 9) } else { Origin::Line("/other.rs".into(), 2) }
    };
    let samples = Samples::of(sampled, line);
    let found: Vec<_> = samples.lines.iter().map(|at| (at.file.as_str(), at.line, at.text.as_str())).collect();
    assert_eq!(found, [("/other.rs", 2, ""), ("src/add.rs", 9, "let sum = a + b;")]);
    assert!(samples.lines.iter().all(|at| at.kernel == "sampled" && at.place == Some(PLACE)));
    let mut profile = sample();
    profile.samples = Some(samples);
    let text = profile.to_string();
    assert!(text.contains("\nwhere programs were, by 6 samples\nsampled  src/add.rs:7: 6 samples\n"), "{text}");
    let trace: Value = serde_json::from_str(&profile.trace()).unwrap();
    let lines = trace["otherData"]["samples"].as_array().unwrap();
    assert_eq!((&lines[1]["line"], &lines[1]["stalls"]["wait"]), (&9.into(), &3.into()));
}

/// Two launches of one kernel with two counters, and one that was not counted.
fn counted() -> Profile {
    let mut profile = sample();
    profile.source = Source::Counters { version: 24, passes: 7 };
    profile.counters = ["fbpa__dram_read_bytes.sum", "other.sum"].map(String::from).to_vec();
    for (run, read) in profile.kernels.iter_mut().filter(|run| run.place.is_some()).zip([2e6, 4e6, 3e6]) {
        run.counters = vec![read, 7.0];
    }
    profile
}

#[test]
fn tables_show_medians_of_counters() {
    let text = counted().to_string();
    assert!(text.contains("counters by CUPTI (API 24): kernels ran alone, 7 times each"), "{text}");
    let expected = "
kernel             read MB  other.sum
other, \"kernel\"
add  src/add.rs:7     3.00          7
";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn counters_are_in_lines_of_csv_and_in_traces() {
    let csv = counted().csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",local_bytes,fbpa__dram_read_bytes.sum,other.sum"), "{csv}");
    assert!(lines[1].ends_with(",1024,0,2000000,7") && lines[2].ends_with(",,,,,,"), "{csv}");
    let trace: Value = serde_json::from_str(&counted().trace()).unwrap();
    let add = trace["traceEvents"].as_array().unwrap().iter().find(|event| event["name"] == "add").unwrap();
    assert_eq!(add["args"]["fbpa__dram_read_bytes.sum"].as_f64(), Some(2e6));
}

/// Nothing runs where nothing can be counted or sampled, and the next profile can be made.
#[test]
fn what_cannot_be_counted_is_an_error() {
    let device = Device::cpu();
    let never = || -> Result<()> { panic!("nothing runs") };
    let error = counters(&device, COUNTERS, never).unwrap_err().to_string();
    assert!(error.contains("a profile with counters") && error.contains("interpreter"), "{error}");
    let error = samples(&device, never).unwrap_err().to_string();
    assert!(error.contains("a profile with samples") && error.contains("interpreter"), "{error}");
}
