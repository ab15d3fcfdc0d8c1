"""Requests that libraries make besides those for samples: the predicted ones are those in logs of the libraries."""

import numpy as np
import pytest

from dlio_hpc.analysis.log import requests as requests_of
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.files import file_formats, file_roles, library_marks
from dlio_hpc.programs.files.library_marks import Layout, LibraryMarks, Pieces
from tests.support import characters

CASES = {case.name: case for case in characters.cases()}
_LAYOUTS: list[Layout] = [
    (name, mode) for mode in ("posix", "framework") for name in ("raw", "npz", "hdf5", "tfrecord", "csv")
]


def _visit(name: str) -> tuple[int, Pieces]:
    """Return the size of a file of the dataset, and the requests that read it first, up to the next opening."""
    made = characters.character(CASES[name])
    sizes = {file.path: file.size for file in file_roles.of(made.derived.roles, "dataset")}
    traced = requests_of.of_log(made.log, "DXT_POSIX", made.wanted, None)
    number = next(at for at, path in enumerate(traced.paths) if path in sizes)
    mine = np.flatnonzero((traced.file == number) & ~traced.write)
    mine = mine[traced.rank[mine] == traced.rank[mine[0]]]
    size = sizes[traced.paths[number]]
    return size, list(zip(traced.offset[mine].tolist(), traced.length[mine].tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "layout", "head"),
    [
        ("tf_records", ("tfrecord", "framework"), 0),
        ("bird_calls", ("tfrecord", "framework"), 0),
        ("csv_chunks", ("csv", "framework"), 0),
        ("torch_loader", ("raw", "framework"), 0),
        ("lidar_sweeps", ("raw", "framework"), 0),
        ("leaf_photos", ("raw", "framework"), 4096),
    ],
)
def test_predicted_visits_are_those_of_the_libraries(name: str, layout: Layout, head: int) -> None:
    size, requests = _visit(name)
    expected = library_marks.visit(layout, size, 1 << 20, head)
    assert requests[: len(expected)] == expected


def test_hdf5_opens_files_as_predicted() -> None:
    for name in ("h5_patches", "h5_sequential", "flame_snapshots", "diffraction_peaks"):
        size, requests = _visit(name)
        assert requests[:8] == library_marks.visit(("hdf5", "framework"), size, 1 << 20)[:8], name


def test_numpy_opens_archives_as_predicted() -> None:
    """The directory is that of one array; archives with several have a longer one, and more members."""
    size, requests = _visit("npz_archives")
    expected = library_marks.visit(("npz", "framework"), size, 1 << 20)
    assert requests[:4] == expected[:4]
    large = [request for request in requests[5:11] if request[0] < 440_000]
    assert large == [request for request in expected[5:] if request[0] < 440_000]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_training])
def test_marks_tell_the_layout_of_a_log(name: str) -> None:
    """The names of files do not count here, only requests. A small TFRecord file is read like any other small file."""
    made = characters.character(CASES[name])
    if not made.derived.keys or name in {"npy_map", "bolt_torque"}:  # read through memory or STDIO
        return
    keys = made.derived.keys
    layout = (str(keys["dataset.format"].value), str(keys["reader.mode"].value))
    # Names alone tell images and archives from raw files, and archives are read by requests of a buffer.
    layout = {"jpeg": ("raw", layout[1]), "png": ("raw", layout[1]), "tar": ("raw", "posix")}.get(layout[0], layout)
    traced = requests_of.of_log(made.log, "DXT_POSIX", made.wanted, None)
    fits = file_formats._fits(file_roles.of(made.derived.roles, "dataset"), traced, None, "?")
    sizes = _sizes(made, int(np.bincount(traced.length).argmax()))
    best = {fit[:2] for fit in library_marks.ranked(_LAYOUTS, fits.logged, *sizes) if fit.agreement > 0.95}
    # PNG files end with a mark of their own, so no request reaches the end of the file. Parquet files are recognised by
    # their names alone.
    if name == "tissue_tiles" or layout[0] == "parquet":
        assert ("raw", "posix") in best
        return
    assert layout in best
    if layout == ("raw", "posix"):
        assert not any(mode == "framework" for _, mode in best)
    elif layout[0] in ("npz", "hdf5"):
        assert best == {layout}


def _sizes(made: Character, request: int) -> tuple[int, int, int]:
    sizes = [file.size for file in file_roles.of(made.derived.roles, "dataset")]
    usual = int(np.median(sizes))
    return usual, usual, made.derived.keys["reader.transfer_size"].value or request


def test_partly_read_files_show_no_end() -> None:
    """A program that stops within a file leaves no request at its end, and none is expected."""
    layout = ("tfrecord", "framework")
    part = [(offset, length) for offset, length in library_marks.visit(layout, 10 << 20, 1 << 20) if offset < 4 << 20]
    offset, length = np.array(part, np.int64).T
    logged = library_marks.of(np.zeros(len(part), np.int64), offset, length, np.array([10 << 20], np.int64))
    assert logged == LibraryMarks(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 256 << 10)
    best, *_ = library_marks.ranked([("tfrecord", "posix"), layout], logged, 10 << 20, 4 << 20, 30_000)
    assert best[:2] == layout
    assert best.agreement == 1.0


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_files_of_any_size_are_predicted_at_once(layout: Layout) -> None:
    for size in (0, 1, 100, 1 << 62):
        assert len(library_marks.visit(layout, size, 1)) <= 256
