//! Sums of products that nobody reads, kept from errors of NVIDIA's assembler.
//!
//! ```text
//! mov.b32 %acc1_2, 0;                              CS2R R42, SRZ
//! LOOP: wgmma.mma_async.. {.., %acc1_2, ..}, ..    IGMMA R40, ..                    writes R42 too
//!       wgmma.wait_group.sync.aligned 0;
//!       ..                                         nobody reads %acc1_2
//!       mov.b32 %acc1_2, 0;                                                         there is no instruction for it
//!       @%p bra LOOP;
//! ```
//!
//! A sum that nobody reads is none that an asynchronous product writes, for ptxas 13.0 to 13.5 at least: the register is taken
//! to hold what it held before, and filling it with that again is left out. The next product adds to the sum. Such sums come of
//! masks: LLVM knows of some rows of a tile that they are multiplied by zero in every iteration. Where nobody reads any of a
//! product's sums, ptxas has other registers than it fills read in their place.
//!
//! So each such sum is also read by an instruction that never runs, of which ptxas does not know that:
//!
//! ```text
//! @%never st.shared.v4.b32 [%processors], {%acc1_2, ..};
//! ```
//!
//! Which sums are read is known no sooner than behind LLVM, and so this is about PTX. What ptxas itself finds to be unused it
//! keeps from this. Registers of banks that are filled nowhere need no reader: the first product of their sums overwrites them.
//! As ptxas may give registers of several banks one place, those with the same number in their banks count as one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

const PRODUCT: &str = "wgmma.mma_async";
const COMMIT: &str = "wgmma.commit_group";
const WAIT: &str = "wgmma.wait_group.sync.aligned ";

/// The PTX, in which all sums that may be filled again are read.
pub(crate) fn read(ptx: String) -> String {
    if !ptx.contains(PRODUCT) {
        return ptx;
    }
    let filled: HashSet<&str> = ptx.lines().filter_map(|line| number_of(mov(line)?.0)).collect();
    if filled.is_empty() {
        return ptx;
    }
    let lines: Vec<&str> = ptx.split_inclusive('\n').collect();
    let blocks = Block::all(&lines);
    // Behind each wait, of which sums.
    let mut readers: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (at, unread) in unread(&lines, &blocks).into_iter().enumerate() {
        let again: Vec<&str> =
            unread.into_iter().filter(|sum| number_of(sum).is_some_and(|number| filled.contains(number))).collect();
        if again.is_empty() {
            continue;
        }
        for wait in waits(&lines, &blocks, at) {
            let sums = readers.entry(wait).or_default();
            let new: Vec<&str> = again.iter().filter(|sum| !sums.contains(*sum)).copied().collect();
            sums.extend(new);
        }
    }
    let mut read = String::with_capacity(ptx.len());
    for (at, line) in lines.into_iter().enumerate() {
        read.push_str(line);
        if let Some(sums) = readers.get(&at) {
            read_to_no_effect(&mut read, sums);
        }
    }
    read
}

/// The waits behind which a product is done, on all ways that lead from it: the first on each.
fn waits(lines: &[&str], blocks: &[Block], product: usize) -> Vec<usize> {
    let own = blocks.iter().position(|block| block.lines.contains(&product)).unwrap_or_default();
    // Where to go on, and how many groups have been committed since, the product's own among them.
    let mut work = vec![(own, product + 1, 0u32)];
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    while let Some((index, from, mut committed)) = work.pop() {
        let block = &blocks[index];
        let wait = (from..block.lines.end).find(|&at| {
            committed += u32::from(lines[at].contains(COMMIT));
            // So many of the groups may go on, the last ones.
            pending(lines[at]).is_some_and(|pending| committed > pending)
        });
        match wait {
            Some(wait) => found.push(wait),
            None => {
                let next = block.next.iter().filter(|next| seen.insert(**next));
                work.extend(next.map(|&next| (next, blocks[next].lines.start, committed)));
            }
        }
    }
    found
}

/// How many groups a wait leaves in flight.
fn pending(line: &str) -> Option<u32> {
    line.trim().strip_prefix(WAIT)?.strip_suffix(';')?.parse().ok()
}

/// The registers of a line that copies one to another.
fn mov(line: &str) -> Option<(&str, &str)> {
    line.trim().strip_prefix("mov.b32")?.trim().strip_suffix(';')?.split_once(", ")
}

/// The number of a register of sums in its bank.
fn number_of(register: &str) -> Option<&str> {
    Some(register.strip_prefix("%acc")?.split_once('_')?.1)
}

/// What a line does with registers of sums.
#[derive(Default)]
struct Effect {
    reads: Vec<usize>,
    writes: Vec<usize>,
    is_product: bool,
}

