"""Derivation of the keys of a workload from a log: the value of each key, with evidence and confidence."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.base.units import counted, format_seconds, format_size
from dlio_hpc.config.dataset_keys import CSV_VALUE
from dlio_hpc.darshan.log import NO_RECORDS, Log
from dlio_hpc.programs.characterize import (
    candidates,
    fitting,
    from_counters,
    other_candidates,
    reading_time,
    row_groups,
    small_reads,
    training_check,
    unproven,
)
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.programs.characterize.other_candidates import Observed
from dlio_hpc.programs.characterize.traits import Traits
from dlio_hpc.programs.files import (
    access_pattern,
    auxiliary_files,
    extents,
    file_arrays,
    file_ends,
    file_formats,
    file_roles,
    named_formats,
    step_detection,
)
from dlio_hpc.programs.files import file_stats as files_of
from dlio_hpc.programs.files.auxiliary_files import AuxiliaryGroup
from dlio_hpc.programs.files.extents import Reads, Stretches
from dlio_hpc.programs.files.file_roles import Role
from dlio_hpc.programs.files.file_stats import FileStats
from dlio_hpc.programs.files.step_detection import Pace
from dlio_hpc.results import intervals

# Size of a sample in bytes that is assumed if the log does not show samples; a larger request size takes precedence.
_GUESS = 1 << 20
_ASSUMED = "sample size assumed to be 1 MiB, but at least the size of a request and at most the size of a file"
# If a program reads less than this share of the files' bytes, it is assumed to read only a part of the dataset by
# design.
_ALL = 0.9
# Size in bytes of the smallest read that HDF5 makes from contiguous data (H5Pset_sieve_buf_size).
_SIEVE = 64 << 10
# A program that runs after its last read for more than this many times the time of reading is assumed to compute on
# data in memory. It must run for more than this many seconds, or write checkpoints.
_LONGER, _LONG_S = 1.0, 2.0
# If it runs this many times longer, it does not matter when it read which data.
_FAR_LONGER = 10.0
# A rank that opens a file less often than this opens it once.
_ONCE = 1.1
# Share by which the number of opens may differ from that of samples, if a file is opened for each sample.
_NEARLY = 0.05
# A program that reads more than this share of its data after a burst at the beginning does not keep all data in memory;
# less may be a look at a few samples.
_LATE, _FEW_LATE = 0.05, 0.01
# Share of the bytes through STDIO from which values that follow from requests are less sure.
_BUFFERED = 0.05
# Number of values in a line of a table whose lines the log does not show.
_LINE = 256
# Smallest share of the time of reading without reads from which the computation of a step is estimated.
_IDLE = 0.2


class Derived(NamedTuple):
    """Workload derived from a log. keys: derived value of each key of the workload, such as dataset.files. sides:
    auxiliary files. roles: role of each file of the log. against: reasons why the program's I/O does not look like
    training. If there are such reasons, `keys` is empty, unless the user forces the derivation of a workload. traced:
    whether the trace was used in addition to the counters.
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


def derive(
    log: Log, requests: Requests | None, wanted: Callable[[str], bool], is_forced: bool, reads_content: bool = False,
    is_selected: bool = False,
) -> Derived:  # fmt: skip
    """Derive the workload of a program. requests: all traced requests to wanted files; None to use counters alone.
    wanted: function that returns whether a path is analysed. is_forced: True to derive a workload even if the program's
    I/O does not show that it trains. reads_content: True to read the beginning of a few files of the dataset, if this
    machine has them. is_selected: whether the user chose which files are wanted.
    """
    files, requests = file_ends.corrected([file for file in files_of.take(log) if wanted(file.path)], requests)
    roles = file_roles.classify(files, is_selected)
    data = file_roles.of(roles, "dataset")
    if not data:
        return Derived({}, [], roles, training_check.against(roles, {}, None, 1), requests is not None)
    reads = _reads(data, requests)
    traced, others = None if reads is None else requests, {role.file.path for role in roles if role.file.bytes_read}
    kind = file_formats.detect(data, traced, reads_content, others)
    subject = _Subject(log, roles, data, reads, requests, kind)
    keys, pace, observed = (_by_counters if reads is None else _by_trace)(subject)
    workers = 1 if reads is None else reads.workers
    reasons = training_check.against(roles, keys, None if reads is None else pace, workers)
    memory = _in_memory(subject, keys, 0, np.inf).get("reader.load") if reasons else None
    if memory is not None:
        reasons[0] += f"; training on data in memory is possible ({memory.evidence})"
    if reasons and not is_forced:
        return Derived({}, [], roles, reasons, requests is not None)
    made = _saved(subject, keys, pace)
    made = {**keys, **made}
    if observed is not None:
        made |= other_candidates.judged(made, observed, subject.kind.loads_files)
    made |= named_formats.compression(made, [file.path for file in data])
    made |= named_formats.fitted(made, subject.kind.form, int(np.median([file.size for file in data])))
    named_formats.withdraw(made)
    fitting.fit(made)
    made |= _in_lines(made)
    made |= unproven.limited(made, workers)
    return Derived(made, _sides(subject, made), roles, reasons, reads is not None)


