"""Ends of files. Sizes and times that the counters lack are taken from the trace. Requests beyond the end of a file are
removed.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.requests import Floats, Integers, Requests
from dlio_hpc.programs.files.file_stats import FileStats, pair


def corrected(files: Sequence[FileStats], requests: Requests | None) -> tuple[list[FileStats], Requests | None]:
    """Return the files with the sizes and times that the trace shows, and the requests without impossible bytes. A read
    beyond the end of a file returns no data, so its bytes in the log are impossible. The end of a file is known if the
    program wrote the whole file. Logs have such reads because libdarshan misses some closes of files, and then counts
    requests to other files and to pipes that use the same descriptor.
    """
    if requests is None or not len(requests.file):
        return [_counted(file) for file in files], requests
    files, requests = _without_strays(files, requests)
    reach, written = (_reach(requests, mask) for mask in (np.ones(len(requests.file), bool), requests.write))
    index = {path: at for at, path in enumerate(requests.paths)}
    spans = [_spans(requests, requests.write == kind) for kind in (False, True)]
    made, ends = [], np.full(len(requests.paths), np.iinfo(np.int64).max)
    for file in files:
        if (at := index.get(file.path)) is None:
            made.append(_counted(file))
            continue
        known = file._replace(
            written_end=max(file.written_end, int(written[at])),
            read_s=file.read_s or pair(spans[0][:, at]),
            written_s=file.written_s or pair(spans[1][:, at]),
        )
        made.append(_sized(known, int(reach[at])))
        if is_whole(known):
            ends[at] = known.written_end
    return _without_excess(made, requests, ends)


def _without_strays(files: Sequence[FileStats], requests: Requests) -> tuple[list[FileStats], Requests]:
    """Return files and requests without requests that went to other files. A read belongs to another file if it begins
    at the end of all written data, or has more bytes than were written, or finds the end of the file before the end of
    the written data. The descriptor then refers to another file until the file is written from its beginning again.
    """
    strays = np.zeros(len(requests.file), bool)
    both = set(requests.file[requests.write].tolist()) & set(requests.file[~requests.write].tolist())
    for number in both:
        mine = np.flatnonzero(requests.file == number)
        mine = mine[np.argsort(requests.start[mine], kind="stable")]
        if requests.write[mine[0]]:  # others existed before
            strays[mine] = _is_stray(requests, mine)
    if not strays.any():
        return list(files), requests
    kept = requests.chosen(~strays)
    return _counted_again(files, requests, requests.chosen(strays), kept), kept


def _is_stray(requests: Requests, mine: Integers) -> list[bool]:
    """Return a mask of the requests recorded for a file that went to other files. mine: indices of the file's requests,
    in the order of time.
    """
    made, end, is_lost = [], 0, False
    columns = (requests.write, requests.offset, requests.length)
    rows = list(zip(*(column[mine].tolist() for column in columns), strict=True))
    for (is_write, offset, length), after in itertools.zip_longest(rows, rows[1:], fillvalue=(True, 0, 0)):
        if is_write and offset == 0:
            is_lost = False
        elif not is_write and length and end > 0:
            finds_end = after == (False, offset + length, 0) and after[1] < end
            is_lost = is_lost or offset == end or length > end or finds_end
        if is_write and not is_lost:
            end = max(end, offset + length)
        made.append(is_lost)
    return made


def _counted_again(files: Sequence[FileStats], requests: Requests, strays: Requests, kept: Requests) -> list[FileStats]:
    """Return the files with counters that are computed again from the requests that are kept. Other files are
    unchanged.
    """
    reach, written = _reach(kept, np.ones(len(kept.file), bool)), _reach(kept, kept.write)
    counts = {
        (kind, weighed): np.bincount(
            strays.file[mask], strays.length[mask] if weighed else None, len(requests.paths)
        ).astype(int).tolist()
        for kind, mask in (("read", ~strays.write), ("written", strays.write)) for weighed in (False, True)
    }  # fmt: skip
    index = {requests.paths[number]: number for number in set(strays.file.tolist())}
    return [
        file if (at := index.get(file.path)) is None else file._replace(
            bytes_read=max(file.bytes_read - counts["read", True][at], 0),
            reads=max(file.reads - counts["read", False][at], 0),
            bytes_written=max(file.bytes_written - counts["written", True][at], 0),
            writes=max(file.writes - counts["written", False][at], 0),
            written_end=int(written[at]), size=int(reach[at]),
            read_s=file.read_s if (kept.on({file.path}) & ~kept.write).any() else None,
        )
        for file in files
    ]  # fmt: skip


def is_whole(file: FileStats) -> bool:
    """Return whether the log shows the size of a file: the program wrote the whole file, from the first byte on, before
    it read the file.
    """
    is_first = file.written_s is not None and (file.read_s is None or file.written_s[0] < file.read_s[0])
    return is_first and 0 < file.bytes_written == file.written_end


def _sized(file: FileStats, reach: int) -> FileStats:
    """Return the file with its size. reach: end of the traced request that reached furthest, in bytes. The counters
    alone are not enough, because some Darshan versions do not count the last byte that was accessed.
    """
    if not is_whole(file):
        return file._replace(size=max(file.size, reach))
    beyond = max(file.size, reach) - file.written_end
    return file._replace(size=file.written_end, has_excess=beyond > 0)


def _counted(file: FileStats) -> FileStats:
    """Return a file without a trace. Counters do not show how many bytes were read beyond the end of the file. Each
    pass is assumed to reach as far as the pass that reached furthest.
    """
    made = _sized(file, 0)
    return made._replace(bytes_read=file.bytes_read * made.size // file.size) if made.has_excess else made


def _reach(requests: Requests, mask: npt.NDArray[np.bool_]) -> Integers:
    """Return for each file the bytes from its beginning to the end of the request that reached furthest."""
    reach = np.zeros(len(requests.paths), np.int64)
    mask = mask & (requests.length > 0)
    np.maximum.at(reach, requests.file[mask], requests.offset[mask] + requests.length[mask])
    return reach


def _spans(requests: Requests, mask: npt.NDArray[np.bool_]) -> Floats:
    """Return the time of the first and of the last request to each file, shape (2, files). The times are infinite for a
    file without requests.
    """
    span = np.array([np.full(len(requests.paths), np.inf), np.full(len(requests.paths), -np.inf)])
    mask = mask & (requests.length > 0)
    np.minimum.at(span[0], requests.file[mask], requests.start[mask])
    np.maximum.at(span[1], requests.file[mask], requests.end[mask])
    return span


def _without_excess(files: list[FileStats], requests: Requests, ends: Integers) -> tuple[list[FileStats], Requests]:
    """Return files and requests without the bytes of reads beyond `ends`, the end of each file of the trace. If a read
    has more bytes than the whole file, it went to another file. None of its bytes are kept.
    """
    end = ends[requests.file]
    room = np.where(requests.length > end, 0, np.maximum(end - requests.offset, 0))
    length = np.where(requests.write, requests.length, np.minimum(requests.length, room))
    excess = np.zeros(len(requests.paths), np.int64)
    np.add.at(excess, requests.file, requests.length - length)
    if not excess.any():
        return files, requests
    less = dict(zip(requests.paths, excess.tolist(), strict=True))
    made = [file._replace(bytes_read=max(file.bytes_read - less.get(file.path, 0), 0)) for file in files]
    return made, requests._replace(length=length)
