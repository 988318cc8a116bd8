//! What a person sees while a kernel is tuned.

use std::fmt::Debug;
use std::time::Duration;

/// How far tuning has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// What is tuned.
    pub name: String,
    /// Configurations that are left after pruning.
    pub kept: usize,
    /// Those that were pruned.
    pub pruned: usize,
    /// Those that were tried.
    pub tried: usize,
    /// Those of them that do not work.
    pub failed: usize,
    /// The best so far, with its time in milliseconds.
    pub best: Option<(String, f64)>,
    /// The least time that the work can take, in milliseconds.
    pub bound: Option<f64>,
    /// How long it has taken.
    pub elapsed: Duration,
    /// How long it may still take; `None` without a budget.
    pub left: Option<Duration>,
}

impl Progress {
    /// One line: `persistent: 31 of 412 (380 pruned, 2 failed), best 0.412 ms (78 % of the bound): BM = 128, .., 41 s left`.
    pub fn line(&self) -> String {
        let Progress { name, kept, pruned, tried, failed, .. } = self;
        let mut line = format!("{name}: {tried} of {kept} ({pruned} pruned, {failed} failed)");
        if let Some((config, ms)) = &self.best {
            let share =
                self.bound.map_or_else(String::new, |bound| format!(" ({:.0} % of the bound)", bound / ms * 100.0));
            line += &format!(", best {ms:.4} ms{share}: {config}");
        }
        if let Some(left) = self.left {
            line += &format!(", {:.0} s left", left.as_secs_f64());
        }
        line
    }
}

/// Who is told how tuning goes.
pub trait Observe: Debug {
    /// After pruning, and after each trial.
    fn progress(&mut self, progress: &Progress);

    /// At the end.
    fn finished(&mut self, progress: &Progress) {
        self.progress(progress);
    }
}

/// Nobody is told.
#[derive(Debug, Default)]
pub struct Silent;

impl Observe for Silent {
    fn progress(&mut self, _: &Progress) {}
}

/// A bar on the terminal; nothing where standard error is no terminal.
#[cfg(feature = "tune")]
#[derive(Debug, Default)]
pub struct Bar(Option<indicatif::ProgressBar>);

#[cfg(feature = "tune")]
impl Observe for Bar {
    fn progress(&mut self, progress: &Progress) {
        let bar = self.0.get_or_insert_with(|| {
            let style = indicatif::ProgressStyle::with_template("{bar:24} {msg}");
            let bar = indicatif::ProgressBar::new(0);
            style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
        });
        bar.set_length(progress.kept as u64);
        bar.set_position(progress.tried as u64);
        bar.set_message(progress.line());
    }

    fn finished(&mut self, progress: &Progress) {
        self.progress(progress);
        if let Some(bar) = self.0.take() {
            bar.abandon();
        }
    }
}
