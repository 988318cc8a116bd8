//! Bounds checks that compare the distance of lanes from a scalar with limits: right for every scalar, length and
//! mask, in the emulator against the interpreter, and short.

mod support;

use kernel_codegen::{Compiled, Options, Target, compile};
use kernel_core::interp::{FaultKind, HostBuffer, HostScalar, run_kernel};
use kernel_core::ir::Bound;
use support::differential::{Agreement, compare, emulate};

const LANES: usize = 256;

/// How the lanes of the access are masked.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mask {
    /// `lane < n`, which is a limit like the buffer's.
    Prefix,
    /// By a tile of truth values from memory.
    Data,
    /// Not at all.
    None,
}

/// A kernel that reads (or writes) `x[base + lane]`, the base being of that dtype and read from memory.
fn kernel(base: &str, mask: Mask, store: bool) -> Bound {
    let wide = if base == "i64" { "%start: i64 = load %bases" } else { "%start: i32 = load %bases" };
    let (loaded, stored) = match mask {
        Mask::Prefix => ("%at, %below", "%at, %lane, %below"),
        Mask::Data => ("%at, %flags", "%at, %lane, %flags"),
        Mask::None => ("%at", "%at, %lane"),
    };
    let access = match store {
        true => format!("store {stored}"),
        false => format!(
            "%v: i32[{LANES}] = load {loaded}
            %os: *out[{LANES}] = splat %out
            %op: *out[{LANES}] = add_ptr %os, %lane
            store %op, %v"
        ),
    };
    let mutable = if store { "ptr_mut" } else { "ptr" };
    support::kernel(&format!(
        "kernel limits \"limits.rs\" safe bound {{
           param %x x: {mutable} i32
           param %bases bases: ptr {base}
           param %flagged flagged: ptr bool
           param %out out: ptr_mut i32
           param %n n: i32
           {wide}
           %lane: i32[{LANES}] = arange {{lo = 0, hi = {LANES}}}
           %ns: i32[{LANES}] = splat %n
           %below: bool[{LANES}] = cmp.lt %lane, %ns
           %fs: *flagged[{LANES}] = splat %flagged
           %fp: *flagged[{LANES}] = add_ptr %fs, %lane
           %flags: bool[{LANES}] = load %fp
           %xp: *x = add_ptr %x, %start
           %xs: *x[{LANES}] = splat %xp
           %at: *x[{LANES}] = add_ptr %xs, %lane
           {access}
           return
         }}"
    ))
}

