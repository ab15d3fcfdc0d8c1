"""A study file: the parts of a study as YAML says them, at full size and as they are tried on a laptop."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, structs

from dlio_hpc import document, units
from dlio_hpc.config import shipped
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import draft
from dlio_hpc.plan import sweep
from dlio_hpc.plan.study import Asked, Judging, Metric, Positive, layout_of

T = TypeVar("T")


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
    """A study as its YAML file says it; what stands beside the parts is said for all of them. source: for who reads the
    file. warmup_set: keys of the workload with other values in warm-ups. verdict: criteria at its end; a study with a
    verdict is a suite.
    """

    name: str
    parts: dict[str, PartFile]
    description: str = ""
    source: str = ""
    workload: str | None = None
    repeat: Positive = 3
    warmup: Annotated[int, Meta(ge=0)] = 0
    warmup_set: dict[str, Any] = {}
    laptop: Scale = Scale()
    verdict: Judging | None = None

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
