"""Derivation of the keys of a workload from a log: the value of each key, with evidence and confidence."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis.characterize import fitting, from_counters, training_check
from dlio_hpc.analysis.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.analysis.log import access_pattern, auxiliary_files, extents, file_formats, file_roles, step_detection
from dlio_hpc.analysis.log import file_stats as files_of
from dlio_hpc.analysis.log.auxiliary_files import AuxiliaryGroup
from dlio_hpc.analysis.log.extents import Reads
from dlio_hpc.analysis.log.file_roles import Role
from dlio_hpc.analysis.log.file_stats import FileStats
from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.analysis.log.step_detection import Pace
from dlio_hpc.darshan.log import NO_RECORDS, Log
from dlio_hpc.units import format_size

# Size of a sample in bytes that is assumed if the log does not show samples; a larger request size takes precedence.
_GUESS = 1 << 20
_ASSUMED = "sample size assumed to be 1 MiB, but at least that of a request and at most that of a file"
# If a program reads less than this share of the files' bytes, it is assumed to read only a part of the dataset by
# design.
_ALL = 0.9
# Size in bytes of the smallest read that HDF5 makes from contiguous data (H5Pset_sieve_buf_size).
_SIEVE = 64 << 10
# A program that runs for more than this many seconds after its last read is assumed to compute on data in memory.
_LONG_S = 5.0


class Derived(NamedTuple):
    """Workload derived from a log. keys: derived value of each key of the workload, such as dataset.files. sides:
    auxiliary files. roles: role of each file of the log. against: reasons why the program's I/O does not look like
    training. If there are any, `keys` is empty unless the user forces the derivation of a workload. traced: whether the
    trace was used in addition to the counters.
    """

    keys: dict[str, DerivedValue]
    sides: list[AuxiliaryGroup]
    roles: list[Role]
    against: list[str]
    traced: bool


class _Subject(NamedTuple):
    log: Log
    roles: list[Role]
    data: list[FileStats]
    reads: Reads | None
    requests: Requests | None
    kind: file_formats.LogFormat


def derive(log: Log, requests: Requests | None, wanted: Callable[[str], bool], is_forced: bool) -> Derived:
    """Derive the workload of a program. requests: all traced requests to wanted files; None to use counters alone.
    wanted: function that returns whether a path is analysed. is_forced: True to derive a workload even if the program's
    I/O does not look like training.
    """
    roles = file_roles.classify(_sized([file for file in files_of.take(log) if wanted(file.path)], requests))
    reasons = training_check.against(roles)
    data = file_roles.of(roles, "dataset")
    if not data or (reasons and not is_forced):
        return Derived({}, [], roles, reasons, requests is not None)
    reads = _reads(data, requests)
    subject = _Subject(
        log, roles, data, reads, requests, file_formats.detect(data, None if reads is None else requests)
    )
    keys, pace = (_by_counters if reads is None else _by_trace)(subject)
    made = _saved(subject, keys, pace)
    made = {**keys, **made}
    fitting.fit(made)
    return Derived(made, _sides(subject, made), roles, reasons, reads is not None)


def _sized(files: list[FileStats], requests: Requests | None) -> list[FileStats]:
    """Return the files with sizes corrected by the trace. Some Darshan versions do not count the last byte that was
    accessed.
    """
    if requests is None or not len(requests.file):
        return files
    reach = np.zeros(len(requests.paths), np.int64)
    np.maximum.at(reach, requests.file, np.where(requests.length > 0, requests.offset + requests.length, 0))
    ends = dict(zip(requests.paths, reach.tolist(), strict=True))
    return [file._replace(size=max(file.size, ends.get(file.path, 0))) for file in files]


def _reads(data: Sequence[FileStats], requests: Requests | None) -> Reads | None:
    """Return the reads of the dataset. Return None if there is no trace, if the trace has no reads of the dataset, or
    if most bytes of the dataset were transferred through STDIO, which is not traced.
    """
    if requests is None:
        return None
    if sum(file.buffered for file in data) > 0.5 * sum(file.moved for file in data):
        return None
    made = extents.reads_of(requests, {file.path: file.size for file in data})
    return made if len(made.rank) else None


def _common(subject: _Subject) -> dict[str, DerivedValue]:
    """Return the keys whose values are derived in the same way with and without a trace."""
    data, ranks, kind = subject.data, subject.log.job.ranks, subject.kind
    shared = len(data) == 1 and data[0].ranks > 1
    evidence = f"{len(data):,} files, each opened by {np.median([file.ranks for file in data]):.0f} of {ranks} ranks"
    evidence = f"one file, opened by {data[0].ranks} of {ranks} ranks" if len(data) == 1 else evidence
    return {
        "dataset.format": kind.name,
        "dataset.file_access": DerivedValue(
            "shared" if shared else "multi", "high" if len(data) > 1 or shared else "medium", evidence
        ),
        "dataset.files": _count(data),
        "reader.mode": kind.mode,
    }


def _count(data: Sequence[FileStats]) -> DerivedValue:
    sizes = [file.size for file in data]
    low, high = min(sizes), max(sizes)
    spread = format_size(high) if low == high else f"{format_size(low)} to {format_size(high)}"
    evidence = f"one file of {spread}" if len(data) == 1 else f"{len(data):,} files were read, {spread} each"
    return DerivedValue(len(data), "high", evidence)


def _by_trace(subject: _Subject) -> tuple[dict[str, DerivedValue], Pace]:
    assert subject.reads is not None
    log, reads, kind = subject.log, subject.reads, subject.kind
    core = extents.payload(reads)
    parts = extents.stretches(core)
    sample = access_pattern.sample(core, parts, kind.streams, kind.loads_files)
    pace = step_detection.pace(steps := step_detection.find(core), sample.bytes)
    per_rank = access_pattern.passes(core, parts, log.job.ranks)
    keys = _common(subject)
    size = sample.bytes
    if sample.hidden:
        size = _hidden(
            subject, core.usual, steps.bytes if steps is not None and steps.number >= step_detection.ENOUGH else None
        )
    keys |= _geometry(subject, size, sample.stdev, access_pattern.places(core, size, per_rank.share))
    request = access_pattern.buffer(reads) if kind.is_numpy else access_pattern.transfer(core.length)
    keys |= _chunk(keys, sample, request, _is_mpiio(subject))
    keys["reader.load"] = DerivedValue("on_demand", "medium", "the program read until its end")
    keys["reader.batch_size"] = pace.batch
    keys["reader.interleave"] = interleave = access_pattern.interleave(core if kind.streams else parts)
    keys["reader.transfer_size"] = request
    keys["reader.read_threads"] = _threads(access_pattern.threads(reads), interleave, kind.streams)
    keys["reader.prefetch"] = pace.ahead
    order = access_pattern.order(core, parts, [file.path for file in subject.data])
    keys |= {
        "reader.shuffle.files": order.files,
        "reader.shuffle.samples": order.samples,
        "reader.shard": per_rank.shard,
    }
    keys["compute.time"] = pace.compute_s._replace(value=round(pace.compute_s.value, 6))
    keys["train.epochs"] = per_rank.epochs
    keys["train.steps"] = _part(keys, per_rank, core)
    return keys, pace


def _threads(threads: DerivedValue, interleave: DerivedValue, streams: bool) -> DerivedValue:
    """Return `reader.read_threads`. In a streamed format, each file is read by one thread at a time. The number of read
    threads is therefore limited to `reader.interleave`, the number of files from which a rank reads alternately. A
    further thread would only open new files.
    """
    files = interleave.value or 1
    if not streams or interleave.confidence == "unknown" or threads.value <= files:
        return threads
    return DerivedValue(files, "medium", f"{threads.evidence}; but only {files} file(s) are read in turn")


def _hidden(subject: _Subject, request: int, burst: float | None) -> DerivedValue:
    """Return an assumed sample size for data that were read through a buffer, which hides the samples. request: usual
    request size in bytes. burst: bytes of a step; None if they are unknown.
    """
    size = int(np.median([file.size for file in subject.data]))
    hidden = "reads through a buffer do not show records"
    if burst is not None and 0 < burst <= size:
        evidence = f"{hidden}; sample size assumed to be about the bytes that a step reads"
        return DerivedValue(size // round(size / burst), "low", evidence)
    guess = min(size, max(_GUESS, request))
    return DerivedValue(guess, "unknown", f"{hidden}; {_ASSUMED}")


def _geometry(
    subject: _Subject, sample: DerivedValue, stdev: int, places: int | None = None
) -> dict[str, DerivedValue]:
    """Return the values of the keys for samples per file and sample size. The values are chosen such that the files of
    the workload are as large as those in the log. stdev: standard deviation of the sample size in bytes. places: number
    of samples in a file; None if the reads do not show it.
    """
    size = int(np.median([file.size for file in subject.data]))
    count = places or max(1, round(size / max(sample.value, 1)))
    evidence = f"files of {format_size(size)} (median), samples of {format_size(sample.value)}"
    evidence = f"{places:,} pieces of a file were read, in requests of {sample.value:,} B" if places else evidence
    bytes_of_sample = sample if count > 1 or sample.value <= size else sample._replace(value=max(size, 1))
    if sample.confidence == "unknown":
        bytes_of_sample = sample._replace(value=max(1, size // count))
    keys = {
        "dataset.samples_per_file": DerivedValue(
            count, weaker(sample.confidence, "medium") if count > 1 else sample.confidence, evidence
        )
    }
    if subject.kind.name.value == "csv":
        keys["dataset.sample.shape"] = bytes_of_sample._replace(value=[max(1, bytes_of_sample.value // 10)])
        keys["dataset.sample.dtype"] = DerivedValue(
            "float32", "unknown", "the only type that csv files have, with ten characters per value"
        )
        return keys
    keys["dataset.sample.bytes"] = bytes_of_sample
    if 1 <= stdev <= 2**40:
        keys["dataset.sample.stdev"] = DerivedValue(
            stdev, weaker(sample.confidence, "medium"), "standard deviation of sizes"
        )
    return keys


def _is_mpiio(subject: _Subject) -> bool:
    """Return whether the dataset was opened through MPI-IO. If it was, HDF5 had no sieve buffer."""
    paths = {file.path for file in subject.data}
    records = subject.log.counted.get("MPI-IO", NO_RECORDS)
    return any(subject.log.names.get(number) in paths for number in records["id"].tolist())


def _chunk(
    keys: dict[str, DerivedValue], sample: access_pattern.LogSample, request: DerivedValue, is_mpiio: bool
) -> dict[str, DerivedValue]:
    """Return the key `dataset.chunk`, or an empty dict if the dataset is not chunked. HDF5 reads a chunk in one
    request. A dataset is assumed to be chunked if samples are read in equal pieces, or if requests are smaller than the
    sieve buffer through which HDF5 reads contiguous data.
    """
    if keys["dataset.format"].value != "hdf5" or keys["reader.mode"].value != "framework":
        return {}
    pieces = sample.bytes.value / request.value
    if request.confidence == "low" or sample.whole:
        return {}
    if pieces == 1 and request.value < _SIEVE and not is_mpiio:
        evidence = f"requests of {request.value:,} B; HDF5 reads contiguous data in {_SIEVE:,} B (its sieve buffer)"
        return {"dataset.chunk": DerivedValue(request.value, "medium", evidence)}
    if pieces < 2:
        return {}
    evidence = f"{pieces:.3g} requests of {request.value:,} B per sample; contiguous data would take one request"
    return {"dataset.chunk": DerivedValue(request.value, "medium", evidence)}


def _part(keys: dict[str, DerivedValue], passes: access_pattern.Passes, reads: Reads) -> DerivedValue:
    """Return `train.steps`: the number of steps of an epoch if the program read only a part of the dataset, otherwise
    None.
    """
    if passes.share >= _ALL and not passes.drawn:
        return DerivedValue(None, "medium", f"{passes.share:.0%} of the files' bytes were read: the whole dataset")
    ranks = max(1, len(np.unique(reads.rank)))
    size = _sample_bytes(keys)
    samples = reads.length.sum() / ranks / max(size, 1) / max(keys["train.epochs"].value, 1)
    count = max(1, round(samples / keys["reader.batch_size"].value))
    evidence = f"{samples:,.0f} samples per rank in batches of {keys['reader.batch_size'].value:,}"
    return DerivedValue(
        count, "low", evidence if passes.drawn else f"only {passes.share:.0%} of the files' bytes were read: {evidence}"
    )


def _sample_bytes(keys: dict[str, DerivedValue]) -> int:
    if "dataset.sample.shape" in keys:
        return int(keys["dataset.sample.shape"].value[0]) * 10
    return int(keys["dataset.sample.bytes"].value)


def _by_counters(subject: _Subject) -> tuple[dict[str, DerivedValue], Pace]:
    log, data, kind = subject.log, subject.data, subject.kind
    records = from_counters.records_of(log, data)
    keys = _common(subject)
    request = from_counters.transfer(records, data)
    size = from_counters.sample(data, request, kind.streams)
    if not size.value:
        size = _hidden(subject, request.value, None)._replace(evidence=f"counters do not show samples; {_ASSUMED}")
    keys |= _geometry(subject, size, 0)
    none = "not recorded without a trace (DXT)"
    shuffled = DerivedValue(False, "unknown", none)
    whole = from_counters.compute(records, data, log.job.ranks)
    epochs, shard = from_counters.epochs(data), from_counters.shard(data, log.job.ranks)
    if not shard.value:
        epochs = epochs._replace(value=max(1, round(epochs.value / log.job.ranks)))
    keys["reader.load"] = DerivedValue("on_demand", "unknown", none)
    keys["reader.batch_size"] = DerivedValue(1, "unknown", none)
    keys["reader.transfer_size"] = request
    keys["reader.read_threads"] = DerivedValue(1, "unknown", none)
    keys["reader.prefetch"] = DerivedValue(None, "unknown", none)
    keys["reader.shuffle.files"] = from_counters.files_shuffled(log, records)
    keys["reader.shuffle.samples"] = from_counters.samples_shuffled(records) if len(records) else shuffled
    keys["reader.shard"] = shard
    per_rank = max(1.0, _samples_a_rank(subject, keys) * epochs.value)
    keys["compute.time"] = whole._replace(
        value=round(whole.value / per_rank, 6), evidence=f"{whole.evidence}, divided by {per_rank:,.0f} steps"
    )
    keys["train.epochs"] = epochs
    keys["train.steps"] = DerivedValue(None, "unknown", none)
    return keys, step_detection.pace(None, size)


def _saved(subject: _Subject, keys: dict[str, DerivedValue], pace: Pace) -> dict[str, DerivedValue]:
    """Return the checkpoint keys of the workload. If the program keeps all data in memory, also return the keys that
    say so. The result is empty if neither applies.
    """
    files = file_roles.of(subject.roles, "checkpoint")
    checkpoints = auxiliary_files.checkpoints(files, subject.requests, pace.begins, keys["train.epochs"].value)
    made = {} if checkpoints is None else {f"checkpoint.{name}": value for name, value in checkpoints.keys.items()}
    made |= _in_memory(subject, keys, 0 if checkpoints is None else checkpoints.number)
    if checkpoints is not None and "train.epochs" in made:
        made["checkpoint.every_steps"] = DerivedValue(
            None, "low", f"{checkpoints.number} checkpoint(s), assumed to be one per epoch"
        )
    return made


def _in_memory(subject: _Subject, keys: dict[str, DerivedValue], saved: int) -> dict[str, DerivedValue]:
    """Return the workload keys for a program that keeps all data in memory, or an empty dict for other programs. Such a
    program reads the data once, without pauses, and keeps running long after the last read. saved: number of
    checkpoints of the program.
    """
    spans = [file.read_s for file in subject.data if file.read_s is not None]
    if subject.reads is not None:
        spans = [(float(subject.reads.start.min()), float(subject.reads.end.max()))]
    if not spans or keys["train.epochs"].value != 1 or keys["compute.time"].confidence in ("high", "medium"):
        return {}
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    after = subject.log.job.seconds - last
    if after < 2 * (last - first) or (saved < 2 and after < _LONG_S):
        return {}
    level: Confidence = "medium" if saved > 1 else "low"
    evidence = f"all data were read once, from {first:.3g} s to {last:.3g} s after the start of the program"
    evidence += f"; the program ran on for {after:.3g} s"
    epochs = max(saved, 1)
    made = {"reader.load": DerivedValue("memory", level, evidence)}
    made["train.epochs"] = DerivedValue(
        epochs, "low" if saved > 1 else "unknown", f"{saved} checkpoint(s) after the last read"
    )
    count = max(1.0, _samples_a_rank(subject, keys) / keys["reader.batch_size"].value)
    evidence = f"{after:.3g} s of run time after the last read, divided by {epochs} x {count:,.0f} steps"
    made["compute.time"] = DerivedValue(round(after / epochs / count, 6), "low", evidence)
    return made


def _sides(subject: _Subject, keys: dict[str, DerivedValue]) -> list[AuxiliaryGroup]:
    files = [*file_roles.of(subject.roles, "auxiliary file"), *file_roles.of(subject.roles, "output")]
    return auxiliary_files.sides(files, subject.requests, subject.log.job.ranks, _steps(subject, keys))


def _steps(subject: _Subject, keys: dict[str, DerivedValue]) -> int | None:
    """Return the number of steps of a rank in the whole run, or None if the batch size is unknown."""
    if keys["reader.batch_size"].confidence == "unknown":
        return None
    per_epoch = float(keys["train.steps"].value or _samples_a_rank(subject, keys) / keys["reader.batch_size"].value)
    return max(1, round(per_epoch * int(keys["train.epochs"].value)))


def _samples_a_rank(subject: _Subject, keys: dict[str, DerivedValue]) -> float:
    """Return the number of samples that a rank reads in a complete epoch."""
    samples = float(keys["dataset.files"].value * keys["dataset.samples_per_file"].value)
    return samples / (subject.log.job.ranks if keys["reader.shard"].value else 1)
