"""From plans to jobs in a batch system."""

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from dlio_hpc import dataset, document, filesystem, folders, limits, packages, rundir
from dlio_hpc.batch import job, jobscript
from dlio_hpc.batch.schedulers import SCHEDULERS, After
from dlio_hpc.batch.state import refresh
from dlio_hpc.command import Unanswered
from dlio_hpc.darshan import preload
from dlio_hpc.errors import ConfigError, DlioError, Incomplete, InfrastructureError, of_system
from dlio_hpc.plan import Plan
from dlio_hpc.study import Study

_AFTER_NONE = After()


class Submitted(NamedTuple):
    """A submitted job. notes: notes on the submission, in addition to those in the plan."""

    job: job.Job
    notes: list[str]


def check(plans: Sequence[Plan]) -> None:
    """What can be known before anything is written: commands that are not here, more jobs than a user may have."""
    plan = plans[0]
    scheduler = SCHEDULERS[plan.site.scheduler]
    if not scheduler.is_queue:
        if len(plans) > 1 and all(run.kind == "generate" for run in plan.runs):
            raise ConfigError(
                f"--generate first: site {plan.site.name} has no queue that could hold a job until another has ended; "
                "say --generate only --wait, then --generate never"
            )
        _check_launch(plan)
        _check_packages(plans)
        _check_folders(plans)
        return
    if shutil.which(scheduler.program) is None:
        raise InfrastructureError(
            f"{scheduler.program} is not on PATH here; submit from a login node of site {plan.site.name}, or only look "
            "at what would be submitted, with --dry-run"
        )
    known = plan.site.queues.get(plan.queue or "")
    if plan.site.limits.jobs is not None or (known is not None and known.jobs is not None):
        limits.check_jobs(plan.site, plan.queue, scheduler.queues(), len(plans))


def submit(plan: Plan, after: After = _AFTER_NONE, study: Study | None = None) -> Submitted:
    """Write the job's directory and hand its script to the batch system; returns as soon as that has taken it. study:
    that it is a part of, to be kept with it.
    """
    scheduler = SCHEDULERS[plan.site.scheduler]
    directory = Path(plan.directory)
    record = job.planned(plan, scheduler.command(plan, after), after.all)
    _write(directory, plan, record, study)
    with _uninterrupted(), rundir.locked(directory):  # until its id is written down, nobody takes it for stray
        if job.load(directory).ended:
            raise Incomplete(f"job {plan.job} was cancelled before it was handed over")
        try:
            record = replace(record, batch_id=scheduler.submit(plan, after))
        except Unanswered as fault:
            raise Unanswered(
                f"{fault}; whether job {plan.job} was taken is not known: dlio-hpc status {directory} looks for it, "
                f"dlio-hpc cancel {directory} gives it up"
            ) from fault
        except DlioError as fault:
            _noted(directory, job.seen(record, "failed", str(fault)))
            raise
        record = job.seen(record, "submitted")
        notes = _noted(directory, record)
    return Submitted(record, _unused(plan) + notes)


def _noted(directory: Path, record: job.Job) -> list[str]:
    """Write the job's record, and return a note where that cannot be: what was handed over goes on."""
    try:
        job.save(directory, record)
    except OSError as fault:
        return [
            f"cannot note in {directory} that {record.job} is {record.batch_id} there: {fault.strerror}; the job goes "
            f"on. dlio-hpc status {directory} finds it by its name"
        ]
    return []


