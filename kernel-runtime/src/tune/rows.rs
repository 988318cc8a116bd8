//! What a table says of where to begin: its own row, which is replaced only by what beats it, and rows of near sizes and of
//! other devices, which are likely to be good here too.

use super::log::Subject;
use super::table::{Row, Table, bucket};
use crate::launch::{Config, Constexprs};

/// Rows of other sizes or devices that are tried first.
const NEAR: usize = 4;

/// What a table has for a search.
#[derive(Debug)]
pub(super) struct Rows<C> {
    /// The row that the winner would replace.
    pub(super) own: Option<Config<C>>,
    /// Others, the nearest first.
    pub(super) near: Vec<Config<C>>,
    /// Why the row that the winner replaces says nothing.
    pub(super) warning: Option<String>,
}

impl<C: Constexprs> Rows<C> {
    /// Those of a table. Rows of other kernels, or that no longer fit this one, say nothing.
    pub(super) fn of(table: &Table, subject: &Subject) -> Rows<C> {
        let subject = Subject { sizes: bucket(&subject.sizes), ..subject.clone() };
        let (mut rows, mut near) = (Rows { own: None, near: Vec::new(), warning: None }, Vec::new());
        for row in table.rows(&subject.kernel) {
            let Row { device, dtype, sizes, .. } = row.clone();
            let of = Subject { device, dtype, sizes: bucket(&sizes), ..subject.clone() };
            let Some(distance) = subject.distance(&of) else { continue };
            match row.to_config(&subject.kernel) {
                Ok(config) if of == subject => rows.own = Some(config),
                Ok(config) => near.push((distance, config)),
                Err(error) if of == subject => rows.warning = Some(error.to_string()),
                Err(_) => {}
            }
        }
        // Of equally near ones, in the order of the table.
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, config) in near {
            if rows.near.len() < NEAR && !rows.near.contains(&config) {
                rows.near.push(config);
            }
        }
        rows
    }
}
