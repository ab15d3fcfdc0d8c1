"""Candidates: workloads that may make the requests in a log. The requests of each candidate are predicted and compared
with those in the log. The candidate that agrees best is chosen, and its margin over the others is the confidence in it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from dlio_hpc.analysis.characterize import prediction, traits
from dlio_hpc.analysis.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.analysis.characterize.prediction import Integers, RequestColumns
from dlio_hpc.analysis.characterize.traits import Traits
from dlio_hpc.analysis.log.extents import Reads
from dlio_hpc.config.workload import Workload

# Largest number of samples of a rank, and of ranks, for which requests are predicted.
_SAMPLES, _RANKS = 4000, 4
# Margins of the best candidate over others from which a value is certain, or likely.
_CERTAIN, _LIKELY, _ALIKE = 0.05, 0.02, 0.002
# A candidate that agrees less than this with the log does not explain it, even if all others agree still less.
_EXPLAINS = 0.75
# Keys of a workload from which the requests for samples are predicted.
_KEYS = (
    "dataset.format", "dataset.file_access", "dataset.files", "dataset.samples_per_file", "dataset.sample.bytes",
    "dataset.sample.shape", "dataset.chunk", "reader.mode", "reader.batch_size", "reader.transfer_size",
    "reader.read_threads", "reader.shard",
)  # fmt: skip
_ORDER = ("reader.shuffle.files", "reader.shuffle.samples", "reader.shuffle.ascending", "reader.interleave")

Values = Mapping[str, Any]


class Candidate(NamedTuple):
    """A candidate and how well its predicted requests agree with those in the log. values: value of each key.
    agreements: agreement in each trait, from 0 to 1. score: mean of the agreements.
    """

    values: Values
    agreements: dict[str, float]
    score: float


def ranked(candidates: Iterable[Values], logged: Sequence[Traits], ranks: int) -> list[Candidate]:
    """Return the candidates, the best first. Candidates that are no valid workload are left out. logged: traits of each
    reader in the log. ranks: number of ranks of the program.
    """
    made = []
    for values in candidates:
        try:
            workload = _workload(values)
        except (msgspec.ValidationError, ValueError):
            continue
        agreements = traits.agreement(_predicted(workload, ranks), logged)
        made.append(Candidate(values, agreements, sum(agreements.values()) / max(len(agreements), 1)))
    return sorted(made, key=lambda candidate: -candidate.score)


def margin(candidates: Sequence[Candidate], key: str) -> float:
    """Return by how much the best candidate agrees better than the best candidate with another value of `key`. Return 1
    if there is no such candidate.
    """
    best = candidates[0]
    others = [candidate.score for candidate in candidates if candidate.values.get(key) != best.values.get(key)]
    return best.score - max(others) if others else 1.0


def _predicted(workload: Workload, ranks: int) -> list[Traits]:
    readers = [
        columns
        for rank in range(min(ranks, _RANKS))
        for columns in prediction.of_epoch(workload, ranks, rank, 0, _SAMPLES)
    ]
    return [traits.of(columns) for columns in readers if len(columns.file)]


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
    keys: Mapping[str, DerivedValue], in_turn: int | None, logged: Sequence[Traits], ranks: int, in_streams: bool
) -> dict[str, DerivedValue]:
    """Return the keys of the order of files and samples: those of the candidate that agrees best with the log. keys:
    the other keys of the workload. in_turn: number of files from which the program may read alternately; None if it
    reads one file after the other. in_streams: whether each file is read from its beginning to its end, in whatever
    order the program uses its samples.
    """
    base = {key: keys[key].value for key in _KEYS if key in keys} | {"reader.read_threads": 1}
    if base["reader.mode"] == "framework" and base["dataset.format"] != "tfrecord":
        del base["reader.transfer_size"]  # a library chooses the size
    orders = [values for values in _orders(in_turn) if not (in_streams and values["reader.shuffle.samples"])]
    candidates = ranked(({**base, **values} for values in orders), logged, ranks)
    if not candidates or not candidates[0].agreements:
        return {key: DerivedValue(None if key.endswith("interleave") else False, "unknown", "too few reads to show an "
                "order") for key in _ORDER}  # fmt: skip
    made = {key: _chosen(candidates, key) for key in _ORDER}
    if in_streams:
        evidence = "files are read from their beginning to their end; reads do not show in which order samples are used"
        made["reader.shuffle.samples"] = DerivedValue(False, "unknown", evidence)
    return made


def _orders(in_turn: int | None) -> Iterator[Values]:
    """Yield the keys of all orders. The simplest come first: of two that agree equally, the first is chosen."""
    for files, samples, ascending in (
        (False, False, False), (True, False, False), (False, True, False), (True, True, False), (False, True, True),
        (True, True, True),
    ):  # fmt: skip
        for interleave in (None, in_turn):
            if interleave != 1 and (interleave is None or not (files and samples)):
                yield dict(zip(_ORDER, (files, samples, ascending, interleave), strict=True))


def _chosen(candidates: Sequence[Candidate], key: str) -> DerivedValue:
    best, apart = candidates[0], margin(candidates, key)
    level: Confidence = (
        "unknown" if apart < _ALIKE else "low" if apart < _LIKELY else "medium" if apart < _CERTAIN else "high"
    )
    level = level if best.score >= _EXPLAINS else weaker(level, "low")
    traits_ = ", ".join(f"{name} {value:.2f}" for name, value in best.agreements.items())
    other = f"with another value at most {best.score - apart:.2f}" if apart < 1 else "other values are not possible"
    evidence = f"predicted requests agree with the log to {best.score:.2f} ({traits_}), {other}"
    return DerivedValue(best.values[key], level, evidence)


def logged(reads: Reads, places: Integers, by_file: bool) -> list[Traits]:
    """Return the traits of each reader in a log. places: position of each file in the order of the names of the files.
    by_file: whether files are loaded whole, so that all requests of a visit to a file count as one.
    """
    readers = [RequestColumns(places[reads.file[at]], reads.offset[at], reads.length[at]) for at in reads.readers]
    return [traits.of(_visits(columns) if by_file else columns) for columns in readers if len(columns.file)]


def _visits(columns: RequestColumns) -> RequestColumns:
    first = np.flatnonzero(np.concatenate(([True], np.diff(columns.file) != 0)))
    size = np.add.reduceat(columns.length, first)
    return RequestColumns(columns.file[first], np.zeros(len(first), np.int64), size)
