"""The library of operators of this package."""

import ctypes
import functools
import pathlib

PATH = str(pathlib.Path(__file__).with_name("@FILE@"))
_library = ctypes.CDLL(PATH)
_library.tilewright_torch_register.restype = ctypes.c_char_p
_library.tilewright_synchronize.restype = ctypes.c_char_p
_library.tilewright_scratch.restype = ctypes.c_int64
_library.tilewright_scratch.argtypes = [ctypes.c_char_p]


def _check(text):
    if text is not None:
        raise RuntimeError(text.decode())


def size(operator, name, tensor, axis):
    """A size of which the shape of a result consists."""
    rank = len(tensor.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"{operator}: `{name}` has {rank} dimensions; accepted: a tensor with dimension {axis}")
    return tensor.shape[axis]


def handler(name):
    """The handler of an operator for XLA."""
    return getattr(_library, "tilewright_xla_" + name)


@functools.lru_cache(4096)
def _scratch(call):
    size = _library.tilewright_scratch(call.encode())
    # What is raised is asked again: memory may have been short.
    if size < 0:
        raise LookupError
    return size


def scratch(call):
    """How many bytes of scratch memory a call takes that JSON describes, `None` where that is not known."""
    try:
        return _scratch(call)
    except LookupError:
        return None


def register_torch():
    """Gives the operators to PyTorch, once."""
    _check(_library.tilewright_torch_register())


def synchronize():
    """Waits for all GPUs that operators were called on. Raises the oldest error of a kernel that was not raised yet.

    Where operators were captured into CUDA graphs, it waits for all of the GPU, whichever stream they are replayed on; so not
    while another stream is captured. Streams that may be gone are not waited for: of TVM-FFI's all but default streams, and
    of PyTorch's those that it did not make, `torch.cuda.ExternalStream`. What went wrong there is raised by the next call on
    the stream. JAX's streams are those of its clients, so do not wait after `jax.clear_backends()`.
    """
    _check(_library.tilewright_synchronize())
