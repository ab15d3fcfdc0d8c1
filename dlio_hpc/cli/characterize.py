"""dlio-hpc characterize: derive a workload from Darshan logs of any program."""

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
@option("-o", "--output", type=PATH, metavar="FILE", help="YAML file of the workload. Default: stdout.")
@option("--name", metavar="NAME", help="Name of the workload. Default: the name of the program.")
@option("--only", metavar="REGEX", callback=expression, help="Use only files whose path matches: --only '^/data/'.")
@option("--force", is_flag=True, help="Derive a workload even if the program does not read as training does.")
@option("--check", is_flag=True, help="Run the workload on a small dataset, and compare its I/O with the log's.")
@option(
    "-s",
    "--site",
    is_common=False,
    metavar="NAME|FILE",
    default="local",
    show_default=True,
    help="Site of --check.",
)
@option(
    "--dataset-size", callback=parsed(units.size), metavar="SIZE", default="64MiB", show_default=True,
    help="Size of the dataset of --check.",
)  # fmt: skip
@option(
    "-S",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of the workload for --check, as in dlio-submit.",
)
@option(
    "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Folder for the job of --check."
)
@option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def characterize(
    logs: tuple[Path, ...], output: Path | None, name: str | None, only: str | None, force: bool, check: bool,
    as_json: bool, **of_check: Any,
) -> int:  # fmt: skip
    """Derive a workload from Darshan logs of any program: dataset, reader, computation, checkpoints.

    Each value has a comment with its evidence and the confidence in it. A value that the log does not show is a
    default, and is marked unknown. Several logs are taken as the logs of the processes of one program. Exit code 2: the
    program's I/O does not look like training; the I/O is described instead.
    """
    from dlio_hpc.analysis.characterize import characterize as analysis
    from dlio_hpc.reports import workload_yaml

    character = analysis.load(logs, only, force)
    if not character.derived.keys:
        return _described(character, as_json)
    name = (name or "").strip() or workload_yaml.default_name(character)
    content = workload_yaml.write(character, name)
    compared = None
    if output is not None:
        _keep(output, content)
        console.say(f"wrote {output}")
    elif not as_json and not check:
        sys.stdout.write(content)
    if check:
        from dlio_hpc.cli import characterize_check

        compared = characterize_check.run(character, content, as_json, **of_check)
    if as_json:
        console.print_json(_document(character, content, compared))
    return 0


def _keep(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"cannot write {path}: {fault.strerror}") from fault


def _described(character: "Character", as_json: bool) -> int:
    from dlio_hpc.reports import characterization_document, terminal

    if as_json:
        console.print_json(_document(character, None, None))
    else:
        terminal.show(characterization_document.of_character(character), sys.stdout)
    has_dataset = any(role.role == "dataset" for role in character.derived.roles)
    hint = "; --force derives a workload anyway" if has_dataset else "; select the files of its dataset with --only"
    raise ConfigError(f"this program does not read as training does: {character.derived.against[0]}{hint}")


def _document(character: "Character", content: str | None, compared: Any) -> dict[str, Any]:
    from dlio_hpc.reports import characterization_document

    return {
        "logs": [str(path) for path in character.paths],
        "job": character.log.job._asdict(),
        "traced": character.derived.traced,
        "notes": character.notes,
        "against": character.derived.against,
        "roles": characterization_document.roles(character.derived.roles),
        "estimates": {key: value._asdict() for key, value in character.derived.keys.items()},
        "auxiliary_files": [{**side.keys, "evidence": side.note} for side in character.derived.sides],
        "yaml": content,
        "check": compared,
    }
