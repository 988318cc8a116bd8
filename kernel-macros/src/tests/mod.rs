//! Tests of the front end on source text: the IR of each construct, and the message for each mistake.
//!
//! Cases are data, in `tests/lowering` and `tests/messages`; `TILEWRIGHT_BLESS=1` writes their results anew.

mod cases;
mod conditions;
mod documentation;
mod hostile;
mod launchers;
mod limits;
mod lints;
mod names;
mod places;
mod programs;
mod sites;
mod speed;
mod spellings;
mod support;
