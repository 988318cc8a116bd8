"""The operators of the example in PyTorch."""

import shutil

import torch
import torch.nn.functional as F

import every
import harness
import stubs
import tw_example
import tw_example.torch as ops
from tw_example import _library

# Where there is a GPU, everything runs there.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_CPU = DEVICE == "cpu"
raw = torch.ops.tw_example
# Operators that take strings are there from PyTorch 2.10 on.
HAS_STRINGS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10)
torch.manual_seed(0)


def randn(*shape, dtype=torch.float32, requires_grad=False):
    return torch.randn(shape, device=DEVICE, dtype=dtype).requires_grad_(requires_grad)


def close(found, expected, ulps=8):
    """Equal within a few units in the last place of the largest element."""
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found.dtype, found.shape)
    if found.numel() == 0:
        return
    largest = max(expected.abs().max().item(), 1e-30)
    error = (found.double() - expected.double()).abs().max().item()
    limit = ulps * torch.finfo(expected.dtype).eps * largest
    assert error <= limit, f"{error} exceeds {limit}"


def test_results_are_those_of_torch_in_all_float_dtypes():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = randn(37, 100, dtype=dtype)
        close(ops.silu(x), F.silu(x))
        close(raw.silu(x), F.silu(x))
    for shape in ((0,), (), (1,), (3, 0, 5), (2, 3, 4, 5, 6, 7, 2, 2, 2, 1)):
        x = randn(*shape)
        close(ops.silu(x), F.silu(x))


def test_every_dtype_goes_through():
    names = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64"
    for name in names.split():
        x = torch.arange(-3, 4, device=DEVICE).to(getattr(torch, name))
        y = ops.copied(x)
        assert y.dtype == x.dtype, name
        assert torch.equal(y.view(torch.uint8), x.view(torch.uint8)), name


def test_outputs_have_the_shapes_and_dtypes_that_are_described():
    x = randn(4, 5, 64, dtype=torch.float16)
    assert ops.row_sum(x).dtype == torch.float32
    # Sums of 64 floats of 16 bits in f32: exact but for the order.
    close(ops.row_sum(x), x.float().sum(-1), ulps=64)
    x = torch.arange(24, device=DEVICE).reshape(3, 8)
    even, odd = ops.pairs(x)
    assert torch.equal(even, x[:, 0::2]) and torch.equal(odd, x[:, 1::2])
    even, odd = ops.pairs(x, count=3)
    assert torch.equal(even, x[:, 0:6:2]) and torch.equal(odd, x[:, 1:6:2])


def test_optional_tensors_and_attributes_have_defaults():
    x, weight = randn(6, 10), randn(10)
    close(ops.scaled(x), x)
    close(ops.scaled(x, weight), x * weight)
    close(ops.scaled(x, factor=2.5), 2.5 * x)
    close(ops.scaled(x, weight, 2.5), 2.5 * x * weight)
    if HAS_STRINGS:
        assert torch.equal(ops.reversed(x), x.flatten().flip(0).reshape(x.shape))
        assert torch.equal(ops.reversed(x, "twice"), x)
    if ON_CPU:
        close(ops.shifted(x), x + 1)
        close(ops.shifted(x, by=0.5), x + 0.5)
        close(ops.shifted(x, negative=True), x - 1)


def test_tensors_are_written_in_place():
    x, y = randn(7, 9), randn(7, 9)
    expected = x + 0.5 * y
    address, version = x.data_ptr(), x._version
    assert ops.add_assign(x, y, alpha=0.5) is None
    close(x, expected)
    assert x.data_ptr() == address and x._version > version


def test_autograd_sees_what_was_written_in_place():
    x, y = randn(3, requires_grad=True), randn(3)
    base = randn(3)
    loss = (base * x).sum()
    ops.add_assign(base, y)
    harness.check_error(RuntimeError, "modified by an inplace operation", loss.backward)


