"""candle, PyTorch and JAX in one process: one source of an operator, in the library that both of these load, and in candle's own.

    python together.py LIBRARY     # with the package tw_example on the path
"""

import ctypes
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import torch

import tw_example
import tw_example.jax
import tw_example.torch

candle_silu = ctypes.CDLL(sys.argv[1]).candle_silu
candle_silu.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t]
failed = []


def check(seed):
    x = np.random.default_rng(seed).standard_normal(1000 + seed).astype("float32")
    y, gradient = np.zeros_like(x), np.zeros_like(x)
    assert candle_silu(*(array.ctypes.data for array in (x, y, gradient)), x.size) == 0
    given = torch.from_numpy(x).clone().requires_grad_()
    made = tw_example.torch.silu(given)
    made.sum().backward()
    ours = jax.jit(tw_example.jax.silu)(jnp.asarray(x))
    own = jax.grad(lambda x: tw_example.jax.silu(x).sum())(jnp.asarray(x))
    for found, expected in ((made.detach(), y), (given.grad, gradient), (ours, y), (own, gradient)):
        assert np.abs(np.asarray(found) - expected).max() <= 1e-5, seed


def run(seed):
    try:
        check(seed)
    except Exception as error:
        failed.append(error)


for seed in range(3):
    check(seed)
threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
tw_example.synchronize()
print("all agree")
