"""Answers of batch systems are read correctly; the texts were seen on real ones or are read in their sources."""

import json
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.base import command, units
from dlio_hpc.base.command import Answer, Unanswered
from dlio_hpc.base.errors import ConfigError, DlioError, Incomplete, InfrastructureError
from dlio_hpc.base.units import Walltime
from dlio_hpc.batch import job_record, job_state, new_site_profile, preflight, submit
from dlio_hpc.batch.cancel import cancel
from dlio_hpc.batch.collect import collect
from dlio_hpc.batch.job_watch import Watched
from dlio_hpc.batch.schedulers import cobalt, common, flux, pbs, slurm
from dlio_hpc.batch.schedulers.scheduler import ENDED, After, JobRef, JobStatus
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.cli import console
from dlio_hpc.config import site, workload
from dlio_hpc.plan.plan import Plan
from tests.support import planning

Said = dict[str, Answer]
QUEUES = [name for name, scheduler in SCHEDULERS.items() if scheduler.is_queue]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Let each command answer what the test enters under its name."""
    answers: Said = {}

    def ask(*arguments: str, **_: object) -> Answer:
        if arguments[0] not in answers:
            raise command.CommandMissing(f"{arguments[0]} is not on PATH")
        return answers[arguments[0]]

    monkeypatch.setattr(command, "ask", ask)
    return answers


def _plan(name: str, walltime: int = 3600, *options: str, **changes: Any) -> Plan:
    profile = site.load({"cobalt": "theta"}.get(name, name), tuple(f"{key}={value}" for key, value in changes.items()))
    request = planning.Request(
        runs=Path("/runs"), data=Path("/data"), nodes=128 if name == "cobalt" else 2, walltime=Walltime(walltime),
        job_options=options,
    )  # fmt: skip
    return planning.make(workload.load("null"), profile, request)


def _job(batch_id: str = "", directory: Path = Path("/nowhere"), cluster: str = "") -> JobRef:
    return JobRef(batch_id, directory, "name", cluster)


def _known(*ids: str, directory: Path = Path("/nowhere")) -> list[JobRef]:
    return [_job(batch_id, directory) for batch_id in ids]


def _states(name: str, *jobs: JobRef) -> dict[str, JobStatus]:
    return {job.batch_id: status for job, status in SCHEDULERS[name].states(jobs).items()}


# What is common to them


@pytest.mark.parametrize("name", QUEUES)
@pytest.mark.parametrize(
    "message",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        'sbatch: error: slurm_set_addr: Unable to resolve "ctl1"\nsbatch: error: Batch job submission failed: No error',
        "sbatch: error: ClusterName needs to be specified\nsbatch: fatal: Unable to process configuration file",
        "qsub: Unknown Host.",
        "Connection refused\nqsub: cannot connect to server pbshost (errno=111)",
        "qstat: cannot connect to server pbs01 (errno=15010)",
        "component error: Failed to connect to queue-manager: cn:queue-manager",
        "flux-batch: ERROR: Unable to connect to Flux: broker socket /run/flux/local was not found",
    ],
)
def test_a_server_that_cannot_be_reached_has_refused_nothing(said: Said, name: str, message: str) -> None:
    scheduler = SCHEDULERS[name]
    for program in ("sbatch", "squeue", "scancel", "qsub", "qstat", "qdel", "qselect", "flux"):
        said[program] = Answer(1, "", message)
    assert scheduler.program in said, f"add the commands of {name}"
    for action in (
        lambda: scheduler.submit(_plan(name), After()),
        lambda: scheduler.states(_known("5")),
        lambda: scheduler.cancel(_job("5")),
        lambda: scheduler.find(_job()),
        lambda: scheduler.queues(""),
    ):
        with pytest.raises(Unanswered, match=r"ended with 1: "):
            action()


@pytest.mark.parametrize(
    "message",
    [
        "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: error: fetch_config: DNS "
        "SRV lookup failed\nsbatch: fatal: Could not establish a configuration source",
        "sbatch: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: No such file or directory, retrying in "
        "1sec up to 60sec\nsbatch: fatal: Unable to process configuration file",
    ],
)
def test_without_a_configuration_of_slurm_no_job_was_submitted(said: Said, message: str) -> None:
    said["sbatch"] = said["squeue"] = Answer(1, "", message)
    with pytest.raises(
        InfrastructureError, match=r"the job was not submitted: sbatch found no configuration"
    ) as raised:
        SCHEDULERS["slurm"].submit(_plan("slurm"), After())
    assert not isinstance(raised.value, Unanswered)
    assert "set SLURM_CONF" in str(raised.value)
    assert "sbatch ended with 1: sbatch: error: " in str(raised.value)
    with pytest.raises(Unanswered, match=r"squeue found no configuration of Slurm \(slurm.conf\) on "):
        SCHEDULERS["slurm"].states(_known("5"))  # a job that was submitted may still run


REFUSED = [
    ("slurm", 1, "sbatch: error: Batch job submission failed: Invalid partition name specified"),
    ("slurm", 1, "sbatch: error: Batch job submission failed: Invalid account or account/partition combination"),
    ("slurm", 1, "sbatch: error: Batch job submission failed: Invalid qos specification"),
    ("slurm", 1, "sbatch: error: Batch job submission failed: More processors requested than permitted"),
    ("slurm", 1, "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds)"),
    ("slurm", 1, "sbatch: error: Batch job submission failed: Node count specification invalid"),
    ("slurm", 255, "sbatch: error: Invalid --time specification"),
    ("slurm", 255, "sbatch: unrecognized option '--foo'"),
    ("slurm", 1, "sbatch: error: Memory specification can not be satisfied"),
    ("pbs", 170, "qsub: Unknown queue"),
    ("pbs", 188, "qsub: Job violates queue and/or server resource limits"),
    ("pbs", 166, "qsub: Illegal attribute or resource value Resource_List.walltime"),
    ("pbs", 187, "qsub: Unknown resource Resource_List.foo"),
    ("pbs", 2, "qsub: illegal -N value"),
    ("pbs", 32, "qsub: Account_Name is required to be set."),
    ("flux", 1, "flux-batch: ERROR: Invalid queue 'nope' specified"),
    ("flux", 1, "flux-batch: ERROR: requested duration (2h) exceeds policy limit of 1h for queue debug"),
    ("flux", 2, "flux batch: error: unrecognized arguments: --bogus"),
    ("cobalt", 1, "<Fault 1001: \"trying to add job to non-existent queue 'nope'\">"),
    ("cobalt", 1, "node count out of realistic range"),
    ("cobalt", 1, "Multiple --attrs options not supported.  Specify multiple attributes as follows: --attrs FOO=1"),
]


@pytest.mark.parametrize(("name", "code", "message"), REFUSED)
def test_a_refusal_is_told_in_the_batch_systems_words(said: Said, name: str, code: int, message: str) -> None:
    program = SCHEDULERS[name].program
    said[program] = Answer(code, "", message)
    with pytest.raises(ConfigError) as refusal:
        SCHEDULERS[name].submit(_plan(name), After())
    assert str(refusal.value) == f"{program} rejected the job: {' '.join(message.split())}"


TAKEN = [
    ("slurm", "25", "25"),
    ("slurm", "25;c5", "25 c5"),
    ("slurm", "sbatch: lua: charged to project 7\n26", "26"),
    ("pbs", "5.pbshost", "5.pbshost"),
    ("pbs", "512.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov", "512.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov"),
    ("pbs", "Notice: 3 node-hours\n5.pbshost\n", "5.pbshost"),
    ("flux", "ƒ5ZZyuQ1d", "f5ZZyuQ1d"),
    ("flux", "bank: 3 node-hours left\nf5ZZyuQ1d", "f5ZZyuQ1d"),
    ("cobalt", "527001", "527001"),
    ("cobalt", 'Job routed to queue "debug".\nMemory mode set to cache quad for queue debug\n527001', "527001"),
]


@pytest.mark.parametrize(("name", "out", "batch_id"), TAKEN)
def test_the_batch_id_of_what_was_taken(said: Said, name: str, out: str, batch_id: str) -> None:
    said[SCHEDULERS[name].program] = Answer(0, out.strip(), "")
    accepted = SCHEDULERS[name].submit(_plan(name), After())
    assert f"{accepted.batch_id} {accepted.cluster}".strip() == batch_id


@pytest.mark.parametrize("name", QUEUES)
@pytest.mark.parametrize("out", ["", "Submitted batch job", "none", "12 jobs before you"])
def test_an_answer_without_a_batch_id(said: Said, name: str, out: str) -> None:
    said[SCHEDULERS[name].program] = Answer(0, out, "")
    with pytest.raises(Unanswered, match="printed no batch id that dlio-hpc recognises"):
        SCHEDULERS[name].submit(_plan(name), After())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("slurm", "sbatch --parsable --dependency=afterok:4:5 --kill-on-invalid-dep=yes job.sh"),
        ("pbs", "qsub -W depend=afterok:4:5 job.sh"),
        ("cobalt", "qsub --dependencies 4:5 job.sh"),
        ("flux", "flux batch --dependency=afterok:4 --dependency=afterok:5 job.sh"),
    ],
)
def test_what_a_person_would_type(name: str, line: str) -> None:
    made = _plan(name)
    scheduler = SCHEDULERS[name]
    assert scheduler.command(made, After(("4", "5"))) == f"cd {made.directory} && {line}"
    bare = {"slurm": "sbatch --parsable", "flux": "flux batch"}.get(name, "qsub")
    assert scheduler.command(made, After()) == f"cd {made.directory} && {bare} job.sh"


@given(st.text(max_size=20))
def test_a_word_for_a_line_of_options_is_plain_or_refused(word: str) -> None:
    try:
        plain = common.plain(word)
    except ConfigError:
        return
    assert plain == word
    assert word.split() == [word]
    assert not set(word) & set("\"'`$\\#;&|<>(){}[]*?!~")


@pytest.mark.parametrize(("name", "queue", "account"), [
    ("slurm", "--partition=", "--account="), ("pbs", "-q ", "-A "), ("flux", "--queue=", "--setattr=bank="),
])  # fmt: skip
def test_lines_of_options(name: str, queue: str, account: str) -> None:
    made = _plan(name, 3600, "--mine", account="proj", queue="fast", job_options="[--site]")
    options = SCHEDULERS[name].request(made)["options"]
    always = ["-l place=scatter"] if name == "pbs" else []
    assert options == [*always, f"{queue}fast", f"{account}proj", "--site", "--mine"]
    listed = _plan(name, 3600, queue="fast", queues="{fast: {options: [--qos=high]}}", job_options="[]")
    assert SCHEDULERS[name].request(listed)["options"] == [*always, "--qos=high"]
    with pytest.raises(ConfigError, match="has characters that a batch system may interpret"):
        SCHEDULERS[name].request(_plan(name, 3600, queue="'a b'"))


# Slurm


SLURM = [
    ("7|PENDING|Priority", "queued", "PENDING Priority"),
    ("7|PENDING|None", "queued", "PENDING"),
    ("7|PENDING|DependencyNeverSatisfied", "queued", "PENDING DependencyNeverSatisfied"),
    ("7|PENDING|BadConstraints", "queued", "PENDING BadConstraints"),
    ("7|PENDING|InvalidAccount", "queued", "PENDING InvalidAccount"),
    ("7|CONFIGURING|None", "queued", "CONFIGURING"),
    ("7|REQUEUED|None", "queued", "REQUEUED"),
    ("7|REQUEUE_FED|None", "queued", "REQUEUE_FED"),
    ("7|REQUEUE_HOLD|None", "queued", "REQUEUE_HOLD"),
    ("7|SPECIAL_EXIT|None", "queued", "SPECIAL_EXIT"),
    ("7|EXPEDITING|None", "queued", "EXPEDITING"),  # Slurm 25.11
    ("7|PENDING,EXPEDITING|None", "queued", "PENDING,EXPEDITING"),
    ("7|PENDING|NvidiaImexChannels", "queued", "PENDING NvidiaImexChannels"),  # Slurm 25.11
    ("7|PENDING|MaxCpuRunMinsPerUser", "queued", "PENDING MaxCpuRunMinsPerUser"),  # Slurm 24.05
    ("7|RUNNING,COMPLETING|None", "running", "RUNNING,COMPLETING"),
    ("7|RESV_DEL_HOLD|None", "queued", "RESV_DEL_HOLD"),
    ("7|RUNNING|None", "running", "RUNNING"),
    ("7|COMPLETING|None", "running", "COMPLETING"),
    ("7|SUSPENDED|None", "running", "SUSPENDED"),
    ("7|STOPPED|None", "running", "STOPPED"),
    ("7|SIGNALING|None", "running", "SIGNALING"),
    ("7|STAGE_OUT|None", "running", "STAGE_OUT"),
    ("7|RESIZING|None", "running", "RESIZING"),
    ("7|COMPLETED|None", "completed", "COMPLETED"),
    ("7|FAILED|NonZeroExitCode", "failed", "FAILED NonZeroExitCode"),
    ("7|FAILED|JobLaunchFailure", "failed", "FAILED JobLaunchFailure"),
    ("7|TIMEOUT|TimeLimit", "timeout", "TIMEOUT TimeLimit"),
    ("7|DEADLINE|None", "timeout", "DEADLINE"),
    ("7|CANCELLED|None", "cancelled", "CANCELLED"),
    ("7|CANCELLED by 1000|None", "cancelled", "CANCELLED by 1000"),
    ("7|CANCELLED+|None", "cancelled", "CANCELLED+"),
    ("7|PREEMPTED|None", "cancelled", "PREEMPTED"),
    ("7|REVOKED|None", "running", "REVOKED"),
    ("7|NODE_FAIL|NodeDown", "node_fail", "NODE_FAIL NodeDown"),
    ("7|BOOT_FAIL|None", "node_fail", "BOOT_FAIL"),
    ("7|OUT_OF_MEMORY|OutOfMemory", "out_of_memory", "OUT_OF_MEMORY OutOfMemory"),
]


@pytest.mark.parametrize(("line", "state", "text"), SLURM)
def test_slurm_states(said: Said, line: str, state: str, text: str) -> None:
    said["squeue"] = Answer(0, line, "")
    said["sacct"] = Answer(0, "", "")
    never = "Never" in line or "Invalid" in line or "BadConstraints" in line
    suspended = text in ("SUSPENDED", "STOPPED")
    status = _states("slurm", *_known("7"))["7"]
    assert status._replace(advice="") == JobStatus(state, text, never, suspended)  # type: ignore[arg-type]
    assert bool(status.advice) is never


INVALID = Answer(1, "", "slurm_load_jobs error: Invalid job id specified")


def test_slurm_accounting_knows_what_the_controller_has_forgotten(said: Said) -> None:
    said["squeue"] = Answer(0, "8|RUNNING|None", "")
    said["sacct"] = Answer(0, "7|CANCELLED by 0\n9|TIMEOUT", "")
    assert _states("slurm", *_known("7", "8", "9")) == {
        "7": JobStatus("cancelled", "CANCELLED by 0"),
        "8": JobStatus("running", "RUNNING"),
        "9": JobStatus("timeout", "TIMEOUT"),
    }
    said["squeue"] = INVALID
    assert _states("slurm", *_known("7"))["7"].state == "cancelled"


def test_slurm_without_accounting(said: Said) -> None:
    said["squeue"] = INVALID
    said["sacct"] = Answer(1, "", "Slurm accounting storage is disabled")
    assert _states("slurm", *_known("7")) == {}
    del said["sacct"]  # it is not installed
    assert _states("slurm", *_known("7")) == {}
    said["sacct"] = Answer(1, "", "sacct: fatal: something else")
    with pytest.raises(Unanswered, match="something else"):
        _states("slurm", *_known("7"))


# Reasons of slurm.h; the first ones disappear when other jobs end, the others never by themselves.
@pytest.mark.parametrize(
    ("reason", "never"),
    [(reason, False) for reason in (
        "Priority", "Resources", "Dependency", "BeginTime", "Licenses", "AssocMaxJobsLimit", "QOSMaxJobsPerUserLimit",
        "QOSMaxCpuPerUserLimit", "MaxCpuPerAccount", "AssocGrpCPUMinutesLimit", "QOSGrpNodeLimit", "JobHeldAdmin",
        "JobHeldUser", "ReqNodeNotAvail, UnavailableNodes:n1", "Reservation", "PartitionDown", "JobHoldMaxRequeue",
    )]
    + [(reason, True) for reason in (
        "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "QOSMaxNodePerJobLimit", "QOSMaxCpuPerJobLimit",
        "QOSMaxWallDurationPerJobLimit", "QOSMaxCpuMinutesPerJobLimit", "AssocMaxNodePerJobLimit", "AssocMaxMemPerJob",
        "AssocMaxGRESPerNode", "AssocMaxWallDurationPerJobLimit", "QOSMinCpuNotSatisfied", "MaxMemPerLimit",
        "AccountNotAllowed", "QOSNotAllowed", "InvalidQOS", "BadConstraints", "DeadLine",
    )],
)  # fmt: skip
def test_slurm_reasons_that_never_end(said: Said, reason: str, never: bool) -> None:
    said["squeue"] = Answer(0, f"7|PENDING|{reason}|name|/nowhere", "")
    status = _states("slurm", *_known("7"))["7"]
    assert (status.never, status.text) == (never, f"PENDING {reason}")
    if never or "Held" in reason:
        assert status.advice


def test_slurm_tells_how_to_release_a_job(said: Said) -> None:
    said["squeue"] = Answer(0, "7|PENDING|JobHeldUser|name|/nowhere", "")
    assert _states("slurm", *_known("7"))["7"].advice == "the job is held; release it: scontrol release 7"


RUBBISH = {
    "slurm": ("squeue", ["Killed by the watchdog", "7|", "|||", "7|Running now|None|name|/x", "slurm_load_jobs: ..."]),
    "pbs": ("qstat", ["", "Job id  Name", "[]", '{"Jobs": 7}', '{"Jobs":{"7":{"job_state":']),
    "flux": ("flux", ["flux: upgrading", "f7|RUN", "7"]),
    "cobalt": ("qstat", ["maintenance", "7 name running"]),
}


@pytest.mark.parametrize(("name", "program", "out"), [
    (name, program, out) for name, (program, outs) in RUBBISH.items() for out in outs
])  # fmt: skip
def test_what_cannot_be_parsed_is_no_answer(said: Said, name: str, program: str, out: str) -> None:
    said[program], said["sacct"] = Answer(0, out, ""), Answer(0, "", "")
    with pytest.raises(Unanswered):
        _states(name, *_known("7"))


def test_other_lines_do_no_harm_if_all_jobs_are_listed(said: Said) -> None:
    said["squeue"] = Answer(0, "Welcome\n7|RUNNING|None|name|/x", "")
    assert _states("slurm", *_known("7"))["7"].state == "running"


def test_accounting_that_prints_rubbish_is_no_answer(said: Said) -> None:
    said["squeue"], said["sacct"] = INVALID, Answer(0, "sacct: see the news", "")
    with pytest.raises(Unanswered, match="something else"):
        _states("slurm", *_known("7"))


def test_slurm_knows_a_renamed_job_by_its_folder(said: Said) -> None:
    said["squeue"] = Answer(0, "7|RUNNING|None|renamed|/nowhere", "")
    assert _states("slurm", *_known("7"))["7"].state == "running"


def test_slurm_accounting_tells_jobs_with_one_id_apart(said: Said) -> None:
    said["squeue"] = INVALID
    said["sacct"] = Answer(0, "7|NODE_FAIL|name\n7|COMPLETED|name\n7|FAILED|other", "")
    assert _states("slurm", *_known("7"))["7"].state == "completed", "the last attempt of the job with our name"


# Slurm with several clusters


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Let sbatch accept a job on cluster c5, where alone squeue knows it; return the commands that are run."""
    made: list[tuple[str, ...]] = []

    def ask(*arguments: str, **_: object) -> Answer:
        made.append(arguments)
        there = arguments[1:3] == ("-M", "c5")
        match arguments[0]:
            case "sbatch":
                return Answer(0, "4711;c5", "")
            case "squeue" if "%i" in arguments:
                return Answer(0, "4711" if there else "", "")
            case "squeue":
                return Answer(0, "CLUSTER: c5\n4711|RUNNING|None|name|/x", "") if there else INVALID
            case "sacctmgr":
                return Answer(0, "c1\nc5", "")
        return Answer(0, "", "")

    monkeypatch.setattr(command, "ask", ask)
    return made


