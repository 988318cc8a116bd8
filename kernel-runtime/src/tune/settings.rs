//! What a search may take, and when it ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Limits of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Spaces of up to so many configurations are tried as a whole.
    pub exhaustive: usize,
    /// How long it may take, the final included. However short it is, one configuration is tried, and the finalists run
    /// against each other as often as it takes to beat the one to start at: 9 times for 8 of them.
    pub budget: Option<Duration>,
    /// The most trials.
    pub trials: usize,
    /// After how many trials without an improvement by half a percent the search ends.
    pub patience: usize,
    /// How many of the best run against each other at the end.
    pub finalists: usize,
    /// Configurations that are made ready while others are measured.
    pub ahead: usize,
    /// Where chance begins.
    pub seed: u64,
    /// The least time that the work can take, in milliseconds: a search that comes within 2 % ends.
    pub bound: Option<f64>,
    /// The file of all trials.
    pub log: Option<PathBuf>,
    /// Ends the search from elsewhere.
    pub stop: Stop,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            exhaustive: 64,
            budget: Some(Duration::from_secs(60)),
            trials: usize::MAX,
            patience: 96,
            finalists: 8,
            ahead: std::thread::available_parallelism().map_or(1, usize::from),
            seed: 0,
            bound: None,
            log: None,
            stop: Stop::default(),
        }
    }
}

/// Ends a search from another thread, or from a handler of signals: the best so far wins, if it does against the
/// configuration to start at, in 4 runs of each. Asked in the final, that ends with its round, and the configuration to start
/// at stays unless it is beaten already.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the search to end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
