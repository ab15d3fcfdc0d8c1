"""dlio-hpc import: turn workloads of dlio_benchmark into workloads of dlio-hpc."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import counted
from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import OUTPUT_OR_FOLDER, refuse_inputs, write_workload
from dlio_hpc.cli.verbs import JSON, SETTINGS, argument, option
from dlio_hpc.config import shipped, workload
from dlio_hpc.config.dlio_benchmark import workload_files
from dlio_hpc.config.dlio_benchmark.source import is_known, is_override
from dlio_hpc.dataset import checkpoint_files

if TYPE_CHECKING:
    from dlio_hpc.config.dlio_benchmark.importing import Imported
    from dlio_hpc.documents.imported import ImportedWorkload


@click.command(name="import", context_settings=SETTINGS)
@argument("arguments", nargs=-1, required=True, metavar="FILE|DIR|dlio:NAME [++KEY=VALUE]...")
@option(
    "-o", "--output", type=OUTPUT_OR_FOLDER, metavar="FILE|DIR",
    help="File to write; folder, for DIR. Default: stdout.",
)  # fmt: skip
@JSON
def import_(arguments: tuple[str, ...], output: Path | None, as_json: bool) -> int:
    """Turn a workload of dlio_benchmark into a workload of dlio-hpc that makes the same requests.

    FILE is a workload file, as in configs/workload of dlio_benchmark and in MLPerf Storage. dlio:NAME is a workload of
    the installed dlio_benchmark, or of the folder DLIO_HPC_DLIO_CONFIGS. Overrides have the form of dlio_benchmark's
    command: ++workload.reader.batch_size=4. The outcome for each key is printed on stderr, and written as comments.

    If DIR is given, all workload files in it are imported, and a Markdown table with a row per file is printed.

    Exit code 2: dlio-hpc cannot make the requests of a workload. The message says why, and which key to change.
    """
    refuse_inputs()
    overrides = tuple(text for text in arguments if is_override(text))
    names = [text for text in arguments if text not in overrides]
    if len(names) != 1:
        target = f"; {_instead(names[1])}" if len(names) == 2 else ""
        raise click.UsageError(
            f"give one FILE, DIR or dlio:NAME, not {len(names)}: {' '.join(names) or 'overrides only'}{target}"
        )
    if Path(names[0]).is_dir():
        return _import_folder(Path(names[0]), overrides, output, as_json)
    is_known = workload_files.is_name(names[0])
    if not is_known and names[0] in shipped.names(shipped.WORKLOADS) and not Path(names[0]).exists():
        raise ConfigError(
            f"{names[0]} is a workload of dlio-hpc; run it: dlio-submit {names[0]}. For the workload of "
            f"dlio_benchmark, give dlio:{names[0]}"
        )
    imported = _imported(workload_files.find(names[0]) if is_known else Path(names[0]), overrides)
    for line in imported.lines:
        console.say(line)
    if output is not None:
        _write(output, imported)
    if as_json:
        _print_json([_document(imported, output)])
    elif output is None:
        sys.stdout.write(_text(imported))
    return 0


def _instead(name: str) -> str:
    """Return what to write instead of a second argument: a key of dlio_benchmark needs a value, a file an option."""
    key = name.removeprefix("workload.")
    return f"write ++workload.{key}=VALUE" if is_known(key) else f"give the file to write with -o {name}"


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
    write_workload(path, _text(imported))


def _import_folder(folder: Path, overrides: tuple[str, ...], output: Path | None, as_json: bool) -> int:
    """Import all files of a folder, and print a table or a JSON document. Return the exit code."""
    known = workload_files.files(folder)
    if not known:
        raise ConfigError(f"{folder}: no *.yaml here; give the folder of workload files, such as configs/workload")
    code, rows, documents = 0, [], []
    for name, path in known.items():
        try:
            imported = _imported(path, overrides)
        except ConfigError as fault:
            code = fault.exit_code
            message = str(fault).removeprefix(" ".join((str(path), *overrides))).removeprefix(",")
            rows.append(f"| {name} | refused | | {_cell(message)} |")
            documents.append(_refusal(path, fault))
            continue
        made = workload.Draft(imported.data, name).with_settings({})
        rows.append(f"| {name} | imported | {_data(made)} | {imported.differences or '-'} |")
        target = None if output is None else output / f"{name}.yaml"
        if target is not None:
            _write(target, imported)
        documents.append(_document(imported, target))
    if as_json:
        _print_json(documents)
    else:
        console.show("\n".join(["| workload | outcome | dataset | differences |\n|---|---|---|---|", *rows]))
    refused = sum(made.error is not None for made in documents)
    console.say(f"{len(known) - refused} imported, {refused} refused")
    return code


def _document(imported: "Imported", written: Path | None) -> "ImportedWorkload":
    from dlio_hpc.documents import imported as documents

    return documents.of_import(imported, _text(imported), written)


def _refusal(path: Path, fault: ConfigError) -> "ImportedWorkload":
    from dlio_hpc.documents import imported as documents

    return documents.of_refusal(path, fault)


def _print_json(workloads: "list[ImportedWorkload]") -> None:
    from dlio_hpc.documents.imported import ImportDocument

    console.print_json(ImportDocument(workloads))


def _data(made: workload.Workload) -> str:
    """Return the format and the size of a workload's dataset, or the size of its checkpoints if it has no dataset."""
    if made.checkpoint is not None and (state := made.checkpoint.state) is not None:
        ranks = state.parallelism.ranks
        size = units.format_size(checkpoint_files.size(made.checkpoint, ranks))
        return f"checkpoints, {counted(ranks, 'rank')}, {size}"
    return f"{made.dataset.format}, {units.format_size(made.dataset.size)}"


def _cell(text: str) -> str:
    return text.removeprefix(": ").replace("|", "\\|")
