//! Tensor descriptors in generated code: tensor copies where the tensors of a launch allow them, vectors elsewhere.

use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

/// c = a * b, one block per program.
#[kernel(num_warps = 4)]
fn product<const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    c: TensorDescMut<f16, { [M, N] }>,
    k: i32,
) {
    let row = program_id(0) * M;
    let column = program_id(1) * N;
    let mut acc = zeros::<f32>([M, N]);
    for i in (0..k).step_by(K) {
        acc = dot(a.load([row, i]), b.load([i, column]), acc = acc);
    }
    c.store([row, column], acc as f16);
}

/// Twice a tensor: there is no product.
#[kernel]
fn twice<const M: usize, const N: usize>(x: TensorDesc<f32, { [M, N] }>, out: TensorDescMut<f32, { [M, N] }>) {
    let row = program_id(0) * M;
    let column = program_id(1) * N;
    let block = x.load([row, column]);
    out.store([row, column], block + block);
}

const LOAD: &str = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
const STORE: &str = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group";

fn ptx(result: Result<tilewright::launch::CompiledKernel, Error>, architecture: &str) -> String {
    let ptx = result.unwrap_or_else(|error| panic!("{error}")).ptx().to_string();
    if let Some(assembled) = assemble(&ptx, architecture) {
        assert_eq!(assembled.spills, 0, "{}", assembled.log);
    }
    ptx
}

#[test]
fn blocks_of_products_are_copied_by_the_hardware() {
    let consts = ProductConsts { M: 128, N: 128, K: 64 };
    let hopper = ptx(consts.compile(Target::sm_90a()), "sm_90a");
    assert!(hopper.contains(LOAD) && hopper.contains(STORE), "{hopper}");
    assert!(!hopper.contains("ld.global") && !hopper.contains("st.global"), "{hopper}");
    let ampere = ptx(consts.compile(Target::sm_80()), "sm_80");
    assert!(!ampere.contains("cp.async.bulk") && !ampere.contains("mbarrier"), "{ampere}");
}

/// A product whose programs go from tile to tile.
#[kernel]
fn persistent<const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    c: TensorDescMut<f16, { [M, N] }>,
    rows: i32,
    columns: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(rows, M) * cdiv(columns, N)).step_by(num_programs(0)) {
        let i = tile / cdiv(columns, N) * M;
        let j = tile % cdiv(columns, N) * N;
        let mut acc = zeros::<f32>([M, N]);
        for t in (0..k).step_by(K) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        c.store([i, j], acc as f16);
    }
}

/// As `product`, tile after tile, perhaps each with a check behind its store.
#[kernel]
fn checked<const CHECK: bool, const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    c: TensorDescMut<f16, { [M, N] }>,
    flags: Ptr<i32>,
    tiles: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..tiles).step_by(num_programs(0)) {
        c.store([tile * M, 0], dot(a.load([tile * M, 0]), b.load([0, 0])) as f16);
        if CHECK {
            assert!(load(flags + tile) == 0, "the tile is refused");
        }
    }
}

/// An `assert` ends a program no sooner than the hardware has read what it copies out.
#[test]
fn programs_wait_for_their_stores_before_an_assert_ends_them() {
    let [checked, plain] = [true, false].map(|check| {
        let consts = CheckedConsts { CHECK: check, M: 128, N: 128, K: 64 };
        let ptx = ptx(consts.compile(Target::sm_90a()), "sm_90a");
        assert!(ptx.contains(STORE), "{ptx}");
        ptx
    });
    let waits = |ptx: &str| ptx.matches("cp.async.bulk.wait_group.read 0;").count();
    assert_eq!(waits(&checked), waits(&plain) + 1, "{checked}");
}

