"""Options of batch systems that are refused, because they split a job into several jobs, or change a setting on which
the job script depends.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError

_SEVERAL = "it makes several jobs, which would measure at the same time in one directory; use --repeat or a study"
_OUTPUT = "dlio-hpc reads job.out and job.err in the job's directory"
_FOLDER = "the job runs in its own directory"
_NAME = "dlio-hpc finds the job by its name; use --runs to keep jobs apart"
_SIZE = "the plan has the number of nodes and ranks; use --nodes and --ppn"
_TIME = "the plan has the time limit; use --time"
_WARNING = "the script gets a signal before the time limit; use the key site.warning_time"
_NO_JOB = "it submits no job"
_SCRIPT = "the job script is the program of the job"
_WAITS = "the submit command would wait for the end of the job; use --wait of dlio-submit"


class Refused(NamedTuple):
    """Options that are refused. names: alternative names of one option, separated by blanks. why: reason, for the
    message. values: pattern of the values that are refused.
    """

    names: str
    why: str
    values: str = ".*"


class SubmitOptions(NamedTuple):
    """The options of a submit command. refused: the options that are refused. flags: letters of the short options that
    have no value. queue, account, dependency: names of these options; a second value for one of them is refused. begin:
    options that set the time before which a job does not start; they are refused if dlio-hpc sets it.
    """

    refused: tuple[Refused, ...]
    flags: str
    queue: str = ""
    account: str = ""
    dependency: str = ""
    begin: tuple[Refused, ...] = ()


_BEGINS = "the nights set the begin times of their jobs"

# sbatch(1), qsub(1B) of OpenPBS, flux-batch(1), and qsub of Cobalt 1.0.33.
OPTIONS: dict[str, SubmitOptions] = {
    "slurm": SubmitOptions(
        (
            Refused("-a --array", _SEVERAL),
            Refused("hetjob packjob : --het-group --pack-group", "a heterogeneous job has several allocations"),
            Refused("-o --output -e --error --open-mode", _OUTPUT),
            Refused("-i --input", "the job script reads no input"),
            Refused("-D --chdir", _FOLDER),
            Refused("-J --job-name", _NAME),
            Refused("-N --nodes -n --ntasks --ntasks-per-node --tasks-per-node -F --nodefile", _SIZE),
            Refused("--ntasks-per-socket --ntasks-per-core --ntasks-per-gpu -B --extra-node-info", _SIZE),
            Refused("-t --time", _TIME),
            Refused("--signal", _WARNING),
            Refused("--wrap", _SCRIPT),
            Refused("-W --wait", _WAITS),
            Refused("-k --no-kill", "the job would continue without a node that failed"),
            Refused("--test-only -h --help --usage -V --version", _NO_JOB),
        ),
        "hHIkOQsuvVW", "-p --partition", "-A --account", "-d --dependency", (Refused("-b --begin", _BEGINS),),
    ),
    "pbs": SubmitOptions(
        (
            Refused("-J", _SEVERAL),
            Refused("-o -e -j -R", _OUTPUT),
            Refused("-k", f"{_OUTPUT}; use -k doe, which writes them there", "(?!n$)[^d]*"),
            Refused("-N", _NAME),
            Refused("-l", _SIZE, r"(.*,)?(select|nodes|nodect|ncpus|mpiprocs)=.*"),
            Refused("-l", _TIME, r"(.*,)?walltime=.*"),
            Refused("-W", _WAITS, r"(.*,)?\s*block\s*=\s*(?i:true).*"),
            Refused("-W", _FOLDER, r"(.*,)?\s*sandbox\s*=\s*(?i:private).*"),
            Refused("-W", _SEVERAL, r"(.*,)?\s*array_indices_submitted\s*=.*"),
            Refused("-W", _OUTPUT, r"(.*,)?\s*(Output_Path|Error_Path|Join_Path|Keep_Files|Remove_Files)\s*=.*"),
            Refused("-W", _NAME, r"(.*,)?\s*Job_Name\s*=.*"),
            Refused("-W", "the job script needs bash", r"(.*,)?\s*Shell_Path_List\s*=.*"),
            Refused("-W", "the job is a batch job", r"(.*,)?\s*interactive\s*=.*"),
            Refused("-S", "the job script needs bash"),
            Refused("-C", "it changes the mark of option lines"),
            Refused("-I -X -G -f", "the job is a batch job"),
            Refused("-z", "dlio-hpc reads the batch id that qsub prints"),
            Refused("--", _SCRIPT),
        ),
        "fhIVXzG", "-q", "-A", "-W",
        (Refused("-a", _BEGINS), Refused("-W", _BEGINS, r"(.*,)?\s*Execution_Time\s*=.*")),
    ),
    "flux": SubmitOptions(
        (
            Refused("--cc --bcc", _SEVERAL),
            Refused("--output --error", _OUTPUT),
            Refused("--input", "the job script reads no input"),
            Refused("--cwd", _FOLDER),
            Refused("--job-name", _NAME),
            Refused("-N --nodes -n --nslots", _SIZE),
            Refused("-t --time-limit", _TIME),
            Refused("--signal", "Flux also sends the signal to the brokers of the other nodes, and it ends them"),
            Refused("--wrap", _SCRIPT),
            Refused("--dry-run -h --help", _NO_JOB),
            Refused("-o --setopt", _OUTPUT, r"(output|error|input)\b.*"),
            Refused("-S --setattr", _FOLDER, r"(attributes\.)?\.?(system\.)?cwd=.*"),
            Refused("-S --setattr", _TIME, r"(attributes\.)?\.?(system\.)?duration=.*"),
            Refused("-S --setattr", _NAME, r"(attributes\.)?\.?(system\.)?job\.name=.*"),
            Refused("-S --setattr", _OUTPUT, r"(attributes\.)?\.?(system\.)?shell\.options\.output.*"),
        ),
        "hvxuq", "-q --queue", "--bank", "",
        (Refused("--begin-time", _BEGINS), Refused("--dependency", _BEGINS, "begin-time:.*")),
    ),
    "cobalt": SubmitOptions(
        (
            Refused("-o --output -e --error -O --outputprefix --debuglog", _OUTPUT),
            Refused("-i --inputfile", "the job script reads no input"),
            Refused("--cwd", _FOLDER),
            Refused("--jobname", _NAME),
            Refused("-n --nodecount --proccount", _SIZE),
            Refused("-t --time", _TIME),
            Refused("--mode", "the job is a script"),
            Refused("-I --interactive", "the job is a batch job"),
            Refused("--version --help", _NO_JOB),
        ),
        "dhvI", "-q --queue", "-A --project", "--dependencies",
    ),
    "local": SubmitOptions((), ""),
}  # fmt: skip


def check(scheduler: str, lines: Iterable[str]) -> None:
    """Raise ConfigError if an option line has an option that is refused. scheduler: name of the batch system."""
    options = OPTIONS[scheduler]
    for line in lines:
        for name, value in _parsed(line, options):
            if (why := _why(name, value, options)) is not None:
                raise ConfigError(f"job option {line!r}: {name} cannot be used, because {why}")


def values(scheduler: str, lines: Iterable[str], names: str) -> list[str]:
    """Return the values of an option in option lines. names: alternative names of the option, separated by blanks."""
    options = OPTIONS[scheduler]
    return [value for line in lines for name, value in _parsed(line, options) if _is_one_of(name, names)]


def _why(name: str, value: str, options: SubmitOptions) -> str | None:
    rows = (row for row in options.refused if _is_one_of(name, row.names))
    return next((row.why for row in rows if re.fullmatch(row.values, value, re.DOTALL)), None)


def _is_one_of(name: str, names: str) -> bool:
    """Return whether an option has one of these names. A long option may be abbreviated (getopt_long(3))."""
    is_cut = name.startswith("--") and len(name) > 3
    return any(name == full or (is_cut and full.startswith(name)) for full in names.split())


def _parsed(line: str, options: SubmitOptions) -> Iterator[tuple[str, str]]:
    """Yield the options of a line with their values. An option without a value gets the next token, or an empty text. A
    token of several letters, such as -Ha, may be several short options.
    """
    try:
        tokens = shlex.split(line)
    except ValueError:
        tokens = line.split()
    for number, token in enumerate(tokens):
        following = tokens[number + 1] if number + 1 < len(tokens) else ""
        if token.startswith("--") or not token.startswith("-"):
            name, equals, value = token.partition("=")
            yield name, value if equals else following
            continue
        for place, letter in enumerate(token[1:], 1):
            is_flag = letter in options.flags
            yield f"-{letter}", "" if is_flag else token[place + 1 :].removeprefix("=") or following
            if not is_flag:
                break
