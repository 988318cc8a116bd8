//! Shared memory that the lowering takes for its own exchanges is taken again only when all have read it.

mod support;

use support::differential::ints;
use support::written::{check, compiled, placed};

/// 512 elements of 128 threads in two ways, of which each warp has others; and how they lie in shared memory, the
/// last bits of their number first, so that nobody stores where it has read.
const QUADS: &str = "register [1] [2], lane [4] [8] [16] [32] [64], warp [128] [256] -> dim0 512";
const APART: &str = "register [128] [256], lane [1] [2] [4] [8] [16], warp [32] [64] -> dim0 512";
const TURNED: &str = "offset [256] [128] [64] [32] [16] [8] [4] [2] [1] -> dim0 512";
/// 64 elements, of which each is held by two of 128 threads.
const HELD_TWICE: &str = "register, lane [1] [2] [4] [8] [16], warp [32] [0] -> dim0 64";

/// An allocation begins where a conversion before it has passed elements on, which some threads have not read yet.
#[test]
fn allocations_wait_for_conversions_before_them() {
    let body = "  %i: i32[512] #0 = arange {lo = 0, hi = 512}
  %xs: *x[512] #0 = splat %x
  %xp: *x[512] #0 = add_ptr %xs, %i
  %v: i32[512] #0 = load %xp
  %w: i32[512] #1 = convert_layout %v
  %twice: i32[512] #1 = add %w, %w
  %s: shared i32[512] #2 = shared_alloc
  shared_store %s, %twice
  %r: i32[512] #1 = shared_load %s
  %sum: i32[512] #1 = add %r, %w
  %j: i32[512] #1 = arange {lo = 0, hi = 512}
  %os: *out[512] #1 = splat %out
  %op: *out[512] #1 = add_ptr %os, %j
  store %op, %sum";
    let kernel = placed(&["%x x: ptr i32", "%out out: ptr_mut i32"], &[QUADS, APART, TURNED], body);
    check(&kernel, 4, &[ints(512, 1), vec![0i32; 512].into()]);
}

/// Numbers that steer control are read by the first thread, which passes one after the other on.
#[test]
fn what_the_first_thread_knows_is_read_before_the_next_comes() {
    let body = "  %zero: i32 = const 0
  %one: i32 = const 1
  %ten: i32 = const 10
  %x1: *x = add_ptr %x, %one
  %x2: *x = add_ptr %x1, %one
  %a: i32 = load %x
  %b: i32 = load %x1
  %c: i32 = load %x2
  %b10: i32 = mul %b, %ten
  %ab: i32 = add %a, %b10
  %c10: i32 = mul %c, %ten
  %c100: i32 = mul %c10, %ten
  %abc: i32 = add %ab, %c100
  %more: bool = cmp.gt %abc, %zero
  if %more {
    %i: i32[512] #0 = arange {lo = 0, hi = 512}
    %all: i32[512] #0 = splat %abc
    %os: *out[512] #0 = splat %out
    %op: *out[512] #0 = add_ptr %os, %i
    store %op, %all
    yield
  } else {
    yield
  }";
    let kernel = placed(&["%x x: ptr_mut i32", "%out out: ptr_mut i32"], &[QUADS], body);
    check(&kernel, 4, &[vec![3i32, 5, 7].into(), vec![0i32; 512].into()]);
}

/// Of two threads that hold an element, one does the atomic and tells the other what was there.
#[test]
fn what_owners_know_is_read_before_the_next_comes() {
    let body = "  %i: i32[64] #0 = arange {lo = 0, hi = 64}
  %xs: *x[64] #0 = splat %x
  %xp: *x[64] #0 = add_ptr %xs, %i
  %ys: *y[64] #0 = splat %y
  %yp: *y[64] #0 = add_ptr %ys, %i
  %a: i32[64] #0 = atomic_rmw %xp, %i {op = add, order = relaxed, scope = device}
  %b: i32[64] #0 = atomic_rmw %yp, %i {op = add, order = relaxed, scope = device}
  %far: i32 = const 4096
  %fars: i32[64] #0 = splat %far
  %high: i32[64] #0 = mul %a, %fars
  %both: i32[64] #0 = add %high, %b
  %wide: i32[64] #1 = convert_layout %both
  %j: i32[64] #1 = arange {lo = 0, hi = 64}
  %os: *out[64] #1 = splat %out
  %op: *out[64] #1 = add_ptr %os, %j
  store %op, %wide";
    // Those who did not do the atomics store what they were told.
    let others = "register, lane [1] [2] [4] [8] [16], warp [0] [32] -> dim0 64";
    let params = ["%x x: ptr_mut i32", "%y y: ptr_mut i32", "%out out: ptr_mut i32"];
    let kernel = placed(&params, &[HELD_TWICE, others], body);
    check(&kernel, 4, &[ints(64, 2), ints(64, 3), vec![0i32; 64].into()]);
}

