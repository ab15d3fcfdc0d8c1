"""Each name in the list of everyday tests is a test."""

import ast
from pathlib import Path

from tests import tiers

_ROOT = Path(__file__).parent


def test_every_promise_has_tests_that_exist() -> None:
    for name in (name for names in tiers.PROMISES.values() for name in names):
        file, _, test = name.partition("::")
        functions = {
            node.name for node in ast.parse((_ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert test.partition("[")[0] in functions, name
