"""Scan of an existing file of tokens: its samples are found in the index beside it."""

import os

import numpy as np

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import ITEM_BYTES, Dataset
from dlio_hpc.dataset import token_index
from dlio_hpc.dataset.sample_index import Array, FileSamples, ScannedFile
from dlio_hpc.dataset.token_index import TokenIndex

_LEAVE_OUT = "choose a pattern that leaves it out, or write the files again"


def scan(path: str, index_path: str, size: int, dataset: Dataset) -> ScannedFile:
    """Return the samples of a file of tokens: runs of tokens if `existing.sample_bytes` is set, otherwise sequences.
    size: size of the file in bytes. Raise ConfigError if the index is no index, or does not fit the file.
    """
    index = _read(index_path)
    if index.end > size:
        raise ConfigError(
            f"{index_path} points outside {path}: its sequences end at byte {index.end}, but the file has {size} "
            f"bytes; {_LEAVE_OUT}"
        )
    if dataset.joins_documents:
        assert dataset.existing is not None
        return _runs(path, index, dataset.existing.sample_bytes or 0)
    lengths = index.lengths.astype(np.int64)
    if not lengths.all():
        at = int(lengths.argmin())
        raise ConfigError(
            f"{index_path}: sequence {at}, whose length is at byte {token_index.HEADER + 4 * at}, has no tokens; set "
            "existing.sample_bytes, so that samples are runs of tokens across documents"
        )
    return ScannedFile(FileSamples(0, lengths * index.item))


def _read(path: str) -> TokenIndex:
    """Read an index. Nothing is read of a file whose header does not fit its size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        known = token_index.header(os.pread(descriptor, token_index.HEADER, 0), os.fstat(descriptor).st_size)
        return token_index.decoded(known, np.asarray(np.memmap(path, mode="r")))
    except token_index.MalformedIndex as fault:
        raise ConfigError(f"{path} {fault}; {_LEAVE_OUT}") from fault
    finally:
        os.close(descriptor)


def _runs(path: str, index: TokenIndex, sample_bytes: int) -> ScannedFile:
    tokens, rest = divmod(sample_bytes, index.item)
    if rest or tokens < 2:
        raise ConfigError(
            f"{path} has tokens of {index.item} bytes ({index.dtype}), so existing.sample_bytes={sample_bytes} is not "
            f"a whole number of two or more tokens; {sample_bytes} tokens are {sample_bytes * index.item} bytes. For "
            f"sequences of N tokens, set it to N + 1 tokens, such as {2049 * index.item}"
        )
    total = int(index.lengths.sum(dtype=np.int64))
    count = max(0, (total - 1) // (tokens - 1))
    dtype = index.dtype if index.dtype in ITEM_BYTES else np.dtype(index.dtype).newbyteorder("<").str
    return ScannedFile(FileSamples(0, np.full(count, sample_bytes, np.int64)), Array((tokens,), dtype))
