"""Existing webdataset shards (tar): the scan finds members and samples, every loader reads each sample once, and
archives that are damaged, foreign or hostile are named by file and offset."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.config import workload
from dlio_hpc.config.reader_keys import LoaderName, Shuffle
from dlio_hpc.core.loaders.loader_choice import LOADERS
from dlio_hpc.dataset import tar_scan
from tests.dataset import test_existing
from tests.support import existing, rings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

_SHUFFLES = [Shuffle(files, samples, 3) for files in (False, True) for samples in (False, True)]
_FORMS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
_LONG = "folder/" * 40


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    existing.forget()
    yield
    existing.forget()


def _check(folder: Path, contents: list[bytes], loader: LoaderName = "native", **keys: Any) -> None:
    """Check that the ranks read each sample of the shards below `folder` once an epoch."""
    made = existing.unscanned("tar", "*.tar", loader=loader, **{"batch_size": 3, **keys})
    made = existing.scanned(folder / "data", folder, made)
    assert made.dataset.size == sum(map(len, contents))
    test_existing._check_epochs(loader, made, folder / "data", contents)


@pytest.mark.parametrize("shuffle", _SHUFFLES, ids=lambda s: f"files={s.files},samples={s.samples}")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", LOADERS)
def test_shards_with_different_numbers_of_samples(
    tmp_path: Path, loader: LoaderName, mode: str, threads: int, shuffle: Shuffle
) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    contents = existing.shards(tmp_path / "data")
    _check(tmp_path, contents, loader, mode=mode, read_threads=threads, shuffle=structs.asdict(shuffle))


@pytest.mark.parametrize(
    "keys",
    [
        *existing.WAYS,
        {"mode": "framework", "transfer_size": "1 MiB", "interleave": 4},
    ],
    ids=str,
)
def test_other_ways_to_read(tmp_path: Path, keys: dict[str, Any]) -> None:
    if "engine" in keys:
        rings.required()
    _check(tmp_path, existing.shards(tmp_path / "data", (6, 6, 6)), **keys)


def test_a_workload_of_generated_shards_reads_existing_ones(tmp_path: Path) -> None:
    """The members of existing samples replace those that the workload would generate."""
    contents = existing.shards(tmp_path / "data", (3, 4))
    glob = ("dataset.existing={glob: '*.tar'}", "reader.batch_size=2", "reader.read_threads=1")
    made = existing.scanned(tmp_path / "data", tmp_path, workload.load("webdataset_laion", glob))
    assert made.dataset.arrays is None
    test_existing._check_epochs("native", made, tmp_path / "data", contents)


def _add(archive: tarfile.TarFile, name: str, data: bytes, **fields: Any) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    for field, value in fields.items():
        setattr(entry, field, value)
    archive.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("form", _FORMS, ids=["ustar", "gnu", "pax"])
def test_names_of_any_length(tmp_path: Path, form: int, mode: str) -> None:
    """GNU's headers of long names, extended headers of pax, and the prefix of ustar."""
    folder = "a/" * 60 if form == tarfile.USTAR_FORMAT else _LONG
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data" / "0.tar", "w", format=form) as archive:
        for number in range(5):
            _add(archive, f"{folder}{number}.jpg", b"%d image" % number, mtime=1.5, uname="müller")
            _add(archive, f"{folder}{number}.txt", b"text")
    _check(tmp_path, [b"%d imagetext" % number for number in range(5)], mode=mode)


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_shards_that_gnu_tar_wrote(tmp_path: Path, form: str) -> None:
    """tar writes all entries of a folder, whose names begin with ./ here."""
    if shutil.which("tar") is None:
        pytest.skip("needs GNU tar")
    source, data = tmp_path / "source", tmp_path / "data"
    source.mkdir()
    data.mkdir()
    contents = []
    for number in range(7):
        parts = [np.random.default_rng(number).bytes(300 * number + 1), b"%d" % number]
        for extension, part in zip(("jpg", "txt"), parts, strict=True):
            (source / f"{number}.{extension}").write_bytes(part)
        contents.append(b"".join(parts))
    subprocess.run(
        ["tar", f"--format={form}", "--sort=name", "-b", "3", "-cf", data / "0.tar", "-C", source, "."], check=True
    )
    for mode in ("posix", "framework"):
        _check(tmp_path, contents, mode=mode)


def _shard(
    path: Path, change: Callable[[tarfile.TarFile], None] = lambda _: None, form: int = tarfile.GNU_FORMAT
) -> None:
    """Write an archive with two samples of one file each, and what `change` adds to it."""
    with tarfile.open(path, "w", format=form) as archive:
        _add(archive, "0.jpg", bytes(700))
        _add(archive, "1.jpg", b"\1" * 600)
        change(archive)


def _with(name: str, data: bytes = b"", form: int = tarfile.GNU_FORMAT, **fields: Any) -> Callable[[Path], None]:
    """Return a function that writes an archive with a third entry, at byte 3072."""
    return lambda path: _shard(path, lambda archive: _add(archive, name, data, **fields), form)


