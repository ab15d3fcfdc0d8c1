"""Dashboard of a facility: a sentence on the state after the last night, and a card for each suite and workload."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from dlio_hpc.base import units
from dlio_hpc.base.nights import night_of
from dlio_hpc.base.units import counted
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.reports import banner, regression_rows, sparkline
from dlio_hpc.reports.banner import Banner, State
from dlio_hpc.reports.page import Block, Board, Card, CardLine, Lines, NightState, Page, Section, Table
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.verdict import group_names, regression, run_groups, trend
from dlio_hpc.verdict.baseline_comparison import Verdict
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.newest_jobs import Standing
from dlio_hpc.verdict.run_groups import Group

# A suite that ran within this number of nights before the last one is expected every night.
_EXPECTED = 7
# Seconds after the newest job in which its night is the last one.
_FRESH_S = 86400
# Maximum number of names in the first sentences.
_NAMED = 4
STATES: dict[Outcome, NightState] = {
    "bug": "failed", "invalid": "failed", "infrastructure": "failed", "incomplete": "not measured",
    "cached": "not measured",
    "regression": "regression", "fail": "failed", "inconclusive": "inconclusive", "not_comparable": "inconclusive",
    "improved": "good", "pass": "good", "skipped": "good",
}  # fmt: skip
# From the most to the least severe.
_BANNERS: dict[NightState, State] = {
    "failed": "bad", "regression": "bad", "not measured": "not measured", "inconclusive": "inconclusive",
    "good": "good",
}  # fmt: skip
# States of a measurement that is not compared, although it may have a baseline.
_NOT_COMPARED: tuple[NightState, ...] = ("failed", "not measured")

# Function that returns the relative address of the page of a job or study, or an empty string if there is no page.
Address = Callable[[str], str]


class Unread(NamedTuple):
    """An archive or study for which no page can be made, and the reason."""

    name: str
    why: str


class Facility(NamedTuple):
    """Content of a dashboard. source: name of the folder of archives. now: time at which the dashboard is made. jobs:
    jobs to list below the cards; empty to list none.
    """

    source: str
    now: str
    rows: Sequence[Standing]
    total: int
    address: Address
    jobs: Sequence[Entry] = ()
    unread: Sequence[Unread] = ()


def of_facility(facility: Facility) -> Page:
    """Return the dashboard of a facility."""
    future = [row for row in facility.rows if row.newest.ended > facility.now]
    facility = facility._replace(
        rows=[row for row in facility.rows if row not in future],
        unread=[*facility.unread, *(Unread(row.newest.job, f"it ends at {row.newest.ended}, in the future: a clock was "
                                           "wrong") for row in future)],
    )  # fmt: skip
    judged = [row for row in facility.rows if row.outcome is not None]
    last = max((row.night for row in judged), default=None)
    rows = sorted(judged, key=lambda row: (-row.night.toordinal(), _severity(row), row.site, row.name))
    made = f"Made {facility.now[:16].replace('T', ' ')} UTC."
    return Page(
        title="Dashboard",
        subtitle=f"{facility.source}: {counted(facility.total, 'job')}. {made}",
        banner=_banner(rows, last, facility),
        facts=[],
        sections=[*_sites(rows, last, facility), *_rest(facility)],
    )


def _severity(row: Standing) -> int:
    return list(_BANNERS).index(_state(row))


def _state(row: Standing) -> NightState:
    """Return the state of the newest job of a row. If the criteria of a suite cannot be read, its state is not good."""
    assert row.outcome is not None
    state = STATES[row.outcome]
    return "inconclusive" if state == "good" and row.note else state


def _summary(row: Standing) -> str:
    """Return the verdict on the newest job in one line, in the same words as in reports of suites and comparisons."""
    if row.suite is not None:
        return row.suite.summary
    assert row.judgement is not None
    return f"{row.name} on {row.site}: {regression_rows.summary(row.judgement)}"


def _banner(rows: Sequence[Standing], last: date | None, facility: Facility) -> Banner:
    if not rows or last is None:
        state: State = "bad" if facility.unread else "not measured"
        return Banner(state, " ".join(["No job has a verdict.", *_unread(facility.unread)]))
    ran = [row for row in rows if row.night == last]
    missed = [row for row in rows if _is_missed(row, last)]
    decisive = _decisive(ran, bool(missed))
    bad = [row for row in sorted(ran, key=lambda row: (row not in decisive, _severity(row))) if _state(row) != "good"]
    newest = max((row.newest for row in rows), key=lambda entry: entry.ended)
    age_s = units.seconds_between(newest.ended, facility.now)
    lead = f"Last night {last}: {_counts(ran, missed)}."
    if age_s > _FRESH_S:
        has_studies = any(row.newest.ended > newest.ended for row in facility.rows)
        subject = f"{'Only studies' if has_studies else 'Nothing'} ran since {_when(newest)} UTC"
        lead = f"{subject} ({age_s / 86400:.1f} days), as far as jobs are archived. That night: {_counts(ran, missed)}."
    states: list[State] = [_BANNERS[_state(row)] for row in decisive]
    if missed or age_s > _FRESH_S or not ran:
        states.append("not measured")
    if facility.unread:
        states.append("bad")
    worst = banner.gravest([Banner(state, "") for state in states]).state
    return Banner(worst, " ".join([lead, *_problems(bad), *_absent(rows, missed, last), *_unread(facility.unread)]))


def _decisive(ran: Sequence[Standing], is_any_missed: bool) -> Sequence[Standing]:
    """Return the rows of a night that determine the state of the page: suites, and workloads that have a baseline or
    are slower than before. If there are no such rows, return all rows, unless an expected suite or workload did not
    run. A user's trial in a shared archive therefore does not change the state of the facility. A workload is left out
    if its newest job is the baseline itself. is_any_missed: whether a suite or a workload that was expected did not run
    that night.
    """
    decisive = [
        row
        for row in ran
        if row.kind != "single" or _state(row) == "regression" or (row.has_baseline and not _is_baseline(row))
    ]
    return decisive if decisive or is_any_missed else ran


def _is_baseline(row: Standing) -> bool:
    return row.judgement is not None and all(verdict.is_of_itself for verdict in row.judgement.verdicts)


def _is_missed(row: Standing, last: date) -> bool:
    """Return whether a row was expected to run last night but did not run. A suite is expected if it ran in one of the
    nights before. A workload is expected if it has a baseline and ran in several of these nights.
    """
    since = last - timedelta(days=_EXPECTED)
    if not since <= row.night < last:
        return False
    if row.kind != "single":
        return True
    return row.has_baseline and any(since <= night_of(job.ended) < row.night for job in reversed(row.jobs))


def _counts(ran: Sequence[Standing], missed: Sequence[Standing]) -> str:
    """Return how many of the suites and of the other workloads are good. missed: rows that did not run."""
    suites, lost_suites = ([row for row in rows if row.kind != "single"] for rows in (ran, missed))
    others, lost_others = ([row for row in rows if row.kind == "single"] for rows in (ran, missed))
    clauses = []
    if suites or lost_suites:
        clauses.append(_good(suites, len(suites) + len(lost_suites), "suite"))
    if others or lost_others:
        clauses.append(_good(others, len(others) + len(lost_others), "other workload" if clauses else "workload"))
    return ", ".join(clauses) or "nothing was measured"


def _good(rows: Sequence[Standing], count: int, noun: str) -> str:
    good = sum(_state(row) == "good" for row in rows)
    return f"{good} of {count} {noun}{'s' * (count != 1)} good"


def _problems(bad: Sequence[Standing]) -> Iterator[str]:
    """Yield the most severe verdict in full, and the names of the rows with other verdicts."""
    if bad:
        yield f"{_summary(bad[0])}."
    if bad[1:]:
        names = [f"{row.name} on {row.site} ({_state(row)})" for row in bad[1 : 1 + _NAMED]]
        rest = f" and {len(bad) - 1 - _NAMED} more" if len(bad) - 1 > _NAMED else ""
        yield f"Also: {', '.join(names)}{rest}."


def _absent(rows: Sequence[Standing], missed: Sequence[Standing], last: date) -> Iterator[str]:
    if missed:
        names = [f"{row.name} on {row.site} (last {row.night})" for row in missed[:_NAMED]]
        rest = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
        yield f"Not run that night: {', '.join(names)}{rest}."
    old = [row for row in rows if row.kind != "single" and row.night < last - timedelta(days=_EXPECTED)]
    if old:
        yield f"{len(old)} suite{'s have' if len(old) > 1 else ' has'} not run for more than {_EXPECTED} nights."


def _unread(unread: Sequence[Unread]) -> Iterator[str]:
    if unread:
        rest = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
        yield f"Cannot be read: {', '.join(item.name for item in unread[:_NAMED])}{rest}."


def _sites(rows: Sequence[Standing], last: date | None, facility: Facility) -> Iterator[Section]:
    """Yield a section with the cards of each site. Sites are ordered by their newest and most severe card."""
    for number, site in enumerate(dict.fromkeys(row.site for row in rows), 1):
        mine = [row for row in rows if row.site == site]
        assert last is not None
        cards = [_card(row, last, f"card-{number}-{place}", facility.address) for place, row in enumerate(mine, 1)]
        yield Section(site, [Board(cards)])


def _card(row: Standing, last: date, anchor: str, address: Address) -> Card:
    is_missed = _is_missed(row, last)
    when = f"night {row.night}" if row.night == last else f"last run: night {row.night}"
    judged = row.suite.judgement if row.suite is not None else row.judgement
    assert judged is not None
    pages = [("suite", row.newest.study)] * (row.kind == "suite") + [("job", job) for job in row.members]
    links = [(f"{noun} {name}", address(name)) for noun, name in pages]
    notes = [*([row.note] if row.note else []), *_unmet(row), *_reasons(judged.verdicts), *_warnings(judged.verdicts)]
    return Card(
        anchor=anchor,
        state="not measured" if is_missed else _state(row),
        title=f"{row.name} on {row.site}",
        when=f"not run in night {last}; {when}" if is_missed else when,
        is_current=row.night == last,
        summary=f"That night: {_summary(row)}." if row.night != last else f"{_summary(row)}.",
        links=links,
        lines=[_line(verdict, row, last) for verdict in judged.verdicts],
        notes=list(dict.fromkeys(notes)),
    )


def _reasons(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the reasons for the verdicts that are not good. If there is only one verdict, yield nothing, because the
    summary of the card states its reason.
    """
    if len(verdicts) > 1:
        for verdict in verdicts:
            if STATES[verdict.outcome] != "good" and not verdict.is_of_itself:
                yield f"{verdict.subject}: {verdict.why}."


