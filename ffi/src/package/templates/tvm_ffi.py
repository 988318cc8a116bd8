"""The operators for everything that speaks DLPack, such as NumPy, through TVM-FFI.

Results are made for arrays of NumPy and PyTorch; for others, give `out`.
"""

import numpy as np
import tvm_ffi

from . import _library

_module = tvm_ffi.load_module(_library.PATH)
_min, _max, _size = min, max, _library.size


def _empty(like, shape, dtype):
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype)
    if hasattr(like, "new_empty"):
        import torch

        return like.new_empty(shape, dtype=getattr(torch, dtype) if isinstance(dtype, str) else dtype)
    raise TypeError(f"give `out`: no result can be made for {type(like).__name__}")
