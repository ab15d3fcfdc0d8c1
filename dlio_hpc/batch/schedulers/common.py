"""What batch systems have in common: commands that ask a server, lines of options at the head of a script."""

import re
import shlex
from collections.abc import Callable

from dlio_hpc import command
from dlio_hpc.batch.schedulers.scheduler import After
from dlio_hpc.batch.shell_quoting import Shell
from dlio_hpc.command import Answer, Unanswered
from dlio_hpc.errors import ConfigError
from dlio_hpc.plan.plan import Plan

_SUBMIT_S = 180
_UNREACHABLE = re.compile(
    r"unable to contact|contact slurm|socket timed out|connect|zero bytes|communication|connection|unreachable",
    re.IGNORECASE,
)


def ask(*words: str, cwd: str | None = None, patience_s: float | None = None) -> Answer:
    """The answer of a batch system's command; Unanswered when it finds no server."""
    patience = {} if patience_s is None else {"patience_s": patience_s}
    answer = command.ask(*words, cwd=cwd, **patience)
    if answer.code and _UNREACHABLE.search(answer.err):
        raise command.unexplained(words[0], answer)
    return answer


Words = Callable[[After], list[str]]


def submit(words: Words, batch_id: re.Pattern[str], plan: Plan, after: After) -> str:
    """The id of the job that the command takes in: the first group of the last line that is `batch_id`, sites say other
    things before it. ConfigError in the batch system's words when it is refused.
    """
    command_words = words(after)
    answer = ask(*command_words, cwd=plan.directory, patience_s=_SUBMIT_S)
    if answer.code:
        raise ConfigError(f"{command_words[0]} refuses the job: {answer.words}")
    for line in reversed(answer.lines):
        if match := batch_id.fullmatch(line.strip()):
            return match[1]
    raise Unanswered(f"{command_words[0]} took the job but gave no id that we know: {answer.out[:200]!r}")


def dependencies(after: After) -> str:
    """As Slurm and PBS have them: afterok:1:2,afterany:3."""
    kinds = {"afterok": after.well, "afterany": after.over}
    return ",".join(":".join([kind, *ids]) for kind, ids in kinds.items() if ids)


def typed(words: Words, plan: Plan, after: After) -> str:
    """A submission as a person would type it."""
    return f"cd {shlex.quote(plan.directory)} && {shlex.join(words(after))}"


def directive(text: str) -> Shell:
    """A word on a line of options that knows no quotes."""
    return Shell(plain(text))


def options(plan: Plan, queue_option: str, account_option: str) -> list[str]:
    """The lines of options beyond what the template says: queue, account, the site's, the user's."""
    site, queue = plan.site, plan.queue
    lines: list[str] = []
    if queue is not None:
        known = site.queues.get(queue)
        lines += known.options if known and known.options else [queue_option + plain(queue)]
    if plan.account is not None:
        lines.append(account_option + plain(plan.account))
    return [*lines, *site.job_options, *plan.job_options]


def check_directory(plan: Plan, letters: str) -> None:
    """ConfigError when the job's directory has one of `letters`, of which the batch system makes something else."""
    if found := [letter for letter in letters if letter in plan.directory]:
        raise ConfigError(
            f"--runs: {plan.site.scheduler} cannot work in {plan.directory}: {found[0]!r}; choose another folder"
        )


def plain(word: str) -> str:
    """A word that means itself on every batch system's lines of options; ConfigError for any other."""
    if not re.fullmatch(r"[\w./+=:,@%-]+", word):
        raise ConfigError(f"{word!r} cannot be told to a batch system; letters, digits and ./+=:,@%-_ can")
    return word


def user() -> str:
    import getpass

    return getpass.getuser()
