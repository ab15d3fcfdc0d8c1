"""Reference profiles: I/O metrics of programs, read from a YAML file."""

from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Number = Annotated[float, Meta(ge=0)]
Percent = Annotated[float, Meta(ge=0, le=100)]


class ProfileSpread(Struct, frozen=True, forbid_unknown_fields=True):
    """Statistics of a value over individual requests. A statistic is None if it is unknown."""

    min: Number | None = None
    max: Number | None = None
    mean: Number | None = None
    median: Number | None = None

    def __post_init__(self) -> None:
        for name in ("min", "mean", "median"):
            value = getattr(self, name)
            if value is not None and self.max is not None and value > self.max:
                raise ValueError(f"{name} {value:g} is more than max {self.max:g}")


class ReferenceProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics of a program, in the units that the names of their keys give. A metric is None if it is unknown.
    io_time_s: I/O time, as the mean over ranks. data_accessed_gib: data read and written by all ranks. request_bytes:
    sizes of individual requests. bandwidth_per_op_MBps: bandwidth of individual requests (MB is 1e6 bytes).
    sequential_pct, consecutive_pct: shares of all requests, as Darshan counts them. bytes_per_sample: mean size of a
    sample of the dataset. note: limitations of the data that the user must know about.
    """

    job_time_s: Number | None = None
    io_time_s: Number | None = None
    data_accessed_gib: Number | None = None
    files: Natural | None = None
    ranks: Positive | None = None
    request_bytes: ProfileSpread = ProfileSpread()
    bandwidth_per_op_MBps: ProfileSpread = ProfileSpread()
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
        values = [getattr(self, name) for name in self.__struct_fields__ if name not in ("note", "ranks", "job_time_s")]
        if all(value is None or value == ProfileSpread() for value in values):
            raise ValueError(
                "the profile has no metrics; give at least one, such as io_time_s, data_accessed_gib, files or "
                "request_bytes"
            )


class ProfileFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a reference file. profiles: metrics of each program, by its name."""

    profiles: dict[str, ReferenceProfile]
    description: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.profiles:
            raise ValueError("profiles: empty")


class Named(NamedTuple):
    """Metrics of a program in a reference file. title: FILE:NAME, as on the command line. name: name of the program.
    source: origin of the metrics.
    """

    title: str
    name: str
    source: str
    reference: ReferenceProfile


def is_reference(name: str) -> bool:
    """Return whether `name`, which the user gave, is the name of a reference file or of a profile in such a file."""
    stem, _, _ = _split(name)
    return stem.endswith((".yaml", ".yml")) or (not Path(name).exists() and stem in shipped.names(shipped.REFERENCES))


def load(name: str) -> list[Named]:
    """Load one profile, given as FILE:NAME, or all profiles of a file, given as FILE. FILE is a path of a YAML file or
    the name of a shipped file. Raise ConfigError with the file and the key if this fails.
    """
    stem, colon, wanted = _split(name)
    path = shipped.find(shipped.REFERENCES, stem)
    file = shipped.read(shipped.REFERENCES, path, ProfileFile)
    if colon and wanted not in file.profiles:
        raise ConfigError(f"{path} has no profile {wanted!r}; it has: {', '.join(file.profiles)}")
    return [
        Named(f"{stem}:{profile}", profile, file.source or str(path), reference)
        for profile, reference in file.profiles.items()
        if not colon or profile == wanted
    ]


def load_one(name: str) -> Named:
    """Load the profile with this name, or the only profile of a file. Raise ConfigError if the name is the name of a
    file with several profiles.
    """
    references = load(name)
    if len(references) > 1:
        names = ", ".join(reference.name for reference in references)
        raise ConfigError(f"{name} has several profiles ({names}); give one of them, such as {references[0].title}")
    return references[0]


def _split(name: str) -> tuple[str, str, str]:
    """Split FILE:NAME at its last colon, because FILE may contain colons. Return FILE, the colon and NAME. If there is
    no NAME, the colon and NAME are returned as empty strings.
    """
    stem, colon, wanted = name.rpartition(":")
    return (stem, colon, wanted) if colon and "/" not in wanted else (name, "", "")
