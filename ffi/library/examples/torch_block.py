"""A transformer block, trained with the kernels of this library and with PyTorch's own.

    python torch_block.py --size small    # on the CPU, in under a minute
    python torch_block.py --size full     # 4 x 4096 x 2048 in bf16, on a GPU
    python torch_block.py --size full --profile     # where the time of a step goes, kernel by kernel

Tokens go through an embedding, RMS norm, one product for queries, keys and values, rotary embedding, causal attention, the
residual and RMS norm, a SwiGLU, and cross entropy over the vocabulary, and AdamW changes the weights: for 200 steps with PyTorch
alone, with `torch.compile`, with the kernels of Liger if `liger-kernel` is installed, with ours, and with ours under
`torch.compile`. All begin with the same weights and see the same tokens. It prints the time of a step and the most memory of each,
and draws the curves of the loss into `loss.svg`.
"""

import argparse
import dataclasses
import gc
import importlib.util
import sys
import time

import torch
import torch._dynamo
import torch.nn.functional as F

import tilewright_ops.torch as ops

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A library of kernels in Triton, for GPUs: https://github.com/linkedin/Liger-Kernel
HAS_LIGER = DEVICE == "cuda" and importlib.util.find_spec("liger_kernel") is not None


@dataclasses.dataclass
class Size:
    batch: int
    tokens: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    dtype: torch.dtype
    rate: float


SIZES = {
    "small": Size(2, 16, 32, 2, 64, 61, torch.float32, 5e-3),
    "full": Size(4, 4096, 2048, 16, 5632, 32_000, torch.bfloat16, 3e-4),
}


