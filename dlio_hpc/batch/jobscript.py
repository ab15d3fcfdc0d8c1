"""Rendering of the job script from a plan. All values are computed here; the templates only print them."""

import os
import site
from pathlib import Path
from typing import NamedTuple

import jinja2

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.batch import container, launchers, template_cache
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.batch.shell_quoting import Shell, comment, join, quote
from dlio_hpc.config import shipped
from dlio_hpc.config.site import depth
from dlio_hpc.files import rundir
from dlio_hpc.lustre import lfs
from dlio_hpc.plan import cost
from dlio_hpc.plan.plan import Plan, Run

# The program that removes what killed ranks leave on a node.
LEFTOVERS = Path(__file__).resolve().parents[1] / "core" / "node_leftovers.py"


class ScriptStep(NamedTuple):
    """A step of the job script: a command that signals can interrupt. otherwise: shell command that is executed if the
    command of the step fails. darshan: folder for the Darshan log of the step; None if the step runs without Darshan.
    notes: comment lines above the step.
    """

    name: str
    command: Shell
    otherwise: Shell
    darshan: Shell | None = None
    notes: tuple[str, ...] = ()


def render(plan: Plan) -> str:
    """Return the text of the job script. Raise TypeError if a template prints a value that was not made safe for the
    shell.
    """
    scheduler = SCHEDULERS[plan.site.scheduler]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped.root() / "templates"),
        undefined=jinja2.StrictUndefined,
        finalize=_only_shell,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        optimized=False,  # a template is rendered once
        bytecode_cache=template_cache.of_user(),
    )
    environment.filters.update(quote=quote, comment=comment, verbatim=Shell, directive=scheduler.directive)
    template = environment.get_template(f"{plan.site.scheduler}.sh.j2")
    return template.render(
        plan=plan,
        steps=_steps(plan),
        depth=depth(plan.site, plan.ranks_per_node),
        python_path=python_path(),
        stage=_stage(plan),
        image=_image(plan),
        darshan=_darshan(plan),
        sweep=_sweep(plan),
        job_variable=Shell(scheduler.job_variable),
        **scheduler.request(plan),
    )


def _steps(plan: Plan) -> list[ScriptStep]:
    """Return the steps of the script. First, a step imports the packages that the runs need, if any. Then, for each
    dataset, steps check the layout, generate the dataset if necessary, and read the layout back. The last steps are the
    warm-up and measured runs. If the plan has several datasets and the steps of one dataset fail, the script continues
    with the others.
    """
    otherwise = Shell("exit $?   # end the job: its runs need this dataset" if len(plan.datasets) == 1 else "status=$?")
    steps = [_packages(plan)] if plan.packages else []
    for run in plan.datasets:
        generate = _run(plan, run, otherwise) if run.kind == "generate" else []
        steps += [_layout(plan, run, "before", otherwise), *generate, _layout(plan, run, "after", otherwise)]
    launched = [run for run in plan.runs if run.kind != "generate" and run.launch in (None, run.number)]
    return [*steps, *(step for run in launched for step in _run(plan, run, _GO_ON))]


_GO_ON = Shell("status=$?")


class Image(NamedTuple):
    """Parts of the job script that concern the container of the ranks. container: value of the array `container`, the
    command that starts a program in the container. created: directories to create, so that they can
    be bound. program: Python program that tests the image. test: command that runs the program once on each node; the
    shell variable `test` holds the program. fault: shell command for an image that fails the test. library: path of
    libdarshan if it must be bound, otherwise None. darshan_bind: arguments of the engine that bind it.
    """

    container: Shell
    created: Shell
    program: Shell
    test: Shell
    fault: Shell
    library: Shell | None
    darshan_bind: Shell


