"""Conversion of a point of a study to a run of a job: the dataset, steps, samples and bytes of the run, and notes for
the user.
"""

import os
from collections.abc import Iterator

from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import reader_keys
from dlio_hpc.config.workload import Draft, Workload
from dlio_hpc.dataset import checkpoint_files, fingerprints, planned_bytes, rank_shares
from dlio_hpc.plan import darshan_needs, plan
from dlio_hpc.plan.plan import Kind, Run
from dlio_hpc.plan.study import Point, Study

# Maximum number of steps in a run. Each rank records 56 bytes per step.
_MOST_STEPS = 2**26


def of_point(study: Study, point: Point, kind: Kind, name: str, job: str) -> Run:
    """Return a run of the point. kind: generate, warmup or measure. name: name of the run. job: name of the job. The
    field `number` of the run is 0 until the run becomes part of a job. Raise ConfigError if the run would read nothing,
    or would have too many steps.
    """
    workload, ranks = plan.resolved(_workload(study, point, kind)), point.ranks
    dataset, epochs = workload.dataset, workload.train.epochs
    steps = rank_shares.steps_per_epoch(workload, ranks)
    _check_steps(point, steps, kind)
    if kind == "measure":
        _check_checkpoints(workload, steps * epochs)
    generates = kind == "generate"
    folder = point.data or study.data
    samples = dataset.samples if generates else rank_shares.samples_per_epoch(workload, ranks) * epochs
    size = dataset.size * dataset.facts.holds_data
    is_existing = dataset.existing is not None
    layout = None if is_existing else point.layout
    return Run(
        number=0,
        name=name,
        kind=kind,
        workload=workload,
        dataset=folder if is_existing else os.path.join(folder, fingerprints.folder_name(dataset, layout)),
        fingerprint=fingerprints.of(dataset, layout),
        outputs=os.path.join(study.runs if is_existing else folder, f"outputs-{job}{_of_load(point)}"),
        steps_per_epoch=0 if generates else steps,
        samples=samples,
        bytes=size if generates else planned_bytes.planned(workload, ranks, samples),
        darshan=watched(study, point)[0],
        tf_profile=study.tf_profile and not generates,
        layout=layout,
        evaluation=None if generates else _evaluation(study, point, kind, name, job),
        load=None if generates else point.load,
    )


def _of_load(point: Point) -> str:
    """Return the end of the name of the folder of outputs. Loads that run at the same time have a folder each."""
    return "" if point.load is None else f".node{point.load.first_node}-rank{point.load.first_rank}"


def of_evaluation(point: Point) -> Point | None:
    """Return the point with the workload of its evaluation passes, or None without passes."""
    workload = point.workload.of_evaluation
    return None if workload is None else structs.replace(point, workload=workload)


def _evaluation(study: Study, point: Point, kind: Kind, name: str, job: str) -> Run | None:
    passes = of_evaluation(point)
    return None if passes is None else of_point(study, passes, kind, name, job)


def _workload(study: Study, point: Point, kind: Kind) -> Workload:
    """Return the workload of the point. For a warm-up run, some keys have the values that the study sets in
    `warmup_set`.
    """
    if kind != "warmup" or not study.warmup_set:
        return point.workload
    return Draft(serialization.plain(point.workload), "warmup_set").with_settings(study.warmup_set)


def _check_steps(point: Point, steps: int, kind: Kind) -> None:
    workload = point.workload
    if steps == 0:
        raise ConfigError(
            f"reader.drop_last: {point.ranks} ranks x batch {workload.reader.batch_size} exceed the dataset's "
            f"{workload.dataset.samples} samples, so nothing would be read; use fewer ranks or a smaller batch"
        )
    if kind != "generate" and steps * workload.train.epochs > _MOST_STEPS:
        raise ConfigError(
            f"train: {workload.train.epochs} epochs of {steps} steps are more than {_MOST_STEPS}, each of which is "
            "recorded; lower train.epochs or train.steps, or raise reader.batch_size"
        )


