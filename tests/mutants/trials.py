"""Trials: the tests that execute a line are run with a mutant of it, in a copy of the tree."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.support.places import ROOT

Outcome = Literal["killed", "survived", "not executed"]

_PARTS = (
    "dlio_hpc", "tests", "templates", "site_profiles", "share", "docs", "setup.cfg", "README.md", "pyproject.toml",
)  # fmt: skip
# A mutant that takes longer is killed, too: a loop may not end.
_PATIENCE_S = 240
# Number of tests that are run at most, those nearest to the module first.
_MOST_TESTS = 100


@contextmanager
def _source_in_place(tree: Path, module: Path, source: str) -> Iterator[None]:
    """Put another source in place of a module of a copy of the tree, for a while."""
    place = tree / module.relative_to(ROOT)
    before = place.read_bytes()
    place.write_text(source)
    try:
        yield
    finally:
        place.write_bytes(before)


def copy_of_tree(folder: Path) -> Path:
    """Copy what tests need into `folder`, and return it."""
    for name in _PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "logs"))
        elif source.exists():
            shutil.copyfile(source, folder / name)
    (folder / "tests" / "logs").symlink_to(ROOT / "tests" / "logs")
    return folder


def outcome(tree: Path, module: Path, source: str, tests: Sequence[str]) -> Outcome:
    """Return what the tests make of a module with this source. tests: those that execute the line."""
    if not tests:
        return "not executed"
    with _source_in_place(tree, module, source):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *nearest(module, tests)]
        environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, timeout=_PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            return "killed"
    return "survived" if done.returncode == 0 else "killed"


def nearest(module: Path, tests: Sequence[str]) -> list[str]:
    """Return the tests to run, those first whose file shares words with the name of the module or its room."""
    names = {*module.stem.split("_"), module.parent.name}

    def distance(test: str) -> int:
        file = Path(test.partition("::")[0])
        return -len(names & {*file.stem.split("_"), file.parent.name})

    return sorted(tests, key=distance)[:_MOST_TESTS]
