"""The operators through TVM-FFI on tensors of PyTorch: shared by the tests on the CPU and the check on a GPU.

Each function gives rows: what was done, what came of it, and whether that is right.
"""

import torch

import tilewright_ops
import tilewright_ops.torch as theirs
import tilewright_ops.tvm_ffi as ops


def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    return "no error"


def randn(*shape, device, dtype=torch.float32):
    return torch.randn(shape, device=device).to(dtype)


def equal(found, expected):
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    return all((one is None and other is None) or torch.equal(one, other) for one, other in pairs)


def results(device):
    """Results are those of PyTorch's door, which runs the same kernels."""
    rows = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        made = lambda *shape: randn(*shape, device=device, dtype=dtype)
        x, y, weight, qkv = made(37, 200), made(37, 200), made(200), made(2, 70, 3, 2, 64)
        classes = torch.arange(37, device=device) * 5
        q, k, v = qkv.unbind(2)
        calls = {
            "softmax": (x,),
            "rms_norm": (x, weight),
            "swiglu": (x, y),
            "cross_entropy": (x, classes),
            "flash_attention": (q, k, v, True),
            # These take scratch memory.
            "rms_norm_backward": (y, x, weight, 1e-5),
            "embedding_backward": (x, made(50, 200), classes % 50),
        }
        wrong = [name for name, given in calls.items() if not equal(getattr(ops, name)(*given), getattr(theirs, name)(*given))]
        rows.append((f"TVM-FFI, {len(calls)} operators, {dtype}", f"NOT AS PyTorch's: {wrong}" if wrong else "as PyTorch's", not wrong))
    x, wide = randn(6, 8, device=device), torch.zeros(6, 16, device=device)
    y = torch.empty_like(x)
    is_right = ops.softmax(x, out=y) is y and equal(y, theirs.softmax(x))
    ops.softmax(x, out=wide[:, :8])
    is_right = is_right and equal(wide[:, :8], y) and not wide[:, 8:].any().item()
    ops.put_in_place(x.view(-1), torch.tensor([3], device=device), torch.tensor([9.0], device=device))
    is_right = is_right and x[0, 3].item() == 9
    rows.append(("TVM-FFI, outputs that are given, and tensors in place", "written" if is_right else "WRONG", is_right))
    return rows


def errors(device):
    """Errors name what is wrong and what is accepted; those of kernels name the line."""
    x, rows = randn(8, device=device), []

    def check(name, call, *texts):
        text = raised(call)
        rows.append((f"TVM-FFI, {name}", text[:160], all(one in text for one in texts)))

    accepted = "ValueError: softmax: `x` has dtype i32; accepted: f32, f16, bf16, f64"
    check("another dtype", lambda: ops.softmax(x.int()), accepted)

    def outside():
        ops.take(x, torch.tensor([1, 8], device=device))
        tilewright_ops.synchronize()

    check("an index outside", outside, "RuntimeError", "elementwise.rs:", "kernel `taken` loads element 8 of `x`, which has 8 elements")
    is_right = equal(ops.take(x, torch.tensor([7, 0], device=device)), x[[7, 0]])
    tilewright_ops.synchronize()
    rows.append(("TVM-FFI, after it", "the context is alive" if is_right else "results are wrong", is_right))
    if device != "cpu":
        index = torch.device(device).index or 0
        check("a tensor on the CPU beside one on a GPU", lambda: ops.add(x, x.cpu()), f"ValueError: add: `y` is on cpu; accepted: cuda:{index}, where `x` is")
    return rows


def late(x, cycles=50_000_000):
    """Writes ones into a tensor of zeros on the current stream, after tens of milliseconds: who reads on another stream sees zeros."""
    torch.cuda._sleep(cycles)
    x.fill_(1)


def streams(device):
    """Calls go to PyTorch's current stream, or to the one that TVM-FFI is told."""
    import tvm_ffi

    rows, side = [], torch.cuda.Stream(device)
    zeros = lambda: [torch.zeros(1000, device=device) for _ in range(2)]
    x, y = zeros()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        late(x)
        ops.add(x, x, out=y)
    side.synchronize()
    is_right = (y == 2).all().item()
    rows.append(("TVM-FFI, a side stream of PyTorch", "in order" if is_right else "results are wrong", is_right))
    x, y = zeros()
    torch.cuda.synchronize()
    # Tensors of TVM-FFI itself know nothing of PyTorch's current stream.
    given, out = tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y)
    with torch.cuda.stream(side):
        late(x)
    with tvm_ffi.use_raw_stream(tvm_ffi.device(str(x.device)), side.cuda_stream):
        ops.add(given, given, out=out)
    side.synchronize()
    is_right = (y == 2).all().item()
    rows.append(("TVM-FFI, a stream that it is told", "in order" if is_right else "results are wrong", is_right))
    # Nobody waits for side streams: the next call on one tells.
    with torch.cuda.stream(side):
        ops.take(x, torch.tensor([1000], device=device))
        side.synchronize()
        text = raised(lambda: ops.softmax(x))
    is_right = "elementwise.rs:" in text and "element 1000 of `x`, which has 1000 elements" in text
    rows.append(("TVM-FFI, an index outside on a side stream", text[:160], is_right))
    return rows


def scratch(device):
    """Scratch memory is of PyTorch's allocator."""
    x, weight = randn(512, 256, device=device), randn(256, device=device)
    out = torch.empty_like(x), torch.empty_like(weight)
    expected = theirs.rms_norm_backward(x, x, weight, 1e-5)
    count = lambda: torch.cuda.memory_stats(device)["allocation.all.allocated"]
    before = count()
    ops.rms_norm_backward(x, x, weight, 1e-5, out=out)
    taken = count() - before
    result = f"{taken} allocations of PyTorch's beside the outputs" + ("" if equal(out, expected) else ", and results are WRONG")
    return [("TVM-FFI, scratch memory", result, taken > 0 and equal(out, expected))]


def in_cupy():
    """Arrays of CuPy, where it is installed."""
    try:
        import cupy
    except ImportError:
        return [("TVM-FFI, CuPy", "it is not installed, and so not checked", True)]
    x = cupy.random.standard_normal((37, 200), dtype=cupy.float32)
    y = cupy.empty_like(x)
    ops.softmax(x, out=y)
    wanted = cupy.exp(x - x.max(-1, keepdims=True))
    wanted /= wanted.sum(-1, keepdims=True)
    worst = float(cupy.abs(y - wanted).max())
    return [("TVM-FFI, arrays of CuPy", f"within {worst:.1e} of CuPy", worst < 1e-6)]


def on_gpu(device):
    for part in (results, errors, streams, scratch):
        yield from part(device)
    yield from in_cupy()