def _image(plan: Plan) -> Image | None:
    image = plan.site.container
    if image is None:
        return None
    first = rundir.run_name(plan.runs[0].number, plan.runs[0].name)
    test = container.test(image, plan.version, rundir.PLAN, f"{rundir.RUNS}/{first}/{rundir.ERROR}")
    program = [Shell('"$test"') if argument == container.CHECK else argument for argument in test]
    launch = launchers.rank_command(plan, one_a_node=True)
    library = container.library(plan)
    return Image(
        join(container.array(plan, image)),
        join(container.created(plan)),
        quote(container.CHECK),
        join([*launch, *program]),
        Shell(f"exit $(( $? == {container.UNUSABLE} ? {container.UNUSABLE} : {InfrastructureError.exit_code} ))"),
        None if library is None else quote(library.source),
        join([] if library is None else [container.bind_option(image, library)]),
    )


class Stage(NamedTuple):
    """Parts of the job script that stage the Python environment on the nodes. folder: folder of the environment on each
    node; the script appends a number to its name. unpack, remove: commands that run once on each node.
    """

    folder: Shell
    unpack: Shell
    remove: Shell


def _stage(plan: Plan) -> Stage | None:
    if plan.site.stage_environment is None:
        return None
    launch = launchers.command(plan, one_a_node=True)
    archive, python = (Shell(f'"$job/{rundir.PYTHON_ENVIRONMENT}"'), _staged_python(plan))
    unpack = [*launch, "sh", "-c", Shell('"$unpack"'), "sh", Shell('"$staged"'), archive, python]
    remove = [*launch, "rm", "-rf", Shell('"$staged"')]
    return Stage(quote(os.path.join(plan.site.stage_environment, plan.job)), join(unpack), join(remove))


def _staged_python(plan: Plan) -> Shell:
    return Shell('"$staged"/bin/' + quote(os.path.basename(str(plan.site.python))))


def _packages(plan: Plan) -> ScriptStep:
    """Return the step in which one rank on each node imports the packages that the runs need. If an import fails, the
    job ends.
    """
    launch = launchers.rank_command(plan, one_a_node=True)
    command = [*launch, *core_command(plan, plan.runs[0].number), "--packages"]
    return ScriptStep("packages", join(command), Shell("exit $?   # end the job: its runs need these packages"))


def _run(plan: Plan, run: Run, otherwise: Shell) -> list[ScriptStep]:
    """Return the steps of a run: the run itself and, if the run uses Darshan, a check of its Darshan log. otherwise:
    shell command that is executed if the run fails.
    """
    name = rundir.run_name(run.number, run.name)
    launch = launchers.rank_command(plan, run.darshan)
    step = ScriptStep(name, join([*launch, *core_command(plan, run.number)]), otherwise)
    probe = _probe(plan, run) if cost.is_probed(plan.site, run) else []
    others = plan.launched_with(run)[1:]
    if others:
        together = ", ".join(rundir.run_name(one.number, one.name) for one in others)
        step = step._replace(notes=(f"The same launch makes {together}",))
    if not run.darshan:
        return [*probe, step]
    folder = quote(f"{rundir.RUNS}/{name}/{rundir.DARSHAN}")
    judged = [*_darshan_command(plan), "judge", rundir.PLAN, "--run", str(run.number)]
    return [
        *probe,
        step._replace(darshan=folder),
        ScriptStep(f"darshan {name}", join(judged), Shell("[ $? != 3 ] || status=3")),
    ]


def _probe(plan: Plan, run: Run) -> list[ScriptStep]:
    """Return the step that reads the dataset in a plain loop before a measured run, without Darshan. The run is made
    even if the probe fails.
    """
    command = [*launchers.command(plan), *core_command(plan, run.number), "--probe"]
    return [ScriptStep(f"probe {rundir.run_name(run.number, run.name)}", join(command), Shell("true"))]


class Sweep(NamedTuple):
    """Parts of the job script that clear the nodes after a run that did not succeed. launch: launcher command that
    starts a program once on each node; empty if only the first node can be cleared. python, program: the interpreter
    and the file that it runs. kills: whether ranks that remain are killed first; otherwise the batch system kills them.
    """

    launch: Shell
    python: Shell
    program: Shell
    kills: bool


