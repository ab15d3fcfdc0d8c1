"""Advice on settings is in the calls of the library that reads the format of the dataset."""

import pytest

from dlio_hpc.config import workload
from dlio_hpc.reports import advice


@pytest.mark.parametrize(("kind", "has_calls"), [("hdf5", True), ("zarr", False), ("npy", False)])
def test_calls_of_h5py_are_for_hdf5_files(kind: str, has_calls: bool) -> None:
    """Zarr has chunks and compressions, too, but h5py cannot write them."""
    keys = (f"dataset.format={kind}", *(() if kind == "npy" else ("dataset.compression=gzip",)))
    made = workload.load("demo", keys)
    for advise in (advice._chunks, advice._compression):
        lines = advise(made)
        assert (lines is not None and "create_dataset" in "".join(lines)) is has_calls
