"""The library's operators in PyTorch."""

import ast
import importlib.util
import pathlib
import shutil

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import calls
import cases
import every
import harness
import stubs
import tilewright_ops
from cases import CASES, NO_GRADIENT, leaves, ops, raw, tuple_of
from tilewright_ops import _library

# Where there is a GPU, everything runs there.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
BY_NAME = {case.name: case for case in CASES}


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape, device=DEVICE, dtype=torch.float64).to(dtype)


def inputs_of(case, size, dtype=torch.float32):
    return case.inputs(lambda *shape: randn(*shape, dtype=dtype), size)


LIBRARY = every.Library(ops, _library)
TABLE = calls.table(randn)


def test_results_and_gradients_are_those_of_torch():
    wrong = []
    for case in CASES:
        for dtype in case.dtypes:
            for size in ((2, 5, 33), (7, 64), (1, 1), (0, 8), (2, 130)):
                # Gradients of a row of one element are zero: what is computed is what rounding leaves of it.
                found = cases.compare(case, inputs_of(case, size, dtype), dtype, with_gradients=size != (1, 1))
                if found:
                    wrong.append(f"{case.name}, {dtype}, {size}: {found}")
    assert not wrong, "\n".join(wrong)


def each(check, table=TABLE):
    """Checks all operators with each of their arguments."""
    for name in LIBRARY.callable:
        for arguments in table.get(name, []):
            try:
                check(LIBRARY, name, arguments())
            except Exception as error:
                raise AssertionError(f"{name} does not pass {check.__name__}") from error


def test_every_operator_has_arguments_for_the_next_tests():
    LIBRARY.check_table(TABLE)


def test_stubs_are_those_of_the_functions():
    stubs.check(tilewright_ops, ops)
    if importlib.util.find_spec("tvm_ffi"):
        stubs.check(tilewright_ops, importlib.import_module("tilewright_ops.tvm_ffi"))


def test_what_the_first_example_shows_is_the_source():
    library = pathlib.Path(__file__).parents[2]
    shown = ast.get_docstring(ast.parse((library / "examples/first_torch.py").read_text()))
    stripped = lambda text: "\n".join(line.strip() for line in text.splitlines())
    source = stripped((library / "src/elementwise.rs").read_text())
    _, *parts = stripped(shown).split("\n\n")
    assert len(parts) == 2, "the kernel and the operator"
    for part in parts:
        assert part in source, part


def test_opcheck_finds_nothing_in_any_operator():
    each(every.check_opcheck)


def test_every_operator_is_compiled_without_a_break():
    each(every.check_compiled)


def test_every_operator_is_exported():
    each(every.check_exported)


def test_gradients_through_operators_themselves_are_refused():
    each(every.check_refused)


def test_all_gradients_are_those_of_differences():
    # Of numbers below 2: losses stay small, and so do third derivatives.
    half = lambda *shape: randn(*shape, dtype=torch.float64).clamp(-4, 4) / 2
    for table in (calls.table(half), calls.differentiated(half)):
        each(every.check_gradients, table)


def test_logarithms_of_sums_have_gradients():
    def lse(q, k):
        return torch.einsum("bqhd,bkhd->bhqk", q, k).div(q.shape[-1] ** 0.5).logsumexp(-1)

    for dtype in (torch.float32, torch.float64):
        q, k, v = leaves(inputs_of(BY_NAME["flash_attention"], (5, 32), dtype))
        for of in (lambda y, s: s.square().sum(), lambda y, s: y.sum() + s.sin().sum()):
            y, s = ops.flash_attention(q, k, v)
            found = torch.autograd.grad(of(y, s), (q, k, v), allow_unused=True)
            wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
            y = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in wide)).transpose(1, 2)
            expected = torch.autograd.grad(of(y, lse(wide[0], wide[1])), wide, allow_unused=True)
            for one, other in zip(found, expected):
                other = torch.zeros_like(one) if other is None else other
                # Sums are f32 whatever the dtype is.
                wrong = cases.error(one, other, 1e-4 * max(other.abs().max().item(), 1))
                assert not wrong, (dtype, wrong)


