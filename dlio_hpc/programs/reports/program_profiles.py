"""I/O profiles of programs. On the command line, a program is given as a job, an archive, a Darshan log or a reference
profile.
"""

import glob
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from dlio_hpc.analysis.log import analyze, logs_by_program
from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.base.errors import ConfigError, DlioError, Incomplete, InvalidRun
from dlio_hpc.batch.job_record import unknown
from dlio_hpc.config import shipped
from dlio_hpc.darshan import log_files, log_reader, run_check
from dlio_hpc.darshan.log import without_reads
from dlio_hpc.files import archive, rundir
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.similarity import io_profile, reference_profile
from dlio_hpc.programs.similarity.io_profile import Kind, Profile
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunFiles, RunOutcome
from dlio_hpc.results.run_result import Result


def operand(name: str, path: Path) -> Literal["reference", "job", "log"]:
    """Return the kind of operand that `name` is. path: path of the job, archive or log."""
    if reference_profile.is_reference(name):
        return "reference"
    return "job" if path.name.endswith(archive.SUFFIX) or (path / rundir.JOB).exists() else "log"


def load_all(name: str, path: Path, run: str | None, only: str | None) -> list[Profile]:
    """Return the profile that `name` stands for. If `name` is a file of reference profiles, return all its profiles. A
    folder of logs, or a pattern that matches several logs, stands for one program without MPI. path: path of the job,
    archive or log; ignored if `name` is a reference profile. run: name of a run of the job; None selects the last
    measured run with a result. only: regular expression, used only if `path` is a log. Files in the log are selected if
    their paths match `only`. None selects all files in the log except programs and libraries.
    """
    if reference_profile.is_reference(name):
        return [io_profile.of_reference(reference) for reference in reference_profile.load(name)]
    return [_located(name, path, run, only)]


def load(name: str, path: Path, run: str | None, only: str | None) -> Profile:
    """Return the single profile that `name` stands for. Raise ConfigError if `name` stands for several profiles. The
    parameters are the same as for load_all().
    """
    if reference_profile.is_reference(name):
        return io_profile.of_reference(reference_profile.load_one(name))
    return _located(name, path, run, only)


def of_character(character: Character, title: str) -> Profile:
    """Return the profile of characterized logs. Libraries and other files that do not belong to the program are left
    out. Traces are used only if the characterization used them.
    """
    return _of_examined(examined(character, title), title, "log", "", None)


def examined(character: Character, title: str, is_dataset: bool = False) -> Examined:
    """Return the analysis of characterized logs. It uses the same files and traces as of_character(). is_dataset:
    whether only the files of the dataset are analysed.
    """
    without = ("library", "other")
    paths = {
        role.file.path
        for role in character.derived.roles
        if (role.role == "dataset" if is_dataset else role.role not in without)
    }
    log = character.log if character.derived.traced else character.log._replace(traced={})
    return analyze.files_of(without_reads(log, _only_saved(character)), title, paths.__contains__)


def _only_saved(character: Character) -> set[str]:
    """Return the files that the program only saves. A library may close such a file in a way that Darshan does not see.
    Darshan then attributes the reads of the next file with the same descriptor to the saved file.
    """
    keys = character.derived.keys
    if "checkpoint.read_back" in keys and keys["checkpoint.read_back"].value:
        return set()
    return {role.file.path for role in character.derived.roles if role.role == "checkpoint"}


def comparable(character: Character, title: str, run: Profile) -> Profile:
    """Return the profile of characterized logs for the comparison with a check run. If the run has no Darshan log, only
    its reads of the dataset are known. Their sizes are rounded to a quarter of an octave. The profile is then limited
    in the same way.
    """
    if run.source != io_profile.MEASURED:
        return of_character(character, title)
    profile = _of_examined(examined(character, title, is_dataset=True), title, "log", "", None)
    note = "reads of the dataset alone, with sizes in four bins per octave, because the check run has no Darshan log"
    return replace(io_profile.by_bins(profile), notes=(*profile.notes, note))


def _located(name: str, path: Path, run: str | None, only: str | None) -> Profile:
    if logs := _logs_of_program(name, path):
        return _of_logs(logs, name, only)
    if study_outcome.is_study(path):
        raise ConfigError(f"{path} is a study of several jobs; give the directory or archive of one of them")
    if path.is_dir() or path.name.endswith(archive.SUFFIX):
        return _of_job(path, run)
    if not path.exists() and name.endswith(log_files.SUFFIX):
        raise ConfigError(f"cannot read {name}: there is no such file")
    if not path.exists():
        raise ConfigError(
            f"{unknown(path)}; you can also give a Darshan log, a folder of logs, a YAML file of profiles, or the name "
            f"of a shipped profile: {', '.join(shipped.names(shipped.REFERENCES))}"
        )
    return _of_logs([path], str(path), only)