def _check_checkpoints(workload: Workload, steps: int) -> None:
    keys = workload.checkpoint
    if keys is not None and keys.reads and steps < (keys.every_steps or 0):
        raise ConfigError(
            f"checkpoint.reads: no checkpoint can be read, because the run ends after {steps} steps and the first "
            f"one is written after {keys.every_steps}; lower checkpoint.every_steps, use fewer ranks, or set "
            "checkpoint.reads=0"
        )


def notes(study: Study, point: Point) -> Iterator[str]:
    """Yield a note for each way in which a run of the point differs from the request, such as fewer steps or no
    checkpoint. Also yield a note for each side effect of a setting.
    """
    workload = point.workload
    dataset, reader, steps = workload.dataset, plan.resolved(workload).reader, workload.train.steps
    per_epoch = rank_shares.steps_per_epoch(workload, point.ranks)
    if steps is not None and per_epoch < steps:
        yield f"train.steps: the dataset has samples for only {per_epoch} of the {steps} steps per epoch"
    batch_bytes = dataset.sample_bytes * reader.batch_size
    asked = workload.reader.transfer_size or 0
    if reader.mode == "posix" and asked > batch_bytes and reader.access == "independent":
        yield (
            f"reader.transfer_size: requests have at most {batch_bytes} bytes, because a request does not reach beyond "
            "its batch"
        )
    total = per_epoch * workload.train.epochs
    if workload.checkpoint is not None and total < (workload.checkpoint.every_steps or 0):
        yield f"checkpoint.every_steps: no checkpoint is written, because the run ends after {total} steps"
    yield from _checkpoint_notes(workload, point)
    yield from _shares_notes(workload, point.ranks)
    if reader.verify_content == "all":
        yield (
            "with reader.verify_content=all, each batch is compared with the generated content after its step, while "
            "reading ahead continues; wall time, samples/s and waits therefore differ from training"
        )
    if reader.reorder_tasks and point.nodes == 1:
        yield "reader.reorder_tasks: no effect on a single node, because no other node wrote data"
    if (why_not := watched(study, point)[1]) is not None:
        yield why_not


def _checkpoint_notes(workload: Workload, point: Point) -> Iterator[str]:
    """Yield a note if the ranks write only a part of a model, or if some ranks write nothing. Also yield a note if
    checkpoints are read by the node that wrote them, or more than once.
    """
    checkpoint = workload.checkpoint
    if checkpoint is None:
        return
    state = checkpoint.state
    if state is not None and point.ranks < state.parallelism.ranks:
        whole = checkpoint_files.size(checkpoint, state.parallelism.ranks)
        size = units.format_size(checkpoint_files.size(checkpoint, point.ranks))
        yield (
            f"checkpoint.model: {point.ranks} of the {state.parallelism.ranks} ranks of checkpoint.parallelism write "
            f"their part of a checkpoint, {size} of {units.format_size(whole)}"
        )
    if state is not None and point.ranks > state.parallelism.ranks:
        idle = point.ranks - state.parallelism.ranks
        yield f"checkpoint.model: {idle} of {point.ranks} ranks write nothing; raise checkpoint.parallelism.data"
    if checkpoint.reorder and checkpoint.reorder % point.nodes == 0:
        yield (
            f"checkpoint.reorder: no effect on {units.counted(point.nodes, 'node')}, because each rank reads "
            "its own files"
        )
    if checkpoint.reads > checkpoint.keep:
        yield (
            f"checkpoint.reads: {checkpoint.reads} reads of "
            f"{units.counted(checkpoint.keep, 'stored checkpoint')}: some are read "
            "again, from memory if they fit; raise checkpoint.keep"
        )


