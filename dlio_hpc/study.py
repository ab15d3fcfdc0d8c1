"""A study: the points that one submission measures, each a workload on so many nodes, and how often."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, structs

from dlio_hpc import __version__, document, plan, shipped, sweep, units
from dlio_hpc.errors import ConfigError
from dlio_hpc.layout import Layout
from dlio_hpc.plan import Generate
from dlio_hpc.site import Site
from dlio_hpc.site import resolved as resolved_site
from dlio_hpc.sweep import Axis
from dlio_hpc.workload import Draft, Workload, draft, shrunk

T = TypeVar("T")
Positive = Annotated[int, Meta(ge=1)]
# What points can be judged by; all of result.json's summary.
Metric = Literal["samples_per_s", "read_MBps", "wall_s", "io_time_s", "au"]
# More measurements than any queue would ever take.
_MOST = 100_000


class Request(Struct, frozen=True):
    """What the user asks for beyond workload and site; None: what the site says. seed: of the order of runs, drawn
    where it is None.
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


class Part(Struct, frozen=True):
    """Points to be compared with each other. name: empty where a study has but one part. weak: every rank reads as much
    on few nodes as on many; else all of them together do. reference: number of the point that others are compared with:
    the workload as it was before anything was varied, on the fewest ranks; where that is not among them, the first.
    """

    name: str
    title: str
    axes: tuple[Axis, ...]
    zipped: bool
    nodes: tuple[Positive, ...]
    ranks_per_node: tuple[Positive, ...]
    weak: bool
    metric: Metric
    reference: int
    is_default: bool

    @property
    def is_scaling(self) -> bool:
        return len(self.nodes) * len(self.ranks_per_node) > 1


class Point(Struct, frozen=True):
    """What is measured, `repeat` times. places: of each varied key, which value of its axis. layout: of its dataset."""

    number: int
    part: str
    places: dict[str, int]
    nodes: int
    ranks_per_node: int
    workload: Workload
    layout: Layout | None

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


class Study(Struct, frozen=True):
    """All of a submission, with nothing left implicit: study.json. seed: of the order in which points are measured."""

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
    schema: Literal[1] = 1

    @property
    def is_plain(self) -> bool:
        """One point: nothing to compare, and a single job that has the study's name."""
        return len(self.points) == 1

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)

    def labels(self, point: Point) -> dict[str, str]:
        """What distinguishes a point of its part: the keys that vary, with their values in words."""
        part = self.part(point.part)
        told = {axis.key: axis.labels[point.places[axis.key]] for axis in part.axes}
        if len(part.nodes) > 1:
            told["nodes"] = str(point.nodes)
        if len(part.ranks_per_node) > 1:
            told["ranks per node"] = str(point.ranks_per_node)
        return told

    def title(self, point: Point) -> str:
        """A point in a line, such as fig11 a: dataset.chunk=64 KiB."""
        told = ", ".join(f"{key}={label}" for key, label in self.labels(point).items())
        return ": ".join(filter(None, (point.part, told))) or point.workload.name


class Asked(Struct, frozen=True):
    """A part as it is asked for. site: its Lustre layout may be varied, too. nodes, ranks_per_node: one, or to scale
    over.
    """

    workload: Draft
    site: Site
    axes: tuple[Axis, ...] = ()
    zipped: bool = False
    nodes: tuple[int, ...] = (1,)
    ranks_per_node: tuple[int, ...] = ()
    weak: bool = False
    dataset_size: int | None = None
    metric: Metric = "samples_per_s"
    name: str = ""
    title: str = ""


