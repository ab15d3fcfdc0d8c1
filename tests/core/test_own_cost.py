"""The time that dlio-hpc itself takes is measured and reported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base.units import Seconds, Size
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import distributions, merge, own_cost
from dlio_hpc.records.job_outcome import RunOutcome
from dlio_hpc.reports import job_rows
from tests.bench import scaling
from tests.support import recordings


def _seconds(kind: str = "raw", sample: Sample | None = None, **keys: Any) -> float:
    """Return the cost of two steps that wait for 1 s each, 1.2 s of it for reads and 0.3 s for auxiliary files."""
    steps = np.zeros((2, distributions.COLUMNS))
    steps[:, distributions.STARTED], steps[:, distributions.READY] = [10, 20], [11, 21]
    dataset = Dataset(kind, 1, 2, sample or Sample(bytes=Size(100)))  # type: ignore[arg-type]
    return own_cost.seconds(Workload("w", dataset, reader=Reader(**keys)), steps, 1.2, 0.3, 0.125)


@pytest.mark.parametrize("kind", ["raw", "npz", "hdf5", "tfrecord", "null"])
def test_waits_without_reads_are_a_cost(kind: str) -> None:
    assert _seconds(kind) == pytest.approx(0.125 + 2 - 1.2 - 0.3)


@pytest.mark.parametrize(
    "keys",
    [{"mode": "framework"}, {"loader": "pytorch"}, {"preprocess_time": Seconds(1)}, {"load": "memory"}],
    ids=str,
)
def test_work_of_libraries_and_of_the_workload_is_no_cost(keys: dict[str, Any]) -> None:
    assert _seconds(**keys) == 0.125


def test_parsing_is_no_cost() -> None:
    assert _seconds("csv", Sample(shape=(10,))) == 0.125
    assert _seconds("tfrecord", verify=True) == 0.125


@pytest.mark.parametrize(
    ("own_s", "text"),
    [
        (None, None),
        (0.05, None),
        (0.2, "2.0 % of the time is the cost of dlio-hpc itself"),
        (2.5, "25.0 % of the time is the cost of dlio-hpc itself: it limits the rates; use larger batches"),
    ],
)
def test_a_notable_cost_is_reported(tmp_path: Path, own_s: float | None, text: str | None) -> None:
    made = scaling.planned(tmp_path, "slurm", 2)
    summary = structs.replace(merge.summary(recordings.merged(made), made.runs[-1]), overhead_s=own_s, wall_s=10.0)
    facts = dict(job_rows.facts(RunOutcome(made.runs[-1], None, None, None), summary))
    assert facts["own cost"].startswith(text) if text else "own cost" not in facts


def test_the_advice_on_a_dropped_page_cache_is_longer_epochs(tmp_path: Path) -> None:
    made = scaling.planned(tmp_path, "slurm", 2)
    run = made.runs[-1]
    summary = structs.replace(merge.summary(recordings.merged(made), run), overhead_s=2.5, wall_s=10.0)
    reader = structs.replace(run.workload.reader, drop_cache=True)
    dropped = structs.replace(run, workload=structs.replace(run.workload, reader=reader))
    facts = dict(job_rows.facts(RunOutcome(dropped, None, None, None), summary))
    assert "use longer epochs (the page cache is dropped before each), larger batches" in facts["own cost"]
