"""Hostile archives in a shared folder are refused quickly with exit code 3, and are left out by name."""

import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from dlio_hpc.files import archive, archive_members
from tests.conftest import BIN, Run
from tests.support import studies

_SEAL = bytes.fromhex("5d2a4d1820000000")
# Seconds in which an archive is refused on a busy machine, beyond the start of the command.
_QUICK_S = 20.0
# Memory of the command at its peak. Its parent is small: a new process counts the memory of the one it came from.
_MOST_KIB = 400 << 10
_LIMITED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def _sealed(content: bytes) -> bytes:
    """Seal the content; an attacker can seal any content."""
    return content + _SEAL + hashlib.sha256(content).digest()


def _tar(*parts: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, content in parts:
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _member(
    name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, extended: dict[str, str] | None = None
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(f"odd-1/{name}")
    member.size, member.type, member.pax_headers = size, kind, extended or {}
    return member


def _manifest(**files: int) -> tuple[tarfile.TarInfo, bytes]:
    entries = {name: {"bytes": size, "sha256": "0" * 64} for name, size in files.items()}
    content = json.dumps({"job": "odd-1", "files": entries}).encode()
    return _member("manifest.json", len(content)), content


def _packed(*parts: tuple[tarfile.TarInfo, bytes]) -> bytes:
    return _sealed(zstandard.compress(_tar(*parts)))


def _pax_sparse() -> bytes:
    keys = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x", "GNU.sparse.realsize": "10"}
    return _packed(_manifest(), (_member("x", 512, extended=keys), b"nonsense".ljust(512, b"\0")))


def _pax_sparse_map() -> bytes:
    return _packed(
        _manifest(), (_member("x", 4, extended={"GNU.sparse.map": "nonsense", "GNU.sparse.size": "4"}), b"abcd")
    )


def _gnu_sparse() -> bytes:
    """A member of 512 bytes that stands for 1 TiB."""
    header = bytearray(_member("x", 512, tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"00000000000\0" + b"00000001000\0"
    header[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    whole = _tar(_manifest()).rstrip(b"\0")
    whole += bytes(-len(whole) % 512)
    return _sealed(zstandard.compress(whole + bytes(header) + bytes(512) + bytes(10240)))


def _streamed(*parts: tuple[bytes, int]) -> bytes:
    """Repeat each piece so many times, and compress them."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    content = b"".join(compressor.compress(piece) for piece, count in parts for _ in range(count))
    return _sealed(content + compressor.flush())


def _long_manifest() -> bytes:
    """A manifest of 3 GiB in some 100 KiB."""
    return _streamed((_member("manifest.json", 3 << 30).tobuf(tarfile.PAX_FORMAT), 1), (b" " * (1 << 20), 3 << 10))


def _zeros() -> bytes:
    """8 GiB of zeros in some 300 KiB, listed with their true size."""
    head = _tar(_manifest(zeros=8 << 30))[:1024]
    return _streamed((head + _member("zeros", 8 << 30).tobuf(tarfile.PAX_FORMAT), 1), (bytes(1 << 20), 8 << 10))


def _many() -> bytes:
    """Two million members."""
    head = _tar(_manifest(x=0))[:1024]
    return _streamed((head, 1), (_member("x").tobuf(tarfile.PAX_FORMAT) * 4096, 512))


def _window() -> bytes:
    """A frame with a window of 2 GiB, for which a decompressor allocates as much memory."""
    parameters = zstandard.ZstdCompressionParameters(window_log=31, write_content_size=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return _sealed(compressor.compress(_tar(_manifest())) + compressor.flush())


def _bare(length: int) -> bytes:
    """The head of a frame that decompressors skip."""
    return (0x184D2A50).to_bytes(4, "little") + length.to_bytes(4, "little")


_HOSTILE: dict[str, Callable[[], bytes]] = {
    "pax-sparse": _pax_sparse,
    "pax-sparse-map": _pax_sparse_map,
    "gnu-sparse": _gnu_sparse,
    "long-manifest": _long_manifest,
    "zeros": _zeros,
    "many-members": _many,
    "window": _window,
    "absolute": lambda: _packed(_manifest(), (tarfile.TarInfo("/etc/passwd"), b"")),
    "parent": lambda: _packed(_manifest(), (_member("../../escape"), b"")),
    "symlink": lambda: _packed(_manifest(x=0), (_member("x", kind=tarfile.SYMTYPE), b"")),
    "hard-link": lambda: _packed(_manifest(x=0), (_member("x", kind=tarfile.LNKTYPE), b"")),
    "device": lambda: _packed(_manifest(x=0), (_member("x", kind=tarfile.CHRTYPE), b"")),
    "fifo-inside": lambda: _packed(_manifest(x=0), (_member("x", kind=tarfile.FIFOTYPE), b"")),
    "twice": lambda: _packed(_manifest(x=1), (_member("x", 1), b"a"), (_member("x", 1), b"b")),
    "long-header": lambda: _packed(_manifest(), (_member("x", extended={"comment": "y" * (8 << 20)}), b"")),
    "truncated": lambda: _packed(_manifest(x=9999), (_member("x", 9999), b"a" * 9999))[:200],
    "other-job": lambda: _packed((_member("manifest.json", 26), b'{"job": "me", "files": {}}')),
    "bare-frames": lambda: _sealed(
        (0x184D2A50).to_bytes(4, "little") + (9 << 20).to_bytes(4, "little") + bytes(9 << 20)
    ),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of every kind."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, content in _HOSTILE.items():
        (folder / f"{name}.tar.zst").write_bytes(content())
    os.mkfifo(folder / "pipe.tar.zst")
    (folder / "folder.tar.zst").mkdir()
    (folder / "zero.tar.zst").symlink_to("/dev/zero")
    with (folder / "holes.tar.zst").open("wb") as file:  # nothing on disk
        file.write(_bare(0xFFFFFFF0))
        file.truncate(1 << 42)
    return folder


_NAMES = [*_HOSTILE, "pipe", "folder", "zero", "holes"]


@pytest.mark.parametrize("name", _NAMES)
def test_it_is_refused_quickly_with_exit_3(hostile: Path, run: Run, name: str) -> None:
    path = hostile / f"{name}.tar.zst"
    started = time.monotonic()
    for arguments in (("archive", "verify", path), ("archive", "extract", path)):
        shown = run("python", "-S", "-c", _LIMITED, BIN / "dlio-hpc", *arguments)
        assert shown.code == 3, shown
        assert str(path) in shown.err
        assert int(shown.out.split()[-1]) <= _MOST_KIB
    assert time.monotonic() - started < 2 * _QUICK_S


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Archives of two good jobs."""
    runs = tmp_path / "runs"
    made = studies.make(runs, studies.asked("demo", "reader.batch_size=4,8", ranks_per_node=(1, 2)), repeat=2)
    studies.write(made, lambda point, repeat: 100.0 + 10 * point + repeat)
    for job in sorted(runs.glob("tune-*")):
        archive.create(job, runs / "archive" / f"{job.name}.tar.zst")
    return runs / "archive"


@pytest.mark.parametrize(
    "arguments",
    [("history",), ("history", "--rebuild"), ("baseline", "accept", "tune-1", "--message", "quiet", "--force"),
     ("compare", "tune-1")],
)  # fmt: skip
def test_verbs_that_look_at_a_folder_leave_each_out_by_name(
    hostile: Path, shared: Path, run: Run, arguments: tuple[str, ...]
) -> None:
    for path in hostile.iterdir():
        (shared / path.name).symlink_to(path)
    runs = ("-o", shared.parent)
    before = run("dlio-hpc", "compare", "tune-1", *runs).code if "compare" in arguments else 0
    shown = run("dlio-hpc", *arguments, "--archive", shared, *runs)
    assert shown.code == before, shown
    for name in _NAMES if arguments[0] in {"history", "compare"} else ():
        assert f"skipped: {shared / name}.tar.zst" in shown.err, name


def test_who_takes_the_name_of_another_job_is_left_out(shared: Path, run: Run) -> None:
    (shared / "aaa.tar.zst").write_bytes((shared / "tune-1.tar.zst").read_bytes())
    shown = run("dlio-hpc", "history", "--archive", shared)
    assert shown.code == 0
    assert "aaa.tar.zst contains the job 'tune-1'" in shown.err


def test_what_compresses_beyond_measure_is_filled_up_and_read(tmp_path: Path) -> None:
    """The job prints the same text for hours."""
    job = tmp_path / "odd-1"
    job.mkdir()
    (job / "job.err").write_bytes(b"error: no space left\n" * (20 << 20))
    (job / "plan.json").write_text("{}")
    target = tmp_path / "odd-1.tar.zst"
    archive.create(job, target)
    assert archive.faults(target) == []
    assert archive_members.most_bytes(target.stat().st_size) >= (20 << 20) * 21
    kept = archive.read(target, lambda name: name == "job.err", largest=1000)
    assert kept["job.err"] == (job / "job.err").read_bytes()[-1000:]


def test_long_and_foreign_names_are_read_back(tmp_path: Path) -> None:
    job = tmp_path / "odd-1"
    names = ["ä" * 100, "a" * 200, "/".join(["b" * 60] * 4), "plain"]
    for name in names:
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_text(name)
    archive.create(job, tmp_path / "odd-1.tar.zst")
    assert archive.faults(tmp_path / "odd-1.tar.zst") == []
    folder = archive.extract(tmp_path / "odd-1.tar.zst", tmp_path / "to")
    assert {name: (folder / name).read_text() for name in names} == {name: name for name in names}