def make(name: str, asked: Sequence[Asked], request: Request, description: str = "") -> Study:
    """The study `name` (see plan.job_name); ConfigError where request, workload and site do not fit together."""
    site = asked[0].site
    parts: list[Part] = []
    points: list[Point] = []
    notes: dict[str, None] = {}
    for part in asked:
        of_part = list(_points(part, len(points), notes))
        parts.append(_part(part, of_part))
        points += of_part
    if len(points) * (request.repeat + request.warmup) > _MOST:
        raise _too_much()
    runs = plan.absolute(request.runs)
    return Study(
        version=__version__,
        study=name,
        description=description,
        created=units.utc_now(),
        runs=runs,
        archive=plan.absolute(request.archive) if request.archive else os.path.join(runs, "archive"),
        data=plan.data_directory(site, request.data),
        site=resolved_site(site),
        walltime=request.walltime or site.walltime,
        account=request.account or site.account,
        queue=request.queue or site.queue,
        job_options=request.job_options,
        generate=request.generate,
        darshan=request.darshan,
        tf_profile=request.tf_profile,
        repeat=request.repeat,
        warmup=request.warmup,
        seed=int.from_bytes(os.urandom(4), "big") if request.seed is None else request.seed,
        is_shrunk=any(part.dataset_size is not None for part in asked),
        parts=tuple(parts),
        points=tuple(points),
        notes=tuple(notes),
    )


def _too_much() -> ConfigError:
    return ConfigError(f"these are more than {_MOST} measurements; vary less at a time, or repeat less (--repeat)")


def _part(asked: Asked, points: list[Point]) -> Part:
    base = plan.resolved(asked.workload.with_settings({}))
    fewest = min(points, key=lambda point: point.ranks).ranks
    usual = [point.number for point in points if point.ranks == fewest and _is_base(point, base, asked)]
    return Part(
        asked.name,
        asked.title,
        asked.axes,
        asked.zipped,
        asked.nodes,
        asked.ranks_per_node or (asked.site.ranks_per_node,),
        asked.weak,
        asked.metric,
        reference=usual[0] if usual else next(point.number for point in points if point.ranks == fewest),
        is_default=bool(usual),
    )


def _is_base(point: Point, base: Workload, asked: Asked) -> bool:
    """Is it the workload as it was before keys were varied? Its dataset may have been shrunk since."""
    same = {"files": base.dataset.files, "samples_per_file": base.dataset.samples_per_file}
    varied = any(axis.key.startswith(("dataset.files", "dataset.samples_per_file")) for axis in asked.axes)
    dataset = point.workload.dataset if varied else structs.replace(point.workload.dataset, **same)
    train = structs.replace(point.workload.train, steps=base.train.steps) if asked.weak else point.workload.train
    workload = structs.replace(point.workload, dataset=dataset, train=train)
    return point.layout == asked.site.layout and plan.resolved(workload) == base


def _points(asked: Asked, first: int, notes: dict[str, None]) -> Iterator[Point]:
    scales = _scales(asked)
    most = max(nodes * each for nodes, each in scales)
    number = first
    seen: dict[bytes, str] = {}
    for places in sweep.settings(asked.axes, asked.zipped):
        told = ", ".join(f"{axis.key}={axis.labels[places[axis.key]]}" for axis in asked.axes)
        try:
            workload, layout = _varied(asked, places)
            workload = _sized(asked, workload, most, notes)
            same = seen.setdefault(document.encode((plan.resolved(workload), layout)), told)
            if same != told:
                raise ConfigError(f"it comes to the same as {same}; vary it further apart, or without --dataset-size")
        except ConfigError as fault:
            raise ConfigError(f"{told}: {fault}" if told else str(fault)) from fault
        for nodes, each in scales:
            if number >= _MOST:
                raise _too_much()
            yield Point(number, asked.name, places, nodes, each, workload, layout)
            number += 1


