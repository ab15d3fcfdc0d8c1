"""A study: the points that a submission measures, and the number of repeats. A point is a workload together with
numbers of nodes and ranks.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc import __version__
from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.inference_keys import InferenceKeys, RequestTrace
from dlio_hpc.config.lustre_layout import Layout
from dlio_hpc.config.site import Site
from dlio_hpc.config.site import resolved as resolved_site
from dlio_hpc.config.workload import Draft, Workload, notes_on_section
from dlio_hpc.dataset import rank_shares
from dlio_hpc.dataset.resizing import resized
from dlio_hpc.plan import metric_owners, mix, plan, sweep
from dlio_hpc.plan.mix import Load, MixKeys
from dlio_hpc.plan.plan import Generate
from dlio_hpc.plan.sweep import Axis
from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import METRICS, MetricName

Positive = Annotated[int, Meta(ge=1)]
# Default time from the start of a night to the start of the next one, in seconds.
EVERY = units.Walltime(86400)
# Maximum number of measurements in a study; no queue accepts so many.
_MOST = 100_000


class JobRequest(Struct, frozen=True):
    """Options of a submission, except the workload and the site. If an option is None, the default of the site applies.
    seed: seed of the order of runs; None to choose a random seed. repeat: measurements of each point in a night.
    """

    runs: Path
    archive: Path | None = None
    data: Path | None = None
    walltime: units.Walltime | None = None
    account: str | None = None
    queue: str | None = None
    job_options: tuple[str, ...] = ()
    repeat: int = 1
    warmup: int = 0
    generate: Generate = "auto"
    darshan: bool | None = None
    tf_profile: bool = False
    seed: int | None = None
    nights: int = 1
    every: units.Walltime = EVERY


class Judging(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the verdict at the end of a suite."""

    criteria: str | None = None
    """Criteria, by name or file; null: none. Example: acceptance"""
    metrics: tuple[MetricName, ...] = ("samples_per_s",)
    """Metrics that are compared with the baseline."""
    tolerance: units.Share = units.Share(0.02)
    """Largest relative loss that still passes."""


class About(Struct, frozen=True):
    """Contents of a study file, without its parts. warmup_set: values of workload keys in warm-up runs only. mixes:
    rules of all mixes.
    """

    description: str = ""
    verdict: Judging | None = None
    warmup_set: dict[str, Any] = {}
    mixes: MixKeys = MixKeys()


class Part(Struct, frozen=True):
    """A part of a study: a set of points that are compared with each other. name: empty if the study has a single part.
    weak: if true, every rank reads the same amount at every number of ranks; otherwise, all ranks together read the
    same amount. reference: number of the point that the other points are compared with. This is the point with the
    unchanged workload on the fewest ranks. If no point has the unchanged workload, it is the first point on the fewest
    ranks. is_default: whether the reference has the unchanged workload.
    """

    name: str
    title: str
    axes: tuple[Axis, ...]
    zipped: bool
    nodes: tuple[Positive, ...]
    ranks_per_node: tuple[Positive, ...]
    weak: bool
    metric: MetricName
    reference: int
    is_default: bool

    @property
    def is_scaling(self) -> bool:
        return len(self.nodes) * len(self.ranks_per_node) > 1

    @property
    def settings(self) -> tuple[Axis, ...]:
        """Axes of the varied keys. The axes of two compared file systems and of the loads of a mix are left out,
        because they are not keys.
        """
        return tuple(axis for axis in self.axes if not axis.is_data and not axis.is_mix)

    @property
    def is_load(self) -> bool:
        """True if the part is a load of a mix. Its reference is the load without other loads."""
        return any(axis.is_mix for axis in self.axes)


