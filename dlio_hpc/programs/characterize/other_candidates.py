"""Candidates other than the derived workload: other chunks, samples, batches, threads and ways to load. The requests
and the pace of each candidate are predicted and compared with the log. A derived value keeps its confidence only if the
log rules out the other candidates.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlio_hpc.programs.characterize import candidates, traits
from dlio_hpc.programs.characterize.candidates import ALIKE, CERTAIN, LIKELY, Values
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue
from dlio_hpc.programs.characterize.traits import Traits

_SAMPLE = ("dataset.sample.bytes", "dataset.samples_per_file", "reader.batch_size")
# A program that keeps its data in memory runs for at least this share of the time after its last read.
_LONG_AFTER = 0.5


class Observed(NamedTuple):
    """Values that a log shows. traits: traits of each reader. ranks: number of ranks. step_bytes: bytes that a reader
    reads in a step; None if no steps were detected. in_flight: reads of a rank in flight at a time; None if reads are
    so short that reads of several threads seldom overlap. If files are read from their beginning to their end,
    in_flight is the number of files that are read in turn. passes: number of times that a rank reads its data. after:
    share of the time from the first read to the end of the program that follows the last read. has_indexes: whether
    nodes of an HDF5 index of chunks were read. shows_content: whether the content of a file showed the size of a
    sample.
    """

    traits: Sequence[Traits]
    ranks: int
    step_bytes: float | None
    in_flight: int | None
    passes: float
    after: float
    has_indexes: bool
    shows_content: bool = False


class OtherCandidate(NamedTuple):
    """A workload that may have caused the log. name: description of the difference from the derived workload. values:
    keys that differ from the derived workload. If `values` is empty, both workloads make the same requests.
    """

    name: str
    values: Values


class NearestCandidate(NamedTuple):
    """The candidate that is hardest to distinguish from the derived workload. traits: names of the traits in which the
    two differ. own, other: agreement of the derived workload and of the candidate with the log in these traits, from 0
    to 1.
    """

    name: str
    traits: tuple[str, ...]
    own: float
    other: float

    @property
    def confidence(self) -> Confidence:
        """Highest confidence that a value may have if this candidate has another value."""
        margin = self.own - self.other
        return "high" if margin >= CERTAIN else "medium" if margin >= LIKELY else "low"

    def __str__(self) -> str:
        if not self.traits:
            return f"{self.name} would cause the same requests"
        names = " and ".join(_PHRASES.get(name, traits.PHRASES.get(name, name)) for name in self.traits[:2])
        return f"{names}: agreement {self.own:.2f}, with {self.name} {self.other:.2f}"


_PHRASES = {
    "sizes": "request sizes", "step": "bytes of a step", "in_flight": "reads in flight", "passes": "passes over data",
    "after": "time after the last read", "indexes": "reads of HDF5's index of chunks",
}  # fmt: skip


def judged(keys: Mapping[str, DerivedValue], observed: Observed, loads_files: bool) -> dict[str, DerivedValue]:
    """Return the keys whose confidence or evidence changes because of other candidates. loads_files: whether a library
    loads whole files.
    """
    made: dict[str, DerivedValue] = {}
    for names, others in (
        (_SAMPLE, [] if observed.shows_content else _samples(keys, loads_files)),
        (("reader.batch_size",), _batches(keys)),
        (("dataset.chunk",), _chunks(keys)),
        (("reader.read_threads",), _threads(keys)),
        (("reader.load",), _loads(keys)),
    ):
        best, known = nearest(keys, others, observed), {**keys, **made}
        if best is None:
            continue
        # Other batches are better evidence for the size of a batch than other samples.
        weighed = names[:2] if names == _SAMPLE and best.confidence == "high" else names
        made |= {name: _weighed(known[name], best) for name in weighed if name in keys}
    return made


def _weighed(value: DerivedValue, best: NearestCandidate) -> DerivedValue:
    if value.confidence in ("unknown", "low"):
        return value
    return value.at_most(best.confidence, str(best))


def nearest(
    keys: Mapping[str, DerivedValue], others: Sequence[OtherCandidate], observed: Observed
) -> NearestCandidate | None:
    """Return the candidate that is hardest to distinguish from the derived workload. Return None if no candidate is a
    valid workload, or if the derived workload is not valid.
    """
    base = {name: value.value for name, value in keys.items()}
    own = _agreements(base, observed)
    if not own:
        return None
    compared = [
        _compared(other.name, own, agreements)
        for other in others
        if (agreements := _agreements({**base, **other.values}, observed) if other.values else own)
    ]
    return min(compared, key=lambda nearest: nearest.own - nearest.other, default=None)


def _compared(name: str, own: Mapping[str, float], other: Mapping[str, float]) -> NearestCandidate:
    common = [trait for trait in own if trait in other and abs(own[trait] - other[trait]) >= ALIKE]
    common.sort(key=lambda trait: other[trait] - own[trait])
    mean = [sum(values[trait] for trait in common) / max(len(common), 1) for values in (own, other)]
    return NearestCandidate(name, tuple(common), mean[0], mean[1])


def _agreements(values: Values, observed: Observed) -> dict[str, float]:
    """Return the agreement of a workload with the log in each trait, from 0 to 1; an empty dict if it is not valid."""
    predicted = candidates.predicted(values, observed.ranks)
    if predicted is None:
        return {}
    made = traits.agreement(predicted.traits, observed.traits)
    if observed.step_bytes:
        made["step"] = _alike(predicted.step_bytes, observed.step_bytes)
    if observed.in_flight is not None:
        made["in_flight"] = _alike(values["reader.read_threads"], observed.in_flight)
    if values["dataset.format"] == "hdf5":  # newer versions of the file format have other indexes
        made["indexes"] = 1.0 if values.get("dataset.chunk") is not None or not observed.has_indexes else 0.0
    in_memory = values["reader.load"] == "memory"
    made["passes"] = _alike(1 if in_memory else values["train.epochs"], observed.passes)
    made["after"] = 1 - max(0.0, _LONG_AFTER - observed.after) if in_memory else 1 - observed.after
    return made


def _alike(a: float, b: float) -> float:
    return min(a, b) / max(a, b) if max(a, b) else 1.0


def _samples(keys: Mapping[str, DerivedValue], loads_files: bool) -> list[OtherCandidate]:
    """Return other candidates for the size and the number of samples."""
    if "dataset.sample.bytes" not in keys:
        return []  # rows of text, whose sizes vary
    size, count, batch = (keys[name].value for name in _SAMPLE)
    chunk = keys["dataset.chunk"].value if "dataset.chunk" in keys else None
    others = []
    if batch == 1 and not loads_files:
        others.append(OtherCandidate("a step that reads several samples in a request", {}))
    if batch == count > 1 and not loads_files:
        values = dict(zip(_SAMPLE, (size * count, 1, 1), strict=True)) | {"dataset.arrays": [size] * count}
        others.append(OtherCandidate("arrays of one sample in a file", values))
    if size > 1 and (keys["dataset.format"].value == "npz" or chunk is not None or not loads_files):
        arrays = [(array + 1) // 2 for array in keys["dataset.arrays"].value] if "dataset.arrays" in keys else []
        halves = dict(zip(_SAMPLE, (sum(arrays) or size // 2, count * 2, batch * 2), strict=True))
        halves |= {"dataset.arrays": arrays} if arrays else {}
        others.append(OtherCandidate("samples of half the size", halves))
    return others


def _batches(keys: Mapping[str, DerivedValue]) -> list[OtherCandidate]:
    batch = keys["reader.batch_size"].value
    sizes = [size for size in (2 * batch, batch // 2) if size]
    return [OtherCandidate(f"batches of {size:,}", {"reader.batch_size": size}) for size in sizes]


def _chunks(keys: Mapping[str, DerivedValue]) -> list[OtherCandidate]:
    if "dataset.chunk" not in keys or keys["dataset.chunk"].value is None:
        return []
    return [OtherCandidate("contiguous data", {"dataset.chunk": None})]


def _threads(keys: Mapping[str, DerivedValue]) -> list[OtherCandidate]:
    threads = keys["reader.read_threads"].value
    counts = [count for count in (2 * threads, threads // 2) if count]
    return [OtherCandidate(f"{count} threads", {"reader.read_threads": count}) for count in counts]


def _loads(keys: Mapping[str, DerivedValue]) -> list[OtherCandidate]:
    if keys["reader.load"].value == "memory":
        return [OtherCandidate("data that are read on demand", {"reader.load": "on_demand"})]
    return [OtherCandidate("data that are kept in memory", {"reader.load": "memory"})]
