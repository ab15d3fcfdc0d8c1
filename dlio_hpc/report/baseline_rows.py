"""Baselines on a terminal and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.report import regression_rows, terminal
from dlio_hpc.verdict import group_names, trend
from dlio_hpc.verdict.baselines import Baseline

_MAIN: MetricName = "samples_per_s"


def show(kept: Sequence[Baseline], file: Any) -> None:
    """Two lines each: the baseline, and its key."""
    out = terminal.console(file)
    titles = group_names.titles([one.accepted.group for one in kept])
    for one, title in zip(kept, titles, strict=True):
        accepted = one.accepted
        out.print(Text.assemble((accepted.id, "bold"), f"  {_state(one)}  {_median(one)}"), soft_wrap=True)
        out.print(f"  {title}", soft_wrap=True)
        out.print(f"  {accepted.when[:10]} {accepted.who}: {accepted.message}", soft_wrap=True)


def _state(one: Baseline) -> str:
    return f"replaced by {one.by}" if one.by else one.state


def _median(one: Baseline) -> str:
    found = trend.night(one.accepted.group, _MAIN)
    return "" if found is None else f"{regression_rows.number(found, _MAIN)} samples/s, {len(found.values)} repeat(s)"


def facts(one: Baseline) -> Iterator[tuple[str, str]]:
    """Label and text of all there is to know."""
    accepted = one.accepted
    key = accepted.group.key
    yield "baseline", accepted.id
    yield "state", _state(one)
    yield "job", f"{accepted.group.job}, ended {accepted.group.ended}"
    yield "accepted", f"{accepted.when} by {accepted.who}"
    yield "message", accepted.message
    for words in accepted.warnings:
        yield "although", words
    if one.retired is not None:
        yield "retired", f"{one.retired.when} by {one.retired.who}: {one.retired.message}"
    for name in key.__struct_fields__:
        yield name.replace("_", " "), str(getattr(key, name))
    for metric in METRICS:
        values = accepted.group.values(metric)
        if values:
            shown = ", ".join(regression_rows.shown(value, metric) for value in values)
            yield metric, shown


def as_document(one: Baseline) -> dict[str, Any]:
    import msgspec

    accepted = one.accepted
    return {
        "id": accepted.id,
        "state": one.state,
        "replaced_by": one.by,
        "retired": None if one.retired is None else msgspec.to_builtins(one.retired),
        "job": accepted.group.job,
        "key": msgspec.to_builtins(accepted.group.key),
        "message": accepted.message,
        "who": accepted.who,
        "when": accepted.when,
        "warnings": list(accepted.warnings),
        "metrics": {name: list(values) for name in METRICS if (values := accepted.group.values(name))},
    }
