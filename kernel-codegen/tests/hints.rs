//! Promises make one wide access of what would be several, and cost an `unsafe` kernel nothing.

mod support;

use kernel_codegen::Compiled;
use support::count;

/// `out[i] = x[offsets]` in tiles of 1024: what comes before the load gives `%offs`.
fn kernel(safety: &str, offsets: &str) -> String {
    format!(
        "kernel hints \"hints.rs\" {safety} bound {{
           param %x x: ptr f32 {{div = 16, len_div = 16}}
           param %index index: ptr i32 {{div = 16, len_div = 16}}
           param %out out: ptr_mut f32 {{div = 16, len_div = 16}}
           param %n n: i32
           %i: i32[1024] = arange {{lo = 0, hi = 1024}}
           %zero: i32 = const 0
           %four: i32 = const 4
           {offsets}
           %xs: *x[1024] = splat %x
           %xp: *x[1024] = add_ptr %xs, %offs
           %v: f32[1024] = load %xp
           %os: *out[1024] = splat %out
           %op: *out[1024] = add_ptr %os, %i
           store %op, %v
           return
         }}"
    )
}

fn compiled(safety: &str, offsets: &str) -> Compiled {
    let compiled = support::hopper(&kernel(safety, offsets), 8);
    support::assemble(&compiled);
    compiled
}

/// Loads of `x` by one thread, which has four elements of it.
fn loads(compiled: &Compiled) -> (usize, usize) {
    let scalar = count(&compiled.ptx, "ld.global.nc.b32");
    (count(&compiled.ptx, "ld.global.nc.v4.b32"), scalar)
}

const START: &str = "%ns: i32[1024] = splat %start\n %offs: i32[1024] = add %ns, %i";

#[test]
fn a_promised_start_makes_accesses_wide() {
    let unknown = format!("%start: i32 = add %n, %zero\n {START}");
    let promised = format!("%start: i32 = hint %n {{kind = contiguous, multiple = 4, axis = 0}}\n {START}");
    let assumed = format!(
        "%rest: i32 = rem %n, %four\n %c: bool = cmp.eq %rest, %zero\n %h: bool = hint %c {{kind = holds, axis = 0}}
        %start: i32 = add %n, %four\n {START}"
    );
    let asserted = assumed.replace("%h: bool = hint %c {kind = holds, axis = 0}", "assert %c {message = \"\"}");
    for safety in ["unsafe", "safe"] {
        assert_eq!(loads(&compiled(safety, &unknown)), (0, 4), "{safety}");
        for text in [&promised, &assumed, &asserted] {
            assert_eq!(loads(&compiled(safety, text)), (1, 0), "{safety}: {text}");
        }
    }
    // Of an argument the host decides, so that nothing is left of the check.
    let branches = |safety: &str, text: &str| count(&compiled(safety, text).ptx, "bra");
    assert_eq!((branches("unsafe", &promised), branches("safe", &promised)), (0, 0));
    // Of what memory holds each program checks, where it is not believed.
    let read = promised.replace("%start: i32 = hint %n", "%m: i32 = load %index\n %start: i32 = hint %m");
    let believed = read.replace("axis = 0}", "axis = 0, believed = true}");
    for text in [&read, &believed] {
        assert_eq!(loads(&compiled("safe", text)).0, 1, "{text}");
    }
    assert!(branches("safe", &read) > branches("safe", &believed));
}

#[test]
fn promised_runs_of_offsets_from_memory_make_accesses_wide() {
    let read = "%is: *index[1024] = splat %index\n %ip: *index[1024] = add_ptr %is, %i\n %o: i32[1024] = load %ip";
    let unknown = format!("{read}\n %offs: i32[1024] = add %o, %i");
    let aligned = format!("{read}\n %offs: i32[1024] = hint %o {{kind = contiguous, n = 8, multiple = 4, axis = 0}}");
    let runs = aligned.replace(", multiple = 4", "");
    // The offsets themselves are one wide load.
    assert_eq!(loads(&compiled("unsafe", &unknown)), (1, 4));
    assert_eq!(loads(&compiled("unsafe", &runs)), (1, 4), "runs that begin anywhere");
    assert_eq!(loads(&compiled("unsafe", &aligned)), (2, 0));
    assert_eq!(loads(&compiled("safe", &aligned)), (2, 0));
}

#[test]
fn promises_of_every_kind_assemble_for_every_target() {
    let read = "%is: *index[1024] = splat %index\n %ip: *index[1024] = add_ptr %is, %i\n %o: i32[1024] = load %ip";
    let hints = "%a: i32[1024] = hint %o {kind = contiguous, n = 32, multiple = 32, axis = 0}
        %b: i32[1024] = hint %a {kind = contiguous, multiple = 1, axis = 0}
        %t: i32[32, 32] = reshape %b
        %u: i32[32, 32] = hint %t {kind = constant, n = 8, axis = 0}
        %offs: i32[1024] = reshape %u";
    for safety in ["safe", "unsafe"] {
        support::compiles_everywhere(&kernel(safety, &format!("{read}\n {hints}")));
    }
}
