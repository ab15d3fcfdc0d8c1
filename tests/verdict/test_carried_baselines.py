"""Baselines of earlier versions are those of this version's jobs: keys that were added since then change no key."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base import serialization
from dlio_hpc.config import workload as workloads
from dlio_hpc.config.workload import Workload
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan
from dlio_hpc.verdict import baselines, comparable_versions, history, history_database, settings_digest
from tests.support import nights
from tests.support.places import TESTS

_FOLDER = TESTS / "carried"
# Decisions that earlier versions wrote for the workload carried.yaml: the first schema, and one with more keys.
_DECISIONS = sorted(_FOLDER.glob("*.json"))


def _workload(*keys: str) -> Workload:
    return plan.resolved(workloads.load(str(_FOLDER / "carried.yaml"), keys))


@pytest.mark.parametrize("decision", _DECISIONS, ids=lambda path: path.stem)
def test_a_baseline_of_an_earlier_version_has_the_key_of_todays_job(tmp_path: Path, decision: Path) -> None:
    (tmp_path / rundir.BASELINES).mkdir()
    shutil.copy(decision, tmp_path / rundir.BASELINES)
    written = json.loads(decision.read_bytes())["group"]["key"]
    (accepted,) = baselines.active(baselines.read(tmp_path))
    assert accepted.group.key.settings == settings_digest.of(_workload()) != written["settings"]
    assert accepted.group.key == structs.replace(accepted.group.measurements[0].key)
    assert settings_digest.of(_workload("reader.batch_size=4")) != accepted.group.key.settings
    assert decision.read_bytes() == (tmp_path / rundir.BASELINES / decision.name).read_bytes()


def test_earlier_decisions_are_there() -> None:
    assert [path.stem for path in _DECISIONS] == ["first_schema", "more_keys"]


def test_later_baselines_replace_those_of_earlier_versions(tmp_path: Path) -> None:
    (tmp_path / rundir.BASELINES).mkdir()
    for decision in _DECISIONS:
        shutil.copy(decision, tmp_path / rundir.BASELINES)
    states = [baseline.state for baseline in baselines.baselines(baselines.read(tmp_path))]
    assert states == ["replaced", "active"]


def test_keys_with_their_defaults_are_not_in_the_digest() -> None:
    kept = settings_digest._without_defaults(_workload())
    assert set(kept) == {"name", "dataset", "reader", "compute", "checkpoint", "train"}
    assert kept["reader"]["batch_size"] == 2
    assert "drop_last" not in kept["reader"]
    assert settings_digest.of(_workload("reader.drop_last=true")) != settings_digest.of(_workload())
    assert settings_digest.of(_workload("reader.drop_last=false")) == settings_digest.of(_workload())


def test_a_digest_has_twelve_digits() -> None:
    assert re.fullmatch("[0-9a-f]{12}", settings_digest.of(_workload()))


def test_a_workload_with_unknown_keys_keeps_its_digest() -> None:
    stored: Any = serialization.plain(_workload()) | {"gone": 1}
    assert settings_digest.carried(stored, "0123456789ab") == "0123456789ab"
    assert settings_digest.carried(None, "0123456789ab") == "0123456789ab"
    del stored["gone"]
    assert settings_digest.carried(stored, "0123456789ab") == settings_digest.of(_workload())


@pytest.mark.parametrize(
    ("version", "first"),
    [("0.1.0", "0.1.0"), ("0.1.9", "0.1.0"), ("0.2.0.dev1", "0.2.0"), ("1.10", "0.9"), ("0.0.9", "0.0.9"), ("x", "x")],
)
def test_versions_are_comparable_since_the_last_that_measures_otherwise(
    monkeypatch: pytest.MonkeyPatch, version: str, first: str
) -> None:
    monkeypatch.setattr(comparable_versions, "FIRST_OF_A_KIND", ("0.1.0", "0.2.0", "0.9"))
    assert comparable_versions.since(version) == first


def test_the_history_of_an_earlier_version_is_carried_over(tmp_path: Path) -> None:
    decision = json.loads(_DECISIONS[0].read_bytes())
    group = decision["group"]
    old = structs.replace(
        nights.entry(0, [100.0]), workloads={group["key"]["settings"]: group["workload"]}, measurements=()
    )
    history.enter(tmp_path, old)
    (entry,) = history.entries(tmp_path)
    assert list(entry.workloads) == [settings_digest.of(_workload())]
    assert json.loads(history.export(tmp_path).splitlines()[0])["job"] == json.loads(history_database.canonical(entry))
