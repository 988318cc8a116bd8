//! What is shown of an archive that was just built.

mod common;

use common::{entries, tools};
use tilewright_inspect::machine::Tools;
use tilewright_inspect::panes::Look;
use tilewright_inspect::source::Roots;
use tilewright_inspect::stages::Stages;
use tilewright_inspect::{InspectError, page, read, terminal, variant};

/// The programs of somebody who has none.
fn no_tools() -> Tools {
    Tools { ptxas: Err("no ptxas here".to_string()), nvdisasm: Err("no nvdisasm here".to_string()) }
}

/// Where the tests' own source is.
fn roots() -> Roots {
    Roots::new(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent())
}

#[test]
fn variants_are_listed_shown_and_compared() -> Result<(), InspectError> {
    let entries = entries();
    let list = terminal::list(&entries);
    assert!(list.contains("3  add<f32>(1024) for sm_90a: [f32 @16, f32 @16, mut f32 @16, i32 %16]\n"), "{list}");
    assert!(list.contains("4  add<f32>(1024)") && list.contains(" variants; made by "), "{list}");

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
        let text = terminal::stage(first, stage, &no_tools(), &roots())?;
        assert!(text.contains(expected), "{stage}\n{text}");
    }
    let passes = terminal::stage(first, "passes", &no_tools(), &roots())?;
    assert!(passes.contains("== place\n") && !passes.contains("== membar\n"), "{passes}");

    let compare = |other| terminal::compare((first, other), "ptx", &no_tools(), &roots());
    let other = entries.iter().find(|other| compare(other).is_ok_and(|it| it.contains("+ ")));
    let difference = compare(other.expect("another variant has other code"))?;
    assert!(difference.starts_with("--- add<f32>(1024)") && difference.contains("\n- "), "{difference}");
    assert!(compare(first)?.contains("no difference"));

    assert!(
        variant(&entries, "99")
            .is_err_and(|error| error.to_string().starts_with("there is no variant 99: the archive has "))
    );
    assert!(variant(&entries, "0").is_err() && variant(&entries, "x").is_err());
    for nothing in ["sas", "line:", "line:x", "line:1:2:3"] {
        let error = terminal::stage(first, nothing, &no_tools(), &roots()).expect_err(nothing).to_string();
        assert!(error.contains("there are bound, promises") && error.contains("sass"), "{error}");
    }
    let error = terminal::stage(first, "line:1", &no_tools(), &roots()).expect_err("no code").to_string();
    assert!(error.contains("nothing is from line 1 "), "{error}");
    Ok(())
}

#[test]
fn a_page_has_everything_and_needs_nothing() -> Result<(), InspectError> {
    let entries = entries();
    let html = page::page("a <b> & c", &entries, &no_tools(), &Roots::none());
    assert!(html.contains("<title>a &lt;b&gt; &amp; c</title>"));
    for (open, close) in [
        ("<table", "</table>"),
        ("<details", "</details>"),
        ("<pre", "</pre>"),
        ("<span", "</span>"),
        ("<div", "</div>"),
    ] {
        assert_eq!(html.matches(open).count(), html.matches(close).count(), "{open}");
    }
    assert_eq!(html.matches("<details class=\"variant\"").count(), entries.len());
    assert!(
        html.contains(".visible .entry add(") && html.contains("define ") && html.contains("What each pass changes")
    );
    for outside in ["http", "src=", "<link", "url(", "@import", "import ", "fetch("] {
        assert!(!html.contains(outside), "it loads nothing: {outside}");
    }
    // Without NVIDIA's programs, and without the source, it says so and shows the rest.
    let notes = html.matches("machine code is not shown: no ptxas here").count();
    assert_eq!(notes, entries.len());
    assert!(html.contains("common/mod.rs is not found from here") && html.contains("data-stage=\"placed\""));
    assert!(!html.contains("data-stage=\"sass\"") && !html.contains("data-stage=\"source\""));
    Ok(())
}

/// The number of the first variant of a kernel, and the variant.
fn of_kernel<'e>(entries: &'e [kernel_archive::Entry], name: &str) -> &'e kernel_archive::Entry {
    entries.iter().find(|entry| entry.head.identity.kernel == name).expect("it is there")
}

