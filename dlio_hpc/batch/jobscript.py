"""The job script: a plan printed through the templates. Templates print, this module computes."""

import os
import shlex
import site
from pathlib import Path

import jinja2

from dlio_hpc import rundir, shipped
from dlio_hpc.batch import launchers
from dlio_hpc.plan import Plan


class Shell(str):
    """Text that may stand in a script as it is."""


def render(plan: Plan) -> str:
    """The whole script. Every value that reaches the shell was quoted, or rendering fails."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped.root() / "templates"),
        undefined=jinja2.StrictUndefined,
        finalize=_only_shell,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(quote=quote, comment=comment, verbatim=Shell)
    launch = launchers.command(plan)
    runs = [
        {
            "title": f"== {rundir.run_name(run.number, run.name)}",
            "kind": run.kind,
            "command": Shell(shlex.join([*launch, *core_command(plan, run.number)])),
        }
        for run in plan.runs
    ]
    template = environment.get_template(f"{plan.site.scheduler}.sh.j2")
    return template.render(plan=plan, runs=runs, python_path=_python_path())


def core_command(plan: Plan, number: int) -> list[str]:
    """What every rank executes; mpi4py's runner ends all ranks when one raises."""
    return [str(plan.site.python), "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", str(number)]


def quote(text: str) -> Shell:
    """`text` as one word of the shell, whatever is in it."""
    return Shell(shlex.quote(text))


def comment(text: str) -> Shell:
    """`text` on one line, so that it cannot leave the comment it stands in."""
    return Shell("".join(character if character.isprintable() else "?" for character in text))


def _only_shell(value: object) -> object:
    """What templates may print: numbers, and text that a filter has made fit for the shell."""
    if not isinstance(value, (Shell, int, jinja2.Undefined)):
        raise TypeError(f"a template prints {value!r} without the filter quote, comment or verbatim")
    return value


def _python_path() -> str | None:
    """Where the ranks find this package when the interpreter does not find it by itself."""
    home = Path(__file__).resolve().parents[2]
    known = [*site.getsitepackages(), site.getusersitepackages()]
    return None if str(home) in map(os.path.realpath, known) else str(home)
