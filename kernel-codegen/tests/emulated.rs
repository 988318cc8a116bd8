//! Generated code does what the interpreter does: the PTX runs on the CPU, thread by thread in random orders.

mod support;

use kernel_codegen::{Checks, Options, Target, compile};
use kernel_core::interp::HostBuffer;
use kernel_core::ir::Bound;
use support::differential::{Agreement, Given, agrees, agrees_in_warps, compare, emulate, floats, ints, noise, zeros};

fn check(text: &str, buffers: &[HostBuffer], scalars: &[i32], grid: u32, agreement: Agreement) {
    agrees(&support::kernel(text), buffers, scalars, grid, agreement);
}

#[test]
fn add() {
    let buffers = [floats(2000, 1), floats(2000, 2), zeros(2000)];
    check(include_str!("kernels/add.tile"), &buffers, &[1984], 2, Agreement::Exact);
}

#[test]
fn softmax_of_a_row() {
    let text = include_str!("kernels/softmax.tile");
    check(text, &[floats(8192, 3), zeros(8192)], &[4096, 4000], 2, Agreement::Within(2e-5));
}

#[test]
fn softmax_of_several_rows() {
    let halves: Vec<half::f16> = noise(16 * 256, 4).map(|x| half::f16::from_f32(x as f32 / 128.0)).collect();
    let out = vec![half::f16::ZERO; 16 * 256];
    let scalars = [256, 240];
    check(include_str!("kernels/rows.tile"), &[halves.into(), out.into()], &scalars, 2, Agreement::Within(2e-3));
}

#[test]
fn transpose() {
    check(include_str!("kernels/transpose.tile"), &[floats(4096, 5), zeros(4096)], &[64], 1, Agreement::Exact);
}

#[test]
fn argmax_breaks_ties_the_same_way_in_every_thread() {
    let values: Vec<f32> = noise(4096, 6).map(|x| (x % 7) as f32).collect();
    check(include_str!("kernels/argmax.tile"), &[values.into(), vec![0i32; 4].into()], &[], 4, Agreement::Exact);
}

/// Of 32 warps, each thread reads the results of four, and lanes combine those of different warps.
#[test]
fn reductions_of_32_warps_are_combined_by_shuffles() {
    let options = Options { num_warps: 32, ..Options::default() };
    let kernel = support::kernel(include_str!("kernels/argmax.tile"));
    let compiled = compile(&kernel, &Target::sm_90a(), &options).expect("it compiles");
    let count = |what: &str| compiled.ptx.matches(what).count();
    // Two operands: five shuffles in a warp and three between the results of warps for each.
    assert_eq!((count("shfl.sync.bfly"), count("ld.shared.v4"), count("bar.sync")), (16, 2, 1), "{}", compiled.ptx);
    let values: Vec<f32> = noise(4096, 6).map(|x| (x % 7) as f32).collect();
    let given = Given { buffers: &[values.into(), vec![0i32; 4].into()], tensors: &[], scalars: &[] };
    agrees_in_warps(&[16, 32], &kernel, &given, 4, Agreement::Exact);
}

/// A sum has a part of every warp in it, where a maximum may lie in the first.
#[test]
fn sums_over_32_warps_have_all_parts() {
    let text = "kernel sums \"sums.rs\" unsafe bound {
        param %x x: ptr i32 {div = 16}
        param %out out: ptr_mut i32 {div = 16}
        %i: i32[1024] = arange {lo = 0, hi = 1024}
        %xs: *x[1024] = splat %x
        %xp: *x[1024] = add_ptr %xs, %i
        %a: i32[1024] = load %xp
        %sum: i32 = reduce %a {axis = 0} (%p: i32, %q: i32) {
          %m: i32 = add %p, %q
          yield %m
        }
        store %out, %sum
        return
    }";
    let given = Given { buffers: &[ints(1024, 31), vec![0i32].into()], tensors: &[], scalars: &[] };
    agrees_in_warps(&[4, 16, 32], &support::kernel(text), &given, 1, Agreement::Exact);
    // The first and the last element are the largest, by turns.
    for place in [0, 31, 32, 512, 1023] {
        let values: Vec<f32> = (0..1024).map(|i| if i == place { 1000.0 } else { (i % 7) as f32 }).collect();
        let given = Given { buffers: &[values.into(), vec![0i32].into()], tensors: &[], scalars: &[] };
        let kernel = support::kernel(include_str!("kernels/argmax.tile"));
        agrees_in_warps(&[32], &kernel, &given, 1, Agreement::Exact);
    }
}

