//! The library's own table: what was measured, for devices that it was measured on.

use super::Table;
use super::rows::Rows;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use tilewright::Result;

/// Written by `cargo bench -p tilewright-bench --bench kernels -- --tune`.
const TEXT: &str = include_str!("../../tuned/kernels.toml");

/// The table, and its rows by device.
static OWN: LazyLock<Result<HashMap<String, Arc<Rows>>>> = LazyLock::new(|| {
    let table = own_table()?;
    let devices = table.as_tune().devices();
    Ok(devices.into_iter().map(|device| (device.to_string(), table.rows_of(device))).collect())
});

/// The library's own table, which a context asks before rules: `tuned/kernels.toml` of its sources.
///
/// # Errors
///
/// [`tilewright::Error::Tuning`] if the text is wrong, which a test of the library excludes.
pub fn own_table() -> Result<Table> {
    Table::parse(TEXT)
}

/// What the library's own table says of a device, if it says anything.
pub(crate) fn of_device(device: &str) -> Result<Option<Arc<Rows>>> {
    OWN.as_ref().map(|devices| devices.get(device).cloned()).map_err(Clone::clone)
}
