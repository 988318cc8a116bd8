//! The stages of a case's command.

use kernel_core::diag::Diagnostic;
use kernel_core::ir::Func;
use kernel_core::text::parse_located;

use crate::case::Case;
use crate::failure::Failure;
use crate::{bind, optimise, pass, roundtrip, verify};

/// What a stage makes of a kernel.
type Stage = fn(Func, &[&str]) -> Result<Func, Failure>;

fn stage(name: &str) -> Option<Stage> {
    match name {
        "roundtrip" => Some(roundtrip::run),
        "verify" => Some(verify::run),
        "bind" => Some(bind::run),
        "pass" => Some(pass::run),
        "optimise" => Some(optimise::run),
        _ => None,
    }
}

impl Case<'_> {
    /// The kernel as it stands in the file.
    ///
    /// # Errors
    /// If it cannot be read, or printing and parsing does not give it again.
    pub fn source(&self) -> Result<Func, Failure> {
        let func = parse_located(&self.padded())
            .map_err(|e| Failure::Kernel(vec![Diagnostic::new(e.message, "", e.line, e.column)]))?;
        roundtrip::check(&func).map_err(Failure::Test)?;
        Ok(func)
    }

    /// The names and arguments of the stages.
    pub fn stages(&self) -> impl Iterator<Item = Vec<&str>> {
        self.command.split('|').map(|command| command.split_whitespace().collect())
    }

    /// What the stages make of the kernel.
    ///
    /// # Errors
    /// As the stages, or if there is none of a name.
    pub fn run_stages(&self) -> Result<Func, Failure> {
        let mut func = self.source()?;
        for words in self.stages() {
            let (&name, arguments) =
                words.split_first().ok_or_else(|| Failure::Test("an empty command".to_string()))?;
            let stage = stage(name).ok_or_else(|| Failure::Test(format!("there is no command `{name}`")))?;
            func = stage(func, arguments)?;
        }
        Ok(func)
    }
}