def test_shapes_that_do_not_fit_are_refused():
    check = lambda text, call: harness.check_error(RuntimeError, text, call)
    check("softmax: `x` has 0 dimensions; accepted: a tensor with dimension -1", lambda: ops.softmax(randn()))
    # Of as many rows in all, but others.
    q, other = randn(2, 3, 5, 2, 16), randn(3, 2, 5, 2, 16)
    text = "has shape [3, 2, 5, 2, 16]; accepted: before its last 3 the dimensions that `q`, [2, 3, 5, 2, 16], has before its last 3"
    check(f"flash_attention: `k` {text}", lambda: ops.flash_attention(q, other, other))
    check(f"flash_attention: `v` {text}", lambda: ops.flash_attention(q, q, other))
    y, lse = ops.flash_attention(q, q, q)
    options = (None, False, None, None, None)
    check(f"`d_y` {text}", lambda: ops.flash_attention_backward(other, q, q, q, y, lse, *options))
    text = "`lse` has shape [3, 2, 2, 5]; accepted: before its last 2"
    check(text, lambda: ops.flash_attention_backward(y, q, q, q, y, randn(3, 2, 2, 5), *options))
    qkv, (cos, sin) = torch.stack((q, q, q), -3), cases.tables(randn, 5, 8)
    check(text, lambda: ops.rotary_attention_backward(y, qkv, y, randn(3, 2, 2, 5), cos, sin))
    check("swiglu_halves_backward: `d_y` has shape [3, 2, 4]", lambda: ops.swiglu_halves_backward(randn(3, 2, 4), randn(2, 3, 8)))
    x, weight = randn(2, 3, 4), randn(5, 4)
    text = "`weight` has shape [6, 3]; accepted: [outputs, 4], as `x` has shape [2, 3, 4]"
    check(f"linear: {text}", lambda: ops.linear(x, randn(6, 3)))
    check(f"linear_swiglu: {text}", lambda: ops.linear_swiglu(x, randn(6, 3)))
    check("linear_backward: `d_y` has shape [6, 5]", lambda: ops.linear_backward(randn(6, 5), x, weight, None))
    text = "linear_backward: `bias` has shape [1]; accepted: [5], a number per output"
    check(text, lambda: ops.linear_backward(randn(2, 3, 5), x, weight, randn(1)))


def block(x, weight, gate, cos, sin, labels):
    h = ops.rms_norm(x, weight)
    q = ops.rotary(h.view(2, -1, 2, 16), cos, sin)
    # Three tensors: PyTorch's compiler loses gradients of one that an autograd function takes twice.
    y, _ = ops.flash_attention(q, h.view(2, -1, 2, 16), x.view(2, -1, 2, 16), causal=True)
    h, x = ops.add_rms_norm(y.flatten(-2), x, weight)
    h = ops.linear(ops.swiglu(h * gate, h), torch.eye(32, device=DEVICE)) + x
    return ops.cross_entropy(h.flatten(0, 1), labels)


def block_inputs(tokens):
    cos, sin = cases.tables(randn, tokens, 8)
    x, weight, gate = leaves((randn(2, tokens, 32), randn(32), randn(32)))
    return x, weight, gate, cos, sin, cases.targets(randn, 2 * tokens, 32)


def test_compiled_functions_have_no_breaks():
    backends = ["aot_eager"]
    # The default compiles C++ on the CPU.
    if shutil.which("g++") or shutil.which("clang++") or DEVICE == "cuda":
        backends.append("inductor")
    for backend in backends:
        torch._dynamo.reset()
        compiled = torch.compile(block, backend=backend, fullgraph=True)
        inputs = block_inputs(9)
        loss, expected = compiled(*inputs), block(*inputs)
        assert (loss - expected).abs().item() < 1e-5 * expected.item(), backend
        ours, theirs = torch.autograd.grad(loss, inputs[:3]), torch.autograd.grad(expected, inputs[:3])
        for one, other in zip(ours, theirs):
            assert (one - other).abs().max().item() < 1e-5 * other.abs().max().item(), backend


def test_compiled_functions_take_any_size():
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True, dynamic=True)
    for tokens in (4, 7, 12):
        inputs = block_inputs(tokens)
        loss, expected = compiled(*inputs), block(*inputs)
        assert (loss - expected).abs().item() < 1e-5 * expected.item()


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(32))

    def forward(self, x):
        h = ops.rms_norm(x, self.weight).unflatten(-1, (2, 16))
        return ops.flash_attention(h, h, h, causal=True)[0].flatten(-2)


def test_modules_are_exported_with_any_batch():
    layer, x = Attention().to(DEVICE), randn(3, 5, 32)
    with torch.no_grad():
        batch = torch.export.Dim("batch", min=2, max=64)
        exported = torch.export.export(layer, (x,), dynamic_shapes=({0: batch},))
        names = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
        assert {"tilewright_ops.rms_norm.default", "tilewright_ops.flash_attention.default"} <= names, names
        for batch in (3, 6):
            x = randn(batch, 5, 32)
            assert torch.equal(exported.module()(x), layer(x))


