"""Operators for PyTorch (`@NAME@.torch`), JAX (`@NAME@.jax`) and what speaks DLPack (`@NAME@.tvm_ffi`).

@OPS@
"""

from ._library import synchronize

__version__ = "@VERSION@"
__all__ = ["synchronize"]
