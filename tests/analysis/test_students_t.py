"""Student's t distribution agrees with tables and with the forms that are known for some degrees of freedom."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from dlio_hpc.analysis import students_t

# Quantiles of tables, to six digits.
_TABLE = [
    (0.975, 1, 12.706205),
    (0.975, 2, 4.302653),
    (0.975, 3, 3.182446),
    (0.975, 4, 2.776445),
    (0.975, 5, 2.570582),
    (0.975, 10, 2.228139),
    (0.975, 30, 2.042272),
    (0.975, 120, 1.979930),
    (0.95, 1, 6.313752),
    (0.95, 7, 1.894579),
    (0.99, 3, 4.540703),
    (0.995, 2, 9.924843),
    (0.995, 8, 3.355387),
    (0.9995, 1, 636.619249),
    (0.9995, 5, 6.868827),
    (0.9995, 1000, 3.300283),
]


@pytest.mark.parametrize(("probability", "df", "value"), _TABLE)
def test_quantiles_of_tables(probability: float, df: int, value: float) -> None:
    assert students_t.quantile(probability, df) == pytest.approx(value, rel=1e-6)
    assert students_t.quantile(1 - probability, df) == pytest.approx(-value, rel=1e-6)
    assert students_t.cdf(value, df) == pytest.approx(probability, abs=1e-7)


@pytest.mark.parametrize("t", [-1e9, -300.0, -2.5, -1e-3, 0.0, 1e-8, 0.3, 1.0, 7.0, 1e4])
def test_forms_that_are_known(t: float) -> None:
    """One to four degrees of freedom have a distribution function in closed form; infinitely many are normal."""
    assert students_t.cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
    assert students_t.cdf(t, 2) == pytest.approx(0.5 + t / math.sqrt(2 + t * t) / 2, abs=1e-12)
    u = t / math.sqrt(3)
    assert students_t.cdf(t, 3) == pytest.approx(0.5 + (u / (1 + u * u) + math.atan(u)) / math.pi, abs=1e-12)
    s = t / math.sqrt(4 + t * t)
    assert students_t.cdf(t, 4) == pytest.approx(0.5 + 0.75 * (s - s**3 / 3), abs=1e-12)
    for df in (0.9e8, 1.1e8, math.inf):
        assert students_t.cdf(t, df) == pytest.approx(NormalDist().cdf(t), abs=1e-7)


@pytest.mark.parametrize("df", [0.1, 0.5, 1.3, 2.7, 3.5, 11.9, 250.5, 1e5, 1e7])
def test_real_degrees_of_freedom(df: float) -> None:
    """The integral of the density between two quantiles is the difference of their probabilities."""
    low, high = students_t.quantile(0.7, df), students_t.quantile(0.999, df)
    at = np.exp(np.linspace(math.log(low), math.log(high), 100_001))
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    density = np.exp(constant - (df + 1) / 2 * np.log1p(at**2 / df))
    area = float(((density[1:] + density[:-1]) / 2 * np.diff(at)).sum())
    assert area == pytest.approx(0.299, abs=1e-6)


def test_the_quantile_inverts_the_distribution() -> None:
    random = np.random.default_rng(1)
    for df in np.exp(random.uniform(math.log(0.2), math.log(1e6), 100)):
        for tail in np.exp(random.uniform(math.log(1e-9), math.log(0.5), 5)):
            value = students_t.quantile(float(tail), float(df))
            assert students_t.cdf(value, float(df)) == pytest.approx(tail, rel=1e-6)
    assert students_t.quantile(0.5, 3) == 0
    assert students_t.quantile(0.5 + 1e-9, 3) == pytest.approx(1e-9 / 0.367553, rel=1e-4)
    assert students_t.quantile(0.999, 0.005) == math.inf


def test_what_has_no_distribution_is_refused() -> None:
    for df in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="degrees of freedom"):
            students_t.quantile(0.9, df)
    for probability in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="probability"):
            students_t.quantile(probability, 3)