class Point(Struct, frozen=True):
    """A configuration that is measured several times (Study.repeat). places: for each varied key, the index of the
    point's value on the axis of the key. nodes, ranks_per_node: those of the load if the point is a load of a mix.
    layout: Lustre layout of the dataset's files. data: folder that holds the dataset; None: the data directory of the
    study. load: place of the load in its mix, and the other loads that run at the same time; None without a mix.
    """

    number: int
    part: str
    places: dict[str, int]
    nodes: int
    ranks_per_node: int
    workload: Workload
    layout: Layout | None
    data: str | None = None
    load: Load | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def launched(self) -> mix.LaunchScale:
        """Numbers of nodes and ranks of a launch that measures the point."""
        if self.load is None:
            return mix.LaunchScale(self.nodes, self.ranks_per_node)
        return mix.LaunchScale(self.load.job_nodes, self.load.job_ranks_per_node)

    def labels(self, axes: Iterable[Axis]) -> dict[str, str]:
        """Return the values of the point on these axes as text, by key."""
        return {axis.key: axis.labels[self.places[axis.key]] for axis in axes}


class Study(Struct, frozen=True):
    """A study with all defaults written out, as stored in study.json. repeat: measurements of each point, summed over
    all nights. seed: seed of the order in which points are measured. nights: number of nights. every: time from the
    start of a night to the start of the next one. criteria: content of the criteria file that `verdict` names, as it
    was when the study was planned, so that a later change of the file does not change the verdict. It is empty if
    `verdict` names no file, and in studies of earlier versions.
    """

    version: str
    study: str
    description: str
    created: str
    runs: str
    archive: str
    data: str
    site: Site
    walltime: units.Walltime
    account: str | None
    queue: str | None
    job_options: tuple[str, ...]
    generate: Generate
    darshan: bool | None
    tf_profile: bool
    repeat: int
    warmup: int
    seed: int
    is_shrunk: bool
    parts: tuple[Part, ...]
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()
    verdict: Judging | None = None
    warmup_set: dict[str, Any] = {}
    nights: int = 1
    every: units.Walltime = EVERY
    criteria: dict[str, Any] = {}
    schema: Literal[1] = 1

    @property
    def folder(self) -> Path:
        """The folder that holds study.json. A plain study (see is_plain) has no such folder."""
        return Path(self.runs, self.study)

    @property
    def is_ab(self) -> bool:
        """True if two file systems are compared. Points then come in pairs that differ only in the file system."""
        return any(axis.is_data for part in self.parts for axis in part.axes)

    @property
    def is_mixed(self) -> bool:
        """True if loads are measured alone and together with others."""
        return any(part.is_load for part in self.parts)

    @property
    def launches(self) -> list[tuple[int, ...]]:
        """Numbers of the points that are measured at the same time, for each launch of a repeat."""
        launches: dict[object, list[int]] = {}
        for point in self.points:
            key = point.number if point.load is None else (point.load.mix, point.load.together)
            launches.setdefault(key, []).append(point.number)
        return [tuple(points) for points in launches.values()]

    @property
    def blocks(self) -> list[list[tuple[int, ...]]]:
        """Launches that must be made one after the other, in one job, because they are compared in pairs: those of a
        mix. Other launches are blocks of their own.
        """
        blocks: dict[object, list[tuple[int, ...]]] = {}
        for launch in self.launches:
            load = self.points[launch[0]].load
            blocks.setdefault(launch if load is None else load.mix, []).append(launch)
        return list(blocks.values())

    @property
    def is_plain(self) -> bool:
        """True if the study has a single point, a single night and no verdict. A single job then measures everything,
        and there is no study.json.
        """
        return len(self.points) == 1 and self.verdict is None and self.nights == 1

    @property
    def in_nights(self) -> str:
        """Phrase that follows the number of repeats, such as " in 5 nights"; empty for a single night."""
        return f" in {self.nights} nights" if self.nights > 1 else ""

    def night(self, repeat: int) -> int:
        """Return the night, counted from 1, to which a repeat belongs. Every night has the same number of repeats."""
        return 1 + repeat * self.nights // self.repeat

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that hold the datasets: two if two file systems are compared."""
        return tuple(dict.fromkeys(point.data or self.data for point in self.points))

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)

    def labels(self, point: Point) -> dict[str, str]:
        """Return the varied keys of a point, with their values as text. The numbers of nodes and of ranks per node are
        included if they vary. These labels distinguish the point from the other points of its part.
        """
        part = self.part(point.part)
        labels = point.labels(part.axes)
        if len(part.nodes) > 1:
            labels["nodes"] = str(point.nodes)
        if len(part.ranks_per_node) > 1:
            labels["ranks per node"] = str(point.ranks_per_node)
        return labels

    def title(self, point: Point) -> str:
        """Return the title of a point, such as fig11 a: dataset.chunk=64 KiB."""
        settings = ", ".join(f"{key}={label}" for key, label in self.labels(point).items())
        return ": ".join(filter(None, (point.part, settings))) or point.workload.name


class PartRequest(Struct, frozen=True):
    """Request for a part of a study. site: site profile; the part may vary its Lustre layout. nodes, ranks_per_node:
    the part measures scaling if either has several values. folders: one folder on each of the two file systems to be
    compared; empty if no file systems are compared. mix: name of the mix whose load the part is; empty without one.
    share: share of the ranks that the load has. data: folder of the load's dataset; None: the data directory.
    """

    workload: Draft
    site: Site
    axes: tuple[Axis, ...] = ()
    zipped: bool = False
    nodes: tuple[int, ...] = (1,)
    ranks_per_node: tuple[int, ...] = ()
    weak: bool = False
    dataset_size: int | None = None
    metric: MetricName | None = None
    name: str = ""
    title: str = ""
    folders: tuple[str, ...] = ()
    mix: str = ""
    share: float = 1.0
    data: str | None = None


_NO_ABOUT = About()


def _silent(_: str) -> None:
    """Ignore a line."""


def make(
    name: str, asked: Sequence[PartRequest], request: JobRequest, about: About = _NO_ABOUT,
    report: Callable[[str], None] = _silent,
) -> Study:  # fmt: skip
    """Return the study `name` (see plan.job_name). Existing datasets are scanned. report: function that is called with
    lines on the progress of scans. Raise ConfigError if the options, workloads and site do not fit together.
    """
    site = asked[0].site
    data, runs = plan.data_directory(site, request.data), plan.absolute(request.runs)
    scan = _scans(data, runs, report)
    parts: list[Part] = []
    points: list[Point] = []
    notes = dict.fromkeys(note for part in asked for note in _notes(part, about.warmup_set))
    loads = _loads(asked, about.mixes, request.walltime or site.walltime)
    for part in asked:
        of_part = list(_points(part, len(points), notes, scan))
        if part.mix:
            of_part = list(_in_company(part, of_part[0], loads, about.mixes))
        parts.append(_part(part, of_part, scan))
        if part.mix and parts[-1].metric in _NO_SLOWDOWN:
            raise ConfigError(
                f"mix {part.mix}, {part.name}: {METRICS[parts[-1].metric].noun} says nothing about a load that starts "
                "again; set another metric, and checkpoint.fsync=true if the load writes checkpoints"
            )
        points += of_part
    points = _apart(points, data)
    _refuse_metrics(asked, points, about.verdict)
    repeat = request.repeat * request.nights
    if len(points) * (repeat + request.warmup) > _MOST:
        raise _too_large()
    if any(part.folders for part in asked) and repeat % 2:
        notes["--ab: with an odd --repeat, A is measured first once more often than B; use an even --repeat"] = None
    return Study(
        version=__version__,
        study=name,
        description=about.description,
        created=units.utc_now(),
        runs=runs,
        archive=plan.absolute(request.archive) if request.archive else os.path.join(runs, "archive"),
        data=data,
        site=resolved_site(site),
        walltime=request.walltime or site.walltime,
        account=request.account or site.account,
        queue=request.queue or site.queue,
        job_options=request.job_options,
        generate=request.generate,
        darshan=request.darshan,
        tf_profile=request.tf_profile,
        repeat=repeat,
        warmup=request.warmup,
        seed=int.from_bytes(os.urandom(4), "big") if request.seed is None else request.seed,
        is_shrunk=any(part.dataset_size is not None for part in asked),
        parts=tuple(parts),
        points=tuple(points),
        notes=tuple(notes),
        verdict=about.verdict,
        warmup_set=about.warmup_set,
        nights=request.nights,
        every=request.every,
        criteria=_criteria(about.verdict),
    )


def _loads(asked: Sequence[PartRequest], keys: MixKeys, walltime: int) -> dict[str, dict[str, Load]]:
    """Return the place of each load, by the name of its part, for each mix. Raise ConfigError if a load has an option
    that a mix does not support, or if a launch takes longer than a job may.
    """
    mixes: dict[str, list[PartRequest]] = {}
    if keys.time is not None and keys.time >= walltime:
        raise ConfigError(
            f"a launch of a mix takes {units.format_seconds(keys.time)} (--mix-until, or time of mixes), but a job has "
            f"{units.format_walltime(walltime)}; give it more time (-t), or use a shorter time"
        )
    for part in asked:
        if part.mix:
            mixes.setdefault(part.mix, []).append(part)
    return {name: _places(name, loads, keys) for name, loads in mixes.items()}


def _places(name: str, loads: Sequence[PartRequest], keys: MixKeys) -> dict[str, Load]:
    scales = {scale for load in loads for scale in _scales(load)}
    for load in loads:
        if load.axes or load.zipped or load.weak or load.folders:
            raise ConfigError(
                f"mix {name}: a mix compares loads that run alone and together; leave out sweeps (-P, --zip), --weak "
                "and --ab"
            )
    if len(scales) > 1:
        raise ConfigError(
            f"mix {name}: a mix is measured on one number of nodes and ranks; submit it once for each number"
        )
    return mix.placed(name, {load.name: load.share for load in loads}, mix.LaunchScale(*scales.pop()), keys)


def _in_company(
    asked: PartRequest, point: Point, loads: Mapping[str, Mapping[str, Load]], keys: MixKeys
) -> Iterator[Point]:
    """Yield the points of a load: alone, and with the other loads of its mix. point: the load on all ranks."""
    of_mix = loads[asked.mix]
    _check_load(asked, point.workload, keys)
    for place, others in enumerate(mix.companies(asked.name, list(of_mix), keys.pairs)):
        load = structs.replace(of_mix[asked.name], others=others)
        yield structs.replace(
            point,
            number=point.number + place,
            places={mix.AXIS: place},
            nodes=load.nodes,
            ranks_per_node=load.ranks_per_node,
            data=None if asked.data is None else plan.absolute(Path(os.path.expandvars(asked.data))),
            load=load,
        )


def _check_load(asked: PartRequest, workload: Workload, keys: MixKeys) -> None:
    """Raise ConfigError if a workload cannot be a load of a mix."""
    where = f"mix {asked.mix}, {asked.name}"
    checkpoint, served = workload.checkpoint, workload.inference
    if served is not None and served.search is not None:
        raise ConfigError(f"{where}: a search would try other numbers of users together; set inference.search=null")
    if served is not None and served.warm:
        raise ConfigError(
            f"{where}: blocks that exist before are written while other loads run; set inference.warm=false"
        )
    if served is not None and keys.time is not None and keys.until == "time" and keys.time <= served.time:
        raise ConfigError(
            f"{where}: requests arrive for {units.format_seconds(served.time)} in an epoch, and no epoch ends in the "
            f"{units.format_seconds(keys.time)} of a launch; set a shorter inference.time, or a longer --mix-until"
        )
    if keys.until != "first" and workload.evaluation is not None:
        raise ConfigError(f"{where}: evaluation passes cannot start again; set evaluation=null, or until: first")
    if checkpoint is not None and checkpoint.reads:
        raise ConfigError(
            f"{where}: checkpoints are read after the last step, when other loads have stopped; set checkpoint.reads=0"
        )
    if workload.reader.access == "collective":
        raise ConfigError(f"{where}: collective reads are not supported in a mix; set reader.access=independent")


def _apart(points: Sequence[Point], data: str) -> list[Point]:
    """Return the points, with a folder of its own for the dataset of a load that has the same dataset as an earlier
    load of its mix: each would read what the other has brought into memory.
    """
    owners: dict[tuple[str, str, bytes], list[str]] = {}
    placed = []
    for point in points:
        load = point.load
        if load is not None and point.workload.dataset.is_generated:
            dataset = serialization.encode((point.workload.dataset, point.layout))
            same = owners.setdefault((load.mix, point.data or data, dataset), [])
            if load.name not in same:
                same.append(load.name)
            if number := same.index(load.name):
                folder = os.path.join(point.data or data, f"load-{number + 1}")
                point = structs.replace(point, data=folder)  # noqa: PLW2901 - the same point, elsewhere
        placed.append(point)
    return placed


def _companies(points: Sequence[Point]) -> list[Axis]:
    """Return the axis of the other loads, if the points are those of a load of a mix."""
    loads = [point.load for point in points if point.load is not None]
    if not loads:
        return []
    return [sweep.companies([load.others for load in loads], [load.label for load in loads])]


def _notes(part: PartRequest, warmup_set: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on the keys of a part: those of its workload, and on mappings that replace whole sections."""
    yield from part.workload.notes
    swept = [("sweep", axis.key, value) for axis in part.axes for value in axis.values]
    warm = [("warmup_set", key, value) for key, value in warmup_set.items()]
    for origin, key, value in (*swept, *warm):
        yield from notes_on_section(part.workload.data, key, value, origin)


