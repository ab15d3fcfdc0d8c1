"""The list of verbs and the example of each."""

import shlex

import click
import pytest

from dlio_hpc.cli.verb_groups import GROUPS, VERBS
from dlio_hpc.cli.verbs import cli
from tests.conftest import Run


def test_help_lists_every_verb_in_its_group(run: Run) -> None:
    lines = run("dlio-hpc", "--help").out.splitlines()
    for title, verbs in GROUPS.items():
        begin = lines.index(f"{title}:") + 1
        listed = [line.split()[0] for line in lines[begin : begin + len(verbs)]]
        assert listed == list(verbs)
    assert max(map(len, lines)) <= 80


def test_summaries_are_short() -> None:
    assert not {name: verb.summary for name, verb in VERBS.items() if len(verb.summary) > 60}
    assert len(VERBS) == sum(map(len, GROUPS.values()))


@pytest.mark.parametrize("name", VERBS)
def test_the_example_is_accepted_by_the_verb(name: str) -> None:
    program, verb, *arguments = shlex.split(VERBS[name].example)
    assert (program, verb) == ("dlio-hpc", name)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    if isinstance(command, click.Group):
        inner = command.get_command(click.Context(command), arguments[0])
        assert inner is not None
        inner.make_context(arguments[0], arguments[1:])
    else:
        command.make_context(name, arguments)


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb_ends_with_its_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    lines = command.get_help(click.Context(command, info_name=name)).splitlines()
    assert [line.strip() for line in lines[-2:]] == ["Example:", VERBS[name].example]
