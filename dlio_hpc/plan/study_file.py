"""A study file: the parts of a study as YAML says them, at full size and as they are tried on a laptop."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, structs

from dlio_hpc import document, units
from dlio_hpc.config import shipped
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import draft
from dlio_hpc.metrics import MetricName
from dlio_hpc.plan import sweep
from dlio_hpc.plan.study import Asked, Judging, Positive, layout_of

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
    """Values of a key on a laptop; other keys vary as they do. Example: {reader.read_threads: [1, 2]}"""


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
    """Weak scaling: each rank takes as many steps on few nodes as on many."""
    metric: MetricName = "samples_per_s"
    """MetricName by which points are compared."""
    laptop: Shrunk = Shrunk()
    """What is smaller without --full on the local site."""


class StudyFile(Scale, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A study file. What stands beside the parts applies to all of them."""

    name: str
    """Name of the study. Example: mine"""
    parts: dict[str, PartFile]
    """Parts by their names."""
    description: str = ""
    """A line for lists."""
    source: str = ""
    """Where the experiment comes from."""
    workload: str | None = None
    """Workload of the parts that name none. Example: demo"""
    repeat: Positive = 3
    """Measurements of each point."""
    warmup: Annotated[int, Meta(ge=0)] = 0
    """Warm-up runs of each dataset."""
    warmup_set: dict[str, Any] = {}
    """Keys with other values in warm-ups. Example: {reader.verify_content: all}"""
    laptop: Scale = Scale()
    """What is smaller without --full on the local site."""
    verdict: Judging | None = None
    """Criteria at the end; a study with a verdict is a suite."""

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts: a study has at least one")
        for key in self.warmup_set:
            if key.startswith(("dataset", "site.")):
                raise ValueError(
                    f"warmup_set: {key} is the same in warm-ups and measurements, which read the same dataset"
                )
        for name, part in self.parts.items():
            if part.workload is None and self.workload is None:
                raise ValueError(f"parts.{name} has no workload")


def load(name: str) -> StudyFile:
    """A shipped study file, or any by its path, suites too; workloads that lie beside it are found there."""
    path = shipped.find(shipped.STUDIES, name)
    file = document.read_named(path, StudyFile, "parts", PartFile)
    near = {name: structs.replace(part, workload=_beside(path, part.workload)) for name, part in file.parts.items()}
    verdict = file.verdict and structs.replace(file.verdict, criteria=_beside(path, file.verdict.criteria))
    return structs.replace(file, workload=_beside(path, file.workload), parts=near, verdict=verdict)


def _beside(path: Path, name: str | None) -> str | None:
    """The file of a workload or criteria, where its name is one relative to the study file at `path`."""
    if name is None or not name.endswith((".yaml", ".yml")) or not (path.parent / name).exists():
        return name
    return str(path.parent.absolute() / name)


class Changes(Struct, frozen=True):
    """What a user wants otherwise than the study file has it; None: as it is there. full: as large as it is written,
    not as on a laptop. folders: on the two file systems that are to be compared.
    """

    full: bool = False
    overrides: tuple[str, ...] = ()
    nodes: tuple[int, ...] | None = None
    ranks_per_node: tuple[int, ...] | None = None
    dataset_size: int | None = None
    folders: tuple[str, ...] = ()


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
        site=structs.replace(site, layout=layout_of(site, layout)),
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
        folders=changes.folders,
    )


def _counts(layers: Sequence[Scale], key: str, source: str) -> tuple[int, ...]:
    given = _last(getattr(layer, key) for layer in layers)
    return () if given is None else sweep.counts(list(given) if isinstance(given, tuple) else given, f"{source}.{key}")


def _last(values: Iterable[T | None]) -> T | None:
    """The last that is said."""
    return [None, *(value for value in values if value is not None)][-1]
