"""Search for the files shipped with the package: templates/, site_profiles/ and share/. They are in different folders
in a checkout and in a pip installation. YAML files are looked up by name, first in the folders of the user and of the
facility.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError, name_hint, nearest_name
from dlio_hpc.config import search_path
from dlio_hpc.files import path_kinds, url

T = TypeVar("T")

SITES, WORKLOADS, STUDIES = Path("site_profiles"), Path("share", "workloads"), Path("share", "studies")
CRITERIA, SUITES = Path("share", "criteria"), Path("share", "suites")
REFERENCES = Path("share", "reference")
# Files for other programs of a site: CI systems, schedulers, package managers, dashboards.
EXAMPLES = Path("share", "examples")
_KINDS = {
    WORKLOADS: "workload", STUDIES: "study", SUITES: "suite", SITES: "site", CRITERIA: "criteria",
    REFERENCES: "reference",
}  # fmt: skip
_EXPECTED = {
    **{kind: f"a {name}" for kind, name in _KINDS.items()}, SITES: "a site profile (option -s)",
    REFERENCES: "a reference profile",
}  # fmt: skip
_YAML = (".yaml", ".yml")
# Keys by which a file of each kind is recognised, and how it is given on the command line.
_SIGNS = {
    WORKLOADS: ({"dataset", "reader", "checkpoint", "metadata"}, "a workload; dlio-submit runs it"),
    SITES: ({"scheduler", "launcher"}, "a site profile; --site of dlio-submit takes it"),
    SUITES: ({"verdict"}, "a suite; --suite of dlio-submit takes it"),
    STUDIES: ({"parts", "sweep"}, "a study; give it to dlio-submit with --study"),
    REFERENCES: ({"profiles"}, "a file of reference profiles; dlio-hpc similarity takes it"),
    CRITERIA: ({"criteria"}, "a file of criteria; give it to dlio-hpc accept with --criteria"),
}
# Keys of workload files of dlio_benchmark only.
_FOREIGN = {"framework", "workflow"}
_MARK = Path("templates", "job.sh.j2")


def root() -> Path:
    """Return the folder that holds templates/, site_profiles/ and share/."""
    for folder in _candidates():
        if (folder / _MARK).is_file():
            return folder
    raise InfrastructureError("dlio-hpc's templates and site profiles are not installed; reinstall the package")


def files(folder: Path) -> dict[str, Path]:
    """Return the paths of all YAML files of a kind, such as workloads, by name. folder: kind of the files, as one of
    the constants SITES, WORKLOADS, STUDIES, CRITERIA, SUITES and REFERENCES. Files of the user and of the facility
    replace shipped files of the same name.
    """
    known: dict[str, Path] = {}
    for place in (*(own / folder.name for own in search_path.folders()), root() / folder):
        for path in sorted(place.glob("*.yaml")):
            known.setdefault(path.stem, path)
    return known


def names(folder: Path) -> list[str]:
    """Return the sorted names of all YAML files of a kind. folder: kind of the files, as for files()."""
    return sorted(files(folder))


def origin(path: Path) -> str:
    """Return a description of the origin of a YAML file: the folder of the user or of the facility that holds it, and
    whether the file replaces a shipped one. Return "" for a shipped file.
    """
    home = root()
    if path.is_relative_to(home):
        return ""
    shipped = any((home / folder / path.name).is_file() for folder in _KINDS if folder.name == path.parent.name)
    return f"{path.parent.parent}{', instead of the shipped one' if shipped else ''}"


# Maximum number of bytes of a file name (NAME_MAX of Linux).
_LONGEST_NAME = 255


def find(folder: Path, name: str) -> Path:
    """Return the path of a YAML file. name: name or path of the file. A path is returned unchanged, even if the file
    does not exist and no other is likely to be meant. folder: kind of the file, as for files(). Raise ConfigError for
    an unknown name; the message lists the known names.
    """
    try:
        url.refuse(name)
    except ValueError as fault:
        raise ConfigError(f"{_KINDS[folder]}: {fault}") from fault
    if max(map(len, os.fsencode(name).split(b"/"))) > _LONGEST_NAME:
        raise ConfigError(f"no {_KINDS[folder]} {name[:40]}...: a name has at most {_LONGEST_NAME} bytes")
    if "/" not in name and (path := files(folder).get(name)) is not None:
        return path
    if name.endswith(_YAML):
        _refuse_missing(folder, Path(name))
        return Path(name)
    path_kinds.refuse_other(Path(name), f"{_EXPECTED[folder]}: give a YAML file or a name")
    if "/" in name or Path(name).is_file():
        return Path(name)
    if Path(name).is_dir():
        raise ConfigError(f"no {_KINDS[folder]} {name!r}: {name} is a folder; give a YAML file")
    for own in search_path.folders():
        search_path.refuse_other_suffix(own / folder.name / f"{name}.yaml")
    known = f"give a YAML file or one of: {', '.join(names(folder))}"
    raise ConfigError(f"no {_KINDS[folder]} {name!r}; {_hint(folder, name)}{known}")


def _refuse_missing(folder: Path, path: Path) -> None:
    """Raise ConfigError if a YAML file does not exist, but there is one with a similar name in its folder, or one of
    the known files has its name without the suffix.
    """
    if os.path.lexists(path):
        return
    nearby = [other.name for other in path.parent.glob("*") if other.suffix in _YAML]
    same = next((other for other in nearby if Path(other).stem == path.stem), None)
    if same is None and path.stem in names(folder):
        raise ConfigError(
            f"cannot read {path}: there is no such file; did you mean the {_KINDS[folder]} {path.stem!r}?"
        )
    if (meant := same or nearest_name(path.name, nearby)) is not None:
        raise ConfigError(f"cannot read {path}: there is no such file; did you mean {str(path.parent / meant)!r}?")


def read(folder: Path, path: Path, kind: type[T]) -> T:
    """Read a YAML file as the struct `kind`. folder: kind of the file, as for files(). Raise ConfigError with the line
    and the key if a value is invalid.
    """
    data = serialization.read_yaml(path)
    check_kind(folder, path, data)
    return serialization.convert_changed(data, kind, str(path))


def check_kind(folder: Path, path: Path, data: object) -> None:
    """Raise ConfigError if a YAML file is of another kind than expected. folder: expected kind, as for files()."""
    if not isinstance(data, dict):
        return
    signs, _ = _SIGNS[folder]
    if _FOREIGN & data.keys() and (folder == WORKLOADS or not signs & data.keys()):
        raise ConfigError(f"{path} is a workload of dlio_benchmark; give it as dlio:{_as_path(path)}")
    if not signs & data.keys():
        for others, text in _SIGNS.values():
            if others & data.keys() and not (folder == STUDIES and "verdict" in others):
                raise ConfigError(f"{path} is {text}. This command needs {_EXPECTED[folder]}")


def _as_path(path: Path) -> str:
    return str(path) if path.parent.name else f"./{path}"


def _hint(folder: Path, name: str) -> str:
    """Return a suggestion for an unknown name: a similar name of the same kind or, if there is none, of another kind.
    Return "" if no name is similar.
    """
    if name == "-":
        return "to read the file from a pipe, give /dev/stdin; "
    if (nearby := next((name + suffix for suffix in _YAML if Path(name + suffix).is_file()), None)) is not None:
        return f"did you mean './{nearby}'? "
    if hint := name_hint(name, names(folder)):
        return hint
    kinds = {kind: nearest_name(name, names(place)) for place, kind in _KINDS.items() if place != folder}
    return next((f"did you mean the {kind} {meant!r}? " for kind, meant in kinds.items() if meant), "")


def _candidates() -> Iterator[Path]:
    package = Path(__file__).resolve().parents[1]
    yield package.parent  # a checkout, also an editable install
    yield package.parent / "share" / "dlio-hpc"  # pip install --target
    if len(package.parents) > 3:
        yield package.parents[3] / "share" / "dlio-hpc"  # PREFIX/lib/pythonX.Y/site-packages/dlio_hpc
    from importlib import metadata  # slow import, needed only for unusual install layouts

    try:
        files = metadata.files("dlio-hpc") or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.parts[-2:] == _MARK.parts:
            yield Path(str(file.locate())).resolve().parent.parent
