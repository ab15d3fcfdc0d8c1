"""The log of a run's ranks, together with the logs of their worker processes (see core/darshan_workers.py)."""

import re
from pathlib import Path

from dlio_hpc.darshan import joined_records, log_reader
from dlio_hpc.darshan.log import Log, LogFault, Module
from dlio_hpc.files import rundir

_NAME = re.compile(r"rank-(\d+)-epoch-\d+-worker-\d+[.]darshan")


def load(path: Path, trace: bool = True) -> Log:
    """Load the log of a run's ranks from `path`, and the logs in the folder of worker logs beside it. The records of a
    worker process become records of its rank. Times count from the start of the ranks' log. If `trace` is False, traces
    are left out.

    The start of the ranks' log is the time at which Darshan started on one rank. On other ranks, Darshan may have
    started tens of milliseconds earlier or later. Times of ranks and of workers therefore cannot be compared exactly.
    """
    log = log_reader.load(path, trace)
    names = {file: _NAME.fullmatch(file.name) for file in sorted((path.parent / rundir.WORKERS).glob("*"))}
    workers = [(log_reader.load(file, trace), int(match[1])) for file, match in names.items() if match is not None]
    if not workers:
        return log
    parts: list[joined_records.Part] = [(log, None), *workers]
    logs = [part for part, _ in parts]
    return log._replace(
        modules=_modules(logs),
        names={number: name for part in logs for number, name in part.names.items()},
        counted=joined_records.counted(parts, log.job.started),
        traced=joined_records.traced(parts, log.job.started),
        faults=[*log.faults, *(fault for part, _ in workers for fault in _faults(part))],
        heat={},
        workers=len(workers),
    )


def _modules(logs: list[Log]) -> dict[str, Module]:
    """Return the modules of the logs. A module is partial if it is in one of the logs."""
    modules: dict[str, Module] = {}
    for log in logs:
        for name, module in log.modules.items():
            partial = module.partial or (name in modules and modules[name].partial)
            modules[name] = modules.get(name, module)._replace(partial=partial)
    return modules


def _faults(log: Log) -> list[LogFault]:
    """Return the faults of the log of a worker process, which must be the log of one process."""
    if log.job.ranks == 1:
        return log.faults
    return [*log.faults, LogFault("rank count", f"{log.path.name} is the log of {log.job.ranks} processes, not of one")]