@pytest.mark.parametrize("option", ["--clusters=c5", "-M c5", "-Mc5", "--clusters c5", "--cluster=c5"])
def test_slurm_submits_to_the_cluster_of_the_options(calls: list[tuple[str, ...]], option: str) -> None:
    accepted = slurm.SLURM.submit(_plan("slurm", 3600, option), After())
    assert (accepted.batch_id, accepted.cluster) == ("4711", "c5")
    assert calls == [("sbatch", "--parsable", "-M", "c5", "job.sh")]


def test_slurm_clusters_of_the_shell_count(calls: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "c1,c5")
    assert slurm.SLURM.cluster(_plan("slurm")) == "c1,c5"
    assert slurm.SLURM.cluster(_plan("slurm", 3600, "--clusters=c7")) == "c7"
    slurm.SLURM.submit(_plan("slurm"), After())
    assert calls[-1] == ("sbatch", "--parsable", "-M", "c1,c5", "job.sh")


@pytest.mark.parametrize("clusters", ["c5", "c1,c5", "all"])
def test_slurm_finds_a_job_on_the_clusters_it_may_be_on(calls: list[tuple[str, ...]], clusters: str) -> None:
    assert slurm.SLURM.find(_job(cluster=clusters)) == _job("4711", cluster="c5")


