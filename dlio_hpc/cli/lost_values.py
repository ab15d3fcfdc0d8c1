"""Options whose value was lost or is not the one that was meant. click would accept these values: the next option, as
in -A --dry-run, or =VALUE after a short option, as in -A=proj. A dash from a document is no hyphen, and click takes the
option for an argument; quotation marks from a document become a part of the value.
"""

import re
import shlex
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import click

from dlio_hpc.cli import command_words

# A word that looks like a long option. Negative numbers do not.
_LONG = re.compile(r"--[A-Za-z][\w-]*(=.*)?", re.DOTALL)
# A short option with =, such as -A=proj.
_SHORT_EQUALS = re.compile(r"(-[A-Za-z])=(.*)", re.DOTALL)
# Dashes that documents and web pages have in place of hyphens, at the beginning of a word.
_DASHES = re.compile("-?[\u2010-\u2015\u2212\ufe58\ufe63\uff0d][-\u2010-\u2015\u2212\ufe58\ufe63\uff0d]*")
# Quotation marks of documents, which a shell takes for a part of the word.
_QUOTES = re.compile("([\u2018-\u201f\u00ab\u00bb])(?P<text>.*?)[\u2018-\u201f\u00ab\u00bb]?", re.DOTALL)
# Metavars of the option with text of the user, and of the option whose values are options of the batch system.
_TEXT, _OF_BATCH_SYSTEM = "TEXT", "OPT"


def refuse(program: str, command: click.Command, arguments: Sequence[str]) -> None:
    """Raise a usage error for one of these mistakes. arguments: the command line without the name of the program."""
    own = arguments[: list(arguments).index("--")] if "--" in arguments else arguments
    command, depth = command_words.called(command, own)
    context = command_words.context(command, " ".join([program, *own[:depth]]))
    if not command_words.starts_program(command):
        _refuse_dashes(command, own[depth:], context)
        _refuse_quotes(command, own[depth:], context)
    for word, following in command_words.given_options(command, own[depth:]):
        _refuse_equals(command, word, following, context)
        option = command_words.find_option(command, word)
        if option is not None:
            _refuse_option(option, word, following[: command_words.value_count(option)], context)


def _refuse_dashes(command: click.Command, arguments: Sequence[str], context: click.Context) -> None:
    for word in arguments:
        dash = _DASHES.match(word)
        if dash is None:
            continue
        name, equals, value = word[dash.end() :].partition("=")
        right = next((hyphens + name for hyphens in ("--", "-") if _is_name(command, hyphens + name, context)), None)
        if right is not None:
            sign = next(sign for sign in word if sign != "-")
            raise click.UsageError(
                f"{word} begins with another sign ({unicodedata.name(sign).lower()}, U+{ord(sign):04X}) than the "
                f"hyphen of the keyboard; write {right}{equals}{value}", context,
            )  # fmt: skip


def _refuse_quotes(command: click.Command, arguments: Sequence[str], context: click.Context) -> None:
    for before, word in pairwise(["", *arguments]):
        option = command_words.find_option(command, before)
        quoted = _QUOTES.fullmatch(word)
        if quoted is not None and (option is None or option.metavar != _TEXT):
            raise click.UsageError(
                f"{word} has quotation marks of a document, which the shell does not know; write '{quoted['text']}'",
                context,
            )


def _is_name(command: click.Command, name: str, context: click.Context) -> bool:
    """Return whether a command has an option of this name."""
    return command_words.find_option(command, name) is not None or name in context.help_option_names


def _refuse_equals(command: click.Command, word: str, following: Sequence[str], context: click.Context) -> None:
    """Raise a usage error for a value that follows a short option after =, as in -A=proj or -A =proj."""
    short = _SHORT_EQUALS.fullmatch(word)
    name, value = (short[1], short[2]) if short is not None else (word, following[0] if following else "")
    option = command_words.find_option(command, name)
    if option is None or command_words.value_count(option) != 1 or not (short or re.match("=.", value)):
        return
    value = value if short is not None else value.removeprefix("=")
    given = word if short is not None else f"{word} ={value}"
    if not value:
        raise click.UsageError(f"{given} has no value, perhaps because a variable is not set: {name} VALUE", context)
    raise click.UsageError(
        f"{given}: write {shlex.join([name, value])} or {option.opts[-1]}={shlex.quote(value)}", context
    )


def _refuse_option(option: click.Option, name: str, values: Sequence[str], context: click.Context) -> None:
    """Raise a usage error if one of the values of an option is another option."""
    is_of_batch_system = option.metavar == _OF_BATCH_SYSTEM
    is_lost = _is_lost_to_batch_system if is_of_batch_system else _is_lost
    word = next((value for value in values if is_lost(value, context)), None)
    if word is None:
        return
    takes = "a value" if option.nargs == 1 else f"{option.nargs} values ({option.metavar})"
    meant = f"if it is the value, write {option.opts[-1]}={shlex.quote(word)}" if option.nargs == 1 else "give both"
    raise click.UsageError(
        f"{name} takes {takes}, but {word!r} is an option; perhaps a variable is not set; {meant}", context
    )


def _is_lost(value: str, context: click.Context) -> bool:
    """Return whether a value is an option, known or misspelt, or a short option with its value, such as -slocal."""
    return _LONG.fullmatch(value) is not None or (
        re.match("-[A-Za-z]", value) is not None and _is_name(context.command, value[:2], context)
    )


def _is_lost_to_batch_system(value: str, context: click.Context) -> bool:
    """Return whether a value is an option of the command, although it may be one of the batch system. Short options and
    options with a value are taken for those of the batch system.
    """
    return value.startswith("--") and _is_name(context.command, value, context)
