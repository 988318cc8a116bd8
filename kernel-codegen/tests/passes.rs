//! `.tile` file tests of the code generator's passes (`tests/passes`), in the grammar of `kernel-core`'s
//! (`kernel-core/tests/runner/mod.rs`), with commands of their own:
//!
//! ```text
//! ; test on sm_90a warps=8 stages=3 | upto dots | pass pipeline
//! ; check: async_copy
//! ```
//!
//! - `on TARGET [warps=N] [stages=N] [copies=always|never] [checks=every_access]`: what the stages behind it are given.
//!   Without it: `sm_90a`, 4 warps, 3 stages.
//! - `pass NAME ..`: runs passes.
//! - `upto NAME`: runs all passes in their order, up to that one.
//! - `; error: TEXT` on the line that is to blame is what a pass refuses.

#[allow(dead_code, unused_imports, reason = "stages of `kernel-core` alone")]
#[path = "../../kernel-core/tests/runner/cases/mod.rs"]
mod cases;

use std::path::{Path, PathBuf};

use cases::{Case, Failure, roundtrip, split_cases};
use kernel_codegen::{Checks, CodegenError, Options, Stage, Target, TensorCopies, pass_names, run_named};
use kernel_core::text::print_without_spans;

/// What passes are given.
struct Settings {
    target: Target,
    options: Options,
}

/// Why a case failed.
enum Wrong {
    Refused(CodegenError),
    Test(String),
}

impl Settings {
    fn read(words: &[&str]) -> Result<Settings, String> {
        let mut settings = Settings { target: Target::sm_90a(), options: Options::default() };
        for word in words {
            let number = |text: &str| text.parse::<u32>().map_err(|_| format!("`{word}` has no number"));
            match word.split_once('=') {
                None => {
                    let found = Target::named(word);
                    settings.target = found.ok_or_else(|| format!("there is no target `{word}`"))?;
                }
                Some(("warps", warps)) => settings.options.num_warps = number(warps)?,
                Some(("stages", stages)) => settings.options.num_stages = number(stages)?,
                Some(("copies", "always")) => settings.options.tensor_copies = TensorCopies::Always,
                Some(("copies", "never")) => settings.options.tensor_copies = TensorCopies::Never,
                Some(("checks", "every_access")) => settings.options.checks = Checks::EveryAccess,
                Some(_) => return Err(format!("`{word}` is no setting")),
            }
        }
        Ok(settings)
    }
}

fn run_stages(case: &Case<'_>) -> Result<Stage, Wrong> {
    let source = case.source().map_err(|failure| match failure {
        Failure::Kernel(problems) => Wrong::Test(problems.first().map_or(String::new(), ToString::to_string)),
        Failure::Test(message) => Wrong::Test(message),
    })?;
    let mut kernel = Stage::new(source).map_err(|_| Wrong::Test("the kernel is generic".to_string()))?;
    let mut settings = Settings::read(&[]).map_err(Wrong::Test)?;
    let names = pass_names();
    for words in case.stages() {
        let passes = match words.as_slice() {
            ["on", words @ ..] => {
                settings = Settings::read(words).map_err(Wrong::Test)?;
                continue;
            }
            ["pass", names @ ..] => names.to_vec(),
            ["upto", last] => {
                let end = names.iter().position(|name| name == last);
                names[..=end.ok_or_else(|| Wrong::Test(format!("there is no pass `{last}`")))?].to_vec()
            }
            _ => return Err(Wrong::Test(format!("there is no command `{}`", words.join(" ")))),
        };
        kernel = run_named(kernel, &passes, &settings.target, &settings.options).map_err(Wrong::Refused)?;
    }
    Ok(kernel)
}

/// Whether what was refused is what the case names, at its line.
fn check_error(case: &Case<'_>, error: &CodegenError) -> Result<(), String> {
    let text = error.to_string();
    match case.errors.as_slice() {
        [(line, expected)] if text.contains(expected) => {
            let CodegenError::Refused(refusal) = error else { return Err(format!("not refused: {text}")) };
            let at = if refusal.span.line == 0 { case.kernel_line } else { refusal.span.line };
            if at == *line { Ok(()) } else { Err(format!("refused at line {at}: {text}")) }
        }
        _ => Err(format!("refused: {text}")),
    }
}

