//! What is shown of an archive that was just built.

use tilewright::archive::ArchiveBuilder;
use tilewright::launch::AssumedScalar;
use tilewright::prelude::*;
use tilewright_inspect::stages::Stages;
use tilewright_inspect::{InspectError, page, read, terminal, variant};

/// out[i] = x[i] + y[i]
#[kernel]
fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);
    store(out + offsets, sum, mask = mask);
}

/// An archive of two variants that launches meet the conditions of, and two that check everything.
fn archive(name: &str) -> std::path::PathBuf {
    let mut archive = ArchiveBuilder::new();
    let unknown = AddAssumed { n: AssumedScalar::Unknown, ..Default::default() };
    archive.add(AddConsts { BLOCK: 1024 }.request::<f32>(), &[Target::sm_90a()]).expect("compiled");
    archive.add(AddConsts { BLOCK: 1024 }.request::<f32>().assume(unknown), &[Target::sm_90a()]).expect("compiled");
    let path = std::env::temp_dir().join(format!("tilewright-inspect-{name}-{}.twa", std::process::id()));
    archive.write(&path).expect("written");
    path
}

#[test]
fn variants_are_listed_shown_and_compared() -> Result<(), InspectError> {
    let path = archive("all");
    let entries = read(&path)?;
    let _ = std::fs::remove_file(&path);
    let list = terminal::list(&entries);
    assert!(list.contains("3  add<f32>(1024) for sm_90a: [f32 @16, f32 @16, mut f32 @16, i32 %16]\n"), "{list}");
    assert!(list.contains("4  add<f32>(1024)") && list.contains("4 variants; made by "), "{list}");

    let first = variant(&entries, "3")?;
    let summary = terminal::summary(first);
    for expected in
        ["key ", "launches must meet: ", "kernel add for sm_90a: 4 warps", "load `x`: 2 x 16 bytes per thread"]
    {
        assert!(summary.contains(expected), "{expected}\n{summary}");
    }
    let stages = Stages::of(first);
    assert_eq!(stages.note, None, "the same compiler gives the same PTX");
    for (stage, expected) in
        [("bound", "safe bound {"), ("membar", "placed {"), ("llvm", "define "), ("ptx", ".visible .entry add(")]
    {
        let text = terminal::stage(first, stage)?;
        assert!(text.contains(expected), "{stage}\n{text}");
    }
    let passes = terminal::stage(first, "passes")?;
    assert!(passes.contains("== place\n") && !passes.contains("== membar\n"), "{passes}");

    let other = entries.iter().find(|other| terminal::compare(first, other, "ptx").is_ok_and(|it| it.contains("+ ")));
    let other = other.expect("another variant has other code");
    let difference = terminal::compare(first, other, "ptx")?;
    assert!(difference.starts_with("--- add<f32>(1024)") && difference.contains("\n- "), "{difference}");
    assert!(terminal::compare(first, first, "ptx")?.contains("no difference"));

    assert!(
        variant(&entries, "5")
            .is_err_and(|error| error.to_string() == "there is no variant 5: the archive has 4, from 1")
    );
    assert!(variant(&entries, "0").is_err() && variant(&entries, "x").is_err());
    assert!(terminal::stage(first, "sass").is_err_and(|error| error.to_string().contains("there are bound, promises")));
    Ok(())
}

#[test]
fn a_page_has_everything_and_needs_nothing() -> Result<(), InspectError> {
    let path = archive("page");
    let entries = read(&path)?;
    let _ = std::fs::remove_file(&path);
    let html = page::page("a <b> & c", &entries);
    assert!(html.contains("<title>a &lt;b&gt; &amp; c</title>"));
    for (open, close) in
        [("<section", "</section>"), ("<details", "</details>"), ("<pre", "</pre>"), ("<span", "</span>")]
    {
        assert_eq!(html.matches(open).count(), html.matches(close).count(), "{open}");
    }
    assert_eq!(html.matches("<section").count(), 4);
    assert!(
        html.contains(".visible .entry add(") && html.contains("define ") && html.contains("What each pass changes")
    );
    assert!(!html.contains("http") && !html.contains("<script"), "it loads nothing");
    Ok(())
}

#[test]
fn what_is_no_archive_is_an_error() {
    let error = read("/nowhere.twa".as_ref()).expect_err("no file").to_string();
    assert!(error.starts_with("/nowhere.twa: "), "{error}");
    let error = read(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").as_ref()).expect_err("no archive").to_string();
    assert!(error.ends_with("this is no archive of compiled kernels"), "{error}");
}
