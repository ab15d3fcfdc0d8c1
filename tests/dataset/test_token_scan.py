"""Existing files of tokens: the scan reads the index beside each, every loader reads each sample once, and files that
do not fit are named.
"""

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.config import workload
from dlio_hpc.config.reader_keys import LoaderName
from dlio_hpc.core.loaders.loader_choice import LOADERS
from dlio_hpc.dataset import dataset_folder, dataset_scan, existing_files, stored_parts, token_index
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.existing_files import FileStatus
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.dataset.token_layout import Runs
from tests.dataset import test_existing
from tests.support import existing

_LENGTHS = [[5, 90, 1, 33, 7, 60], [100], [2, 2, 2, 2, 64, 19, 20]]
_WAYS: list[dict[str, Any]] = [{}, {"mode": "framework"}, {"mode": "framework", "mapped": True}]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    existing.forget()
    yield
    existing.forget()


def _check(
    folder: Path, contents: list[bytes], loader: LoaderName = "native", size: int | None = None, **keys: Any
) -> None:
    """Check that the ranks read each sample once an epoch."""
    made = existing.unscanned("indexed", "*.bin", {"sample_bytes": size}, loader=loader, **{"batch_size": 3, **keys})
    made = existing.scanned(folder / "data", folder, made)
    assert made.dataset.size == sum(map(len, contents))
    test_existing._check_epochs(loader, made, folder / "data", contents)


def _runs(folder: Path, tokens: int) -> list[bytes]:
    """Bytes of the samples of `tokens` tokens, in the order of their numbers."""
    samples = []
    for number in range(len(_LENGTHS)):
        data, index = ((folder / f"{number}{end}").read_bytes() for end in (".bin", ".idx"))
        made = Runs(token_index.decoded(token_index.header(index, len(index)), memoryview(index)), tokens, number)
        for pieces in made.of(np.arange(made.samples)).by_sample():
            samples += [b"".join(data[offset : offset + size] for offset, size in pieces)]
    return samples


@pytest.mark.parametrize("keys", _WAYS, ids=str)
@pytest.mark.parametrize("loader", LOADERS)
def test_sequences_are_samples(tmp_path: Path, loader: LoaderName, keys: dict[str, Any]) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    _check(tmp_path, existing.tokens(tmp_path / "data", _LENGTHS), loader, **keys)


@pytest.mark.parametrize("keys", [*_WAYS, {"shuffle": {"files": True, "samples": True}}, {"keep_open": True}], ids=str)
@pytest.mark.parametrize(("dtype", "item"), [("uint16", 2), ("int32", 4), ("int64", 8)])
def test_runs_of_tokens_are_samples(tmp_path: Path, dtype: str, item: int, keys: dict[str, Any]) -> None:
    existing.tokens(tmp_path / "data", _LENGTHS, dtype)
    contents = _runs(tmp_path / "data", 17)
    assert len(contents) == (195 // 16) + (99 // 16) + (110 // 16)
    _check(tmp_path, contents, size=17 * item, **keys)


def test_a_workload_of_generated_tokens_reads_existing_ones(tmp_path: Path) -> None:
    """The documents of existing files replace those that the workload would generate, and the blend stays."""
    existing.tokens(tmp_path / "data", _LENGTHS, "int32")
    keys = ("dataset.existing={glob: '*.bin', sample_bytes: 68}", "reader.batch_size=2", "reader.read_threads=1")
    made = existing.scanned(tmp_path / "data", tmp_path, workload.load("megatron_gpt", keys))
    assert (made.dataset.documents, made.dataset.blend) == (None, (0.7, 0.15, 0.15))
    bounds = [0, 12, 18, 24]
    samples = Order(made.dataset, made.reader, 0).samples(0, made.dataset.samples)
    assert (made.dataset.samples, np.histogram(samples, bounds)[0].tolist()) == (24, [16, 4, 4])


def test_documents_without_tokens_are_left_out_of_runs(tmp_path: Path) -> None:
    existing.tokens(tmp_path / "data", [[0, 40, 0, 0, 25, 0]])
    made = existing.unscanned("indexed", "*.bin", {"sample_bytes": 34})
    assert existing.scanned(tmp_path / "data", tmp_path, made).dataset.samples == 4


def test_the_index_is_a_stored_file_of_the_container(tmp_path: Path) -> None:
    existing.tokens(tmp_path / "data", _LENGTHS)
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("indexed", "*.bin")).dataset
    path = dataset_folder.paths(StoredDataset("d", made, ""))
    assert [path(number) for number in range(stored_parts.total(made))] == [
        f"d/{number}.{end}" for number in range(3) for end in ("bin", "idx")
    ]