def _scales(asked: Asked) -> list[tuple[int, int]]:
    """Nodes and ranks a node."""
    scales = [(nodes, each) for nodes in asked.nodes for each in asked.ranks_per_node or (asked.site.ranks_per_node,)]
    if len(set(scales)) < len(scales):
        raise ConfigError("--nodes, --ppn: each number once")
    if asked.zipped and len(asked.axes) < 2:
        raise ConfigError("--zip goes with two -P or more (in a study file zip with two keys that vary)")
    if asked.weak and len(scales) < 2:
        raise ConfigError("--weak goes with several --nodes or several --ppn (in a study file with ranks_per_node)")
    return scales


def _sized(asked: Asked, workload: Workload, most: int, notes: dict[str, None]) -> Workload:
    """With the dataset, and the steps, that all scales have in common; `most` ranks are the largest of them."""
    if asked.dataset_size is not None:
        notes |= dict.fromkeys(_size_notes(workload, asked.dataset_size))
        workload = shrunk(workload, asked.dataset_size, most)
    if asked.weak:
        _check_weak(workload)
        workload = _weak(workload, most)
        notes |= dict.fromkeys(_weak_notes(workload, most))
    return workload


def _varied(asked: Asked, places: dict[str, int]) -> tuple[Workload, Layout | None]:
    values = {axis.key: axis.values[places[axis.key]] for axis in asked.axes if not axis.is_layout}
    of_layout = {axis.key: axis.values[places[axis.key]] for axis in asked.axes if axis.is_layout}
    return asked.workload.with_settings(values), _layout(asked.site, of_layout)


def _layout(site: Site, settings: dict[str, Any]) -> Layout | None:
    if not settings:
        return site.layout
    data = {"layout": document.plain(site.layout)}
    for key, value in settings.items():
        document.put(data, key.removeprefix("site."), value, f"{key}={value}")
    return document.convert(data["layout"], Layout, "site.layout") if data["layout"] is not None else None


def _check_weak(workload: Workload) -> None:
    if workload.reader.load == "memory" and workload.reader.shard:
        raise ConfigError(
            "--weak: reader.load: memory loads a rank's whole share, which is smaller on more ranks; use "
            "reader.load: on_demand, or leave --weak out"
        )


def _weak(workload: Workload, most: int) -> Workload:
    """Each rank does on few nodes the steps that it has on the most, so that one dataset serves all."""
    steps = plan.steps_per_epoch(workload, most)
    return structs.replace(workload, train=structs.replace(workload.train, steps=max(1, steps)))


def _weak_notes(workload: Workload, most: int) -> Iterator[str]:
    share, whole = workload.dataset.samples / most, (workload.train.steps or 0) * workload.reader.batch_size
    if workload.reader.shard and share < whole:
        yield (
            f"--weak: on the most ranks each reads {share:.4g} samples an epoch, on fewer {whole}; for the same, make "
            f"dataset.samples_per_file x dataset.files {whole * most}"
        )


def _size_notes(workload: Workload, size: int) -> Iterator[str]:
    if size > workload.dataset.size:
        whole = units.format_size(workload.dataset.size)
        yield f"--dataset-size only shrinks: {workload.name} has {whole}; for more, set dataset.files"


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """How large something in a study file is, and with which keys of the workload (or of site.layout) `set`; None: not
    said here.
    """

    set: dict[str, Any] = {}
    nodes: tuple[Positive, ...] | Positive | str | None = None
    ranks_per_node: tuple[Positive, ...] | Positive | str | None = None
    dataset_size: units.Size | None = None


class Shrunk(Scale, frozen=True, forbid_unknown_fields=True):
    """What is different where the study is tried at home. sweep: a key's values there; other keys vary as they do."""

    sweep: dict[str, Any] = {}


class PartFile(Scale, frozen=True, forbid_unknown_fields=True):
    """A part in a study file. sweep: a list or a range for each key that varies."""

    workload: str | None = None
    title: str = ""
    sweep: dict[str, Any] = {}
    zip: bool = False
    weak: bool = False
    metric: Metric = "samples_per_s"
    laptop: Shrunk = Shrunk()


