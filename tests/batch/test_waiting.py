"""A rank that waits for others sleeps, also outside the steps, and MPI is asked to yield where ranks exceed cores."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.batch import jobscript
from dlio_hpc.config import site, workload
from dlio_hpc.core import clock
from dlio_hpc.core.rank_zero import on_root
from tests.support import planning

_SETTINGS = ("MPIR_CVAR_ENABLE_HEAVY_YIELD", "OMPI_MCA_mpi_yield_when_idle")


class _Request:
    """A request that completes at the poll `number`."""

    def __init__(self, number: float) -> None:
        self._left = number

    def Test(self) -> bool:  # noqa: N802 - as mpi4py calls it
        self._left -= 1
        return self._left <= 0


class _Comm:
    """The communicator of one rank of several, whose barriers complete at the poll `polls`. calls: what was called."""

    rank = 0

    def __init__(self, size: int, polls: float) -> None:
        self.size, self._polls = size, polls
        self.calls: list[str] = []

    def Ibarrier(self) -> _Request:  # noqa: N802 - as mpi4py calls it
        self.calls.append("Ibarrier")
        return _Request(self._polls)

    def bcast(self, value: Any) -> Any:
        self.calls.append("bcast")
        return value


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of naps of this rank. A nap takes no time, but the clock shows that it has passed."""
    taken: list[float] = []
    monkeypatch.setattr(time, "sleep", taken.append)
    monkeypatch.setattr(clock, "now", lambda: sum(taken))
    return taken


def test_a_long_wait_sleeps_longer_and_longer(naps: list[float]) -> None:
    comm: Any = _Comm(4, 4000)
    clock.assemble(comm)
    assert naps == sorted(naps)
    assert (naps[0], naps[-1]) == (100e-6, 10e-3)
    assert comm.calls == ["Ibarrier"]


@pytest.mark.parametrize(("size", "polls"), [(1, float("inf")), (8192, 1), (8192, 4)])
def test_a_rank_that_need_not_wait_does_not_sleep(size: int, polls: float, naps: list[float]) -> None:
    comm: Any = _Comm(size, polls)
    clock.assemble(comm)
    assert not naps


@pytest.mark.parametrize("size", [1, 4])
def test_ranks_meet_before_rank_0_tells_them_its_answer(size: int) -> None:
    comm: Any = _Comm(size, 1)
    assert on_root(comm, lambda: comm.calls.append("action") or 42) == 42
    assert comm.calls == ["action", *["Ibarrier"] * (size > 1), "bcast"]


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., list[str]]:
    """Run a local job script of 4 ranks on so many cores. Return the settings that its launcher sees."""

    def call(cores: int, **environment: str) -> list[str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, program in (
            ("nproc", f"echo ${{OMP_NUM_THREADS-{cores}}}"),
            ("launcher", f'echo "${_SETTINGS[0]},${_SETTINGS[1]}"'),
        ):
            (folder / name).write_text(f"#!/bin/bash\n{program}\n")
            (folder / name).chmod(0o755)
        profile = site.load("local", (f"launcher.command={folder / 'launcher'}",))
        made = planning.make(workload.load("null"), profile, planning.Request(runs=tmp_path, data=tmp_path))
        Path(made.directory).mkdir(parents=True)
        variables = {"PATH": f"{folder}:/usr/bin:/bin", **environment}
        script = jobscript.render(made)
        done = subprocess.run(["bash", "-s"], input=script, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].split(",")

    return call


@pytest.mark.parametrize(("cores", "expected"), [(2, ["1", "1"]), (3, ["1", "1"]), (4, ["", ""]), (128, ["", ""])])
def test_mpi_yields_only_where_ranks_exceed_cores(
    cores: int, expected: list[str], settings: Callable[..., list[str]]
) -> None:
    assert settings(cores) == expected


def test_threads_of_a_rank_are_no_cores(settings: Callable[..., list[str]]) -> None:
    assert settings(4, OMP_NUM_THREADS="1") == ["", ""]  # nproc(1) prints this variable if it is set


def test_the_users_own_setting_stays(settings: Callable[..., list[str]]) -> None:
    assert settings(2, MPIR_CVAR_ENABLE_HEAVY_YIELD="0") == ["0", "1"]


@pytest.mark.parametrize(("ranks", "cores", "quick_s"), [(2, 2, 300e-6), (3, 2, 0.0), (1, 8, 300e-6), (9, 8, 0.0)])
def test_ranks_poll_quickly_only_where_each_has_a_core(
    monkeypatch: pytest.MonkeyPatch, ranks: int, cores: int, quick_s: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert clock.quick_seconds(ranks) == quick_s


def test_quick_polls_have_no_pause_and_end_after_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll takes 10 us by the clock of this test."""
    time_s, pauses = [0.0], list[float]()

    def now() -> float:
        time_s[0] += 10e-6
        return time_s[0]

    monkeypatch.setattr(clock, "now", now)
    monkeypatch.setattr(time, "sleep", pauses.append)
    clock.wait(_Request(25), 300e-6)  # type: ignore[arg-type]
    assert pauses == [], "it completed within 300 us"
    clock.wait(_Request(45), 300e-6)  # type: ignore[arg-type]
    assert set(pauses) == {0, clock._POLL_S}, "then it pauses as it does elsewhere"
    assert len(pauses) == 45 - 29 - 1
    pauses.clear()
    clock.wait(_Request(25))  # type: ignore[arg-type]
    assert len(pauses) == 24
