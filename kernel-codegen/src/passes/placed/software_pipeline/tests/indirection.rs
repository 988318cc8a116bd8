//! Addresses that are loaded in the loop.

use kernel_core::interp::{Fault, HostBuffer, HostScalar, run_kernel, run_ordered};
use kernel_core::ir::{DType, Func, MemoryOp, Op, Placed};
use kernel_core::text::print;

use super::super::indirection;
use super::{bound, count, mutants, placed, verified};
use crate::{Options, Target};
use kernel_core::edit::ops_in_order;
use kernel_core::ir::GpuOp;

/// The longest loop that is run.
const MOST: usize = 6;

/// `c = sum of x * y[p]` over the pages `p` that a table has, where `number` is how a page's number is loaded.
fn pages(params: &str, before: &str, number: &str, carried: [&str; 4]) -> String {
    let [results, inits, args, yields] = carried;
    format!(
        "kernel pages \"pages.rs\" unsafe bound {{
         {params}
         param %x x: ptr f16 {{div = 16}}
         param %y y: ptr f16 {{div = 16}}
         param %out out: ptr_mut f32 {{div = 16}}
         param %k k: i32
         %zero: i32 = const 0
         %one: i32 = const 1
         %lanes: i32[32] = arange {{lo = 0, hi = 32}}
         %rows: i32[32, 1] = expand_dims %lanes {{axis = 1}}
         %columns: i32[1, 32] = expand_dims %lanes {{axis = 0}}
         %width: i32 = const 32
         %size: i32 = const 1024
         %widths: i32[32, 1] = splat %width
         %rw: i32[32, 1] = mul %rows, %widths
         %rwb: i32[32, 32] = broadcast %rw
         %cb: i32[32, 32] = broadcast %columns
         %at: i32[32, 32] = add %rwb, %cb
         %none: f32 = const 0.0
         %start: f32[32, 32] = splat %none
         %xs: *x[32, 32] = splat %x
         %ys: *y[32, 32] = splat %y
         %xp: *x[32, 32] = add_ptr %xs, %at
         {before}
         %sum: f32[32, 32]{results} = for %zero, %k, %one, %start{inits} (%i: i32, %acc: f32[32, 32]{args}) {{
         {number}
         %a: f16[32, 32] = load %xp
         %yp: *y[32, 32] = add_ptr %ys, %offsets
         %b: f16[32, 32] = load %yp
         %d: f32[32, 32] = dot %a, %b, %acc {{precision = tf32}}
         yield %d{yields}
         }}
         %outs: *out[32, 32] = splat %out
         %op: *out[32, 32] = add_ptr %outs, %at
         store %op, %sum
         return
         }}"
    )
}

const TABLE: &str = "param %table table: ptr i32 {div = 4}";
/// One number for a page.
const SCALAR: &str = "%from: *table = add_ptr %table, %i
    %number: i32 = load %from
    %first: i32 = mul %number, %size
    %firsts: i32[32, 32] = splat %first
    %offsets: i32[32, 32] = add %firsts, %at";
/// One for each row.
const ROWS: &str = "%is: i32[32] = splat %i
    %from: *table[32] = add_ptr %tables, %is
    %numbers: i32[32] = load %from
    %first: i32[32, 1] = expand_dims %numbers {axis = 1}
    %sizes: i32[32, 1] = splat %size
    %firsts: i32[32, 1] = mul %first, %sizes
    %firstb: i32[32, 32] = broadcast %firsts
    %offsets: i32[32, 32] = add %firstb, %at";

/// Kernels whose numbers are loaded ahead, by what is loaded how.
fn samples() -> Vec<(&'static str, String)> {
    let none = [""; 4];
    let carried = [", %end: i32", ", %zero", ", %at0: i32", ", %at1"];
    let bumped = format!("{}\n%at1: i32 = add %at0, %one", SCALAR.replace("%table, %i", "%table, %at0"));
    let by_hand = [", %end: i32", ", %begin", ", %number: i32", ", %following"];
    let ahead = "%from: *table = add_ptr %table, %i
        %following: i32 = load %from
        %first: i32 = mul %number, %size
        %firsts: i32[32, 32] = splat %first
        %offsets: i32[32, 32] = add %firsts, %at";
    vec![
        ("a number for a page", pages(TABLE, "", SCALAR, none)),
        ("a number for each row", pages(TABLE, "%tables: *table[32] = splat %table", ROWS, none)),
        ("where it lies is carried", pages(TABLE, "", &bumped, carried)),
        ("carried by hand", pages(TABLE, "%begin: i32 = load %table", ahead, by_hand)),
    ]
}