def test_outputs_can_be_given():
    x, weight = randn(5, 8), randn(8)
    y = torch.empty_like(x)
    assert ops.silu(x, out=y) is y
    close(y, F.silu(x))
    even, odd = torch.empty(5, 4, device=DEVICE), torch.empty(5, 4, device=DEVICE)
    ops.pairs(x, out=(even, odd))
    assert torch.equal(even, x[:, 0::2]) and torch.equal(odd, x[:, 1::2])
    d_x = torch.empty_like(x)
    ops.scaled_backward(x, x, None, 2.0, out=(d_x, None))
    close(d_x, 2 * x)
    version = y._version
    ops.silu(x, out=y)
    assert y._version > version


def test_given_outputs_are_checked():
    x = randn(5, 8)
    check = lambda out, text: harness.check_error(RuntimeError, text, lambda: ops.silu(x, out=out))
    check(torch.empty(5, 9, device=DEVICE), "silu: `y` is f32 of shape [5, 9]; accepted: f32 of shape [5, 8]")
    check(torch.empty(5, 8, device=DEVICE, dtype=torch.float64), "`y` is f64 of shape [5, 8]; accepted: f32")
    check(torch.empty(8, 5, device=DEVICE).t(), "`y` has shape [5, 8] with strides [1, 5]; accepted: a contiguous tensor")
    check(x, "`y` is written, and shares memory with `x`")
    both = torch.empty(48, device=DEVICE)
    check_pairs = lambda: ops.pairs(randn(4, 8), out=(both[:16].view(4, 4), both[8:24].view(4, 4)))
    harness.check_error(RuntimeError, "`even` is written, and shares memory with `odd`", check_pairs)
    harness.check_error(RuntimeError, "`x` is written, and shares memory with `y`", lambda: ops.add_assign(x, x))
    # Nobody would write it.
    d_weight = torch.empty(8, device=DEVICE)
    text = "scaled_backward: `d_weight` is given, but `weight` is not; accepted: both, or neither"
    given = lambda: ops.scaled_backward(x, x, None, 2.0, out=(torch.empty_like(x), d_weight))
    harness.check_error(RuntimeError, text, given)


def test_errors_say_operator_argument_and_what_is_accepted():
    check = lambda text, call: harness.check_error(RuntimeError, text, call)
    x = randn(4, 6)
    check("silu: `x` has dtype i32; accepted: f32, f16, bf16, f64", lambda: ops.silu(x.int()))
    check("silu: `x` has PyTorch's dtype number", lambda: ops.silu(x.to(torch.complex64)))
    check("silu: `x` has shape [6, 4] with strides [1, 6]; accepted: a contiguous tensor", lambda: ops.silu(x.t()))
    check("scaled: `x` has 1 dimensions; accepted: 2 dimensions", lambda: ops.scaled(x[0]))
    check("scaled: `weight` has dtype f64; accepted: f32", lambda: ops.scaled(x, randn(6, dtype=torch.float64)))
    text = "`how` is \"thrice\"; accepted: \"once\", \"twice\"" if HAS_STRINGS else "takes a string, for which PyTorch 2.10 or later is needed"
    check(f"reversed: {text}", lambda: ops.reversed(x, "thrice"))
    text = "`weight` has shape [1]; accepted: [6], a number per column"
    check("scaled: " + text, lambda: ops.scaled(x, randn(1)))
    check("scaled_backward: " + text, lambda: ops.scaled_backward(x, x, randn(1), 1.0))
    text = "pairs: `x` has 1 dimensions; accepted: a tensor with dimension 1, which the shape of `even` needs"
    check(text, lambda: ops.pairs(x[0]))
    check("pairs: `even` would have a dimension of size -1; accepted: 0 or more", lambda: ops.pairs(x, -1))
    check("fails: 24 elements are too many", lambda: ops.fails(x))
    if not ON_CPU:
        check("is on cpu; accepted: cuda:0, where `x` is", lambda: ops.scaled(x, torch.ones(6)))


def test_panics_become_exceptions():
    harness.check_error(RuntimeError, "panics: panicked: 3 elements are unlucky", lambda: ops.panics(randn(3)))
    close(ops.silu(randn(3) * 0), torch.zeros(3, device=DEVICE))


