"""characterize --check: run the derived workload on a small dataset, and compare the run with the program: the requests
of the run with the requests in the log, and the steps of the run with the recorded steps.
"""

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
    from dlio_hpc.config.workload import Workload
    from dlio_hpc.programs.characterize.characterize import Character
    from dlio_hpc.programs.reports.check_page import Checked, CheckedRequests, NotDerived
    from dlio_hpc.programs.step_check import StepVerdict

# Limits that keep the run short. They do not change the I/O of a step, because computation does no I/O and all epochs
# do the same I/O. Data in memory are read once, so the checkpoints of more epochs belong to one pass over them.
_MOST_STEP_S, _MOST_EPOCHS, _MOST_EPOCHS_IN_MEMORY, _MOST_RANKS = 0.02, 2, 20, 4
# Longest computation of a check run whose steps are compared with recorded ones.
_MOST_COMPUTE_S = 60.0


def run(
    character: "Character", content: str, *, site: str, dataset_size: int, settings: tuple[str, ...], runs: Path,
    tolerance: float,
) -> "Checked":  # fmt: skip
    """Run the workload in a job, and compare it with the program. content: YAML text of the workload. tolerance:
    smallest pattern similarity that passes, and smallest ratio of the values of a step that passes.
    """
    from dlio_hpc.config import workload
    from dlio_hpc.programs.reports.check_page import Checked

    folder = Path(tempfile.mkdtemp(prefix="dlio-hpc-characterize-"))
    try:
        path = folder / "workload.yaml"
        with about(path):
            path.write_text(content, encoding="utf-8")
        whole = workload.load(str(path))
        as_run = workload.load(str(path), tuple(text for text in settings if not text.startswith("site.")))
        step_s = _step_s(character, whole, dataset_size)
        job = _submit(_options(character, path, whole, site, dataset_size, settings, runs, step_s))
    finally:
        safe_folders.discard(folder)
    asked_s = whole.compute.time.mean
    steps = _steps_compared(character, job, (whole, as_run), step_s >= asked_s, tolerance)
    requests = _requests_compared(character, job, tolerance) if character.has_requests else None
    is_decoded = as_run.reader.mode == "framework" and as_run.dataset.facts.holds_image
    return Checked(_absent(character), requests, steps, is_decoded)


def _step_s(character: "Character", whole: "Workload", dataset_size: int) -> float:
    """Return the computation time of a step of the check run in seconds. If steps are compared, and all steps together
    do not take too long, it is the computation time of the program. Otherwise, it is at most a short time.
    """
    from dlio_hpc.dataset import rank_shares

    asked_s = whole.compute.time.mean
    if character.steps is None:
        return min(asked_s, _MOST_STEP_S)
    share = min(1.0, dataset_size / max(whole.dataset.bytes_of(whole.dataset.samples), 1))
    ranks = min(_MOST_RANKS, character.log.job.ranks)
    steps = share * rank_shares.steps_per_epoch(whole, ranks) * _epochs(whole)
    return asked_s if asked_s * steps <= _MOST_COMPUTE_S else min(asked_s, _MOST_STEP_S)


def _epochs(whole: "Workload") -> int:
    """Return the number of epochs of the check run."""
    return min(whole.train.epochs, _MOST_EPOCHS_IN_MEMORY if whole.reader.load == "memory" else _MOST_EPOCHS)


def _options(
    character: "Character", workload: Path, whole: "Workload", site: str, dataset_size: int, settings: tuple[str, ...],
    runs: Path, step_s: float,
) -> Options:  # fmt: skip
    """Return the options of a job that runs the workload, with a dataset and limits that suit this machine."""
    size = whole.dataset.bytes_of(whole.dataset.samples)
    # Checkpoints are compared by their requests, which a recording does not have. They may be far larger than the data.
    without = () if character.has_requests else ("checkpoint=null",)
    epochs = _epochs(whole)
    evaluation = _evaluation(character, whole, dataset_size, epochs)
    return Options(
        workload=str(workload),
        site=site,
        ranks_per_node=(max(1, min(_MOST_RANKS, character.log.job.ranks)),),
        dataset_size=dataset_size if size > dataset_size else None,
        overrides=(f"compute.time={step_s} s", f"train.epochs={epochs}", *without, *evaluation, *settings),
        runs=runs,
    )


def _evaluation(character: "Character", whole: "Workload", dataset_size: int, epochs: int) -> tuple[str, ...]:
    """Return the settings that keep the evaluation passes small. Evaluation passes have their own files. If training
    steps are compared, there are no passes. If requests are compared, the passes have at most as many files as the
    dataset. epochs: number of epochs of the check run.
    """
    evaluation = whole.evaluation
    if evaluation is None:
        return ()
    if not character.has_requests or evaluation.every_epochs > epochs:
        return ("evaluation=null",)
    size = whole.dataset.bytes_of(whole.dataset.samples)
    most = max(1, dataset_size * whole.dataset.files // max(size, 1))
    return (f"evaluation.files={min(evaluation.files, most)}",)


def _submit(options: Options) -> Path:
    """Run and collect the job, and return its directory. Raise InfrastructureError if the job could not be watched
    until it ended.
    """
    from dlio_hpc import api
    from dlio_hpc.cli.report import collect_all

    (directory,) = api.submit(options, report=console.say).directories
    ended, code = console.wait([directory], quiet=False)
    with contextlib.redirect_stdout(sys.stderr):
        code = collect_all(ended, True) or code
    if code and not ended:
        raise InfrastructureError(f"the run of the derived workload did not finish; see {directory}")
    return directory


def _requests_compared(character: "Character", job: Path, tolerance: float) -> "CheckedRequests":
    from dlio_hpc.programs import emulation_check
    from dlio_hpc.programs.reports import check_page, program_profiles
    from dlio_hpc.programs.similarity import similarity

    title = ", ".join(path.name for path in character.paths)
    mine = program_profiles.load(str(job), job, None, None)
    log = program_profiles.comparable(character, title, mine)
    compared = similarity.compare(log, mine)
    verdict = emulation_check.judge(compared, tolerance)
    return check_page.CheckedRequests(verdict, log, mine, compared, similarity.yardsticks(compared.left_out))


def _steps_compared(
    character: "Character", job: Path, workloads: "tuple[Workload, Workload]", is_compute_whole: bool, tolerance: float
) -> "StepVerdict | None":
    """Return the verdict on the steps of a job; None if the steps of the program are unknown. workloads: the derived
    workload, and the same with the settings of the job.
    """
    from dlio_hpc.programs import emulated_steps, step_check

    if character.steps is None:
        return None
    whole, as_run = workloads
    is_in_memory = as_run.reader.load == "memory"
    run = emulated_steps.of_job(job, whole, character.log.job.ranks, is_compute_whole, is_in_memory)
    program = character.steps.compared_with(is_in_memory, as_run.train.epochs)
    return step_check.judge(program, run, tolerance)


def _absent(character: "Character") -> "NotDerived":
    from dlio_hpc.programs.reports import check_page, program_profiles

    if not character.has_requests:
        return check_page.not_derived(character, 0)
    analysis = program_profiles.examined(character, "").analysis
    return check_page.not_derived(character, analysis.untraced_bytes if analysis is not None else 0)