fn compiled(kernel: &Bound, num_warps: u32) -> Compiled {
    let options = Options { num_warps, ..Options::default() };
    compile(kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Where a scalar may begin to matter: around zero, the lanes, the length, and the ends of 32 and of 64 bits.
fn bases(len: i64, wide: bool) -> Vec<i64> {
    let lanes = LANES as i64;
    let near = [0, -1, -2, 1, 7, 1 - lanes, -lanes, -lanes - 1, len - lanes, len - lanes + 1, len - 1, len, len + 1];
    let narrow = [i32::MIN, i32::MIN + 1, i32::MAX, i32::MAX - 255, i32::MAX - 256].map(i64::from);
    let beyond = [1 << 31, (1 << 31) + 3, -(1 << 31) - 200, (1 << 32) - 1, 1 << 32, (1 << 32) + 100, -(1 << 32)];
    let ends = [i64::MIN, i64::MIN + 1, i64::MIN + 300, i64::MAX, i64::MAX - 255, i64::MAX - 256];
    let mut all: Vec<i64> = near.into_iter().chain(narrow).collect();
    if wide {
        all.extend(beyond.into_iter().chain(ends));
    }
    all
}

struct Case {
    base: i64,
    len: usize,
    n: i32,
}

/// Runs one launch both ways: equal buffers, a report where the interpreter has a fault, and a true one.
fn check(kernel: &Bound, compiled: &Compiled, mask: Mask, wide: bool, case: &Case) {
    let start = if wide { HostBuffer::from(vec![case.base]) } else { HostBuffer::from(vec![case.base as i32]) };
    let flags: Vec<bool> = (0..LANES).map(|lane| (lane * lane + lane / 3) % 5 < 3).collect();
    let admitted = |lane: usize| match mask {
        Mask::Prefix => (lane as i32) < case.n,
        Mask::Data => flags[lane],
        Mask::None => true,
    };
    let x: Vec<i32> = (0..case.len as i32).map(|i| i * 3 + 1).collect();
    let buffers = [x.into(), start, flags.clone().into(), vec![-7i32; LANES].into()];
    let what = format!("base {}, length {}, n {}, {mask:?}", case.base, case.len, case.n);
    let mut expected = buffers.to_vec();
    let fault = run_kernel(kernel, &mut expected, &[HostScalar::from(case.n)], [1, 1, 1]).err();
    let (found, record) = emulate(kernel, compiled, &buffers, &[case.n], 1, 1);
    for (want, got) in expected.iter().zip(&found) {
        compare(want, got, Agreement::Exact, &what);
    }
    let field = |at: usize| i64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(record[0] != 0, fault.is_some(), "{what}: {fault:?}");
    let Some(fault) = fault else { return };
    let FaultKind::OutOfBounds { offset, .. } = fault.kind else { panic!("{what}: {fault:?}") };
    assert_eq!(field(32), case.len as i64, "{what}");
    match mask {
        // The limits name the very first lane.
        Mask::Prefix => assert_eq!(field(24), offset, "{what}"),
        Mask::Data | Mask::None => {
            let lane = field(24).wrapping_sub(case.base);
            assert!((0..LANES as i64).contains(&lane) && admitted(lane as usize), "{what}: {}", field(24));
            assert!(!(0..case.len as i64).contains(&field(24)), "{what}: {}", field(24));
        }
    }
}

fn check_all(base: &str, mask: Mask, store: bool) {
    let (kernel, wide) = (kernel(base, mask, store), base == "i64");
    let compiled = compiled(&kernel, 1);
    let limits: &[i32] = if mask == Mask::Prefix { &[i32::MIN, 0, 1, 100, 256, i32::MAX] } else { &[0] };
    for len in [0, 1, 200, 1000] {
        for base in bases(len as i64, wide) {
            for &n in limits {
                check(&kernel, &compiled, mask, wide, &Case { base, len, n });
            }
        }
    }
}

#[test]
fn limits_under_a_mask_are_exact() {
    check_all("i32", Mask::Prefix, false);
    check_all("i64", Mask::Prefix, false);
}

#[test]
fn limits_of_stores_are_exact() {
    check_all("i32", Mask::Prefix, true);
    check_all("i64", Mask::Data, true);
}

#[test]
fn limits_beside_a_mask_are_exact() {
    check_all("i32", Mask::Data, false);
    check_all("i64", Mask::Data, false);
}

#[test]
fn limits_without_a_mask_are_exact() {
    check_all("i32", Mask::None, false);
    check_all("i64", Mask::None, false);
}

/// Eight single accesses: one 32-bit comparison each (and one each for the mask of the store behind them), instead of
/// 64-bit ones with their own memory of failures.
#[test]
fn a_lane_is_checked_by_one_comparison_of_32_bits() {
    let compiled = compiled(&kernel("i32", Mask::Prefix, false), 1);
    let count = |needle: &str| support::count(&compiled.ptx, needle);
    assert_eq!(compiled.report().accesses.iter().filter(|access| access.instructions == 8).count(), 2);
    assert_eq!(count("setp.lt.u32") + count("setp.gt.u32") + count("setp.ge.u32"), 8, "{}", compiled.ptx);
    let wide = ["setp.lt.u64", "setp.gt.u64", "setp.ge.u64", "setp.le.u64"].map(count);
    assert_eq!(wide, [0; 4], "{}", compiled.ptx);
}
