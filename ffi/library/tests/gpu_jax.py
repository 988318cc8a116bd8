"""The part of `gpu.py` that is for JAX: it prints rows of its table."""

import ctypes
import re
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import handlers

# Before the module for JAX gives XLA its handlers.
COUNTS = handlers.count()

import outside as writes
import tilewright_ops
import tilewright_ops.jax as ops

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_enable_x64", True)
failed = 0


def row(name, result, is_right):
    global failed
    failed += not is_right
    print(f"ROW\t{name}\t{str(result).replace(chr(9), ' ').replace(chr(10), ' ')}\t{int(is_right)}", flush=True)


def randn(*shape, dtype=jnp.float32, seed=0):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def rms_norm(x, weight):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * weight.astype(jnp.float32)).astype(x.dtype)


def attention(q, k, v):
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def cross_entropy(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), targets[:, None], 1).mean()


def compare(name, ours, theirs, *arguments):
    """Results and gradients under `jit`."""
    floats = tuple(at for at, given in enumerate(arguments) if jnp.issubdtype(given.dtype, jnp.floating))
    weighted = lambda x: (jnp.cos(jnp.arange(x.size, dtype=jnp.float32)) * x.ravel().astype(jnp.float32)).sum()
    scalar = lambda function: lambda *given: weighted(function(*given))
    found = (jax.jit(ours)(*arguments), *jax.jit(jax.grad(scalar(ours), floats))(*arguments))
    wanted = (theirs(*arguments), *jax.grad(scalar(theirs), floats)(*arguments))
    worst = max(float(jnp.abs(a.astype(jnp.float32) - b.astype(jnp.float32)).max() / jnp.abs(b).max()) for a, b in zip(found, wanted))
    # Results are rounded once, gradients are made of rounded results; sums of f32 are in another order.
    unit = float(jnp.finfo(arguments[0].dtype).eps)
    limit = 256 * unit if arguments[0].dtype == jnp.float32 else 8 * unit
    row(f"JAX, {name}, {arguments[0].dtype}", f"within {worst:.1e} of JAX, with gradients", worst <= limit)


def results():
    for dtype in (jnp.float32, jnp.float16, jnp.bfloat16):
        x, y, weight = randn(37, 200, dtype=dtype), randn(37, 200, dtype=dtype, seed=1), randn(200, dtype=dtype, seed=2)
        wide = lambda function: lambda *given: function(*(g.astype(jnp.float32) if jnp.issubdtype(g.dtype, jnp.floating) else g for g in given))
        compare("softmax", ops.softmax, wide(jax.nn.softmax), x)
        compare("rms_norm", ops.rms_norm, wide(rms_norm), x, weight)
        compare("swiglu", ops.swiglu, wide(lambda a, b: jax.nn.silu(a) * b), x, y)
        compare("cross_entropy", ops.cross_entropy, cross_entropy, x, jnp.arange(37) * 5)
        qkv = [randn(2, 130, 2, 64, dtype=dtype, seed=seed) for seed in range(3)]
        compare("flash_attention", lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0], attention, *qkv)


def mapped():
    qkv = [randn(3, 2, 64, 2, 64, seed=seed) for seed in range(3)]
    found = jax.jit(jax.vmap(lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0]))(*qkv)
    wanted = jax.vmap(attention)(*qkv)
    worst = float(jnp.abs(found - wanted).max())
    row("JAX, vmap of flash_attention", f"within {worst:.1e}", worst < 1e-4)


