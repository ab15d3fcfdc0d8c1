import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped, site, workload
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.image_keys import ImageShape
from dlio_hpc.config.lustre_layout import Component, Directories, Layout
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Train, Workload
from dlio_hpc.dataset import fingerprints, rank_shares
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.plan import notes, plan, site_limits
from dlio_hpc.plan.plan import Plan
from tests.support import planning


def _workload(samples: int, batch: int, drop_last: bool = False, steps: int | None = None) -> Workload:
    dataset = Dataset("npz", samples, 1, Sample(shape=(1,)))
    return Workload("w", dataset, reader=Reader(batch_size=batch, drop_last=drop_last), train=Train(steps=steps))


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_shares_cover_every_position_once_and_are_even(samples: int, ranks: int) -> None:
    shares = [rank_shares.share(samples, ranks, rank) for rank in range(ranks)]
    assert shares[0][0] == 0
    assert shares[-1][1] == samples
    assert all(one[1] == other[0] for one, other in pairwise(shares))
    assert max(b - a for a, b in shares) - min(b - a for a, b in shares) <= 1


@given(
    samples=st.integers(1, 3000), ranks=st.integers(1, 40), batch=st.integers(1, 50), drop_last=st.booleans(),
    cap=st.none() | st.integers(1, 20),
)  # fmt: skip
def test_steps_and_samples_are_what_the_loop_does(
    samples: int, ranks: int, batch: int, drop_last: bool, cap: int | None
) -> None:
    made = _workload(samples, batch, drop_last, cap)
    steps = rank_shares.steps_per_epoch(made, ranks)
    read = 0
    for rank in range(ranks):
        first, last = rank_shares.share(samples, ranks, rank)
        for step in range(steps):
            size = min(first + (step + 1) * batch, last) - min(first + step * batch, last)
            assert size == batch or not drop_last
            read += size
    assert rank_shares.samples_per_epoch(made, ranks) == read
    if cap is None and not drop_last:
        assert read == samples


def test_layouts_from_before_a_key_existed_keep_their_fingerprints() -> None:
    """The fingerprints are those of the version before directories had a layout."""
    dataset = workload.load("demo").dataset
    mib = units.Size(1 << 20)
    parts = (Component(end=mib, mdt=True), Component(stripe_count=-1, pool="flash"))
    for layout, fingerprint in (
        (Layout(stripe_count=48, stripe_size=mib), "4cc36a7db4b3"),
        (Layout(components=parts), "41b52ec40216"),
        (Layout(stripe_count=4, overstripe=True, stripe_index=0), "09d6a292dfc4"),
    ):
        assert fingerprints.of(dataset, layout) == fingerprint
        others = {fingerprints.of(dataset, replace(layout, directories=Directories(count))) for count in (1, 2)}
        assert len(others - {fingerprint}) == 2


def test_fingerprints_depend_on_the_geometry_alone() -> None:
    dataset = workload.load("demo").dataset
    assert fingerprints.of(dataset) == fingerprints.of(replace(dataset)) == "122ee4f6c24a"
    assert fingerprints.of(dataset) != fingerprints.of(replace(dataset, files=65))
    assert fingerprints.folder_name(dataset) == "npz-64x4x1MiB-122ee4f6c24a"
    sample = Sample(bytes=units.Size(100))
    divisions = [None, *((units.Size(size), units.Size(100 - size)) for size in (10, 20))]
    assert len({fingerprints.of(replace(dataset, sample=sample, arrays=arrays)) for arrays in divisions}) == 3


def _make(request: planning.Request, *overrides: str) -> Plan:
    return planning.make(workload.load("demo", overrides), site.load("local"), request)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    made = _make(planning.Request(runs=tmp_path, walltime=units.walltime("1:30:00"), repeat=2, warmup=1))
    assert serialization.decode(serialization.encode(made), Plan, "plan.json") == made
    assert [run.name for run in made.runs] == ["generate", "warmup", "measure-1", "measure-2"]
    assert made.walltime == 5400


