//! Machine code of a variant: what the archive has, or what NVIDIA's assembler makes of its PTX, and what it takes.

use kernel_archive::{Code, Entry, Machine};
use kernel_core::backend::nvidia::{Explain, Ptx, Usage, with_min_programs};
use kernel_core::target::Target;
use kernel_runtime::launch::{Nvdisasm, Ptxas};

use crate::lines::{self, Line};

/// NVIDIA's programs, as far as they are there.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The assembler, or why there is none.
    pub ptxas: Result<Ptxas, String>,
    /// The disassembler, or why there is none.
    pub nvdisasm: Result<Nvdisasm, String>,
}

impl Tools {
    /// Those that the environment names, and else those on the path and of the CUDA toolkit.
    pub fn find() -> Tools {
        let ptxas = Ptxas::find().map_err(|error| error.to_string());
        Tools { ptxas, nvdisasm: Nvdisasm::find().map_err(|error| error.to_string()) }
    }
}

/// Machine code, as far as it can be had and shown.
#[derive(Clone, Debug)]
pub struct MachineCode {
    /// The code; `None` if the archive has none and there is no assembler.
    pub machine: Option<Machine>,
    /// Its instructions, or why they cannot be shown.
    pub lines: Result<Vec<Line>, String>,
    /// What else to know, a line for each.
    pub notes: Vec<String>,
}

impl MachineCode {
    /// That of a variant. `lined` is its PTX with line information, if that can be made again: files are numbers from 0.
    pub fn of(entry: &Entry, lined: Option<&str>, tools: &Tools) -> MachineCode {
        let mut notes = Vec::new();
        let machine = match entry.machine.first() {
            Some(machine) => Ok(machine.clone()),
            None => assemble(entry, lined.unwrap_or(&entry.texts.ptx), None, tools).inspect(|machine| {
                notes.push(format!("the archive has no machine code; {} made this of its PTX", machine.head.maker));
            }),
        };
        let machine = match machine {
            Ok(machine) => machine,
            Err(why) => return MachineCode { machine: None, lines: Err(why), notes },
        };
        let shown = disassemble(entry, &machine, tools).map(|lines| {
            if lines.iter().any(|line| !line.places.is_empty()) {
                return lines;
            }
            linked(entry, &machine, lines, lined, tools, &mut notes)
        });
        MachineCode { machine: Some(machine), lines: shown, notes }
    }

    /// What the code takes, as its assembler has said.
    pub fn usage(&self) -> Option<Usage> {
        let head = &self.machine.as_ref()?.head;
        let static_shared_bytes = number_before(&head.log, " bytes smem").unwrap_or(0);
        Some(Usage {
            registers: number_before(&head.log, " registers")?,
            local_bytes: head.local_bytes,
            static_shared_bytes,
            min_programs: head.min_programs,
            log: String::new(),
        })
    }

    /// Bytes that are stored to spill registers, and loaded back, by a thread; counted once per place.
    pub fn spills(&self) -> Option<(u32, u32)> {
        let log = &self.machine.as_ref()?.head.log;
        Some((number_before(log, " bytes spill stores")?, number_before(log, " bytes spill loads")?))
    }

    /// The instructions, each behind the line of the source that it is from: `9`, or `f1:9` of another file than the
    /// kernel's own.
    ///
    /// # Errors
    /// Why they cannot be shown.
    pub fn numbered(&self) -> Result<String, String> {
        let lines = self.lines.as_ref().map_err(Clone::clone)?;
        let number = |line: &Line| match line.places.first() {
            Some(place) if place.file == 0 => place.line.to_string(),
            Some(place) => format!("f{}:{}", place.file, place.line),
            None => String::new(),
        };
        Ok(lines.iter().map(|line| format!("{:>7}  {}\n", number(line), line.text)).collect())
    }

    /// The instructions without their offsets, so that what has only moved compares equal.
    ///
    /// # Errors
    /// Why they cannot be shown.
    pub fn plain(&self) -> Result<String, String> {
        let lines = self.lines.as_ref().map_err(Clone::clone)?;
        Ok(lines.iter().map(|line| without_offset(&line.text).to_string() + "\n").collect())
    }
}

/// The number in front of the first such words.
fn number_before(log: &str, words: &str) -> Option<u32> {
    log[..log.find(words)?].split_whitespace().last()?.parse().ok()
}

fn without_offset(line: &str) -> &str {
    line.split_once("*/").map_or(line, |(_, rest)| rest)
}

/// Makes machine code of PTX. With `min_programs` it asks for what other code asked for.
fn assemble(entry: &Entry, ptx: &str, min_programs: Option<Option<u32>>, tools: &Tools) -> Result<Machine, String> {
    let ptxas = tools.ptxas.as_ref().map_err(Clone::clone)?;
    let name = &entry.head.identity.target;
    let target = Target::named(name).ok_or_else(|| format!("this version knows no target {name}"))?;
    let code = match min_programs {
        None => ptx_of(&entry.head.code, ptx.to_string()),
        // That is the one that was kept, so others are not tried.
        Some(programs) => Ptx { sets_registers: true, ..ptx_of(&entry.head.code, with_min_programs(ptx, programs)) },
    };
    ptxas.assemble(&code, target, target.capability()).map_err(|error| error.to_string())
}

