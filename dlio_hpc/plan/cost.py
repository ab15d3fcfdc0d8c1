"""Expected cost of runs and jobs: time, bytes read and written, storage space. Times are computed from the rates in the
site profile.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.config.metadata_keys import MetadataKeys
from dlio_hpc.config.site import Rates, Site
from dlio_hpc.dataset import checkpoint_files, dataset_folder, dataset_space, kv_requests, kv_tiers, stored_parts
from dlio_hpc.files import filesystem
from dlio_hpc.plan.plan import Plan, Run


class Cost(NamedTuple):
    """Cost of a run. seconds: expected duration. bytes_read, bytes_written: planned bytes. files: number of files that
    the run writes if it generates a dataset; 0 for other runs.
    """

    seconds: float
    bytes_read: int
    bytes_written: int
    files: int = 0


class JobCost(Struct, frozen=True):
    """Cost of a batch job. space: bytes of storage that the job adds: its new datasets and one checkpoint. files:
    number of files of the new datasets. node_hours: expected node-hours. limit_node_hours: node-hours if the job uses
    its whole walltime.
    """

    job: str
    nodes: int
    runs: int
    walltime_s: int
    expected_s: float
    node_hours: float
    limit_node_hours: float
    bytes_read: int
    bytes_written: int
    space: int
    files: int


def of_run(run: Run, nodes: int, ranks: int, rates: Rates) -> Cost:
    """Return the cost of a run on `nodes` nodes. The duration is the sum of the times for launching the ranks, for
    reading or preprocessing (whichever takes longer), for writing, and for computing.
    """
    if run.kind == "generate":
        written, files = _needs(run)
        return Cost(rates.launch + written / (nodes * rates.write), 0, written, files)
    workload = run.workload
    saved = _checkpoints(run) * _checkpoint(run, ranks)
    read = run.bytes + _auxiliary_bytes(run, ranks, "read") + _read_again(run, ranks, saved)
    written = _auxiliary_bytes(run, ranks, "write") + saved
    if workload.inference is not None:
        of_blocks = kv_tiers.expected(workload.inference, ranks)
        times = workload.train.epochs
        preparing_s = times * of_blocks.prepared / (nodes * rates.write)
        return Cost(
            rates.launch + computing(run) + preparing_s,
            times * of_blocks.read,
            times * (of_blocks.prepared + of_blocks.written),
        )
    preparing = run.samples / ranks * workload.reader.preprocess_time / workload.reader.preprocess_threads
    if workload.reader.load == "memory":
        preparing /= workload.train.epochs
    reading, writing = max(read / (nodes * rates.read), preparing), written / (nodes * rates.write)
    cost = Cost(rates.launch + computing(run) + reading + writing, read, written)
    if run.evaluation is None:
        return cost
    passes = of_run(run.evaluation, nodes, ranks, rates)
    return cost._replace(
        seconds=cost.seconds + passes.seconds - rates.launch, bytes_read=cost.bytes_read + passes.bytes_read
    )


def is_probed(site: Site, run: Run) -> bool:
    """Return whether the ranks read the run's dataset in a plain loop before the run (site.probe)."""
    is_single = run.kind == "measure" and run.load is None
    return site.probe is not None and is_single and run.workload.dataset.is_stored


def probing(site: Site, run: Run) -> float:
    """Return the seconds of the probe before a run: a launch, and two patterns by the ranks and by fio."""
    return site.expected_rates.launch + 4 * (site.probe or 0.0) if is_probed(site, run) else 0.0


def computing(run: Run) -> float:
    """Return the seconds of emulated computation of a run. For an inference workload, they are the time in which
    requests arrive.
    """
    if run.kind == "generate":
        return 0.0
    if run.load is not None and run.load.time_s is not None:
        return run.load.time_s
    if run.workload.inference is not None:
        return run.workload.train.epochs * run.workload.inference.time
    compute = run.workload.compute
    return run.steps_per_epoch * run.workload.train.epochs * (compute.interval or compute.time.mean)


