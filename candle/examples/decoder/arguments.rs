//! Arguments of the program.

use crate::model::Shape;
use candle_core::{DType, Device, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::fmt;
use std::path::PathBuf;

/// What the program was asked for.
pub struct Arguments {
    pub device: Device,
    pub shape: Shape,
    /// Sequences that are decoded together.
    pub batch: usize,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens that follow it.
    pub tokens: usize,
    /// How often the prompt is read.
    pub repeat: usize,
    /// Where the times are drawn.
    pub plot: PathBuf,
}

impl Arguments {
    /// Those of this process. `--help` ends it.
    pub fn read() -> Result<Self> {
        Self::of(&command().get_matches())
    }

    /// Those of a line; the first word is the program's name.
    #[cfg(test)]
    pub fn from<'a>(line: impl Iterator<Item = &'a str>) -> Result<Self> {
        Self::of(&command().try_get_matches_from(line).map_err(candle_core::Error::wrap)?)
    }

    fn of(given: &ArgMatches) -> Result<Self> {
        let device = match given.get_one::<String>("device").map(String::as_str) {
            Some("cpu") => Device::Cpu,
            Some("cuda") => Device::new_cuda(0)?,
            _ => Device::cuda_if_available(0)?,
        };
        let size = given.get_one::<String>("size").cloned().unwrap_or_else(|| "tiny".into());
        let (shape, prompt, tokens, repeat) = match size.as_str() {
            "1b" => (Shape::one_billion(), 2048, 64, 5),
            "8b" => (Shape::eight_billion(), 2048, 64, 5),
            _ => (Shape::tiny(), 24, 8, 1),
        };
        let number = |name: &str, default: usize| given.get_one::<usize>(name).copied().unwrap_or(default).max(1);
        Ok(Arguments {
            device,
            shape,
            batch: number("batch", 1),
            prompt: number("prompt", prompt),
            tokens: number("tokens", tokens),
            repeat: number("repeat", repeat),
            plot: given.get_one::<PathBuf>("plot").cloned().unwrap_or_else(|| "decoder.svg".into()),
        })
    }

    /// The dtype of the decoder, and one with more bits.
    pub fn dtypes(&self) -> (DType, DType) {
        if self.device.is_cuda() { (DType::BF16, DType::F32) } else { (DType::F32, DType::F64) }
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device =
            tilewright_candle::device(&self.device).map_or_else(|_| "?".into(), |device| device.name().to_string());
        let (dtype, _) = self.dtypes();
        write!(
            f,
            "{} weights in {}, {} of {} tokens, {} after them, on {device}",
            self.shape.weights(),
            dtype.as_str(),
            if self.batch == 1 { "a prompt".into() } else { format!("{} prompts", self.batch) },
            self.prompt,
            self.tokens
        )
    }
}

fn command() -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(usize)).help(help)
    };
    Command::new("decoder")
        .about("A decoder in candle, its ops exchanged for Tilewright's one after the other")
        .arg(
            Arg::new("size")
                .long("size")
                .value_parser(PossibleValuesParser::new(["tiny", "1b", "8b"]))
                .help("The shape: tiny, or that of Llama 3.2 with 1 or of Llama 3.1 with 8 billion weights"),
        )
        .arg(
            Arg::new("device")
                .long("device")
                .value_parser(PossibleValuesParser::new(["cpu", "cuda"]))
                .help("Where it runs; a GPU if there is one"),
        )
        .arg(number("batch", "Sequences that are decoded together; 1 if nothing is said"))
        .arg(number("prompt", "Tokens of the prompt"))
        .arg(number("tokens", "Tokens that follow it"))
        .arg(number("repeat", "How often the prompt is read"))
        .arg(
            Arg::new("plot")
                .long("plot")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Where the times are drawn; decoder.svg if nothing is said"),
        )
}
