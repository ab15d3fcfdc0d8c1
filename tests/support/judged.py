"""Entries of the history with made-up metrics, without jobs."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from dlio_hpc.analysis.storage_check import EpochStorage, Storage
from dlio_hpc.base import units
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement

KEY = Key("theta", "lustre /scratch", "8 stripes", 2, 4, "demo", "0" * 12, "1.0")
_BEGIN = units.timestamp("2026-11-21T10:00:00Z")


def storage(cached: float | None = 0.0, dataset: int = 10**12, memory: int | None = 10**11) -> Storage:
    """Return the storage of a run of one epoch. cached None: cached bytes were not counted."""
    arrived = None if cached is None else int((1 - cached) * dataset)
    epoch = EpochStorage(1, dataset, arrived, cached, "made up")
    advice = () if cached is not None and cached <= 0.1 else ("-S reader.drop_cache=true",)
    return Storage((epoch,), cached, "lustre", dataset, memory, advice=advice)


def run(number: int = 1, begins: float = 0.0, takes: float = 60.0, **changes: Any) -> Measurement:
    """Return a measured run. begins: seconds after the start of the job."""
    changes["metrics"] = METRICS | changes.pop("metrics", {})
    made = Measurement(
        run=f"{number:02}-measure-{number}", kind="measure", title="", repeat=number - 1, data="/scratch/data", key=KEY,
        started=units.utc(_BEGIN + begins, True), ended=units.utc(_BEGIN + begins + takes, True), gap_s=None,
        fault=None, exit_code=0, metrics={}, epochs=1, steps=500, samples=1000, storage=storage(),
    )  # fmt: skip
    return structs.replace(made, **changes)


METRICS = {
    "samples_per_s": 1000.0, "read_MBps": 5000.0, "au": 0.95, "au_mlperf": 0.96, "wall_s": 60.0, "io_time_s": 20.0,
    "wait_p99_s": 0.01, "read_p99_s": 0.005, "slowest_rank_ratio": 1.05, "checkpoint_write_MBps": 800.0,
    "checkpoint_read_MBps": 900.0,
}  # fmt: skip


def entry(runs: Sequence[Measurement], job: str = "job-1", **changes: Any) -> Entry:
    made = Entry(
        job=job, study="study", site="theta", batch_id="1", created="2026-11-21T09:00:00Z",
        ended="2026-11-21T12:00:00Z", state="completed", fault=None, exit_code=0, hosts=("n1",), versions={},
        workloads={}, measurements=tuple(runs), results_on="ext4 /home",
    )  # fmt: skip
    return structs.replace(made, **changes)


def repeats(name: str, values: Sequence[float], **changes: Any) -> Entry:
    """Return a job with a run for each value of that figure, a second apart."""
    runs = [run(place + 1, begins=61.0 * place, metrics={name: value}) for place, value in enumerate(values)]
    return entry([structs.replace(repeat, **changes) for repeat in runs])
