"""The two sets of tests. `make test` runs the everyday tests: all that run within the process of pytest, and those of
PROMISES. `make test-all` runs all tests.
"""

import os
import sys
from typing import Any

import pytest

# Marker of a test, by a fixture that it uses.
_FIXTURES = {
    "job": (
        "small", "measured", "tiny", "darshan", "standin", "done", "copy", "real", "early", "met", "login", "wheel",
        "_imported",
    ),
    "cluster": ("slurm", "on_slurm", "on_pbs", "on_flux", "theta", "system", "real_flux"),
    "strace": ("_strace",),
}  # fmt: skip
# Parameters of a test that start a framework, which takes seconds.
_FRAMEWORKS = {"tensorflow", "pytorch"}
# Programs that start jobs, batch systems and browsers: a test that runs one must have a marker.
_PROGRAMS = ("job.sh", "mpiexec", "chromium", "google-chrome", "strace", "slurmctld", "dlio-submit")
_HEAVY = {"job", "cluster", "framework", "strace", "browser"}

# A few tests with jobs for each promise.
PROMISES: dict[str, tuple[str, ...]] = {}

_started: list[str] = []


def mark(items: list[pytest.Item]) -> None:
    """Add the markers of the fixtures and parameters to tests, and `everyday` to tests that `make test` runs."""
    listed = {name for names in PROMISES.values() for name in names}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for marker, names in _FIXTURES.items():
            if not set(names).isdisjoint(fixtures):
                item.add_marker(marker)
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        if not _FRAMEWORKS.isdisjoint(value for value in parameters if isinstance(value, str)):
            item.add_marker("framework")
        if not is_heavy(item) or item.nodeid.removeprefix("tests/") in listed:
            item.add_marker("everyday")


def is_heavy(item: Any) -> bool:
    return any(marker.name in _HEAVY for marker in item.iter_markers())


def started() -> list[str]:
    """Return the commands that were started since the last call and that only tests with a marker may start."""
    commands = list(_started)
    _started.clear()
    return commands


def watch() -> None:
    """Record the commands that this process starts."""
    sys.addaudithook(_record)


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in {"os.posix_spawn", "subprocess.Popen"} or isinstance(arguments[1], str):
        return
    command = [os.fsdecode(word) for word in arguments[1]]
    if any(word.endswith(_PROGRAMS) for word in command) and "--version" not in command and "--dry-run" not in command:
        _started.append(" ".join(command).encode(errors="backslashreplace").decode())
