import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import jinja2
import pytest
from msgspec.structs import replace

from dlio_hpc.base import serialization
from dlio_hpc.batch import jobscript
from dlio_hpc.batch.schedulers.scheduler import After
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import shipped, site, workload
from dlio_hpc.plan import plan
from dlio_hpc.plan.plan import Plan
from dlio_hpc.results.run_result import RunError
from tests.support import planning
from tests.support.places import TESTS
from tests.support.standins.login import until

NASTY = [
    "x; touch owned",
    "$(touch owned)",
    "`touch owned`",
    "a'b\"c \\ $HOME",
    "line\ntouch owned",
    "-n --help",
    "*",
    "ü\t|&<>",
]
_GOLDEN = TESTS / "golden"


def _plan(folder: Path, name: str = "demo", shipped: str = "demo", repeat: int = 1) -> Plan:
    request = planning.Request(runs=folder, data=folder, repeat=repeat)
    return planning.make(workload.load(shipped, (f"name={json.dumps(name)}",)), site.load("local"), request)


def _with_runner(made: Plan, command: str, **changes: object) -> Plan:
    launcher = site.Launcher("mpiexec", command)
    return replace(made, site=replace(made.site, launcher=launcher, **changes))


def _shellcheck(script: str) -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([checker, "-S", "warning", "-"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def _usual(name: str, *overrides: str) -> Plan:
    """A job as a user of that site would ask for it, with nothing of this machine in it."""
    profile = site.load(name, overrides)
    queue = profile.queues.get(profile.queue or "")
    nodes = max(queue.fewest_nodes if queue else 1, 1 if name == "local" else 2)
    request = planning.Request(runs=Path("/runs"), data=Path("/data"), nodes=nodes, account="proj", repeat=2)
    made = planning.make(workload.load("demo"), profile, request)
    command = made.site.launcher.command.rpartition("/")[2]
    launcher = replace(made.site.launcher, command=command)
    return replace(made, version="0", site=replace(made.site, python="/opt/python/bin/python3", launcher=launcher))


@pytest.mark.parametrize("name", shipped.names(shipped.SITES))
def test_the_script_of_every_site_is_as_recorded(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "job_name", lambda workload: f"{workload}-20260101-120000-abcdef")
    monkeypatch.setattr(jobscript, "python_path", lambda: None)
    monkeypatch.setattr(jobscript, "LEFTOVERS", Path("/opt/dlio_hpc/core/node_leftovers.py"))
    _compare(_usual(name), f"{name}-demo.sh", request)


@pytest.mark.parametrize("engine", ["apptainer", "podman-hpc"])
def test_the_script_of_a_container_is_as_recorded(
    engine: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "job_name", lambda workload: f"{workload}-20260101-120000-abcdef")
    monkeypatch.setattr(jobscript, "python_path", lambda: None)
    monkeypatch.setattr(jobscript, "LEFTOVERS", Path("/opt/dlio_hpc/core/node_leftovers.py"))
    image = {"engine": engine, "image": "dlio-hpc:0.1" if engine == "podman-hpc" else "/shared/dlio-hpc.sif"}
    keys = {"mpi": "site", "binds": ["/opt/cray:ro"], "python": "/opt/dlio-hpc/bin/python3", **image}
    made = _usual("slurm", f"container={json.dumps(keys)}", "darshan=/opt/darshan/lib/libdarshan.so")
    _compare(made, f"{engine}-demo.sh", request)


def _compare(made: Plan, name: str, request: pytest.FixtureRequest) -> None:
    script = jobscript.render(made)
    _shellcheck(script)
    golden = _GOLDEN / name
    if request.config.getoption("--regold"):
        golden.write_text(script)
    assert script == golden.read_text(), "if this is meant: make regold"


@pytest.mark.parametrize("nasty", NASTY)
def test_no_value_does_harm(nasty: str, tmp_path: Path) -> None:
    """The script is run with a launcher that prints its arguments: they arrive as they are, and nothing else runs."""
    folder = tmp_path / nasty.replace("/", "_")
    made = _plan(folder, nasty, "null", repeat=2)
    runner = tmp_path / "show args"
    made = _with_runner(made, str(runner), environment={"NASTY": nasty}, setup=("export FROM_SITE='set up'",))
    made = replace(made, site=replace(made.site, python=f"python {nasty}"))
    script = jobscript.render(made)
    _shellcheck(script)
    Path(made.directory).mkdir(parents=True)
    runner.write_text('#!/bin/bash\nprintf "%s\\0" "$@" "$NASTY" "$FROM_SITE" "$PWD"\n')
    runner.chmod(0o755)
    done = subprocess.run(["bash", "-s"], input=script, cwd=tmp_path, capture_output=True, text=True, check=True)
    calls = [part.split("\0") for part in done.stdout.split("== ")[1:]]
    assert len(calls) == 2
    for number, call in enumerate(calls):
        title, _, first = call[0].partition("\n")
        assert title == f"0{number}-{made.runs[number].name}"
        core = [f"python {nasty}", "-m", "mpi4py", "-m", "dlio_hpc.core", "plan.json", "--run", str(number)]
        assert [first, *call[1:-1]] == ["-n", "4", *core, nasty, "set up", made.directory]
    assert not list(tmp_path.rglob("owned"))
    assert (Path(made.directory) / "exit_status").read_text() == "0\n"


@pytest.mark.parametrize("nasty", NASTY)
def test_the_submit_command_can_be_pasted(nasty: str, tmp_path: Path) -> None:
    made = _plan(tmp_path / nasty.replace("/", "_"))
    assert str(Path(made.directory, "job.sh")) in shlex.split(SCHEDULERS["local"].command(made, After()))
    for name in SCHEDULERS.keys() - {"local"}:
        assert made.directory in shlex.split(SCHEDULERS[name].command(made, After()))


def _script_status(tmp_path: Path, launcher: str) -> tuple[int, str, str]:
    made = _with_runner(_plan(tmp_path), str(tmp_path / "launcher"))
    tmp_path.mkdir()
    (tmp_path / "launcher").write_text(f"#!/bin/bash\n{launcher}\n")
    (tmp_path / "launcher").chmod(0o755)
    Path(made.directory).mkdir(parents=True)
    (Path(made.directory) / "plan.json").write_bytes(serialization.encode(made))
    done = subprocess.run(["bash", "-s"], input=jobscript.render(made), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, (Path(made.directory) / "exit_status").read_text()


def test_exit_status_is_what_went_wrong(tmp_path: Path) -> None:
    code, out, status = _script_status(tmp_path / "a", '[ "${*: -1}" = 0 ] || exit 3')
    assert (code, status) == (3, "3\n")
    assert "== 01-measure" in out
    code, out, status = _script_status(tmp_path / "b", "exit 2")
    assert (code, status) == (2, "2\n")
    assert "== 01-measure" not in out, "without data there is nothing to measure"


def test_each_run_is_one_launcher_line(tmp_path: Path) -> None:
    made = planning.make(workload.load("demo"), site.load("local"), planning.Request(runs=tmp_path, repeat=3, warmup=1))
    lines = [line for line in jobscript.render(made).splitlines() if "dlio_hpc.core plan.json --run" in line]
    assert len(lines) == len(made.runs) == 5
    assert all(" mpiexec -n 4 " in line.replace("/", " ") for line in lines)


def test_a_template_cannot_print_what_was_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _plan(tmp_path)
    (tmp_path / "templates").mkdir()
    monkeypatch.setattr(shipped, "root", lambda: tmp_path)
    for text, error in (
        ("cd {{ plan.directory }}", TypeError),
        ("echo {{ plan.nothing }}", jinja2.UndefinedError),
        ("{{ plan.nodes }} {{ plan.directory|quote }}", None),
    ):
        (tmp_path / "templates" / "local.sh.j2").write_text(text)
        if error is None:
            jobscript.render(made)
        else:
            with pytest.raises(error):
                jobscript.render(made)


def test_the_layout_that_the_step_sets_is_shown(tmp_path: Path) -> None:
    profile = site.load("slurm", ("layout={stripe_count: 8, stripe_size: 1 MiB}",))
    request = planning.Request(runs=tmp_path, data=Path("/data"))
    script = jobscript.render(planning.make(workload.load("demo"), profile, request)).splitlines()
    (place,) = [number for number, line in enumerate(script) if line.startswith("run 'layout before'")]
    assert script[place - 1].startswith(
        "# On Lustre, before the dataset is written: lfs setstripe -c 8 -S 1048576 /data/"
    )
    assert not [line for line in jobscript.render(_plan(tmp_path)).splitlines() if "setstripe" in line]


@pytest.mark.job
def test_results_of_an_earlier_attempt_are_kept_apart(tmp_path: Path) -> None:
    made = _with_runner(_plan(tmp_path, shipped="null"), "true")
    directory = Path(made.directory)
    directory.mkdir(parents=True)
    (directory / "job.sh").write_text(jobscript.render(made))
    for attempt in range(3):
        subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True)
        (directory / "runs/00-measure").mkdir(parents=True, exist_ok=True)
        (directory / "runs/00-measure/result.json").write_text(str(attempt))
    results = sorted(directory.glob("attempts/*/runs/00-measure/result.json"))
    assert [path.read_text() for path in results] == ["0", "1"]
    assert (directory / "attempts/2/exit_status").exists()


def _by_hand(made: Plan, *setup: str, launcher: str = "") -> Path:
    """The directory of a job whose launcher is the script `launcher`, ready to be run."""
    directory = Path(made.directory)
    directory.mkdir(parents=True)
    runner = directory.parent / "runner"
    runner.write_text(f"#!/bin/bash\n{launcher}\n")
    runner.chmod(0o755)
    (directory / "job.sh").write_text(jobscript.render(_with_runner(made, str(runner), setup=setup)))
    return directory


@pytest.mark.job
@pytest.mark.parametrize(("code", "status"), [(7, 124), (70, 70), (71, 71), (3, 3), (6, 6)])
def test_only_an_incomplete_run_is_a_timeout(tmp_path: Path, code: int, status: int) -> None:
    """The exit code of a bug, 70, begins with the digit of an incomplete run, 7. A message may quote either."""
    error = RunError(0, "node1", "Some", 'quoted: "exit_code": 7', code)
    text = shlex.quote(serialization.encode(error).decode())
    launcher = f"mkdir -p runs/00-measure; echo {text} > runs/00-measure/error.json"
    directory = _by_hand(_plan(tmp_path, shipped="null"), launcher=f"{launcher}; exit {code}")
    done = subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True)
    assert (done.returncode, (directory / "exit_status").read_text()) == (status, f"{status}\n")


@pytest.mark.job
@pytest.mark.parametrize(("patience", "codes", "attempts"), [("60", [0, 0], 1), ("0.2", [0, 6], 0)])
def test_two_copies_of_a_job_never_run_at_once(tmp_path: Path, patience: str, codes: list[int], attempts: int) -> None:
    """The second copy waits for the first, or ends without a change of a file, after `patience` seconds."""
    launcher = "mkdir -p runs/00-measure; echo $PPID begins >> log; sleep 1.5; echo $PPID ends >> log"
    directory = _by_hand(_plan(tmp_path, shipped="null"), launcher=f"{launcher}; cp log runs/00-measure/result.json")
    script = (directory / "job.sh").read_text()
    assert script.count("flock -w 60 9") == 1
    (directory / "job.sh").write_text(script.replace("flock -w 60 9", f"flock -w {patience} 9"))
    first = subprocess.Popen(["bash", "job.sh"], cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (directory / "log").exists():
        time.sleep(0.05)
    second = subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True, text=True)
    assert ("another copy of this job runs" in second.stderr) == (codes[1] == 6)
    assert [first.wait(), second.returncode] == codes
    assert (directory / "exit_status").read_text() == "0\n"
    assert len(list(directory.glob("attempts/*/runs/00-measure/result.json"))) == attempts
    log = [line.split() for line in (directory / "log").read_text().splitlines()]
    assert [what for _, what in log] == ["begins", "ends"] * (len(log) // 2)
    assert all(begun[0] == ended[0] for begun, ended in zip(log[::2], log[1::2], strict=True))


@pytest.mark.job
def test_no_copy_runs_beside_ranks_that_outlived_their_script(tmp_path: Path) -> None:
    """Only the script is killed. Its ranks hold the lock until they end."""
    launcher = "mkdir -p runs/00-measure; echo begins >> log; sleep 2; echo ends >> log"
    directory = _by_hand(_plan(tmp_path, shipped="null"), launcher=launcher)
    first = subprocess.Popen(["bash", "job.sh"], cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (directory / "log").exists():
        time.sleep(0.05)
    first.kill()
    first.wait()
    done = subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True)
    assert done.returncode == 0
    assert (directory / "log").read_text().split() == ["begins", "ends"] * 2


@pytest.mark.job
@pytest.mark.parametrize("name", ["runs", "runs/00-measure"])
def test_results_behind_a_link_are_not_removed(tmp_path: Path, name: str) -> None:
    directory = _by_hand(_plan(tmp_path, shipped="null"))
    (tmp_path / "elsewhere/00-measure").mkdir(parents=True)
    for folder in ("elsewhere", "elsewhere/00-measure"):
        (tmp_path / folder / "result.json").write_text("kept")
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).symlink_to(tmp_path / "elsewhere")
    done = subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True, text=True)
    assert done.returncode == 6
    assert f"{directory.resolve()}/{name} is a link" in done.stderr
    assert all((tmp_path / path).exists() for path in ("elsewhere/result.json", "elsewhere/00-measure/result.json"))