/// Nothing lies behind the last of the numbers.
fn buffers(numbers: usize) -> Vec<HostBuffer> {
    let table: Vec<i32> = (0..numbers).map(|i| (i * 5 % 7) as i32).collect();
    let number = |seed: usize| half::f16::from_f32(((seed * 7) % 11) as f32 - 5.0);
    let x: Vec<half::f16> = (0..1024).map(number).collect();
    let y: Vec<half::f16> = (0..8 * 1024).map(|i| number(i + i / 1024)).collect();
    vec![table.into(), x.into(), y.into(), vec![0f32; 1024].into()]
}

fn try_run(func: &Func, trips: usize, numbers: usize) -> Result<Vec<f32>, Fault> {
    let func = Placed::new(func.clone()).expect("placed");
    let mut buffers = buffers(numbers);
    run_ordered(&func, &mut buffers, &[], &[HostScalar::from(trips as i32)], [1, 1, 1])?;
    Ok(buffers[3].as_slice::<f32>().expect("f32").to_vec())
}

fn pipelined(text: &str, target: Target, num_stages: u32) -> (Func, String) {
    let options = Options { num_stages, ..Options::default() };
    let mut func = placed(text, target, options.num_warps);
    indirection::run(&mut func, target, &options).expect("no mistake");
    verified(&func);
    let report = super::super::run(&mut func, target, &options).expect("it fits").loops;
    verified(&func);
    (func, report.into_iter().map(|report| report.what).collect())
}

#[test]
fn what_loaded_numbers_address_is_copied_ahead() {
    for (what, text) in samples() {
        // By hand, the last iteration loads a number that nobody needs.
        let more = usize::from(what == "carried by hand");
        for (target, stages) in [(Target::sm_80(), 2), (Target::sm_80(), 4), (Target::sm_90a(), 3)] {
            let (func, report) = pipelined(&text, target, stages);
            assert!(report.starts_with(&format!("pipelined with {stages} stages")), "{what}: {report}");
            assert!(report.ends_with("`y` by cp.async"), "{what}: {report}");
            for trips in 0..MOST {
                let mut expected = buffers(trips + more);
                let scalars = [HostScalar::from(trips as i32)];
                run_kernel(&bound(&text), &mut expected, &scalars, [1, 1, 1]).expect("it runs");
                let expected = expected[3].as_slice::<f32>().expect("f32").to_vec();
                let ran = try_run(&func, trips, trips + more)
                    .unwrap_or_else(|fault| panic!("{what}: {fault}\n{}", print(&func)));
                assert_eq!(ran, expected, "{what}, {trips} trips, {stages} stages\n{}", print(&func));
            }
        }
    }
}

/// A number is loaded once for each iteration, and not where it is used.
#[test]
fn numbers_are_loaded_once() {
    let (_, text) = samples().swap_remove(0);
    let (func, _) = pipelined(&text, Target::sm_90a(), 3);
    let numbers = ops_in_order(&func).into_iter().filter(|&id| {
        let operation = func.op(id);
        let scalar = operation.results.first().is_some_and(|&result| func.ty(result).is_scalar());
        scalar && matches!(operation.op, Op::Memory(MemoryOp::Load { .. }))
    });
    // The first, those of the two iterations of the prologue, and the one of the loop.
    assert_eq!(numbers.count(), 4, "{}", print(&func));
    assert_eq!(count(&func, |op| *op == GpuOp::AsyncCopy), 2 * 3, "{}", print(&func));
}