# Metrics that depend on how often a load of a mix starts again.
_NO_SLOWDOWN: frozenset[MetricName] = frozenset({"wall_s", "io_time_s"})
# Metrics of a suite that names none.
_USUAL: MetricName = "samples_per_s"


def _refuse_metrics(parts: Sequence[PartRequest], points: Sequence[Point], verdict: Judging | None) -> None:
    """Raise ConfigError if a part, or the verdict of a suite, asks for a metric that no workload of theirs has. The
    default metric of suites stands for the main metric of each workload.
    """
    asked = [
        ("metric", part.metric, [point for point in points if point.part == part.name])
        for part in parts
        if part.metric is not None
    ]
    of_suite = verdict.metrics if verdict is not None else ()
    asked += [("verdict.metrics", metric, list(points)) for metric in of_suite if metric != _USUAL]
    for key, metric, concerned in asked:
        reasons = [metric_owners.never(point.workload, metric) for point in concerned]
        if reasons and all(reasons):
            raise ConfigError(f"{key}={metric}: {reasons[0]}")


def _criteria(verdict: Judging | None) -> dict[str, Any]:
    """Return the content of the criteria file that the verdict of a suite names; empty if it names none."""
    if verdict is None or verdict.criteria is None:
        return {}
    path = shipped.find(shipped.CRITERIA, verdict.criteria)
    if not path.exists():
        raise ConfigError(f"verdict.criteria of the suite: there is no file {path.absolute()}; correct its name")
    data = serialization.read_yaml(path)
    return data if isinstance(data, dict) else {}


