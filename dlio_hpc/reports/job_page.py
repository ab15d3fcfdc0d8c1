"""Report of jobs: state, workload and layout, followed by a section for each run, and the environment."""

from collections.abc import Iterator, Mapping, Sequence

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.base.errors import Incomplete
from dlio_hpc.base.units import format_size
from dlio_hpc.darshan.verdict_file import Bytes
from dlio_hpc.lustre.layout_record import Record
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.reports import bottleneck, inference_rows, job_banner, job_rows, log_page
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Picture, Pictures, Section, Table
from dlio_hpc.results.run_result import PhaseSummary, Summary, unfinished

# Maximum number of nodes that the report names.
_NAMED = 32
_PAGE_ORDER = {"measure": 1, "warmup": 2, "generate": 3}
_UNFINISHED = ("running", "submitted", "queued")


def of_jobs(
    outcomes: Sequence[JobOutcome], examined: Sequence[Mapping[str, Examined]] = (), is_full: bool = False,
    draws_all: bool = False,
) -> Page:  # fmt: skip
    """Return the report of jobs. examined: for each job, its analysed runs by name; empty if none were analysed.
    is_full: whether a terminal shows each run of a job in full, and the HTML page has pictures of each run. If not, and
    there are several measured runs, a terminal shows a table of them and the run with the median rate, and the page has
    pictures of this run only. draws_all: whether the pictures of all runs are drawn even if `is_full` is False.
    """
    first, banner = outcomes[0], job_banner.of_jobs(outcomes)
    answers = [answer for outcome in outcomes for answer in bottleneck.of_job(outcome)]
    logs = examined or [{} for _ in outcomes]
    return Page(
        title=first.job.job if len(outcomes) == 1 else first.plan.study,
        subtitle=f"{first.plan.runs[0].workload.name} on {first.plan.site.name}, {first.plan.created}",
        banner=banner,
        answers=bottleneck.shortened(answers) if banner.state != "bad" else [],
        facts=[facts for outcome in outcomes for facts in _facts(outcome, len(outcomes) > 1, banner.text)],
        sections=[
            section
            for outcome, runs in zip(outcomes, logs, strict=True)
            for section in _sections(
                outcome, runs, f"{outcome.job.job}/" if len(outcomes) > 1 else "", is_full, draws_all
            )
        ],
        lead=log_page.LEAD,
    )


def _facts(outcome: JobOutcome, is_one_of_several: bool, said: str) -> list[Facts]:
    """Return the facts about a job. said: text that stands above the facts, so that they need not repeat it."""
    batch_id, cluster = outcome.job.batch_id, outcome.job.cluster
    rows = [
        ("state", outcome.job.described()),
        *((("batch id", f"{batch_id} on {cluster}" if cluster else batch_id),) if batch_id else ()),
        *zip(("workload", "", "", ""), job_rows.workload(outcome).splitlines(), strict=False),
        *job_rows.places(outcome),
        *(("note", note) for note in job_outcome.notes(outcome)),
        *(("repeats", line) for line in job_rows.repeats(outcome, said)),
        *((("archive", str(outcome.archive)),) if outcome.archive else ()),
        *((("directory", str(outcome.directory)),) if outcome.directory else ()),
    ]
    environment = _environment(outcome)
    return [
        Facts(outcome.job.job if is_one_of_several else "", rows),
        *(_layout(record, len(outcome.layouts) > 1) for record in outcome.layouts),
        *([Facts("Environment", environment, is_detail=True)] if environment else []),
    ]


def _environment(outcome: JobOutcome) -> list[tuple[str, str]]:
    versions = [(name, str(version)) for name, version in sorted(outcome.environment.get("versions", {}).items())]
    nodes = outcome.environment.get("nodes", [])
    if not nodes:
        return versions
    return [
        ("nodes", _hosts([node["host"] for node in nodes])),
        ("processor", f"{nodes[0]['cpu']}, {nodes[0]['cores']} threads"),
        ("memory", format_size(nodes[0]["memory_bytes"])),
        ("kernel", nodes[0]["kernel"]),
        *versions,
    ]


