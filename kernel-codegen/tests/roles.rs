//! Groups of warps that share an iteration, one for scores and one for each sum: they compute what a whole kernel does, no
//! access is without order, and every barrier among them is needed.

use kernel_codegen::checks::Checks;
use kernel_codegen::{Compiled, Options, Target, compile};
use kernel_core::edit::ops_in_order;
use kernel_core::interp::{Fault, HostBuffer, HostTensor, run_ordered, run_with_tensors};
use kernel_core::ir::{Bound, GpuOp, Op, OpId, Placed};

const KEYS: u64 = 64;

/// Attention of 64 rows whose values have 512 columns. Weights are relative to a score that follows the largest where one is
/// far above it. Values are the keys, beside others, or blocks of their own. The first half of the results is stored last, over a
/// part of the second.
fn text(shared: bool) -> String {
    let facts = "{div = 16, len_div = 16, stride_div = 16}";
    let depth = if shared { 256 } else { 64 };
    let loads = match shared {
        true => {
            "%v0: f16[64, 256] = desc_load %k, %i, %zero\n    %v1: f16[64, 256] = desc_load %k, %i, %half
    %t0: f16[256, 64] = permute %v0 {perm = [1, 0]}\n    %t1: f16[256, 64] = permute %v1 {perm = [1, 0]}
    %s0: f32[64, 64] = dot %x0, %t0, %start {precision = tf32}
    %s: f32[64, 64] = dot %x1, %t1, %s0 {precision = tf32}"
        }
        false => {
            "%v0: f16[64, 256] = desc_load %v, %i, %zero\n    %v1: f16[64, 256] = desc_load %v, %i, %half
    %y: f16[64, 64] = desc_load %k, %i, %zero\n    %yt: f16[64, 64] = permute %y {perm = [1, 0]}
    %s: f32[64, 64] = dot %x0, %yt, %start {precision = tf32}"
        }
    };
    format!(
        "kernel roles \"roles.rs\" unsafe bound {{
  param %q q: desc f16[64, {depth}] {facts}
  param %k k: desc f16[64, {depth}] {facts}
  param %v v: desc f16[64, 256] {facts}
  param %bb b: desc f32[1, 64] {facts}
  param %o o: ptr_mut f32 {{div = 16, len_div = 16}}
  param %l l: ptr_mut f32 {{div = 16, len_div = 16}}
  param %n n: i32
  %zero: i32 = const 0
  %half: i32 = const 256
  %step: i32 = const 64
  %none: f32 = const 0.0
  %start: f32[64, 64] = splat %none
  %nothing: f32[64, 256] = splat %none
  %totals: f32[64] = splat %none
  %x0: f16[64, {depth}] = desc_load %q, %zero, %zero
  %x1: f16[64, {depth}] = desc_load %q, %zero, %half
  %sixteenth: f32 = const 0.0625
  %small: f32[64, 64] = splat %sixteenth
  %eight: f32 = const 8.0
  %eights: f32[64, 64] = splat %eight
  %a: f32[64, 256], %b: f32[64, 256], %total: f32[64], %peak: f32[64] = for %zero, %n, %step, %nothing, %nothing, %totals, %totals {{stages = 2, warp_specialize = true}} (%i: i32, %acc0: f32[64, 256], %acc1: f32[64, 256], %sum: f32[64], %top: f32[64]) {{
    {loads}
    %scaled: f32[64, 64] = mul %s, %small
    %wide: f32[64, 1] = expand_dims %top {{axis = 1}}
    %tops: f32[64, 64] = broadcast %wide {{shape = [64, 64]}}
    %above: f32[64, 64] = sub %scaled, %tops
    %far: bool[64, 64] = cmp.gt %above, %eights
    %rows: bool[64] = reduce %far {{axis = 1}} (%p0: bool, %r0: bool) {{
      %any0: bool = or %p0, %r0
      yield %any0
    }}
    %some: bool = reduce %rows {{axis = 0}} (%p1: bool, %r1: bool) {{
      %any1: bool = or %p1, %r1
      yield %any1
    }}
    %m0: f32[64, 256], %m1: f32[64, 256], %sums: f32[64], %higher: f32[64], %w: f32[64, 64] = if %some {{
      %most: f32[64] = reduce %scaled {{axis = 1}} (%p2: f32, %r2: f32) {{
        %larger2: f32 = maximum %p2, %r2
        yield %larger2
      }}
      %next: f32[64] = maximum %most, %top
      %apart: f32[64] = sub %top, %next
      %old: f32[64] = exp2 %apart
      %olds: f32[64, 1] = expand_dims %old {{axis = 1}}
      %factors: f32[64, 256] = broadcast %olds {{shape = [64, 256]}}
      %f0: f32[64, 256] = mul %acc0, %factors
      %f1: f32[64, 256] = mul %acc1, %factors
      %less: f32[64] = mul %sum, %old
      %wider: f32[64, 1] = expand_dims %next {{axis = 1}}
      %nexts: f32[64, 64] = broadcast %wider {{shape = [64, 64]}}
      %again: f32[64, 64] = sub %scaled, %nexts
      yield %f0, %f1, %less, %next, %again
    }} else {{
      yield %acc0, %acc1, %sum, %top, %above
    }}
    %weights: f32[64, 64] = exp2 %w
    %own: f32[64] = reduce %weights {{axis = 1}} (%p3: f32, %r3: f32) {{
      %both3: f32 = add %p3, %r3
      yield %both3
    }}
    %further: f32[64] = add %sums, %own
    %h: f16[64, 64] = cast %weights
    %d0: f32[64, 256] = dot %h, %v0, %m0 {{precision = tf32}}
    %d1: f32[64, 256] = dot %h, %v1, %m1 {{precision = tf32}}
    yield %d0, %d1, %further, %higher
  }}
  %unit: f32 = const 1.0
  %ones: f32[64] = splat %unit
  %safe: f32[64] = maximum %total, %ones
  %inverse: f32[64] = div %ones, %safe
  %column: f32[64, 1] = expand_dims %inverse {{axis = 1}}
  %parts: f32[64, 256] = broadcast %column {{shape = [64, 256]}}
  %ra: f32[64, 256] = mul %a, %parts
  %rb: f32[64, 256] = mul %b, %parts
  %r: i32[64] = arange {{lo = 0, hi = 64}}
  %rs: i32[64, 1] = expand_dims %r {{axis = 1}}
  %width: i32 = const 512
  %widths: i32[64, 1] = splat %width
  %starts: i32[64, 1] = mul %rs, %widths
  %rows2: i32[64, 256] = broadcast %starts {{shape = [64, 256]}}
  %c: i32[256] = arange {{lo = 0, hi = 256}}
  %c2: i32[1, 256] = expand_dims %c {{axis = 0}}
  %columns: i32[64, 256] = broadcast %c2 {{shape = [64, 256]}}
  %at: i32[64, 256] = add %rows2, %columns
  %quarter: i32 = const 128
  %halves: i32[64, 256] = splat %quarter
  %behind: i32[64, 256] = add %at, %halves
  %os: *o[64, 256] = splat %o
  %to: *o[64, 256] = add_ptr %os, %at
  %to2: *o[64, 256] = add_ptr %os, %behind
  store %to2, %rb
  store %to, %ra
  %line: *l[64] = splat %l
  %to3: *l[64] = add_ptr %line, %r
  store %to3, %total
  return
}}"
    )
}

