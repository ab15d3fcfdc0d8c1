"""The job script: a plan printed through the templates. Templates print, this module computes."""

import os
import shlex
import site
from pathlib import Path

import jinja2

from dlio_hpc import rundir, shipped
from dlio_hpc.batch import launchers
from dlio_hpc.plan import Plan


def render(plan: Plan) -> str:
    """The whole script. Every value that reaches the shell is quoted once, by shlex."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped.root() / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(quote=shlex.quote, comment=comment)
    launch = launchers.command(plan)
    runs = [
        {
            "name": rundir.run_name(run.number, run.name),
            "kind": run.kind,
            "command": shlex.join([*launch, *core_command(plan, run.number)]),
        }
        for run in plan.runs
    ]
    template = environment.get_template(f"{plan.site.scheduler}.sh.j2")
    return template.render(plan=plan, runs=runs, python_path=_python_path())


def core_command(plan: Plan, number: int) -> list[str]:
    """What every rank executes; mpi4py's runner ends all ranks when one raises."""
    return [plan.python, "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", str(number)]


def comment(text: str) -> str:
    """`text` on one line, so that it cannot leave the comment it stands in."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _python_path() -> str | None:
    """Where the ranks find this package when the interpreter does not find it by itself."""
    home = Path(__file__).resolve().parents[2]
    known = [*site.getsitepackages(), site.getusersitepackages()]
    return None if str(home) in map(os.path.realpath, known) else str(home)
