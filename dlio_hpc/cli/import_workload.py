"""dlio-hpc import: turn workloads of dlio_benchmark into workloads of dlio-hpc."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlio_hpc import units
from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import written
from dlio_hpc.cli.verbs import PATH, SETTINGS, argument, option
from dlio_hpc.config import workload
from dlio_hpc.config.dlio_benchmark import workload_files
from dlio_hpc.config.dlio_benchmark.source import is_override
from dlio_hpc.errors import ConfigError, about

if TYPE_CHECKING:
    from dlio_hpc.config.dlio_benchmark.importing import Imported


@click.command(name="import", context_settings=SETTINGS)
@argument("arguments", nargs=-1, required=True, metavar="FILE|DIR|dlio:NAME [++KEY=VALUE]...")
@option("-o", "--output", type=PATH, metavar="FILE|DIR", help="File to write; folder, for DIR. Default: stdout.")
def import_(arguments: tuple[str, ...], output: Path | None) -> int:
    """Turn a workload of dlio_benchmark into a workload of dlio-hpc that makes the same requests.

    FILE is a workload file, as in configs/workload of dlio_benchmark and in MLPerf Storage. dlio:NAME is a workload of
    the installed dlio_benchmark, or of the folder DLIO_HPC_DLIO_CONFIGS. Overrides have the form of dlio_benchmark's
    command: ++workload.reader.batch_size=4. The outcome for each key is printed on stderr, and written as comments.

    For DIR, all its workload files are imported, and a table is printed: Markdown, one row per file.

    Exit code 2: dlio-hpc cannot make the requests of a workload; the message says why and which key to change.
    """
    overrides = tuple(text for text in arguments if is_override(text))
    names = [text for text in arguments if text not in overrides]
    if len(names) != 1:
        raise click.UsageError(
            f"give one FILE, DIR or dlio:NAME, not {len(names)}: {' '.join(names) or 'overrides only'}"
        )
    if Path(names[0]).is_dir():
        return _import_folder(Path(names[0]), overrides, output)
    is_known = workload_files.is_name(names[0])
    imported = _imported(workload_files.find(names[0]) if is_known else Path(names[0]), overrides)
    for line in imported.lines:
        console.say(line)
    if output is None:
        sys.stdout.write(_text(imported))
    else:
        _write(output, imported)
    return 0


def _imported(path: Path, overrides: tuple[str, ...]) -> "Imported":
    """Import a file. Raise ConfigError if the result is not a valid workload."""
    from dlio_hpc.config.dlio_benchmark import importing

    imported = importing.load(path, overrides)
    workload.Draft(imported.data, imported.source.origin).with_settings({})
    return imported


def _text(imported: "Imported") -> str:
    from dlio_hpc.reports import imported_yaml

    return imported_yaml.write(imported)


def _write(path: Path, imported: "Imported") -> None:
    with written(path), about(path):
        path.write_text(_text(imported), encoding="utf-8")
    console.say(f"wrote {path}")


def _import_folder(folder: Path, overrides: tuple[str, ...], output: Path | None) -> int:
    """Import all files of a folder, and print a table. Return the exit code."""
    known = workload_files.files(folder)
    if not known:
        raise ConfigError(f"{folder}: no *.yaml here; give the folder of workload files, such as configs/workload")
    code = refused = 0
    click.echo("| workload | outcome | dataset | differences |\n|---|---|---|---|")
    for name, path in known.items():
        try:
            imported = _imported(path, overrides)
        except ConfigError as fault:
            code, refused = fault.exit_code, refused + 1
            click.echo(f"| {name} | refused | | {_cell(str(fault).removeprefix(' '.join((str(path), *overrides))))} |")
            continue
        made = workload.Draft(imported.data, name).with_settings({})
        click.echo(f"| {name} | imported | {_data(made)} | {imported.differences or '-'} |")
        if output is not None:
            _write(output / f"{name}.yaml", imported)
    console.say(f"{len(known) - refused} imported, {refused} refused")
    return code


def _data(made: workload.Workload) -> str:
    """Return the format and the size of a workload's dataset, or the size of its checkpoints if it has no dataset."""
    if made.checkpoint is not None and (state := made.checkpoint.state) is not None:
        ranks = state.parallelism.ranks
        return f"checkpoints, {ranks} ranks, {units.format_size(made.checkpoint.size(ranks))}"
    return f"{made.dataset.format}, {units.format_size(made.dataset.size)}"


def _cell(text: str) -> str:
    return text.removeprefix(": ").replace("|", "\\|")
