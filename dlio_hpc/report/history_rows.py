"""The history as lines: a block for each key, its jobs newest last."""

import csv
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from dlio_hpc.analysis.study import disturbances
from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.report import regression_rows
from dlio_hpc.verdict import group_names, regression, run_groups, trend
from dlio_hpc.verdict.baseline_comparison import TOLERANCE
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.history_entry import Entry, Key, together
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.trend import Trend

_COLUMNS = ("study", "site", "state", "ended")
_OF_KEY = ("file_system", "layout", "nodes", "ranks_per_node", "workload", "settings", "version")
_OF_RUN = ("run", "kind", "title", "repeat", "data", "fault")
HEADER = ("when", "job", "n", "median", "spread", "change", "")
_BARS = "▁▂▃▄▅▆▇█"
# A share of the most that fills all bars.
_LITTLE = 0.1


class Line(NamedTuple):
    """A job. change: to the key's baseline, or to the job before; note: baseline, faults, steps, memory."""

    when: str
    job: str
    repeats: str
    median: str
    spread: str
    change: str
    note: str


class Block(NamedTuple):
    """The nights of one key. title: the key as distinguished from other blocks; name: the key in a few words. bars: the
    medians as text bars. trend: None where nothing was measured. shifts: sentences; is_worse: the last shift is for the
    worse. newest: the entry that ended last; group: its measurements of the key, None where it measured nothing.
    """

    title: str
    key: Key | None
    lines: list[Line]
    bars: str
    trend: Trend | None
    baseline: Accepted | None
    shifts: list[str]
    is_worse: bool
    newest: Entry
    group: Group | None
    name: str = ""


def blocks(entries: Sequence[Entry], active: Sequence[Accepted], metric: MetricName) -> list[Block]:
    """Keys in the order of their newest jobs, then jobs that measured nothing."""
    found: dict[Key, list[tuple[Entry, Group]]] = {}
    entries = together(entries)
    for entry in sorted(entries, key=lambda each: (each.ended, each.job)):
        for group in run_groups.of(entry):
            found.setdefault(group.key, []).append((entry, group))
    newest = sorted(found, key=lambda key: (found[key][-1][0].ended, key.digest))
    titles = group_names.titles([_named(found[key]) for key in newest])
    made = [_block(title, key, found[key], active, metric) for title, key in zip(titles, newest, strict=True)]
    rest = [entry for entry in entries if not run_groups.of(entry)]
    if rest:
        lines = [Line(_when(entry), entry.job, "-", "-", "-", "-", entry.fault or entry.state) for entry in rest]
        last = max(rest, key=lambda entry: entry.ended)
        made.insert(0, Block("no measurements", None, lines, "", None, None, [], False, last, None))
    return made


def _named(mine: list[tuple[Entry, Group]]) -> Group:
    """The group that names the block: the newest one, with a point's title only where all that have one share it."""
    newest = mine[-1][1]
    titles = {group.title for _, group in mine if group.title}
    return structs.replace(newest, title=titles.pop() if len(titles) == 1 else "")


def _block(
    title: str, key: Key, mine: list[tuple[Entry, Group]], active: Sequence[Accepted], metric: MetricName
) -> Block:
    name = group_names.name(_named(mine))
    baseline = next((one for one in active if one.group.key == key), None)
    alike = [group for _, group in mine if group.is_of_storage] or [group for _, group in mine]
    seen = trend.of(trend.nights([entry for entry, _ in mine], alike[-1], metric), metric)
    if not seen.nights:
        lines = [_line(entry, group, metric, None, "") for entry, group in mine]
        return Block(title, key, lines, "", None, baseline, [], False, *mine[-1], name)
    notes = _notes(seen, baseline)
    lines, before = [], None
    for entry, group in mine:
        lines.append(_line(entry, group, metric, _base(baseline, metric) or before, notes.get(entry.job, "")))
        before = next((night.median for night in seen.nights if night.job == entry.job), before)
    shifts = [f"{name}: {regression.shift_words(shift)}" for shift in seen.shifts]
    is_worse = bool(seen.shifts) and seen.shifts[-1].ratio < 1 - TOLERANCE
    bars = _bars([night.median for night in seen.nights])
    return Block(title, key, lines, bars, seen, baseline, shifts, is_worse, *mine[-1], name)


