//! The directive `.minnctapersm` of a kernel's PTX, changed after the fact.
//!
//! Whether ptxas can make the room it was asked for (`kernel_codegen::occupancy`) shows only when it has compiled the
//! kernel. Then another number is tried, and the code generator need not run again for it.

/// PTX that asks for room for so many programs per multiprocessor, or leaves the number of registers to ptxas.
///
/// The directive stands between the parameters of an entry and its body; nothing else changes.
///
/// ```
/// use kernel_core::backend::nvidia::with_min_programs;
/// let ptx = ".visible .entry k(\n)\n.reqntid 512\n.minnctapersm 2\n{\n\tret;\n}\n";
/// assert_eq!(with_min_programs(ptx, None), ".visible .entry k(\n)\n.reqntid 512\n{\n\tret;\n}\n");
/// assert_eq!(with_min_programs(ptx, Some(1)), ptx.replace("sm 2", "sm 1"));
/// ```
pub fn with_min_programs(ptx: &str, programs: Option<u32>) -> String {
    let mut changed = String::with_capacity(ptx.len() + 32);
    let mut in_header = false;
    for line in ptx.split_inclusive('\n') {
        let text = line.trim();
        let first = text.split_whitespace().next();
        // `.visible .entry name(`; linkage directives may come first.
        in_header |= text.starts_with('.') && text.split_whitespace().any(|word| word == ".entry");
        if in_header && first == Some(DIRECTIVE) {
            continue;
        }
        if in_header && text == "{" {
            if let Some(programs) = programs {
                changed.push_str(&format!("{DIRECTIVE} {programs}\n"));
            }
            in_header = false;
        }
        changed.push_str(line);
    }
    changed
}

const DIRECTIVE: &str = ".minnctapersm";

#[cfg(test)]
mod tests {
    use super::with_min_programs;

    #[test]
    fn only_headers_of_entries_change() {
        let text = "// .entry {\n.func (.param .b32 r) f(\n)\n{\n\t// .minnctapersm 3\n\tret;\n}\n\
                    .visible .entry a(\n\t.param .u64 .ptr .global .align 16 a_param_0\n)\n.reqntid 32\n{\n\t{\n\t}\n}\n\
                    .weak .entry b(\n)\n.minnctapersm 7\n.reqntid 64\n{\n}\n";
        let asked = with_min_programs(text, Some(12));
        assert_eq!(asked.matches(".minnctapersm 12\n{\n").count(), 2, "{asked}");
        assert!(!asked.contains("sm 7") && asked.contains("\t// .minnctapersm 3\n"), "{asked}");
        let without = with_min_programs(&asked, None);
        assert_eq!(without, text.replace(".minnctapersm 7\n", ""));
        // Once more changes nothing, and what has no entry stays as it is.
        assert_eq!(with_min_programs(&asked, Some(12)), asked);
        assert_eq!(with_min_programs("// .minnctapersm 1\n{", Some(2)), "// .minnctapersm 1\n{");
    }
}
