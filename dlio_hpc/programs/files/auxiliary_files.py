"""Derivation of the checkpoints and the auxiliary files of a program from its log."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.base.units import counted, format_seconds, format_size
from dlio_hpc.config.reader_keys import LARGEST_REQUEST
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue
from dlio_hpc.programs.files.extents import usual
from dlio_hpc.programs.files.file_stats import FileStats

Floats = npt.NDArray[np.float64]

# A checkpoint ends with a pause in writing of at least this share of the longest pause, and of at least this many
# seconds. A second write to the beginning of a file within _HEADER_S completes the header of the file and does not
# start another checkpoint.
_PAUSES, _LEAST_PAUSE_S = 0.25, 0.01
_HEADER_S = 1e-3
# Requests of one size write checkpoints if they have at least this share of the bytes.
_MAINLY = 0.8
# Largest number of write requests that a workload lists.
_MOST_WRITES = 64
# Largest number of auxiliary files that a workload names. Programs with more files organise them in another way.
MOST = 8


class CheckpointWrites(NamedTuple):
    """Checkpoints of a program. keys: keys of the `checkpoint` section of a workload. number: number of checkpoints."""

    keys: dict[str, DerivedValue]
    number: int


class _Event(NamedTuple):
    """One checkpoint. start: time in seconds of the first write of the checkpoint. files: size of each file after the
    checkpoint in bytes, by rank and path. Gaps between writes, as HDF5 leaves them, are included. writes: offsets and
    sizes of the write requests to each file, in order; empty if there is no trace.
    """

    start: float
    files: dict[tuple[int, str], int]
    writes: dict[tuple[int, str], list[tuple[int, int]]]


def checkpoints(
    files: Sequence[FileStats], requests: Requests | None, begins: Floats | None, epochs: int
) -> CheckpointWrites | None:
    """Derive the keys of the `checkpoint` section of a workload. files: files that hold checkpoints. begins: start of
    each step of a rank in seconds; None if steps are unknown. epochs: number of epochs. Return None if no checkpoint
    was written.
    """
    if not files:
        return None
    traced = _traced(files, requests) if requests is not None else []
    events = traced or _counted(files)
    if not events:
        return None
    ranks = {rank for event in events for rank, _ in event.files}
    middle = sorted(events, key=lambda event: sum(event.files.values()))[len(events) // 2]
    writer = min(rank for rank, _ in middle.files)
    sizes = sorted(size for (rank, _), size in middle.files.items() if rank == writer)
    if traced and requests is not None:
        sizes = sorted([*sizes, *_untraced(files, requests, len(events))])
    evidence = f"{counted(len(events), 'checkpoint')} of {counted(len(sizes), 'file')}, {format_size(sum(sizes))}"
    are_equal = len({tuple(sorted(event.files.values())) for event in events}) == 1
    is_traced = bool(traced) and not any(file.buffered for file in files)
    confidence: Confidence = "high" if is_traced and are_equal else "medium" if traced or len(events) > 1 else "low"
    keys = {
        "every_steps": _every(events, begins, epochs),
        "files": DerivedValue(sizes[:100], confidence, evidence),
        "transfer_size": _write_size(files, requests),
        "by": DerivedValue(
            "all" if len(ranks) > 1 else "root", confidence, f"{counted(len(ranks), 'rank')} wrote checkpoints"
        ),
        "fsync": _fsync(files),
        "read_back": _read_back(files),
    }
    return CheckpointWrites(keys | _irregular(events, sizes, keys["transfer_size"].value), len(events))


def _irregular(events: Sequence[_Event], sizes: Sequence[int], usual_size: int) -> dict[str, DerivedValue]:
    """Return the key `requests` if most checkpoints consist of a single file that is written in the same requests. If
    these requests are sequential, have `usual_size` bytes and cover the whole file, the key is not needed. Return an
    empty dict if the key is not needed or not known.
    """
    counts = Counter(tuple(writes) for event in events for writes in event.writes.values() if len(event.writes) == 1)
    if not counts or len(sizes) != 1:
        return {}
    writes, count = counts.most_common(1)[0]
    regular = tuple((at, min(usual_size, sizes[0] - at)) for at in range(0, sizes[0], usual_size))
    is_possible = len(writes) <= _MOST_WRITES and all(
        begin + size <= sizes[0] and size <= LARGEST_REQUEST for begin, size in writes
    )
    if 2 * count <= len(events) or writes == regular or not is_possible:
        return {}
    evidence = f"{count} of {counted(len(events), 'checkpoint')} were written in these requests"
    return {"requests": DerivedValue([list(request) for request in writes], "high", evidence)}


def _placed(requests: Requests, writes: list[int]) -> list[tuple[int, int]]:
    """Return the offsets and sizes of these writes. Offsets are shifted to begin at 0: if Darshan misses an open of the
    file, it continues the offsets of the previous open.
    """
    begin, length = requests.offset[writes], requests.length[writes]
    return list(zip((begin - begin.min()).tolist(), length.tolist(), strict=True))


def _traced(files: Sequence[FileStats], requests: Requests) -> list[_Event]:
    """Return the checkpoints in a trace. A new checkpoint begins when a file is written from its beginning again, or
    after a long pause in writing.
    """
    chosen = np.flatnonzero(requests.write & requests.on({file.path for file in files}) & (requests.length > 0))
    chosen = chosen[np.argsort(requests.start[chosen], kind="stable")]
    if not len(chosen):
        return []
    start, end = requests.start[chosen], np.maximum.accumulate(requests.end[chosen])
    pauses = np.concatenate(([0.0], np.maximum(start[1:] - end[:-1], 0)))
    taken = float(np.median(requests.end[chosen] - start))
    limit = max(_PAUSES * float(pauses.max()), _LEAST_PAUSE_S, 2 * taken)
    events: list[tuple[float, dict[tuple[int, str], list[int]]]] = []
    for at, pause in zip(chosen.tolist(), pauses.tolist(), strict=True):
        key = int(requests.rank[at]), requests.paths[requests.file[at]]
        again = bool(events) and key in events[-1][1] and requests.offset[at] == 0 and pause > _HEADER_S
        if not events or pause > limit or again:
            events.append((float(requests.start[at]), {}))
        events[-1][1].setdefault(key, []).append(at)
    buffered = {file.path: _size(file) for file in files if file.buffered}  # STDIO is not traced
    return [
        _Event(
            begin,
            {key: buffered.get(key[1]) or _written(requests, writes) for key, writes in made.items()},
            {key: _placed(requests, writes) for key, writes in made.items() if key[1] not in buffered},
        )
        for begin, made in events
    ]


def _written(requests: Requests, writes: list[int]) -> int:
    """Return the number of bytes of a file after these writes. If a write goes to an earlier place, as with HDF5, the
    file is filled in any order and may have gaps.
    """
    begin, length = requests.offset[writes], requests.length[writes]
    if (np.diff(begin) < 0).any():
        return int((begin + length).max() - begin.min())
    return int(length.sum())


def _untraced(files: Sequence[FileStats], requests: Requests, number: int) -> list[int]:
    """Return the sizes of the files of one checkpoint that are missing from the trace, because they were written
    through STDIO. The counters do not show which file belongs to which checkpoint. All checkpoints are assumed to have
    the same number n of such files; the n largest sizes are returned. number: number of checkpoints.
    """
    known = set(requests.paths)
    sizes = sorted((_size(file) for file in files if file.path not in known), reverse=True)
    return sizes[: max(1, round(len(sizes) / number))]


def _size(file: FileStats) -> int:
    """Return the smaller of two numbers: the size of a file in bytes, and the number of bytes written to the file."""
    return max(1, min(file.size, file.bytes_written))


def _write_size(files: Sequence[FileStats], requests: Requests | None) -> DerivedValue:
    """Return `checkpoint.transfer_size`: the request size that accounts for the most bytes written. If the trace lacks
    most of the bytes written, return the mean request size.
    """
    lengths = np.empty(0, np.int64)
    if requests is not None:
        lengths = requests.length[requests.write & requests.on({file.path for file in files})]
    written = sum(file.bytes_written for file in files)
    size = min(usual(lengths), LARGEST_REQUEST)
    if size and lengths.sum() > 0.5 * written:
        share = float(lengths[lengths == size].sum() / lengths.sum())
        evidence = f"{share:.0%} of bytes were written in requests of {size:,} B"
        if share < _MAINLY:
            mean = min(max(1, round(float(lengths.mean()))), LARGEST_REQUEST)
            size, evidence = mean, f"{evidence}; mean size of all writes"
        return DerivedValue(size, "high" if share >= _MAINLY else "low", evidence)
    mean = round(written / max(1, sum(file.writes for file in files)))
    return DerivedValue(max(1, min(mean, LARGEST_REQUEST)), "low", "mean size of all writes to the checkpoint files")


def _counted(files: Sequence[FileStats]) -> list[_Event]:
    """Return the checkpoints that the counters show. A checkpoint is a group of files whose first writes are close in
    time. If there is only one group, the number of checkpoints is the number of times that the files of the group were
    written completely.
    """
    known = sorted((file for file in files if file.written_s is not None), key=lambda file: file.written_s or (0, 0))
    begun = [file.written_s[0] for file in known if file.written_s is not None]
    pauses = np.diff(begun)
    limit = max(_PAUSES * float(pauses.max(initial=0.0)), _LEAST_PAUSE_S)
    events: list[_Event] = []
    for file, at in zip(known, begun, strict=True):
        if not events or at - events[-1].start > limit:
            events.append(_Event(at, {}, {}))
        events[-1].files[max(file.rank, 0), file.path] = _size(file)
    times = round(float(np.median([file.bytes_written / max(file.size, 1) for file in known]))) if known else 1
    if times > 1 and len(events) == 1:
        first, last = begun[0], max(file.written_s[1] for file in known if file.written_s is not None)
        step = (last - first) / max(times - 1, 1)
        events = [_Event(first + number * step, events[0].files, {}) for number in range(min(times, 1000))]
    return events


def _every(events: list[_Event], begins: Floats | None, epochs: int) -> DerivedValue:
    """Return `checkpoint.every_steps`: the median number of steps between two checkpoints. The value is None if there
    is one checkpoint after each epoch, or if the number is unknown.
    """
    if len(events) == epochs:
        return DerivedValue(
            None, "medium", f"{counted(len(events), 'checkpoint')} in {counted(epochs, 'epoch')}: one after each epoch"
        )
    if len(events) < 2:
        return DerivedValue(None, "unknown", "a single checkpoint has no interval")
    starts = np.array([event.start for event in events])
    evidence = f"{len(events)} checkpoints, every {format_seconds(float(np.median(np.diff(starts))))}"
    if begins is None:
        return DerivedValue(None, "unknown", f"{evidence}; the steps are unknown")
    between = float(np.median(np.diff(np.searchsorted(begins, starts))))
    return DerivedValue(max(1, round(between)), "medium", f"{evidence}, {between:.3g} bursts of reads between them")


def _fsync(files: Sequence[FileStats]) -> DerivedValue:
    syncs = sum(file.syncs for file in files)
    return DerivedValue(syncs > 0, "high", f"{counted(syncs, 'fsync call')} on the checkpoint files")


def _read_back(files: Sequence[FileStats]) -> DerivedValue:
    read, written = sum(file.bytes_read for file in files), sum(file.bytes_written for file in files)
    is_read, is_doubted = read >= 0.5 * written, any(file.has_excess for file in files)
    evidence = f"of {format_size(written)} written, {format_size(read)} were read back"
    return DerivedValue(is_read, "low" if is_read and is_doubted else "high", evidence)


class AuxiliaryGroup(NamedTuple):
    """An entry of `dataset.auxiliary_files`. keys: keys of the entry and their values. note: evidence for
    these values.
    """

    keys: dict[str, Any]
    note: str


def sides(files: Sequence[FileStats], requests: Requests | None, ranks: int, steps: int | None) -> list[AuxiliaryGroup]:
    """Return entries for the auxiliary files with the most bytes transferred. There are at most MOST (8) entries.
    steps: number of steps of a rank in the whole run; None if it is unknown.
    """
    made: list[AuxiliaryGroup] = []
    taken: set[str] = set()
    for file in sorted(files, key=lambda file: (-file.moved, file.path))[:MOST]:
        made.append(_side(file, requests, ranks, steps, taken))
        taken.add(made[-1].keys["name"])
    return made


def _side(file: FileStats, requests: Requests | None, ranks: int, steps: int | None, taken: set[str]) -> AuxiliaryGroup:
    writes = file.bytes_written > file.bytes_read
    count, moved = (file.writes, file.bytes_written) if writes else (file.reads, file.bytes_read)
    ends = 0 if writes else _ends(file, requests)
    count = max(count - ends, 1)
    size = max(1, round(moved / count))
    by_all = file.ranks > 1
    per_rank = max(1, round(count / (min(file.ranks, ranks) if by_all else 1)))
    per_step = steps is not None and steps > 4 and per_rank >= steps and _spread_out(file, requests)
    times = max(1, round(per_rank / (steps or 1))) if per_step else per_rank
    keys: dict[str, Any] = {"name": _name(file.path, taken), "bytes": size, "count": times}
    keys["access"] = "write" if writes else "read"
    keys["when"] = "step" if per_step else ("end" if writes else "start")
    keys["by"] = "all" if by_all else "root"
    if not writes and file.size > size:
        keys["size"] = file.size
        if per_step and file.size >= 4 * size:
            keys["random"] = _is_random(file, requests)
    if ends and not keys.get("random") and size * times == file.size:
        keys["read_to_eof"] = True
    verb = "write" if writes else "read"
    return AuxiliaryGroup(keys, f"{counted(count, f'{verb} request')}, mean size {format_size(size)}: {file.path}")


def _ends(file: FileStats, requests: Requests | None) -> int:
    """Return the number of reads that reached the end of the file and returned no bytes."""
    if requests is None:
        return 0
    return int(np.count_nonzero(requests.on([file.path]) & ~requests.write & (requests.length == 0)))


def _spread_out(file: FileStats, requests: Requests | None) -> bool:
    """Return whether the requests to the file are spread over more than half of the traced time."""
    span = file.read_s or file.written_s
    if requests is None or span is None or not len(requests.start):
        return False
    return span[1] - span[0] > 0.5 * float(requests.end.max() - requests.start.min())


def _is_random(file: FileStats, requests: Requests | None) -> bool:
    if requests is None:
        return False
    mine = np.flatnonzero(requests.on([file.path]))
    mine = mine[np.lexsort((requests.start[mine], requests.rank[mine]))]
    behind = np.diff(requests.offset[mine]) >= 0
    return bool(behind.mean() < 0.8) if len(behind) else False


def _name(path: str, taken: set[str]) -> str:
    """Return a valid name for an auxiliary file. If the name is already in `taken`, a number makes it unique."""
    base = re.sub(r"[^A-Za-z0-9._-]", "_", path.rsplit("/", 1)[-1]).lstrip(".-")[:60] or "file"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name
