"""What the check on a GPU goes through, as far as a CPU has it: TVM-FFI, and what XLA calls."""

import jax
import jax.numpy as jnp

import handlers
import harness

# Before the module for JAX gives XLA its handlers.
COUNTS = handlers.count()

import dlpack
import tilewright_ops.jax as ops


def check(rows):
    wrong = [f"{name}: {result}" for name, result, is_right in rows if not is_right]
    assert rows and not wrong, "\n".join(wrong)


def test_tvm_ffi_gives_the_results_of_pytorch():
    check(dlpack.results("cpu"))


def test_tvm_ffi_raises_errors_with_the_line():
    check(dlpack.errors("cpu"))


def test_calls_of_xla_are_counted():
    x = jax.random.normal(jax.random.key(0), (4, 8))
    gradient = jax.jit(jax.grad(lambda x: (ops.softmax(ops.rms_norm(x)) ** 2).sum()))
    for _ in range(3):
        jax.block_until_ready(gradient(x))
    # Two forward and two backward each time; the CPU records nothing.
    assert COUNTS.total() == (12, 0), COUNTS.counts
    assert COUNTS.counts["softmax_backward", "made"] == 3
    assert jnp.abs(ops.softmax(x) - jax.nn.softmax(x)).max() < 1e-6
    harness.check_error(jax.errors.JaxRuntimeError, "softmax: `x` has dtype i32", lambda: jax.block_until_ready(ops.softmax(x.astype(int))))


harness.run(globals())
