"""characterize --check: the derived workload run here, shrunk, and its I/O held against the log's."""

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_hpc import folders
from dlio_hpc.cli import console
from dlio_hpc.errors import InfrastructureError, about

if TYPE_CHECKING:
    from dlio_hpc.analysis.characterize import Character

# Computing is no I/O, and an epoch like another: neither need be waited for.
_MOST_STEP_S, _MOST_EPOCHS, _MOST_RANKS = 0.02, 2, 4


def run(
    found: "Character", content: str, as_json: bool, *, site: str, dataset_size: int,
    settings: tuple[str, ...], runs: Path,
) -> dict[str, Any] | None:  # fmt: skip
    """Print the similarity; as a document with as_json. content: the workload's YAML."""
    folder = Path(tempfile.mkdtemp(prefix="dlio-hpc-characterize-"))
    try:
        workload = folder / "workload.yaml"
        with about(workload):
            workload.write_text(content, encoding="utf-8")
        job = _submit(workload, [*_shrunk(found, site, dataset_size), *(f"-S{each}" for each in settings)], runs)
    finally:
        folders.discard(folder)
    return _compared(found, job, as_json)


def _shrunk(found: "Character", site: str, dataset_size: int) -> list[str]:
    """What makes it small enough for here."""
    keys = found.derived.keys
    ranks = max(1, min(_MOST_RANKS, found.log.job.ranks))
    arguments = ["-s", site, "--ppn", str(ranks)]
    if sum(role.file.size for role in found.derived.roles if role.role == "dataset") > dataset_size:
        arguments += ["--dataset-size", str(dataset_size)]
    arguments.append(f"-Scompute.time={min(keys['compute.time'].value, _MOST_STEP_S)}")
    arguments.append(f"-Strain.epochs={min(keys['train.epochs'].value, _MOST_EPOCHS)}")
    return arguments


def _submit(workload: Path, arguments: list[str], runs: Path) -> Path:
    """The job's folder, when it has ended well."""
    from dlio_hpc.cli.handover import Manner
    from dlio_hpc.cli.report import collect_all
    from dlio_hpc.cli.request import planned
    from dlio_hpc.cli.submit import submit, submitted

    context = submit.make_context("submit", [str(workload), *arguments, "-o", str(runs)])
    named = {"parents", "resume", "dry_run", "wait", "as_json", "quiet", "verbose", "workload_name"}
    asked = planned(str(workload), {key: value for key, value in context.params.items() if key not in named})
    directories = submitted(asked, (), runs, Manner(False, True, False, False, False))
    watched, code = console.wait(directories, quiet=False)
    with contextlib.redirect_stdout(sys.stderr):
        code = collect_all(watched, True) or code
    if code and not watched:
        raise InfrastructureError(f"the derived workload did not run here; see {directories[0]}")
    return directories[0]


def _compared(found: "Character", job: Path, as_json: bool) -> dict[str, Any] | None:
    from dlio_hpc.analysis import similarity
    from dlio_hpc.report import profiles, similarityrows

    log = profiles.of_character(found, ", ".join(path.name for path in found.paths))
    mine = profiles.load(str(job), job, None, None)
    made = similarity.compare(log, mine)
    known = similarity.yardsticks(made.left_out)
    if as_json:
        document: dict[str, Any] = similarityrows.as_document(log, mine, made, known)
        return document
    from dlio_hpc.report import similaritytables

    similaritytables.show(log, mine, made, known, sys.stdout)
    return None