/// A kernel that asks which of 512 numbers are larger than zero, `%is`.
fn truths(body: &str) -> Bound {
    support::kernel(&format!(
        "kernel truths \"truths.rs\" unsafe bound {{
        param %x x: ptr i32 {{div = 16}}
        param %out out: ptr_mut i32 {{div = 16}}
        %i: i32[512] = arange {{lo = 0, hi = 512}}
        %xs: *x[512] = splat %x
        %xp: *x[512] = add_ptr %xs, %i
        %a: i32[512] = load %xp
        %zero: i32 = const 0
        %one: i32 = const 1
        %zeros: i32[512] = splat %zero
        %is: bool[512] = cmp.gt %a, %zeros
        {body}
        return
    }}"
    ))
}

/// Whether any or all elements of a tile are true is what every thread of the program has found, wherever the one lies that
/// decides it, and takes one barrier.
#[test]
fn truth_values_of_a_tile_are_counted_by_a_barrier() {
    let kernel = truths(
        "%any: bool = reduce %is {axis = 0} (%p: bool, %q: bool) {
          %m: bool = or %q, %p
          yield %m
        }
        %all: bool = reduce %is {axis = 0} (%r: bool, %s: bool) {
          %n: bool = and %r, %s
          yield %n
        }
        %two: i32 = const 2
        %first: i32 = select %any, %one, %zero
        %second: i32 = select %all, %two, %zero
        %both: i32 = add %first, %second
        %os: *out[512] = splat %out
        %op: *out[512] = add_ptr %os, %i
        %whole: i32[512] = splat %both
        store %op, %whole",
    );
    for (num_warps, barriers) in [(1, 0), (4, 2), (32, 2)] {
        let options = Options { num_warps, ..Options::default() };
        let compiled = compile(&kernel, &Target::sm_90a(), &options).expect("it compiles");
        let count = |what: &str| compiled.ptx.matches(what).count();
        let found = ["barrier.cta.red", "bar.red", "shfl.sync", "st.shared"].map(count);
        assert_eq!((found[0] + found[1], found[2], found[3]), (barriers, 0, 0), "{}", compiled.ptx);
        assert!(compiled.report().shared.is_empty(), "{}", compiled.report());
    }
    for (most, other) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        for place in [0, 31, 32, 130, 511] {
            let values: Vec<i32> = (0..512).map(|i| if i == place { other } else { most }).collect();
            let given = Given { buffers: &[values.into(), vec![-1i32; 512].into()], tensors: &[], scalars: &[] };
            agrees_in_warps(&[1, 4, 8, 32], &kernel, &given, 1, Agreement::Exact);
        }
    }
}

/// A combination of truth values that is no vote: the first of them.
#[test]
fn the_first_of_truth_values_is_no_vote() {
    let kernel = truths(
        "%first: bool = reduce %is {axis = 0} (%p: bool, %q: bool) {
          %m: bool = and %p, %q
          %same: bool = or %p, %m
          yield %same
        }
        %found: i32 = select %first, %one, %zero
        store %out, %found",
    );
    for first in [0, 1] {
        let values: Vec<i32> = (0..512).map(|i| if i == 0 { first } else { 1 - first }).collect();
        let given = Given { buffers: &[values.into(), vec![-1i32].into()], tensors: &[], scalars: &[] };
        agrees_in_warps(&[1, 4, 8], &kernel, &given, 1, Agreement::Exact);
    }
}

#[test]
fn gather_within_bounds() {
    let buffers = [floats(1024, 7), ints(2048, 8), zeros(2048)];
    check(include_str!("kernels/gather.tile"), &buffers, &[2000], 4, Agreement::Exact);
}

