"""The operators of the example in JAX."""

import jax
import jax.numpy as jnp
import numpy as np

import harness
import stubs
import tw_example
import tw_example.jax as ops

jax.config.update("jax_enable_x64", True)
ON_CPU = jax.default_backend() == "cpu"


def randn(*shape, dtype=jnp.float32, seed=0):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def close(found, expected, ulps=16):
    """Equal within a few units in the last place of the largest element."""
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
    largest = max(float(jnp.abs(expected).max()), 1e-30) if expected.size else 0
    error = float(jnp.abs(found.astype(jnp.float64) - expected.astype(jnp.float64)).max()) if expected.size else 0
    limit = ulps * float(jnp.finfo(expected.dtype).eps) * largest
    assert error <= limit, f"{error} exceeds {limit}"


def test_results_are_those_of_jax_in_all_float_dtypes():
    for dtype in (jnp.float32, jnp.float64, jnp.float16, jnp.bfloat16):
        x = randn(37, 100, dtype=dtype)
        # JAX rounds after each operation, the kernel once.
        expected = jax.nn.silu(x.astype(jnp.float64)).astype(dtype)
        close(ops.silu(x), expected)
        close(jax.jit(ops.silu)(x), expected)
    for shape in ((0,), (), (3, 0, 5)):
        close(ops.silu(randn(*shape)), jax.nn.silu(randn(*shape)))


def test_every_dtype_goes_through():
    names = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64"
    for name in names.split():
        x = jnp.arange(-3, 4).astype(getattr(jnp, name))
        y = ops.copied(x)
        assert y.dtype == x.dtype, name
        assert np.asarray(y).tobytes() == np.asarray(x).tobytes(), name


def test_outputs_have_the_shapes_and_dtypes_that_are_described():
    x = randn(4, 5, 64, dtype=jnp.float16)
    close(ops.row_sum(x), x.astype(jnp.float32).sum(-1), ulps=64)
    x = jnp.arange(24).reshape(3, 8)
    even, odd = jax.jit(ops.pairs)(x)
    assert (even == x[:, 0::2]).all() and (odd == x[:, 1::2]).all()
    even, odd = ops.pairs(x, count=3)
    assert (even == x[:, 0:6:2]).all() and (odd == x[:, 1:6:2]).all()


def test_optional_tensors_and_attributes_have_defaults():
    x, weight = randn(6, 10), randn(10, seed=1)
    close(ops.scaled(x), x)
    close(ops.scaled(x, weight), x * weight)
    close(jax.jit(lambda x, w: ops.scaled(x, w, 2.5))(x, weight), 2.5 * x * weight)
    assert (ops.reversed(x) == x.reshape(-1)[::-1].reshape(x.shape)).all()
    assert (ops.reversed(x, "twice") == x).all()
    if ON_CPU:
        close(ops.shifted(x), x + 1)
        close(ops.shifted(x, by=0.5), x + 0.5)
        close(ops.shifted(x, negative=True), x - 1)


def test_what_is_written_in_place_is_a_result():
    x, y = randn(7, 9), randn(7, 9, seed=1)
    before = np.asarray(x).copy()
    close(ops.add_assign(x, y, alpha=0.5), x + 0.5 * y)
    assert (np.asarray(x) == before).all(), "arrays of JAX never change"
    twice = jax.jit(lambda x, y: ops.add_assign(ops.add_assign(x, y), y) + x)
    close(twice(x, y), x + y + y + x)


def test_gradients_are_those_of_jax():
    x, weight = randn(6, 10, dtype=jnp.float64), randn(10, dtype=jnp.float64, seed=1)
    close(jax.grad(lambda x: ops.silu(x).sum())(x), jax.grad(lambda x: jax.nn.silu(x).sum())(x))
    ours = jax.jit(jax.grad(lambda x, w: (ops.scaled(x, w, 1.5) ** 2).sum(), argnums=(0, 1)))(x, weight)
    theirs = jax.grad(lambda x, w: ((1.5 * x * w) ** 2).sum(), argnums=(0, 1))(x, weight)
    for one, other in zip(ours, theirs):
        close(one, other)
    close(jax.grad(lambda x: ops.scaled(x, None, 1.5).sum())(x), jnp.full_like(x, 1.5))


def test_gradients_that_do_not_exist_are_refused():
    text = "tw_example.row_sum has no gradient"
    harness.check_error(TypeError, text, lambda: jax.grad(lambda x: ops.row_sum(x).sum())(randn(4, 4)))
    stopped = lambda x: ops.row_sum(jax.lax.stop_gradient(x)).sum() + x.sum()
    close(jax.grad(stopped)(randn(4, 4)), jnp.ones((4, 4), jnp.float32))


def test_vmap_maps_operators_and_their_gradients():
    x, weight = randn(3, 4, 5), randn(3, 5, seed=1)
    close(jax.vmap(ops.silu)(x), jax.nn.silu(x))
    close(jax.vmap(ops.row_sum)(x), x.sum(-1))
    close(jax.vmap(ops.scaled)(x, weight), x * weight[:, None])
    close(jax.vmap(ops.scaled, in_axes=(0, None))(x, weight[0]), x * weight[0])
    close(jax.vmap(jax.grad(lambda x: ops.silu(x).sum()))(x), jax.vmap(jax.grad(lambda x: jax.nn.silu(x).sum()))(x))
    even, _ = jax.vmap(lambda x: ops.pairs(x, 2))(x)
    assert (even == x[..., 0:4:2]).all()


