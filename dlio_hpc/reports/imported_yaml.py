"""A workload imported from dlio_benchmark as the text of a YAML file. Comments name the keys of dlio_benchmark."""

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from dlio_hpc import __version__
from dlio_hpc.base.safe_text import single_line
from dlio_hpc.config.dlio_benchmark.importing import Imported, line
from dlio_hpc.config.dlio_benchmark.keys import REVISION

_WIDTH, _COLUMN = 118, 40
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def write(imported: Imported) -> str:
    """Return the text of the YAML file, which workload.load() can read."""
    comments: dict[str, list[str]] = defaultdict(list)
    for fact in imported.facts:
        if fact.target:
            key = imported.source.old.get(fact.key, fact.key)
            given = (
                f"{key}: {imported.source.values[fact.key]}"
                if fact.key in imported.source.values
                else f"default of {key}"
            )
            fate = "" if fact.fate == "mapped" else f"{fact.fate}: "
            comments[fact.target].append(f"{given}{f' ({fate}{fact.text})' if fact.text or fate else ''}")
    head = [
        f"Written by dlio-hpc {__version__}: {imported.source.command}",
        f"The requests are the same as in dlio_benchmark {REVISION}. Comments after values name the keys of "
        f"dlio_benchmark.",
        *(
            line(imported.source, fact)
            for fact in sorted(imported.facts, key=lambda fact: not fact.misspelt)
            if not fact.target and imported.is_reported(fact)
        ),
    ]  # fmt: skip
    lines = [part for text in head for part in _comment(text, 0)]
    return "\n".join([*lines, *_rows(imported.data, "", comments)]) + "\n"


def _rows(data: dict[str, Any], section: str, comments: dict[str, list[str]]) -> Iterator[str]:
    """Yield the lines of a mapping. section: key of the mapping, followed by a dot; "" at the top of the file."""
    indent = "  " * section.count(".")
    for key, value in data.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _rows(value, f"{section}{key}.", comments)
        else:
            row = f"{indent}{key}: {_scalar(value)}"
            parts = _comment("; ".join(comments[f"{section}{key}"]), _COLUMN)
            shares_line = bool(parts) and len(row) < _COLUMN
            yield f"{row:<{_COLUMN}}{parts[0]}" if shares_line else row
            yield from (f"{'':<{_COLUMN}}{part}" for part in parts[shares_line:])


def _comment(text: str, column: int) -> list[str]:
    """Return a text as lines of a comment that begin at a column."""
    return textwrap.wrap(single_line(text), _WIDTH - column, initial_indent="# ", subsequent_indent="#   ")


def _scalar(value: Any) -> str:
    """Return a value as YAML. JSON is YAML; a plain word needs no quotes."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        items = (", ".join(f"{key}: {_scalar(part)}" for key, part in item.items()) for item in value)
        return f"[{', '.join(f'{{{item}}}' for item in items)}]"
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in {"null", "true", "false"}:
        return value
    return json.dumps(value)
