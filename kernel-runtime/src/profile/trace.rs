//! A profile as a trace, in the format of Chrome's viewer, which Perfetto opens too.

use super::{KernelRun, LineSamples, Profile, RangeRun, Source};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that stands for the host, and that for the device.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// A number of this thread, from 1.
pub(super) fn thread_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    }
    NUMBER.with(|number| *number)
}

/// Rows of the viewer: streams, of which kernels that overlap have several.
#[derive(Default)]
struct Lanes {
    /// Per stream, the ends of the last kernels of its rows.
    ends: BTreeMap<u32, Vec<u64>>,
    /// The number of each row.
    numbers: BTreeMap<(u32, usize), u64>,
}

impl Lanes {
    /// The row for a kernel: the first of its stream where nothing runs any more. Viewers nest what overlaps in a row.
    fn row(&mut self, run: &KernelRun) -> u64 {
        let ends = self.ends.entry(run.stream).or_default();
        let free = ends.iter().position(|end| *end <= run.start_ns);
        let lane = free.unwrap_or(ends.len());
        match free {
            Some(lane) => ends[lane] = run.end_ns,
            None => ends.push(run.end_ns),
        }
        let next = self.numbers.len() as u64 + 1;
        *self.numbers.entry((run.stream, lane)).or_insert(next)
    }
}

impl Profile {
    /// The profile as JSON, for [Perfetto](https://ui.perfetto.dev) or `chrome://tracing`: a row for each stream with its
    /// kernels, of which each says where it stands in the source and what was counted, and one for each thread with its
    /// ranges. Samples are in `otherData`, which viewers show as information about the trace.
    pub fn trace(&self) -> String {
        let mut lanes = Lanes::default();
        let event = |run| self.kernel_event(run, lanes.row(run));
        let mut events: Vec<Value> = self.kernels.iter().map(event).collect();
        events.extend(self.ranges.iter().map(range_event));
        events.push(name_event("process_name", DEVICE, 0, &self.device));
        for (&(stream, lane), &row) in &lanes.numbers {
            let more = if lane > 0 { " (at the same time)" } else { "" };
            events.push(name_event("thread_name", DEVICE, row, &format!("stream {stream}{more}")));
        }
        events.push(name_event("process_name", HOST, 0, "host"));
        let source = match &self.source {
            Source::Cupti { .. } => "cupti",
            Source::Events { .. } => "events",
            Source::Counters { .. } => "counters",
            Source::Clock => "clock",
        };
        let mut other = json!({ "device": self.device, "times": source });
        if let Some(samples) = &self.samples {
            other["samples"] = samples.lines.iter().map(line_value).collect();
        }
        let trace = json!({ "traceEvents": events, "displayTimeUnit": "ns", "otherData": other });
        trace.to_string()
    }

    fn kernel_event(&self, run: &KernelRun, row: u64) -> Value {
        let mut args = Map::new();
        if let Some(place) = run.place {
            args.insert("file".into(), place.file.into());
            args.insert("line".into(), place.line.into());
        }
        args.insert("grid".into(), json!(run.grid));
        if let Some(code) = run.code {
            args.insert("threads".into(), code.threads.into());
            args.insert("registers".into(), code.registers.into());
            args.insert("shared bytes".into(), code.shared_bytes.into());
            args.insert("local bytes".into(), code.local_bytes.into());
        }
        args.extend(self.counters.iter().cloned().zip(run.counters.iter().map(|value| json!(value))));
        json!({
            "name": run.name, "cat": "kernel", "ph": "X", "pid": DEVICE, "tid": row,
            "ts": us(run.start_ns), "dur": us(run.ns()), "args": args,
        })
    }
}

fn line_value(line: &LineSamples) -> Value {
    let stalls: Map<String, Value> = line.stalls.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
    json!({
        "kernel": line.kernel, "file": line.file, "line": line.line, "text": line.text,
        "samples": line.samples, "stalls": stalls,
    })
}

/// Microseconds, which is what the format counts in.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn range_event(range: &RangeRun) -> Value {
    json!({
        "name": range.name, "cat": "range", "ph": "X", "pid": HOST, "tid": range.thread,
        "ts": us(range.start_ns), "dur": us(range.end_ns.saturating_sub(range.start_ns)),
    })
}

fn name_event(what: &str, process: u32, row: u64, name: &str) -> Value {
    json!({ "name": what, "ph": "M", "pid": process, "tid": row, "args": { "name": name } })
}
