"""Report of a program: the values of its workload with their evidence, if its I/O looks like training, and its files by
role.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dlio_hpc.base.safe_text import single_line
from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.files.file_roles import Role
from dlio_hpc.programs.reports import workload_yaml
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.page import Facts, Lines, Page, Section, Table

# Maximum number of example files per role.
_NAMED = 3
_VALUES = ("key", "value", "confidence", "evidence")
_HEADER = ("role", "files", "read", "written", "reads", "writes", "collective", "such as")


def of_character(character: Character) -> Page:
    """Return the report of a program: the values of its workload, the bytes and requests of its files by role, and the
    signs that it is not a training program.
    """
    job = character.log.job
    parts = list(dict.fromkeys(key.partition(".")[0] for key in character.derived.keys))
    values = [
        [key, workload_yaml.value(key, made.value), made.confidence, single_line(made.evidence)]
        for key, made in sorted(character.derived.keys.items(), key=lambda item: parts.index(item[0].partition(".")[0]))
        if key != "dataset.auxiliary_files"
    ]
    rows = [
        [
            role["role"], f"{role['files']:,}", format_size(role["bytes_read"]), format_size(role["bytes_written"]),
            *(f"{role[name]:,}" for name in ("reads", "writes", "collective")), role["examples"][0],
        ]
        for role in roles(character.derived.roles)
    ]  # fmt: skip
    return Page(
        title=", ".join(path.name for path in character.paths),
        subtitle=single_line(job.program),
        banner=banner_of(character),
        facts=[Facts("", [("ranks", str(job.ranks)), ("took", format_seconds(max(job.seconds, 0.0)))])],
        sections=[
            *([Section("Workload", [Table("", _VALUES, values), Lines(character.notes, "yellow")])] if values else []),
            Section(
                "Files by role",
                [
                    Table("", _HEADER, rows),
                    Lines([f"not training: {reason}" for reason in character.derived.against], "yellow"),
                ],
            ),
        ],
    )


def roles(files: Sequence[Role]) -> list[dict[str, Any]]:
    """Return one dict for each role: sums over the files with this role, and the names of the busiest of these files.
    The role with the most bytes comes first.
    """
    groups: dict[str, list[Role]] = defaultdict(list)
    for file in files:
        groups[file.role].append(file)
    rows = []
    for name, members in groups.items():
        sums = {
            key: sum(getattr(role.file, key) for role in members)
            for key in ("bytes_read", "bytes_written", "reads", "writes", "collective")
        }
        busiest = sorted(members, key=lambda role: -role.file.moved)[:_NAMED]
        rows.append({
            "role": name, "files": len(members), **sums, "why": busiest[0].why,
            "examples": [single_line(role.file.path) for role in busiest],
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["bytes_read"] - row["bytes_written"])


def banner_of(character: Character) -> Banner:
    """Return the banner. If there are reasons why the program does not look like training, the banner states the first
    one. Otherwise, the banner states how many values are known, and with which confidence.
    """
    keys, against = character.derived.keys, character.derived.against
    if against:
        return Banner(
            "inconclusive" if keys else "not measured",
            f"The program does not look like training: {against[0]}.",
        )
    weak = {level: sum(estimate.confidence == level for estimate in keys.values()) for level in ("low", "unknown")}
    known = f"{len(keys) - sum(weak.values())} of {len(keys)} values are known with high or medium confidence"
    recorded = sum(estimate.confidence == "recorded" for estimate in keys.values())
    known = f"{known}, {recorded} of them recorded" if recorded else known
    if any(weak.values()):
        return Banner(
            "inconclusive",
            f"{known}, {weak['low']} with low confidence; {weak['unknown']} are unknown and have defaults.",
        )
    return Banner("good", f"{known}.")