fn kernel(shared: bool) -> Bound {
    bound(&text(shared))
}

fn bound(text: &str) -> Bound {
    let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Bound::new(func).unwrap_or_else(|_| panic!("a bound kernel"))
}

fn compiled(kernel: &Bound) -> Compiled {
    compiled_with(kernel, Checks::AtLaunch)
}

fn compiled_with(kernel: &Bound, checks: Checks) -> Compiled {
    let options = Options { num_warps: 4, num_stages: 2, checks, ..Options::default() };
    compile(kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Numbers of which those of later keys are larger, if they grow.
fn halves(len: usize, salt: u32, grows: f32) -> HostBuffer {
    let number = |i: u32| ((i.wrapping_mul(2_654_435_769).wrapping_add(salt) >> 13) % 64) as f32 / 64.0 - 0.5;
    (0..len as u32)
        .map(|i| half::f16::from_f32(number(i) * (1.0 + grows * (i / 512) as f32)))
        .collect::<Vec<_>>()
        .into()
}

type Ran = Result<Vec<f32>, Fault>;

/// The results of so many iterations, as the program says them, and as a placed kernel computes them.
fn run(kernel: &Bound, placed: &Placed, iterations: u64, grows: f32) -> (Ran, Ran) {
    let keys = (iterations * KEYS).max(1);
    let buffers = vec![
        halves(64 * 512, 1, 0.0),
        halves(keys as usize * 512, 2, grows),
        halves(keys as usize * 512, 3, 0.0),
        (0..keys).map(|key| key as f32 / 256.0).collect::<Vec<_>>().into(),
        vec![-7f32; 64 * 512].into(),
        vec![-7f32; 64].into(),
    ];
    let tensors = [[64, 512], [keys, 512], [keys, 512], [1, keys]].map(|shape| HostTensor::contiguous(&shape));
    let scalars = [((iterations * KEYS) as i32).into()];
    let (mut want, mut got) = (buffers.clone(), buffers);
    let expected = run_with_tensors(kernel, &mut want, &tensors, &scalars, [1, 1, 1]);
    let found = run_ordered(placed, &mut got, &tensors, &scalars, [1, 1, 1]);
    let of = |buffers: &[HostBuffer]| {
        buffers[4..].iter().flat_map(|buffer| buffer.as_slice::<f32>().expect("f32").to_vec()).collect()
    };
    (expected.map(|()| of(&want)), found.map(|()| of(&got)))
}

fn is_close(want: f32, got: f32) -> bool {
    (want - got).abs() <= 2e-3 * want.abs().max(0.05)
}

#[track_caller]
fn assert_same(kernel: &Bound, compiled: &Compiled, (iterations, grows): (u64, f32), what: &str) {
    let (want, got) = run(kernel, &compiled.placed, iterations, grows);
    let (want, got) = (want.unwrap(), got.unwrap_or_else(|fault| panic!("{what}, {iterations}: {fault:?}")));
    for (at, (&want, &got)) in want.iter().zip(&got).enumerate() {
        assert!(is_close(want, got), "{what}, {iterations} {grows}: element {at} is {got}, not {want}");
    }
}

#[test]
fn sums_that_four_warps_cannot_hold_are_shared_out() {
    for shared in [true, false] {
        let kernel = kernel(shared);
        let compiled = compiled(&kernel);
        let report = compiled.report().to_string();
        assert!(report.contains("scores by four warps and sums by 2 times four"), "{report}");
        for (iterations, grows) in [(0, 0.0), (1, 0.0), (2, 0.1), (3, 0.0), (5, 0.1), (6, 1.0)] {
            assert_same(&kernel, &compiled, (iterations, grows), &format!("values are keys: {shared}"));
        }
    }
}

/// Without any one of them, something is read that is not there yet, or overwritten, or waited for without end; but for that which has
/// one sum wait for the other, for time alone.
#[test]
fn each_barrier_is_needed() {
    // The groups arrive and wait as wholes here; that their threads meet before is for the lowering to say.
    let kernel = kernel(false);
    let compiled = compiled(&kernel);
    let func = compiled.placed.func();
    let is_barrier = |id: &OpId| {
        let op = &func.op(*id).op;
        matches!(op, Op::Gpu(GpuOp::MbarrierWait | GpuOp::MbarrierArrive))
    };
    let barriers: Vec<OpId> = ops_in_order(func).into_iter().filter(is_barrier).collect();
    assert!(barriers.len() > 15, "{}", barriers.len());
    let mut unneeded = Vec::new();
    for barrier in barriers {
        let mut func = func.clone();
        func.regions.iter_mut().for_each(|region| region.ops.retain(|&id| id != barrier));
        let op = func.op(barrier).op.clone();
        let placed = Placed::new(func).unwrap_or_else(|_| panic!("a placed kernel"));
        let (want, got) = run(&kernel, &placed, 6, 0.1);
        let want = want.unwrap();
        let is_right = got.is_ok_and(|got| want.iter().zip(got).all(|(&want, got)| is_close(want, got)));
        unneeded.extend(is_right.then_some(op));
    }
    assert_eq!(unneeded, [Op::Gpu(GpuOp::MbarrierWait)]);
}

/// What is put in the place of a line of the kernel, and whether groups share it then.
const OTHERS: &[(&str, &str, &str, bool)] = &[
    (
        "a vector that comes by a descriptor",
        "%scaled: f32[64, 64] = mul %s, %small",
        "%bias: f32[1, 64] = desc_load %bb, %zero, %i
         %biases: f32[64, 64] = broadcast %bias {shape = [64, 64]}
         %lower: f32[64, 64] = mul %s, %small
         %scaled: f32[64, 64] = add %lower, %biases",
        true,
    ),
    (
        "what scores were an iteration before",
        "%d0: f32[64, 256] = dot %h, %v0, %m0 {precision = tf32}",
        "%wide2: f32[64, 1] = expand_dims %top {axis = 1}
         %tops2: f32[64, 256] = broadcast %wide2 {shape = [64, 256]}
         %m2: f32[64, 256] = add %m0, %tops2
         %d0: f32[64, 256] = dot %h, %v0, %m2 {precision = tf32}",
        true,
    ),
    (
        "rows of truth values",
        "%d0: f32[64, 256] = dot %h, %v0, %m0 {precision = tf32}",
        "%wide2: bool[64, 1] = expand_dims %rows {axis = 1}
         %far2: bool[64, 256] = broadcast %wide2 {shape = [64, 256]}
         %twice: f32[64, 256] = add %m0, %m0
         %m2: f32[64, 256] = select %far2, %twice, %m0
         %d0: f32[64, 256] = dot %h, %v0, %m2 {precision = tf32}",
        true,
    ),
    (
        "a loop behind that computes with scores",
        "%ra: f32[64, 256] = mul %a, %parts",
        "%lo: i32 = const 1
         %hi: i32 = const 4
         %ra: f32[64, 256] = for %lo, %hi, %lo, %a {unroll = never} (%j: i32, %aj: f32[64, 256]) {
           %jf: f32 = cast %j
           %js: f32[64, 256] = splat %jf
           %pj: f32[64, 256] = mul %parts, %js
           %an: f32[64, 256] = mul %aj, %pj
           yield %an
         }",
        false,
    ),
    (
        "an atomic",
        "store %to3, %total",
        "%before: f32[64] = atomic_rmw %to3, %total {op = add, order = relaxed, scope = device}",
        false,
    ),
    (
        "a store that a sum decides about",
        "store %to3, %total",
        "%row: f32[64] = reduce %a {axis = 1} (%pa: f32, %pb: f32) {
           %pc: f32 = maximum %pa, %pb
           yield %pc
         }
         %largest: f32 = reduce %row {axis = 0} (%pa2: f32, %pb2: f32) {
           %pc2: f32 = maximum %pa2, %pb2
           yield %pc2
         }
         %is: bool = cmp.gt %largest, %none
         if %is {
           store %to3, %total
           yield
         } else {
           yield
         }",
        false,
    ),
    (
        "a number of a sum in a line",
        "store %to3, %total",
        "%row: f32[64] = reduce %a {axis = 1} (%pa: f32, %pb: f32) {
           %pc: f32 = maximum %pa, %pb
           yield %pc
         }
         %largest: f32 = reduce %row {axis = 0} (%pa2: f32, %pb2: f32) {
           %pc2: f32 = maximum %pa2, %pb2
           yield %pc2
         }
         %line2: f32[64] = splat %largest
         store %to3, %line2",
        true,
    ),
    (
        "a store of both sums",
        "store %to2, %rb",
        "%both2: f32[64, 256] = add %ra, %rb
         store %to2, %both2",
        false,
    ),
    (
        "scores beside a sum in one buffer",
        "%line: *l[64] = splat %l
  %to3: *l[64] = add_ptr %line, %r",
        "%line: *o[64] = splat %o
  %to3: *o[64] = add_ptr %line, %r",
        false,
    ),
    (
        "sums that take turns twice",
        "store %to, %ra",
        "store %to, %ra
         store %to2, %rb",
        false,
    ),
    (
        "sums in two buffers each",
        "store %to3, %total",
        "%first: f32[64] = reduce %ra {axis = 1} (%pa: f32, %pb: f32) {
           %pc: f32 = maximum %pa, %pb
           yield %pc
         }
         %second: f32[64] = reduce %rb {axis = 1} (%pd: f32, %pe: f32) {
           %pf: f32 = maximum %pd, %pe
           yield %pf
         }
         store %to3, %first
         store %to3, %second",
        false,
    ),
];