def _too_large() -> ConfigError:
    return ConfigError(f"the study has more than {_MOST} measurements; vary fewer values, or lower --repeat")


def _scans(data: str, runs: str, report: Callable[[str], None]) -> Callable[[Workload], Workload]:
    """Return a function that adds the results of the scan to a workload with an existing dataset or a trace of
    requests. The function returns other workloads unchanged. Each dataset and each trace is scanned once.
    """
    known: dict[bytes, Dataset] = {}
    traces: dict[RequestTrace, RequestTrace] = {}

    def scanned(workload: Workload) -> Workload:
        if workload.inference is not None and workload.inference.trace is not None:
            return _traced(workload, workload.inference, workload.inference.trace, traces)
        if workload.dataset.existing is None:
            return workload
        from dlio_hpc.dataset import dataset_scan  # imports numpy

        key = serialization.encode(workload.dataset)
        if key not in known:
            known[key] = dataset_scan.described(workload.dataset, dataset_scan.ScanFolders(data, runs), report)
        try:
            return structs.replace(workload, dataset=known[key])
        except ValueError as fault:
            raise ConfigError(f"--existing {workload.dataset.existing.glob}: {fault}") from fault

    return scanned


def _traced(
    workload: Workload, keys: InferenceKeys, trace: RequestTrace, known: dict[RequestTrace, RequestTrace]
) -> Workload:
    """Return the workload with the results of the scan of its trace. known: traces that were scanned before."""
    from dlio_hpc.dataset import request_trace

    if trace not in known:
        known[trace] = request_trace.described(trace)
    try:
        return structs.replace(workload, inference=structs.replace(keys, trace=known[trace]))
    except ValueError as fault:
        raise ConfigError(f"inference.{fault}") from fault


