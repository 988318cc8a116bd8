//! The kernels of the examples, with the arguments with which these launch them.

use tilewright::prelude::*;

use super::Collector;

macro_rules! examples {
    ($($name:ident = $path:literal;)*) => {$(
        #[allow(dead_code, reason = "only the kernels are used")]
        #[path = $path]
        mod $name;
    )*};
}

examples! {
    vector_add = "../../../../examples/01_vector_add.rs";
    fused_softmax = "../../../../examples/02_fused_softmax.rs";
    layer_norm = "../../../../examples/03_layer_norm.rs";
    image_blur = "../../../../examples/04_image_blur.rs";
    matmul = "../../../../examples/05_matmul.rs";
    persistent_matmul = "../../../../examples/06_persistent_matmul.rs";
    grouped_matmul = "../../../../examples/07_grouped_matmul.rs";
    quickstart = "../../../../examples/quickstart.rs";
}

/// Compiles all of them.
pub(super) fn compile(to: &mut Collector<'_>) {
    let device = Device::cpu();
    let result = rows::<f32>(to, &device)
        .and_then(|()| rows::<f16>(to, &device))
        .and_then(|()| rows::<bf16>(to, &device))
        .and_then(|()| others(to, &device))
        .and_then(|()| products(to, &device))
        .and_then(|()| persistent_products(to, &device))
        .and_then(|()| grouped_products(to, &device));
    result.unwrap_or_else(|error| panic!("the arguments of the examples: {error}"));
}

/// Vector addition and softmax.
fn rows<T: Float>(to: &mut Collector<'_>, device: &Device) -> Result<(), Error> {
    for n in [1000usize, 4096] {
        let (x, mut out) = (device.zeros::<T>(n)?, device.zeros::<T>(n)?);
        to.add(&format!("vector_add/{} n={n}", T::ELEMENT), |target| {
            let call = vector_add::add::<T, 256>(&x, &x, &mut out, n as i32);
            call.grid(n.div_ceil(256)).compile(target).map(|compiled| compiled.ptx().to_string())
        });
    }
    for columns in [128usize, 1000, 4096, 12289] {
        let (x, mut out) = (device.zeros::<T>(columns)?, device.zeros::<T>(columns)?);
        to.add(&format!("fused_softmax/{} columns={columns}", T::ELEMENT), |target| {
            let consts = fused_softmax::SoftmaxConsts { BLOCK: columns.next_power_of_two() };
            let call = consts.call(&x, &mut out, columns as i64, columns as i32).grid(1);
            call.compile(target).map(|compiled| compiled.ptx().to_string())
        });
    }
    Ok(())
}

/// Layer norm, the blurred picture, and what the quickstart runs.
fn others(to: &mut Collector<'_>, device: &Device) -> Result<(), Error> {
    let columns = 1000usize;
    let x = device.zeros::<f32>(columns)?;
    let (mut out, mut means, mut rstds) = (device.zeros(columns)?, device.zeros(1)?, device.zeros(1)?);
    to.add("layer_norm/f32 columns=1000", |target| {
        let consts = layer_norm::LayerNormConsts { BLOCK: columns.next_power_of_two() };
        let call = consts.call(&x, &x, &x, &mut out, &mut means, &mut rstds, columns as i32, 1e-5).grid(1);
        call.compile(target).map(|compiled| compiled.ptx().to_string())
    });
    let (height, width) = (300usize, 451usize);
    for channels in [1usize, 3] {
        let image = device.zeros::<u8>(height * width * channels)?;
        let (mut blurred, mut edge) = (device.zeros::<u8>(height * width * channels)?, device.zeros(height * width)?);
        to.add(&format!("image_blur/blur channels={channels}"), |target| {
            let consts = image_blur::BlurConsts { ROWS: 16, COLUMNS: 64, CHANNELS: channels, RADIUS: 4 };
            let call = consts.call(&image, &mut blurred, height as i32, width as i32).grid((19, 8, channels));
            call.compile(target).map(|compiled| compiled.ptx().to_string())
        });
        to.add(&format!("image_blur/edges channels={channels}"), |target| {
            let consts = image_blur::EdgesConsts { ROWS: 16, COLUMNS: 64, CHANNELS: channels };
            let call = consts.call(&image, &mut edge, height as i32, width as i32).grid((19, 8));
            call.compile(target).map(|compiled| compiled.ptx().to_string())
        });
    }
    let n = (1 << 20) + 3;
    let (x, mut out) = (device.zeros::<f32>(n)?, device.zeros::<f32>(n)?);
    to.add("quickstart/add", |target| {
        let call = quickstart::add::<_, 1024>(&x, &x, &mut out, n as i32).grid(n.div_ceil(1024));
        call.compile(target).map(|compiled| compiled.ptx().to_string())
    });
    to.add("quickstart/softmax", |target| {
        let call = quickstart::SoftmaxConsts { BLOCK: 1024 }.call(&x, &mut out, 1000).grid(256);
        call.compile(target).map(|compiled| compiled.ptx().to_string())
    });
    Ok(())
}

