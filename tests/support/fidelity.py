"""Emulations compared with their originals by what processes ask the system for: shipped workloads with the figures
that were published of their applications, workloads derived from logs with the small programs of tests/apps.
"""

import math
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from dlio_hpc.base import serialization, units
from dlio_hpc.config import site
from dlio_hpc.config import workload as workloads
from dlio_hpc.config.dataset_keys import AuxiliaryFile
from dlio_hpc.config.workload import Workload
from dlio_hpc.files import rundir
from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.reports import program_profiles, workload_yaml
from dlio_hpc.programs.similarity import io_profile, reference_profile
from dlio_hpc.programs.similarity.io_profile import Profile
from dlio_hpc.results.run_result import Result
from tests.support import planning, straced
from tests.support.places import LOGS

APP_LOGS = LOGS / "apps"
# Folder below APP_LOGS with the logs of a second run of each program.
AGAIN = "again"
RANKS = 2
# What makes each short here.
APPLICATIONS: dict[str, tuple[str, ...]] = {
    "candle": ("dataset.samples_per_file=64", "train.epochs=1"),
    "climate": (),
    "cosmic_tagger": ("train.steps=75",),
    "cosmoflow": ("dataset.files=2", "dataset.samples_per_file=8", "train.epochs=1", "reader.preprocess_time=0"),
    "ffn": ("train.steps=100",),
    "frnn": ("dataset.files=12",),
    "imagenet": ("dataset.files=4", "dataset.samples_per_file=256", "reader.preprocess_time=0"),
}
PROGRAMS = ("npz_archives", "h5_patches", "csv_memory", "tf_records", "torch_loader")
# Of those that a machine may lack.
NEEDS = {"candle": "pandas", "csv_memory": "pandas", "cosmoflow": "tensorflow", "imagenet": "tensorflow"}


class Pair(NamedTuple):
    """A program or an application, and its emulation as it ran here."""

    original: Profile
    emulation: Profile


def of_application(name: str, folder: Path) -> Pair:
    published = reference_profile.load_one(f"theta_128_nodes:{name}")
    return Pair(io_profile.of_reference(published), traced(shrunk(name, published.reference.ranks or 1), folder))


def of_program(name: str, folder: Path) -> Pair:
    source = character(name)
    return Pair(
        program_profiles.of_character(source, name), traced(derived(source, name, folder), folder, source.log.job.ranks)
    )


def files(name: str) -> tuple[int, int]:
    """Return the numbers of files that the shipped workload and the application touch, on as many ranks as that had."""
    published = reference_profile.load_one(f"theta_128_nodes:{name}").reference
    dataset = workloads.load(name).dataset
    written = [side for side in dataset.auxiliary_files if side.access == "write"]
    stored = dataset.files * (dataset.format != "null") + len(dataset.auxiliary_files) - len(written)
    ranks = published.ranks or 1
    return stored + sum(ranks if side.by == "all" else 1 for side in written), published.files or 0


def shrunk(name: str, ranks: int) -> Workload:
    """Return a shipped workload for a small run. `ranks`: of the application. Files that it read once served all its
    steps, and files that its rank 0 read served all ranks; the workload has a share of them.
    """
    whole = workloads.load(name)
    made = workloads.load(name, ("compute.time=0", *APPLICATIONS[name]))
    steps = (made.train.steps or 1) / (whole.train.steps or 1)

    def share(side: AuxiliaryFile) -> AuxiliaryFile:
        part = steps * (RANKS / ranks if side.by == "root" else 1)
        return replace(side, count=math.ceil(side.count * part)) if side.when == "start" else side

    return replace(made, dataset=replace(made.dataset, auxiliary_files=tuple(map(share, made.dataset.auxiliary_files))))


def logs(program: str, again: bool = False) -> list[Path]:
    """Return the logs of one program, or those of its second run. Without MPI each of its processes has one."""
    return sorted((APP_LOGS / AGAIN if again else APP_LOGS).glob(f"{program}*.darshan"))


def character(program: str) -> Character:
    return characterize.load(logs(program), None, False)


def derived(source: Character, name: str, folder: Path) -> Workload:
    """Return the workload derived from the log, without the time of computing."""
    path = folder / "derived.yaml"
    path.write_text(workload_yaml.write(source, name.replace("_", "-")))
    return workloads.load(str(path), ("compute.time=0",))


def traced(workload: Workload, folder: Path, ranks: int = RANKS) -> Profile:
    """Run the workload and return the profile of its measured run under strace."""
    request = planning.Request(folder, data=folder / "data", walltime=units.walltime("1h"), ranks_per_node=ranks)
    plan = planning.make(workload, site.load("local"), request)
    (folder / rundir.PLAN).write_bytes(serialization.encode(plan))
    *before, last = plan.runs
    for run in before:
        straced.core(folder, ranks, run.number)
    straced.core(folder, ranks, last.number, folder / "seen.darshan")
    (written,) = folder.glob(f"runs/*-{last.name}/result.json")
    result = serialization.decode(written.read_bytes(), Result, str(written))
    profile = program_profiles.load(
        "seen", folder / "seen.darshan", None, f"^(?:{last.dataset}|{last.outputs})/(?!dlio-dataset)"
    )
    return replace(profile, application=workload.name, bytes_per_sample=io_profile.sample_bytes(result))
