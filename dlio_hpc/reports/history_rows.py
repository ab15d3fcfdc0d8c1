"""History as table rows. Each measurement key has a block of rows: one row per job with this key, oldest first."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from dlio_hpc.analysis.study import spread_reasons
from dlio_hpc.base import text_bars
from dlio_hpc.reports import csv_table, regression_rows
from dlio_hpc.reports.numbered_notes import NumberedNotes
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import group_names, regression, run_groups, site_spread, trend
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.history_entry import Entry, Key, together
from dlio_hpc.verdict.regression import TOLERANCE
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.trend import Trend
from dlio_hpc.verdict.variation import ASSUMED, NightSpread

_COLUMNS = ("study", "site", "state", "ended")
_OF_KEY = ("file_system", "layout", "nodes", "ranks_per_node", "workload", "settings", "version")
_OF_RUN = ("run", "kind", "title", "repeat", "data", "fault")
HEADER = ("ended", "job", "n", "median", "spread", "change", "notes")
# Minimum range of medians that the full height of the bars stands for, as a share of the largest median.
_LEAST_SPAN = 0.1


class Line(NamedTuple):
    """Table row of a job. ended: time in UTC. spread: spread of the repeats, divided by their median. change: relative
    change of the median. The change is relative to the baseline of the measurement key or, if there is no baseline, to
    the previous job. notes: remarks on the job: whether the job is the baseline or an outlier, the changes that start
    with this job, the faults of its runs, and why repeats differ.
    """

    ended: str
    job: str
    repeats: str
    median: str
    spread: str
    change: str
    notes: tuple[str, ...]


class Block(NamedTuple):
    """History of the measurements with one measurement key. title: name of the measurement key; no two blocks have the
    same title. name: short name of the key. lines: one per job. bars: the latest medians as a string of bar characters,
    one per job. trend: None if no job has a value. shifts: sentences on the changes. is_worse: whether the last change
    is for the worse. newest: the entry of the job that ended last. group: the runs with this key in `newest`; None if
    the block has no measurements. site: variation between nights in other measurements of the site. among: number of
    measurements of the site.
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
    site: NightSpread = ASSUMED
    among: int = 1


def blocks(
    entries: Sequence[Entry], active: Sequence[Accepted], metric: MetricName, last: int | None = None
) -> list[Block]:
    """Return a block per measurement key. The blocks are ordered by the time at which their newest job ended. All jobs
    without a measurement share one block, which comes first. active: the active baselines. last: number of the newest
    jobs that get lines; None for all jobs. Trends are computed from all jobs.
    """
    jobs = sorted(together(entries), key=lambda entry: (entry.ended, entry.job))
    return _blocks(jobs, active, metric, {entry.job for entry in (jobs if last is None else jobs[-last:])})


def _blocks(
    entries: Sequence[Entry], active: Sequence[Accepted], metric: MetricName, kept: Collection[str]
) -> list[Block]:
    """Return the blocks. entries: jobs, oldest first. kept: names of the jobs that get lines."""
    by_key: dict[Key, list[tuple[Entry, Group]]] = {}
    for entry in entries:
        for group in run_groups.of(entry):
            by_key.setdefault(group.key, []).append((entry, group))
    newest = sorted(by_key, key=lambda key: (by_key[key][-1][0].ended, key.digest))
    titles = group_names.titles([_named(by_key[key]) for key in newest])
    prior = site_spread.of_others(entries)
    result = [
        _block(title, key, by_key[key], active, metric, prior(key, metric), kept)._replace(
            among=_among(entries, by_key[key])
        )
        for title, key in zip(titles, newest, strict=True)
    ]
    rest = [entry for entry in entries if not run_groups.of(entry)]
    if rest:
        lines = [
            Line(entry.ended, entry.job, "-", "-", "-", "-", (entry.fault or entry.state,))
            for entry in rest
            if entry.job in kept
        ]
        last = max(rest, key=lambda entry: entry.ended)
        result.insert(0, Block("no measurements", None, lines, "", None, None, [], False, last, None))
    return result


def _among(entries: Sequence[Entry], nights: list[tuple[Entry, Group]]) -> int:
    """Return the number of measurements that the site had when a measurement key was last measured. nights: nights of
    this key.
    """
    newest = nights[-1][0]
    return site_spread.among([past for past in entries if past.ended <= newest.ended and past is not newest], newest)


def _named(nights: list[tuple[Entry, Group]]) -> Group:
    """Return the newest group of the nights. The block takes its name from this group. If the groups have different
    titles, the title of the returned group is empty.
    """
    newest = nights[-1][1]
    titles = {group.title for _, group in nights if group.title}
    return structs.replace(newest, title=titles.pop() if len(titles) == 1 else "")


