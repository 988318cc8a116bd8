//! Many processes read and fill one cache at the same time, and are killed at random times.
//!
//! ```text
//! cargo run --release -p tilewright-archive --example storm -- 200 60
//! ```
//!
//! runs 200 processes at a time for 60 seconds, and says what was found. A process that reads an entry which is not what
//! was written under its key ends with an error; so does the storm if in the end a file is damaged, or the folder is too
//! large, or cannot be used. `results/storm.txt` is what a run found.

mod weather;

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, folder, seed] = arguments.as_slice()
        && role == "child"
    {
        return weather::child(folder.as_ref(), seed.parse().unwrap_or(0));
    }
    let number = |index: usize, usual| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let folder = std::env::temp_dir().join(format!("tilewright-storm-{}", std::process::id()));
    let storm = weather::Storm { processes: number(0, 200) as usize, time: Duration::from_secs(number(1, 60)) };
    let child = |seed: u64| {
        let program = std::env::current_exe().expect("a program has a path");
        let mut command = std::process::Command::new(program);
        command.args(["child".as_ref(), folder.as_os_str(), seed.to_string().as_ref()]);
        command
    };
    let outcome = weather::storm(&storm, &folder, &child);
    println!("{outcome}");
    let _ = std::fs::remove_dir_all(&folder);
    if outcome.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
