"""The options --users and --ttft of inference workloads."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import kv_requests, kv_tiers
from dlio_hpc.files import filesystem
from dlio_hpc.plan import cost, planned
from dlio_hpc.plan.options import Options

_CHAT = "kv_cache_llama3_8b"


def _workload(folder: Path, name: str = _CHAT, **given: Any) -> Workload:
    options = Options(workload=name, site="local", runs=folder / "runs", data=folder / "data", **given)
    return planned.draft(options).study.points[0].workload


def _keys(folder: Path, **given: Any) -> InferenceKeys:
    keys = _workload(folder, **given).inference
    assert keys is not None
    return keys


def test_users_and_ttft_set_the_keys(tmp_path: Path) -> None:
    keys = _keys(tmp_path, users="17", ttft=units.Seconds(0.5))
    assert (keys.users, keys.target, keys.search) == (17, 0.5, None)


def test_auto_searches_among_as_many_users_as_the_space_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free in (100 << 30, 7 << 30):
        monkeypatch.setattr(filesystem, "free", lambda _, free=free: free)
        made = _workload(tmp_path, users="auto", ttft=units.Seconds(2))
        assert made.train.epochs == 10
        assert made.inference is not None
        assert made.inference.search is not None
        most = made.inference.search.most
        assert made.inference.users == 4 < most
        assert kv_requests.most_bytes(made.inference, 4) == pytest.approx(free / 2, rel=0.1)


def test_auto_keeps_the_keys_that_the_user_sets(tmp_path: Path) -> None:
    made = _workload(
        tmp_path, users="auto", overrides=("train.epochs=5", "inference.search.most=64", "inference.users=8")
    )
    assert made.inference is not None
    assert made.inference.search is not None
    assert (made.train.epochs, made.inference.search.most, made.inference.users) == (5, 64, 8)


def test_auto_keeps_what_sections_set(tmp_path: Path) -> None:
    made = _workload(tmp_path, users="auto", overrides=("train={epochs: 3}",))
    assert made.train.epochs == 3
    section = "inference={users: 2, time: 1, interval: 1, prompt: {mean: 999}, answer: {mean: 9}, search: {most: 12}}"
    keys = _keys(tmp_path, users="auto", overrides=(section,))
    assert keys.search is not None
    assert keys.search.most == 12


def test_auto_tries_no_more_users_than_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "free", lambda _: 1 << 60)
    keys = _keys(tmp_path, users="auto", overrides=("inference.interval=1 s",))
    assert keys.search is not None
    assert keys.search.most == int(10**6 / (30 + 1.5))
    monkeypatch.setattr(kv_tiers, "_MOST_BLOCKS", 100_000)
    for nodes in (1, 3):
        keys = _keys(tmp_path, users="auto", ranks_per_node=(1,), nodes=(nodes,))
        assert keys.search is not None
        whole = structs.replace(keys, users=keys.search.most, search=None)
        blocks = sum(one.tokens // 16 for one in kv_requests.of_rank(whole, nodes, 0))
        assert 25_000 < blocks <= 100_000


def test_a_search_that_cannot_be_planned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_tiers, "_MOST_BLOCKS", 20_000)
    options = Options(
        workload=_CHAT, site="local", runs=tmp_path / "runs", data=tmp_path / "data", ranks_per_node=(1,),
        overrides=("inference.search.most=4000", "train.epochs=3", "inference.capacity=1 GiB"),
    )  # fmt: skip
    (job,) = planned.draft(options).jobs
    with pytest.raises(ConfigError, match="blocks with their histories"):
        cost.require_space(job.runs[-1], 1)


def test_auto_with_the_times_of_a_trace_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival,prompt,answer\n0,99,9\n30,99,9\n")
    own = ("inference.prompt=null", "inference.answer=null", f"inference.trace.file={tmp_path / 't.csv'}")
    with pytest.raises(ConfigError, match=r"vary the load with -P inference\.trace\.speed"):
        _workload(tmp_path, users="auto", overrides=(*own, "inference.interval=null"))
    with pytest.raises(ConfigError, match=r"inference\.trace: it has the times of requests"):
        _workload(tmp_path, users="auto", overrides=own)


def test_a_capacity_that_fits_limits_no_users(tmp_path: Path) -> None:
    search = _keys(tmp_path, users="auto", overrides=("inference.capacity=64 MiB",)).search
    assert search is not None
    assert search.most == 65536


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "demo", "users": "8"}, "for an inference workload, such as kv_cache"),
        ({"name": "demo", "ttft": units.Seconds(1)}, "for an inference workload, such as kv_cache"),
        (
            {"users": "8", "overrides": ("inference.users=9",)},
            "inference.users: --users or --ttft sets this key, and -S",
        ),
        ({"users": "8", "sweeps": ("inference.users=9,10",)}, "inference.users: --users or --ttft sets this key"),
        ({"ttft": units.Seconds(1), "sweeps": ("inference.target=1s,2s",)}, "inference.target: --users or --ttft"),
        ({"users": "auto", "sweeps": ("inference.users=9,10",)}, "--users auto searches for the number of users"),
        ({"users": "auto", "overrides": ("inference.search=null",)}, "leave -S inference.search=null out"),
        (
            {
                "users": "8",
                "overrides": ("inference={users: 9, time: 1, interval: 1, prompt: {mean: 9}, answer: {mean: 9}}",),
            },
            "inference.users: --users or --ttft sets this key",
        ),
        ({"ttft": units.Seconds(0)}, "target: set the time to the first token"),
        ({"ttft": units.Seconds(1), "overrides": ("inference.target=2s",)}, "inference.target: --users or --ttft"),
    ],
)
def test_other_uses_are_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _workload(tmp_path, **given)


def test_a_study_file_sets_the_keys_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a study file, set inference"):
        planned.draft(Options(study="fig11", site="local", runs=tmp_path, data=tmp_path, users="auto"))
