//! Outputs that may be their inputs.

use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Each row less its mean, over the row or elsewhere.
#[kernel]
fn centred<T: Float, const N: usize>(#[in_place(out)] x: Ptr<T>, out: PtrMut<T>) {
    let columns = program_id(0) * N + arange(0, N);
    let row = load(x + columns);
    let mut pointer = x + program_id(0) * N;
    let mut total = 0 as T::Acc;
    for _ in 0..N {
        total += load(pointer) as T::Acc;
        pointer = pointer + 1;
    }
    store(out + columns, ((row as T::Acc) - total / (N as T::Acc)) as T);
}

/// The same without the attribute.
#[kernel]
fn elsewhere<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>) {
    let columns = program_id(0) * N + arange(0, N);
    let row = load(x + columns);
    let mut pointer = x + program_id(0) * N;
    let mut total = 0 as T::Acc;
    for _ in 0..N {
        total += load(pointer) as T::Acc;
        pointer = pointer + 1;
    }
    store(out + columns, ((row as T::Acc) - total / (N as T::Acc)) as T);
}

/// Loads behind a store see it where input and output are one, and do not where they are two.
#[kernel]
fn late<const N: usize>(#[in_place(out)] x: Ptr<i32>, #[in_place(out)] y: Ptr<i32>, out: PtrMut<i32>) {
    let i = arange(0, N);
    let first = load(x + i);
    store(out + i, first + 1);
    store(out + i, load(x + (N as i32 - 1 - i)) * 100 + load(y + i));
}

fn rows() -> Vec<f32> {
    (0..256u16).map(|i| f32::from(i * 37 % 64)).collect()
}

fn expected() -> Vec<f32> {
    let centre = |row: &[f32]| -> Vec<f32> {
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        row.iter().map(|x| x - mean).collect()
    };
    rows().chunks_exact(64).flat_map(centre).collect()
}

#[test]
fn one_kernel_works_in_place_and_elsewhere() {
    check(|device| {
        let (x, mut out) = (device.upload(&rows())?, device.zeros(256)?);
        centred::<_, 64>(&x, &mut out).grid(4).launch(device)?;
        assert_eq!(out.to_vec()?, expected());
        assert_eq!(x.to_vec()?, rows());
        let mut x = x;
        centred::<_, 64>(InPlace, &mut x).grid(4).launch(device)?;
        assert_eq!(x.to_vec()?, expected());
        // By name, and in part of a buffer.
        let mut both = device.upload(&[rows(), rows()].concat())?;
        let args = CentredArgs { x: InPlace, out: both.slice_mut(256..)? };
        args.call(CentredConsts { N: 64 }).grid(4).launch(device)?;
        assert_eq!(both.to_vec()?, [rows(), expected()].concat());
        Ok(())
    });
}

#[test]
fn in_place_loads_see_what_was_stored() {
    check(|device| {
        let (x, y) = (device.upload(&[1, 2, 3, 4])?, device.upload(&[5, 6, 7, 8])?);
        let mut out = device.upload(&[10, 20, 30, 40])?;
        late::<4>(&x, &y, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [405, 306, 207, 108]);
        let mut out = device.upload(&[10, 20, 30, 40])?;
        late::<4>(InPlace, &y, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [4105, 3106, 2107, 1108]);
        let mut out = device.upload(&[10, 20, 30, 40])?;
        late::<4>(InPlace, InPlace, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [4111, 3121, 2131, 1141]);
        Ok(())
    });
}

fn ptx(kernel: Result<CompiledKernel, Error>) -> String {
    kernel.unwrap_or_else(|error| panic!("{error}")).ptx().to_string()
}

#[test]
fn without_it_the_code_is_that_of_the_kernel_without_the_attribute() {
    for target in [Target::sm_80(), Target::sm_90a()] {
        let elsewhere = ptx(ElsewhereConsts { N: 64 }.compile::<f32>(target)).replace("elsewhere", "centred");
        assert_eq!(ptx(CentredConsts { N: 64 }.compile::<f32>(target, true)), elsewhere);
        assert!(elsewhere.contains("ld.global.nc"), "{elsewhere}");
        let in_place = ptx(CentredConsts { N: 64 }.compile::<f32>(target, false));
        assert!(!in_place.contains(".nc"), "nobody promises that it is not written: {in_place}");
        assert!(!in_place.contains("centred_param_1"), "it has one parameter: {in_place}");
    }
}

#[test]
fn launches_in_place_are_recorded_in_graphs() {
    check(|device| {
        let mut x = device.upload(&rows())?;
        let graph = device.capture(|| centred::<_, 64>(InPlace, &mut x).grid(4).launch(device))?;
        graph.replay()?;
        assert_eq!(x.to_vec()?, expected());
        Ok(())
    });
}

#[test]
fn accesses_are_checked_in_place() {
    check(|device| {
        let mut x = device.upload(&rows())?;
        let launched = centred::<_, 64>(InPlace, x.slice_mut(..100)?).grid(2).launch(device);
        let text = match launched.and_then(|()| x.to_vec()) {
            Err(error) => error.to_string(),
            Ok(values) => panic!("{values:?}"),
        };
        assert!(text.contains("`out`") && text.contains("100"), "{text}");
        Ok(())
    });
}
