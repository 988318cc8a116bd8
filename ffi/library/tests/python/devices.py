"""Tensors on several devices, and streams that end: rows of the check on a GPU."""

import ctypes
import threading

import torch

import tilewright_ops
import tilewright_ops.torch as ops

# CU_STREAM_NON_BLOCKING
NON_BLOCKING = 1
SECONDS = 30


def mixed():
    """Tensors on the CPU beside some on a GPU: the error names operator, argument and what is accepted."""
    gpu = f"cuda:{torch.cuda.current_device()}"
    x, y, weight = (torch.randn(shape, device=gpu) for shape in ((4, 8), (4, 8), (8,)))
    one, ids = torch.ones(1, device=gpu), torch.zeros(1, dtype=torch.int64, device=gpu)
    other = lambda op, name, first: f"{op}: `{name}` is on cpu; accepted: {gpu}, where `{first}` is"
    rows = []
    for name, call, wanted in (
        ("the second tensor", lambda: ops.add(x, y.cpu()), other("add", "y", "x")),
        ("the first tensor", lambda: ops.add(x.cpu(), y), f"add: `y` is on {gpu}; accepted: cpu, where `x` is"),
        ("a weight", lambda: ops.rms_norm(x, weight.cpu()), other("rms_norm", "weight", "x")),
        ("a weight, with a gradient", lambda: ops.rms_norm(x, weight.cpu().requires_grad_()), other("rms_norm", "weight", "x")),
        ("indices", lambda: ops.take(x.view(-1), ids.cpu()), other("take", "ids", "x")),
        ("what is written in place", lambda: ops.put_in_place(x.cpu().view(-1), ids, one), f"put_in_place: `ids` is on {gpu}; accepted: cpu, where `x` is"),
        ("an output", lambda: ops.softmax(x, out=x.cpu()), other("softmax", "y", "x")),
    ):
        try:
            call()
            text = "no error"
        except RuntimeError as error:
            text = str(error).replace("\n", " ")
        rows.append((f"torch, {name} on another device", text[:200], wanted in text))
    return rows


def check(code, what):
    assert code == 0, f"{what} gives {code}"


class Stream:
    """A stream of the driver, in PyTorch's context, which ends with the block."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.device = torch.cuda.current_device()
        self.stream, self.context = ctypes.c_void_p(), ctypes.c_void_p()

    def __enter__(self):
        torch.cuda.synchronize()
        check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), self.device), "cuDevicePrimaryCtxRetain")
        check(self.cuda.cuCtxPushCurrent_v2(self.context), "cuCtxPushCurrent")
        try:
            check(self.cuda.cuStreamCreate(ctypes.byref(self.stream), NON_BLOCKING), "cuStreamCreate")
        finally:
            self.cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        return torch.cuda.ExternalStream(self.stream.value)

    def __exit__(self, *_):
        check(self.cuda.cuStreamSynchronize(self.stream), "cuStreamSynchronize")
        check(self.cuda.cuStreamDestroy_v2(self.stream), "cuStreamDestroy")
        check(self.cuda.cuDevicePrimaryCtxRelease_v2(self.device), "cuDevicePrimaryCtxRelease")


def synchronized():
    """What comes of `synchronize`, which must not wait for what is gone."""
    told = []

    def wait():
        try:
            tilewright_ops.synchronize()
            told.append("it returns")
        except Exception as error:
            told.append(f"{type(error).__name__}: {str(error)[:150]}")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return told[0] if told else f"it HAS NOT RETURNED in {SECONDS} s"


def ended_streams():
    """Streams that others made, that ran operators, and that are gone. The driver may give another the same name."""
    x = torch.randn(64, 256, device="cuda")
    weight = torch.randn(256, device="cuda")
    expected = x.softmax(-1), ops.rms_norm_backward(x, x, weight, 1e-5)[0]
    results, told, names = [], [], set()
    for _ in range(4):
        y = torch.empty_like(x)
        with Stream() as stream:
            names.add(stream.cuda_stream)
            with torch.cuda.stream(stream):
                ops.softmax(x, out=y)
                # Memory of that stream, and scratch memory.
                made = ops.rms_norm_backward(x, x, weight, 1e-5)[0].clone()
            torch.cuda.synchronize()
        told.append(synchronized())
        # A call elsewhere, which looks for errors of earlier ones.
        results += [(y, expected[0]), (ops.softmax(x), expected[0]), (made, expected[1])]
    worst = max((found - wanted).abs().max().item() for found, wanted in results)
    is_right = all(text == "it returns" for text in told) and worst < 1e-5
    text = f"synchronize: {', '.join(sorted(set(told)))}; results within {worst:.1e}"
    rows = [(f"torch, 4 streams of the driver that are gone, {len(names)} names", text, is_right)]
    # An error on such a stream is that of its next call.
    told = "no error"
    with Stream() as stream, torch.cuda.stream(stream):
        ops.take(x.view(-1), torch.tensor([x.numel()], device="cuda"))
        torch.cuda.synchronize()
        try:
            ops.softmax(x)
        except RuntimeError as error:
            told = str(error).replace("\n", " ")
    after = synchronized()
    is_right = "elementwise.rs:" in told and after == "it returns"
    rows.append(("torch, an index outside on a stream of the driver", f"{told[:160]}; synchronize afterwards: {after}", is_right))
    return rows
