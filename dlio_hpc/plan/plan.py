"""plan.json: the runs of a job and where they run, with all defaults written out. The login side writes it; ranks read
it.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from dlio_hpc import document, units
from dlio_hpc.config import reader_keys
from dlio_hpc.config.dataset_keys import LEVEL, Chunk, Dataset
from dlio_hpc.config.lustre_layout import Layout
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import Workload
from dlio_hpc.errors import ConfigError, InvalidRun, unreadable
from dlio_hpc.files import url

Generate = Literal["auto", "separate", "only", "never"]
Kind = Literal["generate", "warmup", "measure"]

# Part of every fingerprint. Increase it if the generator writes different bytes for the same geometry.
_CONTENT = 2


class Run(Struct, frozen=True, forbid_unknown_fields=True):
    """An execution of the core. The planned counts are of all epochs and ranks together. darshan: the ranks run with
    the site's libdarshan. tf_profile: TensorFlow's profiler runs in the first ranks. layout: of the dataset's files.
    point: of the study, None if it measures none. repeat: number of earlier measurements of the point.
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


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch job. titles: titles of the study's points that it measures, by number; empty if there is nothing to
    compare. is_link: the job belongs to a chain in which the next job runs regardless of its outcome. packages:
    imported by ranks before data are generated; names of packages.PACKAGES.
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
    schema: Literal[1] = 1

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def datasets(self) -> tuple[Run, ...]:
        """datasets() of the job's runs."""
        return datasets(self.runs)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the job's datasets, on the file systems under test."""
        return tuple(dict.fromkeys(os.path.dirname(run.dataset) for run in self.runs)) or (self.data,)

    @property
    def warning_time(self) -> int:
        """The value of warning_time()."""
        return warning_time(self.site, self.walltime)


def load(path: Path) -> tuple[Plan, str]:
    """Read a plan and the SHA-256 of its file; ConfigError if it does not exist, InvalidRun if it is corrupted,
    InfrastructureError if it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise unreadable(fault, path) from fault
    return document.decode(content, Plan, str(path), InvalidRun), hashlib.sha256(content).hexdigest()


def datasets(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the first run of each dataset that these runs read or write."""
    first: dict[str, Run] = {}
    for run in runs:
        if run.workload.dataset.is_stored:
            first.setdefault(run.dataset, run)
    return tuple(first.values())


