"""Summary of many Darshan logs: a row for each program."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import structs

from dlio_hpc.analysis.log import analyze, logs_by_program
from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.log.findings import Analysis, Operation
from dlio_hpc.analysis.log.logs_by_program import LogHead
from dlio_hpc.base.errors import DlioError, classified
from dlio_hpc.darshan import log_reader
from dlio_hpc.darshan.log import Log, LogJob
from dlio_hpc.programs.characterize import derive

Trust = Literal["good", "part", "incomplete", "unreadable"]
Training = Literal["yes", "no", "unknown"]


class ProgramRow(NamedTuple):
    """Summary of a program. logs: paths of its logs. name: short name of its script. processes: ranks of a program with
    MPI, otherwise the number of logs. ranks: number of ranks after logs are merged; a forked process belongs to the
    rank of its parent. read_MBps: bytes read, divided by the time during which reads were in flight; without a trace,
    divided by the mean time of a rank in reads. usual_request: most frequent request size in bytes. If more bytes are
    read than written, it is the most frequent size of reads, otherwise of writes; without a trace, of both. Empty
    requests are ignored. trust: "part" if the counters are complete, but other data are not. faults: names of the
    faults. training: whether the reads look like reads of a training program; "unknown" unless the counters are
    complete. why: reason why the reads do not look like this. error: reason why the logs cannot be read. Values are
    None if they are unknown.
    """

    logs: tuple[Path, ...]
    name: str
    command: str
    job: int | None
    processes: int | None
    ranks: int | None
    seconds: float | None
    bytes_read: int | None
    bytes_written: int | None
    read_MBps: float | None
    is_traced: bool
    usual_request: int | None
    trust: Trust
    faults: tuple[str, ...]
    training: Training
    why: str
    error: DlioError | None = None

    @property
    def moved(self) -> int:
        return (self.bytes_read or 0) + (self.bytes_written or 0)


def rows(paths: Iterable[Path]) -> Iterator[ProgramRow]:
    """Yield a row for each program, in no particular order. Only the logs of one program are in memory at a time. A log
    that cannot be read has its own row. If a log has copies, one of them is used.
    """
    heads: dict[tuple[object, ...], LogHead] = {}
    early: dict[Path, ProgramRow] = {}
    for path in paths:
        try:
            job = log_reader.load_job(path)
            if job is None:  # read by pydarshan, which takes long: only once, if the program has no other log
                log = log_reader.load(path)
                job, early[path] = log.job, _row([log])
            same = (path.name, *structs.astuple(job)[:5], path.stat().st_size)
        except Exception as fault:  # noqa: BLE001 - a log must not keep the others from being summarised
            yield _failed([path], None, fault)
        else:
            heads.setdefault(same, LogHead(path, job))  # a copy of a log must not count twice
    for members in logs_by_program.groups(heads.values()):
        logs = [head.path for head in members]
        if len(logs) == 1 and logs[0] in early:
            yield early.pop(logs[0])
            continue
        try:
            yield _row([log_reader.load(path) for path in logs])
        except Exception as fault:  # noqa: BLE001 - as above
            yield _failed(logs, members[0].job, fault)


def _failed(logs: Sequence[Path], job: LogJob | None, fault: Exception) -> ProgramRow:
    name, command, number = (
        ("", "", None) if job is None else (logs_by_program.short_name(job.program), job.program, job.id)
    )
    return ProgramRow(
        tuple(logs), name, command, number, None, None, None, None, None, None, False, None, "unreadable",
        ("unreadable",), "unknown", "", classified(fault),
    )  # fmt: skip


def _row(logs: Sequence[Log]) -> ProgramRow:
    examined = analyze.logs_of_program(logs)
    assert examined.log is not None
    job, analysis = examined.log.job, examined.analysis
    training, why = _training(examined)
    read = analysis.read if analysis else None
    return ProgramRow(
        logs=tuple(log.path for log in logs),
        name=logs_by_program.short_name(logs[0].job.program),
        command=logs[0].job.program,
        job=job.id,
        processes=len(logs) if len(logs) > 1 else job.ranks,
        ranks=job.ranks,
        seconds=job.seconds if job.seconds >= 0 else None,
        bytes_read=analysis.bytes_read if analysis else None,
        bytes_written=analysis.bytes_written if analysis else None,
        read_MBps=_rate(read),
        is_traced=analysis is not None and analysis.traced,
        usual_request=_usual(analysis),
        trust=("part" if examined.faults else "good") if examined.is_sound else "incomplete",
        faults=tuple(dict.fromkeys(fault.name for fault in examined.faults)),
        training=training,
        why=why,
    )


def _training(examined: Examined) -> tuple[Training, str]:
    """Return whether characterize would derive a workload from the logs, and if not, the reason."""
    if not examined.is_sound or examined.analysis is None or examined.log is None:
        return "unknown", ""
    requests = examined.requests if examined.analysis.traced else None
    against = derive.derive(examined.log, requests, lambda path: True, False).against
    return ("no", against[0]) if against else ("yes", "")


def _rate(read: Operation | None) -> float | None:
    if read is None:
        return None
    if read.MBps is not None:
        return read.MBps
    return read.bytes / read.time_s / 1e6 if read.time_s else None


def _usual(analysis: Analysis | None) -> int | None:
    if analysis is None:
        return None
    is_reading = analysis.bytes_read > analysis.bytes_written
    operation = (analysis.read if is_reading else analysis.write) or analysis.read
    sizes = [size for size, _ in operation.common if size] if operation is not None else []
    return sizes[0] if sizes else None
