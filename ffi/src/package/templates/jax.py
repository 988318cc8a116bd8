"""The operators for JAX, on the CPU and on NVIDIA GPUs.

Attributes are Python's numbers, known when a function is traced. Tensors that an operator writes in place are results here.
"""

import functools
import json

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np

from . import _library

_min, _max, _size = min, max, _library.size


def _register(*names):
    for name in names:
        handler = jax.ffi.pycapsule(_library.handler(name))
        for platform in ("cpu", "CUDA"):
            jax.ffi.register_ffi_target("@NAME@." + name, handler, platform=platform)


def _called(name, vmap_method, results, aliases, operands, attributes):
    call = jax.ffi.ffi_call("@NAME@." + name, results, vmap_method=vmap_method, input_output_aliases=aliases)
    return call(*operands, **attributes)


@functools.cache
def _gpus():
    """Of JAX's GPUs one of each kind, as CUDA counts them."""
    try:
        devices = jax.local_devices(backend="cuda")
    except RuntimeError:
        return ()
    return tuple({device.device_kind: device.local_hardware_id for device in devices}.values())


def _scratch(name, results, operands, attributes):
    """How many bytes of scratch memory a call takes, and the name of its target.

    That is asked of JAX's GPUs, if it has any, and else of the CPU: what a GPU takes that is not here is not known, nor what a
    call takes whose shapes have variables. Such calls get memory of XLA's allocator, and are not recorded.
    """
    tensors = [[[str(tensor.dtype), list(tensor.shape)] for tensor in of] for of in (operands, results)]
    if not all(isinstance(size, int) for of in tensors for _, shape in of for size in shape):
        return 0, name + ".unrecorded"
    kinds = {np.int64: "int", np.float64: "float", np.bool_: "bool", str: "str"}
    call = {
        "op": name,
        "operands": tensors[0],
        "results": tensors[1],
        "attributes": {
            key: {kinds[type(value)]: value if isinstance(value, str) else value.item()}
            for key, value in attributes.items()
        },
    }
    sizes = [_library.scratch(json.dumps({**call, "gpu": gpu})) for gpu in _gpus() or (None,)]
    is_known = bool(_gpus()) and None not in sizes
    return max(size or 0 for size in sizes), name if is_known else name + ".unrecorded"


def _called_with_scratch(name, vmap_method, results, aliases, operands, attributes):
    """A call with one result more, the memory, which XLA lays out and uses for others before and after.

    Where the call is mapped, the size is asked for anew, for the shapes that it has then.
    """

    def once(*operands):
        size, target = _scratch(name, results, operands, attributes)
        scratch = jax.ShapeDtypeStruct((size,), jnp.uint8)
        return _called(target, vmap_method, [*results, scratch], aliases, operands, attributes)[:-1]

    call = jax.custom_batching.custom_vmap(once)

    @call.def_vmap
    def mapped(count, is_mapped, *operands):
        if vmap_method == "sequential":

            def one(parts):
                parts = iter(parts)
                return call(*[next(parts) if of else operand for operand, of in zip(operands, is_mapped)])

            made = jax.lax.map(one, [operand for operand, of in zip(operands, is_mapped) if of])
        else:
            times = count if vmap_method == "broadcast_all" else 1
            operands = [operand if of else jax.lax.broadcast(operand, (times,)) for operand, of in zip(operands, is_mapped)]
            several = [jax.ShapeDtypeStruct((count, *result.shape), result.dtype) for result in results]
            made = _called_with_scratch(name, vmap_method, several, aliases, operands, attributes)
        return made, [True] * len(results)

    # Arrays are not mapped, and go without a trace of their own.
    is_traced = any(isinstance(operand, jax.core.Tracer) for operand in operands)
    return call(*operands) if is_traced else once(*operands)


def _call(name, vmap_method, results, operands, attributes, aliases, called=_called):
    made = iter(called(
        name,
        vmap_method,
        [result for result in results if result is not None],
        aliases,
        [operand for operand in operands if operand is not None],
        {name: value for name, value in attributes.items() if value is not None},
    ))
    results = [None if result is None else next(made) for result in results]
    return results[0] if len(results) == 1 else tuple(results)


def _array(tensor):
    return None if tensor is None else jnp.asarray(tensor)


def _refuse_gradient(operator):
    def refuse(*_):
        raise TypeError(f"{operator} has no gradient; stop it with `jax.lax.stop_gradient`")

    return refuse, refuse


@functools.cache
def _without_gradient(operator, name):
    def refuse(*_):
        raise TypeError(f"{operator} has no gradient for `{name}`; stop it with `jax.lax.stop_gradient`")

    same = jax.custom_vjp(lambda tensor: tensor)
    same.defvjp(refuse, refuse)
    return same


def _constant(operator, name, tensor):
    """A tensor for which there is no gradient, which must not seem to have one of zero."""
    is_differentiable = isinstance(tensor, jax.core.Tracer) and jnp.issubdtype(tensor.dtype, jnp.inexact)
    return _without_gradient(operator, name)(tensor) if is_differentiable else tensor
