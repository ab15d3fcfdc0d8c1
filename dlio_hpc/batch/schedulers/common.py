"""Functions shared by the modules of several batch systems: commands that query a server, and option lines at the head
of a job script.
"""

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from dlio_hpc.base import command, units
from dlio_hpc.base.command import Answer, Unanswered, unexplained
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.base.safe_text import printable
from dlio_hpc.batch.schedulers import refused_options
from dlio_hpc.batch.schedulers.scheduler import AcceptedJob, After, JobRef, JobStatus, Row
from dlio_hpc.batch.shell_quoting import Shell
from dlio_hpc.plan.plan import Plan

_SUBMIT_S = 180
# Seconds from a local time to the next one that is tried, if the first one comes twice.
_STEP_S = 60
# Exit codes of a shell whose command was interrupted, killed or ended by a signal.
_KILLED = {130, 137, 143}
# Number of characters that are kept of what the batch system says when it accepts a job.
_REMARKS = 1000
_UNREACHABLE = re.compile(
    r"unable to contact|contact slurm|socket timed out|connect|zero bytes|communication|connection|unreachable|"
    r"unknown host|unable to resolve|control machine address|unable to process configuration",
    re.IGNORECASE,
)
# What commands of Slurm print on a computer that has no slurm.conf and no server that hands it out.
_NOT_CONFIGURED = re.compile(
    r"configuration source|DNS SRV lookup failed|(cannot stat|unable to status|unable to open) file \S*: No such file",
    re.IGNORECASE,
)


class NotConfigured(Unanswered):
    """A command of the batch system does not know its server, because this computer has no configuration of it. The
    server was not asked.
    """


def ask(*arguments: str, cwd: str | None = None, patience_s: float | None = None) -> Answer:
    """Run a command of the batch system and return its answer. Raise Unanswered if the command cannot reach
    the server, and NotConfigured if it does not know the server.
    """
    patience = {} if patience_s is None else {"patience_s": patience_s}
    answer = command.ask(*arguments, cwd=cwd, **patience)
    if answer.code and _NOT_CONFIGURED.search(answer.err):
        raise NotConfigured(
            f"{arguments[0]} found no configuration of Slurm (slurm.conf) on {os.uname().nodename}; use a login node "
            f"of the site, or set SLURM_CONF to the path of its slurm.conf. {arguments[0]} ended with {answer.code}: "
            f"{answer.text}"
        )
    if answer.code and _UNREACHABLE.search(answer.err):
        raise command.unexplained(arguments[0], answer)
    return answer


Arguments = Callable[[Plan, After], list[str]]


def submit(arguments: Arguments, batch_id: re.Pattern[str], plan: Plan, after: After) -> AcceptedJob:
    """Run the submit command and return the answer of the batch system.

    arguments: function that returns the submit command. batch_id: pattern with a group `id` and, if the batch system
    has clusters, a group `cluster`. Exactly one line of the output must match it; sites may print other lines. If the
    batch system rejects the job, raise ConfigError with its message. If this computer has no configuration of the
    batch system, raise InfrastructureError; no job was submitted. If it is not certain whether the batch system has
    the job, or which id the job has, raise Unanswered; the job is then found by its name.
    """
    submit_command = arguments(plan, after)
    try:
        answer = ask(*submit_command, cwd=plan.directory, patience_s=_SUBMIT_S)
    except NotConfigured as fault:
        raise InfrastructureError(f"the job was not submitted: {fault}") from fault
    lines = [line.strip() for line in answer.lines]
    ids = [match for line in lines if (match := batch_id.fullmatch(line))]
    if answer.code < 0 or answer.code in _KILLED or (answer.code and ids):
        raise unexplained(submit_command[0], answer)
    if answer.code:
        raise ConfigError(f"{submit_command[0]} rejected the job: {answer.text}")
    if len(ids) != 1:
        number = "several batch ids" if ids else "no batch id"
        raise Unanswered(
            f"{submit_command[0]} accepted the job, but printed {number} that dlio-hpc recognises: {answer.out[:200]!r}"
        )
    others = [*(line for line in lines if line != ids[0].string), *answer.err.splitlines()]
    remarks = " ".join(text.removeprefix(f"{submit_command[0]}: ") for text in others if text.strip())
    return AcceptedJob(ids[0]["id"], ids[0].groupdict().get("cluster") or "", printable(remarks)[:_REMARKS])


# State of a job whose batch id now belongs to another job.
REPLACED = JobStatus("lost", "its batch id now belongs to another job")


def own(program: str, jobs: Sequence[JobRef], rows: Iterable[Row | str]) -> dict[JobRef, JobStatus]:
    """Return the states of the jobs from the rows of an answer. If a row has the id of a job but another name and
    another folder, the batch system has lost its state and given the id to another job; the state of the job is then
    REPLACED. Names may be missing or truncated, so a row without a name, or with the start of the job's name, belongs
    to the job. If several rows describe a job, the last one is used. Raise Unanswered if a job is missing and a row
    could not be parsed. program: the command that answered. rows: parsed rows, and the text of other lines.
    """
    by_id: dict[str, list[JobRef]] = {}
    for job in jobs:
        by_id.setdefault(job.batch_id, []).append(job)
    states: dict[JobRef, JobStatus] = {}
    odd: list[str] = []
    for row in rows:
        if isinstance(row, str):
            odd.append(row)
            continue
        for job in by_id.get(row.batch_id, []):
            if _is_same(row, job):
                states[job] = row.status
            else:
                states.setdefault(job, REPLACED)
    if odd and any(job not in states for job in jobs):
        raise Unanswered(f"{program} printed something else than states of jobs: {odd[0][:80]!r}")
    return states


