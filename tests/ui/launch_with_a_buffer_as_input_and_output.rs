//! In place is said by `InPlace`, not by two borrows.

use tilewright::prelude::*;

#[kernel]
fn keep<T: Num, M: Int, const N: usize>(#[in_place(out)] x: Ptr<T>, mask: Option<Ptr<M>>, out: PtrMut<T>) {
    let i = arange(0, N);
    let keep = if let Some(mask) = mask { load(mask + i) != (0 as M) } else { full([N], true) };
    store(out + i, select(keep, load(x + i), zeros([N])));
}

fn main() -> tilewright::Result<()> {
    let device = Device::cpu();
    let mut out = device.zeros::<f32>(64)?;
    keep::<_, u8, 64>(&out, None, &mut out).grid(1).launch(&device)
}