/// For each line the sums that its product writes and nobody reads.
fn unread<'p>(lines: &[&'p str], blocks: &[Block]) -> Vec<Vec<&'p str>> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut names = Vec::new();
    let used = used_registers(lines);
    let effects: Vec<Effect> = lines
        .iter()
        .map(|line| {
            let mut number = |name| {
                *numbers.entry(name).or_insert_with(|| {
                    names.push(name);
                    names.len() - 1
                })
            };
            effect(line, &used, &mut number)
        })
        .collect();
    let mut at_start = vec![vec![false; names.len()]; blocks.len()];
    let behind = |block: &Block, at_start: &[Vec<bool>]| {
        let mut live = vec![false; names.len()];
        for &next in &block.next {
            live.iter_mut().zip(&at_start[next]).for_each(|(live, next)| *live |= next);
        }
        live
    };
    let mut changes = true;
    while changes {
        changes = false;
        for (index, block) in blocks.iter().enumerate().rev() {
            let mut live = behind(block, &at_start);
            effects[block.lines.clone()].iter().rev().for_each(|effect| before(effect, &mut live));
            changes |= live != at_start[index];
            at_start[index] = live;
        }
    }
    let mut unread = vec![Vec::new(); lines.len()];
    for block in blocks {
        let mut live = behind(block, &at_start);
        for at in block.lines.clone().rev() {
            if effects[at].is_product {
                unread[at] = effects[at].writes.iter().filter(|&&sum| !live[sum]).map(|&sum| names[sum]).collect();
            }
            before(&effects[at], &mut live);
        }
    }
    unread
}

/// Which sums are read ahead of a line, of those that are read behind it.
fn before(effect: &Effect, live: &mut [bool]) {
    effect.writes.iter().for_each(|&sum| live[sum] = false);
    effect.reads.iter().for_each(|&sum| live[sum] = true);
}

/// What sums are copied to and somebody uses: all that stands in a line beside the one that copies.
fn used_registers<'p>(lines: &[&'p str]) -> HashSet<&'p str> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for line in lines {
        if let Some((to, _)) = mov(line).filter(|(_, from)| number_of(from).is_some()) {
            uses.insert(to, 0);
        }
    }
    if !uses.is_empty() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$');
        for word in lines.iter().flat_map(|line| line.split(|c| !is_part(c))) {
            if let Some(count) = uses.get_mut(word) {
                *count += 1;
            }
        }
    }
    uses.into_iter().filter(|(_, count)| *count > 1).map(|(register, _)| register).collect()
}

fn effect<'p>(line: &'p str, used: &HashSet<&str>, number: &mut impl FnMut(&'p str) -> usize) -> Effect {
    let mut effect = Effect::default();
    if let Some((to, from)) = mov(line) {
        if number_of(to).is_some() {
            effect.writes.push(number(to));
        }
        if number_of(from).is_some() && (used.contains(to) || number_of(to).is_some()) {
            effect.reads.push(number(from));
        }
        return effect;
    }
    let Some((_, operands)) = line.split_once(PRODUCT) else { return effect };
    let Some((sums, rest)) = operands.split_once('{').and_then(|(_, behind)| behind.split_once('}')) else {
        return effect;
    };
    effect.is_product = true;
    effect.writes = sums.split(", ").filter(|sum| number_of(sum).is_some()).map(&mut *number).collect();
    // Behind the sums: both factors, the first of which may be a list, and whether the product adds.
    let rest = rest.trim_start_matches(", ");
    let behind_left = match rest.strip_prefix('{') {
        Some(list) => list.split_once("}, ").map(|(_, behind)| behind),
        None => rest.split_once(", ").map(|(_, behind)| behind),
    };
    let adds = behind_left.and_then(|behind| behind.split([',', ';']).nth(1)).map(str::trim);
    if adds != Some("0") {
        effect.reads = effect.writes.clone();
    }
    effect
}

/// Lines that run one after the other, and the blocks that may follow.
struct Block {
    lines: std::ops::Range<usize>,
    next: Vec<usize>,
}

