"""Command lines that click would misread, or refuse with an unhelpful message: options before the command, long options
with one dash, and blanks in KEY=VALUE.
"""

import os
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

import click

from dlio_hpc.cli import command_words
from dlio_hpc.cli.verb_groups import ELSEWHERE, VERBS
from dlio_hpc.config import shipped

# A long option with one dash. click takes -dry-run for -d ry-run.
_ONE_DASH = re.compile(r"-[a-z][a-z-]+")
# Flags that print data, and the end of a file name that users give them.
_PRINTED = {"--csv": ".csv", "--json": ".json", "--export": ".jsonl"}
# Characters at which the shell splits a value that a user writes with blanks, such as KEY = VALUE and KEY=A, B.
_JOINTS = ("=", ",")
# Unit of a time or of a size.
_UNIT = re.compile("us|ms|s|min|h|d|[kKMGTP]i?B?")
_UNITS = {"sec": "s", "secs": "s", "seconds": "s", "minutes": "min", "hours": "h", "days": "d"}


def refuse(program: str, command: click.Command, arguments: Sequence[str]) -> None:
    """Raise a usage error for one of these mistakes. arguments: the command line without the name of the program."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    own, others = arguments[:end], arguments[end:]
    _refuse_order(program, command, own, others)
    command, depth = command_words.called(command, own)
    context = command_words.context(command, " ".join([program, *own[:depth]]))
    _refuse_verb(command, own[depth:], context)
    _refuse_file_of_flag(program, command, own, depth, context)
    for option, following in command_words.given_options(command, own[depth:]):
        known = command_words.find_option(command, option)
        values = _value(following, known) if known is not None and command_words.value_count(known) == 1 else []
        name = option.partition("=")[0]
        if _ONE_DASH.fullmatch(name) and command_words.find_option(command, f"-{name}") is not None:
            raise click.UsageError(f"No such option {name!r}; a long option has two dashes: -{option}", context)
        if not values and known is not None and command_words.value_count(known) == 1:
            raise click.UsageError(
                f"Option {option!r} requires an argument: {option} {known.metavar or 'VALUE'}. {known.help}", context
            )
        if _is_split(command, option, values, own):
            setting = f"{values[0]}={own[own.index(values[0]) + 1]}"
            raise click.UsageError(f"{option} takes KEY=VALUE: {shlex.join([option, setting])}", context)
        if (joined := _joined(values)) != values[:1]:
            raise click.UsageError(
                f"{shlex.join([option, *values])}: write the value without blanks: {shlex.join([option, *joined])}",
                context,
            )


def _refuse_file_of_flag(
    program: str, command: click.Command, arguments: Sequence[str], depth: int, context: click.Context
) -> None:
    """Raise a usage error if a flag that prints data is followed by the name of a file, such as --csv out.csv."""
    if command_words.starts_program(command):
        return
    for place, (flag, file) in enumerate(pairwise(arguments)):
        option = command_words.find_option(command, flag) if place >= depth else None
        if option is not None and option.is_flag and file.endswith(_PRINTED.get(flag, "\0")):
            line = shlex.join([program, *arguments[: place + 1], *arguments[place + 2 :]])
            raise click.UsageError(f"{flag} takes no file, and prints to stdout: {line} > {shlex.quote(file)}", context)


def _refuse_verb(command: click.Command, arguments: Sequence[str], context: click.Context) -> None:
    """Raise a usage error if the command submit is followed by a verb, as in dlio-submit run demo."""
    word = command_words.first_argument(command, arguments) if command.name == "submit" else None
    if word is None or os.path.isfile(word) or word in shipped.names(shipped.WORKLOADS):
        return
    if word == "submit" or "submit" in ELSEWHERE.get(word, ()):
        raise click.UsageError(f"{context.command_path} needs no further verb: leave {word!r} out", context)
    if word in VERBS:
        raise click.UsageError(
            f"{word!r} is no workload, and {context.command_path} only submits jobs; did you mean 'dlio-hpc {word}'?",
            context,
        )


def _refuse_order(program: str, command: click.Command, arguments: Sequence[str], others: Sequence[str]) -> None:
    """Raise a usage error for an option that is given before the command to which it belongs. others: "--" and the
    words after it.
    """
    if not isinstance(command, click.Group) or not arguments or not arguments[0].startswith("-"):
        return
    context = click.Context(command, info_name=program, **command.context_settings)
    verbs = command.list_commands(context)
    place = next((number for number, word in enumerate(arguments) if word in verbs), len(arguments))
    called, depth = command_words.called(command, arguments[place:])
    name = arguments[0].partition("=")[0]
    if called is command or command_words.find_option(command, name) is not None:
        return
    if command_words.find_option(called, name) is not None:
        end = place + depth
        line = shlex.join([program, *arguments[place:end], *arguments[end:], *arguments[:place], *others])
        raise click.UsageError(f"{name} is an option of {arguments[place]}; give it after the command: {line}", context)


def _is_split(command: click.Command, option: str, values: Sequence[str], arguments: Sequence[str]) -> bool:
    """Return whether an option that takes KEY=VALUE is followed by a key, and then by a value without =."""
    known = command_words.find_option(command, option)
    if known is None or not (known.metavar or "").startswith("KEY=") or len(values) != 1 or "." not in values[0]:
        return False
    place = arguments.index(values[0]) + 1
    return "=" not in values[0] and place < len(arguments) and not arguments[place].startswith("-")


def _value(arguments: Sequence[str], option: click.Option) -> list[str]:
    """Return the first word, and the following words over which the value continues: around = or a comma, if values of
    the option contain them, such as KEY=A,B, and at the unit of a time or a size.
    """
    metavar = option.metavar or ""
    has_joints = any(joint in metavar for joint in _JOINTS)
    value = list(arguments[:1])
    for word in arguments[1:]:
        unit = _UNITS.get(word, word)
        is_unit = metavar in ("TIME", "SIZE") and value[-1].isdigit() and _UNIT.fullmatch(unit) is not None
        at_joint = has_joints and (value[-1].endswith(_JOINTS) or word.startswith(_JOINTS))
        is_continued = value == ["="] or at_joint or is_unit
        if word.startswith("-") or not is_continued:
            break
        value.append(unit if is_unit else word)
    return value


def _joined(values: Sequence[str]) -> list[str]:
    """Return the words of a value as one word. An = at the beginning, which separates an option from its value, is left
    out.
    """
    return ["".join(values).removeprefix("=")] if len(values) > 1 else list(values)
