//! Kernels that are limited by memory, against Triton's and the driver's copy.
//!
//! ```text
//! python3 benches/peers/compile.py benches/peers/cubins     # once, anywhere: needs triton, no GPU
//! cargo bench -p tilewright-bench --bench bandwidth            # on a machine with a GPU
//! ```
//! Without the cubins, only Tilewright and the copy run.

use std::cell::RefCell;
use std::path::Path;

use tilewright::prelude::*;
use tilewright_bench::cubin::{Argument, Cubin, Entry};
use tilewright_bench::{Arena, Contender, Contest, Launch, Outcome, cubin, normal, report};

/// `out = x + y`
#[kernel]
pub fn add<const BLOCK: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

/// Softmax of each row.
#[kernel]
pub fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
}

/// Softmax of each row, unchecked.
#[kernel]
pub unsafe fn softmax_unchecked<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
}

/// Layer norm of each row.
#[kernel]
pub fn layer_norm<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Ptr<T>,
    bias: Ptr<T>,
    out: PtrMut<T>,
    means: PtrMut<f32>,
    rstds: PtrMut<f32>,
    columns: i32,
    eps: Const<f32>,
) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = row * columns + column;
    let values = load(x + offsets, mask = mask) as f32;
    let mean = sum(values, axis = 0) / columns as f32;
    let centred = select(mask, values - mean, 0.0);
    let variance = sum(centred * centred, axis = 0) / columns as f32;
    let rstd = rsqrt(variance + eps);
    let scale = load(weight + column, mask = mask) as f32;
    let shift = load(bias + column, mask = mask) as f32;
    store(out + offsets, (centred * rstd * scale + shift) as T, mask = mask);
    store(means + row, mean);
    store(rstds + row, rstd);
}

/// A failure of a peer's kernel, as an error of ours.
fn foreign(message: String) -> Error {
    Error::Unsupported { what: message.into(), reason: "compile the peers again with peers/compile.py".into() }
}

/// Triton's configurations of a kernel for a block size (any, if `None`), launched with `arguments`.
fn triton<'a>(
    device: &'a Device,
    entries: &[Entry],
    work: &str,
    dtype: &str,
    block: Option<usize>,
    grid: impl Fn(&Entry) -> u32,
    arguments: Vec<Argument>,
) -> Result<Contender<'a>, Error> {
    let mut configs: Vec<(String, Launch<'a>)> = Vec::new();
    let Some(stream) = device.default_stream().cudarc() else { return Ok(Contender { name: "triton", configs }) };
    let fits = |e: &&Entry| e.work == work && e.dtype == dtype && block.is_none_or(|b| b == e.block);
    for entry in entries.iter().filter(fits) {
        device.default_stream().bind()?;
        let kernel = Cubin::load(entry).map_err(foreign)?;
        let (programs, arguments) = (grid(entry), arguments.clone());
        // SAFETY: the arguments are those of the kernel, whose masks keep it inside the buffers.
        let launch = move || unsafe { kernel.launch(stream, programs, &arguments) }.map_err(foreign);
        configs.push((entry.config.clone(), Box::new(launch)));
    }
    Ok(Contender { name: "triton", configs })
}

fn address<T: DType>(buffer: &Buffer<T>) -> Argument {
    Argument::Address(buffer.raw().address.get())
}

