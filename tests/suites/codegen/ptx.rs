//! PTX that kernels write, and closures for single elements, as ptxas has them.

use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

/// Pairs of 8-bit floats become pairs of halves, which the language does one by one.
#[kernel]
fn widened<const N: usize>(x: Ptr<f8e4m3>, y: Ptr<u8>, out: PtrMut<f16>, bytes: PtrMut<u8>) {
    let at = arange(0, N);
    store(out + at, inline_ptx("cvt.rn.f16x2.e4m3x2 $0, $1;", load(x + at), |a| a as f16, pack = 2));
    let sums = inline_ptx(
        "{
            .reg .b32 t<2>; // two at a time
            .reg .pred p;
            and.b32 t0, $1, 0x00ff00ff;
            and.b32 t1, $1, 0xff00ff00;
            setp.eq.u32 p, $1, 0;
            @!p or.b32 t0, t0, t1;
            mov.b32 $0, t0;
        }",
        load(y + at),
        |a| a,
        pack = 4,
    );
    store(bytes + at, sums);
}

/// Labels of texts that come several times in a kernel are each their own.
#[kernel]
unsafe fn labelled<const N: usize>(x: PtrMut<i32>) {
    let at = arange(0, N);
    let counted = inline_ptx(
        "{
            .reg .pred p;
            mov.b32 $0, 0;
            again:
            add.s32 $0, $0, 1;
            setp.lt.s32 p, $0, $1;
            @p bra again;
        }",
        load(x + at),
        |n| maximum(n, 1),
        pure = true,
    );
    store(x + at, counted);
}

#[kernel]
fn steps<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let at = arange(0, N);
    let count = map_elementwise(load(x + at), |n| {
        let (mut n, mut count) = (n, 0);
        while n > 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            count += 1;
        }
        count
    });
    store(out + at, count);
}

#[test]
fn ptxas_takes_what_kernels_write() -> Result<(), Error> {
    let device = Device::cpu();
    let (x, y) = (device.zeros::<F8E4M3>(1024)?, device.zeros::<u8>(1024)?);
    let (mut halves, mut bytes) = (device.zeros::<f16>(1024)?, device.zeros::<u8>(1024)?);
    let mut ints = device.zeros::<i32>(1024)?;
    let (from, mut to) = (device.zeros::<i32>(1024)?, device.zeros::<i32>(1024)?);
    for warps in [1, 4] {
        let target = Target::sm_90a;
        let texts = [
            widened::<1024>(&x, &y, &mut halves, &mut bytes).grid(1).num_warps(warps).compile(target())?,
            labelled::<1024>(&mut ints).grid(1).num_warps(warps).compile(target())?,
            steps::<1024>(&from, &mut to).grid(1).num_warps(warps).compile(target())?,
        ];
        let per_thread = 1024 / 32 / warps as usize;
        for (compiled, marker, times) in [
            (&texts[0], "cvt.rn.f16x2.e4m3x2 %r", per_thread / 2),
            (&texts[0], ".reg .b32 t<2>;", per_thread / 4),
            (&texts[1], "again:", per_thread),
        ] {
            assert_eq!(compiled.ptx().matches(marker).count(), times, "{marker}\n{}", compiled.ptx());
        }
        for compiled in &texts {
            if let Some(assembled) = assemble(compiled.ptx(), "sm_90a") {
                assert_eq!(assembled.spills, 0, "{}", assembled.log);
            }
        }
    }
    Ok(())
}

/// Regions of scalars are before the loop and in it, and one of tiles is behind each product; with `FED`, a region says
/// where the blocks are.
#[kernel]
fn specialised<const M: usize, const N: usize, const K: usize, const FED: bool>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    c: TensorDescMut<f16, { [M, N] }>,
    rows: i32,
    columns: i32,
    k: i32,
) {
    let wide = cdiv(columns, N);
    let limit = map_elementwise(k, |k| if k < 64 { 1.0 } else { 2.0 });
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(rows, M) * wide).step_by(num_programs(0)) {
        let (i, j) = if FED {
            let (i, j) = map_elementwise(tile, |tile| (tile / wide * M, tile % wide * N));
            // What regions compute is not known to be a multiple, as blocks that the hardware copies begin at.
            (i, multiple_of(j, 16))
        } else {
            (tile / wide * M, tile % wide * N)
        };
        let mut acc = zeros::<f32>([M, N]);
        for t in (0..k).step_by(K) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        let steps = map_elementwise(acc, |x| {
            let mut y = x;
            while y > limit {
                y = y * 0.5;
            }
            y
        });
        c.store([i, j], steps as f16);
    }
}

/// The same, with PTX that only one side of a kernel may run.
#[kernel]
fn not_specialised<const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    c: TensorDescMut<f16, { [M, N] }>,
    rows: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(rows, M)).step_by(num_programs(0)) {
        let mut acc = zeros::<f32>([M, N]);
        for t in (0..k).step_by(K) {
            acc = dot(a.load([tile * M, t]), b.load([t, 0]), acc = acc);
        }
        c.store([tile * M, 0], inline_ptx("neg.f32 $0, $1;", acc, |x| -x, pure = false) as f16);
    }
}

#[test]
fn kernels_with_regions_of_elements_are_divided_among_warps() {
    let told = |report: String| report.lines().filter(|line| line.contains("both sides")).count();
    for fed in [false, true] {
        let consts = SpecialisedConsts { M: 128, N: 128, K: 64, FED: fed };
        let compiled = consts.compile(Target::sm_90a()).unwrap_or_else(|error| panic!("{error}"));
        if let Some(assembled) = assemble(compiled.ptx(), "sm_90a") {
            assert_eq!(assembled.spills, 0, "{}", assembled.log);
        }
        let report = compiled.report().to_string();
        assert_eq!(report.contains("not specialised"), fed, "{report}");
        assert_eq!(told(report), 0);
    }
    let consts = NotSpecialisedConsts { M: 128, N: 128, K: 64 };
    let compiled = consts.compile(Target::sm_90a()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(told(compiled.report().to_string()), 1, "{}", compiled.report());
}
