"""The documentation says what the program does."""

import importlib
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dlio_hpc.base import serialization
from tests.support.places import ROOT

_SPEC = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
assert _SPEC is not None
assert _SPEC.loader is not None
hooks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hooks)


def _structs() -> Iterator[Any]:
    """Structs that pages show, and all structs below them."""
    for page in (ROOT / "docs").rglob("*.md"):
        for kind, module, name in hooks._MARK.findall(page.read_text()):
            if kind == "keys":
                yield from _below(getattr(importlib.import_module(module), name))


def _below(struct: Any) -> Iterator[Any]:
    yield struct
    for key in hooks.keys(struct):
        for inner, _ in hooks._structs(key.type):
            yield from _below(inner)


@pytest.mark.parametrize("struct", dict.fromkeys(_structs()), ids=lambda struct: struct.__name__)
def test_each_key_has_a_meaning_and_a_valid_example(struct: Any) -> None:
    for key in hooks.keys(struct):
        assert hooks.describe(key.type)
        if key.example:
            serialization.convert(serialization.parse_yaml(key.example, key.path), key.type, key.path)
        elif key.default in {"null", "required"}:
            kind = hooks.describe(key.type)
            assert "mapping" in kind or "`" in kind.replace("`null`", "") or "true" in kind, f"{key.path}: no example"


def test_the_page_of_results_has_every_field() -> None:
    page = hooks.on_page_markdown((ROOT / "docs/reference/result.md").read_text())
    assert "| `summary.au` | number or `null` | compute / (compute + wait), over all steps and ranks. |" in page


def test_the_page_of_json_has_every_verb_and_every_struct() -> None:
    page = hooks.on_page_markdown((ROOT / "docs/reference/json.md").read_text())
    assert "| `baseline list` | [BaselineListDocument](#baselinelistdocument) |" in page
    assert "| `completion` | no `--json`: prints a script for a shell |" in page
    assert "| `result` | [Result](result.md) or `null` |" in page
    assert "| `probe` | [StorageProbe](result.md#probejson); may be absent |" in page
    linked = set(re.findall(r"\]\(#(\w+)\)", page))
    headings = [line.removeprefix("### ").lower() for line in page.splitlines() if line.startswith("### ")]
    assert linked <= set(headings)
    assert len(headings) == len(set(headings))


def test_a_page_shows_the_keys_of_all_structs_below() -> None:
    page = hooks.on_page_markdown((ROOT / "docs/reference/workload.md").read_text())
    for text in ("| `dataset.files` | integer >= 1 | `required` | Number of files. | `64` |", "### reader.shuffle",
                 "| `dataset.auxiliary_files[].burst` |", "`posix`, `framework`"):  # fmt: skip
        assert text in page
