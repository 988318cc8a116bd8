//! Known cases of axis analysis: one line of tile IR after another, and what is known of the last.

use kernel_core::ir::{BinaryOp, Func, Op};

use super::axis::{AxisAnalysis, AxisInfo, DimInfo, MAX_DIVISOR};

fn parse(body: &str) -> Func {
    let text = format!(
        "kernel k \"k.rs\" unsafe bound {{
           param %x x: ptr f32 {{div = 16}}
           param %bytes bytes: ptr u8
           param %n n: i32 {{div = 16}}
           param %m m: i32
           param %one one: i32 {{one}}
           param %len len: length x {{div = 8}}
           %pid: i32 = program_id {{axis = 0}}
           %k1024: i32 = const 1024
           %k4: i32 = const 4
           %i: i32[1024] = arange {{lo = 0, hi = 1024}}
           %ns: i32[1024] = splat %n
           %ms: i32[1024] = splat %m
           %fours: i32[1024] = splat %k4
           %start: i32 = mul %pid, %k1024
           %starts: i32[1024] = splat %start
           %offs: i32[1024] = add %starts, %i
           %ragged: i32[1024] = add %ms, %i
           {body}
           return
         }}"
    );
    kernel_core::text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What is known of the first result of the last operation of the body.
fn info(body: &str) -> AxisInfo {
    let func = parse(body);
    let ops = &func.region(func.body).ops;
    let value = func.op(ops[ops.len() - 2]).results[0];
    AxisAnalysis::new(&func).of(&func, value)
}

/// (contiguity, divisibility, constancy) per dimension.
fn dims(body: &str) -> Vec<(u64, u64, u64)> {
    let triple = |dim: &DimInfo| (dim.contiguity, dim.divisibility, dim.constancy);
    info(body).dims.iter().map(triple).collect()
}

