"""The commands of dlio-hpc. The module of a command is imported when the command is called."""

import importlib
import keyword
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dlio_hpc import __version__
from dlio_hpc.base import units
from dlio_hpc.base.errors import name_hint
from dlio_hpc.cli import exit_codes, given_runs, shell_completion
from dlio_hpc.cli.verb_groups import ELSEWHERE, GROUPS, VERBS
from dlio_hpc.config import defaults, shipped
from dlio_hpc.files import url, user_folders

_Value = TypeVar("_Value")


class PathType(click.Path):
    """Type of options that are paths on a mounted file system. A URL is a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(
                "the path is empty, perhaps because a variable is not set; for this directory, give .", param, ctx
            )
        try:
            url.refuse(str(value), self.writable)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)
        return super().convert(value, param, ctx)


class FolderType(PathType):
    """Type of options and arguments that name a folder, which may not exist yet. wanted: what to give, for messages."""

    wanted = "a folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if os.path.isfile(value):
            self.fail(f"{value} is a file; give {self.wanted}", param, ctx)
        return super().convert(value, param, ctx)


class RunsType(FolderType):
    """Type of the option --runs."""

    wanted = "the folder of jobs, such as dlio-runs"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_given = ctx is not None and param is not None and (
            ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
        )  # fmt: skip
        given_runs.VALUE.set(value if is_given else None)
        return super().convert(value, param, ctx)


class NamedChoice(click.Choice):  # type: ignore[type-arg]
    """Type of options with a few possible values. It suggests the nearest value for an unknown one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = ", ".join(map(str, self.choices))
        if value not in self.choices:
            self.fail(f"found {value!r}; {self.hint(str(value))}use one of: {names}", param, ctx)
        return super().convert(value, param, ctx)

    def hint(self, value: str) -> str:
        """Return a suggestion for an unknown value, with a trailing blank; "" if there is none."""
        return name_hint(value, list(map(str, self.choices)))


class _Count(click.IntRange):
    """Type of options that take whole numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            least = "" if self.min is None else f" of at least {self.min:g}"
            self.fail(f"found {value!r}; use a whole number{least}", param, ctx)

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


# click does not check whether the file is readable, because a failed attempt to read it gives a better reason.
PATH = PathType(path_type=Path, readable=False)
# A folder that may not exist yet.
FOLDER = FolderType(path_type=Path, readable=False)
# The folder of jobs.
RUNS = RunsType(path_type=Path, readable=False)
# Key of click's Context.meta: if it is set, files defaults.yaml are ignored.
WITHOUT_FILES = "dlio_hpc.without_files"
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class CommandGroup(click.Group):
    """A group of commands that suggests the nearest name for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"No such command {name!r}; {self.meant(args, ctx)}see --help", ctx)
        return super().resolve_command(ctx, args)

    def meant(self, arguments: list[str], ctx: click.Context) -> str:
        """Return a suggestion for the unknown command that the first word names, or "" if there is none."""
        verbs = self.list_commands(ctx)
        same = next((verb for verb in ELSEWHERE.get(arguments[0].lower(), ()) if verb in verbs), None)
        return name_hint(arguments[0], verbs) if same is None else f"did you mean {same!r}? "


