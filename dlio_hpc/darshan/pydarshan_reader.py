"""Reader of logs whose version or byte order log_reader does not support. pydarshan runs in a separate process, because
its C library ends the process if a log is corrupted, and reports unreadable records only on stderr.
"""

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.darshan import counters, log_limits
from dlio_hpc.darshan.log import ABOVE, COUNTING, TRACING, Log, LogFault, LogJob, Module, Records, Trace

# Record versions that pydarshan returns: libdarshan-util converts all older records to them.
_TODAY = {"POSIX": 4, "MPI-IO": 3, "STDIO": 2, "H5F": 3, "H5D": 2}
_PATIENCE_S = 600


def load(path: Path) -> Log:
    """Read a log through pydarshan. The result has the same form as the result of log_reader.load(). Raise ConfigError
    if pydarshan is not installed, and InvalidRun if pydarshan cannot read the log.
    """
    if importlib.util.find_spec("darshan") is None:
        raise ConfigError(
            f"{path} has a log version that only pydarshan can read, but pydarshan is not installed; run pip "
            "install darshan"
        )
    command = [sys.executable, "-m", __name__, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired as fault:
        raise InvalidRun(f"{path}: pydarshan did not read it within {_PATIENCE_S} s") from fault
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode:
        raise InvalidRun(f"{path}: pydarshan cannot read it ({lines[-1] if lines else f'exit code {done.returncode}'})")
    log: Log = pickle.loads(done.stdout)
    errors = [line for line in lines if line.startswith("Error")]
    return log._replace(faults=[*log.faults, *(LogFault("garbled", line) for line in errors[:1])])


def main() -> None:
    """Read the log at the path in argv, and write the pickled Log to stdout. This runs in the separate process."""
    import darshan

    path = Path(sys.argv[1])
    with darshan.DarshanReport(str(path), read_all=False) as report:
        sys.stdout.buffer.write(pickle.dumps(_log(path, report)))


def _log(path: Path, report: Any) -> Log:
    modules = {
        name: Module(int(facts["ver"]), 0, int(facts["len"]), bool(facts["partial_flag"]))
        for name, facts in report.modules.items()
    }
    log = Log(path, _version(report), _job(report), modules, {}, {}, {}, [], {})
    if not log.job.ended:
        log.faults.append(LogFault("no end", "Darshan recorded no end of the job"))
    for name, module in modules.items():
        if module.partial:
            log.faults.append(log_limits.dropped(name))
        if name in (*COUNTING, *ABOVE):
            log.counted[name] = _counted(report, name)
        elif name in TRACING:
            log.traced[name] = _traced(report, name)
    return log._replace(names=dict(report.name_records))  # available only after the records are read


def _version(report: Any) -> str:
    return str(report.metadata["job"].get("log_ver", "unknown"))


def _job(report: Any) -> LogJob:
    job, mounts = report.metadata["job"], report.mounts
    started = job["start_time_sec"] + job["start_time_nsec"] / 1e9
    ended = job["end_time_sec"] + job["end_time_nsec"] / 1e9
    metadata = {str(key): str(value) for key, value in job.get("metadata", {}).items()}
    return LogJob(
        int(job["uid"]),
        int(job["jobid"]),
        int(job["nprocs"]),
        float(started),
        float(ended if job["end_time_sec"] > 0 else 0),
        str(report.metadata["exe"]).strip(),
        metadata.get("lib_ver", ""),
        metadata,
        dict(mounts),
    )


def _counted(report: Any, name: str) -> Records:
    """Return the records of a counting module. Counters that the log does not have are -1 (unknown)."""
    kind = counters.record_type(name, _TODAY[name])
    assert kind is not None
    report.mod_read_all_records(name, dtype="numpy")
    sources = list(report.records[name])
    names = report.counters[name]
    prefix = f"{name.replace('-', '')}_"
    records = np.full(len(sources), -1, kind)
    for row, record in zip(records, sources, strict=True):
        row["id"], row["rank"] = record["id"], record["rank"]
        if "file_id" in (kind.names or ()):
            row["file_id"] = record["file_rec_id"]
        for part in ("counters", "fcounters"):
            for column, value in zip(names[part], record[part], strict=False):
                field = column.removeprefix(prefix)
                if field in (kind.names or ()):
                    row[field] = value
    return records


def _traced(report: Any, name: str) -> Trace:
    kind = counters.segment_type(name, 1 if name == "DXT_POSIX" else 2)
    assert kind is not None
    report.mod_read_all_dxt_records(name, dtype="dict")
    files, segments = [], []
    for record in report.records[name]:
        writes, reads = record["write_segments"], record["read_segments"]
        host = str(record["hostname"]).encode()
        files.append((record["id"], record["rank"], 0, host, len(writes), len(reads)))
        segments += [
            (segment["offset"], segment["length"], segment["start_time"], segment["end_time"])
            for segment in (*writes, *reads)
        ]
    return Trace(np.array(files, counters.TRACED), np.array(segments, kind))


if __name__ == "__main__":
    main()
