"""A folder of archives of a group: permissions, signatures of decisions, and removal of old archives."""

import grp
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.files import group_sharing, rundir
from dlio_hpc.verdict import baselines, history, retention, signatures
from dlio_hpc.verdict.history_entry import Key
from dlio_hpc.verdict.retention import Retention
from tests.conftest import Run
from tests.files.test_other_users import _GROUP, _ME, _OTHER, _as, shared
from tests.support import nights
from tests.support.places import TESTS

_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="becoming another user takes root")
_KEYGEN = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
_ = shared


@pytest.fixture
def _group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of two users that are not in the system's files."""
    members = grp.struct_group(("storage", "x", _GROUP, []))
    monkeypatch.setattr("grp.getgrnam", lambda name: {"storage": members}[name])


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@_ROOT
@pytest.mark.usefixtures("_group")
def test_members_of_a_group_write_one_history(shared: Path) -> None:
    folder = shared / "data" / "archive"
    first, second = nights.entry(0, [100.0, 101.0]), nights.entry(1, [100.0, 101.0])

    def begin() -> None:
        group_sharing.share(folder, "storage")
        history.enter(folder, first)
        baselines.accept(folder, first, "quiet")
        rundir.write(folder / "job.tar.zst", b"")

    def go_on() -> None:
        history.enter(folder, second)
        baselines.accept(folder, second, "quieter")
        baselines.retire(folder, second.job, "noise")
        assert [entry.job for entry in history.entries(folder)] == [first.job, second.job]

    assert _as(_ME, begin, _GROUP, umask=0o077) == (0, "")
    assert _as(_OTHER, go_on, _GROUP, umask=0o077) == (0, "")
    assert _as(_ME, lambda: history.enter(folder, nights.entry(2, [1.0])), _GROUP, umask=0o077) == (0, "")
    assert _mode(folder / "job.tar.zst") == 0o640
    assert all(_mode(path) & stat.S_IRGRP for path in (folder / rundir.BASELINES).iterdir())
    code, message = _as(_OTHER, lambda: history.enter(folder, second))
    assert code
    assert "Permission denied" in message


@_ROOT
@pytest.mark.usefixtures("_group")
def test_sharing_changes_what_is_mine_and_names_the_rest(shared: Path) -> None:
    folder = shared / "data" / "archive"

    def begin() -> None:
        folder.mkdir()
        folder.chmod(0o777)
        history.enter(folder, nights.entry(0, [100.0]))

    assert _as(_ME, begin, _GROUP) == (0, "")
    assert _as(_OTHER, lambda: (folder / "theirs.tar.zst").write_bytes(b""), _GROUP, umask=0o077) == (0, "")

    def share() -> None:
        sharing = group_sharing.share(folder, "storage")
        assert folder / rundir.HISTORY in sharing.changed
        (other,) = sharing.others
        assert other == (f"number {_OTHER}", f"chgrp storage '{folder}/theirs.tar.zst' && "
                                             f"chmod 640 '{folder}/theirs.tar.zst'")  # fmt: skip
        assert group_sharing.share(folder, "storage").changed == ()

    assert _as(_ME, share, _GROUP) == (0, "")
    assert _mode(folder / rundir.HISTORY) == 0o664
    code, message = _as(_ME, lambda: group_sharing.share(folder, "storage"))
    assert (code, "you are not a member" in message) == (2, True)


@_ROOT
@pytest.mark.usefixtures("_group")
def test_sharing_follows_no_link(shared: Path, tmp_path: Path) -> None:
    """A member of the group plants links to what others may not read. The rest of the archives is shared."""
    folder, private = shared / "data" / "archive", tmp_path / "private"
    private.mkdir(mode=0o700)
    secret, outer = private / "id_key", tmp_path / "outer"
    for path in (secret, outer):
        path.write_text("k")
        path.chmod(0o600)
    group_sharing.share(folder, "storage")
    (folder / rundir.ENTRIES).rmdir()
    (folder / rundir.ENTRIES).symlink_to(private)
    (folder / "a.tar.zst").symlink_to(secret)
    os.link(outer, folder / "b.tar.zst")
    (folder / "c.tar.zst").touch(mode=0o600)
    os.mkfifo(folder / "pipe")
    before = [(path.stat().st_mode, path.stat().st_gid) for path in (private, secret, outer)]
    sharing = group_sharing.share(folder, "storage")
    assert [(path.stat().st_mode, path.stat().st_gid) for path in (private, secret, outer)] == before
    assert sharing.changed == (folder / "c.tar.zst",)
    assert [line.split(",")[0] for line in sharing.refused] == [
        f"{folder}/a.tar.zst is a link", f"{folder}/b.tar.zst has 2 hard links", f"{folder}/{rundir.ENTRIES} is a link",
    ]  # fmt: skip
    assert ((folder / "c.tar.zst").stat().st_mode & 0o777, (folder / "c.tar.zst").stat().st_gid) == (0o640, _GROUP)


