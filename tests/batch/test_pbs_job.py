"""Whole jobs run on PBS as a user runs them; OpenPBS is a stand-in, hydra and MPI are real."""

import json
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.batch.schedulers import pbs as pbs_scheduler
from dlio_hpc.config import shipped, site
from tests.conftest import BIN, Run
from tests.support.standins import batch, libdarshan, pbs
from tests.support.standins.login import (
    Login,
    exit_status_decides,
    found_by_its_name,
    library,
    record,
    state_text,
    states,
    text,
    until,
    write,
)  # fmt: skip

SAMPLES, SAMPLE_BYTES, EPOCHS = 30, 12_000, 2
# Where no host may be renamed, two nodes would be one.
NODES = 2 if batch.may_rename() else 1
HOSTS = ["n1", "n2"][:NODES] if NODES == 2 else [os.uname().nodename]
# hydra starts nothing by itself, whatever it thinks of the nodes' names.
_NOT_HERE = "site.environment={HYDRA_LAUNCHER_AUTOFORK: '0'}"

# sleep(1) of whole seconds, ten times as fast.
_FAST = 'sleep() { case $1 in *.*) command sleep "$1";; *) command sleep "$(( $1 / 10 ))"; esac; }'


class Pbs(Login):
    """Jobs have `folder`/home as their home, and start with a clean environment, to which setup() adds our PATH."""

    def __init__(self, run: Run, folder: Path, **policy: Any) -> None:
        super().__init__(run, folder, ("-s", "pbs", "-d", "data", "-S", _NOT_HERE, *self.setup(folder)))
        self.home = folder / "home"
        self.home.mkdir()
        self.profile(f"export PATH='{folder / 'bin'}':$PATH")  # a PBS of this machine's own would come first
        pbs.install(folder / "bin", self.state, **{"home": self.home, "grace": 6.0, "copy": 0.1} | policy)

    def profile(self, line: str) -> None:
        """Add a line to the login shell of jobs."""
        with (self.home / ".bash_profile").open("a") as file:
            file.write(f"{line}\n")

    @staticmethod
    def setup(folder: Path, *lines: str) -> tuple[str, str]:
        path = f"export PATH='{BIN}:{folder / 'bin'}':$PATH"
        return "-S", f"site.setup={json.dumps([path, *lines])}"

    def job(self, directory: Path) -> Any:
        """Return what PBS knows of the job."""
        (job,) = json.loads(self.tell("qstat", "-xf", "-F", "json", record(directory)["batch_id"]))["Jobs"].values()
        return job


@pytest.fixture
def on_pbs(run: Run, tmp_path: Path) -> Pbs:
    return Pbs(run, tmp_path)


@pytest.mark.job
def test_two_nodes_with_four_ranks_each_through_hydra(on_pbs: Pbs, small: Path) -> None:
    environ = 'tr "\\0" "\\n" < /proc/$$/environ > script.environ; env > script.env'
    job = on_pbs.waited(
        small, "-N", NODES, "--ppn", 4, "-A", "proj", "--repeat", 2, "-S", f"site.preload=[{library()}]",
        *Pbs.setup(on_pbs.folder, environ), "--archive", "kept",
    )  # fmt: skip
    directory = Path(job["directory"])
    assert job["state"] == "completed"
    assert job["batch_id"] == "1.pbshost"
    assert states(directory)[:2] == ["planned", "submitted"]
    assert [entry["name"] for entry in job["runs"]] == ["00-generate", "01-measure-1", "02-measure-2"]
    for entry in job["runs"][1:]:
        result = entry["result"]
        assert (result["ranks"], result["nodes"], result["ranks_per_node"]) == (4 * NODES, NODES, 4)
        assert result["hosts"] == HOSTS
        assert result["summary"]["samples"] == SAMPLES * EPOCHS
        assert result["summary"]["bytes_read"] == SAMPLES * SAMPLE_BYTES * EPOCHS
    until(lambda: on_pbs.job(directory)["job_state"] == "F")
    there = on_pbs.job(directory)
    assert (there["Job_Name"], there["Account_Name"]) == (job["job"], "proj")
    assert (there["Rerunable"], there["Keep_Files"]) == ("False", "doe")
    asked = {"select": f"{NODES}:ncpus=4:mpiprocs=4", "place": "scatter", "walltime": "00:30:00"}
    assert there["Resource_List"] | asked == there["Resource_List"]
    ranks = json.loads((directory / "environment.json").read_bytes())["variables"]
    assert ranks["LD_PRELOAD"] == library()
    assert not [name for name in ranks if "COOKIE" in name]
    for name in ("script.environ", "script.env"):
        assert "PBS_JOBID=1.pbshost" in text(directory / name)
        assert "LD_PRELOAD" not in text(directory / name), "preloaded for the ranks alone"
    again = on_pbs("dlio-hpc", "collect", directory)
    assert "already archived" in again.err
    assert "has changed since" not in again.err


