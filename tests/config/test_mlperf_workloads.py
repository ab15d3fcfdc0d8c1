"""The shipped workloads of MLPerf Storage v3.0 have the numbers of their source."""

from typing import Any

import pytest

from dlio_hpc.config import shipped, workload
from dlio_hpc.reports.mlperf_storage.editions import EDITIONS
from dlio_hpc.verdict import criteria_file

REVISION = "6980038d"
# Facts of mlcommons/storage, configs/dlio/workload/NAME.yaml at that revision: num_files_train, num_samples_per_file,
# record_length_bytes, batch_size, read_threads, prefetch_size, computation_time, epochs, metric.au. A prefetch_size
# that is not set is 2.
FACTS = {
    "unet3d_b200": (7200, 1, 146600628, 7, 4, 2, 0.162, 5, 0.90),
    "retinanet_b200": (1170301, 1, 322957, 24, 8, 2, 0.04755, 8, 0.85),
    "retinanet_mi355": (1170301, 1, 322957, 36, 8, 2, 0.071325, 8, 0.85),
    "dlrm_b200": (1024, 1536000, 761, 12288, 0, 0, 0.000375, 2, 0.70),
    "dlrm_mi355": (1024, 1536000, 761, 18432, 4, 2, 0.0005625, 1, 0.70),
    "flux_b200": (4296, 288, 2164832, 48, 8, 2, 1.35, 1, 0.90),
    "flux_mi355": (4296, 288, 2164832, 72, 8, 2, 2.025, 1, 0.90),
}


@pytest.mark.parametrize("name", FACTS)
def test_numbers_are_those_of_the_source(name: str) -> None:
    files, samples, size, batch, threads, prefetch, time, epochs, _ = FACTS[name]
    made = workload.load(name)
    dataset, reader = made.dataset, made.reader
    assert (dataset.files, dataset.samples_per_file, dataset.sample.bytes) == (files, samples, size)
    ahead = 0 if threads == 0 else max(prefetch, threads)
    assert (reader.batch_size, reader.read_threads, reader.prefetch) == (batch, max(1, threads), ahead)
    assert (made.compute.time.mean, made.train.epochs) == (time, epochs)
    assert (reader.loader, reader.mode, made.checkpoint) == ("pytorch", "framework", None)
    text = (shipped.root() / shipped.WORKLOADS / f"{name}.yaml").read_text()
    assert f"{name}.yaml, revision {REVISION}" in text, "each number has its source"


@pytest.mark.parametrize("name", FACTS)
def test_the_au_is_that_of_the_source_and_exploration_is_said(name: str) -> None:
    rules, text = (
        criteria_file.load("mlperf_storage_v3"),
        (shipped.root() / shipped.WORKLOADS / f"{name}.yaml").read_text(),
    )
    limits = [
        criterion.min_au_mlperf
        for criterion in rules.criteria.values()
        if criterion.min_au_mlperf is not None and criteria_file.is_named(name, criterion.workload)
    ]
    is_whatif = name.startswith(("dlrm", "flux"))
    assert criteria_file.is_named(name, rules.whatif) is is_whatif
    assert ("whatif" in text) is is_whatif
    assert limits == ([] if is_whatif else [FACTS[name][-1]])
    assert f"AU: {100 * FACTS[name][-1]:.0f} %" in text


def test_the_editions_and_criteria_name_their_revision() -> None:
    assert EDITIONS["v3"].revision == REVISION
    for path in (
        "share/criteria/mlperf_storage_v3.yaml",
        "share/suites/mlperf_storage_v3.yaml",
        "share/suites/checkpointing.yaml",
    ):
        assert REVISION in (shipped.root() / path).read_text(), path


# Options of the KV cache benchmark: table KVCache-1 and 6.3.2.1 of Rules.md, revision 0366ccfc of 2026. Model, users of
# a client, seconds, GiB of memory, largest number of allocations at a time.
_KV_OPTIONS: dict[str, tuple[Any, ...]] = {
    "kv_cache_mlperf_8b": ("llama3_8b", 200, 300, 0, 16),
    "kv_cache_mlperf_8b_memory": ("llama3_8b", 100, 300, 4, 16),
    "kv_cache_mlperf_70b": ("llama3_70b", 70, 300, 0, 4),
}


@pytest.mark.parametrize("name", _KV_OPTIONS)
def test_each_option_of_kv_caches_is_that_of_the_rules(name: str) -> None:
    made = workload.load(name)
    keys = made.inference
    assert keys is not None
    assert (keys.model, keys.users, keys.time, keys.memory / 2**30, keys.slots) == _KV_OPTIONS[name]
    assert (keys.seed, made.train.epochs, float(keys.prefill), float(keys.decode)) == (42, 3, 0, 0)
    assert keys.fsync
    text = (shipped.root() / shipped.WORKLOADS / f"{name}.yaml").read_text()
    assert f"option {list(_KV_OPTIONS).index(name) + 1} of MLPerf Storage v3" in text
    assert "revision 0366ccfc" in text
    assert name in criteria_file.load("mlperf_storage_v3_kv_cache").workloads
