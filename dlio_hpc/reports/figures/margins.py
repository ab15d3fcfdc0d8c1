"""Layout of pictures: the room that titles, labels and ticks need around axes."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

# Inches: a point, the space between the parts of a picture, and the height of a line in a font of one point.
_POINT = 1 / 72
_SPACE = 4 * _POINT
_LINE = 1.2 * _POINT


class _Room(NamedTuple):
    """Inches that the texts of axes need around them."""

    left: float
    right: float
    top: float
    bottom: float


class Stacked(LayoutEngine):
    """Layout of axes that are stacked in a figure, with a colour bar at their right if the figure has further axes.
    Only the longest labels are measured. Matplotlib's constrained layout measures every text twice, which takes half
    of the time of drawing a picture.

    heights: relative heights of the axes.
    """

    _adjust_compatible = False
    _colorbar_gridspec = False

    def __init__(self, heights: Sequence[float]) -> None:
        super().__init__()
        self._heights = heights

    def execute(self, fig: Figure) -> None:
        width, height = fig.get_size_inches()
        stack, bars = fig.axes[: len(self._heights)], fig.axes[len(self._heights) :]
        rooms = [_room(axes) for axes in stack]
        left, right = max(room.left for room in rooms), max(room.right for room in rooms)
        bar = 2 * _SPACE if bars else 0.0  # the space before the bar, and its width
        end = width - max([right, *(bar + _room(axes).right for axes in bars)]) - _SPACE
        texts = sum(_height(text) + _SPACE for text in fig.texts)
        free = height - texts - sum(room.top + room.bottom for room in rooms)
        top = height
        for axes, room, share in zip(stack, rooms, self._heights, strict=True):
            size = max(0.1, free * share / sum(self._heights))
            top -= room.top + size
            axes.set_position((left / width, top / height, (end - left) / width, size / height))
            for further in bars:
                further.set_position(((end + _SPACE) / width, top / height, _SPACE / width, size / height))
            top -= room.bottom


def _room(axes: Axes) -> _Room:
    """Return the room that the texts of axes need. The title and the legend are above them, next to each other."""
    has_head = bool(axes.get_title("left")) or axes.get_legend() is not None
    above = _SPACE + (_SPACE + float(axes.title.get_fontsize()) * _LINE if has_head else _SPACE)
    if not axes.axison:
        return _Room(_SPACE, _SPACE, above, _SPACE)
    labels, last = _labels(axes.yaxis, "left", "right"), _labels(axes.xaxis, "bottom")[-1:]
    up = max(map(_width, labels), default=-_SPACE) + _height(axes.yaxis.label) + 4 * _SPACE
    is_right = axes.yaxis.get_ticks_position() == "right"
    beyond = max(map(_width, last), default=0.0) / 2
    below = 2 * _SPACE + max(map(_height, last), default=-_SPACE) + _height(axes.xaxis.label)
    return _Room(_SPACE if is_right else up, up if is_right else beyond, above, below)


def _labels(axis: Axis, *sides: str) -> list[Text]:
    """Return the labels of the ticks that are drawn, in their order. sides: sides at which the axis may have labels."""
    shown = axis.get_tick_params()
    if not any(shown[f"label{side}"] for side in sides):
        return []
    low, high = sorted(axis.get_view_interval())
    return [
        label
        for label, place in zip(axis.get_majorticklabels(), axis.get_majorticklocs(), strict=False)
        if label.get_text() and low <= place <= high
    ]


def _width(text: Text) -> float:
    font = text.get_fontproperties()
    return float(text_to_path.get_text_width_height_descent(text.get_text(), font, False)[0]) * _POINT


def _height(text: Text) -> float:
    """Return the height of a text, 0 if it is empty."""
    lines = text.get_text().split("\n") if text.get_text() else []
    return len(lines) * float(text.get_fontsize()) * _LINE
