"""Prediction of the requests with which a workload reads its samples. The requests follow from the keys of the
workload, without a run. Requests for metadata, such as the index of an HDF5 file, are not predicted.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config import reader_keys
from dlio_hpc.config.dataset_keys import TFRECORD_FRAME
from dlio_hpc.config.workload import TENSORFLOW_BUFFER, Workload
from dlio_hpc.dataset import rank_shares
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.programs.files.library_marks import PANDAS_BUFFER

Integers = npt.NDArray[np.int64]

# Size in bytes of the chunk cache of an HDF5 dataset, and of the buffer through which HDF5 reads contiguous data
# (H5Pset_sieve_buf_size).
_CHUNK_CACHE, SIEVE = 1 << 20, 64 << 10


class RequestColumns(NamedTuple):
    """Requests of one reader (a rank or a worker process), in the order in which it makes them. file: number of the
    file. offset, length: in bytes.
    """

    file: Integers
    offset: Integers
    length: Integers


def samples_of(workload: Workload, ranks: int, rank: int) -> int:
    """Return the number of samples that a rank reads in an epoch."""
    first, last = rank_shares.positions(workload, ranks, rank, 0)
    return last - first


def of_epoch(workload: Workload, ranks: int, rank: int, epoch: int, most: int) -> list[RequestColumns]:
    """Return the requests of a rank in an epoch, for each of its worker processes. A rank without worker processes has
    one element. most: number of samples to predict at most.
    """
    first, last = rank_shares.positions(workload, ranks, rank, 0)
    order = Order(workload.dataset, workload.reader, epoch, rank, ranks)
    samples = order.samples(first, min(last, first + most)).astype(np.int64)
    batch = workload.reader.batch_size
    if order.ascending and len(samples):
        samples = np.concatenate([np.sort(samples[at : at + batch]) for at in range(0, len(samples), batch)])
    workers = workload.reader.read_threads if workload.reader.loader == "pytorch" else 1
    worker = np.arange(len(samples)) // batch % workers
    return [_of_samples(workload, samples[worker == number]) for number in range(workers)]


def _of_samples(workload: Workload, samples: Integers) -> RequestColumns:
    dataset, reader = workload.dataset, workload.reader
    file, within = np.divmod(samples, dataset.samples_per_file)
    if reader_keys.by_streams(dataset, reader) or (dataset.facts.holds_text and reader.mode == "framework"):
        return _of_streams(workload, file, within)
    if reader.mode == "framework" and dataset.facts.loads_whole and not dataset.facts.chooses_requests:
        return _of_files(workload, file)
    if dataset.is_chunked:
        return _of_chunks(workload, file, within)
    size = dataset.sample_bytes
    if dataset.facts.holds_chunks and reader.transfer_size is not None and reader.transfer_size > size:
        return _of_slabs(file, within * size, size, reader.transfer_size)
    if dataset.facts.holds_chunks and reader.mode == "framework":
        arrays = dataset.arrays or (size,)
        ends = np.cumsum(np.array(arrays, np.int64) * dataset.samples_per_file)
        pieces = _of_arrays(workload, file, within, arrays)
        opened = np.repeat(np.arange(len(file)), len(arrays)) if reader.reopen else pieces.file
        return _through_sieve(pieces, ends, opened)
    most = workload.request_size
    if dataset.facts.holds_records and reader.verifies:  # whole records are read, with their checksums
        size, most = size + TFRECORD_FRAME, None
    return _cut(*_of_arrays(workload, file, within, dataset.arrays or (size,)), most)


def _cut(file: Integers, offset: Integers, length: Integers, most: int | None) -> RequestColumns:
    """Return the requests for these ranges of bytes. A request has at most `most` bytes."""
    if most is None or not len(length) or int(length.max()) <= most:
        return RequestColumns(file, offset, length)
    pieces = -(-length // most)
    which = np.repeat(np.arange(len(file)), pieces)
    begin = (np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * most
    return RequestColumns(file[which], offset[which] + begin, np.minimum(length[which] - begin, most))


def _of_arrays(workload: Workload, file: Integers, within: Integers, arrays: tuple[int, ...]) -> RequestColumns:
    """Return a request for each array of each sample, in the order of reading. The arrays of a file are stored one
    after the other. arrays: bytes of each array of a sample.
    """
    sizes = np.array(arrays, np.int64)
    begins = (np.cumsum(sizes) - sizes) * workload.dataset.samples_per_file
    if (order := workload.reader.array_order) is not None:
        sizes, begins = sizes[list(order)], begins[list(order)]
    offset = (begins + within[:, np.newaxis] * sizes).reshape(-1)
    columns = RequestColumns(np.repeat(file, len(sizes)), offset, np.tile(sizes, len(file)))
    if not workload.reader.by_array:
        return columns
    sample, array = np.divmod(np.arange(len(offset)), len(sizes))
    by_array = np.lexsort((sample, array, sample // workload.reader.batch_size))
    return RequestColumns(*(column[by_array] for column in columns))


def _of_slabs(file: Integers, offset: Integers, size: int, most: int) -> RequestColumns:
    """Return requests for adjacent samples of a file. A request has at most `most` bytes."""
    if not len(file):
        return RequestColumns(file, offset, offset)
    goes_on = (np.diff(file) == 0) & (np.diff(offset) == size)
    run = np.concatenate(([0], np.cumsum(~goes_on)))
    begin = np.searchsorted(run, run)
    slab = (np.arange(len(file)) - begin) // (most // size)
    is_first = np.concatenate(([True], (np.diff(run) != 0) | (np.diff(slab) != 0)))
    at = np.flatnonzero(is_first)
    return RequestColumns(file[at], offset[at], np.diff(np.concatenate((at, [len(file)]))) * size)


def _through_sieve(columns: RequestColumns, ends: Integers, opened: Integers) -> RequestColumns:
    """Return the requests of HDF5 for these pieces of contiguous arrays. Each array of each open file has a sieve
    buffer. If a piece is smaller than the sieve buffer, and is not in the buffer, HDF5 fills the buffer from the
    beginning of the piece on. ends: offset at which each array of a file ends, ascending. opened: number of the open
    file for each piece. A file that is closed and opened again gets another number.
    """
    array = np.searchsorted(ends, columns.offset, "right")
    taken: list[int] = []
    buffered: dict[tuple[int, int], int] = {}
    rows = zip(*(column.tolist() for column in (opened, columns.offset, columns.length, array)), strict=True)
    for at, (file, offset, length, index) in enumerate(rows):
        begin = buffered.get((file, index))
        if length >= SIEVE or begin is None or not begin <= offset <= begin + SIEVE - length:
            taken.append(at)
            buffered |= {(file, index): offset} if length < SIEVE else {}
    kept = np.array(taken, np.int64)
    offset, length = columns.offset[kept], columns.length[kept]
    filled = np.where(length < SIEVE, np.minimum(SIEVE, ends[array[kept]] - offset), length)
    return RequestColumns(columns.file[kept], offset, filled)


def _of_files(workload: Workload, file: Integers) -> RequestColumns:
    """Return the requests of a reader that loads a whole file whenever the next sample is in another file."""
    loaded = file[np.concatenate(([True], np.diff(file) != 0))[: len(file)]]
    size = workload.dataset.samples_per_file * workload.dataset.sample_bytes
    most = workload.reader.transfer_size if workload.dataset.facts.holds_bytes else None
    return _cut(loaded, np.zeros(len(loaded), np.int64), np.full(len(loaded), size), most)


def _of_streams(workload: Workload, file: Integers, within: Integers) -> RequestColumns:
    """Return the requests of a reader that reads each file from its beginning through a buffer. A block is read when
    the first of its samples is needed.
    """
    dataset = workload.dataset
    block = workload.reader.transfer_size or (PANDAS_BUFFER if dataset.facts.holds_text else TENSORFLOW_BUFFER)
    record = dataset.sample_bytes + (TFRECORD_FRAME if dataset.facts.holds_records else 0)
    end = dataset.samples_per_file * record
    reached: dict[int, int] = {}
    files: list[int] = []
    blocks: list[int] = []
    for name, wanted in zip(file.tolist(), (((within + 1) * record - 1) // block).tolist(), strict=True):
        fresh = range(reached.get(name, 0), wanted + 1)
        files += [name] * len(fresh)
        blocks += fresh
        reached[name] = max(reached.get(name, 0), wanted + 1)
    offset = np.array(blocks, np.int64) * block
    return RequestColumns(np.array(files, np.int64), offset, np.minimum(block, end - offset))


def _of_chunks(workload: Workload, file: Integers, within: Integers) -> RequestColumns:
    """Return the requests for the chunks that hold the samples. If a chunk is needed several times in succession, it is
    read once, because HDF5 keeps it in a cache. A chunk that is larger than the cache is read each time.
    """
    dataset, size = workload.dataset, workload.dataset.sample_bytes
    chunk = int(np.prod(dataset.chunk_shape or (1,))) * size // int(np.prod(dataset.sample.array_shape))
    first, last = within * size // chunk, ((within + 1) * size - 1) // chunk
    counts = last - first + 1
    which = np.repeat(np.arange(len(file)), counts)
    number = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    file = file[which]
    if chunk <= _CHUNK_CACHE and len(file):
        opened = which if workload.reader.reopen else file
        is_fresh = np.concatenate(([True], (np.diff(opened) != 0) | (np.diff(number) != 0)))
        file, number = file[is_fresh], number[is_fresh]
    return RequestColumns(file, number * chunk, np.full(len(file), chunk, np.int64))
