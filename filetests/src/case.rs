//! Splits a file into cases.

/// One kernel with what should become of it.
pub struct Case<'t> {
    /// Line of the `; test` line in the file, from 1.
    pub line: usize,
    /// The stages.
    pub command: &'t str,
    /// All lines of the case but the expected output.
    pub lines: Vec<&'t str>,
    /// `; check:` (true) and `; check-not:` (false) lines.
    pub checks: Vec<(bool, &'t str)>,
    /// `; run:` lines.
    pub runs: Vec<&'t str>,
    /// Lines of the file with the messages expected there.
    pub errors: Vec<(u32, &'t str)>,
    /// The line of `kernel`.
    pub kernel_line: u32,
    /// The expected output, if there is one.
    pub output: Option<String>,
}

const OUTPUT_PREFIX: &str = ";   ";

/// The cases of a file. What stands before the first belongs to the first.
pub fn split_cases(text: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    let mut leading = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("; test ") {
            cases.push(Case {
                line: index + 1,
                command,
                lines: std::mem::take(&mut leading),
                checks: Vec::new(),
                runs: Vec::new(),
                errors: Vec::new(),
                kernel_line: 0,
                output: None,
            });
        }
        let Some(case) = cases.last_mut() else {
            leading.push(line);
            continue;
        };
        case.add(index, line);
    }
    cases
}

impl<'t> Case<'t> {
    fn add(&mut self, index: usize, line: &'t str) {
        if line == "; output:" {
            self.output = Some(String::new());
        } else if let (Some(output), Some(expected)) = (&mut self.output, line.strip_prefix(OUTPUT_PREFIX)) {
            output.push_str(expected);
            output.push('\n');
            return;
        }
        self.lines.push(line);
        if let Some(text) = line.strip_prefix("; check:") {
            self.checks.push((true, text.trim()));
        } else if let Some(text) = line.strip_prefix("; check-not:") {
            self.checks.push((false, text.trim()));
        } else if let Some(text) = line.strip_prefix("; run:") {
            self.runs.push(text.trim());
        }
        let number = index as u32 + 1;
        if line.starts_with("kernel ") {
            self.kernel_line = number;
        }
        self.errors.extend(line.split("; error: ").skip(1).map(|message| (number, message.trim())));
    }

    /// The kernel's text at its lines in the file.
    pub fn padded(&self) -> String {
        let mut text = "\n".repeat(self.line - 1);
        let own = self.lines.iter().skip_while(|line| !line.starts_with("; test "));
        own.for_each(|line| {
            text.push_str(line);
            text.push('\n');
        });
        text
    }

    /// Appends the case with its expected output, or with a new one.
    pub fn write(&self, text: &mut String, output: Option<&str>) {
        // Lines behind the output separate it from the next case.
        let cut = self.lines.iter().position(|line| *line == "; output:").map_or(self.lines.len(), |i| i + 1);
        let (before, behind) = self.lines.split_at(cut);
        before.iter().for_each(|line| push(text, line));
        if let Some(expected) = output.or(self.output.as_deref()) {
            expected.lines().for_each(|line| push(text, &format!("{OUTPUT_PREFIX}{line}")));
        }
        behind.iter().for_each(|line| push(text, line));
    }
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