def test_errors_of_kernels_name_their_line():
    def call():
        ops.launches_out_of_bounds(randn(8))
        tw_example.synchronize()

    harness.check_error(RuntimeError, "kernels.rs:", call)
    harness.check_error(RuntimeError, "of `x`, which has 8 elements", call)
    close(ops.silu(randn(3) * 0), torch.zeros(3, device=DEVICE))
    tw_example.synchronize()


def test_gradients_are_those_of_torch():
    for dtype in (torch.float32, torch.float64):
        x = randn(6, 10, dtype=dtype, requires_grad=True)
        ours, = torch.autograd.grad(ops.silu(x).square().sum(), x)
        theirs, = torch.autograd.grad(F.silu(x).square().sum(), x)
        close(ours, theirs, ulps=16)
    # The gradient of a sum has strides of zero.
    close(torch.autograd.grad(ops.silu(x).sum(), x)[0], torch.autograd.grad(F.silu(x).sum(), x)[0], ulps=16)
    x, weight = randn(6, 10, dtype=torch.float64, requires_grad=True), randn(10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: ops.scaled(x, w, 1.5), (x, weight))
    assert torch.autograd.gradcheck(lambda x: ops.scaled(x, None, 1.5), (x,))
    assert torch.autograd.gradcheck(ops.silu, (x,))


def test_gradients_that_do_not_exist_are_refused():
    x = randn(4, 4, requires_grad=True)
    check = lambda text, call: harness.check_error(RuntimeError, text, call)
    check("tw_example.row_sum: `x` requires a gradient, but the operator has none", lambda: ops.row_sum(x))
    check("tw_example.add_assign: `x` requires a gradient", lambda: ops.add_assign(x, randn(4, 4)))
    check("tw_example.silu: with `out` there is no gradient", lambda: ops.silu(x, out=torch.empty(4, 4, device=DEVICE)))
    check("tw_example.silu: with `out` there is no gradient", lambda: ops.silu(randn(4, 4), out=x))
    second = lambda: torch.autograd.grad(ops.silu(x).sum(), x, create_graph=True)
    check("tw_example.silu_backward: `x` requires a gradient, but the operator has none", second)
    with torch.no_grad():
        close(ops.row_sum(x), x.sum(-1), ulps=16)
    close(ops.row_sum(x.detach()), x.detach().sum(-1), ulps=16)