/// Whatever groups cannot share is divided otherwise, or not at all, and computes the same.
#[test]
fn other_kernels_compute_the_same() {
    for &(name, from, to, shares) in OTHERS {
        let text = text(false);
        assert!(text.contains(from), "{name}");
        for safety in ["unsafe", "safe"] {
            let kernel = bound(&text.replace(from, to).replace("unsafe", safety));
            let compiled = compiled(&kernel);
            let report = compiled.report().to_string();
            assert_eq!(report.contains("scores by four warps"), shares, "{name}, {safety}: {report}");
            assert_eq!(report.contains("not shared by groups of warps"), !shares, "{name}, {safety}: {report}");
            for (iterations, grows) in [(0, 0.0), (1, 0.0), (6, 0.1)] {
                assert_same(&kernel, &compiled, (iterations, grows), &format!("{name}, {safety}"));
            }
        }
    }
}

/// An access whose value nobody needs is reported as in other kernels.
#[test]
fn unused_accesses_are_checked() {
    let (from, read) = ("%zero: i32 = const 0\n", "%unused: f32 = load %place\n");
    let text = text(false).replace("unsafe", "safe").replacen(
        from,
        &format!("{from}  %place: *l = add_ptr %l, %n\n  {read}"),
        1,
    );
    assert!(text.contains(read));
    let kernel = bound(&text);
    let compiled = compiled_with(&kernel, Checks::EveryAccess);
    assert!(compiled.report().to_string().contains("scores by four warps"), "{}", compiled.report());
    for (iterations, is_inside) in [(0, true), (1, false), (3, false)] {
        let (want, got) = run(&kernel, &compiled.placed, iterations, 0.0);
        assert_eq!(want.is_ok(), is_inside, "{want:?}");
        assert_eq!(got.is_ok(), is_inside, "{iterations}: {got:?}");
    }
}