def _packed(compress: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        _shard(path)
        path.write_bytes(compress(path.read_bytes()))

    return write


def _changed(at: int, value: bytes, is_sealed: bool = True) -> Callable[[Path], None]:
    """Return a function that writes an archive with other bytes at an offset. is_sealed: whether to correct the
    checksum of the second header.
    """

    def write(path: Path) -> None:
        _shard(path)
        content = bytearray(path.read_bytes())
        content[at : at + len(value)] = value
        if is_sealed:
            header = content[1536:2048]
            header[148:156] = b" " * 8
            content[1536 + 148 : 1536 + 156] = b"%06o\0 " % sum(header)
        path.write_bytes(content)

    return write


def _cut(size: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        _shard(path)
        os.truncate(path, size)

    return write


def _pax(**properties: str) -> Callable[[Path], None]:
    return _with("2.jpg", b"data", tarfile.PAX_FORMAT, pax_headers=properties)


def _global(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"path": "x.jpg"}) as archive:
        _add(archive, "0.jpg", bytes(700))


def _extended(data: bytes) -> Callable[[Path], None]:
    """Return a function that writes an archive whose third entry is an extended header with these data."""
    return _with("x", data, type=tarfile.XHDTYPE)


_REFUSED: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: path.write_text("no data at all, " * 100), "is not a tar file: the checksum of its first header"),
    (_packed(gzip.compress), "is compressed with gzip; .* unpack it with gunzip"),
    (_packed(bz2.compress), "is compressed with bzip2; .* unpack it with bunzip2"),
    (_packed(lzma.compress), "is compressed with xz; .* unpack it with unxz"),
    (lambda path: path.touch(), "is truncated: it has 0 bytes, but no end of the archive .* at byte 0"),
    (_cut(1700), "is truncated: it has 1700 bytes, but no end of the archive .* at byte 1536"),
    (_cut(2100), "is truncated: '1.jpg', whose header is at byte 1536, ends at byte 2648, but the file has 2100 bytes"),
    (_cut(3072), "is truncated: it has 3072 bytes, but no end of the archive .* at byte 3072"),
    (_changed(1536, b"7", is_sealed=False), "is corrupted: the header at byte 1536 has a wrong checksum"),
    (_changed(1536 + 124, b"-0000000001"), "is corrupted: the header at byte 1536 has no valid size"),
    (_changed(1536 + 124, b"\xff" * 12), "is corrupted: the header at byte 1536 has no valid size"),
    (_changed(1536 + 124, b"77777777777"), "'1.jpg', whose header is at byte 1536, ends at byte 8589936639, but"),
    (_changed(1536 + 124, b"\x80" + b"\xff" * 11), "'1.jpg', whose header is at byte 1536, ends at byte 30948"),
    (_with("2.jpg", type=tarfile.SYMTYPE, linkname="0.jpg"), "'2.jpg' at byte 3072 is a symbolic link, no file"),
    (_with("2.jpg", type=tarfile.LNKTYPE, linkname="0.jpg"), "'2.jpg' at byte 3072 is a hard link, no file"),
    (_with("2.jpg", type=tarfile.SYMTYPE, linkname=_LONG), "'2.jpg' at byte 4096 is a symbolic link, no file"),
    (_with("2.jpg", type=tarfile.CHRTYPE), "'2.jpg' at byte 3072 is a device, no file"),
    (_with("2.jpg", type=tarfile.FIFOTYPE), "'2.jpg' at byte 3072 is a FIFO, no file"),
    (_with("2.jpg", type=tarfile.GNUTYPE_SPARSE), "'2.jpg' at byte 3072 is a sparse file, no file"),
    (_with("2.jpg", type=b"V"), "'2.jpg' at byte 3072 is an entry of the type b'V', no file"),
    (_with("/etc/2.jpg"), "'/etc/2.jpg' at byte 3072 has an absolute path"),
    (_with("a/../../2.jpg"), "'a/../../2.jpg' at byte 3072 has a path that leads out of its folder"),
    (_with("\x1b[31m/../2.jpg"), r"'\?\[31m/../2.jpg' at byte 3072 has a path"),
    (_with("1.JPG"), "the sample 1 has two files with the extension .jpg; the second is at byte 3072"),
    (_with("1.jpg", b"again"), "the sample 1 has two files with the extension .jpg; the second is at byte 3072"),
    (_with("2.jpg"), "the sample at byte 3072 has no bytes"),
    (_pax(**{"GNU.sparse.major": "1"}), "at byte 3072 describes a sparse file"),
    (_pax(size="99999"), "is truncated: '2.jpg', whose header is at byte 4096, ends at byte 104607"),
    (_pax(size="-5"), "the header at byte 3072 has no valid size"),
    (_pax(path="../2.jpg"), "'../2.jpg' at byte 4096 has a path that leads out of its folder"),
    (_global, "gives all entries of the archive one name or size"),
    (_extended(b"9999999 path=x\n"), "the header at byte 3072 has an invalid record at byte 0 of its data"),
    (_extended(b"nonsense"), "the header at byte 3072 has an invalid record at byte 0 of its data"),
    (_extended(b"9 path=x\n9 a=b"), "the header at byte 3072 has an invalid record at byte 9 of its data"),
    (_extended(bytes(2 << 20)), "the header at byte 3072 states 2097152 bytes for the name or properties"),
]  # fmt: skip