def _is_same(row: Row, job: JobRef) -> bool:
    if job.name.startswith(row.name):
        return True
    return row.directory != "" and os.path.realpath(row.directory) == os.path.realpath(job.directory)


def only_ids(program: str, lines: Sequence[str], batch_id: re.Pattern[str]) -> list[str]:
    """Return the lines that are batch ids. Raise Unanswered if there are only other lines. program: the command that
    printed them.
    """
    ids = [line.strip() for line in lines if batch_id.fullmatch(line.strip())]
    if not ids and any(line.strip() for line in lines):
        raise Unanswered(f"{program} printed no batch id: {lines[0][:80]!r}")
    return ids


def dependencies(plan: Plan, after: After) -> str:
    """Return the dependencies in the syntax of Slurm and PBS, such as "afterok:1:2,afterany:3". Raise ConfigError if an
    option of the job sets dependencies, too: the submit command would replace them.
    """
    names = refused_options.OPTIONS[plan.site.scheduler].dependency
    given = refused_options.values(plan.site.scheduler, [*plan.site.job_options, *plan.job_options], names)
    if any("depend" in value or names != "-W" for value in given):
        raise ConfigError(
            "a job option sets a dependency; it cannot be used with --after, or in a study of several jobs"
        )
    kinds = {"afterok": after.well, "afterany": after.over}
    return ",".join(":".join([kind, *ids]) for kind, ids in kinds.items() if ids)


def begin_time(plan: Plan) -> float | None:
    """Return the time before which the job must not start, in seconds since 1970. Return None if it may start
    immediately, or if this time has passed. Raise ConfigError if an option of the job sets a begin time, too: the
    submit command would replace it.
    """
    if not plan.begins:
        return None
    scheduler = plan.site.scheduler
    lines = [*plan.site.job_options, *plan.job_options]
    for refused in refused_options.OPTIONS[scheduler].begin:
        given = refused_options.values(scheduler, lines, refused.names)
        if any(re.fullmatch(refused.values, value, re.DOTALL) for value in given):
            raise ConfigError(
                f"a job option ({refused.names.split()[-1]}) sets a begin time; it cannot be used with --nights, which "
                "sets the begin time of each night"
            )
    moment = units.timestamp(plan.begins)
    return moment if moment > time.time() else None


def local_time(moment: float) -> datetime:
    """Return a time in the time zone of this process, for options that take local times. moment: the time in seconds
    since 1970. When the clocks are set back, an hour occurs twice; a time in this hour is replaced by the end of the
    hour.
    """
    while (local := datetime.fromtimestamp(moment)).replace(fold=1).timestamp() != local.replace(fold=0).timestamp():
        moment += _STEP_S
    return local


def typed(arguments: Arguments, plan: Plan, after: After) -> str:
    """Return the submission as a shell command line that a user can type."""
    return f"cd {shlex.quote(plan.directory)} && {shlex.join(arguments(plan, after))}"


def directive(text: str) -> Shell:
    """Return `text` for an option line of a batch system that does not support quoting. Raise ConfigError if `text` has
    unsafe characters.
    """
    return Shell(plain(text))


def options(plan: Plan, queue_option: str, account_option: str) -> list[str]:
    """Return the values of option lines that the template itself does not contain: queue, account, the options of the
    site, and the options of the user. Raise ConfigError if an option cannot be used.
    """
    site, queue = plan.site, plan.queue
    lines: list[str] = []
    if queue is not None:
        known = site.queues.get(queue)
        lines += known.options if known and known.options else [queue_option + plain(queue)]
    if plan.account is not None:
        lines.append(account_option + plain(plan.account))
    lines += [*site.job_options, *plan.job_options]
    refused_options.check(site.scheduler, lines)
    own = refused_options.OPTIONS[site.scheduler]
    for option, names, value in (("--queue", own.queue, queue), ("--account", own.account, plan.account)):
        if value is not None and refused_options.values(site.scheduler, plan.job_options, names):
            raise ConfigError(f"{option} {value}: a job option sets it, too; give one of them")
    return lines


def check_directory(plan: Plan, letters: str) -> None:
    """Raise ConfigError if the path of the job's directory contains one of `letters`, which the batch system would
    interpret.
    """
    if special := [letter for letter in letters if letter in plan.directory]:
        raise ConfigError(
            f"--runs: {plan.site.scheduler} cannot use {plan.directory}, because it contains {special[0]!r}; choose "
            "another folder"
        )


def plain(word: str) -> str:
    """Return `word` if every batch system reads it literally on an option line; otherwise raise ConfigError."""
    if not re.fullmatch(r"[\w./+=:,@%-]+", word):
        raise ConfigError(
            f"{word!r} has characters that a batch system may interpret; use letters, digits and ./+=:,@%-_"
        )
    return word


def user() -> str:
    """Return the name of this user, or the number of the user if it has no name, as in a container. Slurm and Lustre
    accept both.
    """
    return user_name() or str(os.getuid())


def user_name() -> str | None:
    """Return the name of this user, or None if it has none."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        return None
