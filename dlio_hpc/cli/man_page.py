"""Man pages of dlio-submit, of dlio-hpc and of its commands, made from their help texts in the markup of man(7)."""

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from dlio_hpc import __version__
from dlio_hpc.cli.exit_codes import EXIT_CODES, sentence
from dlio_hpc.cli.verb_groups import GROUPS, VERBS, Verb
from dlio_hpc.cli.verbs import WITHOUT_FILES, cli

# The verb whose page is that of dlio-submit.
_SUBMIT = "submit"
# A hyphen that is not escaped may be printed as another character than the one to type, and so may quotation marks.
# Long lists of values are broken after "|".
_ESCAPES = str.maketrans({
    "\\": "\\e", "-": "\\-", "'": "\\(aq", '"': "\\(dq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", "|": "|\\:",
})  # fmt: skip
_ENVIRONMENT = (
    "The option --NAME is also set by the variable DLIO_HPC_NAME, for example --dataset-size by "
    "DLIO_HPC_DATASET_SIZE. DLIO_HPC_SITE_PATH holds folders with profiles, workloads and defaults of the site, "
    "separated by colons."
)
_FILES = (
    "Profiles, workloads and defaults of options (defaults.yaml) are searched in ~/.config/dlio-hpc, in the folders "
    "of DLIO_HPC_SITE_PATH, in /etc/dlio-hpc, and then among the files that dlio-hpc ships."
)


class ManPage(NamedTuple):
    """A man page of section 1. name: file name, such as dlio-hpc-report.1."""

    name: str
    text: str


def pages() -> Iterator[ManPage]:
    """Yield the man pages of both programs and of all commands."""
    yield ManPage("dlio-hpc.1", _overview())
    yield ManPage("dlio-submit.1", _verb_page("dlio-submit", _SUBMIT))
    for name in VERBS:
        page = ".so man1/dlio-submit.1\n" if name == _SUBMIT else _verb_page(f"dlio-hpc {name}", name)
        yield ManPage(f"dlio-hpc-{name}.1", page)


def _overview() -> str:
    """Return the page of dlio-hpc."""
    context = _context(cli, "dlio-hpc")
    commands = [
        line
        for title, verbs in GROUPS.items()
        for line in (f".SS {_escaped(title)}", *(line for name, verb in verbs.items() for line in _entry(name, verb)))
    ]
    examples = [verb.example for verb in GROUPS["Run jobs"].values()]
    return _page(context, "measure how storage serves deep learning", ["COMMANDS", *commands], examples, list(VERBS))


def _entry(name: str, verb: Verb) -> list[str]:
    """Return the entry of a command in the list of commands."""
    return [".TP", f".BR {_escaped(f'dlio-hpc-{name}')} (1)", _escaped(verb.summary)]


def _verb_page(program: str, name: str) -> str:
    """Return the page of a command. program: the words by which the page calls the command, such as "dlio-hpc report".
    name: name of the command.
    """
    context, verb = context_of(name, program), VERBS[name]
    commands = []
    if isinstance(context.command, click.Group):
        commands = ["COMMANDS", *(line for inner in contexts_within(context) for line in _inner_command(inner))]
    example = verb.example.replace("dlio-hpc submit", program) if name == _SUBMIT else verb.example
    neighbours = next(verbs for verbs in GROUPS.values() if name in verbs)
    others = [other for other in neighbours if other != name]
    return _page(context, verb.summary, commands, [example], others)


def context_of(name: str, program: str = "") -> click.Context:
    """Return the click context of a command. name: name of the command. program: the words by which its help calls the
    command; empty: dlio-hpc NAME.
    """
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return _context(command, program or f"dlio-hpc {name}")


def contexts_within(context: click.Context) -> Iterator[click.Context]:
    """Yield the click contexts of the commands of a group."""
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        yield _context(command, f"{context.command_path} {name}", context)


def _inner_command(context: click.Context) -> list[str]:
    """Return the description of a command in a group, such as `dlio-hpc baseline accept`."""
    return [f".SS {_usage(context)}", *_paragraphs(context.command.help or ""), *_options(context)]


def _context(command: click.Command, program: str, parent: click.Context | None = None) -> click.Context:
    name = program.rpartition(" ")[2] if parent else program
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    context.meta[WITHOUT_FILES] = True
    return context


def _page(
    context: click.Context, summary: str, commands: Sequence[str], examples: Sequence[str], others: Sequence[str]
) -> str:
    """Return a page. commands: title and lines of the section on the commands of a group; empty if there is no such
    section. examples: command lines. others: names of commands for the section SEE ALSO.
    """
    name = context.command_path.replace(" ", "-")
    also = ["dlio-hpc", "dlio-submit", *(f"dlio-hpc-{other}" for other in others if other != _SUBMIT)]
    sections: dict[str, Sequence[str]] = {
        "NAME": [_escaped(f"{name} - {summary}")],
        "SYNOPSIS": [_usage(context)],
        "DESCRIPTION": _paragraphs((context.command.help or "").replace(sentence(), "")),
        **({commands[0]: commands[1:]} if commands else {}),
        "OPTIONS": _options(context),
        "ENVIRONMENT": [_escaped(_ENVIRONMENT)],
        "FILES": [_escaped(_FILES)],
        "EXAMPLES": _verbatim(examples),
        "EXIT STATUS": [line for code, meaning in EXIT_CODES.items() for line in (".TP", f".B {code}", meaning)],
        "SEE ALSO": [",\n".join(f".BR {_escaped(page)} (1)" for page in also if page != name)],
    }
    title = f'.TH "{_escaped(name.upper())}" 1 "" "{_escaped(f"dlio-hpc {__version__}")}" "{_escaped("dlio-hpc")}"'
    # Words are neither hyphenated nor spread over the line: commands and paths stay as they are typed.
    lines = [title, ".nh", ".ad l", *(line for head, body in sections.items() for line in (f".SH {head}", *body))]
    return "\n".join(lines) + "\n"


def _usage(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return f"\\fB{_escaped(context.command_path)}\\fR {_escaped(pieces)}"


def _options(context: click.Context) -> list[str]:
    """Return an entry for each option of a command."""
    params = [param for param in context.command.get_params(context) if isinstance(param, click.Option)]
    records = [param.get_help_record(context) for param in params]
    entries = [(".TP", f"\\fB{_escaped(record[0])}\\fR", _escaped(record[1])) for record in records if record]
    return [line for entry in entries for line in entry if line]


def _paragraphs(text: str) -> list[str]:
    """Return a help text as paragraphs. A paragraph that click does not wrap is printed line by line."""
    lines = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).strip()):
        first, _, rest = paragraph.partition("\n")
        if first.strip() == "\b":
            lines += _verbatim(rest.split("\n"))
        else:
            lines += [".PP", _escaped(" ".join(paragraph.split()))]
    return lines[1:] if lines[:1] == [".PP"] else lines


def _verbatim(text: Sequence[str]) -> list[str]:
    return [".PP", ".nf", *map(_escaped, text), ".fi"]


def _escaped(text: str) -> str:
    """Return text in which no character is markup."""
    plain = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", text.translate(_ESCAPES))
    return f"\\&{plain}" if plain.startswith(".") else plain
