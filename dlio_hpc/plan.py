"""The plan: what is to be run, and where, with nothing left implicit. Login side and ranks meet in plan.json."""

import hashlib
import os
import re
import time
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from dlio_hpc import __version__, document, units
from dlio_hpc.errors import ConfigError
from dlio_hpc.layout import Layout
from dlio_hpc.site import Site, check_options
from dlio_hpc.site import resolved as resolved_site
from dlio_hpc.workload import LEVEL, Chunk, Dataset, Workload, shrunk

Generate = Literal["auto", "first", "only", "never"]
Kind = Literal["generate", "warmup", "measure"]

# Part of every fingerprint: raise it when the generator writes other bytes for the same geometry.
_CONTENT = 2
# Steps whose records a rank can hold: 56 bytes each.
_MOST_STEPS = 2**26


class Run(Struct, frozen=True, forbid_unknown_fields=True):
    """One execution of the core. The planned counts are of all epochs and ranks together. darshan: the ranks run with
    the site's libdarshan. tf_profile: TensorFlow's profiler runs in the first ranks.
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


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """One batch job."""

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
    schema: Literal[1] = 1

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def notice(self) -> int:
        """Seconds before its time limit at which the job is told to end; a short job needs its time for itself."""
        return max(min(int(self.site.notice), self.walltime // 4), 1)


class Request(Struct, frozen=True):
    """What the user asks for beyond workload and site; None: what the site says."""

    runs: Path
    archive: Path | None = None
    data: Path | None = None
    nodes: int = 1
    ranks_per_node: int | None = None
    walltime: units.Walltime | None = None
    account: str | None = None
    queue: str | None = None
    job_options: tuple[str, ...] = ()
    repeat: int = 1
    warmup: int = 0
    dataset_size: int | None = None
    generate: Generate = "auto"
    darshan: bool | None = None
    tf_profile: bool = False


def study(workload: Workload, site: Site, request: Request) -> tuple[Plan, ...]:
    """The plans of what one submission starts, in order; with --generate first, a job that writes the dataset comes
    before the one that reads it. What the site allows is not looked at here.
    """
    if request.generate != "first" or not workload.dataset.is_stored:
        return (_make(workload, site, structs.replace(request, generate=_alone(request.generate))),)
    name = job_name(workload.name)
    write, read = structs.replace(request, generate="only"), structs.replace(request, generate="never")
    return _make(workload, site, write, name, f"{name}-generate"), _make(workload, site, read, name, f"{name}-read")


def _check_options(options: tuple[str, ...]) -> None:
    try:
        check_options("--job-option", options)
    except ValueError as fault:
        raise ConfigError(str(fault)) from fault


def _alone(generate: Generate) -> Generate:
    return "auto" if generate == "first" else generate


def make(workload: Workload, site: Site, request: Request) -> Plan:
    """The plan of a study of one job; ConfigError where request, workload and site do not fit together."""
    (made,) = study(workload, site, request)
    return made


def _make(workload: Workload, site: Site, request: Request, study: str | None = None, job: str | None = None) -> Plan:
    ranks_per_node = request.ranks_per_node or site.ranks_per_node
    ranks = request.nodes * ranks_per_node
    walltime = request.walltime or site.walltime
    account, queue = request.account or site.account, request.queue or site.queue
    _check_options(request.job_options)
    _check_profile(workload, request)
    watched, why_not = _watched(workload, site, request)
    notes = [*_notes(workload, request, ranks), *why_not]
    if request.dataset_size is not None:
        workload = shrunk(workload, request.dataset_size, ranks)
    data = data_directory(site, request.data)
    job = job or job_name(workload.name)
    runs = _absolute(request.runs)
    made = Plan(
        version=__version__,
        job=job,
        study=study or job,
        created=units.utc_now(),
        directory=os.path.join(runs, job),
        archive=_absolute(request.archive) if request.archive else os.path.join(runs, "archive"),
        data=data,
        site=resolved_site(site),
        nodes=request.nodes,
        ranks_per_node=ranks_per_node,
        walltime=walltime,
        account=account,
        queue=queue,
        job_options=request.job_options,
        notes=tuple(notes),
        runs=tuple(
            structs.replace(run, darshan=watched)
            for run in _runs(resolved(workload), site.layout, ranks, data, job, request)
        ),
    )
    try:
        document.encode(made)
    except UnicodeEncodeError as fault:
        raise ConfigError(f"{fault.object!r} is no UTF-8 text; rename it") from fault
    return made


def resolved(workload: Workload) -> Workload:
    """The workload with the defaults that depend on other keys written out."""
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
            side_files=tuple(structs.replace(side, size=units.Size(side.file_size)) for side in dataset.side_files),
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
    """The half-open range of an epoch's positions that `rank` reads."""
    if not workload.reader.shard:
        return 0, workload.dataset.samples
    return share(workload.dataset.samples, ranks, (rank + ranks_per_node * workload.reader.shift) % ranks)