class StudyFile(Scale, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A study as its YAML file says it; what stands beside the parts is said for all of them."""

    name: str
    parts: dict[str, PartFile]
    description: str = ""
    source: str = ""
    workload: str | None = None
    repeat: Positive = 3
    warmup: Annotated[int, Meta(ge=0)] = 0
    laptop: Scale = Scale()

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts: a study has at least one")
        for name, part in self.parts.items():
            if part.workload is None and self.workload is None:
                raise ValueError(f"parts.{name} has no workload")


def load(name: str) -> StudyFile:
    """A shipped study file, or one by its path; workloads that lie beside it are found there."""
    path = shipped.find(shipped.STUDIES, name)
    data = document.read_yaml(path)
    parts = data.get("parts") if isinstance(data, dict) else None
    for part_name, part in parts.items() if isinstance(parts, dict) else ():
        document.convert(part, PartFile, f"{path}: parts.{part_name}")  # or its name would not be told
    file = document.convert(data, StudyFile, str(path))
    near = {name: structs.replace(part, workload=_beside(path, part.workload)) for name, part in file.parts.items()}
    return structs.replace(file, workload=_beside(path, file.workload), parts=near)


def _beside(path: Path, workload: str | None) -> str | None:
    """The workload's file, where its name is one relative to the study file at `path`."""
    if workload is None or not workload.endswith((".yaml", ".yml")) or not (path.parent / workload).exists():
        return workload
    return str(path.parent.absolute() / workload)


class Changes(Struct, frozen=True):
    """What a user wants otherwise than the study file has it; None: as it is there. full: as large as it is written,
    not as on a laptop.
    """

    full: bool = False
    overrides: tuple[str, ...] = ()
    nodes: tuple[int, ...] | None = None
    ranks_per_node: tuple[int, ...] | None = None
    dataset_size: int | None = None


def asked_of(file: StudyFile, site: Site, changes: Changes) -> list[Asked]:
    """The parts of a study file, each after what is said for all, smaller for a laptop, and as the user wants it."""
    return [_asked_of(name, part, file, site, changes) for name, part in file.parts.items()]


def _asked_of(name: str, part: PartFile, file: StudyFile, site: Site, changes: Changes) -> Asked:
    layers: list[Scale] = [file, part, *([] if changes.full else [file.laptop, part.laptop])]
    settings = {key: value for layer in layers for key, value in layer.set.items()}
    for key in settings:
        sweep.check_site_key(key, f"{file.name}: parts.{name}.set.{key}")
    layout = {key: value for key, value in settings.items() if key.startswith("site.")}
    swept = part.sweep if changes.full else part.sweep | part.laptop.sweep
    source = f"{file.name}: parts.{name}"
    return Asked(
        workload=draft(
            part.workload or file.workload or "",
            changes.overrides,
            {key: value for key, value in settings.items() if key not in layout},
        ),
        site=structs.replace(site, layout=_layout(site, layout)),
        axes=tuple(sweep.axis_of(key, values, f"{source}.sweep.{key}") for key, values in swept.items()),
        zipped=part.zip,
        nodes=changes.nodes or _counts(layers, "nodes", source) or (1,),
        # Who names nodes scales over those, not over the ranks of a laptop.
        ranks_per_node=changes.ranks_per_node or _counts(layers[: 2 if changes.nodes else 4], "ranks_per_node", source),
        weak=part.weak,
        dataset_size=changes.dataset_size or _last(layer.dataset_size for layer in layers),
        metric=part.metric,
        name=name,
        title=part.title,
    )


def _counts(layers: Sequence[Scale], key: str, source: str) -> tuple[int, ...]:
    given = _last(getattr(layer, key) for layer in layers)
    return () if given is None else sweep.counts(list(given) if isinstance(given, tuple) else given, f"{source}.{key}")


def _last(values: Iterable[T | None]) -> T | None:
    """The last that is said."""
    return [None, *(value for value in values if value is not None)][-1]
