"""What every exported operator passes in PyTorch, whatever it computes. Shared by the tests of libraries of operators.

A library has a table: the name of each operator, and functions that make arguments for it, in the order of its parameters.
"""

import torch

import harness

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
# The operator of this name leaves its result as it is, in memory that is not set.
UNWRITTEN = "nothing"


class Library:
    """What a package exports: its modules `torch` and `_library`, and the description in the library itself."""

    def __init__(self, functions, library):
        described = harness.described(library)
        self.functions, self.name = functions, described["name"]
        self.raw = getattr(torch.ops, self.name)
        self.operators = {op["name"]: op for op in described["ops"]}
        # Those that take strings are missing before PyTorch 2.10.
        self.callable = [name for name in self.operators if hasattr(self.raw, name)]

    def check_table(self, table):
        """The table, the description and what PyTorch's dispatcher knows are one list."""
        prefix = self.name + "::"
        names = [name.removeprefix(prefix) for name in torch._C._dispatch_get_all_op_names() if name.startswith(prefix)]
        known = {name.split(".")[0] for name in names}
        assert known == set(self.callable), known ^ set(self.callable)
        assert set(table) == set(self.operators), f"not in both: {set(table) ^ set(self.operators)}"

    def gradients(self, name):
        """The names of the tensors that have a gradient."""
        backward = self.operators[name]["backward"]
        outputs = [param["name"] for param in self.operators[backward]["params"] if "output" in param["kind"]] if backward else []
        return {of for output in outputs for of in output.removeprefix("d_").split("_and_")}

    def has_outputs(self, name):
        return hasattr(getattr(self.raw, name), "out")

    def arguments(self, name):
        """The operator's arguments as PyTorch knows them."""
        return getattr(self.raw, name).default._schema.arguments

    def writes(self, name):
        return [at for at, argument in enumerate(self.arguments(name)) if argument.alias_info is not None]