def _reads(data: Sequence[FileStats], requests: Requests | None) -> Reads | None:
    """Return the reads of the dataset. Return None if there is no trace, if the trace has no reads of the dataset, or
    if most bytes of the dataset were read through STDIO, which is not traced.
    """
    if requests is None:
        return None
    if sum(file.buffered_read for file in data) > 0.5 * sum(file.bytes_read for file in data):
        return None
    made = extents.reads_of(requests, {file.path: file.size for file in data})
    return made if len(made.rank) else None


def _common(subject: _Subject) -> dict[str, DerivedValue]:
    """Return the keys whose values are derived in the same way with and without a trace."""
    data, ranks, kind = subject.data, subject.log.job.ranks, subject.kind
    shared = len(data) == 1 and data[0].ranks > 1
    evidence = f"{len(data):,} files, each opened by {np.median([file.ranks for file in data]):.0f} of {ranks} ranks"
    evidence = f"one file, opened by {data[0].ranks} of {ranks} ranks" if len(data) == 1 else evidence
    level: Confidence = "high" if len(data) > 1 or shared else "unknown" if ranks == 1 else "medium"
    return {
        "dataset.format": kind.name,
        "dataset.file_access": DerivedValue("shared" if shared else "multi", level, evidence),
        "dataset.files": _count(data),
        "reader.mode": kind.mode,
    }


def _count(data: Sequence[FileStats]) -> DerivedValue:
    sizes = [file.size for file in data]
    low, high = min(sizes), max(sizes)
    spread = format_size(high) if low == high else f"{format_size(low)} to {format_size(high)}"
    evidence = f"one file of {spread}" if len(data) == 1 else f"{len(data):,} files were read, {spread} each"
    return DerivedValue(len(data), "high", evidence)


def _by_trace(subject: _Subject) -> tuple[dict[str, DerivedValue], Pace, Observed]:
    assert subject.reads is not None
    log, reads, kind = subject.log, subject.reads, subject.kind
    core = extents.payload(reads, kind.name.value == "hdf5")
    core = row_groups.without_footers(core) if kind.name.value == "parquet" else core
    parts = extents.stretches(core)
    is_tar = kind.form is not None and kind.form.name == "tar" and access_pattern.is_archive_stream(core)
    in_streams = is_tar or kind.streams or (kind.name.value == "raw" and access_pattern.is_stream(core))
    sample = access_pattern.sample(core, parts, in_streams, kind.loads_files, is_tar)
    pace = step_detection.pace(steps := step_detection.find(core), sample.bytes)
    size = _sample_size(subject, core, sample, steps)
    per_rank = _passes(subject, core, parts, size.value)
    is_parquet = kind.name.value == "parquet"
    per_rank = per_rank._replace(share=row_groups.share_read(reads)) if is_parquet else per_rank
    stdev = 0 if is_parquet else sample.stdev
    keys = _common(subject)
    keys |= _geometry(subject, size, stdev, access_pattern.places(core, size, per_rank.share))
    request = _request(subject, core, sample, size)
    keys |= _chunk(keys, sample, request, kind.index_reads, _is_mpiio(subject))
    keys["reader.load"] = _load(subject, per_rank.epochs.value)
    keys["reader.batch_size"] = pace.batch
    keys |= row_groups.geometry(keys)
    interleave = _interleave(subject, core, parts, in_streams)
    keys["reader.transfer_size"] = request
    keys["reader.read_threads"] = _threads(
        access_pattern.threads(core if is_parquet else reads), interleave, kind.streams
    )  # pyarrow reads footers in the calling thread, and row groups in others
    keys["reader.prefetch"] = pace.ahead
    keys["reader.shard"] = per_rank.shard
    keys |= _arrays(subject, core, keys)
    places = access_pattern.natural([file.path for file in subject.data])
    shown = keys | _by_blocks(subject, request.value) if sample.hidden else keys
    shown_traits = candidates.logged(core, places, kind.loads_files)
    in_order = candidates.order(shown, interleave, shown_traits, log.job.ranks, in_streams)
    keys |= {key: value for key, value in in_order.items() if key != "reader.shuffle.ascending" or value.value}
    keys["compute.time"] = _compute(subject, pace)
    keys["train.epochs"] = per_rank.epochs
    keys["train.steps"] = _part(keys, per_rank, core, sum(file.buffered_read for file in subject.data))
    keys |= _keep_open(subject, keys, in_streams) or _reopen(subject, keys, core, in_streams)
    if sample.hidden:
        keys |= _of_blocks(core, _samples_a_rank(keys, subject.log.job.ranks) * keys["train.epochs"].value)
    keys |= _partly_traced(subject, keys)
    if not per_rank.is_even:
        uneven = "some were read more often than others; some of them may not belong to the dataset"
        keys["dataset.files"] = keys["dataset.files"].at_most("medium", uneven)
    return keys, pace, _observed(subject, core, shown_traits, pace, per_rank, keys["reader.read_threads"])


