"""Each name in the list of everyday tests is a test."""

import ast

from tests.support import tiers
from tests.support.places import TESTS


def test_every_promise_has_tests_that_exist() -> None:
    files = {path.name: path for path in TESTS.glob("*/test_*.py")}
    for name in (name for names in tiers.PROMISES.values() for name in names):
        file, _, test = name.partition("::")
        functions = {node.name for node in ast.parse(files[file].read_text()).body if isinstance(node, ast.FunctionDef)}
        assert test.partition("[")[0] in functions, name


def test_no_two_files_have_a_name() -> None:
    names = [path.name for path in TESTS.glob("*/test_*.py")]
    assert len(set(names)) == len(names) > 100
