"""dlio-hpc estimate: print the node-hours, bytes and space that a submission would take, or the nights that detect a
change.
"""

from typing import TYPE_CHECKING

import click
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.units import counted
from dlio_hpc.cli import console, cost_detection
from dlio_hpc.cli.plan_options import given_options, plan_options
from dlio_hpc.cli.verbs import JSON, SETTINGS, option, parsed, part
from dlio_hpc.config import shipped
from dlio_hpc.plan import cost, packing, planned, site_limits
from dlio_hpc.plan.cost import JobCost
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.planned import Planned

if TYPE_CHECKING:
    from dlio_hpc.reports.page import Lines
    from dlio_hpc.verdict.campaign_cost import DetectionPlan

_HEADER = ("job", "nodes", "runs", "expected", "node h", "at most", "reads", "writes", "new data")


@click.command(name="estimate", context_settings=SETTINGS)
@plan_options
@option(
    "--detect", callback=parsed(part), metavar="SHARE",
    help=("Plan how many nights, repeats and node-hours it takes to detect a drop of this size, from the "
        "history of the site."),
)  # fmt: skip
@option(
    "--power", callback=parsed(part), metavar="SHARE", default="80%", show_default=True,
    help="With --detect: probability that the drop is detected.",
)  # fmt: skip
@option(
    "--error", callback=parsed(part), metavar="SHARE",
    help=("With --detect: probability that as many nights without a drop give a regression by chance. "
        "Default: the probability that dlio-hpc compare allows."),
)  # fmt: skip
@option(
    "--tolerance", callback=parsed(part), metavar="SHARE",
    help=("With --detect: tolerance of dlio-hpc compare. Default: tolerance of the suite, or 2%, but at "
        "most half of --detect."),
)  # fmt: skip
@JSON
@click.pass_context
def estimate(
    context: click.Context, /, options: Options, detect: float | None, power: float, error: float | None,
    tolerance: float | None, as_json: bool,
) -> None:  # fmt: skip
    """Estimate the node-hours, the bytes read and written, and the space that a submission of WORKLOAD would take. The
    options are the same as for dlio-submit. WORKLOAD may also be the name of a study file, or of a study in RUNS.
    Nothing is submitted.

    With --detect, print how many nights and node-hours a campaign takes until dlio-hpc compare finds a drop of this
    size.

    Times are computed from the site's expected_rates (see dlio-hpc sites NAME), bytes from the plan.
    """
    sought = cost_detection.sought(context, options, detect, power, error, tolerance)
    made = _planned(context, options)
    costs = cost.of_jobs(made.jobs)
    faults = [
        *site_limits.of_cost(made.study.site, costs),
        *(fault for job in made.jobs for fault in site_limits.faults(job)),
    ]
    for message in dict.fromkeys(map(str, faults)):
        console.say(f"note: dlio-submit would refuse: {message}")
    plan = None if sought is None else cost_detection.planned(sought, options, made)
    if as_json:
        from dlio_hpc.documents import detection_plans
        from dlio_hpc.documents.planned import EstimateDocument, TotalCost

        detected = None if plan is None else detection_plans.of_plan(plan)
        total = TotalCost(**{key: getattr(_total(costs), key) for key in TotalCost.__struct_fields__})
        console.print_json(
            EstimateDocument(made.study.study, len(made.study.points), made.notes, costs, total, detected)
        )
        return
    if plan is None:
        _show(made, costs)
    else:
        _show_detection(made, plan)


def _planned(context: click.Context, options: Options) -> Planned:
    """Plan the jobs of a workload or of a study file, or load the plan of a study in RUNS."""
    from dlio_hpc.records import names, study_outcome

    name = options.workload
    folder = None if name is None else names.study_folder(name, options.runs)
    if folder is not None and study_outcome.is_study(folder):
        if given := given_options(context, {"runs", "as_json"}):
            raise click.UsageError(f"{given[0]}: {folder} is an existing study, whose options cannot be changed")
        study = study_outcome.load(folder)
        return Planned(study, packing.plans(study))
    if name in shipped.names(shipped.STUDIES) and options.study is None:
        options = structs.replace(options, workload=None, study=name)
    return planned.draft(options)


def _total(costs: list[JobCost]) -> JobCost:
    """Return the sum of the costs of all jobs. The number of nodes is not summed: the result has the number of the
    largest job.
    """
    sums = {key: sum(getattr(job, key) for job in costs) for key in JobCost.__struct_fields__ if key != "job"}
    return JobCost(**(sums | {"job": "total", "nodes": max(job.nodes for job in costs)}))


def _show(made: Planned, costs: list[JobCost]) -> None:
    import sys

    from dlio_hpc.reports import terminal
    from dlio_hpc.reports.page import Section, Table

    study, site = made.study, made.study.site
    rows = [[cost.job.removeprefix(f"{study.study}-") if len(costs) > 1 else "1", *_row(cost)] for cost in costs]
    if len(costs) > 1:
        rows.append(["total", *_row(_total(costs))])
    rates = site.expected_rates
    legend = (
        f'"expected": if a node reads {rates.read / 1e6:.0f} MB/s and writes {rates.write / 1e6:.0f} MB/s, and a run '
        f'starts within {units.format_seconds(rates.launch)} (site.expected_rates). "at most": if each job runs until '
        f"its time limit of {units.format_walltime(int(study.walltime))}."
    )
    heading = (
        f"{study.study}: {counted(len(study.points), 'point')} x {study.repeat}{study.in_nights} on {site.name}, "
        f"datasets below {' and '.join(study.folders)}"
    )
    table = Table("", _HEADER, rows, legend=legend, has_total=len(costs) > 1)
    terminal.show_sections([Section(heading, [table, _notes(made)])], terminal.console(sys.stdout))


def _show_detection(made: Planned, plan: "DetectionPlan") -> None:
    import sys

    from dlio_hpc.reports import detection_rows, terminal

    section = detection_rows.section(plan)
    notes = section.blocks if not made.notes else [*section.blocks, _notes(made)]
    terminal.show_sections([section._replace(blocks=notes)], terminal.console(sys.stdout))


def _notes(made: Planned) -> "Lines":
    from dlio_hpc.reports.page import Lines

    return Lines([f"Note: {note}" for note in made.notes], "yellow")


def _row(job: JobCost) -> list[str]:
    return [
        str(job.nodes),
        str(job.runs),
        units.format_walltime(round(job.expected_s)),
        f"{job.node_hours:.3g}",
        f"{job.limit_node_hours:.4g}",
        units.format_size(job.bytes_read),
        units.format_size(job.bytes_written),
        units.format_size(job.space),
    ]
