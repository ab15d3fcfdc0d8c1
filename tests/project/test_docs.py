"""The documentation says what the program does."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base import serialization
from dlio_hpc.cli import json_schema, key_table
from dlio_hpc.cli.key_table import KeyFacts
from tests.conftest import Run
from tests.support.places import ROOT

_SPEC = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs" / "reference_pages.py")
assert _SPEC is not None
assert _SPEC.loader is not None
reference_pages: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reference_pages)

_PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
_KEYS = {key.path: key for name in json_schema.KINDS for section in key_table.of(name) for key in section.keys}


def _page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text()


@pytest.mark.parametrize("path", _PAGES, ids=lambda path: path.stem)
def test_the_reference_pages_are_current(path: Path) -> None:
    page = path.read_text()
    assert reference_pages.filled(page) == page, f"{path.name} is not what the program says; run: make reference"


def test_a_page_with_another_text_is_outdated() -> None:
    page = _page("site.md")
    assert reference_pages.filled(page.replace("Name of the machine", "Name of the computer")) == page


def test_generated_parts_are_read_in_a_pager() -> None:
    """Lines have at most 79 characters, except code and single words, and no line begins a list by chance."""
    for path in _PAGES:
        for part in re.findall(r"<!-- \w+(?:: \S+)? -->\n(.*?)<!-- end -->", path.read_text(), re.DOTALL):
            prose = re.sub(r"```.*?```", "", part, flags=re.DOTALL)
            shortened = re.sub(r"`[^`]+`|\[[^]]+\]\([^)]+\)", "x", prose)
            assert not [line for line in shortened.splitlines() if len(line) > 79]
            assert not re.findall(r"^ +(?:[-+*]|\d+\.) .*|^(?! *- `) *[-+*] .*", prose, re.MULTILINE)


@pytest.mark.parametrize("key", _KEYS.values(), ids=list(_KEYS))
def test_each_key_has_a_type_and_a_valid_example(key: KeyFacts) -> None:
    assert key.kind
    if key.example:
        serialization.convert(serialization.parse_yaml(key.example, key.path), key.type, key.path)
    elif key.default == "null" or key.is_required:
        plain = key.kind.replace("`null`", "")
        assert "mapping" in plain or "`" in plain or "true" in plain, f"{key.path}: no example"


@pytest.mark.parametrize("name", json_schema.KINDS)
def test_the_keys_of_a_file_fit_a_terminal(name: str, run: Run) -> None:
    done = run("dlio-hpc", "schema", name, "--text")
    assert done.code == 0
    lines = done.out.splitlines()
    assert not [line for line in lines if len(line) > 80]
    paths = re.findall(r"\n\n  ([a-z]\S+)\n", done.out)
    assert paths == [key.path for section in key_table.of(name) for key in section.keys]


def test_the_terminal_and_the_page_have_the_same_facts(run: Run) -> None:
    printed = run("dlio-hpc", "schema", "criteria", "--text").out
    assert (
        "  criteria.NAME.min_read_MBps\n      number > 0 or null; unit: MB/s; default: null; example: 200000\n"
        "      Minimum read bandwidth in MB/s (1 MB = 1e6 bytes).\n"
    ) in printed
    assert (
        "- `min_read_MBps`: number > 0 or `null`; unit: MB/s; default: `null`; example:\n  `200000`\n\n"
        "    Minimum read bandwidth in MB/s (1 MB = 1e6 bytes).\n"
    ) in _page("criteria.md")


@pytest.mark.parametrize(("path", "facts"), [
    ("dataset.files", ["required without `existing`", "example: `64`"]),
    ("dataset.sample", ["required without `columns` or `existing`", "example: `{bytes: 150 KiB}`"]),
    ("dataset", ["required without `checkpoint` or `metadata` or `inference`"]),
    ("compute.time", ["unit: seconds", "default: the defaults of its keys", "example: `{mean: 20 ms}`"]),
    ("reader.transfer_size", ["unit: bytes", "default: `null`", "example: `1 MiB`"]),
    ("limits.walltime", ["unit: minutes", "default: `null`", "example: `24:00:00`"]),
    ("criteria.NAME.max_read_p99", ["unit: seconds", "default: `null`", "example: `50 ms`"]),
])  # fmt: skip
def test_facts_about_a_key(path: str, facts: list[str]) -> None:
    assert key_table.facts(_KEYS[path]) == facts


def test_a_suite_needs_a_verdict_and_a_study_does_not() -> None:
    study, suite = ({key.path: key for key in key_table.of(name)[0].keys} for name in ("study", "suite"))
    assert key_table.facts(suite["verdict"]) == ["required"]
    assert key_table.facts(study["verdict"]) == ["default: `null`"]


def test_what_a_scan_writes_is_no_key_of_a_file() -> None:
    assert not [path for path in _KEYS if path.startswith("dataset.existing.scan")]


def test_the_page_of_results_has_every_field() -> None:
    assert "- `au`: number or `null`. compute / (compute + wait), over all steps and ranks." in _page("result.md")


def test_the_page_of_json_has_every_verb_and_every_struct() -> None:
    page = _page("json.md")
    assert "- `baseline list`: [BaselineListDocument](#baselinelistdocument)\n" in page
    assert "- `completion`: no `--json`: prints a script for a shell\n" in page
    assert "- `result`: [Result](result.md) or `null`." in page
    assert "- `probe`: [StorageProbe](result.md#probejson); may be absent." in page
    linked = set(re.findall(r"\]\(#(\w+)\)", page))
    headings = [line.removeprefix("### ").lower() for line in page.splitlines() if line.startswith("### ")]
    assert linked <= set(headings)
    assert len(headings) == len(set(headings))


def test_a_page_has_a_section_for_each_mapping() -> None:
    page = _page("workload.md")
    assert "- `shuffle`: mapping, see [reader.shuffle](#readershuffle);" in page
    for heading in ("### dataset", "### reader.shuffle", "### dataset.auxiliary_files[]"):
        assert f"\n{heading}\n" in page


def test_the_page_of_commands_has_every_option() -> None:
    page = _page("commands.md")
    assert "## dlio-hpc baseline\n" in page
    assert "### dlio-hpc baseline accept\n" in page
    assert "- `--text`: Print all keys of NAME" in page


_GENERIC = {"slurm", "pbs", "flux", "local"}


@pytest.mark.parametrize("path", sorted((ROOT / "site_profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_profile_of_a_machine_names_its_sources_and_their_dates(path: Path) -> None:
    """docs/how-to/site-profile.md says so."""
    head = re.split(r"^(?!#)", path.read_text(), maxsplit=1, flags=re.MULTILINE)[0]
    is_sourced = re.search(r"as of|facts|Sources", head) and re.search(r"\b20\d\d-\d\d", head)
    assert bool(is_sourced) == (path.stem not in _GENERIC)
