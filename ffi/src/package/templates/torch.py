"""The operators for PyTorch.

Functions of this module have gradients and take `out`. The operators themselves are in `torch.ops.@NAME@`; they have no
gradients of their own.
"""

import warnings as _warnings

import torch
import torch.autograd.forward_ad as _forward_ad

from . import _library

_library.register_torch()

# PyTorch warns where a gradient would have to go through an operator itself, and goes on without it, to gradients that are wrong.
_warnings.filterwarnings("error", r"@NAME@::\w+: an autograd kernel was not registered", UserWarning)

_is_grad_enabled = torch.is_grad_enabled
# Autograd must not use what it has saved of a tensor that was written since. `torch.compile` sees to that itself.
_is_compiling = torch.compiler.is_dynamo_compiling
# What `torch.autograd.graph.increment_version` calls, without half a microsecond of Python around it.
_note_writes = getattr(torch._C, "_increment_version", torch.autograd.graph.increment_version)


def _refuse_gradient(operator, **tensors):
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise RuntimeError(
                f"{operator}: `{name}` requires a gradient, but the operator has none for it; "
                f"call it under `torch.no_grad()`, or with `{name}.detach()`"
            )


def _refuse_tangent(operator, **tensors):
    """PyTorch itself would take what the operator gives for a constant."""
    for name, tensor in tensors.items():
        if tensor is not None and _forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError(
                f"{operator}: `{name}` has a tangent, but the operator has no derivative in forward mode; "
                f"use `torch.autograd.grad`, or the tensor without its tangent, `torch.autograd.forward_ad.unpack_dual({name}).primal`"
            )


def _kind(tensor):
    return tensor.shape, tensor.dtype, tensor.device


def _zeros(shape, dtype, device):
    return torch.zeros(shape, dtype=dtype, device=device)


def _refuse_out(operator):
    raise RuntimeError(f"{operator}: with `out` there is no gradient; call it under `torch.no_grad()`")
