"""Docstrings, messages, comments and documents are in plain English."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

# Phrases that a reader must read twice, and plain ones.
_PLAIN = {
    r"(?<!-)anew": "again, new",
    r"at once": "atomically, immediately, at the same time",
    r"lies?": "is, are",
    r"what became of": "result of",
    r"comes? to (?:its|an|their) end": "finishes",
    r"likewise": "also",
    r"nor (?:does|do|is|are)": "and ... not",
}
_REFUSED = re.compile(rf"\b(?:{'|'.join(_PLAIN)})\b", re.IGNORECASE)
# Name of a fact in results that were written before this rule.
_RECORDED = '"mounted anew"'
# Modules whose text is still to be changed.
_OPEN: set[str] = set()


def _texts() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    for folder, endings in {
        "dlio_hpc": ("py",), "docs": ("md",), "templates": ("j2",), "share": ("yaml", "json", "md")
    }.items():  # fmt: skip
        for ending in endings:
            yield from sorted((ROOT / folder).rglob(f"*.{ending}"))


def _refused(text: str) -> list[str]:
    """The refused phrases in a text, whose lines may break within a phrase."""
    return _REFUSED.findall(re.sub(r"\s+(?:# )?", " ", text.replace(_RECORDED, "")))


def test_texts_have_none_of_the_refused_phrases() -> None:
    refused = {str(path.relative_to(ROOT)): _refused(path.read_text()) for path in _texts()}
    assert {path: phrases for path, phrases in refused.items() if phrases and path not in _OPEN} == {}
    assert {path for path in _OPEN if refused[path]} == _OPEN, "a module that is changed leaves the list"


@pytest.mark.parametrize(
    "text",
    [
        "Make it anew.",
        "The rank\n# ends at\n# once.",
        "where samples lie",
        "It comes to its\nend.",
        "Nor does it wait.",
    ],
)
def test_a_refused_phrase_is_found(text: str) -> None:
    assert _refused(text)


def test_names_that_users_know_stay() -> None:
    assert not _refused("`--anew` makes all pages; is_anew, at_once and Believe are names")
