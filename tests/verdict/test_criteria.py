"""Criteria files are read, and errors in them are reported."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped
from dlio_hpc.verdict import criteria_file, performance_criteria, procedure_criteria
from dlio_hpc.verdict.criteria_file import Criteria, Criterion
from dlio_hpc.verdict.history_entry import Key
from tests.support.judged import KEY


def _file(folder: Path, content: dict[str, Any]) -> Criteria:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", **content}))
    return criteria_file.load(str(path))


def _key(**changes: Any) -> Key:
    return structs.replace(KEY, **changes)


def test_limits_are_read_in_human_units(tmp_path: Path) -> None:
    loaded = _file(
        tmp_path,
        {
            "cached_above": "5%",
            "criteria": {
                "one": {"min_au": "90%", "max_read_p99": "250 ms", "min_samples_per_s": 1000},
                "two": {"min_au": 0.9, "max_wait_p99": 0.25, "warmups": 0},
            },
        },
    )
    one, two = loaded.criteria["one"], loaded.criteria["two"]
    assert loaded.cached_above == pytest.approx(0.05)
    assert one.min_au == two.min_au == pytest.approx(0.9)
    assert one.max_read_p99 == two.max_wait_p99 == pytest.approx(0.25)
    assert one.asked == {"min_samples_per_s": 1000, "min_au": 0.9, "max_read_p99": 0.25}
    assert two.asked["warmups"] == 0, "none is as good a number as any"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"criteria": {"au": {"min_uu": 1}}}, "criteria.au: unknown key 'min_uu'; did you mean 'min_au'?"),
        ({"criteria": {"au": {"min_au": "lots"}}}, "found 'lots'; use a share such as 90% or 0.9"),
        ({"criteria": {"au": {"min_au": 90}}}, "found 90; use a share such as 90% or 0.9"),
        ({"criteria": {"au": {"min_au": "101%"}}}, "found '101%'; use a share such as 90% or 0.9"),
        ({"criteria": {"au": {"min_au": True}}}, "found true; use a share"),
        ({"criteria": {"io": {"max_read_p99": "fast"}}}, "use a duration such as 0.25, 250ms"),
        ({"criteria": {"io": {"min_read_MBps": 0}}}, "criteria.io.min_read_MBps: found 0; use a number above 0"),
        ({"criteria": {"r": {"max_slowest_rank_ratio": 0.9}}}, "found 0.9; use a number of at least 1"),
        ({"criteria": {"g": {"gaps": "short"}}}, "use one of: any, shorter than a run"),
        (
            {"criteria": {"n": {"workload": "demo"}}},
            "criteria.n: no limit or rule is given; give at least one of: min_",
        ),
        (
            {"criteria": {"n": {"warmups": 1, "all_runs": True}}},
            "all_runs needs a limit on a metric; give at least one of: min_",
        ),
        ({"criteria": {"n": {"min_au": 0.9, "subset_ranks": 8}}}, "criteria.n: subset_ranks needs model_ranks=true"),
        (
            {"criteria": {"n": {"nodes": "a few", "min_au": 0.9}}},
            "criteria.n.nodes: found text 'a few'; use whole numbers",
        ),
        ({"criteria": {"n": {"nodes": 0, "min_au": 0.9}}}, "criteria.n.nodes: found 0; use a whole"),
        ({"criterion": {}}, "unknown key 'criterion'; did you mean 'criteria'?"),
        ({"cached_above": "ten"}, "cached_above"),
        ({"criteria": []}, "criteria: found the list []; use a mapping"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as fault:
        _file(tmp_path, content)
    assert str(fault.value).startswith(str(tmp_path / "mine.yaml"))
    assert message in str(fault.value)


def test_a_name_that_is_not_shipped_lists_those_that_are() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no criteria 'mlperf'; .* one of: acceptance, checkpointing, interference, kv_cache, metadata, mlperf",
    ):
        criteria_file.load("mlperf")


@pytest.mark.parametrize("name", ["mlperf_storage", "mlperf_storage_v1", "mlperf_storage_v4"])
def test_an_edition_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no criteria '{name}'; did you mean 'mlperf_storage_v[23]'"):
        criteria_file.load(name)


@pytest.mark.parametrize(
    ("criterion", "key", "is_selected"),
    [
        ({}, {}, True),
        ({"workload": "demo"}, {}, True),
        ({"workload": "unet3d"}, {"workload": "unet3d_h100"}, False),
        ({"workload": "unet3d*"}, {"workload": "unet3d_h100"}, True),
        ({"workload": ("x", "demo")}, {}, True),
        ({"workload": ("x", "y")}, {}, False),
        ({"nodes": 2}, {"nodes": 2}, True),
        ({"nodes": 2}, {"nodes": 4}, False),
        ({"nodes": (2, 4)}, {"nodes": 4}, True),
        ({"ranks_per_node": 4}, {"ranks_per_node": 4}, True),
        ({"ranks": 8}, {"nodes": 2, "ranks_per_node": 4}, True),
        ({"ranks": 8, "nodes": 8}, {"nodes": 2, "ranks_per_node": 4}, False),
    ],
)
def test_selectors(criterion: dict[str, Any], key: dict[str, Any], is_selected: bool) -> None:
    assert Criterion(min_measured_runs=1, **criterion).selects(_key(**key)) is is_selected


def test_scales_may_be_a_range(tmp_path: Path) -> None:
    criterion = _file(tmp_path, {"criteria": {"au": {"nodes": "2..8*2", "min_au": "90%"}}}).criteria["au"]
    assert criterion.nodes == (2, 4, 8)
    assert criterion.selection == "nodes 2 or 4 or 8"


def test_all_that_is_shipped_is_sound_and_named_as_its_file() -> None:
    assert shipped.names(shipped.CRITERIA) == [
        "acceptance", "checkpointing", "interference", "kv_cache", "metadata", "mlperf_storage_v2", "mlperf_storage_v3",
        "mlperf_storage_v3_kv_cache", "nightly",
    ]  # fmt: skip
    for name in shipped.names(shipped.CRITERIA):
        loaded = criteria_file.load(name)
        assert loaded.name == name
        assert loaded.description
        assert loaded.source
        assert loaded.criteria


def test_what_a_template_has_in_comments_is_right_too(tmp_path: Path) -> None:
    """The template is a valid file without its comment signs."""
    text = shipped.find(shipped.CRITERIA, "acceptance").read_text()
    head, _, tail = text.partition("  # What a contract adds, for instance:\n")
    bare = "".join(line.replace("  # ", "  ", 1) for line in tail.splitlines(keepends=True))
    path = tmp_path / "mine.yaml"
    path.write_text(head + bare)
    criteria = criteria_file.load(str(path)).criteria
    assert criteria["latency"].max_read_p99 == pytest.approx(0.05)
    assert criteria["checkpoints"].all_runs
    assert criteria["bandwidth"].nodes == 64
    assert criteria["how"].gaps == "shorter than a run"
    keys = {key for criterion in criteria.values() for key in criterion.asked}
    assert {"min_steps", "min_dataset_over_memory", "warmups", "measured_runs", "separate_results_fs"} <= keys


def test_a_file_without_criteria_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file has no criteria, so it would accept any job"):
        _file(tmp_path, {})


def test_each_key_of_a_criterion_is_a_limit_or_a_rule() -> None:
    """A key that is neither would be read and never checked."""
    keys = [key for key in Criterion.__struct_fields__ if key not in criteria_file._ASIDE]
    known = [*performance_criteria.LIMITS, *procedure_criteria.RULES]
    lacking = [key for key in keys if key not in known]
    assert not lacking, f"name a limit min_METRIC or max_METRIC, or add a rule to procedure_criteria.RULES: {lacking}"
    unknown = sorted({*known} - {*keys})
    assert not unknown, f"a limit or a rule has a key in criteria_file.Criterion: {unknown}"
    assert len(known) == len(keys)
