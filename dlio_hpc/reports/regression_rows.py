"""Verdicts as table rows and lines, for the terminal, the HTML page and the JUnit file."""

from collections.abc import Iterator

from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import regression
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict
from dlio_hpc.verdict.junit import Case
from dlio_hpc.verdict.trend import Night

# If a fault contains one of these phrases, the job reached a time limit.
_LATE = ("timeout", "time limit")
HEADER = ("verdict", "job", "subject", "metric", "ratio", "90 % interval", "this job", "reference", "n")


def row(verdict: Verdict) -> list[str]:
    """Return the table row for a verdict (header: HEADER)."""
    interval = "-"
    if verdict.low is not None and verdict.high is not None:
        interval = f"{verdict.low:.3f} to {verdict.high:.3f}"
    counts = [str(len(night.values)) for night in (verdict.here, verdict.there) if night is not None]
    return [
        verdict.outcome,
        verdict.job,
        "-" if verdict.key is None else verdict.subject,
        METRICS[verdict.metric].noun,
        "-" if verdict.ratio is None else f"{verdict.ratio:.3f}",
        interval,
        number(verdict.here, verdict.metric),
        number(verdict.there, verdict.metric),
        "/".join(counts) or "-",
    ]


def number(night: Night | None, metric: MetricName) -> str:
    """Return the median of the repeats of a job, formatted by shown(), or "-" if `night` is None."""
    return "-" if night is None else shown(night.median, metric)


def shown(value: float, metric: MetricName) -> str:
    """Return a value as text without its unit, except for shares, which are shown in %."""
    if METRICS[metric].unit == "share":
        return f"{100 * value:.2f} %"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def summary(judgement: Judgement) -> str:
    """Return one line: how many verdicts have each outcome, followed by the first verdict that has the most severe
    outcome. For a single verdict, return its outcome and its reason, which may begin with the outcome.
    """
    worst = next((verdict for verdict in judgement.verdicts if verdict.outcome == judgement.outcome), None)
    if worst is None or len(judgement.verdicts) == 1:
        return f"{judgement.outcome}: {worst.why.removeprefix(f'{worst.outcome}: ')}" if worst else judgement.text
    return f"{judgement.text}. First {judgement.outcome}: {worst.job}, {worst.subject}: {worst.why}"


def facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each fact about a verdict."""
    metric = verdict.metric
    yield "why", verdict.why
    for line in verdict.disturbances:
        yield "meanwhile", line
    for line in verdict.advice:
        yield "advice", line
    if verdict.key is not None:
        key = verdict.key
        yield (
            "key",
            f"{key.title}; {key.place}, layout {key.layout}, settings {key.settings}, "
            f"measured as by dlio-hpc {key.version}",
        )
    for label, night in (("this job", verdict.here), ("reference", verdict.there)):
        if night is not None:
            values = ", ".join(shown(value, metric) for value in night.values)
            yield label, f"{night.job}, {night.ended}: median {number(night, metric)} of {len(night.values)} ({values})"
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
    text = "\n".join(f"{label}: {value}" for label, value in facts(verdict))
    name = f"{verdict.subject}: {METRICS[verdict.metric].noun}"
    is_late = verdict.outcome == "incomplete" and any(phrase in verdict.why for phrase in _LATE)
    kind = OUTCOMES[verdict.outcome].junit
    cause = "timeout" if is_late else "" if kind == "pass" else verdict.outcome
    return Case(name, verdict.job, kind, cause, verdict.why, text, seconds)
