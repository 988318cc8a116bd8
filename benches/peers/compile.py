"""Compiles Triton's kernels to cubins for sm_90, without a GPU.

    python3 -m pip install triton==3.6.0
    python3 benches/peers/compile.py benches/peers/cubins [WORK,WORK..]

Writes one cubin per configuration and `index.tsv`: work, dtype, variant, config, threads, shared bytes, symbol, file.
`TRITON_PTX=DIR` keeps the PTX too.

The variants are what Triton's own launcher would specialise for: arguments that are divisible by 16 or not.
"""

import os
import sys
from multiprocessing import Pool
from pathlib import Path

import kernels
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

DTYPES = {"f32": "*fp32", "f16": "*fp16", "bf16": "*bf16"}
# Parameters that are pointers to the data's dtype, to f32, to i32; sizes, of which some follow the variant.
DATA = {"x", "y", "out", "gate", "up", "weight", "bias", "dy", "dx", "table", "weight_gradient", "bias_gradient"}
FLOATS = {"means", "rstds", "losses", "partial_weights", "partial_biases"}
INTEGERS = {"labels", "ids", "locks"}
SIZES = {"n", "k", "columns", "rows", "parts", "share", "seed"}
# Pointers to bytes.
BYTES = {"a", "a_scale", "b", "b_scale"}
# Divisible by 16 in no variant.
ODD = {"seed", "parts"}
# Not off by one where the data are: buffers of the bench's own.
ALIGNED = {"labels", "ids", "locks", "losses", "partial_weights", "partial_biases"}
# Divisible by 16 where columns are not.
ROUND = {"rows", "share"}


def parameters(kernel, work, dtype):
    """The types of a kernel's parameters."""
    types = {}
    for name in kernel.arg_names:
        if name.isupper():
            types[name] = "constexpr"
        elif name in DATA:
            sums = work in ("row_sum", "row_sum_tiles", "column_sum") and name == "out"
            types[name] = "*fp32" if sums else DTYPES[dtype]
        elif name in FLOATS:
            types[name] = "*fp32"
        elif name in INTEGERS:
            types[name] = "*i32"
        elif name in BYTES:
            types[name] = "*u8"
        else:
            types[name] = "i32" if name in SIZES else "fp32"
    return types


def divisible(name, kind, variant, work):
    """Whether an argument is divisible by 16."""
    if kind.startswith("*"):
        return variant != "offset" or name in ALIGNED or (name in ("means", "rstds") and work != "layer_norm")
    return kind == "i32" and name not in ODD and (variant != "ragged" or name in ROUND)