def of_job(plan: Plan, begun: set[str]) -> JobCost:
    """Return the cost of a job. begun: folders of datasets that earlier jobs generate. The cost of generating these
    datasets is not counted again. The function adds to `begun` the folders that this job generates.
    """
    costs, space, files = [], 0, 0
    seconds: dict[int, float] = {}  # of each launch, by its first run
    kept: dict[int, int] = {}
    for run in plan.runs:
        nodes, ranks = _scale(plan, run)
        launch = run.number if run.launch is None else run.launch
        cost = of_run(run, nodes, ranks, plan.site.expected_rates)
        if run.kind == "generate" and run.dataset in begun:
            cost = Cost(plan.site.expected_rates.launch, 0, 0)
        elif run.kind == "generate":
            begun.add(run.dataset)
            space, files = space + cost.bytes_written, files + cost.files
        costs.append(cost)
        seconds[launch] = max(seconds.get(launch, 0.0), cost.seconds)
        kept[launch] = kept.get(launch, 0) + _kept(run) * _checkpoint(run, ranks)
    expected = sum(seconds.values()) + sum(probing(plan.site, run) for run in plan.runs)
    space += max(kept.values(), default=0)
    return JobCost(
        plan.job,
        plan.nodes,
        len(plan.runs),
        int(plan.walltime),
        expected,
        plan.nodes * min(expected, plan.walltime) / 3600,
        plan.nodes * plan.walltime / 3600,
        sum(cost.bytes_read for cost in costs),
        sum(cost.bytes_written for cost in costs),
        space,
        files,
    )


def _scale(plan: Plan, run: Run) -> tuple[int, int]:
    """Return the numbers of nodes and of ranks of a run. A load of a mix has a part of those of the job."""
    load = run.load
    return (plan.nodes, plan.ranks) if load is None else (load.nodes, load.nodes * load.ranks_per_node)


def of_jobs(plans: Iterable[Plan]) -> list[JobCost]:
    """Return the cost of each of several jobs that run one after the other. The cost of a dataset is part of the cost
    of the first job that generates it.
    """
    begun: set[str] = set()
    return [of_job(plan, begun) for plan in plans]


def _needs(run: Run) -> tuple[int, int]:
    """Return how many bytes and how many files are needed to generate the run's dataset. If the folder of the dataset
    cannot be read, assume that the whole dataset must be generated.
    """
    try:
        needs = dataset_space.needs(run.stored)
    except DlioError:
        return run.bytes, stored_parts.total(run.workload.dataset)
    dataset = run.workload.dataset
    files = dataset_folder.file_count(dataset) + len(dataset_folder.sides(dataset)) + 1  # with the fingerprint file
    return int(needs.size), min(needs.files, files)  # needs.files includes folders and files that do not stay


def _auxiliary_bytes(run: Run, ranks: int, access: str) -> int:
    """Return the bytes that all ranks together transfer from or to auxiliary files in a run. access: "read" for the
    bytes that are read, "write" for the bytes that are written.
    """
    train = run.workload.train
    times = {"start": 1, "end": 1, "epoch": train.epochs, "step": run.steps_per_epoch * train.epochs}
    return sum(
        side.bytes * side.count * times[side.when] * (ranks if side.by == "all" else 1)
        for side in run.workload.dataset.auxiliary_files
        if side.access == access
    )


def _checkpoints(run: Run) -> int:
    """Return the number of checkpoints that a run writes."""
    checkpoint, epochs = run.workload.checkpoint, run.workload.train.epochs
    if checkpoint is None:
        return 0
    return epochs if checkpoint.every_steps is None else run.steps_per_epoch * epochs // checkpoint.every_steps


def _kept(run: Run) -> int:
    """Return the number of checkpoints that a run stores at the same time."""
    keys = run.workload.checkpoint
    return 0 if keys is None else min(keys.keep, _checkpoints(run))


def metadata_needs(keys: MetadataKeys, epochs: int, ranks: int) -> tuple[float, int]:
    """Return the bytes, and the number of files and directories, that a metadata workload has at most at the same time.
    A phase that a time limit ends leaves some files behind.
    """
    made, phases = keys.files * ranks, set(keys.order)
    is_whole = keys.time_limit is None
    there = most = 0
    for phase in keys.order:
        if phase in ("create", "mkdir"):
            there += made
        elif phase in ("unlink", "rmdir") and is_whole:
            there -= made
        most = max(most, there)
    tops = (ranks if keys.folders == "own" else 1) * epochs
    folders = tops * sum(keys.width**level for level in range(keys.depth + 1))
    files = made * ("create" in phases) * (1 if "unlink" in phases and is_whole else epochs)
    return files * keys.bytes * ("write" in phases), most + there * (epochs - 1) + folders


