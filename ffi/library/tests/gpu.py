"""The library's operators on an NVIDIA GPU, in PyTorch and JAX.

    python3 gpu.py FOLDER [--without jax cpp ..]

FOLDER has the package `tilewright_ops` in it. It prints what it does, and in the end a table; the exit code is 0 if all is
right.
"""

import argparse
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
START = time.perf_counter()
ROWS = []


def say(text):
    print(f"[{time.perf_counter() - START:6.1f} s] {text}", flush=True)


def row(name, result, is_right=True):
    ROWS.append((name, result, is_right))
    say(f"{'ok' if is_right else 'WRONG'}: {name}: {result}")


def section(function):
    """Runs a part of the check; what it raises is a row of the table."""
    say(function.__doc__)
    try:
        function()
    except Exception as error:
        import traceback

        traceback.print_exc()
        row(function.__name__, f"{type(error).__name__}: {str(error)[:300]}", False)


def results():
    """Every operator beside PyTorch, on a stream of each thread."""
    import torch

    import cases

    # Short and odd rows, none, and some that are more than one block.
    sizes = {torch.float32: ((3, 7, 33), (0, 8)), torch.float16: ((5, 1000),), torch.bfloat16: ((2, 129, 256), (4, 5120), (1, 1))}
    work = [(case, dtype, size) for case in cases.CASES for dtype in case.dtypes for size in sizes[dtype]]
    local = threading.local()

    def check(item):
        case, dtype, size = item
        if not hasattr(local, "stream"):
            local.stream = torch.cuda.Stream()
        generator = torch.Generator(device="cuda").manual_seed(zlib.crc32(f"{case.name} {size}".encode()) % 1000)
        with torch.cuda.stream(local.stream):
            randn = lambda *shape: torch.randn(shape, device="cuda", generator=generator).to(dtype)
            try:
                wrong = cases.compare(case, case.inputs(randn, size), dtype, with_gradients=size != (1, 1))
            except Exception as error:
                wrong = f"{type(error).__name__}: {str(error)[:300]}"
            local.stream.synchronize()
        return case.name, dtype, size, wrong

    with ThreadPoolExecutor(12) as pool:
        found = []
        for result in pool.map(check, work):
            found.append(result)
            if len(found) % 20 == 0:
                say(f"{len(found)} of {len(work)}")
    for name, group in itertools.groupby(found, key=lambda result: result[0]):
        group = list(group)
        wrong = [f"{dtype}, {size}: {text}" for _, dtype, size, text in group if text]
        row(name, "; ".join(wrong)[:400] if wrong else f"{len(group)} times as PyTorch, with gradients", not wrong)


def step(x, weight, cos, sin, labels):
    """A loss and its gradients through most operators."""
    import torch

    import tilewright_ops.torch as ops

    h = ops.rms_norm(x, weight).unflatten(-1, (4, 64))
    q = ops.rotary(h, cos, sin)
    y, _ = ops.flash_attention(q, q, h, causal=True)
    h, x = ops.add_rms_norm(y.flatten(-2), x, weight)
    h = ops.swiglu(h, x) + ops.softmax(x) + ops.layer_norm(h, weight)
    loss = ops.cross_entropy(h.flatten(0, 1), labels)
    return loss, *torch.autograd.grad(loss, weight)


def graphs():
    """CUDA graphs: a forward and a backward pass, replayed a thousand times with changed inputs."""
    import torch

    import cases

    randn = lambda *shape: torch.randn(shape, device="cuda")
    x, weight = randn(2, 128, 256).bfloat16(), randn(256).bfloat16().requires_grad_()
    cos, sin = cases.tables(randn, 128, 32)
    labels = torch.arange(256, device="cuda")
    inputs = (x, weight, cos, sin, labels)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*inputs)
    worst, compared = 0.0, 0
    for at in range(1000):
        x.copy_(torch.randn_like(x))
        labels.copy_(labels.roll(1))
        graph.replay()
        if at % 50 == 0:
            for one, other in zip(captured, step(*inputs)):
                # Gradients of queries are added up in an order that may change.
                worst = max(worst, ((one - other).abs().max() / other.abs().max()).item())
                compared += 1
    torch.cuda.synchronize()
    row("torch.cuda.graph, 1000 replays", f"{compared} results within {worst:.1e} of the call", worst < 2e-2)
    graph_errors()


