//! Regions for single elements, and PTX that kernels write: generated code against the interpreter, what of it is moved,
//! merged and dropped, and what ptxas says of it.

mod support;

use kernel_core::backend::nvidia::{refused_text, text_marker};
use kernel_core::interp::HostBuffer;
use kernel_core::ir::{DType, InlinePtx};
use support::differential::{Agreement, Given, agrees_in_warps, from_bytes, ints, noise};
use support::{assemble, compiles_everywhere, count, hopper};

/// A kernel that stores the tile `%r` of `to`, made of the tile `%v` of `from`.
fn kernel(safety: &str, (from, to): (DType, DType), numel: usize, body: &str) -> String {
    format!(
        "kernel map \"src/map.rs\" {safety} bound {{
         param %x x: ptr {from}
         param %out out: ptr_mut {to}
         %i: i32[{numel}] = arange {{lo = 0, hi = {numel}}}
         %xs: *x[{numel}] = splat %x
         %xp: *x[{numel}] = add_ptr %xs, %i
         %v: {from}[{numel}] = load %xp
         {body}
         %os: *out[{numel}] = splat %out
         %op: *out[{numel}] = add_ptr %os, %i
         store %op, %r
         return
         }}"
    )
}

fn agrees(text: &str, buffers: &[HostBuffer]) {
    let given = Given { buffers, tensors: &[], scalars: &[] };
    agrees_in_warps(&[1, 4, 8], &support::kernel(text), &given, 1, Agreement::Exact);
}

/// Any bits.
fn elements(dtype: DType, len: usize) -> HostBuffer {
    let bytes = dtype.bytes() as usize;
    let all: Vec<u8> = noise(len, 3)
        .flat_map(|x| (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[..bytes].to_vec())
        .collect();
    from_bytes(dtype, &all)
}

/// Euclid's algorithm, of each element and its index.
const EUCLID: &str = "%r: i32[NUMEL] = map %v, %i (%a: i32, %b: i32) {
    %zero: i32 = const 0
    %g: i32, %h: i32 = while %a, %b (%p: i32, %q: i32) {
      %more: bool = cmp.ne %q, %zero
      yield %more
    } do (%c: i32, %d: i32) {
      %rest: i32 = rem %c, %d
      yield %d, %rest
    }
    %small: bool = cmp.lt %g, %zero
    %e: i32 = if %small {
      %f: i32 = neg %g
      yield %f
    } else {
      yield %g
    }
    yield %e
  }";

#[test]
fn threads_take_ways_of_their_own() {
    for numel in [1, 16, 256, 2048] {
        let text = kernel("safe", (DType::I32, DType::I32), numel, &EUCLID.replace("NUMEL", &numel.to_string()));
        agrees(&text, &[ints(numel, 5), HostBuffer::zeros(DType::I32, numel)]);
    }
    compiles_everywhere(&kernel("safe", (DType::I32, DType::I32), 1024, &EUCLID.replace("NUMEL", "1024")));
}

/// Behind such a region all threads are together: a reduction follows, inside a loop.
#[test]
fn threads_meet_behind_the_region() {
    let body = EUCLID.replace("NUMEL", "256").replace("%r:", "%m:");
    let body = format!(
        "%zero0: i32 = const 0
         %three: i32 = const 3
         %one0: i32 = const 1
         %s: i32 = for %zero0, %three, %one0, %zero0 (%k: i32, %acc: i32) {{
           {body}
           %sum: i32 = reduce %m {{axis = 0}} (%y: i32, %z: i32) {{
             %w: i32 = add %y, %z
             yield %w
           }}
           %next: i32 = add %acc, %sum
           yield %next
         }}
         %r: i32[256] = splat %s"
    );
    let text = kernel("safe", (DType::I32, DType::I32), 256, &body);
    agrees(&text, &[ints(256, 5), HostBuffer::zeros(DType::I32, 256)]);
}

/// Negation by PTX of every pack, where that is the complement of each bit.
fn complement(dtype: DType, pack: u8) -> String {
    let registers = InlinePtx { text: String::new(), pack, pure: true }.registers(dtype).unwrap();
    let bits = match registers.register.letter() {
        'h' => 16,
        'r' | 'f' => 32,
        _ => 64,
    };
    let count = registers.count;
    (0..count).map(|i| format!("not.b{bits} ${i}, ${};", count + i)).collect()
}

#[test]
fn registers_hold_the_elements() {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        let bits = dtype.bits();
        let int = DType::from_name(&format!("u{bits}")).unwrap();
        for (pack, numel) in [(1, 64), (2, 64), (4, 64), (8, 16), (4, 1024), (8, 2048)] {
            let ptx = complement(dtype, pack);
            // A bitcast to the own dtype is one too.
            let body = format!(
                "%r: {dtype}[{numel}] = map %v {{ptx = pure(\"{ptx}\", {pack})}} (%a: {dtype}) {{
                   %b: {int} = bitcast %a
                   %c: {int} = not %b
                   %d: {dtype} = bitcast %c
                   yield %d
                 }}"
            );
            let text = kernel("safe", (dtype, dtype), numel, &body);
            agrees(&text, &[elements(dtype, numel), HostBuffer::zeros(dtype, numel)]);
        }
    }
}

#[test]
fn small_integers_are_extended() {
    for (dtype, shift) in [(DType::I8, "shr.s16"), (DType::U8, "shr.u16"), (DType::I16, "shr.s16")] {
        let body = format!(
            "%r: {dtype}[128] = map %v {{ptx = pure(\"{shift} $0, $1, 3;\", 1)}} (%a: {dtype}) {{
               %n: {dtype} = const 3
               %b: {dtype} = shr %a, %n
               yield %b
             }}"
        );
        agrees(&kernel("safe", (dtype, dtype), 128, &body), &[elements(dtype, 128), HostBuffer::zeros(dtype, 128)]);
    }
}