def test_outputs_can_be_given():
    x = randn(6, 8)
    y, parts = torch.empty_like(x), torch.zeros(6, 16, device=DEVICE)
    assert ops.softmax(x, out=y) is y and torch.equal(y, ops.softmax(x))
    ops.softmax(x, out=parts[:, :8])
    assert torch.equal(parts[:, :8], y) and not parts[:, 8:].any()


def test_gradients_are_scaled_in_place():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x, factor = randn(3, 700, dtype=dtype), torch.tensor(0.375, device=DEVICE)
        expected = (x.float() * factor).to(dtype)
        version = x._version
        ops.scale_in_place(x, factor)
        assert torch.equal(x, expected) and x._version > version
        ops.scale_in_place(x, torch.ones(1, device=DEVICE))
        assert torch.equal(x, expected)
    text = "scale_in_place: `factor` has shape [2]; accepted: a tensor of one element"
    harness.check_error(RuntimeError, text, lambda: ops.scale_in_place(randn(4), torch.ones(2, device=DEVICE)))


def test_rotary_in_place_is_that_of_a_copy():
    cos, sin = cases.tables(randn, 9, 8)
    positions = torch.tensor([[1, 8, 0, 2, 2], [5, 4, 3, 2, 1]], dtype=torch.int32, device=DEVICE)
    rotations = [(at, interleaved, backward) for at in (None, positions) for interleaved in (False, True) for backward in (False, True)]
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        tables = (cos.to(dtype), sin.to(dtype)) if dtype == torch.float64 else (cos, sin)
        for at, interleaved, backward in rotations:
            qkv = randn(2, 5, 3, 2, 16, dtype=dtype)
            expected, version = qkv.clone(), qkv._version
            heads = qkv[:, :, :2].flatten(2, 3)
            apart = (ops.rotary_backward if backward else ops.rotary)(heads, *tables, at, interleaved)
            expected[:, :, :2] = apart.unflatten(2, (2, 2))
            ops.rotary_in_place(heads, *tables, at, interleaved, backward)
            assert torch.equal(qkv, expected) and qkv._version > version, (dtype, at, interleaved, backward)

    def doubled(x):
        x = x * 2
        ops.rotary_in_place(x[:, :, :2].flatten(2, 3), cos, sin)
        return x + 1

    x = randn(2, 5, 3, 2, 16)
    assert torch.equal(torch.compile(doubled, backend="aot_eager", fullgraph=True)(x), doubled(x))
    text = "rotary_in_place: `x` has heads of 7 elements; their number is even"
    harness.check_error(RuntimeError, text, lambda: ops.rotary_in_place(x[:, :, 0, :, :7], cos, sin))