def _part(asked: PartRequest, points: list[Point], scan: Callable[[Workload], Workload]) -> Part:
    try:
        base = plan.resolved(scan(asked.workload.with_settings({})))
    except ConfigError:
        base = None  # the workload is valid only with values for the varied keys
    fewest = min(points, key=lambda point: point.ranks).ranks
    at_fewest = [point for point in points if point.ranks == fewest]
    usual = [point.number for point in at_fewest if base is not None and _is_base(point, base, asked)]
    return Part(
        asked.name,
        asked.title,
        (*asked.axes, *([sweep.sides(asked.folders)] if asked.folders else []), *_companies(points)),
        asked.zipped,
        asked.nodes,
        asked.ranks_per_node or (asked.site.ranks_per_node,),
        asked.weak,
        asked.metric or _metric(points),
        reference=usual[0] if usual else at_fewest[0].number,
        is_default=bool(usual),
    )


def _metric(points: list[Point]) -> MetricName:
    """Return the metric by which points are compared by default. The rate of checkpoints is known only with fsync; a
    workload that only writes checkpoints has no samples/s. A metadata workload has the rates of its phases, and an
    inference workload the time to the first token. As a load of a mix, it has the bandwidth of its reads, which is also
    known if not all requests are served.
    """
    if points[0].load is not None and (metric := _metric_of_load(points[0].workload)) is not None:
        return metric
    phases = [set(point.workload.metadata.order) if point.workload.metadata else set() for point in points]
    if common := set.intersection(*phases):
        return next(iter(metrics.quoted_phases({metrics.of_phase(phase) for phase in common})))
    served = [point.workload.inference for point in points]
    if all(keys is not None and keys.search is not None for keys in served):
        return "users_in_time"
    if all(keys is not None for keys in served):
        return "ttft_p99_s"
    if not all(point.workload.only_writes_checkpoints for point in points):
        return "samples_per_s"
    checkpoints = [point.workload.checkpoint for point in points]
    return "checkpoint_write_MBps" if all(keys is not None and keys.fsync for keys in checkpoints) else "wall_s"