fn check_lines(case: &Case<'_>, output: &str) -> Result<(), String> {
    let mut rest = output.lines();
    for &(wanted, text) in &case.checks {
        if !wanted && output.contains(text) {
            return Err(format!("`{text}` is in the output:\n{output}"));
        }
        if wanted && !rest.any(|line| line.contains(text)) {
            return Err(format!("`{text}` is not in the output, or not there:\n{output}"));
        }
    }
    Ok(())
}

/// Runs a case; returns the output to bless.
fn run_case(case: &Case<'_>) -> Result<Option<String>, String> {
    let kernel = match run_stages(case) {
        Err(Wrong::Test(message)) => return Err(message),
        Err(Wrong::Refused(error)) => return check_error(case, &error).map(|()| None),
        Ok(_) if !case.errors.is_empty() => return Err("an error was expected, but there is none".to_string()),
        Ok(kernel) => kernel,
    };
    roundtrip::check(kernel.func())?;
    let output = print_without_spans(kernel.func());
    check_lines(case, &output)?;
    let Some(expected) = &case.output else { return Ok(None) };
    if std::env::var_os("TILEWRIGHT_BLESS").is_none() && *expected != output {
        return Err(format!("the output is not the expected one (TILEWRIGHT_BLESS=1 accepts it):\n{output}"));
    }
    Ok(Some(output))
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "tile"));
    files.sort();
    files
}

#[test]
fn passes_do_what_their_files_say() {
    let bless = std::env::var_os("TILEWRIGHT_BLESS").is_some();
    let mut failures = Vec::new();
    for file in files() {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut blessed = String::new();
        let cases = split_cases(&text);
        assert!(!cases.is_empty(), "{} has no `; test` line", file.display());
        for case in &cases {
            assert!(
                !(case.checks.is_empty() && case.errors.is_empty() && case.output.is_none()),
                "{}:{}: nothing is checked",
                file.display(),
                case.line
            );
            let result = run_case(case);
            if let Err(message) = &result
                && !(bless && case.output.is_some())
            {
                failures.push(format!("{}:{}: {message}", file.display(), case.line));
            }
            case.write(&mut blessed, result.ok().flatten().as_deref().filter(|_| bless));
        }
        if bless && blessed != text {
            std::fs::write(&file, blessed).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
    assert!(failures.is_empty(), "{} cases failed\n\n{}", failures.len(), failures.join("\n\n"));
}

/// A new pass gets a file of its name.
#[test]
fn every_pass_has_a_file() {
    let names: Vec<String> =
        files().iter().filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned())).collect();
    // What `clean_up` runs has its files in `kernel-core`.
    let missing: Vec<&str> =
        pass_names().into_iter().filter(|name| *name != "clean_up" && !names.iter().any(|own| own == name)).collect();
    assert!(missing.is_empty(), "no file in tests/passes: {}", missing.join(", "));
}

#[test]
fn passes_that_do_not_exist_are_named() {
    let text = include_str!("kernels/add.tile");
    let kernel = Stage::new(kernel_core::text::parse(text).expect("a kernel")).expect("a bound kernel");
    let refused = |names: &[&str]| {
        let error = run_named(kernel.clone(), names, &Target::sm_90a(), &Options::default());
        error.expect_err("there is no such pass").to_string()
    };
    let text = refused(&["pipelin"]);
    assert!(text.contains("pipelin") && text.contains("hoist_loads"), "{text}");
    let text = refused(&["place", "fold"]);
    assert!(text.contains("placed") && text.contains("membar"), "{text}");
    let options = Options { disabled_passes: vec!["pipelines".to_string()], ..Options::default() };
    let Stage::Bound(bound) = &kernel else { panic!("it is bound") };
    let text = kernel_codegen::compile(bound, &Target::sm_90a(), &options).expect_err("a misspelt name").to_string();
    assert!(text.contains("`pipelines`") && text.contains("warp_specialize, pipeline"), "{text}");
}