@pytest.mark.job
def test_loads_of_a_mix_have_their_nodes(on_pbs: Pbs) -> None:
    """One launch runs all loads: each on nodes of its own, where the machine has two."""
    mix = on_pbs.folder / "mix.yaml"
    mix.write_text(f"""
name: two
repeat: 1
nodes: {NODES}
ranks_per_node: 4
mixes: {{place: {"nodes" if NODES == 2 else "ranks"}}}
parts:
  train:
    {{workload: demo, mix: busy, share: 0.5, set: {{dataset.format: raw, dataset.files: 8, compute.time: 200 ms}}}}
  storm: {{workload: metadata_own, mix: busy, share: 0.5, set: {{metadata.files: 100, train.epochs: 2}}}}
""")
    done = on_pbs("dlio-submit", "--study", mix, *on_pbs.usual, "--wait", "--json")
    assert done.code == 0, done.err
    (job,) = done.json["jobs"]
    results = [one["result"] for one in job["runs"] if one["result"] and one["result"]["summary"]]
    places = {
        (one["summary"]["mix"]["load"], bool(one["summary"]["mix"]["others"])): (one["hosts"], one["ranks"])
        for one in results
    }
    ranks = 4 if NODES == 2 else 2
    expected = {"train": (HOSTS[:1], ranks), "storm": (HOSTS[-1:], ranks)}
    assert places == {(load, company): expected[load] for load in expected for company in (False, True)}


def test_a_job_that_can_never_run(on_pbs: Pbs, small: Path) -> None:
    """PBS accepts the job and says why it waits; dlio-hpc wait ends at once and repeats that."""
    directory = on_pbs.taken(small, "-N", 9)
    until(lambda: "comment" in on_pbs.job(directory))
    shown = on_pbs("dlio-hpc", "status", directory).out
    assert "queued" in shown
    assert "Can Never Run: Not enough total nodes available" in shown
    waited = on_pbs("dlio-hpc", "wait", directory)
    assert waited.code == 6
    assert "is still queued; the batch system reports: Can Never Run: Not enough total nodes available" in waited.err
    assert f"dlio-hpc cancel {directory}" in waited.err
    assert "asking again" not in waited.err


@pytest.mark.job
def test_a_job_is_told_of_its_limit_by_a_timer_of_its_own(run: Run, small: Path, tmp_path: Path) -> None:
    """A job of 90 s is told after 68 s. Here time passes ten times as fast, for sleep(1) too."""
    on_pbs = Pbs(run, tmp_path, second=0.1)
    on_pbs.profile(_FAST)
    slow = ("-S", "compute.time=0.2", "-S", "train.epochs=100")
    job = on_pbs.waited(small, "-t", "90s", "-N", NODES, *slow, code=7)
    directory = Path(job["directory"])
    assert job["state"] == "timeout"
    assert text(directory / "exit_status") == "124\n"
    assert "time limit near, 22 s left: stopping" in text(directory / "job.out")
    summary = job["runs"][-1]["result"]["summary"]
    assert 0 < summary["steps"] < summary["steps_planned"]


