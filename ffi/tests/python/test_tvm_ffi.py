"""The operators of the example through TVM-FFI, on arrays of NumPy and tensors of PyTorch."""

import numpy as np
import torch
import tvm_ffi

import harness
import stubs
import tw_example
import tw_example.tvm_ffi as ops
from tw_example import _library

random = np.random.default_rng(0)
module = tvm_ffi.load_module(_library.PATH)


def randn(*shape, dtype="float32"):
    return random.standard_normal(shape).astype(dtype)


def silu(x):
    return x / (1 + np.exp(-x))


def close(found, expected, ulps=16):
    """Equal within a few units in the last place of the largest element."""
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
    limit = ulps * np.finfo(expected.dtype).eps * np.abs(expected).max(initial=0)
    assert np.abs(found.astype("f8") - expected.astype("f8")).max(initial=0) <= limit


def test_arrays_of_numpy_go_through():
    for dtype in ("float32", "float64"):
        x = randn(37, 100, dtype=dtype)
        close(ops.silu(x), silu(x))
    for dtype in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split():
        x = np.arange(-3, 4).astype(dtype)
        y = ops.copied(x)
        assert y.dtype == x.dtype and (y == x).all(), dtype
    assert ops.silu(np.empty((0, 3), "float32")).shape == (0, 3)


def test_outputs_are_made_or_given():
    x = randn(3, 8)
    y = np.empty_like(x)
    assert ops.silu(x, out=y) is y
    close(y, silu(x))
    even, odd = ops.pairs(x, 3)
    assert (even == x[:, 0:6:2]).all() and (odd == x[:, 1:6:2]).all()
    # Sums of 8 floats.
    close(ops.row_sum(x), x.sum(-1), ulps=64)
    assert ops.add_assign(y, x, 2.0) is None
    close(y, silu(x) + 2 * x)


def test_optional_tensors_and_attributes_have_defaults():
    x, weight = randn(6, 10), randn(10)
    close(ops.scaled(x), x)
    close(ops.scaled(x, weight, factor=2.5), np.float32(2.5) * x * weight)
    d_x, d_weight = ops.scaled_backward(x, x, None, 2.0)
    close(d_x, 2 * x)
    assert d_weight is None
    text = "pairs: `x` has 1 dimensions; accepted: a tensor with dimension 1"
    harness.check_error(ValueError, text, lambda: ops.pairs(x[0]))
    text = "`d_weight` is given, but `weight` is not; accepted: both, or neither"
    given = (np.empty_like(x), np.empty_like(weight))
    harness.check_error(ValueError, text, lambda: ops.scaled_backward(x, x, None, 2.0, out=given))
    assert (ops.reversed(x, "twice") == x).all()
    close(ops.shifted(x, by=0.5), x + np.float32(0.5))
    close(ops.shifted(x, negative=True), x - 1)
    # The function itself takes what the Rust function takes, attributes with defaults at the end left out.
    y = np.empty_like(x)
    module.scaled(x, weight, y)
    close(y, x * weight)
    module.reversed(x, y, "twice")
    assert (y == x).all()


def test_tensors_of_torch_go_through():
    x = torch.randn(5, 7)
    assert torch.allclose(ops.silu(x), torch.nn.functional.silu(x))
    assert ops.row_sum(x.bfloat16()).dtype == torch.float32
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        x = torch.arange(-3, 4).to(getattr(torch, name))
        assert torch.equal(ops.copied(x).view(torch.uint8), x.view(torch.uint8)), name


def test_strides_are_checked():
    x = randn(6, 8)
    text = "silu: `x` has shape [8, 6] with strides [1, 8]; accepted: a contiguous tensor"
    harness.check_error(ValueError, text, lambda: ops.silu(x.T))
    assert np.allclose(ops.silu(x[2:4]), silu(x[2:4]), atol=1e-6), "a part in one piece"


def test_errors_say_operator_argument_and_what_is_accepted():
    x, y = randn(4, 6), randn(4, 6)
    check = lambda kind, text, call: harness.check_error(kind, text, call)
    check(ValueError, "silu: `x` has dtype i32; accepted: f32, f16, bf16, f64", lambda: ops.silu(x.astype("int32")))
    check(ValueError, "silu: `x` has a dtype of DLPack's code 5, 64 bits", lambda: ops.silu(x.astype("complex64")))
    check(ValueError, "silu: `y` is f32 of shape [3]; accepted: f32 of shape [4, 6]", lambda: module.silu(x, randn(3)))
    check(ValueError, "silu: `y` is written, and shares memory with `x`", lambda: module.silu(x, x))
    check(ValueError, "silu: `y` is missing", lambda: module.silu(x))
    check(ValueError, "silu: `x` is an integer; accepted: a tensor", lambda: module.silu(3, y))
    check(ValueError, "scaled: `factor` is a string; accepted: a float", lambda: module.scaled(x, None, y, "2"))
    check(ValueError, "reversed: `how` is \"three times over\"; accepted: \"once\"", lambda: ops.reversed(x, "three times over"))
    check(RuntimeError, "silu: 3 arguments are given, 2 are taken", lambda: module.silu(x, y, y))
    check(RuntimeError, "fails: 24 elements are too many", lambda: ops.fails(x))
    check(RuntimeError, "panics: panicked: 24 elements are unlucky", lambda: ops.panics(x))
    check(TypeError, "give `out`: no result can be made for list", lambda: ops._empty([1], (1,), "float32"))


def test_stubs_are_those_of_the_functions():
    stubs.check(tw_example, ops)


def test_errors_of_kernels_name_their_line():
    text = "of `x`, which has 8 elements"
    harness.check_error(RuntimeError, text, lambda: ops.launches_out_of_bounds(randn(8)))
    close(ops.silu(randn(3) * 0), np.zeros(3, "float32"))
    tw_example.synchronize()


harness.run(globals())