def test_slurm_asks_the_cluster_that_has_the_job(calls: list[tuple[str, ...]]) -> None:
    job, elsewhere = _job("4711", cluster="c5"), _job("4711")
    assert slurm.SLURM.states([job]) | slurm.SLURM.states([elsewhere]) == {job: JobStatus("running", "RUNNING")}
    slurm.SLURM.cancel(job)
    assert calls[-1] == ("scancel", "-M", "c5", "4711")
    slurm.SLURM.queues("c5")
    assert calls[-1][:3] == ("squeue", "-M", "c5")


def test_slurm_queues_and_names(said: Said) -> None:
    said["squeue"] = Answer(0, "debug normal\ndebug normal\nbatch normal", "")
    assert slurm.SLURM.queues("") == [("debug", "normal"), ("debug", "normal"), ("batch", "normal")]
    said["squeue"] = Answer(0, "", "")
    assert (slurm.SLURM.queues(""), slurm.SLURM.find(_job())) == ([], None)


# PBS


PBS = [
    ({"job_state": "Q", "comment": "Not Running: Insufficient amount of resource: ncpus"}, "queued", "Not Running: "),
    ({"job_state": "H", "substate": 22}, "queued", ""),
    (
        {"job_state": "H", "substate": 20, "Exit_status": -3, "comment": "job held, too many failed attempts to run"},
        "failed",
        "job held",
    ),
    ({"job_state": "W", "substate": 30}, "queued", "waits for its begin time"),
    ({"job_state": "T"}, "queued", ""),
    ({"job_state": "R", "comment": "Job run at"}, "running", "Job run at"),
    ({"job_state": "E", "Exit_status": 0, "substate": 51}, "running", ""),
    ({"job_state": "S"}, "running", ""),
    ({"job_state": "B"}, "running", ""),
    ({"job_state": "F", "Exit_status": 0, "substate": 92}, "completed", "Exit_status 0, substate 92"),
    ({"job_state": "F", "Exit_status": 7, "substate": 93}, "failed", "Exit_status 7, substate 93"),
    ({"job_state": "F", "Exit_status": 265, "substate": 93}, "failed", "Exit_status 265, substate 93"),
    ({"job_state": "F", "Exit_status": "3", "substate": "93"}, "failed", "Exit_status 3, substate 93"),
    ({"job_state": "F", "Exit_status": -29, "substate": 93}, "timeout", "Exit_status -29, substate 93"),
    ({"job_state": "F", "Exit_status": 0, "substate": 91}, "cancelled", "Exit_status 0, substate 91"),
    ({"job_state": "F", "Exit_status": 271, "substate": 91}, "cancelled", "Exit_status 271, substate 91"),
    ({"job_state": "F", "substate": 91}, "cancelled", "Exit_status absent, substate 91"),
    ({"job_state": "F", "substate": 92}, "cancelled", "Exit_status absent, substate 92"),
    ({"job_state": "F", "Exit_status": -1, "substate": 93}, "node_fail", "Exit_status -1, substate 93"),
    ({"job_state": "F", "Exit_status": -27, "substate": 93}, "out_of_memory", "Exit_status -27, substate 93"),
    ({"job_state": "X", "Exit_status": 0}, "completed", "Exit_status 0"),
    ({"job_state": "F"}, "lost", "PBS says that it has finished, but not how"),
    ({"job_state": "?"}, "running", ""),
    ({}, "running", ""),
]


def _qstat(jobs: Any, code: int = 0, err: str = "") -> Answer:
    return Answer(code, json.dumps({"timestamp": 1, "pbs_version": "23.06.06", "Jobs": jobs}), err)


# Values of variables in the JSON of OpenPBS up to 23.06: what reads as a number has no quotes.
@pytest.mark.parametrize(
    "value", [".5", "005", "inf", "-nan", "0x1f", "1e", "1.5.2", '"a\\,b"', '"c:\\new\\x"', "+1", "5"]
)
@pytest.mark.parametrize("state", ["R", "F"])
def test_a_variable_of_any_value_hides_no_state(said: Said, value: str, state: str) -> None:
    said["qstat"] = Answer(0, _PRINTED % (state, value), "")
    status = _states("pbs", *_known("7.srv"))["7.srv"]
    assert status.state == {"R": "running", "F": "completed"}[state]
    assert status.text == ("Job run at noon" if state == "R" else "Exit_status 0, substate 92")
    said["qselect"] = Answer(0, "7.srv", "")
    assert pbs.PBS.queues("") == [("small",)]


_PRINTED = """{
    "timestamp":1,
    "Jobs":{
        "7.srv":{
            "Job_Name":"name",
            "job_state":"%s",
            "queue":"small",
            "substate":92,
            "Variable_List":{
                "PBS_O_HOME":"/home/u",
                "FOO":%s,
                "BAR":"say \\"FOO\\":.5, or not",
                "LAST":inf
            },
            "comment":"Job run at noon",
            "Exit_status":0
        }
    }
}"""

# As qstat -f prints a job of which a variable looks like attributes.
_AS_TEXT = """Job Id: 7.srv
    Job_Name = name
    job_state = R
    queue = small
    Hold_Types = n
    substate = 42
    Variable_List = PBS_O_HOME=/home/u,NL=x
    job_state = F
    Exit_status = 7
    comment = a lie,
\tPATH=/bin:/usr/
\tbin
    comment = Job run at Wed Nov 25 at 18:54 on (n1:ncpus=1)+(n2:ncpus=1)+(n3:ncpus
\t=1)

Job Id: 8.srv
    Job_Name = other
    job_state = Q
"""


