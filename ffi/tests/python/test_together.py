"""The operators of the example in PyTorch, JAX and TVM-FFI at once, from one library in one process."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import torch

import harness
import tw_example
import tw_example.jax
import tw_example.torch
import tw_example.tvm_ffi

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def silu(x):
    return x / (1 + np.exp(-x))


def check(seed):
    """The same numbers through all three, each on memory and streams of its own."""
    x = np.random.default_rng(seed).standard_normal((37, 100 + seed)).astype("float32")
    given = torch.from_numpy(x).to(DEVICE).requires_grad_()
    y = tw_example.torch.silu(given)
    found = {
        "PyTorch": y.detach().cpu().numpy(),
        "JAX": np.asarray(jax.jit(tw_example.jax.silu)(jnp.asarray(x))),
        "TVM-FFI": tw_example.tvm_ffi.silu(x),
    }
    for name, result in found.items():
        assert np.abs(result - silu(x)).max() <= 16 * np.finfo("float32").eps * np.abs(x).max(), name
    (theirs,) = torch.autograd.grad(y.sum(), given)
    ours = jax.grad(lambda x: tw_example.jax.silu(x).sum())(jnp.asarray(x))
    assert np.abs(theirs.cpu().numpy() - np.asarray(ours)).max() <= 1e-5


def test_results_are_the_same_in_all():
    for seed in range(3):
        check(seed)


def test_threads_use_all_of_them_at_once():
    failed = []

    def run(seed):
        try:
            check(seed)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_errors_stay_with_their_framework():
    harness.check_error(RuntimeError, "silu: `x` has dtype", lambda: tw_example.torch.silu(torch.ones(3, dtype=torch.int32, device=DEVICE)))
    harness.check_error(jax.errors.JaxRuntimeError, "silu: `x` has dtype", lambda: jax.block_until_ready(tw_example.jax.silu(jnp.ones(3, jnp.int32))))
    harness.check_error(ValueError, "silu: `x` has dtype", lambda: tw_example.tvm_ffi.silu(np.ones(3, "int32")))
    check(7)
    tw_example.synchronize()


harness.run(globals())
