"""Running a command of the machine's, which may be late, silent or missing."""

import os
from typing import NamedTuple

from dlio_hpc.errors import InfrastructureError

# Variables by which a user's shell would change what commands do and tell: sbatch(1) lets them win over the script, and
# hands those of an allocation that it is called from on to the job's srun; qsub(1B) takes lines that begin with
# PBS_DPREFIX for options instead of #PBS.
_CHANGES = (
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
# Busy servers take half a minute; whoever asks again has lost nothing.
_PATIENCE_S = 60


class Answer(NamedTuple):
    """What a command said, without blanks at the ends."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def words(self) -> str:
        """On one line, for a message."""
        said = " ".join((self.err or self.out).split())[:300]
        return said or f"it ended with {self.code} and said nothing"


class Unanswered(InfrastructureError):
    """Nothing was answered, or in no way we know: nothing has been learned."""


class Missing(Unanswered):
    """The command is not here."""


def ask(*words: str, cwd: str | None = None, patience_s: float = _PATIENCE_S) -> Answer:
    """The answer to a command, whatever it is; Unanswered when it cannot be run or takes too long."""
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_CHANGES)}
    try:
        done = subprocess.run(
            words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience_s,
            check=False,
        )  # fmt: skip
    except FileNotFoundError as fault:
        raise Missing(f"{words[0]} is not on PATH on {os.uname().nodename}") from fault
    except OSError as fault:
        raise Unanswered(f"cannot run {words[0]}: {fault.strerror}") from fault
    except subprocess.TimeoutExpired as fault:
        raise Unanswered(f"{words[0]} has not answered within {patience_s:.0f} s") from fault
    return Answer(done.returncode, *(text.decode(errors="replace").strip() for text in (done.stdout, done.stderr)))


def unexplained(command: str, answer: Answer) -> Unanswered:
    """The fault of an answer that tells nothing we asked for."""
    return Unanswered(f"{command} ended with {answer.code}: {answer.words}")