def _unmet(row: Standing) -> Iterator[str]:
    """Yield the results of the first criteria that a suite does not meet, and the number of further criteria that it
    does not meet.
    """
    unmet = row.suite.acceptance.unmet if row.suite is not None else []
    for check in unmet[:_NAMED]:
        yield f"{': '.join(filter(None, (check.group, check.title)))}: {check.measured}; asked: {check.asked}."
    if more := len(unmet[_NAMED:]):
        yield f"{more} more {'criterion is not met or has' if more == 1 else 'criteria are not met or have'} no verdict."


def _warnings(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the objections to the comparisons, such as the objections that were overridden when the baseline was
    accepted.
    """
    warnings = list(dict.fromkeys(warning for verdict in verdicts for warning in verdict.warnings))
    yield from (f"Note: {warning}." for warning in warnings[:_NAMED])


def _line(verdict: Verdict, row: Standing, last: date) -> CardLine:
    state, metric = STATES[verdict.outcome], verdict.metric
    if verdict.is_of_itself and _state(row) == "good":
        state = "good"
    group = _group(verdict, row)
    if group is None:
        return CardLine(state, verdict.subject, "", "", "unknown", "unknown", "unknown")
    base = verdict.there.median if verdict.there is not None else None
    shown = sparkline.nights(row.jobs, group.key, metric, last, base)
    night = verdict.here or trend.night(group, metric)
    interval = "unknown"
    change = "not compared" if state in _NOT_COMPARED else "no baseline"
    if verdict.ratio is not None:
        change = regression.signed(verdict.ratio)
    if verdict.is_of_itself:
        change, interval = "is the baseline", "-"
    elif verdict.low is not None and verdict.high is not None:
        interval = f"{regression.signed(verdict.low)} to {regression.signed(verdict.high)}"
    return CardLine(
        state=state,
        name=f"{verdict.title or group_names.name(group)}: {METRICS[metric].noun}",
        spark=sparkline.svg(shown),
        nights=sparkline.described(shown),
        latest="unknown" if night is None else regression_rows.number(night, metric),
        change=change,
        interval=interval,
    )


def _group(verdict: Verdict, row: Standing) -> Group | None:
    """Return the runs that a verdict concerns, or None if it concerns the whole job."""
    groups = run_groups.of(row.newest)
    return next((group for group in groups if (group.key, group.title) == (verdict.key, verdict.title)), None)


def _rest(facility: Facility) -> Iterator[Section]:
    """Yield the sections below the cards."""
    if facility.unread:
        rows = [[item.name, item.why] for item in facility.unread]
        yield Section("Archives that cannot be read", [Table("", ("archive", "reason"), rows)])
    studies = [row for row in facility.rows if row.kind == "study"]
    if studies:
        blocks: list[Block] = [
            Lines(
                [
                    "A study compares settings. The page of a study says which setting is best. Studies are "
                    "not compared with a baseline."
                ]
            ),
            _studies(studies, facility.address),
        ]
        yield Section("Studies", blocks)
    if facility.jobs:
        yield Section("All jobs", [_jobs(facility.jobs, facility.address)])


def _studies(rows: Sequence[Standing], address: Address) -> Table:
    cells = [[row.newest.study, row.site, str(len(row.members)), _when(row.newest)] for row in rows]
    return Table("", ("newest study", "site", "jobs", "ended (UTC)"), cells, links=[address(row[0]) for row in cells])


def _jobs(jobs: Sequence[Entry], address: Address) -> Table:
    newest = sorted(jobs, key=lambda job: (job.ended, job.job), reverse=True)
    rows = [[job.job, _when(job), str(night_of(job.ended)), job.site, job.state, job.fault or "-"] for job in newest]
    header = ("job", "ended (UTC)", "night", "site", "state", "fault")
    fold = f"Show {counted(len(rows), 'job')}, newest first"
    return Table("", header, rows, links=[address(job.job) for job in newest], fold=fold)


def _when(entry: Entry) -> str:
    return entry.ended[:16].replace("T", " ")
