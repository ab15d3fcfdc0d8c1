"""Error messages for options and arguments that click refuses. The messages are extended by suggestions."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from dlio_hpc.base.errors import DlioError, name_hint, nearest_name
from dlio_hpc.cli import given_runs
from dlio_hpc.config import defaults, shipped
from dlio_hpc.config.dlio_benchmark import hydra_settings

# Options of batch systems, launchers and dlio_benchmark, and what they are called here.
_ELSEWHERE = {
    "--ntasks-per-node": "--ppn", "--tasks-per-node": "--ppn", "--ranks-per-node": "--ppn", "--num-nodes": "--nodes",
    "--partition": "--queue", "-p": "--queue", "--qos": "--queue", "--walltime": "--time", "--time-limit": "--time",
    "-l": "--nodes", "-m": "--message", "--project": "--account", "--data-dir": "--data", "--data-folder": "--data",
}  # fmt: skip
# Options that give the ranks of all nodes together.
_ALL_RANKS = ("-n", "--ntasks", "--np", "--ranks", "--num-tasks")
# Options of fio, IOR and elbencho, and the setting that has this effect.
_SETTINGS = {
    "--ioengine": "reader.engine=io_uring", "--iodepth": "reader.queue_depth=16", "--direct": "reader.direct=true",
    "--bs": "reader.transfer_size=1MiB", "--blocksize": "reader.transfer_size=1MiB",
    "--block": "reader.transfer_size=1MiB", "--transfersize": "reader.transfer_size=1MiB",
    "--threads": "reader.read_threads=4", "--numjobs": "reader.read_threads=4",
    "--num-workers": "reader.read_threads=4", "--batch-size": "reader.batch_size=8", "--epochs": "train.epochs=2",
    "--steps": "train.steps=100", "--nrfiles": "dataset.files=64", "--format": "dataset.format=hdf5",
    "--filesize": "dataset.sample.size=1MiB",
}  # fmt: skip
# Least similarity from which another option is suggested.
_SIMILAR = 0.75
_DRY_RUN = "did you mean '--dry-run'?"
# Options and arguments that a verb does not take, and what would do, by the verb and the option; "" is an argument. The
# verb may have the name of its group.
_INSTEAD = {
    ("import", "-S"): "write keys of dlio_benchmark in its own syntax, such as ++workload.reader.batch_size=8; set "
    "keys of dlio-hpc with -S when you submit the workload",
    ("submit", "--no-wait"): "dlio-submit does not wait unless --wait is given; leave it out",
    ("schema", "--json"): "schema prints JSON, unless --text is given; leave --json out",
    ("estimate", "--wait"): "estimate submits nothing; leave --wait out, or submit with dlio-submit",
    ("estimate", "--dry-run"): "estimate submits nothing; leave --dry-run out",
    ("clean", "-n"): _DRY_RUN,
    ("archive prune", "-n"): _DRY_RUN,
    ("datasets remove", "-n"): _DRY_RUN,
    ("datasets remove", "--all"): "give the names of the datasets (dlio-hpc datasets list), or --unfinished",
    ("datasets list", ""): "the folder of datasets is given by an option: --data DIR",
    ("baseline list", ""): "list takes no jobs; dlio-hpc baseline show BASELINE shows the baseline of a job",
    ("baseline accept", ""): "give one job; if the jobs are those of a study, give the study",
    ("history", ""): "give one pattern, in quotes, so that the shell does not expand it: 'demo*'",
    ("top", "-d"): "give the time between two lines with --every",
    ("top", "-n"): "give the time between two lines with --every",
    ("wait", "--timeout"): "wait has no time limit; set one with timeout(1): timeout 10m dlio-hpc wait JOB",
    ("wait", "-t"): "wait has no time limit; set one with timeout(1): timeout 10m dlio-hpc wait JOB",
    ("workloads", "--keys"): "dlio-hpc schema workload --text lists the keys",
    ("sites", "--keys"): "dlio-hpc schema site --text lists the keys",
    ("schema", ""): "give one name; to search for a key: dlio-hpc schema workload --text | grep -A3 KEY",
    ("clean", ""): (
        "clean takes no jobs; it removes what killed commands left in the folder --runs. The directory "
        "of an archived job is no longer needed: remove it with rm"
    ),
    ("submit", ""): "give one workload. Put patterns in quotes, so that the shell does not expand them: --existing "
    "'*.npz'",
}

# Values that are meant for another option, by the verb and the option: what they look like, and what to use.
_OTHER_VALUES = {
    ("history", "--last"): (r"\d+[hdwy]", "--last takes a number of jobs; for days, use --since DAY"),
    ("schema", "name"): (
        r"[^']+[.]ya?ml|report|history|compare|status|darshan|characterize|submit",
        "NAME is a kind of file. To check a workload: dlio-hpc check FILE; for the document of a command: --json-of "
        "COMMAND",
    ),
}
# What arguments are, by the verb or the name of the argument.
_ARGUMENTS = {
    "mlperf-report": "give the folder to write, and then the jobs: dlio-hpc mlperf-report DIR JOB",
    "site-report": "the folder that the web site is written to",
    "install-site": "the folder to install to, such as /opt/dlio-hpc",
    "archive prune": "the folder of archives, such as dlio-runs/archive",
    "archive share": "the folder of archives, such as dlio-runs/archive",
    "JOB": "the name or the directory of a job; dlio-hpc status lists them",
    "BASELINE": "the id or the job of a baseline; dlio-hpc baseline list lists them",
    "ARCHIVE...": "archives of jobs, such as dlio-runs/archive/*.tar.zst",
}
# Beginning of the environment variables of options. Variables that set no option, and beginnings of others.
PREFIX = "DLIO_HPC_"
_NO_OPTIONS = ("DLIO_HPC_LOG_FILE", "DLIO_HPC_SITE_PATH", "DLIO_HPC_DLIO_CONFIGS")
_INTERNAL = ("DLIO_HPC_RECORD", "DLIO_HPC_SURROUNDING_")
# Commands that print the file of a name, with the kind of the files.
_CATALOGUES = {"sites": (shipped.SITES, "site profile"), "workloads": (shipped.WORKLOADS, "workload")}
# Options whose variable holds one value a line.
_BY_LINES = {"DLIO_HPC_SET": "-S", "DLIO_HPC_SWEEP": "-P", "DLIO_HPC_JOB_OPTION": "-J"}
# Maximum number of verbs that a message names.
_MOST_VERBS = 4
# Maximum number of options of a command that a message lists.
_MOST_OPTIONS = 8


def improved(fault: click.ClickException) -> click.ClickException:
    """Return an error of click with more advice. For an unknown option: the name that dlio-hpc has for it, or the
    commands that have the option. For an invalid value: the environment variable that sets the value. For a missing
    option: the meaning of the option.
    """
    if isinstance(fault, click.NoSuchOption) and fault.ctx is not None:
        option = _ELSEWHERE.get(fault.option_name)
        if option is not None and any(option in param.opts for param in fault.ctx.command.params):
            return click.UsageError(f"No such option {fault.option_name!r}; did you mean {option!r}?", fault.ctx)
    if isinstance(fault, click.UsageError) and fault.ctx is not None and (text := _instead(fault, fault.ctx)):
        said = fault.format_message().rstrip(".")
        if isinstance(fault, click.NoSuchOption):
            said = f"No such option {fault.option_name!r}"  # without the similar options that click suggests
        return click.UsageError(f"{said}: {text}", fault.ctx)
    if isinstance(fault, click.NoSuchOption) and fault.ctx is not None:
        return _of_other_verbs(_with_similar(fault, fault.ctx), fault.ctx)
    if isinstance(fault, click.BadParameter) and fault.param is not None and fault.ctx is not None:
        fault = _with_source(fault, fault.param, fault.ctx)
    if isinstance(fault, click.MissingParameter) and fault.ctx is not None and (text := _missing(fault, fault.ctx)):
        return click.UsageError(f"{fault.format_message().rstrip('.')}: {text}", fault.ctx)
    return fault


def _missing(fault: click.MissingParameter, context: click.Context) -> str | None:
    """Return the meaning of a missing option or argument; None if it is not known."""
    if isinstance(fault.param, click.Option):
        return fault.param.help
    metavar = "" if fault.param is None else str(fault.param.metavar)
    return next((_ARGUMENTS[name] for name in (*_verbs(context), metavar) if name in _ARGUMENTS), None)


def _verbs(context: click.Context) -> tuple[str, str]:
    """Return the name of the verb with that of its group, and without."""
    return " ".join(context.command_path.split()[1:]), context.command.name or ""


def _instead(fault: click.UsageError, context: click.Context) -> str | None:
    """Return advice on an option or argument that the command does not accept; None if there is no advice."""
    takes = {name for param in context.command.params for name in param.opts}
    verbs = _verbs(context)
    if isinstance(fault, click.NoSuchOption):
        option = fault.option_name
        ranks = "give the ranks of each node with --ppn, and the nodes with --nodes"
        setting = f"it is a setting of the workload, such as -S {_SETTINGS.get(option)}"
        is_ranks, is_setting = "--ppn" in takes and option in _ALL_RANKS, "--set" in takes and option in _SETTINGS
        return ranks if is_ranks else setting if is_setting else _advice(verbs, option)
    message = fault.format_message()
    if "unexpected extra argument" not in message:
        return None
    extra = message.partition("(")[2].partition(")")[0].split()
    return _of_catalogue(extra, context) or _of_extra(extra, takes) or _advice(verbs, "")


def _of_catalogue(extra: Sequence[str], context: click.Context) -> str | None:
    """Return advice if the arguments of `sites` or `workloads` begin with a verb that these commands do not have, or
    if they are several names; None for another command.
    """
    path = context.command_path.split()
    group = next((word for word in path[-2:] if word in _CATALOGUES), None)
    name = str(context.params.get("name") or context.command.name)
    if group is None or (group != path[-1] and "name" in context.params):
        return None
    folder, kind = _CATALOGUES[group]
    if name in shipped.names(folder):
        return f"give one {kind}: dlio-hpc {group} {name}"
    return f"no {kind} {name!r}; to print a {kind}: dlio-hpc {group} {extra[0]}"


def _advice(verbs: Sequence[str], option: str) -> str | None:
    return next((_INSTEAD[verb, option] for verb in verbs if (verb, option) in _INSTEAD), None)


def _of_extra(extra: Sequence[str], takes: Collection[str]) -> str | None:
    """Return a suggestion for arguments that an option should give; None if there is none. takes: options of the
    verb.
    """
    site = next((word for word in extra if word in shipped.names(shipped.SITES)), None)
    if site is not None and "--site" in takes:
        return f"a site is given by an option: -s {site}"
    settings = [word for word in extra if "=" in word or word.startswith("~")]
    if "--set" not in takes or not settings:
        return None
    from dlio_hpc.config import workload  # slow import, needed only for such settings

    advice = dict.fromkeys(hydra_settings.advice(setting, workload.is_key) for setting in settings)
    options = [text for text in advice if text.startswith("-S ")]
    others = [text for text in advice if text not in options]
    return "; ".join([*([f"settings are given by an option: {' '.join(options)}"] if options else []), *others])


def _with_similar(fault: click.NoSuchOption, context: click.Context) -> click.NoSuchOption:
    """Return the error for an unknown option with the options that are really similar."""
    names = [name for param in context.command.params for name in param.opts]
    similar = nearest_name(fault.option_name, names, _SIMILAR)
    return click.NoSuchOption(fault.option_name, None, [] if similar is None else [similar], context)


def _of_other_verbs(fault: click.NoSuchOption, context: click.Context) -> click.ClickException:
    """Return the error with the names of the commands that have the option. If no command has the option, return the
    error unchanged.
    """
    verbs = list(dict.fromkeys(name for name, param in _all_options(context) if fault.option_name in param.opts))
    if not verbs:
        return fault if fault.possibilities else _with_own(fault, context)
    more = f" and {len(verbs) - _MOST_VERBS} more" if verbs[_MOST_VERBS:] else ""
    listed = f"{', '.join(verbs[:_MOST_VERBS])}{more}"
    return click.UsageError(f"No such option {fault.option_name!r}; it is an option of {listed}", context)


def _with_own(fault: click.NoSuchOption, context: click.Context) -> click.ClickException:
    """Return the error for an option that is like no other, with the options of the command if they are few."""
    own = [max(param.opts, key=len) for param in context.command.params if isinstance(param, click.Option)]
    if len(own) > _MOST_OPTIONS:
        return fault
    return click.UsageError(f"No such option {fault.option_name!r}; this command has {', '.join(own)}", context)


def _all_options(context: click.Context) -> Iterator[tuple[str, click.Option]]:
    """Yield all options, each with the name of its command. The modules of all commands are imported."""
    from dlio_hpc.cli.verbs import cli

    pending: list[tuple[str, click.Command | None]] = [(name, cli.get_command(context, name))
                                                       for name in cli.list_commands(context)]  # fmt: skip
    while pending:
        name, command = pending.pop(0)
        if isinstance(command, click.Group):
            pending[:0] = [(f"{name} {child}", command.commands[child]) for child in command.commands]
        if command is not None:
            yield from ((name, param) for param in command.params if isinstance(param, click.Option))


def _with_source(fault: click.BadParameter, param: click.Parameter, context: click.Context) -> click.BadParameter:
    """Return an error about an invalid value. If the value is from an environment variable, the error names the
    variable. For a flag, the error says to use true or false.
    """
    message = re.sub(r"('.*') is not a valid boolean\. .*", r"found \1; use true or false", fault.message)
    for option in param.opts:
        pattern, advice = _OTHER_VALUES.get((context.command.name or "", option), (None, ""))
        if pattern is not None and re.search(f"'{pattern}'", message):
            message = f"{message}; {advice}"
    is_variable = context.get_parameter_source(str(param.name)) is click.core.ParameterSource.ENVIRONMENT
    hint = f"the environment variable {param.envvar}" if is_variable else fault.param_hint
    return type(fault)(message, context, param, hint)


def with_variable(message: str, arguments: list[str]) -> str:
    """Return the message. If it quotes a value that is from an environment variable and not from an argument, the name
    of the variable is appended.
    """
    for name, value in _variables().items():
        for line in value.splitlines() if name in _BY_LINES else ():
            option = f"{_BY_LINES[name]} {line}"
            if message.startswith(option) and not any(line in argument for argument in arguments):
                rest = re.sub(r"its own option: .*; in the environment variable \w+, it needs ", "", message)
                return f"the environment variable {name}: {line}{rest.removeprefix(option)}"
        quoted = rf"(?<![\w./-]){re.escape(value)}(?![\w./-])"
        is_given = any(value in argument for argument in arguments)
        if len(value) > 1 and not is_given and name not in message and re.search(quoted, message):
            return f"{message} ({value} is from the environment variable {name})"
    for value, path in _defaults().items():
        if f"'{value}'" in message and not any(value in argument for argument in arguments):
            return f"{message} ({value} is from {path})"
    return message


def _defaults() -> dict[str, Path]:
    """Return the files defaults.yaml that set options, by the values. An error in a file is reported elsewhere."""
    with suppress(DlioError, OSError):
        return {default.value: default.path for default in defaults.load().values()}
    return {}


def _variables() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}


def _known_variable(name: str, known: Collection[str]) -> str:
    """Return a suggestion for an unknown environment variable: that of the option which other programs call so, or a
    similar one; "" if there is none.
    """
    elsewhere = f"--{name.removeprefix(PREFIX).lower().replace('_', '-')}"
    option = "--ppn" if elsewhere in _ALL_RANKS else _ELSEWHERE.get(elsewhere, "")
    variable = PREFIX + option.removeprefix("--").replace("-", "_").upper()
    return f"did you mean {variable!r}?" if variable in known else name_hint(name, known, similar=0.8).strip()


def show(program: str, fault: click.ClickException) -> None:
    """Print an error of click on stderr: the message first, and then how the command is used."""
    lines = [f"{program}: {given_runs.completed(fault.format_message())}"]
    context = fault.ctx if isinstance(fault, click.UsageError) else None
    if context is not None:
        lines += [context.get_usage(), f"Try '{context.command_path} {context.help_option_names[-1]}' for help."]
    click.echo("\n".join(lines), err=True)


def unknown_variables(context: click.Context, names: Sequence[str] | None = None) -> Iterator[str]:
    """Yield a note for each environment variable DLIO_HPC_NAME for which no command has an option NAME. names: names
    of variables; None for those that are set.
    """
    own = {param.envvar for param in context.command.params}
    ours = [name for name in names if name.startswith(PREFIX)] if names is not None else _variables()
    strange = [name for name in ours if name not in {*own, *_NO_OPTIONS} and not name.startswith(_INTERNAL)]
    if not strange:
        return
    known = {*_NO_OPTIONS, *(str(param.envvar) for _, param in _all_options(context) if param.envvar)}
    for name in strange:
        if name not in known:
            meant = _known_variable(name, known) or "dlio-hpc COMMAND --help lists the options"
            yield f"the environment variable {name} has no effect, because no option has this name; {meant}"
