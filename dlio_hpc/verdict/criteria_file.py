"""Criteria file: limits and rules for measurements, selected by workload and by number of nodes and ranks."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc.analysis.storage_check import LIMIT
from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped
from dlio_hpc.config.workload import Workload
from dlio_hpc.plan import sweep
from dlio_hpc.plan.study import Study
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict.history_entry import Key

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(gt=0)]
Ratio = Annotated[float, Meta(ge=1)]
Counts = tuple[Positive, ...] | Positive | str | None

_SELECTORS = ("nodes", "ranks_per_node", "ranks")
_ASIDE = {"title", "rule", "workload", *_SELECTORS, "all_runs", "optional", "subset_ranks"}


class Criterion(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits and rules for runs. The keys `workload`, `nodes`, `ranks_per_node` and `ranks` select the runs. A limit
    that is null is not checked.
    """

    title: str = ""
    """Title in reports."""
    rule: str = ""
    """Place of the rule in the rules of a benchmark, shown in reports. Example: Rules.md 3.1.2"""
    workload: tuple[str, ...] | str = "*"
    """Workloads that the criterion applies to; * matches any text. Example: ["unet3d*"]"""
    nodes: Counts = None
    """Numbers of nodes that the criterion applies to; null: any. Example: [32, 64]"""
    ranks_per_node: Counts = None
    """Numbers of ranks per node that the criterion applies to; null: any. Example: [4]"""
    ranks: Counts = None
    """Total numbers of ranks that the criterion applies to; null: any. Example: 8..64*2"""
    all_runs: bool = False
    """true: every run must meet the limits on metrics, and max_spread limits the range of all runs. false: the level
    over the nights must meet the limits, by more than the variation between nights.
    """
    optional: bool | Literal["unmeasured"] = False
    """Outcome if nothing was measured for the criterion, or if a value is unknown. true: the outcome is skipped. false:
    the outcome is fail if nothing was measured, and inconclusive if a value is unknown. unmeasured: the outcome is
    skipped if nothing was measured, and inconclusive if a value is unknown.
    """
    min_samples_per_s: Rate | None = None
    """Minimum samples/s. Example: 1300"""
    min_read_MBps: Rate | None = None
    """Minimum read bandwidth in MB/s (1 MB = 1e6 bytes). Example: 200000"""
    min_au: units.LeastShare | None = None
    """Minimum accelerator utilisation. Example: 90%"""
    min_au_mlperf: units.LeastShare | None = None
    """Minimum accelerator utilisation by MLPerf Storage's formula. Example: 90%"""
    min_checkpoint_write_MBps: Rate | None = None
    """Minimum checkpoint write bandwidth in MB/s. Example: 50000"""
    min_checkpoint_read_MBps: Rate | None = None
    """Minimum checkpoint read bandwidth in MB/s. Example: 50000"""
    max_checkpoint_safe: units.Seconds | None = None
    """Maximum time until a checkpoint is safe: write and fsync of the slowest rank. Example: 60 s"""
    max_restore: units.Seconds | None = None
    """Maximum time to read a checkpoint: open and read of the slowest rank. Example: 60 s"""
    max_restore_gap: units.Seconds | None = None
    """Maximum time from the last write of a checkpoint to the first read. Example: 30 s"""
    max_slowest_rank_ratio: Ratio | None = None
    """Maximum ratio of the slowest rank's time to the median time of all ranks. Example: 1.2"""
    max_read_p99: units.Latency | None = None
    """Upper limit for the 99th percentile of the read latency. Example: 50 ms"""
    min_opens_per_s: Rate | None = None
    """Minimum rate at which all ranks together open sample files. Example: 20000"""
    max_open_p99_s: units.Latency | None = None
    """Upper limit for the 99th percentile of the time to open a sample file. Example: 10 ms"""
    max_metadata_fraction: units.Share | None = None
    """Maximum share of opens and closes in the time of opens, closes and reads. Example: 30%"""
    min_mkdir_per_s: Rate | None = None
    """Minimum rate of mkdir in a metadata workload. Example: 20000"""
    min_create_per_s: Rate | None = None
    """Minimum rate of file creation in a metadata workload. Example: 50000"""
    min_write_per_s: Rate | None = None
    """Minimum rate of open, write and close in a metadata workload. Example: 50000"""
    min_stat_per_s: Rate | None = None
    """Minimum rate of stat in a metadata workload. Example: 200000"""
    min_readdir_per_s: Rate | None = None
    """Minimum rate at which folders are listed in a metadata workload. Example: 100"""
    min_open_read_close_per_s: Rate | None = None
    """Minimum rate of open, read and close in a metadata workload. Example: 100000"""
    min_rename_per_s: Rate | None = None
    """Minimum rate of rename in a metadata workload. Example: 20000"""
    min_unlink_per_s: Rate | None = None
    """Minimum rate of unlink in a metadata workload. Example: 50000"""
    min_rmdir_per_s: Rate | None = None
    """Minimum rate of rmdir in a metadata workload. Example: 20000"""
    min_kv_read_MBps: Rate | None = None
    """Minimum rate in MB/s at which a rank reads blocks of KV caches while reads are in flight. Example: 5000"""
    min_kv_write_MBps: Rate | None = None
    """Minimum rate in MB/s at which a rank writes blocks of KV caches while writes are in flight. Example: 2000"""
    min_kv_tokens_per_s: Rate | None = None
    """Minimum number of tokens that a rank reads from storage in a second in which reads are in flight. Example: 40000
    """
    max_kv_read_p99: units.Latency | None = None
    """Upper limit for the 99th percentile of the time to read a block of a KV cache. Example: 50 ms"""
    max_kv_write_p99: units.Latency | None = None
    """Upper limit for the 99th percentile of the time to write a block of a KV cache. Example: 100 ms"""
    max_ttft_p50: units.Seconds | None = None
    """Upper limit for the median time to the first token. Example: 500 ms"""
    max_ttft_p95: units.Seconds | None = None
    """Upper limit for the 95th percentile of the time to the first token. Example: 2 s"""
    max_ttft_p99: units.Seconds | None = None
    """Upper limit for the 99th percentile of the time to the first token. Example: 4 s"""
    max_ttft_load_share: units.Share | None = None
    """Maximum share of reads from storage in the time to the first token. Example: 50%"""
    min_kv_hit_share: units.LeastShare | None = None
    """Minimum share of tokens of histories and prompts that are read from storage. Example: 50%"""
    min_users_in_time: Rate | None = None
    """Minimum number of users whose requests have their first token within inference.target. Example: 64"""
    max_late_share: units.Share | None = None
    """Maximum share of requests that are late or not served. Example: 1%"""
    max_wait_p99: units.Latency | None = None
    """Upper limit for the 99th percentile of the wait for a batch. Example: 250 ms"""
    min_scaling_efficiency: units.LeastShare | None = None
    """Minimum scaling efficiency. This is samples/s per rank, divided by samples/s per rank of the same measurement on
    the fewest ranks, and among these on the fewest nodes. The value of a job is the median of its runs. The value of
    several jobs is their geometric mean, as in the report of a study. Example: 70%
    """
    max_slowdown: Ratio | None = None
    """Maximum slowdown of a load of a mix by the other loads: samples/s, checkpoint bandwidth, or operations/s of the
    most slowed phase, or bandwidth of reads of KV blocks alone, divided by the same together with the other loads. Runs
    of loads that run alone have no slowdown. Example: 1.5
    """
    max_p99_slowdown: Ratio | None = None
    """Maximum slowdown of the 99th percentile of the read latency of a load of a mix by the other loads; for an
    inference workload, also of the time to the first token. Example: 3
    """
    max_spread: units.Share | None = None
    """Maximum spread of five runs. A spread is the difference between the samples/s of the fastest and of the slowest
    run, divided by the median samples/s. The spread of another number of runs is scaled to five runs. The criterion
    fails if the spread is significantly above the limit. Example: 10%
    """
    min_steps: Positive | None = None
    """Minimum number of steps per epoch. Example: 500"""
    min_dataset_over_memory: Rate | None = None
    """Minimum ratio of the dataset's size to the memory of all nodes. Example: 5"""
    min_checkpoint_over_memory: Rate | None = None
    """Minimum ratio of the bytes of all checkpoints that a node writes in a run to the memory of the node. The check
    uses the node that writes least. A lower ratio is permitted if the checkpoints were read from storage, and not from
    memory. Example: 3
    """
    rank_memory: units.LargeSize | None = None
    """Memory of the accelerator that a rank emulates. A checkpoint must fit into the memory of all ranks. Example: 180
    GB
    """
    model_ranks: bool = False
    """true: all ranks of checkpoint.parallelism write a checkpoint, and the model is the model of the shipped workload,
    not a narrower one. More replicas of the model than in the shipped workload are permitted; fewer are not.
    """
    subset_ranks: Positive | None = None
    """Number of ranks that may write a checkpoint instead of all ranks of the parallelism; each of them writes its
    part. It requires model_ranks=true. Example: 8
    """
    min_ranks_per_node: Positive | None = None
    """Minimum number of ranks on each node. Example: 5"""
    max_prefetch: Natural | None = None
    """Maximum of reader.prefetch. If reader.read_threads is larger, a batch for each of these threads is permitted.
    Example: 2
    """
    warmups: Natural | None = None
    """Exact number of warm-up runs in the first job, and in every other job that has warm-up runs. Example: 1"""
    measured_runs: Positive | None = None
    """Exact number of measured runs. Example: 5"""
    min_measured_runs: Positive | None = None
    """Minimum number of measured runs. Example: 3"""
    gaps: Literal["any", "shorter than a run"] = "any"
    """Permitted length of the gaps between consecutive runs, including warm-up runs."""
    separate_results_fs: bool = False
    """true: the job directory must not be on the same file system as the dataset or the checkpoints."""
    unmodified: tuple[str, ...] = ()
    """Keys of the workload that must have the shipped values. Example: [compute.time]"""
    divisions: dict[str, tuple[str, ...]] = {}
    """Divisions of a benchmark, strictest first. Each lists the keys of the workload that may differ from the shipped
    values, in addition to the keys of the stricter divisions. Example: {closed: [dataset.files], open: []}
    """

    def __post_init__(self) -> None:
        if not self.asked:
            names = ", ".join(name for name in self.__struct_fields__ if name not in _ASIDE)
            raise ValueError(f"no limit or rule is given; give at least one of: {names}")
        for name, keys in {"unmodified": self.unmodified, **self.divisions}.items():
            for key in keys:
                if serialization.kind_at(Workload, key.split(".")) is None:
                    raise ValueError(f"{name}: a workload has no key {key}")
        if self.subset_ranks is not None and not self.model_ranks:
            raise ValueError("subset_ranks needs model_ranks=true")
        limits = (*METRIC_LIMITS, "max_spread")
        if self.all_runs and not set(self.asked) & set(limits):
            raise ValueError(f"all_runs needs a limit on a metric; give at least one of: {', '.join(limits)}")

    @property
    def asked(self) -> dict[str, Any]:
        """Limits and rules that are set, with their values, by YAML key."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _ASIDE}
        return {name: value for name, value in given.items() if _is_asked(value)}

    def selects(self, key: Key) -> bool:
        """Return whether the criterion applies to runs with this measurement key."""
        counts = (key.nodes, key.ranks_per_node, key.nodes * key.ranks_per_node)
        asked = (self.nodes, self.ranks_per_node, self.ranks)
        return is_named(key.workload, self.workload) and all(
            wanted is None or count in _listed(wanted) for count, wanted in zip(counts, asked, strict=True)
        )

    def lacking(self, keys: Sequence[Key]) -> list[str]:
        """Return phrases for the workloads, numbers of nodes and numbers of ranks that the criterion names, but that
        were not measured. keys: measurement keys of all measured runs; keys that the criterion does not select are
        ignored.
        """
        selected = [key for key in keys if self.selects(key)]
        counts = {"nodes": {key.nodes for key in selected}, "ranks_per_node": {key.ranks_per_node for key in selected}}
        counts["ranks"] = {key.nodes * key.ranks_per_node for key in selected}
        lines = [
            f"workload {name}"
            for name in _names(self.workload)
            if not any(is_named(key.workload, name) for key in selected)
        ]
        for name in _SELECTORS:
            wanted = _listed(getattr(self, name)) if getattr(self, name) is not None else ()
            lines += [f"{name.replace('_', ' ')} {count}" for count in wanted if count not in counts[name]]
        return lines

    @property
    def selection(self) -> str:
        """Description of the runs that the criterion applies to; empty if it applies to all runs."""
        return ", ".join(self._selected())

    def _selected(self) -> Iterator[str]:
        if self.workload != "*":
            yield f"workload {' or '.join(_names(self.workload))}"
        for name in _SELECTORS:
            if (wanted := getattr(self, name)) is not None:
                yield f"{name.replace('_', ' ')} {' or '.join(map(str, _listed(wanted)))}"


# Metrics that can be limited, by the YAML key of the limit: min_ and the metric's name, or max_ and the metric's name
# without a final "_s", if the key is older.
METRIC_LIMITS: dict[str, MetricName] = {
    key: name
    for name, metric in METRICS.items()
    for key in ((f"min_{name}",) if metric.is_higher_better else (f"max_{name.removesuffix('_s')}", f"max_{name}"))
    if key in Criterion.__struct_fields__
}


def _is_asked(value: object) -> bool:
    """Return whether a limit or rule with this value is to be checked. This includes the value 0, because `warmups: 0`
    allows no warm-up runs.
    """
    return value is not None and value is not False and value not in ("any", (), {})


class Criteria(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A criteria file."""

    name: str
    """Name of the criteria. Example: acceptance"""
    description: str = ""
    """One line, shown in lists of criteria."""
    source: str = ""
    """Source of the limits, such as a contract."""
    cached_above: units.Share = units.Share(LIMIT)
    """A run counts as cached if, in any epoch, more than this share of the bytes came from memory."""
    night_spread: units.Share | None = None
    """Variation between nights with the same settings: the standard deviation of their levels, relative to the level.
    null: the variation in the site's history, or 5 % if the history is too short. 0: nights do not differ, so only
    these runs are judged. Example: 3%
    """
    workloads: tuple[str, ...] = ("*",)
    """Workloads that may be measured; * matches any text. If another workload was measured, the acceptance test fails.
    """
    whatif: tuple[str, ...] = ()
    """Workloads that a benchmark has for exploration only; * matches any text. If one was measured, the acceptance test
    fails and says so. Example: ["unet3d_h100"]
    """
    criteria: dict[str, Criterion] = {}
    """Criteria by their names. Example: {busy: {min_au: 90%}}"""


