"""The options --users and --ttft of inference workloads."""

from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import kv_requests
from dlio_hpc.files import filesystem
from dlio_hpc.plan import planned
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


def test_a_capacity_that_fits_limits_no_users(tmp_path: Path) -> None:
    search = _keys(tmp_path, users="auto", overrides=("inference.capacity=64 MiB",)).search
    assert search is not None
    assert search.most == 65536


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "demo", "users": "8"}, "for an inference workload, such as kv_cache"),
        ({"name": "demo", "ttft": units.Seconds(1)}, "for an inference workload, such as kv_cache"),
        ({"users": "8", "overrides": ("inference.users=9",)}, "-S inference.users: --users or --ttft sets this key"),
        ({"ttft": units.Seconds(1), "overrides": ("inference.target=2s",)}, "-S inference.target: --users or --ttft"),
    ],
)
def test_other_uses_are_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _workload(tmp_path, **given)


def test_a_study_file_sets_the_keys_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a study file, set inference"):
        planned.draft(Options(study="fig11", site="local", runs=tmp_path, data=tmp_path, users="auto"))