def test_the_kinds_of_runs_follow_generate(tmp_path: Path) -> None:
    every: tuple[plan.Generate, ...] = ("auto", "only", "never")
    kinds = {how: [run.kind for run in _make(planning.Request(runs=tmp_path, generate=how)).runs] for how in every}
    assert kinds == {"auto": ["generate", "measure"], "only": ["generate"], "never": ["measure"]}
    null = planning.make(workload.load("null"), site.load("local"), planning.Request(runs=tmp_path))
    assert [run.kind for run in null.runs] == ["measure"]
    with pytest.raises(ConfigError, match="there is nothing to generate"):
        planning.make(workload.load("null"), site.load("local"), planning.Request(runs=tmp_path, generate="only"))


def test_limits_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--nodes 2: site local allows at most 1"):
        site_limits.check([_make(planning.Request(runs=tmp_path, nodes=2))])
    with pytest.raises(ConfigError, match="nothing would be read"):
        _make(planning.Request(runs=tmp_path), "reader.drop_last=true", "reader.batch_size=100")
    profile = replace(site.load("local"), limits=site.Limits(walltime=units.Walltime(600)))
    with pytest.raises(ConfigError, match="--time 1:00:00: site local allows at most 0:10:00"):
        site_limits.check([planning.make(workload.load("demo"), profile, planning.Request(runs=tmp_path))])
    profile = replace(profile, data=None)
    with pytest.raises(ConfigError, match="set it with --data"):
        planning.make(workload.load("demo"), profile, planning.Request(runs=tmp_path, walltime=units.Walltime(60)))


@given(st.text())
def test_job_names_fit_every_batch_system(name: str) -> None:
    made = plan.job_name(name)
    assert len(made) <= 63
    assert made[0].isalnum() or made[0] == "_"
    assert all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in made)


def test_a_site_profile_is_strict(tmp_path: Path) -> None:
    profile = shipped.find(shipped.SITES, "local").read_text()
    path = tmp_path / "mine.yaml"
    for old, new, message in (
        ("kind: mpiexec ", "kind: mpirun ", "launcher.kind: found mpirun, which is a command; kind is its MPI library"),
        ("ranks_per_node: 4", "ranks_per_node: 0", "ranks_per_node: found 0; use a whole number of at least 1"),
        ("walltime: 1:00:00", "walltime: 1:00:99", "walltime: found '1:00:99'; minutes and seconds are at most 59"),
        ("environment: {}", "environment: {'a b': 1}", "environment"),
        ("environment: {}", "environment: {'a;b': '1'}", "'a;b' is not a valid name of an environment variable"),
        ("limits:", "limit:", "unknown key 'limit'; did you mean 'limits'?"),
    ):
        assert old in profile
        path.write_text(profile.replace(old, new))
        with pytest.raises(ConfigError) as caught:
            site.load(str(path))
        assert message in str(caught.value)
    with pytest.raises(
        ConfigError, match=r"no site 'nowhere'; give a YAML file or one of: aurora, flux, frontier, local, lumi, "
    ):
        site.load("nowhere")


def test_the_launcher_beside_the_interpreter_comes_first(tmp_path: Path) -> None:
    profile = replace(site.load("local"), python=str(tmp_path / "python"))
    assert site.resolved(profile).launcher.command != str(tmp_path / "mpiexec")
    (tmp_path / "mpiexec").touch()
    assert site.resolved(profile).launcher.command == str(tmp_path / "mpiexec")
    given = replace(profile, launcher=replace(profile.launcher, command="/opt/mpi/mpiexec"))
    assert site.resolved(given).launcher.command == "/opt/mpi/mpiexec"
    unknown = replace(profile, launcher=replace(profile.launcher, command="no-such-launcher"))
    assert site.resolved(unknown).launcher.command == "no-such-launcher"


