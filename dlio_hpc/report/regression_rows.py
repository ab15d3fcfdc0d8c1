"""Verdicts as rows of text: the terminal, the page and JUnit's file say the same."""

from collections.abc import Iterator

from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.verdict import regression
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict
from dlio_hpc.verdict.junit import Case
from dlio_hpc.verdict.trend import Night

# How jobs' faults tell that time was over.
_LATE = ("timeout", "time limit")
HEADER = ("verdict", "job", "what", "metric", "ratio", "90 % interval", "this job", "reference", "n")


def row(verdict: Verdict) -> list[str]:
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
    """Its median, with the unit of the metric."""
    return "-" if night is None else shown(night.median, metric)


def shown(value: float, metric: MetricName) -> str:
    if METRICS[metric].unit == "share":
        return f"{100 * value:.2f} %"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def summary(found: Judgement) -> str:
    """A line that says what is to be done first."""
    worst = next((verdict for verdict in found.verdicts if verdict.outcome == found.outcome), None)
    if worst is None or len(found.verdicts) == 1:
        return f"{found.outcome}: {worst.why}" if worst else found.words
    return f"{found.words}. First {found.outcome}: {worst.job}, {worst.subject}: {worst.why}"


def facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Label and text of all there is to know."""
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
            f"{key.title}; {key.file_system}, layout {key.layout}, settings {key.settings}, dlio-hpc {key.version}",
        )
    for label, night in (("this job", verdict.here), ("reference", verdict.there)):
        if night is not None:
            values = ", ".join(shown(value, metric) for value in night.values)
            yield label, f"{night.job}, {night.ended}: median {number(night, metric)} of {len(night.values)} ({values})"
    if verdict.reference is not None:
        noise = "not known: fewer than five nights" if verdict.noise is None else f"{100 * verdict.noise:.1f} %"
        yield "between nights", noise
        yield "tolerance", f"{100 * verdict.tolerance:g} %"
    if verdict.trend is not None:
        yield from _history(verdict)


def _history(verdict: Verdict) -> Iterator[tuple[str, str]]:
    assert verdict.trend is not None
    seen = verdict.trend
    yield "history", regression.changes_words(seen)
    if seen.outliers:
        yield "by themselves", ", ".join(seen.outliers)


def case(verdict: Verdict, seconds: float) -> Case:
    """As CI systems have it: a regression is a failure; what could not be judged is an error."""
    text = "\n".join(f"{label}: {words}" for label, words in facts(verdict))
    name = f"{verdict.subject}: {METRICS[verdict.metric].noun}"
    is_late = verdict.outcome == "incomplete" and any(words in verdict.why for words in _LATE)
    kind = OUTCOMES[verdict.outcome].junit
    cause = "timeout" if is_late else "" if kind == "pass" else verdict.outcome
    return Case(name, verdict.job, kind, cause, verdict.why, text, seconds)