@pytest.mark.job
def test_a_job_that_is_ended_at_its_limit(run: Run, small: Path, tmp_path: Path) -> None:
    """The time is over before the script's timer ends. The script asks PBS for the reason."""
    on_pbs = Pbs(run, tmp_path, second=1 / 15)
    job = on_pbs.waited(small, "-t", "1m", "-S", "compute.time=0.5", "-S", "train.epochs=20", code=7)
    directory = Path(job["directory"])
    assert job["state"] == "timeout"
    assert text(directory / "exit_status") == "124\n"
    assert "=>> PBS: job killed: walltime 60 exceeded limit 60" in text(directory / "job.out")


@pytest.mark.job
@pytest.mark.parametrize("history", [True, False])
def test_a_limit_that_was_raised_is_the_limit(run: Run, small: Path, tmp_path: Path, history: bool) -> None:
    """The job does not stop near its first limit, and is not over its time when it is cancelled later. Time passes
    ten times as fast.
    """
    on_pbs = Pbs(run, tmp_path, second=0.1)
    on_pbs.profile(_FAST)
    if not history:
        (on_pbs.state / "forget").touch()
    pause = "touch begun; for second in {1..600}; do command sleep 0.1; done"
    directory = on_pbs.taken(small, "-t", "90s", *Pbs.setup(tmp_path, pause))
    until((directory / "begun").exists)
    on_pbs.tell("qalter", "-l", "walltime=0:10:00", record(directory)["batch_id"])
    time.sleep(12)
    assert not (directory / "stop").exists()
    on_pbs.tell("qdel", record(directory)["batch_id"])
    until((directory / "exit_status").exists)
    assert text(directory / "exit_status") == "143\n"
    until(lambda: "  cancelled  " in on_pbs("dlio-hpc", "status", directory).out)


# Variables that OpenPBS 23.06 prints as JSON without quotes or escapes.
_ODD = "A=.5,B=005,C=inf,D='x'"


def test_a_variable_hides_no_state_and_refuses_no_submission(on_pbs: Pbs, small: Path) -> None:
    limited = ("-q", "small", "-t", "5m", "-S", "site.queues={small: {jobs: 2}}")
    directory = on_pbs.held(small, "-J", f"-v {_ODD}", *limited)
    assert f"{directory.name}  queued " in on_pbs("dlio-hpc", "status", directory).out
    assert '"A":.5' in on_pbs.tell("qstat", "-f", "-F", "json").replace(" ", "")
    on_pbs.held(small, *limited)
    third = on_pbs.submit(small, *limited)
    assert third.code == 2
    assert "allows 2 jobs per user; you have 2" in third.err


def test_a_job_that_a_hook_rejects_is_not_watched_forever(on_pbs: Pbs, small: Path) -> None:
    (on_pbs.state / "hook").touch()
    directory = on_pbs.taken(small)
    until(lambda: "(job held" in on_pbs("dlio-hpc", "status", directory).out)
    assert "job_state = H" in on_pbs.tell("qstat", "-f"), "a query deletes nothing"
    waited = on_pbs("dlio-hpc", "wait", directory)
    assert waited.code == 6
    assert "job_state = H" not in on_pbs.tell("qstat", "-f")
    other = on_pbs.taken(small)
    until(lambda: "(job held" in on_pbs("dlio-hpc", "status", other).out)
    assert on_pbs("dlio-hpc", "cancel", other).code == 0
    assert "job_state = H" not in on_pbs.tell("qstat", "-f")
    assert "ended as failed (job held, too many failed attempts to run)" in waited.err


ENDS = [
    ("exit 7", "failed", "Exit_status 7, substate 93"),
    ("kill -9 $$", "failed", "Exit_status 265, substate 93"),
    ("trap - EXIT TERM; sleep 77", "timeout", "Exit_status -29, substate 93"),
    ("trap 'exit 0' TERM; sleep 77 & wait", "completed", ""),
]


