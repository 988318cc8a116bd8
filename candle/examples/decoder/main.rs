//! A decoder in candle, its ops exchanged for Tilewright's one after the other: the same logits, in less time.
//!
//! The decoder has the shape of Llama and random weights: it reads a prompt, then goes on token by token over a cache of keys
//! and values. It runs with candle's ops alone, and then with more and more of this package's, and prints for each how
//! long the prompt and a token take, and how far the logits are from those of candle's ops in a dtype with more bits.
//!
//! ```sh
//! cargo run --release --example decoder                                       # tiny, on the CPU
//! cargo run --release --features cuda --example decoder -- --size 1b          # one billion weights, on a GPU
//! ```

mod arguments;
mod fused;
mod measure;
mod model;
mod ops;
mod plot;
#[cfg(test)]
mod tests;

use arguments::Arguments;
use measure::Row;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::read()?;
    println!("{arguments}\n");
    let rows = measure::compare(&arguments, |row| println!("{row}"))?;
    plot::draw(&rows, &arguments.plot)?;
    println!("\n{}", Row::summary(&rows, &arguments.device));
    println!("{}", arguments.plot.display());
    Ok(())
}
