"""Quotas as quota(1) prints them. The script prints what quota.c of quota-tools prints with -u -g -w -p -v -f."""

import os
import stat
from pathlib import Path

import pytest

from dlio_hpc.base.command import Unanswered
from dlio_hpc.batch import preflight
from dlio_hpc.files import quotas
from dlio_hpc.files.quotas import Quota

_HEADING = "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
_KEPT = (
    f"Disk quotas for user ann (uid 1000): \n{_HEADING}"
    "/dev/mapper/scratch-data  120000* 100000  200000 1767225600      21     500    1000       0\n"
    f"Disk quotas for group staff (gid 50): \n{_HEADING}"
    "/dev/mapper/scratch-data       4       0       0       0    1001*   1000       0 1767225600\n"
)
_NONE = "quota: Mountpoint (or device) /data not found or has no quota enabled.\n"


def _answers(folder: Path, monkeypatch: pytest.MonkeyPatch, out: str, err: str = "", code: int = 0) -> None:
    """Put a quota command on PATH that gives this answer if it is called as expected."""
    (folder / "out").write_text(out)
    (folder / "err").write_text(err)
    script = folder / "quota"
    script.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "-ugwpv -f" ] || exit 9\ncat {folder}/out; cat {folder}/err >&2; exit {code}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_quotas_of_a_user_and_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1 because limits are exceeded. A soft limit counts where there is no hard one."""
    _answers(tmp_path, monkeypatch, _KEPT, code=1)
    assert quotas.of_process("/data") == {
        ("u", 1000): Quota(120000 * 1024, 200000 * 1024, 21, 1000),
        ("g", 50): Quota(4 * 1024, 0, 1001, 1000),
    }


def test_no_quota_and_no_answer_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(tmp_path, monkeypatch, "", _NONE, 1)
    assert quotas.of_process("/data") == {}
    _answers(tmp_path, monkeypatch, "", "quota: error while getting quota from server: Connection refused\n", 1)
    with pytest.raises(Unanswered, match=r"quota -ugwpv -f /data ended with 1: .*Connection refused"):
        quotas.of_process("/data")


@pytest.mark.parametrize(
    ("size", "files", "verdicts", "text"),
    [
        (80_000 * 1024, 979, ["ok", "ok"], "user ann: 117.2 MiB used, 195.3 MiB"),
        (80_001 * 1024, 0, ["fault", "ok"], "user ann: 122880000 of 204800000 bytes are used; the job needs 81921024"),
        (0, 980, ["fault", "ok"], "user ann: 21 of 1000 files are used; the job needs 980 more"),
    ],
)
def test_a_job_must_fit_into_the_quotas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, files: int, verdicts: list[str], text: str
) -> None:
    _answers(tmp_path, monkeypatch, _KEPT.partition("Disk quotas for group")[0], code=1)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(preflight, "user", lambda: "ann")
    findings = list(preflight._posix_quotas(preflight._Needs(size, files), "/data", tmp_path, "xfs"))
    assert [finding.verdict for finding in findings] == verdicts
    assert findings[0].text.startswith(text)
    assert findings[1].text.endswith(": no quota")


def test_a_missing_command_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = preflight._posix_quotas(preflight._Needs(0, 0), "/data", tmp_path, "nfs")
    assert (finding.verdict, finding.untried) == ("note", "quota on nfs")
    assert finding.text.startswith("not checked on nfs: quota is not on PATH")