def replays():
    """A compiled function of several operators and its gradients, a thousand times with other inputs.

    XLA calls the operators the first time, records them once, and launches what it has recorded from then on: it calls nothing,
    as long as arrays are where they were. So nothing of a call is left when the next one begins.
    """
    count, layers = 1000, 4

    def of(norm, gate, softmax):
        def function(x, weight):
            for _ in range(layers):
                x = softmax(gate(norm(x, weight), x)) + x * 1.01
            return x

        def with_gradients(x, weight):
            y, pull = jax.vjp(function, x, weight)
            return y, *pull(np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype))

        return jax.jit(with_gradients)

    norm = lambda x, weight: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight
    ours = of(ops.rms_norm, ops.swiglu, ops.softmax)
    theirs = of(norm, lambda gate, x: jax.nn.silu(gate) * x, jax.nn.softmax)
    wide = lambda *given: [array.astype(jnp.float64) for array in given]
    weight, bases = randn(256), [randn(64, 256, seed=seed) for seed in range(7)]
    shifted = jax.jit(lambda x, by: x + by)
    step = 1e-3
    compiled = ours.lower(bases[0], weight).compile()
    operators = re.findall(r'custom_call_target="tilewright_ops\.([\w.]+)"', compiled.as_text())
    # From JAX in f64: of ours, and of JAX in f32.
    apart = lambda found, exact: max(float(jnp.abs(one - other).max() / jnp.abs(other).max()) for one, other in zip(found, exact))
    worst, own, compared, places = 0.0, 0.0, 0, set()
    before, start = COUNTS.total(), time.perf_counter()
    for at in range(count):
        x = jax.block_until_ready(shifted(bases[at % 7], np.float32(step * at)))
        found = jax.block_until_ready(compiled(x, weight))
        places.add(tuple(array.unsafe_buffer_pointer() for array in (x, *found)))
        if at % 50 == 49:
            exact = theirs(*wide(x, weight))
            worst, own = max(worst, apart(found, exact)), max(own, apart(theirs(x, weight), exact))
            compared += len(exact)
            exact = None
        x = found = None
    seconds = time.perf_counter() - start
    made, recorded = (now - then for now, then in zip(COUNTS.total(), before))
    text = f"{compared} results within {worst:.1e} of JAX in f64, as JAX in f32 within {own:.1e} ({seconds:.1f} s)"
    # Another order of sums, and division and exponentials of the hardware.
    row("JAX, jit of gradients, 1000 calls with other inputs", text, worst <= 4 * own)
    result = f"{made} calls of {len(operators)} operators made, {recorded} recorded, arrays at {len(places)} sets of addresses"
    # Each operator is called a few times, and not each time.
    is_right = len(operators) >= 6 * layers and recorded >= len(operators) and made + recorded <= len(operators) * count / 10
    row("JAX, the same 1000 calls: what XLA has called", result, is_right)


def replayed_errors():
    """An index outside in a call of which everything was recorded before: XLA calls nothing, and `synchronize` tells."""
    take = jax.jit(lambda x, ids: ops.take(x, ids) * 2)
    x, good, bad = randn(8), jnp.array([7, 0], jnp.int64), jnp.array([1, 8], jnp.int64)
    for _ in range(5):
        jax.block_until_ready(take(x, good))
    text, is_replay = "no error", False
    for _ in range(20):
        before, text = COUNTS.total(), "no error"
        try:
            jax.block_until_ready(take(x, bad))
            tilewright_ops.synchronize()
        except Exception as error:
            text = str(error)
        is_replay = COUNTS.total() == before
        if is_replay:
            break
    is_right = is_replay and "elementwise.rs:" in text and "loads element 8 of `x`, which has 8 elements" in text
    row("JAX, index 8 of 8 in a replay", text[:200] if is_replay else f"NOT REPLAYED in 20 calls: {text[:200]}", is_right)
    alive = bool((take(x, good) == 2 * x[good]).all())
    tilewright_ops.synchronize()
    row("JAX, after the replay", "the context is alive" if alive else "results are wrong", alive)


