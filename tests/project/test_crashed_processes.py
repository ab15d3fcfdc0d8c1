"""The tests of the project end, whatever happens to a process that runs them."""

import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT

_CONFTEST = """\
import pytest
from tests.support import tiers

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return tiers.OneSlurm(config, log)
"""
_PASSING = "def test_one():\n    pass\n\ndef test_two():\n    pass\n"
_CRASHING = """\
import os, pathlib

def test_before():
    pass

def test_once():
    path = pathlib.Path(__file__).with_name("crashes")
    if path.exists():
        path.unlink()
        os.kill(os.getpid(), 11)
"""


def test_all_tests_run_after_a_process_has_crashed(tmp_path: Path) -> None:
    """The test that crashed is run once more."""
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    for number in range(30):
        (tmp_path / f"test_{number:02}.py").write_text(_CRASHING if number == 25 else _PASSING)
    (tmp_path / "crashes").touch()
    options = ["-q", "--numprocesses", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "1 failed, 60 passed" in done.stdout, done.stdout[-2000:]
    assert "crashed while running 'test_25.py::test_once'" in done.stdout
