"""The library's operators in JAX."""

import jax
import jax.numpy as jnp
import numpy as np

import harness
import stubs
import tilewright_ops
import tilewright_ops.jax as ops

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
ON_CPU = jax.default_backend() == "cpu"


def randn(*shape, dtype=jnp.float32, seed=0):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def close(found, expected, ulps=16):
    """Equal within a few units in the last place of the largest element."""
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
    if found.size == 0:
        return
    largest = max(float(jnp.abs(expected).max()), 1e-30)
    worst = float(jnp.abs(found.astype(jnp.float64) - expected.astype(jnp.float64)).max())
    assert worst <= ulps * float(jnp.finfo(expected.dtype).eps) * largest, worst


def rms_norm(x, weight, eps=1e-5):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def attention(q, k, v):
    """The causal attention of `[.., tokens, heads, dim]`."""
    scores = jnp.einsum("...qhd,...khd->...hqk", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(scores), v)


def ours(q, k, v):
    return ops.flash_attention(q, k, v, causal=True)[0]


def cross_entropy(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1).mean()


def same(one, other, *arguments, ulps=64):
    """The results and gradients of two functions, with and without `jit`."""
    close(one(*arguments), other(*arguments), ulps)
    close(jax.jit(one)(*arguments), other(*arguments), ulps)
    floats = tuple(at for at, argument in enumerate(arguments) if jnp.issubdtype(argument.dtype, jnp.floating))
    weighted = lambda function: lambda *given: (jnp.cos(jnp.arange(function(*given).size)) * function(*given).ravel()).sum()
    mine = jax.jit(jax.grad(weighted(one), floats))(*arguments)
    theirs = jax.grad(weighted(other), floats)(*arguments)
    for found, expected in zip(mine, theirs):
        close(found, expected, ulps)


def test_results_and_gradients_are_those_of_jax():
    for dtype in (jnp.float32, jnp.float64):
        x, y, weight = randn(6, 33, dtype=dtype), randn(6, 33, dtype=dtype, seed=1), randn(33, dtype=dtype, seed=2)
        same(ops.softmax, jax.nn.softmax, x)
        same(ops.log_softmax, jax.nn.log_softmax, x)
        same(ops.rms_norm, rms_norm, x, weight)
        same(lambda a, b, w: ops.add_rms_norm(a, b, w)[0], lambda a, b, w: rms_norm(a + b, w), x, y, weight)
        same(ops.swiglu, lambda a, b: jax.nn.silu(a) * b, x, y)
        same(ops.geglu, lambda a, b: jax.nn.gelu(a, approximate=False) * b, x, y)
        same(ops.linear, lambda x, w: x @ w.T, x, y)
    targets = jnp.arange(6) * 5 % 33
    same(ops.cross_entropy, cross_entropy, randn(6, 33), targets)
    qkv = [randn(2, 7, 2, 16, seed=seed) for seed in range(3)]
    same(ours, attention, *qkv, ulps=128)


def test_vmap_maps_operators_and_their_gradients():
    x, weight = randn(3, 4, 8), randn(8, seed=1)
    close(jax.vmap(ops.softmax)(x), jax.nn.softmax(x))
    close(jax.vmap(ops.rms_norm, (0, None))(x, weight), rms_norm(x, weight))
    close(jax.vmap(ops.rms_norm)(x, randn(3, 8)), rms_norm(x, randn(3, 8)[:, None]))
    qkv = [randn(3, 2, 7, 2, 16, seed=seed) for seed in range(3)]
    close(jax.vmap(ours)(*qkv), attention(*qkv), 64)
    gradient = lambda function: jax.vmap(jax.grad(lambda q, k, v: function(q, k, v).sum()))
    close(gradient(ours)(*qkv), gradient(attention)(*qkv), 256)


def test_rows_have_a_last_dimension_also_where_calls_are_mapped():
    x, lse = jnp.zeros(5), jnp.zeros((5, 2))
    for op in (ops.softmax, ops.log_softmax):
        text = "log_softmax" if op is ops.log_softmax else "softmax"
        harness.check_error(ValueError, f"{text}: `x` has 0 dimensions; accepted: a tensor with dimension -1", lambda: jax.vmap(op)(x))
    for op in (ops.softmax_backward, ops.log_softmax_backward):
        harness.check_error(ValueError, "`y` has 0 dimensions", lambda: jax.vmap(op)(x, x))
    harness.check_error(ValueError, "`x` has 0 dimensions", lambda: jax.vmap(ops.swiglu_halves_backward)(x, x))
    q = jnp.zeros((5, 2, 16))
    text = "`q` has 2 dimensions; accepted: a tensor with dimension -3"
    backward = lambda q, lse: ops.flash_attention_backward(q, q, q, q, q, lse, None, False, None, None, None)
    harness.check_error(ValueError, text, lambda: jax.vmap(backward)(q, lse))


