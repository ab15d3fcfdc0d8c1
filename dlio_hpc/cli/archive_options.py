"""Options of commands that read a history."""

from typing import Any

from dlio_hpc.cli.verbs import PATH, RUNS, option


def archive_options(function: Any) -> Any:
    """Add the options --archive and --runs."""
    function = option(
        "-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True,
        help="Folder for the directories of jobs.",
    )(function)  # fmt: skip
    return option(
        "--archive", type=PATH, metavar="DIR",
        help="Folder with the archives, their history and baselines. Default: RUNS/archive.",
    )(function)  # fmt: skip
