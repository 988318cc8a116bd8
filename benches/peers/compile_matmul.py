"""Compiles Triton's matrix products to cubins for sm_90, without a GPU.

    python3 -m pip install triton==3.6.0
    python3 benches/peers/compile_matmul.py benches/peers/cubins/matmul [FORM,FORM..]

Writes one cubin per configuration and `index.tsv`: form, dtype, class of shapes, config, threads, shared bytes, symbol,
file, descriptors, bytes of global scratch per program. A descriptor is `swizzle/element type/block`, the numbers that
Triton's launcher gives to `cuTensorMapEncodeTiled`.

Every size, stride and address is divisible by 16, and Triton is told so.
"""

import os
import sys
from multiprocessing import Pool
from pathlib import Path

import matmul
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST
from triton.compiler import ASTSource

# Dtypes of the operands and of the result, and whether b is contiguous along k.
DTYPES = {
    "f16": ("fp16", "fp16", False),
    "bf16": ("bf16", "bf16", False),
    "f8e4m3": ("fp8e4nv", "fp16", True),
    "f32": ("fp32", "fp32", True),
}
# Shared memory that a program can have on the H100, in bytes.
SHARED = 227 << 10

# BM, BN, BK, stages, warps.
LARGE = [
    (128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (256, 128, 64, 3, 8), (256, 128, 64, 4, 8), (128, 256, 32, 4, 8),
    (128, 128, 64, 3, 8), (128, 128, 64, 4, 8), (128, 128, 64, 4, 4), (128, 128, 64, 3, 4), (128, 128, 128, 3, 8),
    (128, 128, 32, 4, 4), (64, 256, 64, 4, 4), (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4), (64, 64, 64, 5, 4), (64, 64, 128, 4, 4),
]
FEW_ROWS = [
    (16, 32, 128, 5, 2), (16, 32, 128, 5, 4), (16, 32, 256, 4, 4), (16, 64, 64, 6, 4), (16, 64, 128, 4, 4),
    (16, 64, 128, 6, 4), (16, 64, 256, 4, 4), (16, 128, 64, 5, 4), (16, 128, 128, 4, 4), (16, 128, 128, 5, 8),
    (64, 32, 128, 5, 4), (64, 32, 256, 4, 4), (64, 64, 64, 6, 4), (64, 64, 128, 4, 4), (64, 64, 128, 5, 4),
    (64, 64, 256, 3, 4), (64, 128, 64, 5, 4), (64, 128, 128, 4, 4),
    (128, 32, 128, 5, 4), (128, 64, 64, 5, 4), (128, 64, 64, 6, 4), (128, 64, 128, 4, 4), (128, 64, 128, 4, 8),
    (128, 128, 64, 5, 8),
]
BYTES = [
    (128, 256, 128, 3, 8), (128, 256, 128, 4, 8), (256, 128, 128, 3, 8), (256, 128, 128, 4, 8), (128, 128, 128, 4, 8),
    (128, 128, 128, 4, 4), (128, 128, 256, 3, 8), (128, 256, 64, 4, 8), (64, 256, 128, 4, 4),
]
SINGLES = [
    (128, 256, 32, 3, 8), (128, 256, 32, 4, 8), (256, 128, 32, 3, 8), (256, 128, 32, 4, 8), (128, 128, 32, 4, 8),
    (128, 128, 32, 4, 4), (128, 128, 64, 3, 8), (64, 256, 32, 4, 4),
]
BATCHES = [(128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (128, 128, 64, 4, 8), (128, 128, 64, 4, 4), (64, 256, 64, 4, 4)]
TILES = {"f16": LARGE, "bf16": LARGE, "f8e4m3": BYTES, "f32": SINGLES}


def configurations():
    """Form, dtype, class of shapes, the tile with stages and warps, further constexprs."""
    for dtype, tiles in TILES.items():
        for tile in tiles:
            yield "pointer", dtype, "large", tile, {"BATCHED": False}
            yield "descriptor", dtype, "large", tile, {"BATCHED": False}
            for halves in (False, True):
                for flatten in (False, True):
                    yield "persistent", dtype, "large", tile, {"HALVES": halves, "FLATTEN": flatten}
            if tile[0] >= 128 and (tile[4] == 4 or tile[0] * tile[1] >= 128 * 256):
                # Triton splits the tile's rows between two groups of 4 warps itself.
                yield "specialized", dtype, "large", tile[:4] + (4,), {"HALVES": False}
    for tile in FEW_ROWS:
        yield "pointer", "bf16", "skinny", tile, {"BATCHED": False}
        yield "descriptor", "bf16", "skinny", tile, {"BATCHED": False}
    for tile in BATCHES:
        yield "pointer", "bf16", "batched", tile, {"BATCHED": True}
        yield "descriptor", "bf16", "batched", tile, {"BATCHED": True}


def signature(kernel, form, dtype, constants):
    operand, result, b_k_major = DTYPES[dtype]
    types = {name: "i32" for name in kernel.arg_names}
    types.update({name: "constexpr" for name in constants})
    if form in ("pointer", "specialized"):
        return types | {"a": f"*{operand}", "b": f"*{operand}", "c": f"*{result}"}
    m, n, k = (constants[name] for name in ("BM", "BN", "BK"))
    stored = n // 2 if constants.get("HALVES") else n
    b = (n, k) if b_k_major else (k, n)
    blocks = {"a": (operand, m, k), "b": (operand, *b), "c": (result, m, stored)}
    return types | {name: f"tensordesc<{t}[{x}, {y}]>" for name, (t, x, y) in blocks.items()}


def described(meta):
    """A descriptor's parameters for the host."""
    block = "x".join(str(n) for n in meta["block_size"])
    return f"{meta['swizzle']}/{TMA_DTYPE_DEVICE_TO_HOST[meta['elem_type']]}/{block}"


def compile_one(job):
    """A line of the index, or why there is none."""
    folder, (form, dtype, shapes, (m, n, k, stages, warps), more) = job
    kernel = getattr(matmul, form)
    constants = {"BM": m, "BN": n, "BK": k, "GROUP": 8, "B_K_MAJOR": DTYPES[dtype][2], **more}
    types = signature(kernel, form, dtype, constants)
    facts = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(types.values()) if t == "i32" or t.startswith("*")}
    flags = "".join(f" {name.lower()}" for name in ("HALVES", "FLATTEN") if more.get(name))
    config = f"BM={m} BN={n} BK={k} stages={stages} warps={warps}{flags}"
    options = {"num_warps": warps, "num_stages": stages}
    try:
        source = ASTSource(kernel, types, constants, facts)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    except Exception as error:  # What Triton cannot compile does not compete.
        return f"{form} {dtype} {shapes} {config}: {type(error).__name__} {str(error)[:100]}"
    meta = compiled.metadata
    if meta.shared > SHARED:
        return f"{form} {dtype} {shapes} {config}: {meta.shared} bytes of shared memory"
    if form == "specialized" and meta.num_warps == warps:
        return f"{form} {dtype} {shapes} {config}: not specialised"
    file = f"{form}_{dtype}_{shapes}_{m}_{n}_{k}_{stages}_{warps}{flags.replace(' ', '_')}.cubin"
    (folder / file).write_bytes(compiled.asm["cubin"])
    if "TRITON_PTX" in os.environ:
        (Path(os.environ["TRITON_PTX"]) / file.replace(".cubin", ".ptx")).write_text(compiled.asm["ptx"])
    descriptors = ";".join(described(d) for d in meta.tensordesc_meta)
    row = [form, dtype, shapes, config, meta.num_warps * 32, meta.shared, meta.name, file, descriptors]
    return row + [meta.global_scratch_size]


def main(folder, only):
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [(folder, c) for c in dict.fromkeys(map(freeze, configurations())) if not only or c[0] in only]
    jobs = [(folder, c[:4] + (dict(c[4]),)) for folder, c in jobs]
    rows = []
    with Pool(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        for done, row in enumerate(pool.imap(compile_one, jobs, chunksize=1), 1):
            if isinstance(row, str):
                print(row, flush=True)
            else:
                rows.append(row)
            if done % 50 == 0:
                print(f"{done} of {len(jobs)}", flush=True)
    index = folder / "index.tsv"
    if only and index.exists():
        kept = [line.split("\t") for line in index.read_text().splitlines()]
        rows = [row for row in kept if row[0] not in only] + rows
    index.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    wanted = {row[7] for row in rows}
    for stale in folder.glob("*.cubin"):
        if stale.name not in wanted:
            stale.unlink()


def freeze(configuration):
    return configuration[:4] + (tuple(configuration[4].items()),)


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["", ""]
    main(Path(arguments[0] or "benches/peers/cubins/matmul"), [f for f in arguments[1].split(",") if f])