def test_steps_of_adamw_are_those_of_torch():
    options = {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for shape in ((), (3, 700), (2048,), (0, 4)):
            expected = torch.nn.Parameter(randn(*shape, dtype=dtype))
            # What is computed in f32 and rounded once, as ours. The loops over tensors round in between.
            optimizer = torch.optim.AdamW([expected], **options, fused=True)
            x = expected.detach().clone()
            mean, square = torch.zeros_like(x), torch.zeros_like(x)
            for step in (1, 2, 3):
                expected.grad = randn(*shape, dtype=dtype)
                optimizer.step()
                version = x._version
                ops.adamw_step(x, expected.grad, mean, square, step, 0.02, 0.8, 0.95, 1e-6, 0.1)
                assert x._version > version
                state = optimizer.state[expected]
                for name, one, other in (("x", x, expected), ("mean", mean, state["exp_avg"]), ("square", square, state["exp_avg_sq"])):
                    # In each step both round twice, each time by half a unit of an element at most.
                    wrong = cases.error(one, other.detach(), step * 2 * torch.finfo(dtype).eps * max(1, *other.detach().abs().flatten().tolist(), 1))
                    assert not wrong, (dtype, shape, step, name, wrong)
    x, wide = randn(8, dtype=torch.bfloat16), torch.zeros(8, device=DEVICE)
    ops.adamw_step(x, x.clone(), wide, wide.clone(), 1)
    assert wide.any(), "a state in f32"
    check = lambda text, call: harness.check_error(RuntimeError, text, call)
    check("adamw_step: `step` is 0; accepted: 1 for the first step", lambda: ops.adamw_step(wide, wide.clone(), wide.clone(), wide.clone(), 0))
    check("adamw_step: `mean` has shape [4]; accepted: that of `gradient`, [8]", lambda: ops.adamw_step(wide, wide.clone(), wide[:4].clone(), wide.clone(), 1))
    check("adamw_step: `square` has dtype f32; accepted: bf16", lambda: ops.adamw_step(x, x.clone(), x.clone(), wide, 1))
    check("adamw_step: `parameter` has dtype f64; accepted: f32, f16, bf16", lambda: ops.adamw_step(*[wide.double().clone() for _ in range(4)], 1))


def test_errors_say_operator_argument_and_what_is_accepted():
    x = randn(4, 6)
    check = lambda text, call: harness.check_error(RuntimeError, text, call)
    check("softmax: `x` has dtype i32; accepted: f32, f16, bf16, f64", lambda: ops.softmax(x.int()))
    check("softmax: `x` has shape [6, 4] and rows that do not", lambda: ops.softmax(x.t()))
    check("swiglu: `gate` has shape [4, 3]; accepted: that of `x`, [4, 6]", lambda: ops.swiglu(x[:, :3], x))
    check("swiglu_halves: `x` has shape [4, 5]; accepted: an even last dimension", lambda: ops.swiglu_halves(x[:, :5]))
    check("rms_norm: `weight` has dtype f64; accepted: f32", lambda: ops.rms_norm(x, randn(6, dtype=torch.float64)))
    check("rms_norm: `weight` has the shape [5]; the other arguments ask for [6]", lambda: ops.rms_norm(x, randn(5)))
    if cases.HAS_STRINGS:
        check("geglu: `approximate` is \"sin\"; accepted: \"none\", \"tanh\"", lambda: ops.geglu(x, x, "sin"))
    else:
        check("geglu: takes a string, for which PyTorch 2.10 or later is needed", lambda: ops.geglu(x, x, "sin"))
    check("flash_attention: `q` has", lambda: ops.flash_attention(x[0], x[0], x[0]))
    check("cross_entropy: `targets` has dtype f32; accepted: i64, i32", lambda: ops.cross_entropy(x, x[:, 0]))
    check("take: `x` requires a gradient", lambda: ops.take(x.clone().requires_grad_(), torch.zeros(1, dtype=torch.int64, device=DEVICE)))


def test_gradients_that_operators_do_not_have_are_refused():
    x, (cos, sin) = randn(2, 5, 2, 16), cases.tables(randn, 5, 8)
    check = lambda text, call: harness.check_error(RuntimeError, text, call)
    for name, cos, sin in (("cos", cos.clone().requires_grad_(), sin), ("sin", cos, sin.clone().requires_grad_())):
        for x in (x, x.clone().requires_grad_()):
            check(f"rotary: `{name}` requires a gradient, but the operator has none for it", lambda: ops.rotary(x, cos, sin))
        with torch.no_grad():
            ops.rotary(x, cos, sin)
    check("softmax: `x` has a tangent", lambda: torch.func.jvp(ops.softmax, (x[0],), (x[0],)))


def test_gradients_of_nothing_are_empty():
    # The gradient of a sum is one element, repeated, whatever there is to repeat.
    x, (cos, sin) = randn(0, 5, 2, 16).requires_grad_(), cases.tables(randn, 5, 8)
    gradient, = torch.autograd.grad(ops.rotary(x, cos, sin).sum(), x)
    assert gradient.shape == x.shape
    for case in CASES:
        if case.name in NO_GRADIENT:
            continue
        given = leaves(inputs_of(case, (0, 8)), case)
        losses = [one.sum() for one in tuple_of(case.ours(*given)) if one.requires_grad]
        torch.autograd.backward(losses)
        for tensor in given:
            assert tensor.grad is None or tensor.grad.shape == tensor.shape, case.name


def test_gradients_of_rotated_attention_are_those_of_its_parts():
    """Beside attention's gradients, rotated back by the operator of rotary embedding, which rounds them in between."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for batch, options in (((2,), {"causal": True}), ((), {"scale": 0.2, "window": 3}), ((2, 1), {"causal": True, "soft_cap": 2.0})):
            qkv, d_y = randn(*batch, 9, 3, 2, 16, dtype=dtype), randn(*batch, 9, 2, 16, dtype=dtype)
            for tables in (cases.tables(randn, 11, 8), tuple(table.to(dtype) for table in cases.tables(randn, 9, 8))):
                y, lse = ops.flash_attention(*qkv.unbind(-3), **options)
                defaults = {"causal": False, "scale": None, "window": None, "soft_cap": None}
                expected = torch.stack(ops.flash_attention_backward(d_y, *qkv.unbind(-3), y, lse, None, **(defaults | options)), -3)
                for part in (0, 1):
                    x = expected.select(-3, part).reshape(-1, 9, 2, 16)
                    expected.select(-3, part).copy_(ops.rotary_backward(x, *tables, None, False).view(d_y.shape))
                found = ops.rotary_attention_backward(d_y, qkv, y, lse, *tables, **options)
                largest = expected.double().abs().max().item()
                wrong = cases.error(found, expected, 2 * torch.finfo(dtype).eps * largest)
                assert not wrong, (dtype, batch, options, wrong)
                # Into memory of the caller, beside what is not written.
                wide = torch.zeros(*batch, 9, 4, 2, 16, dtype=dtype, device=DEVICE)
                ops.rotary_attention_backward(d_y, qkv, y, lse, *tables, **options, out=wide[..., :3, :, :])
                assert not cases.error(wide[..., :3, :, :], expected, 2 * torch.finfo(dtype).eps * largest)
                assert not wide[..., 3, :, :].any()
    qkv, d_y = randn(2, 9, 3, 2, 16), randn(2, 9, 2, 16)
    y, lse = ops.flash_attention(*qkv.unbind(2))
    cos, sin = cases.tables(randn, 9, 8)
    check = lambda text, *arguments: harness.check_error(RuntimeError, text, lambda: ops.rotary_attention_backward(*arguments))
    check("rotary_attention_backward: `qkv` has shape [2, 9, 2, 2, 16]; accepted: [.., tokens, 3, heads, dim]", d_y, qkv[:, :, :2], y, lse, cos, sin)
    check("rotary_attention_backward: `cos` has the shape [8, 8]; give a row of 8 cosines for each position, 9 rows at least", d_y, qkv, y, lse, cos[:8], sin[:8])
    check("rotary_attention_backward: `cos` has dtype f64; accepted: f32", d_y, qkv, y, lse, cos.double(), sin.double())


class Calls(TorchDispatchMode):
    """The names of what is called, and of gradients that are left out."""

    def __init__(self):
        super().__init__()
        self.names, self.without = [], 0

    def __torch_dispatch__(self, call, types, arguments=(), keywords=None):
        self.names.append(str(call))
        if call is raw.add_rms_norm_backward.default:
            self.without += arguments[1] is None
        return call(*arguments, **(keywords or {}))


def test_gradients_of_outputs_that_nothing_depends_on_are_left_out():
    inputs = randn(4, 32), randn(4, 32), randn(32)
    d_y = randn(4, 32)
    for outputs, without, zeros in (((0,), 1, 0), ((1,), 0, 1), ((0, 1), 0, 0)):
        mine = leaves(inputs)
        results = ops.add_rms_norm(*mine)
        with Calls() as calls:
            found = torch.autograd.grad([results[at] for at in outputs], mine, [d_y] * len(outputs))
        made = sum(name.startswith(("aten.zeros", "aten.new_zeros", "aten.zero_")) for name in calls.names)
        assert (calls.without, made) == (without, zeros), (outputs, calls.names)
        theirs = leaves(inputs)
        expected = cases.rms_norm(theirs[0] + theirs[1], theirs[2]), theirs[0] + theirs[1]
        # What nothing depends on has a gradient of zeros here.
        wanted = torch.autograd.grad(expected, theirs, [d_y * (at in outputs) for at in (0, 1)])
        for one, other in zip(found, wanted):
            assert not cases.error(one, other, 1e-4), outputs
        compiled = torch.compile(lambda *given: ops.add_rms_norm(*given)[outputs[0]], backend="aot_eager", fullgraph=True)
        if len(outputs) == 1:
            for one, other in zip(torch.autograd.grad(compiled(*mine), mine, d_y), wanted):
                assert not cases.error(one, other, 1e-4), outputs


def test_indices_outside_are_errors_with_the_line():
    import tilewright_ops

    def call(x, ids):
        ops.take(x, ids)
        tilewright_ops.synchronize()

    x = randn(8)
    for index in (8, -1, 1 << 40):
        ids = torch.tensor([1, index], device=DEVICE)
        harness.check_error(RuntimeError, "elementwise.rs:", lambda: call(x, ids))
    ids = torch.tensor([7, 0], device=DEVICE)
    assert torch.equal(ops.take(x, ids), x[ids]), "the next call works"
    labels = torch.tensor([0, 99], device=DEVICE)

    def loss():
        ops.cross_entropy(randn(2, 4), labels)
        tilewright_ops.synchronize()

    harness.check_error(RuntimeError, "a target is no class, and is not ignored", loss)
    tilewright_ops.synchronize()


harness.run(globals())
