//! Vector addition in the interpreter: the kernel of the introduction on 2^24 elements of f32, 1024 per program.
//!
//! `cargo bench -p tilewright-core --bench interp_add`. The throughput is in elements of the result.

// `criterion_group!` makes a public function without documentation.
#![allow(missing_docs)]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kernel_core::interp::{Arg, Program};
use kernel_core::ir::Bound;
use kernel_core::text::parse;

const ADD: &str = r#"kernel add "benches/interp_add.rs" safe bound {
  param %x x: ptr f32
  param %y y: ptr f32
  param %out out: ptr_mut f32
  param %n n: i32
  %pid: i32 = program_id {axis = 0}
  %block: i32 = const 1024
  %start: i32 = mul %pid, %block
  %starts: i32[1024] = splat %start
  %ix: i32[1024] = arange {lo = 0, hi = 1024}
  %offsets: i32[1024] = add %starts, %ix
  %ns: i32[1024] = splat %n
  %mask: bool[1024] = cmp.lt %offsets, %ns
  %xs: *x[1024] = splat %x
  %xp: *x[1024] = add_ptr %xs, %offsets
  %xv: f32[1024] = load %xp, %mask
  %ys: *y[1024] = splat %y
  %yp: *y[1024] = add_ptr %ys, %offsets
  %yv: f32[1024] = load %yp, %mask
  %sum: f32[1024] = add %xv, %yv
  %outs: *out[1024] = splat %out
  %op: *out[1024] = add_ptr %outs, %offsets
  store %op, %sum, %mask
  return
}
"#;

fn bench(c: &mut Criterion) {
    let n = 1usize << 24;
    let func = parse(ADD).expect("the kernel above is in the text form");
    let program = Program::new(&Bound::new(func).expect("the kernel above is bound"));
    let mut x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let mut y = vec![0.5f32; n];
    let mut out = vec![0f32; n];
    let mut group = c.benchmark_group("interp");
    group.throughput(Throughput::Elements(n as u64)).sample_size(20).measurement_time(Duration::from_secs(3));
    group.bench_function("add_f32_2^24", |b| {
        let args = [
            Arg::Buffer { ptr: x.as_mut_ptr().cast(), len: n },
            Arg::Buffer { ptr: y.as_mut_ptr().cast(), len: n },
            Arg::Buffer { ptr: out.as_mut_ptr().cast(), len: n },
            Arg::Scalar(n as u64),
        ];
        b.iter(|| {
            // SAFETY: the vectors have `n` elements each, and nobody else accesses them.
            unsafe { program.run(&args, [n.div_ceil(1024) as u32, 1, 1]) }.expect("no access is out of bounds");
        });
    });
    group.finish();
    assert_eq!(out[n - 1], (n - 1) as f32 + 0.5);
}

criterion_group!(benches, bench);
criterion_main!(benches);
