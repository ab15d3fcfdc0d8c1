"""Location of samples in files of tokens: a sample is a sequence of the index, or a run of tokens across documents.

Runs are those of Megatron-LM's GPTDataset. The documents of a file are put into a random order, one after the other. A
sample of N + 1 tokens begins at every Nth token of this order, so that its last token is the first of the next sample.
A sample is read in pieces, one for each document that it touches.
"""

from functools import lru_cache
from typing import Protocol

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.dataset import member_layout
from dlio_hpc.dataset.member_layout import SampleMembers
from dlio_hpc.dataset.sample_layout import Numbers, SampleLayout
from dlio_hpc.dataset.sample_order import mix, permute
from dlio_hpc.dataset.token_index import TokenIndex

_ROUNDS = 4
# Offset of a piece in the file of tokens, its bytes, and its offset in the sample.
Piece = tuple[int, int, int]
# Files whose layouts are kept to compute expected contents.
_KEPT = 8


class FileLayout(Protocol):
    """Location of the samples of a file of tokens. samples: number of samples."""

    samples: int

    def of(self, within: Numbers) -> SampleMembers:
        """Return the pieces of samples. within: numbers of the samples in the file, below `samples`."""

    def one(self, within: int) -> list[Piece]:
        """Return the pieces of one sample. For few samples, this takes less time than of()."""


class Sequences:
    """Samples that are the sequences of the index, one piece each."""

    def __init__(self, index: TokenIndex) -> None:
        self._index = index
        self.samples = len(index.lengths)

    def of(self, within: Numbers) -> SampleMembers:
        sizes = self._index.lengths[within] * np.int64(self._index.item)
        return SampleMembers(np.ones_like(sizes), self._index.pointers[within], sizes, np.zeros_like(sizes))

    def one(self, within: int) -> list[Piece]:
        return [(self._index.pointers.item(within), self._index.lengths.item(within) * self._index.item, 0)]


class Runs:
    """Samples that are runs of tokens across documents in a random order. tokens: tokens of a sample. container: number
    of the file, which selects the order.
    """

    def __init__(self, index: TokenIndex, tokens: int, container: int) -> None:
        documents = len(index.lengths)
        order = np.zeros(0, np.int64)
        if documents:
            keys = [np.uint64(mix(container * _ROUNDS + number)) for number in range(_ROUNDS)]
            order = permute(np.arange(documents, dtype=np.uint64), documents, list(keys)).astype(np.int64)
        lengths = index.lengths[order].astype(np.int64)
        order = order[lengths > 0]  # documents without tokens have no piece
        self._ends = np.cumsum(lengths[lengths > 0])
        self._pointers = index.pointers[order]
        self._item, self._tokens = index.item, tokens
        total = int(self._ends[-1]) if len(self._ends) else 0
        self.samples = max(0, (total - 1) // (tokens - 1))

    def of(self, within: Numbers) -> SampleMembers:
        begins = within * (self._tokens - 1)
        ends = begins + self._tokens
        firsts = np.searchsorted(self._ends, begins, side="right")
        counts = np.searchsorted(self._ends, ends, side="left") - firsts + 1
        samples = np.repeat(np.arange(len(within)), counts)
        documents = np.arange(len(samples)) - np.repeat(np.cumsum(counts) - counts, counts) + firsts[samples]
        document_begins = np.where(documents > 0, self._ends[documents - 1], 0)
        lowest = np.maximum(begins[samples], document_begins)
        sizes = (np.minimum(ends[samples], self._ends[documents]) - lowest) * self._item
        offsets = self._pointers[documents] + (lowest - document_begins) * self._item
        return member_layout.of_pieces(counts, offsets, sizes)

    def one(self, within: int) -> list[Piece]:
        begin, first = within * (self._tokens - 1), 0
        end, pieces = begin + self._tokens, list[Piece]()
        document = int(np.searchsorted(self._ends, begin, side="right"))
        document_begin = int(self._ends[document - 1]) if document else 0
        while begin < end:
            document_end = int(self._ends[document])
            size = (min(end, document_end) - begin) * self._item
            pieces.append((int(self._pointers[document]) + (begin - document_begin) * self._item, size, first))
            first, begin, document_begin, document = first + size, document_end, document_end, document + 1
        return pieces


def of_index(dataset: Dataset, index: TokenIndex, container: int) -> FileLayout:
    """Return the layout of the samples of a file. container: number of the file."""
    if not dataset.joins_documents:
        return Sequences(index)
    return Runs(index, dataset.sample.size // index.item, container)


class TokenFiles:
    """Files of tokens that are generated: lengths of their documents and sizes."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._item = dataset.sample.item_bytes
        self._places = SampleLayout(dataset)

    def lengths(self, container: int) -> Numbers:
        """Return the number of tokens of each sequence of a file."""
        if self._dataset.documents is None and self._dataset.sample.stdev is None:  # a view of one number
            return np.broadcast_to(np.int64(self._dataset.sample.size // self._item), self._dataset.samples_per_file)
        if self._dataset.documents is None:
            return self._places.in_file(container).size // self._item
        lengths = SampleLayout(_of_documents(self._dataset)).in_file(container).size.copy()
        lengths[-1] += self._dataset.tokens_per_file - int(lengths.sum())
        return lengths

    def index(self, container: int) -> TokenIndex:
        """Return the index of a file."""
        lengths = self.lengths(container)
        pointers = (np.cumsum(lengths) - lengths) * self._item
        return TokenIndex(self._dataset.sample.array_dtype, lengths.astype(np.int32), pointers)

    def size(self, container: int) -> int:
        """Return the bytes of a file of tokens."""
        if self._dataset.documents is None:
            return self._places.file_size(container)
        return self._dataset.tokens_per_file * self._item

    def sequences(self) -> int:
        """Return the number of sequences of each file."""
        return self._dataset.documents_per_file


def _of_documents(dataset: Dataset) -> Dataset:
    """Return a dataset whose samples stand for the documents, with a byte for each token."""
    assert dataset.documents is not None
    keys = dataset.documents
    sample = Sample(bytes=keys.tokens, stdev=keys.stdev, seed=dataset.sample.seed)  # type: ignore[arg-type]
    return Dataset("raw", dataset.files, dataset.documents_per_file, sample)


@lru_cache(_KEPT)
def generated(dataset: Dataset, container: int) -> FileLayout:
    """Return the layout of the samples of a generated file, which its index gives as well."""
    return of_index(dataset, TokenFiles(dataset).index(container), container)