def with_scratch():
    """Gradients of operators that need memory beside their results, by name: a scalar of arrays, and arrays."""
    wide = lambda x: x.astype(jnp.float32)
    square = lambda x: (wide(x) ** 2).mean()
    x, w, b = randn(512, 256), randn(256, seed=1), randn(256, seed=2)
    square_weight, half = randn(256, 256, seed=3), lambda x: x.astype(jnp.bfloat16)
    qkv = [half(randn(2, 256, 4, 64, seed=seed)) for seed in range(3)]
    attend = lambda q, k, v: ops.flash_attention(q, k, v, causal=True)[0]
    ids, targets = jnp.arange(512) * 7 % 101, jnp.arange(512) % 256
    return {
        "rms_norm": (lambda x, w: square(ops.rms_norm(x, w)), (x, w)),
        "layer_norm": (lambda x, w, b: square(ops.layer_norm(x, w, b)), (x, w, b)),
        "add_rms_norm": (lambda x, w: sum(square(y) for y in ops.add_rms_norm(x, 2 * x, w)), (x, w)),
        "linear": (lambda x, a, b: square(ops.linear(x, a, b)), (x, square_weight, b)),
        "linear in bfloat16": (lambda x, a: square(ops.linear(x, a)), (half(x), half(square_weight))),
        "linear of few rows": (lambda x, a: square(ops.linear(x, a)), (half(randn(16, 8192)), half(randn(64, 8192, seed=1)))),
        "cross_entropy": (lambda x: ops.cross_entropy(x, targets), (x,)),
        "embedding": (lambda table: square(ops.embedding(table, ids)), (half(randn(101, 256)),)),
        "flash_attention": (lambda *qkv: square(attend(*qkv)), tuple(qkv)),
        "vmap of flash_attention": (lambda *qkv: square(jax.vmap(attend)(*qkv)), tuple(x[:, None] for x in qkv)),
        "vmap of rms_norm": (lambda x, w: square(jax.vmap(ops.rms_norm, (0, None))(x, w)), (x.reshape(4, 128, 256), w)),
    }


def calls(module):
    """The operators that a module of StableHLO calls, each with the bytes of scratch memory that it is given, if any."""
    found = re.findall(r"custom_call @tilewright_ops\.([\w.]+)(.*)", module)
    sizes = [(name, re.search(r"tensor<(\d+)xui8>\)?(?: loc\(.*\))?$", rest)) for name, rest in found]
    return [(name, size and int(size.group(1))) for name, size in sizes]


def replayed_gradients():
    """Gradients whose operators need memory beside their results, many times: each replay uses it again, and nobody else may.

    An operator that was given too little refuses to be recorded, so that these rows also say that the sizes are right.
    """
    for name, (function, arguments) in with_scratch().items():
        gradient = jax.jit(jax.grad(function, tuple(range(len(arguments)))))
        unrecorded = [entry for entry, _ in calls(gradient.lower(*arguments).as_text()) if entry.endswith(".unrecorded")]
        scaled = lambda at: [(given * (1 + at % 3)).astype(given.dtype) for given in arguments]
        first, worst, kept = [gradient(*scaled(at)) for at in range(3)], 0.0, []
        first = [[np.asarray(one.astype(jnp.float32)) for one in ones] for ones in first]
        for at in range(60):
            found = gradient(*scaled(at))
            # Others take and give back memory meanwhile.
            kept = [*kept[-7:], jnp.full((512, 256), float(at))]
            pairs = zip(found, first[at % 3])
            worst = max(worst, *(float(np.abs(np.asarray(a.astype(jnp.float32)) - b).max() / np.abs(b).max()) for a, b in pairs))
        # Some add in an order that changes, and results of 16 bits are rounded once.
        limit = 1e-4 if arguments[0].dtype == jnp.float32 else 2e-2
        result = f"within {worst:.1e} of the first calls" + (f", UNRECORDED: {unrecorded}" if unrecorded else "")
        row(f"JAX, 60 calls of gradients of {name}", result, worst <= limit and not unrecorded)


