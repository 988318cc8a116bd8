"""Compiles Triton's kernels to cubins for sm_90, without a GPU.

    python3 -m pip install triton==3.6.0
    python3 benches/peers/compile.py benches/peers/cubins

Writes one cubin per configuration and `index.tsv`: work, dtype, config, block, threads, shared bytes, symbol, file.
"""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    offsets = tl.program_id(0) * columns + column
    row = tl.load(x + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(row - tl.max(row, axis=0))
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_kernel(x, weight, bias, out, means, rstds, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    offsets = row * columns + column
    values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(mask, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    rstd = tl.rsqrt(variance + eps)
    scale = tl.load(weight + column, mask=mask).to(tl.float32)
    shift = tl.load(bias + column, mask=mask).to(tl.float32)
    tl.store(out + offsets, (centred * rstd * scale + shift).to(out.dtype.element_ty), mask=mask)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)


DTYPES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}


def signatures(dtype):
    p = "*" + DTYPES[dtype]
    return {
        "add": (add_kernel, {"x": p, "y": p, "out": p, "n": "i32"}),
        "softmax": (softmax_kernel, {"x": p, "out": p, "columns": "i32"}),
        "layer_norm": (
            layer_norm_kernel,
            {"x": p, "weight": p, "bias": p, "out": p, "means": "*fp32", "rstds": "*fp32", "columns": "i32", "eps": "fp32"},
        ),
    }


def configurations():
    for block in (512, 1024, 2048, 4096):
        for warps in (4, 8):
            yield "add", "f32", block, warps
    for work in ("softmax", "layer_norm"):
        for dtype in ("f32", "bf16"):
            for block in (1024, 4096, 8192, 16384):
                for warps in (4, 8, 16, 32):
                    if 2 <= block // (warps * 32) <= 64:
                        yield work, dtype, block, warps


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for work, dtype, block, warps in configurations():
        kernel, signature = signatures(dtype)[work]
        # Arguments divisible by 16, as the benchmark's are.
        attrs = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(signature.values()) if t.startswith("*") or t == "i32"}
        source = ASTSource(kernel, {**signature, "BLOCK": "constexpr"}, {"BLOCK": block}, attrs)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
        name = f"{work}_{dtype}_{block}_{warps}.cubin"
        (folder / name).write_bytes(compiled.asm["cubin"])
        meta = compiled.metadata
        rows.append([work, dtype, f"BLOCK={block} warps={warps}", block, meta.num_warps * 32, meta.shared, meta.name, name])
        print(name, f"shared={meta.shared}", flush=True)
    (folder / "index.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benches/peers/cubins"))
