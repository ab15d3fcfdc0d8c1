"""The archive of a job: NAME.tar.zst, with a manifest at the start and a seal at the end.

The same files always give the same archive, byte for byte: members are sorted, and their times and owners are zero.
manifest.json holds the SHA-256 of every file. The seal is a skippable frame, which zstd and tar ignore (RFC 8878,
section 3.1.2). It holds the SHA-256 of all bytes before it. Any flipped bit is therefore detected, even if the
decompressed files are the same.
"""

import hashlib
import io
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import zstandard
from msgspec import Struct

from dlio_hpc.base import own_commands, serialization, units
from dlio_hpc.base.errors import ConfigError, Incomplete, InvalidRun, about, unreadable
from dlio_hpc.files import archive_members, path_kinds, rundir, safe_folders
from dlio_hpc.files.archive_members import Members, Packed, TarMember

SUFFIX = rundir.ARCHIVE_SUFFIX
# Names in a job's directory that dlio-hpc writes.
_WRITTEN = (
    rundir.PLAN, rundir.JOB, rundir.SCRIPT, rundir.RUNS, rundir.EXIT_STATUS, rundir.ENVIRONMENT, rundir.LAYOUT,
    rundir.ATTEMPTS, rundir.STUDY, rundir.DARSHAN, rundir.SETUP_FAILURES,
)  # fmt: skip
# Names of jobs: that of the workload or study, the time, six digits, and the number of a job of a study.
_JOB = re.compile(r".+-\d{8}-\d{6}-[0-9a-f]{6}(-\d+)?")
_LEVEL = 3
# Number of first bytes that show whether a file is a text. An archive is none: its second byte is no character.
_HEAD = 64
_WANTED = "the archive of a job, such as dlio-runs/archive/JOB.tar.zst, which dlio-hpc collect writes"
# Maximum size in bytes of a recording (timeline, Darshan log) that is read into the memory of a login node. Other files
# of a job are limited to rundir.LARGEST_DOCUMENT.
LARGEST_RECORDING = 4 << 30
_FILLING = (0x184D2A5C).to_bytes(4, "little")
_UNSEALED = "its checksum is wrong or missing: the file was changed, truncated or repacked"
# First bytes of other files, which users take for archives.
_OTHERS = {b"\x1f\x8b": "compressed with gzip", b"SQLite": "a database, such as the history of the archives"}
_SEAL_HEAD = (0x184D2A5D).to_bytes(4, "little") + (32).to_bytes(4, "little")
_SEAL_BYTES = len(_SEAL_HEAD) + 32


class ArchivedFile(Struct, frozen=True):
    """Entry of the manifest for a file of the job."""

    bytes: int
    sha256: str


