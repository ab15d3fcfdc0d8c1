import errno
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.base.errors import ConfigError, Incomplete, InvalidRun
from dlio_hpc.files import archive


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "job-1"
    (folder / "runs" / "01-measure").mkdir(parents=True)
    (folder / "plan.json").write_text("{}\n")
    (folder / "job.sh").write_text("#!/bin/bash\n")
    (folder / "job.sh").chmod(0o755)
    (folder / "job.out").write_bytes(b"")
    (folder / "runs" / "01-measure" / "result.json").write_text('{"a": 1}\n' * 50)
    return folder


@pytest.fixture
def packed(job: Path, tmp_path: Path) -> Path:
    target = tmp_path / "archive" / "job-1.tar.zst"
    archive.create(job, target)
    return target


def test_a_fresh_archive_is_sound_and_holds_every_file(job: Path, packed: Path) -> None:
    assert archive.faults(packed) == []
    assert sorted(name for name, _ in archive.entries(packed)) == [
        "job-1/job.out", "job-1/job.sh", "job-1/manifest.json", "job-1/plan.json", "job-1/runs/01-measure/result.json",
    ]  # fmt: skip
    assert archive.read(packed, lambda name: name == "plan.json") == {"plan.json": b"{}\n"}
    assert os.listdir(packed.parent) == [packed.name]
    manifest = json.loads((job / "manifest.json").read_bytes())
    assert set(manifest["files"]) == {"job.out", "job.sh", "plan.json", "runs/01-measure/result.json"}


@pytest.mark.parametrize(("folder_mode", "group_reads"), [(0o755, False), (0o2770, True)])
def test_the_group_reads_archives_of_private_jobs_in_a_shared_folder(
    job: Path, tmp_path: Path, folder_mode: int, group_reads: bool
) -> None:
    """A user with umask 077 archives into the folder of a group."""
    folder = tmp_path / "archive"
    folder.mkdir()
    folder.chmod(folder_mode)
    (job / "plan.json").chmod(0o600)
    archive.create(job, folder / "a.tar.zst")
    assert bool((folder / "a.tar.zst").stat().st_mode & 0o040) == group_reads


def test_the_same_files_give_the_same_bytes(job: Path, packed: Path, tmp_path: Path) -> None:
    os.utime(job / "plan.json", (1, 1))
    (job / ".plan.json.1.tmp").write_text("a write that was interrupted")
    archive.create(job, tmp_path / "again.tar.zst")
    assert (tmp_path / "again.tar.zst").read_bytes() == packed.read_bytes()


def test_extracting_gives_the_files_back(job: Path, packed: Path, tmp_path: Path) -> None:
    folder = archive.extract(packed, tmp_path / "there" / "new")
    assert folder == tmp_path / "there" / "new" / "job-1"
    for path in job.rglob("*"):
        if path.is_file():
            assert (folder / path.relative_to(job)).read_bytes() == path.read_bytes()
    assert os.access(folder / "job.sh", os.X_OK)
    with pytest.raises(ConfigError, match="already exists"):
        archive.extract(packed, tmp_path / "there" / "new")


