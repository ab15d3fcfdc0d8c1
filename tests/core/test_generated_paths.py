"""Files that libdarshan can recognise: it does not resolve names relative to a directory descriptor."""

import os
from pathlib import Path
from typing import Any

import h5py
import pytest

from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.generate import generate
from dlio_hpc.core.progress import Progress
from dlio_hpc.dataset import dataset_folder
from tests.dataset.test_datasets import _plan


class _OneRank:
    """The communicator of one rank."""

    rank, size = 0, 1

    def bcast(self, value: Any) -> Any:
        return value

    allreduce = bcast

    def allgather(self, value: Any) -> list[Any]:
        return [value]


@pytest.mark.parametrize("kind", ["npz", "hdf5", "raw", "csv", "tfrecord", "zarr"])
def test_under_darshan_files_are_generated_by_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    opened: dict[Any, set[str]] = {os.open: set(), h5py.File: set()}

    def recorded(function: Any) -> Any:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            opened[function].add(os.fsdecode(path))
            return function(path, *arguments, **named)

        return call

    run, comm = (
        _plan(tmp_path, f"dataset.format={kind}", "dataset.auxiliary_files=[{name: meta, bytes: 100}]"),
        _OneRank(),
    )
    stop = Stop(comm, Path("/nowhere"))  # type: ignore[arg-type]
    monkeypatch.setattr(darshan_fd_gate, "is_watched", lambda: True)
    monkeypatch.setattr(os, "open", recorded(os.open))
    monkeypatch.setattr(h5py, "File", recorded(h5py.File))
    generate(comm, run, Progress("generate", speaks=False), stop)  # type: ignore[arg-type]
    layout = run.workload.dataset
    paths = {dataset_folder.file_path(run.stored, number) for number in range(layout.files)}
    by_python, by_hdf5 = opened.values()
    assert paths | {dataset_folder.side_path(run.stored, side) for side in dataset_folder.sides(layout)} <= by_python
    assert by_hdf5 == (paths if kind == "hdf5" else set())
