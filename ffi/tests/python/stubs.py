"""The types that a package gives to editors, beside the functions that run."""

import ast
import builtins
import inspect
import pathlib
import warnings

import harness


def parsed(module):
    """The stub of a module, which Python itself reads without a warning."""
    path = pathlib.Path(module.__file__).with_suffix(".pyi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ast.parse(path.read_text(), str(path))


def functions(tree):
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def parameters(node):
    """Name, kind and default of each parameter of a function in a stub."""
    given = node.args
    assert not (given.posonlyargs or given.vararg or given.kwarg), node.name
    missing = [None] * (len(given.args) - len(given.defaults))
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    both = ((kinds[0], given.args, [*missing, *given.defaults]), (kinds[1], given.kwonlyargs, given.kw_defaults))
    default = lambda node: inspect.Parameter.empty if node is None else ast.literal_eval(node)
    return [(one.arg, kind, default(value)) for kind, names, values in both for one, value in zip(names, values)]


def check_names(tree):
    """All parameters have types, and all names in them are imported or Python's own."""
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {name.asname or name.name for node in imports for name in node.names}
    for name, node in functions(tree).items():
        types = [argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs)] + [node.returns]
        assert all(types), f"{name} has parameters without a type"
        used = {one.id for of in types for one in ast.walk(of) if isinstance(one, ast.Name)}
        unknown = {one for one in used if one not in imported and not hasattr(builtins, one)}
        assert not unknown, (name, unknown)


def check(package, module):
    """The stubs of a package and of one of its modules have the functions that there are, with their parameters.

    Those of the module are the operators of the library.
    """
    for of in (package, module):
        tree = parsed(of)
        check_names(tree)
        stubs = functions(tree)
        own = lambda value: inspect.isfunction(value) and value.__module__.startswith(package.__name__)
        runtime = {name: value for name, value in vars(of).items() if own(value) and not name.startswith("_")}
        assert set(stubs) == set(runtime), set(stubs) ^ set(runtime)
        exported = {op["name"] for op in harness.described(package._library)["ops"]} if of is module else set(runtime)
        assert set(runtime) == exported, set(runtime) ^ exported
        for name, function in runtime.items():
            found = [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
            # What PyTorch knows no operator for takes anything, and says so.
            if found and found[-1][1] == inspect.Parameter.VAR_KEYWORD:
                continue
            assert parameters(stubs[name]) == found, (name, parameters(stubs[name]), found)
