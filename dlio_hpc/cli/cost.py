"""dlio-hpc estimate: print the node-hours, bytes and space that a submission would take."""

import click
from msgspec import structs

from dlio_hpc import units
from dlio_hpc.cli import console
from dlio_hpc.cli.plan_options import given_options, plan_options
from dlio_hpc.cli.verbs import JSON, SETTINGS
from dlio_hpc.config import shipped
from dlio_hpc.plan import cost, packing, planned, site_limits
from dlio_hpc.plan.cost import JobCost
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.planned import Planned

_HEADER = ("job", "nodes", "runs", "expected", "node h", "at most", "reads", "writes", "new data")


@click.command(name="estimate", context_settings=SETTINGS)
@plan_options
@JSON
@click.pass_context
def estimate(context: click.Context, /, options: Options, as_json: bool) -> None:
    """Estimate the node-hours, the bytes read and written, and the space that a submission of WORKLOAD would take.
    Options are those of dlio-submit. WORKLOAD may also be the name of a study file, or of a study below RUNS. Nothing
    is submitted.

    Times are computed from the site's expected_rates (see dlio-hpc sites NAME), bytes from the plan.
    """
    made = _planned(context, options)
    costs = cost.of_jobs(made.jobs)
    faults = [
        *site_limits.of_cost(made.study.site, costs),
        *(fault for job in made.jobs for fault in site_limits.faults(job)),
    ]
    for message in dict.fromkeys(map(str, faults)):
        console.say(f"note: dlio-submit would refuse: {message}")
    if as_json:
        from dlio_hpc.documents.planned import EstimateDocument, TotalCost

        total = TotalCost(**{key: getattr(_total(costs), key) for key in TotalCost.__struct_fields__})
        console.print_json(EstimateDocument(made.study.study, len(made.study.points), made.notes, costs, total))
        return
    _show(made, costs)


def _planned(context: click.Context, options: Options) -> Planned:
    """Plan the jobs of a workload or of a study file, or load the plan of a study below RUNS."""
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
    """Return the sum of the costs of all jobs. The number of nodes is not summed; it is that of the largest job."""
    sums = {key: sum(getattr(job, key) for job in costs) for key in JobCost.__struct_fields__ if key != "job"}
    return JobCost(**(sums | {"job": "total", "nodes": max(job.nodes for job in costs)}))


def _show(made: Planned, costs: list[JobCost]) -> None:
    import sys

    from dlio_hpc.reports import terminal
    from dlio_hpc.reports.document import Lines, Section, Table

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
        f"{study.study}: {len(study.points)} point(s) x {study.repeat}{study.in_nights} on {site.name}, "
        f"datasets below {' and '.join(study.folders)}"
    )
    table = Table("", _HEADER, rows, legend=legend, has_total=len(costs) > 1)
    notes = Lines([f"Note: {note}" for note in made.notes], "yellow")
    terminal.show_sections([Section(heading, [table, notes])], terminal.console(sys.stdout))


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
