"""Run commands of the system. They may be slow, give no answer or be missing."""

import os
from typing import NamedTuple

from dlio_hpc.base import log_file
from dlio_hpc.base.errors import InfrastructureError

# Prefixes of environment variables that change the behaviour and output of commands. Commands are run without these
# variables. In sbatch(1) they override the script, and variables of a surrounding allocation are passed to the job's
# srun. qsub(1B) reads options from lines that begin with PBS_DPREFIX instead of #PBS.
_REMOVED = (
    "SBATCH_",
    "SQUEUE_",
    "SACCT_",
    "SCANCEL_",
    "SINFO_",
    "SLURM_",
    "SRUN_",
    "SALLOC_",
    "PMI_",
    "PMIX_",
    "QSTAT",
    "PBS_DPREFIX",
    "PBS_SHELL",
)
_KEPT = {"SLURM_CONF", "SLURM_JWT"}
# Default timeout in seconds. Busy servers take half a minute, and a query can be repeated without harm.
_PATIENCE_S = 60


class Answer(NamedTuple):
    """Exit code and output of a command. Whitespace at the start and end of the output is removed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def text(self) -> str:
        """For a message: the first 300 characters of stderr on one line. If stderr is empty, the first 300 characters
        of stdout. If both are empty, a text with the exit code.
        """
        text = " ".join((self.err or self.out).split())[:300]
        return text or f"it ended with {self.code} without output"


class Unanswered(InfrastructureError):
    """A command gave no usable answer. The state that was asked for is therefore unknown."""


class CommandMissing(Unanswered):
    """The command is not on PATH on this node."""


def ask(*arguments: str, cwd: str | None = None, patience_s: float = _PATIENCE_S) -> Answer:
    """Run a command and return its answer, whatever its exit code. Raise Unanswered if the command cannot be run or
    does not end within `patience_s` seconds.
    """
    with log_file.command(arguments) as outcome:
        try:
            answer = _answer(arguments, cwd, patience_s)
        except Unanswered as fault:
            outcome.append(str(fault))
            raise
        outcome.append(f"exit code {answer.code}{f': {answer.text}' if answer.code else ''}")
    return answer


def _answer(arguments: tuple[str, ...], cwd: str | None, patience_s: float) -> Answer:
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_REMOVED)}
    try:
        done = subprocess.run(
            arguments, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience_s,
            check=False,
        )  # fmt: skip
    except FileNotFoundError as fault:
        raise CommandMissing(f"{arguments[0]} is not on PATH on {os.uname().nodename}") from fault
    except OSError as fault:
        raise Unanswered(f"cannot run {arguments[0]}: {fault.strerror}") from fault
    except subprocess.TimeoutExpired as fault:
        raise Unanswered(f"{arguments[0]} has not answered within {patience_s:.0f} s") from fault
    return Answer(done.returncode, *(text.decode(errors="replace").strip() for text in (done.stdout, done.stderr)))


def unexplained(command: str, answer: Answer) -> Unanswered:
    """Return the error for a command whose answer is not usable."""
    return Unanswered(f"{command} ended with {answer.code}: {answer.text}")