class Eager:
    """The operators of PyTorch, as its users write them; `[batch, tokens, heads, dim]`."""

    linear = staticmethod(F.linear)

    def embedding(self, table, ids):
        return F.embedding(ids, table)

    def rms_norm(self, x, weight):
        return F.rms_norm(x, x.shape[-1:], weight, 1e-5)

    def add_rms_norm(self, x, residual, weight):
        x = x + residual
        return self.rms_norm(x, weight), x

    def rotary(self, x, cos, sin):
        a, b = x.float().chunk(2, -1)
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def norm_and_residual(self, x, weight):
        return self.rms_norm(x, weight), x

    def attention(self, x, weight, cos, sin):
        q, k, v = self.linear(x, weight).unflatten(-1, (3, -1, 2 * cos.shape[-1])).unbind(2)
        q, k, v = (x.transpose(1, 2) for x in (self.rotary(q, cos, sin), self.rotary(k, cos, sin), v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def linear_swiglu(self, x, weight):
        gate, x = self.linear(x, weight).chunk(2, -1)
        return F.silu(gate) * x

    def loss(self, x, weight, targets):
        return F.cross_entropy((x @ weight.t()).float(), targets)

    def optimizer(self, parameters, rate):
        return torch.optim.AdamW(parameters, lr=rate, fused=DEVICE == "cuda")


class Liger(Eager):
    """The kernels of Liger, which are written in Triton, where it has some; attention is PyTorch's."""

    def __init__(self):
        import liger_kernel.transformers.functional as liger

        self.liger = liger

    def rms_norm(self, x, weight):
        return self.liger.liger_rms_norm(x, weight, 1e-5, in_place=False)

    def add_rms_norm(self, x, residual, weight):
        return self.liger.liger_fused_add_rms_norm(x, residual, weight, 1e-5, in_place=False)

    def attention(self, x, weight, cos, sin):
        q, k, v = self.linear(x, weight).unflatten(-1, (3, -1, 2 * cos.shape[-1])).unbind(2)
        # It takes angles of both halves of a head.
        cos, sin = (torch.cat((angles, angles), -1)[None] for angles in (cos, sin))
        q, k = self.liger.liger_rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        return F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True).transpose(1, 2)

    def linear_swiglu(self, x, weight):
        return self.liger.liger_swiglu(*self.linear(x, weight).chunk(2, -1))

    def loss(self, x, weight, targets):
        return self.liger.liger_fused_linear_cross_entropy(x, weight, targets)


class Ours:
    """The same of this library, but for products, which are cuBLAS's where nothing follows them."""

    linear = staticmethod(F.linear)
    embedding = staticmethod(ops.embedding)
    add_rms_norm = staticmethod(ops.add_rms_norm)

    @staticmethod
    def linear_backward(d_y, x, weight):
        return d_y @ weight, d_y.flatten(0, -2).t() @ x.flatten(0, -2)

    def norm_and_residual(self, x, weight):
        return NormAndResidual.apply(x, weight)

    def attention(self, x, weight, cos, sin):
        return RotaryAttention.apply(x, weight, cos, sin, self)

    def linear_swiglu(self, x, weight):
        return LinearSwiglu.apply(x, weight, self)

    def loss(self, x, weight, targets):
        return LinearCrossEntropy.apply(x, weight, targets)

    def optimizer(self, parameters, rate):
        return AdamW(parameters, lr=rate)


class OursWithProducts(Ours):
    """Products of this library too."""

    linear = staticmethod(ops.linear)

    @staticmethod
    def linear_backward(d_y, x, weight):
        d_x, d_weight, _ = ops.linear_backward(d_y, x, weight, None)
        return d_x, d_weight


class LinearCrossEntropy(torch.autograd.Function):
    """The loss of `x @ weight^T`, with its gradients at once: what would be logits are their exponentials, of which gradients are
    products. Others take chunks of the rows, for less memory at more time (Hsu et al., "Liger Kernel", 2024); here the backward
    pass takes as much anyway."""

    @staticmethod
    def forward(context, x, weight, targets):
        loss, d_x, d_weight = ops.linear_cross_entropy_with_gradients(x, weight, targets)
        context.save_for_backward(d_x, d_weight)
        return loss

    @staticmethod
    def backward(context, d_loss):
        d_x, d_weight = context.saved_tensors
        # Nobody else has them, and mostly the factor is 1: then it takes no time.
        ops.scale_in_place(d_x, d_loss)
        ops.scale_in_place(d_weight, d_loss)
        return d_x, d_weight, None


class NormAndResidual(torch.autograd.Function):
    """The RMS norm of `x`, and `x` for the residual. The gradient of the norm adds that of the residual, where autograd would have a
    kernel for it."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return ops.rms_norm(x, weight, eps=1e-5), x.view_as(x)

    @staticmethod
    def backward(context, d_y, d_x):
        return ops.add_rms_norm_backward(d_y, d_x, *context.saved_tensors, eps=1e-5)


class RotaryAttention(torch.autograd.Function):
    """The product `x @ weight^T` of queries, keys and values, which lie beside each other as `[batch, tokens, 3, heads, dim]`, rotary
    embedding and causal attention. The gradient of the product does not need it, so queries and keys are rotated in place, and the
    backward pass finds them rotated. Gradients come rotated back and beside each other too, where autograd would put them together by a
    copy."""

    @staticmethod
    def forward(context, x, weight, cos, sin, kernels):
        qkv = kernels.linear(x, weight).unflatten(-1, (3, -1, 2 * cos.shape[-1]))
        ops.rotary_in_place(qkv[:, :, :2].flatten(2, 3), cos, sin)
        y, lse = ops.flash_attention(*qkv.unbind(2), causal=True)
        context.save_for_backward(x, weight, cos, sin, qkv, y, lse)
        context.kernels = kernels
        return y

    @staticmethod
    def backward(context, d_y):
        x, weight, cos, sin, qkv, y, lse = context.saved_tensors
        d_qkv = ops.rotary_attention_backward(d_y, qkv, y, lse, cos, sin, causal=True)
        d_x, d_weight = context.kernels.linear_backward(d_qkv.flatten(2), x, weight)
        return d_x, d_weight, None, None, None


class LinearSwiglu(torch.autograd.Function):
    """The products `gate` and `x` of a gated activation and `silu(gate) * x`, in one pass."""

    @staticmethod
    def forward(context, x, weight, kernels):
        y, products = ops.linear_swiglu_keeping(x, weight)
        context.save_for_backward(x, weight, products)
        context.kernels = kernels
        return y

    @staticmethod
    def backward(context, d_y):
        x, weight, products = context.saved_tensors
        d_products = ops.swiglu_halves_backward(d_y, products)
        d_x, d_weight = context.kernels.linear_backward(d_products, x, weight)
        return d_x, d_weight, None


class AdamW(torch.optim.Optimizer):
    """PyTorch's AdamW with a kernel of this library, which has all numbers of a parameter in one launch."""

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            options = group["lr"], *group["betas"], group["eps"], group["weight_decay"]
            for parameter in (one for one in group["params"] if one.grad is not None):
                state = self.state[parameter]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
                state["step"] += 1
                ops.adamw_step(parameter, parameter.grad, state["mean"], state["square"], state["step"], *options)


class Block(torch.nn.Module):
    def __init__(self, size, kernels):
        super().__init__()
        self.kernels = kernels
        made = lambda *shape: torch.nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5)
        self.embedding = torch.nn.Parameter(torch.randn(size.vocabulary, size.width))
        self.first, self.second = (torch.nn.Parameter(torch.ones(size.width)) for _ in range(2))
        self.last = torch.nn.Parameter(torch.ones(size.width))
        self.qkv, self.out = made(3 * size.width, size.width), made(size.width, size.width)
        self.up, self.down = made(2 * size.hidden, size.width), made(size.width, size.hidden)
        self.head = made(size.vocabulary, size.width)
        dim = size.width // size.heads
        angles = torch.arange(size.tokens)[:, None] * 10_000.0 ** -(torch.arange(0, dim, 2) / dim)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, targets):
        kernels = self.kernels
        x = kernels.embedding(self.embedding, tokens)
        h, x = kernels.norm_and_residual(x, self.first)
        h = kernels.attention(h, self.qkv, self.cos, self.sin)
        h = kernels.linear(h.flatten(-2), self.out)
        h, x = kernels.add_rms_norm(h, x, self.second)
        h = kernels.linear(kernels.linear_swiglu(h, self.up), self.down)
        h, _ = kernels.add_rms_norm(h, x, self.last)
        return kernels.loss(h.flatten(0, 1), self.head, targets.flatten())


