"""Submission of a job: write the directory of the planned job, and hand its script to the batch system."""

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

from dlio_hpc.base import serialization
from dlio_hpc.base.command import Unanswered
from dlio_hpc.base.errors import ConfigError, DlioError, Incomplete, InfrastructureError, of_system
from dlio_hpc.batch import container, job_record, jobscript
from dlio_hpc.batch.job_state import refresh
from dlio_hpc.batch.schedulers import common, local
from dlio_hpc.batch.schedulers.scheduler import After
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import scheduler_facts
from dlio_hpc.config.site import Site
from dlio_hpc.darshan import setup
from dlio_hpc.dataset import dataset_folder, dataset_space
from dlio_hpc.files import elf_library, filesystem, rundir, safe_folders
from dlio_hpc.plan import cost, notes, packages, site_limits
from dlio_hpc.plan.plan import Plan, datasets
from dlio_hpc.plan.study import Study

_AFTER_NONE = After()


class Submitted(NamedTuple):
    """A submitted job. notes: notes on the submission, in addition to those in the plan."""

    job: job_record.Job
    notes: list[str]


def check(plans: Sequence[Plan], is_after: bool = False) -> None:
    """Run every check that is possible before anything is written. Raise ConfigError or InfrastructureError if a check
    fails. On the local site, data folders and their free space are checked, too. With a batch system, data folders
    may exist only on its nodes. is_after: whether the jobs wait for others, which may generate the datasets.
    """
    is_here = not SCHEDULERS[plans[0].site.scheduler].is_queue
    if is_here:
        _check_ranks(plans[0].site)
    check_commands(plans)
    if not is_after:
        check_datasets(plans)
    for fault in unwritable_folders(plans, with_data=is_here):
        raise InfrastructureError(f"{fault}; choose another folder")
    if is_here:
        _check_space(plans)


def check_datasets(plans: Sequence[Plan]) -> None:
    """Raise ConfigError if runs read a dataset that does not exist and that none of the jobs generates. With a
    batch system, a dataset is not checked if its data folder does not exist here: it may exist only on the nodes.
    """
    is_here = not SCHEDULERS[plans[0].site.scheduler].is_queue
    runs = [run for plan in plans for run in plan.runs]
    generated = {run.dataset for run in runs if run.kind == "generate"}
    for run in datasets(run for run in runs if run.dataset not in generated):
        if run.workload.dataset.is_generated and (is_here or Path(run.data).is_dir()):
            dataset_folder.require(run.stored)


def _check_space(plans: Sequence[Plan]) -> None:
    """Raise ConfigError if the datasets that the jobs generate, or the checkpoints of a model that they store, do not
    fit on their file systems.
    """
    runs = datasets(run for plan in plans for run in plan.runs)
    for folder in {run.data for run in runs}:
        stored = [run.stored for run in runs if run.data == folder]
        dataset_space.check_space(stored, filesystem.existing(Path(folder)), max(plan.ranks for plan in plans))
    for plan in plans:
        for run in plan.runs:
            cost.require_space(run, plan.ranks)


def check_commands(plans: Sequence[Plan]) -> None:
    """Raise ConfigError or InfrastructureError if jobs cannot be submitted from here. With a batch system, check that
    the submit command exists and that the limit of jobs per user is respected. On the local site, check that launcher
    and packages can be used.
    """
    plan = plans[0]
    scheduler = SCHEDULERS[plan.site.scheduler]
    common.begin_time(plans[-1])  # raises ConfigError if it cannot be set
    if not scheduler.is_queue:
        if len(plans) > 1 and all(run.kind == "generate" for run in plan.runs):
            raise ConfigError(
                f"--generate separate: site {plan.site.name} has no queue to hold a job until another one ends; "
                "use --generate only --wait, then --generate never"
            )
        _check_launch(plan)
        _check_packages(plans)
        return
    if shutil.which(scheduler.program) is None:
        raise InfrastructureError(
            f"{scheduler.program} is not on PATH here; submit from a login node of site {plan.site.name}, or "
            "print the job without submitting it, with --dry-run"
        )
    cluster = scheduler.cluster(plan)
    if len(plans) > 1 and ("," in cluster or cluster == "all"):
        raise ConfigError(f"clusters {cluster}: the jobs of a study wait for each other; name one cluster")
    known = plan.site.queues.get(plan.queue or "")
    if plan.site.limits.jobs is not None or (known is not None and known.jobs is not None):
        site_limits.check_jobs(plan.site, plan.queue, scheduler.queues(cluster), len(plans))


