//! Sums of products that nobody reads, kept from an error of NVIDIA's assembler.
//!
//! ```text
//! mov.b32 %acc1_2, 0;                              CS2R R42, SRZ
//! LOOP: wgmma.mma_async.. {.., %acc1_2, ..}, ..    IGMMA R40, ..                    writes R42 too
//!       mov.b32 %r9, %acc1_2;
//!       ..                                         nobody needs %r9
//!       mov.b32 %acc1_2, 0;                                                         there is no instruction for it
//!       @%p bra LOOP;
//! ```
//!
//! A sum that nobody reads is none that an asynchronous product writes, for ptxas 13.0 to 13.5 at least: the register is taken
//! to hold what it held before, and filling it with that again is left out. The next product adds to the sum. Such sums come of
//! masks: LLVM knows of some rows of a tile that they are multiplied by zero in every iteration.
//!
//! So each is also read by an instruction that never runs, of which ptxas does not know that:
//!
//! ```text
//! @%never st.shared.v4.b32 [%processors], {%r9, ..};
//! ```
//!
//! What is read is known behind LLVM alone, and so this is about PTX. Registers that are filled nowhere need no reader: the
//! first product of their sums overwrites them.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The PTX, in which all sums that may be filled again are read.
pub(crate) fn read(ptx: String) -> String {
    if !ptx.contains("wgmma.mma_async") {
        return ptx;
    }
    let filled: HashSet<&str> = ptx.lines().filter_map(|line| number_of(mov(line)?.0)).collect();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for line in ptx.lines() {
        if let Some((to, _)) =
            mov(line).filter(|(_, from)| number_of(from).is_some_and(|number| filled.contains(number)))
        {
            uses.insert(to, 0);
        }
    }
    if uses.is_empty() {
        return ptx;
    }
    for word in ptx.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$'))) {
        if let Some(count) = uses.get_mut(word) {
            *count += 1;
        }
    }
    let mut read = String::with_capacity(ptx.len());
    let mut unread: Vec<&str> = Vec::new();
    for line in ptx.split_inclusive('\n') {
        match mov(line).filter(|(_, from)| number_of(from).is_some()) {
            // The line itself is one of its uses.
            Some((to, _)) if uses.get(to) == Some(&1) => unread.push(to),
            Some(_) => {}
            None => read_to_no_effect(&mut read, &std::mem::take(&mut unread)),
        }
        read.push_str(line);
    }
    read
}

/// The registers of a line that copies one to another.
fn mov(line: &str) -> Option<(&str, &str)> {
    line.trim().strip_prefix("mov.b32")?.trim().strip_suffix(';')?.split_once(", ")
}

/// The number of a register of sums in its bank.
fn number_of(register: &str) -> Option<&str> {
    Some(register.strip_prefix("%acc")?.split_once('_')?.1)
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

    /// A kernel with a product, whose bank is filled or not, and what is done with the sums.
    fn kernel(filled: bool, used: &str) -> String {
        let mut lines = vec![".visible .entry k()".to_string(), "{".to_string()];
        if filled {
            lines.extend((0..8).map(|number| format!("\tmov.b32 %acc1_{number}, 0;")));
        }
        lines.push("\twgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%acc0_0}, %rd1, %rd2, 1;".to_string());
        lines.extend((0..8).map(|number| format!("\tmov.b32 %r1{number}, %acc0_{number};")));
        lines.push("\t// end inline asm".to_string());
        lines.extend([used.to_string(), "\tret;".to_string(), "}".to_string()]);
        lines.join("\n") + "\n"
    }

    #[test]
    fn sums_that_nobody_reads_are_read() {
        let all = "\tst.global.v4.b32 [%rd3], {%r10, %r11, %r12, %r13};\n\tst.global.v4.b32 [%rd4], {%r14, %r15, %r16, %r17};";
        assert_eq!(read(kernel(true, all)), kernel(true, all), "all are read");
        let some = "\tst.global.b32 [%rd3], %r10;";
        assert_eq!(read(kernel(false, some)), kernel(false, some), "none is filled");
        let text = read(kernel(true, some));
        let reader = "\t@%never st.shared.v4.b32 [%processors], {%r11, %r12, %r13, %r14};\n\
                      \t@%never st.shared.v2.b32 [%processors], {%r15, %r16};\n\
                      \t@%never st.shared.b32 [%processors], %r17;\n\t}\n\t// end inline asm\n";
        assert!(text.contains(reader), "{text}");
        let without: String =
            text.split_inclusive('\n').filter(|line| !line.contains("never") && *line != "\t}\n").collect();
        assert_eq!(without, kernel(true, some), "nothing else changes");
    }

    #[test]
    fn names_are_not_taken_for_others() {
        // `%r1` is not read where `%r10` is.
        let text = kernel(true, "\tst.global.b32 [%rd3], %r100;").replace("%r10,", "%r1,");
        assert!(read(text).contains("{%r1, %r11, %r12, %r13}"));
    }

    #[test]
    fn kernels_without_such_products_stay() {
        let text = "\tmov.b32 %acc0_0, 0;\n\tmov.b32 %r1, %acc0_0;\n".to_string();
        assert_eq!(read(text.clone()), text);
    }
}
