"""Values that are put at indices outside of a tensor: shared by the tests on the CPU and the check on a GPU.

What lies before and behind the tensor is ours too, and is as it was afterwards. Each function gives rows: what was done, what
came of it, and whether that is right.
"""

import re

COUNT = 1024
# What is everywhere at first.
SENTINEL = 7.0
FAR = 1 << 40


def told(call):
    """What a call raises, or what `synchronize` does after it."""
    import tilewright_ops

    try:
        call()
        tilewright_ops.synchronize()
    except Exception as error:
        return str(error).replace("\n", " ")
    return "no error"


def names_place(text, element=r"-?\d+"):
    """Whether an error names the line of the kernel, the kernel, the tensor and the element."""
    return bool(re.search(rf"elementwise\.rs:\d+:\d+: kernel `put` stores to element {element} of `x`, which has {COUNT} elements", text))


def expected(ids, values):
    """The elements of the tensor afterwards. A value for an index outside is nowhere."""
    elements = [SENTINEL] * COUNT
    for at, value in zip(ids, values):
        if 0 <= at < COUNT:
            elements[at] = value
    return elements


def lists():
    """Names, indices, and how an error may name the element."""
    for name, index in (
        ("the first behind", COUNT),
        ("the last before", -1),
        ("the last element of what lies behind", 2 * COUNT - 1),
        ("the first element of what lies before", -COUNT),
        ("2^40", FAR),
        ("-2^40", -FAR),
    ):
        yield name, [1, index, COUNT - 1], index
    yield "each of three times as many elements", list(range(-COUNT, 2 * COUNT)), r"-?\d+"


def in_torch(device):
    """The tensor is the middle third of one allocation."""
    import torch

    import tilewright_ops
    import tilewright_ops.torch as ops

    rows = []
    for name, ids, element in lists():
        # Whole numbers that all dtypes have.
        values = [float(at % 100 + 10) for at in range(len(ids))]
        wrong = []
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.float32):
            whole = torch.full((3 * COUNT,), SENTINEL, dtype=dtype, device=device)
            before, x, behind = whole.split(COUNT)
            given = torch.tensor(ids, device=device), torch.tensor(values, dtype=dtype, device=device)
            text = told(lambda: ops.put_in_place(x, *given))
            if not names_place(text, element):
                wrong.append(f"{dtype}: the error is {text[:200]}")
            if not (before == SENTINEL).all() or not (behind == SENTINEL).all():
                wrong.append(f"{dtype}: something is WRITTEN OUTSIDE")
            if x.tolist() != expected(ids, values):
                wrong.append(f"{dtype}: the elements inside are not those that were put")
        rows.append((f"torch, put at {name}", "; ".join(wrong) or text[:160], not wrong))
    x, ids = torch.zeros(COUNT, device=device), torch.arange(COUNT - 1, -1, -1, device=device)
    values = torch.arange(COUNT, dtype=torch.float32, device=device)
    ops.put_in_place(x, ids, values)
    tilewright_ops.synchronize()
    alive = torch.equal(x, values.flip(0)) and torch.equal(ops.take(x, ids), values)
    rows.append(("torch, after these", "the context is alive" if alive else "results are wrong", alive))
    return rows


def in_jax():
    """The tensor is an array among others, whose addresses tell the indices that their elements have from it."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import tilewright_ops
    import tilewright_ops.jax as ops

    rows = []
    address = lambda array: array.unsafe_buffer_pointer()
    for name, ids, element in lists():
        around = sorted((jax.block_until_ready(jnp.full(COUNT, SENTINEL, jnp.float32)) for _ in range(9)), key=address)
        x = around.pop(4)
        place, near = address(x), around[3:5]
        # What elements of the arrays before and behind are from here.
        ids = [*ids, *((address(one) - place) // 4 + at for one in near for at in (0, 1, COUNT - 1))]
        values = [float(at % 100 + 10) for at in range(len(ids))]
        given = jnp.array(ids, jnp.int64), jnp.array(values, jnp.float32)
        # The array is given away, so that its memory is that of the result.
        put = jax.jit(ops.put_in_place, donate_argnums=0).lower(x, *given).compile()
        wrong = ["a copy is written"] if " copy(" in put.as_text() else []
        results = []
        text = told(lambda: results.append(jax.block_until_ready(put(x, *given))))
        if not names_place(text):
            wrong.append(f"the error is {text[:200]}")
        if not all((np.asarray(one) == SENTINEL).all() for one in around):
            wrong.append("something is WRITTEN OUTSIDE")
        # The CPU has no results of a call that is wrong; on a GPU that is known later.
        for found in results:
            if address(found) != place:
                wrong.append("the result is elsewhere")
            if np.asarray(found).tolist() != expected(ids, values):
                wrong.append("the elements inside are not those that were put")
        rows.append((f"JAX, put at {name}", "; ".join(wrong) or text[:160], not wrong))
    ids = jnp.arange(COUNT - 1, -1, -1, dtype=jnp.int64)
    values = jnp.arange(COUNT, dtype=jnp.float32)
    x = jax.jit(ops.put_in_place)(jnp.zeros(COUNT, jnp.float32), ids, values)
    alive = bool((x == values[::-1]).all() and (jax.jit(ops.take)(x, ids) == values).all())
    tilewright_ops.synchronize()
    rows.append(("JAX, after these", "the context is alive" if alive else "results are wrong", alive))
    return rows