def warning_time(site: Site, walltime: int) -> int:
    """Return the seconds before its time limit at which a job is signalled: at most a quarter of the walltime."""
    return max(min(int(site.warning_time), walltime // 4), 1)


def resolved(workload: Workload) -> Workload:
    """Return the workload with the defaults that depend on other keys written out."""
    reader, dataset, checkpoint = workload.reader, workload.dataset, workload.checkpoint
    if checkpoint is not None and checkpoint.model_bytes is None:
        checkpoint = structs.replace(checkpoint, files=checkpoint.sizes)
    sample = dataset.sample
    if sample.shape is not None:
        sample = structs.replace(sample, dtype=sample.array_dtype)
    return structs.replace(
        workload,
        dataset=structs.replace(
            dataset,
            sample=sample,
            chunk=Chunk(shape=dataset.chunk_shape) if dataset.is_chunked else None,
            level=(LEVEL if dataset.level is None else dataset.level) if dataset.compression == "gzip" else None,
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
            verify=dataset.format == "tfrecord" and reader.verifies,
        ),
    )


def positions(workload: Workload, ranks: int, rank: int, ranks_per_node: int) -> tuple[int, int]:
    """Return the half-open range of an epoch's positions that `rank` reads."""
    if not workload.reader.shard:
        return 0, workload.dataset.samples
    units, size = _shared_units(workload, ranks)
    first, last = share(units, ranks, (rank + ranks_per_node * workload.reader.reorder_tasks) % ranks)
    return first * size, last * size


def share(count: int, ranks: int, rank: int) -> tuple[int, int]:
    """Return the half-open range of `count` items that belong to `rank`; the sizes of ranges differ by at most one."""
    return rank * count // ranks, (rank + 1) * count // ranks


def _shared_units(workload: Workload, ranks: int) -> tuple[int, int]:
    """Return the number of units that are divided among the ranks, and the samples in a unit. Units are files or single
    samples.
    """
    dataset = workload.dataset
    if reader_keys.shares_files(dataset, workload.reader, ranks):
        return dataset.files, dataset.samples_per_file
    return dataset.samples, 1


def largest_share(workload: Workload, ranks: int) -> int:
    """Return the largest number of samples that a rank has in an epoch."""
    if not workload.reader.shard:
        return workload.dataset.samples
    units, size = _shared_units(workload, ranks)
    return -(-units // ranks) * size


def steps_per_epoch(workload: Workload, ranks: int) -> int:
    """Return the steps of every rank in every epoch. A rank with a smaller share ends with a short batch and empty
    batches.
    """
    batch = workload.reader.batch_size
    whole = -(-largest_share(workload, ranks) // batch)
    if workload.reader.drop_last:
        units, size = _shared_units(workload, ranks)
        whole = (units // ranks * size if workload.reader.shard else workload.dataset.samples) // batch
    return min(whole, workload.train.steps or whole)


def samples_per_epoch(workload: Workload, ranks: int) -> int:
    """Return the samples that all ranks together read in an epoch."""
    most = steps_per_epoch(workload, ranks) * workload.reader.batch_size
    if not workload.reader.shard:
        return ranks * min(workload.dataset.samples, most)
    units, size = _shared_units(workload, ranks)
    small, larger = divmod(units, ranks)
    return larger * min((small + 1) * size, most) + (ranks - larger) * min(small * size, most)


def fingerprint(dataset: Dataset, layout: Layout | None = None) -> str:
    """Return twelve hexadecimal digits that are equal for two datasets exactly if one can replace the other."""
    auxiliary_files = [(side.name, side.file_size) for side in dataset.auxiliary_files if side.access == "read"]
    stored = document.plain(structs.replace(dataset, auxiliary_files=()))
    if dataset.compression_ratio is None:
        del stored["compression_ratio"]  # datasets generated before this key existed keep their fingerprints
    parts = (_CONTENT, stored, auxiliary_files) if layout is None else (_CONTENT, stored, auxiliary_files, layout)
    return hashlib.sha256(document.encode(parts)).hexdigest()[:12]


def dataset_name(dataset: Dataset, layout: Layout | None = None) -> str:
    """Return the name of the dataset's folder: its geometry, readable by people, and its fingerprint."""
    sample = units.format_size(dataset.sample_bytes).replace(" ", "")
    return f"{dataset.format}-{dataset.files}x{dataset.samples_per_file}x{sample}-{fingerprint(dataset, layout)}"


def job_name(workload: str) -> str:
    """Return a new name, valid as a folder and in every batch system: demo-20261121-142501-3fa2c1."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", workload).strip("-.")[:40] or "job"
    return f"{slug}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def workload_of(job: str) -> str:
    """Return the workload's name from a name that job_name() made, possibly shortened."""
    return job.rsplit("-", 3)[0]


def data_directory(site: Site, asked: Path | None) -> str:
    """Return the folder of datasets, from the request or the site; ConfigError if neither sets it."""
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
        raise ConfigError(f"site {site.name} puts datasets into {directory}: variable not set here; use --data")
    return absolute(Path(directory))


def archive_folder(plan: Plan, directory: Path) -> Path:
    """Return the folder for the archive of the job whose directory is `directory` now."""
    return Path(moved(plan.archive, os.path.dirname(plan.directory), os.path.dirname(os.path.abspath(directory))))


def moved(path: str, old: str, new: str) -> str:
    """Return the path after folder `old` was moved to `new`; the path itself if it is not below `old`."""
    below = os.path.relpath(path, old)
    return path if below.startswith("..") else os.path.normpath(os.path.join(new, below))


def absolute(path: Path) -> str:
    try:
        absolute = os.path.abspath(path)
        return "/" + absolute.lstrip("/")  # POSIX leaves the meaning of two leading slashes open
    except FileNotFoundError as fault:
        raise ConfigError(f"the working directory was deleted; {path} is relative to it") from fault