#[test]
fn gather_out_of_bounds_is_reported_and_the_other_lanes_go_on() {
    let mut index: Vec<i32> = noise(1024, 9).collect();
    (index[77], index[600]) = (-5, i32::MAX);
    let buffers = [floats(1008, 10), index.into(), zeros(1024)];
    check(include_str!("kernels/gather.tile"), &buffers, &[1024], 2, Agreement::Exact);
}

#[test]
fn sums_in_a_loop_with_atomics_and_a_condition() {
    let positive: Vec<f32> = noise(2048, 11).map(|x| x as f32).collect();
    // Which of several programs is the first is not determined, so there is one.
    let buffers = [positive.into(), zeros(1), vec![0i32; 1].into()];
    check(include_str!("kernels/rowsum.tile"), &buffers, &[2048], 1, Agreement::Exact);
}

#[test]
fn rows_in_pieces_in_place() {
    check(include_str!("kernels/pieces.tile"), &[ints(3 * 1300, 31)], &[1300], 3, Agreement::Exact);
    check(include_str!("kernels/shift.tile"), &[ints(3 * 1300, 32)], &[1300], 3, Agreement::Exact);
}

#[test]
fn whole_iterations_and_the_last_one_are_all_iterations() {
    let text = include_str!("kernels/pieces.tile");
    for n in [-1, 0, 1, 511, 512, 513, 1024, 1300, i32::MIN] {
        check(text, &[ints(1300, 33)], &[n], 1, Agreement::Exact);
    }
    // From the second piece on, and from one that the launch says, which may be behind the end.
    for first in ["const 512", "program_id {axis = 0}"] {
        let text = text.replace("for %zero, %n", "for %first, %n");
        let text = text.replace("  %step: i32", &format!("  %first: i32 = {first}\n  %step: i32"));
        for n in [3, 700, 1200] {
            check(&text, &[ints(5200, 34)], &[n], 4, Agreement::Exact);
        }
    }
}

#[test]
fn rows_one_after_another_in_few_programs() {
    let text = include_str!("kernels/persistent.tile");
    check(text, &[floats(9 * 240, 35), zeros(9 * 240)], &[9, 240], 2, Agreement::Within(2e-5));
    // With one reduction per row instead of two, and with three.
    let one = text.replace("%sum: f32 = reduce", "%unused: f32 = reduce").replace("splat %sum", "splat %max");
    check(&one, &[floats(9 * 240, 36), zeros(9 * 240)], &[9, 240], 2, Agreement::Within(2e-5));
    let third = "%y: f32[256] = div %e, %sums\n    %top: f32 = reduce %y {axis = 0} (%u: f32, %v: f32) {\n      \
                 %w: f32 = add contract %u, %v\n      yield %w\n    }\n    %tops: f32[256] = splat %top\n    \
                 %z: f32[256] = sub contract %y, %tops";
    let three = text.replace("%y: f32[256] = div %e, %sums", third).replace("store %op, %y", "store %op, %z");
    check(&three, &[floats(9 * 240, 37), zeros(9 * 240)], &[9, 240], 2, Agreement::Within(2e-5));
}

#[test]
fn a_failed_assert_ends_the_program_and_is_reported() {
    let negative: Vec<f32> = noise(2 * 1024, 12).map(|x| -x as f32).collect();
    let buffers = [negative.into(), zeros(2), vec![0i32; 1].into()];
    check(include_str!("kernels/rowsum.tile"), &buffers, &[1024], 2, Agreement::Exact);
}

#[test]
fn scans_forwards_and_backwards() {
    check(include_str!("kernels/scan.tile"), &[ints(2048, 13), vec![0i32; 2048].into()], &[], 1, Agreement::Exact);
}

