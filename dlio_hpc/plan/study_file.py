"""A study file: a YAML file with the parts of a study. It has full values, and smaller values that suit a laptop."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, name_hint
from dlio_hpc.config import shipped
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import draft
from dlio_hpc.plan import background, sweep
from dlio_hpc.plan.background import Background
from dlio_hpc.plan.mix import MixKeys, Share
from dlio_hpc.plan.study import Judging, PartRequest, Positive, layout_of
from dlio_hpc.results.metrics import MetricName

T = TypeVar("T")


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """Values that a study, a part, or a section `laptop` may set: numbers of nodes and ranks, dataset size, workload
    keys. null: not set here.
    """

    set: dict[str, Any] = {}
    """Keys of the workload or of site.layout to set, with their values. Example: {reader.batch_size: 4}"""
    nodes: tuple[Positive, ...] | Positive | str | None = None
    """Numbers of nodes to measure on. Example: [1, 4, 16]"""
    ranks_per_node: tuple[Positive, ...] | Positive | str | None = None
    """Numbers of ranks per node to measure with. Example: [4]"""
    dataset_size: units.LargeSize | None = None
    """Size to which the dataset is changed. Example: 256 MiB"""


# Keys of a part that users write into its sections `set` and `sweep`.
_OF_PARTS = frozenset(Scale.__struct_fields__) - {"set"}


class Shrunk(Scale, frozen=True, forbid_unknown_fields=True):
    """Replacement values that make a part of a study small enough for a laptop."""

    sweep: dict[str, Any] = {}
    """Replacement values for varied keys. A varied key that is not listed here keeps the values that the part gives it.
    Example: {reader.read_threads: [1, 2]}
    """


class PartFile(Scale, frozen=True, forbid_unknown_fields=True):
    """Keys of a part in a study file."""

    workload: str | None = None
    """Workload of the part. Example: cosmoflow"""
    title: str = ""
    """Title in reports."""
    sweep: dict[str, Any] = {}
    """Keys to vary, each with a list of values or a range. Example: {reader.transfer_size: 64 KiB..16 MiB*4}"""
    zip: bool = False
    """Measure the first values of all varied keys together, then the second values, and so on, instead of every
    combination.
    """
    weak: bool = False
    """Weak scaling: each rank takes the same number of steps at every number of ranks."""
    metric: MetricName | None = None
    """Metric that is compared between the points; null: samples_per_s. If the workload only writes checkpoints, null
    means checkpoint_write_MBps, or wall_s without fsync. Example: samples_per_s
    """
    mix: str = ""
    """Name of a mix. The parts with this name are its loads: they run at the same time, each on ranks of its own.
    Example: storm
    """
    share: Share = 1.0
    """Share of the ranks that the load has in its mix. Example: 0.5"""
    background: Background | None = None
    """A load of known strength in place of a workload. Example: {write_MBps: 200}"""
    data: str | None = None
    """Folder for the dataset and the checkpoints of a load; null: the folder of the study. Example: /flash/data"""
    laptop: Shrunk = Shrunk()
    """Values that suit a laptop, used without --full. A suite uses them on the local site only."""


class StudyFile(Scale, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A study file. Keys outside `parts` apply to all parts; a part may override them."""

    name: str
    """Name of the study. Example: mine"""
    parts: dict[str, PartFile]
    """Parts of the study, by name. Example: {threads: {sweep: {reader.read_threads: [1, 2, 4]}}}"""
    description: str = ""
    """Short description, shown in lists."""
    source: str = ""
    """Origin of the experiment, such as a section of a paper."""
    workload: str | None = None
    """Workload of the parts that do not set a workload. Example: demo"""
    repeat: Positive = 3
    """Number of measurements of each point."""
    warmup: Annotated[int, Meta(ge=0)] = 0
    """Number of warm-up runs of each dataset in each job, before the measurements."""
    warmup_set: dict[str, Any] = {}
    """Values of workload keys that apply to warm-up runs only; measured runs keep the values of the workload. Example:
    {reader.verify_content: all}
    """
    laptop: Scale = Scale()
    """Values that suit a laptop, used without --full. A suite uses them on the local site only."""
    verdict: Judging | None = None
    """Settings of the verdict at the end: criteria, and comparison with baselines. A study with a verdict
    is a suite.
    """
    mixes: MixKeys = MixKeys()
    """Rules of all mixes of the study."""

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts: a study needs at least one")
        for key in self.warmup_set:
            if key.startswith(("dataset", "site.")):
                raise ValueError(
                    f"warmup_set: {key} cannot differ in warm-ups, which read the same dataset as the measurements"
                )
        for name, part in self.parts.items():
            is_load = part.share != 1 or part.data is not None or part.background is not None
            if is_load and not part.mix:
                raise ValueError(
                    f"parts.{name}: share, data and background are keys of the loads of a mix; set mix, too"
                )
            if part.background is not None and (part.workload is not None or part.set or part.sweep):
                raise ValueError(f"parts.{name}: background replaces workload, set and sweep; leave them out")
            if part.workload is None and self.workload is None and part.background is None:
                raise ValueError(f"parts.{name} has no workload")
            for key in part.laptop.sweep:
                if part.sweep and key not in part.sweep:
                    names = ", ".join(part.sweep)
                    raise ValueError(
                        f"parts.{name}.laptop.sweep: {key} is not in the sweep of the part, which has {names}; "
                        "laptop.sweep can only replace the values of these keys"
                    )


