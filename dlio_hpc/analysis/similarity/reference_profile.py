"""What a program's I/O was like, out of a file: a profile that somebody measured and wrote down."""

from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from dlio_hpc import document
from dlio_hpc.config import shipped
from dlio_hpc.errors import ConfigError

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Number = Annotated[float, Meta(ge=0)]
Percent = Annotated[float, Meta(ge=0, le=100)]


class Spread(Struct, frozen=True, forbid_unknown_fields=True):
    """Of single requests; None: not told."""

    min: Number | None = None
    max: Number | None = None
    mean: Number | None = None
    median: Number | None = None

    def __post_init__(self) -> None:
        for name in ("min", "mean", "median"):
            value = getattr(self, name)
            if value is not None and self.max is not None and value > self.max:
                raise ValueError(f"{name} {value:g} is more than max {self.max:g}")


class Reference(Struct, frozen=True, forbid_unknown_fields=True):
    """One program's figures, in the units that their keys name; None: not known. io_time_s: in I/O, mean over ranks.
    data_accessed_gib: read and written by all ranks. request_bytes, bandwidth_per_op_MBps: of single requests (1e6
    bytes/s). sequential_pct, consecutive_pct: of all requests, as Darshan counts them. bytes_per_sample: dataset.
    note: what a reader must know before believing them.
    """

    job_time_s: Number | None = None
    io_time_s: Number | None = None
    data_accessed_gib: Number | None = None
    files: Natural | None = None
    ranks: Positive | None = None
    request_bytes: Spread = Spread()
    bandwidth_per_op_MBps: Spread = Spread()
    sequential_pct: Percent | None = None
    consecutive_pct: Percent | None = None
    bytes_per_sample: Number | None = None
    note: str = ""

    def __post_init__(self) -> None:
        both = self.sequential_pct, self.consecutive_pct
        if both[0] is not None and both[1] is not None and both[1] > both[0]:
            raise ValueError(
                f"consecutive_pct {both[1]:g} is more than sequential_pct {both[0]:g}, which it is a part of"
            )
        figures = [
            getattr(self, name) for name in self.__struct_fields__ if name not in ("note", "ranks", "job_time_s")
        ]
        if all(value is None or value == Spread() for value in figures):
            raise ValueError("it has no figures; give some of: io_time_s, data_accessed_gib, files, request_bytes, ...")


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of them, each by its name."""

    profiles: dict[str, Reference]
    description: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.profiles:
            raise ValueError("profiles: there is none")


class Named(NamedTuple):
    """title: FILE:NAME, as a user would write it. source: whose figures they are."""

    title: str
    name: str
    source: str
    reference: Reference


def is_reference(name: str) -> bool:
    """Does it name a file of references, or some in it, rather than a job or a log?"""
    stem, _, _ = _split(name)
    return stem.endswith((".yaml", ".yml")) or (not Path(name).exists() and stem in shipped.names(shipped.REFERENCES))


def load(name: str) -> list[Named]:
    """All of FILE.yaml, or of a shipped file by its name; of FILE:NAME that one. ConfigError names file and key."""
    stem, colon, wanted = _split(name)
    path = shipped.find(shipped.REFERENCES, stem)
    file = document.read_named(path, File, "profiles", Reference)
    if colon and wanted not in file.profiles:
        raise ConfigError(f"{path} has no profile {wanted!r}; it has: {', '.join(file.profiles)}")
    return [
        Named(f"{stem}:{each}", each, file.source or str(path), profile)
        for each, profile in file.profiles.items()
        if not colon or each == wanted
    ]


def load_one(name: str) -> Named:
    """The one that is named, or the only one of its file."""
    found = load(name)
    if len(found) > 1:
        titles = ", ".join(each.name for each in found)
        raise ConfigError(f"{name} has several profiles; say which: {found[0].title} (of {titles})")
    return found[0]


def _split(name: str) -> tuple[str, str, str]:
    """File and profile; a path may have colons of its own."""
    stem, colon, wanted = name.rpartition(":")
    return (stem, colon, wanted) if colon and "/" not in wanted else (name, "", "")
