"""Damaged files of jobs are told by name, with exit code 3: no traceback, no endless output, no hang."""

import random
import select
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dlio_hpc import archive
from dlio_hpc.errors import DlioError
from tests import mutations
from tests.conftest import Run, runner
from tests.faults.ground import Done, end_session, environment, taken
from tests.faults.nursery import Nursery

_FILES = (
    "plan.json", "job.json", "environment.json", "exit_status", "job.err", "manifest.json", "layout/after.yaml",
    "runs/00-generate/result.json", "runs/01-measure/result.json", "runs/01-measure/result.json",
    "runs/01-measure/result.json", "runs/01-measure/timeline.h5", "runs/01-measure/timeline.h5",
    "runs/01-measure/timeline.h5", "runs/01-measure/timeline.h5", "runs/01-measure/error.json",
)  # fmt: skip
# Of damaged files the most that a command may say.
_MOST_LETTERS = 60_000
_PATIENCE_S = 60.0
_SEEDS = range(40)


class _Job(NamedTuple):
    directory: Path
    archives: Path
    nursery: Nursery


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Job]:
    """A job of two ranks with its archive, and one beside it that is never damaged."""
    folder = tmp_path_factory.mktemp("mutations")
    run: Run = runner(folder)
    (folder / "small.yaml").write_text(
        "name: small\ndataset: {format: npz, files: 2, samples_per_file: 4, sample: {bytes: 1000}}\n"
        "compute: {time: 1 ms}\n"
    )
    for _ in range(2):
        assert run("dlio-submit", "small.yaml", "-s", "local", "--ppn", 2, "--wait").code == 0
    first = min((folder / "dlio-runs").glob("small-*"))
    (first / "runs" / "01-measure" / "error.json").write_text(
        '{"rank": 0, "host": "node", "kind": "OSError", "message": "no", "exit_code": 6}'
    )
    nursery = Nursery()
    yield _Job(first, folder / "dlio-runs" / "archive", nursery)
    nursery.close()


def _told(job: _Job, folder: Path, *words: str | Path) -> Done:
    log = folder / ".output"
    pid = job.nursery.start("dlio-hpc", list(map(str, words)), folder, environment({}), log)
    if not select.select([job.nursery.descriptor], [], [], _PATIENCE_S)[0]:
        end_session(pid)
        job.nursery.code()
        return Done(("dlio-hpc", *map(str, words)), None, taken(log))
    return Done(("dlio-hpc", *map(str, words)), job.nursery.code(), taken(log))


def _commands(directory: Path, target: Path, sound: Path) -> list[tuple[str | Path, ...]]:
    return [
        ("report", directory), ("report", directory, "--json"), ("report", directory, "--html", "page.html"),
        ("report", directory, "--csv"), ("report", directory, "--perfetto", "trace.json.gz"), ("report", target),
        ("status", "-o", directory.parent), ("status", directory), ("history", "--archive", target.parent),
        ("compare", target, sound), ("compare", directory), ("similarity", target, sound), ("accept", directory),
        ("baseline", "set", target), ("archive", "verify", target), ("archive", "list", target),
        ("collect", directory), ("report", directory, "--figures", "figures"), ("compare", target, "--html", "c.html"),
    ]  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize("seed", _SEEDS)
def test_damaged_files_of_jobs_are_told(job: _Job, tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    directory = tmp_path / "runs" / job.directory.name
    shutil.copytree(job.directory, directory)
    target, sound = tmp_path / "archive" / f"{directory.name}.tar.zst", tmp_path / "archive" / "sound.tar.zst"
    target.parent.mkdir()
    shutil.copy(next(path for path in job.archives.glob("*.zst") if job.directory.name not in path.name), sound)
    name = random_.choice(_FILES)
    if name != "runs/01-measure/error.json":
        (directory / "runs/01-measure/error.json").unlink()
    how = mutations.damage(directory / name, random_)
    try:
        archive.create(directory, target)
    except DlioError:
        shutil.copy(sound, target)
    for command in random_.sample(_commands(directory, target, sound), 4):
        done = _told(job, tmp_path, *command)
        context = f"{name}: {how}: {' '.join(done.command)}: {done.code}\n{done.out[-1500:]}"
        assert done.code in {0, 1, 2, 3, 4, 5, 6, 7}, context
        assert "Traceback" not in done.out, context
        assert "a bug of dlio-hpc" not in done.out, context
        assert len(done.out) < _MOST_LETTERS, context
