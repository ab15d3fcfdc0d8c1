"""Cancel a job."""

from pathlib import Path

from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.batch.job_record import Job, load, reference, require_host, save, with_state
from dlio_hpc.batch.job_state import FORGOTTEN, settle
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.files import rundir


def cancel(directory: Path) -> Job:
    """Cancel a job and return it. If the job was submitted, ask the batch system to cancel it, and record the time of
    this request. If the job was never submitted, only mark it as cancelled. If the job has ended, do nothing. A job
    that the batch system no longer knows may still run: the batch system is asked to cancel it, too.
    """
    job = settle(directory)
    if job.state == "lost" and job.states[-1].text == FORGOTTEN and job.batch_id is not None:
        require_host(job)
        SCHEDULERS[job.scheduler].cancel(reference(directory, job))
    if job.ended:
        return job
    with rundir.locked(directory):  # waits for a submission in progress
        job = load(directory)
        if job.batch_id is None:
            job = with_state(job, "cancelled")
            save(directory, job)
            return job
        require_host(job)
        save(directory, structs.replace(job, cancel_asked=units.utc_now()))
    try:
        SCHEDULERS[job.scheduler].cancel(reference(directory, job))
    except BaseException:
        with rundir.locked(directory):
            save(directory, structs.replace(load(directory), cancel_asked=None))
        raise
    return job
