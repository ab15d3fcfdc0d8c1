"""A derived workload as a YAML file. For each value, a comment states the confidence in it and the evidence."""

import json
import textwrap
from collections import defaultdict
from typing import Any

from dlio_hpc import __version__
from dlio_hpc.analysis.log import logs_by_program
from dlio_hpc.base import units
from dlio_hpc.base.safe_text import single_line
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.files.file_roles import Role
from dlio_hpc.programs.reports import characterization_page

_WIDTH, _INDENT, _MOST_COLUMN = 118, 2, 36
_SIZES = (
    "dataset.sample.bytes",
    "dataset.sample.stdev",
    "dataset.chunk",
    "reader.transfer_size",
    "checkpoint.transfer_size",
)
# Sections in the order of config/workload.py.
_SECTIONS = ("dataset", "reader", "compute", "checkpoint", "train", "evaluation")


def write(character: Character, name: str) -> str:
    """Return the text of the YAML file, which workload.load() can read."""
    lines = [
        *_head(character),
        f"name: {text(name)}",
        f"description: {text(_description(character))}",
        f"source: {text(_source(character))}",
    ]
    for section in _SECTIONS:
        keys = {
            key: _scoped(key, estimate, character.derived.keys)
            for key, estimate in character.derived.keys.items()
            if key.startswith(f"{section}.")
        }
        if keys:
            lines += [f"{section}:", *_section(keys)]
        if section == "dataset":
            lines += _sides(character)
    return "\n".join(lines) + "\n"


def _scoped(key: str, estimate: DerivedValue, keys: dict[str, DerivedValue]) -> DerivedValue:
    """Return the computation time with a comment that states for which batches it holds; return other values unchanged.
    The time is a constant of the workload, but a program computes longer on larger batches, and beside more workers.
    """
    size, threads = (keys.get(name) for name in ("reader.batch_size", "reader.read_threads"))
    if key != "compute.time" or not estimate.value or size is None or threads is None:
        return estimate
    count = units.counted(threads.value, "read thread")
    return estimate._replace(evidence=f"{estimate.evidence}; holds only for batches of {size.value:,} and {count}")


def text(value: str) -> str:
    """Return a string as a YAML scalar: unquoted if it is a plain word, otherwise in quotes."""
    is_word = value.replace("_", "").replace("-", "").isalnum() and value.isascii() and not value[0].isdigit()
    if is_word and value.lower() not in {"null", "true", "false"}:
        return value
    return json.dumps(value.encode("utf-8", "replace").decode(), ensure_ascii=True)


def default_name(character: Character) -> str:
    """Return a name for the workload: the name of the program's script or module or, if there is none, of its
    executable.
    """
    stem = logs_by_program.short_name(character.log.job.program)
    return (
        "".join(letter if letter.isalnum() or letter in "_-" else "-" for letter in stem)[:60].strip("-") or "derived"
    )


def _description(character: Character) -> str:
    keys = character.derived.keys
    count, kind = keys["dataset.files"].value, keys["dataset.format"].value
    size = sum(role.file.size for role in character.derived.roles if role.role == "dataset")
    source = "recording" if character.is_recording else "Darshan log"
    return f"derived from a {source}: {units.format_size(size)} of {kind} in {units.counted(count, 'file')}"


def _source(character: Character) -> str:
    names = [path.name for path in character.paths]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"dlio-hpc characterize {', '.join(names[:3])}{more}"


def _head(character: Character) -> list[str]:
    """Return the comment at the top of the file: the confidence, the program, notes, the files that are left out, and
    an explanation of the comments.
    """
    job = character.log.job
    nodes = f" on {units.counted(character.nodes, 'node')}" if character.nodes else ""
    logs = _source(character).removeprefix("dlio-hpc characterize ")
    darshan = f"Darshan {job.library}" if job.library else "an unknown Darshan"
    source = "recording" if character.is_recording else darshan
    duration = units.format_seconds(max(job.seconds, 0.0))
    lines = [
        characterization_page.banner_of(character).line,
        f"Derived by dlio-hpc {__version__} from {logs} ({source}).",
        f"Program: {single_line(job.program)}; {units.counted(job.ranks, 'rank')}{nodes}, {duration}.",
        *(f"Note: {single_line(note)}" for note in character.notes),
        *(f"Forced despite: {reason}" for reason in character.derived.against),
        *left_out(character.derived.roles),
        "Comments: confidence in the value (recorded; high, medium, low; unknown: a default), and evidence.",
    ]
    return [
        part for line in lines for part in textwrap.wrap(line, _WIDTH, initial_indent="# ", subsequent_indent="#   ")
    ]