def copied(tensor, requires_grad=False):
    """A leaf of the same elements, in the same strides."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor).requires_grad_(requires_grad)


def leaves(arguments, which):
    """Copies of the arguments, of which those require gradients that are floats and for which `which(position)` holds."""
    return [
        copied(given, given.is_floating_point() and which(at)) if isinstance(given, torch.Tensor) else given
        for at, given in enumerate(arguments)
    ]


def several(results):
    return results if isinstance(results, tuple) else (results,)


def tensors(results):
    return [one for one in several(results) if one is not None]


def differentiated(results, given):
    """The gradients of the arguments that require one, of results with incoming gradients that are not all the same."""
    wanted = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    results = [one for one in tensors(results) if one.requires_grad]
    incoming = [torch.linspace(-1, 1, one.numel(), dtype=one.dtype, device=one.device).view(one.shape) for one in results]
    return torch.autograd.grad(results, wanted, incoming)


def outcome(call, arguments, library, name, has_gradients):
    """What a call gives: results, tensors that it wrote, and gradients."""
    names = [argument.name for argument in library.arguments(name)]
    of = library.gradients(name) if has_gradients else set()
    given = leaves(arguments, lambda at: names[at] in of)
    results = call(*given)
    gradients = differentiated(results, given) if has_gradients else ()
    return [*tensors(results), *(given[at] for at in library.writes(name)), *gradients]


def check_same(found, expected, name, how):
    """The same kernels ran with the same arguments."""
    assert len(found) == len(expected), (name, how, len(found), len(expected))
    for at, (one, other) in enumerate(zip(found, expected)):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), (name, how, at, one.shape, other.shape)
        # Kernels on GPUs may add numbers in any order: two, for each of the few sums here, by half a unit each.
        units = 8 if one.is_cuda and one.is_floating_point() else 0
        limit = units * torch.finfo(one.dtype).eps * other.abs().max().item() if units and one.numel() else 0
        is_same = torch.equal(one, other) or (units and (one - other).abs().max().item() <= limit)
        assert name == UNWRITTEN or is_same, (name, how, at, one, other)


def check_opcheck(library, name, arguments):
    """`torch.library.opcheck` of both overloads; and with tensors that require gradients, unless they are written."""
    op = getattr(library.raw, name)
    # The last test compares results.
    tests = TESTS[:-1] if name == UNWRITTEN else TESTS
    calls = [(op.default, leaves(arguments, lambda at: False), {}, tests)]
    if not library.writes(name):
        # The last test would take a gradient, which is an error.
        calls.append((op.default, leaves(arguments, lambda at: True), {}, TESTS[:-1]))
    if library.has_outputs(name):
        made = getattr(library.functions, name)(*leaves(arguments, lambda at: False))
        names = [argument.name for argument in op.out._schema.arguments if argument.is_out]
        outputs = {name: None if one is None else torch.zeros_like(one) for name, one in zip(names, several(made))}
        calls.append((op.out, leaves(arguments, lambda at: False), outputs, tests))
    for overload, given, outputs, tests in calls:
        found = torch.library.opcheck(overload, given, outputs, test_utils=tests)
        assert set(found.values()) == {"SUCCESS"} and set(found) == set(tests), (overload, found)


def check_compiled(library, name, arguments):
    """Compiled without a break it gives what the function gives, gradients too."""
    torch._dynamo.reset()
    function = getattr(library.functions, name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for has_gradients in (False, True) if library.gradients(name) else (False,):
        expected = outcome(function, arguments, library, name, has_gradients)
        check_same(outcome(compiled, arguments, library, name, has_gradients), expected, name, "compiled")


class Calling(torch.nn.Module):
    """A module that calls a function with its inputs, and with what is no tensor among the arguments."""

    def __init__(self, function, arguments):
        super().__init__()
        self.function, self.arguments = function, [None if isinstance(one, torch.Tensor) else one for one in arguments]
        self.positions = [at for at, one in enumerate(arguments) if isinstance(one, torch.Tensor)]

    def forward(self, *inputs):
        given = dict(zip(self.positions, inputs))
        return self.function(*[given.get(at, one) for at, one in enumerate(self.arguments)])


def check_exported(library, name, arguments):
    """Exported from the function of the package, with gradients or without, and from the operator it is the operator."""
    function, op = getattr(library.functions, name), getattr(library.raw, name).default
    for call, has_gradients in ((function, False), (op, False), *([(function, True)] if library.gradients(name) else [])):
        module = Calling(call, arguments)
        given = leaves(arguments, lambda at: has_gradients and library.arguments(name)[at].name in library.gradients(name))
        inputs = lambda given: tuple(given[at] for at in module.positions)
        exported = torch.export.export(module, inputs(given))
        targets = [node.target for node in exported.graph.nodes if node.op == "call_function"]
        assert op in targets, (name, targets)
        found = lambda *given: exported.module()(*inputs(given))
        expected = outcome(call, arguments, library, name, False)
        check_same(outcome(found, arguments, library, name, False), expected, name, "exported")
        # Exported is the operator, not its gradient.
        if has_gradients:
            refuse(library, name, found(*given))


def check_refused(library, name, arguments):
    """A gradient through the operator itself, which has none, is an error of `backward` that names it."""
    if library.writes(name):
        return
    given = leaves(arguments, lambda at: True)
    if any(isinstance(one, torch.Tensor) and one.requires_grad for one in given):
        refuse(library, name, getattr(library.raw, name)(*given))


def refuse(library, name, results):
    text = f"{library.name}::{name}: an autograd kernel was not registered"
    losses = [one.sum() for one in tensors(results) if one.requires_grad]
    assert losses, f"what {name} gives is a constant"
    harness.check_error(UserWarning, text, lambda: torch.autograd.backward(losses))


# Results that are f32 whatever the dtype of the arguments is, as losses are, are differentiated with larger steps. Those below
# `LARGEST` are rounded by `ROUNDING` at most, and the difference of two over two steps is off by `ROUNDING / STEP`. To that come
# `STEP**2 / 6` third derivatives, which are below 1 for arguments below 2.
STEP, LARGEST, ROUNDING = 2**-7, 4, 2**-23
COARSE = {"eps": STEP, "atol": ROUNDING / STEP + STEP**2 / 6, "rtol": 0}
# Of results in f64, differences over two steps of a millionth are right to 1e-8. Gradients may be less so: those of attention go
# through logarithms of sums below `LARGEST` in f32, and so are off by `ROUNDING` of what they sum, a few dozen numbers of about 1.
FINE = {"eps": 1e-6, "atol": 64 * ROUNDING, "rtol": 0}


def check_gradients(library, name, arguments):
    """The gradients of arguments of f64 are those of differences, for each result; of operators that have gradients."""
    function, of = getattr(library.functions, name), library.gradients(name)
    if not of:
        return
    given = leaves(arguments, lambda at: library.arguments(name)[at].name in of)
    for at, result in enumerate(several(function(*given))):
        if result is None or not result.requires_grad:
            continue
        is_coarse = result.dtype != torch.float64
        assert not is_coarse or result.abs().max() < LARGEST, (name, result)
        options = COARSE if is_coarse else FINE
        one = lambda *given: several(function(*given))[at].double()
        assert torch.autograd.gradcheck(one, given, **options), (name, at)