#[test]
fn one_dimension() {
    let all = MAX_DIVISOR;
    let cases: &[(&str, (u64, u64, u64))] = &[
        ("%r: i32[1024] = arange {lo = 0, hi = 1024}", (1024, all, 1)),
        ("%r: i32[64] = arange {lo = 24, hi = 88}", (64, 8, 1)),
        ("%r: i32[1024] = splat %n", (1, 16, 1024)),
        ("%r: i32[1024] = add %starts, %i", (1024, 1024, 1)),
        ("%r: i32[1024] = add %ns, %i", (1024, 16, 1)),
        ("%r: i32[1024] = add %ms, %i", (1024, 1, 1)),
        ("%r: i32[1024] = sub %i, %ns", (1024, 16, 1)),
        // Falling values are not contiguous.
        ("%r: i32[1024] = sub %ns, %i", (1, 1, 1)),
        ("%r: i32[1024] = minimum %starts, %ns", (1, 16, 1024)),
        ("%r: i32[1024] = maximum %ms, %starts", (1, 1, 1024)),
        ("%r: i32[1024] = mul %i, %fours", (1, 4, 1)),
        ("%ones: i32[1024] = splat %one\n %r: i32[1024] = mul %offs, %ones", (1024, 1024, 1)),
        ("%r: i32[1024] = div %i, %fours", (1, 1, 4)),
        // A program id times a block size may wrap to a negative number, where division rounds up.
        ("%r: i32[1024] = div %offs, %fours", (1, 1, 1)),
        ("%r: i32[1024] = shr %offs, %fours", (1, 1, 16)),
        ("%r: i32[1024] = rem %i, %fours", (4, 4, 1)),
        // A divisor that is not known but divisible by 16 keeps groups of 16 together, of numbers that have no sign.
        ("%r: i32[1024] = rem %i, %ns", (16, 16, 1)),
        ("%r: i32[1024] = div %i, %ns", (1, 1, 16)),
        ("%r: i32[1024] = rem %i, %ms", (1, 1, 1)),
        ("%r: i32[1024] = div %i, %ms", (1, 1, 1)),
        ("%r: i32[1024] = rem %offs, %ns", (1, 1, 1)),
        ("%r: i32[1024] = div %offs, %ns", (1, 1, 1)),
        ("%r: i32[1024] = rem %ns, %ms", (1, 1, 1024)),
        ("%u: u32[1024] = bitcast %offs\n %v: u32[1024] = bitcast %ns\n %r: u32[1024] = rem %u, %v", (16, 16, 1)),
        ("%u: u32[1024] = bitcast %offs\n %v: u32[1024] = bitcast %ns\n %r: u32[1024] = div %u, %v", (1, 1, 16)),
        ("%u: u32[1024] = bitcast %ragged\n %v: u32[1024] = bitcast %ns\n %r: u32[1024] = rem %u, %v", (1, 1, 1)),
        ("%three: i32 = const 3\n %threes: i32[1024] = splat %three\n %r: i32[1024] = and %offs, %threes", (4, 4, 1)),
        // Bits that are not all those below some bit keep no groups.
        ("%five: i32 = const 5\n %fives: i32[1024] = splat %five\n %r: i32[1024] = and %offs, %fives", (1, 1, 1)),
        // All bits but the lowest round down, of numbers with a sign too; where runs are not aligned no groups are known.
        ("%k: i32 = const -4\n %ks: i32[1024] = splat %k\n %r: i32[1024] = and %offs, %ks", (1, 4, 4)),
        ("%k: i32 = const -4\n %ks: i32[1024] = splat %k\n %r: i32[1024] = and %ks, %offs", (1, 4, 4)),
        ("%k: i32 = const -4\n %ks: i32[1024] = splat %k\n %r: i32[1024] = and %ragged, %ks", (1, 4, 1)),
        (
            "%u: u32[1024] = bitcast %offs\n %k: u32 = const 4294967288\n %ks: u32[1024] = splat %k\n %r: u32[1024] = and %u, %ks",
            (1, 8, 8),
        ),
        // The bit of the sign is missing.
        (
            "%u: u32[1024] = bitcast %offs\n %k: u32 = const 2147483640\n %ks: u32[1024] = splat %k\n %r: u32[1024] = and %u, %ks",
            (1, 8, 1),
        ),
        (
            "%k: i32 = const -2147483648\n %ks: i32[1024] = splat %k\n %r: i32[1024] = and %offs, %ks",
            (1, 1 << 30, 1024),
        ),
        ("%r: i32[1024] = and %ms, %ns", (1, 16, 1024)),
        ("%r: i32[1024] = or %ms, %ns", (1, 1, 1024)),
        ("%r: i32[1024] = or %ns, %fours", (1, 4, 1024)),
        ("%r: i32[1024] = xor %ns, %fours", (1, 4, 1024)),
        ("%r: i32[1024] = shl %i, %fours", (1, 16, 1)),
        ("%r: bool[1024] = cmp.lt %offs, %ns", (1, 1, 16)),
        ("%r: bool[1024] = cmp.ge %offs, %ns", (1, 1, 16)),
        ("%r: bool[1024] = cmp.gt %ns, %offs", (1, 1, 16)),
        // `<=` changes in the middle of a group.
        ("%r: bool[1024] = cmp.le %offs, %ns", (1, 1, 1)),
        ("%r: bool[1024] = cmp.lt %offs, %ms", (1, 1, 1)),
        ("%r: bool[1024] = cmp.lt %ragged, %ns", (1, 1, 1)),
        ("%r: bool[1024] = cmp.lt %ns, %ms", (1, 1, 1024)),
        // A run that may meet the wrap is a run in 64 bits only where it is aligned.
        ("%r: i64[1024] = cast %offs", (1024, 1024, 1)),
        ("%r: i64[1024] = cast %ragged", (1, 1, 1)),
        ("%r: i64[1024] = cast %i", (1024, all, 1)),
        ("%r: bool[1024] = check_bounds %offs, %len {param = 0, store = false}", (1, 1, 8)),
        ("%r: bool[1024] = check_bounds %ragged, %len {param = 0, store = false}", (1, 1, 1)),
        // A mask splits the groups of a check.
        (
            "%k: bool[1024] = cmp.lt %offs, %ns\n %r: bool[1024] = check_bounds %offs, %len, %k {param = 0, store = false}",
            (1, 1, 8),
        ),
        (
            "%k: bool[1024] = cmp.lt %ragged, %ns\n %r: bool[1024] = check_bounds %offs, %len, %k {param = 0, store = false}",
            (1, 1, 1),
        ),
        // A choice between two runs is a run where the condition does not change.
        ("%c: bool[1024] = cmp.lt %ragged, %ns\n %r: i32[1024] = select %c, %i, %offs", (1, 1, 1)),
        ("%c: bool[1024] = cmp.lt %offs, %ns\n %r: i32[1024] = select %c, %i, %offs", (16, 16, 1)),
        ("%c: bool[1024] = cmp.lt %ns, %ms\n %r: i32[1024] = select %c, %i, %offs", (1024, 1024, 1)),
    ];
    for (body, expected) in cases {
        assert_eq!(dims(body), [*expected], "{body}");
    }
}

