//! Products of 8-bit floats with a scale for each row and 128 of the sums of `a`, and for each 128 by 128 of `b`.

use crate::families::frame::{Library, Row, address, size, tensor, triton};
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Variant;
use tilewright_bench::tensor_map::Matrix;
use tilewright_bench::{Contender, Failure, Stage};
use tilewright_kernels::products::fp8::{self, Fp8BlocksConfig};
use tilewright_kernels::{Context, Tensor, TensorViewMut};

/// Both factors as 8-bit floats with their scales: `a` is `[m, k]`, `b` is `[n, k]`.
struct Factors {
    sizes: [usize; 3],
    a: Tensor<F8E4M3, 2>,
    a_scale: Tensor<f32, 2>,
    b: Tensor<F8E4M3, 2>,
    b_scale: Tensor<f32, 2>,
}

impl Factors {
    fn new(device: &Device, sizes @ [m, n, k]: [usize; 3]) -> Result<Factors, Failure> {
        let cx = Context::new(device);
        let x = Input::<bf16>::normal(device, 1, m * k, 0)?;
        let w = Input::<bf16>::normal(device, 2, n * k, 0)?;
        let (a, a_scale) = fp8::quantise_blocks(&cx, tensor(&x, [m, k])?)?;
        let (b, b_scale) = fp8::quantise_squares(&cx, tensor(&w, [n, k])?)?;
        Ok(Factors { sizes, a, a_scale, b, b_scale })
    }

    /// A row of a factor, with its scales, of which each is for so many rows.
    fn row(
        &self,
        factor: &Tensor<F8E4M3, 2>,
        scale: &Tensor<f32, 2>,
        row: usize,
        rows: usize,
    ) -> Result<Vec<f64>, Failure> {
        let k = self.sizes[2];
        let groups = k.div_ceil(128);
        let scales = scale.buffer().slice(row / rows * groups..(row / rows + 1) * groups)?.to_vec()?;
        let numbers = factor.buffer().slice(row * k..(row + 1) * k)?.to_vec()?;
        Ok(numbers.into_iter().enumerate().map(|(i, x)| x.to_f64() * f64::from(scales[i / 128])).collect())
    }

    /// Some rows of the product, up to 64 columns of them.
    fn expected(&self) -> Result<Vec<(usize, Vec<f64>)>, Failure> {
        let [m, n, _] = self.sizes;
        let mut columns = Vec::new();
        for column in 0..n.min(64) {
            columns.push(self.row(&self.b, &self.b_scale, column, 128)?);
        }
        let mut all = Vec::new();
        for row in sampled(m) {
            let a = self.row(&self.a, &self.a_scale, row, 1)?;
            let values = columns.iter().map(|b| a.iter().zip(b).map(|(a, b)| a * b).sum()).collect();
            all.push((row, values));
        }
        Ok(all)
    }

    /// The tensor cores keep 13 bits of fraction of the sums of 128 products, which are of about 11 times a product.
    fn tolerance(&self) -> Tolerance {
        let k = self.sizes[2] as f64;
        Tolerance { relative: bf16::HALF_ULP + 1e-3, absolute: 2f64.powi(-13) * 16.0 * k.sqrt() }
    }

    fn run(&self, cx: &Context, out: TensorViewMut<'_, bf16, 2>) -> Result<(), Failure> {
        let (b, b_scale) = (self.b.view().transpose(0, 1)?, self.b_scale.view().transpose(0, 1)?);
        Ok(fp8::matmul_blocks_into(cx, &self.a, &self.a_scale, b, b_scale, out)?)
    }

    fn row_of(&self, work: &'static str) -> Row {
        let [m, n, k] = self.sizes;
        let bytes = m * k + n * k + 2 * m * n;
        let flops = 2.0 * m as f64 * n as f64 * k as f64;
        Row::moving(work, format!("{m}x{n}x{k}"), F8E4M3::NAME, bytes).computing(flops)
    }

    fn scales(&self) -> [Argument; 5] {
        let [m, n, k] = self.sizes.map(size);
        [address(&self.a_scale), address(&self.b_scale), m, n, k]
    }
}

fn configs() -> [Fp8BlocksConfig; 5] {
    let tried = [(128, 128, 8, 4), (128, 128, 8, 3), (64, 128, 4, 6), (64, 128, 4, 4), (128, 64, 8, 5)];
    tried.map(|(bm, bn, num_warps, num_stages)| Fp8BlocksConfig { bm, bn, group: 8, num_warps, num_stages })
}