#[test]
fn every_stage_knows_the_lines_that_it_is_from() -> Result<(), InspectError> {
    let entries = entries();
    let text = include_str!("common/mod.rs");
    let line_of = |wanted: &str| text.lines().position(|line| line.contains(wanted)).expect(wanted) as u32 + 1;
    let look = Look::at(of_kernel(&entries, "normalise"), &no_tools(), &roots());
    assert!(look.pane("sass").is_none() && look.report.as_ref().is_some_and(|report| report.usage.is_none()));
    // The function's line is there, and the line that calls it has what was inlined too.
    let (function, call) = (line_of("let product = x * x"), line_of("let norm = sqrt"));
    for name in ["bound", "placed", "llvm", "ptx"] {
        let pane = look.pane(name).expect(name);
        let from = |line: u32| pane.lines.iter().filter(|one| one.places.iter().any(|at| at.line == line)).count();
        let own = pane.lines.iter().filter(|one| one.places.first().is_some_and(|at| at.line == function));
        assert!(own.clone().count() > 0, "{name}: {}", look.counts());
        assert!(own.clone().all(|one| one.places.iter().any(|at| at.line == call)), "{name}");
        assert!(from(call) > from(function), "{name}");
    }
    let products = look.line(0, function).expect("something is from it");
    assert!(
        products.contains("let product = x * x") && products.contains("mul.rn.f32") | products.contains("mul.f32"),
        "{products}"
    );
    let counts = look.counts();
    assert!(counts.starts_with("  bound placed   llvm    ptx\n") && counts.contains("let norm = sqrt"), "{counts}");
    // Text that says where it is from elsewhere does not say so itself.
    assert!(
        look.panes
            .iter()
            .flat_map(|pane| &pane.lines)
            .all(|line| !line.text.contains("!dbg !") || line.text.starts_with("define"))
    );
    Ok(())
}

#[test]
fn accesses_to_shared_memory_and_layouts_are_shown() -> Result<(), InspectError> {
    let entries = entries();
    let show = |name: &str, view| terminal::stage(of_kernel(&entries, name), view, &no_tools(), &roots());
    let shared = show("normalise", "shared")?;
    assert!(shared.contains("reduce, writes") && shared.contains("reduce, reads"), "{shared}");
    assert!(shared.contains("no bank conflicts") && shared.contains("common/mod.rs:"), "{shared}");
    assert!(show("add", "shared")?.contains("no thread accesses shared memory itself"));
    let product = show("matmul", "shared")?;
    assert!(product.contains("shared_store") && product.contains("by matrices"), "{product}");
    let layouts = show("add", "layouts")?;
    assert!(layouts.contains("layout #0, 1024: register: [1]") && layouts.contains(" 0:0 "), "{layouts}");
    Ok(())
}