def graph_errors():
    """Errors of replays, which run on another stream than was captured."""
    import torch

    import tilewright_ops
    import tilewright_ops.torch as ops

    x, ids = torch.randn(8, device="cuda"), torch.tensor([3], device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        taken = ops.take(x, ids)
    told = []
    for ask in (lambda: ops.softmax(x), tilewright_ops.synchronize):
        ids.fill_(8)
        graph.replay()
        # An operator finds what is over, `synchronize` waits itself.
        if not told:
            torch.cuda.synchronize()
        try:
            ask()
            told.append("nothing")
        except RuntimeError as error:
            told.append(str(error))
    ids.fill_(5)
    graph.replay()
    tilewright_ops.synchronize()
    is_right = all("of `x`, which has 8 elements" in text for text in told) and taken.item() == x[5].item()
    row("torch.cuda.graph, an index outside in a replay", "; ".join(text[:60] for text in told), is_right)


def compiled():
    """torch.compile, with gradients."""
    import torch

    import cases
    import tilewright_ops.torch as ops

    def loss(x, weight, cos, sin, labels):
        h = ops.rms_norm(x * 2, weight).unflatten(-1, (4, 64))
        y, _ = ops.flash_attention(ops.rotary(h, cos, sin), h, x.unflatten(-1, (4, 64)), causal=True)
        h, x = ops.add_rms_norm(y.flatten(-2), x, weight)
        return ops.cross_entropy(ops.swiglu(h, x).relu().flatten(0, 1), labels)

    randn = lambda *shape: torch.randn(shape, device="cuda")
    x, weight = randn(2, 128, 256).bfloat16().requires_grad_(), randn(256).bfloat16().requires_grad_()
    given = (x, weight, *cases.tables(randn, 128, 32), torch.arange(256, device="cuda"))
    outcomes = []
    for function in (torch.compile(loss, fullgraph=True), loss):
        result = function(*given)
        outcomes.append((result, *torch.autograd.grad(result, (x, weight))))
    worst = max(((one - other).abs().max() / other.abs().max()).item() for one, other in zip(*outcomes))
    row("torch.compile(fullgraph=True)", f"within {worst:.1e} of the call", worst < 2e-2)


def rows_of(part):
    """Puts what another file gives into the table."""
    for one in part:
        row(*one)


def outside():
    """Indices outside a tensor that is read or written: an exception with the line, no write, and the context lives."""
    import torch

    import outside as writes
    import tilewright_ops
    import tilewright_ops.torch as ops

    x = torch.randn(1000, device="cuda")
    for index in (1000, -1, 1 << 40):
        text = "no error"
        try:
            ops.take(x, torch.tensor([1, index, 2], device="cuda"))
            torch.cuda.synchronize()
            tilewright_ops.synchronize()
        except RuntimeError as error:
            text = str(error)
        right = "elementwise.rs:" in text
        row(f"torch, index {index} of 1000", text.replace("\n", " ")[:160], right)
    text = "no error"
    try:
        ops.take(x, torch.tensor([5000], device="cuda"))
        torch.cuda.synchronize()
        ops.softmax(x)
    except RuntimeError as error:
        text = str(error)
    row("torch, at the next call", text.replace("\n", " ")[:160], "elementwise.rs:" in text)
    ids = torch.arange(999, -1, -1, device="cuda")
    alive = torch.equal(ops.take(x, ids), x[ids])
    tilewright_ops.synchronize()
    row("torch, afterwards", "the context is alive" if alive else "results are wrong", alive)
    rows_of(writes.in_torch("cuda"))


def several_devices():
    """Tensors on several devices, and streams that end."""
    import devices

    rows_of(devices.mixed())
    rows_of(devices.ended_streams())


def through_tvm_ffi():
    """The operators through TVM-FFI, on tensors of PyTorch."""
    try:
        import tvm_ffi
    except ImportError:
        row("TVM-FFI", "apache-tvm-ffi is not installed, and so not checked")
        return
    import dlpack

    say(f"tvm_ffi {tvm_ffi.__version__}")
    rows_of(dlpack.on_gpu("cuda"))


# An operator that does nothing, by PyTorch's C++ and by the stable C interface that ours use.
EMPTY = """
#include <torch/library.h>
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
at::Tensor made(const at::Tensor& x) { return at::empty_like(x); }
at::Tensor& given(const at::Tensor& x, at::Tensor& y) { return y; }
TORCH_LIBRARY(empty_cpp, m) {
  m.def("nothing(Tensor x) -> Tensor");
  m.def("nothing.out(Tensor x, *, Tensor(a!) y) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(empty_cpp, CUDA, m) { m.impl("nothing", &made); m.impl("nothing.out", &given); }
void stable_made(StableIValue* stack, uint64_t, uint64_t) {
  AtenTensorHandle x = reinterpret_cast<AtenTensorHandle>(stack[0]), y = nullptr;
  int64_t size = 4, stride = 1;
  aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_float32(), aoti_torch_device_type_cuda(), 0, &y);
  aoti_torch_delete_tensor_object(x);
  stack[0] = reinterpret_cast<StableIValue>(y);
}
void stable_given(StableIValue* stack, uint64_t, uint64_t) {
  for (int at = 0; at < 2; at++) aoti_torch_delete_tensor_object(reinterpret_cast<AtenTensorHandle>(stack[at]));
}
__attribute__((constructor)) void stable() {
  TorchLibraryHandle library, kernels;
  aoti_torch_library_init_fragment("empty_stable", "", 0, &library);
  aoti_torch_library_def(library, "nothing(Tensor x) -> Tensor");
  aoti_torch_library_def(library, "nothing.out(Tensor x, *, Tensor(a!) y) -> ()");
  aoti_torch_library_init_impl("empty_stable", "CUDA", "", 0, &kernels);
  aoti_torch_library_impl(kernels, "nothing", stable_made);
  aoti_torch_library_impl(kernels, "nothing.out", stable_given);
}
"""


class Compiler(threading.Thread):
    """Compiles the empty operator while other things run."""

    def __init__(self):
        super().__init__(daemon=True)
        self.problem = "it is not done yet"

    def run(self):
        try:
            from torch.utils.cpp_extension import load_inline

            load_inline("empty_cpp", EMPTY, functions=[], is_python_module=False, extra_cflags=["-O1"])
            self.problem = None
        except Exception as error:
            self.problem = str(error)[-200:]


def training():
    """What training does beside its layers, at the sizes of `examples/torch_block.py`: right, the same again, and how long."""
    import torch

    import cases
    import tilewright_ops.torch as ops

    def spent(call):
        """Microseconds on the GPU, each call behind the one before."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for at in range(53):
            if at == 3:
                begin.record()
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 50 * 1e3

    randn = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    table, gradient, mean, square = randn(32_000, 2048), randn(32_000, 2048), *torch.zeros(2, 32_000, 2048, device="cuda").bfloat16()
    time_of = spent(lambda: ops.adamw_step(table, gradient, mean, square, 1))
    # Four are read and three written.
    row("adamw_step, 32000 x 2048", f"{time_of:.0f} us, {14 * table.numel() / time_of / 1e6:.2f} TB/s")
    d_y = randn(16_384, 2048)
    for name, below in (("32000 indices", 32_000), ("256 indices", 256), ("one index", 1)):
        ids = torch.randint(below, (16_384,), device="cuda")
        found = ops.embedding_backward(d_y, table, ids)
        wanted = torch.zeros(table.shape, device="cuda").index_add_(0, ids, d_y.float())
        wrong = cases.error(found, wanted, torch.finfo(torch.bfloat16).eps * wanted.abs().max().item())
        if not torch.equal(found, ops.embedding_backward(d_y, table, ids)):
            wrong = "another result of the same"
        time_of = spent(lambda: ops.embedding_backward(d_y, table, ids))
        torch_time = spent(lambda: torch.ops.aten.embedding_dense_backward(d_y, ids, 32_000, -1, False))
        row(f"embedding_backward, 16384 of {name}", wrong or f"{time_of:.0f} us, {torch_time:.0f} us by PyTorch", not wrong)
    qkv = randn(4, 4096, 3, 16, 128)
    cos, sin = cases.tables(randn, 4096, 64)
    heads, expected = qkv[:, :, :2].flatten(2, 3), qkv.clone()
    expected[:, :, :2] = ops.rotary(heads, cos, sin).unflatten(2, (2, 16))
    ops.rotary_in_place(heads, cos, sin)
    is_right = torch.equal(qkv, expected)
    time_of, apart = (spent(lambda: rotate(heads, cos, sin)) for rotate in (ops.rotary_in_place, ops.rotary))
    rate = f"{4 * heads.numel() / time_of / 1e6:.2f} TB/s"
    row("rotary_in_place, 4 x 4096 x 32 of 48 heads of 128", f"{time_of:.0f} us, {rate}, {apart:.0f} us into another tensor", is_right)


def microseconds(calls):
    """The time that the CPU spends on each call: medians of bursts that the GPU's queue holds, all calls in turn."""
    import torch

    times = {name: [] for name in calls}
    for turn in range(41):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(200):
                call()
            if turn:
                times[name].append((time.perf_counter() - start) / 200 * 1e6)
    torch.cuda.synchronize()
    return {name: statistics.median(bursts) for name, bursts in times.items()}


def call_times(compiler):
    def times():
        """The CPU's time of a call."""
        import torch

        import tilewright_ops.torch as ops

        raw = torch.ops.tilewright_ops
        x, y, z = (torch.randn(4, device="cuda") for _ in range(3))
        op, out, op_add, out_add = raw.nothing.default, raw.nothing.out, raw.add.default, raw.add.out
        calls = {
            "torch.neg": lambda: torch.neg(x),
            "torch.neg, out": lambda: torch.neg(x, out=y),
            "torch.empty_like": lambda: torch.empty_like(x),
            "nothing, through the package": lambda: ops.nothing(x),
            "nothing, the operator": lambda: op(x),
            "nothing, the operator, out": lambda: out(x, y=y),
            "add, through the package": lambda: ops.add(x, y),
            "add, through the package, out": lambda: ops.add(x, y, out=z),
            "add, the operator": lambda: op_add(x, y),
            "add, the operator, out": lambda: out_add(x, y, z=z),
            "softmax, through the package": lambda: ops.softmax(x),
        }
        # It takes what time there is on the CPU. Without it there is nothing to wait for.
        if compiler.is_alive():
            compiler.join(90)
        if compiler.problem is None:
            empty, empty_out = torch.ops.empty_cpp.nothing.default, torch.ops.empty_cpp.nothing.out
            stable, stable_out = torch.ops.empty_stable.nothing.default, torch.ops.empty_stable.nothing.out
            calls |= {
                "empty C++ operator": lambda: empty(x),
                "empty C++ operator, out": lambda: empty_out(x, y=y),
                "empty stable operator": lambda: stable(x),
                "empty stable operator, out": lambda: stable_out(x, y=y),
            }
        else:
            row("empty C++ operator", f"not measured: {compiler.problem}")
        with torch.no_grad():
            figures = microseconds(calls)
        limits = {"add, through the package": 4.5, "add, through the package, out": 2.0}
        for one, other in (("nothing, the operator", "empty C++ operator"), ("nothing, the operator, out", "empty C++ operator, out")):
            if other in figures:
                limits[one] = figures[other] + 1
        for name, figure in figures.items():
            limit = limits.get(name)
            wanted = f" (wanted: {limit:.2f} or less{'' if limit is None or figure <= limit else '; NOT REACHED'})" if limit else ""
            # Speed is a figure, not a defect.
            row(f"call: {name}", f"{figure:.2f} us{wanted}")

    return times


def jax_part(flags):
    """Runs the part that is for JAX in a process of its own."""
    environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false", XLA_FLAGS=flags, PYTHONPATH=os.environ["PYTHONPATH"])
    command = [sys.executable, str(HERE / "gpu_jax.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    if done.returncode and "ROW" not in done.stdout and flags:
        print(done.stderr[-500:])
        row("JAX, flags of command buffers", f"refused: {flags}", False)
        return jax_part("")
    for line in done.stdout.splitlines():
        if line.startswith("ROW\t"):
            _, name, result, right = line.split("\t")
            row(name, result, right == "1")
        else:
            print("    " + line)
    if done.returncode:
        print(done.stderr[-3000:])
        last = (done.stderr.strip().splitlines() or [""])[-1]
        row("JAX", f"ended with {done.returncode}: {last[:200]}", False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    names = ["outside", "devices", "tvm", "results", "graphs", "compiled", "training", "times", "jax", "cpp"]
    parser.add_argument("--without", nargs="*", default=[], choices=names)
    arguments = parser.parse_args()
    paths = [str(arguments.folder.resolve()), str(HERE / "python")]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    import torch

    say(f"torch {torch.__version__} on {torch.cuda.get_device_name()}")
    torch.backends.cuda.matmul.allow_tf32 = False
    compiler = Compiler()
    if not {"cpp", "times"} & set(arguments.without):
        compiler.start()
    parts = {
        "outside": outside,
        "devices": several_devices,
        "tvm": through_tvm_ffi,
        "results": results,
        "graphs": graphs,
        "compiled": compiled,
        "training": training,
        "times": call_times(compiler),
    }
    for name, part in parts.items():
        if name not in arguments.without:
            section(part)
    if "jax" not in arguments.without:
        # Commands of custom calls are recorded too, from one of them on.
        flags = "--xla_gpu_enable_command_buffer=+CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
        say(f"JAX, with {flags}")
        try:
            jax_part(flags)
        except subprocess.TimeoutExpired:
            row("JAX", "took more than 240 s", False)
    print("\n| what | result | |\n|---|---|---|")
    for name, result, right in ROWS:
        print(f"| {name} | {result} | {'' if right else 'WRONG'} |")
    wrong = [name for name, _, right in ROWS if not right]
    say(f"{len(wrong)} of {len(ROWS)} are wrong" if wrong else f"all {len(ROWS)} are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
