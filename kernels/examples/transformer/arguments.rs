//! Arguments of the program.

use std::error::Error;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use tilewright::Device;

use crate::parameters::Shape;
use crate::train::Plan;

/// How large the model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For a CPU.
    Tiny,
    /// For a GPU.
    Small,
}

impl Size {
    pub fn shape(self, vocabulary: usize) -> Shape {
        match self {
            Size::Tiny => Shape { vocabulary, width: 64, heads: 2, layers: 2, hidden: 128, context: 128 },
            Size::Small => Shape { vocabulary, width: 256, heads: 4, layers: 4, hidden: 768, context: 256 },
        }
    }

    fn plan(self) -> Plan {
        match self {
            Size::Tiny => Plan { steps: 300, batch: 4, rate: 6e-3, every: 10, seed: 1 },
            Size::Small => Plan { steps: 600, batch: 32, rate: 2e-3, every: 20, seed: 1 },
        }
    }
}

/// What the program was asked for.
pub struct Arguments {
    pub device: Device,
    pub size: Size,
    pub plan: Plan,
    /// Where the curve of the loss is drawn.
    pub plot: PathBuf,
}

impl Arguments {
    /// Those of this process. `--help` ends it.
    pub fn read() -> Result<Self, Box<dyn Error>> {
        Self::of(&command().get_matches())
    }

    /// Those of a line; the first word is the program's name.
    #[cfg(test)]
    pub fn from<'a>(line: impl Iterator<Item = &'a str>) -> Result<Self, Box<dyn Error>> {
        Self::of(&command().try_get_matches_from(line)?)
    }

    fn of(given: &ArgMatches) -> Result<Self, Box<dyn Error>> {
        let device = match given.get_one::<String>("device").map(String::as_str) {
            Some("cpu") => Device::cpu(),
            Some("gpu") => Device::cuda(0)?,
            _ => Device::best()?,
        };
        let size = match given.get_one::<String>("size").map(String::as_str) {
            Some("tiny") => Size::Tiny,
            Some("small") => Size::Small,
            _ if device.is_cuda() => Size::Small,
            _ => Size::Tiny,
        };
        let mut plan = size.plan();
        plan.steps = given.get_one("steps").map_or(plan.steps, |&steps: &u64| steps as usize);
        plan.seed = given.get_one("seed").copied().unwrap_or(plan.seed);
        let plot = given.get_one("plot").cloned().unwrap_or_else(|| PathBuf::from("loss.svg"));
        Ok(Arguments { device, size, plan, plot })
    }
}

fn command() -> Command {
    let one_of = |values: [&'static str; 2]| PossibleValuesParser::new(values);
    Command::new("transformer")
        .about("Trains a small transformer on short stories, and has it tell some")
        .arg(Arg::new("steps").long("steps").value_parser(value_parser!(u64).range(1..)).help("Steps of training"))
        .arg(Arg::new("size").long("size").value_parser(one_of(["tiny", "small"])).help("How large the model is"))
        .arg(Arg::new("seed").long("seed").value_parser(value_parser!(u64)).help("Another one, another run"))
        .arg(Arg::new("device").long("device").value_parser(one_of(["cpu", "gpu"])).help("Without it, the best"))
        .arg(Arg::new("plot").long("plot").value_parser(value_parser!(PathBuf)).help("The curve, loss.svg if not said"))
}