def test_scratch_memory_is_what_operators_take():
    sizes = lambda function, *given: harness.scratch_sizes(jax.jit(function).lower(*given).as_text())
    gradient = lambda function: jax.grad(lambda *given: function(*given).astype(jnp.float32).sum())
    # In pieces of 256 bytes: a number for each row, and one.
    assert sizes(ops.cross_entropy, randn(100, 33), jnp.arange(100) % 33) == [512 + 256]
    table, ids = randn(37, 64, dtype=jnp.float16), jnp.arange(5)
    order, = sizes(gradient(ops.embedding), table, ids)
    assert order >= 4 * (4 * 5 + 2 * 37) and order % 256 == 0, "indices and positions twice, and two numbers for each row"
    assert sizes(gradient(ops.embedding), table.astype(jnp.float32), ids) == [order]
    x, weight = randn(3, 300, 64), randn(64, seed=1)
    norm, = sizes(gradient(lambda w, x: ops.rms_norm(x, w)), weight, x[0])
    assert norm > 0 and norm % (64 * 4) == 0, "rows of sums"
    one_by_one = jax.vmap(gradient(lambda w, x: ops.rms_norm(x, w)), (None, 0))
    assert sizes(one_by_one, weight, x) == [norm], "used again by the next"
    qkv = [randn(3, 2, 70, 2, 16, seed=seed) for seed in range(3)]
    mapped, = sizes(jax.vmap(gradient(ours)), *qkv)
    assert mapped > 0 and [mapped] == sizes(gradient(ours), *[x.reshape(6, 70, 2, 16) for x in qkv])
    lonely, = sizes(jax.vmap(gradient(ours), (None, 0, None)), qkv[0][0], qkv[1], qkv[2][0])
    assert lonely == mapped, "what is not mapped is repeated"


def test_gradients_of_16_bits_go_through_scratch_memory():
    table, ids = randn(37, 64, dtype=jnp.bfloat16), jnp.arange(50) % 11
    weights = jnp.cos(jnp.arange(50 * 64.0)).reshape(50, 64).astype(jnp.bfloat16)
    gradient = lambda take: jax.jit(jax.grad(lambda table: (take(table, ids) * weights).astype(jnp.float32).sum()))
    wanted = jax.grad(lambda table: (table[ids] * weights.astype(jnp.float32)).sum())(table.astype(jnp.float32))
    close(gradient(ops.embedding)(table), wanted.astype(jnp.bfloat16), 2)


def test_rotary_turns_and_turns_back():
    x = randn(2, 5, 3, 8)
    angles = jnp.arange(5.0)[:, None] * 100.0 ** -(jnp.arange(4) / 4)
    cos, sin = jnp.cos(angles).astype(jnp.float32), jnp.sin(angles).astype(jnp.float32)
    y, back = jax.vjp(lambda x: ops.rotary(x, cos, sin), x)
    close(back(y)[0], x)
    a, b = jnp.split(x, 2, -1)
    cos, sin = cos[:, None], sin[:, None]
    close(y, jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1))


def test_gradients_that_operators_do_not_have_are_refused():
    x, angles = randn(2, 5, 3, 8), jnp.arange(20.0).reshape(5, 4)
    cos, sin = jnp.cos(angles).astype(jnp.float32), jnp.sin(angles).astype(jnp.float32)
    loss = lambda x, cos, sin: ops.rotary(x, cos, sin).sum()
    for wrapped in (lambda f: f, jax.jit, jax.checkpoint):
        for at, name in ((1, "cos"), (2, "sin"), ((0, 1), "cos")):
            text = f"rotary has no gradient for `{name}`; stop it with `jax.lax.stop_gradient`"
            harness.check_error(TypeError, text, lambda: jax.grad(wrapped(loss), at)(x, cos, sin))
        close(jax.grad(wrapped(loss))(x, cos, sin), jax.grad(loss)(x, cos, sin))
        stopped = lambda x, cos: loss(x, jax.lax.stop_gradient(cos), sin)
        assert not jax.grad(wrapped(stopped), 1)(x, cos).any()
    many = jax.vmap(jax.grad(loss), (0, None, None))(x[None], cos, sin)
    close(many[0], jax.grad(loss)(x, cos, sin))