@_ROOT
@pytest.mark.usefixtures("_group")
@pytest.mark.parametrize("name", [rundir.BASELINES, "a.tar.zst"])
def test_a_link_that_is_put_in_place_during_sharing_is_not_followed(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Another user replaces the file or folder between two looks at it."""
    folder, outside = shared / "data" / "archive", tmp_path / name
    folder.mkdir()
    if name == rundir.BASELINES:
        outside.mkdir(mode=0o700)
        (folder / name).mkdir()
    else:
        outside.write_text("k")
        outside.chmod(0o600)
        (folder / name).write_text("archive")
    look = os.stat

    def swapped(path: Any, **options: Any) -> os.stat_result:
        status = look(path, **options)
        if path == name and not (folder / name).is_symlink():
            (folder / name).rename(folder / ".old")
            (folder / name).symlink_to(outside)
        return status

    before = look(outside).st_mode
    monkeypatch.setattr("os.stat", swapped)
    sharing = group_sharing.share(folder, "storage")
    monkeypatch.undo()
    assert (outside.stat().st_mode, outside.stat().st_gid) == (before, os.getegid())
    assert any(line.startswith(f"{folder}/{name} is a link") for line in sharing.refused)
    assert folder / rundir.ENTRIES in sharing.changed


@_ROOT
@pytest.mark.usefixtures("_group")
def test_a_link_is_not_shared_as_a_folder_of_archives(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "al").symlink_to("real")
    with pytest.raises(ConfigError, match=f"al is a link or not a folder; .* give that path: {tmp_path}/real"):
        group_sharing.share(tmp_path / "al", "storage")
    assert (_mode(tmp_path / "real"), list((tmp_path / "real").iterdir())) == (0o755, [])


@_ROOT
@pytest.mark.usefixtures("_group")
def test_links_of_others_above_the_folder_are_not_followed(tmp_path: Path) -> None:
    """Links above the folder are followed if this user or root made them, but not if another user did."""
    (tmp_path / "private" / "al").mkdir(parents=True, mode=0o700)
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "mine").symlink_to("../private")
    (tmp_path / "outer" / "theirs").symlink_to(tmp_path / "outer" / "mine")
    os.lchown(tmp_path / "outer" / "theirs", 12345, -1)
    before = _mode(tmp_path / "private" / "al")
    for last in ("al", "new"):
        with pytest.raises(ConfigError, match=f"outer/theirs is a link of another user, .* to {tmp_path}/private$"):
            group_sharing.share(tmp_path / "outer" / "theirs" / last, "storage")
    assert (_mode(tmp_path / "private" / "al"), len(list((tmp_path / "private").iterdir()))) == (before, 1)
    group_sharing.share(tmp_path / "outer" / "mine" / "al", "storage")
    assert _mode(tmp_path / "private" / "al") == before | stat.S_ISGID | 0o070
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        group_sharing.share(tmp_path / "round" / "al", "storage")


@_ROOT
@pytest.mark.usefixtures("_group")
def test_decisions_and_the_history_are_not_written_through_links(shared: Path, tmp_path: Path) -> None:
    folder, private = shared / "data" / "archive", tmp_path / "private"
    private.mkdir(mode=0o700)
    group_sharing.share(folder, "storage")
    (folder / rundir.BASELINES).rmdir()
    (folder / rundir.BASELINES).symlink_to(private)
    with pytest.raises(ConfigError, match="baselines is a link, which dlio-hpc never makes"):
        baselines.accept(folder, nights.entry(0, [100.0]), "quiet")
    (private / "empty").write_bytes(b"")
    (folder / rundir.HISTORY).symlink_to(private / "empty")
    with pytest.raises(ConfigError, match="is a symbolic link, which is not followed"):
        history.enter(folder, nights.entry(0, [100.0]))
    assert (_mode(private), (private / "empty").read_bytes(), len(list(private.iterdir()))) == (0o700, b"", 1)


def test_an_unknown_group_is_named(tmp_path: Path, run: Run) -> None:
    done = run("dlio-hpc", "archive", "share", tmp_path, "--group", "no-such-group")
    assert done.code == 2
    assert "--group no-such-group: there is no such group here; the command id lists yours" in done.err


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keys of alice and mallory; the facility allows alice to sign."""
    for name in ("alice", "mallory"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name)]
        subprocess.run(command, check=True)
    facility = tmp_path / "facility"
    facility.mkdir()
    public = (tmp_path / "alice.pub").read_text()
    (facility / signatures.ALLOWED).write_text(f'alice@site namespaces="dlio-hpc" {public}')
    monkeypatch.setenv("DLIO_HPC_SITE_PATH", str(facility))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@_KEYGEN
