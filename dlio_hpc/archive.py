"""A job's archive: NAME.tar.zst with a manifest inside and a seal at the end.

The same files give the same bytes: members sorted, times and owners zero. manifest.json holds every file's SHA-256;
the seal, a skippable frame that zstd and tar pass over (RFC 8878, section 3.1.2), holds the SHA-256 of all bytes
before it, so that no flipped bit goes unseen, one that decodes to the same files included.
"""

import hashlib
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import zstandard
from msgspec import Struct

from dlio_hpc import document, folders, members, rundir, units
from dlio_hpc.errors import ConfigError, Incomplete, InvalidRun, about, unreadable
from dlio_hpc.members import Member, Members, Packed

SUFFIX = ".tar.zst"
_LEVEL = 3
# Bytes of a file of a job that is read into memory: a plan, a result, or the manifest of as many files as an archive
# takes have fewer. A recording (timeline, Darshan log) has what a login node can spare.
LARGEST_RECORDING = 4 << 30
_FILLING = (0x184D2A5C).to_bytes(4, "little")
_UNSEALED = "its checksum is wrong or gone: the file was changed, cut short or repacked"
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


def create(directory: Path, target: Path) -> list[str]:
    """Archive the job in `directory` as `target`: archive whole and verified, or nothing there. Notes on what is amiss
    beside it.

    InvalidRun when what was written does not verify.
    """
    manifest = _manifest(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    with rundir.replacing(target) as temporary:
        _pack(directory, manifest, temporary)
        if found := faults(temporary):
            if _manifest(directory) != manifest:
                raise Incomplete(
                    f"files in {directory} changed while they were archived; collect again when nothing writes there"
                )
            raise InvalidRun(f"the archive did not verify after writing ({found[0]}); is the disk failing?")
    try:
        rundir.write(directory / rundir.MANIFEST, document.encode(manifest))
    except OSError as fault:  # such as a full disk, of which archives are to relieve it
        return [f"the archive is whole, but {directory / rundir.MANIFEST} cannot be written: {fault.strerror}"]
    return []


def is_of(path: Path, directory: Path) -> bool:
    """Does a sound archive hold what lies in `directory` now?"""
    with _opened(path) as held:
        return held.manifest == _manifest(directory)


def listed(path: Path) -> frozenset[str]:
    """Names of the archived files, from the manifest alone; InvalidRun when that cannot be read."""
    with _opened(path) as held:
        return frozenset(held.manifest.files)


def faults(path: Path) -> list[str]:
    """Faults of an archive, a line each; none where every byte is as it was written. Whatever would be unsafe to
    read ends the list.
    """
    return _passed(path, lambda _: False)[0]


def sound(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Read as read() does and verify every byte in the same pass; InvalidRun where one is not as written."""
    found, content = _passed(path, wanted)
    if found:
        raise _broken(path, found[0])
    return content


def entries(path: Path) -> list[tuple[str, int]]:
    """Members with their sizes in bytes; InvalidRun when the archive cannot be read."""
    with _opened(path) as held:
        own = (f"{held.manifest.job}/{rundir.MANIFEST}", len(held.listing))
        return [own, *((member.name, member.size) for _, member in held.members())]


def read(path: Path, wanted: Callable[[str], bool], largest: int = rundir.LARGEST_DOCUMENT) -> dict[str, bytes]:
    """The files, named from the job's folder down, whose names are `wanted`; of the job's outputs the last `largest`
    bytes. InvalidRun when the archive cannot be read, or another file is larger.
    """
    with _opened(path) as held:
        content = {rundir.MANIFEST: held.listing} if wanted(rundir.MANIFEST) else {}
        for name, _ in held.members():
            if wanted(name):
                content[name] = _kept(name, held.tar.pieces(), largest)
        return content


def extract(path: Path, target: Path) -> Path:
    """The job's folder below `target`, made after every byte was verified.

    InvalidRun or ConfigError, and nothing written.
    """
    if found := faults(path):
        raise _broken(path, found[0])
    with _opened(path) as held:
        job = held.manifest.job
        folder = target / job
        if folder.exists():
            raise ConfigError(f"{folder} is there already; choose another --to or move it away")
        target.mkdir(parents=True, exist_ok=True)
        with _temporary(target, job) as temporary:
            manifest = _made(Path(temporary, job, rundir.MANIFEST))
            with about(manifest):
                manifest.write_bytes(held.listing)
            for name, _ in held.members():
                file = _made(Path(temporary, job, name))
                with about(file), file.open("xb") as copy:
                    copy.writelines(held.tar.pieces())
                file.chmod(0o755 if name == rundir.SCRIPT else 0o644)
            Path(temporary, job).rename(folder)
    return folder


def _made(file: Path) -> Path:
    """The file's path, with the folder that it goes to."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _broken(path: Path, why: object) -> InvalidRun:
    return InvalidRun(f"{path} is broken: {why}; see dlio-hpc archive verify")


def _kept(name: str, pieces: Iterator[bytes], largest: int) -> bytes:
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > largest:
            if name not in {rundir.STDOUT, rundir.STDERR}:
                raise InvalidRun(f"{name} has more than {units.format_size(largest)}")
            del content[:-largest]
    return bytes(content)


@contextmanager
def _temporary(target: Path, job: str) -> Iterator[str]:
    """A folder for the time of the block; what cannot be removed of it at the end stays."""
    folder = tempfile.mkdtemp(prefix=f".{job}.", dir=target)
    try:
        yield folder
    finally:
        folders.discard(folder)


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
    while chunk := file.read(members.CHUNK):
        digest.update(chunk)
        count += len(chunk)
    return Entry(count, digest.hexdigest())


def _walk(directory: Path) -> Iterator[Path]:
    def fail(fault: OSError) -> None:
        raise fault

    for folder, below, names in os.walk(directory, onerror=fail):
        yield from (Path(folder, name) for name in names)
        yield from (Path(folder, name) for name in below if os.path.islink(os.path.join(folder, name)))


def _pack(directory: Path, manifest: Manifest, target: Path) -> None:
    with target.open("wb") as file:
        hashing = _Hashing(file)
        compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        with (
            compressor.stream_writer(hashing, closefd=False) as stream,  # type: ignore[arg-type]
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=members.CHUNK) as tar,
        ):
            _add(tar, f"{manifest.job}/{rundir.MANIFEST}", io.BytesIO(_encoded(directory, manifest)))
            for name in manifest.files:
                with about(directory / name), (directory / name).open("rb") as content:
                    _add(tar, f"{manifest.job}/{name}", content)
        _fill_up(hashing, tar.offset + members.CHUNK)
        file.write(_SEAL_HEAD + hashing.digest())


def _encoded(directory: Path, manifest: Manifest) -> bytes:
    """ConfigError where the job has more files than an archive may have."""
    content = document.encode(manifest)
    if len(manifest.files) >= members.MOST_MEMBERS or len(content) > rundir.LARGEST_DOCUMENT:
        raise ConfigError(
            f"{directory} has {len(manifest.files)} files, an archive takes {members.MOST_MEMBERS}; remove those that "
            "dlio-hpc did not write"
        )
    return content


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = content.seek(0, os.SEEK_END)
    content.seek(0)
    member.mode = 0o755 if name.partition("/")[2] == rundir.SCRIPT else 0o644
    tar.addfile(member, content)


def _fill_up(file: "_Hashing", size: int) -> None:
    """Frames that decompressors pass over, until an archive of `size` bytes of files is large enough to be read."""
    while (lacking := -(-(size - members.ALLOWANCE) // members.RATIO) - file.count) > 0:
        length = min(lacking, members.CHUNK)
        file.write(_FILLING + length.to_bytes(4, "little") + bytes(length))


class _Hashing:
    """A file to write to that knows the SHA-256 of what went through."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.count = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.count += len(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._hash.digest()


class _Held(NamedTuple):
    """An archive open at its second member. listing: the bytes of the first one, the manifest."""

    packed: Packed
    tar: Members
    iterator: Iterator[Member]
    manifest: Manifest
    listing: bytes

    def members(self) -> Iterator[tuple[str, Member]]:
        """Each member with its name below the job's folder; InvalidRun at one that the manifest does not list."""
        left = dict.fromkeys(self.manifest.files)
        for member in self.iterator:
            job, _, name = member.name.partition("/")
            if not _is_safe(member.name) or not name or job != self.manifest.job:
                raise InvalidRun(f"member {member.name!r} would be written outside the job's folder")
            if name not in left:
                is_twice = name in self.manifest.files or name == rundir.MANIFEST
                raise InvalidRun(f"member {member.name!r} is there twice" if is_twice else _unlisted(name))
            del left[name]
            yield name, member


def _unlisted(name: str) -> str:
    return f"{name} is not in the manifest"


@contextmanager
def _opened(path: Path) -> Iterator[_Held]:
    """The archive with its manifest read; InvalidRun with the archive's name where it turns out not to be one."""
    with _opening(path) as file:
        try:
            yield _begun(Packed(file, os.fstat(file.fileno()).st_size, _SEAL_BYTES))
        except InvalidRun as fault:
            raise _broken(path, fault) from fault


def _begun(packed: Packed) -> _Held:
    tar = Members(packed)
    iterator = iter(tar)
    first = next(iterator, None)
    if first is None or first.name.partition("/")[2] != rundir.MANIFEST:
        raise InvalidRun(f"it holds no {rundir.MANIFEST} at its beginning")
    content = _kept(rundir.MANIFEST, tar.pieces(), rundir.LARGEST_DOCUMENT)
    manifest = document.decode(content, Manifest, first.name, InvalidRun)
    if manifest.job != first.name.partition("/")[0] or not _is_safe(first.name):
        raise InvalidRun(f"its {rundir.MANIFEST} is of another job")
    return _Held(packed, tar, iterator, manifest, content)


def _passed(path: Path, wanted: Callable[[str], bool]) -> tuple[list[str], dict[str, bytes]]:
    """One pass over an archive: what is wrong with it, and the files that are wanted. A fault after which nothing is
    safe to read stands alone.
    """
    content: dict[str, bytes] = {}
    with _opening(path) as file:
        packed = Packed(file, os.fstat(file.fileno()).st_size, _SEAL_BYTES)
        try:
            held = _begun(packed)
            left = dict(held.manifest.files)
            changed = []
            for name, member in held.members():
                listed = left.pop(name)
                if member.size != listed.bytes:
                    raise InvalidRun(_changed(name))
                digest = hashlib.sha256()
                pieces = _hashed(held.tar.pieces(), digest.update)
                if wanted(name):
                    content[name] = _kept(name, pieces, rundir.LARGEST_DOCUMENT)
                for _ in pieces:
                    pass
                if digest.hexdigest() != listed.sha256:
                    changed.append(_changed(name))
            while packed.read(members.CHUNK):
                pass
        except InvalidRun as fault:
            return [str(fault)], {}
    seal = [] if packed.seal == _SEAL_HEAD + packed.digest() else [_UNSEALED]
    return [*seal, *(f"{name} is missing" for name in left), *changed], content


def _hashed(pieces: Iterator[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        update(piece)
        yield piece


def _changed(name: str) -> str:
    return f"{name} is not what the manifest says"


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return not {"", ".", ".."} & set(parts) and "\0" not in name


@contextmanager
def _opening(path: Path) -> Iterator[io.BufferedReader]:
    """The file, which does not have to be one: a pipe of that name would be waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        raise unreadable(fault, path) from fault
    with about(path):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            folders.close(descriptor)
            raise InvalidRun(f"{path} is no archive: it is no regular file")
        with os.fdopen(descriptor, "rb") as file:
            yield file