/// Several results of several dtypes, by several instructions: none lies in the register of an argument that is still read.
#[test]
fn results_of_several_instructions_are_kept_apart() {
    let body = "%r: i32[256], %t: i64[256] = map %v, %i {ptx = pure(\"{ .reg .b64 %t; add.s32 $0, $2, $3; sub.s32 $0, $0, $3; cvt.s64.s32 %t, $2; add.s64 $1, %t, %t; }\", 1)} (%a: i32, %b: i32) {
        %w: i64 = cast %a
        %d: i64 = add %w, %w
        yield %a, %d
      }
      %n: i32[256] = cast %t
      %r2: i32[256] = add %r, %n";
    let text = kernel("safe", (DType::I32, DType::I32), 256, body).replace("store %op, %r\n", "store %op, %r2\n");
    agrees(&text, &[ints(256, 5), HostBuffer::zeros(DType::I32, 256)]);
    let ptx = hopper(&text, 4).ptx;
    let mut sums = 0;
    for line in ptx.lines().filter(|line| line.contains("{ .reg .b64 %t;")) {
        let operands: Vec<&str> =
            line.split("add.s32 ").nth(1).unwrap().split(';').next().unwrap().split(", ").collect();
        assert!(operands[0] != operands[1] && operands[0] != operands[2], "{line}");
        sums += 1;
    }
    assert_eq!(sums, 2, "{ptx}");
}

fn counted(kind: &str, uses: &str) -> String {
    let one = |name: &str| {
        format!(
            "%{name}: i32[128] = map %v {{ptx = {kind}(\"xor.b32 $0, $1, 77;\", 1)}} (%a{name}: i32) {{
               %c{name}: i32 = const 77
               %b{name}: i32 = xor %a{name}, %c{name}
               yield %b{name}
             }}\n"
        )
    };
    kernel("safe", (DType::I32, DType::I32), 128, &format!("{}{}{uses}", one("p"), one("q")))
}

#[test]
fn what_is_pure_is_merged_and_dropped_and_what_is_not_stays() {
    let sum = "%r: i32[128] = add %p, %q";
    for (kind, uses, times) in [
        ("pure", sum, 1),
        ("ordered", sum, 2),
        ("pure", "%r: i32[128] = add %v, %v", 0),
        ("ordered", "%r: i32[128] = add %v, %v", 2),
    ] {
        let text = counted(kind, uses);
        let compiled = hopper(&text, 4);
        assert_eq!(count(&compiled.ptx, "xor.b32"), times, "{kind}\n{}", compiled.ptx);
        agrees(&text, &[ints(128, 5), HostBuffer::zeros(DType::I32, 128)]);
        assemble(&compiled);
    }
}

/// No access moves across PTX that is not pure.
#[test]
fn accesses_stay_on_their_side() {
    let map = |name: &str| {
        format!(
            "%{name}: i32[128] = map %i {{ptx = KIND(\"membar.cta; mov.b32 $0, $1;\", 1)}} (%a{name}: i32) {{
               yield %a{name}
             }}\n"
        )
    };
    let body = format!(
        "%os0: *out[128] = splat %out
         %op0: *out[128] = add_ptr %os0, %i
         %l1: i32[128] = load %op0
         {}%l2: i32[128] = load %op0
         %sum: i32[128] = add %l1, %l2
         %r: i32[128] = add %sum, %m",
        map("m")
    );
    let loads = |kind: &str| {
        let text = kernel("unsafe", (DType::I32, DType::I32), 128, &body).replace("KIND", kind);
        let ptx = hopper(&text, 4).ptx;
        let (before, after) = ptx.split_once("membar.cta").unwrap();
        (count(before, "ld.global"), count(after, "ld.global"))
    };
    let (before, after) = loads("ordered");
    assert!(before >= 1 && after == 1, "{before} before, {after} after");
    let (before, after) = loads("pure");
    assert_eq!(before + after, 2, "what is pure is passed: both loads are one, beside that of the input");
}

#[test]
fn a_text_that_ptxas_refuses_is_found() {
    let body = "%r: i32[128] = map %v {ptx = pure(\"add.rn.s32 $0, $1, $1;\", 1)} @7:9+10 (%a: i32) {
        %b: i32 = add %a, %a
        yield %b
      }";
    let compiled = hopper(&kernel("safe", (DType::I32, DType::I32), 128, body), 4);
    let line = compiled.ptx.lines().position(|line| line.contains("add.rn.s32")).unwrap() + 1;
    let found =
        refused_text(&compiled.ptx, &format!("ptxas application ptx input, line {line}; error : Illegal modifier"));
    let found = found.unwrap();
    assert_eq!(found.place, "src/map.rs:7:9");
    assert!(found.text.starts_with("add.rn.s32 %r"), "{}", found.text);
    // What ptxas itself says leads there, too.
    match std::panic::catch_unwind(|| assemble(&compiled)) {
        Ok(None) => {}
        Ok(Some(_)) => panic!("ptxas takes {}", compiled.ptx),
        Err(panic) => {
            let log = panic.downcast::<String>().unwrap();
            assert_eq!(refused_text(&compiled.ptx, &log).map(|found| found.place).as_deref(), Some("src/map.rs:7:9"));
        }
    }
    // A dollar in the name of a file is no operand.
    let mut func = compiled.placed.func().clone();
    func.files.set_own("a$1.rs");
    assert_eq!(text_marker(&func, kernel_core::ir::Span::new(1, 2, 3)), "// inline_ptx at a$$1.rs:1:2");
}
