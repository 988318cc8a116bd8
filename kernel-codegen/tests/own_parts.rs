//! Factors of which each warp group holds a part: the products with it, and with what the others hold.

mod support;

use kernel_codegen::{Options, Target, compile};
use kernel_core::interp::HostBuffer;
use support::differential::{Agreement, Given, agrees_in_warps, zeros};

/// `out = sum of (q[rows] * k) * k` over `n` blocks of `m` rows, for one block `k` of `keys` times `d`; with `moving`, for a block
/// of its own in each iteration.
fn sums([m, keys, d]: [u32; 3], moving: bool) -> String {
    let block = format!(
        "%kp: *k[{keys}, {d}] = splat %k
        %kq: *k[{keys}, {d}] = add_ptr %kp, %keyo
        %fars: i32[{keys}, {d}] = splat %far
        %ka: *k[{keys}, {d}] = add_ptr %kq, %fars
        %block: f16[{keys}, {d}] = load %ka
        %turned: f16[{d}, {keys}] = permute %block {{perm = [1, 0]}}"
    );
    let (before, inside) = match moving {
        false => (format!("%far: i32 = const 0\n{block}"), String::new()),
        true => (String::new(), format!("%far: i32 = mul %i, %blocks\n{block}")),
    };
    format!(
        "kernel sums \"sums.rs\" unsafe bound {{
        param %q q: ptr f16 {{div = 16}}
        param %k k: ptr f16 {{div = 16}}
        param %out out: ptr_mut f32 {{div = 16}}
        param %n n: i32
        %zero: i32 = const 0
        %one: i32 = const 1
        %width: i32 = const {d}
        %none: f32 = const 0.0
        %column: i32[{d}] = arange {{lo = 0, hi = {d}}}
        %columns: i32[1, {d}] = expand_dims %column {{axis = 0}}
        %key: i32[{keys}] = arange {{lo = 0, hi = {keys}}}
        %keyw: i32[{keys}] = splat %width
        %keys: i32[{keys}] = mul %key, %keyw
        %keyr: i32[{keys}, 1] = expand_dims %keys {{axis = 1}}
        %keyb: i32[{keys}, {d}] = broadcast %keyr
        %keyc: i32[{keys}, {d}] = broadcast %columns
        %keyo: i32[{keys}, {d}] = add %keyb, %keyc
        %blocks: i32 = const {length}
        {before}
        %row: i32[{m}] = arange {{lo = 0, hi = {m}}}
        %roww: i32[{m}] = splat %width
        %rows: i32[{m}] = mul %row, %roww
        %rowr: i32[{m}, 1] = expand_dims %rows {{axis = 1}}
        %rowb: i32[{m}, {d}] = broadcast %rowr
        %rowc: i32[{m}, {d}] = broadcast %columns
        %offset: i32[{m}, {d}] = add %rowb, %rowc
        %start: f32[{m}, {d}] = splat %none
        %empty: f32[{m}, {keys}] = splat %none
        %size: i32 = const {size}
        %sum: f32[{m}, {d}] = for %zero, %n, %one, %start (%i: i32, %acc: f32[{m}, {d}]) {{
          %skip: i32 = mul %i, %size
          %skips: i32[{m}, {d}] = splat %skip
          %at: i32[{m}, {d}] = add %offset, %skips
          %qp: *q[{m}, {d}] = splat %q
          %qa: *q[{m}, {d}] = add_ptr %qp, %at
          %x: f16[{m}, {d}] = load %qa
          {inside}
          %s: f32[{m}, {keys}] = dot %x, %turned, %empty
          %p: f16[{m}, {keys}] = cast %s
          %next: f32[{m}, {d}] = dot %p, %block, %acc
          yield %next
        }}
        %op: *out[{m}, {d}] = splat %out
        %oa: *out[{m}, {d}] = add_ptr %op, %offset
        store %oa, %sum
        return
    }}",
        length = keys * d,
        size = m * d
    )
}

/// How many products of own parts a kernel has.
fn own_parts(text: &str, num_warps: u32) -> usize {
    let options = Options { num_warps, ..Options::default() };
    let compiled = compile(&support::kernel(text), &Target::sm_90a(), &options).expect("it compiles");
    let [own, others] = ["part = own", "part = others"].map(|part| compiled.placed_ir().matches(part).count());
    assert_eq!(own, others, "{}", compiled.placed_ir());
    own
}

#[test]
fn groups_begin_with_what_they_hold() {
    // Rows, keys, columns, and for each number of warps how many products of own parts there are.
    let cases = [
        // Two groups, and four of 16 keys each.
        ([64, 64, 64], [(4, 0), (8, 1), (16, 1)]),
        // Parts of 8 keys are too small for the instruction.
        ([64, 32, 64], [(4, 0), (8, 1), (16, 0)]),
        // Two groups have rows of their own, four also columns.
        ([128, 32, 64], [(4, 0), (8, 0), (16, 1)]),
    ];
    for (sizes, counts) in cases {
        let text = sums(sizes, false);
        for (warps, count) in counts {
            assert_eq!(own_parts(&text, warps), count, "{sizes:?}, {warps} warps");
        }
        let [m, keys, d] = sizes;
        for moving in [false, true] {
            let buffers = [small(3 * m * d, 2654435761), small(3 * keys * d, 2246822519), zeros((m * d) as usize)];
            let given = Given { buffers: &buffers, tensors: &[], scalars: &[3] };
            let kernel = support::kernel(&sums(sizes, moving));
            agrees_in_warps(&[4, 8, 16], &kernel, &given, 1, Agreement::Exact);
        }
        // What threads store is there when all have met, and not before.
        assert_eq!(own_parts(&sums(sizes, true), 8), 0, "{sizes:?}");
    }
}

/// Small whole numbers, whose products and sums are exact; no two parts of a factor are the same.
fn small(count: u32, factor: u32) -> HostBuffer {
    let number = |i: u32| half::f16::from_f32((i.wrapping_mul(factor) >> 30) as f32 - 1.0);
    (0..count).map(number).collect::<Vec<half::f16>>().into()
}
