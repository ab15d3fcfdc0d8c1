"""File systems of a run: the file systems of the dataset, of the outputs, and of the evaluation's dataset. For each,
this module collects facts that show that evidence of reads from storage is not valid.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dlio_hpc.core import cache_facts
from dlio_hpc.dataset import dataset_folder, stored_parts
from dlio_hpc.dataset.rank_shares import samples_per_epoch
from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.files.filesystem import FileSystem
from dlio_hpc.plan.plan import Run

Role = Literal["dataset", "outputs", "evaluation"]
# Largest number of files of a dataset of which it is checked where and how they are stored.
_CHECKED = 1024


class Mounted(NamedTuple):
    """A file system at the start of a run, and the facts about this file system. Files are not examined at that time,
    because this would bring their metadata to the client before the run reads them.
    """

    file_system: FileSystem
    facts: list[str]


def mounts(run: Run) -> dict[Role, Mounted]:
    """Return the file systems of a run before it begins."""
    return {role: Mounted(filesystem.of(place), cache_facts.of(place)) for role, place in _places(run).items()}


def fields(run: Run, ranks: int, before: dict[Role, Mounted]) -> dict[str, Any]:
    """Return the fields of the result that describe the file systems. If a run has no dataset, the fields of the
    dataset describe the file system of its checkpoints, too. before: result of mounts(). Facts from the start and from
    the end of the run are combined.
    """
    kinds, facts = dict[Role, str](), dict[Role, list[str]]()
    for role, place in _places(run).items():
        file_system = filesystem.of(place)
        kinds[role] = file_system.text if role == "outputs" else file_system.kind
        facts[role] = cache_facts.of(place, _checked(run, role, ranks))
        if role in before and run.kind != "generate":
            is_same = before[role].file_system == file_system
            moved = [] if is_same else [storage_proofs.MOVED]
            facts[role] = sorted({*facts[role], *before[role].facts, *moved})
    is_writing = run.kind != "generate" and run.workload.writes_outputs
    of_dataset: Role = "dataset" if "dataset" in kinds or "outputs" not in kinds else "outputs"
    kind = kinds.get(of_dataset, "").partition(" ")[0]
    return {
        "file_system": kind,
        "cache_facts": facts.get(of_dataset, []),
        "outputs_on": kinds.get("outputs", "") if is_writing else "",
        "outputs_cache_facts": facts.get("outputs", []) if is_writing else [],
        "evaluation_file_system": kinds.get("evaluation", ""),
        "evaluation_cache_facts": facts.get("evaluation", []),
    }


def _places(run: Run) -> dict[Role, Path]:
    """Return the folders that the run reads and writes."""
    places: dict[Role, Path] = {}
    if run.workload.dataset.is_stored:
        places["dataset"] = Path(run.dataset)
    if run.workload.checkpoint is not None or (run.kind != "generate" and run.workload.writes_outputs):
        places["outputs"] = Path(run.outputs).parent
    if run.evaluation is not None and run.evaluation.workload.dataset.is_stored:
        places["evaluation"] = Path(run.evaluation.dataset)
    return places


def _checked(run: Run, role: Role, ranks: int) -> Sequence[str]:
    """Return the paths of files to check, at most as many as an epoch has samples. The files are drawn at random,
    because files that are stored elsewhere may form a periodic pattern.
    """
    which = {"dataset": run, "evaluation": run.evaluation, "outputs": None}[role]
    if which is None or not which.workload.dataset.facts.holds_data:
        return []
    files = stored_parts.total(which.workload.dataset)
    number = max(1, min(_CHECKED, samples_per_epoch(which.workload, ranks), files))
    drawn = random.Random(run.outputs).sample(range(files), number)
    return [dataset_folder.file_path(which.stored, place) for place in sorted(drawn)]
