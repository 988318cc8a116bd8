"""What a call costs on the CPU side, for small tensors.

    cargo build --release -p tilewright-ffi -p tilewright-ffi-example
    target/release/tilewright-ffi package target/release/libtilewright_ffi_example.so /tmp/package
    LD_LIBRARY_PATH=.frameworks/cuda PYTHONPATH=/tmp/package .frameworks/venv/bin/python ffi/tests/python/timing.py

The operator does nothing, so what is timed is the call. Beside it, where g++ and ninja are there, are operators of
PyTorch's own C++ interface that do the same: one makes an output, one does not. Each number is the fastest of several
rounds, which alternate between the rows.
"""

import shutil
import time

import torch
from torch.utils import cpp_extension

import tw_example.torch as ops

ROUNDS, CALLS = 30, 5000

CPP = """
#include <torch/library.h>
#include <ATen/ATen.h>
at::Tensor make_output(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }
void write_output(const at::Tensor& x, at::Tensor y) {}
TORCH_LIBRARY(cpp_empty, m) { m.def("make(Tensor x) -> Tensor"); m.def("write(Tensor x, Tensor(a!) y) -> ()"); }
TORCH_LIBRARY_IMPL(cpp_empty, CPU, m) { m.impl("make", &make_output); m.impl("write", &write_output); }
TORCH_LIBRARY_IMPL(cpp_empty, CUDA, m) { m.impl("make", &make_output); m.impl("write", &write_output); }
"""


def rows():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = torch.zeros(4, device=device), torch.zeros(4, device=device)
    raw = torch.ops.tw_example
    # Bound here, so that no row pays for looking its operator up.
    made, given, made_raw, given_raw = ops.nothing, ops.nothing, raw.nothing.default, raw.nothing.out
    found = {
        "torch.empty_like": lambda: torch.empty_like(x),
        "package function": lambda: made(x),
        "package function, out given": lambda: given(x, out=y),
        "operator": lambda: made_raw(x),
        "operator, out given": lambda: given_raw(x, y=y),
    }
    if shutil.which("g++") and cpp_extension.is_ninja_available():
        cpp_extension.load_inline("cpp_empty", CPP, is_python_module=False)
        cpp_make, cpp_write = torch.ops.cpp_empty.make.default, torch.ops.cpp_empty.write.default
        found["C++ operator that makes an output"] = lambda: cpp_make(x)
        found["C++ operator that does nothing"] = lambda: cpp_write(x, y)
    try:
        import tvm_ffi
        from tw_example import _library

        nothing = tvm_ffi.load_module(_library.PATH).nothing
        found["TVM-FFI function"] = lambda: nothing(x, y)
    except ImportError:
        pass
    return found


def main():
    found = rows()
    best = dict.fromkeys(found, float("inf"))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            for _ in range(ROUNDS):
                for name, call in found.items():
                    start = time.perf_counter()
                    for _ in range(CALLS):
                        call()
                    best[name] = min(best[name], (time.perf_counter() - start) / CALLS * 1e6)
    for name, microseconds in best.items():
        print(f"{name:40} {microseconds:6.2f} us")


main()