def left_out(files: list[Role]) -> list[str]:
    """Return lines about the files that are not part of the workload. Files with the same role and the same reason
    share a line, which states their number and their bytes.
    """
    groups: dict[tuple[str, str], list[Role]] = defaultdict(list)
    for role in files:
        if role.role in ("library", "other"):
            groups[role.role, role.why].append(role)
    lines = []
    for (name, why), members in sorted(groups.items()):
        read, written = (sum(getattr(role.file, part) for role in members) for part in ("bytes_read", "bytes_written"))
        moved = f"{units.format_size(read)} read, {units.format_size(written)} written"
        lines.append(f"Left out: {units.counted(len(members), 'file')}, {name} ({single_line(why)}): {moved}.")
    return lines


def _section(keys: dict[str, DerivedValue]) -> list[str]:
    """Return the lines of a section of the YAML file. A key with two dots becomes a nested key."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(key.split(".")[1], []).append(key)
    rows: list[tuple[str, DerivedValue | None]] = []
    for name, members in groups.items():
        if members[0].count(".") == 2:
            rows.append((f"{' ' * _INDENT}{name}:", None))
        for key in members:
            indent = " " * _INDENT * key.count(".")
            rows.append((f"{indent}{key.rpartition('.')[2]}: {value(key, keys[key].value)}", keys[key]))
    column = min(max(len(row) for row, _ in rows if len(row) <= _WIDTH) + 2, _MOST_COLUMN)
    return [line for row, estimate in rows for line in _commented(row, estimate, column)]


def _commented(row: str, estimate: DerivedValue | None, column: int) -> list[str]:
    """Return a line of YAML with its comment. A long comment continues on the following lines."""
    if estimate is None:
        return [row]
    if len(row) > _WIDTH:
        return _long(row, estimate)
    parts = textwrap.wrap(single_line(str(estimate)), max(_WIDTH - column - 2, 40)) or [""]
    first = f"{row:<{column}}# {parts[0]}" if len(row) < column else f"{row}  # {parts[0]}"
    return [first, *(f"{'':<{column}}#   {part}" for part in parts[1:])]


def _long(row: str, estimate: DerivedValue) -> list[str]:
    """Return the lines of a value that is too long for one line. The comment precedes the value."""
    indent = " " * (len(row) - len(row.lstrip()))
    comment = textwrap.wrap(
        single_line(str(estimate)), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   "
    )
    return [*comment, *textwrap.wrap(row.lstrip(), _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")]


def value(key: str, value: Any) -> str:
    """Return the value of a key as YAML text."""
    if value is None or isinstance(value, str):
        return "null" if value is None else text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if key in _SIZES:
        return size(value)
    if key in ("checkpoint.files", "dataset.arrays"):
        return f"[{', '.join(map(size, value))}]"
    if key == "compute.time":
        return f"{value:.4g}" if value >= 1e-4 else "0"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def size(value: int) -> str:
    """Return a size in the form "256 KiB" if that is exact, otherwise as a number of bytes."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor and value % factor == 0:
            return f"{value // factor} {unit}"
    return str(value)


def _sides(character: Character) -> list[str]:
    if not character.derived.sides:
        return []
    lines = [f"{' ' * _INDENT}auxiliary_files:"]
    for side in character.derived.sides:
        pairs = ", ".join(f"{key}: {_side_value(key, value)}" for key, value in side.keys.items())
        lines += textwrap.wrap(
            single_line(f"medium: {side.note}"), _WIDTH - 6, initial_indent="    # ", subsequent_indent="    #   "
        )
        lines.append(f"{' ' * _INDENT * 2}- {{{pairs}}}")
    return lines


def _side_value(key: str, value: Any) -> str:
    if key in ("bytes", "size"):
        return size(value)
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if key == "name" else str(value)
