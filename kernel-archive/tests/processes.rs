//! A cache that several processes use, some of which are killed: the example `storm`, for a second.

#[path = "../examples/storm/weather.rs"]
mod weather;

use std::process::{Command, ExitCode};
use std::time::Duration;

/// Tells a process of this test what it is.
const ROLE: &str = "TILEWRIGHT_STORM";

#[test]
fn processes_share_a_cache_and_may_be_killed() {
    let folder = std::env::temp_dir().join(format!("tilewright-processes-{}", std::process::id()));
    let child = |seed: u64| {
        let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
        let role = format!("{seed} {}", folder.display());
        command.args(["--exact", "a_process_of_the_storm", "--nocapture"]).env(ROLE, role);
        command
    };
    let outcome = weather::storm(&weather::Storm { processes: 12, time: Duration::from_secs(1) }, &folder, &child);
    let _ = std::fs::remove_dir_all(&folder);
    assert!(outcome.is_clean(), "{outcome}");
}

/// Does nothing, unless it is one of the processes of the test above.
#[test]
fn a_process_of_the_storm() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (seed, folder) = role.split_once(' ').expect("a seed and a folder");
    let code = weather::child(folder.as_ref(), seed.parse().expect("a number"));
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
}