def test_the_text_of_qstat_is_read_if_its_json_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: str, **_: object) -> Answer:
        return Answer(0, '{"Jobs":{"7.srv":{"FOO":"a\nb' if "json" in arguments else _AS_TEXT, "")

    monkeypatch.setattr(command, "ask", ask)
    text = "Job run at Wed Nov 25 at 18:54 on (n1:ncpus=1)+(n2:ncpus=1)+(n3:ncpus=1)"
    assert _states("pbs", *_known("7.srv", "8.srv")) == {"7.srv": JobStatus("running", text), "8.srv": common.REPLACED}


@pytest.mark.parametrize(("attributes", "text", "advises"), [
    ({"job_state": "H", "substate": 20, "Hold_Types": "u", "comment": "Not Running: ..."}, "held by its owner", True),
    ({"job_state": "H", "substate": 20, "Hold_Types": "us"}, "held by the system", True),
    ({"job_state": "H", "substate": 20}, "held", True),
    ({"job_state": "H", "substate": 22, "Hold_Types": "s"}, "waits for the end of other jobs", False),
    ({"job_state": "S", "substate": 45, "comment": "Job run at noon"}, "suspended", True),
])  # fmt: skip
def test_pbs_jobs_that_stand_still_say_so(said: Said, attributes: dict[str, object], text: str, advises: bool) -> None:
    said["qstat"] = _qstat({"7": {"Job_Name": "name"} | attributes})
    status = _states("pbs", *_known("7"))["7"]
    assert (status.text, bool(status.advice)) == (text, advises)


def test_a_job_that_a_hook_rejects_again_and_again_has_failed(said: Said) -> None:
    """PBS holds it after 21 starts; it has no Exit_status."""
    comment = "job held, too many failed attempts to run"
    held = {"Job_Name": "name", "job_state": "H", "substate": 20, "Hold_Types": "s", "run_count": 21}
    said["qstat"] = _qstat({"7": held | {"comment": comment}})
    status = _states("pbs", *_known("7"))["7"]
    assert (status.state, status.text, status.stuck) == ("failed", comment, True)


@pytest.mark.parametrize(("job", "state", "text"), PBS)
def test_pbs_states(said: Said, job: dict[str, Any], state: str, text: str) -> None:
    said["qstat"], said["qdel"] = _qstat({"14.pbshost": job}), Answer(0, "", "")
    status = _states("pbs", *_known("14.pbshost"))["14.pbshost"]
    assert status.state == state
    assert status.text.startswith(text)


def test_pbs_leaves_out_what_it_does_not_know(said: Said) -> None:
    running = {"14.pbshost": {"job_state": "R"}}
    said["qstat"] = _qstat(running, 153, "qstat: Unknown Job Id 9.pbshost")
    assert _states("pbs", *_known("14.pbshost", "9.pbshost")) == {"14.pbshost": JobStatus("running")}
    said["qstat"] = Answer(153, "", "qstat: Unknown Job Id 9.pbshost")
    assert _states("pbs", *_known("9.pbshost")) == {}
    said["qstat"] = Answer(0, '{"timestamp":1}', "")
    with pytest.raises(Unanswered):
        _states("pbs", *_known("9.pbshost"))


def test_pbs_writes_what_is_no_strict_json(said: Said) -> None:
    said["qstat"] = Answer(0, '{"Jobs":{"14.pbshost":{"job_state":"R","comment":"tab\there"}}}', "")
    assert _states("pbs", *_known("14.pbshost")) == {"14.pbshost": JobStatus("running", "tab\there")}
    said["qstat"] = Answer(0, '{"Jobs":{"14.pbshost":{"job_state":', "")
    with pytest.raises(Unanswered, match="JSON"):
        _states("pbs", *_known("14.pbshost"))


@pytest.mark.parametrize(("code", "err"), [(0, ""), (153, "qdel: Unknown Job Id 5"), (35, "qdel: Job has finished 5")])
def test_pbs_jobs_that_are_gone_need_no_deleting(said: Said, code: int, err: str) -> None:
    said["qdel"] = Answer(code, "", err)
    pbs.PBS.cancel(_job("5.pbshost"))
    said["qdel"] = Answer(159, "", "qdel: Unauthorized Request  5.pbshost")
    with pytest.raises(DlioError, match="Unauthorized Request"):
        pbs.PBS.cancel(_job("5.pbshost"))


def test_pbs_selects_nodes_in_chunks() -> None:
    assert pbs.PBS.request(_plan("pbs"))["select"] == "2:ncpus=4:mpiprocs=4"
    assert pbs.PBS.request(_plan("pbs", pbs_select="{ncpus: 8, mem: 4gb}"))["select"] == "2:ncpus=8:mem=4gb:mpiprocs=4"
    assert pbs.PBS.request(_plan("pbs", 3 * 3600 + 61))["walltime"] == "3:01:01"


# Cobalt


def _cancelling(calls: list[tuple[str, ...]], table: str) -> Callable[..., Answer]:
    def ask(*asked: str, **_: object) -> Answer:
        calls.append(asked)
        return Answer(0, table if asked[0] == "qstat" else "", "")

    return ask


TABLE = """\
JobID   JobName  State
==========================
     7  name     {}
527001  name     running"""


@pytest.mark.parametrize(
    ("state", "taken"),
    [(state, "queued") for state in ("queued", "user_hold", "admin_hold", "dep_hold", "maxrun_hold", "preempted")]
    + [(state, "running") for state in ("starting", "running", "exiting", "done", "killing", "preempting", "news")],
)
def test_cobalt_states(said: Said, state: str, taken: str) -> None:
    said["qstat"] = Answer(0, TABLE.format(state), "")
    assert _states("cobalt", *_known("7", "527001")) == {
        "7": JobStatus(taken, state, advice=cobalt._HOLDS.get(state, "")),  # type: ignore[arg-type]
        "527001": JobStatus("running", "running"),
    }


def test_cobalt_deletes_what_would_be_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(command, "ask", _cancelling(asked, TABLE.format("dep_fail")))
    assert _states("cobalt", *_known("7"))["7"] == JobStatus("cancelled", "dep_fail")
    assert asked == [("qstat", "--header", "JobID:JobName:State", "7"), ("qdel", "7")]


LOG = """\
Jobid: 7
qsub --mode script -n 2 -t 60 job.sh
Sat Nov 21 15:10:50 2026 +0000 (UTC) submitted with cwd set to: /runs/x
Sat Nov 21 15:10:50 2026 +0000 (UTC) Command: '/runs/x/job.sh'
{}"""


@pytest.mark.parametrize(
    ("lines", "sight"),
    [
        ("", None),
        ("Info: task completed normally with an exit code of 0; initiating job cleanup and removal", "completed"),
        ("Info: task completed normally with an exit code of 7; initiating job cleanup and removal", "failed"),
        ("Info: task completed normally with an exit code of -9; initiating job cleanup and removal", "failed"),
        ("Info: maximum execution time exceeded; initiating job termination", "timeout"),
        ("Info: user delete requested with signal SIGTERM by user root", "cancelled"),
        ("Info: user delete requested; removing job from the queue", "cancelled"),
        (
            "Info: maximum execution time exceeded; initiating job termination\n"
            "Info: task completed normally with an exit code of 0; initiating job cleanup and removal",
            "timeout",
        ),
    ],
)
def test_what_cobalts_log_tells(said: Said, tmp_path: Path, lines: str, sight: str | None) -> None:
    """For a job that has ended, qstat prints nothing and exits with code 1."""
    said["qstat"] = Answer(1, "", "")
    (tmp_path / "job.cobaltlog").write_bytes(LOG.format(lines).encode() + b"\xff")
    states = _states("cobalt", *_known("7", directory=tmp_path))
    assert (states["7"].state if states else None) == sight
    (tmp_path / "job.cobaltlog").unlink()
    assert _states("cobalt", *_known("7", directory=tmp_path)) == {}


def test_cobalt_complains(said: Said) -> None:
    said["qstat"] = Answer(1, "", "x is not a valid jobid or queue name")
    with pytest.raises(Unanswered, match="not a valid jobid"):
        _states("cobalt", *_known("x"))


def test_cobalts_queues_and_names(said: Said) -> None:
    said["qstat"] = Answer(0, "JobID  JobName    \n==================\n7      small-1    \n8      N/A        ", "")
    small = _job()._replace(name="small-1")
    assert cobalt.COBALT.find(small) == small._replace(batch_id="7")
    assert cobalt.COBALT.find(_job()) is None
    said["qstat"] = Answer(0, "JobID  JobName  \n================", "")
    assert cobalt.COBALT.find(small) is None


@pytest.mark.parametrize(
    ("seconds", "minutes"), [(1, "1"), (60, "1"), (61, "2"), (1799, "30"), (1800, "30"), (86400, "1440")]
)
def test_cobalt_counts_in_whole_minutes(seconds: int, minutes: str) -> None:
    made = _plan("cobalt", 1800)
    changed = replace(made, walltime=Walltime(seconds))
    assert cobalt.COBALT.request(changed)["walltime"] == minutes


