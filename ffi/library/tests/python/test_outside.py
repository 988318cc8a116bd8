"""Indices outside of a tensor that is written: an exception with the line, and no write."""

import jax
import torch

import harness
import outside
import tilewright_ops.torch as ops

jax.config.update("jax_enable_x64", True)


def check(rows):
    wrong = [f"{name}: {result}" for name, result, is_right in rows if not is_right]
    assert rows and not wrong, "\n".join(wrong)


def test_pytorch_writes_what_is_inside():
    check(outside.in_torch("cpu"))


def test_jax_writes_what_is_inside():
    check(outside.in_jax())


def test_values_that_do_not_fit_are_refused():
    x, ids = torch.zeros(8), torch.tensor([1, 2])
    check = lambda text, *given: harness.check_error(RuntimeError, f"put_in_place: {text}", lambda: ops.put_in_place(*given))
    check("`values` has shape [3]; accepted: that of `ids`, [2]", x, ids, torch.ones(3))
    check("`values` has dtype f64; accepted: f32", x, ids, torch.ones(2).double())
    check("`ids` has dtype i32; accepted: i64", x, ids.int(), torch.ones(2))
    assert not x.any()


harness.run(globals())
