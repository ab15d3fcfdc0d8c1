"""Notes on a job, such as site limits that the job comes close to. The notes are stored in plan.json and shown with the
plan, its cost and its results.
"""

import math
import os
from collections.abc import Iterator, Sequence

from dlio_hpc.base import redaction, units
from dlio_hpc.config import image_keys
from dlio_hpc.config.checkpoint_keys import USUAL_REQUEST, Checkpoint, StatePrecision
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset.rank_shares import share
from dlio_hpc.plan import darshan_needs, run_plan, site_limits
from dlio_hpc.plan.plan import Plan
from dlio_hpc.plan.study import Point, Study

# Maximum number of points that a note names.
_NAMED = 3
# Share of the files with another picture than dataset.image from which on a note says so.
_MANY_PICTURES = 0.001
# Memory in bytes of a large node, where the memory of the nodes is not known.
_LARGE_NODE = 512 << 30
# Share of the slots of an inference workload above which requests often wait for one, whatever the storage.
_BUSY = 0.7


def of_study(study: Study, points: Sequence[Point]) -> Iterator[str]:
    """Yield notes on the study and on these points. If a note does not concern all points of the study, it names the
    points that it concerns.
    """
    yield from study.notes
    concerned: dict[str, list[Point]] = {}
    for point in points:
        for note in run_plan.notes(study, point):
            concerned.setdefault(note, []).append(point)
    for note, some in concerned.items():
        yield note if len(some) == len(study.points) else f"{note} ({_titles(study, some)})"


def _titles(study: Study, points: Sequence[Point]) -> str:
    titles = "; ".join(study.title(point) for point in points[:_NAMED])
    return f"{titles}; and {len(points) - _NAMED} more" if len(points) > _NAMED else titles


def of_plan(plan: Plan) -> Iterator[str]:
    """Yield notes on a job: site limits that the job comes close to, options that have no effect, and Darshan traces
    that will be truncated.
    """
    yield from site_limits.notes(plan)
    yield from _memory(plan)
    yield from _without_effect(plan)
    yield from _cut_sizes(plan)
    yield from _other_pictures(plan)
    if secrets := secret_variables(plan):
        yield (
            f"{', '.join(secrets)} of the site profile may be secret: plan.json, job.sh and the archive contain the "
            "value, and only you can read these files; it is safer if a line of site.setup reads the value from a file"
        )
    yield from (note for run in plan.runs if run.darshan and (note := darshan_needs.note(plan, run)) is not None)


def secret_variables(plan: Plan) -> list[str]:
    """Return the names of the variables that the site profile sets and whose values may be secret."""
    given = {**plan.site.environment, **plan.site.rank_environment}
    return sorted(name for name, value in given.items() if value and redaction.is_secret(name))


def _memory(plan: Plan) -> Iterator[str]:
    """Yield a note if the batches that the ranks of a node hold may not fit into the memory of the node."""
    need = max((_batches_bytes(run.workload) for run in plan.runs if run.kind != "generate"), default=0)
    need *= plan.ranks_per_node
    is_local = plan.site.scheduler == "local"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if is_local else _LARGE_NODE
    if need > memory:
        has = f"but this computer has {units.format_size(memory)}" if is_local else "which few nodes have"
        yield (
            f"the batches that the ranks of a node hold take {units.format_size(need)} of memory, {has}; lower "
            "reader.batch_size, reader.prefetch, reader.resize or --ppn"
        )


def _batches_bytes(workload: Workload) -> int:
    """Return the bytes of the batches that a rank holds at the same time."""
    reader = workload.reader
    is_stored = workload.dataset.facts.holds_data
    return is_stored * reader.batch_size * (reader.batches_ahead + 1) * workload.row_bytes


def _cut_sizes(plan: Plan) -> Iterator[str]:
    """Yield a note if sample sizes are so spread that many are cut: a size is from 1 byte (for images, 1 KiB) to twice
    the mean.
    """
    least_of = {run.workload.dataset.sample: run.workload.dataset.facts.least for run in plan.runs}
    for sample, least in least_of.items():
        if sample.stdev and sample.size - least < 2 * sample.stdev - 1:
            limit = (sample.size - least) / sample.stdev
            outside = math.erfc(limit / math.sqrt(2))
            density = math.exp(-(limit**2) / 2) / math.sqrt(2 * math.pi)
            variance = 1 - outside - 2 * limit * density + limit**2 * outside  # of a normal distribution that is cut
            largest = units.format_size(2 * sample.size - least)
            yield (
                f"dataset.sample.stdev={units.format_size(sample.stdev)}: sizes are at least "
                f"{units.format_size(least)} and at most {largest}, so {100 * outside:.0f} % of the samples have one "
                f"of these sizes, and the standard deviation is {units.format_size(sample.stdev * math.sqrt(variance))}"
            )


def _other_pictures(plan: Plan) -> Iterator[str]:
    """Yield a note if sizes vary so much that the picture of `dataset.image` does not fit into all files."""
    for dataset in dict.fromkeys(run.workload.dataset for run in plan.runs if run.workload.dataset.image is not None):
        image, stdev = dataset.image, dataset.sample.stdev
        if image is None or not stdev:
            continue
        least, most = image_keys.bounds(dataset.format, image)
        below, above = (dataset.sample.size - least) / stdev, (most - dataset.sample.size) / stdev
        share = (math.erfc(below / math.sqrt(2)) + math.erfc(above / math.sqrt(2))) / 2
        if share > _MANY_PICTURES:
            yield (
                f"dataset.image: about {100 * share:.2g} % of the files are smaller than {units.format_size(least)} or "
                f"larger than {units.format_size(most)}, so {image.width} x {image.height} pixels do not fit; these "
                "files hold a square"
            )


