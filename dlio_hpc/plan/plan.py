"""The file plan.json: the runs of a job, its site, and its numbers of nodes and ranks, with all defaults written out.
The file is written on the login node and read by the ranks.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, InvalidRun, unreadable
from dlio_hpc.config.dataset_keys import LEVEL, LEVELLED, Chunk
from dlio_hpc.config.lustre_layout import Layout
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.files import url
from dlio_hpc.plan.mix import Load

Generate = Literal["auto", "separate", "only", "never"]
Kind = Literal["generate", "warmup", "measure"]


class Run(Struct, frozen=True, forbid_unknown_fields=True):
    """A run: one start of the ranks within a job. steps_per_epoch: number of steps of each rank. samples, bytes: totals
    over all epochs and ranks. dataset: folder of the dataset. fingerprint: fingerprint of the content and the layout of
    the dataset. outputs: folder for checkpoints and auxiliary files that the run writes. darshan: whether the ranks run
    with the libdarshan of the site. tf_profile: whether TensorFlow's profiler runs on the first ranks. layout: Lustre
    layout of the dataset's files. point: number of the study's point that the run measures; None for other runs.
    repeat: number of earlier measurements of the point. evaluation: evaluation passes of the run, as a run of their own
    whose epochs are the passes; None without passes. load: place of the run in a launch of several loads; None for a
    run on all ranks. launch: number of the first run of this launch.
    """

    number: int
    name: str
    kind: Kind
    workload: Workload
    dataset: str
    fingerprint: str
    outputs: str
    steps_per_epoch: int
    samples: int
    bytes: int
    darshan: bool = False
    tf_profile: bool = False
    layout: Layout | None = None
    point: int | None = None
    repeat: int = 0
    evaluation: "Run | None" = None
    load: Load | None = None
    launch: int | None = None

    @property
    def stored(self) -> StoredDataset:
        """The dataset and its place."""
        return StoredDataset(self.dataset, self.workload.dataset, self.fingerprint)

    def writes(self) -> bool:
        """Return whether the run writes anything into the data directory: a dataset, checkpoints or auxiliary files."""
        if self.kind == "generate":
            return dataset_folder.is_unwritten(self.stored)
        if self.workload.dataset.existing is not None:
            return False  # they are written elsewhere
        sides_written = any(side.access == "write" for side in self.workload.dataset.auxiliary_files)
        return self.workload.checkpoint is not None or sides_written

    @property
    def data(self) -> str:
        """Data directory, which holds the folder of the dataset. An existing dataset has no folder of its own: its
        files have names relative to the data directory.
        """
        return self.dataset if self.workload.dataset.existing is not None else os.path.dirname(self.dataset)


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch job. titles: titles of the study's points that the job measures, by the number of the point; empty if the
    study has nothing to compare. is_link: whether the job belongs to a chain of jobs. Each job of a chain runs after
    the previous job, even if that job failed. packages: packages that ranks import before data are generated, by their
    names in packages.PACKAGES. night: number of the night that the job belongs to, counted from 1. nights: number of
    nights of the study. begins: time (UTC) before which the job must not start; empty if it may start immediately.
    """

    version: str
    job: str
    study: str
    created: str
    directory: str
    archive: str
    data: str
    site: Site
    nodes: int
    ranks_per_node: int
    walltime: units.Walltime
    account: str | None
    queue: str | None
    job_options: tuple[str, ...]
    notes: tuple[str, ...]
    runs: tuple[Run, ...]
    titles: dict[int, str] = {}
    is_link: bool = False
    packages: tuple[str, ...] = ()
    night: int = 1
    nights: int = 1
    begins: str = ""
    schema: Literal[1] = 1

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    def launched_with(self, run: Run) -> tuple[Run, ...]:
        """Return the runs of the launch of a run, in their order."""
        return (run,) if run.launch is None else tuple(one for one in self.runs if one.launch == run.launch)

    @property
    def datasets(self) -> tuple[Run, ...]:
        """For each dataset that the job reads or writes, the first run that uses it."""
        return datasets(self.runs)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that hold the dataset folders of the job. They are on the file systems under test."""
        return tuple(dict.fromkeys(run.data for run in self.runs)) or (self.data,)

    @property
    def warning_time(self) -> int:
        """Number of seconds before the end of its walltime at which the job gets a signal."""
        return warning_time(self.site, self.walltime)


def load(path: Path) -> tuple[Plan, str]:
    """Read a plan.json. Return the plan and the SHA-256 of the file. Raise ConfigError if the file does not exist,
    InvalidRun if it is corrupted, and InfrastructureError if it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise unreadable(fault, path) from fault
    return serialization.decode(content, Plan, str(path), InvalidRun), hashlib.sha256(content).hexdigest()


