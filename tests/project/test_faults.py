"""Commands end with their own exit codes after bugs and closed pipes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_hpc.base import errors
from tests.conftest import BIN, Run, ahead

_SHIPPED = "import dlio_hpc.config.shipped\ndlio_hpc.config.shipped.files = lambda folder: {}['npz3']\n"
_GENERATE = "import dlio_hpc.core.generate\ndlio_hpc.core.generate.generate = lambda *given: {}['npz3']\n"
_LAYOUT = "import dlio_hpc.files.filesystem\ndlio_hpc.files.filesystem.of = lambda path: {}['npz3']\n"


def _broken(folder: Path, change: str, module: str = "") -> dict[str, str]:
    """Return the environment of a Python in which programs with `module` in their command line are broken."""
    place = folder / "broken"
    place.mkdir()
    guard = f"import sys\nif {module!r} in ' '.join(sys.orig_argv):\n"
    (place / "sitecustomize.py").write_text(guard + "".join(f"    {line}\n" for line in change.splitlines()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DLIO_HPC_")}
    return kept | ahead(place)


def _called(folder: Path, environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / str(arguments[0])), *map(str, arguments[1:])]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("where", ["dlio-runs", "temporary"])
def test_a_bug_ends_with_its_own_code_and_a_file_for_its_report(tmp_path: Path, where: str) -> None:
    (tmp_path / where).mkdir()
    environment = _broken(tmp_path, _SHIPPED) | {"TMPDIR": str(tmp_path / "temporary")}
    done = _called(tmp_path, environment, "dlio-hpc", "--log-file", "log", "workloads", "--json")
    assert done.returncode == 70
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == ("Unexpected", 70)
    assert done.stderr == f"dlio-hpc: {error['message']}\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("dlio-hpc: a bug in dlio-hpc, please report it: KeyError: 'npz3'; ")
    path = Path(line.rpartition(" ")[2])
    assert path.parent == tmp_path / where
    text = path.read_text()
    assert "command    dlio-hpc workloads --json" in text
    assert "KeyError: 'npz3'" in text
    assert "Traceback" in text
    assert path.stat().st_mode & 0o077 == 0
    log = [line.split(" ", 3) for line in (tmp_path / "log").read_text().splitlines()]
    assert [kind for _, _, kind, *_ in log if kind != "traceback"] == ["start", "stderr", "end"]
    assert [rest[0] for _, _, kind, *rest in log if kind == "traceback"][-1] == "KeyError: 'npz3'"
    assert log[-1][3] == "exit code 70"


def test_a_bug_in_dlio_submit_is_no_failed_verdict_either(tmp_path: Path) -> None:
    done = _called(tmp_path, _broken(tmp_path, _SHIPPED), "dlio-submit", "demo", "--dry-run")
    assert done.returncode == 70
    Path(done.stderr.strip().rpartition(" ")[2]).unlink()


def test_a_broken_pipe_to_another_program_is_no_failed_verdict(tmp_path: Path) -> None:
    change = "import dlio_hpc.config.shipped\n\ndef files(folder): raise BrokenPipeError(32, 'Broken pipe')\n\n"
    done = _called(
        tmp_path, _broken(tmp_path, f"{change}dlio_hpc.config.shipped.files = files\n"), "dlio-hpc", "workloads"
    )
    assert done.returncode == 6
    assert "another program closed a pipe" in done.stderr


@pytest.mark.job
@pytest.mark.parametrize(
    ("change", "module", "says"),
    [
        (_GENERATE, "dlio_hpc.core", "00-generate failed on rank"),
        (_LAYOUT, "dlio_hpc.lustre", "ended because of a bug in dlio-hpc"),
    ],
)
def test_a_bug_in_the_job_is_the_jobs_exit_code(
    tmp_path: Path, small: Path, change: str, module: str, says: str
) -> None:
    environment = _broken(tmp_path, change, module)
    done = _called(tmp_path, environment, "dlio-submit", small, "-s", "local", "--ppn", 2, "--wait")
    assert done.returncode == 70, done.stderr
    assert says in done.stderr
    assert "a bug in dlio-hpc" in done.stderr
    assert "KeyError: 'npz3'" in done.stdout, "the last lines of job.err"
    (job,) = (tmp_path / "dlio-runs").glob("small-*")
    (archive,) = (tmp_path / "dlio-runs" / "archive").glob("small-*")
    assert "Traceback" in (job / "job.err").read_text()
    (tmp_path / "broken" / "sitecustomize.py").unlink()
    for path in (job, archive):
        assert _called(tmp_path, environment, "dlio-hpc", "report", path).returncode == 70


@pytest.mark.job
def test_a_log_that_cannot_be_judged_for_a_bug_costs_no_measurement(tmp_path: Path, run: Run, small: Path) -> None:
    job = run("dlio-submit", small, "-s", "local", "--ppn", 1, "--wait", "--json").job
    directory = Path(job["directory"])
    (directory / "runs" / "01-measure" / "darshan").mkdir()
    change = "import dlio_hpc.darshan.run_check\ndlio_hpc.darshan.run_check.judge = lambda *given: {}['npz3']\n"
    command = [sys.executable, "-m", "dlio_hpc.darshan", "judge", str(directory / "plan.json"), "--run", "1"]
    environment = _broken(tmp_path, change, "dlio_hpc.darshan")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert "Traceback" in done.stderr
    again = run("dlio-hpc", "report", directory, "--json")
    assert again.code == 0
    verdict = again.job["runs"][1]["darshan"]
    assert verdict["why_not"].startswith("the log could not be checked: a bug in dlio-hpc")


def test_what_the_system_and_frameworks_report_is_no_bug() -> None:
    class _OfMPI(RuntimeError):
        __module__ = "mpi4py.MPI"

    for fault in (OSError(28, "No space left on device"), MemoryError(), _OfMPI("rank 3 is gone")):
        assert type(errors.classified(fault)) is errors.InfrastructureError
        assert str(errors.classified(fault))
    assert errors.classified(KeyError("x")).exit_code == 70
    known = errors.ConfigError("no")
    assert errors.classified(known) is known
    codes = {kind.exit_code for kind in (errors.ConfigError, errors.InvalidRun, errors.Incomplete, errors.Unexpected)}
    assert {errors.kind_of(code).exit_code for code in range(256)} == codes | {6}


def _piped(folder: Path, command: str, into: str) -> tuple[int, str]:
    """Return exit code and stderr of a command whose output pipe is closed."""
    script = f"{{ {command}; echo $? > code; }} | {into}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    return int((folder / "code").read_text()), done.stderr


@pytest.mark.job
def test_a_reader_that_goes_away_changes_no_exit_code(tmp_path: Path, run: Run, small: Path) -> None:
    submit = f"'{BIN}/dlio-submit' {small} -s local --ppn 1 -S train.epochs=1 -S site.launcher.command=/bin/false"
    for into in ("head -1", "true"):
        assert _piped(tmp_path, f"{submit} --wait", into)[0] == 6
        assert _piped(tmp_path, f"{submit} --wait 2>&1", into)[0] == 6
    assert _piped(tmp_path, f"'{BIN}/dlio-hpc' report dlio-runs/archive/*.zst", "true")[0] == 6
    (tmp_path / "damaged.tar.zst").write_text("damaged")
    assert _piped(tmp_path, f"'{BIN}/dlio-hpc' archive verify absent damaged.tar.zst 2>&1", "true")[0] == 3
    assert _piped(tmp_path, f"'{BIN}/dlio-hpc' workloads absent 2>&1", "true")[0] == 2
    assert _piped(tmp_path, f"'{BIN}/dlio-hpc' workloads nothing --no-such-option 2>&1", "true")[0] == 2
    assert _piped(tmp_path, f"PYTHONUNBUFFERED=1 '{BIN}/dlio-hpc' workloads", "true") == (0, "")
    assert _piped(tmp_path, f"'{BIN}/dlio-hpc' --version", "true") == (0, "")


def test_a_run_without_a_result_shows_the_last_lines_of_job_err(tmp_path: Path, run: Run, small: Path) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text(
        "#!/bin/sh\ni=0; while [ $i -lt 3000 ]; do echo 'line '$i' of what it does at length' >&2; i=$((i+1)); done\n"
        "printf 'libfabric: \\033[31mno provider\\033[0m <found>\\n\\n' >&2; exit 9\n"
    )
    launcher.chmod(0o755)
    done = run("dlio-submit", small, "-s", "local", "-S", f"site.launcher.command={launcher}", "--wait")
    assert done.code == 6
    (job,) = (tmp_path / "dlio-runs").glob("small-*")
    (archive,) = (tmp_path / "dlio-runs" / "archive").glob("small-*")
    last = [f"line {number} of what it does at length" for number in range(2991, 3000)]
    for text in (done.out, run("dlio-hpc", "report", job).out, run("dlio-hpc", "report", archive).out):
        assert "No result of 00-generate, 01-measure; the last lines of job.err" in text
        assert "line 2990 " not in text
        assert "libfabric:  [31mno provider [0m <found>" in text
        assert all(line in text for line in last)
    for path in (job, archive):
        reported = run("dlio-hpc", "report", path, "--json", "--html", tmp_path / "page.html")
        assert reported.job["stderr"] == [*last, "libfabric:  [31mno provider [0m <found>"]
        page = (tmp_path / "page.html").read_text()
        assert "no provider [0m &lt;found&gt;" in page
        assert "the last lines of job.err" in page


def test_where_job_err_is_empty_the_last_lines_of_job_out_are_shown(tmp_path: Path, run: Run, small: Path) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text("#!/bin/sh\necho 'the fabric is down'; exit 9\n")
    launcher.chmod(0o755)
    done = run("dlio-submit", small, "-s", "local", "-S", f"site.launcher.command={launcher}", "--wait")
    assert (done.code, "the last lines of job.out" in done.out, "job.err" in done.out) == (6, True, False)
    (job,) = (tmp_path / "dlio-runs").glob("small-*")
    reported = run("dlio-hpc", "report", job, "--json").job
    assert reported["stdout"][-1] == "the fabric is down"
    assert "stderr" not in reported


def test_a_message_of_a_rank_is_shortened(tmp_path: Path, run: Run, small: Path) -> None:
    job = run("dlio-submit", small, "-s", "local", "--ppn", 1, "--wait", "--json").job
    folder = Path(job["directory"], "runs", "01-measure")
    (folder / "result.json").unlink()
    error = {"rank": 0, "host": "n1", "kind": "OSError", "message": "x" * 70_000 + " the cause", "exit_code": 6}
    (folder / "error.json").write_text(json.dumps(error))
    shown = run("dlio-hpc", "report", job["directory"])
    assert (shown.code, len(shown.out + shown.err) < 12_000) == (6, True)
    assert "... (66510 characters) ..." in "".join(shown.out.splitlines()).replace("  ", " ")


def test_a_full_disk_is_told_and_not_dropped() -> None:
    with open("/dev/full", "w") as full:
        command = [str(BIN / "dlio-hpc"), "workloads", "demo"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 6
    assert "No space left on device" in done.stderr


def test_the_package_is_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dlio_hpc", "workloads", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert {"name": "demo"}.items() <= next(
        one for one in json.loads(done.stdout)["workloads"] if one["name"] == "demo"
    ).items()
