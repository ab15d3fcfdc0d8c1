"""Histories with made-up figures: a job per night, as its archive would record it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from dlio_hpc.analysis.storage_check import EpochStorage, Storage
from dlio_hpc.base import units
from dlio_hpc.verdict import run_groups
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement

KEY = Key("theta", "lustre /scratch", "8 stripes of 1 MiB", 2, 4, "cosmoflow", "abcdef012345", "0.1.0")
# The unknown key keeps the digests as they are here: this version cannot compute them again.
WORKLOAD = {"name": "cosmoflow", "reader": {"batch_size": 4}, "of_another_version": True}
_FIRST = units.timestamp("2026-09-01T02:00:00Z")
_STORAGE = {
    "storage": Storage((EpochStorage(1, 100, 100, 0.0, "lustre client's count"),), 0.0, "lustre", 100, 10),
    "cached": Storage(
        (EpochStorage(1, 100, 20, 0.8, "lustre client's count"),),
        0.8,
        "lustre",
        100,
        10,
        advice=("-S reader.direct=true",),
    ),
    "unknown": Storage((EpochStorage(1, 100, None, None, "not counted"),), None, "", 100, 10),
}


def measurement(number: int, value: float, key: Key = KEY, storage: str = "storage", **rest: Any) -> Measurement:
    made = Measurement(
        run=f"{number + 1:02}-measure", kind="measure", title="", repeat=number, data="/scratch/data", key=key,
        started="2026-09-01T02:00:00Z", ended="2026-09-01T02:01:00Z", gap_s=None, fault=None, exit_code=0,
        metrics={"samples_per_s": value, "wall_s": 1000 / value}, epochs=1, steps=10, samples=1000,
        storage=_STORAGE[storage],
    )  # fmt: skip
    return structs.replace(made, **rest)


def day(night: int) -> str:
    """Return when the job of a night ended, by its number."""
    return units.utc(_FIRST + 86400 * night)


def entry(night: int, values: Sequence[float], key: Key = KEY, storage: str = "storage", **rest: Any) -> Entry:
    """Return the job of a night by its number. values: the samples/s of its repeats."""
    ended = day(night)
    made = Entry(
        job=f"nightly-{night:03}", study=f"nightly-{night:03}", site=key.site, batch_id=str(night), created=ended,
        ended=ended, state="completed", fault=None, exit_code=0, hosts=("n1", "n2"), versions={"dlio_hpc": key.version},
        workloads={key.settings: WORKLOAD},
        measurements=tuple(measurement(number, value, key, storage) for number, value in enumerate(values)),
    )  # fmt: skip
    return structs.replace(made, **{"study": rest.get("job", made.job)} | rest)


def entries(
    levels: Sequence[float], noise: float, between: float = 0.0, repeats: int = 3, seed: int = 1
) -> list[Entry]:
    """Return one job per level, in samples/s. noise: of a repeat; between: noise that the repeats of a night share;
    both are relative.
    """
    drawn = draw(np.log(np.asarray(levels))[np.newaxis], noise, between, repeats, seed)[0]
    return [entry(night, [float(value) for value in values]) for night, values in enumerate(drawn)]


def draw(
    logs: npt.NDArray[np.float64], noise: float, between: float, repeats: int, seed: int
) -> npt.NDArray[np.float64]:
    """Draw samples/s of shape (histories, nights, repeats) around logarithms of true values, (histories, nights)."""
    random = np.random.default_rng(seed)
    shared = random.normal(0, between, logs.shape)[..., np.newaxis]
    return np.asarray(np.exp(logs[..., np.newaxis] + shared + random.normal(0, noise, (*logs.shape, repeats))))


def accepted(made: Entry, number: int = 0, **rest: Any) -> Accepted:
    """Return a baseline of the job's only key."""
    (group,) = run_groups.of(made)
    baseline = Accepted(f"{made.job}-{number:06}", group, "it is good", "me@here", f"2026-10-01T00:00:{number:02}.000Z")
    return structs.replace(baseline, **rest)
