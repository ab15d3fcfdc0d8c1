"""Files of tokens and their indexes: layout, samples across documents, requests, and damage."""

import contextlib
import itertools
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config import workload
from dlio_hpc.config.dataset_keys import Dataset, Documents, Sample
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers, content
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Rows
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset import token_index, token_layout
from dlio_hpc.dataset.sample_layout import Place, SampleLayout
from dlio_hpc.dataset.token_index import TokenIndex
from dlio_hpc.dataset.token_layout import Runs, TokenFiles
from tests.support import written

_WAYS: list[dict[str, Any]] = [{}, {"mode": "framework"}, {"mode": "framework", "mapped": True}]
_WAY_NAMES = ["posix", "pieces", "mapped"]
# The index that IndexedDatasetBuilder of megatron-core 0.16.1 writes for documents of 3, 1 and 5 tokens of type uint16.
_OF_MEGATRON = bytes.fromhex(
    "4d4d494449445800000100000000000000080300000000000000040000000000000003000000010000000500000000000000000000000600"
    "00000000000008000000000000000000000000000000010000000000000002000000000000000300000000000000"
)


def _dataset(**keys: Any) -> Dataset:
    made = {"files": 3, "samples_per_file": 11, "sample": Sample(shape=(9,), dtype="int32"), **keys}
    return Dataset("indexed", **made)


_DATASETS = [
    _dataset(documents=Documents(5, 2)),
    _dataset(documents=Documents(30, 20), sample=Sample(shape=(9,), dtype="int16")),
    _dataset(documents=Documents(1000)),
    _dataset(documents=Documents(1), sample=Sample(bytes=Size(50))),
    _dataset(),
    _dataset(sample=Sample(bytes=Size(500), stdev=Size(90))),
]


def _read(folder: Path, dataset: Dataset, samples: list[int], **keys: Any) -> tuple[list[bytes], Tally]:
    workload = Workload("w", dataset, reader=Reader(**keys))
    reader = FORMATS["indexed"].reader(workload, lambda number: str(folder / str(number)), None)
    places = SampleLayout(dataset).of(np.array(samples, np.uint64))
    rows, tally = np.zeros((len(samples), dataset.largest_in_memory), np.uint8), Tally()
    with contextlib.closing(reader):
        reader.read(places, buffers.over(rows), tally)
    return [row[: place.size].tobytes() for place, row in zip(places, rows, strict=True)], tally


def _tokens(dataset: Dataset, container: int) -> Rows:
    """Bytes of a file of tokens, as the content stream has them."""
    row = np.empty(TokenFiles(dataset).size(container), np.uint8)
    content.fill(row, SampleLayout(dataset).position(container), compressibility(dataset))
    return row


