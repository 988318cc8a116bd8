//! Pipelined kernels compute what they computed before, verify, and have the barriers that they need and no more.

mod ahead;
mod indirection;
mod samples;

use kernel_core::edit::{Cursor, Place, ops_in_order, splice};
use kernel_core::interp::{Fault, HostBuffer, HostScalar, HostTensor, run_kernel, run_ordered};
use kernel_core::ir::known::constant;
use kernel_core::ir::{Bound, Func, GpuOp, Literal, Op, ParamKind, Placed};
use kernel_core::text::{parse, print};
use kernel_core::verify::verify;

use crate::analysis::axis::AxisAnalysis;
use crate::passes::bound::choose_products;
use crate::passes::placed::{dot_operands, warp_specialize};
use crate::{CodegenError, Options, Target, place};

use samples::{Matmul, attention, sheets, stream, tensors};

fn bound(text: &str) -> Bound {
    let func = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&func).unwrap_or_else(|problems| panic!("{problems:?}"));
    Bound::new(func).unwrap_or_else(|_| panic!("the kernel is not bound"))
}

fn placed(text: &str, target: Target, num_warps: u32) -> Func {
    let mut func = bound(text).into_func();
    choose_products::run(&mut func, target, num_warps).unwrap_or_else(|error| panic!("{error}"));
    let axis = AxisAnalysis::new(&func);
    let mut func = place::place(func, &axis, target, num_warps).unwrap_or_else(|error| panic!("{error}"));
    dot_operands::run(&mut func).unwrap_or_else(|error| panic!("{error}"));
    verified(&func);
    func
}

fn verified(func: &Func) {
    verify(func).unwrap_or_else(|problems| panic!("{problems:?}\n{}", print(func)));
}

