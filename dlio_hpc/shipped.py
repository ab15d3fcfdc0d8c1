"""Where templates/, site_profiles/ and share/ lie: beside a checkout, or where pip put the data files."""

from collections.abc import Iterator
from pathlib import Path

from dlio_hpc import near, url
from dlio_hpc.errors import ConfigError, InfrastructureError

SITES, WORKLOADS, STUDIES = Path("site_profiles"), Path("share", "workloads"), Path("share", "studies")
CRITERIA, SUITES = Path("share", "criteria"), Path("share", "suites")
REFERENCES = Path("share", "reference")
_KINDS = {
    WORKLOADS: "workload", STUDIES: "study", SUITES: "suite", SITES: "site", CRITERIA: "criteria",
    REFERENCES: "reference",
}  # fmt: skip
_MARK = Path("templates", "job.sh.j2")


def root() -> Path:
    """The folder that holds templates/, site_profiles/ and share/."""
    for folder in _candidates():
        if (folder / _MARK).is_file():
            return folder
    raise InfrastructureError("dlio-hpc's templates and site profiles are not installed; reinstall the package")


def names(folder: Path) -> list[str]:
    """What SITES, WORKLOADS, STUDIES, CRITERIA, SUITES or REFERENCES holds."""
    return sorted(path.stem for path in (root() / folder).glob("*.yaml"))


def find(folder: Path, name: str) -> Path:
    """The YAML file of a shipped name, or of a path; ConfigError lists the names."""
    try:
        url.refuse(name)
    except ValueError as fault:
        raise ConfigError(f"{_KINDS[folder]}: {fault}") from fault
    shipped = root() / folder / f"{name}.yaml"
    if "/" not in name and shipped.is_file():
        return shipped
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    known = f"give a YAML file or one of: {', '.join(names(folder))}"
    raise ConfigError(f"no {_KINDS[folder]} {name!r}; {_hint(folder, name)}{known}")


def _hint(folder: Path, name: str) -> str:
    """A suggestion for an unknown name, of the same kind or else of another; empty where no name is near."""
    if hint := near.hint(name, names(folder)):
        return hint
    kinds = {kind: near.nearest(name, names(other)) for other, kind in _KINDS.items() if other != folder}
    return next((f"did you mean the {kind} {meant!r}? " for kind, meant in kinds.items() if meant), "")


def _candidates() -> Iterator[Path]:
    package = Path(__file__).resolve().parent
    yield package.parent  # a checkout, also an editable install
    yield package.parent / "share" / "dlio-hpc"  # pip install --target
    if len(package.parents) > 3:
        yield package.parents[3] / "share" / "dlio-hpc"  # PREFIX/lib/pythonX.Y/site-packages/dlio_hpc
    from importlib import metadata  # slow to import, and only unusual install layouts need it

    try:
        files = metadata.files("dlio-hpc") or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.parts[-2:] == _MARK.parts:
            yield Path(str(file.locate())).resolve().parent.parent
