"""Bars of characters, which show values in a line of text."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], high: float, span: float) -> str:
    """Return a bar for each value. high: value of a bar of full height. span: difference between this value and the
    value of a bar of height 0.
    """
    return "".join(_BARS[min(int(len(_BARS) * (1 - (high - value) / span)), len(_BARS) - 1)] for value in values)