/// The matrix product of pointers.
fn products(to: &mut Collector<'_>, device: &Device) -> Result<(), Error> {
    for ([m, n, k], [bm, bn, bk], warps, stages) in [
        ([75, 107, 91], [32, 64, 32], 4, None),
        ([131, 269, 157], [128, 256, 64], 8, None),
        ([4096, 4096, 4096], [128, 256, 64], 8, Some(3)),
    ] {
        let (a, b) = (device.zeros::<f16>(m * k)?, device.zeros::<f16>(k * n)?);
        let (bias, mut c) = (device.zeros::<f32>(n)?, device.zeros::<f16>(m * n)?);
        to.add(&format!("matmul/{m}x{n}x{k} {bm}x{bn}x{bk}"), |target| {
            let consts = matmul::MatmulConsts { BM: bm, BN: bn, BK: bk, GROUP: 8 };
            let call = consts.call(&a, &b, &bias, &mut c, m as i32, n as i32, k as i32, 0.01).grid(1).num_warps(warps);
            let call = stages.into_iter().fold(call, |call, stages| call.num_stages(stages));
            call.compile(target).map(|compiled| compiled.ptx().to_string())
        });
    }
    Ok(())
}

/// The product by programs that take tile after tile. Rows are as far apart as they are long, rounded up to 8.
fn persistent_products(to: &mut Collector<'_>, device: &Device) -> Result<(), Error> {
    for ([m, n, k], [bm, bn, bk], warps, stages) in [
        ([75, 107, 91], [32, 64, 32], 4, None),
        ([387, 520, 157], [128, 128, 64], 4, None),
        ([387, 517, 157], [128, 128, 64], 4, None),
        ([387, 520, 157], [128, 256, 64], 8, None),
        ([387, 517, 157], [128, 256, 64], 8, None),
        ([4096, 4096, 4096], [128, 128, 64], 4, Some(6)),
    ] {
        let stride = |columns: usize| columns.next_multiple_of(8);
        let (a, b) = (device.zeros::<f16>(m * stride(k))?, device.zeros::<f16>(k * stride(n))?);
        let mut c = device.zeros::<f16>(m * stride(n))?;
        let a = TensorDesc::with_strides(&a, [m, k], [stride(k), 1])?;
        let b = TensorDesc::with_strides(&b, [k, n], [stride(n), 1])?;
        let mut c = TensorDescMut::with_strides(&mut c, [m, n], [stride(n), 1])?;
        to.add(&format!("persistent_matmul/{m}x{n}x{k} {bm}x{bn}x{bk}"), |target| {
            let consts = persistent_matmul::PersistentConsts { BM: bm, BN: bn, BK: bk, GROUP: 8 };
            let call = consts.call(&a, &b, &mut c, m as i32, n as i32, k as i32).grid(3).num_warps(warps);
            let call = stages.into_iter().fold(call, |call, stages| call.num_stages(stages));
            call.compile(target).map(|compiled| compiled.ptx().to_string())
        });
    }
    Ok(())
}

/// The product of rows with the weights of their experts.
fn grouped_products(to: &mut Collector<'_>, device: &Device) -> Result<(), Error> {
    for ([m, n, k], [bm, bn, bk], warps, stages) in [
        ([160, 72, 40], [32, 32, 16], 4, 3),
        ([512, 136, 72], [128, 256, 64], 8, 4),
        ([1024, 4096, 4096], [128, 256, 64], 8, 4),
    ] {
        let (x, weights) = (device.zeros::<f16>(m * k)?, device.zeros::<f16>(4 * k * n)?);
        let (owners, mut out) = (device.zeros::<i32>(m / bm)?, device.zeros::<f16>(m * n)?);
        let (x, weights) = (TensorDesc::new(&x, [m, k])?, TensorDesc::new(&weights, [4, k, n])?);
        let mut out = TensorDescMut::new(&mut out, [m, n])?;
        to.add(&format!("grouped_matmul/{m}x{n}x{k} {bm}x{bn}x{bk}"), |target| {
            let consts = grouped_matmul::GroupedConsts { BM: bm, BN: bn, BK: bk, GROUP: 8 };
            let call = consts.call(&x, &weights, &owners, &mut out, m as i32, n as i32, k as i32).grid(1);
            let call = call.num_warps(warps).num_stages(stages);
            call.compile(target).map(|compiled| compiled.ptx().to_string())
        });
    }
    Ok(())
}