def through(vmap_method):
    """The elements as they are, through scratch memory, by an operator that is mapped in this way."""
    def call(x):
        results = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
        return ops._call("reversed", vmap_method, results, [x], {"how": "twice"}, {}, ops._called_with_scratch)

    return call


def test_scratch_memory_is_a_result_of_the_size_that_is_taken():
    x = randn(500)
    sizes = lambda function, *given: harness.scratch_sizes(jax.jit(function).lower(*given).as_text())
    if ON_CPU:
        assert sizes(lambda x: ops.reversed(x, "twice"), x) == [2048], "500 floats, in pieces of 256 bytes"
        assert sizes(ops.reversed, x) == [0]
        assert sizes(jax.vmap(through("sequential")), randn(3, 500)) == [2048], "one after the other"
        assert sizes(jax.vmap(through("broadcast_all")), randn(3, 500)) == [6144]
        assert sizes(jax.vmap(through("expand_dims")), randn(3, 500)) == [6144]
        assert sizes(jax.vmap(jax.vmap(through("broadcast_all"))), randn(2, 3, 500)) == [12032]
    assert (jax.jit(lambda x: ops.reversed(ops.reversed(x, "twice"), "twice"))(x) == x).all()


def test_vmap_maps_operators_with_scratch_memory():
    x = randn(2, 3, 500)
    for method in ("sequential", "broadcast_all", "expand_dims"):
        one = through(method)
        for function in (jax.vmap(one), jax.vmap(jax.vmap(one)), jax.vmap(one, 1, 1), jax.vmap(lambda x: one(x) + one(2 * x) - one(2 * x))):
            assert jnp.allclose(function(x), x), method
            assert jnp.allclose(jax.jit(function)(x), x), method
    assert (jax.vmap(lambda x: ops.reversed(x))(x[0]) == x[0, :, ::-1]).all()


def test_scratch_memory_of_unknown_shapes_is_given_at_the_call():
    size, = jax.export.symbolic_shape("n")
    function = jax.jit(lambda x: ops.reversed(x, "twice") + 1)
    check = jax.export.DisabledSafetyCheck.custom_call("tw_example.reversed.unrecorded")
    exported = jax.export.export(function, disabled_checks=[check])(jax.ShapeDtypeStruct((size,), jnp.float32))
    assert harness.scratch_sizes(exported.mlir_module()) == [0]
    for count in (7, 500):
        close(exported.call(randn(count)), randn(count) + 1)


def test_errors_say_operator_argument_and_what_is_accepted():
    x = randn(4, 6)
    called = lambda call: lambda: jax.block_until_ready(call())
    check = lambda text, call: harness.check_error(jax.errors.JaxRuntimeError, text, called(call))
    refused = lambda text, call: check("INVALID_ARGUMENT: " + text, call)
    refused("silu: `x` has dtype i32; accepted: f32, f16, bf16, f64", lambda: ops.silu(x.astype(jnp.int32)))
    text = "silu: `x` has XLA's dtype 15, which no kernel computes with; accepted: bool, i8,"
    refused(text, lambda: ops.silu(x.astype(jnp.complex64)))
    refused("scaled: `x` has 1 dimensions; accepted: 2 dimensions", lambda: ops.scaled(x[0]))
    refused("scaled: `x` has 1 dimensions; accepted: 2 dimensions", lambda: jax.jit(ops.scaled)(x[0]))
    refused("scaled: `weight` has dtype f64; accepted: f32", lambda: ops.scaled(x, jnp.ones(6, jnp.float64)))
    refused("scaled: `weight` has shape [1]; accepted: [6], a number per column", lambda: ops.scaled(x, x[0, :1]))
    refused("reversed: `how` is \"thrice\"; accepted: \"once\", \"twice\"", lambda: ops.reversed(x, "thrice"))
    # Sizes of results are computed where JAX traces.
    text = "pairs: `x` has 1 dimensions; accepted: a tensor with dimension 1"
    for pairs in (ops.pairs, jax.jit(ops.pairs)):
        harness.check_error(ValueError, text, lambda: pairs(x[0]))
    check("INTERNAL: fails: 24 elements are too many", lambda: ops.fails(x))
    check("INTERNAL: panics: panicked: 24 elements are unlucky", lambda: ops.panics(x))


def test_stubs_are_those_of_the_functions():
    stubs.check(tw_example, ops)


def test_errors_of_kernels_name_their_line():
    def call():
        jax.block_until_ready(ops.launches_out_of_bounds(randn(8)))
        tw_example.synchronize()

    # On a GPU nobody has noticed when the call has ended: there it is the error of waiting.
    kind = jax.errors.JaxRuntimeError if ON_CPU else RuntimeError
    harness.check_error(kind, "of `x`, which has 8 elements", call)
    close(ops.silu(randn(3)), jax.nn.silu(randn(3)))


harness.run(globals())
