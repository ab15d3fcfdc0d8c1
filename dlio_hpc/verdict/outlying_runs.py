"""Runs that are far from the other runs of their job: they are left out of its level, as long as they are rare."""

from collections.abc import Sequence

import numpy as np

from dlio_hpc.analysis.quantiles import Floats, mad, median

# A run is far from the others if it deviates from their median by more than this number of standard deviations.
_FAR = 5.0
# Number of runs from which far ones are left out. Fewer runs have their median as level.
FEW = 5
# Largest share of far runs that are exceptions. If there are more, levels contain them.
_MOST_FAR = 0.15
# Standard deviation of runs, divided by the median of their deviations from the median of their job: of many runs, and
# how much more it is for few runs.
_OF_MANY, _OF_FEW = 1.4826, {3: 2.14, 4: 1.39, 5: 1.38, 6: 1.28, 7: 1.22, 8: 1.2, 9: 1.17, 10: 1.15}


def level(values: Floats) -> float:
    """Return the level of the runs of a job: the mean of their logarithms, without runs that are far from the others.
    With fewer than five runs, the level is the median, because so few runs do not show which one is far.
    """
    return median(values) if len(values) < FEW else float(near(values).mean())


def are_far_runs_rare(jobs: Sequence[Floats]) -> bool:
    """Return whether few runs are far from the other runs of their job. Only in this case may the level of a job be
    computed without these runs. jobs: logarithms of the runs of each job. Jobs with one or two runs are ignored.
    """
    several = [runs for runs in jobs if len(runs) > 2]
    if not several:
        return True
    deviations = [np.abs(runs - median(runs)) for runs in several]
    scaled = [from_median * _OF_MANY * _OF_FEW.get(len(from_median), 1.0) for from_median in deviations]
    far = np.concatenate(deviations) > max(_FAR * median(np.concatenate(scaled)), 1e-9)
    return int(far.sum()) < 2 or float(far.mean()) <= _MOST_FAR


def near(values: Floats) -> Floats:
    """Return the runs of a job that are not far from the others. With fewer than five runs, return all runs."""
    if len(values) < FEW:
        return values
    middle, scale = median(values), mad(values)
    return values[np.abs(values - middle) <= max(_FAR * scale, 1e-9)]
