"""The tutorials run as written: each command in a console block ends with the exit code that the page states, and the
lines of crontabs run as cron runs them.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import BIN
from tests.support.places import ROOT

_ROOT = ROOT
_PAGES = [
    *sorted((_ROOT / "docs" / "tutorials").glob("*.md")),
    _ROOT / "docs" / "how-to" / "facility.md",
    _ROOT / "docs" / "how-to" / "vendor.md",
]
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
    if "ssh-keygen" in text and shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
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


_CRON = re.compile(r"^(?:    )?(?:[\d*]+ ){4}[\d*]+  (.+)$", re.MULTILINE)
_CRON_PAGES = {
    path: lines for path in sorted((_ROOT / "docs").rglob("*.md")) if (lines := _CRON.findall(path.read_text()))
}
_SUITE = """
name: tiny
workload: small.yaml
set: {reader.direct: true, compute.time: 10 ms, dataset.sample: {bytes: 64 KiB}}
parts: {one: {}}
verdict: {tolerance: 60 %}
"""


def test_no_page_takes_a_job_by_its_place_in_a_list_of_folders() -> None:
    """An older job may be the first or the last one of such a list."""
    pages = [_ROOT / "README.md", *(_ROOT / "docs").rglob("*.md")]
    assert not [path for path in pages if re.search(r"\bls\b.*dlio-runs|dlio-runs/.*\| *(head|tail)", path.read_text())]


@pytest.mark.parametrize("path", _CRON_PAGES, ids=lambda path: path.stem)
def test_lines_for_cron_name_their_commands_in_full(path: Path) -> None:
    for line in _CRON_PAGES[path]:
        assert "%" not in line, "cron takes it for the end of a line"
        assert len(line) < 998
        commands = re.split("; |\\$\\(", line.replace('"', ""))
        programs = [next(word for word in shlex.split(command) if "=" not in word) for command in commands]
        assert len(programs) > 1
        assert not [program for program in programs if not program.startswith("/")], line


_SETTINGS = "/projects/storage/dlio-hpc/nightly:/projects/storage/dlio-hpc/site"


@pytest.mark.parametrize(("page", "changed"), [
    ("tutorials/nightly-regression.md", {"-s SITE": "-s local", "-d DIR": "-d data"}),
    ("how-to/facility.md", {f"DLIO_HPC_SITE_PATH={_SETTINGS}": "DLIO_HPC_SITE_PATH=$HOME/site"}),
])  # fmt: skip
def test_the_nightly_line_runs_as_cron_runs_it(page: str, changed: dict[str, str], tmp_path: Path, small: Path) -> None:
    """cron sets SHELL, PATH, HOME and LOGNAME, and starts commands in the home folder."""
    (line,) = _CRON_PAGES[_ROOT / "docs" / page]
    small.with_name("tiny.yaml").write_text(_SUITE)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "defaults.yaml").write_text("site: local\ndata: $HOME/data\nruns: $HOME/dlio-runs\n")
    mail = tmp_path / "mail"
    mail.write_text('#!/bin/sh\n{ echo "$@"; cat; } > mailed.txt\n')
    mail.chmod(0o755)
    here = {"/sw/dlio-hpc/bin": str(BIN), "--suite nightly": "--suite ./tiny.yaml", "/usr/bin/mail": str(mail)}
    for written, text in (here | changed).items():
        assert written in line
        line = line.replace(written, text)
    environment = {"SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LOGNAME": "storage"}
    if "PYTHONPATH" in os.environ:  # where dlio-hpc is not installed
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    options, first, *_ = (tmp_path / "mailed.txt").read_text().splitlines()
    assert options == f"-s {first} me@example.org"
    assert re.match(r"\w[\w ]*: tiny on local: ", first)
    assert (tmp_path / "dlio-runs" / "archive" / "history.db").exists()
