//! Every stage of a variant, as text.

use kernel_archive::Entry;
use kernel_codegen::compile_watched;
use kernel_core::backend::nvidia::Options;
use kernel_core::ir::Bound;
use kernel_core::target::Target;
use kernel_core::text;

/// The stages of a variant.
pub struct Stages {
    /// By name, in the order in which they are made: those of the archive and those that were made again.
    pub all: Vec<(String, String)>,
    /// What to know about the stages that were made again.
    pub note: Option<String>,
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
        let note = match make(entry) {
            Ok((stages, ptx)) => {
                all.extend(stages);
                (ptx != entry.texts.ptx).then(|| {
                    format!(
                        "the compiler of this program ({}) is not the archive's ({}), and gives other PTX; the stages between \
                         `bound` and `ptx` are its own",
                        env!("CARGO_PKG_VERSION"),
                        entry.head.maker.compiler
                    )
                })
            }
            Err(problem) => Some(format!("the stages between `bound` and `ptx` cannot be made again: {problem}")),
        };
        all.extend(kept);
        Stages { all, note }
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

/// The stages between the bound IR and the PTX, and the PTX that they lead to.
fn make(entry: &Entry) -> Result<(Vec<(String, String)>, String), String> {
    let name = &entry.head.identity.target;
    let target = Target::named(name).ok_or_else(|| format!("this version knows no target {name}"))?;
    let func = text::parse(&entry.texts.bound_ir).map_err(|error| error.to_string())?;
    let bound = Bound::new(func).map_err(|_| "the tile IR is not bound".to_string())?;
    let options = Options { keep_llvm_ir: true, ..entry.head.options.clone() };
    let mut stages = Vec::new();
    let watch = &mut |pass: &'static str, func: &kernel_core::ir::Func, _: &_| {
        stages.push((pass.to_string(), text::print(func)));
    };
    let compiled = compile_watched(&bound, &target, &options, watch).map_err(|error| error.to_string())?;
    stages.push(("placed".to_string(), compiled.placed_ir()));
    if let Some(ir) = compiled.llvm_ir {
        stages.extend([("lowered".to_string(), ir.lowered), ("llvm".to_string(), ir.optimised)]);
    }
    Ok((stages, compiled.ptx))
}
