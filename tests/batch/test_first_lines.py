"""The first lines that `status`, `wait` and `report` print about jobs of every batch system, in each of their endings
and while they wait: true, and with what to do.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from dlio_hpc.base import command, serialization
from dlio_hpc.base.command import Answer
from dlio_hpc.batch import job_record, job_state, job_watch
from dlio_hpc.batch.job_record import Sighting
from dlio_hpc.config import site, workload
from dlio_hpc.records import job_outcome
from dlio_hpc.reports import job_banner, status_page
from tests.conftest import Run
from tests.support import planning

NAME = "ended"


class Case(NamedTuple):
    """answer: rows of the batch system; None if it knows the job no longer. files: content of files in the job's
    directory. status: state and reason that `status` prints. report: start of the report's first sentence, without the
    name of the job. fault: part of the message with which `wait` stops watching a job that has not ended.
    """

    scheduler: str
    answer: str | None
    status: str
    report: str
    files: Mapping[str, str] = MappingProxyType({})
    fault: str = ""
    cancelled: bool = False
    after: tuple[str, ...] = ()


def _pbs(**attributes: object) -> str:
    return json.dumps({"Jobs": {"7": {"Job_Name": NAME} | attributes}})


def _slurm(state: str, reason: str = "None") -> str:
    return f"7|{state}|{reason}|{NAME}|/x"


def _flux(status: str, exception: str = "", code: str = "", where: str = "", note: str = "") -> str:
    return "|".join(["f7", status, exception, code, where, NAME, note])


BAD, NONE = "Do not use the numbers: job ended as ", "Incomplete: job ended as "
WAITS = "Incomplete: job is "
EMPTY = "; its job.err and job.out are empty or missing"
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T19:00:00 DUE TO TIME LIMIT ***"

CASES = [
    # Slurm
    Case("slurm", _slurm("PENDING", "Priority"), "queued (PENDING Priority)", f"{WAITS}queued (PENDING Priority)"),
    Case("slurm", _slurm("PENDING", "AssocMaxJobsLimit"), "queued (PENDING AssocMaxJobsLimit)",
         f"{WAITS}queued (PENDING AssocMaxJobsLimit)"),
    Case("slurm", _slurm("PENDING", "JobHeldAdmin"),
         "queued (PENDING JobHeldAdmin); an administrator holds the job; ask the facility",
         f"{WAITS}queued (PENDING JobHeldAdmin)"),
    Case("slurm", _slurm("PENDING", "JobHeldUser"),
         "queued (PENDING JobHeldUser); the job is held; release it: scontrol release 7",
         f"{WAITS}queued (PENDING JobHeldUser)"),
    Case("slurm", _slurm("PENDING", "PartitionNodeLimit"),
         "queued (PENDING PartitionNodeLimit); the partition has too few nodes that are up; cancel the job and submit "
         "it with another --nodes or --queue", f"{WAITS}queued (PENDING PartitionNodeLimit)",
         fault="the batch system reports: PENDING PartitionNodeLimit (the partition has too few nodes"),
    Case("slurm", _slurm("PENDING", "QOSMaxWallDurationPerJobLimit"),
         "queued (PENDING QOSMaxWallDurationPerJobLimit); the request exceeds a limit for one job; cancel the job and "
         "submit it with less", f"{WAITS}queued (PENDING QOSMaxWallDurationPerJobLimit)",
         fault="QOSMaxWallDurationPerJobLimit"),
    Case("slurm", _slurm("SUSPENDED"), "running (SUSPENDED)", f"{WAITS}running, suspended (SUSPENDED)"),
    Case("slurm", _slurm("REQUEUE_HOLD", "launch failed requeued held"),
         "queued (REQUEUE_HOLD launch failed requeued held); held after failed starts; ask the facility",
         f"{WAITS}queued (REQUEUE_HOLD launch failed requeued held)"),
    Case("slurm", _slurm("FAILED", "NonZeroExitCode"), "failed (FAILED NonZeroExitCode)",
         f"{BAD}failed (FAILED NonZeroExitCode){EMPTY}", {"exit_status": "1"}),
    Case("slurm", _slurm("CANCELLED"), "cancelled (CANCELLED)", f"{NONE}cancelled (CANCELLED); it has no results",
         {"exit_status": "143", "terminated": ""}, cancelled=True),
    Case("slurm", _slurm("PREEMPTED"), "cancelled (PREEMPTED)", f"{NONE}cancelled (PREEMPTED); it has no results",
         {"exit_status": "143", "terminated": ""}),
    Case("slurm", _slurm("TIMEOUT", "TimeLimit"), "timeout (TIMEOUT TimeLimit)",
         f"{NONE}timeout (TIMEOUT TimeLimit); it has no results"),
    Case("slurm", _slurm("NODE_FAIL", "NodeDown"), "node_fail (NODE_FAIL NodeDown)",
         f"{BAD}node_fail (NODE_FAIL NodeDown){EMPTY}"),
    Case("slurm", _slurm("OUT_OF_MEMORY"), "out_of_memory (OUT_OF_MEMORY)",
         f"{BAD}out_of_memory (OUT_OF_MEMORY){EMPTY}"),
    Case("slurm", _slurm("FAILED", "NonZeroExitCode"),
         "out_of_memory (slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.)",
         f"{BAD}out_of_memory (slurmstepd: error: Detected 1 oom_kill event", {
             "exit_status": "137", "job.err": "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n"}),
    Case("slurm", _slurm("CANCELLED", "DependencyNeverSatisfied"), "cancelled (CANCELLED DependencyNeverSatisfied)",
         f"{NONE}cancelled (CANCELLED DependencyNeverSatisfied); it has no results"),
    Case("slurm", _slurm("BOOT_FAIL"), "node_fail (BOOT_FAIL)", f"{BAD}node_fail (BOOT_FAIL){EMPTY}"),
    Case("slurm", _slurm("DEADLINE"), "timeout (DEADLINE)", f"{NONE}timeout (DEADLINE)"),
    Case("slurm", None, f"timeout ({LIMIT})", f"{NONE}timeout ({LIMIT})", {"job.err": f"{LIMIT}\n"}),
    Case("slurm", None, "failed (exit status 143)", f"{BAD}failed (exit status 143){EMPTY}", {"exit_status": "143"}),
    Case("slurm", None, "cancelled", f"{NONE}cancelled; it has no results", {"exit_status": "143", "terminated": ""}),
    Case("slurm", None, "lost (the batch system no longer knows it)",
         f"{NONE}lost (the batch system no longer knows it); it has no results"),
    # PBS
    Case("pbs", _pbs(job_state="Q", comment="Not Running: Insufficient amount of resource: ncpus"),
         "queued (Not Running: Insufficient amount of resource: ncpus)", f"{WAITS}queued (Not Running: Insufficient"),
    Case("pbs", _pbs(job_state="Q", comment="Can Never Run: Not enough total nodes available"),
         "queued (Can Never Run: Not enough total nodes available); cancel the job and submit it with a smaller "
         "request or another --queue", f"{WAITS}queued (Can Never Run",
         fault="Can Never Run: Not enough total nodes available"),
    Case("pbs", _pbs(job_state="H", substate=20, Hold_Types="u", comment="Not Running: Not enough free nodes"),
         "queued (held by its owner); release it: qrls, or ask the facility", f"{WAITS}queued (held by its owner)"),
    Case("pbs", _pbs(job_state="H", substate=22, Hold_Types="s"), "queued (waits for the end of other jobs)",
         f"{WAITS}queued (waits for the end of other jobs)"),
    Case("pbs", _pbs(job_state="S", substate=45, comment="Job run at noon"),
         "running (suspended); PBS resumes it (qsig -s resume)", f"{WAITS}running (suspended)"),
    Case("pbs", _pbs(job_state="H", substate=20, Hold_Types="s", run_count=21,
                     comment="job held, too many failed attempts"),
         "failed (job held, too many failed attempts); PBS keeps it until it is waited for, collected, or deleted with "
         "qdel", f"{BAD}failed (job held, too many failed attempts){EMPTY}"),
    Case("pbs", _pbs(job_state="F", Exit_status=-17, substate=93),
         "failed (Exit_status -17, substate 93; a hook of the node rejected or deleted the job)",
         f"{BAD}failed (Exit_status -17, substate 93; a hook of the node rejected or deleted the job){EMPTY}"),
    Case("pbs", _pbs(job_state="F", Exit_status=0, substate=91),
         "cancelled (Exit_status 0, substate 91; deleted while it ran)",
         f"{NONE}cancelled (Exit_status 0, substate 91; deleted while it ran); it has no results"),
    Case("pbs", _pbs(job_state="F", Exit_status=0, substate=91),
         "cancelled (Exit_status 0, substate 91; deleted while it ran)", f"{NONE}cancelled", {"exit_status": "124"}),
    Case("pbs", _pbs(job_state="F", substate=91), "cancelled (Exit_status absent, substate 91; deleted before it ran)",
         f"{NONE}cancelled"),
    Case("pbs", _pbs(job_state="F", substate=92),
         "cancelled (Exit_status absent, substate 92; deleted by PBS before it ran, because a job that it waited for "
         "failed)", f"{NONE}cancelled"),
    Case("pbs", _pbs(job_state="F", Exit_status=-29, substate=93),
         "timeout (Exit_status -29, substate 93; the time limit was reached)", f"{NONE}timeout"),
    Case("pbs", _pbs(job_state="F", Exit_status=0, substate=93), "node_fail (Exit_status 0, substate 93)",
         f"{BAD}node_fail (Exit_status 0, substate 93){EMPTY}"),
    Case("pbs", _pbs(job_state="F", Exit_status=265, substate=93), "failed (Exit_status 265, substate 93)",
         f"{BAD}failed (Exit_status 265, substate 93){EMPTY}"),
    Case("pbs", _pbs(job_state="F", Exit_status=-27, substate=93),
         "out_of_memory (Exit_status -27, substate 93; the job used more memory than it requested)",
         f"{BAD}out_of_memory"),
    Case("pbs", None, "cancelled (deleted before it started; it waited for 6)", f"{NONE}cancelled (deleted before",
         after=("6",)),
    Case("pbs", None, "timeout (=>> PBS: job killed: walltime 26 exceeded limit 20)", f"{NONE}timeout (=>> PBS",
         {"job.err": "=>> PBS: job killed: walltime 26 exceeded limit 20\n"}),
    # Flux
    Case("flux", _flux("SCHED", where="held"), "queued (SCHED held); release it: flux job urgency f7 default",
         f"{WAITS}queued (SCHED held)"),
    Case("flux", _flux("DEPEND", where="depends:after-success=f6"), "queued (DEPEND depends:after-success=f6)",
         f"{WAITS}queued (DEPEND"),
    Case("flux", _flux("FAILED", "alloc", "1", note="alloc: unsatisfiable request"),
         "failed (FAILED alloc: unsatisfiable request)", f"{BAD}failed (FAILED alloc: unsatisfiable request){EMPTY}"),
    Case("flux", _flux("FAILED", "dependency", "1", note="dependency: f6 can never be satisfied"),
         "cancelled (FAILED dependency: f6 can never be satisfied)", f"{NONE}cancelled (FAILED dependency"),
    Case("flux", _flux("TIMEOUT", "timeout", "137", note="resource allocation expired"),
         "timeout (TIMEOUT resource allocation expired)", f"{NONE}timeout (TIMEOUT"),
    Case("flux", _flux("CANCELED", "cancel", "143", note="not needed"), "cancelled (CANCELED not needed)",
         f"{NONE}cancelled (CANCELED not needed)"),
    Case("flux", _flux("FAILED", "exec", "137", note="node failure on n3"), "node_fail (FAILED node failure on n3)",
         f"{BAD}node_fail (FAILED node failure on n3){EMPTY}"),
    # Cobalt
    Case("cobalt", f"7 {NAME} admin_hold", "queued (admin_hold); an administrator holds it; ask the facility",
         f"{WAITS}queued (admin_hold)"),
    Case("cobalt", None, "timeout (maximum execution time exceeded)",
         f"{NONE}timeout (maximum execution time exceeded)",
         {"job.cobaltlog": "Info: maximum execution time exceeded; initiating job termination\n"}),
    Case("cobalt", None, "cancelled (user delete requested)", f"{NONE}cancelled (user delete requested)",
         {"job.cobaltlog": "Info: user delete requested with signal SIGTERM by user root\n"}),
]  # fmt: skip

UNKNOWN = {
    "slurm": Answer(1, "", "slurm_load_jobs error: Invalid job id specified"),
    "pbs": Answer(153, "", "qstat: Unknown Job Id 7"),
    "flux": Answer(1, "", "JobID f7 unknown"),
    "cobalt": Answer(1, "", ""),
}


def _directory(folder: Path, case: Case) -> Path:
    profile = site.load({"cobalt": "theta"}.get(case.scheduler, case.scheduler))
    request = planning.Request(runs=folder, data=folder, nodes=128 if case.scheduler == "cobalt" else 2)
    plan = planning.make(workload.load("null"), profile, request)
    directory = folder / NAME
    directory.mkdir()
    record = job_record.planned(plan, "sbatch", case.after)
    record = serialization.decode(
        serialization.encode(record).replace(plan.job.encode(), NAME.encode()), job_record.Job, "job.json"
    )  # fmt: skip
    asked = "2026-11-25T09:30:00Z" if case.cancelled else None
    states = (Sighting("submitted", "2026-11-25T09:00:00Z"),)
    batch_id = "f7" if case.scheduler == "flux" else "7"
    job_record.save(directory, replace(record, batch_id=batch_id, states=states, cancel_asked=asked))
    (directory / "plan.json").write_bytes(serialization.encode(plan).replace(plan.job.encode(), NAME.encode()))
    for name, content in case.files.items():
        (directory / name).write_text(content)
    return directory


@pytest.mark.parametrize("case", CASES, ids=[f"{case.scheduler}-{case.status[:60]}" for case in CASES])
def test_the_first_lines_are_true(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"JobID  JobName  State\n=====\n{case.answer}"
    known = Answer(0, table if case.scheduler == "cobalt" else case.answer or "", "")

    def ask(*arguments: str, **_: object) -> Answer:
        if arguments[0] in ("sacct", "qdel"):
            return Answer(0, "", "")
        return UNKNOWN[case.scheduler] if case.answer is None else known

    monkeypatch.setattr(command, "ask", ask)
    monkeypatch.setattr(job_state, "_LATE_S", 0.0)
    directory = _directory(tmp_path, case)
    (look,) = job_state.refresh_all([directory])
    assert look.fault is None
    assert _status(look) == case.status
    watched = job_watch._watched(look, is_final=True)
    assert case.fault in str(watched.fault or "")
    assert bool(watched.fault) is bool(case.fault)
    assert f"{NAME}: {watched.job.described()}".startswith(f"{NAME}: {case.status.split(' (')[0]}")
    sentence = job_banner.of_jobs([job_outcome.load(directory, look)]).text.replace(f"job {NAME} ", "job ")
    assert sentence.startswith(case.report), sentence


def _status(look: job_state.JobSnapshot) -> str:
    """Return what `status` shows of a job: STATE (REASON); ADVICE. Sentences of its own are left out."""
    row = status_page.row_of(look, Path("dlio-runs"))
    assert row.state.startswith("invalid" if look.job.state == "failed" and row.state == "invalid" else look.job.state)
    notes = [note for note in row.notes if not note.startswith(("The ", "dlio-hpc report"))]
    described = re.sub(r" for [0-9]+:[0-9:]+$", "", notes.pop(0)) if look.job.states[-1].text else look.job.state
    return "; ".join([described, *notes])


# Files of a job that its batch system no longer knows: their content, what `status` prints, and the start of the
# report's first sentence.
NO_RESULT = "Do not use the numbers: job completed, but "
FORGOTTEN = [
    ({"exit_status": "0"}, "completed", NO_RESULT),
    ({"exit_status": "2"}, "failed", f"{BAD}failed{EMPTY}"),
    ({"exit_status": "3"}, "failed", f"{BAD}failed{EMPTY}"),
    ({"exit_status": "6"}, "failed", f"{BAD}failed{EMPTY}"),
    ({"exit_status": "70"}, "failed", "Do not use the numbers: job ended because of a bug in dlio-hpc"),
    ({"exit_status": "1"}, "failed (exit status 1)", f"{BAD}failed (exit status 1){EMPTY}"),
    ({"exit_status": "137"}, "failed (exit status 137)", f"{BAD}failed (exit status 137){EMPTY}"),
    ({"exit_status": "143"}, "failed (exit status 143)", f"{BAD}failed (exit status 143){EMPTY}"),
    ({"exit_status": "143", "terminated": ""}, "cancelled", f"{NONE}cancelled; it has no results"),
    ({"exit_status": "124"}, "timeout", f"{NONE}timeout; it has no results"),
    ({"exit_status": "124", "stop": ""}, "timeout", f"{NONE}timeout; it has no results"),
    ({"stop": ""}, "timeout (the batch system no longer knows it)", f"{NONE}timeout (the batch system no longer"),
    ({"job.err": "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0."},
     "out_of_memory (slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.)", f"{BAD}out_of_memory"),
    ({}, "lost (the batch system no longer knows it)", f"{NONE}lost (the batch system no longer knows it)"),
]  # fmt: skip


@pytest.mark.parametrize("scheduler", list(UNKNOWN))
@pytest.mark.parametrize(("files", "status", "report"), FORGOTTEN, ids=[" ".join(files) for files, *_ in FORGOTTEN])
def test_the_first_lines_of_a_job_that_was_forgotten(
    scheduler: str, files: dict[str, str], status: str, report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(scheduler, None, status, report, files)
    test_the_first_lines_are_true(case, tmp_path, monkeypatch)


def test_what_sbatch_says_is_shown_and_kept(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, line in (("sbatch", "echo 'sbatch: time limit cut to 1 minute' >&2; echo 4711"), ("squeue", "exit 1")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SLURM_CONF": "/nowhere"}
    done = run("dlio-submit", small, "-s", "slurm", "-d", "data", "--json", **path)
    assert "note: sbatch says: time limit cut to 1 minute" in done.err
    directory = Path(done.job["directory"])
    assert json.loads((directory / "job.json").read_bytes())["remarks"] == "time limit cut to 1 minute"
    assert "sbatch says: time limit cut to 1 minute" in run("dlio-hpc", "report", directory, **path).out