def test_a_file_that_cannot_be_extracted_is_named(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as refused:
        archive.extract(packed, tmp_path / "new")
    assert str(refused.value.filename).endswith("/job-1/manifest.json")
    assert not (tmp_path / "new" / "job-1").exists()


def test_standard_tools_read_it(packed: Path, tmp_path: Path) -> None:
    import shutil

    if shutil.which("zstd") is None:
        pytest.skip("zstd(1) is not installed")
    subprocess.run(["zstd", "-tq", packed], check=True)
    subprocess.run(["tar", "-C", tmp_path, "--zstd", "-xf", packed], check=True)
    assert (tmp_path / "job-1" / "plan.json").read_text() == "{}\n"


def test_any_flipped_bit_is_found(packed: Path, tmp_path: Path) -> None:
    whole = packed.read_bytes()
    broken = tmp_path / "broken"
    for index in range(len(whole)):
        flipped = bytearray(whole)
        flipped[index] ^= 1 << index % 8
        broken.write_bytes(flipped)
        assert archive.faults(broken), f"byte {index} of {len(whole)}"


@given(st.data())
@settings(max_examples=60)
def test_no_cut_is_taken_for_the_whole(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "job")
        folder.mkdir()
        (folder / "a").write_bytes(bytes(range(256)) * 2)
        archive.create(folder, Path(name, "a.tar.zst"))
        whole = Path(name, "a.tar.zst").read_bytes()
        Path(name, "cut").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        assert archive.faults(Path(name, "cut"))
        Path(name, "longer").write_bytes(whole + data.draw(st.binary(min_size=1, max_size=50)))
        assert archive.faults(Path(name, "longer"))


def _repacked(packed: Path, change: Callable[[list[tuple[str, bytes]]], None]) -> Path:
    """Make the archive anew with tar and zstd, as somebody might by hand, after `change`."""
    content = archive.read(packed, lambda name: True)
    files = [(name, content[name.removeprefix("job-1/")]) for name, _ in archive.entries(packed)]
    change(files)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    target = packed.with_name("repacked.tar.zst")
    target.write_bytes(zstandard.compress(stream.getvalue()))
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.pop(-1), "runs/01-measure/result.json is missing"),
        (lambda files: files.append(("job-1/extra", b"x")), "extra is not in the manifest"),
        (lambda files: files.append(("job-1/../../escape", b"x")), "'job-1/../../escape' would be written outside"),
        (lambda files: files.append(("/etc/escape", b"x")), "'/etc/escape' would be written outside"),
        (lambda files: files.append(("other/file", b"x")), "'other/file' would be written outside"),
        (lambda files: files.append(files[-1]), "is repeated"),
        (lambda files: files.pop(0), "it has no manifest.json"),
        (lambda files: files.__setitem__(-1, (files[-1][0], b"{}")), "result.json does not match the manifest"),
    ],
)
def test_a_changed_archive_is_told_by_what_was_changed(
    packed: Path, tmp_path: Path, change: Callable[[list[tuple[str, bytes]]], None], message: str
) -> None:
    changed = _repacked(packed, change)
    faults = archive.faults(changed)
    assert any(message in fault for fault in faults), faults
    with pytest.raises(InvalidRun):
        archive.extract(changed, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_repacked_archive_is_not_what_was_collected(packed: Path) -> None:
    assert archive.faults(_repacked(packed, lambda files: None)) == [
        "its checksum is wrong or missing: the file was changed, truncated or repacked"
    ]


def test_links_are_left_out_and_listed(job: Path, tmp_path: Path) -> None:
    (job / "link").symlink_to("/etc/passwd")
    (job / "folder").symlink_to("/etc")
    archive.create(job, tmp_path / "a.tar.zst")
    assert json.loads((job / "manifest.json").read_bytes())["skipped"] == ["folder", "link"]
    assert archive.faults(tmp_path / "a.tar.zst") == []


@pytest.mark.parametrize("content", [b"", b"no archive", zstandard.compress(b"no tar" * 1000)])
def test_what_is_no_archive(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.zst"
    path.write_bytes(content)
    assert archive.faults(path)
    with pytest.raises(InvalidRun):
        archive.extract(path, tmp_path)
    with pytest.raises(ConfigError, match="cannot read"):
        archive.faults(tmp_path / "absent")


def test_an_archive_that_cannot_be_finished_leaves_nothing(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.tar.zst"
    monkeypatch.setattr(archive, "faults", lambda path: ["a bit rotted"])
    with pytest.raises(InvalidRun, match="that was just written has a fault"):
        archive.create(job, target)
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_names_that_are_no_text_are_left_out_and_listed(job: Path, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(job) + b"/core\xff")).write_text("x")
    archive.create(job, tmp_path / "a.tar.zst")
    assert json.loads((job / "manifest.json").read_bytes())["skipped"] == ["core\\udcff"]
    assert archive.faults(tmp_path / "a.tar.zst") == []


def test_files_that_change_meanwhile_are_no_broken_disk(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = archive._pack

    def late(directory: Path, manifest: archive.Manifest, target: Path) -> None:
        (directory / "plan.json").write_text("[]\n")
        pack(directory, manifest, target)

    monkeypatch.setattr(archive, "_pack", late)
    with pytest.raises(Incomplete, match="changed while they were archived; collect the job again"):
        archive.create(job, tmp_path / "a.tar.zst")
    assert not (tmp_path / "a.tar.zst").exists()


def test_live_records_of_killed_ranks_are_left_out_and_named(job: Path, tmp_path: Path) -> None:
    """Darshan's live records are as large as the memory that it may use, and empty but for some KiB."""
    live = job / "runs" / "01-measure" / "darshan" / "live"
    live.mkdir(parents=True)
    with (live / "user_python_id7_mmap-log-1-0.darshan").open("wb") as file:
        file.truncate(1 << 40)
    target = tmp_path / "archive" / "job-1.tar.zst"
    archive.create(job, target)
    assert archive.faults(target) == []
    manifest = json.loads(archive.read(target, lambda name: name == "manifest.json")["manifest.json"])
    assert manifest["skipped"] == ["runs/01-measure/darshan/live/user_python_id7_mmap-log-1-0.darshan"]


def test_a_folder_that_cannot_be_read_ends_archiving(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the folder's content the archive would be incomplete."""
    scandir = os.scandir

    def failing(folder: object) -> object:
        if str(folder).endswith("/runs"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))
        return scandir(folder)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(OSError, match="Input/output error"):
        archive.create(job, tmp_path / "kept.tar.zst")
    assert list(tmp_path.glob("*.zst")) == []