/// Maps `x -> p * x + q` one after another: their order shows.
#[test]
fn scans_keep_the_order_of_what_does_not_commute() {
    let text = |reverse: bool, shape: &str, axis: u32| {
        format!(
            "kernel maps \"maps.rs\" unsafe bound {{
               param %p p: ptr i32 {{div = 16}}
               param %q q: ptr i32 {{div = 16}}
               param %out out: ptr_mut i32 {{div = 16}}
               %i: i32[1024] = arange {{lo = 0, hi = 1024}}
               %ps: *p[1024] = splat %p
               %pp: *p[1024] = add_ptr %ps, %i
               %pv: i32[1024] = load %pp
               %pt: i32{shape} = reshape %pv
               %qs: *q[1024] = splat %q
               %qp: *q[1024] = add_ptr %qs, %i
               %qv: i32[1024] = load %qp
               %qt: i32{shape} = reshape %qv
               %a: i32{shape}, %b: i32{shape} = scan %pt, %qt {{axis = {axis}, reverse = {reverse}}} (%p1: i32, %q1: i32, %p2: i32, %q2: i32) {{
                 %pm: i32 = mul %p1, %p2
                 %qm: i32 = mul %p1, %q2
                 %qa: i32 = add %qm, %q1
                 yield %pm, %qa
               }}
               %flat: i32[1024] = reshape %b
               %os: *out[1024] = splat %out
               %op: *out[1024] = add_ptr %os, %i
               store %op, %flat
               return
             }}"
        )
    };
    for (reverse, shape, axis) in [
        (false, "[1024]", 0),
        (true, "[1024]", 0),
        (false, "[32, 32]", 1),
        (true, "[32, 32]", 1),
        (false, "[64, 16]", 0),
        (true, "[64, 16]", 0),
    ] {
        let buffers = [ints(1024, 32), ints(1024, 33), vec![0i32; 1024].into()];
        check(&text(reverse, shape, axis), &buffers, &[], 1, Agreement::Exact);
    }
}

/// A choice between two runs of addresses, whose condition changes inside a vector.
#[test]
fn addresses_may_be_chosen_between_two_runs() {
    let text = "kernel choice \"choice.rs\" unsafe bound {
        param %x x: ptr f32 {div = 16}
        param %out out: ptr_mut f32 {div = 16}
        param %n n: i32
        %i: i32[2048] = arange {lo = 0, hi = 2048}
        %ns: i32[2048] = splat %n
        %near: bool[2048] = cmp.lt %i, %ns
        %far: i32 = const 2048
        %fars: i32[2048] = splat %far
        %j: i32[2048] = add %i, %fars
        %at: i32[2048] = select %near, %i, %j
        %xs: *x[2048] = splat %x
        %xp: *x[2048] = add_ptr %xs, %at
        %a: f32[2048] = load %xp
        %os: *out[2048] = splat %out
        %op: *out[2048] = add_ptr %os, %i
        store %op, %a
        return
    }";
    for n in [0, 1001, 1023, 2048] {
        check(text, &[floats(4096, 34), zeros(2048)], &[n], 1, Agreement::Exact);
    }
}

#[test]
fn a_row_is_added_to_all_rows_and_columns_are_summed() {
    let quarters: Vec<f32> = noise(4096, 14).map(|x| x as f32 / 4.0).collect();
    let buffers = [quarters.into(), floats(64, 15), zeros(4096), zeros(64)];
    check(include_str!("kernels/bias.tile"), &buffers, &[], 1, Agreement::Exact);
}

#[test]
fn memory_operations_happen_in_program_order() {
    check(include_str!("kernels/inplace.tile"), &[ints(1024, 16)], &[], 1, Agreement::Exact);
}

#[test]
fn control_may_depend_on_memory() {
    let buffers = [vec![5i32].into(), ints(256, 17)];
    check(include_str!("kernels/steer.tile"), &buffers, &[], 1, Agreement::Exact);
}

#[test]
fn every_access_can_be_checked() {
    let kernel = support::kernel(include_str!("kernels/add.tile"));
    let options = Options { checks: Checks::EveryAccess, ..Options::default() };
    let compiled = compile(&kernel, &Target::sm_90a(), &options).unwrap();
    // Vectors stay whole, because the lengths are multiples of 16.
    assert_eq!(support::count(&compiled.ptx, "ld.global.nc.v4.b32"), 4, "{}", compiled.ptx);
    let buffers = [floats(2048, 1), floats(1024, 2), zeros(2048)];
    let (found, record) = emulate(&kernel, &compiled, &buffers, &[2048], 2, 1);
    assert_eq!(record[0], 1);
    let site = &compiled.sites[record[4] as usize];
    assert_eq!(site.kind, kernel_codegen::SiteKind::Bounds { param: kernel_core::ir::ParamId::new(1), store: false });
    // The lanes inside the bounds were added.
    let (x, sums) = (buffers[0].as_slice::<f32>().unwrap(), found[2].as_slice::<f32>().unwrap());
    assert_eq!(sums[2000], x[2000]);
}