def _without_effect(plan: Plan) -> Iterator[str]:
    given = {"--account": plan.account, "--queue": plan.queue, "--job-option": plan.job_options}
    ignored = [option for option, value in given.items() if value]
    if plan.site.scheduler == "local" and ignored:
        yield f"{', '.join(ignored)}: no effect, because site {plan.site.name} has no batch system"
    if plan.site.depth is not None and plan.site.scheduler == "local" and plan.site.launcher.kind == "mpiexec":
        yield "site.depth: no effect with launcher.kind=mpiexec, which does not bind ranks to CPUs"
    yield from dict.fromkeys(note for run in plan.runs for note in _unused_keys(run.workload, plan.nodes, plan.ranks))


def _unused_keys(workload: Workload, nodes: int, ranks: int) -> Iterator[str]:
    """Yield a note for each key of a workload that is set, but has no effect with the other keys."""
    reader, keys = workload.reader, workload.metadata
    samples = workload.dataset.samples
    if workload.reads_samples and samples < reader.batch_size and not reader.drop_last:
        yield (
            f"reader.batch_size={reader.batch_size}: the dataset has only {units.counted(samples, 'sample')}, so no "
            "batch is full"
        )
    if reader.drop_cache and not workload.reads_samples:
        yield f"reader.drop_cache: no effect, because {workload.kind_in_words} reads no samples"
    yield from _unused_dataset_keys(workload.dataset)
    has_preprocessing = bool(reader.preprocess_time)
    if reader.preprocess_threads > 1 and reader.loader == "native" and not has_preprocessing:
        yield "reader.preprocess_threads: no effect without reader.preprocess_time, the time of a sample"
    order = reader.shuffle
    if not (order.files or order.samples) and (order.seed or not order.reseed):
        yield "reader.shuffle.seed, reader.shuffle.reseed: no effect without reader.shuffle.files or shuffle.samples"
    if workload.compute.mode != "sleep" and not (workload.compute.time.mean or has_preprocessing):
        yield f"compute.mode={workload.compute.mode}: no effect without compute.time or reader.preprocess_time"
    if workload.inference is not None:
        yield from _unused_inference_keys(workload.inference, ranks)
    if keys is not None and keys.fsync and "write" not in keys.order:
        yield "metadata.fsync: no effect without the phase write, which needs metadata.bytes"
    if keys is not None and keys.shift_nodes > 1 and nodes == 1:
        yield "metadata.shift_nodes: no effect on a single node, where each rank works on its own files"
    if workload.checkpoint is not None:
        yield from _unused_checkpoint_keys(workload.checkpoint)


def _unused_dataset_keys(dataset: Dataset) -> Iterator[str]:
    """Yield a note for each key of a dataset that has another effect than its value suggests."""
    stdev, step = dataset.sample.stdev, dataset.facts.size_step
    if dataset.existing is None and stdev is not None and stdev < step:
        yield (
            f"dataset.sample.stdev={stdev}: sizes in format={dataset.format} change in steps of {step} bytes, so most "
            "samples have the same size"
        )
    if dataset.blend is not None and dataset.files % len(dataset.blend):
        groups = [share(dataset.files, len(dataset.blend), group) for group in range(len(dataset.blend))]
        sizes = ", ".join(str(end - first) for first, end in groups)
        yield f"dataset.blend: {dataset.files} files cannot be divided evenly; the weights stand for {sizes} files"
    if dataset.scan is not None and dataset.scan.gaps:
        yield (
            f"existing dataset: {units.counted(dataset.scan.gaps, 'file')} of chunks are missing; they hold the fill "
            "value, and nothing is read for them, so the run reads fewer bytes than its samples have"
        )
    if dataset.existing is not None and dataset.joins_documents:
        tokens = dataset.sample.size // dataset.sample.item_bytes
        yield (
            f"dataset.existing.sample_bytes: a sample has {tokens:,} tokens of {dataset.sample.array_dtype}, for "
            f"sequences of {tokens - 1:,} tokens"
        )


def _unused_inference_keys(keys: InferenceKeys, ranks: int) -> Iterator[str]:
    if keys.users < ranks:
        yield (
            f"inference.users={keys.users}: fewer users than ranks, so {units.counted(ranks - keys.users, 'rank')} of "
            f"{ranks} have no requests"
        )
    shares = keys.trace is not None and keys.trace.has_prefixes
    if keys.turns == 1 and keys.system_prompt < keys.block_tokens and not shares:
        yield (
            "inference: no request has a history of a full block, so nothing is read from storage; set "
            "inference.turns, or a longer inference.system_prompt"
        )
    if (busy := keys.busy_slots) is not None and keys.search is None and busy > _BUSY * keys.slots * ranks:
        yield (
            f"inference: computation alone keeps {busy:.1f} of {keys.slots * ranks} slots busy, so that requests wait "
            "on any storage; set more inference.slots, fewer users, or a shorter decode"
        )
    if keys.memory and keys.memory < keys.block_bytes:
        yield f"inference.memory: no effect, because a block has {units.format_size(keys.block_bytes)}"


def _unused_checkpoint_keys(checkpoint: Checkpoint) -> Iterator[str]:
    is_changed = checkpoint.transfer_size not in (None, USUAL_REQUEST)
    if is_changed and checkpoint.mode != "posix":
        yield (
            f"checkpoint.transfer_size: no effect with checkpoint.mode={checkpoint.mode}: its library sets the size of "
            "requests"
        )
    if checkpoint.model is not None and checkpoint.by != "root":
        yield "checkpoint.by: no effect with checkpoint.model, which determines the ranks that write"
    if checkpoint.model is None and checkpoint.precision != StatePrecision():
        yield "checkpoint.precision: no effect without checkpoint.model"
