//! Names that dtypes and bounds have elsewhere.

use tilewright::prelude::*;

#[kernel]
fn dtypes(a: Ptr<f8>, b: Ptr<half>, c: Ptr<float>, d: Ptr<int32>, e: PtrMut<u128>, f: ptr<f32>, g: Pointer<f32>) {}

#[kernel]
fn bounds<T: Number, U: FLoat, V: DType>(x: Ptr<T>, y: Ptr<U>, z: Ptr<V>) {}

fn main() {}