def datasets(runs: Iterable[Run]) -> tuple[Run, ...]:
    """For each dataset that these runs read or write, return the first run that uses it."""
    first: dict[str, Run] = {}
    for run in runs:
        if run.workload.dataset.is_stored:
            first.setdefault(run.dataset, run)
    return tuple(first.values())


def warning_time(site: Site, walltime: int) -> int:
    """Return how many seconds before the end of its walltime a job gets a signal. This is the warning time of the site,
    but at most a quarter of the walltime, and at least 1 s.
    """
    return max(min(int(site.warning_time), walltime // 4), 1)


def resolved(workload: Workload) -> Workload:
    """Return a copy of the workload in which defaults that depend on other keys are replaced by their values."""
    reader, dataset, checkpoint = workload.reader, workload.dataset, workload.checkpoint
    if checkpoint is not None:
        checkpoint = checkpoint.resolved
    sample = dataset.sample
    if sample.shape is not None and sample.stored_dtype is None:
        sample = structs.replace(sample, dtype=sample.array_dtype)
    return structs.replace(
        workload,
        dataset=structs.replace(
            dataset,
            sample=sample,
            chunk=Chunk(shape=dataset.chunk_shape) if dataset.is_chunked else None,
            zarr=dataset.zarr_keys if dataset.facts.is_store and dataset.existing is None else None,
            level=(LEVEL if dataset.level is None else dataset.level) if dataset.compression in LEVELLED else None,
            auxiliary_files=tuple(
                structs.replace(side, size=units.Size(side.file_size)) for side in dataset.auxiliary_files
            ),
        ),
        checkpoint=checkpoint,
        reader=structs.replace(
            reader,
            interleave=reader.files_in_turn(dataset),
            prefetch=reader.batches_ahead,
            transfer_size=workload.request_size,
            verify=dataset.facts.holds_records and reader.verifies,
            verify_content=reader.verify_content if dataset.existing is None else "none",
        ),
    )


def job_name(workload: str) -> str:
    """Return a new name for a job of this workload, such as demo-20261121-142501-3fa2c1. The name is valid as the name
    of a folder and in every batch system.
    """
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", workload).strip("-.")[:40] or "job"
    return f"{slug}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def workload_of(job: str) -> str:
    """Return the workload name that is part of the job name `job`, which was made by job_name(). If the name of the
    workload is long, only its beginning is returned. Characters that are not valid in the name of a job are replaced.
    """
    return job.rsplit("-", 3)[0]


def data_directory(site: Site, asked: Path | None) -> str:
    """Return the absolute path of the data directory: `asked` or, if that is None, the data directory of the site
    profile. Raise ConfigError if neither is set, or if the value in the site profile cannot be used.
    """
    if asked is not None:
        return absolute(asked)
    if not site.data:
        raise ConfigError(f"site {site.name} has no default data directory; set it with --data")
    directory = os.path.expandvars(site.data)
    try:
        url.refuse(directory)
    except ValueError as fault:
        raise ConfigError(f"site {site.name}, data: {fault}") from fault
    if "$" in directory:
        raise ConfigError(
            f"site {site.name} puts datasets into {directory}, but a variable in this path is not set; use --data"
        )
    return absolute(Path(directory))


def archive_folder(plan: Plan, directory: Path) -> Path:
    """Return the folder for the archive of a job. directory: the current directory of the job, which may have been
    moved since the job was planned.
    """
    return Path(moved(plan.archive, os.path.dirname(plan.directory), os.path.dirname(os.path.abspath(directory))))


def moved(path: str, old: str, new: str) -> str:
    """Return the path that `path` has after the folder `old` was moved to `new`. If `path` is not below `old`, return
    it unchanged.
    """
    below = os.path.relpath(path, old)
    return path if below.startswith("..") else os.path.normpath(os.path.join(new, below))


def absolute(path: Path) -> str:
    try:
        absolute = os.path.abspath(path)
        return "/" + absolute.lstrip("/")  # POSIX leaves the meaning of two leading slashes open
    except FileNotFoundError as fault:
        raise ConfigError(f"the working directory was deleted; {path} is relative to it") from fault
