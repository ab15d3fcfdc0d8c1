"""Report on an acceptance test: all criteria of each group, and then the evidence for criteria that are not met."""

import itertools
from collections.abc import Iterator, Sequence

from dlio_hpc import __version__
from dlio_hpc.files import rundir
from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.reports import verdict_banners
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Picture, Pictures, Section, Style, Table
from dlio_hpc.verdict import acceptance
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.criterion_result import Check, advice_lines

_HEADER = ("verdict", "criterion", "required", "measured", "runs")
_EVIDENCE = ("night", "job", "run", "measured", "run alone")
_ROWS = 12


def of_acceptance(accepted: Acceptance) -> Page:
    """Return the report on an acceptance test."""
    return Page(
        title=f"Acceptance of {', '.join(accepted.what)}",
        subtitle=f"by {accepted.criteria.name} · dlio-hpc {__version__}",
        banner=verdict_banners.of_acceptance(accepted),
        facts=list(_facts(accepted)),
        sections=sections(accepted),
        conclusion=acceptance.summary(accepted),
    )


def sections(accepted: Acceptance) -> list[Section]:
    """Return the sections of the report. The first section has a table of criteria for each group. Then, each criterion
    that is not met has its own section. Finally, each group has a section with the pictures of the group and the
    evidence for the other criteria.
    """
    tables = [_table(group or "All jobs", accepted.of(group)) for group in accepted.groups]
    unmet = [check for check in accepted.checks if _is_shown(check)]
    groups = [group for group in accepted.groups if group]
    names = [Lines([rundir.RUN_NAMES], "dim")] if any(check.evidence for check in unmet) else []
    return [
        Section("Criteria", [*tables, *names]),
        *(_unmet(check) for check in unmet),
        *(_group(accepted, group) for group in groups),
    ]


def _is_shown(check: Check) -> bool:
    """Return whether a check has its own section. A check that is met has no section. A check of a metric with the
    outcome `cached` has no section either, because the section on the check of the storage already states the reason.
    A check of opens that the nodes may have answered has a reason and advice of its own.
    """
    return not check.is_met and not (check.outcome == "cached" and check.metric and not check.advice)


def _facts(accepted: Acceptance) -> Iterator[Facts]:
    criteria = accepted.criteria
    rows = [
        ("name", criteria.name), ("for", criteria.description), ("source", criteria.source),
        ("cached if", f"more than {100 * criteria.cached_above:g} % came from memory"),
    ]  # fmt: skip
    yield Facts("Criteria", [(label, text) for label, text in rows if text], is_detail=True)
    if unmet := accepted.unmet:
        names = [(check.outcome, ": ".join(filter(None, (check.group, check.title)))) for check in unmet]
        yield Facts("Not met, or without a verdict", names, is_detail=True)


def _table(title: str, checks: Sequence[Check]) -> Table:
    rows = [
        [check.outcome, check.title, check.asked, check.measured, str(check.runs) if check.runs else ""]
        for check in checks
    ]
    styles: list[Style] = [OUTCOMES[check.outcome].colour for check in checks]
    return Table(title, _HEADER, rows, styles)


def _unmet(check: Check) -> Section:
    where = f" ({check.group})" if check.group else ""
    blocks: list[Block] = [Lines([check.text], depth=2)]
    if check.evidence:
        blocks.append(_evidence(check))
    return Section(
        f"{check.outcome}: {check.title}{where}: {check.asked}", [*blocks, Lines(advice_lines(check), depth=2)]
    )


def _group(accepted: Acceptance, group: str) -> Section:
    """Return the section of a group. The section contains the pictures of the group, and the evidence for checks
    without their own section.
    """
    evidence = [_evidence(check) for check in accepted.of(group) if check.evidence and not _is_shown(check)]
    return Section(group, [Pictures("", lambda: _draw(accepted, group)), *evidence], is_detail=True)


def _evidence(check: Check) -> Table:
    """Return the evidence of a check, one row per run. Columns without a value are left out. If there is only one job
    or one night, its column is left out, too.
    """
    labels = {True: "pass", False: "fail", None: "-"}
    evidence = sorted(check.evidence, key=lambda entry: entry.night)
    rows = [[entry.night, entry.job, entry.run or "-", entry.text, labels[entry.is_met]] for entry in evidence]
    columns = list(zip(*rows, strict=True))
    is_kept = [len(check.nights) > 1, len(set(columns[1])) > 1, True, True, set(columns[4]) != {"-"}]
    title = "" if _is_shown(check) else f"{check.title}: {check.asked}: {check.outcome}. {check.text}"
    return Table(
        title,
        list(itertools.compress(_EVIDENCE, is_kept)),
        [list(itertools.compress(row, is_kept)) for row in rows],
        most=_ROWS,
    )


def _draw(accepted: Acceptance, group: str) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import acceptance_plots

    return (picture for picture in acceptance_plots.draw(accepted) if picture.title.endswith(f": {group}"))
