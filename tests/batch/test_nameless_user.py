"""A user without a name and without a home, as in a container whose image does not list the user, can do everything."""

import getpass
import json
import os
import pwd
from pathlib import Path

import pytest

from dlio_hpc.base import command
from dlio_hpc.base.command import Answer
from dlio_hpc.batch import preflight
from dlio_hpc.batch.schedulers import cobalt, common, pbs, slurm
from dlio_hpc.config import search_path, shipped
from dlio_hpc.files import user_folders
from dlio_hpc.verdict import decision_copies
from tests.conftest import Run


def _no_name(number: int) -> pwd.struct_passwd:
    raise KeyError(f"getpwuid(): uid not found: {number}")


@pytest.fixture(autouse=True)
def nameless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert tmp_path.exists(), "pytest names its folder after the user"
    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", _no_name)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the commands of the batch system that are run. Their answers are empty."""
    commands: list[tuple[str, ...]] = []

    def ask(*arguments: str, **_: object) -> Answer:
        commands.append(arguments)
        return Answer(0, "", "")

    monkeypatch.setattr(command, "ask", ask)
    return commands


def test_slurm_is_asked_for_the_jobs_of_a_number(asked: list[tuple[str, ...]]) -> None:
    assert slurm.SLURM.queues("") == []
    assert asked[0][-2:] == ("-u", str(os.getuid()))


def test_pbs_and_cobalt_are_not_asked_for_the_jobs_of_a_number(asked: list[tuple[str, ...]]) -> None:
    assert (pbs.PBS.queues(""), cobalt.COBALT.queues(""), asked) == ([], [], [])


def test_newer_pythons_raise_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr(getpass, "getuser", fails)
    assert (common.user(), common.user_name()) == (str(os.getuid()), None)


@pytest.mark.parametrize(
    ("name", "options"), [("polaris", ("-q", "debug-scaling", "-A", "p", "-t", "30m")), ("slurm", ())]
)
def test_jobs_are_submitted(run: Run, tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    answers = {"qsub": "12.server", "qselect": "", "sbatch": "12", "squeue": ""}
    for program, answer in answers.items():
        (commands / program).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (commands / program).chmod(0o755)
    profile = tmp_path / "site.yaml"
    given = (shipped.root() / "site_profiles" / f"{name}.yaml").read_text()
    profile.write_text(given.replace("limits: {nodes: null, walltime: null, jobs: null}", "limits: {jobs: 5}"))
    path = f"{commands}:{os.environ['PATH']}"
    done = run("dlio-submit", "demo", "-s", profile, "-N", 2, *options, "-d", "d", "--no-darshan", "--json", PATH=path)
    assert done.code == 0, done.err
    assert done.job["batch_id"].startswith("12")


def test_there_are_no_folders_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~" / ".config" / "dlio-hpc").mkdir(parents=True)
    assert user_folders.of_user("XDG_CONFIG_HOME", ".config") is None
    assert [folder for folder in search_path.folders() if "~" in str(folder)] == []
    decision_copies.keep(tmp_path, tmp_path / "decision.json", b"")
    assert list(decision_copies.valid(tmp_path, tmp_path / "allowed")) == []


def test_a_group_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_group(path: Path) -> str:
        raise KeyError(f"getgrgid(): gid not found: {path}")

    monkeypatch.setattr(Path, "group", no_group)
    assert preflight._group(tmp_path) == str(tmp_path.stat().st_gid)


def test_a_job_runs_and_its_user_accepts_it_as_a_baseline(run: Run, small: Path, tmp_path: Path) -> None:
    done = run("dlio-submit", small, "-s", "local", "--ppn", 1, "--wait", "--json")
    assert done.code == 0, done.err
    directory = done.job["directory"]
    for verb in ("status", "wait", "collect", "report"):
        assert run("dlio-hpc", verb, directory).code == 0, verb
    accepted = run("dlio-hpc", "baseline", "accept", directory, "--message", "first", "--force")
    assert accepted.code == 0, accepted.err
    (decision,) = (tmp_path / "dlio-runs" / "archive" / "baselines").glob("*.json")
    assert json.loads(decision.read_bytes())["who"].startswith(f"{os.getuid()}@")
    assert run("dlio-hpc", "history").code == 0
    assert run("dlio-hpc", "site-report", "site").code == 0
    assert run("dlio-hpc", "doctor").code == 0
    assert not (tmp_path / "~").exists()


def test_a_prefix_in_a_home_is_refused(run: Run) -> None:
    done = run("dlio-hpc", "install-site", "~/software")
    assert done.code == 2
    assert "the home folder ~ is not known" in done.err