def test_how_jobs_end(run: Run, small: Path, tmp_path: Path) -> None:
    """The last job ends by itself with exit code 0 as its time is over, without a result."""
    on_pbs = Pbs(run, tmp_path, second=0.02, nodes=len(ENDS), wait=1.0)
    directories = [on_pbs.taken(small, "-t", "2m", *Pbs.setup(tmp_path, line)) for line, *_ in ENDS]
    waited = on_pbs("dlio-hpc", "wait", *directories, "--json", "--quiet")
    assert waited.code == 6
    assert [job["state"] for job in waited.json["jobs"]] == [state for _, state, _ in ENDS]
    for directory, (_, _, why) in zip(directories, ENDS, strict=True):
        assert why in state_text(directory)
    assert on_pbs("dlio-hpc", "report", directories[-1]).code == 3


@pytest.mark.job
def test_a_server_without_history_knows_live_jobs(on_pbs: Pbs, small: Path) -> None:
    """OpenPBS keeps no history unless it is set up to: qstat -x complains, shows nothing, and ends with 0."""
    (on_pbs.state / "forget").touch()
    directory = on_pbs.started(small)
    assert f"{directory.name}  running " in on_pbs("dlio-hpc", "status", directory).out
    assert on_pbs("dlio-hpc", "collect", directory).code == 7
    follower = on_pbs.taken(small, "--after", directory.name)
    before = record(follower)
    write(follower, before | {"batch_id": None, "states": before["states"][:1]})
    assert "queued" in on_pbs("dlio-hpc", "status", follower).out
    assert record(follower)["batch_id"] == before["batch_id"]
    assert "cancelling" in on_pbs("dlio-hpc", "cancel", follower).out
    assert "cancelling" in on_pbs("dlio-hpc", "cancel", directory).out
    waited = on_pbs("dlio-hpc", "wait", directory, follower, "--json")
    assert [job["state"] for job in waited.json["jobs"]] == ["cancelled", "cancelled"]


@pytest.mark.job
@pytest.mark.skipif(NODES == 1, reason="hosts cannot be renamed here")
def test_no_rank_outlives_a_job_that_is_cancelled(on_pbs: Pbs, small: Path) -> None:
    """PBS kills the proxies on the second node, whose ranks have left the session that it knows."""
    busy = ("-S", "train.epochs=100000", "-S", "compute.time=0")
    directory = on_pbs.taken(small, "-N", NODES, *busy)
    until(lambda: "01-measure" in text(directory / "job.out"))
    until(lambda: len(_ranks(directory)) > 4 * NODES)
    on_pbs.tell("qdel", record(directory)["batch_id"])
    until((directory / "exit_status").exists)
    assert text(directory / "exit_status") == "143\n"
    until(lambda: not _ranks(directory), patience_s=5)


def _ranks(directory: Path) -> list[str]:
    """Return the job's ranks and their launcher."""
    there = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"dlio_hpc.core" in (process / "cmdline").read_bytes() and os.readlink(process / "cwd") == str(
                directory
            ):
                there.append(process.name)
    return there


@pytest.mark.parametrize(("node", "why"), [("n1", "Exit_status -4"), ("n2", "Exit_status 0")])
@pytest.mark.parametrize("asked", [False, True])
def test_a_node_that_dies_is_no_success_and_no_cancel(
    on_pbs: Pbs, small: Path, node: str, why: str, asked: bool
) -> None:
    directory = on_pbs.taken(small, "-N", 2, *Pbs.setup(on_pbs.folder, "trap - EXIT TERM; sleep 77"))
    until(lambda: "running" in on_pbs("dlio-hpc", "status", directory).out)
    (on_pbs.state / "dead").write_text(node)
    if asked:
        until(lambda: on_pbs.job(directory)["job_state"] == "F")
    waited = on_pbs("dlio-hpc", "wait", directory, "--json")
    assert (waited.code, waited.job["state"]) == (6, "node_fail")
    assert state_text(directory) == f"{why}, substate 93"


