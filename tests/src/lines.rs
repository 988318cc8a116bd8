//! Line information in PTX, taken away again.

/// The PTX without directives of line information: `.loc`, `.file`, and the section with the names of functions.
pub fn without_lines(ptx: &str) -> String {
    let mut kept = String::with_capacity(ptx.len());
    let mut in_names = false;
    for line in ptx.split_inclusive('\n') {
        let text = line.trim();
        in_names |= text.starts_with(".section\t.debug_str");
        if !in_names && !text.starts_with(".loc\t") && !text.starts_with(".file\t") {
            kept.push_str(line);
        }
        in_names &= text != "}";
    }
    kept
}

/// The places that the PTX says code is from, as `file:line:column`, each once and in their order; of what was inlined
/// with the call: `half.rs:3:5 in half at add.rs:8:9`.
pub fn places(ptx: &str) -> Vec<String> {
    let files = |number: &str| {
        let named = ptx.lines().filter_map(|line| line.trim().strip_prefix(".file\t"));
        let name = named.filter_map(|line| line.split_once(' ')).find(|(known, _)| *known == number);
        name.map_or_else(String::new, |(_, name)| name.trim_matches('"').to_string())
    };
    let place = |text: &str| match text.split(' ').collect::<Vec<_>>()[..] {
        [file, line, column] => format!("{}:{line}:{column}", files(file)),
        _ => panic!("no place: {text}"),
    };
    let name = |label: &str| {
        let bytes = ptx.split_once(&format!("{label}:\n.b8 ")).and_then(|(_, rest)| rest.lines().next());
        let bytes = bytes.into_iter().flat_map(|bytes| bytes.split(',')).filter_map(|byte| byte.parse().ok());
        String::from_utf8(bytes.take_while(|byte| *byte != 0).collect()).unwrap_or_default()
    };
    let mut places = Vec::new();
    for text in ptx.lines().filter_map(|line| line.trim().strip_prefix(".loc\t")) {
        let found = match text.split(", ").collect::<Vec<_>>()[..] {
            [own] => place(own),
            [own, function, call] => {
                let function = name(function.trim_start_matches("function_name "));
                format!("{} in {function} at {}", place(own), place(call.trim_start_matches("inlined_at ")))
            }
            _ => panic!("no place: {text}"),
        };
        if !places.contains(&found) {
            places.push(found);
        }
    }
    places
}
