"""The benchmarks of make bench run, and make the requests that they say. Their figures are not tested."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dlio_hpc.dataset import stored_parts
from tests.bench import generating, own_cost, ranks, reading, requests, row_groups, steps, tables
from tests.bench.table import heading
from tests.support import written


def test_null_steps_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    own_cost.bench(steps=1000, rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(own_cost.BATCHES) * len(own_cost.AHEAD)
    assert all(" us " in line for line in lines)


def test_tables_of_many_jobs_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    tables.bench(jobs=40, rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert ["<= " in line for line in lines] == [True, False, True, True]
    assert all(" s " in line for line in lines)


def test_requests_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heading()
    requests.bench(tmp_path, rounds=1, shrink=64)
    lines = capsys.readouterr().out.splitlines()
    cells = len(lines[0].split("|"))
    assert len(lines) >= 2 + 2 * len(requests.CASES)
    assert {len(line.split("|")) for line in lines if line.startswith("|")} == {cells}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", requests.CASES, ids=lambda case: case.what)
def test_both_sides_make_the_same_requests(tmp_path: Path, case: requests.Case) -> None:
    """Count the bytes that each side reads: preadv is replaced by a function that counts."""
    small = case.smaller(64)
    written.write_all(tmp_path, small.dataset())
    sides = []
    for side in (requests.ours, requests.bare):
        with pytest.MonkeyPatch.context() as patch:
            calls = _counted(patch)
            side(tmp_path, small)()
        sides.append(sorted(calls))
    assert sides[0] == sides[1]
    indexes = stored_parts.total(small.dataset()) - small.files
    assert len(sides[0]) == small.files * small.per_file + indexes


def _counted(patch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Count calls of preadv from now on: offset and number of bytes of each."""
    calls = []
    preadv: Callable[..., int] = os.preadv

    def counting(descriptor: int, views: list[memoryview], offset: int) -> int:
        count = preadv(descriptor, views, offset)
        calls.append((offset, count))
        return count

    patch.setattr(os, "preadv", counting)
    return calls


@pytest.mark.framework
def test_reading_and_generating_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reading.bench(tmp_path, rounds=1, shrink=16)
    row_groups.bench(tmp_path, rounds=1, shrink=4)
    generating.bench(tmp_path, rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("| read ")]) == len(reading.CASES) + 2
    assert len([line for line in lines if line.startswith("| generate ")]) == len(generating._DATASETS)


@pytest.mark.job
def test_ranks_that_share_cores_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    ranks.bench(rounds=1)
    assert "4 ranks, CPU / 4 x 1 rank" in capsys.readouterr().out


@pytest.mark.job
def test_steps_of_a_job_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    steps.bench(rounds=1, shrink=64)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "2 ranks of a job, with barriers" in line]) == len(steps.CASES)