STATUSES = [
    (0, 92, "completed"), (0, 93, "node_fail"), (None, 93, "node_fail"), (0, 91, "cancelled"), (None, 92, "cancelled"),
    (1, 93, "failed"), (265, 93, "failed"), (-1, 93, "node_fail"), (-4, 93, "node_fail"), (-20, 93, "node_fail"),
    (-10, 93, "failed"), (-13, 93, "failed"), (-17, 93, "failed"),
    (-19, 93, "failed"), (-21, 93, "failed"), (-22, 93, "failed"),
    (-27, 93, "out_of_memory"), (-29, 93, "timeout"), (-29, 91, "cancelled"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "substate", "state"), STATUSES)
def test_what_an_exit_status_means(status: int | None, substate: int, state: str) -> None:
    known = {} if status is None else {"Exit_status": status}
    assert pbs_scheduler.sight({"job_state": "F", "substate": substate} | known).state == state


def test_a_prefix_of_directives_in_the_users_shell_does_no_harm(on_pbs: Pbs, small: Path) -> None:
    done = on_pbs("dlio-submit", small, *on_pbs.usual, "--json", "-q", "small", "-t", "5m", PBS_DPREFIX="#NOT")
    assert done.code == 0, done.err
    assert on_pbs.job(Path(done.job["directory"]))["queue"] == "small"


def test_a_profile_written_from_documentation_gets_whole_nodes(on_pbs: Pbs, small: Path) -> None:
    """A site documents cpus and ranks_per_node; PBS needs ncpus, mpiprocs and place."""
    (on_pbs.folder / "doc.yaml").write_text(
        "name: doc\nscheduler: pbs\nlauncher: {kind: hydra, command: mpiexec}\nranks_per_node: 4\ncpus: 64\n"
        "walltime: 0:10:00\n"
    )
    shown = on_pbs("dlio-submit", small, "-s", "./doc.yaml", "-d", "data", "-N", 2, "--dry-run").out
    assert "#PBS -l select=2:ncpus=64:mpiprocs=4\n" in shown
    assert shown.count("place=scatter") == 1
    free = ("-J", "-l place=pack", "-S", "site.pbs_select={ncpus: 32}")
    shown = on_pbs("dlio-submit", small, "-s", "./doc.yaml", "-d", "data", "-N", 2, "--dry-run", *free).out
    assert "#PBS -l select=2:ncpus=32:mpiprocs=4\n" in shown
    assert "place=scatter" not in shown


def test_what_is_known_of_a_job_where_no_history_is_kept(on_pbs: Pbs, small: Path) -> None:
    directory, other = on_pbs.held(small), on_pbs.held(small)
    on_pbs.tell("qdel", record(directory)["batch_id"])
    (on_pbs.state / "forget").touch()
    exit_status_decides(on_pbs, directory, other)


def test_a_submission_that_was_not_written_down_is_found_by_its_name(on_pbs: Pbs, small: Path) -> None:
    on_pbs.held(small)
    directory = on_pbs.held(small)
    assert record(directory)["batch_id"] == "2.pbshost"
    found_by_its_name(on_pbs, directory, cancel=["qdel", "2"], purge=["qdel", "-x", "2"])


@pytest.mark.job
def test_output_that_arrives_late_is_archived_too(run: Run, small: Path, tmp_path: Path) -> None:
    """Without -k doe, PBS copies the output when the job has ended."""
    on_pbs = Pbs(run, tmp_path, copy=1.5)
    job = on_pbs.waited(small, "-S", "site.job_options=[-l place=scatter]", "--archive", "kept")
    assert job["state"] == "completed"
    assert f"{job['job']}/job.out" in on_pbs("dlio-hpc", "archive", "list", job["archive"]).out