def submit(plan: Plan, after: After = _AFTER_NONE, study: Study | None = None, home: str = "") -> Submitted:
    """Write the directory of a job and submit its script. Return as soon as the batch system has accepted the job.
    after: jobs that the job must wait for. study: study that the job belongs to; None if the job belongs to no study.
    The study.json of the study is copied to the directory of the job. home: as in Job.
    """
    scheduler = SCHEDULERS[plan.site.scheduler]
    directory = Path(plan.directory)
    record = job_record.planned(plan, scheduler.command(plan, after), after.all, scheduler.cluster(plan))
    _keep_indices(plan)
    _write(directory, plan, record, study)
    # the lock keeps other processes from treating the job as stray before its id is recorded
    with _uninterrupted(), rundir.locked(directory):
        if job_record.load(directory).ended:
            raise Incomplete(f"job {plan.job} was cancelled before it was submitted")
        try:
            record = replace(record, home=home, **scheduler.submit(plan, after)._asdict())
        except Unanswered as fault:
            raise Unanswered(
                f"{fault}; it is not known whether job {plan.job} was accepted. To look for it: dlio-hpc status "
                f"{directory}; to cancel it: dlio-hpc cancel {directory}"
            ) from fault
        except DlioError as fault:
            _noted(directory, job_record.with_state(record, "failed", str(fault)))
            raise
        record = job_record.with_state(record, "submitted")
        notes = _noted(directory, record)
    return Submitted(record, _unused(plan) + notes + job_record.remarks(record))


def _noted(directory: Path, record: job_record.Job) -> list[str]:
    """Write the record of a job that was submitted, and return an empty list. If writing fails, return a note instead
    of raising an error, because the job continues.
    """
    try:
        job_record.save(directory, record)
    except OSError as fault:
        return [
            f"cannot record in {directory} the batch id {record.batch_id} of {record.job}: {fault.strerror}; the job "
            f"continues, and dlio-hpc status {directory} finds it by the name of the job"
        ]
    return []


def parents(directories: Sequence[Path], plan: Plan) -> tuple[str, ...]:
    """Return the batch ids of those jobs in `directories` that have not ended, and that a new job must therefore wait
    for. Raise ConfigError if a job in `directories` has failed, or if the new job cannot depend on it. plan: plan of
    the new job.
    """
    ids = []
    for directory in directories:
        record = refresh(directory)
        if record.ended and record.state != "completed":
            raise ConfigError(f"--after {record.job}: this job ended as {record.state}; no job can depend on it")
        if record.scheduler != plan.site.scheduler or record.batch_id is None:
            raise ConfigError(f"--after {record.job}: this is not a job of {plan.site.name}'s batch system")
        if not record.ended and record.cluster != SCHEDULERS[plan.site.scheduler].cluster(plan):
            raise ConfigError(
                f"--after {record.job}: it is on cluster {record.cluster or 'of this node'}; both must be "
                f"on one cluster (-J --clusters={record.cluster or 'NAME'})"
            )
        facts = scheduler_facts.SCHEDULERS[record.scheduler]
        if not record.ended and not facts.knows_success and job_record.load_plan(directory).is_link:
            raise ConfigError(
                f"--after {record.job}: {facts.title} cannot tell whether a job of a study succeeds; wait until it has "
                "ended"
            )
        if not record.ended:
            ids.append(record.batch_id)
    return tuple(ids)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Block SIGINT, SIGTERM and SIGHUP in a `with` block, so that the command is not interrupted between the answer of
    the batch system and the writing of job.json.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _unused(plan: Plan) -> list[str]:
    """Return notes on environment variables of this shell that have no effect: variables that resemble options, and
    variables of a job around the shell.
    """
    if plan.site.scheduler == "local" and (note := local.surrounding_note(plan)) is not None:
        return [note]
    if plan.site.scheduler == "slurm" and (stray := [name for name in os.environ if name.startswith("SBATCH_")]):
        return [f"ignored variables of this shell: {', '.join(stray)}; use options (--account, --queue, --job-option)"]
    return []