impl Block {
    fn all(lines: &[&str]) -> Vec<Block> {
        let mut starts = vec![0];
        let mut labels: HashMap<&str, usize> = HashMap::new();
        for (at, line) in lines.iter().enumerate() {
            let (label, ends) = (label(line), Jump::of(line).is_some());
            let start = if label.is_some() { at } else { at + 1 };
            if (label.is_some() || ends) && starts.last() != Some(&start) {
                starts.push(start);
            }
            if let Some(label) = label {
                labels.insert(label, starts.len() - 1);
            }
        }
        let ends = starts.iter().skip(1).copied().chain([lines.len()]);
        let ranges: Vec<std::ops::Range<usize>> = starts.iter().zip(ends).map(|(&start, end)| start..end).collect();
        let count = ranges.len();
        let next = |index: usize, range: &std::ops::Range<usize>| {
            let jump = range.clone().last().and_then(|last| Jump::of(lines[last]));
            let mut next = Vec::new();
            if jump.as_ref().is_none_or(|jump| jump.goes_on) && index + 1 < count {
                next.push(index + 1);
            }
            match jump.map(|jump| jump.to) {
                Some(To::Label(label)) => next.extend(labels.get(label)),
                Some(To::Anywhere) => next.extend(0..count),
                Some(To::Nowhere) | None => {}
            }
            next
        };
        ranges
            .iter()
            .enumerate()
            .map(|(index, range)| Block { lines: range.clone(), next: next(index, range) })
            .collect()
    }
}

/// LLVM's label on a line. Those of inline assembly stay inside it.
fn label(line: &str) -> Option<&str> {
    line.trim().strip_suffix(':').filter(|label| label.starts_with("$L"))
}

/// How a line ends a block.
struct Jump<'p> {
    to: To<'p>,
    /// Whether the next line may follow.
    goes_on: bool,
}

enum To<'p> {
    Label(&'p str),
    /// One of several.
    Anywhere,
    Nowhere,
}

impl<'p> Jump<'p> {
    fn of(line: &'p str) -> Option<Jump<'p>> {
        let line = line.trim().strip_suffix(';')?;
        let (goes_on, line) = match line.strip_prefix('@') {
            Some(predicated) => (true, predicated.split_once(char::is_whitespace)?.1.trim()),
            None => (false, line),
        };
        let mut words = line.split_whitespace();
        let to = match words.next()? {
            "ret" | "exit" | "trap" => To::Nowhere,
            "bra" | "bra.uni" => To::Label(words.next().filter(|label| label.starts_with("$L"))?),
            branch if branch.starts_with("brx") => To::Anywhere,
            _ => return None,
        };
        Some(Jump { to, goes_on })
    }
}

/// Stores registers under a condition that never holds, of which ptxas does not know that: every GPU has multiprocessors.
fn read_to_no_effect(ptx: &mut String, registers: &[&str]) {
    if registers.is_empty() {
        return;
    }
    ptx.push_str("\t{ .reg .pred %never; .reg .b32 %processors; mov.u32 %processors, %nsmid;\n");
    ptx.push_str("\tsetp.eq.u32 %never, %processors, 0;\n");
    // Vectors have two or four elements.
    let (fours, rest) = registers.as_chunks::<4>();
    let (twos, ones) = rest.as_chunks::<2>();
    let vectors = fours.iter().map(|some| (".v4", &some[..])).chain(twos.iter().map(|some| (".v2", &some[..])));
    for (size, some) in vectors {
        let _ = writeln!(ptx, "\t@%never st.shared{size}.b32 [%processors], {{{}}};", some.join(", "));
    }
    for one in ones {
        let _ = writeln!(ptx, "\t@%never st.shared.b32 [%processors], {one};");
    }
    ptx.push_str("\t}\n");
}

#[cfg(test)]
mod tests {
    use super::read;

    const HEAD: &str = ".visible .entry k()\n{\n";
    const FILL: &str = "\tmov.b32 %acc0_0, 0;\n\tmov.b32 %acc0_1, 0;\n\tmov.b32 %acc0_2, %r9;\n";
    const ADD: &str = "\twgmma.mma_async.sync.aligned.k {%acc0_0, %acc0_1, %acc0_2}, {%r1, %r2}, %rd2, 1, 1, 1, 1;\n\
                       \twgmma.commit_group.sync.aligned;\n\
                       \twgmma.wait_group.sync.aligned 0;\n";
    const READ: &str = "\tmov.b32 %r10, %acc0_0;\n\tmov.b32 %r11, %acc0_1;\n\tmov.b32 %r12, %acc0_2;\n";
    const STORE: &str = "\tst.global.b32 [%rd3], %r10;\n\tst.global.v2.b32 [%rd4], {%r11, %r12};\n";
    const END: &str = "\tret;\n}\n";

