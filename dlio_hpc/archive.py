"""A job's archive: NAME.tar.zst with a manifest inside and a seal at the end.

The same files give the same bytes: members sorted, times and owners zero. manifest.json holds every file's SHA-256;
the seal, a skippable frame that zstd and tar pass over (RFC 8878, section 3.1.2), holds the SHA-256 of all bytes
before it, so that no flipped bit goes unseen, one that decodes to the same files included.
"""

import hashlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

import zstandard
from msgspec import Struct

from dlio_hpc import document, rundir
from dlio_hpc.errors import ConfigError, Incomplete, InvalidRun, about, unreadable

SUFFIX = ".tar.zst"
_LEVEL = 3
_CHUNK = 1 << 20
_SEAL_HEAD = (0x184D2A5D).to_bytes(4, "little") + (32).to_bytes(4, "little")
_SEAL_BYTES = len(_SEAL_HEAD) + 32


class Entry(Struct, frozen=True):
    """One file of the job."""

    bytes: int
    sha256: str


class Manifest(Struct, frozen=True):
    """Every file of the job but the manifest itself. `skipped`: left out, since it is no regular file, cannot be named
    in text, or is the live record of a killed rank's Darshan: hundreds of MiB of nothing each.
    """

    job: str
    files: dict[str, Entry]
    skipped: list[str] = []
    schema: int = 1


def create(directory: Path, target: Path) -> None:
    """Archive the job in `directory` as `target`: manifest written, archive whole and verified, or nothing there.

    InvalidRun when what was written does not verify.
    """
    manifest = _manifest(directory)
    rundir.write(directory / rundir.MANIFEST, document.encode(manifest))
    target.parent.mkdir(parents=True, exist_ok=True)
    with rundir.replacing(target) as temporary:
        _pack(directory, [rundir.MANIFEST, *manifest.files], temporary)
        if found := faults(temporary):
            if _manifest(directory) != manifest:
                raise Incomplete(
                    f"files in {directory} changed while they were archived; collect again when nothing writes there"
                )
            raise InvalidRun(f"the archive did not verify after writing ({found[0]}); is the disk failing?")


def is_of(path: Path, directory: Path) -> bool:
    """Does a sound archive hold what lies in `directory` now?"""
    content = read(path, lambda name: name == rundir.MANIFEST)[rundir.MANIFEST]
    return document.decode(content, Manifest, str(path), InvalidRun) == _manifest(directory)


def faults(path: Path) -> list[str]:
    """What is wrong with an archive, a line each; empty: every byte is as it was written."""
    found = [] if _is_sealed(path) else ["its checksum is wrong or gone: the file was changed, cut short or repacked"]
    try:
        return found + _member_faults(path)
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as fault:
        return [*found, f"it cannot be read to its end: {fault}"]


def entries(path: Path) -> list[tuple[str, int]]:
    """Members with their sizes in bytes; InvalidRun when the archive cannot be read."""
    with _reading(path) as tar:
        return [(member.name, member.size) for member in tar]


