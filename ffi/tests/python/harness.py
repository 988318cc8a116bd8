"""Runs the functions `test_..` of a file, and prints the name of each. Nothing that needs to be installed."""

import ctypes
import json
import re
import sys
import traceback


def check_error(kind, text, call):
    """The call raises an exception of this kind that has this text."""
    try:
        call()
    except kind as error:
        assert text in str(error), f"the error says {str(error)!r}, not {text!r}"
    else:
        raise AssertionError(f"no error: {text!r} was expected")


def described(library):
    """What a library of operators says of itself, given the module `_library` of its package."""
    describe = ctypes.CDLL(library.PATH).tilewright_describe
    describe.restype = ctypes.c_char_p
    return json.loads(describe())


def scratch_sizes(module):
    """The bytes of scratch memory of each call of an operator in a module of StableHLO."""
    calls = re.findall(r"custom_call @tw_example.*|custom_call @tilewright_ops.*", module)
    found = [re.search(r"tensor<(\d+)xui8>\)?(?: loc\(.*\))?$", call) for call in calls]
    return [int(size.group(1)) for size in found if size]


def run(module):
    """Runs the tests of a module, and ends the program."""
    tests = {name: test for name, test in module.items() if name.startswith("test_") and callable(test)}
    failed = []
    for name, test in tests.items():
        try:
            test()
            print(f"{name} ... ok", flush=True)
        except Exception:
            traceback.print_exc()
            print(f"{name} ... FAILED", flush=True)
            failed.append(name)
    print(f"{len(tests) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not tests else 0)
