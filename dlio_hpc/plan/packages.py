"""Python packages that some readers and checkpoints need in addition to the dependencies of dlio-hpc."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dlio_hpc.config.checkpoint_keys import Mode
from dlio_hpc.config.workload import Workload
from dlio_hpc.plan.plan import Plan


class Package(NamedTuple):
    """A Python package. module: name under which the package is imported. needed_by: settings of a workload that need
    the package. remedy: how to install the package, or a setting that does not need it.
    """

    module: str
    needed_by: str
    remedy: str


# The packages, by the names that plan.json has for them.
PACKAGES = {
    "tensorflow": Package("tensorflow", "reader.loader=tensorflow", "pip install tensorflow-cpu"),
    "pytorch": Package("torch", "reader.loader=pytorch", "pip install torch"),
    "torch": Package(
        "torch", "checkpoint.mode=torch or torch_distributed", "pip install torch, or set checkpoint.mode=posix"
    ),
    "keras": Package(
        "keras", "checkpoint.mode=keras", "pip install keras tensorflow-cpu, or set checkpoint.mode=posix"
    ),
    "pandas": Package("pandas", "dataset.format=csv with reader.mode=framework", "pip install pandas"),
    "pillow": Package(
        "PIL", "dataset.format=jpeg or png with reader.mode=framework", "pip install pillow, or set reader.mode=posix"
    ),
    "pyarrow": Package(
        "pyarrow", "dataset.format=parquet with reader.mode=framework", "pip install pyarrow, or set reader.mode=posix"
    ),
    "zarr": Package(
        "zarr", "dataset.format=zarr with reader.mode=framework", "pip install 'zarr>=3', or set reader.mode=posix"
    ),
    "numcodecs": Package(
        "numcodecs",
        "dataset.format=zarr with compression=blosc",
        "pip install numcodecs, or set another dataset.compression, such as zstd",
    ),
    "parallel h5py": Package(
        "h5py",
        "reader.access=collective with reader.mode=framework",
        "build it (CC=mpicc HDF5_MPI=ON pip install --no-binary=h5py h5py), or set reader.mode=posix",
    ),
}

_OF_CHECKPOINTS: dict[Mode, tuple[str, ...]] = {
    "posix": (),
    "torch": ("torch",),
    "torch_distributed": ("torch",),
    "keras": ("keras",),
}


def needed(workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Return the names of the packages that are needed to run these workloads."""
    names = {name for workload in workloads for name in _of(workload)}
    return tuple(name for name in PACKAGES if name in names)


def measured(plans: Iterable[Plan]) -> tuple[str, ...]:
    """Return the names of the packages that the warm-up and measured runs of these jobs need."""
    return needed(run.workload for plan in plans for run in plan.runs if run.kind != "generate")


def _of(workload: Workload) -> Iterator[str]:
    reader, is_framework = workload.reader, workload.reader.mode == "framework"
    if reader.loader != "native":
        yield reader.loader
    facts = workload.dataset.facts
    is_decoded_by_tensorflow = facts.holds_image and reader.loader == "tensorflow"
    if is_framework and facts.package and not is_decoded_by_tensorflow:
        yield facts.package
    if workload.dataset.compression == "blosc":
        yield "numcodecs"
    if reader.access == "collective" and is_framework:
        yield "parallel h5py"
    if workload.checkpoint is not None:
        yield from _OF_CHECKPOINTS[workload.checkpoint.mode]


def advice(name: str) -> str:
    """Return a sentence that says which settings need the package, and how to install it. name: name of the package in
    PACKAGES.
    """
    package = PACKAGES[name]
    return f"{package.needed_by} needs this package: {package.remedy}"
