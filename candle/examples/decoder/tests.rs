//! The decoder on the CPU.

use crate::arguments::Arguments;
use crate::measure::{MOST, compare};
use crate::ops::Op;
use crate::plot;

#[test]
fn ops_that_are_exchanged_give_the_same_logits() {
    check("decoder --device cpu --prompt 12 --tokens 5");
    check("decoder --device cpu --batch 3 --prompt 5 --tokens 3");
}

fn check(line: &str) {
    let arguments = Arguments::from(line.split_whitespace()).unwrap();
    let rows = compare(&arguments, |_| ()).unwrap();
    assert_eq!(rows.len(), 1 + Op::ALL.len());
    for row in &rows {
        // Errors are there, as f32 is not f64, and they are those of roundings: logits are near 1.
        assert!(row.error > 0.0 && row.error < 1e-4, "{}: {}", row.label, row.error);
        assert!(row.error <= MOST * rows[0].error, "{}: {}", row.label, row.error);
    }
    let file = std::env::temp_dir().join(format!("tilewright-decoder-{}.svg", std::process::id()));
    plot::draw(&rows, &file).unwrap();
    let drawn = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("rotary and cache"));
}

#[test]
fn shapes_have_as_many_weights_as_their_names_say() {
    assert_eq!(crate::model::Shape::one_billion().weights(), 1_235_814_400);
    assert_eq!(crate::model::Shape::eight_billion().weights(), 8_030_261_248 - 4096 * 128_256);
}