def beside_the_arena():
    """The bytes of the GPU that are in use and not XLA's: the context, code, and what graphs keep."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    device = jax.local_devices()[0]
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ordinal = device.local_hardware_id
    codes = [
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal),
        cuda.cuCtxPushCurrent_v2(context),
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context)),
        cuda.cuDevicePrimaryCtxRelease_v2(ordinal),
    ]
    assert codes == [0] * len(codes), codes
    return total.value - free.value - device.memory_stats()["pool_bytes"]


def recorded_memory():
    """Four gradients of attention in one function, each with 40 to 65 MiB of sums in f32, for four shapes."""
    count, megabyte = 4, 2**20

    def gradient(tokens):
        q = randn(2, tokens, 8, 128, dtype=jnp.bfloat16)
        part = lambda q, at: ops.flash_attention(q + at, q, q, causal=True)[0]
        loss = lambda q: sum((part(q, at) ** 2).astype(jnp.float32).mean() for at in range(count))
        return jax.jit(jax.grad(loss)).lower(q).compile(), q

    functions = [gradient(tokens) for tokens in (8192, 7168, 6144, 5120)]
    temporary, block = functions[0][0].memory_analysis().temp_size_in_bytes, functions[0][1].nbytes
    # What each call saves and its gradients, each four blocks, may all be there, with sums for one of them, or two.
    most = count * 8 * block + 2 * (130 * 2 * 8192 * 8 * 4)
    row("JAX, memory of 4 calls with 65 MiB each", f"{temporary / megabyte:.0f} MiB", temporary <= most)
    run = lambda function, q: jax.block_until_ready(function(q))
    run(*functions[0])
    before = beside_the_arena()
    for _ in range(5):
        for function in functions:
            run(*function)
    grown = (beside_the_arena() - before) / megabyte
    row("JAX, memory beside XLA's after 4 recordings of such calls", f"{grown:+.0f} MiB", grown < 128)


def elsewhere():
    """Calls that are traced without the GPU that runs them."""
    x, weight = randn(64, 256), randn(256, seed=1)
    gradient = jax.jit(jax.grad(lambda x, w: (ops.rms_norm(x, w) ** 2).mean(), (0, 1)))
    wanted = jax.jit(jax.grad(lambda x, w: (rms_norm(x, w) ** 2).mean(), (0, 1)))(x, weight)
    worst = lambda found: max(float(np.abs(np.asarray(a) - np.asarray(b)).max() / jnp.abs(b).max()) for a, b in zip(found, wanted))
    on_cpu = worst(gradient(*jax.device_put((x, weight), jax.devices("cpu")[0])))
    row("JAX, gradients on the CPU beside a GPU", f"within {on_cpu:.1e} of JAX", on_cpu < 1e-4)
    rows, = jax.export.symbolic_shape("rows")
    name = "tilewright_ops.rms_norm_backward.unrecorded"
    allowed = [jax.export.DisabledSafetyCheck.custom_call(target) for target in (name, "tilewright_ops.rms_norm")]
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((rows, 256), (256,))]
    exported = jax.export.export(gradient, platforms=["cuda"], disabled_checks=allowed)(*shapes)
    unknown = max(worst(exported.call(x, weight)) for _ in range(6))
    row("JAX, exported gradients of any number of rows", f"within {unknown:.1e} of JAX", unknown < 1e-4)


def outside():
    text = "no error"
    try:
        jax.block_until_ready(jax.jit(ops.take)(randn(8), jnp.array([1, 8], jnp.int64)))
        tilewright_ops.synchronize()
    except Exception as error:
        text = str(error)
    row("JAX, index 8 of 8", text[:200], "elementwise.rs:" in text)
    found = jax.jit(ops.take)(randn(8), jnp.array([7, 0], jnp.int64))
    alive = bool((found == randn(8)[jnp.array([7, 0])]).all())
    row("JAX, afterwards", "the context is alive" if alive else "results are wrong", alive)
    for one in writes.in_jax():
        row(*one)


print(f"jax {jax.__version__} on {jax.devices()[0]}", flush=True)
for part in (outside, results, mapped, replays, replayed_errors, replayed_gradients, recorded_memory, elsewhere):
    try:
        part()
    except Exception as error:
        row(f"JAX, {part.__name__}", f"{type(error).__name__}: {str(error)[:300]}", False)
sys.exit(1 if failed else 0)