PALS = """\
#!{python} -IS
import json, os, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    print(json.dumps(words), file=log)
given = {{"--env": []}}
while words[0].startswith("-"):
    name, value = words.pop(0), words.pop(0)
    given[name] = [*given["--env"], value] if name == "--env" else value
assert given.keys() == {{"-n", "--ppn", "--depth", "--cpu-bind", "--env"}}, given
mpiexec = {mpiexec!r}
os.execv(mpiexec, [mpiexec, "-launcher", "fork", "-n", given["-n"], "env", *given["--env"], *words])
"""


@pytest.mark.job
def test_polaris(run: Run, small: Path, tmp_path: Path) -> None:
    """The job uses the shipped profile without its modules; the stand-in has the queues and hooks of Polaris."""
    queues: dict[str, Any] = {name: {} for name in site.load("polaris").queues}
    required = ["account", "filesystems", "keep"]
    there = Pbs(run, tmp_path, queues=queues, require=required, filesystems={"home": True, "eagle": True}, cpus=64)
    pals, log = tmp_path / "bin" / "mpiexec", tmp_path / "pals.jsonl"
    pals.write_text(PALS.format(python=sys.executable, log=str(log), mpiexec=str(BIN / "mpiexec")))
    pals.chmod(pals.stat().st_mode | stat.S_IXUSR)
    setup = json.dumps([f"export PATH='{tmp_path / 'bin'}':$PATH"])
    polaris = ("-s", "polaris", "-d", "data", "-S", f"site.setup={setup}", "-S", "site.probe=null", "--wait", "--json")
    unpaid = there("dlio-submit", small, *polaris)
    assert unpaid.code == 2
    assert "site polaris requires an account: --account NAME" in unpaid.err
    assert not (tmp_path / "dlio-runs").exists()
    done = there("dlio-submit", small, *polaris, "-A", "proj")
    assert done.code == 0, done.err
    assert done.job["state"] == "completed"
    job = there.job(Path(done.job["directory"]))
    assert (job["queue"], job["Account_Name"], job["Keep_Files"]) == ("debug", "proj", "doe")
    asked = {"select": "1:system=polaris", "filesystems": "home:eagle", "place": "scatter", "walltime": "00:30:00"}
    assert job["Resource_List"] | asked == job["Resource_List"]
    for line in text(log).splitlines():
        assert json.loads(line)[:12] == [
            "-n", "4", "--ppn", "4", "--depth", "8", "--cpu-bind", "depth", "--env", "OMP_NUM_THREADS=1", "--env",
            "MPICH_GPU_SUPPORT_ENABLED=0",
        ]  # fmt: skip
    variables = json.loads((Path(done.job["directory"]) / "environment.json").read_bytes())["variables"]
    assert variables["OMP_NUM_THREADS"] == "1"
    log.unlink()
    darshan = ("-S", f"site.darshan={libdarshan.install(tmp_path / 'lib')}", "-S", libdarshan.rank_environment())
    watched = there("dlio-submit", small, *polaris, "-A", "proj", *darshan)
    assert watched.code == 0, watched.err
    total = SAMPLES * SAMPLE_BYTES * EPOCHS
    assert watched.job["runs"][-1]["darshan"]["bytes"] == {"darshan": total, "core": total, "planned": total}
    calls = [json.loads(line) for line in text(log).splitlines()]
    assert [call[:6] for call in calls] == [
        ["-n", "2", "--ppn", "2", "--depth", "8"], *([["-n", "4", "--ppn", "4", "--depth", "8"]] * 2),
    ]  # fmt: skip
    assert all(call.count("--env") == 8 for call in calls), "six of Darshan's and two of the stand-in's"


@pytest.mark.parametrize("name", [name for name in shipped.names(shipped.SITES) if site.load(name).scheduler == "pbs"])
def test_pbs_takes_the_script_of_every_shipped_site(run: Run, small: Path, tmp_path: Path, name: str) -> None:
    profile = site.load(name)
    queues: dict[str, Any] = {queue: {} for queue in profile.queues} or pbs.QUEUES
    there = Pbs(run, tmp_path, queues=queues, require=["account", "filesystems", "keep"] if profile.queues else [])
    for queue, limits in profile.queues.items():
        options = ("-q", queue, "-N", limits.fewest_nodes, "-A", "proj", "-J", "-h", "-d", "data")
        done = there("dlio-submit", small, "-s", name, *options)
        assert done.code == 0, done.err
    if not profile.queues:
        there.held(small)
    assert len(there.jobs()) == max(len(profile.queues), 1)