/// What a kernel does with shared memory up to its last tensor copy, a letter each: stores and loads of elements,
/// fences, barriers, and tensor copies.
fn order(body: &str) -> String {
    let square =
        "register [0, 1] [0, 2], lane [0, 4] [0, 8] [0, 16] [1, 0] [2, 0], warp [4, 0] [8, 0] -> dim0 16, dim1 32";
    let rows = "offset [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [1, 0] [2, 0] [4, 0] [8, 0] -> dim0 16, dim1 32";
    let text = format!(
        "  %bar: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
  %bytes: i32 = const 2048
  %zero: i32 = const 0
  %one: i32 = const 1
  %yes: bool = cmp.lt %zero, %n
  %i: i32[512] #0 = arange {{lo = 0, hi = 512}}
  %xs: *x[512] #0 = splat %x
  %xp: *x[512] #0 = add_ptr %xs, %i
  %os: *out[512] #1 = splat %out
  %j: i32[512] #1 = arange {{lo = 0, hi = 512}}
  %op: *out[512] #1 = add_ptr %os, %j
  %v: i32[512] #0 = load %xp
  {body}"
    );
    let params = [
        "%x x: ptr i32",
        "%out out: ptr_mut i32",
        "%n n: i32",
        "%t t: desc i32[16, 32] {div = 16, len_div = 4, stride_div = 4}",
    ];
    let columns = "register [1] [2], lane [4] [8] [16] [0] [0], warp [0] [0] -> dim0 32";
    let kernel = placed(&params, &[QUADS, APART, square, rows, columns], &text);
    let ptx = compiled(&kernel, 4).ptx;
    let letters = ["st.shared", "ld.shared", "fence.proxy.async", "bar.sync", "cp.async.bulk.tensor"];
    let letter = |line: &str| {
        letters.iter().zip("SLf|t".chars()).find(|(what, _)| line.contains(**what)).map(|(_, letter)| letter)
    };
    let mut all: String = ptx.lines().filter_map(letter).collect();
    all.truncate(all.rfind('t').map_or(0, |last| last + 1));
    // How many accesses there are is no matter here.
    let mut letters: Vec<char> = all.chars().collect();
    letters.dedup_by(|a, b| a == b && "SL".contains(*a));
    letters.into_iter().collect()
}

/// Fills an allocation by a tensor copy, waits for that, and stores what is there.
fn fill(name: &str) -> String {
    format!(
        "%s{name}: shared i32[16, 32] #3 = shared_alloc
  mbarrier_arrive %bar, %zero, %bytes
  tma_load %t, %s{name}, %bar, %zero, %zero, %zero
  mbarrier_wait %bar, %zero, %zero
  %r{name}: i32[16, 32] #2 = shared_load %s{name}
  %f{name}: i32[512] #0 = reshape %r{name}
  %o{name}: *out[512] #0 = splat %out
  %p{name}: *out[512] #0 = add_ptr %o{name}, %i
  store %p{name}, %f{name}"
    )
}
/// Elements change threads through memory that the lowering takes for that.
const CONVERT: &str = "%w: i32[512] #1 = convert_layout %v
  store %op, %w";
const FENCE: &str = "fence {kind = proxy_async}";

fn branch(body: &str) -> String {
    format!("if %yes {{\n{body}\nyield\n}} else {{\nyield\n}}")
}

fn iterations(body: &str) -> String {
    format!("for %zero, %n, %one (%k: i32) {{\n{body}\nyield\n}}")
}