#[test]
fn numbers_that_may_change_are_not_loaded_ahead() {
    let (_, plain) = samples().swap_remove(0);
    let mutable = plain.replace("table: ptr i32", "table: ptr_mut i32");
    let written = mutable.replace("yield %d", "store %from, %number\nyield %d");
    let flag = mutable.replace("param %k k", "param %flag flag: ptr_mut i32\nparam %k k");
    let acquired = flag
        .replace("%from:", "%seen: i32 = atomic_rmw %flag, %one {op = add, order = acquire, scope = device}\n%from:");
    let again = plain.replace("%number: i32 = load %from", "%number: i32 = load %from {cache = cv}");
    let twice = plain.replace(
        "%first: i32 = mul %number,",
        "%then: *table = add_ptr %table, %number\n%other: i32 = load %then\n%first: i32 = mul %other,",
    );
    let asserted = plain.replace("%from:", "%ok: bool = cmp.ge %i, %zero\nassert %ok {message = \"no\"}\n%from:");
    let safe = asserted.replace("unsafe bound", "safe bound");
    for (what, text, ahead) in [
        ("nobody writes it", &mutable, true),
        ("an assert may end a kernel without checks", &asserted, false),
        ("an assert may be the check", &safe, false),
        ("the loop writes it", &written, false),
        ("the loop waits for others", &acquired, false),
        ("it is asked for again", &again, false),
        ("two levels", &twice, false),
    ] {
        let options = Options::default();
        let mut func = placed(text, Target::sm_90a(), options.num_warps);
        let before = print(&func);
        indirection::run(&mut func, Target::sm_90a(), &options).expect("no mistake");
        verified(&func);
        assert_eq!(print(&func) != before, ahead, "{what}: {}", print(&func));
        let report = super::super::run(&mut func, Target::sm_90a(), &options).expect("it fits").loops;
        assert_eq!(report[0].what.contains("`y` by cp.async"), ahead, "{what}: {}", report[0].what);
    }
}

/// `out = sum of x * y[i] * scale[i]`, with a scale for each row, or one for all rows.
fn scaled(rows: bool) -> String {
    let addressed = "%first: i32 = mul %i, %size
        %firsts: i32[32, 32] = splat %first
        %offsets: i32[32, 32] = add %firsts, %at";
    let scale = if rows {
        "%before: i32 = mul %i, %width
         %befores: i32[32] = splat %before
         %row: i32[32] = add %befores, %lanes
         %from: *table[32] = add_ptr %tables, %row
         %scale: f32[32] = load %from
         %scales: f32[32, 1] = expand_dims %scale {axis = 1}
         %factor: f32[32, 32] = broadcast %scales"
    } else {
        "%from: *table = add_ptr %table, %i
         %scale: f32 = load %from
         %factor: f32[32, 32] = splat %scale"
    };
    let product = "%p: f32[32, 32] = dot %a, %b, %start {precision = tf32}";
    let sum = "%q: f32[32, 32] = mul %p, %factor
        %d: f32[32, 32] = add %acc, %q";
    let text = pages("param %table table: ptr f32 {div = 4}", "%tables: *table[32] = splat %table", addressed, [""; 4]);
    text.replace("%d: f32[32, 32] = dot %a, %b, %acc {precision = tf32}", &format!("{scale}\n{product}\n{sum}"))
}

/// As many scales as iterations have; nothing lies behind the last.
fn scale_buffers(scales: usize) -> Vec<HostBuffer> {
    let mut all = buffers(0);
    all[0] = (0..scales).map(|i| ((i * 3) % 5) as f32 - 1.0).collect::<Vec<f32>>().into();
    all
}