fn all_sizes(stage: &Stage) -> Vec<[usize; 3]> {
    stage.either(vec![[4096, 4096, 4096], [8192, 8192, 8192]], vec![[48, 64, 256]])
}

/// From descriptors.
pub fn blocks(stage: &mut Stage) -> Result<(), Failure> {
    for sizes in all_sizes(stage) {
        let (device, [m, n, k]) = (stage.device(), sizes);
        let factors = Factors::new(&device, sizes)?;
        let expected = factors.expected()?.into_iter().map(|(row, values)| Segment { at: row * n, values }).collect();
        let out = Output::<bf16>::new(&device, m * n, 0, factors.tolerance(), expected)?;
        let library = Library::new(stage, |cx| {
            let mut c = out.lock();
            factors.run(cx, TensorViewMut::new(c.view()?, [m, n])?)
        })
        .tried(F8E4M3::ELEMENT, &sizes, &configs());
        let described = |entry: &tilewright_bench::cubin::Entry| -> Result<_, Failure> {
            let (Some(bm), Some(bn)) = (entry.get("BM"), entry.get("BN")) else { return Ok(None) };
            let matrices = [(address(&factors.a), m, k, 1), (address(&factors.b), n, k, 1), (out.argument(), m, n, 2)];
            let mut arguments = Vec::new();
            for ((argument, rows, columns, bytes), encoding) in matrices.into_iter().zip(&entry.descriptors) {
                let Argument::Address(address) = argument else { continue };
                arguments.extend(encoding.arguments(Matrix { address, rows, columns, size: bytes })?);
            }
            arguments.extend(factors.scales());
            Ok(Some((arguments, [m.div_ceil(bm) * n.div_ceil(bn), 1, 1])))
        };
        let mut peer = Contender { name: "triton", configs: Vec::new() };
        let work = ("fp8_blocks_descriptor", F8E4M3::NAME, Variant::Aligned);
        for (entry, launch) in stage.peers_of(work, described)? {
            peer.config(entry.config, move |_| launch());
        }
        let peers = if peer.configs.is_empty() { Vec::new() } else { vec![peer] };
        factors.row_of("fp8_blocks").hold(stage, vec![&out], peers, library)?;
    }
    Ok(())
}

/// Through pointers: the library takes that way where a matrix is not one that descriptors describe, as a result whose
/// columns are contiguous.
pub fn pointers(stage: &mut Stage) -> Result<(), Failure> {
    for sizes in all_sizes(stage) {
        let (device, [m, n, _]) = (stage.device(), sizes);
        let factors = Factors::new(&device, sizes)?;
        let expected = factors.expected()?;
        let across = expected.iter().map(|(row, values)| Segment { at: row * n, values: values.clone() }).collect();
        let each = |(row, values): &(usize, Vec<f64>)| -> Vec<Segment> {
            let value = |(column, value): (usize, &f64)| Segment { at: column * m + row, values: vec![*value] };
            values.iter().enumerate().map(value).collect()
        };
        let down = expected.iter().flat_map(each).collect();
        let theirs = Output::<bf16>::new(&device, m * n, 0, factors.tolerance(), across)?;
        let ours = Output::<bf16>::new(&device, m * n, 0, factors.tolerance(), down)?;
        let library = Library::new(stage, |cx| {
            let mut c = ours.lock();
            factors.run(cx, TensorViewMut::with_strides(c.view()?, [m, n], [1, m])?)
        })
        .tried(F8E4M3::ELEMENT, &sizes, &configs());
        let matrices = [address(&factors.a), address(&factors.b), theirs.argument()];
        let arguments: Vec<Argument> = matrices.into_iter().chain(factors.scales()).collect();
        let peers = triton(stage, ("fp8_blocks", F8E4M3::NAME), arguments, |e| {
            Some([m.div_ceil(e.get("BM")?) * n.div_ceil(e.get("BN")?), 1, 1])
        })?;
        // Each is checked where it writes: in contests of their own.
        let row = |outputs: Vec<&dyn tilewright_bench::data::Verify>, stage: &mut Stage, peers, library| {
            factors.row_of("fp8_blocks_pointers").hold(stage, outputs, peers, library)
        };
        if !peers.is_empty() {
            row(vec![&theirs], stage, peers, Library::none(stage))?;
        }
        row(vec![&ours], stage, Vec::new(), library)?;
    }
    Ok(())
}
