//! `.tile` file tests of the code generator's passes (`tests/passes`), in the grammar of `kernel-core`'s
//! (`filetests/src/lib.rs`), with commands of their own:
//!
//! ```text
//! ; test on sm_90a warps=8 stages=3 | upto dot_operands | pass software_pipeline
//! ; check: async_copy
//! ```
//!
//! - `on TARGET [warps=N] [stages=N] [copies=always|never] [checks=every_access] [delays=SEED] [dependent]`: what the stages behind
//!   it are given. Without it: `sm_90a`, 4 warps, 3 stages.
//! - `pass NAME ..`: runs passes.
//! - `upto NAME`: runs all passes in their order, up to that one.
//! - `; error: TEXT` on the line that is to blame is what a pass refuses.

use std::path::PathBuf;

use kernel_codegen::{Checks, CodegenError, Options, Stage, Target, TensorCopies, pass_names, run_named};
use kernel_core::diag::Diagnostic;
use kernel_core::ir::Func;
use tilewright_filetests::{Case, Failure, run_folder};

/// What passes are given.
struct Settings {
    target: Target,
    options: Options,
}

impl Settings {
    fn read(words: &[&str]) -> Result<Settings, String> {
        let mut settings = Settings { target: Target::sm_90a(), options: Options::default() };
        for word in words {
            let number = |text: &str| text.parse::<u32>().map_err(|_| format!("`{word}` has no number"));
            match word.split_once('=') {
                None if *word == "dependent" => settings.options.dependent_launch = true,
                None => {
                    let found = Target::named(word);
                    settings.target = found.ok_or_else(|| format!("there is no target `{word}`"))?;
                }
                Some(("warps", warps)) => settings.options.num_warps = number(warps)?,
                Some(("stages", stages)) => settings.options.num_stages = number(stages)?,
                Some(("copies", "always")) => settings.options.tensor_copies = TensorCopies::Always,
                Some(("copies", "never")) => settings.options.tensor_copies = TensorCopies::Never,
                Some(("checks", "every_access")) => settings.options.checks = Checks::EveryAccess,
                Some(("delays", seed)) => settings.options.delays = Some(number(seed)?.into()),
                Some(_) => return Err(format!("`{word}` is no setting")),
            }
        }
        Ok(settings)
    }
}

/// What a pass refuses, as an error of the kernel.
fn failure(error: CodegenError) -> Failure {
    let message = error.to_string();
    let CodegenError::Refused(refusal) = error else { return Failure::Test(format!("not refused: {message}")) };
    let span = refusal.span;
    Failure::Kernel(vec![Diagnostic::new(message, refusal.file, span.line, span.column)])
}

fn run_stages(case: &Case<'_>) -> Result<Func, Failure> {
    if case.checks.is_empty() && case.errors.is_empty() && case.output.is_none() {
        return Err(Failure::Test("nothing is checked".to_string()));
    }
    let kernel = Stage::new(case.source()?);
    let mut kernel = kernel.map_err(|_| Failure::Test("the kernel is generic".to_string()))?;
    let mut settings = Settings::read(&[]).map_err(Failure::Test)?;
    let names = pass_names();
    for words in case.stages() {
        let passes = match words.as_slice() {
            ["on", words @ ..] => {
                settings = Settings::read(words).map_err(Failure::Test)?;
                continue;
            }
            ["pass", names @ ..] => names.to_vec(),
            ["upto", last] => {
                let end = names.iter().position(|name| name == last);
                names[..=end.ok_or_else(|| Failure::Test(format!("there is no pass `{last}`")))?].to_vec()
            }
            _ => return Err(Failure::Test(format!("there is no command `{}`", words.join(" ")))),
        };
        (kernel, _) = run_named(kernel, &passes, &settings.target, &settings.options).map_err(failure)?;
    }
    Ok(match kernel {
        Stage::Bound(kernel) => kernel.into_func(),
        Stage::Placed(kernel) => kernel.into_func(),
    })
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/passes")
}

#[test]
fn passes_do_what_their_files_say() {
    run_folder(&folder(), run_stages);
}

/// A new pass gets a file of its name.
#[test]
fn every_pass_has_a_file() {
    let files = tilewright_filetests::files(&folder());
    let names: Vec<String> =
        files.iter().filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned())).collect();
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
    assert!(text.contains("`pipelines`") && text.contains("warp_specialize, software_pipeline"), "{text}");
}
