"""How long Triton's autotuner takes for the space that `--search` of the bench `matmul` has, at one size.

    python3 autotune.py 4096 4096 4096 12      # rows, columns, the length of sums, configurations

It takes as long for each of its configurations, so that a sample, drawn by chance, says how long it takes for all. Prints the
seconds for the sample, for one configuration, and for all, and the best of the sample in milliseconds.
"""

import itertools
import os
import random
import sys
import tempfile
import time

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()

import matmul
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor


def blocks(args):
    bm, bn, bk = args["BM"], args["BN"], args["BK"]
    args["a"].block_shape, args["b"].block_shape, args["c"].block_shape = [bm, bk], [bk, bn], [bm, bn]


def space():
    axes = ([64, 128, 256], [64, 128, 256], [32, 64, 128], [1, 4, 8, 16], [4, 8], [2, 3, 4, 5, 6])
    for bm, bn, bk, group, warps, stages in itertools.product(*axes):
        if bm * bn <= 128 * 256:
            constants = {"BM": bm, "BN": bn, "BK": bk, "GROUP": group}
            yield triton.Config(constants, num_warps=warps, num_stages=stages, pre_hook=blocks)


m, n, k, count = map(int, sys.argv[1:])
everything = list(space())
sample = random.Random(1).sample(everything, count)
a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n)))
c = torch.empty((m, n), device="cuda", dtype=torch.float16)
x, y, z = (TensorDescriptor.from_tensor(t, [64, 64]) for t in (a, b, c))
tuned = triton.autotune(configs=sample, key=["m", "n", "k"])(matmul.persistent)
processors = torch.cuda.get_device_properties(0).multi_processor_count


def grid(meta):
    tiles = triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"])
    return (triton.cdiv(tiles, triton.cdiv(tiles, processors)),)


start = time.perf_counter()
tuned[grid](x, y, z, m, n, k, B_K_MAJOR=False, HALVES=False, FLATTEN=False)
torch.cuda.synchronize()
seconds = time.perf_counter() - start
times = [t[0] if isinstance(t, list) else t for t in tuned.configs_timings.values()]
print("sizes,configurations,seconds,seconds each,all configurations,seconds for all,best ms of the sample")
each = seconds / count
print(f"{m}x{n}x{k},{count},{seconds:.1f},{each:.2f},{len(everything)},{each * len(everything):.0f},{min(times):.4f}")
