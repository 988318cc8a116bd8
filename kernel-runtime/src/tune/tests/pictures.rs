//! What outcomes look like.

use super::*;
use crate::bench::Roofline;

/// Of so many trials every tenth fails.
const TRIALS: usize = 30;

fn outcome() -> Outcome<Tiles> {
    let settings = Settings { trials: TRIALS, exhaustive: 0, ..Settings::default() };
    let mut count = 0;
    // A check and a run are a trial here: what is far slower than the first runs once.
    let cost = move |config: &Config<Tiles>| {
        count += 1;
        if config.bn == 384 {
            Err(wrong("always"))
        } else {
            Ok(1.0 + config.bm as f64 / 256.0 + f64::from(count) * 1e-6)
        }
    };
    run(&tiles(), &settings, cost).unwrap()
}

#[test]
fn an_outcome_is_drawn() {
    let path = std::env::temp_dir().join(format!("tilewright-drawn-{}.svg", std::process::id()));
    let outcome = outcome();
    let drawn = |draw: &dyn Fn()| {
        draw();
        let text = std::fs::read_to_string(&path).unwrap();
        let _ = std::fs::remove_file(&path);
        text
    };
    let works = outcome.tried.iter().filter(|tried| tried.result.is_ok()).count();
    assert!(works > TRIALS / 2, "{works}");
    let search = drawn(&|| outcome.draw_search(&path).unwrap());
    let axis = drawn(&|| outcome.draw_axis("BM", &path).unwrap());
    let roof = Roofline::new(1e15, 3e12);
    let roofline = drawn(&|| outcome.draw_roofline(roof, 1e12, 1e9, &path).unwrap());
    for (text, across) in [(&search, "seconds"), (&axis, "BM"), (&roofline, "operations per byte")] {
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        assert!(text.contains(across) && text.contains("<polyline"), "{text}");
        // A circle for each trial that worked, and those of the line.
        assert!(text.matches("<circle").count() >= works, "{across}: {text}");
    }
    let error = outcome.draw_axis("BX", &path).unwrap_err().to_string();
    assert!(error.contains("there is no axis `BX`"), "{error}");
    let error = outcome.draw_search("/nowhere/search.svg").unwrap_err().to_string();
    assert!(error.contains("/nowhere/search.svg cannot be drawn"), "{error}");
}

#[test]
fn a_chart_has_a_bar_for_each_value_that_worked() {
    let chart = outcome().chart();
    assert!(chart.contains("BM\n") && chart.contains("      32 ########################################"), "{chart}");
    assert!(!chart.contains("     384 "), "{chart}");
}
