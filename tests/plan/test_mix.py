"""Mixes: the ranks of each load, the launches of a study, their order, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import Seconds, Walltime
from dlio_hpc.config import site, workload
from dlio_hpc.plan import cost, mix, packing, planned, study
from dlio_hpc.plan.mix import LaunchScale, Load, MixKeys
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.packing import Unit
from dlio_hpc.plan.plan import Plan
from dlio_hpc.plan.study import JobRequest, PartRequest, Study
from dlio_hpc.verdict import history_entry
from tests.conftest import Run as Command


def _load(name: str, share: float, *settings: str, made_of: str = "demo", **rest: Any) -> PartRequest:
    machine = structs.replace(site.load("local"), ranks_per_node=4)
    part = PartRequest(workload.draft(made_of, settings), machine, name=name, mix="busy", share=share)
    return structs.replace(part, **rest)


def _study(tmp_path: Path, *parts: PartRequest, repeat: int = 3, **keys: Any) -> Study:
    parts = parts or (
        _load("train", 0.5),
        _load("storm", 0.25, "metadata.files=3", made_of="metadata_own"),
        _load("other", 0.25, "dataset.files=3"),
    )
    request = JobRequest(tmp_path / "runs", data=tmp_path / "data", seed=5, repeat=repeat)
    return study.make("mixed", parts, request, study.About(mixes=MixKeys(**keys)))


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(1, 5), min_size=2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([None, "nodes", "ranks"]),
)
def test_each_load_has_its_share_and_no_rank_has_two_loads(
    parts: dict[str, int], spare: int, other: int, place: Any
) -> None:
    whole = sum(parts.values()) + spare - 1
    scale = LaunchScale(other, whole) if place == "ranks" else LaunchScale(whole, other)
    shares = {name: part / whole for name, part in parts.items()}
    loads = mix.placed("busy", shares, scale, MixKeys(place=place))
    ranks = range(scale.nodes * scale.ranks_per_node)
    owners = [[name for name, load in loads.items() if load.has(rank)] for rank in ranks]
    assert all(len(names) <= 1 for names in owners)
    for name, load in loads.items():
        assert owners.count([name]) == load.nodes * load.ranks_per_node == parts[name] * other
        nodes = {rank // scale.ranks_per_node for rank in ranks if load.has(rank)}
        assert len(nodes) == load.nodes
        assert (load.job_nodes, load.job_ranks_per_node) == scale


def test_loads_have_nodes_of_their_own_if_the_shares_allow_it() -> None:
    shares = {"a": 0.5, "b": 0.25, "c": 0.25}
    on_nodes, on_ranks = (mix.placed("busy", shares, LaunchScale(*scale), MixKeys()) for scale in ((4, 4), (2, 4)))
    assert [(load.first_node, load.nodes, load.ranks_per_node) for load in on_nodes.values()] == [
        (0, 2, 4), (2, 1, 4), (3, 1, 4),
    ]  # fmt: skip
    assert [(load.nodes, load.first_rank, load.ranks_per_node) for load in on_ranks.values()] == [
        (2, 0, 2), (2, 2, 1), (2, 3, 1),
    ]  # fmt: skip
    with_others = [structs.replace(loads["a"], others=("b",)) for loads in (on_nodes, on_ranks)]
    assert [load.shares_nodes for load in with_others] == [False, True]
    assert not on_ranks["a"].shares_nodes  # it runs alone


@pytest.mark.parametrize(
    ("shares", "scale", "keys", "message"),
    [
        ({"a": 0.5}, (1, 4), MixKeys(), "at least two loads"),
        ({"a": 0.75, "b": 0.5}, (1, 4), MixKeys(), "add up to 1.25"),
        ({"a": 0.5, "b": 0.25}, (1, 2), MixKeys(), "no whole numbers of 2 ranks on each node; use --ppn 4"),
        ({"a": 0.5, "b": 0.5}, (3, 4), MixKeys(place="nodes"), "no whole numbers of 3 nodes; use --nodes 4"),
        ({"a": 0.001, "b": 0.5}, (1, 2), MixKeys(), "a 0.001, b 0.5 are no whole numbers"),
    ],
)
def test_shares_that_do_not_fit_are_refused(
    shares: dict[str, float], scale: tuple[int, int], keys: MixKeys, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        mix.placed("busy", shares, LaunchScale(*scale), keys)


def test_a_load_is_measured_alone_and_with_others_on_the_same_ranks(tmp_path: Path) -> None:
    made = _study(tmp_path)
    points = [(point.part, point.load.others, point.ranks) for point in made.points if point.load is not None]
    assert points == [
        ("train", (), 2), ("train", ("storm", "other"), 2),
        ("storm", (), 1), ("storm", ("train", "other"), 1),
        ("other", (), 1), ("other", ("train", "storm"), 1),
    ]  # fmt: skip
    assert made.launches == [(0,), (1, 3, 5), (2,), (4,)]
    assert [made.part(name).metric for name in ("train", "storm")] == ["common_samples_per_s", "create_per_s"]
    assert [made.part(name).reference for name in ("train", "storm", "other")] == [0, 2, 4]
    assert made.title(made.points[1]) == "train: mix=with storm, other"


def test_pairs_are_measured_if_asked(tmp_path: Path) -> None:
    made = _study(tmp_path, pairs=True)
    assert sorted(len(launch) for launch in made.launches) == [1, 1, 1, 2, 2, 2, 3]
    with_storm = [point for point in made.points if point.load and point.load.together == {"train", "storm"}]
    assert [point.part for point in with_storm] == ["train", "storm"]


def test_each_repeat_makes_each_launch_once_in_random_order(tmp_path: Path) -> None:
    made = _study(tmp_path)
    units = packing.order(made)
    assert len(set(units)) == len(units) == 6 * 3
    launch_of = {point: launch for launch in made.launches for point in launch}
    orders = []
    for repeat in range(3):
        of_repeat = [unit.point for unit in units if unit.repeat == repeat]
        order = list(dict.fromkeys(launch_of[point] for point in of_repeat))
        assert [point for launch in order for point in launch] == of_repeat  # points of a launch follow each other
        orders.append(tuple(order))
    assert len(set(orders)) > 1


def _plan(made: Study) -> Plan:
    (plan,) = packing.plans(made)
    return plan


def test_the_points_of_a_launch_are_runs_of_one_launch(tmp_path: Path) -> None:
    plan = _plan(_study(tmp_path))
    assert (plan.nodes, plan.ranks_per_node) == (1, 4)
    assert [run.kind for run in plan.runs[:2]] == ["generate"] * 2
    assert all(run.launch is None and run.load is None for run in plan.runs[:2])
    measured = plan.runs[2:]
    assert len(measured) == 18
    for run in measured:
        assert run.load is not None
        together = plan.launched_with(run)
        assert run in together
        assert run.launch == together[0].number
        assert {one.load.name for one in together if one.load} == run.load.together
        assert len({one.outputs for one in together}) == len(together)
        assert len({one.dataset for one in together if one.workload.reads_samples}) == len(
            [one for one in together if one.workload.reads_samples]
        )


def test_a_missing_measurement_is_made_with_all_that_it_is_compared_with(tmp_path: Path) -> None:
    """Loads alone and together are compared in one job."""
    made = _study(tmp_path)
    (plan,) = packing.plans(made, [Unit(3, 1)])
    measured = [run for run in plan.runs if run.kind == "measure"]
    assert sorted((run.point, run.repeat) for run in measured) == [(point, 1) for point in range(6)]
    (together,) = {run.launch for run in measured if run.load is not None and run.load.others}
    assert [run.point for run in measured if run.launch == together] == [1, 3, 5]


def test_loads_with_the_same_dataset_have_copies_of_it(tmp_path: Path) -> None:
    made = _study(tmp_path, _load("one", 0.5), _load("two", 0.5))
    assert {point.part: point.data for point in made.points} == {"one": None, "two": str(tmp_path / "data" / "load-2")}
    given = _study(tmp_path, _load("one", 0.5), _load("two", 0.5, data=str(tmp_path / "data")))
    assert [given.points[-1].data] == [str(tmp_path / "data" / "load-2")], "the same folder, written out"
    existing = ("dataset.existing.glob=*.raw", "dataset.format=raw", "dataset.samples_per_file=1")
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "a.raw").write_bytes(b"1" * 4096)
    shared = _study(tmp_path, _load("one", 0.5, *existing), _load("two", 0.5, *existing))
    assert {point.data for point in shared.points} == {None}


def test_a_load_may_have_its_data_on_another_file_system(tmp_path: Path) -> None:
    made = _study(tmp_path, _load("one", 0.5), _load("two", 0.5, data=str(tmp_path / "flash")))
    runs = [run for run in _plan(made).runs if run.load is not None and run.load.name == "two"]
    assert {Path(run.dataset).parent for run in runs} == {tmp_path / "flash"}


@pytest.mark.parametrize(
    ("changed", "keys", "message"),
    [
        (_load("two", 0.5, "checkpoint={every_steps: 2, reads: 1, model_bytes: 1 MiB}"), {}, "checkpoint.reads=0"),
        (_load("two", 0.5, "evaluation={every_epochs: 1, files: 2}"), {}, "evaluation passes cannot start again"),
        (_load("two", 0.5, nodes=(1, 2)), {}, "on one number of nodes and ranks"),
        (_load("two", 0.5, weak=True), {}, "--weak"),
        (_load("two", 0.5, made_of="kv_cache_llama3_8b"), {}, "inference.warm=false"),
        (_load("two", 0.5, "inference.search.most=64", made_of="kv_cache_llama3_8b"), {}, "inference.search=null"),
        (_load("a: b", 0.5), {}, "cannot be the name of a load"),
        (_load("two", 0.5, metric="wall_s"), {}, "says nothing about a load that starts again"),
        (_load("two", 0.5), {"until": "time", "time": Seconds(4000)}, "give it more time"),
        (_load("two", 0.5, folders=("/a", "/b")), {}, "--ab"),
    ],
)
def test_what_a_mix_cannot_do_is_refused(
    tmp_path: Path, changed: PartRequest, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _study(tmp_path, _load("one", 0.5), changed, **keys)


def test_evaluation_is_possible_if_loads_do_not_start_again(tmp_path: Path) -> None:
    made = _study(
        tmp_path, _load("one", 0.5, "evaluation={every_epochs: 1, files: 2}"), _load("two", 0.5), until="first"
    )
    assert len(made.points) == 4


def test_time_belongs_to_until_time() -> None:
    wrong: Any
    for wrong in ({"until": "time"}, {"until": "last", "time": 3.0}):
        with pytest.raises(ValueError, match="needs a time"):
            MixKeys(**wrong)


def test_runs_with_and_without_other_loads_are_never_compared_as_equal() -> None:
    load = Load(mix="busy", name="a", first_node=0, nodes=1, first_rank=0, ranks_per_node=2, job_nodes=1,
                job_ranks_per_node=4)  # fmt: skip
    with_others = structs.replace(load, others=("b", "c"))
    assert (load.company, with_others.company) == ("a: alone, of 1 x 4 ranks", "a: with b, c, of 1 x 4 ranks")
    assert mix.alone(with_others.company) == load.company
    assert mix.alone(load.company) is None
    assert mix.alone("") is None
    key = history_entry.Key("local", "ext4 /", "none", 1, 2, "demo", "0" * 12, "1.0")
    keys = [key, *(structs.replace(key, mix=one.company) for one in (load, with_others))]
    assert len({one.digest for one in keys}) == 3
    assert history_entry.differences(keys[1], keys[2]) == [
        "other loads: a: alone, of 1 x 4 ranks / a: with b, c, of 1 x 4 ranks"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mix", "demo=0.5"), "at least two loads"),
        (("--mix", "demo"), "write WORKLOAD=SHARE"),
        (("--mix", "demo=0"), "write WORKLOAD=SHARE"),
        (("--mix", "demo=150%"), "write WORKLOAD=SHARE"),
        (("--mix", "demo=0.5", "--mix", "demo=0.5", "demo"), "give a WORKLOAD"),
        (("demo", "--mix-pairs"), "need loads: give --mix"),
        (("--mix", "demo=0.5", "--mix", "null=0.5", "--mix-until", "sometimes"), "--mix-until"),
    ],
)
def test_mistakes_in_options_are_explained(
    run: Command, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run("dlio-submit", *arguments, "--ppn", "2", "--dry-run", "-d", tmp_path)
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_script_starts_each_launch_once(run: Command, tmp_path: Path) -> None:
    done = run(
        "dlio-submit", "--mix", "demo=50%", "--mix", "demo=0.5", "--ppn", "2", "--repeat", "1", "--dry-run",
        "-d", tmp_path,
    )  # fmt: skip
    lines = [line for line in done.out.splitlines() if line.startswith("run ") and "-measure" in line]
    assert len(lines) == 3
    assert done.out.count("# The same launch makes ") == 1
    assert all("-n 2 " in line for line in lines)


def test_a_repeat_of_a_mix_is_made_in_one_job(tmp_path: Path) -> None:
    """Otherwise, the variation between jobs would be a part of the slowdown."""
    slow = ("compute.time=300 ms", "train.epochs=10")
    more = (_load("third", 0.5, *slow, mix="more"), _load("fourth", 0.5, "dataset.files=5", *slow, mix="more"))
    made = _study(tmp_path, _load("one", 0.5, *slow), _load("two", 0.5, "dataset.files=3", *slow), *more)
    jobs = packing.plans(structs.replace(made, walltime=Walltime(600)))
    assert len(jobs) > 1
    measured = [run for job in jobs for run in job.runs if run.load is not None]
    assert len(measured) == 8 * 3
    for job in jobs:
        repeats = {(run.load.mix, run.repeat) for run in job.runs if run.load is not None}
        for mixed, repeat in repeats:
            runs = [run for run in job.runs if run.load is not None and (run.load.mix, run.repeat) == (mixed, repeat)]
            assert len(runs) == 4, "each of two loads alone and together"
            numbers = [run.number for run in runs]
            assert numbers == list(range(numbers[0], numbers[0] + 4)), "one after the other"


def test_check_states_which_load_has_which_ranks(run: Command, tmp_path: Path) -> None:
    asked = ("--mix", "demo=0.5", "--mix", "null=0.25", "--mix", "metadata_own=0.25", "-d", tmp_path, "--no-launch")
    on_ranks = run("dlio-hpc", "check", *asked, "--ppn", "4")
    assert (
        "mix: the launcher starts 4 ranks once, and MPI_Comm_split divides them: demo: ranks 0 to 1 of each node; "
        "null: rank 2 of each node; metadata_own: rank 3 of each node"
    ) in " ".join(on_ranks.out.split())
    on_nodes = mix.placed("busy", {"a": 0.5, "b": 0.25, "c": 0.25}, LaunchScale(4, 2), MixKeys())
    assert [load.place for load in on_nodes.values()] == ["nodes 1 to 2", "node 3", "node 4"]


def test_checkpoints_without_fsync_have_no_metric_that_a_mix_could_compare(tmp_path: Path) -> None:
    saving = ("compute.time=10 ms", "checkpoint={writes: 3, model_bytes: 1 MiB, fsync: false}")
    with pytest.raises(ConfigError, match=r"checkpoint\.fsync=true"):
        _study(tmp_path, _load("one", 0.5), _load("save", 0.5, *saving, made_of="llama3_8b"))


def test_a_launch_takes_as_long_as_its_longest_load(tmp_path: Path) -> None:
    loads = (("one", "2 s"), ("two", "3 s"), ("three", "7 s"))
    parts = [
        _load(name, 0.25, f"compute.time={time}", f"dataset.files={number + 4}", "dataset.samples_per_file=1")
        for number, (name, time) in enumerate(loads)
    ]
    (job,) = cost.of_jobs([_plan(_study(tmp_path, *parts, repeat=1))])
    steps = {"one": 1, "two": 2, "three": 2}
    alone = [2 * steps["one"], 3 * steps["two"], 7 * steps["three"]]
    computing = 2 * (sum(alone) + max(alone))  # demo has two epochs
    launches = 3 + 4  # datasets, and runs
    assert job.expected_s == pytest.approx(computing + launches, rel=0.05)
    for_time = _plan(_study(tmp_path, *parts, repeat=1, until="time", time=Seconds(50)))
    (job,) = cost.of_jobs([for_time])
    assert job.expected_s == pytest.approx(4 * 50 + launches, rel=0.05)


def test_a_launch_in_which_no_epoch_of_requests_ends_is_refused(tmp_path: Path) -> None:
    keys = ("inference.warm=false", "inference.time=5s")
    parts = _load("users", 0.5, *keys, made_of="kv_cache_llama3_8b"), _load("train", 0.5)
    for seconds in (3, 5):
        with pytest.raises(
            ConfigError, match=rf"no epoch ends in the {seconds} s of a launch; set a shorter inference"
        ):
            _study(tmp_path, *parts, until="time", time=Seconds(seconds))
    made = _study(tmp_path, *parts, until="time", time=Seconds(60))
    assert [part.metric for part in made.parts] == ["kv_read_MBps", "common_samples_per_s"]


def test_a_key_that_one_load_does_not_have_is_explained(tmp_path: Path) -> None:
    options = Options(
        mix=("kv_cache_llama3_8b=0.5", "demo=0.5"), site="local", data=tmp_path, runs=tmp_path / "runs",
        ranks_per_node=(2,), overrides=("inference.warm=false",),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"--mix demo=0\.5: .*\(with --mix, -S sets keys of every load; a study file"):
        planned.draft(options)
