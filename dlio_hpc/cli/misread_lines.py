"""Command lines that click would misread, or refuse in terms that do not help: options before the verb, long options
with one dash, and blanks in KEY=VALUE.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

import click

# A long option with one dash. click takes -dry-run for -d ry-run.
_ONE_DASH = re.compile(r"-[a-z][a-z-]+")
# Characters at which the shell splits a value that a user writes with blanks, such as KEY = VALUE and KEY=A, B.
_JOINTS = ("=", ",")


def refuse(program: str, command: click.Command, words: Sequence[str]) -> None:
    """Raise a usage error for one of these mistakes. words: the command line without the name of the program."""
    words = list(words[: words.index("--")] if "--" in words else words)
    _refuse_order(program, command, words)
    command, depth = _called(command, words)
    context = click.Context(command, info_name=" ".join([program, *words[:depth]]))
    for option, values in _options(command, words[depth:]):
        name = option.partition("=")[0]
        if _ONE_DASH.fullmatch(name) and _option(command, f"-{name}") is not None:
            raise click.UsageError(f"No such option {name!r}; a long option has two dashes: -{option}", context)
        if (joined := _joined(values)) != values[:1]:
            raise click.UsageError(
                f"{shlex.join([option, *values])}: write the value without blanks: {shlex.join([option, *joined])}",
                context,
            )


def _refuse_order(program: str, command: click.Command, words: Sequence[str]) -> None:
    """Raise a usage error for options of a verb that are given before the verb."""
    if not isinstance(command, click.Group) or not words or not words[0].startswith("-"):
        return
    context = click.Context(command, info_name=program)
    verbs = command.list_commands(context)
    place = next((number for number, word in enumerate(words) if word in verbs), len(words))
    called, depth = _called(command, words[place:])
    name = words[0].partition("=")[0]
    if _option(command, name) is None and _option(called, name) is not None and called is not command:
        end = place + depth
        line = shlex.join([program, *words[place:end], *words[end:], *words[:place]])
        raise click.UsageError(f"{name} is an option of {words[place]}; give it after the verb: {line}", context)


def _called(command: click.Command, words: Sequence[str]) -> tuple[click.Command, int]:
    """Return the command that the first words name, and the number of these words."""
    for depth, word in enumerate(words):
        if not isinstance(command, click.Group) or word not in command.list_commands(click.Context(command)):
            return command, depth
        child = command.get_command(click.Context(command), word)
        assert child is not None
        command = child
    return command, len(words)


def _option(command: click.Command, name: str) -> click.Option | None:
    """Return the option of a command that has this name; None if there is none."""
    options = (param for param in command.params if isinstance(param, click.Option))
    return next((option for option in options if name in (*option.opts, *option.secondary_opts)), None)


def _options(command: click.Command, words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the options on a command line. If an option has one value, yield with it the word after the option and the
    words that may belong to the same value; otherwise, yield an empty list.
    """
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-"):
            if not command.allow_interspersed_args:
                return  # the words that follow are those of another program
            continue
        option = _option(command, word)
        count = 0 if option is None or option.is_flag or option.count else option.nargs
        yield word, _value(words[place:], _has_joints(option)) if option is not None and count == 1 else []
        place += count


def _has_joints(option: click.Option) -> bool:
    return any(joint in (option.metavar or "") for joint in _JOINTS)


def _value(words: Sequence[str], has_joints: bool) -> list[str]:
    """Return the first word, and the words that follow it if the value continues in them. has_joints: whether values of
    the option have = or commas, such as KEY=A,B.
    """
    value = list(words[:1])
    for word in words[1:]:
        is_continued = value == ["="] or (has_joints and (value[-1].endswith(_JOINTS) or word.startswith(_JOINTS)))
        if word.startswith("-") or not is_continued:
            break
        value.append(word)
    return value


def _joined(values: Sequence[str]) -> list[str]:
    """Return a value as one word. A value does not begin with the = between an option and its value."""
    return ["".join(values).removeprefix("=")] if len(values) > 1 else list(values)
