"""Shared helpers: the commands as a user runs them, in a folder of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests import brokers

BIN = Path(sys.executable).parent


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def job(self) -> Any:
        (job,) = self.json["jobs"]
        return job


Run = Callable[..., Outcome]


def ahead(folder: Path) -> dict[str, str]:
    """The environment variable that puts `folder` first in the search path of Python."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="record the rendered job scripts anew")


@pytest.fixture(scope="session", autouse=True)
def _shared_memory() -> Iterator[None]:
    """MPICH leaves some MiB in /dev/shm for each job whose ranks are killed, as many are here."""
    folder = Path("/dev/shm")
    before = set(folder.glob("mpich_shm_*"))
    yield
    for left in set(folder.glob("mpich_shm_*")) - before:
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > 60:  # who uses it has it open by now
                left.unlink()


def runner(folder: Path) -> Run:
    """A command of ours by name, with arguments, in `folder`; no traceback is ever fine."""

    def call(*arguments: object, cwd: Path = folder, **environment: str) -> Outcome:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DLIO_HPC_")}
        done = subprocess.run(
            [BIN / str(arguments[0]), *map(str, arguments[1:])],
            cwd=cwd,
            env=kept | environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=300,  # ends a command that hangs; a busy machine takes a minute for jobs of some seconds
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert "a bug of dlio-hpc" not in done.stderr, done.stderr
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def real_flux(tmp_path_factory: pytest.TempPathFactory) -> Iterator["brokers.Brokers | None"]:
    """A real Flux where DLIO_HPC_FLUX names one; None: tests have a stand-in."""
    from tests import brokers

    if brokers.PREFIX is None:
        yield None
        return
    instance = brokers.Brokers(tmp_path_factory.mktemp("flux"))
    instance.start()
    yield instance
    instance.stop()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Commands in tmp_path."""
    return runner(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A workload that runs in a second: 6 files of 5 samples of 12,000 bytes."""
    path = tmp_path / "small.yaml"
    path.write_text(
        """\
name: small
dataset: {format: npz, files: 6, samples_per_file: 5, sample: {shape: [30, 100], dtype: float32}}
reader: {batch_size: 4, read_threads: 2, shuffle: {files: true, samples: true, seed: 7}}
compute: {time: 1 ms}
train: {epochs: 2}
"""
    )
    return path
