"""The folder programs/ is a part that can be left out: nothing but its own verbs needs it."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dlio_hpc

_ROOT = Path(dlio_hpc.__file__).parent
_ROOM = "dlio_hpc.programs"


def _names_it(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(_ROOM) or (
            node.module == "dlio_hpc" and any(alias.name == "programs" for alias in node.names)
        )
    return isinstance(node, ast.Import) and any(alias.name.startswith(_ROOM) for alias in node.names)


def test_only_verbs_import_it_and_only_when_they_run() -> None:
    for path in _ROOT.rglob("*.py"):
        room = path.relative_to(_ROOT).parts[0]
        if room == "programs":
            continue
        tree = ast.parse(path.read_text())
        importing = [node for node in ast.walk(tree) if _names_it(node)]
        assert room == "cli" or not importing, path
        assert not any(_names_it(node) for node in tree.body), f"{path} imports it when it is imported"


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without the folder."""
    folder = tmp_path_factory.mktemp("without")
    leave_out = shutil.ignore_patterns("programs", "__pycache__")
    shutil.copytree(_ROOT, folder / "dlio_hpc", ignore=leave_out)
    for data in ("templates", "site_profiles", "share"):
        (folder / data).symlink_to(_ROOT.parent / data)
    return folder


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dlio_hpc", *arguments], cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_jobs_are_planned_and_measured_without_it(without: Path) -> None:
    where = _run(without, "--version")
    assert where.returncode == 0, where.stderr
    done = _run(without, "submit", "demo", "--site", "local", "--wait", "-S", "train.epochs=1")
    assert done.returncode == 0, done.stderr
    assert _run(without, "status").returncode == 0
    assert _run(without, "history").returncode == 0


@pytest.mark.parametrize(
    "arguments", [("similarity", "paper:a", "paper:b"), ("characterize", "x.darshan"), ("darshan", "--summary", ".")]
)
def test_its_verbs_say_that_it_is_missing(without: Path, arguments: tuple[str, ...]) -> None:
    (without / "x.darshan").write_bytes(b"")
    done = _run(without, *arguments)
    assert done.returncode == 6, done.stdout + done.stderr
    assert "no folder dlio_hpc/programs" in done.stderr
    assert "Traceback" not in done.stderr
