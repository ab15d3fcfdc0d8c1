"""Candidates: workloads that may make the requests in a log. The requests of each candidate are predicted and compared
with those in the log. The candidate that agrees best is chosen. Its margin over the other candidates is the confidence
in it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from dlio_hpc.config.workload import Workload
from dlio_hpc.programs.characterize import prediction, traits
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.programs.characterize.prediction import Integers, RequestColumns
from dlio_hpc.programs.characterize.traits import Traits
from dlio_hpc.programs.files.extents import Reads

# Largest number of samples of a rank, of their requests, and of ranks for which requests are predicted.
_SAMPLES, _REQUESTS, _RANKS = 4000, 100_000, 4
# Margins of the best candidate over others from which a value is certain, or likely.
CERTAIN, LIKELY, ALIKE = 0.05, 0.02, 0.002
# A candidate that agrees less than this with the log does not explain it, or not in all, even if all others agree still
# less.
_EXPLAINS, _EXPLAINS_WELL = 0.75, 0.9
# Keys of a workload from which the requests for samples are predicted.
_KEYS = (
    "dataset.format", "dataset.file_access", "dataset.files", "dataset.samples_per_file", "dataset.sample.bytes",
    "dataset.sample.shape", "dataset.arrays", "dataset.chunk", "dataset.row_group", "reader.mode", "reader.batch_size",
    "reader.array_order", "reader.by_array", "reader.transfer_size", "reader.read_threads", "reader.shard",
)  # fmt: skip
_ORDER = ("reader.shuffle.files", "reader.shuffle.samples", "reader.shuffle.ascending", "reader.interleave")

Values = Mapping[str, Any]


class PredictedProgram(NamedTuple):
    """Requests that a program is predicted to make. traits: traits of the requests of each reader. step_bytes: mean
    bytes that a rank reads in a step.
    """

    traits: list[Traits]
    step_bytes: float


class Candidate(NamedTuple):
    """A candidate and how well its predicted requests agree with those in the log. values: value of each key.
    predicted: median of each trait of its requests. agreements: agreement in each trait, from 0 to 1. score: mean of
    the agreements.
    """

    values: Values
    predicted: dict[str, float]
    agreements: dict[str, float]
    score: float


def ranked(candidates: Iterable[Values], logged: Sequence[Traits], ranks: int) -> list[Candidate]:
    """Return the candidates, the best first. Candidates that are not valid workloads are left out. logged: traits of
    each reader in the log. ranks: number of ranks of the program.
    """
    made = []
    for values in candidates:
        program = predicted(values, ranks)
        if program is None:
            continue
        agreements = traits.agreement(program.traits, logged)
        score = sum(agreements.values()) / max(len(agreements), 1)
        made.append(Candidate(values, traits.medians(program.traits), agreements, score))
    return sorted(made, key=lambda candidate: -candidate.score)


def runner_up(candidates: Sequence[Candidate], key: str) -> Candidate | None:
    """Return the best candidate that has another value of `key` than the first candidate, or None."""
    first = candidates[0].values.get(key)
    return next((candidate for candidate in candidates if candidate.values.get(key) != first), None)


def predicted(values: Values, ranks: int) -> PredictedProgram | None:
    """Predict the requests of a workload with these keys. Keys that do not affect requests are ignored. Return None if
    the keys are not allowed together.
    """
    try:
        workload = _workload(base(values))
    except (msgspec.ValidationError, ValueError):
        return None
    batch, step_bytes = workload.reader.batch_size, []
    pieces = -(-workload.dataset.sample_bytes // (workload.request_size or workload.dataset.sample_bytes))
    most = min(_SAMPLES, max(_REQUESTS // pieces, 1))
    readers: list[Traits] = []
    for rank in range(min(ranks, _RANKS)):
        samples = min(prediction.samples_of(workload, ranks, rank), most)
        columns = [made for made in prediction.of_epoch(workload, ranks, rank, 0, most) if len(made.file)]
        readers += [traits.of(made) for made in columns]
        step_bytes += [sum(int(made.length.sum()) for made in columns) / max(samples / batch, 1)]
    return PredictedProgram(readers, float(np.median(step_bytes)))


def base(values: Values) -> dict[str, Any]:
    """Return the keys from which requests are predicted. The number of threads is set to one."""
    made = {key: values[key] for key in (*_KEYS, *_ORDER) if key in values} | {"reader.read_threads": 1}
    if made["reader.mode"] == "framework" and made["dataset.format"] != "tfrecord":
        made.pop("reader.transfer_size", None)  # a library chooses the size
    return made


def _workload(values: Values) -> Workload:
    nested: dict[str, Any] = {"name": "candidate"}
    for key, value in values.items():
        *sections, last = key.split(".")
        section = nested
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = {"bytes": value} if key == "dataset.chunk" and value is not None else value
    return msgspec.convert(nested, Workload, dec_hook=lambda kind, value: kind(value))


def order(
    keys: Mapping[str, DerivedValue], in_turn: DerivedValue, logged: Sequence[Traits], ranks: int, in_streams: bool
) -> dict[str, DerivedValue]:
    """Return the keys for the order of files and samples, from the candidate that agrees best with the log. keys: the
    other keys of the workload. in_turn: estimated number of files from which the program reads alternately. in_streams:
    whether each file is read from its beginning to its end, whatever the order of its samples.
    """
    shared = {key: keys[key].value for key in _KEYS if key in keys}
    alternate = in_turn.value if in_turn.confidence in ("high", "medium") else None
    orders = [values for values in _orders(alternate) if not (in_streams and values["reader.shuffle.samples"])]
    candidates = ranked(({**shared, **values} for values in orders), logged, ranks)
    if not candidates or not candidates[0].agreements:
        return {key: DerivedValue(None if key.endswith("interleave") else False, "unknown", "too few reads to show an "
                "order") for key in _ORDER}  # fmt: skip
    shown = traits.medians(logged)
    made = {key: _chosen(candidates, key, shown) for key in _ORDER}
    made["reader.interleave"] = (
        _one_by_one(made, in_turn) if alternate is None else _in_turn(made["reader.interleave"], in_turn)
    )
    if in_streams:
        evidence = "files are read from their beginning to their end; reads do not show in which order samples are used"
        made["reader.shuffle.samples"] = DerivedValue(False, "unknown", evidence)
    return made


def _in_turn(chosen: DerivedValue, in_turn: DerivedValue) -> DerivedValue:
    """Return `reader.interleave` for a program that reads files in turn. A workload reads one sample of a file in a
    turn. If the program reads several samples in a turn, the prediction may agree better without turns. chosen: value
    of the best candidate. in_turn: estimate from the reads.
    """
    evidence = f"{in_turn.evidence}; {chosen.evidence}"
    if chosen.value != in_turn.value:
        return in_turn._replace(confidence="low", evidence=evidence)
    return in_turn._replace(confidence=weaker(chosen.confidence, in_turn.confidence), evidence=evidence)


def _one_by_one(order: Mapping[str, DerivedValue], in_turn: DerivedValue) -> DerivedValue:
    """Return `reader.interleave` for a program that does not read files in turn. in_turn: estimate from the reads."""
    if order["reader.shuffle.files"].value and order["reader.shuffle.samples"].value:
        evidence = "samples of all files are shuffled together: any file may be next"
        return DerivedValue(None, order["reader.shuffle.samples"].confidence, evidence)
    return in_turn._replace(value=None)


def _orders(in_turn: int | None) -> Iterator[Values]:
    """Yield the keys of all orders. The simplest orders come first, because the first of two that agree equally is
    chosen.
    """
    for files, samples, ascending in (
        (False, False, False), (True, False, False), (False, True, False), (True, True, False), (False, True, True),
        (True, True, True),
    ):  # fmt: skip
        for interleave in (None, in_turn):
            if interleave != 1 and (interleave is None or not (files and samples)):
                yield dict(zip(_ORDER, (files, samples, ascending, interleave), strict=True))


def _chosen(candidates: Sequence[Candidate], key: str, shown: Mapping[str, float]) -> DerivedValue:
    """Return the value of `key` of the first candidate. shown: the median of each trait in the log."""
    best, other = candidates[0], runner_up(candidates, key)
    apart = best.score - other.score if other is not None else 1.0
    level: Confidence = (
        "unknown" if apart < ALIKE else "low" if apart < LIKELY else "medium" if apart < CERTAIN else "high"
    )
    level = weaker(level, "low" if best.score < _EXPLAINS else "medium" if best.score < _EXPLAINS_WELL else "high")
    return DerivedValue(best.values[key], level, _reason(best, other, key, shown))


def _reason(best: Candidate, other: Candidate | None, key: str, shown: Mapping[str, float]) -> str:
    """Return the evidence for the value of `key` of the best candidate: the trait that favours it most over `other`,
    and the agreement of both candidates in all traits.
    """
    agrees = f"predicted requests agree with the log to {best.score:.2f}"
    if other is None:
        return f"{agrees}; the log shows no other value"
    value = other.values[key]
    rival = "null" if value is None else str(value).lower()
    agrees = f"{agrees}, with {rival} to {other.score:.2f}"
    names = [name for name in traits.PHRASES if name in best.agreements and name in other.agreements]
    clearest = max(names, key=lambda name: best.agreements[name] - other.agreements[name], default=None)
    if clearest is None or best.agreements[clearest] - other.agreements[clearest] < ALIKE:
        return agrees
    log, mine, its = (traits.phrase(clearest, values[clearest]) for values in (shown, best.predicted, other.predicted))
    return f"{traits.PHRASES[clearest]}: {log}, predicted {mine}, with {rival} {its}; {agrees}"


def logged(reads: Reads, places: Integers, by_file: bool) -> list[Traits]:
    """Return the traits of each reader in a log. places: position of each file in the order of the names of the files.
    by_file: whether files are loaded whole, so that all requests of a visit to a file are treated as one.
    """
    readers = [RequestColumns(places[reads.file[at]], reads.offset[at], reads.length[at]) for at in reads.readers]
    return [traits.of(_visits(columns) if by_file else columns) for columns in readers if len(columns.file)]


def _visits(columns: RequestColumns) -> RequestColumns:
    first = np.flatnonzero(np.concatenate(([True], np.diff(columns.file) != 0)))
    size = np.add.reduceat(columns.length, first)
    return RequestColumns(columns.file[first], np.zeros(len(first), np.int64), size)