def warps_for(block, most=64):
    return [w for w in (1, 2, 4, 8, 16, 32) if 4 <= block // (w * 32) <= most and (w >= 4 or block < 1024)]


ELEMENTWISE = [(512, 4), (512, 8), (1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 8)]
PIECES = [(2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32)]
FLOATS_AND_HALVES = ("f32", "bf16")
# Variant and block of the rows that the bench has, per dtype.
ROWS = {
    "f32": [("aligned", 1024), ("aligned", 4096), ("aligned", 8192), ("aligned", 16384), ("ragged", 16384),
            ("ragged", 65536), ("offset", 4096)],
    "bf16": [("aligned", 1024), ("aligned", 4096), ("aligned", 8192), ("aligned", 16384), ("ragged", 1024),
             ("ragged", 8192), ("ragged", 16384), ("ragged", 65536), ("offset", 4096)],
}


def configurations():
    """work, kernel, dtype, variant, prefix of the configuration's name, constexprs, warps."""
    for work in ("add", "cos_sin", "gelu", "swiglu", "dropout"):
        methods = [(work, "")] if work != "gelu" else [("gelu", "tanh "), ("gelu_sigmoid", "sigmoid ")]
        for kernel, prefix in methods:
            for dtype in FLOATS_AND_HALVES:
                for variant in ("aligned", "ragged", "offset"):
                    for block, warps in ELEMENTWISE:
                        yield work, kernel, dtype, variant, prefix, {"BLOCK": block}, warps
    for work in ("softmax", "layer_norm", "rms_norm", "layer_norm_backward"):
        for dtype in FLOATS_AND_HALVES:
            sweep = [("aligned", 256), ("aligned", 512), ("aligned", 2048)] if work == "softmax" else []
            for variant, block in ROWS[dtype] + sweep:
                backward = work == "layer_norm_backward"
                if backward and block > 16384:
                    continue
                for warps in warps_for(block):
                    yield work, work, dtype, variant, "", {"BLOCK": block}, warps
                if backward:
                    groups = 256 if block <= 1024 else 128 if block <= 4096 else 96 if block <= 8192 else 64
                    constants = {"GROUPS": groups, "BLOCK": block}
                    warps = min(max(block // 256, 1), 8)
                    yield work + "_locks", work + "_locks", dtype, variant, "", constants, warps
            for variant in ("aligned", "ragged"):
                if work == "layer_norm_backward":
                    continue
                for block, warps in PIECES:
                    name = "online" if work == "softmax" else "passes"
                    yield work, f"{work}_{name}", dtype, variant, name + " ", {"BLOCK": block}, warps
    for dtype in FLOATS_AND_HALVES:
        for variant in ("aligned", "ragged", "offset"):
            yield "layer_norm_finish", "layer_norm_finish", dtype, variant, "", {"M": 32, "N": 32}, 4
        for variant, block in [("aligned", 32768), ("ragged", 65536)]:
            for warps in warps_for(block):
                yield "cross_entropy", "cross_entropy", dtype, variant, "", {"BLOCK": block}, warps
            for block, warps in [(1024, 4)] + PIECES:
                yield "cross_entropy", "cross_entropy_online", dtype, variant, "online ", {"BLOCK": block}, warps
        for variant, block in [("aligned", 8192), ("ragged", 1024), ("offset", 8192)]:
            for warps in warps_for(block):
                yield "row_sum", "row_sum", dtype, variant, "", {"BLOCK": block}, warps
            for m, n, warps in [(4, 1024, 4), (1, 4096, 4), (4, 2048, 8)]:
                yield "row_sum_tiles", "row_sum_tiles", dtype, variant, "tiles ", {"M": m, "N": n}, warps
            tiles = [(16, 128, 4), (32, 128, 8), (16, 256, 8), (32, 64, 4), (8, 512, 4)]
            for m, n, warps in tiles + ([(16, 64, 4)] if dtype == "f32" else []):
                yield "column_sum", "column_sum", dtype, variant, "", {"M": m, "N": n}, warps
        for variant in ("aligned", "ragged", "offset"):
            for warps in (4, 8):
                yield "gather", "gather", dtype, variant, "", {"BLOCK": 1024}, warps
            for m, warps in [(2, 4), (4, 8), (8, 8)]:
                yield "gather_tiles", "gather_tiles", dtype, variant, "tiles ", {"M": m, "BLOCK": 1024}, warps
    for dtype in ("f32", "f16"):
        for variant in ("aligned", "ragged", "offset"):
            for m, n, warps in [(32, 32, 4), (64, 32, 4), (32, 64, 4), (64, 64, 4), (64, 64, 8), (128, 64, 8), (64, 128, 8)]:
                yield "transpose", "transpose", dtype, variant, "", {"M": m, "N": n}, warps
    for work, constants in [("sort", {}), ("topk", {"K": 64}), ("cumsum", {}), ("gather_tile", {})]:
        kernel = {"gather_tile": "gather_rows"}.get(work, work + "_rows")
        for warps in warps_for(4096):
            yield work, kernel, "f32", "aligned", "", {"BLOCK": 4096} | constants, warps
    for block, warps in [(1024, 4), (2048, 4), (4096, 4), (2048, 8), (4096, 8), (8192, 8)]:
        yield "histogram", "histogram_parts", "f32", "aligned", "", {"BLOCK": block, "BINS": 256}, warps
    for block, warps in [(512, 4), (1024, 4), (1024, 8), (2048, 4), (2048, 8)]:
        yield "rand", "uniform", "f32", "aligned", "", {"BLOCK": block}, warps
    for m, n, k, warps in [(64, 64, 64, 4), (128, 64, 64, 4), (128, 128, 64, 4), (128, 128, 64, 8), (128, 128, 128, 8), (128, 256, 64, 8)]:
        for work in ("scaled_e4m3", "scaled_e2m1"):
            yield work, work, "f32", "aligned", "", {"M": m, "N": n, "K": k}, warps


def compile_one(job):
    folder, (work, name, dtype, variant, prefix, constants, warps) = job
    kernel = getattr(kernels, name)
    types = parameters(kernel, work, dtype)
    facts = {(i,): [["tt.divisibility", 16]] for i, (n, t) in enumerate(types.items()) if divisible(n, t, variant, work)}
    source = ASTSource(kernel, types, constants, facts)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    values = "_".join(str(v) for v in constants.values())
    file = f"{name}_{dtype}_{variant}_{values}_{warps}.cubin"
    (folder / file).write_bytes(compiled.asm["cubin"])
    if "TRITON_PTX" in os.environ:
        (Path(os.environ["TRITON_PTX"]) / file.replace(".cubin", ".ptx")).write_text(compiled.asm["ptx"])
    config = prefix + " ".join(f"{k}={v}" for k, v in constants.items()) + f" warps={warps}"
    meta = compiled.metadata
    return [work, dtype, variant, config, meta.num_warps * 32, meta.shared, meta.name, file]


def main(folder, only):
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [(folder, c) for c in configurations() if not only or c[0] in only]
    rows = []
    with Pool(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        for row in pool.imap(compile_one, jobs, chunksize=4):
            rows.append(row)
            if len(rows) % 50 == 0:
                print(f"{len(rows)} of {len(jobs)}", flush=True)
    index = folder / "index.tsv"
    if only and index.exists():
        kept = [line.split("\t") for line in index.read_text().splitlines()]
        rows = [row for row in kept if row[0] not in only] + rows
    index.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    wanted = {row[-1] for row in rows}
    for stale in folder.glob("*.cubin"):
        if stale.name not in wanted:
            stale.unlink()


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["", ""]
    main(Path(arguments[0] or "benches/peers/cubins"), [w for w in arguments[1].split(",") if w])
