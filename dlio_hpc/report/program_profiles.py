"""What a name on the command line is like as a program: a job, an archive, a Darshan log, a reference profile."""

from pathlib import Path

from msgspec.structs import replace

from dlio_hpc.analysis.characterize.characterize import Character
from dlio_hpc.analysis.log import analyze
from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.similarity import io_profile, reference_profile
from dlio_hpc.analysis.similarity.io_profile import Kind, Profile
from dlio_hpc.batch.job_record import unknown
from dlio_hpc.config import shipped
from dlio_hpc.darshan import run_check
from dlio_hpc.errors import ConfigError, DlioError, Incomplete, InvalidRun
from dlio_hpc.files import archive
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records.job_outcome import Evidence, JobOutcome, RunOutcome
from dlio_hpc.results import Result


def load_all(name: str, path: Path, run: str | None, only: str | None) -> list[Profile]:
    """The profile that `name` stands for; those of a file of references are all of it. path: where it lies, if it is
    none of those. run: of jobs; None: the last one that measured. only: of logs, files whose path it is found in.
    """
    if reference_profile.is_reference(name):
        return [io_profile.of_reference(each) for each in reference_profile.load(name)]
    return [_found(path, run, only)]


def load(name: str, path: Path, run: str | None, only: str | None) -> Profile:
    """Likewise, where one is wanted."""
    if reference_profile.is_reference(name):
        return io_profile.of_reference(reference_profile.load_one(name))
    return _found(path, run, only)


def of_character(found: Character, title: str) -> Profile:
    """Logs that were characterized, by the files that are the program's own; by their trace, if that was used."""
    paths = {role.file.path for role in found.derived.roles if role.role not in ("library", "other")}
    log = found.log if found.derived.traced else found.log._replace(traced={})
    return _watched(analyze.files_of(log, title, paths.__contains__), title, "log", "", None)


def _found(path: Path, run: str | None, only: str | None) -> Profile:
    if study_outcome.is_study(path):
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
    examined = analyze.log_file(path, io_profile.DATA if only is None else only)
    if not examined.is_sound or examined.analysis is None:
        raise InvalidRun(f"{path} is not whole, and nothing is to be compared with it: {examined.faults[0]}")
    if not examined.analysis.bytes_read + examined.analysis.bytes_written:
        chosen = "but programs and libraries" if only is None else f"whose path has {only!r}"
        raise ConfigError(f"{path} has no I/O on files {chosen}; say with --only which count: --only '[.]h5$'")
    return _watched(examined, str(path), "log", "", None)


def _of_job(path: Path, run: str | None) -> Profile:
    outcome = job_outcome.load(path)
    chosen = _chosen(outcome, path, run)
    fault = job_outcome.run_fault(outcome, chosen)
    has_figures = chosen.result is not None and chosen.result.summary is not None
    if fault is not None and not (isinstance(fault, Incomplete) and has_figures):
        raise fault
    with job_outcome.evidence(path, outcome) as found:
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
        examined = analyze.run(run.run, title, each.log, run_check.expected(outcome.plan, result), None)
    except DlioError as fault:  # a log that is none
        return io_profile.of_core(title, result, each.timeline, name, str(fault))
    if examined.analysis is None or not examined.is_sound:
        why = [str(fault) for fault in examined.faults[:1]] or [
            job_outcome.without_log(outcome, run) or "it is not there"
        ]
        return io_profile.of_core(title, result, each.timeline, name, why[0])
    return _watched(examined, title, "job", name, result)


def _watched(examined: Examined, title: str, kind: Kind, name: str, result: Result | None) -> Profile:
    analysis = examined.analysis
    assert analysis is not None
    return io_profile.of_log(
        title,
        kind,
        name,
        analysis,
        examined.requests if analysis.traced else None,
        tuple(map(str, examined.faults)),
        None if result is None else io_profile.sample_bytes(result),
    )
