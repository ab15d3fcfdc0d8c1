"""Results of a job that lie elsewhere, or that were changed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlio_hpc.base import serialization
from dlio_hpc.config import site, workload
from dlio_hpc.darshan.verdict_file import LogVerdict
from dlio_hpc.files import rundir
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import RunOutcome
from tests.support import planning, studies


def test_results_in_the_spare_folder_are_those_that_the_directory_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning.make(workload.load("demo"), site.load("local"), planning.Request(tmp_path))
    names = list(rundir.spare_names((run.number, run.name) for run in plan.runs))
    first, second, *rest = names
    assert rest, "generate and measure, and the exit status"
    monkeypatch.setattr(rundir, "spare_content", lambda _path, name: b"kept" if name != second else None)
    content = {rundir.PLAN: serialization.encode(plan), first: b"own"}
    assert job_outcome._spared(tmp_path, content) == dict.fromkeys(rest, b"kept")


def test_a_change_is_a_fault_of_its_own_run_alone(tmp_path: Path) -> None:
    plan = planning.make(workload.load("demo"), site.load("local"), planning.Request(tmp_path))
    run = plan.runs[-1]
    outcome = RunOutcome(run, studies.result(plan, run, 100.0, {}), None, None)
    name = f"{rundir.RUNS}/{outcome.name}/{rundir.RESULT}"
    changed = job_outcome._with_change(outcome, [name], "the archive has it").result
    assert changed is not None
    assert changed.faults == [f"{name} was changed after the job was collected; the archive has it"]
    assert job_outcome._with_change(outcome, [f"{rundir.RUNS}/99-other/{rundir.RESULT}"], "") == outcome
    assert job_outcome._with_change(outcome, [], "") == outcome


@pytest.mark.parametrize(
    ("verdict", "name"),
    [
        (None, "b.darshan"),  # the job ended before a log was checked
        (LogVerdict("a.darshan"), "a.darshan"),
        (LogVerdict("b.darshan"), "b.darshan"),
        (LogVerdict(None, "libdarshan was not loaded"), None),
    ],
)
def test_the_log_of_a_run_is_the_one_that_was_checked(
    tmp_path: Path, verdict: LogVerdict | None, name: str | None
) -> None:
    plan = planning.make(workload.load("demo"), site.load("local"), planning.Request(tmp_path))
    run = plan.runs[-1]
    made = RunOutcome(run, studies.result(plan, run, 100.0, {}), None, verdict)
    folder = tmp_path / rundir.RUNS / made.name / rundir.DARSHAN
    folder.mkdir(parents=True)
    for log in ("a", "b"):
        (folder / f"{log}.darshan").write_bytes(b"")
    outcome: Any = SimpleNamespace(runs=[RunOutcome(plan.runs[0], None, None, None), made])
    with job_outcome.evidence(tmp_path, outcome) as recorded:
        assert [(files.run, files.log) for files in recorded] == [(made, None if name is None else folder / name)]