def _interleave(subject: _Subject, core: Reads, parts: Stretches, in_streams: bool) -> DerivedValue:
    """Return the estimate of `reader.interleave`. For a single thread, the reads are used instead of stretches, because
    a stretch continues across reads of other files.
    """
    assert subject.reads is not None
    threads = access_pattern.threads(subject.reads)
    value = access_pattern.interleave(core if in_streams or threads.value == 1 else parts)
    # Threads that read from the page cache seldom overlap, and then look like one that reads files in turn.
    is_doubted = threads.confidence == "low" and not in_streams and value.value is not None
    return value.at_most("medium") if is_doubted else value


def _observed(
    subject: _Subject, core: Reads, shown: list[Traits], pace: Pace, per_rank: access_pattern.Passes,
    threads: DerivedValue,
) -> Observed:  # fmt: skip
    """Return the values that the log shows, for the comparison with candidates. core: the reads of samples. shown:
    traits of these reads. threads: derived number of threads.
    """
    return Observed(
        shown,
        subject.log.job.ranks,
        pace.bytes or None,
        None if threads.confidence == "low" else threads.value,
        per_rank.times,
        1 - _share_of_reading(subject),
        subject.kind.index_reads > 0,
        subject.kind.sample_bytes is not None,
    )


def _share_of_reading(subject: _Subject) -> float:
    """Return the share of the time from the first read to the end of the program in which data were read."""
    time = reading_time.of(subject.data, subject.reads)
    if time is None:
        return 0.0
    return min(1.0, (time.last - time.first) / max(subject.log.job.seconds - time.first, 1e-9))


def _passes(subject: _Subject, core: Reads, parts: Stretches, size: int) -> access_pattern.Passes:
    """Return the passes over the dataset. core: the reads of samples. parts: the stretches that these reads form. size:
    bytes of a sample. If samples are small, HDF5 reads more than a sample into its sieve buffer; only the bytes of the
    sample are counted.
    """
    ranks = subject.log.job.ranks
    if not (subject.kind.name.value == "hdf5" and 0 < size < core.usual == _SIEVE):
        return access_pattern.passes(core, parts, ranks)
    samples = core._replace(length=np.minimum(core.length, size))
    return access_pattern.passes(samples, extents.stretches(samples), ranks)


def _sample_size(
    subject: _Subject, core: Reads, sample: access_pattern.LogSample, steps: step_detection.DetectedSteps | None
) -> DerivedValue:
    """Return the size of a sample in bytes. The size is a guess if the reads do not show it. core: the reads of
    samples.
    """
    assert subject.reads is not None
    kind = subject.kind
    if kind.name.value == "hdf5" and kind.mode.value == "framework" and core.usual == _SIEVE and not kind.index_reads:
        return access_pattern.sieved(core, _SIEVE) or sample.bytes
    if not sample.hidden:
        return sample.bytes
    if subject.reads.workers > 1 and kind.sample_bytes is None:
        return DerivedValue(
            int(np.median([file.size for file in subject.data])),
            "unknown",
            "reads through a buffer do not show records; each worker process reads whole files",
        )
    is_clear = steps is not None and steps.number >= step_detection.ENOUGH
    return _hidden(subject, core.usual, steps.bytes if steps is not None and is_clear else None)


def _request(subject: _Subject, core: Reads, sample: access_pattern.LogSample, size: DerivedValue) -> DerivedValue:
    """Return `reader.transfer_size`. core: the reads of samples. size: size of a sample."""
    assert subject.reads is not None
    kind = subject.kind
    if kind.head is not None:
        return DerivedValue(kind.head, "high", f"the first request to a file has {kind.head:,} B, the next the rest")
    if kind.is_numpy:
        return access_pattern.buffer(subject.reads)
    request = access_pattern.transfer(core.length)
    if not kind.loads_files and not sample.hidden and 0.95 <= request.value / max(size.value, 1) < 1:
        return request._replace(value=size.value)  # requests of about the same size
    return request


