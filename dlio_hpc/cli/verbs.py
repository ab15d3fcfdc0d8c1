"""The commands of dlio-hpc. The module of a command is imported when the command is called."""

import importlib
import keyword
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dlio_hpc import __version__
from dlio_hpc.cli import shell_completion
from dlio_hpc.cli.verb_groups import GROUPS, VERBS
from dlio_hpc.config import defaults
from dlio_hpc.errors import name_hint
from dlio_hpc.files import url

_Value = TypeVar("_Value")


class _Path(click.Path):
    """Type of options that are paths on a mounted file system. A URL is a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            url.refuse(str(value))
        except ValueError as fault:
            self.fail(str(fault), param, ctx)
        return super().convert(value, param, ctx)


# click does not check whether the file is readable, because a failed attempt to read it gives a better reason.
PATH = _Path(path_type=Path, readable=False)
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class CommandGroup(click.Group):
    """A group of commands that suggests the nearest name for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            meant = name_hint(name, self.list_commands(ctx))
            raise click.UsageError(f"No such command {name!r}; {meant}see --help", ctx)
        return super().resolve_command(ctx, args)


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs in groups, without importing their modules."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.summary) for name, verb in verbs.items()])


# The option is taken from the command line before click parses it, so that the log has all messages.
LOG_FILE = click.option(
    "--log-file", metavar="FILE", expose_value=False,
    help="Append to FILE what the command says and runs, for maintainers. Also DLIO_HPC_LOG_FILE.",
)  # fmt: skip


@click.group(cls=_Verbs, context_settings=SETTINGS)
@LOG_FILE
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Measure how a storage system serves deep learning: submit, collect and report benchmark jobs.

    Exit codes: 0 success, 1 regression, failed criterion or check, 2 usage or configuration, 3 invalid run or
    archive, 4 cached, 5 inconclusive, 6 infrastructure, 7 incomplete, 70 a bug in dlio-hpc.
    """


class _Option(click.Option):
    """An option whose default may come from a file defaults.yaml."""

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:
        key = max(self.opts, key=len).removeprefix("--")
        known = defaults.load().get(key) if key in defaults.KEYS else None
        return super().get_default(ctx, call) if known is None else known.value


def option(*names: str, is_common: bool = True, **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option to a command. The option NAME can also be set by the environment variable
    DLIO_HPC_NAME. is_common: whether dlio-submit has an option of the same name and meaning. The default of such an
    option may come from a file defaults.yaml.
    """
    long = next(name for name in names if name.startswith("--"))
    variable = long.partition("/")[0].removeprefix("--").replace("-", "_").upper()
    kind = _Option if is_common else click.Option
    completer = shell_completion.of_option(long.removeprefix("--"), settings.get("metavar"))
    return click.option(
        *names, cls=kind, envvar=f"DLIO_HPC_{variable}", show_envvar=False, shell_complete=completer, **settings
    )


# Option of every verb whose result has a JSON document; see json_documents.
JSON = option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def argument(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an argument to a command."""
    settings.setdefault("shell_complete", shell_completion.of_argument(name, settings.get("metavar")))
    return click.argument(name, **settings)


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