def _metric_of_load(workload: Workload) -> MetricName | None:
    """Return the metric of a load of a mix; None if it is that of the workload without other loads."""
    if workload.reads_samples:
        return "common_samples_per_s"
    return "kv_read_MBps" if workload.inference is not None else None


def _is_base(point: Point, base: Workload, asked: PartRequest) -> bool:
    """Return whether the point has the unchanged workload `base` and the layout of the site. The size of the dataset
    may differ from the size in `base`, unless the part varies this size. If two file systems are compared, the point
    must also be on the first of them.
    """
    same = {"files": base.dataset.files, "samples_per_file": base.dataset.samples_per_file}
    varied = any(axis.key.startswith(("dataset.files", "dataset.samples_per_file")) for axis in asked.axes)
    dataset = point.workload.dataset if varied else structs.replace(point.workload.dataset, **same)
    train = structs.replace(point.workload.train, steps=base.train.steps) if asked.weak else point.workload.train
    workload = structs.replace(point.workload, dataset=dataset, train=train)
    is_first = point.data in (None, *asked.folders[:1])
    return is_first and point.layout == asked.site.layout and plan.resolved(workload) == base


def _points(
    asked: PartRequest, first: int, notes: dict[str, None], scan: Callable[[Workload], Workload]
) -> Iterator[Point]:
    scales = _scales(asked)
    most = max(nodes * ranks_per_node for nodes, ranks_per_node in scales)
    number = first
    known: dict[bytes, str] = {}
    for places in sweep.settings(asked.axes, asked.zipped):
        title = ", ".join(f"{axis.key}={axis.labels[places[axis.key]]}" for axis in asked.axes)
        try:
            workload, layout = _varied(asked, places)
            _check_existing(asked, workload)
            workload = scan(workload)
            notes |= dict.fromkeys(_existing_notes(workload, layout))
            workload = _sized(asked, workload, most, notes)
            same = known.setdefault(serialization.encode((plan.resolved(workload), layout)), title)
            if same != title:
                raise ConfigError(
                    f"the workload is the same as for {same}; use values further apart, or omit --dataset-size"
                )
        except ConfigError as fault:
            raise ConfigError(f"{title}: {fault}" if title else str(fault)) from fault
        for nodes, ranks_per_node in scales:
            if number >= _MOST:
                raise _too_large()
            point = Point(number, asked.name, places, nodes, ranks_per_node, workload, layout)
            for side in _sides(point, asked.folders):
                yield side
                number += 1