def _long_link(size: int) -> Callable[[Path], None]:
    """Return a function that writes an archive whose first entry is a long name of a link, of a size in base 256."""

    def write(path: Path) -> None:
        _shard(path)
        header = bytearray(tarfile.TarInfo("././@LongLink").tobuf(tarfile.GNU_FORMAT))
        header[124:136] = b"\x80" + size.to_bytes(11, "big")
        header[156:157] = tarfile.GNUTYPE_LONGLINK
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        path.write_bytes(bytes(header) + path.read_bytes())

    return write


@pytest.mark.parametrize("size", [1 << 40, 1 << 63, 1 << 80])
def test_a_long_name_that_is_larger_than_the_archive_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "data").mkdir()
    _long_link(size)(tmp_path / "data" / "0.tar")
    with pytest.raises(ConfigError, match=f"0.tar is truncated: .*ends at byte {size + 512}"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("tar", "*.tar"))


@pytest.mark.parametrize("loader", ["native", "pytorch"])
def test_sizes_in_extended_headers_hold_from_any_sample_on(tmp_path: Path, loader: LoaderName) -> None:
    """Ranks begin to read within a shard. The plain header of a member states another size than its extended one."""
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "0.tar"
    contents = [b"%d" % number * (700 + 100 * number) for number in range(7)]
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for number, data in enumerate(contents):
            _add(archive, f"{number}.jpg", data, pax_headers={"size": str(len(data))})
    with tarfile.open(path) as archive:
        headers = [member.offset_data - 512 for member in archive.getmembers()]
    content = bytearray(path.read_bytes())
    for begin in headers:
        header = content[begin : begin + 512]
        header[124:136], header[148:156] = b"00000000000\0", b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        content[begin : begin + 512] = header
    path.write_bytes(content)
    shuffle = structs.asdict(Shuffle(files=False, samples=False))
    _check(tmp_path, contents, loader, mode="framework", shuffle=shuffle, batch_size=2)


@pytest.mark.parametrize(("write", "words"), _REFUSED, ids=[words for _, words in _REFUSED])
def test_other_archives_are_refused(tmp_path: Path, write: Callable[[Path], None], words: str) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "0.tar")
    with pytest.raises(ConfigError, match=f"^{tmp_path}/data/0.tar(: | ).*{words}"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("tar", "*.tar"))


def test_entries_that_are_no_samples_are_left_out(tmp_path: Path) -> None:
    """What follows the end of an archive is no part of it, as for tarfile and webdataset."""
    data = tmp_path / "data"
    data.mkdir()

    def more(archive: tarfile.TarFile) -> None:
        _add(archive, "LICENSE", bytes(999))
        _add(archive, ".hidden", b"x")
        _add(archive, "__meta__/0.json", b"{}")
        _add(archive, "folder.d", b"", type=tarfile.DIRTYPE)
        _add(archive, "folder.d/2.seg.png", b"mask")
        _add(archive, "folder.d/2.jpg", b"image")
        _add(archive, "1.txt", b"not next to its image")

    _shard(data / "0.tar", more)
    with open(data / "0.tar", "ab") as file:
        file.write(b"more" * 1000)
    contents = [bytes(700), b"\1" * 600, b"maskimage", b"not next to its image"]
    for mode in ("posix", "framework"):
        _check(tmp_path, contents, mode=mode)


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_shards_that_change_after_the_scan_are_named(tmp_path: Path, mode: str) -> None:
    data = tmp_path / "data"
    contents = existing.shards(data, (6, 6))
    made = existing.scanned(data, tmp_path, existing.unscanned("tar", "*.tar", mode=mode, batch_size=3))
    size = (data / "00001.tar").stat().st_size
    for left in (3000, None):
        if left is None:
            (data / "00001.tar").unlink()
        else:
            os.truncate(data / "00001.tar", left)
        with pytest.raises(InvalidRun, match=f"{data}/00001.tar.*submit the workload again"):
            test_existing._check_epochs("native", made, data, contents)
    if mode == "framework":
        (data / "00001.tar").write_bytes(bytes(size))
        with pytest.raises(InvalidRun, match=r"00001[.]tar is corrupted, or has changed since the dataset was scanned"):
            test_existing._check_epochs("native", made, data, contents)


def test_the_scan_reads_headers_and_not_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large members are passed over; the headers of small ones come in blocks of 64 KiB."""
    requests: list[int] = []
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        requests.append(size)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    for size, most in ((1 << 20, 20 * 1024), (100, 128 << 10)):
        with tarfile.open(tmp_path / "0.tar", "w") as archive:
            for number in range(16):
                _add(archive, f"{number}.bin", bytes(size))
        requests.clear()
        descriptor = os.open(tmp_path / "0.tar", os.O_RDONLY)
        made = tar_scan.scan("0.tar", descriptor, (tmp_path / "0.tar").stat().st_size)
        os.close(descriptor)
        assert made.samples.sizes.tolist() == [size] * 16
        assert sum(requests) <= most + (64 << 10)
