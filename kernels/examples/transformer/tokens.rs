//! The text, and its characters as numbers.
//!
//! `stories.txt` was written for this example by a small grammar: two people meet, own things, give and lend them, and the
//! last line says who has what. Spelling is learned in seconds; that a lent thing stays with its owner, and that colours
//! follow their things, needs attention over the whole story.

use crate::random::Random;

/// The text of the example.
pub const STORIES: &str = include_str!("stories.txt");

/// A text as numbers, one for each different character.
pub struct Text {
    characters: Vec<char>,
    tokens: Vec<i32>,
}

/// Windows of a text: `inputs[i]` is followed by `targets[i]`.
pub struct Batch {
    /// `[batch * context]`.
    pub inputs: Vec<i32>,
    /// `[batch * context]`.
    pub targets: Vec<i32>,
}

impl Text {
    pub fn new(text: &str) -> Self {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        let mut all = Text { characters, tokens: Vec::new() };
        all.tokens = all.encode(text);
        all
    }

    /// How many different characters there are.
    pub fn vocabulary(&self) -> usize {
        self.characters.len()
    }

    /// The numbers of characters; those that the text does not have are left out.
    pub fn encode(&self, text: &str) -> Vec<i32> {
        text.chars().filter_map(|c| self.characters.binary_search(&c).ok()).map(|at| at as i32).collect()
    }

    /// The characters of numbers.
    pub fn decode(&self, tokens: &[i32]) -> String {
        tokens.iter().filter_map(|&token| self.characters.get(token as usize)).collect()
    }

    /// The text without its last tenth, to learn from, and that tenth, to be tested with.
    pub fn parts(&self) -> (&[i32], &[i32]) {
        self.tokens.split_at(self.tokens.len() / 10 * 9)
    }
}

impl Batch {
    /// Windows that begin anywhere. `tokens` must be longer than one of them.
    pub fn random(tokens: &[i32], batch: usize, context: usize, random: &mut Random) -> Self {
        let starts = (0..batch).map(|_| random.below(tokens.len() - context));
        Self::at(tokens, context, starts)
    }

    /// Windows that follow each other.
    pub fn first(tokens: &[i32], batch: usize, context: usize) -> Self {
        let count = batch.min((tokens.len() - 1) / context);
        Self::at(tokens, context, (0..count).map(|at| at * context))
    }

    fn at(tokens: &[i32], context: usize, starts: impl Iterator<Item = usize>) -> Self {
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for start in starts {
            inputs.extend(&tokens[start..start + context]);
            targets.extend(&tokens[start + 1..start + context + 1]);
        }
        Batch { inputs, targets }
    }
}
