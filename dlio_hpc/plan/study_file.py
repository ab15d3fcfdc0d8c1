"""A study file: the parts of a study in YAML, at full size and at laptop size."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, structs

from dlio_hpc import document, units
from dlio_hpc.config import shipped
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import draft
from dlio_hpc.plan import sweep
from dlio_hpc.plan.study import Judging, PartRequest, Positive, layout_of
from dlio_hpc.results.metrics import MetricName

T = TypeVar("T")


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """Scale of a study, a part or its laptop form, and keys that it sets; null: not given here."""

    set: dict[str, Any] = {}
    """Keys of the workload, or of site.layout, with their values. Example: {reader.batch_size: 4}"""
    nodes: tuple[Positive, ...] | Positive | str | None = None
    """Numbers of nodes. Example: [1, 4, 16]"""
    ranks_per_node: tuple[Positive, ...] | Positive | str | None = None
    """Numbers of ranks on a node. Example: [4]"""
    dataset_size: units.Size | None = None
    """Size of the dataset. Example: 256 MiB"""


class Shrunk(Scale, frozen=True, forbid_unknown_fields=True):
    """Values of a part on a laptop."""

    sweep: dict[str, Any] = {}
    """Values of a key on a laptop; other keys vary as in the part. Example: {reader.read_threads: [1, 2]}"""


class PartFile(Scale, frozen=True, forbid_unknown_fields=True):
    """A part of a study."""

    workload: str | None = None
    """Workload of the part. Example: cosmoflow"""
    title: str = ""
    """Title in reports."""
    sweep: dict[str, Any] = {}
    """Keys that vary, each with a list or a range. Example: {reader.transfer_size: 64 KiB..16 MiB*4}"""
    zip: bool = False
    """Pair the lists instead of combining them."""
    weak: bool = False
    """Weak scaling: each rank takes the same number of steps at every scale."""
    metric: MetricName = "samples_per_s"
    """Metric by which points are compared."""
    laptop: Shrunk = Shrunk()
    """Smaller values for runs on the local site without --full."""


class StudyFile(Scale, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A study file. Keys outside the parts apply to all of them."""

    name: str
    """Name of the study. Example: mine"""
    parts: dict[str, PartFile]
    """Parts by their names."""
    description: str = ""
    """Short description, shown in lists."""
    source: str = ""
    """Source of the experiment."""
    workload: str | None = None
    """Workload of parts without one. Example: demo"""
    repeat: Positive = 3
    """Measurements of each point."""
    warmup: Annotated[int, Meta(ge=0)] = 0
    """Warm-up runs of each dataset."""
    warmup_set: dict[str, Any] = {}
    """Keys with other values in warm-ups. Example: {reader.verify_content: all}"""
    laptop: Scale = Scale()
    """Smaller values for runs on the local site without --full."""
    verdict: Judging | None = None
    """Criteria at the end. A study with a verdict is a suite."""

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts: a study needs at least one")
        for key in self.warmup_set:
            if key.startswith(("dataset", "site.")):
                raise ValueError(
                    f"warmup_set: {key} is the same in warm-ups and measurements, which read the same dataset"
                )
        for name, part in self.parts.items():
            if part.workload is None and self.workload is None:
                raise ValueError(f"parts.{name} has no workload")


def load(name: str) -> StudyFile:
    """Read a shipped study or suite, or a file by its path. Workloads next to the file are resolved to their paths."""
    path = shipped.find(shipped.STUDIES, name)
    file = document.read_named(path, StudyFile, "parts", PartFile)
    near = {name: structs.replace(part, workload=_near(path, part.workload)) for name, part in file.parts.items()}
    verdict = file.verdict and structs.replace(file.verdict, criteria=_near(path, file.verdict.criteria))
    return structs.replace(file, workload=_near(path, file.workload), parts=near, verdict=verdict)


def _near(path: Path, name: str | None) -> str | None:
    """Return the path of a workload or criteria file whose name is relative to the study file at `path`."""
    if name is None or not name.endswith((".yaml", ".yml")) or not (path.parent / name).exists():
        return name
    return str(path.parent.absolute() / name)


class FileChanges(Struct, frozen=True):
    """Values from the command line that replace those of the study file; None: unchanged. full: full size instead of
    laptop size. folders: on the two file systems to be compared.
    """

    full: bool = False
    overrides: tuple[str, ...] = ()
    nodes: tuple[int, ...] | None = None
    ranks_per_node: tuple[int, ...] | None = None
    dataset_size: int | None = None
    folders: tuple[str, ...] = ()


def asked_of(file: StudyFile, site: Site, changes: FileChanges) -> list[PartRequest]:
    """Return the parts of a study file, with common settings, laptop sizes and the user's changes applied in this
    order.
    """
    return [_asked_of(name, part, file, site, changes) for name, part in file.parts.items()]


def _asked_of(name: str, part: PartFile, file: StudyFile, site: Site, changes: FileChanges) -> PartRequest:
    layers: list[Scale] = [file, part, *([] if changes.full else [file.laptop, part.laptop])]
    settings = {key: value for layer in layers for key, value in layer.set.items()}
    for key in settings:
        sweep.check_site_key(key, f"{file.name}: parts.{name}.set.{key}")
    layout = {key: value for key, value in settings.items() if key.startswith("site.")}
    swept = part.sweep if changes.full else part.sweep | part.laptop.sweep
    source = f"{file.name}: parts.{name}"
    return PartRequest(
        workload=draft(
            part.workload or file.workload or "",
            changes.overrides,
            {key: value for key, value in settings.items() if key not in layout},
        ),
        site=structs.replace(site, layout=layout_of(site, layout)),
        axes=tuple(sweep.axis_of(key, values, f"{source}.sweep.{key}") for key, values in swept.items()),
        zipped=part.zip,
        nodes=changes.nodes or _counts(layers, "nodes", source) or (1,),
        # With --nodes the study scales over nodes, not over the laptop's ranks per node.
        ranks_per_node=changes.ranks_per_node or _counts(layers[: 2 if changes.nodes else 4], "ranks_per_node", source),
        weak=part.weak,
        dataset_size=changes.dataset_size or _last(layer.dataset_size for layer in layers),
        metric=part.metric,
        name=name,
        title=part.title,
        folders=changes.folders,
    )


def _counts(layers: Sequence[Scale], key: str, source: str) -> tuple[int, ...]:
    given = _last(getattr(layer, key) for layer in layers)
    return () if given is None else sweep.counts(list(given) if isinstance(given, tuple) else given, f"{source}.{key}")


def _last(values: Iterable[T | None]) -> T | None:
    """Return the last value that is not None, or None."""
    return [None, *(value for value in values if value is not None)][-1]
