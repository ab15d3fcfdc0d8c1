"""Report of a study: the conclusions, each part with its tables and pictures, and the jobs."""

from collections.abc import Callable, Iterator, Sequence

from dlio_hpc.analysis.study.best_setting import Comparison, Finding
from dlio_hpc.base.units import counted, format_seconds
from dlio_hpc.files import rundir
from dlio_hpc.plan.study import Study
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.reports import (
    ab_rows,
    bottleneck,
    job_rows,
    slowdown_rows,
    study_banner,
    study_rows,
    study_text,
    user_limit,
)  # fmt: skip
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Picture, Pictures, Section, Style, Table
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import MetricName

_STYLES: dict[str, Style] = {"best": "bold green", "same": "green"}
# Maximum number of columns of settings in a table. If there are more settings, they share one column.
_KEYS = 4


def of_study(report: StudyReport, banner: Banner | None = None, verdicts: Sequence[Section] = ()) -> Page:
    """Return the report of a study. banner, verdicts: for a suite, the banner and the sections of its verdict."""
    outcome = report.outcome
    study = outcome.study
    return Page(
        title=study.study,
        subtitle=" · ".join([*study_text.heading(outcome), study.created]),
        banner=banner or study_banner.of_study(report),
        answers=[*user_limit.of_study(outcome.jobs), *bottleneck.of_study(outcome.jobs)],
        facts=list(_facts(report)),
        sections=[
            *verdicts,
            *([_ab(report)] if study.is_ab else []),
            *([_mixes(report)] if study.is_mixed else []),
            *(_part(report, finding) for finding in report.findings),
            *([Section("For the application", [Lines(report.advice)])] if report.advice else []),
            Section("All parts", [Pictures("", lambda: _together(report))], is_detail=True),
            *([_jobs(outcome.jobs)] if outcome.jobs else []),
        ],
        conclusion=study_text.resume(outcome) or "",
    )


def _facts(report: StudyReport) -> Iterator[Facts]:
    study = report.outcome.study
    conclusions = [
        (finding.part, " ".join(sentences))
        for finding in report.findings
        if len(study.parts) > 1 and (sentences := study_text.first(study, finding))
    ]
    if conclusions:
        yield Facts("Conclusions", conclusions, is_detail=True)
    if notes := study_text.notes(report.outcome):
        yield Facts("", [("note", note) for note in notes])
    if missing := study_text.missing(report.outcome):
        yield Facts("", [("missing" * (number == 0), line.strip()) for number, line in enumerate(missing)])
    workloads = dict.fromkeys(point.workload.name for point in study.points)
    rows = [
        ("workload", ", ".join(workloads)),
        ("site", study.site.name),
        ("points", str(len(study.points))),
        (
            "repeats",
            f"{study.repeat}{study.in_nights}, after {counted(study.warmup, 'warm-up run')} per dataset and job",
        ),
        ("order", f"in rounds of all points, shuffled with seed {study.seed}"),
    ]
    yield Facts("Study", rows, is_detail=True)


def _ab(report: StudyReport) -> Section:
    """Return the section that compares two file systems."""
    study = report.outcome.study
    blocks: list[Block] = [
        Lines(ab_rows.sides(report.sides)),
        Lines(ab_rows.cached(report.outcome.measured), "yellow"),
        Lines([ab_rows.verdict(study, report.effects)], "bold"),
    ]
    if report.effects:
        blocks.append(Table("", ab_rows.EFFECTS, list(map(ab_rows.effect, report.effects))))
        blocks.append(Lines(ab_rows.noise(report.effects)))
    blocks += [Table(title, ab_rows.MEMBERS, rows) for side in report.sides for title, rows in ab_rows.members(side)]
    blocks += [Lines(ab_rows.stragglers(report.sides)), Pictures("", lambda: _of_sides(report))]
    return Section("Old against new", blocks)


def _mixes(report: StudyReport) -> Section:
    """Return the section on the loads of mixes: how much they slow each other down."""
    main = [slowdown_rows.row(one) for one in report.slowdowns if one.is_main]
    further = [slowdown_rows.further(one) for one in report.slowdowns if not one.is_main]
    blocks: list[Block] = [
        Lines([slowdown_rows.verdict(report.slowdowns)], "bold"),
        Table("", slowdown_rows.HEADER, main, legend=slowdown_rows.LEGEND),
        *(
            Table(title, header, rows, legend=slowdown_rows.MATRIX_LEGEND)
            for title, header, rows in slowdown_rows.matrices(report.slowdowns)
        ),
        Lines(slowdown_rows.queues(report.outcome.study, report.outcome.measured), "yellow"),
        Lines(slowdown_rows.backgrounds(report.outcome.study, report.outcome.measured)),
        Lines(slowdown_rows.remarks(report.slowdowns, report.fairness)),
        *(
            [Table("Other metrics", slowdown_rows.FURTHER, further, legend=slowdown_rows.FURTHER_LEGEND)]
            if further
            else []
        ),
        Pictures("", lambda: _of_mixes(report)),
    ]
    return Section("Loads at the same time", blocks)