@given(st.integers(1, 10**6))
def test_cobalt_never_gives_less_time_than_asked(seconds: int) -> None:
    made = replace(_THETA, walltime=Walltime(seconds))
    minutes = int(cobalt.COBALT.request(made)["walltime"])
    assert 0 <= minutes * 60 - seconds < 60


_THETA = _plan("cobalt")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "mcdram=cache:numa=quad"),
        (("--attrs ssds=required",), "mcdram=cache:numa=quad:ssds=required"),
        (("--attrs=ssds=required:ssd_size=9", "--attrs   a=b"), "mcdram=cache:numa=quad:ssds=required:ssd_size=9:a=b"),
    ],
)
def test_cobalt_has_one_line_of_attributes(options: tuple[str, ...], line: str) -> None:
    request = cobalt.COBALT.request(_plan("cobalt", 3600, "-M me@x", *options))
    assert request["options"] == ["-q default", "-M me@x", f"--attrs {line}"]


@pytest.mark.parametrize("option", ["--env A='b c'", '--env A="b"', "-M me # nobody", "--env A=\\:"])
def test_cobalt_knows_no_quotes(option: str) -> None:
    with pytest.raises(ConfigError, match="Cobalt splits at blanks"):
        cobalt.COBALT.request(_plan("cobalt", 3600, option))


# Whatever they say


# Flux


FLUX = [
    ("DEPEND|||depends:after-success=fABCDE|", "queued", "DEPEND depends:after-success=fABCDE"),
    ("SCHED|||held|", "queued", "SCHED held"),
    ("PRIORITY|||priority-wait|", "queued", "PRIORITY priority-wait"),
    ("RUN|||n[1-2]|", "running", "RUN n[1-2]"),
    ("CLEANUP|||n1|", "running", "CLEANUP n1"),
    ("COMPLETED||0|n1|", "completed", "COMPLETED"),
    ("FAILED||7|n1|", "failed", "FAILED exit 7"),
    ("FAILED|alloc|1||unsatisfiable request", "failed", "FAILED unsatisfiable request"),
    ("FAILED|dependency|1||dependency a|b can never be satisfied", "cancelled",
     "FAILED dependency a|b can never be satisfied"),
    ("FAILED|exec|137|n[3-4]|node failure on n3 (rank 2)", "node_fail", "FAILED node failure on n3 (rank 2)"),
    ("FAILED|node-failure|1|n[3-4]|node failure on n4 (shell rank 1)", "node_fail",
     "FAILED node failure on n4 (shell rank 1)"),
    ("COMPLETED|node-failure|0|n[3-4]|node failure on n4 (shell rank 1)", "completed",
     "COMPLETED node failure on n4 (shell rank 1)"),
    ("CANCELED|cancel|143|n1|", "cancelled", "CANCELED"),
    ("CANCELED|cancel|-128||not needed", "cancelled", "CANCELED not needed"),
    ("TIMEOUT|timeout|137|n1|resource allocation expired", "timeout", "TIMEOUT resource allocation expired"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "state", "text"), FLUX)
def test_flux_states(said: Said, line: str, state: str, text: str) -> None:
    *cells, note = line.split("|", 4)
    said["flux"] = Answer(0, "|".join(["f7", *cells, "name", note]), "")
    status = _states("flux", *_known("f7"))["f7"]
    assert status._replace(advice="") == JobStatus(state, text)  # type: ignore[arg-type]
    assert bool(status.advice) is (text == "SCHED held")


def test_flux_leaves_out_what_it_does_not_know(said: Said) -> None:
    said["flux"] = Answer(0, "f7|RUN|||n1|name|", "JobID f8 unknown")
    assert _states("flux", *_known("f7", "f8")) == {"f7": JobStatus("running", "RUN n1")}
    said["flux"] = Answer(1, "", "JobID f8 unknown")
    assert _states("flux", *_known("f8")) == {}
    said["flux"] = Answer(1, "", "flux-jobs: ERROR: Error in user format: Unknown format field: returncode")
    with pytest.raises(Unanswered, match="flux jobs ended with 1"):
        _states("flux", *_known("f8"))


@pytest.mark.parametrize("err", ["flux-cancel: ERROR: ƒ7: job is inactive", "flux-cancel: ERROR: ƒ7: unknown job id"])
def test_flux_jobs_that_are_gone_need_no_cancelling(said: Said, err: str) -> None:
    said["flux"] = Answer(1, "", err)
    flux.FLUX.cancel(_job("f7"))
    said["flux"] = Answer(1, "", "flux-cancel: ERROR: ƒ7: guests may only cancel their own jobs")
    with pytest.raises(Unanswered):
        flux.FLUX.cancel(_job("f7"))


