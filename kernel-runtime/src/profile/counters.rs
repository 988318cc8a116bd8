//! Counters by name, and how tables show them.

/// A counter that is known here.
struct Known {
    name: &'static str,
    /// What tables call it.
    title: &'static str,
    unit: Unit,
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

const KNOWN: [Known; 10] = [
    Known { name: "fbpa__dram_read_bytes.sum", title: "read MB", unit: Unit::Bytes },
    Known { name: "fbpa__dram_write_bytes.sum", title: "written MB", unit: Unit::Bytes },
    Known { name: "dram__throughput.avg.pct_of_peak_sustained_elapsed", title: "memory %", unit: Unit::Percent },
    Known { name: "lts__t_sector_hit_rate.pct", title: "L2 hits %", unit: Unit::Percent },
    Known { name: "sm__throughput.avg.pct_of_peak_sustained_elapsed", title: "SM %", unit: Unit::Percent },
    Known {
        name: "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        title: "tensor %",
        unit: Unit::Percent,
    },
    Known { name: "sm__warps_active.avg.pct_of_peak_sustained_active", title: "warps %", unit: Unit::Percent },
    Known { name: "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum", title: "spills read MB", unit: Unit::Spilled },
    Known { name: "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum", title: "spills written MB", unit: Unit::Spilled },
    Known { name: "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", title: "bank conflicts", unit: Unit::Count },
];

/// What [`counters`](super::counters()) counts usually: bytes of the memory of the GPU, how busy memory, multiprocessors
/// and matrix units were, how much of what was asked for lay in the second-level cache, how many warps there were of those
/// that fit, bytes of spilled registers, and conflicts of banks of shared memory.
///
/// Names are those of Nsight Compute, which `ncu --query-metrics` lists.
pub const COUNTERS: &[&str] = &NAMES;

const NAMES: [&str; KNOWN.len()] = {
    let mut names = [""; KNOWN.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = KNOWN[index].name;
        index += 1;
    }
    names
};

/// How long a kernel ran, in nanoseconds: what is always counted, first.
const TIME: &str = "gpu__time_duration.sum";

/// The names with that of the time before them, and nowhere else.
pub(super) fn with_time<'n>(names: &[&'n str]) -> Vec<&'n str> {
    std::iter::once(TIME).chain(names.iter().copied().filter(|name| *name != TIME)).collect()
}

/// Where the names have that of the time.
pub(super) fn places_of_time(names: &[&str]) -> Vec<usize> {
    (0..names.len()).filter(|place| names[*place] == TIME).collect()
}

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// What a table calls a counter.
pub(super) fn title(name: &str) -> String {
    known(name).map_or(name, |known| known.title).to_string()
}

/// A number of a counter in a table.
pub(super) fn shown(name: &str, value: f64) -> String {
    match known(name).map(|known| known.unit) {
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
        assert_eq!((with_time(&["a", TIME]), places_of_time(&["a", TIME])), (vec![TIME, "a"], vec![1]));
    }
}
