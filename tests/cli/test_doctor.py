"""dlio-hpc doctor tells about an installation, and no secrets."""

from pathlib import Path

import pytest

from dlio_hpc import __version__
from tests.conftest import BIN, Run
from tests.support import studies

_SECRETS = {
    "DLIO_HPC_API_TOKEN": "t0ps3cret", "DLIO_HPC_ACCOUNT": "proj-42", "DARSHAN_SECRET": "hush",
    "DLIO_HPC_PROXY": "http://me:pa55word@proxy:80/x", "AWS_ACCESS_KEY_ID": "AKIA",
}  # fmt: skip


def test_an_installation_is_described(run: Run, tmp_path: Path) -> None:
    report = run("dlio-hpc", "doctor", "-s", "local", "--json").json
    assert report["dlio-hpc"]["version"] == __version__
    assert report["packages"]["numpy"][0].isdigit()
    assert report["site"]["scheduler"] == "local"
    assert "MPI" in report["MPI"]["library of the ranks"].upper()
    assert "HYDRA" in report["MPI"]["launcher"].upper()
    assert str(tmp_path) in report["file systems"]["runs"]
    assert "free, writable" in report["file systems"]["data"]
    assert report["jobs with errors"] == report["bug reports"] == {}


def test_no_secrets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dlio-hpc").mkdir()
    (tmp_path / "dlio-hpc" / "defaults.yaml").write_text("account: proj-43\nqueue: debug\n")
    done = run("dlio-hpc", "doctor", "-s", "local", XDG_CONFIG_HOME=str(tmp_path), **_SECRETS)
    assert done.code == 0, done.err
    for word in (*_SECRETS.values(), "pa55word", "proj-43"):
        assert word not in done.out
    for name in ("DLIO_HPC_API_TOKEN", "DLIO_HPC_ACCOUNT", "DARSHAN_SECRET"):
        assert f"{name} " in done.out
    assert "http://proxy:80/x" in done.out
    assert "debug, from" in done.out
    assert "AWS" not in done.out


def test_recent_errors_are_named(run: Run, tmp_path: Path) -> None:
    made = studies.make(tmp_path / "dlio-runs", studies.asked())
    studies.write(made, lambda *_: None, "failed")
    bug = tmp_path / "dlio-runs" / "dlio-hpc-bug-20261121-100000-1.txt"
    bug.write_text("command    dlio-hpc report x\n\nTraceback\nKeyError: 'x'\n")
    broken = tmp_path / "dlio-runs" / "broken"
    broken.mkdir()
    (broken / "job.json").write_text("{")
    report = run("dlio-hpc", "doctor", "-s", "local", "--json").json
    assert "ended as failed" in report["jobs with errors"]["tune"]
    assert report["jobs with errors"]["broken"].startswith("exit code ")
    assert report["bug reports"] == {"dlio-runs/" + bug.name: "KeyError: 'x'"}


@pytest.mark.parametrize("name", ["no-such-site", "theta"])
def test_a_part_that_cannot_be_told_says_why(run: Run, name: str) -> None:
    # Without the commands of a batch system that this machine may have.
    done = run("dlio-hpc", "doctor", "-s", name, "--json", PATH=str(BIN))
    assert done.code == 0, done.err
    assert done.json["dlio-hpc"]["version"] == __version__
    if name == "theta":
        assert done.json["site"]["batch system"].startswith("unknown: ")
    else:
        assert "no site 'no-such-site'" in done.json["site"]["unknown"]