fn bench_add(device: &Device, arena: &mut Arena, entries: &[Entry]) -> Result<Vec<Outcome>, Error> {
    let n = 1usize << 28;
    let host = normal(1, n);
    let (x, y) = (device.upload(&host)?, device.upload(&host)?);
    let out = RefCell::new(device.zeros::<f32>(n)?);
    let arguments = vec![address(&x), address(&y), address(&out.borrow()), Argument::I32(n as i32)];
    let copy = || out.borrow_mut().copy_from(&x);
    let mut configs: Vec<(String, Launch<'_>)> = Vec::new();
    for block in [512usize, 1024, 2048, 4096] {
        for warps in [4u32, 8] {
            let (x, y, out) = (&x, &y, &out);
            let launch = move || {
                let mut out = out.borrow_mut();
                AddConsts { BLOCK: block }
                    .call(x, y, &mut *out, n as i32)
                    .grid(n.div_ceil(block))
                    .num_warps(warps)
                    .launch(device)
            };
            configs.push((format!("BLOCK={block} warps={warps}"), Box::new(launch)));
        }
    }
    let bytes = 4.0 * n as f64;
    arena.hold(Contest {
        work: "add",
        shape: format!("{n}"),
        dtype: "f32",
        contenders: vec![
            (2.0 * bytes, Contender { name: "driver copy", configs: vec![(String::new(), Box::new(copy))] }),
            (3.0 * bytes, Contender { name: "tilewright", configs }),
            (3.0 * bytes, triton(device, entries, "add", "f32", None, |e| n.div_ceil(e.block) as u32, arguments)?),
        ],
    })
}

fn warps(block: usize) -> impl Iterator<Item = u32> {
    [4u32, 8, 16, 32].into_iter().filter(move |w| (2..=64).contains(&(block / (*w as usize * 32))))
}

fn bench_softmax<T: Float>(
    device: &Device,
    arena: &mut Arena,
    entries: &[Entry],
    (rows, columns): (usize, usize),
    dtype: &'static str,
    to: fn(f32) -> T,
) -> Result<Vec<Outcome>, Error> {
    let host: Vec<T> = normal(2, rows * columns).into_iter().map(to).collect();
    let x = device.upload(&host)?;
    let out = RefCell::new(device.zeros::<T>(rows * columns)?);
    let block = columns.next_power_of_two();
    let arguments = vec![address(&x), address(&out.borrow()), Argument::I32(columns as i32)];
    let (mut safe, mut unchecked): (Vec<(String, Launch<'_>)>, Vec<(String, Launch<'_>)>) = (Vec::new(), Vec::new());
    for w in warps(block) {
        let (x, out) = (&x, &out);
        let config = format!("BLOCK={block} warps={w}");
        let launch = move || {
            let mut out = out.borrow_mut();
            SoftmaxConsts { BLOCK: block }.call(x, &mut *out, columns as i32).grid(rows).num_warps(w).launch(device)
        };
        safe.push((config.clone(), Box::new(launch)));
        let launch = move || {
            let mut out = out.borrow_mut();
            let call = SoftmaxUncheckedConsts { BLOCK: block }.call(x, &mut *out, columns as i32);
            // SAFETY: the mask keeps every access inside the rows, which are inside the buffers.
            unsafe { call.grid(rows).num_warps(w).launch(device) }
        };
        unchecked.push((config, Box::new(launch)));
    }
    let bytes = 2.0 * (rows * columns * size_of::<T>()) as f64;
    arena.hold(Contest {
        work: "softmax",
        shape: format!("{rows}x{columns}"),
        dtype,
        contenders: vec![
            (bytes, triton(device, entries, "softmax", dtype, Some(block), |_| rows as u32, arguments)?),
            (bytes, Contender { name: "safe", configs: safe }),
            (bytes, Contender { name: "unsafe", configs: unchecked }),
        ],
    })
}

fn bench_layer_norm<T: Float>(
    device: &Device,
    arena: &mut Arena,
    entries: &[Entry],
    (rows, columns): (usize, usize),
    dtype: &'static str,
    to: fn(f32) -> T,
) -> Result<Vec<Outcome>, Error> {
    let convert = |values: Vec<f32>| values.into_iter().map(to).collect::<Vec<T>>();
    let x = device.upload(&convert(normal(3, rows * columns)))?;
    let (weight, bias) = (device.upload(&convert(normal(4, columns)))?, device.upload(&convert(normal(5, columns)))?);
    let out = RefCell::new(device.zeros::<T>(rows * columns)?);
    let stats = RefCell::new((device.zeros::<f32>(rows)?, device.zeros::<f32>(rows)?));
    let block = columns.next_power_of_two();
    let eps = 1e-5f32;
    let mut arguments = vec![address(&x), address(&weight), address(&bias), address(&out.borrow())];
    arguments.extend([address(&stats.borrow().0), address(&stats.borrow().1)]);
    arguments.extend([Argument::I32(columns as i32), Argument::F32(eps)]);
    let mut configs: Vec<(String, Launch<'_>)> = Vec::new();
    for w in warps(block) {
        let (x, weight, bias, out, stats) = (&x, &weight, &bias, &out, &stats);
        let launch = move || {
            let (mut out, mut stats) = (out.borrow_mut(), stats.borrow_mut());
            let (means, rstds) = &mut *stats;
            LayerNormConsts { BLOCK: block }
                .call(x, weight, bias, &mut *out, means, rstds, columns as i32, eps)
                .grid(rows)
                .num_warps(w)
                .launch(device)
        };
        configs.push((format!("BLOCK={block} warps={w}"), Box::new(launch)));
    }
    let bytes = 2.0 * (rows * columns * size_of::<T>()) as f64;
    arena.hold(Contest {
        work: "layer norm",
        shape: format!("{rows}x{columns}"),
        dtype,
        contenders: vec![
            (bytes, triton(device, entries, "layer_norm", dtype, Some(block), |_| rows as u32, arguments)?),
            (bytes, Contender { name: "safe", configs }),
        ],
    })
}

fn run(device: &Device, cubins: &Path) -> Result<Vec<Outcome>, Error> {
    let mut arena = Arena::new(device)?;
    let entries = cubin::index(cubins);
    let mut all = Vec::new();
    let mut show = |rows: Vec<Outcome>| {
        print!("{}", report::table(&rows));
        all.extend(rows);
    };
    show(bench_add(device, &mut arena, &entries)?);
    for shape in [(4096, 1024), (8192, 4096), (8192, 8192), (4096, 16384)] {
        show(bench_softmax::<f32>(device, &mut arena, &entries, shape, "f32", |v| v)?);
        show(bench_softmax::<bf16>(device, &mut arena, &entries, shape, "bf16", bf16::from_f32)?);
        show(bench_layer_norm::<f32>(device, &mut arena, &entries, shape, "f32", |v| v)?);
        show(bench_layer_norm::<bf16>(device, &mut arena, &entries, shape, "bf16", bf16::from_f32)?);
    }
    Ok(all)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    if !device.is_cuda() {
        println!("skipped: no CUDA device");
        return Ok(());
    }
    let before = report::machine();
    let outcomes = run(&device, &report::cubins())?;
    let machine = format!("before: {before}; after: {}", report::machine());
    println!("{machine}");
    report::write("bandwidth.csv", &report::csv(&machine, &outcomes))?;
    Ok(())
}
