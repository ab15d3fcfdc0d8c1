"""What a program did with its files, in a table: by roles, for a log that is of no training."""

from collections import defaultdict
from typing import IO, Any

from dlio_hpc.analysis.characterize.characterize import Character
from dlio_hpc.analysis.log.file_roles import Role
from dlio_hpc.report import characterization_banner, workload_yaml
from dlio_hpc.report.banner import COLOURS
from dlio_hpc.units import format_seconds, format_size

_SHOWN = 3


def show(found: Character, out: IO[str]) -> None:
    """Roles with their files, bytes and requests; and what speaks against its being a workload."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(file=out, width=None if out.isatty() else 120, highlight=False, soft_wrap=True)
    opening = characterization_banner.of_character(found)
    console.print(escape(opening.line), style=COLOURS[opening.state])
    job = found.log.job
    console.print(escape(f"{', '.join(path.name for path in found.paths)}: {workload_yaml.clean(job.program)}"))
    console.print(f"  {job.ranks} rank(s), {format_seconds(max(job.seconds, 0.0))}")
    table = Table(box=None, pad_edge=False)
    for name in ("role", "files", "read", "written", "reads", "writes", "collective", "such as"):
        table.add_column(name, justify="left" if name in ("role", "such as") else "right")
    for row in rows(found.derived.roles):
        sizes = (format_size(row["bytes_read"]), format_size(row["bytes_written"]))
        counts = (f"{row[name]:,}" for name in ("reads", "writes", "collective"))
        cells = (row["role"], f"{row['files']:,}", *sizes, *counts, escape(row["examples"][0]))
        table.add_row(*cells)
    console.print(table)
    for reason in found.derived.against:
        console.print(escape(f"no training: {reason}"))


def rows(found: list[Role]) -> list[dict[str, Any]]:
    """One a role."""
    groups: dict[str, list[Role]] = defaultdict(list)
    for role in found:
        groups[role.role].append(role)
    made = []
    for name, members in groups.items():
        sums = {
            key: sum(getattr(role.file, key) for role in members)
            for key in ("bytes_read", "bytes_written", "reads", "writes", "collective")
        }
        busiest = sorted(members, key=lambda role: -role.file.moved)[:_SHOWN]
        made.append({
            "role": name, "files": len(members), **sums, "why": busiest[0].why,
            "examples": [workload_yaml.clean(role.file.path) for role in busiest],
        })  # fmt: skip
    return sorted(made, key=lambda row: -row["bytes_read"] - row["bytes_written"])
