"""A criteria file: what has to hold of what was measured, for each workload and scale."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc import document, units
from dlio_hpc.analysis.page_cache_check import LIMIT
from dlio_hpc.config import shipped
from dlio_hpc.config.workload import Workload
from dlio_hpc.plan import sweep
from dlio_hpc.verdict.history_entry import Key

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(gt=0)]
Ratio = Annotated[float, Meta(ge=1)]
Counts = tuple[Positive, ...] | Positive | str | None

# Limits of figures: which of metrics.METRICS each is of.
FIGURES = {
    "min_samples_per_s": "samples_per_s",
    "min_read_MBps": "read_MBps",
    "min_au": "au",
    "min_au_mlperf": "au_mlperf",
    "min_checkpoint_write_MBps": "checkpoint_write_MBps",
    "min_checkpoint_read_MBps": "checkpoint_read_MBps",
    "max_slowest_rank_ratio": "slowest_rank_ratio",
    "max_read_p99": "read_p99_s",
    "max_wait_p99": "wait_p99_s",
}
_SELECTORS = ("nodes", "ranks_per_node", "ranks")
_ASIDE = {"title", "workload", *_SELECTORS, "all_runs", "optional"}


class Criterion(Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of the runs that workload (names, with * for anything), nodes, ranks_per_node and ranks select; of
    None nothing. all_runs: every run has to meet the limits of figures, rather than the median. optional: what was
    not measured, or cannot be known, is skipped and reported as such; else it fails.

    min_scaling_efficiency: samples/s of a rank over those on the fewest ranks. max_spread: of samples/s between
    the fastest run and the slowest, over the median. min_dataset_over_memory: dataset's bytes over those of all
    nodes' memory. gaps: between neighbouring runs, warm-ups too. separate_results_fs: jobs' folders and datasets lie on
    different file systems. unmodified: keys of the workload, such as compute.time, that have the values it ships with.
    """

    title: str = ""
    workload: tuple[str, ...] | str = "*"
    nodes: Counts = None
    ranks_per_node: Counts = None
    ranks: Counts = None
    all_runs: bool = False
    optional: bool = False
    min_samples_per_s: Rate | None = None
    min_read_MBps: Rate | None = None
    min_au: units.Share | None = None
    min_au_mlperf: units.Share | None = None
    min_checkpoint_write_MBps: Rate | None = None
    min_checkpoint_read_MBps: Rate | None = None
    max_slowest_rank_ratio: Ratio | None = None
    max_read_p99: units.Seconds | None = None
    max_wait_p99: units.Seconds | None = None
    min_scaling_efficiency: units.Share | None = None
    max_spread: units.Share | None = None
    min_steps: Positive | None = None
    min_dataset_over_memory: Rate | None = None
    warmups: Natural | None = None
    measured_runs: Positive | None = None
    min_measured_runs: Positive | None = None
    gaps: Literal["any", "shorter than a run"] = "any"
    separate_results_fs: bool = False
    unmodified: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.asked:
            told = ", ".join(name for name in self.__struct_fields__ if name not in _ASIDE)
            raise ValueError(f"it asks for nothing; give at least one of: {told}")
        for key in self.unmodified:
            if document.kind_at(Workload, key.split(".")) is None:
                raise ValueError(f"unmodified: a workload has no key {key}")
        if self.all_runs and not set(self.asked) & set(FIGURES):
            raise ValueError(f"all_runs goes with limits of figures: {', '.join(FIGURES)}")

    @property
    def asked(self) -> dict[str, Any]:
        """The limits and rules, by their keys."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _ASIDE}
        return {name: value for name, value in given.items() if _is_asked(value)}

    def selects(self, key: Key) -> bool:
        counts = (key.nodes, key.ranks_per_node, key.nodes * key.ranks_per_node)
        asked = (self.nodes, self.ranks_per_node, self.ranks)
        return is_named(key.workload, self.workload) and all(
            wanted is None or count in _listed(wanted) for count, wanted in zip(counts, asked, strict=True)
        )

    def lacking(self, keys: Sequence[Key]) -> list[str]:
        """What it names, workload or scale, of which nothing is among what it selects of `keys`."""
        mine = [key for key in keys if self.selects(key)]
        there = {"nodes": {key.nodes for key in mine}, "ranks_per_node": {key.ranks_per_node for key in mine}}
        there["ranks"] = {key.nodes * key.ranks_per_node for key in mine}
        told = [
            f"workload {name}"
            for name in _words(self.workload)
            if not any(is_named(key.workload, name) for key in mine)
        ]
        for name in _SELECTORS:
            wanted = _listed(getattr(self, name)) if getattr(self, name) is not None else ()
            told += [f"{name.replace('_', ' ')} {count}" for count in wanted if count not in there[name]]
        return told

    @property
    def selection(self) -> str:
        """What it selects, in words; empty where that is everything."""
        return ", ".join(self._selected())

    def _selected(self) -> Iterator[str]:
        if self.workload != "*":
            yield f"workload {' or '.join(_words(self.workload))}"
        for name in _SELECTORS:
            if (wanted := getattr(self, name)) is not None:
                yield f"{name.replace('_', ' ')} {' or '.join(map(str, _listed(wanted)))}"


def _is_asked(value: object) -> bool:
    """0 is, of warm-ups."""
    return value is not None and value is not False and value not in ("any", ())


class Criteria(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of them. source: for who reads it. cached_above: share of an epoch's bytes that may come from memory
    before a run is cached. workloads: names of those that it is for, with * for anything; others do not meet it.
    """

    name: str
    description: str = ""
    source: str = ""
    cached_above: units.Share = units.Share(LIMIT)
    workloads: tuple[str, ...] = ("*",)
    criteria: dict[str, Criterion] = {}


def load(name: str) -> Criteria:
    """Shipped criteria, or a file of them by its path; ConfigError names file and key."""
    path = shipped.find(shipped.CRITERIA, name)
    file = document.read_named(path, Criteria, "criteria", Criterion)
    counted = {each: _counted(one, f"{path}: criteria.{each}") for each, one in file.criteria.items()}
    return structs.replace(file, criteria=counted)


def is_named(workload: str, names: Sequence[str] | str) -> bool:
    return any(fnmatchcase(workload, name) for name in _words(names))


def _words(names: Sequence[str] | str) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _counted(criterion: Criterion, source: str) -> Criterion:
    """With ranges such as 1..8*2 written out."""
    given = {name: getattr(criterion, name) for name in _SELECTORS}
    told = {name: sweep.counts(each, f"{source}.{name}") for name, each in given.items() if isinstance(each, str)}
    return structs.replace(criterion, **told)


def _listed(counts: Any) -> Sequence[int]:
    return (counts,) if isinstance(counts, int) else tuple(counts)
