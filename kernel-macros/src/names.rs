//! Names that are nearly right, and names that are free.

use kernel_core::ir::Func;

/// Names longer than that are not compared: the time of a comparison grows with the square of the length.
const MAX_LENGTH: usize = 64;

/// The name of a constant in the IR, where each is its own: `a::LIMIT`, `b::LIMIT` and `LIMIT as i32` are three.
pub fn free_name(func: &Func, name: &str) -> String {
    let taken = |name: &str| {
        let params = func.params.iter().map(|p| &p.name);
        params.chain(func.const_params.iter().map(|p| &p.name)).any(|other| other == name)
    };
    let numbered = (2..).map(|i| format!("{name}_{i}"));
    std::iter::once(name.to_string()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}

/// The candidate closest to `name`, if one is close enough to be meant.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > MAX_LENGTH {
        return None;
    }
    let allowed = (length / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= allowed)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(d, candidate)| *d <= allowed && *d < candidate.chars().count())
        .min_by_key(|(d, _)| *d)
        .map(|(_, candidate)| candidate)
}

/// The dtype that C, Python or Triton calls by that name.
pub fn dtype_of_other_languages(name: &str) -> Option<&'static str> {
    Some(match name {
        "float" | "float32" | "fp32" | "single" => "f32",
        "double" | "float64" | "fp64" => "f64",
        "half" | "float16" | "fp16" => "f16",
        "bfloat16" | "bfloat" => "bf16",
        "F8E4M3" | "float8_e4m3fn" | "float8e4nv" | "fp8e4m3" | "e4m3" | "f8e4m3fn" | "fp8" => "f8e4m3",
        "F8E5M2" | "float8_e5m2" | "float8e5" | "fp8e5m2" | "e5m2" => "f8e5m2",
        "int" | "int32" => "i32",
        "long" | "int64" | "i128" => "i64",
        "short" | "int16" => "i16",
        "char" | "int8" => "i8",
        "uint" | "uint32" => "u32",
        "uint64" | "u128" => "u64",
        "uint16" => "u16",
        "byte" | "uint8" => "u8",
        "boolean" | "int1" => "bool",
        _ => return None,
    })
}

/// Why an 8-bit float of other GPUs is left out, if that is what the name means.
pub fn foreign_float8(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches("float8_").trim_start_matches("float8").trim_start_matches("f8");
    let name = name.trim_start_matches("fp8");
    let foreign = ["e4b15", "e4b8", "e5b16", "e4m3b15", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz"];
    foreign.contains(&name).then_some("8-bit floats that only older or other GPUs compute with are left out")
}

/// Edit distance in which a swap of neighbours counts once (optimal string alignment), ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substitution = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            next[j] = substitution.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = row;
        row = next;
    }
    row[b.len()]
}

/// Whether `name` is spelled like a constant: upper-case letters, digits and underscores.
pub fn is_screaming(name: &str) -> bool {
    name.chars().any(|c| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// `add_row` as `AddRow`, and `_2d` as `_2d`, which no letter begins.
pub fn camel_case(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    let mut out = String::with_capacity(name.len());
    for part in name.split('_').filter(|p| !p.is_empty()) {
        let mut chars = part.chars();
        out.extend(chars.next().into_iter().flat_map(char::to_uppercase));
        out.push_str(chars.as_str());
    }
    if out.starts_with(|c: char| c.is_numeric()) { format!("_{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_found() {
        assert_eq!(closest("laod", ["load", "store"]), Some("load"));
        assert_eq!(closest("offsts", ["offsets", "mask"]), Some("offsets"));
        assert_eq!(closest("x", ["load", "store"]), None);
        assert_eq!(closest("frobnicate", ["load", "store"]), None);
    }

    #[test]
    fn struct_names_are_camel_case() {
        assert_eq!(camel_case("add_row2"), "AddRow2");
        assert_eq!(camel_case("r#match"), "Match");
        assert_eq!(camel_case("_2d_sum"), "_2dSum");
        assert_eq!(camel_case("_"), "");
        assert!(is_screaming("BLOCK_2") && !is_screaming("Block") && !is_screaming("_"));
    }
}
