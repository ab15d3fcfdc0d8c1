"""Program that reads without a loader: its passes and steps, derived from its recorded reads."""

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.base.units import counted
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue
from dlio_hpc.programs.files import extents, step_detection
from dlio_hpc.programs.recordings.recorded_files import Read, RecordedData
from dlio_hpc.programs.recordings.recorded_program import RankRecording

# Smallest number of passes, and of steps in a pass, that are a sign of training.
_AGAIN, _STEPS = 1.5, 4
# Share of steps with equal batches, from which on they are the batch. Steps for which a read lasts, beyond which data
# are rather kept in memory.
_SAME, _LASTS = 0.9, 16
# Largest relative difference between the samples of all bursts and those of all reads.
_MOST_APART = 0.3
# Formats whose reads have rows.
_TABLES = ("csv", "parquet")
_ONE = DerivedValue(1, "high", "a sample")


class Visit(NamedTuple):
    """Reads of one sample, or of samples that a program reads in one call. unit: path of the file, and place in the
    file; the place is None if the whole file is read. samples: number of samples. begin, end: seconds since 1970.
    """

    unit: tuple[str, int | None]
    samples: int
    begin: float
    end: float


class OwnLoop(NamedTuple):
    """Reads of a program without a loader. visits: visits of each rank, in the order of time. times: number of times
    that a rank reads its data. is_drawn: whether the order differs between passes. goes_back: whether parts of a file,
    such as row groups, are read in another order than their order in the file. is_regular: whether pauses separate
    bursts of several samples each. batch, compute, epochs: values of a workload, derived from the pauses between reads
    or from the steps of an optimizer. steps: number of optimizer steps of a rank.
    """

    visits: list[list[Visit]]
    times: float
    is_drawn: bool
    goes_back: bool
    is_regular: bool
    batch: DerivedValue
    compute: DerivedValue
    epochs: DerivedValue
    steps: int


def of(ranks: Sequence[RankRecording], data: RecordedData) -> OwnLoop:
    """Return the values that the reads of the dataset show. ranks: ranks of the program."""
    visits = [_visits(reads, data) for reads in _by_rank(ranks, data)]
    units = [[visit.unit for visit in mine] for mine in visits if mine]
    times = _times(visits, data)
    pace = step_detection.pace(step_detection.find(_reads(visits)), _ONE, lambda size: counted(round(size), "sample"))
    epochs = max(1, round(times))
    level: Confidence = "medium" if abs(times - epochs) < 0.05 * epochs else "low"
    bursts = 0 if pace.begins is None else len(pace.begins)
    at_most: Confidence = "medium" if _are_all_in_bursts(visits, bursts * pace.bytes) else "low"
    batch = pace.batch.at_most(at_most)
    return OwnLoop(
        visits, times, any(map(_is_drawn, units)), any(map(_goes_back, units)),
        bursts >= _STEPS * max(times, 1) and batch.value > 1 and batch.confidence == "medium",
        _of_steps(ranks, visits) or batch,
        pace.compute_s.at_most(at_most),
        DerivedValue(epochs, level, f"each file or row was read {times:.3g} times by a rank"),
        max(rank.steps for rank in ranks),
    )  # fmt: skip


def _are_all_in_bursts(visits: Sequence[Sequence[Visit]], samples: float) -> bool:
    """Return whether bursts of the median size contain about all samples that a rank read. Otherwise, some bursts
    contain several steps, and the pauses between bursts are not the pauses between steps. samples: number of bursts of
    a rank, multiplied by their median size.
    """
    whole = [sum(visit.samples for visit in mine) for mine in visits if mine]
    return bool(whole) and abs(samples / statistics.median(whole) - 1) < _MOST_APART


def _times(visits: Sequence[Sequence[Visit]], data: RecordedData) -> float:
    """Return the number of times that a rank reads its data. If an array is read in parts that overlap, this is the
    number of times that a row is read, otherwise the number of times that a unit is read.
    """
    units = statistics.median(
        [statistics.mean(Counter(visit.unit for visit in mine).values()) for mine in visits if mine]
    )
    if data.arrays is None:
        return units
    rows = sum(shape[0] if shape else 1 for shape in data.arrays.shapes) / data.arrays.per_file
    amount = sum(visit.samples for mine in visits for visit in mine) / max(rows, 1)
    whole = amount / len(visits)
    return amount if units <= whole * 1.5 and abs(units - round(units)) > 0.05 else units


def _visits(reads: Sequence[Read], data: RecordedData) -> list[Visit]:
    """Return the visits of a rank. If a file has several arrays, only the array that is read most is used. Visits to
    whole files, and to tables that are read in pieces, are separated by the opens of the file.
    """
    if data.arrays is not None:
        names = Counter(read.place[0] for read in reads if read.place)
        busiest = names.most_common(1)[0][0] if names else None
        chosen = [read for read in reads if read.place and read.place[0] == busiest]
        return [_visit((read.path, read.place[1] if read.place else None), read, data) for read in chosen]
    made: list[Visit] = []
    pieces: Counter[str] = Counter()
    last = ""
    for read in reads:
        if read.path != last or read.is_first:
            pieces[read.path] = 0
        elif data.format not in _TABLES:  # another array of the same file
            made[-1] = made[-1]._replace(end=read.time)
            continue
        last = read.path
        place = read.place[1] if read.place else pieces[read.path] if data.format in _TABLES else None
        pieces[read.path] += 1
        made.append(_visit((read.path, place), read, data))
    return made


