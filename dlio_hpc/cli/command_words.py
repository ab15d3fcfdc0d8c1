"""Words of a command line: the command that they name, and the words that follow its options. No word is converted, so
that mistakes can be reported before click takes them for something else.
"""

from collections.abc import Iterator, Sequence

import click


def called(command: click.Command, arguments: Sequence[str]) -> tuple[click.Command, int]:
    """Return the command that the first words name, and the number of these words."""
    for depth, word in enumerate(arguments):
        if not isinstance(command, click.Group) or word not in command.list_commands(click.Context(command)):
            return command, depth
        child = command.get_command(click.Context(command), word)
        assert child is not None
        command = child
    return command, len(arguments)


def context(command: click.Command, name: str) -> click.Context:
    """Return a context of a command for messages. name: the program and the command, as on the command line. Commands
    of a group have the settings of the group, which click keeps with the first context of a command: the names of the
    help option are among them.
    """
    from dlio_hpc.cli.verbs import SETTINGS  # takes time, and is needed by few commands

    return click.Context(command, info_name=name, **{**SETTINGS, **command.context_settings})


def find_option(command: click.Command, name: str) -> click.Option | None:
    """Return the option with this name of a command; None if the command has no such option."""
    options = (param for param in command.params if isinstance(param, click.Option))
    return next((option for option in options if name in (*option.opts, *option.secondary_opts)), None)


def starts_program(command: click.Command) -> bool:
    """Return whether a command starts another program, to which all words from its first argument on belong."""
    return not command.context_settings.get("allow_interspersed_args", True)


def value_count(option: click.Option | None) -> int:
    """Return the number of words that an option takes."""
    return 0 if option is None or option.is_flag or option.count else option.nargs


def first_argument(command: click.Command, arguments: Sequence[str]) -> str | None:
    """Return the first word on a command line that is no option and no value of one; None if there is none."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 1 + value_count(find_option(command, arguments[place]))
    return arguments[place] if place < len(arguments) else None


def given_options(command: click.Command, arguments: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the options on a command line, each with all words that follow it. The values of an option are no options.
    For a command that starts another program, the words of that program are left out.
    """
    place = 0
    while place < len(arguments):
        word = arguments[place]
        place += 1
        if word.startswith("-"):
            yield word, arguments[place:]
            place += value_count(find_option(command, word))
        elif starts_program(command):
            return
