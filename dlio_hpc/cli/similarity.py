"""dlio-hpc similarity: compare the I/O of programs."""

import filecmp
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import console
from dlio_hpc.cli.darshan import expression
from dlio_hpc.cli.outputs import Outputs, page_options
from dlio_hpc.cli.verbs import RUNS, SETTINGS, argument, option
from dlio_hpc.records import names as jobs_by_name

if TYPE_CHECKING:
    from dlio_hpc.programs.similarity.io_profile import Profile


@click.command(context_settings=SETTINGS)
@argument("names", nargs=-1, required=True, metavar="JOB|ARCHIVE|LOG|DIR|PATTERN|PROFILE...")
@option("--matrix", is_flag=True, help="Compare any number of programs, each with every other one.")
@option(
    "--against",
    multiple=True,
    metavar="NAME",
    help="Program in a column of --matrix; repeatable. Default: the programs of the rows.",
)
@option("--run", "run_name", metavar="NAME", help="Run to compare in each job. Default: the last measured run.")
@option(
    "--only",
    metavar="REGEX",
    callback=expression,
    help=(
        "In Darshan logs, use only files whose path matches this regular expression. Default: all files "
        "except programs and libraries."
    ),
)
@option("-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True, help="Folder of jobs.")
@page_options
def similarity(
    names: tuple[str, ...], matrix: bool, against: tuple[str, ...], run_name: str | None, only: str | None, runs: Path,
    outputs: Outputs,
) -> int:  # fmt: skip
    """Compare the I/O of two programs: by the similarity measure of the DLIO paper, by access patterns, and by
    distributions.

    PROFILE: metrics from a publication, shipped with dlio-hpc, such as theta_128_nodes:candle, or FILE.yaml[:NAME]. For
    a job, the I/O on its dataset and its checkpoints is compared; for a Darshan log, the I/O on the files that --only
    selects.

    A program without MPI leaves a log for each of its processes. DIR, a folder of logs (*.darshan), and PATTERN, such
    as 'logs/*_id77-*.darshan' in quotes, stand for all logs of one program.
    """
    _refuse_without_effect((*names, *against), runs, run_name, only)
    if matrix:
        rows = _once(profile for name in names for profile in _all(name, runs, run_name, only))
        columns = _once(profile for name in against or names for profile in _all(name, runs, run_name, only))
        return _matrix(rows, columns, outputs)
    if against:
        raise click.UsageError("--against needs --matrix")
    if len(names) != 2:
        raise click.UsageError(
            f"give two programs to compare, not {len(names)}; --matrix compares any number. Several logs of one "
            "program: give their folder, or a pattern in quotes"
        )
    return _pair(*names, runs, run_name, only, outputs)


def _refuse_without_effect(names: tuple[str, ...], runs: Path, run_name: str | None, only: str | None) -> None:
    """Raise a usage error if --run is given without a job, or --only without a Darshan log."""
    from dlio_hpc.programs.reports import program_profiles

    kinds = {program_profiles.operand(name, jobs_by_name.place(name, runs)) for name in names}
    if run_name is not None and "job" not in kinds:
        raise click.UsageError("--run names a run of a job, but no job is compared; leave it out")
    if only is not None and "log" not in kinds:
        raise click.UsageError("--only selects files of Darshan logs, but no log is compared; leave it out")


def _all(name: str, runs: Path, run: str | None, only: str | None) -> "list[Profile]":
    from dlio_hpc.programs.reports import program_profiles

    return program_profiles.load_all(name, jobs_by_name.place(name, runs), run, only)


def _once(compared: "Iterable[Profile]") -> "list[Profile]":
    return list({profile.title: profile for profile in compared}.values())


def _pair(first: str, second: str, runs: Path, run: str | None, only: str | None, outputs: Outputs) -> int:
    from dlio_hpc.programs.reports import program_profiles, similarity_page
    from dlio_hpc.programs.similarity import similarity

    paths = [jobs_by_name.place(name, runs) for name in (first, second)]
    a, b = (program_profiles.load(name, path, run, only) for name, path in zip((first, second), paths, strict=True))
    is_same = _are_same(*paths)
    compared = similarity.compare(a, b)
    known = similarity.yardsticks(compared.left_out)
    if outputs.as_json:
        from dlio_hpc.programs import documents

        console.print_json(documents.of_pair(a, b, compared, known))
        if is_same:
            console.say(f"note: {similarity_page.SAME.text}")
    outputs.present(lambda: similarity_page.of_pair(a, b, compared, known, is_same))
    return 0


def _are_same(first: Path, second: Path) -> bool:
    """Return whether two paths name the same job, the same log, or logs with the same content."""
    if not first.exists() or not second.exists():
        return False  # reference profiles
    return first.samefile(second) or (first.is_file() and second.is_file() and filecmp.cmp(first, second, False))


def _matrix(rows: "list[Profile]", columns: "list[Profile]", outputs: Outputs) -> int:
    from dlio_hpc.programs.reports import similarity_page
    from dlio_hpc.programs.similarity import similarity

    if len({profile.title for profile in (*rows, *columns)}) < 2:
        raise ConfigError("a matrix needs at least two programs; give more, or --against theta_128_nodes")
    if outputs.figures is not None:
        raise click.UsageError("--figures draws two programs; give two, without --matrix")
    made = similarity.matrix(rows, columns)
    known = similarity.yardsticks(made.left_out)
    if outputs.as_json:
        from dlio_hpc.programs import documents

        console.print_json(documents.of_matrix(made, known))
    outputs.present(lambda: similarity_page.of_matrix(made, known))
    return 0
