"""Baselines printed on a terminal and as JSON documents."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from dlio_hpc.base.units import counted
from dlio_hpc.reports import regression_rows, terminal
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.verdict import group_names, signatures, trend
from dlio_hpc.verdict.baselines import Baseline


def show(kept: Sequence[Baseline], file: Any) -> None:
    """Print three lines per baseline. First line: id, state and median. Second line: title. Third line: date, user and
    message of the decision that accepted the baseline.
    """
    out = terminal.console(file)
    titles = group_names.titles([baseline.accepted.group for baseline in kept])
    for baseline, title in zip(kept, titles, strict=True):
        accepted = baseline.accepted
        out.print(Text.assemble((accepted.id, "bold"), f"  {_state(baseline)}  {_median(baseline)}"), soft_wrap=True)
        out.print(f"  {title}", soft_wrap=True)
        out.print(f"  {accepted.when[:10]} {accepted.who}: {accepted.message}", soft_wrap=True)


def _state(baseline: Baseline) -> str:
    return f"replaced by {baseline.by}" if baseline.by else baseline.state


def _median(baseline: Baseline) -> str:
    metric = baseline.accepted.group.main_metric
    night = trend.night(baseline.accepted.group, metric)
    if night is None:
        return ""
    known = METRICS[metric]
    unit = known.noun if known.unit == "1/s" else f"{known.unit} of checkpoints"
    return f"{regression_rows.number(night, metric)} {unit}, {counted(len(night.values), 'repeat')}"


def facts(baseline: Baseline, signer: str | None) -> Iterator[tuple[str, str]]:
    """Yield the facts about a baseline, each as a label and a text. signer: name of the user who signed the baseline;
    None if unknown.
    """
    accepted = baseline.accepted
    key = accepted.group.key
    yield "baseline", accepted.id
    yield "state", _state(baseline)
    yield "job", f"{accepted.group.job}, ended {accepted.group.ended}"
    yield "accepted", f"{accepted.when} by {accepted.who}"
    yield "signature", f"valid, of {signer}" if signer else f"not checked: there is no file {signatures.ALLOWED}"
    yield "message", accepted.message
    for warning in accepted.warnings:
        yield "despite", warning
    if baseline.retired is not None:
        yield "retired", f"{baseline.retired.when} by {baseline.retired.who}: {baseline.retired.message}"
    for name in key.__struct_fields__:
        yield name.replace("_", " "), str(getattr(key, name))
    for metric in METRICS:
        values = accepted.group.values(metric)
        if values:
            shown = ", ".join(regression_rows.shown(value, metric) for value in values)
            yield metric, shown