/// The cases that Triton's analysis is tested with (`test/Analysis/test-alignment.mlir`), in tiles of 128.
///
/// Where the result is another, the comment says why: quotients and remainders of numbers that may be negative are
/// not what they are of others, and products are followed as far as their factors are.
#[test]
fn known_cases() {
    let all = MAX_DIVISOR;
    let one = "%o: i32 = const 1\n %ones: i32[128] = splat %o\n";
    let two = "%w: i32 = const 2\n %twos: i32[128] = splat %w\n";
    let sixty_four = "%s: i32 = const 64\n %sixtyfours: i32[128] = splat %s\n";
    let big = "%b: i32 = const 128\n %bigs: i32[128] = splat %b\n";
    let zero = "%z: i32 = const 0\n %zeros: i32[128] = splat %z\n";
    let numbers = format!("{one} {two} {sixty_four} {big} {zero} %r: i32[128] = arange {{lo = 0, hi = 128}}\n");
    let cases: &[(&str, (u64, u64, u64))] = &[
        // cast
        ("%c: i64[128] = cast %bigs", (1, 128, 128)),
        // Numbers of 16 bits go on with the least one, in the middle of what the bits count if they have signs.
        ("%c: i16[128] = cast %r", (128, 32768, 1)),
        ("%c: u16[128] = cast %r", (128, 65536, 1)),
        // Counts are taken modulo the width.
        (
            "%u: u16[128] = cast %r\n %e: u16 = const 18\n %es: u16[128] = splat %e\n %c: u16[128] = shr %u, %es",
            (1, 1, 4),
        ),
        ("%e: i32 = const -29\n %es: i32[128] = splat %e\n %c: i32[128] = shr %r, %es", (1, 1, 8)),
        ("%t: bool = const true\n %c: bool[128] = splat %t", (1, 1, 128)),
        // add
        ("%c: i32[128] = add %r, %r", (1, 1, 1)),
        ("%c: i32[128] = add %ones, %bigs", (1, 1, 128)),
        ("%c: i32[128] = add %r, %ones", (128, 1, 1)),
        ("%c: i32[128] = add %r, %bigs", (128, 128, 1)),
        // sub
        ("%c: i32[128] = sub %r, %r", (1, 1, 1)),
        ("%c: i32[128] = sub %r, %ones", (128, 1, 1)),
        ("%c: i32[128] = sub %ones, %r", (1, 1, 1)),
        ("%c: i32[128] = sub %bigs, %sixtyfours", (1, 64, 128)),
        // mul
        ("%c: i32[128] = mul %r, %ones", (128, all, 1)),
        ("%c: i32[128] = mul %ones, %r", (128, all, 1)),
        ("%c: i32[128] = mul %r, %bigs", (1, 128, 1)),
        ("%c: i32[128] = mul %bigs, %twos", (1, 256, 128)),
        // div
        ("%c: i32[128] = div %r, %ones", (128, all, 1)),
        ("%c: i32[128] = div %r, %sixtyfours", (1, 1, 64)),
        ("%c: i32[128] = div %bigs, %twos", (1, 64, 128)),
        ("%c: i32[128] = div %ones, %r", (1, 1, 1)),
        ("%c: i32[128] = div %r, %r", (1, 1, 1)),
        // rem
        ("%c: i32[128] = rem %r, %ones", (1, all, 1)),
        ("%c: i32[128] = rem %r, %sixtyfours", (64, 64, 1)),
        ("%c: i32[128] = rem %bigs, %sixtyfours", (1, all, 128)),
        ("%c: i32[128] = rem %r, %r", (1, 1, 1)),
        // A run that starts at 64 stays below the next multiple of 128.
        ("%h: i32[128] = add %r, %sixtyfours\n %c: i32[128] = rem %h, %bigs", (64, 64, 1)),
        // cmp, of a run with a constant
        ("%c: bool[128] = cmp.eq %r, %zeros", (1, 1, 1)),
        ("%c: bool[128] = cmp.lt %r, %zeros", (1, 1, 128)),
        ("%c: bool[128] = cmp.ge %r, %zeros", (1, 1, 128)),
        ("%c: bool[128] = cmp.gt %r, %zeros", (1, 1, 1)),
        ("%c: bool[128] = cmp.le %zeros, %r", (1, 1, 128)),
        ("%c: bool[128] = cmp.lt %r, %sixtyfours", (1, 1, 64)),
        ("%c: bool[128] = cmp.lt %ones, %bigs", (1, 1, 128)),
        // cmp, of a run in part
        ("%p: i32[128] = rem %r, %sixtyfours\n %c: bool[128] = cmp.lt %p, %bigs", (1, 1, 64)),
        // logic
        ("%c: i32[128] = or %ones, %bigs", (1, 1, 128)),
        ("%c: i32[128] = xor %sixtyfours, %bigs", (1, 64, 128)),
        ("%q: i32[128] = div %r, %sixtyfours\n %c: i32[128] = or %q, %bigs", (1, 1, 64)),
        ("%q: i32[128] = div %r, %sixtyfours\n %c: i32[128] = and %q, %r", (1, 1, 1)),
        // shifts
        ("%c: i32[128] = shl %r, %ones", (1, 2, 1)),
        ("%e: i32 = const 8\n %es: i32[128] = splat %e\n %c: i32[128] = shr %r, %es", (1, 1, 128)),
        ("%c: i32[128] = shl %bigs, %ones", (1, 256, 128)),
        ("%c: i32[128] = shl %ones, %r", (1, 1, 1)),
        // minimum and maximum
        ("%c: i32[128] = maximum %r, %r", (1, 1, 1)),
        ("%c: i32[128] = maximum %bigs, %sixtyfours", (1, 128, 128)),
        ("%c: i32[128] = minimum %bigs, %sixtyfours", (1, 64, 128)),
        // The smallest i32 has no absolute value.
        ("%e: i32 = const -2147483648\n %c: i32[128] = splat %e", (1, all, 128)),
        // select
        ("%t: bool = const true\n %ts: bool[128] = splat %t\n %c: i32[128] = select %ts, %r, %ones", (128, all, 1)),
        ("%t: bool[128] = cmp.lt %r, %sixtyfours\n %c: i32[128] = select %t, %sixtyfours, %bigs", (1, 64, 64)),
        ("%t: bool[128] = cmp.eq %r, %ones\n %c: i32[128] = select %t, %sixtyfours, %bigs", (1, 64, 1)),
        (
            "%mc: i32[128] = splat %m\n %t: bool[128] = cmp.lt %mc, %ones\n %c: i32[128] = select %t, %r, %bigs",
            (1, 1, 1),
        ),
        // loads: equal addresses hold equal values
        (
            "%q: i32[128] = div %r, %sixtyfours\n %xs: *x[128] = splat %x\n %p: *x[128] = add_ptr %xs, %q
            %c: f32[128] = load %p",
            (1, 1, 64),
        ),
        // if: what both branches give
        (
            "%t: bool = cmp.lt %m, %o\n %c: i32[128] = if %t {\n %y: i32[128] = add %r, %bigs\n yield %y
            } else {\n %n2: i32[128] = add %r, %sixtyfours\n yield %n2\n }",
            (128, 64, 1),
        ),
        // mask of a vector addition whose length is divisible by 16, and of one whose length is not
        ("%ns2: i32[128] = splat %n\n %at: i32[128] = add %r, %bigs\n %c: bool[128] = cmp.lt %at, %ns2", (1, 1, 16)),
        ("%ms2: i32[128] = splat %m\n %at: i32[128] = add %r, %bigs\n %c: bool[128] = cmp.lt %at, %ms2", (1, 1, 1)),
    ];
    let mut wrong = Vec::new();
    for (body, expected) in cases {
        let got = dims(&format!("{numbers} {body}"));
        if got != [*expected] {
            wrong.push(format!("{body}: {got:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Pointers, as the tests of Triton's analysis have them: shared rows, transposed tiles, four dimensions.
#[test]
fn quotients_of_multiples_keep_their_divisors() {
    // `n` is a multiple of 16, of either sign.
    let quotient = |divisor: i32| format!("%d: i32 = const {divisor}\n %q: i32 = div %n, %d\n %r: i32[64] = splat %q");
    let divisors = [1, 2, 8, 16, 32, 3].map(|divisor| dims(&quotient(divisor))[0].1);
    assert_eq!(divisors, [16, 8, 2, 1, 1, 1]);
}

#[test]
fn known_cases_of_several_dimensions() {
    let all = MAX_DIVISOR;
    let line = "%r: i32[128] = arange {lo = 0, hi = 128}
        %a: i32[128, 1] = expand_dims %r {axis = 1}
        %b: i32[1, 128] = expand_dims %r {axis = 0}
        %k64: i32 = const 64\n";
    let strided = "%s: i32[128, 1] = splat %k64
        %as: i32[128, 1] = mul %a, %s
        %ab: i32[128, 128] = broadcast %as
        %bb: i32[128, 128] = broadcast %b
        %o: i32[128, 128] = add %ab, %bb\n";
    assert_eq!(dims(&format!("{line} %c: i32[128, 1] = reshape %a")), [(1, 1, 1), (1, 1, 1)]);
    assert_eq!(dims(&format!("{line} %c: i32[1, 128] = reshape %b")), [(1, 1, 1), (1, 1, 1)]);
    assert_eq!(dims(&format!("{line} %c: i32[128, 128] = broadcast %a")), [(128, all, 1), (1, 1, 128)]);
    assert_eq!(dims(&format!("{line} {strided}")), [(1, 1, 1), (128, 64, 1)]);
    let pointers = format!("{line} {strided} %xs: *x[128, 128] = splat %x\n %p: *x[128, 128] = add_ptr %xs, %o");
    assert_eq!(dims(&pointers), [(1, 1, 1), (128, 64, 1)]);
    let transposed = format!("{pointers}\n %t: *x[128, 128] = permute %p {{perm = [1, 0]}}");
    assert_eq!(dims(&transposed), [(128, 64, 1), (1, 1, 1)]);
    let four = "%r: i32[32] = arange {lo = 0, hi = 32}
        %a: i32[32, 1] = expand_dims %r {axis = 1}
        %b: i32[32, 1, 1] = expand_dims %a {axis = 2}
        %c: i32[1, 32, 1, 1] = expand_dims %b {axis = 0}
        %d: i32[2, 32, 4, 8] = broadcast %c
        %t: i32[4, 2, 8, 32] = permute %d {perm = [2, 0, 3, 1]}";
    assert_eq!(dims(four), [(1, 1, 4), (1, 1, 2), (1, 1, 8), (32, all, 1)]);
}

#[test]
fn two_dimensions() {
    let rows = "%r: i32[1024, 1] = expand_dims %i {axis = 1}\n %rb: i32[1024, 64] = broadcast %r";
    assert_eq!(dims(rows), [(1024, MAX_DIVISOR, 1), (1, 1, 64)]);
    let columns = "%j: i32[64] = arange {lo = 0, hi = 64}
        %c: i32[1, 64] = expand_dims %j {axis = 0}
        %cb: i32[1024, 64] = broadcast %c";
    assert_eq!(dims(columns), [(1, 1, 1024), (64, MAX_DIVISOR, 1)]);
    // row * n + column: contiguous along the columns, each row's start a multiple of 16.
    let offsets = format!(
        "%scaled: i32[1024] = mul %offs, %ns
        %r: i32[1024, 1] = expand_dims %scaled {{axis = 1}}
        %rb: i32[1024, 64] = broadcast %r
        {columns}
        %o: i32[1024, 64] = add %rb, %cb"
    );
    assert_eq!(dims(&offsets), [(1, 1, 1), (64, 16, 1)]);
    let transposed = format!("{offsets}\n %t: i32[64, 1024] = permute %o {{perm = [1, 0]}}");
    assert_eq!(dims(&transposed), [(64, 16, 1), (1, 1, 1)]);
}

#[test]
fn loops_keep_what_every_iteration_keeps() {
    let advancing = "%zero: i32 = const 0
        %last: i32[1024] = for %zero, %n, %k1024, %offs {reverse = false, unroll = auto, stages = 1, \
          warp_specialize = false} (%k: i32, %o: i32[1024]) {
          %next: i32[1024] = add %o, %ns
          yield %next
        }";
    assert_eq!(dims(advancing), [(1024, 16, 1)]);
    assert_eq!(dims(&advancing.replace("add %o, %ns", "add %o, %ms")), [(1024, 1, 1)]);
    assert_eq!(dims(&advancing.replace("add %o, %ns", "add %o, %i")), [(1, 1, 1)]);
    let counter = "%zero: i32 = const 0
        %none: i32[1024] = for %zero, %m, %k1024, %i {reverse = false, unroll = auto, stages = 1, \
          warp_specialize = false} (%k: i32, %o: i32[1024]) {
          %ks: i32[1024] = splat %k
          %next: i32[1024] = add %ks, %i
          yield %next
        }";
    assert_eq!(dims(counter), [(1024, 1024, 1)]);
}

#[test]
fn counters_end_below_the_largest_number_by_a_step() {
    let last = |step: &str, lanes: &str| {
        let func = parse(&format!(
            "%zero: i32 = const 0
             for %zero, %m, {step} {{reverse = false, unroll = auto, stages = 1, warp_specialize = false}} (%k: i32) {{
               %ks: i32[1024] = splat %k
               %next: i32[1024] = add %ks, {lanes}
               yield
             }}"
        ));
        let sum = func.ops.iter().rfind(|op| op.op == Op::binary(BinaryOp::Add)).map(|op| op.results[0]);
        AxisAnalysis::new(&func).of(&func, sum.expect("the sum in the loop")).range
    };
    let all = i64::from(i32::MAX);
    assert_eq!(last("%k1024", "%i"), Some((0, all)));
    assert_eq!(last("%k1024", "%ragged"), None);
    assert_eq!(last("%k4", "%i"), None, "up to 1023 more than a multiple of 4");
}

#[test]
fn remainders_stay_below_what_they_are_taken_of() {
    let range = |body: &str| info(body).range;
    assert_eq!(range("%r: i32[1024] = rem %i, %ns"), Some((0, 1023)));
    assert_eq!(range("%r: i32[1024] = rem %offs, %ns"), None);
    assert_eq!(range("%p: i32[1024] = add %i, %fours\n %r: i32[1024] = rem %i, %p"), Some((0, 1023)));
    assert_eq!(range("%p: i32[1024] = div %i, %fours\n %r: i32[1024] = div %i, %p"), Some((0, 1023)));
    assert_eq!(range("%r: i32[1024] = div %i, %ns"), None, "the divisor may be negative");
}

#[test]
fn bits_of_numbers_without_a_sign_have_none() {
    let range = |body: &str| info(body).range;
    assert_eq!(range("%r: i32[1024] = and %i, %ms"), Some((0, 1023)));
    assert_eq!(range("%r: i32[1024] = and %ms, %i"), Some((0, 1023)));
    assert_eq!(range("%r: i32[1024] = and %ms, %ns"), None);
    assert_eq!(range("%k: i32 = const 12\n %ks: i32[1024] = splat %k\n %r: i32[1024] = and %ms, %ks"), Some((0, 12)));
    assert_eq!(range("%k: i32 = const -4\n %ks: i32[1024] = splat %k\n %r: i32[1024] = and %ms, %ks"), None);
    assert_eq!(range("%k: i32 = const -4\n %ks: i32[1024] = splat %k\n %r: i32[1024] = and %i, %ks"), Some((0, 1023)));
}

#[test]
fn pointers_are_as_aligned_as_their_buffer() {
    let run = |body: &str| {
        let func = parse(body);
        let ops = &func.region(func.body).ops;
        let value = func.op(ops[ops.len() - 2]).results[0];
        AxisAnalysis::new(&func).pointer_run(&func, value, 0)
    };
    // 16 bytes are four f32.
    assert_eq!(run("%xs: *x[1024] = splat %x\n %p: *x[1024] = add_ptr %xs, %offs"), 4);
    assert_eq!(run("%xs: *x[1024] = splat %x\n %p: *x[1024] = add_ptr %xs, %ragged"), 1);
    assert_eq!(run("%xs: *bytes[1024] = splat %bytes\n %p: *bytes[1024] = add_ptr %xs, %offs"), 1);
}

#[test]
fn promises_are_believed() {
    let all = MAX_DIVISOR;
    let cases: &[(&str, (u64, u64, u64))] = &[
        ("%r: i32 = hint %m {kind = contiguous, multiple = 16, axis = 0}", (1, 16, 1)),
        // Only powers of two count, and what was known stays.
        ("%r: i32 = hint %m {kind = contiguous, multiple = 24, axis = 0}", (1, 8, 1)),
        ("%r: i32 = hint %n {kind = contiguous, multiple = 4, axis = 0}", (1, 16, 1)),
        ("%r: i32[1024] = hint %ms {kind = contiguous, multiple = 8, axis = 0}", (1, 8, 1024)),
        ("%q: i32[1024] = mul %i, %ms\n %r: i32[1024] = hint %q {kind = contiguous, n = 8, axis = 0}", (8, 1, 1)),
        (
            "%q: i32[1024] = mul %i, %ms\n %r: i32[1024] = hint %q {kind = contiguous, n = 8, multiple = 8, axis = 0}",
            (8, 8, 1),
        ),
        // Longer runs than promised are known already; their starts may be promised.
        ("%r: i32[1024] = hint %ragged {kind = contiguous, n = 8, multiple = 8, axis = 0}", (1024, 8, 1)),
        ("%r: i32[1024] = hint %i {kind = contiguous, n = 4, axis = 0}", (1024, all, 1)),
        ("%q: i32[1024] = div %offs, %ms\n %r: i32[1024] = hint %q {kind = constant, n = 16, axis = 0}", (1, 1, 16)),
        ("%r: i32[1024] = hint %ms {kind = constant, n = 16, axis = 0}", (1, 1, 1024)),
    ];
    for (body, expected) in cases {
        assert_eq!(dims(body), [*expected], "{body}");
    }
    let rows = "%q: i32[1024, 1] = expand_dims %i {axis = 1}\n %b: i32[1024, 64] = broadcast %q\n";
    let hint = format!("{rows} %r: i32[1024, 64] = hint %b {{kind = constant, n = 64, axis = 1}}");
    assert_eq!(dims(&hint), [(1024, all, 1), (1, 1, 64)]);
}

/// What a condition says about `m` from the next operation on.
fn after(condition: &str) -> AxisInfo {
    info(&format!("{condition}\n assert %c {{message = \"\"}}\n %zero: i32 = const 0\n %r: i32 = add %m, %zero"))
}

#[test]
fn conditions_that_hold_tell_about_what_follows() {
    let sixteen = "%k16: i32 = const 16\n %k15: i32 = const 15\n %k0: i32 = const 0\n";
    let divisible = |text: &str| after(&format!("{sixteen} {text}")).dims[0].divisibility;
    assert_eq!(divisible("%q: i32 = rem %m, %k16\n %c: bool = cmp.eq %q, %k0"), 16);
    assert_eq!(divisible("%q: i32 = rem %m, %k16\n %c: bool = cmp.eq %k0, %q"), 16);
    assert_eq!(divisible("%q: i32 = and %m, %k15\n %c: bool = cmp.eq %q, %k0"), 16);
    assert_eq!(divisible("%q: i32 = and %m, %k16\n %c: bool = cmp.eq %q, %k0"), 1, "the low bits stay unknown");
    assert_eq!(divisible("%q: i32 = rem %m, %k16\n %c: bool = cmp.ne %q, %k0"), 1);
    assert_eq!(divisible("%q: i32 = rem %m, %k15\n %c: bool = cmp.eq %q, %k0"), 1);
    assert_eq!(divisible("%c: bool = cmp.eq %m, %k16"), 16);
    let range = |text: &str| after(&format!("{sixteen} {text}")).range;
    assert_eq!(range("%a: bool = cmp.ge %m, %k0\n %b: bool = cmp.lt %m, %k16\n %c: bool = and %a, %b"), Some((0, 15)));
    assert_eq!(range("%a: bool = cmp.gt %k16, %m\n %b: bool = cmp.gt %m, %k0\n %c: bool = and %a, %b"), Some((1, 15)));
    assert_eq!(range("%a: bool = cmp.ge %m, %k0\n %b: bool = cmp.lt %m, %k16\n %c: bool = or %a, %b"), None);
    let short = "%no: bool = const false\n %yes: bool = const true\n %a: bool = cmp.ge %m, %k0
        %c: bool = if %a {\n %b: bool = cmp.lt %m, %k16\n yield %b\n } else {\n yield %no\n }";
    assert_eq!(range(short), Some((0, 15)), "a && b");
    assert_eq!(range(&short.replace("yield %no", "yield %yes")), None, "!a || b");
    assert_eq!(range("%c: bool = cmp.le %m, %k15"), Some((i64::from(i32::MIN), 15)));
    let all = "%lowest: i32 = const -2147483648\n %a: bool = cmp.ge %m, %lowest\n %b: bool = cmp.le %m, %highest";
    let all = format!("%highest: i32 = const 2147483647\n {all}\n %c: bool = and %a, %b");
    assert_eq!(range(&all), None, "all numbers are no range that keeps runs from wrapping");
    assert_eq!(after(&format!("{sixteen} %c: bool = cmp.eq %m, %k15")).constant, Some(15));
    // The same of what is promised.
    let promised = "%k16: i32 = const 16\n %k0: i32 = const 0\n %q: i32 = rem %m, %k16\n %c: bool = cmp.eq %q, %k0
        %h: bool = hint %c {kind = holds, axis = 0}\n %r: i32 = add %m, %k0";
    assert_eq!(info(promised).dims[0].divisibility, 16);
}

#[test]
fn a_condition_says_nothing_about_what_came_before_or_comes_after_its_region() {
    let text = "%k16: i32 = const 16
        %k0: i32 = const 0
        %before: i32 = add %m, %k0
        %q: i32 = rem %m, %k16
        %c: bool = cmp.eq %q, %k0
        %some: bool = cmp.gt %n, %k0
        if %some {
          assert %c {message = \"\"}
          %inside: i32 = add %m, %k16
          yield
        } else {
          yield
        }
        %r: i32 = add %m, %k0";
    assert_eq!(info(text).dims[0].divisibility, 1, "behind the region");
    let func = parse(text);
    let analysis = AxisAnalysis::new(&func);
    // The sums of `m`: before the branch, inside and behind it.
    let m = func.params[3].value;
    let divisors: Vec<u64> = func
        .ops
        .iter()
        .filter(|op| op.op == Op::binary(BinaryOp::Add) && op.operands[0] == m)
        .map(|op| analysis.of(&func, op.results[0]).dims[0].divisibility)
        .collect();
    assert_eq!(divisors, [1, 16, 1]);
    assert_eq!(analysis.of(&func, m).dims[0].divisibility, 1);
}
