"""What a name on the command line is like as a program: a job, an archive, a Darshan log, a reference profile."""

from pathlib import Path

from msgspec.structs import replace

from dlio_hpc import archive, shipped
from dlio_hpc.analysis import examine, profile, reference
from dlio_hpc.analysis.characterize import Character
from dlio_hpc.analysis.examine import Examined
from dlio_hpc.analysis.profile import Kind, Profile
from dlio_hpc.batch.job import unknown
from dlio_hpc.darshan import judge
from dlio_hpc.errors import ConfigError, DlioError, Incomplete, InvalidRun
from dlio_hpc.report import jobfiles, studyfiles
from dlio_hpc.report.jobfiles import Evidence, JobOutcome, RunOutcome
from dlio_hpc.results import Result


def load_all(name: str, path: Path, run: str | None, only: str | None) -> list[Profile]:
    """The profile that `name` stands for; those of a file of references are all of it. path: where it lies, if it is
    none of those. run: of jobs; None: the last one that measured. only: of logs, files whose path it is found in.
    """
    if reference.is_reference(name):
        return [profile.of_reference(each) for each in reference.load(name)]
    return [_found(path, run, only)]


def load(name: str, path: Path, run: str | None, only: str | None) -> Profile:
    """Likewise, where one is wanted."""
    if reference.is_reference(name):
        return profile.of_reference(reference.load_one(name))
    return _found(path, run, only)


def of_character(found: Character, title: str) -> Profile:
    """Logs that were characterized, by the files that are the program's own; by their trace, if that was used."""
    paths = {role.file.path for role in found.derived.roles if role.role not in ("library", "other")}
    log = found.log if found.derived.traced else found.log._replace(traced={})
    return _watched(examine.files_of(log, title, paths.__contains__), title, "log", "", None)


def _found(path: Path, run: str | None, only: str | None) -> Profile:
    if studyfiles.is_study(path):
        raise ConfigError(f"{path} is a study of many jobs; name one of them, its directory or archive")
    if path.is_dir() or path.name.endswith(archive.SUFFIX):
        return _of_job(path, run)
    if not path.exists():
        raise ConfigError(
            f"{unknown(path)}; a Darshan log, a YAML file of profiles or the name of a shipped one is accepted too: "
            f"{', '.join(shipped.names(shipped.REFERENCES))}"
        )
    return _of_log(path, only)


def _of_log(path: Path, only: str | None) -> Profile:
    examined = examine.log_file(path, profile.DATA if only is None else only)
    if not examined.is_sound or examined.analysis is None:
        raise InvalidRun(f"{path} is not whole, and nothing is to be compared with it: {examined.faults[0]}")
    if not examined.analysis.bytes_read + examined.analysis.bytes_written:
        chosen = "but programs and libraries" if only is None else f"whose path has {only!r}"
        raise ConfigError(f"{path} has no I/O on files {chosen}; say with --only which count: --only '[.]h5$'")
    return _watched(examined, str(path), "log", "", None)


def _of_job(path: Path, run: str | None) -> Profile:
    outcome = jobfiles.load(path)
    chosen = _chosen(outcome, path, run)
    fault = jobfiles.run_fault(outcome, chosen)
    has_figures = chosen.result is not None and chosen.result.summary is not None
    if fault is not None and not (isinstance(fault, Incomplete) and has_figures):
        raise fault
    with jobfiles.evidence(path, outcome) as found:
        each = next(each for each in found if each.run.name == chosen.name)
        made = _of_run(outcome, each)
    return made if fault is None else replace(made, notes=(*made.notes, str(fault)))


def _chosen(outcome: JobOutcome, path: Path, run: str | None) -> RunOutcome:
    measured = [each for each in outcome.runs if each.run.kind == "measure"]
    if run is not None:
        named = [each for each in outcome.runs if run in (each.name, each.run.name) and each.run.kind != "generate"]
        if not named:
            names = ", ".join(each.name for each in measured) or "none that measures"
            raise ConfigError(f"{path} has no run {run!r}; it has: {names}")
        return named[0]
    if not measured:
        raise ConfigError(f"{path} measured nothing; it only made a dataset")
    return next((each for each in reversed(measured) if each.result is not None), measured[-1])


def _of_run(outcome: JobOutcome, each: Evidence) -> Profile:
    """Without the run's clock, on which nothing here depends."""
    run, result = each.run, each.run.result
    assert result is not None
    title, name = f"{outcome.job.job}/{run.name}", run.run.workload.name
    try:
        examined = examine.run(run.run, title, each.log, judge.expected(outcome.plan, result), None)
    except DlioError as fault:  # a log that is none
        return profile.of_core(title, result, each.timeline, name, str(fault))
    if examined.analysis is None or not examined.is_sound:
        why = [str(fault) for fault in examined.faults[:1]] or [jobfiles.without_log(outcome, run) or "it is not there"]
        return profile.of_core(title, result, each.timeline, name, why[0])
    return _watched(examined, title, "job", name, result)


def _watched(examined: Examined, title: str, kind: Kind, name: str, result: Result | None) -> Profile:
    analysis = examined.analysis
    assert analysis is not None
    return profile.of_log(
        title,
        kind,
        name,
        analysis,
        examined.requests if analysis.traced else None,
        tuple(map(str, examined.faults)),
        None if result is None else profile.sample_bytes(result),
    )
