"""The Python API offers the same functions as the commands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dlio_hpc
from dlio_hpc import errors
from tests.support.places import ROOT


def test_every_documented_name_exists() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    for name in set(dlio_hpc.__all__) - {"__version__"}:
        assert callable(getattr(dlio_hpc, name))
        assert name in page
    for name in re.findall(r"\bdlio_hpc\.(\w+)\(", page):
        assert name in dlio_hpc.__all__


def test_importing_it_imports_no_command_and_no_array() -> None:
    program = "import sys, dlio_hpc; print(sorted({'click', 'numpy', 'h5py', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        dlio_hpc.nonsense  # noqa: B018


def test_the_errors_that_are_documented_are_those_that_are_raised(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        dlio_hpc.report("nonsense", runs=tmp_path)
    assert caught.value.exit_code == 2
    assert all(issubclass(getattr(errors, name), errors.DlioError) for name in errors.__all__)


@pytest.mark.job
def test_readmes_example_runs_a_job(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    lines = readme[readme.index("From Python:") :].split("## More")[0].splitlines()[2:]
    program = "\n".join(line.removeprefix("    ") for line in lines)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
    assert list(tmp_path.glob("dlio-runs/archive/*.tar.zst"))
