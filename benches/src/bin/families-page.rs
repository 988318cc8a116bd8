//! Makes the page of the library's families, and a picture of all rows that were measured.
//!
//! ```text
//! cargo run --release -p tilewright-bench --bin families-page
//! ```
//! Reads `results/kernels.csv` and, if they are there, `results/kernels_peers.csv` (PyTorch's functions) and the results of
//! the other benches; writes `results/kernels.md` and `results/ratios.svg`.

use tilewright_bench::families::{page, ratios};
use tilewright_bench::{Failure, record, report};

fn main() -> Result<(), Failure> {
    let folder = report::folder();
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).map_err(|e| format!("{name}: {e}"))?;
        Ok::<_, Failure>(record::parse(&text))
    };
    let (mut notes, mut records) = read("kernels.csv")?;
    if let Ok((more, peers)) = read("kernels_peers.csv") {
        notes.extend(more);
        records.extend(peers);
    }
    std::fs::write(folder.join("kernels.md"), page::page(&notes, &records))?;
    let groups = ratios::all(&folder, &records);
    ratios::draw(&groups, &folder.join("ratios.svg"))?;
    let dots: usize = groups.iter().map(|group| group.dots.len()).sum();
    println!("{} records, {dots} ratios of {} works in the picture", records.len(), groups.len());
    Ok(())
}
