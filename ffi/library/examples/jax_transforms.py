"""Softmax, RMS norm and flash attention of Rust under JAX's transformations: `jit`, `grad` and `vmap`.

    python jax_transforms.py

It prints how far each is from JAX alone and what a call takes, and draws both into `transforms.svg`.
"""

import argparse
import dataclasses
import functools
import math
import statistics
import sys
import time

import jax
import jax.numpy as jnp

import tilewright_ops.jax as ops

# Some sums of f32 in another order; on a GPU products of JAX may be of tf32.
ALLOWED = 1e-5 if jax.default_backend() == "cpu" else 5e-3
# A median is that of so many calls, or of those that this time is enough for.
CALLS, SECONDS = 20, 0.25


@dataclasses.dataclass
class Comparison:
    """A function under a transformation."""

    name: str
    transformation: str
    # The largest difference from JAX alone, of the largest element.
    difference: float
    # Microseconds of a call: ours, and JAX's.
    times: tuple[float, float]


def microseconds(function, arguments):
    spans = []
    while len(spans) < CALLS and (len(spans) < 3 or sum(spans) < SECONDS * 1e6):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        spans.append((time.perf_counter() - start) * 1e6)
    return statistics.median(spans)


def compare_one(name, transformation, ours, theirs, arguments):
    ours, theirs = jax.jit(ours), jax.jit(theirs)
    difference = max(
        float(jnp.abs(one - other).max() / jnp.abs(other).max())
        for one, other in zip(jax.tree.leaves(ours(*arguments)), jax.tree.leaves(theirs(*arguments)), strict=True)
    )
    times = microseconds(ours, arguments), microseconds(theirs, arguments)
    print(f"{name:16} {transformation:20} {difference:8.1e} {times[0]:9.0f} us {times[1]:9.0f} us by JAX")
    return Comparison(name, transformation, difference, times)


def compare(name, ours, theirs, *arguments, shared=0):
    """Both functions, compiled; their gradients; and both mapped over a batch, but for the last `shared` arguments."""
    weighted = lambda x: (jnp.cos(jnp.arange(x.size)) * x.ravel()).sum()
    gradients = lambda function: jax.grad(lambda *given: weighted(function(*given)), range(len(arguments)))
    mapped = len(arguments) - shared
    batches = [jnp.stack([argument, 2 * argument, -argument]) for argument in arguments[:mapped]]
    axes = (0,) * mapped + (None,) * shared
    given = (*batches, *arguments[mapped:])
    one = functools.partial(compare_one, name)
    return [
        one("jit", ours, theirs, arguments),
        one("jit of grad", gradients(ours), gradients(theirs), arguments),
        one("jit of vmap", jax.vmap(ours, axes), jax.vmap(theirs, axes), given),
        one("jit of vmap of grad", jax.vmap(gradients(ours), axes), jax.vmap(gradients(theirs), axes), given),
    ]


def rms_norm(x, weight):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def all_comparisons():
    keys = jax.random.split(jax.random.key(0), 5)
    x, weight = jax.random.normal(keys[0], (32, 200)), jax.random.normal(keys[1], (200,))
    q, k, v = (jax.random.normal(key, (2, 50, 4, 32)) for key in keys[2:])
    return [
        *compare("softmax", ops.softmax, jax.nn.softmax, x),
        *compare("RMS norm", ops.rms_norm, rms_norm, x, weight, shared=1),
        *compare("flash attention", lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0], attention, q, k, v),
    ]


class Axis:
    """A logarithmic axis, in whole powers of ten, from one place of the picture to another."""

    def __init__(self, values, begin, end):
        self.low, self.high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self.high = max(self.high, self.low + 1)
        self.begin, self.end = begin, end

    def place(self, value):
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + min(max(part, 0), 1) * (self.end - self.begin)

    def ticks(self):
        return [10.0**power for power in range(self.low, self.high + 1)]


def draw(comparisons, path):
    """Differences beside what is allowed, and times, as a picture."""
    width, row, top = 900, 24, 52
    bottom = top + row * len(comparisons)
    height = bottom + 44
    # No difference at all has no logarithm: its bar is empty.
    differences = Axis([max(one.difference, 1e-8) for one in comparisons] + [ALLOWED], 250, 540)
    times = Axis([of for one in comparisons for of in one.times], 590, width - 30)
    ours, theirs, bound = "#2060c0", "#888888", "#c03020"
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">']
    lines.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    text = lambda x, y, what, more="": lines.append(f'<text x="{x:.1f}" y="{y:.1f}"{more}>{what}</text>')
    bar = lambda axis, y, high, value, fill: lines.append(
        f'<rect x="{axis.begin}" y="{y:.1f}" width="{axis.place(value) - axis.begin:.1f}" height="{high}" fill="{fill}"/>'
    )
    text(differences.begin, 20, "largest difference from JAX alone")
    text(times.begin, 20, f'microseconds of a call: <tspan fill="{ours}">ours</tspan>, <tspan fill="{theirs}">JAX</tspan>')
    for axis, label in ((differences, lambda tick: f"{tick:.0e}"), (times, lambda tick: f"{tick:,.0f}")):
        for tick in axis.ticks():
            x = axis.place(tick)
            lines.append(f'<path d="M{x:.1f} {top - 8}V{bottom}" stroke="#dddddd"/>')
            text(x, top - 14, label(tick), ' text-anchor="middle" font-size="10"')
    for at, one in enumerate(comparisons):
        y = top + row * at
        text(12, y + 13, f"{one.name}, {one.transformation}")
        bar(differences, y + 3, 13, max(one.difference, 10.0**differences.low), ours)
        for part, (value, fill) in enumerate(zip(one.times, (ours, theirs))):
            bar(times, y + 2 + 8 * part, 7, value, fill)
    x = differences.place(ALLOWED)
    lines.append(f'<path d="M{x:.1f} {top - 8}V{bottom + 4}" stroke="{bound}" stroke-width="1.5" stroke-dasharray="6 4"/>')
    text(x, bottom + 18, f"allowed: {ALLOWED:.0e}", f' fill="{bound}" text-anchor="middle"')
    text(12, height - 10, f"JAX {jax.__version__} on {jax.devices()[0].device_kind}, medians of up to {CALLS} calls")
    lines.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", default="transforms.svg")
    arguments = parser.parse_args()
    print(f"on {jax.devices()[0]}, the largest difference from JAX alone, of the largest element, and times of calls:")
    comparisons = all_comparisons()
    failed = [f"{one.name}, {one.transformation}" for one in comparisons if not one.difference < ALLOWED]
    print(f"{len(failed)} differ: {'; '.join(failed)}" if failed else "all agree")
    draw(comparisons, arguments.picture)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
