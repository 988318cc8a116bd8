//! What becomes of candle's storages, layouts and dtypes.

use crate::common::{Random, on_every_device, reals};
use candle_core::{DType, Device, IndexOp, Result};
use tilewright_candle::prelude::*;
use tilewright_candle::{call, call_in_place, context, device};

/// Copies `x` of any dtype and strides, by a descriptor of the runtime's or by pointers.
#[kernel]
fn copy_strided<T: DType, const BLOCK: usize>(
    x: Ptr<T>,
    out: PtrMut<T>,
    columns: i32,
    row_stride: i64,
    column_stride: i64,
) {
    let (row, column) = (program_id(0), arange(0, BLOCK));
    let mask = column < columns;
    let value = load(x + (row as i64 * row_stride + column as i64 * column_stride), mask = mask);
    store(out + (row * columns + column), value, mask = mask);
}

/// Doubles a matrix of any strides in place.
#[kernel]
fn double_strided<const BLOCK: usize>(x: PtrMut<f32>, columns: i32, row_stride: i64, column_stride: i64) {
    let (row, column) = (program_id(0), arange(0, BLOCK));
    let mask = column < columns;
    let at = row as i64 * row_stride + column as i64 * column_stride;
    store(x + at, load(x + at, mask = mask) * 2.0, mask = mask);
}

fn copied(x: &Tensor) -> Result<Tensor> {
    let [y] = call(
        "copied",
        [("x", x)],
        |[x]| Ok([like(x)]),
        |[x], [y]| {
            dispatch!(x => T in [u8, u32, i16, i32, i64, f16, bf16, f32, f64, F8E4M3] {
                let (view, device) = (x.view::<T, 2>()?, x.device());
                let ([rows, columns], [row, column]) = (view.shape(), view.strides());
                copy_strided::<T, 32>(view.elements(), y.flat_mut::<T>()?, columns as i32, row as i64, column as i64)
                    .grid(rows)
                    .launch(device)
            })
        },
    )?;
    Ok(y)
}

#[test]
fn elements_of_all_dtypes_and_strides_are_read_where_they_are() {
    on_every_device(|device| {
        let x = Random::new(31).indices(&[6, 9], 16, device)?;
        for dtype in [
            DType::U8,
            DType::U32,
            DType::I16,
            DType::I32,
            DType::I64,
            DType::F16,
            DType::BF16,
            DType::F32,
            DType::F64,
            DType::F8E4M3,
        ] {
            let x = x.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.to_dtype(dtype)?.to_device(device)?;
            let column = x.i((.., 3))?.unsqueeze(1)?;
            let row = x.i(2)?.unsqueeze(0)?;
            let repeated = row.broadcast_as((4, 9))?;
            for part in [&x, &x.t()?, &x.narrow(0, 2, 3)?, &x.narrow(1, 1, 5)?, &column, &row, &repeated] {
                let copy = copied(part)?;
                assert!(copy.is_contiguous());
                let host = |x: &Tensor| Ok::<_, candle_core::Error>(reals(&x.to_device(&Device::Cpu)?));
                assert_eq!(host(&copy)?, host(part)?, "{dtype:?} {:?}", part.layout());
            }
        }
        Ok(())
    });
}

#[test]
fn a_part_of_a_tensor_is_written_where_it_is() {
    on_every_device(|device| {
        let x = Tensor::arange(0f32, 12.0, device)?.reshape((3, 4))?;
        let part = x.t()?.narrow(0, 1, 2)?;
        let [] = call_in_place(
            "double",
            ("x", &part),
            [],
            |[]| Ok([]),
            |x, [], []| {
                let (device, view) = (x.device(), x.view_mut::<f32, 2>()?);
                let ([rows, columns], [row, column]) = (view.shape(), view.strides());
                double_strided::<32>(view.elements(), columns as i32, row as i64, column as i64)
                    .grid(rows)
                    .launch(device)
            },
        )?;
        assert_eq!(x.to_vec2::<f32>()?, [[0.0, 2.0, 4.0, 3.0], [4.0, 10.0, 12.0, 7.0], [8.0, 18.0, 20.0, 11.0]]);
        Ok(())
    });
}