def test_derivatives_in_forward_mode_are_refused():
    x, weight = randn(4, 4), randn(4)
    check = lambda text, call: harness.check_error(RuntimeError, text, call)
    text = "tw_example.silu: `x` has a tangent, but the operator has no derivative in forward mode"
    check(text, lambda: torch.func.jvp(ops.silu, (x,), (x,)))
    check(text, lambda: torch.func.jacfwd(ops.silu)(x))
    check("tw_example.add_assign: `y` has a tangent", lambda: torch.func.jvp(lambda y: ops.add_assign(x.clone(), y), (x,), (x,)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(weight, weight)
        check("tw_example.scaled: `weight` has a tangent", lambda: ops.scaled(x, dual))
        check("tw_example.scaled: `weight` has a tangent", lambda: ops.scaled(x, dual, out=torch.empty_like(x)))
        close(ops.scaled(x, torch.autograd.forward_ad.unpack_dual(dual).primal), x * weight)
        close(ops.scaled(x, None, 2.0), x * 2)
        # Others have a gradient there.
        given = x.clone().requires_grad_()
        close(torch.autograd.grad(ops.silu(given).sum(), given)[0], torch.autograd.grad(F.silu(given).sum(), given)[0], ulps=16)


def test_outputs_that_are_not_there_have_no_gradient():
    for dtype in (torch.float32, torch.float64):
        x, w = randn(3, 4, dtype=dtype, requires_grad=True), randn(5, dtype=dtype, requires_grad=True)
        y, z = ops.both_scaled(x, None, 3.0)
        assert z is None
        close(torch.autograd.grad(y.sum(), x)[0], torch.full_like(x, 3.0))
        for of in (lambda y, z: y.sum(), lambda y, z: z.sum(), lambda y, z: y.sum() + z.sum()):
            ours = torch.autograd.grad(of(*ops.both_scaled(x, w, 3.0)), (x, w), allow_unused=True)
            theirs = torch.autograd.grad(of(x * 3.0, w * 3.0), (x, w), allow_unused=True)
            for one, other in zip(ours, theirs):
                close(one, torch.zeros_like(one) if other is None else other)
    compiled = torch.compile(lambda x, w: ops.both_scaled(x, w, 3.0), backend="aot_eager", fullgraph=True)
    close(torch.autograd.grad(compiled(x, None)[0].sum(), x)[0], torch.full_like(x, 3.0))
    close(torch.autograd.grad(compiled(x, w)[1].sum(), w)[0], torch.full_like(w, 3.0))


def test_outputs_of_which_no_gradient_is_taken_are_constants():
    x, w = randn(3, 4, requires_grad=True), randn(5)
    compiled = torch.compile(ops.silu_with_constants, backend="aot_eager", fullgraph=True)
    for function in (ops.silu_with_constants, compiled):
        for given in (w, None):
            y, sums, copy = function(x, given)
            assert y.requires_grad and not sums.requires_grad
            close(sums, x.sum(-1), ulps=64)
            assert copy is None if given is None else torch.equal(copy, w) and not copy.requires_grad
            close(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(F.silu(x).sum(), x)[0], ulps=16)


def table(dtype=torch.float32):
    """Arguments for each operator, in the order of its parameters."""
    x = lambda *shape: randn(*(shape or (6, 8)), dtype=dtype)
    fails = lambda: (randn(4, 6),)
    return {
        "silu": [lambda: (x(),)],
        "silu_backward": [lambda: (x(), x())],
        "scaled": [lambda: (x(), x(8), 2.0), lambda: (x(), None)],
        "scaled_backward": [lambda: (x(), x(), x(8), 2.0), lambda: (x(), x(), None, 2.0)],
        "both_scaled": [lambda: (x(), x(8), 2.0), lambda: (x(), None)],
        "both_scaled_backward": [lambda: (x(), x(8), x(8), 2.0), lambda: (x(), None, None, 2.0), lambda: (x(), None, x(8), 2.0)],
        "row_sum": [lambda: (x(),)],
        "silu_with_constants": [lambda: (x(), x(8)), lambda: (x(), None)],
        "pairs": [lambda: (x(), 3)],
        "add_assign": [lambda: (x(), x(), 0.5)],
        "reversed": [lambda: (x(), "twice")],
        "copied": [lambda: (x(),), lambda: (torch.arange(5, device=DEVICE),)],
        "nothing": [lambda: (x(),)],
        # Plain Rust, which reads memory of the host.
        "shifted": [lambda: (x(), 0.5, True)] if ON_CPU else [],
        **{name: [fails] for name in FAILING},
    }


# Operators that fail, and what they say.
FAILING = {
    "fails": "fails: 24 elements are too many",
    "panics": "panics: panicked: 24 elements are unlucky",
    "launches_out_of_bounds": "of `x`, which has 24 elements",
}
LIBRARY = every.Library(ops, _library)


def each(check, dtype=torch.float32):
    """Checks all operators that work with each of their arguments."""
    made = table(dtype)
    for name in LIBRARY.callable:
        for arguments in made[name] if name not in FAILING else []:
            check(LIBRARY, name, arguments())


def test_every_operator_has_arguments_for_the_next_tests():
    LIBRARY.check_table(table())


def test_stubs_are_those_of_the_functions():
    stubs.check(tw_example, ops)


def test_opcheck_finds_nothing_in_any_operator():
    each(every.check_opcheck)


def test_every_operator_is_compiled_without_a_break():
    each(every.check_compiled)


def test_every_operator_is_exported():
    each(every.check_exported)


def test_gradients_through_operators_themselves_are_refused():
    each(every.check_refused)


def test_all_gradients_are_those_of_differences():
    # Sums of rows are of no f64, so these go without: what they give beside is the `silu` that is checked.
    made = {name: makers for name, makers in table(torch.float64).items() if name != "silu_with_constants"}
    for name, makers in made.items():
        for arguments in makers if LIBRARY.gradients(name) else []:
            every.check_gradients(LIBRARY, name, arguments())


def test_operators_that_fail_do_so_where_they_are_compiled_or_exported():
    x = randn(4, 6)

    def call(function):
        function(x)
        tw_example.synchronize()

    for name, text in FAILING.items():
        torch._dynamo.reset()
        function = getattr(ops, name)
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        exported = torch.export.export(every.Calling(function, (x,)), (x,)).module()
        for form in (compiled, exported):
            harness.check_error(RuntimeError, text, lambda: call(form))


def model(x, weight):
    y = ops.scaled(ops.silu(x * 2), weight, factor=1.5)
    even, odd = ops.pairs(y.detach(), 3)
    return y.sum() + (even - odd).sum()


def test_compiled_functions_have_no_breaks():
    x, weight = randn(6, 8), randn(8)
    backends = ["eager", "aot_eager"]
    # The default compiles C++.
    if shutil.which("g++") or shutil.which("clang++"):
        backends.append("inductor")
    for backend in backends:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        close(compiled(x, weight), model(x, weight), ulps=64)


def test_compiled_functions_have_gradients():
    x, weight = randn(6, 8, requires_grad=True), randn(8, requires_grad=True)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    ours = torch.autograd.grad(compiled(x, weight), (x, weight))
    theirs = torch.autograd.grad(model(x, weight), (x, weight))
    for one, other in zip(ours, theirs):
        close(one, other, ulps=64)


def test_compiled_functions_take_any_size():
    def rows(x):
        even, _ = ops.pairs(x, 5)
        return ops.row_sum(ops.silu(x)) + even.sum(-1)

    compiled = torch.compile(rows, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (4, 6, 20):
        x = randn(3, size)
        close(compiled(x), rows(x), ulps=64)


def test_compiled_functions_write_in_place():
    def update(x, y):
        ops.add_assign(x, y, 0.5)
        z = torch.empty_like(x)
        ops.silu(x, out=z)
        return x + z

    compiled = torch.compile(update, backend="aot_eager", fullgraph=True)
    x, y = randn(4, 5), randn(4, 5)
    mine, theirs = x.clone(), x.clone()
    close(compiled(mine, y), update(theirs, y))
    close(mine, theirs)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        return ops.scaled(ops.silu(x), self.weight, 0.5)


def test_modules_are_exported_with_any_batch():
    layer, x = Layer().to(DEVICE), randn(6, 8)
    with torch.no_grad():
        batch = torch.export.Dim("batch", min=2, max=64)
        exported = torch.export.export(layer, (x,), dynamic_shapes=({0: batch},))
        names = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
        assert {"tw_example.silu.default", "tw_example.scaled.default"} <= names, names
        for rows in (6, 11):
            x = randn(rows, 8)
            close(exported.module()(x), layer(x))


def test_calls_from_several_threads_are_right():
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        x = torch.full((100,), float(seed), device=DEVICE)
        for _ in range(50):
            close(ops.silu(x), F.silu(x))
            harness.check_error(RuntimeError, f"{seed} elements are too many", lambda: ops.fails(torch.zeros(seed, device=DEVICE)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 9)))


def test_nothing_is_leaked():
    import gc

    x, weight = randn(4, 4), randn(4)

    def calls():
        for _ in range(200):
            ops.silu(x)
            ops.scaled(x, weight, 2.0)
            if HAS_STRINGS:
                ops.reversed(x, "twice")
            for bad in (lambda: ops.fails(x), lambda: ops.reversed(x, "thrice"), lambda: ops.scaled(x, weight[:0].double())):
                try:
                    bad()
                except RuntimeError:
                    pass

    def megabytes():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 1e6

    references = x._use_count()
    calls()
    before = megabytes()
    for _ in range(20):
        calls()
    assert x._use_count() == references, "tensors are kept"
    # 36,000 calls: a kilobyte each would be 36 MB.
    assert megabytes() - before < 8, f"{megabytes() - before} MB"


harness.run(globals())