def keep(study: Study, is_new: bool = True) -> Path:
    """Create the folder of a study, write study.json into it, and return the folder. If the folder exists already and
    `is_new` is True, raise ConfigError. If it exists and `is_new` is False, write study.json only if it is missing.
    """
    folder = study.folder
    try:
        folder.mkdir(parents=True, exist_ok=not is_new)
        if is_new or not (folder / rundir.STUDY).exists():
            rundir.write(folder / rundir.STUDY, serialization.encode(study))
    except FileExistsError:
        raise ConfigError(f"{folder} exists already; choose another --runs") from None
    except OSError as fault:
        with suppress(OSError):
            folder.rmdir()
        raise InfrastructureError(f"cannot write {of_system(fault, folder)}; choose another --runs") from fault
    return folder


def _keep_copy(study: Study, path: Path) -> None:
    """Hard-link the study.json of the study to `path`, or copy it if the file system does not support hard links. The
    file is large if the study has many points.
    """
    original = study.folder / rundir.STUDY
    try:
        os.link(original, path)
    except OSError:
        rundir.write(path, original.read_bytes())


def _write(directory: Path, plan: Plan, record: job_record.Job, study: Study | None) -> None:
    """Write the directory of a job. The directory has a temporary name until all its files are complete. Raise
    InfrastructureError if writing fails.
    """
    script = jobscript.render(plan).encode()
    environment = _environment(plan, directory.parent if study is None else study.folder.parent)
    hidden = directory.with_name(rundir.temporary_name(directory.name))
    try:
        hidden.mkdir(parents=True)
        rundir.write(hidden / rundir.PLAN, serialization.encode(plan))
        if study is not None:
            _keep_copy(study, hidden / rundir.STUDY)
        rundir.write(hidden / rundir.SCRIPT, script)
        (hidden / rundir.SCRIPT).chmod(0o755)
        if notes.secret_variables(plan):
            for name in (rundir.PLAN, rundir.SCRIPT, rundir.STUDY):
                if (hidden / name).exists():
                    (hidden / name).chmod(0o700 if name == rundir.SCRIPT else 0o600)
        if environment is not None:
            (hidden / rundir.PYTHON_ENVIRONMENT).symlink_to(environment)
        _write_darshan(hidden, plan)
        job_record.save(hidden, record)
        directory.mkdir()  # the second of two submissions with the same name fails here
        hidden.rename(directory)
    except OSError as fault:
        safe_folders.discard(hidden)
        raise InfrastructureError(
            f"cannot write the job's directory: {of_system(fault, directory)}; choose another --runs"
        ) from fault


def _keep_indices(plan: Plan) -> None:
    """Write the indexes of the existing datasets that the job reads."""
    scans = [run.workload.dataset.scan for run in plan.runs]
    for index in dict.fromkeys(scan.index for scan in scans if scan is not None):
        from dlio_hpc.dataset import sample_index  # imports numpy

        sample_index.write(index)


def _environment(plan: Plan, folder: Path) -> Path | None:
    """Return the archive of the ranks' Python environment, which is kept in `folder` for all jobs. Return None if the
    site does not stage the environment.
    """
    if plan.site.stage_environment is None:
        return None
    from dlio_hpc.batch import environment_archive

    return environment_archive.provide(str(plan.site.python), folder.absolute() / rundir.PYTHON_ENVIRONMENTS)