def test_more_steps_than_can_be_recorded_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train: 1000000000 epochs of 16 steps are more than 67108864"):
        _make(planning.Request(runs=tmp_path), "train.epochs=1000000000")
    assert _make(planning.Request(runs=tmp_path, generate="only"), "train.epochs=1000000000").runs


def test_a_billion_samples_are_planned_and_begun_like_a_thousand(tmp_path: Path) -> None:
    """The plan and the first batch of a billion samples take little more than those of a thousand, in each format."""
    program = f"""
import resource, time
import subprocess
import sys
from pathlib import Path
from dlio_hpc.config import site, workload
from dlio_hpc.dataset import rank_shares
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.loaders.loader import in_steps
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.dataset.sample_layout import SampleLayout
from tests.support import planning

def begin(files):
    for kind in ("npz", "tfrecord", "hdf5", "csv"):
        keys = (f"dataset.format={{kind}}", f"dataset.files={{files}}", "dataset.samples_per_file=1000")
        spread = () if kind == "csv" else ("dataset.sample={{bytes: 1000, stdev: 100}}",)
        made = workload.load("demo", (*keys, *spread, "train.steps=1000"))
        run = planning.make(made, site.load("local"), planning.Request(Path("{tmp_path}"))).runs[-1]
        reader = FORMATS[kind].reader(run.workload, str, None)
        NativeLoader(run.workload, reader, run.steps_per_epoch).close()
        first, last = rank_shares.positions(run.workload, 4, 3, 4)
        order = Order(run.workload.dataset, run.workload.reader, 3)
        layout = SampleLayout(run.workload.dataset)
        assert len(next(in_steps(order, layout, first, last, run.steps_per_epoch, 4))) == 4

begin(1)
before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
begin(10**6)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, (time.process_time() - started) / 4)
"""
    used = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert int(used[0]) < 50_000, "KiB"
    assert float(used[1]) < 0.1, "seconds"


@pytest.mark.parametrize(("stdev", "text"), [(75_000, ""), (100_000, "13 %"), (200_000, "45 %")])
def test_sizes_that_are_cut_are_noted(tmp_path: Path, stdev: int, text: str) -> None:
    """The standard deviation of the note is that of the samples."""
    sample = Sample(bytes=units.Size(150_000), stdev=units.Size(stdev))
    dataset = Dataset("raw", 20_000, 1, sample)
    sizes = SampleLayout(dataset).of(np.arange(20_000, dtype=np.uint64)).size
    request = planning.Request(tmp_path, data=tmp_path / "data")
    made = planning.make(Workload("w", dataset), site.load("local"), request)
    noted = [note for note in notes.of_plan(made) if "dataset.sample.stdev" in note]
    assert len(noted) == bool(text)
    for note in noted:
        assert f"so {text} of the samples have one of these sizes" in note
        stated = note.rpartition("standard deviation is ")[2].removesuffix(" KiB")
        assert sizes.std() / 1024 == pytest.approx(float(stated), rel=0.02)


def test_a_note_says_how_many_files_cannot_hold_the_picture(tmp_path: Path) -> None:
    """A picture of 90 x 60 has 2 to 64 bytes in each of 144 blocks, and 250 bytes around them: 538 to 9466 bytes."""
    request = planning.Request(tmp_path, data=tmp_path / "data")
    for stdev, share in ((100, None), (500, "about 0.17 % of the files"), (2000, "about 23 % of the files")):
        sample = Sample(bytes=units.Size(8000), stdev=units.Size(stdev))
        dataset = Dataset("jpeg", 100, 1, sample, image=ImageShape(90, 60))
        made = planning.make(Workload("w", dataset), site.load("local"), request)
        text = " ".join(note for note in notes.of_plan(made) if "dataset.image" in note)
        assert (share or "") in text
        assert bool(text) == (share is not None)
        assert not text or "smaller than 538 B or larger than 9.244 KiB, so 90 x 60 pixels do not fit" in text