def read(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The files, named from the job's folder down, whose names are `wanted`; InvalidRun when it cannot be read."""
    content: dict[str, bytes] = {}
    with _reading(path) as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            if member.isreg() and wanted(name):
                content[name] = _file(tar, member).read()
    return content


def extract(path: Path, target: Path) -> Path:
    """The job's folder below `target`, made after every byte was verified.

    InvalidRun or ConfigError, and nothing written.
    """
    if found := faults(path):
        raise InvalidRun(f"{path} is broken: {found[0]}; see dlio-hpc archive verify")
    job = entries(path)[0][0].partition("/")[0]
    folder = target / job
    if folder.exists():
        raise ConfigError(f"{folder} is there already; choose another --to or move it away")
    target.mkdir(parents=True, exist_ok=True)
    with _temporary(target, job) as temporary, _reading(path) as tar:
        for member in tar:
            file = Path(temporary, member.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            with about(file), file.open("wb") as copy:
                shutil.copyfileobj(_file(tar, member), copy, _CHUNK)
            file.chmod(member.mode & 0o755)
        Path(temporary, job).rename(folder)
    return folder


@contextmanager
def _temporary(target: Path, job: str) -> Iterator[str]:
    """A folder for the time of the block; what cannot be removed of it at the end stays."""
    folder = tempfile.mkdtemp(prefix=f".{job}.", dir=target)
    try:
        yield folder
    finally:
        with suppress(OSError):
            shutil.rmtree(folder, ignore_errors=True)


def _manifest(directory: Path) -> Manifest:
    files: dict[str, Entry] = {}
    skipped: list[str] = []
    for path in sorted(_walk(directory)):
        name = path.relative_to(directory).as_posix()
        if name == rundir.MANIFEST or path.name.endswith(".tmp"):
            continue
        if stat.S_ISREG(path.lstat().st_mode) and _is_utf8(name) and path.parent.name != rundir.LIVE:
            with about(path), path.open("rb") as file:
                files[name] = _entry(file)
        else:
            skipped.append(name.encode("utf-8", "backslashreplace").decode())
    return Manifest(directory.name, files, skipped)


def _is_utf8(name: str) -> bool:
    """Names that are not go into no manifest."""
    return not any("\udc80" <= letter <= "\udcff" for letter in name)


def _entry(file: IO[bytes]) -> Entry:
    digest, count = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        count += len(chunk)
    return Entry(count, digest.hexdigest())


def _walk(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        yield from (Path(folder, name) for name in names)
        yield from (Path(folder, name) for name in folders if os.path.islink(os.path.join(folder, name)))


def _pack(directory: Path, names: list[str], target: Path) -> None:
    with target.open("wb") as file:
        hashing = _Hashing(file)
        compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        with (
            compressor.stream_writer(hashing, closefd=False) as stream,  # type: ignore[arg-type]
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as tar,
        ):
            for name in names:
                path = directory / name
                member = tarfile.TarInfo(f"{directory.name}/{name}")
                member.size = path.stat().st_size
                member.mode = 0o755 if os.access(path, os.X_OK) and name == rundir.SCRIPT else 0o644
                with about(path), path.open("rb") as content:
                    tar.addfile(member, content)
        file.write(_SEAL_HEAD + hashing.digest())


class _Hashing:
    """A file to write to that knows the SHA-256 of what went through."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._hash.digest()


def _is_sealed(path: Path) -> bool:
    with _opening(path) as file:
        left = os.fstat(file.fileno()).st_size - _SEAL_BYTES
        digest = hashlib.sha256()
        while left > 0 and (chunk := file.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
        return left == 0 and file.read() == _SEAL_HEAD + digest.digest()


def _member_faults(path: Path) -> list[str]:
    found: list[str] = []
    present: dict[str, Entry] = {}
    manifest: Manifest | None = None
    folder = ""
    with _opening(path) as file, _tar(file) as tar:
        for member in tar:
            job, _, name = member.name.partition("/")
            folder = folder or job
            if not _is_safe(member.name) or not name or job != folder:
                found.append(f"member {member.name!r} would be written outside the job's folder")
            elif not member.isreg():
                found.append(f"member {member.name!r} is no regular file")
            elif name in present or (name == rundir.MANIFEST and manifest):
                found.append(f"member {member.name!r} is there twice")
            elif name == rundir.MANIFEST:
                manifest = document.decode(_file(tar, member).read(), Manifest, member.name, InvalidRun)
            else:
                present[name] = _entry(_file(tar, member))
    if manifest is None:
        return [*found, f"it holds no {rundir.MANIFEST}"]
    return found + _against(manifest, present)


def _against(manifest: Manifest, present: dict[str, Entry]) -> list[str]:
    found = [f"{name} is missing" for name in manifest.files if name not in present]
    found += [f"{name} is not in the manifest" for name in present if name not in manifest.files]
    changed = [name for name, entry in present.items() if manifest.files.get(name, entry) != entry]
    return found + [f"{name} is not what the manifest says" for name in changed]


def _is_safe(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return not name.startswith("/") and ".." not in parts and "\0" not in name


@contextmanager
def _reading(path: Path) -> Iterator[tarfile.TarFile]:
    """The members of a sound archive; InvalidRun where it turns out not to be one."""
    try:
        with _opening(path) as file, _tar(file) as tar:
            yield tar
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as fault:
        raise InvalidRun(f"{path} is broken: {fault}; see dlio-hpc archive verify") from fault


@contextmanager
def _opening(path: Path) -> Iterator[io.BufferedReader]:
    try:
        file = path.open("rb")
    except OSError as fault:
        raise unreadable(fault, path) from fault
    with about(path), file:
        yield file


@contextmanager
def _tar(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    with stream, tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
        yield tar


def _file(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[Any]:
    file = tar.extractfile(member)
    if file is None:
        raise InvalidRun(f"member {member.name!r} is no regular file")
    return file
