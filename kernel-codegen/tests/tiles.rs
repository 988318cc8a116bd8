//! Operations on whole tiles do in the emulator what they do in the interpreter: sorting, gathering, scattering, counting,
//! over dtypes, shapes, axes and numbers of warps.

mod support;

use kernel_core::interp::HostBuffer;
use kernel_core::ir::DType;
use support::differential::{Agreement, Given, agrees_in_warps, from_bytes, noise};
use support::{assemble, hopper};

const DTYPES: [DType; 14] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Elements of any bits, with repetitions, zeros of both signs, infinities and NaNs among them.
fn elements(dtype: DType, len: usize, salt: u32) -> HostBuffer {
    let (bytes, sign) = (dtype.bytes() as usize, 1u64 << (dtype.bytes() * 8 - 1));
    let element = |x: i32| match x.rem_euclid(16) {
        0 => 0,
        1 => sign,
        2 => !0,
        3 => sign - 1,
        4 => u64::from(x as u32 & 3),
        _ => (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    let all: Vec<u8> = noise(len, salt).flat_map(|x| element(x).to_le_bytes()[..bytes].to_vec()).collect();
    from_bytes(dtype, &all)
}

fn show(shape: &[usize]) -> String {
    shape.iter().map(|size| size.to_string()).collect::<Vec<_>>().join(", ")
}

/// Loads or stores of a whole buffer as a tile.
fn pointers(buffer: &str, shape: &[usize]) -> String {
    let (shape, numel) = (show(shape), shape.iter().product::<usize>());
    format!(
        "%{buffer}_i: i32[{numel}] = arange {{lo = 0, hi = {numel}}}
         %{buffer}_at: i32[{shape}] = reshape %{buffer}_i
         %{buffer}_s: *{buffer}[{shape}] = splat %{buffer}
         %{buffer}_p: *{buffer}[{shape}] = add_ptr %{buffer}_s, %{buffer}_at\n"
    )
}

/// A kernel that makes the tile `%r` of a tile `%v` and, if there is one, an index `%n`.
fn kernel(from: (DType, &[usize]), index: Option<(DType, &[usize])>, to: (DType, &[usize]), body: &str) -> String {
    let mut params = format!("param %x x: ptr {}\n", from.0);
    let mut code = pointers("x", from.1);
    code.push_str(&format!("%v: {}[{}] = load %x_p\n", from.0, show(from.1)));
    if let Some((dtype, shape)) = index {
        params.push_str(&format!("param %n_ n_: ptr {dtype}\n"));
        code.push_str(&pointers("n_", shape));
        code.push_str(&format!("%n: {dtype}[{}] = load %n__p\n", show(shape)));
    }
    params.push_str(&format!("param %out out: ptr_mut {}\n", to.0));
    format!(
        "kernel tile \"tile.rs\" unsafe bound {{\n{params}{code}{body}\n{}store %out_p, %r\nreturn\n}}",
        pointers("out", to.1)
    )
}

fn check(text: &str, buffers: &[HostBuffer]) {
    let kernel = support::kernel(text);
    let given = Given { buffers, tensors: &[], scalars: &[] };
    let outcome = std::panic::catch_unwind(|| agrees_in_warps(&[1, 4], &kernel, &given, 1, Agreement::Exact));
    assert!(outcome.is_ok(), "{text}");
}

/// All ways to sort a tile along an axis, `keep` elements of it.
fn sorts(dtype: DType, shape: &[usize], axis: usize, keep: usize) {
    let mut kept = shape.to_vec();
    kept[axis] = keep;
    for (descending, indices) in [(false, false), (true, false), (false, true), (true, true)] {
        let to = if indices { DType::I32 } else { dtype };
        let body = format!(
            "%r: {to}[{}] = sort %v {{axis = {axis}, descending = {descending}, keep = {keep}, indices = {indices}}}",
            show(&kept)
        );
        let text = kernel((dtype, shape), None, (to, &kept), &body);
        let (len, out) = (shape.iter().product(), kept.iter().product());
        check(&text, &[elements(dtype, len, keep as u32), HostBuffer::zeros(to, out)]);
    }
}

#[test]
fn every_dtype_is_sorted() {
    for dtype in DTYPES {
        sorts(dtype, &[64], 0, 64);
        sorts(dtype, &[128], 0, 16);
    }
}

#[test]
fn every_shape_is_sorted() {
    for (shape, axis) in [
        (&[1usize][..], 0),
        (&[2], 0),
        (&[32], 0),
        (&[1024], 0),
        (&[16, 32], 0),
        (&[16, 32], 1),
        (&[4, 8, 16], 1),
        (&[256, 1], 0),
        (&[1, 16], 0),
    ] {
        sorts(DType::F32, shape, axis, shape[axis]);
        sorts(DType::I16, shape, axis, shape[axis].div_ceil(4));
        sorts(DType::F32, shape, axis, 1);
    }
}

#[test]
fn elements_are_gathered_and_scattered() {
    for dtype in DTYPES.into_iter().chain([DType::Bool]) {
        let index = [DType::I32, DType::I64, DType::U8][dtype.bytes() as usize % 3];
        for (shape, axis, indices) in
            [(&[64usize][..], 0, 128), (&[8, 32], 1, 8), (&[16, 16], 0, 32), (&[4, 4, 8], 1, 4)]
        {
            let mut taken = shape.to_vec();
            taken[axis] = indices;
            let (len, out) = (shape.iter().product(), taken.iter().product());
            let source = match dtype {
                DType::Bool => from_bytes(dtype, &noise(len, 3).map(|x| (x & 1) as u8).collect::<Vec<u8>>()),
                _ => elements(dtype, len, 5),
            };
            let body = format!("%r: {dtype}[{}] = gather %v, %n {{axis = {axis}}}", show(&taken));
            let text = kernel((dtype, shape), Some((index, &taken)), (dtype, &taken), &body);
            check(&text, &[source.clone(), elements(index, out, 6), HostBuffer::zeros(dtype, out)]);
            // Each place once: the index is a permutation.
            let lines: usize = shape[axis + 1..].iter().product();
            let places = (0..len).map(|at| (at / lines % shape[axis]) ^ (shape[axis] - 1)).map(|at| at as i32);
            let body = format!("%r: {dtype}[{s}] = scatter %v, %n, %v {{axis = {axis}}}", s = show(shape));
            let text = kernel((dtype, shape), Some((DType::I32, shape)), (dtype, shape), &body);
            check(&text, &[source, places.collect::<Vec<i32>>().into(), HostBuffer::zeros(dtype, len)]);
        }
    }
}

#[test]
fn integers_are_counted() {
    for dtype in DTYPES.into_iter().filter(|dtype| dtype.is_int()) {
        for (shape, bins) in [(&[1024usize][..], 256), (&[16], 4), (&[16, 32], 64), (&[64], 4096), (&[32], 8192)] {
            for mask in [false, true] {
                let masked = format!(
                    "%z: {dtype} = const 1\n%zs: {dtype}[{s}] = splat %z\n%m: bool[{s}] = cmp.ge %v, %zs\n",
                    s = show(shape)
                );
                let (before, operands) = if mask { (masked.as_str(), "%v, %m") } else { ("", "%v") };
                let body = format!("{before}%r: i32[{bins}] = histogram {operands} {{bins = {bins}}}");
                let text = kernel((dtype, shape), None, (DType::I32, &[bins]), &body);
                let len = shape.iter().product();
                let bytes = dtype.bytes() as usize;
                let small = noise(len, 9).flat_map(|x| i64::from(x % 80).to_le_bytes()[..bytes].to_vec());
                let buffers = [from_bytes(dtype, &small.collect::<Vec<u8>>()), HostBuffer::zeros(DType::I32, bins)];
                check(&text, &buffers);
            }
        }
    }
}

#[test]
fn halves_are_taken_apart() {
    for dtype in [DType::I8, DType::F32, DType::U64] {
        for shape in [&[64usize, 2][..], &[4, 8, 2], &[1, 2]] {
            let rest = &shape[..shape.len() - 1];
            let body = format!(
                "%a: {dtype}[{r}] = half %v {{upper = true}}\n%b: {dtype}[{r}] = half %v {{upper = false}}\n\
                 %r: {dtype}[{s}] = join %a, %b",
                r = show(rest),
                s = show(shape)
            );
            let len = shape.iter().product();
            let text = kernel((dtype, shape), None, (dtype, shape), &body);
            check(&text, &[elements(dtype, len, 4), HostBuffer::zeros(dtype, len)]);
        }
    }
}

#[test]
fn nothing_spills() {
    for (dtype, numel, keep, indices) in [
        (DType::F32, 4096, 4096, false),
        (DType::F32, 4096, 64, false),
        (DType::F32, 4096, 64, true),
        (DType::F32, 2048, 2048, true),
        (DType::F16, 4096, 4096, false),
    ] {
        let to = if indices { DType::I32 } else { dtype };
        let body =
            format!("%r: {to}[{keep}] = sort %v {{axis = 0, descending = true, keep = {keep}, indices = {indices}}}");
        let text = kernel((dtype, &[numel]), None, (to, &[keep]), &body);
        let Some(assembled) = assemble(&hopper(&text, 4)) else { return };
        assert_eq!(assembled.spill_bytes, 0, "{keep} of {numel} {dtype}: {} registers", assembled.registers);
        println!("{dtype} {numel} {keep}: {} registers", assembled.registers);
    }
}
