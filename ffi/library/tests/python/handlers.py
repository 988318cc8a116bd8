"""Counts what XLA calls of a library: `count` stands between both, before `tilewright_ops.jax` is imported.

XLA calls a handler when it runs an operator, and when it records it into a command buffer, with a stream that is captured then.
A command buffer that is launched again calls nothing.
"""

import collections
import ctypes
import functools
import threading

# A frame with this extension asks for the handler's version and traits.
METADATA = 1
EXECUTE = 3
CAPTURED = 1
KINDS = "made", "recorded"


class Extension(ctypes.Structure):
    """`XLA_FFI_Extension_Base`"""

    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("next", ctypes.c_void_p)]


class GetStream(ctypes.Structure):
    """`XLA_FFI_Stream_Get_Args`"""

    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


class DestroyError(ctypes.Structure):
    """`XLA_FFI_Error_Destroy_Args`"""

    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("error", ctypes.c_void_p)]


class Api(ctypes.Structure):
    """`XLA_FFI_Api`, as far as it is used here."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", ctypes.c_size_t * 3),
        ("internal", ctypes.c_void_p),
        ("create_error", ctypes.c_void_p),
        ("error_message", ctypes.c_void_p),
        ("destroy_error", ctypes.CFUNCTYPE(None, ctypes.POINTER(DestroyError))),
        ("register_handler", ctypes.c_void_p),
        ("stream", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(GetStream))),
    ]


class Frame(ctypes.Structure):
    """`XLA_FFI_CallFrame`, as far as it is used here."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(Extension)),
        ("api", ctypes.POINTER(Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
    ]


Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Frame))


@functools.cache
def driver():
    return ctypes.CDLL("libcuda.so.1")


def is_captured(frame):
    """Whether the stream of a call is captured. The CPU has none."""
    api = frame.api.contents
    given = GetStream(ctypes.sizeof(GetStream), None, frame.context, None)
    error = api.stream(ctypes.byref(given))
    if error:
        api.destroy_error(ctypes.byref(DestroyError(ctypes.sizeof(DestroyError), None, error)))
        return False
    status = ctypes.c_int()
    code = driver().cuStreamIsCapturing(ctypes.c_void_p(given.stream), ctypes.byref(status))
    assert code == 0, f"cuStreamIsCapturing gives {code}"
    return status.value == CAPTURED


class Counts:
    """Calls by the operator's name and by whether they were made or recorded."""

    def __init__(self, library):
        self.counts, self.lock, self.wrong = collections.Counter(), threading.Lock(), None
        self.handlers, self.plain = {}, library.handler

    def handler(self, name):
        """A handler that counts and then calls the library's."""
        if name not in self.handlers:
            inner = ctypes.cast(self.plain(name), Handler)

            def call(frame):
                self.note(name, frame.contents)
                return inner(frame)

            self.handlers[name] = Handler(call)
        return self.handlers[name]

    def note(self, name, frame):
        if frame.extension and frame.extension.contents.kind == METADATA or frame.stage != EXECUTE:
            return
        try:
            kind = KINDS[is_captured(frame)]
        except Exception as error:
            kind, self.wrong = "unknown", error
        with self.lock:
            self.counts[name, kind] += 1

    def total(self):
        """How many calls were made, and how many recorded."""
        if self.wrong:
            raise self.wrong
        with self.lock:
            return tuple(sum(count for (_, of), count in self.counts.items() if of == kind) for kind in KINDS)


def count():
    """Counts from now on."""
    from tilewright_ops import _library

    counts = Counts(_library)
    _library.handler = counts.handler
    return counts