def _check_existing(asked: PartRequest, workload: Workload) -> None:
    """Raise ConfigError if the part requests settings that are not possible with existing files."""
    if workload.dataset.existing is None:
        return
    if asked.folders:
        raise ConfigError(
            "--ab: existing datasets in two folders are not compared in one study; submit the workload once with "
            "--data of each folder"
        )
    if any(axis.is_layout for axis in asked.axes):
        raise ConfigError("site.layout: the files of an existing dataset keep their layout; vary another key")
    if asked.dataset_size is not None:
        resized(workload, asked.dataset_size, 1)  # raises the error that says what to do


def _existing_notes(workload: Workload, layout: Layout | None) -> Iterator[str]:
    """Yield notes on what is different because the dataset consists of existing files. layout: Lustre layout that the
    site requests.
    """
    if workload.dataset.existing is None:
        return
    yield (
        "existing dataset: its contents are not verified, because the expected contents are unknown; the numbers of "
        "samples and bytes are compared with the scan"
    )
    if workload.checkpoint is not None or any(side.access == "write" for side in workload.dataset.auxiliary_files):
        yield (
            "existing dataset: nothing is written to its folder; checkpoints and auxiliary files are written to the "
            "folder of runs, and so to its file system (to write none: -S checkpoint=null)"
        )
    if layout is not None:
        yield "existing dataset: the Lustre layout of the site is not set, because the files exist already"


def _sides(point: Point, folders: Sequence[str]) -> Iterator[Point]:
    """Yield a copy of the point for each of the compared file systems. If no file systems are compared, yield the point
    itself.
    """
    if not folders:
        yield point
        return
    key = sweep.sides(folders).key
    for place, folder in enumerate(folders):
        yield structs.replace(point, number=point.number + place, places=point.places | {key: place}, data=folder)


def _scales(asked: PartRequest) -> list[tuple[int, int]]:
    """Return all (nodes, ranks per node) pairs. Raise ConfigError for repeated values, and if the option `zip` or
    `weak` is given but has no effect.
    """
    ranks_per_node = asked.ranks_per_node or (asked.site.ranks_per_node,)
    scales = list(itertools.product(asked.nodes, ranks_per_node))
    if len(set(scales)) < len(scales):
        raise ConfigError("--nodes, --ppn: a number is repeated; give each number once")
    if asked.zipped and len(asked.axes) < 2:
        raise ConfigError("--zip needs at least two options -P; in a study file, zip needs two keys in sweep")
    if asked.weak and len(scales) < 2:
        raise ConfigError(
            "--weak needs several values of --nodes or --ppn; in a study file, weak needs several values of nodes or "
            "ranks_per_node"
        )
    return scales