#[test]
fn what_is_computed_with_products_is_loaded_an_iteration_ahead() {
    let loads = |func: &Func| {
        let loads = ops_in_order(func).into_iter().filter(|&id| {
            let operation = func.op(id);
            let scale = operation.results.first().is_some_and(|&result| func.ty(result).dtype() == Some(DType::F32));
            scale && matches!(operation.op, Op::Memory(MemoryOp::Load { .. }))
        });
        loads.count()
    };
    for rows in [true, false] {
        let text = scaled(rows);
        for (target, stages) in [(Target::sm_80(), 2), (Target::sm_80(), 4), (Target::sm_90a(), 3)] {
            let (func, report) = pipelined(&text, target, stages);
            assert!(report.starts_with(&format!("pipelined with {stages} stages")), "{report}");
            // That of the first iteration, and that of the next one.
            assert_eq!(loads(&func), 2, "{}", print(&func));
            for trips in 0..MOST {
                let scales = if rows { trips * 32 } else { trips };
                let (mut expected, mut got) = (scale_buffers(scales), scale_buffers(scales));
                let scalars = [HostScalar::from(trips as i32)];
                run_kernel(&bound(&text), &mut expected, &scalars, [1, 1, 1]).expect("it runs");
                let placed = Placed::new(func.clone()).expect("placed");
                run_ordered(&placed, &mut got, &[], &scalars, [1, 1, 1])
                    .unwrap_or_else(|fault| panic!("{fault}\n{}", print(&func)));
                assert_eq!(got[3].as_slice::<f32>(), expected[3].as_slice::<f32>(), "{trips} trips, {stages} stages");
            }
        }
    }
    // Where the loop asks for stages, all that it loads is copied as far ahead.
    let asks = scaled(true).replace("%start (%i", "%start {stages = 4} (%i");
    let (func, report) = pipelined(&asks, Target::sm_90a(), 3);
    assert!(report.starts_with("pipelined with 4 stages") && report.contains("`table` by cp.async"), "{report}");
    assert_eq!(loads(&func), 0, "{}", print(&func));
    // A thread has no registers for more.
    let many = scaled(true).replace("%factor: f32[32, 32] = broadcast", "%one_more: f32[32, 32] = broadcast").replace(
        "%p: f32[32, 32]",
        "%tiles: *table[32, 32] = splat %table
         %tile: *table[32, 32] = add_ptr %tiles, %at
         %more: f32[32, 32] = load %tile
         %factor: f32[32, 32] = mul %more, %one_more
         %p: f32[32, 32]",
    );
    // The loop writes it.
    let written = scaled(false)
        .replace("table: ptr f32", "table: ptr_mut f32")
        .replace("yield %d", "store %from, %scale\nyield %d");
    for (text, expected) in [(many, 2), (written, 1)] {
        let (func, report) = pipelined(&text, Target::sm_90a(), 3);
        assert!(report.starts_with("pipelined with 3 stages"), "{report}");
        assert_eq!(loads(&func), expected, "{}", print(&func));
    }
}

/// A product that is waited for in its iteration runs while what the next one reads is waited for and fenced.
#[test]
fn what_the_next_iteration_reads_is_there_when_its_product_begins() {
    let sizes = [
        ("[32", "[64"),
        (", 32]", ", 64]"),
        ("hi = 32", "hi = 64"),
        ("const 32", "const 64"),
        ("const 1024", "const 4096"),
    ];
    let text = sizes.iter().fold(scaled(true), |text, (from, to)| text.replace(from, to));
    let buffers = |trips: usize| -> Vec<HostBuffer> {
        let number = |i: usize| half::f16::from_f32(((i * 7 + i / 4096) % 11) as f32 - 5.0);
        let factors = |count: usize| (0..count * 4096).map(number).collect::<Vec<half::f16>>();
        let scales: Vec<f32> = (0..trips * 64).map(|i| ((i * 3) % 5) as f32 - 1.0).collect();
        vec![scales.into(), factors(1).into(), factors(MOST).into(), vec![0f32; 4096].into()]
    };
    let run = |func: &Func, trips: usize| {
        let (placed, mut all) = (Placed::new(func.clone()).expect("placed"), buffers(trips));
        run_ordered(&placed, &mut all, &[], &[HostScalar::from(trips as i32)], [1, 1, 1])?;
        Ok::<Vec<f32>, Fault>(all[3].as_slice::<f32>().expect("f32").to_vec())
    };
    for stages in [3, 4] {
        // As the pass leaves it: `membar` would put in waits that are missing.
        let (func, _) = pipelined(&text, Target::sm_90a(), stages);
        assert_eq!(count(&func, |op| matches!(op, GpuOp::Wgmma { .. })), 1, "{}", print(&func));
        for trips in 0..=MOST {
            let mut expected = buffers(trips);
            run_kernel(&bound(&text), &mut expected, &[HostScalar::from(trips as i32)], [1, 1, 1]).expect("it runs");
            let got = run(&func, trips).unwrap_or_else(|fault| panic!("{fault}\n{}", print(&func)));
            assert_eq!(Some(&got[..]), expected[3].as_slice::<f32>(), "{trips} trips, {stages} stages");
        }
    }
}

#[test]
fn every_fault_planted_beside_loaded_numbers_shows() {
    let (mut planted, mut missed) = (0, Vec::new());
    for (what, text) in samples().into_iter().take(3) {
        let (mut func, _) = pipelined(&text, Target::sm_80(), 3);
        crate::passes::placed::membar::run(&mut func).expect("no mistake");
        let expected = try_run(&func, MOST, MOST).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        for (fault, mutant) in mutants(&func) {
            planted += 1;
            if try_run(&mutant, MOST, MOST).as_ref() == Ok(&expected) {
                missed.push(format!("{what}: {fault}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(planted >= 12, "{planted} planted");
}