#[test]
fn nothing_is_copied() {
    on_every_device(|on| {
        let x = Tensor::arange(0f32, 8.0, on)?;
        let seen = std::cell::Cell::new([None; 3]);
        let part = x.narrow(0, 2, 4)?;
        let inputs = [("x", &x), ("part", &part), ("again", &x)];
        let [] = call(
            "addresses",
            inputs,
            |_| Ok([]),
            |[x, part, again], []| {
                let address = |tensor: TensorRef<'_>| Ok::<_, Error>(tensor.flat::<f32>()?.raw());
                seen.set([Some(address(x)?), Some(address(part)?), Some(address(again)?)]);
                Ok(())
            },
        )?;
        let [whole, part, again] = seen.get().map(|raw| raw.expect("the body has run"));
        assert_eq!(whole, again);
        assert_eq!((whole.len, part.len), (8, 4));
        assert_ne!(whole.address, part.address);
        Ok(())
    });
}

#[test]
fn tensors_without_elements_are_tensors() {
    on_every_device(|device| {
        let x = Tensor::zeros((0, 5), DType::F32, device)?;
        let none = Tensor::zeros((5, 0), DType::F32, device)?;
        assert_eq!(tilewright_candle::rows::softmax(&none)?.dims(), [5, 0]);
        assert_eq!(tilewright_candle::rows::softmax(&x)?.dims(), [0, 5]);
        let whole = Tensor::zeros((4, 5), DType::F32, device)?;
        assert_eq!(tilewright_candle::rows::softmax(&whole.narrow(0, 4, 0)?)?.dims(), [0, 5]);
        Ok(())
    });
}

#[test]
fn devices_are_looked_up() {
    on_every_device(|on| {
        let (first, second) = (device(on)?, device(on)?);
        assert_eq!(first, second);
        assert_eq!(first.default_stream(), second.default_stream());
        assert_eq!(context(on)?.device(), &first);
        assert_eq!(first.is_cuda(), on.is_cuda());
        Ok(())
    });
}

#[test]
fn threads_have_errors_of_their_own_on_the_cpu() {
    let streams = || device(&Device::Cpu).unwrap().default_stream().clone();
    let other = std::thread::spawn(move || device(&Device::Cpu).unwrap().default_stream().clone()).join().unwrap();
    assert_ne!(streams(), other);
}

#[test]
fn tensors_of_the_library_become_candles() {
    fn check<T: tilewright_candle::Element + PartialEq + std::fmt::Debug>(device: &Device, one: T) -> Result<()> {
        let ours = tilewright_candle::device(device)?;
        let made =
            tilewright_kernels::Tensor::upload(&ours, &[one; 12], [2, 3, 2]).map_err(candle_core::Error::wrap)?;
        let x = tilewright_candle::into_candle(made, device)?;
        assert_eq!((x.dims(), x.dtype()), (&[2usize, 3, 2][..], T::DTYPE));
        // Kernels find it where it is, and candle frees it.
        let seen = std::cell::RefCell::new(Vec::new());
        tilewright_candle::call(
            "seen",
            [("x", &x)],
            |_| Ok([]),
            |[x], []| {
                *seen.borrow_mut() = x.flat::<T>()?.to_vec()?;
                Ok(())
            },
        )?;
        assert_eq!(seen.into_inner(), [one; 12]);
        let nothing = tilewright_kernels::Tensor::<T, 1>::empty(&ours, [0]).map_err(candle_core::Error::wrap)?;
        assert_eq!(tilewright_candle::into_candle(nothing, device)?.dims(), [0]);
        Ok(())
    }
    on_every_device(|device| {
        check(device, 3u8)?;
        check(device, 5i64)?;
        check(device, half::bf16::ONE)?;
        check(device, 1.5f32)?;
        check(device, tilewright::prelude::F8E4M3::from_f32(2.0))
    });
}
