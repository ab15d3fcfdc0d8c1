"""An acceptance as a page: the verdict, every criterion, and the evidence of each group."""

from collections.abc import Iterator

from dlio_hpc import __version__
from dlio_hpc.report import verdict_banners
from dlio_hpc.report.figures import acceptance_plots, run_panels
from dlio_hpc.report.page import Drawing, Facts, Page, Section, Table
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.acceptancetables import HEADER, row
from dlio_hpc.verdict.criterion_result import Check, advice_lines

_FINE = ("pass", "skipped")


def of_acceptance(found: Acceptance) -> Page:
    drawn = {picture.title: run_panels.inline(picture) for picture in acceptance_plots.draw(found)}
    groups = [group for group in found.groups if group]
    return Page(
        title=f"Acceptance of {', '.join(found.what)}",
        subtitle=f"by {found.criteria.name} · dlio-hpc {__version__}",
        banner=verdict_banners.of_acceptance(found),
        facts=list(_facts(found)),
        sections=[overview(found), *(_group(found, group, _drawing(drawn, group)) for group in groups)],
    )


def _drawing(drawn: dict[str, Drawing], group: str) -> list[Drawing]:
    return [drawing for title, drawing in drawn.items() if title.endswith(f": {group}")]


def _facts(found: Acceptance) -> Iterator[Facts]:
    criteria = found.criteria
    told = [("Criteria", criteria.name), ("For", criteria.description), ("Source", criteria.source)]
    told.append(("cached above", f"{100 * criteria.cached_above:g} % from memory"))
    yield Facts("Criteria", [(label, text) for label, text in told if text])
    if unmet := [check for check in found.checks if check.outcome not in _FINE]:
        told = [(check.outcome, ": ".join(filter(None, (check.group, check.title)))) for check in unmet]
        yield Facts("Not met, or without a verdict", told)


def overview(found: Acceptance) -> Section:
    """A table of criteria for each group."""
    grids = [
        Table(group or "All of it", list(HEADER), [row(check) for check in found.of(group)]) for group in found.groups
    ]
    return Section("Criteria", [], [*grids, *_faults(found)], [], [])


def _faults(found: Acceptance) -> Iterator[Table]:
    """Evidence of what is about everything."""
    yield from (_evidence(check) for check in found.of("") if check.evidence)


def _group(found: Acceptance, group: str, drawings: list[Drawing]) -> Section:
    checks = found.of(group)
    notes = [f"{check.outcome}: {check.title}: {check.words}" for check in checks if check.outcome not in _FINE]
    advice = [[line] for check in checks for line in advice_lines(check)]
    return Section(
        heading=group,
        notes=notes,
        summary=[Table("What would help", [""], advice)] if advice else [],
        drawings=drawings,
        tables=[_evidence(check) for check in checks if check.evidence],
    )


def _evidence(check: Check) -> Table:
    header = ["job", "run", "found", "by itself"]
    by_itself = {True: "pass", False: "fail", None: "-"}
    rows = [[each.job, each.run or "-", each.words, by_itself[each.is_met]] for each in check.evidence]
    return Table(f"{check.title}: {check.asked}: {check.outcome}. {check.words}", header, rows)