def test_only_signed_decisions_count_where_signers_are_named(tmp_path: Path, keys: Path) -> None:
    first, second = nights.entry(0, [100.0]), nights.entry(1, [100.0])
    with pytest.raises(ConfigError, match=r"must be signed here, because .*allowed_signers exists: .*--sign"):
        baselines.accept(tmp_path, first, "quiet")
    (one,) = baselines.accept(tmp_path, first, "quiet", key=keys / "alice")
    with pytest.raises(ConfigError, match=r"mallory: this key is not in .*allowed_signers, so the decision would be"):
        baselines.accept(tmp_path, second, "quieter", key=keys / "mallory")
    (facility := keys / "facility" / signatures.ALLOWED).rename(keys / "away")
    baselines.accept(tmp_path, second, "quieter", key=keys / "mallory")
    (keys / "away").rename(facility)
    decisions = baselines.read(tmp_path)
    assert baselines.active(decisions) == (one,)
    assert decisions.signers == {one.id: "alice@site"}
    assert [second.job in line and "no valid signature" in line for line in decisions.refused] == [True]
    baselines.retire(tmp_path, one.id, "noise", keys / "alice")
    assert baselines.active(baselines.read(tmp_path)) == ()


@_KEYGEN
@pytest.mark.parametrize("content", ["", "garbage\n", "# alice ssh-ed25519 AAAA\n"])
def test_a_file_of_signers_without_a_key_is_an_error(tmp_path: Path, keys: Path, content: str) -> None:
    (keys / "facility" / signatures.ALLOWED).write_text(content)
    with pytest.raises(ConfigError, match="names no key"):
        baselines.read(tmp_path)


@_KEYGEN
def test_a_signed_decision_that_was_changed_does_not_count(tmp_path: Path, keys: Path) -> None:
    (one,) = baselines.accept(tmp_path, nights.entry(0, [100.0]), "quiet", key=keys / "alice")
    path = tmp_path / rundir.BASELINES / f"{one.id}.json"
    path.write_text(path.read_text().replace('"samples_per_s": 100.0', '"samples_per_s": 10.0'))
    decisions = baselines.read(tmp_path)
    assert decisions.accepted == ()
    assert len(decisions.refused) == 1


def _states(folder: Path) -> dict[str, str]:
    """Return the state of each baseline of a folder, by the job."""
    return {one.accepted.group.job: one.state for one in baselines.baselines(baselines.read(folder))}


def _key(workload: str) -> Key:
    return structs.replace(nights.KEY, workload=workload)


