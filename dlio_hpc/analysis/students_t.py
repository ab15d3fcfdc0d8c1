"""Student's t distribution for any positive number of degrees of freedom.

The distribution function is a regularized incomplete beta function, which is computed as a continued fraction
(W. H. Press et al., Numerical Recipes, 3rd edition, section 6.4). Relative errors are below 1e-6.
"""

import functools
import math
from statistics import NormalDist

# Number of degrees of freedom from which the normal distribution differs by less than the error stated above.
_MANY = 1e8
_NORMAL = NormalDist()
# Smallest number that the continued fraction divides by, and the relative change at which it ends.
_TINY, _CLOSE = 1e-300, 1e-15
# Largest logarithm of a quantile that is returned as a finite number.
_LARGEST = 700.0


def cdf(t: float, df: float) -> float:
    """Return the probability that a value of Student's t distribution is at most `t`. df: degrees of freedom, above 0.

    Raises: ValueError if `df` is not positive.
    """
    return _upper_tail(-t, df) if t < 0 else 1 - _upper_tail(t, df)


def quantile(probability: float, df: float) -> float:
    """Return the value that Student's t distribution does not exceed with this probability. The result is infinite if
    it is too large for a float. df: degrees of freedom, above 0.

    Raises: ValueError if `df` is not positive, or if `probability` is not between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability must be between 0 and 1: {probability}")
    if probability == 0.5 or df >= _MANY:
        return _NORMAL.inv_cdf(probability)
    tail = min(probability, 1 - probability)
    value = _upper_quantile(tail, df)
    return value if probability > 0.5 else -value


@functools.lru_cache(maxsize=1024)
def _upper_quantile(tail: float, df: float) -> float:
    """Return the value that is exceeded with the probability `tail`, which is below 0.5.

    This is Newton's method for the logarithm of the tail as a function of the logarithm of the value. That function is
    concave, so each step after the first moves towards the solution from above.
    """
    logarithm = math.log(-_NORMAL.inv_cdf(tail))
    for _ in range(100):
        value = math.exp(logarithm)
        beyond = _upper_tail(value, df)
        step = math.log(beyond / tail) * beyond / (value * _density(value, df))
        logarithm += step
        if logarithm > _LARGEST:
            return math.inf
        if abs(step) < 1e-13:
            break
    return math.exp(logarithm)


def _density(t: float, df: float) -> float:
    logarithm = -math.log(df) / 2 - _log_beta(df / 2) - (df + 1) / 2 * math.log1p(t * t / df)
    return math.exp(logarithm)


def _upper_tail(t: float, df: float) -> float:
    """Return the probability that a value of the distribution exceeds `t`. `t` must not be negative."""
    if not df > 0:
        raise ValueError(f"degrees of freedom must be above 0: {df}")
    if df >= _MANY or t == 0:
        return _NORMAL.cdf(-t)
    ratio = t / math.sqrt(df)  # its square may be too large for a float
    share = 1 / (1 + ratio * ratio)
    rest = 1 / (1 + 1 / (ratio * ratio)) if ratio > 1e-150 else 0.0
    a = df / 2
    # The probability that |t| is exceeded is the incomplete beta function of `share` with parameters a and 1/2.
    logarithm = -a * math.log1p(ratio * ratio) if ratio < 1e150 else -2 * a * math.log(ratio)
    factor = math.exp(logarithm - _log_beta(a)) * math.sqrt(rest)
    if share < (a + 1) / (a + 2.5):
        return factor * _fraction(share, a, 0.5) / a / 2
    return (1 - factor * _fraction(rest, 0.5, a) / 0.5) / 2


def _log_beta(a: float) -> float:
    """Return the logarithm of the beta function of `a` and 1/2."""
    return math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by the method of Lentz."""
    c, d = 1.0, 1 / _apart_from_0(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _apart_from_0(1 + term * d)
            c = _apart_from_0(1 + term / c)
            result *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return result


def _apart_from_0(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
