"""Three kernels of Rust in JAX: those of `first_torch.py`."""

import jax
import jax.numpy as jnp

import tilewright_ops.jax as ops

keys = jax.random.split(jax.random.key(0), 5)
x, y = (jax.random.normal(key, (10_000,)) for key in keys[:2])

# Two vectors, added by one kernel over a grid of blocks.
print("add:", "equal" if (jax.jit(ops.add)(x, y) == x + y).all() else "different")


# Attention, from the library, with its gradient.
def loss(attention):
    return jax.jit(jax.value_and_grad(lambda q, k, v: (attention(q, k, v) ** 2).sum()))


q, k, v = (jax.random.normal(key, (2, 64, 4, 32)) for key in keys[2:])
ours = loss(lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0])(q, k, v)
theirs = loss(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True))(q, k, v)
print("attention:", "equal" if all(jnp.allclose(*both, rtol=1e-3, atol=1e-3) for both in zip(ours, theirs)) else "different")

# An expression in one kernel, mapped over rows.
expression = jax.vmap(lambda row: ops.scaled_silu(row, scale=2.0).sum())
rows = x.reshape(100, 100)
print("expression:", "equal" if jnp.allclose(expression(rows), (2 * jax.nn.silu(rows)).sum(-1), atol=1e-3) else "different")
