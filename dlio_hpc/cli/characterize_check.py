"""characterize --check: run the derived workload on a small dataset, and compare its I/O with that in the log."""

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_hpc.base.errors import InfrastructureError, about
from dlio_hpc.cli import console
from dlio_hpc.files import safe_folders
from dlio_hpc.plan.options import Options

if TYPE_CHECKING:
    from dlio_hpc.programs.characterize.characterize import Character
    from dlio_hpc.programs.reports.check_page import Checked

# Limits that keep the run short. They do not change the I/O of a step, because computation does no I/O and all epochs
# do the same I/O.
_MOST_STEP_S, _MOST_EPOCHS, _MOST_RANKS = 0.02, 2, 4


def run(
    character: "Character", content: str, *, site: str, dataset_size: int, settings: tuple[str, ...], runs: Path,
    tolerance: float,
) -> "Checked":  # fmt: skip
    """Run the workload in a job, and compare its I/O with that in the log. content: YAML text of the workload.
    tolerance: smallest pattern similarity that passes.
    """
    folder = Path(tempfile.mkdtemp(prefix="dlio-hpc-characterize-"))
    try:
        workload = folder / "workload.yaml"
        with about(workload):
            workload.write_text(content, encoding="utf-8")
        job = _submit(_options(character, workload, site, dataset_size, settings, runs))
    finally:
        safe_folders.discard(folder)
    return _compared(character, job, tolerance)


def _options(
    character: "Character", workload: Path, site: str, dataset_size: int, settings: tuple[str, ...], runs: Path
) -> Options:
    """Return the options of a job that runs the workload, with a dataset and limits that suit this machine."""
    keys = character.derived.keys
    size = sum(role.file.size for role in character.derived.roles if role.role == "dataset")
    compute, epochs = min(keys["compute.time"].value, _MOST_STEP_S), min(keys["train.epochs"].value, _MOST_EPOCHS)
    return Options(
        workload=str(workload),
        site=site,
        ranks_per_node=(max(1, min(_MOST_RANKS, character.log.job.ranks)),),
        dataset_size=dataset_size if size > dataset_size else None,
        overrides=(f"compute.time={compute}", f"train.epochs={epochs}", *settings),
        runs=runs,
    )


def _submit(options: Options) -> Path:
    """Run and collect the job, and return its directory. Raise InfrastructureError if the job could not be watched to
    its end.
    """
    from dlio_hpc import api
    from dlio_hpc.cli.report import collect_all

    (directory,) = api.submit(options, report=console.say).directories
    ended, code = console.wait([directory], quiet=False)
    with contextlib.redirect_stdout(sys.stderr):
        code = collect_all(ended, True) or code
    if code and not ended:
        raise InfrastructureError(f"the derived workload did not run to its end; see {directory}")
    return directory


def _compared(character: "Character", job: Path, tolerance: float) -> "Checked":
    from dlio_hpc.programs import emulation_check
    from dlio_hpc.programs.reports import check_page, program_profiles
    from dlio_hpc.programs.similarity import similarity

    title = ", ".join(path.name for path in character.paths)
    mine = program_profiles.load(str(job), job, None, None)
    log = program_profiles.comparable(character, title, mine)
    compared = similarity.compare(log, mine)
    analysis = program_profiles.examined(character, title).analysis
    return check_page.Checked(
        emulation_check.judge(compared, tolerance),
        check_page.not_derived(character, analysis.untraced_bytes if analysis is not None else 0),
        log,
        mine,
        compared,
        similarity.yardsticks(compared.left_out),
    )
