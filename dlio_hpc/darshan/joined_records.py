"""Combination of the records and traces of several logs. Each log belongs to a rank; a rank that has several processes
has several logs.
"""

from collections.abc import Sequence

import numpy as np

from dlio_hpc.darshan.log import Log, Records, Trace

# A log, and the rank that its records get; None if the records keep their ranks.
Part = tuple[Log, int | None]


def counted(parts: Sequence[Part], started: float) -> dict[str, Records]:
    """Return the records of each counting module. Records are not summed: a file has a record per process. Times count
    from `started`, in seconds since 1970.
    """
    return {name: _counted(parts, name, started) for name in {name for log, _ in parts for name in log.counted}}


def traced(parts: Sequence[Part], started: float) -> dict[str, Trace]:
    """Return the trace of each tracing module whose trace is in all logs. Times of the traces count from `started`, in
    seconds since 1970.
    """
    return {name: _traced(parts, name, started) for name in _everywhere([log for log, _ in parts])}


def _everywhere(logs: Sequence[Log]) -> set[str]:
    """Return the tracing modules whose trace is kept. These modules have a trace in every log that has records, and the
    traces have the same record type in all these logs. Other traces are left out, because a trace of some processes
    would be mistaken for a trace of all processes.
    """
    moving = [log for log in logs if any(len(records) for records in log.counted.values())]
    names = set.intersection(*(set(log.traced) for log in moving)) if moving else set()
    return {name for name in names if len({log.traced[name].segments.dtype for log in moving}) == 1}


def _counted(parts: Sequence[Part], name: str, started: float) -> Records:
    columns = []
    for log, rank in parts:
        if name in log.counted:
            records = log.counted[name].copy()
            for counter in records.dtype.names or ():
                if counter.endswith("_TIMESTAMP"):  # 0: never
                    records[counter] += np.where(records[counter] > 0, log.job.started - started, 0)
            if rank is not None:
                records["rank"] = rank
            columns.append(records)
    return np.concatenate(columns)


def _traced(parts: Sequence[Part], name: str, started: float) -> Trace:
    files, segments = [], []
    ranks = [rank for _, rank in parts]
    for at, (log, rank) in enumerate(parts):
        if name not in log.traced:
            continue
        trace = log.traced[name]
        rows, late = trace.segments.copy(), log.job.started - started
        rows["start"] += late
        rows["end"] += late
        if None in ranks or len(set(ranks)) < len(ranks):
            rows = _with_process(rows, ranks[:at].count(rank) + (None in ranks[:at]))
        heads = trace.files.copy()
        if rank is not None:
            heads["rank"] = rank
        files.append(heads)
        segments.append(rows)
    return Trace(np.concatenate(files), np.concatenate(segments))


def _with_process(segments: Records, number: int) -> Records:
    wider = np.empty(len(segments), [*segments.dtype.descr, ("process", "<i8")])
    for name in segments.dtype.names or ():
        wider[name] = segments[name]
    wider["process"] = number
    return wider
