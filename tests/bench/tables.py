"""CPU time of the commands that show tables of many jobs, and of the page of a small job."""

import tempfile
from pathlib import Path

from msgspec import structs

from dlio_hpc.files import archive
from dlio_hpc.records import job_outcome
from dlio_hpc.verdict import history, history_database, history_entry
from tests.bench.starting import BIN, cpu_ms
from tests.bench.table import row
from tests.support import nights, studies

_JOBS, _RUNS, _ROUNDS = 5000, 3, 5
_WORKLOADS, _SITES = ("cosmoflow", "unet3d", "resnet50", "bert", "dlrm"), ("polaris", "aurora")


def bench(jobs: int = _JOBS, rounds: int = _ROUNDS) -> None:
    """Print the least CPU time of each command. jobs: number of jobs of the history, ten measurements a night."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archives = enter_jobs(folder, jobs)
        submit = [
            "demo",
            "-s",
            "local",
            "--dataset-size",
            "16MiB",
            "--repeat",
            str(_RUNS),
            "-o",
            name,
            "--wait",
            "--quiet",
        ]
        cpu_ms([BIN / "dlio-submit", *submit], folder)
        (job,) = (path.parent for path in folder.glob("demo-*/plan.json"))
        page = folder / "page.html"
        for what, arguments, goal in (
            (f"history of {jobs} jobs, the newest 30", ("history", "--archive", archives, "--last", 30), "<= 1 s"),
            (f"history of {jobs} jobs, all", ("history", "--archive", archives), ""),
            (f"history --html of {jobs} jobs, the dashboard",
             ("history", "--archive", archives, "--last", 30, "--html", page), "<= 2 s"),
            ("report --html of a job of 3 runs", ("report", job, "--html", page), "<= 0.7 s"),
        ):  # fmt: skip
            command: list[str | Path] = [BIN / "dlio-hpc", *map(str, arguments)]
            took = min(cpu_ms(command) for _ in range(rounds))
            row(f"CPU: {what}", f"{took / 1e3:.2f} s", goal=goal)


def enter_jobs(folder: Path, jobs: int) -> Path:
    """Make a history of jobs whose entries have the size of real ones, and return the folder of its archives."""
    archives = folder / "archive"
    archives.mkdir()
    like = history_entry.of(job_outcome.load(_small_job(folder)))
    ((digest, workload),) = like.workloads.items()
    with history_database.writing(archives) as database:
        for number in range(jobs):
            night = number // (len(_WORKLOADS) * len(_SITES))
            site, name = _SITES[number % 2], _WORKLOADS[number // 2 % 5]
            key = history_entry.Key(site, "lustre /scratch", "8 stripes of 1 MiB", 2, 4, name, digest, "0.1.0")
            day = nights.day(night)
            job = f"{name}-{day[:10].replace('-', '')}-020000-{number:06x}"
            level = 100 + 0.4 * ((7 * night) % 5 - 2)
            made = nights.entry(night, [level, level * 0.997, level * 1.004], key)
            runs = tuple(
                structs.replace(known, key=key, job=job, metrics=known.metrics | run.metrics, storage=run.storage)
                for known, run in zip(like.measurements, made.measurements, strict=True)
            )
            entry = structs.replace(
                like, job=job, study=job, site=site, created=day, ended=day, measurements=runs,
                workloads={digest: {**workload, "name": name}},
            )  # fmt: skip
            path = archives / f"{job}{archive.SUFFIX}"
            path.touch()
            history._enter(database, entry)
            history._stamp(database, path)
    return archives


def _small_job(folder: Path) -> Path:
    """Return the directory of a job of three runs."""
    made = studies.make(folder / "runs", repeat=_RUNS, name="small")
    path = folder / "runs" / "small"
    return path if path.exists() else studies.write(made, lambda _, repeat: 100.0 + repeat)
