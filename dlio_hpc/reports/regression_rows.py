"""Verdicts as table rows and lines, for the terminal, the HTML page and the JUnit file."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.files import rundir
from dlio_hpc.records.outcomes import OUTCOMES, label, severity
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import regression
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict
from dlio_hpc.verdict.junit import Case
from dlio_hpc.verdict.trend import Night

# If a fault contains one of these phrases, the job reached a time limit.
_LATE = ("timeout", "time limit")
# Name of a run, such as 02-measure-1.
_RUN = re.compile(r"\b\d\d+-(generate|warmup|measure)")
_HEADER = ("", "verdict", "job", "measurement", "ratio", "interval", "this job", "reference", "n")


class VerdictTable(NamedTuple):
    """Table of verdicts. common: facts that are the same in all rows, and the jobs with their letters, each as a label
    and a text. header: names of the columns. rows: one row for each verdict. A column that is empty in all rows is left
    out.
    """

    common: list[tuple[str, str]]
    header: list[str]
    rows: list[list[str]]


def by_severity(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts, the most severe first."""
    return sorted(verdicts, key=lambda verdict: severity(verdict.outcome))


def table(verdicts: Sequence[Verdict]) -> VerdictTable:
    """Return the table of verdicts, with a row for each verdict in the given order."""
    shared, subjects = _subjects(verdicts)
    jobs = list(dict.fromkeys(verdict.job for verdict in verdicts))
    letters = {} if len(jobs) == 1 else {job: _letter(number) for number, job in enumerate(jobs)}
    metrics = list(dict.fromkeys(METRICS[verdict.metric].noun for verdict in verdicts))
    if len(metrics) > 1:
        subjects = [
            f"{subject}, {METRICS[verdict.metric].noun}" for subject, verdict in zip(subjects, verdicts, strict=True)
        ]
    rows = [
        [str(number), label(verdict.outcome), letters.get(verdict.job, "-"), subject, *_numbers(verdict)]
        for number, (verdict, subject) in enumerate(zip(verdicts, subjects, strict=True), 1)
    ]
    common = [("job", jobs[0])] if not letters else [(f"job {letter}", job) for job, letter in letters.items()]
    common += [("measures", shared)] if shared else []
    common += [("metric", metrics[0])] if len(metrics) == 1 else []
    counts = {row[-1] for row in rows}
    if len(counts) == 1 and "-" not in counts:
        common.append(("n", counts.pop()))
        rows = [[*row[:-1], "-"] for row in rows]
    kept = [place for place in range(len(_HEADER)) if any(row[place] != "-" for row in rows)]
    return VerdictTable(common, [_HEADER[place] for place in kept], [[row[place] for place in kept] for row in rows])


def _subjects(verdicts: Sequence[Verdict]) -> tuple[str, list[str]]:
    """Return two values: the words that the subjects of all verdicts have in common, and a list with the rest of each
    subject, or "-" if nothing is left.
    """
    parts = [verdict.subject.split(", ") if verdict.key is not None else [] for verdict in verdicts]
    shared = [part for part in parts[0] if all(part in own for own in parts)] if parts else []
    return ", ".join(shared), [", ".join(part for part in own if part not in shared) or "-" for own in parts]


def _letter(number: int) -> str:
    """Return a letter for a job, or letters if there are more than 26 jobs: A, B, ..., Z, AA."""
    rest, place = divmod(number, 26)
    return (_letter(rest - 1) if rest else "") + chr(ord("A") + place)


def _numbers(verdict: Verdict) -> list[str]:
    """Return the last cells of the table row for a verdict, beginning with the ratio."""
    has_interval = verdict.low is not None and verdict.high is not None and not verdict.is_of_itself
    counts = [str(len(night.values)) for night in (verdict.here, verdict.there) if night is not None]
    return [
        "-" if verdict.ratio is None or verdict.is_of_itself else f"{verdict.ratio:.3f}",
        f"{verdict.low:.3f}-{verdict.high:.3f}" if has_interval else "-",
        number(verdict.here, verdict.metric),
        number(verdict.there, verdict.metric),
        "/".join(counts) or "-",
    ]