#[test]
fn many_lanes_meet_at_few_addresses() {
    let halves = vec![half::f16::from_f32(7.0); 16];
    let buffers = [ints(1024, 18), vec![0i32; 16].into(), zeros(16), halves.into()];
    check(include_str!("kernels/atomics.tile"), &buffers, &[1000], 2, Agreement::Exact);
}

/// Divisors whose reciprocals are subnormal or infinite, zeros, infinities and NaN among them.
#[test]
fn quotients_by_one_divisor_share_its_reciprocal_over_the_whole_range() {
    let divisors = [1.0, -3.0, 0.0, 2e-39, -1e-44, 1.7e38, -3.4e38, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE];
    let few = [0.0, 1.5, -2e-39, 4e-39, 1.2e-38, 3.3e38, -1.7e38, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let values: Vec<f32> = (0..divisors.len() * 256).map(|i| few[i % 256 % few.len()]).collect();
    let out = zeros(values.len());
    let text = include_str!("kernels/shared_divisor.tile");
    let buffers = [values.into(), divisors.to_vec().into(), out];
    check(text, &buffers, &[], divisors.len() as u32, Agreement::Within(2.4e-7));
    let compiled = support::compile_for_hopper(&support::kernel(text));
    let counts = ["div.full.f32", "rcp.approx.ftz.f32"].map(|what| support::count(&compiled.ptx, what));
    assert_eq!(counts, [0, 1], "{}", compiled.ptx);
}

#[test]
fn layer_norm_of_rows() {
    let buffers = [floats(4 * 1008, 19), floats(1008, 20), zeros(4 * 1008), zeros(4)];
    check(include_str!("kernels/layernorm.tile"), &buffers, &[1008], 4, Agreement::Within(1e-4));
}

#[test]
fn reductions_conversions_and_memory_in_loops() {
    for iterations in [0, 1, 5] {
        let buffers = [ints(1024, 25), vec![0i32; 1024].into(), vec![0i32; 1024].into()];
        check(include_str!("kernels/loops.tile"), &buffers, &[iterations], 1, Agreement::Exact);
    }
}

#[test]
fn a_reduction_does_not_overwrite_what_others_still_read() {
    check(include_str!("kernels/chunks.tile"), &[ints(2048, 26), vec![0i32].into()], &[2048], 1, Agreement::Exact);
}

#[test]
fn pointers_walk_through_memory() {
    for iterations in [0, 2, 3] {
        check(include_str!("kernels/walk.tile"), &[floats(2048, 27), zeros(512)], &[iterations], 1, Agreement::Exact);
    }
}

#[test]
fn every_pass_can_be_switched_off() {
    let kernel = support::kernel(include_str!("kernels/layernorm.tile"));
    let buffers = [floats(2 * 1008, 28), floats(1008, 29), zeros(2 * 1008), zeros(2)];
    let run = |disabled: &str| {
        let disabled_passes = [disabled].iter().filter(|name| !name.is_empty()).map(|name| name.to_string()).collect();
        let options = Options { disabled_passes, ..Options::default() };
        let compiled = compile(&kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
        support::assemble(&compiled);
        if disabled == "llvm" { None } else { Some(emulate(&kernel, &compiled, &buffers, &[1008], 2, 1).0) }
    };
    let expected = run("").expect("it runs");
    let names = kernel_codegen::optional_passes();
    for name in names {
        // What LLVM does not optimise keeps variables in local memory, which the emulator lacks.
        for (want, got) in expected.iter().zip(run(name).unwrap_or_default()) {
            compare(want, &got, Agreement::Within(1e-5), name);
        }
    }
}

#[test]
fn an_assert_on_a_tile_ends_the_program_for_all_threads() {
    let text = include_str!("kernels/verdict.tile");
    let fine: Vec<i32> = noise(256, 30).collect();
    let mut bad = fine.clone();
    bad[200] = -1;
    for input in [fine, bad] {
        check(text, &[input.into(), vec![0i32; 256].into()], &[], 1, Agreement::Exact);
    }
}

/// Steps that are not constants, from end to end of the type: loops that count down the distance, and those that count
/// their iterations.
#[test]
fn loops_of_any_step_make_their_iterations() {
    let (least, most) = (i32::MIN, i32::MAX);
    let bounds = [
        [0, 10, 3],
        [0, 9, 3],
        [5, 5, 1],
        [6, 5, 1],
        [least, most, 1 << 30],
        [least, most, most],
        [most - 1, most, most],
        [least, least + 1, 1],
        [0, 10, 0],
        [0, 10, -1],
        [-7, 8, 5],
    ];
    let ways =
        ["never", "3", "4"].map(|unroll| [("i32", false, unroll), ("u32", false, unroll), ("i32", true, unroll)]);
    for (dtype, reverse, unroll) in ways.into_iter().flatten().chain([("i32", false, "auto"), ("u32", true, "2")]) {
        let [lo, hi, step] = ["lo", "hi", "step"].map(|name| match dtype {
            "i32" => format!("%{name}: i32 = add %{name}0, %zero"),
            _ => format!("%{name}: u32 = cast %{name}0 {{to = u32}}"),
        });
        let text = format!(
            "kernel k \"k.rs\" unsafe bound {{
  param %out out: ptr_mut i32
  param %lo0 lo: i32
  param %hi0 hi: i32
  param %step0 step: i32
  %zero: i32 = const 0
  %one: i32 = const 1
  {lo}
  {hi}
  {step}
  %iterations: i32, %sum: i32 = for %lo, %hi, %step, %zero, %zero {{reverse = {reverse}, unroll = {unroll}, stages = 1, warp_specialize = false}} (%i: {dtype}, %n: i32, %s: i32) {{
    %more: i32 = add %n, %one
    %at: i32 = cast %i {{to = i32}}
    %all: i32 = mul %s, %at
    %next: i32 = add %all, %at
    yield %more, %next
  }}
  store %out, %iterations
  %behind: *out = add_ptr %out, %one
  store %behind, %sum
  return
}}"
        );
        for bounds in bounds {
            check(&text, &[vec![0i32; 2].into()], &bounds, 1, Agreement::Exact);
        }
    }
}