def load(name: str) -> StudyFile:
    """Read a study file. name: name of a shipped study or suite, or path of a file. Names of workload files and
    criteria files next to the study file are replaced by their paths.
    """
    path = shipped.find(shipped.STUDIES, name)
    file = shipped.read(shipped.STUDIES, path, StudyFile)
    near = {name: structs.replace(part, workload=_near(path, part.workload)) for name, part in file.parts.items()}
    verdict = file.verdict and structs.replace(file.verdict, criteria=_criteria(path, file.verdict.criteria))
    return structs.replace(file, workload=_near(path, file.workload), parts=near, verdict=verdict)


def _near(path: Path, name: str | None) -> str | None:
    """Return the path of `name` if it is a YAML file next to the study file `path`; otherwise return `name`."""
    if name is None or not name.endswith((".yaml", ".yml")) or not (path.parent / name).exists():
        return name
    return str(path.parent.absolute() / name)


def _criteria(path: Path, name: str | None) -> str | None:
    """Return the path of the criteria file `name` if it is next to the study file `path`; otherwise return `name`.
    Raise ConfigError if there is no such file.
    """
    near = _near(path, name)
    if near is None or not near.endswith((".yaml", ".yml")) or Path(near).exists():
        return near
    sought, stem = path.parent.absolute() / near, Path(near).stem
    if stem in shipped.names(shipped.CRITERIA):
        hint = f"did you mean the criteria {stem!r}? "
    else:
        hint = name_hint(sought.name, [file.name for file in sought.parent.glob("*.y*ml") if file != path.absolute()])
    place = serialization.in_file(path, ("verdict", "criteria"))
    raise ConfigError(f"{place}: verdict.criteria: there is no file {sought}; {hint}correct its name")


class FileChanges(Struct, frozen=True):
    """Values from the command line that replace values of the study file. If a value is None, the value of the file
    remains. full: use the study's full values instead of its smaller values, which suit a laptop. folders: one folder
    on each of the two file systems to be compared; empty if no file systems are compared.
    """

    full: bool = False
    overrides: tuple[str, ...] = ()
    nodes: tuple[int, ...] | None = None
    ranks_per_node: tuple[int, ...] | None = None
    dataset_size: int | None = None
    folders: tuple[str, ...] = ()


def asked_of(file: StudyFile, site: Site, changes: FileChanges, path: Path | None = None) -> list[PartRequest]:
    """Return the requested parts of a study. The settings of a part come from four sources: the common settings of the
    file, the settings of the part, the smaller values for laptops, and `changes`. Later sources in this list replace
    earlier ones. The smaller values are left out if changes.full is set. path: path of the file, for messages.
    """
    return [_asked_of(name, part, file, site, changes, path) for name, part in file.parts.items()]