def _sweep(plan: Plan) -> Sweep:
    """Return how the nodes of the job are cleared.

    The batch system ends ranks that the launcher starts as its processes. If ranks on the other nodes are started
    through pbs_tmrsh, only the first node is cleared, because PBS starts no further processes in a job that it is
    ending.
    """
    launcher = plan.site.launcher
    everywhere = plan.nodes > 1 and launcher.remote != "pbs_tmrsh"
    return Sweep(
        join(launchers.command(plan, one_a_node=True) if everywhere else []),
        quote(str(plan.site.python)),
        quote(str(LEFTOVERS)),
        launcher.kind not in {"srun", "pals", "aprun", "flux"},
    )


class Darshan(NamedTuple):
    """Parts of the job script that set up Darshan. A trial with two ranks checks that Darshan works. on, off: launcher
    arguments with and without Darshan. early: additional launcher arguments for libdarshan before 3.4. excluded:
    command that prints the folders that libdarshan before 3.4 must exclude; for later versions, the command prints
    nothing. folder: folder for the files of the trial. probe: command of the trial.
    """

    on: Shell
    off: Shell
    early: Shell
    excluded: Shell
    folder: Shell
    probe: Shell


def _darshan(plan: Plan) -> Darshan | None:
    if not any(run.darshan for run in plan.runs):
        return None
    on, off, early = (join(arguments) for arguments in launchers.darshan_words(plan))
    excluded = join([*_darshan_command(plan), "excluded", rundir.PLAN])
    ranks = [_rank_python(plan), "-m", "mpi4py", "-c", "from mpi4py import MPI"]
    probe = [*_darshan_command(plan), "probe", rundir.PLAN, Shell('"$log"'), "--"]
    launch = launchers.rank_command(plan, darshan=True, few=True)
    return Darshan(on, off, early, excluded, Shell(rundir.DARSHAN), join([*probe, *launch, *ranks]))


def _darshan_command(plan: Plan) -> list[str]:
    return [str(plan.site.python), "-m", "dlio_hpc.darshan"]


def _layout(plan: Plan, run: Run, when: str, otherwise: Shell) -> ScriptStep:
    command = [str(plan.site.python), "-m", "dlio_hpc.lustre", rundir.PLAN, when]
    notes = _setstripe(run) if when == "before" else ()
    if len(plan.datasets) == 1:
        return ScriptStep(f"layout {when}", join(command), Shell("exit $?"), notes=notes)
    name = rundir.run_name(run.number, run.name)
    return ScriptStep(f"layout {when} {name}", join([*command, "--run", str(run.number)]), otherwise, notes=notes)


def _setstripe(run: Run) -> tuple[str, ...]:
    """Return a comment line with the command that sets the Lustre layout of a new dataset. Return an empty tuple if the
    run does not generate a dataset, or if no layout is requested.
    """
    if run.layout is None or run.kind != "generate":
        return ()
    return (f"On Lustre, before the dataset is written: {lfs.command_line(run.dataset, run.layout)}",)


def core_command(plan: Plan, number: int) -> list[str]:
    """Return the command that every rank of run `number` executes. The command uses mpi4py's runner, which aborts all
    ranks if one of them raises an error.
    """
    python = _rank_python(plan) if plan.site.stage_environment is None else _staged_python(plan)
    return [python, "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", str(number)]


def _rank_python(plan: Plan) -> str:
    """Return the interpreter of ranks that import from its own location, without staging."""
    return str(plan.site.python) if plan.site.container is None else plan.site.container.python


def _only_shell(value: object) -> object:
    """Return `value` if a template may print it: if it is a number, or text that a filter made safe for the shell.
    Raise TypeError for other values.
    """
    if not isinstance(value, (Shell, int, jinja2.Undefined)):
        raise TypeError(f"a template prints {value!r} without the filter quote, comment or verbatim")
    return value


def python_path() -> str | None:
    """Return the folder that contains this package, or None if the interpreter finds the package without PYTHONPATH."""
    home = Path(__file__).resolve().parents[2]
    known = [*site.getsitepackages(), site.getusersitepackages()]
    return None if str(home) in map(os.path.realpath, known) else str(home)
