"""dlio-hpc characterize: derive a workload from a recording or from Darshan logs of any program."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import console
from dlio_hpc.cli.darshan import expression
from dlio_hpc.cli.outputs import OUTPUT, PAGE, Outputs, refuse_inputs, write_workload
from dlio_hpc.cli.verbs import JSON, PATH, RUNS, SETTINGS, argument, distinct, option, parsed

if TYPE_CHECKING:
    from dlio_hpc.programs.characterize.characterize import Character
    from dlio_hpc.programs.reports.check_page import Checked

# Smallest --tolerance. A smaller value is meant as a difference.
_LEAST = 0.5


def _similarity(value: str) -> units.Share:
    """Parse the smallest pattern similarity that passes. Raise ValueError if the value is not a share, or so small that
    it is meant as the largest difference.
    """
    share = units.share(value)
    if share < _LEAST:
        raise ValueError(
            f"found {value}, a similarity of {share:.0%}, with which nearly all runs pass; to allow a difference of "
            f"{share:.0%}, write {1 - share:.0%}"
        )
    return share


@click.command(context_settings=SETTINGS)
@argument("logs", nargs=-1, required=True, type=PATH, metavar="RECORDING|LOG|DIR...")
@option("-o", "--output", type=OUTPUT, metavar="FILE", help="YAML file of the workload. Default: stdout.")
@option("--name", metavar="NAME", help="Name of the workload. Default: the name of the program.")
@option(
    "--only",
    metavar="REGEX",
    callback=expression,
    help="Use only files whose path matches this regular expression, such as '^/data/'.",
)
@option("--force", is_flag=True, help="Derive a workload even if the program does not look like training.")
@option(
    "--no-content",
    is_flag=True,
    help="Do not read files of the dataset. Default: read the beginning of up to four files.",
)
@option("--check", is_flag=True, help="Run the workload on a small dataset, and judge its requests and steps.")
# Without an environment variable: DLIO_HPC_TOLERANCE is the tolerance of compare, which is a drop.
@click.option(
    "--tolerance", callback=parsed(_similarity), metavar="NUMBER", default="0.95", show_default=True,
    help="Smallest pattern similarity that passes --check, from 0.5 to 1. A value of a step may differ by the rest.",
)  # fmt: skip
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
    "--dataset-size", callback=parsed(units.large_size), metavar="SIZE", default="64MiB", show_default=True,
    help="Size of the dataset of --check.",
)  # fmt: skip
@option(
    "-S",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=distinct,
    help="Set a key of the workload for --check, as in dlio-submit.",
)
@option(
    "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True, help="Folder for the job of --check."
)
@option("--html", type=PAGE, metavar="FILE", help="Write the values, their evidence and the check as an HTML file.")
@JSON
def characterize(
    logs: tuple[Path, ...], output: Path | None, name: str | None, only: str | None, force: bool, no_content: bool,
    check: bool, html: Path | None, as_json: bool, **of_check: Any,
) -> int:  # fmt: skip
    """Derive a workload from a recording (`dlio-hpc record`), or from Darshan logs of any program: dataset, reader,
    computation, checkpoints.

    Each value has a comment with its evidence, and with the confidence in the value, such as "recorded" if the
    recording shows it. A value that the log does not show is a default, and is marked unknown. Several logs, or the
    logs in a folder (*.darshan), are treated as the logs of the processes of one program. If a recording and logs of
    the same run are given, the recording shows what the program does, and the logs show its requests.

    If this machine has the files of the dataset, the beginnings of up to four files (64 KiB, and the heads of up to 64
    records) show the format and, for TFRecord, the size of samples. With --no-content, only the logs are read.

    If a recording is given, --check compares the number of steps of an epoch, and the bytes, the computation and the
    wait of a step, between the workload and the program. If a log is given, --check compares the requests.

    Exit code 1: --check finds a pattern similarity of log and run, or a value of a step, below --tolerance. 2: there is
    no evidence that the program trains; its I/O is described instead. 3: a log is incomplete. 7: --check can compare
    nothing, or only a single factor, which agrees; or the data of the program are in doubt.
    """
    from dlio_hpc.programs.reports import accepted_workload, workload_yaml

    refuse_inputs()
    if not check:
        _refuse_options_of_check()
    character = _loaded(logs, only, force, not no_content, check)
    if not character.derived.keys:
        _write_page(html, character, None)
        return _described(character, as_json)
    name = (name or "").strip() or workload_yaml.default_name(character)
    character, content = accepted_workload.write(character, name)
    checked = None
    if output is not None:
        write_workload(output, content)
    elif not as_json and not check:
        sys.stdout.write(content)
    if check:
        from dlio_hpc.cli import characterize_check

        checked = characterize_check.run(character, content, **of_check)
    _write_page(html, character, checked)
    if as_json:
        _print_json(character, content, checked)
    elif checked is not None:
        from dlio_hpc.programs.reports import check_page
        from dlio_hpc.reports import terminal

        terminal.show(check_page.of_check(checked), sys.stdout)
    return 0 if checked is None else checked.exit_code


def _refuse_options_of_check() -> None:
    """Raise a usage error if an option was given that has an effect only with --check."""
    context = click.get_current_context()
    options = {"site": "--site", "dataset_size": "--dataset-size", "settings": "--set", "tolerance": "--tolerance",
               "runs": "--runs"}  # fmt: skip
    for name, flag in options.items():
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{flag} has an effect only with --check: add --check, or leave {flag} out")


def _loaded(
    paths: Sequence[Path], only: str | None, is_forced: bool, reads_content: bool, is_checked: bool
) -> "Character":
    """Return what is known about a program from its recording, from its logs, or from both."""
    from dlio_hpc.darshan import log_files
    from dlio_hpc.programs.characterize import characterize as analysis
    from dlio_hpc.programs.recordings import recorded_character, recording_files, with_log

    recordings = [path for path in paths if recording_files.is_recording(path)]
    logs = [path for path in paths if path not in recordings]
    if not recordings:
        return analysis.load(log_files.listed(logs), only, is_forced, reads_content)
    if only is not None and not logs:
        raise ConfigError("--only selects files in logs; the files in a recording are the files that the loader reads")
    if len(recordings) > 1:
        raise ConfigError("give one recording; it has all processes of a run")
    recorded = recorded_character.load(recordings[0], is_forced)
    if is_checked and not logs and recorded.steps is None and recorded.derived.keys:
        raise ConfigError(
            "the program reads without a loader, so its steps are not recorded; for --check, give a Darshan log of "
            "the same run as well"
        )
    if not logs:
        return recorded
    return with_log.combine(recorded, analysis.load(log_files.listed(logs), only, True, reads_content))


def _write_page(path: Path | None, character: "Character", checked: "Checked | None") -> None:
    """Write the report on a program and on its check run as an HTML file, if the user requests it."""
    if path is None:
        return
    from dlio_hpc.programs.reports import characterization_page, check_page

    page = characterization_page.of_character(character)
    if checked is not None:
        check = check_page.of_check(checked)
        page = page._replace(banner=check.banner, sections=[*check.sections, *page.sections])
    Outputs(html=path).write_page(page)


def _described(character: "Character", as_json: bool) -> int:
    from dlio_hpc.programs.reports import characterization_page
    from dlio_hpc.reports import terminal

    if as_json:
        _print_json(character, None, None)
    else:
        terminal.show(characterization_page.of_character(character), sys.stdout)
    has_dataset = any(role.role == "dataset" for role in character.derived.roles)
    hints = [] if character.is_recording else ["a recording would show whether it trains (dlio-hpc record)"]
    if has_dataset:
        hints.append("--force derives a workload anyway")
    elif not character.is_recording:
        hints.append("select the files of its dataset with --only")
    raise ConfigError("; ".join([f"this program does not look like training: {character.derived.against[0]}", *hints]))


def _print_json(character: "Character", content: str | None, checked: "Checked | None") -> None:
    from dlio_hpc.programs import documents

    console.print_json(documents.of_character(character, content, checked))
