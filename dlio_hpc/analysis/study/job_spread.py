"""Variation between jobs: what all runs of a job have in common, such as its nodes and the load of the file system."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class JobSpread(NamedTuple):
    """Variation between jobs with the same settings. sd: standard deviation of the logarithm of the level of a job. df:
    degrees of freedom of sd.
    """

    sd: float
    df: float


# Runs of one job do not show how much jobs differ. Intervals that left this out would claim more than was measured, so
# an assumption is necessary. Production file systems differ by several percent and more from day to day (G. Lockwood
# et al., A Year in the Life of a Parallel File System, SC 2018). Four degrees of freedom make intervals as wide as if
# five jobs had shown the 5 %; such intervals also hold if jobs differ by 7 %.
ASSUMED = JobSpread(0.05, 4)


def combined(variances: Sequence[float], dfs: Sequence[float]) -> tuple[float, float]:
    """Return the sum of independent estimates of variances, and its degrees of freedom (F. E. Satterthwaite, Biometrics
    Bulletin 2, 1946). At least one variance is positive.
    """
    total = math.fsum(variances)
    parts = [(variance / total) ** 2 / df for variance, df in zip(variances, dfs, strict=True) if variance > 0]
    return total, 1 / math.fsum(parts)
