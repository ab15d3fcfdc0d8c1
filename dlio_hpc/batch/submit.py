"""From a plan to a running job."""

import importlib.util
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from dlio_hpc import document, rundir
from dlio_hpc.batch import job, jobscript
from dlio_hpc.batch.schedulers import SCHEDULERS, Scheduler
from dlio_hpc.errors import InfrastructureError
from dlio_hpc.plan import Plan


class Submitted(NamedTuple):
    """`notes`: what a person should know about the submission."""

    job: job.Job
    notes: list[str]


def submit(plan: Plan) -> Submitted:
    """Write the job's directory and hand its script to the batch system; returns as soon as that has taken it."""
    _check_launch(plan)
    scheduler = SCHEDULERS[plan.site.scheduler]
    directory = Path(plan.directory)
    record = job.planned(plan, scheduler.command(plan))
    _write(directory, plan, record)
    with _uninterrupted():
        try:
            record = replace(record, batch_id=scheduler.submit(plan))
        except InfrastructureError:
            job.save(directory, job.seen(record, "failed"))
            raise
        with rundir.locked(directory):
            record = job.seen(record, "submitted")
            job.save(directory, record)
    return Submitted(record, _notes(plan, scheduler))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """No signal between the batch system's answer and its being written down."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _notes(plan: Plan, scheduler: Scheduler) -> list[str]:
    given = {"--account": plan.account, "--queue": plan.queue, "--job-option": plan.job_options}
    ignored = [option for option, value in given.items() if value]
    if scheduler.takes_options or not ignored:
        return []
    return [f"site {plan.site.name} has no accounts and queues; {', '.join(ignored)} recorded, without effect"]


def _write(directory: Path, plan: Plan, record: job.Job) -> None:
    try:
        directory.mkdir(parents=True)
        rundir.write(directory / rundir.PLAN, document.encode(plan))
        script = directory / rundir.SCRIPT
        rundir.write(script, jobscript.render(plan).encode())
        script.chmod(0o755)
        job.save(directory, record)
    except OSError as fault:
        raise InfrastructureError(
            f"cannot write the job's directory {directory}: {fault.strerror}; choose another --runs"
        ) from fault


def _check_launch(plan: Plan) -> None:
    """On this computer, what the ranks need can be looked for before anything is written."""
    if plan.site.scheduler != "local":
        return
    launcher, python = plan.site.launcher.command, plan.site.python
    missing = None if shutil.which(launcher) else launcher
    if python == sys.executable and not importlib.util.find_spec("mpi4py"):
        missing = "mpi4py"
    if missing:
        raise InfrastructureError(
            f"{missing} was not found beside {python} or on PATH: pip install 'dlio-hpc[mpi]' brings MPI along, "
            "or name your own launcher in a site profile (launcher.command)"
        )
