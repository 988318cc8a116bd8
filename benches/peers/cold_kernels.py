"""How long Triton compiles kernels limited by memory, from their source to a loaded function: a line of the kernel's name
and milliseconds per compilation, each with an empty cache. What a process does once is done before: imports, and
another kernel.

    python3 cold_kernels.py 5
"""

import os
import sys
import tempfile
import time

import kernels
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver

POINTERS = {"x", "y", "out", "weight", "bias", "means", "rstds"}


def compile_and_load(kernel, block, num_warps):
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    types = {name: "*fp32" if name in POINTERS else "i32" for name in kernel.arg_names}
    types |= {name: "fp32" for name in types if name == "eps"} | {"BLOCK": "constexpr"}
    facts = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(types.values()) if t == "i32" or t.startswith("*")}
    start = time.perf_counter()
    source = ASTSource(kernel, types, {"BLOCK": block}, facts)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})
    meta = compiled.metadata
    driver.active.utils.load_binary(meta.name, compiled.asm["cubin"], meta.shared, torch.cuda.current_device())
    return (time.perf_counter() - start) * 1e3


torch.zeros(1, device="cuda")
compile_and_load(kernels.add, 256, 4)
for _ in range(int(sys.argv[1])):
    for name, block, num_warps in (("add", 1024, 4), ("softmax", 4096, 8), ("layer_norm", 4096, 8)):
        print(name, compile_and_load(getattr(kernels, name), block, num_warps), flush=True)
