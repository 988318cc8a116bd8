//! Kernels that may begin before the launches before them have ended: they wait before they touch memory. The emulator
//! panics where a thread does not.

mod support;

use kernel_codegen::{Compiled, Options, Target, TensorCopies, compile};
use kernel_core::interp::HostBuffer;
use kernel_core::ir::Bound;
use support::differential::{Agreement, Given, agrees_with_options, floats, ints, zeros};

fn options() -> Options {
    Options { dependent_launch: true, ..Options::default() }
}

fn compiled(text: &str, target: Target, options: &Options) -> Compiled {
    compile(&support::kernel(text), &target, options).unwrap_or_else(|error| panic!("{error}"))
}

const KERNELS: [&str; 10] = [
    include_str!("kernels/add.tile"),
    include_str!("kernels/softmax.tile"),
    include_str!("kernels/rows.tile"),
    include_str!("kernels/gather.tile"),
    include_str!("kernels/atomics.tile"),
    include_str!("kernels/loops.tile"),
    include_str!("kernels/matmul.tile"),
    include_str!("kernels/persistent_matmul.tile"),
    include_str!("kernels/verdict.tile"),
    include_str!("kernels/steer.tile"),
];

/// The number of the first line that satisfies something.
fn first(ptx: &str, found: impl Fn(&str) -> bool) -> Option<usize> {
    ptx.lines().position(found)
}

#[test]
fn every_access_is_behind_the_wait() {
    for text in KERNELS {
        for copies in [TensorCopies::Always, TensorCopies::Never] {
            let options = Options { tensor_copies: copies, ..options() };
            let ptx = compiled(text, Target::sm_90a(), &options).ptx;
            assert_eq!(support::count(&ptx, "griddepcontrol.wait;"), 1, "{ptx}");
            assert_eq!(support::count(&ptx, "griddepcontrol.launch_dependents;"), 1, "{ptx}");
            let next = first(&ptx, |line| line.contains("griddepcontrol.launch_dependents"));
            let wait = first(&ptx, |line| line.contains("griddepcontrol.wait"));
            let touches = |line: &str| {
                let line = line.trim_start();
                !line.starts_with('.') && (line.contains(".global") || line.contains("bulk.tensor"))
            };
            let access = first(&ptx, touches);
            assert!(next < wait && wait < access, "{next:?} {wait:?} {access:?}\n{ptx}");
            // The memory changes while the kernel runs, though not while it reads.
            assert_eq!(support::count(&ptx, ".nc"), 0, "{ptx}");
        }
    }
}

#[test]
fn groups_of_warps_begin_behind_the_wait() {
    let kernel = compiled(include_str!("kernels/persistent_matmul.tile"), Target::sm_90a(), &options());
    let lines: Vec<String> = kernel.placed_ir().lines().map(|line| line.trim().to_string()).collect();
    let place = |what: &str| lines.iter().position(|line| line.starts_with(what));
    assert!(place("warp_groups").is_some(), "{}", kernel.placed_ir());
    assert!(place("grid_wait") < place("warp_groups"), "{}", kernel.placed_ir());
}

#[test]
fn ordinary_launches_and_older_targets_have_neither() {
    for text in KERNELS {
        let plain = compiled(text, Target::sm_90a(), &Options::default());
        assert_eq!(support::count(&plain.ptx, "griddepcontrol"), 0, "{}", plain.ptx);
        for target in [Target::sm_80(), Target::sm_89()] {
            let older = compiled(text, target, &options());
            assert_eq!(older.ptx, compiled(text, target, &Options::default()).ptx);
        }
    }
}

#[test]
fn generated_code_waits_in_every_thread() {
    let check = |text: &str, buffers: &[HostBuffer], scalars: &[i32], grid: u32, agreement: Agreement| {
        let kernel: Bound = support::kernel(text);
        let given = Given { buffers, tensors: &[], scalars };
        agrees_with_options(&[1, 4], &options(), &kernel, &given, grid, agreement);
    };
    check(KERNELS[0], &[floats(2000, 1), floats(2000, 2), zeros(2000)], &[1984], 2, Agreement::Exact);
    check(KERNELS[1], &[floats(8192, 3), zeros(8192)], &[4096, 4000], 2, Agreement::Within(2e-5));
    // Half of the programs do nothing.
    let text = "kernel some \"some.rs\" unsafe bound {
        param %x x: ptr_mut i32 {div = 16}
        param %n n: i32
        %i: i32 = program_id {axis = 0}
        %c: bool = cmp.lt %i, %n
        if %c {
          %p: *x = add_ptr %x, %i
          %v: i32 = load %p
          %w: i32 = add %v, %i
          store %p, %w
          yield
        } else {
          yield
        }
        return
    }";
    check(text, &[ints(8, 7)], &[4], 8, Agreement::Exact);
}

#[test]
fn every_kernel_assembles() {
    for text in KERNELS {
        for target in [Target::sm_90(), Target::sm_90a()] {
            // Eight warps, as the largest tiles need.
            support::assemble(&compiled(text, target, &Options { num_warps: 8, ..options() }));
        }
    }
}
