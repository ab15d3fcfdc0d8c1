"""dlio-hpc characterize: anybody's Darshan log to a workload."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlio_hpc import units
from dlio_hpc.cli import console
from dlio_hpc.cli.darshan import expression
from dlio_hpc.cli.verbs import PATH, SETTINGS, option, parsed
from dlio_hpc.errors import ConfigError

if TYPE_CHECKING:
    from dlio_hpc.analysis.characterize.characterize import Character


@click.command(context_settings=SETTINGS)
@click.argument("logs", nargs=-1, required=True, type=PATH, metavar="LOG...")
@option("-o", "--output", type=PATH, metavar="FILE", help="The workload's YAML file. Default: stdout.")
@option("--name", metavar="NAME", help="Of the workload. Default: the program's.")
@option("--only", metavar="REGEX", callback=expression, help="Files whose path it is found in: --only '^/data/'.")
@option("--force", is_flag=True, help="Derive a workload from a program that does not read as training does, too.")
@option("--check", is_flag=True, help="Run the workload here, shrunk, and compare its I/O with the log's.")
@option(
    "-s",
    "--site",
    is_common=False,
    metavar="NAME|FILE",
    default="local",
    show_default=True,
    help="With --check: where.",
)
@option(
    "--dataset-size", callback=parsed(units.size), metavar="SIZE", default="64MiB", show_default=True,
    help="With --check: how much to read.",
)  # fmt: skip
@option("-S", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="With --check: as of dlio-submit.")
@option("--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="With --check: its job.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def characterize(
    logs: tuple[Path, ...], output: Path | None, name: str | None, only: str | None, force: bool, check: bool,
    as_json: bool, **of_check: Any,
) -> int:  # fmt: skip
    """Derive a workload from Darshan logs of any program: its data, how they were read, when it computed and saved.

    Each value has its evidence and how sure it is beside it; what a log cannot tell is left at a default, and said.
    Several logs are taken for the processes of one program. Exit code 2: the program does not read as training does,
    and is described instead.
    """
    from dlio_hpc.analysis.characterize import characterize as analysis
    from dlio_hpc.report import workload_yaml

    found = analysis.load(logs, only, force)
    if not found.derived.keys:
        return _described(found, as_json)
    name = (name or "").strip() or workload_yaml.default_name(found)
    content = workload_yaml.write(found, name)
    compared = None
    if output is not None:
        _keep(output, content)
        console.say(f"wrote {output}")
    elif not as_json and not check:
        sys.stdout.write(content)
    if check:
        from dlio_hpc.cli import characterize_check

        compared = characterize_check.run(found, content, as_json, **of_check)
    if as_json:
        console.print_json(_document(found, content, compared))
    return 0


def _keep(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"cannot write {path}: {fault.strerror}") from fault


def _described(found: "Character", as_json: bool) -> int:
    from dlio_hpc.report import characterization_document, terminal

    if as_json:
        console.print_json(_document(found, None, None))
    else:
        terminal.show(characterization_document.of_character(found), sys.stdout)
    forced = any(role.role == "dataset" for role in found.derived.roles)
    hint = "; --force derives a workload all the same" if forced else "; say with --only which files are its data"
    raise ConfigError(f"this program does not read as training does: {found.derived.against[0]}{hint}")


def _document(found: "Character", content: str | None, compared: Any) -> dict[str, Any]:
    from dlio_hpc.report import characterization_document

    return {
        "logs": [str(path) for path in found.paths],
        "job": found.log.job._asdict(),
        "traced": found.derived.traced,
        "notes": found.notes,
        "against": found.derived.against,
        "roles": characterization_document.roles(found.derived.roles),
        "estimates": {key: each._asdict() for key, each in found.derived.keys.items()},
        "auxiliary_files": [{**side.keys, "evidence": side.note} for side in found.derived.sides],
        "yaml": content,
        "check": compared,
    }
