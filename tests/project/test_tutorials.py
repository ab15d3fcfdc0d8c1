"""The tutorials run as written: each command in a console block ends with the exit code that the page states."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import BIN
from tests.support.places import ROOT

_ROOT = ROOT
_PAGES = sorted((_ROOT / "docs" / "tutorials").glob("*.md"))
_BLOCK = re.compile(r'^```(?:(console)|(?:yaml|python) title="([^"]+)")\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_CODES = re.compile(r"\s+# exit code (\d[\d, or]*)$")

pytestmark = pytest.mark.job


class Step(NamedTuple):
    """A command with the exit codes that the page states, or a file with its content."""

    command: str = ""
    codes: tuple[int, ...] = (0,)
    file: str = ""
    content: str = ""


def _steps(page: str) -> Iterator[Step]:
    for match in _BLOCK.finditer(page):
        if match[2]:
            yield Step(file=match[2], content=match[3])
        for line in match[3].splitlines() if match[1] else ():
            if line.startswith("$ "):
                codes = _CODES.search(line)
                given = tuple(map(int, re.findall(r"\d+", codes[1]))) if codes else (0,)
                yield Step(_CODES.sub("", line[2:]), given)


def _script(steps: list[Step]) -> str:
    """A bash script that runs the commands in one shell and prints the exit code of each."""
    lines = []
    for step in steps:
        if step.file:
            lines.append(f"cat > {step.file} <<'END'\n{step.content}END")
        else:
            lines.append(f'{step.command}\necho "exit code: $?" >&2')
    return "\n".join(lines)


@pytest.mark.parametrize("path", _PAGES, ids=lambda path: path.stem)
def test_a_tutorial_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    if "import torch" in text:
        pytest.importorskip("torch")
    steps = list(_steps(text))
    commands = [step for step in steps if step.command]
    assert commands
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLIO_HPC_")}
    environment |= {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "DLIO_HPC_LOGS": str(_ROOT / "tests" / "logs" / "apps"),
    }
    done = subprocess.run(
        ["bash", "-c", _script(steps)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    codes = [int(code) for code in re.findall(r"^exit code: (\d+)$", done.stderr, re.MULTILINE)]
    assert len(codes) == len(commands)
    for step, code in zip(commands, codes, strict=True):
        assert code in step.codes, f"{step.command}: {code}\n{done.stderr[-4000:]}"