def _base(baseline: Accepted | None, metric: MetricName) -> float | None:
    found = None if baseline is None else trend.night(baseline.group, metric)
    return None if found is None else found.median


def _notes(seen: Trend, baseline: Accepted | None) -> dict[str, str]:
    """What there is to say of single jobs."""
    told: dict[str, list[str]] = {}
    if baseline is not None:
        told.setdefault(baseline.group.job, []).append("baseline")
    for shift in seen.shifts:
        told.setdefault(shift.since, []).append(f"{shift.kind} of {regression.signed(shift.ratio)} begins")
    for job in seen.outliers:
        told.setdefault(job, []).append("by itself")
    return {job: ", ".join(words) for job, words in told.items()}


def _line(entry: Entry, group: Group, metric: MetricName, base: float | None, note: str) -> Line:
    values = group.values(metric)
    found = trend.night(group, metric)
    several = not run_groups.alone(run_groups.of(entry), group)
    remarks = [note, f"data {group.data}" if several else "", *_doubts(group), *_disturbances(group, metric)]
    spread = (
        f"{regression_rows.shown(min(values), metric)} to {regression_rows.shown(max(values), metric)}"
        if values
        else "-"
    )
    change = "-"
    if found is not None and base:
        ratio = found.median / base if METRICS[metric].is_higher_better else base / found.median
        change = regression.signed(ratio)
    return Line(
        when=_when(entry),
        job=entry.job,
        repeats=str(len(values)),
        median="-" if found is None else regression_rows.number(found, metric),
        spread=spread if len(values) > 1 else "-",
        change=change,
        note="; ".join(filter(None, remarks)),
    )


def _disturbances(group: Group, metric: MetricName) -> Iterator[str]:
    """Reasons why the repeats differ by more than disturbances.LARGE."""
    repeats = group.repeats(metric)
    differ = disturbances.spread([repeat.value for repeat in repeats])
    if differ > disturbances.LARGE:
        yield f"repeats differ by {100 * differ:.0f} %"
        yield from disturbances.explained(repeats)


def _doubts(group: Group) -> Iterator[str]:
    """Why its figures do not count, if they do not."""
    if group.faulty is not None:
        yield f"{group.faulty.run}: {group.faulty.fault}"
    elif not group.is_of_storage:
        yield "cached" if group.storage == "cached" else "storage unknown"


def _when(entry: Entry) -> str:
    return entry.ended[:16].replace("T", " ")


def cells(line: Line) -> tuple[str, ...]:
    return tuple(line)


def _bars(medians: Sequence[float]) -> str:
    """The last sixty, from the least to the most of them; what differs by little looks alike."""
    shown = list(medians)[-60:]
    high = max(shown)
    span = max(high - min(shown), _LITTLE * high)
    return "".join(_BARS[min(int(8 * (1 - (high - each) / span)), 7)] for each in shown)


def write_csv(entries: Sequence[Entry], file: Any) -> None:
    csv.writer(file, lineterminator="\n").writerows(_rows(entries))


def _rows(entries: Sequence[Entry]) -> Iterator[list[Any]]:
    """A run a row, all metrics."""
    yield ["job", *_COLUMNS, *_OF_KEY, *_OF_RUN, "storage", *METRICS]
    for entry in entries:
        for run in entry.measurements:
            yield [
                entry.job,
                *(getattr(entry, name) for name in _COLUMNS),
                *(getattr(run.key, name) for name in _OF_KEY),
                *(getattr(run, name) for name in _OF_RUN),
                "" if run.storage is None else run.storage.outcome(),
                *(run.metrics.get(name, "") for name in METRICS),
            ]
