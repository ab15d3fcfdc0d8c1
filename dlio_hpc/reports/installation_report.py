"""Facts about an installation that a maintainer needs: versions, MPI, site, file systems, and recent errors.

The report has no secrets. It includes only the environment variables of dlio-hpc and MPI. The values of variables with
names that look like secrets, and the account in defaults.yaml, are left out.
"""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dlio_hpc import __version__
from dlio_hpc.base import command, redaction, units
from dlio_hpc.base.errors import DlioError
from dlio_hpc.config import defaults, shipped, site
from dlio_hpc.config.scheduler_facts import SCHEDULERS
from dlio_hpc.config.site import Site
from dlio_hpc.files import filesystem, rundir
from dlio_hpc.records import job_outcome

Facts = list[tuple[str, str]]

# Python packages that dlio-hpc uses, required ones first.
_PACKAGES = (
    "click", "google-crc32c", "h5py", "jinja2", "msgspec", "numpy", "pyyaml", "rich", "zstandard", "mpi4py", "mpich",
    "matplotlib", "pandas", "pyarrow", "tensorflow", "tensorflow-cpu", "torch", "keras", "darshan",
)  # fmt: skip
_VARIABLES = ("DLIO_HPC_", "DARSHAN_", "LD_PRELOAD", "MPICH_", "OMPI_", "PYTHONPATH", "SLURM_CONF", "VIRTUAL_ENV")
# Name of the fact that states why a section failed.
UNKNOWN = "unknown"
# Seconds to wait for a command that tells its version, and numbers of jobs and bug reports that are shown.
_PATIENCE_S, _JOBS, _BUGS = 10, 5, 3


def sections(name: str | None, data: Path | None, runs: Path) -> Iterator[tuple[str, Facts]]:
    """Yield the sections of the report, each with its facts. name: site profile; None for the profile of this host.
    data: folder for datasets; None for the folder of the site profile. runs: folder of jobs. If a section fails, it
    states the reason.
    """
    parts: dict[str, Callable[[], Facts]] = {
        "dlio-hpc": _program, "packages": _packages, "site": lambda: _site(name), "MPI": lambda: _mpi(name),
        "file systems": lambda: _file_systems(name, data, runs), "defaults": _defaults, "environment": _environment,
        "jobs with errors": lambda: _jobs(runs), "bug reports": lambda: _bugs(runs),
    }  # fmt: skip
    for title, facts in parts.items():
        try:
            yield title, [(fact, _redacted(text)) for fact, text in facts()]
        except (DlioError, OSError) as fault:
            yield title, [(UNKNOWN, _redacted(str(fault)))]


def _redacted(text: str) -> str:
    """Return a text on one line without user names and passwords in URLs."""
    return redaction.without_users(" ".join(text.split()))


def _program() -> Facts:
    libc = " ".join(platform.libc_ver())
    return [
        ("version", __version__), ("installed in", str(Path(__file__).parents[1])),
        ("shipped files", str(shipped.root())),
        ("Python", f"{platform.python_version()}, {sys.executable}"), ("system", f"{platform.platform()}, {libc}"),
        ("time", units.utc_now()),
    ]  # fmt: skip


def _packages() -> Facts:
    return [(package, _version(package)) for package in _PACKAGES]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _profile(name: str | None) -> tuple[str, Site]:
    """Return the name of the site profile that is used, and the profile."""
    known = defaults.load()
    used = name or (known["site"].value if "site" in known else site.here())
    return used, site.resolved(site.load(used))


def _site(name: str | None) -> Facts:
    used, profile = _profile(name)
    path = shipped.find(shipped.SITES, used)
    facts = [("profile", used), ("file", str(path)), ("scheduler", profile.scheduler)]
    if question := SCHEDULERS[profile.scheduler].version:
        facts.append(("batch system", _answer(*question)))
    return [
        *facts,
        ("launcher", profile.launcher.command),
        ("Darshan", profile.darshan or "no libdarshan in the profile"),
    ]


def _mpi(name: str | None) -> Facts:
    _, profile = _profile(name)
    python = profile.python or sys.executable
    library = "from mpi4py import MPI; print(MPI.Get_library_version())"
    return [
        ("library of the ranks", _answer(python, "-c", library)),
        ("launcher", _answer(profile.launcher.command, "--version")),
    ]


def _answer(*arguments: str) -> str:
    """Return the first two lines that a command prints, or the reason why it prints nothing."""
    try:
        answer = command.ask(*arguments, patience_s=_PATIENCE_S)
    except DlioError as fault:
        return f"unknown: {fault}"
    lines = (answer.out or answer.err).strip("\0 \n").splitlines()
    if answer.code:
        return f"failed: {answer.text}"
    return " ".join(lines[:2]) or "no output"


def _file_systems(name: str | None, data: Path | None, runs: Path) -> Facts:
    _, profile = _profile(name)
    known = defaults.load()
    given = str(data) if data else known["data"].value if "data" in known else profile.data or "dlio-data"
    folders = {"data": Path(os.path.expandvars(given)), "runs": runs}
    return [(title, _file_system(folder)) for title, folder in folders.items()]


def _file_system(folder: Path) -> str:
    place = filesystem.existing(folder)
    kind, free = filesystem.of(place), units.format_size(filesystem.free(place))
    reason = filesystem.unwritable(str(place))
    facts = f"{kind.kind}, {free} free, {'writable' if reason is None else reason}"
    if place == folder or folder.exists():
        return f"{folder.absolute()}: {facts}"
    return f"{folder.absolute()}: does not exist; dlio-hpc would create it in {place.absolute()}: {facts}"


def _defaults() -> Facts:
    hidden = {"account"}
    return [
        (key, f"{'set' if key in hidden else value.value}, from {value.path}") for key, value in defaults.load().items()
    ]


def _environment() -> Facts:
    return [
        (name, "set" if redaction.is_secret(name) else value)
        for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLES)
    ]


def _jobs(runs: Path) -> Facts:
    """Return the errors of the newest jobs that have an error."""
    facts: Facts = []
    folders = sorted(runs.glob(f"*/{rundir.JOB}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in folders:
        try:
            fault = job_outcome.fault(job_outcome.load(path.parent))
        except DlioError as broken:
            fault = broken
        if fault is not None:
            facts.append((path.parent.name, f"exit code {fault.exit_code}: {fault}"))
        if len(facts) == _JOBS:
            break
    return facts


def _bugs(runs: Path) -> Facts:
    """Return the last lines of the newest bug reports."""
    paths = sorted(runs.glob("dlio-hpc-bug-*.txt"), reverse=True)[:_BUGS]
    return [(str(path), (path.read_text(encoding="utf-8").strip().splitlines() or ["empty"])[-1]) for path in paths]