/// What an atomic gives back in one iteration is its operand in the next: LLVM would have one register for both,
/// which the code for lanes that are left out has cleared by then.
#[test]
fn results_of_masked_atomics_are_their_operands_in_the_next_iteration() {
    for op in ["exchange", "and", "add"] {
        let text = format!(
            "kernel carried \"carried.rs\" unsafe bound {{
               param %x x: ptr i32 {{div = 16}}
               param %sums sums: ptr_mut i32 {{div = 16}}
               param %out out: ptr_mut i32 {{div = 16}}
               param %n n: i32
               %i: i32[128] = arange {{lo = 0, hi = 128}}
               %five: i32 = const 5
               %fives: i32[128] = splat %five
               %wanted: bool[128] = cmp.ge %i, %fives
               %xs: *x[128] = splat %x
               %xp: *x[128] = add_ptr %xs, %i
               %a: i32[128] = load %xp
               %ss: *sums[128] = splat %sums
               %sp: *sums[128] = add_ptr %ss, %i
               %os: *out[128] = splat %out
               %op: *out[128] = add_ptr %os, %i
               %zero: i32 = const 0
               %one: i32 = const 1
               %r: i32[128] = for %zero, %n, %one, %a (%k: i32, %v: i32[128]) {{
                 %old: i32[128] = atomic_rmw %sp, %v, %wanted {{op = {op}, order = relaxed, scope = device}}
                 yield %old
               }}
               store %op, %r
               return
             }}"
        );
        let buffers = [ints(128, 3), ints(128, 4), vec![0i32; 128].into()];
        for iterations in [1, 2, 3] {
            check(&text, &buffers, &[iterations], 1, Agreement::Exact);
        }
    }
}