def _require_inodes(run: Run, keys: MetadataKeys, ranks: int) -> str:
    """Return a message that states how many files and directories a metadata workload has at most at the same time, and
    how many inodes are free. Raise ConfigError if there are not enough inodes, or not enough space for the files.
    """
    size, wanted = metadata_needs(keys, run.workload.train.epochs, ranks)
    folder = filesystem.existing(Path(run.outputs))
    free = filesystem.free(folder)
    if free < size:
        raise ConfigError(
            f"the files of the metadata workload need {units.format_size(size)}, but {folder} has "
            f"{units.format_size(free)} free; choose another --data, or fewer files (metadata.files)"
        )
    left = filesystem.free_inodes(folder)
    if left is not None and left < wanted:
        raise ConfigError(
            f"the metadata workload makes {wanted:,} files and directories, but {folder} has {left:,} inodes left; "
            "choose another --data, or fewer files (metadata.files)"
        )
    return f"{wanted:,} inodes needed, {'unlimited' if left is None else f'{left:,}'} free"


def _require_space_of_blocks(run: Run, keys: InferenceKeys, ranks: int) -> str:
    """Return a message that states how much space the blocks of an inference workload need at most, and how much is
    free. Raise ConfigError if they do not fit, or if LMCache would not write them with O_DIRECT. The blocks of an epoch
    are removed before the next epoch.
    """
    folder = filesystem.existing(Path(run.outputs))
    unit = filesystem.request_block(folder)
    if keys.direct and keys.file_layout.startswith("lmcache") and keys.block_bytes % unit:
        raise ConfigError(
            f"{folder}: LMCache uses O_DIRECT only for blocks of a multiple of {unit:,} bytes (f_bsize of statvfs), "
            f"and a block has {keys.block_bytes:,}; change inference.block_tokens, or set inference.direct=false"
        )
    if keys.search is not None:
        most = structs.replace(keys, users=keys.most_users, search=None)
        kv_tiers.require(most, kv_requests.of_rank(most, ranks, 0))
    free, wanted = filesystem.free(folder), kv_requests.most_bytes(keys, ranks)
    if free < wanted:
        raise ConfigError(
            f"the blocks of the KV caches need up to {units.format_size(wanted)}, but {folder} has "
            f"{units.format_size(free)} free; choose another --data, set a smaller inference.capacity, or fewer "
            "inference.users"
        )
    return f"up to {units.format_size(wanted)} needed, {units.format_size(free)} free"


def require_space(run: Run, ranks: int) -> str:
    """Return a message that states how much space the checkpoints that a run stores need, and how much is free. The
    message is empty if the run has no checkpoint.model, because other checkpoints are small and are not checked.
    Raise ConfigError if the checkpoints do not fit on their file system. For a metadata workload, inodes are checked,
    too. For an inference workload, the space of the blocks is checked.
    """
    checkpoint = run.workload.checkpoint
    if run.workload.metadata is not None:
        return _require_inodes(run, run.workload.metadata, ranks)
    if run.workload.inference is not None:
        return _require_space_of_blocks(run, run.workload.inference, ranks)
    if checkpoint is None or checkpoint.model is None:
        return ""
    folder = filesystem.existing(Path(run.outputs))
    free, wanted = filesystem.free(folder), _kept(run) * _checkpoint(run, ranks)
    if free < wanted:
        raise ConfigError(
            f"{units.counted(_kept(run), 'checkpoint')} need {units.format_size(wanted)}, but {folder} has "
            f"{units.format_size(free)} free; choose another --data, a smaller --dataset-size or checkpoint.keep"
        )
    return f"{units.format_size(wanted)} needed, {units.format_size(free)} free"


def _read_again(run: Run, ranks: int, saved: int) -> int:
    """Return the bytes of checkpoints that a run reads. saved: bytes of the checkpoints that it writes."""
    keys = run.workload.checkpoint
    if keys is None:
        return 0
    return saved * keys.read_back + keys.reads * (_kept(run) > 0) * _checkpoint(run, ranks)


def _checkpoint(run: Run, ranks: int) -> int:
    """Return the bytes on storage of one checkpoint, summed over all ranks."""
    checkpoint = run.workload.checkpoint
    return 0 if checkpoint is None else checkpoint_files.space(checkpoint, ranks)