class Manifest(Struct, frozen=True):
    """All files of the job except the manifest itself. files: files in the archive, by name. skipped: names of files
    that are not in the archive. A file is skipped if it is not a regular file, if its name is not UTF-8, or if it holds
    in-memory records that Darshan had mapped to the file when a rank was killed (hundreds of MiB of zeros each).
    """

    job: str
    files: dict[str, ArchivedFile]
    skipped: list[str] = []
    schema: int = 1

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the files, by name."""
        return {name: file.sha256 for name, file in self.files.items()}


def create(directory: Path, target: Path) -> list[str]:
    """Archive the job in `directory` as `target`, and write the manifest into the directory. Return notes on problems
    outside the archive, such as a manifest that could not be written. The plan may contain secrets. If other users may
    not read the plan, they may not read the archive either.

    Raise ConfigError if a file of the job is a link. An archive has no links, so the file would be missing from it.

    Afterwards `target` is either complete and verified, or it does not exist. Raise Incomplete if files changed
    meanwhile, and InvalidRun if the written archive does not verify.
    """
    manifest = _manifest(directory)
    for name in manifest.skipped:
        if name.partition("/")[0] in _WRITTEN and (directory / name).is_symlink():
            raise ConfigError(
                f"{directory / name} is a link, and an archive has no links; put the file that it leads to in its "
                "place, and collect the job again"
            )
    target.parent.mkdir(parents=True, exist_ok=True)
    with rundir.replacing(target) as temporary:
        plan = directory / rundir.PLAN
        is_private = plan.exists() and not plan.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if is_private and not safe_folders.is_of_group(target.parent):
            temporary.chmod(0o600)
        _pack(directory, manifest, temporary)
        if errors := faults(temporary):
            if _manifest(directory) != manifest:
                raise Incomplete(
                    f"files in {directory} changed while they were archived; collect the job again when no process "
                    "writes to this directory"
                )
            raise InvalidRun(f"the archive that was just written has a fault ({errors[0]}); the disk may be failing")
    try:
        rundir.write(directory / rundir.MANIFEST, serialization.encode(manifest))
    except OSError as fault:  # such as a full disk
        return [f"the archive is complete, but {directory / rundir.MANIFEST} cannot be written: {fault.strerror}"]
    return []


def is_of(path: Path, directory: Path) -> bool:
    """Return whether the archive at `path` contains the current files of `directory`. The files are compared with the
    archive's manifest.
    """
    with _opened(path) as held:
        return held.manifest == _manifest(directory)


def listed(path: Path) -> dict[str, str]:
    """Return the SHA-256 of the archived files by name, from the manifest. Raise InvalidRun if the manifest cannot be
    read.
    """
    with _opened(path) as held:
        return held.manifest.digests


def digests(directory: Path) -> dict[str, str]:
    """Return the current SHA-256 of the files that an archive of the job in `directory` would contain, by name."""
    return _manifest(directory).digests


def recorded(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a job when it was archived, by name, from the manifest in its directory. The
    result is empty if the directory has no manifest. Raise InvalidRun if the manifest cannot be read.
    """
    path = directory / rundir.MANIFEST
    if not path.exists():
        return {}
    content = safe_folders.content(path, rundir.LARGEST_DOCUMENT)
    return serialization.decode(content, Manifest, str(path), InvalidRun).digests


def altered(directory: Path, current: Mapping[str, str], collected: Mapping[str, str]) -> list[str]:
    """Return the names of JSON files of runs that differ from the collected files although the run was not repeated. A
    run was repeated if an earlier attempt has the collected file. current, collected: SHA-256 of files, by name.
    """
    of_runs = [name for name in current if name.startswith(f"{rundir.RUNS}/") and name.endswith(".json")]
    differing = [name for name in of_runs if name in collected and collected[name] != current[name]]
    return [name for name in differing if collected[name] not in _earlier(directory, name)]


def _earlier(directory: Path, name: str) -> set[str]:
    """Return the SHA-256 of a file in each earlier attempt of a job."""
    kept = rundir.matching(directory, f"{rundir.ATTEMPTS}/*/{name}")
    return {hashlib.sha256(safe_folders.content(file, rundir.LARGEST_DOCUMENT)).hexdigest() for file in kept}


def faults(path: Path) -> list[str]:
    """Verify an archive. Return a list with a message for each fault. The list is empty if every byte is as it was
    written. If a fault makes further reading unsafe, return only that fault.
    """
    errors = _passed(path, lambda _: False)[0]
    return ["it is empty (0 bytes)"] if path.is_file() and not path.stat().st_size else errors