class _Verbs(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        module = importlib.import_module(f"dlio_hpc.cli.{verb.module}")
        function = cmd_name.replace("-", "_") + "_" * keyword.iskeyword(cmd_name)
        command: click.Command = getattr(module, function)
        command.epilog = f"\b\nExample:\n  {verb.example}"
        return command

    def meant(self, arguments: list[str], ctx: click.Context) -> str:
        """Return a suggestion for a command line without `submit`: if its words name something that can be submitted,
        or a site, suggest `submit`.
        """
        options = {shipped.WORKLOADS: "", shipped.STUDIES: "--study ", shipped.SUITES: "--suite ", shipped.SITES: "-s "}
        known = {name: folder for folder in options for name in arguments[:2] if name in shipped.names(folder)}
        if arguments[0] not in known:
            return super().meant(arguments, ctx)
        asked = [f"{options[folder]}{name}" for name, folder in known.items()]
        if set(known.values()) == {shipped.SITES}:
            asked.insert(0, "WORKLOAD")
        return f"did you mean 'dlio-hpc submit {' '.join(asked)}'? "

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, without importing their modules."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.summary) for name, verb in verbs.items()])


_PURPOSE = "Measure how a storage system serves deep learning: submit, collect and report benchmark jobs."
# The option is taken from the command line before click parses it, so that the log has all messages.
LOG_FILE = click.option(
    "--log-file", metavar="FILE", expose_value=False,
    help="Append a log of the command to FILE, for maintainers. Also DLIO_HPC_LOG_FILE.",
)  # fmt: skip


@click.group(cls=_Verbs, context_settings=SETTINGS, help=f"{_PURPOSE}\n\n{exit_codes.sentence()}")
@LOG_FILE
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Do nothing; the commands of the group do all work."""


def _usable(value: Any, param: click.Parameter, ctx: click.Context) -> Any:
    """Return the value of an option or argument, before it is converted. In a path, "~" is replaced by the home folder,
    which a shell does not do in --data=~/x and in environment variables. Raise a usage error if the value is empty.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(_usable(item, param, ctx) for item in value)
    if not isinstance(value, str) or param.type is click.UNPROCESSED:
        return value
    if not value and not isinstance(param.type, PathType):
        raise click.BadParameter("the value is empty, perhaps because a variable is not set", ctx, param)
    is_path = isinstance(param.type, PathType) or value == "~" or "/" in value
    try:
        return user_folders.expanded(value) if is_path and param.metavar not in _TEXTS else value
    except ValueError as fault:
        raise click.BadParameter(str(fault), ctx, param) from fault


# Metavars of options whose values are no paths, although they may contain "/" and "~".
_TEXTS = ("TEXT", "REGEX")


class _Option(click.Option):
    """An option whose values are checked before they are converted."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        return super().type_cast_value(ctx, _usable(value, self, ctx))


class _Argument(click.Argument):
    """An argument whose values are checked before they are converted."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        return super().type_cast_value(ctx, _usable(value, self, ctx))


class _CommonOption(_Option):
    """An option whose default may come from a file defaults.yaml. Man pages show the defaults without these files."""

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:
        key = max(self.opts, key=len).removeprefix("--")
        is_from_file = key in defaults.KEYS and WITHOUT_FILES not in ctx.meta
        known = defaults.load().get(key) if is_from_file else None
        return super().get_default(ctx, call) if known is None else known.value


def option(*names: str, is_common: bool = True, **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option to a command. The option NAME can also be set by the environment variable
    DLIO_HPC_NAME. is_common: whether dlio-submit has an option of the same name and meaning. The default of a common
    option may come from a file defaults.yaml.
    """
    long = next(name for name in names if name.startswith("--"))
    variable = long.partition("/")[0].removeprefix("--").replace("-", "_").upper()
    kind = _CommonOption if is_common else _Option
    completer = shell_completion.of_option(long.removeprefix("--"), settings.get("metavar"))
    return click.option(
        *names, cls=kind, envvar=f"DLIO_HPC_{variable}", show_envvar=False, shell_complete=completer,
        **_with_advice(settings),
    )  # fmt: skip


def argument(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an argument to a command."""
    settings.setdefault("shell_complete", shell_completion.of_argument(name, settings.get("metavar")))
    return click.argument(name, cls=_Argument, **_with_advice(settings))


def _with_advice(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an option or argument. Its type suggests valid values in error messages."""
    kind = settings.get("type")
    if isinstance(kind, click.Choice) and not isinstance(kind, NamedChoice):
        return settings | {"type": NamedChoice(kind.choices)}
    if isinstance(kind, click.IntRange):
        return settings | {"type": _Count(kind.min, kind.max)}
    return settings | {"type": _Count()} if kind is int else settings


def parsed(parse: Callable[[str], _Value]) -> Callable[[click.Context, click.Parameter, str | None], _Value | None]:
    """Return a callback that converts the text of an option with the function `parse`. If `parse` raises ValueError,
    the callback raises a usage error.
    """

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> _Value | None:
        try:
            return None if value is None else parse(value)
        except ValueError as fault:
            raise click.BadParameter(str(fault), ctx, param) from fault

    return callback


def distinct(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values KEY=VALUE of an option unchanged. Print a note if a key has several values: the last one
    counts, so that a script or an alias can give values that its caller replaces.
    """
    del ctx
    last: dict[str, str] = {}
    for key, _, text in (setting.partition("=") for setting in value):
        earlier = last.get(key.strip(), text.strip())
        if earlier != text.strip():
            from dlio_hpc.cli import console  # takes time, and is needed by few commands

            option = min(param.opts, key=len)
            console.say(f"note: {option} {key.strip()}={earlier} has no effect: a later one sets {text.strip()}")
        last[key.strip()] = text.strip()
    return value


def part(text: str) -> float:
    """Parse a fraction above 0 and below 100 %, such as 5%. Raise ValueError for other values."""
    share = units.share(text)
    if not 0 < share < 1:
        percent = f"; {text} percent is {text}%" if share >= 1 and "%" not in text else ""
        raise ValueError(f"found {text!r}; expected more than 0 and less than 100 %{percent}")
    return share


def duration(text: str) -> float:
    """Parse a duration above 0, such as 5s, and return it in seconds. Raise ValueError for other values."""
    seconds = units.seconds(text)
    if seconds <= 0:
        raise ValueError(f"found {text!r}; use a time above 0, such as 5s")
    return float(seconds)


# Option of every verb whose result has a JSON document; see json_documents.
JSON = option("--json", "as_json", is_flag=True, help="Print one JSON document.")
PAGER = click.option(
    "--no-pager", "has_pager", flag_value=False, type=bool, default=True,
    help="Do not show long output through a pager (PAGER; less by default). Only a terminal has one.",
)  # fmt: skip