def _visit(unit: tuple[str, int | None], read: Read, data: RecordedData) -> Visit:
    rows = read.rows if data.format in _TABLES else read.place[2] if data.arrays is not None and read.place else 1
    return Visit(unit, int(rows or 1), read.time - read.seconds, read.time)


def reasons(loop: OwnLoop, models: int) -> list[str]:
    """Return the reasons why the recording does not show that the program trains. models: number of times that a file
    with the name of a model was saved.
    """
    if loop.steps:
        return []
    if loop.times < _AGAIN:
        return [f"its data were read {loop.times:.2g} times, and no step of an optimizer was recorded"]
    if not loop.is_drawn and not loop.is_regular and models < loop.times - 0.5:
        times = f"{loop.times:.3g} times in the same order"
        return [f"its data were read {times}, as when a program evaluates the same input several times"]
    return []


def _by_rank(ranks: Sequence[RankRecording], data: RecordedData) -> list[list[Read]]:
    """Return the reads of the dataset by rank, in the order of time."""
    owner = {process.path: number for number, rank in enumerate(ranks) for process in rank.processes}
    made: list[list[Read]] = [[] for _ in ranks]
    for read in data.reads:
        made[owner[read.process]].append(read)
    return made


def _is_drawn(units: Sequence[tuple[str, int | None]]) -> bool:
    """Return whether a later pass has another order than the first. A pass ends before the first unit that it already
    contains. Passes with less than about half of all units are ignored, because a program that reads a file twice in
    succession does not make passes.
    """
    passes: list[list[tuple[str, int | None]]] = [[]]
    present: set[tuple[str, int | None]] = set()
    for unit in units:
        if unit in present:
            passes.append([])
            present = set()
        passes[-1].append(unit)
        present.add(unit)
    whole = [made for made in passes if len(made) > max(2, len(set(units)) // 2)]
    return any(later != [unit for unit in whole[0] if unit in set(later)] for later in whole[1:])


def _goes_back(units: Sequence[tuple[str, int | None]]) -> bool:
    """Return whether the reader goes back to an earlier unit of the same file. A return to the first unit of the file
    is ignored, because a new pass may begin there.
    """
    return any(
        path == last and place is not None and before is not None and 0 < place < before
        for (last, before), (path, place) in itertools.pairwise(units)
    )


def _reads(visits: Sequence[Sequence[Visit]]) -> extents.Reads:
    """Return the visits as reads whose length is a number of samples instead of bytes. The size of a burst is then the
    number of samples of a step.
    """
    rows = [(rank, visit) for rank, mine in enumerate(visits) for visit in mine]
    numbers: dict[str, int] = {}
    files = [numbers.setdefault(visit.unit[0], len(numbers)) for _, visit in rows]
    length = np.array([visit.samples for _, visit in rows], np.int64)
    first = min((visit.begin for _, visit in rows), default=0.0)
    return extents.Reads(
        np.array([rank for rank, _ in rows], np.int64), np.array(files, np.int64), np.zeros(len(rows), np.int64),
        length,
        np.array([visit.begin - first for _, visit in rows]), np.array([visit.end - first for _, visit in rows]),
        np.zeros(len(rows), np.uint64), np.ones(max(len(numbers), 1), np.int64), extents.usual(length),
    )  # fmt: skip


def _of_steps(ranks: Sequence[RankRecording], visits: Sequence[Sequence[Visit]]) -> DerivedValue | None:
    """Return the batch size, derived from the samples that are read before each optimizer step. Return None if there
    are no steps.
    """
    amounts: list[int] = []
    for rank, mine in zip(ranks, visits, strict=True):
        times = np.array([event.time for event in rank.main.events if event.kind == "step"])
        if len(times) and mine:
            at = np.searchsorted(times, [visit.end for visit in mine])
            counted = np.bincount(at, [visit.samples for visit in mine], len(times) + 1)
            amounts += counted[: len(times)].astype(int).tolist()
    read = [amount for amount in amounts if amount]
    if not read:
        return None
    if len(read) < len(amounts):  # the samples of one read last for several steps
        mean = sum(read) / len(amounts)
        evidence = f"{mean:,.1f} samples for a step: they were read before {len(read):,} of {len(amounts):,} steps"
        return DerivedValue(max(1, round(mean)), "low" if len(amounts) > _LASTS * len(read) else "medium", evidence)
    batch, number = Counter(amounts).most_common(1)[0]
    share = number / len(amounts)
    evidence = f"{batch:,} samples were read before a step, in {share:.0%} of the steps"
    return DerivedValue(batch, "recorded" if share > _SAME else "low", evidence)