def _hosts(names: list[str]) -> str:
    """Return the names of the hosts as text. If there are many, the text has their number, and the first and last
    names.
    """
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{len(names)}: {', '.join(names[: _NAMED // 2])}, ..., {', '.join(names[-_NAMED // 2 :])}"


def _layout(record: Record, is_one_of_several: bool) -> Facts:
    """Return the file system and the layout of a dataset. A terminal shows them only if the file system is Lustre or a
    layout was requested.
    """
    system, layout = record.file_system, job_rows.layout(record)
    rows = [
        ("on", f"{system.kind} at {system.mount} from {system.source}" if system.mount else system.kind),
        ("layout", layout or "none: not Lustre"),
        *(("wrong", fault) for fault in record.faults),
    ]
    if record.stripes:
        rows.append(("stripes", ", ".join(f"{target}: {count}" for target, count in record.stripes.items())))
    title = f"Layout of {record.path}" if is_one_of_several else "Layout"
    return Facts(title, rows, is_detail=layout is None)


def _sections(
    outcome: JobOutcome, runs: Mapping[str, Examined], prefix: str, is_full: bool, draws_all: bool
) -> list[Section]:
    tables = [] if is_full else [*_repeated(outcome)]
    shown = {job_rows.of_median(repeats).name for repeats in tables[:1]}
    sections = [_run(outcome, run, runs.get(run.name), prefix) for run in outcome.runs]
    if tables:
        folded = {run.name for repeats in tables for run in repeats} - shown
        sections = [
            _folded(section, draws_all) if run.name in folded else section
            for section, run in zip(sections, outcome.runs, strict=True)
        ]
        sections.insert(0, Section(f"{prefix}Runs", [*_tables(outcome, tables)]))
    if (cut_short := job_rows.cut_short(outcome)) is not None:
        title, lines = cut_short
        sections.append(Section(f"{prefix}{title}", [Lines(lines, depth=2)]))
    variables = [[name, str(value)] for name, value in outcome.environment.get("variables", {}).items()]
    if outcome.environment:
        table = Table("Variables", ["name", "value"], variables)
        sections.append(Section(f"Environment of {outcome.job.job}", [table], is_detail=True, page_order=4))
    return sections


def _folded(section: Section, has_pictures: bool) -> Section:
    """Return the section of a run that a terminal does not show. has_pictures: whether its pictures are drawn."""
    blocks = [block for block in section.blocks if has_pictures or not isinstance(block, Pictures)]
    return section._replace(blocks=blocks, is_detail=True)


def _repeated(outcome: JobOutcome) -> Iterator[list[RunOutcome]]:
    """Yield the warm-up and measured runs of each point that has more than one measured run. Runs without a result and
    runs with a problem are left out: the report shows them in full.
    """
    points: dict[int | None, list[RunOutcome]] = {}
    for run in outcome.runs:
        is_whole = run.result is not None and run.error is None and not job_rows.invalid(run)
        if is_whole and run.result is not None and run.result.summary is not None and run.run.kind != "generate":
            points.setdefault(run.run.point, []).append(run)
    yield from (runs for runs in points.values() if sum(job_rows.main_rate(run) is not None and
                run.run.kind == "measure" for run in runs) > 1)  # fmt: skip


def _tables(outcome: JobOutcome, tables: Sequence[Sequence[RunOutcome]]) -> Iterator[Block]:
    """Yield a table for each point with several measured runs. Yield a line on the runs that are not in a table, and a
    line that says how to see all runs in full.
    """
    for runs in tables:
        if runs[0].run.workload.metadata is not None:
            yield Table(job_rows.title(outcome, runs[0]), job_rows.PHASE_RUNS, job_rows.phases_of_runs(runs))
            continue
        header, rows = job_rows.of_runs(runs)
        legends = {job_rows.RUNS: job_rows.RUNS_LEGEND, inference_rows.RUNS: inference_rows.RUNS_LEGEND}
        legend = legends.get(tuple(header), "")
        yield Table(job_rows.title(outcome, runs[0]), header, rows, has_total=True, legend=legend, names=(0,))
    shown = {run.name for runs in tables for run in runs}
    points = {run.run.point for runs in tables for run in runs}
    lost = [run.name for run in outcome.runs if run.run.point in points and run.run.kind != "generate"
            and run.name not in shown]  # fmt: skip
    if lost:
        yield Lines([f"Not in the table, because the run has a fault or no result: {', '.join(lost)}."], "red")
    middle = job_rows.of_median(tables[0]).name
    all_runs = "Report and pictures of all runs: dlio-hpc report --full."
    yield Lines([f"{middle} has the median rate, or the next lower one. {all_runs}"], "dim")


def _run(outcome: JobOutcome, run: RunOutcome, examined: Examined | None, prefix: str) -> Section:
    title = job_rows.title(outcome, run)
    heading = f"{prefix}{run.name}{f': {title}' if title else ''}"
    blocks = [
        *_problems(run),
        *_result(outcome, run),
        *_pictures_of_phases(run),
        *([] if examined is None or _is_pictured(run, examined) else log_page.blocks(examined)),
    ]
    return Section(heading, blocks, page_order=_PAGE_ORDER[run.run.kind])


def _is_pictured(run: RunOutcome, examined: Examined) -> bool:
    """Return whether the picture of phases replaces those of the timeline, which would show no bytes."""
    return run.run.workload.metadata is not None and examined.log is None


def _pictures_of_phases(run: RunOutcome) -> Iterator[Block]:
    """Yield the picture of the phases of a metadata workload, if the run has any."""
    phases = run.result.summary.metadata if run.result is not None and run.result.summary is not None else ()
    if phases:
        yield Pictures(run.name, lambda: [_picture_of(phases, run.name)])


def _picture_of(phases: Sequence[PhaseSummary], name: str) -> Picture:
    from dlio_hpc.reports.figures import phase_plots

    return phase_plots.draw(phases, name)


def _problems(run: RunOutcome) -> list[Block]:
    """Return blocks of lines about the faults of a run, its error, and a missing result."""
    lines = [f"invalid: {fault}" for fault in job_rows.invalid(run)]
    if run.error is not None:
        place = f"failed on rank {run.error.rank} ({run.error.host}): "
        lines.append((place if run.error.exit_code != Incomplete.exit_code else "") + run.error.message)
    elif run.result is None:
        return [Lines(["no result"])]
    return [Lines(lines, "red")]


def _result(outcome: JobOutcome, run: RunOutcome) -> list[Block]:
    if run.result is None:
        return []
    blocks: list[Block] = []
    if run.result.generated is not None:
        blocks.append(Lines([job_rows.generated(run.result.generated)]))
    elif (summary := run.result.summary) is not None:
        blocks += _measured(outcome, run, summary)
    if run.verdict is not None and (counted := run.verdict.bytes) is not None:
        blocks.append(_bytes(counted, "read" if run.result.summary else "written"))
    return blocks


def _measured(outcome: JobOutcome, run: RunOutcome, summary: Summary) -> list[Block]:
    assert run.result is not None
    lines = ["warm-up: not part of any measurement"] if run.result.kind == "warmup" else []
    if (done := unfinished(summary)) is not None:
        lines.append(f"stopped before the time limit: {done}")
    darshan = [("Darshan", line) for line in job_rows.darshan(outcome, run)]
    measured = Table("", job_rows.EPOCHS, job_rows.epochs(run.result, summary), has_total=True, legend=job_rows.LEGEND)
    if run.run.workload.only_writes_checkpoints:
        legend = job_rows.CHECKPOINT_LEGEND
        measured = Table("", job_rows.CHECKPOINTS, job_rows.checkpoints(summary), legend=legend)
    if run.run.workload.metadata is not None:
        measured = Table("", job_rows.PHASES, job_rows.phases(run, summary), legend=job_rows.PHASE_LEGEND)
    blocks: list[Block] = [measured]
    if summary.inference is not None:
        requests, moved = inference_rows.requests(summary.inference), inference_rows.blocks(summary.inference)
        tried = Table("", inference_rows.TRIES, inference_rows.tries(summary.inference))
        blocks = [
            *([tried] if summary.inference.tries else []),
            Table("", inference_rows.REQUESTS, requests, legend=inference_rows.REQUESTS_LEGEND),
            Table("", inference_rows.BLOCKS, moved, legend=inference_rows.BLOCKS_LEGEND),
        ]
    return [
        Lines(lines, "red" if done is not None else ""),
        *blocks,
        Table("", job_rows.TAKES, job_rows.takes(run, summary)),
        Facts("", [*job_rows.facts(run, summary), *darshan]),
    ]


def _bytes(counted: Bytes, done: str) -> Table:
    planned = "-" if counted.planned is None else str(counted.planned)
    row = ["", str(counted.darshan), str(counted.core), planned]
    return Table("", [f"bytes {done}", "by Darshan", "by dlio-hpc", "planned"], [row], is_detail=True)