def _shares_notes(workload: Workload, ranks: int) -> Iterator[str]:
    """Yield a note if some ranks read more files than others, and a note if runs read considerably more than the
    bytes of the samples that they use.
    """
    dataset, reader = workload.dataset, workload.reader
    fewer, rest = divmod(dataset.files, ranks)
    is_uneven = rest and (fewer + 1) * ranks > planned_bytes.SPARE * dataset.files
    if is_uneven and reader_keys.shares_files(dataset, reader, ranks):
        yield (
            f"dataset.files: {rest} of {ranks} ranks read {fewer + 1} of the {dataset.files} files, the other ranks "
            f"read {fewer} and wait at the end of an epoch; use a multiple of the number of ranks"
        )
    times = planned_bytes.row_group_factor(workload)
    if times > planned_bytes.SPARE:
        group = reader_keys.sample_bytes_read(dataset, reader) * dataset.row_group_samples
        yield (
            f"up to about {times:.3g} x the bytes of the samples are read: pyarrow reads whole row groups of "
            f"{units.format_size(group)}; it reads a row group again for another worker, or after a sample of another "
            "row group; lower dataset.row_group, or set reader.mode=posix"
        )
    times = planned_bytes.factor(workload, ranks)
    if times > planned_bytes.SPARE and reader.shuffle.samples:
        yield (
            f"{times:.3g} x the bytes of the samples are read: with shuffled samples, a rank reads whole files, even "
            f"if it needs only some of their samples; use at least {ranks} files (now {dataset.files}) and whole "
            "epochs (train.steps=null)"
        )
    elif times > planned_bytes.SPARE and dataset.is_packed:
        yield (
            f"{times:.3g} x the bytes of the samples are read: ranks that share a compressed file read it from its "
            f"beginning; use at least {ranks} files (now {dataset.files}) and whole epochs (train.steps=null)"
        )
    elif times > planned_bytes.SPARE:
        request = units.format_size(workload.request_size or 0)
        yield (
            f"{times:.3g} x the bytes of the samples are read: requests of {request} reach beyond the last record that "
            "a rank needs; lower reader.transfer_size, or use more samples for each rank"
        )


def check(study: Study, point: Point) -> None:
    """Raise ConfigError if the study requests Darshan or TensorFlow's profiler, but the reader or the site does not
    support it.
    """
    loader = point.workload.reader.loader
    if study.tf_profile and not point.workload.reads_samples:
        raise ConfigError(f"--tf-profile: {point.workload.kind_in_words} reads no samples; omit --tf-profile")
    if study.tf_profile and loader != "tensorflow":
        raise ConfigError(
            f"--tf-profile: reader.loader={loader} does not use TensorFlow; add -S reader.loader=tensorflow, or omit "
            "--tf-profile"
        )
    watched(study, point)


def watched(study: Study, point: Point) -> tuple[bool, str | None]:
    """Return whether Darshan records the runs of the point, and a note. The note gives the reason why Darshan does not
    record the runs although the site has Darshan; otherwise, the note is None. Raise ConfigError if Darshan is
    requested but not possible.
    """
    site = study.site
    if study.darshan and site.darshan is None:
        raise ConfigError(
            f"--darshan: site {site.name} sets no libdarshan.so; set the library that was built for the ranks' MPI: "
            "-S site.darshan=/PATH/lib/libdarshan.so"
        )
    if study.darshan is False or site.darshan is None:
        return False, None
    if point.load is not None:
        return False, "Darshan is disabled: one log would contain the requests of all loads of a mix"
    if (hidden := darshan_needs.hidden(site, point.workload, point.ranks)) is not None:
        why, remedy = hidden
        if study.darshan:
            raise ConfigError(f"--darshan: {why}; set {remedy}, or disable Darshan with --no-darshan")
        return False, f"Darshan is disabled: {why}; to enable it: {remedy}"
    workload = point.workload
    has_files = workload.dataset.is_stored or workload.checkpoint is not None or workload.dataset.auxiliary_files
    return bool(has_files), None
