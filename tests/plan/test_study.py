"""A study has points, jobs that measure them, and a cost; the shipped study files are planned."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped, site, workload
from dlio_hpc.config.site import Site
from dlio_hpc.plan import cost, packing, site_limits, study, study_file, sweep
from dlio_hpc.plan.packing import Unit
from dlio_hpc.plan.study import JobRequest, PartRequest, Study

LOCAL = site.load("local")


def _study(
    *sweeps: str, name: str = "demo", overrides: tuple[str, ...] = (), machine: Site = LOCAL, repeat: int = 1,
    walltime: str = "1h", nodes: tuple[int, ...] = (1,), weak: bool = False, dataset_size: int | None = None,
    zipped: bool = False, seed: int = 1, **options: object,
) -> Study:  # fmt: skip
    axes = tuple(map(sweep.axis, sweeps))
    asked = PartRequest(
        workload.draft(name, overrides), machine, axes, zipped, nodes, weak=weak, dataset_size=dataset_size
    )
    request = JobRequest(
        Path("/r"), data=Path("/d"), repeat=repeat, walltime=units.walltime(walltime), seed=seed,
        **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return study.make("s", [asked], request)


def test_points_are_every_combination_with_the_workload_itself_as_reference() -> None:
    made = _study("reader.transfer_size=64KiB,1MiB", "reader.read_threads=1,2,4")
    assert [made.title(point) for point in made.points][:2] == [
        "reader.transfer_size=64 KiB, reader.read_threads=1", "reader.transfer_size=64 KiB, reader.read_threads=2",
    ]  # fmt: skip
    (part,) = made.parts
    reference = made.points[part.reference].workload.reader
    assert part.is_default, "demo has two threads, and a request a sample, which is 1 MiB"
    assert (reference.transfer_size, reference.read_threads) == (1 << 20, 2)
    assert not _study("reader.read_threads=4,8").parts[0].is_default
    assert serialization.decode(serialization.encode(made), Study, "test") == made


@pytest.mark.parametrize(
    ("name", "keys", "metric"),
    [
        ("demo", ("checkpoint={}",), "samples_per_s"),
        ("llama3_8b", (), "checkpoint_write_MBps"),
        ("llama3_8b", ("checkpoint.fsync=false",), "wall_s"),
    ],
)
def test_workloads_that_only_write_checkpoints_are_compared_by_their_rate(
    name: str, keys: tuple[str, ...], metric: str
) -> None:
    made = _study("checkpoint.transfer_size=1MiB,4MiB", name=name, overrides=keys)
    assert made.parts[0].metric == metric


def test_what_cannot_be_is_told_with_its_point() -> None:
    with pytest.raises(ConfigError, match=r"reader.read_threads=8: .*leave some of 8 read_threads idle"):
        _study("reader.read_threads=4,8", overrides=("reader.prefetch=4",))
    with pytest.raises(ConfigError, match="did you mean 'read_threads'"):
        _study("reader.readthreads=4,8")
    with pytest.raises(ConfigError, match=r"reader.drop_last: 4 ranks x batch 100 exceed"):
        packing.plans(_study("reader.batch_size=4,100", overrides=("reader.drop_last=true",)))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32), st.integers(61, 400))
def test_every_measurement_is_made_once_whatever_the_time(points: int, repeat: int, seed: int, minutes: int) -> None:
    made = _study(
        f"reader.shuffle.seed=1..{points}", repeat=repeat, seed=seed, walltime=f"{minutes}s",
        overrides=("compute.time=0.7",),
    )  # fmt: skip
    jobs = packing.plans(made)
    units_ = [Unit(run.point, run.repeat) for job in jobs for run in job.runs if run.point is not None]
    if made.is_plain:
        assert len(jobs) == 1
        return
    assert Counter(units_) == Counter(packing.order(made))
    assert units_ == packing.order(made), "in the order drawn, however many jobs"
    for number, job in enumerate(jobs):
        assert job.job == f"s-{number + 1}"
        assert job.is_link
        assert [run.number for run in job.runs] == list(range(len(job.runs)))
        measured = sum(run.point is not None for run in job.runs)
        assert measured == 1 or cost.of_jobs([job])[0].expected_s <= job.walltime - job.warning_time + 2
    site_limits.check(jobs) if minutes > 120 else None


def test_points_that_come_to_the_same_are_refused() -> None:
    for sweeps, options, message in (
        (
            ("dataset.files=8,16,32",),
            {"dataset_size": 4 << 20},
            "files=16: the workload is the same as for dataset.files=8",
        ),
        (
            ("dataset.chunk=1MiB,1.5MiB",),
            {"overrides": ("dataset.format=hdf5",)},
            "dataset.chunk=1.5 MiB: the workload is the same as for",
        ),
        (("reader.prefetch=null,4",), {}, "reader.prefetch=4: the workload is the same as for reader.prefetch=null"),
    ):
        with pytest.raises(ConfigError) as caught:
            _study(*sweeps, **options)
        assert message in str(caught.value)
    with pytest.raises(ConfigError, match="more than 100000 measurements"):
        _study("reader.shuffle.seed=1..2", repeat=100_000)
    with pytest.raises(ConfigError, match="the study needs 300 jobs, more than 200; increase --time"):
        packing.plans(_study("reader.shuffle.seed=1..300", walltime="2s", overrides=("compute.time=0.1",)))


def test_weak_scaling_says_where_it_is_not(tmp_path: Path) -> None:
    theta = site.load("theta")
    uneven = _study(name="cosmic_tagger", machine=theta, nodes=(128, 2048), weak=True)
    assert (
        "with the most ranks, a rank reads 5.249 samples per epoch on average; with fewer ranks, it reads 32."
        in uneven.notes[0]
    )
    assert not _study(name="cosmoflow", machine=theta, nodes=(128, 256), weak=True).notes
    with pytest.raises(ConfigError, match="each rank loads its part of the dataset"):
        _study(machine=theta, nodes=(1, 2), weak=True, overrides=("reader.load=memory",))
    with pytest.raises(ConfigError, match="--weak needs several"):
        _study(weak=True)


def test_the_order_is_random_by_rounds_and_by_the_seed_alone() -> None:
    made = _study("reader.shuffle.seed=1..30", repeat=3)
    order = packing.order(made)
    rounds = [[unit.point for unit in order if unit.repeat == number] for number in range(3)]
    assert order == [Unit(point, number) for number, points in enumerate(rounds) for point in points]
    assert all(sorted(points) == list(range(30)) for points in rounds)
    assert len({tuple(points) for points in [*rounds, list(range(30))]}) == 4
    assert packing.order(_study("reader.shuffle.seed=1..30", repeat=3)) == order
    assert packing.order(_study("reader.shuffle.seed=1..30", repeat=3, seed=2)) != order


def test_one_dataset_for_each_geometry() -> None:
    made = _study("dataset.format=npz,hdf5", "reader.transfer_size=64KiB..1MiB*4", repeat=2, warmup=1)
    (job,) = packing.plans(made)
    kinds = Counter(run.kind for run in job.runs)
    assert kinds == {"generate": 2, "warmup": 2, "measure": 12}
    assert [run.kind for run in job.runs][:4] == ["generate", "generate", "warmup", "warmup"]
    assert len(job.datasets) == len({run.dataset for run in job.runs}) == 2
    (only,) = packing.plans(_study("reader.transfer_size=64KiB..1MiB*4", "reader.read_threads=1,2"))
    assert Counter(run.kind for run in only.runs) == {"generate": 1, "measure": 6}


def test_layouts_have_datasets_of_their_own() -> None:
    made = _study("site.layout.stripe_size=1MiB,4MiB", overrides=(), machine=site.load("theta"))
    assert [point.layout.stripe_size for point in made.points if point.layout] == [1 << 20, 4 << 20]
    assert [point.layout.stripe_count for point in made.points if point.layout] == [48, 48]
    (job,) = packing.plans(made)
    assert len(job.datasets) == 2
    assert {run.layout.stripe_size for run in job.datasets if run.layout} == {1 << 20, 4 << 20}


def test_scaling_is_a_job_for_each_number_of_nodes_on_one_dataset() -> None:
    theta = site.load("theta")
    strong = _study(name="cosmoflow", machine=theta, nodes=(128, 256, 512), repeat=2, walltime="3h")
    jobs = packing.plans(strong)
    assert [(job.nodes, len(job.runs)) for job in jobs] == [(128, 3), (256, 3), (512, 3)]
    assert len({run.dataset for job in jobs for run in job.runs}) == 1
    assert [job.runs[1].steps_per_epoch for job in jobs] == [256, 128, 64]
    weak = packing.plans(_study(name="cosmoflow", machine=theta, nodes=(128, 256, 512), weak=True, walltime="3h"))
    assert [job.runs[1].steps_per_epoch for job in weak] == [64, 64, 64]
    assert [job.runs[1].samples // job.ranks for job in weak] == [256, 256, 256]
    assert len({run.dataset for job in weak for run in job.runs}) == 1
    shrunk = packing.plans(_study(machine=theta, nodes=(128, 256), dataset_size=512 << 20, walltime="3h"))
    assert len({run.dataset for job in shrunk for run in job.runs}) == 1, "shrunk for the largest of them"


def test_what_is_missing_is_planned_alone_and_by_what_was_seen() -> None:
    made = _study("reader.shuffle.seed=1..10", repeat=2, walltime="10m", overrides=("compute.time=0.5",))
    wanted = [Unit(3, 1), Unit(7, 0)]
    (again,) = packing.plans(made, wanted, first=4)
    assert again.job == "s-4"
    assert [(run.point, run.repeat) for run in again.runs if run.point is not None] == wanted
    usual = len(packing.plans(made))
    slow = dict.fromkeys(packing.order(made)[:3], 120.0)
    assert len(packing.plans(made, taken=slow)) > usual


def test_costs_are_added_up_and_limited() -> None:
    made = _study("dataset.format=npz,hdf5", repeat=2)
    (job_cost,) = cost.of_jobs(packing.plans(made))
    size, epochs = 256 << 20, 2
    assert job_cost.bytes_read == 4 * epochs * size
    assert 2 * size <= job_cost.bytes_written == job_cost.space <= 2.1 * size
    assert job_cost.limit_node_hours == 1
    assert 0 < job_cost.node_hours < 1
    scaled = cost.of_jobs(packing.plans(_study(name="cosmoflow", machine=site.load("theta"), nodes=(128, 256))))
    assert [one.space > 0 for one in scaled] == [True, False], "the second job finds the dataset"
    saving = workload.draft("demo", ("checkpoint={model_bytes: 1 MB, every_steps: 8}", "dataset.format=null"))
    asked = PartRequest(saving, LOCAL)
    (one,) = cost.of_jobs(packing.plans(study.make("s", [asked], JobRequest(Path("/r")))))
    assert (one.bytes_read, one.bytes_written) == (0, 4 * 10**6)
    for limit, message in (
        ("node_hours=0.5", "cost 1 node-hours if they use their whole walltime, but site local allows 0.5"),
        ("bytes_read=1GiB", "read 2 GiB, but site local allows 1 GiB"),
        ("bytes_written=1MiB", "site local allows 1 MiB"),
        ("space=1MiB", "take up"),
    ):
        with pytest.raises(ConfigError) as caught:
            site_limits.check_cost(site.load("local", (f"limits.{limit}",)), [job_cost])
        assert message in str(caught.value)
    site_limits.check_cost(site.load("local", ("limits.node_hours=1", "limits.space=1GiB")), [job_cost])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", shipped.names(shipped.STUDIES))
def test_shipped_studies_are_planned(name: str, full: bool) -> None:
    file = study_file.load(name)
    assert file.name == name
    assert "Fig." in file.source or name == "fig_metadata"
    machine = site.load("theta" if full else "local", () if full else ("expected_rates.launch=1",))
    made = study.make(
        name, study_file.asked_of(file, machine, study_file.FileChanges(full)), JobRequest(Path("/r"), data=Path("/d"))
    )
    jobs = packing.plans(made)
    assert jobs
    if full:
        assert {point.ranks_per_node for point in made.points} == {4}
        return
    site_limits.check(jobs)
    costs = cost.of_jobs(jobs)
    assert sum(one.space for one in costs) < 2 << 30, "fit for a laptop"
    assert sum(one.expected_s for one in costs) < 600
    loaders = {point.workload.reader.loader for point in made.points}
    assert loaders == {"native"}, "nobody needs TensorFlow at home"


def test_what_the_user_says_gets_the_better_of_a_study_file() -> None:
    file = study_file.load("fig14")
    changes = study_file.FileChanges(nodes=(2, 4), overrides=("train.epochs=3",), dataset_size=64 << 20)
    made = study.make(
        "s", study_file.asked_of(file, site.load("slurm"), changes), JobRequest(Path("/r"), data=Path("/d"))
    )
    assert {(point.nodes, point.ranks_per_node) for point in made.points} == {(2, 4), (4, 4)}
    assert {point.workload.train.epochs for point in made.points} == {3}
    assert max(point.workload.dataset.size for point in made.points) < 80 << 20
    assert all(part.is_scaling and not part.axes for part in made.parts)


def _from_file(path: Path) -> Study:
    return study.make(
        "s", study_file.asked_of(study_file.load(str(path)), LOCAL, study_file.FileChanges()), JobRequest(path.parent)
    )


def test_a_study_file_that_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text, message in (
        ("name: x\nparts: {}", "a study needs at least one"),
        ("name: x\nparts: {a: {sweep: {}}}", "parts.a has no workload"),
        ("name: x\nparts: {a: {workload: demo, swep: {}}}", "did you mean 'sweep'?"),
        ("name: x\nworkload: demo\nnodes: [0]\nparts: {a: {}}", "nodes"),
        (
            "name: x\nworkload: demo\nparts: {a: {set: {site.depth: 3}}}",
            "parts.a.set.site.depth: a study can vary only",
        ),
        (
            "name: x\nworkload: demo\nparts: {a: {metric: foo}}",
            "parts.a.metric: found 'foo'; use one of",
        ),
        ("name: x\nworkload: demo\nparts: {a: {weak: true}}", "--weak needs several values of --nodes or --ppn"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            _from_file(path)
        assert message in str(caught.value)