def _part(report: StudyReport, finding: Finding) -> Section:
    study = report.outcome.study
    heading = study_text.part_title(study, finding) or study.points[0].workload.name
    if not finding.points:
        return Section(heading, [Lines(["Nothing was measured yet."])])
    blocks: list[Block] = [_points(study, finding)]
    if finding.unusable is not None:
        blocks.append(Lines([finding.unusable], "yellow"))
    if finding.confounded is not None:
        blocks.append(Lines([finding.confounded], "yellow"))
    blocks += [Lines(sentences) for sentences in study_text.conclusions(study, finding)]
    blocks += [
        Lines(study_text.noise(finding)),
        Lines(study_text.disturbances(study, finding, report.outcome.measured)),
        Lines(study_text.cached(finding)),
        *_ranking(finding),
        *(
            Table(
                study_text.scaling_title(curve),
                study_rows.scaling_header(),
                study_rows.scaling(curve),
                legend=study_rows.SCALING_LEGEND,
            )
            for curve in finding.scalings
        ),
        Pictures("", lambda: _of_part(report, finding)),
        *_intervals(study, finding),
    ]
    return Section(heading, blocks)


def _points(study: Study, finding: Finding) -> Table:
    """Return the table of points with their settings and metrics. If there are many settings, all of them are in one
    column.
    """
    keys = study_rows.varied(study, finding)
    header = study_rows.point_header(finding, keys)
    rows = [row for _, row in study_rows.points(study, finding)]
    if len(keys) > _KEYS:
        header = [", ".join(header[: len(keys)]), *header[len(keys) :]]
        rows = [[", ".join(row[: len(keys)]), *row[len(keys) :]] for row in rows]
    legend = " ".join(filter(None, (study_rows.left_out(finding), study_text.legend(study, finding))))
    return Table("", header, rows, [_STYLES.get(row[-1], "") for row in rows], legend)


def _ranking(finding: Finding) -> Iterator[Block]:
    comparison = study_rows.ranked(finding)
    if comparison is None or comparison.ranking is None:
        return
    legend = " ".join(study_text.ranking_notes(comparison.ranking))
    if len(comparison.ranking.effects) > 1:
        title = study_text.ranking_title(finding, comparison)
        yield Table(title, study_rows.RANKING, study_rows.ranking(comparison.ranking), legend=legend)
    elif legend:
        yield Lines([legend])


def _intervals(study: Study, finding: Finding) -> Iterator[Table]:
    rows = [row for comparison in finding.comparisons for row in _ratios(study, comparison)]
    if rows:
        legend = (
            "ratio: median / median of the best of the other settings; from, to: ends of the 95 % interval of the "
            "ratio (simultaneous for all ratios of the part)."
        )
        yield Table("Against the best", ["setting", "ratio", "from", "to"], rows, legend=legend, is_detail=True)


def _ratios(study: Study, comparison: Comparison) -> Iterator[list[str]]:
    for point in comparison.points:
        if point.low is not None and point.high is not None:
            ratios = [f"{ratio:.3f}" for ratio in (point.to_best, point.low, point.high)]
            yield [study_rows.setting(study, point.point), *ratios]


def _jobs(jobs: Sequence[JobOutcome]) -> Section:
    states = [
        [job.job.job, job.job.state, str(job.plan.nodes), str(job.plan.ranks_per_node), str(job.archive or "-")]
        for job in jobs
    ]
    header, rates = _rates([run for job in jobs for run in job.runs])
    runs = [[job.job.job, run.name, job_rows.title(job, run), *rates(run)] for job in jobs for run in job.runs]
    unsynced = study_text.without_fsync(run.run.workload for job in jobs for run in job.runs)
    legend = " ".join(filter(None, (rundir.RUN_NAMES, unsynced)))
    tables = [
        Table("", ["job", "state", "nodes", "ranks per node", "archive"], states),
        Table("Runs", ["job", "run", "point", *header], runs, legend=legend),
    ]
    return Section("Jobs and runs", tables, is_detail=True)


def _rates(runs: Sequence[RunOutcome]) -> tuple[list[str], Callable[[RunOutcome], list[str]]]:
    """Return the headings of the time and the rates of runs, and a function that returns them for a run. The rates are
    of samples, or of checkpoints or phases if no workload reads samples.
    """
    workloads = [run.run.workload for run in runs]
    columns: list[tuple[MetricName, str]] = [("samples_per_s", "samples/s"), ("read_MBps", "MB/s"), ("au", "AU")]
    if all(work.only_writes_checkpoints for work in workloads):
        is_measured = any(work.checkpoint is not None and work.checkpoint.fsync for work in workloads)
        columns = [("checkpoint_write_MBps", "checkpoint MB/s")] if is_measured else []
    if all(work.inference is not None for work in workloads):
        columns = [("ttft_p50_s", "first token p50 s"), ("ttft_p99_s", "first token p99 s"),
                   ("kv_read_MBps", "KV read MB/s")]  # fmt: skip
    if all(work.metadata is not None for work in workloads):
        phases = {phase for work in workloads if work.metadata for phase in work.metadata.order}
        columns = list(metrics.quoted_phases({metrics.of_phase(phase) for phase in phases}).items())

    def values(run: RunOutcome) -> list[str]:
        summary = None if run.result is None else run.result.summary
        if summary is None:
            return ["-"] * (1 + len(columns))
        known = metrics.values(summary)
        rates = [job_rows.au(summary) if name == "au" else job_rows.rate(known.get(name)) for name, _ in columns]
        return [format_seconds(summary.wall_s), *rates]

    return ["time", *(heading for _, heading in columns)], values


def _of_sides(report: StudyReport) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import study_plots

    return study_plots.of_sides(report)


def _of_mixes(report: StudyReport) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import mix_plots

    return mix_plots.of_study(report)


def _of_part(report: StudyReport, finding: Finding) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import study_plots

    return study_plots.of_part(report, finding)


def _together(report: StudyReport) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import study_plots

    return study_plots.together(report)