def sound(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Read the wanted files like read(), and verify every byte of the archive in the same pass. Raise InvalidRun if any
    byte differs.
    """
    errors, content = _passed(path, wanted)
    if errors:
        raise _broken(path, errors[0])
    return content


def entries(path: Path) -> list[tuple[str, int]]:
    """Return the name and the size in bytes of each member. Raise InvalidRun if the archive cannot be read."""
    with _opened(path) as held:
        own = (f"{held.manifest.job}/{rundir.MANIFEST}", len(held.listing))
        return [own, *((member.name, member.size) for _, member in held.members())]


def read(path: Path, wanted: Callable[[str], bool], largest: int = rundir.LARGEST_DOCUMENT) -> dict[str, bytes]:
    """Return the contents of archived files by name, without verifying their checksums. wanted: function that returns
    whether to read a file, given its name relative to the job's folder. For job.out and job.err, only the last
    `largest` bytes are returned. Raise InvalidRun if the archive cannot be read, or if another wanted file has more
    than `largest` bytes.
    """
    with _opened(path) as held:
        content = {rundir.MANIFEST: held.listing} if wanted(rundir.MANIFEST) else {}
        for name, _ in held.members():
            if wanted(name):
                content[name] = _kept(name, held.tar.pieces(), largest)
        return content


def extract(path: Path, target: Path) -> Path:
    """Verify every byte of an archive, then extract the job's folder into `target`. Return the path of the extracted
    folder.

    Raise InvalidRun if the archive is corrupted, and ConfigError if the folder exists; nothing is written in these
    cases.
    """
    if errors := faults(path):
        raise _broken(path, errors[0])
    with _opened(path) as held:
        job = held.manifest.job
        folder = target / job
        if folder.exists():
            raise ConfigError(f"{folder} already exists; choose another folder with --to, or move this one away")
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
    """Create the folder of `file` if it does not exist, and return `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _broken(path: Path, why: object) -> InvalidRun:
    return InvalidRun(f"{path} is corrupted: {why}; see dlio-hpc archive verify")


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
    """Create a temporary folder in `target` and yield its path. Remove the folder, as far as possible, at the end of
    the `with` block.
    """
    folder = tempfile.mkdtemp(prefix=f".{job}.", dir=target)
    try:
        yield folder
    finally:
        safe_folders.discard(folder)


def _manifest(directory: Path) -> Manifest:
    files: dict[str, ArchivedFile] = {}
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
    """Return whether a file name is valid UTF-8. A manifest cannot store other names."""
    return not any("\udc80" <= letter <= "\udcff" for letter in name)


def _entry(file: IO[bytes]) -> ArchivedFile:
    digest, count = hashlib.sha256(), 0
    while chunk := file.read(archive_members.CHUNK):
        digest.update(chunk)
        count += len(chunk)
    return ArchivedFile(count, digest.hexdigest())


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
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=archive_members.CHUNK) as tar,
        ):
            _add(tar, f"{manifest.job}/{rundir.MANIFEST}", io.BytesIO(_encoded(directory, manifest)))
            for name in manifest.files:
                with about(directory / name), (directory / name).open("rb") as content:
                    _add(tar, f"{manifest.job}/{name}", content)
        _fill_up(hashing, tar.offset + archive_members.CHUNK)
        file.write(_SEAL_HEAD + hashing.digest())


def _encoded(directory: Path, manifest: Manifest) -> bytes:
    """Return the manifest as JSON. Raise ConfigError if the job has more files than an archive may have."""
    content = serialization.encode(manifest)
    if len(manifest.files) >= archive_members.MOST_MEMBERS or len(content) > rundir.LARGEST_DOCUMENT:
        raise ConfigError(
            f"{directory} has {len(manifest.files)} files, too many for an archive (at most "
            f"{archive_members.MOST_MEMBERS}, fewer if their names are long); remove files that dlio-hpc did not write"
        )
    return content


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = content.seek(0, os.SEEK_END)
    content.seek(0)
    member.mode = 0o755 if name.partition("/")[2] == rundir.SCRIPT else 0o644
    tar.addfile(member, content)


def _fill_up(file: "_Hashing", size: int) -> None:
    """Pad the archive with skippable frames until its compression ratio is within the limit that readers of archives
    accept. size: total bytes of the uncompressed files.
    """
    while (lacking := -(-(size - archive_members.ALLOWANCE) // archive_members.RATIO) - file.count) > 0:
        length = min(lacking, archive_members.CHUNK)
        file.write(_FILLING + length.to_bytes(4, "little") + bytes(length))


class _Hashing:
    """A file wrapper for writing. It counts the bytes written and computes their SHA-256."""

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
    """An open archive whose first member, the manifest, has been read. listing: content of this first member."""

    packed: Packed
    tar: Members
    iterator: Iterator[TarMember]
    manifest: Manifest
    listing: bytes

    def members(self) -> Iterator[tuple[str, TarMember]]:
        """Yield each member after the manifest, with its name relative to the job's folder. Raise InvalidRun if a
        member is not in the manifest, occurs twice, or is outside the job's folder.
        """
        left = dict.fromkeys(self.manifest.files)
        for member in self.iterator:
            job, _, name = member.name.partition("/")
            if not _is_safe(member.name) or not name or job != self.manifest.job:
                raise InvalidRun(f"member {member.name!r} would be written outside the job's folder")
            if name not in left:
                is_twice = name in self.manifest.files or name == rundir.MANIFEST
                raise InvalidRun(f"member {member.name!r} is repeated" if is_twice else _unlisted(name))
            del left[name]
            yield name, member


def _unlisted(name: str) -> str:
    return f"{name} is not in the manifest"


@contextmanager
def _opened(path: Path) -> Iterator[_Held]:
    """Open the archive and read its manifest. Raise InvalidRun, with the name of the archive, if it is not valid."""
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
        raise InvalidRun(f"it has no {rundir.MANIFEST} at its start")
    content = _kept(rundir.MANIFEST, tar.pieces(), rundir.LARGEST_DOCUMENT)
    manifest = serialization.decode(content, Manifest, first.name, InvalidRun)
    if manifest.job != first.name.partition("/")[0] or not _is_safe(first.name):
        raise InvalidRun(f"its {rundir.MANIFEST} is of another job")
    return _Held(packed, tar, iterator, manifest, content)


def _passed(path: Path, wanted: Callable[[str], bool]) -> tuple[list[str], dict[str, bytes]]:
    """Read an archive once. Return its faults and the contents of the wanted files. If a fault makes further reading
    unsafe, return only that fault and no contents.
    """
    content: dict[str, bytes] = {}
    with _opening(path) as file:
        packed = Packed(file, os.fstat(file.fileno()).st_size, _SEAL_BYTES)
        try:
            held = _begun(packed)
            misnamed = _misnamed(path, held.manifest.job)
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
            while packed.read(archive_members.CHUNK):
                pass
        except InvalidRun as fault:
            return [str(fault)], {}
    seal = [] if packed.seal == _SEAL_HEAD + packed.digest() else [_UNSEALED]
    return [*misnamed, *seal, *(f"{name} is missing" for name in left), *changed], content


def _misnamed(path: Path, job: str) -> list[str]:
    """Return a list with a fault if the file has the name of another job's archive. A file, and the directory of a job,
    may have any other name.
    """
    name = path.name.removesuffix(SUFFIX)
    if name == job or not (_JOB.fullmatch(name) and _JOB.fullmatch(job)):
        return []
    return [f"it contains job {job}: another job's archive was put in its place, or it was renamed"]


def _hashed(pieces: Iterator[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        update(piece)
        yield piece


def _changed(name: str) -> str:
    return f"{name} does not match the manifest"


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return not {"", ".", ".."} & set(parts) and "\0" not in name


def _is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file are printable ASCII of more than one character."""
    return len(head) > 1 and head.isascii() and head.decode().replace("\n", "").replace("\t", "").isprintable()


def _archive_of(path: Path) -> str:
    """Return a suggestion if `path`, which does not exist, is the name of a job with an archive in the usual folder."""
    usual = Path(own_commands.USUAL, "archive", f"{path.name}{SUFFIX}")
    return f"did you mean {str(usual)!r}? " if usual.is_file() else ""


def refuse_other(path: Path) -> None:
    """Raise ConfigError if a path does not exist, or is of another kind than an archive. A damaged archive is not
    refused.
    """
    with suppress(InvalidRun), _opening(path):
        pass


@contextmanager
def _opening(path: Path) -> Iterator[io.BufferedReader]:
    """Open an archive for reading. If `path` is a pipe, do not block. Raise ConfigError if it is another kind of file,
    and InvalidRun if it is not a regular file.
    """
    if not path.name.endswith(SUFFIX):
        path_kinds.refuse_other(path, _WANTED)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        advice = "" if path.name.endswith(SUFFIX) else f"; {_archive_of(path)}give {_WANTED}"
        raise unreadable(fault, path, advice=advice) from fault
    with about(path):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            safe_folders.close(descriptor)
            raise InvalidRun(f"{path} is not an archive: it is not a regular file")
        with os.fdopen(descriptor, "rb") as file:
            head = file.peek(_HEAD)[:_HEAD]
            kind = next((what for start, what in _OTHERS.items() if head.startswith(start)), None)
            kind = "a text" if kind is None and _is_text(head) else kind
            if kind is not None and not path.name.endswith(SUFFIX):
                raise ConfigError(f"{path} is {kind}, not an archive of a job; give {_WANTED}")
            yield file