def legend(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the explanation of the columns of table(), and of the names of runs in its reasons."""
    lines = []
    if any(verdict.here is not None for verdict in verdicts):
        lines.append(
            "this job: median of the runs of the job. reference: median of the runs that the job is compared with. n: "
            "numbers of these runs."
            + (
                " ratio: this job to the nights at the level of the reference; below 1 is worse. It compares levels, "
                "which outlying runs do not change; if runs are scattered, it differs from the ratio of the medians. "
                "interval: 90 % interval of the ratio."
            )
            * any(verdict.ratio is not None and not verdict.is_of_itself for verdict in verdicts)
        )
    if any(_RUN.search(text) for verdict in verdicts for text in sentences(verdict)):
        lines.append(rundir.RUN_NAMES)
    return lines


def sentences(verdict: Verdict) -> list[str]:
    """Return the sentences about a verdict: its reason, other activity on the nodes, advice and objections."""
    return [
        _sentence(verdict.why),
        *(f"meanwhile: {line}" for line in verdict.disturbances),
        *(f"advice: {line}" for line in verdict.advice),
        *(f"note: {warning}" for warning in verdict.warnings),
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def number(night: Night | None, metric: MetricName) -> str:
    """Return the median of the repeats of a job, formatted by shown(), or "-" if `night` is None."""
    return "-" if night is None else shown(night.median, metric)


def shown(value: float, metric: MetricName) -> str:
    """Return a value as text without its unit. Shares are shown in %."""
    if METRICS[metric].unit == "share":
        return f"{100 * value:.2f} %"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def summary(judgement: Judgement) -> str:
    """Return one line: how many verdicts have each outcome, followed by the first verdict that has the most severe
    outcome. For a single verdict, return its outcome and its reason. If the reason begins with the outcome, the outcome
    is not repeated.
    """
    gravest = [verdict for verdict in judgement.verdicts if verdict.outcome == judgement.outcome]
    worst = min(gravest, key=lambda verdict: math.inf if verdict.ratio is None else verdict.ratio, default=None)
    name = label(judgement.outcome)
    if worst is None:
        return judgement.text
    is_usual = worst.ratio is None or worst.tolerance == regression.TOLERANCE
    limit = "" if is_usual else f" (tolerance {100 * worst.tolerance:.3g} %)"
    if len(judgement.verdicts) == 1:
        return f"{name}: {worst.why.removeprefix(f'{worst.outcome}: ')}{limit}"
    subject = worst.job if worst.subject == worst.job else f"{worst.job}, {worst.subject}"
    return f"{judgement.text}{limit}. First {name}: {subject}: {worst.why}"


def facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each fact about a verdict."""
    yield "why", verdict.why
    for line in verdict.disturbances:
        yield "meanwhile", line
    for line in verdict.advice:
        yield "advice", line
    yield from details(verdict)


def details(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the facts about a verdict that sentences() does not state."""
    metric = verdict.metric
    if verdict.key is not None:
        key = verdict.key
        yield (
            "key",
            f"{key.title}; {key.place}, layout {key.layout}, settings {key.settings}, "
            f"measured as by dlio-hpc {key.version}",
        )
    for name, night in (("this job", verdict.here), ("reference", verdict.there)):
        if night is not None:
            values = ", ".join(shown(value, metric) for value in night.values)
            yield name, f"{night.job}, {night.ended}: median {number(night, metric)} of {len(night.values)} ({values})"
    if verdict.reference is not None:
        if verdict.noise is not None and verdict.noise_source is not None:
            yield "between nights", regression.noise_words(verdict.noise, verdict.noise_source)
        yield "tolerance", f"{100 * verdict.tolerance:g} %"
    if verdict.trend is not None:
        yield from _history(verdict)


def _history(verdict: Verdict) -> Iterator[tuple[str, str]]:
    assert verdict.trend is not None
    history = verdict.trend
    yield "history", regression.changes_words(history)
    if history.outliers:
        yield "outliers", ", ".join(history.outliers)


def case(verdict: Verdict, seconds: float) -> Case:
    """Return the JUnit case for a verdict. A regression is a failure. If the comparison is not possible, the case is an
    error.
    """
    text = "\n".join(f"{name}: {value}" for name, value in facts(verdict))
    title = f"{verdict.subject}: {METRICS[verdict.metric].noun}"
    is_late = verdict.outcome == "incomplete" and any(phrase in verdict.why for phrase in _LATE)
    kind = OUTCOMES[verdict.outcome].junit
    cause = "timeout" if is_late else "" if kind == "pass" else verdict.outcome
    return Case(title, verdict.job, kind, cause, verdict.why, text, seconds)