def _arrays(subject: _Subject, core: Reads, keys: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return `dataset.arrays` and the keys that depend on it, if each file holds several arrays, and if the log shows
    the sizes of the arrays. Otherwise, return an empty dict. The arrays of a file are assumed to belong to one sample.
    """
    assert subject.reads is not None
    if "dataset.sample.stdev" in keys or "dataset.chunk" in keys or subject.kind.index_reads:
        return {}
    if subject.kind.is_numpy and keys["dataset.samples_per_file"].value == 1:
        return _of_arrays(file_arrays.of_archives(subject.reads), keys)
    if (keys["dataset.format"].value, keys["reader.mode"].value) != ("hdf5", "framework"):
        return {}
    size, count = keys["dataset.sample.bytes"].value, keys["dataset.samples_per_file"].value
    if (equal := file_arrays.of_steps(core, size)) is not None:
        return _of_arrays(equal, keys) | _divided(keys, len(equal.sizes.value), equal.sizes.evidence)
    arrays = file_arrays.of_hdf5(subject.reads)
    if arrays is None or keys["reader.batch_size"].value % count:
        return {}
    reason, batch = "a file is treated as a sample, because headers separate its pieces", keys["reader.batch_size"]
    return _of_arrays(arrays, keys) | {
        "dataset.samples_per_file": DerivedValue(1, "low", reason),
        "reader.batch_size": batch._replace(value=batch.value // count, evidence=f"{batch.evidence}; {reason}"),
    }


def _divided(keys: dict[str, DerivedValue], arrays: int, reason: str) -> dict[str, DerivedValue]:
    """Return the numbers of samples per file and per batch if each sample is divided among several arrays."""
    return {
        name: keys[name]._replace(value=max(1, keys[name].value // arrays), evidence=f"{keys[name].evidence}; {reason}")
        for name in ("dataset.samples_per_file", "reader.batch_size")
    }


def _of_arrays(arrays: file_arrays.FileArrays | None, keys: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the keys of a dataset with these arrays, or an empty dict if there are none."""
    if arrays is None:
        return {}
    size = keys["dataset.sample.bytes"]
    total = sum(arrays.sizes.value)
    evidence = f"{size.evidence}; together, the arrays of a file have {total:,} B"
    order = {"reader.array_order": arrays.order, "reader.by_array": arrays.by_array}
    bytes_of_sample = size._replace(value=total, evidence=evidence)
    made = {"dataset.sample.bytes": bytes_of_sample, "dataset.arrays": arrays.sizes}
    return made | {key: value for key, value in order.items() if value is not None}


def _compute(subject: _Subject, pace: Pace) -> DerivedValue:
    """Return `compute.time` for a program whose steps were detected. For pandas, the time includes parsing, which
    happens between reads.
    """
    seconds = _without_stdio(subject, pace)
    if subject.kind.name.value == "npz" and subject.kind.loads_files and pace.batch.value == 1:
        return seconds.at_most("low", "a file may hold the samples of several steps")
    if subject.kind.name.value != "csv":
        return seconds
    return seconds.at_most("low", "pandas parses text in this time, too")


def _without_stdio(subject: _Subject, pace: Pace) -> DerivedValue:
    """Return the time between the reads of two steps. The time in STDIO calls, which are not traced, is subtracted."""
    records = from_counters.records_of(subject.log, subject.data, "STDIO")
    spent = from_counters.seconds_of(records, subject.log.job.ranks)
    seconds = pace.compute_s._replace(value=round(pace.compute_s.value, 6))
    if not spent or pace.begins is None or not seconds.value:
        return seconds
    part = spent / len(pace.begins)
    evidence = f"{seconds.evidence}; without {format_seconds(part)} of STDIO calls per step"
    return seconds._replace(value=max(round(seconds.value - part, 6), 0.0), evidence=evidence)


def _partly_traced(subject: _Subject, keys: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return keys with lower confidence if a notable part of the dataset was read through STDIO, because requests
    through STDIO are not traced.
    """
    share = sum(file.buffered_read for file in subject.data) / max(sum(file.bytes_read for file in subject.data), 1)
    if share < _BUFFERED:
        return {}
    evidence = f"{share:.0%} of the bytes were read through STDIO, which is not traced"
    return {
        key: value.at_most("medium", evidence)
        for key, value in keys.items()
        if key not in ("dataset.format", "dataset.files", "dataset.file_access")
    }


def _of_blocks(core: Reads, steps: float) -> dict[str, DerivedValue]:
    """Return the keys of the pace for data that are read in blocks. Reads of blocks do not show steps. The time from
    the first read to the last, minus the time in reads, is therefore divided evenly among the steps. steps: number of
    steps of a rank in all epochs.
    """
    spans = [step_detection.span(core, mine) for mine in core.readers]
    whole = float(np.median([span[1, -1] - span[0, 0] for span in spans]))
    idle = whole - float(np.median([intervals.length(span) for span in spans]))
    unknown = DerivedValue(None, "unknown", "reads of blocks do not show batches")
    evidence = (
        f"{format_seconds(max(idle, 0.0))} of {format_seconds(whole)} from the first read to the last without reads"
    )
    seconds = DerivedValue(0.0, "unknown", f"{evidence}: storage is the bottleneck, or the program reads far ahead")
    if idle > _IDLE * whole:
        evidence = f"{evidence}, divided by {steps:,.0f} steps"
        seconds = DerivedValue(round(idle / max(steps, 1.0), 6), "low", evidence)
    return {"compute.time": seconds, "reader.prefetch": unknown, "reader.batch_size": unknown._replace(value=1)}


def _by_blocks(subject: _Subject, block: int) -> dict[str, DerivedValue]:
    """Return a geometry in which each block that is read through a buffer is a sample. It is used for data whose
    samples the log does not show. block: size of a block in bytes.
    """
    count = max(1, int(np.median([file.size for file in subject.data])) // max(block, 1))
    evidence = "a block of the buffer"
    size = {"dataset.sample.bytes": DerivedValue(block, "unknown", evidence)}
    if subject.kind.name.value == "csv":
        size = {"dataset.sample.shape": DerivedValue([max(1, block // CSV_VALUE)], "unknown", evidence)}
    return {"dataset.samples_per_file": DerivedValue(count, "unknown", evidence), **size}


def _threads(threads: DerivedValue, interleave: DerivedValue, is_stream: bool) -> DerivedValue:
    """Return `reader.read_threads`. In a streamed format, each file is read by one thread at a time. Reads from the
    page cache hardly ever overlap. The number of files that are read in turn is therefore used as the number of
    threads.
    """
    files = interleave.value or 1
    if not is_stream or (files == 1 and interleave.confidence == "unknown"):
        return threads
    if threads.confidence == "high" or files == 1:
        return DerivedValue(
            min(threads.value, files), "medium", f"{threads.evidence}; {counted(files, 'file')} are read in turn"
        )
    return DerivedValue(files, "low", f"{files} files are read in turn, presumably by a thread each")


def _hidden(subject: _Subject, request: int, burst: float | None) -> DerivedValue:
    """Return an assumed sample size for data that were read through a buffer. Such reads do not show the samples.
    request: usual request size in bytes. burst: bytes of a step; None if they are unknown. If the content of a file
    shows the size, that size is used instead.
    """
    if subject.kind.sample_bytes is not None:
        return subject.kind.sample_bytes
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
        keys["dataset.sample.shape"] = bytes_of_sample._replace(value=[max(1, bytes_of_sample.value // CSV_VALUE)])
        keys["dataset.sample.dtype"] = DerivedValue(
            "float32", "unknown", "csv files have only this type; ten characters per value are assumed"
        )
        return keys
    keys["dataset.sample.bytes"] = bytes_of_sample
    if 1 <= stdev <= 2**40:
        keys["dataset.sample.stdev"] = DerivedValue(
            stdev, weaker(sample.confidence, "medium"), "standard deviation of sizes"
        )
    return keys


def _in_lines(keys: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the geometry of a CSV dataset. The log does not show the lines of its files. Each assumed sample is
    divided into several lines. The result is empty for other datasets. The bytes of a file and of a step do not change.
    Lines are short, because pandas takes seconds to parse a line of 100,000 values, and the CSV files of real programs
    have shorter lines.
    """
    shape = keys.get("dataset.sample.shape")
    if shape is None or shape.confidence not in ("low", "unknown") or shape.value[0] < 2 * _LINE:
        return {}
    values = shape.value[0]
    lines = min(range(values // (2 * _LINE), values // _LINE + 1)[1:], key=lambda number: values % number)
    evidence = f"; lines of {values // lines} values are assumed"
    count, batch = keys["dataset.samples_per_file"], keys["reader.batch_size"]
    return {
        "dataset.sample.shape": shape._replace(value=[values // lines], evidence=shape.evidence + evidence),
        "dataset.samples_per_file": count._replace(value=count.value * lines, evidence=count.evidence + evidence),
        "reader.batch_size": batch._replace(value=batch.value * lines, evidence=batch.evidence + evidence),
    }


def _keep_open(subject: _Subject, keys: dict[str, DerivedValue], in_streams: bool) -> dict[str, DerivedValue]:
    """Return the key `reader.keep_open` if a rank opens a file in fewer epochs than it reads the file. Otherwise,
    return an empty dict.
    """
    epochs = keys["train.epochs"].value
    if in_streams or subject.kind.loads_files or subject.kind.streams or epochs < 2:
        return {}
    opens = sum(file.opens for file in subject.data) / max(sum(file.ranks for file in subject.data), 1)
    if opens > epochs / 2:
        return {}
    evidence = f"a rank opens a file {opens:.3g} times in {epochs} epochs"
    return {"reader.keep_open": DerivedValue(True, "high" if opens < _ONCE else "medium", evidence)}


def _reopen(subject: _Subject, keys: dict[str, DerivedValue], core: Reads, in_streams: bool) -> dict[str, DerivedValue]:
    """Return the key `reader.reopen` if files of several samples are opened again for each sample. Otherwise, return an
    empty dict. core: the reads of samples.
    """
    if in_streams or subject.kind.loads_files or subject.kind.streams or keys["dataset.samples_per_file"].value < 2:
        return {}
    is_library = keys["reader.mode"].value == "framework"
    if is_library and keys["dataset.format"].value != "hdf5":
        return {}
    size = _sample_bytes(keys)
    samples = len(core) if is_library and size < _SIEVE else core.length.sum() / max(size, 1)
    opens = sum(file.opens for file in subject.data)
    if not 1 - _NEARLY <= opens / max(samples, 1) <= 1 + _NEARLY:
        return {}
    return {"reader.reopen": DerivedValue(True, "high", f"{opens:,} opens of files for {samples:,.0f} samples")}


def _is_mpiio(subject: _Subject) -> bool:
    """Return whether the dataset was opened through MPI-IO. If it was, HDF5 had no sieve buffer."""
    paths = {file.path for file in subject.data}
    records = subject.log.counted.get("MPI-IO", NO_RECORDS)
    return any(subject.log.names.get(number) in paths for number in records["id"].tolist())


def _chunk(
    keys: dict[str, DerivedValue], sample: access_pattern.LogSample, request: DerivedValue, index_reads: int,
    is_mpiio: bool,
) -> dict[str, DerivedValue]:  # fmt: skip
    """Return the key `dataset.chunk`, or an empty dict if the dataset is not chunked. HDF5 reads a chunk in one
    request. A dataset is assumed to be chunked if samples are read in equal pieces, or if requests are smaller than the
    sieve buffer through which HDF5 reads contiguous data.
    """
    if keys["dataset.format"].value != "hdf5" or keys["reader.mode"].value != "framework":
        return {}
    if index_reads and request.value < _file_bytes(keys):
        evidence = (
            f"{index_reads:,} reads have the size of a node of HDF5's index of chunks, which are read in one request"
        )
        return {"dataset.chunk": DerivedValue(request.value, weaker(request.confidence, "high"), evidence)}
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


def _part(keys: dict[str, DerivedValue], passes: access_pattern.Passes, reads: Reads, buffered: int) -> DerivedValue:
    """Return `train.steps`. If the program read only a part of the dataset, the value is the number of steps of an
    epoch, otherwise None. buffered: bytes that were read through STDIO, which are missing from `reads`.
    """
    if passes.share >= _ALL and (not passes.drawn or keys["train.epochs"].value > 1):
        level: Confidence = "low" if passes.drawn or not passes.is_even else "medium"
        return DerivedValue(None, level, f"{passes.share:.0%} of the files' bytes were read: the whole dataset")
    ranks = max(1, len(np.unique(reads.rank)))
    size = _sample_bytes(keys)
    samples = (reads.length.sum() + buffered) / ranks / max(size, 1) / max(keys["train.epochs"].value, 1)
    count = max(1, round(samples / keys["reader.batch_size"].value))
    evidence = f"{samples:,.0f} samples per rank in batches of {keys['reader.batch_size'].value:,}"
    return DerivedValue(
        count, "low", evidence if passes.drawn else f"only {passes.share:.0%} of the files' bytes were read: {evidence}"
    )


def _file_bytes(keys: dict[str, DerivedValue]) -> int:
    return int(keys["dataset.samples_per_file"].value) * _sample_bytes(keys)


def _sample_bytes(keys: dict[str, DerivedValue]) -> int:
    if "dataset.sample.shape" in keys:
        return int(keys["dataset.sample.shape"].value[0]) * CSV_VALUE
    return int(keys["dataset.sample.bytes"].value)


def _by_counters(subject: _Subject) -> tuple[dict[str, DerivedValue], Pace, None]:
    log, data, kind = subject.log, subject.data, subject.kind
    records = from_counters.records_of(log, data)
    keys = _common(subject)
    request = from_counters.transfer(records, data)
    size = from_counters.sample(data, request, kind.streams)
    if not size.value:
        assumed = _hidden(subject, request.value, None)._replace(evidence=f"counters do not show samples; {_ASSUMED}")
        size = kind.sample_bytes or assumed
    keys |= _geometry(subject, size, 0)
    none = "not recorded without a trace (DXT)"
    # Requests of POSIX to files that are read through STDIO are those for headers.
    is_posix = len(records) and sum(file.buffered_read for file in data) <= 0.5 * sum(file.bytes_read for file in data)
    shuffled = DerivedValue(False, "unknown", none)
    stdio = from_counters.records_of(log, data, "STDIO")
    spent = sum(from_counters.seconds_of(part, log.job.ranks) for part in (records, stdio))
    whole = from_counters.compute(spent, data)
    passes = from_counters.epochs(data, log.job.ranks)
    keys["reader.load"] = DerivedValue("on_demand", "unknown", none)
    keys["reader.batch_size"] = DerivedValue(1, "unknown", none)
    keys |= row_groups.geometry(keys)
    keys["reader.transfer_size"] = request
    keys["reader.read_threads"] = DerivedValue(1, "unknown", none)
    keys["reader.prefetch"] = DerivedValue(None, "unknown", none)
    keys["reader.shuffle.files"] = from_counters.files_shuffled(log, records, stdio)
    keys["reader.shuffle.samples"] = from_counters.samples_shuffled(records) if is_posix else shuffled
    keys["reader.shard"] = passes["reader.shard"]
    per_rank = max(1.0, _samples_a_rank(keys, subject.log.job.ranks) * passes["train.epochs"].value)
    keys["compute.time"] = whole._replace(
        value=round(whole.value / per_rank, 6), evidence=f"{whole.evidence}, divided by {per_rank:,.0f} steps"
    )
    keys["train.epochs"] = passes["train.epochs"]
    keys["train.steps"] = DerivedValue(None, "unknown", none)
    return keys, step_detection.pace(None, size), None


def _saved(subject: _Subject, keys: dict[str, DerivedValue], pace: Pace) -> dict[str, DerivedValue]:
    """Return the checkpoint keys of the workload, if the program writes checkpoints. Also return the keys of data in
    memory, if the program keeps all data in memory.
    """
    files = file_roles.of(subject.roles, "checkpoint")
    checkpoints = auxiliary_files.checkpoints(files, subject.requests, pace.begins, keys["train.epochs"].value)
    made = {} if checkpoints is None else {f"checkpoint.{name}": value for name, value in checkpoints.keys.items()}
    first_saved = min((file.written_s[0] for file in files if file.written_s is not None), default=np.inf)
    made |= _in_memory(subject, keys, 0 if checkpoints is None else checkpoints.number, first_saved)
    if checkpoints is not None and "train.epochs" in made:
        made["checkpoint.every_steps"] = DerivedValue(
            None, "low", f"{counted(checkpoints.number, 'checkpoint')}, assumed to be one per epoch"
        )
    return made


def _load(subject: _Subject, epochs: int) -> DerivedValue:
    """Return `reader.load` for a program that reads almost until its end. See _in_memory() for other programs."""
    share = _share_of_reading(subject)
    evidence = f"data were read during {share:.0%} of the time from the first read to the end of the program"
    level: Confidence = "high" if share > 0.8 else "medium" if share > 0.5 else "low"
    if epochs == 1:  # a program that reads slowly may use its data later
        level = weaker(level, "medium")
    return DerivedValue("on_demand", level, evidence)


def _in_memory(
    subject: _Subject, keys: dict[str, DerivedValue], saved: int, first_saved: float
) -> dict[str, DerivedValue]:
    """Return the workload keys for a program that keeps all data in memory, or an empty dict for other programs. Such a
    program reads the data once, before its steps, and keeps running long after the last read. saved: number of
    checkpoints of the program. first_saved: time of the first checkpoint, in seconds since the program began.
    """
    time = reading_time.of(subject.data, subject.reads)
    if time is None or keys["train.epochs"].value != 1:
        return {}
    after, late = subject.log.job.seconds - time.last, max(time.late(), time.after(first_saved))
    taken = time.last - time.first
    if after < _LONGER * taken or (saved < 2 and after < _LONG_S) or late > _LATE:
        return {}
    level: Confidence = "high" if saved > 1 and after > 2 * taken else "medium" if saved > 1 else "low"
    is_short = after > _FAR_LONGER * taken
    is_clear = time.is_clear and time.late(reading_time.MAYBE) <= _LATE
    is_sure = late < _FEW_LATE and subject.reads is not None
    level = weaker(level, "low" if not (is_clear or is_short) else "high" if is_clear and is_sure else "medium")
    evidence = f"all data were read once, from {time.first:.3g} s to {time.last:.3g} s after the start of the program"
    evidence += f"; the program ran on for {after:.3g} s"
    epochs = max(saved, 1)
    made = {"reader.load": DerivedValue("memory", level, evidence)}
    made["train.epochs"] = DerivedValue(
        epochs, "low" if saved > 1 else "unknown", f"{counted(saved, 'checkpoint')} after the last read"
    )
    unseen = "reads before the first step do not show batches"
    made["reader.batch_size"] = keys["reader.batch_size"]._replace(confidence="unknown", evidence=unseen)
    made["reader.prefetch"] = DerivedValue(None, "unknown", unseen)
    order = "data in memory are used in any order, without reads"
    made["reader.shuffle.samples"] = DerivedValue(False, "unknown", order)
    count = max(1.0, _samples_a_rank(keys, subject.log.job.ranks) / keys["reader.batch_size"].value)
    evidence = f"{after:.3g} s of run time after the last read, divided by {epochs} x {count:,.0f} steps"
    made["compute.time"] = DerivedValue(round(after / epochs / count, 6), "low", evidence)
    return made


def _sides(subject: _Subject, keys: dict[str, DerivedValue]) -> list[AuxiliaryGroup]:
    files = [*file_roles.of(subject.roles, "auxiliary file"), *file_roles.of(subject.roles, "output")]
    files = [file for file in files if not named_formats.is_part(file.path, keys["dataset.format"].value)]
    steps = _steps(subject, keys)
    made = auxiliary_files.sides(files, subject.requests, subject.log.job.ranks, steps)
    if subject.reads is None:
        return made
    name, epochs = subject.kind.name.value, int(keys["train.epochs"].value)
    arrays = keys["dataset.arrays"].value if "dataset.arrays" in keys else []
    small = small_reads.groups(subject.reads, name, steps, epochs)
    return [*(group for group in small if group.keys["bytes"] not in arrays), *made]


def amount(keys: dict[str, DerivedValue], ranks: int) -> int:
    """Return the bytes that the derived workload reads for samples, with as many ranks as the program."""
    samples = _samples_a_rank(keys, ranks)
    if keys["train.steps"].value is not None:
        samples = min(samples, keys["train.steps"].value * keys["reader.batch_size"].value)
    epochs = 1 if keys["reader.load"].value == "memory" else keys["train.epochs"].value
    return int(samples * ranks * epochs * _read_bytes(keys, ranks))


def _read_bytes(keys: dict[str, DerivedValue], ranks: int) -> float:
    """Return the mean number of bytes that are read for a sample. If samples are small, HDF5 reads more than a sample,
    because it fills its sieve buffer.
    """
    if (keys["dataset.format"].value, keys["reader.mode"].value) != ("hdf5", "framework"):
        return _sample_bytes(keys)
    program = candidates.predicted({name: value.value for name, value in keys.items()}, ranks)
    batch = keys["reader.batch_size"].value
    return _sample_bytes(keys) if program is None else program.step_bytes / batch


def _steps(subject: _Subject, keys: dict[str, DerivedValue]) -> int | None:
    """Return the number of steps of a rank in the whole run, or None if the batch size is unknown."""
    if keys["reader.batch_size"].confidence == "unknown":
        return None
    per_epoch = float(
        keys["train.steps"].value or _samples_a_rank(keys, subject.log.job.ranks) / keys["reader.batch_size"].value
    )
    return max(1, round(per_epoch * int(keys["train.epochs"].value)))


def _samples_a_rank(keys: dict[str, DerivedValue], ranks: int) -> float:
    """Return the number of samples that a rank reads in a complete epoch."""
    samples = float(keys["dataset.files"].value * keys["dataset.samples_per_file"].value)
    return samples / (ranks if keys["reader.shard"].value else 1)
