"""Check of a timeline.h5 before it is used: shapes, types and values of all its HDF5 datasets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.darshan import clock_alignment

Column = npt.NDArray[Any]

_TIMES, _COUNTS = ("start", "wait", "compute", "sync", "asked"), ("samples", "bytes")
_RANKS = ("clock_offset", "io_time", "bytes_read", "overhead_bytes", "requests")
_MORE = ("opens", "side_reads", "side_bytes_read", "side_bytes_written", "checkpoint_bytes", "checkpoint_time")
_EVENTS = ("rank", "thread", "name", "start", "duration")
# Limits of plausible times in seconds and of the number of bins.
_LONGEST_S, _MOST_BINS = 1e9, 1e8
# Exceptions that h5py raises for corrupted files, and that _need() raises for invalid values.
_DAMAGE = (
    OSError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def check(content: bytes, source: str) -> None:
    """Raise InvalidRun if `content` is not the content of an intact timeline.h5 of dlio-hpc. source: name of the file,
    for the message.
    """
    try:
        with timeline_reader.opened(content) as record:
            _check(record.file)
    except _DAMAGE as fault:
        raise InvalidRun(f"{source} is corrupted: {' '.join(str(fault).split())}") from fault


def _check(file: Any) -> None:
    ranks = len(_texts(file["ranks"], "host"))
    _need(ranks > 0, "it has no ranks")
    last = _check_steps(file["steps"], ranks)
    for name in _RANKS:
        _column(file["ranks"], name, (ranks,))
    for name in (name for name in _MORE if name in file["ranks"]):
        _column(file["ranks"], name, (ranks,))
    for name in ("read_latency", *(name for name in ("request_sizes", "open_latency") if name in file)):
        _check_histogram(file[name], ranks)
    if "activity" in file:
        _check_activity(file["activity"], ranks, last)
    if clock_alignment.GROUP in file:
        group = file[clock_alignment.GROUP]
        instants = _column(group, "instants", None, "f")
        _need(instants.ndim == 3 and instants.shape[0] == ranks and instants.shape[2] == 2, _shape("instants"))
        str(group.attrs["path"])
    if "tf_profile" in file:
        _check_profile(file["tf_profile"], ranks)


def _check_steps(group: Any, ranks: int) -> float:
    """Check the steps and return the end of the last step in seconds."""
    shape = group["start"].shape
    _need(len(shape) == 3 and shape[0] == ranks and 0 not in shape, _shape("steps/start"))
    times = [_column(group, name, shape, "f", allow_nan=True) for name in _TIMES]
    done = ~np.isnan(times[0])
    _need(bool(done.any()), "steps/start: no step was completed")
    for name, time in zip(_TIMES, times, strict=True):
        _need(bool((np.isnan(time) == ~done).all()), f"steps/{name} lacks steps that steps/start has")
        _need(bool((np.abs(time[done]) < _LONGEST_S).all()), f"steps/{name} has implausible times")
    _need(bool((done == done[:1]).all()), "steps/start: ranks have different steps")
    for name in _COUNTS:
        _column(group, name, shape, "ui")
    return float(np.nanmax(times[0] + times[1] + times[2] + times[3]))


def _check_histogram(group: Any, ranks: int) -> None:
    edges = _column(group, "edges", None, "f")
    _need(edges.ndim == 1 and len(edges) > 1, _shape(f"{group.name}/edges"))
    _need(bool((np.diff(edges) > 0).all()), f"{group.name}/edges are not ascending")
    _column(group, "counts", (ranks, len(edges) - 1), "ui")


def _check_activity(group: Any, ranks: int, last: float) -> None:
    width, start = (float(group.attrs[name]) for name in ("width", "start"))
    bool(group.attrs.get("timed", True))
    _need(0 < width < _LONGEST_S and abs(start) < _LONGEST_S, "activity: invalid width or start of bins")
    shape = group["bytes"].shape
    _need(len(shape) == 2 and shape[0] == ranks and shape[1] > 0, _shape("activity/bytes"))
    _need(max(last - start, 0) / width < _MOST_BINS, "activity: bins are too narrow for the duration of the run")
    for name in ("bytes", "requests", "busy", *(name for name in ("opens", "opening") if name in group)):
        _need(bool((_column(group, name, shape, "f") >= 0).all()), f"activity/{name} has negative values")


def _check_profile(group: Any, ranks: int) -> None:
    names, threads = _texts(group, "names"), _texts(group, "threads")
    shape = group["start"].shape
    _need(len(shape) == 1, _shape("tf_profile/start"))
    columns = {name: _column(group, name, shape) for name in _EVENTS}
    _column(group, "thread_ranks", (len(threads),), "ui")
    for name, most in (("rank", ranks), ("thread", len(threads)), ("name", len(names))):
        _need(not len(columns[name]) or int(columns[name].max()) < most, f"tf_profile/{name} is out of range")
    profiled = np.asarray(group.attrs["ranks"])
    for name in ("left_out", "clock_error", "until"):
        _need(np.asarray(group.attrs[name]).shape == profiled.shape, _shape(f"tf_profile@{name}"))


def _column(
    group: Any, name: str, shape: Sequence[int] | None, kinds: str = "fui", allow_nan: bool = False
) -> Column:  # fmt: skip
    """Return all values of an HDF5 dataset. shape: shape that is required; None accepts any. kinds: kinds of NumPy
    types that are accepted. Raise ValueError if shape, type or values are invalid.
    """
    where = f"{group.name.strip('/')}/{name}"
    column: Column = group[name][...]
    _need(shape is None or column.shape == tuple(shape), _shape(where))
    _need(column.dtype.kind in kinds, f"{where} has the type {column.dtype}")
    if column.dtype.kind == "f":
        values = column[~np.isnan(column)] if allow_nan else column
        _need(bool(np.isfinite(values).all()), f"{where} has values that are not finite")
        _need(bool((np.abs(values) < 1e18).all()), f"{where} has implausible values")
    return column


def _texts(group: Any, name: str) -> list[str]:
    """Return the values of an HDF5 dataset of text. Raise ValueError if it is not text or has a wrong shape."""
    where = f"{group.name.strip('/')}/{name}"
    texts = group[name][...]
    _need(texts.ndim == 1, _shape(where))
    _need(all(isinstance(text, (bytes, str)) for text in texts.tolist()), f"{where} is not text")
    return [text if isinstance(text, str) else text.decode() for text in texts.tolist()]


def _shape(where: str) -> str:
    return f"{where} has an unexpected shape"


def _need(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)