def _altered(at: int, value: bytes) -> Callable[[Path], object]:
    def alter(folder: Path) -> None:
        data = bytearray((folder / "2.idx").read_bytes())
        data[at : at + len(value)] = value
        (folder / "2.idx").write_bytes(data)

    return alter


_FAULTS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "2.idx").unlink(), "2.idx is missing"),
    (lambda folder: (folder / "2.idx").write_bytes(b""), "2.idx begins with no bytes"),
    (lambda folder: os.truncate(folder / "2.idx", 60), "2.idx is truncated: it states 7 sequences at byte 18"),
    (lambda folder: os.truncate(folder / "2.bin", 221), "2.idx points outside .*2.bin: .* byte 222, .* 221 bytes"),
    (_altered(0, b"x"), "2.idx begins with 784d4944"),
    (_altered(18, struct.pack("<Q", 2**62)), "2.idx is truncated: it states 4611686018427387904 sequences"),
    (_altered(34, struct.pack("<i", 3)), "states byte 4 for sequence 1 at byte 70, but sequence 0 ends at byte 6"),
    (_altered(34, struct.pack("<i", -2)), "2.idx states -2 tokens for sequence 0 at byte 34"),
    (lambda folder: existing.tokens(folder, [[1], [1], [1, 0, 1]]), "2.idx: sequence 1, .* at byte 38, has no tokens"),
    (lambda folder: (folder / "2.bin").write_bytes(b"\x89HDF\r\n\x1a\n"), "2.idx points outside|an HDF5 file"),
]  # fmt: skip


@pytest.mark.parametrize(("alter", "words"), _FAULTS, ids=[words for _, words in _FAULTS])
def test_files_that_do_not_fit_are_named(tmp_path: Path, alter: Callable[[Path], object], words: str) -> None:
    existing.tokens(tmp_path / "data", _LENGTHS)
    alter(tmp_path / "data")
    with pytest.raises(ConfigError, match=words):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("indexed", "*.bin"))


@pytest.mark.parametrize(
    ("glob", "size", "words"),
    [
        ("*", None, "0.idx does not end with .bin, as files of format=indexed do; choose a pattern such as"),
        ("*.bin", 33, r"tokens of 2 bytes \(uint16\), so existing.sample_bytes=33 is not a whole number"),
        ("*.bin", 2, "is not a whole number of two or more tokens"),
        ("*.bin", 2000, "the files hold no samples"),
    ],
)
def test_patterns_and_sizes_that_do_not_fit_are_refused(
    tmp_path: Path, glob: str, size: int | None, words: str
) -> None:
    existing.tokens(tmp_path / "data", _LENGTHS)
    with pytest.raises(ConfigError, match=words):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("indexed", glob, {"sample_bytes": size}))


def test_files_with_different_types_of_tokens_are_refused(tmp_path: Path) -> None:
    existing.tokens(tmp_path / "data" / "a", _LENGTHS)
    existing.tokens(tmp_path / "data" / "b", _LENGTHS, "int32")
    made = existing.unscanned("indexed", "*/*.bin", {"sample_bytes": 64})
    with pytest.raises(ConfigError, match=r"b/0[.]bin holds samples of int32 of shape"):
        existing.scanned(tmp_path / "data", tmp_path, made)


@pytest.mark.parametrize("name", ["1.bin", "1.idx"])
def test_changes_of_either_file_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    data = tmp_path / "data"
    existing.tokens(data, _LENGTHS)
    made = existing.scanned(data, tmp_path, existing.unscanned("indexed", "*.bin"))
    dataset_scan.check_unchanged(str(data), made.dataset)
    status = existing_files.status

    def later(path: str) -> FileStatus:
        known = status(path)
        return known._replace(changed=known.changed + 2 * 10**9) if path.endswith(name) else known

    with monkeypatch.context() as patched:
        patched.setattr(existing_files, "status", later)
        with pytest.raises(InvalidRun, match=r"1[.]bin has changed since the dataset was scanned"):
            dataset_scan.check_unchanged(str(data), made.dataset)
        again = existing.scanned(data, tmp_path, existing.unscanned("indexed", "*.bin"), is_kept=False)
        assert again.dataset.scan.index != made.dataset.scan.index  # type: ignore[union-attr]
    (data / name).unlink()
    with pytest.raises(InvalidRun, match=f"{name} is missing.*submit the workload again"):
        dataset_scan.check_unchanged(str(data), made.dataset)