/// A tensor copy into memory that the lowering passed something through may overtake the loads of it, if only a barrier
/// stands between: those who load pass a fence before.
#[test]
fn tensor_copies_do_not_overtake_conversions() {
    let fill = fill("");
    let of = |before: &str| order(&format!("{before}\n{fill}"));
    assert_eq!(of(CONVERT), "|S|Lf|t");
    assert_eq!(of(""), "|t", "nothing is overtaken");
    let indexed = fill.replace(
        "%s: shared i32[16, 32] #3 = shared_alloc",
        "%a: shared i32[2, 16, 32] #3 = shared_alloc\n%s: shared i32[16, 32] #3 = shared_index %a, %zero",
    );
    assert_eq!(order(&format!("{CONVERT}\n{indexed}")), "|S|Lf|t", "one of several slots");
    // A fence of the kernel's own, and a barrier without one, or with one that stands elsewhere.
    assert_eq!(of(&format!("{CONVERT}\n{FENCE}\nbarrier")), "|S|Lf|t", "one fence is enough");
    assert_eq!(of(&format!("{CONVERT}\nbarrier")), "|S|L|f|t", "a barrier is not");
    assert_eq!(of(&format!("{FENCE}\n{CONVERT}\nbarrier")), "|fS|L|f|t", "nor a fence before");
    assert_eq!(of(&format!("{CONVERT}\nbarrier\n{FENCE}")), "|S|L|ff|t", "nor one behind the barrier alone");
}

/// What threads combine among warps is overtaken as little.
#[test]
fn tensor_copies_do_not_overtake_reductions_and_scans() {
    let region = "{axis = 0} (%a: i32, %b: i32) {\n%ab: i32 = add %a, %b\nyield %ab\n}";
    let reduce = format!(
        "%q: i32[16, 32] #2 = reshape %v
  %sums: i32[32] #4 = reduce %q {region}
  %c: i32[32] #4 = arange {{lo = 0, hi = 32}}
  %oc: *out[32] #4 = splat %out
  %pc: *out[32] #4 = add_ptr %oc, %c
  store %pc, %sums"
    );
    assert_eq!(order(&format!("{reduce}\n{}", fill(""))), "|S|Lf|t");
    let scan = format!("%w: i32[512] #0 = scan %v {region}\n%oq: *out[512] #0 = splat %out\nstore %oq, %w");
    let scan = scan.replace("{axis = 0}", "{axis = 0, reverse = false}");
    assert_eq!(order(&format!("{scan}\n{}", fill(""))), "|S|LS|Lf|t", "the last of two exchanges");
}

/// Of branches and loops nobody knows whether they run: neither whether a fence in them has been passed, nor whether
/// there is something to overtake.
#[test]
fn tensor_copies_do_not_overtake_what_may_run() {
    let after = |before: &str| order(&format!("{before}\n{}", fill("")));
    assert_eq!(after(&branch(CONVERT)), "|S|Lf|t");
    assert_eq!(after(&iterations(CONVERT)), "|S|L|f|t", "behind the barrier between iterations");
    let fenced = format!("{FENCE}\nbarrier");
    assert_eq!(after(&format!("{CONVERT}\n{}", branch(&fenced))), "|S|Lf|f|t");
    assert_eq!(after(&format!("{CONVERT}\n{}", iterations(&fenced))), "|S|Lf|f|t");
    let condition = format!("while {{\n{CONVERT}\n{FENCE}\nbarrier\nyield %yes\n}} do {{\nyield\n}}");
    assert_eq!(after(&condition), "|S|Lf|t", "a condition runs once at least");
    // The copy is what may not run: the next one finds what the first was to wait for.
    for wrap in [branch, iterations] {
        assert_eq!(order(&format!("{CONVERT}\n{}", wrap(&fill("")))), "|S|Lf|t");
        assert_eq!(order(&format!("{CONVERT}\n{}\n{}", wrap(&fill("1")), fill("2"))), "|S|Lf|tLf|t");
    }
}

/// Loads and stores of the kernel's own keep their order behind a barrier.
#[test]
fn allocations_that_no_tensor_copy_fills_need_no_fence() {
    let body = "%s: shared i32[16, 32] #3 = shared_alloc
  %q: i32[16, 32] #2 = reshape %v
  shared_store %s, %q";
    assert_eq!(order(&format!("{CONVERT}\n{body}\n{}", fill("1"))), "|S|L|Sf|t");
}
