"""The operators for JAX, on the CPU and on NVIDIA GPUs.

Attributes are Python's numbers, known when a function is traced. Tensors that an operator writes in place are results here.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from . import _library

_min, _max = min, max


def _register(name):
    handler = jax.ffi.pycapsule(_library.handler(name))
    for platform in ("cpu", "CUDA"):
        jax.ffi.register_ffi_target("@NAME@." + name, handler, platform=platform)


def _call(name, vmap_method, results, operands, attributes, aliases):
    called = jax.ffi.ffi_call(
        "@NAME@." + name,
        [result for result in results if result is not None],
        vmap_method=vmap_method,
        input_output_aliases=aliases,
    )
    made = iter(called(
        *[operand for operand in operands if operand is not None],
        **{name: value for name, value in attributes.items() if value is not None},
    ))
    results = [None if result is None else next(made) for result in results]
    return results[0] if len(results) == 1 else tuple(results)


def _array(tensor):
    return None if tensor is None else jnp.asarray(tensor)


def _refuse_gradient(operator):
    def refuse(*_):
        raise TypeError(f"{operator} has no gradient; stop it with `jax.lax.stop_gradient`")

    return refuse, refuse