@pytest.mark.job
def test_the_preflight_on_pbs(on_pbs: Pbs, small: Path) -> None:
    options = (small, "-s", "pbs", "-d", "data", "-N", NODES, "-S", _NOT_HERE, *Pbs.setup(on_pbs.folder))
    done = on_pbs("dlio-hpc", "check", *options, "-q", "workq")
    assert done.code == 0, done.out + done.err
    assert "queue workq is enabled and started" in done.out
    assert ("4 ranks on 2 nodes" if NODES == 2 else "2 ranks") + ", started by hydra, communicated" in done.out
    wrong = on_pbs("dlio-hpc", "check", *options, "-q", "nope", "--no-launch", "-S", "site.preload=[/no.so]")
    assert wrong.code == 2
    faults = [line for line in wrong.out.splitlines() if line.startswith("fault")]
    assert len(faults) == 2
    assert "queue nope is not defined" in faults[0]
    assert "preload: /no.so: No such file" in faults[1]


@pytest.mark.job
@pytest.mark.skipif(NODES == 1, reason="hosts cannot be renamed here")
def test_a_way_between_nodes_that_works_is_found(on_pbs: Pbs, small: Path) -> None:
    """Plain pbs_tmrsh does not work, as it starts no shell. There is no sshd on n2."""
    raw = "site.launcher.options=[-launcher, rsh, -launcher-exec, pbs_tmrsh]"
    for wrong in ("site.launcher.remote=null",
                  "site.launcher.remote=ssh", raw):  # fmt: skip
        options = (small, "-s", "pbs", "-d", "data", "-N", 2, "-S", _NOT_HERE, *Pbs.setup(on_pbs.folder), "-S", wrong)
        done = on_pbs("dlio-hpc", "check", *options, "--patience", "60s")
        assert done.code == 6, (wrong, done.out)
        if wrong != raw:
            assert "the launch works with -S site.launcher.remote=pbs_tmrsh" in done.out
    on_pbs.profile("export HYDRA_LAUNCHER_AUTOFORK=0")
    slurmless = {"PATH": str(on_pbs.folder / "bin")}
    done = on_pbs("dlio-hpc", "sites", "new", "here", "--launch", **slurmless)
    assert done.code == 0, done.err
    (line,) = [line for line in text(on_pbs.folder / "here.yaml").splitlines() if line.startswith("  remote: ")]
    assert line.split()[1] == "pbs_tmrsh"
    assert line.endswith("tried with two nodes")
    assert not list(on_pbs.folder.glob(".dlio-hpc-*"))


def test_a_profile_is_written_from_what_is_found(on_pbs: Pbs, small: Path) -> None:
    """The stand-in alone is on PATH, as Slurm there would come first."""
    assert on_pbs("dlio-hpc", "sites", "new", "here", PATH=str(on_pbs.folder / "bin")).code == 0
    profile = on_pbs("dlio-hpc", "sites", "./here.yaml", "--json").json
    assert (profile["scheduler"], profile["launcher"]["kind"], profile["cpus"]) == ("pbs", "hydra", 8)
    assert profile["pbs_select"] == {"ncpus": 8}
    assert profile["queues"]["small"] == {
        "nodes": 2, "walltime": {"1": "0:10:00"}, "min_walltime": None, "jobs": None, "options": [],
    }  # fmt: skip
    shown = on_pbs("dlio-submit", small, "-s", "./here.yaml", "-d", "data", "-q", "small", "-t", "5m", "--dry-run")
    assert shown.code == 0
    assert "#PBS -q small\n" in shown.out
    assert "#PBS -k doe\n" in shown.out