def batches(size, steps):
    """Sequences in which a token depends on the one before it, but for one in ten: there is something to learn."""
    generator = torch.Generator().manual_seed(1)
    # Few of the vocabulary occur, so that each is seen often.
    common = min(size.vocabulary, 256)
    after = torch.randperm(common, generator=generator)
    shape = (size.tokens + 1, steps, size.batch)
    rows = torch.randint(common, shape, generator=generator)
    follows = torch.rand(shape, generator=generator) > 0.1
    for at in range(1, size.tokens + 1):
        rows[at] = torch.where(follows[at], after[rows[at - 1]], rows[at])
    return rows.permute(1, 2, 0).contiguous()


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def prepare(size, kernels, compiled):
    """A function that trains on a batch and gives its loss. All begin with the same weights."""
    torch.manual_seed(0)
    model = Block(size, kernels)
    tables = model.cos, model.sin
    model.to(DEVICE, size.dtype)
    # Angles are not rounded.
    model.cos, model.sin = (table.to(DEVICE) for table in tables)
    # On the CPU it is about the same curve: compiling C++ would take longer than all steps.
    backend = "inductor" if DEVICE == "cuda" else "aot_eager"
    run = torch.compile(model, fullgraph=True, backend=backend) if compiled else model
    optimizer = kernels.optimizer(model.parameters(), size.rate)

    def step(rows):
        optimizer.zero_grad(set_to_none=True)
        loss = run(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def train(size, kernels, compiled, data):
    """The losses, the most memory, and how many of our operators a step calls."""
    torch._dynamo.reset()
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if DEVICE == "cuda" else 0
    step = prepare(size, kernels, compiled)
    curve = [loss.item() for loss in [step(rows) for rows in data]]
    memory = (torch.cuda.max_memory_allocated() - before) / 1e9 if DEVICE == "cuda" else float("nan")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step(data[-1])
    calls = sum(event.name.startswith("tilewright_ops::") for event in profiler.events())
    return curve, memory, calls


def race(size, variants, data):
    """Milliseconds of a step of each. They take turns of twenty steps, as a GPU that has grown warm is slower."""
    torch._dynamo.reset()
    steps = {name: prepare(size, *variant) for name, variant in variants.items()}
    turns, length = (7, 20) if DEVICE == "cuda" else (2, 1)
    times = {name: [] for name in variants}
    for turn in range(turns):
        for name, step in steps.items():
            synchronize()
            start = time.perf_counter()
            for rows in data[:length]:
                step(rows)
            synchronize()
            if turn:
                times[name].append((time.perf_counter() - start) / length * 1e3)
    return {name: sorted(spans)[len(spans) // 2] for name, spans in times.items()}


def profile(size, kernels, compiled, data, name):
    """Prints the GPU's time of a step, kernel by kernel."""
    step, steps = prepare(size, kernels, compiled), 3
    for rows in data[:10]:
        step(rows)
    synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for rows in data[10 : 10 + steps]:
            step(rows)
        synchronize()
    kernels = {}
    spans = []
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            count, total = kernels.get(event.name, (0, 0.0))
            kernels[event.name] = count + 1, total + event.time_range.elapsed_us()
            spans.append((event.time_range.start, event.time_range.end))
    busy = sum(total for _, total in kernels.values()) / steps
    span = (max(end for _, end in spans) - min(start for start, _ in spans)) / steps
    print(f"\n{name}: the GPU is busy for {busy / 1e3:.2f} ms of the {span / 1e3:.2f} ms of a step\n\n| us a step | calls a step | kernel |\n|--:|--:|---|")
    for kernel, (count, total) in sorted(kernels.items(), key=lambda item: -item[1][1]):
        print(f"| {total / steps:.1f} | {count / steps:g} | `{kernel[:110]}` |")


def draw(curves, path):
    """The curves as a picture."""
    width, height, left = 720, 360, 48
    longest = max(len(curve) for curve in curves.values())
    top = max(max(curve) for curve in curves.values())
    place = lambda at, loss: f"{left + at * (width - left - 12) / max(longest - 1, 1):.1f},{12 + (1 - loss / top) * (height - 48):.1f}"
    colours = ["#888888", "#d08030", "#2060c0", "#208060", "#a04080"]
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">']
    lines.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for tick in range(5):
        loss = top * tick / 4
        x, y = place(0, loss).split(",")
        lines.append(f'<path d="M{x} {y}H{width - 12}" stroke="#dddddd"/><text x="8" y="{y}">{loss:.1f}</text>')
    for at, (name, curve) in enumerate(curves.items()):
        points = " ".join(place(*point) for point in enumerate(curve))
        dashes = ' stroke-dasharray="6 4"' if at % 2 else ""
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colours[at % len(colours)]}" stroke-width="1.5"{dashes}/>')
        lines.append(f'<text x="{width - 180}" y="{30 + 16 * at}" fill="{colours[at % len(colours)]}">{name}</text>')
    lines.append(f'<text x="{left}" y="{height - 10}">loss of each of {longest} steps</text></svg>')
    with open(path, "w") as file:
        file.write("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--picture", default="loss.svg")
    named = ["eager", "compiled", *["liger"] * HAS_LIGER, "ours", "ours-compiled"]
    known = "eager, compiled, liger where it is installed, ours, ours-compiled, ours-products"
    parser.add_argument("--variants", nargs="+", default=named, help=f"some of: {known}")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step, and train no further")
    arguments = parser.parse_args()
    if arguments.profile and DEVICE != "cuda":
        parser.error("--profile needs a GPU")
    size = SIZES[arguments.size]
    # On a GPU all is there before a clock runs.
    data = batches(size, arguments.steps).to(DEVICE)
    variants = {
        "eager": (Eager(), False),
        "compiled": (Eager(), True),
        **({"liger": (Liger(), False)} if HAS_LIGER else {}),
        "ours": (Ours(), False),
        "ours-compiled": (Ours(), True),
        "ours-products": (OursWithProducts(), False),
    }
    if unknown := [name for name in arguments.variants if name not in variants]:
        parser.error(f"there is no variant {unknown[0]}; there are {', '.join(variants)}")
    if arguments.profile:
        for name in arguments.variants:
            profile(size, *variants[name], data, name)
        return 0
    curves, memory, calls = {}, {}, {}
    for name in arguments.variants:
        curves[name], memory[name], calls[name] = train(size, *variants[name], data)
        print(f"{name}: loss {curves[name][0]:.4f} to {last(curves[name]):.4f}", flush=True)
    times = race(size, {name: variants[name] for name in arguments.variants}, data)
    first = next(iter(curves))
    print(f"\n| {size.batch} x {size.tokens} x {size.width}, {size.dtype} | ms a step | beside compiled | GB at most | our operators a step | last loss | from {first} at most |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    beside = times.get("compiled", times[first])
    for name, milliseconds in times.items():
        apart = max(abs(one - other) for one, other in zip(curves[name], curves[first]))
        print(f"| {name} | {milliseconds:.2f} | {beside / milliseconds:.3f} x | {memory[name]:.2f} | {calls[name]} | {last(curves[name]):.6f} | {apart:.1e} |")
    draw(curves, arguments.picture)
    are_as_named = all(check_variant(name, variants[name][0], curves, calls[name]) for name in curves)
    return 0 if check(curves, size) and are_as_named else 1


def last(curve):
    """The mean of the last ten."""
    return sum(curve[-10:]) / len(curve[-10:])


def check_variant(name, kernels, curves, calls):
    """Whether a variant has run what it is named for: our operators or none, and so other roundings than PyTorch's."""
    is_ours = isinstance(kernels, Ours)
    if is_ours != (calls > 0):
        print(f"{name} HAS CALLED {calls} of our operators")
        return False
    if is_ours and curves[name] in [curve for other, curve in curves.items() if not other.startswith("ours")]:
        print(f"{name} HAS THE VERY CURVE of PyTorch's operators")
        return False
    return True


def check(curves, size):
    """Whether all curves are that of the first, within what rounding makes of them, and go down."""
    first = next(iter(curves.values()))
    # The mean of ten steps: in bf16 weights are rounded at each of them, to 8 bits.
    smooth = lambda curve: [sum(curve[at : at + 10]) / 10 for at in range(0, len(curve) - 9, 10)]
    limit = 0.02 if size.dtype == torch.float32 else 0.05
    worst = max(
        abs(one - other) / first[0]
        for curve in curves.values()
        for one, other in zip(smooth(curve), smooth(first))
    )
    learned = all(last(curve) < 0.8 * curve[0] for curve in curves.values())
    print(f"the curves differ by {worst:.2%} of the first loss at most, {limit:.0%} allowed")
    print("the curves are equal within noise" if worst <= limit and learned else "THE CURVES DIFFER, or do not go down")
    return worst <= limit and learned


if __name__ == "__main__":
    sys.exit(main())
