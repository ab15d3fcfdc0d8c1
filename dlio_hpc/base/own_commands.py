"""Commands of dlio-hpc in messages and pages, with the options that the user gave."""

import re
import shlex
from pathlib import Path

# Folder of jobs if --runs is not given, and verbs whose commands look for jobs in it.
USUAL = "dlio-runs"
VERBS = ("status", "wait", "cancel", "collect", "report", "history", "compare", "top", "clean")
# A command without the option, unless its first argument is a path, or "with" and the text after the command.
_COMMAND = re.compile(rf"\bdlio-hpc ({'|'.join(VERBS)})\b(?! (?:-o|--runs|--help|with)\b)(?! \S*/)")


def with_runs(text: str, runs: Path | str | None) -> str:
    """Return a text in which each command of dlio-hpc that looks for jobs has the option -o. runs: folder of jobs that
    the user gave; None if the user gave none.
    """
    if runs is None or str(runs) == USUAL:
        return text
    option = shlex.quote(str(runs))
    return _COMMAND.sub(lambda match: f"{match[0]} -o {option}", text)
