"""Shared helpers: they run the commands as a user does, in a folder of their own."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hypothesis
import pytest

from dlio_hpc.cli import command_line
from dlio_hpc.config import defaults
from dlio_hpc.core import node_leftovers
from tests.support import tiers

if TYPE_CHECKING:
    from tests.support import brokers
    from tests.support.cluster import Cluster

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
    """Return the environment variable that puts `folder` first in the search path of Python."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="record the rendered job scripts anew")
    parser.addoption("--real", action="store_true", help="run all ways to read on all real file systems")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.register_profile("dlio-hpc", deadline=None)  # a machine may stall
    hypothesis.settings.load_profile("dlio-hpc")
    tiers.watch()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.mark(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> tiers.OneSlurm:
    return tiers.OneSlurm(config, log)


_crashed = pytest.StashKey[list[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: tiers.OneSlurm) -> None:
    sched.config.stash.setdefault(_crashed, []).append(crashitem)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """Count a test whose process crashed among those that failed last, although pytest-xdist ran it once more: `make
    test-failed` then runs it alone. If the run ended early, forget the tests that failed, so that `make test-failed`
    fails: it has no test to run.
    """
    yield
    cache, crashed = getattr(session.config, "cache", None), session.config.stash.get(_crashed, [])
    if cache is None:  # -p no:cacheprovider
        return
    most = int(getattr(session.config.option, "maxworkerrestart", None) or len(crashed))
    if len(crashed) > most or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        cache.set("cache/lastfailed", {})
    elif crashed:
        cache.set("cache/lastfailed", cache.get("cache/lastfailed", {}) | dict.fromkeys(crashed, True))


@pytest.fixture
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Yield a function that sets the time zone of the test, such as Europe/Berlin."""

    def set_to(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def _tier(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that starts a job, a batch system or a browser has a marker that says so."""
    tiers.started()
    yield
    commands = tiers.started()
    if commands and not tiers.is_heavy(request.node):
        pytest.fail(
            f"needs a marker (job, cluster, strace, browser; see tests/support/tiers.py): it starts {commands[0]}"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line on the tests that did not run, and on what they need."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"{len(skipped)} tests did not run: {listed}")


@pytest.fixture(scope="session", autouse=True)
def _clear_node() -> Iterator[None]:
    """Remove what the last tests leave that kill all processes of a job."""
    yield
    node_leftovers.clear()


@pytest.fixture
def foreign() -> Iterator[None]:
    """Segments of others lie in /dev/shm during the test, and still lie there at its end."""
    from tests.support import node_files

    with node_files.foreign_segments():
        yield


def runner(folder: Path) -> Run:
    """Run a command of dlio-hpc in `folder`. A traceback fails the test.

    A program of dlio-hpc runs in this process, unless `environment` has variables that Python reads as it starts, or a
    thread calls it.
    """

    def call(*arguments: object, cwd: Path = folder, **environment: str) -> Outcome:
        program, *rest = map(str, arguments)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DLIO_HPC_")} | environment
        is_main = threading.current_thread() is threading.main_thread()
        is_separate = program not in _PROGRAMS or _OF_A_PROCESS & environment.keys() or not is_main
        start = _in_a_process if is_separate else _in_this_process
        done = start(program, rest, cwd, kept)
        assert "Traceback" not in done.err, done.err
        assert "a bug in dlio-hpc" not in done.err, done.err
        return done

    return call


_PROGRAMS = {"dlio-hpc", "dlio-submit"}
# Variables that take effect when a process starts.
_OF_A_PROCESS = {
    "PYTHONPATH", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "LD_PRELOAD",
    "LD_LIBRARY_PATH",
}  # fmt: skip


def _in_a_process(program: str, arguments: list[str], cwd: Path, environment: dict[str, str]) -> Outcome:
    done = subprocess.run(
        [BIN / program, *arguments], cwd=cwd, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def _in_this_process(program: str, arguments: list[str], cwd: Path, environment: dict[str, str]) -> Outcome:
    """Run the command here, since most of the time of a short command goes into start-up and imports."""
    given = ["submit", *arguments] if program == "dlio-submit" else arguments
    before, folder = dict(os.environ), Path.cwd()
    streams = sys.stdout, sys.stderr, sys.stdin
    captured = [io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2)]
    defaults.load.cache_clear()
    try:
        _set_environment(environment)
        os.chdir(cwd)
        sys.stdout, sys.stderr = captured
        with open(os.devnull, encoding="utf-8") as sys.stdin:
            code = command_line.exit_code(program, given)
    finally:
        sys.stdout, sys.stderr, sys.stdin = streams
        os.chdir(folder)
        _set_environment(before)
    out, err = (stream.buffer.getvalue().decode() for stream in captured)
    return Outcome(code, out, err)


def _set_environment(variables: dict[str, str]) -> None:
    """Make `variables` the environment of this process. Variables that have their value already are not set again: the
    threads of TensorFlow read the environment, and setenv(3) is not safe while they do.
    """
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables.items() - os.environ.items())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    from tests.support import cluster
    from tests.support.cluster import Cluster

    if why := cluster.missing():
        assert not os.environ.get("CI"), f"CI runs these tests: {why}"
        pytest.skip(why)
    started = Cluster(tmp_path_factory.mktemp("slurm"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def real_flux(tmp_path_factory: pytest.TempPathFactory) -> Iterator["brokers.Brokers | None"]:
    """Return a real Flux where DLIO_HPC_FLUX names one; None otherwise: tests have a stand-in."""
    from tests.support import brokers

    if brokers.PREFIX is None:
        yield None
        return
    instance = brokers.Brokers(tmp_path_factory.mktemp("flux"))
    instance.start()
    yield instance
    instance.stop()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run commands in tmp_path."""
    return runner(tmp_path)


@pytest.fixture(params=["apptainer", "podman-hpc"])
def boxed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[str, ...]]]:
    """Return a function from keys of a container to the options of a submission whose ranks run in an image."""
    from tests.support import boxed_ranks

    yield from boxed_ranks.prepared(request.param, tmp_path, monkeypatch.setenv)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a workload that runs in a second: 6 files of 5 samples of 12,000 bytes."""
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
