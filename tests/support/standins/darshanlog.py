"""Darshan logs of any content, in format 3.41 as darshan-log-format.h describes it."""

import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlio_hpc.darshan import counters

HEADER_BYTES = 1328
_VERSIONS = {"POSIX": 4, "MPI-IO": 3, "STDIO": 2, "DXT_POSIX": 1, "DXT_MPIIO": 2}


class Traced(NamedTuple):
    """The requests of one rank on one file: rows of offset, length, start, end."""

    path: str
    rank: int
    reads: Any = ()
    writes: Any = ()
    host: str = "n1"


def number(path: str) -> int:
    """Return the number of a file name. Darshan uses another hash function for the same purpose."""
    return zlib.crc32(path.encode()) << 8 | 1


def write(
    path: Path,
    ranks: int,
    traces: list[Traced],
    module: str = "POSIX",
    counted: "list[tuple[str, int, dict[str, float]]] | None" = None,
    started: float = 1_700_000_000.25,
    seconds: float = 10.0,
    versions: "dict[str, int] | None" = None,
    partial: tuple[str, ...] = (),
    program: str = "/opt/app train.py",
    job: int = 77,
    parent: str = "",
    stdio: "list[tuple[str, int, dict[str, float]]] | None" = None,
) -> None:
    """Write a log. Its counters come from its traces unless they are given: path, rank, values. parent: number of the
    process that has forked this one. stdio: counters of the module STDIO.
    """
    known = {**_VERSIONS, **(versions or {})}
    tracer = {"POSIX": "DXT_POSIX", "MPI-IO": "DXT_MPIIO"}[module]
    rows = counters_of(traces, module) if counted is None else counted
    paths = sorted({trace.path for trace in traces} | {row[0] for row in (*rows, *(stdio or ()))})
    regions = [
        zlib.compress(_job(ranks, started, seconds, program, job, parent)),
        zlib.compress(b"".join(struct.pack("<Q", number(name)) + name.encode() + b"\0" for name in paths)),
    ]
    modules = {}
    if rows:
        modules[module] = _counted(rows, module, known[module])
    if stdio:
        modules["STDIO"] = _counted(stdio, "STDIO", known["STDIO"])
    if traces:
        modules[tracer] = _traced(traces, known[tracer], tracer)
    names, at = HEADER_BYTES + len(regions[0]), HEADER_BYTES + len(regions[0]) + len(regions[1])
    maps, flags, mod_versions = [0] * 128, 0, [0] * 64
    for name, content in modules.items():
        slot = counters.MODULES.index(name)
        maps[2 * slot : 2 * slot + 2] = [at, len(content)]
        mod_versions[slot] = known[name]
        flags |= (name in partial) << slot
        at += len(content)
    header = struct.pack("<8sqB7xQ", b"3.41", 6567223, 0, flags)
    header += struct.pack("<2Q128Q64I", names, len(regions[1]), *maps, *mod_versions)
    path.write_bytes(header + b"".join(regions) + b"".join(modules.values()))


def counters_of(traces: list[Traced], module: str = "POSIX") -> list[tuple[str, int, dict[str, float]]]:
    """Return the counters that Darshan would have with these traces."""
    reads, writes = ("READS", "WRITES") if module == "POSIX" else ("INDEP_READS", "INDEP_WRITES")
    rows = []
    for trace in traces:
        values: dict[str, float] = {reads: len(trace.reads), writes: len(trace.writes)}
        values["BYTES_READ"] = int(sum(row[1] for row in trace.reads))
        values["BYTES_WRITTEN"] = int(sum(row[1] for row in trace.writes))
        values["F_READ_TIME"] = float(sum(row[3] - row[2] for row in trace.reads))
        values["F_WRITE_TIME"] = float(sum(row[3] - row[2] for row in trace.writes))
        rows.append((trace.path, trace.rank, values))
    return rows


def _job(ranks: int, started: float, seconds: float, program: str, job: int, parent: str) -> bytes:
    ended = started + seconds
    times = [int(part) for instant in (started, ended) for part in (instant, instant % 1 * 1e9)]
    metadata = "lib_ver=3.5.0\n" + (f"fork_parent={parent}\n" if parent else "")
    return struct.pack("<7q1024s", 0, *times, ranks, job, metadata.encode()) + program.encode() + b"\next4\t/\0"


def _counted(rows: "list[tuple[str, int, dict[str, float]]]", module: str, version: int) -> bytes:
    kind = counters.record_type(module, version) or counters.record_type(module, _VERSIONS[module])
    assert kind is not None
    streams = []
    for path, rank, values in rows:
        record = np.zeros(1, kind)
        record["id"], record["rank"] = number(path), rank
        for name, value in values.items():
            record[name] = value
        streams.append(zlib.compress(record.tobytes()))
    return b"".join(streams)


def _traced(traces: list[Traced], version: int, tracer: str) -> bytes:
    """Return a compressed stream for each rank."""
    kind = counters.segment_type(tracer, version) or counters.segment_type(tracer, _VERSIONS[tracer])
    assert kind is not None
    streams = []
    for rank in sorted({trace.rank for trace in traces}):
        content = b""
        for trace in (trace for trace in traces if trace.rank == rank):
            head = np.zeros(1, counters.TRACED)
            head["id"], head["rank"], head["host"] = number(trace.path), rank, trace.host.encode()
            head["writes"], head["reads"] = len(trace.writes), len(trace.reads)
            content += head.tobytes()
            for rows in (trace.writes, trace.reads):
                segments = np.zeros(len(rows), kind)
                for column, name in enumerate(("offset", "length", "start", "end")):
                    segments[name] = np.array(rows, np.float64).reshape(-1, 4)[:, column]
                content += segments.tobytes()
        streams.append(zlib.compress(content))
    return b"".join(streams)
