"""Which tests execute each line of a module: everyday tests that run within the process of pytest, with coverage.py."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.places import ROOT, TESTS

# Tests, by the numbers of the lines that they execute, of a module. A test is named as pytest names it.
Lines = dict[int, list[str]]

_LIGHT = "everyday and not job and not cluster and not framework and not strace and not browser"
_SETTINGS = """\
[run]
dynamic_context = test_function
parallel = true
data_file = {folder}/coverage
include =
{modules}
"""


def of_modules(modules: Sequence[Path], folder: Path) -> dict[Path, Lines]:
    """Run the tests once, on two cores, and return the lines of each module. folder: for the data of coverage.py."""
    settings = folder / "coveragerc"
    settings.write_text(_SETTINGS.format(folder=folder, modules="\n".join(f"    {module}" for module in modules)))
    files = sorted(TESTS.glob("*/test_*.py"), key=lambda path: path.stat().st_size)
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q", "-m", _LIGHT]
    parts = [
        subprocess.Popen([*command, "-p", "no:cacheprovider", *files[place::2]], cwd=ROOT, stdout=subprocess.DEVNULL)
        for place in range(2)
    ]
    for part in parts:
        if part.wait() not in (0, 1):
            raise SystemExit(f"pytest ended with exit code {part.returncode}; run make test first")
    return {module: _lines(module, folder) for module in modules}


def _lines(module: Path, folder: Path) -> Lines:
    from coverage import CoverageData

    lines: dict[int, set[str]] = {}
    for name in folder.glob("coverage.*"):
        data = CoverageData(os.fspath(name))
        data.read()
        for line, contexts in data.contexts_by_lineno(os.fspath(module)).items():
            lines.setdefault(line, set()).update(map(_node, filter(None, contexts)))
    tests = {line: sorted(names - {""}) for line, names in lines.items()}
    everyone = sorted({name for names in tests.values() for name in names})
    return tests | dict.fromkeys(_of_import(module), everyone)


def _of_import(module: Path) -> Iterator[int]:
    """Yield the lines that are executed when the module is imported: they matter to each test of the module."""
    source = module.read_text()
    inside = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.Lambda))
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    yield from (line for line in range(1, source.count("\n") + 1) if line not in inside)


def _node(context: str) -> str:
    """Return the name that pytest has for a test, of the name that coverage.py has; "" for other functions."""
    module, _, function = context.rpartition(".")
    if not function.startswith("test_"):
        return ""
    return f"{module.replace('.', '/')}.py::{function}"
