"""How long Triton compiles the persistent product, from its source to a loaded function, in milliseconds: one line per
compilation, each with an empty cache. What a process does once is done before: imports, and another kernel.

    python3 cold_compile.py 5
"""

import os
import sys
import tempfile
import time

import matmul
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver

CONSTANTS = {
    "BM": 128, "BN": 256, "BK": 64, "GROUP": 8, "B_K_MAJOR": False, "HALVES": False, "FLATTEN": False,
}
BLOCKS = {"a": (128, 64), "b": (64, 256), "c": (128, 256)}


def compile_and_load(kernel, constants, types):
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    facts = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(types.values()) if t == "i32" or t.startswith("*")}
    start = time.perf_counter()
    source = ASTSource(kernel, types, constants, facts)
    options = {"num_warps": 8, "num_stages": 3}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    meta = compiled.metadata
    driver.active.utils.load_binary(meta.name, compiled.asm["cubin"], meta.shared, torch.cuda.current_device())
    return (time.perf_counter() - start) * 1e3


def types_of(kernel, constants, blocks):
    types = {name: "i32" for name in kernel.arg_names} | {name: "constexpr" for name in constants}
    return types | {name: f"tensordesc<fp16[{x}, {y}]>" for name, (x, y) in blocks.items()}


torch.zeros(1, device="cuda")
first = {name: CONSTANTS[name] for name in ("BM", "BN", "BK", "GROUP", "B_K_MAJOR")} | {"BATCHED": False}
compile_and_load(matmul.descriptor, first, types_of(matmul.descriptor, first, BLOCKS))
for _ in range(int(sys.argv[1])):
    print(compile_and_load(matmul.persistent, CONSTANTS, types_of(matmul.persistent, CONSTANTS, BLOCKS)), flush=True)
