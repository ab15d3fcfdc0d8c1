"""The report of jobs, or of Darshan logs, as a page: summary first, then each run with its pictures."""

import time
from collections.abc import Sequence
from typing import Any

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.darshan.log_verdict import Bytes
from dlio_hpc.lustre.layout_record import Record
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.report import bottleneck, iotables, job_banner, job_rows, log_banner
from dlio_hpc.report.figures import run_panels
from dlio_hpc.report.figures.run_panels import FIRST
from dlio_hpc.report.page import Drawing, Facts, Page, Section, Table
from dlio_hpc.units import format_seconds, format_size

_SHOWN = 10
# Nodes that the page names.
_NAMED = 32
_ORDER = {"measure": 0, "warmup": 1, "generate": 2}


def of_logs(examined: Sequence[Examined]) -> Page:
    """The page of Darshan logs of any program."""
    sound = [one for one in examined if one.is_sound]
    answers = [bottleneck.of_log(one.title, one.analysis) for one in sound if one.analysis is not None]
    sections = [_section(one.title, one, []) for one in examined]
    return Page(
        title=examined[0].title if len(examined) == 1 else f"{len(examined)} Darshan logs",
        subtitle=" · ".join(dict.fromkeys(one.analysis.program for one in examined if one.analysis)),
        banner=log_banner.of_logs(examined),
        facts=[_log_facts(one) for one in examined if one.log is not None],
        answers=bottleneck.shortened(answers),
        **(_pictured(sections) if len(sound) == len(examined) else {"sections": sections}),
    )


def of_jobs(outcomes: Sequence[JobOutcome], examined: Sequence[dict[str, Examined]]) -> Page:
    """The page of jobs, each with its runs: measured runs first, runs that generate data last."""
    first, opening = outcomes[0], job_banner.of_jobs(outcomes)
    sections: list[Section] = []
    answers: list[str] = []
    for outcome, runs in zip(outcomes, examined, strict=True):
        shown = sorted((run for run in outcome.runs if run.name in runs), key=lambda run: _ORDER[run.run.kind])
        sections += [_run(outcome, run, runs[run.name]) for run in shown]
        answers += bottleneck.of_job(outcome)
    return Page(
        title=first.job.job if len(outcomes) == 1 else first.plan.study,
        subtitle=f"{first.plan.runs[0].workload.name} on {first.plan.site.name}, {first.plan.created}",
        banner=opening,
        facts=[facts for outcome in outcomes for facts in _job_facts(outcome)],
        answers=bottleneck.shortened(answers) if opening.state != "bad" else [],
        **_pictured(
            [
                *_cut_short(outcomes),
                *sections,
                *(_variables(outcome) for outcome in outcomes if outcome.environment),
            ]
        ),
    )


def _cut_short(outcomes: Sequence[JobOutcome]) -> list[Section]:
    """A section with the last lines printed by each job that ended with a run without a result."""
    last = [(outcome.job.job, *lines) for outcome in outcomes if (lines := job_rows.cut_short(outcome)) is not None]
    return [Section(job, [], [Table(title, [""], [[line] for line in lines])], [], []) for job, title, lines in last]


def _pictured(sections: list[Section]) -> dict[str, Any]:
    """The sections of a page, and the pictures that support its answers. The pictures are taken out of the first
    section with pictures.
    """
    first = next((place for place, section in enumerate(sections) if section.drawings), None)
    if first is None:
        return {"sections": sections}
    section = sections[first]
    support = [drawing for drawing in section.drawings if drawing.stem in FIRST]
    others = [drawing for drawing in section.drawings if drawing.stem not in FIRST]
    return {
        "sections": [*sections[:first], section._replace(drawings=others), *sections[first + 1 :]],
        "pictures": support,
    }


def _variables(outcome: JobOutcome) -> Section:
    told = [[name, str(value)] for name, value in outcome.environment.get("variables", {}).items()]
    return Section(f"Environment of {outcome.job.job}", [], [], [], [Table("Variables", ["name", "value"], told)])