#[test]
fn machine_code_is_shown_with_what_it_takes() -> Result<(), InspectError> {
    let tools = tools();
    if let Some(why) = tools.ptxas.as_ref().err().or(tools.nvdisasm.as_ref().err()) {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let mut entries = entries();
    for name in ["add", "normalise", "matmul"] {
        let entry = of_kernel(&entries, name);
        let look = Look::at(entry, &tools, &roots());
        let pane = look.pane("sass").unwrap_or_else(|| panic!("{name}: {:?}", look.notes));
        let instructions = pane.lines.iter().filter(|line| line.text.starts_with("/*"));
        let known = instructions.clone().filter(|line| !line.places.is_empty()).count();
        assert!(10 * known > 9 * instructions.count(), "{name}: {known} have a place");
        let usage = look.report.as_ref().and_then(|report| report.usage.as_ref()).expect("what it takes");
        assert!((8..=255).contains(&usage.registers), "{name}: {usage:?}");
        let overview = terminal::overview(entry, &look);
        assert!(overview.contains(&format!("{} registers per thread, ", usage.registers)), "{overview}");
        assert!(overview.contains("occupancy: "), "{overview}");
        assert!(terminal::notes(&look).starts_with("note: the archive has no machine code"));
    }

    // The archive's own code is shown where it has some, with the lines of code that is the same.
    let position = entries.iter().position(|entry| entry.head.identity.kernel == "normalise").expect("it is there");
    let ptx = entries[position].texts.ptx.clone();
    let plain = Look::at(&entries[position], &Tools { nvdisasm: tools.nvdisasm.clone(), ..tools.clone() }, &roots());
    let lines = plain.machine.lines.clone().expect("lines");
    let stripped = tilewright_inspect::machine::MachineCode::of(&entries[position], None, &tools);
    assert!(
        stripped.lines.as_ref().is_ok_and(|lines| lines.iter().all(|line| line.places.is_empty())),
        "no line information"
    );
    entries[position].machine = stripped.machine.into_iter().collect();
    let own = Look::at(&entries[position], &tools, &roots());
    assert_eq!(own.notes, [""; 0], "nothing is missing");
    let instructions = |lines: &[tilewright_inspect::lines::Line]| -> Vec<_> {
        lines.iter().filter(|line| line.text.starts_with("/*")).map(|line| line.places.clone()).collect()
    };
    assert_eq!(instructions(&own.machine.lines.expect("lines")), instructions(&lines));
    // Code of another assembler is shown, and not linked to lines that it may not be from.
    entries[position].machine[0].image = of_kernel_code(&entries, "add", &tools);
    let foreign = Look::at(&entries[position], &tools, &roots());
    assert!(foreign.notes.iter().any(|note| note.contains("makes other code")), "{:?}", foreign.notes);
    assert_eq!(entries[position].texts.ptx, ptx);

    let difference = terminal::compare((&entries[0], &entries[1]), "sass", &tools, &roots())?;
    assert!(difference.contains("\n+ ") || difference.contains("no difference"), "{difference}");
    let missing = Tools { ptxas: tools.ptxas.clone(), ..no_tools() };
    let error =
        terminal::stage(of_kernel(&entries, "add"), "sass", &missing, &roots()).expect_err("refused").to_string();
    assert_eq!(error, "there is no machine code to show: no nvdisasm here");
    Ok(())
}

/// Code that was compiled with line information says where it is from itself, under the names of files.
#[test]
fn code_with_lines_says_where_it_is_from() {
    let tools = tools();
    let Ok(ptxas) = tools.ptxas.clone() else { return eprintln!("skipped: no ptxas") };
    for entry in common::with_lines(ptxas) {
        // Nothing is assembled again for it.
        let look = Look::at(&entry, &Tools { ptxas: no_tools().ptxas, ..tools.clone() }, &roots());
        let Ok(lines) = &look.machine.lines else { return eprintln!("skipped: no nvdisasm") };
        let instructions = lines.iter().filter(|line| line.text.starts_with("/*"));
        let known = instructions.clone().filter(|line| !line.places.is_empty()).count();
        assert!(10 * known > 9 * instructions.count(), "{known} have a place: {:?}", look.notes);
        let ptx = look.pane("ptx").expect("PTX");
        assert!(ptx.lines.iter().all(|line| !line.text.contains(".loc")), "places are no part of the text");
        let both = |name: &str| look.pane(name).is_some_and(|pane| pane.lines.iter().any(|line| line.places.len() > 1));
        assert!(both("ptx") && both("sass") && both("llvm"), "what was inlined knows its call: {:?}", look.notes);
    }
}

/// The machine code of another kernel.
fn of_kernel_code(entries: &[kernel_archive::Entry], name: &str, tools: &Tools) -> Vec<u8> {
    let code = tilewright_inspect::machine::MachineCode::of(of_kernel(entries, name), None, tools);
    code.machine.expect("code").image
}

#[test]
fn archives_are_compared_by_the_names_of_their_variants() -> Result<(), InspectError> {
    let old = entries();
    let mut new = old.clone();
    let gone = new.remove(0).head.identity.to_string();
    let changed = new[1].head.identity.to_string();
    new[1].texts.ptx += "// another line\n";
    let text = terminal::compare_archives(&old, &new, &no_tools());
    assert!(text.starts_with(&format!("- {gone}\n")), "{text}");
    assert!(text.contains(&format!("~ {changed}\n    ptx        0 lines gone, 1 new\n= ")), "{text}");
    let note = format!("note: machine code of {} variants was not compared: no ptxas here\n", new.len());
    assert!(text.ends_with(&note) && text.matches("no ptxas here").count() == 1, "{text}");
    let all = terminal::compare_all((&old[2], &new[1]), &no_tools());
    assert!(all.contains("\nptx        0 lines gone, 1 new\n") && all.contains("== ptx\n"), "{all}");
    assert!(all.contains("\nplaced     no difference\n") && all.contains("+ // another line"), "{all}");
    assert!(all.contains("\nsass       not compared: no ptxas here\n"), "{all}");
    let own = terminal::compare_archives(&old, &old, &no_tools());
    let lines = |sign: &str| own.lines().filter(|line| line.starts_with(sign)).count();
    assert_eq!((lines("= "), lines("note: "), own.lines().count()), (old.len(), 1, old.len() + 1), "{own}");
    Ok(())
}

#[test]
fn the_program_says_how_it_is_called() {
    let inspect = |arguments: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tilewright-inspect"));
        let output = program.args(arguments).output().expect("it runs");
        let [said, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), said, told)
    };
    for help in ["--help", "-h"] {
        let (code, said, told) = inspect(&[help]);
        assert!(code == Some(0) && said.contains("inspect diff OLD NEW") && told.is_empty(), "{code:?} {said} {told}");
    }
    for few in [&["diff"][..], &["diff", "k.twa"], &["diff", "old.twa", "1", "new.twa"]] {
        let (code, said, told) = inspect(few);
        assert!(code == Some(1) && said.is_empty() && told.starts_with("`diff` takes two files"), "{code:?} {told}");
    }
}

#[test]
fn what_is_no_archive_is_an_error() {
    let error = read("/nowhere.twa".as_ref()).expect_err("no file").to_string();
    assert!(error.starts_with("/nowhere.twa: "), "{error}");
    let error = read(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").as_ref()).expect_err("no archive").to_string();
    assert!(error.ends_with("this is no archive of compiled kernels"), "{error}");
}
