//! Every stage of a variant, as text.

use kernel_archive::Entry;
use kernel_codegen::{Compiled, compile_watched};
use kernel_core::backend::nvidia::{LineInfo, Options};
use kernel_core::ir::{Bound, Func};
use kernel_core::target::Target;
use kernel_core::text;

use crate::lines;

/// The stages of a variant.
pub struct Stages {
    /// By name, in the order in which they are made: those of the archive and those that were made again.
    pub all: Vec<(String, String)>,
    /// What to know about the stages that were made again.
    pub note: Option<String>,
    /// What was made again, if it could be.
    pub compiled: Option<Compiled>,
}

/// What the archive has of a variant, without making anything again.
pub fn kept(entry: &Entry) -> Vec<(String, String)> {
    let texts = &entry.texts;
    [("bound", &texts.bound_ir), ("ptx", &texts.ptx), ("report", &texts.report)]
        .map(|(name, text)| (name.to_string(), text.clone()))
        .to_vec()
}

impl Stages {
    /// All stages: `bound`, one for each pass by its name, `placed`, `lowered` (LLVM IR), `llvm` (optimised), `ptx`, `report`.
    pub fn of(entry: &Entry) -> Stages {
        let mut kept = kept(entry).into_iter();
        let mut all: Vec<(String, String)> = kept.next().into_iter().collect();
        let (note, compiled) = match make(entry) {
            Ok((stages, compiled)) => {
                all.extend(stages);
                let note = (compiled.ptx != entry.texts.ptx).then(|| {
                    format!(
                        "the compiler of this program ({}) is not the archive's ({}), and gives other PTX; the stages between \
                         `bound` and `ptx` are its own",
                        env!("CARGO_PKG_VERSION"),
                        entry.head.maker.compiler
                    )
                });
                (note, Some(compiled))
            }
            Err(problem) => {
                (Some(format!("the stages between `bound` and `ptx` cannot be made again: {problem}")), None)
            }
        };
        all.extend(kept);
        Stages { all, note, compiled }
    }

    /// The stage of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// The names.
    pub fn names(&self) -> Vec<String> {
        self.all.iter().map(|(name, _)| name.clone()).collect()
    }

    /// What each pass over the tile IR has changed: its name, with the text before it and behind it. Passes that changed
    /// nothing are left out.
    pub fn changes(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let is_of_tiles = |name: &str| !["lowered", "llvm", "ptx", "report", "placed"].contains(&name);
        let tiles: Vec<&(String, String)> = self.all.iter().filter(|(name, _)| is_of_tiles(name)).collect();
        let pairs: Vec<_> =
            tiles.windows(2).map(|pair| (pair[1].0.as_str(), pair[0].1.as_str(), pair[1].1.as_str())).collect();
        pairs.into_iter().filter(|(_, before, after)| before != after)
    }
}

/// The stages between the bound IR and the PTX, and what they lead to.
fn make(entry: &Entry) -> Result<(Vec<(String, String)>, Compiled), String> {
    let options = Options { keep_llvm_ir: true, ..entry.head.options.clone() };
    let mut stages = Vec::new();
    let watch = &mut |pass: &'static str, func: &Func, _: &_| {
        stages.push((pass.to_string(), text::print(func)));
    };
    let compiled =
        compile_watched(&bound(entry)?, &target(entry)?, &options, watch).map_err(|error| error.to_string())?;
    stages.push(("placed".to_string(), compiled.placed_ir()));
    if let Some(ir) = &compiled.llvm_ir {
        stages.extend([("lowered".to_string(), ir.lowered.clone()), ("llvm".to_string(), ir.optimised.clone())]);
    }
    Ok((stages, compiled))
}

/// The same code with line information, which changes no instruction; files are numbers from 0. `None` if that is not the
/// archive's code.
pub fn with_lines(entry: &Entry, func: &Func) -> Option<Compiled> {
    let files = (0..=func.files.others().len()).map(|number| number.to_string()).collect();
    let info = LineInfo { files, functions: Vec::new() };
    let options = Options { keep_llvm_ir: true, line_info: Some(info), ..entry.head.options.clone() };
    let compiled = compile_watched(&bound(entry).ok()?, &target(entry).ok()?, &options, &mut |_, _, _| {}).ok()?;
    let texts = |ptx: &str| lines::of_ptx(ptx).into_iter().map(|line| line.text).collect::<Vec<_>>();
    (texts(&compiled.ptx) == texts(&entry.texts.ptx)).then_some(compiled)
}

/// The bound kernel.
///
/// # Errors
/// If this version does not read its text.
pub fn bound(entry: &Entry) -> Result<Bound, String> {
    let func = text::parse(&entry.texts.bound_ir).map_err(|error| error.to_string())?;
    Bound::new(func).map_err(|_| "the tile IR is not bound".to_string())
}

fn target(entry: &Entry) -> Result<Target, String> {
    let name = &entry.head.identity.target;
    Target::named(name).ok_or_else(|| format!("this version knows no target {name}"))
}