def _asked_of(
    name: str, part: PartFile, file: StudyFile, site: Site, changes: FileChanges, path: Path | None
) -> PartRequest:
    layers: list[Scale] = [file, part, *([] if changes.full else [file.laptop, part.laptop])]
    settings = {key: value for layer in layers for key, value in layer.set.items()}
    for key in settings:
        sweep.check_site_key(key, f"{file.name}: parts.{name}.set.{key}")
    layout = {key: value for key, value in settings.items() if key.startswith("site.")}
    swept = part.sweep if changes.full else part.sweep | part.laptop.sweep
    source = f"{file.name}: parts.{name}"
    for section, keys in {"set": settings, "sweep": part.sweep}.items():
        for key in _OF_PARTS.intersection(keys):
            with _placed(path or file.name, ("parts", name, section)):
                raise ConfigError(f"{key} is no key of a workload; write {key} next to {section}, not in it")
    for key in part.set.keys() & part.sweep.keys():
        raise ConfigError(f"{source}: {key} is in set and in sweep; leave one of them out")
    nodes = changes.nodes or _counts(layers, "nodes", name, path or file.name) or (1,)
    # With --nodes, the study scales over nodes, and not over the ranks per node of the `laptop` sections.
    ranks_per_node = changes.ranks_per_node or _counts(
        layers[: 2 if changes.nodes else 4], "ranks_per_node", name, path or file.name
    )
    workload, overrides = part.workload or file.workload or "", changes.overrides
    settings = {key: value for key, value in settings.items() if key not in layout}
    if part.background is not None:
        ranks = max(1, round(part.share * nodes[0] * (ranks_per_node or (site.ranks_per_node,))[0]))
        workload, settings = background.workload(part.background, ranks)
        overrides = ()  # they are meant for the workloads
    return PartRequest(
        workload=draft(workload, overrides, settings, f"{source}.set"),
        site=structs.replace(site, layout=layout_of(site, layout)),
        axes=tuple(_axis(("parts", name, "sweep", key), values, path or file.name) for key, values in swept.items()),
        zipped=part.zip,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        weak=part.weak,
        dataset_size=None
        if part.background is not None
        else changes.dataset_size or _last(layer.dataset_size for layer in layers),
        metric=part.metric,
        name=name,
        title=part.title,
        folders=changes.folders,
        mix=part.mix,
        share=part.share,
        data=part.data,
    )


def _axis(steps: tuple[str, ...], values: Any, source: Path | str) -> sweep.Axis:
    """Return the values of a key. steps: nested keys that lead to the values. source: path of the study file, or its
    name.
    """
    with _placed(source, steps):
        return sweep.axis_of(steps[-1], values, ".".join(steps))


@contextmanager
def _placed(source: Path | str, steps: tuple[str, ...]) -> Iterator[None]:
    """Begin the message of a ConfigError in the `with` block with the line of a key. For the arguments, see _axis()."""
    try:
        yield
    except ConfigError as fault:
        place = serialization.in_file(source, steps) if isinstance(source, Path) else source
        raise ConfigError(f"{place}: {fault}") from fault


def _counts(layers: Sequence[Scale], key: str, part: str, source: Path | str) -> tuple[int, ...]:
    """Return the numbers that the last of the layers sets. part: name of the part. source: as for _axis()."""
    places = ((), ("parts", part), ("laptop",), ("parts", part, "laptop"))
    given = {
        place: value for place, layer in zip(places, layers, strict=False) if (value := getattr(layer, key)) is not None
    }
    if not given:
        return ()
    place, values = list(given.items())[-1]
    steps = (*place, key)
    with _placed(source, steps):
        return sweep.counts(list(values) if isinstance(values, tuple) else values, ".".join(steps))


def _last(values: Iterable[T | None]) -> T | None:
    """Return the last value that is not None. Return None if all values are None."""
    return [None, *(value for value in values if value is not None)][-1]
