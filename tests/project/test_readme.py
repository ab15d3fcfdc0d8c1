"""README keeps the promises that a program can check."""

import re

from tests.support.places import ROOT

_README = (ROOT / "README.md").read_text()


def test_it_is_short_and_leads_with_demo_and_test() -> None:
    assert len(_README.encode()) <= 10_000
    commands = re.findall(r"^    make (\w+)", _README, re.MULTILINE)
    assert commands[:2] == ["demo", "test"]


def test_ci_runs_readmes_test_command_and_then_all_tests() -> None:
    commands = (ROOT / ".ci" / "run").read_text()
    assert 0 < commands.index("\nmake test ||") < commands.index("\nmake test-rest ||")


def test_its_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", _README)
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link