@pytest.mark.job
def test_results_that_cannot_be_kept_apart_are_not_removed(tmp_path: Path) -> None:
    directory = _by_hand(_plan(tmp_path, shipped="null"))
    (directory / "runs/00-measure").mkdir(parents=True)
    (directory / "runs/00-measure/result.json").write_text("kept")
    (directory / "attempts").write_text("in the way")
    done = subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True)
    assert done.returncode == 6
    assert (directory / "runs/00-measure/result.json").read_text() == "kept"
    assert (directory / "exit_status").read_text() == "6\n"


@pytest.mark.job
@pytest.mark.parametrize("setup", [(), ("set -eu",)])
@pytest.mark.parametrize("linked", [False, True])
def test_ranks_that_outlive_their_launcher_are_swept(tmp_path: Path, setup: tuple[str, ...], linked: bool) -> None:
    """Ranks are swept also if a setup line ends the script on any failure, or if the folder is reached by a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    rank = "exec -a dlio_hpc.core sleep 77"
    directory = _by_hand(
        _plan(tmp_path / ("link" if linked else "real"), shipped="null"), *setup,
        launcher=f"trap '' TERM\nsetsid bash -c '{rank}' &\necho $! > rank; wait $!",
    )  # fmt: skip
    script = subprocess.Popen(["bash", "job.sh"], cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until((directory / "rank").exists)
    rank_id = (directory / "rank").read_text().strip()
    until(lambda: "dlio_hpc.core" in Path("/proc", rank_id, "cmdline").read_text())
    script.terminate()
    script.wait(timeout=30)
    assert (directory / "exit_status").read_text() == "143\n"
    left = Path("/proc", rank_id, "cmdline")
    assert not left.exists() or not left.read_text(), "a zombie at most, that nobody has waited for"


@pytest.mark.job
@pytest.mark.parametrize("python", ["exit 3", "exec sleep 1000", None])
def test_what_clears_the_node_changes_no_exit_status(tmp_path: Path, python: str | None) -> None:
    """A job neither fails nor hangs because its interpreter does."""
    path = tmp_path / "python"
    if python is not None:
        path.write_text(f"#!/bin/sh\n{python}\n")
        path.chmod(0o755)
    made = _plan(tmp_path, shipped="null")
    directory = _by_hand(replace(made, site=replace(made.site, python=path)), launcher="exit 9")
    done = subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, (directory / "exit_status").read_text(), done.stderr) == (9, "9\n", "")


@pytest.mark.job
def test_nodes_are_cleared_after_a_run_that_failed_and_only_then(tmp_path: Path) -> None:
    """The launcher starts the program, and the program gets the directory of the job."""
    made = _plan(tmp_path, shipped="null")
    log = tmp_path / "log"
    recorder = tmp_path / "python"
    recorder.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    recorder.chmod(0o755)
    directory = _by_hand(replace(made, site=replace(made.site, python=recorder)), launcher="exit $(cat code)")
    for code in (0, 9):
        (directory / "code").write_text(str(code))
        done = subprocess.run(["bash", "job.sh"], cwd=directory, check=False, capture_output=True)
        assert done.returncode == code
        assert log.exists() == (code != 0)
    assert log.read_text() == f"-IS {jobscript.LEFTOVERS} {directory.resolve()}\n"