def load(name: str) -> Criteria:
    """Load a criteria file. name: name of criteria that are shipped with dlio-hpc, or path of a file. Raise ConfigError
    with the file and the YAML key if a value is invalid.
    """
    path = shipped.find(shipped.CRITERIA, name)
    return _checked(shipped.read(shipped.CRITERIA, path, Criteria), str(path))


def of_study(study: Study) -> Criteria | None:
    """Return the criteria of a suite as they were when the suite was planned. If an earlier version of dlio-hpc planned
    the suite, return the present content of the criteria file. Return None if the suite names no criteria.
    """
    if study.criteria:
        source = f"criteria of {study.study}"
        return _checked(serialization.convert(study.criteria, Criteria, source), source)
    name = None if study.verdict is None else study.verdict.criteria
    return None if name is None else load(name)


def _checked(file: Criteria, source: str) -> Criteria:
    """Return criteria with numbers of runs filled in. Raise ConfigError if there is no criterion."""
    if not file.criteria:
        raise ConfigError(f"{source}: the file has no criteria, so it would accept any job; give at least one")
    counted = {key: _counted(criterion, f"{source}: criteria.{key}") for key, criterion in file.criteria.items()}
    return structs.replace(file, criteria=counted)


def of_division(criteria: Criteria, division: str) -> Criteria:
    """Return the criteria of one division. Less strict divisions are removed from each criterion."""
    return structs.replace(
        criteria,
        criteria={name: _of_division(criterion, division) for name, criterion in criteria.criteria.items()},
    )


def _of_division(criterion: Criterion, division: str) -> Criterion:
    names = list(criterion.divisions)
    if division not in names:
        return criterion
    kept = names[: names.index(division) + 1]
    return structs.replace(criterion, divisions={name: criterion.divisions[name] for name in kept})


def is_named(workload: str, names: Sequence[str] | str) -> bool:
    """Return whether a workload matches one of `names`. names: a name or pattern, or a sequence of names
    and patterns.
    """
    return any(fnmatchcase(workload, name) for name in _names(names))


def _names(names: Sequence[str] | str) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _counted(criterion: Criterion, source: str) -> Criterion:
    """Return the criterion with ranges of counts, such as 1..8*2, replaced by lists of numbers."""
    given = {name: getattr(criterion, name) for name in _SELECTORS}
    counts = {name: sweep.counts(text, f"{source}.{name}") for name, text in given.items() if isinstance(text, str)}
    return structs.replace(criterion, **counts)


def _listed(counts: Any) -> Sequence[int]:
    return (counts,) if isinstance(counts, int) else tuple(counts)
