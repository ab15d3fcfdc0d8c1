"""dlio-hpc record: run any program with the recorder in its Python processes."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from dlio_hpc.base.errors import ConfigError, name_hint
from dlio_hpc.cli.verbs import FOLDER, SETTINGS, option


@click.command(context_settings={**SETTINGS, "ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@option("-o", "--output", type=FOLDER, metavar="DIR", help="New folder of the recording. Default: recording-TIME.")
@option("--anonymous", is_flag=True, help="Store hashes instead of the names of files and folders.")
@option("--print", "is_printed", is_flag=True, help="Print shell commands that switch recording on; run nothing.")
def record(command: tuple[str, ...], output: Path | None, anonymous: bool, is_printed: bool) -> int:
    """Run a program, and record how its Python processes use their libraries: loaders and batches, steps, files,
    arrays, checkpoints, ranks. No data content is stored. `dlio-hpc characterize DIR` derives a workload from the
    recording.

    COMMAND may start ranks (mpiexec, srun, torchrun) or a container that has DIR: the variables PYTHONPATH and
    DLIO_HPC_RECORD reach each process. In a job script, `eval "$(dlio-hpc record -o DIR --print)"` sets these variables
    for all commands that follow. Processes of Python 3.8 and later are recorded, even if their Python has no dlio-hpc
    installed.

    COMMAND replaces the process of dlio-hpc, so the exit code is that of COMMAND, and COMMAND gets all signals and the
    terminal. At the end, a line on stderr says what was recorded.
    """
    from dlio_hpc.programs.recordings import recorded_run

    if not command and not is_printed:
        raise click.UsageError("name the program: dlio-hpc record -- python train.py")
    if command and is_printed:
        raise click.UsageError("--print runs nothing: leave out the program")
    folder = recorded_run.prepare(output)
    variables = recorded_run.variables(folder, anonymous)
    if is_printed:
        sys.stdout.write(recorded_run.exports(variables))
        return 0
    for note in _misplaced(command, output is not None, anonymous):
        click.echo(f"note: {note}", err=True)
    try:
        recorded_run.run(command, variables, folder)
    except OSError as fault:
        recorded_run.discard(folder)
        raise ConfigError(f"cannot run {command[0]}: {_reason(command, fault)}") from fault
    return 0


def _misplaced(command: tuple[str, ...], has_output: bool, is_anonymous: bool) -> Iterator[str]:
    """Yield a note for each option of record that comes after the command, and is not given before it."""
    for place, word in enumerate(command[1:], 1):
        name = word.partition("=")[0]
        is_given = has_output if name in _OUTPUT else is_anonymous
        if name in (*_OUTPUT, "--anonymous") and not is_given:
            text = shlex.join(command[place : place + 2] if word in _OUTPUT else [word])
            yield f"{text} comes after the command and was passed to it; put options of record before the command"


def _reason(command: tuple[str, ...], fault: OSError) -> str:
    """Return the reason why a program cannot be run, and what to do."""
    program, rest = command[0], shlex.join(command[1:])
    if program.startswith("-"):
        ranks = "ranks are started by a launcher: dlio-hpc record -- mpiexec -n 4 python train.py; "
        hint = ranks if program in ("-n", "-np") else name_hint(program, _OPTIONS, similar=0.8)
        return f"record has no option {program}; {hint}dlio-hpc record --help lists the options"
    if Path(program).is_file():
        if program.endswith(".ipynb"):
            return f"{program} is a notebook; write: dlio-hpc record -- jupyter nbconvert --execute --to html {program}"
        hint = f"; write: dlio-hpc record -- python {program}" if program.endswith(".py") else ""
        return f"{fault.strerror}{hint}"
    if " " in program:
        return f"there is no program of this name; leave out the quotes: dlio-hpc record -- {program} {rest}".rstrip()
    if "/" not in program:
        return f"it is not in PATH; {name_hint(program, _PROGRAMS)}give a program in PATH, or the path of a program"
    return fault.strerror or str(fault)


_OUTPUT = ("-o", "--output")
_OPTIONS = ("--output", "--anonymous", "--print")
# Programs that users record, for suggestions.
_PROGRAMS = ("python", "python3", "mpiexec", "mpirun", "srun", "torchrun", "bash", "apptainer", "jupyter")