def _copied(path: Path, target: Path) -> None:
    """Copy a decision with its signature, as a member of the group without a key can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", signatures.SUFFIX):
        shutil.copy(f"{path}{suffix}", f"{target}{suffix}")


@_KEYGEN
@pytest.mark.parametrize("name", ["{id}.retired.json", "other-000000.json", "{id}x.json"])
def test_a_signature_counts_for_its_own_decision_alone(tmp_path: Path, keys: Path, name: str) -> None:
    (one,) = baselines.accept(tmp_path, nights.entry(0, [100.0]), "quiet", key=keys / "alice")
    folder = tmp_path / rundir.BASELINES
    _copied(folder / f"{one.id}.json", folder / name.format(id=one.id))
    decisions = baselines.read(tmp_path)
    assert baselines.active(decisions) == (one,)
    assert ["is a copy of" in line for line in decisions.refused] == [True]


@_KEYGEN
def test_a_signed_retirement_is_none_of_another_baseline(tmp_path: Path, keys: Path) -> None:
    first, second = (
        baselines.accept(tmp_path, nights.entry(number, [100.0], _key(name)), "quiet", key=keys / "alice")[0]
        for number, name in enumerate(("a", "b"))
    )
    baselines.retire(tmp_path, first.id, "noise", keys / "alice")
    folder = tmp_path / rundir.BASELINES
    _copied(folder / f"{first.id}.retired.json", folder / f"{second.id}.retired.json")
    decisions = baselines.read(tmp_path)
    assert baselines.active(decisions) == (second,)
    assert [f"is a copy of the decision to retire {first.id}" in line for line in decisions.refused] == [True]


@_KEYGEN
@pytest.mark.parametrize("whole", [False, True])
def test_a_signed_decision_does_not_count_in_another_archive(tmp_path: Path, keys: Path, whole: bool) -> None:
    (one,) = baselines.accept(tmp_path / "a", nights.entry(0, [100.0]), "quiet", key=keys / "alice")
    if whole:
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    else:
        path = Path(rundir.BASELINES, f"{one.id}.json")
        _copied(tmp_path / "a" / path, tmp_path / "b" / path)
    decisions = baselines.read(tmp_path / "b")
    assert decisions.accepted == ()
    assert [f"it was made for the archives in {tmp_path}/a" in line for line in decisions.refused] == [True]
    (tmp_path / "link").symlink_to("a")
    assert baselines.active(baselines.read(tmp_path / "link")) == (one,), "the same folder by another path"


@_KEYGEN
@pytest.mark.parametrize("removed", ["*.retired.json*", "*.retired.json.sig"])
def test_a_retirement_that_is_removed_still_retires(tmp_path: Path, keys: Path, removed: str) -> None:
    """Whoever has seen the retirement has a copy of it."""
    (one,) = baselines.accept(tmp_path, nights.entry(0, [100.0]), "quiet", key=keys / "alice")
    baselines.retire(tmp_path, one.id, "noise", keys / "alice")
    for path in (tmp_path / rundir.BASELINES).glob(removed):
        path.unlink()
    decisions = baselines.read(tmp_path)
    assert [(one.accepted.id, one.state) for one in baselines.baselines(decisions)] == [(one.id, "retired")]
    assert len(decisions.refused) == 1
    assert f"{one.id}.retired.json" in decisions.refused[0]


@_KEYGEN
def test_no_older_baseline_takes_the_place_of_one_that_is_removed(tmp_path: Path, keys: Path) -> None:
    for number in (0, 1):
        baselines.accept(tmp_path, nights.entry(number, [100.0]), "quiet", key=keys / "alice")
    for path in (tmp_path / rundir.BASELINES).glob("nightly-001-*"):
        path.unlink()
    assert _states(tmp_path) == {"nightly-000": "retired"}
    assert "no older baseline takes its place" in baselines.read(tmp_path).refused[0]


@_KEYGEN
@pytest.mark.parametrize("removed", ["*.retired.json*", "*.retired.json.sig"])
def test_a_later_decision_shows_that_one_is_missing(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """A user who has never seen the retirement knows of it from a decision that was made after it."""
    (one,) = baselines.accept(tmp_path, nights.entry(0, [100.0]), "quiet", key=keys / "alice")
    baselines.retire(tmp_path, one.id, "noise", keys / "alice")
    (other,) = baselines.accept(tmp_path, nights.entry(1, [100.0], _key("other")), "quiet", key=keys / "alice")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))
    for path in (tmp_path / rundir.BASELINES).glob(removed):
        path.unlink()
    decisions = baselines.read(tmp_path)
    assert baselines.active(decisions) == (other,)
    assert _states(tmp_path) == {"nightly-000": "retired", "nightly-001": "active"}
    assert len(decisions.refused) == 1


@_KEYGEN
def test_signed_decisions_of_earlier_versions_do_not_count(tmp_path: Path, keys: Path) -> None:
    """Their signatures cover neither the kind nor the archives, so a copy cannot be told from the original."""
    folder = tmp_path / rundir.BASELINES
    folder.mkdir()
    old = shutil.copy(TESTS / "carried" / "first_schema.json", folder)
    signatures.sign(Path(old), keys / "alice")
    decisions = baselines.read(tmp_path)
    assert decisions.accepted == ()
    assert [
        "an earlier version signed it" in line and "make the decision again" in line for line in decisions.refused
    ] == [True]


@_KEYGEN
def test_a_decision_may_be_signed_later(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLIO_HPC_SITE_PATH")
    (one,) = baselines.accept(tmp_path, nights.entry(0, [100.0]), "quiet")
    monkeypatch.setenv("DLIO_HPC_SITE_PATH", str(keys / "facility"))
    assert baselines.active(baselines.read(tmp_path)) == ()
    signatures.sign(tmp_path / rundir.BASELINES / f"{one.id}.json", keys / "alice")
    assert baselines.active(baselines.read(tmp_path)) == (one,)


@_KEYGEN
def test_a_key_that_cannot_sign_is_named_and_nothing_is_written(tmp_path: Path, keys: Path) -> None:
    (keys / "text").write_text("hello")
    (keys / "broken").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nhello\n")
    for name, reason in (
        ("none", "there is no such file"), ("text", "the file is not an SSH key"),
        ("broken", "ssh-keygen cannot sign with this key"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=rf"--sign .*{name}: {reason}"):
            baselines.accept(tmp_path, nights.entry(0, [100.0]), "quiet", key=keys / name)
    assert list((tmp_path / rundir.BASELINES).iterdir()) == []


@_KEYGEN
def test_the_commands_show_who_signed(tmp_path: Path, run: Run, keys: Path) -> None:
    facility = {"DLIO_HPC_SITE_PATH": str(keys / "facility")}
    baselines.accept(tmp_path, nights.entry(0, [100.0]), "quiet", key=keys / "alice")
    shown = run("dlio-hpc", "baseline", "show", "nightly-000", "--archive", tmp_path, **facility)
    assert "signature            valid, of alice@site" in shown.out
    as_json = run("dlio-hpc", "baseline", "show", "nightly-000", "--archive", tmp_path, "--json", **facility)
    assert as_json.json["signed_by"] == "alice@site"
    (path,) = (tmp_path / rundir.BASELINES).glob("*.sig")
    path.unlink()
    listed = run("dlio-hpc", "baseline", "list", "--archive", tmp_path, **facility)
    assert "is ignored: it has no valid signature of a key in" in listed.err
    shown = run("dlio-hpc", "baseline", "show", "nightly-000", "--archive", tmp_path)
    assert "not checked: there is no file allowed_signers" in shown.out


def _old(number: int, days: float, **rest: Any) -> Any:
    """A job that ended some days ago."""
    import time

    ended = units.utc(time.time() - 86400 * days)
    return structs.replace(nights.entry(number, [100.0]), ended=ended, **rest)


def _archived(folder: Path, *jobs: Any) -> None:
    """Enter jobs into the history as if read from their archives."""
    for job in jobs:
        (folder / f"{job.job}.tar.zst").write_bytes(b"not read")
        history.enter(folder, job)


def test_old_archives_are_removed_and_the_history_stays(tmp_path: Path) -> None:
    jobs = [_old(0, 400), _old(1, 300), _old(2, 200), _old(3, 100), _old(4, 1)]
    _archived(tmp_path, *jobs)
    baselines.accept(tmp_path, jobs[1], "quiet")
    exported = [job.job for job in history.entries(tmp_path)]
    choice = retention.choose(tmp_path, Retention(150, 1))
    assert [path.name for path, _ in choice.removed] == ["nightly-000.tar.zst", "nightly-002.tar.zst"]
    assert choice.kept == {"active baseline": 1, "recent": 2}
    retention.remove(tmp_path, choice)
    assert not (tmp_path / "nightly-000.tar.zst").exists()
    assert [job.job for job in history.entries(tmp_path)] == exported
    for path in tmp_path.glob("*.tar.zst"):
        path.unlink()  # this test's archives cannot be read again
    history.rebuild(tmp_path)
    assert history.entries(tmp_path) == (jobs[0], jobs[2])


def test_an_archive_that_cannot_be_read_is_not_the_newest_that_is_kept(tmp_path: Path) -> None:
    _archived(tmp_path, _old(0, 400), _old(1, 300), _old(2, 200))
    (tmp_path / "nightly-002.tar.zst").write_bytes(b"damaged since then")
    choice = retention.choose(tmp_path, Retention(0, 1))
    assert [path.name for path, _ in choice.removed] == ["nightly-000.tar.zst"]
    assert choice.kept == {"newest of a measurement": 1, "unreadable": 1}
    bad = structs.replace(nights.measurement(0, 9.0), fault="it went wrong")
    _archived(tmp_path, _old(3, 100, measurements=(bad,)))
    choice = retention.choose(tmp_path, Retention(0, 1))
    assert [path.name for path, _ in choice.removed] == ["nightly-000.tar.zst", "nightly-003.tar.zst"]


def test_a_job_whose_entry_cannot_be_read_stays_in_the_history(tmp_path: Path) -> None:
    jobs = [_old(0, 400, job="night.v1-000"), _old(1, 300)]
    _archived(tmp_path, *jobs)
    retention.remove(tmp_path, retention.choose(tmp_path, Retention(0, 0)))
    damaged = tmp_path / rundir.ENTRIES / "night.v1-000.json"
    damaged.write_bytes(damaged.read_bytes()[:200])
    (note,) = history.rebuild(tmp_path).notes
    assert str(damaged) in note
    assert history.entries(tmp_path) == tuple(jobs)
    damaged.unlink()
    history.rebuild(tmp_path)
    assert history.entries(tmp_path) == (jobs[1],)


def test_the_newest_of_each_measurement_and_whole_studies_are_kept(tmp_path: Path) -> None:
    other = structs.replace(nights.KEY, nodes=64)
    jobs = [
        _old(0, 400), _old(1, 300), _old(2, 200, measurements=(nights.measurement(0, 9.0, other),)),
        _old(3, 390, study="nightly-002"),
    ]  # fmt: skip
    _archived(tmp_path, *jobs)
    (tmp_path / "foreign.tar.zst").write_bytes(b"of nobody")
    choice = retention.choose(tmp_path, Retention(30, 1))
    assert [path.name for path, _ in choice.removed] == ["nightly-000.tar.zst"]
    assert choice.kept == {"newest of a measurement": 3, "unreadable": 1}
    assert retention.choose(tmp_path, Retention(30, 3)).removed == ()


def test_an_archive_that_came_back_takes_precedence(tmp_path: Path) -> None:
    jobs = [_old(0, 400), _old(1, 1)]
    _archived(tmp_path, *jobs)
    retention.remove(tmp_path, retention.choose(tmp_path, Retention(30, 1)))
    assert [path.name for path in history._archives(tmp_path)] == ["nightly-001.tar.zst", "nightly-000.json"]
    (tmp_path / "nightly-000.tar.zst").write_bytes(b"again")
    assert [path.name for path in history._archives(tmp_path)] == ["nightly-000.tar.zst", "nightly-001.tar.zst"]


def test_prune_lists_first_and_says_what_is_kept(tmp_path: Path, run: Run) -> None:
    _archived(tmp_path, _old(0, 400), _old(1, 1))
    command = ("dlio-hpc", "archive", "prune", tmp_path, "--keep", "26w")
    listed = run(*command, "--dry-run")
    assert listed.code == 0
    assert "nightly-000.tar.zst: would be removed; its job ended" in listed.out
    assert (tmp_path / "nightly-000.tar.zst").exists()
    done = run(*command, "--json")
    assert done.json == {
        "removed": [str(tmp_path / "nightly-000.tar.zst")], "bytes": 8, "kept": {"recent": 1}, "is_dry_run": False,
        "schema": 1,
    }  # fmt: skip
    assert json.loads((tmp_path / rundir.ENTRIES / "nightly-000.json").read_bytes())["job"] == "nightly-000"
    assert "freed 0 B in 0 archives; kept: 1 recent" in run(*command).out
    assert "such as 180d" in run("dlio-hpc", "archive", "prune", tmp_path, "--keep", "180").err


def test_signatures_are_not_silently_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlio_hpc.config.search_path.folders", lambda: [tmp_path])
    assert signatures.allowed() is None
    (tmp_path / signatures.ALLOWED).symlink_to("nowhere")
    with pytest.raises(ConfigError, match="allowed_signers is not a file"):
        signatures.allowed()


def test_a_deeply_nested_decision_hides_no_history(tmp_path: Path) -> None:
    _archived(tmp_path, _old(0, 400))
    (tmp_path / rundir.BASELINES).mkdir()
    (tmp_path / rundir.BASELINES / "x.json").write_text("[" * 300_000)
    (note,) = history.take_in(tmp_path).notes
    assert "x.json is not a record of a baseline" in note
    assert len(history.entries(tmp_path)) == 1
