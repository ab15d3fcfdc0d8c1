"""The option --detect of dlio-hpc estimate: nights and node-hours of a campaign that detects a drop."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dlio_hpc.cli import console
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.planned import Planned

if TYPE_CHECKING:
    from dlio_hpc.verdict.campaign_cost import DetectionPlan

# Smallest --error and largest --power, since rarer cases would need more drawn series, and the limit of --detect.
_LEAST_ERROR, _MOST_POWER, _LARGEST = 0.005, 0.99, 0.9


class Sought(NamedTuple):
    """Options of a detection. tolerance: tolerance of dlio-hpc compare; None for the tolerance of the suite or, without
    a suite, for the default of dlio-hpc compare.
    """

    drop: float
    power: float
    error: float | None
    tolerance: float | None


def sought(
    context: click.Context, options: Options, detect: float | None, power: float, error: float | None,
    tolerance: float | None,
) -> Sought | None:  # fmt: skip
    """Return the options of a detection, or None without --detect. Raise a usage error if they conflict with each other
    or with the options of the plan.
    """
    if detect is None:
        for name in ("error", "power", "tolerance"):
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"--{name} has an effect only with --detect; add the size of a drop: --detect 5%"
                )
        return None
    if detect >= _LARGEST:
        raise click.UsageError(f"--detect {_percent(detect)}: expected less than {_percent(_LARGEST)}")
    if error is not None and error < _LEAST_ERROR:
        raise click.UsageError(f"--error {_percent(error)}: expected at least {_percent(_LEAST_ERROR)}")
    if power > _MOST_POWER:
        raise click.UsageError(f"--power {_percent(power)}: expected at most {_percent(_MOST_POWER)}")
    if error is not None and power <= error:
        raise click.UsageError(
            f"--power {_percent(power)}: expected more than --error, which is {_percent(error)}; usual values are "
            "--power 80% and --error 5%"
        )
    if tolerance is not None and tolerance >= detect:
        raise click.UsageError(
            f"--tolerance {_percent(tolerance)}: expected less than --detect, which is {_percent(detect)}; dlio-hpc "
            "compare lets drops up to the tolerance pass"
        )
    _check_plan(options)
    return Sought(detect, power, error, tolerance)


def _check_plan(options: Options) -> None:
    """Raise a usage error if the plan is not for a single night."""
    if options.nights > 1:
        raise click.UsageError("--nights: with --detect, the number of nights is the result; leave --nights out")
    if options.ab is not None:
        raise click.UsageError("--ab compares file systems in one job, --detect compares nights; leave one of them out")
    if options.generate == "only":
        raise click.UsageError("with --generate only, nothing is measured; leave --generate or --detect out")


def planned(wanted: Sought, options: Options, made: Planned) -> "DetectionPlan":
    """Return the plan of a campaign, computed from the history in the folder of archives. made: the plan of one
    night.
    """
    from dlio_hpc.verdict import campaign_cost, judged_jobs
    from dlio_hpc.verdict.detection_plan import WantedDetection

    usual = min(campaign_cost.usual_tolerance(made.study), wanted.drop / 2)
    tolerance = usual if wanted.tolerance is None else wanted.tolerance
    history = judged_jobs.entries(Path(made.study.archive), console.say)
    is_chosen = options.repeat is not None or options.study is not None or made.study.verdict is not None
    return campaign_cost.of(
        made, history, WantedDetection(wanted.drop, wanted.power, wanted.error, tolerance), is_chosen
    )


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
