//! Runs passes over a kernel in text form, prints what they leave, and runs it. See `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use kernel_codegen::{Options, Stage, Target, TensorCopies, pass_names, run_named};
use kernel_core::text::{parse, print_without_spans};
use tilewright_fuzz::case::Case;
use tilewright_fuzz::oracle::Oracle;
use tilewright_fuzz::reduce::reduce;

const HELP: &str = "\
Runs passes over a kernel in text form, and prints what they leave.

  tile-opt FILE --upto PASS            all passes in their order, up to that one
  tile-opt FILE --passes A,B,..        those passes
  tile-opt FILE                        none: the kernel is checked and printed
  tile-opt --list                      the passes of the code generator, in their order
  tile-opt FILE --reduce               the smallest kernel on which two ways to run it still differ

  --target NAME   sm_80, sm_89, sm_90, sm_90a (the default)
  --warps N       warps per program (default 4)
  --stages N      depth of pipelines (default 3)
  --copies WHERE  tensor copies: near_products (the default), always, never
  --run           run what the passes leave, and compare with the kernel as it was
  --out FILE      write there instead

A file of tilewright-fuzz says its target and options itself, and the inputs that `--run` and `--reduce` need.
";

#[derive(Default)]
struct Arguments {
    file: Option<PathBuf>,
    passes: Vec<String>,
    upto: Option<String>,
    target: Option<Target>,
    options: Options,
    runs: bool,
    reduces: bool,
    lists: bool,
    out: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::*;
    let mut found = Arguments::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("passes") => found.passes = parser.value()?.string()?.split(',').map(str::to_string).collect(),
            Long("upto") => found.upto = Some(parser.value()?.string()?),
            Long("target") => {
                let name = parser.value()?.string()?;
                let target = Target::named(&name);
                found.target = Some(target.ok_or_else(|| format!("there is no target `{name}`"))?);
            }
            Long("warps") => found.options.num_warps = parser.value()?.parse()?,
            Long("stages") => found.options.num_stages = parser.value()?.parse()?,
            Long("copies") => {
                found.options.tensor_copies = match parser.value()?.string()?.as_str() {
                    "near_products" => TensorCopies::NearProducts,
                    "always" => TensorCopies::Always,
                    "never" => TensorCopies::Never,
                    other => {
                        return Err(format!("tensor copies are near_products, always or never, not {other}").into());
                    }
                };
            }
            Long("run") => found.runs = true,
            Long("reduce") => found.reduces = true,
            Long("list") => found.lists = true,
            Long("out") => found.out = Some(parser.value()?.into()),
            Value(file) if found.file.is_none() => found.file = Some(file.into()),
            other => return Err(other.unexpected()),
        }
    }
    Ok(found)
}

fn main() -> ExitCode {
    match arguments().map_err(|error| error.to_string()).and_then(|arguments| run(&arguments)) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The passes to run.
fn wanted(arguments: &Arguments) -> Result<Vec<&str>, String> {
    let Some(last) = &arguments.upto else { return Ok(arguments.passes.iter().map(String::as_str).collect()) };
    if !arguments.passes.is_empty() {
        return Err("either `--upto` or `--passes`".to_string());
    }
    let names = pass_names();
    match names.iter().position(|name| name == last) {
        Some(end) => Ok(names[..=end].to_vec()),
        None => Err(format!("there is no pass `{last}`, but {}", names.join(", "))),
    }
}

fn run(arguments: &Arguments) -> Result<String, String> {
    if arguments.lists {
        return Ok(pass_names().join("\n") + "\n");
    }
    let Some(file) = &arguments.file else { return Ok(HELP.to_string()) };
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    // What a fuzz file says of itself holds, unless it is asked for otherwise.
    let case = Case::parse(&text).ok();
    let needs_inputs = || format!("{} has no inputs, as files of tilewright-fuzz do", file.display());
    if arguments.reduces {
        let case = case.ok_or_else(needs_inputs)?;
        let small = reduce(&case, None, 20_000).ok_or("all ways agree: nothing to reduce")?;
        return put(
            arguments,
            format!("; {}: {}\n{}", small.difference.stage, small.difference.what, small.case.text()),
        );
    }
    let func = parse(&text).map_err(|error| format!("{}:{error}", file.display()))?;
    let kernel = Stage::new(func).map_err(|_| "the kernel is generic: passes run over bound and placed kernels")?;
    let target = arguments.target.or(case.as_ref().map(|case| case.target)).unwrap_or(Target::sm_90a());
    let options = match &case {
        Some(case) if arguments.options == Options::default() => &case.options,
        _ => &arguments.options,
    };
    let (left, _) = run_named(kernel, &wanted(arguments)?, &target, options).map_err(|error| error.to_string())?;
    if arguments.runs {
        let case = case.as_ref().ok_or_else(needs_inputs)?;
        let oracle = Oracle::new(case).map_err(|difference| difference.what)?;
        oracle
            .compare_func("what the passes leave", left.func())
            .map_err(|found| format!("{}: {}", found.stage, found.what))?;
        eprintln!("what the passes leave computes the same");
    }
    put(arguments, print_without_spans(left.func()))
}

/// Writes a text to where it was asked for; what is left to print.
fn put(arguments: &Arguments, text: String) -> Result<String, String> {
    let Some(path) = &arguments.out else { return Ok(text) };
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(String::new())
}