def _date(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _log_facts(each: Examined) -> Facts:
    assert each.log is not None
    job = each.log.job
    told = [
        ("Program", job.program),
        ("Processes", str(job.ranks)),
        ("Started", _date(job.started)),
        ("Took", format_seconds(job.seconds)),
        ("Job", str(job.id)),
        ("Darshan", f"{job.library or 'unknown version'}, log format {each.log.version}"),
        ("Modules", ", ".join(each.log.modules)),
    ]
    return Facts(each.title, told)


def _job_facts(outcome: JobOutcome) -> list[Facts]:
    plan, versions = outcome.plan, outcome.environment.get("versions", {})
    lines = job_rows.workload(outcome).splitlines()
    job = [
        ("State", outcome.job.state),
        ("Batch id", str(outcome.job.batch_id or "-")),
        ("Workload", " · ".join(lines)),
        ("Data", plan.runs[0].dataset),
        ("Archive", str(outcome.archive or "-")),
        *(("Note", note) for note in plan.notes),
        *(("Repeats", line) for line in job_rows.repeats(outcome)),
    ]
    nodes = outcome.environment.get("nodes", [])
    on = [(name, str(version)) for name, version in sorted(versions.items())]
    if nodes:
        on = [
            ("nodes", _hosts([node["host"] for node in nodes])),
            ("processor", f"{nodes[0]['cpu']}, {nodes[0]['cores']} threads"),
            ("memory", format_size(nodes[0]["memory_bytes"])),
            ("kernel", nodes[0]["kernel"]),
            *on,
        ]
    return [
        *_results(outcome),
        Facts(outcome.job.job, job),
        *(_layout(found, _where(outcome, found)) for found in outcome.layouts),
        *([Facts("Environment", on)] if on else []),
    ]


def _hosts(names: list[str]) -> str:
    """Those of a large job by their number."""
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{len(names)}: {', '.join(names[: _NAMED // 2])}, ..., {', '.join(names[-_NAMED // 2 :])}"


def _results(outcome: JobOutcome) -> list[Facts]:
    """What matters most, a line a measured run."""
    measured = [run.result for run in outcome.runs if run.run.kind == "measure" and run.result is not None]
    told = [
        (
            result.run,
            f"{found.samples_per_s:.1f} samples/s, {found.read_MBps:.1f} MB/s, AU {job_rows.share(found.au)}",
        )
        for result in measured
        if (found := result.summary) is not None
    ]
    return [Facts("Measured", told)] if told else []


def _where(outcome: JobOutcome, found: Record) -> str:
    return "Where the data lie" + (f": {found.path}" if len(outcome.layouts) > 1 else "")


def _layout(found: Record, title: str) -> Facts:
    system = found.file_system
    told = [
        ("File system", f"{system.kind} at {system.mount} from {system.source}" if system.mount else system.kind),
        ("Layout", job_rows.layout(found) or "not Lustre: there is none to set"),
        *(("Not as asked", fault) for fault in found.faults),
    ]
    if found.stripes:
        told.append(("Stripes on targets", ", ".join(f"{target}: {count}" for target, count in found.stripes.items())))
    return Facts(title, told)


def _run(outcome: JobOutcome, run: RunOutcome, examined: Examined) -> Section:
    assert run.result is not None
    before: list[Table] = []
    if (summary := run.result.summary) is not None:
        epochs = Table("Epochs", list(job_rows.EPOCHS), job_rows.epochs(run.result, summary))
        takes = Table("", list(job_rows.TAKES), job_rows.takes(run, summary))
        before = [epochs, takes, Table("", ["", ""], [list(pair) for pair in job_rows.facts(run, summary)])]
    elif run.result.generated is not None:
        before = [Table("", ["generated"], [[job_rows.generated(run.result.generated)]])]
    if run.verdict is not None and (seen := run.verdict.bytes) is not None:
        before.append(_bytes(seen, "read" if run.result.summary else "written"))
    title = job_rows.title(outcome, run)
    section = _section(f"{examined.title}: {title}" if title else examined.title, examined, before)
    return section._replace(notes=[*(f"invalid: {text}" for text in job_rows.invalid(run)), *section.notes])


def _bytes(seen: Bytes, done: str) -> Table:
    planned = "-" if seen.planned is None else str(seen.planned)
    return Table(
        "",
        [f"bytes {done}", "by Darshan", "by the core", "planned"],
        [["", str(seen.darshan), str(seen.core), planned]],
    )


def _section(heading: str, examined: Examined, before: list[Table]) -> Section:
    found = examined.analysis
    summary, lists = list(before), []
    if found is not None:
        summary.append(Table("I/O", ["", ""], [list(pair) for pair in iotables.facts(found)]))
        kinds = [(name, kind) for name, kind in (("reads", found.read), ("writes", found.write)) if kind]
        told = [[name, *iotables.operation_row(kind)] for name, kind in kinds]
        summary.append(Table("", ["", *iotables.OPERATION], told))
        sizes = [
            [iotables.size_words(name), *(str(kind.histogram.get(name, 0)) for _, kind in kinds)]
            for name in iotables.size_names(found)
        ]
        lists.append(Table("Sizes of requests", ["bytes", *(name for name, _ in kinds)], sizes))
        header = ["rank", "host", "I/O time", "read", "written", "requests", "MB/s"]
        lists.append(Table("Slowest ranks", header, iotables.slowest(found, _SHOWN)))
        if len(found.by_node) > 1:
            lists.append(Table("", list(iotables.NODES), iotables.slowest_nodes(found, _SHOWN)))
        header = ["file", "type", "size", "read", "written", "requests", "ranks", "I/O time"]
        title = f"Busiest of {len(found.files)} files" if len(found.files) > _SHOWN else "Files"
        lists.append(Table(title, header, iotables.busiest(found, _SHOWN)))
    notes = examined.view.notes if examined.view else [str(fault) for fault in examined.faults]
    return Section(heading, notes, summary, _drawings(examined), lists)


def _drawings(examined: Examined) -> list[Drawing]:
    return [] if examined.view is None else [run_panels.inline(picture) for picture in run_panels.draw(examined.view)]
