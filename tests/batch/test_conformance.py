"""The same scenarios run on every batch system: on a real Slurm, on stand-ins for PBS and Cobalt, and on Flux (a
stand-in, or the Flux that DLIO_HPC_FLUX names). Tests of one system alone are in test_slurm_job, test_pbs_job,
test_cobalt_job and test_flux_job.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.batch.test_cobalt_job import Theta
from tests.batch.test_flux_job import Flux
from tests.batch.test_pbs_job import NODES, Pbs
from tests.conftest import Run
from tests.support.standins.login import Login, outage, record, slowness, state_text, states, text, until, write

SAMPLES, SAMPLE_BYTES, EPOCHS = 30, 12_000, 2


class System(NamedTuple):
    """A batch system. setup: options that let the job script run lines. queued, running: what status says of a job that
    is held, and of one that runs. cancelled: the batch system's words for a job that was cancelled, while it ran and
    before. cancel: its own command. before: the options of a job that waits for the end of others, as they stand in the
    submit command; well: for their success. never: its words for a job whose condition cannot be met; None: any.
    unreachable: what it says when it cannot be reached; None: tested beside its name.
    """

    login: Login
    setup: Callable[..., tuple[str, str]]
    queued: str
    running: str
    cancelled: tuple[str, str]
    cancel: Sequence[str]
    well: Callable[[str], str]
    before: Callable[[Sequence[str]], str]
    never: str | None
    unreachable: str | None


def _lines(*lines: str) -> tuple[str, str]:
    return "-S", f"site.setup={json.dumps(lines)}"


def _slurm(request: pytest.FixtureRequest, run: Run, folder: Path) -> System:
    cluster = request.getfixturevalue("slurm")
    login = Login(run, folder, ("-s", "slurm", "-d", "data", "-t", "5m", "-S", "site.job_options=[]"), hold="--hold")
    login.environment = dict(cluster.environment)
    return System(
        login, _lines, "PENDING JobHeldUser", "RUNNING", ("CANCELLED", "CANCELLED"), ["scancel"],
        lambda batch_id: f"--dependency=afterok:{batch_id} --kill-on-invalid-dep=yes",
        lambda ids: f"--dependency=afterany:{':'.join(ids)} ", None, None,
    )  # fmt: skip


def _pbs(request: pytest.FixtureRequest, run: Run, folder: Path) -> System:
    return System(
        Pbs(run, folder, wait=1.0), lambda *lines: Pbs.setup(folder, *lines), "", "(Job run at ",
        ("Exit_status 0, substate 91", "Exit_status absent, substate 91"), ["qdel"],
        lambda batch_id: f"-W depend=afterok:{batch_id} ", lambda ids: f"-W depend=afterany:{':'.join(ids)} ",
        "Exit_status absent, substate 92", "cannot connect to server pbshost",
    )  # fmt: skip


def _cobalt(request: pytest.FixtureRequest, run: Run, folder: Path) -> System:
    return System(
        Theta(run, folder, wait=1.0), _lines, "(user_hold)", "", ("user delete requested", "user delete requested"),
        ["qdel"], lambda batch_id: f"--dependencies {batch_id} ", lambda ids: f"--dependencies {':'.join(ids)} ",
        "dep_fail", "Failed to connect to queue-manager",
    )  # fmt: skip


def _flux(request: pytest.FixtureRequest, run: Run, folder: Path) -> System:
    real = request.getfixturevalue("real_flux")
    return System(
        Flux(run, folder, real), _lines, "(SCHED held)", "(RUN ", ("CANCELED", "CANCELED"), ["flux", "cancel"],
        lambda batch_id: f"--dependency=afterok:{batch_id} ",
        lambda ids: "".join(f"--dependency=afterany:{batch_id} " for batch_id in ids), "can never be satisfied",
        "Unable to connect to Flux" if real is None else None,
    )  # fmt: skip


_SYSTEMS = {"slurm": _slurm, "pbs": _pbs, "cobalt": _cobalt, "flux": _flux}


@pytest.fixture(params=_SYSTEMS)
def system(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> System:
    return _SYSTEMS[request.param](request, run, tmp_path)


def _ended(on: Login, *directories: Path) -> tuple[int, Any]:
    """Wait for the jobs; return the exit code of wait, and the jobs."""
    done = on("dlio-hpc", "wait", *directories, "--json", "--quiet")
    return done.code, done.json["jobs"]


@pytest.mark.job
def test_a_job_on_two_nodes(system: System, small: Path) -> None:
    probed = ("-S", "site.probe=0.1 s")
    job = system.login.waited(small, "-N", NODES, "--ppn", 4, "--repeat", 2, "--archive", "kept", *probed)
    directory = Path(job["directory"])
    assert job["state"] == "completed"
    assert states(directory)[:2] == ["planned", "submitted"]
    assert [run["name"] for run in job["runs"]] == ["00-generate", "01-measure-1", "02-measure-2"]
    for run in job["runs"][1:]:
        result = run["result"]
        assert (result["ranks"], result["nodes"], result["ranks_per_node"]) == (4 * NODES, NODES, 4)
        assert len(set(result["hosts"])) == NODES
        assert result["summary"]["samples"] == SAMPLES * EPOCHS
        assert result["summary"]["bytes_read"] == SAMPLES * SAMPLE_BYTES * EPOCHS
        assert run["probe"]["threads"] == 4 * NODES * 2
    assert system.login("dlio-hpc", "archive", "verify", job["archive"]).code == 0
    again = system.login("dlio-hpc", "collect", directory)
    assert "already archived" in again.err
    assert "has changed since" not in again.err


@pytest.mark.job
def test_a_job_that_fails(system: System, small: Path) -> None:
    made = system.login.waited(small, "--generate", "only")["runs"][0]["result"]["generated"]
    os.truncate(Path(made["dataset"]) / "00000005.npz", 5000)
    job = system.login.waited(small, "-N", NODES, code=3)
    assert job["state"] == "failed"
    assert "ends at byte 5000" in job["runs"][-1]["error"]["message"]
    report = system.login("dlio-hpc", "report", job["archive"])
    assert report.code == 3
    assert "ends at byte 5000" in report.out


@pytest.mark.job
def test_a_running_job_is_cancelled(system: System, small: Path) -> None:
    on = system.login
    directory = on.started(small, "-N", NODES)
    assert on("dlio-hpc", "collect", directory).code == 7
    shown = on("dlio-hpc", "status", directory).out
    assert "running" in shown
    assert system.running in shown
    assert "cancelling" in on("dlio-hpc", "cancel", directory).out
    code, (job,) = _ended(on, directory)
    assert (code, job["state"]) == (7, "cancelled")
    assert job["archive"]
    assert system.cancelled[0] in state_text(directory)
    assert text(directory / "exit_status") == "143\n"
    assert "had already ended, cancelled" in on("dlio-hpc", "cancel", directory).out


@pytest.mark.parametrize("is_ours", [True, False], ids=["dlio-hpc cancel", "its own command"])
def test_a_waiting_job_is_cancelled(system: System, small: Path, is_ours: bool) -> None:
    on = system.login
    directory = on.held(small)
    shown = on("dlio-hpc", "status", directory).out
    assert "  queued  " in shown
    assert system.queued in shown
    if is_ours:
        assert "cancelling" in on("dlio-hpc", "cancel", directory).out
    else:
        on.tell(*system.cancel, record(directory)["batch_id"])
    code, (job,) = _ended(on, directory)
    assert (code, job["state"], job["runs"]) == (7, "cancelled", [])
    assert system.cancelled[1] in state_text(directory)


@pytest.mark.job
def test_generating_and_reading_in_jobs_of_their_own(system: System, small: Path) -> None:
    done = system.login.submit(small, "--generate", "separate", "--wait", "-N", NODES)
    assert done.code == 0, done.err
    write, read = done.json["jobs"]
    assert [write["job"], read["job"]] == [f"{done.json['study']}-{part}" for part in ("generate", "read")]
    assert [job["state"] for job in (write, read)] == ["completed", "completed"]
    assert [run["kind"] for run in write["runs"] + read["runs"]] == ["generate", "measure"]
    submitted = record(Path(read["directory"]))
    assert submitted["after"] == [write["batch_id"]]
    assert system.well(write["batch_id"]) in submitted["command"]
    assert write["runs"][0]["result"]["ended"] < read["runs"][0]["result"]["started"]


@pytest.mark.job
def test_a_study_is_a_chain_of_jobs_none_of_which_stops_the_next(system: System, small: Path) -> None:
    failing = system.setup("[ -e ../../again ] || { touch ../../again; exit 9; }")
    done = system.login.submit(small, "-P", "reader.shuffle.seed=1,2", "--ppn", "1,2,4", *failing, "--wait")
    assert done.code == 6
    first, second, third = done.json["jobs"]
    assert [job["state"] for job in (first, second, third)] == ["failed", "completed", "completed"]
    command = record(Path(third["directory"]))["command"]
    assert system.before([first["batch_id"], second["batch_id"]]) in command
    assert second["runs"][-1]["result"]["ended"] <= third["runs"][0]["result"]["started"]
    again = system.login("dlio-submit", "--resume", done.json["study"], "--wait", "--json")
    assert again.code == 0, again.err
    assert again.json["missing"] == []


# Of each batch system with begin times: the option in the submit command, and the text of status
# for a job that waits for its begin time.
_BEGINS = {
    "sbatch": (r" --begin=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", "PENDING BeginTime"),
    "qsub": (r" -a \d{12}\.\d\d ", "waits for its begin time"),
    "flux": (r" --dependency=begin-time:\d{10} ", "depends:begin@"),
}  # fmt: skip


@pytest.mark.job
def test_the_nights_of_a_study_begin_at_their_times(system: System, small: Path) -> None:
    on = system.login
    done = on.submit(small, "--nights", 2, "--every", "1h", "--repeat", 2)
    if isinstance(on, Theta):
        assert done.code == 2
        assert "--nights: Cobalt" in done.err
        return
    assert done.code == 0, done.err
    first, second = (Path(job["directory"]) for job in done.json["jobs"])
    commands = [record(directory)["command"] for directory in (first, second)]
    option, state_text = _BEGINS[commands[1].split(" && ")[1].split()[0]]
    assert [re.search(option, command) is not None for command in commands] == [False, True]
    assert system.before([record(first)["batch_id"]]) in commands[1]
    assert _ended(on, first)[0] == 0
    until(lambda: state_text in on("dlio-hpc", "status", second).out)
    line = on("dlio-hpc", "status", second).out
    assert re.search(r"  queued  .* night 2 of 2, begins \d{4}-\d\d-\d\d \d\d:\d\d \w+", line, re.DOTALL), line
    assert on("dlio-hpc", "cancel", done.json["study"]).code == 0
    whole = on.submit(small, "--nights", 2, "--every", "6s", "--repeat", 2, "--wait")
    assert whole.code == 0, whole.err
    jobs = whole.json["jobs"]
    begins = record(Path(jobs[1]["directory"]))["begins"]
    assert jobs[1]["runs"][0]["result"]["started"] >= begins.replace("Z", ".000Z")
    assert [len(point["measurements"]) for point in whole.json["points"]] == [4]


def test_a_job_whose_condition_cannot_be_met_never_runs(system: System, small: Path) -> None:
    on, go = system.login, system.login.folder / "go"
    first = on.taken(small, *system.setup(f"until [ -e {go} ]; do sleep 0.05; done; exit 9"))
    second = on.taken(small, "--after", first.name)
    assert "queued" in on("dlio-hpc", "status", second).out
    go.touch()
    _, jobs = _ended(on, first, second)
    assert [job["state"] for job in jobs] == ["failed", "cancelled"]
    assert system.never is None or system.never in state_text(second)
    late = on.submit(small, "--after", first.name)
    assert late.code == 2
    assert "this job ended as failed; no job can depend on it" in late.err


def test_the_batch_system_cannot_be_reached(system: System, small: Path) -> None:
    if system.unreachable is None:
        pytest.skip("its controller is stopped in a test beside its name")
    on, go = system.login, system.login.folder / "go"
    directory = on.taken(small, *system.setup(f"until [ -e {go} ]; do sleep 0.05; done; exit 9"))
    until(lambda: "running" in on("dlio-hpc", "status", directory).out)
    outage(on, directory, small, go, system.unreachable)


def test_a_submission_that_was_not_written_down_is_found_by_its_name(system: System, small: Path) -> None:
    on = system.login
    directory = on.held(small)
    before = record(directory)
    write(directory, before | {"batch_id": None, "states": before["states"][:1]})
    assert "queued" in on("dlio-hpc", "status", directory).out
    assert record(directory)["batch_id"] == before["batch_id"]
    assert "cancelling" in on("dlio-hpc", "cancel", directory).out


def test_a_slow_batch_system_is_waited_for(system: System, small: Path) -> None:
    if system.unreachable is None:
        pytest.skip("a real batch system is not slow on demand")
    slowness(system.login, small)


# What the batch system refuses, and its message: system, options, message.
_FREE_OF_LIMITS = ("-S", "site.queues={}")
_REFUSED = [
    ("slurm", ("-q", "nope"), "invalid partition specified: nope"),
    ("slurm", ("-J", "--constraint=nofeature"), "Invalid feature specification"),
    ("slurm", ("-J", "--nonsense"), "unrecognized option '--nonsense'"),
    ("slurm", ("-N", 99), "sbatch rejected the job"),
    ("pbs", ("-q", "nope"), "qsub: Unknown queue"),
    ("pbs", ("-q", "small", "-N", 3), "qsub: Job violates queue and/or server resource limits"),
    ("pbs", ("-q", "small", "-t", "11m"), "qsub: Job violates queue and/or server resource limits"),
    ("pbs", ("-J", "-l foo=1"), "qsub: Unknown resource Resource_List.foo"),
    ("pbs", ("-J", "-r maybe"), "qsub: illegal -r value"),
    ("pbs", ("-J", "--bogus"), "qsub: directive error: --bogus"),
    ("cobalt", ("-q", "nope", *_FREE_OF_LIMITS), "trying to add job to non-existent queue 'nope'"),
    ("cobalt", ("-N", 9, *_FREE_OF_LIMITS), "Node count 9 is not between 1 and 8"),
    ("cobalt", ("-t", "61m", *_FREE_OF_LIMITS), "Walltime greater than the 'debug-cache-quad' queue max walltime"),
    (
        "cobalt", ("-q", "default", "-N", 128, "-t", "20m", *_FREE_OF_LIMITS),
        "Walltime less than the 'default' queue min walltime of 00:30:00",
    ),
    ("cobalt", ("-J", "--attrs numa=wrong"), "numa wrong not valid must be one of: a2a"),
    ("cobalt", ("-J", "--attrs mcdarm=flat"), "unknown attributes"),
    ("cobalt", ("-J", "--bogus"), "no such option: --bogus"),
    ("flux", ("-q", "nope"), "Invalid queue 'nope' specified"),
    ("flux", ("-N", 3), "requested nnodes (3) exceeds policy limit of 2 for queue debug"),
    ("flux", ("-t", "2h"), "requested duration (2h) exceeds policy limit of 1h for queue debug"),
    ("flux", ("-J", "--bogus"), "unrecognized arguments: --bogus"),
    ("flux", ("-J", "--dependency=afterok:f1"), "dependency: afterok: id f1: job not found"),
]  # fmt: skip


@pytest.mark.parametrize(("system", "options", "message"), _REFUSED, indirect=["system"])
def test_what_is_refused_is_told_in_the_words_of_the_batch_system(
    system: System, small: Path, options: tuple[object, ...], message: str
) -> None:
    done = system.login.submit(small, *options)
    assert done.code == 2
    assert " rejected the job: " in done.err
    assert message in done.err
    assert "failed" in system.login("dlio-hpc", "status").out


# Limits of a profile, and what dlio-hpc says: system, options of all submissions, rows of options and message.
_QUEUE = "site.queues={{{name}: {{nodes: 2, walltime: {{1: 0:10:00}}, min_walltime: 0:01:00}}}}"
_OF_A_QUEUE = [
    (("-N", 3), "--nodes 3: queue {name} of site {site} allows at most 2 per job"),
    (("-t", "11m"), "allows at most 0:10:00 for 1 node"),
    (("-t", "30s"), "queue {name} of site {site} requires at least 0:01:00"),
    (("-S", "site.account_required=true"), "requires an account: --account NAME"),
]
_OF_THETA = [
    (("-N", 9), "--nodes 9: queue debug-cache-quad of site theta allows at most 8 per job"),
    (("-q", "default"), "--nodes 1: queue default of site theta requires at least 128"),
    (("-q", "default", "-N", 128, "-t", "20m"), "queue default of site theta requires at least 0:30:00"),
    (("-q", "default", "-N", 128, "-t", "4h"), "allows at most 3:00:00 for 128 nodes"),
    (("--ppn", 4, "-S", "site.depth=64"), "the ranks of a node need 256, but site theta has 128"),
    (("-J", "no option"), "must begin with - and be a single line"),
    (("-J", "--env A='b c'"), "Cobalt splits at blanks and supports no quotes"),
]


@pytest.mark.parametrize(("system", "name"), [("pbs", "small"), ("flux", "debug"), ("cobalt", "")], indirect=["system"])
def test_limits_of_the_profile_are_checked_before_the_batch_system_is_asked(
    system: System, small: Path, name: str
) -> None:
    (system.login.state / "down").touch()
    usual = ("-S", _QUEUE.format(name=name), "-q", name, "-t", "5m") if name else ()
    site = system.login.usual[1]
    for options, message in _OF_A_QUEUE if name else _OF_THETA:
        done = system.login.submit(small, *usual, *options)
        assert done.code == 2
        assert message.format(name=name, site=site) in done.err
        assert not (system.login.folder / "dlio-runs").exists()


@pytest.mark.parametrize(
    ("system", "limit"),
    [
        ("pbs", ("-q", "small", "-t", "5m", "-S", "site.queues={small: {jobs: 1}}")),
        ("flux", ("-q", "batch", "-t", "5m", "-S", "site.queues={batch: {jobs: 1}}")),
        ("cobalt", ("-S", "site.queues.debug-cache-quad.jobs=1")),
    ],
    indirect=["system"],
)
def test_a_user_has_so_many_jobs_in_a_queue(system: System, small: Path, limit: tuple[str, ...]) -> None:
    directory = system.login.held(small, *limit)
    done = system.login.submit(small, *limit)
    assert done.code == 2
    assert "allows 1 job per user; you have 1 there" in done.err
    system.login.tell(*system.cancel, record(directory)["batch_id"])
