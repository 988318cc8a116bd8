"""PyTorch's functions on the shapes of `library.rs`, measured as it measures: medians with the L2 cache flushed.

    python3 benches/peers/family_peers.py benches/results/kernels_peers.csv [WORK,WORK..]   # right after the bench

Writes the same columns as the bench. Convolutions are cuDNN's, chosen by its own benchmark, with channels last; attention
and experts have no function to compare with. `--check` runs everything once at small sizes, on the CPU too.
"""

import statistics
import sys

import torch
import torch.nn.functional as F

CHECK = "--check" in sys.argv
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDS = 1 if CHECK else 11
FLUSH = torch.empty(0 if CHECK else 256 << 20, dtype=torch.uint8, device=DEVICE)
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32"}
COLUMNS = ("work,shape,dtype,contender,config,ms,bytes,flops,GB/s,TFLOP/s,rate relative to the row's first,device,note")
ROWS = []


def name():
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"


def timed(function):
    times = []
    for round in range(ROUNDS + 2):
        FLUSH.zero_()
        if DEVICE != "cuda":
            function()
            times.append(1.0)
            continue
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        end.synchronize()
        if round >= 2:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def measure(work, shape, dtype, bytes_moved, function, flops=0, contender="pytorch"):
    note, ms = "", float("nan")
    try:
        ms = timed(function)
    except RuntimeError as error:
        note = str(error)[:200].replace(",", ";").replace("\n", " ")
    rates = f"{bytes_moved / ms / 1e6:.1f},{flops / ms / 1e9:.2f}"
    config = f"{torch.__version__} eager"
    row = f"{work},{shape},{NAMES[dtype]},{contender},{config},{ms:.5f},{bytes_moved},{flops},{rates},NaN,{name()},{note}"
    ROWS.append(row)
    print(row, flush=True)


def either(full, small):
    return small if CHECK else full


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def copy():
    x = normal(either(1 << 28, 1 << 12), dtype=torch.float32)
    out = torch.empty_like(x)
    measure("copy", x.numel(), x.dtype, 8 * x.numel(), lambda: out.copy_(x), contender="pytorch copy")


def conv2d():
    images, side, channels = either((32, 56, 64), (1, 6, 16))
    dtype = torch.float16
    x = normal(images, channels, side, side, dtype=dtype).to(memory_format=torch.channels_last)
    filters = (normal(channels, channels, 3, 3, dtype=dtype) / 24).to(memory_format=torch.channels_last)
    dy = torch.randn_like(x)
    shape = f"{images}x{side}x{side}x{channels} 3x3"
    size = 2 * (2 * x.numel() + filters.numel())
    flops = 2 * images * side * side * filters.numel()
    measure("conv2d", shape, dtype, size, lambda: F.conv2d(x, filters, padding=1), flops, "cudnn")

    def back(which):
        mask = [which == "input", which == "weight", False]
        torch.ops.aten.convolution_backward(dy, x, filters, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)

    for which in ("input", "weight"):
        measure(f"conv2d_backward_{which}", shape, dtype, size, lambda: back(which), flops, "cudnn")


def operators():
    single = torch.float32
    for rows, columns in either([(16384, 4096), (64, 1 << 20)], [(3, 100)]):
        x = normal(rows, columns, dtype=single)
        measure("sort", f"{rows}x{columns}", single, 12 * x.numel(), lambda: torch.sort(x, 1))
    for rows, columns in either([(16384, 4096), (256, 131072)], [(3, 100)]):
        x = normal(rows, columns, dtype=single)
        size = 4 * x.numel() + 8 * rows * 64
        measure("topk", f"{rows}x{columns}", single, size, lambda: torch.topk(x, 64, 1))
    rows, columns = either((256, 128256), (3, 200))
    x = normal(rows, columns, dtype=single)

    def draw():
        return torch.multinomial(torch.softmax(x, 1), 1)

    def draw_of_likeliest():
        values, places = torch.topk(x, 50, 1)
        p = torch.softmax(values, 1)
        p = torch.where(torch.cumsum(p, 1) - p < 0.9, p, 0.0)
        return torch.gather(places, 1, torch.multinomial(p, 1))

    measure("sample", f"{rows}x{columns}", single, 4 * x.numel(), draw)
    measure("sample_top_k", f"{rows}x{columns}", single, 4 * x.numel(), draw_of_likeliest)
    size = either(1 << 26, 1 << 13)
    for bins in either([256, 4096, 65536], [256]):
        values = torch.randint(0, bins, (size,), device=DEVICE, dtype=torch.int32)
        measure("bincount", f"{size} in {bins}", values.dtype, 4 * size, lambda: torch.bincount(values, minlength=bins))
    x = torch.rand(size, device=DEVICE)
    measure("histogram", f"{size} in 256", single, 4 * size, lambda: torch.histc(x, 256, 0.0, 1.0))
    rows, columns = either((8192, 8192), (6, 100))
    x = normal(rows, columns, dtype=single)
    measure("argmax_rows", f"{rows}x{columns}", single, 4 * x.numel(), lambda: torch.max(x, 1))
    measure("argmax_columns", f"{rows}x{columns}", single, 4 * x.numel(), lambda: torch.max(x, 0))


def rows():
    dtype = torch.bfloat16
    samples, channels, inner = either((128, 512, 512), (2, 8, 40))
    groups = either(32, 2)
    x, dy = normal(samples, channels, inner), normal(samples, channels, inner)
    w, b = normal(channels), normal(channels)
    shape, size = f"{samples}x{channels}x{inner}", x.numel() * 2
    measure("group_norm", shape, dtype, 2 * size, lambda: F.group_norm(x, groups, w, b, 1e-6))
    _, mean, rstd = torch.ops.aten.native_group_norm(x, w, b, samples, channels, inner, groups, 1e-6)
    backward = torch.ops.aten.native_group_norm_backward
    measure("group_norm_backward", shape, dtype, 3 * size,
            lambda: backward(dy, x, mean, rstd, w, samples, channels, inner, groups, [True, True, True]))
    count, hidden, classes = either((4096, 4096, 32000), (6, 32, 80))
    x = normal(count, hidden).requires_grad_()
    weight = (normal(classes, hidden) / hidden**0.5).requires_grad_()
    labels = torch.arange(count, device=DEVICE) * 7919 % classes

    def with_gradients():
        loss = F.cross_entropy(F.linear(x, weight).float(), labels, reduction="sum")
        torch.autograd.grad(loss, (x, weight))

    size = 2 * (2 * count * hidden + classes * hidden) + 4 * classes * hidden
    flops = 6 * count * hidden * classes
    measure("linear_cross_entropy", f"{count}x{hidden}x{classes}", dtype, size, with_gradients, flops)


def main(path, only):
    torch.backends.cudnn.benchmark = True
    for work in (copy, conv2d, operators, rows):
        if not only or work.__name__ in only:
            try:
                work()
            except RuntimeError as error:  # What one work lacks costs the others nothing.
                print(f"FAILED {work.__name__}: {error}", flush=True)
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            # After each work, so that a run that is cut short leaves what it has.
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join([f"# PyTorch {torch.__version__}", COLUMNS, *ROWS]) + "\n")
    print(f"{len(ROWS)} rows of PyTorch")


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    main(arguments[0] if arguments else "kernels_peers.csv", arguments[1].split(",") if len(arguments) > 1 else [])
