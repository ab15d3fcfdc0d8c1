"""Imports run downward only: each folder and each module of the package has a floor of its own."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlio_hpc

_ROOT = Path(dlio_hpc.__file__).parent
# From the ground up. A module may import from its own room and from those before it.
_FLOORS = (
    "base", "files", "results", "config", "dataset", "plan", "darshan", "lustre", "core", "batch", "analysis",
    "records", "verdict", "reports", "documents", "errors", "api", "programs", "cli", "__main__",
)  # fmt: skip


def _imports(path: Path) -> Iterator[str]:
    """Yield the rooms that the module at `path` imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "dlio_hpc":
            yield from (alias.name for alias in node.names if not alias.name.startswith("__"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dlio_hpc."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dlio_hpc."))


def _rooms() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    for path in _ROOT.rglob("*.py"):
        name = path.relative_to(_ROOT).parts[0].removesuffix(".py")
        if name != "__init__":
            rooms.setdefault(name, []).append(path)
    return rooms


def test_every_room_has_its_floor() -> None:
    assert sorted(_rooms()) == sorted(_FLOORS)


@pytest.mark.parametrize("room", _FLOORS)
def test_imports_run_downward(room: str) -> None:
    allowed = set(_FLOORS[: _FLOORS.index(room) + 1])
    upward = {
        f"{path.relative_to(_ROOT)} -> {name}" for path in _rooms()[room] for name in set(_imports(path)) - allowed
    }
    assert not upward


def test_class_names_are_unique() -> None:
    """No two public classes share a name. Private classes belong to their module."""
    names = Counter(
        node.name
        for path in _ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not [name for name, count in names.items() if count > 1]


# Names that say nothing about what they hold.
_EMPTY_NAMES = {"beside", "each", "found", "seen", "told", "words"}


def test_names_say_what_they_hold() -> None:
    for path in _ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "name", None)
            assert name not in _EMPTY_NAMES, f"{path}:{node.lineno}: {name}"  # type: ignore[attr-defined]