def parents(directories: Sequence[Path], plan: Plan) -> tuple[str, ...]:
    """Batch ids of the jobs that the new one has to wait for; ConfigError when one of them has ended badly already."""
    ids = []
    for directory in directories:
        record = refresh(directory)
        if record.ended and record.state != "completed":
            raise ConfigError(f"--after {record.job}: it ended as {record.state}, nothing can follow on it")
        if record.scheduler != plan.site.scheduler or record.batch_id is None:
            raise ConfigError(f"--after {record.job}: it is no job of {plan.site.name}'s batch system")
        if not record.ended and record.scheduler == "cobalt" and job.load_plan(directory).is_link:
            raise ConfigError(f"--after {record.job}: Cobalt is not told how a study's jobs end; wait for it")
        if not record.ended:
            ids.append(record.batch_id)
    return tuple(ids)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """No signal between the batch system's answer and its being written down."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _unused(plan: Plan) -> list[str]:
    """Notes on environment variables of this shell that do not take effect."""
    if plan.site.scheduler == "slurm" and (stray := [name for name in os.environ if name.startswith("SBATCH_")]):
        return [
            f"{', '.join(stray)} of this shell are not used; say it with options (--account, --queue, --job-option)"
        ]
    return []


def keep(study: Study, is_new: bool = True) -> Path:
    """The folder of a study with what it is to be; ConfigError when there is one of that name, unless the study is not
    new: then what is there stays, and what was lost is written again.
    """
    folder = study.folder
    try:
        folder.mkdir(parents=True, exist_ok=not is_new)
        if is_new or not (folder / rundir.STUDY).exists():
            rundir.write(folder / rundir.STUDY, document.encode(study))
    except FileExistsError:
        raise ConfigError(f"{folder} is there already; choose another --runs") from None
    except OSError as fault:
        with suppress(OSError):
            folder.rmdir()
        raise InfrastructureError(f"cannot write {of_system(fault, folder)}; choose another --runs") from fault
    return folder


def _keep_copy(study: Study, path: Path) -> None:
    """The same file under another name, where the file system has that: many points make it large."""
    original = study.folder / rundir.STUDY
    try:
        os.link(original, path)
    except OSError:
        rundir.write(path, original.read_bytes())


def _write(directory: Path, plan: Plan, record: job.Job, study: Study | None) -> None:
    """The job's directory, whole or not at all: it has another name until all files are in it."""
    script = jobscript.render(plan).encode()
    hidden = directory.with_name(rundir.temporary_name(directory.name))
    try:
        hidden.mkdir(parents=True)
        rundir.write(hidden / rundir.PLAN, document.encode(plan))
        if study is not None:
            _keep_copy(study, hidden / rundir.STUDY)
        rundir.write(hidden / rundir.SCRIPT, script)
        (hidden / rundir.SCRIPT).chmod(0o755)
        _write_darshan(hidden, plan)
        job.save(hidden, record)
        directory.mkdir()  # of two submissions of one name the second one ends here
        hidden.rename(directory)
    except OSError as fault:
        folders.discard(hidden)
        raise InfrastructureError(
            f"cannot write the job's directory: {of_system(fault, directory)}; choose another --runs"
        ) from fault


def _write_darshan(directory: Path, plan: Plan) -> None:
    """Darshan's configuration of each run, and of the probe."""
    watched = [run for run in plan.runs if run.darshan]
    for run in watched:
        folder = rundir.run_directory(directory, run.number, run.name) / rundir.DARSHAN
        folder.mkdir(parents=True)
        rundir.write(folder / preload.CONFIG, preload.config(plan, run).encode())
    if watched:
        (directory / rundir.DARSHAN).mkdir()
        rundir.write(directory / rundir.DARSHAN / preload.CONFIG, preload.config(plan, watched[0]).encode())


def _check_packages(plans: Sequence[Plan]) -> None:
    """Raise ConfigError where ranks would run with this interpreter and it lacks a package that they need."""
    site = plans[0].site
    if site.python != sys.executable or site.setup or "PYTHONPATH" in {*site.environment, *site.rank_environment}:
        return
    for name in packages.measured(plans):
        if importlib.util.find_spec(packages.PACKAGES[name].module) is None:
            raise ConfigError(f"{name} is not installed beside {site.python}; {packages.advice(name)}")


def _check_folders(plans: Sequence[Plan]) -> None:
    """Raise InfrastructureError where a folder that the jobs write to is not writable. Folders that they only read may
    belong to another user.
    """
    runs = [run for plan in plans for run in plan.runs]
    folders = dict.fromkeys(os.path.dirname(run.dataset) for run in runs if dataset.writes(run))
    for folder in folders:
        if (why := filesystem.unwritable(folder)) is not None:
            raise InfrastructureError(f"--data {folder}: {why}; choose another one")


def _check_launch(plan: Plan) -> None:
    """On this computer, what the ranks need can be looked for before anything is written."""
    launcher, python = plan.site.launcher.command, plan.site.python
    missing = None if shutil.which(launcher) else launcher
    if python == sys.executable and not importlib.util.find_spec("mpi4py"):
        missing = "mpi4py"
    if missing:
        raise InfrastructureError(
            f"{missing} was not found beside {python} or on PATH: pip install 'dlio-hpc[mpi]' brings MPI along, "
            "or name your own launcher in a site profile (launcher.command)"
        )
