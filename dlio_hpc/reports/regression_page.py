"""Report of jobs that are compared with baselines and earlier jobs, and sections on the verdict of a suite."""

import itertools
from collections.abc import Iterator, Sequence

from dlio_hpc.records.outcomes import OUTCOMES, label
from dlio_hpc.reports import acceptance_page, regression_rows, verdict_banners
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Picture, Pictures, Section, Style, Table
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict
from dlio_hpc.verdict.suite import SuiteVerdict

_SUBTITLE = "against its baseline and its history"
_SUBTITLE_OF_SEVERAL = (
    "each against its baseline and its history; to compare a job with another: dlio-hpc compare JOB --baseline OTHER"
)
# Maximum number of jobs in the title.
_NAMED = 3


def of_judgement(judgement: Judgement) -> Page:
    """Return the report of a comparison: a table of verdicts, followed by each verdict with its reason and picture."""
    verdicts = judgement.verdicts
    jobs = list(dict.fromkeys(verdict.job for verdict in verdicts))
    return Page(
        title=", ".join(jobs[:_NAMED]) + (f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""),
        subtitle=_SUBTITLE if len(jobs) == 1 else _SUBTITLE_OF_SEVERAL,
        banner=verdict_banners.of_judgement(judgement),
        facts=[],
        sections=sections(verdicts, verdict_banners.of_judgement(judgement).text),
        conclusion=judgement.text if len(verdicts) > 1 else label(judgement.outcome),
    )


def sections(verdicts: Sequence[Verdict], said: str = "") -> list[Section]:
    """Return a section with the table of all verdicts, the most severe first, and their reasons below. A section for
    each verdict follows, with its facts and pictures. said: text above the section, which is not repeated.
    """
    ordered = regression_rows.by_severity(verdicts)
    return [Section("Verdicts", _verdicts(ordered, said)), *map(_verdict, ordered, itertools.count(1))]


def of_suite(verdict: SuiteVerdict) -> list[Section]:
    """Return the sections on the verdict of a suite in the report of its study: baselines first, then criteria."""
    judged = verdict.judgement.verdicts
    if not verdict.is_first:
        compared = sections(judged)
    elif verdict.effects:
        compared = []
    else:
        compared = [Section("Baseline", [Lines([f"There is no baseline yet. {_first_step(verdict, judged[0].job)}"])])]
    return [*compared, *acceptance_page.sections(verdict.acceptance)]


def _first_step(verdict: SuiteVerdict, job: str) -> str:
    """Return advice on what to do with the first night of a suite."""
    accept = f"dlio-hpc baseline accept {job} --message '...'"
    if verdict.exit_code == 0:
        return f"To make this job the baseline: {accept}"
    if all(check.outcome == "inconclusive" for check in verdict.acceptance.unmet):
        return (
            "No criterion failed, but this night does not decide all of them; see below. Another night shows more. To "
            f"make this job the baseline nevertheless: {accept}"
        )
    return "Do not make this night the baseline: see below which criteria are not met, and measure another night."


def _verdicts(verdicts: Sequence[Verdict], said: str) -> list[Block]:
    table = regression_rows.table(verdicts)
    styles: list[Style] = [OUTCOMES[verdict.outcome].colour for verdict in verdicts]
    return [
        *([Facts("", table.common)] if table.common else []),
        Table("", table.header, table.rows, styles),
        *_reasons(verdicts, said),
        Lines(regression_rows.legend(verdicts), "dim"),
    ]


def _reasons(verdicts: Sequence[Verdict], said: str) -> Iterator[Facts]:
    """Yield each distinct sentence about the verdicts once, with the numbers of the rows to which it applies. said: as
    in sections(). A sentence that `said` contains is not repeated; if there are other rows, the rows of this sentence
    refer to it.
    """
    rows: dict[str, list[int]] = {}
    for number, verdict in enumerate(verdicts, 1):
        for sentence in regression_rows.sentences(verdict):
            is_said = sentence[1:].removesuffix(".") in said
            if not is_said or len(verdicts) > 1:
                rows.setdefault("See the first sentence of this report." if is_said else sentence, []).append(number)
    if rows:
        yield Facts("", [(_ranges(numbers), sentence) for sentence, numbers in rows.items()])


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text, such as "1-3, 5"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ", ".join(f"{members[0]}-{members[-1]}" if len(members) > 1 else str(members[0]) for members in ranges)


def _verdict(verdict: Verdict, number: int) -> Section:
    heading = f"{number}: {verdict.job}: {verdict.subject}, {METRICS[verdict.metric].noun}: {label(verdict.outcome)}"
    return Section(
        heading,
        [Facts("", list(regression_rows.details(verdict))), Pictures("", lambda: _draw(verdict))],
        is_detail=True,
    )


def _draw(verdict: Verdict) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import regression_plots

    return regression_plots.of_verdict(verdict)