def _write_darshan(directory: Path, plan: Plan) -> None:
    """Write Darshan's configuration files into the directory of a job: one for each run with Darshan, and one for the
    trial of Darshan before the runs.
    """
    watched = [run for run in plan.runs if run.darshan]
    for run in watched:
        folder = rundir.run_directory(directory, run.number, run.name) / rundir.DARSHAN
        folder.mkdir(parents=True)
        rundir.write(folder / setup.CONFIG, setup.config(plan, run).encode())
    if watched:
        (directory / rundir.DARSHAN).mkdir()
        rundir.write(directory / rundir.DARSHAN / setup.CONFIG, setup.config(plan, watched[0]).encode())


def _check_packages(plans: Sequence[Plan]) -> None:
    """Raise ConfigError if a package that the ranks need is missing. Do nothing unless it is certain that the ranks use
    this Python interpreter with its own search path.
    """
    site = plans[0].site
    if site.container is not None or site.python != sys.executable:
        return
    if site.setup or "PYTHONPATH" in {*site.environment, *site.rank_environment}:
        return
    for name in packages.measured(plans):
        if importlib.util.find_spec(packages.PACKAGES[name].module) is None:
            raise ConfigError(f"{name} is not installed for {site.python}; {packages.advice(name)}")


def unwritable_folders(plans: Sequence[Plan], with_data: bool = True) -> list[str]:
    """Check whether files can be created in the folders of data, runs and archives. For each folder where this fails,
    return the option that sets the folder, and the reason. If a folder does not exist yet, its nearest existing parent
    is checked. Folders that jobs only read are left out, because they may belong to another user. with_data: whether
    data folders are checked.
    """
    options = {os.path.dirname(plan.directory): "runs" for plan in plans} | {plan.archive: "archive" for plan in plans}
    if with_data:
        written = [run.data for plan in plans for run in plan.runs if run.writes()]
        option = "data" if len(plans[0].folders) == 1 else "ab"
        options = dict.fromkeys(written, option) | options
    reasons = {folder: why for folder in options if (why := filesystem.unwritable(folder)) is not None}
    return [f"--{options[folder]} {folder}: {why}" for folder, why in reasons.items()]


CORRECT_PYTHON = "correct python in the profile, or leave it out"


def missing_python(site: Site) -> str | None:
    """Return a clause if the interpreter of the ranks is not a program of this computer, otherwise None. If the profile
    gives only its name, lines of `setup` may put the interpreter on PATH.
    """
    python = str(site.python)
    if shutil.which(python) is not None or (site.setup and "/" not in python):
        return None
    return f"{python}, which the site profile names (python), is not a program on {os.uname().nodename}"


def _check_ranks(site: Site) -> None:
    """Raise InfrastructureError if the interpreter of the ranks, or a library that they preload, does not exist on this
    computer.
    """
    if site.container is None and (text := missing_python(site)) is not None:
        raise InfrastructureError(f"{text}; {CORRECT_PYTHON}")
    for library in site.preload:
        if why := elf_library.fault(library):
            raise InfrastructureError(f"site.preload: {why}; correct preload in the profile, or leave it out")


def _check_launch(plan: Plan) -> None:
    """Raise InfrastructureError if the launcher, the container engine or mpi4py does not exist on this computer."""
    if plan.site.container is not None:
        container.require_engine(plan.site)
    launcher, python = plan.site.launcher.command, plan.site.python
    missing = None if shutil.which(launcher) else launcher
    if plan.site.container is None and python == sys.executable and not importlib.util.find_spec("mpi4py"):
        missing = "mpi4py"
    if missing:
        raise InfrastructureError(
            f"{missing} was not found next to {python} or on PATH; install MPI (pip install mpi4py mpich), "
            "or set your own launcher in a site profile (launcher.command)"
        )