def share(count: int, ranks: int, rank: int) -> tuple[int, int]:
    """The half-open range of `count` things that are `rank`'s; sizes differ by one at most."""
    return rank * count // ranks, (rank + 1) * count // ranks


def steps_per_epoch(workload: Workload, ranks: int) -> int:
    """Steps of every rank in every epoch; a rank whose share ends sooner does the last one with a short batch."""
    samples, batch = workload.dataset.samples, workload.reader.batch_size
    readers = ranks if workload.reader.shard else 1
    if workload.reader.drop_last:
        whole = samples // readers // batch
    else:
        largest_share = -(-samples // readers)
        whole = -(-largest_share // batch)
    return min(whole, workload.train.steps or whole)


def samples_per_epoch(workload: Workload, ranks: int) -> int:
    """Samples that all ranks together read in one epoch."""
    most = steps_per_epoch(workload, ranks) * workload.reader.batch_size
    if not workload.reader.shard:
        return ranks * min(workload.dataset.samples, most)
    small, larger = divmod(workload.dataset.samples, ranks)
    return larger * min(small + 1, most) + (ranks - larger) * min(small, most)


def _bytes(workload: Workload, ranks: int, samples: int) -> int:
    """What `samples` in all steps bring from storage, before compression; on the way to memory everything once."""
    if workload.dataset.format == "null":
        return 0
    if workload.reader.load == "memory":
        samples = workload.dataset.samples * (1 if workload.reader.shard else ranks)
    return samples * workload.dataset.sample_bytes


def fingerprint(dataset: Dataset, layout: Layout | None = None) -> str:
    """Twelve hexadecimal digits that two datasets share exactly when one can stand for the other."""
    side_files = [(side.name, side.file_size) for side in dataset.side_files if side.access == "read"]
    stored = structs.replace(dataset, side_files=())
    parts = (_CONTENT, stored, side_files) if layout is None else (_CONTENT, stored, side_files, layout)
    return hashlib.sha256(document.encode(parts)).hexdigest()[:12]


def dataset_name(dataset: Dataset, layout: Layout | None = None) -> str:
    """The dataset's folder below the data directory: its geometry for people, its fingerprint for us."""
    sample = units.format_size(dataset.sample_bytes).replace(" ", "")
    return f"{dataset.format}-{dataset.files}x{dataset.samples_per_file}x{sample}-{fingerprint(dataset, layout)}"


def job_name(workload: str) -> str:
    """A fresh name, fit for a folder and for every batch system: demo-20261121-142501-3fa2c1."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", workload).strip("-.")[:40] or "job"
    return f"{slug}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def _notes(workload: Workload, request: Request, ranks: int) -> list[str]:
    """Where less is done than was asked for."""
    notes = []
    dataset, reader, steps = workload.dataset, workload.reader, workload.train.steps
    if request.dataset_size is not None and request.dataset_size > dataset.size:
        whole = units.format_size(dataset.size)
        notes.append(f"--dataset-size only shrinks: {workload.name} has {whole}; for more, set dataset.files")
    if steps is not None and request.dataset_size is None and steps_per_epoch(workload, ranks) < steps:
        notes.append(
            f"train.steps: the dataset ends after {steps_per_epoch(workload, ranks)} of {steps} steps an epoch"
        )
    batch_bytes = dataset.sample_bytes * reader.batch_size
    if reader.mode == "floor" and (reader.transfer_size or 0) > batch_bytes and reader.access == "independent":
        notes.append(f"reader.transfer_size: a request ends with its batch, after {batch_bytes} bytes")
    total = steps_per_epoch(workload, ranks) * workload.train.epochs
    if workload.checkpoint is not None and total < (workload.checkpoint.every_steps or 0):
        notes.append(f"checkpoint.every_steps: none is written, the run ends after {total} steps")
    if reader.shift and request.nodes == 1:
        notes.append("reader.shift: on one node there is nothing that another one wrote")
    return notes


def _check_profile(workload: Workload, request: Request) -> None:
    if request.tf_profile and workload.reader.loader != "tensorflow":
        raise ConfigError(
            f"--tf-profile: TensorFlow has no part in reader.loader: {workload.reader.loader}; add -S "
            "reader.loader=tensorflow, or leave it out"
        )


def _watched(workload: Workload, site: Site, request: Request) -> tuple[bool, list[str]]:
    """Do runs of it go under Darshan, and what is to be said if not, though there is one."""
    if request.darshan and site.darshan is None:
        raise ConfigError(
            f"--darshan: site {site.name} names no libdarshan.so; name the one that was built for the ranks' MPI: "
            "-S site.darshan=/PATH/lib/libdarshan.so"
        )
    if request.darshan is False or site.darshan is None:
        return False, []
    reader = workload.reader
    if reader.loader == "pytorch" and reader.batches_ahead:
        why = "worker processes read, which Darshan does not see under MPI (fork() even spoils its counters)"
        if request.darshan:
            raise ConfigError(f"--darshan: {why}; set reader.prefetch: 0, or leave Darshan out with --no-darshan")
        return False, [f"Darshan is left out: {why}"]
    has_files = workload.dataset.is_stored or workload.checkpoint is not None or workload.dataset.side_files
    return bool(has_files), []


def data_directory(site: Site, asked: Path | None) -> str:
    """Where datasets go: what was asked for, else what the site says; ConfigError where neither does."""
    directory = asked or (Path(os.path.expandvars(site.data)) if site.data else None)
    if directory is None:
        raise ConfigError(f"site {site.name} has no default data directory; say with --data where datasets go")
    if asked is None and "$" in str(directory):
        raise ConfigError(f"site {site.name} puts datasets into {directory}, which is not set here; say with --data")
    return _absolute(directory)


def _absolute(path: Path) -> str:
    try:
        absolute = os.path.abspath(path)
        return "/" + absolute.lstrip("/")  # two leading slashes may mean something else, to POSIX; here to nobody
    except FileNotFoundError as fault:
        raise ConfigError(f"the working directory was deleted; {path} is relative to it") from fault


def _runs(
    workload: Workload, layout: Layout | None, ranks: int, data: str, job: str, request: Request
) -> tuple[Run, ...]:
    has_files = workload.dataset.is_stored
    if request.generate == "only" and not has_files:
        raise ConfigError("--generate only: the null format has no data to generate")
    kinds: list[tuple[Kind, str]] = []
    if has_files and request.generate != "never":
        kinds.append(("generate", "generate"))
    if request.generate != "only":
        kinds += [("warmup", _numbered("warmup", n, request.warmup)) for n in range(request.warmup)]
        kinds += [("measure", _numbered("measure", n, request.repeat)) for n in range(request.repeat)]
    where = _Where(
        os.path.join(data, dataset_name(workload.dataset, layout)),
        fingerprint(workload.dataset, layout),
        os.path.join(data, f"outputs-{job}"),
    )
    runs = (_run(number, kind, name, workload, ranks, where) for number, (kind, name) in enumerate(kinds))
    return tuple(structs.replace(run, tf_profile=request.tf_profile and run.kind != "generate") for run in runs)


class _Where(NamedTuple):
    """What is the same for all runs of a job on one dataset."""

    dataset: str
    fingerprint: str
    outputs: str


def _numbered(name: str, index: int, count: int) -> str:
    return name if count == 1 else f"{name}-{index + 1}"


def _run(number: int, kind: Kind, name: str, workload: Workload, ranks: int, where: _Where) -> Run:
    steps = steps_per_epoch(workload, ranks)
    if steps == 0:
        raise ConfigError(
            f"reader.drop_last: {ranks} ranks x batch {workload.reader.batch_size} exceed the dataset's "
            f"{workload.dataset.samples} samples, nothing is left to read; use fewer ranks or a smaller batch"
        )
    if kind != "generate" and steps * workload.train.epochs > _MOST_STEPS:
        raise ConfigError(
            f"train: {workload.train.epochs} epochs of {steps} steps are more than {_MOST_STEPS}, each of which is "
            "recorded; lower train.epochs or train.steps, or raise reader.batch_size"
        )
    dataset = workload.dataset
    samples = dataset.samples if kind == "generate" else samples_per_epoch(workload, ranks) * workload.train.epochs
    return Run(
        number=number,
        name=name,
        kind=kind,
        workload=workload,
        dataset=where.dataset,
        fingerprint=where.fingerprint,
        outputs=where.outputs,
        steps_per_epoch=0 if kind == "generate" else steps,
        samples=samples,
        bytes=dataset.samples * dataset.sample_bytes * (dataset.format != "null")
        if kind == "generate"
        else _bytes(workload, ranks, samples),
    )
