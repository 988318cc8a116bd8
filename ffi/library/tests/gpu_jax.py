"""The part of `gpu.py` that is for JAX: it prints rows of its table."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import tilewright_ops
import tilewright_ops.jax as ops

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_enable_x64", True)
failed = 0


def row(name, result, is_right):
    global failed
    failed += not is_right
    print(f"ROW\t{name}\t{str(result).replace(chr(9), ' ').replace(chr(10), ' ')}\t{int(is_right)}", flush=True)


def randn(*shape, dtype=jnp.float32, seed=0):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def rms_norm(x, weight):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * weight.astype(jnp.float32)).astype(x.dtype)


def attention(q, k, v):
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def cross_entropy(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), targets[:, None], 1).mean()


def compare(name, ours, theirs, *arguments):
    """Results and gradients under `jit`."""
    floats = tuple(at for at, given in enumerate(arguments) if jnp.issubdtype(given.dtype, jnp.floating))
    weighted = lambda x: (jnp.cos(jnp.arange(x.size, dtype=jnp.float32)) * x.ravel().astype(jnp.float32)).sum()
    scalar = lambda function: lambda *given: weighted(function(*given))
    found = (jax.jit(ours)(*arguments), *jax.jit(jax.grad(scalar(ours), floats))(*arguments))
    wanted = (theirs(*arguments), *jax.grad(scalar(theirs), floats)(*arguments))
    worst = max(float(jnp.abs(a.astype(jnp.float32) - b.astype(jnp.float32)).max() / jnp.abs(b).max()) for a, b in zip(found, wanted))
    # Results are rounded once, gradients are made of rounded results; sums of f32 are in another order.
    unit = float(jnp.finfo(arguments[0].dtype).eps)
    limit = 256 * unit if arguments[0].dtype == jnp.float32 else 8 * unit
    row(f"JAX, {name}, {arguments[0].dtype}", f"within {worst:.1e} of JAX, with gradients", worst <= limit)


def results():
    for dtype in (jnp.float32, jnp.float16, jnp.bfloat16):
        x, y, weight = randn(37, 200, dtype=dtype), randn(37, 200, dtype=dtype, seed=1), randn(200, dtype=dtype, seed=2)
        wide = lambda function: lambda *given: function(*(g.astype(jnp.float32) if jnp.issubdtype(g.dtype, jnp.floating) else g for g in given))
        compare("softmax", ops.softmax, wide(jax.nn.softmax), x)
        compare("rms_norm", ops.rms_norm, wide(rms_norm), x, weight)
        compare("swiglu", ops.swiglu, wide(lambda a, b: jax.nn.silu(a) * b), x, y)
        compare("cross_entropy", ops.cross_entropy, cross_entropy, x, jnp.arange(37) * 5)
        qkv = [randn(2, 130, 2, 64, dtype=dtype, seed=seed) for seed in range(3)]
        compare("flash_attention", lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0], attention, *qkv)


def mapped():
    qkv = [randn(3, 2, 64, 2, 64, seed=seed) for seed in range(3)]
    found = jax.jit(jax.vmap(lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0]))(*qkv)
    wanted = jax.vmap(attention)(*qkv)
    worst = float(jnp.abs(found - wanted).max())
    row("JAX, vmap of flash_attention", f"within {worst:.1e}", worst < 1e-4)


def replays():
    """A compiled function of several operators, a thousand times with other inputs; XLA records it after the first."""

    def function(x, weight):
        for _ in range(4):
            x = ops.softmax(ops.swiglu(ops.rms_norm(x, weight), x)) + x * 1.01
        return x

    compiled, weight, worst = jax.jit(function), randn(256), 0.0

    def theirs(x):
        for _ in range(4):
            x = jax.nn.softmax(jax.nn.silu(rms_norm(x, weight)) * x) + x * 1.01
        return x

    reference = jax.jit(theirs)
    start = time.perf_counter()
    for at in range(1000):
        x = jnp.full((64, 256), 0.001 * at, jnp.float32) + randn(64, 256, seed=at % 7)
        found = compiled(x, weight)
        if at % 50 == 0:
            worst = max(worst, float(jnp.abs(found - reference(x)).max()))
    jax.block_until_ready(found)
    seconds = time.perf_counter() - start
    row("JAX, jit, 1000 calls with other inputs", f"within {worst:.1e} of JAX ({seconds:.1f} s)", worst < 1e-4)


def replayed_gradients():
    """The same of gradients, whose operators need memory beside their results: each replay uses it again, and nobody else may."""

    def loss(norm):
        return lambda x, weight: (norm(norm(x, weight) * 1.01 + x, weight) ** 2).mean()

    ours, theirs = (jax.jit(jax.grad(loss(norm), (0, 1))) for norm in (ops.rms_norm, rms_norm))
    weight, worst, kept = randn(256), 0.0, []
    for at in range(300):
        x = jnp.full((512, 256), 0.001 * at, jnp.float32) + randn(512, 256, seed=at % 7)
        found = ours(x, weight)
        # Others take and give back memory meanwhile.
        kept = [*kept[-7:], jnp.full((512, 256), float(at))]
        if at % 20 == 0:
            pairs = zip(found, theirs(x, weight))
            worst = max(worst, *(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in pairs))
    row("JAX, jit of gradients, 300 calls with other inputs", f"within {worst:.1e} of JAX", worst < 1e-4)


def outside():
    text = "no error"
    try:
        jax.block_until_ready(jax.jit(ops.take)(randn(8), jnp.array([1, 8], jnp.int64)))
        tilewright_ops.synchronize()
    except Exception as error:
        text = str(error)
    row("JAX, index 8 of 8", text[:200], "elementwise.rs:" in text)
    found = jax.jit(ops.take)(randn(8), jnp.array([7, 0], jnp.int64))
    alive = bool((found == randn(8)[jnp.array([7, 0])]).all())
    row("JAX, afterwards", "the context is alive" if alive else "results are wrong", alive)


print(f"jax {jax.__version__} on {jax.devices()[0]}", flush=True)
for part in (outside, results, mapped, replays, replayed_gradients):
    try:
        part()
    except Exception as error:
        row(f"JAX, {part.__name__}", f"{type(error).__name__}: {str(error)[:300]}", False)
sys.exit(1 if failed else 0)
