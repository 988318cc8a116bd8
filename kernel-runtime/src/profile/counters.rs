//! Counters by name, and how tables show them.

/// What [`counters`](super::counters()) counts usually: bytes of the memory of the GPU, how busy memory, multiprocessors
/// and matrix units were, how much of what was asked for lay in the second-level cache, how many warps there were of those
/// that fit, bytes of spilled registers, and conflicts of banks of shared memory.
///
/// Names are those of Nsight Compute, which `ncu --query-metrics` lists.
pub const COUNTERS: &[&str] = &[
    "fbpa__dram_read_bytes.sum",
    "fbpa__dram_write_bytes.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
];

/// How long a kernel ran, in nanoseconds: what is always counted, first.
const TIME: &str = "gpu__time_duration.sum";

/// The names with that of the time before them.
pub(super) fn with_time<'n>(names: &[&'n str]) -> Vec<&'n str> {
    std::iter::once(TIME).chain(names.iter().copied()).collect()
}

/// How a table shows a number.
#[derive(Clone, Copy)]
enum Unit {
    /// In megabytes.
    Bytes,
    Percent,
    Count,
    /// In megabytes, and nothing for none.
    Spilled,
}

/// What tables call the counters of [`COUNTERS`].
const TITLES: [(&str, Unit); 10] = [
    ("read MB", Unit::Bytes),
    ("written MB", Unit::Bytes),
    ("memory %", Unit::Percent),
    ("L2 hits %", Unit::Percent),
    ("SM %", Unit::Percent),
    ("tensor %", Unit::Percent),
    ("warps %", Unit::Percent),
    ("spills read MB", Unit::Spilled),
    ("spills written MB", Unit::Spilled),
    ("bank conflicts", Unit::Count),
];

fn known(name: &str) -> Option<(&'static str, Unit)> {
    COUNTERS.iter().position(|known| *known == name).map(|index| TITLES[index])
}

/// What a table calls a counter.
pub(super) fn title(name: &str) -> String {
    known(name).map_or_else(|| name.to_string(), |(title, _)| title.to_string())
}

/// A number of a counter in a table.
pub(super) fn shown(name: &str, value: f64) -> String {
    match known(name).map(|(_, unit)| unit) {
        _ if !value.is_finite() => "?".to_string(),
        Some(Unit::Spilled) if value == 0.0 => String::new(),
        Some(Unit::Bytes | Unit::Spilled) => format!("{:.2}", value / 1e6),
        Some(Unit::Percent) => format!("{value:.1}"),
        Some(Unit::Count) => format!("{value:.0}"),
        None if value.fract() == 0.0 => format!("{value:.0}"),
        None => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_in_units_of_people() {
        assert_eq!(
            (title(COUNTERS[0]), shown(COUNTERS[0], 134_217_728.0)),
            ("read MB".to_string(), "134.22".to_string())
        );
        assert_eq!((shown(COUNTERS[4], 33.333), shown(COUNTERS[7], 0.0)), ("33.3".to_string(), String::new()));
        assert_eq!(
            (title("a.sum"), shown("a.sum", 12.0), shown("a.avg", 0.5)),
            ("a.sum".into(), "12".into(), "0.500".into())
        );
        assert_eq!(shown("a.sum", f64::NAN), "?", "what the hardware does not say");
        assert_eq!(with_time(&["a"]), [TIME, "a"]);
    }
}