fn pipelined(text: &str, target: Target, options: &Options) -> Result<(Func, String), CodegenError> {
    let mut func = placed(text, target, options.num_warps);
    let reports = super::run(&mut func, target, options)?.loops;
    verified(&func);
    let again = parse(&print(&func)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(print(&again), print(&func), "the text form round-iterations");
    Ok((func, reports.into_iter().map(|report| report.what).collect::<Vec<_>>().join("\n")))
}

fn try_run(func: &Func, mut buffers: Vec<HostBuffer>, k: i32) -> Result<Vec<f32>, Fault> {
    let func = Placed::new(func.clone()).expect("placed");
    run_ordered(&func, &mut buffers, &[], &[HostScalar::from(k)], [1, 1, 1])?;
    Ok(buffers[2].as_slice::<f32>().expect("f32").to_vec())
}

/// Runs a kernel, all of whose accesses to shared memory must be ordered.
fn run(func: &Func, buffers: Vec<HostBuffer>, k: i32) -> Vec<f32> {
    try_run(func, buffers, k).unwrap_or_else(|fault| panic!("{fault}\n{}", print(func)))
}

fn count(func: &Func, is: impl Fn(&GpuOp) -> bool) -> usize {
    ops_in_order(func).into_iter().filter(|&id| matches!(&func.op(id).op, Op::Gpu(op) if is(op))).count()
}

/// Compiles with every number of stages, and runs with so many iterations; returns the reports.
fn same(matmul: &Matmul, target: Target, num_warps: u32) -> Vec<String> {
    let text = matmul.text();
    let mut reports = Vec::new();
    for stages in 2..=5 {
        let options = Options { num_warps, num_stages: stages, ..Options::default() };
        let (func, report) = pipelined(&text, target, &options).unwrap_or_else(|error| panic!("{error}"));
        for total in
            [0, matmul.k, 2 * matmul.k, 3 * matmul.k, 7 * matmul.k, if matmul.masked { 5 * matmul.k - 16 } else { 0 }]
        {
            let mut expected = matmul.buffers(total);
            run_kernel(&bound(&text), &mut expected, &[HostScalar::from(total as i32)], [1, 1, 1]).expect("it runs");
            let expected = expected[2].as_slice::<f32>().expect("f32").to_vec();
            assert_eq!(
                run(&func, matmul.buffers(total), total as i32),
                expected,
                "{stages} stages, K = {total}\n{}",
                print(&func)
            );
        }
        reports.push(report);
    }
    reports
}

#[test]
fn warp_group_products_stay_in_flight() {
    for (transposed, bumps) in [(false, false), (true, false), (false, true), (true, true)] {
        let matmul = Matmul { transposed, bumps, ..Matmul::default() };
        let reports = same(&matmul, Target::sm_90a(), 4);
        assert!(!reports[0].contains("in flight") && reports[1].contains("in flight"), "{reports:?}");
        let options = Options { num_stages: 4, ..Options::default() };
        let (func, _) = pipelined(&matmul.text(), Target::sm_90a(), &options).expect("it fits");
        assert_eq!(count(&func, |op| *op == GpuOp::Barrier), 2, "{}", print(&func));
        assert_eq!(count(&func, |op| *op == GpuOp::SharedStore), 0);
        assert_eq!(count(&func, |op| *op == GpuOp::AsyncCopy), 2 * 4, "three iterations ahead and one in the loop");
    }
}

/// Pointers are advanced where every mask holds to begin with; else they are computed anew in each iteration.
#[test]
fn pointers_go_on_where_masks_only_come_to_an_end() {
    let matmul = Matmul::default();
    let cases = [
        ("cmp.lt %kai, %la", true),
        ("cmp.gt %la, %kai", true),
        ("cmp.ge %kai, %la", false),
        ("cmp.le %la, %kai", false),
        // A sum that may wrap falls when it does.
        ("cmp.lt %kaj, %la", false),
    ];
    for (compare, advances) in cases {
        let text = matmul
            .text()
            .replace("%zero: i32 = const 0", "%zero: i32 = const 0\n%part: i32 = const 48\n%pn: i32[1, 32] = splat %nn")
            .replace("%la: i32[1, 32] = splat %kk", "%la: i32[1, 32] = splat %part\n%kaj: i32[1, 32] = add %kai, %pn")
            .replace("%nn: i32 = const 32", "")
            .replace("param %kk k: i32 {div = 16}", "param %kk k: i32 {div = 16}\n%nn: i32 = const 32")
            .replace("cmp.lt %kai, %la", compare);
        let options = Options { num_stages: 3, ..Options::default() };
        let (func, _) = pipelined(&text, Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(count(&func, |op| *op == GpuOp::AsyncCopy), 2 * 3, "two iterations ahead and one in the loop");
        let printed = print(&func);
        let header = printed.lines().find(|line| line.contains(" = for ")).unwrap_or_default();
        assert_eq!(header.contains(": *a["), advances, "{compare}: {header}");
        assert!(header.contains(": *b["), "its mask is another: {header}");
        for total in [32, 96, 224] {
            let expected = run(&placed(&text, Target::sm_90a(), 4), matmul.buffers(total), total as i32);
            assert_eq!(run(&func, matmul.buffers(total), total as i32), expected, "{compare}, K = {total}\n{printed}");
        }
    }
}

#[test]
fn factors_of_warps_are_read_by_ldmatrix() {
    for transposed in [false, true] {
        let matmul = Matmul { transposed, ..Matmul::default() };
        let reports = same(&matmul, Target::sm_80(), 4);
        assert!(reports.iter().all(|report| report.starts_with("pipelined")), "{reports:?}");
        let options = Options::default();
        let (func, _) = pipelined(&matmul.text(), Target::sm_80(), &options).expect("it fits");
        assert_eq!(count(&func, |op| *op == GpuOp::Barrier), 1, "{}", print(&func));
        assert_eq!(count(&func, |op| *op == GpuOp::SharedStore), 0);
    }
}

/// Before the pass, too, factors in shared memory are there when they are read, and overwritten when they have been.
#[test]
fn factors_of_loops_that_are_not_pipelined_are_ordered() {
    for target in [Target::sm_80(), Target::sm_90a()] {
        for transposed in [false, true] {
            let matmul = Matmul { transposed, ..Matmul::default() };
            let mut expected = matmul.buffers(96);
            run_kernel(&bound(&matmul.text()), &mut expected, &[HostScalar::from(96)], [1, 1, 1]).expect("it runs");
            let found = run(&placed(&matmul.text(), target, 4), matmul.buffers(96), 96);
            assert_eq!(found, expected[2].as_slice::<f32>().expect("f32"));
        }
    }
    // One factor alone: no barrier of another stands between its iterations.
    let matmul = Matmul { masked: false, ..Matmul::default() };
    let alone = matmul
        .text()
        .replace("dot %va", "dot %vz")
        .replace("%sum: f32", "%pz: *a[64, 32] = add_ptr %as, %mkb\n%vz: f16[64, 32] = load %pz\n%sum: f32");
    for target in [Target::sm_80(), Target::sm_90a()] {
        let mut expected = matmul.buffers(96);
        run_kernel(&bound(&alone), &mut expected, &[HostScalar::from(96)], [1, 1, 1]).expect("it runs");
        let func = placed(&alone, target, 4);
        assert_eq!(run(&func, matmul.buffers(96), 96), expected[2].as_slice::<f32>().expect("f32"));
    }
}

#[test]
fn scalar_products_are_fed_from_registers() {
    let matmul = Matmul { dtype: "f32", masked: false, ..Matmul::default() };
    let text = matmul.text().replace("precision = tf32", "precision = ieee");
    let (func, report) = pipelined(&text, Target::sm_80(), &Options::default()).expect("it fits");
    assert!(report.starts_with("pipelined"), "{report}");
    let expected = run(&placed(&text, Target::sm_80(), 4), matmul.buffers(96), 96);
    assert_eq!(run(&func, matmul.buffers(96), 96), expected);
}

#[test]
fn more_stages_than_fit_are_refused_and_fewer_taken_silently() {
    let large = Matmul { m: 128, n: 256, k: 64, stages: 9, ..Matmul::default() };
    let options = Options { num_warps: 8, ..Options::default() };
    let error = pipelined(&large.text(), Target::sm_90a(), &options).expect_err("too much").to_string();
    assert!(error.contains("442368 needed, 232448 allowed") && error.contains("4 stages fit"), "{error}");
    let options = Options { num_warps: 8, num_stages: 5, ..Options::default() };
    let error = pipelined(&Matmul { stages: 0, ..large }.text(), Target::sm_90a(), &options).expect_err("too much");
    assert!(error.to_string().contains("4 stages fit"), "{error}");
    let silent = Matmul { m: 128, n: 256, k: 128, ..Matmul::default() };
    let options = Options { num_warps: 8, ..Options::default() };
    let (_, report) = pipelined(&silent.text(), Target::sm_90a(), &options).expect("fewer");
    assert!(report.starts_with("pipelined with 2 stages"), "{report}");
}

#[test]
fn barriers_of_pipelines_are_found_again() {
    for (target, stages, barriers) in [(Target::sm_90a(), 4, 2), (Target::sm_90a(), 2, 1), (Target::sm_80(), 3, 1)] {
        let matmul = Matmul::default();
        let options = Options { num_stages: stages, ..Options::default() };
        let (mut func, _) = pipelined(&matmul.text(), target, &options).expect("it fits");
        assert_eq!(crate::passes::placed::membar::run(&mut func).expect("no mistake"), barriers, "{}", print(&func));
        verified(&func);
        let mut plain = placed(&matmul.text(), target, 4);
        assert_eq!(crate::passes::placed::membar::run(&mut plain).expect("no mistake"), 2, "{}", print(&plain));
    }
}

fn try_run_tensors(func: &Func, k: i32, tiles: i32) -> Result<Vec<f32>, Fault> {
    let values = |count: i32, seed: i32| -> HostBuffer {
        (0..count).map(|i| half::f16::from_f32(((i * 7 + seed) % 13 - 6) as f32)).collect::<Vec<_>>().into()
    };
    let zeros: HostBuffer = vec![0f32; 64 * 128].into();
    let mut buffers = vec![values(64 * 256, 1), values(256 * 128, 2), zeros];
    let leading = match &func.params[0].kind {
        ParamKind::Desc { block, .. } => vec![1; block.len() - 2],
        kind => panic!("{kind:?} is no descriptor"),
    };
    let tensor = |rows, columns| HostTensor::contiguous(&[leading.as_slice(), &[rows, columns]].concat());
    let tensors = [tensor(64, 256), tensor(256, 128)];
    let scalars = [HostScalar::from(k), HostScalar::from(tiles)];
    let func = Placed::new(func.clone()).expect("placed");
    run_ordered(&func, &mut buffers, &tensors, &scalars, [1, 1, 1])?;
    Ok(buffers[2].as_slice::<f32>().expect("f32").to_vec())
}

fn run_tensors(func: &Func, k: i32, tiles: i32) -> Vec<f32> {
    try_run_tensors(func, k, tiles).unwrap_or_else(|fault| panic!("{fault}\n{}", print(func)))
}

#[test]
fn the_report_names_tensors_whose_blocks_are_used_in_registers() {
    // Two warps are no warp group: `mma.sync` takes its factors from registers.
    let options = Options { num_warps: 2, ..Options::default() };
    let (func, report) = pipelined(&tensors(false), Target::sm_90a(), &options).expect("it fits");
    assert!(count(&func, |op| *op == GpuOp::SharedLoad) > 0, "{}", print(&func));
    assert!(report.contains("`a` by tensor copy, `b` by tensor copy"), "{report}");
}

#[test]
fn blocks_whose_leading_dimension_is_dropped_feed_products_where_they_arrive() {
    for nested in [false, true] {
        let plain = placed(&tensors(nested), Target::sm_90a(), 4);
        for stages in 2..=4 {
            let options = Options { num_stages: stages, ..Options::default() };
            let (mut ahead, report) = pipelined(&sheets(nested, false), Target::sm_90a(), &options).expect("it fits");
            assert!(report.contains("`a` by tensor copy, `b` by tensor copy"), "{report}");
            let mut divided = placed(&sheets(nested, true), Target::sm_90a(), 4);
            let (is_divided, loops) = warp_specialize::run(
                &mut divided,
                Target::sm_90a(),
                &options,
                warp_specialize::Specialize::IfProfitable,
            )
            .expect("it fits");
            assert!(is_divided, "{loops:?}");
            verified(&divided);
            for func in [&mut ahead, &mut divided] {
                assert_eq!(count(func, |op| *op == GpuOp::SharedStore), 0, "{}", print(func));
                crate::passes::placed::membar::run(func).expect("no mistake");
                for (k, tiles) in [(0, 1), (32, 2), (256, 4)] {
                    assert_eq!(run_tensors(func, k, tiles), run_tensors(&plain, k, tiles), "{}", print(func));
                }
            }
        }
    }
}

#[test]
fn blocks_of_tensors_are_copied_ahead_and_phases_run_on_over_tiles() {
    for nested in [false, true] {
        let text = tensors(nested);
        let plain = placed(&text, Target::sm_90a(), 4);
        for stages in 2..=4 {
            let options = Options { num_stages: stages, ..Options::default() };
            let (mut func, report) = pipelined(&text, Target::sm_90a(), &options).expect("it fits");
            assert!(report.contains("`a` by tensor copy") && report.contains("`b` by tensor copy"), "{report}");
            assert_eq!(count(&func, |op| *op == GpuOp::SharedStore), 0);
            // One in the loop; and one before the first copies of the next tile.
            let barriers = crate::passes::placed::membar::run(&mut func).expect("no mistake");
            assert_eq!(barriers, if nested { 2 } else { 1 }, "{}", print(&func));
            verified(&func);
            for (k, tiles) in [(0, 2), (32, 3), (64, 4), (96, 4), (224, 3)] {
                assert_eq!(run_tensors(&func, k, tiles), run_tensors(&plain, k, tiles), "{stages} stages, K = {k}");
            }
        }
    }
}

#[test]
fn loads_that_stream_are_read_by_the_thread_that_copied_them() {
    let run = |func: &Func, n: i32| {
        let x: HostBuffer = (0..1000).map(|i| (i % 17) as f32).collect::<Vec<f32>>().into();
        let mut buffers = vec![x, vec![0f32; 256].into()];
        let func = Placed::new(func.clone()).expect("placed");
        let result = run_ordered(&func, &mut buffers, &[], &[HostScalar::from(n)], [1, 1, 1]);
        (result.map_err(|fault| fault.kind), buffers[1].as_slice::<f32>().expect("f32").to_vec())
    };
    for checked in [false, true] {
        let text = stream(" {stages = 3}", checked);
        let plain = placed(&text, Target::sm_80(), 2);
        let options = Options { num_warps: 2, ..Options::default() };
        let (mut func, report) = pipelined(&text, Target::sm_80(), &options).expect("it fits");
        assert!(report.starts_with("pipelined with 3 stages of 1024 bytes"), "{report}");
        assert_eq!(crate::passes::placed::membar::run(&mut func).expect("no mistake"), 0, "{}", print(&func));
        assert_eq!(count(&func, |op| *op == GpuOp::AsyncCopy), 3);
        for n in [0, 16, 256, 512, 768, 1000] {
            assert_eq!(run(&func, n), run(&plain, n), "n = {n}");
        }
        if checked {
            let (faults, _) = run(&func, 1008);
            assert!(faults.is_err(), "what is out of bounds is still reported");
        }
    }
    let (func, report) = pipelined(&stream("", false), Target::sm_80(), &Options::default()).expect("it fits");
    assert_eq!((count(&func, |_| true), report.as_str()), (0, ""), "loops without products have to ask");
    let (func, _) = pipelined(&stream(" {stages = 1}", false), Target::sm_80(), &Options::default()).expect("it fits");
    assert_eq!(count(&func, |_| true), 0);
}

#[test]
fn a_loop_that_asks_in_vain_is_told_why() {
    let options = Options::default();
    let (func, report) =
        pipelined(&stream(" {reverse = true, stages = 3}", false), Target::sm_80(), &options).expect("");
    assert_eq!((count(&func, |_| true), report.as_str()), (0, "not pipelined: it runs backwards"));
    let text = tensors(true).replace("%tiles, %one (", "%tiles, %one {stages = 2} (");
    let (_, report) = pipelined(&text, Target::sm_90a(), &options).expect("it fits");
    assert!(report.starts_with("not pipelined: there is a loop in it"), "{report}");
    let text = tensors(false).replace(
        "%d: f32[64, 32] = dot",
        "%ok: bool = cmp.ge %i, %zero\nassert %ok {message = \"no\"}\n%d: f32[64, 32] = dot",
    );
    let (_, report) = pipelined(&text, Target::sm_90a(), &options).expect("it fits");
    assert!(report.contains("an assert may end the program"), "{report}");
}

#[test]
fn memory_that_the_loop_writes_is_not_read_ahead() {
    let text = stream(" {stages = 3}", false)
        .replace("param %x x: ptr f32", "param %x x: ptr_mut f32")
        .replace("yield %s", "store %p, %s, %mask\nyield %s");
    let (func, report) = pipelined(&text, Target::sm_80(), &Options::default()).expect("it fits");
    assert_eq!(count(&func, |_| true), 0);
    assert!(report.contains("`x`: the loop writes that memory"), "{report}");
    let narrow = stream(" {stages = 3}", false).replace("{div = 16}", "").replace("f32", "f16");
    let (_, report) = pipelined(&narrow, Target::sm_80(), &Options::default()).expect("it fits");
    assert!(report.contains("less than 4 bytes"), "{report}");
    let data = stream(" {stages = 3}", false).replace("%o: i32[256] = add %lanes, %is", "%o: i32[256] = add %lanes, %is\n%far: *x[256] = splat %x").replace(
        "%v: f32[256] = load %p, %mask",
        "%j: f32[256] = load %p, %mask\n%k: i32[256] = cast %j {to = i32}\n%p2: *x[256] = add_ptr %far, %k\n%v: f32[256] = load %p2, %mask",
    );
    let (_, report) = pipelined(&data, Target::sm_80(), &Options::default()).expect("it fits");
    assert!(report.contains("pipelined") && report.contains("not `x`: its addresses are not known ahead"), "{report}");
}

/// An assert may be all that keeps an address inside a buffer.
#[test]
fn memory_is_not_accessed_ahead_of_asserts() {
    let checked = stream(" {stages = 3}", true);
    let asserted = checked.replace("%xs:", "%ok: bool = cmp.ge %i, %zero\nassert %ok {message = \"no\"}\n%xs:");
    let safe = asserted.replace("unsafe bound", "safe bound");
    let refused = "`x`: an assert may end the program before it";
    for (text, said) in [(checked, "`x` by cp.async"), (asserted, refused), (safe, refused)] {
        let (_, report) = pipelined(&text, Target::sm_80(), &Options::default()).expect("it fits");
        assert!(report.contains(said), "{report}, not {said}");
    }
}

#[test]
fn loops_with_products_of_products_stay_right() {
    let values = |seed: usize| -> HostBuffer {
        (0..4096).map(|i| half::f16::from_f32(((i * 5 + seed) % 3) as f32 - 1.0)).collect::<Vec<_>>().into()
    };
    let run = |func: &Func, n: i32| run(func, vec![values(1), values(2), vec![0f32; 64 * 32].into()], n);
    for target in [Target::sm_90a(), Target::sm_80()] {
        let plain = placed(&attention(), target, 4);
        for stages in 2..=4 {
            let options = Options { num_stages: stages, ..Options::default() };
            let (mut func, report) = pipelined(&attention(), target, &options).expect("it fits");
            assert!(report.contains("`k` by cp.async, `v` by cp.async") && !report.contains("flight"), "{report}");
            crate::passes::placed::membar::run(&mut func).expect("no mistake");
            verified(&func);
            for n in [0, 32, 64, 128] {
                assert_eq!(run(&func, n), run(&plain, n), "{stages} stages, n = {n}\n{}", print(&func));
            }
        }
    }
}

/// The kernel with a fault in place of each operation that orders accesses, with what was done.
fn mutants(func: &Func) -> Vec<(String, Func)> {
    let mut all = Vec::new();
    for id in ops_in_order(func) {
        let Op::Gpu(op) = &func.op(id).op else { continue };
        let name = op.mnemonic();
        // Behind the loop nothing uses the memory again, so that copies in flight there harm nobody.
        if matches!(op, GpuOp::AsyncWait { .. }) && func.region(func.body).ops.contains(&id) {
            continue;
        }
        let later = match op {
            GpuOp::AsyncWait { pending } => Some(GpuOp::AsyncWait { pending: pending + 1 }),
            GpuOp::WgmmaWait { pending } => Some(GpuOp::WgmmaWait { pending: pending + 1 }),
            _ => None,
        };
        if let Some(later) = later {
            let mut mutant = func.clone();
            mutant.ops[id.index()].op = later.into();
            all.push((format!("a later {name}"), mutant));
        }
        let orders = matches!(
            op,
            GpuOp::Barrier
                | GpuOp::WarpgroupBarrier
                | GpuOp::Fence { .. }
                | GpuOp::AsyncWait { .. }
                | GpuOp::AsyncCommit
                | GpuOp::MbarrierWait
                | GpuOp::MbarrierArrive
        );
        if orders {
            let mut mutant = func.clone();
            mutant.regions.iter_mut().for_each(|region| region.ops.retain(|&op| op != id));
            all.push((format!("no {name}"), mutant));
        }
        let slot = match op {
            GpuOp::MbarrierArrive | GpuOp::MbarrierWait | GpuOp::SharedIndex => Some(1),
            _ => None,
        };
        let is_first = |operand: &usize| constant(func, func.op(id).operands[*operand]) == Some(Literal::Int(0));
        if let Some(operand) = slot.filter(|operand| !is_first(operand)) {
            // The first slot at all times.
            let mut mutant = func.clone();
            let mut first = Vec::new();
            let zero = Cursor::new(&mut mutant, &mut first, "test").i32(0).expect("a number");
            mutant.ops[id.index()].operands[operand] = zero;
            let body = mutant.body;
            splice(&mut mutant, Place::Start(body), first);
            all.push((format!("the wrong slot of {name}"), mutant));
        }
    }
    all
}

#[test]
fn every_fault_planted_in_a_pipeline_shows() {
    let (mut planted, mut missed) = (0, Vec::new());
    let mut check = |name: &str, func: &Func, run: &dyn Fn(&Func) -> Result<Vec<f32>, Fault>| {
        let expected = run(func).unwrap_or_else(|fault| panic!("{name}: {fault}\n{}", print(func)));
        for (what, mutant) in mutants(func) {
            planted += 1;
            if run(&mutant).as_ref() == Ok(&expected) {
                missed.push(format!("{name}: {what}"));
            }
        }
    };
    let prepared = |text: &str, target: Target, num_stages: u32| {
        let options = Options { num_stages, ..Options::default() };
        let (mut func, _) = pipelined(text, target, &options).expect("it fits");
        crate::passes::placed::membar::run(&mut func).expect("no mistake");
        func
    };
    let matmul = Matmul::default();
    for (name, target, stages) in
        [("in flight", Target::sm_90a(), 4), ("waiting", Target::sm_90a(), 2), ("warps", Target::sm_80(), 3)]
    {
        check(name, &prepared(&matmul.text(), target, stages), &|func| try_run(func, matmul.buffers(7 * 32), 7 * 32));
    }
    for (name, nested, stages) in [("tensors", false, 3), ("tiles", true, 4)] {
        check(name, &prepared(&tensors(nested), Target::sm_90a(), stages), &|func| try_run_tensors(func, 224, 3));
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(planted >= 60, "{planted} planted");
}