def test_logarithms_of_sums_have_gradients():
    q, k, v = (randn(2, 7, 2, 16, seed=seed) for seed in range(3))
    lse = lambda q, k: jax.nn.logsumexp(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4, axis=-1)
    same(lambda q, k: ops.flash_attention(q, k, v)[1], lse, q, k, ulps=128)


def test_what_is_written_in_place_is_a_result():
    logits, targets = randn(6, 33), jnp.arange(6)
    losses, gradient = ops.cross_entropy_in_place(logits, targets, ops.cross_entropy_scale(targets))
    close(losses.mean(), cross_entropy(logits, targets))
    close(gradient, jax.grad(cross_entropy)(logits, targets), 64)
    x, angles = randn(2, 5, 3, 8), jnp.arange(20.0).reshape(5, 4)
    cos, sin = jnp.cos(angles).astype(jnp.float32), jnp.sin(angles).astype(jnp.float32)
    y = ops.rotary_in_place(x, cos, sin)
    close(y, ops.rotary(x, cos, sin))
    close(ops.rotary_in_place(y, cos, sin, backward=True), x)


def test_errors_say_operator_argument_and_what_is_accepted():
    x = randn(4, 6)

    def refused(text, op, *given):
        for call in (op, jax.jit(op)):
            harness.check_error(jax.errors.JaxRuntimeError, text, lambda: jax.block_until_ready(call(*given)))

    refused("INVALID_ARGUMENT: softmax: `x` has dtype i32; accepted: f32, f16, bf16, f64", ops.softmax, x.astype(jnp.int32))
    refused("rms_norm: `weight` has dtype f64; accepted: f32", ops.rms_norm, x, jnp.ones(6, jnp.float64))
    refused("rms_norm: `weight` has the shape [5]; the other arguments ask for [6]", ops.rms_norm, x, x[0, :5])
    refused("cross_entropy: `targets` has dtype f32; accepted: i64, i32", ops.cross_entropy, x, x[:, 0])
    refused("cross_entropy: `logits` has 1 dimensions; accepted: 2 dimensions", ops.cross_entropy, x[0], jnp.arange(6))
    refused("embedding: `ids` has dtype f32; accepted: i64, i32", ops.embedding, x, x[:, 0])
    refused("take: `ids` has dtype i32; accepted: i64", ops.take, x[0], jnp.arange(3, dtype=jnp.int32))
    refused("linear: `weight` has 1 dimensions; accepted: 2 dimensions", ops.linear, x, x[0])
    refused("swiglu: `gate` has shape [4, 3]; accepted: that of `x`, [4, 6]", ops.swiglu, x[:, :3], x)
    refused("swiglu_halves: `x` has shape [4, 5]; accepted: an even last dimension", ops.swiglu_halves, x[:, :5])
    refused("geglu: `approximate` is \"sin\"; accepted: \"none\", \"tanh\"", lambda x: ops.geglu(x, x, "sin"), x)
    # Sizes of results are computed where JAX traces.
    text = "flash_attention: `q` has 2 dimensions; accepted: a tensor with dimension -3"
    for call in (ops.flash_attention, jax.jit(ops.flash_attention)):
        harness.check_error(ValueError, text, lambda: call(x, x, x))


def test_stubs_are_those_of_the_functions():
    stubs.check(tilewright_ops, ops)


def test_indices_outside_are_errors_with_the_line():
    def call():
        jax.block_until_ready(jax.jit(ops.take)(randn(8), jnp.array([1, 8])))
        tilewright_ops.synchronize()

    # On a GPU nobody has noticed when the call has ended: there it is the error of waiting.
    kind = jax.errors.JaxRuntimeError if ON_CPU else RuntimeError
    harness.check_error(kind, "elementwise.rs:", call)
    close(jax.jit(ops.take)(randn(8), jnp.array([7, 0])), randn(8)[jnp.array([7, 0])])
    assert np.isfinite(np.asarray(ops.softmax(randn(3, 4)))).all()


harness.run(globals())