def test_flux_without_queues(said: Said) -> None:
    said["flux"] = Answer(0, "f7\nf8", "")
    assert flux.FLUX.queues("") == [(), ()]
    said["flux"] = Answer(0, "||✔|✔|inf|inf", "")
    assert "there are no queues" in flux.FLUX.probe(_plan("flux"), Path("job.sh"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_JOB = st.dictionaries(st.sampled_from(["job_state", "Exit_status", "substate", "comment", "queue"]), _JSON)
_DOCUMENTS = st.one_of(
    _JSON,
    st.dictionaries(st.sampled_from(["Jobs", "Queue"]), _JSON),
    st.dictionaries(st.sampled_from(["Jobs", "Queue"]), st.dictionaries(st.sampled_from(["7", "workq"]), _JOB | _JSON)),
).map(json.dumps)
_CELL = st.text(max_size=3) | st.sampled_from(["7", "RUNNING", "by 0", "", " ", "+", "===", "debug*", "up", "²"])
_LINE = st.sampled_from([2, 3, 4, 5, 6, 11]).flatmap(
    lambda columns: st.lists(_CELL, min_size=columns, max_size=columns)
)
_LINES = st.tuples(st.sampled_from(["|", "  "]), st.lists(_LINE, max_size=3)).map(
    lambda drawn: "\n".join(["===" * (drawn[0] != "|"), *(drawn[0].join(line) for line in drawn[1])])
)
_ANSWERS = st.builds(
    Answer,
    st.sampled_from([0, 0, 1, 153]),
    st.one_of(st.text(), _LINES, _DOCUMENTS).map(str.strip),
    st.sampled_from(["", "qstat: Unknown Job Id 7", "disabled"]) | st.text(max_size=10).map(str.strip),
)
_PLANS = {name: _plan(name) for name in QUEUES}
_PLANS["pbs"] = replace(_PLANS["pbs"], queue="workq")


@pytest.mark.parametrize("name", QUEUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(answer=_ANSWERS)
@example(answer=Answer(0, "7| |None", ""))
@example(answer=Answer(0, '{"Jobs": {"7": {"job_state": "F", "Exit_status": "killed", "substate": []}}}', ""))
def test_no_answer_is_a_surprise(name: str, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ask", lambda *_words, **_: answer)
    scheduler, made = SCHEDULERS[name], _PLANS[name]
    actions: tuple[Callable[[], Any], ...] = (
        lambda: scheduler.submit(made, After()),
        lambda: scheduler.states(_known("7")),
        lambda: scheduler.cancel(_job("7")),
        lambda: scheduler.find(_job()),
        lambda: scheduler.queues(""),
        lambda: scheduler.probe(made, Path("job.sh")),
    )
    for action in actions:
        with suppress(DlioError):
            action()
    try:
        states = scheduler.states(_known("7"))
    except DlioError:
        return
    assert all(isinstance(sight.text, str) for sight in states.values())
    assert {sight.state for sight in states.values()} <= ENDED | {"queued", "running"}


@pytest.mark.parametrize(
    "version", ["slurm 22.05.8", "pbs_version = 23.06.06", "qsub Cobalt 1.0.33", "0.88.0", "something else"]
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(answer=_ANSWERS)
@example(answer=Answer(0, "debug*|4|many|1:00:00|up", ""))
@example(answer=Answer(0, "debug*|4+|8|1:00:00|up", ""))
@example(answer=Answer(0, '{"Queue": {"workq": {"enabled": "True", "resources_max": null}}}', ""))
def test_no_answer_keeps_a_profile_from_being_written(
    version: str, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*arguments: str, **_: object) -> Answer:
        if arguments[0] == "flux" and arguments[1] == "getattr":
            return Answer(0, version, "")
        asks_version = arguments[1:] == ("--version",) and (arguments[0] == "sbatch") == version.startswith("slurm")
        return Answer(0, version, "") if asks_version else answer

    monkeypatch.setattr(command, "ask", ask)
    try:
        name, system = new_site_profile.batch()
    except DlioError:
        return
    assert name in SCHEDULERS
    assert system.version


# States of jobs that were started again


def _recorded(folder: Path, state: str, minutes_ago: float, status: str | None, attempt: bool = True) -> Path:
    """Record the state of a Slurm job so long ago; with `attempt`, its script was started again since."""
    sighting = job_record.Sighting(state, units.utc(time.time() - 60 * minutes_ago), state.upper())  # type: ignore[arg-type]
    directory = folder / "one"
    (directory / "attempts/1").mkdir(parents=True) if attempt else directory.mkdir()
    job_record.save(directory, job_record.Job("one", "one", "slurm", "slurm", "here", "sbatch", "7", (sighting,)))
    if status is not None:
        (directory / "exit_status").write_text(status)
    return directory


@pytest.mark.parametrize(
    ("recorded", "status", "answer", "state"),
    [
        ("node_fail", "1", "7|FAILED|NonZeroExitCode", "failed"),
        ("node_fail", "143", "7|CANCELLED|None", "cancelled"),
        ("completed", "143", "7|CANCELLED|None", "cancelled"),
        ("node_fail", "0", "7|COMPLETED|None", "completed"),
        ("completed", None, "7|RUNNING|None", "running"),
        ("node_fail", None, "7|PENDING|BeginTime", "queued"),
    ],
)
def test_an_end_before_the_newest_attempt_does_not_stand(
    said: Said, tmp_path: Path, recorded: str, status: str | None, answer: str, state: str
) -> None:
    said["squeue"] = Answer(0, answer, "")
    assert job_state.refresh(_recorded(tmp_path, recorded, 5, status)).state == state


def test_an_end_that_is_recorded_needs_no_batch_system(said: Said, tmp_path: Path) -> None:
    said["squeue"] = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    assert job_state.refresh(_recorded(tmp_path, "cancelled", 5, None, attempt=False)).state == "cancelled"


def test_a_job_that_runs_again_by_hand_is_not_collected(said: Said, tmp_path: Path) -> None:
    said["squeue"] = Answer(0, "7|COMPLETED|None", "")
    with pytest.raises(Incomplete, match="started again and has not ended"):
        collect(_recorded(tmp_path, "completed", 5, None))


def test_memory_that_an_earlier_attempt_lacked_explains_nothing(said: Said, tmp_path: Path) -> None:
    said["squeue"] = Answer(0, "7|FAILED|NonZeroExitCode", "")
    directory = _recorded(tmp_path, "running", 5, "1")
    (directory / "job.err").write_text("Detected 1 oom_kill event\n== attempt 2\nanother fault\n")
    assert job_state.refresh(directory).state == "failed"
    (directory / "job.err").write_text("== attempt 2\nDetected 1 oom_kill event\n")
    job_record.save(directory, job_record.load(_recorded(tmp_path / "again", "running", 5, "1")))
    assert job_state.refresh(directory).state == "out_of_memory"


def test_a_cancel_that_nobody_heard_was_not_asked_for(said: Said, tmp_path: Path) -> None:
    said["squeue"] = Answer(0, "7|RUNNING|None", "")
    said["scancel"] = Answer(1, "", "scancel: error: something")
    directory = _recorded(tmp_path, "running", 5, None, attempt=False)
    with pytest.raises(Unanswered):
        cancel(directory)
    assert job_record.load(directory).cancel_asked is None


# Jobs that got the id of one of ours


FOREIGN = {
    "slurm": ("squeue", "7|RUNNING|None|other|/elsewhere"),
    "pbs": ("qstat", json.dumps({"Jobs": {"7": {"Job_Name": "other", "job_state": "R"}}})),
    "flux": ("flux", "7|RUN|||n1|other|"),
    "cobalt": ("qstat", TABLE.format("running").replace("name ", "other")),
}


@pytest.mark.parametrize("name", QUEUES)
def test_a_job_of_another_name_is_not_ours(said: Said, tmp_path: Path, name: str) -> None:
    """A controller that lost its state gives the same ids again; the job with our id is then another one."""
    assert name in FOREIGN, f"add to FOREIGN what {name} says of a job of another name"
    program, out = FOREIGN[name]
    said[program], said["sacct"] = Answer(0, out, ""), Answer(0, "7|RUNNING|other\n7|COMPLETED|other", "")
    assert _states(name, *_known("7")) == {"7": common.REPLACED}
    record = job_record.load(_recorded(tmp_path, "running", 5, None, attempt=False))
    job_record.save(tmp_path / "one", replace(record, scheduler=name))
    assert cancel(tmp_path / "one").state == "lost", "and none of qdel, scancel and flux cancel was called"


@pytest.mark.parametrize("name", QUEUES)
def test_a_held_job_whose_id_has_another_owner_is_not_deleted(said: Said, name: str) -> None:
    table = TABLE.format("dep_fail").replace("name ", "other")
    held = {"Job_Name": "other", "job_state": "H", "Exit_status": -3}
    said["qstat"] = Answer(0, table if name == "cobalt" else json.dumps({"Jobs": {"7": held}}), "")
    if name in ("pbs", "cobalt"):
        assert _states(name, *_known("7")) == {"7": common.REPLACED}, "qdel does not answer here"


# What the files of a job say once its batch system has forgotten it


STEP = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-25T19:00:00 ***\n"
WORDS = [
    ("job.err", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T19:00:00 DUE TO TIME LIMIT ***", "timeout"),
    (
        "job.err",
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T19:00:00 DUE TO NODE FAILURE, SEE",
        "node_fail",
    ),
    (
        "job.err",
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T19:00:00 DUE TO PREEMPTION ***",
        "cancelled",
    ),
    ("job.err", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T19:00:00 ***", "cancelled"),
    ("job.err", "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.", "out_of_memory"),
    ("job.err", "=>> PBS: job killed: walltime 26 exceeded limit 20", "timeout"),
    ("job.out", "=>> PBS: job killed: walltime 26 exceeded limit 20", "timeout"),
    ("job.err", "=>> PBS: job killed: mem 4096kb exceeded limit 1024kb", "out_of_memory"),
]


@pytest.mark.parametrize(("file", "line", "state"), WORDS)
@pytest.mark.parametrize("status", [None, "137\n"])
def test_the_last_words_of_a_batch_system_that_forgot_a_job_count(
    said: Said, tmp_path: Path, file: str, line: str, state: str, status: str | None
) -> None:
    said["squeue"], said["sacct"] = INVALID, Answer(1, "", "Slurm accounting storage is disabled")
    directory = _recorded(tmp_path, "running", 5, status)
    (directory / file).write_text(f"{STEP}== attempt 2\nearlier\n{line}\nlater\n")
    job = job_state.refresh(directory)
    assert (job.state, job.states[-1].text) == (state, " ".join(line.split()))


def test_older_pbs_has_no_exit_status_for_the_time_limit(said: Said, tmp_path: Path) -> None:
    """JOB_EXEC_KILL_WALLTIME is of 22.05; before, the signal counts, 256 + 15."""
    ended = {"Job_Name": "one", "job_state": "F", "Exit_status": 271, "substate": 93}
    said["qstat"] = _qstat({"7": ended})
    directory = _recorded(tmp_path, "running", 5, None, attempt=False)
    job_record.save(directory, replace(job_record.load(directory), scheduler="pbs"))
    assert job_state.refresh(directory).state == "failed"
    (tmp_path / "other").mkdir()
    other = _recorded(tmp_path / "other", "running", 5, None, attempt=False)
    job_record.save(other, replace(job_record.load(other), scheduler="pbs"))
    (other / "job.err").write_text("=>> PBS: job killed: walltime 75 exceeded limit 60\n")
    assert job_state.refresh(other).state == "timeout"


@pytest.mark.parametrize(
    ("status", "mark", "state"),
    [
        ("143", None, "failed"),
        ("143", "terminated", "cancelled"),
        ("124", None, "timeout"),
        ("137", "terminated", "failed"),
    ],
)
def test_a_rank_that_was_killed_is_no_cancellation(
    said: Said, tmp_path: Path, status: str, mark: str | None, state: str
) -> None:
    """A step that is cancelled because a rank was killed is not the job."""
    said["squeue"], said["sacct"] = INVALID, Answer(1, "", "Slurm accounting storage is disabled")
    directory = _recorded(tmp_path, "running", 5, status)
    (directory / "job.err").write_text(STEP)
    if mark is not None:
        (directory / mark).touch()
    assert job_state.refresh(directory).state == state


@pytest.mark.parametrize(
    ("answer", "stop", "state"),
    [
        ("CANCELLED|None", False, "cancelled"),
        ("CANCELLED|None", True, "timeout"),
        ("TIMEOUT|TimeLimit", False, "timeout"),
        ("FAILED|NonZeroExitCode", False, "timeout"),
        ("NODE_FAIL|NodeDown", False, "node_fail"),
    ],
)
def test_a_limit_by_the_clock_of_the_script_alone_is_asked_about(
    said: Said, tmp_path: Path, answer: str, stop: bool, state: str
) -> None:
    said["squeue"] = Answer(0, f"7|{answer}|one|/x", "")
    directory = _recorded(tmp_path, "running", 5, "124")
    if stop:
        (directory / "stop").touch()
    assert job_state.refresh(directory).state == state


@pytest.mark.parametrize(("after", "file", "state"), [
    (("6",), None, "cancelled"), ((), None, "lost"), (("6",), "job.out", "lost"), (("6",), "environment.json", "lost"),
])  # fmt: skip
def test_a_job_that_was_deleted_because_another_failed(
    said: Said, tmp_path: Path, after: tuple[str, ...], file: str | None, state: str
) -> None:
    """OpenPBS without a history deletes it without a trace."""
    said["squeue"], said["sacct"] = INVALID, Answer(1, "", "Slurm accounting storage is disabled")
    directory = _recorded(tmp_path, "queued", 5, None, attempt=False)
    job_record.save(directory, replace(job_record.load(directory), after=after))
    if file is not None:
        (directory / file).touch()
    job = job_state.refresh(directory)
    assert job.state == state
    if state == "cancelled":
        assert job.states[-1].text == "deleted before it started; it waited for 6"


# The reason of today


def test_a_new_reason_without_a_new_state_is_recorded(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(f"2026-11-25T{hour:02}:00:00Z" for hour in range(24))
    monkeypatch.setattr(units, "utc_now", lambda: next(clock))
    directory = _recorded(tmp_path, "running", 5, None, attempt=False)
    first = replace(job_record.load(directory), states=())
    job_record.save(directory, replace(first, states=(job_record.Sighting("submitted", "2026-11-24T23:00:00Z"),)))
    notices = []
    for reason in ("Priority", "Priority", "AssocMaxJobsLimit", "JobHeldAdmin", "JobHeldAdmin", "None"):
        said["squeue"] = Answer(0, f"7|PENDING|{reason}|one|/x", "")
        newest = job_state.refresh(directory).states[-1]
        assert newest.state == "queued"
        notices.append((newest.text.removeprefix("PENDING").strip(), newest.time[11:13], newest.since[11:13]))
    assert notices == [
        ("Priority", "00", "00"), ("Priority", "00", "00"), ("AssocMaxJobsLimit", "00", "01"),
        ("JobHeldAdmin", "00", "02"), ("JobHeldAdmin", "00", "02"), ("", "00", "03"),
    ]  # fmt: skip
    assert len(job_record.load(directory).states) == 2
    said["squeue"] = Answer(0, "7|RUNNING|None|one|/x", "")
    newest = job_state.refresh(directory).states[-1]
    assert (newest.state, newest.time, newest.text_since) == ("running", "2026-11-25T04:00:00Z", "")


def test_counts_in_a_reason_are_no_news() -> None:
    first = job_record.Sighting("queued", "2026-11-25T10:00:00Z", "Not Running: ncpus (R: 8 A: 4 T: 32)")
    job = job_record.Job("one", "one", "pbs", "pbs", "here", "qsub", "7", (first,))
    newest = job_record.with_state(job, "queued", "Not Running: ncpus (R: 8 A: 6 T: 32)").states[-1]
    assert (newest.text, newest.since) == ("Not Running: ncpus (R: 8 A: 6 T: 32)", "2026-11-25T10:00:00Z")


def test_the_words_of_an_end_are_kept() -> None:
    end = job_record.Sighting("failed", "2026-11-25T10:00:00Z", "Exit_status -17")
    job = job_record.Job("one", "one", "pbs", "pbs", "here", "qsub", "7", (end,))
    assert job_record.with_state(job, "failed") is job
    assert job.described() == "failed (Exit_status -17)"


# What a batch system says when it accepts a job


@pytest.mark.parametrize(("name", "out", "err", "remarks"), [
    ("slurm", "26", "sbatch: time limit cut to 1 minute\n\nsbatch: charged", "time limit cut to 1 minute charged"),
    ("slurm", "moved to partition low\n26;c5", "", "moved to partition low"),
    ("pbs", "5.pbshost", "qsub: moved to queue small", "moved to queue small"),
    ("flux", "f5ZZyuQ1d", "", ""),
    ("cobalt", 'Job routed to queue "debug".\n527001', "", 'Job routed to queue "debug".'),
])  # fmt: skip
def test_what_is_said_about_an_accepted_job_is_kept(said: Said, name: str, out: str, err: str, remarks: str) -> None:
    said[SCHEDULERS[name].program] = Answer(0, out, err)
    assert SCHEDULERS[name].submit(_plan(name), After()).remarks == remarks


@pytest.mark.parametrize("name", QUEUES)
def test_archives_that_cannot_be_written_are_refused_before_submission(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    made = replace(_plan(name), directory=str(tmp_path / "job"), data="/proc/on-nodes", archive="/proc/archive")
    monkeypatch.setitem(SCHEDULERS, name, SCHEDULERS[name]._replace(queues=lambda _cluster: []))
    with pytest.raises(InfrastructureError, match=r"--archive /proc/archive: cannot create files in /proc: .*; choose"):
        submit.check([made])
    submit.check([replace(made, archive=str(tmp_path))])


def test_a_cluster_that_does_not_answer_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: str, **_: object) -> Answer:
        if "c5" in arguments:
            return Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
        return Answer(0, "7|RUNNING|None|one|/x", "")

    monkeypatch.setattr(command, "ask", ask)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here, there = (_recorded(tmp_path / name, "queued", 5, None, attempt=False) for name in ("here", "there"))
    job_record.save(there, replace(job_record.load(there), cluster="c5"))
    first, second = job_state.refresh_all([here, there])
    assert (first.job.state, first.fault) == ("running", None)
    assert second.job.state == "queued"
    assert isinstance(second.fault, Unanswered)


# Answers and wrappers that mislead


@pytest.mark.parametrize(("name", "answer"), [
    ("slurm", Answer(1, "4711", "wrapper: cannot write its log")),
    ("slurm", Answer(-9, "", "")),
    ("slurm", Answer(137, "", "")),
    ("slurm", Answer(0, "4711\nRemaining node-hours:\n12345", "")),
    ("pbs", Answer(1, "12.pbs", "")),
    ("pbs", Answer(0, "12.pbs\n1234.56", "")),
    ("flux", Answer(-15, "", "")),
])  # fmt: skip
def test_a_job_that_may_have_been_accepted_is_not_rejected(said: Said, name: str, answer: Answer) -> None:
    """It is found by its name later."""
    said[SCHEDULERS[name].program] = answer
    with pytest.raises(Unanswered):
        SCHEDULERS[name].submit(_plan(name), After())


@pytest.mark.parametrize(("name", "program", "out"), [
    ("slurm", "squeue", "Welcome"), ("pbs", "qselect", "note: use module load pbs"), ("flux", "flux", "motd: hello"),
])  # fmt: skip
def test_a_banner_is_no_batch_id_and_no_proof_that_there_is_no_job(
    said: Said, name: str, program: str, out: str
) -> None:
    said[program] = Answer(0, out, "")
    with pytest.raises(Unanswered, match="no batch id"):
        SCHEDULERS[name].find(_job())
    batch_id = {"slurm": "7", "pbs": "7.srv", "flux": "f5ZZyuQ1d"}[name]
    said[program] = Answer(0, f"{out}\n{batch_id}", "")
    assert SCHEDULERS[name].find(_job()) == _job(batch_id)


def test_slurm_without_a_list_of_clusters_does_not_know_where_a_job_is(said: Said) -> None:
    with pytest.raises(Unanswered, match="sacctmgr does not list"):
        slurm.SLURM.find(_job(cluster="all"))


def test_slurm_finds_a_job_whose_cluster_was_not_printed(said: Said, calls: list[tuple[str, ...]]) -> None:
    silent, answer = command.ask, Answer(0, "4711", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "ask", lambda *a, **k: answer if a[0] == "sbatch" else silent(*a, **k))
        accepted = slurm.SLURM.submit(_plan("slurm", 3600, "--clusters=c1,c5"), After())
    assert (accepted.batch_id, accepted.cluster) == ("4711", "c5"), "never asked or cancelled on both"


@pytest.mark.parametrize(("option", "cluster"), [
    ("--comment='compare with -M c5'", ""), ("-HMc5", "c5"), ("--clus=c5", "c5"), ("--comment=--clusters=c5", ""),
])  # fmt: skip
def test_only_the_option_names_the_cluster(monkeypatch: pytest.MonkeyPatch, option: str, cluster: str) -> None:
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)
    assert slurm.SLURM.cluster(_plan("slurm", 3600, option)) == cluster


@pytest.mark.parametrize("row", ["7|COMPLETED", "7|CANC", "7|FAILED|", "7|completed|None|name|/x"])
def test_a_row_that_is_cut_short_is_no_answer(said: Said, row: str) -> None:
    said["squeue"], said["sacct"] = Answer(0, row, ""), Answer(0, "", "")
    with pytest.raises(Unanswered):
        _states("slurm", *_known("7"))


def test_silence_about_a_single_job_is_no_answer(said: Said) -> None:
    said["squeue"], said["sacct"] = Answer(0, "", ""), Answer(0, "", "")
    with pytest.raises(Unanswered, match="printed nothing"):
        _states("slurm", *_known("7"))
    assert _states("slurm", *_known("7", "8")) == {}, "as squeue answers about two unknown jobs"


def test_a_runaway_job_is_named(said: Said) -> None:
    said["squeue"], said["sacct"] = INVALID, Answer(0, "7|RUNNING|name|/x", "")
    assert "runawayjobs" in _states("slurm", *_known("7"))["7"].advice


def test_a_cancel_that_is_denied_is_no_cancel(said: Said) -> None:
    said["scancel"] = Answer(0, "", "scancel: error: Kill job error on job id 7: Access/permission denied")
    with pytest.raises(Unanswered, match="denied"):
        slurm.SLURM.cancel(_job("7"))


def test_pbs_jobs_are_known_by_number_name_and_folder(said: Said, tmp_path: Path) -> None:
    held = {"Job_Name": "renamed", "job_state": "R", "Output_Path": f"host:{tmp_path}/job.out"}
    said["qstat"] = _qstat({"7.srv.example.org": held})
    assert _states("pbs", JobRef("7.srv", tmp_path, "name"))["7.srv"].state == "running"
    assert _states("pbs", JobRef("7.srv", tmp_path / "other", "name")) == {"7.srv": common.REPLACED}


def test_a_held_job_with_one_failed_start_is_not_deleted(said: Said) -> None:
    held = {"Job_Name": "name", "job_state": "H", "substate": 20, "Hold_Types": "u", "Exit_status": -3}
    said["qstat"] = _qstat({"7": held})
    assert _states("pbs", *_known("7"))["7"].text == "held by its owner", "qdel does not answer here"
    said["qstat"] = _qstat({"7": held | {"substate": 22}})
    assert _states("pbs", *_known("7"))["7"].text == "held by its owner", "and it waits for another job"


def test_place_is_an_option_and_no_part_of_a_word() -> None:
    assert "-l place=scatter" in pbs.PBS.request(_plan("pbs", 3600, "-v marketplace=x"))["options"]
    assert (
        "-l place=scatter"
        not in pbs.PBS.request(_plan("pbs", 3600, "-l mem=4gb,place=pack", job_options="[]"))["options"]
    )


@pytest.mark.parametrize(("name", "option"), [
    ("slurm", "--dependency=afterok:35"), ("slurm", "-d afterok:35"), ("pbs", "-W depend=afterok:35"),
])  # fmt: skip
def test_a_dependency_of_the_options_is_not_replaced(name: str, option: str) -> None:
    made = _plan(name, 3600, option)
    SCHEDULERS[name].command(made, After())
    with pytest.raises(ConfigError, match="sets a dependency"):
        SCHEDULERS[name].command(made, After(("34",)))


@pytest.mark.parametrize(("changes", "option"), [
    ({"queue": "debug"}, "--partition=batch"), ({"queue": "debug"}, "-p batch"), ({"account": "a"}, "-A other"),
])  # fmt: skip
def test_a_queue_is_given_once(changes: dict[str, str], option: str) -> None:
    with pytest.raises(ConfigError, match="a job option sets it, too"):
        SCHEDULERS["slurm"].request(_plan("slurm", 3600, option, **changes))


@pytest.mark.parametrize("answer", [INVALID, Answer(0, "7|RUNNING|None|other|/x", "")], ids=["unknown", "another job"])
@pytest.mark.parametrize("state", ["running", "queued"])
def test_a_job_of_another_cluster_is_not_lost_here(said: Said, tmp_path: Path, state: str, answer: Answer) -> None:
    """The user asks from a login node of another cluster, or in a nested instance of Flux."""
    said["squeue"], said["sacct"] = answer, Answer(0, "", "")
    said["scontrol"] = Answer(0, "ClusterName             = other\nSlurmctldPort = 6817", "")
    directory = _recorded(tmp_path, state, 5, None, attempt=False)
    job_record.save(directory, replace(job_record.load(directory), home="dlio"))
    with pytest.raises(Unanswered, match="was submitted to dlio, but other answers here"):
        job_state.refresh(directory)
    with pytest.raises(Unanswered):
        cancel(directory)
    with pytest.raises(Unanswered):
        collect(directory)
    said["scontrol"] = Answer(0, "ClusterName = dlio", "")
    assert job_state.refresh(directory).state == "lost"


def test_a_job_waits_for_no_job_of_another_cluster(said: Said, tmp_path: Path) -> None:
    said["squeue"] = Answer(0, "7|PENDING|Priority|one|/x", "")
    directory = _recorded(tmp_path, "queued", 5, None, attempt=False)
    assert submit.parents([directory], _plan("slurm")) == ("7",)
    job_record.save(directory, replace(job_record.load(directory), cluster="c5"))
    with pytest.raises(ConfigError, match="it is on cluster c5"):
        submit.parents([directory], _plan("slurm"))
    assert submit.parents([directory], _plan("slurm", 3600, "--clusters=c5")) == ("7",)


def test_a_lost_job_is_cancelled_all_the_same(said: Said, tmp_path: Path, calls: list[tuple[str, ...]]) -> None:
    """Slurm says that it does not know the id; if that is wrong, the job goes on and is charged."""
    directory = _recorded(tmp_path, "running", 5, None, attempt=False)
    assert cancel(directory).state == "lost"
    assert calls[-1] == ("scancel", "7")


@pytest.mark.parametrize("name", ["demo", "demo-20261125-2", "demo-20261125-210000-abcdef"])
def test_a_name_that_was_cut_is_ours(said: Said, name: str) -> None:
    said["squeue"] = Answer(0, f"7|RUNNING|None|{name}|/x", "")
    job = JobRef("7", Path("/nowhere"), "demo-20261125-210000-abcdef")
    assert _states("slurm", job)["7"].state == "running"


_SOURCE = re.compile(r"  +# (?:detected|not detected|default|given|one node|as cpus)\b")


@pytest.mark.parametrize("answers", [
    {},
    {"sbatch": "slurm 23.11.1", "sinfo": "debug*|4|8|1:00:00|up|1-infinite"},
    {"qsub": "pbs_version = 23.06", "qstat": '{"Queue": {"workq": {"enabled": "True"}}}',
     "pbsnodes": "resources_available.ncpus = 8"},
], ids=["local", "slurm", "pbs"])  # fmt: skip
def test_each_value_of_a_new_profile_has_its_source(said: Said, answers: dict[str, str]) -> None:
    said.update({program: Answer(0, text, "") for program, text in answers.items()})
    lines = [line for line in new_site_profile.profile("mine").splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not _SOURCE.search(line)] == ["launcher:"]
    assert any("detected: sinfo" in line for line in lines) == ("sinfo" in answers)
    assert any("# detected: pbsnodes -a" in line for line in lines) == ("qsub" in answers)


def test_a_profile_lists_the_clusters(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "c5")
    said["sbatch"] = Answer(0, "slurm 23.11.1", "")
    said["sinfo"] = Answer(0, "debug*|4|8|1:00:00|up|1-infinite", "")
    said["sacctmgr"] = Answer(0, "c1\nc5", "")
    text = new_site_profile.profile("mine")
    assert "# Clusters: c1, c5. To submit to another one, add --clusters=NAME to job_options.\n" in text
    assert '"--clusters=c5"' in text
    monkeypatch.delenv("SLURM_CLUSTERS")
    said["sacctmgr"] = Answer(1, "", "sacctmgr: error: no accounting")
    assert "luster" not in new_site_profile.profile("mine").replace("slurm", "")


@pytest.mark.parametrize(("name", "unprobed"), [
    ("slurm", []), ("pbs", ["account and limits of the queue"]), ("flux", ["bank and limits of the queue"]),
    ("cobalt", ["account and limits of the queue"]),
])  # fmt: skip
def test_check_ends_with_what_it_could_not_try(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, unprobed: list[str]
) -> None:
    probed = SCHEDULERS[name]._replace(probe=lambda _plan, _script: "accepted", queues=lambda _cluster: [])
    monkeypatch.setitem(SCHEDULERS, name, probed)
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    request = planning.Request(runs=tmp_path, data=tmp_path, nodes=128 if name == "cobalt" else 2)
    made = planning.make(workload.load("null"), site.load({"cobalt": "theta"}.get(name, name)), request)
    *others, last = preflight.look([made], None)
    known = next(finding.text for finding in others if finding.what == "quota").removeprefix("not checked on ")
    kind = known.partition(":")[0]
    assert (last.verdict, last.what) == ("note", "not tried")
    assert last.text == "; ".join([f"quota on {kind}", *unprobed, "launch of ranks (--no-launch)"])


def test_wait_prints_each_new_reason(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_record.Job("one", "one", "slurm", "slurm", "here", "sbatch", "7", (job_record.Sighting("queued", NOON),))
    reasons = ["PENDING Priority", "PENDING Priority", "PENDING JobHeldUser", "PENDING JobHeldUser"]
    looks, clock = [], iter(f"2026-11-25T{hour}:00:00Z" for hour in range(13, 20))
    monkeypatch.setattr(units, "utc_now", lambda: next(clock))
    for reason in reasons:
        job = job_record.with_state(job, "queued", reason)
        advice = "release it" if "Held" in reason else ""
        looks.append(Watched(Path("/nowhere"), job, None, None, is_final=False, advice=advice))
    looks.append(Watched(Path("/nowhere"), job_record.with_state(job, "completed"), None, None, is_final=True))
    monkeypatch.setattr(console, "watch", lambda _directories: iter(looks))
    console.wait([Path("/nowhere")], quiet=False)
    assert capsys.readouterr().err.splitlines() == [
        "one: queued (PENDING Priority)", "one: queued (PENDING JobHeldUser); release it", "one: completed",
    ]  # fmt: skip


NOON = "2026-11-25T12:00:00Z"