fn ptx_of(code: &Code, text: String) -> Ptx {
    Ptx {
        entry: code.entry.clone(),
        text,
        shared_bytes: code.shared_bytes,
        num_warps: code.num_warps,
        min_programs: code.min_programs,
        sets_registers: code.sets_registers,
        dependent_launch: code.dependent_launch,
        abi: code.abi.clone(),
        report: Box::new(Unreported),
    }
}

/// The report of PTX is not asked for here.
#[derive(Debug)]
struct Unreported;

impl Explain for Unreported {
    fn report(&self, _: Option<&Usage>) -> String {
        String::new()
    }
}

/// Files are numbers where line information was made here, and names where the archive's code has it.
fn disassemble(entry: &Entry, machine: &Machine, tools: &Tools) -> Result<Vec<Line>, String> {
    let nvdisasm = tools.nvdisasm.as_ref().map_err(Clone::clone)?;
    let text = nvdisasm.disassemble(&machine.image).map_err(|error| error.to_string())?;
    let named = entry.head.options.line_info.as_ref();
    let by_name = |name: &str| named.and_then(|info| info.files.iter().position(|file| file == name));
    // The assembler makes names of numbers absolute.
    let number = |name: &str| name.rsplit(['/', '\\']).next().and_then(|last| last.parse().ok());
    Ok(lines::of_machine(&text, |name| by_name(name).or_else(|| number(name))))
}

/// The same lines with places: those of code that is made again of PTX with line information, if that is the same code.
fn linked(
    entry: &Entry,
    machine: &Machine,
    lines: Vec<Line>,
    lined: Option<&str>,
    tools: &Tools,
    notes: &mut Vec<String>,
) -> Vec<Line> {
    let Some(ptx) = lined else { return lines };
    let again = assemble(entry, ptx, Some(machine.head.min_programs), tools)
        .and_then(|again| Ok((disassemble(entry, &again, tools)?, again)));
    let why = match again {
        Err(why) => why,
        Ok((others, again)) => match places_of(&lines, &others) {
            Some(places) => {
                let with = |(line, places)| Line { places, ..line };
                return lines.into_iter().zip(places).map(with).collect();
            }
            None => format!("{} makes other code than {}", again.head.maker, machine.head.maker),
        },
    };
    notes.push(format!("machine code is not linked to lines of the source: {why}"));
    lines
}

/// The places of each line, if the other lines have the same instructions. Line information adds labels.
fn places_of(lines: &[Line], others: &[Line]) -> Option<Vec<Vec<lines::Place>>> {
    let is_instruction = |line: &&Line| line.text.starts_with("/*");
    let same = |a: &Line, b: &Line| without_labels(&a.text) == without_labels(&b.text);
    let mut others = others.iter().filter(is_instruction);
    let mut places = Vec::with_capacity(lines.len());
    for line in lines {
        if !is_instruction(&line) {
            places.push(Vec::new());
            continue;
        }
        let other = others.next().filter(|other| same(line, other))?;
        places.push(other.places.clone());
    }
    others.next().is_none().then_some(places)
}

/// An instruction without the number of the label that it jumps to.
fn without_labels(text: &str) -> String {
    let mut parts = text.split(".L_x_");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| all + ".L_x_" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::Place;

    fn line(text: &str, number: u32) -> Line {
        let places = (number > 0).then_some(Place { file: 0, line: number });
        Line { text: text.to_string(), places: places.into_iter().collect() }
    }

    #[test]
    fn the_same_code_has_the_same_places() {
        let plain = [line("/*0000*/      LDC R1 ;", 0), line(".L_x_0:", 0), line("/*0010*/  @P0 BRA `(.L_x_0) ;", 0)];
        let lined = [
            line("/*0000*/      LDC R1 ;", 3),
            line(".L_x_1:", 0),
            line(".L_x_2:", 0),
            line("/*0010*/  @P0 BRA `(.L_x_2) ;", 4),
        ];
        let places = places_of(&plain, &lined).expect("the same instructions");
        assert_eq!(places, [vec![Place { file: 0, line: 3 }], vec![], vec![Place { file: 0, line: 4 }]]);
        assert_eq!(places_of(&plain, &lined[..3]), None, "one is missing");
        assert_eq!(places_of(&plain[..2], &lined), None, "one is too many");
        assert_eq!(places_of(&[line("/*0000*/      LDC R2 ;", 0)], &lined[..1]), None, "another one");
    }

    #[test]
    fn the_assembler_says_what_code_takes() {
        let log = "ptxas info    : Function properties for add\n    40 bytes stack frame, 36 bytes spill stores, 44 bytes \
                   spill loads\nptxas info    : Used 22 registers, used 1 barriers, 16 bytes smem";
        let head = kernel_archive::MachineHead {
            capability: 90,
            maker: "ptxas".into(),
            min_programs: Some(2),
            local_bytes: 40,
            log: log.into(),
        };
        let machine = Some(Machine { head, image: Vec::new() });
        let code = MachineCode { machine, lines: Ok(vec![line("/*0010*/      EXIT ;", 7)]), notes: Vec::new() };
        let usage = code.usage().expect("a log");
        assert_eq!((usage.registers, usage.local_bytes, usage.static_shared_bytes), (22, 40, 16));
        assert_eq!(code.spills(), Some((36, 44)));
        assert_eq!(code.plain(), Ok("      EXIT ;\n".to_string()));
        assert_eq!(code.numbered(), Ok("      7  /*0010*/      EXIT ;\n".to_string()));
        let none = MachineCode { machine: None, ..code };
        assert_eq!((none.usage(), none.spills()), (None, None));
    }
}
