//! What `ARCHITECTURE.md` says of the sources as a whole.

mod invariants;
mod sources;