def _block(
    title: str,
    key: Key,
    nights: list[tuple[Entry, Group]],
    active: Sequence[Accepted],
    metric: MetricName,
    site: NightSpread,
    kept: Collection[str],
) -> Block:
    name = group_names.name(_named(nights))
    baseline = next((accepted for accepted in active if accepted.group.key == key), None)
    newest = nights[-1][1]
    alike = next((group for _, group in reversed(nights) if group.is_of_storage), newest)
    history = trend.of(trend.nights([entry for entry, _ in nights], alike, metric), metric, site)
    if not history.nights:
        lines = [_line(entry, group, metric, None, ()) for entry, group in nights if entry.job in kept]
        return Block(title, key, lines, "", None, baseline, [], False, *nights[-1], name)
    notes = _notes(history, baseline)
    medians = {night.job: night.median for night in history.nights}
    base = _base(baseline, metric)
    lines, before = [], None
    for entry, group in nights:
        if entry.job in kept:
            lines.append(_line(entry, group, metric, base or before, notes.get(entry.job, ())))
        before = medians.get(entry.job, before)
    shifts = [f"{name}: {regression.shift_words(shift)}" for shift in history.shifts]
    is_worse = bool(history.shifts) and history.shifts[-1].ratio < 1 - TOLERANCE
    bars = _bars([night.median for night in history.nights])
    return Block(title, key, lines, bars, history, baseline, shifts, is_worse, *nights[-1], name, site)


def _base(baseline: Accepted | None, metric: MetricName) -> float | None:
    """Return the median of the baseline. Return None if there is no baseline, or if the baseline lacks the metric."""
    night = None if baseline is None else trend.night(baseline.group, metric)
    return None if night is None else night.median


def _notes(history: Trend, baseline: Accepted | None) -> dict[str, Sequence[str]]:
    """Return notes on jobs, by job name."""
    notes: dict[str, list[str]] = {}
    if baseline is not None:
        notes.setdefault(baseline.group.job, []).append("baseline")
    for shift in history.shifts:
        notes.setdefault(shift.since, []).append(f"{shift.kind} of {regression.signed(shift.ratio)} begins")
    for job in history.outliers:
        notes.setdefault(job, []).append("outlier")
    return dict(notes)


def _line(entry: Entry, group: Group, metric: MetricName, base: float | None, notes: Sequence[str]) -> Line:
    values = group.values(metric)
    night = trend.night(group, metric)
    is_one_of_several = not run_groups.alone(run_groups.of(entry), group)
    remarks = [*notes, *([f"data {group.data}"] if is_one_of_several else [])]
    change = "-"
    if night is not None and base:
        ratio = night.median / base if METRICS[metric].is_higher_better else base / night.median
        change = regression.signed(ratio)
    return Line(
        ended=entry.ended,
        job=entry.job,
        repeats=str(len(values)),
        median="-" if night is None else regression_rows.number(night, metric),
        spread="-" if night is None or len(values) < 2 else f"{100 * spread_reasons.spread(values):.1f} %",
        change=change,
        notes=(*remarks, *_doubts(group), *_disturbances(group, metric)),
    )


def _disturbances(group: Group, metric: MetricName) -> Iterator[str]:
    """If the repeats of the group differ by more than disturbances.LARGE, yield a phrase that says by how much,
    followed by possible reasons. Otherwise, yield nothing.
    """
    repeats = group.repeats(metric)
    differ = spread_reasons.spread([repeat.value for repeat in repeats])
    if differ > spread_reasons.LARGE:
        yield f"repeats differ by {100 * differ:.0f} %"
        yield from spread_reasons.explained(repeats)


def _doubts(group: Group) -> Iterator[str]:
    """Yield the reason why the values of the group must not be used. If they may be used, yield nothing."""
    if group.faulty is not None:
        yield f"{group.faulty.run}: {group.faulty.fault}"
    elif not group.is_of_storage:
        yield "cached" if group.storage == "cached" else "storage unknown"


def cells(line: Line, notes: NumberedNotes) -> tuple[str, ...]:
    """Return the table row of a line (header: HEADER). notes: numbered notes to which the remarks on the job are
    added.
    """
    return (line.ended[:10], *line[1:-1], notes.cell(line.notes))


def _bars(medians: Sequence[float]) -> str:
    """Return a string of bar characters, one for each of the last sixty medians. The highest median has the highest
    bar. Medians that differ little have bars of the same height.
    """
    shown = list(medians)[-60:]
    high = max(shown)
    span = max(high - min(shown), _LEAST_SPAN * high)
    return text_bars.bars(shown, high, span)


def write_csv(entries: Sequence[Entry], file: Any) -> None:
    """Write one CSV row per run, with all metrics."""
    csv_table.write(_rows(entries), file)


def _rows(entries: Sequence[Entry]) -> Iterator[list[Any]]:
    """Yield the CSV header, followed by one row per run with all metrics."""
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
