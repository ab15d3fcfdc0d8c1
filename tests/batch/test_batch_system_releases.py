"""Answers of other releases of Slurm and OpenPBS than those that jobs run on here. The texts are read in the sources;
docs/reference/batch-system-releases.md names file and tag of each.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base import command
from dlio_hpc.base.command import Answer
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch import job_record, job_state
from dlio_hpc.batch.schedulers import pbs, slurm
from dlio_hpc.batch.schedulers.scheduler import After, JobRef, JobStatus
from dlio_hpc.config import site, workload
from dlio_hpc.plan.plan import Plan
from tests.support import planning

Answers = Callable[..., None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Let commands answer: squeue=Answer(...), or a function from the arguments to an Answer."""

    def give(**by_program: Any) -> None:
        def ask(*arguments: str, **_: object) -> Answer:
            answer = by_program[arguments[0]]
            return answer if isinstance(answer, Answer) else answer(arguments)

        monkeypatch.setattr(command, "ask", ask)

    return give


def _known(*ids: str) -> list[JobRef]:
    return [JobRef(batch_id, Path("/nowhere"), "name") for batch_id in ids]


def _plan(name: str) -> Plan:
    request = planning.Request(runs=Path("/runs"), data=Path("/data"), nodes=2)
    return planning.make(workload.load("null"), site.load(name), request)


def _slurm(answers: Answers, line: str) -> JobStatus:
    (job,) = _known("7")
    answers(squeue=Answer(0, f"{line}|name|/a|b", ""), sacct=Answer(0, "", ""))
    return slurm.SLURM.states([job])[job]


# Slurm. A line of squeue -o '%i|%T|%r|%j|%Z' without name and folder. %r prints the description of the reason, if the
# job has one, and not its name.

