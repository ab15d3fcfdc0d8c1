"""File formats. Each format has a module that writes its files and reads them on a rank."""

from typing import TYPE_CHECKING

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.formats import csv, indexed, npy, npz, null, raw, tar, tfrecord
from dlio_hpc.core.formats.existing import ExistingReader
from dlio_hpc.core.formats.format import Format, Paths, SampleReader
from dlio_hpc.core.formats.hdf5 import hdf5_format
from dlio_hpc.core.formats.images import image_format
from dlio_hpc.core.formats.parquet import parquet_format
from dlio_hpc.core.formats.resized import ResizingReader
from dlio_hpc.core.formats.zarr import zarr_format

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

FORMATS: dict[str, Format] = {
    "tfrecord": Format(tfrecord.write, tfrecord.reader, tfrecord.fault),
    "hdf5": Format(hdf5_format.write, hdf5_format.reader, hdf5_format.fault),
    "npz": Format(npz.write, npz.reader, npz.fault),
    "npy": Format(npy.write, npy.reader, npy.fault),
    "jpeg": image_format.JPEG,
    "png": image_format.PNG,
    "raw": Format(raw.write, raw.reader, raw.fault, contents=raw.contents, sizes=raw.sizes),
    "csv": Format(csv.write, csv.reader, csv.fault, csv.expected),
    "parquet": Format(parquet_format.write, parquet_format.reader, parquet_format.fault),
    "tar": Format(tar.write, tar.reader, tar.fault, sizes=tar.sizes),
    "indexed": Format(
        indexed.write, indexed.reader, indexed.fault, indexed.expected, contents=indexed.contents, sizes=indexed.sizes
    ),
    "zarr": Format(zarr_format.write, zarr_format.reader, zarr_format.fault),
    "null": Format(null.write, null.reader, null.fault),
}


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None") -> SampleReader:
    """Return a reader of the dataset's files. paths: function that returns the path of the file with a given number.
    comm: communicator for collective access, or None.
    """
    made = FORMATS[workload.dataset.format].reader(workload, paths, comm)
    if workload.dataset.existing is not None:
        made = ExistingReader(made)
    if workload.reader.resizes:
        made = ResizingReader(made, workload.dataset.largest_in_memory)
    return made
