"""A facility with made-up figures: suites and workloads of many nights on several sites, in every state."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.batch import job_record
from dlio_hpc.files import archive, rundir
from dlio_hpc.plan.study import Judging
from dlio_hpc.records import job_outcome
from dlio_hpc.results import run_result
from dlio_hpc.results.run_result import Epoch
from dlio_hpc.verdict import baselines, history, history_entry
from dlio_hpc.verdict.history_entry import Entry, Key
from tests.support import nights, studies

NOISE = (1.0, 0.997, 1.004)


def suite(
    archives: Path, name: str, night: int, values: Sequence[float], batch: int = 4, least: float | None = None
) -> Path:
    """Archive a suite of a night with these samples/s of its points, and return the archive. batch: batch size of the
    first point. least: least samples/s that its criteria ask for; None: it has no criteria.
    """
    runs = archives.parent
    axis = f"reader.batch_size={','.join(str(batch * 2**point) for point in range(len(values)))}"
    study = f"{name}-{nights.day(night)[:10].replace('-', '')}-020000-{night:06x}"
    made = studies.make(runs, studies.asked("demo", axis), repeat=len(NOISE), name=study, archive=archives)
    made = structs.replace(made, verdict=Judging(tolerance=units.Share(0.05)))
    if least is not None:
        asked = {"name": "asked", "criteria": {"rate": {"min_samples_per_s": least}}}
        made = structs.replace(made, criteria=asked)
    studies.write(made, lambda point, repeat: values[point] * NOISE[repeat])
    for path in (runs / f"{study}-1").glob(f"{rundir.RUNS}/*/{rundir.RESULT}"):
        result = run_result.decode(path.read_bytes(), str(path))
        epoch = Epoch(1, 10.0, 10, 1000, 10**9, 1.0, 8.0, 1.0, storage_bytes_read=10**9)
        path.write_bytes(serialization.encode(structs.replace(result, epochs=[epoch], file_system="ext4")))
    return archived(runs / f"{study}-1", archives, night)


def archived(job: Path, archives: Path, night: int) -> Path:
    """Archive a job as if it had ended in a night."""
    record = job_record.load(job)
    states = tuple(structs.replace(state, time=nights.day(night)) for state in record.states)
    (job / rundir.JOB).write_bytes(serialization.encode(structs.replace(record, states=states)))
    archives.mkdir(exist_ok=True)
    target = archives / f"{job.name}{archive.SUFFIX}"
    archive.create(job, target)
    return target


def earlier(archives: Path, made: Path, name: str, kept: Sequence[int], level: float = 1.0) -> list[Entry]:
    """Enter earlier nights of a suite into the history. made: archive of its last night. level: how much faster they
    were.
    """
    last = history_entry.of(job_outcome.load_archive(made))
    entries = []
    for night in kept:
        study = f"{name}-{nights.day(night)[:10].replace('-', '')}-020000-{night:06x}"
        wobble = 1 + 0.004 * ((7 * night) % 5 - 2)
        runs = tuple(
            structs.replace(
                run, metrics={key: value * level * wobble for key, value in run.metrics.items()},
            )
            for run in last.measurements
        )  # fmt: skip
        when = nights.day(night)
        entry = structs.replace(last, job=f"{study}-1", study=study, created=when, ended=when, measurements=runs)
        history.enter(archives, entry)
        entries.append(entry)
    return entries


def workload(archives: Path, name: str, site: str, kept: Sequence[int], **rest: Any) -> Entry:
    """Enter a job of a workload outside suites for each of these nights, and return the last."""
    key = Key(site, "lustre /scratch", "8 stripes of 1 MiB", 2, 4, name, "abcdef012345", "1.0.0")
    archives.mkdir(exist_ok=True)
    for night in kept:
        wobble = 100 + 0.4 * ((7 * night) % 5 - 2)
        job = f"{name}-{nights.day(night)[:10].replace('-', '')}-030000-{night:06x}"
        more = rest if night == kept[-1] else {}
        entry = nights.entry(night, [wobble * noise for noise in NOISE], key, **{"job": job, **more})
        history.enter(archives, entry)
    return entry


def facility(folder: Path, last: int = 83) -> Path:
    """Make the archives of a facility whose last night has this number, and return their folder."""
    archives = folder / "archive"
    archives.mkdir(parents=True)
    slow = suite(archives, "nightly", last, [90.0, 200.0])
    history.take_in(archives)
    first = earlier(archives, slow, "nightly", [night for night in range(last - 40, last) if night % 9], 1.12)[0]
    baselines.accept(archives, first, "quiet night", force=True)
    good = suite(archives, "checkpoints", last, [50.0], 32)
    history.take_in(archives)
    baselines.accept(archives, earlier(archives, good, "checkpoints", range(last - 12, last))[0], "quiet", force=True)
    stopped = suite(archives, "weekend", last - 2, [70.0], 64)
    history.take_in(archives)
    earlier(archives, stopped, "weekend", [last - 9, last - 8])
    baselines.accept(archives, workload(archives, "cosmoflow", "polaris", range(last - 9, last)), "ok", force=True)
    workload(archives, "cosmoflow", "polaris", [last])
    workload(archives, "unet3d", "polaris", range(last - 3, last + 1), storage="cached")
    workload(
        archives, "resnet50", "aurora", [last - 1, last], fault="job ended as node_fail", exit_code=6, state="failed"
    )
    workload(archives, "bert", "aurora", [last - 60])
    return archives


def make_new(path: Path) -> None:
    """Give a file the present time, so that it is newer than the pages made from it."""
    os.utime(path)
