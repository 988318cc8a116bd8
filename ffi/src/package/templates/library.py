"""The library of operators of this package."""

import ctypes
import pathlib

PATH = str(pathlib.Path(__file__).with_name("@FILE@"))
_library = ctypes.CDLL(PATH)
_library.tilewright_torch_register.restype = ctypes.c_char_p
_library.tilewright_synchronize.restype = ctypes.c_char_p


def _check(text):
    if text is not None:
        raise RuntimeError(text.decode())


def handler(name):
    """The handler of an operator for XLA."""
    return getattr(_library, "tilewright_xla_" + name)


def register_torch():
    """Gives the operators to PyTorch, once."""
    _check(_library.tilewright_torch_register())


def synchronize():
    """Waits for all GPUs that operators were called on. Raises the oldest error of a kernel that was not raised yet."""
    _check(_library.tilewright_synchronize())