    /// Which sums of a kernel get a reader; nothing else changes.
    fn readers(parts: &[&str]) -> String {
        let ptx = [&[HEAD], parts, &[END]].concat().concat();
        let text = read(ptx.clone());
        let is_new = |line: &&str| line.contains("%never") || *line == "\t}\n";
        assert_eq!(text.split_inclusive('\n').filter(|line| !is_new(line)).collect::<String>(), ptx);
        let stores = text.lines().filter_map(|line| line.trim().strip_prefix("@%never st.shared"));
        stores
            .map(|store| store.split_once("], ").expect("a value").1.trim_end_matches(';'))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn sums_that_are_read_need_no_reader() {
        assert_eq!(readers(&[FILL, ADD, READ, STORE]), "");
        assert_eq!(readers(&[FILL, ADD, ADD, READ, STORE]), "", "the second product reads those of the first");
    }

    #[test]
    fn sums_that_nobody_uses_are_read() {
        let some = "\tst.global.b32 [%rd3], %r10;\n";
        assert_eq!(readers(&[FILL, ADD, READ, some]), "{%acc0_1, %acc0_2}");
        // `%r1` is not `%r10`.
        assert_eq!(readers(&[FILL, ADD, READ, "\tst.global.b32 [%rd3], %r100;\n"]), "{%acc0_0, %acc0_1} %acc0_2");
        assert_eq!(readers(&[ADD, READ, some]), "", "they are filled nowhere");
        assert_eq!(readers(&[FILL, ADD]), "{%acc0_0, %acc0_1} %acc0_2");
    }

    #[test]
    fn sums_that_are_filled_before_they_are_read_are_read() {
        assert_eq!(readers(&[FILL, ADD, FILL, READ, STORE]), "{%acc0_0, %acc0_1} %acc0_2");
        let overwrites = ADD.replace("%rd2, 1", "%rd2, 0");
        assert_eq!(readers(&[FILL, ADD, &overwrites, READ, STORE]), "{%acc0_0, %acc0_1} %acc0_2");
        let perhaps = ADD.replace("%rd2, 1", "%rd2, %p1");
        assert_eq!(readers(&[FILL, ADD, &perhaps, READ, STORE]), "", "it may add to them");
        let described = ADD.replace("{%r1, %r2}", "%rd1");
        assert_eq!(readers(&[FILL, &described, &described, READ, STORE]), "");
    }

    #[test]
    fn one_of_several_ways_may_read_them() {
        let (to_end, end) = ("\t@%p1 bra \t$L__BB0_2;\n", "$L__BB0_2:\n");
        assert_eq!(readers(&[FILL, ADD, to_end, FILL, end, READ, STORE]), "", "where nothing fills them");
        let (start, back) = ("$L__BB0_1:\n", "\t@%p1 bra \t$L__BB0_1;\n");
        assert_eq!(readers(&[FILL, start, ADD, back, READ, STORE]), "", "in the next iteration");
        let around = "\tbra.uni \t$L__BB0_1;\n";
        assert_eq!(readers(&[start, FILL, ADD, around]), "{%acc0_0, %acc0_1} %acc0_2");
        assert_eq!(readers(&[start, ADD, FILL, back, READ, STORE]), "{%acc0_0, %acc0_1} %acc0_2");
        let inside = "again:\n\t@!over bra.uni again;\n";
        assert_eq!(readers(&[FILL, ADD, inside, READ, STORE]), "", "a loop inside of assembly");
        let out = "\t@%p1 ret;\n";
        assert_eq!(readers(&[FILL, ADD, out, READ, STORE]), "");
        let table = "\tbrx.idx \t%r5, $L_brx_0;\n";
        assert_eq!(readers(&[start, READ, STORE, end, FILL, ADD, table]), "", "wherever that goes");
    }

    #[test]
    fn readers_stand_where_the_product_is_done() {
        let wait = |pending: u32| format!("\twgmma.wait_group.sync.aligned {pending};\n");
        let begin = ADD.replace(&wait(0), "");
        let other = begin.replace("%acc0", "%acc1");
        // One that may go on is the other.
        let text = read([HEAD, FILL, &begin, &other, &wait(1), FILL, &wait(0), READ, STORE, END].concat());
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
        assert!(place(&wait(1)) < place("%never") && place("%never") < place(&wait(0)), "{text}");
        // A wait that lies ahead of the product, around a loop.
        let (start, back) = ("$L__BB0_1:\n", "\tbra.uni \t$L__BB0_1;\n");
        let text = read([HEAD, start, &wait(0), FILL, &begin, back, END].concat());
        assert!(text.contains("{%acc0_0, %acc0_1}") && text.find("%never") < text.find("%acc0_0, 0"), "{text}");
        // One that no way leads to.
        let (over, end) = ("\tbra.uni \t$L__BB0_2;\n", "$L__BB0_2:\n");
        let text = read([HEAD, FILL, &begin, over, &wait(0), FILL, end, &wait(0), FILL, END].concat());
        assert!(text.find("%never") > text.find("$L__BB0_2:"), "{text}");
        assert_eq!(readers(&[FILL, &begin]), "", "nobody waits");
    }

    #[test]
    fn kernels_without_such_products_stay() {
        assert_eq!(readers(&[FILL, READ]), "");
    }
}