/// Each four warps that multiply store their own rows, and wait for no others: some may store while others multiply. What
/// goes out takes little shared memory, so that the ring has the slots that were asked for.
#[test]
fn warps_that_multiply_store_their_own_rows() -> Result<(), Error> {
    let device = Device::cpu();
    let (a, b) = (device.zeros::<f16>(256 * 64)?, device.zeros::<f16>(64 * 256)?);
    let mut c = device.zeros::<f16>(256 * 256)?;
    let (a, b) = (TensorDesc::new(&a, [256, 64])?, TensorDesc::new(&b, [64, 256])?);
    let mut c = TensorDescMut::new(&mut c, [256, 256])?;
    for (m, n, pieces) in [(128, 256, 4), (256, 128, 4), (128, 128, 2)] {
        let call = (PersistentConsts { M: m, N: n, K: 64 }).call(&a, &b, &mut c, 256, 256, 64);
        let kernel = call.num_warps(8).num_stages(4).compile(Target::sm_90a())?;
        let told = kernel.report().to_string();
        assert!(told.contains("through 4 slots"), "{told}");
        let code = ptx(Ok(kernel), "sm_90a");
        let meets_all = |line: &str| line.contains("bar.sync") && line.contains(", 256;");
        assert!(!code.lines().any(meets_all), "no barrier of all that multiply: {code}");
        assert_eq!(code.matches(STORE).count(), pieces, "{m}x{n}: {code}");
        // Each piece is written between two barriers of 128 threads, the first pieces after one.
        let barriers = code.lines().filter(|line| line.contains("bar.sync") && line.contains(", 128;")).count();
        let slots = code.matches("cp.async.bulk.wait_group.read 1;").count();
        assert_eq!(barriers, 1 + pieces + slots, "{m}x{n}: {code}");
    }
    Ok(())
}

#[test]
fn blocks_of_other_kernels_are_accessed_in_vectors() {
    for (target, architecture) in [(Target::sm_90a(), "sm_90a"), (Target::sm_80(), "sm_80")] {
        let code = ptx((TwiceConsts { M: 16, N: 64 }).compile(target), architecture);
        assert!(code.contains("ld.global.nc.v4.b32") && code.contains("st.global.v4.b32"), "{code}");
        assert!(!code.contains("cp.async.bulk"), "{code}");
    }
}

/// A launch with these strides is compiled for Hopper; whether its factors are copied by the hardware.
fn is_copied(strides: [usize; 2], first: usize) -> Result<[bool; 2], Error> {
    let device = Device::cpu();
    let (a, b) = (device.zeros::<f16>(64 * 200)?, device.zeros::<f16>(64 * 200)?);
    let mut c = device.zeros::<f16>(64 * 128)?;
    let a = a.slice(first..)?;
    let from = TensorDesc::with_strides(a, [64, 60], strides)?;
    let by = TensorDesc::new(&b, [60, 128])?;
    let mut to = TensorDescMut::new(&mut c, [64, 128])?;
    let call = product::<64, 128, 64>(&from, &by, &mut to, 60);
    let code = ptx(call.compile(Target::sm_90a()), "sm_90a");
    Ok([
        code.contains(LOAD),
        code.contains("ld.global") || code.contains("cp.async.ca") || code.contains("cp.async.cg"),
    ])
}

#[test]
fn tensors_that_break_the_rules_of_copies_are_no_errors() -> Result<(), Error> {
    assert_eq!(is_copied([64, 1], 0)?, [true, false], "rows of 128 bytes, of which 120 count");
    // The other factor is copied all the same.
    assert_eq!(is_copied([61, 1], 0)?, [true, true], "rows that begin at odd addresses");
    assert_eq!(is_copied([64, 1], 1)?, [true, true], "a first element at an odd address");
    Ok(())
}

/// The hardware writes whole units of 16 bytes: rows that end within one are stored under masks.
#[test]
fn rows_that_end_within_a_unit_are_not_stored_by_the_hardware() -> Result<(), Error> {
    let device = Device::cpu();
    let (a, b) = (device.zeros::<f16>(64 * 64)?, device.zeros::<f16>(64 * 128)?);
    let mut c = device.zeros::<f16>(64 * 128)?;
    let (from, by) = (TensorDesc::new(&a, [64, 64])?, TensorDesc::new(&b, [64, 128])?);
    for (columns, stored) in [(128, true), (120, true), (124, false), (107, false)] {
        let mut to = TensorDescMut::with_strides(&mut c, [64, columns], [128, 1])?;
        let call = product::<64, 128, 64>(&from, &by, &mut to, 64);
        let code = ptx(call.compile(Target::sm_90a()), "sm_90a");
        assert!(code.contains(LOAD), "{code}");
        assert_eq!((code.contains(STORE), code.contains("st.global")), (stored, !stored), "{columns} columns");
    }
    Ok(())
}
