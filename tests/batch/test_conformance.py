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
from tests.support.standins.login import Login, outage, record, state_text, states, text, until, write

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
    assert re.search(r"  queued  .*; night 2 of 2, begins \d{4}-\d\d-\d\d \d\d:\d\d \w+", line), line
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