def _logs_of_program(name: str, path: Path) -> list[Path]:
    """Return the logs of one program, if `name` is a pattern such as 'logs/*_id77-*.darshan' or a folder of logs.
    Otherwise, return an empty list. Raise ConfigError if no file matches the pattern.
    """
    if path.is_dir():
        return [] if (path / rundir.JOB).exists() else log_files.of_folder(path)
    if path.exists() or not glob.has_magic(name):
        return []
    logs = [Path(match) for match in sorted(glob.glob(name)) if Path(match).is_file()]
    if not logs:
        raise ConfigError(f"no log matches {name!r}")
    return logs


def _of_logs(paths: list[Path], title: str, only: str | None) -> Profile:
    """Return the profile of the program with these logs. title: name that the user has given."""
    logs = [log_reader.load(path) for path in paths]
    examined = analyze.logs_of_program(logs, io_profile.DATA if only is None else only)
    if not examined.is_sound or examined.analysis is None:
        raise InvalidRun(f"{title} is incomplete, so it is not compared: {examined.faults[0]}")
    if not examined.analysis.bytes_read + examined.analysis.bytes_written:
        chosen = "other than programs and libraries" if only is None else f"whose path has {only!r}"
        raise ConfigError(
            f"{title} has no I/O on files {chosen}; select the files with --only, such as --only '[.]h5$'"
        )
    profile = _of_examined(examined, title, "log", "", None)
    return replace(profile, notes=(*logs_by_program.merging_notes([log.job for log in logs]), *profile.notes))


def _of_job(path: Path, run: str | None) -> Profile:
    outcome = job_outcome.load(path)
    chosen = _chosen(outcome, path, run)
    if chosen.run.workload.has_own_loader:
        raise ConfigError(
            f"{path} is a job of {chosen.run.workload.kind_in_words}, which has no samples to compare; dlio-hpc report "
            f"{path} shows it"
        )
    fault = job_outcome.run_fault(outcome, chosen)
    has_metrics = chosen.result is not None and chosen.result.summary is not None
    if fault is not None and not outcome.job.ended and not has_metrics:
        raise Incomplete(f"{fault}; wait for its end (dlio-hpc wait {path})")
    if fault is not None and not (isinstance(fault, Incomplete) and has_metrics):
        raise fault
    with job_outcome.evidence(path, outcome) as recorded:
        evidence = next(run_files for run_files in recorded if run_files.run.name == chosen.name)
        profile = _of_run(outcome, evidence)
    return profile if fault is None else replace(profile, notes=(*profile.notes, str(fault)))


def _chosen(outcome: JobOutcome, path: Path, run: str | None) -> RunOutcome:
    """Return the run with the name `run`. If `run` is None, return the last measured run with a result or, if no run
    has a result, the last measured run. Raise ConfigError if there is no such run.
    """
    measured = [candidate for candidate in outcome.runs if candidate.run.kind == "measure"]
    if run is not None:
        named = [
            candidate
            for candidate in outcome.runs
            if run in (candidate.name, candidate.run.name) and candidate.run.kind != "generate"
        ]
        if not named:
            names = ", ".join(candidate.name for candidate in measured) or "no measured run"
            raise ConfigError(f"{path} has no run {run!r}; it has: {names}")
        return named[0]
    if not measured:
        raise ConfigError(f"{path} measured nothing; it only generated a dataset")
    return next((candidate for candidate in reversed(measured) if candidate.result is not None), measured[-1])


def _of_run(outcome: JobOutcome, evidence: RunFiles) -> Profile:
    """Return the profile of a run. The profile is made from the Darshan log of the run. If the log is missing or cannot
    be used, the profile is made from the benchmark's own result and timeline.
    """
    run, result = evidence.run, evidence.run.result
    assert result is not None
    title, name = f"{outcome.job.job}/{run.name}", run.run.workload.name
    try:
        examined = analyze.run(run.run, title, evidence.log, run_check.expected(outcome.plan, run.run, result), None)
    except DlioError as fault:  # not a Darshan log
        return io_profile.of_core(title, result, evidence.timeline, name, str(fault))
    if examined.analysis is None or not examined.is_sound:
        why = [str(fault) for fault in examined.faults[:1]] or [
            job_outcome.without_log(outcome, run) or "it is missing"
        ]
        return io_profile.of_core(title, result, evidence.timeline, name, why[0])
    return _of_examined(examined, title, "job", name, result)


def _of_examined(examined: Examined, title: str, kind: Kind, name: str, result: Result | None) -> Profile:
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
