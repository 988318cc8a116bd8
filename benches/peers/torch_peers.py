"""PyTorch's own kernels on the shapes of `bandwidth.rs`, measured as it measures: medians with the L2 cache flushed.

    python3 benches/peers/torch_peers.py pytorch.csv        # on the machine of the bench, right before or after it

Writes the same columns as the bench. Functions run as they are called (eager mode), so a chain of functions is as many
kernels; `gelu`, `softmax` and their kind are PyTorch's fused ones.
"""

import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F

ROUNDS = 15
FLUSH = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
ROWS = []


def measure(work, shape, dtype, bytes_moved, function):
    for _ in range(2):
        function()
    times = []
    for _ in range(ROUNDS):
        FLUSH.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    ms = statistics.median(times)
    ROWS.append(f"{work},{shape},{dtype},pytorch,eager,{ms:.5f},{bytes_moved / ms / 1e6:.1f},")


def normal(shape, dtype, start=0):
    """A tensor whose data begin `start` elements after an aligned address."""
    size = shape if isinstance(shape, int) else shape[0] * shape[1]
    return torch.randn(size + start, device="cuda").to(DTYPES[dtype])[start:].view(shape)


def vectors():
    n = 1 << 26
    works = {
        "cos_sin": (1, lambda x: torch.sin(torch.cos(x))),
        "gelu": (1, lambda x: F.gelu(x, approximate="tanh")),
        "swiglu": (2, lambda x, y: F.silu(x) * y),
        "dropout": (1, lambda x: F.dropout(x, 0.3)),
    }
    sizes = [(n, 0), (n - 13, 0), (n, 1)]
    cases = [(w, i, f, size, start, d) for w, (i, f) in works.items() for size, start in sizes for d in ("f32", "bf16")]
    add = [(1 << 28, 0), ((1 << 28) - 13, 0), (1 << 28, 1)]
    sweep = [(1 << e, 0) for e in (18, 20, 22, 24, 26)]
    cases += [("add", 2, torch.add, size, start, "f32") for size, start in sweep + add]
    cases += [("add", 2, torch.add, size, start, "bf16") for size, start in add]
    for work, inputs, function, size, start, dtype in cases:
        data = [normal(size, dtype, start) for _ in range(inputs)]
        shape = f"{size}+{start}" if start else str(size)
        measure(work, shape, dtype, (inputs + 1) * size * data[0].element_size(), lambda: function(*data))


def matrices(dtype, sweep=False):
    cases = [(4096, 1024, 0), (8192, 4096, 0), (8192, 8192, 0), (4096, 16384, 0)]
    if dtype != "f32":
        cases += [(16384, 1000, 0), (8192, 5000, 0)]
    cases += [(4096, 12289, 0), (4096, 50257, 0), (8192, 4096, 1)]
    return cases + [(4096, c, 0) for c in (256, 512, 2048, 4096, 8192)] if sweep else cases


def rows():
    for dtype in ("f32", "bf16"):
        for r, c, start in matrices(dtype, sweep=True):
            x = normal((r, c), dtype, start)
            w, b = normal(c, dtype), normal(c, dtype)
            shape = f"{r}x{c}+{start}" if start else f"{r}x{c}"
            size = x.numel() * x.element_size()
            measure("softmax", shape, dtype, 2 * size, lambda: torch.softmax(x, 1))
            if (r, c, start) not in matrices(dtype):
                continue
            measure("layer_norm", shape, dtype, 2 * size, lambda: torch.native_layer_norm(x, (c,), w, b, 1e-5))
            measure("rms_norm", shape, dtype, 2 * size, lambda: F.rms_norm(x, (c,), w, 1e-6))
            if c <= 16384:
                dy = normal((r, c), dtype, start)
                _, mean, rstd = torch.native_layer_norm(x, (c,), w, b, 1e-5)
                backward = torch.ops.aten.native_layer_norm_backward
                measure("layer_norm_backward", shape, dtype, 3 * size,
                        lambda: backward(dy, x, (c,), mean, rstd, w, b, [True, True, True]))
        for r, c in [(8192, 32000), (4096, 50257)]:
            x = normal((r, c), dtype)
            labels = torch.arange(r, device="cuda") * 7919 % c
            size = x.numel() * x.element_size()
            measure("cross_entropy", f"{r}x{c}", dtype, size, lambda: F.cross_entropy(x, labels, reduction="none"))
        for r, c, start in [(8192, 8192, 0), (65536, 1000, 0), (8192, 8192, 1)]:
            x = normal((r, c), dtype, start)
            shape = f"{r}x{c}+{start}" if start else f"{r}x{c}"
            size = x.numel() * x.element_size()
            measure("row_sum", shape, dtype, size, lambda: torch.sum(x, 1, dtype=torch.float32))
            measure("column_sum", shape, dtype, size, lambda: torch.sum(x, 0, dtype=torch.float32))
        for r, c, start in [(65536, 1024, 0), (65536, 1000, 0), (65536, 1024, 1)]:
            table = normal((50257, c), dtype, start)
            ids = (torch.arange(r, device="cuda") * 2654435761 % 50257).to(torch.int32)
            shape = f"{r}x{c}+{start}" if start else f"{r}x{c}"
            measure("gather", shape, dtype, 2 * r * c * table.element_size(), lambda: F.embedding(ids, table))
    for dtype in ("f32", "f16"):
        for r, c, start in [(8192, 8192, 0), (8192, 8200, 0), (8192, 8192, 1)]:
            x = normal((r, c), dtype, start)
            shape = f"{r}x{c}+{start}" if start else f"{r}x{c}"
            measure("transpose", shape, dtype, 2 * x.numel() * x.element_size(), lambda: x.t().contiguous())


def machine():
    query = "name,driver_version,clocks.sm,clocks.mem,clocks_event_reasons.active,temperature.gpu,power.draw"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main(path):
    before = machine()
    with torch.no_grad():
        vectors()
        rows()
    header = "work,shape,dtype,contender,config,ms,GB/s,rate relative to the row's first"
    note = f"# before: {before}; after: {machine()}; PyTorch {torch.__version__}"
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([note, header, *ROWS]) + "\n")
    print(f"{len(ROWS)} rows of PyTorch")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "pytorch.csv")
