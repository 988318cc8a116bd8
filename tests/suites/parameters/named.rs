//! Arguments by name.

use tilewright::prelude::*;
use tilewright::{Target, TensorDesc};
use tilewright_tests::devices::check;

#[kernel]
fn axpy<T: Num, A: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<A>, out: PtrMut<A>, alpha: T, bias: Const<i32>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let scaled = load(x + offsets, mask = mask) * alpha + bias as T;
    store(out + offsets, scaled as A + load(y + offsets, mask = mask), mask = mask);
}

#[kernel]
fn row<const N: usize>(x: TensorDesc<f32, { [1, N] }>, r#in: i32, out: PtrMut<f32>) {
    store(out + arange(0, N), sum(x.load([r#in, 0]), axis = 0));
}

const CONSTS: AxpyConsts = AxpyConsts { BLOCK: 64 };

#[test]
fn arguments_by_name_are_those_by_position() {
    check(|device| {
        let (x, y) = (device.full(100, 3i16)?, device.full(100, 0.5f32)?);
        let (mut named, mut positional) = (device.zeros(100)?, device.zeros(100)?);
        axpy::<_, _, 64>(&x, &y, &mut positional, 2, 1, 100).grid(2).launch(device)?;
        AxpyArgs { n: 100, bias: 1, alpha: 2, out: &mut named, x: &x, y: y.slice(..)? }
            .call(CONSTS)
            .grid_with(|c| 100 / c.BLOCK + 1)
            .num_warps(2)
            .launch(device)?;
        assert_eq!(named.to_vec()?, positional.to_vec()?);
        assert_eq!(named.to_vec()?, vec![7.5; 100]);
        Ok(())
    });
}

#[test]
fn arguments_by_name_are_recorded_in_graphs() {
    check(|device| {
        let x = device.full(64, 3i32)?;
        let y = device.zeros(64)?;
        let mut out = device.zeros::<i64>(64)?;
        let stream = device.new_stream()?;
        let graph = stream.capture(|stream| {
            let args = AxpyArgs { x: &x, y: &y, out: &mut out, alpha: 5, bias: 0, n: 64 };
            args.call(CONSTS).grid(1).stream(stream).launch(device)
        })?;
        graph.replay()?;
        stream.synchronize()?;
        assert_eq!(out.to_vec()?, [15; 64]);
        Ok(())
    });
}

#[test]
fn descriptors_and_raw_names_are_arguments_too() {
    check(|device| {
        let values: Vec<f32> = (0..32u8).map(f32::from).collect();
        let (x, mut out) = (device.upload(&values)?, device.zeros(16)?);
        let x = TensorDesc::new(&x, [2, 16])?;
        RowArgs { out: &mut out, x: &x, r#in: 1 }.call(RowConsts { N: 16 }).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, values[16..]);
        Ok(())
    });
}

#[test]
fn the_code_is_that_of_the_launch_by_position() {
    check(|device| {
        let (x, y, mut out) = (device.full(64, 3i32)?, device.zeros(64)?, device.zeros::<i64>(64)?);
        let ptx = |kernel: tilewright::launch::CompiledKernel| kernel.ptx().to_string();
        let positional = ptx(axpy::<_, _, 64>(&x, &y, &mut out, 5, 0, 64).compile(Target::sm_90a())?);
        let args = AxpyArgs { x: &x, y: &y, out: &mut out, alpha: 5, bias: 0, n: 64 };
        assert_eq!(ptx(args.call(CONSTS).compile(Target::sm_90a())?), positional);
        Ok(())
    });
}
