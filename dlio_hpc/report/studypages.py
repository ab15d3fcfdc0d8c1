"""A study's report as a page: what was found first, then each part with its pictures and tables, then its jobs."""

from collections.abc import Iterator, Sequence

from dlio_hpc.analysis.study.best_setting import Comparison, Finding
from dlio_hpc.plan.study import Study
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.report import ab_rows, bottleneck, job_rows, study_banner, study_rows, study_text
from dlio_hpc.report.banner import Banner
from dlio_hpc.report.figures import run_panels, study_plots
from dlio_hpc.report.page import Facts, Page, Section, Table
from dlio_hpc.report.study_report import StudyReport
from dlio_hpc.units import format_seconds


def of_study(report: StudyReport, opening: Banner | None = None, verdicts: Sequence[Section] = ()) -> Page:
    """The page of a study, under its own banner or under `opening`."""
    outcome = report.outcome
    study = outcome.study
    return Page(
        title=study.study,
        subtitle=" · ".join([*study_text.heading(outcome), f"{study.site.name}, {study.created}"]),
        banner=opening or study_banner.of_study(report),
        answers=bottleneck.of_study(outcome.jobs),
        facts=list(_facts(report)),
        sections=[
            *verdicts,
            *([_sides(report)] if study.is_ab else []),
            *([_advice(report.advice)] if report.advice else []),
            *(_part(report, finding) for finding in report.findings),
            *(Section(each.title, [], [], [run_panels.inline(each)], []) for each in study_plots.together(report)),
            *([_jobs(outcome.jobs)] if outcome.jobs else []),
        ],
    )


def _first(study: Study, finding: Finding) -> Iterator[str]:
    """The conclusions of a part in one paragraph; empty where nothing was compared."""
    yield from filter(None, [" ".join(study_text.first(study, finding))])


def _facts(report: StudyReport) -> Iterator[Facts]:
    study = report.outcome.study
    if len(study.parts) > 1:
        conclusions = [(finding.part, line) for finding in report.findings for line in _first(study, finding)]
        if conclusions:
            yield Facts("Found", conclusions)
    if missing := study_text.missing(report.outcome):
        lines = [*missing, *filter(None, [study_text.resume(report.outcome)])]
        yield Facts("Missing", [("", line) for line in lines])
    workloads = dict.fromkeys(point.workload.name for point in study.points)
    yield Facts(
        "Study",
        [
            ("Workload", ", ".join(workloads)),
            ("Site", study.site.name),
            ("Points", str(len(study.points))),
            ("Repeats", f"{study.repeat}, after {study.warmup} warm-up(s) of each dataset in a job"),
            ("Order", f"in rounds of all points, shuffled with seed {study.seed}"),
            *(("Note", note) for note in study_text.notes(report.outcome)),
        ],
    )


def _advice(lines: list[str]) -> Section:
    told = [[f"\N{MIDDLE DOT} {line.strip()}" if line.startswith(" ") else line] for line in lines]
    return Section("For the application", [], [Table("", [""], told)], [], [])


def _sides(report: StudyReport) -> Section:
    """Two file systems compared."""
    study = report.outcome.study
    told = [
        *ab_rows.sides(report.sides),
        ab_rows.verdict(study, report.effects),
        *ab_rows.stragglers(report.sides),
    ]
    return Section(
        "Old against new",
        [],
        [
            Table("What was found", [""], [[line] for line in told]),
            Table("Pairs measured side by side", list(ab_rows.EFFECTS), list(map(ab_rows.effect, report.effects))),
        ],
        [run_panels.inline(picture) for picture in study_plots.of_sides(report)],
        [
            Table(title, list(ab_rows.MEMBERS), listed)
            for side in report.sides
            for title, listed in ab_rows.members(side)
        ],
    )


def _part(report: StudyReport, finding: Finding) -> Section:
    study = report.outcome.study
    sentences = [line for conclusion in study_text.conclusions(study, finding) for line in conclusion] + [
        *study_text.noise(finding),
        *study_text.disturbances(study, finding, report.outcome.measured),
        *study_text.cached(finding),
    ]
    summary = [Table("What was found", [""], [[line] for line in sentences])] if sentences else []
    if (found := study_rows.ranked(finding)) is not None:
        summary += _ranking(finding, found)
    summary += [
        Table(study_text.scaling_title(each), study_rows.scaling_header(), study_rows.scaling(each))
        for each in finding.scalings
    ]
    return Section(
        heading=study_text.part_title(study, finding) or study.points[0].workload.name,
        notes=_notes(finding),
        summary=summary,
        drawings=[run_panels.inline(picture) for picture in study_plots.of_part(report, finding)],
        tables=[*_points(study, finding), *_intervals(study, finding)],
    )


def _notes(finding: Finding) -> list[str]:
    if not finding.points:
        return ["Nothing was measured yet."]
    return [] if finding.unusable is None else [finding.unusable]


def _ranking(finding: Finding, found: Comparison) -> list[Table]:
    if found.ranking is None:
        return []
    notes = [[note] for note in study_text.ranking_notes(found.ranking)]
    told = [Table("", [""], notes)] if notes else []
    if len(found.ranking.effects) < 2:
        return told
    title = study_text.ranking_title(finding, found)
    return [Table(title, list(study_rows.RANKING), study_rows.ranking(found.ranking)), *told]


def _points(study: Study, finding: Finding) -> list[Table]:
    if not finding.points:
        return []
    header = study_rows.point_header(finding, study_rows.varied(study, finding))
    told = [row for _, row in study_rows.points(study, finding)]
    more = study_rows.left_out(finding)
    legend = study_text.legend(study, finding)
    return [Table("Points", header, told), Table("", [""], [[" ".join(filter(None, (more, legend)))]])]


def _intervals(study: Study, finding: Finding) -> list[Table]:
    """How far below the best of the others each may lie, where noise is known."""
    told = [
        [study_rows.setting(study, each.point), f"{each.to_best:.3f}", f"{each.low:.3f}", f"{each.high:.3f}"]
        for found in finding.comparisons
        for each in found.points
        if each.low is not None and each.high is not None
    ]
    how = "ratio: to the best of the others; from, to: 95 % interval, for all ratios of the part together."
    table = Table("Against the best", ["setting", "ratio", "from", "to"], told)
    return [table, Table("", [""], [[how]])] if told else []


def _jobs(jobs: list[JobOutcome]) -> Section:
    told = [
        [job.job.job, job.job.state, str(job.plan.nodes), str(job.plan.ranks_per_node), str(job.archive or "-")]
        for job in jobs
    ]
    runs = [[job.job.job, run.name, job_rows.title(job, run), *_rates(run)] for job in jobs for run in job.runs]
    return Section(
        "Jobs and runs",
        [],
        [Table("", ["job", "state", "nodes", "ranks a node", "archive"], told)],
        [],
        [Table("Runs", ["job", "run", "point", "time", "samples/s", "MB/s", "AU"], runs)],
    )


def _rates(run: RunOutcome) -> list[str]:
    summary = None if run.result is None else run.result.summary
    if summary is None:
        return ["-"] * 4
    rates = f"{summary.samples_per_s:.1f}", f"{summary.read_MBps:.1f}"
    return [format_seconds(summary.wall_s), *rates, job_rows.share(summary.au)]