def _in_random_order(dataset: Dataset, container: int) -> list[list[int]]:
    """For each document of a file, in the order in which samples have them, the numbers of its tokens in the file."""
    lengths = TokenFiles(dataset).lengths(container)
    made = Runs(TokenFiles(dataset).index(container), dataset.sample.size // dataset.sample.item_bytes, container)
    begins = (made._pointers // dataset.sample.item_bytes).tolist()
    by_begin = dict(zip((np.cumsum(lengths) - lengths).tolist(), lengths.tolist(), strict=True))
    return [list(range(begin, begin + by_begin[begin])) for begin in begins]


def _place(dataset: Dataset, sample: int) -> Place:
    return next(iter(SampleLayout(dataset).of(np.array([sample], np.uint64))))


def test_an_index_is_that_of_megatron() -> None:
    assert b"".join(token_index.encoded(np.array([3, 1, 5]), "int16")) == _OF_MEGATRON
    index = token_index.decoded(token_index.header(_OF_MEGATRON, len(_OF_MEGATRON)), memoryview(_OF_MEGATRON))
    assert (index.dtype, index.lengths.tolist(), index.pointers.tolist()) == ("uint16", [3, 1, 5], [0, 6, 8])
    assert (index.end, token_index.size(3)) == (18, len(_OF_MEGATRON))


@pytest.mark.parametrize("dataset", _DATASETS, ids=str)
@pytest.mark.parametrize("keys", _WAYS, ids=_WAY_NAMES)
def test_samples_are_runs_of_documents_or_documents(tmp_path: Path, dataset: Dataset, keys: dict[str, Any]) -> None:
    written.write_all(tmp_path, dataset)
    samples = np.random.default_rng(1).permutation(dataset.samples).tolist()
    rows, tally = _read(tmp_path, dataset, samples, **keys)
    fill, item, requests, size = FORMATS["indexed"].expected(dataset), dataset.sample.item_bytes, 0, 0
    for sample, row in zip(samples, rows, strict=True):
        place = _place(dataset, sample)
        expected = np.zeros(place.size, np.uint8)
        fill(expected, place, 0)
        assert row == expected.tobytes()
        size += place.size
        if dataset.documents is None:
            content.fill(expected, place.position, compressibility(dataset))
            assert row == expected.tobytes()
            requests += 1
            continue
        documents = _in_random_order(dataset, place.file)
        step = place.size // item - 1
        wanted = list(itertools.chain(*documents))[place.within * step :][: step + 1]
        assert row == _tokens(dataset, place.file).reshape(-1, item)[wanted].tobytes()
        requests += sum(1 for document in documents if not set(document).isdisjoint(wanted))
    index_bytes = token_index.size(TokenFiles(dataset).sequences())
    assert tally.bytes_read == size
    if not keys:
        assert (tally.requests, tally.opens) == (requests + 3, 2 * 3)
        assert tally.overhead_bytes == 3 * index_bytes
    elif "mapped" not in keys:
        assert (tally.requests, tally.opens) == (requests + 3, requests + 2 * 3)
        assert 3 * token_index.HEADER <= tally.overhead_bytes <= 3 * index_bytes
    else:
        assert (tally.requests, tally.opens) == (3, 3 * 3)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.integers(1, 60), st.integers(1, 30), st.integers(1, 20))
def test_lengths_of_documents_fill_files(tokens: int, samples: int, mean: int, stdev: int) -> None:
    dataset = _dataset(samples_per_file=samples, sample=Sample(bytes=Size(tokens)), documents=Documents(mean, stdev))
    for container in range(dataset.files):
        lengths = TokenFiles(dataset).lengths(container)
        assert lengths.min() >= 1
        assert lengths.sum() == samples * (tokens - 1) + 1
        assert token_layout.generated(dataset, container).samples == samples


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_samples_located_one_by_one_are_those_located_together(tokens: int, lengths: list[int]) -> None:
    ends = np.cumsum(lengths) * 2
    index = TokenIndex("int16", np.array(lengths, np.int32), ends - np.array(lengths) * 2)
    for layout in (Runs(index, tokens, 5), token_layout.Sequences(index)):
        members = layout.of(np.arange(layout.samples))
        firsts = iter(members.firsts.tolist())
        together = [[(at, size, next(firsts)) for at, size in pieces] for pieces in members.by_sample()]
        assert [layout.one(number) for number in range(layout.samples)] == together


def test_documents_differ_between_files_and_have_the_lengths_that_are_asked() -> None:
    dataset = _dataset(samples_per_file=4000, documents=Documents(20, 6))
    first, second = (TokenFiles(dataset).lengths(container) for container in (0, 1))
    assert first.tolist() != second.tolist()
    assert first[:-1].mean() == pytest.approx(20, rel=0.02)
    assert first[:-1].std() == pytest.approx(6, rel=0.1)


def test_documents_without_tokens_have_no_piece() -> None:
    index = TokenIndex("uint8", np.array([0, 4, 0, 0, 5, 0], np.int32), np.array([0, 0, 4, 4, 4, 9]))
    made = Runs(index, 4, 0)
    assert made.samples == 2
    members = made.of(np.array([0, 1]))
    assert members.sizes.min() > 0
    assert members.sizes.sum() == 2 * 4
    assert Runs(TokenIndex("uint8", np.zeros(0, np.int32), np.zeros(0, np.int64)), 4, 0).samples == 0


def _with(at: int, value: bytes) -> bytes:
    return _OF_MEGATRON[:at] + value + _OF_MEGATRON[at + len(value) :]


_DAMAGE = [
    (b"", "begins with no bytes, but an index of tokens"),
    (b"foreign file", "begins with 666f726569676e2066, but an index of tokens"),
    (_OF_MEGATRON[:20], "is truncated: it has 20 bytes, but a header has 34"),
    (_OF_MEGATRON[:-1], "is truncated: it states 3 sequences at byte 18 and 4 .* at byte 26, which take 102 bytes"),
    (_OF_MEGATRON + b"\0", "has bytes after its end"),
    (_OF_MEGATRON + bytes(3), "has a mode for each sequence at byte 102, as multimodal"),
    (_with(9, b"\2"), "has the version 2 at byte 9"),
    (_with(17, b"\x09"), "has the type 9 of tokens at byte 17"),
    (_with(18, struct.pack("<Q", 2**63)), "is truncated: it states 9223372036854775808 sequences"),
    (_with(34, struct.pack("<i", -1)), "states -1 tokens for sequence 0 at byte 34"),
    (
        _with(46, struct.pack("<q", 2)),
        "states byte 2 for sequence 0 at byte 46, but the first sequence begins at byte 0",
    ),
    (_with(54, struct.pack("<q", 4)), "states byte 4 for sequence 1 at byte 54, but sequence 0 ends at byte 6"),
    (_with(62, struct.pack("<q", -5)), "states byte -5 for sequence 2 at byte 62"),
]


@pytest.mark.parametrize(("data", "words"), _DAMAGE, ids=[words for _, words in _DAMAGE])
@pytest.mark.parametrize("keys", _WAYS, ids=_WAY_NAMES)
def test_damaged_indexes_are_named(tmp_path: Path, data: bytes, words: str, keys: dict[str, Any]) -> None:
    dataset = _dataset(files=1, samples_per_file=3, sample=Sample(shape=(3,), dtype="int16"))
    written.write_all(tmp_path, dataset)
    (tmp_path / "1").write_bytes(data)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/1 .*{words}"):
        _read(tmp_path, dataset, [0], **keys)


@pytest.mark.parametrize("keys", _WAYS, ids=_WAY_NAMES)
def test_indexes_of_other_files_are_named(tmp_path: Path, keys: dict[str, Any]) -> None:
    dataset, larger = _dataset(documents=Documents(5, 2)), _dataset(samples_per_file=12, documents=Documents(5, 2))
    written.write_all(tmp_path, dataset)
    written.write(tmp_path / "1", _dataset(samples_per_file=10, documents=Documents(5, 2)), 1)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/1 describes 10 samples, but sample 10 of the file was expected"):
        _read(tmp_path, dataset, [10], **keys)
    written.write(tmp_path / "1", _dataset(sample=Sample(bytes=Size(7))), 1)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/1 "):
        _read(tmp_path, dataset, [10], **keys)
    written.write(tmp_path / "1", larger, 1)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0 ends at byte"):
        _read(tmp_path, dataset, list(range(11)), **keys)


@pytest.mark.parametrize("keys", _WAYS, ids=_WAY_NAMES)
def test_large_indexes_are_read_whole(tmp_path: Path, keys: dict[str, Any]) -> None:
    dataset = _dataset(files=1, samples_per_file=60_001, sample=Sample(bytes=Size(3)))
    written.write_all(tmp_path, dataset)
    assert (tmp_path / "1").stat().st_size > 1 << 20
    rows, tally = _read(tmp_path, dataset, [60_000], **keys)
    assert rows[0] == (tmp_path / "0").read_bytes()[-3:]
    if not keys:
        assert tally.overhead_bytes == os.stat(tmp_path / "1").st_size


def test_keys_that_no_file_of_tokens_can_have_are_refused() -> None:
    for bad, words in (
        ({"sample": Sample(shape=(4,), dtype="float16")}, "cannot be float16"),
        ({"documents": Documents(5), "sample": Sample(bytes=Size(9), stdev=Size(2))}, "leave sample.stdev null"),
        ({"documents": Documents(5), "sample": Sample(shape=(1,), dtype="int32")}, "of two or more tokens"),
        ({"sample": Sample(bytes=Size(2**31))}, "at most 2147483647 tokens"),
    ):
        with pytest.raises(ValueError, match=words):
            _dataset(**bad)
    keys = ("dataset.format=indexed", "reader.mode=framework", "reader.transfer_size=4KiB")
    with pytest.raises(ConfigError, match="in mode=framework, Megatron's IndexedDataset chooses the request size"):
        workload.load("demo", keys)
    shared = ("dataset.format=indexed", "dataset.files=1", "dataset.file_access=shared", "reader.read_threads=1")
    together = (*shared, "reader.access=collective")
    workload.load("demo", together)
    with pytest.raises(ConfigError, match="samples across documents share tokens; set access=independent"):
        workload.load("demo", (*together, "dataset.documents.tokens=100"))
    with pytest.raises(ValueError, match=re.escape("documents is for format=indexed, not raw")):
        Dataset("raw", 1, 1, Sample(bytes=Size(9)), documents=Documents(3))
