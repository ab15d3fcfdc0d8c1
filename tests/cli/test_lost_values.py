"""Options whose value was lost: the kinds of mistakes, on every option of every command."""

from collections.abc import Iterator

import click
import pytest

from dlio_hpc.cli import command_words, lost_values
from dlio_hpc.cli.verbs import cli


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None
            yield from _commands(child, (*path, name))


_OPTIONS = [
    pytest.param(path, param, name, id=" ".join([*path, name]))
    for path, command in _commands(cli)
    for param in command.params
    if isinstance(param, click.Option) and command_words.value_count(param)
    for name in param.opts
]


@pytest.mark.parametrize(("path", "option", "name"), _OPTIONS)
def test_no_option_is_the_value_of_another(path: tuple[str, ...], option: click.Option, name: str) -> None:
    for value in ("--help", option.opts[-1]):
        values = ["x"] * (command_words.value_count(option) - 1)
        with pytest.raises(click.UsageError, match=f"{value!r} is an option"):
            lost_values.refuse("dlio-hpc", cli, [*path, name, *values, value])


@pytest.mark.parametrize(("path", "option", "name"), [row for row in _OPTIONS if row.values[2][1] != "-"])  # type: ignore[index]
def test_a_short_option_has_no_equals_sign(path: tuple[str, ...], option: click.Option, name: str) -> None:
    with pytest.raises(click.UsageError, match=f"{name}=x: write {name} x or {option.opts[-1]}=x"):
        lost_values.refuse("dlio-hpc", cli, [*path, f"{name}=x"])


@pytest.mark.parametrize("value", ["-5", "-1.5", "-", "x", "./--help"])
def test_other_values_are_accepted(value: str) -> None:
    lost_values.refuse("dlio-hpc", cli, ["submit", "demo", "--account", value, "-J", "--constraint=x", "-v"])
    lost_values.refuse("dlio-hpc", cli, ["submit", "demo", "--account=--help"])


def test_the_words_of_another_program_are_its_own() -> None:
    for line in (["record", "-o", "r", "prog", "-o=x", "\u2013x", "--output", "--json"],
                 ["record", "-o", "r", "--", "prog", "-o", "--json"]):  # fmt: skip
        lost_values.refuse("dlio-hpc", cli, line)
