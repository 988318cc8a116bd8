"""What a launch costs under Triton: the host's time for a kernel of five arguments, as `launch.rs` measures ours.

    python3 benches/peers/launch.py [BATCH] [ROUNDS]

Prints a line for each way to launch: its name, and the median over the batches of the nanoseconds per launch.
"""

import statistics
import sys
import time

import torch
import triton
import triton.language as tl

N = 128
BATCH, ROUNDS = (int(value) for value in (sys.argv[1:3] or (400, 101)))


@triton.jit
def axpy(x, y, out, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask) * scale + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, value, mask=mask)


def measure(batch):
    batch()
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        batch()
        times.append((time.perf_counter_ns() - start) / BATCH)
        torch.cuda.synchronize()
    return statistics.median(times)


x, y = torch.full((N,), 1.0, device="cuda"), torch.full((N,), 2.0, device="cuda")
out = torch.zeros(N, device="cuda")


def launches():
    kernel = axpy[(1,)]
    for _ in range(BATCH):
        kernel(x, y, out, N, 3.0, BLOCK=N)


def launches_by_name():
    for _ in range(BATCH):
        axpy[(1,)](x, y, out, N, 3.0, BLOCK=N, num_warps=4)


launches()
torch.cuda.synchronize()
assert torch.equal(out, torch.full_like(out, 5.0)), "the kernel computes something else"
print(f"triton {triton.__version__},{measure(launches):.1f}")
print(f"triton {triton.__version__} kernel[grid](..) each time,{measure(launches_by_name):.1f}")
