"""Do the shipped workloads ask a file system for what the applications asked for on Theta? Shrunk, but all else as it
ships; what every process asked for is strace's word.
"""

import math
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from dlio_hpc import document, rundir, site, units
from dlio_hpc.analysis import profile, reference, similarity
from dlio_hpc.analysis.profile import Profile
from dlio_hpc.report import profiles
from dlio_hpc.results import Result
from dlio_hpc.workload import SideFile, Workload, load
from tests import planning, straced
from tests.conftest import Run

_RANKS = 2
_LIBRARY = os.environ.get("DLIO_HPC_LIBDARSHAN", "").split(os.pathsep)[0]
# The six of the DLIO paper's Fig. 8; and climate, of whose requests the paper and the log tell different things.
_FLOORS = {
    "candle": 0.97, "cosmic_tagger": 0.97, "cosmoflow": 0.97, "ffn": 0.97, "frnn": 0.97, "imagenet": 0.97,
    "climate": 0.93,
}  # fmt: skip
# What makes each short here.
_SHORT: dict[str, tuple[str, ...]] = {
    "candle": ("dataset.samples_per_file=64", "train.epochs=1"),
    "cosmoflow": ("dataset.files=2", "dataset.samples_per_file=8", "train.epochs=1", "reader.preprocess_time=0"),
    "cosmic_tagger": ("train.steps=75",),
    "ffn": ("train.steps=100",),
    "frnn": ("dataset.files=12",),
    "imagenet": ("dataset.files=4", "dataset.samples_per_file=256", "reader.preprocess_time=0"),
}
_NEEDS = {"candle": "pandas", "cosmoflow": "tensorflow", "imagenet": "tensorflow"}


def _shrunk(name: str, ranks: int) -> Workload:
    """`ranks`: of the application. What it read once was for all of its steps, and what its rank 0 read for all ranks:
    here a share of that.
    """
    whole, made = load(name), load(name, ("compute.time=0", *_SHORT.get(name, ())))
    steps = (made.train.steps or 1) / (whole.train.steps or 1)

    def share(side: SideFile) -> SideFile:
        part = steps * (_RANKS / ranks if side.by == "root" else 1)
        return replace(side, count=math.ceil(side.count * part)) if side.when == "start" else side

    return replace(made, dataset=replace(made.dataset, side_files=tuple(map(share, made.dataset.side_files))))


def _seen(workload: Workload, folder: Path) -> Profile:
    """By strace."""
    request = planning.Request(folder, data=folder / "data", walltime=units.walltime("1h"), ranks_per_node=_RANKS)
    plan = planning.make(workload, site.load("local"), request)
    (folder / rundir.PLAN).write_bytes(document.encode(plan))
    *before, last = plan.runs
    for run in before:
        straced.core(folder, _RANKS, run.number)
    straced.core(folder, _RANKS, last.number, folder / "seen.darshan")
    (written,) = folder.glob(f"runs/*-{last.name}/result.json")
    result = document.decode(written.read_bytes(), Result, str(written))
    found = profiles.load("seen", folder / "seen.darshan", None, "/data/(?!.*dlio-dataset)")
    return replace(found, bytes_per_sample=profile.sample_bytes(result))


@pytest.mark.parametrize("name", _FLOORS)
def test_each_asks_for_what_its_application_asked_for(name: str, tmp_path: Path) -> None:
    straced.needed()
    pytest.importorskip(_NEEDS.get(name, "h5py"))
    published = reference.load_one(f"theta_128_nodes:{name}")
    found = _seen(_shrunk(name, published.reference.ranks or 1), tmp_path)
    compared = similarity.compare(found, profile.of_reference(published))
    told = {each.name: (each.a, each.b) for each in compared.factors if each.name in similarity.PATTERN}
    assert (compared.pattern.ratio or 0) >= _FLOORS[name], told


@pytest.mark.skipif(not _LIBRARY, reason="no libdarshan: name one built for the ranks' MPI in DLIO_HPC_LIBDARSHAN")
@pytest.mark.parametrize("name", ["cosmic_tagger", "frnn", "imagenet"])
def test_darshan_sees_the_same(name: str, run: Run, tmp_path: Path) -> None:
    """h5py's requests, those of Python's own files, TensorFlow's."""
    straced.needed()
    pytest.importorskip(_NEEDS.get(name, "h5py"))
    workload = _shrunk(name, 512)
    (tmp_path / "job").mkdir()
    seen = _seen(workload, tmp_path / "job")
    (tmp_path / "w.yaml").write_bytes(document.encode(workload))
    library = ("-S", f"site.darshan={_LIBRARY}", "--darshan")
    done = run("dlio-submit", "w.yaml", "-s", "local", "--ppn", _RANKS, "-d", "job/data", *library, "--wait", "--json")
    assert done.code == 0, done.err
    (job,) = (tmp_path / "dlio-runs").glob(f"{name}-*")
    assert similarity.compare(seen, profiles.load("job", job, None, None)).pattern.ratio == pytest.approx(1, abs=0.002)