def _sized(asked: PartRequest, workload: Workload, most: int, notes: dict[str, None]) -> Workload:
    """Return the workload with the dataset size and the number of steps that the part requests. Both are the same for
    every number of ranks. Add notes on these changes to `notes`. most: largest number of ranks of the part.
    """
    if asked.dataset_size is not None:
        sized = resized(workload, asked.dataset_size, most)
        notes |= dict.fromkeys(_size_notes(workload, sized, most))
        workload = sized
    if asked.weak:
        _check_weak(workload)
        workload = _weak(workload, most)
        notes |= dict.fromkeys(_weak_notes(workload, most))
    return workload


def _varied(asked: PartRequest, places: dict[str, int]) -> tuple[Workload, Layout | None]:
    values = {axis.key: axis.values[places[axis.key]] for axis in asked.axes if not axis.is_layout}
    of_layout = {axis.key: axis.values[places[axis.key]] for axis in asked.axes if axis.is_layout}
    return asked.workload.with_settings(values), layout_of(asked.site, of_layout)


def layout_of(site: Site, settings: dict[str, Any]) -> Layout | None:
    """Return the Lustre layout of the site, changed by the keys site.layout.* in `settings`. Raise ConfigError if the
    result is not a valid layout.
    """
    if not settings:
        return site.layout
    data = {"layout": serialization.plain(site.layout)}
    for key, value in settings.items():
        serialization.put(data, key.removeprefix("site."), value, f"{key}={value}")
    return serialization.convert(data["layout"], Layout, "site.layout") if data["layout"] is not None else None


def _check_weak(workload: Workload) -> None:
    if workload.reader.load == "memory" and workload.reader.shard:
        raise ConfigError(
            "--weak: with reader.load=memory, each rank loads its part of the dataset, and this part is smaller with "
            "more ranks; use reader.load=on_demand, or omit --weak"
        )


def _weak(workload: Workload, most: int) -> Workload:
    """Return the workload for weak scaling. At every number of ranks, a rank takes the same number of steps per epoch,
    and the dataset is the same. This number of steps is set in train.steps. It is the number that a rank has if `most`
    ranks share the dataset. most: largest number of ranks of the part.
    """
    steps = rank_shares.steps_per_epoch(workload, most)
    return structs.replace(workload, train=structs.replace(workload.train, steps=max(1, steps)))


def _weak_notes(workload: Workload, most: int) -> Iterator[str]:
    share, whole = workload.dataset.samples / most, (workload.train.steps or 0) * workload.reader.batch_size
    if workload.reader.shard and share < whole:
        yield (
            f"--weak: with the most ranks, a rank reads {share:.4g} samples per epoch on average; with fewer ranks, it "
            f"reads {whole}. To make them equal, set dataset.samples_per_file x dataset.files to {whole * most}"
        )


def _size_notes(workload: Workload, sized: Workload, ranks: int) -> Iterator[str]:
    """If the dataset was enlarged, yield notes on its old and new size, and on samples that are not read."""
    before, after = workload.dataset, sized.dataset
    if after.samples <= before.samples:
        return
    key = "dataset.samples_per_file" if after.file_access == "shared" else "dataset.files"
    old, new = (
        dataset.samples_per_file if after.file_access == "shared" else dataset.files for dataset in (before, after)
    )
    yield (
        f"--dataset-size: the dataset of {workload.name} grows from {units.format_size(before.size)} to "
        f"{units.format_size(after.size)}, and {key} from {old} to {new}"
    )
    read = rank_shares.samples_per_epoch(sized, ranks)
    if sized.train.steps is not None and read < after.samples:
        yield (
            f"--dataset-size: train.steps={sized.train.steps} reads {read} of {after.samples} samples per epoch; use "
            "-S train.steps=null to read all of them"
        )
