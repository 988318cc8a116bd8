//! Vector addition: programs, tiles, masks, and what a launch looks like.
//!
//! ```text
//! cargo run --release --example 01_vector_add
//! ```

use tilewright::prelude::*;

/// `out[i] = x[i] + y[i]` for any numeric dtype; program `p` takes care of elements `p * BLOCK ..`.
#[kernel]
pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    // The elements of this program, as a tile of BLOCK integers.
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    // The last program may reach beyond the end: those lanes are masked.
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);
    store(out + offsets, sum, mask = mask);
}

/// Adds two vectors on the device, and on the host, and compares.
fn check<T>(device: &Device, xs: &[T], ys: &[T]) -> Result<(), Error>
where
    T: Num + PartialEq + std::ops::Add<Output = T> + std::fmt::Debug,
{
    let n = xs.len();
    let (x, y) = (device.upload(xs)?, device.upload(ys)?);
    let mut out = device.upload(xs)?;
    add::<T, 256>(&x, &y, &mut out, n as i32).grid(n.div_ceil(256)).launch(device)?;
    // Reading the buffer waits for the launch, and returns its error if it had one.
    let result = out.to_vec()?;
    let expected: Vec<T> = xs.iter().zip(ys).map(|(&x, &y)| x + y).collect();
    assert_eq!(result, expected);
    println!("{:>5} elements of {:<10} agree", n, std::any::type_name::<T>());
    Ok(())
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("on {}", device.name());
    for n in [1usize, 255, 256, 257, 9973] {
        let floats: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
        check(&device, &floats, &floats)?;
        let halves: Vec<f16> = (0..n).map(|i| f16::from_f32((i % 100) as f32)).collect();
        check(&device, &halves, &halves)?;
        let integers: Vec<i64> = (0..n as i64).map(|i| i - 7).collect();
        check(&device, &integers, &integers)?;
    }

    // A kernel is safe: with a length that is too large, the accesses beyond the end do not happen,
    // and the launch reports the first of them.
    let x = device.upload(&[1.0f32; 100])?;
    let mut out = device.zeros::<f32>(100)?;
    add::<_, 256>(&x, &x, &mut out, 101).grid(1).launch(&device)?;
    match out.to_vec() {
        Ok(_) => println!("the mistake went unnoticed"),
        Err(error) => println!("a wrong length is reported:\n{error}"),
    }
    Ok(())
}
