"""Softmax, RMS norm and flash attention of Rust under JAX's transformations: `jit`, `grad` and `vmap`.

    python jax_transforms.py
"""

import sys

import jax
import jax.numpy as jnp

import tilewright_ops.jax as ops

failed = []


def check(name, ours, theirs):
    difference = max(
        float(jnp.abs(one - other).max() / jnp.abs(other).max())
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    )
    print(f"{name:32} {difference:.1e}")
    # Some sums of f32 in another order; on a GPU products of JAX may be of tf32.
    if not difference < (1e-5 if jax.default_backend() == "cpu" else 5e-3):
        failed.append(name)


def compare(name, ours, theirs, *arguments, shared=0):
    """Both functions, compiled; their gradients; and both mapped over a batch, but for the last `shared` arguments."""
    check(f"{name}, jit", jax.jit(ours)(*arguments), theirs(*arguments))
    weighted = lambda x: (jnp.cos(jnp.arange(x.size)) * x.ravel()).sum()
    gradients = lambda function: jax.grad(lambda *given: weighted(function(*given)), range(len(arguments)))
    check(f"{name}, jit of grad", jax.jit(gradients(ours))(*arguments), gradients(theirs)(*arguments))
    mapped = len(arguments) - shared
    batches = [jnp.stack([argument, 2 * argument, -argument]) for argument in arguments[:mapped]]
    axes = (0,) * mapped + (None,) * shared
    given = (*batches, *arguments[mapped:])
    check(f"{name}, jit of vmap", jax.jit(jax.vmap(ours, axes))(*given), jax.vmap(theirs, axes)(*given))
    check(
        f"{name}, jit of vmap of grad",
        jax.jit(jax.vmap(gradients(ours), axes))(*given),
        jax.vmap(gradients(theirs), axes)(*given),
    )


def rms_norm(x, weight):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


keys = jax.random.split(jax.random.key(0), 5)
x, weight = jax.random.normal(keys[0], (32, 200)), jax.random.normal(keys[1], (200,))
q, k, v = (jax.random.normal(key, (2, 50, 4, 32)) for key in keys[2:])
print(f"on {jax.devices()[0]}, the largest difference from JAX alone, of the largest element:")
compare("softmax", ops.softmax, jax.nn.softmax, x)
compare("RMS norm", ops.rms_norm, rms_norm, x, weight, shared=1)
compare("flash attention", lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0], attention, q, k, v)
print(f"{len(failed)} differ: {', '.join(failed)}" if failed else "all agree")
sys.exit(bool(failed))