SLURM = [
    # 25.11: a job of --requeue=expedite waits for its nodes.
    ("7|EXPEDITING|None", "queued"),
    # 22.05 and later: descriptions.
    ("7|PENDING|ReqNodeNotAvail, UnavailableNodes:n[1-2]", "queued"),
    ("7|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "queued"),
    ("7|PENDING|launch failed requeued held", "queued"),
    ("7|REQUEUE_HOLD|job requeued in held state", "queued"),
    ("7|SPECIAL_EXIT|job requeued in special exit state", "queued"),
    ("7|RESV_DEL_HOLD|Reservation nightly was deleted", "queued"),
    ("7|TIMEOUT|Job is at or exceeds QOS normal's group wall limit of 60 with 61", "timeout"),
    ("7|PENDING|burst_buffer/lua: slurm_bb_data_in: copied 3|4 files", "queued"),
    # 23.02: FAIL_SIGNAL; before, JobLaunchFailure.
    ("7|FAILED|RaisedSignal:9(Killed)", "failed"),
    # 23.02: a reservation that became invalid; too many starts that failed.
    ("7|RESV_DEL_HOLD|Reservation nightly is invalid", "queued"),
    ("7|REQUEUE_HOLD|launch failure limit exceeded requeued held", "queued"),
    # 23.11: constraints that a later change of nodes may satisfy.
    ("7|PENDING|Constraints", "queued"),
    # 24.05
    ("7|PENDING|MaxPoweredUpNodes", "queued"),
    ("7|PENDING|MpiPortsBusy", "queued"),
    # 24.11
    ("7|PENDING|Nodes required for job are DOWN, DRAINED, REBOOTING or reserved for jobs in higher priority partitions",
     "queued"),
    # 25.05
    ("7|PENDING|user env retrieval failed requeued held", "queued"),
    # 25.11
    ("7|PENDING|NvidiaImexChannels", "queued"),
    ("7|PENDING|License request 'scratch:9' is no longer valid, holding job", "queued"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "state"), SLURM)
def test_slurm_states(answers: Answers, line: str, state: str) -> None:
    status = _slurm(answers, line)
    assert (status.state, status.never) == (state, False)
    _, word, reason = line.split("|", 2)
    assert status.text == (word if reason == "None" else f"{word} {reason}")


# Reasons that no end of another job removes: the request is outside of a limit for each job, or of what the partition
# permits.
NEVER = [
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "PartitionTimeLimit",
    "AccountNotAllowed",
    "uid 1000 not in group permitted to use this partition (debug). groups allowed: staff",
    "QOSNotAllowed",
    "Job's QOS not permitted to use this partition (debug allows high not normal)",
    "AssocMaxNodePerJobLimit",
    "AssocMaxCpuPerJobLimit",
    "AssocMaxWallDurationPerJobLimit",
    "QOSMaxNodePerJobLimit",
    "QOSMaxCpuPerJobLimit",
    "QOSMaxWallDurationPerJobLimit",
    "QOSMinCpuNotSatisfied",
    "QOSMinNode",
    "MaxMemPerLimit",
]


@pytest.mark.parametrize("reason", NEVER)
def test_slurm_jobs_that_can_never_run(answers: Answers, reason: str) -> None:
    assert _slurm(answers, f"7|PENDING|{reason}").never


def test_slurm_leaves_out_an_unknown_job_among_several(answers: Answers) -> None:
    """squeue asks for a single job by its id, and fails with Invalid job id; of several ids it prints what it knows."""
    answers(squeue=Answer(0, "8|RUNNING|None|name|/x", ""), sacct=Answer(0, "", ""))
    jobs = _known("7", "8")
    assert slurm.SLURM.states(jobs) == {jobs[1]: JobStatus("running", "RUNNING")}


@pytest.mark.parametrize(
    ("code", "out", "err", "batch_id"),
    [
        (0, "26;cluster", "", "26"),
        (0, "26", "sbatch: error: Slurm job queue full, sleeping and retrying", "26"),
        (1, "", "sbatch: error: Batch job submission failed: Job dependency problem", None),
    ],
    ids=["several clusters", "MaxJobCount", "23.02: afterok of a job that Slurm has forgotten"],
)
def test_slurm_takes_or_refuses(answers: Answers, code: int, out: str, err: str, batch_id: str | None) -> None:
    answers(sbatch=Answer(code, out, err))
    if batch_id is not None:
        assert slurm.SLURM.submit(_plan("slurm"), After(("4",))).batch_id == batch_id
        return
    with pytest.raises(ConfigError, match="Job dependency problem"):
        slurm.SLURM.submit(_plan("slurm"), After(("4",)))


def test_a_slurm_job_over_the_limit_of_its_qos_is_a_timeout(answers: Answers, tmp_path: Path) -> None:
    """Its reason is not TimeLimit, and the script writes the exit code of a cancelled job."""
    directory = tmp_path / "one"
    directory.mkdir()
    sighting = job_record.Sighting("running", "2026-11-25T12:00:00Z", "RUNNING")
    job_record.save(directory, job_record.Job("one", "one", "slurm", "slurm", "here", "sbatch", "7", (sighting,)))
    (directory / "exit_status").write_text("143\n")
    answers(squeue=Answer(0, "7|TIMEOUT|Job is at or exceeds QOS normal's group wall limit of 60 with 61|one|/x", ""))
    assert job_state.refresh(directory).state == "timeout"


# OpenPBS. Attributes as qstat -f -F json prints them: the form of numbers and strings depends on the release. The first
# ones of a release are no JSON.

JSON = [
    ("20.0.1", '"Variable_List":{"FOO":}'),  # an empty value
    ("20.0.1", '"Variable_List":{"FOO":005}'),
    ("20.0.1", '"Variable_List":{"FOO":0x10}'),
    ("20.0.1", '"Submit_arguments":"-v A="b" job.sh"'),
    ("20.0.1", '"Variable_List":{"FOO":"\\\'a\\\'"}'),
    ("20.0.1", '"Submit_arguments":"-v A=a\\,b job.sh"'),
    ("23.06.06", '"Variable_List":{"FOO":.123}'),
    ("23.06.06", '"Variable_List":{"FOO":123.}'),
    ("23.06.06", '"Variable_List":{"FOO":-00}'),
    ("23.06.06", '"Variable_List":{"FOO":+5}'),
    ("23.06.06", '"Variable_List":{"FOO":nan}'),
    ("23.06.06", '"Variable_List":{"FOO":inf}'),
    ("23.06.06", '"Submit_arguments":"-v A=\\d job.sh"'),
    ("23.06.06", '"Account_Name":1e5'),
    ("master", '"Account_Name":1e5'),
    ("master", '"project":true'),
    ("master", '"Variable_List":{"FOO":null,"BAR":[1],"BAZ":""}'),
]


@pytest.mark.parametrize(("release", "attribute"), JSON)
def test_pbs_attributes_of_each_release(answers: Answers, release: str, attribute: str) -> None:
    job = f'{{"job_state":"R","substate":42,{attribute},"comment":"Job run at"}}'
    out = f'{{"timestamp":1,"pbs_version":"{release}","Jobs":{{"14.pbshost":{job}}}}}'
    text = "Job Id: 14.pbshost\n    job_state = R\n    substate = 42\n    comment = Job run at\n"
    answers(qstat=lambda arguments: Answer(0, out if "json" in arguments else text, ""))
    (known,) = _known("14.pbshost")
    assert pbs.PBS.states([known]) == {known: JobStatus("running", "Job run at")}


def test_pbs_that_prints_the_first_of_several_jobs(answers: Answers) -> None:
    """The development version prints the first job of several alone, if it is asked for JSON."""

    def qstat(arguments: tuple[str, ...]) -> Answer:
        first = next(word for word in arguments if word.endswith(".pbshost"))
        return Answer(0, json.dumps({"Jobs": {first: {"job_state": "R"}}}), "")

    answers(qstat=qstat)
    jobs = _known("14.pbshost", "15.pbshost")
    assert sorted(pbs.PBS.states(jobs)) == jobs


PBS = [
    # 22.05: qrerun leaves its mark while the job waits again.
    ({"job_state": "Q", "substate": 10, "Exit_status": -11}, "queued"),
    # Before the fixes of 2023 and 2024, a job that runs again has the Exit_status of its first run.
    ({"job_state": "R", "substate": 42, "Exit_status": 1}, "running"),
    # 22.05: codes for limits.
    ({"job_state": "F", "substate": 93, "Exit_status": -24}, "failed"),
    ({"job_state": "F", "substate": 93, "Exit_status": -25}, "failed"),
    ({"job_state": "F", "substate": 93, "Exit_status": -26}, "out_of_memory"),
    ({"job_state": "F", "substate": 93, "Exit_status": -27}, "out_of_memory"),
    ({"job_state": "F", "substate": 93, "Exit_status": -28}, "timeout"),
    ({"job_state": "F", "substate": 93, "Exit_status": -29}, "timeout"),
    ({"job_state": "F", "substate": 93, "Exit_status": -30}, "node_fail"),
    # 20.0 and later: the job that it depends on had ended already, and not as the dependency demands.
    ({"job_state": "F", "substate": 92}, "cancelled"),
    # 20.0: qdel, which kills a job that does not answer.
    ({"job_state": "F", "substate": 91, "Exit_status": 265}, "cancelled"),
]


@pytest.mark.parametrize(("job", "state"), PBS)
def test_pbs_states(answers: Answers, job: dict[str, Any], state: str) -> None:
    answers(qstat=Answer(0, json.dumps({"Jobs": {"14.pbshost": job}}), ""))
    (known,) = _known("14.pbshost")
    assert pbs.PBS.states([known])[known].state == state


def test_pbs_refuses_scripts_with_lines_of_windows(answers: Answers) -> None:
    """The development version looks for them; before, the shell failed on them in the job."""
    answers(qsub=Answer(5, "", "qsub: script contains cr, lf"))
    with pytest.raises(ConfigError, match="script contains cr, lf"):
        pbs.PBS.submit(_plan("pbs"), After())
